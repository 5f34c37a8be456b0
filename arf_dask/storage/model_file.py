"""Save and load models: a directory of Parquet tables and a `model.json` with options, versions and hashes.

A model is written to a temporary directory next to its target and renamed, so that readers never see a partial model.
Loading checks sizes and hashes first, then the schema of every file, then the consistency of the values.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from arf_dask.data.stored_fields import REMEDY, parse_fields, require
from arf_dask.errors import ModelFormatError, OptionError, OutputError
from arf_dask.forest.fitted import Fitted
from arf_dask.rules.relations import NO_RELATIONS
from arf_dask.runtime.disk import (
    file_sha256,
    library_version,
    library_versions,
    machine_memory,
    remove_tree,
    resolve_path,
    sync_to_disk,
)
from arf_dask.runtime.locks import LockHeldError
from arf_dask.runtime.replacement import current_path, own_directory, staging_path, swap_directory
from arf_dask.storage.fields import BAD_INPUT, MODEL_JSON, describe, json_value
from arf_dask.storage.layout import (
    ALL_SCHEMAS,
    DEPENDENCE_SCHEMAS,
    REFINEMENT_SCHEMAS,
    SCHEMAS,
    SORTED,
    Arrays,
    assemble_tables,
    file_tables,
)
from arf_dask.storage.refinement_fields import (
    check_refinement,
    describe_refinement,
    parse_refinement,
    refinement_tables,
)
from arf_dask.storage.rule_fields import check_relations, describe_relations, parse_relations
from arf_dask.storage.stores import output_errors
from arf_dask.storage.validation import check_options, check_tables
from arf_dask.typing import PathLike

FORMAT, VERSION = "arf_dask model", 6
# 1: no hash of model.json itself; 2: no rules; 3: other kinds of transforms (`old_rules`); 4: no refinement;
# 5: fewer formats of dates
READABLE = (1, 2, 3, 4, 5, 6)
RULES_SINCE, REFINED_SINCE = 3, 5
MAX_JSON_BYTES = 2**28
MAX_ROWS = 2**32
UNPACKED_RATIO, UNPACKED_BYTES = 4_096, 2**28  # limits on the uncompressed size: ratio * file size + bytes
LIBRARIES = ("arf_dask", "polars", "numpy", "scikit-learn", "pyarrow")
ROWS_AT_ONCE = 2**20  # rows written to a file at a time
_ABOUT = {"format": str, "version": int, "written_by": dict}
_LISTS = {
    "options": dict,
    "relations": dict,
    "rounds": list,
    "gates": list,
    "columns": list,
    "variables": list,
    "refinement": dict | None,
    "files": dict,
}
_TOP_LEVEL = {**_ABOUT, "n_rows": int, "family": str, "support": str, **_LISTS}
_FILE = {"sha256": str, "bytes": int, "rows": int}
GIVE = "Give a directory that `model.save` wrote, with all of its files."


def save(fitted: Fitted, path: PathLike) -> None:
    """Write a model to a directory. An existing model is replaced; any other content raises an OptionError."""
    target = check_model_path(Path(path))
    try:
        check_tables(fitted.tables)
        check_options(fitted.options)
        check_refinement(fitted)
    except ModelFormatError as error:
        raise ModelFormatError(f"this model does not hold together and was not saved: {error}") from error
    with replacing(path, target, check_model_path) as staging:
        _write(fitted, staging)


@contextmanager
def replacing(path: PathLike, target: Path, check: Callable[[Path], object]) -> Iterator[Path]:
    """Yield a new directory that takes the place of another one at the end, unless an error is raised.

    Args:
        path: what the caller gave, for messages.
        target: the directory that is replaced.
        check: raises an error unless the directory may be replaced; the previous lock owner may have changed it.
    """
    try:
        with output_errors(path), own_directory(target):
            check(target)
            staging = staging_path(target, uuid.uuid4().hex)
            try:
                staging.mkdir()
                yield staging
                swap_directory(staging, target)
            finally:
                remove_tree(staging)
    except LockHeldError as error:
        raise OutputError(f"path {str(path)!r}: {error}. Wait until it has ended, or give another path.") from error


def read_fitted(path: PathLike) -> Fitted:
    """Read and validate the model saved in a directory. Raises a ModelFormatError if it is invalid."""
    model_path = Path(path)
    try:
        return _read(current_path(model_path))  # a process may have died while replacing the model
    except ModelFormatError as error:
        raise ModelFormatError(f"model {str(model_path)!r}: {error}") from error
    except BAD_INPUT as error:
        raise ModelFormatError(f"model {str(model_path)!r}: {type(error).__name__}: {error}. {REMEDY}") from error


def model_hash(model: Fitted | PathLike) -> str:
    """Return the SHA-256 of a model's content, which is invariant under `save` and `load`."""
    fitted = model if isinstance(model, Fitted) else read_fitted(model)
    content_digest = hashlib.sha256(json.dumps(_described(fitted), sort_keys=True, allow_nan=False).encode())
    for name, parts in _tables(fitted).items():
        content_digest.update(name.encode())
        for part in parts:
            content_digest.update(len(part).to_bytes(8, "little"))
            for column in part.columns:
                _hash_column(content_digest, column)
    return content_digest.hexdigest()


