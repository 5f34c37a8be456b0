"""What the rows of a frame say about the variables, and the leaves each row can lie in.

A row knows some of its columns. Every tree is walked with the codes a row may have (both ways where it does not say):
this gives *pairs* of rows and leaves, and each pair gets the probability of all that the row knows, in that leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.encode import column_tokens, encode_states, line_codes, line_places
from arf_dask.forest import Tree, leaf_numbers
from arf_dask.leaves import Cells, TreeView
from arf_dask.schema import Flags, Floats, Ints, Schema, Variable

Rows = NDArray[np.int64]
PAIRS = 2_000_000  # pairs of one tree held at a time, at most
BATCH_ROWS = 16_384  # fewer than 2**16
IMPOSSIBLE = -1


class Known(NamedTuple):
    """What rows that know the same members of a variable say about it. One entry per row.

    Where the number line itself is known: a point, an interval and a place in it (a grid may have both). Else a group
    of states, all those that agree with what is known.
    """

    point: Ints  # state, or group where there are groups; -1: none
    interval: Ints | None  # state of the interval the number lies in, -1: none
    places: Floats | None
    groups: Ints | None  # per state: its group


class Evidence(NamedTuple):
    """All that the rows of a frame know."""

    n_rows: int
    low: Ints  # (row, variable): the codes a row may have
    high: Ints
    known: list[list[Known]]  # per variable: one for each set of members that some rows know
    pattern: list[NDArray[np.int8]]  # per variable, per row: which of these; -1: nothing is known
    entry: list[Ints]  # per variable, per row: its entry there
    exact: bool  # every row knows the code of every variable
    possible: Flags  # per row: nothing in it is beyond all leaves


class Pairs(NamedTuple):
    """Rows and the leaves of one tree they may lie in, sorted by row."""

    row: Rows
    leaf: Ints


def read_evidence(frame: pl.DataFrame, schema: Schema, known: Mapping[str, Flags]) -> Evidence:
    """What every row says, in the columns and rows where `known` is true."""
    n, width = frame.height, len(schema.variables)
    low = np.zeros((n, width), dtype=np.int32)
    high = np.tile(np.array([v.n_codes - 1 for v in schema.variables], dtype=np.int32), (n, 1))
    parts: list[list[Known]] = []
    patterns, entries = [], []
    for number, variable in enumerate(schema.variables):
        members = [m for m, place in enumerate(variable.columns) if schema.columns[place].name in known]
        flags = [known[schema.columns[variable.columns[m]].name] for m in members]
        pattern, sets = _patterns(flags, n)
        entry = np.zeros(n, dtype=np.int32)
        found = []
        for number_of, some in enumerate(sets):
            rows = np.flatnonzero(pattern == number_of)
            entry[rows] = np.arange(len(rows), dtype=np.int32)
            part, codes = _known(frame[rows], schema, number, [members[i] for i in some])
            low[rows, number], high[rows, number] = codes
            found.append(part)
        parts.append(found)
        patterns.append(pattern)
        entries.append(entry)
    possible = np.asarray((low >= 0).all(axis=1))
    exact = bool(np.array_equal(low, high))
    return Evidence(n, low, high, parts, patterns, entries, exact, possible)


def forget(evidence: Evidence, rows: Rows, freed: Flags, schema: Schema, *, stay: bool = False) -> Evidence:
    """The evidence of some rows without the variables that are `freed` (row, variable).

    With `stay`, a row stays in the leaves that its number would lie in: beyond all numbers seen, in the outermost.
    """
    low, high = evidence.low[rows].copy(), evidence.high[rows].copy()
    patterns, entries = [part[rows] for part in evidence.pattern], [part[rows] for part in evidence.entry]
    for number, variable in enumerate(schema.variables):
        here = freed[:, number] & ~(stay & (low[:, number] >= 0))
        low[here, number], high[here, number] = 0, variable.n_codes - 1
        patterns[number] = np.where(freed[:, number], np.int8(-1), patterns[number])
    possible = np.asarray((low >= 0).all(axis=1))
    return Evidence(len(rows), low, high, evidence.known, patterns, entries, False, possible)


def into_range(evidence: Evidence, rows: Rows, schema: Schema) -> Evidence:
    """The evidence with numbers beyond the range seen moved to its ends, in some rows."""
    known = []
    for number, variable in enumerate(schema.variables):
        axis = schema.columns[variable.columns[0]].axis
        parts = list(evidence.known[number])
        for which, part in enumerate(parts):
            if part.places is not None and axis is not None:
                places = part.places.copy()
                entry = evidence.entry[number][rows[evidence.pattern[number][rows] == which]]
                places[entry] = np.clip(places[entry], axis.low, axis.high)
                parts[which] = part._replace(places=places)
        known.append(parts)
    return evidence._replace(known=known)


def row_batches(evidence: Evidence, view: TreeView) -> Iterator[slice]:
    """Slices of rows whose pairs fit into memory."""
    step = BATCH_ROWS if evidence.exact else max(1, min(BATCH_ROWS, PAIRS // max(view.n_leaves, 1)))
    return (slice(at, min(at + step, evidence.n_rows)) for at in range(0, evidence.n_rows, step))


def find_pairs(tree: Tree, evidence: Evidence, rows: slice) -> Pairs:
    """The leaves of a tree that each row may lie in."""
    some = np.flatnonzero(evidence.possible[rows]) + rows.start
    if evidence.exact:
        return Pairs(some, leaf_numbers(tree, evidence.low[some]))
    row, node = some, np.zeros(len(some), dtype=np.int32)
    done: list[tuple[Rows, Ints]] = []
    low, high, width = evidence.low.ravel(), evidence.high.ravel(), evidence.low.shape[1]
    while len(row):
        inner = tree.left[node] >= 0
        done.append((row[~inner], node[~inner]))
        row, node = row[inner], node[inner]
        feature, threshold = tree.feature[node], tree.threshold[node]
        at = row * width + feature  # one index is looked up faster than two
        left, right = low[at] <= threshold, high[at] > threshold
        row = np.concatenate([row[left], row[right]])
        node = np.concatenate([tree.left[node[left]], tree.right[node[right]]])
    row, node = (np.concatenate(part) for part in zip(*done, strict=True)) if done else (some, node)
    # Of one row, pairs come in an order that no other row changes; 16 bits are sorted in linear time.
    order = np.argsort((row - rows.start).astype(np.uint16), kind="stable")
    number = np.cumsum(tree.left < 0, dtype=np.int32) - 1
    return Pairs(row[order], number[node[order]])


def log_weights(
    view: TreeView, evidence: Evidence, pairs: Pairs, narrow: Mapping[int, Cells], *, unknown_only: bool = False
) -> Floats:
    """Per pair: the log of the leaf's coverage times the probability of what is known (and of `narrow`) in it.

    With `unknown_only`, what a row fully knows of a variable need not lie in `narrow`.
    """
    logs = view.log_coverage[pairs.leaf]
    for number in range(len(evidence.known)):
        for pattern, part in enumerate(evidence.known[number]):
            here = _where(evidence.pattern[number], pairs, pattern, len(evidence.known[number]))
            leaf, entry = pairs.leaf[here], evidence.entry[number][pairs.row[here]]
            cells = None if unknown_only and part.groups is None else narrow.get(number)
            logs[here] += _log_known(view, number, part, leaf, entry, cells)
        if number in narrow:
            free = np.flatnonzero(evidence.pattern[number][pairs.row] < 0)
            if len(free):
                logs[free] += log_sum(view.log_masses(number, narrow[number]))[pairs.leaf[free]]
    return logs


def log_sum(logs: Floats) -> Floats:
    """Log of the sum of exponentials along the last axis; -inf where there is nothing to sum."""
    if logs.shape[-1] == 0:
        return np.full(logs.shape[:-1], -np.inf)
    top = logs.max(axis=-1)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log(np.exp(logs - safe[..., None]).sum(axis=-1)))


def sum_by_row(logs: Floats, row: Rows, first: int, n_rows: int) -> Floats:
    """Log of the sum of exponentials for each of `n_rows` rows from `first` on."""
    total = np.full(n_rows, -np.inf)
    if not len(row):
        return total
    starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    top = np.maximum.reduceat(logs, starts)
    safe = np.where(np.isfinite(top), top, 0.0)
    sizes = np.diff(np.append(starts, len(row)))
    with np.errstate(divide="ignore"):
        total[row[starts] - first] = safe + np.log(np.add.reduceat(np.exp(logs - np.repeat(safe, sizes)), starts))
    return total


def _where(pattern: NDArray[np.int8], pairs: Pairs, wanted: int, n_patterns: int) -> NDArray[np.int64] | slice:
    of_pair = pattern[pairs.row]
    mine = of_pair == wanted
    return slice(None) if n_patterns == 1 and mine.all() else np.flatnonzero(mine)


def _log_known(view: TreeView, number: int, part: Known, leaf: Ints, entry: Ints, cells: Cells | None) -> Floats:
    """The log probability of what is known of one variable, per (leaf, entry)."""
    if part.groups is not None:
        return _log_groups(view, number, part, leaf, entry, cells)
    probabilities = view.probabilities(number)
    point = part.point[entry]
    p = probabilities.ravel()[leaf * np.int64(probabilities.shape[1]) + point]
    wrong = point < 0
    if cells is not None:
        wrong |= ~np.isin(point, cells.state)
    p[wrong] = 0.0
    if part.interval is not None and part.places is not None:
        rows = np.flatnonzero(_in_cells(part, entry, cells))
        state, at = part.interval[entry[rows]], leaf[rows]
        logs = view.log_density_at(number, at, state, part.places[entry[rows]])
        with np.errstate(divide="ignore"):
            logs += np.log(probabilities[at, state])
            result = np.log(p)
        result[rows] = np.logaddexp(result[rows], logs)
        return np.asarray(result)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p))


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


def _log_groups(view: TreeView, number: int, part: Known, leaf: Ints, entry: Ints, cells: Cells | None) -> Floats:
    """Sums over all states (or cells) of each row's group."""
    assert part.groups is not None
    states = np.arange(len(part.groups)) if cells is None else cells.state
    shares = view.probabilities(number) if cells is None else np.exp(view.log_masses(number, cells))
    of_state = part.groups[states]
    order = np.argsort(of_state, kind="stable")
    groups = int(part.groups.max(initial=-1)) + 1
    sums = np.zeros((view.n_leaves, groups + 1))
    starts = np.searchsorted(of_state[order], np.arange(groups + 1))
    filled = np.flatnonzero(np.diff(starts))
    if len(filled):
        sums[:, filled] = np.add.reduceat(shares[:, order], starts[filled], axis=1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(sums[leaf, part.point[entry]]))  # -1 is the last column: zero


