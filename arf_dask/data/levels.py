"""The text representation of categorical levels."""

from __future__ import annotations

import polars as pl

from arf_dask.data.axes import nameless


def text_of(series: pl.Series) -> pl.Series:
    """Return the levels of a categorical column as strings, by which levels are compared."""
    series = nameless(series)
    # Polars cannot cast durations to strings: use the number of ticks.
    series = series.to_physical() if isinstance(series.dtype, pl.Duration) else series
    return series if series.dtype == pl.String else series.cast(pl.String)
