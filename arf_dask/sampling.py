"""Sampling under a condition, and what becomes of one that is impossible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from arf_dask.completion import complete, draw_leaves, relax
from arf_dask.conditional import Plan, forge_given, make_plan
from arf_dask.conditions import Interval, Piece, is_choices, parse
from arf_dask.density import condition_frame, impossible, not_null
from arf_dask.encode import column_tokens
from arf_dask.errors import OptionError
from arf_dask.evidence import Evidence, read_evidence
from arf_dask.forge import BLOCK_ROWS, Sampler, forge_block
from arf_dask.progress import Progress
from arf_dask.query import RowLogs, log_probability, row_stand_logs
from arf_dask.readings import level_token
from arf_dask.schema import Flags, Schema
from arf_dask.seeds import Stage, generator
from arf_dask.tables import Tables
from arf_dask.tasks import Threads

POLICIES = ("raise", "null", "relax")


def check_policy(policy: object) -> None:
    """Raise an OptionError unless this says what to do with an impossible condition."""
    if policy not in POLICIES:
        raise OptionError(f'on_impossible={policy!r}: say "raise", "null" or "relax".')


class Place(NamedTuple):
    """Where a block stands in the whole result."""

    block: int
    first: int  # its first row
    rows: int


class Source(Protocol):
    """A condition made ready: any block of its rows can be drawn by anyone, in any order."""

    def draw(self, seed: int, place: Place) -> pl.DataFrame: ...


def cut_blocks(n: int, first: int = 0, stop: int | None = None) -> Iterator[Place]:
    """The blocks of `n` rows that hold the rows from `first` up to `stop`. Their size never depends on who works."""
    stop = n if stop is None else stop
    for block in range(first // BLOCK_ROWS, max(-(-stop // BLOCK_ROWS), first // BLOCK_ROWS + 1)):
        start = block * BLOCK_ROWS
        yield Place(block, start, min(BLOCK_ROWS, n - start))


def make_source(sampler: Sampler, given: Any, on_impossible: str) -> Source:
    """The source of rows under one condition, or under none."""
    if given is None:
        return Free(sampler)
    schema = sampler.tables.schema
    plan = make_plan(sampler, parse(given, schema))
    if plan is not None:
        return Planned(plan, given)
    if on_impossible == "raise":
        raise impossible(given)
    alternatives = [given] if isinstance(given, Mapping) else list(given)
    if on_impossible == "null":
        return KnownOnly(schema, alternatives[0])
    if len(alternatives) == 1 and len(_scalars(alternatives[0])) == len(alternatives[0]):
        return Completed(_only_row(sampler, alternatives[0]))
    return _relaxed(sampler, alternatives)


def sample_source(source: Source, n: int, seed: int, report: Progress) -> pl.DataFrame:
    """`n` rows, block by block on all cores: the same for the same seed, whoever draws which block."""
    frames = []
    for frame in Threads().map(_draw, (source, seed), cut_blocks(n)):
        frames.append(frame)
        report.advance(frame.height)
    return pl.concat(frames)


def _draw(shared: tuple[Source, int], place: Place) -> pl.DataFrame:
    source, seed = shared
    return source.draw(seed, place)


def sample_rows(sampler: Sampler, given: Any, n: int, seed: int, on_impossible: str) -> pl.DataFrame:
    """`n` rows for every row of a frame of conditions, in order."""
    frame = condition_frame(given, sampler.tables.schema)
    return complete_rows(make_ready(sampler, frame, on_impossible, n), n, seed, seed)


# Sources.


class Free(NamedTuple):
    """No condition."""

    sampler: Sampler

    def draw(self, seed: int, place: Place) -> pl.DataFrame:
        return forge_block(self.sampler, place.rows, seed, place.block, place.first)


class Planned(NamedTuple):
    """A condition that is possible."""

    plan: Plan
    given: Any

    def draw(self, seed: int, place: Place) -> pl.DataFrame:
        rows = forge_given(self.plan, place.rows, seed, place.block, place.first)
        return _told_exactly(rows, self.given, self.plan.sampler.tables.schema)


class KnownOnly(NamedTuple):
    """An impossible condition: what it says, and nulls."""

    schema: Schema
    given: Mapping[str, Any]

    def draw(self, seed: int, place: Place) -> pl.DataFrame:
        told, n = _scalars(self.given), place.rows
        return pl.DataFrame(
            {
                name: _constant(self.schema, name, told[name], n) if name in told else _nulls(name, dtype, n)
                for name, dtype in self.schema.dtypes.items()
            }
        )


class Relaxed(NamedTuple):
    """An impossible condition: rows of the part of it that is possible, and the columns it had to give up."""

    plan: Plan
    drawn: Mapping[str, Plan]  # columns that have a plan of their own
    told: Mapping[str, Any]  # columns with one value; None: unknown

    def draw(self, seed: int, place: Place) -> pl.DataFrame:
        schema, where = self.plan.sampler.tables.schema, (place.rows, seed, place.block, place.first)
        rows = forge_given(self.plan, *where)
        filled = [forge_given(alone, *where)[name] for name, alone in self.drawn.items()]
        filled += [_constant(schema, name, value, place.rows) for name, value in self.told.items()]
        return rows.with_columns(filled)


class Completed(NamedTuple):
    """One impossible row of values, with the rest drawn from the nearest leaves."""

    ready: Ready

    def draw(self, seed: int, place: Place) -> pl.DataFrame:
        return complete_rows(self.ready, place.rows, block_seed(seed, place.block), seed, place.first)


class Ready(NamedTuple):
    """Rows of conditions made ready for completion."""

    sampler: Sampler
    frame: pl.DataFrame
    known: dict[str, Flags]
    evidence: Evidence
    logs: RowLogs
    dead: Flags  # impossible rows


def block_seed(seed: int, block: int) -> int:
    """A seed of its own for the completions of one block."""
    return int(generator(seed, Stage.COMPLETE, block).integers(2**62))


def make_ready(
    sampler: Sampler,
    frame: pl.DataFrame,
    on_impossible: str,
    n: int,
    first: int = 0,
    known: dict[str, Flags] | None = None,
) -> Ready:
    """What rows of conditions know (all but nulls, if not told), for `n` draws of each.

    The first of them is the caller's row `first`.
    """
    tables, known = sampler.tables, not_null(frame) if known is None else known
    evidence = read_evidence(frame, tables.schema, known)
    # Few draws visit few stands of trees again; many visit most of them.
    logs = row_stand_logs(tables, evidence, {}, keep=4 * n >= len(tables.stands))
    dead = np.isneginf(logs.total())
    if dead.any() and on_impossible == "raise":
        row = int(np.flatnonzero(dead)[0])
        _name_unseen(frame, tables.schema, row, first)
        raise impossible(frame, row, first)
    if dead.any() and on_impossible == "relax":
        evidence, logs = relax(tables, evidence, logs)
        dead = np.isneginf(logs.total())
    return Ready(sampler, frame, known, evidence, logs, dead)


def complete_rows(ready: Ready, n: int, seed: int, key_seed: int, first_row: int = 0) -> pl.DataFrame:
    """`n` rows for each, from row `first_row` of the whole result on; its identifiers are those of `key_seed`."""
    sampler, frame, known, evidence, logs, dead = ready
    tables = sampler.tables
    leaf = draw_leaves(tables, evidence, logs, n, seed)
    rows = complete(sampler, evidence, frame, known, leaf, seed, key_seed=key_seed, first_row=first_row)
    if not dead.any():
        return rows
    empty = pl.Series(np.repeat(~dead, n))
    told = frame[np.repeat(np.arange(frame.height), n)]
    columns = {}
    for name, dtype in tables.schema.dtypes.items():
        other = told[name].cast(dtype, strict=False) if name in told.columns else _nulls(name, dtype, told.height)
        columns[name] = rows[name].zip_with(empty, other)
    return pl.DataFrame(columns)


class Stretch(NamedTuple):
    """A block of the rows that a frame of conditions asks for."""

    block: int
    first: int  # row of the whole result
    rows: int
    low: int  # its conditions: low <= row < high
    high: int


def cut_conditions(n: int, conditions: int, first: int, stop: int) -> Iterator[Stretch]:
    """The blocks that hold the rows from `first` up to `stop`, of `n` for every condition.

    A block has whole conditions while they fit; one that asks for more rows than a block has is cut.
    """
    if n <= BLOCK_ROWS:
        step = max(1, BLOCK_ROWS // max(n, 1))
        size = max(step * n, 1)
        for block in range(first // size, max(-(-stop // size), first // size + 1)):
            low, high = block * step, min((block + 1) * step, conditions)
            yield Stretch(block, low * n, (high - low) * n, low, high)
        return
    pieces = -(-n // BLOCK_ROWS)
    for row in range(first // n, -(-stop // n)):
        for piece in range(pieces):
            start = row * n + piece * BLOCK_ROWS
            rows = min(BLOCK_ROWS, n - piece * BLOCK_ROWS)
            if start < stop and start + rows > first:
                yield Stretch(row * pieces + piece, start, rows, row, row + 1)


def draw_stretch(
    sampler: Sampler, conditions: pl.DataFrame, seed: int, stretch: Stretch, on_impossible: str
) -> pl.DataFrame:
    """The rows of one block; `conditions` are those from `low` up to `high`."""
    n = stretch.rows // max(conditions.height, 1)
    ready = make_ready(sampler, conditions, on_impossible, n, stretch.low)
    return complete_rows(ready, n, block_seed(seed, stretch.block), seed, stretch.first)


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


def _name_unseen(frame: pl.DataFrame, schema: Schema, row: int, first: int) -> None:
    """Raise the error with the nearest levels, if a level of this row was never seen."""
    for name in frame.columns:
        column = schema.columns[schema.names.index(name)]
        value = frame[name][row]
        if (
            column.kind == "categorical"
            and value is not None
            and column_tokens(frame[name][row : row + 1], column)[0] < 0
        ):
            level_token(value, column, f"given, row {first + row}: {name!r}")


def _nulls(name: str, dtype: pl.DataType, n: int) -> pl.Series:
    return pl.Series(name, [None], dtype=dtype).new_from_index(0, n)


def _scalars(given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a condition gives one value."""
    return {name: v for name, v in given.items() if not isinstance(v, Interval) and not is_choices(v)}


