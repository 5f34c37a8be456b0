"""Timestamps whose time of day or weekday has a pattern: they are modelled by their day, weekday and time of day.

Trees split the number line of a timestamp into ranges. They do not see that shops open at nine or that few people
order at night, because these patterns repeat every day. Modelled as separate columns, time of day and weekday keep
their distributions and their dependence on other columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from arf_dask.data.dates import clock_in_zone, is_zone
from arf_dask.data.value_sets import EVERYWHERE, Box, Region, Span, ValueSet, convert_ends, merged, physical_values
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Resolved, Transform, nulls_where, require_details

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

LEAST_ROWS = 200
LEAST_DAYS, LEAST_WEEKS = 14, 10  # in fewer days, the number line itself shows the pattern
HOUR_EFFECT, WEEKDAY_EFFECT = 0.1, 0.015  # minimum chi-square distance from equal shares, per row
DEVIATIONS = 6.0  # minimum number of standard deviations beyond chance
FIRST_MONDAY = 4  # days after 1970-01-01
TIME_OF_DAY = "time of day"
LEAP_YEAR = 366  # days between the mark of rows without a meaning and the observed range
FIRST_DAY = -354_285  # 1000-01-01: earlier years have fewer than four digits
TICKS = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}  # per day


@dataclass(frozen=True)
class Clock:
    """The clock on which the values of a date or timestamp column are read.

    Instants are datetimes without a time zone: in UTC if the clock has a time zone, otherwise the values themselves.
    """

    dtype: pl.DataType  # of the column
    zone: str = ""  # the zone of the clock, if it differs from that of the column; columns without a zone are in UTC

    @property
    def unit(self) -> Any:
        """The time unit of instants."""
        return self.dtype.time_unit if isinstance(self.dtype, pl.Datetime) else "us"

    @property
    def _column_zone(self) -> str | None:
        return self.dtype.time_zone if isinstance(self.dtype, pl.Datetime) else None

    @property
    def _clock_zone(self) -> str | None:
        return self.zone or self._column_zone

    def instants(self, values: pl.Series) -> pl.Series:
        """Return the instants of values of the column."""
        values = values.alias("")
        instants = values.cast(pl.Datetime("us")) if values.dtype == pl.Date else values
        return instants if self._column_zone is None else clock_in_zone(instants, "UTC")

    def values(self, instants: pl.Series) -> pl.Series:
        """Return instants as values of the column."""
        if self._column_zone is not None:
            instants = instants.dt.replace_time_zone("UTC").dt.convert_time_zone(self._column_zone)
        return instants.cast(self.dtype, strict=False)

    def shown(self, instants: pl.Series) -> pl.Series:
        """Return what the clock shows at these instants."""
        return instants if self._clock_zone is None else clock_in_zone(instants, self._clock_zone)

    def first_instants(self, shown: pl.Series) -> pl.Series:
        """Return the first instants at which the clock shows these times; null for times that it skips."""
        if self._clock_zone is None:
            return shown
        local_times = shown.dt.replace_time_zone(self._clock_zone, ambiguous="earliest", non_existent="null")
        return clock_in_zone(local_times, "UTC")


@dataclass(frozen=True)
class Timed(Transform):
    """A date or timestamp that is modelled by its day (or week and weekday) and its time of day.

    The time of day is the duration since local midnight, so that every instant has exactly one day and one time, also
    where clocks are changed.

    A null has null in all parts, but the first part alone decides: as parts are drawn one by one, any of them is null
    too often, and all of them too rarely. If the first part is null, so is the value, whatever the others are. A row
    with a first part but without another one has no value, and is drawn again.
    """

    kind = "parts"
    detail_types = {"weekday": bool, "zone": str}  # noqa: RUF012
    one_to_one = True
    is_ordered = True

    target: Target
    weekday: bool = False  # whether week and weekday take the place of the day
    zone: str = ""  # the zone of the clock, if it differs from that of the column; instants without a zone are UTC

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the modelled columns."""
        parts = ("week", "weekday") if self.weekday else ("day",)
        return tuple(f"{self.target.name} ({part})" for part in (*parts, *((TIME_OF_DAY,) if self._has_time else ())))

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        dtypes = [pl.Date(), pl.Int8()] if self.weekday else [pl.Date()]
        return dict(zip(self.names, [*dtypes, pl.Duration(self.clock.unit)], strict=False))

    @property
    def clock(self) -> Clock:
        """The clock on which days and times of day are read."""
        return Clock(self.target.dtype, self.zone)

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return self.split(frame.get_column(self.target.name))

    def split(self, series: pl.Series) -> dict[str, pl.Series]:
        """Return the modelled columns of these values; null where the value is null."""
        instants = self.clock.instants(series)
        days = self.clock.shown(instants).cast(pl.Date)
        parts = [days]
        if self.weekday:
            weekdays = (days.to_physical().cast(pl.Int64) - FIRST_MONDAY) % 7
            weeks = (days.to_physical().cast(pl.Int64) - weekdays).cast(pl.Int32).cast(pl.Date)
            parts = [weeks, weekdays.cast(pl.Int8)]
        if self._has_time:
            parts.append((instants - self._midnights(days)).cast(pl.Duration(self.clock.unit)))
        return {name: part.alias(name) for name, part in zip(self.names, parts, strict=True)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        return self.join([outputs[name].alias("") for name in self.names])

    def rebuild(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        """Rebuild the column; where its first part is known but the parts have no value, outside the observed range."""
        values = self.inverse(frame, outputs)
        mark = self._mark
        if mark is None:
            return values
        has_no_value = outputs[self.names[0]].is_not_null() & values.is_null()
        return mark.new_from_index(0, len(values)).zip_with(has_no_value, values)

    def unmarked(self, series: pl.Series) -> pl.Series:
        mark = self._mark
        return series if mark is None else nulls_where((series == mark).fill_null(False), series)

    def forward_known(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        parts = self.forward(frame)
        return parts, parts[self.names[0]].is_not_null()

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        resolved = super().resolve(known, deduced, null_is_value=null_is_value)
        is_null = deduced.get_column(self.target.name).is_null().to_numpy()
        return resolved._replace(free=dict.fromkeys(self.names[1:], is_null))

    def join(self, parts: list[pl.Series]) -> pl.Series:
        """Return the values with these parts; null if a part is null or the day has no such time."""
        days = parts[0]
        if self.weekday:
            day_numbers = parts[0].to_physical().cast(pl.Int64) + parts[1].cast(pl.Int64)
            days = day_numbers.cast(pl.Int32).cast(pl.Date)
        instants = self._midnights(days)
        if self._has_time:
            instants = instants + parts[-1]
            is_other_day = (self.clock.shown(instants).cast(pl.Date) != days).fill_null(False)
            instants = nulls_where(is_other_day, instants)
        return self.clock.values(instants).alias(self.target.name)

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        reachable = wanted & self.target.observed(n_widths=2)
        lows, highs = (self._part_numbers([span[side] for span in reachable.spans]) for side in (0, 1))
        last_parts: dict[tuple[Span, ...], list[Span]] = {}
        for low, high in zip(lows, highs, strict=True):
            for *first_parts, last_part in between(low, high):
                last_parts.setdefault(tuple(first_parts), []).append(last_part)
        boxes = [
            self._box([*((part,) for part in first_parts), merged(last_spans)])
            for first_parts, last_spans in last_parts.items()
        ]
        null_box: Box = {self.names[0]: ValueSet(self.outputs[self.names[0]], null=True)}
        return Region((null_box, *boxes) if wanted.null else tuple(boxes))

    def _box(self, spans: Sequence[tuple[Span, ...]]) -> Box:
        """Return the box in which each part lies in its spans."""
        return {
            name: ValueSet(dtype, spans=part)
            for (name, dtype), part in zip(self.outputs.items(), spans, strict=True)
            if self.target.nullable or part != (EVERYWHERE,)
        }

    def _part_numbers(self, ends: list[Any]) -> list[list[Any]]:
        """Return the physical values of the parts of each end; infinite ones for an infinite end."""

        def parts(values: pl.Series) -> Iterable[list[Any]]:
            return map(
                list, zip(*(physical_values(part).to_list() for part in self.split(values).values()), strict=True)
            )

        return convert_ends(ends, self.target.dtype, parts, lambda end: [end] * len(self.names))

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag values that their parts do not give back; nulls are not flagged."""
        values = series.alias("")
        joined_values = self.join(list(self.split(values).values())).alias("")
        return joined_values.ne_missing(values.cast(joined_values.dtype))

    def in_zone(self, zone: str) -> Self:
        return replace(self, zone=zone)

    def details(self) -> dict[str, Any]:
        return {"weekday": self.weekday, "zone": self.zone}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        is_valid = isinstance(target.dtype, pl.Date | pl.Datetime)
        is_valid = is_valid and (not details["zone"] or is_zone(details["zone"]))
        require_details(is_valid, where, "parts that its type does not have")
        timed = cls(target, details["weekday"], details["zone"])
        require_details(not set(timed.names) & set(dtypes), where, "parts with the name of a column")
        return timed

    @property
    def _mark(self) -> pl.Series | None:
        """The value that marks rows whose parts have no value, more than a year off the observed range."""
        low, high = self.target.low, self.target.high
        if low is None or high is None:
            return None
        ticks = TICKS[self.clock.unit] if self._has_time else 1
        below, above = int(low) - LEAP_YEAR * ticks, int(high) + LEAP_YEAR * ticks
        unit = below if below >= max(FIRST_DAY * ticks, -(2**63)) else min(above, 2**63 - 1)
        return self.target.values(pl.Series([unit], dtype=pl.Int64))

    @property
    def _has_time(self) -> bool:
        return isinstance(self.target.dtype, pl.Datetime)

    def _midnights(self, days: pl.Series) -> pl.Series:
        """Return the first instant of each day; an hour later where clocks skip midnight."""
        midnights = days.cast(pl.Datetime(self.clock.unit))
        first_instants = self.clock.first_instants(midnights)
        if not first_instants.null_count() > midnights.null_count():
            return first_instants
        hour = pl.Series([3_600_000_000]).cast(pl.Duration("us")).cast(pl.Duration(self.clock.unit))
        return first_instants.zip_with(first_instants.is_not_null(), self.clock.first_instants(midnights + hour))


def find_parts(series: pl.Series, target: Target) -> Timed | None:
    """Return the parts by which a column is modelled, if hours or weekdays differ far beyond chance in a sample.

    Args:
        series: the dates or timestamps of a sample.
        target: the column.
    """
    known_values = series.alias("").drop_nulls()
    if len(known_values) < LEAST_ROWS:
        return None
    parts = list(Timed(target, weekday=True).split(known_values).values())
    has_weeks = parts[0].n_unique() >= LEAST_WEEKS
    has_pattern = has_weeks and _uneven(parts[1], 7, WEEKDAY_EFFECT)
    if len(parts) > 2:
        hours = parts[2].dt.total_hours()
        has_pattern |= known_values.dt.date().n_unique() >= LEAST_DAYS and _uneven(hours, 24, HOUR_EFFECT)
        has_pattern &= hours.n_unique() > 1
    return Timed(target, weekday=has_weeks) if has_pattern else None


def _uneven(values: pl.Series, n_cells: int, least_effect: float) -> bool:
    """Whether the shares of the cells differ from each other far beyond chance."""
    counts = np.bincount(values.cast(pl.Int64).clip(0, n_cells - 1).to_numpy(), minlength=n_cells)
    expected_count = counts.sum() / n_cells
    chi_square = float(((counts - expected_count) ** 2).sum() / expected_count)
    n_free = n_cells - 1
    by_chance = n_free + DEVIATIONS * np.sqrt(2.0 * n_free)
    return bool(chi_square > by_chance and chi_square >= least_effect * counts.sum())


def between(low: Sequence[Any], high: Sequence[Any]) -> list[list[Span]]:
    """Return disjoint boxes of all tuples of whole numbers from `low` to `high` in lexicographic order.

    An infinite number means no bound, for the numbers after it too.

    >>> [[tuple(part) for part in box] for box in between((1, 5), (3, 2))]
    [[(1, 1), (5, inf)], [(2, 2), (-inf, inf)], [(3, 3), (-inf, 2)]]
    """
    first_low, first_high, n_rest = low[0], high[0], len(low) - 1
    if not n_rest or (first_low, first_high) == EVERYWHERE:
        return [[Span(first_low, first_high), *[EVERYWHERE] * n_rest]]
    if first_low == first_high:
        return [[Span(first_low, first_low), *rest] for rest in between(low[1:], high[1:])]
    at_low, at_high = [], []
    if first_low != -np.inf:
        at_low = [[Span(first_low, first_low), *rest] for rest in between(low[1:], [np.inf] * n_rest)]
    if first_high != np.inf:
        at_high = [[Span(first_high, first_high), *rest] for rest in between([-np.inf] * n_rest, high[1:])]
    inner = Span(first_low + 1, first_high - 1)
    middle = [[inner, *[EVERYWHERE] * n_rest]] if inner.low <= inner.high else []
    return [*at_low, *middle, *at_high]
