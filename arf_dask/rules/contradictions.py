"""Find declared rules that no row can satisfy together, such as a < b and b < a, or a <= 10 and a >= 20."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from arf_dask.errors import OptionError
from arf_dask.rules.expressions import Comparison, Constant, Name, Node

# (lower side, upper side, whether they must differ, the rule that says so; None between two constants)
_Edge = tuple[Node, Node, bool, Comparison | None]


def check_contradictions(rules: Sequence[Comparison]) -> None:
    """Raise an OptionError if orders and equations between columns and constants contradict each other.

    >>> from arf_dask.rules.grammar import parse_rule
    >>> check_contradictions([parse_rule("a <= b"), parse_rule("b <= a")])
    >>> check_contradictions([parse_rule("a < b"), parse_rule("b <= 3"), parse_rule("a > 5")])
    Traceback (most recent call last):
    arf_dask.errors.OptionError: rules 'a < b', 'b <= 3' and 'a > 5' contradict each other. Drop one of them.
    """
    edges = [edge for rule in rules for edge in _edges(rule)]
    constants = {side for low, high, _, _ in edges for side in (low, high) if isinstance(side, Constant)}
    numbers = sorted((c for c in constants if not isinstance(c.value, str)), key=lambda c: float(c.value))
    edges += [(low, high, True, None) for low, high in combinations(numbers, 2) if low.value != high.value]
    for low, high, differs, rule in edges:
        if differs:
            way_back = _path(high, low, edges)
            cycle = [] if way_back is None else [one for one in (rule, *way_back) if one is not None]
            if cycle:
                texts = [f"'{one}'" for one in rules if one in cycle]
                listed = f"{', '.join(texts[:-1])} and {texts[-1]} contradict each other" if texts[1:] else ""
                raise OptionError(f"rules {listed or texts[0] + ' contradict themselves'}. Drop one of them.")


def _edges(rule: Comparison) -> list[_Edge]:
    """Return what a rule says about the order of a column and another column or a constant."""
    if not all(isinstance(side, Name | Constant) for side in (rule.left, rule.right)) or rule.sign == "!=":
        return []
    upwards: _Edge = (rule.left, rule.right, rule.sign == "<", rule)
    downwards: _Edge = (rule.right, rule.left, rule.sign == ">", rule)
    return [
        *([upwards] if rule.sign in ("<", "<=", "==") else []),
        *([downwards] if rule.sign in (">", ">=", "==") else []),
    ]


def _path(start: Node, end: Node, edges: Sequence[_Edge]) -> list[Comparison | None] | None:
    """Return the rules by which one side is at most another, or None."""
    paths: dict[Node, list[Comparison | None]] = {start: []}
    pending = [start]
    while pending:
        node = pending.pop(0)
        for low, high, _, rule in edges:
            if low == node and high not in paths:
                paths[high] = [*paths[node], rule]
                pending.append(high)
    return paths.get(end)
