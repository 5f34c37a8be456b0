"""Columns that are modelled by a distance: from another column, an expression, or the time on another clock."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS
from arf_dask.data.value_sets import EVERYWHERE, NOTHING, Box, Region, Span, ValueSet, merged
from arf_dask.rules.evaluation import evaluate, kind_of
from arf_dask.rules.expressions import Call, Name, Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import (
    MOST_DECIMALS,
    Measure,
    Repair,
    Resolved,
    Transform,
    is_finite,
    needed_node,
    nulls_where,
    require_details,
)
from arf_dask.rules.transforms.formula import solved_again
from arf_dask.rules.transforms.grid import Indexed, find_multiples
from arf_dask.typing import Flags

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

DAY = 1_440  # minutes
MOST_GAP_DECIMALS = 9  # further digits of differences are noise
HALF_DIGITS = 4  # significant digits of floats of 16 bits, of which Polars writes more
LAST_CLOCK = 2_400  # midnight at the end of a day


class Distance(Transform):
    """What the distances have in common: without a known base, nothing is known of the gap."""

    is_distance = True

    @property
    @abstractmethod
    def expression(self) -> Node: ...

    @abstractmethod
    def gap(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        """Return the gaps between these units and the base."""

    def forward_known(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        is_known = frame.get_column(self.target.name).is_not_null() & evaluate(self.expression, frame).is_not_null()
        return self.forward(frame), is_known

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        own_values = deduced.get_column(self.target.name)
        is_wrong = self.off_grid(own_values).to_numpy()
        if not all(name in known.columns for name in self.inputs):
            return Resolved({}, is_wrong, known.get_column(self.target.name).is_not_null().to_numpy())
        columns, is_unresolved = self.forward(deduced), np.zeros(known.height, dtype=bool)
        if not null_is_value:
            is_lost = evaluate(self.expression, deduced).is_null()
            columns = {name: nulls_where(is_lost, series) for name, series in columns.items()}
            is_unresolved = (own_values.is_not_null() & is_lost).to_numpy()
        return Resolved(columns, is_wrong, is_unresolved)

    def set_to(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        return self.gap(units, frame)


@dataclass(frozen=True)
class ClockGap(Distance):
    """A clock number (HHMM) that is modelled by the minutes since another clock number, across midnight."""

    kind = "clock"
    detail_types = {}  # noqa: RUF012

    target: Target
    base: str  # the other column

    @property
    def expression(self) -> Node:
        return Call("clock_minutes", (Name(self.base),))

    @property
    def stored_expression(self) -> Node:
        return Name(self.base)

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: pl.Int64()}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: self.gap(frame.get_column(self.target.name), frame).alias(self.target.name)}

    def gap(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        """Return the minutes from the base to these clock numbers."""
        return (self._clock().index(units) - self.base_units(frame)) % DAY

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        minutes = outputs[self.target.name].alias("").cast(pl.Int64) + self.base_units(frame)
        # Midnight is 2400 if the column contains 2400, otherwise 0.
        first_minute = int(self.target.high == LAST_CLOCK)
        return self._clock().value((minutes - first_minute) % DAY + first_minute)

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        minutes, name = self._clock().indices(wanted), self.target.name
        if not minutes:
            return NOTHING
        base = known.get(self.base)
        if base is None or not base.is_single or not base.points:
            return Region(({name: ValueSet(minutes.dtype, wanted.null, spans=(Span(0, DAY - 1),))},), exact=False)
        base_minutes = int(self.base_units(pl.DataFrame({self.base: base.single()}))[0])
        spans = [part for span in minutes.spans for part in _around_the_clock(span, base_minutes)]
        return Region(({name: ValueSet(minutes.dtype, wanted.null, spans=merged(spans))},))

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag values that are not clock numbers."""
        return self._clock().off_grid(series)

    def base_units(self, frame: pl.DataFrame) -> pl.Series:
        """Return the minutes since midnight of the base; 0 where it is null."""
        return evaluate(self.expression, frame).fill_null(0)

    @property
    def sets_itself(self) -> bool:
        return True

    def _clock(self) -> Indexed:
        return Indexed(self.target, "clock")

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        is_valid = isinstance(node, Name) and target.dtype.is_numeric() and target.low is not None
        is_valid = is_valid and node is not None and kind_of(node, dtypes, where) in ("integer", "number")
        require_details(is_valid, where, "no clock number")
        assert isinstance(node, Name)
        return cls(target, node.column)