def _described(fitted: Fitted) -> dict[str, Any]:
    options, relations = json_value(fitted.options), describe_relations(fitted.relations)
    described = {**describe(fitted.tables), "options": options, "relations": relations}
    # Models without a refinement keep the hash that they had before there were refinements.
    refinement = fitted.refinement
    return described if refinement is None else {**described, "refinement": describe_refinement(refinement)}


def _tables(fitted: Fitted) -> dict[str, Iterator[Any]]:
    """Return an iterator of Arrow tables per file."""
    refinement = fitted.refinement
    return file_tables(fitted.tables) | ({} if refinement is None else refinement_tables(refinement))


def _hash_column(digest: Any, column: Any) -> None:
    if pa.types.is_string(column.type):
        digest.update(json.dumps(column.to_pylist()).encode())
        return
    if column.null_count:
        digest.update(np.packbits(column.is_null().to_numpy()).tobytes())
    values = (column.fill_null(0.0) if column.null_count else column).to_numpy()
    digest.update(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())


# Writing.


def check_model_path(path: Path) -> Path:
    """Return the absolute path to save to. Raises an OptionError unless it is new, empty, or holds only a model."""
    with output_errors(path):
        return _check_target(path, resolve_path(path))


def _check_target(path: Path, target: Path) -> Path:
    if not target.parent.is_dir():
        raise OptionError(f"path {str(path)!r}: there is no directory {str(target.parent)!r}. Create it first.")
    if not os.path.lexists(target):
        return target
    if not target.is_dir():
        raise OptionError(f"path {str(path)!r} is a file. Give the name of a new directory.")
    entry_names = sorted(entry.name for entry in target.iterdir())
    if entry_names and not _holds_model(target):
        raise OptionError(
            f"path {str(path)!r} is a directory that holds something else than a model ({entry_names[0]!r}). "
            "Give the name of a new directory."
        )
    other_names = [name for name in entry_names if name != MODEL_JSON and name not in ALL_SCHEMAS]
    if other_names:
        raise OptionError(
            f"path {str(path)!r} holds a model and other files too ({other_names[0]!r}), which would be lost. "
            "Move them away, or give the name of a new directory."
        )
    return target


def _holds_model(directory: Path) -> bool:
    try:
        fields = _read_json(directory)
    except (OSError, ModelFormatError):
        return False
    return fields.get("format") == FORMAT


def _write(fitted: Fitted, directory: Path) -> None:
    file_entries = {name: _write_parquet(directory / name, parts) for name, parts in _tables(fitted).items()}
    header_fields = {"format": FORMAT, "version": VERSION, "written_by": library_versions(LIBRARIES)}
    content = {**header_fields, "refinement": None, **_described(fitted), "files": file_entries}
    json_text = json.dumps({**content, "sha256": _content_hash(content)}, allow_nan=False, indent=1)
    (directory / MODEL_JSON).write_text(json_text, encoding="utf-8")
    _check_written(fitted, directory)
    sync_to_disk(directory / MODEL_JSON)
    sync_to_disk(directory)


