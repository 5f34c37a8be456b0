"""Dates and times written as text: read and write one format.

A format is a text in the notation of strftime. Fields have a fixed width and are padded with zeros; `%-d` is not
padded, `%e` is padded with a space, `%^b` is in capitals, `%~p` in small letters, `%3f` has three digits. `%(1930)y` is
a year of two digits between 1930 and 2029, `%(Europe/Berlin)z` the offset of a time zone, and `%q` a quarter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import polars as pl

FIRST_YEAR = 1969  # of years of two digits, if the format does not say it: 69 is 1969 and 68 is 2068
MONTHS = [
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    *("November", "December"),
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
CLOCK = "HIMSf"
_TOKEN = re.compile(r"%(?:\(([^)]*)\))?([-^~]?)(\.?)(\d?)(:?)([A-Za-z%])|([^%]+)")
_DIGITS = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "I": 2, "M": 2, "S": 2}
_NAMES = {"b": [name[:3] for name in MONTHS], "B": MONTHS, "a": [name[:3] for name in WEEKDAYS], "A": WEEKDAYS}
_NAMES |= {"p": ["AM", "PM"]}
_DAY_US = 86_400_000_000


class Token(NamedTuple):
    """A field of a format, or text that every value has (`kind` is empty)."""

    kind: str
    text: str = ""  # literal text
    detail: str = ""  # first year of two-digit years, or time zone of offsets
    flag: str = ""  # "-" no padding, "^" capitals, "~" small letters
    width: int = 0  # digits of a fraction
    colon: bool = False  # of an offset


@lru_cache(maxsize=256)
def tokens(form: str) -> tuple[Token, ...] | None:
    """Return the fields and literal texts of a format, or None if it is not one.

    >>> [token.kind or token.text for token in tokens("%d.%m.%Y") or ()]
    ['d', '.', 'm', '.', 'Y']
    """
    found: list[Token] = []
    position = 0
    for match in _TOKEN.finditer(form):
        detail, flag, dot, digits, colon, kind, literal = match.groups()
        if match.start() != position:
            return None
        position = match.end()
        if literal or kind == "%":
            found.append(Token("", literal or "%"))
        elif not _is_field(kind, detail or "", flag, digits, colon):
            return None
        else:
            found += [Token("", ".")] if dot else []
            found.append(Token(kind, "", detail or "", flag, int(digits or 0), bool(colon)))
    kinds = [token.kind for token in found if token.kind]
    has_date = ("Y" in kinds or "y" in kinds) and bool({"m", "b", "B", "q"} & set(kinds))
    has_clock = bool({"H", "I"} & set(kinds)) and ("I" in kinds) == ("p" in kinds)
    is_whole = position == len(form) and len(set(kinds)) == len(kinds) and (has_date or has_clock)
    return tuple(found) if is_whole else None


def _is_field(kind: str, detail: str, flag: str, digits: str, colon: str) -> bool:
    is_known = kind in _DIGITS or kind in _NAMES or kind in "efqz"
    is_known = is_known and (flag != "-" or kind in "mdHI") and (flag in ("", "-") or kind in _NAMES)
    is_known = is_known and (kind == "f") == bool(digits and digits != "0") and (not colon or kind == "z")
    if kind == "z":
        return is_known and is_zone(detail)
    return is_known and (not detail or (kind == "y" and re.fullmatch(r"[12]\d{3}", detail) is not None))


def form_dtype(form: str) -> pl.DataType:
    """Return the type of the values that texts of a format stand for: a date, a datetime or a time.

    >>> form_dtype("%H:%M"), form_dtype("%Y-%m")
    (Time, Date)
    """
    kinds = {token.kind for token in tokens(form) or ()}
    if not kinds & {"Y", "y"}:
        return pl.Time()
    return pl.Datetime("us") if kinds & set(CLOCK) else pl.Date()


def sorts_as_text(form: str) -> bool:
    """Whether texts of a format have the order of their dates: year first, and every field of a fixed width.

    >>> sorts_as_text("%Y-%m-%d %H:%M"), sorts_as_text("%m/%d/%Y"), sorts_as_text("%Y-%-m")
    (True, False, False)
    """
    fields = [token for token in tokens(form) or () if token.kind]
    return "YmdHMSf".startswith("".join(token.kind for token in fields)) and not any(token.flag for token in fields)


def read_dates(texts: pl.Series, form: str) -> pl.Series:
    """Parse text of one format as dates, datetimes or times; anything else becomes null.

    >>> read_dates(pl.Series(["4-Dec-05", "31-Feb-05"]), "%-d-%b-%y").to_list()
    [datetime.date(2005, 12, 4), None]
    """
    texts = texts.alias("").cast(pl.String)
    found = tokens(form) or ()
    fields = [token for token in found if token.kind]
    groups = texts.to_frame("t").select(pl.col("t").str.extract_groups(_pattern(found)).struct.unnest())
    values = groups.select(_number(pl.col(f"f{place}"), token).alias(token.kind) for place, token in enumerate(fields))
    dtype = form_dtype(form)
    clock = _clock_ticks(set(values.columns))
    if dtype == pl.Time:
        ticks = values.select(pl.when(clock.is_between(0, _DAY_US - 1)).then(clock * 1_000)).to_series()
        return ticks.cast(pl.Time).alias("")
    days = _days(set(values.columns))
    if dtype == pl.Date:
        return values.select(days.cast(pl.Int32).cast(pl.Date)).to_series().alias("")
    return values.select((days * _DAY_US + clock).cast(pl.Datetime("us"))).to_series().alias("")


def write_dates(dates: pl.Series, form: str) -> pl.Series:
    """Format dates, datetimes or times as text."""
    found = tokens(form) or ()
    frame = dates.alias("t").to_frame()
    return frame.select(pl.concat_str([_text(token) for token in found])).to_series().alias(dates.name)


def in_form(texts: pl.Series, form: str) -> pl.Series:
    """Flag the texts that reading and writing in a format gives back; nulls are not flagged."""
    texts = texts.alias("").cast(pl.String)
    return (write_dates(read_dates(texts, form), form) == texts).fill_null(False)


def clock_in_zone(instants: pl.Series, zone: str) -> pl.Series:
    """Return what the clocks of a time zone show, without a zone; instants without a zone are in UTC.

    >>> from datetime import datetime
    >>> clock_in_zone(pl.Series([datetime(2024, 7, 1, 12)]), "Europe/Berlin").to_list()
    [datetime.datetime(2024, 7, 1, 14, 0)]
    """
    if getattr(instants.dtype, "time_zone", None) is None:
        instants = instants.dt.replace_time_zone("UTC")
    return instants.dt.convert_time_zone(zone).dt.replace_time_zone(None)


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


def _pattern(found: tuple[Token, ...]) -> str:
    """Return the regular expression of a format, with a named group for every field."""

    def parts() -> Iterator[str]:
        place = 0
        for token in found:
            if not token.kind:
                yield re.escape(token.text)
                continue
            yield f"(?P<f{place}>{_field_pattern(token)})"
            place += 1

    return f"^{''.join(parts())}$"


def _field_pattern(token: Token) -> str:
    if token.kind in _NAMES:
        return "|".join(_names(token))
    if token.kind == "z":
        return "[+-][0-9]{2}:[0-9]{2}" if token.colon else "[+-][0-9]{4}"
    if token.kind == "e":
        return "[ 0-9][0-9]"
    if token.flag == "-":
        return "[0-9]{1,2}"
    return f"[0-9]{{{token.width or _DIGITS.get(token.kind, 1)}}}"


def _names(token: Token) -> list[str]:
    """Return the words of a field in its case."""
    names = _NAMES[token.kind]
    return [{"^": str.upper, "~": str.lower}.get(token.flag, str)(name) for name in names]


def _number(text: pl.Expr, token: Token) -> pl.Expr:
    """Return the number of a field: names count from 1, years have four digits, fractions are microseconds."""
    if token.kind in _NAMES:
        names = _names(token)
        return text.replace_strict(names, range(1, len(names) + 1), default=None, return_dtype=pl.Int64)
    if token.kind == "z":
        return text.is_not_null().cast(pl.Int64)
    number: pl.Expr = text.str.strip_chars_start(" ").cast(pl.Int64, strict=False)
    if token.kind == "f":
        return number * 1_000_000 // int(10**token.width)
    if token.kind == "y":
        first = int(token.detail or FIRST_YEAR)
        return first + (number - first) % 100
    return number


def _days(kinds: set[str]) -> pl.Expr:
    """Return days since 1970-01-01 (Howard Hinnant's days_from_civil); null for days that no month has."""
    year = pl.col("Y" if "Y" in kinds else "y")
    month = pl.col("q") * 3 - 2 if "q" in kinds else pl.col(next(kind for kind in "mbB" if kind in kinds))
    day = pl.col(next(kind for kind in "de" if kind in kinds)) if kinds & {"d", "e"} else pl.lit(1)
    is_leap = ((year % 4 == 0) & (year % 100 != 0)) | (year % 400 == 0)
    last_day = pl.when(month == 2).then(28 + is_leap.cast(pl.Int64)).otherwise(30 + (month + month // 8) % 2)
    is_valid = month.is_between(1, 12) & day.is_between(1, last_day) & (year >= 1)
    shifted_year = year - (month <= 2).cast(pl.Int64)
    year_of_era = shifted_year % 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return pl.when(is_valid).then(shifted_year // 400 * 146_097 + day_of_era - 719_468)


def _clock_ticks(kinds: set[str]) -> pl.Expr:
    """Return microseconds since midnight; null for times that no clock shows."""
    hour = pl.col("H") if "H" in kinds else pl.lit(0)
    is_valid = hour.is_between(0, 23)
    if "I" in kinds:
        hour = pl.col("I") % 12 + 12 * (pl.col("p") - 1)
        is_valid = pl.col("I").is_between(1, 12)
    minute, second, fraction = (pl.col(kind) if kind in kinds else pl.lit(0) for kind in "MSf")
    is_valid = is_valid & minute.is_between(0, 59) & second.is_between(0, 59)
    ticks = ((hour * 60 + minute) * 60 + second).cast(pl.Int64) * 1_000_000 + fraction
    return pl.when(is_valid).then(ticks)


def _text(token: Token) -> pl.Expr:
    """Return a field of the column "t" as text."""
    value = pl.col("t").dt
    match token.kind:
        case "":
            return pl.lit(token.text)
        case "b" | "B" | "a" | "A" | "p":
            place = value.month() if token.kind in "bB" else value.weekday()
            place = value.hour() // 12 + 1 if token.kind == "p" else place
            names = _names(token)
            return place.cast(pl.Int64).replace_strict(range(1, len(names) + 1), names, return_dtype=pl.String)
        case "z":
            return _offset(token)
        case "f":
            nanoseconds = value.nanosecond() // int(10 ** (9 - token.width))
            return nanoseconds.cast(pl.String).str.zfill(token.width)
        case "Y":
            return value.year().cast(pl.String).str.zfill(4)
        case "y":
            return (value.year() % 100).cast(pl.String).str.zfill(2)
        case "q":
            return value.quarter().cast(pl.String)
        case "e":
            return value.day().cast(pl.String).str.pad_start(2, " ")
    hour = value.hour()
    number = {"I": lambda: (hour + 11) % 12 + 1, "H": lambda: hour, "m": value.month, "d": value.day}.get(
        token.kind, value.minute if token.kind == "M" else value.second
    )()
    text = number.cast(pl.String)
    return text if token.flag == "-" else text.str.zfill(2)


def _offset(token: Token) -> pl.Expr:
    """Return the offset from UTC of the clocks of a time zone, as text."""
    local = pl.col("t").cast(pl.Datetime("us"))
    zoned = local.dt.replace_time_zone(token.detail, ambiguous="earliest", non_existent="null")
    minutes = (local - zoned.dt.convert_time_zone("UTC").dt.replace_time_zone(None)).dt.total_minutes()
    hours = (minutes.abs() // 60).cast(pl.String).str.zfill(2)
    rest = (minutes.abs() % 60).cast(pl.String).str.zfill(2)
    sign = pl.when(minutes < 0).then(pl.lit("-")).otherwise(pl.lit("+"))
    return pl.concat_str(sign, hours, pl.lit(":" if token.colon else ""), rest)
