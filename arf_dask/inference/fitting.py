"""Casts of a caller's columns to the dtypes of a model, without changing values."""

from __future__ import annotations

import polars as pl

from arf_dask.data.axes import FLOATS, nameless
from arf_dask.errors import DataError


def fitting_to(series: pl.Series, name: str, dtype: pl.DataType) -> pl.Series:
    """Cast values to a dtype (text to String); raise a DataError if that changes them, except between float types."""
    if series.dtype == dtype:
        return series
    wants_text = isinstance(dtype, pl.String | pl.Categorical | pl.Enum)
    if wants_text and isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum | pl.Null):
        return series.cast(pl.String)
    try:
        cast_values = series.cast(dtype)
        is_lossless = series.dtype == pl.Null or bool(
            (nameless(cast_values).cast(series.dtype).eq_missing(nameless(series))).all()
        )
    except pl.exceptions.PolarsError:
        is_lossless = False
    temporal_kinds = {series.dtype.is_temporal(), dtype.is_temporal()}
    has_text = isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum)
    boolean_kinds = {series.dtype == pl.Boolean, dtype == pl.Boolean}
    if series.dtype == pl.Null or (
        is_lossless and len(temporal_kinds) == 1 and len(boolean_kinds) == 1 and not wants_text and not has_text
    ):
        return cast_values
    if dtype in FLOATS and series.dtype in FLOATS:
        return cast_values
    raise DataError(f"column {name!r} is {series.dtype}, not {dtype} as in the model. Cast it first.")
