"""Conditions as Polars expressions, such as `(pl.col("age") > 30) & pl.col("state").is_in(["CA", "NY"])`.

An expression is a condition if it combines, with `&`, `|` and `~`, expressions of one column each. What an expression
says about a column with levels is found by evaluating it on the levels; comparisons of numbers, dates and times become
intervals. The rows of a condition are those that `DataFrame.filter` keeps: null satisfies no comparison, and NaN is
greater than every number.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

import polars as pl

from arf_dask.data.axes import FLOATS
from arf_dask.data.value_sets import Box, Interval, ValueSet, meet
from arf_dask.errors import OptionError

MOST_ALTERNATIVES = 256
CONJUNCTIONS, DISJUNCTIONS = ("And", "LogicalAnd"), ("Or", "LogicalOr")
HORIZONTAL = {"AllHorizontal": True, "AnyHorizontal": False}  # whether all inputs must hold
COMPARISONS = ("Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity")
MIRRORED = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
CLOSED = {"Both": "both", "Left": "left", "Right": "right", "None": "none"}
OTHERS = {"NotEq": "Eq", "NotEqValidity": "EqValidity", "IsNotNull": "IsNull", "IsNotNan": "IsNan"}  # the complements


class Columns(Protocol):
    """What an expression may refer to."""

    def dtype(self, name: str) -> pl.DataType:
        """Return the dtype of a column; raise an OptionError for columns that have no conditions."""

    def levels(self, name: str) -> pl.Series | None:
        """Return all values of a column that has only a few; None for others."""


@dataclass(frozen=True)
class _Reader:
    """The reader of one expression."""

    expression: pl.Expr
    columns: Columns
    where: str

    def boxes(self, tree: Any, wanted: bool) -> list[Box]:
        """Return the boxes in which the expression is true, or false if it is not `wanted`."""
        match tree:
            case {"Alias": [inner, _]}:
                return self.boxes(inner, wanted)
            case {"Function": {"input": [inner], "function": {"Boolean": "Not"}}}:
                return self.boxes(inner, not wanted)
            case {"BinaryExpr": {"left": left, "op": op, "right": right}} if op in CONJUNCTIONS + DISJUNCTIONS:
                return self._joined([left, right], (op in CONJUNCTIONS) == wanted, wanted)
            case {"Function": {"input": inputs, "function": {"Boolean": str(name)}}} if name in HORIZONTAL:
                return self._joined(inputs, HORIZONTAL[name] == wanted, wanted)
        return [self._box(tree, wanted)]

    def _joined(self, trees: list[Any], all_hold: bool, wanted: bool) -> list[Box]:
        sides = [self.boxes(tree, wanted) for tree in trees]
        if not all_hold:
            return [box for boxes in sides for box in boxes]
        joined: list[Box] = [{}]
        for boxes in sides:
            if len(joined) * len(boxes) > MOST_ALTERNATIVES:
                raise self._error(f"stands for more than {MOST_ALTERNATIVES} alternatives. Give a simpler condition.")
            joined = [meet(one, other) for one, other in product(joined, boxes)]
        return joined

    def _box(self, tree: Any, wanted: bool) -> Box:
        names = list(dict.fromkeys(_columns_of(tree)))
        if len(names) != 1:
            listed = " and ".join(map(repr, names)) or "no column"
            raise self._error(f"compares {listed}. Give comparisons of one column with values, joined by &, | and ~.")
        (name,) = names
        dtype, levels = self.columns.dtype(name), self.columns.levels(name)
        if levels is not None:
            return {name: self._of_levels(tree, wanted, name, levels)}
        match tree:
            case {"Column": _}:
                raise self._error(f"says nothing about {name!r}. Compare it with a value.")
        held, is_defined = self._of_numbers(tree, name, dtype)
        return {name: held if wanted else held.complement(null=is_defined)}

    def _of_levels(self, tree: Any, wanted: bool, name: str, levels: pl.Series) -> ValueSet:
        """Evaluate the expression on the levels of a column, and on null."""
        values = pl.concat([levels.alias(name), pl.Series(name, [None], dtype=levels.dtype)])
        try:
            holds = values.to_frame().select(_expression(tree).alias("holds")).get_column("holds")
        except pl.exceptions.PolarsError as error:
            raise self._error(
                f"cannot be evaluated on {name!r} ({levels.dtype}): {str(error).splitlines()[0]}."
            ) from error
        if holds.dtype != pl.Boolean or len(holds) != len(values):
            raise self._error("is neither true nor false in every row.")
        kept = values.filter(holds if wanted else ~holds)
        spans = ValueSet.read(kept.drop_nulls().to_list(), levels.dtype, self.where).spans if kept.count() else ()
        return ValueSet(levels.dtype, null=kept.null_count() > 0, spans=spans)

    def _of_numbers(self, tree: Any, name: str, dtype: pl.DataType) -> tuple[ValueSet, bool]:
        """Return the values of a column for which the expression is true, and whether it is true or false for null."""
        nothing = ValueSet(dtype)
        match tree:
            case {"BinaryExpr": {"left": {"Column": _}, "op": str(op), "right": right}} if op in COMPARISONS:
                return self._compared(op, right, name, dtype)
            case {"BinaryExpr": {"left": left, "op": str(op), "right": {"Column": _}}} if op in COMPARISONS:
                return self._compared(MIRRORED.get(op, op), left, name, dtype)
            case {"Function": {"input": [{"Column": _}, *rest], "function": {"Boolean": function}}}:
                match function, rest:
                    case str(other), _ if other in OTHERS:
                        opposite = {**tree["Function"], "function": {"Boolean": OTHERS[other]}}
                        held, is_defined = self._of_numbers({"Function": opposite}, name, dtype)
                        return held.complement(null=is_defined), is_defined
                    case "IsNull", []:
                        return ValueSet(dtype, null=True), True
                    case "IsNan", []:
                        return ValueSet(dtype, nan=dtype in FLOATS), False
                    case "IsFinite", []:
                        return ValueSet.numbers(dtype), False
                    case {"IsBetween": {"closed": closed}}, [low, high]:
                        ends = Interval(self._value(low, name), self._value(high, name), CLOSED[closed])  # type: ignore[arg-type]
                        return self._read(ends, dtype, name), False
                    case {"IsIn": _}, [choices]:
                        values = [one for one in self._value(choices, name) if one is not None]
                        return (self._read(values, dtype, name) if values else nothing), False
        raise self._error(
            f"says of {name!r} what conditions cannot. Compare it with a value, or use is_between, is_in, is_null, "
            "is_not_null or is_nan."
        )

    def _compared(self, op: str, side: Any, name: str, dtype: pl.DataType) -> tuple[ValueSet, bool]:
        """Return the values of a column for which a comparison with a constant is true."""
        value = self._value(side, name)
        if op in OTHERS:
            held, is_defined = self._compared(OTHERS[op], side, name, dtype)
            return held.complement(null=is_defined), is_defined
        if op == "EqValidity":
            return self._read(value, dtype, name), True
        if value is None:
            raise self._error(f"compares {name!r} with null, which no row satisfies. Use is_null().")
        if op == "Eq":
            return self._read(value, dtype, name), False
        if op in ("Lt", "LtEq"):
            return self._read(Interval(None, value, "right" if op == "LtEq" else "none"), dtype, name), False
        held = self._read(Interval(value, None, "left" if op == "GtEq" else "none"), dtype, name)
        return ValueSet(dtype, nan=dtype in FLOATS, spans=held.spans), False

    def _read(self, known: Any, dtype: pl.DataType, name: str) -> ValueSet:
        return ValueSet.read(known, dtype, f"{self.where}: {name!r}")

    def _value(self, tree: Any, name: str) -> Any:
        """Evaluate an expression without columns."""
        if any(True for _ in _columns_of(tree)):
            raise self._error(f"compares {name!r} with itself. Compare it with a value.")
        value = pl.select(_expression(tree)).item()
        return value.to_list() if isinstance(value, pl.Series) else value

    def _error(self, problem: str) -> OptionError:
        return OptionError(f"{self.where}: {self.expression} {problem}")


def read_expression(expression: pl.Expr, columns: Columns, where: str = "given") -> list[Box]:
    """Return the boxes in which an expression is true, as alternatives.

    Args:
        expression: the condition.
        columns: the columns that it may refer to.
        where: the name of the argument in error messages.

    Raises:
        OptionError: The expression is not a condition on single columns.
    """
    try:
        tree = json.loads(expression.meta.serialize(format="json"))
    except (ValueError, TypeError, pl.exceptions.PolarsError) as error:
        raise OptionError(f"{where}: {expression} holds a Python function. Give a dict of columns.") from error
    return _Reader(expression, columns, where).boxes(tree, True)


def _columns_of(tree: Any) -> Iterator[str]:
    """Yield the columns of a serialised expression."""
    match tree:
        case {"Column": str(name)}:
            yield name
        case {"Literal": _}:
            return
        case dict():
            for inner in tree.values():
                yield from _columns_of(inner)
        case list():
            for inner in tree:
                yield from _columns_of(inner)


def _expression(tree: Any) -> pl.Expr:
    return pl.Expr.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
