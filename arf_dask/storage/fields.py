"""Write and parse the fields of `model.json`: options, rounds, columns and their dtypes.

Files are untrusted input: every field must have its declared type, and only known dtypes are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, get_args, get_type_hints

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.axes import FLOATS, Axis
from arf_dask.data.keys import KeyShape
from arf_dask.data.stored_fields import parse_fields, require
from arf_dask.errors import ModelFormatError
from arf_dask.forest.tables import LeafTables
from arf_dask.schema.columns import Column
from arf_dask.typing import Kind

MODEL_JSON = "model.json"
BAD_INPUT = (Exception, pl.exceptions.PanicException)  # a Polars panic is not an Exception

_WHOLE = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128)]
_PLAIN = ["Boolean", "String", "Null", "Date", "Time", "Float16", "Float32", "Float64", *_WHOLE]
PLAIN_DTYPES: dict[str, pl.DataType] = {name: getattr(pl, name)() for name in _PLAIN}
_UNITS = ("ms", "us", "ns")
_ZONE = re.compile(r"[A-Za-z0-9+_/-]{1,64}")
_PHYSICAL: dict[str, Any] = {"UInt8": pl.UInt8, "UInt16": pl.UInt16, "UInt32": pl.UInt32}
_COUNTS = {"nulls": int, "nans": int}
_COLUMN = {"name": str, "dtype": list, "kind": str, **_COUNTS, "axis": dict | None, "key": dict | None}


def describe(tables: LeafTables) -> dict[str, Any]:
    """Return the content of `model.json`: every part of a model that is not stored as a table."""
    schema = tables.schema
    round_rows = [(int(round_.round), float(round_.accuracy), int(round_.leaves)) for round_ in tables.rounds]
    return {
        "n_rows": int(schema.n_rows),
        "family": tables.family,
        "support": tables.support,
        "rounds": [
            dict(zip(("round", "accuracy", "leaves"), round_values, strict=True)) for round_values in round_rows
        ],
        "gates": [int(gate) for gate in schema.gates],
        "columns": [_describe_column(column) for column in schema.columns],
        "variables": [
            {
                "columns": [int(column_index) for column_index in table.variable.columns],
                "first_bin": int(table.variable.first_bin),
                "strength": float(table.strength),
            }
            for table in tables.variables
        ],
    }


def parse_column(data: Any, index: int, number: NDArray[np.float64], text: list[str | None]) -> Column:
    """Rebuild a column from its entry in `model.json` and its levels or spikes in `levels.parquet`."""
    fields = parse_fields(data, _COLUMN, MODEL_JSON, f"column {index}")
    where = f"column {fields['name'][:40]!r}"
    require(fields["kind"] in get_args(Kind), MODEL_JSON, f"{where}: unknown kind {fields['kind'][:40]!r}")
    dtype, is_number = parse_dtype(fields["dtype"], where), fields["kind"] == "numeric"
    axis, key = fields["axis"], fields["key"]
    if axis is not None:
        axis = Axis(**parse_fields(axis, get_type_hints(Axis), MODEL_JSON, f"{where}: axis"))
    if key is not None:
        key = _parse_key(key, where)
    points = number if is_number else np.empty(0)
    in_numbers = not is_number and dtype in FLOATS
    levels = pl.Series(number).cast(dtype) if in_numbers else _read_levels(text, dtype, where)
    missing_counts = {name: fields[name] for name in _COUNTS}
    return Column(fields["name"], dtype, fields["kind"], levels, points, axis, key, **missing_counts)


def level_values(column: Column) -> tuple[pl.Series, pl.Series]:
    """Return (number, text) of every level or spike: floats as numbers, everything else as exact text."""
    levels = column.levels
    if column.kind != "numeric" and levels.dtype in FLOATS:
        return levels.cast(pl.Float64), _nulls(len(levels), pl.String())
    text = _level_text(levels) if len(levels) else _nulls(len(column.points), pl.String())
    number = pl.Series(column.points, dtype=pl.Float64)
    return (number if len(number) else _nulls(len(text), pl.Float64())), text


def describe_dtype(dtype: pl.DataType) -> list[Any]:
    """Return a dtype as plain JSON.

    >>> describe_dtype(pl.Datetime("us", "Europe/Berlin")), describe_dtype(pl.Enum(["a", "b"]))
    (['Datetime', 'us', 'Europe/Berlin'], ['Enum', ['a', 'b']])
    """
    match dtype:
        case pl.Enum():
            return ["Enum", dtype.categories.to_list()]
        case pl.Categorical():
            categories = dtype.categories
            return ["Categorical", categories.name(), categories.namespace(), str(categories.physical())]
        case pl.Decimal():
            return ["Decimal", 38 if dtype.precision is None else dtype.precision, dtype.scale]
        case pl.Datetime():
            return ["Datetime", dtype.time_unit, dtype.time_zone]
        case pl.Duration():
            return ["Duration", dtype.time_unit]
        case _:
            return [str(dtype)]


def parse_dtype(described: list[Any], where: str) -> pl.DataType:
    """Return the dtype that `describe_dtype` turned into JSON."""
    dtype: pl.DataType | None = None
    with suppress(*BAD_INPUT):
        dtype = _parse_dtype(described)
    require(dtype is not None, MODEL_JSON, f"{where}: unknown type {str(described)[:80]}")
    assert dtype is not None
    return dtype


def _parse_dtype(described: list[Any]) -> pl.DataType | None:
    match described:
        case ["Enum", list(names)] if all(isinstance(name, str) for name in names):
            return pl.Enum(names)
        case ["Categorical", str(name), str(namespace), str(physical)]:
            return pl.Categorical(pl.Categories(name, namespace, _PHYSICAL[physical]) if name else None)
        case ["Decimal", int(precision), int(scale)] if 0 <= scale <= precision <= 38 and precision:
            return pl.Decimal(precision, scale)
        case ["Datetime", unit, None] if unit in _UNITS:
            return pl.Datetime(unit)
        case ["Datetime", unit, str(zone)] if unit in _UNITS and _ZONE.fullmatch(zone):
            # The conversion raises for an unknown time zone; constructing the dtype does not.
            pl.Series([0]).cast(pl.Datetime("us", "UTC")).dt.convert_time_zone(zone)
            return pl.Datetime(unit, zone)
        case ["Duration", unit] if unit in _UNITS:
            return pl.Duration(unit)
        case [str(name)]:
            return PLAIN_DTYPES[name]
    return None


def _describe_column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "dtype": describe_dtype(column.dtype),
        "kind": column.kind,
        **{name: int(getattr(column, name)) for name in _COUNTS},
        "axis": None if column.axis is None else json_value(asdict(column.axis)),
        "key": None if column.key is None else column.key.to_dict(),
    }


def _parse_key(data: Any, where: str) -> KeyShape:
    try:
        return KeyShape.from_dict(data)
    except ModelFormatError as error:
        raise ModelFormatError(f"{MODEL_JSON}: {where}: {error}") from error


def _read_levels(known: list[str | None], dtype: pl.DataType, where: str) -> pl.Series:
    level_text = pl.Series(known, dtype=pl.String)
    if level_text.null_count() == len(level_text):
        return pl.Series([], dtype=dtype)
    try:
        levels = _parse_levels(level_text, dtype)
        round_trips = _level_text(levels).equals(level_text)
    except BAD_INPUT:
        round_trips = False
    require(round_trips, "levels.parquet", f"{where}: levels that are no {str(dtype)[:40]}")
    return levels


def _parse_levels(text: pl.Series, dtype: pl.DataType) -> pl.Series:
    if dtype == pl.Boolean:
        return text == "true"
    if dtype.is_temporal():
        return text.cast(pl.Series([], dtype=dtype).to_physical().dtype).cast(dtype)
    return text.cast(dtype)


def _level_text(levels: pl.Series) -> pl.Series:
    return (levels.to_physical() if levels.dtype.is_temporal() else levels).cast(pl.String)


def _nulls(n: int, dtype: pl.DataType) -> pl.Series:
    return pl.Series([None], dtype=dtype).new_from_index(0, n)


def json_value(value: Any) -> Any:
    """Convert a value to plain types that JSON has."""
    match value:
        case Mapping():
            return {str(key): json_value(entry) for key, entry in value.items()}
        case list() | tuple():
            return [json_value(entry) for entry in value]
        case np.generic():
            return value.item()
        case _:
            return value
