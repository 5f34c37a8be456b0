"""Synthetic tables from adversarial random forests.

Each folder of the package imports only from the folders to its left (see docs/architecture.md):

    typing, errors, options < runtime < stats < data < rules < schema < refinement < forest
        < inference < storage < reporting < release < training < privacy < relational
        < model_tables, queries, sinks, model, table_models,
          single_files, reports, api, tables, synthesis, sklearn, namespace
        < integrations < cli

`fit` learns the joint distribution of a table and returns a `Model`. `Model.sample` draws rows, under any condition;
`log_density`, `probability`, `expect`, `quantile`, `cdf` and `impute` answer questions. `synthesize` fits and draws in
one step. `fit_tables` learns several tables that refer to each other and returns a `TablesModel`. `adversarial_forest`,
`forde` and `forge` are the three algorithms of the paper.
"""

from arf_dask.api import adversarial_forest, fit, forde, forge, load
from arf_dask.data.value_sets import Interval
from arf_dask.errors import (
    ArfError,
    ClusterError,
    DataError,
    ForkError,
    ImpossibleConditionError,
    IndexDroppedWarning,
    KeyColumnWarning,
    MissingExtraError,
    ModelFormatError,
    OptionError,
    OutputError,
    PrivacyError,
    PrivacyWarning,
    ReleaseError,
    ReleaseWarning,
    RuleWarning,
    UnsupportedColumnError,
)
from arf_dask.model import Model
from arf_dask.namespace import FrameNamespace as _FrameNamespace  # noqa: F401, registers df.arf
from arf_dask.privacy.declaration import DifferentialPrivacy
from arf_dask.privacy.statement import PrivacyStatement
from arf_dask.refinement.ratio import Refinement
from arf_dask.release.policy import Limits, ReleasePolicy
from arf_dask.reporting.result import Report
from arf_dask.reports import report
from arf_dask.rules.relations import Rule
from arf_dask.schema.columns import Column, Schema, Variable
from arf_dask.storage.manifest import Manifest
from arf_dask.synthesis import synthesize
from arf_dask.table_models import TablesModel
from arf_dask.tables import fit_tables
from arf_dask.training.forests import AdversarialForest

__version__ = "0.1.0"

__all__ = [
    "AdversarialForest",
    "ArfError",
    "ClusterError",
    "Column",
    "DataError",
    "DifferentialPrivacy",
    "ForkError",
    "ImpossibleConditionError",
    "IndexDroppedWarning",
    "Interval",
    "KeyColumnWarning",
    "Limits",
    "Manifest",
    "MissingExtraError",
    "Model",
    "ModelFormatError",
    "OptionError",
    "OutputError",
    "PrivacyError",
    "PrivacyStatement",
    "PrivacyWarning",
    "Refinement",
    "ReleaseError",
    "ReleasePolicy",
    "ReleaseWarning",
    "Report",
    "Rule",
    "RuleWarning",
    "Schema",
    "TablesModel",
    "UnsupportedColumnError",
    "Variable",
    "adversarial_forest",
    "fit",
    "fit_tables",
    "forde",
    "forge",
    "load",
    "report",
    "synthesize",
]


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, "__version__"]
