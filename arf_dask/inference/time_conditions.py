"""Translation of conditions on timestamps into conditions on their days and times of day."""

from __future__ import annotations

from typing import Any

import polars as pl

from arf_dask.errors import OptionError
from arf_dask.inference.conditions import Interval, is_choices
from arf_dask.inference.given_values import fitting_value
from arf_dask.rules.transforms.times import Timed

MOST_ALTERNATIVES = 64


def part_conditions(known: Any, timed: Timed) -> list[dict[str, Any]]:
    """Return alternative conditions on the parts of a timestamp, one of which is necessary.

    They are exact for single instants and for intervals within a day. More than `MOST_ALTERNATIVES` instants are
    reduced to a condition on their days or weeks.
    """
    if known is None:
        return [dict.fromkeys(timed.names)]
    is_list = is_choices(known) and not isinstance(known, tuple | Interval)
    choices = list(known) if is_list else [known]
    if not choices:
        raise OptionError(f"given: {timed.target.name!r}: an empty list. Give at least one choice.")
    alternatives = [
        dict.fromkeys(timed.names) if choice is None else _range_conditions(choice, timed) for choice in choices
    ]
    if len(alternatives) <= MOST_ALTERNATIVES:
        return alternatives
    first_part = timed.names[0]
    return [{first_part: [ranges.get(first_part, (None, None)) for ranges in alternatives]}]


def _range_conditions(known: Any, timed: Timed) -> dict[str, Any]:
    """Return conditions on the parts for a single value or an interval."""
    known = Interval(*known) if isinstance(known, tuple) and len(known) == 2 else known
    if isinstance(known, Interval) and timed.form:
        raise OptionError(f"given: {timed.target.name!r} has texts, not numbers. Give a text, or a list of texts.")
    low_value, high_value = (known.low, known.high) if isinstance(known, Interval) else (known, known)
    lows, highs = _parts(low_value, timed), _parts(high_value, timed)
    conditions: dict[str, Any] = {}
    for name, low, high in zip(timed.names, lows, highs, strict=True):
        conditions[name] = (low, high)
        if low is None or low != high:
            break  # later parts are free inside the interval
    return {name: ends for name, ends in conditions.items() if ends != (None, None)}


def _parts(value: Any, timed: Timed) -> list[Any]:
    """Return the parts of one value as Python objects; None for an open end."""
    if value is None:
        return [None] * len(timed.names)
    where, dtype = f"given: {timed.target.name!r}", timed.target.dtype
    fitting_value(value, dtype, where)
    parts = [part[0] for part in timed.split(pl.Series([value], dtype=dtype)).values()]
    if parts[0] is None:
        raise OptionError(f"{where}: {value!r} is not written as {timed.form}, as all values are.")
    return parts
