"""Sampling under a condition, and what becomes of one that is impossible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from arf_dask.cluster import Threads
from arf_dask.completion import complete, draw_leaves, relax
from arf_dask.conditional import Plan, forge_given, make_plan
from arf_dask.conditions import Interval, Piece, is_choices, parse
from arf_dask.density import condition_frame, impossible, not_null
from arf_dask.encode import column_tokens
from arf_dask.errors import OptionError
from arf_dask.evidence import read_evidence
from arf_dask.forge import BLOCK_ROWS, Sampler
from arf_dask.progress import Progress
from arf_dask.query import log_probability, row_stand_logs
from arf_dask.readings import level_token
from arf_dask.schema import Flags, Schema
from arf_dask.tables import Tables

POLICIES = ("raise", "null", "relax")


def check_policy(policy: object) -> None:
    """Raise an OptionError unless this says what to do with an impossible condition."""
    if policy not in POLICIES:
        raise OptionError(f'on_impossible={policy!r}: say "raise", "null" or "relax".')


def cut_blocks(n: int) -> Iterator[tuple[int, int, int]]:
    """(block, first row, rows) of every block. The size never depends on who does the work."""
    for block, first in enumerate(range(0, max(n, 1), BLOCK_ROWS)):
        yield block, first, min(BLOCK_ROWS, n - first)


def sample_given(sampler: Sampler, given: Any, n: int, seed: int, on_impossible: str, report: Progress) -> pl.DataFrame:
    """`n` rows that satisfy one condition."""
    pieces = parse(given, sampler.tables.schema)
    plan = make_plan(sampler, pieces)
    if plan is not None:
        return _told_exactly(_draw_plan(plan, n, seed, report), given, sampler.tables.schema)
    if on_impossible == "raise":
        raise impossible(given)
    alternatives = [given] if isinstance(given, Mapping) else list(given)
    if on_impossible == "null":
        return _known_only(sampler.tables.schema, alternatives[0], n)
    if len(alternatives) == 1 and len(_scalars(given)) == len(given):
        frame = pl.DataFrame({name: _constant(sampler.tables.schema, name, value, 1) for name, value in given.items()})
        known = {name: np.ones(1, dtype=bool) for name in given}
        return _complete_rows(sampler, frame, known, n, seed, on_impossible)
    return _relaxed(sampler, alternatives, n, seed, report)


def sample_rows(sampler: Sampler, given: Any, n: int, seed: int, on_impossible: str) -> pl.DataFrame:
    """`n` rows for every row of a frame of conditions, in order."""
    frame = condition_frame(given, sampler.tables.schema)
    return _complete_rows(sampler, frame, not_null(frame), n, seed, on_impossible)


def _complete_rows(
    sampler: Sampler, frame: pl.DataFrame, known: dict[str, Flags], n: int, seed: int, on_impossible: str
) -> pl.DataFrame:
    tables = sampler.tables
    evidence = read_evidence(frame, tables.schema, known)
    # Few draws visit few stands of trees again; many visit most of them.
    logs = row_stand_logs(tables, evidence, {}, keep=4 * n >= len(tables.stands))
    dead = np.isneginf(logs.total())
    if dead.any() and on_impossible == "raise":
        _name_unseen(frame, tables.schema, int(np.flatnonzero(dead)[0]))
        raise impossible(frame, int(np.flatnonzero(dead)[0]))
    if dead.any() and on_impossible == "relax":
        evidence, logs = relax(tables, evidence, logs)
        dead = np.isneginf(logs.total())
    rows = complete(sampler, evidence, frame, known, draw_leaves(tables, evidence, logs, n, seed), seed)
    if not dead.any():
        return rows
    empty = pl.Series(np.repeat(~dead, n))
    told = frame[np.repeat(np.arange(frame.height), n)]
    columns = {}
    for name, dtype in tables.schema.dtypes.items():
        other = told[name].cast(dtype, strict=False) if name in told.columns else _nulls(name, dtype, told.height)
        columns[name] = rows[name].zip_with(empty, other)
    return pl.DataFrame(columns)


def _told_exactly(frame: pl.DataFrame, given: Any, schema: Schema) -> pl.DataFrame:
    """The frame with the values the caller names to the last digit, also where a column's axis is coarser."""
    alternatives = [given] if isinstance(given, Mapping) else list(given)
    for column in schema.columns:
        if column.axis is None or column.axis.lossless:
            continue
        asked = [one[column.name] for one in alternatives if column.name in one]
        told = [value for some in asked for value in (some if is_choices(some) else [some])]
        told = [value for value in told if value is not None and not isinstance(value, tuple | Interval)]
        if told:
            values = pl.Series(told, dtype=column.dtype).sort()
            places, drawn = column.axis.to_axis(values), column.axis.to_axis(frame[column.name])
            at = np.minimum(np.searchsorted(places, drawn), len(places) - 1)
            exact = values.gather(pl.Series(at)).zip_with(pl.Series(places[at] == drawn), frame[column.name])
            frame = frame.with_columns(exact.alias(column.name))
    return frame


