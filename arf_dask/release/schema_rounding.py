"""Round the split points of a schema: an exact midpoint between two people's values would reveal both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arf_dask.schema.columns import Schema, Variable
from arf_dask.typing import Floats

MOST_DIGITS = 12


def round_schema(schema: Schema) -> Schema:
    """Round the cuts of a schema to the shortest decimals that preserve the order of cuts and spikes."""
    return replace(schema, variables=tuple(_round_variable(schema, variable) for variable in schema.variables))


def _round_variable(schema: Schema, variable: Variable) -> Variable:
    if (
        not len(variable.edges) or not variable.is_line or len(variable.columns) > 1
    ):  # in variables of several columns, boundaries must not move
        return variable
    column = schema.columns[variable.columns[0]]
    if column.axis is None or column.axis.grid:
        return variable  # integers: cuts lie at halves, which are nobody's value
    rounded_edges = round_cuts(variable.edges, column.points)
    # Interval boundaries are a subset of the edges and must stay equal to them.
    new_edges = dict(zip(variable.edges.tolist(), rounded_edges.tolist(), strict=True))
    segments = np.array([new_edges.get(cut, cut) for cut in variable.segments.tolist()])
    return replace(variable, edges=rounded_edges, segments=segments)


def round_cuts(cuts: Floats, points: Floats) -> Floats:
    """Round every cut to the fewest digits that keep it closer to its original value than to its neighbours.

    A spike has its own bin: the cuts on either side of it only move towards it, as a number may lie just beyond them.

    >>> round_cuts(np.array([1.2345, 2.2987, 2.3456, 2.35]), np.array([2.3]))
    array([1.23, 2.3 , 2.34, 2.35])
    """
    lowest, highest = _room(cuts, np.sort(points))
    spread = cuts[-1] - cuts[0] if len(cuts) > 1 else max(abs(float(cuts[0])), 1.0)
    first = -int(np.floor(np.log10(spread))) if spread > 0 else 0
    result, done = cuts.copy(), np.zeros(len(cuts), dtype=bool)
    for digits in range(first, first + MOST_DIGITS):
        scale = 10.0**digits
        for rounded in (np.round(cuts, digits), np.floor(cuts * scale) / scale, np.ceil(cuts * scale) / scale):
            fits = ~done & (rounded >= lowest) & (rounded <= highest) & (np.abs(rounded - cuts) <= spread / 50)
            result[fits] = rounded[fits]
            done |= fits
    return result


def _room(cuts: Floats, points: Floats) -> tuple[Floats, Floats]:
    """Return the lowest and highest value that every cut may move to."""
    gaps = np.concatenate([[np.inf], np.diff(cuts), [np.inf]])
    lowest, highest = cuts - gaps[:-1] / 2.5, cuts + gaps[1:] / 2.5
    if not len(points):
        return lowest, highest
    behind = np.searchsorted(points, cuts, side="left")  # index of the first spike at or above each cut
    padded = np.concatenate([[-np.inf], points, [np.inf]])
    below, above = padded[behind], padded[behind + 1]
    after_spike = below >= np.concatenate([[-np.inf], cuts[:-1]])
    after_spike &= np.isfinite(below)
    before_spike = (above < np.concatenate([cuts[1:], [np.inf]])) & np.isfinite(above)
    lowest = np.where(before_spike & ~after_spike, cuts, lowest)
    highest = np.where(after_spike & ~before_spike, cuts, highest)
    least = np.where(np.isfinite(below), cuts - 0.99 * (cuts - below), -np.inf)
    return np.maximum(lowest, least), np.minimum(highest, above)
