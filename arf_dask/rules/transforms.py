"""Column transforms that follow from rules: computed columns are dropped, others are replaced by states or gaps.

A transform converts one column of the user's rows to the modelled column (`reduce`) and back (`rebuild`). Both are
pure functions of rows; `rebuild` requires the columns of its expression to be present.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import polars as pl

from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Call, Name, Node, columns_of, write
from arf_dask.rules.grids import Grid, Indexed
from arf_dask.rules.hourless import Hourless
from arf_dask.rules.targets import Target


@dataclass(frozen=True)
class Computed:
    """A column that a formula determines in every row. It is not modelled."""

    target: Target
    formula: Node

    def reduce(self, frame: pl.DataFrame) -> pl.Series | None:
        return None

    def rebuild(self, frame: pl.DataFrame, modelled: pl.Series | None) -> pl.Series:
        return self.target.values(self.target.formula_units(evaluate(self.formula, frame)))

    def unfit(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows where the formula gives a value outside the dtype or the observed range, or an unexpected null."""
        formula_units = self.target.formula_units(evaluate(self.formula, frame))
        values = frame.get_column(self.target.name).alias("")
        is_lost = formula_units.is_not_null() & values.is_null()
        return is_lost | ~self.target.in_range(formula_units) | _forbidden_null(self.target, values)