def _draw_plan(plan: Plan, n: int, seed: int, report: Progress) -> pl.DataFrame:
    frames = []
    for frame in Threads().map(_block, (plan, seed), list(cut_blocks(n))):
        frames.append(frame)
        report.advance(frame.height)
    return pl.concat(frames)


def _block(shared: tuple[Plan, int], place: tuple[int, int, int]) -> pl.DataFrame:
    (plan, seed), (block, first, rows) = shared, place
    return forge_given(plan, rows, seed, block, first)


def _name_unseen(frame: pl.DataFrame, schema: Schema, row: int) -> None:
    """Raise the error with the nearest levels, if a level of this row was never seen."""
    for name in frame.columns:
        column = schema.columns[schema.names.index(name)]
        value = frame[name][row]
        if (
            column.kind == "categorical"
            and value is not None
            and column_tokens(frame[name][row : row + 1], column)[0] < 0
        ):
            level_token(value, column, f"given, row {row}: {name!r}")


def _nulls(name: str, dtype: pl.DataType, n: int) -> pl.Series:
    return pl.Series(name, [None], dtype=dtype).new_from_index(0, n)


def _scalars(given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a condition gives one value."""
    return {name: v for name, v in given.items() if not isinstance(v, Interval) and not is_choices(v)}


def _constant(schema: Schema, name: str, value: Any, n: int) -> pl.Series:
    return pl.Series(name, [value], dtype=schema.dtypes[name], strict=False).new_from_index(0, n)


def _known_only(schema: Schema, given: Mapping[str, Any], n: int) -> pl.DataFrame:
    told = _scalars(given)
    return pl.DataFrame(
        {
            name: _constant(schema, name, told[name], n) if name in told else _nulls(name, dtype, n)
            for name, dtype in schema.dtypes.items()
        }
    )


def _relaxed(
    sampler: Sampler, alternatives: Sequence[Mapping[str, Any]], n: int, seed: int, report: Progress
) -> pl.DataFrame:
    """Rows of the alternative that becomes possible most easily; what it gives up is filled in from the condition."""
    schema = sampler.tables.schema
    kept, given = _possible_part(sampler.tables, alternatives)
    plan = make_plan(sampler, [kept])
    assert plan is not None
    rows = _draw_plan(plan, n, seed, report)
    filled = []
    for name, known in given.items():
        if schema.names.index(name) in kept or schema.variable_of(name) is None:
            continue
        alone = make_plan(sampler, parse({name: known}, schema))
        if alone is not None:
            filled.append(_draw_plan(alone, n, seed, report)[name])
        elif name in _scalars(given):
            filled.append(_constant(schema, name, known, n))
        else:
            filled.append(_nulls(name, schema.dtypes[name], n))
    return rows.with_columns(filled)


def _possible_part(tables: Tables, alternatives: Sequence[Mapping[str, Any]]) -> tuple[Piece, Mapping[str, Any]]:
    """The largest part of an alternative that is possible: variables go one by one, as in `completion.relax`."""
    pieces = [parse(given, tables.schema)[0] for given in alternatives]
    while True:
        trials = []
        for place, piece in enumerate(pieces):
            for columns in _variables(tables.schema, piece):
                rest = {key: allowed for key, allowed in piece.items() if key not in columns}
                trials.append((log_probability(tables, [rest]), place, rest, columns))
        best = max(trials, key=lambda trial: trial[0])
        if best[0] > -np.inf:
            return best[2], alternatives[best[1]]
        for place, piece in enumerate(pieces):
            mine = [columns for _, where, _, columns in trials if where == place]
            least = min(mine, key=lambda columns: log_probability(tables, [_only(piece, columns)]))
            pieces[place] = {key: allowed for key, allowed in piece.items() if key not in least}


def _only(piece: Piece, columns: set[int]) -> Piece:
    return {key: allowed for key, allowed in piece.items() if key in columns}


def _variables(schema: Schema, piece: Piece) -> list[set[int]]:
    """The columns of a piece, together as they are modelled."""
    groups = [set(variable.columns) & piece.keys() for variable in schema.variables]
    return [columns for columns in groups if columns]
