"""Imputation: nulls of new rows filled in, from what each row has."""

from __future__ import annotations

import numpy as np
import polars as pl

from arf_dask.answers import known_states, mean_places
from arf_dask.axis import nameless
from arf_dask.completion import complete, draw_leaves, relax
from arf_dask.conditions import Piece, everything
from arf_dask.density import not_null, subset
from arf_dask.encode import decode_column
from arf_dask.evidence import Evidence, Rows, forget, read_evidence
from arf_dask.forge import Sampler
from arf_dask.leaves import is_number
from arf_dask.query import Belief, row_beliefs, row_stand_logs
from arf_dask.schema import FIRST_LEVEL, NAN, NULL, Column, Flags, Floats, Ints, Schema, Variable
from arf_dask.tables import Tables


def impute(sampler: Sampler, frame: pl.DataFrame, draws: int | None, seed: int) -> list[pl.DataFrame]:
    """The frame with nothing missing in the model's columns, `draws` times (once, with expectations, if None)."""
    tables = sampler.tables
    told = subset(frame, tables.schema)
    known = {name: flags for name, flags in not_null(told).items() if tables.schema.variable_of(name) is not None}
    if all(flags.all() for flags in known.values()):
        return [frame] * (1 if draws is None else draws)
    piece = _values_only(tables.schema, told.columns)
    evidence = read_evidence(told, tables.schema, known)
    if draws is None:
        return [_filled(frame, _expected(tables, told, evidence, known, piece), known)]
    logs = row_stand_logs(tables, evidence, piece, unknown_only=True)
    evidence, logs = relax(tables, evidence, logs, piece)
    leaf = draw_leaves(tables, evidence, logs, draws, seed, piece)
    rows = complete(sampler, evidence, told, known, leaf, seed, piece)
    at = np.arange(frame.height) * draws
    return [_filled(frame, {name: rows[name][at + number] for name in known}, known) for number in range(draws)]


def _values_only(schema: Schema, names: list[str]) -> Piece:
    """A missing cell of these columns is to get a value: neither null nor NaN."""
    piece: Piece = {}
    for place, column in enumerate(schema.columns):
        if column.name not in names or column.kind not in ("categorical", "numeric"):
            continue
        if not (column.nulls or column.nans):
            continue
        allowed = everything(column)
        allowed.tokens[NULL] = column.n_points == 0 and not _has_line(schema, place)
        allowed.tokens[NAN] = False
        piece[place] = allowed
    return piece


def _has_line(schema: Schema, place: int) -> bool:
    return any(variable.columns[0] == place and bool(variable.interval.any()) for variable in schema.variables)


def _filled(frame: pl.DataFrame, values: dict[str, pl.Series], known: dict[str, Flags]) -> pl.DataFrame:
    """The caller's frame, with values where it has none."""
    filled = []
    for name, value in values.items():
        if not known[name].all():
            own, value = nameless(frame[name]), nameless(value)
            dtype = value.dtype if own.dtype == pl.Null else own.dtype
            filled.append(own.cast(dtype).zip_with(pl.Series(known[name]), value.cast(dtype)).alias(name))
    return frame.with_columns(filled)


def _expected(
    tables: Tables, told: pl.DataFrame, evidence: Evidence, known: dict[str, Flags], piece: Piece
) -> dict[str, pl.Series]:
    """Means of numbers and most probable values of the rest, in the columns where something is missing."""
    schema = tables.schema
    wanted: dict[int, Rows] = {}
    for number, variable in enumerate(schema.variables):
        names = [schema.columns[place].name for place in variable.columns]
        missing = np.logical_or.reduce(
            [np.zeros(told.height, dtype=bool), *(~known[name] for name in names if name in known)]
        )
        if missing.any():
            wanted[number] = np.flatnonzero(missing)
    evidence, beliefs = _beliefs(tables, evidence, wanted, piece)
    known_states(schema, evidence, beliefs, wanted)
    values: dict[str, pl.Series] = {}
    for number, rows in wanted.items():
        for member, place in enumerate(schema.variables[number].columns):
            name = schema.columns[place].name
            if name in known and not known[name].all():
                value = _best(tables, number, member, beliefs[number], evidence.pattern[number][rows] >= 0)
                values[name] = _spread(value, rows, told.height)
    return values


