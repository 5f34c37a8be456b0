"""Piecewise-constant densities on the leaves of a forest that predicts a target: the baseline of the paper's Fig. 2.

Every leaf of a scikit-learn forest is a box; its density is its share of the rows by its volume inside the range seen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

Floats = NDArray[np.float64]


def log_densities(
    rows: Floats, target: NDArray[np.bool_], at: Floats, *, trees: int, min_leaf: int, seed: int
) -> Floats:
    """The log-density at the points `at`, learned from `rows`; -inf beyond the range of `rows`."""
    forest = RandomForestClassifier(trees, min_samples_leaf=min_leaf, random_state=seed, n_jobs=2).fit(rows, target)
    lower, upper = rows.min(axis=0), rows.max(axis=0)
    inside = ((at >= lower) & (at <= upper)).all(axis=1)
    density = np.mean([tree_density(tree, rows, at, lower, upper) for tree in forest.estimators_], axis=0)
    with np.errstate(divide="ignore"):
        return np.where(inside, np.log(density), -np.inf)


def tree_density(tree: DecisionTreeClassifier, rows: Floats, at: Floats, lower: Floats, upper: Floats) -> Floats:
    """The density of one tree at the points `at`."""
    volumes = np.exp(log_volumes(tree, lower, upper))
    share = np.bincount(tree.apply(rows), minlength=len(volumes)) / len(rows)
    leaves = tree.apply(at)
    return np.asarray(share[leaves] / volumes[leaves])


def log_volumes(tree: DecisionTreeClassifier, lower: Floats, upper: Floats) -> Floats:
    """The log-volume of every node, from the root down, a level at a time."""
    grown = tree.tree_
    low, high = (np.tile(side, (grown.node_count, 1)) for side in (lower, upper))
    level = np.array([0])
    while len(level):
        inner = level[grown.children_left[level] >= 0]
        left, right = grown.children_left[inner], grown.children_right[inner]
        for child in (left, right):
            low[child], high[child] = low[inner], high[inner]
        high[left, grown.feature[inner]] = low[right, grown.feature[inner]] = grown.threshold[inner]
        level = np.concatenate([left, right])
    return np.asarray(np.log(high - low).sum(axis=1))
