"""Mergeable summaries of one column.

Parts of a column are summarised separately and merged; `profile` turns the result into the profile of the column.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from arf_dask.data.axes import FLOATS, AxisSummary, is_numeric, merge_axis_summaries, nameless, summarise_axis
from arf_dask.data.keys import is_text
from arf_dask.data.value_counts import ValueCounts, count_values, limit_counts, merge_counts

MOST_ATOMS = 1_024  # upper bound of the number of spikes of a column (bins.ATOM_SHARE)


class ColumnSummary(NamedTuple):
    """Counts, bounds and distinct values of a range of rows of a column."""

    rows: int
    nulls: int
    nans: int
    infinite: int
    axis: AxisSummary | None  # numeric: bounds and common step; None if there are no numbers
    counts: ValueCounts
    outermost: pl.Series  # numeric: smallest and largest distinct values, if counts are limited

    @property
    def n_values(self) -> int:
        """Number of non-null rows."""
        return self.rows - self.nulls

    @property
    def n_distinct(self) -> int:
        """Number of distinct values; an estimate if not all are counted."""
        if self.counts.is_complete:
            return self.counts.table.height
        return round(self.counts.distinct_share * self.n_values)

    def n_surely_distinct(self, dtype: pl.DataType) -> int:
        """Number of distinct values for key detection: integers are unique only if no counted value repeats."""
        has_repeats = not self.counts.is_complete and not is_text(dtype) and self.counts.distinct_share < 1
        return min(self.n_distinct, self.n_values - 1) if has_repeats else self.n_distinct


def has_levels(dtype: pl.DataType, declared: str | None) -> bool:
    """Whether a column is modelled by its levels rather than as numbers."""
    return declared == "categorical" or not is_numeric(dtype)


def summarise_column(series: pl.Series, declared: str | None, limit: int | None = None) -> ColumnSummary:
    """Summarise a range of rows of a column.

    Args:
        series: The values.
        declared: The kind declared by the caller; None to infer it.
        limit: Maximum number of distinct values to count; None counts all.
    """
    series = nameless(series)
    as_levels = has_levels(series.dtype, declared)
    is_float = series.dtype in FLOATS
    nans = int(series.is_nan().sum()) if is_float and not as_levels else 0
    infinite = int(series.is_infinite().sum()) if is_float else 0
    counts = count_values(series, as_levels=as_levels)
    axis, outermost = None, series.clear()
    if not as_levels:
        values = counts.table["value"]
        axis = summarise_axis(values)
        outermost = outermost if limit is None else _outermost(values)
        # Declared integer keys need only their bounds.
        counts = ValueCounts(counts.table.clear()) if declared == "key" else counts
    counts = limit_counts(counts, limit)
    return ColumnSummary(len(series), series.null_count(), nans, infinite, axis, counts, outermost)


def merge_columns(one: ColumnSummary, other: ColumnSummary) -> ColumnSummary:
    """Merge the summaries of two parts of a column."""
    return ColumnSummary(
        one.rows + other.rows,
        one.nulls + other.nulls,
        one.nans + other.nans,
        one.infinite + other.infinite,
        merge_axis_summaries(one.axis, other.axis),
        merge_counts(one.counts, other.counts),
        _outermost(pl.concat([one.outermost, other.outermost]).unique()),
    )


def _outermost(distinct: pl.Series) -> pl.Series:
    if len(distinct) <= 2 * MOST_ATOMS:
        return distinct
    return pl.concat([distinct.bottom_k(MOST_ATOMS), distinct.top_k(MOST_ATOMS)])
