"""Select, measure, fit: rounds that choose the pair of columns that a mixture fits worst, and measure it with noise.

As in AIM (McKenna et al., 2022), a candidate's score is its distance from the model less the noise that its
measurement would have, and the noise is halved whenever a measurement taught nothing. Here a candidate is a pair of
columns and a resolution, and the model is a mixture of products.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np

from arf_dask.privacy.bins import Cells, group_cells
from arf_dask.privacy.mixture import Mixture, Target
from arf_dask.privacy.noise import choice_cost, gaussian_cost
from arf_dask.privacy.trusted import FIXED_POINT, TrustedTable
from arf_dask.runtime.progress import Progress
from arf_dask.typing import Counts, Floats, Ints

RESOLUTIONS = (None, 16, 8, 4)  # maximum groups per column; None: all cells
COMPONENTS = 200
ROUNDS_PER_COLUMN = 8  # planned; later rounds have less noise and are fewer
CHOICE_SHARE = 0.1  # of the budget of a round
ROUND_STEPS, LAST_STEPS = 30, 500  # gradient steps after every round, and at the end
MEAN_NOISE = math.sqrt(2 / math.pi)  # mean absolute value of a standard normal


class Grid(NamedTuple):
    """All columns at one resolution."""

    groups: list[Ints]  # per column: the group of every cell
    starts: Counts  # per column: its first group, followed by the number of groups
    indicators: Floats | None  # (cell, group); None if groups are cells


class Candidate(NamedTuple):
    """A pair of columns at a resolution."""

    resolution: int
    pair: tuple[int, int]


class OneWay(NamedTuple):
    """Noisy counts of the cells of all columns, side by side, and what follows from them."""

    rows: float  # estimated number of rows
    shares: Floats  # estimated shares of cells
    scale: float  # of the noise in counts


class Tables:
    """Measured two-way tables at one resolution: noisy means, and denoised tables with their weights."""

    def __init__(self, grid: Grid, base: Floats) -> None:
        size = int(grid.starts[-1])
        self.grid, self.base = grid, base
        self.shares, self.weights, self.cleaned = (np.zeros((size, size)) for _ in range(3))

    def add(self, pair: tuple[int, int], shares: Floats, weight: float) -> None:
        """Average a measurement with earlier ones of the pair, and denoise the mean."""
        a, b = (slice(self.grid.starts[i], self.grid.starts[i + 1]) for i in pair)
        total = self.weights[a, b] + weight
        self.shares[a, b] = (self.shares[a, b] * self.weights[a, b] + shares * weight) / total
        self.weights[a, b], self.weights[b, a] = total, total.T
        noise = 1 / math.sqrt(float(total[0, 0]))
        self.cleaned[a, b] = shrink_singular_values(self.shares[a, b], np.outer(self.base[a], self.base[b]), noise)
        self.cleaned[b, a] = self.cleaned[a, b].T


def measure_columns(columns: list[Cells], table: TrustedTable, rho: float) -> OneWay:
    """Measure the counts of all cells of all columns."""
    scale = table.scale_for(rho / len(columns))
    noisy = [table.one_way(column, scale).astype(np.float64) for column in range(len(columns))]
    precision = np.array([1 / len(counts) for counts in noisy])  # the variance of a total grows with its cells
    rows = max(float(np.average([counts.sum() for counts in noisy], weights=precision)), 1.0)
    return OneWay(rows, np.concatenate([_project(counts, rows) / rows for counts in noisy]), scale)


def fit_mixture(
    columns: list[Cells], one_way: OneWay, table: TrustedTable, rho: float, rng: np.random.Generator, report: Progress
) -> Mixture:
    """Spend rho on two-way tables, and return the mixture that fits all measurements."""
    offsets = np.concatenate([[0], np.cumsum([cells.n_cells for cells in columns])])
    mixture = Mixture(one_way.shares, offsets, COMPONENTS, rng)
    grids = [_make_grid(columns, one_way.shares, offsets, most) for most in RESOLUTIONS]
    tables = [Tables(g, one_way.shares if g.indicators is None else one_way.shares @ g.indicators) for g in grids]
    unit = (one_way.scale / one_way.rows) ** 2  # weights are relative to those of one-way shares
    weights = np.full(len(one_way.shares), 1.0)
    mixture.fit(one_way.shares, weights, [], ROUND_STEPS)
    if len(columns) > 1:
        _run_rounds(mixture, grids, tables, one_way, table, rho, unit, report)
    mixture.fit(one_way.shares, weights, _targets(tables, unit), LAST_STEPS)
    return mixture


def _run_rounds(
    mixture: Mixture,
    grids: list[Grid],
    tables: list[Tables],
    one_way: OneWay,
    table: TrustedTable,
    rho: float,
    unit: float,
    report: Progress,
) -> None:
    candidates = _candidates(grids)
    n_rounds = ROUNDS_PER_COLUMN * (len(grids[0].starts) - 1)
    scale = table.scale_for((1 - CHOICE_SHARE) * rho / n_rounds)
    choice = table.scale_for(CHOICE_SHARE * rho / n_rounds)
    left, weights = rho, np.full(len(one_way.shares), 1.0)
    while left > 1e-9 * rho:
        if left < 2 * _round_cost(scale, choice, table.rows_per_unit):  # the last round takes what is left
            scale, choice = table.scale_for((1 - CHOICE_SHARE) * left), table.scale_for(CHOICE_SHARE * left)
        before = _pair_counts(mixture, one_way)
        chosen = candidates[_choose(candidates, grids, before, scale, choice, table)]
        _measure(chosen, grids, tables, one_way, scale, table)
        left -= _round_cost(scale, choice, table.rows_per_unit)
        mixture.fit(one_way.shares, weights, _targets(tables, unit), ROUND_STEPS)
        change = _expected(chosen, grids, _pair_counts(mixture, one_way)) - _expected(chosen, grids, before)
        if np.abs(change).sum() <= MEAN_NOISE * scale * change.size:
            scale, choice = scale / 2, choice / 2
        report.advance(1)


def _pair_counts(mixture: Mixture, one_way: OneWay) -> Floats:
    """Return the expected counts of all pairs of cells."""
    return np.asarray(mixture.pair_shares(), dtype=np.float64) * one_way.rows


def _round_cost(scale: float, choice: float, rows_per_unit: int) -> float:
    return gaussian_cost(scale, rows_per_unit) + choice_cost(FIXED_POINT * choice, FIXED_POINT * rows_per_unit)


def _choose(
    candidates: list[Candidate], grids: list[Grid], before: Floats, scale: float, choice: float, table: TrustedTable
) -> int:
    expected = [np.rint(FIXED_POINT * _expected(c, grids, before)).astype(np.int64) for c in candidates]
    penalties = [math.floor(FIXED_POINT * MEAN_NOISE * scale * counts.size) for counts in expected]
    groups = [(c.pair, _groups(c, grids)) for c in candidates]
    return table.choose_pair(groups, expected, penalties, choice)


def _measure(
    chosen: Candidate, grids: list[Grid], tables: list[Tables], one_way: OneWay, scale: float, table: TrustedTable
) -> None:
    counts = table.two_way(chosen.pair, _groups(chosen, grids), scale)
    tables[chosen.resolution].add(chosen.pair, counts / one_way.rows, (one_way.rows / scale) ** 2)


def _groups(candidate: Candidate, grids: list[Grid]) -> tuple[Ints, Ints]:
    grid = grids[candidate.resolution]
    return grid.groups[candidate.pair[0]], grid.groups[candidate.pair[1]]


def _expected(candidate: Candidate, grids: list[Grid], pair_counts: Floats) -> Floats:
    """Return the expected counts of pairs of groups of a candidate."""
    first_cells = grids[0].starts  # groups of the first resolution are cells
    i, j = candidate.pair
    block = pair_counts[first_cells[i] : first_cells[i + 1], first_cells[j] : first_cells[j + 1]]
    indicators = grids[candidate.resolution].indicators
    if indicators is None:
        return block
    starts = grids[candidate.resolution].starts
    rows = indicators[first_cells[i] : first_cells[i + 1], starts[i] : starts[i + 1]]
    columns = indicators[first_cells[j] : first_cells[j + 1], starts[j] : starts[j + 1]]
    return np.asarray(rows.T @ block @ columns)


def _candidates(grids: list[Grid]) -> list[Candidate]:
    """Return all pairs at all resolutions, without those that equal the same pair at a finer resolution."""
    found, seen = [], set()
    n_columns = len(grids[0].starts) - 1
    for resolution, grid in enumerate(grids):
        sizes = np.diff(grid.starts)
        for i, j in combinations(range(n_columns), 2):
            content = (i, j, int(sizes[i]), int(sizes[j]))
            if content not in seen:
                seen.add(content)
                found.append(Candidate(resolution, (i, j)))
    return found


def _make_grid(columns: list[Cells], shares: Floats, offsets: Counts, most: int | None) -> Grid:
    groups = [
        np.arange(cells.n_cells, dtype=np.int32) if most is None else group_cells(cells, shares[low:high], most)
        for cells, low, high in zip(columns, offsets[:-1], offsets[1:], strict=True)
    ]
    starts = np.concatenate([[0], np.cumsum([int(one.max()) + 1 for one in groups])])
    if most is None:
        return Grid(groups, starts, None)
    indicators = np.zeros((int(offsets[-1]), int(starts[-1])))
    indicators[
        np.arange(int(offsets[-1])), np.concatenate([one + s for one, s in zip(groups, starts, strict=False)])
    ] = 1
    return Grid(groups, starts, indicators)


def _targets(tables: list[Tables], unit: float) -> list[Target]:
    return [
        Target(
            None if measured.grid.indicators is None else measured.grid.indicators.astype(np.float32),
            measured.cleaned.astype(np.float32),
            (measured.weights * unit).astype(np.float32),
        )
        for measured in tables
        if measured.weights.any()
    ]


def shrink_singular_values(noisy: Floats, base: Floats, noise: float) -> Floats:
    """Denoise a table around its expectation under independence: optimal shrinkage (Gavish and Donoho, 2017)."""
    left, values, right = np.linalg.svd(noisy - base, full_matrices=False)
    long, short = max(noisy.shape), min(noisy.shape)
    ratio, size = short / long, noise * math.sqrt(long)
    scaled = values / size
    inside = np.maximum((scaled**2 - ratio - 1) ** 2 - 4 * ratio, 0)
    shrunken = np.where(scaled > 1 + math.sqrt(ratio), size * np.sqrt(inside) / np.maximum(scaled, 1e-12), 0)
    return np.asarray(base + (left * shrunken) @ right)


def _project(counts: Floats, total: float) -> Floats:
    """Return the nearest non-negative counts with this total."""
    descending = np.sort(counts)[::-1]
    surplus = (np.cumsum(descending) - total) / np.arange(1, len(counts) + 1)
    last = int(np.flatnonzero(descending > surplus)[-1])
    return np.asarray(np.maximum(counts - surplus[last], 0))
