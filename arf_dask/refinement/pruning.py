"""Prune boosted trees so that every leaf holds enough people, and estimate the values of their leaves again.

The learner counts the rows of a leaf, real and drawn ones together, so a leaf may tell real from drawn rows by a single
real one. A release asks for more: where a child of a split holds too few people, the split is removed, and all of its
rows take the way of the other child. The trees after it were learned to correct a sum that has changed; the values of
all leaves are therefore estimated again, tree by tree, and the number of trees is chosen again by the validation rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.refinement.boosted_trees import LEAF, BoostedTrees, right_children, tree_bounds
from arf_dask.refinement.boosting import Boosting, Sides
from arf_dask.refinement.features import Codes
from arf_dask.typing import Counts, Flags, Floats, Ints


class PrunedTree(NamedTuple):
    """One tree after pruning."""

    nodes: NDArray[np.int64]  # its nodes in the table of all trees, in preorder
    is_leaf: Flags  # of these nodes
    row_leaf: Counts  # per row: the index of its leaf, from left to right


class Rows(NamedTuple):
    """The rows that people are counted in."""

    codes: Mapping[int, Codes]  # per feature
    is_counted: Flags
    subjects: Counts | None  # per row, the number of its person; None: every row is a person

    def count_people(self, places: Counts) -> int:
        """Return the number of people who have any of these rows."""
        counted = places[self.is_counted[places]]
        return len(counted) if self.subjects is None else len(np.unique(self.subjects[counted]))


def prune_trees(trees: BoostedTrees, sides: Sides, settings: Boosting) -> BoostedTrees:
    """Return trees whose leaves hold at least `min_people` people: all, or as many as the validation rows ask for.

    Args:
        trees: learned trees.
        sides: the rows that they were learned from; only real rows that are not validation rows are counted.
        settings: of the boosting.
    """
    is_trained = ~sides.is_validation
    rows = Rows(sides.codes, sides.is_real & is_trained, sides.subjects)
    weights = sides.weights()
    totals = np.full(len(weights), trees.base)
    losses = [_loss(totals, sides, weights)]
    pruned, values = [], []
    for start, stop in zip(*tree_bounds(trees.tree), strict=True):
        tree = prune_tree(trees, int(start), int(stop), rows, settings.min_people)
        steps = _newton_steps(tree, totals, sides.is_real, np.where(is_trained, weights, 0.0), settings)
        totals += steps[tree.row_leaf]
        losses.append(_loss(totals, sides, weights))
        pruned.append(tree)
        values.append(steps)
    n_kept = int(np.argmin(losses)) if sides.is_validation.any() else len(pruned)
    return _assemble(trees, pruned[:n_kept], values[:n_kept])


def prune_tree(trees: BoostedTrees, start: int, stop: int, rows: Rows, min_people: int) -> PrunedTree:
    """Remove the splits of one tree with a child that holds too few people.

    Args:
        trees: all trees.
        start: the first node of the tree.
        stop: the node after its last.
        rows: the rows that people are counted in.
        min_people: the minimum number of people per leaf; a tree without splits may have fewer.
    """
    feature = trees.feature[start:stop]
    right = right_children(feature)
    row_leaf = np.zeros(len(rows.is_counted), dtype=np.int64)
    nodes: list[int] = []
    is_leaf: list[bool] = []
    waiting = [(0, np.arange(len(row_leaf)))]
    while waiting:
        node, places = waiting.pop()
        children: list[Counts] = []
        while feature[node] != LEAF and not children:
            goes_left = trees.left_codes[start + node][rows.codes[int(feature[node])][places]]
            sides = [places[goes_left], places[~goes_left]]
            is_held = [rows.count_people(side) >= min_people for side in sides]
            if all(is_held):
                children = sides
            elif any(is_held):
                node = node + 1 if is_held[0] else int(right[node])
            else:
                break
        if children:
            waiting += [(int(right[node]), children[1]), (node + 1, children[0])]
        else:
            row_leaf[places] = sum(is_leaf)
        nodes.append(start + node)
        is_leaf.append(not children)
    return PrunedTree(np.array(nodes), np.array(is_leaf), row_leaf)


def _newton_steps(tree: PrunedTree, totals: Floats, is_real: Flags, weights: Floats, settings: Boosting) -> Floats:
    """Return the value of every leaf: a damped Newton step of the log-likelihood, as the learner takes them."""
    n_leaves = int(tree.is_leaf.sum())
    chances = 1 / (1 + np.exp(-totals))
    slopes = np.bincount(tree.row_leaf, weights * (is_real - chances), n_leaves)
    curvatures = np.bincount(tree.row_leaf, weights * chances * (1 - chances), n_leaves)
    return np.asarray(settings.learning_rate * slopes / (curvatures + settings.l2))


def _loss(totals: Floats, sides: Sides, weights: Floats) -> float:
    """Return the weighted sum of the log-losses of the validation rows."""
    places = np.flatnonzero(sides.is_validation)
    signed = np.where(sides.is_real[places], -totals[places], totals[places])
    return float(weights[places] @ np.logaddexp(0.0, signed))


def _assemble(trees: BoostedTrees, pruned: list[PrunedTree], values: list[Floats]) -> BoostedTrees:
    """Return the table of nodes of pruned trees. A tree without splits only adds to the base."""
    is_split = [len(one.nodes) > 1 for one in pruned]
    base = trees.base + sum(float(some[0]) for some, split in zip(values, is_split, strict=True) if not split)
    kept = [one for one, split in zip(pruned, is_split, strict=True) if split]
    kept_values = [some for some, split in zip(values, is_split, strict=True) if split]
    nodes: Ints = np.concatenate([np.empty(0, np.int64), *(one.nodes for one in kept)])
    is_leaf: Flags = np.concatenate([np.empty(0, bool), *(one.is_leaf for one in kept)])
    value = np.zeros(len(nodes))
    value[is_leaf] = np.concatenate([np.empty(0), *kept_values])
    return replace(
        trees,
        tree=np.repeat(np.arange(len(kept)), [len(one.nodes) for one in kept]),
        feature=np.where(is_leaf, np.int32(LEAF), trees.feature[nodes]),
        left_codes=trees.left_codes[nodes] & ~is_leaf[:, None],
        value=value,
        base=base,
    )
