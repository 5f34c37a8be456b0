"""The simulated data of the paper: cassini, shapes and smiley after R's mlbench, two moons after fdm2id.

The shapes, their shares and their noise follow the documentation of these packages; exact coordinates are our own.
Every function takes the number of rows and a generator, and returns a frame.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DIMENSIONS = 10  # of the Toeplitz Gaussian


def cassini(n: int, rng: np.random.Generator) -> pl.DataFrame:
    """Uniform in two bananas and in the circle between them; each banana has two fifths of the rows."""
    bananas = [_banana(round(0.4 * n), 1.0, rng), _banana(round(0.4 * n), -1.0, rng)]
    circle = _disc(n - sum(map(len, bananas)), 0.5, rng)
    return _labelled([*bananas, circle])


def shapes(n: int, rng: np.random.Generator) -> pl.DataFrame:
    """A Gaussian, a square, a triangle and a wave, a quarter of the rows each."""
    first, second, third, fourth = _shares(n, 4)
    gaussian = rng.normal([-1.0, 1.0], 0.25, size=(first, 2))
    square = rng.uniform([0.5, 0.5], [1.5, 1.5], size=(second, 2))
    height = np.sqrt(rng.uniform(0.0, 1.0, third))  # uniform in a triangle with its point at the bottom
    triangle = np.column_stack([-1.0 + height * rng.uniform(-0.6, 0.6, third), -1.6 + 1.2 * height])
    along = rng.uniform(0.4, 1.6, fourth)
    wave = np.column_stack([along, -1.0 + 0.4 * np.sin(3 * np.pi * along) + rng.normal(0.0, 0.08, fourth)])
    return _labelled([gaussian, square, triangle, wave])


def smiley(n: int, rng: np.random.Generator) -> pl.DataFrame:
    """Two Gaussian eyes, a trapezoid nose and a parabola for a mouth, a sixth, a sixth, a quarter and the rest."""
    eye, nose = n // 6, n // 4
    eyes = [rng.normal([side, 1.0], 0.1, size=(eye, 2)) for side in (-0.8, 0.8)]
    up = rng.uniform(0.0, 1.0, nose)
    trapezoid = np.column_stack([rng.uniform(-0.2, 0.2, nose) * (2 - up) / 1.5, up * 1.0 - 0.2])
    along = rng.uniform(-1.0, 1.0, n - 2 * eye - nose)
    mouth = np.column_stack([along, along**2 - 1.0 + rng.normal(0.0, 0.05, len(along))])
    return _labelled([*eyes, trapezoid, mouth])


def two_moons(n: int, rng: np.random.Generator) -> pl.DataFrame:
    """Two interleaved half circles with Gaussian noise, half of the rows each."""
    first, second = _shares(n, 2)
    upper, lower = rng.uniform(0.0, np.pi, first), rng.uniform(0.0, np.pi, second)
    moons = [
        np.column_stack([np.cos(upper), np.sin(upper)]),
        np.column_stack([1.0 - np.cos(lower), 0.5 - np.sin(lower)]),
    ]
    return _labelled([moon + rng.normal(0.0, 0.1, moon.shape) for moon in moons])


PATTERNS: dict[str, Callable[[int, np.random.Generator], pl.DataFrame]] = {
    "cassini": cassini,
    "shapes": shapes,
    "smiley": smiley,
    "two moons": two_moons,
}


def toeplitz_covariance(d: int = DIMENSIONS) -> Floats:
    """The covariance 0.9^|i-j|."""
    return 0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))


def toeplitz(n: int, rng: np.random.Generator) -> pl.DataFrame:
    """Ten Gaussians with Toeplitz covariance."""
    points = rng.multivariate_normal(np.zeros(DIMENSIONS), toeplitz_covariance(), size=n, method="cholesky")
    return pl.DataFrame(points, schema=[f"x{i}" for i in range(DIMENSIONS)], orient="row")


def toeplitz_target(points: pl.DataFrame, informative: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A target of which so large a share of the columns is informative: Bernoulli of the logistic of their sum."""
    weights = np.zeros(DIMENSIONS)
    weights[: round(informative * DIMENSIONS)] = 1.0
    score = points.to_numpy() @ rng.permutation(weights)
    return np.asarray(rng.uniform(size=len(score)) < 1 / (1 + np.exp(-score)))


def stand_in(n: int, rng: np.random.Generator) -> pl.DataFrame:
    """Generate a census-like table: numbers, spikes, categories, a function of a column, and a binary target."""
    age = np.clip(rng.gamma(6.0, 6.5, n), 17, 90).round().astype(np.int64)
    schooling = np.clip(rng.normal(10 + 0.02 * age, 2.5), 1, 16).round().astype(np.int64)
    degree = np.array(["none", "school", "college", "master"])[np.searchsorted([8, 12, 15], schooling)]
    married = rng.uniform(size=n) < 1 / (1 + np.exp(-(age - 32) / 8))
    hours = np.where(rng.uniform(size=n) < 0.45, 40, np.clip(rng.normal(40, 12, n), 1, 99)).round().astype(np.int64)
    sector = rng.choice(["private", "public", "self"], n, p=[0.7, 0.2, 0.1])
    gain = np.where(rng.uniform(size=n) < 0.06 + 0.004 * schooling, np.exp(rng.normal(8.0, 0.9, n)), 0.0).round()
    score = 0.35 * (schooling - 12) + 1.6 * married + 0.04 * (hours - 40) + 0.02 * (age - 40) + 0.5 * (gain > 5000)
    rich = rng.uniform(size=n) < 1 / (1 + np.exp(1.8 - score))
    return pl.DataFrame(
        {"age": age, "schooling": schooling, "degree": degree, "married": married, "hours": hours, "sector": sector}
        | {"gain": gain, "income": np.where(rich, ">50K", "<=50K")}
    )


def with_missing(table: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Remove hours and gain together, in most rows of one sector and in few rows of the others."""
    chance = np.where((table["sector"] == "self").to_numpy(), 0.9, 0.05)
    blank = pl.Series(rng.uniform(size=table.height) < chance)
    return table.with_columns(pl.when(~blank).then(pl.col("hours", "gain")))


def _banana(n: int, side: float, rng: np.random.Generator) -> Floats:
    """Uniform in half a ring that bends towards the middle, above it (side 1) or below it (side -1)."""
    angle = rng.uniform(0.0, np.pi, n)
    radius = np.sqrt(rng.uniform(0.75**2, 1.25**2, n))
    return np.column_stack([1.2 * radius * np.cos(angle), side * (1.9 - radius * np.sin(angle))])


def _disc(n: int, radius: float, rng: np.random.Generator) -> Floats:
    angle, distance = rng.uniform(0.0, 2 * np.pi, n), radius * np.sqrt(rng.uniform(0.0, 1.0, n))
    return np.column_stack([distance * np.cos(angle), distance * np.sin(angle)])


def _shares(n: int, parts: int) -> list[int]:
    return [n // parts + (part < n % parts) for part in range(parts)]


def _labelled(groups: list[Floats]) -> pl.DataFrame:
    """The points of all classes, one after the other, with the class as text."""
    points = np.concatenate(groups)
    label = np.repeat([str(number + 1) for number in range(len(groups))], [len(group) for group in groups])
    return pl.DataFrame({"x": points[:, 0], "y": points[:, 1], "class": label})
