"""Open data of any kind as parts.

Parquet files are read in place. Sources that can only be read sequentially (a Polars query, large CSV files, a stream)
are first written to temporary Parquet files, which are removed when the context exits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from os import PathLike
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from arf_dask.data.arrow_frames import (
    STREAM_BYTES,
    digits_remedy,
    from_arrow,
    is_iceberg,
    is_stream,
    open_stream,
    spool_stream,
    to_arrow,
)
from arf_dask.data.file_copies import copy_files
from arf_dask.data.files import (
    PLAIN,
    Reading,
    encoding_remedy,
    find_files,
    is_csv,
    is_delta_directory,
    is_partitioned,
    is_path_list,
    is_read_by_polars,
    path_list,
    public_cause,
    scan,
    scan_csv,
    unreadable,
)
from arf_dask.data.frames import is_dask, is_delta, is_narwhals, to_dask, to_polars
from arf_dask.data.pandas_frames import from_pandas, is_pandas, warn_of_index
from arf_dask.data.parts import (
    READ_ERRORS,
    THREADS,
    DaskPart,
    DataPart,
    FilePart,
    Parts,
    ScanPart,
    cut_frame,
    rows_per_part,
    unreadable_file,
)
from arf_dask.errors import DataError
from arf_dask.runtime.forks import check_not_forked
from arf_dask.runtime.spool import Spool, open_spool
from arf_dask.runtime.tasks import Runner
from arf_dask.runtime.urls import is_url

IN_MEMORY = 2**27  # maximum bytes of CSV files to read into memory, where they are a few times as large


@contextmanager
def open_parts(data: Any, runner: Runner = THREADS, reading: Reading = PLAIN) -> Iterator[Parts]:
    """Open data of any kind as parts; temporary files are removed when the context exits.

    Raises:
        DataError: The data cannot be read, or have an unsupported type; see `frames.to_polars`.
    """
    check_not_forked()
    with open_spool() as spool:
        yield _cut_data(data, spool, runner, reading)


def _cut_data(data: Any, spool: Spool, runner: Runner, reading: Reading) -> Parts:
    if isinstance(data, pl.LazyFrame):
        return _cut_lazy_frame(data, spool)
    if isinstance(data, str | PathLike) or is_path_list(data):
        return _cut_files(path_list(data), spool, reading)
    if is_dask(data):
        warn_of_index(data.index._meta)
        return _cut_dask(data, runner)
    if is_delta(data):
        return replace(_cut_lazy_frame(pl.scan_delta(data), spool), to_original=_unchanged)
    if is_stream(data) and not (isinstance(data, pl.DataFrame | pa.Table) or is_pandas(data) or is_narwhals(data)):
        return _cut_stream(data, spool)
    if is_pandas(data):
        warn_of_index(data.index)
    polars_input = to_polars(data)
    return Parts(dict(polars_input.frame.schema), cut_frame(polars_input.frame), polars_input.to_original)


def _unchanged(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def _cut_stream(data: Any, spool: Spool) -> Parts:
    """Read an Arrow stream, which can be read only once, into memory or, if it is large, into a temporary file."""
    reader, to_original = open_stream(data), _unchanged if is_iceberg(data) else to_arrow
    held_batches: list[Any] = []
    try:
        for batch in reader:
            held_batches.append(batch)
            if sum(held_batch.nbytes for held_batch in held_batches) > STREAM_BYTES:
                target = spool.new_file("rows.parquet")
                spool_stream(chain(held_batches, reader), reader.schema, target)
                dtypes = _schema(str(target))
                return Parts(dtypes, _cut_file(str(target), dtypes), to_original)
    except pa.ArrowException as error:
        remedy = digits_remedy(error, reader.schema) or ". Can it be read as a table?"
        raise DataError(f"the Arrow stream cannot be read: {error}{remedy}") from error
    frame = from_arrow(pa.Table.from_batches(held_batches, reader.schema))
    return Parts(dict(frame.schema), cut_frame(frame), to_original)


def _cut_lazy_frame(plan: pl.LazyFrame, spool: Spool) -> Parts:
    def back(frame: pl.DataFrame) -> pl.LazyFrame:
        return frame.lazy()

    try:
        dtypes = dict(plan.collect_schema())
        first_line, *other_lines = plan.explain(optimized=False).splitlines()
        is_plain_scan = all(line.startswith(("PROJECT */", "ESTIMATED ROWS")) for line in other_lines)
        if first_line.startswith("Parquet SCAN") and is_plain_scan:
            max_rows, n_rows = rows_per_part(len(dtypes)), int(plan.select(pl.len()).collect().item())
            starts = range(0, n_rows, max_rows)
            return Parts(
                dtypes, [ScanPart(plan, first_row, min(max_rows, n_rows - first_row)) for first_row in starts], back
            )
        if first_line.startswith("DF [") and not other_lines:
            return Parts(dtypes, cut_frame(plan.collect()), back)
        return Parts(dtypes, _cut_spooled(plan, dtypes, spool), back)
    except READ_ERRORS as error:
        raise DataError(f"the LazyFrame cannot be read: {error}. Does collect() work?") from error


def _cut_spooled(plan: pl.LazyFrame, dtypes: dict[str, pl.DataType], spool: Spool) -> list[DataPart]:
    """Write a lazy frame to a temporary Parquet file, or collect it if Parquet does not support one of its types."""
    target = spool.new_file("rows.parquet")
    row_group_size = min(rows_per_part(len(dtypes)), 2**18)
    try:
        _run_in_background(plan.sink_parquet(target, compression="lz4", row_group_size=row_group_size, lazy=True))
    except (pl.exceptions.ComputeError, pl.exceptions.InvalidOperationError):
        target.unlink()
        return cut_frame(plan.collect())
    return _cut_file(str(target), dtypes)


def _run_in_background(plan: pl.LazyFrame) -> None:
    """Run a query in the background and poll it: Python handles no signals during a call into Polars."""
    query = plan.collect(background=True)
    try:
        while query.fetch() is None:
            sleep(0.02)
    except BaseException:
        query.cancel()
        # Polars aborts the whole process if a query ends after its handle is gone, and sinks do not stop at once.
        Thread(target=_hold_until_end, args=(query,), daemon=True).start()
        raise


def _hold_until_end(query: Any) -> None:
    with suppress(BaseException):
        while query.fetch() is None:
            sleep(0.1)


def _cut_files(paths: list[str], spool: Spool, reading: Reading) -> Parts:
    if not all(map(is_read_by_polars, paths)):
        paths = copy_files(paths, spool.new_file, reading.storage)
    if any(map(is_url, paths)):
        return _cut_urls(paths, spool, reading)
    if any(map(is_delta_directory, paths)):
        return replace(_cut_lazy_frame(scan(paths), spool), to_original=_unchanged)
    files = find_files(paths)
    if is_partitioned(paths, files):
        return _cut_partitioned(paths, files, spool)
    if is_csv(files[0]):
        return _cut_csv(files, spool, reading)
    schemas = [_schema(file) for file in files]
    dtypes = _common_schema(files, schemas)
    cut = [part for file in files for part in _cut_file(file, dtypes)]
    return Parts(dtypes, cut, _unchanged)


def _cut_partitioned(paths: list[str], files: list[str], spool: Spool) -> Parts:
    """Split Hive-partitioned files, with directories such as "year=2024"."""
    if is_csv(files[0]):
        raise DataError(
            f"{paths[0]}: directories such as {Path(files[0]).parent.name!r} hold values of a column, read for "
            "Parquet only. Give the CSV files as a glob to leave it out, or write them as Parquet."
        )
    return replace(_cut_lazy_frame(scan(paths), spool), to_original=_unchanged)


def _cut_urls(paths: list[str], spool: Spool, reading: Reading) -> Parts:
    """Split the files of URLs: Parquet is read in place, also by workers; CSV is copied to a temporary file."""
    try:
        plan = scan(paths, reading)
        plan.collect_schema()
    except READ_ERRORS as error:
        raise unreadable(paths[0], error, reading) from public_cause(paths[0], error)
    return replace(_cut_lazy_frame(plan, spool), to_original=_unchanged)


def _cut_csv(files: list[str], spool: Spool, reading: Reading) -> Parts:
    try:
        plan = scan_csv(files, reading)
        dtypes = dict(plan.collect_schema())
        if sum(Path(file).stat().st_size for file in files) <= IN_MEMORY:
            return Parts(dtypes, cut_frame(plan.collect()), _unchanged)
        return Parts(dtypes, _cut_spooled(plan, dtypes, spool), _unchanged)
    except READ_ERRORS as error:
        remedy = encoding_remedy(error) or ". All files need the same columns."
        raise DataError(f"{files[0]}: cannot be read as CSV: {error}{remedy}") from error


def _schema(file: str) -> dict[str, pl.DataType]:
    try:
        return dict(pl.scan_parquet(file, glob=False).collect_schema())
    except READ_ERRORS as error:
        raise unreadable_file(file, error) from error


def _common_schema(files: list[str], schemas: list[dict[str, pl.DataType]]) -> dict[str, pl.DataType]:
    """Return the schema that all files share; a column of type Null is compatible with any type."""
    dtypes = {name: schemas[0][name] for name in schemas[0]}
    for schema in schemas:
        dtypes.update({name: t for name, t in schema.items() if dtypes.get(name) == pl.Null})
    for file, schema in zip(files, schemas, strict=True):
        missing = [repr(name) for name in dtypes if name not in schema]
        extra = [repr(name) for name in schema if name not in dtypes]
        type_differences = [
            f"{n!r} is {t}, not {dtypes[n]}" for n, t in schema.items() if dtypes.get(n, t) != t and t != pl.Null
        ]
        differences = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"also has {', '.join(extra)}"] * bool(extra)
        differences += [", ".join(type_differences)] * bool(type_differences)
        if differences:
            raise DataError(
                f"{file}: differs from {files[0]}: {'; '.join(differences)}. Give files of the same columns and types, "
                "or a LazyFrame that makes them so."
            )
    return dtypes


def _cut_file(file: str, dtypes: dict[str, pl.DataType]) -> list[DataPart]:
    """Split a Parquet file into row ranges: one or more whole row groups, or slices of a large one."""
    max_rows = rows_per_part(len(dtypes))
    row_groups = _row_groups(file)
    part_sizes: list[int] = []
    for group in row_groups:
        if part_sizes and part_sizes[-1] + group <= max_rows:
            part_sizes[-1] += group
        else:
            n_pieces = -(-group // max_rows)
            part_sizes += [group * (i + 1) // n_pieces - group * i // n_pieces for i in range(n_pieces)]
    first_rows = np.cumsum([0, *part_sizes]).tolist()
    return [FilePart(file, first, size, dtypes) for first, size in zip(first_rows, part_sizes, strict=False)]


def _row_groups(file: str) -> list[int]:
    """Return the size of every row group, or the total if Arrow does not support a type (128-bit integers)."""
    try:
        with pq.ParquetFile(file) as opened:
            return [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
    except NotImplementedError:
        return [int(pl.scan_parquet(file, glob=False).select(pl.len()).collect().item())]
    except READ_ERRORS as error:
        raise unreadable_file(file, error) from error


def _cut_dask(data: Any, runner: Runner) -> Parts:
    """Return the partitions of a Dask frame as parts; each is inspected once, as pandas may infer different types."""
    delayed = data.to_delayed()
    inspected = list(runner.map(_inspect_partition, None, map(_Partition, delayed)))
    dtypes: dict[str, pl.DataType] = {}
    for _, schema in inspected:
        dtypes.update({name: t for name, t in schema.items() if dtypes.get(name, pl.Null()) == pl.Null})
    for index, (_, schema) in enumerate(inspected):
        differing = [n for n, t in schema.items() if t not in (dtypes[n], pl.Null) and not _both_numbers(t, dtypes[n])]
        if differing:
            raise DataError(
                f"partition {index}: {differing[0]!r} is {schema[differing[0]]}, not {dtypes[differing[0]]} as before. "
                "Give all partitions one type (astype) before fit."
            )
    for _, schema in inspected:  # integers with missing values are floats in pandas
        dtypes.update({n: t for n, t in schema.items() if t.is_float() and dtypes[n].is_integer()})
    parts = [
        DaskPart(partition, n_rows, dtypes) for partition, (n_rows, _) in zip(delayed, inspected, strict=True) if n_rows
    ]
    return Parts(dtypes, parts, lambda frame: to_dask(frame, data))


def _both_numbers(one: pl.DataType, other: pl.DataType) -> bool:
    return (one.is_float() and other.is_integer()) or (one.is_integer() and other.is_float())


class _Partition(NamedTuple):
    """A partition of a Dask frame that has not been inspected."""

    delayed: Any

    def on_cluster(self, client: Any) -> Any:
        return client.compute(self.delayed)


def _inspect_partition(_: None, partition: Any) -> tuple[int, dict[str, pl.DataType]]:
    if isinstance(partition, _Partition):
        partition = partition.delayed.compute(scheduler="synchronous")
    frame = from_pandas(partition)
    return frame.height, dict(frame.schema)
