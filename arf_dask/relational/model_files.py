"""Save and load models of several tables: a directory with a model per table, and `tables.json`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from arf_dask.data.stored_fields import parse_fields, require
from arf_dask.errors import ModelFormatError, OptionError
from arf_dask.relational.chains import Chain
from arf_dask.relational.families import TablesFitted
from arf_dask.relational.graph import Reference, TableGraph
from arf_dask.relational.histories import HistoryShape
from arf_dask.relational.links import CLASS, FIXED, SELF, Link
from arf_dask.runtime.disk import file_sha256, library_versions, resolve_path, sync_to_disk
from arf_dask.runtime.replacement import current_path
from arf_dask.runtime.urls import is_url, local_path
from arf_dask.storage.fields import BAD_INPUT, MODEL_JSON, describe_dtype, json_value, parse_dtype
from arf_dask.storage.model_file import LIBRARIES, model_hash, read_fitted, replacing, save
from arf_dask.storage.rule_fields import describe_relations, parse_relations
from arf_dask.typing import PathLike

TABLES_JSON = "tables.json"
FORMAT, VERSION = "arf_dask tables", 1
GIVE = "Give a directory that `TablesModel.save` wrote, with all of its files."
_TOP = {
    "format": str,
    "version": int,
    "written_by": dict,
    "tables": list,
    "drawing": list,
    "keys": dict,
    "context": dict,
    "links": list,
    "order": dict,
    "counts": dict,
    "options": dict,
}
_TABLE = {
    "name": str,
    "role": str,
    "rows": int,
    "columns": list,
    "block_roots": int | None,
    "chain": dict | None,
    "directory": str,
    "sha256": str,
}
_REFERENCE = {"table": str, "column": str, "parent": str}
_LINK = {"reference": dict, "kind": str, "common": str | None, "distinct": bool}
_CHAIN = {"relations": dict, "shape": dict, "steps": list, "repeats": list, "parents": list, "base": str | None}
_SHAPE = {"previous": list, "running": list, "order": str | None, "last_time": float | None}


def holds_tables(path: PathLike) -> bool:
    """Return whether a local directory holds a model of several tables."""
    return not is_url(path) and (current_path(Path(local_path(path))) / TABLES_JSON).is_file()


def save_tables(fitted: TablesFitted, path: PathLike) -> None:
    """Write a model to a directory. An existing model of tables is replaced; other content raises an OptionError."""
    if is_url(path):
        raise OptionError(f"path {str(path)!r}: models of several tables are saved to local directories.")
    target = _check_target(Path(local_path(path)))
    with replacing(path, target, _check_target) as staging:
        _write(fitted, staging)


def read_tables(path: PathLike) -> TablesFitted:
    """Read and validate a model of several tables. Raises a ModelFormatError if it is invalid."""
    directory = current_path(Path(local_path(path)))
    try:
        return _read(directory)
    except ModelFormatError as error:
        raise ModelFormatError(f"model {str(path)!r}: {error}") from error
    except BAD_INPUT as error:
        raise ModelFormatError(f"model {str(path)!r}: {type(error).__name__}: {error}. {GIVE}") from error


def tables_hash(fitted: TablesFitted) -> str:
    """Return the SHA-256 of a model's content, which is invariant under `save_tables` and `read_tables`."""
    digest = hashlib.sha256(json.dumps(_described(fitted), sort_keys=True, allow_nan=False).encode())
    for name in fitted.graph.tables:
        if name in fitted.fixed:
            frame = fitted.fixed[name]
            digest.update(frame.hash_rows(seed=0).to_numpy().tobytes())
        else:
            digest.update(model_hash(_model_of(fitted, name)).encode())
    return digest.hexdigest()


def _check_target(path: Path) -> Path:
    target = resolve_path(path)
    if not target.parent.is_dir():
        raise OptionError(f"path {str(path)!r}: there is no directory {str(target.parent)!r}. Create it first.")
    if not os.path.lexists(target):
        return target
    if not target.is_dir():
        raise OptionError(f"path {str(path)!r} is a file. Give the name of a new directory.")
    names = sorted(entry.name for entry in target.iterdir())
    if names and TABLES_JSON not in names:
        raise OptionError(
            f"path {str(path)!r} is a directory that holds something else than a model of tables ({names[0]!r}). Give "
            "the name of a new directory."
        )
    return target


