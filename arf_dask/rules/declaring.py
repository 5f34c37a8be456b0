"""Parse and check declared rules: texts, Polars expressions, or lists of columns to model together."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from arf_dask.errors import OptionError, unknown_column
from arf_dask.rules.contradictions import check_contradictions
from arf_dask.rules.evaluation import check_comparison
from arf_dask.rules.expressions import MIRRORED, Call, Comparison, Constant, Name, Node, Operation, columns_of
from arf_dask.rules.grammar import parse_rule
from arf_dask.rules.solving import solve

SIGNS = {"Eq": "==", "NotEq": "!=", "LtEq": "<=", "Lt": "<", "GtEq": ">=", "Gt": ">"}
ARITHMETIC = {
    "Plus": "+", "Minus": "-", "Multiply": "*", "TrueDivide": "/", "Divide": "/", "FloorDivide": "//", "Modulus": "%"
}  # fmt: skip
TEMPORAL = {
    "Year": "year", "Month": "month", "Day": "day", "WeekDay": "weekday", "Quarter": "quarter", "Week": "week",
    "OrdinalDay": "day_of_year", "Hour": "hour", "Minute": "minute", "Second": "second", "Date": "date", "Time": "time",
}  # fmt: skip
TEXTUAL = {"Uppercase": "upper", "Lowercase": "lower", "Titlecase": "title"}


@dataclass(frozen=True)
class Declared:
    """Parsed rules of the caller: comparisons, and groups of columns to model together."""

    comparisons: tuple[Comparison, ...] = ()
    together: tuple[tuple[str, ...], ...] = ()


def read_rules(rules: Sequence[Any] | None) -> Declared:
    """Parse the rules that are passed to `fit`.

    Raises:
        OptionError: A rule cannot be parsed.
    """
    if rules is None:
        return Declared()
    if isinstance(rules, str) or not isinstance(rules, Sequence):
        raise OptionError(f"rules={rules!r}: give a list of rules, such as ['start <= end', ['country', 'currency']].")
    comparisons, together = [], []
    for rule in rules:
        if isinstance(rule, str):
            comparisons.append(parse_rule(rule))
        elif isinstance(rule, pl.Expr):
            comparisons.append(read_expression(rule))
        elif isinstance(rule, Sequence) and rule and all(isinstance(name, str) for name in rule):
            if len(set(rule)) < 2:
                raise OptionError(
                    f"rules: {list(rule)!r} names fewer than two columns. Give the columns that go together."
                )
            together.append(tuple(dict.fromkeys(rule)))
        else:
            raise OptionError(f"rules: {rule!r} is no rule. Give a text, a Polars expression, or a list of columns.")
    return Declared(tuple(comparisons), tuple(together))


def check_declared(declared: Declared, dtypes: Mapping[str, pl.DataType], keys: Collection[str]) -> None:
    """Raise an OptionError for rules that do not fit the columns, or that contradict each other."""
    for group in declared.together:
        for name in group:
            if name not in dtypes:
                raise unknown_column(name, dtypes, "rules")
            if name in keys:
                raise OptionError(
                    f"rules: {name!r} is a key and belongs together with nothing. Take it out of one of the two."
                )
    rules_by_target: dict[str, Comparison] = {}
    group_by_name = {name: group for group in declared.together for name in group}
    if len(group_by_name) < sum(map(len, declared.together)):
        raise OptionError("rules: a column belongs to two lists of columns that go together. Make one list of them.")
    for rule in declared.comparisons:
        rule_label = f"rule '{rule}'"
        check_comparison(rule, dtypes, rule_label)
        used_keys = [name for name in rule.columns if name in keys]
        if used_keys:
            raise OptionError(
                f"{rule_label}: {used_keys[0]!r} is a key, made afresh in every row. Take it out of one of the two."
            )
        target = formula_target(rule)
        if target is None:
            continue
        if target in group_by_name:
            raise OptionError(
                f"{rule_label} decides {target!r}, which {list(group_by_name[target])!r} decides too. Keep one of them."
            )
        if target in rules_by_target:
            raise OptionError(
                f"{rule_label} contradicts rule '{rules_by_target[target]}': both decide {target!r}. Keep one of them."
            )
        rules_by_target[target] = rule
    _check_circles(rules_by_target)
    check_contradictions(declared.comparisons)


def formula_target(rule: Comparison) -> str | None:
    """Return the column that an equation determines: alone on one side, or else the first it can be solved for."""
    if rule.sign != "==":
        return None
    for side, other_side in ((rule.left, rule.right), (rule.right, rule.left)):
        if isinstance(side, Name) and side.column not in columns_of(other_side):
            return side.column
    return next((name for name in rule.columns if solve(rule, name) is not None), None)


def formula_of(rule: Comparison, target: str) -> Node:
    """Return the expression for a column that a rule determines."""
    if rule.left == Name(target):
        return rule.right
    if rule.right == Name(target):
        return rule.left
    solved = solve(rule, target)
    assert solved is not None
    return solved


def _check_circles(decided: Mapping[str, Comparison]) -> None:
    """Raise an OptionError if columns would be computed from each other."""
    for start in decided:
        path, name = [start], start
        while True:
            decided_inputs = [n for n in columns_of(formula_of(decided[name], name)) if n in decided]
            if not decided_inputs:
                break
            name = next((n for n in decided_inputs if n in path), decided_inputs[0])
            if name in path:
                rule_texts = " and ".join(f"'{decided[n]}'" for n in path[path.index(name) :])
                raise OptionError(
                    f"rules {rule_texts} go in circles: {name!r} would be computed from itself. Drop one of them."
                )
            path.append(name)


# Polars expressions.


def read_expression(expression: pl.Expr) -> Comparison:
    """Translate a Polars comparison to a rule.

    Raises:
        OptionError: The expression is not a comparison, or has parts that rules do not support.
    """
    try:
        expression_tree = json.loads(expression.meta.serialize(format="json"))
    except (ValueError, TypeError, pl.exceptions.PolarsError) as error:
        raise _untranslatable(expression) from error
    binary_expression = expression_tree.get("BinaryExpr") if isinstance(expression_tree, dict) else None
    if not binary_expression or binary_expression.get("op") not in SIGNS:
        raise OptionError(f"rules: {expression} compares nothing. Use ==, !=, <=, <, >= or > between two expressions.")
    rule = Comparison(
        _node(binary_expression["left"], expression),
        SIGNS[binary_expression["op"]],
        _node(binary_expression["right"], expression),
    )
    return parse_rule(str(rule))  # applies the checks for texts


def _node(tree: Any, expression: pl.Expr) -> Node:
    match tree:
        case {"Column": str(name)}:
            return Name(name)
        case {"Literal": literal}:
            return Constant(_literal(literal, expression))
        case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in ARITHMETIC:
            return Operation(ARITHMETIC[op], _node(left, expression), _node(right, expression))
        case {"Function": {"input": [inner, *rest], "function": function}}:
            return _call(_node(inner, expression), rest, function, expression)
    raise _untranslatable(expression)


def _call(inner: Node, rest: list[Any], function: Any, expression: pl.Expr) -> Node:
    match function:
        case {"TemporalExpr": str(part)} if part in TEMPORAL and not rest:
            return Call(TEMPORAL[part], (inner,))
        case {"StringExpr": str(part)} if part in TEXTUAL and not rest:
            return Call(TEXTUAL[part], (inner,))
        case {"Round": {"decimals": int(decimals)}}:
            return Call("round", (inner, Constant(decimals)))
        case "Abs" | "Floor" | "Ceil":
            return Call(function.lower(), (inner,))
    raise _untranslatable(expression)


def _literal(literal: Any, expression: pl.Expr) -> int | float | str:
    match literal:
        case {"Dyn": {"Int": int(value)}} | {"Dyn": {"Float": int(value) | float(value)}}:
            return value
        case {"Scalar": {"String": str(value)}}:
            return value
        case {"Scalar": dict(scalar)} if len(scalar) == 1:
            value = next(iter(scalar.values()))
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value
    raise _untranslatable(expression)


def _untranslatable(expression: pl.Expr) -> OptionError:
    return OptionError(
        f"rules: {expression} has parts that rules do not have. Write it as text, as docs/relations.md describes."
    )


def as_order(rule: Comparison) -> Comparison:
    """Return an order with the lower side on the left."""
    return rule if rule.sign in ("<=", "<") else Comparison(rule.right, MIRRORED[rule.sign], rule.left)
