"""Smoothing of two-way tables of counts: shrink them towards a smooth table with the same marginals.

With 16 x 16 bins, a few thousand rows leave few rows per cell. The smooth table has the log-linear form

    log m(a, b) = log e(a, b) + alpha(a) + beta(b) + sum over i, j of theta(i, j) * f_i(a) * f_j(b)

where e is a given table of expected counts, alpha and beta give it the marginals of the observed counts, and f are
polynomials of normal scores: a bivariate normal has this form. How many rows the smooth table is worth beside the
observed ones is chosen by leave-one-out likelihood (pseudo-Bayes estimation, Fienberg and Holland 1973), so that a
table of another form keeps its own counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from arf_dask.typing import Floats

DEGREE = 3  # of the polynomials
NEWTON_STEPS = 25  # maximum number of Newton steps
NEWTON_TOLERANCE = 1e-6  # gain of log-likelihood per row at which Newton's method stops
SHORTEST_STEP = 1e-3  # smallest share of a Newton step to try
RIDGE = 1e-3  # added to the curvature: effects of rows and columns have a common factor, and some have no counts
LEAST_EXPECTED = 1e-6  # of a cell, in rows
PRIOR_ROWS = 2.0 ** np.arange(25)  # candidates for the number of rows that the smooth table is worth


def smooth_counts(observed: Floats, expected: Floats) -> Floats:
    """Return the counts of a table, shrunk towards a smooth table with the same marginals.

    Args:
        observed: (row bin, column bin): counts, with bins in order.
        expected: (row bin, column bin): counts expected without dependence.
    """
    n_counted = observed.sum()
    if n_counted <= 1:
        return observed
    smooth = smooth_table(observed, np.maximum(expected, LEAST_EXPECTED))
    prior = smooth / smooth.sum()
    counts, cell_prior = observed[observed > 0], prior[observed > 0]
    # The log-likelihood of every row, given the table of all other rows.
    likelihoods = [counts @ np.log((counts - 1 + k * cell_prior) / (n_counted - 1 + k)) for k in PRIOR_ROWS]
    prior_rows = PRIOR_ROWS[int(np.argmax(likelihoods))]
    return np.asarray((observed + prior_rows * prior) * (n_counted / (n_counted + prior_rows)))


def smooth_table(observed: Floats, expected: Floats) -> Floats:
    """Return the log-linear table with the marginals and the score moments of the observed counts (module docstring).

    It is the maximum-likelihood fit of a Poisson regression, found by Newton's method.
    """
    n_rows, n_columns = observed.shape
    design = np.hstack(
        [
            np.kron(np.eye(n_rows), np.ones((n_columns, 1))),
            np.kron(np.ones((n_rows, 1)), np.eye(n_columns)),
            np.kron(_scores(observed.sum(axis=1)), _scores(observed.sum(axis=0))),
        ]
    )
    regression = _Regression(design, np.log(expected).ravel(), observed.ravel())
    # Start from equal totals.
    effects = np.zeros(design.shape[1])
    effects[:n_rows] = np.log(observed.sum() / expected.sum())
    means, likelihood = regression.at(effects)
    for _ in range(NEWTON_STEPS):
        step, size = regression.newton_step(means), 1.0
        new_means, new_likelihood = regression.at(effects + step)
        while new_likelihood < likelihood and size > SHORTEST_STEP:
            size /= 2
            new_means, new_likelihood = regression.at(effects + size * step)
        gain = new_likelihood - likelihood
        if gain < 0:
            break
        effects, means, likelihood = effects + size * step, new_means, new_likelihood
        if gain <= NEWTON_TOLERANCE * observed.sum():
            break
    return means.reshape(observed.shape)


class _Regression(NamedTuple):
    """A Poisson regression. One row per cell of the table."""

    design: Floats  # (cell, effect)
    offset: Floats
    counts: Floats

    def at(self, effects: Floats) -> tuple[Floats, float]:
        """Return the mean of every cell, and the log-likelihood up to a constant."""
        logs = np.clip(self.offset + self.design @ effects, -50.0, 50.0)
        means = np.exp(logs)
        return means, float(self.counts @ logs - means.sum())

    def newton_step(self, means: Floats) -> Floats:
        """Return the change of effects that maximises the quadratic approximation of the log-likelihood."""
        curvature = (self.design * means[:, None]).T @ self.design
        curvature[np.diag_indices_from(curvature)] += RIDGE
        return np.asarray(np.linalg.solve(curvature, self.design.T @ (self.counts - means)), dtype=np.float64)


def _scores(marginal: Floats) -> Floats:
    """Return polynomials of the normal scores of bins, (bin, degree): orthonormal under the marginal, and centred."""
    shares = (marginal + 0.5) / (marginal + 0.5).sum()
    normal_scores = special.ndtri(np.cumsum(shares) - shares / 2)
    powers = np.vander(normal_scores, min(DEGREE, len(marginal) - 1) + 1, increasing=True)
    basis, _ = np.linalg.qr(powers * np.sqrt(shares)[:, None])
    return np.asarray(basis[:, 1:] / np.sqrt(shares)[:, None])
