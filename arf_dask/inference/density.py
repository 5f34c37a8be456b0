"""Density of rows: q(x) = mean over trees of coverage(leaf) times the product of the leaf's marginals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS, nameless
from arf_dask.data.frames import is_frame, to_polars
from arf_dask.errors import DataError, ImpossibleConditionError, OptionError, unknown_column
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.conditions import (
    Conjunction,
    alternatives,
    both,
    disjoint,
    exact_columns,
    parse,
    without_values,
)
from arf_dask.inference.known_rows import KnownRows, read_rows
from arf_dask.inference.posteriors import log_probability, row_log_density
from arf_dask.schema.columns import Column, Schema
from arf_dask.typing import Flags, Floats, Missing


def log_density(tables: LeafTables, frame: pl.DataFrame, given: Any = None, missing: str = "value") -> Floats:
    """Return the log density of each row, independent of the other rows of the frame."""
    if missing not in get_args(Missing):
        raise OptionError(f'missing={missing!r}: say "value" (a null counts) or "marginal" (it is integrated out).')
    schema = tables.schema
    frame = subset(frame, schema)
    known_cells = {name: _all(frame) for name in frame.columns} if missing == "value" else not_null(frame)
    if given is None:
        return row_log_density(tables, read_rows(frame, tables, known_cells))
    if is_frame(given):
        return _given_rows(tables, frame, known_cells, condition_frame(given, schema))
    conjunctions = parse(given, schema)
    log_total = log_probability(tables, conjunctions)
    if np.isneginf(log_total):
        raise impossible(given)
    return np.asarray(row_log_density(tables, read_rows(frame, tables, known_cells), conjunctions) - log_total)


def probability(tables: LeafTables, event: Any, given: Any = None) -> float | list[float]:
    """Return the probability of an event; a list with one probability per row if `given` is a frame."""
    events = alternatives(event, tables.schema, "event", mixed=True)
    if is_frame(given):
        known_rows = condition_rows(tables, given)
        row_totals = row_log_density(tables, known_rows)
        if (impossible_rows := np.flatnonzero(np.isneginf(row_totals))).size:
            raise impossible(given, int(impossible_rows[0]))
        if any(exact_columns(conjunction) for conjunction in events):
            # A single continuous value has positive probability only in rows that fix it: evaluate row by row.
            row_results = [
                probability(tables, event, row_condition) for row_condition in conditions_of(given, tables.schema)
            ]
            return [row_result for row_result in row_results if isinstance(row_result, float)]
        return [
            float(row_result)
            for row_result in np.exp(row_log_density(tables, known_rows, disjoint(events)) - row_totals)
        ]
    conditions = [{}] if given is None else parse(given, tables.schema)
    log_total = log_probability(tables, conditions)
    if np.isneginf(log_total):
        raise impossible(given)
    joint_parts = [event_part for condition in conditions for event_part in _event_in(condition, events)]
    return float(np.exp(min(log_probability(tables, joint_parts) - log_total, 0.0))) if joint_parts else 0.0


def impossible(given: Any, row: int | None = None, first: int = 0) -> ImpossibleConditionError:
    """Return the error for a condition of probability zero; rows of a frame are numbered from `first`."""
    if row is None:
        return ImpossibleConditionError(f"given={given!r} has probability zero in this model. Widen it.")
    row_values = {
        name: value for name, value in to_polars(given).frame.row(row, named=True).items() if value is not None
    }
    return ImpossibleConditionError(
        f"given, row {first + row}: {row_values!r} has probability zero in this model. Widen it, or say "
        'on_impossible="null" or "relax" where you sample.'
    )


def check_names(frame: pl.DataFrame, schema: Schema) -> None:
    """Raise a DataError for unknown columns: a misspelt column would be silently marginalised."""
    unknown_names = [name for name in frame.columns if name not in schema.names]
    if unknown_names:
        raise DataError(
            f"{unknown_column(unknown_names[0], schema.names, 'data')} Drop what the model has not learned."
        )


def subset(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Select the model's columns from a frame and cast them to the model's dtypes."""
    names = [column.name for column in schema.columns if column.name in frame.columns]
    if not names:
        raise DataError("none of the model's columns are in the data. Give a frame with some of them.")
    return pl.DataFrame({name: fitting(frame[name], schema.columns[schema.names.index(name)]) for name in names})


def fitting(series: pl.Series, column: Column) -> pl.Series:
    """Cast values to the dtype of a column; see `fitting_to`."""
    return fitting_to(series, column.name, column.dtype)


