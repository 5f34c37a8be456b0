"""Arrow tables and streams of any library (DuckDB, Ibis, pyarrow readers and datasets) to Polars and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from arf_dask.errors import DataError

STREAM_BYTES = 2**28  # larger streams are written to a temporary file
DECIMAL_DIGITS = 38  # maximum precision of Polars' decimals
SERIES = ("Series", "ChunkedArray", "Array")  # types with the stream interface that are columns, not tables


def is_stream(data: Any) -> bool:
    """Return whether the data are a table that can be read as an Arrow stream."""
    if _is_dataset(data) or _is_scanner(data) or is_iceberg(data):
        return True
    return hasattr(data, "__arrow_c_stream__") and type(data).__name__ not in SERIES


def is_iceberg(data: Any) -> bool:
    """Return whether the data are a pyiceberg table or table scan, without importing pyiceberg."""
    is_pyiceberg = type(data).__module__.startswith("pyiceberg.table")
    return is_pyiceberg and (hasattr(data, "add_files") or hasattr(data, "to_arrow_batch_reader"))


def open_stream(data: Any) -> Any:
    """Return a reader of the record batches of any Arrow stream, cast to types that Polars supports.

    Raises:
        DataError: The stream cannot be opened, or has types that Polars does not support.
    """
    try:
        if _is_dataset(data):
            reader = data.scanner().to_reader()
        elif _is_scanner(data):
            reader = data.to_reader()
        elif is_iceberg(data):
            reader = (data.scan() if hasattr(data, "add_files") else data).to_arrow_batch_reader()
        else:
            reader = pa.RecordBatchReader.from_stream(data)
        return reader.cast(readable_schema(reader.schema))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(f"the Arrow stream cannot be read: {error}. Convert it to a pyarrow Table first.") from error


def from_arrow(table: Any) -> pl.DataFrame:
    """Convert an Arrow table to a Polars frame.

    Raises:
        DataError: Columns have types that Polars does not support; the message names them.
    """
    try:
        frame = pl.from_arrow(table.cast(readable_schema(table.schema)))
    except (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(
            f"the Arrow table cannot be read by Polars: {error}{digits_remedy(error, table.schema)}"
        ) from error
    assert isinstance(frame, pl.DataFrame)
    return frame


def to_arrow(frame: pl.DataFrame, schema: Any = None) -> Any:
    """Convert a Polars frame to an Arrow table, with exactly the given schema if there is one."""
    table = frame.to_arrow()
    if schema is None:
        return table
    columns = [cast_array(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def without_metadata(schema: Any) -> Any:
    """Return an Arrow schema with the same names and types, and without metadata."""
    return pa.schema([pa.field(field.name, field.type, field.nullable) for field in schema])


def spool_stream(batches: Iterator[Any], schema: Any, path: Path) -> None:
    """Write record batches to a Parquet file one at a time."""
    with pq.ParquetWriter(path, schema, compression="lz4") as writer:
        for batch in batches:
            writer.write_batch(batch)


def readable_schema(schema: Any) -> Any:
    """Return an Arrow schema with types that Polars can read: 256-bit decimals become 128-bit ones.

    Raises:
        DataError: Columns have types without a counterpart in Polars; the message lists them.
    """
    odd_fields = [f"{field.name!r} ({field.type})" for field in schema if not _is_readable(field.type)]
    if odd_fields:
        raise DataError(f"Polars has no type for {', '.join(odd_fields)}. Cast these columns before fit, or drop them.")
    return pa.schema([field.with_type(readable_type(field.type)) for field in schema], schema.metadata)


def digits_remedy(error: BaseException, schema: Any) -> str:
    """Return advice about decimals that have too many digits for Polars, or an empty string for other errors."""
    wide_fields = [
        f"{field.name!r} ({field.type})"
        for field in schema
        if pa.types.is_decimal(field.type) and field.type.precision >= DECIMAL_DIGITS
    ]
    if "precision" not in str(error) or not wide_fields:
        return ""
    return f". Values of {', '.join(wide_fields)} need at most {DECIMAL_DIGITS} digits: cast them to float64 or string."


def _is_readable(kind: Any) -> bool:
    too_wide = pa.types.is_decimal256(kind) and kind.precision > DECIMAL_DIGITS and kind.scale > DECIMAL_DIGITS
    is_odd = pa.types.is_interval(kind) or pa.types.is_union(kind) or pa.types.is_run_end_encoded(kind)
    return not (is_odd or too_wide)


def readable_type(kind: Any) -> Any:
    """Return the Arrow type that a type is cast to before Polars reads it; most types stay as they are."""
    if pa.types.is_decimal256(kind):
        return pa.decimal128(DECIMAL_DIGITS, kind.scale)  # the cast fails if a value does not fit
    if pa.types.is_dictionary(kind) and not (
        pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)
    ):
        return kind.value_type
    return kind


def cast_array(column: Any, kind: Any) -> Any:
    """Cast an Arrow array to a type, also to dictionaries of any values."""
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(column.type):
        return column.cast(kind.value_type).dictionary_encode().cast(kind)
    return column.cast(kind)


def _is_scanner(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow") and type(data).__name__ == "Scanner"


def _is_dataset(data: Any) -> bool:
    return type(data).__module__.startswith("pyarrow") and hasattr(data, "scanner") and hasattr(data, "get_fragments")
