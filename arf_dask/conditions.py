"""What a caller knows, or asks for: values, intervals, choices, and alternatives of these, as sets of tokens and spans.

A condition on a column is a set: some of its tokens (null, NaN, levels, spikes) and some spans of its number line. A
*piece* has one such set for each of a few columns; a condition is a list of pieces that do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from arf_dask.errors import OptionError, unknown_column
from arf_dask.readings import level_token, number_place
from arf_dask.schema import FIRST_LEVEL, NAN, NULL, Column, Flags, Schema


@dataclass(frozen=True)
class Interval:
    """Numbers, dates or durations from `low` to `high`; None leaves an end open.

    `closed` says which ends belong to it: "both" (as in the short form `(low, high)`), "left", "right" or "none".
    """

    low: Any = None
    high: Any = None
    closed: Literal["both", "left", "right", "none"] = "both"

    def __post_init__(self) -> None:
        if self.closed not in ("both", "left", "right", "none"):
            raise OptionError(f'Interval: closed={self.closed!r}. Say "both", "left", "right" or "none".')


class Span(NamedTuple):
    """Part of a number line, both ends included. On a grid the ends are halves; for floats low = high is one value."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        return self.low == self.high


class Allowed(NamedTuple):
    """The values of one column that satisfy a condition."""

    tokens: Flags  # per token: null, NaN, levels or spikes, and for numbers "between"
    spans: tuple[Span, ...]  # the numbers between the spikes that do, apart from each other
    line: bool  # a number line: the last token is "between"
    grid: bool

    @property
    def empty(self) -> bool:
        return not self.tokens.any()

    @property
    def exact(self) -> bool:
        """Whether it holds single values of a density."""
        return any(span.exact for span in self.spans)


Piece = dict[int, Allowed]  # by the place of the column in the schema


def parse(given: Any, schema: Schema, where: str = "given") -> list[Piece]:
    """The pieces of a condition: a mapping of columns to what is known, or several of which any may hold."""
    pieces = alternatives(given, schema, where)
    fixed = {frozenset(place for place, allowed in piece.items() if allowed.exact) for piece in pieces}
    if len(fixed) > 1:
        names = sorted({schema.columns[place].name for places in fixed for place in places})
        raise OptionError(
            f"{where}: alternatives that fix different float columns to exact values cannot be compared, as each has "
            f"probability zero ({', '.join(map(repr, names))}). Give intervals instead, or fix the same columns in all."
        )
    return disjoint(pieces)


def alternatives(given: Any, schema: Schema, where: str = "given", *, mixed: bool = False) -> list[Piece]:
    """The alternatives of a condition as they stand: they may overlap.

    With `mixed`, single values of a density may stand beside what has a probability of its own, as in an event.
    """
    if isinstance(given, Mapping):
        return [_piece(given, schema, where, mixed)]
    if not isinstance(given, Sequence) or isinstance(given, str) or not all(isinstance(g, Mapping) for g in given):
        raise OptionError(
            f"{where} is a {type(given).__name__}. Give a dict of column to value, interval or list of choices; "
            "a list of such dicts; or a frame with one condition per row."
        )
    if not given:
        raise OptionError(f"{where}: an empty list. Give at least one alternative.")
    return [_piece(one, schema, where, mixed) for one in given]


def both(some: Iterable[Piece], others: Sequence[Piece]) -> list[Piece]:
    """The pieces of "this and that". Empty ones are left out."""
    joined = []
    for one in some:
        for other in others:
            piece = {**one, **other}
            for place in one.keys() & other.keys():
                piece[place] = intersect(one[place], other[place])
            if not any(allowed.empty for allowed in piece.values()):
                joined.append(piece)
    return joined


def disjoint(pieces: Sequence[Piece]) -> list[Piece]:
    """The same set as pieces that do not overlap."""
    apart: list[Piece] = []
    for piece in pieces:
        rest = [piece]
        for taken in apart:
            rest = [part for one in rest for part in _without(one, taken)]
        apart += rest
    return apart


def everything(column: Column) -> Allowed:
    """No condition at all, as a condition."""
    grid = column.axis is not None and column.axis.grid
    if column.kind == "categorical":
        return Allowed(np.ones(FIRST_LEVEL + column.n_points, dtype=bool), (), False, False)
    return Allowed(np.ones(column.between + 1, dtype=bool), (Span(-math.inf, math.inf),), True, grid)


def without_values(allowed: Allowed) -> Allowed:
    """The same without single values of a density, which have no probability."""
    return _with_spans(allowed.tokens, tuple(span for span in allowed.spans if not span.exact), allowed)


def intersect(one: Allowed, other: Allowed) -> Allowed:
    """What both allow."""
    spans = dict.fromkeys(
        Span(max(a.low, b.low), min(a.high, b.high))
        for a in one.spans
        for b in other.spans
        if max(a.low, b.low) < min(a.high, b.high)
        or (not one.grid and max(a.low, b.low) == min(a.high, b.high) and (a.exact or b.exact))
    )
    return _with_spans(one.tokens & other.tokens, tuple(spans), one)


