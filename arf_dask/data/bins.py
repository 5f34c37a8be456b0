"""Binning of numeric columns: detect spikes, and choose the cuts at which trees may split.

Trees are grown on bin indices instead of values. Every spike (atom) has a bin to itself, so that a tree can separate
it from its neighbours; the remaining values share about a thousand bins of equal weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arf_dask.typing import Counts, Flags, Floats

MOST_BINS = 1_000
ATOM_SHARE = 0.001
ATOM_ROWS = 10
FEW_VALUES = 64
FEW_ROWS_EACH = 5


class NumberCounts(NamedTuple):
    """One row per distinct value of a numeric column, in order."""

    values: Floats  # on the column's axis
    counts: Counts  # number of rows with this value


def find_atoms(numbers: NumberCounts) -> Flags:
    """Flag the distinct values that are point masses.

    A value is a point mass if it has a substantial share of the rows. If a column has few distinct values relative to
    its number of rows, or only one, all of its values are point masses.

    >>> find_atoms(NumberCounts(np.array([0.0, 1.5, 1.7]), np.array([11, 1, 1])))
    array([ True, False, False])
    """
    n_rows = int(numbers.counts.sum())
    if len(numbers.values) == 1 or (
        len(numbers.values) <= FEW_VALUES and n_rows >= FEW_ROWS_EACH * len(numbers.values)
    ):
        return np.ones(len(numbers.values), dtype=bool)
    return numbers.counts >= max(ATOM_SHARE * n_rows, ATOM_ROWS)


def cut_bins(numbers: NumberCounts, atoms: Flags, *, grid: bool, most: int = MOST_BINS) -> Floats:
    """Return the inner bin edges in ascending order: midpoints between neighbours, half-integers on a grid.

    If only spikes lie beyond the outermost continuous value (a column that is 0 or at least 500), the cut is at that
    value itself, so that nothing is drawn in the gap.

    >>> numbers = NumberCounts(np.array([0.0, 500.0, 504.0]), np.array([9, 1, 1]))
    >>> cut_bins(numbers, np.array([True, False, False]), grid=True)
    array([499.5, 501.5])
    """
    if len(numbers.values) < 2:
        return np.empty(0)
    bin_counts = np.where(atoms, 0, numbers.counts)
    counts_before = np.cumsum(bin_counts) - bin_counts
    bin_index = (counts_before * most) // max(int(bin_counts.sum()), 1)
    is_cut = atoms[1:] | atoms[:-1] | (bin_index[1:] != bin_index[:-1])
    cuts = halfway(numbers.values[:-1], numbers.values[1:], grid=grid)
    continuous_index = np.flatnonzero(~atoms)
    if len(continuous_index) > 1:
        first_index, last_index = continuous_index[0], continuous_index[-1]
        if first_index > 0:
            cuts[first_index - 1] = numbers.values[first_index] - (0.5 if grid else 0.0)
        if last_index < len(cuts):
            cuts[last_index] = (
                numbers.values[last_index] + 0.5 if grid else np.nextafter(numbers.values[last_index], np.inf)
            )
    return np.asarray(cuts[is_cut])


def halfway(left: Floats, right: Floats, *, grid: bool) -> Floats:
    """Return the cut between each pair of neighbours, with left < cut <= right."""
    if grid:
        return np.floor((left + right - 1) / 2) + 0.5
    middle = left + (right - left) / 2
    # There may be no float strictly between two neighbours; the cut is then the right neighbour itself.
    return np.where(middle > left, middle, right)
