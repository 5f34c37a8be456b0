"""Columns on a calendar, clock or decimal grid, modelled by the index of their grid point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl

from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Transform, is_finite, require_details

CALENDAR = ("month_start", "quarter_start", "year_start", "business_day")
GRIDS = (*CALENDAR, "clock", "multiple")
WORDS = {
    "month_start": "is the first day of a month",
    "quarter_start": "is the first day of a quarter",
    "year_start": "is the first day of a year",
    "business_day": "is a business day (Monday to Friday)",
    "clock": "is a clock number (HHMM)",
}
FIRST_MONDAY = 4  # days after 1970-01-01
MOST_DIGITS = 9


@dataclass(frozen=True)
class Indexed(Transform):
    """A column that is modelled by the index of its grid point."""

    kind = "grid"
    detail_types = {"grid": str, "step": float}  # noqa: RUF012
    one_to_one = True

    target: Target
    grid: str
    step: float = 1.0  # for the grid "multiple"

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: pl.Int64()}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: self.index(frame.get_column(self.target.name)).alias(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        return self.value(outputs[self.target.name].alias("").cast(pl.Int64))

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag no rows: every grid point in the observed range is valid."""
        return pl.Series(np.zeros(frame.height, dtype=bool))

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag values that are not grid points; nulls are not flagged."""
        plain_values = series.alias("")
        return self.value(self.index(plain_values)).alias("").ne_missing(plain_values)

    def index(self, series: pl.Series) -> pl.Series:
        """Return the index of the last grid point that is not above each value."""
        series = series.alias("")
        if self.grid == "clock":
            clock_numbers = series.cast(pl.Float64).floor().cast(pl.Int64)
            return clock_numbers // 100 * 60 + (clock_numbers % 100).clip(upper_bound=59)
        if self.grid == "multiple":
            return (series.cast(pl.Float64) / self.step + 1e-9).floor().cast(pl.Int64)
        days = series.cast(pl.Date) if isinstance(series.dtype, pl.Datetime) else series
        if self.grid == "business_day":
            day_numbers = days.to_physical().cast(pl.Int64) - FIRST_MONDAY
            return day_numbers // 7 * 5 + (day_numbers % 7).clip(upper_bound=4)
        month_numbers = days.dt.year().cast(pl.Int64) * 12 + days.dt.month().cast(pl.Int64) - 1
        return month_numbers // {"month_start": 1, "quarter_start": 3, "year_start": 12}[self.grid]

    def value(self, index: pl.Series) -> pl.Series:
        """Return the grid points with these indices, in the dtype of the column."""
        if self.grid == "clock":
            grid_points = index // 60 * 100 + index % 60
        elif self.grid == "multiple":
            grid_points = (index.cast(pl.Float64) * self.step).round(MOST_DIGITS)
        elif self.grid == "business_day":
            grid_points = (index // 5 * 7 + index % 5 + FIRST_MONDAY).cast(pl.Int32).cast(pl.Date)
        else:
            month_numbers = index * {"month_start": 1, "quarter_start": 3, "year_start": 12}[self.grid]
            date_parts = pl.DataFrame({"year": month_numbers // 12, "month": month_numbers % 12 + 1})
            grid_points = date_parts.select(pl.date(pl.col("year"), pl.col("month"), 1)).to_series()
        return grid_points.cast(self.target.dtype, strict=False).alias(self.target.name)

    def text(self) -> str:
        """Describe the grid."""
        name = self.target.name
        return f"{name} is a multiple of {self.step:g}" if self.grid == "multiple" else f"{name} {WORDS[self.grid]}"

    def details(self) -> dict[str, Any]:
        return {"grid": self.grid, "step": self.step}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        is_calendar = details["grid"] in CALENDAR
        is_valid = details["grid"] in GRIDS and is_finite(details["step"]) and details["step"] > 0
        is_valid = is_valid and (
            isinstance(target.dtype, pl.Date | pl.Datetime) if is_calendar else target.dtype.is_numeric()
        )
        require_details(is_valid, where, "a grid that its type does not have")
        return cls(target, details["grid"], details["step"])
