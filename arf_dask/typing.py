"""Type aliases shared by all folders of the package."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]
Codes = NDArray[np.unsignedinteger]  # integer codes that trees split on: (row, variable)

Kind = Literal[
    "categorical", "numeric", "key", "empty", "computed"
]  # "computed": determined by a rule, only in schemas shown to users
Family = Literal["truncnorm", "uniform"]  # distribution of numbers inside a leaf
Support = Literal["observed", "open"]  # range of sampled numbers
DependenceKind = Literal["tree", "none"]  # dependence of variables inside a leaf
Missing = Literal["value", "marginal"]  # interpretation of nulls in a density
Refine = Literal["auto"] | bool  # whether to learn a ratio that refines the forest
OnImpossible = Literal["raise", "null", "relax"]  # handling of conditions with probability zero
WriteMode = Literal["error", "overwrite", "resume"]  # handling of an existing target path
TableMode = Literal["error", "append", "overwrite"]  # handling of an existing table
FrameKind = Literal["polars", "pandas", "arrow", "lazy", "dask"]  # type of the returned frame
Bundles = str | bool | Sequence[Sequence[str]]
PathLike = str | os.PathLike[str]
Condition = Mapping[str, Any] | Sequence[Mapping[str, Any]] | pl.Expr | None  # a condition other than a frame


class Frame(Protocol):
    """The common interface of Polars, pandas, Arrow and Dask frames."""

    @property
    def columns(self) -> Any: ...


FrameT = TypeVar("FrameT", bound=Frame)  # the caller's frame type, which is also the type of the result
