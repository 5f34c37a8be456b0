"""Leaf sums of data larger than memory: one part after the other goes through all trees, and parts are merged.

What is summed is what `forde.summarise` gives: rows, mean and squared distances per (leaf, state). A task adds the rows
of its parts to tables with a cell for every (leaf, state), in place and without sorting; where a variable has too many
states for that, the cells that hold rows are found by a sort. Trees come in groups, so that the sums of a group stay
small: every group is one more pass over the data.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.encode import Encoded, encode_rows
from arf_dask.forde import TreeSums, join_trees, merge_trees, sum_tree
from arf_dask.forest import Ints, Router, Tree, leaf_nodes, make_router, route_leaves
from arf_dask.parts import Group, Parts, group_parts, load_each
from arf_dask.progress import Progress
from arf_dask.schema import Floats, Schema, Variable
from arf_dask.tasks import Runner

DENSE_CELLS = 2**22  # leaves times states of a table without gaps, at most
SUM_BYTES = 2**27  # of the sums of the trees that are summed at once
MOST_TASKS = 32  # over all parts: fewer tasks have fewer results to keep and merge
SPARSE_BYTES = 32  # per cell that holds rows

Counts = NDArray[np.int64]


class Dense(NamedTuple):
    """Sums of one tree and variable, one row per leaf."""

    counts: NDArray[np.unsignedinteger]  # (leaf, state), in the smallest type
    means: Floats  # (leaf, interval): the last states are the intervals
    squares: Floats  # likewise

    @property
    def inside(self) -> Floats:
        """The rows of every (leaf, interval)."""
        return self.counts[:, self.counts.shape[1] - self.means.shape[1] :].astype(np.float64)


Cells = Dense | TreeSums


class Sums(NamedTuple):
    """All sums of some rows and trees."""

    first_tree: int
    histograms: list[Counts]  # per variable: rows by code
    cells: list[list[Cells]]  # per tree and variable


class _Summing(NamedTuple):
    """What every task needs to know."""

    schema: Schema
    first_tree: int
    routers: list[Router]


def sum_leaves(parts: Parts, schema: Schema, trees: Sequence[Tree], runner: Runner, report: Progress) -> Iterator[Sums]:
    """The sums of all rows, for one group of neighbouring trees after the other."""
    groups = group_parts(parts, -(-parts.n_rows // MOST_TASKS) * len(parts.dtypes))
    several = list(tree_groups(schema, trees, parts.n_rows))
    report.stage("leaf parameters", len(groups) * len(several))
    n_codes = np.array([variable.n_codes for variable in schema.variables], dtype=np.int32)
    for some in several:
        summing = _Summing(schema, some.start, [make_router(trees[t], n_codes) for t in some])
        yield runner.reduce(sum_parts, summing, groups, merge_sums, report.advance)


def sums_table(sums: Sums, schema: Schema, number: int, starts: Ints) -> pl.DataFrame:
    """The sums of one variable as `fit_entries` takes them, one row per (leaf, state) that holds rows."""
    variable = schema.variables[number]
    trees = [cells[number] for cells in sums.cells]
    here = starts[sums.first_tree : sums.first_tree + len(trees) + 1]
    return join_trees([_sparse(t, variable) if isinstance(t, Dense) else t for t in trees], variable, here)


def tree_groups(schema: Schema, trees: Sequence[Tree], n_rows: int) -> Iterator[range]:
    """Neighbouring trees whose sums take at most `SUM_BYTES` together."""
    first = held = 0
    for number, tree in enumerate(trees):
        size = sum(_bytes(variable, len(leaf_nodes(tree)), n_rows) for variable in schema.variables)
        if number > first and held + size > SUM_BYTES:
            yield range(first, number)
            first, held = number, 0
        held += size
    yield range(first, len(trees))


def sum_parts(summing: _Summing, group: Group) -> Sums:
    """The sums of some parts, one added to the other."""
    schema, first_tree, routers = summing
    histograms = [np.zeros(variable.n_codes, dtype=np.int64) for variable in schema.variables]
    adders = [[_adder(variable, router.n_leaves) for variable in schema.variables] for router in routers]
    for frame in load_each(group[1]):
        rows = encode_rows(frame, schema)
        for number, histogram in enumerate(histograms):
            histogram += np.bincount(rows.codes[:, number], minlength=len(histogram))
        _add_rows(rows, schema, routers, adders)
        del frame, rows
    sums = Sums(first_tree, histograms, [_finished(some) for some in adders])
    _give_back()
    return sums


def _give_back() -> None:
    """Let the C library return what it keeps for later: between results that stay, it kept a gigabyte (Linux)."""
    with suppress(AttributeError, OSError, TypeError):  # elsewhere there is no such function
        ctypes.CDLL(None).malloc_trim(0)


def _add_rows(rows: Encoded, schema: Schema, routers: Sequence[Router], adders: Sequence[Sequence[_Adder]]) -> None:
    by_row = np.ascontiguousarray(rows.codes)
    pieces = [_piece(rows, number, variable) for number, variable in enumerate(schema.variables)]
    for router, some in zip(routers, adders, strict=True):
        leaf = route_leaves(router, by_row)
        for adder, piece in zip(some, pieces, strict=True):
            adder.add(leaf, piece)


def merge_sums(one: Sums, other: Sums) -> Sums:
    """The sums of all rows together."""
    histograms = [a + b for a, b in zip(one.histograms, other.histograms, strict=True)]
    pairs = zip(one.cells, other.cells, strict=True)
    cells = [[_merge_cells(a, b) for a, b in zip(*both, strict=True)] for both in pairs]
    return Sums(one.first_tree, histograms, cells)


class _Piece(NamedTuple):
    """What the rows of one part say of one variable, the same for every tree."""

    states: NDArray[np.unsignedinteger]
    places: Floats | None
    inside: NDArray[np.int64] | None  # rows in intervals; None where all are
    interval: NDArray[np.int64]  # of these: which one
    at: Floats  # of these: the place


def _piece(rows: Encoded, number: int, variable: Variable) -> _Piece:
    states, places, first = rows.states[number], rows.places[number], variable.first_interval
    if places is None:
        return _Piece(states, None, None, np.empty(0, dtype=np.int64), np.empty(0))
    if first == 0:
        return _Piece(states, places, None, states.astype(np.int64), places)
    inside = np.flatnonzero(states >= first)
    return _Piece(states, places, inside, states[inside].astype(np.int64) - first, places[inside])


class _Adder(Protocol):
    """Sums of one tree and variable while they grow."""

    def add(self, leaf: NDArray[np.int64], piece: _Piece) -> None: ...

    def sums(self) -> Cells: ...


def _adder(variable: Variable, n_leaves: int) -> _Adder:
    dense = n_leaves * variable.n_states <= DENSE_CELLS
    return _DenseAdder(variable, n_leaves) if dense else _SparseAdder(variable)


class _DenseAdder:
    """A cell for every (leaf, state).

    Distances are summed from one of the cell's own rows: whatever its place, the squares then lose no more digits than
    the number of rows has.
    """

    def __init__(self, variable: Variable, n_leaves: int) -> None:
        self.n_states = variable.n_states
        self.n_intervals = int(variable.interval.sum())
        self.counts = np.zeros(n_leaves * self.n_states, dtype=np.uint32)
        self.pivot = np.full(n_leaves * self.n_intervals, np.nan)
        self.first, self.second = np.zeros((2, n_leaves * self.n_intervals))

    def add(self, leaf: NDArray[np.int64], piece: _Piece) -> None:
        # In place, this took a fraction of the time of a bincount that is added to what was there.
        np.add.at(self.counts, leaf * self.n_states + piece.states if self.n_states > 1 else leaf, np.uint32(1))
        if len(piece.at):
            here = leaf if piece.inside is None else leaf[piece.inside]
            self._add_places(here * self.n_intervals + piece.interval if self.n_intervals > 1 else here, piece.at)

    def _add_places(self, cell: NDArray[np.int64], at: Floats) -> None:
        away = at - self.pivot[cell]
        fresh = np.isnan(away)
        if fresh.any():
            self.pivot[cell[fresh]] = at[fresh]
            away = at - self.pivot[cell]
        np.add.at(self.first, cell, away)
        np.add.at(self.second, cell, away * away)

    def sums(self) -> Dense:
        counts = self.counts.reshape(-1, self.n_states)
        shape = (len(counts), self.n_intervals)
        rows = np.maximum(counts[:, self.n_states - self.n_intervals :], 1).astype(np.float64)
        first = self.first.reshape(shape)
        means = np.nan_to_num(self.pivot.reshape(shape)) + first / rows
        squares = np.maximum(self.second.reshape(shape) - first * first / rows, 0.0)
        return Dense(_smallest(counts), means, squares)


def _finished(adders: list[_Adder]) -> list[Cells]:
    """The sums; what they were made from is gone one by one."""
    return [adders.pop(0).sums() for _ in range(len(adders))]


class _SparseAdder:
    """The cells that hold rows, in order."""

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        empty = np.empty(0, dtype=np.int64)
        self.held = TreeSums(empty, empty, np.empty(0), np.empty(0))

    def add(self, leaf: NDArray[np.int64], piece: _Piece) -> None:
        self.held = merge_trees(self.held, sum_tree(piece.states, piece.places, leaf, self.variable))

    def sums(self) -> TreeSums:
        return self.held


def _smallest(counts: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    most = int(counts.max(initial=0))
    return counts.astype(np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.uint32)


def _merge_cells(one: Cells, other: Cells) -> Cells:
    if isinstance(one, Dense) and isinstance(other, Dense):
        return _merge_dense(one, other)
    assert isinstance(one, TreeSums)
    assert isinstance(other, TreeSums)
    return merge_trees(one, other)


def _merge_dense(one: Dense, other: Dense) -> Dense:
    """Cell by cell; means and squares by Chan's formula."""
    a, b = one.inside, other.inside
    share = b / np.maximum(a + b, 1.0)
    apart = other.means - one.means
    means = one.means + apart * share
    counts = _smallest(np.add(one.counts, other.counts, dtype=np.uint32))
    return Dense(counts, means, one.squares + other.squares + apart**2 * a * share)


def _bytes(variable: Variable, n_leaves: int, n_rows: int) -> int:
    cells = n_leaves * variable.n_states
    if cells > DENSE_CELLS:
        return SPARSE_BYTES * min(cells, n_rows)
    return 4 * cells + 24 * n_leaves * int(variable.interval.sum())


def _sparse(dense: Dense, variable: Variable) -> TreeSums:
    counts = dense.counts.ravel()
    keys = np.flatnonzero(counts)
    if not variable.interval.any():
        return TreeSums(keys, counts[keys].astype(np.int64), np.empty(0), np.empty(0))
    interval = keys % variable.n_states - variable.first_interval
    at = keys // variable.n_states * dense.means.shape[1] + np.maximum(interval, 0)
    means = np.where(interval >= 0, dense.means.ravel()[at], np.nan)
    squares = np.where(interval >= 0, dense.squares.ravel()[at], np.nan)
    return TreeSums(keys, counts[keys].astype(np.int64), means, squares)
