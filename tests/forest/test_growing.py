from typing import Any

import numpy as np
import pytest

from arf_dask.forest.growing import gate_tree, graft, grow_tree
from tests.drawn_trees import FIVE, drawn, flat, nodes_of


@pytest.fixture(name="two_kinds")
def fixture_two_kinds() -> Any:
    rng = np.random.default_rng(0)
    features = np.asfortranarray(rng.integers(0, 9, (400, 3)), dtype=np.float32)
    is_real = (features[:, 0] + rng.integers(0, 4, 400) > 6).astype(np.int8)
    return features, is_real


@pytest.mark.parametrize("drawn_rows", [None, 100, 4_000])
def test_a_grown_tree_agrees_with_its_own_arrays(two_kinds: Any, drawn_rows: Any) -> None:
    features, is_real = two_kinds
    grown = grow_tree(features, is_real, np.random.default_rng(1), max_features=2, rows=drawn_rows, min_leaf=1)
    assert np.array_equal(nodes_of(grown.tree, features.astype(np.uint16)), grown.nodes)
    used = ~grown.unused
    assert used.sum() == 100 if drawn_rows == 100 else 0.5 < used.mean() < 0.75
    votes = grown.shares[grown.nodes]
    assert np.all((votes >= 0) & (votes <= 1))
    # Grown to purity: rows that were drawn are told apart as far as their codes allow.
    assert np.mean((votes[used] > 0.5) == is_real[used]) > 0.95
    assert np.all(grown.tree.feature[grown.tree.left >= 0] >= 0)


def test_one_generator_grows_one_tree(two_kinds: Any) -> None:
    codes, is_real = two_kinds
    grown = [
        grow_tree(codes, is_real, np.random.default_rng(5), max_features=2, rows=None, min_leaf=1) for _ in range(2)
    ]
    first, second = grown
    assert all(np.array_equal(one, other) for one, other in zip(first.tree, second.tree, strict=True))
    assert np.array_equal(first.shares, second.shares)


def test_rows_of_one_kind_grow_a_single_leaf() -> None:
    features = np.zeros((6, 2), dtype=np.float32, order="F")
    labels = np.array([1, 1, 1, 0, 0, 0], dtype=np.int8)
    grown = grow_tree(features, labels, np.random.default_rng(0), max_features=1, rows=None, min_leaf=1)
    assert len(grown.tree.left) == 1
    assert np.ptp(grown.shares) == 0


def test_nodes_whose_splits_would_all_be_pruned_are_not_split(two_kinds: Any) -> None:
    features, is_real = two_kinds
    pure, coarse = (
        grow_tree(features, is_real, np.random.default_rng(1), max_features=2, rows=None, min_leaf=least)
        for least in (1, 20)
    )
    drawn_rows = np.bincount(coarse.nodes[~coarse.unused], minlength=len(coarse.tree.left))
    parent = coarse.tree.left[coarse.tree.left >= 0]
    assert len(coarse.tree.left) < len(pure.tree.left)
    assert drawn_rows.sum() == (~coarse.unused).sum()
    for left, right in zip(parent, coarse.tree.right[coarse.tree.right >= 0], strict=True):
        if coarse.tree.left[left] < 0 and coarse.tree.left[right] < 0:
            assert drawn_rows[left] + drawn_rows[right] >= 25


def test_gates_split_on_missingness_where_both_sides_have_rows_enough() -> None:
    some = np.zeros((400, 3), dtype=np.uint16)
    some[:, 0] = np.repeat([0, 3], 200)
    some[:, 1] = np.where(np.arange(400) % 100 < 5, 0, 2)  # missing in twenty rows only
    some[:, 2] = np.repeat([0, 1, 2, 3], 100)  # missing in the first half of those that miss variable 0
    assert drawn(gate_tree(some, [0, 1])) == (0, 0, None, None)
    assert drawn(gate_tree(some, [0, 2])) == (0, 0, (2, 0, None, None), None)
    assert drawn(gate_tree(some, [])) is None


def test_grafted_trees_stand_in_place_of_the_leaves() -> None:
    parts = [flat(FIVE), flat(None), flat((2, 3, None, None))]
    whole, roots, offsets = graft(flat((1, 0, None, (2, 2, None, None))), parts)
    assert drawn(whole) == (1, 0, FIVE, (2, 2, None, (2, 3, None, None)))
    assert [drawn(whole, root) for root in roots] == [FIVE, None, (2, 3, None, None)]
    below = [
        drawn(whole, int(part.left[0]) + offset)
        for part, offset in zip(parts, offsets, strict=True)
        if len(part.left) > 1
    ]
    assert below == [None, None]
