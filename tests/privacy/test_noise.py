"""Scales of noise: their formulas, costs and empirical spread; accounting against an independent library."""

import math

import numpy as np
import pytest
from dp_accounting import rdp
from dp_accounting.dp_event import GaussianDpEvent, ZCDpEvent

from arf_dask.errors import PrivacyError
from arf_dask.privacy.accountant import Accountant, Spending
from arf_dask.privacy.noise import (
    add_gaussian,
    choice_cost,
    choose_largest,
    epsilon_of,
    find_stable_levels,
    gaussian_cost,
    rho_of,
)


@pytest.mark.parametrize("scale", [0.7, 5.0, 300.0])
@pytest.mark.parametrize("sensitivity", [1, 4])
def test_the_cost_of_gaussian_noise_is_its_formula(scale: float, sensitivity: int) -> None:
    assert gaussian_cost(scale, sensitivity) == pytest.approx(sensitivity**2 / (2 * scale**2), rel=1e-9)


@pytest.mark.parametrize("scale", [0.7, 5.0, 300.0])
@pytest.mark.parametrize("sensitivity", [1, 16])
def test_the_cost_of_a_noisy_maximum_is_that_of_the_exponential_mechanism(scale: float, sensitivity: int) -> None:
    epsilon = 2 * sensitivity / scale
    assert choice_cost(scale, sensitivity) == pytest.approx(epsilon**2 / 8, rel=1e-9)


@pytest.mark.parametrize("scale", [2.0, 50.0])
def test_the_spread_of_gaussian_noise_is_its_scale(scale: float) -> None:
    noise = add_gaussian(np.full(20_000, 7), scale, 1).counts - 7
    # Six standard errors of a mean and of a standard deviation.
    assert abs(noise.mean()) < 6 * scale / math.sqrt(20_000)
    assert noise.std() == pytest.approx(scale, rel=6 / math.sqrt(2 * 20_000))


def test_noise_is_whole_numbers_on_all_residues() -> None:
    noise = add_gaussian(np.zeros(20_000, dtype=np.int64), 40.0, 1).counts
    assert noise.dtype == np.int64
    assert (np.bincount(noise % 16, minlength=16) > 20_000 / 16 / 2).all()  # no holes


def test_a_noisy_maximum_prefers_scores_as_the_exponential_mechanism_does() -> None:
    # Odds of two scores that differ by d are exp(d / scale).
    chosen = np.array([choose_largest(np.array([0, 10]), 10.0, 1).position for _ in range(4_000)])
    expected = math.e / (1 + math.e)
    assert chosen.mean() == pytest.approx(expected, abs=6 * math.sqrt(expected * (1 - expected) / 4_000))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-9), (1.0, 1e-6), (3.0, 1e-9), (10.0, 1e-5)])
def test_rho_is_checked_by_dp_accounting(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon
    accountant = rdp.RdpAccountant()
    accountant.compose(ZCDpEvent(rho))
    independent = accountant.get_epsilon(delta)
    assert independent == pytest.approx(epsilon, rel=0.02)


def test_gaussian_noise_of_rho_is_within_epsilon_by_dp_accounting() -> None:
    rho = rho_of(1.0, 1e-9)
    accountant = rdp.RdpAccountant()
    accountant.compose(GaussianDpEvent(1 / math.sqrt(2 * rho)))
    assert accountant.get_epsilon(1e-9) <= 1.02


def test_levels_of_a_single_unit_are_not_revealed() -> None:
    counts = {"common": 10_000, **{f"rare {i}": 1 for i in range(200)}}
    found = find_stable_levels(counts, 30.0, 1, 1e-9)
    assert found.levels == ["common"]
    assert found.delta <= 1e-9
    assert found.rho == pytest.approx(1 / (2 * 30.0**2))
    # The probability that Gaussian noise lifts a single row above the threshold.
    assert math.erfc((found.threshold - 1) / 30.0 / math.sqrt(2)) / 2 <= 1e-9


def test_an_accountant_refuses_what_the_budget_does_not_cover() -> None:
    accountant = Accountant(rho=0.1, delta=1e-9)
    accountant.spend(Spending("a", "discrete Gaussian", 10.0, 1, 0.06))
    with pytest.raises(PrivacyError, match=r"b: costs rho 0\.06, and only 0\.04 of 0\.1 is left"):
        accountant.spend(Spending("b", "discrete Gaussian", 10.0, 1, 0.06))
    with pytest.raises(PrivacyError, match="exceeds the delta"):
        accountant.spend(Spending("c", "thresholded discrete Gaussian", 10.0, 1, 0.01, 1e-8))
    assert [spending.purpose for spending in accountant.spendings] == ["a"]
