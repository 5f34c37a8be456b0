"""The model file: a directory of Parquet tables and a `model.json` that holds facts, versions and hashes.

Nothing half-written is ever seen: a model is written beside its place and renamed into it. Nothing is
believed unchecked: sizes and hashes come first, then the form of every file, then what the numbers say.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from arf_dask.errors import ModelFormatError, OptionError
from arf_dask.facts import BAD_INPUT, FACTS, REMEDY, describe, require, take_facts
from arf_dask.layout import SCHEMAS, SORTED, Arrays, assemble_tables, pieces
from arf_dask.tables import Tables
from arf_dask.validation import check_tables

FORMAT, VERSION = "arf_dask model", 1
MOST_FACT_BYTES = 2**28
MOST_ROWS = 2**32
LIBRARIES = ("arf_dask", "polars", "numpy", "scikit-learn", "pyarrow")
ROWS_AT_ONCE = 2**20  # written to a file
_ABOUT = {"format": str, "version": int, "written_by": dict}
_LISTS = {"options": dict, "rounds": list, "gates": list, "columns": list, "variables": list, "files": dict}
_FACTS = {**_ABOUT, "n_rows": int, "family": str, "support": str, **_LISTS}
GIVE = "Give a directory that `model.save` wrote, with all of its files."
PathLike = str | os.PathLike[str]


def save(tables: Tables, path: PathLike) -> None:
    """Write a model to a directory; one that holds a model is replaced, any other content is refused."""
    target = check_place(Path(path))
    try:
        check_tables(tables)
    except ModelFormatError as error:
        raise ModelFormatError(f"this model does not hold together and was not saved: {error}") from error
    part = target.with_name(f".arf_dask-{uuid.uuid4().hex}.tmp")
    aside = part.with_suffix(".old")
    try:
        part.mkdir()
        _write(tables, part)
        _put(part, target, aside)
    finally:
        # After an error or Ctrl-C at any point: the old model back in its place, and nothing beside it.
        if aside.exists() and not target.exists():
            aside.rename(target)
        for leftover in (part, aside):
            shutil.rmtree(leftover, ignore_errors=True)


def read_tables(path: PathLike) -> Tables:
    """The tables saved in a directory. Whatever is wrong with it is a ModelFormatError that says what."""
    where = Path(path)
    try:
        return _read(where)
    except ModelFormatError as error:
        raise ModelFormatError(f"model {str(where)!r}: {error}") from error
    except BAD_INPUT as error:
        raise ModelFormatError(f"model {str(where)!r}: {type(error).__name__}: {error}. {REMEDY}") from error


def model_hash(model: Tables | PathLike) -> str:
    """The SHA-256 of what a model says, whatever wrote it: the same before and after `save` and `load`."""
    tables = model if isinstance(model, Tables) else read_tables(model)
    digest = hashlib.sha256(json.dumps(describe(tables), sort_keys=True, allow_nan=False).encode())
    for name, parts in pieces(tables).items():
        digest.update(name.encode())
        for part in parts:
            digest.update(len(part).to_bytes(8, "little"))
            for column in part.columns:
                _hash_column(digest, column)
    return digest.hexdigest()


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """The version of each package."""
    return {name: _version(name) for name in names}


def _hash_column(digest: Any, column: Any) -> None:
    if pa.types.is_string(column.type):
        digest.update(json.dumps(column.to_pylist()).encode())
        return
    if column.null_count:
        digest.update(np.packbits(column.is_null().to_numpy()).tobytes())
    values = (column.fill_null(0.0) if column.null_count else column).to_numpy()
    digest.update(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())


# Writing.


def check_place(path: Path) -> Path:
    """The place to write to, if it is free, empty, or holds a model and nothing else."""
    target = path.resolve()
    if not target.parent.is_dir():
        raise OptionError(f"path {str(path)!r}: there is no directory {str(target.parent)!r}. Create it first.")
    if not os.path.lexists(target):
        return target
    if not target.is_dir():
        raise OptionError(f"path {str(path)!r} is a file. Give the name of a new directory.")
    held = sorted(entry.name for entry in target.iterdir())
    if held and not _holds_model(target):
        raise OptionError(
            f"path {str(path)!r} is a directory that holds something else than a model ({held[0]!r}). "
            "Give the name of a new directory."
        )
    others = [name for name in held if name != FACTS and name not in SCHEMAS]
    if others:
        raise OptionError(
            f"path {str(path)!r} holds a model and other files too ({others[0]!r}), which would be lost. "
            "Move them away, or give the name of a new directory."
        )
    return target


def _holds_model(directory: Path) -> bool:
    try:
        facts = _read_json(directory)
    except (OSError, ModelFormatError):
        return False
    return facts.get("format") == FORMAT


def _write(tables: Tables, directory: Path) -> None:
    files = {name: _write_parquet(directory / name, parts) for name, parts in pieces(tables).items()}
    about = {"format": FORMAT, "version": VERSION, "written_by": library_versions(LIBRARIES)}
    text = json.dumps({**about, **describe(tables), "files": files}, allow_nan=False, indent=1)
    (directory / FACTS).write_text(text, encoding="utf-8")
    sync_to_disk(directory / FACTS)
    sync_to_disk(directory)


def _write_parquet(path: Path, parts: Iterable[Any]) -> dict[str, Any]:
    schema, rows = SCHEMAS[path.name], 0
    encodings = {field.name: _encoding(field) for field in schema if _encoding(field) is not None}
    # Without statistics and the Arrow schema: nothing of the data lies outside the tables' own cells.
    options = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    codec = {"compression": "zstd", "compression_level": 6, "column_encoding": encodings}
    with pq.ParquetWriter(path, schema, **codec, **options) as writer:
        for table in _batches(parts):
            writer.write_table(table)
            rows += len(table)
    sync_to_disk(path)
    return {"sha256": _sha256(path), "bytes": path.stat().st_size, "rows": rows}


def _encoding(field: Any) -> str | None:
    if field.name in SORTED:
        return "DELTA_BINARY_PACKED"
    return None if field.type in (pa.string(), pa.bool_()) else "BYTE_STREAM_SPLIT"


def _batches(parts: Iterable[Any]) -> Iterator[Any]:
    """Small parts together, so that few row groups are written."""
    held: list[Any] = []
    for part in parts:
        held.append(part)
        if sum(map(len, held)) >= ROWS_AT_ONCE:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _put(part: Path, target: Path, aside: Path) -> None:
    """Rename a finished directory into its place; what was there goes aside first and then away."""
    replaces = target.exists()
    if replaces:
        target.rename(aside)
    part.rename(target)
    sync_to_disk(target.parent)
    if replaces:
        shutil.rmtree(aside)


def sync_to_disk(path: Path) -> None:
    """Make sure that it is on disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open directories
        return
    descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "unknown"  # imported from a source tree


