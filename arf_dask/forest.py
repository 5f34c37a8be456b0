"""Trees on codes: grown by scikit-learn, held as plain arrays, pruned, routed and turned into boxes by us.

A row goes left where `code <= threshold`. Nodes are numbered in preorder, so that the leaves under any node are a
run of neighbours. scikit-learn is imported here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.encode import Codes

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

LEAF = -1
GATE_ROWS = 100
ROUTE_ROWS = 2**13  # routed at a time
ROUTE_LEVELS = 4  # between two looks at which rows are in their leaf
ROUTE_FEW = 8  # one of so many rows still under way: time to take those of all runs together
LEVELS_AT_ONCE = 4  # that rows go down before those in leaves are set aside


class Tree(NamedTuple):
    """One row per node; the root is node 0."""

    feature: Ints  # the variable split on, -1 at leaves
    threshold: Ints  # rows with code <= threshold go left
    left: Ints  # child nodes, -1 at leaves
    right: Ints


class Grown(NamedTuple):
    """A tree fresh from scikit-learn, and what it says of the rows it was shown."""

    tree: Tree
    nodes: Ints  # the leaf of every row
    votes: NDArray[np.float32]  # the share of real rows in that leaf, among the rows drawn for this tree
    unused: NDArray[np.bool_]  # rows not drawn: out of bag


class Boxes(NamedTuple):
    """The codes every leaf can hold, (leaf, variable), both ends included."""

    low: NDArray[np.integer]
    high: NDArray[np.integer]


def grow_tree(
    features: NDArray[np.float32],
    is_real: NDArray[np.int8],
    rng: np.random.Generator,
    *,
    max_features: int,
    rows: int | None,
) -> Grown:
    """A tree that tells real from synthetic rows, grown on a bootstrap (or on `rows` rows without replacement)."""
    from sklearn.tree import DecisionTreeClassifier  # here: loading a model and drawing from it need none of it

    n = len(is_real)
    weights = _bootstrap(n, rng) if rows is None or rows >= n else _subsample(n, rows, rng)
    # Grown to purity, as in the paper; leaves with too few real rows are pruned afterwards.
    grower = DecisionTreeClassifier(max_features=max_features, random_state=int(rng.integers(2**31 - 1)))
    grower.fit(features, is_real, sample_weight=weights, check_input=False)
    grown = grower.tree_
    nodes = grower.apply(features, check_input=False).astype(np.int32)
    share = grown.value[:, 0, -1] / np.maximum(grown.value[:, 0, :].sum(axis=1), 1e-300)
    inner = grown.children_left >= 0
    tree = Tree(
        np.where(inner, grown.feature, LEAF).astype(np.int32),
        np.where(inner, np.floor(grown.threshold), 0).astype(np.int32),
        grown.children_left.astype(np.int32),
        grown.children_right.astype(np.int32),
    )
    return Grown(tree, nodes, share[nodes].astype(np.float32), weights == 0)


def gate_tree(codes: Codes, gates: Sequence[int]) -> Tree:
    """A small tree that tells missing from known in the given variables (code 0 is null), one after the other.

    Only splits that leave `GATE_ROWS` rows on both sides are made.
    """
    tree = Tree(*(np.array([value], dtype=np.int32) for value in (LEAF, 0, LEAF, LEAF)))
    for gate in gates:
        node = route(tree, codes)
        for leaf in leaf_nodes(tree):
            missing = int((codes[node == leaf, gate] == 0).sum())
            if min(missing, int((node == leaf).sum()) - missing) >= GATE_ROWS:
                tree = _split_leaf(tree, int(leaf), gate)
    return _renumber(tree, 0, np.zeros(1, dtype=np.int32))[0]


def graft(top: Tree, parts: Sequence[Tree]) -> tuple[Tree, Ints, Ints]:
    """One tree in place of every leaf of `top`; each one's root node, and what is added to its other nodes."""
    offsets = np.cumsum([len(top.left), *(len(part.left) for part in parts[:-1])])
    arrays = [[array.copy()] for array in top]
    for leaf, part, offset in zip(leaf_nodes(top), parts, offsets, strict=True):
        # The leaf of the top becomes the root of its part; the root's own place is left empty.
        for whole, array in zip(arrays, part, strict=True):
            whole.append(array.copy())
        for side in (2, 3):
            arrays[side][-1] = np.where(part[side] >= 0, part[side] + offset, LEAF).astype(np.int32)
            arrays[side][0][leaf] = arrays[side][-1][0]
        arrays[0][0][leaf], arrays[1][0][leaf] = part.feature[0], part.threshold[0]
    return Tree(*(np.concatenate(whole) for whole in arrays)), leaf_nodes(top), offsets.astype(np.int32)


