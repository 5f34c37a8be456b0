"""Write and parse the rules in `model.json`: rule texts and plain numbers, validated whenever a model is loaded."""

from __future__ import annotations

from typing import Any

import polars as pl

from arf_dask.data.stored_fields import parse_fields, require
from arf_dask.errors import OptionError
from arf_dask.rules.evaluation import check_comparison, kind_of
from arf_dask.rules.expressions import Node, columns_of, write
from arf_dask.rules.grammar import parse_expression, parse_rule
from arf_dask.rules.relations import KINDS, Relations, Rule
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import TRANSFORMS, Transform, in_order
from arf_dask.rules.transforms.base import MOST_DECIMALS, is_finite
from arf_dask.schema.columns import Schema
from arf_dask.storage.fields import MODEL_JSON, describe_dtype, parse_dtype
from arf_dask.storage.old_rules import updated_step

_RELATIONS = {"columns": list, "rules": list, "transforms": list}
_COLUMN = {"name": str, "dtype": list, "decimals": int | None, "compared": bool}
_RULE = {"text": str, "kind": str, "columns": list, "share": float, "found": bool}
_TARGET = {"name": str, "decimals": int | None, "low": int | float | None, "high": int | float | None, "nullable": bool}
_STEP = {"kind": str, "target": dict, "expression": str, "details": dict}


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


def check_relations(relations: Relations, schema: Schema) -> None:
    """Raise a ModelFormatError unless the modelled columns and their dtypes match the rules."""
    if not relations.names:
        return
    require(
        schema.names == relations.modelled_names(), MODEL_JSON, "relations: other columns than those that are modelled"
    )
    for name, dtype in schema.dtypes.items():
        transform = relations.owners.get(name)
        expected = relations.dtypes[name] if transform is None else transform.outputs[name]
        require(dtype == expected, MODEL_JSON, f"relations: column {name[:40]!r} is not modelled as {expected}")


def _describe_step(step: Transform) -> dict[str, Any]:
    expression = step.stored_expression
    written = "" if expression is None else write(expression)
    return {"kind": step.kind, "target": step.target.to_dict(), "expression": written, "details": step.details()}


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
    fields = parse_fields(updated_step(data), _STEP, MODEL_JSON, "relations: a transform")
    require(fields["kind"] in TRANSFORMS, MODEL_JSON, "relations: a transform of an unknown kind")
    kind = TRANSFORMS[fields["kind"]]
    target = _parse_target(fields["target"], dtypes)
    where = f"relations: column {target.name[:40]!r}"
    details = parse_fields(fields["details"], kind.detail_types, MODEL_JSON, where)
    node = _parse_node(fields["expression"], target, dtypes, where) if fields["expression"] else None
    return kind.parse(target, node, details, dtypes, where)


def _parse_target(data: Any, dtypes: dict[str, pl.DataType]) -> Target:
    fields = parse_fields(data, _TARGET, MODEL_JSON, "relations: a target")
    require(fields["name"] in dtypes, MODEL_JSON, "relations: a target that is not there")
    is_valid = is_finite(fields["low"]) and is_finite(fields["high"])
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
        is_valid = target.name not in columns_of(node)
    except OptionError as error:
        require(False, MODEL_JSON, f"{where}: {error}")
    require(is_valid, MODEL_JSON, f"{where}: computed from itself")
    return node
