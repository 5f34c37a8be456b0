"""The interface of all transforms: a column of the user's table, and the modelled columns in its place.

A transform knows everything about itself: how values are modelled (`forward`) and rebuilt (`inverse`), which rows it
cannot mean (`faults`, `off_grid`, `contradicts`), what a condition on the column means for the modelled columns
(`translate`, `implies`), what known values tell about others (`deduce`, `repair`), and how it is written into a model
file (`details`, `parse`). No other module asks which transform it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import polars as pl

from arf_dask.data.stored_fields import require
from arf_dask.data.value_sets import Box, Region, ValueSet
from arf_dask.rules.expressions import Name, Node, columns_of
from arf_dask.rules.targets import Target
from arf_dask.typing import Flags, Floats

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

MODEL_JSON = "model.json"
MOST_DECIMALS = 38


class Resolved(NamedTuple):
    """Known values of a column as modelled columns."""

    columns: Mapping[str, pl.Series]
    contradictory: Flags  # rows that contradict the transform
    unresolved: Flags  # rows whose modelled value depends on an unknown input, so that it has to be integrated out
    free: Mapping[str, Flags] = MappingProxyType({})  # per modelled column: cells with any value, which mean the same
    log_slopes: Floats | float = 0.0  # logarithm of the change of the modelled column per unit of the column


class Repair(NamedTuple):
    """What there is to know about completed rows whose unknown values may change."""

    known: pl.DataFrame  # the known values; null means unknown
    drawn: pl.DataFrame  # the rows before the known values were put in
    relations: Relations  # the transforms of all columns
    move_bases: bool = False  # whether the base of a broken order moves next to the known column

    def is_unknown(self, column: str) -> pl.Series:
        """Flag the rows in which a column is unknown."""
        if column in self.known.columns:
            return self.known.get_column(column).is_null()
        return pl.Series([True]).new_from_index(0, self.known.height)


class Measure(Protocol):
    """Counts over all rows."""

    def n_off_grid(self, transform: Transform) -> int:
        """Return the number of rows whose value a transform of one column cannot express."""

    def digits(self, transform: Transform) -> int:
        """Return the decimals that represent all values of a modelled column: a bit mask (see `axes.AxisSummary`)."""


class Transform(ABC):
    """A column of the user's table that is modelled by other columns: none, one or several."""

    target: Target
    kind: ClassVar[str]  # its name in model files
    detail_types: ClassVar[Mapping[str, Any]]  # the fields that it has in model files, with their types

    @property
    def one_to_one(self) -> bool:
        """Whether the modelled columns determine the value without other columns."""
        return False

    @property
    def keeps_values(self) -> bool:
        """Whether values stay as they are drawn; changes would tear columns apart that are drawn together."""
        return True

    @property
    def is_distance(self) -> bool:
        """Whether a distance from another column is modelled."""
        return False

    @property
    def is_ordered(self) -> bool:
        """Whether values have the lexicographic order of their modelled columns."""
        return False

    @property
    def expression(self) -> Node | None:
        """The expression of other columns that is evaluated to rebuild the column, if any."""
        return None

    @property
    def stored_expression(self) -> Node | None:
        """The expression that is written into model files."""
        return self.expression

    @property
    def sort_node(self) -> Node:
        """The expression by which values of the column are compared."""
        return Name(self.target.name)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The other columns of the user's table that are needed to rebuild the column."""
        return () if self.expression is None else columns_of(self.expression)

    @property
    @abstractmethod
    def outputs(self) -> dict[str, pl.DataType]:
        """The modelled columns in the place of the column, with their dtypes."""

    @abstractmethod
    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        """Convert the column of the user's rows to the modelled columns."""

    @abstractmethod
    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        """Rebuild the column from the modelled columns, and from its inputs in `frame`."""

    def rebuild(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        """Rebuild the column as `inverse` does; where no value is modelled so, return a mark that `faults` flags."""
        return self.inverse(frame, outputs)

    def unchanged(self, outputs: Mapping[str, pl.Series]) -> pl.Series:
        """Return the values as they were drawn, where `inverse` changes them (see `keeps_values`)."""
        return outputs[self.target.name]

    def unmarked(self, series: pl.Series) -> pl.Series:
        """Return rebuilt values with null instead of the mark of `rebuild`."""
        return series

    @abstractmethod
    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        """Return the region of the modelled columns in which the column lies in a set.

        Args:
            wanted: the set, within the values that can occur.
            known: the sets of other columns of the user's table, in which the row is known to lie.
            relations: the transforms of the other columns.
        """

    def implies(self, wanted: ValueSet, relations: Relations) -> Box:
        """Return sets of other columns of the user's table that contain every row whose column lies in `wanted`."""
        return {}

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rebuilt rows outside the observed range, and nulls in columns without nulls."""
        values = frame.get_column(self.target.name).alias("")
        return ~self.target.in_range(self.target.units(values)) | self.target.forbidden_null(values)

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag values that the modelled columns cannot express; nulls are not flagged."""
        return pl.Series(np.zeros(len(series), dtype=bool))

    def text(self) -> str:
        """Describe the values of the column as a rule; empty if there is nothing to say."""
        return ""

    def user_levels(self, modelled: pl.Series) -> pl.Series:
        """Return the levels of the column, given those of the modelled column."""
        return modelled[:0]

    def measured(self, series: pl.Series) -> pl.Series:
        """Return the values whose range over all rows is that of the target."""
        return series

    def is_confirmed(self, target: Target) -> bool:
        """Whether all rows, whose target is given, confirm what was found on a sample."""
        return True

    def refined(self, sample: pl.DataFrame, measure: Measure) -> Transform:
        """Return the transform with the details that only counts over all rows decide."""
        return self

    def n_covered(self, modelled: pl.Series) -> int:
        """Return the number of modelled values that are among the few possible ones, if there are only a few."""
        return 0

    @property
    def is_optional(self) -> bool:
        """Whether what the transform guarantees can be kept by drawing rows again instead."""
        return False

    def with_target(self, target: Target) -> Self:
        """Return the transform of a column whose range was counted over all rows."""
        return replace(self, target=target)  # type: ignore[type-var]

    def in_zone(self, zone: str) -> Self:
        """Return the transform that reads timestamps on the clocks of a time zone; others do not change."""
        return self

    def forward_known(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        """Convert rows in which null means unknown; also return the rows whose modelled columns are known."""
        return self.forward(frame), frame.get_column(self.target.name).is_not_null()

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        """Convert known values for a density.

        Args:
            known: the known columns.
            deduced: the known columns, with the values that they imply.
            null_is_value: whether null is a value of its own, or unknown.
        """
        is_wrong = self.off_grid(deduced.get_column(self.target.name)).to_numpy()
        return Resolved(self.forward(deduced), is_wrong, np.zeros(known.height, dtype=bool))

    def contradicts(self, frame: pl.DataFrame) -> Flags:
        """Flag complete rows that contradict the transform."""
        return np.zeros(frame.height, dtype=bool)

    def deduce(self, frame: pl.DataFrame, relations: Relations) -> pl.DataFrame:
        """Fill in the values that known values imply; null means unknown."""
        return frame

    def repair(self, rows: pl.DataFrame, task: Repair) -> pl.DataFrame:
        """Change unknown values of completed rows that contradict the transform."""
        return rows

    def recompute(self, rows: pl.DataFrame, task: Repair) -> pl.DataFrame:
        """Evaluate the expression again where the column is unknown, after its inputs have changed."""
        return rows

    @property
    def sets_itself(self) -> bool:
        """Whether every wanted value is reached by setting the modelled column."""
        return False

    def set_to(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        """Return the values of the modelled column that give the column these units."""
        (modelled,) = self.forward(frame.with_columns(self.target.values(units))).values()
        return modelled

    def log_slopes(self, frame: pl.DataFrame) -> Floats | float:
        """Return the logarithm of the change of the modelled column per unit of the column, in rows with its inputs."""
        return 0.0

    def expression_units(self, units: pl.Series, modelled: pl.DataFrame) -> pl.Series:
        """Return the units that the expression must have, so that the column has the given ones in modelled rows."""
        return units

    def follows_expression(self, modelled: pl.DataFrame) -> pl.Series:
        """Flag the modelled rows in which the expression determines the column, or how far it is from it."""
        return pl.Series([True]).new_from_index(0, modelled.height)

    @property
    def following(self) -> int | float | str | None:
        """The modelled value of the rows in which the expression determines the column; None if it is not one value."""
        return None

    def details(self) -> dict[str, Any]:
        """Return the fields of the transform for the model file, without target and expression."""
        return {}

    @classmethod
    @abstractmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        """Return the transform that a model file describes, or raise a ModelFormatError."""


class Link(Transform):
    """A one-to-one transform with a single modelled column of the same name, which another transform can follow."""

    one_to_one = True

    @property
    @abstractmethod
    def modelled_target(self) -> Target:
        """The modelled column, with its range, as the target of another transform."""


def in_order(transforms: Sequence[Transform]) -> list[Transform] | None:
    """Sort transforms topologically, so that each follows its inputs; None if they contain a cycle."""
    by_name = {transform.target.name: transform for transform in transforms}
    positions = {name: position for position, name in enumerate(by_name)}
    sorter = TopologicalSorter({name: [i for i in one.inputs if i in by_name] for name, one in by_name.items()})
    try:
        sorter.prepare()
    except CycleError:
        return None
    ordered: list[Transform] = []
    while sorter.is_active():
        ready_names = sorted(sorter.get_ready(), key=positions.__getitem__)
        ordered += [by_name[name] for name in ready_names]
        sorter.done(*ready_names)
    return ordered


def is_finite(value: Any) -> bool:
    """Whether a number of a model file is finite; other values count as finite."""
    return not isinstance(value, float) or math.isfinite(value)


def require_details(is_valid: bool, where: str, what: str) -> None:
    """Raise a ModelFormatError unless the details of a transform are valid."""
    require(is_valid, MODEL_JSON, f"{where}: {what}")


def needed_node(node: Node | None, where: str) -> Node:
    """Return the expression of a transform that cannot be without one, or raise a ModelFormatError."""
    require_details(node is not None, where, "no expression")
    assert node is not None
    return node


def nulls_where(is_lost: pl.Series, series: pl.Series) -> pl.Series:
    """Replace the flagged values by null."""
    blank = pl.Series(series.name, [None], dtype=series.dtype).new_from_index(0, len(series))
    return blank.zip_with(is_lost, series)
