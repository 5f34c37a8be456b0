"""Fill rare missing values: that a value is missing for only a few people would identify them."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from arf_dask.data.axes import is_numeric
from arf_dask.release.policy import ReleasePolicy


class Filled(NamedTuple):
    """A column without rare missing values."""

    column: pl.Series
    rows: int  # rows that were filled


def fill_rare_missing(column: pl.Series, subjects: pl.Series | None, policy: ReleasePolicy, *, key: bool) -> Filled:
    """Fill nulls, and NaN, that fewer than `min_level` subjects have.

    They become the most frequent level or a central number; identifiers (`key`) take that of a neighbouring row, as all
    of them are replaced later.
    """
    is_null = column.is_null()
    masks = [is_null, column.is_nan().fill_null(False)] if column.dtype.is_float() else [is_null]
    rare = [mask for mask in masks if 0 < _count(mask, subjects) < policy.min_level]
    known = ~is_null if len(masks) == 1 else ~(is_null | masks[1])
    if not rare or not known.any():
        return Filled(column, 0)
    is_filled = rare[0] if len(rare) == 1 else rare[0] | rare[1]
    emptied = pl.select(pl.when(~is_filled).then(column)).to_series().alias(column.name)
    if key:
        return Filled(emptied.fill_null(strategy="forward").fill_null(strategy="backward"), int(is_filled.sum()))
    value = _central(column.filter(known))
    filled = pl.select(pl.when(is_filled).then(pl.lit(value, column.dtype)).otherwise(column)).to_series()
    return Filled(filled.alias(column.name), int(is_filled.sum()))


def _count(mask: pl.Series, subjects: pl.Series | None) -> int:
    return int(mask.sum()) if subjects is None else subjects.filter(mask).n_unique()


def _central(known: pl.Series) -> object:
    """Return the median as one of the numbers, or the most frequent level."""
    if is_numeric(known.dtype):
        return known.sort()[len(known) // 2]
    counts = (
        known.cast(pl.String).alias("level").value_counts(name="rows").sort("rows", "level", descending=[True, False])
    )
    most_frequent = counts["level"][0]
    return most_frequent == "true" if known.dtype == pl.Boolean else most_frequent
