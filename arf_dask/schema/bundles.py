"""Find bundles: groups of strongly dependent discrete columns that are modelled as one variable.

Leaves treat variables as independent, so strongly dependent columns are better modelled as one: `education`
and `education_num`, `marital` and `relationship`, a `sku` with its category and list price, `warehouse` and
`product` with the shelf they determine, a clock time with its hour. Pairs are screened on a sample of rows, and
the resulting bundles are verified on all rows.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.discrete import Discrete, Ids, collision
from arf_dask.schema.near_functions import exceptions, find_near_functions, is_sparse, most_exceptions
from arf_dask.typing import Floats

SAMPLE_ROWS = 4_000
MANY_COLUMNS = 100  # with more columns than this, half as many rows are sampled
LEAST_ROWS = 40
STRONG = 0.4  # minimum strength of a strong dependence (see `Pair`)
IMPOSSIBLE_SHARE = 0.02  # minimum share of rows that independence predicts in combinations that never occur
NOVELTY = 2.5e-4  # maximum share of rows with a unique combination (Good-Turing estimate of the unseen mass)
ROWS_PER_COMBINATION = 5  # rows per combination of arguments needed to accept a function
MOST_COMBINATIONS = 20_000  # maximum for a bundle whose members are functions of each other
LOOSE_COMBINATIONS = 256  # maximum for a bundle whose members are dependent, but not functions of each other
LOOSE_ROWS = 50  # minimum rows per combination of such a bundle
COMPLETE_COMBINATIONS = 16  # maximum for a bundle of strongly dependent columns whose combinations all occur
COMPLETE_ROWS = 10  # minimum rows of each combination of such a bundle
SMALL = 32  # columns with at most this many values are screened with one matrix product
MOST_LARGE = 40  # maximum number of larger columns, which are screened pair by pair
SEEN_ONCE = 0.01  # maximum share of rows with a unique combination, for columns of many values
NEAR_EXCEPTIONS = 0.04  # maximum number of combinations that a column adds to those that determine it, per row
MOST_SINGLE = 0.5  # maximum share of rows whose combination is unique
SINGLE_COPIES = 1e-3  # maximum share of sampled rows that equal a training row, for bundles of unique combinations
EVIDENCE = 25.0  # nats of evidence against chance that a function needs
PARENTS = 6  # columns considered as arguments of a function (only the first 4 for functions of three)


class Pair(NamedTuple):
    """The strength of the dependence between two columns."""

    first: int
    second: int
    strength: float  # mutual information above chance as a share of its maximum: 0 independent, 1 a function
    impossible: float  # share of rows that independence predicts in combinations that never occur

    @property
    def hangs_together(self) -> bool:
        return self.impossible >= IMPOSSIBLE_SHARE


def find_bundles(
    columns: dict[int, Discrete],
    n_rows: int,
    keys: Collection[int] | None = None,
    *,
    others_vary: bool = False,
    distinct_rows: NDArray[np.int64] | None = None,
) -> list[list[int]]:
    """Return the groups of column keys to model as one variable; ungrouped columns are left out.

    Args:
        columns: The columns, with the ids of all rows.
        n_rows: The number of rows.
        keys: The columns that may have few rows per value and determine others, such as product numbers; None for all.
        others_vary: Whether the table has another column in which nearly all rows differ.
        distinct_rows: One row of each set of equal rows, if there are many: in copies of a row, every column determines
            every other one.
    """
    if not columns:
        return []
    if n_rows < LEAST_ROWS:
        return _lookup(columns, n_rows)
    usable = {key: c for key, c in columns.items() if 2 <= c.n_values <= _most_values(n_rows)}
    groups = _Groups(columns, n_rows)
    distinct = columns if distinct_rows is None else {key: _compact(c.ids[distinct_rows]) for key, c in columns.items()}
    for group in _near_groups(distinct, columns if keys is None else keys, others_vary=others_vary):
        groups.unite(group)
    if len(usable) < 2:
        return groups.several()
    sample_rows = screening_rows(n_rows, _sample_size(columns))
    sampled = {key: _compact(c.ids[sample_rows]) for key, c in usable.items()}
    pairs = screen_pairs(sampled)
    ranked_pairs = sorted(pairs, key=lambda p: (-p.strength - p.impossible, p.first, p.second))
    for pair in ranked_pairs:
        if pair.hangs_together:
            groups.join([pair.first, pair.second])
    _join_functions(groups, sampled, pairs)
    for pair in ranked_pairs:
        if pair.strength >= STRONG:
            groups.join_complete([pair.first, pair.second])
    return groups.several()


def _sample_size(columns: dict[int, Discrete]) -> int:
    return SAMPLE_ROWS if len(columns) <= MANY_COLUMNS else SAMPLE_ROWS // 2


def _near_groups(columns: dict[int, Discrete], keys: Collection[int], *, others_vary: bool) -> list[list[int]]:
    """Group columns with the columns that determine them in nearly all rows, those with the fewest exceptions first.

    If most combinations of a group are unique, its rows would be copied: it is formed again without the column of most
    values. It stays if the other columns differ so much between rows that hardly a sampled row equals a real one: a
    sale is not known by its product, but a patient by a diagnosis in free text.
    """
    n_rows = len(next(iter(columns.values())).ids)
    near_functions = sorted(
        (exceptions(columns[parent], columns[child]), parent, child)
        for parent, child in find_near_functions(columns, screening_rows(n_rows, _sample_size(columns)), keys)
    )
    apart: set[int] = set()  # columns that are left out
    while True:
        groups = _Groups(columns, n_rows)
        for n_exceptions, parent, child in near_functions:
            is_sparse_key = parent in keys and is_sparse(columns[parent])
            is_near = n_exceptions <= most_exceptions(columns[parent], sparse=is_sparse_key)
            if is_near and not apart & {parent, child}:
                groups.join_near(parent, child)
        single = [g for g in groups.several() if _would_copy(groups, g, apart, others_vary=others_vary)]
        if not single:
            return groups.several()
        apart |= {max(group, key=lambda key: (columns[key].n_values, key)) for group in single}


def _would_copy(groups: _Groups, group: list[int], apart: set[int], *, others_vary: bool) -> bool:
    """Whether sampled rows of these columns, modelled as one, would often equal exactly one training row."""
    single_share = _n_once(groups.combined[tuple(group)]) / groups.n_rows
    if single_share <= MOST_SINGLE or others_vary:
        return False
    others = [column for key, column in groups.columns.items() if key not in group and key not in apart]
    return single_share * (collision(combine(others)) if others else 1.0) > SINGLE_COPIES


def _lookup(columns: dict[int, Discrete], n_rows: int) -> list[list[int]]:
    """Bundle the columns of a small table that each identify its rows."""
    unique_keys = sorted(key for key, column in columns.items() if column.n_values == n_rows > 2)
    return [unique_keys] if len(unique_keys) > 1 else []


def screening_rows(n_rows: int, most: int = SAMPLE_ROWS) -> NDArray[np.int64]:
    """Return the sorted indices of at most `most` rows to screen pairs on, a function of `n_rows` alone."""
    if n_rows <= most:
        return np.arange(n_rows)
    sampled_rows = generator(0, Stage.SCHEMA).choice(n_rows, most, replace=False)
    return np.sort(sampled_rows)


def screen_pairs(columns: dict[int, Discrete]) -> list[Pair]:
    """Measure the dependence of every pair of columns, adjusted for chance by shuffling the rows."""
    small_columns = {key: c for key, c in columns.items() if c.n_values <= SMALL}
    large_keys = sorted((key for key in columns if key not in small_columns), key=lambda key: columns[key].n_values)
    screened_keys = large_keys[:MOST_LARGE]
    pairs = _screen_small(small_columns)
    shuffled_columns = _shuffled(columns)
    entropies = {key: shannon_entropy(np.bincount(c.ids)) for key, c in columns.items()}
    all_keys = [*small_columns, *screened_keys]
    for key in screened_keys:
        for other_key in all_keys[: all_keys.index(key)]:
            observed_information = mutual_information(columns[key], columns[other_key])
            chance_information = mutual_information(shuffled_columns[key], shuffled_columns[other_key])
            n_rows = len(columns[key].ids)
            smaller_entropy = min(entropies[key], entropies[other_key])
            strength = _strength(observed_information, chance_information, smaller_entropy, n_rows)
            if strength > 0:
                # Pairs of many values are too sparse to identify impossible combinations: use the strength instead.
                first, second = min(key, other_key), max(key, other_key)
                pairs.append(Pair(first, second, strength, 1.0 if strength >= STRONG else 0.0))
    return pairs


def mutual_information(a: Discrete, b: Discrete) -> float:
    """Plug-in estimate of the mutual information, in nats.

    >>> both = Discrete(np.array([0, 1, 0, 1], dtype=np.int32), 2)
    >>> round(mutual_information(both, both), 4)
    0.6931
    """
    joint_ids = a.ids.astype(np.int64) * b.n_values + b.ids
    joint_entropy = shannon_entropy(_counts(joint_ids, a.n_values * b.n_values))
    return shannon_entropy(np.bincount(a.ids)) + shannon_entropy(np.bincount(b.ids)) - joint_entropy


def flag_ties(flags: NDArray[np.bool_], columns: list[Discrete]) -> Floats:
    """Return how much of each flag every column explains, as a (flag, column) matrix from 0 (nothing) to 1 (all).

    The measure is the mutual information minus its expectation under independence, (values - 1) / 2n, divided by the
    entropy of the flag. It is 0 where the evidence is too weak to rule out chance.
    """
    n_rows = len(flags)
    indicators = flags.astype(np.float32)
    flag_shares = flags.mean(axis=0)
    negative_entropy = _plus_log(flag_shares) + _plus_log(1 - flag_shares)
    ties = np.zeros((flags.shape[1], len(columns)))
    for column_index, column in enumerate(columns):
        level_indicators = np.zeros((n_rows, column.n_values), dtype=np.float32)
        level_indicators[np.arange(n_rows), column.ids] = 1
        joint_shares = (indicators.T @ level_indicators).astype(np.float64) / n_rows
        level_shares = level_indicators.mean(axis=0, dtype=np.float64)[None, :]
        joint_terms = (_plus_log(joint_shares) + _plus_log(np.maximum(level_shares - joint_shares, 0))).sum(axis=1)
        n_values = int((level_shares > 0).sum())
        adjusted_information = (
            joint_terms - negative_entropy - _plus_log(level_shares).sum() - (n_values - 1) / (2 * n_rows)
        )
        ties[:, column_index] = np.where(2 * n_rows * adjusted_information >= EVIDENCE, adjusted_information, 0.0)
    return ties / np.maximum(-negative_entropy, 1e-12)[:, None]


def _plus_log(share: Floats) -> Floats:
    """Return p log p, with 0 log 0 = 0."""
    return share * np.log(np.where(share > 0, share, 1.0))


def shannon_entropy(counts: NDArray[np.int64]) -> float:
    """Plug-in estimate of the entropy of a table of counts, in nats.

    >>> round(shannon_entropy(np.array([2, 2, 0])), 4)
    0.6931
    """
    positive_counts = counts[counts > 0]
    total = positive_counts.sum()
    return float(np.log(total) - (positive_counts * np.log(positive_counts)).sum() / total)


def _most_values(n_rows: int) -> int:
    return min(MOST_COMBINATIONS, n_rows // ROWS_PER_COMBINATION)


def _compact(ids: Ids) -> Discrete:
    values, value_ids = np.unique(ids, return_inverse=True)
    return Discrete(value_ids.astype(np.int32), len(values))


def _counts(joint: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    if size <= 16 * len(joint):
        return np.bincount(joint, minlength=1)
    return np.unique(joint, return_counts=True)[1]


def _shuffled(columns: dict[int, Discrete]) -> dict[int, Discrete]:
    rng = generator(0, Stage.SCHEMA, 1)
    return {key: Discrete(rng.permutation(c.ids), c.n_values) for key, c in columns.items()}


def _strength(true: float, chance: float, smaller: float, rows: int) -> float:
    """Return the mutual information above chance as a share of its maximum; 0 where chance could explain it."""
    possible_gain = smaller - chance
    # Nearly unique columns "explain" everything by chance: nothing can be learned from them.
    if possible_gain < 0.3 * smaller or smaller < 1e-3 or 2 * rows * (true - chance) < EVIDENCE:
        return 0.0
    return max((true - chance) / possible_gain, 0.0)


def _screen_small(columns: dict[int, Discrete]) -> list[Pair]:
    """Screen all pairs of columns with few values, with one product of their indicator matrices."""
    if len(columns) < 2:
        return []
    keys = list(columns)
    observed_information, impossible = _pair_tables([columns[k] for k in keys])
    chance_information, chance_impossible = _pair_tables(list(_shuffled(columns).values()))
    n_rows = len(columns[keys[0]].ids)
    # If all combinations were possible, they would be absent with a probability of exp(-rows * share).
    impossible = np.where(n_rows * (impossible - chance_impossible) >= EVIDENCE, impossible - chance_impossible, 0.0)
    entropies = [shannon_entropy(np.bincount(columns[k].ids)) for k in keys]
    notable_pairs = []
    # Loop only over pairs that could matter: with 1,000 columns there are half a million pairs.
    is_notable = (2 * n_rows * (observed_information - chance_information) >= EVIDENCE) | (
        impossible >= IMPOSSIBLE_SHARE
    )
    for i, j in zip(*np.nonzero(np.triu(is_notable, 1)), strict=True):
        smaller_entropy = min(entropies[i], entropies[j])
        strength = _strength(observed_information[i, j], chance_information[i, j], smaller_entropy, n_rows)
        notable_pairs.append(Pair(keys[i], keys[j], strength, float(impossible[i, j])))
    return notable_pairs


def _pair_tables(columns: list[Discrete]) -> tuple[Floats, Floats]:
    """Return two (column, column) matrices: mutual information, and the share of rows predicted in empty cells."""
    starts = np.concatenate([[0], np.cumsum([c.n_values for c in columns])])
    n_rows = len(columns[0].ids)
    indicators = np.zeros((n_rows, starts[-1]), dtype=np.float32)
    for start, column in zip(starts, columns, strict=False):
        indicators[np.arange(n_rows), start + column.ids] = 1
    value_shares = indicators.mean(axis=0, dtype=np.float64).astype(np.float32)
    joint_sums, impossible = np.empty((2, len(columns), len(columns)))
    weighted_logs = (np.arange(n_rows + 1) * np.log(np.maximum(np.arange(n_rows + 1), 1))).astype(np.float32)
    block_width = max(1, 8_000_000 // int(starts[-1]))
    first = 0
    while first < len(columns):
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + block_width, side="right")) - 1)
        value_slice = slice(starts[first], starts[last])
        counts = (indicators[:, value_slice].T @ indicators).astype(np.int32)
        empty_shares = np.where(counts == 0, np.outer(value_shares[value_slice], value_shares), np.float32(0))
        joint_sums[first:last] = _block_sums(weighted_logs[counts], starts, first, last)
        impossible[first:last] = _block_sums(empty_shares, starts, first, last)
        first = last
    own_sums = np.diag(joint_sums)
    # I = H(a) + H(b) - H(a, b), each H = log n - sum c log c / n.
    return np.log(n_rows) + (joint_sums - own_sums[:, None] - own_sums[None, :]) / n_rows, impossible


def _block_sums(cells: NDArray[np.float32], starts: NDArray[np.int64], first: int, last: int) -> Floats:
    """Sum the cells of a block of value pairs for each pair of columns."""
    by_column = np.add.reduceat(cells, starts[:-1], axis=1, dtype=np.float64)
    return np.add.reduceat(by_column, starts[first:last] - starts[first], axis=0)


class _Groups:
    """Disjoint groups of columns that are merged as long as the number of combinations stays small."""

    def __init__(self, columns: dict[int, Discrete], n_rows: int) -> None:
        self.columns = columns
        self.n_rows = n_rows
        self.group_of: dict[int, tuple[int, ...]] = {key: (key,) for key in columns}
        self.combined: dict[tuple[int, ...], Discrete] = {(key,): column for key, column in columns.items()}

    def join(self, keys: list[int], *, exact: bool = False) -> None:
        """Merge the groups of these columns if the number of combinations stays small."""
        parts = sorted({self.group_of[key] for key in keys})
        if len(parts) < 2:
            return
        joined = combine([self.combined[part] for part in parts])
        largest_part = max(self.combined[part].n_values for part in parts)
        is_loose = joined.n_values <= min(LOOSE_COMBINATIONS, self.n_rows // LOOSE_ROWS)
        is_loose = is_loose and _n_once(joined) <= NOVELTY * self.n_rows
        is_tight = joined.n_values <= _most_values(self.n_rows) and (exact or joined.n_values <= 1.02 * largest_part)
        if is_loose or is_tight or self._pairs_seen(joined, largest_part):
            self._unite(parts, joined)

    def _pairs_seen(self, joined: Discrete, largest: int) -> bool:
        """Whether columns of many values have few combinations, nearly all of them repeated (flight and carrier)."""
        is_small = largest > LOOSE_COMBINATIONS and joined.n_values <= min(3 * largest, _most_values(self.n_rows))
        return is_small and _n_once(joined) <= SEEN_ONCE * self.n_rows

    def join_near(self, parent: int, child: int) -> None:
        """Merge two groups if that adds few combinations; exceptions become combinations of their own."""
        parts = sorted({self.group_of[parent], self.group_of[child]})
        if len(parts) < 2:
            return
        joined = combine([self.combined[part] for part in parts])
        largest_part = max(self.combined[part].n_values for part in parts)
        if joined.n_values <= largest_part + NEAR_EXCEPTIONS * self.n_rows:
            self._unite(parts, joined)

    def join_complete(self, keys: list[int]) -> None:
        """Merge the groups of these columns if they have few combinations, all of which occur often enough."""
        parts = sorted({self.group_of[key] for key in keys})
        sizes = [self.combined[part].n_values for part in parts]
        if len(parts) < 2 or np.prod(sizes) > COMPLETE_COMBINATIONS:
            return
        joined = combine([self.combined[part] for part in parts])
        if joined.n_values == np.prod(sizes) and np.bincount(joined.ids).min() >= COMPLETE_ROWS:
            self._unite(parts, joined)

    def unite(self, keys: list[int]) -> None:
        """Merge the groups of these columns."""
        parts = sorted({self.group_of[key] for key in keys})
        self._unite(parts, combine([self.combined[part] for part in parts]))

    def _unite(self, parts: list[tuple[int, ...]], joined: Discrete) -> None:
        members = tuple(sorted(key for part in parts for key in part))
        self.combined[members] = joined
        self.group_of.update(dict.fromkeys(members, members))

    def several(self) -> list[list[int]]:
        return sorted(list(group) for group in set(self.group_of.values()) if len(group) > 1)


def _n_once(column: Discrete) -> int:
    """Count the values that occur in exactly one row."""
    return int((np.bincount(column.ids) == 1).sum())


def combine(parts: list[Discrete]) -> Discrete:
    """Combine columns into one, with one value per combination that occurs."""
    joint_ids = parts[0].ids.astype(np.int64)
    n_values = parts[0].n_values
    for part in parts[1:]:
        joint_ids, n_values = _renumber(joint_ids * part.n_values + part.ids, n_values * part.n_values)
    return Discrete(joint_ids.astype(np.int32), n_values)


def _renumber(joint: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], int]:
    if size <= 4 * len(joint) + 1024:
        is_present = np.bincount(joint, minlength=size) > 0
        return (np.cumsum(is_present) - 1)[joint], int(is_present.sum())
    values, value_ids = np.unique(joint, return_inverse=True)
    return value_ids.astype(np.int64), len(values)


def _join_functions(groups: _Groups, sampled: dict[int, Discrete], pairs: list[Pair]) -> None:
    """Join columns with the one to three columns that determine them (warehouse + product -> shelf)."""
    strengths: dict[int, dict[int, float]] = {key: {} for key in sampled}
    for pair in pairs:
        if pair.strength > 0:
            strengths[pair.first][pair.second] = pair.strength
            strengths[pair.second][pair.first] = pair.strength
    for target, neighbours in strengths.items():
        parents = sorted(neighbours, key=lambda key: (-neighbours[key], key))[:PARENTS]
        parent_sets = [*combinations(parents, 1), *combinations(parents, 2), *combinations(parents[:4], 3)]
        for parent_set in parent_sets:
            if all(groups.group_of[key] == groups.group_of[target] for key in parent_set):
                continue
            if _is_function(target, parent_set, sampled) and _is_function(target, parent_set, groups.columns):
                groups.join([*parent_set, target], exact=True)
                break


def _is_function(target: int, parents: tuple[int, ...], columns: dict[int, Discrete]) -> bool:
    """Whether the parents determine the target in every row, with enough evidence to rule out chance."""
    parent_column = combine([columns[key] for key in parents])
    n_repeats = len(parent_column.ids) - parent_column.n_values
    if n_repeats <= 0 or combine([parent_column, columns[target]]).n_values > parent_column.n_values:
        return False
    chance_agreement = max((_collision(columns[target], columns[key]) for key in parents), default=1.0)
    return chance_agreement < 1 and n_repeats * -np.log(chance_agreement) > EVIDENCE


def _collision(target: Discrete, parent: Discrete) -> float:
    """Return the probability that two rows with equal parent values have equal target values: E[sum_t p(t|p)^2]."""
    joint_ids = parent.ids.astype(np.int64) * target.n_values + target.ids
    values, counts = np.unique(joint_ids, return_counts=True)
    parent_counts = np.bincount(parent.ids, minlength=parent.n_values)
    return float((counts**2 / parent_counts[values // target.n_values]).sum() / len(target.ids))
