"""The density of rows: q(x) = mean over trees of coverage(leaf) times the product of the leaf's marginals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from arf_dask.axis import FLOATS, nameless
from arf_dask.conditions import Piece, alternatives, both, disjoint, parse, without_values
from arf_dask.errors import DataError, ImpossibleConditionError, OptionError, unknown_column
from arf_dask.evidence import Evidence, read_evidence
from arf_dask.frames import is_frame, take
from arf_dask.query import log_probability, row_log_density
from arf_dask.schema import Column, Flags, Floats, Schema
from arf_dask.tables import Tables


def log_density(tables: Tables, frame: pl.DataFrame, given: Any = None, missing: str = "value") -> Floats:
    """One number per row, whatever the batch."""
    if missing not in ("value", "marginal"):
        raise OptionError(f'missing={missing!r}: say "value" (a null counts) or "marginal" (it is integrated out).')
    schema = tables.schema
    frame = subset(frame, schema)
    known = {name: _all(frame) for name in frame.columns} if missing == "value" else not_null(frame)
    if given is None:
        return row_log_density(tables, read_evidence(frame, schema, known))
    if is_frame(given):
        return _given_rows(tables, frame, known, condition_frame(given, schema))
    pieces = parse(given, schema)
    total = log_probability(tables, pieces)
    if np.isneginf(total):
        raise impossible(given)
    return np.asarray(row_log_density(tables, read_evidence(frame, schema, known), pieces) - total)


def probability(tables: Tables, event: Any, given: Any = None) -> float | list[float]:
    """The probability of an event, one for each row where `given` is a frame."""
    events = alternatives(event, tables.schema, "event", mixed=True)
    if is_frame(given):
        evidence = condition_evidence(tables, given)
        totals = row_log_density(tables, evidence)
        if (dead := np.flatnonzero(np.isneginf(totals))).size:
            raise impossible(given, int(dead[0]))
        if any(_fixed(piece) for piece in events):
            # A value has a probability only in rows that fix it too: one by one.
            alone = [probability(tables, event, one) for one in conditions_of(given, tables.schema)]
            return [p for p in alone if isinstance(p, float)]
        return [float(p) for p in np.exp(row_log_density(tables, evidence, disjoint(events)) - totals)]
    conditions = [{}] if given is None else parse(given, tables.schema)
    total = log_probability(tables, conditions)
    if np.isneginf(total):
        raise impossible(given)
    joint = [piece for condition in conditions for piece in _event_in(condition, events)]
    return float(np.exp(min(log_probability(tables, joint) - total, 0.0))) if joint else 0.0


def impossible(given: Any, row: int | None = None, first: int = 0) -> ImpossibleConditionError:
    """The error for a condition that the model gives probability zero; a frame's first row is number `first`."""
    if row is None:
        return ImpossibleConditionError(f"given={given!r} has probability zero in this model. Widen it.")
    what = {name: value for name, value in take(given).frame.row(row, named=True).items() if value is not None}
    return ImpossibleConditionError(
        f"given, row {first + row}: {what!r} has probability zero in this model. Widen it, or say "
        'on_impossible="null" or "relax" where you sample.'
    )


def check_names(frame: pl.DataFrame, schema: Schema) -> None:
    """Raise a DataError for columns that the model does not have: a slip of the pen would be integrated out."""
    odd = [name for name in frame.columns if name not in schema.names]
    if odd:
        raise DataError(f"{unknown_column(odd[0], schema.names, 'data')} Drop what the model has not learned.")


