"""Questions to a model: weights of leaves under a condition, probabilities, and beliefs about the variables.

A condition is a list of pieces that do not overlap (conditions.py). In every leaf the probability of a piece is the
product over its variables of the sum over its cells (leaves.py); a leaf's weight is its coverage times that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from arf_dask.conditions import Piece
from arf_dask.evidence import Evidence, Rows
from arf_dask.leaves import Cells, View, compile_piece, is_number, view_stand
from arf_dask.pairs import (
    Index,
    Pairs,
    Scale,
    find_pairs,
    log_sum,
    log_weights,
    make_index,
    make_scales,
    run_starts,
    slot_chances,
    sum_by_row,
)
from arf_dask.schema import Floats, Variable
from arf_dask.tables import Tables
from arf_dask.tasks import Threads

Narrow = Mapping[int, Cells]
KEPT_PAIRS = 10_000_000  # 160 MB


class Belief(NamedTuple):
    """What is believed of one variable, one row per condition.

    Where the condition cannot be, all is zero. Of a variable that is one column of numbers (`is_number`) only what
    its mean needs is worked out.
    """

    states: Floats  # (row, state): probabilities; of a number: (row, 1), that there is one
    moments: Floats  # (row, interval state): probability times mean place; of a number: (row, 1), of all states


def leaf_weights(tables: Tables, piece: Piece) -> Floats:
    """Per leaf of all trees: the log of its coverage times the probability of the piece in it."""
    narrow = compile_piece(tables, piece)
    parts = Threads().map(_stand_weights, (tables, narrow), range(len(tables.stands) - 1))
    return np.concatenate(list(parts))


def log_probability(tables: Tables, pieces: Sequence[Piece]) -> float:
    """The log probability of a condition; a log density where it fixes numbers of a density."""
    totals = [float(log_sum(leaf_weights(tables, piece))) for piece in pieces]
    return float(log_sum(np.array(totals)))


def row_log_density(
    tables: Tables, evidence: Evidence, pieces: Sequence[Piece] = ({},), *, unknown_only: bool = False
) -> Floats:
    """Per row: the log density of what it knows together with the condition; -inf where that cannot be."""
    logs = [row_stand_logs(tables, evidence, piece, unknown_only=unknown_only).total() for piece in pieces]
    return logs[0] if len(logs) == 1 else log_sum(np.stack(logs, axis=-1))


class Weighed(NamedTuple):
    """Pairs of one stand and the logs of their weights."""

    row: NDArray[np.integer]
    leaf: NDArray[np.integer]
    logs: Floats


class RowLogs(NamedTuple):
    """Log densities by row and stand of trees."""

    by_stand: list[Floats]
    weighed: Sequence[list[Weighed] | None] = ()  # per stand: its pairs, where they were few enough to keep

    def total(self) -> Floats:
        """Over all of them. Added up in their order, so that every row's sum is its own."""
        total = self.by_stand[0]
        for part in self.by_stand[1:]:
            total = np.logaddexp(total, part)
        return total


def row_stand_logs(
    tables: Tables, evidence: Evidence, piece: Piece, *, unknown_only: bool = False, keep: bool = False
) -> RowLogs:
    """Per stand of trees and row: the log density of what the row knows, with the piece.

    With `keep`, the weights of pairs are kept for who needs them again, as long as they are few.
    """
    index = make_index(tables, evidence, compile_piece(tables, piece), unknown_only=unknown_only)
    logs, weighed, left = [], [], KEPT_PAIRS if keep else 0
    for total, pairs in Threads().map(_stand_logs, (tables, index, keep), range(len(tables.stands) - 1)):
        logs.append(total)
        left -= sum(len(part.logs) for part in pairs)
        weighed.append(pairs if left > 0 else None)
    return RowLogs(logs, weighed)


def beliefs(tables: Tables, pieces: Sequence[Piece], numbers: Sequence[int]) -> dict[int, Belief]:
    """What is believed of some variables under one condition: one row."""
    total = log_probability(tables, pieces)
    sums: dict[int, Belief] = {}
    for piece in pieces:
        narrow = compile_piece(tables, piece)
        shared = tables, narrow, numbers, total
        for part in Threads().map(_stand_belief, shared, range(len(tables.stands) - 1)):
            sums = _added(sums, part)
    return sums