def _model_of(fitted: TablesFitted, name: str) -> Any:
    return fitted.roots[name] if name in fitted.roots else fitted.chains[name].fitted


def _write(fitted: TablesFitted, directory: Path) -> None:
    described = _described(fitted)
    for number, table in enumerate(described["tables"]):
        name, place = table["name"], f"table-{number}"
        if table["role"] == "fixed":
            place += ".parquet"
            fitted.fixed[name].write_parquet(directory / place)
            table["sha256"] = file_sha256(directory / place)
        else:
            save(_model_of(fitted, name), directory / place)
            table["sha256"] = file_sha256(directory / place / MODEL_JSON)
        table["directory"] = place
    content = {"format": FORMAT, "version": VERSION, "written_by": library_versions(LIBRARIES), **described}
    text = json.dumps({**content, "sha256": _content_hash(content)}, allow_nan=False, indent=1)
    (directory / TABLES_JSON).write_text(text, encoding="utf-8")
    sync_to_disk(directory / TABLES_JSON)
    sync_to_disk(directory)


def _content_hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _described(fitted: TablesFitted) -> dict[str, Any]:
    """Return everything that is not part of the models of single tables."""
    graph = fitted.graph
    return {
        "tables": [_describe_table(fitted, name) for name in fitted.dtypes],
        "drawing": list(graph.tables),
        "keys": dict(graph.keys),
        "context": {name: asdict(reference) for name, reference in graph.context.items()},
        "links": [asdict(link) for link in fitted.links],
        "order": dict(graph.order),
        "counts": dict(fitted.counts),
        "options": json_value(fitted.options),
    }


def _describe_table(fitted: TablesFitted, name: str) -> dict[str, Any]:
    role = "fixed" if name in fitted.fixed else "root" if name in fitted.roots else "chain"
    return {
        "name": name,
        "role": role,
        "rows": fitted.rows[name],
        "columns": [[column, describe_dtype(dtype)] for column, dtype in fitted.dtypes[name].items()],
        "block_roots": fitted.block_roots.get(name),
        "chain": _describe_chain(fitted.chains[name]) if role == "chain" else None,
        "directory": "",
        "sha256": "",
    }


def _describe_chain(chain: Chain) -> dict[str, Any]:
    return {
        "relations": describe_relations(chain.relations),
        "shape": {**asdict(chain.shape), "previous": list(chain.shape.previous), "running": list(chain.shape.running)},
        "steps": [int(step) for step in chain.steps],
        "repeats": [list(pair) for pair in chain.repeats],
        "parents": list(chain.parents),
        "base": chain.base,
    }


def _read(directory: Path) -> TablesFitted:
    content = json.loads((directory / TABLES_JSON).read_bytes().decode("utf-8"))
    require(isinstance(content, dict), TABLES_JSON, "not a JSON object")
    recorded = content.pop("sha256", None)
    require(content.get("format") == FORMAT, TABLES_JSON, f"not of the format {FORMAT!r}")
    require(content.get("version") == VERSION, TABLES_JSON, f"format version {str(content.get('version'))[:40]}")
    require(recorded == _content_hash(content), TABLES_JSON, "its content does not match its own SHA-256")
    fields = parse_fields(content, _TOP, TABLES_JSON, "its top level")
    tables = [parse_fields(table, _TABLE, TABLES_JSON, "a table") for table in fields["tables"]]
    by_role: dict[str, dict[str, Any]] = {"root": {}, "chain": {}, "fixed": {}}
    for table in tables:
        require(table["role"] in by_role, TABLES_JSON, f"a table of the role {table['role'][:20]!r}")
        by_role[table["role"]][table["name"]] = _read_table(directory, table)
    names = [table["name"] for table in tables]
    require(len(set(names)) == len(names), TABLES_JSON, "a table occurs twice")
    context = {name: _read_reference(one, names) for name, one in fields["context"].items()}
    links = tuple(_read_link(one, names) for one in fields["links"])
    references = tuple(link.reference for link in links)
    drawing = fields["drawing"]
    require(sorted(map(str, drawing)) == sorted(names), TABLES_JSON, "an order of other tables")
    graph = TableGraph(tuple(drawing), fields["keys"], context, references, fields["order"], tuple(by_role["fixed"]))
    dtypes = {table["name"]: _read_columns(table) for table in tables}
    block_roots = {table["name"]: table["block_roots"] for table in tables if table["role"] == "root"}
    fitted = TablesFitted(
        graph,
        dtypes,
        by_role["root"],
        by_role["chain"],
        by_role["fixed"],
        fields["counts"],
        links,
        {table["name"]: table["rows"] for table in tables},
        block_roots,
        fields["options"],
    )
    _check(fitted)
    return fitted