def _constant(schema: Schema, name: str, value: Any, n: int) -> pl.Series:
    return pl.Series(name, [value], dtype=schema.dtypes[name], strict=False).new_from_index(0, n)


def _only_row(sampler: Sampler, given: Mapping[str, Any]) -> Ready:
    """A condition of single values as a frame of one row; None in it is a value that is known to be missing."""
    schema = sampler.tables.schema
    frame = pl.DataFrame({name: _constant(schema, name, value, 1) for name, value in given.items()})
    known = {name: np.ones(1, dtype=bool) for name in given}
    return make_ready(sampler, frame, "relax", BLOCK_ROWS, known=known)


def _relaxed(sampler: Sampler, alternatives: Sequence[Mapping[str, Any]]) -> Relaxed:
    """The alternative that becomes possible most easily; what it gives up is filled in from the condition."""
    schema = sampler.tables.schema
    kept, given = _possible_part(sampler.tables, alternatives)
    plan = make_plan(sampler, [kept])
    assert plan is not None
    drawn, told = {}, {}
    for name, known in given.items():
        if schema.names.index(name) in kept or schema.variable_of(name) is None:
            continue
        alone = make_plan(sampler, parse({name: known}, schema))
        if alone is not None:
            drawn[name] = alone
        else:
            told[name] = known if name in _scalars(given) else None
    return Relaxed(plan, drawn, told)


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
