"""Parameters of truncated normals from the mean and variance they shall have after truncation.

For a box and a mean, the variance grows with sigma from 0 to that of the exponential tilt (a uniform if the
mean is central), so the match is unique where it exists. The mean is always met; a variance out of reach is
met as nearly as the bounds on sigma allow. The bounds keep later code safe: sigma is at most 1000 widths of
the box, and `mu` lies at most 30 sigma outside the box.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from arf_dask.marginals import Array, CentralMoments, central_moments, chunks, floats, grid_moments


class Matched(NamedTuple):
    """Location and scale of the normal before truncation."""

    mu: Array
    sigma: Array


class _Problem(NamedTuple):
    below: Array  # from the lower edge up to the mean
    above: Array  # from the mean up to the upper edge
    variance: Array
    smallest: Array  # the least precision that keeps to the bounds on sigma


class _GridProblem(NamedTuple):
    mean: Array
    variance: Array
    lower: Array
    upper: Array


class _Tilt(NamedTuple):
    slope: Array  # of the log density at the wanted mean
    precision: Array  # 1 / sigma**2


# A mean on the edge moves inside by this part of the width, one closer than `_CLOSEST` to that distance.
_NUDGE, _CLOSEST = 1e-6, 5e-11
_LEAST_SIGMA, _MOST_SIGMA = 1e-9, 1e3  # in widths of the box
# Edges further than this many standard deviations from the mean change nothing.
_FREE = 9.0
# The exponential tilt known to 5 % keeps mu within 30 sigma if we aim at 28.
_MOST_OUTSIDE = 28.0
# Where an infinite edge is put, in standard deviations: exp(-45) is lost in rounding.
_OPEN = 45.0
_MOST_STEPS = 60
# Boxes narrower than two to this power are uniform: a sigma would vanish.
_LEAST_POWER = -960
# On the grid a smaller sigma than this rounds to the same.
_LEAST_GRID_SIGMA = 0.05
# Over two points every sigma gives the same variance.
_PAIR_SIGMA = 0.5
# Below this sigma the mean moves in steps as mu does.
_STEPPED = 0.4
_MOST_OUTSIDE_GRID, _MOST_BEYOND = 27.0, 30.0
_MOST_ROOT_STEPS = 200
# Rows at a time, so that intermediate arrays stay in the cache.
_CHUNK = 16384


def match_moments(mean: ArrayLike, variance: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Matched:
    """The normals that, truncated to [lower, upper], have this mean and variance."""
    box = np.broadcast_arrays(*floats(mean, variance, lower, upper))
    flat = [part.ravel() for part in box]
    mu, sigma = np.empty(box[0].size), np.empty(box[0].size)
    for rows in chunks(mu.size, _CHUNK):
        mu[rows], sigma[rows] = _match(*(part[rows] for part in flat))
    return Matched(mu.reshape(box[0].shape), sigma.reshape(box[0].shape))


def match_moments_grid(mean: ArrayLike, variance: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Matched:
    """The normals that, truncated to [lower, upper] and rounded to integers, have this mean and variance."""
    box = np.broadcast_arrays(*floats(mean, variance, lower, upper))
    flat = [part.ravel() for part in box]
    mu, sigma = np.empty(box[0].size), np.empty(box[0].size)
    for rows in chunks(mu.size, _CHUNK):
        mu[rows], sigma[rows] = _match_grid(*(part[rows] for part in flat))
    return Matched(mu.reshape(box[0].shape), sigma.reshape(box[0].shape))


def _match(mean: Array, variance: Array, lower: Array, upper: Array) -> Matched:
    """In units of the box, a power of two, so that no moment overflows or vanishes whatever the scale."""
    power, closed = _powers(variance, lower, upper)
    with np.errstate(over="ignore"):
        spread = np.ldexp(np.ldexp(variance, -power), -power)
    # No variance in a closed box exceeds a quarter of its squared width.
    spread = np.where(closed, np.minimum(spread, 1.0), spread)
    flat = power < _LEAST_POWER
    mu, sigma = np.where(flat, lower, mean), np.full_like(mean, np.inf)
    rows = np.flatnonzero(~flat)
    at, low, high = (np.ldexp(part[rows], -power[rows]) for part in (mean, lower, upper))
    found = _match_scaled(at, spread[rows], low, high)
    mu[rows], sigma[rows] = np.ldexp(found.mu, power[rows]), np.ldexp(found.sigma, power[rows])
    return Matched(mu, sigma)


def _powers(variance: Array, lower: Array, upper: Array) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The power of two next above the width of each box (of the standard deviation if it is open)."""
    closed = np.isfinite(upper) & np.isfinite(lower)
    width = np.where(closed, upper, 0.0) - np.where(closed, lower, 0.0)
    unit = np.where(closed, width, np.sqrt(variance))
    return np.where(unit > 0, np.frexp(unit)[1], 2 * _LEAST_POWER).astype(np.int32), closed