def fitting_to(series: pl.Series, name: str, dtype: pl.DataType) -> pl.Series:
    """Cast values to a dtype (text to String); raise a DataError if that changes them, except between float types."""
    if series.dtype == dtype:
        return series
    wants_text = isinstance(dtype, pl.String | pl.Categorical | pl.Enum)
    if wants_text and isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum | pl.Null):
        return series.cast(pl.String)
    try:
        cast_values = series.cast(dtype)
        is_lossless = series.dtype == pl.Null or bool(
            (nameless(cast_values).cast(series.dtype).eq_missing(nameless(series))).all()
        )
    except pl.exceptions.PolarsError:
        is_lossless = False
    temporal_kinds = {series.dtype.is_temporal(), dtype.is_temporal()}
    has_text = isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum)
    boolean_kinds = {series.dtype == pl.Boolean, dtype == pl.Boolean}
    if series.dtype == pl.Null or (
        is_lossless and len(temporal_kinds) == 1 and len(boolean_kinds) == 1 and not wants_text and not has_text
    ):
        return cast_values
    if dtype in FLOATS and series.dtype in FLOATS:
        return cast_values
    raise DataError(f"column {name!r} is {series.dtype}, not {dtype} as in the model. Cast it first.")


def condition_frame(given: Any, schema: Schema) -> pl.DataFrame:
    """Return a frame of conditions with the model's dtypes; raise an OptionError for columns that cannot be given."""
    frame = to_polars(given).frame
    for name in frame.columns:
        if name not in schema.names:
            raise unknown_column(name, schema.names, "given")
        column = schema.columns[schema.names.index(name)]
        if column.kind == "key":
            raise OptionError(f"given: {name!r} is an identifier and not modelled. Leave it out.")
    try:
        return subset(frame, schema)
    except DataError as error:
        raise OptionError(f"given: {error}") from error


def condition_rows(tables: LeafTables, given: Any) -> KnownRows:
    """Read a frame of conditions; nulls are unknown values."""
    frame = condition_frame(given, tables.schema)
    return read_rows(frame, tables, not_null(frame))


def conditions_of(given: Any, schema: Schema) -> list[dict[str, Any]]:
    """Return the rows of a frame of conditions as dicts without nulls."""
    rows = condition_frame(given, schema).to_dicts()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def not_null(frame: pl.DataFrame) -> dict[str, Flags]:
    """Return, per column, which rows are not null."""
    return {name: nameless(frame[name]).is_not_null().to_numpy() for name in frame.columns}


def _given_rows(tables: LeafTables, frame: pl.DataFrame, known: Mapping[str, Flags], given: pl.DataFrame) -> Floats:
    """Return the log density of each row given the condition in the same row of `given`."""
    if given.height != frame.height:
        raise OptionError(
            f"given has {given.height} rows and data {frame.height}. Give one condition per row, or a dict."
        )
    conditions = not_null(given)
    joint_frame, joint_known = frame, dict(known)
    clash = np.zeros(frame.height, dtype=bool)
    for name in given.columns:
        if name not in frame.columns:
            joint_frame, joint_known[name] = joint_frame.with_columns(given[name]), conditions[name]
            continue
        values_differ = ~nameless(frame[name]).eq_missing(nameless(given[name])).to_numpy()
        clash |= values_differ & conditions[name] & known[name]
        from_given = pl.Series(conditions[name] & ~known[name])
        joint_frame = joint_frame.with_columns(given[name].zip_with(from_given, frame[name]))
        joint_known[name] = known[name] | conditions[name]
    condition_logs = row_log_density(tables, read_rows(given, tables, conditions))
    if (impossible_rows := np.flatnonzero(np.isneginf(condition_logs))).size:
        raise impossible(given, int(impossible_rows[0]))
    log_densities = row_log_density(tables, read_rows(joint_frame, tables, joint_known)) - condition_logs
    return np.where(clash, -np.inf, log_densities)


def _event_in(condition: Conjunction, events: Sequence[Conjunction]) -> list[Conjunction]:
    """Return the part of an event inside a condition. A single value counts only if the condition fixes it."""
    fixed_columns = exact_columns(condition)
    event_parts = []
    for intersection in both([condition], events):
        event_part = {
            key: allowed if key in fixed_columns else without_values(allowed) for key, allowed in intersection.items()
        }
        if not any(allowed.empty for allowed in event_part.values()):
            event_parts.append(event_part)
    return disjoint(event_parts)


def _all(frame: pl.DataFrame) -> Flags:
    return np.ones(frame.height, dtype=bool)
