"""What `model.json` says of a model besides its tables: options, rounds, columns and their types.

Nothing read is believed: every field has exactly one type, and a dtype is one of those we can describe.
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

from arf_dask.axis import FLOATS, Axis
from arf_dask.errors import ModelFormatError
from arf_dask.keys import KeyShape
from arf_dask.schema import Column, Kind
from arf_dask.tables import Tables

FACTS = "model.json"
REMEDY = "The model was damaged or changed: restore it from a copy, or fit and save it again."
BAD_INPUT = (Exception, pl.exceptions.PanicException)  # a Polars panic is no Exception

_WHOLE = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64, 128)]
_PLAIN = ["Boolean", "String", "Null", "Date", "Time", "Float16", "Float32", "Float64", *_WHOLE]
PLAIN_DTYPES: dict[str, pl.DataType] = {name: getattr(pl, name)() for name in _PLAIN}
_UNITS = ("ms", "us", "ns")
_ZONE = re.compile(r"[A-Za-z0-9+_/-]{1,64}")
_PHYSICAL: dict[str, Any] = {"UInt8": pl.UInt8, "UInt16": pl.UInt16, "UInt32": pl.UInt32}
_COUNTS = {"nulls": int, "nans": int}
_COLUMN = {"name": str, "dtype": list, "kind": str, **_COUNTS, "axis": dict | None, "key": dict | None}


def require(holds: object, file: str, problem: str) -> None:
    """Raise, with the file concerned and what to do, where something does not hold."""
    if not holds:
        raise ModelFormatError(f"{file}: {problem}. {REMEDY}")


def take_facts(data: Any, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`data`, if it is a mapping of exactly these fields, each of exactly its type."""
    exact = isinstance(data, dict) and set(data) == set(kinds)
    require(exact, FACTS, f"{where}: needs exactly the fields {', '.join(kinds)}")
    for name, kind in kinds.items():
        allowed = get_args(kind) if get_args(kind) else (kind,)
        wrong = f"{where}: {name!r} is {str(data[name])[:40]!r}, which is not of its type"
        require(type(data[name]) in allowed, FACTS, wrong)
    return dict(data)


def describe(tables: Tables) -> dict[str, Any]:
    """Everything of the model that is no table."""
    schema = tables.schema
    rounds = [(int(r.round), float(r.accuracy), int(r.leaves)) for r in tables.rounds_held]
    strengths = zip(schema.variables, tables.strengths, strict=True)
    return {
        "n_rows": int(schema.n_rows),
        "family": tables.family,
        "support": tables.support,
        "options": _plain(tables.options),
        "rounds": [dict(zip(("round", "accuracy", "leaves"), values, strict=True)) for values in rounds],
        "gates": [int(gate) for gate in schema.gates],
        "columns": [_describe_column(column) for column in schema.columns],
        "variables": [
            {
                "columns": [int(i) for i in v.columns],
                "first_bin": int(v.first_bin),
                "strength": float(strength),
            }
            for v, strength in strengths
        ],
    }


def take_column(data: Any, place: int, number: NDArray[np.float64], text: list[str | None]) -> Column:
    """The column that `describe` described; its levels and spikes are rows of levels.parquet."""
    facts = take_facts(data, _COLUMN, f"column {place}")
    where = f"column {facts['name'][:40]!r}"
    require(facts["kind"] in get_args(Kind), FACTS, f"{where}: unknown kind {facts['kind'][:40]!r}")
    dtype, is_number = parse_dtype(facts["dtype"], where), facts["kind"] == "numeric"
    axis, key = facts["axis"], facts["key"]
    if axis is not None:
        axis = Axis(**take_facts(axis, get_type_hints(Axis), f"{where}: axis"))
    if key is not None:
        key = _take_key(key, where)
    points = number if is_number else np.empty(0)
    in_numbers = not is_number and dtype in FLOATS
    levels = pl.Series(number).cast(dtype) if in_numbers else _take_levels(text, dtype, where)
    counts = {name: facts[name] for name in _COUNTS}
    return Column(facts["name"], dtype, facts["kind"], levels, points, axis, key, **counts)


def level_values(column: Column) -> tuple[pl.Series, pl.Series]:
    """(number, text) of every level or spike: floats as numbers, everything else as exact text."""
    levels = column.levels
    if column.kind != "numeric" and levels.dtype in FLOATS:
        return levels.cast(pl.Float64), _nulls(len(levels), pl.String())
    text = _level_text(levels) if len(levels) else _nulls(len(column.points), pl.String())
    number = pl.Series(column.points, dtype=pl.Float64)
    return (number if len(number) else _nulls(len(text), pl.Float64())), text


def describe_dtype(dtype: pl.DataType) -> list[Any]:
    """A dtype as plain JSON.

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
    """The dtype that `describe_dtype` described."""
    dtype: pl.DataType | None = None
    with suppress(*BAD_INPUT):
        dtype = _parse_dtype(described)
    require(dtype is not None, FACTS, f"{where}: unknown type {str(described)[:80]}")
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
            # Polars says here whether it knows the zone; the dtype alone would not.
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
        "axis": None if column.axis is None else _plain(asdict(column.axis)),
        "key": None if column.key is None else column.key.to_dict(),
    }


def _take_key(data: Any, where: str) -> KeyShape:
    try:
        return KeyShape.from_dict(data)
    except ValueError as error:
        raise ModelFormatError(f"{FACTS}: {where}: {error}") from error  # it says what to do


def _take_levels(known: list[str | None], dtype: pl.DataType, where: str) -> pl.Series:
    text = pl.Series(known, dtype=pl.String)
    if text.null_count() == len(text):
        return pl.Series([], dtype=dtype)
    try:
        levels = _parse_levels(text, dtype)
        same = _level_text(levels).equals(text)
    except BAD_INPUT:
        same = False
    require(same, "levels.parquet", f"{where}: levels that are no {str(dtype)[:40]}")
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


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case np.generic():
            return value.item()
        case _:
            return value
