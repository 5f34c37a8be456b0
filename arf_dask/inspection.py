"""What a model knows, as facts for machines and as lines for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from arf_dask.model import Model
from arf_dask.schema import Column
from arf_dask.storage import model_hash

SHOWN_LEVELS = 4
WIDEST = 32  # of a cell


def model_facts(model: Model) -> dict[str, Any]:
    """What there is to say of the whole model."""
    return {
        "model_hash": model_hash(model),
        "rows": model.schema.n_rows,
        "n_columns": len(model.schema.columns),
        "trees": len(model.trees),
        "leaves": model.n_leaves,
        "rounds": model.rounds.to_dicts(),
        "bundles": model.schema.bundles,
        "keys": model.schema.keys,
        "seed": model.options.get("seed"),
    }


def column_facts(column: Column) -> dict[str, Any]:
    """What the model knows of one column."""
    facts: dict[str, Any] = {
        "name": column.name,
        "dtype": str(column.dtype),
        "kind": column.kind,
        "nulls": column.nulls,
    }
    if column.kind == "categorical":
        facts["levels"] = column.levels.to_list()
    if column.axis is not None:
        facts["low"], facts["high"] = _range(column)
        facts["spikes"] = column.n_points
    return facts


def _range(column: Column) -> tuple[Any, Any]:
    axis = column.axis
    assert axis is not None
    low, high = axis.from_axis(np.array([axis.low, axis.high]), column.dtype)
    return low, high


def inspection(model: Model, path: str, size: int) -> list[str]:
    """The lines that `inspect` prints."""
    rounds = model.rounds["accuracy"].to_list()
    lines = [
        f"model    {path} ({size / 1e6:,.1f} MB), {model_hash(model)[:12]}",
        f"learned  {model.schema.n_rows:,} rows, {len(model.schema.columns):,} columns",
        f"forest   {len(model.trees):,} trees, {model.n_leaves:,} leaves, {model.family}, {model.support} support",
        f"rounds   {len(rounds)}, out-of-bag accuracy {', '.join(f'{one:.3f}' for one in rounds)} (0.5 is perfect)",
        "",
    ]
    cells = [["column", "dtype", "kind", "nulls", "values"]]
    for column in model.schema.columns:
        kind = [column.name, str(column.dtype).replace("\n", " "), column.kind, f"{column.nulls:,}"]
        cells.append([*kind, _values(column)])
    widths = [min(max(len(row[i]) for row in cells), WIDEST) for i in range(4)]
    for row in cells:
        start = (cell if len(cell) <= w else cell[: w - 2] + ".." for cell, w in zip(row[:4], widths, strict=True))
        lines.append("  ".join([*(cell.ljust(w) for cell, w in zip(start, widths, strict=True)), row[4]]).rstrip())
    lines += ["", *(f"together  {' + '.join(names)}" for names in model.schema.bundles)]
    return lines if model.schema.bundles else lines[:-1]


def _values(column: Column) -> str:
    if column.kind == "categorical":
        some = ", ".join(str(level) for level in column.levels.head(SHOWN_LEVELS).to_list())
        more = ", .." if len(column.levels) > SHOWN_LEVELS else ""
        return f"{len(column.levels):,} level{'s' if len(column.levels) != 1 else ''}: {some}{more}"
    if column.axis is not None:
        low, high = _range(column)
        return f"{low} .. {high}" + (f", {column.n_points:,} spikes" if column.n_points else "")
    return "fresh values of the same shape" if column.kind == "key" else "nothing but nulls"
