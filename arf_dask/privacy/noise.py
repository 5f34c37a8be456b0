"""Noise and privacy accounting of OpenDP, which only this module imports.

All noise is discrete and is drawn from the randomness of the operating system. Sensitivities are whole numbers. Each
function returns its result with its exact cost in zero-concentrated differential privacy (rho) as OpenDP computes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from arf_dask.errors import missing_extra
from arf_dask.typing import Counts

SEARCH_STEPS = 60  # bisections of a cost or a threshold


class NoisyCounts(NamedTuple):
    """Counts with discrete Gaussian noise, and their cost."""

    counts: Counts
    rho: float


class NoisyChoice(NamedTuple):
    """The position of the noisy maximum of scores, and its cost."""

    position: int
    rho: float


class StableLevels(NamedTuple):
    """The levels whose noisy counts exceed a threshold, and the cost of having learned them."""

    levels: list[str]
    threshold: int
    rho: float
    delta: float


@cache
def opendp() -> Any:
    """Return the module of OpenDP, or raise a MissingExtraError that names the extra."""
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise missing_extra("privacy=", "dp") from error
    dp.enable_features("contrib")
    return dp


def gaussian_cost(scale: float, sensitivity: int) -> float:
    """Return the rho of integer counts with discrete Gaussian noise, if one unit changes them by `sensitivity` (L2).

    >>> round(gaussian_cost(scale=10.0, sensitivity=1), 9)
    0.005
    """
    return float(_gaussian(scale).map(sensitivity))


def add_gaussian(counts: Counts, scale: float, sensitivity: int) -> NoisyCounts:
    """Add discrete Gaussian noise to a vector of counts."""
    noisy = _gaussian(scale)(np.asarray(counts, dtype=np.int64).ravel().tolist())
    return NoisyCounts(np.array(noisy, dtype=np.int64).reshape(np.shape(counts)), gaussian_cost(scale, sensitivity))


def choice_cost(scale: float, sensitivity: int) -> float:
    """Return the rho of a noisy maximum, if one unit changes every score by at most `sensitivity`.

    >>> round(choice_cost(scale=10.0, sensitivity=1), 9)
    0.005
    """
    return float(_noisy_max(scale).map(sensitivity))


def choose_largest(scores: Counts, scale: float, sensitivity: int) -> NoisyChoice:
    """Return the index of the largest score after noise (the exponential mechanism)."""
    index = _noisy_max(scale)(np.asarray(scores, dtype=np.int64).tolist())
    return NoisyChoice(int(index), choice_cost(scale, sensitivity))


def find_stable_levels(counts: Mapping[str, int], scale: float, rows: int, delta: float) -> StableLevels:
    """Return the levels whose noisy counts exceed a threshold, for which unknown levels are safe up to `delta`.

    Args:
        counts: the number of rows of every level.
        scale: the scale of the discrete Gaussian noise.
        rows: the maximum number of rows of one unit, each of which may hold a different level.
        delta: the probability with which a level of a single unit may be revealed.
    """
    threshold = _least_threshold(scale, rows, delta)
    measurement = _threshold_gaussian(scale, threshold)
    rho, spent = measurement.map((rows, rows, rows))
    return StableLevels(sorted(measurement(dict(counts))), threshold, float(rho), float(spent))


def epsilon_of(rho: float, delta: float) -> float:
    """Return the epsilon of rho-zCDP at `delta`.

    >>> round(epsilon_of(0.1, 1e-9), 2)
    2.72
    """
    dp = opendp()
    scale = 1 / math.sqrt(2 * rho)
    measurement = dp.m.make_gaussian(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=scale)
    return float(dp.c.make_zCDP_to_approxDP(measurement).map(1.0).epsilon(delta))


def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP implies (epsilon, delta)-differential privacy.

    >>> round(rho_of(1.0, 1e-9), 4)
    0.015
    """
    low, high = 0.0, epsilon + 1.0
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


def _gaussian(scale: float) -> Any:
    dp = opendp()
    return dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64"), scale=scale)


def _noisy_max(scale: float) -> Any:
    dp = opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    return dp.m.make_noisy_max(*space, dp.zero_concentrated_divergence(), scale=scale)


def _threshold_gaussian(scale: float, threshold: int) -> Any:
    dp = opendp()
    domain = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64"))
    metric = dp.l02inf_distance(dp.absolute_distance(T="i64"))
    return dp.m.make_gaussian_threshold(domain, metric, scale=scale, threshold=threshold)


def _least_threshold(scale: float, rows: int, delta: float) -> int:
    low, high = rows, rows + math.ceil(scale * 40) + 1
    while high - low > 1:
        middle = (low + high) // 2
        is_safe = _threshold_gaussian(scale, middle).map((rows, rows, rows))[1] <= delta
        low, high = (low, middle) if is_safe else (middle, high)
    return high
