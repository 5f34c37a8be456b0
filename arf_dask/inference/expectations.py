"""Expected values of columns, computed from the posteriors of their variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS, nameless
from arf_dask.data.value_sets import Box
from arf_dask.forest.tables import ColumnTables, LeafTables
from arf_dask.inference.conditions import parse
from arf_dask.inference.density import ZeroProbabilityError, not_null
from arf_dask.inference.known_rows import KnownRows, Rows, read_rows
from arf_dask.inference.posteriors import Posterior, log_probability, posteriors, row_posteriors
from arf_dask.schema.columns import FIRST_LEVEL, Column
from arf_dask.schema.encoding import decode_column
from arf_dask.typing import Floats

Conditions = Sequence[Box] | pl.DataFrame  # a union of boxes, or one condition per row: null means unknown


class ConditionPosteriors(NamedTuple):
    """Posteriors by variable index, with one row per condition, and the values fixed by conditions."""

    of_variable: dict[int, Posterior]
    fixed: pl.DataFrame | None  # the frame of conditions; null means unknown
    n_rows: int


def expect(tables: LeafTables, names: list[str], given: Conditions, *, level_probabilities: bool) -> pl.DataFrame:
    """One row per condition: the mean of numeric columns, the most probable level of others (or all levels)."""
    posterior_set = condition_posteriors(tables, names, given)
    if level_probabilities:
        level_table = _level_table(tables, names, posterior_set)
        return level_table if isinstance(given, pl.DataFrame) else level_table.drop("row")
    series = {}
    for name in names:
        of_column = tables.column_tables(name)
        if of_column is None:
            series[name] = pl.Series(name, [None] * posterior_set.n_rows, dtype=tables.schema.dtypes[name])
            continue
        expected_values = _expected(of_column, posterior_set)
        if posterior_set.fixed is not None and name in posterior_set.fixed.columns:
            expected_values = _fill(expected_values, posterior_set.fixed[name])
        series[name] = expected_values
    return pl.DataFrame(series)


def condition_posteriors(tables: LeafTables, names: Sequence[str], given: Conditions) -> ConditionPosteriors:
    """Return the posteriors of the variables that contain the given columns."""
    modelled_columns = (tables.column_tables(name) for name in names)
    wanted_variables = sorted(
        {column_table.table.index for column_table in modelled_columns if column_table is not None}
    )
    if isinstance(given, pl.DataFrame):
        known_rows = read_rows(given, tables, not_null(given))
        wanted_rows = dict.fromkeys(wanted_variables, np.arange(known_rows.n_rows))
        densities, variable_posteriors = row_posteriors(tables, known_rows, wanted_rows)
        if (impossible_rows := np.flatnonzero(np.isneginf(densities.total()))).size:
            raise ZeroProbabilityError(int(impossible_rows[0]))
        set_known_states(tables, known_rows, variable_posteriors, wanted_rows)
        return ConditionPosteriors(variable_posteriors, given, known_rows.n_rows)
    conjunctions = parse(given, tables.schema)
    if np.isneginf(log_probability(tables, conjunctions)):
        raise ZeroProbabilityError
    return ConditionPosteriors(posteriors(tables, conjunctions, wanted_variables), None, 1)


def set_known_states(
    tables: LeafTables, known: KnownRows, found: Mapping[int, Posterior], wanted: Mapping[int, Rows]
) -> None:
    """Set known states to probability one, in place: columns derived from a numeric lead column need it."""
    for index, posterior in found.items():
        if tables.variables[index].is_number:
            continue
        rows, known_variable = wanted[index], known.variables[index]
        for pattern_index, pattern in enumerate(known_variable.patterns):
            if pattern.groups is not None:
                continue
            row_positions = np.flatnonzero(known_variable.pattern[rows] == pattern_index)
            known_states = pattern.states(known_variable.entry[rows[row_positions]])
            posterior.states[row_positions[known_states >= 0], known_states[known_states >= 0]] = 1.0


def token_shares(of_column: ColumnTables, posterior: Posterior) -> Floats:
    """Return the probabilities (row, token) of the tokens of a column."""
    tokens = of_column.tokens
    token_probabilities = np.zeros((len(posterior.states), int(tokens.max()) + 1))
    np.add.at(token_probabilities.T, tokens, posterior.states.T)
    return token_probabilities


def mean_places(of_column: ColumnTables, posterior: Posterior) -> Floats:
    """Return the mean axis value per row, given that there is a number; NaN if that is impossible."""
    if of_column.table.is_number:
        number_mass, moment_sum = posterior.states[:, 0], posterior.moments[:, 0]
    else:
        tokens, column = of_column.tokens, of_column.column
        is_point = (tokens >= FIRST_LEVEL) & (tokens < column.between)
        number_mass = posterior.states[:, tokens >= FIRST_LEVEL].sum(axis=1)
        moment_sum = posterior.states[:, is_point] @ column.points[tokens[is_point] - FIRST_LEVEL]
        if of_column.member == 0:
            moment_sum = moment_sum + posterior.moments.sum(axis=1)
    return np.where(number_mass > 0, moment_sum / np.where(number_mass > 0, number_mass, 1.0), np.nan)


def _expected(of_column: ColumnTables, found: ConditionPosteriors) -> pl.Series:
    column, posterior = of_column.column, found.of_variable[of_column.table.index]
    if column.kind == "categorical":
        level_shares = token_shares(of_column, posterior)[:, FIRST_LEVEL:]
        has_level = level_shares.sum(axis=1) > 0 if level_shares.shape[1] else np.zeros(found.n_rows, dtype=bool)
        best_tokens = (
            np.where(has_level, level_shares.argmax(axis=1) + FIRST_LEVEL, 0)
            if level_shares.shape[1]
            else np.zeros(found.n_rows)
        )
        return decode_column(column, best_tokens.astype(np.int32), None)
    return mean_values(mean_places(of_column, posterior), column)


def mean_values(places: Floats, column: Column) -> pl.Series:
    """Convert mean axis values to floats, or to the column's dtype for dates, times and durations."""
    axis = column.axis
    assert axis is not None
    is_missing = np.isnan(places)
    axis_values = np.where(is_missing, 0.0, places)
    if not axis.grid:
        values = pl.Series(column.name, np.ldexp(axis_values, axis.exponent))
    else:
        whole_steps = np.floor(axis_values)
        physical_values = [axis.origin + int(whole_step) * axis.step for whole_step in whole_steps]
        if column.dtype.is_temporal():
            exact_values = [
                physical_value + round(axis.step * float(step_fraction))
                for physical_value, step_fraction in zip(physical_values, axis_values - whole_steps, strict=True)
            ]
            values = _temporal(exact_values, column)
        else:
            decimal_scale = 10.0 ** (column.dtype.scale if isinstance(column.dtype, pl.Decimal) else 0)
            numbers = [
                (physical_value * 2**axis.shift + axis.step * float(fraction)) / decimal_scale
                for physical_value, fraction in zip(physical_values, axis_values - whole_steps, strict=True)
            ]
            values = pl.Series(column.name, numbers, dtype=pl.Float64)
    return values.set(pl.Series(is_missing), None) if is_missing.any() else values


