"""Search for linear relations of any length: columns that are sums of others, in all rows or in some group of rows.

The null space of a block of numbers holds all of its linear relations. A few more rows than columns are drawn at a
time, so that exceptions are rarely among them, from all rows and from groups of rows in which a discrete column has one
value: `total` may be the sum of other columns there, and one of them more elsewhere. Columns are taken one after the
other, and each one that depends on those before gives an equation. Its coefficients are rounded to simple numbers, and
it must hold in all drawn rows. The column that is computed from the others is the one that comes out best if the others
are drawn independently: within its range, with its nulls, and with its frequent values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.rules.expressions import Constant, Name, Node, Operation
from arf_dask.rules.number_search import Guess, Numbers, plausible, shortest, tidy
from arf_dask.typing import Floats

TRIES = 8  # row sets drawn from all rows
SURPLUS = 12  # rows drawn in addition to one for each column
MOST_GROUP_VALUES = 8  # maximum number of values of a column that defines groups of rows
LEAST_GROUP = 0.05  # minimum share of rows in a group
MOST_GROUPS = 24
LEAST_TERMS = 2  # copies and straight lines are found elsewhere
NOISE = 1e-9  # relative error of sums of floats
LOOSE = 0.05  # residual of a column, as a share of its standard deviation, from which it does not depend on others
LEAST_SPREAD = 20  # minimum standard deviation of a column, in units of the rounding errors of its equation
MOST_DIGITS = 6  # maximum length of a coefficient


@dataclass(frozen=True)
class Equation:
    """A linear relation: the sum of columns times their coefficients is a constant."""

    coefficients: dict[int, float]  # by the index of the column
    constant: float


def search_linear(numbers: Numbers, frame: pl.DataFrame, rng: np.random.Generator) -> list[Guess]:
    """Return one guess for every distinct linear relation of three or more columns.

    Args:
        numbers: the numeric columns of a sample.
        frame: the sample, whose discrete columns define groups of rows.
        rng: draws rows.
    """
    equations: dict[tuple[tuple[int, float], ...], Equation] = {}
    for try_index, rows in enumerate(_row_sets(numbers, frame, rng)):
        for equation in _equations(numbers, rows, reverse=try_index % 2 == 1):
            equations.setdefault(_identity(equation), equation)
    return plausible(numbers, [_best_guess(numbers, equation, rng) for equation in equations.values()])


def _identity(equation: Equation) -> tuple[tuple[int, float], ...]:
    """Return a key that is the same for multiples of an equation."""
    terms = sorted(equation.coefficients.items())
    return tuple((index, round(value / terms[0][1], 9)) for index, value in terms)


def _row_sets(numbers: Numbers, frame: pl.DataFrame, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield drawn rows without nulls in the columns that the first of them has, from all rows and from groups."""
    if not len(numbers.names):
        return
    is_known = ~np.isnan(numbers.values)
    everything = np.arange(len(numbers.values))
    for group in (*[everything] * TRIES, *_groups(frame)):
        anchor = int(rng.choice(group))
        columns = is_known[anchor]
        matching = group[is_known[group][:, columns].all(axis=1)]
        n_rows = int(columns.sum()) + SURPLUS
        if len(matching) >= n_rows:
            yield rng.choice(matching, n_rows, replace=False)


def _groups(frame: pl.DataFrame) -> list[NDArray[np.int64]]:
    """Return the rows of each value of discrete columns, of the most frequent values first."""
    groups: list[NDArray[np.int64]] = []
    for series in frame:
        codes = series.alias("").rank("dense").fill_null(0).to_numpy()
        values, counts = np.unique(codes, return_counts=True)
        if not 2 <= len(values) <= MOST_GROUP_VALUES:
            continue
        groups += [np.flatnonzero(codes == v) for v in values[counts >= LEAST_GROUP * len(codes)]]
    return sorted(groups, key=len, reverse=True)[:MOST_GROUPS]


def _equations(numbers: Numbers, rows: NDArray[np.int64], *, reverse: bool) -> Iterator[Equation]:
    """Yield an equation for every column that depends on those before it (after it, if `reverse`)."""
    values = numbers.values[rows]
    with np.errstate(invalid="ignore"):
        spreads = values.std(axis=0)
    columns = np.flatnonzero(spreads > NOISE * np.abs(values).max(axis=0))
    columns = columns[::-1] if reverse else columns
    basis = np.full((len(rows), 1), len(rows) ** -0.5)  # orthonormal; its first vector is that of the constant
    weights = np.ones((1, 1)) / basis[0, 0]  # of the columns in the basis: the basis times this matrix
    chosen: list[int] = []
    for column in columns.tolist():
        own = values[:, column]
        parts = basis.T @ own
        rest = own - basis @ parts
        again = basis.T @ rest  # orthogonalised twice, against rounding errors
        parts, rest = parts + again, rest - basis @ again
        size = float(np.linalg.norm(rest))
        if size <= LOOSE * spreads[column] * len(rows) ** 0.5 and len(chosen) >= LEAST_TERMS:
            equation = _rounded(numbers, values, column, chosen, np.linalg.solve(weights, parts))
            if equation is not None:
                if len(equation.coefficients) > LEAST_TERMS:
                    yield equation
                continue
        if size <= NOISE * float(np.linalg.norm(own)):
            continue  # a copy or a straight line, or no equation of simple numbers
        basis = np.column_stack([basis, rest / size])
        weights = np.block([[weights, parts[:, None]], [np.zeros((1, len(chosen) + 1)), np.full((1, 1), size)]])
        chosen.append(column)


