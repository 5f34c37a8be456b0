"""Boosted trees as one table of nodes, and a scorer that evaluates them by intersecting sets of leaves.

Trees lie side by side in words of 64 bits, one bit per leaf. For every feature and code, a word of bits tells which
leaves a row with this code can still reach. The intersection over all features leaves one bit per tree: the leaf of the
row. So a row costs one lookup per word and feature, however deep the trees are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.refinement.features import N_CODES, Codes
from arf_dask.typing import Floats, Ints

LEAF = -1
WORD = 64  # bits, and the maximum number of leaves of a tree
ROWS_AT_ONCE = 8_192  # rows whose intermediate results fit into a cache
# Multiplying a word with one bit by this number moves a different pattern into the top six bits for each bit.
DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_FULL = np.uint64(2**64 - 1)
Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Regression trees on codes. One row per node, tree by tree, in preorder."""

    tree: NDArray[np.int64]
    feature: NDArray[np.int32]  # LEAF at leaves
    left_codes: NDArray[np.bool_]  # (node, code): which codes of the feature go left
    value: Floats  # of leaves; 0 elsewhere
    base: float  # added to the sum of the leaf values
    stages: tuple[int, ...] = ()  # numbers of trees after which the sum is read as well, ascending

    def __getstate__(self) -> dict[str, object]:
        # What is computed from the fields is not pickled.
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def n_trees(self) -> int:
        """The number of trees."""
        return int(self.tree[-1]) + 1 if len(self.tree) else 0

    @cached_property
    def used(self) -> list[int]:
        """The features that any tree splits on."""
        return sorted(set(self.feature[self.feature != LEAF].tolist()))

    @cached_property
    def words(self) -> list[list[Word]]:
        """The trees, packed into words; one list per stage, and one for the trees after the last stage."""
        borders = [0, *self.stages, self.n_trees]
        return [list(_pack(self, first, last)) for first, last in pairwise(borders)]

    def add_scores(self, stage: int, codes: Mapping[int, Codes], totals: Floats) -> None:
        """Add the leaf values of the trees of one stage to the totals of all rows.

        Args:
            stage: the index of the list in `words`.
            codes: the codes of every row, for each feature that is used.
            totals: one number per row, changed in place.
        """
        for first in range(0, len(totals), ROWS_AT_ONCE):
            chunk = {name: column[first : first + ROWS_AT_ONCE].astype(np.intp) for name, column in codes.items()}
            part = totals[first : first + ROWS_AT_ONCE]
            for word in self.words[stage]:
                part += word.score(chunk, len(part))

    def score(self, codes: Mapping[int, Codes], n_rows: int) -> Floats:
        """Return the sum of the leaf values of every row."""
        totals = np.full(n_rows, self.base)
        for stage in range(len(self.words)):
            self.add_scores(stage, codes, totals)
        return totals


class Word(NamedTuple):
    """Some trees whose leaves share one word of bits."""

    reachable: dict[int, Words]  # per feature and code: the leaves that are not excluded
    leaves: list[np.uint64]  # per tree: the bits of its leaves
    values: list[Floats]  # per tree: leaf values in the order of `DE_BRUIJN`

    def score(self, codes: Mapping[int, NDArray[np.intp]], n_rows: int) -> Floats:
        """Return the sum of the leaf values of some rows."""
        bits = np.full(n_rows, _FULL)
        found = np.empty(n_rows, dtype=np.uint64)
        for feature, reachable in self.reachable.items():
            np.take(reachable, codes[feature], out=found, mode="clip")
            bits &= found
        total = np.zeros(n_rows)
        for leaves, values in zip(self.leaves, self.values, strict=True):
            np.bitwise_and(bits, leaves, out=found)
            found *= DE_BRUIJN
            found >>= np.uint64(58)
            total += values.take(found.view(np.int64), mode="clip")
        return total


NO_TREES = BoostedTrees(
    np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, N_CODES), np.bool_), np.empty(0), 0.0
)


