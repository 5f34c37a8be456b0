"""Boxes: the ranges of codes that reach each leaf of a tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.trees import Tree, depth_levels, leaf_nodes
from arf_dask.typing import Ints


class Boxes(NamedTuple):
    """The range of codes of each leaf, as (leaf, variable) arrays; both ends are inclusive."""

    low: NDArray[np.integer]
    high: NDArray[np.integer]


def leaf_boxes(tree: Tree, n_codes: Ints, roots: Ints | None = None) -> Boxes:
    """Return the box of every leaf, from left to right.

    Args:
        tree: a tree, or several trees joined by `side_by_side`.
        n_codes: the number of codes of each variable.
        roots: the root nodes; node 0 if None.
    """
    n_nodes = len(tree.left)
    low = np.zeros((n_nodes, len(n_codes)), dtype=np.int32)
    high = np.tile(n_codes.astype(np.int32) - 1, (n_nodes, 1))
    for level_nodes in depth_levels(tree, roots):
        inner_nodes = level_nodes[tree.left[level_nodes] >= 0]
        left, right, feature = tree.left[inner_nodes], tree.right[inner_nodes], tree.feature[inner_nodes]
        for child in (left, right):
            low[child], high[child] = low[inner_nodes], high[inner_nodes]
        high[left, feature] = np.minimum(high[left, feature], tree.threshold[inner_nodes])
        low[right, feature] = np.maximum(low[right, feature], tree.threshold[inner_nodes] + 1)
    leaves = leaf_nodes(tree)
    return Boxes(low[leaves], high[leaves])
