"""Boosted trees written down by hand or drawn at random, and the plain way to score them."""

from typing import Any

import numpy as np

from arf_dask.refinement.boosted_trees import LEAF, BoostedTrees
from arf_dask.refinement.features import N_CODES

Node = float | tuple[int, set[int], Any, Any]  # the value of a leaf; or feature, codes that go left, left, right


def boosted(*trees: Node, base: float = 0.0, stages: tuple[int, ...] = ()) -> BoostedTrees:
    """Trees from nested tuples."""
    rows: list[tuple[int, int, Any, float]] = []

    def add(number: int, node: Node) -> None:
        if isinstance(node, tuple):
            feature, left, one, other = node
            rows.append((number, feature, np.isin(np.arange(N_CODES), list(left)), 0.0))
            add(number, one)
            add(number, other)
        else:
            rows.append((number, LEAF, np.zeros(N_CODES, dtype=bool), node))

    for number, tree in enumerate(trees):
        add(number, tree)
    tree_ids, features, left_codes, values = zip(*rows, strict=True)
    return BoostedTrees(
        np.array(tree_ids, np.int64),
        np.array(features, np.int32),
        np.array(left_codes, dtype=bool),
        np.array(values, np.float64),
        base,
        stages,
    )


def random_tree(rng: Any, n_features: int, n_leaves: int) -> Node:
    """A tree with so many leaves, whose nodes send any codes left."""
    if n_leaves == 1:
        return float(rng.normal())
    n_left = int(rng.integers(1, n_leaves))
    left = set(rng.choice(N_CODES, int(rng.integers(1, N_CODES)), replace=False).tolist())
    sides = random_tree(rng, n_features, n_left), random_tree(rng, n_features, n_leaves - n_left)
    return int(rng.integers(n_features)), left, *sides


def walk(node: Node, codes: list[int]) -> float:
    """The leaf value of one row."""
    while isinstance(node, tuple):
        feature, left, one, other = node
        node = one if codes[feature] in left else other
    return node
