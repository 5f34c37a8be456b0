"""Distributions of the variables in the leaves of a tree batch: state probabilities and interval normals."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.dependence_bins import IntervalPieces
from arf_dask.forest.leaf_normals import BinMasses, Normals, bin_masses, bin_pieces, leaf_normals
from arf_dask.forest.smoothing import leaf_probabilities, leaf_sums
from arf_dask.forest.tables import BatchLeaves, LeafTables, VariableTables
from arf_dask.forest.trees import Tree
from arf_dask.inference.leaf_dependence import LeafDependence, LeafFactors
from arf_dask.inference.state_ranges import BinnedRanges, StateRanges, all_ranges, allowed_states, cut_at_bins
from arf_dask.schema.columns import FIRST_LEVEL
from arf_dask.stats.truncated_normal import grid_moments, log_bell, log_mass, log_weight, moments
from arf_dask.typing import Floats, Ints

KEPT_CELLS = 16_000_000  # keep tables in memory up to this many (leaf, state) cells over all variables: 128 MB
KEPT_FACTORS = 32_000_000  # keep dependence tables in memory up to this many cells: 256 MB,
KEPT_COLUMNS = 64_000_000  # or else the column factors, from which the others follow, up to this many: 512 MB


class VariableView:
    """One variable in the leaves of one tree batch. Tables are computed lazily, on first access."""

    def __init__(
        self, leaves: BatchLeaves, table: VariableTables, normal_start: int, bins: Ints | None, *, keep: bool
    ) -> None:
        self.leaves, self.table, self.keep = leaves, table, keep
        self.bins = bins  # per code: its bin; None if the variable is on no edge of the dependency tree
        self.variable, self.index = table.variable, table.index
        self._normal_start = normal_start  # index of the batch's first interval entry

    @property
    def n_leaves(self) -> int:
        """The number of leaves of the batch."""
        return len(self.leaves.rows)

    @cached_property
    def probabilities(self) -> Floats:
        """Probabilities (leaf, state)."""
        return leaf_probabilities(self.table, self.leaves)

    def probabilities_of(self, states: Ints, *, in_box: bool = False) -> Floats:
        """Return probabilities (leaf, state) of the given states; the full table is computed only if it is kept.

        With `in_box`, entries of points outside a leaf's box are unspecified.
        """
        if self.keep or "probabilities" in self.__dict__:
            return self.probabilities.take(states, axis=1)
        return leaf_probabilities(self.table, self.leaves, states, in_box=in_box)

    def allowed_probabilities(self, ranges: StateRanges | None) -> Floats:
        """Return probabilities (leaf, state), zero for states that a condition on whole states excludes."""
        if ranges is None:
            return self.probabilities
        return np.asarray(self.probabilities * allowed_states(self.variable, ranges))

    @cached_property
    def normals(self) -> Normals:
        """Truncated normals (leaf, interval state)."""
        return leaf_normals(self.table, self.leaves, self._normal_start)

    @cached_property
    def log_weights(self) -> Floats:
        """Log normalising constants of the normals (leaf, interval state); inf if the state is empty in the leaf."""
        mu, sigma, lower, upper = self.normals
        with np.errstate(all="ignore"):
            weights = log_weight(lower, upper, mu, sigma)
        return np.where(upper > lower, weights, np.inf)

    @cached_property
    def curves(self) -> Floats:
        """One row per (leaf, interval state): mu, sigma, lower, upper, log density at mu."""
        mu, sigma, lower, upper = self.normals
        log_peak = log_bell(mu, mu, sigma) - self.log_weights
        return np.stack([mu, sigma, lower, upper, log_peak], axis=-1).reshape(-1, 5)

    def log_density_at(self, leaf: NDArray[np.integer], state: Ints, places: Floats) -> Floats:
        """Return the log density (log mass on a grid) of numbers inside interval states, elementwise."""
        variable = self.variable
        curve_index = leaf * np.int64(variable.n_states - variable.first_interval) + (state - variable.first_interval)
        # A single gather: the parameters of a curve are adjacent in memory.
        mu, sigma, lower, upper, log_peak = self.curves.take(curve_index, axis=0).T
        if self.table.axis.grid:
            return _log_grid_mass(places, Normals(mu, sigma, lower, upper), self.log_weights.ravel()[curve_index])
        with np.errstate(invalid="ignore", over="ignore"):
            logs = log_peak - 0.5 * np.square((places - mu) / sigma)
        logs[(places < lower) | (places > upper) | np.isinf(places)] = -np.inf
        return np.asarray(logs)

    def log_masses(self, ranges: StateRanges) -> Floats:
        """Return the log probability (leaf, range) of each range; the log density for single continuous values."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.probabilities_of(ranges.state))
        for range_index in np.flatnonzero(self.variable.interval[ranges.state] & ~ranges.whole):
            logs[:, range_index] += self._log_share(ranges, int(range_index))
        return np.asarray(logs)

    def range_means(self, ranges: StateRanges) -> Floats:
        """Return the mean axis value (leaf, range) within each range of an interval state; 0 for points."""
        mean_values = np.zeros((self.n_leaves, len(ranges.state)))
        for range_index in np.flatnonzero(self.variable.interval[ranges.state]):
            low, high = ranges.low[range_index], ranges.high[range_index]
            if low == high:
                mean_values[:, range_index] = low
            else:
                interval_index = int(ranges.state[range_index]) - self.variable.first_interval
                mean_values[:, range_index] = self._means_of(self.normals.of_state(interval_index).inside(low, high))
        return mean_values

    def bin_masses(self) -> BinMasses:
        """Return bin probabilities (leaf, bin); the variable must be on an edge of the dependency tree."""
        assert self.bins is not None
        normals = self.normals if self.variable.interval.any() else None
        return bin_masses(self.table, self.leaves, self.bins, normals)

    @cached_property
    def pieces(self) -> IntervalPieces:
        """The interval states, split at the bin borders."""
        assert self.bins is not None
        return bin_pieces(self.table, self.bins)

    def cut_at_bins(self, ranges: StateRanges | None) -> BinnedRanges:
        """Split ranges (all states if None) at the bin borders."""
        assert self.bins is not None
        all_or_given = all_ranges(self.variable) if ranges is None else ranges
        return cut_at_bins(self.variable, self.bins, self.pieces, all_or_given)

    @cached_property
    def interval_means(self) -> Floats:
        """Mean axis values (leaf, interval state); 0 if the state is empty in the leaf."""
        if not self.variable.interval.any():
            return np.zeros((self.n_leaves, 0))
        return self._means_of(self.normals)

    def number_values(self) -> Floats:
        """Return (state, 2) for a single numeric column: whether a state is a number, and the axis value of points."""
        column, tokens = self.table.lead, self.variable.tokens[:, 0]
        values = np.zeros((self.variable.n_states, 2))
        values[:, 0] = tokens >= FIRST_LEVEL
        is_point = (tokens >= FIRST_LEVEL) & (tokens < column.between)
        values[is_point, 1] = column.points[tokens[is_point] - FIRST_LEVEL]
        return values

    def number_sums(self, allowed: Floats) -> Floats:
        """Return (leaf, 2) over allowed states: the probability of a number, and that times its mean axis value."""
        # Append one indicator column per interval state to get the interval probabilities from the same sums.
        interval_columns = np.eye(self.variable.n_states)[:, self.variable.interval]
        values = np.hstack([self.number_values(), interval_columns]) * allowed[:, None]
        sums = leaf_sums(self.table, self.leaves, values)
        sums[:, 1] += np.einsum("ls,ls->l", sums[:, 2:], self.interval_means)
        return sums[:, :2]

    def _means_of(self, normals: Normals) -> Floats:
        mu, sigma, lower, upper = normals
        is_nonempty = upper > lower
        is_uniform = is_nonempty & np.isinf(sigma)
        mean_values = np.zeros(mu.shape)
        mean_values[is_uniform] = lower[is_uniform] + (upper[is_uniform] - lower[is_uniform]) / 2
        is_normal = is_nonempty & ~is_uniform
        normal_moments = (grid_moments if self.table.axis.grid else moments)(
            mu[is_normal], sigma[is_normal], lower[is_normal], upper[is_normal]
        )
        mean_values[is_normal] = normal_moments.mean
        return mean_values

    def _log_share(self, ranges: StateRanges, number: int) -> Floats:
        """Return, per leaf, the log share of an interval state that lies inside one range."""
        state, low, high = int(ranges.state[number]), ranges.low[number], ranges.high[number]
        if low == high:
            leaf_index = np.arange(self.n_leaves, dtype=np.int32)
            logs = self.log_density_at(leaf_index, np.full_like(leaf_index, state), np.full(self.n_leaves, low))
            box_low, box_high = (side[:, self.index] for side in self.leaves.boxes)
            return np.where((box_low <= ranges.code[number]) & (ranges.code[number] <= box_high), logs, -np.inf)
        mu, sigma, lower, upper = self.normals.of_state(state - self.variable.first_interval)
        logs = np.full(self.n_leaves, -np.inf)
        is_nonempty = upper > lower
        logs[is_nonempty] = log_mass(
            low, high, mu[is_nonempty], sigma[is_nonempty], lower[is_nonempty], upper[is_nonempty]
        )
        return logs


