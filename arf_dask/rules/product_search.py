"""Search for products and ratios of columns by their logarithms, on a few rows at a time.

The logarithm of a product is a sum of logarithms, up to the rounding of the target by half a unit. The sums of all
pairs are sorted on one row, searched for the logarithm of each target within that tolerance, and compared on the
other rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from arf_dask.rules.expressions import Constant, Name, Node, Operation
from arf_dask.rules.number_search import CLOSE, Guess, Numbers, draw_tries, plausible
from arf_dask.typing import Floats

ROWS = 3
FEW, SOME = 16, 60  # maximum number of columns to search for all forms, and for products of three
TRIES = {8: 200, FEW: 96, SOME: 16}  # tries by maximum number of columns: spikes and remainders make most tries useless
FEWEST_TRIES = 8  # number of tries with more columns
MOST_HITS = 500  # maximum number of matches per target and try
MOST_SUMS = 100_000  # approximate number of feature pairs, over all tries, per batch
COARSE = 0.05  # maximum rounding error of a target, as a share of its value
APART = 5_000.0  # offset between the sorted sums of two tries, above any sum of three logarithms
SLACK = 1e-9  # floating-point error of sums with that offset

Places = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Features:
    """Features of one or two columns, one entry each: `log_sign * log(one + sign * first / scale + second)`."""

    nodes: list[Node]
    first: Places  # column
    second: Places  # column; -1 for none
    one: Floats
    sign: Floats
    scale: Floats
    log_sign: Floats

    def logs(self, values: Floats) -> Floats:
        """Return logarithms as (row, try, feature); NaN for tries where a feature is not positive or always 1."""
        padded_values = np.concatenate([values, np.zeros((*values.shape[:2], 1))], axis=2)
        feature_values = (
            self.one + self.sign * (padded_values[..., self.first] / self.scale) + padded_values[..., self.second]
        )
        is_usable = (feature_values > 0).all(axis=0) & ~(feature_values == 1).all(axis=0)
        return self.log_sign * np.log(np.where(is_usable, feature_values, np.nan))


@dataclass(frozen=True)
class Goals:
    """Columns, plus or minus another column, that may be products on a try. One entry per goal."""

    tries: Places
    targets: Places  # column
    others: Places  # column that is added to or subtracted from the product; -1 for none
    added: Flags
    logs: Floats  # (row, goal)
    room: Floats  # (row, goal): rounding tolerance of the logarithm


class _Pairs:
    """Sums of the logarithms of two features on each row and try, sorted per row."""

    def __init__(self, logs: Floats) -> None:
        self.logs = logs
        self.first, self.second = np.triu_indices(logs.shape[2], 1)
        pair_sums = logs[..., self.first] + logs[..., self.second]
        offset_sums = (pair_sums + APART * np.arange(logs.shape[1])[:, None]).reshape(ROWS, -1)
        self.sums = pair_sums.reshape(ROWS, -1)
        self.orders = np.argsort(offset_sums, axis=1)
        self.ordered = np.take_along_axis(offset_sums, self.orders, axis=1)

    def near(self, goals: Floats, room: Floats, tries: Places) -> tuple[Places, Places]:
        """Return the indices (pair, goal) that agree on every row, sorted by goal; inputs are (row, goal)."""
        key_rows = room.argmin(axis=0)  # the row with the smallest tolerance
        row_matches = [self._near(goals, room, tries, key, np.flatnonzero(key_rows == key)) for key in range(ROWS)]
        pair_index, goal_index = (np.concatenate([match[side] for match in row_matches]) for side in (0, 1))
        goal_order = np.argsort(goal_index, kind="stable")
        return pair_index[goal_order] % len(self.first), goal_index[goal_order]

    def _near(self, goals: Floats, room: Floats, tries: Places, key: int, some: Places) -> tuple[Places, Places]:
        """Return the matching pairs of a subset of the goals, looked up on row `key`."""
        wanted_sums, tolerance = goals[key, some] + APART * tries[some], room[key, some] + SLACK
        low_index = np.searchsorted(self.ordered[key], wanted_sums - tolerance)
        high_index = np.searchsorted(self.ordered[key], wanted_sums + tolerance, side="right")
        hit_counts = np.minimum(high_index - low_index, MOST_HITS)
        goal_index = np.repeat(some, hit_counts)
        offset = np.arange(len(goal_index)) - np.repeat(np.cumsum(hit_counts) - hit_counts, hit_counts)
        pair_index = self.orders[key][np.repeat(low_index, hit_counts) + offset]
        is_match = (np.abs(self.sums[:, pair_index] - goals[:, goal_index]) <= room[:, goal_index]).all(axis=0)
        return pair_index[is_match], goal_index[is_match]


def search_products(numbers: Numbers, rng: np.random.Generator) -> list[Guess]:
    """Guess products of two or three columns, complements, inverses and shares, also plus or minus a column."""
    batches: dict[tuple[int, ...], list[Places]] = {}  # rows of each try, by columns
    n_tries = next((n for most, n in TRIES.items() if len(numbers.names) <= most), FEWEST_TRIES)
    for rows, columns in draw_tries(numbers, rng, ROWS, n_tries):
        batches.setdefault(tuple(columns.tolist()), []).append(rows)
    distinct_guesses: dict[Guess, None] = {}
    for column_ids, batch in batches.items():
        selected = _select(numbers, np.array(column_ids))
        features = _features(selected)
        batch_size = max(1, MOST_SUMS // len(features.nodes) ** 2)
        for start in range(0, len(batch), batch_size):
            values = selected.values[np.stack(batch[start : start + batch_size], axis=1)]
            distinct_guesses.update(dict.fromkeys(_products(selected, values, features)))
    return plausible(numbers, distinct_guesses)


def _select(numbers: Numbers, columns: Places) -> Numbers:
    names = [numbers.names[column] for column in columns]
    return Numbers(names, numbers.values[:, columns], numbers.half_units[columns], numbers.whole[columns])


def _products(numbers: Numbers, values: Floats, features: Features) -> Iterator[Guess]:
    """Yield the guesses of a batch of tries; `values` is (row, try, column)."""
    goals, pairs = _goals(numbers, values), _Pairs(features.logs(values))
    for target, other_column, added, *feature_ids in _distinct(goals, features, *_pair_hits(goals, pairs)):
        product = _product_of([features.nodes[feature_id] for feature_id in feature_ids])
        yield Guess(numbers.names[target], _with_other(numbers, product, other_column, bool(added)))
    if len(numbers.names) <= SOME:
        for target, _, _, *feature_ids in _distinct(goals, features, *_triple_hits(goals, pairs)):
            yield Guess(numbers.names[target], _product_of([features.nodes[feature_id] for feature_id in feature_ids]))
    for target, _, _, *feature_ids in _distinct(goals, features, *_pair_hits(goals, pairs, np.log(100))):
        nodes = [features.nodes[feature_id] for feature_id in feature_ids]
        if any(map(_is_inverse, nodes)):  # ratio of two columns in percent
            yield Guess(numbers.names[target], Operation("*", Constant(100), _product_of(nodes)))


def _features(numbers: Numbers) -> Features:
    feature_terms: list[tuple[Node, tuple[float, ...]]] = []
    for column, column_name in enumerate(numbers.names):
        name = Name(column_name)
        feature_terms.append((name, (column, -1, 0, 1, 1, 1)))
        feature_terms.append((Operation("/", Constant(1), name), (column, -1, 0, 1, 1, -1)))
        share, scale = _share(numbers, column)
        if share is not None:
            feature_terms.append((Operation("-", Constant(1), share), (column, -1, 1, -1, scale, 1)))
            feature_terms.append((Operation("+", Constant(1), share), (column, -1, 1, 1, scale, 1)))
    if len(numbers.names) <= FEW:
        for i, j in combinations(range(len(numbers.names)), 2):
            pair_sum = Operation("+", Name(numbers.names[i]), Name(numbers.names[j]))
            feature_terms.append((Operation("/", Constant(1), pair_sum), (i, j, 0, 1, 1, -1)))
    first, second, *terms = np.array([terms for _, terms in feature_terms], dtype=float).T
    return Features([node for node, _ in feature_terms], first.astype(np.int64), second.astype(np.int64), *terms)


def _share(numbers: Numbers, column: int) -> tuple[Node | None, float]:
    """Return a column of shares or percentages as a share, and its divisor; None for other columns."""
    name = Name(numbers.names[column])
    low, high = np.nanmin(numbers.values[:, column]), np.nanmax(numbers.values[:, column])
    if low >= 0 and high <= 1:
        return name, 1
    if low >= 0 and high <= 100 and len(numbers.names) <= SOME:
        return Operation("/", name, Constant(100)), 100
    return None, 1


def _goals(numbers: Numbers, values: Floats) -> Goals:
    """Return all columns on all tries as goals and, if there are few columns, also plus or minus each other column."""
    n_columns = values.shape[2]
    target_column, other_column, added = np.arange(n_columns), np.full(n_columns, -1), np.ones(n_columns, dtype=bool)
    goal_values = values
    if n_columns <= FEW:
        column_pairs = np.argwhere(~np.eye(n_columns, dtype=bool)).repeat(2, axis=0)
        # A column that is subtracted from the target is added to the product.
        is_subtracted = np.arange(len(column_pairs)) % 2 == 0
        other_values = values[..., column_pairs[:, 1]]
        goal_values = np.concatenate(
            [values, values[..., column_pairs[:, 0]] + np.where(is_subtracted, -other_values, other_values)], axis=2
        )
        target_column, other_column, added = (
            np.append(target_column, column_pairs[:, 0]),
            np.append(other_column, column_pairs[:, 1]),
            np.append(added, is_subtracted),
        )
    is_precise = numbers.half_units[target_column] <= COARSE * goal_values.max(axis=0)
    tries, goal_index = np.nonzero((goal_values > 0).all(axis=0) & is_precise)
    goal_values = goal_values[:, tries, goal_index]
    tolerance = numbers.half_units[target_column[goal_index]] * 1.01 / goal_values + CLOSE
    return Goals(
        tries, target_column[goal_index], other_column[goal_index], added[goal_index], np.log(goal_values), tolerance
    )


def _pair_hits(goals: Goals, pairs: _Pairs, off: float | None = None) -> tuple[Places, Places]:
    """Return goals and the two features that sum to them; with an offset, only plain columns minus the offset."""
    goal_ids = np.arange(len(goals.tries)) if off is None else np.flatnonzero(goals.others < 0)
    pair_index, goal_index = pairs.near(
        goals.logs[:, goal_ids] - (off or 0.0), goals.room[:, goal_ids], goals.tries[goal_ids]
    )
    return goal_ids[goal_index], np.stack([pairs.first[pair_index], pairs.second[pair_index]], axis=1)


def _triple_hits(goals: Goals, pairs: _Pairs) -> tuple[Places, Places]:
    """Return goals that are plain columns, and the three features that sum to them."""
    plain_goals = np.flatnonzero(goals.others < 0)
    residuals = goals.logs[:, plain_goals, None] - pairs.logs[:, goals.tries[plain_goals]]
    goal_index, third = np.nonzero(~np.isnan(residuals[0]))
    goal_ids = plain_goals[goal_index]
    pair_index, match_index = pairs.near(
        residuals[:, goal_index, third], goals.room[:, goal_ids], goals.tries[goal_ids]
    )
    kept_matches = np.flatnonzero(pairs.second[pair_index] < third[match_index])
    kept_matches = kept_matches[_rank_within(goal_ids[match_index[kept_matches]]) < MOST_HITS]
    pair_index, match_index = pair_index[kept_matches], match_index[kept_matches]
    return goal_ids[match_index], np.stack(
        [pairs.first[pair_index], pairs.second[pair_index], third[match_index]], axis=1
    )


def _rank_within(groups: Places) -> Places:
    """Return the rank of each element within its group; `groups` is sorted.

    >>> _rank_within(np.array([3, 3, 5, 5, 5])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


def _distinct(goals: Goals, features: Features, goal: Places, places: Places) -> list[list[int]]:
    """Return the distinct hits (target, other, added, features) that do not use a column twice."""
    target_column, other_column = goals.targets[goal, None], goals.others[goal, None]
    members = np.sort(np.hstack([features.first[places], features.second[places]]), axis=1)
    has_repeats = ((members[:, 1:] == members[:, :-1]) & (members[:, 1:] >= 0)).any(axis=1)
    has_pair_sum = (features.second[places] >= 0).any(axis=1) & (places.shape[1] == 2)  # x / (x + y) may repeat x
    uses_target = ((members == target_column) | ((members == other_column) & (other_column >= 0))).any(axis=1)
    hit_table = np.hstack([target_column, other_column, goals.added[goal, None], places])[
        (~has_repeats | has_pair_sum) & ~uses_target
    ]
    return np.unique(hit_table, axis=0).tolist() if len(hit_table) else []


def _with_other(numbers: Numbers, product: Node, other: int, added: bool) -> Node:
    if other < 0:
        return product
    return Operation("+" if added else "-", product, Name(numbers.names[other]))


def _product_of(nodes: list[Node]) -> Node:
    """Return the product of the nodes, with inverses as divisions."""
    factors = [node for node in nodes if not _is_inverse(node)]
    divisors = [node.right for node in nodes if isinstance(node, Operation) and _is_inverse(node)]
    # Plain columns first: price * quantity * (1 - discount).
    factors.sort(key=lambda node: isinstance(node, Operation))
    product: Node = factors.pop(0) if factors else Constant(1)
    for factor in factors:
        product = Operation("*", product, factor)
    for divisor in divisors:
        product = Operation("/", product, divisor)
    return product


def _is_inverse(node: Node) -> bool:
    return isinstance(node, Operation) and node.sign == "/" and node.left == Constant(1)
