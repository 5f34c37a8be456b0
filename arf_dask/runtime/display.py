"""Text representations of objects in terminals and (escaped) in notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping


class TextInNotebooks:
    """Mixin that shows the `repr` of an object in notebooks."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def describe_facts(title: str, facts: Mapping[str, str]) -> str:
    """Format a title and one aligned line per non-empty fact.

    >>> print(describe_facts("Model of 3 rows", {"trees": "20", "keys": "", "bundles": "a + b"}))
    Model of 3 rows
      trees    20
      bundles  a + b
    """
    shown = {name: value for name, value in facts.items() if value}
    width = max(map(len, shown), default=0)
    return "\n".join([title, *(f"  {name.ljust(width)}  {value}" for name, value in shown.items())])


def printable(text: str) -> str:
    r"""Escape control characters that a terminal would interpret, such as colours, line ends and direction marks.

    >>> printable("café \x1b[31m") == "café \\x1b[31m"
    True
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def count(number: int, noun: str) -> str:
    """Format a number with its noun in singular or plural.

    >>> count(1, "leaf") + ", " + count(1200, "row")
    '1 leaf, 1,200 rows'
    """
    plural = {"leaf": "leaves"}.get(noun, f"{noun}s")
    return f"{number:,} {noun if number == 1 else plural}"
