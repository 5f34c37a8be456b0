"""Profile all columns of a table: summarise groups of parts, merge the summaries, and finish.

A frame in memory is a table of one part, of which all rows are kept; of larger tables, a sample of rows is kept. A
profile depends only on the column as a whole, not on the partitioning of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data import value_counts
from arf_dask.data.checks import check_infinite, check_kinds, check_shape
from arf_dask.data.column_summary import ColumnSummary, merge_columns, summarise_column
from arf_dask.data.keys import key_shape
from arf_dask.data.levels import text_of
from arf_dask.data.parts import PartGroup, Parts, group_parts, load_each, one_part
from arf_dask.data.profile import Profile, column_kind, finish_profile, with_key_shape
from arf_dask.data.string_key_learning import DistinctStrings, learn_string_keys
from arf_dask.data.value_counts import ValueCounts, count_values, merge_counts
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner, Threads
from arf_dask.typing import Kind


class TableProfile(NamedTuple):
    """One profile per column, from all rows, and a sample of rows."""

    profiles: list[Profile]
    sample: pl.DataFrame


class TableSummary(NamedTuple):
    """Summaries of all columns over a range of rows, and its rows in the sample."""

    sample: pl.DataFrame
    columns: dict[str, ColumnSummary]


class _ProfileTask(NamedTuple):
    """Arguments shared by all profiling tasks."""

    declared: Mapping[str, str]  # declared kinds, by column
    kept_rows: NDArray[np.int64] | None  # ascending indices of the rows to keep; None: all


def profile_frame(frame: pl.DataFrame, kinds: Mapping[str, str], keys: Sequence[str]) -> list[Profile]:
    """One profile per column of a frame in memory, in order; see `profile_parts`."""
    return profile_parts(one_part(frame), None, kinds, keys, (), Threads(1), Progress()).profiles


def profile_parts(
    parts: Parts,
    kept_rows: NDArray[np.int64] | None,
    kinds: Mapping[str, str],
    keys: Sequence[str],
    exact_columns: Collection[str],
    runner: Runner,
    report: Progress,
) -> TableProfile:
    """Profile every column from all rows of a table, and keep a sample of rows.

    Args:
        parts: The table.
        kept_rows: Ascending indices of the rows to keep as a sample; None keeps all rows.
        kinds: Declared kinds, by column; they override the inferred kinds.
        keys: Columns declared as identifiers.
        exact_columns: Columns of which all distinct values are counted, without a limit.
        runner: Runs the tasks.
        report: Receives progress updates.

    Raises:
        DataError: There are no rows, no columns, or infinite values.
        OptionError: A column's type does not allow its declared kind.
        UnsupportedColumnError: Columns have types that cannot be modelled.
    """
    declared = {**kinds, **dict.fromkeys(keys, "key")}
    check_shape(parts.dtypes, parts.n_rows)
    check_kinds(parts.dtypes, declared)
    part_groups = group_parts(parts)
    report.stage("columns", len(part_groups))
    profile_task = _ProfileTask(declared, kept_rows)
    sample, summaries = runner.reduce(profile_group, profile_task, part_groups, merge_tables, report.advance)
    check_infinite({name: summary.infinite for name, summary in summaries.items()})
    column_kinds = {
        name: column_kind(name, parts.dtypes[name], summary, declared.get(name)) for name, summary in summaries.items()
    }
    summaries |= _count_all_values(summaries, column_kinds, exact_columns, part_groups, runner, report)
    profiles = [
        finish_profile(name, column_summary, column_kinds[name], sample[name])
        for name, column_summary in summaries.items()
    ]
    return TableProfile(_with_string_keys(profiles, summaries, part_groups, runner, report), sample)


def profile_group(task: _ProfileTask, group: PartGroup) -> TableSummary:
    """Summarise every column of a group of parts, and keep the rows of the sample."""
    first_row, parts = group
    limit = None if task.kept_rows is None else value_counts.MOST_DISTINCT
    summaries = []
    for frame in load_each(parts):
        columns = {series.name: summarise_column(series, task.declared.get(series.name), limit) for series in frame}
        summaries.append(TableSummary(_kept_rows(frame, first_row, task.kept_rows), columns))
        first_row += frame.height
    return reduce(merge_tables, summaries)


def merge_tables(one: TableSummary, other: TableSummary) -> TableSummary:
    """Merge the summaries of two neighbouring row ranges of a table; the sample stays in order."""
    columns = {name: merge_columns(one.columns[name], other.columns[name]) for name in one.columns}
    return TableSummary(pl.concat([one.sample, other.sample]), columns)


def count_all_levels(columns: dict[str, bool], group: PartGroup) -> dict[str, ValueCounts]:
    """Count all distinct values of the given columns without a limit, as levels (True) or as numbers (False)."""
    part_counts = [
        {name: count_values(frame[name], as_levels=as_levels) for name, as_levels in columns.items()}
        for frame in load_each(group[1], list(columns))
    ]
    return reduce(merge_all_levels, part_counts)


def merge_all_levels(one: dict[str, ValueCounts], other: dict[str, ValueCounts]) -> dict[str, ValueCounts]:
    """Add the counts of two groups of parts."""
    return {name: merge_counts(one[name], other[name]) for name in one}


def _kept_rows(frame: pl.DataFrame, first_row: int, kept_rows: NDArray[np.int64] | None) -> pl.DataFrame:
    if kept_rows is None:
        return frame
    part_slice = slice(*np.searchsorted(kept_rows, [first_row, first_row + frame.height]))
    return frame[kept_rows[part_slice] - first_row]


def _count_all_values(
    summaries: dict[str, ColumnSummary],
    kind_of: dict[str, Kind],
    exact_columns: Collection[str],
    groups: Sequence[PartGroup],
    runner: Runner,
    report: Progress,
) -> dict[str, ColumnSummary]:
    """Count all values, in another pass, of the columns that need complete counts; return their new summaries."""
    as_levels = {
        name: kind_of[name] == "categorical"
        for name, summary in summaries.items()
        if not summary.counts.is_complete and (kind_of[name] == "categorical" or name in exact_columns)
    }
    if not as_levels:
        return {}
    report.stage("columns with many levels", len(groups))
    counts_by_column = runner.reduce(count_all_levels, as_levels, groups, merge_all_levels, report.advance)
    return {name: summaries[name]._replace(counts=counts) for name, counts in counts_by_column.items()}


def _with_string_keys(
    profiles: list[Profile],
    summaries: dict[str, ColumnSummary],
    groups: Sequence[PartGroup],
    runner: Runner,
    report: Progress,
) -> list[Profile]:
    """Add the learned shape to the profile of every column of string keys."""
    string_keys = {p.name: _distinct_strings(summaries[p.name]) for p in profiles if p.kind == "key" and p.key is None}
    key_shapes = learn_string_keys(string_keys, groups, runner, report)
    return [
        with_key_shape(p, key_shape(p.dtype, p.rows, p.nulls, key_shapes[p.name])) if p.name in key_shapes else p
        for p in profiles
    ]


def _distinct_strings(summary: ColumnSummary) -> DistinctStrings:
    values = text_of(summary.counts.table["value"]).unique()
    return DistinctStrings(values, len(values) if summary.counts.is_complete else summary.n_distinct)
