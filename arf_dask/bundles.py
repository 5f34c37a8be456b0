"""Columns that hang together, found from pair counts.

Leaves treat variables as independent, so columns that belong together are better modelled as one: `education`
and `education_num`, `marital` and `relationship`, a `sku` with its category and list price, `warehouse` and
`product` with the shelf they determine, a clock time with its hour. Pairs are screened on a sample of rows;
whatever comes of it is verified on all of them.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.seeds import Stage, generator

Ids = NDArray[np.int32]
Floats = NDArray[np.float64]

SAMPLE_ROWS = 4_000
MANY_COLUMNS = 100  # beyond so many, half as many rows are sampled
LEAST_ROWS = 40
STRONG = 0.4  # adjusted mutual information over the smaller entropy
IMPOSSIBLE = 0.02  # share of rows that independent columns would put into combinations that never occur
NOVELTY = 2.5e-4  # share of rows that may hold a combination of their own (Good-Turing: the unseen rest)
ROWS_PER_COMBINATION = 5  # a function must be seen to hold: rows per combination of its arguments
MOST_COMBINATIONS = 20_000  # of a bundle whose members are functions of each other
LOOSE_COMBINATIONS = 256  # of a bundle whose members only hang together
LOOSE_ROWS = 50  # rows per combination of such a bundle
COMPLETE_COMBINATIONS = 16  # of a bundle of strongly tied columns, all of whose combinations occur,
COMPLETE_ROWS = 10  # each so often
SMALL = 32  # columns with at most so many values are screened by one matrix product
MOST_LARGE = 40  # columns with more values that are screened pair by pair
EVIDENCE = 25.0  # nats against "by chance" that a function needs
PARENTS = 6  # columns considered as arguments of a function (the first 4 for three at a time)


class Discrete(NamedTuple):
    """A column as whole numbers 0 .. n_values - 1, one per row."""

    ids: Ids
    n_values: int


class Pair(NamedTuple):
    """How strongly two columns hang together."""

    first: int
    second: int
    strength: float  # adjusted mutual information over the smaller entropy: 0 none, 1 a function
    impossible: float  # share of rows that independence would put into combinations that never occur

    @property
    def hangs_together(self) -> bool:
        return self.impossible >= IMPOSSIBLE


def find_bundles(columns: dict[int, Discrete], n_rows: int) -> list[list[int]]:
    """Groups of columns (by their keys) to be modelled as one; columns in no group are left out."""
    usable = {key: c for key, c in columns.items() if 2 <= c.n_values <= _most_values(n_rows)}
    if n_rows < LEAST_ROWS or len(usable) < 2:
        return []
    rows = sample_rows(n_rows, SAMPLE_ROWS if len(usable) <= MANY_COLUMNS else SAMPLE_ROWS // 2)
    sampled = {key: _compact(c.ids[rows]) for key, c in usable.items()}
    pairs = screen_pairs(sampled)
    groups = _Groups(usable, n_rows)
    ordered = sorted(pairs, key=lambda p: (-p.strength - p.impossible, p.first, p.second))
    for pair in ordered:
        if pair.hangs_together:
            groups.join([pair.first, pair.second])
    _join_functions(groups, sampled, pairs)
    for pair in ordered:
        if pair.strength >= STRONG:
            groups.join_complete([pair.first, pair.second])
    return groups.several()


def sample_rows(n_rows: int, most: int = SAMPLE_ROWS) -> NDArray[np.int64]:
    """Rows for screening: the same ones for the same number of rows."""
    if n_rows <= most:
        return np.arange(n_rows)
    chosen = generator(0, Stage.SCHEMA).choice(n_rows, most, replace=False)
    return np.sort(chosen)


def screen_pairs(columns: dict[int, Discrete]) -> list[Pair]:
    """The strength of every pair, adjusted for chance by the same measure on shuffled rows."""
    small = {key: c for key, c in columns.items() if c.n_values <= SMALL}
    many = sorted((key for key in columns if key not in small), key=lambda key: columns[key].n_values)
    large = many[:MOST_LARGE]
    pairs = _screen_small(small)
    shuffled = _shuffled(columns)
    entropies = {key: entropy(np.bincount(c.ids)) for key, c in columns.items()}
    others = [*small, *large]
    for key in large:
        for other in others[: others.index(key)]:
            true = mutual_information(columns[key], columns[other])
            chance = mutual_information(shuffled[key], shuffled[other])
            rows = len(columns[key].ids)
            smaller = min(entropies[key], entropies[other])
            strength = _strength(true, chance, smaller, rows)
            if strength > 0:
                # Tables of many values are too sparse to tell what is impossible: a strong tie stands in.
                first, second = min(key, other), max(key, other)
                pairs.append(Pair(first, second, strength, 1.0 if strength >= STRONG else 0.0))
    return pairs


def mutual_information(a: Discrete, b: Discrete) -> float:
    """Plug-in mutual information in nats.

    >>> both = Discrete(np.array([0, 1, 0, 1], dtype=np.int32), 2)
    >>> round(mutual_information(both, both), 4)
    0.6931
    """
    joint = a.ids.astype(np.int64) * b.n_values + b.ids
    together = entropy(_counts(joint, a.n_values * b.n_values))
    return entropy(np.bincount(a.ids)) + entropy(np.bincount(b.ids)) - together


def flag_ties(flags: NDArray[np.bool_], columns: list[Discrete]) -> Floats:
    """How much each column tells of each flag: (flag, column), 0 nothing, 1 everything.

    Mutual information over the flag's entropy, less what chance gives ((values - 1) / 2n); 0 where it may be chance.
    """
    rows = len(flags)
    indicators = flags.astype(np.float32)
    share = flags.mean(axis=0)
    own = _plus_log(share) + _plus_log(1 - share)
    ties = np.zeros((flags.shape[1], len(columns)))
    for number, column in enumerate(columns):
        levels = np.zeros((rows, column.n_values), dtype=np.float32)
        levels[np.arange(rows), column.ids] = 1
        with_flag = (indicators.T @ levels).astype(np.float64) / rows
        level = levels.mean(axis=0, dtype=np.float64)[None, :]
        joint = (_plus_log(with_flag) + _plus_log(np.maximum(level - with_flag, 0))).sum(axis=1)
        n_values = int((level > 0).sum())
        gain = joint - own - _plus_log(level).sum() - (n_values - 1) / (2 * rows)
        ties[:, number] = np.where(2 * rows * gain >= EVIDENCE, gain, 0.0)
    return ties / np.maximum(-own, 1e-12)[:, None]


def _plus_log(share: Floats) -> Floats:
    """P log p, 0 at 0."""
    return share * np.log(np.where(share > 0, share, 1.0))


def entropy(counts: NDArray[np.int64]) -> float:
    """Plug-in entropy in nats of a table of counts.

    >>> round(entropy(np.array([2, 2, 0])), 4)
    0.6931
    """
    present = counts[counts > 0]
    total = present.sum()
    return float(np.log(total) - (present * np.log(present)).sum() / total)


def _most_values(n_rows: int) -> int:
    return min(MOST_COMBINATIONS, n_rows // ROWS_PER_COMBINATION)


def _compact(ids: Ids) -> Discrete:
    values, found = np.unique(ids, return_inverse=True)
    return Discrete(found.astype(np.int32), len(values))


def _counts(joint: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    if size <= 16 * len(joint):
        return np.bincount(joint, minlength=1)
    return np.unique(joint, return_counts=True)[1]


def _shuffled(columns: dict[int, Discrete]) -> dict[int, Discrete]:
    rng = generator(0, Stage.SCHEMA, 1)
    return {key: Discrete(rng.permutation(c.ids), c.n_values) for key, c in columns.items()}


def _strength(true: float, chance: float, smaller: float, rows: int) -> float:
    """Adjusted mutual information; 0 where it is weak against what chance alone gives."""
    room = smaller - chance
    # Near-unique columns "explain" everything by chance: nothing can be learned from them.
    if room < 0.3 * smaller or smaller < 1e-3 or 2 * rows * (true - chance) < EVIDENCE:
        return 0.0
    return max((true - chance) / room, 0.0)


def _screen_small(columns: dict[int, Discrete]) -> list[Pair]:
    """All pairs of columns with few values, by one product of their indicator matrices."""
    if len(columns) < 2:
        return []
    keys = list(columns)
    true, impossible = _pair_tables([columns[k] for k in keys])
    chance, missed = _pair_tables(list(_shuffled(columns).values()))
    rows = len(columns[keys[0]].ids)
    # That so many rows miss a combination by chance has probability exp(-rows * share).
    impossible = np.where(rows * (impossible - missed) >= EVIDENCE, impossible - missed, 0.0)
    entropies = [entropy(np.bincount(columns[k].ids)) for k in keys]
    found = []
    # Only pairs that could matter are looked at one by one: with 1,000 columns there are half a million.
    notable = (2 * rows * (true - chance) >= EVIDENCE) | (impossible >= IMPOSSIBLE)
    for i, j in zip(*np.nonzero(np.triu(notable, 1)), strict=True):
        smaller = min(entropies[i], entropies[j])
        strength = _strength(true[i, j], chance[i, j], smaller, rows)
        found.append(Pair(keys[i], keys[j], strength, float(impossible[i, j])))
    return found


def _pair_tables(columns: list[Discrete]) -> tuple[Floats, Floats]:
    """For every pair: mutual information, and the share of rows independence puts where there are none."""
    starts = np.concatenate([[0], np.cumsum([c.n_values for c in columns])])
    rows = len(columns[0].ids)
    indicators = np.zeros((rows, starts[-1]), dtype=np.float32)
    for start, column in zip(starts, columns, strict=False):
        indicators[np.arange(rows), start + column.ids] = 1
    shares = indicators.mean(axis=0, dtype=np.float64).astype(np.float32)
    joint, impossible = np.empty((2, len(columns), len(columns)))
    weighted_logs = (np.arange(rows + 1) * np.log(np.maximum(np.arange(rows + 1), 1))).astype(np.float32)
    block = max(1, 8_000_000 // int(starts[-1]))
    first = 0
    while first < len(columns):
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + block, side="right")) - 1)
        here = slice(starts[first], starts[last])
        counts = (indicators[:, here].T @ indicators).astype(np.int32)
        empty = np.where(counts == 0, np.outer(shares[here], shares), np.float32(0))
        joint[first:last] = _block_sums(weighted_logs[counts], starts, first, last)
        impossible[first:last] = _block_sums(empty, starts, first, last)
        first = last
    single = np.diag(joint)
    # I = H(a) + H(b) - H(a, b), each H = log n - sum c log c / n.
    return np.log(rows) + (joint - single[:, None] - single[None, :]) / rows, impossible


def _block_sums(cells: NDArray[np.float32], starts: NDArray[np.int64], first: int, last: int) -> Floats:
    """Sums over the values of each pair of columns, from sums over pairs of values."""
    by_column = np.add.reduceat(cells, starts[:-1], axis=1, dtype=np.float64)
    return np.add.reduceat(by_column, starts[first:last] - starts[first], axis=0)


class _Groups:
    """Disjoint groups of columns that grow by joining, as long as their combinations stay few."""

    def __init__(self, columns: dict[int, Discrete], n_rows: int) -> None:
        self.columns = columns
        self.n_rows = n_rows
        self.group_of: dict[int, tuple[int, ...]] = {key: (key,) for key in columns}
        self.combined: dict[tuple[int, ...], Discrete] = {(key,): column for key, column in columns.items()}

    def join(self, keys: list[int], *, exact: bool = False) -> None:
        """Make one group of the groups of these columns, if their combinations stay few."""
        parts = sorted({self.group_of[key] for key in keys})
        if len(parts) < 2:
            return
        joined = combine([self.combined[part] for part in parts])
        largest = max(self.combined[part].n_values for part in parts)
        loose = joined.n_values <= min(LOOSE_COMBINATIONS, self.n_rows // LOOSE_ROWS)
        loose = loose and _n_once(joined) <= NOVELTY * self.n_rows
        tight = joined.n_values <= _most_values(self.n_rows) and (exact or joined.n_values <= 1.02 * largest)
        if loose or tight:
            self._unite(parts, joined)

    def join_complete(self, keys: list[int]) -> None:
        """The same for columns of which every combination is possible, and seen: nothing can be missed."""
        parts = sorted({self.group_of[key] for key in keys})
        sizes = [self.combined[part].n_values for part in parts]
        if len(parts) < 2 or np.prod(sizes) > COMPLETE_COMBINATIONS:
            return
        joined = combine([self.combined[part] for part in parts])
        if joined.n_values == np.prod(sizes) and np.bincount(joined.ids).min() >= COMPLETE_ROWS:
            self._unite(parts, joined)

    def _unite(self, parts: list[tuple[int, ...]], joined: Discrete) -> None:
        members = tuple(sorted(key for part in parts for key in part))
        self.combined[members] = joined
        self.group_of.update(dict.fromkeys(members, members))

    def several(self) -> list[list[int]]:
        return sorted(list(group) for group in set(self.group_of.values()) if len(group) > 1)


def _n_once(column: Discrete) -> int:
    """Values that occur in one row only."""
    return int((np.bincount(column.ids) == 1).sum())


def combine(parts: list[Discrete]) -> Discrete:
    """The combinations that occur, as one column."""
    joint = parts[0].ids.astype(np.int64)
    size = parts[0].n_values
    for part in parts[1:]:
        joint, size = _renumber(joint * part.n_values + part.ids, size * part.n_values)
    return Discrete(joint.astype(np.int32), size)


def _renumber(joint: NDArray[np.int64], size: int) -> tuple[NDArray[np.int64], int]:
    if size <= 4 * len(joint) + 1024:
        present = np.bincount(joint, minlength=size) > 0
        return (np.cumsum(present) - 1)[joint], int(present.sum())
    values, found = np.unique(joint, return_inverse=True)
    return found.astype(np.int64), len(values)


def _join_functions(groups: _Groups, sampled: dict[int, Discrete], pairs: list[Pair]) -> None:
    """Columns that two or three others determine together join them (warehouse + product -> shelf)."""
    strengths: dict[int, dict[int, float]] = {key: {} for key in sampled}
    for pair in pairs:
        if pair.strength > 0:
            strengths[pair.first][pair.second] = pair.strength
            strengths[pair.second][pair.first] = pair.strength
    for target, near in strengths.items():
        parents = sorted(near, key=lambda key: (-near[key], key))[:PARENTS]
        several = [*combinations(parents, 1), *combinations(parents, 2), *combinations(parents[:4], 3)]
        for some in several:
            if all(groups.group_of[key] == groups.group_of[target] for key in some):
                continue
            if _is_function(target, some, sampled) and _is_function(target, some, groups.columns):
                groups.join([*some, target], exact=True)
                break


def _is_function(target: int, parents: tuple[int, ...], columns: dict[int, Discrete]) -> bool:
    """Whether the parents determine the target in every row, and so often that it cannot be chance."""
    together = combine([columns[key] for key in parents])
    repeats = len(together.ids) - together.n_values
    if repeats <= 0 or combine([together, columns[target]]).n_values > together.n_values:
        return False
    collision = max((_collision(columns[target], columns[key]) for key in parents), default=1.0)
    return collision < 1 and repeats * -np.log(collision) > EVIDENCE


def _collision(target: Discrete, parent: Discrete) -> float:
    """How likely two rows with one parent value hold one target value: the mean over parents of p(t|p)^2."""
    joint = parent.ids.astype(np.int64) * target.n_values + target.ids
    values, counts = np.unique(joint, return_counts=True)
    totals = np.bincount(parent.ids, minlength=parent.n_values)
    return float((counts**2 / totals[values // target.n_values]).sum() / len(target.ids))
