"""The schema as users see it: the columns of the original table, before rules transformed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from arf_dask.data.axes import FLOATS, Axis, AxisSummary, make_axis
from arf_dask.rules.relations import Relations
from arf_dask.rules.transforms import Transform
from arf_dask.schema.columns import Column, Schema
from arf_dask.typing import Kind


def user_schema(schema: Schema, relations: Relations) -> Schema:
    """Return the schema of the user's table: its columns in order, the variables that model them, and the rules."""
    if not relations.names:
        return schema
    column_ids = {name: column_id for column_id, name in enumerate(relations.names)}
    modelled_columns = {column.name: column for column in schema.columns}
    columns = tuple(_column(name, modelled_columns, relations) for name in relations.names)
    user_ids = [column_ids[relations.user_name(column.name)] for column in schema.columns]
    variables = tuple(
        replace(v, columns=tuple(user_ids[column_id] for column_id in v.columns)) for v in schema.variables
    )
    return Schema(columns, variables, schema.n_rows, schema.gates, relations.rules)


def user_column(name: str, schema: Schema, relations: Relations) -> Column:
    """Return one column of the user's table, without its variable."""
    return _column(name, {column.name: column for column in schema.columns}, relations)


def _column(name: str, modelled_columns: Mapping[str, Column], relations: Relations) -> Column:
    transform = relations.targets.get(name)
    if transform is None:
        return modelled_columns[name]
    modelled = next((modelled_columns[part] for part in transform.outputs), None)
    dtype = relations.dtypes[name]
    nulls = 0 if modelled is None else modelled.nulls
    if transform.target.is_text:
        return Column(name, dtype, _kind(transform, "categorical"), _levels(transform, modelled, dtype), nulls=nulls)
    return Column(
        name, dtype, _kind(transform, "numeric"), pl.Series([], dtype=dtype), axis=_axis(transform), nulls=nulls
    )


def _kind(transform: Transform, otherwise: Kind) -> Kind:
    return otherwise if transform.outputs else "computed"


def _levels(transform: Transform, modelled: Column | None, dtype: pl.DataType) -> pl.Series:
    """Return the levels of a text column."""
    if modelled is None:
        return pl.Series([], dtype=dtype)
    return transform.user_levels(modelled.levels.cast(pl.String)).cast(dtype, strict=False)


def _axis(transform: Transform) -> Axis | None:
    """Return the axis of the observed range; None if there is no range."""
    target = transform.target
    if target.low is None or target.high is None:
        return None
    digits = 0 if target.decimals is None else 1 << target.decimals
    if target.dtype in FLOATS:
        return make_axis(AxisSummary(float(target.low), float(target.high), digits=digits), target.dtype)
    return make_axis(AxisSummary(int(target.low), int(target.high), step=1), target.dtype)
