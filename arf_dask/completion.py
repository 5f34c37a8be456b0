"""Rows completed from what they know: leaves drawn for every row, and the variables it does not know from these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.axis import nameless
from arf_dask.conditional import Leaves, draw_cells, pick
from arf_dask.conditions import Piece
from arf_dask.evidence import Evidence, Known, forget, into_range
from arf_dask.forge import BLOCK_ROWS, Drawn, Sampler, assemble, draw_places, draw_variable
from arf_dask.leaves import Cells, compile_piece, view_stand
from arf_dask.pairs import Index, find_pairs, log_weights, make_index, make_scales, run_starts
from arf_dask.query import RowLogs, Weighed, allowed_shares, row_log_density, row_stand_logs
from arf_dask.schema import Flags, Floats, Ints
from arf_dask.seeds import Stage, generator
from arf_dask.tables import Tables
from arf_dask.tasks import Threads

Kind = TypeVar("Kind", bound=np.generic)


def draw_leaves(
    tables: Tables, evidence: Evidence, logs: RowLogs, n: int, seed: int, piece: Piece | None = None
) -> Leaves:
    """(row, draw): leaves by their weight given what each row knows; 0 for rows that are impossible."""
    totals = logs.total()
    alive = np.isfinite(totals)
    shares = np.exp(np.stack(logs.by_stand, axis=1)[alive] - totals[alive, None])
    counts = np.zeros((evidence.n_rows, len(tables.stands) - 1), dtype=np.int64)
    rng = generator(seed, Stage.GIVEN, len(tables.stands) - 1, 0)
    counts[alive] = rng.multinomial(n, shares / shares.sum(axis=1, keepdims=True))
    leaf = np.zeros((evidence.n_rows, n), dtype=np.int64)
    filled = np.zeros(evidence.n_rows, dtype=np.int64)
    index = make_index(tables, evidence, compile_piece(tables, piece or {}), unknown_only=True)
    shared = tables, index, counts, seed, logs.weighed
    for stand, (row, found) in enumerate(Threads().map(_stand_leaves, shared, range(len(tables.stands) - 1))):
        count = counts[:, stand]
        first = np.cumsum(count) - count
        leaf[row, filled[row] + np.arange(len(row)) - first[row]] = found
        filled += count
    # Draws came stand by stand: shuffled, so that each of several completions is one of the whole mixture.
    return np.take_along_axis(leaf, np.argsort(rng.random(leaf.shape), axis=1), axis=1)


def complete(
    sampler: Sampler,
    evidence: Evidence,
    given: pl.DataFrame,
    known: dict[str, Flags],
    leaf: Leaves,
    seed: int,
    piece: Piece | None = None,
    *,
    key_seed: int | None = None,
    first_row: int = 0,
) -> pl.DataFrame:
    """`leaf.shape[1]` rows for every row of `given`, in order: what it knows, and the rest drawn.

    Identifiers are those of `key_seed`, for a result in which these rows begin at `first_row`.
    """
    n_rows, n = leaf.shape
    step = max(1, BLOCK_ROWS // max(n, 1))
    keys = seed if key_seed is None else key_seed, first_row
    shared = sampler, evidence, given, known, leaf, seed, compile_piece(sampler.tables, piece or {}), keys
    starts = range(0, max(n_rows, 1), step)
    return pl.concat(list(Threads().map(_complete_block, shared, [(at, min(at + step, n_rows)) for at in starts])))


def relax(tables: Tables, evidence: Evidence, logs: RowLogs, piece: Piece | None = None) -> tuple[Evidence, RowLogs]:
    """The evidence with impossible rows made possible: as few variables given up as it takes, one by one.

    Numbers beyond the range seen are taken for its ends first; that may do. A variable that is given up no longer
    counts, but at first the row stays in the leaves where its number would lie; if that is of no use it is forgotten.
    Of those whose loss makes a row possible the one goes that leaves the largest density; if there is none, the one
    with the least probability of its own.
    """
    dead = np.flatnonzero(np.isneginf(logs.total()))
    if not len(dead):
        return evidence, logs
    none = np.zeros((len(dead), len(tables.schema.variables)), dtype=bool)
    some = into_range(forget(evidence, dead, none, tables.schema), np.arange(len(dead)), tables.schema)
    some = _give_up(tables, some, piece)
    again = row_stand_logs(tables, some, piece or {}, unknown_only=True)
    by_stand = [_replaced(part, dead, new) for part, new in zip(logs.by_stand, again.by_stand, strict=True)]
    low, high = _replaced(evidence.low, dead, some.low), _replaced(evidence.high, dead, some.high)
    pattern = [_replaced(part, dead, new) for part, new in zip(evidence.pattern, some.pattern, strict=True)]
    possible = _replaced(evidence.possible, dead, some.possible)
    merged = Evidence(evidence.n_rows, low, high, some.known, pattern, evidence.entry, False, possible)
    return merged, RowLogs(by_stand)


def _replaced(array: NDArray[Kind], rows: Leaves, values: NDArray[Kind]) -> NDArray[Kind]:
    array = array.copy()
    array[rows] = values
    return array


def _give_up(tables: Tables, evidence: Evidence, piece: Piece | None) -> Evidence:
    """One variable after the other, until every row is possible."""
    width = len(tables.schema.variables)
    rows = np.arange(evidence.n_rows)
    totals = row_log_density(tables, evidence, [piece or {}], unknown_only=True)
    for _ in range(width):
        dead = np.flatnonzero(np.isneginf(totals))
        if not len(dead):
            break
        knows = np.stack([evidence.pattern[number][dead] >= 0 for number in range(width)], axis=1)
        near, far, alone = (
            _log_trials(tables, evidence, dead, keep, stay, piece)
            for keep, stay in ((True, True), (True, False), (False, False))
        )
        near, far = np.where(knows, near, -np.inf), np.where(knows, far, -np.inf)
        saved, by_far = near.max(axis=1) > -np.inf, far.max(axis=1) > -np.inf
        least = np.where(knows, alone, np.inf).argmin(axis=1)
        choice = np.where(saved, near.argmax(axis=1), np.where(by_far, far.argmax(axis=1), least))
        for some, stay in ((saved, True), (~saved, False)):
            freed = np.zeros((evidence.n_rows, width), dtype=bool)
            freed[dead[some], choice[some]] = True
            evidence = forget(evidence, rows, freed, tables.schema, stay=stay)
        totals = totals.copy()
        totals[dead] = np.where(saved, near.max(axis=1), far.max(axis=1))
    return evidence


def _log_trials(
    tables: Tables, evidence: Evidence, dead: Leaves, others: bool, stay: bool, piece: Piece | None
) -> Floats:
    """(row, variable): log densities of rows without one variable (or, if not `others`, with that one alone)."""
    width = len(tables.schema.variables)
    one = np.tile(np.eye(width, dtype=bool), (len(dead), 1))
    trial = forget(evidence, np.repeat(dead, width), one if others else ~one, tables.schema, stay=stay)
    return row_log_density(tables, trial, [piece or {}], unknown_only=True).reshape(len(dead), width)


def _stand_leaves(
    shared: tuple[Tables, Index, NDArray[np.int64], int, Sequence[list[Weighed] | None]], stand: int
) -> tuple[NDArray[np.int64], Leaves]:
    """Rows, in order and as often as they are to be drawn in this stand, and their leaves."""
    tables, index, counts, seed, weighed = shared
    rng = generator(seed, Stage.GIVEN, stand, 1)
    kept = weighed[stand] if weighed else None
    rows_out, leaves_out = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for pairs in _weigh_again(tables, stand, index, counts[:, stand]) if kept is None else kept:
        some = np.flatnonzero(np.isfinite(pairs.logs) & (counts[pairs.row, stand] > 0))
        if not len(some):
            continue
        row, leaf, logs = pairs.row[some].astype(np.int64), pairs.leaf[some].astype(np.int64), pairs.logs[some]
        once = row[run_starts(row)]
        wanted = np.repeat(once, counts[once, stand])
        rows_out.append(wanted)
        leaves_out.append(tables.stand_starts[stand] + leaf[_choose(row, logs, wanted, rng)])
    return np.concatenate(rows_out), np.concatenate(leaves_out)


def _weigh_again(tables: Tables, stand: int, index: Index, count: NDArray[np.int64]) -> Iterator[Weighed]:
    """The pairs of the rows that have draws in this stand."""
    view = view_stand(tables, stand)
    scales = make_scales(view, index)
    for pairs in find_pairs(view, index, np.flatnonzero(count)):
        yield Weighed(pairs.row, pairs.leaf, log_weights(view, index, scales, pairs))


def _choose(row: Leaves, logs: Floats, wanted: Leaves, rng: np.random.Generator) -> Leaves:
    """For every wanted row one of its entries, by weight. Both are sorted by row."""
    starts = run_starts(row)
    ends = np.append(starts[1:], len(row))
    top = np.maximum.reduceat(logs, starts)
    weights = np.exp(logs - np.repeat(top, ends - starts))
    total = np.cumsum(weights)
    run = np.searchsorted(row[starts], wanted)
    before = total[starts[run]] - weights[starts[run]]
    chance = before + rng.random(len(wanted)) * (total[ends[run] - 1] - before)
    return np.asarray(np.clip(np.searchsorted(total, chance, side="right"), starts[run], ends[run] - 1))


def _complete_block(
    shared: tuple[Sampler, Evidence, pl.DataFrame, dict[str, Flags], Leaves, int, dict[int, Cells], tuple[int, int]],
    place: tuple[int, int],
) -> pl.DataFrame:
    (sampler, evidence, given, known, leaf, seed, narrow, (key_seed, first_row)), (first, last) = shared, place
    n = leaf.shape[1]
    rng = generator(seed, Stage.GIVEN, first, 2)
    row = np.repeat(np.arange(first, last), n)
    flat = leaf[first:last].ravel()
    drawn = [
        _complete_variable(sampler, evidence, number, row, flat, narrow.get(number), rng)
        for number in range(len(sampler.variables))
    ]
    frame = assemble(sampler.tables, drawn, np.arange(len(row)), key_seed, first_row + first * n, rng)
    told = []
    for name, flags in known.items():
        if flags[first:last].any():
            value = nameless(given[name])[row].cast(frame.schema[name], strict=False)
            told.append(value.zip_with(pl.Series(flags[row]), nameless(frame[name])).alias(name))
    return frame.with_columns(told)


def _complete_variable(
    sampler: Sampler,
    evidence: Evidence,
    number: int,
    row: Leaves,
    leaf: Leaves,
    cells: Cells | None,
    rng: np.random.Generator,
) -> Drawn:
    pattern, entry = evidence.pattern[number][row], evidence.entry[number][row]
    states = np.zeros(len(row), dtype=np.int32)
    places = np.zeros(len(row))
    free = np.flatnonzero(pattern < 0)
    if len(free):
        states[free], places[free] = _draw_free(sampler, number, leaf[free], cells, rng)
    for which, part in enumerate(evidence.known[number]):
        rows = np.flatnonzero(pattern == which)
        if not len(rows):
            continue
        if part.groups is not None:
            states[rows] = _draw_group(sampler.tables, number, part, leaf[rows], entry[rows], cells, rng)
            if sampler.variables[number].line is not None:
                places[rows] = draw_places(sampler, number, leaf[rows], states[rows], rng)
            continue
        found = part.point[entry[rows]]
        if part.interval is not None:
            found = np.where(found >= 0, found, part.interval[entry[rows]])
        states[rows] = np.maximum(found, 0)
        if part.places is not None:
            places[rows] = np.nan_to_num(part.places[entry[rows]])
    return Drawn(states, places if sampler.variables[number].line is not None else None)


def _draw_free(
    sampler: Sampler, number: int, leaf: Leaves, cells: Cells | None, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """A variable that rows know nothing of."""
    if cells is None:
        drawn = draw_variable(sampler, number, leaf, rng)
        return drawn.states, np.zeros(len(leaf)) if drawn.places is None else drawn.places
    order = np.argsort(leaf, kind="stable")
    bounded = draw_cells(sampler, {number: cells}, leaf[order], rng)[number]
    states, places = np.empty(len(leaf), dtype=np.int32), np.empty(len(leaf))
    states[order], places[order] = bounded.states, bounded.places
    return states, places


def _draw_group(
    tables: Tables,
    number: int,
    part: Known,
    leaf: Leaves,
    entry: Ints,
    cells: Cells | None,
    rng: np.random.Generator,
) -> Ints:
    """A state of each row's group, by its probability in the row's leaf."""
    assert part.groups is not None
    states = np.zeros(len(leaf), dtype=np.int32)
    stand = np.searchsorted(tables.stand_starts, leaf, side="right") - 1
    for number_of in np.unique(stand):
        rows = np.flatnonzero(stand == number_of)
        view = view_stand(tables, int(number_of))
        shares = allowed_shares(view, number, cells)[leaf[rows] - tables.stand_starts[number_of]]
        states[rows] = pick(shares * (part.groups[None, :] == part.point[entry[rows]][:, None]), rng)
    return states