def _check_written(fitted: Fitted, directory: Path) -> None:
    """Parse the `model.json` that was just written, and raise a ModelFormatError if `load` would refuse it."""
    try:
        fields = _read_json(directory)
        relations = parse_relations(fields["relations"])
        check_relations(relations, fitted.schema)
    except ModelFormatError as error:
        raise ModelFormatError(f"this model could not be loaded again and was not saved: {error}") from error


def _content_hash(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of all fields of `model.json` except the hash itself."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _write_parquet(path: Path, parts: Iterable[Any]) -> dict[str, Any]:
    schema, n_written = ALL_SCHEMAS[path.name], 0
    encodings = {field.name: _encoding(field) for field in schema if _encoding(field) is not None}
    # No statistics and no Arrow schema: values must not appear outside the tables' cells.
    writer_options = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    codec_options = {"compression": "zstd", "compression_level": 6, "column_encoding": encodings}
    with pq.ParquetWriter(path, schema, **codec_options, **writer_options) as writer:
        for table in _batches(parts):
            writer.write_table(table)
            n_written += len(table)
    sync_to_disk(path)
    return {"sha256": file_sha256(path), "bytes": path.stat().st_size, "rows": n_written}


def _encoding(field: Any) -> str | None:
    if field.name in SORTED:
        return "DELTA_BINARY_PACKED"
    return None if field.type in (pa.string(), pa.bool_()) else "BYTE_STREAM_SPLIT"


def _batches(parts: Iterable[Any]) -> Iterator[Any]:
    """Concatenate small tables to reduce the number of row groups."""
    pending_tables: list[Any] = []
    for part in parts:
        pending_tables.append(part)
        if sum(map(len, pending_tables)) >= ROWS_AT_ONCE:
            yield pa.concat_tables(pending_tables)
            pending_tables = []
    if pending_tables:
        yield pa.concat_tables(pending_tables)


# Reading.


def _read(directory: Path) -> Fitted:
    if not directory.is_dir():
        state = "is not a directory" if directory.exists() else "does not exist"
        raise ModelFormatError(f"it {state}. {GIVE}")
    fields = _read_json(directory)
    _check_version(fields)
    if fields["version"] > 1:
        recorded_hash = fields.pop("sha256", None)
        require(recorded_hash == _content_hash(fields), MODEL_JSON, "its content does not match its own SHA-256")
    if fields["version"] < RULES_SINCE:
        fields.setdefault("relations", describe_relations(NO_RELATIONS))
    if fields["version"] < REFINED_SINCE:
        fields.setdefault("refinement", None)
    fields = parse_fields(fields, _TOP_LEVEL, MODEL_JSON, "its top level")
    _check_files(directory, fields["files"], is_refined=fields["refinement"] is not None)
    files = {name: _read_parquet(directory / name, fields["files"][name]["rows"]) for name in fields["files"]}
    relations = parse_relations(fields["relations"])
    fitted = Fitted(assemble_tables(fields, files), relations, fields["options"])
    check_tables(fitted.tables)
    check_options(fitted.options)
    check_relations(relations, fitted.schema)
    if fields["refinement"] is not None:
        fitted = replace(fitted, refinement=parse_refinement(fields["refinement"], files))
        check_refinement(fitted)
    return fitted


def _read_json(directory: Path) -> dict[str, Any]:
    path = directory / MODEL_JSON
    if not path.is_file():
        raise ModelFormatError(f"{MODEL_JSON} is missing. {GIVE}")
    require(path.stat().st_size <= MAX_JSON_BYTES, MODEL_JSON, f"larger than {MAX_JSON_BYTES:,} bytes")
    try:
        fields = json.loads(path.read_bytes().decode("utf-8"), parse_constant=_refuse)
        json.dumps(fields, ensure_ascii=False).encode()  # raises for lone surrogates, which `json.loads` accepts
    except (ValueError, RecursionError) as error:
        require(False, MODEL_JSON, f"not JSON ({str(error)[:100]!r})")
    require(isinstance(fields, dict), MODEL_JSON, "not a JSON object")
    return dict(fields)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _check_version(fields: Mapping[str, Any]) -> None:
    if fields.get("format") != FORMAT:
        raise ModelFormatError(f"{MODEL_JSON}: not of the format {FORMAT!r}. {GIVE}")
    format_version, libraries = fields.get("version"), fields.get("written_by")
    if type(format_version) is not int or format_version not in READABLE:
        writer = libraries.get("arf_dask", "unknown") if isinstance(libraries, dict) else "unknown"
        raise ModelFormatError(
            f"{MODEL_JSON}: format version {str(format_version)[:40]}, written by arf_dask {str(writer)[:40]}. This is "
            f"arf_dask {library_version('arf_dask')}, which reads versions {READABLE[0]} to {READABLE[-1]}: use "
            "the one that wrote it, or fit and save again."
        )


def _check_files(directory: Path, listed: Mapping[str, Any], *, is_refined: bool) -> None:
    """Check names, sizes and hashes before any file is opened as Parquet."""
    of_refinement = set(REFINEMENT_SCHEMAS) if is_refined else set()
    without_dependence = {*SCHEMAS, *of_refinement}
    is_complete = set(listed) in (without_dependence, without_dependence | set(DEPENDENCE_SCHEMAS))
    require(
        is_complete,
        MODEL_JSON,
        f"must list the files {', '.join(SCHEMAS)}, all of those of a dependence or none, and those of a refinement "
        f"({', '.join(REFINEMENT_SCHEMAS)}) if the model has one",
    )
    for name, entry in listed.items():
        file_fields = parse_fields(entry, _FILE, MODEL_JSON, f"file {name!r}")
        require(0 <= file_fields["rows"] < MAX_ROWS, MODEL_JSON, f"{name!r} would have {file_fields['rows']:,} rows")
        file_path = directory / name
        require(file_path.is_file(), name, "missing")
        size = file_path.stat().st_size
        size_problem = f"has {size:,} bytes instead of {file_fields['bytes']:,}: truncated or replaced"
        require(size == file_fields["bytes"], name, size_problem)
    for name, entry in listed.items():
        require(file_sha256(directory / name) == entry["sha256"], name, f"its SHA-256 is not the one in {MODEL_JSON}")


def _read_parquet(path: Path, n_rows: int) -> Arrays:
    """Check the schema and size of a file, then read it into arrays."""
    name, schema = path.name, ALL_SCHEMAS[path.name]
    try:
        with pq.ParquetFile(path) as file:
            schema_problem = f"its columns are not {', '.join(schema.names)} with the types they are saved with"
            require(file.schema_arrow.equals(schema), name, schema_problem)
            _check_size(file.metadata, n_rows, path)
            table = file.read()
        table.validate(full=True)
        require(table.schema.equals(schema) and len(table) == n_rows, name, "columns or rows are missing")
    except ModelFormatError:
        raise
    except BAD_INPUT as error:
        require(False, name, f"not a Parquet file that can be read ({str(error)[:100]!r})")
    return {field.name: _array(table[field.name], field, name) for field in schema}


def _check_size(metadata: Any, n_rows: int, path: Path) -> None:
    name = path.name
    require(metadata.num_rows == n_rows, name, f"has {metadata.num_rows:,} rows instead of {n_rows:,}")
    group_sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    # In memory, a row of the widest table takes less than 64 bytes plus its text.
    needed_bytes = max(sum(group_sizes), 0) + 64 * n_rows
    is_valid = all(size >= 0 for size in group_sizes) and needed_bytes <= machine_memory()
    size_problem = (
        f"would need {needed_bytes / 2**30:,.1f} GB of memory, and this machine has {machine_memory() / 2**30:,.1f}"
    )
    require(is_valid, name, size_problem)
    byte_limit = UNPACKED_RATIO * path.stat().st_size + UNPACKED_BYTES
    size_problem = (
        f"{path.stat().st_size:,} bytes would unpack to {needed_bytes:,}, and at most {byte_limit:,} are accepted"
    )
    require(needed_bytes <= byte_limit, name, size_problem)


def _array(column: Any, field: Any, name: str) -> np.ndarray[Any, Any]:
    require(field.nullable or column.null_count == 0, name, f"column {field.name!r} has missing values")
    if pa.types.is_string(field.type):
        return np.array(column.to_pylist(), dtype=object)
    return np.asarray(column.to_numpy())