def _beliefs(
    tables: Tables, evidence: Evidence, wanted: dict[int, Rows], piece: Piece
) -> tuple[Evidence, dict[int, Belief]]:
    """What is believed of missing cells; impossible rows are asked again, relaxed."""
    logs, beliefs = row_beliefs(tables, evidence, wanted, piece)
    dead = np.flatnonzero(np.isneginf(logs.total()))
    if not len(dead):
        return evidence, beliefs
    evidence = relax(tables, evidence, logs, piece)[0]
    nothing = np.zeros((len(dead), len(tables.schema.variables)), dtype=bool)
    places = {number: np.flatnonzero(np.isin(rows, dead)) for number, rows in wanted.items()}
    again = {number: np.searchsorted(dead, rows[places[number]]) for number, rows in wanted.items()}
    _, found = row_beliefs(tables, forget(evidence, dead, nothing, tables.schema), again, piece)
    for number, belief in found.items():
        for whole, part in zip(beliefs[number], belief, strict=True):
            whole[places[number]] = part
    return evidence, beliefs


def _best(tables: Tables, number: int, member: int, belief: Belief, told: Flags) -> pl.Series:
    """The value to impute: the mean of a line or a number, the most probable state of everything else.

    Members of a bundle go together: all are read off the same state. So are rows `told` part of it.
    """
    variable = tables.schema.variables[number]
    column = tables.schema.columns[variable.columns[member]]
    lead = tables.schema.columns[variable.columns[0]]
    if is_number(tables.schema, variable):
        return _at_places(tables, column, mean_places(tables, column, (number, 0), belief))
    state = belief.states.argmax(axis=1).astype(np.int32)
    mean = None
    if lead.kind == "numeric" and variable.is_line:
        mean = mean_places(tables, lead, (number, 0), belief)
        inside = ~told & ~np.isnan(mean)
        state = np.where(inside, _state_at(variable, mean), state).astype(np.int32)
        own = _mean_inside(variable, belief, state)
        mean = np.where(inside, mean, own)
    tokens = variable.tokens[state, member]
    if member > 0 or mean is None:
        return decode_column(column, tokens, None)
    # The mean itself is the value, whether or not there is a spike or an interval at it.
    points = (
        column.points[np.clip(tokens - FIRST_LEVEL, 0, max(len(column.points) - 1, 0))] if len(column.points) else mean
    )
    return _at_places(tables, column, np.where(told & ~variable.interval[state], points, mean))


def _at_places(tables: Tables, column: Column, at: Floats) -> pl.Series:
    """Numbers by their place on the line; null where there is none."""
    tokens = np.where(np.isnan(at), NULL, column.between).astype(np.int32)
    return decode_column(column, tokens, np.nan_to_num(at), open_ends=tables.support == "open")


def _state_at(variable: Variable, places: Floats) -> Ints:
    """The interval that holds a number (any state, where there are none)."""
    if not variable.interval.any():
        return np.zeros(len(places), dtype=np.int32)
    segment = np.searchsorted(variable.segments, np.nan_to_num(places), side="right")
    return (variable.first_interval + segment).astype(np.int32)


def _mean_inside(variable: Variable, belief: Belief, state: Ints) -> Floats:
    """The mean inside each row's own state; NaN for points."""
    mean = np.full(len(state), np.nan)
    rows = np.flatnonzero(variable.interval[state])
    share = belief.states[rows, state[rows]]
    moment = belief.moments[rows, state[rows] - variable.first_interval]
    mean[rows] = np.where(share > 0, moment / np.where(share > 0, share, 1.0), np.nan)
    return mean


def _spread(value: pl.Series, rows: Rows, height: int) -> pl.Series:
    """Values of some rows as a whole column, null elsewhere."""
    at = np.full(height, -1, dtype=np.int64)
    at[rows] = np.arange(len(rows))
    index = pl.Series(at).set(pl.Series(at < 0), None) if (at < 0).any() else pl.Series(at)
    return nameless(value).gather(index).alias(value.name)
