"""Questions to a model: weights of leaves under a condition, probabilities, and beliefs about the variables.

A condition is a list of pieces that do not overlap (conditions.py). In every leaf the probability of a piece is the
product over its variables of the sum over its cells (leaves.py); a leaf's weight is its coverage times that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from arf_dask.cluster import Threads
from arf_dask.conditions import Piece
from arf_dask.evidence import Evidence, Pairs, Rows, find_pairs, log_sum, log_weights, row_batches, sum_by_row
from arf_dask.leaves import Cells, TreeView, all_cells, compile_piece, view_tree
from arf_dask.schema import Flags, Floats, Ints
from arf_dask.tables import Tables

Narrow = Mapping[int, Cells]
CHUNK_CELLS = 4_000_000


class Belief(NamedTuple):
    """What is believed of one variable, one row per condition.

    Where the condition cannot be, all is zero.
    """

    states: Floats  # (row, state): probabilities
    moments: Floats  # (row, interval state): probability times mean place


def leaf_weights(tables: Tables, piece: Piece) -> Floats:
    """Per leaf of all trees: the log of its coverage times the probability of the piece in it."""
    narrow = compile_piece(tables, piece)
    parts = Threads().map(_tree_weights, (tables, narrow), range(len(tables.trees)))
    return np.concatenate(list(parts))


def log_probability(tables: Tables, pieces: Sequence[Piece]) -> float:
    """The log probability of a condition; a log density where it fixes numbers of a density."""
    totals = [float(log_sum(leaf_weights(tables, piece))) for piece in pieces]
    return float(log_sum(np.array(totals)))


def row_log_density(
    tables: Tables, evidence: Evidence, pieces: Sequence[Piece] = ({},), *, unknown_only: bool = False
) -> Floats:
    """Per row: the log density of what it knows together with the condition; -inf where that cannot be."""
    logs = [row_tree_logs(tables, evidence, piece, unknown_only=unknown_only).total() for piece in pieces]
    return logs[0] if len(logs) == 1 else log_sum(np.stack(logs, axis=-1))


class RowLogs(NamedTuple):
    """Log densities by row and tree."""

    by_tree: list[Floats]

    def total(self) -> Floats:
        """Over all trees. Added up in the order of the trees, so that every row's sum is its own."""
        total = self.by_tree[0]
        for part in self.by_tree[1:]:
            total = np.logaddexp(total, part)
        return total


def row_tree_logs(tables: Tables, evidence: Evidence, piece: Piece, *, unknown_only: bool = False) -> RowLogs:
    """Per tree and row: the log density of what the row knows, with the piece."""
    narrow = compile_piece(tables, piece)
    return RowLogs(list(Threads().map(_tree_logs, (tables, evidence, narrow, unknown_only), range(len(tables.trees)))))


def beliefs(tables: Tables, pieces: Sequence[Piece], numbers: Sequence[int]) -> dict[int, Belief]:
    """What is believed of some variables under one condition: one row."""
    total = log_probability(tables, pieces)
    sums: dict[int, Belief] = {}
    for piece in pieces:
        narrow = compile_piece(tables, piece)
        shared = tables, narrow, numbers, total
        for part in Threads().map(_tree_belief, shared, range(len(tables.trees))):
            sums = _added(sums, part)
    return sums


def row_beliefs(
    tables: Tables, evidence: Evidence, totals: Floats, wanted: Mapping[int, Rows], piece: Piece | None = None
) -> dict[int, Belief]:
    """What is believed of variables given rows that do not know them, or not all of them.

    Args:
        tables: the model.
        evidence: what the rows know.
        totals: their log densities, together with the piece.
        wanted: per variable, the rows asked for, ascending; the result has one row for each.
        piece: a condition on whole states that goes for what rows do not know.
    """
    sums: dict[int, Belief] = {}
    shared = tables, evidence, totals, wanted, compile_piece(tables, piece or {})
    for part in Threads().map(_tree_row_beliefs, shared, range(len(tables.trees))):
        sums = _added(sums, part)
    return sums


def _tree_weights(shared: tuple[Tables, Narrow], tree: int) -> Floats:
    tables, narrow = shared
    return view_weights(view_tree(tables, tree), narrow)


def view_weights(view: TreeView, narrow: Narrow) -> Floats:
    """Per leaf of one tree: the log of coverage times probability."""
    logs = view.log_coverage.copy()
    for number, cells in narrow.items():
        logs += log_sum(view.log_masses(number, cells))
    return logs


def _tree_logs(shared: tuple[Tables, Evidence, Narrow, bool], tree: int) -> Floats:
    tables, evidence, narrow, unknown_only = shared
    view = view_tree(tables, tree)
    parts = [np.empty(0)]
    for rows in row_batches(evidence, view):
        pairs = find_pairs(tables.trees[tree], evidence, rows)
        logs = log_weights(view, evidence, pairs, narrow, unknown_only=unknown_only)
        parts.append(sum_by_row(logs, pairs.row, rows.start, rows.stop - rows.start))
    return np.concatenate(parts)


def _tree_belief(shared: tuple[Tables, Narrow, Sequence[int], float], tree: int) -> dict[int, Belief]:
    tables, narrow, numbers, total = shared
    view = view_tree(tables, tree)
    logs = view_weights(view, narrow)
    weights = np.exp(logs - total) if np.isfinite(total) else np.zeros(len(logs))
    return {number: _leaf_belief(view, number, narrow.get(number), weights) for number in numbers}


