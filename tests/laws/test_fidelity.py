"""Known distributions come back, within four standard errors of sampling plus the bias that is named."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import arf_dask

ROWS = 5_000
DRAWN = 20_000
# A leaf's marginals are independent, so that some of a strong tie is lost inside leaves.
LOST_CORRELATION = 0.03
# Truncated normals in boxes of ten rows and more spread a little wider than the rows they stand for.
WIDER = 0.01


def sampling_error(rows: int = ROWS, drawn: int = DRAWN) -> float:
    """Of a mean of unit variance, in the real rows and in those drawn: the two add up."""
    return float(np.sqrt(1 / rows + 1 / drawn))


def correlations(frame: pl.DataFrame) -> NDArray[np.float64]:
    return np.corrcoef(frame.to_numpy().T)


def gaussian(rho: float, columns: int = 4) -> tuple[pl.DataFrame, NDArray[np.float64]]:
    """A Toeplitz Gaussian with other means and scales in every column."""
    at = np.arange(columns)
    truth = rho ** np.abs(at[:, None] - at[None, :])
    values = np.random.default_rng(1).multivariate_normal(np.zeros(columns), truth, ROWS)
    return pl.DataFrame(values * 10.0**at + 5 * at, schema=[f"x{i}" for i in at]), truth


@pytest.fixture(scope="module", params=[0.0, 0.5, 0.9], ids="rho={}".format)
def twins(request: pytest.FixtureRequest) -> tuple[pl.DataFrame, pl.DataFrame]:
    real, _ = gaussian(request.param)
    return real, arf_dask.fit(real, seed=0).sample(DRAWN, seed=0)


def test_the_means_of_a_gaussian_come_back(twins: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    real, drawn = twins
    for name in real.columns:
        error = abs(drawn[name].to_numpy().mean() - real[name].to_numpy().mean()) / real[name].to_numpy().std()
        assert error < 4 / np.sqrt(DRAWN)


def test_the_variances_of_a_gaussian_come_back(twins: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    real, drawn = twins
    for name in real.columns:
        ratio = drawn[name].std() / real[name].std()
        assert abs(ratio - 1) < 4 / np.sqrt(2 * DRAWN) + WIDER


def test_the_correlations_of_a_gaussian_come_back(twins: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    real, drawn = twins
    off = np.abs(correlations(drawn) - correlations(real))
    assert off.max() < 4 / np.sqrt(DRAWN) + LOST_CORRELATION


def test_the_curve_of_a_gaussian_comes_back(twins: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    real, drawn = twins
    for name in real.columns:
        at = np.quantile(real[name], np.linspace(0.01, 0.99, 99))
        gap = np.searchsorted(np.sort(drawn[name]), at) / DRAWN - np.linspace(0.01, 0.99, 99)
        assert np.abs(gap).max() < 2 * sampling_error() + 0.01


def test_independent_columns_stay_independent() -> None:
    r = np.random.default_rng(2)
    real = pl.DataFrame(
        {
            "normal": r.normal(size=ROWS),
            "skewed": r.exponential(size=ROWS),
            "count": r.poisson(4, ROWS),
            "spiked": np.where(r.random(ROWS) < 0.5, 0.0, r.random(ROWS)),
            "flag": r.random(ROWS) < 0.3,
            "level": r.choice(list("abcd"), ROWS),
        }
    )
    drawn = arf_dask.fit(real, seed=0).sample(DRAWN, seed=0)
    numbers = drawn.with_columns(pl.col("level").rank("dense"), pl.col("flag").cast(pl.Int8)).cast(pl.Float64)
    off = correlations(numbers) - np.eye(6)
    # What the real sample shows by chance is learned with it.
    assert np.abs(off).max() < 4 * sampling_error()


def test_a_deterministic_relation_of_levels_stays_exact() -> None:
    r = np.random.default_rng(3)
    real = pl.DataFrame({"city": r.choice([f"city {i}" for i in range(40)], ROWS), "x": r.normal(size=ROWS)})
    real = real.with_columns(country=pl.col("city").str.tail(1))
    drawn = arf_dask.fit(real, seed=0).sample(DRAWN, seed=0)
    assert (drawn["city"].str.tail(1) == drawn["country"]).all()


def test_a_deterministic_relation_of_numbers_stays_close() -> None:
    x = np.random.default_rng(4).uniform(-1, 1, ROWS)
    drawn = arf_dask.fit(pl.DataFrame({"x": x, "y": x**2}), seed=0).sample(DRAWN, seed=0)
    off = (drawn["y"] - drawn["x"] ** 2).to_numpy()
    # Leaves hold ten rows and more: a box is about 1/250 of the rows wide, and y changes with it.
    assert np.sqrt((off**2).mean()) < 0.05 * np.std(x**2) * 4
    assert abs(drawn.select(pl.corr("x", "y")).item()) < 4 * sampling_error()


def test_a_mixture_keeps_its_groups() -> None:
    r = np.random.default_rng(5)
    group = r.integers(0, 3, ROWS)
    centre = np.array([-10.0, 0.0, 10.0])[group]
    real = pl.DataFrame(
        {"group": group.astype(str), "x": centre + r.normal(size=ROWS), "y": -centre + r.normal(size=ROWS)}
    )
    drawn = arf_dask.fit(real, seed=0).sample(DRAWN, seed=0)
    wrong = (drawn["x"] / 10).round() + 0.0 != drawn["group"].cast(pl.Float64) - 1
    assert wrong.mean() < 0.005
    assert ((drawn["x"] + drawn["y"]).abs() > 8).mean() < 0.005


def test_shares_of_levels_come_back() -> None:
    r = np.random.default_rng(6)
    shares = np.array([0.6, 0.3, 0.08, 0.019, 0.001])
    real = pl.DataFrame({"level": r.choice(list("abcde"), ROWS, p=shares), "x": r.normal(size=ROWS)})
    drawn = arf_dask.fit(real, seed=0).sample(DRAWN, seed=0)
    for level in "abcde":
        share = float((real["level"] == level).to_numpy().mean())
        error = np.sqrt(share * (1 - share) / DRAWN)
        assert (drawn["level"] == level).mean() == pytest.approx(share, abs=4 * error + 1e-4)


def test_density_is_higher_where_the_data_are() -> None:
    real, truth = gaussian(0.9, columns=2)
    model = arf_dask.fit(real, seed=0, trees=50, support="open")
    fresh = gaussian_rows(truth, 2_000, np.random.default_rng(9))
    exact = -0.5 * np.einsum("ij,jk,ik->i", fresh, np.linalg.inv(truth), fresh)
    exact -= np.log(2 * np.pi) + 0.5 * np.linalg.slogdet(truth)[1] + np.log(10)
    frame = pl.DataFrame(fresh * [1, 10] + [0, 5], schema=["x0", "x1"])
    # Nothing beats the truth on average; 50 trees lose a tenth of a nat a column or so.
    loss = exact.mean() - model.log_density(frame).mean()
    assert -4 * exact.std() / np.sqrt(2_000) < loss < 0.15


def gaussian_rows(truth: NDArray[np.float64], rows: int, r: np.random.Generator) -> NDArray[np.float64]:
    return r.multivariate_normal(np.zeros(len(truth)), truth, rows)