@dataclass(frozen=True)
class Stated:
    """A column that a formula determines in a share of the rows. "Follows the formula" is one of its states."""

    target: Target
    formula: Node
    sentinel: int | float | str  # modelled value of the rows that follow the formula

    def reduce(self, frame: pl.DataFrame) -> pl.Series | None:
        column_values = frame.get_column(self.target.name)
        follows_formula = pl.Series(self.target.agrees(column_values, evaluate(self.formula, frame)))
        return self.marked(self.target.units(column_values), follows_formula)

    def marked(self, units: pl.Series, follows: pl.Series) -> pl.Series:
        """Replace the units of the rows that follow the formula by the sentinel."""
        sentinel_series = pl.Series([self.sentinel], dtype=units.dtype).new_from_index(0, len(units))
        return sentinel_series.zip_with(follows, units).alias(self.target.name)

    def follows(self, modelled: pl.Series) -> pl.Series:
        """Flag the modelled rows that follow the formula."""
        return (modelled.alias("") == self.sentinel).fill_null(False)

    def rebuild(self, frame: pl.DataFrame, modelled: pl.Series | None) -> pl.Series:
        assert modelled is not None
        formula_units = self.target.formula_units(evaluate(self.formula, frame))
        own_units = modelled.cast(formula_units.dtype).alias("")
        own_units = _clock_units(own_units) if self._is_clock else own_units
        return self.target.values(formula_units.zip_with(self.follows(modelled), own_units))

    @property
    def _is_clock(self) -> bool:
        return isinstance(self.formula, Call) and self.formula.function in ("clock", "clock24")

    def unfit(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows outside the observed range, and nulls in columns without nulls."""
        values = frame.get_column(self.target.name).alias("")
        return ~self.target.in_range(self.target.units(values)) | _forbidden_null(self.target, values)


def _clock_units(units: pl.Series) -> pl.Series:
    """Spread the numbers between two hours that no clock shows, such as 1763, over the minutes of their hour."""
    minutes = units % 100
    return units - minutes + minutes.zip_with(minutes < 60, ((minutes - 60) * 1.5).floor().cast(units.dtype))


DAY = 1_440  # minutes
LAST_CLOCK = 2_400  # midnight at the end of a day


@dataclass(frozen=True)
class ClockGap:
    """A clock number (HHMM) that is modelled by the minutes since another clock number, across midnight."""

    target: Target
    base: str  # the other column

    def reduce(self, frame: pl.DataFrame) -> pl.Series | None:
        return self.gap(frame.get_column(self.target.name), frame).alias(self.target.name)

    def gap(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        """Return the minutes from the base to these clock numbers."""
        return (self._clock().index(units) - self.base_units(frame)) % DAY

    def rebuild(self, frame: pl.DataFrame, modelled: pl.Series | None) -> pl.Series:
        assert modelled is not None
        minutes = modelled.alias("").cast(pl.Int64) + self.base_units(frame)
        # Midnight is 2400 if the column contains 2400, otherwise 0.
        first_minute = int(self.target.high == LAST_CLOCK)
        return self._clock().value((minutes - first_minute) % DAY + first_minute)

    def unfit(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows outside the observed range, and nulls in columns without nulls."""
        values = frame.get_column(self.target.name).alias("")
        return ~self.target.in_range(self.target.units(values)) | _forbidden_null(self.target, values)

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag values that are not clock numbers."""
        return self._clock().off_grid(series)

    def base_units(self, frame: pl.DataFrame) -> pl.Series:
        """Return the minutes since midnight of the base; 0 where it is null."""
        return evaluate(self.expression, frame).fill_null(0)

    @property
    def expression(self) -> Node:
        return Call("clock_minutes", (Name(self.base),))

    def _clock(self) -> Indexed:
        return Indexed(self.target, "clock")


@dataclass(frozen=True)
class Gap:
    """A column that is modelled by its distance from an expression: an order, or a formula with a remainder."""

    target: Target
    base: Node
    sign: int  # 1: above the base; -1: below it
    least: float | int | None  # smallest gap that the rule allows, in units; None for a remainder
    levels: tuple[float | int, ...] = ()  # possible remainders, if there are few
    decimals: int | None = None  # decimals of the gaps, for floats
    step: float | None = None  # step of the column, if all of its values are multiples of a step

    def reduce(self, frame: pl.DataFrame) -> pl.Series | None:
        units, base = self.target.units(frame.get_column(self.target.name)), self.base_units(frame)
        # Snap to levels before rounding: rounding could move a remainder half a unit off its level by a full unit.
        gap = self.rounded(self._snapped((units - base) * self.sign))
        if self.least is not None:
            gap = gap.clip(lower_bound=self.least)
        return gap.alias(self.target.name)

    def rebuild(self, frame: pl.DataFrame, modelled: pl.Series | None) -> pl.Series:
        assert modelled is not None
        base = self.base_units(frame)
        gap = modelled.alias("").clip(lower_bound=self.least) if self.least is not None else modelled.alias("")
        units = self._on_grid(self.target.rounded(base + gap * self.sign))
        return self.target.values(self._held(units, base))

    def unfit(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows outside the observed range or the dtype, and nulls in columns without nulls."""
        values = frame.get_column(self.target.name).alias("")
        return ~self.target.in_range(self.target.units(values)) | _forbidden_null(self.target, values)

    def gap(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        """Return the gaps between these units and the base."""
        return self.rounded((units - self.base_units(frame)) * self.sign)

    def base_units(self, frame: pl.DataFrame) -> pl.Series:
        """Return the base in units of the target; the lowest (or highest) observed value where it is null."""
        value = evaluate(self.base, frame)
        # For floats, the base keeps its decimals: only the sum is rounded.
        units = value.cast(pl.Float64) if self.target.is_float else self.target.formula_units(value)
        return units.fill_null(self.target.low if self.sign > 0 else self.target.high)

    def rounded(self, gap: pl.Series) -> pl.Series:
        """Round gaps to remove the floating-point noise of differences."""
        if not self.target.is_float:
            return gap
        return gap.round(self.decimals) if self.decimals is not None else gap

    def strays(self, modelled: pl.Series) -> pl.Series:
        """Flag rows whose remainder is not one of the levels."""
        is_near = modelled.alias("").is_null()
        for level in self.levels:
            is_near = is_near | ((modelled.alias("") - level).abs() <= 1e-9).fill_null(False)
        return ~is_near

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
        """Clip sums to the observed range, and keep them on the correct side of the base."""
        if self.least is None:
            return units
        low, high = self.target.low, self.target.high
        units = units.clip(low, high)
        if self.target.is_float and self.target.decimals is not None:
            units_per_one = 10.0**self.target.decimals
            # Where rounding crossed the base, use the nearest value on the correct side with the column's decimals.
            nearest_allowed = ((base * units_per_one * self.sign - 1e-9).ceil() * self.sign / units_per_one).round(
                self.target.decimals
            )
            crosses_base = ((units - base) * self.sign < 0).fill_null(False)
            units = nearest_allowed.zip_with(crosses_base, units)
        return units


Transform: TypeAlias = Computed | Stated | Gap | ClockGap | Hourless | Grid


def expression_of(transform: Transform) -> Node | None:
    """Return the expression that a transform evaluates to rebuild its column; None for grids and hours."""
    if isinstance(transform, Grid | Hourless):
        return None
    if isinstance(transform, ClockGap):
        return transform.expression
    return transform.base if isinstance(transform, Gap) else transform.formula


def inputs_of(transform: Transform) -> tuple[str, ...]:
    """Return the columns that a transform needs to rebuild its column."""
    if isinstance(transform, Hourless):
        return (transform.hour,)
    expression = expression_of(transform)
    return () if expression is None else columns_of(expression)


def in_order(transforms: list[Transform]) -> list[Transform] | None:
    """Sort transforms topologically, so that each follows its inputs; None if they contain a cycle."""
    pending = {transform.target.name: transform for transform in transforms}
    ordered: list[Transform] = []
    while pending:
        ready = [t for t in pending.values() if not any(name in pending for name in inputs_of(t))]
        if not ready:
            return None
        ordered += ready
        pending = {name: t for name, t in pending.items() if t not in ready}
    return ordered


def text_sentinel(formula: Node, taken: pl.Series) -> str:
    """Return a level that no row has, to mark the texts that follow the formula."""
    sentinel = f"= {write(formula)}"
    while (taken == sentinel).any():
        sentinel = f"={sentinel}"
    return sentinel


def _forbidden_null(target: Target, values: pl.Series) -> pl.Series:
    return values.is_null() & (not target.nullable)
