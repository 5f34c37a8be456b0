"""Identifiers of data larger than memory: their shape from a sample of rows, held against all of them.

Fresh keys must not be copies. So the first and last value of every form come from all rows, and a template whose fresh
values would come from between training values is checked against every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import polars as pl

from arf_dask.parts import Group, load_each
from arf_dask.progress import Progress
from arf_dask.tasks import Runner
from arf_dask.template_learning import extremes, learn_strings, merge_extremes, occupied, skeletons_of, vacate
from arf_dask.templates import StringShape

Known = dict[str, pl.DataFrame]  # per column: the skeletons of its sample, or the extremes of all its rows
Taken = dict[str, list[bool]]  # per column: which of its templates have no room after all


class Strings(NamedTuple):
    """Distinct values of a column of string keys: all of them, or some."""

    values: pl.Series
    n_distinct: int  # of all


def learn_string_keys(
    columns: Mapping[str, Strings], groups: Sequence[Group], runner: Runner, report: Progress
) -> dict[str, StringShape]:
    """The shape of every column. Those of which all values are known need no pass over the rows."""
    known = {name: skeletons_of(one.values) for name, one in columns.items() if len(one.values) < one.n_distinct}
    shapes = {name: learn_strings(one.values) for name, one in columns.items() if name not in known}
    if not known:
        return shapes
    report.stage("identifiers", 2 * len(groups))
    _, ends = runner.reduce(find_extremes, known, groups, join_extremes, report.advance)
    n_distinct = {name: columns[name].n_distinct for name in known}
    learned = {}
    for name in known:
        values = pl.concat([columns[name].values, ends[name]["low"], ends[name]["high"]]).unique()
        learned[name] = learn_strings(values, max(n_distinct[name] / len(values), 1.0))
    taken = runner.reduce(find_taken, (learned, n_distinct), groups, join_taken, report.advance)
    return shapes | {name: vacate(learned[name], taken[name]) for name in known}


def find_extremes(known: Known, group: Group) -> tuple[Known, Known]:
    """The skeletons that were known, and the extremes of some parts."""
    found = [
        (known, {name: extremes(_strings(frame[name]), known[name]) for name in known})
        for frame in load_each(group[1], list(known))
    ]
    return reduce(join_extremes, found)


def join_extremes(one: tuple[Known, Known], other: tuple[Known, Known]) -> tuple[Known, Known]:
    """The extremes of both."""
    known = one[0]
    return known, {name: merge_extremes(one[1][name], other[1][name], known[name]) for name in known}


def find_taken(shared: tuple[dict[str, StringShape], dict[str, int]], group: Group) -> Taken:
    """Which templates would copy values of some parts."""
    shapes, n_distinct = shared
    found = [
        {name: occupied(shape, _strings(frame[name]), n_distinct[name]) for name, shape in shapes.items()}
        for frame in load_each(group[1], list(shapes))
    ]
    return reduce(join_taken, found)


def join_taken(one: Taken, other: Taken) -> Taken:
    """The templates that would copy values of either."""
    return {name: [a or b for a, b in zip(one[name], other[name], strict=True)] for name in one}


def _strings(series: pl.Series) -> pl.Series:
    return series.alias("").drop_nulls().cast(pl.String)
