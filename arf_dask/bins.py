"""Rank codes: the spikes of a number line, and the cuts at which trees may split it.

Trees never see values, only the number of the bin a value falls in. Every spike (atom) has a bin of its own,
so that a tree can split beside it; the other values share about a thousand bins of equal weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

MOST_BINS = 1_000
ATOM_SHARE = 0.001
ATOM_ROWS = 10
FEW_VALUES = 64
FEW_ROWS_EACH = 5


class Line(NamedTuple):
    """One row per distinct value of a numeric column, in order."""

    places: Floats  # on the column's axis
    counts: Counts  # rows that hold it


def find_atoms(line: Line) -> Flags:
    """Which distinct values are point masses.

    A value that holds a real share of the rows is one; where values are few for so many rows, all are; and a
    constant is.

    >>> find_atoms(Line(np.array([0.0, 1.5, 1.7]), np.array([11, 1, 1])))
    array([ True, False, False])
    """
    rows = int(line.counts.sum())
    if len(line.places) == 1 or (len(line.places) <= FEW_VALUES and rows >= FEW_ROWS_EACH * len(line.places)):
        return np.ones(len(line.places), dtype=bool)
    return line.counts >= max(ATOM_SHARE * rows, ATOM_ROWS)


def cut_bins(line: Line, atoms: Flags, *, grid: bool, most: int = MOST_BINS) -> Floats:
    """The inner edges of the bins, ascending: halfway between neighbours, at half-integers on a grid.

    Where only spikes lie beyond (a column of 0 or at least 500), the cut is at the outermost other value itself:
    nothing is ever drawn in the gap.

    >>> line = Line(np.array([0.0, 500.0, 504.0]), np.array([9, 1, 1]))
    >>> cut_bins(line, np.array([True, False, False]), grid=True)
    array([499.5, 501.5])
    """
    if len(line.places) < 2:
        return np.empty(0)
    rest = np.where(atoms, 0, line.counts)
    before = np.cumsum(rest) - rest
    quantile = (before * most) // max(int(rest.sum()), 1)
    starts = atoms[1:] | atoms[:-1] | (quantile[1:] != quantile[:-1])
    cuts = halfway(line.places[:-1], line.places[1:], grid=grid)
    others = np.flatnonzero(~atoms)
    if len(others) > 1:
        first, last = others[0], others[-1]
        if first > 0:
            cuts[first - 1] = line.places[first] - (0.5 if grid else 0.0)
        if last < len(cuts):
            cuts[last] = line.places[last] + 0.5 if grid else np.nextafter(line.places[last], np.inf)
    return np.asarray(cuts[starts])


def halfway(left: Floats, right: Floats, *, grid: bool) -> Floats:
    """The cut between each pair of neighbours: left < cut <= right."""
    if grid:
        return np.floor((left + right - 1) / 2) + 0.5
    middle = left + (right - left) / 2
    # Neighbouring floats may have no number strictly between them: the cut is then the right one itself.
    return np.where(middle > left, middle, right)
