"""Parse conditions given on the command line into values of a column's dtype.

A level may contain any character, so only `..` has a special meaning, and only in numbers and times.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from arf_dask.data.value_sets import Interval
from arf_dask.errors import OptionError, unknown_column

Dtypes = Mapping[str, pl.DataType]
ENDS = {"low", "high", "closed"}
_UNITS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SHORT = re.compile(r"(\d+(?:\.\d+)?)(ms|us|ns|w|d|h|m|s)")
_ISO = re.compile(
    r"P(?:(?P<w>[\d.]+)W)?(?:(?P<d>[\d.]+)D)?(?:T(?:(?P<h>[\d.]+)H)?(?:(?P<m>[\d.]+)M)?(?:(?P<s>[\d.]+)S)?)?"
)


def read_given(texts: Sequence[str], dtypes: Dtypes) -> dict[str, Any]:
    """Parse `column=value` texts into a condition; repeated columns give alternatives.

    >>> dtypes = {"age": pl.Int64(), "sex": pl.String(), "bonus": pl.Int8()}
    >>> read_given(["age=30..40", "sex=f", "sex=m", "bonus="], dtypes)
    {'age': (30, 40), 'sex': ['f', 'm'], 'bonus': None}
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        name, value = _split(text, dtypes)
        found.setdefault(name, []).append(_parse_value(value, dtypes[name], f"given: {name!r}"))
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def read_given_json(text: str, dtypes: Dtypes) -> Any:
    """Parse a JSON condition: values, null, lists of choices, {"low": .., "high": ..}; or a list of such objects."""
    try:
        given = json.loads(text)
    except ValueError as error:
        raise OptionError(f'given as JSON: {error}. Give an object such as {{"sex": "f"}}.') from error
    alternatives = given if isinstance(given, list) else [given]
    if not alternatives or not all(isinstance(one, dict) for one in alternatives):
        raise OptionError("given as JSON: give an object of column to value, or a list of such objects.")
    read = [{name: _from_json(value, name, dtypes) for name, value in one.items()} for one in alternatives]
    return read if isinstance(given, list) else read[0]


def read_conditions(frame: pl.DataFrame, dtypes: Dtypes, where: str = "given") -> pl.DataFrame:
    """Cast a frame of conditions or rows, as read from a file, to the model's dtypes."""
    columns = {}
    for name in frame.columns:
        dtype = _dtype(name, dtypes)
        series = frame[name]
        try:
            if series.dtype == dtype:
                columns[name] = series
            elif series.dtype == pl.String:
                values = [None if text is None else read_value(text, dtype, f"{where}: {name!r}") for text in series]
                columns[name] = pl.Series(name, values, dtype=dtype)
            else:
                columns[name] = series.cast(dtype)
        except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
            if isinstance(error, OptionError):
                raise
            raise OptionError(f"{where}: {name!r} is {series.dtype}, and cannot become {dtype}: {error}") from error
    return pl.DataFrame(columns)


def read_value(text: str, dtype: pl.DataType, where: str) -> Any:
    """Parse a value of a dtype. Raises an OptionError with an example for invalid text."""
    if isinstance(dtype, pl.String | pl.Categorical | pl.Enum):
        return text
    reader, example = _reader(dtype)
    try:
        return reader(text.strip())
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise OptionError(f"{where} is {dtype}, and {text!r} is not. Write it as {example}.") from error


def _split(text: str, dtypes: Dtypes) -> tuple[str, str]:
    """Split a text into column and value. Column names may contain "=": the longest matching name wins."""
    names = [name for name in dtypes if text.startswith(f"{name}=")]
    if names:
        name = max(names, key=len)
        return name, text[len(name) + 1 :]
    name, sign, _ = text.partition("=")
    if not sign:
        raise OptionError(f"given: {text!r} is not understood. Write column=value, column=low..high or column=.")
    raise unknown_column(name, dtypes, "given")


def _parse_value(text: str, dtype: pl.DataType, where: str) -> Any:
    if text == "":
        return None
    if ".." in text and (dtype.is_numeric() or dtype.is_temporal()):
        low, _, high = text.partition("..")
        return tuple(None if end == "" else read_value(end, dtype, where) for end in (low, high))
    return read_value(text, dtype, where)


def _from_json(value: Any, name: str, dtypes: Dtypes) -> Any:
    dtype, where = _dtype(name, dtypes), f"given: {name!r}"
    if isinstance(value, list):
        return [_from_json(one, name, dtypes) for one in value]
    if isinstance(value, dict):
        if not value or not set(value) <= ENDS:
            raise OptionError(f'{where}: an interval is {{"low": .., "high": ..}}, either may be left out.')
        low, high = (_from_json(value.get(end), name, dtypes) for end in ("low", "high"))
        return Interval(low, high, value.get("closed", "both"))
    if isinstance(value, str) or (isinstance(value, float) and isinstance(dtype, pl.Decimal)):
        return read_value(str(value), dtype, where)
    return value


def _dtype(name: str, dtypes: Dtypes) -> pl.DataType:
    if name not in dtypes:
        raise unknown_column(name, dtypes, "given")
    return dtypes[name]


def _reader(dtype: pl.DataType) -> tuple[Callable[[str], Any], str]:
    """Return a parser for a dtype, and an example text."""
    if isinstance(dtype, pl.Boolean):
        return _boolean, "true or false"
    if isinstance(dtype, pl.Decimal):
        return Decimal, "9.99"
    if isinstance(dtype, pl.Date):
        return dt.date.fromisoformat, "2024-02-29"
    if isinstance(dtype, pl.Time):
        return dt.time.fromisoformat, "23:59:59"
    if isinstance(dtype, pl.Duration):
        return _duration, "90s, 1h30m or PT90S"
    if isinstance(dtype, pl.Datetime):
        zone = dtype.time_zone
        return lambda text: _datetime(text, zone), "2024-02-29T23:59:59" + ("+01:00" if zone is not None else "")
    if dtype.is_integer():
        return int, "42"
    return float, "1.5"


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _datetime(text: str, zone: str | None) -> dt.datetime:
    """Parse a time. Without an offset, it is in the column's zone; an offset requires a column with a zone."""
    value = dt.datetime.fromisoformat(text)
    if zone is None and value.tzinfo is not None:
        raise ValueError(text)
    return value.replace(tzinfo=ZoneInfo(zone)) if zone is not None and value.tzinfo is None else value


def _duration(text: str) -> dt.timedelta:
    """Parse a duration, in short form or ISO 8601.

    >>> [str(_duration(text)) for text in ("90s", "1h30m", "P1DT2H", "-2d", "0.5s")]
    ['0:01:30', '1:30:00', '1 day, 2:00:00', '-2 days, 0:00:00', '0:00:00.500000']
    """
    sign, bare = (-1, text[1:]) if text.startswith("-") else (1, text)
    iso = _ISO.fullmatch(bare)
    if iso is not None and any(iso.groupdict().values()):
        pieces = [(float(number), unit) for unit, number in iso.groupdict().items() if number]
    elif bare and _SHORT.sub("", bare) == "":
        pieces = [(float(number), unit) for number, unit in _SHORT.findall(bare)]
    else:
        raise ValueError(text)
    return sign * sum((dt.timedelta(seconds=number * _UNITS[unit]) for number, unit in pieces), dt.timedelta())
