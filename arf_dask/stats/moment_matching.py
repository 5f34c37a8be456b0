"""Moment matching: parameters of truncated normals with a given mean and variance after truncation.

For a fixed box and mean, the variance increases with sigma from 0 to that of a truncated exponential (a uniform if the
mean is central), so a solution is unique if it exists. The mean is always matched; a variance out of reach is matched
as closely as the bounds on sigma allow. For numerical safety, sigma is at most 1000 widths of the box, and `mu` lies at
most 30 sigma outside the box.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from arf_dask.stats.truncated_normal import Array, CentralMoments, central_moments, chunks, floats, grid_moments


class Matched(NamedTuple):
    """Location and scale of the normal before truncation."""

    mu: Array
    sigma: Array


class _Problem(NamedTuple):
    below: Array  # distance from the lower edge to the mean
    above: Array  # distance from the mean to the upper edge
    variance: Array
    smallest: Array  # smallest precision within the bounds on sigma


class _GridProblem(NamedTuple):
    mean: Array
    variance: Array
    lower: Array
    upper: Array


class _Tilt(NamedTuple):
    slope: Array  # of the log density at the target mean
    precision: Array  # 1 / sigma**2


# A mean on an edge is moved inside by `_NUDGE` widths; one closer than `_CLOSEST` widths, to that distance.
_NUDGE, _CLOSEST = 1e-6, 5e-11
_LEAST_SIGMA, _MOST_SIGMA = 1e-9, 1e3  # bounds on sigma, in widths of the box
# Edges more than this many standard deviations from the mean have no effect.
_FREE = 9.0
# The exponential tilt is approximated to 5 %, so a target of 28 keeps mu within 30 sigma.
_MOST_OUTSIDE = 28.0
# Infinite edges are replaced by edges this many standard deviations away: exp(-45) is below rounding error.
_OPEN = 45.0
_MOST_STEPS = 60
# Boxes narrower than two to this power are uniform: sigma would underflow.
_LEAST_POWER = -960
# On a grid, a smaller sigma gives the same rounded distribution.
_LEAST_GRID_SIGMA = 0.05
# On a grid of two points, the variance does not depend on sigma.
_PAIR_SIGMA = 0.5
# Below this sigma, the mean is nearly a step function of mu.
_STEPPED = 0.4
_MOST_OUTSIDE_GRID, _MOST_BEYOND = 27.0, 30.0
_MOST_ROOT_STEPS = 200
# Rows processed at a time, so that intermediate arrays stay in the cache.
_CHUNK = 16384


def match_moments(mean: ArrayLike, variance: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Matched:
    """Return the normals that have this mean and variance after truncation to [lower, upper]."""
    return _match_in_chunks(_match, mean, variance, lower, upper)


def match_moments_grid(mean: ArrayLike, variance: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Matched:
    """Return the normals that have this mean and variance after truncation and rounding to integers."""
    return _match_in_chunks(_match_grid, mean, variance, lower, upper)


def _match_in_chunks(match: Callable[..., Matched], *moments_and_bounds: ArrayLike) -> Matched:
    """Broadcast the arguments and match them in chunks."""
    arrays = np.broadcast_arrays(*floats(*moments_and_bounds))
    flat_arrays, shape = [array.ravel() for array in arrays], arrays[0].shape
    mu, sigma = np.empty(flat_arrays[0].size), np.empty(flat_arrays[0].size)
    for rows in chunks(mu.size, _CHUNK):
        mu[rows], sigma[rows] = match(*(array[rows] for array in flat_arrays))
    return Matched(mu.reshape(shape), sigma.reshape(shape))


def _match(mean: Array, variance: Array, lower: Array, upper: Array) -> Matched:
    """Match in units of the box width, rounded to a power of two, so that no moment overflows or underflows."""
    powers, is_closed = _powers(variance, lower, upper)
    with np.errstate(over="ignore"):
        scaled_variance = np.ldexp(np.ldexp(variance, -powers), -powers)
    # The variance in a closed box is at most a quarter of its squared width.
    scaled_variance = np.where(is_closed, np.minimum(scaled_variance, 1.0), scaled_variance)
    is_flat = powers < _LEAST_POWER
    mu, sigma = np.where(is_flat, lower, mean), np.full_like(mean, np.inf)
    rows = np.flatnonzero(~is_flat)
    scaled_mean, scaled_lower, scaled_upper = (np.ldexp(part[rows], -powers[rows]) for part in (mean, lower, upper))
    matched = _match_scaled(scaled_mean, scaled_variance[rows], scaled_lower, scaled_upper)
    mu[rows], sigma[rows] = np.ldexp(matched.mu, powers[rows]), np.ldexp(matched.sigma, powers[rows])
    return Matched(mu, sigma)


def _powers(variance: Array, lower: Array, upper: Array) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the power of two above the width of each box (above the standard deviation if the box is open)."""
    is_closed = np.isfinite(upper) & np.isfinite(lower)
    width = np.where(is_closed, upper, 0.0) - np.where(is_closed, lower, 0.0)
    unit = np.where(is_closed, width, np.sqrt(variance))
    return np.where(unit > 0, np.frexp(unit)[1], 2 * _LEAST_POWER).astype(np.int32), is_closed