@dataclass(frozen=True)
class Gap(Distance):
    """A column that is modelled by its distance from an expression: an order, or a formula with a remainder."""

    kind = "gap"
    detail_types = {  # noqa: RUF012
        "sign": int,
        "least": int | float | None,
        "levels": list,
        "decimals": int | None,
        "step": float | None,
    }

    target: Target
    base: Node
    sign: int  # 1: above the base; -1: below it
    least: float | int | None  # smallest gap that the rule allows, in units; None for a remainder
    levels: tuple[float | int, ...] = ()  # possible remainders, if there are few
    decimals: int | None = None  # decimals of the gaps, for floats
    step: float | None = None  # step of the column, if all of its values are multiples of a step

    @property
    def expression(self) -> Node:
        return self.base

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: self.target.unit_dtype}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        units, base = self.own_units(frame), self.base_units(frame)
        # Snap to levels before rounding: rounding could move a remainder half a unit off its level by a full unit.
        gap = self.rounded(self._snapped((units - base) * self.sign))
        gap = self._without_rounding(gap, units, base)
        if self.least is not None:
            gap = gap.clip(lower_bound=self.least)
        return {self.target.name: gap.alias(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        gap, base = outputs[self.target.name].alias(""), self.base_units(frame)
        gap = gap.clip(lower_bound=self.least) if self.least is not None else gap
        return self.target.values(self._units_at(gap, base))

    def _units_at(self, gap: pl.Series, base: pl.Series) -> pl.Series:
        """Return the units at a distance from the base."""
        return self._held(self._on_grid(self.target.rounded(base + gap * self.sign)), base)

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        units, name = self.target.in_units(wanted), self.target.name
        is_comparable = isinstance(self.base, Name) and self._shares_units(relations.dtypes[self.base.column])
        base = known.get(self.base.column) if is_comparable and isinstance(self.base, Name) else None
        least = -np.inf if self.least is None else self.least
        if base is None or not base:
            gaps = ValueSet(units.dtype, wanted.null, spans=(EVERYWHERE,) if wanted.spans else ())
            return Region(({name: gaps},), exact=not wanted.spans)
        # Where the base is null or NaN, the gap is that above the lowest value (or below the highest).
        lost = [self.target.low if self.sign > 0 else self.target.high] if base.null or base.nan else []
        base_ends = [*lost, *(end for span in (base.spans[:1] + base.spans[-1:]) for end in span)]
        lowest, highest = min(base_ends), max(base_ends)
        ends = [(span.low - highest, span.high - lowest) for span in units.spans]
        ends = ends if self.sign > 0 else [(-high, -low) for low, high in ends]
        # Smaller gaps, which open support draws, are rebuilt as the least one.
        spans = merged(Span(low if low > least else -np.inf, high) for low, high in ends if high >= least)
        gaps = ValueSet(units.dtype, wanted.null, spans=spans)
        return Region(({name: gaps},) if gaps else (), exact=base.is_single and not lost and not self.target.is_float)

    def implies(self, wanted: ValueSet, relations: Relations) -> Box:
        """Bound the base of an order by the column."""
        if self.least is None or wanted.null or wanted.nan or not wanted.spans or not isinstance(self.base, Name):
            return {}
        dtype = relations.dtypes[self.base.column]
        if not self._shares_units(dtype):
            return {}
        units, slack = self.target.in_units(wanted), float(self.target.unit) if self.target.is_float else 0
        bound = (
            Span(-np.inf, units.spans[-1].high - self.least + slack)
            if self.sign > 0
            else Span(units.spans[0].low + self.least - slack, np.inf)
        )
        return {self.base.column: ValueSet(dtype, null=True, nan=dtype in FLOATS, spans=(bound,))}

    def _shares_units(self, dtype: pl.DataType) -> bool:
        """Return whether the units of the column and of a column of this dtype are the same."""
        is_integer = dtype.is_integer() and self.target.dtype.is_integer()
        return dtype == self.target.dtype or is_integer or (dtype in FLOATS and self.target.is_float)

    def gap(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        return self.rounded((units - self.base_units(frame)) * self.sign)

    def base_units(self, frame: pl.DataFrame) -> pl.Series:
        """Return the base in units of the target; the lowest (or highest) observed value where it is null."""
        value = evaluate(self.base, frame)
        # For floats, the base keeps its decimals: only the sum is rounded.
        units = self._as_written(value) if self.target.is_float else self.target.formula_units(value)
        return units.fill_null(self.target.low if self.sign > 0 else self.target.high)

    def own_units(self, frame: pl.DataFrame) -> pl.Series:
        """Return the column in its units."""
        units = self.target.units(frame.get_column(self.target.name))
        return self._as_written(units) if self.target.is_float else units

    def _as_written(self, values: pl.Series) -> pl.Series:
        """Return numbers as 64-bit floats; those of short floats with the digits that they are written with."""
        if self.target.dtype == pl.Float32:
            return values.cast(pl.Float32).cast(pl.String).cast(pl.Float64)
        values = values.cast(pl.Float64)
        return values.round_sig_figs(HALF_DIGITS) if self.target.dtype == pl.Float16 else values

    def rounded(self, gap: pl.Series) -> pl.Series:
        """Round gaps to remove the floating-point noise of differences."""
        if not self.target.is_float:
            return gap
        return gap.round(self.decimals) if self.decimals is not None else gap

    def _without_rounding(self, gap: pl.Series, units: pl.Series, base: pl.Series) -> pl.Series:
        """Return the gap that values were rebuilt from before they were rounded to the decimals of the column.

        If the base has more decimals, a sum is rounded, and moves a little away from the gap that was drawn: by
        preference, this is the smallest one that the rule allows, or one with the decimals of the column.
        """
        if not self.target.is_float or self.target.decimals is None or self.levels:
            return gap
        candidates = [gap.round(self.target.decimals)]
        if self.least is not None:
            candidates.append(pl.Series([self.least], dtype=gap.dtype).new_from_index(0, len(gap)))
        for candidate in candidates:
            rebuilt = self._as_written(self.target.units(self.target.values(self._units_at(candidate, base))))
            gap = candidate.zip_with((rebuilt == units).fill_null(False), gap)
        return gap

    def _snapped(self, gap: pl.Series) -> pl.Series:
        """Replace remainders that equal a level up to rounding by that level."""
        tolerance = 0.5 * (1 + 1e-6) * float(self.target.unit) + 1e-9
        for level in self.levels:
            is_near = ((gap - level).abs() <= tolerance).fill_null(False)
            gap = pl.Series([level], dtype=gap.dtype).new_from_index(0, len(gap)).zip_with(is_near, gap)
        return gap

    def _on_grid(self, units: pl.Series) -> pl.Series:
        return units if self.step is None else self.target.rounded((units / self.step).round() * self.step)

    def _held(self, units: pl.Series, base: pl.Series) -> pl.Series:
        """Keep sums on the correct side of the base."""
        if self.least is None:
            return units
        if self.target.is_float and self.target.decimals is not None:
            units_per_one = 10.0**self.target.decimals
            # Where rounding crossed the base, use the nearest value on the correct side with the column's decimals.
            nearest_allowed = ((base * units_per_one * self.sign - 1e-9).ceil() * self.sign / units_per_one).round(
                self.target.decimals
            )
            crosses_base = ((units - base) * self.sign < 0).fill_null(False)
            units = nearest_allowed.zip_with(crosses_base, units)
        return units

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        resolved = super().resolve(known, deduced, null_is_value=null_is_value)
        if self.least is None or not resolved.columns:
            return resolved
        return resolved._replace(contradictory=resolved.contradictory | self._below(deduced))

    def _below(self, frame: pl.DataFrame) -> Flags:
        """Flag rows that violate the minimum gap to the base."""
        units = self.own_units(frame)
        gap_units = (units - self.base_units(frame)) * self.sign
        base_known = evaluate(self.base, frame).is_not_null()
        tolerance = 1e-9 + self.target.precision * units.abs()
        return np.asarray(((gap_units < (self.least or 0) - tolerance) & base_known).fill_null(False).to_numpy())

    def repair(self, rows: pl.DataFrame, task: Repair) -> pl.DataFrame:
        """Move an unknown base: by the gap that was drawn from the known column, or next to it.

        Of an order, every second row keeps its base, and the gap follows: one of both ways finds rows if gaps or bases
        have few values. The density of what follows weighs both alike.
        """
        name = self.target.name
        if name not in task.known.columns:
            return rows
        keeps_base = pl.Series(np.arange(rows.height) % 2 == 0) & (self.least is not None)
        rows = self._with_solved_base(rows, ~keeps_base, task)
        if not task.move_bases or self.least is None:
            return rows
        if not isinstance(self.base, Name) or self.base.column in task.relations.targets:
            return rows
        column, base_target = self.base.column, task.relations.target_of(self.base.column)
        own_units = self.target.units(rows.get_column(name))
        is_wrong = ((own_units - self.base_units(rows)) * self.sign < self.least).fill_null(False)
        moved_values = base_target.values(own_units - self.sign * self.least)
        is_moved = is_wrong & task.is_unknown(column)
        return rows.with_columns(moved_values.zip_with(is_moved, rows.get_column(column)).alias(column))

    def _with_solved_base(self, rows: pl.DataFrame, chosen: pl.Series, task: Repair) -> pl.DataFrame:
        """Solve for an unknown input of the base in chosen rows whose known value does not have the gap drawn."""
        own_values, gaps = rows.get_column(self.target.name), self.forward(task.drawn)
        is_wrong = chosen & self.forward(rows)[self.target.name].ne_missing(gaps[self.target.name])
        wanted = self.target.values(self.expression_units(self.own_units(rows), pl.DataFrame(gaps)))
        shifted = rows.with_columns(wanted.alias(self.target.name))
        return solved_again(self.target, self.base, shifted, is_wrong, task).with_columns(own_values)

    def expression_units(self, units: pl.Series, modelled: pl.DataFrame) -> pl.Series:
        return self.target.rounded(units - self.sign * modelled.get_column(self.target.name).alias(""))

    @property
    def sets_itself(self) -> bool:
        return self.least is not None

    @property
    def is_optional(self) -> bool:
        return not self.levels

    def refined(self, sample: pl.DataFrame, measure: Measure) -> Transform:
        """Set the decimals and the step of gaps between floats."""
        if not self.target.is_float or self.levels or self.target.decimals is None:
            return self
        return self._with_decimals(measure)._with_step(sample, measure)

    def n_covered(self, modelled: pl.Series) -> int:
        return int(modelled.is_in(list(self.levels)).sum()) if self.levels else 0

    def _with_decimals(self, measure: Measure) -> Self:
        """Set the decimals of the differences, ignoring floating-point noise in their last digits."""
        decimals = self.target.decimals or 0
        digits = measure.digits(replace(self, decimals=MOST_GAP_DECIMALS))
        candidates = range(decimals, min(decimals + 4, MOST_GAP_DECIMALS + 1))
        return replace(self, decimals=next((count for count in candidates if digits >> count & 1), None))

    def _with_step(self, sample: pl.DataFrame, measure: Measure) -> Self:
        """Set the step if all values of the column and of its base are multiples of it, such as half hours."""
        grid = find_multiples(sample.get_column(self.target.name), self.target)
        if grid is None or grid.off_grid(self.base_units(sample)).any() or measure.n_off_grid(grid):
            return self
        return replace(self, step=grid.step, least=grid.step if self.least else self.least)

    def details(self) -> dict[str, Any]:
        return {
            "sign": self.sign,
            "least": self.least,
            "levels": list(self.levels),
            "decimals": self.decimals,
            "step": self.step,
        }

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        levels, step, decimals = details["levels"], details["step"], details["decimals"]
        is_valid = all(type(level) in (int, float) and is_finite(level) for level in levels)
        is_valid = is_valid and details["sign"] in (-1, 1) and is_finite(details["least"])
        is_valid = is_valid and not target.is_text and target.low is not None
        is_valid = is_valid and (decimals is None or 0 <= decimals <= MOST_DECIMALS)
        is_valid = is_valid and (step is None or (is_finite(step) and target.is_float and step > 0))
        require_details(is_valid, where, "a gap out of bounds")
        return cls(target, needed_node(node, where), details["sign"], details["least"], tuple(levels), decimals, step)


def _around_the_clock(span: Span, base: int) -> list[Span]:
    """Return the minutes from a base to the minutes of a span, across midnight."""
    if span.high - span.low >= DAY - 1:
        return [Span(0, DAY - 1)]
    first, last = (span.low - base) % DAY, (span.high - base) % DAY
    return [Span(first, last)] if first <= last else [Span(0, last), Span(first, DAY - 1)]
