"""Solve equations for a column that occurs once, if every operation on it can be inverted."""

from __future__ import annotations

from arf_dask.rules.expressions import Call, Comparison, Constant, Name, Node, Operation, columns_of
from arf_dask.rules.functions import MICROSECONDS

INVERSE_CALLS = {
    **{unit: f"in_{unit}" for unit in MICROSECONDS},
    **{f"in_{unit}": unit for unit in MICROSECONDS},
    "epoch_seconds": "from_epoch_seconds",
    "from_epoch_seconds": "epoch_seconds",
    "epoch_milliseconds": "from_epoch_milliseconds",
    "from_epoch_milliseconds": "epoch_milliseconds",
}


def solve(equation: Comparison, column: str, *, is_text: bool = False) -> Node | None:
    """Return the expression that a column equals, or None if the equation cannot be solved for it.

    Args:
        equation: the equation.
        column: the column to solve it for.
        is_text: whether the equation compares texts, which can be joined but not subtracted.

    >>> from arf_dask.rules.expressions import write
    >>> from arf_dask.rules.grammar import parse_rule
    >>> write(solve(parse_rule("total == price * (1 - discount)"), "discount"))
    '1 - total / price'
    """
    left, right = equation.left, equation.right
    if column not in columns_of(left):
        left, right = right, left
    if _times(left, column) != 1 or _times(right, column):
        return None
    while not isinstance(left, Name):
        next_sides = None if is_text else _undo(left, right, column)
        if next_sides is None:
            return None
        left, right = next_sides
    return right


# The parts of times that are set by adding durations, with the unit of these durations.
SHIFTED_PARTS = {"day": "days", "weekday": "days", "hour": "hours", "minute": "minutes", "second": "seconds"}

STARTS = ("date", "hour_start", "month_start", "quarter_start", "year_start")  # what times are moved to, with the rest


def adjust(equation: Comparison, column: str) -> Node | None:
    """Return a column changed only in the part of its values that a formula takes of them, or None for others.

    >>> from arf_dask.rules.expressions import write
    >>> from arf_dask.rules.grammar import parse_rule
    >>> write(adjust(parse_rule("hour == clock // 100"), "clock"))
    'hour * 100 + clock % 100'
    """
    match equation.right:
        case Operation("//", Name(name), Constant() as divisor) if name == column:
            return Operation("+", Operation("*", equation.left, divisor), Operation("%", Name(column), divisor))
        case Operation("%", Name(name), Constant() as divisor) if name == column:
            kept_digits = Operation("*", Operation("//", Name(column), divisor), divisor)
            return Operation("+", kept_digits, equation.left)
        case Call("before", (Name(name), mark)) if name == column:
            return Operation("+", Operation("+", equation.left, mark), Call("after", (Name(column), mark)))
        case Call("after", (Name(name), mark)) if name == column:
            return Operation("+", Operation("+", Call("before", (Name(column), mark)), mark), equation.left)
        case Call(start, (Name(name),)) if name == column and start in STARTS:
            return Operation("+", Name(column), Operation("-", equation.left, equation.right))
        case Call(part, (Name(name),)) if name == column and part in SHIFTED_PARTS:
            difference = Operation("-", equation.left, equation.right)
            return Operation("+", Name(column), Call(SHIFTED_PARTS[part], (difference,)))
    return None


def _times(node: Node, column: str) -> int:
    match node:
        case Name(name):
            return int(name == column)
        case Operation(_, left, right):
            return _times(left, column) + _times(right, column)
        case Call(_, arguments):
            return sum(_times(argument, column) for argument in arguments)
        case _:
            return 0


def _undo(left: Node, right: Node, column: str) -> tuple[Node, Node] | None:
    """Undo the outermost operation on the side with the column; None if it cannot be inverted."""
    match left:
        case Operation(sign, inner, other) if _times(inner, column):
            opposite = {"+": "-", "-": "+", "*": "/", "/": "*"}.get(sign)
            return None if opposite is None or _is_text(other) else (inner, Operation(opposite, right, other))
        case Operation("+", other, inner):
            return None if _is_text(other) else (inner, Operation("-", right, other))
        case Operation("-", other, inner):
            return inner, Operation("-", other, right)
        case Operation("*", other, inner):
            return inner, Operation("/", right, other)
        case Operation("/", other, inner):
            return inner, Operation("/", other, right)
        case Call(("clock" | "clock24"), (inner,)):
            # Minutes are determined only up to whole days: use those of a single day.
            return inner, Call("clock_minutes", (right,))
        case Call(function, (inner,)) if function in INVERSE_CALLS:
            return inner, Call(INVERSE_CALLS[function], (right,))
        case Call("clock_minutes", (inner,)):
            return inner, Call("clock", (right,))
        case Call("round", (inner, *_)):
            return inner, right
    return None


def _is_text(node: Node) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, str)
