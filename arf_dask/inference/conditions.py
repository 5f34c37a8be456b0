"""Conditions on modelled columns, as sets of tokens and of spans on the axes of their columns.

A condition on one column allows some of its tokens (null, NaN, levels, spikes) and spans of its axis. A *conjunction*
maps columns to such sets; a condition is a list of disjoint conjunctions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.axes import is_numeric
from arf_dask.data.levels import text_of
from arf_dask.data.value_sets import Box, ValueSet, column_values
from arf_dask.errors import OptionError
from arf_dask.schema.columns import FIRST_LEVEL, NAN, NULL, Column, Schema
from arf_dask.typing import Flags, Floats

SHOWN_LEVELS = 5


class Allowed(NamedTuple):
    """The values of one column that satisfy a condition."""

    tokens: Flags  # per token: null, NaN, levels or spikes, and for numbers "between"
    low: Floats  # the disjoint spans of allowed numbers between the spikes, ascending; half-integers on a grid
    high: Floats  # floats: low == high is a single value of a density
    line: bool  # whether the column is numeric: the last token is "between"
    grid: bool

    @property
    def empty(self) -> bool:
        return not self.tokens.any()

    @property
    def exact(self) -> bool:
        """Whether it contains single values of a continuous density."""
        return bool((self.low == self.high).any())


Conjunction = dict[int, Allowed]  # by the position of the column in the schema


def parse(boxes: Sequence[Box], schema: Schema, where: str = "given", *, mixed: bool = False) -> list[Conjunction]:
    """Convert boxes of modelled columns to disjoint conjunctions; empty ones are left out.

    Args:
        boxes: the alternatives of a condition.
        schema: the columns of the model.
        where: the name of the argument in error messages.
        mixed: see `alternatives`.
    """
    conjunctions = alternatives(boxes, schema, where, mixed=mixed)
    exact_sets = {exact_columns(conjunction) for conjunction in conjunctions}
    if len(exact_sets) > 1 and not mixed:
        names = sorted({schema.columns[position].name for positions in exact_sets for position in positions})
        raise OptionError(
            f"{where}: alternatives that fix different float columns to exact values cannot be compared, as each has "
            f"probability zero ({', '.join(map(repr, names))}). Give intervals instead, or fix the same columns in all."
        )
    return disjoint(conjunctions)


def alternatives(
    boxes: Sequence[Box], schema: Schema, where: str = "given", *, mixed: bool = False
) -> list[Conjunction]:
    """Convert boxes of modelled columns to conjunctions, in the given order; they may overlap.

    With `mixed`, choices may combine single values of a density with values of positive probability, as in an event.
    """
    conjunctions = [read_box(box, schema, where, mixed=mixed) for box in boxes]
    return [one for one in conjunctions if not any(allowed.empty for allowed in one.values())]


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
        return Allowed(np.ones(FIRST_LEVEL + column.n_points, dtype=bool), *_no_spans(), False, False)
    return Allowed(np.ones(column.between + 1, dtype=bool), *_whole_line(), True, grid)


def without_values(allowed: Allowed) -> Allowed:
    """Return the set without single values of a density, which have probability zero."""
    is_span = allowed.low < allowed.high
    return _with_spans(allowed.tokens, allowed.low[is_span], allowed.high[is_span], allowed)


def intersect(one: Allowed, other: Allowed) -> Allowed:
    """Return the intersection of two sets."""
    # The spans of each set are disjoint and ascending, so that those that meet one span are neighbours.
    first = np.searchsorted(other.high, one.low, side="left")
    stop = np.searchsorted(other.low, one.high, side="right")
    n_meeting = np.maximum(stop - first, 0)
    mine = np.repeat(np.arange(len(one.low)), n_meeting)
    theirs = np.arange(n_meeting.sum()) - np.repeat(np.cumsum(n_meeting) - n_meeting, n_meeting) + first[mine]
    low, high = np.maximum(one.low[mine], other.low[theirs]), np.minimum(one.high[mine], other.high[theirs])
    is_single = (one.low[mine] == one.high[mine]) | (other.low[theirs] == other.high[theirs])
    is_kept = (low < high) | ((low == high) & is_single & (not one.grid))
    return _with_spans(one.tokens & other.tokens, low[is_kept], high[is_kept], one)


def subtract(one: Allowed, other: Allowed) -> Allowed:
    """Return the set difference."""
    # Removing a single value of a density changes nothing, except for that single value.
    values = other.low[other.low == other.high]
    is_value = (one.low == one.high) & np.isin(one.low, values)
    rest = intersect(one._replace(low=one.low[~is_value], high=one.high[~is_value]), _complement(other))
    # Drop single numbers that remain of an interval: they have probability zero.
    is_kept = (rest.low < rest.high) | np.isin(rest.low, one.low[one.low == one.high])
    return _with_spans(one.tokens & ~other.tokens, rest.low[is_kept], rest.high[is_kept], one)


def _complement(allowed: Allowed) -> Allowed:
    """Return the spans between those of a set; single values are ignored."""
    spans = without_values(allowed)
    low, high = np.concatenate([[-np.inf], spans.high]), np.concatenate([spans.low, [np.inf]])
    if not allowed.grid:
        low[1:], high[:-1] = np.nextafter(low[1:], np.inf), np.nextafter(high[:-1], -np.inf)
    is_kept = low < high
    return spans._replace(low=low[is_kept], high=high[is_kept])


def _with_spans(tokens: Flags, low: Floats, high: Floats, like: Allowed) -> Allowed:
    tokens = tokens.copy()
    if like.line:
        tokens[-1] = len(low) > 0
    return Allowed(tokens, low, high, like.line, like.grid)


def _no_spans() -> tuple[Floats, Floats]:
    return np.empty(0), np.empty(0)


def _whole_line() -> tuple[Floats, Floats]:
    return np.array([-np.inf]), np.array([np.inf])


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
    spans = _whole_line() if like.line else _no_spans()
    return Allowed(np.ones_like(like.tokens), *spans, like.line, like.grid)


def read_box(box: Box, schema: Schema, where: str = "given", *, mixed: bool = False) -> Conjunction:
    """Convert a box of modelled columns to a conjunction, in which sets may be empty."""
    allowed_sets: Conjunction = {}
    for name, wanted in box.items():
        position = schema.positions[name]
        column = schema.columns[position]
        if column.kind == "empty":
            if not wanted.null:
                raise OptionError(f"{where}: {name!r} held nothing but nulls in training. Only None is possible.")
            continue
        read = allowed_levels if column.kind == "categorical" else allowed_numbers
        allowed_sets[position] = read(wanted, column)
        if not mixed:
            _check_weights(wanted, allowed_sets[position], f"{where}: {name!r}")
    return allowed_sets


def allowed_levels(wanted: ValueSet, column: Column) -> Allowed:
    """Return the levels of a column that belong to a set."""
    tokens = np.concatenate([[wanted.null, wanted.nan], wanted.contains(column.levels)])
    return Allowed(tokens, *_no_spans(), False, False)


def unseen_level(wanted: ValueSet, column: Column, where: str) -> OptionError | None:
    """Return an error that suggests similar levels if a single value of a set is no level of its column, else None."""
    points, levels = wanted.points, text_of(column.levels)
    texts = text_of(column_values(points, wanted.dtype) if is_numeric(wanted.dtype) else pl.Series(points))
    unseen = (~texts.is_in(levels.implode())).arg_true()
    if not len(unseen):
        return None
    close_levels = get_close_matches(str(texts[unseen[0]]), levels.to_list(), n=SHOWN_LEVELS)
    if close_levels:
        hint = f"Did you mean {', '.join(map(repr, close_levels))}?"
    else:
        more_levels = ", .." if len(levels) > SHOWN_LEVELS else ""
        hint = f"There are {', '.join(map(repr, levels[:SHOWN_LEVELS].to_list()))}{more_levels}."
    return OptionError(f"{where}: the level {points[unseen[0]]!r} was never seen. {hint}")


def allowed_numbers(wanted: ValueSet, column: Column) -> Allowed:
    """Return the spikes of a numeric column that belong to a set, and the spans between them."""
    assert column.axis is not None
    low, high = _axis_spans(wanted, column)
    tokens = np.zeros(column.between + 1, dtype=bool)
    tokens[NULL], tokens[NAN] = wanted.null, wanted.nan
    span = np.searchsorted(low, column.points, side="right") - 1
    tokens[FIRST_LEVEL:-1] = (span >= 0) & (column.points <= high[span]) if len(low) else False
    # A single value that is a spike is no value of the density.
    is_kept = (low < high) | ~np.isin(low, column.points)
    tokens[-1] = is_kept.any()
    return Allowed(tokens, low[is_kept], high[is_kept], True, column.axis.grid)


def _axis_spans(wanted: ValueSet, column: Column) -> tuple[Floats, Floats]:
    """Return the ends of the spans on the axis of a column, without empty spans."""
    axis = column.axis
    assert axis is not None
    if not axis.grid:
        ends = np.array(wanted.spans, dtype=np.float64).reshape(-1, 2)
        low, high = np.ldexp(ends, -axis.exponent).T
        return low, high
    # The physical value of axis value x is (origin + x * step) * 2 ** shift.
    origin, step = axis.origin << axis.shift, axis.step << axis.shift
    last = np.array([_last_point(span.high, origin, step) for span in wanted.spans])
    first = np.array([-_last_point(-span.low, -origin, step) for span in wanted.spans])
    if axis.coarse:  # several values share a point of the axis
        first = np.where([span.is_point for span in wanted.spans], last, first)
    low, high = first - 0.5, last + 0.5
    is_kept = low < high
    return _joined_spans(low[is_kept], high[is_kept])


def _last_point(end: Any, origin: int, step: int) -> float:
    """Return the axis value of the last grid point that is not above an end; infinite beyond the range of floats."""
    if end in (-math.inf, math.inf):
        return float(end)
    place = (int(end) - origin) // step
    return float(place) if abs(place) < 2**62 else math.copysign(math.inf, place)


def _joined_spans(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Join ascending spans that overlap or touch each other."""
    if not len(low):
        return low, high
    high = np.maximum.accumulate(high)
    starts = np.concatenate([[True], low[1:] > high[:-1]])
    return low[starts], high[np.concatenate([starts[1:], [True]])]


def _check_weights(wanted: ValueSet, allowed: Allowed, where: str) -> None:
    """Raise an OptionError if single values of a density are to be weighed against values of positive probability."""
    has_mass = allowed.tokens[FIRST_LEVEL:-1].any() or (allowed.low < allowed.high).any()
    if allowed.exact and has_mass:
        values = column_values([end for span in wanted.spans for end in span], wanted.dtype)
        raise OptionError(
            f"{where}: single values of a density among choices that have a probability of their own "
            f"({values.min()!r} to {values.max()!r}): they cannot be weighed against each other. Give intervals around "
            "them instead."
        )
