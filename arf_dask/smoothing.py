"""Shrinkage: what a leaf believes about states it saw rarely or never.

A leaf of ten rows cannot know the share of forty countries. Its counts are therefore mixed with those of its parent
node, and with a little of the whole column inside the leaf's box:

    p(state | leaf) = (count + s * prior(state)) / (rows + s)
    prior = w * parent + (1 - w) * column,  w = parent rows / (parent rows + s)

The parent counts only for variables it does not split on (for those its box is the leaf's own; for the other the
leaf stands in for it). Nothing outside the box ever gets probability. Counts are stored; smoothing happens when they
are used. Two rows' worth of prior served every kind of data (docs/defaults.md).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arf_dask.encode import states_of_codes
from arf_dask.schema import Floats, Variable
from arf_dask.tables import Counts, Surroundings, Tables

STRENGTH = 2.0


def leaf_probabilities(tables: Tables, tree: int, number: int, around: Surroundings) -> Floats:
    """The smoothed probability of every (leaf of this tree, state of this variable)."""
    variable = tables.schema.variables[number]
    counts = leaf_counts(tables, tree, number)
    strength = tables.strengths[number]
    rows = around.rows[:, None].astype(np.float64)
    if strength == 0:
        return np.asarray(counts / rows)
    parent, weight = parent_share(counts, around, number, strength)
    low, high = around.boxes.low[:, number], around.boxes.high[:, number]
    column = column_share(variable, tables.histograms[number], low, high)
    prior = weight[:, None] * parent + (1 - weight[:, None]) * column
    return np.asarray((counts + strength * prior) / (rows + strength))


def leaf_counts(tables: Tables, tree: int, number: int) -> Floats:
    """Training rows of every (leaf of this tree, state)."""
    entries = tables.entries[number]
    start, stop = tables.starts[tree], tables.starts[tree + 1]
    here, leaf = entries.of_leaves(start, stop)
    counts = np.zeros((stop - start, tables.schema.variables[number].n_states))
    counts[leaf, entries.state[here]] = entries.rows[here]
    return counts


def parent_share(counts: Floats, around: Surroundings, number: int, strength: float) -> tuple[Floats, Floats]:
    """Shares of the states under each leaf's parent, and the parent's weight in the prior."""
    running = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
    parent = running[around.last] - running[around.first]
    parent_rows = parent.sum(axis=1)
    own = around.split == number
    parent[own] = counts[own] * (parent_rows[own] / around.rows[own])[:, None]
    return parent / parent_rows[:, None], parent_rows / (parent_rows + strength)


def column_share(variable: Variable, histogram: Counts, low: NDArray[np.integer], high: NDArray[np.integer]) -> Floats:
    """Shares of the states in the whole column, inside the codes low..high. One row per box."""
    everywhere = (low == 0) & (high == variable.n_codes - 1)
    if everywhere.any() and len(low) > 1:
        # Most leaves of a tree do not split on a variable: for these it is the same everywhere.
        shares = np.empty((len(low), variable.n_states))
        shares[everywhere] = column_share(variable, histogram, low[everywhere][:1], high[everywhere][:1])
        shares[~everywhere] = _shares_in_boxes(variable, histogram, low[~everywhere], high[~everywhere])
        return shares
    return _shares_in_boxes(variable, histogram, low, high)


def _shares_in_boxes(
    variable: Variable, histogram: Counts, low: NDArray[np.integer], high: NDArray[np.integer]
) -> Floats:
    state_of = states_of_codes(variable)
    total = np.concatenate([[0], np.cumsum(histogram)])
    mass = np.maximum(total[high + 1] - total[low], 1)
    shares = np.zeros((len(low), variable.n_states))
    points = np.flatnonzero(~variable.interval)
    codes = variable.code_low[points]
    inside = (codes[None, :] >= low[:, None]) & (codes[None, :] <= high[:, None])
    shares[:, points] = inside * histogram[codes]
    if variable.interval.any():
        between = np.concatenate([[0], np.cumsum(np.where(variable.interval[state_of], histogram, 0))])
        for state in np.flatnonzero(variable.interval):
            first = np.maximum(low, variable.code_low[state])
            last = np.maximum(np.minimum(high, variable.code_high[state]) + 1, first)
            shares[:, state] = between[last] - between[first]
    return np.asarray(shares / mass[:, None])
