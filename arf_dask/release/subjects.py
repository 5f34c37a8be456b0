"""Prune trees so that every leaf holds enough subjects, not just enough rows."""

from __future__ import annotations

import numpy as np

from arf_dask.forest.pruning import prune_tree
from arf_dask.forest.routing import route_to_nodes, routing_table
from arf_dask.forest.trees import Tree
from arf_dask.typing import Codes, Counts, Flags


def prune_by_subjects(tree: Tree, codes: Codes, subjects: Counts, min_leaf: int) -> Tree:
    """Prune leaves with fewer than `min_leaf` subjects.

    `prune_tree` counts rows, so it receives one row per (leaf, subject). A subject in two leaves that are merged would
    count twice, so pruning is repeated until every leaf has enough subjects.

    Args:
        tree: The tree; it is not modified.
        codes: The codes of every row.
        subjects: The subject id of every row.
        min_leaf: The minimum number of subjects per leaf.
    """
    while True:
        nodes = route_to_nodes(routing_table(tree), codes)
        chosen = _one_row_each(nodes, subjects)
        held = np.bincount(nodes[chosen], minlength=len(tree.left))
        if len(tree.left) == 1 or bool((held[tree.left < 0] >= min_leaf).all()):
            return tree
        tree, _ = prune_tree(tree, nodes[chosen], codes[chosen], min_leaf)


def _one_row_each(nodes: Counts, subjects: Counts) -> Flags:
    """Return a mask of the first row of every (leaf, subject)."""
    pairs = nodes * (int(subjects.max(initial=0)) + 1) + subjects
    chosen = np.zeros(len(nodes), dtype=bool)
    chosen[np.unique(pairs, return_index=True)[1]] = True
    return chosen
