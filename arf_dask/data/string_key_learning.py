"""Learn the shape of string keys from all values, or from a sample that is checked against all rows.

Generated keys must not equal real ones. When learning from a sample, the first and last value of every form are
therefore taken from all rows, and templates that generate values between training values are checked against all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import polars as pl

from arf_dask.data.parts import PartGroup, load_each
from arf_dask.data.template_learning import (
    find_extremes,
    find_occupied,
    grow_occupied,
    learn_skeletons,
    learn_strings,
    merge_extremes,
)
from arf_dask.data.templates import StringShape
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner

SkeletonTables = dict[str, pl.DataFrame]  # per column: skeletons of the sample, or extremes of all rows
OccupiedFlags = dict[str, list[bool]]  # per column: flags of the templates whose interval is occupied


class DistinctStrings(NamedTuple):
    """All or some of the distinct values of a column of string keys."""

    values: pl.Series
    n_distinct: int  # number of distinct values in the whole column


def learn_string_keys(
    columns: Mapping[str, DistinctStrings], groups: Sequence[PartGroup], runner: Runner, report: Progress
) -> dict[str, StringShape]:
    """Learn the shape of every column; only columns with incomplete values need a pass over the rows."""
    skeletons = {
        name: learn_skeletons(strings.values)
        for name, strings in columns.items()
        if len(strings.values) < strings.n_distinct
    }
    shapes = {name: learn_strings(strings.values) for name, strings in columns.items() if name not in skeletons}
    if not skeletons:
        return shapes
    report.stage("identifiers", 2 * len(groups))
    _, extremes = runner.reduce(group_extremes, skeletons, groups, merge_group_extremes, report.advance)
    n_distinct = {name: columns[name].n_distinct for name in skeletons}
    learned_shapes = {}
    for name in skeletons:
        key_values = pl.concat([columns[name].values, extremes[name]["low"], extremes[name]["high"]]).unique()
        learned_shapes[name] = learn_strings(key_values, max(n_distinct[name] / len(key_values), 1.0))
    occupied = runner.reduce(group_occupied, (learned_shapes, n_distinct), groups, merge_occupied, report.advance)
    return shapes | {name: grow_occupied(learned_shapes[name], occupied[name]) for name in skeletons}


def group_extremes(known: SkeletonTables, group: PartGroup) -> tuple[SkeletonTables, SkeletonTables]:
    """Return the skeletons of the sample, and the first and last values of a group of parts."""
    part_extremes = [
        (known, {name: find_extremes(_strings(frame[name]), known[name]) for name in known})
        for frame in load_each(group[1], list(known))
    ]
    return reduce(merge_group_extremes, part_extremes)


def merge_group_extremes(
    one: tuple[SkeletonTables, SkeletonTables], other: tuple[SkeletonTables, SkeletonTables]
) -> tuple[SkeletonTables, SkeletonTables]:
    """Merge the first and last values of two groups of parts."""
    skeletons = one[0]
    return skeletons, {name: merge_extremes(one[1][name], other[1][name], skeletons[name]) for name in skeletons}


def group_occupied(shared: tuple[dict[str, StringShape], dict[str, int]], group: PartGroup) -> OccupiedFlags:
    """Flag the templates whose fresh values might equal a value in a group of parts."""
    shapes, n_distinct = shared
    part_flags = [
        {name: find_occupied(shape, _strings(frame[name]), n_distinct[name]) for name, shape in shapes.items()}
        for frame in load_each(group[1], list(shapes))
    ]
    return reduce(merge_occupied, part_flags)


def merge_occupied(one: OccupiedFlags, other: OccupiedFlags) -> OccupiedFlags:
    """Flag the templates that either group of parts flags."""
    return {name: [a or b for a, b in zip(one[name], other[name], strict=True)] for name in one}


def _strings(series: pl.Series) -> pl.Series:
    return series.alias("").drop_nulls().cast(pl.String)
