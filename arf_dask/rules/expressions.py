"""Expressions over the columns of a row, as trees of constants, columns, operations and function calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

PLAIN_NAME = re.compile(r"[^\W\d]\w*")
BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2}
COMPARISONS = ("==", "!=", "<=", "<", ">=", ">")
MIRRORED = {"==": "==", "!=": "!=", "<=": ">=", "<": ">", ">=": "<=", ">": "<"}


@dataclass(frozen=True)
class Name:
    """A reference to a column."""

    column: str


@dataclass(frozen=True)
class Constant:
    """A numeric or text constant."""

    value: int | float | str


@dataclass(frozen=True)
class Operation:
    """Two expressions joined by one of ``+ - * / // %``."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Call:
    """A function call."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Name | Constant | Operation | Call


@dataclass(frozen=True)
class Comparison:
    """A comparison of two expressions."""

    left: Node
    sign: str
    right: Node

    @property
    def columns(self) -> tuple[str, ...]:
        """The distinct columns of both sides, in order of appearance."""
        return tuple(dict.fromkeys((*columns_of(self.left), *columns_of(self.right))))

    def __str__(self) -> str:
        return f"{write(self.left)} {self.sign} {write(self.right)}"


def zone_of(node: Node, column: str) -> str | None:
    """Return the time zone in which an expression reads a column, or None.

    >>> zone_of(Call("hour", (Call("in_zone", (Name("at"), Constant("Asia/Tokyo"))),)), "at")
    'Asia/Tokyo'
    """
    match node:
        case Call("in_zone", (inner, Constant(str() as zone))) if column in columns_of(inner):
            return zone
        case Operation(_, left, right):
            arguments: tuple[Node, ...] = (left, right)
        case Call(_, arguments):
            pass
        case _:
            return None
    zones = (zone_of(argument, column) for argument in arguments)
    return next((found_zone for found_zone in zones if found_zone is not None), None)


def columns_of(node: Node) -> tuple[str, ...]:
    """Return the distinct columns of an expression, in order of appearance."""
    match node:
        case Name(column):
            return (column,)
        case Operation(_, left, right):
            names = (*columns_of(left), *columns_of(right))
        case Call(_, arguments):
            names = tuple(name for argument in arguments for name in columns_of(argument))
        case _:
            return ()
    return tuple(dict.fromkeys(names))


def depends_on_itself(column: str, uses: Mapping[str, Sequence[str]]) -> bool:
    """Whether a column is computed from itself, directly or through others; `uses` maps columns to their inputs.

    >>> depends_on_itself("a", {"a": ["b"], "b": ["a"]}), depends_on_itself("a", {"a": ["b"], "b": ["b"]})
    (True, False)
    """
    visited: set[str] = set()
    pending = list(uses.get(column, ()))
    while pending:
        name = pending.pop()
        if name not in visited:
            visited.add(name)
            pending += uses.get(name, ())
    return column in visited


def write(node: Node) -> str:
    """Return the text of an expression, which `grammar.parse_expression` parses to an equal expression.

    >>> write(Operation("*", Name("unit price"), Operation("-", Constant(1), Name("discount"))))
    '`unit price` * (1 - discount)'
    """
    return _write(node, 0)


def write_name(column: str) -> str:
    """Return the name of a column as written in rules: in backticks unless it is a plain identifier."""
    return column if PLAIN_NAME.fullmatch(column) else "`" + column.replace("`", "``") + "`"


def _write(node: Node, binding: int) -> str:
    match node:
        case Name(column):
            return write_name(column)
        case Constant(str() as value):
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case Constant(value):
            text = repr(value)
            return f"({text})" if binding and text.startswith("-") else text
        case Call(function, arguments):
            return f"{function}({', '.join(_write(argument, 0) for argument in arguments)})"
        case Operation(sign, left, right):
            own_binding = BINDING[sign]
            # A right operand of equal precedence keeps its parentheses: a - (b - c).
            text = f"{_write(left, own_binding)} {sign} {_write(right, own_binding + 1)}"
            return f"({text})" if own_binding < binding else text


def alternatives(node: Node) -> list[Node]:
    """Return the expression once for each constant of `one_of`, with `one_of` replaced by the constant.

    >>> [write(node) for node in alternatives(Operation("+", Name("a"), Call("one_of", (Constant(0), Constant(5)))))]
    ['a + 0', 'a + 5']
    """
    match node:
        case Call("one_of", arguments):
            return list(arguments)
        case Operation(sign, left, right):
            return [Operation(sign, a, b) for a in alternatives(left) for b in alternatives(right)]
        case Call(function, arguments):
            argument_lists: list[tuple[Node, ...]] = [()]
            for argument in arguments:
                argument_lists = [
                    (*before, alternative) for before in argument_lists for alternative in alternatives(argument)
                ]
            return [Call(function, argument_list) for argument_list in argument_lists]
        case _:
            return [node]


def split_remainder(node: Node) -> tuple[Node, tuple[float | int, ...]]:
    """Split `base + one_of(...)` into the base and the constants; other expressions have no constants."""
    match node:
        case Operation("+", left, Call("one_of", arguments)):
            levels = [
                argument.value
                for argument in arguments
                if isinstance(argument, Constant) and not isinstance(argument.value, str)
            ]
            if len(levels) == len(arguments):
                return left, tuple(levels)
    return node, ()
