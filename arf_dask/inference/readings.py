"""Conversion of single values given by the caller into tokens or exact axis values, with error messages."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS, Axis
from arf_dask.data.levels import text_of
from arf_dask.errors import OptionError
from arf_dask.schema.columns import FIRST_LEVEL, Column

NANOSECONDS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
SHOWN_LEVELS = 5


def level_token(value: Any, column: Column, where: str) -> int:
    """Return the token of a level; raise an OptionError that suggests similar levels if it is unknown."""
    right_type: Any = (bool, np.bool_) if column.dtype == pl.Boolean else str
    is_numeric = column.dtype.is_numeric() or column.dtype.is_temporal()
    if not is_numeric and not isinstance(value, right_type):
        expected_type = "True or False" if column.dtype == pl.Boolean else "a string"
        raise OptionError(
            f"{where} is {column.dtype}, and {value!r} is a {type(value).__name__}. Give {expected_type}."
        )
    try:
        text = text_of(pl.Series([value], dtype=column.dtype if is_numeric else None))[0]
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise OptionError(f"{where} is {column.dtype}, and {value!r} is a {type(value).__name__}.") from error
    levels = text_of(column.levels).to_list()
    if text not in levels:
        close_levels = get_close_matches(str(text), levels, n=SHOWN_LEVELS)
        if close_levels:
            hint = f"Did you mean {', '.join(map(repr, close_levels))}?"
        else:
            more_levels = ", .." if len(levels) > SHOWN_LEVELS else ""
            hint = f"There are {', '.join(map(repr, levels[:SHOWN_LEVELS]))}{more_levels}."
        raise OptionError(f"{where}: the level {value!r} was never seen. {hint}")
    return FIRST_LEVEL + levels.index(text)


def number_place(value: Any, column: Column, where: str, *, exact: bool) -> Fraction | float:
    """Return the axis value of a number, date or duration, as an exact fraction on a grid.

    With `exact`, the value is first rounded to the precision of the column; interval ends are not.
    """
    axis = column.axis
    assert axis is not None
    value = value.item() if isinstance(value, np.generic) else value
    if axis.grid:
        physical_value = _physical(value, column, where)
        return physical_value if isinstance(physical_value, float) else _grid_place(physical_value, axis)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong_type(value, column, where, "a number")
    float_value = float(value)
    if math.isnan(float_value):
        raise OptionError(f"{where}: NaN is no end of an interval. Give a number, or None for an open end.")
    if exact and column.dtype in FLOATS:
        float_value = float(pl.Series([float_value]).cast(column.dtype).cast(pl.Float64)[0])
    return math.ldexp(float_value, -axis.exponent)


def _grid_place(physical: Fraction, axis: Axis) -> Fraction:
    return (physical / Fraction(2**axis.shift) - axis.origin) / axis.step


def _physical(value: Any, column: Column, where: str) -> Fraction | float:
    """Return the physical Polars representation of a value, fractional if it is finer than the column's resolution."""
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
        # 9.99 means the decimal number, not the nearest float.
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
        expected_kind = "one with a time zone" if dtype.time_zone else "one without a time zone"
        raise _wrong_type(value, column, where, expected_kind)
    time_zone = None if value.tzinfo is None else dt.UTC
    return _in_unit(value - dt.datetime(1970, 1, 1, tzinfo=time_zone), dtype.time_unit)


def _in_unit(value: dt.timedelta, unit: str | None) -> Fraction:
    total_microseconds = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return Fraction(total_microseconds * 1_000, NANOSECONDS[unit or "us"])


def _wrong_type(value: Any, column: Column, where: str, right: str) -> OptionError:
    return OptionError(f"{where} is {column.dtype}, and {value!r} is a {type(value).__name__}. Give {right}.")
