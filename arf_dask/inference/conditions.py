"""Parsing of conditions and events: values, intervals, choices and alternatives as sets of tokens and spans.

A condition on one column is a set of its tokens (null, NaN, levels, spikes) and of spans on its axis. A *conjunction*
maps columns to such sets; a condition is a list of disjoint conjunctions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from arf_dask.errors import OptionError, unknown_column
from arf_dask.inference.readings import level_token, number_place
from arf_dask.schema.columns import (
    FIRST_LEVEL,
    NAN,
    NULL,
    Column,
    Schema,
)
from arf_dask.typing import Flags


@dataclass(frozen=True)
class Interval:
    """An interval of numbers, dates or durations from `low` to `high`; None means unbounded on that side.

    Args:
        low: The lower end; None for no lower bound.
        high: The upper end; None for no upper bound.
        closed: Which ends are included: "both" (as in the short form `(low, high)`), "left", "right" or "none".

    Raises:
        OptionError: If `closed` has another value.

    Examples:
        >>> import arf_dask, polars as pl
        >>> model = arf_dask.fit(pl.DataFrame({"n": [i % 10 for i in range(200)]}), trees=5, seed=1)
        >>> round(model.probability({"n": arf_dask.Interval(0, 5, closed="left")}), 2)
        0.5
    """

    low: Any = None
    high: Any = None
    closed: Literal["both", "left", "right", "none"] = "both"

    def __post_init__(self) -> None:
        if self.closed not in ("both", "left", "right", "none"):
            raise OptionError(f'Interval: closed={self.closed!r}. Say "both", "left", "right" or "none".')


class Span(NamedTuple):
    """A closed span of an axis. On a grid the ends are half-integers; for floats, low == high is a single value."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        return self.low == self.high


class Allowed(NamedTuple):
    """The values of one column that satisfy a condition."""

    tokens: Flags  # per token: null, NaN, levels or spikes, and for numbers "between"
    spans: tuple[Span, ...]  # disjoint spans of allowed numbers between the spikes
    line: bool  # whether the column is numeric: the last token is "between"
    grid: bool

    @property
    def empty(self) -> bool:
        return not self.tokens.any()

    @property
    def exact(self) -> bool:
        """Whether it contains single values of a continuous density."""
        return any(span.exact for span in self.spans)


Conjunction = dict[int, Allowed]  # by the position of the column in the schema


def parse(given: Any, schema: Schema, where: str = "given") -> list[Conjunction]:
    """Parse a condition into disjoint conjunctions.

    Args:
        given: a mapping of column names to conditions, or a list of such mappings as alternatives.
        schema: the columns of the model.
        where: the name of the argument in error messages.
    """
    conjunctions = alternatives(given, schema, where)
    exact_sets = {exact_columns(conjunction) for conjunction in conjunctions}
    if len(exact_sets) > 1:
        names = sorted({schema.columns[position].name for positions in exact_sets for position in positions})
        raise OptionError(
            f"{where}: alternatives that fix different float columns to exact values cannot be compared, as each has "
            f"probability zero ({', '.join(map(repr, names))}). Give intervals instead, or fix the same columns in all."
        )
    return disjoint(conjunctions)


def alternatives(given: Any, schema: Schema, where: str = "given", *, mixed: bool = False) -> list[Conjunction]:
    """Parse the alternatives of a condition, in the given order; they may overlap.

    With `mixed`, choices may combine single values of a density with values of positive probability, as in an event.
    """
    if isinstance(given, Mapping):
        return [_conjunction(given, schema, where, mixed)]
    if (
        not isinstance(given, Sequence)
        or isinstance(given, str)
        or not all(isinstance(entry, Mapping) for entry in given)
    ):
        raise OptionError(
            f"{where} is a {type(given).__name__}. Give a dict of column to value, interval or list of choices; "
            "a list of such dicts; or a frame with one condition per row."
        )
    if not given:
        raise OptionError(f"{where}: an empty list. Give at least one alternative.")
    return [_conjunction(alternative, schema, where, mixed) for alternative in given]


def exact_columns(conjunction: Conjunction) -> frozenset[int]:
    """Return the positions of the columns that are fixed to single values of a density."""
    return frozenset(position for position, allowed in conjunction.items() if allowed.exact)


def both(some: Iterable[Conjunction], others: Sequence[Conjunction]) -> list[Conjunction]:
    """Return all nonempty pairwise intersections of two lists of conjunctions."""
    intersections = []
    for first in some:
        for second in others:
            together = {**first, **second}
            for position in first.keys() & second.keys():
                together[position] = intersect(first[position], second[position])
            if not any(allowed.empty for allowed in together.values()):
                intersections.append(together)
    return intersections


