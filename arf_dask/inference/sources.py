"""Sources of modelled rows, with or without a condition, and the handling of impossible conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, get_args

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Box, ValueSet, column_values
from arf_dask.errors import OptionError
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.completion import Completion, draw_completions, draw_leaves
from arf_dask.inference.conditional import ConditionSampler, condition_sampler, forge_given
from arf_dask.inference.conditions import parse
from arf_dask.inference.density import ZeroProbabilityError, not_null
from arf_dask.inference.forge import BLOCK_ROWS, Sampler, forge_block
from arf_dask.inference.known_rows import KnownRows, read_rows
from arf_dask.inference.posteriors import RowDensities, row_densities
from arf_dask.inference.relaxing import possible_part, relax_rows
from arf_dask.runtime.disk import machine_memory
from arf_dask.runtime.forks import check_not_forked
from arf_dask.runtime.seeds import Stage, generator
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
    low: int = 0  # conditions of the block, with a frame of conditions: low <= row < high
    high: int = 0


class Source(Protocol):
    """A source of rows whose blocks can be drawn independently, in any order and in any process."""

    def draw(self, seed: int, block: Block) -> pl.DataFrame: ...


def cut_blocks(n: int, first: int = 0, stop: int | None = None) -> Iterator[Block]:
    """Yield the blocks of `n` rows that contain rows from `first` up to `stop`; the block size is fixed."""
    stop = n if stop is None else stop
    for block_number in range(first // BLOCK_ROWS, max(-(-stop // BLOCK_ROWS), first // BLOCK_ROWS + 1)):
        first_row = block_number * BLOCK_ROWS
        yield Block(block_number, first_row, min(BLOCK_ROWS, n - first_row))


def cut_conditions(n: int, conditions: int, first: int, stop: int) -> Iterator[Block]:
    """Yield the blocks that contain rows from `first` up to `stop`, with `n` rows per condition.

    A block contains as many whole conditions as fit; a condition with more rows than a block is split.
    """
    if n <= BLOCK_ROWS:
        block_conditions = max(1, BLOCK_ROWS // max(n, 1))
        block_size = max(block_conditions * n, 1)
        for block_number in range(first // block_size, max(-(-stop // block_size), first // block_size + 1)):
            low, high = block_number * block_conditions, min((block_number + 1) * block_conditions, conditions)
            yield Block(block_number, low * n, (high - low) * n, low, high)
        return
    blocks_each = -(-n // BLOCK_ROWS)
    for row in range(first // n, -(-stop // n)):
        for cut in range(blocks_each):
            first_row = row * n + cut * BLOCK_ROWS
            n_rows = min(BLOCK_ROWS, n - cut * BLOCK_ROWS)
            if first_row < stop and first_row + n_rows > first:
                yield Block(row * blocks_each + cut, first_row, n_rows, row, row + 1)


def make_source(sampler: Sampler, boxes: Sequence[Box], *, relax: bool = False) -> Source:
    """Return a source of modelled rows inside a union of boxes of modelled columns.

    Args:
        sampler: the model.
        boxes: the alternatives; an empty box has no condition.
        relax: whether to relax a condition of probability zero, instead of raising a ZeroProbabilityError.
    """
    if any(not box for box in boxes):
        return FreeSource(sampler)
    tables = sampler.tables
    condition = condition_sampler(sampler, parse(boxes, tables.schema))
    if condition is not None:
        return RegionSource(condition, boxes)
    if not relax or not boxes:
        raise ZeroProbabilityError
    if len(boxes) == 1 and all(wanted.is_single for wanted in boxes[0].values()):
        return CompletedSource(_only_row(sampler, boxes[0]))
    return _relaxed(sampler, boxes)


class FreeSource(NamedTuple):
    """Unconditional rows."""

    sampler: Sampler

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        return forge_block(self.sampler, block.rows, seed, block.number, block.first)


class RegionSource(NamedTuple):
    """Rows under a possible condition."""

    condition: ConditionSampler
    boxes: Sequence[Box]

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        rows = forge_given(self.condition, block.rows, seed, block.number, block.first)
        return _with_exact_points(rows, self.boxes, self.condition.sampler.tables)


class NullSource(NamedTuple):
    """Rows for an impossible condition: its single values, and nulls elsewhere."""

    dtypes: Mapping[str, pl.DataType]
    box: Box

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        nulls = {name: _nulls(name, dtype, block.rows) for name, dtype in self.dtypes.items()}
        return pl.DataFrame(nulls | single_values(self.box, block.rows))


class RelaxedSource(NamedTuple):
    """Rows for an impossible condition: drawn under its possible part, with the dropped columns filled in."""

    condition: ConditionSampler
    drawn: Mapping[str, ConditionSampler]  # columns that are drawn separately, each under its own condition
    fixed: Box  # columns with a constant value: that of a single value, else null

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        draw_arguments = (block.rows, seed, block.number, block.first)
        rows = forge_given(self.condition, *draw_arguments)
        filled_columns = [
            forge_given(column_condition, *draw_arguments)[name] for name, column_condition in self.drawn.items()
        ]
        constants = {name: _nulls(name, rows.schema[name], block.rows) for name in self.fixed}
        constants |= single_values(self.fixed, block.rows)
        return rows.with_columns(filled_columns + list(constants.values()))


class CompletedSource(NamedTuple):
    """Rows for an impossible combination of single values, completed after relaxing it."""

    prepared: PreparedRows

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        return complete_rows(self.prepared, block.rows, block_seed(seed, block.number), seed, block.first)


class PreparedRows(NamedTuple):
    """Rows of a frame of conditions, prepared for completion."""

    sampler: Sampler
    frame: pl.DataFrame
    flags: Mapping[str, Flags]  # per column: which rows are known
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
    flags: Mapping[str, Flags] | None = None,
) -> PreparedRows:
    """Prepare the rows of a frame of conditions on modelled columns for `n` draws each.

    Args:
        sampler: the model.
        frame: the conditions.
        on_impossible: what to do with impossible rows.
        n: the number of draws per row, which determines whether pair weights are kept.
        flags: per column, which rows are known; by default, those that are not null.
    """
    tables, flags = sampler.tables, not_null(frame) if flags is None else flags
    known = read_rows(frame, tables, flags)
    # Keep pair weights if there are enough draws to visit most tree batches again.
    densities = row_densities(tables, known, {}, keep=4 * n >= len(tables.batch_trees))
    dead = np.isneginf(densities.total())
    if dead.any() and on_impossible == "raise":
        raise ZeroProbabilityError(int(np.flatnonzero(dead)[0]))
    if dead.any() and on_impossible == "relax":
        known, densities = relax_rows(tables, known, densities)
        dead = np.isneginf(densities.total())
    return PreparedRows(sampler, frame, flags, known, densities, dead)


def complete_rows(prepared: PreparedRows, n: int, seed: int, key_seed: int, first_row: int = 0) -> pl.DataFrame:
    """Draw `n` rows per prepared row, starting at `first_row` of the whole result; `key_seed` seeds the identifiers."""
    sampler, frame, flags, known, densities, dead = prepared
    drawn_leaves = draw_leaves(sampler.tables, known, densities, n, seed)
    completed_rows = draw_completions(
        Completion(sampler, known, frame, dict(flags), drawn_leaves, {}, seed, key_seed, first_row)
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


def _with_exact_points(frame: pl.DataFrame, boxes: Sequence[Box], tables: LeafTables) -> pl.DataFrame:
    """Replace drawn values by the single values of a condition, in columns whose axis is coarser than their dtype."""
    for column in tables.schema.columns:
        if column.axis is None or column.axis.lossless:
            continue
        points = [point for box in boxes if column.name in box for point in box[column.name].points]
        if points:
            exact_values = column_values(sorted(points), column.dtype)
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


def _nulls(name: str, dtype: pl.DataType, n: int) -> pl.Series:
    return pl.Series(name, [None], dtype=dtype).new_from_index(0, n)


def single_values(box: Box, n: int) -> dict[str, pl.Series]:
    """Return the columns of a box that have a single value, with that value `n` times."""
    return {name: wanted.single(n).alias(name) for name, wanted in box.items() if wanted.is_single}


def _only_row(sampler: Sampler, box: Box) -> PreparedRows:
    """Prepare a box of single values as a one-row frame, in which null is a known missing value."""
    frame = pl.DataFrame(single_values(box, 1))
    return prepare_rows(sampler, frame, "relax", BLOCK_ROWS, {name: np.ones(1, dtype=bool) for name in box})


def _relaxed(sampler: Sampler, boxes: Sequence[Box]) -> RelaxedSource:
    """Relax the box that keeps the largest probability; dropped columns are filled in from the condition."""
    schema = sampler.tables.schema
    kept_part, box = possible_part(sampler.tables, boxes)
    condition = condition_sampler(sampler, [kept_part])
    assert condition is not None
    column_conditions: dict[str, ConditionSampler] = {}
    fixed: dict[str, ValueSet] = {}
    for name, wanted in box.items():
        if schema.positions[name] in kept_part or schema.variable_of(name) is None:
            continue
        column_condition = condition_sampler(sampler, parse([{name: wanted}], schema))
        if column_condition is not None:
            column_conditions[name] = column_condition
        else:
            fixed[name] = wanted
    return RelaxedSource(condition, column_conditions, fixed)
