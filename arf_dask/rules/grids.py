"""Columns whose values lie on a calendar, clock or decimal grid: they are modelled by the index of their grid point.

First days of months, quarters and years, business days, clock numbers such as 1745, and floats that are multiples of
a step have unevenly spaced values, or gaps that never contain a value. Modelling the index of the grid point
guarantees that synthetic values lie on the grid. Floats with varying numbers of decimals are rounded so that each
number of decimals keeps its share of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from arf_dask.data.dates import date_form, has_clock, read_dates, write_dates
from arf_dask.rules.expressions import Node, zone_of
from arf_dask.rules.targets import Target
from arf_dask.rules.time_parts import Timed, find_parts

CALENDAR = ("month_start", "quarter_start", "year_start", "business_day")
GRIDS = (*CALENDAR, "clock", "multiple")
WORDS = {
    "month_start": "is the first day of a month",
    "quarter_start": "is the first day of a quarter",
    "year_start": "is the first day of a year",
    "business_day": "is a business day (Monday to Friday)",
    "clock": "is a clock number (HHMM)",
}
LEAST_DATES = 20  # minimum number of distinct texts in a column that is modelled as dates
SPIKE_ROWS = 3  # minimum number of sampled rows with the same value for it to be a possible spike
FIRST_MONDAY = 4  # days after 1970-01-01
LEAST_ROWS, LEAST_POINTS = (
    30,
    {"month_start": 4, "quarter_start": 4, "year_start": 4, "business_day": 60, "multiple": 8},
)
MOST_DIGITS = 9
COARSE = 5  # minimum step of multiples, in units of the last decimal
FULL = 15  # number of decimals assigned to floats with more than MOST_DIGITS
FEW_SHARE = 0.1  # minimum share of rows with few decimals in a mixture, if the other rows have any number
MOST_SHARE = 0.5  # minimum share of rows with fewer decimals than the maximum of the column


@dataclass(frozen=True)
class Indexed:
    """A column that is modelled by the index of its grid point."""

    target: Target
    grid: str
    step: float = 1.0  # for the grid "multiple"

    def reduce(self, frame: pl.DataFrame) -> pl.Series | None:
        return self.index(frame.get_column(self.target.name)).alias(self.target.name)

    def rebuild(self, frame: pl.DataFrame, modelled: pl.Series | None) -> pl.Series:
        assert modelled is not None
        return self.value(modelled.alias("").cast(pl.Int64))

    def unfit(self, frame: pl.DataFrame) -> pl.Series:
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


@dataclass(frozen=True)
class Decimals:
    """A float column with varying numbers of decimals: synthetic values are rounded in the same proportions."""

    target: Target
    shares: tuple[tuple[int, float], ...]  # (decimals, share of rows with that many); other rows are not rounded

    def reduce(self, frame: pl.DataFrame) -> pl.Series | None:
        return frame.get_column(self.target.name)

    def rebuild(self, frame: pl.DataFrame, modelled: pl.Series | None) -> pl.Series:
        assert modelled is not None
        values = modelled.cast(pl.Float64).to_numpy(writable=True)
        is_rounded = np.isfinite(values)
        max_decimals = (
            FULL - 1 if self.target.decimals is None else max((digits for digits, _ in self.shares), default=FULL)
        )
        is_rounded[is_rounded] = decimals_of_values(values[is_rounded]) > max_decimals  # spikes keep their decimals
        # The hash of the number determines its decimals, so that rebuilding is deterministic.
        uniform_hash = pl.Series(values[is_rounded]).hash(seed=17).to_numpy().astype(np.float64) / 2.0**64
        share_cuts = np.cumsum([share for _, share in self.shares])
        share_index = np.searchsorted(share_cuts, uniform_hash, side="right")
        rounded_values = values[is_rounded]
        for index, (digits, _) in enumerate(self.shares):
            candidate_values = np.round(rounded_values, digits)
            rounded_values = np.where(
                (share_index == index) & self._in_range(candidate_values), candidate_values, rounded_values
            )
        values[is_rounded] = rounded_values
        column_values = pl.Series(self.target.name, values).cast(self.target.dtype)
        return modelled.zip_with(modelled.is_null(), column_values).alias(self.target.name)

    def unfit(self, frame: pl.DataFrame) -> pl.Series:
        """Flag no rows: rounded values are always valid."""
        return pl.Series(np.zeros(frame.height, dtype=bool))

    def _in_range(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        low, high = self.target.low, self.target.high
        return np.asarray(
            (values >= (-np.inf if low is None else low)) & (values <= (np.inf if high is None else high))
        )

    def text(self) -> str:
        """Describe the mixture of decimals."""
        share_texts = ", ".join(f"{digits} decimals in {100 * share:.0f} %" for digits, share in self.shares)
        return f"{self.target.name} has {share_texts} of rows"


@dataclass(frozen=True)
class Dated:
    """A text column of dates or times, modelled as such and formatted in the original format."""

    target: Target
    form: str
    grid: str = ""  # the calendar grid of the dates; empty for none

    def reduce(self, frame: pl.DataFrame) -> pl.Series | None:
        dates = read_dates(frame.get_column(self.target.name), self.form)
        return (self._indexed().index(dates) if self.grid else dates).alias(self.target.name)

    def rebuild(self, frame: pl.DataFrame, modelled: pl.Series | None) -> pl.Series:
        assert modelled is not None
        dates = self._indexed().value(modelled.alias("").cast(pl.Int64)) if self.grid else modelled
        return write_dates(dates, self.form).cast(self.target.dtype, strict=False).alias(self.target.name)

    def unfit(self, frame: pl.DataFrame) -> pl.Series:
        """Flag no rows: every date in the observed range is valid."""
        return pl.Series(np.zeros(frame.height, dtype=bool))

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag texts that are not dates of this format and grid; nulls are not flagged."""
        date_texts = series.alias("").cast(pl.String)
        parsed_dates = read_dates(date_texts, self.form)
        is_wrong = (write_dates(parsed_dates, self.form) != date_texts).fill_null(True) & date_texts.is_not_null()
        return is_wrong | self._indexed().off_grid(parsed_dates) if self.grid else is_wrong

    def dates(self, values: list[Any]) -> pl.Series:
        """Convert values of the column to the dates or grid indices that are modelled."""
        frame = pl.DataFrame({self.target.name: pl.Series(values, dtype=pl.String)})
        reduced = self.reduce(frame)
        assert reduced is not None
        return reduced

    def text(self) -> str:
        """Describe the format and the grid of the dates."""
        on_grid = f" and {WORDS[self.grid]}" if self.grid else ""
        return f"{self.target.name} is a {'time' if has_clock(self.form) else 'date'} written as {self.form}{on_grid}"

    def _indexed(self) -> Indexed:
        dtype = pl.Datetime("us") if has_clock(self.form) else pl.Date()
        return Indexed(Target(self.target.name, dtype, None), self.grid)


