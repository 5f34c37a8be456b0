"""Sampling with or without a condition, and the handling of impossible conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
import polars as pl

from arf_dask.errors import OptionError
from arf_dask.inference.completion import Completion, draw_completions, draw_leaves
from arf_dask.inference.conditional import ConditionSampler, condition_sampler, forge_given
from arf_dask.inference.conditions import Interval, is_choices, parse
from arf_dask.inference.density import condition_frame, impossible, not_null
from arf_dask.inference.forge import BLOCK_ROWS, Sampler, forge_block
from arf_dask.inference.known_rows import KnownRows, read_rows
from arf_dask.inference.posteriors import RowDensities, row_densities
from arf_dask.inference.readings import level_token
from arf_dask.inference.relaxing import possible_part, relax_rows
from arf_dask.runtime.disk import machine_memory
from arf_dask.runtime.forks import check_not_forked
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.columns import Schema
from arf_dask.schema.encoding import column_tokens
from arf_dask.typing import Flags, OnImpossible


def check_policy(policy: object) -> None:
    """Raise an OptionError unless `policy` is a valid value of `on_impossible`."""
    if policy not in get_args(OnImpossible):
        raise OptionError(f'on_impossible={policy!r}: say "raise", "null" or "relax".')


def check_rows(n: object) -> None:
    """Raise an OptionError unless `n` is a valid number of rows, or a ForkError in a forked process."""
    check_not_forked()
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise OptionError(f"n={n!r}: give the number of rows to draw, a whole number of at least 0.")


def check_memory(n: int, columns: int) -> None:
    """Raise an OptionError if the rows cannot fit into the memory of this machine."""
    memory = machine_memory()
    if n * columns > memory:  # at least one byte per cell
        raise OptionError(
            f"n={n:,}: so many rows of {columns} columns do not fit into the memory of this machine "
            f"({memory / 1e9:.0f} GB). Use model.sample_parquet(path, n), or synthesize(..., to=path)."
        )


class Block(NamedTuple):
    """A block of consecutive rows of the whole result."""

    number: int
    first: int  # position of its first row
    rows: int


class Source(Protocol):
    """A source of rows whose blocks can be drawn independently, in any order and in any process."""

    def draw(self, seed: int, block: Block) -> pl.DataFrame: ...


def cut_blocks(n: int, first: int = 0, stop: int | None = None) -> Iterator[Block]:
    """Yield the blocks of `n` rows that contain rows from `first` up to `stop`; the block size is fixed."""
    stop = n if stop is None else stop
    for block_number in range(first // BLOCK_ROWS, max(-(-stop // BLOCK_ROWS), first // BLOCK_ROWS + 1)):
        first_row = block_number * BLOCK_ROWS
        yield Block(block_number, first_row, min(BLOCK_ROWS, n - first_row))


def make_source(sampler: Sampler, given: Any, on_impossible: OnImpossible) -> Source:
    """Return a source of modelled rows, with or without a condition."""
    if given is None:
        return FreeSource(sampler)
    schema = sampler.tables.schema
    condition = condition_sampler(sampler, parse(given, schema))
    if condition is not None:
        return ConditionalSource(condition, given)
    if on_impossible == "raise":
        raise impossible(given)
    alternatives = [given] if isinstance(given, Mapping) else list(given)
    if on_impossible == "null":
        return NullSource(schema, alternatives[0])
    if len(alternatives) == 1 and len(_scalars(alternatives[0])) == len(alternatives[0]):
        return CompletedSource(_only_row(sampler, alternatives[0]))
    return _relaxed(sampler, alternatives)


def sample_conditions(sampler: Sampler, given: Any, n: int, seed: int, on_impossible: OnImpossible) -> pl.DataFrame:
    """Draw `n` rows for every row of a frame of conditions, in order."""
    frame = condition_frame(given, sampler.tables.schema)
    return complete_rows(prepare_rows(sampler, frame, on_impossible, n), n, seed, seed)


# Sources.


class FreeSource(NamedTuple):
    """Unconditional rows."""

    sampler: Sampler

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        return forge_block(self.sampler, block.rows, seed, block.number, block.first)


class ConditionalSource(NamedTuple):
    """Rows under a possible condition."""

    condition: ConditionSampler
    given: Any

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        rows = forge_given(self.condition, block.rows, seed, block.number, block.first)
        return _told_exactly(rows, self.given, self.condition.sampler.tables.schema)


class NullSource(NamedTuple):
    """Rows for an impossible condition: its given values, and nulls elsewhere."""

    schema: Schema
    given: Mapping[str, Any]

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        single_values, n_rows = _scalars(self.given), block.rows
        return pl.DataFrame(
            {
                name: _constant(self.schema, name, single_values[name], n_rows)
                if name in single_values
                else _nulls(name, dtype, n_rows)
                for name, dtype in self.schema.dtypes.items()
            }
        )


class RelaxedSource(NamedTuple):
    """Rows for an impossible condition: drawn under its possible part, with the dropped columns filled in."""

    condition: ConditionSampler
    drawn: Mapping[str, ConditionSampler]  # columns that are drawn separately, each under its own condition
    told: Mapping[str, Any]  # columns with a constant value; None: null

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        schema, draw_arguments = self.condition.sampler.tables.schema, (block.rows, seed, block.number, block.first)
        rows = forge_given(self.condition, *draw_arguments)
        filled_columns = [
            forge_given(column_condition, *draw_arguments)[name] for name, column_condition in self.drawn.items()
        ]
        filled_columns += [_constant(schema, name, value, block.rows) for name, value in self.told.items()]
        return rows.with_columns(filled_columns)


class CompletedSource(NamedTuple):
    """Rows for an impossible combination of single values, completed after relaxing it."""

    prepared: PreparedRows

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        return complete_rows(self.prepared, block.rows, block_seed(seed, block.number), seed, block.first)


class PreparedRows(NamedTuple):
    """Rows of a frame of conditions, prepared for completion."""

    sampler: Sampler
    frame: pl.DataFrame
    flags: dict[str, Flags]  # per column: which rows are known
    known: KnownRows
    densities: RowDensities
    dead: Flags  # whether each row is impossible


def block_seed(seed: int, block: int) -> int:
    """Derive the seed for the completions of one block."""
    return int(generator(seed, Stage.COMPLETE, block).integers(2**62))


def prepare_rows(
    sampler: Sampler,
    frame: pl.DataFrame,
    on_impossible: OnImpossible,
    n: int,
    first: int = 0,
    flags: dict[str, Flags] | None = None,
) -> PreparedRows:
    """Prepare the rows of a frame of conditions for `n` draws each.

    Args:
        sampler: the model.
        frame: the conditions.
        on_impossible: what to do with impossible rows.
        n: the number of draws per row, which determines whether pair weights are kept.
        first: the number of the first row in the caller's frame, for error messages.
        flags: per column, which rows are known; by default, those that are not null.
    """
    tables, flags = sampler.tables, not_null(frame) if flags is None else flags
    known = read_rows(frame, tables, flags)
    # Keep pair weights if there are enough draws to visit most tree batches again.
    densities = row_densities(tables, known, {}, keep=4 * n >= len(tables.batch_trees))
    dead = np.isneginf(densities.total())
    if dead.any() and on_impossible == "raise":
        dead_row = int(np.flatnonzero(dead)[0])
        _name_unseen(frame, tables.schema, dead_row, first)
        raise impossible(frame, dead_row, first)
    if dead.any() and on_impossible == "relax":
        known, densities = relax_rows(tables, known, densities)
        dead = np.isneginf(densities.total())
    return PreparedRows(sampler, frame, flags, known, densities, dead)


def complete_rows(prepared: PreparedRows, n: int, seed: int, key_seed: int, first_row: int = 0) -> pl.DataFrame:
    """Draw `n` rows per prepared row, starting at `first_row` of the whole result; `key_seed` seeds the identifiers."""
    sampler, frame, flags, known, densities, dead = prepared
    drawn_leaves = draw_leaves(sampler.tables, known, densities, n, seed)
    completed_rows = draw_completions(
        Completion(sampler, known, frame, flags, drawn_leaves, {}, seed, key_seed, first_row)
    )
    if not dead.any():
        return completed_rows
    is_possible = pl.Series(np.repeat(~dead, n))
    given_rows = frame[np.repeat(np.arange(frame.height), n)]
    columns = {}
    for name, dtype in sampler.tables.schema.dtypes.items():
        given_values = (
            given_rows[name].cast(dtype, strict=False)
            if name in given_rows.columns
            else _nulls(name, dtype, given_rows.height)
        )
        columns[name] = completed_rows[name].zip_with(is_possible, given_values)
    return pl.DataFrame(columns)


class ConditionBlock(NamedTuple):
    """A block of rows drawn for a frame of conditions."""

    number: int
    first: int  # position of its first row in the whole result
    rows: int
    low: int  # conditions of the block: low <= row < high
    high: int


def cut_conditions(n: int, conditions: int, first: int, stop: int) -> Iterator[ConditionBlock]:
    """Yield the blocks that contain rows from `first` up to `stop`, with `n` rows per condition.

    A block contains as many whole conditions as fit; a condition with more rows than a block is split.
    """
    if n <= BLOCK_ROWS:
        block_conditions = max(1, BLOCK_ROWS // max(n, 1))
        block_size = max(block_conditions * n, 1)
        for block_number in range(first // block_size, max(-(-stop // block_size), first // block_size + 1)):
            low, high = block_number * block_conditions, min((block_number + 1) * block_conditions, conditions)
            yield ConditionBlock(block_number, low * n, (high - low) * n, low, high)
        return
    blocks_each = -(-n // BLOCK_ROWS)
    for row in range(first // n, -(-stop // n)):
        for cut in range(blocks_each):
            first_row = row * n + cut * BLOCK_ROWS
            n_rows = min(BLOCK_ROWS, n - cut * BLOCK_ROWS)
            if first_row < stop and first_row + n_rows > first:
                yield ConditionBlock(row * blocks_each + cut, first_row, n_rows, row, row + 1)


def draw_condition_block(
    sampler: Sampler, conditions: pl.DataFrame, seed: int, block: ConditionBlock, on_impossible: OnImpossible
) -> pl.DataFrame:
    """Draw the rows of one block; `conditions` are those from `block.low` up to `block.high`."""
    rows_each = block.rows // max(conditions.height, 1)
    prepared_rows = prepare_rows(sampler, conditions, on_impossible, rows_each, block.low)
    return complete_rows(prepared_rows, rows_each, block_seed(seed, block.number), seed, block.first)


def _told_exactly(frame: pl.DataFrame, given: Any, schema: Schema) -> pl.DataFrame:
    """Replace drawn values by the exact given values, for columns whose axis is coarser than their dtype."""
    alternatives = [given] if isinstance(given, Mapping) else list(given)
    for column in schema.columns:
        if column.axis is None or column.axis.lossless:
            continue
        given_conditions = [alternative[column.name] for alternative in alternatives if column.name in alternative]
        single_values = [
            value
            for choice_list in given_conditions
            for value in (choice_list if is_choices(choice_list) else [choice_list])
        ]
        single_values = [
            value for value in single_values if value is not None and not isinstance(value, tuple | Interval)
        ]
        if single_values:
            exact_values = pl.Series(single_values, dtype=column.dtype).sort()
            exact_positions, drawn_positions = (
                column.axis.to_axis(exact_values),
                column.axis.to_axis(frame[column.name]),
            )
            value_index = np.minimum(np.searchsorted(exact_positions, drawn_positions), len(exact_positions) - 1)
            restored_values = exact_values.gather(pl.Series(value_index)).zip_with(
                pl.Series(exact_positions[value_index] == drawn_positions), frame[column.name]
            )
            frame = frame.with_columns(restored_values.alias(column.name))
    return frame


def _name_unseen(frame: pl.DataFrame, schema: Schema, row: int, first: int) -> None:
    """Raise an OptionError that suggests similar levels if this row contains an unknown level."""
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
    """Return the columns for which a condition gives a single value."""
    return {name: value for name, value in given.items() if not isinstance(value, Interval) and not is_choices(value)}


def _constant(schema: Schema, name: str, value: Any, n: int) -> pl.Series:
    return pl.Series(name, [value], dtype=schema.dtypes[name], strict=False).new_from_index(0, n)


def _only_row(sampler: Sampler, given: Mapping[str, Any]) -> PreparedRows:
    """Prepare a condition of single values as a one-row frame, in which None is a known missing value."""
    schema = sampler.tables.schema
    frame = pl.DataFrame({name: _constant(schema, name, value, 1) for name, value in given.items()})
    flags = {name: np.ones(1, dtype=bool) for name in given}
    return prepare_rows(sampler, frame, "relax", BLOCK_ROWS, flags=flags)


def _relaxed(sampler: Sampler, alternatives: Sequence[Mapping[str, Any]]) -> RelaxedSource:
    """Relax the alternative that keeps the largest probability; dropped columns are filled in from the condition."""
    schema = sampler.tables.schema
    kept_part, given = possible_part(sampler.tables, alternatives)
    condition = condition_sampler(sampler, [kept_part])
    assert condition is not None
    column_conditions, constant_values = {}, {}
    for name, column_value in given.items():
        if schema.names.index(name) in kept_part or schema.variable_of(name) is None:
            continue
        column_condition = condition_sampler(sampler, parse({name: column_value}, schema))
        if column_condition is not None:
            column_conditions[name] = column_condition
        else:
            constant_values[name] = column_value if name in _scalars(given) else None
    return RelaxedSource(condition, column_conditions, constant_values)
