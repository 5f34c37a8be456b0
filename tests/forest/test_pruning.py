from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from arf_dask.forest.pruning import prune_tree
from tests.drawn_trees import FIVE, SEVEN, codes, drawn, flat, leaves_of, nodes_of, numbered_trees, rows


def test_a_small_leaf_beside_a_leaf_closes_their_parent() -> None:
    some = rows([0, 0, 0], [0, 0, 0], [5, 0, 0], [5, 4, 0], [5, 4, 0])
    tree, leaves = prune_tree(flat(FIVE), nodes_of(flat(FIVE), some), some, 2)
    assert drawn(tree) == (0, 2, None, None)
    assert leaves.tolist() == [0, 0, 1, 1, 1]


def test_the_rows_of_a_small_leaf_follow_the_sibling() -> None:
    # One row left of the root: its split goes away, and the row is sent on by variable 1.
    some = rows([0, 4, 0], [5, 0, 0], [5, 1, 0], [5, 3, 0], [5, 4, 0])
    tree, leaves = prune_tree(flat(FIVE), nodes_of(flat(FIVE), some), some, 2)
    assert drawn(tree) == (1, 1, None, None)
    assert leaves.tolist() == [1, 0, 0, 1, 1]


def test_pruning_goes_on_where_it_makes_new_small_leaves() -> None:
    right = [[3, 0, 0]] * 3 + [[3, 0, 3]] * 3
    some = rows([0, 0, 0], [0, 1, 3], *right)
    tree, leaves = prune_tree(flat(SEVEN), nodes_of(flat(SEVEN), some), some, 3)
    # The two rows on the left close their parent, which is still too small: the root's split goes too.
    assert drawn(tree) == (2, 1, None, None)
    assert leaves.tolist() == [0, 1, 0, 0, 0, 1, 1, 1]


def test_a_tree_is_cut_to_its_root_where_rows_are_too_few() -> None:
    some = rows([0, 0, 0], [5, 4, 3])
    tree, leaves = prune_tree(flat(SEVEN), nodes_of(flat(SEVEN), some), some, 10)
    assert drawn(tree) is None
    assert leaves.tolist() == [0, 0]


def test_nothing_is_pruned_where_all_leaves_are_large_enough() -> None:
    some = rows([0, 0, 0], [0, 1, 0], [3, 0, 0], [3, 0, 3])
    tree, leaves = prune_tree(flat(SEVEN), nodes_of(flat(SEVEN), some), some, 1)
    assert drawn(tree) == SEVEN
    assert leaves.tolist() == [0, 1, 2, 3]


def test_an_empty_leaf_is_pruned_too() -> None:
    some = rows([0, 0, 0], [0, 1, 0])
    tree, leaves = prune_tree(flat(SEVEN), nodes_of(flat(SEVEN), some), some, 1)
    assert drawn(tree) == (1, 0, None, None)
    assert leaves.tolist() == [0, 1]


@given(numbered_trees(), codes, st.integers(1, 12))
def test_pruned_leaves_hold_enough_rows_and_no_row_is_lost(tree: Any, some: Any, min_leaf: Any) -> None:
    before = [array.copy() for array in tree]
    nodes = nodes_of(tree, some)
    pruned, leaves = prune_tree(tree, nodes, some, min_leaf)
    n_leaves = int((pruned.left < 0).sum())
    counts = np.bincount(leaves, minlength=n_leaves)
    assert counts.sum() == len(some)
    assert n_leaves == 1 or counts.min() >= min_leaf
    assert np.array_equal(leaves, leaves_of(pruned, some))
    assert all(np.array_equal(old, new) for old, new in zip(before, tree, strict=True))
    assert np.array_equal(nodes, nodes_of(tree, some))


@given(numbered_trees(), codes, st.integers(1, 12))
def test_pruning_only_takes_splits_away(tree: Any, some: Any, min_leaf: Any) -> None:
    pruned, _ = prune_tree(tree, nodes_of(tree, some), some, min_leaf)

    def splits(part: Any) -> Any:
        return [] if part is None else [part[:2], *splits(part[2]), *splits(part[3])]

    left, all_of_them = splits(drawn(pruned)), iter(splits(drawn(tree)))
    assert all(split in all_of_them for split in left)  # a subsequence, in preorder
