from math import exp, inf, log, pi, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from arf_dask.stats.moment_matching import match_moments, match_moments_grid
from arf_dask.stats.truncated_normal import (
    cdf,
    draw,
    grid_moments,
    log_pdf,
    mass,
    moments,
    quantile,
)
from tests.hypothesis_profiles import examples

pytestmark = pytest.mark.filterwarnings("error")

# mu, sigma, lower, upper: mild, one-sided, open, far tail, nearly uniform.
ORDINARY = [(0.0, 1.0, -1.0, 2.0), (3.0, 2.0, 2.5, 9.0), (0.0, 1.0, 1.0, inf), (1.0, 0.5, -inf, 0.0)]
ORDINARY += [(0.0, 1.0, -inf, inf), (5.0, 0.1, 0.0, 10.0), (-1.0, 0.2, 0.0, 1.0)]
EXTREME = [(0.0, 1.0, 30.0, 31.0), (0.0, 1.0, -101.0, -100.0), (50.0, 1e3, 0.0, 1.0), (2e4, 1e3, 0.0, 1.0)]
EXTREME += [(0.0, 1.0, 60.0, inf), (0.0, inf, 2.0, 4.0)]

fractions = st.floats(0.0, 1.0, allow_subnormal=False)  # a subnormal distance from an edge is none
exponents = st.floats(-12.0, 12.0)


@st.composite
def boxes(draw_from: Any) -> Any:
    """lower, upper: widths from 1e-12 to 1e12, up to 1e9 widths away from 0."""
    width = 10.0 ** draw_from(exponents)
    lower = width * draw_from(st.sampled_from([0.0, -1.0, 1.0])) * 10.0 ** draw_from(st.floats(-3.0, 9.0))
    return lower, lower + width


@st.composite
def distributions(draw_from: Any) -> Any:
    lower, upper = draw_from(st.tuples(st.just(0.0), st.floats(0.01, 100.0)))
    sigma = upper * 10.0 ** draw_from(st.floats(-3.0, 3.0))
    outside = draw_from(st.floats(0.0, 30.0)) * sigma
    mu = draw_from(st.sampled_from([-outside, upper + outside, draw_from(fractions) * upper]))
    return mu, sigma, lower, upper


