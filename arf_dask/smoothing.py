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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.encode import states_of_codes
from arf_dask.schema import Floats, Ints, Variable
from arf_dask.tables import Counts, Surroundings, Tables

STRENGTH = 2.0


class Shares(NamedTuple):
    """What one row counts for in the probability of a state. One row per leaf."""

    own: Floats  # a row of the leaf
    parent: Floats  # a row under its parent
    column: Floats  # a row of the column inside the leaf's box


def leaf_probabilities(
    tables: Tables, stand: int, number: int, around: Surroundings, states: Ints | None = None
) -> Floats:
    """The smoothed probability of every (leaf of this stand, state of this variable), or of some states."""
    variable, histogram = tables.schema.variables[number], tables.histograms[number]
    counts = leaf_counts(tables, stand, number, states)
    low, high = around.boxes.low[:, number], around.boxes.high[:, number]
    share = row_shares(around, number, float(tables.strengths[number]), box_rows(histogram, low, high))
    if tables.strengths[number] == 0:
        return counts * share.own[:, None]
    # In place: these tables are what most questions wait for.
    result = parent_counts(counts, around)
    result *= share.parent[:, None]
    counts *= share.own[:, None]
    result += counts
    column = column_counts(variable, histogram, low, high, states)
    column *= share.column[:, None]
    result += column
    return result


def leaf_sums(tables: Tables, stand: int, number: int, around: Surroundings, values: Floats) -> Floats:
    """(leaf of this stand, column of `values`): the sum over the states of probability times value.

    The same as a product with `leaf_probabilities`, without making that table.
    """
    variable, histogram, entries = tables.schema.variables[number], tables.histograms[number], tables.entries[number]
    here, _ = entries.of_leaves(tables.stand_starts[stand], tables.stand_starts[stand + 1])
    first = entries.first[tables.stand_starts[stand] : tables.stand_starts[stand + 1]] - here.start
    counts = np.add.reduceat(values[entries.state[here]] * entries.rows[here][:, None], first, axis=0)
    low, high = around.boxes.low[:, number], around.boxes.high[:, number]
    share = row_shares(around, number, float(tables.strengths[number]), box_rows(histogram, low, high))
    result = counts * share.own[:, None]
    if tables.strengths[number] > 0:
        result += range_sums(counts, around.first, around.last) * share.parent[:, None]
        by_code = histogram[:, None] * values[states_of_codes(variable)]
        boxes, which = np.unique(low.astype(np.int64) * variable.n_codes + high, return_inverse=True)
        first, last = boxes // variable.n_codes, boxes % variable.n_codes + 1
        result += range_sums(by_code, first, last)[which] * share.column[:, None]
    return np.asarray(result)


def range_sums(values: Floats, first: NDArray[np.integer], last: NDArray[np.integer]) -> Floats:
    """Sums of values[first:last], for many ranges.

    From pairs, pairs of pairs and so on: differences of running sums would lose what is small beside what is large.
    """
    result = np.zeros((len(first), values.shape[1]))
    first, last = first.astype(np.int64), last.astype(np.int64)
    while True:
        open_ = np.flatnonzero(first < last)
        if not len(open_):
            return result
        odd = open_[first[open_] % 2 == 1]
        result[odd] += values[first[odd]]
        first[odd] += 1
        odd = open_[(last[open_] % 2 == 1) & (first[open_] < last[open_])]
        last[odd] -= 1
        result[odd] += values[last[odd]]
        first, last = first // 2, last // 2
        values = values[: len(values) // 2 * 2].reshape(-1, 2, values.shape[1]).sum(axis=1)


def leaf_counts(tables: Tables, stand: int, number: int, states: Ints | None = None) -> Floats:
    """Training rows of every (leaf of this stand, state), or of some states."""
    entries, n_states = tables.entries[number], tables.schema.variables[number].n_states
    start, stop = tables.stand_starts[stand], tables.stand_starts[stand + 1]
    here, leaf = entries.of_leaves(start, stop)
    state, rows = entries.state[here], entries.rows[here]
    if states is None:
        counts = np.zeros((stop - start, n_states))
        counts[leaf, state] = rows
        return counts
    place = np.full(n_states, len(states))  # states nobody asked for share the last column
    place[states] = np.arange(len(states))
    counts = np.zeros((stop - start, len(states) + 1))
    counts[leaf, place[state]] = rows
    return counts[:, :-1]


def parent_counts(counts: Floats, around: Surroundings) -> Floats:
    """Training rows of every state under each leaf's parent."""
    running = np.zeros((len(counts) + 1, counts.shape[1]))
    np.cumsum(counts, axis=0, out=running[1:])
    under = running.take(around.last, axis=0)
    under -= running.take(around.first, axis=0)
    return under


def row_shares(around: Surroundings, number: int, strength: float, box: Counts) -> Shares:
    """How the counts of the leaf, of its parent and of the column make up a probability; `box`: its rows in the box."""
    rows = around.rows.astype(np.float64)
    before = np.concatenate([[0], np.cumsum(around.rows)])
    parent = (before[around.last] - before[around.first]).astype(np.float64)
    weight = parent / (parent + strength)
    unit = 1 / (rows + strength)
    # Of the variable it splits on, the parent knows no more than the leaf, which stands in for it.
    split = around.split == number
    own = np.where(split, unit * (1 + strength * weight / rows), unit)
    column = strength * (1 - weight) * unit / np.maximum(box, 1)
    return Shares(own, np.where(split, 0.0, strength * weight * unit / parent), column)


def box_rows(histogram: Counts, low: NDArray[np.integer], high: NDArray[np.integer]) -> Counts:
    """Rows of the whole column inside the codes low..high."""
    below = np.concatenate([[0], np.cumsum(histogram)])
    return np.asarray(below[high + 1] - below[low])


def column_counts(
    variable: Variable,
    histogram: Counts,
    low: NDArray[np.integer],
    high: NDArray[np.integer],
    states: Ints | None = None,
) -> Floats:
    """Rows of every state (or of some) in the whole column, inside the codes low..high. One row per box."""
    chosen = np.arange(variable.n_states) if states is None else states
    whole = np.zeros(1, dtype=np.int64), np.full(1, variable.n_codes - 1)
    counts = np.repeat(_counts_in_boxes(variable, histogram, *whole, chosen), len(low), axis=0)
    # Most leaves do not split on a variable: for these it is the same everywhere.
    cut = np.flatnonzero((low > 0) | (high < variable.n_codes - 1))
    counts[cut] = _counts_in_boxes(variable, histogram, low[cut], high[cut], chosen)
    return counts


def _counts_in_boxes(
    variable: Variable,
    histogram: Counts,
    low: NDArray[np.integer],
    high: NDArray[np.integer],
    states: NDArray[np.integer],
) -> Floats:
    codes = variable.code_low[states]
    counts = np.repeat(histogram[codes][None, :].astype(np.float64), len(low), axis=0)
    counts *= codes[None, :] >= low[:, None]
    counts *= codes[None, :] <= high[:, None]
    if variable.interval[states].any():
        between = np.where(variable.interval[states_of_codes(variable)], histogram, 0)
        below = np.concatenate([[0], np.cumsum(between)])
        for place in np.flatnonzero(variable.interval[states]):
            first = np.maximum(low, variable.code_low[states[place]])
            last = np.maximum(np.minimum(high, variable.code_high[states[place]]) + 1, first)
            counts[:, place] = below[last] - below[first]
    return counts
