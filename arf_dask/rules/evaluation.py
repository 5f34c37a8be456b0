"""Evaluate expressions on frames: the kind of an expression, its values, and whether rows satisfy a rule."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.errors import OptionError, unknown_column
from arf_dask.rules.expressions import Call, Comparison, Constant, Name, Node, Operation, alternatives, write
from arf_dask.rules.functions import FUNCTIONS, NUMBERS, floor_division, in_calendar, in_one_zone, quotient, remainder

Flags = NDArray[np.bool_]
RELATIVE = 1e-9  # relative tolerance for floats without a fixed number of decimals
ABSOLUTE = 1e-12
SUM_NOISE = 1e-11  # absolute error of sums of floats that were written with about twelve digits
MOST_DIGITS = 10_000  # largest number of characters or digits that functions take as an argument


def kind_of_dtype(dtype: pl.DataType) -> str:
    """Return the kind that rules assign to a dtype.

    >>> [kind_of_dtype(dtype) for dtype in (pl.UInt8(), pl.Decimal(9, 2), pl.Enum(["a"]), pl.Datetime("ms"))]
    ['integer', 'number', 'text', 'datetime']
    """
    if dtype.is_integer() or dtype == pl.Boolean:
        return "integer"
    if dtype.is_numeric():
        return "number"
    if dtype.is_temporal():
        return type(dtype).__name__.lower()
    return "text"


def kind_of(node: Node, dtypes: Mapping[str, pl.DataType], where: str) -> str:
    """Return the kind of an expression; raise an OptionError for unknown columns and incompatible kinds."""
    match node:
        case Constant(str()):
            return "text"
        case Constant(value):
            return "integer" if isinstance(value, int) else "number"
        case Name(column):
            if column not in dtypes:
                raise unknown_column(column, dtypes, where)
            return kind_of_dtype(dtypes[column])
        case Call(name, arguments):
            kinds = [kind_of(argument, dtypes, where) for argument in arguments]
            return _result_of_call(name, arguments, kinds, where)
        case Operation(sign, left, right):
            return _result_of(sign, kind_of(left, dtypes, where), kind_of(right, dtypes, where), node, where)


def check_comparison(rule: Comparison, dtypes: Mapping[str, pl.DataType], where: str) -> None:
    """Raise an OptionError if the two sides of a rule cannot be compared."""
    left_kind, right_kind = (kind_of(side, dtypes, where) for side in (rule.left, rule.right))
    are_numbers = left_kind in NUMBERS and right_kind in NUMBERS
    are_days = {left_kind, right_kind} == {"date", "datetime"}
    if left_kind != right_kind and not are_numbers and not are_days:
        raise OptionError(
            f"{where}: {write(rule.left)} is {_article(left_kind)} and {write(rule.right)} {_article(right_kind)}: "
            "they cannot be compared. Convert one of them with a function such as days(), date() or text()."
        )


def _article(kind: str) -> str:
    return f"an {kind}" if kind == "integer" else f"a {kind}"


def _result_of_call(name: str, arguments: tuple[Node, ...], kinds: list[str], where: str) -> str:
    function = FUNCTIONS[name]
    for index, kind in enumerate(kinds):
        accepted = function.takes[min(index, len(function.takes) - 1)]
        if kind not in accepted:
            raise OptionError(
                f"{where}: {name} takes {' or '.join(accepted)}, and {write(arguments[index])} is {_article(kind)}."
            )
        if (index or name == "one_of") and name not in ("min", "max") and not isinstance(arguments[index], Constant):
            raise OptionError(f"{where}: {name} takes a constant as argument {index + 1}.")
        if index and kind == "integer" and _is_beyond(arguments[index]):
            raise OptionError(f"{where}: {write(arguments[index])}: {name} takes whole numbers up to {MOST_DIGITS:,}.")
    return kinds[0] if function.gives == "first" else function.gives


def _is_beyond(argument: Node) -> bool:
    return isinstance(argument, Constant) and isinstance(argument.value, int) and abs(argument.value) > MOST_DIGITS


def _result_of(sign: str, left: str, right: str, node: Node, where: str) -> str:
    if left in NUMBERS and right in NUMBERS:
        return "number" if sign == "/" or "number" in (left, right) else "integer"
    result_kind = {
        ("+", "text", "text"): "text",
        ("-", "duration", "duration"): "duration",
        ("+", "duration", "duration"): "duration",
        ("/", "duration", "duration"): "number",
        ("-", "time", "time"): "duration",
    }.get((sign, left, right))
    if result_kind is None and left in ("date", "datetime"):
        if sign in ("+", "-") and right == "duration":
            result_kind = left
        elif sign == "-" and right in ("date", "datetime"):
            result_kind = "duration"
    if result_kind is None and left == "duration" and right in ("date", "datetime") and sign == "+":
        result_kind = right
    if result_kind is None and {left, right} <= {"duration", *NUMBERS} and sign in ("*", "/") and left == "duration":
        result_kind = "duration"
    if result_kind is None:
        raise OptionError(f"{where}: {write(node)}: {sign} does not join {_article(left)} and {_article(right)}.")
    return result_kind


def evaluate(node: Node, frame: pl.DataFrame) -> pl.Series:
    """Return the value of an expression in each row, as a series without a name."""
    values = _value(node, frame)
    return values.new_from_index(0, frame.height) if len(values) == 1 and frame.height != 1 else values.alias("")


def _value(node: Node, frame: pl.DataFrame) -> pl.Series:
    match node:
        case Constant(value):
            return pl.Series([value])
        case Name(column):
            return _plain(frame.get_column(column))
        case Call(name, arguments):
            return FUNCTIONS[name].apply(*(in_calendar(_value(argument, frame)) for argument in arguments))
        case Operation(sign, left, right):
            return _joined(sign, _value(left, frame), _value(right, frame))


def _plain(series: pl.Series) -> pl.Series:
    """Cast a column to one of the few dtypes that expressions are computed in."""
    series, dtype = series.alias(""), series.dtype
    if dtype == pl.Boolean or (dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128, pl.UInt64)):
        return series.cast(pl.Int64)
    if dtype.is_integer():
        return series.cast(pl.Int128, strict=False)
    if dtype.is_numeric():
        values = series.cast(pl.Float64)
        return values.set(values.is_nan(), None) if dtype.is_float() else values
    if dtype.is_temporal() or dtype == pl.String:
        return series
    return series.cast(pl.String)


def _joined(sign: str, left: pl.Series, right: pl.Series) -> pl.Series:
    if sign == "/" and not left.dtype.is_temporal():
        return quotient(left, right)
    if sign == "//":
        return floor_division(left, right)
    if sign == "%":
        return remainder(left, right)
    if left.dtype == pl.Date and (sign == "-" or isinstance(right.dtype, pl.Duration)):
        return _date_arithmetic(sign, left, right)
    if right.dtype == pl.Date and isinstance(left.dtype, pl.Duration):
        return _date_arithmetic(sign, right, left)
    if left.dtype == pl.Time and right.dtype == pl.Time:
        return (left.to_physical() - right.to_physical()).cast(pl.Duration("ns")).cast(pl.Duration("us"))
    left, right = in_one_zone(left, right)
    match sign:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case _:
            return left / right


def _date_arithmetic(sign: str, date: pl.Series, other: pl.Series) -> pl.Series:
    """Add or subtract dates and durations in microseconds; the sum of a date and a duration is a datetime."""
    timestamps = in_calendar(date).cast(pl.Datetime("us"))
    other = in_calendar(other).cast(pl.Datetime("us")) if other.dtype == pl.Date else other
    return timestamps - other if sign == "-" else timestamps + other


def agrees(values: pl.Series, formula: pl.Series, decimals: int | None) -> Flags:
    """Flag rows where a column equals the value of a formula; two nulls are equal.

    Integers, dates and texts must be identical, numbers with decimals equal up to half a unit of the last decimal.
    """
    both_null = values.is_null() & formula.is_null()
    if values.dtype.is_numeric():
        is_same = _same_numbers(values, formula, decimals)
    else:
        is_same = values == formula.cast(_plain(values.clear()).dtype, strict=False).cast(values.dtype, strict=False)
    return np.asarray((is_same.fill_null(False) | both_null).to_numpy())


def _same_numbers(values: pl.Series, formula: pl.Series, decimals: int | None) -> pl.Series:
    column_values, formula_values = _plain(values), formula
    if column_values.dtype.is_integer() and formula_values.dtype.is_integer():
        return column_values == formula_values
    column_values, formula_values = column_values.cast(pl.Float64), formula_values.cast(pl.Float64)
    half_unit = 0.5 * 10.0**-decimals * (1 + 1e-6) if decimals is not None else 0.0
    room = (ABSOLUTE, 1e-12) if decimals is not None else (SUM_NOISE, RELATIVE)
    return (column_values - formula_values).abs() <= half_unit + room[0] + column_values.abs() * room[1]


def satisfied(rule: Comparison, frame: pl.DataFrame, decimals: Mapping[str, int | None]) -> tuple[Flags, Flags]:
    """Return two flags per row: whether the rule can be checked (both sides are non-null), and whether it holds."""
    variants = [Comparison(a, rule.sign, b) for a in alternatives(rule.left) for b in alternatives(rule.right)]
    variant_flags = [_satisfied(variant, frame, decimals) for variant in variants]
    return variant_flags[0][0], np.logical_or.reduce([holds for _, holds in variant_flags])


def _satisfied(rule: Comparison, frame: pl.DataFrame, decimals: Mapping[str, int | None]) -> tuple[Flags, Flags]:
    left, right = evaluate(rule.left, frame), evaluate(rule.right, frame)
    is_known = (left.is_not_null() & right.is_not_null()).to_numpy()
    if rule.sign in ("==", "!="):
        digits = decimals.get(rule.left.column) if isinstance(rule.left, Name) else None
        left_values = frame.get_column(rule.left.column).alias("") if isinstance(rule.left, Name) else left
        is_same = (
            agrees(left_values, right, digits)
            if left_values.dtype.is_numeric() or digits is not None
            else _same(left, right)
        )
        return is_known, is_same if rule.sign == "==" else ~is_same
    return is_known, compare(left, rule.sign, right)


def _same(left: pl.Series, right: pl.Series) -> Flags:
    left, right = in_one_zone(left, right)
    return np.asarray((left == right).fill_null(False).to_numpy())


def compare(left: pl.Series, sign: str, right: pl.Series) -> Flags:
    """Flag rows where an order between two columns holds; False where either is null."""
    if left.dtype == pl.Date and isinstance(right.dtype, pl.Datetime):
        left = left.cast(right.dtype)
    elif right.dtype == pl.Date and isinstance(left.dtype, pl.Datetime):
        right = right.cast(left.dtype)
    left, right = in_one_zone(left, right)
    match sign:
        case "<=":
            is_ordered = left <= right
        case "<":
            is_ordered = left < right
        case ">=":
            is_ordered = left >= right
        case _:
            is_ordered = left > right
    return np.asarray(is_ordered.fill_null(False).to_numpy())
