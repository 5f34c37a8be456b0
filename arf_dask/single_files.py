"""Choose the output by file name: a data set in a directory, a single file, or standard output."""

from __future__ import annotations

import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from arf_dask.errors import OptionError, OutputError
from arf_dask.model import Model
from arf_dask.runtime.disk import remove_tree, replace_file
from arf_dask.runtime.urls import is_url, local_path, public_url
from arf_dask.storage.data_set import check_target
from arf_dask.storage.manifest import Manifest
from arf_dask.storage.parquet import Part, digest
from arf_dask.storage.stores import output_errors
from arf_dask.typing import PathLike

STDOUT = "-"
WHOLE = 2**62  # rows per file that put all rows into one file
CSV_ROWS = 200_000  # rows read back and written at a time
ENDING = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}$")  # ending of a file name; "run.2024" is a directory
DATA_SET_ENDINGS = (".parquet",)  # endings that data sets at URLs may have, as Spark writes them

Writer = Callable[[pl.LazyFrame, Path], object]
WRITERS: dict[str, Writer] = {
    ".csv": lambda rows, path: rows.sink_csv(path, check_extension=False),
    ".csv.gz": lambda rows, path: rows.sink_csv(path, compression="gzip", check_extension=False),
    ".csv.zst": lambda rows, path: rows.sink_csv(path, compression="zstd", check_extension=False),
    ".arrow": lambda rows, path: rows.sink_ipc(path),
    ".feather": lambda rows, path: rows.sink_ipc(path),
    ".ndjson": lambda rows, path: rows.sink_ndjson(path, check_extension=False),
    ".jsonl": lambda rows, path: rows.sink_ndjson(path, check_extension=False),
}
FILE_ENDINGS = (".parquet", *WRITERS)


def is_file(target: PathLike) -> bool:
    """Return whether a target is a single file or standard output, rather than a data set.

    Raises:
        OptionError: If the file format given by the ending is not supported.
    """
    name = local_path(target)
    if name == STDOUT:
        return True
    ending = ENDING.search(name)
    if is_url(name):
        if ending and not name.lower().endswith(DATA_SET_ENDINGS) and name.count("/") > 2:
            raise OptionError(f"{public_url(name)}: only data sets are written to URLs. Give one without an ending.")
        return False
    if name.endswith("/") or ending is None:
        return False
    if name.lower().endswith(FILE_ENDINGS):
        return True
    if Path(name).is_dir():
        return False
    raise OptionError(
        f"{name}: files that end in {ending.group()!r} are not written. Endings: {', '.join(FILE_ENDINGS)}; without an "
        f"ending, or with a slash ({name}/), it is a directory of Parquet files."
    )


def check_output(
    target: PathLike, mode: str, rows_per_file: int, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Raise an error for an invalid target before any long work."""
    name = local_path(target)
    if not is_file(name):
        check_target(name, mode, rows_per_file, storage_options)
        return
    if mode == "resume":
        raise OptionError(f'{name}: mode="resume" needs a directory: one file is written whole or not at all.')
    path = Path(name)
    if name != STDOUT and path.is_dir():
        raise OutputError(f"{name}: is a directory. Give the name of a file; or {name}/ for a data set.")
    if name != STDOUT and mode == "error" and path.exists():
        raise OutputError(f'{name}: is there already. Give another name, or say mode="overwrite" (--mode overwrite).')
    if name != STDOUT and not path.resolve().parent.is_dir():
        raise OutputError(f"{name}: there is no directory {str(path.resolve().parent)!r}. Create it first.")


def write_file(
    model: Model, target: PathLike, n: int, options: Mapping[str, Any], stdout: BinaryIO | None = None
) -> Manifest:
    """Write rows to a single file atomically, or to stdout. `options` are those of `Model.sample_parquet`.

    Returns:
        The manifest, with the file as its only part.
    """
    name = local_path(target)
    with _temporary_directory(name) as directory:
        per_file = WHOLE if name.lower().endswith(".parquet") else CSV_ROWS
        written_manifest = model.sample_parquet(directory / "rows", n, rows_per_file=per_file, **options)
        if name == STDOUT:
            assert stdout is not None
            return replace(written_manifest, bytes=_print_csv(written_manifest, stdout))
        with output_errors(name):
            finished = Path(written_manifest.files[0])
            if not name.lower().endswith(".parquet"):
                finished = directory / "file"
                _writer(name)(_with_durations_as_text(written_manifest.scan(), name), finished)
            with finished.open("rb") as file:
                n_bytes, sha256 = digest(file)
            final_path = Path(name).resolve()
            replace_file(finished, final_path)
            part = Part(final_path.name, written_manifest.rows, n_bytes, sha256)
            return replace(written_manifest, path=str(final_path.parent), bytes=n_bytes, parts=(part,))


def write_rows(frame: pl.DataFrame, target: PathLike, stdout: BinaryIO) -> None:
    """Write a frame to a single file atomically, or as CSV to stdout."""
    name = local_path(target)
    rows = _with_durations_as_text(frame.lazy(), name)
    if name == STDOUT:
        stdout.write(rows.collect().write_csv().encode())
        stdout.flush()
        return
    with _temporary_directory(name) as directory, output_errors(name):
        finished = directory / "file"
        if name.lower().endswith(".parquet"):
            frame.write_parquet(finished)
        else:
            _writer(name)(rows, finished)
        replace_file(finished, Path(name).resolve())


def _writer(name: str) -> Writer:
    """Return the writer of a file, by its ending."""
    return next(write for ending, write in WRITERS.items() if name.lower().endswith(ending))


def _with_durations_as_text(rows: pl.LazyFrame, name: str) -> pl.LazyFrame:
    """Convert durations to ISO 8601 text for formats without a duration type."""
    if name.lower().endswith((".arrow", ".feather")):
        return rows
    return rows.with_columns(pl.selectors.duration().dt.to_string("iso"))


def _print_csv(made: Manifest, file: BinaryIO) -> int:
    n_bytes = 0
    for part_index, path in enumerate(made.files):
        rows = _with_durations_as_text(pl.scan_parquet(path, glob=False), STDOUT).collect()
        csv_bytes = rows.write_csv(include_header=part_index == 0).encode()
        file.write(csv_bytes)
        n_bytes += len(csv_bytes)
    file.flush()
    return n_bytes


@contextmanager
def _temporary_directory(target: str) -> Iterator[Path]:
    """Yield a hidden temporary directory on the same disk as the target."""
    parent = Path(tempfile.gettempdir()) if target == STDOUT else Path(target).resolve().parent
    directory = parent / f".arf_dask-{uuid.uuid4().hex}.tmp"
    try:
        with output_errors(target):
            directory.mkdir()
        yield directory
    finally:
        remove_tree(directory)