def disjoint(conjunctions: Sequence[Conjunction]) -> list[Conjunction]:
    """Return disjoint conjunctions with the same union."""
    disjoint_parts: list[Conjunction] = []
    for conjunction in conjunctions:
        remaining_parts = [conjunction]
        for taken in disjoint_parts:
            remaining_parts = [part for remaining in remaining_parts for part in _without(remaining, taken)]
        disjoint_parts += remaining_parts
    return disjoint_parts


def everything(column: Column) -> Allowed:
    """Return the set of all values of a column."""
    grid = column.axis is not None and column.axis.grid
    if column.kind == "categorical":
        return Allowed(np.ones(FIRST_LEVEL + column.n_points, dtype=bool), (), False, False)
    return Allowed(np.ones(column.between + 1, dtype=bool), (Span(-math.inf, math.inf),), True, grid)


def without_values(allowed: Allowed) -> Allowed:
    """Return the set without single values of a density, which have probability zero."""
    return _with_spans(allowed.tokens, tuple(span for span in allowed.spans if not span.exact), allowed)


def intersect(one: Allowed, other: Allowed) -> Allowed:
    """Return the intersection of two sets."""
    spans = dict.fromkeys(
        Span(max(first.low, second.low), min(first.high, second.high))
        for first in one.spans
        for second in other.spans
        if max(first.low, second.low) < min(first.high, second.high)
        or (
            not one.grid
            and max(first.low, second.low) == min(first.high, second.high)
            and (first.exact or second.exact)
        )
    )
    return _with_spans(one.tokens & other.tokens, tuple(spans), one)


def subtract(one: Allowed, other: Allowed) -> Allowed:
    """Return the set difference."""
    spans = list(one.spans)
    for cut in other.spans:
        spans = [part for span in spans for part in _cut(span, cut, one.grid)]
    tokens = one.tokens & ~other.tokens
    return _with_spans(tokens, tuple(spans), one)


def _with_spans(tokens: Flags, spans: tuple[Span, ...], like: Allowed) -> Allowed:
    tokens = tokens.copy()
    if like.line:
        tokens[-1] = bool(spans)
    return Allowed(tokens, spans, like.line, like.grid)


def _cut(span: Span, cut: Span, grid: bool) -> list[Span]:
    if cut.exact and not span.exact:
        return [span]  # removing a single value of a density changes nothing
    if cut.high < span.low or cut.low > span.high or (grid and (cut.high == span.low or cut.low == span.high)):
        return [span]
    parts = []
    if cut.low > span.low:
        parts.append(Span(span.low, cut.low if grid else math.nextafter(cut.low, -math.inf)))
    if cut.high < span.high:
        parts.append(Span(cut.high if grid else math.nextafter(cut.high, math.inf), span.high))
    # Drop single numbers that remain of an interval: they have probability zero.
    return [part for part in parts if part.low < part.high]


def _without(conjunction: Conjunction, taken: Conjunction) -> list[Conjunction]:
    """Split the part of a conjunction outside another by the first column in which it lies outside."""
    common_part: Conjunction = dict(conjunction)
    outside_parts = []
    for position, allowed in taken.items():
        current_set = common_part.get(position)
        inside_set = allowed if current_set is None else intersect(current_set, allowed)
        outside_set = subtract(_everything_like(allowed) if current_set is None else current_set, allowed)
        if not outside_set.empty:
            outside_parts.append({**common_part, position: outside_set})
        if inside_set.empty:
            return outside_parts
        common_part[position] = inside_set
    return outside_parts


def _everything_like(like: Allowed) -> Allowed:
    spans = (Span(-math.inf, math.inf),) if like.line else ()
    return Allowed(np.ones_like(like.tokens), spans, like.line, like.grid)


def _conjunction(given: Mapping[Any, Any], schema: Schema, where: str, mixed: bool) -> Conjunction:
    allowed_sets: Conjunction = {}
    for name, column_condition in given.items():
        if name not in schema.names:
            raise unknown_column(name, schema.names, where)
        position = schema.names.index(name)
        column = schema.columns[position]
        if column.kind == "key":
            raise OptionError(
                f"{where}: {name!r} is an identifier and not modelled. Leave it out, and set it in the result."
            )
        if column.kind == "empty":
            if column_condition is not None:
                raise OptionError(f"{where}: {name!r} held nothing but nulls in training. Only None is possible.")
            continue
        allowed_sets[position] = _allowed(column_condition, column, f"{where}: {name!r}", mixed)
    return allowed_sets


