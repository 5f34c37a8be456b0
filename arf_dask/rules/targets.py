"""Convert columns to the units that rules compute with: integers wherever the dtype has a smallest unit.

Integers are unchanged, dates and times are converted to their physical values, decimals to multiples of their last
digit. Floats are rounded to the observed number of decimals. Texts are unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from arf_dask.data.axes import FLOATS
from arf_dask.data.value_sets import EVERYWHERE, Interval, Span, ValueSet, merged
from arf_dask.rules.evaluation import Flags, agrees, kind_of_dtype

PRECISIONS: dict[pl.DataType, float] = {pl.Float64(): 2.0**-52, pl.Float32(): 2.0**-23, pl.Float16(): 2.0**-10}


@dataclass(frozen=True)
class Target:
    """A column of the user's table that a rule determines."""

    name: str
    dtype: pl.DataType
    decimals: int | None  # number of decimals; None for texts, and for floats with any number of decimals
    low: float | int | None = None  # observed range in units; of the dates that texts hold; None for other texts
    high: float | int | None = None
    nullable: bool = True  # whether the training data contain nulls

    @property
    def is_text(self) -> bool:
        return kind_of_dtype(self.dtype) == "text"

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_wide(self) -> bool:
        """Whether units, which are 64-bit integers, cannot hold all values of the dtype."""
        return self.dtype in (pl.UInt64, pl.Int128, pl.UInt128)

    @property
    def unit(self) -> float | int:
        """Smallest distance between two values, in units; 0 for floats with any number of decimals."""
        if not self.is_float:
            return 1
        return 0.0 if self.decimals is None else 10.0**-self.decimals

    @property
    def precision(self) -> float:
        """Relative distance between neighbouring values; 0 for types that hold their units exactly."""
        return PRECISIONS.get(self.dtype, 0.0)

    @property
    def unit_dtype(self) -> pl.DataType:
        """The dtype of units."""
        return pl.String() if self.is_text else pl.Float64() if self.is_float else pl.Int64()

    def forbidden_null(self, values: pl.Series) -> pl.Series:
        """Flag nulls, if the training data contain none."""
        return values.is_null() & (not self.nullable)

    def units(self, series: pl.Series) -> pl.Series:
        """Convert values of the column to units."""
        series = series.alias("")
        if self.is_text:
            return series.cast(pl.String)
        if self.is_float:
            values = series.cast(pl.Float64)
            return self.rounded(values.set(values.is_nan(), None) if len(values) else values)
        if series.dtype == pl.Boolean:
            return series.cast(pl.Int64)
        return series.to_physical().cast(pl.Int64, strict=False)

    def rounded(self, values: pl.Series) -> pl.Series:
        """Round numbers in units to the precision of the column."""
        if self.is_text:
            return values
        if self.is_float:
            return (
                values.cast(pl.Float64).round(self.decimals) if self.decimals is not None else values.cast(pl.Float64)
            )
        if not values.dtype.is_integer():
            values = values.round(0, mode="half_to_even")
        return values.cast(pl.Int64, strict=False)

    def formula_units(self, value: pl.Series) -> pl.Series:
        """Convert the value of a formula to units of the column, rounded to its precision."""
        if self.is_text:
            return value.cast(pl.String)
        if isinstance(self.dtype, pl.Decimal):
            scaled_value = value * 10**self.dtype.scale if value.dtype.is_integer() else value * 10.0**self.dtype.scale
            return self.rounded(scaled_value).cast(pl.Int64, strict=False)
        if self.dtype.is_temporal():
            return _fitting_zone(value, self.dtype).cast(self.dtype, strict=False).to_physical().cast(pl.Int64)
        return self._without_noise(self.rounded(value))

    def _without_noise(self, units: pl.Series) -> pl.Series:
        """Move floats that lie beyond the observed range by rounding only to its end."""
        if not self.is_float or self.low is None or self.high is None:
            return units
        held = units.clip(self.low, self.high)
        return held.zip_with(self.in_range(units), units)

    def values(self, units: pl.Series) -> pl.Series:
        """Convert units to values of the column's dtype; null if the dtype cannot represent them."""
        if isinstance(self.dtype, pl.Decimal):
            scale = self.dtype.scale
            column_values = (units.cast(pl.Float64) / 10**scale).round(scale).cast(self.dtype, strict=False)
        elif self.dtype == pl.Boolean:
            column_values = (units == 1).set(~units.is_in([0, 1]), None)
        elif self.dtype == pl.Date:
            column_values = units.cast(pl.Int32, strict=False).cast(pl.Date)
        else:
            column_values = units.cast(self.dtype, strict=False)
        return pl.Series(self.name, column_values)

    def agrees(self, series: pl.Series, formula: pl.Series) -> Flags:
        """Flag rows where the column equals the value of a formula; two nulls are equal."""
        if self.dtype.is_temporal():
            return agrees(self.units(series), self.formula_units(formula), 0)
        if series.dtype.is_float():
            series = series.set(series.is_nan(), None) if len(series) else series
        return agrees(series.alias(""), formula, self.decimals)

    def in_range(self, units: pl.Series) -> pl.Series:
        """Flag units within the observed range; nulls count as within."""
        if self.low is None or self.high is None or self.is_text:
            return units.is_null() | units.is_not_null()
        if self.is_float:
            slack = 0.5 * self.unit if self.unit else abs(self.high - self.low) * 1e-12
            return ((units >= self.low - slack) & (units <= self.high + slack)).fill_null(True)
        # Units are 64-bit integers; the range of a wider dtype need not be.
        low, high = (min(max(end, -(2**63)), 2**63 - 1) for end in (self.low, self.high))
        return ((units >= low) & (units <= high)).fill_null(True)

    def observed(self, n_widths: int = 0) -> ValueSet:
        """Return the set of all values within the observed range, with null and NaN.

        With `n_widths`, the range is extended by so many times its width on both sides.
        """
        span = EVERYWHERE
        if self.low is not None and self.high is not None and not self.is_text and self.dtype != pl.Boolean:
            slack = n_widths * (self.high - self.low)
            slack += (self.unit or abs(self.high - self.low) * 1e-12) if self.is_float else 0
            span = Span(self.low - slack, self.high + slack)
        return ValueSet(self.dtype, null=True, nan=True, spans=(span,))

    def set_of_numbers(self, spans: Iterable[tuple[float, float]]) -> ValueSet:
        """Return the set of the values of a numeric column between the given ends."""
        sets = [ValueSet.read(Interval(*span), self.dtype, self.name) for span in spans]
        return ValueSet.union([ValueSet(self.dtype), *sets])

    def in_units(self, wanted: ValueSet) -> ValueSet:
        """Convert a set of values to units; on floats, it is wider by the half unit by which values are rounded."""
        if self.is_float:
            half_unit = 0.5 * float(self.unit)
            spans = merged(Span(span.low - half_unit, span.high + half_unit) for span in wanted.spans)
        else:
            spans = tuple(Span(*(int(e) if isinstance(e, bool) else e for e in span)) for span in wanted.spans)
        return ValueSet(self.unit_dtype, wanted.null, wanted.nan, spans)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the dtype, ready for JSON."""
        names = ("name", "decimals", "low", "high", "nullable")
        return {name: getattr(self, name) for name in names}


def decimals_of(dtype: pl.DataType, digits: int | None = None) -> int | None:
    """Return the decimals of a dtype; for floats from a bit mask of the observed decimals (see `axes.AxisSummary`)."""
    if isinstance(dtype, pl.Decimal):
        return dtype.scale
    if dtype in FLOATS:
        if not digits:
            return None
        return (digits & -digits).bit_length() - 1
    return 0 if dtype.is_numeric() or dtype == pl.Boolean else None


def _fitting_zone(value: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Convert times to the time zone of the column, or remove their time zone."""
    column_zone, value_zone = getattr(dtype, "time_zone", None), getattr(value.dtype, "time_zone", None)
    if isinstance(value.dtype, pl.Datetime) and column_zone != value_zone:
        if column_zone is None or value_zone is None:
            return value.dt.replace_time_zone(column_zone, ambiguous="earliest", non_existent="null")
        return value.dt.convert_time_zone(column_zone)
    return value.cast(pl.Datetime("us", column_zone)) if value.dtype == pl.Date and column_zone else value
