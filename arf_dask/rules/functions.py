"""The functions that rules may call: their argument kinds, result kinds and implementations on columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import polars as pl

from arf_dask.data.dates import clock_in_zone, read_dates, tokens
from arf_dask.errors import OptionError

NUMBERS = ("integer", "number")
DAYS = ("date", "datetime")
CLOCKS = ("datetime", "time")
MINUTES_PER_DAY = 1440
MICROSECONDS = {"days": 86_400_000_000, "hours": 3_600_000_000, "minutes": 60_000_000, "seconds": 1_000_000}
TICKS_PER_DAY = {"day": 1, "ms": 86_400_000, "us": 86_400_000_000}  # nanoseconds never leave the calendar
FIRST_DAY, LAST_DAY = -719_161, 2_932_896  # 0001-01-02 to 9999-12-31, so that no time zone leaves Python's calendar


class Function(NamedTuple):
    """A function of columns."""

    arity: tuple[int, int]  # minimum and maximum number of arguments
    takes: tuple[tuple[str, ...], ...]  # accepted kinds per argument; the last entry applies to all further arguments
    gives: str  # kind of the result; "first" for the kind of the first argument
    apply: Callable[..., pl.Series]


def clock_minutes(clock: pl.Series) -> pl.Series:
    """Return the minutes since midnight of clock numbers such as 1745.

    >>> clock_minutes(pl.Series([5, 1745, 2400])).to_list()
    [5, 1065, 1440]
    """
    clock_numbers = clock.cast(pl.Int64, strict=False)
    return clock_numbers // 100 * 60 + clock_numbers % 100


def clock(minutes: pl.Series) -> pl.Series:
    """Return the clock numbers of minutes since midnight, modulo a day, with midnight as 0.

    >>> clock(pl.Series([65, 1440, -5])).to_list()
    [105, 0, 2355]
    """
    day_minutes = _modulo(minutes.cast(pl.Int64, strict=False), MINUTES_PER_DAY)
    return day_minutes // 60 * 100 + day_minutes % 60


def clock24(minutes: pl.Series) -> pl.Series:
    """Return the clock numbers of minutes since midnight, modulo a day, with midnight as 2400.

    >>> clock24(pl.Series([65, 1440, -5])).to_list()
    [105, 2400, 2355]
    """
    clock_numbers = clock(minutes)
    return clock_numbers + 2400 * (clock_numbers == 0).cast(pl.Int64)


def floor_division(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return quotients rounded down; null where the divisor is zero."""
    if left.dtype.is_integer() and right.dtype.is_integer():
        return left // right.replace(0, None)
    quotient = left.cast(pl.Float64) / right.cast(pl.Float64)
    return _finite(quotient.floor())