def row_beliefs(
    tables: Tables, evidence: Evidence, wanted: Mapping[int, Rows], piece: Piece | None = None
) -> tuple[RowLogs, dict[int, Belief]]:
    """Log densities of what rows know, and what is believed of variables that they do not know, or not all of.

    Args:
        tables: the model.
        evidence: what the rows know.
        wanted: per variable, the rows asked for, ascending; the result has one row for each.
        piece: a condition on whole states that goes for what rows do not know.
    """
    index = make_index(tables, evidence, compile_piece(tables, piece or {}), unknown_only=True)
    slot = {number: _places_of(rows, evidence, number) for number, rows in wanted.items()}
    total, by_stand = np.full(evidence.n_rows, -np.inf), []
    sums = {number: np.zeros((len(rows), _width(tables, number))) for number, rows in wanted.items()}
    unknown = {number: rows for number, rows in wanted.items() if (slot[number] >= 0).any()}
    shared = tables, index, unknown, slot
    for logs, found in Threads().map(_stand_row_beliefs, shared, range(len(tables.stands) - 1)):
        # What a stand believes weighs with the density of the row in it, as stands come in.
        both = np.logaddexp(total, logs)
        with np.errstate(invalid="ignore"):
            before, now = (np.nan_to_num(np.exp(part - both)) for part in (total, logs))
        for number, rows in unknown.items():
            sums[number] *= before[rows, None]
            sums[number] += found[number] * now[rows, None]
        total = both
        by_stand.append(logs)
    return RowLogs(by_stand), {
        number: _masked(tables, evidence, number, wanted[number], sums[number]) for number in sums
    }


def _stand_weights(shared: tuple[Tables, Narrow], stand: int) -> Floats:
    tables, narrow = shared
    return view_weights(view_stand(tables, stand), narrow)


def view_weights(view: View, narrow: Narrow) -> Floats:
    """Per leaf of one stand: the log of coverage times probability."""
    logs = view.log_coverage.copy()
    for number, cells in narrow.items():
        logs += log_sum(view.log_masses(number, cells))
    return logs


def _stand_logs(shared: tuple[Tables, Index, bool], stand: int) -> tuple[Floats, list[Weighed]]:
    tables, index, keep = shared
    view = view_stand(tables, stand)
    scales = make_scales(view, index)
    total = np.full(index.evidence.n_rows, -np.inf)
    kept = []
    for pairs in find_pairs(view, index):
        logs = log_weights(view, index, scales, pairs)
        sum_by_row(total, logs, pairs.row)
        if keep:
            kept.append(Weighed(pairs.row.astype(np.int32), pairs.leaf.astype(np.int32), logs))
    return total, kept


def _stand_belief(shared: tuple[Tables, Narrow, Sequence[int], float], stand: int) -> dict[int, Belief]:
    tables, narrow, numbers, total = shared
    view = view_stand(tables, stand)
    logs = view_weights(view, narrow)
    weights = np.exp(logs - total) if np.isfinite(total) else np.zeros(len(logs))
    return {number: _leaf_belief(view, number, narrow.get(number), weights) for number in numbers}


def _leaf_belief(view: View, number: int, cells: Cells | None, weights: Floats) -> Belief:
    variable = view.tables.schema.variables[number]
    lone = is_number(view.tables.schema, variable)
    if cells is None:
        found = weights @ leaf_table(view, number, None)
        return _split(found[None, :], 1 if lone else variable.n_states)
    logs = view.log_masses(number, cells)
    top = log_sum(logs)
    shares = np.exp(logs - np.where(np.isfinite(top), top, 0.0)[:, None])
    live = np.flatnonzero(weights > 0)
    states = np.bincount(cells.state, weights[live] @ shares[live], variable.n_states).astype(np.float64)
    means = np.einsum("l,lc,lc->c", weights[live], shares[live], view.means(number, cells)[live])
    moments = np.bincount(cells.state, means, variable.n_states).astype(np.float64)[variable.interval]
    if lone:
        values = view.number_values(number)
        return Belief((states @ values[:, :1])[None, :], (states @ values[:, 1:] + moments.sum())[None, :])
    return Belief(states[None, :], moments[None, :])


def leaf_table(view: View, number: int, cells: Cells | None) -> Floats:
    """One row per leaf: what a belief of the variable is made of, inside the whole states that `cells` leaves."""
    variable = view.tables.schema.variables[number]
    if is_number(view.tables.schema, variable):
        return view.number_sums(number, allowed_states(variable, cells))
    shares = allowed_shares(view, number, cells)
    return np.hstack([shares, shares[:, variable.interval] * view.interval_means(number)])