def _match_scaled(mean: Array, variance: Array, lower: Array, upper: Array) -> Matched:
    below, above, variance = _inside(mean, variance, lower, upper)
    shift, sigma = np.zeros_like(mean), np.sqrt(variance)
    is_truncated = np.minimum(below, above) < _FREE * sigma
    slope, precision = _solve(_problem(below[is_truncated], above[is_truncated], variance[is_truncated]))
    shift[is_truncated], sigma[is_truncated] = slope / precision, precision**-0.5
    moved_up, moved_down = below > mean - lower, above > upper - mean
    anchor = np.where(moved_up, lower + below, np.where(moved_down, upper - above, mean))
    return Matched(anchor + shift, sigma)


def _inside(mean: Array, variance: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """Return positive, finite distances from the mean to both edges, and the variance raised to its lower bound."""
    is_closed = np.isfinite(upper) & np.isfinite(lower)
    width = np.where(is_closed, upper, 0.0) - np.where(is_closed, lower, 0.0)
    sd = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
    unit = np.where(is_closed, width, sd)
    below, above = mean - lower, upper - mean
    below, above = _nudged(below, unit), _nudged(above, unit)
    below = np.where(is_closed, np.minimum(below, width - _CLOSEST * width), below)
    above = np.where(is_closed, np.minimum(above, width - _CLOSEST * width), above)
    reach = _OPEN * np.minimum(sd, np.minimum(below, above))
    # Both edges are open: any sufficiently large distance will do.
    reach = np.where(np.isfinite(reach), reach, _OPEN * sd)
    below, above = np.where(np.isfinite(below), below, reach), np.where(np.isfinite(above), above, reach)
    return below, above, np.maximum(variance, (_LEAST_SIGMA * unit) ** 2)


def _nudged(distance: Array, unit: Array) -> Array:
    return np.where(distance <= 0, _NUDGE * unit, np.maximum(distance, _CLOSEST * unit))


def _problem(below: Array, above: Array, variance: Array) -> _Problem:
    tilt, _ = _exponential(below, above)
    width = below + above
    min_precision = np.maximum((tilt / _MOST_OUTSIDE) ** 2, (_MOST_SIGMA * width) ** -2.0)
    return _Problem(below, above, variance, min_precision)


def _exponential(below: Array, above: Array) -> tuple[Array, Array]:
    """Return slope and variance of the truncated exponential with this mean.

    Uses Cohen's approximation of the inverse Langevin function, y (3 - y**2) / (1 - y**2), accurate to 5 %.
    """
    width = below + above
    y, edge_factor = (below - above) / width, 4 * (below / width) * (above / width)
    square = y * y
    return 2 * y * (3 - square) / (edge_factor * width), (width * edge_factor) ** 2 / (4 * (3 + square * square))


def _start(problem: _Problem) -> _Tilt:
    """Interpolate between the untruncated normal, exact for small variances, and the exponential, for the largest."""
    tilt, max_variance = _exponential(problem.below, problem.above)
    ratio = np.minimum(problem.variance / max_variance, 1.0)
    precision = np.maximum((1 - ratio) / problem.variance, problem.smallest)
    return _Tilt(tilt * ratio * ratio * (3 - 2 * ratio), precision)


def _solve(problem: _Problem) -> _Tilt:
    """Apply Newton steps to the elements that have not converged."""
    solution = _start(problem)
    active_index = np.arange(problem.variance.size)
    for _ in range(_MOST_STEPS):
        part, tilt = _Problem(*(p[active_index] for p in problem)), _Tilt(*(t[active_index] for t in solution))
        central = _central(part, tilt)
        not_converged = ~_converged(part, tilt, central)
        if not not_converged.any():
            break
        active_index = active_index[not_converged]
        part, tilt = _Problem(*(p[not_converged] for p in part)), _Tilt(*(t[not_converged] for t in tilt))
        central = CentralMoments(*(c[not_converged] for c in central))
        solution.slope[active_index], solution.precision[active_index] = _newton(part, tilt, central)
    return solution


def _central(problem: _Problem, tilt: _Tilt) -> CentralMoments:
    """Return the moments at the current parameters, with the mean relative to the target mean."""
    mode = np.clip(tilt.slope / tilt.precision, -problem.below, problem.above)
    is_inside = (mode > -problem.below) & (mode < problem.above)
    gradient = np.where(is_inside, 0.0, tilt.slope - tilt.precision * mode)
    central = central_moments(gradient, tilt.precision, -problem.below - mode, problem.above - mode)
    return central._replace(mean=mode + central.mean)


def _converged(problem: _Problem, tilt: _Tilt, central: CentralMoments) -> NDArray[np.bool_]:
    variance_ratio = central.second / problem.variance
    at_bound = (tilt.precision <= problem.smallest) & (variance_ratio <= 1)
    return (np.abs(central.mean) <= 1e-12 * np.sqrt(central.second)) & (
        at_bound | (np.abs(variance_ratio - 1) <= 1e-10)
    )


def _newton(problem: _Problem, tilt: _Tilt, central: CentralMoments) -> _Tilt:
    """Take one Newton step in the natural parameters of the exponential family, exact for an untruncated normal.

    The step solves for 1 / variance instead of the variance, as it is nearly linear in the precision.
    """
    mean, second, third, fourth = central
    variance_step = second * (1 - second / problem.variance)
    curvature = (second * variance_step + third * mean) / (second * (fourth - second**2) - third**2)
    precision = np.clip(tilt.precision - 2 * curvature, tilt.precision / 16, tilt.precision * 16)
    precision = np.maximum(precision, problem.smallest)
    curvature = 0.5 * (tilt.precision - precision)
    slope_change = (-mean - third * curvature) / second
    # In the tilt exp(slope_change * e + curvature * e**2), e is relative to the current mean, not to the target.
    return _Tilt(tilt.slope + slope_change - 2 * curvature * mean, precision)


def _match_grid(mean: Array, variance: Array, lower: Array, upper: Array) -> Matched:
    lower, upper = _closed_grid(mean, variance, lower, upper)
    mean = np.clip(mean, lower + 0.5, upper - 0.5)
    # Shift to the origin, where locations lose no digits.
    origin = np.floor(mean)
    mean, lower, upper = mean - origin, lower - origin, upper - origin
    mu, sigma = mean.copy(), np.full_like(mean, _LEAST_GRID_SIGMA)
    is_inner = np.minimum(mean - lower, upper - mean) - 0.5 > 1e-11 * (upper - lower)
    problem = _GridProblem(mean[is_inner], np.maximum(variance[is_inner], 1e-12), lower[is_inner], upper[is_inner])
    mu[is_inner], sigma[is_inner] = _solve_grid(problem)
    return Matched(origin + mu, sigma)


def _closed_grid(mean: Array, variance: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Replace infinite edges by edges too far away to matter, even for the widest geometric tail."""
    edge_distance = np.minimum(np.maximum(mean - lower, 0.0), np.maximum(upper - mean, 0.0))
    reach = np.ceil(_OPEN * (np.minimum(np.sqrt(variance), edge_distance) + 1))
    middle = np.floor(np.clip(mean, lower, upper)) + 0.5
    low = np.where(np.isfinite(lower), lower, middle - reach)
    return low, np.where(np.isfinite(upper), upper, middle + reach)


def _solve_grid(problem: _GridProblem) -> Matched:
    """Find the sigma with the target variance, which increases with sigma if the mean is held fixed."""
    mean, variance, lower, upper = problem
    guess = match_moments(mean, np.maximum(variance - 1 / 12, _LEAST_GRID_SIGMA**2), lower, upper)
    most = _most_grid_sigma(mean - lower - 0.5, upper - mean - 0.5)
    slope, reached_variance = (guess.mu - mean) / guess.sigma**2, np.ones_like(mean)
    mu = np.empty_like(mean)

    def excess(log_sigma: Array, rows: NDArray[np.intp]) -> Array:
        part, sigma = _GridProblem(*(p[rows] for p in problem)), np.exp(log_sigma)
        mu[rows], reached_variance[rows] = _hold_mean(part, sigma, slope[rows])
        slope[rows] = (mu[rows] - part.mean) / sigma**2
        return np.asarray(np.log(np.maximum(reached_variance[rows], 1e-300) / part.variance))

    # On two points, the mean alone determines the distribution.
    is_pair = upper - lower < 2.5
    min_sigma, most = np.where(is_pair, _PAIR_SIGMA, _LEAST_GRID_SIGMA), np.where(is_pair, _PAIR_SIGMA, most)
    start_slope, tolerance = np.full_like(mean, 2.0), np.full_like(mean, 1e-7)
    sigma = np.exp(_root(excess, np.log(guess.sigma), start_slope, np.log(min_sigma), np.log(most), tolerance))
    return Matched(mu, sigma)


def _most_grid_sigma(below: Array, above: Array) -> Array:
    """Return the largest sigma that keeps mu within 30 sigma of the box.

    The limit is a truncated geometric distribution, whose rate is approximated. The approximation is exact for two
    points and for a mean next to an edge, and correct to first order about the centre.
    """
    width = below + above
    bend = (1 - 1 / width) / (1 + 2 * (below / width) * (above / width))
    rate = np.abs(np.log(above / below) + np.log1p(bend * below) - np.log1p(bend * above))
    return np.asarray(np.minimum(_MOST_SIGMA * (width + 1), _MOST_OUTSIDE_GRID / np.maximum(rate, 1e-300)))


def _hold_mean(problem: _GridProblem, sigma: Array, slope: Array) -> tuple[Array, Array]:
    """Return the location at which the rounded value has the target mean for this sigma, and its variance there."""
    mean, variance, lower, upper = problem
    is_stepped = (sigma < _STEPPED) & (mean > 0)
    # With a small sigma only two points carry mass, in proportions given by the mean.
    normal_score = special.ndtri(np.where(is_stepped, mean, 0.5))
    guess = np.where(is_stepped, 0.5 + sigma * normal_score, mean + slope * sigma**2)
    start_slope = np.where(
        is_stepped, np.exp(-0.5 * normal_score**2) / (2.5 * sigma), np.minimum(variance / sigma**2, 1.0)
    )
    reached_variance = np.empty_like(mean)

    def excess(mu: Array, rows: NDArray[np.intp]) -> Array:
        result = grid_moments(mu, sigma[rows], lower[rows], upper[rows])
        reached_variance[rows] = result.variance
        return result.mean - mean[rows]

    low, high = lower - _MOST_BEYOND * sigma, upper + _MOST_BEYOND * sigma
    return _root(excess, guess, start_slope, low, high, 1e-12 * (upper - lower)), reached_variance


def _root(
    function: Callable[[Array, NDArray[np.intp]], Array],
    guess: Array,
    slope: Array,
    least: Array,
    most: Array,
    tolerance: Array,
) -> Array:
    """Find roots of increasing functions by bracketed secant steps; return the nearer bound if there is no root.

    The last evaluation of `function` for an element is always at the returned value.
    """
    low, high, slope = least.copy(), most.copy(), slope.copy()
    x = np.clip(guess, low, high)
    seen_low, seen_high = np.zeros(x.shape, bool), np.zeros(x.shape, bool)
    active_index, value = np.arange(x.size), function(x, np.arange(x.size))
    for step in range(_MOST_ROOT_STEPS):
        is_below = value < 0
        low[active_index[is_below]], seen_low[active_index[is_below]] = x[active_index[is_below]], True
        high[active_index[~is_below]], seen_high[active_index[~is_below]] = x[active_index[~is_below]], True
        resolution = 4 * np.spacing(np.maximum(np.abs(low[active_index]), np.abs(high[active_index])))
        not_converged = (np.abs(value) > tolerance[active_index]) & (
            high[active_index] - low[active_index] > resolution
        )
        active_index, value = active_index[not_converged], value[not_converged]
        if active_index.size == 0:
            break
        old_x, left, right = x[active_index], low[active_index], high[active_index]
        with np.errstate(over="ignore"):
            new_x = np.clip(old_x - value / slope[active_index], left, right)
        # Bisect if the step would return to a known bound, and every eighth step in case secants converge slowly.
        is_stale = (
            ((new_x <= left) & seen_low[active_index]) | ((new_x >= right) & seen_high[active_index]) | (step % 8 == 7)
        )
        x[active_index] = np.where(is_stale, 0.5 * (left + right), new_x)
        new_value = function(x[active_index], active_index)
        with np.errstate(all="ignore"):
            secant = (new_value - value) / (x[active_index] - old_x)
        slope[active_index] = np.where((secant > 0) & np.isfinite(secant), secant, slope[active_index])
        value = new_value
    return x
