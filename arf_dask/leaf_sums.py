"""Leaf sums of data larger than memory: one part after the other goes through all trees, and parts are merged.

What is summed is what `forde.summarise` gives: rows, mean and squared distances per (leaf, state). Where a tree's
leaves times a variable's states are few they are cells of a dense table, counted without sorting; else the cells that
hold rows are found by a sort. Trees come in groups, so that the sums of a group stay small: every group is one more
pass over the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.cluster import Runner
from arf_dask.encode import Encoded, encode_rows
from arf_dask.forde import TreeSums, join_trees, merge_trees, sum_tree
from arf_dask.forest import Ints, Router, Tree, leaf_nodes, make_router, route_leaves
from arf_dask.parts import Group, Parts, group_parts, load_each
from arf_dask.progress import Progress
from arf_dask.schema import Floats, Schema, Variable

DENSE_CELLS = 2**21  # leaves times states of a table without gaps, at most
SUM_BYTES = 96 * 2**20  # of the sums of the trees that are summed at once
TASK_CELLS = 40_000_000  # of the parts that one task sums up
SPARSE_BYTES = 32  # per cell that holds rows

Counts = NDArray[np.int64]


class Dense(NamedTuple):
    """Sums of one tree and variable, one row per (leaf, state)."""

    counts: NDArray[np.uint32]  # (leaf, state)
    means: Floats  # (leaf, interval): the last states are the intervals
    squares: Floats

    @property
    def inside(self) -> Floats:
        """The rows of every (leaf, interval)."""
        return self.counts[:, self.counts.shape[1] - self.means.shape[1] :].astype(np.float64)


Cells = Dense | TreeSums


class Sums(NamedTuple):
    """All sums of some rows and trees."""

    histograms: list[Counts]  # per variable: rows by code
    cells: list[list[Cells]]  # per tree and variable


class _Summing(NamedTuple):
    """What every task needs to know."""

    schema: Schema
    routers: list[Router]


def sum_leaves(
    parts: Parts, schema: Schema, trees: Sequence[Tree], runner: Runner, report: Progress
) -> Iterator[tuple[range, list[Counts], list[pl.DataFrame]]]:
    """For one group of trees after the other: which trees, rows by code, and one table of sums per variable.

    Leaves are numbered from that of the first tree on, as `Tables.starts` has them.
    """
    groups = group_parts(parts, TASK_CELLS)
    several = list(tree_groups(schema, trees, parts.n_rows))
    report.stage("leaf parameters", len(groups) * len(several))
    starts = np.concatenate([[0], np.cumsum([len(leaf_nodes(tree)) for tree in trees])]).astype(np.int32)
    n_codes = np.array([variable.n_codes for variable in schema.variables], dtype=np.int32)
    for some in several:
        summing = _Summing(schema, [make_router(trees[t], n_codes) for t in some])
        sums = runner.reduce(sum_parts, summing, groups, merge_sums, report.advance)
        here = starts[some.start : some.stop + 1]
        yield some, sums.histograms, [_table(sums, schema, j, here) for j in range(len(schema.variables))]


def tree_groups(schema: Schema, trees: Sequence[Tree], n_rows: int) -> Iterator[range]:
    """Neighbouring trees whose sums take at most `SUM_BYTES` together."""
    first = held = 0
    for number, tree in enumerate(trees):
        size = sum(_bytes(variable, len(leaf_nodes(tree)), n_rows) for variable in schema.variables)
        if number > first and held + size > SUM_BYTES:
            yield range(first, number)
            first, held = number, 0
        held += size
    yield range(first, len(trees))


def sum_parts(summing: _Summing, group: Group) -> Sums:
    """The sums of some parts, one added to the other."""
    schema, routers = summing
    return reduce(merge_sums, (sum_rows(encode_rows(f, schema), schema, routers) for f in load_each(group[1])))


def sum_rows(rows: Encoded, schema: Schema, routers: Sequence[Router]) -> Sums:
    """The sums of rows, tree by tree."""
    pairs = zip(rows.codes.T, schema.variables, strict=True)
    histograms = [np.bincount(codes, minlength=variable.n_codes) for codes, variable in pairs]
    inside = [_inside(rows, j, variable) for j, variable in enumerate(schema.variables)]
    by_row = np.ascontiguousarray(rows.codes)
    cells = []
    for router in routers:
        leaf = route_leaves(router, by_row)
        cells.append(
            [
                _sum_cells(leaf, rows.states[j], rows.places[j], inside[j], variable, router.n_leaves)
                for j, variable in enumerate(schema.variables)
            ]
        )
    return Sums(histograms, cells)


def merge_sums(one: Sums, other: Sums) -> Sums:
    """The sums of all rows together."""
    histograms = [a + b for a, b in zip(one.histograms, other.histograms, strict=True)]
    pairs = zip(one.cells, other.cells, strict=True)
    return Sums(histograms, [[_merge_cells(a, b) for a, b in zip(*both, strict=True)] for both in pairs])


class _Inside(NamedTuple):
    """The rows of a line that lie in intervals. None are picked out where all do."""

    rows: NDArray[np.int64] | None
    interval: NDArray[np.int64]  # which one
    places: Floats


def _inside(rows: Encoded, number: int, variable: Variable) -> _Inside | None:
    places, states = rows.places[number], rows.states[number]
    if places is None:
        return None
    first = variable.first_interval
    if first == 0:
        return _Inside(None, states.astype(np.int64), places)
    some = np.flatnonzero(states >= first)
    return _Inside(some, states[some].astype(np.int64) - first, places[some])


def _sum_cells(
    leaf: NDArray[np.int64],
    states: NDArray[np.unsignedinteger],
    places: Floats | None,
    inside: _Inside | None,
    variable: Variable,
    n_leaves: int,
) -> Cells:
    n_states = variable.n_states
    if n_leaves * n_states > DENSE_CELLS:
        return sum_tree(states, places, leaf, variable)
    found = np.bincount(leaf * n_states + states if n_states > 1 else leaf, minlength=n_leaves * n_states)
    counts = found.reshape(n_leaves, n_states).astype(np.uint32)
    if inside is None:
        return Dense(counts, np.empty((n_leaves, 0)), np.empty((n_leaves, 0)))
    n_intervals = n_states - variable.first_interval
    here = leaf if inside.rows is None else leaf[inside.rows]
    cell = here * n_intervals + inside.interval if n_intervals > 1 else here
    shape = (n_leaves, n_intervals)
    sums = np.bincount(cell, inside.places, n_leaves * n_intervals).reshape(shape)
    means = sums / np.maximum(counts[:, variable.first_interval :], 1)
    away = inside.places - means.ravel()[cell]
    # An empty bincount forgets that its weights were floats.
    squares = np.bincount(cell, away * away, n_leaves * n_intervals).astype(np.float64)
    return Dense(counts, means, squares.reshape(shape))


def _merge_cells(one: Cells, other: Cells) -> Cells:
    if isinstance(one, Dense) and isinstance(other, Dense):
        return _merge_dense(one, other)
    assert isinstance(one, TreeSums)
    assert isinstance(other, TreeSums)
    return merge_trees(one, other)


def _merge_dense(one: Dense, other: Dense) -> Dense:
    """Cell by cell; means and squares by Chan's formula."""
    a, b = one.inside, other.inside
    share = b / np.maximum(a + b, 1.0)
    apart = other.means - one.means
    means = one.means + apart * share
    return Dense(one.counts + other.counts, means, one.squares + other.squares + apart**2 * a * share)


