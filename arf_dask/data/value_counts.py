"""Mergeable counts of distinct values, limited in number.

If a column has more than `MOST_DISTINCT` values, only those whose hash begins with a number of zero bits are counted.
The selection depends only on the column as a whole, not on its partitioning.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from arf_dask.data.axes import FLOATS, nameless
from arf_dask.data.levels import text_of

MOST_DISTINCT = 2**16  # maximum number of distinct values of a column that are all counted


class ValueCounts(NamedTuple):
    """One row per distinct value: hash, value, rows."""

    table: pl.DataFrame
    hash_bits: int = 0  # only values whose hash begins with this many zero bits are counted; 0: all
    limit: int | None = None  # maximum number of values to count; None: no limit

    @property
    def is_complete(self) -> bool:
        """Whether all distinct values are counted."""
        return self.hash_bits == 0

    @property
    def distinct_share(self) -> float:
        """Ratio of distinct values to rows, among the values counted."""
        return self.table.height / max(int(self.table["rows"].sum()), 1)


def count_values(series: pl.Series, *, as_levels: bool) -> ValueCounts:
    """Count the distinct values of a series, without nulls and, for numbers, without NaN.

    Levels are compared as text: 0.0 and -0.0 are two levels, but the same number.
    """
    values = pl.DataFrame({"value": nameless(series)}).drop_nulls()
    n_rows = pl.len().cast(pl.Int64)
    if series.dtype not in FLOATS:
        counted_values = values.group_by("value").agg(rows=n_rows)
    elif as_levels:
        text_values = values.with_columns(text=text_of(values["value"]))
        counted_values = text_values.group_by("text").agg(pl.col("value").first(), rows=n_rows)
    else:
        number_values = values.filter(pl.col("value").is_not_nan()).select(pl.col("value") + 0.0)  # -0.0 becomes 0.0
        counted_values = number_values.group_by("value").agg(rows=n_rows)
    # The physical codes of categories differ between processes, so levels are hashed as text.
    hash_input = text_of(counted_values["value"]) if as_levels else counted_values["value"].to_physical()
    table = counted_values.select(nameless(hash_input).hash().alias("hash"), "value", "rows")
    return ValueCounts(table)


def merge_counts(one: ValueCounts, other: ValueCounts) -> ValueCounts:
    """Add the counts of two parts of a column."""
    hash_bits = max(one.hash_bits, other.hash_bits)
    all_counts = pl.concat([_with_hash_bits(one, hash_bits), _with_hash_bits(other, hash_bits)])
    table = all_counts.group_by("hash", "value").agg(pl.col("rows").sum())
    return limit_counts(ValueCounts(table, hash_bits), one.limit)


def limit_counts(counts: ValueCounts, limit: int | None) -> ValueCounts:
    """Keep at most `limit` values, now and in later merges; None keeps all."""
    while limit is not None and counts.table.height > limit and counts.hash_bits < 63:
        hash_bits = counts.hash_bits + 1
        counts = ValueCounts(_with_hash_bits(counts, hash_bits), hash_bits)
    return counts._replace(limit=limit)


def _with_hash_bits(counts: ValueCounts, bits: int) -> pl.DataFrame:
    return counts.table if bits == counts.hash_bits else counts.table.filter(pl.col("hash") < 2 ** (64 - bits))