def join(one: BoostedTrees, other: BoostedTrees) -> BoostedTrees:
    """Return the trees of both, those of `other` last; the sum of the leaf values is the sum of both sums."""
    return BoostedTrees(
        np.concatenate([one.tree, other.tree + one.n_trees]),
        np.concatenate([one.feature, other.feature]),
        np.concatenate([one.left_codes, other.left_codes]),
        np.concatenate([one.value, other.value]),
        one.base + other.base,
    )


def first_trees(trees: BoostedTrees, n_trees: int) -> BoostedTrees:
    """Return the first trees; without stages."""
    is_kept = trees.tree < n_trees
    kept = trees.tree[is_kept], trees.feature[is_kept], trees.left_codes[is_kept], trees.value[is_kept]
    return BoostedTrees(*kept, trees.base)


def tree_bounds(tree: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first node of every tree, and the node after its last."""
    starts = np.flatnonzero(np.diff(tree, prepend=-1))
    return starts, np.append(starts, len(tree))[1:]


def _pack(trees: BoostedTrees, first: int, last: int) -> Iterator[Word]:
    """Yield words that hold as many consecutive trees as fit, for the trees from `first` up to `last`."""
    starts, stops = tree_bounds(trees.tree)
    reachable: dict[int, Words] = {}
    leaves: list[np.uint64] = []
    values: list[Floats] = []
    n_used = 0
    for start, stop in zip(starts[first:last], stops[first:last], strict=True):
        is_leaf = trees.feature[start:stop] == LEAF
        n_leaves = int(is_leaf.sum())
        if n_used + n_leaves > WORD:
            yield Word(reachable, leaves, values)
            reachable, leaves, values, n_used = {}, [], [], 0
        _add_tree(trees, int(start), int(stop), n_used, reachable)
        leaves.append(_bits(n_used, n_used + n_leaves))
        values.append(_by_de_bruijn(trees.value[start:stop][is_leaf], n_used))
        n_used += n_leaves
    if leaves:
        yield Word(reachable, leaves, values)


def _add_tree(trees: BoostedTrees, start: int, stop: int, first_bit: int, reachable: dict[int, Words]) -> None:
    """Exclude, per feature and code, the leaves that a row with this code cannot reach."""
    feature = trees.feature[start:stop]
    ends, right = leaf_ends(feature), right_children(feature)
    n_before = first_bit + np.concatenate([[0], np.cumsum(feature == LEAF)])
    for node in np.flatnonzero(feature != LEAF):
        words = reachable.setdefault(int(feature[node]), np.full(N_CODES, _FULL))
        left = _bits(n_before[node + 1], n_before[right[node]])
        others = _bits(n_before[right[node]], n_before[ends[node]])
        words &= np.where(trees.left_codes[start + node], ~others, ~left)


def _bits(low: int, high: int) -> np.uint64:
    """Return a word with the bits from `low` up to, not including, `high`."""
    return np.uint64(((1 << int(high - low)) - 1) << int(low))


def _by_de_bruijn(values: Floats, first_bit: int) -> Floats:
    """Return the values of consecutive bits at the positions to which `DE_BRUIJN` maps the bits."""
    table = np.zeros(WORD)
    bits = np.uint64(1) << np.arange(first_bit, first_bit + len(values), dtype=np.uint64)
    table[((bits * DE_BRUIJN) >> np.uint64(58)).astype(np.int64)] = values
    return table


def leaf_ends(feature: Ints) -> NDArray[np.int64]:
    """Return for every node of a tree in preorder the node after its last descendant.

    >>> leaf_ends(np.array([0, -1, 1, -1, -1])).tolist()
    [5, 2, 5, 4, 5]
    """
    ends = np.zeros(len(feature), dtype=np.int64)
    for node in range(len(feature) - 1, -1, -1):
        ends[node] = node + 1 if feature[node] == LEAF else ends[ends[node + 1]]
    return ends


def right_children(feature: Ints) -> NDArray[np.int64]:
    """Return the right child of every inner node of a tree in preorder, and LEAF for leaves."""
    ends = leaf_ends(feature)
    nodes = np.arange(len(feature))
    return np.where(feature == LEAF, LEAF, ends[np.minimum(nodes + 1, len(feature) - 1)])
