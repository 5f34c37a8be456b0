"""One Parquet file of synthetic rows: its schema, how it is written, and how a finished one is known again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from arf_dask.schema import Schema

GROUP_ROWS = 2**18  # rows of a row group at most
GROUP_CELLS = 2**24  # and cells, so that wide tables take no more memory than long ones
DICTIONARY_VALUES = 2**15  # of a column whose dictionary pays
AS_TEXT = (pl.Int128, pl.UInt128)  # Parquet has no whole numbers of 128 bits
CHUNK = 2**20


class Part(NamedTuple):
    """One finished file."""

    file: str
    rows: int
    bytes: int
    sha256: str


def arrow_schema(dtypes: Mapping[str, pl.DataType]) -> Any:
    """The schema of every part: what Polars says of the dtypes, levels of Enums included, in types all readers know."""
    empty = pl.DataFrame(schema={name: pl.String() if dtype in AS_TEXT else dtype for name, dtype in dtypes.items()})
    return pa.schema([_plain(field) for field in empty.to_arrow().schema])


def group_rows(n_columns: int) -> int:
    """Rows of a row group: a power of two, so that it agrees with blocks."""
    most = max(GROUP_CELLS // max(n_columns, 1), 1)
    return int(min(GROUP_ROWS, 2 ** (most.bit_length() - 1)))


def few_valued(schema: Schema) -> list[str]:
    """The columns that a dictionary makes smaller; for others it is built, found too large and thrown away."""
    lines = {v.columns[0] for v in schema.variables if v.interval.any()}
    names = []
    for place, column in enumerate(schema.columns):
        axis = column.axis
        narrow = axis is not None and axis.grid and axis.high - axis.low < DICTIONARY_VALUES
        if column.kind != "key" and (place not in lines or narrow):
            names.append(column.name)
    return names


def write_part(
    path: Path, frames: Iterable[pl.DataFrame], schema: Any, facts: Mapping[str, str], dictionary: Sequence[str]
) -> int:
    """Write frames to one file, row group by row group; the number of rows. The same rows give the same bytes."""
    rows = 0
    # Level 3 of zstd gave files of the same size, larger row groups gained little.
    codec = {"compression": "zstd", "compression_level": 1, "use_dictionary": list(dictionary) or False}
    options = {**codec, "version": "2.6", "store_schema": True}
    # A file of our own: after an error the writer would keep its open for as long as anyone holds the error.
    with pa.OSFile(str(path), "wb") as file, pq.ParquetWriter(file, schema, **options) as writer:
        for frame in regroup(frames, group_rows(len(schema))):
            writer.write_table(to_table(frame, schema), row_group_size=frame.height)
            rows += frame.height
        writer.add_key_value_metadata(dict(facts))
    return rows


def regroup(frames: Iterable[pl.DataFrame], size: int) -> Iterator[pl.DataFrame]:
    """The same rows in frames of `size`; the last may be shorter."""
    held: list[pl.DataFrame] = []
    n_held = 0
    for frame in frames:
        at = 0
        while frame.height - at >= size - n_held:
            yield pl.concat([*held, frame.slice(at, size - n_held)])
            at, held, n_held = at + size - n_held, [], 0
        if at < frame.height:
            held.append(frame.slice(at))
            n_held += frame.height - at
    if held:
        yield pl.concat(held)


def to_table(frame: pl.DataFrame, schema: Any) -> Any:
    """A frame as an Arrow table of exactly this schema, every column in one piece."""
    arrays = [_array(series, field) for series, field in zip(frame.get_columns(), schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def read_facts(file: BinaryIO, schema: Any, rows: int) -> dict[str, str] | None:
    """What a file says of itself; None if it is no whole Parquet file with this schema and number of rows."""
    try:
        with pq.ParquetFile(file) as parquet:
            found = parquet.metadata
            if found.num_rows != rows or not parquet.schema_arrow.equals(schema):
                return None
            return {key.decode(): value.decode() for key, value in (found.metadata or {}).items()}
    except (OSError, ValueError, pa.ArrowException):
        return None


def digest(file: BinaryIO) -> tuple[int, str]:
    """Bytes and SHA-256 of a file."""
    found, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK):
        found.update(chunk)
        size += len(chunk)
    return size, found.hexdigest()


def _plain(field: Any) -> Any:
    """The field with 32-bit offsets for text."""
    kind = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_dictionary(kind):
        kind = pa.dictionary(kind.index_type, pa.string(), kind.ordered)
    return pa.field(field.name, kind, field.nullable, field.metadata)


def _array(series: pl.Series, field: Any) -> Any:
    series = series.rechunk()
    if series.dtype in AS_TEXT:
        series = series.cast(pl.String)
    if isinstance(series.dtype, pl.Categorical):
        # Not with the categories of Polars: these hold everything that this process has ever seen.
        text = series.cast(pl.String).to_arrow().cast(pa.string())
        return text.dictionary_encode().cast(field.type)
    array = series.to_arrow()
    if pa.types.is_dictionary(field.type):
        levels = array.dictionary.cast(pa.string())
        return pa.DictionaryArray.from_arrays(array.indices, levels, ordered=field.type.ordered)
    return array.cast(field.type)