def _leaf_belief(view: TreeView, number: int, cells: Cells | None, weights: Floats) -> Belief:
    variable = view.tables.schema.variables[number]
    here = all_cells(variable) if cells is None else cells
    logs = view.log_masses(number, here)
    top = log_sum(logs)
    shares = np.exp(logs - np.where(np.isfinite(top), top, 0.0)[:, None])
    live = np.flatnonzero(weights > 0)
    by_cell = weights[live] @ shares[live]
    states = np.bincount(here.state, by_cell, variable.n_states).astype(np.float64)
    if not variable.interval.any():
        return Belief(states[None, :], np.zeros((1, 0)))
    means = np.einsum("l,lc,lc->c", weights[live], shares[live], view.means(number, here)[live])
    moments = np.bincount(here.state, means, variable.n_states).astype(np.float64)[variable.interval]
    return Belief(states[None, :], moments[None, :])


def _tree_row_beliefs(
    shared: tuple[Tables, Evidence, Floats, Mapping[int, Rows], Narrow], tree: int
) -> dict[int, Belief]:
    tables, evidence, totals, wanted, narrow = shared
    view = view_tree(tables, tree)
    sums = {}
    for number, rows in wanted.items():
        variable = tables.schema.variables[number]
        sums[number] = Belief(
            np.zeros((len(rows), variable.n_states)), np.zeros((len(rows), int(variable.interval.sum())))
        )
    for batch in row_batches(evidence, view):
        pairs = find_pairs(tables.trees[tree], evidence, batch)
        logs = log_weights(view, evidence, pairs, narrow, unknown_only=True) - totals[pairs.row]
        some = np.isfinite(logs)
        pairs, logs = Pairs(pairs.row[some], pairs.leaf[some]), logs[some]
        for number, rows in wanted.items():
            _add_pairs(sums[number], view, number, evidence, pairs, logs, rows, narrow.get(number))
    return sums


def _add_pairs(
    belief: Belief,
    view: TreeView,
    number: int,
    evidence: Evidence,
    pairs: Pairs,
    logs: Floats,
    rows: Rows,
    cells: Cells | None,
) -> None:
    """Add what the leaves of the rows' pairs believe of a variable, inside what the rows know of it."""
    variable = view.tables.schema.variables[number]
    shares = allowed_shares(view, number, cells)
    tables = [shares]
    if variable.interval.any():
        means = view.means(number, all_cells(variable))
        tables.append((shares * means)[:, variable.interval])
    slot = np.searchsorted(rows, pairs.row)
    asked = rows[np.minimum(slot, len(rows) - 1)] == pairs.row if len(rows) else np.zeros(len(slot), dtype=bool)
    pattern = evidence.pattern[number][pairs.row]
    for which in range(-1, len(evidence.known[number])):
        groups = None if which < 0 else evidence.known[number][which].groups
        some = np.flatnonzero(asked & (pattern == which))
        if not len(some) or (which >= 0 and groups is None):
            continue
        entry = evidence.entry[number][pairs.row[some]]
        group = None if groups is None else evidence.known[number][which].point[entry]
        _add_tables(belief, tables, pairs.leaf[some], slot[some], logs[some], groups, group, variable.interval)


def allowed_shares(view: TreeView, number: int, cells: Cells | None) -> Floats:
    """(leaf, state): probabilities, zero for states that a condition on whole states leaves out."""
    shares = view.probabilities(number)
    if cells is None:
        return shares
    allowed = np.zeros(shares.shape[1])
    allowed[cells.state] = 1.0
    return shares * allowed


def _add_tables(
    belief: Belief,
    tables: list[Floats],
    leaf: Ints,
    slot: Rows,
    logs: Floats,
    groups: Ints | None,
    group: Ints | None,
    interval: Flags,
) -> None:
    """Add leaf tables to the rows in `slot` (ascending), weighed and made to add up to one; a few at a time."""
    if groups is None or group is None:
        _add_products(belief, tables, leaf, slot, logs)
        return
    step = max(1, CHUNK_CELLS // tables[0].shape[1])
    for at in range(0, len(leaf), step):
        here = slice(at, at + step)
        row = slot[here]
        starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
        shares = tables[0][leaf[here]]
        agree = None if groups is None or group is None else groups[None, :] == group[here][:, None]
        shares = shares if agree is None else shares * agree
        weights = np.exp(logs[here]) / shares.sum(axis=1)
        belief.states[row[starts]] += np.add.reduceat(weights[:, None] * shares, starts, axis=0)
        if len(tables) > 1:
            moments = tables[1][leaf[here]]
            moments = moments if agree is None else moments * agree[:, interval]
            belief.moments[row[starts]] += np.add.reduceat(weights[:, None] * moments, starts, axis=0)


def _add_products(belief: Belief, tables: list[Floats], leaf: Ints, slot: Rows, logs: Floats) -> None:
    """The same for rows that know nothing of the variable: one product of a sparse matrix (row, leaf)."""
    weights = np.exp(logs) / tables[0].sum(axis=1)[leaf]
    shape = (len(belief.states), len(tables[0]))
    by_row = csr_array((weights, (slot, leaf)), shape=shape)
    for total, table in zip(belief, tables, strict=False):
        total += by_row @ table


def _added(sums: dict[int, Belief], part: dict[int, Belief]) -> dict[int, Belief]:
    if not sums:
        return part
    return {n: Belief(*(a + b for a, b in zip(sums[n], part[n], strict=True))) for n in part}
