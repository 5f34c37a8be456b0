"""Drawing values inside bins of the dependency tree.

Training rows whose values are points are numbered by bin, and by leaf within a bin, so that the rows of a bin in any
leaf or node are consecutive positions. Drawing a point from a leaf, or from its parent, amounts to drawing a position
from that range.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.leaf_normals import bin_pieces
from arf_dask.forest.smoothing import RowShares, box_rows, row_shares
from arf_dask.forest.tables import BatchLeaves, LeafTables, VariableTables
from arf_dask.inference.tree_batches import tree_batch
from arf_dask.runtime.tasks import Threads
from arf_dask.stats.log_sums import run_starts
from arf_dask.typing import Counts, Flags, Floats, Ints

LOOKUP_CELLS = 64_000_000  # use a lookup table up to this many positions times variables, a binary search above

Singles = NDArray[np.float32]
States = NDArray[np.unsignedinteger]
Bins = NDArray[np.int16]


class BinSampler(NamedTuple):
    """Tables for drawing one variable inside its bins. Tables of shape (bin, leaf) are flattened."""

    table: VariableTables
    n_leaves: int
    of_state: Bins  # per point state: its bin
    borders: Floats  # lower borders of the numeric bins except the first
    first_number: int  # index of the first numeric bin
    interval: Ints  # per bin: the interval state that overlaps it; -1: none
    low: Floats  # per bin: bounds of the overlap
    high: Floats
    ends: Counts | Ints  # these three: as in `_Positions`
    states: States
    entry_ends: Counts | None
    own: Singles  # (bin, leaf): probability of drawing from the leaf's own points
    inside: Singles  # (bin, leaf): probability of the interval; empty unless there are both points and intervals
    keys: Counts  # bin * n_codes + code for every code, ascending
    below: Counts  # per key: number of prior rows with points before it, followed by the total
    parent_row: Floats  # per leaf: weight of a row of its parent
    column_row: Floats  # per leaf: weight of a row of the whole column inside its box
    first: Ints  # per leaf: range of the leaves below its parent
    last: Ints
    low_code: NDArray[np.integer]  # per leaf: its box, in codes
    high_code: NDArray[np.integer]


class BinEdge(NamedTuple):
    """Tables for drawing the bins of a child given the bins of its parent."""

    parent: int
    child: int
    ratios: Singles  # (bin of the child, bin of the parent)
    weights: Singles  # (bin of the child, leaf)


class BinSamplers(NamedTuple):
    """Samplers of all variables on an edge, and of the edges, in order from parents to children."""

    variables: dict[int, BinSampler]
    edges: list[BinEdge]


class _Positions(NamedTuple):
    """The training rows of one variable whose values are points, numbered by bin, and by leaf within a bin."""

    ends: Counts | Ints  # (bin, leaf), flattened: position after its last row, preceded by a zero
    states: States  # per position, or per entry if there are too many positions
    entry_ends: Counts | None  # per entry: position after its last row; None if `states` is per position


class _BatchTables(NamedTuple):
    """Contribution of one tree batch, by variable. All tables are (bin, leaf)."""

    own: dict[int, Singles]
    inside: dict[int, Singles]  # only of variables that need it
    shares: dict[int, RowShares]
    weights: dict[int, Singles]  # by child variable
    first: Ints
    last: Ints


def bin_samplers(tables: LeafTables) -> BinSamplers:
    """Precompute the tables for drawing inside bins, which do not depend on the rows drawn."""
    joined_variables = [
        index for index in range(len(tables.variables)) if tables.dependence.code_bins(index) is not None
    ]
    use_lookup = bool(tables.coverage.sum() * len(joined_variables) <= LOOKUP_CELLS)
    positions = {index: _positions(tables, index, lookup=use_lookup) for index in joined_variables}
    batch_tables = list(Threads().map(_batch_tables, (tables, positions), range(tables.n_batches)))
    variable_samplers = {
        index: _bin_sampler(tables, index, positions[index], batch_tables) for index in joined_variables
    }
    bin_edges = []
    for edge in tables.dependence.edges:
        child_weights = _side_by_side([part.weights.pop(edge.child) for part in batch_tables])
        bin_edges.append(BinEdge(edge.parent, edge.child, edge.ratios.T.astype(np.float32, order="C"), child_weights))
    return BinSamplers(variable_samplers, bin_edges)


def draw_child_bins(edge: BinEdge, leaf: Counts, parent_bins: Bins, rng: np.random.Generator) -> Bins:
    """Draw a bin of the child for every row, given the bin of its parent.

    Cumulative sums are computed bin by bin: summing along short rows took four times as long.
    """
    n_bins = len(edge.weights)
    cumulative_weights = np.empty((n_bins, len(leaf)), dtype=np.float32)
    for bin_index in range(n_bins):
        np.take(edge.weights[bin_index], leaf, out=cumulative_weights[bin_index], mode="clip")
        cumulative_weights[bin_index] *= edge.ratios[bin_index].take(parent_bins)
        if bin_index:
            cumulative_weights[bin_index] += cumulative_weights[bin_index - 1]
    # Keep the threshold strictly below the total despite rounding, so that a bin of zero weight is never drawn.
    largest_threshold = np.nextafter(cumulative_weights[-1], np.float32(0))
    thresholds = np.minimum(rng.random(len(leaf), dtype=np.float32) * cumulative_weights[-1], largest_threshold)
    child_bins = np.zeros(len(leaf), dtype=np.int16)
    for weight_below in cumulative_weights[:-1]:
        child_bins += weight_below <= thresholds
    return child_bins


def drawn_bins(one: BinSampler, states: Ints, places: Floats | None) -> Bins:
    """Return the bins of values that were drawn without regard to bins."""
    if places is None:
        return one.of_state[states]
    number_bins = one.first_number + np.searchsorted(one.borders, places, side="right")
    return np.where(one.table.variable.interval[states], number_bins, one.of_state[states]).astype(np.int16)


def draw_states_in_bins(one: BinSampler, leaf: Counts, bins: Bins, rng: np.random.Generator) -> Ints:
    """Draw a state per row by its probability in the row's leaf and bin."""
    if not len(one.states):
        return one.interval[bins]
    cell_index = bins * np.int64(one.n_leaves) + leaf
    uniform_draws, own_chance = rng.random(len(leaf)), one.own.take(cell_index).astype(np.float64)
    first_position = one.ends.take(cell_index)
    row_counts = one.ends.take(cell_index + 1) - first_position
    with np.errstate(divide="ignore", invalid="ignore"):
        own_share = np.where(uniform_draws < own_chance, uniform_draws / own_chance, 0.0)
    position = first_position + np.minimum((own_share * row_counts).astype(np.int64), np.maximum(row_counts - 1, 0))
    other_rows = np.flatnonzero(uniform_draws >= own_chance)
    if not len(other_rows):
        return _states_at(one, position)
    uniform_draws = (uniform_draws[other_rows] - own_chance[other_rows]) / (1 - own_chance[other_rows])
    return _draw_others(one, leaf[other_rows], bins[other_rows], uniform_draws, position, other_rows)


