"""Weights of (row, leaf) pairs: the coverage of the leaf times the probability of the row's known values in it.

Rows with equal known values share the computation: each distinct piece of evidence on a variable is a *slot*, and a
(leaf, slot) table is computed once per tree batch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.tables import LeafTables
from arf_dask.inference.bin_knowledge import BinSpread, row_evidence
from arf_dask.inference.known_rows import KnownPattern, KnownRows, KnownVariable
from arf_dask.inference.messages import log_factors
from arf_dask.inference.row_leaves import CodeRanges, Pairs, code_ranges
from arf_dask.inference.shared_vectors import BinEvidence
from arf_dask.inference.state_ranges import StateRanges, VariableRanges
from arf_dask.inference.tree_batches import TreeBatch, VariableView
from arf_dask.stats.log_sums import log_sum
from arf_dask.typing import Flags, Floats, Ints

FACTORS = 8  # probabilities multiplied before taking a logarithm; none is below 1e-30
TABLE_SAVES = 2  # approximate number of leaves per tree that a row may lie in


class DistinctNumbers(NamedTuple):
    """The distinct known numbers that lie inside interval states."""

    of_row: Ints  # per row: index of its number; the length of `places` if it has none
    interval: Ints  # per number: its interval state
    places: Floats
    rows: NDArray[np.int64]  # per number: how many rows have it


class Slots(NamedTuple):
    """The distinct pieces of evidence that rows have on one variable.

    Slots are, in order: the known `states`; the groups of states, pattern by pattern; "unknown" (probability one);
    "impossible" (probability zero).
    """

    of_row: Ints
    states: Ints
    groups: list[Ints]  # for each pattern with groups: the group of each state
    numbers: DistinctNumbers  # known numbers inside interval states

    @property
    def n_slots(self) -> int:
        """The number of slots."""
        return len(self.states) + sum(n_groups(group) for group in self.groups) + 2

    @property
    def unknown(self) -> int:
        """The slot of rows in which the variable is unknown."""
        return self.n_slots - 2


class RowIndex(NamedTuple):
    """Known values of rows and a condition, indexed once for use with every tree batch."""

    known: KnownRows
    slots: list[Slots]  # per variable
    code_ranges: dict[int, CodeRanges]
    narrowed: VariableRanges  # ranges that a condition allows for unknown variables
    bins: BinEvidence | None  # evidence on bins; None if variables are independent inside leaves


class SlotWeights(NamedTuple):
    """Probabilities of the slots of one variable in the leaves of one tree batch."""

    table: Floats  # (leaf, slot): probabilities
    free: Floats | None  # per leaf: log probability of the condition, for rows in which the variable is unknown
    intervals: Floats  # (leaf, interval state): log probabilities; empty if no known number lies in an interval
    density: Floats  # (leaf, column): log densities of frequent numbers
    columns: Ints  # per distinct number: its column in `density`, -1 if it has none

    def chances(self, slots: Slots, pairs: Pairs) -> Floats:
        """Return the probability of the row's evidence on the variable, per pair."""
        return np.asarray(self.table.ravel().take(pairs.leaf * self.table.shape[1] + slots.of_row[pairs.row]))


def index_rows(
    tables: LeafTables, known: KnownRows, narrowed: VariableRanges, *, unknown_only: bool = False
) -> RowIndex:
    """Index the known values of rows by slots and code ranges.

    With `unknown_only`, fully known values of a row are not restricted to `narrowed`.
    """
    _ = tables.boxes  # cached property: compute it once here, not in every thread
    slots = []
    for table, known_variable in zip(tables.variables, known.variables, strict=True):
        ranges = None if unknown_only else narrowed.get(table.index)
        slots.append(_slots(known_variable, table.variable.n_states, ranges))
    bins = row_evidence(tables, known, narrowed) if tables.dependence.edges else None
    return RowIndex(known, slots, code_ranges(known, tables), narrowed, bins)


class BatchWeights(NamedTuple):
    """Everything needed to compute pair weights in one tree batch."""

    variables: list[SlotWeights]
    spread: BinSpread  # distribution of the evidence over bins


def batch_weights(batch: TreeBatch, index: RowIndex) -> BatchWeights:
    """Return the tables needed to compute pair weights in one tree batch."""
    return BatchWeights(slot_weights(batch, index), BinSpread(batch, index.known, index.narrowed))


def slot_weights(batch: TreeBatch, index: RowIndex) -> list[SlotWeights]:
    """Return the slot weights of every variable in one tree batch."""
    variable_weights = []
    for view, slots, known_variable in zip(batch.variables, index.slots, index.known.variables, strict=True):
        ranges = index.narrowed.get(view.index)
        if ranges is None and not known_variable.patterns:
            # Unknown in all rows and unconditioned: only posteriors read this entry.
            empty_table = np.empty(0)
            variable_weights.append(
                SlotWeights(np.ones((batch.n_leaves, 2)), None, empty_table, empty_table, slots.numbers.interval)
            )
            continue
        free_logs = None
        if ranges is not None and (slots.of_row == slots.unknown).any():
            free_logs = log_sum(view.log_masses(ranges))
        intervals = _log_intervals(view) if len(slots.numbers.places) else np.empty(0)
        number_table = _number_table(view, slots.numbers, intervals, len(batch.trees))
        variable_weights.append(SlotWeights(_slot_table(view, slots, ranges), free_logs, intervals, *number_table))
    return variable_weights


