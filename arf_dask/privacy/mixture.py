"""A mixture of products over the cells of columns, fitted to noisy one- and two-way tables by gradient steps (Adam).

The mixture has equal weights; component k has a distribution over the cells of every column. Its two-way tables are
the products P'P / K of the matrix P of all distributions, so that a step costs two matrix products per resolution.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from arf_dask.typing import Counts, Floats, Ints

Singles = NDArray[np.float32]
JITTER = 0.3  # standard deviation of the first logarithms around the shares of all rows
MOMENTUM, MEMORY = 0.9, 0.99
LONG_RUN = 200  # runs of at least so many steps lower their rate to almost zero
RATE = 0.1
ONE_THREAD = {"limits": 1}
LEAST_LOG = -25.0  # of a mass relative to the largest: products of smaller ones are slow denormal numbers


class Target(NamedTuple):
    """Two-way tables at one resolution: shares of rows, and weights that are zero where nothing is known."""

    groups: Singles | None  # (cell, group) indicators; None: cells themselves
    shares: Singles
    weights: Singles


class Mixture:
    """Logarithms of the distributions of all components, (component, cell), and the state of the optimiser."""

    def __init__(self, shares: Floats, offsets: Counts, components: int, rng: np.random.Generator) -> None:
        self.offsets = offsets
        self.components = components
        self._block = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        noise = JITTER * rng.standard_normal((components, int(offsets[-1])))
        self._logs = (np.log(np.maximum(shares, 1e-6)) + noise).astype(np.float32)
        self._mean, self._square, self._steps = np.zeros_like(self._logs), np.zeros_like(self._logs), 0

    def distributions(self) -> Singles:
        """Return the distribution of every component over the cells of every column, side by side."""
        shifted = self._logs - np.maximum.reduceat(self._logs, self.offsets[:-1], axis=1)[:, self._block]
        masses = np.exp(np.maximum(shifted, LEAST_LOG))
        return np.asarray(masses / np.add.reduceat(masses, self.offsets[:-1], axis=1)[:, self._block])

    def pair_shares(self) -> Singles:
        """Return the two-way tables of all pairs of cells."""
        masses = self.distributions()
        return np.asarray(masses.T @ masses / self.components)

    def fit(self, shares: Floats, weights: Floats, targets: list[Target], steps: int) -> None:
        """Take gradient steps towards one-way shares with their weights and two-way targets."""
        with threadpool_limits(**ONE_THREAD):  # the products are small: threads would wait for each other
            self._descend(shares, weights, targets, steps)

    def _descend(self, shares: Floats, weights: Floats, targets: list[Target], steps: int) -> None:
        one, one_weights = shares.astype(np.float32), weights.astype(np.float32)
        for step in range(steps):
            masses = self.distributions()
            slopes = np.broadcast_to((masses.mean(axis=0) - one) * one_weights, masses.shape).copy()
            for target in targets:
                grouped = masses if target.groups is None else masses @ target.groups
                errors = (grouped.T @ grouped / self.components - target.shares) * target.weights
                pulled = grouped @ errors
                slopes += pulled if target.groups is None else pulled @ target.groups.T
            inside = np.add.reduceat(masses * slopes, self.offsets[:-1], axis=1)[:, self._block]
            rate = RATE * (1.0 if steps < LONG_RUN else min(1.0, 2 * (1 - step / steps) + 0.02))
            self._step(masses * (slopes - inside), rate)

    def _step(self, gradient: Singles, rate: float) -> None:
        self._steps += 1
        self._mean = MOMENTUM * self._mean + (1 - MOMENTUM) * gradient
        self._square = MEMORY * self._square + (1 - MEMORY) * gradient**2
        floor = 1e-12 * (1 + float(np.abs(gradient).max()))
        size = np.sqrt(self._square / (1 - MEMORY**self._steps)) + floor
        self._logs -= rate * (self._mean / (1 - MOMENTUM**self._steps)) / size

    def draw(self, rows: int, rng: np.random.Generator) -> list[Ints]:
        """Return drawn cells, one array per column; every component gets its exact share of the rows."""
        masses = self.distributions().astype(np.float64)
        component = rng.permutation(np.arange(rows) % self.components)
        drawn = []
        for low, high in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True):
            sums = np.cumsum(masses[:, low:high], axis=1)
            # All components are searched at once: their sums are stacked into one ascending line.
            line = (sums / sums[:, -1:] + np.arange(self.components)[:, None]).ravel()
            found = np.searchsorted(line, component + rng.random(rows), side="right")
            drawn.append(np.clip(found - component * (high - low), 0, high - low - 1).astype(np.int32))
        return drawn
