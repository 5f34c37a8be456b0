"""FORDE (paper, Alg. 2): the parameters of every leaf, as group-bys that can be cut into parts and merged.

`finish(merge([summarise(a), summarise(b)])) == finish(summarise(a + b))`: sums over leaves do not care how the rows
were cut. One table per variable, one row per (leaf, state): how many rows, and for intervals their mean and sum of
squared distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.encode import Codes, line_places, row_states
from arf_dask.forest import Ints
from arf_dask.schema import Floats, Schema, Variable

Sums = list[pl.DataFrame]  # per variable: leaf, state, count, mean, squares
SUM_COLUMNS = {
    "leaf": pl.UInt32,
    "state": pl.UInt32,
    "count": pl.UInt32,
    "mean": pl.Float64,
    "squares": pl.Float64,
}


class TreeSums(NamedTuple):
    """One row per (leaf, state) of one tree, in order."""

    keys: NDArray[np.int64]  # leaf * n_states + state
    counts: NDArray[np.int64]
    means: Floats  # NaN for points
    squares: Floats


def summarise(frame: pl.DataFrame, schema: Schema, codes: Codes, leaves: Sequence[Ints], starts: Ints) -> Sums:
    """One table per variable, one row per (leaf, state), sorted.

    `leaves[t]` is the leaf number of every row in tree t, `starts[t]` the number of that tree's first leaf among all.
    """
    numbers = range(len(schema.variables))
    return [summarise_one(frame, schema, codes, leaves, starts, j).cast(SUM_COLUMNS) for j in numbers]  # type: ignore[arg-type]


def summarise_one(
    frame: pl.DataFrame, schema: Schema, codes: Codes, leaves: Sequence[Ints], starts: Ints, number: int
) -> pl.DataFrame:
    """The table of one variable, one row per (leaf, state) over all trees, sorted.

    A group-by on one small whole number: sorting it and counting runs took a tenth of a hash group-by's time.
    """
    variable = schema.variables[number]
    lead = schema.columns[variable.columns[0]]
    places = line_places(frame[lead.name], lead) if variable.interval.any() else None
    states = row_states(codes[:, number], places, variable, lead)
    return join_trees([sum_tree(states, places, leaf, variable) for leaf in leaves], variable, starts)


def join_trees(parts: Sequence[TreeSums], variable: Variable, starts: Ints) -> pl.DataFrame:
    """The sums of several trees as one table, one row per (leaf, state), sorted."""
    keys, counts = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
    start = np.repeat(starts[:-1], [len(part[0]) for part in parts])
    table = pl.DataFrame(
        {
            "leaf": (keys // variable.n_states).astype(np.uint32) + start.astype(np.uint32),
            "state": (keys % variable.n_states).astype(np.uint32),
            "count": counts.astype(np.uint32),
        }
    )
    if not variable.interval.any():
        return table.with_columns(mean=None, squares=None)  # columns of type Null take no room
    mean, squares = (pl.Series(np.concatenate([part[side] for part in parts])).fill_nan(None) for side in (2, 3))
    return table.with_columns(mean=mean, squares=squares)


def merge(parts: Iterable[Sums]) -> Sums:
    """The sums of all parts together."""
    return [_merge_tables(pl.concat(tables)) for tables in zip(*parts, strict=True)]


def sum_tree(
    states: NDArray[np.integer], places: Floats | None, leaf: NDArray[np.integer], variable: Variable
) -> TreeSums:
    """The sums of one tree and variable, by a sort."""
    keys = leaf.astype(np.int64) * variable.n_states + states
    ordered = np.sort(keys)
    first = np.flatnonzero(np.concatenate([[len(ordered) > 0], ordered[1:] != ordered[:-1]]))
    found, counts = ordered[first], np.diff(np.append(first, len(ordered)))
    if places is None:
        return TreeSums(found, counts, np.empty(0), np.empty(0))
    rows = np.flatnonzero(variable.interval[states])
    group, at = np.searchsorted(found, keys[rows]), places[rows]
    mean = np.bincount(group, at, len(found)) / counts
    # An empty bincount forgets that its weights were floats.
    squares = np.bincount(group, (at - mean[group]) ** 2, len(found)).astype(np.float64)
    of_point = ~variable.interval[found % variable.n_states]
    mean[of_point] = squares[of_point] = np.nan
    return TreeSums(found, counts, mean, squares)


def merge_trees(one: TreeSums, other: TreeSums) -> TreeSums:
    """The sums of the rows of both, in one tree and variable: two sorted lists become one."""
    keys = np.concatenate([one.keys, other.keys])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.concatenate([[len(keys) > 0], keys[1:] != keys[:-1]]))
    counts = np.concatenate([one.counts, other.counts])[order]
    total = np.add.reduceat(counts, first) if len(first) else counts
    if not len(one.means) and not len(other.means):
        return TreeSums(keys[first], total, np.empty(0), np.empty(0))
    means = np.concatenate([one.means, other.means])[order]
    squares = np.concatenate([one.squares, other.squares])[order]
    if not len(first):
        return TreeSums(keys, counts, means, squares)
    # Chan's formula: exact, and without the loss of digits that sums of squares have.
    mean = np.add.reduceat(means * counts, first) / total
    away = means - np.repeat(mean, np.diff(np.append(first, len(keys))))
    return TreeSums(keys[first], total, mean, np.add.reduceat(squares + counts * away**2, first))


def _merge_tables(table: pl.DataFrame) -> pl.DataFrame:
    """Means and squares of parts combined exactly (Chan's formula), in one group-by."""
    rows = pl.col("count").cast(pl.Float64)
    mean = (pl.col("mean") * rows).sum() / rows.sum()
    squares = pl.col("squares").sum() + (rows * (pl.col("mean") - mean) ** 2).sum()
    known = pl.col("mean").is_not_null().all()
    merged = table.group_by("leaf", "state").agg(
        pl.col("count").sum(),
        pl.when(known).then(mean).alias("mean"),
        pl.when(known).then(squares).alias("squares"),
    )
    return merged.sort("leaf", "state").cast(SUM_COLUMNS)  # type: ignore[arg-type]
