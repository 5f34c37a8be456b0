from typing import Any

import numpy as np
import pytest

from arf_dask.forest.adversary import (
    RoundContext,
    Training,
    draw_from_leaves,
    draw_independent,
    grow_one,
    out_of_bag_accuracy,
    train,
)
from arf_dask.forest.growing import gate_tree
from arf_dask.forest.routing import route_to_leaves, route_to_nodes, routing_table
from arf_dask.forest.trees import leaf_nodes
from arf_dask.runtime.progress import progress_for
from arf_dask.runtime.tasks import Threads


def training(**changes: Any) -> Training:
    defaults = {"trees": 4, "min_leaf": 5, "max_rounds": 4, "tolerance": 0.0, "max_features": 2}
    return Training(**{**defaults, "rows_per_tree": None, "seed": 1, **changes})


def trained(codes: Any, threads: Any = 1, **changes: Any) -> Any:
    with progress_for(False) as report:
        return train(codes, training(**changes), Threads(threads), report)


@pytest.fixture(name="tied")
def fixture_tied() -> Any:
    """Two columns that are always equal, and one that is independent."""
    rng = np.random.default_rng(2)
    group = rng.integers(0, 6, 600)
    return np.asfortranarray(np.stack([group, group, rng.integers(0, 4, 600)], axis=1), dtype=np.uint16)


def test_independent_draws_keep_each_column_and_break_their_ties(tied: Any) -> None:
    drawn = draw_independent(tied, np.random.default_rng(0))
    assert drawn.shape == tied.shape
    assert drawn.dtype == tied.dtype
    for column in range(3):
        assert set(drawn[:, column]) <= set(tied[:, column])
        shares = [np.bincount(codes[:, column], minlength=6) / 600 for codes in (tied, drawn)]
        np.testing.assert_allclose(shares[0], shares[1], atol=0.08)
    assert np.mean(drawn[:, 0] == drawn[:, 1]) < 0.3