def subtract(one: Allowed, other: Allowed) -> Allowed:
    """What the first allows and the second does not."""
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
        return [span]  # a single value of a density takes nothing away
    if cut.high < span.low or cut.low > span.high or (grid and (cut.high == span.low or cut.low == span.high)):
        return [span]
    parts = []
    if cut.low > span.low:
        parts.append(Span(span.low, cut.low if grid else math.nextafter(cut.low, -math.inf)))
    if cut.high < span.high:
        parts.append(Span(cut.high if grid else math.nextafter(cut.high, math.inf), span.high))
    # A single number that is left of an interval has no probability, and is not what was asked for.
    return [part for part in parts if part.low < part.high]


def _without(piece: Piece, taken: Piece) -> list[Piece]:
    """The part of a piece outside another: outside in the first column, or inside there and outside in the second .."""
    shared: Piece = dict(piece)
    parts = []
    for place, allowed in taken.items():
        here = shared.get(place)
        inside = allowed if here is None else intersect(here, allowed)
        outside = subtract(_complete(allowed) if here is None else here, allowed)
        if not outside.empty:
            parts.append({**shared, place: outside})
        if inside.empty:
            return parts
        shared[place] = inside
    return parts


def _complete(like: Allowed) -> Allowed:
    spans = (Span(-math.inf, math.inf),) if like.line else ()
    return Allowed(np.ones_like(like.tokens), spans, like.line, like.grid)


def _piece(given: Mapping[Any, Any], schema: Schema, where: str, mixed: bool) -> Piece:
    piece: Piece = {}
    for name, known in given.items():
        if name not in schema.names:
            raise unknown_column(name, schema.names, where)
        place = schema.names.index(name)
        column = schema.columns[place]
        if column.kind == "key":
            raise OptionError(
                f"{where}: {name!r} is an identifier and not modelled. Leave it out, and set it in the result."
            )
        if column.kind == "empty":
            if known is not None:
                raise OptionError(f"{where}: {name!r} held nothing but nulls in training. Only None is possible.")
            continue
        piece[place] = _allowed(known, column, f"{where}: {name!r}", mixed)
    return piece


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
    """Whether this is a list of choices, or anything that can be read as one."""
    return not isinstance(known, str | bytes) and isinstance(known, Iterable)


def _choices(known: list[Any], column: Column, where: str, mixed: bool) -> Allowed:
    if not known:
        raise OptionError(f"{where}: an empty list. Give at least one choice.")
    parts = [_allowed(one, column, where, mixed) for one in known]
    tokens = np.logical_or.reduce([part.tokens for part in parts])
    exact = any(part.exact for part in parts)
    mass = [one for one, part in zip(known, parts, strict=True) if not part.exact and not _is_empty_value(one)]
    if exact and mass and not mixed:
        raise OptionError(
            f"{where}: single values of a density among choices that have a probability of their own ({mass[0]!r}): "
            "they cannot be weighed against each other. Give intervals around them instead."
        )
    spans: list[Span] = []
    for part in parts:
        fresh = list(part.spans)
        for taken in spans:
            fresh = [rest for span in fresh for rest in _cut(span, taken, part.grid)]
        spans += fresh
    return Allowed(tokens, tuple(sorted(spans)), parts[0].line, parts[0].grid)


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
    place = number_place(value, column, where, exact=True)
    low, high = (math.ceil(place) - 0.5, math.floor(place) + 0.5) if grid else (float(place), float(place))
    if column.axis.coarse:
        low, high = math.floor(place) - 0.5, math.floor(place) + 0.5
    return _numbers(low, high, column)


def _interval(known: Interval, column: Column, where: str) -> Allowed:
    if column.kind == "categorical":
        raise OptionError(f"{where} has levels ({column.dtype}), not numbers. Give a level, or a list of levels.")
    if known.low is None and known.high is None:
        return _numbers(-math.inf, math.inf, column)
    ends = []
    for end, sign, side in ((known.low, -1, "left"), (known.high, 1, "right")):
        place = sign * math.inf if end is None else number_place(end, column, where, exact=False)
        ends.append((place, end is None or known.closed in ("both", side)))
    (low, low_closed), (high, high_closed) = ends
    if low > high or (low == high and not (low_closed and high_closed)):
        raise OptionError(f"{where}: the interval from {known.low!r} to {known.high!r} is empty. Give low <= high.")
    assert column.axis is not None
    if not column.axis.grid:
        first = float(low) if low_closed else math.nextafter(float(low), math.inf)
        last = float(high) if high_closed else math.nextafter(float(high), -math.inf)
        return _numbers(first, last, column)
    if math.isfinite(low):
        low = (math.ceil(low) if low_closed else math.floor(low) + 1) - 0.5
    if math.isfinite(high):
        high = (math.floor(high) if high_closed else math.ceil(high) - 1) + 0.5
    return _numbers(float(low), float(high), column)


def _numbers(low: float, high: float, column: Column) -> Allowed:
    """All numbers from low to high on the axis: the spikes there, and the line between them."""
    tokens = np.zeros(column.between + 1, dtype=bool)
    assert column.axis is not None
    tokens[FIRST_LEVEL:-1] = (column.points >= low) & (column.points <= high)
    one_spike = low == high and tokens.any()
    spans = (Span(low, high),) if low <= high and not one_spike else ()
    if column.axis.grid and low >= high:
        spans = ()
    tokens[-1] = bool(spans)
    return Allowed(tokens, spans, True, column.axis.grid)