def _bytes(variable: Variable, n_leaves: int, n_rows: int) -> int:
    cells = n_leaves * variable.n_states
    if cells > DENSE_CELLS:
        return SPARSE_BYTES * min(cells, n_rows)
    return 4 * cells + 16 * n_leaves * int(variable.interval.sum())


def _table(sums: Sums, schema: Schema, number: int, starts: Ints) -> pl.DataFrame:
    """The table of one variable, one row per (leaf, state) that holds rows."""
    variable = schema.variables[number]
    trees = [cells[number] for cells in sums.cells]
    return join_trees([_sparse(t, variable) if isinstance(t, Dense) else t for t in trees], variable, starts)


def _sparse(dense: Dense, variable: Variable) -> TreeSums:
    counts = dense.counts.ravel()
    keys = np.flatnonzero(counts)
    if not variable.interval.any():
        return TreeSums(keys, counts[keys].astype(np.int64), np.empty(0), np.empty(0))
    interval = keys % variable.n_states - variable.first_interval
    at = keys // variable.n_states * dense.means.shape[1] + np.maximum(interval, 0)
    means = np.where(interval >= 0, dense.means.ravel()[at], np.nan)
    squares = np.where(interval >= 0, dense.squares.ravel()[at], np.nan)
    return TreeSums(keys, counts[keys].astype(np.int64), means, squares)
