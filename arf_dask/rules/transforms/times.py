"""Timestamps whose time of day or weekday has a pattern: they are modelled by their day, weekday and time of day.

Trees split the number line of a timestamp into ranges. They do not see that shops open at nine or that few people
order at night, because these patterns repeat every day. Modelled as separate columns, time of day and weekday keep
their distributions and their dependence on other columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from arf_dask.data.dates import FORMS, clock_in_zone, has_clock, is_zone, read_dates, write_dates
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Transform, require_details

LEAST_ROWS = 200
LEAST_DAYS, LEAST_WEEKS = 14, 10  # in fewer days, the number line itself shows the pattern
HOUR_EFFECT, WEEKDAY_EFFECT = 0.1, 0.015  # minimum chi-square distance from equal shares, per row
DEVIATIONS = 6.0  # minimum number of standard deviations beyond chance
FIRST_MONDAY = 4  # days after 1970-01-01
TIME_OF_DAY = "time of day"
MOST_DAYS = 10_000_000  # limit of dates in model files


@dataclass(frozen=True)
class Timed(Transform):
    """A date or timestamp that is modelled by its day (or week and weekday) and its time of day.

    The time of day is the duration since local midnight, so that every instant has exactly one day and one time, also
    where clocks are changed.
    """

    kind = "parts"
    detail_types = {"weekday": bool, "zone": str, "form": str, "days": list}  # noqa: RUF012
    one_to_one = True

    target: Target
    weekday: bool = False  # whether week and weekday take the place of the day
    zone: str = ""  # the zone of the clock, if it differs from that of the column; instants without a zone are UTC
    form: str = ""  # the format of texts; empty for dates and timestamps
    days: tuple[int, int] | None = None  # the range of texts, in days since 1970-01-01

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the modelled columns."""
        parts = ("week", "weekday") if self.weekday else ("day",)
        return tuple(f"{self.target.name} ({part})" for part in (*parts, *((TIME_OF_DAY,) if self._has_time else ())))

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        dtypes = [pl.Date(), pl.Int8()] if self.weekday else [pl.Date()]
        return dict(zip(self.names, [*dtypes, pl.Duration(self._unit)], strict=False))

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return self.split(frame.get_column(self.target.name))

    def split(self, series: pl.Series) -> dict[str, pl.Series]:
        """Return the modelled columns of these values; null where the value is null."""
        instants = self._instants(series.alias(""))
        days = self._days(instants)
        parts = [days]
        if self.weekday:
            weekdays = (days.to_physical().cast(pl.Int64) - FIRST_MONDAY) % 7
            weeks = (days.to_physical().cast(pl.Int64) - weekdays).cast(pl.Int32).cast(pl.Date)
            parts = [weeks, weekdays.cast(pl.Int8)]
        if self._has_time:
            parts.append((instants - self._midnights(days)).cast(pl.Duration(self._unit)))
        return {name: part.alias(name) for name, part in zip(self.names, parts, strict=True)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        return self.join([outputs[name].alias("") for name in self.names])

    def forward_known(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        parts = self.forward(frame)
        return parts, parts[self.names[0]].is_not_null()

    def join(self, parts: list[pl.Series]) -> pl.Series:
        """Return the values with these parts; null if a part is null or the day has no such time."""
        days = parts[0]
        if self.weekday:
            day_numbers = parts[0].to_physical().cast(pl.Int64) + parts[1].cast(pl.Int64)
            days = day_numbers.cast(pl.Int32).cast(pl.Date)
        instants = self._midnights(days)
        if self._has_time:
            instants = instants + parts[-1]
            is_other_day = (self._days(instants) != days).fill_null(False)
            instants = (
                pl.Series([None], dtype=instants.dtype)
                .new_from_index(0, len(instants))
                .zip_with(is_other_day, instants)
            )
        return self._values(instants).alias(self.target.name)

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        if self.days is None:
            return super().faults(frame)
        values = frame.get_column(self.target.name).alias("")
        is_forbidden = self.target.forbidden_null(values)
        day_numbers = self._days(self._instants(values)).to_physical()
        return is_forbidden | ~day_numbers.is_between(*self.days).fill_null(True)

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag values that their parts do not give back; nulls are not flagged."""
        values = series.alias("")
        joined_values = self.join(list(self.split(values).values())).alias("")
        return joined_values.ne_missing(values.cast(joined_values.dtype))

    def text(self) -> str:
        """Describe the format; empty for dates and timestamps, which obey no rule."""
        return f"{self.target.name} is a time written as {self.form}" if self.form else ""

    def details(self) -> dict[str, Any]:
        return {"weekday": self.weekday, "zone": self.zone, "form": self.form, "days": list(self.days or ())}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        form, days = details["form"], details["days"]
        is_valid = (target.is_text and form in FORMS and has_clock(form)) or (
            not form and isinstance(target.dtype, pl.Date | pl.Datetime)
        )
        is_valid = is_valid and (not details["zone"] or is_zone(details["zone"]))
        is_valid = is_valid and len(days) == (2 if form else 0)
        is_valid = is_valid and all(type(day) is int and abs(day) < MOST_DAYS for day in days)
        require_details(is_valid, where, "parts that its type does not have")
        timed = cls(target, details["weekday"], details["zone"], form, tuple(days) or None)
        require_details(not set(timed.names) & set(dtypes), where, "parts with the name of a column")
        return timed

    @property
    def _has_time(self) -> bool:
        return bool(self.form) or isinstance(self.target.dtype, pl.Datetime)

    @property
    def _unit(self) -> Any:
        return self.target.dtype.time_unit if isinstance(self.target.dtype, pl.Datetime) else "us"

    @property
    def _column_zone(self) -> str | None:
        return self.target.dtype.time_zone if isinstance(self.target.dtype, pl.Datetime) else None

    def _instants(self, series: pl.Series) -> pl.Series:
        """Return instants without a zone: UTC if there is a clock zone, otherwise the column's own clock."""
        if self.form:
            return read_dates(series, self.form)
        instants = series.cast(pl.Datetime("us")) if series.dtype == pl.Date else series
        return instants if self._column_zone is None else clock_in_zone(instants, "UTC")

    def _values(self, instants: pl.Series) -> pl.Series:
        if self.form:
            return write_dates(instants, self.form).cast(self.target.dtype, strict=False)
        if self._column_zone is not None:
            instants = instants.dt.replace_time_zone("UTC").dt.convert_time_zone(self._column_zone)
        return instants.cast(self.target.dtype, strict=False)

    @property
    def _clock_zone(self) -> str | None:
        return self.zone or self._column_zone

    def _days(self, instants: pl.Series) -> pl.Series:
        if self._clock_zone is not None:
            instants = clock_in_zone(instants, self._clock_zone)
        return instants.cast(pl.Date)

    def _midnights(self, days: pl.Series) -> pl.Series:
        """Return the first instant of each day; an hour later where clocks skip midnight."""
        midnights = days.cast(pl.Datetime(self._unit))
        if self._clock_zone is None:
            return midnights
        starts = [_from_zone(midnights + _hours(hours, self._unit), self._clock_zone) for hours in (0, 1)]
        return starts[0].zip_with(starts[0].is_not_null(), starts[1])


def find_parts(series: pl.Series, target: Target, form: str = "") -> Timed | None:
    """Return the parts by which a column is modelled, if hours or weekdays differ far beyond chance in a sample.

    Args:
        series: the dates or timestamps of a sample.
        target: the column.
        form: the format of the column, if it holds texts.
    """
    known_values = series.alias("").drop_nulls()
    if len(known_values) < LEAST_ROWS:
        return None
    parts = list(Timed(replace(target, dtype=known_values.dtype), weekday=True).split(known_values).values())
    days = known_values.dt.date()
    has_weeks = parts[0].n_unique() >= LEAST_WEEKS
    has_pattern = has_weeks and _uneven(parts[1], 7, WEEKDAY_EFFECT)
    if len(parts) > 2:
        hours = parts[2].dt.total_hours()
        has_pattern |= days.n_unique() >= LEAST_DAYS and _uneven(hours, 24, HOUR_EFFECT)
        has_pattern &= hours.n_unique() > 1
    if not has_pattern:
        return None
    bounds = days.to_physical().min(), days.to_physical().max()
    return Timed(target, weekday=has_weeks, form=form, days=bounds if form else None)  # type: ignore[arg-type]


def _uneven(values: pl.Series, n_cells: int, least_effect: float) -> bool:
    """Whether the shares of the cells differ from each other far beyond chance."""
    counts = np.bincount(values.cast(pl.Int64).clip(0, n_cells - 1).to_numpy(), minlength=n_cells)
    expected_count = counts.sum() / n_cells
    chi_square = float(((counts - expected_count) ** 2).sum() / expected_count)
    n_free = n_cells - 1
    by_chance = n_free + DEVIATIONS * np.sqrt(2.0 * n_free)
    return bool(chi_square > by_chance and chi_square >= least_effect * counts.sum())


def _hours(hours: int, unit: Any) -> pl.Series:
    return pl.Series([hours * 3_600_000_000], dtype=pl.Int64).cast(pl.Duration("us")).cast(pl.Duration(unit))


def _from_zone(clock_times: pl.Series, zone: str) -> pl.Series:
    """Return the first instants in UTC at which the clocks of a zone show these times; null if they skip them."""
    local_times = clock_times.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return clock_in_zone(local_times, "UTC")
