"""Order levels so that neighbours are similar and a single threshold separates meaningful groups of them.

The first synthetic rows are sampled from the product of the marginals, so every level has the same share of real rows
and the labels say nothing about single levels. What matters is which levels occur with the same values of other
columns: reciprocal averaging gives every row the mean score of its levels and every level the mean score of
its rows, until both converge. This is the first axis of multiple correspondence analysis.

The levels of a bundle whose combinations one column names (a zone in a borough, a product in a category) are ordered
like an address book if that says more about the other variables in rows held back: by a coarse column first, then by
those that refine it, so that a borough is an interval of zones and trees can split on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.bundles import mutual_information
from arf_dask.schema.discrete import Discrete
from arf_dask.typing import Floats, Ints

ROUNDS = 12
OWN_VALUE = 0.8  # minimum number of values per combination of a column that names them
COARSE = 4  # minimum number of combinations per value of a coarse column
ROWS_PER_LEVEL = 5  # levels of fewer rows on average have no scores of their own
FUNCTION = 0.95  # minimum share of rows in which a column is a function of another, to be ordered before it
INTERVALS = 16  # intervals of equal weight by which two orders are compared
SHRINKAGE = 5.0  # rows by which scores of levels are shrunk towards zero


class Scores(NamedTuple):
    """Scores by reciprocal averaging."""

    levels: list[Floats]  # per column: the scores of its levels, roughly within [-1, 1]; 0 for levels without rows
    rows: Floats  # sums of the scores of the levels of each row


def level_scores(columns: list[Discrete]) -> Scores:
    """Return the scores of the levels of each column, and their sums over the columns for each row."""
    if not columns:
        return Scores([], np.empty(0))
    n_rows = len(columns[0].ids)
    row_scores = _standard(generator(0, Stage.SCHEMA, 3).normal(size=n_rows))
    level_counts = [np.maximum(np.bincount(c.ids, minlength=c.n_values), 1) for c in columns]
    column_scores: list[Floats] = []
    score_sums = np.zeros(n_rows)
    for _ in range(ROUNDS):
        column_scores = [
            np.bincount(c.ids, row_scores, c.n_values) / n_level_rows
            for c, n_level_rows in zip(columns, level_counts, strict=True)
        ]
        score_sums = np.zeros(n_rows)
        for column, score in zip(columns, column_scores, strict=True):
            score_sums += score[column.ids]
        row_scores = _standard(score_sums)
    return Scores(column_scores, score_sums)


def coarse_members(tokens: Ints) -> list[Ints]:
    """Return, per coarse column of a bundle, the level of every state, those of few levels first.

    There are none unless another column names the states: columns on a par have no order among them.
    """
    levels = [np.unique(member_tokens, return_inverse=True)[1].astype(np.int32) for member_tokens in tokens.T]
    n_levels = [int(level.max(initial=0)) + 1 for level in levels]
    if max(n_levels) < OWN_VALUE * len(tokens):
        return []
    coarse = [m for m, n in enumerate(n_levels) if 2 <= n <= len(tokens) / COARSE]
    return [levels[m] for m in sorted(coarse, key=lambda m: n_levels[m])]


def scored_levels(states: Discrete, coarse: Sequence[Ints]) -> Discrete:
    """Return the levels by which a bundle takes part in reciprocal averaging: states, if they have enough rows each.

    Otherwise, a state would have the score of its one row, and the bundle would explain everything. Its finest coarse
    column with enough rows per level takes its place.
    """
    n_rows = len(states.ids)
    if not coarse or states.n_values * ROWS_PER_LEVEL <= n_rows:
        return states
    n_levels = [int(level.max()) + 1 for level in coarse]
    fine = [level for level, n in zip(coarse, n_levels, strict=True) if n * ROWS_PER_LEVEL <= n_rows]
    if not fine:
        return Discrete(np.zeros(n_rows, dtype=np.int32), 1)
    return Discrete(fine[-1][states.ids], int(fine[-1].max()) + 1)


def nested_orders(columns: Sequence[Discrete], coarse: Mapping[int, Sequence[Ints]]) -> dict[int, Ints]:
    """Return the nested order of every bundle for which it is better than the order of its scores.

    Both are learned on every second row, and compared by what their intervals say about the other variables in the
    rest.

    Args:
        columns: All variables, with the state of every row for bundles.
        coarse: Per bundle, the levels of its coarse columns, by state.
    """
    if not coarse:
        return {}
    half = [Discrete(column.ids[::2], column.n_values) for column in columns]
    rest = [Discrete(column.ids[1::2], column.n_values) for column in columns]
    flat_scores, half_orders, scored_rest = level_scores(half).levels, _all_nested(half, coarse), _scored(rest, coarse)
    better = []
    for number, order in half_orders.items():
        others = scored_rest[:number] + scored_rest[number + 1 :]
        flat_order = np.argsort(flat_scores[number], kind="stable")
        if _interval_information(rest[number], order, others) > _interval_information(rest[number], flat_order, others):
            better.append(number)
    whole = _all_nested(columns, coarse) if better else {}
    return {number: whole[number] for number in better}


def _all_nested(columns: Sequence[Discrete], coarse: Mapping[int, Sequence[Ints]]) -> dict[int, Ints]:
    scored = _scored(columns, coarse)
    scores = level_scores(scored)
    orders = {}
    for number, levels in coarse.items():
        others = scored[:number] + scored[number + 1 :]
        other_scores = scores.rows - scores.levels[number][scored[number].ids]
        orders[number] = nested_order(columns[number], levels, others, other_scores)
    return orders


def _scored(columns: Sequence[Discrete], coarse: Mapping[int, Sequence[Ints]]) -> list[Discrete]:
    return [scored_levels(column, coarse.get(number, ())) for number, column in enumerate(columns)]


def _interval_information(states: Discrete, order: NDArray[np.integer], others: Sequence[Discrete]) -> float:
    """Return what intervals of equal weight in an order of the states say about other variables."""
    counts = np.bincount(states.ids, minlength=states.n_values)[order]
    interval_of_place = np.minimum((np.cumsum(counts) - counts / 2) * INTERVALS / len(states.ids), INTERVALS - 1)
    interval = np.empty(states.n_values, dtype=np.int32)
    interval[order] = interval_of_place.astype(np.int32)
    return _information(Discrete(interval[states.ids], INTERVALS), others)


def nested_order(states: Discrete, coarse: Sequence[Ints], others: Sequence[Discrete], other_scores: Floats) -> Ints:
    """Return the order of the states of a bundle, in which the levels of coarse columns are contiguous.

    The coarse column that says most about other variables leads, after those that are functions of it.

    Args:
        states: The state of every row.
        coarse: Per coarse column, the level of every state.
        others: The other variables.
        other_scores: The score of every row by the other variables.
    """
    state_rows = np.bincount(states.ids, minlength=states.n_values)
    lead = int(np.argmax([_information(Discrete(level[states.ids], int(level.max()) + 1), others) for level in coarse]))
    chain = [
        level
        for member, level in enumerate(coarse)
        if member == lead
        or (member < lead and _is_function(level, coarse[lead], state_rows))
        or (member > lead and _is_function(coarse[lead], level, state_rows))
    ]
    keys = [np.arange(states.n_values), _shrunken_scores(states, other_scores)]
    for level in reversed(chain):
        scores = _shrunken_scores(Discrete(level[states.ids], int(level.max()) + 1), other_scores)
        keys.append(np.argsort(np.argsort(scores, kind="stable"))[level])
    return np.lexsort(keys).astype(np.int32)


def _information(column: Discrete, others: Sequence[Discrete]) -> float:
    """Return the mutual information with the other variables above its expectation under independence."""
    n_rows = len(column.ids)
    chance = [(column.n_values - 1) * (other.n_values - 1) / (2 * n_rows) for other in others]
    found = [mutual_information(column, other) for other in others]
    return float(sum(max(information - by_chance, 0.0) for information, by_chance in zip(found, chance, strict=True)))


def _is_function(child: Ints, parent: Ints, state_rows: NDArray[np.integer]) -> bool:
    """Whether a column of a bundle is a function of another one in nearly all rows."""
    pairs, pair_of_state = np.unique(parent.astype(np.int64) * (child.max() + 1) + child, return_inverse=True)
    pair_rows = np.bincount(pair_of_state, state_rows)
    most = np.zeros(int(parent.max()) + 1)
    np.maximum.at(most, pairs // (child.max() + 1), pair_rows)
    return bool(most.sum() >= FUNCTION * state_rows.sum())


def _shrunken_scores(column: Discrete, row_scores: Floats) -> Floats:
    sums = np.bincount(column.ids, row_scores, column.n_values)
    return np.asarray(sums / (np.bincount(column.ids, minlength=column.n_values) + SHRINKAGE))


def _standard(values: Floats) -> Floats:
    centred = values - values.mean()
    spread = float(np.sqrt((centred**2).mean()))
    return np.asarray(centred / spread if spread > 0 else centred)
