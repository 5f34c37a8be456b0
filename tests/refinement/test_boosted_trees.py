import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arf_dask.refinement.boosted_trees import (
    DE_BRUIJN,
    ROWS_AT_ONCE,
    leaf_ends,
    right_children,
    tree_bounds,
)
from tests.boosted import boosted, random_tree, walk
from tests.hypothesis_profiles import examples


def random_codes(rng: Any, n_features: int, n_rows: int) -> list[Any]:
    return [rng.integers(0, 256, n_rows).astype(np.uint8) for _ in range(n_features)]


def test_a_score_is_the_base_and_one_leaf_of_every_tree() -> None:
    trees = boosted((0, {1, 2}, 10.0, (1, {0}, 20.0, 30.0)), (1, {5}, 1.0, 2.0), base=0.5)
    codes = {0: np.array([1, 2, 3, 3], np.uint8), 1: np.array([5, 0, 0, 5], np.uint8)}
    assert trees.score(codes, 4).tolist() == [11.5, 12.5, 22.5, 31.5]


def test_a_tree_of_one_leaf_adds_its_value_to_every_row() -> None:
    trees = boosted(3.0, (0, {7}, 1.0, 2.0), 4.0)
    assert trees.n_trees == 3
    assert trees.score({0: np.array([7, 8], np.uint8)}, 2).tolist() == [8.0, 9.0]


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 64), min_size=1, max_size=9))
def test_scores_are_those_of_walking_down_every_tree(seed: int, sizes: list[int]) -> None:
    rng = np.random.default_rng(seed)
    nodes = [random_tree(rng, 3, n_leaves) for n_leaves in sizes]
    codes = random_codes(rng, 3, 40)
    stages = tuple(sorted(set(rng.integers(1, len(nodes), 2).tolist()))) if len(nodes) > 1 else ()
    trees = boosted(*nodes, base=float(rng.normal()), stages=stages)
    rows = np.column_stack(codes).tolist()
    expected = [trees.base + sum(walk(node, row) for node in nodes) for row in rows]
    found = trees.score({feature: codes[feature] for feature in trees.used}, 40)
    assert found == pytest.approx(expected, abs=1e-9)


def test_stages_add_up_to_all_trees() -> None:
    rng = np.random.default_rng(0)
    nodes = [random_tree(rng, 2, 31) for _ in range(12)]
    trees = boosted(*nodes, stages=(3, 7))
    codes = dict(enumerate(random_codes(rng, 2, 200)))
    rows = np.column_stack(list(codes.values())).tolist()
    totals = np.full(200, trees.base)
    for stage, end in enumerate([3, 7, 12]):
        trees.add_scores(stage, codes, totals)
        assert totals == pytest.approx([sum(walk(node, row) for node in nodes[:end]) for row in rows], abs=1e-9)


def test_rows_are_scored_alike_in_any_company() -> None:
    rng = np.random.default_rng(1)
    trees = boosted(*(random_tree(rng, 4, 20) for _ in range(9)))
    n_rows = 2 * ROWS_AT_ONCE + 5
    codes = dict(enumerate(random_codes(rng, 4, n_rows)))
    scores = trees.score(codes, n_rows)
    some = np.array([0, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, n_rows - 1])
    assert np.array_equal(trees.score({name: column[some] for name, column in codes.items()}, 4), scores[some])


def test_full_words_of_64_leaves_are_scored() -> None:
    rng = np.random.default_rng(2)
    nodes = [random_tree(rng, 2, 64), random_tree(rng, 2, 64), random_tree(rng, 2, 1)]
    trees = boosted(*nodes)
    assert [len(word.leaves) for word in trees.words[0]] == [1, 1, 1]
    codes = random_codes(rng, 2, 300)
    expected = [sum(walk(node, row) for node in nodes) for row in np.column_stack(codes).tolist()]
    assert trees.score(dict(enumerate(codes)), 300) == pytest.approx(expected, abs=1e-9)


def test_every_bit_has_a_place_of_its_own() -> None:
    bits = np.uint64(1) << np.arange(64, dtype=np.uint64)
    assert sorted(((bits * DE_BRUIJN) >> np.uint64(58)).tolist()) == list(range(64))


def test_the_features_that_are_used_are_those_of_the_nodes() -> None:
    trees = boosted((5, {1}, 0.0, (2, {1}, 0.0, 1.0)), 1.0)
    assert trees.used == [2, 5]
    assert boosted(1.0).used == []


def test_bounds_ends_and_children_of_two_trees() -> None:
    trees = boosted((0, {1}, 0.0, (1, {1}, 0.0, 1.0)), 2.0)
    starts, stops = tree_bounds(trees.tree)
    assert (starts.tolist(), stops.tolist()) == ([0, 5], [5, 6])
    assert leaf_ends(trees.feature[:5]).tolist() == [5, 2, 5, 4, 5]
    assert right_children(trees.feature[:5]).tolist() == [2, -1, 4, -1, -1]


def test_what_is_computed_is_not_pickled() -> None:
    trees = boosted((0, {1}, 1.0, 2.0))
    size = len(pickle.dumps(trees))
    assert trees.score({0: np.array([1], np.uint8)}, 1).tolist() == [1.0]
    assert len(pickle.dumps(trees)) == size
    assert pickle.loads(pickle.dumps(trees)).score({0: np.array([1], np.uint8)}, 1).tolist() == [1.0]
