"""Descriptions of models and data sets: dictionaries for `--json`, and lines of text for `inspect`."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from arf_dask.model import Model
from arf_dask.privacy.statement import PrivacyStatement
from arf_dask.refinement.ratio import Refinement
from arf_dask.runtime.display import printable
from arf_dask.schema.columns import Column
from arf_dask.storage.manifest import Manifest
from arf_dask.storage.model_file import model_hash

SHOWN_LEVELS = 4
SHOWN_PARTS = 10
WIDEST = 32  # maximum width of a table cell


def describe_model(model: Model) -> dict[str, Any]:
    """Return a summary of the model as JSON values."""
    return {
        "model_hash": model_hash(model._fitted),
        "rows": model.schema.n_rows,
        "n_columns": len(model.schema.columns),
        "trees": len(model._fitted.tables.trees),
        "leaves": model._fitted.tables.n_leaves,
        "rounds": model.rounds.to_dicts(),
        "refinement": None if model.refinement is None else _describe_refinement(model.refinement),
        "bundles": model.schema.bundles,
        "keys": model.schema.keys,
        "rules": [{**vars(rule), "columns": list(rule.columns)} for rule in model.rules],
        "seed": model.options.get("seed"),
        "privacy": None if model.privacy is None else model.privacy.to_dict(),
    }


def _describe_refinement(refinement: Refinement) -> dict[str, Any]:
    return {
        "rounds": refinement.rounds,
        "gain": refinement.gain.nats,
        "gain_error": refinement.gain.error,
        "acceptance": refinement.acceptance,
        "log_cap": refinement.log_cap,
        "log_z": refinement.log_z,
        "z_error": refinement.z_error,
        "features": refinement.importance.to_dicts(),
    }


def describe_column(column: Column) -> dict[str, Any]:
    """Return a description of one column as JSON values."""
    column_fields: dict[str, Any] = {
        "name": column.name,
        "dtype": str(column.dtype),
        "kind": column.kind,
        "nulls": column.nulls,
    }
    if column.kind == "categorical":
        column_fields["levels"] = column.levels.to_list()
    if column.axis is not None:
        column_fields["low"], column_fields["high"] = _range(column)
        column_fields["spikes"] = column.n_points
    return column_fields


def _range(column: Column) -> tuple[Any, Any]:
    axis = column.axis
    assert axis is not None
    values = axis.from_axis(np.array([axis.low, axis.high]), column.dtype)
    try:
        low, high = values
    except ValueError:  # a year outside 1 to 9999, which Python cannot represent
        low, high = values.cast(pl.String)
    return low, high


def inspection_lines(model: Model, path: str, size: int) -> list[str]:
    """Return the lines that `arf-dask inspect` prints."""
    tables, rounds = model._fitted.tables, model.rounds["accuracy"].to_list()
    forest = f"{len(tables.trees):,} trees, {tables.n_leaves:,} leaves, {tables.family}, {tables.support} support"
    lines = [
        f"model    {path} ({size / 1e6:,.1f} MB), {model_hash(model._fitted)[:12]}",
        f"learned  {model.schema.n_rows:,} rows, {len(model.schema.columns):,} columns",
        f"forest   {forest}",
        f"rounds   {len(rounds)}, out-of-bag accuracy {', '.join(f'{one:.3f}' for one in rounds)} (0.5 is perfect)",
        *([] if model.refinement is None else [f"refined  {model.refinement.summary}"]),
        *([] if model.privacy is None else [f"private  {model.privacy.summary}"]),
        "",
    ]
    table_rows = [["column", "dtype", "kind", "nulls", "values"]]
    for column in model.schema.columns:
        column_cells = [
            printable(column.name),
            printable(str(column.dtype).replace("\n", " ")),
            column.kind,
            f"{column.nulls:,}",
        ]
        table_rows.append([*column_cells, _values(column)])
    widths = [min(max(len(row[column_index]) for row in table_rows), WIDEST) for column_index in range(4)]
    for row in table_rows:
        row_start = (
            cell if len(cell) <= width else cell[: width - 2] + ".."
            for cell, width in zip(row[:4], widths, strict=True)
        )
        lines.append(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row_start, widths, strict=True)), row[4]]).rstrip()
        )
    rules = [rule for rule in model.rules if rule.kind != "together"]
    rule_lines = [f"together  {' + '.join(map(printable, names))}" for names in model.schema.bundles] + [
        f"rule      {printable(str(rule))}" for rule in rules
    ]
    return [*lines, "", *rule_lines] if rule_lines else lines


def manifest_lines(manifest: Manifest) -> list[str]:
    """Return the lines that `arf-dask inspect` prints for a data set."""
    job, parts = manifest.job, manifest.parts
    versions = ", ".join(f"{name} {version}" for name, version in job.written_by.items())
    lines = [
        f"data set  {printable(manifest.path)} ({manifest.bytes / 1e6:,.1f} MB)",
        f"rows      {manifest.rows:,}, synthetic, {len(manifest.columns):,} columns, {len(parts):,} files",
        f"model     {manifest.model_hash[:12]}, seed {manifest.seed}",
        f"written   by {printable(versions)}",
    ]
    if manifest.privacy is not None:
        lines.append(f"private   {PrivacyStatement.read(manifest.privacy).summary}")
    if manifest.given is not None:
        lines.append(f"given     {printable(manifest.given)}")
    width = min(max(map(len, manifest.columns), default=0), WIDEST)
    lines += ["", *(f"{printable(name).ljust(width)}  {printable(kind)}" for name, kind in manifest.columns.items())]
    part_lines = [f"{part.file}  {part.rows:,} rows, {part.bytes:,} bytes" for part in parts[:SHOWN_PARTS]]
    if len(parts) > SHOWN_PARTS:
        part_lines.append(f"... and {len(parts) - SHOWN_PARTS:,} more")
    return [*lines, "", *part_lines]


def check_lines(found: pl.DataFrame, n_rows: int) -> list[str]:
    """Return the lines that `arf-dask check` prints: one per rule, violated rules first."""
    lines = [f"{n_rows:,} rows, {found.height:,} rules"]
    for row in found.sort("broken", descending=True, nulls_last=True).to_dicts():
        if row["rows"] is None:
            lines.append(f"not checked  {printable(row['rule'])}: a column is missing, or there is nothing to check")
            continue
        rule_state = "holds" if not row["broken"] else f"{row['broken']:,} of {row['rows']:,} rows break it"
        share_note = (
            ""
            if row["share"] >= 1 or not row["found"]
            else f" (it held in {100 * row['share']:.3g} % of training rows)"
        )
        lines.append(f"{rule_state}: {printable(row['rule'])}{share_note}")
    return lines


def _values(column: Column) -> str:
    if column.kind == "categorical":
        level_text = ", ".join(printable(str(level)) for level in column.levels.head(SHOWN_LEVELS).to_list())
        more_text = ", .." if len(column.levels) > SHOWN_LEVELS else ""
        return f"{len(column.levels):,} level{'s' if len(column.levels) != 1 else ''}: {level_text}{more_text}"
    if column.axis is not None:
        low, high = _range(column)
        return f"{low} .. {high}" + (f", {column.n_points:,} spikes" if column.n_points else "")
    if column.kind == "computed":
        return "computed by a rule"
    return "fresh values of the same shape" if column.kind == "key" else "nothing but nulls"
