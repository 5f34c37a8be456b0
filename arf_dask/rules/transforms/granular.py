"""Numbers that people round: the shares of the grids on which numbers lie are kept, by the size of the number.

Prices are multiples of 1,000 in most rows and of 50 in others, scores have one decimal or three. The number is modelled
as it is, and a drawn one is moved to the nearest point of a grid that no coarser grid contains. A hash of the number
chooses the grid, in the shares of numbers of this size. Numbers that occur often, and those that lie on a coarse grid
already, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Box, Region, Span, ValueSet, merged
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Transform, is_finite, require_details
from arf_dask.typing import Flags, Floats

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

LEAST_ROWS = 100  # minimum number of sampled rows with infrequent values
SPIKE_ROWS = 3  # sampled rows with the same value: it is frequent, ...
WHOLE_TABLE, ROWS_OF_WHOLE = 1_500, 10  # ... or 10 rows, if the sample is the whole table (see `bins.find_atoms`)
MOST_SPIKES = 200
MOST_STEPS = 6
SIZES = 8  # intervals of numbers that have shares of their own
ROWS_PER_SIZE = 60
LEAST_EXCESS = 0.1  # minimum share of rows on a grid beyond those that are there by chance
LEAST_SHARE = 0.02  # minimum share of rows that are on a grid and not on a coarser one
DEVIATIONS = 6.0
BY_CHANCE = 0.05  # at most this share of drawn numbers lies on a grid without being moved there
LARGEST = 2.0**50
EXPONENTS = range(-6, 8)


@dataclass(frozen=True)
class Granular(Transform):
    """A number column whose drawn numbers are moved to the grids on which people round."""

    kind = "granular"
    detail_types = {"steps": list, "cuts": list, "shares": list, "frequent": list}  # noqa: RUF012
    one_to_one = True
    keeps_values = False  # synthetic values are moved to their grid after drawing

    target: Target
    steps: tuple[float, ...]  # descending
    shares: tuple[tuple[float, ...], ...]  # per size: share of rows whose coarsest grid it is; of other rows at the end
    cuts: tuple[float, ...] = ()  # between the sizes, ascending
    frequent: tuple[float, ...] = ()  # numbers that stay as they are, ascending

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: self.target.dtype}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: frame.get_column(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        modelled = outputs[self.target.name].alias("")
        values = _floats(modelled)
        grids = self.chosen_grids(values)
        is_moved = self._may_move(values)
        moved = values.copy()
        for place, step in enumerate(self.steps):
            here = is_moved & (grids == place)
            moved[here] = self._on_grid(values[here], step, self.steps[place - 1] if place else None)
        is_changed = pl.Series(is_moved & (moved != values))
        numbers = pl.Series(moved).fill_nan(None)
        numbers = numbers.round(0) if self.target.dtype.is_integer() else numbers
        return numbers.cast(self.target.dtype, strict=False).zip_with(is_changed, modelled).alias(self.target.name)

    def chosen_grids(self, values: Floats) -> Flags:
        """Return the grid of each number, as an index of the steps, by its size and its hash."""
        # The hash of the number determines its grid, so that rebuilding is deterministic.
        chance = pl.Series(values).hash(seed=23).to_numpy().astype(np.float64) / 2.0**64
        sizes = np.searchsorted(np.array(self.cuts), values, side="right")
        ends = np.cumsum(np.array(self.shares), axis=1)[np.minimum(sizes, len(self.shares) - 1)]
        return np.asarray(np.minimum((chance[:, None] >= ends).sum(axis=1), len(self.steps)))

    def _may_move(self, values: Floats) -> Flags:
        """Flag the numbers that are neither frequent nor on a grid where numbers hardly lie by chance."""
        unit = float(self.target.unit) if self.target.is_float else 1.0
        coarse = tuple(step for step in self.steps if unit <= BY_CHANCE * step)
        is_free = np.isfinite(values) & (np.abs(values) < LARGEST) & ~np.isin(values, np.array(self.frequent))
        return np.asarray(is_free & (grid_of(values, coarse) == len(coarse)))

    def _on_grid(self, values: Floats, step: float, coarser: float | None) -> Floats:
        """Return the nearest points of a grid that are not on a coarser one; values without one in range stay."""
        nearest = np.round(values / step)
        if coarser is not None:
            is_coarser = nearest % round(coarser / step) == 0
            nearest = nearest + is_coarser * np.where(values < nearest * step, -1, 1)
        points = _clean(nearest * step)
        low = -np.inf if self.target.low is None else float(self.target.low)
        high = np.inf if self.target.high is None else float(self.target.high)
        inside = _clean((nearest + np.where(points < low, 1, np.where(points > high, -1, 0))) * step)
        return np.where((inside >= low) & (inside <= high), inside, values)

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        spans = wanted.spans
        only_points = len(wanted.points) == len(spans)  # which stay, as they are given
        if not only_points:
            # A number inside an interval may have been moved from outside it.
            margin = self.steps[0] if self.target.is_float else int(np.ceil(self.steps[0]))
            spans = merged(Span(span.low - margin, span.high + margin) for span in spans)
        return Region(({self.target.name: ValueSet(wanted.dtype, wanted.null, wanted.nan, spans)},), exact=only_points)

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag no rows: moved values are always valid."""
        return pl.Series(np.zeros(frame.height, dtype=bool))

    def text(self) -> str:
        """Describe the shares of the grids."""
        mean_shares = np.array(self.shares).mean(axis=0)
        shares = [f"{step:,.10g} in {100 * share:.0f} %" for step, share in zip(self.steps, mean_shares, strict=False)]
        return f"{self.target.name} is a multiple of {', '.join(shares)} of rows"

    def is_confirmed(self, target: Target) -> bool:
        """Whether some rows lie on none of the grids, or there are several."""
        if len(self.steps) > 1 or not target.is_float:
            return True
        return target.decimals is None or target.unit < 0.99 * self.steps[-1]

    def details(self) -> dict[str, Any]:
        shares = [list(row) for row in self.shares]
        return {"steps": list(self.steps), "cuts": list(self.cuts), "shares": shares, "frequent": list(self.frequent)}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        steps, cuts, shares, frequent = (details[name] for name in cls.detail_types)
        is_valid = all(isinstance(row, list) and len(row) == len(steps) + 1 for row in shares)
        numbers = [*steps, *cuts, *frequent, *(share for row in shares for share in row)] if is_valid else [None]
        is_valid = all(type(value) is float and is_finite(value) for value in numbers)
        is_valid = is_valid and (target.is_float or target.dtype.is_integer())
        is_valid = is_valid and 1 <= len(steps) <= MOST_STEPS and min(steps) > 0
        is_valid = is_valid and steps == sorted(set(steps), reverse=True) and cuts == sorted(set(cuts))
        is_valid = is_valid and len(shares) == len(cuts) + 1 <= SIZES and len(frequent) <= MOST_SPIKES
        is_valid = is_valid and all(0 <= share <= 1 for row in shares for share in row)
        require_details(is_valid, where, "grids out of bounds")
        return cls(target, tuple(steps), tuple(map(tuple, shares)), tuple(cuts), tuple(frequent))


