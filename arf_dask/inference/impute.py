"""Imputation: fill the nulls of new rows given the known values of each row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.axes import nameless
from arf_dask.forest.tables import ColumnTables, LeafTables, VariableTables
from arf_dask.inference.completion import Completion, draw_completions, draw_leaves
from arf_dask.inference.conditions import Conjunction, everything
from arf_dask.inference.density import not_null, subset
from arf_dask.inference.expectations import mean_places, set_known_states
from arf_dask.inference.forge import Sampler
from arf_dask.inference.known_rows import KnownRows, Rows, forget, read_rows
from arf_dask.inference.posteriors import Posterior, RowDensities, row_densities, row_posteriors
from arf_dask.inference.relaxing import relax_rows
from arf_dask.inference.state_ranges import find_ranges
from arf_dask.schema.columns import FIRST_LEVEL, NAN, NULL, Column, Schema, Variable
from arf_dask.schema.encoding import decode_column
from arf_dask.typing import Flags, Floats, Ints


def impute(
    sampler: Sampler, frame: pl.DataFrame, draws: int | None, seed: int, *, fill_all: bool
) -> list[pl.DataFrame]:
    """Fill the missing values of the model's columns, with `draws` random completions, or with expectations if None.

    Cells that can only be null given the known ones stay null, unless `fill_all`.
    """
    tables = sampler.tables
    known_frame = subset(frame, tables.schema)
    flags = {
        name: known_flags
        for name, known_flags in not_null(known_frame).items()
        if tables.schema.variable_of(name) is not None
    }
    return _imputed(sampler, frame, known_frame, flags, draws, seed, fill_all=fill_all)


class RowPosteriors(NamedTuple):
    """What the known cells of rows say about the missing ones."""

    known: KnownRows
    densities: RowDensities
    posteriors: dict[int, Posterior]  # by variable index


def _imputed(
    sampler: Sampler,
    frame: pl.DataFrame,
    known_frame: pl.DataFrame,
    flags: dict[str, Flags],
    draws: int | None,
    seed: int,
    *,
    fill_all: bool,
) -> list[pl.DataFrame]:
    """Fill the cells that are not flagged as known."""
    tables = sampler.tables
    if all(known_flags.all() for known_flags in flags.values()):
        return [frame] * (1 if draws is None else draws)
    conjunction = _values_only(tables.schema, known_frame.columns)
    known = read_rows(known_frame, tables, flags)
    wanted = _incomplete_rows(tables, known, flags)
    densities, variable_posteriors = (
        row_posteriors(tables, known, wanted, conjunction)
        if draws is None
        else (row_densities(tables, known, conjunction, unknown_only=True), {})
    )
    only_nulls = {} if fill_all else _only_nulls(tables, known_frame, flags, densities, conjunction)
    if only_nulls:
        # What can only be null is known.
        flags = {name: known_flags | only_nulls.get(name, False) for name, known_flags in flags.items()}
        return _imputed(sampler, frame, known_frame, flags, draws, seed, fill_all=fill_all)
    if draws is None:
        posteriors_of_rows = RowPosteriors(known, densities, variable_posteriors)
        return [_filled(frame, _expected(tables, posteriors_of_rows, wanted, flags, conjunction), flags)]
    known, densities = relax_rows(tables, known, densities, conjunction)
    drawn_leaves = draw_leaves(tables, known, densities, draws, seed, conjunction)
    ranges = find_ranges(tables, conjunction)
    completed_rows = draw_completions(
        Completion(sampler, known, known_frame, flags, drawn_leaves, ranges, seed, key_seed=seed, first_row=0)
    )
    first_draws = np.arange(frame.height) * draws
    return [
        _filled(frame, {name: completed_rows[name][first_draws + draw_index] for name in flags}, flags)
        for draw_index in range(draws)
    ]


def _only_nulls(
    tables: LeafTables,
    frame: pl.DataFrame,
    flags: dict[str, Flags],
    densities: RowDensities,
    conjunction: Conjunction,
) -> dict[str, Flags]:
    """Flag the missing cells that can only be null given the known cells of their row, such as the age of a guest.

    Args:
        tables: the model.
        frame: the rows.
        flags: per column, which cells are known.
        densities: the densities of the rows, with a value in every missing cell.
        conjunction: the condition that missing cells have values.
    """
    places = np.flatnonzero(np.isneginf(densities.total()))
    if not len(places):
        return {}
    known = read_rows(frame[places], tables, {name: known_flags[places] for name, known_flags in flags.items()})
    is_possible = ~np.isneginf(row_densities(tables, known, {}).total())
    only_nulls = {}
    for position, allowed in conjunction.items():
        name = tables.schema.columns[position].name
        without_value = np.isneginf(row_densities(tables, known, {position: allowed}, unknown_only=True).total())
        cells = places[without_value & is_possible & ~flags[name][places]]
        if len(cells):
            only_nulls[name] = np.isin(np.arange(frame.height), cells)
    return only_nulls


def _values_only(schema: Schema, names: list[str]) -> Conjunction:
    """Return the condition that missing cells of these columns receive a value, neither null nor NaN."""
    conjunction: Conjunction = {}
    for position, column in enumerate(schema.columns):
        if column.name not in names or column.kind not in ("categorical", "numeric"):
            continue
        if not (column.nulls or column.nans):
            continue
        allowed = everything(column)
        allowed.tokens[NULL] = column.n_points == 0 and not _has_line(schema, position)
        allowed.tokens[NAN] = False
        conjunction[position] = allowed
    return conjunction


def _has_line(schema: Schema, position: int) -> bool:
    return any(variable.columns[0] == position and bool(variable.interval.any()) for variable in schema.variables)


def _filled(frame: pl.DataFrame, values: dict[str, pl.Series], flags: dict[str, Flags]) -> pl.DataFrame:
    """Return the caller's frame with missing cells replaced by `values`."""
    filled_columns = []
    for name, value in values.items():
        if not flags[name].all():
            own_values, value = nameless(frame[name]), nameless(value)
            dtype = value.dtype if own_values.dtype == pl.Null else own_values.dtype
            filled_columns.append(
                own_values.cast(dtype).zip_with(pl.Series(flags[name]), value.cast(dtype)).alias(name)
            )
    return frame.with_columns(filled_columns)