def _allowed(known: Any, column: Column, where: str, mixed: bool) -> Allowed:
    if isinstance(known, tuple):
        if len(known) != 2:
            raise OptionError(
                f"{where}: a tuple is an interval (low, high), and this one has {len(known)} entries. "
                "Give two, with None for an open end, or a list of choices."
            )
        known = Interval(*known)
    if isinstance(known, Interval):
        return _interval(known, column, where)
    if isinstance(known, Mapping):
        raise OptionError(f"{where}: a dict says nothing about a column. Give a value, an interval or a list.")
    if is_choices(known):
        return _choices(list(known), column, where, mixed)
    return _scalar(known, column, where)


def is_choices(known: Any) -> bool:
    """Return whether the value is a list of choices: any iterable except strings and bytes."""
    return not isinstance(known, str | bytes) and isinstance(known, Iterable)


def _choices(known: list[Any], column: Column, where: str, mixed: bool) -> Allowed:
    if not known:
        raise OptionError(f"{where}: an empty list. Give at least one choice.")
    choice_sets = [_allowed(choice, column, where, mixed) for choice in known]
    tokens = np.logical_or.reduce([part.tokens for part in choice_sets])
    any_exact = any(part.exact for part in choice_sets)
    mass = [
        choice
        for choice, part in zip(known, choice_sets, strict=True)
        if not part.exact and not _is_empty_value(choice)
    ]
    if any_exact and mass and not mixed:
        raise OptionError(
            f"{where}: single values of a density among choices that have a probability of their own ({mass[0]!r}): "
            "they cannot be weighed against each other. Give intervals around them instead."
        )
    spans: list[Span] = []
    for part in choice_sets:
        new_spans = list(part.spans)
        for taken in spans:
            new_spans = [remaining_span for span in new_spans for remaining_span in _cut(span, taken, part.grid)]
        spans += new_spans
    return Allowed(tokens, tuple(sorted(spans)), choice_sets[0].line, choice_sets[0].grid)


def _is_empty_value(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def _scalar(value: Any, column: Column, where: str) -> Allowed:
    tokens = np.zeros_like(everything(column).tokens)
    line, grid = everything(column)[2:]
    if value is None:
        tokens[NULL] = True
        return Allowed(tokens, (), line, grid)
    if column.kind == "categorical":
        tokens[level_token(value, column, where)] = True
        return Allowed(tokens, (), False, False)
    assert column.axis is not None
    if not grid and _is_empty_value(value):
        tokens[NAN] = True
        return Allowed(tokens, (), line, grid)
    axis_value = number_place(value, column, where, exact=True)
    low, high = (
        (math.ceil(axis_value) - 0.5, math.floor(axis_value) + 0.5) if grid else (float(axis_value), float(axis_value))
    )
    if column.axis.coarse:
        low, high = math.floor(axis_value) - 0.5, math.floor(axis_value) + 0.5
    return _numbers(low, high, column)


def _interval(known: Interval, column: Column, where: str) -> Allowed:
    if column.kind == "categorical":
        raise OptionError(f"{where} has levels ({column.dtype}), not numbers. Give a level, or a list of levels.")
    if known.low is None and known.high is None:
        return _numbers(-math.inf, math.inf, column)
    axis_ends = []
    for end, sign, side in ((known.low, -1, "left"), (known.high, 1, "right")):
        axis_value = sign * math.inf if end is None else number_place(end, column, where, exact=False)
        axis_ends.append((axis_value, end is None or known.closed in ("both", side)))
    (low, low_closed), (high, high_closed) = axis_ends
    if low > high or (low == high and not (low_closed and high_closed)):
        raise OptionError(f"{where}: the interval from {known.low!r} to {known.high!r} is empty. Give low <= high.")
    assert column.axis is not None
    if not column.axis.grid:
        first_value = float(low) if low_closed else math.nextafter(float(low), math.inf)
        last_value = float(high) if high_closed else math.nextafter(float(high), -math.inf)
        return _numbers(first_value, last_value, column)
    if math.isfinite(low):
        low = (math.ceil(low) if low_closed else math.floor(low) + 1) - 0.5
    if math.isfinite(high):
        high = (math.floor(high) if high_closed else math.ceil(high) - 1) + 0.5
    return _numbers(float(low), float(high), column)


def _numbers(low: float, high: float, column: Column) -> Allowed:
    """Return all numbers from `low` to `high` on the axis: the spikes, and the span between them."""
    tokens = np.zeros(column.between + 1, dtype=bool)
    assert column.axis is not None
    tokens[FIRST_LEVEL:-1] = (column.points >= low) & (column.points <= high)
    one_spike = low == high and tokens.any()
    spans = (Span(low, high),) if low <= high and not one_spike else ()
    if column.axis.grid and low >= high:
        spans = ()
    tokens[-1] = bool(spans)
    return Allowed(tokens, spans, True, column.axis.grid)
