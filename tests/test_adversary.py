import numpy as np
import pytest

from arf_dask.adversary import Training, draw_from_leaves, draw_independent, out_of_bag_accuracy, train
from arf_dask.forest import leaf_numbers
from arf_dask.progress import progress_for
from arf_dask.tasks import Threads


def training(**changes) -> Training:
    defaults = {"trees": 4, "min_leaf": 5, "max_rounds": 4, "tolerance": 0.0, "max_features": 2}
    return Training(**{**defaults, "rows_per_tree": None, "seed": 1, **changes})


def trained(codes, threads=1, **changes):
    with progress_for(False) as report:
        return train(codes, training(**changes), Threads(threads), report)


@pytest.fixture(name="tied")
def fixture_tied():
    """Two columns that are always equal, and one that is independent."""
    rng = np.random.default_rng(2)
    group = rng.integers(0, 6, 600)
    return np.asfortranarray(np.stack([group, group, rng.integers(0, 4, 600)], axis=1), dtype=np.uint16)


def test_independent_draws_keep_each_column_and_break_their_ties(tied):
    drawn = draw_independent(tied, np.random.default_rng(0))
    assert drawn.shape == tied.shape
    assert drawn.dtype == tied.dtype
    for column in range(3):
        assert set(drawn[:, column]) <= set(tied[:, column])
        shares = [np.bincount(codes[:, column], minlength=6) / 600 for codes in (tied, drawn)]
        np.testing.assert_allclose(*shares, atol=0.08)
    assert np.mean(drawn[:, 0] == drawn[:, 1]) < 0.3


def test_draws_from_leaves_stay_inside_them(tied):
    leaves = [tied[:, 0].astype(np.int32), tied[:, 0].astype(np.int32) // 3]
    drawn = draw_from_leaves(tied, leaves[:1], np.random.default_rng(0))
    assert np.array_equal(drawn[:, 0], drawn[:, 1])
    coarse = draw_from_leaves(tied, leaves[1:], np.random.default_rng(0))
    assert np.array_equal(coarse[:, 0] // 3, coarse[:, 1] // 3)
    assert not np.array_equal(coarse[:, 0], coarse[:, 1])


def test_draws_from_leaves_follow_their_coverage(tied):
    leaves = [np.repeat([0, 1], [540, 60]).astype(np.int32)]
    marked = tied.copy()
    marked[:, 2] = leaves[0]
    share = np.mean([draw_from_leaves(marked, leaves, np.random.default_rng(seed))[:, 2].mean() for seed in range(20)])
    assert share == pytest.approx(0.1, abs=0.015)


def test_accuracy_counts_ties_as_half_and_leaves_the_unheard_out():
    votes = np.array([1.8, 0.2, 0.5, 0.0, 0.6], dtype=np.float32)
    voters = np.array([2, 1, 1, 0, 2], dtype=np.int32)
    is_real = np.array([1, 1, 0, 1, 0], dtype=np.int8)
    # right, wrong, a tie, not heard, right
    assert out_of_bag_accuracy(votes, voters, is_real) == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    assert out_of_bag_accuracy(votes, np.zeros(5, dtype=np.int32), is_real) == 0.5


def test_every_leaf_holds_enough_rows_and_leaf_numbers_are_those_of_the_trees(tied):
    forest = trained(tied, min_leaf=20)
    assert len(forest.trees) == len(forest.leaves) == 4
    for tree, leaves in zip(forest.trees, forest.leaves, strict=True):
        assert np.bincount(leaves).min() >= 20
        assert np.array_equal(leaves, leaf_numbers(tree, tied))


def test_training_ends_with_columns_that_are_independent_inside_leaves(tied):
    forest = trained(tied, trees=10)
    assert forest.rounds[0].accuracy > 0.7
    assert min(r.accuracy for r in forest.rounds[1:]) < forest.rounds[0].accuracy
    for leaves in forest.leaves:
        again = draw_from_leaves(tied, [leaves], np.random.default_rng(0))
        assert np.mean(again[:, 0] == again[:, 1]) > 0.9


def test_accuracy_falls_until_the_round_that_stops():
    rng = np.random.default_rng(5)
    group = rng.integers(0, 6, 600)
    noisy = [(group + rng.integers(0, 3, 600)) % 6 for _ in range(3)]
    forest = trained(np.asfortranarray(np.stack([group, *noisy], axis=1), dtype=np.uint16), trees=10)
    accuracies = [r.accuracy for r in forest.rounds]
    assert [r.round for r in forest.rounds] == list(range(len(accuracies)))
    assert accuracies[:-1] == sorted(accuracies[:-1], reverse=True)
    assert len(set(accuracies[:-1])) == len(accuracies) - 1


def test_no_more_rounds_than_allowed(tied):
    assert len(trained(tied, max_rounds=0).rounds) == 1
    assert len(trained(tied, max_rounds=1).rounds) <= 2


def test_a_wide_tolerance_stops_at_once(tied):
    assert len(trained(tied, tolerance=0.49).rounds) == 1


@pytest.mark.parametrize("rows_per_tree", [None, 150])
def test_one_seed_gives_one_forest_on_any_number_of_threads(tied, rows_per_tree):
    first, second = (trained(tied, threads, rows_per_tree=rows_per_tree) for threads in (1, 3))
    assert first.rounds == second.rounds
    for one, other in zip(first.trees, second.trees, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    different = trained(tied, rows_per_tree=rows_per_tree, seed=2)
    assert different.rounds != first.rounds


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_few_rows_make_trees_of_one_leaf(rows):
    codes = np.asfortranarray(np.arange(2 * rows).reshape(rows, 2), dtype=np.uint16)
    forest = trained(codes)
    assert all(len(tree.left) == 1 for tree in forest.trees)
    assert all(leaves.tolist() == [0] * rows for leaves in forest.leaves)


def test_the_codes_are_not_changed(tied):
    before = tied.copy()
    trained(tied)
    assert np.array_equal(before, tied)