def _incomplete_rows(tables: LeafTables, known: KnownRows, flags: dict[str, Flags]) -> dict[int, Rows]:
    """Return the rows with missing cells by variable index, for variables with missing cells."""
    wanted: dict[int, Rows] = {}
    for table in tables.variables:
        missing_flags = [~flags[column.name] for column in table.columns if column.name in flags]
        has_missing = np.logical_or.reduce([np.zeros(known.n_rows, dtype=bool), *missing_flags])
        if has_missing.any():
            wanted[table.index] = np.flatnonzero(has_missing)
    return wanted


def _expected(
    tables: LeafTables,
    found: RowPosteriors,
    wanted: dict[int, Rows],
    flags: dict[str, Flags],
    conjunction: Conjunction,
) -> dict[str, pl.Series]:
    """Return means of numeric columns and most probable values of others, for columns with missing cells."""
    known, variable_posteriors = _relaxed(tables, found, wanted, conjunction)
    set_known_states(tables, known, variable_posteriors, wanted)
    values: dict[str, pl.Series] = {}
    for index, rows in wanted.items():
        table, partly_known = tables.variables[index], known.variables[index].pattern[rows] >= 0
        for member, column in enumerate(table.columns):
            if column.name in flags and not flags[column.name].all():
                best_values = _best(ColumnTables(table, member), variable_posteriors[index], partly_known)
                values[column.name] = _spread(best_values, rows, known.n_rows)
    return values


