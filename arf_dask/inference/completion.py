"""Completion of partially known rows: draw a leaf for each row, then its unknown variables from that leaf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.axes import nameless
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.bin_draws import Bins
from arf_dask.inference.bin_knowledge import range_shares
from arf_dask.inference.conditional import Leaves, draw_joint_bins, draw_ranges, pick
from arf_dask.inference.conditions import Conjunction
from arf_dask.inference.forge import (
    BLOCK_ROWS,
    Drawn,
    Sampler,
    VariableSampler,
    assemble,
    draw_in_bins,
    draw_places,
    draw_variable,
)
from arf_dask.inference.known_rows import KnownRows
from arf_dask.inference.posteriors import RowDensities, WeightedPairs
from arf_dask.inference.row_leaves import find_pairs
from arf_dask.inference.row_weights import RowIndex, batch_weights, index_rows, log_weights
from arf_dask.inference.state_ranges import StateRanges, VariableRanges, find_ranges
from arf_dask.inference.tree_batches import tree_batch
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.runtime.tasks import Threads
from arf_dask.stats.log_sums import run_starts
from arf_dask.typing import Flags, Floats, Ints


class Completion(NamedTuple):
    """Rows to complete, with their leaves and seeds."""

    sampler: Sampler
    known: KnownRows
    given: pl.DataFrame  # the rows as the caller gave them
    flags: Mapping[str, Flags]  # per column of `given`: which rows are known
    leaf: Leaves  # (row, draw)
    ranges: VariableRanges  # ranges that a condition allows for unknown variables
    seed: int
    key_seed: int  # seed of the identifiers
    first_row: int  # position of these rows in the whole result


def draw_leaves(
    tables: LeafTables,
    known: KnownRows,
    densities: RowDensities,
    n: int,
    seed: int,
    conjunction: Conjunction | None = None,
) -> Leaves:
    """Draw leaves (row, draw) from their posterior weights given each row's known values; 0 for impossible rows."""
    totals = densities.total()
    possible_rows = np.isfinite(totals)
    batch_shares = np.exp(np.stack(densities.by_batch, axis=1)[possible_rows] - totals[possible_rows, None])
    draw_counts = np.zeros((known.n_rows, tables.n_batches), dtype=np.int64)
    rng = generator(seed, Stage.GIVEN, tables.n_batches, 0)
    draw_counts[possible_rows] = rng.multinomial(n, batch_shares / batch_shares.sum(axis=1, keepdims=True))
    drawn_leaves = np.zeros((known.n_rows, n), dtype=np.int64)
    n_filled = np.zeros(known.n_rows, dtype=np.int64)
    row_index = index_rows(tables, known, find_ranges(tables, conjunction or {}), unknown_only=True)
    shared = tables, row_index, draw_counts, seed, densities.pairs
    for batch_index, (batch_rows, batch_leaves) in enumerate(
        Threads().map(_batch_leaves, shared, range(tables.n_batches))
    ):
        batch_counts = draw_counts[:, batch_index]
        first_draw = np.cumsum(batch_counts) - batch_counts
        drawn_leaves[batch_rows, n_filled[batch_rows] + np.arange(len(batch_rows)) - first_draw[batch_rows]] = (
            batch_leaves
        )
        n_filled += batch_counts
    # Draws are grouped by batch: shuffle them, so that every completion is a draw from the whole mixture.
    return np.take_along_axis(drawn_leaves, np.argsort(rng.random(drawn_leaves.shape), axis=1), axis=1)