def _split_leaf(tree: Tree, leaf: int, variable: int) -> Tree:
    n = len(tree.left)
    empty = (LEAF, 0, LEAF, LEAF)
    longer = (np.append(array, [value, value]).astype(np.int32) for array, value in zip(tree, empty, strict=True))
    feature, threshold, left, right = longer
    feature[leaf], threshold[leaf], left[leaf], right[leaf] = variable, 0, n, n + 1
    return Tree(feature, threshold, left, right)


def route(tree: Tree, codes: Codes, start: Ints | None = None) -> Ints:
    """The leaf node of every row, from the root or from a given node each."""
    nodes = np.zeros(len(codes), dtype=np.int32) if start is None else start.copy()
    flat = codes.ravel(order="K")  # one index is looked up faster than two
    by_row, by_variable = (1, len(codes)) if codes.flags.f_contiguous else (codes.shape[1], 1)
    is_leaf = tree.left < 0
    step = np.where(is_leaf, 0, tree.feature).astype(np.int64) * by_variable
    # A leaf leads to itself, so that rows are looked through for those at their end only now and then.
    itself = np.arange(len(is_leaf))
    children = np.stack([np.where(is_leaf, itself, side) for side in (tree.left, tree.right)], axis=1).ravel()
    active = np.flatnonzero(~is_leaf[nodes])
    here, first = nodes[active].astype(np.int64), active * by_row
    while len(active):
        for _ in range(LEVELS_AT_ONCE):
            goes_right = flat.take(step.take(here) + first) > tree.threshold.take(here)
            here = children.take(2 * here + goes_right)
        nodes[active] = here
        going = np.flatnonzero(~is_leaf.take(here))
        active, here, first = active[going], here[going], first[going]
    return nodes


def prune(
    tree: Tree, nodes: Ints, codes: Codes, min_leaf: int, held: NDArray[np.int64] | None = None
) -> tuple[Tree, Ints]:
    """The tree without leaves of fewer than `min_leaf` rows, and the leaf number of every row.

    Where a leaf is too small its parent's split goes away: the rows follow the sibling. `nodes` holds the leaf
    node of every real row; leaf numbers count 0, 1, .. from left to right. Leaves of `min_leaf` rows or more may be
    told by their number of rows alone, in `held`, per node.
    """
    held = np.zeros(len(tree.left), dtype=np.int64) if held is None else held
    left, right = tree.left.copy(), tree.right.copy()
    nodes = nodes.copy()
    root = 0
    while left[root] >= 0:
        counts = np.bincount(nodes, minlength=len(left)) + held
        inner = _reachable(root, left, right)
        inner = inner[left[inner] >= 0]
        a, b = left[inner], right[inner]
        small_a = (left[a] < 0) & (counts[a] < min_leaf)
        small_b = (left[b] < 0) & (counts[b] < min_leaf)
        if not np.any(small_a | small_b):
            break
        closing = (small_a | small_b) & (left[a] < 0) & (left[b] < 0)
        # Parents that become leaves take over the rows of both children; others hand theirs to the sibling.
        moved = np.arange(len(left), dtype=np.int32)
        moved[a[closing]] = moved[b[closing]] = inner[closing]
        bypass_a, bypass_b = small_a & ~closing, small_b & ~closing
        moved[a[bypass_a]], moved[b[bypass_b]] = b[bypass_a], a[bypass_b]
        skipped = np.arange(len(left), dtype=np.int32)
        skipped[inner[bypass_a]], skipped[inner[bypass_b]] = b[bypass_a], a[bypass_b]
        left[inner[closing]] = right[inner[closing]] = LEAF
        held = np.bincount(moved, held, len(left)).astype(np.int64)
        skipped = _resolve(skipped)
        left, right = np.where(left >= 0, skipped[left], LEAF), np.where(right >= 0, skipped[right], LEAF)
        root = int(skipped[root])
        affected = np.flatnonzero(moved[nodes] != nodes)
        rewired = Tree(tree.feature, tree.threshold, left, right)
        nodes[affected] = route(rewired, codes[affected], skipped[moved[nodes[affected]]])
    return _renumber(Tree(tree.feature, tree.threshold, left, right), root, nodes)


