"""Model a timestamp without its hour, if another column contains the hour.

A timestamp is one number: trees can cut it into seasons and weeks, but not into mornings and evenings of all days. If
the table also contains the hour, in any time zone, the hour is better modelled by that column, where it can depend on
all others. The timestamp keeps its day, its minutes and its seconds, and gets its hour back when rows are rebuilt.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from arf_dask.data.dates import clock_in_zone, read_dates, write_dates
from arf_dask.rules.targets import Target


@dataclass(frozen=True)
class Hourless:
    """A timestamp that is modelled without its hour, which another column contains."""

    target: Target
    hour: str  # the column that contains the hour
    zone: str = ""  # time zone of the hour; empty for the time as written
    form: str = ""  # format of timestamps that are stored as text

    def reduce(self, frame: pl.DataFrame) -> pl.Series | None:
        return self.without_hour(frame.get_column(self.target.name)).alias(self.target.name)

    def rebuild(self, frame: pl.DataFrame, modelled: pl.Series | None) -> pl.Series:
        assert modelled is not None
        hours = frame.get_column(self.hour).alias("").cast(pl.Int64, strict=False)
        local_time = modelled.alias("") + _durations(hours)
        return self._values(local_time).alias(self.target.name)

    def unfit(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows outside the observed range, and local times that clocks skip."""
        values = frame.get_column(self.target.name).alias("")
        return values.is_null() | ~self.target.in_range(self.target.units(values))

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag texts that are not timestamps of the format; nulls are not flagged."""
        values = series.alias("")
        if not self.form:
            return values.is_null() & values.is_not_null()
        texts = values.cast(pl.String)
        return (write_dates(read_dates(texts, self.form), self.form) != texts).fill_null(True) & texts.is_not_null()

    def hours(self, series: pl.Series) -> pl.Series:
        """Return the hours of timestamps, in the time zone of the hour column."""
        return self.local_time(series).dt.hour().cast(pl.Int64)

    def without_hour(self, series: pl.Series) -> pl.Series:
        """Return the local times of timestamps with the hour set to zero."""
        local_time = self.local_time(series)
        return local_time - _durations(local_time.dt.hour().cast(pl.Int64))

    def local_time(self, series: pl.Series) -> pl.Series:
        """Return timestamps in the time zone of the hour column, as datetimes without a time zone."""
        timestamps = read_dates(series, self.form) if self.form else series.alias("")
        own_zone = getattr(timestamps.dtype, "time_zone", None)
        timestamps = timestamps.cast(pl.Datetime("us", own_zone))
        return clock_in_zone(timestamps, self.zone) if self.zone else timestamps.dt.replace_time_zone(None)

    def _values(self, local_time: pl.Series) -> pl.Series:
        """Convert local times to values of the column; null for times that clocks skip."""
        own_zone = getattr(self.target.dtype, "time_zone", None)
        zone = self.zone or own_zone
        if zone:
            local_time = local_time.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
            local_time = local_time.dt.convert_time_zone(own_zone or "UTC")
            local_time = local_time if own_zone else local_time.dt.replace_time_zone(None)
        return (write_dates(local_time, self.form) if self.form else local_time).cast(self.target.dtype, strict=False)


def _durations(hours: pl.Series) -> pl.Series:
    return (hours * 3_600_000_000).cast(pl.Duration("us"))


def is_zone(zone: str) -> bool:
    """Whether Polars knows a time zone by this name.

    >>> is_zone("Europe/Berlin"), is_zone("Mars/Olympus")
    (True, False)
    """
    try:
        pl.Series([0]).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
    except pl.exceptions.PolarsError:
        return False
    return True
