"""Shrinkage: what a leaf believes about states it saw rarely or never.

A leaf of ten rows cannot know the share of forty countries. Its counts are therefore mixed with those of its parent
node, and with a little of the whole column inside the leaf's box:

    p(state | leaf) = (count + s * prior(state)) / (rows + s)
    prior = w * parent + (1 - w) * column,  w = parent rows / (parent rows + s)

The parent counts only for variables it does not split on (for those its box is the leaf's own; for the other the
leaf stands in for it). Nothing outside the box ever gets probability. How many rows' worth of prior `s` is best is
chosen per variable by leave-one-out likelihood: counts are stored, smoothing happens when they are used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arf_dask.encode import states_of_codes
from arf_dask.tables import Counts, Entries, Surroundings, Tables
from arf_dask.schema import Floats, Ints, Variable

STRENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
TREES_TRIED = 4
ENTRIES_TRIED = 100_000


def leaf_probabilities(tables: Tables, tree: int, number: int, around: Surroundings) -> Floats:
    """The smoothed probability of every (leaf of this tree, state of this variable)."""
    variable = tables.schema.variables[number]
    counts = leaf_counts(tables, tree, number)
    strength = tables.strengths[number]
    rows = around.rows[:, None].astype(np.float64)
    if strength == 0:
        return counts / rows
    parent, weight = parent_share(counts, around, number, strength)
    low, high = around.boxes.low[:, number], around.boxes.high[:, number]
    column = column_share(variable, tables.histograms[number], low, high)
    prior = weight[:, None] * parent + (1 - weight[:, None]) * column
    return (counts + strength * prior) / (rows + strength)


def leaf_counts(tables: Tables, tree: int, number: int) -> Floats:
    """Training rows of every (leaf of this tree, state)."""
    entries = tables.entries[number]
    start, stop = tables.starts[tree], tables.starts[tree + 1]
    a, b = np.searchsorted(entries.leaf, [start, stop])
    counts = np.zeros((stop - start, tables.schema.variables[number].n_states))
    counts[entries.leaf[a:b] - start, entries.state[a:b]] = entries.count[a:b]
    return counts


def parent_share(counts: Floats, around: Surroundings, number: int, strength: float) -> tuple[Floats, Floats]:
    """Shares of the states under each leaf's parent, and the parent's weight in the prior."""
    running = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
    parent = running[around.last] - running[around.first]
    parent_rows = parent.sum(axis=1)
    own = around.split == number
    parent[own] = counts[own] * (parent_rows[own] / around.rows[own])[:, None]
    return parent / parent_rows[:, None], parent_rows / (parent_rows + strength)


def column_share(variable: Variable, histogram: Counts, low: Ints, high: Ints) -> Floats:
    """Shares of the states in the whole column, inside the codes low..high. One row per box."""
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
    return shares / mass[:, None]


def choose_strength(
    entries: Entries, variable: Variable, histogram: Counts, starts: Ints, around: list[Surroundings], number: int
) -> float:
    """The strength with the best leave-one-out likelihood of the training rows, over the first few trees."""
    if variable.n_states < 2:
        return 0.0
    gains = np.zeros(len(STRENGTHS))
    for tree, here in enumerate(around):
        a, b = np.searchsorted(entries.leaf, [starts[tree], starts[tree + 1]])
        leaf = entries.leaf[a:b] - starts[tree]
        state, count = entries.state[a:b], entries.count[a:b].astype(np.float64)
        parent = _under_parent(leaf, state, count, here, number, variable.n_states)
        some = slice(0, ENTRIES_TRIED)
        leaf, state, count, parent = leaf[some], state[some], count[some], parent[some]
        column = _column_of_entry(variable, histogram, here, number, leaf, state)
        gains += [_left_out(strength, leaf, count, parent, column, here) for strength in STRENGTHS]
    return STRENGTHS[int(np.argmax(gains))]


def _under_parent(
    leaf: NDArray[np.uint32], state: NDArray[np.uint32], count: Floats, here: Surroundings, number: int, width: int
) -> Floats:
    """For every entry: rows of the same state under the leaf's parent (its own stand-in where it splits on it)."""
    n_leaves = len(here.rows)
    key = state.astype(np.int64) * n_leaves + leaf
    order = np.argsort(key, kind="stable")
    key_sorted, running = key[order], np.concatenate([[0.0], np.cumsum(count[order])])
    base = state.astype(np.int64) * n_leaves
    found = running[np.searchsorted(key_sorted, base + here.last[leaf])]
    found -= running[np.searchsorted(key_sorted, base + here.first[leaf])]
    totals = np.concatenate([[0], np.cumsum(here.rows)])
    scale = (totals[here.last[leaf]] - totals[here.first[leaf]]) / here.rows[leaf]
    return np.where(here.split[leaf] == number, count * scale, found)


def _column_of_entry(
    variable: Variable, histogram: Counts, here: Surroundings, number: int, leaf: NDArray[np.uint32], state: NDArray[np.uint32]
) -> Floats:
    """For every entry: the share of its state in the whole column inside the leaf's box."""
    low, high = here.boxes.low[leaf, number], here.boxes.high[leaf, number]
    total = np.concatenate([[0], np.cumsum(histogram)])
    between = np.concatenate([[0], np.cumsum(np.where(variable.interval[states_of_codes(variable)], histogram, 0))])
    first = np.maximum(low, variable.code_low[state])
    last = np.maximum(np.minimum(high, variable.code_high[state]) + 1, first)
    rows = np.where(variable.interval[state], between[last] - between[first], histogram[variable.code_low[state]])
    return rows / np.maximum(total[high + 1] - total[low], 1)


def _left_out(
    strength: float, leaf: NDArray[np.uint32], count: Floats, parent: Floats, column: Floats, here: Surroundings
) -> float:
    """Log-likelihood of every row given the others of its leaf and parent."""
    rows = here.rows[leaf].astype(np.float64)
    totals = np.concatenate([[0], np.cumsum(here.rows)])
    parent_rows = (totals[here.last[leaf]] - totals[here.first[leaf]]).astype(np.float64)
    weight = parent_rows / (parent_rows + strength)
    scale = (parent_rows - 1) / np.maximum(parent_rows - 1, 1)
    share = np.maximum(parent - 1, 0) / np.maximum(parent_rows - 1, 1) * scale
    prior = weight * share + (1 - weight) * column
    p = (count - 1 + strength * prior) / (rows - 1 + strength)
    return float((count * np.log(np.maximum(p, 1e-12))).sum())
