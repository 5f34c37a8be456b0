"""What the model knows about the columns: their kinds, levels, spikes and ranges, and which hang together.

A *column* belongs to the user's frame. A *variable* is what the forest models: one column, or a bundle of columns
that are taken as one. Every value of a column has a *token* (0 null, 1 NaN, 2.. its levels or spikes in order, and
for numeric columns one more for "any other value"). Every variable has *states* (null, a level, a spike, a
combination of a bundle: points; or an interval of a number line) and *codes*, the whole numbers trees split on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.axis import Axis
from arf_dask.keys import KeyShape

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]
Kind = Literal["categorical", "numeric", "key", "empty"]

NULL, NAN, FIRST_LEVEL = 0, 1, 2
SHOWN = 60  # columns that a schema prints


@dataclass(frozen=True, eq=False)
class Column:
    """One column of the user's frame."""

    name: str
    dtype: pl.DataType
    kind: Kind
    levels: pl.Series  # categorical: the levels seen, in the column's own dtype
    points: Floats = field(default_factory=lambda: np.empty(0))  # numeric: the spikes, on the axis
    axis: Axis | None = None  # numeric only
    key: KeyShape | None = None  # keys only
    nulls: int = 0  # rows that were null
    nans: int = 0  # rows that were NaN

    @property
    def n_points(self) -> int:
        return len(self.levels) if self.kind == "categorical" else len(self.points)

    @property
    def between(self) -> int:
        """The token of a number that is no spike."""
        return FIRST_LEVEL + len(self.points)


@dataclass(frozen=True, eq=False)
class Variable:
    """What one dimension of the forest stands for: one column or a bundle. One row per state in every array."""

    columns: tuple[int, ...]  # places in Schema.columns; a number line, if there is one, comes first
    tokens: Ints  # (state, member): the token of each member column
    interval: Flags  # True: an interval of the first member's axis, False: a point
    code_low: Ints  # the codes this state covers, both ends included
    code_high: Ints
    edges: Floats = field(default_factory=lambda: np.empty(0))  # inner edges of the bins
    segments: Floats = field(default_factory=lambda: np.empty(0))  # inner edges of the interval states
    first_bin: int = 0  # codes before the first bin: null and NaN

    @property
    def n_states(self) -> int:
        return len(self.interval)

    @property
    def n_codes(self) -> int:
        return int(self.code_high.max()) + 1

    @property
    def is_line(self) -> bool:
        """Whether the first member is a number line with bins (else codes are states)."""
        return bool(self.interval.any()) or len(self.edges) > 0

    @property
    def first_interval(self) -> int:
        return int(np.argmax(self.interval)) if self.interval.any() else self.n_states


@dataclass(frozen=True, eq=False)
class Schema:
    """All columns, and the variables they are modelled as."""

    columns: tuple[Column, ...]
    variables: tuple[Variable, ...]
    n_rows: int
    gates: tuple[int, ...] = ()  # variables whose missing rows differ from the others: trees split on that first

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def dtypes(self) -> dict[str, pl.DataType]:
        return {column.name: column.dtype for column in self.columns}

    @property
    def keys(self) -> list[str]:
        return [column.name for column in self.columns if column.kind == "key"]

    @property
    def bundles(self) -> list[list[str]]:
        """The columns that are modelled together, a list of names per bundle."""
        return [[self.columns[i].name for i in v.columns] for v in self.variables if len(v.columns) > 1]

    def variable_of(self, name: str) -> tuple[int, int] | None:
        """Where a column is modelled: (variable, member), or None for keys and empty columns."""
        place = self.names.index(name)
        for number, variable in enumerate(self.variables):
            if place in variable.columns:
                return number, variable.columns.index(place)
        return None

    def describe(self) -> pl.DataFrame:
        """One row per column: name, dtype, kind, points, intervals, nulls, and its bundle."""
        rows = []
        for place, column in enumerate(self.columns):
            found = self.variable_of(column.name)
            variable = self.variables[found[0]] if found is not None else None
            leads = variable is not None and variable.columns[0] == place
            together = [] if variable is None else [self.columns[i].name for i in variable.columns]
            rows.append(
                {
                    "column": column.name,
                    "dtype": str(column.dtype),
                    "kind": column.kind,
                    "points": column.n_points,
                    "intervals": int(variable.interval.sum()) if variable is not None and leads else 0,
                    "nulls": column.nulls,
                    "bundle": together if len(together) > 1 else [],
                }
            )
        kinds: dict[str, Any] = {
            "points": pl.UInt32,
            "intervals": pl.UInt32,
            "nulls": pl.UInt64,
            "bundle": pl.List(pl.String),
        }
        return pl.DataFrame(rows, schema_overrides=kinds)

    def __repr__(self) -> str:
        lines = [f"Schema: {len(self.columns)} columns as {len(self.variables)} variables, {self.n_rows:,} rows"]
        table = self.describe().drop("bundle").head(SHOWN)
        cells = [table.columns, *([str(cell) for cell in row] for row in table.rows())]
        widths = [min(max(len(row[i]) for row in cells), 40) for i in range(table.width)]
        lines += ["  " + "  ".join(c[:w].ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        if len(self.columns) > SHOWN:
            lines.append(f"  ... and {len(self.columns) - SHOWN} more: describe() has them all")
        lines += ["modelled together: " + " + ".join(names) for names in self.bundles]
        if self.gates:
            first = [self.columns[self.variables[gate].columns[0]].name for gate in self.gates]
            lines.append("missing or known is split on first: " + ", ".join(first))
        return "\n".join(lines)
