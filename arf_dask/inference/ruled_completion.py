"""Completion of rows subject to rules: fill in the values that formulas imply, then draw the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.frames import to_polars
from arf_dask.errors import DataError, OptionError, unknown_column
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.density import condition_frame, fitting_to, impossible
from arf_dask.inference.forge import Sampler
from arf_dask.inference.impute import impute
from arf_dask.inference.sources import (
    ConditionBlock,
    block_seed,
    complete_rows,
    draw_condition_block,
    prepare_rows,
    sample_conditions,
)
from arf_dask.rules.relations import Relations
from arf_dask.rules.transforms.base import nulls_where
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.typing import Flags, OnImpossible

ATTEMPTS = 30
PATIENCE = 10  # attempts after which the base of an inequality is moved next to the known column
PASSES = 3  # maximum number of passes over the formulas


def user_condition_frame(given: Any, tables: LeafTables) -> pl.DataFrame:
    """Return a frame of conditions with the user's dtypes; raise an OptionError for columns that cannot be given."""
    if not tables.relations.transforms:
        return condition_frame(given, tables.schema)
    frame, dtypes = to_polars(given).frame, tables.dtypes
    for name in frame.columns:
        if name not in dtypes:
            raise unknown_column(name, dtypes, "given")
        if name in tables.schema.keys:
            raise OptionError(f"given: {name!r} is an identifier and not modelled. Leave it out.")
    try:
        return user_frame(frame, tables)
    except DataError as error:
        raise OptionError(f"given: {error}") from error


def user_frame(frame: pl.DataFrame, tables: LeafTables) -> pl.DataFrame:
    """Select the user's columns from a frame and cast them to the user's dtypes."""
    names = [name for name in tables.dtypes if name in frame.columns]
    if not names:
        raise DataError("none of the model's columns are in the data. Give a frame with some of them.")
    return pl.DataFrame(
        {n: fitting_to(frame[n], n, tables.dtypes[n]).cast(tables.dtypes[n], strict=False) for n in names}
    )


def sample_ruled_conditions(
    sampler: Sampler, given: Any, n: int, seed: int, on_impossible: OnImpossible
) -> pl.DataFrame:
    """Draw `n` rows for every row of a frame of conditions, in order, subject to the rules."""
    if not sampler.tables.relations:
        return sample_conditions(sampler, given, n, seed, on_impossible)
    frame = user_condition_frame(given, sampler.tables)
    return complete_ruled(sampler, frame, n, (seed, seed), 0, on_impossible)


def draw_ruled_block(
    sampler: Sampler, conditions: pl.DataFrame, seed: int, block: ConditionBlock, on_impossible: OnImpossible
) -> pl.DataFrame:
    """Draw one block for a frame of conditions; `conditions` are its rows from `block.low` up to `block.high`."""
    if not sampler.tables.relations:
        return draw_condition_block(sampler, conditions, seed, block, on_impossible)
    rows_each = block.rows // max(conditions.height, 1)
    seeds = block_seed(seed, block.number), seed
    return complete_ruled(sampler, conditions, rows_each, seeds, block.first, on_impossible, block.low)


