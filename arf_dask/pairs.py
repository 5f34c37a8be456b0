"""Pairs of rows and the leaves they may lie in, and the weight of each.

A row may lie in the leaves whose boxes hold a code it may have, in every variable. Each pair gets the probability of
all that the row knows, in that leaf. Rows that know the same share the work: what they know of a variable is a *slot*,
and a table of (leaf, slot) is made once per stand of trees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.evidence import Evidence, Known, Rows
from arf_dask.forest import Boxes, Tree, leaf_numbers
from arf_dask.leaves import Cells, View
from arf_dask.schema import Flags, Floats, Ints
from arf_dask.tables import STAND_LEAVES, Tables

PAIRS = 500_000  # pairs of one stand held at a time, at most (or those of one row)
BATCH_ROWS = 16_384  # fewer than 2**16
FACTORS = 8  # probabilities multiplied before a logarithm is taken; none is below 1e-30
TABLE_SAVES = 2  # leaves per tree that a row may lie in, or so
WORD = 64

Bits = NDArray[np.uint64]


class Pairs(NamedTuple):
    """Rows and the leaves of one stand they may lie in, sorted by row."""

    row: Rows
    leaf: NDArray[np.int64]


class Numbers(NamedTuple):
    """Numbers of rows inside intervals, every distinct one once."""

    of_row: Ints  # which of them; one more: none
    interval: Ints  # the state
    places: Floats
    rows: NDArray[np.int64]  # that have it


class Slots(NamedTuple):
    """What rows know of one variable, every distinct thing once.

    Slots are the `states` that are known, then the groups of states, set of members by set of members; then
    "nothing", which is certain, and "impossible".
    """

    of_row: Ints
    states: Ints
    groups: list[Ints]  # per set of members that gives groups: per state, its group
    numbers: Numbers  # inside intervals

    @property
    def n_slots(self) -> int:
        return len(self.states) + sum(n_groups(group) for group in self.groups) + 2


class Reach(NamedTuple):
    """The ranges of codes of one variable that rows may have, every distinct one once."""

    of_row: Ints
    low: Ints
    high: Ints


class Index(NamedTuple):
    """Evidence, and a condition, made ready for any stand of trees."""

    evidence: Evidence
    slots: list[Slots]  # per variable
    reach: dict[int, Reach]  # by variable, those that some row knows something of
    narrow: Mapping[int, Cells]  # what a condition leaves of variables that rows do not know


class Scale(NamedTuple):
    """The leaves of one stand, ready to weigh the rows by one variable."""

    table: Floats  # (leaf, slot): probabilities
    free: Floats | None  # per leaf: log probability of the condition, for rows that know nothing
    intervals: Floats  # (leaf, interval state): log probabilities, where rows have numbers in intervals
    density: Floats  # (leaf, number): log densities of numbers that many rows have
    columns: Ints  # per distinct number: its column there, -1: none


def make_index(tables: Tables, evidence: Evidence, narrow: Mapping[int, Cells], *, unknown_only: bool = False) -> Index:
    """What rows know, sorted into slots and ranges.

    With `unknown_only`, what a row fully knows of a variable need not lie in `narrow`.
    """
    _ = tables.boxes  # found once here, not by every thread
    slots, reach = [], {}
    for number, variable in enumerate(tables.schema.variables):
        cells = None if unknown_only else narrow.get(number)
        slots.append(_slots(evidence, number, variable.n_states, cells))
        low, high = evidence.low[:, number], evidence.high[:, number]
        if ((low > 0) | (high < variable.n_codes - 1)).any():
            key = low.astype(np.int64) * variable.n_codes + high
            keys, of_row = np.unique(key, return_inverse=True)
            parts = (part.astype(np.int32) for part in (of_row, keys // variable.n_codes, keys % variable.n_codes))
            reach[number] = Reach(*parts)
    return Index(evidence, slots, reach, narrow)


def find_pairs(view: View, index: Index, rows: Rows | None = None) -> Iterator[Pairs]:
    """The leaves of a stand that rows (ascending; all if None) may lie in, some rows at a time."""
    evidence = index.evidence
    rows = np.flatnonzero(evidence.possible) if rows is None else rows[evidence.possible[rows]]
    tables, stand = view.tables, view.stand
    trees = tables.trees[tables.stands[stand] : tables.stands[stand + 1]]
    if evidence.exact:
        starts = tables.starts[tables.stands[stand] : tables.stands[stand + 1]] - tables.stand_starts[stand]
        step = max(1, PAIRS // len(trees))
        for at in range(0, len(rows), step):
            here = rows[at : at + step]
            codes = evidence.low[here].astype(np.uint32)
            leaf = [leaf_numbers(tree, codes) + start for tree, start in zip(trees, starts, strict=True)]
            yield Pairs(np.repeat(here, len(trees)), np.stack(leaf, axis=1).ravel().astype(np.int64))
    elif view.n_leaves <= STAND_LEAVES or len(trees) > 1:
        sets = {number: _leaf_sets(view.around.boxes, number, reach) for number, reach in index.reach.items()}
        for at in range(0, len(rows), BATCH_ROWS):
            yield from _common_leaves(view.n_leaves, index.reach, sets, rows[at : at + BATCH_ROWS])
    else:
        step = max(1, min(BATCH_ROWS, PAIRS // view.n_leaves))
        for at in range(0, len(rows), step):
            yield _walk(trees[0], evidence, rows[at : at + step])


def make_scales(view: View, index: Index) -> list[Scale]:
    """The tables of one stand, one for each variable."""
    scales = []
    for number, slots in enumerate(index.slots):
        cells = index.narrow.get(number)
        if cells is None and not index.evidence.known[number]:
            # Nobody looks at it but beliefs.
            scales.append(Scale(np.ones((view.n_leaves, 2)), None, np.empty(0), np.empty(0), slots.numbers.interval))
            continue
        free = None
        if cells is not None and (slots.of_row == slots.n_slots - 2).any():
            free = log_sum(view.log_masses(number, cells))
        intervals = _log_intervals(view, number) if len(slots.numbers.places) else np.empty(0)
        table = _slot_table(view, number, slots, cells)
        scales.append(Scale(table, free, intervals, *_number_table(view, number, slots.numbers, intervals)))
    return scales


def log_weights(view: View, index: Index, scales: list[Scale], pairs: Pairs) -> Floats:
    """Per pair: the log of the leaf's coverage times the probability of what is known (and of the condition) in it."""
    logs = view.log_coverage[pairs.leaf]
    product, factors = np.ones(len(logs)), 0
    for number, (slots, scale) in enumerate(zip(index.slots, scales, strict=True)):
        if not len(index.evidence.known[number]) and scale.free is None:
            continue
        slot = slots.of_row[pairs.row]
        chance = scale.table.ravel().take(pairs.leaf * scale.table.shape[1] + slot)
        if len(slots.numbers.places):
            _add_intervals(view, number, slots, scale, pairs, chance, logs)
        if scale.free is not None:
            free = np.flatnonzero(slot == slots.n_slots - 2)
            logs[free] += scale.free[pairs.leaf[free]]
        product *= chance
        factors += 1
        if factors == FACTORS:
            _multiply(logs, product)
            product, factors = np.ones(len(logs)), 0
    _multiply(logs, product)
    return logs


