"""FORGE under a condition: draw leaves by posterior weight, then each variable within its allowed ranges.

No draws are rejected: a rare condition costs as much as a frequent one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.forest.tables import LeafTables
from arf_dask.inference.bin_draws import Bins
from arf_dask.inference.bin_knowledge import BinSpread, condition_evidence, range_shares, row_evidence
from arf_dask.inference.conditions import Conjunction
from arf_dask.inference.forge import Drawn, Sampler, assemble, draw_in_bins, draw_variable
from arf_dask.inference.known_rows import KnownRows
from arf_dask.inference.messages import draw_bins
from arf_dask.inference.posteriors import leaf_weights
from arf_dask.inference.state_ranges import StateRanges, VariableRanges, find_ranges
from arf_dask.inference.tree_batches import VariableView, tree_batch
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.columns import Column
from arf_dask.stats.truncated_normal import draw
from arf_dask.typing import Flags, Floats, Ints

Leaves = NDArray[np.int64]


class ConditionSampler(NamedTuple):
    """Precomputed leaf weights and ranges for drawing rows under a condition."""

    sampler: Sampler
    conjunctions: list[dict[int, StateRanges]]
    weights: Floats  # per (conjunction, leaf), flattened; sums to one


class BoundedDraw(NamedTuple):
    """Drawn values of one variable, with the bounds on the axis that each row must respect."""

    states: Ints
    places: Floats
    low: Floats
    high: Floats


def condition_sampler(sampler: Sampler, conjunctions: Sequence[Conjunction]) -> ConditionSampler | None:
    """Return the leaf weights and state ranges of a condition; None if it is impossible."""
    log_weights = np.concatenate(
        [np.empty(0), *(leaf_weights(sampler.tables, conjunction) for conjunction in conjunctions)]
    )
    largest_log = log_weights.max(initial=-np.inf)
    if np.isneginf(largest_log):
        return None
    leaf_shares = np.exp(log_weights - largest_log)
    conjunction_ranges = [find_ranges(sampler.tables, conjunction) for conjunction in conjunctions]
    return ConditionSampler(sampler, conjunction_ranges, leaf_shares / leaf_shares.sum())


def forge_given(condition: ConditionSampler, n: int, seed: int, block: int, first_row: int) -> pl.DataFrame:
    """Draw one block of rows that satisfy the condition."""
    rng = generator(seed, Stage.GIVEN, block)
    tables = condition.sampler.tables
    leaf_counts = rng.multinomial(n, condition.weights).reshape(len(condition.conjunctions), -1)
    conjunction_draws = []
    for ranges, per_leaf in zip(condition.conjunctions, leaf_counts, strict=True):
        leaf = np.repeat(np.arange(per_leaf.size), per_leaf)
        conjunction_draws.append(_draw_conjunction(condition.sampler, ranges, leaf, rng))
    row_order = rng.permutation(n)
    bounded_draws = [_joined(variable_parts, row_order) for variable_parts in zip(*conjunction_draws, strict=True)]
    plain_draws = [
        Drawn(bounded_draw.states, bounded_draw.places if table.variable.interval.any() else None)
        for bounded_draw, table in zip(bounded_draws, tables.variables, strict=True)
    ]
    frame = assemble(tables, plain_draws, np.arange(n), seed, first_row, rng)
    return hold_bounds(frame, tables, bounded_draws)


def hold_bounds(frame: pl.DataFrame, tables: LeafTables, drawn: Sequence[BoundedDraw]) -> pl.DataFrame:
    """Replace floats that rounding moved out of their bounds by their unrounded values."""
    for table, values in zip(tables.variables, drawn, strict=True):
        variable = table.variable
        if not variable.interval.any() or table.axis.grid:
            continue
        corrected_column = _held(frame[table.lead.name], table.lead, values, variable.interval[values.states])
        if corrected_column is not None:
            frame = frame.with_columns(corrected_column)
    return frame


def draw_ranges(
    sampler: Sampler, ranges: VariableRanges, leaf: Leaves, bins: Mapping[int, Bins], rng: np.random.Generator
) -> dict[int, BoundedDraw]:
    """Draw the variables that a condition constrains, for leaves in ascending order.

    Variables on the dependency tree are drawn inside the given `bins`.
    """
    tables = sampler.tables
    batch_bounds = np.searchsorted(leaf, tables.batch_starts)
    variable_draws: dict[int, list[BoundedDraw]] = {index: [] for index in ranges}
    for batch_index in np.flatnonzero(np.diff(batch_bounds)):
        batch_rows = slice(batch_bounds[batch_index], batch_bounds[batch_index + 1])
        local_leaf = leaf[batch_rows] - tables.batch_starts[batch_index]
        batch = tree_batch(tables, int(batch_index))
        for index, variable_ranges in ranges.items():
            batch_bins = bins[index][batch_rows] if index in bins else None
            variable_draws[index].append(
                _draw_in_batch(batch.variables[index], variable_ranges, local_leaf, batch_bins, rng)
            )
    empty_draw = BoundedDraw(np.empty(0, dtype=np.int32), *(np.empty(0) for _ in range(3)))
    return {
        index: BoundedDraw(*map(np.concatenate, zip(empty_draw, *parts, strict=True)))
        for index, parts in variable_draws.items()
    }


def pick(shares: Floats, rng: np.random.Generator) -> Leaves:
    """Draw one column index per row with probabilities proportional to the row's entries."""
    cumulative_shares = np.cumsum(shares, axis=1)
    thresholds = rng.random(len(shares)) * cumulative_shares[:, -1]
    # Never go beyond the last column of positive share, even if rounding moves the threshold to the total.
    last_positive = shares.shape[1] - 1 - np.argmax(shares[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum((cumulative_shares <= thresholds[:, None]).sum(axis=1), last_positive))


def _draw_conjunction(
    sampler: Sampler, ranges: VariableRanges, leaf: Leaves, rng: np.random.Generator
) -> list[BoundedDraw]:
    bins = draw_joint_bins(sampler.tables, None, ranges, np.zeros_like(leaf), leaf, rng)
    ranged_draws = draw_ranges(sampler, ranges, leaf, bins, rng)
    variable_draws = []
    for index, variable_sampler in enumerate(sampler.variables):
        if index in ranged_draws:
            variable_draws.append(ranged_draws[index])
        elif index in bins:
            variable_draws.append(unbounded(draw_in_bins(sampler, index, leaf, bins[index], rng)))
        else:
            variable_draws.append(unbounded(draw_variable(sampler, variable_sampler, leaf, rng)))
    return variable_draws


def draw_joint_bins(
    tables: LeafTables,
    known: KnownRows | None,
    ranges: VariableRanges,
    row: Leaves,
    leaf: Leaves,
    rng: np.random.Generator,
) -> dict[int, Bins]:
    """Draw the bins of all variables on the dependency tree jointly, for (row, leaf) pairs, given the evidence.

    Args:
        tables: the model.
        known: the known values of rows; None if there is only a condition.
        ranges: ranges that a condition allows for unknown variables.
        row: the row of each pair.
        leaf: the leaf of each pair, numbered over all trees.
        rng: the random generator.
    """
    if not tables.dependence.edges:
        return {}
    evidence = condition_evidence(tables.dependence, ranges) if known is None else row_evidence(tables, known, ranges)
    drawn_bins: dict[int, Bins] = {}
    batch_of = np.searchsorted(tables.batch_starts, leaf, side="right") - 1
    for batch_index in np.unique(batch_of):
        batch_pairs = np.flatnonzero(batch_of == batch_index)
        batch = tree_batch(tables, int(batch_index))
        spread = BinSpread(batch, known, ranges)
        local_leaf = leaf[batch_pairs] - tables.batch_starts[batch_index]
        for index, variable_bins in draw_bins(
            batch.dependence, evidence, spread, row[batch_pairs], local_leaf, rng
        ).items():
            drawn_bins.setdefault(index, np.zeros(len(leaf), dtype=np.int16))[batch_pairs] = variable_bins
    joined_variables = [
        index for index in range(len(tables.variables)) if tables.dependence.code_bins(index) is not None
    ]
    return {index: drawn_bins.get(index, np.zeros(len(leaf), dtype=np.int16)) for index in joined_variables}


def unbounded(drawn: Drawn) -> BoundedDraw:
    """Return an unconditional draw with infinite bounds."""
    n_rows = len(drawn.states)
    axis_values = np.zeros(n_rows) if drawn.places is None else drawn.places
    return BoundedDraw(drawn.states, axis_values, np.full(n_rows, -np.inf), np.full(n_rows, np.inf))


def _joined(parts: Sequence[BoundedDraw], order: Leaves) -> BoundedDraw:
    return BoundedDraw(*(np.concatenate(side)[order] for side in zip(*parts, strict=True)))


def _draw_in_batch(
    view: VariableView, ranges: StateRanges, leaf: Leaves, bins: Bins | None, rng: np.random.Generator
) -> BoundedDraw:
    distinct_leaves, leaf_index = np.unique(leaf, return_inverse=True)
    if bins is None:
        chosen_ranges = pick(range_shares(view, ranges)[distinct_leaves][leaf_index], rng)
        return _place_in_ranges(
            view, leaf, ranges, chosen_ranges, ranges.low[chosen_ranges], ranges.high[chosen_ranges], rng
        )
    binned_ranges = view.cut_at_bins(ranges)
    range_probabilities = range_shares(view, binned_ranges.ranges)[distinct_leaves][leaf_index]
    chosen_ranges = pick(range_probabilities * (binned_ranges.bin[None, :] == bins[:, None]), rng)
    # Numbers are drawn inside bins, but after rounding only the bounds of the condition must hold.
    origin = binned_ranges.origin[chosen_ranges]
    return _place_in_ranges(
        view, leaf, binned_ranges.ranges, chosen_ranges, ranges.low[origin], ranges.high[origin], rng
    )


def _place_in_ranges(
    view: VariableView,
    leaf: Leaves,
    ranges: StateRanges,
    chosen: Leaves,
    low: Floats,
    high: Floats,
    rng: np.random.Generator,
) -> BoundedDraw:
    """Draw axis values inside the chosen ranges that are intervals; `low` and `high` are passed through as bounds."""
    states = ranges.state[chosen]
    axis_values = np.zeros(len(leaf))
    interval_rows = np.flatnonzero(view.variable.interval[states])
    if len(interval_rows):
        axis_values[interval_rows] = draw_in_ranges(view, leaf[interval_rows], ranges, chosen[interval_rows], rng)
    return BoundedDraw(states, axis_values, low, high)


def draw_in_ranges(
    view: VariableView, leaf: Leaves, ranges: StateRanges, chosen: Leaves, rng: np.random.Generator
) -> Floats:
    """Draw an axis value for every row inside its chosen range."""
    low, high, states = ranges.low[chosen], ranges.high[chosen], ranges.state[chosen]
    mu, sigma, lower, upper = (part[leaf, states - view.variable.first_interval] for part in view.normals)
    lower, upper = np.maximum(lower, low), np.minimum(upper, high)
    is_single = low == high
    upper = np.where(is_single, np.nextafter(lower, np.inf), upper)
    axis_values = draw(rng.random(len(leaf)), mu, sigma, lower, upper)
    if view.table.axis.grid:
        axis_values = np.clip(np.rint(axis_values), lower + 0.5, upper - 0.5)
    return np.where(is_single, low, axis_values)


def _held(series: pl.Series, column: Column, drawn: BoundedDraw, between: Flags) -> pl.Series | None:
    axis = column.axis
    assert axis is not None
    axis_values = axis.to_axis(series)
    out_of_bounds = np.flatnonzero(between & ((axis_values < drawn.low) | (axis_values > drawn.high)))
    if not len(out_of_bounds):
        return None
    numpy_types: dict[Any, Any] = {pl.Float32: np.float32, pl.Float16: np.float16}
    numpy_type = numpy_types.get(column.dtype.base_type(), np.float64)
    values = np.ldexp(drawn.places[out_of_bounds], axis.exponent).astype(numpy_type)
    low, high = (np.ldexp(side[out_of_bounds], axis.exponent) for side in (drawn.low, drawn.high))
    values = np.where(values < low, np.nextafter(values, numpy_type(np.inf)), values)
    values = np.where(values > high, np.nextafter(values, numpy_type(-np.inf)), values)
    return series.scatter(pl.Series(out_of_bounds), pl.Series(values.astype(numpy_type)).cast(column.dtype))
