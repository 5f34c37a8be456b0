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
from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Comparison, Name, columns_of
from arf_dask.rules.hourless import Hourless
from arf_dask.rules.relations import Relations
from arf_dask.rules.solving import adjust, solve
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import ClockGap, Computed, Gap, Stated, expression_of
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
        redrawn_rows = _solved_again(
            _with_told(redrawn_rows, known_frame[wrong_rows]), known_frame[wrong_rows], relations
        )
        redrawn_rows = (
            _moved_bases(redrawn_rows, known_frame[wrong_rows], relations) if attempt >= PATIENCE else redrawn_rows
        )
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
        user_rows = _with_told(relations.rebuild(_with_keys(imputed_rows, tables)), implied_frame)
        user_rows = _with_told(_solved_again(user_rows, known_frame, relations), known_frame)
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
            if isinstance(transform, Computed):
                frame = _deduced(frame, transform, relations)
            elif isinstance(transform, Hourless):
                hours = transform.hours(frame.get_column(transform.target.name))
                frame = frame.with_columns(_filled_nulls(frame.get_column(transform.hour), hours))
        if frame.equals(previous_frame):
            break
    return frame


def _deduced(frame: pl.DataFrame, computed: Computed, relations: Relations) -> pl.DataFrame:
    name, inputs = computed.target.name, columns_of(computed.formula)
    formula_values = computed.rebuild(frame, None)
    frame = frame.with_columns(_filled_nulls(frame.get_column(name), formula_values))
    for column in inputs:
        solution = solve(Comparison(Name(name), "==", computed.formula), column)
        if solution is None or column in relations.targets:
            continue
        column_target = _target_of(column, relations)
        solved_values = column_target.values(column_target.formula_units(evaluate(solution, frame)))
        trial_frame = frame.with_columns(_filled_nulls(frame.get_column(column), solved_values))
        formula_agrees = computed.target.agrees(frame.get_column(name), evaluate(computed.formula, trial_frame))
        is_solved = pl.Series(formula_agrees) & frame.get_column(name).is_not_null()
        frame = frame.with_columns(
            trial_frame.get_column(column).zip_with(is_solved, frame.get_column(column)).alias(column)
        )
    return frame


def _target_of(column: str, relations: Relations) -> Target:
    return Target(column, relations.dtypes[column], relations.decimals.get(column))


def _filled_nulls(series: pl.Series, other: pl.Series) -> pl.Series:
    return series.zip_with(series.is_not_null(), other.cast(series.dtype, strict=False)).alias(series.name)


def _modelled(frame: pl.DataFrame, relations: Relations, tables: LeafTables) -> tuple[pl.DataFrame, dict[str, Flags]]:
    """Translate known values into modelled columns, null where unknown; also return which cells are known."""
    columns, flags = {}, {}
    split_columns = relations.reduce(frame, relations.parts)
    for name in tables.schema.names:
        if name in tables.schema.keys:
            continue
        if name in split_columns.columns:
            columns[name] = split_columns[name]
            flags[name] = np.asarray(columns[name].is_not_null().to_numpy())
            continue
        series = frame.get_column(name)
        transform = relations.targets.get(name)
        is_known = series.is_not_null()
        if transform is not None:
            modelled_values = transform.reduce(frame)
            assert modelled_values is not None
            expression = expression_of(transform)
            formula_values = series if expression is None else evaluate(expression, frame)
            if isinstance(transform, Gap | ClockGap):
                is_known = is_known & formula_values.is_not_null()
            elif isinstance(transform, Stated):
                modelled_values = modelled_values.zip_with(
                    formula_values.is_not_null() | series.is_null(), transform.target.units(series)
                )
            series = modelled_values
        dtype = tables.schema.dtypes[name]
        values = series.cast(dtype).alias(name)
        columns[name] = pl.Series(name, [None], dtype=dtype).new_from_index(0, len(values)).zip_with(~is_known, values)
        flags[name] = np.asarray(is_known.to_numpy())
    return pl.DataFrame(columns), flags


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
    return relations.rebuild(complete_rows(prepared_rows, n, *seeds, first_row))


def _with_told(rows: pl.DataFrame, told: pl.DataFrame) -> pl.DataFrame:
    """Overwrite rows with the exact known values."""
    return rows.with_columns(
        [
            known_values.zip_with(known_values.is_not_null(), rows.get_column(name).alias("")).alias(name)
            for name in told.columns
            for known_values in (told.get_column(name).alias(""),)
        ]
    )


def _solved_again(rows: pl.DataFrame, told: pl.DataFrame, relations: Relations) -> pl.DataFrame:
    """Solve for an unknown input in rows where a known column disagrees with its formula."""
    for transform in reversed(relations.transforms):
        name = transform.target.name
        if not isinstance(transform, Computed) or name not in told.columns:
            continue
        formula_agrees = transform.target.agrees(rows.get_column(name), evaluate(transform.formula, rows))
        is_wrong = pl.Series(~formula_agrees) & told.get_column(name).is_not_null()
        for column in columns_of(transform.formula):
            equation = Comparison(Name(name), "==", transform.formula)
            solution = solve(equation, column) or adjust(equation, column)
            if solution is None or not is_wrong.any():
                continue
            is_unknown = told.get_column(column).is_null() if column in told.columns else is_wrong
            column_target = _target_of(column, relations)
            solved_values = column_target.values(column_target.formula_units(evaluate(solution, rows)))
            is_changed = is_wrong & is_unknown & solved_values.is_not_null()
            rows = rows.with_columns(solved_values.zip_with(is_changed, rows.get_column(column)).alias(column))
            is_wrong = is_wrong & ~is_changed
    return rows


def _moved_bases(rows: pl.DataFrame, told: pl.DataFrame, relations: Relations) -> pl.DataFrame:
    """Move an unknown base next to the known column in rows that violate the minimum gap."""
    for transform in reversed(relations.transforms):
        name = transform.target.name
        if not isinstance(transform, Gap) or transform.least is None or name not in told.columns:
            continue
        if not isinstance(transform.base, Name) or transform.base.column in relations.targets:
            continue
        column, base_target = transform.base.column, _target_of(transform.base.column, relations)
        gap_units = (transform.target.units(rows.get_column(name)) - transform.base_units(rows)) * transform.sign
        is_wrong = (gap_units < transform.least).fill_null(False)
        is_unknown = told.get_column(column).is_null() if column in told.columns else is_wrong
        moved_values = base_target.values(
            transform.target.units(rows.get_column(name)) - transform.sign * transform.least
        )
        rows = rows.with_columns(moved_values.zip_with(is_wrong & is_unknown, rows.get_column(column)).alias(column))
    return rows


def _wrong(rows: pl.DataFrame, relations: Relations) -> Flags:
    """Return which rows violate a rule or have a computed column that disagrees with its formula."""
    is_wrong = relations.broken(rows, ranges=False)
    for transform in relations.transforms:
        if isinstance(transform, Computed):
            computed_values = rows.get_column(transform.target.name)
            is_wrong |= ~transform.target.agrees(computed_values, evaluate(transform.formula, rows))
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
