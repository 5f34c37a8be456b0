"""Portable types: the types that Spark, Delta and Iceberg can all read.

| type of the training data | type that is written |
|---|---|
| UInt8, UInt16, UInt32 | Int16, Int32, Int64 |
| UInt64 | Decimal(20, 0) |
| Int128, UInt128, Categorical, Enum, Null | String |
| Float16 | Float32 |
| Datetime of any unit | microseconds; with a zone: the same instant in UTC |
| Duration, Time | Int64, with the unit in the metadata "arf_dask.unit" of the field |

All other types are written as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pyarrow as pa

UNIT_KEY = "arf_dask.unit"
SIGNED = {pl.UInt8: pl.Int16(), pl.UInt16: pl.Int32(), pl.UInt32: pl.Int64(), pl.UInt64: pl.Decimal(20, 0)}
AS_TEXT = (pl.Int128, pl.UInt128, pl.Categorical, pl.Enum, pl.Null)


def portable_dtype(dtype: pl.DataType) -> pl.DataType:
    """Return the portable type for a dtype.

    >>> portable_dtype(pl.UInt64()), portable_dtype(pl.Enum(["a"])), portable_dtype(pl.Time())
    (Decimal(precision=20, scale=0), String, Int64)
    """
    for unsigned, signed in SIGNED.items():
        if dtype == unsigned:
            return signed
    if dtype in AS_TEXT:
        return pl.String()
    if isinstance(dtype, pl.Datetime):
        return pl.Datetime("us", None if dtype.time_zone is None else "UTC")
    if dtype == pl.Float16:
        return pl.Float32()
    return pl.Int64() if dtype in (pl.Duration, pl.Time) else dtype


def portable_dtypes(dtypes: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """Return the portable type of every column."""
    return {name: portable_dtype(dtype) for name, dtype in dtypes.items()}


def portable_schema(schema: Any, dtypes: Mapping[str, pl.DataType]) -> Any:
    """Return the Arrow schema with the units of durations and times as field metadata."""
    fields = [
        field.with_metadata({UNIT_KEY: unit}) if (unit := _unit(dtype)) is not None else field
        for field, dtype in zip(schema, dtypes.values(), strict=True)
    ]
    return pa.schema(fields)


def portable_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Cast the columns of a frame to portable types."""
    return pl.DataFrame([_portable(series) for series in frame])


def _portable(series: pl.Series) -> pl.Series:
    target = portable_dtype(series.dtype)
    if series.dtype in (pl.Duration, pl.Time):
        return series.to_physical()
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone is not None:
        return series.dt.convert_time_zone("UTC").dt.cast_time_unit("us")
    return series if series.dtype == target else series.cast(target)


def _unit(dtype: pl.DataType) -> str | None:
    if isinstance(dtype, pl.Duration):
        return dtype.time_unit
    return "ns" if dtype == pl.Time else None
