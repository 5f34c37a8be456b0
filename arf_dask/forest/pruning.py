"""Prune leaves with too few rows, for rows in memory or in parts.

Only rows of leaves that are too small move to another leaf. For data in parts, a first pass therefore counts the rows
of every leaf, and a second pass fetches the rows of small leaves, at most `min_leaf` - 1 per leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.checks import check_frame
from arf_dask.data.parts import PartGroup, Parts, group_parts, load_each
from arf_dask.forest.routing import RoutingTable, route_to_leaves, route_to_nodes, routing_table
from arf_dask.forest.trees import LEAF, Tree, depth_levels, leaf_nodes, to_preorder
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner
from arf_dask.schema.columns import Schema
from arf_dask.schema.encoding import encode_codes, match_frame
from arf_dask.typing import Codes, Counts, Ints


class LeafRows(NamedTuple):
    """The rows of the small leaves of one tree."""

    codes: Codes
    leaf: Counts


class _Context(NamedTuple):
    """Arguments shared by all tasks of a pass over the parts."""

    schema: Schema
    tables: list[RoutingTable]
    small: list[NDArray[np.bool_]]  # per tree: flags of leaves that are too small; empty in the counting pass


def prune_tree(
    tree: Tree, nodes: NDArray[np.integer], codes: Codes, min_leaf: int, counted: Counts | None = None
) -> tuple[Tree, Ints]:
    """Remove leaves with fewer than `min_leaf` rows.

    If a leaf is too small, the split above it is removed and its rows are routed to the sibling.

    Args:
        tree: the tree; it is not modified.
        nodes: the leaf node of every row.
        codes: the codes of every row.
        min_leaf: minimum number of rows per leaf.
        counted: per node, the number of further rows that are not in `nodes`. Only leaves with at least `min_leaf`
            rows may have such rows, as these rows never move.

    Returns:
        The pruned tree in preorder, and the leaf index of every row (0, 1, ... from left to right).
    """
    counted = np.zeros(len(tree.left), dtype=np.int64) if counted is None else counted
    left, right = tree.left.copy(), tree.right.copy()
    nodes = nodes.astype(np.int64)
    root = 0
    while left[root] >= 0:
        counts = np.bincount(nodes, minlength=len(left)) + counted
        rewired = Tree(tree.feature, tree.threshold, left, right)
        inner = np.concatenate(depth_levels(rewired, np.array([root], dtype=np.int32)))
        inner = inner[left[inner] >= 0]
        lefts, rights = left[inner], right[inner]
        small_left = (left[lefts] < 0) & (counts[lefts] < min_leaf)
        small_right = (left[rights] < 0) & (counts[rights] < min_leaf)
        if not np.any(small_left | small_right):
            break
        becomes_leaf = (small_left | small_right) & (left[lefts] < 0) & (left[rights] < 0)
        # Parents that become leaves take the rows of both children; otherwise rows of small leaves move to the sibling.
        moved_to = np.arange(len(left), dtype=np.int32)
        moved_to[lefts[becomes_leaf]] = moved_to[rights[becomes_leaf]] = inner[becomes_leaf]
        bypass_left, bypass_right = small_left & ~becomes_leaf, small_right & ~becomes_leaf
        moved_to[lefts[bypass_left]], moved_to[rights[bypass_right]] = rights[bypass_left], lefts[bypass_right]
        skipped_to = np.arange(len(left), dtype=np.int32)
        skipped_to[inner[bypass_left]], skipped_to[inner[bypass_right]] = rights[bypass_left], lefts[bypass_right]
        left[inner[becomes_leaf]] = right[inner[becomes_leaf]] = LEAF
        counted = np.bincount(moved_to, counted, len(left)).astype(np.int64)
        skipped_to = _follow(skipped_to)
        left, right = np.where(left >= 0, skipped_to[left], LEAF), np.where(right >= 0, skipped_to[right], LEAF)
        root = int(skipped_to[root])
        affected_rows = np.flatnonzero(moved_to[nodes] != nodes)
        table = routing_table(Tree(tree.feature, tree.threshold, left, right))
        nodes[affected_rows] = route_to_nodes(table, codes[affected_rows], skipped_to[moved_to[nodes[affected_rows]]])
    pruned, new_number = to_preorder(Tree(tree.feature, tree.threshold, left, right), root)
    leaf_number = np.cumsum(pruned.left < 0, dtype=np.int32) - 1
    return pruned, leaf_number[new_number[nodes]]


def prune_by_parts(
    parts: Parts, schema: Schema, trees: Sequence[Tree], min_leaf: int, runner: Runner, report: Progress
) -> list[Tree]:
    """Remove leaves with fewer than `min_leaf` rows of data that are read in parts."""
    match_frame(pl.DataFrame(schema=parts.dtypes), schema)
    groups = group_parts(parts)
    report.stage("rows to their leaves", 2 * len(groups))
    context = _Context(schema, [routing_table(tree) for tree in trees], [])
    leaf_counts = runner.reduce(count_rows, context, groups, add_counts, report.advance)
    context = context._replace(small=[rows < min_leaf for rows in leaf_counts])
    small_rows = runner.reduce(fetch_rows, context, groups, join_rows, report.advance)
    return [_prune_counted(*tree_counts, min_leaf) for tree_counts in zip(trees, leaf_counts, small_rows, strict=True)]


def count_rows(context: _Context, group: PartGroup) -> list[Counts]:
    """Count the rows of every leaf in a group of parts, per tree."""
    part_counts = (
        [np.bincount(route_to_leaves(table, codes), minlength=table.n_leaves) for table in context.tables]
        for codes in _codes(context.schema, group)
    )
    return reduce(add_counts, part_counts)


def add_counts(one: list[Counts], other: list[Counts]) -> list[Counts]:
    """Merge the results of `count_rows`."""
    return [a + b for a, b in zip(one, other, strict=True)]


def fetch_rows(context: _Context, group: PartGroup) -> list[LeafRows]:
    """Fetch the rows of small leaves in a group of parts, per tree."""
    part_rows = []
    for codes in _codes(context.schema, group):
        tree_rows = []
        for table, small in zip(context.tables, context.small, strict=True):
            row_leaves = route_to_leaves(table, codes)
            row_index = np.flatnonzero(small[row_leaves])
            tree_rows.append(LeafRows(codes[row_index], row_leaves[row_index]))
        part_rows.append(tree_rows)
    return reduce(join_rows, part_rows)


def join_rows(one: list[LeafRows], other: list[LeafRows]) -> list[LeafRows]:
    """Merge the results of `fetch_rows`, in order."""
    pairs = zip(one, other, strict=True)
    return [LeafRows(np.concatenate([a.codes, b.codes]), np.concatenate([a.leaf, b.leaf])) for a, b in pairs]


def _codes(schema: Schema, group: PartGroup) -> Iterator[Codes]:
    for frame in load_each(group[1], schema.names):
        check_frame(frame)
        yield np.ascontiguousarray(encode_codes(frame, schema))


def _prune_counted(tree: Tree, counts: Counts, small: LeafRows, min_leaf: int) -> Tree:
    nodes, counted = leaf_nodes(tree), np.zeros(len(tree.left), dtype=np.int64)
    counted[nodes] = np.where(counts < min_leaf, 0, counts)
    return prune_tree(tree, nodes[small.leaf], small.codes, min_leaf, counted)[0]


def _follow(target: Ints) -> Ints:
    """Follow each chain of pointers to its end."""
    while True:
        next_target = target[target]
        if np.array_equal(next_target, target):
            return target
        target = next_target
