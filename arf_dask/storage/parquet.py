"""Parquet files of synthetic rows: their schema, writing them, and checking that a file is complete."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from arf_dask.schema.columns import Schema

GROUP_ROWS = 2**18  # maximum rows per row group
GROUP_CELLS = 2**24  # maximum cells per row group, which bounds the memory of wide tables
DICTIONARY_VALUES = 2**15  # maximum distinct values for which a dictionary pays off
AS_TEXT = (pl.Int128, pl.UInt128)  # Parquet has no 128-bit integers
CHUNK = 2**20
JOB_KEY = "arf_dask.job"  # the key of the job's id in the metadata of a part


class Part(NamedTuple):
    """One finished file of a data set."""

    file: str
    rows: int
    bytes: int
    sha256: str
    redrawn: int = 0  # rows redrawn because they were copies of real rows


def arrow_schema(dtypes: Mapping[str, pl.DataType]) -> Any:
    """Return the Arrow schema of every part: Polars' schema, restricted to types that all readers support."""
    empty_frame = pl.DataFrame(
        schema={name: pl.String() if dtype in AS_TEXT else dtype for name, dtype in dtypes.items()}
    )
    return pa.schema([_plain(field) for field in empty_frame.to_arrow().schema])


def group_rows(n_columns: int) -> int:
    """Return the number of rows per row group: a power of two, so that row groups and blocks align."""
    max_rows = max(GROUP_CELLS // max(n_columns, 1), 1)
    return int(min(GROUP_ROWS, 2 ** (max_rows.bit_length() - 1)))


def dictionary_columns(schema: Schema) -> list[str]:
    """Return the columns that benefit from dictionary encoding; for others, the writer would build and discard one."""
    line_columns = {variable.columns[0] for variable in schema.variables if variable.interval.any()}
    column_names = []
    for index, column in enumerate(schema.columns):
        axis = column.axis
        is_narrow = axis is not None and axis.grid and axis.high - axis.low < DICTIONARY_VALUES
        if column.kind != "key" and (index not in line_columns or is_narrow):
            column_names.append(column.name)
    return column_names


def write_part(
    path: Path, frames: Iterable[pl.DataFrame], schema: Any, metadata: Mapping[str, str], dictionary: Sequence[str]
) -> int:
    """Write frames to one file, row group by row group, and return the number of rows.

    Equal rows give equal bytes.
    """
    n_written = 0
    # In measurements, zstd level 3 gave files of the same size, and larger row groups gained little.
    codec_options = {"compression": "zstd", "compression_level": 1, "use_dictionary": list(dictionary) or False}
    # Page checksums let readers detect bit rot.
    writer_options = {**codec_options, "version": "2.6", "store_schema": True, "write_page_checksum": True}
    # Opened explicitly: after an error, ParquetWriter would keep its file open while the error is referenced.
    with pa.OSFile(str(path), "wb") as file, pq.ParquetWriter(file, schema, **writer_options) as writer:
        for frame in regroup(frames, group_rows(len(schema))):
            writer.write_table(to_table(frame, schema), row_group_size=frame.height)
            n_written += frame.height
        writer.add_key_value_metadata(dict(metadata))
    return n_written


def regroup(frames: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """Yield the concatenated rows in frames of `size` rows; the last frame may be shorter."""
    pending_frames: list[pl.DataFrame] = []
    n_pending = 0
    for frame in frames:
        frame_offset = 0
        while frame.height - frame_offset >= size - n_pending:
            yield pl.concat([*pending_frames, frame.slice(frame_offset, size - n_pending)])
            frame_offset, pending_frames, n_pending = frame_offset + size - n_pending, [], 0
        if frame_offset < frame.height:
            pending_frames.append(frame.slice(frame_offset))
            n_pending += frame.height - frame_offset
    if pending_frames:
        yield pl.concat(pending_frames)


def to_table(frame: pl.DataFrame, schema: Any) -> Any:
    """Convert a frame to an Arrow table with the given schema and one chunk per column."""
    arrays = [_array(series, field) for series, field in zip(frame.get_columns(), schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def read_metadata(file: BinaryIO, schema: Any, rows: int) -> dict[str, str] | None:
    """Return the key-value metadata of a complete file with the given schema and number of rows; None otherwise."""
    try:
        with pq.ParquetFile(file) as parquet:
            file_metadata = parquet.metadata
            if file_metadata.num_rows != rows or not parquet.schema_arrow.equals(schema):
                return None
            return _decoded(file_metadata.metadata)
    except (OSError, ValueError, pa.ArrowException):
        return None


def read_key_value(file: BinaryIO) -> dict[str, str]:
    """Return the key-value metadata of a Parquet file. Raises a ValueError for other files."""
    try:
        with pq.ParquetFile(file) as parquet:
            return _decoded(parquet.metadata.metadata)
    except (OSError, pa.ArrowException) as error:  # Arrow reports some damage as an OSError
        raise ValueError(str(error).strip()) from error


def _decoded(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in (metadata or {}).items()}


def digest(file: BinaryIO) -> tuple[int, str]:
    """Return the size in bytes and the SHA-256 of a file."""
    file_hash, n_bytes = hashlib.sha256(), 0
    while chunk := file.read(CHUNK):
        file_hash.update(chunk)
        n_bytes += len(chunk)
    return n_bytes, file_hash.hexdigest()


def _plain(field: Any) -> Any:
    """Return the field with 32-bit offsets for text."""
    arrow_type = field.type
    if pa.types.is_large_string(arrow_type):
        arrow_type = pa.string()
    elif pa.types.is_dictionary(arrow_type):
        arrow_type = pa.dictionary(arrow_type.index_type, pa.string(), arrow_type.ordered)
    return pa.field(field.name, arrow_type, field.nullable, field.metadata)


def _array(series: pl.Series, field: Any) -> Any:
    series = series.rechunk()
    if series.dtype in AS_TEXT:
        series = series.cast(pl.String)
    if isinstance(series.dtype, pl.Categorical):
        # Polars' global categories hold every value this process has ever seen.
        text = series.cast(pl.String).to_arrow().cast(pa.string())
        return text.dictionary_encode().cast(field.type)
    array = series.to_arrow()
    if pa.types.is_dictionary(field.type):
        levels = array.dictionary.cast(pa.string())
        return pa.DictionaryArray.from_arrays(array.indices, levels, ordered=field.type.ordered)
    return array.cast(field.type)
