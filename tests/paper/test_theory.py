"""What the paper proves and can be checked: accuracy 1/2, local independence (Theorem 1), consistency (Theorem 2)."""

import numpy as np
import polars as pl
import pytest
from leaf_boxes import leaf_boxes, leaf_of_rows
from settings import fit_model, paper_options
from theory import (
    WHOLE_CORRELATION,
    consistent_model,
    density,
    independence,
    independent_accuracy,
    integrated_squared_error,
    shuffled_inside,
    squared_correlation,
    unit_square,
)

import arf_dask

Models = dict[int, list[arf_dask.Model]]  # by sample size

SIZES = (250, 1_000, 4_000)
TREES = 10


@pytest.fixture(scope="module")
def models() -> Models:
    return {n: [consistent_model(n, TREES, seed) for seed in range(3)] for n in SIZES}


def test_the_density_of_the_examples_has_mean_one_and_a_known_correlation() -> None:
    middle = (np.arange(200) + 0.5) / 200
    x, y = np.meshgrid(middle, middle)
    assert density(x, y).mean() == pytest.approx(1.0)
    assert density(x, y).min() > 0.19
    rows = unit_square(20_000, np.random.default_rng(0))
    assert np.corrcoef(rows.to_numpy().T)[0, 1] == pytest.approx(WHOLE_CORRELATION, abs=0.02)


def test_squared_correlation_inside_leaves_by_hand() -> None:
    # A perfect line in leaf 0, none in leaf 1 (a square's corners): 3 rows of 7 at 1, 4 at 0; leaf 2 is too small.
    points = np.array([[0, 0], [1, 1], [2, 2], [0, 0], [0, 1], [1, 0], [1, 1], [5, 5], [6, 6]], dtype=float)
    leaf = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    assert squared_correlation(points, leaf) == pytest.approx(3 / 7)


def test_shuffling_keeps_the_values_of_every_leaf() -> None:
    rng = np.random.default_rng(0)
    points, leaf = rng.normal(size=(500, 2)), rng.integers(0, 5, 500)
    moved = shuffled_inside(points, leaf, rng)
    assert np.array_equal(moved[:, 0], points[:, 0])
    assert not np.array_equal(moved[:, 1], points[:, 1])
    for number in range(5):
        assert np.array_equal(np.sort(moved[leaf == number, 1]), np.sort(points[leaf == number, 1]))


@pytest.mark.parametrize("n_rows", SIZES)
def test_accuracy_on_independent_columns_is_no_better_than_a_guess(n_rows: int) -> None:
    accuracy = np.mean([independent_accuracy(n_rows, TREES, seed) for seed in range(3)])
    three_errors = 3 * 0.5 / np.sqrt(3 * 2 * n_rows)
    assert 0.4 < accuracy < 0.5 + three_errors