def _rounded(numbers: Numbers, values: Floats, column: int, others: list[int], solution: Floats) -> Equation | None:
    """Return the equation of a column with simple coefficients; None if it does not hold in all rows then."""
    half_units = np.where(numbers.whole, 0.0, numbers.half_units)
    rounding = float(half_units[column] + np.abs(solution[1:]) @ half_units[others])
    spread = float(values[:, column].std())
    if spread < LEAST_SPREAD * rounding:
        return None
    coefficients = {column: -1.0}
    for other, exact in zip(others, solution[1:].tolist(), strict=True):
        room = 1e-6 * (1 + abs(exact)) + 2 * rounding / float(values[:, other].std())
        coefficient = shortest(exact, min(room, 0.05))
        if len(repr(abs(coefficient))) > MOST_DIGITS:
            return None
        coefficients |= {other: coefficient} if coefficient else {}
    rest = -sum(values[:, index] * coefficient for index, coefficient in coefficients.items())
    constant = shortest(-float(np.median(rest)), max(rounding, NOISE * float(np.abs(values).max())))
    tolerance = rounding * (1 + 1e-6) + NOISE * float(np.abs(values[:, list(coefficients)]).max())
    is_held = np.abs(rest + constant).max() <= tolerance and len(repr(abs(constant))) <= MOST_DIGITS + 3
    return Equation(coefficients, constant) if is_held else None


def _best_guess(numbers: Numbers, equation: Equation, rng: np.random.Generator) -> Guess:
    """Return the equation solved for the column that comes out best if the others are drawn independently."""
    candidates = sorted(index for index, value in equation.coefficients.items() if abs(value) == 1)
    qualities = {index: round(_quality(numbers, equation, index, rng), 2) for index in candidates}
    target = max(candidates, key=lambda index: (qualities[index], index))
    return Guess(numbers.names[target], _solved(numbers, equation, target))


def _quality(numbers: Numbers, equation: Equation, target: int, rng: np.random.Generator) -> float:
    """Return the share of rows within range if the other columns are shuffled, less what nulls and spikes lose."""
    scale = equation.coefficients[target]
    others = [index for index in equation.coefficients if index != target]
    shuffled = np.stack([rng.permutation(numbers.values[:, index]) for index in others], axis=1)
    factors = np.array([equation.coefficients[index] for index in others])
    recomputed = (equation.constant - shuffled @ factors) / scale
    own = numbers.values[:, target]
    is_null = np.isnan(numbers.values[:, others]).any(axis=1)
    slack = 2 * numbers.half_units[target]
    with np.errstate(invalid="ignore"):
        is_inside = (recomputed >= np.nanmin(own) - slack) & (recomputed <= np.nanmax(own) + slack)
    n_known = max(int((~np.isnan(recomputed)).sum()), 1)
    lost_spikes = max(_concentration(own) - _concentration(recomputed), 0.0)
    return float(is_inside.sum() / n_known - np.mean(is_null != np.isnan(own)) - lost_spikes)


def _concentration(values: Floats) -> float:
    """Return the probability that two random rows have the same value, up to rounding errors."""
    known: Floats = values[~np.isnan(values)]
    if not len(known):
        return 0.0
    counts = np.unique(np.round(known, 9), return_counts=True)[1]
    return float(((counts / counts.sum()) ** 2).sum())


def _solved(numbers: Numbers, equation: Equation, target: int) -> Node:
    """Return the equation solved for a column: positive terms first, in the order of the columns."""
    scale = -equation.coefficients[target]
    terms = [(value / scale, index) for index, value in sorted(equation.coefficients.items()) if index != target]
    constant = -equation.constant / scale
    terms.sort(key=lambda term: term[0] < 0)
    node: Node | None = None
    if constant > 0 and terms[0][0] < 0:
        node, constant = Constant(tidy(constant)), 0.0
    for factor, index in terms:
        node = _with_term(node, factor, Name(numbers.names[index]))
    assert node is not None
    return _with_term(node, constant, None) if constant else node


def _with_term(node: Node | None, factor: float, column: Node | None) -> Node:
    """Add a column times a factor, or a constant, to an expression."""
    size = tidy(abs(factor))
    term: Node = Constant(size) if column is None else column
    if column is not None and size != 1:
        term = Operation("*", Constant(size), column)
    if node is None:
        return term if factor > 0 else Operation("-", Constant(0), term)
    return Operation("+" if factor > 0 else "-", node, term)
