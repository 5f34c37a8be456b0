"""The schema of a model: kinds, levels, spikes and ranges of the columns, and which are modelled together.

A *column* belongs to the user's frame. A *variable* is what the forest models: one column, or a bundle of columns
that are modelled as one. Every value of a column has a *token* (0 null, 1 NaN, 2.. its levels or spikes in order, and
for numeric columns one more for "any other value"). Every variable has *states* (null, a level, a spike, a
combination of a bundle: points; or an interval of a number line) and *codes*, the integers that trees split on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.axes import Axis
from arf_dask.data.keys import KeyShape
from arf_dask.errors import unknown_column
from arf_dask.rules.relations import Rule
from arf_dask.runtime.display import TextInNotebooks, count, printable
from arf_dask.typing import Flags, Floats, Ints, Kind

NULL, NAN, FIRST_LEVEL = 0, 1, 2
SHOWN = 60  # maximum number of columns that a schema prints


@dataclass(frozen=True, eq=False, repr=False)
class Column(TextInNotebooks):
    """One column of the user's frame, as listed in `Schema.columns`.

    Examples:
        >>> import arf_dask, polars as pl
        >>> model = arf_dask.fit(pl.DataFrame({"sex": ["f", "m", None, "m"] * 50}), trees=5, seed=1)
        >>> model.schema.columns[0]
        Column('sex', String, categorical, 2 levels, 50 nulls)
    """

    name: str
    dtype: pl.DataType
    kind: Kind
    levels: pl.Series  # categorical: the observed levels, in the dtype of the column
    points: Floats = field(default_factory=lambda: np.empty(0))  # numeric: the spikes, on the axis
    axis: Axis | None = None  # numeric only
    key: KeyShape | None = None  # keys only
    nulls: int = 0  # number of null rows
    nans: int = 0  # number of NaN rows

    @property
    def n_points(self) -> int:
        """Number of levels or spikes."""
        return len(self.levels) if self.kind == "categorical" else len(self.points)

    @property
    def between(self) -> int:
        """Token of the numbers that are not spikes."""
        return FIRST_LEVEL + len(self.points)

    def __repr__(self) -> str:
        dtype = f"Enum of {count(self.n_points, 'level')}" if isinstance(self.dtype, pl.Enum) else str(self.dtype)
        points = {"categorical": "level", "numeric": "spike"}.get(self.kind)
        facts = [] if points is None or not self.n_points else [count(self.n_points, points)]
        facts += [count(number, noun) for number, noun in ((self.nulls, "null"), (self.nans, "NaN")) if number]
        return f"Column({', '.join([repr(self.name), dtype, self.kind, *facts])})"


@dataclass(frozen=True, eq=False, repr=False)
class Variable(TextInNotebooks):
    """One dimension of the forest: a column or a bundle of columns. Its arrays have one row per state."""

    columns: tuple[int, ...]  # indices into Schema.columns; a number line, if there is one, comes first
    tokens: Ints  # (state, member): the token of each member column
    interval: Flags  # True: an interval of the first member's axis, False: a point
    code_low: Ints  # first and last code of the state, both inclusive
    code_high: Ints
    edges: Floats = field(default_factory=lambda: np.empty(0))  # inner edges of the bins
    segments: Floats = field(default_factory=lambda: np.empty(0))  # inner edges of the interval states
    first_bin: int = 0  # code of the first bin; the codes before it are null and NaN

    @property
    def n_states(self) -> int:
        """Number of states: points and intervals."""
        return len(self.interval)

    @property
    def n_codes(self) -> int:
        """Number of codes that trees can split on."""
        return int(self.code_high.max()) + 1

    @property
    def is_line(self) -> bool:
        """Whether the first member is a number line with bins (otherwise codes equal states)."""
        return bool(self.interval.any()) or len(self.edges) > 0

    @property
    def first_interval(self) -> int:
        """Index of the first interval state; the number of states if there are no intervals."""
        return int(np.argmax(self.interval)) if self.interval.any() else self.n_states

    def interval_states(self, axis_values: Floats) -> Ints:
        """Return the interval state that contains each number, even if the number is also a point."""
        return (self.first_interval + np.searchsorted(self.segments, axis_values, side="right")).astype(np.int32)

    def point_states(self, n_tokens: int) -> Ints:
        """Return the point state of each of the first `n_tokens` tokens of the first member; -1 if it has none."""
        states = np.full(n_tokens, -1, dtype=np.int32)
        points = np.flatnonzero(~self.interval)
        states[self.tokens[points, 0]] = points
        return states

    def __repr__(self) -> str:
        intervals = int(self.interval.sum())
        facts = [
            count(number, noun) for number, noun in ((self.n_states - intervals, "point"), (intervals, "interval"))
        ]
        return f"Variable(columns={self.columns}, {facts[0]}, {facts[1]}, {count(self.n_codes, 'code')})"


class ColumnLocation(NamedTuple):
    """The variable that models a column, and the position of the column in it."""

    variable: int  # index into Schema.variables
    member: int  # index into Variable.columns


@dataclass(frozen=True, eq=False)
class Schema(TextInNotebooks):
    """All columns of a table, and the variables that model them.

    Examples:
        >>> import arf_dask, polars as pl
        >>> data = pl.DataFrame({"id": range(200), "kind": ["a", "b"] * 100, "code": ["x", "y"] * 100})
        >>> schema = arf_dask.fit(data, keys=["id"], trees=5, seed=1).schema
        >>> schema.names, schema.keys, schema.bundles
        (['id', 'kind', 'code'], ['id'], [['kind', 'code']])
        >>> schema["kind"]
        Column('kind', String, categorical, 2 levels)
    """

    columns: tuple[Column, ...]
    variables: tuple[Variable, ...]
    n_rows: int
    gates: tuple[
        int, ...
    ] = ()  # variables whose missing rows differ from the other rows: trees split on missingness first
    rules: tuple[Rule, ...] = ()  # in schemas shown to users: the rules between columns

    def __getstate__(self) -> dict[str, object]:
        # Cached properties are not sent to workers.
        return {stored_field.name: getattr(self, stored_field.name) for stored_field in fields(self)}

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]

    @cached_property
    def positions(self) -> dict[str, int]:
        """Positions of the columns, by name."""
        return {column.name: position for position, column in enumerate(self.columns)}

    @cached_property
    def dtypes(self) -> dict[str, pl.DataType]:
        """Dtypes of the columns, by name."""
        return {column.name: column.dtype for column in self.columns}

    @cached_property
    def _locations(self) -> dict[int, ColumnLocation]:
        """The variables and member indices that model the columns, by position."""
        return {
            column_id: ColumnLocation(variable_id, member)
            for variable_id, variable in enumerate(self.variables)
            for member, column_id in enumerate(variable.columns)
        }

    def __getitem__(self, name: str) -> Column:
        """Return a column by its name; raise an OptionError for an unknown one."""
        if name not in self:
            raise unknown_column(name, self.names, "schema")
        return self.columns[self.positions[name]]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.positions

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    @property
    def keys(self) -> list[str]:
        """Names of the identifier columns."""
        return [column.name for column in self.columns if column.kind == "key"]

    @property
    def bundles(self) -> list[list[str]]:
        """Names of the columns that are modelled together, one list per bundle."""
        return [[c.name for c in self.member_columns(v)] for v in self.variables if len(v.columns) > 1]

    def variable_of(self, name: str) -> ColumnLocation | None:
        """Return the variable and member index that model a column; None for keys and empty columns."""
        return self._locations.get(self.positions[name])

    def lead_column(self, variable: Variable) -> Column:
        """Return the first member of a variable: the number line, if the variable has one."""
        return self.columns[variable.columns[0]]

    def member_columns(self, variable: Variable) -> list[Column]:
        """Return all member columns of a variable."""
        return [self.columns[column_id] for column_id in variable.columns]

    def describe(self) -> pl.DataFrame:
        """One row per column: its name, dtype, kind, bundle, and the numbers of points, intervals and nulls."""
        rows = []
        for column_id, column in enumerate(self.columns):
            location = self.variable_of(column.name)
            variable = self.variables[location.variable] if location is not None else None
            is_lead = variable is not None and variable.columns[0] == column_id
            member_names = [] if variable is None else [member.name for member in self.member_columns(variable)]
            rows.append(
                {
                    "column": column.name,
                    "dtype": str(column.dtype),
                    "kind": column.kind,
                    "points": column.n_points,
                    "intervals": int(variable.interval.sum()) if variable is not None and is_lead else 0,
                    "nulls": column.nulls,
                    "bundle": member_names if len(member_names) > 1 else [],
                }
            )
        dtype_overrides: dict[str, Any] = {
            "points": pl.UInt32,
            "intervals": pl.UInt32,
            "nulls": pl.UInt64,
            "bundle": pl.List(pl.String),
        }
        return pl.DataFrame(rows, schema_overrides=dtype_overrides)

    def __repr__(self) -> str:
        lines = [f"Schema: {len(self.columns)} columns as {len(self.variables)} variables, {self.n_rows:,} rows"]
        table = self.describe().drop("bundle").head(SHOWN)
        cells = [table.columns, *([str(cell) for cell in row] for row in table.rows())]
        widths = [min(max(len(row[i]) for row in cells), 40) for i in range(table.width)]
        lines += ["  " + "  ".join(c[:w].ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        if len(self.columns) > SHOWN:
            lines.append(f"  ... and {len(self.columns) - SHOWN} more: describe() has them all")
        lines += ["modelled together: " + " + ".join(names) for names in self.bundles]
        lines += [f"rule: {rule}" for rule in self.rules]
        if self.gates:
            gate_names = [self.lead_column(self.variables[gate]).name for gate in self.gates]
            lines.append("missing or known is split on first: " + ", ".join(gate_names))
        return "\n".join(map(printable, lines))


def number_keys(schema: Schema, first: int) -> Schema:
    """Return a schema whose identifiers are numbered from `first`."""
    columns = [
        column if column.key is None else replace(column, key=replace(column.key, first=first))
        for column in schema.columns
    ]
    return replace(schema, columns=tuple(columns))


def first_key_of(schema: Schema) -> int | None:
    """Return the number of the first identifier; None if it is not set or there are no key columns."""
    return next((column.key.first for column in schema.columns if column.key is not None), None)
