"""Queries on models with rules: exact if no rule-determined column is involved, otherwise by fixed-seed simulation.

Queries about columns without rules, under conditions on such columns, are computed exactly. All others are estimated
from `DRAWS` rows drawn with a fixed seed: repeating a query gives the same result, with a standard error of at most
0.001 of the column's range (of 1, for probabilities).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.axes import is_numeric
from arf_dask.data.frames import is_frame
from arf_dask.errors import OptionError, unknown_column
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.conditions import is_choices
from arf_dask.inference.density import impossible, log_density, probability
from arf_dask.inference.expectations import expect
from arf_dask.inference.forge import BLOCK_ROWS, Sampler
from arf_dask.inference.quantiles import checked_levels, cumulative, quantile
from arf_dask.inference.rule_conditions import allowed, check_columns, listed
from arf_dask.inference.ruled_completion import complete_ruled, deduce, user_condition_frame, user_frame
from arf_dask.inference.ruled_sources import make_row_source
from arf_dask.inference.sources import Block, sample_conditions
from arf_dask.rules.relations import Relations
from arf_dask.typing import Flags, Floats, Missing

DRAWS = 4 * BLOCK_ROWS  # standard error of a proportion: at most 0.001
ROW_DRAWS = 4_096  # draws per row of a frame of conditions
DENSITY_DRAWS = 256  # draws per row whose density requires integration
SEED = 0


def ruled_log_density(sampler: Sampler, frame: pl.DataFrame, given: Any, missing: Missing) -> Floats:
    """Return the log density per row: computed columns contribute nothing, but a row that contradicts one gets -inf."""
    tables, relations = sampler.tables, sampler.tables.relations
    if not relations.transforms:
        return log_density(tables, frame, given, missing)
    known_frame = user_frame(frame, tables)
    if given is not None and not is_frame(given) and _concerns(listed(given), relations):
        log_share = np.log(max(_share_of(sampler, listed(given)), 1e-300))
        row_fits = _fits(known_frame, listed(given))
        return np.where(row_fits, ruled_log_density(sampler, frame, None, missing) - log_share, -np.inf)
    if is_frame(given):
        given = _modelled_conditions(given, tables)
    modelled_rows, is_wrong, needs_integral = _reduced(known_frame, relations, tables, missing)
    log_densities = (
        np.where(is_wrong, -np.inf, log_density(tables, modelled_rows, given, missing))
        if modelled_rows.width
        else _zeros(is_wrong)
    )
    integral_rows = np.flatnonzero(needs_integral & ~is_wrong)
    if len(integral_rows):
        log_densities = log_densities.copy()
        log_densities[integral_rows] += _log_integrals(sampler, known_frame[integral_rows])
    return log_densities


def ruled_probability(sampler: Sampler, event: Any, given: Any) -> Any:
    """Return the probability of an event; a list with one probability per row if `given` is a frame."""
    relations = sampler.tables.relations
    if not relations:
        return probability(sampler.tables, event, given)
    event_list = listed(event)
    check_columns(event_list, relations, "event")
    is_plain = given is None or (not is_frame(given) and not _concerns(listed(given), relations))
    if not _concerns(event_list, relations) and (is_plain or _plain_frame(given, relations)):
        return probability(sampler.tables, event, given)
    return _over_conditions(sampler, given, lambda rows: float(_fits(rows, event_list).mean()))


def ruled_expect(
    sampler: Sampler, columns: Sequence[str] | None, given: Any, level_probabilities: bool
) -> pl.DataFrame:
    """One row per condition: the mean of numeric columns, the most probable level of others (or all levels)."""
    tables, relations = sampler.tables, sampler.tables.relations
    asked_names = _asked_names(tables, columns)
    exact_given = given is None or _plain_condition(given, relations)
    drawn_names = [name for name in asked_names if not exact_given or name in relations.affected]
    if not drawn_names:
        return expect(tables, columns if not relations.transforms else asked_names, given, level_probabilities)
    if level_probabilities:
        return _level_shares(sampler, asked_names, given)
    mean_frames = _over_conditions(
        sampler, given, lambda rows: rows.select([_mean(rows.get_column(n)) for n in drawn_names])
    )
    answers = pl.concat(mean_frames) if isinstance(mean_frames, list) else mean_frames
    exact_names = [name for name in asked_names if name not in drawn_names]
    if exact_names:
        answers = pl.concat([answers, expect(tables, exact_names, given, False)], how="horizontal")
    return pl.DataFrame({name: answers.get_column(name) for name in asked_names})


def ruled_quantile(sampler: Sampler, column: str, q: Any, given: Any) -> Any:
    """Return the smallest value with cumulative probability at least q; a list for a list of q, per row of a frame."""
    relations = sampler.tables.relations
    if _plain_condition(given, relations) and column not in relations.affected:
        return quantile(sampler.tables, column, q, given)
    levels = checked_levels(q)

    def answer(rows: pl.DataFrame) -> Any:
        values = _numbers(rows, column).sort()
        last_index = len(values) - 1
        value_index = [min(max(int(np.ceil(level * len(values) - 1e-9)) - 1, 0), last_index) for level in levels]
        quantile_values = [values[index] if len(values) else None for index in value_index]
        return quantile_values if is_choices(q) else quantile_values[0]

    return _over_conditions(sampler, given, answer)


def ruled_cumulative(sampler: Sampler, column: str, x: Any, given: Any) -> Any:
    """Return the probability of numbers up to x; a list for a list of x, per row of a frame."""
    relations = sampler.tables.relations
    if _plain_condition(given, relations) and column not in relations.affected:
        return cumulative(sampler.tables, column, x, given)
    limit_values = list(x) if is_choices(x) else [x]

    def answer(rows: pl.DataFrame) -> Any:
        drawn_values = _numbers(rows, column)
        shares_below = [
            float(allowed(drawn_values, (None, limit), f"x: {column!r}").mean()) if len(drawn_values) else 0.0
            for limit in limit_values
        ]
        return shares_below if is_choices(x) else shares_below[0]

    return _over_conditions(sampler, given, answer)


# Draws.


def draw_fixed(sampler: Sampler, given: Any, n: int = DRAWS) -> pl.DataFrame:
    """Draw rows under a condition with a fixed seed."""
    source = make_row_source(sampler, given, "raise")
    blocks = [
        Block(block_number, block_number * BLOCK_ROWS, min(BLOCK_ROWS, n))
        for block_number in range(-(-n // BLOCK_ROWS))
    ]
    return pl.concat([source.draw(SEED, block) for block in blocks])


def _over_conditions(sampler: Sampler, given: Any, answer: Any) -> Any:
    """Apply `answer` to fixed-seed draws; return a list with one result per row if `given` is a frame."""
    if not is_frame(given):
        return answer(draw_fixed(sampler, given))
    frame = user_condition_frame(given, sampler.tables)
    row_answers = []
    for row in range(frame.height):
        one_condition = frame[row : row + 1]
        if sampler.tables.relations:
            drawn_rows = complete_ruled(sampler, one_condition, ROW_DRAWS, (SEED, SEED), 0, "raise", row)
        else:
            drawn_rows = sample_conditions(sampler, one_condition, ROW_DRAWS, SEED, "raise")
        row_answers.append(answer(drawn_rows))
    return row_answers


def _share_of(sampler: Sampler, given: Sequence[Mapping[str, Any]]) -> float:
    match_share = float(_fits(draw_fixed(sampler, None), given).mean())
    if match_share == 0:
        raise impossible(given)
    return match_share


def _numbers(rows: pl.DataFrame, column: str) -> pl.Series:
    """Return the numbers of a column without nulls and NaN."""
    if column not in rows.columns:
        raise unknown_column(column, rows.columns, "columns")
    if not is_numeric(rows.schema[column]):
        raise OptionError(f"columns: {column!r} has levels, not numbers. Use probability.")
    values = rows.get_column(column).alias("").drop_nulls()
    return values.drop_nans() if values.dtype.is_float() else values


def _mean(series: pl.Series) -> pl.Series:
    """Return the mean of a numeric or temporal column, or the most frequent level of any other."""
    if series.dtype.is_numeric():
        return pl.Series(series.name, [series.cast(pl.Float64).drop_nans().mean()], dtype=pl.Float64)
    if series.dtype.is_temporal():
        physical_mean = series.to_physical().cast(pl.Float64).mean()
        value = None if physical_mean is None else round(float(physical_mean))  # type: ignore[arg-type]
        physical_series = pl.Series(series.name, [value], dtype=pl.Int64)
        return (
            physical_series.cast(pl.Int32).cast(pl.Date)
            if series.dtype == pl.Date
            else physical_series.cast(series.dtype)
        )
    level_counts = series.alias("value").value_counts(sort=True)
    return (
        level_counts.sort(["count", pl.col("value").cast(pl.String)], descending=[True, False])["value"]
        .head(1)
        .alias(series.name)
    )


def _level_shares(sampler: Sampler, names: list[str], given: Any) -> pl.DataFrame:
    def table(rows: pl.DataFrame) -> pl.DataFrame:
        level_frames = []
        for name in names:
            if not is_numeric(rows.schema[name]):
                level_counts = (
                    rows.get_column(name)
                    .cast(pl.String)
                    .alias("level")
                    .value_counts(normalize=True, name="probability")
                )
                level_frames.append(
                    level_counts.sort("level").select(pl.lit(name).alias("column"), "level", "probability")
                )
        return (
            pl.concat(level_frames)
            if level_frames
            else pl.DataFrame(schema={"column": pl.String, "level": pl.String, "probability": pl.Float64})
        )

    level_tables: list[pl.DataFrame] | pl.DataFrame = _over_conditions(sampler, given, table)
    if isinstance(level_tables, pl.DataFrame):
        return level_tables
    return pl.concat(
        [
            level_table.with_columns(row=pl.lit(row_number, pl.UInt32))
            for row_number, level_table in enumerate(level_tables)
        ]
    )


# Conditions.


def _fits(rows: pl.DataFrame, given: Sequence[Mapping[str, Any]]) -> Flags:
    """Return which rows satisfy one of the alternatives, ignoring columns that the rows do not have."""
    any_match = np.zeros(rows.height, dtype=bool)
    for alternative in given:
        row_matches = np.ones(rows.height, dtype=bool)
        for name, wanted_value in alternative.items():
            if name in rows.columns:
                row_matches &= allowed(rows.get_column(name).alias(""), wanted_value, f"event: {name!r}")
        any_match |= row_matches
    return any_match


def _concerns(given: Sequence[Mapping[str, Any]], relations: Relations) -> bool:
    return any(name in relations.affected for alternative in given for name in alternative)


def _plain_frame(given: Any, relations: Relations) -> bool:
    return is_frame(given) and not any(name in relations.affected for name in given.columns)


def _plain_condition(given: Any, relations: Relations) -> bool:
    if given is None or not relations:
        return True
    return _plain_frame(given, relations) if is_frame(given) else not _concerns(listed(given), relations)


def _asked_names(tables: LeafTables, columns: Sequence[str] | None) -> list[str]:
    known_dtypes = tables.dtypes
    if columns is None:
        return [name for name in known_dtypes if name not in tables.schema.keys]
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in known_dtypes:
            raise unknown_column(name, known_dtypes, "columns")
        if name in tables.schema.keys:
            raise OptionError(f"columns: {name!r} is an identifier and not modelled. Leave it out.")
    return names


# Densities.


def _zeros(like: Flags) -> Floats:
    return np.where(like, -np.inf, 0.0)


def _reduced(
    told: pl.DataFrame, relations: Relations, tables: LeafTables, missing: Missing
) -> tuple[pl.DataFrame, Flags, Flags]:
    """Return the modelled columns, which rows violate a formula, and which rows require numerical integration."""
    full_frame = deduce(told, relations) if missing == "marginal" else told
    is_wrong, needs_integral = np.zeros(told.height, dtype=bool), np.zeros(told.height, dtype=bool)
    columns = {}
    for name in told.columns:
        transform = relations.targets.get(name)
        if transform is None:
            columns[name] = full_frame.get_column(name)
            continue
        resolved = transform.resolve(told, full_frame, null_is_value=missing == "value")
        is_wrong |= resolved.contradictory
        needs_integral |= resolved.unresolved
        columns |= {part: series.cast(tables.schema.dtypes[part]) for part, series in resolved.columns.items()}
    return pl.DataFrame(columns), is_wrong, needs_integral


def _log_integrals(sampler: Sampler, told: pl.DataFrame) -> Floats:
    """Estimate the log density of the rule-determined columns of each row, averaged over draws of unknown columns.

    The draws are conditional on the known modelled columns of the row.
    """
    tables, relations = sampler.tables, sampler.tables.relations
    plain_columns = told.select(
        [pl.nth(position) for position, name in enumerate(told.columns) if not _is_integrated(name, relations)]
    )
    log_means = np.empty(told.height)
    for row in range(told.height):
        known_row = plain_columns[row : row + 1] if plain_columns.width else pl.DataFrame({"": [None]}).select([])
        drawn_rows = (
            complete_ruled(sampler, known_row, DENSITY_DRAWS, (SEED, SEED), 0, "relax")
            if plain_columns.width
            else draw_fixed(sampler, None, DENSITY_DRAWS)
        )
        log_means[row] = _log_mean_match(tables, drawn_rows, told[row : row + 1])
    return log_means


def _modelled_conditions(given: Any, tables: LeafTables) -> pl.DataFrame:
    """Translate the grids of a frame of conditions into modelled columns."""
    relations, frame = tables.relations, user_condition_frame(given, tables)
    columns = [name for name in frame.columns if not _is_integrated(name, relations)]
    other_names = [name for name in frame.columns if name not in columns]
    if other_names:
        raise OptionError(
            f"given: {other_names[0]!r} is decided by a rule, and a frame of conditions cannot fix it for a density. "
            "Subtract the log density of the condition from that of the whole rows."
        )
    return relations.forward(frame, relations.modelled_names(columns))


def _is_integrated(name: str, relations: Relations) -> bool:
    """Whether the density of a column is estimated from draws: grids are part of the modelled density."""
    return name in relations.targets and not relations.targets[name].one_to_one


def _log_mean_match(tables: LeafTables, rows: pl.DataFrame, told: pl.DataFrame) -> float:
    """Return the log density of the known rule-determined values among draws; half a draw is counted if none match."""
    relations = tables.relations
    row_matches = np.ones(rows.height, dtype=bool)
    window_volume = 1.0
    for name, transform in relations.targets.items():
        if not _is_integrated(name, relations) or name not in told.columns or told.get_column(name)[0] is None:
            continue
        drawn_units = transform.target.units(rows.get_column(name))
        known_units = transform.target.units(told.get_column(name))[0]
        if transform.target.is_text or not transform.target.is_float:
            row_matches &= (drawn_units == known_units).fill_null(False).to_numpy()
            continue
        drawn_deviation = float(drawn_units.cast(pl.Float64).std() or 1.0)  # type: ignore[arg-type]
        half_window = max(0.1 * drawn_deviation, float(transform.target.unit))
        row_matches &= ((drawn_units - known_units).abs() <= half_window).fill_null(False).to_numpy()
        window_volume *= 2 * half_window
    return float(np.log(max(row_matches.mean(), 0.5 / rows.height) / window_volume))