def _read_table(directory: Path, table: Mapping[str, Any]) -> Any:
    path = directory / table["directory"]
    require(Path(table["directory"]).name == table["directory"], TABLES_JSON, "a directory elsewhere")
    file = path if table["role"] == "fixed" else path / MODEL_JSON
    require(file.is_file(), table["directory"], "missing")
    require(file_sha256(file) == table["sha256"], table["directory"], f"its SHA-256 is not the one in {TABLES_JSON}")
    if table["role"] == "fixed":
        return pl.read_parquet(path)
    fitted = read_fitted(path)
    return fitted if table["role"] == "root" else _read_chain(table["chain"], fitted)


def _read_chain(data: Any, fitted: Any) -> Chain:
    fields = parse_fields(data, _CHAIN, TABLES_JSON, "a chain")
    shape = parse_fields(fields["shape"], _SHAPE, TABLES_JSON, "the history of a chain")
    n_variables, n_trees = len(fitted.schema.variables), len(fitted.tables.trees)
    is_valid = all(type(step) is int and 0 <= step < n_variables for step in fields["steps"])
    require(is_valid and len(fields["steps"]) == n_trees, TABLES_JSON, "a chain that draws unknown variables")
    names = set(fitted.schema.names)
    known = [*shape["previous"], *shape["running"], *(name for pair in fields["repeats"] for name in pair)]
    require(all(name in names for name in known), TABLES_JSON, "a chain with unknown columns")
    return Chain(
        fitted,
        parse_relations(fields["relations"]),
        HistoryShape(tuple(shape["previous"]), tuple(shape["running"]), shape["order"], shape["last_time"]),
        tuple(fields["steps"]),
        tuple((flag, lead) for flag, lead in fields["repeats"]),
        tuple(fields["parents"]),
        fields["base"],
    )


def _read_reference(data: Any, names: list[str]) -> Reference:
    reference = Reference(**parse_fields(data, _REFERENCE, TABLES_JSON, "a reference"))
    is_known = reference.table in names and reference.parent in names
    require(is_known, TABLES_JSON, f"a reference between unknown tables: {reference}")
    return reference


def _read_link(data: Any, names: list[str]) -> Link:
    fields = parse_fields(data, _LINK, TABLES_JSON, "a link")
    require(fields["kind"] in (FIXED, CLASS, SELF), TABLES_JSON, f"a link of the kind {fields['kind'][:20]!r}")
    require(fields["common"] is None or fields["common"] in names, TABLES_JSON, "a link below an unknown table")
    return Link(_read_reference(fields["reference"], names), fields["kind"], fields["common"], fields["distinct"])


def _read_columns(table: Mapping[str, Any]) -> dict[str, pl.DataType]:
    where = f"table {table['name'][:40]!r}"
    return {str(column): parse_dtype(dtype, where) for column, dtype in table["columns"]}


def _check(fitted: TablesFitted) -> None:
    """Raise a ModelFormatError unless the parts of the model fit together."""
    graph = fitted.graph
    require(set(graph.context) == set(fitted.chains), TABLES_JSON, "a chain without a parent, or a parent without one")
    require(set(fitted.counts) == set(graph.context), TABLES_JSON, "numbers of children that are missing")
    for name, key in graph.keys.items():
        require(key in fitted.dtypes.get(name, {}), TABLES_JSON, f"no column {key[:40]!r} in {name[:40]!r}")
    for seen, name in enumerate(graph.tables):
        for reference in graph.references_of(name):
            is_before = reference.parent == name or reference.parent in graph.tables[:seen]
            require(is_before, TABLES_JSON, f"tables out of order: {reference}")
    for roots in fitted.block_roots.values():
        require(type(roots) is int and roots >= 1, TABLES_JSON, "blocks without roots")
