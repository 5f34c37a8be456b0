"""Truncated normals and uniforms inside the leaves of a forest, as vectorised formulas.

Every function takes arrays that broadcast together. A distribution is `mu, sigma, lower, upper`: the
normal with this location and scale, cut to [lower, upper]. `sigma = inf` is the uniform on [lower, upper],
which must then be finite; otherwise an edge may be infinite. Nothing here overflows however far `mu` lies
outside the box.

On the grid of integers, the value k carries the mass of [k - 1/2, k + 1/2] and edges lie at half-integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial, log, pi
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """What a distribution has after truncation."""

    mean: Array
    variance: Array


class CentralMoments(NamedTuple):
    """The mean, and the moments about it."""

    mean: Array  # measured from the mode
    second: Array
    third: Array
    fourth: Array


GRID_POINTS_SUMMED = 64

# Beyond this drop of the log density below its maximum, a tail is lost in rounding.
_LOG_DROP = 36.0
# 24 Gauss-Legendre nodes integrate half a bell, or an exponential over so many e-folds, to rounding.
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(24)
_NODE_POWERS = _NODE_WEIGHTS[:, None] * _NODES[:, None] ** np.arange(5)
# Rows at a time, so that a table of rows by nodes stays in the cache.
_CHUNK = 4096
# Up to this product of width and steepness a five-term series for a mass is exact to rounding.
_NARROW = 0.04
# ndtr underflows at 38 sigma.
_DEEP = 35.0
# As good as infinite to a normal density, yet has finite powers.
_INFINITE = 40.0
_TINY = 1e-300
_HALF_LOG_TWO_PI = 0.5 * log(2 * pi)
_ROOT_HALF = 0.5**0.5
# B_2j / (2j)! for j = 1 to 5, the coefficients of the Euler-Maclaurin formula.
_BERNOULLI = [b / factorial(2 * j) for j, b in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66), start=1)]


def log_pdf(x: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Log density at `x`; -inf outside [lower, upper]."""
    x, mu, sigma, lower, upper = floats(x, mu, sigma, lower, upper)
    uniform, scale = _split_uniform(sigma)
    with np.errstate(all="ignore"):
        bell = -0.5 * ((x - mu) / scale) ** 2 - np.log(scale) - _HALF_LOG_TWO_PI
        inside = np.where(uniform, 0.0, bell) - _log_weight(lower, upper, mu, sigma)
    return np.where((x >= lower) & (x <= upper) & np.isfinite(x), inside, -np.inf)