Grid: TypeAlias = Indexed | Decimals | Dated | Timed


def decimals_of_values(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of decimals of each float; 15 for floats with more than nine.

    >>> decimals_of_values(np.array([2.0, 0.25, 1 / 3, 1e300])).tolist()
    [0, 2, 15, 0]
    """
    n_decimals = np.full(len(values), FULL)
    # Larger floats are integers, and rounding could overflow.
    small_values = np.where(np.abs(values) < 2.0**53, values, 0.0)
    for digits in range(MOST_DIGITS, -1, -1):
        n_decimals[np.round(small_values, digits) == small_values] = digits
    return n_decimals


def find_grid(series: pl.Series, target: Target, clock: bool) -> Grid | None:
    """Find the grid of a column in a sample; None if there is none or the evidence is too weak."""
    known_values = series.alias("").drop_nulls()
    if len(known_values) < LEAST_ROWS:
        return None
    if isinstance(series.dtype, pl.String | pl.Categorical):
        date_format = date_form(known_values) if known_values.n_unique() >= LEAST_DATES else None
        if date_format is None:
            return None
        dates = read_dates(known_values, date_format).alias(series.name)
        date_grid = find_grid(dates, Target(series.name, dates.dtype, None), clock=False)
        if has_clock(date_format) and not isinstance(date_grid, Indexed):
            timed = find_parts(dates, target, date_format)
            if timed is not None:
                return timed
        return Dated(target, date_format, date_grid.grid if isinstance(date_grid, Indexed) else "")
    if clock:
        return Indexed(target, "clock")
    if target.is_float:
        return _float_grid(known_values.cast(pl.Float64), target)
    if not isinstance(series.dtype, pl.Date | pl.Datetime):
        return None
    if getattr(series.dtype, "time_zone", None) is not None:
        return find_parts(known_values, target)
    for grid in ("year_start", "quarter_start", "month_start", "business_day"):
        candidate = Indexed(target, grid)
        if known_values.n_unique() >= LEAST_POINTS[grid] and not candidate.off_grid(known_values).any():
            return candidate
    return find_parts(known_values, target)


def with_zones(grids: Sequence[Grid], formulas: Sequence[Node], columns: Collection[str]) -> list[Grid]:
    """Give timestamps the time zone of formulas that read them; drop those with a part that is named like a column."""
    kept_grids: list[Grid] = []
    for grid in grids:
        if isinstance(grid, Timed):
            zones = [zone for node in formulas if (zone := zone_of(node, grid.target.name)) is not None]
            grid = replace(grid, zone=zones[0] if zones else "")
            if set(grid.names) & set(columns):
                continue
        kept_grids.append(grid)
    return kept_grids


def _float_grid(known: pl.Series, target: Target) -> Grid | None:
    values = known.drop_nans().to_numpy()
    if target.decimals is not None and target.decimals <= 6 and len(values) and np.abs(values).max() < 2**40:
        scaled_values = np.unique(np.rint(values * 10**target.decimals).astype(np.int64))
        step = int(np.gcd.reduce(scaled_values))
        # Steps of 0.1 or 0.01 are the number of decimals; those of 10 or 100, in whole numbers, are not.
        is_coarse = step >= 2 if target.decimals == 0 else step >= COARSE and not math.log10(step).is_integer()
        if is_coarse and len(scaled_values) >= LEAST_POINTS["multiple"]:
            return Indexed(target, "multiple", step / 10**target.decimals)
    if target.decimals == 0 or len(values) < LEAST_ROWS:
        return None
    distinct_values, value_counts = np.unique(values, return_counts=True)
    values = distinct_values[value_counts < SPIKE_ROWS]  # spikes keep their decimals
    if len(values) < LEAST_ROWS:
        return None
    digits, counts = np.unique(decimals_of_values(values), return_counts=True)
    max_decimals, least_share = (FULL, FEW_SHARE) if target.decimals is None else (target.decimals, MOST_SHARE)
    decimal_shares = [
        (int(d), float(c / len(values))) for d, c in zip(digits, counts, strict=True) if d == max_decimals or c >= 3
    ]
    # Numbers with any number of decimals hardly ever end in zeros, so they do not explain shorter ones.
    merged_shares = _merged(
        decimal_shares if target.decimals is not None else [pair for pair in decimal_shares if pair[0] != FULL]
    )
    shares = tuple((d, share) for d, share in merged_shares if d != max_decimals)
    return Decimals(target, shares) if sum(share for _, share in shares) >= least_share else None


def _merged(shares: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Merge shares that trailing zeros explain: one in ten numbers of six decimals appears to have five."""
    merged_shares: list[tuple[int, float]] = []
    for digits, share in sorted(shares, reverse=True):
        if merged_shares and merged_shares[-1][0] - digits <= 3 and share <= 0.2 * merged_shares[-1][1]:
            merged_shares[-1] = merged_shares[-1][0], merged_shares[-1][1] + share
        else:
            merged_shares.append((digits, share))
    return tuple(sorted(merged_shares))
