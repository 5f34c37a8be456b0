"""Known values of rows in terms of the model's variables: states, groups of states, axis values and code ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.forest.tables import LeafTables, VariableTables
from arf_dask.schema.encoding import column_tokens, encode_states, line_codes, to_axis_values
from arf_dask.typing import Flags, Floats, Ints

Rows = NDArray[np.int64]
NO_STATE = -1
NO_PATTERN = np.int8(-1)


class KnownPattern(NamedTuple):
    """Known values of the rows in which the same member columns of a variable are known. One entry per row.

    If the numeric column itself is known, an entry is a point, or an interval and an axis value in it (on a grid,
    possibly both). Otherwise it is the group of all states that agree with the known columns.
    """

    point: Ints  # state, or group if `groups` is set; -1: none
    interval: Ints | None  # interval state that contains the number; -1: none
    places: Floats | None
    groups: Ints | None  # per state: its group; None if the states themselves are known

    def states(self, entry: Ints) -> Ints:
        """Return the known state of each entry, points before intervals; -1: none. Requires `groups` to be None."""
        point = self.point[entry]
        return point if self.interval is None else np.where(point >= 0, point, self.interval[entry])


class KnownVariable(NamedTuple):
    """Known values of rows for one variable."""

    patterns: Sequence[KnownPattern]  # one per set of member columns that is known in some rows
    pattern: NDArray[np.int8]  # per row: index into `patterns`; -1 if the variable is unknown
    entry: Ints  # per row: its entry in that pattern

    def rows_of(self, pattern: int) -> Rows:
        """Return the indices of the rows with the given pattern."""
        return np.flatnonzero(self.pattern == pattern)


class KnownRows(NamedTuple):
    """The known values of the rows of a frame."""

    n_rows: int
    low: Ints  # (row, variable): lowest and highest code a row may have
    high: Ints
    variables: Sequence[KnownVariable]
    exact: bool  # whether all codes of all rows are known
    possible: Flags  # per row: whether every known value has a code


def read_rows(frame: pl.DataFrame, tables: LeafTables, known: Mapping[str, Flags]) -> KnownRows:
    """Read the cells of a frame for which `known` is true."""
    n_rows = frame.height
    low = np.zeros((n_rows, len(tables.variables)), dtype=np.int32)
    high = np.tile(tables.n_codes - 1, (n_rows, 1))
    variables = []
    for table in tables.variables:
        members = [member for member, column in enumerate(table.columns) if column.name in known]
        pattern, known_members = _patterns([known[table.columns[member].name] for member in members], n_rows)
        entry = np.zeros(n_rows, dtype=np.int32)
        known_patterns = []
        for pattern_index, member_indices in enumerate(known_members):
            pattern_rows = np.flatnonzero(pattern == pattern_index)
            entry[pattern_rows] = np.arange(len(pattern_rows), dtype=np.int32)
            known_pattern, code_bounds = _read_pattern(
                frame[pattern_rows], tables, table, [members[i] for i in member_indices]
            )
            low[pattern_rows, table.index], high[pattern_rows, table.index] = code_bounds
            known_patterns.append(known_pattern)
        variables.append(KnownVariable(known_patterns, pattern, entry))
    possible = np.asarray((low >= 0).all(axis=1))
    return KnownRows(n_rows, low, high, variables, bool(np.array_equal(low, high)), possible)


def forget(known: KnownRows, rows: Rows, freed: Flags, tables: LeafTables, *, stay: bool = False) -> KnownRows:
    """Return the known values of `rows` without the variables marked in `freed` (row, variable).

    With `stay`, a row keeps the code range of a freed variable, and so remains in the leaves that contain its value;
    values beyond the training range remain in the outermost leaves.
    """
    low, high = known.low[rows].copy(), known.high[rows].copy()
    variables = []
    for index, known_variable in enumerate(known.variables):
        freed_rows = freed[:, index] & ~(stay & (low[:, index] >= 0))
        low[freed_rows, index], high[freed_rows, index] = 0, tables.n_codes[index] - 1
        pattern = np.where(freed[:, index], NO_PATTERN, known_variable.pattern[rows])
        variables.append(KnownVariable(known_variable.patterns, pattern, known_variable.entry[rows]))
    possible = np.asarray((low >= 0).all(axis=1))
    return KnownRows(len(rows), low, high, variables, False, possible)


def into_range(known: KnownRows, tables: LeafTables) -> KnownRows:
    """Clip known numbers to the range seen in training."""
    clipped_variables = []
    for table, known_variable in zip(tables.variables, known.variables, strict=True):
        patterns = list(known_variable.patterns)
        for pattern_index, known_pattern in enumerate(patterns):
            if known_pattern.places is not None and table.lead.axis is not None:
                axis_values = known_pattern.places.copy()
                row_entries = known_variable.entry[known_variable.rows_of(pattern_index)]
                axis_values[row_entries] = np.clip(axis_values[row_entries], table.axis.low, table.axis.high)
                patterns[pattern_index] = known_pattern._replace(places=axis_values)
        clipped_variables.append(known_variable._replace(patterns=patterns))
    return known._replace(variables=clipped_variables)


def _patterns(flags: list[Flags], n: int) -> tuple[NDArray[np.int8], list[list[int]]]:
    """Return the pattern of each row (-1: nothing known), and the known members of each pattern."""
    pattern = np.full(n, NO_PATTERN)
    if not flags:
        return pattern, []
    if all(flag.all() for flag in flags) and n:
        return np.zeros(n, dtype=np.int8), [list(range(len(flags)))]
    set_of_row = np.zeros(n, dtype=np.int64)
    member_sets: list[list[int]] = [[]]
    for member, flag in enumerate(flags):
        # Add one member at a time and renumber: only few of all possible sets occur.
        set_keys = 2 * set_of_row + flag
        used_keys = np.flatnonzero(np.bincount(set_keys))
        set_of_row = np.searchsorted(used_keys, set_keys)
        member_sets = [
            [*member_sets[set_key // 2], member] if set_key % 2 else member_sets[set_key // 2]
            for set_key in used_keys.tolist()
        ]
    nonempty_sets = [set_index for set_index, members in enumerate(member_sets) if members]
    new_number = np.full(len(member_sets), NO_PATTERN)
    new_number[nonempty_sets] = np.arange(len(nonempty_sets))
    return new_number[set_of_row], [member_sets[set_index] for set_index in nonempty_sets]


def _read_pattern(
    frame: pl.DataFrame, tables: LeafTables, table: VariableTables, members: list[int]
) -> tuple[KnownPattern, tuple[Ints, Ints]]:
    """Read rows in which the given members of a variable are known; also return lowest and highest codes (-1: none)."""
    variable = table.variable
    if variable.is_line and members[0] == 0:
        return _read_places(frame, table, members)
    if len(members) == len(variable.columns):
        states = encode_states(frame, tables.schema, table.index)[0]
        return KnownPattern(states, None, None, None), (states, states)
    groups, row_groups = _group_states(frame, table, members)
    n_groups = int(groups.max()) + 1
    low, high = np.full(n_groups + 1, variable.n_codes), np.full(n_groups + 1, -1)
    np.minimum.at(low, groups, variable.code_low)
    np.maximum.at(high, groups, variable.code_high)
    low[-1] = NO_STATE
    return KnownPattern(row_groups, None, None, groups), (
        low[row_groups].astype(np.int32),
        high[row_groups].astype(np.int32),
    )


def _read_places(
    frame: pl.DataFrame, table: VariableTables, members: list[int]
) -> tuple[KnownPattern, tuple[Ints, Ints]]:
    variable, lead = table.variable, table.lead
    axis_values = to_axis_values(frame[lead.name], lead)
    tokens = column_tokens(frame[lead.name], lead)
    point_states = variable.point_states(lead.between + 1)[tokens]
    # On a grid, the value of a spike may also come from the interval around it.
    is_number = (
        ~np.isnan(axis_values) & (axis_values == np.rint(axis_values)) if table.axis.grid else tokens == lead.between
    )
    interval_states = np.full(len(point_states), NO_STATE, dtype=np.int32)
    if variable.interval.any():
        interval_states[is_number] = variable.interval_states(axis_values[is_number])
    for member in members[1:]:
        column = table.columns[member]
        wanted_tokens = column_tokens(frame[column.name], column)
        point_states = np.where(variable.tokens[point_states, member] == wanted_tokens, point_states, NO_STATE).astype(
            np.int32
        )
        interval_states = np.where(
            variable.tokens[interval_states, member] == wanted_tokens, interval_states, NO_STATE
        ).astype(np.int32)
    row_codes = line_codes(frame[lead.name], variable, lead)
    row_codes = np.where((point_states >= 0) | (interval_states >= 0), row_codes, NO_STATE).astype(np.int32)
    return KnownPattern(point_states, interval_states, axis_values, None), (row_codes, row_codes)


def _group_states(frame: pl.DataFrame, table: VariableTables, members: list[int]) -> tuple[Ints, Ints]:
    """Group states by the values of the given members; return the group of each state and of each row (-1: none)."""
    variable = table.variable
    n_states = variable.n_states
    group_keys = np.zeros(n_states + frame.height, dtype=np.int64)
    for member in members:
        column = table.columns[member]
        tokens = np.concatenate([variable.tokens[:, member], column_tokens(frame[column.name], column)])
        group_keys = np.unique(group_keys * (int(tokens.max(initial=0)) + 2) + tokens + 1, return_inverse=True)[1]
    distinct_keys, groups = np.unique(group_keys[:n_states], return_inverse=True)
    key_index = np.minimum(np.searchsorted(distinct_keys, group_keys[n_states:]), len(distinct_keys) - 1)
    return groups.astype(np.int32), np.where(
        distinct_keys[key_index] == group_keys[n_states:], key_index, NO_STATE
    ).astype(np.int32)
