"""The trees that are read from scikit-learn mean what its own predictions mean."""

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from arf_dask.refinement.boosted_trees import LEAF
from arf_dask.refinement.boosting import Boosting, Sides, boost, read_trees
from arf_dask.refinement.features import LEVEL, Feature

N_ROWS = 4_000
NUMBER, LEVELS = Feature("number", ("x",), edges=np.arange(250.0)), Feature(LEVEL, ("w",), levels=("a", "b", "c"))
FEATURES = [NUMBER, LEVELS, NUMBER]


def sides(seed: int, gaps: int = 1) -> Sides:
    """Rows whose side depends on a number, on levels without order, and on both."""
    rng = np.random.default_rng(seed)
    codes = [
        gaps * rng.integers(0, 250 // gaps, N_ROWS),
        rng.integers(0, 40, N_ROWS),
        rng.integers(0, 30, N_ROWS),
    ]
    score = (codes[0] - 125) / 60 + np.where(codes[1] % 3 == 0, 1.5, -1.0) + np.where(codes[2] < 5, codes[0] / 100, 0)
    is_real = rng.random(N_ROWS) < 1 / (1 + np.exp(-score))
    by_feature = {number: column.astype(np.uint8) for number, column in enumerate(codes)}
    return Sides(by_feature, is_real, rng.random(N_ROWS) < 0.2)


def ranks(codes: Any, seen: Any) -> Any:
    return np.maximum(np.searchsorted(seen, codes, side="right") - 1, 0)


@pytest.mark.parametrize("gaps", [1, 7])
def test_scores_are_the_decision_function_of_the_learner(gaps: int) -> None:
    rows = sides(0, gaps)
    order = [1, 0, 2]  # the learner puts categories first
    is_trained = ~rows.is_validation
    seen = [np.unique(rows.codes[number][is_trained]) for number in order]
    matrix = np.column_stack([ranks(rows.codes[number], codes) for number, codes in zip(order, seen, strict=True)])
    learner = HistGradientBoostingClassifier(
        categorical_features=[True, False, False], max_iter=30, max_leaf_nodes=20, random_state=0
    ).fit(matrix[is_trained], rows.is_real[is_trained])
    trees = read_trees(learner, learner.n_iter_, order, seen)
    assert trees.n_trees == 30
    found = trees.score(dict(rows.codes), N_ROWS)
    assert found == pytest.approx(learner.decision_function(matrix), abs=1e-9)
    is_validation = rows.is_validation  # rows, and codes of theirs, that were not learned from
    assert found[is_validation] == pytest.approx(learner.decision_function(matrix[is_validation]), abs=1e-9)


def test_fewer_trees_are_those_of_the_first_rounds() -> None:
    rows = sides(1)
    seen = [np.unique(rows.codes[number]) for number in range(3)]
    matrix = np.column_stack([ranks(rows.codes[number], codes) for number, codes in enumerate(seen)])
    learner = HistGradientBoostingClassifier(max_iter=12, random_state=0).fit(matrix, rows.is_real)
    staged = list(learner.staged_decision_function(matrix))
    for n_trees in (1, 5, 12):
        trees = read_trees(learner, n_trees, [0, 1, 2], seen)
        assert trees.score(dict(rows.codes), N_ROWS) == pytest.approx(np.ravel(staged[n_trees - 1]), abs=1e-9)
    assert read_trees(learner, 0, [0, 1, 2], seen).n_trees == 0


def test_codes_that_were_not_learned_from_go_with_the_nearest_below() -> None:
    rows = sides(2, gaps=7)
    trees = boost(FEATURES, range(len(FEATURES)), rows, Boosting(max_rounds=20), seed=0)
    one = {number: column[:50] for number, column in rows.codes.items()}
    assert np.array_equal(trees.score(one, 50), trees.score({**one, 0: one[0] + np.uint8(6)}, 50))


def test_boosting_learns_the_difference_and_repeats_itself() -> None:
    rows = sides(3)
    trees = boost(FEATURES, range(len(FEATURES)), rows, Boosting(max_rounds=60), seed=5)
    again = boost(FEATURES, range(len(FEATURES)), rows, Boosting(max_rounds=60), seed=5)
    scores = trees.score(dict(rows.codes), N_ROWS)
    assert np.array_equal(scores, again.score(dict(rows.codes), N_ROWS))
    held_out = rows.is_validation
    assert np.mean((scores > 0)[held_out] == rows.is_real[held_out]) > 0.7
    assert set(trees.used) == {0, 1, 2}


def test_leaves_hold_enough_rows() -> None:
    rows = sides(4)
    trees = boost(FEATURES, range(len(FEATURES)), rows, Boosting(max_rounds=5, min_rows=300, max_leaves=31), seed=0)
    n_leaves = np.bincount(trees.tree[trees.feature == LEAF])
    assert n_leaves.max() <= (N_ROWS - rows.is_validation.sum()) / 300


def test_both_sides_weigh_the_same() -> None:
    is_real = np.array([True, True, False, False, False, False])
    weights = Sides({}, is_real, is_real).weights()
    assert weights.tolist() == [1.0, 1.0, 0.5, 0.5, 0.5, 0.5]
