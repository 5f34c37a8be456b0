"""Write and parse the rules in `model.json`: rule texts and plain numbers, validated whenever a model is loaded."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from arf_dask.data.dates import FORMS, has_clock
from arf_dask.data.stored_fields import parse_fields, require
from arf_dask.errors import OptionError
from arf_dask.forest.tables import LeafTables
from arf_dask.rules.evaluation import check_comparison, kind_of
from arf_dask.rules.expressions import Name, Node, columns_of, write
from arf_dask.rules.grammar import parse_expression, parse_rule
from arf_dask.rules.grids import CALENDAR, GRIDS, Dated, Decimals, Indexed
from arf_dask.rules.hourless import Hourless, is_zone
from arf_dask.rules.relations import KINDS, Relations, Rule
from arf_dask.rules.targets import Target
from arf_dask.rules.time_parts import Timed
from arf_dask.rules.transforms import ClockGap, Computed, Gap, Stated, Transform, in_order
from arf_dask.storage.fields import MODEL_JSON, describe_dtype, parse_dtype

_RELATIONS = {"columns": list, "rules": list, "transforms": list}
_COLUMN = {"name": str, "dtype": list, "decimals": int | None, "compared": bool}
_RULE = {"text": str, "kind": str, "columns": list, "share": float, "found": bool}
_TARGET = {"name": str, "decimals": int | None, "low": int | float | None, "high": int | float | None, "nullable": bool}
_STEP = {"kind": str, "target": dict, "expression": str, "details": dict}
_DETAILS: dict[str, dict[str, Any]] = {
    "computed": {},
    "state": {"sentinel": int | float | str},
    "gap": {"sign": int, "least": int | float | None, "levels": list, "decimals": int | None, "step": float | None},
    "clock": {},
    "grid": {"grid": str, "step": float},
    "decimals": {"shares": list},
    "dates": {"form": str, "grid": str},
    "hours": {"form": str, "zone": str},
    "parts": {"weekday": bool, "zone": str, "form": str, "days": list},
}
MOST_DECIMALS = 38
MOST_DAYS = 10_000_000
NUMBER = (int, float)


def describe_relations(relations: Relations) -> dict[str, Any]:
    """Return the rules of a model as plain JSON values."""
    columns = [
        {
            "name": name,
            "dtype": describe_dtype(dtype),
            "decimals": relations.decimals.get(name),
            "compared": name in relations.decimals,
        }
        for name, dtype in relations.dtypes.items()
    ]
    rules = [{**vars(rule), "columns": list(rule.columns), "share": float(rule.share)} for rule in relations.rules]
    return {"columns": columns, "rules": rules, "transforms": [_describe_step(step) for step in relations.transforms]}


def parse_relations(data: Any) -> Relations:
    """Parse the rules of a model. Raises a ModelFormatError for invalid content."""
    fields = parse_fields(data, _RELATIONS, MODEL_JSON, "relations")
    columns = [parse_fields(entry, _COLUMN, MODEL_JSON, "relations: a column") for entry in fields["columns"]]
    dtypes = {
        entry["name"]: parse_dtype(entry["dtype"], f"relations: column {entry['name'][:40]!r}") for entry in columns
    }
    require(len(dtypes) == len(columns), MODEL_JSON, "relations: a column name occurs twice")
    decimals = {entry["name"]: entry["decimals"] for entry in columns if entry["compared"]}
    is_valid = all(value is None or 0 <= value <= MOST_DECIMALS for value in decimals.values())
    require(is_valid, MODEL_JSON, "relations: decimals out of bounds")
    rules = tuple(_parse_rule(entry, dtypes) for entry in fields["rules"])
    transforms = [_parse_step(entry, dtypes) for entry in fields["transforms"]]
    names = [step.target.name for step in transforms]
    require(len(set(names)) == len(names), MODEL_JSON, "relations: a column is decided twice")
    require(in_order(transforms) == transforms, MODEL_JSON, "relations: columns that are computed from each other")
    return Relations(tuple(dtypes), dtypes, decimals, rules, tuple(transforms))


def check_relations(tables: LeafTables) -> None:
    """Raise a ModelFormatError unless the modelled columns and their dtypes match the rules."""
    relations, schema = tables.relations, tables.schema
    if not relations.names:
        return
    require(
        schema.names == relations.modelled_names(), MODEL_JSON, "relations: other columns than those that are modelled"
    )
    for name, dtype in schema.dtypes.items():
        if name in relations.parts:
            dtype_fits = dtype == relations.parts[name].dtypes[name]
            require(dtype_fits, MODEL_JSON, f"relations: column {name[:40]!r} is not modelled as a part of a time")
            continue
        transform = relations.targets.get(name)
        if transform is None:
            require(dtype == relations.dtypes[name], MODEL_JSON, f"relations: column {name[:40]!r} has two types")
            continue
        if isinstance(transform, Decimals):
            continue
        if isinstance(transform, Dated):
            plain_dtype = pl.Datetime("us") if has_clock(transform.form) else pl.Date()
            dtype_fits = dtype == (pl.Int64() if transform.grid else plain_dtype)
            require(dtype_fits, MODEL_JSON, f"relations: column {name[:40]!r} is not modelled as dates")
            continue
        if isinstance(transform, Hourless):
            dtype_fits = dtype == pl.Datetime("us")
            require(dtype_fits, MODEL_JSON, f"relations: column {name[:40]!r} is not modelled as timestamps")
            continue
        expected = (
            pl.Int64()
            if isinstance(transform, Indexed | ClockGap)
            else pl.String()
            if transform.target.is_text
            else pl.Float64()
            if transform.target.is_float
            else pl.Int64()
        )
        require(dtype == expected, MODEL_JSON, f"relations: column {name[:40]!r} is not modelled in its units")


def _describe_step(step: Transform) -> dict[str, Any]:
    details: dict[str, Any] = {}
    match step:
        case Computed(target, formula):
            kind, expression = "computed", formula
        case Stated(target, formula, sentinel):
            kind, expression, details = "state", formula, {"sentinel": sentinel}
        case Gap(target, base, sign, least, levels, decimals, spacing):
            kind, expression = "gap", base
            details = {"sign": sign, "least": least, "levels": list(levels), "decimals": decimals, "step": spacing}
        case ClockGap(target, column):
            kind, expression = "clock", Name(column)
        case Hourless(target, hour, zone, form):
            kind, expression, details = "hours", Name(hour), {"form": form, "zone": zone}
        case Indexed(target, grid, distance):
            return {
                "kind": "grid",
                "target": target.to_dict(),
                "expression": "",
                "details": {"grid": grid, "step": distance},
            }
        case Dated(target, form, grid):
            return {
                "kind": "dates",
                "target": target.to_dict(),
                "expression": "",
                "details": {"form": form, "grid": grid},
            }
        case Timed(target, weekday, zone, form, days):
            details = {"weekday": weekday, "zone": zone, "form": form, "days": list(days or ())}
            return {"kind": "parts", "target": target.to_dict(), "expression": "", "details": details}
        case Decimals(target, shares):
            listed = [[digits, share] for digits, share in shares]
            return {"kind": "decimals", "target": target.to_dict(), "expression": "", "details": {"shares": listed}}
    return {"kind": kind, "target": target.to_dict(), "expression": write(expression), "details": details}


def _parse_rule(data: Any, dtypes: dict[str, pl.DataType]) -> Rule:
    fields = parse_fields(data, _RULE, MODEL_JSON, "relations: a rule")
    where = f"relations: rule {fields['text'][:60]!r}"
    require(fields["kind"] in KINDS and 0 <= fields["share"] <= 1, MODEL_JSON, f"{where}: kind or share unknown")
    is_valid = all(isinstance(name, str) and name in dtypes for name in fields["columns"])
    require(is_valid, MODEL_JSON, f"{where}: a column that is not there")
    if fields["kind"] in ("formula", "order", "difference"):
        try:
            check_comparison(parse_rule(fields["text"]), dtypes, where)
        except OptionError as error:
            require(False, MODEL_JSON, f"{where}: {error}")
    return Rule(fields["text"], fields["kind"], tuple(fields["columns"]), fields["share"], fields["found"])


def _parse_step(data: Any, dtypes: dict[str, pl.DataType]) -> Transform:
    fields = parse_fields(data, _STEP, MODEL_JSON, "relations: a transform")
    require(fields["kind"] in _DETAILS, MODEL_JSON, "relations: a transform of an unknown kind")
    target = _parse_target(fields["target"], dtypes)
    where = f"relations: column {target.name[:40]!r}"
    details = parse_fields(fields["details"], _DETAILS[fields["kind"]], MODEL_JSON, where)
    if fields["kind"] in ("grid", "decimals", "dates", "parts"):
        return _parse_grid(fields["kind"], target, details, where, dtypes)
    node = _parse_node(fields["expression"], target, dtypes, where)
    if fields["kind"] == "computed":
        return Computed(target, node)
    if fields["kind"] == "clock":
        is_valid = isinstance(node, Name) and target.dtype.is_numeric() and target.low is not None
        is_valid = is_valid and kind_of(node, dtypes, where) in ("integer", "number")
        require(is_valid, MODEL_JSON, f"{where}: no clock number")
        return ClockGap(target, columns_of(node)[0])
    if fields["kind"] == "hours":
        is_valid = isinstance(node, Name) and kind_of(node, dtypes, where) in ("integer", "number")
        is_valid = is_valid and (
            details["form"] in FORMS and has_clock(details["form"])
            if target.is_text
            else isinstance(target.dtype, pl.Datetime) and not details["form"]
        )
        is_valid = is_valid and (not details["zone"] or is_zone(details["zone"]))
        require(is_valid, MODEL_JSON, f"{where}: no timestamp with an hour")
        return Hourless(target, columns_of(node)[0], details["zone"], details["form"])
    if fields["kind"] == "state":
        is_valid = isinstance(details["sentinel"], str) == target.is_text and _finite(details["sentinel"])
        require(is_valid, MODEL_JSON, f"{where}: a state that its type does not have")
        return Stated(target, node, details["sentinel"])
    levels = details["levels"]
    is_valid = all(type(level) in NUMBER and _finite(level) for level in levels) and details["sign"] in (-1, 1)
    is_valid = is_valid and _finite(details["least"]) and not target.is_text and target.low is not None
    is_valid = is_valid and (details["decimals"] is None or 0 <= details["decimals"] <= MOST_DECIMALS)
    is_valid = (
        is_valid and _finite(details["step"]) and (details["step"] is None or (target.is_float and details["step"] > 0))
    )
    require(is_valid, MODEL_JSON, f"{where}: a gap out of bounds")
    gap_fields = tuple(levels), details["decimals"], details["step"]
    return Gap(target, node, details["sign"], details["least"], *gap_fields)


def _parse_grid(
    kind: str, target: Target, details: dict[str, Any], where: str, dtypes: dict[str, pl.DataType]
) -> Transform:
    if kind == "decimals":
        shares = details["shares"]
        is_valid = target.is_float and all(
            isinstance(share, list) and len(share) == 2 and type(share[0]) is int and type(share[1]) is float
            for share in shares
        )
        is_valid = is_valid and all(0 <= share[0] <= MOST_DECIMALS and 0 <= share[1] <= 1 for share in shares)
        require(is_valid, MODEL_JSON, f"{where}: decimals out of bounds")
        return Decimals(target, tuple((share[0], share[1]) for share in shares))
    if kind == "dates":
        is_valid = target.is_text and details["form"] in FORMS and details["grid"] in ("", *CALENDAR)
        require(is_valid, MODEL_JSON, f"{where}: dates in an unknown form")
        return Dated(target, details["form"], details["grid"])
    if kind == "parts":
        is_valid = (target.is_text and details["form"] in FORMS and has_clock(details["form"])) or (
            not details["form"] and isinstance(target.dtype, pl.Date | pl.Datetime)
        )
        is_valid = is_valid and (not details["zone"] or is_zone(details["zone"]))
        is_valid = is_valid and len(details["days"]) == (2 if details["form"] else 0)
        is_valid = is_valid and all(type(day) is int and abs(day) < MOST_DAYS for day in details["days"])
        require(is_valid, MODEL_JSON, f"{where}: parts that its type does not have")
        timed = Timed(target, details["weekday"], details["zone"], details["form"], tuple(details["days"]) or None)
        require(not set(timed.names) & set(dtypes), MODEL_JSON, f"{where}: parts with the name of a column")
        return timed
    is_calendar = details["grid"] in CALENDAR
    is_valid = details["grid"] in GRIDS and _finite(details["step"]) and details["step"] > 0
    is_valid = is_valid and (
        isinstance(target.dtype, pl.Date | pl.Datetime) if is_calendar else target.dtype.is_numeric()
    )
    require(is_valid, MODEL_JSON, f"{where}: a grid that its type does not have")
    return Indexed(target, details["grid"], details["step"])


def _parse_target(data: Any, dtypes: dict[str, pl.DataType]) -> Target:
    fields = parse_fields(data, _TARGET, MODEL_JSON, "relations: a target")
    require(fields["name"] in dtypes, MODEL_JSON, "relations: a target that is not there")
    is_valid = _finite(fields["low"]) and _finite(fields["high"])
    is_valid = is_valid and (fields["low"] is None) == (fields["high"] is None)
    is_valid = is_valid and (fields["low"] is None or fields["low"] <= fields["high"])
    is_valid = is_valid and (fields["decimals"] is None or 0 <= fields["decimals"] <= MOST_DECIMALS)
    require(is_valid, MODEL_JSON, f"relations: column {fields['name'][:40]!r}: a range out of order")
    name = fields.pop("name")
    return Target(name, dtypes[name], **fields)


def _parse_node(text: str, target: Target, dtypes: dict[str, pl.DataType], where: str) -> Node:
    try:
        node = parse_expression(text)
        kind_of(node, dtypes, where)
        is_valid = target.name not in columns_of(node) and bool(columns_of(node)) and node != Name(target.name)
    except OptionError as error:
        require(False, MODEL_JSON, f"{where}: {error}")
    require(is_valid, MODEL_JSON, f"{where}: computed from itself or from nothing")
    return node


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
