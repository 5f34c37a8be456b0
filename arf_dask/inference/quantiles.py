"""Quantiles and cumulative probabilities of a numeric column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Box, is_choices
from arf_dask.errors import OptionError
from arf_dask.forest.tables import ColumnTables, LeafTables
from arf_dask.inference.bin_knowledge import BinSpread, is_tilted, tilted_shares
from arf_dask.inference.conditions import parse
from arf_dask.inference.density import ZeroProbabilityError
from arf_dask.inference.posteriors import batch_leaf_weights, log_probability
from arf_dask.inference.state_ranges import VariableRanges, all_ranges, find_ranges
from arf_dask.inference.tree_batches import tree_batch
from arf_dask.runtime.tasks import Threads
from arf_dask.schema.columns import FIRST_LEVEL, Column
from arf_dask.stats.truncated_normal import log_weight
from arf_dask.typing import Floats

HALVINGS = 60
EPSILON = 1e-12
NEGLIGIBLE = 1e-18


class Mixture(NamedTuple):
    """The distribution of a numeric column under a condition, as a mixture of spikes and truncated normals."""

    base: float  # total probability of components below all others
    points: Floats  # the spikes, ascending
    masses: Floats  # their probabilities
    weight: Floats  # per component
    mu: Floats
    sigma: Floats
    lower: Floats
    upper: Floats
    whole: Floats  # log normalising constant of the normal on (lower, upper)

    def below(self, place: float, grid: bool) -> float:
        """Return the probability of numbers up to an axis value."""
        cell_edge = np.floor(place) + 0.5 if grid and np.isfinite(place) else place
        total_mass = self.base + self.masses[self.points <= place].sum() + self.weight[self.upper <= cell_edge].sum()
        partial_cells = np.flatnonzero((self.lower < cell_edge) & (self.upper > cell_edge))
        if len(partial_cells):
            log_share = (
                log_weight(self.lower[partial_cells], cell_edge, self.mu[partial_cells], self.sigma[partial_cells])
                - self.whole[partial_cells]
            )
            total_mass += self.weight[partial_cells] @ np.exp(np.minimum(log_share, 0.0))
        return float(min(total_mass, 1.0))

    def between(self, low: float, high: float, grid: bool) -> Mixture:
        """Return the distribution with components outside (low, high) aggregated, for faster evaluation inside."""
        half_step = 0.5 if grid else 0.0
        is_below, is_above = self.upper <= low + half_step, self.lower >= high + half_step
        base_mass = self.base + float(self.weight[is_below].sum())
        is_kept = ~is_below & ~is_above
        return Mixture(base_mass, self.points, self.masses, *(part[is_kept] for part in self[3:]))


class BatchMixture(NamedTuple):
    """Contribution of one tree batch to a mixture."""

    states: Floats  # per state: its probability if it is a point
    exact: dict[float, float]  # probabilities of single numbers that a condition fixes
    normals: tuple[Floats, ...]  # weight, mu, sigma, lower, upper


def quantiles(tables: LeafTables, name: str, levels: Sequence[float], given: Sequence[Box]) -> list[Any]:
    """Return, per level, the smallest value of a numeric column whose cumulative probability is at least the level."""
    column_mixture, column = mixture(tables, name, given)
    axis_values = np.array([_quantile(column_mixture, level, column) for level in levels])
    assert column.axis is not None
    if column.axis.grid:
        return column.axis.from_axis(axis_values, column.dtype).to_list()
    return pl.Series(np.ldexp(axis_values, column.axis.exponent)).cast(column.dtype).to_list()


def checked_levels(q: Any) -> list[float]:
    """Validate one or several probabilities and return them as a list."""
    level_list = list(q) if is_choices(q) else [q]
    is_valid = [isinstance(level, int | float | np.number) and 0 <= level <= 1 for level in level_list]
    if not all(is_valid):
        raise OptionError(f"q={q!r}: give a probability from 0 to 1, or a list of them.")
    return [float(level) for level in level_list]


def mixture(tables: LeafTables, name: str, given: Sequence[Box]) -> tuple[Mixture, Column]:
    """Return the distribution of a numeric column under a condition, given that it is not missing."""
    of_column = tables.column_tables(name)
    assert of_column is not None
    conjunctions = parse(given, tables.schema)
    log_total = log_probability(tables, conjunctions)
    if np.isneginf(log_total):
        raise ZeroProbabilityError
    batch_mixtures: list[BatchMixture] = []
    for conjunction in conjunctions:
        shared = tables, find_ranges(tables, conjunction), of_column, log_total
        batch_mixtures += Threads().map(_batch_mixture, shared, range(tables.n_batches))
    column_mixture = _join_mixtures(batch_mixtures, of_column)
    if column_mixture is None:
        raise ZeroProbabilityError
    return column_mixture, of_column.column


def _join_mixtures(parts: Sequence[BatchMixture], of_column: ColumnTables) -> Mixture | None:
    """Combine the mixtures of all tree batches, given that there is a number; None if that is impossible."""
    column = of_column.column
    state_masses = np.zeros(of_column.table.variable.n_states)
    exact_masses: dict[float, float] = {}
    for part in parts:
        state_masses += part.states
        for axis_value, mass in part.exact.items():
            exact_masses[axis_value] = exact_masses.get(axis_value, 0.0) + mass
    point_masses = np.bincount(of_column.tokens, state_masses, column.between + 1)[FIRST_LEVEL : column.between]
    point_values = np.concatenate([column.points, list(exact_masses)])
    point_masses = np.concatenate([point_masses, list(exact_masses.values())])
    point_order = np.argsort(point_values)
    point_values, point_masses = point_values[point_order], point_masses[point_order]
    sides = zip(*(part.normals for part in parts), strict=True)
    weight, mu, sigma, lower, upper = (np.concatenate(side) for side in sides)
    number_mass = float(point_masses.sum() + weight.sum())
    if number_mass == 0:
        return None
    log_constants = log_weight(lower, upper, mu, sigma)
    return Mixture(
        0.0, point_values, point_masses / number_mass, weight / number_mass, mu, sigma, lower, upper, log_constants
    )


def _batch_mixture(shared: tuple[LeafTables, VariableRanges, ColumnTables, float], number: int) -> BatchMixture:
    """Return the point masses, single numbers and weighted normals of one tree batch."""
    tables, narrowed, of_column, total = shared
    batch, index = tree_batch(tables, number), of_column.table.index
    view, variable = batch.variables[index], of_column.table.variable
    if is_tilted(batch, index, narrowed):
        ranges, range_probabilities = tilted_shares(BinSpread(batch, None, narrowed), index)
        range_weights = np.exp(batch_leaf_weights(batch, narrowed) - total)[:, None] * range_probabilities
    else:
        ranges = narrowed.get(index, all_ranges(variable))
        other_weights = batch_leaf_weights(
            batch, {key: kept_cells for key, kept_cells in narrowed.items() if key != index}
        )
        range_weights = np.exp(other_weights[:, None] + view.log_masses(ranges) - total)
    on_line = variable.interval[ranges.state] & (of_column.member == 0)
    is_single = on_line & ranges.single
    exact_masses = dict(
        zip(ranges.low[is_single].tolist(), range_weights[:, is_single].sum(axis=0).tolist(), strict=True)
    )
    state_masses = np.bincount(
        ranges.state[~on_line], range_weights[:, ~on_line].sum(axis=0), variable.n_states
    ).astype(np.float64)
    line_ranges = np.flatnonzero(on_line & ~is_single)
    if not len(line_ranges):
        return BatchMixture(state_masses, exact_masses, tuple(np.empty(0) for _ in range(5)))
    interval_index = ranges.state[line_ranges] - variable.first_interval
    mu, sigma, lower, upper = (part[:, interval_index] for part in view.normals)
    lower, upper = np.maximum(lower, ranges.low[line_ranges]), np.minimum(upper, ranges.high[line_ranges])
    kept_cells = (range_weights[:, line_ranges] > NEGLIGIBLE * range_weights.max(initial=0.0)) & (upper > lower)
    return BatchMixture(
        state_masses,
        exact_masses,
        tuple(part[kept_cells] for part in (range_weights[:, line_ranges], mu, sigma, lower, upper)),
    )


def _quantile(found: Mixture, q: float, column: Column) -> float:
    """Find a quantile by bisection."""
    assert column.axis is not None
    grid = column.axis.grid
    low, high = _range(found, grid)
    if q <= 0 or high <= low:
        return low
    if found.below(low, grid) >= q:
        return low
    for _ in range(HALVINGS):
        middle = np.floor((low + high) / 2) if grid else low + (high - low) / 2
        if middle in (low, high):
            break
        if found.below(middle, grid) >= q - EPSILON:
            high = middle
        else:
            low = middle
        found = found.between(low, high, grid)
    spikes = found.points[(found.points > low) & (found.points <= high) & (found.masses > 0)]
    return float(spikes[0]) if len(spikes) else high


def _range(found: Mixture, grid: bool) -> tuple[float, float]:
    """Return the smallest and largest possible number; 40 standard deviations out for unbounded tails."""
    half_step = 0.5 if grid else 0.0
    tail_width = 40 * np.where(np.isfinite(found.sigma), found.sigma, 0.0)
    low_ends = np.where(
        np.isfinite(found.lower), found.lower + half_step, np.minimum(found.mu, found.upper) - tail_width
    )
    high_ends = np.where(
        np.isfinite(found.upper), found.upper - half_step, np.maximum(found.mu, found.lower) + tail_width
    )
    spike_values = found.points[found.masses > 0]
    return float(np.concatenate([low_ends, spike_values]).min()), float(np.concatenate([high_ends, spike_values]).max())
