"""Synthetic tables from adversarial random forests.

One straight line of flow, each module using only what stands to its left:

    frames -> schema -> encode -> forest -> adversary -> forde -> tables -> conditions -> density -> forge -> sink
    -> model

`fit` learns the joint distribution of a table and gives a `Model`; `model.sample` draws from it, under any condition;
`model.log_density`, `probability`, `expect`, `quantile`, `cdf` and `impute` answer questions; `synthesize` fits and
draws. `adversarial_forest`, `forde` and `forge` are the paper's three algorithms one by one.
"""

from arf_dask.api import AdversarialForest, adversarial_forest, fit, forde, forge, synthesize
from arf_dask.conditions import Interval
from arf_dask.errors import (
    ArfError,
    ClusterError,
    DataError,
    ImpossibleConditionError,
    KeyColumnWarning,
    ModelFormatError,
    OptionError,
    OutputError,
    UnsupportedColumnError,
)
from arf_dask.manifest import Manifest
from arf_dask.model import Model, load
from arf_dask.schema import Column, Schema, Variable

__version__ = "0.1.0"

__all__ = [
    "AdversarialForest",
    "ArfError",
    "ClusterError",
    "Column",
    "DataError",
    "ImpossibleConditionError",
    "Interval",
    "KeyColumnWarning",
    "Manifest",
    "Model",
    "ModelFormatError",
    "OptionError",
    "OutputError",
    "Schema",
    "UnsupportedColumnError",
    "Variable",
    "adversarial_forest",
    "fit",
    "forde",
    "forge",
    "load",
    "synthesize",
]
