"""Dates and times stored as text in one format."""

from __future__ import annotations

import polars as pl

FORMS = (
    "%Y-%m-%d",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%Y%m%d",
    "%b %d %Y",
    "%d %b %Y",
    "%Y-%m-%dT%H:%M:%S%.3fZ",
)
PROBE = 200
LEAST = 20


def has_clock(form: str) -> bool:
    """Whether a format includes a time of day."""
    return "%H" in form


def read_dates(texts: pl.Series, form: str) -> pl.Series:
    """Parse text of one format as dates or datetimes; anything else becomes null."""
    texts = texts.alias("").cast(pl.String)
    if has_clock(form):
        return texts.str.to_datetime(form, strict=False, time_unit="us")
    return texts.str.to_date(form, strict=False)


def write_dates(dates: pl.Series, form: str) -> pl.Series:
    """Format dates or datetimes as text."""
    return dates.dt.to_string(form)


def clock_in_zone(instants: pl.Series, zone: str) -> pl.Series:
    """Return what the clocks of a time zone show, without a zone; instants without a zone are in UTC.

    >>> from datetime import datetime
    >>> clock_in_zone(pl.Series([datetime(2024, 7, 1, 12)]), "Europe/Berlin").to_list()
    [datetime.datetime(2024, 7, 1, 14, 0)]
    """
    if getattr(instants.dtype, "time_zone", None) is None:
        instants = instants.dt.replace_time_zone("UTC")
    return instants.dt.convert_time_zone(zone).dt.replace_time_zone(None)


def date_form(texts: pl.Series) -> str | None:
    """Return the format in which all texts are dates or datetimes, or None.

    >>> date_form(pl.Series([f"2024-01-{day:02}" for day in range(1, 31)])), date_form(pl.Series(["a", "b"] * 20))
    ('%Y-%m-%d', None)
    """
    non_null = texts.alias("").cast(pl.String).drop_nulls()
    if len(non_null) < LEAST or not non_null[0] or not any(character.isdigit() for character in non_null[0]):
        return None
    for form in FORMS:
        if _written(non_null.head(PROBE), form) and _written(non_null, form):
            return form
    return None


def are_dates(values: pl.Series) -> bool:
    """Whether a text column holds dates or datetimes."""
    return isinstance(values.dtype, pl.String | pl.Categorical) and date_form(values) is not None


def _written(texts: pl.Series, form: str) -> bool:
    """Whether parsing and formatting again returns every text unchanged."""
    dates = read_dates(texts, form)
    return dates.null_count() == 0 and bool((write_dates(dates, form) == texts).all())


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