def draw_completions(completion: Completion) -> pl.DataFrame:
    """Return `leaf.shape[1]` completed rows for every row of `given`, in order."""
    n_rows, n_draws = completion.leaf.shape
    block_rows = max(1, BLOCK_ROWS // max(n_draws, 1))
    block_bounds = [
        (first_row, min(first_row + block_rows, n_rows)) for first_row in range(0, max(n_rows, 1), block_rows)
    ]
    return pl.concat(list(Threads().map(_complete_block, completion, block_bounds)))


def _batch_leaves(
    shared: tuple[LeafTables, RowIndex, NDArray[np.int64], int, Sequence[list[WeightedPairs] | None]], batch: int
) -> tuple[NDArray[np.int64], Leaves]:
    """Return the rows drawn in this batch, ascending and repeated once per draw, and their leaves."""
    tables, row_index, counts, seed, kept_pairs = shared
    rng = generator(seed, Stage.GIVEN, batch, 1)
    batch_pairs = kept_pairs[batch] if kept_pairs else None
    rows_out, leaves_out = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for pairs in _weigh_again(tables, batch, row_index, counts[:, batch]) if batch_pairs is None else batch_pairs:
        drawn_pairs = np.flatnonzero(np.isfinite(pairs.logs) & (counts[pairs.row, batch] > 0))
        if not len(drawn_pairs):
            continue
        row, leaf, logs = (
            pairs.row[drawn_pairs].astype(np.int64),
            pairs.leaf[drawn_pairs].astype(np.int64),
            pairs.logs[drawn_pairs],
        )
        distinct_rows = row[run_starts(row)]
        wanted_rows = np.repeat(distinct_rows, counts[distinct_rows, batch])
        rows_out.append(wanted_rows)
        leaves_out.append(tables.batch_starts[batch] + leaf[_choose(row, logs, wanted_rows, rng)])
    return np.concatenate(rows_out), np.concatenate(leaves_out)


def _weigh_again(tables: LeafTables, number: int, index: RowIndex, count: NDArray[np.int64]) -> Iterator[WeightedPairs]:
    """Yield the weighted pairs of the rows that have draws in this batch."""
    batch = tree_batch(tables, number)
    weights = batch_weights(batch, index)
    for pairs in find_pairs(batch, index.known, index.code_ranges, np.flatnonzero(count)):
        yield WeightedPairs(pairs.row, pairs.leaf, log_weights(batch, index, weights, pairs))


def _choose(row: Leaves, logs: Floats, wanted: Leaves, rng: np.random.Generator) -> Leaves:
    """Choose an entry for each wanted row by weight. Both `row` and `wanted` are sorted."""
    run_firsts = run_starts(row)
    run_ends = np.append(run_firsts[1:], len(row))
    run_maxima = np.maximum.reduceat(logs, run_firsts)
    entry_weights = np.exp(logs - np.repeat(run_maxima, run_ends - run_firsts))
    cumulative_weights = np.cumsum(entry_weights)
    run_index = np.searchsorted(row[run_firsts], wanted)
    weight_before = cumulative_weights[run_firsts[run_index]] - entry_weights[run_firsts[run_index]]
    thresholds = weight_before + rng.random(len(wanted)) * (cumulative_weights[run_ends[run_index] - 1] - weight_before)
    return np.asarray(
        np.clip(
            np.searchsorted(cumulative_weights, thresholds, side="right"),
            run_firsts[run_index],
            run_ends[run_index] - 1,
        )
    )


def _complete_block(completion: Completion, bounds: tuple[int, int]) -> pl.DataFrame:
    """Complete the rows from `bounds[0]` up to, but excluding, `bounds[1]`."""
    sampler, (first, last), n_draws = completion.sampler, bounds, completion.leaf.shape[1]
    rng = generator(completion.seed, Stage.GIVEN, first, 2)
    row_index = np.repeat(np.arange(first, last), n_draws)
    row_leaves = completion.leaf[first:last].ravel()
    bins = draw_joint_bins(sampler.tables, completion.known, completion.ranges, row_index, row_leaves, rng)
    drawn_variables = [
        _complete_variable(
            completion, variable_sampler, row_index, row_leaves, bins.get(variable_sampler.table.index), rng
        )
        for variable_sampler in sampler.variables
    ]
    first_row = completion.first_row + first * n_draws
    frame = assemble(sampler.tables, drawn_variables, np.arange(len(row_index)), completion.key_seed, first_row, rng)
    known_columns = []
    for name, flags in completion.flags.items():
        if flags[first:last].any():
            known_values = nameless(completion.given[name])[row_index].cast(frame.schema[name], strict=False)
            known_columns.append(known_values.zip_with(pl.Series(flags[row_index]), nameless(frame[name])).alias(name))
    return frame.with_columns(known_columns)


def _complete_variable(
    completion: Completion,
    one: VariableSampler,
    row: Leaves,
    leaf: Leaves,
    bins: Bins | None,
    rng: np.random.Generator,
) -> Drawn:
    """Complete one variable: keep known values, and draw unknown and partially known ones."""
    index = one.table.index
    known_variable, ranges = completion.known.variables[index], completion.ranges.get(index)
    pattern, entry = known_variable.pattern[row], known_variable.entry[row]
    states = np.zeros(len(row), dtype=np.int32)
    axis_values = np.zeros(len(row))
    unknown_rows = np.flatnonzero(pattern < 0)
    if len(unknown_rows):
        unknown_bins = None if bins is None else bins[unknown_rows]
        states[unknown_rows], axis_values[unknown_rows] = _draw_free(
            completion.sampler, one, leaf[unknown_rows], ranges, unknown_bins, rng
        )
    for pattern_index, known_pattern in enumerate(known_variable.patterns):
        pattern_rows = np.flatnonzero(pattern == pattern_index)
        if not len(pattern_rows):
            continue
        if known_pattern.groups is not None:
            wanted_groups = known_pattern.point[entry[pattern_rows]]
            if bins is None:
                states[pattern_rows] = _draw_group(
                    completion.sampler.tables,
                    index,
                    known_pattern.groups,
                    leaf[pattern_rows],
                    wanted_groups,
                    ranges,
                    rng,
                )
                axis_bounds = None
            else:
                group_draw = _draw_group_in_bins(
                    completion, index, known_pattern.groups, leaf[pattern_rows], wanted_groups, bins[pattern_rows], rng
                )
                states[pattern_rows], axis_bounds = group_draw.states, (group_draw.low, group_draw.high)
            if one.line is not None:
                axis_values[pattern_rows] = draw_places(one, leaf[pattern_rows], states[pattern_rows], rng, axis_bounds)
            continue
        states[pattern_rows] = np.maximum(known_pattern.states(entry[pattern_rows]), 0)
        if known_pattern.places is not None:
            axis_values[pattern_rows] = np.nan_to_num(known_pattern.places[entry[pattern_rows]])
    return Drawn(states, axis_values if one.line is not None else None)


def _draw_free(
    sampler: Sampler,
    one: VariableSampler,
    leaf: Leaves,
    ranges: StateRanges | None,
    bins: Bins | None,
    rng: np.random.Generator,
) -> tuple[Ints, Floats]:
    """Draw a variable that is unknown; inside the given bins if it is on the dependency tree."""
    index = one.table.index
    if ranges is None:
        free_draw = (
            draw_variable(sampler, one, leaf, rng) if bins is None else draw_in_bins(sampler, index, leaf, bins, rng)
        )
        return free_draw.states, np.zeros(len(leaf)) if free_draw.places is None else free_draw.places
    leaf_order = np.argsort(leaf, kind="stable")
    sorted_bins = {} if bins is None else {index: bins[leaf_order]}
    bounded = draw_ranges(sampler, {index: ranges}, leaf[leaf_order], sorted_bins, rng)[index]
    states, axis_values = np.empty(len(leaf), dtype=np.int32), np.empty(len(leaf))
    states[leaf_order], axis_values[leaf_order] = bounded.states, bounded.places
    return states, axis_values


def _draw_group(
    tables: LeafTables,
    index: int,
    groups: Ints,
    leaf: Leaves,
    asked: Ints,
    ranges: StateRanges | None,
    rng: np.random.Generator,
) -> Ints:
    """Draw a state of each row's group by its probability in the row's leaf."""
    states = np.zeros(len(leaf), dtype=np.int32)
    batch_of = np.searchsorted(tables.batch_starts, leaf, side="right") - 1
    for batch_index in np.unique(batch_of):
        batch_rows = np.flatnonzero(batch_of == batch_index)
        view = tree_batch(tables, int(batch_index)).variables[index]
        state_shares = view.allowed_probabilities(ranges)[leaf[batch_rows] - tables.batch_starts[batch_index]]
        states[batch_rows] = pick(state_shares * (groups[None, :] == asked[batch_rows][:, None]), rng)
    return states


class _GroupDraw(NamedTuple):
    """States drawn from groups, with the bounds on the axis that each must lie in."""

    states: Ints
    low: Floats
    high: Floats


def _draw_group_in_bins(
    completion: Completion,
    index: int,
    groups: Ints,
    leaf: Leaves,
    asked: Ints,
    bins: Bins,
    rng: np.random.Generator,
) -> _GroupDraw:
    """Draw a state of each row's group inside its bin by its probability in the row's leaf."""
    tables, ranges = completion.sampler.tables, completion.ranges.get(index)
    group_draw = _GroupDraw(np.zeros(len(leaf), dtype=np.int32), np.empty(len(leaf)), np.empty(len(leaf)))
    batch_of = np.searchsorted(tables.batch_starts, leaf, side="right") - 1
    for batch_index in np.unique(batch_of):
        batch_rows = np.flatnonzero(batch_of == batch_index)
        view = tree_batch(tables, int(batch_index)).variables[index]
        binned_ranges = view.cut_at_bins(ranges)
        range_probabilities = range_shares(view, binned_ranges.ranges)[
            leaf[batch_rows] - tables.batch_starts[batch_index]
        ]
        group_matches = groups[binned_ranges.ranges.state][None, :] == asked[batch_rows][:, None]
        chosen_ranges = pick(
            range_probabilities * group_matches * (binned_ranges.bin[None, :] == bins[batch_rows][:, None]), rng
        )
        group_draw.states[batch_rows] = binned_ranges.ranges.state[chosen_ranges]
        group_draw.low[batch_rows], group_draw.high[batch_rows] = (
            binned_ranges.ranges.low[chosen_ranges],
            binned_ranges.ranges.high[chosen_ranges],
        )
    return group_draw