class TreeBatch:
    """The leaves of a batch of trees, with one view per variable."""

    def __init__(self, tables: LeafTables, index: int, *, keep: bool = False) -> None:
        self.index = index
        self.leaves = tables.batch_leaves(index)
        self.trees: Sequence[Tree] = tables.trees[tables.batch_trees[index] : tables.batch_trees[index + 1]]
        first_leaves = tables.starts[tables.batch_trees[index] : tables.batch_trees[index + 1]]
        self.tree_starts: Ints = first_leaves - self.leaves.start  # per tree: its first leaf, counted within the batch
        dependence = tables.dependence
        self.variables = [
            VariableView(
                self.leaves,
                table,
                int(tables.normal_starts[table.index][index]),
                dependence.code_bins(table.index),
                keep=keep,
            )
            for table in tables.variables
        ]
        self._total_rows = tables.schema.n_rows * len(tables.trees)
        self._tree = dependence
        self.dependence = self._dependence(LeafFactors())

    def with_factors(self, factors: LeafFactors) -> TreeBatch:
        """Return the batch with other tables of dependence."""
        batch = copy.copy(self)
        batch.dependence = self._dependence(factors)
        return batch

    def _dependence(self, factors: LeafFactors) -> LeafDependence:
        return LeafDependence(self._tree, self.n_leaves, lambda number: self.variables[number].bin_masses(), factors)

    @cached_property
    def log_coverage(self) -> Floats:
        """Log coverage per leaf: its share of the training rows of all trees."""
        return np.asarray(np.log(self.leaves.rows / self._total_rows))

    @property
    def n_leaves(self) -> int:
        """The number of leaves."""
        return len(self.leaves.rows)


