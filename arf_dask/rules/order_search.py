"""Search for columns that are ordered, that always differ, or that are often equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, permutations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.dates import read_dates, sorts_as_text
from arf_dask.rules.evaluation import kind_of_dtype
from arf_dask.rules.expressions import Name
from arf_dask.rules.number_search import Guess, Numbers
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.typing import Floats

LEAST_ROWS = 40
LEAST_VALUES = 5  # minimum number of distinct values of ordered columns
SURPRISE = 40  # minimum number of rows that break the rule after shuffling
SURPRISING_SHARE = {True: 0.1, False: 0.02}  # minimum share of such rows, by `plain`: plain numbers must overlap more
NAMED_SURPRISE = 15  # minimum if the names imply the order: the probability of chance is at most exp(-15)
NAMED_SHARE = 0.05
NAMED_ROWS = 5  # minimum number of rows of a small table, in which names are the only evidence
WORDS = (
    *(("start", "stop"), ("start", "end"), ("begin", "end"), ("first", "last"), ("from", "to"), ("entry", "exit")),
    *(("min", "max"), ("minimum", "maximum"), ("low", "high"), ("lower", "upper"), ("open", "closed"), ("t0", "t1")),
    *(
        ("birth", "death"),
        ("created", "updated"),
        ("departure", "arrival"),
        ("checkin", "checkout"),
        ("time0", "time1"),
    ),
)
ALIKE = 4  # maximum ratio of the mean magnitudes of two columns that may have the same unit
MOST_WRONG = 0.05  # maximum share of rows that break an order of close columns
SURPRISING_RATIO = 8  # minimum ratio of rows that break it after shuffling to those that break it
CLOSE = 0.25  # maximum ratio of the median gap to the range of the upper column, for orders that some rows break
COMMON = 0.02  # values with a larger share of rows are no evidence of a copy
COPY_SHARE = 0.02
WINDOW_SHARE = 0.05  # share of the rows, similar in one column, among which another one is exchanged
SIMILAR_RATIO = 2  # minimum ratio of equal rows to those after such an exchange
SPIKE = 4  # minimum ratio of exactly equal values to the mean count at the six nearest steps


def search_orders(numbers: Numbers, rng: np.random.Generator, *, plain: bool) -> list[tuple[str, str]]:
    """Return the pairs (lower, upper) of columns whose order few sampled rows break, although shuffled rows would.

    The units of `plain` numbers are unknown: such columns must overlap widely and have similar magnitudes. Orders
    that some rows break must be of columns that are close to each other.
    """
    values = numbers.values
    usable_columns = [
        j for j in range(values.shape[1]) if len(np.unique(values[:, j][~np.isnan(values[:, j])])) >= LEAST_VALUES
    ]
    shuffled_values = (
        np.stack([_shuffle(values[:, j], rng) for j in range(values.shape[1])], axis=1) if usable_columns else values
    )
    order_pairs = []
    for low in usable_columns:
        low_values = values[:, [low]]
        with np.errstate(invalid="ignore"):
            n_wrong = (low_values > values).sum(axis=0)
            n_shuffled_wrong = (low_values > shuffled_values).sum(axis=0)
        n_known = (~np.isnan(low_values) & ~np.isnan(values)).sum(axis=0)
        may_be_order = (n_wrong <= MOST_WRONG * n_known) & (n_known >= LEAST_ROWS)
        is_order = (
            may_be_order
            & (n_shuffled_wrong >= SURPRISE)
            & (n_shuffled_wrong >= SURPRISING_SHARE[plain] * n_known)
            & (n_shuffled_wrong >= SURPRISING_RATIO * n_wrong)
        )
        is_order &= _alike_in_size(values, low) if plain else True
        has_named_evidence = (n_shuffled_wrong >= NAMED_SURPRISE) & (n_shuffled_wrong >= NAMED_SHARE * n_known)
        for high in np.flatnonzero((n_wrong == 0) & may_be_order & has_named_evidence & ~is_order):
            is_order[high] = has_order_names(numbers.names[low], numbers.names[high])
        for high in np.flatnonzero(is_order & (n_wrong > 0)):
            is_order[high] = _are_close(values[:, low], values[:, high])
        order_pairs += [
            (numbers.names[low], numbers.names[high]) for high in np.flatnonzero(is_order) if high in usable_columns
        ]
    return [pair for pair in order_pairs if pair[0] != pair[1] and (pair[1], pair[0]) not in order_pairs]


def _are_close(low: Floats, high: Floats) -> bool:
    """Whether typical gaps between two columns are short, compared to the range of the upper one."""
    is_known = ~np.isnan(low) & ~np.isnan(high)
    first, last = np.quantile(high[is_known], [0.1, 0.9])
    return float(np.median(np.abs(high - low)[is_known])) <= CLOSE * float(last - first)


def search_text_orders(
    frame: pl.DataFrame, forms: Mapping[str, str], rng: np.random.Generator
) -> list[tuple[str, str]]:
    """Return the ordered pairs of columns that store dates as text.

    Columns whose texts sort as their dates do are compared with those of the same format, others with each other.

    Args:
        frame: the rows of a sample.
        forms: the formats of the columns that hold dates.
        rng: shuffles rows to estimate how often an order holds by chance.
    """
    columns_by_form: dict[str, dict[str, Floats]] = {}
    for name, form in forms.items():
        dates = read_dates(frame.get_column(name), form)
        dates = dates.cast(pl.Datetime("us")) if dates.dtype == pl.Date else dates
        alike = form if sorts_as_text(form) else f"other {dates.dtype}"
        columns_by_form.setdefault(alike, {})[name] = np.array(dates.to_physical().cast(pl.Float64).to_numpy())
    order_pairs = []
    for columns in columns_by_form.values():
        table = np.stack(list(columns.values()), axis=1)
        no_units = np.zeros(len(columns))
        order_pairs += search_orders(Numbers(list(columns), table, no_units, no_units == 0), rng, plain=False)
    return order_pairs


def search_named_orders(numbers: Numbers) -> list[tuple[str, str]]:
    """Return the ordered pairs of a small table whose names imply the order that all of its rows have."""
    order_pairs = []
    for low, high in permutations(range(len(numbers.names)), 2):
        if not has_order_names(numbers.names[low], numbers.names[high]):
            continue
        low_values, high_values = numbers.values[:, low], numbers.values[:, high]
        is_known = ~np.isnan(low_values) & ~np.isnan(high_values)
        if is_known.sum() >= NAMED_ROWS and (low_values[is_known] <= high_values[is_known]).all():
            order_pairs.append((numbers.names[low], numbers.names[high]))
    return order_pairs


def has_order_names(low: str, high: str) -> bool:
    """Whether the names of two columns imply that the first is below the second.

    >>> has_order_names("start", "stop"), has_order_names("temp_min", "temp_max"), has_order_names("x", "y")
    (True, True, False)
    """
    low_name, high_name = low.lower(), high.lower()
    return any(word in low_name and low_name.replace(word, later) == high_name for word, later in WORDS)


def _alike_in_size(values: Floats, low: int) -> NDArray[np.bool_]:
    """Flag the columns with a mean magnitude similar to that of column `low`."""
    with np.errstate(invalid="ignore"):
        magnitudes = np.nanmean(np.abs(values), axis=0)
    return np.asarray((magnitudes <= ALIKE * magnitudes[low]) & (magnitudes[low] <= ALIKE * magnitudes))


def _shuffle(column: Floats, rng: np.random.Generator) -> Floats:
    """Shuffle the numbers of a column; NaN stays in place."""
    shuffled = column.copy()
    is_known = ~np.isnan(column)
    shuffled[is_known] = rng.permutation(column[is_known])
    return shuffled


def search_differences(frame: pl.DataFrame, n_rows: int) -> list[tuple[str, str]]:
    """Return the pairs of text columns with common levels that are never equal, although chance predicts equal rows.

    Args:
        frame: a sample, in which no row may be equal.
        n_rows: rows of the table, on all of which the pairs are verified: enough of them are expected to be equal.
    """
    different_pairs = []
    for first_name, second_name, n_expected, n_same, _ in _text_pairs(frame):
        if n_same == 0 and n_expected * max(n_rows / max(frame.height, 1), 1.0) >= SURPRISE / 2:
            different_pairs.append((first_name, second_name))
    return different_pairs


def search_text_copies(frame: pl.DataFrame) -> Iterator[Guess]:
    """Yield guesses of text columns that often equal another column."""
    for first_name, second_name, n_expected, n_same, n_known in _text_pairs(frame):
        n_levels = frame.get_column(second_name).n_unique()
        if n_same >= 0.3 * n_known and n_same >= 3 * n_expected and n_same >= LEAST_ROWS and n_levels >= 8:
            yield Guess(second_name, Name(first_name))


def _text_pairs(frame: pl.DataFrame) -> Iterator[tuple[str, str, float, int, int]]:
    """Yield (first, second, rows expected to be equal by chance, equal rows, rows where both are non-null)."""
    text_names = [
        n for n, dtype in frame.schema.items() if kind_of_dtype(dtype) == "text" and frame.get_column(n).n_unique() > 2
    ]
    text_columns = {name: frame.get_column(name).cast(pl.String).alias("") for name in text_names}
    levels = {name: set(series.drop_nulls().unique().to_list()) for name, series in text_columns.items()}
    for first, second in combinations(text_names, 2):
        if len(levels[first] & levels[second]) < 0.3 * min(len(levels[first]), len(levels[second])):
            continue
        known_pairs = pl.DataFrame({"one": text_columns[first], "other": text_columns[second]}).drop_nulls()
        level_shares = (
            known_pairs["one"]
            .value_counts(normalize=True, name="p")
            .join(known_pairs["other"].value_counts(normalize=True, name="q"), left_on="one", right_on="other")
        )
        n_expected = known_pairs.height * float((level_shares["p"] * level_shares["q"]).sum())
        yield (
            first,
            second,
            n_expected,
            int((known_pairs["one"] == known_pairs["other"]).sum()),
            known_pairs.height,
        )


def search_copies(numbers: Numbers) -> list[Guess]:
    """Guess columns that equal another column in all rows, or more often than their closeness explains."""
    rare_values = (
        np.stack([_without_common(column) for column in numbers.values.T], axis=1) if numbers.names else numbers.values
    )
    guesses = []
    for x in range(len(numbers.names)):
        with np.errstate(invalid="ignore"):
            n_same = (rare_values[:, [x]] == numbers.values).sum(axis=0)
        n_known = (~np.isnan(numbers.values[:, [x]]) & ~np.isnan(numbers.values)).sum(axis=0)
        for y in np.flatnonzero((n_same >= np.maximum(COPY_SHARE * n_known, 20)) & (np.arange(len(n_same)) > x)):
            is_copy = is_spike(numbers.values[:, y] - numbers.values[:, x], _step(numbers, int(y)))
            if is_copy and _beats_similar_rows(rare_values[:, x], numbers.values[:, y], int(n_same[y])):
                guesses.append(Guess(numbers.names[y], Name(numbers.names[x])))
    return guesses


def _beats_similar_rows(values: Floats, others: Floats, n_same: int) -> bool:
    """Whether two columns are equal more often than if one is exchanged among rows with similar values of the other.

    Columns with few values that depend on each other are equal in many rows, without one being a copy of the other.
    """
    is_known = ~np.isnan(values) & ~np.isnan(others)
    values, others = values[is_known], others[is_known]
    rng = generator(0, Stage.RULES, 3)
    window = np.empty(len(values), dtype=np.int64)
    window[np.lexsort((rng.random(len(values)), values))] = np.arange(len(values)) // max(
        int(WINDOW_SHARE * len(values)), 2
    )
    exchanged = np.empty_like(others)
    exchanged[np.argsort(window, kind="stable")] = others[np.lexsort((rng.random(len(values)), window))]
    return n_same >= SIMILAR_RATIO * int((values == exchanged).sum())


def _without_common(column: Floats) -> Floats:
    """Replace values that many rows share by NaN."""
    values, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
    is_common = counts > max(COMMON * len(column), 3)
    return np.where(is_common[inverse], np.nan, column) if len(values) else column


def _step(numbers: Numbers, column: int) -> float:
    """Return the approximate distance between neighbouring values of a column."""
    if numbers.half_units[column] > 0:
        return float(2 * numbers.half_units[column])
    values = np.unique(numbers.values[:, column][~np.isnan(numbers.values[:, column])])
    return float(np.median(np.diff(values))) if len(values) > 1 else 1.0


def is_spike(apart: Floats, step: float) -> bool:
    """Whether differences are exactly zero far more often than nearly zero."""
    apart = apart[~np.isnan(apart)] / step
    n_zero = int((np.abs(apart) < 1e-6).sum())
    n_near = int(((np.abs(apart) >= 1e-6) & (np.abs(apart) <= 3.5)).sum())
    return n_zero >= SPIKE * n_near / 6