def _draw_others(one: BinSampler, leaf: Counts, bins: Bins, chance: Floats, position: Counts, others: Counts) -> Ints:
    """Return the states at `position`, with the rows `others` redrawn from the parent, the column or the interval."""
    cell_offset = bins * np.int64(one.n_leaves)
    parent_start = one.ends[cell_offset + one.first[leaf]]
    parent_rows = one.ends[cell_offset + one.last[leaf]] - parent_start
    low_codes, high_codes = (side[leaf].astype(np.int64) for side in (one.low_code, one.high_code))
    first_key = bins * np.int64(len(one.keys))
    column_start = one.below[np.searchsorted(one.keys, first_key + low_codes)]
    column_rows = one.below[np.searchsorted(one.keys, first_key + high_codes, side="right")] - column_start
    source_weights = np.zeros((len(leaf), 3))
    source_weights[:, 0] = parent_rows * one.parent_row[leaf]
    source_weights[:, 1] = column_rows * one.column_row[leaf]
    if len(one.inside):
        source_weights[:, 2] = one.inside[cell_offset + leaf]
    cumulative_weights = source_weights.cumsum(axis=1)
    chance = chance * cumulative_weights[:, -1]
    source_index = (cumulative_weights <= chance[:, None]).sum(axis=1)
    from_parent, from_column, from_interval = (np.flatnonzero(source_index == source) for source in range(3))
    row_share = chance[from_parent] / source_weights[from_parent, 0]
    position[others[from_parent]] = parent_start[from_parent] + _row_at(row_share, parent_rows[from_parent])
    states = _states_at(one, position)
    row_share = (chance[from_column] - cumulative_weights[from_column, 0]) / source_weights[from_column, 1]
    prior_row = column_start[from_column] + _row_at(row_share, column_rows[from_column])
    codes = one.keys[np.searchsorted(one.below, prior_row, side="right") - 1] % len(one.keys)
    states[others[from_column]] = one.table.state_of_code[codes]
    states[others[from_interval]] = one.interval[bins[from_interval]]
    return states


