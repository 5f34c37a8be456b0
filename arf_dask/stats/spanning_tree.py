"""Maximum spanning forests of dense graphs (Prim's algorithm)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arf_dask.typing import Flags, Floats


class Link(NamedTuple):
    """An edge of a rooted forest."""

    parent: int
    child: int
    weight: float


def spanning_forest(weights: Floats) -> list[Link]:
    """Return the edges of the maximum spanning forest, parents before their children.

    Args:
        weights: (node, node), symmetric. Edges of zero or negative weight are not used.

    Returns:
        One link per edge. Every tree is rooted at its node with the largest sum of positive weights.

    >>> spanning_forest(np.array([[0.0, 2.0, 1.0], [2.0, 0.0, 3.0], [1.0, 3.0, 0.0]]))
    [Link(parent=1, child=2, weight=3.0), Link(parent=1, child=0, weight=2.0)]
    """
    positive_weights = np.maximum(weights, 0.0)
    roots = np.argsort(-positive_weights.sum(axis=1), kind="stable")
    outside = np.ones(len(weights), dtype=bool)
    links: list[Link] = []
    for root in roots.tolist():
        if outside[root]:
            _grow_tree(positive_weights, root, outside, links)
    return links


def _grow_tree(weights: Floats, root: int, outside: Flags, links: list[Link]) -> None:
    """Grow the tree of one root by repeatedly adding the heaviest edge to a node outside it."""
    outside[root] = False
    best_weights, best_parents = weights[root].copy(), np.full(len(weights), root)
    while True:
        child = int(np.argmax(np.where(outside, best_weights, 0.0)))
        if not outside[child] or best_weights[child] <= 0:
            return
        links.append(Link(int(best_parents[child]), child, float(best_weights[child])))
        outside[child] = False
        is_heavier = weights[child] > best_weights
        best_weights, best_parents = (
            np.where(is_heavier, weights[child], best_weights),
            np.where(is_heavier, child, best_parents),
        )