def slot_chances(slots: Slots, scale: Scale, pairs: Pairs) -> Floats:
    """Per pair: the probability of what the row knows of one variable."""
    return np.asarray(scale.table.ravel().take(pairs.leaf * scale.table.shape[1] + slots.of_row[pairs.row]))


def log_sum(logs: Floats) -> Floats:
    """Log of the sum of exponentials along the last axis; -inf where there is nothing to sum."""
    if logs.shape[-1] == 0:
        return np.full(logs.shape[:-1], -np.inf)
    top = logs.max(axis=-1)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log(np.exp(logs - safe[..., None]).sum(axis=-1)))


def sum_by_row(total: Floats, logs: Floats, row: Rows) -> None:
    """Write the log of the sum of exponentials for each of some rows, sorted, into `total`."""
    if not len(row):
        return
    starts = run_starts(row)
    top = np.maximum.reduceat(logs, starts)
    safe = np.where(np.isfinite(top), top, 0.0)
    sizes = np.diff(np.append(starts, len(row)))
    with np.errstate(divide="ignore"):
        total[row[starts]] = safe + np.log(np.add.reduceat(np.exp(logs - np.repeat(safe, sizes)), starts))


def run_starts(row: Rows) -> Rows:
    """Where each run of equal numbers starts."""
    return np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]])) if len(row) else np.empty(0, dtype=np.int64)


def n_groups(groups: Ints) -> int:
    """How many groups there are."""
    return int(groups.max(initial=-1)) + 1


def _multiply(logs: Floats, product: Floats) -> None:
    with np.errstate(divide="ignore"):
        logs += np.log(product)


