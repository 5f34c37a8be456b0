"""Smoothing of two-way tables: exact marginals, less noise where a smooth table fits, own counts where none does."""

import numpy as np
from scipy.special import ndtri
from scipy.stats import multivariate_normal

from arf_dask.stats.table_smoothing import smooth_counts, smooth_table
from arf_dask.typing import Floats

BINS = 16


def normal_table(correlation: float) -> Floats:
    """Shares of the cells of a bivariate normal, cut into bins of equal weight."""
    cuts = np.clip(ndtri(np.arange(BINS + 1) / BINS), -8, 8)
    normal = multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
    below = np.array([[normal.cdf([a, b]) for b in cuts] for a in cuts])
    return np.clip(np.diff(np.diff(below, axis=0), axis=1), 1e-12, None)


def drawn(shares: Floats, n_rows: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.multinomial(n_rows, (shares / shares.sum()).ravel()).reshape(shares.shape).astype(float)


def independent(observed: Floats) -> Floats:
    return np.outer(observed.sum(axis=1), observed.sum(axis=0)) / observed.sum()


def test_smooth_table_has_the_marginals_of_the_counts() -> None:
    observed = drawn(normal_table(0.6), 2_000)
    smooth = smooth_table(observed, np.full_like(observed, 3.0))
    np.testing.assert_allclose(smooth.sum(axis=0), observed.sum(axis=0), rtol=1e-4)
    np.testing.assert_allclose(smooth.sum(axis=1), observed.sum(axis=1), rtol=1e-4)


def test_noise_of_a_smooth_table_is_removed() -> None:
    shares = normal_table(0.5)
    observed = drawn(shares, 2_000)
    smoothed = smooth_counts(observed, independent(observed))
    noise, left = (np.square(table - 2_000 * shares).sum() for table in (observed, smoothed))
    assert left < noise / 4
    assert np.isclose(smoothed.sum(), 2_000)


def test_a_table_of_another_form_keeps_its_counts() -> None:
    shares = np.ones((BINS, BINS))
    shares[np.arange(BINS), np.random.default_rng(1).permutation(BINS)] = 50.0
    observed = drawn(shares, 20_000)
    smoothed = smooth_counts(observed, independent(observed))
    assert np.abs(smoothed - observed).max() < 0.05 * observed.max()


def test_empty_bins_and_tables_of_two_levels_are_smoothed_to_finite_counts() -> None:
    observed = np.array([[30.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    smoothed = smooth_counts(observed, np.array([[20.0, 0.0, 15.0], [0.0, 0.0, 0.0]]))
    assert np.isfinite(smoothed).all()
    assert (smoothed >= 0).all()
    assert np.isclose(smoothed.sum(), 35.0)
    assert smooth_counts(np.zeros((2, 2)), np.zeros((2, 2))).sum() == 0
