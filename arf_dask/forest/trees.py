"""Trees as arrays of nodes, and functions on their structure.

A row goes left if `code <= threshold`. Nodes are numbered in preorder, so that the leaves below any node have
consecutive indices. Growing, routing, boxes and pruning are in separate modules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arf_dask.typing import Floats, Ints

LEAF = -1


class Tree(NamedTuple):
    """One row per node; the root is node 0."""

    feature: Ints  # the variable split on, -1 at leaves
    threshold: Ints  # rows with code <= threshold go left
    left: Ints  # child nodes, -1 at leaves
    right: Ints


def single_leaf() -> Tree:
    """Return a tree without splits."""
    return Tree(*(np.array([value], dtype=np.int32) for value in (LEAF, 0, LEAF, LEAF)))


def leaf_nodes(tree: Tree) -> Ints:
    """Return the node of every leaf, from left to right."""
    return np.flatnonzero(tree.left < 0).astype(np.int32)


def count_leaves(tree: Tree) -> int:
    """Return the number of leaves."""
    return int((tree.left < 0).sum())


def depth_levels(tree: Tree, roots: Ints | None = None) -> list[Ints]:
    """Return the nodes at each depth, starting with the roots.

    Args:
        tree: a tree, or several trees joined by `side_by_side`.
        roots: the root nodes; node 0 if None.
    """
    levels = [np.zeros(1, dtype=np.int32) if roots is None else roots]
    while True:
        last_level = levels[-1]
        inner_nodes = last_level[tree.left[last_level] >= 0]
        if not len(inner_nodes):
            return levels
        levels.append(np.concatenate([tree.left[inner_nodes], tree.right[inner_nodes]]))


def side_by_side(trees: Sequence[Tree]) -> tuple[Tree, Ints]:
    """Join several trees into one table of nodes; return it with the root node of each tree."""
    roots = np.cumsum([0, *(len(tree.left) for tree in trees[:-1])]).astype(np.int32)
    arrays = [[tree[side] for tree in trees] for side in range(4)]
    for side in (2, 3):
        arrays[side] = [np.where(part >= 0, part + root, LEAF) for part, root in zip(arrays[side], roots, strict=True)]
    return Tree(*(np.concatenate(parts).astype(np.int32) for parts in arrays)), roots


def to_preorder(tree: Tree, root: int = 0) -> tuple[Tree, Ints]:
    """Renumber the nodes below `root` in preorder and drop all others.

    Returns the renumbered tree, and the new index of every node (-1 for dropped nodes).
    """
    levels = depth_levels(tree, np.array([root], dtype=np.int32))
    subtree_size = np.ones(len(tree.left), dtype=np.int32)
    for level_nodes in reversed(levels):
        inner_nodes = level_nodes[tree.left[level_nodes] >= 0]
        subtree_size[inner_nodes] = 1 + subtree_size[tree.left[inner_nodes]] + subtree_size[tree.right[inner_nodes]]
    new_number = np.full(len(tree.left), LEAF, dtype=np.int32)
    new_number[root] = 0
    for level_nodes in levels:
        inner_nodes = level_nodes[tree.left[level_nodes] >= 0]
        new_number[tree.left[inner_nodes]] = new_number[inner_nodes] + 1
        new_number[tree.right[inner_nodes]] = new_number[inner_nodes] + 1 + subtree_size[tree.left[inner_nodes]]
    kept_nodes = np.flatnonzero(new_number >= 0)
    kept_nodes = kept_nodes[np.argsort(new_number[kept_nodes])]
    is_split = tree.left[kept_nodes] >= 0
    renumbered = Tree(
        np.where(is_split, tree.feature[kept_nodes], LEAF).astype(np.int32),
        np.where(is_split, tree.threshold[kept_nodes], 0).astype(np.int32),
        np.where(is_split, new_number[tree.left[kept_nodes]], LEAF).astype(np.int32),
        np.where(is_split, new_number[tree.right[kept_nodes]], LEAF).astype(np.int32),
    )
    return renumbered, new_number


def add_split_weights(tree: Tree, weights: Floats, depth: int = 4) -> None:
    """Add the splits in the first levels of a tree to the weights of their variables; weights halve with each level."""
    nodes = np.zeros(1, dtype=np.int64)
    for level in range(depth):
        nodes = nodes[tree.left[nodes] >= 0]
        np.add.at(weights, tree.feature[nodes], 0.5**level)
        nodes = np.concatenate([tree.left[nodes], tree.right[nodes]]).astype(np.int64)