def _slots(evidence: Evidence, number: int, n_states: int, cells: Cells | None) -> Slots:
    """`cells`: what may be of it, where a condition goes for what is known too."""
    n, known = evidence.n_rows, evidence.known[number]
    state = np.full(n, -1, dtype=np.int32)  # and after the states, groups
    certain = evidence.pattern[number] < 0
    groups, first = [], n_states
    interval = places = None
    for pattern, part in enumerate(known):
        rows = np.flatnonzero(evidence.pattern[number] == pattern)
        entry = evidence.entry[number][rows]
        point = part.point[entry]
        if part.groups is not None:
            state[rows] = np.where(point >= 0, point + first, -1)
            groups.append(part.groups)
            first += n_groups(part.groups)
            continue
        state[rows] = point if cells is None else np.where(np.isin(point, cells.state), point, -1)
        if part.interval is not None and part.places is not None:
            interval = np.full(n, -1, dtype=np.int32) if interval is None else interval
            places = np.zeros(n) if places is None else places
            interval[rows] = np.where(_in_cells(part, entry, cells), part.interval[entry], -1)
            places[rows] = part.places[entry]
    used = np.flatnonzero(np.bincount(state[(state >= 0) & (state < n_states)], minlength=n_states))
    slot = np.full(first + 1, len(used) + first - n_states + 1, dtype=np.int32)  # -1: impossible
    slot[used] = np.arange(len(used))
    slot[n_states:first] = np.arange(len(used), len(used) + first - n_states)
    of_row = slot[state]
    of_row[certain] = len(used) + first - n_states
    if interval is None or places is None or not (interval >= 0).any():
        nothing = np.empty(0, dtype=np.int32)
        numbers = Numbers(nothing, nothing, np.empty(0), np.empty(0, dtype=np.int64))
    else:
        numbers = _numbers(interval, places)
    return Slots(of_row, used.astype(np.int32), groups, numbers)


def _numbers(interval: Ints, places: Floats) -> Numbers:
    inside = np.flatnonzero(interval >= 0)
    values, first, which, rows = np.unique(places[inside], return_index=True, return_inverse=True, return_counts=True)
    of_row = np.full(len(interval), len(values), dtype=np.int32)
    of_row[inside] = which
    return Numbers(of_row, interval[inside[first]], values, rows)


def _in_cells(part: Known, entry: Ints, cells: Cells | None) -> Flags:
    """Whether the number of each entry lies in an interval state, and in a cell of it."""
    assert part.interval is not None
    assert part.places is not None
    state, places = part.interval[entry], part.places[entry]
    if cells is None:
        return state >= 0
    inside = np.zeros(len(entry), dtype=bool)
    for cell, low, high, _ in zip(*cells, strict=True):
        inside |= (state == cell) & (places >= low) & (places <= high)
    return inside


def _slot_table(view: View, number: int, slots: Slots, cells: Cells | None) -> Floats:
    table = np.empty((view.n_leaves, slots.n_slots))
    at = len(slots.states)
    if at:
        # Pairs are of rows and leaves whose boxes hold what the rows know.
        table[:, :at] = view.shares_of(number, slots.states, in_box=True)
    for groups in slots.groups:
        table[:, at : at + n_groups(groups)] = _group_sums(view, number, groups, cells)
        at += n_groups(groups)
    table[:, at:] = 1.0, 0.0
    return table


def _group_sums(view: View, number: int, groups: Ints, cells: Cells | None) -> Floats:
    """(leaf, group): sums over the states (or cells) of each group."""
    states = np.arange(len(groups)) if cells is None else cells.state
    shares = view.probabilities(number) if cells is None else np.exp(view.log_masses(number, cells))
    order = np.argsort(groups[states], kind="stable")
    starts = np.searchsorted(groups[states][order], np.arange(n_groups(groups) + 1))
    filled = np.flatnonzero(np.diff(starts))
    sums = np.zeros((view.n_leaves, n_groups(groups)))
    if len(filled):
        sums[:, filled] = np.add.reduceat(shares[:, order], starts[filled], axis=1)
    return sums


def _number_table(view: View, number: int, numbers: Numbers, intervals: Floats) -> tuple[Floats, Ints]:
    """(leaf, number): log probabilities of numbers that many rows have; and the column of every number in it.

    Where rows are so many, a table is less work than a look at every pair.
    """
    often = np.flatnonzero(numbers.rows * view.n_trees * TABLE_SAVES >= view.n_leaves)
    columns = np.full(len(numbers.places), -1, dtype=np.int32)
    columns[often] = np.arange(len(often))
    if not len(often):
        return np.empty((view.n_leaves, 0)), columns
    leaf = np.repeat(np.arange(view.n_leaves), len(often))
    state, at = np.tile(numbers.interval[often], view.n_leaves), np.tile(numbers.places[often], view.n_leaves)
    return _log_places(view, number, intervals, leaf, state, at).reshape(view.n_leaves, len(often)), columns


def _log_intervals(view: View, number: int) -> Floats:
    states = np.flatnonzero(view.tables.schema.variables[number].interval).astype(np.int32)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(view.shares_of(number, states)))


