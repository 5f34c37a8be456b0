"""Normals of interval states in the leaves of a tree batch, and the probabilities of bins of codes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arf_dask.forest.dependence import count_bins
from arf_dask.forest.dependence_bins import IntervalPieces, interval_pieces
from arf_dask.forest.smoothing import leaf_sums
from arf_dask.forest.tables import BatchLeaves, LeafTables, VariableTables
from arf_dask.stats.truncated_normal import log_mass, mass_below
from arf_dask.typing import Flags, Floats, Ints

LEAST_INSIDE = 1e-3  # mass of a normal inside its bounds below which differences of its cdf are inaccurate


class Normals(NamedTuple):
    """The normal of every (leaf, interval state) of a tree batch; uniform if the leaf has no rows in the interval."""

    mu: Floats
    sigma: Floats
    lower: Floats
    upper: Floats

    def of_state(self, column: int) -> Normals:
        """Return the normals of one interval state, one per leaf."""
        return Normals(*(part[:, column] for part in self))

    def inside(self, low: float, high: float) -> Normals:
        """Return the normals truncated to the range from `low` to `high`."""
        return self._replace(lower=np.maximum(self.lower, low), upper=np.minimum(self.upper, high))


def leaf_normals(table: VariableTables, leaves: BatchLeaves, normal_start: int) -> Normals:
    """Return the normals of one variable, as (leaf, interval state).

    Args:
        table: the variable.
        leaves: the leaves of the batch.
        normal_start: index of the batch's first interval entry among all interval entries.
    """
    variable, entries, index = table.variable, table.entries, table.index
    states = np.flatnonzero(variable.interval).astype(np.int32)[None, :]
    low, high = (side[:, index, None].astype(np.int32) for side in leaves.boxes)
    seen_bounds = table.interval_bounds(states, low, high)
    unseen_bounds = table.unseen_bounds(states, low, high)
    mu, sigma = (unseen_bounds.lower + unseen_bounds.upper) / 2, np.full(unseen_bounds.lower.shape, np.inf)
    entry_slice, leaf = entries.of_leaves(leaves.start, leaves.stop)
    interval_entries = np.flatnonzero(variable.interval[entries.state[entry_slice]])
    cell_index = (
        leaf[interval_entries],
        entries.state[entry_slice][interval_entries].astype(np.int64) - variable.first_interval,
    )
    is_seen = np.zeros(mu.shape, dtype=bool)
    is_seen[cell_index] = True
    normal_slice = slice(normal_start, normal_start + len(interval_entries))
    mu[cell_index], sigma[cell_index] = entries.mu[normal_slice], entries.sigma[normal_slice]
    return Normals(mu, sigma, *(np.where(is_seen, w, n) for w, n in zip(seen_bounds, unseen_bounds, strict=True)))


def bin_pieces(table: VariableTables, bins: Ints) -> IntervalPieces:
    """Split the interval states of one variable at the borders of its bins."""
    if not table.variable.interval.any():
        none = np.empty(0, dtype=np.int32)
        return IntervalPieces(none, none, np.empty(0), np.empty(0))
    return interval_pieces(table.variable, bins, table.edges)


class BinMasses(NamedTuple):
    """Probabilities of the bins of one variable in the leaves of a tree batch."""

    all: Floats  # (leaf, bin): probabilities, which sum to one per leaf
    intervals: Floats  # (leaf, bin): the part contributed by interval states


def bin_masses(table: VariableTables, leaves: BatchLeaves, bins: Ints, normals: Normals | None) -> BinMasses:
    """Return the probability of every (leaf of a tree batch, bin) of one variable.

    Args:
        table: the variable.
        leaves: the leaves of the batch.
        bins: the bin of every code.
        normals: the normals of its interval states, if it has any.
    """
    variable, n_bins = table.variable, count_bins(bins)
    point_states = np.flatnonzero(~variable.interval)
    values = np.zeros((variable.n_states, n_bins + variable.n_states - variable.first_interval))
    values[point_states, bins[variable.code_low[point_states]]] = 1.0
    interval_states = np.flatnonzero(variable.interval)
    values[interval_states, n_bins + interval_states - variable.first_interval] = 1.0
    sums = leaf_sums(table, leaves, values)
    point_masses, interval_masses = sums[:, :n_bins], np.zeros((len(sums), n_bins))
    if normals is not None:
        pieces = bin_pieces(table, bins)
        interval_index = pieces.state - variable.first_interval
        interval_masses[:, pieces.bin] = sums[:, n_bins + interval_index] * piece_shares(
            normals, pieces, variable.first_interval
        )
    total_masses = point_masses + interval_masses
    leaf_totals = total_masses.sum(axis=1, keepdims=True)  # one, up to rounding
    return BinMasses(total_masses / leaf_totals, interval_masses / leaf_totals)


def piece_shares(normals: Normals, pieces: IntervalPieces, first_interval: int) -> Floats:
    """Return the share of each interval state that lies in each of its pieces, as (leaf, piece).

    Shares are differences of the distribution function at the borders of pieces. If hardly any mass of a normal is
    inside its bounds, these would be inaccurate, and every piece is computed separately.
    """
    mu, sigma, lower, upper = normals
    columns = pieces.state - first_interval
    is_uniform = np.isinf(sigma)
    mass_below_lower, mass_below_upper = (mass_below(side, mu, sigma) for side in (lower, upper))
    mass_inside = mass_below_upper - mass_below_lower
    borders = np.clip(
        np.where(np.isfinite(pieces.low), pieces.low, lower[:, columns]), lower[:, columns], upper[:, columns]
    )
    start_masses = mass_below(borders, mu[:, columns], sigma[:, columns])
    end_masses = np.empty_like(start_masses)
    end_masses[:, :-1] = start_masses[:, 1:]
    is_last = np.append(columns[1:] != columns[:-1], True)
    end_masses[:, is_last] = mass_below_upper[:, columns[is_last]]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(mass_inside[:, columns] > 0, (end_masses - start_masses) / mass_inside[:, columns], 0.0)
    is_hard = (upper > lower) & ~is_uniform & (mass_inside < LEAST_INSIDE)
    if is_hard.any():
        _replace_hard(shares, is_hard[:, columns], normals, pieces, columns)
    return shares


def _replace_hard(shares: Floats, hard: Flags, normals: Normals, pieces: IntervalPieces, at: Ints) -> None:
    leaf, piece = np.nonzero(hard)
    mu, sigma, lower, upper = (partial[leaf, at[piece]] for partial in normals)
    low, high = np.maximum(lower, pieces.low[piece]), np.minimum(upper, pieces.high[piece])
    shares[leaf, piece] = (low == lower) & (high == upper)
    # Most pieces contain either none or all of the interval inside the leaf's box.
    partial = (high > low) & ((low > lower) | (high < upper))
    log_masses = log_mass(low[partial], high[partial], mu[partial], sigma[partial], lower[partial], upper[partial])
    shares[leaf[partial], piece[partial]] = np.exp(log_masses)


def batch_bin_masses(tables: LeafTables, leaves: BatchLeaves, batch: int, index: int, bins: Ints) -> Floats:
    """Return the probabilities of the bins of one variable in a tree batch, as (leaf, bin)."""
    table = tables.variables[index]
    normals = None
    if table.variable.interval.any():
        normals = leaf_normals(table, leaves, int(tables.normal_starts[index][batch]))
    return bin_masses(table, leaves, bins, normals).all
