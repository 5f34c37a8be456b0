"""Numbers that people round: which grid a number lies on is a state of its own, and the number is drawn on that grid.

Prices are multiples of 1,000 in most rows and of 50 in others, scores have one decimal or three. The number and the
coarsest grid that contains it are modelled as two columns, so that every leaf has its own shares of the grids and other
columns may depend on them. A drawn number is moved to the nearest point of its grid that no coarser grid contains.
Numbers that occur often are modelled by themselves and stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Box, Region, Span, ValueSet, column_values, merged, physical_values
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Resolved, Transform, is_finite, require_details
from arf_dask.typing import Flags, Floats

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

LEAST_ROWS = 100  # minimum number of sampled rows with infrequent values
SPIKE_ROWS = 3  # sampled rows with the same value: it is frequent
MOST_SPIKES = 200
MOST_STEPS = 6
LEAST_EXCESS = 0.1  # minimum share of rows on a grid beyond those that are there by chance
LEAST_SHARE = 0.02  # minimum share of rows that are on a grid and not on a coarser one
DEVIATIONS = 6.0
LARGEST = 2.0**50
REST = "any"  # the state of numbers that are on none of the grids
EXPONENTS = range(-6, 8)


@dataclass(frozen=True)
class Granular(Transform):
    """A number column that is modelled by its number and the coarsest grid that contains it."""

    kind = "granular"
    detail_types = {"steps": list, "shares": list, "frequent": list}  # noqa: RUF012
    one_to_one = True
    keeps_values = False  # synthetic values are moved to their grid after drawing

    target: Target
    steps: tuple[float, ...]  # descending
    shares: tuple[float, ...]  # share of the rows of a sample whose coarsest grid it is
    frequent: tuple[float, ...] = ()  # numbers that stay as they are, ascending

    @property
    def state_name(self) -> str:
        """The name of the modelled column with the grid of each number."""
        return f"{self.target.name} (step)"

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: self.target.dtype, self.state_name: pl.String()}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        series = frame.get_column(self.target.name)
        return {self.target.name: series, self.state_name: self.states(series).alias(self.state_name)}

    def states(self, series: pl.Series) -> pl.Series:
        """Return the coarsest grid of each number; null for null."""
        values = _floats(series)
        names = np.array([*map(_written, self.steps), REST])
        states = pl.Series(names[grid_of(values, self.steps)], dtype=pl.String)
        return states.set(pl.Series(np.isnan(values)) & series.is_null(), None) if len(series) else states

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        modelled = outputs[self.target.name].alias("")
        values = _floats(modelled)
        ids = self._state_ids(outputs[self.state_name])
        is_moved = np.isfinite(values) & (np.abs(values) < LARGEST) & ~np.isin(values, np.array(self.frequent))
        moved = values.copy()
        for place, step in enumerate(self.steps):
            here = is_moved & (ids == place)
            moved[here] = self._on_grid(values[here], step, self.steps[place - 1] if place else None)
        is_changed = pl.Series(is_moved & (moved != values))
        numbers = pl.Series(moved).fill_nan(None)
        changed = (numbers.round(0) if self.target.dtype.is_integer() else numbers).cast(
            self.target.dtype, strict=False
        )
        return changed.zip_with(is_changed, modelled).alias(self.target.name)

    def _state_ids(self, states: pl.Series) -> Flags:
        """Return the grid of each state; the commonest one for null."""
        names = [*map(_written, self.steps), REST]
        commonest = int(np.argmax(self.shares))
        known = states.alias("").replace_strict(names, range(len(names)), default=commonest, return_dtype=pl.Int64)
        return np.asarray(known.fill_null(commonest).to_numpy())

    def _on_grid(self, values: Floats, step: float, coarser: float | None) -> Floats:
        """Return the nearest points of a grid that are not on a coarser one; values without one in range stay."""
        nearest = np.round(values / step)
        if coarser is not None:
            ratio = round(coarser / step)
            is_coarser = nearest % ratio == 0
            nearest = nearest + is_coarser * np.where(values < nearest * step, -1, 1)
        points = _clean(nearest * step)
        low = -np.inf if self.target.low is None else float(self.target.low)
        high = np.inf if self.target.high is None else float(self.target.high)
        inside = _clean((nearest + np.where(points < low, 1, np.where(points > high, -1, 0))) * step)
        return np.where((inside >= low) & (inside <= high), inside, values)

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        name = self.target.name
        if len(wanted.points) < len(wanted.spans):
            # A number inside an interval may have been moved from outside it.
            margin = self.steps[0] if self.target.is_float else int(np.ceil(self.steps[0]))
            spans = merged(Span(span.low - margin, span.high + margin) for span in wanted.spans)
            return Region(({name: ValueSet(wanted.dtype, wanted.null, wanted.nan, spans)},), exact=False)
        points = column_values(wanted.points, self.target.dtype)
        states = self.states(points)
        is_free = pl.Series(np.isin(_floats(points), np.array(self.frequent)))
        free = ValueSet(wanted.dtype, wanted.null, wanted.nan, _points(points.filter(is_free)))
        boxes: list[Box] = [{name: free}] if free else []
        for state in states.filter(~is_free).unique().sort().to_list():
            mine = points.filter((states == state) & ~is_free)
            box = {name: ValueSet(wanted.dtype, spans=_points(mine))}
            boxes.append({**box, self.state_name: ValueSet.read(state, pl.String(), name)})
        return Region(tuple(boxes), exact=False)

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        """Convert known values for a density: that of the number, which determines its grid."""
        resolved = super().resolve(known, deduced, null_is_value=null_is_value)
        return resolved._replace(free={self.state_name: np.ones(deduced.height, dtype=bool)})

    def text(self) -> str:
        """Describe the shares of the grids."""
        shares = [f"{step:,.10g} in {100 * share:.0f} %" for step, share in zip(self.steps, self.shares, strict=False)]
        return f"{self.target.name} is a multiple of {', '.join(shares)} of rows"

    def is_confirmed(self, target: Target) -> bool:
        """Whether some rows lie on none of the grids, or there are several."""
        if len(self.steps) > 1 or not target.is_float:
            return True
        return target.decimals is None or target.unit < 0.99 * self.steps[-1]

    def details(self) -> dict[str, Any]:
        return {"steps": list(self.steps), "shares": list(self.shares), "frequent": list(self.frequent)}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        steps, shares, frequent = details["steps"], details["shares"], details["frequent"]
        is_valid = all(type(value) is float and is_finite(value) for value in (*steps, *shares, *frequent))
        is_valid = is_valid and (target.is_float or target.dtype.is_integer())
        is_valid = is_valid and 1 <= len(steps) <= MOST_STEPS and len(shares) == len(steps) + 1
        is_valid = is_valid and all(step > 0 for step in steps) and steps == sorted(set(steps), reverse=True)
        is_valid = is_valid and len(frequent) <= MOST_SPIKES and all(0 <= share <= 1 for share in shares)
        require_details(is_valid, where, "grids out of bounds")
        granular = cls(target, tuple(steps), tuple(shares), tuple(frequent))
        require_details(granular.state_name not in dtypes, where, "a state with the name of a column")
        return granular


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
    rare = distinct[counts < SPIKE_ROWS]
    if len(rare) < LEAST_ROWS or (target.decimals is not None and target.decimals > -EXPONENTS.start):
        return None
    steps = _steps(rare, target)
    if not steps:
        return None
    shares = np.bincount(grid_of(rare, steps), minlength=len(steps) + 1) / len(rare)
    frequent = distinct[counts >= SPIKE_ROWS]
    common = np.sort(frequent[np.argsort(-counts[counts >= SPIKE_ROWS], kind="stable")][:MOST_SPIKES])
    return Granular(target, steps, tuple(map(float, shares)), tuple(map(float, common)))


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


def _points(values: pl.Series) -> tuple[Span, ...]:
    return merged(Span(one, one) for one in physical_values(values).to_list())


def _clean(points: Floats) -> Floats:
    """Return multiples of a step without the noise of floats, as 0.1 + 0.2 has it."""
    return np.round(points, -EXPONENTS.start) + 0.0


def _floats(series: pl.Series) -> Floats:
    return np.array(series.alias("").cast(pl.Float64).to_numpy())


def _written(step: float) -> str:
    return f"{step:.10g}"