def leaf_numbers(tree: Tree, codes: Codes) -> Ints:
    """The leaf number of every row: 0, 1, .. from left to right."""
    number = np.cumsum(tree.left < 0, dtype=np.int32) - 1
    return np.asarray(number[route(tree, np.ascontiguousarray(codes))])


class Router(NamedTuple):
    """A tree packed for routing many rows. Nodes are numbered level by level: a right child follows its left one."""

    words: NDArray[np.int64]  # per node: left child, threshold and feature in one number; negative at leaves
    leaf: NDArray[np.int64]  # per node: its leaf number, from left to right
    n_leaves: int
    feature_bits: int  # of a word, the lowest ones,
    threshold_bits: int  # then these; the rest is the child


def make_router(tree: Tree, n_codes: Ints) -> Router:
    """The tree in the form that `route_leaves` takes, given how many codes each variable has."""
    # Children come in pairs; a level has all of its left ones before all of its right ones.
    order = np.concatenate([_paired(level) for level in depth_levels(tree)])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    feature_bits, threshold_bits = len(n_codes).bit_length(), int(n_codes.max(initial=1)).bit_length()
    assert feature_bits + threshold_bits + len(order).bit_length() < 64, "a forest beyond any memory"
    leaf = tree.left[order] < 0
    # A leaf leads to itself: no code is above its threshold.
    left = np.where(leaf, np.arange(len(order)), place[tree.left[order]])
    threshold = np.where(leaf, 2**threshold_bits - 1, tree.threshold[order]).astype(np.int64)
    feature = np.where(leaf, 0, tree.feature[order]).astype(np.int64)
    words = (left << (feature_bits + threshold_bits)) | (threshold << feature_bits) | feature
    words = np.where(leaf, words | np.int64(-(2**63)), words)
    number = (np.cumsum(tree.left < 0) - 1)[order]
    return Router(words, number, int(leaf.sum()), feature_bits, threshold_bits)


def _paired(level: Ints) -> Ints:
    half = len(level) // 2
    return level if len(level) == 1 else np.stack([level[:half], level[half:]], axis=1).ravel()


def route_leaves(router: Router, codes: Codes) -> NDArray[np.int64]:
    """The leaf number of every row of codes in row-major order: as `leaf_numbers`, with the rows in the cache."""
    flat, n_variables = codes.ravel(), codes.shape[1]
    nodes = np.zeros(len(codes), dtype=np.int64)
    rows = np.arange(len(codes))
    while len(rows):
        # So few rows at a time that everything stays in the cache; the deep ones of all go on together.
        runs = [rows[first : first + ROUTE_ROWS] for first in range(0, len(rows), ROUTE_ROWS)]
        rows = np.concatenate([_route_few(router, flat, n_variables, nodes, run) for run in runs])
    return router.leaf[nodes]


