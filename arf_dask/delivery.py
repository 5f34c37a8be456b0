"""Rows to where a command wants them: a data set, one file, or stdout."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from arf_dask.errors import OutputError
from arf_dask.manifest import Manifest
from arf_dask.model import Model
from arf_dask.sink import check_target
from arf_dask.stores import telling

STDOUT = "-"
WHOLE = 2**62  # rows of one file
CSV_ROWS = 200_000  # read back and written at once


def is_file(target: str) -> bool:
    """Whether this names one file, or stdout, rather than a data set."""
    return target == STDOUT or (target.lower().endswith((".parquet", ".csv")) and "://" not in target)


def check_output(target: str, mode: str, rows_per_file: int) -> None:
    """Raise the error of a place that cannot be used, before anything takes long."""
    if not is_file(target):
        check_target(target, mode, rows_per_file)
        return
    path = Path(target)
    if target != "-" and path.is_dir():
        raise OutputError(f"{target}: is a directory. Give the name of a file, or of a directory without an ending.")
    if target != "-" and mode == "error" and path.exists():
        raise OutputError(f"{target}: is there already. Give another name, or say --mode overwrite.")
    if target != "-" and not path.resolve().parent.is_dir():
        raise OutputError(f"{target}: there is no directory {str(path.resolve().parent)!r}. Create it first.")


def write_file(model: Model, target: str, n: int, stdout: BinaryIO, options: dict[str, Any]) -> tuple[Manifest, int]:
    """Draw to one file, which appears under its name when it is complete, or to stdout; also the bytes."""
    with _beside(target) as place:
        per_file = WHOLE if target.lower().endswith(".parquet") else CSV_ROWS
        made = model.sample_parquet(place / "rows", n, rows_per_file=per_file, **options)
        if target == STDOUT:
            return made, _write_csv(made, stdout)
        with telling(target):
            finished = Path(made.files[0])
            if not target.lower().endswith(".parquet"):
                finished = place / "rows.csv"
                with finished.open("wb") as file:
                    _write_csv(made, file)
            size = finished.stat().st_size
            finished.replace(target)
            return made, size


def _write_csv(made: Manifest, file: BinaryIO) -> int:
    size = 0
    for number, path in enumerate(made.files):
        text = pl.read_parquet(path).write_csv(include_header=number == 0).encode()
        file.write(text)
        size += len(text)
    file.flush()
    return size


@contextmanager
def _beside(target: str) -> Iterator[Path]:
    """A hidden directory on the same disk, gone afterwards."""
    parent = Path(tempfile.gettempdir()) if target == STDOUT else Path(target).resolve().parent
    place = parent / f".arf_dask-{uuid.uuid4().hex}.tmp"
    try:
        with telling(target):
            place.mkdir()
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