def log_weights(batch: TreeBatch, index: RowIndex, weights: BatchWeights, pairs: Pairs) -> Floats:
    """Return, per pair, the log of the leaf's coverage times the probability of the evidence and condition in it."""
    logs = _log_products(batch, index, weights.variables, pairs)
    if index.bins is not None:
        logs += log_factors(batch.dependence, index.bins, weights.spread, pairs.row, pairs.leaf)
    return logs


def _log_products(batch: TreeBatch, index: RowIndex, weights: list[SlotWeights], pairs: Pairs) -> Floats:
    """Return the log weight of each pair under independence of the variables inside leaves."""
    pair_logs = batch.log_coverage[pairs.leaf]
    pair_products, n_factors = np.ones(len(pair_logs)), 0
    for view, slots, weight in zip(batch.variables, index.slots, weights, strict=True):
        if not len(index.known.variables[view.index].patterns) and weight.free is None:
            continue
        slot_chances = weight.chances(slots, pairs)
        if len(slots.numbers.places):
            _add_intervals(view, slots, weight, pairs, slot_chances, pair_logs)
        if weight.free is not None:
            unknown_pairs = np.flatnonzero(slots.of_row[pairs.row] == slots.unknown)
            pair_logs[unknown_pairs] += weight.free[pairs.leaf[unknown_pairs]]
        pair_products *= slot_chances
        n_factors += 1
        if n_factors == FACTORS:
            _multiply(pair_logs, pair_products)
            pair_products, n_factors = np.ones(len(pair_logs)), 0
    _multiply(pair_logs, pair_products)
    return pair_logs


def n_groups(groups: Ints) -> int:
    """Return the number of groups."""
    return int(groups.max(initial=-1)) + 1


def _multiply(logs: Floats, product: Floats) -> None:
    with np.errstate(divide="ignore"):
        logs += np.log(product)


def _slots(known: KnownVariable, n_states: int, ranges: StateRanges | None) -> Slots:
    """Return the slots of one variable; if `ranges` is given, known values outside it are impossible."""
    n_rows = len(known.pattern)
    state = np.full(n_rows, -1, dtype=np.int32)  # groups are numbered after the states
    groups, next_group = [], n_states
    interval, axis_values = np.full(n_rows, -1, dtype=np.int32), np.zeros(n_rows)
    for pattern_index, known_pattern in enumerate(known.patterns):
        rows = known.rows_of(pattern_index)
        entry = known.entry[rows]
        point = known_pattern.point[entry]
        if known_pattern.groups is not None:
            state[rows] = np.where(point >= 0, point + next_group, -1)
            groups.append(known_pattern.groups)
            next_group += n_groups(known_pattern.groups)
            continue
        state[rows] = point if ranges is None else np.where(np.isin(point, ranges.state), point, -1)
        if known_pattern.interval is not None and known_pattern.places is not None:
            interval[rows] = np.where(_in_ranges(known_pattern, entry, ranges), known_pattern.interval[entry], -1)
            axis_values[rows] = known_pattern.places[entry]
    used_states = np.flatnonzero(np.bincount(state[(state >= 0) & (state < n_states)], minlength=n_states))
    slot_of_state = np.full(
        next_group + 1, len(used_states) + next_group - n_states + 1, dtype=np.int32
    )  # the last entry, index -1, is the impossible slot
    slot_of_state[used_states] = np.arange(len(used_states))
    slot_of_state[n_states:next_group] = np.arange(len(used_states), len(used_states) + next_group - n_states)
    of_row = slot_of_state[state]
    of_row[known.pattern < 0] = len(used_states) + next_group - n_states
    return Slots(of_row, used_states.astype(np.int32), groups, _distinct_numbers(interval, axis_values))


def _distinct_numbers(interval: Ints, places: Floats) -> DistinctNumbers:
    inside_rows = np.flatnonzero(interval >= 0)
    if not len(inside_rows):
        return DistinctNumbers(interval[inside_rows], interval[inside_rows], places[inside_rows], inside_rows)
    distinct_values, first_rows, value_index, value_counts = np.unique(
        places[inside_rows], return_index=True, return_inverse=True, return_counts=True
    )
    of_row = np.full(len(interval), len(distinct_values), dtype=np.int32)
    of_row[inside_rows] = value_index
    return DistinctNumbers(of_row, interval[inside_rows[first_rows]], distinct_values, value_counts)


