"""Routing of rows to the leaves of a tree.

A tree is packed into two integer arrays. Rows descend in blocks that fit the processor's cache. Rows that reach a leaf
early stay there; the remaining rows of all blocks then continue together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.trees import Tree
from arf_dask.typing import Codes, Counts, Ints

BLOCK_ROWS = 2**13  # rows per block
LEVELS_AT_ONCE = 4  # levels that rows descend between checks for arrival at a leaf
FEW_ROWS = 8  # a block is finished once at most one in this many rows is not at a leaf
FEATURE_BITS = 24  # low bits of a packed split; the high bits hold the threshold


class RoutingTable(NamedTuple):
    """A tree packed for routing."""

    splits: NDArray[np.int64]  # per node: threshold and feature, packed
    children: NDArray[np.int64]  # per node: left and right child; leaves point to themselves
    is_leaf: NDArray[np.bool_]  # per node
    leaf_number: Counts  # per leaf node: index of the leaf, from left to right
    n_leaves: int


def routing_table(tree: Tree) -> RoutingTable:
    """Pack a tree for routing."""
    is_leaf = tree.left < 0
    feature = np.where(is_leaf, 0, tree.feature).astype(np.int64)
    splits = (tree.threshold.astype(np.int64) << FEATURE_BITS) | feature
    children = np.stack([tree.left, tree.right], axis=1).astype(np.int64)
    # Leaves point to themselves, so that arrival need not be checked at every level.
    leaves = np.flatnonzero(is_leaf)
    children[leaves] = leaves[:, None]
    leaf_number = np.cumsum(is_leaf) - 1
    return RoutingTable(splits, children.ravel(), is_leaf, leaf_number, len(leaves))


def route_to_nodes(table: RoutingTable, codes: Codes, start: NDArray[np.integer] | None = None) -> Counts:
    """Return the leaf node of every row.

    Args:
        table: the packed tree.
        codes: (row, variable).
        start: the node each row starts from; the root if None.
    """
    nodes = np.zeros(len(codes), dtype=np.int64) if start is None else start.astype(np.int64)
    flat_codes = np.ascontiguousarray(codes).ravel()
    rows = np.flatnonzero(~table.is_leaf[nodes])
    while len(rows):
        blocks = [rows[first : first + BLOCK_ROWS] for first in range(0, len(rows), BLOCK_ROWS)]
        rows = np.concatenate([_route_block(table, flat_codes, codes.shape[1], nodes, block) for block in blocks])
    return nodes


def route_to_leaves(table: RoutingTable, codes: Codes) -> Counts:
    """Return the leaf index of every row: 0, 1, ... from left to right."""
    return np.asarray(table.leaf_number[route_to_nodes(table, codes)])


def route_ranges(tree: Tree, low: NDArray[np.integer], high: NDArray[np.integer]) -> tuple[Counts, Counts]:
    """Return all pairs of a row and a leaf that it can reach, sorted by row.

    Args:
        tree: the tree.
        low: (row, variable), the lowest code of the row. At most 65,536 rows.
        high: (row, variable), the highest code; a row goes both ways if its range is on both sides of a split.

    Returns:
        The row and the leaf index of every pair. The order of the leaves of a row does not depend on the other rows.
    """
    row, node = np.arange(len(low)), np.zeros(len(low), dtype=np.int32)
    arrived_pairs: list[tuple[Counts, Ints]] = [(row[:0], node[:0])]
    flat_low, flat_high, n_variables = low.ravel(), high.ravel(), low.shape[1]
    while len(row):
        is_inner = tree.left[node] >= 0
        arrived_pairs.append((row[~is_inner], node[~is_inner]))
        row, node = row[is_inner], node[is_inner]
        threshold, code_index = tree.threshold[node], row * n_variables + tree.feature[node]
        goes_left, goes_right = flat_low[code_index] <= threshold, flat_high[code_index] > threshold
        row = np.concatenate([row[goes_left], row[goes_right]])
        node = np.concatenate([tree.left[node[goes_left]], tree.right[node[goes_right]]])
    row, node = (np.concatenate(part) for part in zip(*arrived_pairs, strict=True))
    by_row = np.argsort(row.astype(np.uint16), kind="stable")  # radix sort: linear time for 16 bits
    leaf_number = np.cumsum(tree.left < 0, dtype=np.int64) - 1
    return row[by_row], leaf_number[node[by_row]]


def _route_block(table: RoutingTable, flat: Codes, n_variables: int, nodes: Counts, rows: Counts) -> Counts:
    """Route rows from their nodes until few have not reached a leaf; return these rows."""
    feature_mask = 2**FEATURE_BITS - 1
    max_remaining = len(rows) // FEW_ROWS
    row_nodes, row_offsets = nodes[rows], rows * n_variables
    while True:
        for _ in range(LEVELS_AT_ONCE):
            split = table.splits[row_nodes]
            goes_right = flat[row_offsets + (split & feature_mask)] > (split >> FEATURE_BITS)
            row_nodes = table.children[2 * row_nodes + goes_right]
        nodes[rows] = row_nodes
        active = np.flatnonzero(~table.is_leaf[row_nodes])
        rows, row_nodes, row_offsets = rows[active], row_nodes[active], row_offsets[active]
        if len(rows) <= max_remaining:
            return rows
