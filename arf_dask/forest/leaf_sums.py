"""Leaf sums (paper, Alg. 2): the mergeable sums from which leaf parameters are estimated.

A task routes the rows of its parts through a batch of trees and sums them per leaf. The results of tasks are merged,
and `sums_table` returns the table from which `leaf_fitting` estimates parameters. Rows in memory are one part. For any
parts a and b, `merge_sums(sum_parts(a), sum_parts(b))` equals `sum_parts(a + b)`, up to the last digits of moments.

Trees are processed in batches to keep the sums small; every batch is another pass over the data. To add another sum per
leaf, add a field to `TreeSums`, fill it in `_add_part` and merge it in `_merge_trees`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.parts import TASK_CELLS, PartGroup, Parts, group_parts, load_each
from arf_dask.forest.dependence_learning import NO_STRUCTURE, Structure, count_meetings, empty_meetings
from arf_dask.forest.leaf_moments import (
    MOMENT_BYTES,
    LinePlaces,
    Moments,
    arrange_places,
    empty_moments,
    leaf_moments,
    merge_moments,
)
from arf_dask.forest.routing import RoutingTable, route_to_leaves, routing_table
from arf_dask.forest.state_counts import (
    StateCounts,
    add_rows,
    compact_counts,
    counts_size,
    empty_counts,
    filled_cells,
    merge_counts,
)
from arf_dask.forest.trees import Tree, count_leaves
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner, Threads
from arf_dask.schema.columns import Schema, Variable
from arf_dask.schema.encoding import EncodedRows, encode_rows
from arf_dask.typing import Codes, Counts, Ints

BATCH_BYTES = 2**27  # maximum size of the sums of a batch of trees
SMALL_TASKS = 32  # approximate number of tasks for small tables
CELL_BYTES = 8  # assumed size of a cell, to compare the rows of a task with its sums
SUM_COLUMNS = {
    "leaf": pl.UInt32,
    "state": pl.UInt32,
    "count": pl.UInt32,
    "mean": pl.Float64,
    "squares": pl.Float64,
}


class TreeSums(NamedTuple):
    """Sums of one tree over a set of rows."""

    counts: list[StateCounts]  # per variable: rows by (leaf, state)
    moments: dict[int, Moments]  # per variable with intervals: moments by (leaf, interval)


class LeafSums(NamedTuple):
    """Sums of a batch of consecutive trees over a set of rows."""

    first_tree: int
    histograms: list[Counts]  # per variable: rows by code
    meetings: list[Counts]  # per edge of the dependency tree: rows by (bin of the parent, bin of the child)
    trees: list[TreeSums]


class SumContext(NamedTuple):
    """Arguments shared by all tasks of a pass."""

    schema: Schema
    first_tree: int
    routing: list[RoutingTable]  # of the trees of the batch
    threads: int  # number of threads among which a task divides the trees
    structure: Structure = NO_STRUCTURE  # the dependency tree, on whose edges pairs of bins are counted


class _PartRows(NamedTuple):
    """The rows of one part, prepared for all trees."""

    by_row: Codes  # codes in row-major order
    encoded: EncodedRows
    places: list[LinePlaces]


def sum_leaves(
    parts: Parts,
    schema: Schema,
    trees: Sequence[Tree],
    runner: Runner,
    report: Progress,
    structure: Structure = NO_STRUCTURE,
) -> Iterator[LeafSums]:
    """Yield the sums of all rows for consecutive batches of trees.

    Args:
        parts: the rows.
        schema: the schema.
        trees: all trees of the forest.
        runner: runs the tasks.
        report: receives progress updates.
        structure: the dependency tree, on whose edges pairs of bins are counted.
    """
    batches = list(tree_batches(schema, trees, parts.n_rows))
    largest_batch = max(sum(_tree_bytes(schema, trees[t], parts.n_rows) for t in batch) for batch in batches)
    groups = group_parts(parts, cells_per_task(parts.n_rows * len(parts.dtypes), largest_batch))
    report.stage("leaf parameters", len(groups) * len(batches))
    # A single task would leave all threads but one idle, so its trees are divided among them.
    threads = runner.threads if isinstance(runner, Threads) and len(groups) == 1 else 1
    for batch in batches:
        context = SumContext(schema, batch.start, [routing_table(trees[t]) for t in batch], threads, structure)
        yield runner.reduce(sum_parts, context, groups, merge_sums, report.advance)


def cells_per_task(cells: int, sum_bytes: int) -> int:
    """Return the maximum number of cells per task, for a table of `cells` cells and sums of `sum_bytes` per task.

    The number of tasks depends on the data but not on the number of workers, so that sums are always added in the same
    order. A task reads at least as many bytes of rows as its sums have, so that a large cluster transfers less than the
    data. Small tables are nevertheless split into about `SMALL_TASKS` tasks.

    >>> [10**9 // cells_per_task(10**9, sum_bytes) for sum_bytes in (2**20, 2**27)]
    [100, 59]
    >>> cells_per_task(32_000_000, 2**27)
    1000000
    """
    return min(-(-cells // SMALL_TASKS), max(TASK_CELLS, sum_bytes // CELL_BYTES))


def tree_batches(schema: Schema, trees: Sequence[Tree], n_rows: int) -> Iterator[range]:
    """Yield ranges of consecutive trees whose sums take at most `BATCH_BYTES` in total."""
    first_tree = batch_bytes = 0
    for tree_index, tree in enumerate(trees):
        tree_bytes = _tree_bytes(schema, tree, n_rows)
        if tree_index > first_tree and batch_bytes + tree_bytes > BATCH_BYTES:
            yield range(first_tree, tree_index)
            first_tree, batch_bytes = tree_index, 0
        batch_bytes += tree_bytes
    yield range(first_tree, len(trees))


def sum_parts(context: SumContext, group: PartGroup) -> LeafSums:
    """Return the sums of a group of parts, which are loaded one at a time."""
    schema = context.schema
    histograms = [np.zeros(variable.n_codes, dtype=np.int64) for variable in schema.variables]
    meetings = empty_meetings(context.structure)
    trees = [_empty_sums(schema, table.n_leaves) for table in context.routing]
    for frame in load_each(group[1]):
        encoded = encode_rows(frame, schema)
        for variable_index, histogram in enumerate(histograms):
            histogram += np.bincount(encoded.codes[:, variable_index], minlength=len(histogram))
        for edge_counts, part_counts in zip(meetings, count_meetings(encoded.codes, context.structure), strict=True):
            edge_counts += part_counts
        part_rows = _PartRows(np.ascontiguousarray(encoded.codes), encoded, arrange_places(encoded, schema))
        tree_work = zip(trees, context.routing, strict=True)
        trees = list(Threads(context.threads).map(_add_part, (schema, part_rows), tree_work))
    compact_trees = [tree._replace(counts=[compact_counts(counts) for counts in tree.counts]) for tree in trees]
    _trim_heap()
    return LeafSums(context.first_tree, histograms, meetings, compact_trees)


def merge_sums(one: LeafSums, other: LeafSums) -> LeafSums:
    """Merge the sums of two sets of rows. Neither argument is modified, as a task may run twice."""
    histograms = [a + b for a, b in zip(one.histograms, other.histograms, strict=True)]
    trees = [_merge_trees(a, b) for a, b in zip(one.trees, other.trees, strict=True)]
    meetings = [a + b for a, b in zip(one.meetings, other.meetings, strict=True)]
    return LeafSums(one.first_tree, histograms, meetings, trees)


def sums_table(sums: LeafSums, schema: Schema, number: int, starts: Ints) -> pl.DataFrame:
    """Return the sums of one variable as a table.

    One row per (leaf, state) with rows, sorted: leaf (numbered over all trees), state, count, mean, squares (sum of
    squared deviations). Mean and squares are null for states that are not intervals.

    Args:
        sums: the sums of a batch of trees.
        schema: the schema.
        number: the variable.
        starts: per tree of the forest, the index of its first leaf.
    """
    variable = schema.variables[number]
    tables = [
        _tree_table(tree, variable, number, int(starts[sums.first_tree + tree_index]))
        for tree_index, tree in enumerate(sums.trees)
    ]
    return pl.concat(tables)


def _trim_heap() -> None:
    """Return freed memory to the operating system (Linux).

    Otherwise glibc retains freed blocks between live results: 0.6 GB after summing 5,000,000 rows.
    """
    with suppress(AttributeError, OSError, TypeError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def _empty_sums(schema: Schema, n_leaves: int) -> TreeSums:
    counts = [empty_counts(n_leaves, variable.n_states) for variable in schema.variables]
    lines = [(number, variable) for number, variable in enumerate(schema.variables) if variable.interval.any()]
    return TreeSums(counts, {number: empty_moments(variable, n_leaves) for number, variable in lines})


def _add_part(shared: tuple[Schema, _PartRows], work: tuple[TreeSums, RoutingTable]) -> TreeSums:
    """Add the rows of a part to the sums of one tree: counts in place, moments by a merge."""
    (schema, rows), (sums, table) = shared, work
    row_leaves = route_to_leaves(table, rows.by_row)
    counts = [
        add_rows(state_counts, row_leaves, states, variable.n_states)
        for state_counts, states, variable in zip(sums.counts, rows.encoded.states, schema.variables, strict=True)
    ]
    moments = leaf_moments(rows.places, row_leaves, table.n_leaves)
    return TreeSums(counts, {index: merge_moments(sums.moments[index], added) for index, added in moments.items()})


def _merge_trees(one: TreeSums, other: TreeSums) -> TreeSums:
    counts = [merge_counts(a, b) for a, b in zip(one.counts, other.counts, strict=True)]
    moments = {number: merge_moments(moments_one, other.moments[number]) for number, moments_one in one.moments.items()}
    return TreeSums(counts, moments)


def _tree_table(sums: TreeSums, variable: Variable, number: int, start: int) -> pl.DataFrame:
    cell, rows = filled_cells(sums.counts[number])
    leaf, state = np.divmod(cell, variable.n_states)
    table = pl.DataFrame(
        {
            "leaf": (leaf + start).astype(np.uint32),
            "state": state.astype(np.uint32),
            "count": rows.astype(np.uint32),
        }
    )
    if number not in sums.moments:
        return table.with_columns(mean=None, squares=None)  # columns of type Null take no memory
    interval_index = state - variable.first_interval
    moments, inside = sums.moments[number], pl.Series(interval_index >= 0)
    cells = (leaf, np.maximum(interval_index, 0))
    mean, squares = (pl.Series(values[cells]).set(~inside, None) for values in (moments.means, moments.squares))
    return table.with_columns(mean=mean, squares=squares)


def _tree_bytes(schema: Schema, tree: Tree, n_rows: int) -> int:
    """Return the size in bytes of the sums of a tree while rows are added."""
    return sum(_sum_bytes(variable, count_leaves(tree), n_rows) for variable in schema.variables)


def _sum_bytes(variable: Variable, n_leaves: int, n_rows: int) -> int:
    n_intervals = variable.n_states - variable.first_interval
    return counts_size(n_leaves, variable.n_states, n_rows) + MOMENT_BYTES * n_leaves * n_intervals
