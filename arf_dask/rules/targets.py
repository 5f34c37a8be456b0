"""Convert columns to the units that rules compute with: integers wherever the dtype has a smallest unit.

Integers are unchanged, dates and times are converted to their physical values, decimals to multiples of their last
digit. Floats are rounded to the observed number of decimals. Texts are unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from arf_dask.data.axes import FLOATS
from arf_dask.rules.evaluation import Flags, agrees, kind_of_dtype


@dataclass(frozen=True)
class Target:
    """A column of the user's table that a rule determines."""

    name: str
    dtype: pl.DataType
    decimals: int | None  # number of decimals; None for texts, and for floats with any number of decimals
    low: float | int | None = None  # observed range in units; None for texts
    high: float | int | None = None
    nullable: bool = True  # whether the training data contain nulls

    @property
    def is_text(self) -> bool:
        return kind_of_dtype(self.dtype) == "text"

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def unit(self) -> float | int:
        """Smallest distance between two values, in units; 0 for floats with any number of decimals."""
        if not self.is_float:
            return 1
        return 0.0 if self.decimals is None else 10.0**-self.decimals

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
        return (
            values if values.dtype.is_integer() else values.round(0, mode="half_to_even").cast(pl.Int64, strict=False)
        )

    def formula_units(self, value: pl.Series) -> pl.Series:
        """Convert the value of a formula to units of the column, rounded to its precision."""
        if self.is_text:
            return value.cast(pl.String)
        if isinstance(self.dtype, pl.Decimal):
            scaled_value = value * 10**self.dtype.scale if value.dtype.is_integer() else value * 10.0**self.dtype.scale
            return self.rounded(scaled_value).cast(pl.Int64, strict=False)
        if self.dtype.is_temporal():
            return _fitting_zone(value, self.dtype).cast(self.dtype, strict=False).to_physical().cast(pl.Int64)
        return self.rounded(value)

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
        slack = 0.5 * self.unit if self.is_float else 0
        slack = slack if slack else abs(self.high - self.low) * 1e-12
        return ((units >= self.low - slack) & (units <= self.high + slack)).fill_null(True)

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