def _row_at(share: Floats, rows: Counts) -> Counts:
    return np.minimum((share * rows).astype(np.int64), rows - 1)


def _states_at(one: BinSampler, position: Counts) -> Ints:
    if one.entry_ends is not None:
        position = np.searchsorted(one.entry_ends, position, side="right")
    # A bin without any rows overlaps an interval, so its position is never used.
    return one.states.take(np.minimum(position, len(one.states) - 1)).astype(np.int32)


def _batch_tables(shared: tuple[LeafTables, dict[int, _Positions]], number: int) -> _BatchTables:
    tables, positions = shared
    batch = tree_batch(tables, number)
    own, inside, shares, weights = {}, {}, {}, {}
    for view in (view for view in batch.variables if view.bins is not None):
        box_low, box_high = (side[:, view.index] for side in batch.leaves.boxes)
        shares[view.index] = row_shares(view.table, batch.leaves, box_rows(view.table.prior_rows, box_low, box_high))
        masses = batch.dependence.bin_masses(view.index)
        own[view.index] = _own_chance(tables, positions[view.index], batch.leaves, shares[view.index].own, masses.all)
        if view.variable.interval.any() and len(positions[view.index].states):
            inside[view.index] = masses.intervals.T.astype(np.float32, order="C")
    for edge_index, edge in enumerate(tables.dependence.edges):
        bin_weights = batch.dependence.masses(edge.child) * batch.dependence.factor(edge_index, edge.child)
        weights[edge.child] = _single_weights(bin_weights)
    return _BatchTables(own, inside, shares, weights, batch.leaves.first, batch.leaves.last)


def _single_weights(weights: Floats) -> Singles:
    """Return weights (leaf, bin) as (bin, leaf) in single precision, divided by the largest of the leaf."""
    return np.asarray((weights / weights.max(axis=1, keepdims=True)).T, dtype=np.float32, order="C")


def _side_by_side(parts: list[Singles]) -> Singles:
    """Return (bin, leaf) of all leaves, given that of every tree batch."""
    return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