def subset(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """The columns of a frame that the model has, with its dtypes."""
    names = [column.name for column in schema.columns if column.name in frame.columns]
    if not names:
        raise DataError("none of the model's columns are in the data. Give a frame with some of them.")
    return pl.DataFrame({name: fitting(frame[name], schema.columns[schema.names.index(name)]) for name in names})


def fitting(series: pl.Series, column: Column) -> pl.Series:
    """The values in the column's own dtype, where that says the same; an error where it does not."""
    if series.dtype == column.dtype:
        return series
    text = isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum)
    if text and isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum | pl.Null):
        return series.cast(pl.String)
    try:
        cast = series.cast(column.dtype)
        same = series.dtype == pl.Null or bool((nameless(cast).cast(series.dtype).eq_missing(nameless(series))).all())
    except pl.exceptions.PolarsError:
        same = False
    kinds = {series.dtype.is_temporal(), column.dtype.is_temporal()}
    words = isinstance(series.dtype, pl.String | pl.Categorical | pl.Enum)
    bools = {series.dtype == pl.Boolean, column.dtype == pl.Boolean}
    if series.dtype == pl.Null or (same and len(kinds) == 1 and len(bools) == 1 and not text and not words):
        return cast
    if column.dtype in FLOATS and series.dtype in FLOATS:
        return cast
    raise DataError(f"column {column.name!r} is {series.dtype}, not {column.dtype} as in the model. Cast it first.")


def condition_frame(given: Any, schema: Schema) -> pl.DataFrame:
    """A frame of conditions with the model's dtypes; errors for columns that are no conditions."""
    frame = take(given).frame
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


def condition_evidence(tables: Tables, given: Any) -> Evidence:
    """What the rows of a frame of conditions say; nulls are free."""
    frame = condition_frame(given, tables.schema)
    return read_evidence(frame, tables.schema, not_null(frame))


def conditions_of(given: Any, schema: Schema) -> list[dict[str, Any]]:
    """The rows of a frame of conditions as dicts of what each knows."""
    rows = condition_frame(given, schema).to_dicts()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def not_null(frame: pl.DataFrame) -> dict[str, Flags]:
    """Per column: where it has a value."""
    return {name: nameless(frame[name]).is_not_null().to_numpy() for name in frame.columns}


def _given_rows(tables: Tables, frame: pl.DataFrame, known: Mapping[str, Flags], given: pl.DataFrame) -> Floats:
    """The log density of each row given the condition in the same row."""
    if given.height != frame.height:
        raise OptionError(
            f"given has {given.height} rows and data {frame.height}. Give one condition per row, or a dict."
        )
    conditions = not_null(given)
    joint, flags = frame, dict(known)
    clash = np.zeros(frame.height, dtype=bool)
    for name in given.columns:
        if name not in frame.columns:
            joint, flags[name] = joint.with_columns(given[name]), conditions[name]
            continue
        differs = ~nameless(frame[name]).eq_missing(nameless(given[name])).to_numpy()
        clash |= differs & conditions[name] & known[name]
        fill = pl.Series(conditions[name] & ~known[name])
        joint = joint.with_columns(given[name].zip_with(fill, frame[name]))
        flags[name] = known[name] | conditions[name]
    totals = row_log_density(tables, read_evidence(given, tables.schema, conditions))
    if (dead := np.flatnonzero(np.isneginf(totals))).size:
        raise impossible(given, int(dead[0]))
    logs = row_log_density(tables, read_evidence(joint, tables.schema, flags)) - totals
    return np.where(clash, -np.inf, logs)


def _event_in(condition: Piece, events: Sequence[Piece]) -> list[Piece]:
    """The part of an event inside a condition, in pieces. A single value counts only if the condition fixes it."""
    fixed = _fixed(condition)
    parts = []
    for piece in both([condition], events):
        part = {place: allowed if place in fixed else without_values(allowed) for place, allowed in piece.items()}
        if not any(allowed.empty for allowed in part.values()):
            parts.append(part)
    return disjoint(parts)


def _fixed(piece: Piece) -> frozenset[int]:
    return frozenset(place for place, allowed in piece.items() if allowed.exact)


def _all(frame: pl.DataFrame) -> Flags:
    return np.ones(frame.height, dtype=bool)
