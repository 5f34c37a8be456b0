"""Columns on a calendar, clock or decimal grid, modelled by the index of their grid point.

First days of months, quarters and years, business days, clock numbers such as 1745, and floats that are multiples of
a step have unevenly spaced values, or gaps that never contain a value. Modelling the index of the grid point
guarantees that synthetic values lie on the grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Box, Region, Span, ValueSet, convert_ends, merged, physical_values
from arf_dask.rules.evaluation import kind_of_dtype
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Link, is_finite, require_details

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

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
# Evidence that a search needs: the minimum number of distinct values on a grid.
LEAST_POINTS = {"year_start": 4, "quarter_start": 4, "month_start": 4, "business_day": 60, "multiple": 8}
COARSE = 5  # minimum step of multiples, in units of the last decimal
LEAST_CLOCKS = 30  # minimum number of rows of a clock column


@dataclass(frozen=True)
class Indexed(Link):
    """A column that is modelled by the index of its grid point."""

    kind = "grid"
    detail_types = {"grid": str, "step": float}  # noqa: RUF012

    target: Target
    grid: str
    step: float = 1.0  # for the grid "multiple"

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: pl.Int64()}

    @property
    def modelled_target(self) -> Target:
        name, nullable = self.target.name, self.target.nullable
        if self.target.low is None or self.target.high is None:
            return Target(name, pl.Int64(), 0, nullable=nullable)
        low, high = self.index(self.target.values(pl.Series([self.target.low, self.target.high])))
        return Target(name, pl.Int64(), 0, low, high, nullable)

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
            clock_numbers = series.cast(pl.Float64).fill_nan(None).floor().cast(pl.Int64)
            return clock_numbers // 100 * 60 + (clock_numbers % 100).clip(upper_bound=59)
        if self.grid == "multiple":
            return (series.cast(pl.Float64).fill_nan(None) / self.step + 1e-9).floor().cast(pl.Int64)
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

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        indices = self.indices(wanted)
        return Region(({self.target.name: indices},) if indices else ())

    def indices(self, wanted: ValueSet) -> ValueSet:
        """Return the indices of the grid points that belong to a set."""
        reachable = wanted & self.target.observed(n_widths=2)
        firsts = self._nearest([span.low for span in reachable.spans], side=1)
        lasts = self._nearest([span.high for span in reachable.spans], side=-1)
        spans = [Span(first, last) for first, last in zip(firsts, lasts, strict=True) if first <= last]
        return ValueSet(pl.Int64(), null=wanted.null, spans=merged(spans))

    def _nearest(self, ends: list[Any], side: int) -> list[Any]:
        """Return the index of the first grid point at or above each end (side 1), or at or below it (side -1)."""

        def nearest(values: pl.Series) -> list[Any]:
            index = self.index(values)
            points, physical_ends = physical_values(self.value(index)), physical_values(values)
            is_beyond = points < physical_ends if side > 0 else points > physical_ends
            return (index + side * is_beyond.cast(pl.Int64)).to_list()

        return convert_ends(ends, self.target.dtype, nearest, lambda end: end)

    def text(self) -> str:
        """Describe the grid."""
        name = self.target.name
        return f"{name} is a multiple of {self.step:g}" if self.grid == "multiple" else f"{name} {WORDS[self.grid]}"

    def is_confirmed(self, target: Target) -> bool:
        return self.grid != "multiple" or target.decimals is not None

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


def find_calendar_grid(series: pl.Series, target: Target) -> Indexed | None:
    """Return the coarsest calendar grid that contains all dates of a sample."""
    known_values = series.alias("").drop_nulls()
    if getattr(known_values.dtype, "time_zone", None) is not None:
        return None
    candidates = (Indexed(target, grid) for grid in ("year_start", "quarter_start", "month_start", "business_day"))
    n_points = known_values.n_unique()
    fitting = (one for one in candidates if n_points >= LEAST_POINTS[one.grid] and not one.off_grid(known_values).any())
    return next(fitting, None)


def find_multiples(series: pl.Series, target: Target) -> Indexed | None:
    """Return the step of which all floats of a sample are multiples, if it is coarser than their last decimal."""
    values = series.cast(pl.Float64).drop_nulls().drop_nans().to_numpy()
    if target.decimals is None or target.decimals > 6 or not len(values) or np.abs(values).max() >= 2**40:
        return None
    scaled_values = np.unique(np.rint(values * 10**target.decimals).astype(np.int64))
    step = int(np.gcd.reduce(scaled_values))
    # Steps of 0.1 or 0.01 are the number of decimals; those of 10 or 100, in whole numbers, are not.
    is_coarse = step >= 2 if target.decimals == 0 else step >= COARSE and not math.log10(step).is_integer()
    if not is_coarse or len(scaled_values) < LEAST_POINTS["multiple"]:
        return None
    return Indexed(target, "multiple", step / 10**target.decimals)


def clock_columns(frame: pl.DataFrame) -> list[str]:
    """Return the columns of clock numbers: integers up to 2400 with minutes below 60 and varying hours."""
    clock_names = []
    for series in frame:
        name, series = series.name, series.alias("")
        if kind_of_dtype(series.dtype) not in ("integer", "number") or series.dtype == pl.Boolean:
            continue
        values = series.cast(pl.Float64).drop_nulls().drop_nans()
        if len(values) < LEAST_CLOCKS or not (values == values.round(0)).all():
            continue
        hundreds = values // 100
        is_valid = values.min() >= 0 and 1_000 <= values.max() <= 2_400 and (values % 100 < 60).all()  # type: ignore[operator]
        if is_valid and hundreds.n_unique() >= 4 and values.n_unique() > 24 and (values % 100).n_unique() > 4:
            clock_names.append(name)
    return clock_names
