"""Round the split points of a schema: an exact midpoint between two people's values would reveal both."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.schema.columns import Schema, Variable
from arf_dask.typing import Floats

MOST_DIGITS = 12


def round_schema(schema: Schema, frame: pl.DataFrame) -> Schema:
    """Round the cuts of a schema to the shortest numbers that preserve the order of cuts and spikes.

    Args:
        schema: The schema of the protected rows.
        frame: These rows. Where columns are step functions of a number line, a cut moves only between the two numbers
            of these rows on either side of it.
    """
    return replace(schema, variables=tuple(_round_variable(schema, variable, frame) for variable in schema.variables))


def _round_variable(schema: Schema, variable: Variable, frame: pl.DataFrame) -> Variable:
    column = schema.columns[variable.columns[0]]
    if not len(variable.edges) or not variable.is_line or column.axis is None:
        return variable
    # On a grid, the cut k - 1/2 separates the numbers below k from k, and k is what is rounded.
    inset, most_digits = (0.5, 0) if column.axis.grid else (0.0, None)
    cuts = variable.edges + inset
    room = cut_room(cuts, np.sort(column.points))
    if len(variable.columns) > 1:
        if frame.height < schema.n_rows:
            return variable  # other rows may lie between a cut and its neighbours in the sample
        room = _gaps(cuts, column.axis.to_axis(frame[column.name]))
    rounded_edges = round_cuts(cuts, room, most_digits) - inset
    # Interval boundaries are a subset of the edges and must stay equal to them.
    new_edges = dict(zip(variable.edges.tolist(), rounded_edges.tolist(), strict=True))
    segments = np.array([new_edges.get(cut, cut) for cut in variable.segments.tolist()])
    return replace(variable, edges=rounded_edges, segments=segments)


class Room(NamedTuple):
    """The lowest and highest value that every cut may move to."""

    lowest: Floats
    highest: Floats


def round_cuts(cuts: Floats, room: Room, most_digits: int | None = None) -> Floats:
    """Round every cut to the fewest digits that keep it in its room and near its original value.

    Args:
        cuts: The cuts, ascending.
        room: Where each of them may move to.
        most_digits: The maximum number of decimals: 0 for integers. None uses up to twelve significant digits.

    >>> cuts = np.array([1.2345, 2.2987, 2.3456, 2.35])
    >>> round_cuts(cuts, cut_room(cuts, np.array([2.3])))
    array([1.23, 2.3 , 2.34, 2.35])
    >>> round_cuts(np.array([41.0, 1357.0, 88214.0]), cut_room(np.array([41.0, 1357.0, 88214.0]), np.empty(0)), 0)
    array([    0.,  1000., 88000.])
    """
    spread = cuts[-1] - cuts[0] if len(cuts) > 1 else max(abs(float(cuts[0])), 1.0)
    first = -int(np.floor(np.log10(spread))) if spread > 0 else 0
    last = first + MOST_DIGITS if most_digits is None else max(first, most_digits) + 1
    result, done = cuts.copy(), np.zeros(len(cuts), dtype=bool)
    for digits in range(first, last):
        scale = 10.0**digits
        for candidate in (np.round(cuts, digits), np.floor(cuts * scale) / scale, np.ceil(cuts * scale) / scale):
            rounded = np.rint(candidate) if digits <= 0 else candidate  # 3 / 1e-05 is not quite an integer
            fits = ~done & (rounded >= room.lowest) & (rounded <= room.highest)
            fits &= np.abs(rounded - cuts) <= spread / 50
            result[fits] = rounded[fits]
            done |= fits
    return result


def _gaps(cuts: Floats, values: Floats) -> Room:
    """Return the gaps between neighbouring numbers that contain the cuts: left < cut <= right."""
    known = np.unique(values[~np.isnan(values)])
    place = np.searchsorted(known, cuts)
    padded = np.concatenate([[-np.inf], known, [np.inf]])
    return Room(np.nextafter(padded[place], np.inf), padded[place + 1])


def cut_room(cuts: Floats, points: Floats) -> Room:
    """Return the room of cuts that may move as long as they stay closer to their place than to their neighbours.

    A spike has its own bin: the cuts on either side of it only move towards it, as a number may lie just beyond them.
    """
    gaps = np.concatenate([[np.inf], np.diff(cuts), [np.inf]])
    lowest, highest = cuts - gaps[:-1] / 2.5, cuts + gaps[1:] / 2.5
    if not len(points):
        return Room(lowest, highest)
    behind = np.searchsorted(points, cuts, side="left")  # index of the first spike at or above each cut
    padded = np.concatenate([[-np.inf], points, [np.inf]])
    below, above = padded[behind], padded[behind + 1]
    after_spike = below >= np.concatenate([[-np.inf], cuts[:-1]])
    after_spike &= np.isfinite(below)
    before_spike = (above < np.concatenate([cuts[1:], [np.inf]])) & np.isfinite(above)
    lowest = np.where(before_spike & ~after_spike, cuts, lowest)
    highest = np.where(after_spike & ~before_spike, cuts, highest)
    least = np.where(np.isfinite(below), cuts - 0.99 * (cuts - below), -np.inf)
    return Room(np.maximum(lowest, least), np.minimum(highest, above))
