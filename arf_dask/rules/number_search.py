"""Search for short formulas between numbers by hashing: sums of columns are looked up on a few rows at a time.

Each try draws a few rows. A relation that holds in a share `s` of the rows holds in all drawn rows with probability
`s ** rows`, so that several tries also find relations with exceptions. The weighted sum of a column over the drawn
rows, with random weights, is a linear hash: the hash of a sum of columns is the sum of their hashes. The results are
guesses, which must be verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arf_dask.rules.expressions import Constant, Name, Node, Operation
from arf_dask.typing import Floats

TRIES = 24
SUM_ROWS = 5
MANY_COLUMNS = 60  # with more columns, the most expensive searches are skipped
VERY_MANY_COLUMNS = 400  # with more columns, only sums of two columns are searched for
FEWEST_TRIES = 8  # number of tries with more than VERY_MANY_COLUMNS columns
MOST_HITS = 2_000  # maximum number of matches per lookup
FACTORS = (7, 10, 12, 24, 60, 100, 1_000, 3_600)
CLOSE = 1e-9
SCREEN_ROWS, SCREEN_SHARE = 120, 0.2  # rows on which guesses are screened, and the share in which they must hold


@dataclass(frozen=True)
class Numbers:
    """Columns of numbers on a sample of rows."""

    names: list[str]
    values: Floats  # (row, column); NaN for nulls
    half_units: Floats  # per column: half a unit of the last decimal; 0 if the number of decimals varies
    whole: NDArray[np.bool_]  # per column: whether all values are integers


@dataclass(frozen=True)
class Guess:
    """A formula that held on a few rows."""

    target: str
    formula: Node


def search_sums(numbers: Numbers, rng: np.random.Generator) -> list[Guess]:
    """Return distinct guesses of sums, differences, multiples and linear functions."""
    distinct_guesses: dict[tuple[str, Node], Guess] = {}
    n_tries = TRIES if len(numbers.names) <= VERY_MANY_COLUMNS else FEWEST_TRIES
    for rows, columns in draw_tries(numbers, rng, SUM_ROWS, n_tries):
        for guess in (*_sums(numbers, rows, columns, rng), *_lines(numbers, rows, columns)):
            distinct_guesses.setdefault((guess.target, guess.formula), guess)
    return plausible(numbers, distinct_guesses.values())


def plausible(numbers: Numbers, guesses: Iterable[Guess]) -> list[Guess]:
    """Return the guesses that hold in a minimum share of the first rows."""
    screen_columns = {name: numbers.values[:SCREEN_ROWS, index] for index, name in enumerate(numbers.names)}
    half_units = dict(zip(numbers.names, numbers.half_units.tolist(), strict=True))
    return [guess for guess in guesses if _holds_often(guess, screen_columns, half_units[guess.target])]


def _holds_often(guess: Guess, columns: dict[str, Floats], half_unit: float) -> bool:
    with np.errstate(all="ignore"):
        deviation = np.abs(_numeric(guess.formula, columns) - columns[guess.target])
        is_known = ~np.isnan(deviation)
        tolerance = half_unit * (1 + 1e-6) + 1e-9 * np.abs(columns[guess.target])
        return bool(is_known.sum() < 10 or (deviation <= tolerance)[is_known].mean() >= SCREEN_SHARE)


def _numeric(node: Node, columns: dict[str, Floats]) -> Floats:
    """Evaluate an expression of columns, constants and arithmetic."""
    match node:
        case Name(column):
            return columns[column]
        case Operation(sign, left, right):
            a, b = _numeric(left, columns), _numeric(right, columns)
            return {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[sign](a, b)
        case Constant(value):
            return np.asarray(float(value))
    raise TypeError(node)


def draw_tries(
    numbers: Numbers, rng: np.random.Generator, n_rows: int, tries: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield drawn rows that are non-null in the same columns, and those of the columns that vary between the rows."""
    is_known = ~np.isnan(numbers.values)
    if not len(is_known):
        return
    rows_by_pattern: dict[bytes, NDArray[np.int64]] = {}
    for _ in range(tries):
        known_columns = is_known[rng.integers(len(is_known))]
        matching_rows = rows_by_pattern.get(known_columns.tobytes())
        if matching_rows is None:
            matching_rows = rows_by_pattern[known_columns.tobytes()] = np.flatnonzero(
                (is_known | ~known_columns).all(axis=1)
            )
        if len(matching_rows) < n_rows:
            continue
        drawn_rows = rng.choice(matching_rows, n_rows, replace=False)
        drawn_values = numbers.values[drawn_rows]
        is_varied = known_columns & (
            np.nanmax(drawn_values, axis=0, initial=-np.inf) > np.nanmin(drawn_values, axis=0, initial=np.inf)
        )
        columns = np.flatnonzero(is_varied)
        if len(columns) > 1:
            yield drawn_rows, columns