def mass(a: ArrayLike, b: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Probability of [a, b], of which only the part inside [lower, upper] counts."""
    a, b, mu, sigma, lower, upper = floats(a, b, mu, sigma, lower, upper)
    return np.exp(_log_mass(a, b, mu, sigma, lower, upper))


def log_mass(a: ArrayLike, b: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Log probability of [a, b], of which only the part inside [lower, upper] counts; -inf where that is empty."""
    return _log_mass(*floats(a, b, mu, sigma, lower, upper))


def log_weight(low: ArrayLike, high: ArrayLike, mu: ArrayLike, sigma: ArrayLike) -> Array:
    """Log mass of [low, high] before truncation; of a uniform, the log of the width. What densities are divided by."""
    return _log_weight(*floats(low, high, mu, sigma))


def log_bell(x: ArrayLike, mu: ArrayLike, sigma: ArrayLike) -> Array:
    """Log density at `x` before truncation, to the measure of `log_weight`."""
    x, mu, sigma = floats(x, mu, sigma)
    uniform, scale = _split_uniform(sigma)
    with np.errstate(all="ignore"):
        bell = -0.5 * ((x - mu) / scale) ** 2 - np.log(scale) - _HALF_LOG_TWO_PI
    return np.where(uniform, 0.0, bell)


def cdf(x: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Probability of values up to `x`."""
    return mass(lower, x, mu, sigma, lower, upper)


def quantile(q: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """The value with probability `q` below it, accurate in both tails and inside [lower, upper]."""
    q, mu, sigma, lower, upper = floats(q, mu, sigma, lower, upper)
    x = _rough_quantile(q, mu, sigma, lower, upper)
    for _ in range(2):
        below, above = cdf(x, mu, sigma, lower, upper), mass(x, upper, mu, sigma, lower, upper)
        gap = np.where(q <= 0.5, below - q, (1 - q) - above)
        with np.errstate(all="ignore"):
            step = gap / np.exp(log_pdf(x, mu, sigma, lower, upper))
        x = np.clip(x - np.where(np.isfinite(step), step, 0.0), lower, upper)
    return np.where(q <= 0, lower, np.where(q >= 1, upper, x))


def draw(u: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """The quantiles of uniforms `u`: faster than `quantile`, and coarser within 1e-10 of 0 and 1."""
    u, mu, sigma, lower, upper = np.broadcast_arrays(*floats(u, mu, sigma, lower, upper))
    uniform, scale = _split_uniform(sigma)
    near, far, flip = _towards_tail((lower - mu) / scale, (upper - mu) / scale)
    largest, smallest = special.ndtr(-near), special.ndtr(-far)
    z = special.ndtri(largest - np.where(flip, 1 - u, u) * (largest - smallest))
    with np.errstate(invalid="ignore"):
        x = np.where(uniform, lower + u * (upper - lower), mu + np.where(flip, z, -z) * scale)
    deep = ~uniform & (near > _DEEP)
    if deep.any():
        x[deep] = quantile(u[deep], mu[deep], sigma[deep], lower[deep], upper[deep])
    return np.asarray(np.clip(x, lower, upper))


def moments(mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Moments:
    """Mean and variance after truncation."""
    mu, sigma, lower, upper = np.broadcast_arrays(*floats(mu, sigma, lower, upper))
    mode = np.clip(mu, lower, upper)
    precision = sigma**-2.0
    central = central_moments((mu - mode) * precision, precision, lower - mode, upper - mode)
    return Moments(np.clip(mode + central.mean, lower, upper), central.second)


def grid_moments(mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Moments:
    """Mean and variance of the value rounded to the grid."""
    box = np.broadcast_arrays(*floats(mu, sigma, lower, upper))
    shape = box[0].shape
    mu, sigma, lower, upper = (part.ravel() for part in box)
    first, count = _grid_window(mu, sigma, lower, upper)
    few = count <= GRID_POINTS_SUMMED
    mean, variance = np.empty_like(mu), np.empty_like(mu)
    mean[few], variance[few] = _summed(mu[few], sigma[few], first[few], count[few])
    many = ~few
    mean[many], variance[many] = _euler_maclaurin(mu[many], sigma[many], lower[many], upper[many])
    return Moments(mean.reshape(shape), variance.reshape(shape))


def central_moments(gradient: Array, precision: Array, low: Array, high: Array) -> CentralMoments:
    """Moments of the density proportional to exp(gradient * d - precision * d**2 / 2) on [low, high].

    The origin is the mode: low <= 0 <= high, and `gradient` is 0 unless an edge holds the mode outside.
    """
    shape = gradient.shape
    gradient, precision, low, high = (part.ravel() for part in (gradient, precision, low, high))
    sd = 1 / np.sqrt(np.maximum(precision, _TINY))
    bell = (gradient == 0) & (high - low >= 2 * sd)
    central = np.empty((4, gradient.size))
    central[:, bell] = _bell_moments(low[bell] / sd[bell], high[bell] / sd[bell], sd[bell])
    slant = ~bell
    central[:, slant] = _slant_moments(gradient[slant], precision[slant], low[slant], high[slant])
    return CentralMoments(*(moment.reshape(shape) for moment in central))


def floats(*values: ArrayLike) -> tuple[Array, ...]:
    """Whatever was given, as float64."""
    return tuple(np.asarray(value, dtype=np.float64) for value in values)


def chunks(size: int, rows: int) -> Iterator[slice]:
    """Slices that cover `size` rows, so many at a time."""
    return (slice(start, start + rows) for start in range(0, size, rows))


def _bell_moments(low: Array, high: Array, sd: Array) -> CentralMoments:
    """In closed form, as nothing cancels while the mode is inside and the box at least two sigma wide."""
    inside = 1 - special.ndtr(low) - special.ndtr(-high)
    low, high = np.maximum(low, -_INFINITE), np.minimum(high, _INFINITE)
    at_low = np.exp(-0.5 * low**2 - _HALF_LOG_TWO_PI) / inside
    at_high = np.exp(-0.5 * high**2 - _HALF_LOG_TWO_PI) / inside
    m1 = at_low - at_high
    at_low, at_high = low * at_low, high * at_high
    m2 = 1 + at_low - at_high
    at_low, at_high = low * at_low, high * at_high
    m3 = 2 * m1 + at_low - at_high
    m4 = 3 * m2 + low * at_low - high * at_high
    return _centred(sd, m1, m2, m3, m4)


def _slant_moments(gradient: Array, precision: Array, low: Array, high: Array) -> CentralMoments:
    """By Gauss-Legendre quadrature of the part of [low, high] where the density is not lost in rounding."""
    reach = _reach(gradient, precision)
    start, stop = np.maximum(low, -reach), np.minimum(high, reach)
    half = 0.5 * (stop - start)
    centre = start + half
    sums = np.empty((half.size, 5))
    for rows in chunks(half.size, _CHUNK):
        d = half[rows, None] * _NODES + centre[rows, None]
        density = np.exp(d * (gradient[rows, None] - 0.5 * precision[rows, None] * d))
        np.matmul(density, _NODE_POWERS, out=sums[rows])
    central = _centred(half, *(sums[:, 1:] / sums[:, :1]).T)
    return central._replace(mean=centre + central.mean)


def _centred(unit: Array, m1: Array, m2: Array, m3: Array, m4: Array) -> CentralMoments:
    # Products, since a power beyond the square costs as much as a logarithm and an exponential.
    square = m1 * m1
    second = m2 - square
    third = m3 - m1 * (3 * m2 - 2 * square)
    fourth = m4 - m1 * (4 * m3 - 3 * m1 * (2 * m2 - square))
    area = unit * unit
    return CentralMoments(unit * m1, area * second, area * unit * third, area * area * fourth)


def _reach(gradient: Array, precision: Array) -> Array:
    """How far from the mode the density is lost in rounding."""
    steep = np.abs(gradient)
    return 2 * _LOG_DROP / (steep + np.sqrt(steep**2 + 2 * _LOG_DROP * precision) + _TINY)


def _split_uniform(sigma: Array) -> tuple[NDArray[np.bool_], Array]:
    """Which elements are uniform, and a scale to compute with that is finite for these too."""
    uniform = np.isinf(sigma)
    return uniform, np.where(uniform, 1.0, sigma)


def _towards_tail(alpha: Array, beta: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """[alpha, beta], mirrored where needed so that most of it is above 0: upper tails keep their digits."""
    flip = -alpha > beta
    return np.where(flip, -beta, alpha), np.where(flip, -alpha, beta), flip


def _log_mass(a: Array, b: Array, mu: Array, sigma: Array, lower: Array, upper: Array) -> Array:
    low, high = np.clip(a, lower, upper), np.clip(b, lower, upper)
    part = np.minimum(_log_weight(low, high, mu, sigma) - _log_weight(lower, upper, mu, sigma), 0.0)
    return np.where(high > low, part, -np.inf)


def _log_weight(low: Array, high: Array, mu: Array, sigma: Array) -> Array:
    """Log of the untruncated mass of [low, high]; for the uniform, log of the width."""
    uniform, scale = _split_uniform(sigma)
    with np.errstate(all="ignore"):
        width = (high - low) / scale
        near, far, _ = _towards_tail((low - mu) / scale, (high - mu) / scale)
        narrow = width * np.maximum(far, 1.0) < _NARROW
        if narrow.all():
            weight = _log_narrow(near, width)
        else:
            weight = np.where(narrow, _log_narrow(near, width), _log_wide(near, far, width))
        return np.where(uniform, np.log(high - low), weight) if uniform.any() else weight


def _log_narrow(near: Array, width: Array) -> Array:
    """Taylor series about the centre: the difference of two close tails would lose digits."""
    c, h = (near + 0.5 * width) ** 2, 0.25 * width**2
    series = (c - 1) * h / 6 + (c * c - 6 * c + 3) * h * h / 120
    return np.log(width) - 0.5 * c - _HALF_LOG_TWO_PI + np.log1p(series)


def _log_wide(near: Array, far: Array, width: Array) -> Array:
    """The difference of two upper tails, both scaled by exp(near**2 / 2) so that neither underflows."""
    tail = np.maximum(near, 0.0)
    outside, inside = special.erfcx(_ROOT_HALF * tail), special.erfc(_ROOT_HALF * np.minimum(near, 0.0))
    drop = np.where(near > 0, width * (near + far), far**2)
    rest = special.erfcx(_ROOT_HALF * far) * np.exp(-0.5 * drop)
    weight: Array = np.log(0.5 * (np.where(near > 0, outside, inside) - rest)) - 0.5 * tail**2
    return weight


def _rough_quantile(q: Array, mu: Array, sigma: Array, lower: Array, upper: Array) -> Array:
    """A start for `quantile`, taken from the smaller of the two tails at each value."""
    uniform, scale = _split_uniform(sigma)
    alpha, beta = (lower - mu) / scale, (upper - mu) / scale
    inside = np.exp(_log_weight(lower, upper, mu, scale))
    below, above = special.ndtr(alpha) + q * inside, special.ndtr(-beta) + (1 - q) * inside
    z = np.where(below < above, special.ndtri(np.minimum(below, 1.0)), -special.ndtri(np.minimum(above, 1.0)))
    near, far, flip = _towards_tail(alpha, beta)
    with np.errstate(all="ignore"):
        # So far out the normal is an exponential but for a part in near**2.
        steps = -np.log1p(np.where(flip, 1 - q, q) * np.expm1(-near * (far - near))) / near * scale
        deep = np.where(flip, upper - steps, lower + steps)
        x = np.where(near > _DEEP, deep, mu + scale * z)
        return np.clip(np.where(uniform, lower + q * (upper - lower), x), lower, upper)


def _grid_window(mu: Array, sigma: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The first grid point that carries any mass, and how many do."""
    mode = np.clip(mu, lower, upper)
    precision = sigma**-2.0
    reach = _reach((mu - mode) * precision, precision)
    first = np.maximum(np.floor(mode - reach), lower + 0.5)
    last = np.minimum(np.ceil(mode + reach), upper - 0.5)
    return first, last - first + 1


def _summed(mu: Array, sigma: Array, first: Array, count: Array) -> Moments:
    """Sums over the points of the window, the rows ordered by their number of points."""
    mean, variance = np.empty_like(mu), np.empty_like(mu)
    order = np.argsort(count)
    for rows in chunks(order.size, _CHUNK):
        at = order[rows]
        steps = np.arange(count[at[-1]], dtype=np.float64)
        weight = _bin_weights(mu[at] - first[at], sigma[at], steps, count[at])
        weight /= weight.sum(axis=1, keepdims=True)
        offset = weight @ steps
        mean[at] = first[at] + offset
        variance[at] = (weight * (steps - offset[:, None]) ** 2).sum(axis=1)
    return Moments(mean, variance)


def _bin_weights(mu: Array, sigma: Array, points: Array, count: Array) -> Array:
    """One row per distribution, one column per point: masses up to a factor per row, of its first `count` points."""
    beyond = points >= count[:, None]
    weight = np.empty((mu.size, points.size))
    furthest = np.maximum(np.abs(mu), np.abs(points[-1] - mu)) + 0.5
    nearest = np.abs(mu - np.clip(mu, -0.5, count - 0.5))
    narrow = np.maximum(furthest / sigma, 1.0) < _NARROW * sigma
    deep = ~narrow & (nearest > _DEEP * sigma)
    plain = ~narrow & ~deep
    for rows, log_weights in ((narrow, _log_narrow_bins), (deep, _log_weight_bins)):
        logs = np.where(beyond[rows], -np.inf, log_weights(mu[rows, None], sigma[rows, None], points))
        weight[rows] = np.exp(logs - logs.max(axis=1, keepdims=True))
    weight[plain] = _plain_bins(mu[plain, None], sigma[plain, None], points)
    weight[beyond] = 0.0
    return weight


def _log_narrow_bins(mu: Array, sigma: Array, points: Array) -> Array:
    # A uniform has sigma = inf; any scale will do for it, as only ratios count.
    scale = np.minimum(sigma, 1e100)
    return _log_narrow((points - 0.5 - mu) / scale, 1 / scale)


def _log_weight_bins(mu: Array, sigma: Array, points: Array) -> Array:
    return _log_weight(points - 0.5, points + 0.5, mu, sigma)


def _plain_bins(mu: Array, sigma: Array, points: Array) -> Array:
    """Differences of tails, one tail per edge: most sums need no more."""
    z = (np.append(points, points[-1] + 1) - 0.5 - mu) / sigma
    tail = special.ndtr(-np.abs(z))
    left, right = tail[:, :-1], tail[:, 1:]
    return np.asarray(np.where((z[:, :-1] < 0) & (z[:, 1:] > 0), 1 - left - right, np.abs(left - right)))


def _euler_maclaurin(mu: Array, sigma: Array, lower: Array, upper: Array) -> Moments:
    """Moments of the rounded value from those of the value.

    r = X - round(X) is a periodic Bernoulli polynomial. Integration by parts turns E[r], E[(X - mean) r] and
    E[r**2] - 1/12 into sums of derivatives of the density at the two edges.
    """
    mean, variance = moments(mu, sigma, lower, upper)
    shift, cross, square = np.zeros_like(mu), np.zeros_like(mu), np.zeros_like(mu)
    for sign, edge in ((1.0, upper), (-1.0, lower)):
        closed = np.isfinite(edge)
        x = np.where(closed, edge, mean)
        density = np.where(closed, np.exp(log_pdf(x, mu, sigma, lower, upper)), 0.0)
        slopes = _derivatives(density, x - mu, sigma**-2.0)
        for j, coefficient in enumerate(_BERNOULLI):
            shift += sign * coefficient * slopes[2 * j]
            cross += sign * coefficient * (x - mean) * slopes[2 * j]
            if j > 0:
                cross += sign * coefficient * 2 * j * slopes[2 * j - 1]
                square -= sign * coefficient * 2 * slopes[2 * j - 1]
    return Moments(mean - shift, variance - 2 * cross + 1 / 12 + square - shift**2)


def _derivatives(density: Array, distance: Array, precision: Array) -> list[Array]:
    """The density of a normal and eight derivatives, by the recurrence of Hermite polynomials."""
    slopes = [density, -distance * precision * density]
    for n in range(1, 8):
        slopes.append(-precision * (distance * slopes[n] + n * slopes[n - 1]))
    return slopes