def _patterns(flags: list[Flags], n: int) -> tuple[NDArray[np.int8], list[list[int]]]:
    """Which members each row knows: a number per set of members, -1 for none."""
    pattern = np.full(n, -1, dtype=np.int8)
    if not flags:
        return pattern, []
    if all(flag.all() for flag in flags) and n:
        return np.zeros(n, dtype=np.int8), [list(range(len(flags)))]
    sets, of_row = np.unique(np.packbits(np.stack(flags, axis=1), axis=1), axis=0, return_inverse=True)
    several = np.unpackbits(sets, axis=1, count=len(flags)).astype(bool)
    chosen: list[list[int]] = []
    for number, some in enumerate(several):
        if some.any():
            pattern[of_row.ravel() == number] = len(chosen)
            chosen.append([int(i) for i in np.flatnonzero(some)])
    return pattern, chosen


def _known(frame: pl.DataFrame, schema: Schema, number: int, members: list[int]) -> tuple[Known, tuple[Ints, Ints]]:
    """What these rows say about a variable by the given members; lowest and highest code (-1: none)."""
    variable = schema.variables[number]
    if variable.is_line and members[0] == 0:
        return _known_places(frame, schema, variable, members)
    if len(members) == len(variable.columns):
        states = encode_states(frame, schema, number)[0]
        return Known(states, None, None, None), (states, states)
    groups, group = _group_states(frame, schema, variable, members)
    n_groups = int(groups.max()) + 1
    low, high = np.full(n_groups + 1, variable.n_codes), np.full(n_groups + 1, -1)
    np.minimum.at(low, groups, variable.code_low)
    np.maximum.at(high, groups, variable.code_high)
    low[-1] = IMPOSSIBLE
    return Known(group, None, None, groups), (low[group].astype(np.int32), high[group].astype(np.int32))


