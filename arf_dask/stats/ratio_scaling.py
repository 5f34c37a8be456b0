"""Sinkhorn scaling: fit one table of ratios to the marginals of many small tables at once.

A table of ratios R (row bin, column bin) gives how much more often two bins occur together than under independence.
For the marginals p and c of one leaf, p * u * R * v * c is a joint distribution with exactly these marginals if

    u = 1 / (R @ (c * v))    and    v = 1 / ((p * u) @ R).

Alternating the two updates (Sinkhorn) always converges if R is positive, but slowly if R is close to a permutation. The
factors are therefore extrapolated every few steps, and tables that have not converged after some rounds are solved by
Newton steps on the same equations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arf_dask.stats.thin_products import thin_product
from arf_dask.typing import Counts, Flags, Floats

TOLERANCE = 1e-11
CHECKED_EVERY = 3  # Sinkhorn steps per round
SINKHORN_ROUNDS = 8  # rounds before switching to Newton's method
MOST_STEPS = 100  # maximum number of Newton steps
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
        tolerance: Maximum relative error of the row marginals. Column marginals are exact.
        start: Initial factors, for example those of similar ratios.

    >>> half = np.array([[0.5, 0.5]])
    >>> found = scale_ratios(np.array([[3.0, 1.0], [1.0, 3.0]]), half, half)
    >>> float((found.rows[0, 0] * found.columns[0, 0]).round(9))
    0.5
    """
    parts = []
    for first in range(0, max(len(rows), 1), TABLES_AT_ONCE):
        table_slice = slice(first, first + TABLES_AT_ONCE)
        start_factors = None if start is None else Factors(start.rows[table_slice], start.columns[table_slice])
        parts.append(_scale_some(ratios, rows[table_slice], columns[table_slice], tolerance, start_factors))
    return Factors(*(np.concatenate(side) for side in zip(*parts, strict=True)))


class _Open(NamedTuple):
    """The tables that have not converged. One row per table."""

    number: Counts
    rows: Floats  # marginals
    columns: Floats
    u: Floats
    v: Floats

    def keep(self, some: Flags) -> _Open:
        """Keep the flagged tables."""
        number, rows, columns, u, v = self
        return _Open(number[some], rows[some], columns[some], u[some], v[some])


def _scale_some(ratios: Floats, rows: Floats, columns: Floats, tolerance: float, start: Factors | None) -> Factors:
    factors = Factors(np.ones(rows.shape), np.ones(columns.shape)) if start is None else Factors(*map(np.copy, start))
    open_tables = _Open(np.arange(len(rows)), rows, columns, *factors)
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
        last_u = open_tables.u
        u, v = _newton_step(ratios, open_tables.rows, open_tables.columns, open_tables.v)
        open_tables, _ = _take_settled(open_tables._replace(u=u, v=v), [last_u, u], tolerance, factors)
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


def _newton_step(ratios: Floats, rows: Floats, columns: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Improve the factors of every table: solve for u, take a Newton step in v, then solve for u and v in turn.

    If the row marginals are exact, the column marginals s have the derivative diag(s) - P'P/p with respect to log v,
    where P is the joint distribution. It is singular in the direction of a common factor, which a rank-one term fixes.
    """
    u = 1 / ((columns * v) @ ratios.T)
    column_marginals = (((rows * u) @ ratios) * v) * columns
    # (table, row bin, column bin): P / sqrt(p). P'P/p as a matrix product is many times faster than einsum.
    scaled_joint = (v * columns)[:, None, :] * ratios
    scaled_joint *= (u * np.sqrt(rows))[:, :, None]
    jacobian = columns[:, :, None] * columns[:, None, :]
    jacobian -= np.matmul(scaled_joint.transpose(0, 2, 1), scaled_joint)
    diagonal = np.arange(columns.shape[1])
    jacobian[:, diagonal, diagonal] += np.where(columns > _TINY, column_marginals, 1.0)
    log_step = np.linalg.solve(jacobian, (columns - column_marginals)[:, :, None])[:, :, 0]
    v = v * np.exp(np.clip(log_step, -LONGEST_STEP, LONGEST_STEP))
    u = 1 / ((columns * v) @ ratios.T)
    return u, 1 / ((rows * u) @ ratios)