@pytest.mark.parametrize("distribution", ORDINARY)
def test_agrees_with_scipy(distribution: Any) -> None:
    mu, sigma, lower, upper = distribution
    theirs = stats.truncnorm((lower - mu) / sigma, (upper - mu) / sigma, mu, sigma)
    x = theirs.ppf(np.linspace(0.05, 0.95, 7))
    np.testing.assert_allclose(log_pdf(x, *distribution), theirs.logpdf(x), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(cdf(x, *distribution), theirs.cdf(x), rtol=1e-9)
    np.testing.assert_allclose(quantile(theirs.cdf(x), *distribution), x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(draw(theirs.cdf(x), *distribution), x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moments(*distribution).mean, theirs.mean(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moments(*distribution).variance, theirs.var(), rtol=1e-9)


@pytest.mark.parametrize("distribution", [d for d in ORDINARY + EXTREME if np.isfinite(d[2:]).all()])
def test_density_integrates_to_one_mean_and_variance(distribution: Any) -> None:
    *_, lower, upper = distribution
    mean, variance = moments(*distribution)
    sd = float(np.sqrt(variance))
    start, stop = max(lower, mean - 40 * sd), min(upper, mean + 40 * sd)

    def integral(power: Any) -> Any:
        value, _ = integrate.quad(
            lambda x: ((x - mean) / sd) ** power * exp(log_pdf(x, *distribution)),
            *(start, stop),
            points=[p for p in (mean - 5 * sd, mean, mean + 5 * sd) if start < p < stop],
            epsabs=1e-12,
            limit=200,
        )
        return value

    assert [integral(power) for power in range(3)] == pytest.approx([1.0, 0.0, 1.0], abs=1e-9)


def test_half_normal_by_hand() -> None:
    distribution = (0.0, 2.0, 0.0, inf)
    assert log_pdf(0.0, *distribution) == pytest.approx(log(2 / (2 * sqrt(2 * pi))))
    assert moments(*distribution).mean == pytest.approx(2 * sqrt(2 / pi), rel=1e-14)
    assert moments(*distribution).variance == pytest.approx(4 * (1 - 2 / pi), rel=1e-13)
    assert mass(-9.0, 2.0, *distribution) == pytest.approx(0.6826894921370859, rel=1e-14)
    assert quantile(0.6826894921370859, *distribution) == pytest.approx(2.0, rel=1e-14)


def test_far_tail_is_nearly_exponential() -> None:
    # At z = 100 sigma: mean = 1 / z - 2 / z**3 + 10 / z**5, variance = 1 / z**2 - 6 / z**4 + 50 / z**6.
    mean, variance = moments(0.0, 1.0, 100.0, inf)
    assert mean - 100 == pytest.approx(1e-2 - 2e-6 + 10e-10, abs=1e-12)
    assert variance == pytest.approx(1e-4 - 6e-8 + 50e-12, rel=1e-8)


def test_infinite_sigma_is_the_uniform() -> None:
    distribution = (7.0, inf, 2.0, 4.0)
    assert log_pdf([1.9, 2.0, 3.0, 4.1], *distribution).tolist() == [-inf, -log(2), -log(2), -inf]
    assert mass([0.0, 2.5, 5.0], [2.5, 3.0, 6.0], *distribution) == pytest.approx([0.25, 0.25, 0.0])
    assert quantile([0.0, 0.25, 1.0], *distribution).tolist() == [2.0, 2.5, 4.0]
    assert draw([0.0, 0.25, 0.5], *distribution).tolist() == [2.0, 2.5, 3.0]
    assert moments(*distribution) == pytest.approx((3.0, 1 / 3))


@given(distributions(), st.lists(fractions, max_size=6))
def test_masses_of_a_partition_sum_to_one(distribution: Any, cuts: Any) -> None:
    _, _, lower, upper = distribution
    edges = np.array([lower, *sorted(lower + c * (upper - lower) for c in cuts), upper])
    parts = mass(edges[:-1], edges[1:], *distribution)
    assert (parts >= 0).all()
    assert parts.sum() == pytest.approx(1.0, abs=1e-11)


@given(distributions(), fractions)
def test_quantile_inverts_cdf(distribution: Any, fraction: Any) -> None:
    _, _, lower, upper = distribution
    x = lower + fraction * (upper - lower)
    below, above = cdf(x, *distribution), mass(x, upper, *distribution)
    back = quantile(below, *distribution)
    # In a thin tail the rounding of the cdf, 2e-13 at 30 sigma, is a long way of x.
    slack = 1e-9 * (upper - lower) + 2e-13 / np.maximum(np.exp(log_pdf(x, *distribution)), 1e-300)
    if above > 1e-12 and below > 1e-300:
        assert abs(back - x) <= slack


@given(distributions(), st.lists(fractions, min_size=1, max_size=20))
def test_draws_lie_inside_and_follow_the_quantiles(distribution: Any, u: Any) -> None:
    _, _, lower, upper = distribution
    drawn, exact = draw(u, *distribution), quantile(u, *distribution)
    assert ((drawn >= lower) & (drawn <= upper)).all()
    assert ((exact >= lower) & (exact <= upper)).all()
    inner = (np.array(u) > 1e-6) & (np.array(u) < 1 - 1e-6)
    np.testing.assert_allclose(drawn[inner], exact[inner], atol=1e-8 * (upper - lower))


@pytest.mark.parametrize("distribution", ORDINARY + EXTREME)
def test_nothing_is_nan_and_shapes_broadcast(distribution: Any) -> None:
    x = np.array([[-1e300, -inf], [0.0, 0.5], [31.0, inf]])
    q = np.array([[0.0, 1.0], [1e-300, 0.3], [0.5, 1 - 1e-16]])
    for value in (log_pdf(x, *distribution), cdf(x, *distribution), mass(x, 2.0, *distribution)):
        assert value.shape == (3, 2)
        assert not np.isnan(value).any()
    for value in (quantile(q, *distribution), draw(q, *distribution)):
        assert ((value >= distribution[2]) & (value <= distribution[3])).all()


@settings(max_examples=examples(500))
@given(boxes(), fractions, st.floats(-9.0, 3.0))
def test_matched_mean_is_exact_for_any_mean_variance_and_box(box: Any, fraction: Any, spread: Any) -> None:
    lower, upper = box
    width = upper - lower
    mean = min(max(lower + fraction * width, lower), upper)
    mu, sigma = match_moments(mean, (width * 10.0**spread) ** 2, lower, upper)
    if mean in (lower, upper):
        mean += 1e-6 * width * (1 if mean == lower else -1)
    resolution = 8 * np.spacing(max(abs(mu), abs(lower), abs(upper)))
    assert abs(moments(mu, sigma, lower, upper).mean - mean) <= 1e-10 * width + resolution
    assert max(lower - mu, mu - upper) <= 30 * sigma
    assert 1e-9 * width * (1 - 1e-12) <= sigma <= 1e3 * width * (1 + 1e-12)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(-2.0, 2.0), st.floats(-29.0, 29.0))
def test_matching_finds_the_parameters_that_made_the_moments(place: Any, log_sigma: Any, shift: Any) -> None:
    sigma = 10.0**log_sigma
    mu = place + min(shift, 0.0) * sigma + max(shift, 0.0) * sigma
    wanted = moments(mu, sigma, 0.0, 1.0)
    if max(-mu, mu - 1) < 20 * sigma and 1e-6 < wanted.mean < 1 - 1e-6:
        found = moments(*match_moments(*wanted, 0.0, 1.0), 0.0, 1.0)
        assert found.mean == pytest.approx(wanted.mean, abs=1e-11)
        assert found.variance == pytest.approx(wanted.variance, rel=1e-8)


def test_matching_on_a_fine_grid_of_means_and_variances() -> None:
    mean, sd = np.meshgrid(np.linspace(0.001, 0.999, 301), 10.0 ** np.linspace(-5, 0.5, 301))
    found = moments(*match_moments(mean, sd**2, 0.0, 1.0), 0.0, 1.0)
    assert np.abs(found.mean - mean).max() < 1e-11
    assert (found.variance <= sd**2 * (1 + 1e-8)).all()
    # Half the way to the edge is always within reach of a truncated normal.
    within = sd < 0.5 * np.minimum(mean, 1 - mean)
    np.testing.assert_allclose(found.variance[within], sd[within] ** 2, rtol=1e-8)


def test_variance_out_of_reach_ends_at_the_uniform_or_the_exponential() -> None:
    middle = moments(*match_moments(0.5, 9.0, 0.0, 1.0), 0.0, 1.0)
    assert middle == pytest.approx((0.5, 1 / 12), rel=1e-6)
    side = moments(*match_moments(1.0, 9.0, 0.0, inf), 0.0, inf)
    assert side.mean == pytest.approx(1.0, rel=1e-12)
    assert side.variance == pytest.approx(1.0, rel=3e-3)


def test_open_edges() -> None:
    np.testing.assert_array_equal(match_moments(3.0, 4.0, -inf, inf), (3.0, 2.0))
    for lower, upper, mean in ((0.0, inf, 0.8), (-inf, 0.0, -0.8)):
        found = moments(*match_moments(mean, 0.3, lower, upper), lower, upper)
        assert found == pytest.approx((mean, 0.3), rel=1e-8)


def test_means_on_or_beyond_an_edge_move_just_inside() -> None:
    mean = moments(*match_moments([-5.0, 0.0, 2.0, 3.0], [0.0, 1.0, 0.0, 1.0], 0.0, 2.0), 0.0, 2.0).mean
    assert mean == pytest.approx([2e-6, 2e-6, 2 - 2e-6, 2 - 2e-6], abs=1e-12)


def test_matching_nothing_gives_nothing() -> None:
    assert match_moments([], [], [], []).mu.shape == (0,)
    assert match_moments_grid([], [], [], []).mu.shape == (0,)


def test_grid_masses_by_hand() -> None:
    # Three points with edges at -1.5, -0.5, 0.5, 1.5.
    total = stats.norm.cdf(1.5) - stats.norm.cdf(-1.5)
    middle = (stats.norm.cdf(0.5) - stats.norm.cdf(-0.5)) / total
    points = np.arange(-2, 3)
    masses = mass(points - 0.5, points + 0.5, 0.0, 1.0, -1.5, 1.5)
    assert masses == pytest.approx([0.0, (1 - middle) / 2, middle, (1 - middle) / 2, 0.0], rel=1e-13)
    assert grid_moments(0.0, 1.0, -1.5, 1.5) == pytest.approx((0.0, 1 - middle), abs=1e-14)
    assert grid_moments(0.0, inf, -0.5, 9.5) == pytest.approx((4.5, 99 / 12), rel=1e-13)
    assert mass(89.5, 90.5, 0.0, 1.0, -99.5, 99.5) >= 0


@pytest.mark.parametrize(
    ("mu", "sigma", "lower", "upper"),
    [
        (30.0, 200.0, -0.5, 99.5),
        (-50.0, 30.0, -0.5, 299.5),
        (-600.0, 60.0, -0.5, 4999.5),
        (1200.0, 40.0, -0.5, 999.5),
        (41.3, 0.2, -0.5, 999.5),
        (3.0, 2.0, -0.5, 999.5),
        (-5000.0, 100.0, -0.5, 999.5),
        (0.0, inf, -0.5, 199.5),
    ],
)
def test_grid_moments_are_the_sums_over_all_points(mu: Any, sigma: Any, lower: Any, upper: Any) -> None:
    points = np.arange(lower + 0.5, upper)
    masses = mass(points - 0.5, points + 0.5, mu, sigma, lower, upper)
    mean = masses @ points
    assert masses.sum() == pytest.approx(1.0, abs=1e-11)
    found = grid_moments(mu, sigma, lower, upper)
    assert found.mean == pytest.approx(mean, abs=1e-10 * points.size)
    assert found.variance == pytest.approx(masses @ (points - mean) ** 2, rel=1e-9)


@given(st.integers(1, 10**6), fractions, st.floats(-6.0, 1.0), st.integers(-1000, 1000))
def test_matched_grid_mean_is_exact(n_points: Any, fraction: Any, spread: Any, first: Any) -> None:
    lower, upper = first - 0.5, first + n_points - 0.5
    mean, variance = first + fraction * (n_points - 1), (n_points * 10.0**spread) ** 2
    mu, sigma = match_moments_grid(mean, variance, lower, upper)
    found = grid_moments(mu, sigma, lower, upper)
    # mu has the resolution of its floats, which a small sigma turns into mass.
    assert abs(found.mean - mean) <= 1e-10 * n_points + 8 * np.spacing(abs(mu)) / min(sigma, 1.0)
    assert found.variance <= max(variance * (1 + 1e-6), (mean % 1) * (1 - mean % 1) * (1 + 1e-6) + 1e-12)
    assert max(lower - mu, mu - upper) <= 30 * sigma * (1 + 1e-12)


@settings(max_examples=examples(50))
@given(st.integers(3, 300), fractions, st.floats(-0.5, 2.0))
def test_grid_matching_finds_the_variance(n_points: Any, place: Any, log_sigma: Any) -> None:
    mu, sigma = place * (n_points - 1), min(10.0**log_sigma, 3.0 * n_points)
    wanted = grid_moments(mu, sigma, -0.5, n_points - 0.5)
    found = grid_moments(*match_moments_grid(*wanted, -0.5, n_points - 0.5), -0.5, n_points - 0.5)
    assert found.mean == pytest.approx(wanted.mean, abs=1e-10 * n_points)
    assert found.variance == pytest.approx(wanted.variance, rel=1e-6)


def test_one_and_two_grid_points() -> None:
    np.testing.assert_array_equal(grid_moments(*match_moments_grid(3.0, 7.0, 2.5, 3.5), 2.5, 3.5), (3.0, 0.0))
    found = grid_moments(*match_moments_grid([3.25, 3.0, 4.0], 7.0, 2.5, 4.5), 2.5, 4.5)
    assert found.mean == pytest.approx([3.25, 3.0, 4.0], abs=1e-11)
    assert found.variance == pytest.approx([0.1875, 0.0, 0.0], abs=1e-11)


def test_open_grid_ends_at_the_geometric() -> None:
    found = grid_moments(*match_moments_grid(2.0, [3.0, 99.0], -0.5, inf), -0.5, inf)
    assert found.mean == pytest.approx([2.0, 2.0], abs=1e-10)
    # A geometric with mean m has the variance m (1 + m).
    assert found.variance == pytest.approx([3.0, 6.0], rel=4e-3)