def _known_places(
    frame: pl.DataFrame, schema: Schema, variable: Variable, members: list[int]
) -> tuple[Known, tuple[Ints, Ints]]:
    lead = schema.columns[variable.columns[0]]
    assert lead.axis is not None
    places = line_places(frame[lead.name], lead)
    tokens = column_tokens(frame[lead.name], lead)
    by_token = np.full(lead.between + 1, IMPOSSIBLE, dtype=np.int32)
    points = np.flatnonzero(~variable.interval)
    by_token[variable.tokens[points, 0]] = points
    point = by_token[tokens]
    # On a grid a spike's number may come from the interval around it too.
    numbers = ~np.isnan(places) & (places == np.rint(places)) if lead.axis.grid else tokens == lead.between
    interval = np.full(len(point), IMPOSSIBLE, dtype=np.int32)
    if variable.interval.any():
        segment = np.searchsorted(variable.segments, places[numbers], side="right")
        interval[numbers] = variable.first_interval + segment
    for member in members[1:]:
        column = schema.columns[variable.columns[member]]
        wanted = column_tokens(frame[column.name], column)
        point = np.where(variable.tokens[point, member] == wanted, point, IMPOSSIBLE).astype(np.int32)
        interval = np.where(variable.tokens[interval, member] == wanted, interval, IMPOSSIBLE).astype(np.int32)
    codes = line_codes(frame[lead.name], variable, lead)
    codes = np.where((point >= 0) | (interval >= 0), codes, IMPOSSIBLE).astype(np.int32)
    return Known(point, interval, places, None), (codes, codes)


def _group_states(frame: pl.DataFrame, schema: Schema, variable: Variable, members: list[int]) -> tuple[Ints, Ints]:
    """The states that agree in these members as groups, and the group of every row (-1: none)."""
    n = variable.n_states
    key = np.zeros(n + frame.height, dtype=np.int64)
    for member in members:
        column = schema.columns[variable.columns[member]]
        tokens = np.concatenate([variable.tokens[:, member], column_tokens(frame[column.name], column)])
        key = np.unique(key * (int(tokens.max(initial=0)) + 2) + tokens + 1, return_inverse=True)[1]
    values, groups = np.unique(key[:n], return_inverse=True)
    place = np.minimum(np.searchsorted(values, key[n:]), len(values) - 1)
    return groups.astype(np.int32), np.where(values[place] == key[n:], place, IMPOSSIBLE).astype(np.int32)
