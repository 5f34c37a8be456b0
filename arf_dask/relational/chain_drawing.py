"""Draw the rows of a table, given their parents: all first rows, then all second rows, and so on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.errors import ImpossibleConditionError
from arf_dask.forest.routing import RoutingTable, route_to_leaves, routing_table
from arf_dask.inference.forge import Sampler, draw_variable, new_identifiers
from arf_dask.relational.chains import Chain
from arf_dask.relational.histories import (
    AT,
    FIRST_TIME,
    GAP,
    History,
    history_columns,
    next_history,
    parent_columns,
    physical,
    time_columns,
    whole,
)
from arf_dask.schema.columns import Schema
from arf_dask.schema.encoding import decode_column, variable_codes
from arf_dask.typing import Codes, Counts, Ints

ATTEMPTS = 500  # times that rows that break a rule are drawn again
TIME_DRAWS = 16  # times that a gap beyond the end of the data is drawn again


class DrawnChildren(NamedTuple):
    """Drawn rows in the columns of their table."""

    frame: pl.DataFrame  # sorted by parent and then by time
    parent: Counts  # per row, the number of its parent


class _Tools(NamedTuple):
    sampler: Sampler
    routing: list[RoutingTable]


class KeyDraw(NamedTuple):
    """How the identifiers of drawn rows are numbered."""

    seed: int
    first_row: int  # number of the first row among all rows of its table
    rng: np.random.Generator  # draws which identifiers are null


def draw_children(
    chain: Chain, parents: pl.DataFrame, counts: Counts, rng: np.random.Generator, keys: KeyDraw
) -> DrawnChildren:
    """Draw the rows of all parents.

    Args:
        chain: the model.
        parents: what is known of the parents.
        counts: per parent, the number of its rows.
        rng: draws the rows.
        keys: how identifiers are numbered.
    """
    tools = chain.built.get(
        "tools", lambda: _Tools(Sampler(chain.fitted), list(map(routing_table, chain.fitted.tables.trees)))
    )
    active = np.flatnonzero(counts > 0)
    history, times = _first_history(chain, counts[active]), None
    context = parent_columns(parents, chain.parents)
    base = None if chain.base is None else parents.get_column(chain.base)
    levels: list[pl.DataFrame] = []
    owners: list[Counts] = []
    while len(active):
        index = pl.Series(active)
        here = {name: series.gather(index) for name, series in context.items()}
        row_base = None if base is None else base.gather(index)
        drawn, times = _draw_valid(chain, tools, _Level(here, history, row_base), rng)
        levels.append(drawn if times is None else drawn.with_columns(times.alias(chain.shape.order or "")))
        owners.append(active)
        kept = np.flatnonzero(history.position + 1 < history.siblings)
        history = next_history(chain.shape, history, drawn, times, kept)
        active = active[kept]
    return _assembled(chain, levels, owners, keys)


def _first_history(chain: Chain, siblings: Counts) -> History:
    schema, n = chain.schema, len(siblings)
    previous = pl.DataFrame(
        [pl.Series(name, [None], dtype=schema.dtypes[name]).new_from_index(0, n) for name in chain.shape.previous]
    )
    zeros = np.zeros((n, len(chain.shape.running)))
    time = None
    if chain.shape.order is not None:
        dtype = chain.relations.dtypes[chain.shape.order]
        time = pl.Series(chain.shape.order, [None], dtype=dtype).new_from_index(0, n)
    return History(np.zeros(n, dtype=np.int64), siblings, previous, zeros, zeros.copy(), time)


class _Level(NamedTuple):
    """What is known of the next row of every parent that has one."""

    context: dict[str, pl.Series]  # columns of the parents
    history: History
    base: pl.Series | None  # the time from which the first one is counted

    def rows(self, chosen: Counts) -> _Level:
        """Return some of the rows."""
        index = pl.Series(chosen)
        context = {name: series.gather(index) for name, series in self.context.items()}
        return _Level(context, self.history.rows(chosen), None if self.base is None else self.base.gather(index))


def _draw_valid(
    chain: Chain, tools: _Tools, level: _Level, rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.Series | None]:
    """Draw one row for every history, again where it breaks a rule of the table."""
    drawn, times = _draw_level(chain, tools, level, rng)
    wrong = _broken_rows(chain, drawn, times)
    for _ in range(ATTEMPTS):
        if not len(wrong):
            return drawn, times
        again, new_times = _draw_level(chain, tools, level.rows(wrong), rng)
        order = np.arange(drawn.height)
        order[wrong] = drawn.height + np.arange(len(wrong))
        drawn = pl.concat([drawn, again])[pl.Series(order)]
        if times is not None and new_times is not None:
            times = pl.concat([times, new_times]).gather(pl.Series(order))
        wrong = wrong[_broken_rows(chain, again, new_times)]
    raise ImpossibleConditionError(
        f"{len(wrong):,} of {drawn.height:,} rows with the columns "
        f"{', '.join(map(repr, chain.relations.names[:5]))} break a rule after many draws. Leave out one of the "
        "declared rules."
    )


def _broken_rows(chain: Chain, drawn: pl.DataFrame, times: pl.Series | None) -> Counts:
    if not chain.relations:
        return np.empty(0, dtype=np.int64)
    columns = drawn.to_dict() if times is None else {**drawn.to_dict(), times.name: times}
    return np.flatnonzero(chain.relations.broken(chain.relations.inverse(_modelled(chain, columns, drawn.height))))


def _modelled(chain: Chain, columns: Mapping[str, pl.Series], n: int) -> pl.DataFrame:
    """Return the modelled columns of drawn rows; null where nothing was drawn."""
    modelled = {}
    for name in chain.relations.modelled_names():
        missing = pl.Series(name, [None], dtype=chain.dtype_of(name)).new_from_index(0, n)
        modelled[name] = columns.get(name, missing).cast(missing.dtype)
    return pl.DataFrame(modelled)


def _draw_level(
    chain: Chain, tools: _Tools, level: _Level, rng: np.random.Generator
) -> tuple[pl.DataFrame, pl.Series | None]:
    """Draw one row for every history; return its drawn columns, and its time."""
    (context, history, base), schema, n = level, chain.schema, len(level.history.position)
    columns = {**context, **history_columns(chain.shape, history)}
    codes = np.zeros((n, len(schema.variables)), dtype=np.uint32)
    _enter(codes, columns, schema)
    flags = {lead: flag for flag, lead in chain.repeats}
    drawn: dict[str, pl.Series] = {}
    time: pl.Series | None = None
    for tree, number in enumerate(chain.steps):
        lead = schema.lead_column(schema.variables[number]).name
        leaf = chain.fitted.tables.starts[tree] + route_to_leaves(tools.routing[tree], codes)
        starts = {GAP: history.time, FIRST_TIME: base}.get(lead)
        if starts is None:
            drawn |= _draw_columns(chain, tools, number, leaf, rng)
        else:
            drawn[lead] = _draw_step(chain, tools, number, leaf, starts, rng)
        if lead in flags:
            is_same = pl.Series(drawn[flags[lead]].to_numpy() > 0)
            for column in schema.member_columns(schema.variables[number]):
                drawn[column.name] = history.previous.get_column(column.name).zip_with(is_same, drawn[column.name])
        codes[:, number] = _codes(drawn, schema, number)
        if lead == chain.last_time_name:
            time = _time_of(chain, drawn, history, base)
            _enter(codes, time_columns(AT, time), schema)
    return pl.DataFrame([series.alias(name) for name, series in drawn.items()]), time


def _enter(codes: Codes, columns: dict[str, pl.Series], schema: Schema) -> None:
    """Enter the codes of columns of the history."""
    for name in columns:
        place = schema.variable_of(name) if name in schema.positions else None
        if place is not None:
            codes[:, place.variable] = _codes(columns, schema, place.variable)


def _codes(columns: dict[str, pl.Series], schema: Schema, number: int) -> Ints:
    """Return the codes of one variable; values that were never seen have the smallest one."""
    names = [column.name for column in schema.member_columns(schema.variables[number])]
    frame = pl.DataFrame([columns[name].alias(name) for name in names])
    return np.maximum(variable_codes(frame, schema, number), 0)


def _draw_columns(
    chain: Chain, tools: _Tools, number: int, leaf: Counts, rng: np.random.Generator
) -> dict[str, pl.Series]:
    """Draw the columns of one variable from the leaves of its tree."""
    variable, table = chain.schema.variables[number], tools.sampler.variables[number]
    states, places = draw_variable(tools.sampler, table, leaf, rng)
    return {
        column.name: decode_column(column, variable.tokens[states, member], places if member == 0 else None)
        for member, column in enumerate(chain.schema.member_columns(variable))
    }


def _draw_step(
    chain: Chain, tools: _Tools, number: int, leaf: Counts, starts: pl.Series, rng: np.random.Generator
) -> pl.Series:
    """Draw the distances to the times of rows from given starts; those beyond the last time are drawn again.

    Rows whose start is null keep whatever their leaf has.
    """
    name = chain.schema.lead_column(chain.schema.variables[number]).name
    room = pl.Series(np.full(len(leaf), chain.shape.last_time)) - physical(starts)
    drawn = _draw_columns(chain, tools, number, leaf, rng)[name]
    for _ in range(TIME_DRAWS):
        beyond = np.flatnonzero((drawn > room).fill_null(False).to_numpy())
        if not len(beyond):
            return drawn
        again = _draw_columns(chain, tools, number, leaf[beyond], rng)[name]
        drawn = drawn.scatter(pl.Series(beyond), again)
    # Where hardly any room is left, the rest of it is divided evenly.
    shares = pl.Series(rng.random(len(leaf)))
    axis = chain.schema.columns[chain.schema.positions[name]].axis
    step = float(axis.step) if axis is not None and axis.grid else 0.0
    fitting = room * shares if step == 0.0 else (room * shares / step).floor() * step
    return drawn.zip_with((drawn <= room).fill_null(True), fitting.cast(drawn.dtype))


def _time_of(chain: Chain, drawn: dict[str, pl.Series], history: History, base: pl.Series | None) -> pl.Series:
    """Return the time of every drawn row."""
    name = chain.shape.order
    assert name is not None
    assert history.time is not None
    dtype = chain.relations.dtypes[name]
    first = drawn[FIRST_TIME] if base is None else _shifted_by(base.cast(dtype), drawn[FIRST_TIME])
    first = first.cast(dtype)
    if GAP not in drawn:
        return first.alias(name)
    return first.zip_with(pl.Series(history.position == 0), _shifted_by(history.time, drawn[GAP])).alias(name)


def _shifted_by(time: pl.Series, distance: pl.Series) -> pl.Series:
    return (whole(time) + distance).cast(time.dtype)


def _assembled(chain: Chain, levels: list[pl.DataFrame], owners: list[Counts], keys: KeyDraw) -> DrawnChildren:
    """Sort drawn rows by parent, convert them to the columns of the table, and add new identifiers."""
    parent = np.concatenate(owners) if owners else np.empty(0, dtype=np.int64)
    order = np.argsort(parent, kind="stable")
    n, schema = len(parent), chain.schema
    drawn = pl.concat(levels)[pl.Series(order)] if levels else pl.DataFrame()
    columns = {} if not levels else drawn.to_dict()
    columns |= new_identifiers(schema, n, keys.seed, keys.first_row, keys.rng)
    return DrawnChildren(chain.relations.inverse(_modelled(chain, columns, n)), parent[order])