def complete_ruled(
    sampler: Sampler,
    frame: pl.DataFrame,
    n: int,
    seeds: tuple[int, int],
    first_row: int,
    on_impossible: OnImpossible,
    first: int = 0,
) -> pl.DataFrame:
    """Draw `n` rows for every row of the user's frame, in which null means unknown.

    Args:
        sampler: the model.
        frame: the known values, in the user's columns.
        n: the number of rows to draw per row of `frame`.
        seeds: the seed of the draws and the seed of the identifiers.
        first_row: the position of the first row in the whole result.
        on_impossible: what to do with conditions that cannot be satisfied.
        first: the number of the first condition, for error messages.
    """
    relations = sampler.tables.relations
    implied_frame = deduce(frame, relations)
    known_frame = frame[np.repeat(np.arange(frame.height), n)]
    completed_rows = _drawn(sampler, implied_frame, n, seeds, first_row, on_impossible, first)
    completed_rows = _with_told(completed_rows, known_frame)
    wrong_rows = np.flatnonzero(_wrong(completed_rows, relations))
    key_columns = sampler.tables.schema.keys
    for attempt in range(ATTEMPTS):
        if not len(wrong_rows):
            return completed_rows
        attempt_seed = int(generator(seeds[0], Stage.RULES, attempt).integers(2**62))
        redrawn_rows = _drawn(
            sampler, implied_frame[wrong_rows // n], 1, (attempt_seed, seeds[1]), first_row, "relax", first
        )
        known_rows = known_frame[wrong_rows]
        redrawn_rows = _with_told(redrawn_rows, known_rows)
        redrawn_rows = _repaired(redrawn_rows, known_rows, relations, move_bases=attempt >= PATIENCE)
        redrawn_rows = redrawn_rows.with_columns([completed_rows.get_column(name)[wrong_rows] for name in key_columns])
        is_valid = ~_wrong(redrawn_rows, relations)
        row_order = np.arange(completed_rows.height)
        row_order[wrong_rows[is_valid]] = completed_rows.height + np.flatnonzero(is_valid)
        completed_rows, wrong_rows = pl.concat([completed_rows, redrawn_rows])[row_order], wrong_rows[~is_valid]
    if len(wrong_rows) and on_impossible == "raise":
        raise impossible(frame, int(wrong_rows[0] // n), first)
    return completed_rows


def impute_ruled(sampler: Sampler, frame: pl.DataFrame, draws: int | None, seed: int) -> list[pl.DataFrame]:
    """Fill the missing values of the model's columns, with `draws` random completions, or with expectations if None."""
    tables = sampler.tables
    relations = tables.relations
    if not relations:
        return impute(sampler, frame, draws, seed)
    known_frame = user_frame(frame, tables)
    implied_frame = deduce(known_frame, relations)
    modelled_frame = _modelled(implied_frame, relations, tables)[0]
    names = [name for name in known_frame.columns if name not in tables.schema.keys]
    filled_frames = []
    for draw_index, imputed_rows in enumerate(impute(sampler, modelled_frame, draws, seed)):
        user_rows = _with_told(relations.inverse(_with_keys(imputed_rows, tables)), implied_frame)
        user_rows = _with_told(_repaired(user_rows, known_frame, relations), known_frame)
        wrong_rows = np.flatnonzero(relations.broken(user_rows, ranges=False) & ~_broken_before(known_frame, relations))
        if len(wrong_rows):
            draw_seeds = int(generator(seed, Stage.RULES, draw_index).integers(2**62)), seed
            redrawn_rows = complete_ruled(sampler, known_frame[wrong_rows], 1, draw_seeds, 0, "relax")
            row_order = np.arange(user_rows.height)
            row_order[wrong_rows] = user_rows.height + np.arange(len(wrong_rows))
            user_rows = pl.concat([user_rows, redrawn_rows.select(user_rows.columns)])[row_order]
        filled_frames.append(_fill_nulls(frame, user_rows, names))
    return filled_frames


def deduce(frame: pl.DataFrame, relations: Relations) -> pl.DataFrame:
    """Fill in the values that formulas imply: computed columns, and the only unknown input of a known one."""
    missing_names = [name for name in relations.names if name not in frame.columns]
    blank_columns = {
        name: pl.Series([None], dtype=relations.dtypes[name]).new_from_index(0, frame.height) for name in missing_names
    }
    frame = pl.DataFrame(
        {name: blank_columns[name] if name in blank_columns else frame[name] for name in relations.names}
    )
    for _ in range(PASSES):
        previous_frame = frame
        for transform in relations.transforms:
            frame = transform.deduce(frame, relations)
        if frame.equals(previous_frame):
            break
    return frame


def _modelled(frame: pl.DataFrame, relations: Relations, tables: LeafTables) -> tuple[pl.DataFrame, dict[str, Flags]]:
    """Translate known values into modelled columns, null where unknown; also return which cells are known."""
    dtypes = tables.schema.dtypes
    columns: dict[str, pl.Series] = {}
    known_rows: dict[str, pl.Series] = {}
    for name in relations.names:
        if name in tables.schema.keys:
            continue
        transform = relations.targets.get(name)
        if transform is None:
            parts, is_known = {name: frame.get_column(name)}, frame.get_column(name).is_not_null()
        else:
            parts, is_known = transform.forward_known(frame)
        columns |= {
            part: nulls_where(~is_known, series.cast(dtypes[part]).alias(part)) for part, series in parts.items()
        }
        known_rows |= dict.fromkeys(parts, is_known)
    names = [name for name in tables.schema.names if name in columns]
    flags = {name: np.asarray(known_rows[name].to_numpy()) for name in names}
    return pl.DataFrame({name: columns[name] for name in names}), flags


def _with_keys(rows: pl.DataFrame, tables: LeafTables) -> pl.DataFrame:
    """Add missing identifier columns to modelled rows, filled with nulls."""
    missing_names = [name for name in tables.schema.names if name not in rows.columns]
    blank_columns = [
        pl.Series(n, [None], dtype=tables.schema.dtypes[n]).new_from_index(0, rows.height) for n in missing_names
    ]
    return rows.with_columns(blank_columns)


def _drawn(
    sampler: Sampler,
    implied: pl.DataFrame,
    n: int,
    seeds: tuple[int, int],
    first_row: int,
    on_impossible: OnImpossible,
    first: int,
) -> pl.DataFrame:
    relations = sampler.tables.relations
    modelled_frame, known_flags = _modelled(implied, relations, sampler.tables)
    prepared_rows = prepare_rows(sampler, modelled_frame, on_impossible, n, first, known_flags)
    return relations.inverse(complete_rows(prepared_rows, n, *seeds, first_row))


def _with_told(rows: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Overwrite rows with the exact known values."""
    return rows.with_columns(
        [
            known_values.zip_with(known_values.is_not_null(), rows.get_column(name).alias("")).alias(name)
            for name in told.columns
            for known_values in (told.get_column(name).alias(""),)
        ]
    )


def _repaired(
    rows: pl.DataFrame, told: pl.DataFrame, relations: Relations, *, move_bases: bool = False
) -> pl.DataFrame:
    """Change unknown values in rows where known values contradict a transform."""
    for transform in reversed(relations.transforms):
        rows = transform.repair(rows, told, relations, move_bases=move_bases)
    return rows


def _wrong(rows: pl.DataFrame, relations: Relations) -> Flags:
    """Return which rows violate a rule or have a computed column that disagrees with its formula."""
    is_wrong = relations.broken(rows, ranges=False)
    for transform in relations.transforms:
        is_wrong |= transform.contradicts(rows)
    return is_wrong


def _broken_before(told: pl.DataFrame, relations: Relations) -> Flags:
    """Return which rows already violate a rule by their known cells; these are left unchanged."""
    return relations.broken(deduce(told, relations), ranges=False)


def _fill_nulls(frame: pl.DataFrame, whole: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Return the caller's frame with nulls replaced by the values of `whole`."""
    filled_columns = []
    for name in names:
        own_values, new_values = frame.get_column(name).alias(""), whole.get_column(name).alias("")
        if own_values.null_count():
            dtype = new_values.dtype if own_values.dtype == pl.Null else own_values.dtype
            filled_columns.append(
                own_values.cast(dtype).zip_with(own_values.is_not_null(), new_values.cast(dtype)).alias(name)
            )
    return frame.with_columns(filled_columns)