# Sums and differences.


def _sums(
    numbers: Numbers, rows: NDArray[np.int64], columns: NDArray[np.int64], rng: np.random.Generator
) -> Iterator[Guess]:
    """Yield columns that are a sum or difference of two or three others."""
    values = numbers.values[np.ix_(rows, columns)]
    row_weights = rng.uniform(0.5, 1.5, len(rows)) * rng.choice([-1.0, 1.0], len(rows))
    hashes, hash_sizes = row_weights @ values, np.abs(row_weights) @ np.abs(values)
    columns, first_index = _first_of_each(hashes, columns)
    names, hashes, hash_sizes = [numbers.names[i] for i in columns], hashes[first_index], hash_sizes[first_index]
    tolerances = CLOSE * hash_sizes  # rounding error per column: that of large columns must not hide small ones
    first, second = np.triu_indices(len(hashes), 1)
    sums = hashes[first] + hashes[second]
    yield from _three(names, hashes, first, second, sums, tolerances)
    if len(hashes) <= VERY_MANY_COLUMNS:
        yield from _four(names, hashes, first, second, sums, tolerances)
    if len(hashes) <= MANY_COLUMNS:
        whole = numbers.whole[columns]
        yield from _multiples(names, hashes, whole, tolerances)


def _first_of_each(hashes: Floats, columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keep one column per hash: copies are found elsewhere, and would duplicate every sum."""
    _, first_index = np.unique(np.round(hashes, 9), return_index=True)
    first_index.sort()
    return columns[first_index], first_index


def _matches(sorted_values: Floats, wanted: Floats, reach: Floats) -> Iterator[tuple[int, int]]:
    """Yield index pairs (sorted value, wanted value) that are equal within `reach`, up to a maximum number."""
    low_index = np.searchsorted(sorted_values, wanted - reach)
    high_index = np.searchsorted(sorted_values, wanted + reach, side="right")
    hit_index = np.flatnonzero(high_index > low_index)
    for wanted_index in hit_index[:MOST_HITS]:
        for sorted_index in range(low_index[wanted_index], min(high_index[wanted_index], low_index[wanted_index] + 20)):
            yield int(sorted_index), int(wanted_index)


def _three(
    names: list[str], hashes: Floats, first: NDArray[np.int64], second: NDArray[np.int64], sums: Floats, reach: Floats
) -> Iterator[Guess]:
    sum_order = np.argsort(sums)
    for sum_index, target in _matches(sums[sum_order], hashes, reach):
        i, j = int(first[sum_order[sum_index]]), int(second[sum_order[sum_index]])
        if target not in (i, j):
            yield Guess(names[target], Operation("+", Name(names[i]), Name(names[j])))


def _four(
    names: list[str], hashes: Floats, first: NDArray[np.int64], second: NDArray[np.int64], sums: Floats, reach: Floats
) -> Iterator[Guess]:
    """Yield sums of three columns, as target - k = i + j, and pairs of columns with equal sums."""
    sum_order = np.argsort(sums)
    target, third = (side.ravel() for side in np.indices((len(hashes), len(hashes))))
    for sum_index, pair_index in _matches(
        sums[sum_order], hashes[target] - hashes[third], reach[target] + reach[third]
    ):
        i, j, k, y = (
            int(x)
            for x in (first[sum_order[sum_index]], second[sum_order[sum_index]], third[pair_index], target[pair_index])
        )
        if len({i, j, k, y}) == 4 and j < k:
            yield Guess(names[y], _sum_of([names[i], names[j], names[k]]))
    for sum_index in np.flatnonzero(np.diff(sums[sum_order]) <= (reach[first] + reach[second])[sum_order[1:]])[
        :MOST_HITS
    ]:
        a, b = (int(x) for x in (first[sum_order[sum_index]], second[sum_order[sum_index]]))
        c, d = (int(x) for x in (first[sum_order[sum_index + 1]], second[sum_order[sum_index + 1]]))
        if len({a, b, c, d}) == 4:
            difference = Operation("-", Operation("+", Name(names[a]), Name(names[b])), Name(names[c]))
            yield Guess(names[d], difference)


def _multiples(names: list[str], hashes: Floats, whole: NDArray[np.bool_], reach: Floats) -> Iterator[Guess]:
    """Yield integers that are composed of two columns, such as 100 * hour + minute."""
    whole_columns = np.flatnonzero(whole)
    scaled_hashes = np.array([hashes[i] * factor for i in whole_columns for factor in FACTORS])
    if not len(scaled_hashes):
        return
    scaled_index, other_column = (side.ravel() for side in np.indices((len(scaled_hashes), len(hashes))))
    hash_sums = scaled_hashes[scaled_index] + hashes[other_column]
    sum_order = np.argsort(hash_sums)
    for sum_index, target in _matches(hash_sums[sum_order], hashes, reach):
        i, factor = (
            whole_columns[scaled_index[sum_order[sum_index]] // len(FACTORS)],
            FACTORS[scaled_index[sum_order[sum_index]] % len(FACTORS)],
        )
        j = int(other_column[sum_order[sum_index]])
        if len({int(i), j, target}) == 3:
            product = Operation("*", Constant(factor), Name(names[i]))
            yield Guess(names[target], Operation("+", product, Name(names[j])))


def _sum_of(names: list[str]) -> Node:
    node: Node = Name(names[0])
    for name in names[1:]:
        node = Operation("+", node, Name(name))
    return node


# y = a x + b.


def _lines(numbers: Numbers, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Iterator[Guess]:
    """Yield columns that are linear functions of another column, with constants of few digits."""
    values = numbers.values[np.ix_(rows, columns)]
    low_rows, high_rows = values.argmin(axis=0), values.argmax(axis=0)
    column_index = np.arange(len(columns))
    for x in column_index:
        value_range = values[high_rows[x], x] - values[low_rows[x], x]
        slopes = (values[high_rows[x]] - values[low_rows[x]]) / value_range
        intercepts = values[low_rows[x]] - slopes * values[low_rows[x], x]
        deviation = np.abs(values - intercepts - slopes * values[:, [x]]).max(axis=0)
        tolerance = 2 * numbers.half_units[columns] + 1e-9 * np.abs(values).max(axis=0)
        for y in np.flatnonzero((deviation <= tolerance) & (slopes != 0) & (column_index != x)):
            yield from _line_guess(
                numbers, int(columns[x]), int(columns[y]), float(slopes[y]), float(intercepts[y]), float(value_range)
            )


def _line_guess(numbers: Numbers, x: int, y: int, slope: float, start: float, run: float) -> Iterator[Guess]:
    """Yield the linear function with the roundest constants that the rows allow."""
    slope_tolerance = 4 * numbers.half_units[y] / abs(run) + 1e-9 * abs(slope)
    factor = shortest(slope, slope_tolerance)
    exact_offset = start + (slope - factor) * float(np.nanmean(numbers.values[:, x]))
    offset = shortest(exact_offset, 4 * numbers.half_units[y] + 1e-9 * float(np.nanmax(np.abs(numbers.values[:, y]))))
    if len(repr(abs(factor))) > 9 or len(repr(abs(offset))) > 9 or (factor == 1 and offset == 0):
        return
    node: Node = Name(numbers.names[x])
    if factor == -1:
        yield Guess(numbers.names[y], Operation("-", Constant(tidy(offset)), node))
        return
    if factor != 1:
        node = Operation("*", node, Constant(tidy(factor)))
    if offset:
        node = Operation("+" if offset > 0 else "-", node, Constant(tidy(abs(offset))))
    yield Guess(numbers.names[y], node)


def shortest(value: float, room: float) -> float:
    """Return the number with the fewest digits within `room` of a value.

    >>> shortest(0.4535923, 1e-3), shortest(100.0000001, 1e-3), shortest(1e-12, 1e-9)
    (0.454, 100.0, 0.0)
    """
    if abs(value) <= room:
        return 0.0
    for digits in range(1, 12):
        rounded = float(f"{value:.{digits - 1}e}")
        if abs(rounded - value) <= room:
            return rounded
    return value


def tidy(value: float) -> int | float:
    """Return whole numbers as integers."""
    return int(value) if float(value).is_integer() else value