def remainder(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return the remainder of floor division, which has the sign of the divisor."""
    return left - right * floor_division(left, right)


def quotient(left: pl.Series, right: pl.Series) -> pl.Series:
    """Return quotients as floats; null where the divisor is zero."""
    return _finite(left.cast(pl.Float64) / right.cast(pl.Float64))


def in_calendar(values: pl.Series) -> pl.Series:
    """Replace dates and times outside the years 1 to 9999 by null, because Polars panics outside its calendar.

    >>> in_calendar(pl.Series([0, 2**31 - 1], dtype=pl.Int32).cast(pl.Date)).to_list()
    [datetime.date(1970, 1, 1), None]
    """
    time_unit = getattr(values.dtype, "time_unit", "day")
    if not isinstance(values.dtype, pl.Date | pl.Datetime) or time_unit not in TICKS_PER_DAY:
        return values
    ticks_per_day = TICKS_PER_DAY[time_unit]
    ticks = values.to_physical()
    is_outside = (ticks < FIRST_DAY * ticks_per_day) | (ticks >= LAST_DAY * ticks_per_day)
    return values.set(is_outside, None) if is_outside.any() else values


def in_one_zone(*columns: pl.Series) -> tuple[pl.Series, ...]:
    """Convert datetimes to the first time zone among the columns, because Polars compares only equal time zones.

    Datetimes without a time zone are interpreted as local time in that zone. Other columns are unchanged.
    """
    zones = [dtype.time_zone for dtype in (column.dtype for column in columns) if isinstance(dtype, pl.Datetime)]
    zone = next((zone for zone in zones if zone is not None), None)
    return columns if len(set(zones)) < 2 or zone is None else tuple(_in_one_zone(column, zone) for column in columns)


def _in_one_zone(column: pl.Series, zone: str) -> pl.Series:
    if not isinstance(column.dtype, pl.Datetime):
        return column
    if column.dtype.time_zone is None:
        return column.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    return column.dt.convert_time_zone(zone)


def _ticks(values: pl.Series, unit: int) -> pl.Series:
    """Return values times a unit as integers; null where they do not fit into 64 bits."""
    products = values.cast(pl.Int64, strict=False) * unit if values.dtype.is_integer() else (values * unit).round()
    return products.cast(pl.Int64, strict=False)


def _finite(values: pl.Series) -> pl.Series:
    return values.set(~values.is_finite(), None) if len(values) else values


def _modulo(values: pl.Series, divisor: int) -> pl.Series:
    return ((values % divisor) + divisor) % divisor


def _round(values: pl.Series, digits: pl.Series | None = None) -> pl.Series:
    n_digits = 0 if digits is None else int(digits[0])
    if n_digits >= 0:
        return values.cast(pl.Float64).round(n_digits)
    return (values.cast(pl.Float64) / 10.0**-n_digits).round(0) * 10.0**-n_digits


def _extreme(largest: bool) -> Callable[..., pl.Series]:
    def apply(*values: pl.Series) -> pl.Series:
        n_rows = next((len(v) for v in values if len(v) != 1), 1)  # a constant has one row
        columns = [v.new_from_index(0, n_rows) if len(v) == 1 else v for v in in_one_zone(*values)]
        frame = pl.DataFrame({str(i): v for i, v in enumerate(columns)})
        extreme = pl.max_horizontal(pl.all()) if largest else pl.min_horizontal(pl.all())  # ignores nulls
        return frame.select(extreme.alias("")).to_series()

    return apply


def _duration(unit: str) -> Callable[[pl.Series], pl.Series]:
    def apply(values: pl.Series) -> pl.Series:
        return _ticks(values, MICROSECONDS[unit]).cast(pl.Duration("us"))

    return apply


def _in_units(unit: str) -> Callable[[pl.Series], pl.Series]:
    def apply(values: pl.Series) -> pl.Series:
        return values.cast(pl.Duration("us"), strict=False).to_physical().cast(pl.Float64) / MICROSECONDS[unit]

    return apply


def _part(name: str) -> Callable[[pl.Series], pl.Series]:
    return lambda values: getattr(values.dt, name)().cast(pl.Int64)


def _date(values: pl.Series) -> pl.Series:
    if values.dtype == pl.String:
        return _read_datetime(values).dt.date()
    return values.dt.date() if isinstance(values.dtype, pl.Datetime) else values


def _read_datetime(values: pl.Series) -> pl.Series:
    """Parse ISO 8601 dates and datetimes, ignoring UTC offsets; other texts become null."""
    local_texts = values.str.strip_chars().str.replace(r"(Z|[+-]\d\d:?\d\d)$", "").str.replace("T", " ", literal=True)
    formats = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%d")
    timestamps = local_texts.str.to_datetime(formats[0], strict=False, time_unit="us")
    for text_format in formats[1:]:
        more_timestamps = (
            local_texts.str.to_datetime(text_format, strict=False, time_unit="us")
            if "%H" in text_format
            else local_texts.str.to_date(text_format, strict=False).cast(pl.Datetime("us"))
        )
        timestamps = timestamps.zip_with(timestamps.is_not_null(), more_timestamps)
    return timestamps


def _in_zone(values: pl.Series, zone: pl.Series) -> pl.Series:
    """Return the local time in a time zone; datetimes without a time zone are interpreted as UTC."""
    timestamps = values.cast(pl.Datetime("us", getattr(values.dtype, "time_zone", None)))
    return clock_in_zone(timestamps, str(zone[0]))


def _epoch(ticks: int) -> Callable[[pl.Series], pl.Series]:
    def apply(values: pl.Series) -> pl.Series:
        zone = getattr(values.dtype, "time_zone", None)
        return values.cast(pl.Datetime("us", zone)).to_physical().cast(pl.Int64) // ticks

    return apply


def _from_epoch(ticks: int) -> Callable[[pl.Series], pl.Series]:
    return lambda values: _ticks(values, ticks).cast(pl.Datetime("us"))


def _truncate(every: str) -> Callable[[pl.Series], pl.Series]:
    """Truncate to hours, months and so on in local time; null where local time skips the start."""

    def apply(values: pl.Series) -> pl.Series:
        zone = getattr(values.dtype, "time_zone", None)
        if zone is None:
            return values.dt.truncate(every)
        local_time = values.dt.replace_time_zone(None)
        local_start = local_time.dt.truncate(every)
        if every == "1h":
            return values - (local_time - local_start)  # correct in repeated hours, too
        return local_start.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")

    return apply


def _before(values: pl.Series, separator: pl.Series) -> pl.Series:
    return values.str.splitn(str(separator[0]), 2).struct.field("field_0")


def _after(values: pl.Series, separator: pl.Series) -> pl.Series:
    return values.str.splitn(str(separator[0]), 2).struct.field("field_1")


def _text(values: pl.Series) -> pl.Series:
    if values.dtype.is_float():
        integers = values.cast(pl.Int64, strict=False)
        return integers.cast(pl.String).zip_with(
            (integers.cast(pl.Float64) == values).fill_null(False), values.cast(pl.String)
        )
    return values.cast(pl.String)


def _pad(values: pl.Series, width: pl.Series) -> pl.Series:
    return _text(values).str.zfill(int(width[0]))


def _date_text(values: pl.Series, form: pl.Series) -> pl.Series:
    return values.dt.to_string(str(form[0]))


def _date_from(values: pl.Series, form: pl.Series) -> pl.Series:
    """Read texts of a format as datetimes; times are on 1970-01-01, and other texts become null."""
    if tokens(str(form[0])) is None:
        raise OptionError(f'date_from: {form[0]!r} is not a format of dates. Write it as in "%m/%d/%Y %H:%M".')
    dates = read_dates(values, str(form[0]))
    if dates.dtype == pl.Time:
        return (dates.to_physical() // 1_000).cast(pl.Datetime("us"))
    return dates.cast(pl.Datetime("us"))


def _one(takes: tuple[str, ...], gives: str, apply: Callable[..., pl.Series]) -> Function:
    return Function((1, 1), (takes,), gives, apply)


def _two(takes: tuple[str, ...], second: tuple[str, ...], gives: str, apply: Callable[..., pl.Series]) -> Function:
    return Function((2, 2), (takes, second), gives, apply)


TEXT = ("text",)
FUNCTIONS: dict[str, Function] = {
    "round": Function((1, 2), (NUMBERS, ("integer",)), "number", _round),
    "floor": _one(NUMBERS, "number", lambda v: v.cast(pl.Float64).floor()),
    "ceil": _one(NUMBERS, "number", lambda v: v.cast(pl.Float64).ceil()),
    "one_of": Function((1, 16), (("integer", "number"),), "number", lambda *v: v[0]),
    "abs": _one(NUMBERS, "first", lambda v: v.abs()),
    "min": Function((2, 8), ((*NUMBERS, *DAYS, "duration", "time"),), "first", _extreme(False)),
    "max": Function((2, 8), ((*NUMBERS, *DAYS, "duration", "time"),), "first", _extreme(True)),
    **{name: _one(DAYS, "integer", _part(name)) for name in ("year", "month", "day", "weekday", "quarter", "week")},
    "day_of_year": _one(DAYS, "integer", _part("ordinal_day")),
    **{name: _one(CLOCKS, "integer", _part(name)) for name in ("hour", "minute", "second")},
    "date": _one((*DAYS, "text"), "date", _date),
    "datetime": _one(TEXT, "datetime", _read_datetime),
    "time": _one(("datetime",), "time", lambda v: v.dt.time()),
    "hour_start": _one(("datetime",), "first", _truncate("1h")),
    "month_start": _one(DAYS, "first", _truncate("1mo")),
    "quarter_start": _one(DAYS, "first", _truncate("1q")),
    "year_start": _one(DAYS, "first", _truncate("1y")),
    "in_zone": _two(("datetime",), TEXT, "datetime", _in_zone),
    **{unit: _one(NUMBERS, "duration", _duration(unit)) for unit in MICROSECONDS},
    **{f"in_{unit}": _one(("duration",), "number", _in_units(unit)) for unit in MICROSECONDS},
    "epoch_seconds": _one(DAYS, "integer", _epoch(1_000_000)),
    "epoch_milliseconds": _one(DAYS, "integer", _epoch(1_000)),
    "from_epoch_seconds": _one(NUMBERS, "datetime", _from_epoch(1_000_000)),
    "from_epoch_milliseconds": _one(NUMBERS, "datetime", _from_epoch(1_000)),
    "clock": _one(NUMBERS, "integer", clock),
    "clock24": _one(NUMBERS, "integer", clock24),
    "clock_minutes": _one(NUMBERS, "integer", clock_minutes),
    "upper": _one(TEXT, "text", lambda v: v.str.to_uppercase()),
    "lower": _one(TEXT, "text", lambda v: v.str.to_lowercase()),
    "title": _one(TEXT, "text", lambda v: v.str.to_titlecase()),
    "strip": _one(TEXT, "text", lambda v: v.str.strip_chars()),
    "before": _two(TEXT, TEXT, "text", _before),
    "after": _two(TEXT, TEXT, "text", _after),
    "left": _two(TEXT, ("integer",), "text", lambda v, n: v.str.head(int(n[0]))),
    "right": _two(TEXT, ("integer",), "text", lambda v, n: v.str.tail(int(n[0]))),
    "text": _one((*NUMBERS, *DAYS, "text"), "text", _text),
    "pad": _two((*NUMBERS, "text"), ("integer",), "text", _pad),
    "date_from": _two(TEXT, TEXT, "datetime", _date_from),
    "date_text": _two((*DAYS, "time"), TEXT, "text", _date_text),
}