def test_accuracy_on_independent_columns_approaches_one_half() -> None:
    gaps = [0.5 - np.mean([independent_accuracy(n, TREES, seed) for seed in range(4)]) for n in (250, 1_000, 8_000)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert abs(gaps[2]) < 0.015


def test_accuracy_on_dependent_columns_is_better_than_a_guess_and_falls() -> None:
    rng = np.random.default_rng(0)
    table = unit_square(1_000, rng).with_columns(z=pl.col("x") + 0.05 * pl.Series(rng.normal(size=1_000)))
    rounds = fit_model(table, 0, paper_options(3, trees=TREES, min_leaf=5)).rounds["accuracy"].to_list()
    assert rounds[0] > 0.7
    assert rounds[-1] <= 0.55


def test_a_single_leaf_is_found_to_be_dependent() -> None:
    rows = unit_square(2_000, np.random.default_rng(0))
    one_leaf = fit_model(rows, 0, paper_options(2, trees=1, min_leaf=2_000))
    assert one_leaf.leaves.height == 1
    found = independence(one_leaf, rows, 99, np.random.default_rng(1))
    assert found.rejected == 1.0
    assert found.found == pytest.approx(WHOLE_CORRELATION**2, abs=0.05)


def test_independent_columns_are_rejected_as_rarely_as_the_level_of_the_test_says() -> None:
    rng = np.random.default_rng(0)
    rows = pl.DataFrame(rng.uniform(size=(1_000, 2)), schema=["x", "y"])
    model = fit_model(rows, 0, paper_options(2, trees=40, min_leaf=30))
    fresh = [pl.DataFrame(rng.uniform(size=(1_000, 2)), schema=["x", "y"]) for _ in range(5)]
    assert np.mean([independence(model, table, 39, rng).rejected for table in fresh]) == pytest.approx(0.05, abs=0.05)


def test_the_permutation_test_rejects_independence_in_fewer_leaves_as_the_sample_grows(models: Models) -> None:
    fresh, rng = unit_square(4_000, np.random.default_rng(7)), np.random.default_rng(1)
    rejected = [np.mean([independence(model, fresh, 39, rng).rejected for model in models[n]]) for n in SIZES]
    assert rejected[0] > rejected[1] > rejected[2]
    assert rejected[0] > 0.5
    assert rejected[2] < 0.2


@pytest.mark.parametrize("n_rows", SIZES)
def test_leaves_leave_next_to_nothing_of_the_dependence(models: Models, n_rows: int) -> None:
    fresh = unit_square(4_000, np.random.default_rng(7))
    found = [independence(model, fresh, 20, np.random.default_rng(1)) for model in models[n_rows]]
    excess = np.mean([one.found - one.shuffled for one in found])
    assert excess < 0.05 * WHOLE_CORRELATION**2


def two_squares(n_rows: int, seed: int) -> pl.DataFrame:
    """Uniform in two squares, one up and to the right of the other: dependent together, independent in each."""
    rng = np.random.default_rng(seed)
    return pl.DataFrame(rng.uniform(size=(n_rows, 2)) + 2 * rng.integers(0, 2, size=(n_rows, 1)), schema=["x", "y"])


def test_dependence_inside_leaves_vanishes_with_the_sample() -> None:
    fresh = two_squares(4_000, 100)
    whole = np.corrcoef(fresh.to_numpy().T)[0, 1] ** 2
    assert whole > 0.8
    excess = []
    for n_rows in (500, 2_000, 8_000):
        options = paper_options(2, trees=TREES, min_leaf=round(n_rows**0.5))
        models = [fit_model(two_squares(n_rows, seed), seed, options) for seed in range(2)]
        found = [independence(model, fresh, 5, np.random.default_rng(2)) for model in models]
        excess.append(np.mean([one.found - one.shuffled for one in found]))
    assert excess[0] > excess[1] > excess[2]
    assert excess[2] < 0.03 * whole


def test_dependence_inside_leaves_exceeds_that_of_shuffled_rows_by_less_and_less(models: Models) -> None:
    fresh, rng = unit_square(6_000, np.random.default_rng(7)), np.random.default_rng(1)
    found = {n: [independence(model, fresh, 10, rng) for model in models[n]] for n in SIZES}
    ratios = [np.mean([one.found / one.shuffled for one in found[n]]) for n in SIZES]
    assert ratios[0] > ratios[1] > ratios[2]
    assert ratios[2] < 1.3


def test_the_error_of_the_density_falls_with_the_sample(models: Models) -> None:
    errors = [np.mean([integrated_squared_error(model) for model in models[n]]) for n in SIZES]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.6 * errors[0]


def test_leaves_grow_in_number_but_more_slowly_than_the_sample(models: Models) -> None:
    leaves = [models[n][0].leaves.height / TREES for n in SIZES]
    assert leaves[0] < leaves[1] < leaves[2]  # (A3 v): more and more leaves,
    assert leaves[2] / SIZES[2] < leaves[0] / SIZES[0]  # and more and more rows in each


def test_fresh_rows_fall_into_leaves_by_their_coverage(models: Models) -> None:
    boxes = leaf_boxes(models[4_000][0], 0)
    fresh = unit_square(20_000, np.random.default_rng(3))
    share = np.bincount(leaf_of_rows(boxes, fresh.to_numpy()), minlength=len(boxes.coverage)) / fresh.height
    assert np.abs(share - boxes.coverage).max() < 0.02  # the error of coverage, epsilon 1
    assert isinstance(models[4_000][0], arf_dask.Model)
