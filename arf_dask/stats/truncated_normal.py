"""Vectorised formulas for truncated normal and uniform distributions.

All functions take arrays that broadcast against each other. A distribution is given by `mu, sigma, lower, upper`: the
normal with this location and scale, truncated to [lower, upper]. `sigma = inf` denotes the uniform on [lower, upper],
which must then be finite; otherwise edges may be infinite. Nothing overflows, however far `mu` lies outside the box.

On the grid of integers, the value k has the mass of [k - 1/2, k + 1/2], and edges lie at half-integers.
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
    """Mean and variance of a distribution after truncation."""

    mean: Array
    variance: Array


class CentralMoments(NamedTuple):
    """The mean, and the second to fourth central moments."""

    mean: Array  # relative to the mode
    second: Array
    third: Array
    fourth: Array


GRID_POINTS_SUMMED = 64

# Densities whose log is this far below the maximum are negligible.
_LOG_DROP = 36.0
# 24 Gauss-Legendre nodes integrate half a bell, or an exponential over 36 e-folds, to rounding error.
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(24)
_NODE_POWERS = _NODE_WEIGHTS[:, None] * _NODES[:, None] ** np.arange(5)
# Rows processed at a time, so that a table of rows by nodes stays in the cache.
_CHUNK = 4096
# Up to this product of width and steepness, the Taylor series of a mass is exact to rounding error.
_NARROW = 0.04
# ndtr underflows at 38 sigma.
_DEEP = 35.0
# Stands for infinity: the normal density vanishes there, but powers stay finite.
_INFINITE = 40.0
_TINY = 1e-300
_HALF_LOG_TWO_PI = 0.5 * log(2 * pi)
_ROOT_HALF = 0.5**0.5
# B_2j / (2j)! for j = 1 to 5, the coefficients of the Euler-Maclaurin formula.
_BERNOULLI = [b / factorial(2 * j) for j, b in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66), start=1)]


def log_pdf(x: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Return the log density at `x`; -inf outside [lower, upper]."""
    x, mu, sigma, lower, upper = floats(x, mu, sigma, lower, upper)
    is_uniform, scale = _split_uniform(sigma)
    with np.errstate(all="ignore"):
        log_density = -0.5 * ((x - mu) / scale) ** 2 - np.log(scale) - _HALF_LOG_TWO_PI
        log_inside = np.where(is_uniform, 0.0, log_density) - _log_weight(lower, upper, mu, sigma)
    return np.where((x >= lower) & (x <= upper) & np.isfinite(x), log_inside, -np.inf)


