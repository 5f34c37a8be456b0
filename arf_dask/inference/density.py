"""Density of modelled rows: q(x) = mean over trees of coverage(leaf) times the product of the leaf's marginals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from arf_dask.data.axes import nameless
from arf_dask.data.value_sets import Box
from arf_dask.errors import DataError, unknown_column
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.conditions import alternatives, disjoint, exact_columns, parse, without_values
from arf_dask.inference.fitting import fitting_to
from arf_dask.inference.known_rows import read_rows
from arf_dask.inference.posteriors import log_probability, row_log_density
from arf_dask.schema.columns import Schema
from arf_dask.typing import Flags, Floats


class ZeroProbabilityError(Exception):
    """A condition, or a row of a frame of conditions, that has probability zero."""

    def __init__(self, row: int | None = None) -> None:
        super().__init__(row)
        self.row = row  # None: the condition itself


def log_density(
    tables: LeafTables, frame: pl.DataFrame, known: Mapping[str, Flags], boxes: Sequence[Box] = ({},)
) -> Floats:
    """Return the log density of the known cells of each row together with the event that it lies in one of the boxes.

    Args:
        tables: the model.
        frame: rows in modelled columns.
        known: per column of the frame, which cells are known; the others are integrated out.
        boxes: sets of modelled columns.
    """
    return row_log_density(tables, read_rows(frame, tables, known), parse(boxes, tables.schema))


def log_region_probability(tables: LeafTables, boxes: Sequence[Box]) -> float:
    """Return the log probability, or log density if single values are fixed, of a union of boxes."""
    return log_probability(tables, parse(boxes, tables.schema))


def region_share(tables: LeafTables, boxes: Sequence[Box], given: Sequence[Box]) -> float:
    """Return the probability of a union of boxes inside another union, given the other.

    A single value of a density has probability zero, unless the condition fixes its column.
    """
    conditions = parse(given, tables.schema)
    log_total = log_probability(tables, conditions)
    if np.isneginf(log_total):
        raise ZeroProbabilityError
    fixed_columns = exact_columns(conditions[0])
    parts = []
    for conjunction in alternatives(boxes, tables.schema, "event", mixed=True):
        part = {key: one if key in fixed_columns else without_values(one) for key, one in conjunction.items()}
        if not any(allowed.empty for allowed in part.values()):
            parts.append(part)
    return float(np.exp(min(log_probability(tables, disjoint(parts)) - log_total, 0.0))) if parts else 0.0


def check_names(frame: pl.DataFrame, schema: Schema) -> None:
    """Raise a DataError for unknown columns: a misspelt column would be silently marginalised."""
    unknown_names = [name for name in frame.columns if name not in schema.positions]
    if unknown_names:
        raise DataError(
            f"{unknown_column(unknown_names[0], schema.names, 'data')} Drop what the model has not learned."
        )


def subset(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Select the model's columns from a frame and cast them to the model's dtypes."""
    names = [column.name for column in schema.columns if column.name in frame.columns]
    if not names:
        raise DataError("none of the model's columns are in the data. Give a frame with some of them.")
    dtypes = schema.dtypes
    return pl.DataFrame({name: fitting_to(frame.get_column(name), name, dtypes[name]) for name in names})


def not_null(frame: pl.DataFrame) -> dict[str, Flags]:
    """Return, per column, which rows are not null."""
    return {name: nameless(frame.get_column(name)).is_not_null().to_numpy() for name in frame.columns}


def all_known(frame: pl.DataFrame) -> dict[str, Flags]:
    """Return, per column, that all rows are known: a null is a value."""
    return dict.fromkeys(frame.columns, np.ones(frame.height, dtype=bool))