def _in_ranges(part: KnownPattern, entry: Ints, ranges: StateRanges | None) -> Flags:
    """Return whether the number of each entry lies in an interval state and in one of its allowed ranges."""
    assert part.interval is not None
    assert part.places is not None
    state, axis_values = part.interval[entry], part.places[entry]
    if ranges is None:
        return state >= 0
    is_inside = np.zeros(len(entry), dtype=bool)
    for allowed, low, high, _ in zip(*ranges, strict=True):
        is_inside |= (state == allowed) & (axis_values >= low) & (axis_values <= high)
    return is_inside


def _slot_table(view: VariableView, slots: Slots, ranges: StateRanges | None) -> Floats:
    slot_table = np.empty((view.n_leaves, slots.n_slots))
    next_slot = len(slots.states)
    if next_slot:
        # Pairs only combine rows with leaves whose boxes contain the known values.
        slot_table[:, :next_slot] = view.probabilities_of(slots.states, in_box=True)
    for groups in slots.groups:
        slot_table[:, next_slot : next_slot + n_groups(groups)] = _group_sums(view, groups, ranges)
        next_slot += n_groups(groups)
    slot_table[:, next_slot:] = 1.0, 0.0
    return slot_table


def _group_sums(view: VariableView, groups: Ints, ranges: StateRanges | None) -> Floats:
    """Return probabilities (leaf, group), summed over the states (or ranges) of each group."""
    states = np.arange(len(groups)) if ranges is None else ranges.state
    state_shares = view.probabilities if ranges is None else np.exp(view.log_masses(ranges))
    group_order = np.argsort(groups[states], kind="stable")
    group_starts = np.searchsorted(groups[states][group_order], np.arange(n_groups(groups) + 1))
    filled_groups = np.flatnonzero(np.diff(group_starts))
    group_sums = np.zeros((view.n_leaves, n_groups(groups)))
    if len(filled_groups):
        group_sums[:, filled_groups] = np.add.reduceat(
            state_shares[:, group_order], group_starts[filled_groups], axis=1
        )
    return group_sums


def _number_table(view: VariableView, numbers: DistinctNumbers, intervals: Floats, n_trees: int) -> tuple[Floats, Ints]:
    """Return a table (leaf, column) of log probabilities of frequent numbers, and the column of each number.

    For numbers shared by many rows, one table is cheaper than an evaluation per pair.
    """
    frequent_numbers = np.flatnonzero(numbers.rows * n_trees * TABLE_SAVES >= view.n_leaves)
    columns = np.full(len(numbers.places), -1, dtype=np.int32)
    columns[frequent_numbers] = np.arange(len(frequent_numbers))
    if not len(frequent_numbers):
        return np.empty((view.n_leaves, 0)), columns
    leaf = np.repeat(np.arange(view.n_leaves), len(frequent_numbers))
    state, axis_values = (
        np.tile(numbers.interval[frequent_numbers], view.n_leaves),
        np.tile(numbers.places[frequent_numbers], view.n_leaves),
    )
    return _log_places(view, intervals, leaf, state, axis_values).reshape(view.n_leaves, len(frequent_numbers)), columns


def _log_intervals(view: VariableView) -> Floats:
    states = np.flatnonzero(view.variable.interval).astype(np.int32)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(view.probabilities_of(states)))


def _log_places(view: VariableView, intervals: Floats, leaf: NDArray[np.int64], state: Ints, places: Floats) -> Floats:
    """Return the log of interval probability times density of numbers inside their interval states."""
    flat_index = leaf * intervals.shape[1] + (state - view.variable.first_interval)
    return np.asarray(intervals.ravel().take(flat_index) + view.log_density_at(leaf, state, places))


def _add_intervals(
    view: VariableView, slots: Slots, weight: SlotWeights, pairs: Pairs, chance: Floats, logs: Floats
) -> None:
    """Add the contribution of interval states to known numbers, in place.

    If the number is also a point, its density is added to `chance`; otherwise its log density is added to `logs`.
    """
    numbers = slots.numbers
    number_index = numbers.of_row[pairs.row]
    number_pairs = np.flatnonzero(number_index < len(numbers.places))
    number_index, leaf = number_index[number_pairs], pairs.leaf[number_pairs]
    column = weight.columns[number_index]
    log_densities = np.empty(len(number_pairs))
    if weight.density.size:
        log_densities = weight.density.ravel().take(np.maximum(leaf * weight.density.shape[1] + column, 0))
    without_column = np.flatnonzero(column < 0)
    rare_numbers = number_index[without_column]
    log_densities[without_column] = _log_places(
        view, weight.intervals, leaf[without_column], numbers.interval[rare_numbers], numbers.places[rare_numbers]
    )
    point_chances = chance[number_pairs]
    # Next to a point, underflow of the density is harmless; without one, only the log is safe.
    alone = point_chances == 0
    chance[number_pairs] = np.where(alone, 1.0, point_chances + np.exp(log_densities))
    logs[number_pairs] += np.where(alone, log_densities, 0.0)
