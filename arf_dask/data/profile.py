"""The profile of one column: its kind, its distinct values and their counts, from the summary of all rows.

Numeric columns with too many distinct values to count take their distribution from a sample of rows, and the bounds of
their range from all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.axes import FLOATS, Axis, make_axis, nameless
from arf_dask.data.bins import NumberCounts, find_atoms
from arf_dask.data.column_summary import ColumnSummary, has_levels
from arf_dask.data.key_learning import learn_sequence, names_rows
from arf_dask.data.keys import KeyShape, is_text, key_shape
from arf_dask.data.levels import text_of
from arf_dask.typing import Flags, Floats, Kind

ROWS_PER_LEVEL = 5  # integers that float64 cannot hold are levels if each occurs at least this often on average


@dataclass(frozen=True, eq=False)
class Profile:
    """The kind of one column, its distinct values and their counts."""

    name: str
    dtype: pl.DataType
    kind: Kind
    rows: int
    nulls: int
    nans: int
    levels: pl.Series  # categorical: distinct values, sorted as text
    numbers: NumberCounts  # numeric: distinct values on the axis; categorical: level indices
    axis: Axis | None = None
    atoms: Flags | None = None  # numeric: flags of spikes, if `numbers` come from a sample
    key: KeyShape | None = None  # keys: shape of the values; for strings, set by `string_key_learning`

    @property
    def is_exact(self) -> bool:
        """Whether the profile contains every value of the column rather than those of a sample."""
        return self.atoms is None

    @property
    def n_values(self) -> int:
        """Number of distinct values, null and NaN included."""
        return len(self.numbers.counts) + (self.nulls > 0) + (self.nans > 0)


def column_kind(name: str, dtype: pl.DataType, summary: ColumnSummary, declared: str | None) -> Kind:
    """Return the declared kind of a column, or infer it from all rows."""
    if declared == "key":
        return "key"
    if summary.n_values == 0:
        return "empty"
    if declared is None and _names_rows(name, dtype, summary):
        return "key"
    if has_levels(dtype, declared):
        return "categorical"
    return "categorical" if _are_levels(summary, dtype) else "numeric"


def finish_profile(name: str, summary: ColumnSummary, kind: Kind, sample: pl.Series) -> Profile:
    """Build the profile of a column from the summary of all rows, its kind and a sample of rows."""
    values = nameless(sample)
    no_numbers = NumberCounts(np.empty(0), np.empty(0, np.int64))
    empty_profile = Profile(
        name, sample.dtype, kind, summary.rows, summary.nulls, summary.nans, values.clear(), no_numbers
    )
    match kind:
        case "empty":
            return empty_profile
        case "key":
            return _key_profile(empty_profile, summary)
        case "categorical":
            return _level_profile(empty_profile, summary.counts.table)
        case _:
            return _number_profile(empty_profile, summary, values)


def with_key_shape(profile: Profile, shape: KeyShape) -> Profile:
    """Return a copy of a key column's profile with the shape of its values."""
    return replace(profile, key=shape)


def _names_rows(name: str, dtype: pl.DataType, summary: ColumnSummary) -> bool:
    bounds = (0, 0)
    if summary.axis is not None and dtype not in FLOATS:
        bounds = (int(summary.axis.low), int(summary.axis.high))
    return names_rows(name, dtype, summary.n_values, summary.n_surely_distinct(dtype), bounds)


def _are_levels(summary: ColumnSummary, dtype: pl.DataType) -> bool:
    """Whether to model integers that float64 cannot hold (such as hashes) as levels, because each occurs often."""
    if summary.axis is None or summary.n_distinct > summary.rows // ROWS_PER_LEVEL:
        return False
    axis = make_axis(summary.axis, dtype)
    if axis.lossless or not summary.counts.is_complete:
        return not axis.lossless
    return len(np.unique(axis.to_axis(summary.counts.table["value"]))) < summary.n_distinct


def _key_profile(bare: Profile, summary: ColumnSummary) -> Profile:
    if is_text(bare.dtype) and summary.n_values:
        return bare
    sequence = learn_sequence(summary.axis, bare.dtype, summary.n_values) if summary.axis is not None else None
    return with_key_shape(bare, key_shape(bare.dtype, summary.rows, summary.nulls, sequence))


def _level_profile(bare: Profile, table: pl.DataFrame) -> Profile:
    levels = (
        table.with_columns(text=text_of(table["value"]))
        .group_by("text")
        .agg(pl.col("value").first(), pl.col("rows").sum())
        .sort("text")
    )
    counts = levels["rows"].to_numpy()
    numbers = NumberCounts(np.arange(len(counts), dtype=np.float64), counts)
    return replace(bare, levels=nameless(levels["value"]), numbers=numbers)


def _number_profile(bare: Profile, summary: ColumnSummary, sample: pl.Series) -> Profile:
    if summary.axis is None:  # the column holds only null and NaN
        return replace(bare, axis=Axis(grid=False))
    axis = make_axis(summary.axis, bare.dtype)
    if summary.counts.is_complete:
        table = summary.counts.table.sort("value")
        numbers, levels = count_numbers(nameless(table["value"]), axis, table["rows"].to_numpy())
        return replace(bare, axis=axis, numbers=numbers, levels=levels)
    sorted_values = sample.drop_nulls().sort()
    numbers, _ = count_numbers(sorted_values, axis)
    spike_values = numbers.values[find_atoms(numbers)] if len(numbers.values) else np.empty(0)
    end_values = _ends_beside_spikes(summary.outermost.sort(), axis, spike_values, numbers.values)
    numbers, levels = count_numbers(pl.concat([sorted_values, end_values]).sort(), axis)
    return replace(bare, axis=axis, numbers=numbers, levels=levels, atoms=np.isin(numbers.values, spike_values))


def count_numbers(
    ascending: pl.Series, axis: Axis, counts: NDArray[np.int64] | None = None
) -> tuple[NumberCounts, pl.Series]:
    """Return the distinct values on the axis with their counts, and exact values if the axis is not lossless.

    Args:
        ascending: Numbers in ascending order, without nulls; NaN is ignored.
        axis: The axis of the column.
        counts: Number of rows per element of the series; None means one each.
    """
    axis_values = axis.to_axis(ascending)
    is_number = ~np.isnan(axis_values)
    values = axis_values[is_number] + 0.0  # -0.0 and 0.0 are one number
    first_index = np.flatnonzero(values != np.append(np.nan, values[:-1]))
    row_counts = np.ones(len(values), dtype=np.int64) if counts is None else counts[is_number]
    value_counts = np.add.reduceat(row_counts, first_index) if len(first_index) else row_counts
    # If float64 cannot hold the values, keep one exact value per point of the axis.
    levels = ascending.clear() if axis.lossless else ascending.gather(first_index)
    return NumberCounts(values[first_index], value_counts), levels


def _ends_beside_spikes(ends: pl.Series, axis: Axis, spikes: Floats, held: Floats) -> pl.Series:
    """Return the smallest and largest values that are not spikes, unless the sample contains them."""
    axis_values = axis.to_axis(ends)
    continuous_index = np.flatnonzero(~np.isin(axis_values, spikes))
    end_index = np.unique(continuous_index[[0, -1]]) if len(continuous_index) else continuous_index
    return ends.gather(end_index[~np.isin(axis_values[end_index], held)])