def allowed_shares(view: View, number: int, cells: Cells | None) -> Floats:
    """(leaf, state): probabilities, zero for states that a condition on whole states leaves out."""
    shares = view.probabilities(number)
    return shares if cells is None else shares * allowed_states(view.tables.schema.variables[number], cells)


def allowed_states(variable: Variable, cells: Cells | None) -> Floats:
    """Per state: 1 where a condition on whole states leaves it, else 0."""
    allowed = np.ones(variable.n_states)
    if cells is not None:
        allowed[np.setdiff1d(np.arange(variable.n_states), cells.state)] = 0.0
    return allowed


def _stand_row_beliefs(
    shared: tuple[Tables, Index, Mapping[int, Rows], Mapping[int, Rows]], stand: int
) -> tuple[Floats, dict[int, Floats]]:
    """Per row its log density in this stand; per variable what the stand believes, given that the row lies in it."""
    tables, index, wanted, slot = shared
    view = view_stand(tables, stand)
    scales = make_scales(view, index)
    beliefs = {number: leaf_table(view, number, index.narrow.get(number)) for number in wanted}
    total = np.full(index.evidence.n_rows, -np.inf)
    sums = {number: np.zeros((len(rows), beliefs[number].shape[1])) for number, rows in wanted.items()}
    for pairs in find_pairs(view, index):
        logs = log_weights(view, index, scales, pairs)
        sum_by_row(total, logs, pairs.row)
        some = np.flatnonzero(np.isfinite(logs))
        pairs, logs = Pairs(pairs.row[some], pairs.leaf[some]), logs[some] - total[pairs.row[some]]
        for number in wanted:
            asked = np.flatnonzero(slot[number][pairs.row] >= 0)
            mine = Pairs(pairs.row[asked], pairs.leaf[asked])
            weights = _given_known(index, scales[number], number, mine, logs[asked])
            _add_product(sums[number], beliefs[number], slot[number][mine.row], mine.leaf, weights)
    return total, sums


def _given_known(index: Index, scale: Scale, number: int, pairs: Pairs, logs: Floats) -> Floats:
    """Weights of pairs divided by the probability of what is known of a variable, which its beliefs bring back."""
    slots = index.slots[number]
    logs = logs - np.log(slot_chances(slots, scale, pairs))
    if scale.free is not None:
        logs -= np.where(slots.of_row[pairs.row] == slots.n_slots - 2, scale.free[pairs.leaf], 0.0)
    return np.asarray(np.exp(logs))


def _add_product(sums: Floats, table: Floats, slot: Rows, leaf: Rows, weights: Floats) -> None:
    """Add weighed leaf tables to the rows in `slot` (ascending): one product of a sparse matrix (row, leaf)."""
    starts = run_starts(slot)
    by_row = csr_array((weights, leaf, np.append(starts, len(slot))), shape=(len(starts), len(table)))
    sums[slot[starts]] += by_row @ table


def _places_of(rows: Rows, evidence: Evidence, number: int) -> Rows:
    """Per row its place in `rows`, -1 if it is not there or knows all of the variable."""
    places = np.full(evidence.n_rows, -1, dtype=np.int64)
    places[rows] = np.arange(len(rows))
    for pattern, part in enumerate(evidence.known[number]):
        if part.groups is None:
            places[evidence.pattern[number] == pattern] = -1
    return places


def _masked(tables: Tables, evidence: Evidence, number: int, rows: Rows, sums: Floats) -> Belief:
    """The belief, with nothing for states that do not agree with what a row knows."""
    variable = tables.schema.variables[number]
    belief = _split(sums, 1 if is_number(tables.schema, variable) else variable.n_states)
    for pattern, part in enumerate(evidence.known[number]):
        mine = np.flatnonzero(evidence.pattern[number][rows] == pattern)
        if part.groups is not None:
            group = part.point[evidence.entry[number][rows[mine]]]
            agree = part.groups[None, :] == group[:, None]
            belief.states[mine] *= agree
            belief.moments[mine] *= agree[:, variable.interval]
    return belief


def _width(tables: Tables, number: int) -> int:
    """The columns of `leaf_table`."""
    variable = tables.schema.variables[number]
    return 2 if is_number(tables.schema, variable) else variable.n_states + int(variable.interval.sum())


def _split(sums: Floats, states: int) -> Belief:
    return Belief(sums[:, :states], sums[:, states:])


def _added(sums: dict[int, Belief], part: dict[int, Belief]) -> dict[int, Belief]:
    if not sums:
        return part
    return {n: Belief(*(a + b for a, b in zip(sums[n], part[n], strict=True))) for n in part}
