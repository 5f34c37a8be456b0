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
from scipy.sparse import csr_array

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
    tables: Tables,
    stand: int,
    number: int,
    around: Surroundings,
    states: Ints | None = None,
    *,
    in_box: bool = False,
) -> Floats:
    """The smoothed probability of every (leaf of this stand, state of this variable), or of some states.

    With `in_box`, nobody will look at points outside a leaf's box: they need not be zero.
    """
    variable, histogram = tables.schema.variables[number], tables.histograms[number]
    chosen = np.arange(variable.n_states) if states is None else states
    low, high = around.boxes.low[:, number], around.boxes.high[:, number]
    share = row_shares(around, number, float(tables.strengths[number]), box_rows(histogram, low, high))
    if in_box and not variable.interval[chosen].any():
        result = np.multiply.outer(share.column, histogram[variable.code_low[chosen]].astype(np.float64))
    else:
        result = column_counts(variable, histogram, low, high, chosen)
        result *= share.column[:, None]
    # Most leaves have seen few of the states: only these are added.
    seen = family_counts(leaf_counts(tables, stand, number, states), around, share)
    row = np.arange(0, result.size, len(chosen)) if len(chosen) else np.zeros(len(result), dtype=np.int64)
    result.reshape(-1)[np.repeat(row, np.diff(seen.indptr)) + seen.indices] += seen.data
    return result


def leaf_sums(tables: Tables, stand: int, number: int, around: Surroundings, values: Floats) -> Floats:
    """(leaf of this stand, column of `values`): the sum over the states of probability times value.

    The same as a product with `leaf_probabilities`, without making that table.
    """
    variable, histogram = tables.schema.variables[number], tables.histograms[number]
    low, high = around.boxes.low[:, number], around.boxes.high[:, number]
    share = row_shares(around, number, float(tables.strengths[number]), box_rows(histogram, low, high))
    result = family_sums(leaf_counts(tables, stand, number) @ values, around, share)
    by_code = histogram[:, None] * values[states_of_codes(variable)]
    boxes, which = np.unique(low.astype(np.int64) * variable.n_codes + high, return_inverse=True)
    inside = range_sums(by_code, boxes // variable.n_codes, boxes % variable.n_codes + 1)
    return np.asarray(result + inside[which] * share.column[:, None])


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


def leaf_counts(tables: Tables, stand: int, number: int, states: Ints | None = None) -> csr_array:
    """Training rows of every (leaf of this stand, state), or of some states."""
    entries, n_states = tables.entries[number], tables.schema.variables[number].n_states
    first = entries.first[tables.stand_starts[stand] : tables.stand_starts[stand + 1] + 1]
    here = slice(int(first[0]), int(first[-1]))
    state, rows, first = entries.state[here], entries.rows[here], first - first[0]
    if states is not None:
        place = np.full(n_states, -1, dtype=np.int32)
        place[states] = np.arange(len(states))
        mine = np.flatnonzero(place[state] >= 0)
        state, rows, first = place[state[mine]], rows[mine], np.searchsorted(mine, first)
    shape = (len(first) - 1, n_states if states is None else len(states))
    return csr_array((rows.astype(np.float64), state.astype(np.int32), first.astype(np.int32)), shape=shape)


def family_counts(counts: csr_array, around: Surroundings, share: Shares) -> csr_array:
    """Rows of leaves and of their parents, each counted as its share says: what the column is added to."""
    family = _family(around, share)
    return csr_array(family_sums(counts.toarray(), around, share)) if family is None else family @ counts


def family_sums(sums: Floats, around: Surroundings, share: Shares) -> Floats:
    """The same of a dense table, one row per leaf."""
    family = _family(around, share)
    if family is not None:
        return np.asarray(family @ sums)
    under = range_sums(sums, around.first, around.last)
    return np.asarray(sums * share.own[:, None] + under * share.parent[:, None])


def _family(around: Surroundings, share: Shares) -> csr_array | None:
    """(leaf, leaf): what a row of the second counts for in the first. None where parents have too many leaves."""
    if around.families is None:
        return None
    ends, member, itself = around.families
    weight = np.repeat(share.parent, np.diff(ends))
    weight[itself] += share.own
    return csr_array((weight, member, ends), shape=(len(itself), len(itself)))


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
    states: NDArray[np.integer],
) -> Floats:
    """Rows of some states in the whole column, inside the codes low..high. One row per box."""
    whole = np.zeros(1, dtype=np.int64), np.full(1, variable.n_codes - 1)
    counts = np.repeat(_counts_in_boxes(variable, histogram, *whole, states), len(low), axis=0)
    # Most leaves do not split on a variable: for these it is the same everywhere.
    cut = np.flatnonzero((low > 0) | (high < variable.n_codes - 1))
    if len(cut):
        counts[cut] = _counts_in_boxes(variable, histogram, low[cut], high[cut], states)
    return counts


def _counts_in_boxes(
    variable: Variable,
    histogram: Counts,
    low: NDArray[np.integer],
    high: NDArray[np.integer],
    states: NDArray[np.integer],
) -> Floats:
    codes = variable.code_low[states]
    inside = codes[None, :] >= low[:, None]
    inside &= codes[None, :] <= high[:, None]
    counts = np.asarray(inside * histogram[codes].astype(np.float64))
    if variable.interval[states].any():
        between = np.where(variable.interval[states_of_codes(variable)], histogram, 0)
        below = np.concatenate([[0], np.cumsum(between)])
        for place in np.flatnonzero(variable.interval[states]):
            first = np.maximum(low, variable.code_low[states[place]])
            last = np.maximum(np.minimum(high, variable.code_high[states[place]]) + 1, first)
            counts[:, place] = below[last] - below[first]
    return counts