def _relaxed(
    tables: LeafTables, found: RowPosteriors, wanted: dict[int, Rows], conjunction: Conjunction
) -> tuple[KnownRows, dict[int, Posterior]]:
    """Return the posteriors of missing cells, with impossible rows relaxed."""
    known, densities, variable_posteriors = found
    impossible_rows = np.flatnonzero(np.isneginf(densities.total()))
    if not len(impossible_rows):
        return known, variable_posteriors
    known = relax_rows(tables, known, densities, conjunction)[0]
    none_freed = np.zeros((len(impossible_rows), len(tables.variables)), dtype=bool)
    positions = {index: np.flatnonzero(np.isin(rows, impossible_rows)) for index, rows in wanted.items()}
    relaxed_rows = {index: np.searchsorted(impossible_rows, rows[positions[index]]) for index, rows in wanted.items()}
    _, relaxed_posteriors = row_posteriors(
        tables, forget(known, impossible_rows, none_freed, tables), relaxed_rows, conjunction
    )
    for index, posterior in relaxed_posteriors.items():
        for full_table, relaxed_table in zip(variable_posteriors[index], posterior, strict=True):
            full_table[positions[index]] = relaxed_table
    return known, variable_posteriors


def _best(of_column: ColumnTables, posterior: Posterior, is_partly_known: Flags) -> pl.Series:
    """Return the values to impute: the mean of numeric columns, the most probable state of others.

    All member columns of a variable are read from the same state, as are those in which it is partly known.
    """
    table, column = of_column.table, of_column.column
    if table.is_number:
        return _at_places(table, column, mean_places(of_column, posterior))
    variable = table.variable
    best_state = posterior.states.argmax(axis=1).astype(np.int32)
    axis_means = None
    if table.lead.kind == "numeric" and variable.is_line:
        axis_means = mean_places(ColumnTables(table, 0), posterior)
        uses_mean = ~is_partly_known & ~np.isnan(axis_means)
        best_state = np.where(uses_mean, _state_at(variable, axis_means), best_state).astype(np.int32)
        axis_means = np.where(uses_mean, axis_means, _mean_inside(variable, posterior, best_state))
    tokens = of_column.tokens[best_state]
    if of_column.member > 0 or axis_means is None:
        return decode_column(column, tokens, None)
    # Impute the mean itself, whether or not a spike or an interval contains it.
    point_values = (
        column.points[np.clip(tokens - FIRST_LEVEL, 0, max(len(column.points) - 1, 0))]
        if len(column.points)
        else axis_means
    )
    return _at_places(
        table, column, np.where(is_partly_known & ~variable.interval[best_state], point_values, axis_means)
    )


def _at_places(table: VariableTables, column: Column, at: Floats) -> pl.Series:
    """Decode axis values; NaN becomes null."""
    tokens = np.where(np.isnan(at), NULL, column.between).astype(np.int32)
    return decode_column(column, tokens, np.nan_to_num(at), open_ends=table.support == "open")


def _state_at(variable: Variable, places: Floats) -> Ints:
    """Return the interval state that contains each number (state 0 if there are no intervals)."""
    if not variable.interval.any():
        return np.zeros(len(places), dtype=np.int32)
    return variable.interval_states(np.nan_to_num(places))


def _mean_inside(variable: Variable, posterior: Posterior, state: Ints) -> Floats:
    """Return the mean within each row's interval state; NaN for points."""
    interval_means = np.full(len(state), np.nan)
    interval_rows = np.flatnonzero(variable.interval[state])
    state_shares = posterior.states[interval_rows, state[interval_rows]]
    state_moments = posterior.moments[interval_rows, state[interval_rows] - variable.first_interval]
    interval_means[interval_rows] = np.where(
        state_shares > 0, state_moments / np.where(state_shares > 0, state_shares, 1.0), np.nan
    )
    return interval_means


def _spread(value: pl.Series, rows: Rows, height: int) -> pl.Series:
    """Expand the values of `rows` to a column of the given height, null elsewhere."""
    value_index = np.full(height, -1, dtype=np.int64)
    value_index[rows] = np.arange(len(rows))
    gather_index = (
        pl.Series(value_index).set(pl.Series(value_index < 0), None)
        if (value_index < 0).any()
        else pl.Series(value_index)
    )
    return nameless(value).gather(gather_index).alias(value.name)