# Reading.


def _read(directory: Path) -> Tables:
    if not directory.is_dir():
        state = "is not a directory" if directory.exists() else "does not exist"
        raise ModelFormatError(f"it {state}. {GIVE}")
    facts = _read_json(directory)
    _check_version(facts)
    facts = take_facts(facts, _FACTS, "its top level")
    _check_files(directory, facts["files"])
    files = {name: _read_parquet(directory / name, facts["files"][name]["rows"]) for name in SCHEMAS}
    tables = assemble_tables(facts, files)
    check_tables(tables)
    return tables


def _read_json(directory: Path) -> dict[str, Any]:
    path = directory / FACTS
    if not path.is_file():
        raise ModelFormatError(f"{FACTS} is missing. {GIVE}")
    require(path.stat().st_size <= MOST_FACT_BYTES, FACTS, f"larger than {MOST_FACT_BYTES:,} bytes")
    try:
        facts = json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse)
        json.dumps(facts, ensure_ascii=False).encode()  # half a surrogate pair passes as text, but is none
    except (ValueError, RecursionError) as error:
        require(False, FACTS, f"not JSON ({str(error)[:100]!r})")
    require(isinstance(facts, dict), FACTS, "not a JSON object")
    return dict(facts)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _check_version(facts: Mapping[str, Any]) -> None:
    if facts.get("format") != FORMAT:
        raise ModelFormatError(f"{FACTS}: not of the format {FORMAT!r}. {GIVE}")
    number, libraries = facts.get("version"), facts.get("written_by")
    if type(number) is not int or number != VERSION:
        writer = libraries.get("arf_dask", "unknown") if isinstance(libraries, dict) else "unknown"
        raise ModelFormatError(
            f"{FACTS}: format version {str(number)[:40]}, written by arf_dask {str(writer)[:40]}. This is "
            f"arf_dask {_version('arf_dask')}, which reads version {VERSION}: use the one that wrote it, or "
            "fit and save again."
        )


def _check_files(directory: Path, listed: Mapping[str, Any]) -> None:
    """Names, sizes and hashes, before any file is opened as Parquet."""
    require(set(listed) == set(SCHEMAS), FACTS, f"must list the files {', '.join(SCHEMAS)}")
    for name, entry in listed.items():
        known = take_facts(entry, {"sha256": str, "bytes": int, "rows": int}, f"file {name!r}")
        require(0 <= known["rows"] < MOST_ROWS, FACTS, f"{name!r} would have {known['rows']:,} rows")
        path = directory / name
        require(path.is_file(), name, "missing")
        size = path.stat().st_size
        wrong = f"has {size:,} bytes instead of {known['bytes']:,}: truncated or replaced"
        require(size == known["bytes"], name, wrong)
    for name, entry in listed.items():
        require(_sha256(directory / name) == entry["sha256"], name, f"its SHA-256 is not the one in {FACTS}")


def _read_parquet(path: Path, n_rows: int) -> Arrays:
    """The columns of a file as arrays, if its form, its size and its text are what they must be."""
    name, schema = path.name, SCHEMAS[path.name]
    try:
        with pq.ParquetFile(path) as file:
            wrong = f"its columns are not {', '.join(schema.names)} with the types they are saved with"
            require(file.schema_arrow.equals(schema), name, wrong)
            _check_size(file.metadata, n_rows, name)
            table = file.read()
        table.validate(full=True)
        require(table.schema.equals(schema) and len(table) == n_rows, name, "columns or rows are missing")
    except ModelFormatError:
        raise
    except BAD_INPUT as error:
        require(False, name, f"not a Parquet file that can be read ({str(error)[:100]!r})")
    return {field.name: _array(table[field.name], field, name) for field in schema}


def _check_size(metadata: Any, n_rows: int, name: str) -> None:
    require(metadata.num_rows == n_rows, name, f"has {metadata.num_rows:,} rows instead of {n_rows:,}")
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    # In memory a row of the widest table takes less than 64 bytes, beside its text.
    need = max(sum(sizes), 0) + 64 * n_rows
    fine = all(size >= 0 for size in sizes) and need <= _memory()
    wrong = f"would need {need / 2**30:,.1f} GB of memory, and this machine has {_memory() / 2**30:,.1f}"
    require(fine, name, wrong)


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**36


def _array(column: Any, field: Any, name: str) -> np.ndarray[Any, Any]:
    require(field.nullable or column.null_count == 0, name, f"column {field.name!r} has missing values")
    if pa.types.is_string(field.type):
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.to_numpy())
