"""Sinkhorn scaling: fit one table of ratios to the marginals of many small tables at once.

A table of ratios R (row bin, column bin) gives how much more often two bins occur together than under independence.
For the marginals p and c of one leaf, p * u * R * v * c is a joint distribution with exactly these marginals if

    u = 1 / (R @ (c * v))    and    v = 1 / ((p * u) @ R).

Alternating the two updates (Sinkhorn) always converges if R is positive, but slowly if R is close to a permutation. The
factors are therefore extrapolated every few steps, and tables that have not converged after some rounds are solved by
Newton steps on the same equations. Convergence is judged by a step of Sinkhorn's, which finds the error of the
marginals: where ratios are steep, Newton steps go on changing factors by rounding errors that change no marginal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.stats.thin_products import thin_product
from arf_dask.typing import Counts, Flags, Floats

TOLERANCE = 1e-11
CHECKED_EVERY = 3  # Sinkhorn steps per round
SINKHORN_ROUNDS = 8  # rounds before switching to Newton's method
MOST_STEPS = 40  # maximum number of Newton steps; ratios above 1e-6 take about 12
LARGEST_SHARE = 0.95  # upper bound of the ratio of consecutive steps in the extrapolation
LONGEST_STEP = 3.0  # maximum change of the log of a factor in one Newton step
TABLES_AT_ONCE = 1_024  # small enough for the cache of a core
_TINY = 1e-280


class Factors(NamedTuple):
    """The factors of the ratios. One row per table."""

    rows: Floats  # (table, row bin): u
    columns: Floats  # (table, column bin): v


def scale_ratios(
    ratios: Floats, rows: Floats, columns: Floats, *, tolerance: float = TOLERANCE, start: Factors | None = None
) -> Factors:
    """Return the factors that give every table its marginals.

    Args:
        ratios: (row bin, column bin), positive and shared by all tables.
        rows: (table, row bin), the row marginals of every table, which sum to one. Bins may have no mass.
        columns: (table, column bin), the column marginals.
        tolerance: Maximum relative error of the marginals of the side with more bins; those of the other are exact.
        start: Initial factors, for example those of similar ratios.

    >>> half = np.array([[0.5, 0.5]])
    >>> found = scale_ratios(np.array([[3.0, 1.0], [1.0, 3.0]]), half, half)
    >>> float((found.rows[0, 0] * found.columns[0, 0]).round(9))
    0.5
    """
    if ratios.shape[1] > ratios.shape[0]:
        # Newton steps solve equations of the columns: let these be the side with fewer bins.
        swapped = None if start is None else Factors(start.columns, start.rows)
        u, v = scale_ratios(ratios.T, columns, rows, tolerance=tolerance, start=swapped)
        return Factors(v, u)
    parts = []
    for first in range(0, max(len(rows), 1), TABLES_AT_ONCE):
        table_slice = slice(first, first + TABLES_AT_ONCE)
        start_factors = None if start is None else Factors(start.rows[table_slice], start.columns[table_slice])
        parts.append(_scale_some(ratios, rows[table_slice], columns[table_slice], tolerance, start_factors))
    return Factors(*(np.concatenate(side) for side in zip(*parts, strict=True)))


def row_factors(ratios: Floats, columns: Floats, column_factors: Floats) -> Floats:
    """Return the row factors that make the row marginals of every table exact, given its column factors.

    >>> row_factors(np.array([[3.0, 1.0], [1.0, 3.0]]), np.array([[0.5, 0.5]]), np.ones((1, 2)))
    array([[0.5, 0.5]])
    """
    return np.asarray(1 / thin_product(columns * column_factors, np.ascontiguousarray(ratios.T)))


class _Open(NamedTuple):
    """The tables that have not converged. One row per table."""

    number: Counts
    rows: Floats  # marginals
    columns: Floats
    u: Floats
    v: Floats
    step: Floats  # the last Newton step of log v

    def keep(self, some: Flags) -> _Open:
        """Keep the flagged tables."""
        number, rows, columns, u, v, step = self
        return _Open(number[some], rows[some], columns[some], u[some], v[some], step[some])


def _scale_some(ratios: Floats, rows: Floats, columns: Floats, tolerance: float, start: Factors | None) -> Factors:
    factors = Factors(np.ones(rows.shape), np.ones(columns.shape)) if start is None else Factors(*map(np.copy, start))
    open_tables = _Open(np.arange(len(rows)), rows, columns, *factors, np.zeros(columns.shape))
    transposed = np.ascontiguousarray(ratios.T)
    for _ in range(SINKHORN_ROUNDS):
        u_history = [open_tables.u]
        for _ in range(CHECKED_EVERY):
            u = 1 / thin_product(open_tables.columns * open_tables.v, transposed)
            open_tables = open_tables._replace(u=u, v=1 / thin_product(open_tables.rows * u, ratios))
            u_history.append(u)
        open_tables, u_history = _take_settled(open_tables, u_history[-3:], tolerance, factors)
        if not len(open_tables.number):
            return factors
        u = _extrapolate(*u_history)
        open_tables = open_tables._replace(u=u, v=1 / thin_product(open_tables.rows * u, ratios))
    for _ in range(MOST_STEPS):
        step = _newton_step(ratios, open_tables)
        v = open_tables.v * np.exp(step)
        last_u = 1 / thin_product(open_tables.columns * v, transposed)
        v = 1 / thin_product(open_tables.rows * last_u, ratios)
        u = 1 / thin_product(open_tables.columns * v, transposed)
        v = 1 / thin_product(open_tables.rows * u, ratios)
        open_tables, _ = _take_settled(open_tables._replace(u=u, v=v, step=step), [last_u, u], tolerance, factors)
        if not len(open_tables.number):
            return factors
    factors.rows[open_tables.number], factors.columns[open_tables.number] = open_tables.u, open_tables.v
    return factors


def _take_settled(left: _Open, trail: list[Floats], tolerance: float, found: Factors) -> tuple[_Open, list[Floats]]:
    """Move converged tables into `found`; return the remaining tables and their last factors `trail`."""
    # (bin, table): NumPy reduces the few bins of many tables several times faster along the first axis.
    change = np.ascontiguousarray((trail[-2] / trail[-1]).T)
    min_change = change.min(axis=0)
    # A factor common to a whole table is ignored.
    is_settled = change.max(axis=0) - min_change <= tolerance * min_change
    if not is_settled.any():
        return left, trail
    number = left.number[is_settled]
    found.rows[number], found.columns[number] = left.u[is_settled], left.v[is_settled]
    return left.keep(~is_settled), [part[~is_settled] for part in trail]


def _extrapolate(first: Floats, second: Floats, third: Floats) -> Floats:
    """Extrapolate three consecutive factors, assuming that each step is a fixed share of the previous one.

    Steps are ratios of factors; a factor common to a whole table is ignored.
    """
    first_step, second_step = second / first, third / second
    first_step, second_step = first_step / first_step[:, :1], second_step / second_step[:, :1]
    first_step -= 1
    step_ratio = np.einsum("tb,tb->t", first_step, second_step - 1) / np.maximum(
        np.einsum("tb,tb->t", first_step, first_step), _TINY
    )
    step_ratio = np.clip(step_ratio, 0.0, LARGEST_SHARE)
    return np.asarray(third * np.clip(second_step, 0.5, 2.0) ** (step_ratio / (1 - step_ratio))[:, None])


def _newton_step(ratios: Floats, tables: _Open) -> Floats:
    """Return a Newton step of log v for every table.

    If u makes the row marginals exact, the column marginals s have the derivative diag(s) - P'P/p with respect to
    log v, where P is the joint distribution. It is singular in the direction of a common factor, which a rank-one term
    fixes.
    """
    _, rows, columns, _, v, _ = tables
    u = 1 / thin_product(columns * v, ratios.T)
    column_marginals = thin_product(rows * u, ratios) * v * columns
    # (table, row bin, column bin): P / sqrt(p). P'P/p as a matrix product is many times faster than einsum.
    scaled_joint = (v * columns)[:, None, :] * ratios
    scaled_joint *= (u * np.sqrt(rows))[:, :, None]
    jacobian = columns[:, :, None] * columns[:, None, :]
    jacobian -= np.matmul(scaled_joint.transpose(0, 2, 1), scaled_joint)
    diagonal = np.arange(columns.shape[1])
    jacobian[:, diagonal, diagonal] += np.where(columns > _TINY, column_marginals, 1.0)
    step = np.linalg.solve(jacobian, (columns - column_marginals)[:, :, None])[:, :, 0]
    return np.asarray(
        step * np.minimum(1.0, _longest(step, tables.step) / np.maximum(np.abs(step).max(axis=1), _TINY))[:, None]
    )


def _longest(step: NDArray[np.floating[Any]], last: Floats) -> Floats:
    """Return the maximum change of the log of a factor per table: half of that of the last step if `step` turns back.

    Otherwise, steps that are much too long in opposite directions could follow each other for ever.
    """
    turns_back = np.einsum("tb,tb->t", step, last) < 0
    return np.where(turns_back, np.abs(last).max(axis=1) / 2, LONGEST_STEP)