def _match_scaled(mean: Array, variance: Array, lower: Array, upper: Array) -> Matched:
    below, above, variance = _inside(mean, variance, lower, upper)
    shift, sigma = np.zeros_like(mean), np.sqrt(variance)
    cut = np.minimum(below, above) < _FREE * sigma
    slope, precision = _solve(_problem(below[cut], above[cut], variance[cut]))
    shift[cut], sigma[cut] = slope / precision, precision**-0.5
    moved_up, moved_down = below > mean - lower, above > upper - mean
    anchor = np.where(moved_up, lower + below, np.where(moved_down, upper - above, mean))
    return Matched(anchor + shift, sigma)


def _inside(mean: Array, variance: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """Distances from the mean to the edges, all positive and finite, and a variance above its floor."""
    closed = np.isfinite(upper) & np.isfinite(lower)
    width = np.where(closed, upper, 0.0) - np.where(closed, lower, 0.0)
    sd = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
    unit = np.where(closed, width, sd)
    below, above = mean - lower, upper - mean
    below, above = _nudged(below, unit), _nudged(above, unit)
    below = np.where(closed, np.minimum(below, width - _CLOSEST * width), below)
    above = np.where(closed, np.minimum(above, width - _CLOSEST * width), above)
    reach = _OPEN * np.minimum(sd, np.minimum(below, above))
    # Both edges open: any finite distance that is far enough will do.
    reach = np.where(np.isfinite(reach), reach, _OPEN * sd)
    below, above = np.where(np.isfinite(below), below, reach), np.where(np.isfinite(above), above, reach)
    return below, above, np.maximum(variance, (_LEAST_SIGMA * unit) ** 2)


def _nudged(distance: Array, unit: Array) -> Array:
    return np.where(distance <= 0, _NUDGE * unit, np.maximum(distance, _CLOSEST * unit))


def _problem(below: Array, above: Array, variance: Array) -> _Problem:
    tilt, _ = _exponential(below, above)
    width = below + above
    least = np.maximum((tilt / _MOST_OUTSIDE) ** 2, (_MOST_SIGMA * width) ** -2.0)
    return _Problem(below, above, variance, least)


def _exponential(below: Array, above: Array) -> tuple[Array, Array]:
    """Slope and variance of the truncated exponential with this mean.

    From Cohen's approximation of the inverse Langevin function, y (3 - y**2) / (1 - y**2), good to 5 %.
    """
    width = below + above
    y, rest = (below - above) / width, 4 * (below / width) * (above / width)
    square = y * y
    return 2 * y * (3 - square) / (rest * width), (width * rest) ** 2 / (4 * (3 + square * square))


def _start(problem: _Problem) -> _Tilt:
    """Between the untruncated normal, right for a small variance, and the exponential, for the largest."""
    tilt, limit = _exponential(problem.below, problem.above)
    ratio = np.minimum(problem.variance / limit, 1.0)
    precision = np.maximum((1 - ratio) / problem.variance, problem.smallest)
    return _Tilt(tilt * ratio * ratio * (3 - 2 * ratio), precision)


def _solve(problem: _Problem) -> _Tilt:
    """Newton steps on the elements that have not converged yet."""
    solved = _start(problem)
    todo = np.arange(problem.variance.size)
    for _ in range(_MOST_STEPS):
        part, tilt = _Problem(*(p[todo] for p in problem)), _Tilt(*(t[todo] for t in solved))
        central = _central(part, tilt)
        going = ~_converged(part, tilt, central)
        if not going.any():
            break
        todo = todo[going]
        part, tilt = _Problem(*(p[going] for p in part)), _Tilt(*(t[going] for t in tilt))
        central = CentralMoments(*(c[going] for c in central))
        solved.slope[todo], solved.precision[todo] = _newton(part, tilt, central)
    return solved


def _central(problem: _Problem, tilt: _Tilt) -> CentralMoments:
    """Moments at the present parameters, the mean measured from the wanted one."""
    mode = np.clip(tilt.slope / tilt.precision, -problem.below, problem.above)
    inside = (mode > -problem.below) & (mode < problem.above)
    gradient = np.where(inside, 0.0, tilt.slope - tilt.precision * mode)
    central = central_moments(gradient, tilt.precision, -problem.below - mode, problem.above - mode)
    return central._replace(mean=mode + central.mean)


def _converged(problem: _Problem, tilt: _Tilt, central: CentralMoments) -> NDArray[np.bool_]:
    ratio = central.second / problem.variance
    pinned = (tilt.precision <= problem.smallest) & (ratio <= 1)
    return (np.abs(central.mean) <= 1e-12 * np.sqrt(central.second)) & (pinned | (np.abs(ratio - 1) <= 1e-10))


def _newton(problem: _Problem, tilt: _Tilt, central: CentralMoments) -> _Tilt:
    """One step in the natural parameters of the exponential family, exact for an untruncated normal.

    Newton on 1 / variance instead of the variance, as that is nearly linear in the precision.
    """
    mean, second, third, fourth = central
    wanted = second * (1 - second / problem.variance)
    curvature = (second * wanted + third * mean) / (second * (fourth - second**2) - third**2)
    precision = np.clip(tilt.precision - 2 * curvature, tilt.precision / 16, tilt.precision * 16)
    precision = np.maximum(precision, problem.smallest)
    curvature = 0.5 * (tilt.precision - precision)
    lift = (-mean - third * curvature) / second
    # The tilt exp(lift * e + curvature * e**2) has e from the present mean; our slope is at the wanted one.
    return _Tilt(tilt.slope + lift - 2 * curvature * mean, precision)


def _match_grid(mean: Array, variance: Array, lower: Array, upper: Array) -> Matched:
    lower, upper = _closed_grid(mean, variance, lower, upper)
    mean = np.clip(mean, lower + 0.5, upper - 0.5)
    # Near the origin, locations keep their digits.
    origin = np.floor(mean)
    mean, lower, upper = mean - origin, lower - origin, upper - origin
    mu, sigma = mean.copy(), np.full_like(mean, _LEAST_GRID_SIGMA)
    inner = np.minimum(mean - lower, upper - mean) - 0.5 > 1e-11 * (upper - lower)
    problem = _GridProblem(mean[inner], np.maximum(variance[inner], 1e-12), lower[inner], upper[inner])
    mu[inner], sigma[inner] = _solve_grid(problem)
    return Matched(origin + mu, sigma)


def _closed_grid(mean: Array, variance: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Infinite edges replaced by ones so far that they change nothing, also for the widest geometric tail."""
    inner = np.minimum(np.maximum(mean - lower, 0.0), np.maximum(upper - mean, 0.0))
    reach = np.ceil(_OPEN * (np.minimum(np.sqrt(variance), inner) + 1))
    middle = np.floor(np.clip(mean, lower, upper)) + 0.5
    low = np.where(np.isfinite(lower), lower, middle - reach)
    return low, np.where(np.isfinite(upper), upper, middle + reach)


def _solve_grid(problem: _GridProblem) -> Matched:
    """Find sigma, along which the variance grows if the mean is held."""
    mean, variance, lower, upper = problem
    guess = match_moments(mean, np.maximum(variance - 1 / 12, _LEAST_GRID_SIGMA**2), lower, upper)
    most = _most_grid_sigma(mean - lower - 0.5, upper - mean - 0.5)
    slope, reached = (guess.mu - mean) / guess.sigma**2, np.ones_like(mean)
    mu = np.empty_like(mean)

    def excess(log_sigma: Array, rows: NDArray[np.intp]) -> Array:
        part, sigma = _GridProblem(*(p[rows] for p in problem)), np.exp(log_sigma)
        mu[rows], reached[rows] = _hold_mean(part, sigma, slope[rows])
        slope[rows] = (mu[rows] - part.mean) / sigma**2
        return np.asarray(np.log(np.maximum(reached[rows], 1e-300) / part.variance))

    # Over two points the mean alone decides.
    pair = upper - lower < 2.5
    least, most = np.where(pair, _PAIR_SIGMA, _LEAST_GRID_SIGMA), np.where(pair, _PAIR_SIGMA, most)
    rise, tolerance = np.full_like(mean, 2.0), np.full_like(mean, 1e-7)
    sigma = np.exp(_root(excess, np.log(guess.sigma), rise, np.log(least), np.log(most), tolerance))
    return Matched(mu, sigma)


def _most_grid_sigma(below: Array, above: Array) -> Array:
    """Keeps mu within 30 sigma of the box. The limit is a truncated geometric, whose rate this approximates.

    The rate is exact for two points, for a mean next to an edge, and to first order about the centre.
    """
    width = below + above
    bend = (1 - 1 / width) / (1 + 2 * (below / width) * (above / width))
    rate = np.abs(np.log(above / below) + np.log1p(bend * below) - np.log1p(bend * above))
    return np.asarray(np.minimum(_MOST_SIGMA * (width + 1), _MOST_OUTSIDE_GRID / np.maximum(rate, 1e-300)))


def _hold_mean(problem: _GridProblem, sigma: Array, slope: Array) -> tuple[Array, Array]:
    """The location at which the rounded value has the mean, for this sigma, and the variance there."""
    mean, variance, lower, upper = problem
    steps = (sigma < _STEPPED) & (mean > 0)
    # With a small sigma only two points carry mass, and the mean says how much each.
    place = special.ndtri(np.where(steps, mean, 0.5))
    guess = np.where(steps, 0.5 + sigma * place, mean + slope * sigma**2)
    rise = np.where(steps, np.exp(-0.5 * place**2) / (2.5 * sigma), np.minimum(variance / sigma**2, 1.0))
    found = np.empty_like(mean)

    def excess(mu: Array, rows: NDArray[np.intp]) -> Array:
        result = grid_moments(mu, sigma[rows], lower[rows], upper[rows])
        found[rows] = result.variance
        return result.mean - mean[rows]

    low, high = lower - _MOST_BEYOND * sigma, upper + _MOST_BEYOND * sigma
    return _root(excess, guess, rise, low, high, 1e-12 * (upper - lower)), found


def _root(
    function: Callable[[Array, NDArray[np.intp]], Array],
    guess: Array,
    slope: Array,
    least: Array,
    most: Array,
    tolerance: Array,
) -> Array:
    """Zeros of increasing functions by secants in a shrinking bracket; the nearer bound where there is none.

    The last call of `function` for an element is always at the value returned.
    """
    low, high, slope = least.copy(), most.copy(), slope.copy()
    x = np.clip(guess, low, high)
    seen_low, seen_high = np.zeros(x.shape, bool), np.zeros(x.shape, bool)
    todo, value = np.arange(x.size), function(x, np.arange(x.size))
    for step in range(_MOST_ROOT_STEPS):
        rising = value < 0
        low[todo[rising]], seen_low[todo[rising]] = x[todo[rising]], True
        high[todo[~rising]], seen_high[todo[~rising]] = x[todo[~rising]], True
        resolution = 4 * np.spacing(np.maximum(np.abs(low[todo]), np.abs(high[todo])))
        going = (np.abs(value) > tolerance[todo]) & (high[todo] - low[todo] > resolution)
        todo, value = todo[going], value[going]
        if todo.size == 0:
            break
        old, left, right = x[todo], low[todo], high[todo]
        with np.errstate(over="ignore"):
            new = np.clip(old - value / slope[todo], left, right)
        # A bound already seen teaches nothing, and a secant that is slow to come is helped by halving.
        stale = ((new <= left) & seen_low[todo]) | ((new >= right) & seen_high[todo]) | (step % 8 == 7)
        x[todo] = np.where(stale, 0.5 * (left + right), new)
        found = function(x[todo], todo)
        with np.errstate(all="ignore"):
            secant = (found - value) / (x[todo] - old)
        slope[todo] = np.where((secant > 0) & np.isfinite(secant), secant, slope[todo])
        value = found
    return x
