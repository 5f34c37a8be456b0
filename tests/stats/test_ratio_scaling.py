"""Ratios scaled to the marginals of many tables."""

from typing import Any

import numpy as np
import pytest

from arf_dask.stats.ratio_scaling import Factors, row_factors, scale_ratios


def joint(ratios: Any, rows: Any, columns: Any, factors: Factors) -> Any:
    """(table, row bin, column bin)."""
    return (rows * factors.rows)[:, :, None] * ratios * (columns * factors.columns)[:, None, :]


def test_two_by_two_worked_out_by_hand() -> None:
    # Symmetric marginals of a half: the joint table has shares in the ratio 3 : 1, that is 3/8, 1/8, 1/8, 3/8.
    half = np.array([[0.5, 0.5]])
    ratios = np.array([[3.0, 1.0], [1.0, 3.0]])
    np.testing.assert_allclose(
        joint(ratios, half, half, scale_ratios(ratios, half, half))[0], [[3, 1], [1, 3]] / np.array(8)
    )


def test_ratios_of_independence_stay_as_they_are() -> None:
    rows, columns = np.array([[0.2, 0.8]]), np.array([[0.1, 0.3, 0.6]])
    ratios = np.outer([2.0, 5.0], [1.0, 3.0, 7.0])
    found = joint(ratios, rows, columns, scale_ratios(ratios, rows, columns))[0]
    np.testing.assert_allclose(found, np.outer(rows[0], columns[0]), rtol=1e-12)


@pytest.mark.parametrize("steepness", [0.5, 5.0, 14.0])
def test_marginals_are_kept_however_steep_the_ratios(steepness: float) -> None:
    rng = np.random.default_rng(0)
    near = np.exp(-np.abs(np.subtract.outer(np.arange(8), np.arange(9))))
    ratios = np.exp(rng.normal(size=(8, 9)) / 2 + steepness * near)
    rows, columns = rng.dirichlet(np.full(8, 0.3), 300), rng.dirichlet(np.full(9, 0.3), 300)
    rows[:, 2] = 0.0  # a bin that no leaf holds
    rows /= rows.sum(axis=1, keepdims=True)
    factors = scale_ratios(ratios, rows, columns)
    found = joint(ratios, rows, columns, factors)
    np.testing.assert_allclose(found.sum(axis=2), rows, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), columns, rtol=1e-9, atol=1e-12)
    assert np.isfinite(factors.rows).all()
    assert (factors.rows > 0).all()


def test_a_table_depends_on_nothing_but_itself() -> None:
    rng = np.random.default_rng(1)
    ratios = np.exp(rng.normal(size=(3, 4)))
    rows, columns = rng.dirichlet(np.ones(3), 5_000), rng.dirichlet(np.ones(4), 5_000)
    together = scale_ratios(ratios, rows, columns)
    for table in (0, 4_095, 4_096, 4_999):
        alone = scale_ratios(ratios, rows[table : table + 1], columns[table : table + 1])
        product = alone.rows[0, 0] * alone.columns[0]
        np.testing.assert_allclose(together.rows[table, 0] * together.columns[table], product, rtol=1e-9)


def test_no_tables_at_all() -> None:
    found = scale_ratios(np.ones((2, 3)), np.empty((0, 2)), np.empty((0, 3)))
    assert found.rows.shape == (0, 2)
    assert found.columns.shape == (0, 3)


def test_marginals_that_contradict_steep_ratios_are_kept_all_the_same() -> None:
    # A quarter has to be in a cell of ratio 1e-8: the odds of the joint table are 1e16, whatever its marginals.
    ratios, rows, columns = np.array([[1.0, 1e-8], [1e-8, 1.0]]), np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])
    found = joint(ratios, rows, columns, scale_ratios(ratios, rows, columns))[0]
    np.testing.assert_allclose(found, [[0.25, 0.25], [5e-17, 0.5]], rtol=1e-9)


def test_all_leaves_of_a_class_of_a_number_converge() -> None:
    # Each row bin belongs to one column bin; leaves hold neighbouring bins, and a millionth of everything else.
    rng = np.random.default_rng(0)
    ratios = np.where(np.arange(16)[:, None] // 2 == np.arange(8), 2.0, 1e-8)
    rows, columns = (np.exp(-0.1 * np.square(np.arange(n) - rng.uniform(0, n, 500)[:, None])) + 1e-6 for n in (16, 8))
    rows, columns = (side / side.sum(axis=1, keepdims=True) for side in (rows, columns))
    found = joint(ratios, rows, columns, scale_ratios(ratios, rows, columns))
    np.testing.assert_allclose(found.sum(axis=2), rows, rtol=1e-8)
    np.testing.assert_allclose(found.sum(axis=1), columns, rtol=1e-8)


def test_row_factors_follow_from_column_factors() -> None:
    rng = np.random.default_rng(2)
    ratios = np.exp(rng.normal(size=(5, 4)))
    rows, columns = rng.dirichlet(np.ones(5), 20), rng.dirichlet(np.ones(4), 20)
    factors = scale_ratios(ratios, rows, columns)
    np.testing.assert_allclose(row_factors(ratios, columns, factors.columns), factors.rows, rtol=1e-10)
