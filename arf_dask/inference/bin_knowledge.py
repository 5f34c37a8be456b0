"""Evidence of rows and conditions on the bins of the dependency tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arf_dask.forest.dependence import Dependence, count_bins
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.known_rows import KnownPattern, KnownRows
from arf_dask.inference.messages import inward, log_factors
from arf_dask.inference.shared_vectors import BinEvidence, Places
from arf_dask.inference.state_ranges import BinnedRanges, StateRanges, VariableRanges
from arf_dask.inference.tree_batches import TreeBatch, VariableView
from arf_dask.schema.columns import Variable
from arf_dask.typing import Floats, Ints


def row_evidence(tables: LeafTables, known: KnownRows, narrowed: VariableRanges) -> BinEvidence:
    """Return the evidence on the bins of every variable, from the known values of rows and from a condition."""
    shape = (known.n_rows, len(tables.variables))
    known_bins, has_evidence, partial_keys = (
        np.full(shape, -1, dtype=np.int16),
        np.zeros(shape, dtype=bool),
        np.zeros(shape, dtype=np.int64),
    )
    for table, known_variable in zip(tables.variables, known.variables, strict=True):
        index, bin_of_code = table.index, tables.dependence.code_bins(table.index)
        if bin_of_code is None:
            known_bins[:, index] = 0  # on no edge: never used by messages
            continue
        has_evidence[:, index] = (known_variable.pattern >= 0) | (index in narrowed)
        for pattern_index, pattern in enumerate(known_variable.patterns):
            pattern_rows = known_variable.rows_of(pattern_index)
            if pattern.groups is None:
                known_bins[pattern_rows, index] = bin_of_code[np.maximum(known.low[pattern_rows, index], 0)]
            else:
                bin_of_group = _group_bins(table.variable, bin_of_code, pattern.groups)
                row_groups = pattern.point[known_variable.entry[pattern_rows]]
                known_bins[pattern_rows, index] = bin_of_group[row_groups]
                partial_keys[pattern_rows, index] = (row_groups + 2) * len(known_variable.patterns) + pattern_index
    return BinEvidence(known_bins, has_evidence, partial_keys)


def _group_bins(variable: Variable, of_code: Ints, groups: Ints) -> Ints:
    """Return, per group of states, the bin that contains all of them; -1 if they span several bins."""
    n_groups = int(groups.max(initial=-1)) + 1
    lowest_bin, highest_bin = (
        np.full(n_groups, np.iinfo(np.int32).max, dtype=np.int32),
        np.full(n_groups, -1, dtype=np.int32),
    )
    for code_ends in (variable.code_low, variable.code_high):
        np.minimum.at(lowest_bin, groups, of_code[code_ends])
        np.maximum.at(highest_bin, groups, of_code[code_ends])
    return np.where(lowest_bin == highest_bin, lowest_bin, -1)


def condition_evidence(dependence: Dependence, ranges: VariableRanges) -> BinEvidence:
    """Return the evidence of a condition on the bins, as a single row."""
    on_edge = np.array([bool(edges) for edges in dependence.neighbours])
    has_evidence = on_edge & np.isin(np.arange(len(on_edge)), list(ranges))
    return BinEvidence(np.where(on_edge, -1, 0).astype(np.int16)[None, :], has_evidence[None, :])


def log_condition_factors(batch: TreeBatch, ranges: VariableRanges) -> Floats:
    """Return, per leaf, the log factor by which dependence changes the probability of a condition."""
    evidence = condition_evidence(batch.dependence.dependence, ranges)
    leaf = np.arange(batch.n_leaves)
    spread = BinSpread(batch, None, ranges)
    return log_factors(batch.dependence, evidence, spread, np.zeros_like(leaf), leaf)


def is_tilted(batch: TreeBatch, index: int, ranges: VariableRanges) -> bool:
    """Return whether a condition on other variables changes the distribution of this one inside leaves."""
    dependence = batch.dependence.dependence
    return bool(dependence.edges) and any(hop.far in ranges for hop in dependence.outwards(index))


def tilted_shares(spread: BinSpread, index: int) -> tuple[StateRanges, Floats]:
    """Return ranges of one variable and their probabilities (leaf, range) given the whole condition of `spread`."""
    batch, ranges = spread.batch, spread.narrowed
    evidence = condition_evidence(batch.dependence.dependence, ranges)
    view, leaf = batch.variables[index], np.arange(batch.n_leaves)
    binned_ranges = view.cut_at_bins(ranges.get(index))
    bin_factors = inward(batch.dependence, evidence, spread, np.zeros_like(leaf), leaf, index)
    return binned_ranges.ranges, normalised(
        range_shares(view, binned_ranges.ranges) * bin_factors[:, binned_ranges.bin]
    )


class _GroupTable(NamedTuple):
    """Distribution of groups of states over bins."""

    sums: Floats  # (leaf, nonempty combination of group and bin), with a final column of zeros
    column: Ints  # (group, bin): its column in `sums`


class BinSpread:
    """Distribution of a variable over its bins, given only the evidence on that variable, in one tree batch.

    Calling it with a variable and the rows and leaves of pairs returns probabilities (pair, bin). They sum to one per
    pair, or are all zero if the evidence is impossible in the leaf.
    """

    def __init__(self, batch: TreeBatch, known: KnownRows | None, narrowed: VariableRanges) -> None:
        self.batch, self.known, self.narrowed = batch, known, narrowed
        self._free: dict[int, Floats] = {}
        self._groups: dict[tuple[int, int], _GroupTable] = {}

    def __call__(self, index: int, row: Places, leaf: Places) -> Floats:
        bin_shares = self._free_table(index).take(leaf, axis=0)
        if self.known is None:
            return bin_shares
        known_variable = self.known.variables[index]
        for pattern_index, pattern in enumerate(known_variable.patterns):
            if pattern.groups is None:
                continue
            pattern_pairs = np.flatnonzero(known_variable.pattern[row] == pattern_index)
            if len(pattern_pairs):
                group_table = self._group_table(index, pattern_index, pattern)
                cell_columns = group_table.column[pattern.point[known_variable.entry[row[pattern_pairs]]]]
                bin_shares[pattern_pairs] = normalised(group_table.sums[leaf[pattern_pairs][:, None], cell_columns])
        return bin_shares

    def _free_table(self, index: int) -> Floats:
        """Return the distribution (leaf, bin) for rows in which the variable is unknown."""
        if index not in self._free:
            if index in self.narrowed:
                view = self.batch.variables[index]
                self._free[index] = normalised(bin_sums(view, view.cut_at_bins(self.narrowed[index])))
            else:
                self._free[index] = self.batch.dependence.masses(index)
        return self._free[index]

    def _group_table(self, index: int, number: int, pattern: KnownPattern) -> _GroupTable:
        if (index, number) not in self._groups:
            assert pattern.groups is not None
            view = self.batch.variables[index]
            self._groups[index, number] = _spread_groups(view, pattern.groups, self.narrowed.get(index))
        return self._groups[index, number]


def bin_sums(view: VariableView, binned: BinnedRanges) -> Floats:
    """Return the probability of the ranges in each bin (leaf, bin), up to a constant factor per leaf."""
    assert view.bins is not None
    range_probabilities = range_shares(view, binned.ranges)
    return np.asarray(range_probabilities @ np.eye(count_bins(view.bins))[binned.bin])


def range_shares(view: VariableView, ranges: StateRanges) -> Floats:
    """Return probabilities (leaf, range), normalised over the ranges; zero in leaves where none is possible."""
    log_masses = view.log_masses(ranges)
    row_maxima = log_masses.max(axis=1, initial=-np.inf, keepdims=True)
    return normalised(np.exp(log_masses - np.where(np.isfinite(row_maxima), row_maxima, 0.0)))


def normalised(weights: Floats) -> Floats:
    """Scale each row of weights to sum to one; rows of zeros are unchanged."""
    row_totals = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(row_totals > 0, row_totals, 1.0))


def _spread_groups(view: VariableView, groups: Ints, ranges: StateRanges | None) -> _GroupTable:
    assert view.bins is not None
    n_bins, n_groups = count_bins(view.bins), int(groups.max(initial=-1)) + 1
    binned_ranges = view.cut_at_bins(ranges)
    range_masses = np.exp(view.log_masses(binned_ranges.ranges))
    cell_keys = groups[binned_ranges.ranges.state].astype(np.int64) * n_bins + binned_ranges.bin
    used_cells, cell_index = np.unique(cell_keys, return_inverse=True)
    cell_order = np.argsort(cell_index, kind="stable")
    cell_sums = np.zeros((view.n_leaves, len(used_cells) + 1))
    if len(used_cells):
        cell_starts = np.searchsorted(cell_index[cell_order], np.arange(len(used_cells)))
        cell_sums[:, :-1] = np.add.reduceat(range_masses[:, cell_order], cell_starts, axis=1)
    cell_columns = np.full(n_groups * n_bins, len(used_cells), dtype=np.int32)
    cell_columns[used_cells] = np.arange(len(used_cells))
    return _GroupTable(cell_sums, cell_columns.reshape(n_groups, n_bins))
