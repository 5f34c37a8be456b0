"""Single values from a caller, read as a token or as an exact place on a column's axis, or refused with a reason."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from arf_dask.axis import FLOATS, Axis
from arf_dask.errors import OptionError
from arf_dask.profile import text_of
from arf_dask.schema import FIRST_LEVEL, Column

NANOSECONDS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
SHOWN_LEVELS = 5


def level_token(value: Any, column: Column, where: str) -> int:
    """The token of a level; an error with the nearest levels where there is none."""
    right_type: Any = (bool, np.bool_) if column.dtype == pl.Boolean else str
    numeric = column.dtype.is_numeric() or column.dtype.is_temporal()
    if not numeric and not isinstance(value, right_type):
        right = "True or False" if column.dtype == pl.Boolean else "a string"
        raise OptionError(f"{where} is {column.dtype}, and {value!r} is a {type(value).__name__}. Give {right}.")
    try:
        text = text_of(pl.Series([value], dtype=column.dtype if numeric else None))[0]
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise OptionError(f"{where} is {column.dtype}, and {value!r} is a {type(value).__name__}.") from error
    levels = text_of(column.levels).to_list()
    if text not in levels:
        near = get_close_matches(str(text), levels, n=SHOWN_LEVELS)
        if near:
            hint = f"Did you mean {', '.join(map(repr, near))}?"
        else:
            more = ", .." if len(levels) > SHOWN_LEVELS else ""
            hint = f"There are {', '.join(map(repr, levels[:SHOWN_LEVELS]))}{more}."
        raise OptionError(f"{where}: the level {value!r} was never seen. {hint}")
    return FIRST_LEVEL + levels.index(text)


def number_place(value: Any, column: Column, where: str, *, exact: bool) -> Fraction | float:
    """The place of a number, date or duration on the column's axis: exact on a grid.

    An `exact` value is taken to the column's own precision first; the end of an interval is not.
    """
    axis = column.axis
    assert axis is not None
    value = value.item() if isinstance(value, np.generic) else value
    if axis.grid:
        physical = _physical(value, column, where)
        return physical if isinstance(physical, float) else _grid_place(physical, axis)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong_type(value, column, where, "a number")
    number = float(value)
    if math.isnan(number):
        raise OptionError(f"{where}: NaN is no end of an interval. Give a number, or None for an open end.")
    if exact and column.dtype in FLOATS:
        number = float(pl.Series([number]).cast(column.dtype).cast(pl.Float64)[0])
    return math.ldexp(number, -axis.exponent)


def _grid_place(physical: Fraction, axis: Axis) -> Fraction:
    return (physical / Fraction(2**axis.shift) - axis.origin) / axis.step


def _physical(value: Any, column: Column, where: str) -> Fraction | float:
    """The number that Polars holds for a value, with a fraction where it is finer than the column."""
    dtype = column.dtype
    if dtype.is_temporal():
        return _temporal(value, column, where)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise _wrong_type(value, column, where, "a number")
    if isinstance(value, float | Decimal) and not math.isfinite(value):
        if math.isnan(value):
            raise _wrong_type(value, column, where, "a number, or None for missing")
        return float(value)
    if isinstance(dtype, pl.Decimal):
        # 9.99 means the decimal, not the float nearest to it.
        return Fraction(str(value)) * Fraction(10**dtype.scale)
    return Fraction(value)


def _temporal(value: Any, column: Column, where: str) -> Fraction:
    dtype = column.dtype
    if isinstance(dtype, pl.Date):
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return Fraction((value - dt.date(1970, 1, 1)).days)
        raise _wrong_type(value, column, where, "a datetime.date")
    if isinstance(dtype, pl.Time):
        if isinstance(value, dt.time):
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return Fraction(seconds * 1_000_000_000 + value.microsecond * 1_000)
        raise _wrong_type(value, column, where, "a datetime.time")
    if isinstance(dtype, pl.Duration):
        if isinstance(value, dt.timedelta):
            return _in_unit(value, dtype.time_unit)
        raise _wrong_type(value, column, where, "a datetime.timedelta")
    assert isinstance(dtype, pl.Datetime)
    if not isinstance(value, dt.datetime):
        raise _wrong_type(value, column, where, "a datetime.datetime")
    if (value.tzinfo is None) != (dtype.time_zone is None):
        right = "one with a time zone" if dtype.time_zone else "one without a time zone"
        raise _wrong_type(value, column, where, right)
    zone = None if value.tzinfo is None else dt.UTC
    return _in_unit(value - dt.datetime(1970, 1, 1, tzinfo=zone), dtype.time_unit)


def _in_unit(value: dt.timedelta, unit: str | None) -> Fraction:
    micro = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return Fraction(micro * 1_000, NANOSECONDS[unit or "us"])


def _wrong_type(value: Any, column: Column, where: str, right: str) -> OptionError:
    return OptionError(f"{where} is {column.dtype}, and {value!r} is a {type(value).__name__}. Give {right}.")