def mass(a: ArrayLike, b: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Return the probability of the part of [a, b] inside [lower, upper]."""
    a, b, mu, sigma, lower, upper = floats(a, b, mu, sigma, lower, upper)
    return np.exp(_log_mass(a, b, mu, sigma, lower, upper))


def log_mass(a: ArrayLike, b: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Return the log probability of the part of [a, b] inside [lower, upper]; -inf if it is empty."""
    return _log_mass(*floats(a, b, mu, sigma, lower, upper))


def log_weight(low: ArrayLike, high: ArrayLike, mu: ArrayLike, sigma: ArrayLike) -> Array:
    """Return the log mass of [low, high] before truncation, by which densities are normalised; log width if uniform."""
    return _log_weight(*floats(low, high, mu, sigma))


def log_bell(x: ArrayLike, mu: ArrayLike, sigma: ArrayLike) -> Array:
    """Return the log density at `x` before truncation, to be normalised by `log_weight`."""
    x, mu, sigma = floats(x, mu, sigma)
    is_uniform, scale = _split_uniform(sigma)
    with np.errstate(all="ignore"):
        log_density = -0.5 * ((x - mu) / scale) ** 2 - np.log(scale) - _HALF_LOG_TWO_PI
    return np.where(is_uniform, 0.0, log_density)


def cdf(x: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Return the probability of values up to `x`."""
    return mass(lower, x, mu, sigma, lower, upper)


def quantile(q: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Return the quantile of probability `q` in [lower, upper], accurate in both tails."""
    q, mu, sigma, lower, upper = floats(q, mu, sigma, lower, upper)
    x = _rough_quantile(q, mu, sigma, lower, upper)
    for _ in range(2):
        below, above = cdf(x, mu, sigma, lower, upper), mass(x, upper, mu, sigma, lower, upper)
        mass_error = np.where(q <= 0.5, below - q, (1 - q) - above)
        with np.errstate(all="ignore"):
            newton_step = mass_error / np.exp(log_pdf(x, mu, sigma, lower, upper))
        x = np.clip(x - np.where(np.isfinite(newton_step), newton_step, 0.0), lower, upper)
    return np.where(q <= 0, lower, np.where(q >= 1, upper, x))


def draw(u: ArrayLike, mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Array:
    """Return the quantiles of uniforms `u`; faster than `quantile`, but less accurate within 1e-10 of 0 and 1."""
    u, mu, sigma, lower, upper = np.broadcast_arrays(*floats(u, mu, sigma, lower, upper))
    is_uniform, scale = _split_uniform(sigma)
    near, far, is_flipped = _towards_tail((lower - mu) / scale, (upper - mu) / scale)
    near_tail, far_tail = special.ndtr(-near), special.ndtr(-far)
    z = special.ndtri(near_tail - np.where(is_flipped, 1 - u, u) * (near_tail - far_tail))
    with np.errstate(invalid="ignore"):
        x = np.where(is_uniform, lower + u * (upper - lower), mu + np.where(is_flipped, z, -z) * scale)
    is_deep = ~is_uniform & (near > _DEEP)
    if is_deep.any():
        x[is_deep] = quantile(u[is_deep], mu[is_deep], sigma[is_deep], lower[is_deep], upper[is_deep])
    return np.asarray(np.clip(x, lower, upper))


def moments(mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Moments:
    """Return mean and variance after truncation."""
    mu, sigma, lower, upper = np.broadcast_arrays(*floats(mu, sigma, lower, upper))
    mode = np.clip(mu, lower, upper)
    precision = sigma**-2.0
    central = central_moments((mu - mode) * precision, precision, lower - mode, upper - mode)
    return Moments(np.clip(mode + central.mean, lower, upper), central.second)


def grid_moments(mu: ArrayLike, sigma: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Moments:
    """Return mean and variance of the value rounded to the grid."""
    parameters = np.broadcast_arrays(*floats(mu, sigma, lower, upper))
    shape = parameters[0].shape
    mu, sigma, lower, upper = (part.ravel() for part in parameters)
    first_point, n_points = _grid_window(mu, sigma, lower, upper)
    is_small = n_points <= GRID_POINTS_SUMMED
    mean, variance = np.empty_like(mu), np.empty_like(mu)
    mean[is_small], variance[is_small] = _summed(
        mu[is_small], sigma[is_small], first_point[is_small], n_points[is_small]
    )
    is_large = ~is_small
    mean[is_large], variance[is_large] = _euler_maclaurin(
        mu[is_large], sigma[is_large], lower[is_large], upper[is_large]
    )
    return Moments(mean.reshape(shape), variance.reshape(shape))


def central_moments(gradient: Array, precision: Array, low: Array, high: Array) -> CentralMoments:
    """Return the moments of the density proportional to exp(gradient * d - precision * d**2 / 2) on [low, high].

    The origin is the mode: low <= 0 <= high, and `gradient` is 0 unless the mode is at an edge.
    """
    shape = gradient.shape
    gradient, precision, low, high = (part.ravel() for part in (gradient, precision, low, high))
    sd = 1 / np.sqrt(np.maximum(precision, _TINY))
    is_bell = (gradient == 0) & (high - low >= 2 * sd)
    central = np.empty((4, gradient.size))
    central[:, is_bell] = _bell_moments(low[is_bell] / sd[is_bell], high[is_bell] / sd[is_bell], sd[is_bell])
    is_slanted = ~is_bell
    central[:, is_slanted] = _slant_moments(
        gradient[is_slanted], precision[is_slanted], low[is_slanted], high[is_slanted]
    )
    return CentralMoments(*(moment.reshape(shape) for moment in central))


def floats(*values: ArrayLike) -> tuple[Array, ...]:
    """Convert all arguments to float64 arrays."""
    return tuple(np.asarray(value, dtype=np.float64) for value in values)


def chunks(size: int, rows: int) -> Iterator[slice]:
    """Yield slices of `rows` rows that cover `size` rows."""
    return (slice(start, start + rows) for start in range(0, size, rows))


def _bell_moments(low: Array, high: Array, sd: Array) -> CentralMoments:
    """Closed form, free of cancellation if the mode is inside and the box is at least two sigma wide."""
    mass_inside = 1 - special.ndtr(low) - special.ndtr(-high)
    low, high = np.maximum(low, -_INFINITE), np.minimum(high, _INFINITE)
    low_density = np.exp(-0.5 * low**2 - _HALF_LOG_TWO_PI) / mass_inside
    high_density = np.exp(-0.5 * high**2 - _HALF_LOG_TWO_PI) / mass_inside
    m1 = low_density - high_density
    low_density, high_density = low * low_density, high * high_density
    m2 = 1 + low_density - high_density
    low_density, high_density = low * low_density, high * high_density
    m3 = 2 * m1 + low_density - high_density
    m4 = 3 * m2 + low * low_density - high * high_density
    return _centred(sd, m1, m2, m3, m4)


def _slant_moments(gradient: Array, precision: Array, low: Array, high: Array) -> CentralMoments:
    """Gauss-Legendre quadrature over the part of [low, high] where the density is not negligible."""
    reach = _reach(gradient, precision)
    start, stop = np.maximum(low, -reach), np.minimum(high, reach)
    half_width = 0.5 * (stop - start)
    centre = start + half_width
    sums = np.empty((half_width.size, 5))
    for rows in chunks(half_width.size, _CHUNK):
        offsets = half_width[rows, None] * _NODES + centre[rows, None]
        density = np.exp(offsets * (gradient[rows, None] - 0.5 * precision[rows, None] * offsets))
        np.matmul(density, _NODE_POWERS, out=sums[rows])
    central = _centred(half_width, *(sums[:, 1:] / sums[:, :1]).T)
    return central._replace(mean=centre + central.mean)


def _centred(unit: Array, m1: Array, m2: Array, m3: Array, m4: Array) -> CentralMoments:
    # Multiplied out, as a higher power costs as much as a logarithm and an exponential.
    square = m1 * m1
    second = m2 - square
    third = m3 - m1 * (3 * m2 - 2 * square)
    fourth = m4 - m1 * (4 * m3 - 3 * m1 * (2 * m2 - square))
    unit_squared = unit * unit
    return CentralMoments(
        unit * m1, unit_squared * second, unit_squared * unit * third, unit_squared * unit_squared * fourth
    )


def _reach(gradient: Array, precision: Array) -> Array:
    """Return the distance from the mode beyond which the density is negligible."""
    steepness = np.abs(gradient)
    return 2 * _LOG_DROP / (steepness + np.sqrt(steepness**2 + 2 * _LOG_DROP * precision) + _TINY)


def mass_below(x: Array, mu: Array, sigma: Array) -> Array:
    """Return the untruncated mass below x, or x itself for a uniform; small differences lose digits.

    >>> mass_below(np.array([1.0, 7.0]), np.array([1.0, 0.0]), np.array([2.0, np.inf])).tolist()
    [0.5, 7.0]
    """
    is_uniform, scale = _split_uniform(sigma)
    return np.where(is_uniform, x, special.ndtr((x - mu) / scale))


def _split_uniform(sigma: Array) -> tuple[NDArray[np.bool_], Array]:
    """Flag the uniform elements, and return a scale that is finite for all elements."""
    uniform = np.isinf(sigma)
    return uniform, np.where(uniform, 1.0, sigma)


def _towards_tail(alpha: Array, beta: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Mirror [alpha, beta] if most of it is below 0, as upper tails are computed without loss of digits."""
    is_flipped = -alpha > beta
    return np.where(is_flipped, -beta, alpha), np.where(is_flipped, -alpha, beta), is_flipped


def _log_mass(a: Array, b: Array, mu: Array, sigma: Array, lower: Array, upper: Array) -> Array:
    low, high = np.clip(a, lower, upper), np.clip(b, lower, upper)
    log_share = np.minimum(_log_weight(low, high, mu, sigma) - _log_weight(lower, upper, mu, sigma), 0.0)
    return np.where(high > low, log_share, -np.inf)


def _log_weight(low: Array, high: Array, mu: Array, sigma: Array) -> Array:
    """Return the log of the untruncated mass of [low, high], or of the width for a uniform."""
    is_uniform, scale = _split_uniform(sigma)
    with np.errstate(all="ignore"):
        width = (high - low) / scale
        near, far, _ = _towards_tail((low - mu) / scale, (high - mu) / scale)
        is_narrow = width * np.maximum(far, 1.0) < _NARROW
        if is_narrow.all():
            log_weights = _log_narrow(near, width)
        else:
            log_weights = np.where(is_narrow, _log_narrow(near, width), _log_wide(near, far, width))
        return np.where(is_uniform, np.log(high - low), log_weights) if is_uniform.any() else log_weights


def _log_narrow(near: Array, width: Array) -> Array:
    """Taylor series about the centre, as the difference of two similar tails would lose digits."""
    c, h = (near + 0.5 * width) ** 2, 0.25 * width**2
    series = (c - 1) * h / 6 + (c * c - 6 * c + 3) * h * h / 120
    return np.log(width) - 0.5 * c - _HALF_LOG_TWO_PI + np.log1p(series)


def _log_wide(near: Array, far: Array, width: Array) -> Array:
    """Difference of two upper tails, both scaled by exp(near**2 / 2) to avoid underflow."""
    tail = np.maximum(near, 0.0)
    scaled_tail, near_mass = special.erfcx(_ROOT_HALF * tail), special.erfc(_ROOT_HALF * np.minimum(near, 0.0))
    log_drop = np.where(near > 0, width * (near + far), far**2)
    far_tail = special.erfcx(_ROOT_HALF * far) * np.exp(-0.5 * log_drop)
    weight: Array = np.log(0.5 * (np.where(near > 0, scaled_tail, near_mass) - far_tail)) - 0.5 * tail**2
    return weight


def _rough_quantile(q: Array, mu: Array, sigma: Array, lower: Array, upper: Array) -> Array:
    """Return an initial value for `quantile`, computed from the smaller of the two tails."""
    is_uniform, scale = _split_uniform(sigma)
    alpha, beta = (lower - mu) / scale, (upper - mu) / scale
    mass_inside = np.exp(_log_weight(lower, upper, mu, scale))
    below, above = special.ndtr(alpha) + q * mass_inside, special.ndtr(-beta) + (1 - q) * mass_inside
    z = np.where(below < above, special.ndtri(np.minimum(below, 1.0)), -special.ndtri(np.minimum(above, 1.0)))
    near, far, is_flipped = _towards_tail(alpha, beta)
    with np.errstate(all="ignore"):
        # This far out, the normal is an exponential up to a relative error of 1 / near**2.
        steps = -np.log1p(np.where(is_flipped, 1 - q, q) * np.expm1(-near * (far - near))) / near * scale
        deep_quantile = np.where(is_flipped, upper - steps, lower + steps)
        x = np.where(near > _DEEP, deep_quantile, mu + scale * z)
        return np.clip(np.where(is_uniform, lower + q * (upper - lower), x), lower, upper)


def _grid_window(mu: Array, sigma: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return the first grid point with non-negligible mass, and the number of such points."""
    mode = np.clip(mu, lower, upper)
    precision = sigma**-2.0
    reach = _reach((mu - mode) * precision, precision)
    first_point = np.maximum(np.floor(mode - reach), lower + 0.5)
    last_point = np.minimum(np.ceil(mode + reach), upper - 0.5)
    return first_point, last_point - first_point + 1


def _summed(mu: Array, sigma: Array, first: Array, count: Array) -> Moments:
    """Sum over the points of each window, processing rows in order of their number of points."""
    mean, variance = np.empty_like(mu), np.empty_like(mu)
    by_count = np.argsort(count)
    for rows in chunks(by_count.size, _CHUNK):
        chunk_rows = by_count[rows]
        grid_steps = np.arange(count[chunk_rows[-1]], dtype=np.float64)
        weights = _bin_weights(mu[chunk_rows] - first[chunk_rows], sigma[chunk_rows], grid_steps, count[chunk_rows])
        weights /= weights.sum(axis=1, keepdims=True)
        mean_offset = weights @ grid_steps
        mean[chunk_rows] = first[chunk_rows] + mean_offset
        variance[chunk_rows] = (weights * (grid_steps - mean_offset[:, None]) ** 2).sum(axis=1)
    return Moments(mean, variance)


def _bin_weights(mu: Array, sigma: Array, points: Array, count: Array) -> Array:
    """Return unnormalised masses of the first `count` points, one row per distribution and one column per point."""
    is_beyond = points >= count[:, None]
    weights = np.empty((mu.size, points.size))
    furthest = np.maximum(np.abs(mu), np.abs(points[-1] - mu)) + 0.5
    nearest = np.abs(mu - np.clip(mu, -0.5, count - 0.5))
    is_narrow = np.maximum(furthest / sigma, 1.0) < _NARROW * sigma
    is_deep = ~is_narrow & (nearest > _DEEP * sigma)
    is_plain = ~is_narrow & ~is_deep
    for rows, log_weights in ((is_narrow, _log_narrow_bins), (is_deep, _log_weight_bins)):
        logs = np.where(is_beyond[rows], -np.inf, log_weights(mu[rows, None], sigma[rows, None], points))
        weights[rows] = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights[is_plain] = _plain_bins(mu[is_plain, None], sigma[is_plain, None], points)
    weights[is_beyond] = 0.0
    return weights


def _log_narrow_bins(mu: Array, sigma: Array, points: Array) -> Array:
    # A uniform has sigma = inf: any large scale gives the same ratios.
    scale = np.minimum(sigma, 1e100)
    return _log_narrow((points - 0.5 - mu) / scale, 1 / scale)


def _log_weight_bins(mu: Array, sigma: Array, points: Array) -> Array:
    return _log_weight(points - 0.5, points + 0.5, mu, sigma)


def _plain_bins(mu: Array, sigma: Array, points: Array) -> Array:
    """Differences of tail probabilities at bin edges, accurate enough for most distributions."""
    z = (np.append(points, points[-1] + 1) - 0.5 - mu) / sigma
    edge_tails = special.ndtr(-np.abs(z))
    left, right = edge_tails[:, :-1], edge_tails[:, 1:]
    return np.asarray(np.where((z[:, :-1] < 0) & (z[:, 1:] > 0), 1 - left - right, np.abs(left - right)))


def _euler_maclaurin(mu: Array, sigma: Array, lower: Array, upper: Array) -> Moments:
    """Return the moments of the rounded value by the Euler-Maclaurin formula.

    r = X - round(X) is a periodic Bernoulli polynomial. Integration by parts turns E[r], E[(X - mean) r] and
    E[r**2] - 1/12 into sums of derivatives of the density at the two edges.
    """
    mean, variance = moments(mu, sigma, lower, upper)
    shift, cross, square = np.zeros_like(mu), np.zeros_like(mu), np.zeros_like(mu)
    for sign, edge in ((1.0, upper), (-1.0, lower)):
        is_closed = np.isfinite(edge)
        x = np.where(is_closed, edge, mean)
        density = np.where(is_closed, np.exp(log_pdf(x, mu, sigma, lower, upper)), 0.0)
        derivatives = _derivatives(density, x - mu, sigma**-2.0)
        for j, coefficient in enumerate(_BERNOULLI):
            shift += sign * coefficient * derivatives[2 * j]
            cross += sign * coefficient * (x - mean) * derivatives[2 * j]
            if j > 0:
                cross += sign * coefficient * 2 * j * derivatives[2 * j - 1]
                square -= sign * coefficient * 2 * derivatives[2 * j - 1]
    return Moments(mean - shift, variance - 2 * cross + 1 / 12 + square - shift**2)


def _derivatives(density: Array, distance: Array, precision: Array) -> list[Array]:
    """Return the density of a normal and its first eight derivatives, by the recurrence of Hermite polynomials."""
    derivatives = [density, -distance * precision * density]
    for n in range(1, 8):
        derivatives.append(-precision * (distance * derivatives[n] + n * derivatives[n - 1]))
    return derivatives