def test_draws_from_leaves_stay_inside_them(tied: Any) -> None:
    leaves = [tied[:, 0].astype(np.int32), tied[:, 0].astype(np.int32) // 3]
    drawn = draw_from_leaves(tied, leaves[:1], np.random.default_rng(0))
    assert np.array_equal(drawn[:, 0], drawn[:, 1])
    coarse = draw_from_leaves(tied, leaves[1:], np.random.default_rng(0))
    assert np.array_equal(coarse[:, 0] // 3, coarse[:, 1] // 3)
    assert not np.array_equal(coarse[:, 0], coarse[:, 1])


def test_draws_from_leaves_follow_their_coverage(tied: Any) -> None:
    leaves = [np.repeat([0, 1], [540, 60]).astype(np.int32)]
    marked = tied.copy()
    marked[:, 2] = leaves[0]
    share = np.mean([draw_from_leaves(marked, leaves, np.random.default_rng(seed))[:, 2].mean() for seed in range(20)])
    assert share == pytest.approx(0.1, abs=0.015)


def test_accuracy_counts_ties_as_half_and_leaves_the_unheard_out() -> None:
    votes = np.array([1.8, 0.2, 0.5, 0.0, 0.6], dtype=np.float32)
    voters = np.array([2, 1, 1, 0, 2], dtype=np.int32)
    is_real = np.array([1, 1, 0, 1, 0], dtype=np.int8)
    # right, wrong, a tie, not heard, right
    assert out_of_bag_accuracy(votes, voters, is_real) == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert out_of_bag_accuracy(votes, np.zeros(5, dtype=np.int32), is_real) == 0.5


def test_every_leaf_holds_enough_rows_and_leaf_numbers_are_those_of_the_trees(tied: Any) -> None:
    forest = trained(tied, min_leaf=20)
    assert len(forest.trees) == len(forest.leaves) == 4
    for tree, leaves in zip(forest.trees, forest.leaves, strict=True):
        assert np.bincount(leaves).min() >= 20
        assert np.array_equal(leaves, route_to_leaves(routing_table(tree), tied))


def test_training_ends_with_columns_that_are_independent_inside_leaves(tied: Any) -> None:
    forest = trained(tied, trees=10)
    assert forest.rounds[0].accuracy > 0.7
    assert min(r.accuracy for r in forest.rounds[1:]) < forest.rounds[0].accuracy
    for leaves in forest.leaves:
        again = draw_from_leaves(tied, [leaves], np.random.default_rng(0))
        assert np.mean(again[:, 0] == again[:, 1]) > 0.9


def test_accuracy_falls_until_the_round_that_stops() -> None:
    rng = np.random.default_rng(5)
    group = rng.integers(0, 6, 600)
    noisy = [(group + rng.integers(0, 3, 600)) % 6 for _ in range(3)]
    forest = trained(np.asfortranarray(np.stack([group, *noisy], axis=1), dtype=np.uint16), trees=10)
    accuracies = [r.accuracy for r in forest.rounds]
    assert [r.round for r in forest.rounds] == list(range(len(accuracies)))
    assert accuracies[:-1] == sorted(accuracies[:-1], reverse=True)
    assert len(set(accuracies[:-1])) == len(accuracies) - 1


def test_no_more_rounds_than_allowed(tied: Any) -> None:
    assert len(trained(tied, max_rounds=0).rounds) == 1
    assert len(trained(tied, max_rounds=1).rounds) <= 2


def test_a_wide_tolerance_stops_at_once(tied: Any) -> None:
    assert len(trained(tied, tolerance=0.49).rounds) == 1


@pytest.mark.parametrize("rows_per_tree", [None, 150])
def test_one_seed_gives_one_forest_on_any_number_of_threads(tied: Any, rows_per_tree: Any) -> None:
    first, second = (trained(tied, threads, rows_per_tree=rows_per_tree) for threads in (1, 3))
    assert first.rounds == second.rounds
    for one, other in zip(first.trees, second.trees, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    different = trained(tied, rows_per_tree=rows_per_tree, seed=2)
    assert different.rounds != first.rounds


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_few_rows_make_trees_of_one_leaf(rows: Any) -> None:
    codes = np.asfortranarray(np.arange(2 * rows).reshape(rows, 2), dtype=np.uint16)
    forest = trained(codes)
    assert all(len(tree.left) == 1 for tree in forest.trees)
    assert all(leaves.tolist() == [0] * rows for leaves in forest.leaves)


def test_the_codes_are_not_changed(tied: Any) -> None:
    before = tied.copy()
    trained(tied)
    assert np.array_equal(before, tied)


@pytest.mark.parametrize("gates", [[], [2]])
def test_the_result_of_a_tree_has_the_leaf_of_every_row_and_the_votes_out_of_bag(tied: Any, gates: Any) -> None:
    synthetic = draw_independent(tied, np.random.default_rng(3))
    context = RoundContext(gate_tree(tied, gates), tied, synthetic, training(), 0)
    result = grow_one(context, 0)
    table = routing_table(result.tree)
    nodes = [route_to_nodes(table, codes) for codes in (tied, synthetic)]
    assert np.array_equal(leaf_nodes(result.tree)[result.leaves[:600]], nodes[0])
    rows, votes = result.votes(600)
    assert np.array_equal(leaf_nodes(result.tree)[result.leaves[600:]], nodes[1][rows[rows >= 600] - 600])
    assert np.array_equal(votes, result.shares[table.leaf_number[np.concatenate(nodes)[rows]]])


def test_the_result_of_a_tree_takes_about_three_bytes_a_row_and_what_its_leaves_take() -> None:
    codes = np.asfortranarray(np.random.default_rng(0).integers(0, 200, (5_000, 4)), dtype=np.uint16)
    context = RoundContext(
        gate_tree(codes, []), codes, draw_independent(codes, np.random.default_rng(1)), training(), 0
    )
    result = grow_one(context, 0)
    assert len(result.shares) > 256
    assert result.leaves.nbytes + result.unused.nbytes < 3.1 * len(codes)


def test_a_round_whose_first_trees_gain_little_is_not_grown_to_its_end() -> None:
    rng = np.random.default_rng(0)
    line = rng.integers(0, 400, 800)
    tight = np.stack([line, line + rng.integers(0, 3, 800), rng.integers(0, 9, 800)], axis=1)
    forest = trained(np.asfortranarray(tight, dtype=np.uint16), trees=20, max_rounds=10, min_leaf=20)
    whole, last = forest.rounds[:-1], forest.rounds[-1]
    assert len(forest.trees) == 20
    assert last.leaves < min(r.leaves for r in whole) / 2
