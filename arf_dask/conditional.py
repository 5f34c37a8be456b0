"""FORGE under a condition: leaves by their weight, then every variable from what the condition leaves of it.

Nothing is drawn and thrown away: a rare condition costs as much as a frequent one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.conditions import Piece
from arf_dask.forge import Drawn, Sampler, assemble, draw_variable
from arf_dask.leaves import Cells, View, axis_of, compile_piece, view_stand
from arf_dask.marginals import draw
from arf_dask.query import leaf_weights
from arf_dask.schema import Column, Floats, Ints
from arf_dask.seeds import Stage, generator
from arf_dask.tables import Tables

Leaves = NDArray[np.int64]


class Plan(NamedTuple):
    """A condition made ready for drawing."""

    sampler: Sampler
    pieces: list[dict[int, Cells]]
    weights: Floats  # per (piece, leaf), piece by piece; they add up to one


class Bounded(NamedTuple):
    """One variable of a block, with the part of the line that each row must stay in."""

    states: Ints
    places: Floats
    low: Floats
    high: Floats


def make_plan(sampler: Sampler, pieces: Sequence[Piece]) -> Plan | None:
    """Leaf weights and cells of a condition; None where it is impossible."""
    logs = np.concatenate([np.empty(0), *(leaf_weights(sampler.tables, piece) for piece in pieces)])
    top = logs.max(initial=-np.inf)
    if np.isneginf(top):
        return None
    weights = np.exp(logs - top)
    return Plan(sampler, [compile_piece(sampler.tables, piece) for piece in pieces], weights / weights.sum())


def forge_given(plan: Plan, n: int, seed: int, block: int, first_row: int) -> pl.DataFrame:
    """One block of rows that satisfy the condition."""
    rng = generator(seed, Stage.GIVEN, block)
    tables = plan.sampler.tables
    counts = rng.multinomial(n, plan.weights).reshape(len(plan.pieces), -1)
    parts = []
    for cells, per_leaf in zip(plan.pieces, counts, strict=True):
        leaf = np.repeat(np.arange(per_leaf.size), per_leaf)
        parts.append(_draw_piece(plan.sampler, cells, leaf, rng))
    order = rng.permutation(n)
    drawn = [_joined([part[number] for part in parts], order) for number in range(len(tables.schema.variables))]
    plain = [
        Drawn(d.states, d.places if v.interval.any() else None)
        for d, v in zip(drawn, tables.schema.variables, strict=True)
    ]
    frame = assemble(tables, plain, np.arange(n), seed, first_row, rng)
    return hold(frame, tables, drawn)


def hold(frame: pl.DataFrame, tables: Tables, drawn: Sequence[Bounded]) -> pl.DataFrame:
    """The frame with floats that rounding took out of their bounds put back, unrounded."""
    for variable, values in zip(tables.schema.variables, drawn, strict=True):
        if not variable.interval.any() or axis_of(tables, variable).grid:
            continue
        column = tables.schema.columns[variable.columns[0]]
        held = _held(frame[column.name], column, values, variable.interval[values.states])
        if held is not None:
            frame = frame.with_columns(held)
    return frame


def draw_cells(
    sampler: Sampler, narrow: dict[int, Cells], leaf: Leaves, rng: np.random.Generator
) -> dict[int, Bounded]:
    """States and places of the variables that a condition speaks of, for leaves in ascending order."""
    tables = sampler.tables
    cut = np.searchsorted(leaf, tables.stand_starts)
    drawn: dict[int, list[Bounded]] = {number: [] for number in narrow}
    for stand in np.flatnonzero(np.diff(cut)):
        here = leaf[cut[stand] : cut[stand + 1]] - tables.stand_starts[stand]
        view = view_stand(tables, int(stand))
        for number, cells in narrow.items():
            drawn[number].append(_draw_in_stand(view, number, cells, here, rng))
    empty = Bounded(np.empty(0, dtype=np.int32), *(np.empty(0) for _ in range(3)))
    return {number: Bounded(*map(np.concatenate, zip(empty, *parts, strict=True))) for number, parts in drawn.items()}


def pick(shares: Floats, rng: np.random.Generator) -> Leaves:
    """One column per row, with probabilities proportional to the row's entries."""
    total = np.cumsum(shares, axis=1)
    chance = rng.random(len(shares)) * total[:, -1]
    # The last column with any share ends the search, also where rounding takes the chance to the very end.
    last = shares.shape[1] - 1 - np.argmax(shares[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum((total <= chance[:, None]).sum(axis=1), last))


def _draw_piece(sampler: Sampler, narrow: dict[int, Cells], leaf: Leaves, rng: np.random.Generator) -> list[Bounded]:
    told = draw_cells(sampler, narrow, leaf, rng)
    return [
        told[number] if number in told else unbounded(draw_variable(sampler, number, leaf, rng))
        for number in range(len(sampler.variables))
    ]


def unbounded(drawn: Drawn) -> Bounded:
    """What was drawn without any condition."""
    n = len(drawn.states)
    places = np.zeros(n) if drawn.places is None else drawn.places
    return Bounded(drawn.states, places, np.full(n, -np.inf), np.full(n, np.inf))


def _joined(parts: Sequence[Bounded], order: Leaves) -> Bounded:
    return Bounded(*(np.concatenate(side)[order] for side in zip(*parts, strict=True)))


def _draw_in_stand(view: View, number: int, cells: Cells, leaf: Leaves, rng: np.random.Generator) -> Bounded:
    variable = view.tables.schema.variables[number]
    home, at = np.unique(leaf, return_inverse=True)
    logs = view.log_masses(number, cells)[home]
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    cell = pick(shares[at], rng)
    states, low, high = cells.state[cell], cells.low[cell], cells.high[cell]
    places = np.zeros(len(leaf))
    rows = np.flatnonzero(variable.interval[states])
    if len(rows):
        where = leaf[rows], states[rows] - variable.first_interval
        mu, sigma, lower, upper = (part[where] for part in view.normals(number))
        lower, upper = np.maximum(lower, low[rows]), np.minimum(upper, high[rows])
        exact = low[rows] == high[rows]
        upper = np.where(exact, np.nextafter(lower, np.inf), upper)
        found = draw(rng.random(len(rows)), mu, sigma, lower, upper)
        if axis_of(view.tables, variable).grid:
            found = np.clip(np.rint(found), lower + 0.5, upper - 0.5)
        places[rows] = np.where(exact, low[rows], found)
    return Bounded(states, places, low, high)


def _held(series: pl.Series, column: Column, drawn: Bounded, between: NDArray[np.bool_]) -> pl.Series | None:
    axis = column.axis
    assert axis is not None
    at = axis.to_axis(series)
    bad = np.flatnonzero(between & ((at < drawn.low) | (at > drawn.high)))
    if not len(bad):
        return None
    kinds: dict[Any, Any] = {pl.Float32: np.float32, pl.Float16: np.float16}
    kind = kinds.get(column.dtype.base_type(), np.float64)
    values = np.ldexp(drawn.places[bad], axis.exponent).astype(kind)
    low, high = (np.ldexp(side[bad], axis.exponent) for side in (drawn.low, drawn.high))
    values = np.where(values < low, np.nextafter(values, kind(np.inf)), values)
    values = np.where(values > high, np.nextafter(values, kind(-np.inf)), values)
    return series.scatter(pl.Series(bad), pl.Series(values.astype(kind)).cast(column.dtype))