def grid_of(values: Floats, steps: tuple[float, ...]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the index of the first of the steps of which each number is a multiple; their number if there is none.

    >>> grid_of(np.array([3000.0, 250.0, 12.5]), (1000.0, 50.0)).tolist()
    [0, 1, 2]
    """
    grids = np.full(len(values), len(steps))
    small = np.where(np.isfinite(values) & (np.abs(values) < LARGEST), values, np.nan)
    for place in reversed(range(len(steps))):
        grids[is_multiple(small, steps[place])] = place
    return grids


def is_multiple(values: Floats, step: float) -> Flags:
    """Flag the numbers that are multiples of a step, up to the precision of floats."""
    ratios = values / step
    nearest = np.round(ratios)
    is_near = (np.abs(ratios - nearest) <= 1e-7) & (np.abs(ratios) < LARGEST / 2**10)
    return np.asarray(is_near & ((nearest != 0) | (values == 0)))


def find_granularity(series: pl.Series, target: Target) -> Granular | None:
    """Return the grids on which the numbers of a sample lie more often than by chance; None if there are none."""
    values = _floats(series)
    values = values[np.isfinite(values) & (np.abs(values) < LARGEST)]
    distinct, counts = np.unique(values, return_counts=True)
    is_frequent = counts >= (SPIKE_ROWS if len(series) >= WHOLE_TABLE else ROWS_OF_WHOLE)
    rare = np.repeat(distinct[~is_frequent], counts[~is_frequent])
    if len(rare) < LEAST_ROWS or (target.decimals is not None and target.decimals > -EXPONENTS.start):
        return None
    steps = _steps(rare, target)
    if not steps:
        return None
    cuts, shares = _shares(rare, steps)
    frequent = distinct[is_frequent]
    common = np.sort(frequent[np.argsort(-counts[is_frequent], kind="stable")][:MOST_SPIKES])
    return Granular(target, steps, shares, cuts, tuple(map(float, common)))


def _shares(values: Floats, steps: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[tuple[float, ...], ...]]:
    """Return the cuts between sizes of numbers, and the shares of the grids among the numbers of each size."""
    n_sizes = min(SIZES, max(len(values) // ROWS_PER_SIZE, 1))
    cuts = np.unique(np.quantile(values, np.arange(1, n_sizes) / n_sizes))
    sizes, grids = np.searchsorted(cuts, values, side="right"), grid_of(values, steps)
    counts = np.bincount(sizes * (len(steps) + 1) + grids, minlength=(len(cuts) + 1) * (len(steps) + 1))
    table = counts.reshape(len(cuts) + 1, -1).astype(np.float64)
    # A size without rows, which equal numbers at a cut leave, has the shares of all.
    table[table.sum(axis=1) == 0] = table.sum(axis=0)
    table /= table.sum(axis=1, keepdims=True)
    return tuple(map(float, cuts)), tuple(tuple(map(float, row)) for row in table)


def _steps(values: Floats, target: Target) -> tuple[float, ...]:
    """Return the steps, coarsest first, of which far more numbers are multiples than the next finer step explains."""
    unit = target.unit if target.is_float else 1.0
    candidates = [step * 10.0**exponent for exponent in EXPONENTS for step in (1, 5)]
    found: list[float] = []
    base, base_share = unit, 1.0
    shares = {base: 1.0}
    for step in (step for step in candidates if step > 1.5 * unit):
        share = float(is_multiple(values, step).mean())
        ratio = step / base if base else np.inf
        by_chance = base_share / ratio if base else 0.0
        excess = share - by_chance
        deviation = np.sqrt(max(by_chance * (1 - by_chance), 1e-4) / len(values))
        if excess >= 0.3 * by_chance and excess > max(DEVIATIONS * deviation, LEAST_SHARE):
            found.append(step)
            base, base_share = step, share
            shares[step] = share
    kept: list[float] = []
    for step in reversed(found):  # a grid that hardly adds rows to the coarser one is left to the next finer one
        if not kept or shares[step] - shares[kept[-1]] >= LEAST_SHARE:
            kept.append(step)
    if not kept or max(shares[step] - unit / step for step in kept) < LEAST_EXCESS:
        return _only_unit(target)
    if target.dtype.is_integer() and shares[kept[0]] == 1.0:
        return ()  # the step of the column says so
    return tuple(kept[:MOST_STEPS])


def _only_unit(target: Target) -> tuple[float, ...]:
    """Return the last decimal of a sample of floats, in case that rows outside the sample have more decimals."""
    return (target.unit,) if target.is_float and target.decimals is not None else ()


def _clean(points: Floats) -> Floats:
    """Return multiples of a step without the noise of floats, as 0.1 + 0.2 has it."""
    return np.round(points, -EXPONENTS.start) + 0.0


def _floats(series: pl.Series) -> Floats:
    return np.array(series.alias("").cast(pl.Float64).to_numpy())
