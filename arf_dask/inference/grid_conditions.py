"""Translation of conditions on columns of a grid into conditions on what is modelled: indices, dates, days."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import polars as pl

from arf_dask.errors import OptionError
from arf_dask.inference.conditions import Interval, is_choices
from arf_dask.inference.given_values import fitting_value
from arf_dask.rules.transforms.grid import Indexed
from arf_dask.rules.transforms.hours import Hourless
from arf_dask.rules.transforms.texts import Dated


def indexed_condition(known: Any, indexed: Indexed) -> Any:
    """Translate a condition on grid values into one on grid indices."""
    if known is None:
        return None
    if is_choices(known) and not isinstance(known, tuple):
        return [indexed_condition(choice, indexed) for choice in known]
    known = Interval(*known) if isinstance(known, tuple) and len(known) == 2 else known
    where, dtype = f"given: {indexed.target.name!r}", indexed.target.dtype
    value_ends = (known.low, known.high) if isinstance(known, Interval) else (known, known)
    for end_value in value_ends:
        if end_value is not None:
            fitting_value(end_value, dtype, where)
    grid_index = [
        None if end_value is None else indexed.index(pl.Series([end_value], dtype=dtype))[0] for end_value in value_ends
    ]
    if grid_index[0] is not None and indexed.value(pl.Series([grid_index[0]]))[0] != value_ends[0]:
        grid_index[0] += 1  # the first grid point at or above the lower end
    return (
        (grid_index[0], grid_index[1])
        if grid_index[0] is None or grid_index[1] is None or grid_index[0] <= grid_index[1]
        else (grid_index[0], grid_index[0])
    )


def dated_condition(known: Any, dated: Dated) -> Any:
    """Translate a condition on date strings into one on dates."""
    given_texts = [known] if known is None or isinstance(known, str) else known
    if isinstance(given_texts, tuple | Interval) or not is_choices(given_texts):
        raise OptionError(f"given: {dated.target.name!r} has texts, not numbers. Give a text, or a list of texts.")
    text_list = list(given_texts)
    for date_text in text_list:
        if date_text is not None:
            fitting_value(date_text, pl.String(), f"given: {dated.target.name!r}")
    dates = dated.dates(pl.Series(text_list, dtype=pl.String)).to_list()
    unparsed_texts = [
        date_text for date_text, date in zip(text_list, dates, strict=True) if date_text is not None and date is None
    ]
    if unparsed_texts:
        raise OptionError(
            f"given: {dated.target.name!r}: {unparsed_texts[0]!r} is not written as {dated.form}, as all values are."
        )
    return dates if len(dates) > 1 else dates[0]


def hourless_condition(known: Any, timestamps: Hourless) -> Any:
    """Translate a condition on timestamps into a necessary one on timestamps without their hour."""
    if timestamps.form:
        known = dated_condition(known, Dated(timestamps.target, timestamps.form))
    dtype = pl.Datetime("us") if timestamps.form else timestamps.target.dtype
    plain = replace(timestamps, form="", target=replace(timestamps.target, dtype=dtype))
    if known is None:
        return None
    if is_choices(known) and not isinstance(known, tuple | Interval):
        return [_without_hour_of(choice, plain) for choice in known]
    return _without_hour_of(known, plain)


def _without_hour_of(known: Any, timestamps: Hourless) -> Any:
    if known is None:
        return None
    is_range = isinstance(known, tuple | Interval)
    known = Interval(*known) if isinstance(known, tuple) else known
    ends = (known.low, known.high) if is_range else (known, known)
    where = f"given: {timestamps.target.name!r}"
    values = [None if end is None else fitting_value(end, timestamps.target.dtype, where) for end in ends]
    local_ends = timestamps.local_time(pl.Series(values, dtype=timestamps.target.dtype))
    if not is_range:
        return timestamps.without_hour(pl.Series(values[:1], dtype=timestamps.target.dtype))[0]
    days = local_ends.dt.truncate("1d").to_list()
    return days[0], None if days[1] is None else days[1] + timedelta(hours=1)