def _log_places(
    view: View, number: int, intervals: Floats, leaf: NDArray[np.int64], state: Ints, places: Floats
) -> Floats:
    """The log of probability times density of numbers inside their interval states."""
    at = leaf * intervals.shape[1] + (state - view.tables.schema.variables[number].first_interval)
    return np.asarray(intervals.ravel().take(at) + view.log_density_at(number, leaf, state, places))


def _add_intervals(
    view: View, number: int, slots: Slots, scale: Scale, pairs: Pairs, chance: Floats, logs: Floats
) -> None:
    """Let numbers come from intervals as well as from points: chances are added to, or stand aside for logs."""
    numbers = slots.numbers
    which = numbers.of_row[pairs.row]
    rows = np.flatnonzero(which < len(numbers.places))
    which, leaf = which[rows], pairs.leaf[rows]
    column = scale.columns[which]
    found = np.empty(len(rows))
    if scale.density.size:
        found = scale.density.ravel().take(np.maximum(leaf * scale.density.shape[1] + column, 0))
    rest = np.flatnonzero(column < 0)
    seldom = which[rest]
    found[rest] = _log_places(
        view, number, scale.intervals, leaf[rest], numbers.interval[seldom], numbers.places[seldom]
    )
    point = chance[rows]
    # Beside a spike, what underflows is nothing; alone it is all there is.
    alone = point == 0
    chance[rows] = np.where(alone, 1.0, point + np.exp(found))
    logs[rows] += np.where(alone, found, 0.0)


def _leaf_sets(boxes: Boxes, number: int, reach: Reach) -> Bits:
    """Per range of codes: the leaves it reaches, as bits."""
    low, high = boxes.low[:, number], boxes.high[:, number]
    inside = (low[None, :] <= reach.high[:, None]) & (high[None, :] >= reach.low[:, None])
    words = -(-len(low) // WORD)
    packed = np.zeros((len(inside), words * (WORD // 8)), dtype=np.uint8)
    packed[:, : -(-len(low) // 8)] = np.packbits(inside, axis=1)
    return packed.view(np.uint64)


def _common_leaves(n_leaves: int, reach: Mapping[int, Reach], sets: Mapping[int, Bits], rows: Rows) -> Iterator[Pairs]:
    """Pairs of rows and the leaves that all their ranges reach."""
    bits: Bits | None = None
    for number, ranges in reach.items():
        here = sets[number].take(ranges.of_row[rows], axis=0)
        bits = here if bits is None else np.bitwise_and(bits, here, out=bits)
    if bits is None:
        everything = np.packbits(np.ones(n_leaves, dtype=bool))
        packed = np.zeros(-(-n_leaves // WORD) * (WORD // 8), dtype=np.uint8)
        packed[: len(everything)] = everything
        bits = np.tile(packed.view(np.uint64), (len(rows), 1))
    total = np.cumsum(np.bitwise_count(bits).sum(axis=1, dtype=np.int64))
    first = 0
    while first < len(rows):
        before = int(total[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(total, before + PAIRS, side="right")))
        yield _unpack(bits[first:last], rows[first:last])
        first = last


def _unpack(bits: Bits, rows: Rows) -> Pairs:
    words = bits.shape[1]
    filled = np.flatnonzero(bits)
    flags = np.unpackbits(bits.ravel()[filled].view(np.uint8))
    found = np.flatnonzero(flags)
    place = filled[found >> 6]
    row = place // words
    return Pairs(rows[row], (place - row * words) * WORD + (found & 63))


def _walk(tree: Tree, evidence: Evidence, rows: Rows) -> Pairs:
    """Pairs of few rows and a large tree: both ways where a row does not say."""
    row, node = np.arange(len(rows)), np.zeros(len(rows), dtype=np.int32)
    done: list[tuple[Rows, Ints]] = []
    low, high, width = evidence.low[rows].ravel(), evidence.high[rows].ravel(), evidence.low.shape[1]
    while len(row):
        inner = tree.left[node] >= 0
        done.append((row[~inner], node[~inner]))
        row, node = row[inner], node[inner]
        feature, threshold = tree.feature[node], tree.threshold[node]
        at = row * width + feature  # one index is looked up faster than two
        left, right = low[at] <= threshold, high[at] > threshold
        row = np.concatenate([row[left], row[right]])
        node = np.concatenate([tree.left[node[left]], tree.right[node[right]]])
    row, node = (np.concatenate(part) for part in zip(*done, strict=True)) if done else (row, node)
    # Of one row, pairs come in an order that no other row changes; 16 bits are sorted in linear time.
    order = np.argsort(row.astype(np.uint16), kind="stable")
    number = np.cumsum(tree.left < 0, dtype=np.int64) - 1
    return Pairs(rows[row[order]], number[node[order]])
