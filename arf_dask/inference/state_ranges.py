"""Values of each variable that a condition allows: points, whole intervals, and parts of intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from arf_dask.forest.dependence_bins import IntervalPieces
from arf_dask.forest.tables import LeafTables, VariableTables
from arf_dask.inference.conditions import Allowed, Conjunction
from arf_dask.schema.columns import Variable
from arf_dask.typing import Flags, Floats, Ints


class StateRanges(NamedTuple):
    """Allowed values of one variable. One row per range: a point, an interval, or part of an interval."""

    state: Ints
    low: Floats  # lower bound on the axis; -inf if the whole state is allowed
    high: Floats  # upper bound; inf if the whole state is allowed
    code: Ints  # if low == high: the code of that single number; else -1

    @property
    def whole(self) -> Flags:
        """Per range: whether its whole state is allowed."""
        return np.asarray(np.isneginf(self.low) & np.isposinf(self.high))

    @property
    def single(self) -> Flags:
        """Per range: whether it is a single number of a continuous density."""
        return np.asarray(self.low == self.high)


VariableRanges = Mapping[int, StateRanges]  # by variable index; absent variables are unconstrained


def all_ranges(variable: Variable) -> StateRanges:
    """Return the ranges of an unconstrained variable: every state as a whole."""
    n_states = variable.n_states
    no_code = np.full(n_states, -1, dtype=np.int32)
    return StateRanges(
        np.arange(n_states, dtype=np.int32), np.full(n_states, -np.inf), np.full(n_states, np.inf), no_code
    )


def find_ranges(tables: LeafTables, conjunction: Conjunction) -> dict[int, StateRanges]:
    """Return the ranges of every variable that a conjunction constrains, by variable index."""
    named_tables = [table for table in tables.variables if not conjunction.keys().isdisjoint(table.variable.columns)]
    return {table.index: _variable_ranges(table, conjunction) for table in named_tables}


def allowed_states(variable: Variable, ranges: StateRanges | None) -> Floats:
    """Return 1 for each state that a condition on whole states allows, else 0."""
    if ranges is None:
        return np.ones(variable.n_states)
    allowed = np.zeros(variable.n_states)
    allowed[ranges.state] = 1.0
    return allowed


class BinnedRanges(NamedTuple):
    """Ranges of one variable, each inside a single bin of the dependency tree. One row per range."""

    ranges: StateRanges
    origin: Ints  # index of the original range that it is part of
    bin: Ints


def cut_at_bins(variable: Variable, bins: Ints, pieces: IntervalPieces, ranges: StateRanges) -> BinnedRanges:
    """Split ranges at the bin borders.

    Args:
        variable: the variable.
        bins: the bin of each code.
        pieces: the interval states of the variable, split at the bin borders.
        ranges: the ranges to split.
    """
    is_split = variable.interval[ranges.state] & ~ranges.single
    range_codes = np.where(ranges.single, ranges.code, variable.code_low[ranges.state])
    kept_ranges = np.flatnonzero(~is_split)
    split_ranges = np.flatnonzero(is_split)
    low = np.maximum(ranges.low[split_ranges, None], pieces.low[None, :])
    high = np.minimum(ranges.high[split_ranges, None], pieces.high[None, :])
    split_index, piece_index = np.nonzero((ranges.state[split_ranges, None] == pieces.state[None, :]) & (low < high))
    origin = np.concatenate([kept_ranges, split_ranges[split_index]])
    binned_ranges = StateRanges(
        ranges.state[origin],
        np.concatenate([ranges.low[kept_ranges], low[split_index, piece_index]]),
        np.concatenate([ranges.high[kept_ranges], high[split_index, piece_index]]),
        np.concatenate([ranges.code[kept_ranges], np.full(len(split_index), -1, dtype=np.int32)]),
    )
    return BinnedRanges(
        binned_ranges,
        origin.astype(np.int32),
        np.concatenate([bins[range_codes[kept_ranges]], pieces.bin[piece_index]]),
    )


def _variable_ranges(table: VariableTables, conjunction: Conjunction) -> StateRanges:
    variable = table.variable
    allowed_tokens = np.ones(variable.n_states, dtype=bool)
    for member, column_position in enumerate(variable.columns):
        if column_position in conjunction:
            allowed_tokens &= conjunction[column_position].tokens[variable.tokens[:, member]]
    lead_allowed = conjunction.get(variable.columns[0])
    range_rows = [(int(state), -np.inf, np.inf, -1) for state in np.flatnonzero(allowed_tokens & ~variable.interval)]
    for state in np.flatnonzero(allowed_tokens & variable.interval):
        if lead_allowed is None:
            range_rows.append((int(state), -np.inf, np.inf, -1))
        else:
            range_rows += _parts(table, int(state), lead_allowed)
    columns = list(zip(*range_rows, strict=True)) if range_rows else [(), (), (), ()]
    kinds = (np.int32, np.float64, np.float64, np.int32)
    return StateRanges(*(np.array(part, dtype=kind) for part, kind in zip(columns, kinds, strict=True)))


def _parts(table: VariableTables, state: int, allowed: Allowed) -> list[tuple[int, float, float, int]]:
    """Return the parts of one interval state that a set allows."""
    variable, (start, stop) = table.variable, (allowed.low, allowed.high)
    low, high = _extent(table, state)
    is_single = start == stop
    is_inside = np.where(is_single, variable.interval_states(start) == state, (start < high) & (stop > low))
    codes = np.where(is_single, np.searchsorted(variable.edges, start, side="right") + variable.first_bin, -1)
    parts = zip(start[is_inside].tolist(), stop[is_inside].tolist(), codes[is_inside].tolist(), strict=True)
    return [(state, *part) for part in parts]


def _extent(table: VariableTables, state: int) -> tuple[float, float]:
    """Return the bounds of an interval state, ignoring the boxes of leaves."""
    state_slice = slice(state, state + 1)
    state_array = np.array([state], dtype=np.int32)
    bounds = table.interval_bounds(
        state_array, table.variable.code_low[state_slice], table.variable.code_high[state_slice]
    )
    return float(bounds.lower[0]), float(bounds.upper[0])
