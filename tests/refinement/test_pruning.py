"""Pruned boosted trees: every leaf holds enough people, and values are those of the leaves that remain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from arf_dask.refinement.boosted_trees import LEAF, BoostedTrees, leaf_ends, right_children, tree_bounds
from arf_dask.refinement.boosting import Boosting, Sides, boost
from arf_dask.refinement.features import LEVEL, N_CODES, Feature
from arf_dask.refinement.learning import choose_validation
from arf_dask.refinement.pruning import Rows, prune_tree, prune_trees


def splitting(*left: int) -> Any:
    """The codes that go left, as flags."""
    return np.isin(np.arange(N_CODES), left)


def one_tree() -> BoostedTrees:
    """Code 1 of feature 0 goes left; of the others, code 1 of feature 1."""
    feature = np.array([0, LEAF, 1, LEAF, LEAF], np.int32)
    nobody = splitting()
    return BoostedTrees(
        np.zeros(5, np.int64),
        feature,
        np.array([splitting(1), nobody, splitting(1), nobody, nobody]),
        np.array([0.0, 1.0, 0.0, 2.0, 3.0]),
        0.0,
    )


def rows(first: list[int], second: list[int], counted: list[int], subjects: list[int] | None = None) -> Rows:
    codes = {number: np.array(codes, np.uint8) for number, codes in enumerate((first, second))}
    return Rows(codes, np.array(counted, bool), None if subjects is None else np.array(subjects))


def test_a_tree_whose_leaves_hold_enough_people_stays() -> None:
    pruned = prune_tree(one_tree(), 0, 5, rows([1, 1, 2, 2, 2, 2], [1, 2, 1, 1, 2, 2], [1] * 6), 2)
    assert pruned.nodes.tolist() == [0, 1, 2, 3, 4]
    assert pruned.is_leaf.tolist() == [False, True, False, True, True]
    assert pruned.row_leaf.tolist() == [0, 0, 1, 1, 2, 2]


def test_the_rows_of_a_small_leaf_take_the_way_of_its_sibling() -> None:
    pruned = prune_tree(one_tree(), 0, 5, rows([1, 1, 2, 2, 2, 2], [1, 2, 1, 1, 2, 2], [1, 0, 1, 1, 1, 1]), 2)
    assert pruned.nodes.tolist() == [2, 3, 4]
    assert pruned.row_leaf.tolist() == [0, 1, 0, 0, 1, 1]


def test_rows_that_do_not_count_make_no_leaf_large_enough() -> None:
    pruned = prune_tree(one_tree(), 0, 5, rows([1] * 3 + [2] * 9, [1] * 12, [0] * 3 + [1] * 9), 2)
    assert pruned.nodes.tolist() == [3]
    assert pruned.row_leaf.tolist() == [0] * 12


def test_a_split_without_a_child_that_is_large_enough_becomes_a_leaf() -> None:
    pruned = prune_tree(one_tree(), 0, 5, rows([1, 1, 2, 2], [1, 1, 1, 2], [1] * 4), 3)
    assert pruned.nodes.tolist() == [0]
    assert pruned.is_leaf.tolist() == [True]


def test_many_rows_of_one_person_count_once() -> None:
    first, second = [1, 1, 1, 2, 2, 2], [1] * 3 + [1, 1, 2]
    people = rows(first, second, [1] * 6, [7, 7, 7, 1, 2, 3])
    assert prune_tree(one_tree(), 0, 5, people, 2).nodes.tolist() == [3]
    assert prune_tree(one_tree(), 0, 5, rows(first, second, [1] * 6), 2).nodes.tolist() == [0, 1, 3]
    assert people.count_people(np.array([0, 1, 3])) == 2


def test_the_value_of_a_leaf_is_a_damped_newton_step_of_the_rows_that_are_learned_from() -> None:
    # Four real rows and four drawn ones, all of weight one. Real rows of validation do not count.
    codes = {0: np.array([1, 1, 1, 2, 1, 2, 2, 2], np.uint8), 1: np.array([1] * 8, np.uint8)}
    is_real = np.arange(8) < 4
    is_validation = np.array([0, 0, 1, 0, 0, 0, 0, 1], bool)
    settings = Boosting(learning_rate=0.5, l2=1.0, min_people=1)
    found = prune_trees(one_tree(), Sides(codes, is_real, is_validation), settings)
    assert found.feature.tolist() == [0, LEAF, LEAF]
    left, right = 0.5 * 0.5 / (0.75 + 1), 0.5 * -0.5 / (0.75 + 1)  # 2 real and 1 drawn; 1 real and 2 drawn
    np.testing.assert_allclose(found.value, [0.0, left, right])
    assert found.score(codes, 8).round(6).tolist() == np.where(codes[0] == 1, left, right).round(6).tolist()


def test_trees_that_no_longer_help_the_validation_rows_are_left_out() -> None:
    codes = {0: np.array([1, 1, 2, 2, 1, 2], np.uint8), 1: np.array([1] * 6, np.uint8)}
    is_real = np.array([1, 1, 0, 0, 0, 1], bool)  # the validation rows, which come last, contradict the others
    sides = Sides(codes, is_real, np.arange(6) >= 4)
    assert prune_trees(one_tree(), sides, Boosting(min_people=0)).n_trees == 0
    agreeing = Sides(codes, np.array([1, 1, 0, 0, 1, 0], bool), np.arange(6) >= 4)
    assert prune_trees(one_tree(), agreeing, Boosting(min_people=0)).n_trees == 1


def leaves_of(trees: BoostedTrees, start: int, stop: int, codes: Any) -> Any:
    """The leaf of every row, one row at a time."""
    feature = trees.feature[start:stop]
    right, found = right_children(feature), []
    for row in range(len(codes[0])):
        node = 0
        while feature[node] != LEAF:
            node = node + 1 if trees.left_codes[start + node][codes[int(feature[node])][row]] else int(right[node])
        found.append(node)
    return np.array(found)


@pytest.mark.parametrize("n_subjects", [None, 60])
def test_every_leaf_holds_enough_people(n_subjects: int | None) -> None:
    rng = np.random.Generator(np.random.SFC64(4))
    n = 1_200
    is_real = np.arange(n) < 300
    first = rng.integers(1, 40, n)
    second = np.where(is_real, (first + rng.integers(0, 3, n)) % 40 + 1, rng.integers(1, 41, n))
    codes = {0: first.astype(np.uint8), 1: second.astype(np.uint8)}
    subjects = None if n_subjects is None else np.where(is_real, rng.integers(0, n_subjects, n), 0)
    is_validation = choose_validation(300, 900, None if subjects is None else subjects[:300], rng)
    sides = Sides(codes, is_real, is_validation, subjects)
    features = [Feature("number", (name,), edges=np.arange(1.0, 40.0)) for name in ("a", "b")]
    features[0] = Feature(LEVEL, ("a",), levels=tuple(map(str, range(1, 41))))
    settings = Boosting(min_rows=5, max_rounds=30, min_people=12)
    learned = boost(features, range(len(features)), sides, settings, 0)
    pruned = prune_trees(learned, sides, settings)
    people = np.arange(n) if subjects is None else subjects
    smallest = []
    for trees in (learned, pruned):
        held = []
        for start, stop in zip(*tree_bounds(trees.tree), strict=True):
            leaves = leaves_of(trees, start, stop, codes)
            counted = is_real & ~is_validation
            ends = np.flatnonzero(trees.feature[start:stop] == LEAF)
            held += [len(np.unique(people[counted & (leaves == leaf)])) for leaf in ends]
            assert leaf_ends(trees.feature[start:stop])[0] == stop - start
        smallest.append(min(held))
    assert smallest[0] < 12 <= smallest[1]
    assert 0 < pruned.n_trees <= learned.n_trees


def test_no_person_is_on_both_sides_of_the_validation() -> None:
    subjects = np.repeat(np.arange(40), 5)
    chosen = choose_validation(200, 50, subjects, np.random.Generator(np.random.SFC64(1)))
    by_person = chosen[:200].reshape(40, 5)
    assert (by_person.all(axis=1) | ~by_person.any(axis=1)).all()
    assert 0 < by_person.all(axis=1).sum() < 40
    rows_alone = choose_validation(200, 50, None, np.random.Generator(np.random.SFC64(1)))
    assert not (rows_alone[:200].reshape(40, 5).all(axis=1) | ~rows_alone[:200].reshape(40, 5).any(axis=1)).all()
    assert chosen[200:].tolist() == rows_alone[200:].tolist()


def test_no_trees_stay_no_trees() -> None:
    nothing = BoostedTrees(
        np.empty(0, np.int64), np.empty(0, np.int32), np.empty((0, N_CODES), bool), np.empty(0), 0.25
    )
    codes = {0: np.array([1, 1, 2, 2], np.uint8)}
    sides = Sides(codes, np.array([1, 1, 0, 0], bool), np.array([0, 1, 0, 1], bool))
    assert prune_trees(nothing, sides, Boosting(min_people=1)).n_trees == 0