def _route_few(
    router: Router, flat: Codes, n_variables: int, nodes: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Move rows on from their nodes until few are left that are in no leaf; gives these."""
    feature, threshold = 2**router.feature_bits - 1, 2**router.threshold_bits - 1
    shift = router.feature_bits + router.threshold_bits
    child = 2 ** (63 - shift) - 1
    few = len(rows) // ROUTE_FEW
    here, base = nodes[rows], rows * n_variables
    while True:
        for _ in range(ROUTE_LEVELS):
            word = router.words[here]
            code = flat[base + (word & feature)]
            here = ((word >> shift) & child) + (code > ((word >> router.feature_bits) & threshold))
        nodes[rows] = here
        going = np.flatnonzero(router.words[here] >= 0)
        rows, here, base = rows[going], here[going], base[going]
        if len(rows) <= few:
            return rows


def leaf_nodes(tree: Tree) -> Ints:
    """The node of every leaf, from left to right."""
    return np.flatnonzero(tree.left < 0).astype(np.int32)


def side_by_side(trees: Sequence[Tree]) -> tuple[Tree, Ints]:
    """Several trees as one table of nodes, and their roots."""
    roots = np.cumsum([0, *(len(tree.left) for tree in trees[:-1])]).astype(np.int32)
    arrays = [[tree[side] for tree in trees] for side in range(4)]
    for side in (2, 3):
        arrays[side] = [np.where(part >= 0, part + root, LEAF) for part, root in zip(arrays[side], roots, strict=True)]
    return Tree(*(np.concatenate(parts).astype(np.int32) for parts in arrays)), roots


def depth_levels(tree: Tree, roots: Ints | None = None) -> list[Ints]:
    """Nodes by depth, the root's level first (that of several roots, of trees side by side)."""
    levels = [np.zeros(1, dtype=np.int32) if roots is None else roots]
    while True:
        here = levels[-1]
        inner = here[tree.left[here] >= 0]
        if not len(inner):
            return levels
        levels.append(np.concatenate([tree.left[inner], tree.right[inner]]))


def leaf_boxes(tree: Tree, n_codes: Ints, roots: Ints | None = None) -> Boxes:
    """The codes that can reach each leaf, given how many codes each variable has (`roots`: of trees side by side)."""
    n_nodes = len(tree.left)
    low = np.zeros((n_nodes, len(n_codes)), dtype=np.int32)
    high = np.tile(n_codes.astype(np.int32) - 1, (n_nodes, 1))
    for here in depth_levels(tree, roots):
        inner = here[tree.left[here] >= 0]
        left, right, feature = tree.left[inner], tree.right[inner], tree.feature[inner]
        for child in (left, right):
            low[child], high[child] = low[inner], high[inner]
        high[left, feature] = np.minimum(high[left, feature], tree.threshold[inner])
        low[right, feature] = np.maximum(low[right, feature], tree.threshold[inner] + 1)
    leaves = leaf_nodes(tree)
    return Boxes(low[leaves], high[leaves])


def _bootstrap(n: int, rng: np.random.Generator) -> Floats:
    return np.bincount(rng.integers(0, n, n), minlength=n).astype(np.float64)


def _subsample(n: int, rows: int, rng: np.random.Generator) -> Floats:
    weights = np.zeros(n)
    weights[rng.choice(n, rows, replace=False)] = 1.0
    return weights


def _reachable(root: int, left: Ints, right: Ints) -> Ints:
    found = [np.array([root], dtype=np.int32)]
    while len(found[-1]):
        inner = found[-1][left[found[-1]] >= 0]
        found.append(np.concatenate([left[inner], right[inner]]))
    return np.concatenate(found)


def _resolve(target: Ints) -> Ints:
    """Follow each pointer to its end."""
    while True:
        further = target[target]
        if np.array_equal(further, target):
            return target
        target = further


def _renumber(tree: Tree, root: int, nodes: Ints) -> tuple[Tree, Ints]:
    """The part of the tree below `root` in preorder, and the leaf number of every row."""
    levels = [np.array([root], dtype=np.int32)]
    while len(levels[-1]):
        inner = levels[-1][tree.left[levels[-1]] >= 0]
        levels.append(np.concatenate([tree.left[inner], tree.right[inner]]))
    size = np.ones(len(tree.left), dtype=np.int32)
    for here in reversed(levels):
        inner = here[tree.left[here] >= 0]
        size[inner] = 1 + size[tree.left[inner]] + size[tree.right[inner]]
    place = np.full(len(tree.left), LEAF, dtype=np.int32)
    place[root] = 0
    for here in levels:
        inner = here[tree.left[here] >= 0]
        place[tree.left[inner]] = place[inner] + 1
        place[tree.right[inner]] = place[inner] + 1 + size[tree.left[inner]]
    kept = np.flatnonzero(place >= 0)
    kept = kept[np.argsort(place[kept])]
    splits = tree.left[kept] >= 0
    result = Tree(
        np.where(splits, tree.feature[kept], LEAF).astype(np.int32),
        np.where(splits, tree.threshold[kept], 0).astype(np.int32),
        np.where(splits, place[tree.left[kept]], LEAF).astype(np.int32),
        np.where(splits, place[tree.right[kept]], LEAF).astype(np.int32),
    )
    number = np.cumsum(result.left < 0, dtype=np.int32) - 1
    return result, number[place[nodes]]