def tree_batch(tables: LeafTables, index: int) -> TreeBatch:
    """Return one batch of trees; what is dear to compute is kept between queries if the whole model is small enough."""
    n_cells = tables.n_leaves * sum(variable.n_states for variable in tables.schema.variables)
    if n_cells > KEPT_CELLS:
        return TreeBatch(tables, index).with_factors(_leaf_factors(tables, index))
    if index not in tables.kept_batches:
        tables.kept_batches[index] = TreeBatch(tables, index, keep=True)
    batch = tables.kept_batches[index]
    assert isinstance(batch, TreeBatch)
    return batch.with_factors(_leaf_factors(tables, index))


def _leaf_factors(tables: LeafTables, index: int) -> LeafFactors:
    """Return the tables of dependence of one batch of trees, with as many of them kept as are affordable."""
    dependence, kept = tables.dependence, tables.kept_factors
    on_edge = [variable_index for variable_index, edges in enumerate(dependence.neighbours) if edges]
    column_cells = sum(dependence.n_bins(edge.child) for edge in dependence.edges)
    edge_cells = column_cells + sum(dependence.n_bins(edge.parent) for edge in dependence.edges)
    all_cells = edge_cells + 2 * sum(map(dependence.n_bins, on_edge))
    if tables.n_leaves * column_cells > KEPT_COLUMNS:
        return LeafFactors()
    factors = kept.setdefault(index, LeafFactors())
    assert isinstance(factors, LeafFactors)
    return factors if tables.n_leaves * all_cells <= KEPT_FACTORS else LeafFactors(factors.columns)


def _log_grid_mass(places: Floats, normals: Normals, weights: Floats) -> Floats:
    """Return the log mass of whole numbers; `weights` are the log normalising constants of the normals."""
    mu, sigma, lower, upper = normals
    cell_low, cell_high = np.maximum(places - 0.5, lower), np.minimum(places + 0.5, upper)
    logs = np.full(len(places), -np.inf)
    is_inside = cell_high > cell_low
    uniform_index = np.flatnonzero(is_inside & np.isinf(sigma))
    logs[uniform_index] = np.log(cell_high[uniform_index] - cell_low[uniform_index]) - weights[uniform_index]
    normal_index = np.flatnonzero(is_inside & np.isfinite(sigma))
    logs[normal_index] = (
        log_weight(cell_low[normal_index], cell_high[normal_index], mu[normal_index], sigma[normal_index])
        - weights[normal_index]
    )
    return logs
