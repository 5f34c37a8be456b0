"""Grow trees on codes with scikit-learn, which only this module imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.routing import route_to_nodes, routing_table
from arf_dask.forest.trees import LEAF, Tree, leaf_nodes, single_leaf, to_preorder
from arf_dask.typing import Codes, Floats, Ints

GATE_ROWS = 100  # minimum number of rows on both sides of a split on missingness


class GrownTree(NamedTuple):
    """A tree grown by scikit-learn, and its predictions for the training rows."""

    tree: Tree
    shares: NDArray[np.float32]  # per node: share of real rows among the rows drawn for this tree
    nodes: Ints  # the leaf node of every row
    unused: NDArray[np.bool_]  # rows that were not drawn (out of bag)


def grow_tree(
    features: NDArray[np.float32],
    is_real: NDArray[np.int8],
    rng: np.random.Generator,
    *,
    max_features: int,
    rows: int | None,
    min_leaf: int,
) -> GrownTree:
    """Grow one tree of the discriminator (paper, Alg. 1).

    Args:
        features: codes as float32, in column-major order.
        is_real: 1 for real rows, 0 for synthetic rows.
        rng: draws the rows and the seed of the tree.
        max_features: number of variables tried at every split.
        rows: number of rows to draw without replacement; None, or at least the number of rows, draws a bootstrap.
        min_leaf: minimum number of real rows per leaf after pruning.
    """
    from sklearn.tree import DecisionTreeClassifier  # imported here: loading and sampling a model do not need it

    n_rows = len(is_real)
    row_weights = _bootstrap(n_rows, rng) if rows is None or rows >= n_rows else _subsample(n_rows, rows, rng)
    classifier = DecisionTreeClassifier(
        max_features=max_features,
        min_samples_split=least_split(min_leaf, np.count_nonzero(row_weights) / n_rows),
        random_state=int(rng.integers(2**31 - 1)),
    )
    classifier.fit(features, is_real, sample_weight=row_weights, check_input=False)
    sklearn_tree = classifier.tree_
    nodes = classifier.apply(features, check_input=False).astype(np.int32)
    shares = sklearn_tree.value[:, 0, -1] / np.maximum(sklearn_tree.value[:, 0, :].sum(axis=1), 1e-300)
    return GrownTree(_tree_of(sklearn_tree), shares.astype(np.float32), nodes, row_weights == 0)


def least_split(min_leaf: int, drawn: float) -> int:
    """Return the minimum number of drawn rows for a node to be split.

    A split of fewer than 2 * `min_leaf` real rows is always pruned. A tree is grown on the share `drawn` of the rows,
    so nodes with fewer than this share of 2 * `min_leaf` rows are not worth splitting, even if all rows are real.
    Larger nodes are split down to purity, as in the paper.

    >>> least_split(20, 0.632), least_split(20, 0.1), least_split(1, 0.632)
    (25, 4, 2)
    """
    return max(2, int(2 * min_leaf * drawn))


def gate_tree(codes: Codes, gates: Sequence[int]) -> Tree:
    """Return a small tree that splits on the missingness of the given variables in turn.

    Code 0 of these variables is null. A split is made only if both sides have at least `GATE_ROWS` rows.
    """
    tree = single_leaf()
    for gate in gates:
        row_nodes = route_to_nodes(routing_table(tree), codes)
        for leaf in leaf_nodes(tree):
            n_missing = int((codes[row_nodes == leaf, gate] == 0).sum())
            if min(n_missing, int((row_nodes == leaf).sum()) - n_missing) >= GATE_ROWS:
                tree = _split_leaf(tree, int(leaf), gate)
    return to_preorder(tree)[0]


def graft(top: Tree, branches: Sequence[Tree]) -> tuple[Tree, Ints, Ints]:
    """Replace every leaf of `top` by a tree.

    Returns the combined tree, the root node of each branch in it, and the offset of the indices of the branch's other
    nodes.
    """
    offsets = np.cumsum([len(top.left), *(len(branch.left) for branch in branches[:-1])])
    arrays = [[array.copy()] for array in top]
    for leaf, branch, offset in zip(leaf_nodes(top), branches, offsets, strict=True):
        # The leaf of `top` becomes the root of the branch; the copied root node is unreachable.
        for whole_array, array in zip(arrays, branch, strict=True):
            whole_array.append(array.copy())
        for side in (2, 3):
            arrays[side][-1] = np.where(branch[side] >= 0, branch[side] + offset, LEAF).astype(np.int32)
            arrays[side][0][leaf] = arrays[side][-1][0]
        arrays[0][0][leaf], arrays[1][0][leaf] = branch.feature[0], branch.threshold[0]
    return Tree(*(np.concatenate(whole_array) for whole_array in arrays)), leaf_nodes(top), offsets.astype(np.int32)


def _split_leaf(tree: Tree, leaf: int, variable: int) -> Tree:
    n_nodes = len(tree.left)
    leaf_values = (LEAF, 0, LEAF, LEAF)
    extended_arrays = (
        np.append(array, [value, value]).astype(np.int32) for array, value in zip(tree, leaf_values, strict=True)
    )
    feature, threshold, left, right = extended_arrays
    feature[leaf], threshold[leaf], left[leaf], right[leaf] = variable, 0, n_nodes, n_nodes + 1
    return Tree(feature, threshold, left, right)


def _bootstrap(n: int, rng: np.random.Generator) -> Floats:
    return np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64)


def _subsample(n: int, rows: int, rng: np.random.Generator) -> Floats:
    weights = np.zeros(n)
    weights[rng.choice(n, rows, replace=False)] = 1.0
    return weights


def grow_predictor(
    features: NDArray[np.float32], target: Floats | Ints, *, discrete: bool, min_leaf: int, seed: int
) -> tuple[Tree, Ints]:
    """Grow a tree that predicts one variable from codes of others; return it with the leaf node of every row.

    Args:
        features: codes as float32, in column-major order.
        target: the class of every row, or a number.
        discrete: whether the target is a class.
        min_leaf: minimum number of rows per leaf.
        seed: the seed of scikit-learn, which breaks ties.
    """
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    settings = {"min_samples_leaf": min_leaf, "random_state": seed}
    learner = DecisionTreeClassifier(criterion="entropy") if discrete else DecisionTreeRegressor()
    learner.set_params(**settings)
    learner.fit(features, target, check_input=False)
    return _tree_of(learner.tree_), learner.apply(features, check_input=False).astype(np.int32)


def _tree_of(grown: Any) -> Tree:
    """Return a tree of scikit-learn as a table of nodes. Codes are whole numbers, so thresholds are rounded down."""
    is_inner = grown.children_left >= 0
    return Tree(
        np.where(is_inner, grown.feature, LEAF).astype(np.int32),
        np.where(is_inner, np.floor(grown.threshold), 0).astype(np.int32),
        grown.children_left.astype(np.int32),
        grown.children_right.astype(np.int32),
    )