def _bin_sampler(tables: LeafTables, index: int, positions: _Positions, parts: list[_BatchTables]) -> BinSampler:
    table, bin_of_code = tables.variables[index], tables.dependence.bins[index]
    variable, n_bins = table.variable, tables.dependence.n_bins(index)
    interval_pieces = bin_pieces(table, bin_of_code)
    interval, low, high = np.full(n_bins, -1, dtype=np.int32), np.full(n_bins, -np.inf), np.full(n_bins, np.inf)
    interval[interval_pieces.bin], low[interval_pieces.bin], high[interval_pieces.bin] = (
        interval_pieces.state,
        interval_pieces.low,
        interval_pieces.high,
    )
    of_state = bin_of_code[variable.code_low].astype(np.int16)
    first_number, borders = 0, np.empty(0)
    if variable.interval.any():
        bin_starts = run_starts(bin_of_code)
        first_number = int(np.searchsorted(bin_starts, variable.first_bin))
        borders = table.edges[bin_starts[first_number + 1 :] - variable.first_bin]
    source_shares = RowShares(*(np.concatenate(side) for side in zip(*(p.shares[index] for p in parts), strict=True)))
    # Tables of batches are given up one by one, so that they are not held twice.
    own = _side_by_side([part.own.pop(index) for part in parts])
    inside = [part.inside.pop(index) for part in parts if index in part.inside]
    point_rows = np.where(variable.interval[table.state_of_code], 0, table.prior_rows)
    code_keys = np.sort(bin_of_code * np.int64(len(bin_of_code)) + np.arange(len(bin_of_code)))
    leaf_offsets = tables.batch_starts[:-1]
    parent_first, parent_last = (
        np.concatenate([side + offset for side, offset in zip(sides, leaf_offsets, strict=True)])
        for sides in ([part.first for part in parts], [part.last for part in parts])
    )
    return BinSampler(
        table,
        tables.n_leaves,
        of_state,
        borders,
        first_number,
        interval,
        low,
        high,
        *positions,
        own.ravel(),
        _side_by_side(inside).ravel() if inside else np.empty(0, dtype=np.float32),
        code_keys,
        np.concatenate([[0], np.cumsum(point_rows[code_keys % len(code_keys)])]),
        source_shares.parent,
        source_shares.column,
        parent_first,
        parent_last,
        tables.boxes.low[:, index],
        tables.boxes.high[:, index],
    )


def _positions(tables: LeafTables, index: int, *, lookup: bool) -> _Positions:
    """Number the training rows of one variable whose values are points."""
    table, bin_of_code, n_bins = tables.variables[index], tables.dependence.bins[index], tables.dependence.n_bins(index)
    entries, of_state = table.entries, bin_of_code[table.variable.code_low].astype(np.int16)
    is_point: Flags = ~table.variable.interval[entries.state]
    leaf, state, rows = entries.leaf[is_point], entries.state[is_point], entries.rows[is_point].astype(np.int64)
    bins = of_state[state]
    bin_order = np.argsort(bins, kind="stable")
    cell_index = bins.astype(np.int64) * tables.n_leaves + leaf
    cell_counts = np.bincount(cell_index, rows, n_bins * tables.n_leaves).astype(np.int64)
    row_ends = np.concatenate([[0], np.cumsum(cell_counts)])
    if row_ends[-1] < 2**31:
        row_ends = row_ends.astype(np.int32)
    if lookup:
        return _Positions(row_ends, np.repeat(state[bin_order], rows[bin_order]), None)
    return _Positions(row_ends, state[bin_order], np.cumsum(rows[bin_order]))


def _own_chance(
    tables: LeafTables, positions: _Positions, leaves: BatchLeaves, own_row: Floats, masses: Floats
) -> Singles:
    """Return the share (bin, leaf) of a bin's probability that comes from the leaf's own points."""
    cells = np.arange(masses.shape[1])[:, None] * tables.n_leaves + np.arange(leaves.start, leaves.stop)
    own_masses = (positions.ends[cells + 1] - positions.ends[cells]) * own_row
    with np.errstate(divide="ignore", invalid="ignore"):
        own_chances = np.where(masses.T > 0, own_masses / masses.T, 0.0)
    # A share of one up to rounding: always draw from the leaf's own points.
    return np.where(own_chances > 1 - 1e-9, 2.0, own_chances).astype(np.float32)