def _temporal(physical: list[int], column: Column) -> pl.Series:
    kind = pl.Int32 if column.dtype == pl.Date else pl.Int64
    return pl.Series(column.name, physical, dtype=kind).cast(column.dtype)


def _fill(value: pl.Series, fixed: pl.Series) -> pl.Series:
    fixed_values = nameless(fixed).cast(value.dtype)
    # NaN is not a number and has no mean.
    fixed_values = fixed_values.fill_nan(None) if value.dtype in FLOATS else fixed_values
    return fixed_values.zip_with(fixed_values.is_not_null(), nameless(value)).alias(value.name)


def _level_table(tables: LeafTables, names: list[str], found: ConditionPosteriors) -> pl.DataFrame:
    """One row per (row, column, level) with its probability; level null stands for missing values."""
    column_frames = []
    for name in names:
        of_column = tables.column_tables(name)
        if of_column is None or of_column.column.kind != "categorical":
            continue
        column, level_shares = of_column.column, token_shares(of_column, found.of_variable[of_column.table.index])
        level_tokens = [
            token for token in range(level_shares.shape[1]) if token >= FIRST_LEVEL or (token == 0 and column.nulls)
        ]
        level_labels = decode_column(column, np.array(level_tokens, dtype=np.int32), None).cast(pl.String)
        column_frames.append(
            pl.DataFrame(
                {
                    "row": np.repeat(np.arange(found.n_rows, dtype=np.uint32), len(level_tokens)),
                    "column": [name] * (found.n_rows * len(level_tokens)),
                    "level": level_labels.to_list() * found.n_rows,
                    "probability": level_shares[:, level_tokens].ravel(),
                },
                schema_overrides={"level": pl.String},
            )
        )
    result_schema = {"row": pl.UInt32, "column": pl.String, "level": pl.String, "probability": pl.Float64}
    return pl.concat([pl.DataFrame(schema=result_schema), *column_frames])
