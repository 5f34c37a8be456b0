"""Shrinkage of leaf probabilities, for states that are rare or absent in a leaf.

A leaf of ten rows cannot estimate the shares of forty countries. Its counts are therefore combined with those of its
parent node and, with a small weight, with those of the whole column inside the leaf's box:

    p(state | leaf) = (count + s * prior(state)) / (rows + s)
    prior = w * parent + (1 - w) * column,  w = parent rows / (parent rows + s)

The parent is used only for variables it does not split on, for which it has the same box as the leaf; for the variable
it splits on, it is replaced by the leaf itself. States outside the box have probability zero. Models store counts and
smooth them on use. A prior of two rows worked well on all data measured (docs/defaults.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from arf_dask.forest.tables import BatchLeaves, VariableTables
from arf_dask.schema.columns import Variable
from arf_dask.schema.encoding import states_of_codes
from arf_dask.typing import Counts, Floats, Ints

STRENGTH = 2.0
SPARSE_STRENGTH = 1000.0  # of bundles with few rows per combination
ROWS_PER_STATE = 5  # bundles with fewer rows per combination are sparse


class RowShares(NamedTuple):
    """The weight of one row in the probability of a state. One row per leaf."""

    own: Floats  # of a row in the leaf
    parent: Floats  # of a row under its parent
    column: Floats  # of a row of the column inside the leaf's box


def prior_strength(variable: Variable, n_rows: int) -> float:
    """Return the weight of the prior of a variable in every leaf, in rows.

    A bundle with few rows per combination, such as the products of a shop, has a strong prior: the combinations of its
    box. Otherwise every leaf would tell which combinations its training rows have.
    """
    is_sparse = len(variable.columns) > 1 and not variable.is_line and variable.n_states * ROWS_PER_STATE > n_rows
    return SPARSE_STRENGTH if is_sparse else STRENGTH if variable.n_states > 1 else 0.0


def leaf_probabilities(
    table: VariableTables, leaves: BatchLeaves, states: Ints | None = None, *, in_box: bool = False
) -> Floats:
    """Return the smoothed probability of every (leaf of a tree batch, state of a variable).

    Args:
        table: the variable.
        leaves: the leaves of the batch.
        states: the requested states; None for all.
        in_box: the caller uses only points inside a leaf's box, so that others need not be zero.
    """
    variable, histogram = table.variable, table.prior_rows
    chosen_states = np.arange(variable.n_states) if states is None else states
    low, high = leaves.boxes.low[:, table.index], leaves.boxes.high[:, table.index]
    shares = row_shares(table, leaves, box_rows(histogram, low, high))
    if in_box and not variable.interval[chosen_states].any():
        result = np.multiply.outer(shares.column, histogram[variable.code_low[chosen_states]].astype(np.float64))
    else:
        result = column_counts(variable, histogram, low, high, chosen_states)
        result *= shares.column[:, None]
    # Most leaves contain few of the states: add only these.
    seen_counts = family_counts(leaf_counts(table, leaves, states), leaves, shares)
    row_starts = (
        np.arange(0, result.size, len(chosen_states)) if len(chosen_states) else np.zeros(len(result), dtype=np.int64)
    )
    result.reshape(-1)[np.repeat(row_starts, np.diff(seen_counts.indptr)) + seen_counts.indices] += seen_counts.data
    return result


def leaf_sums(table: VariableTables, leaves: BatchLeaves, values: Floats) -> Floats:
    """Return the sums over states of probability times value, as (leaf of a tree batch, column of `values`).

    Equal to `leaf_probabilities(table, leaves) @ values`, without building the table of probabilities.
    """
    variable, histogram = table.variable, table.prior_rows
    low, high = leaves.boxes.low[:, table.index], leaves.boxes.high[:, table.index]
    shares = row_shares(table, leaves, box_rows(histogram, low, high))
    result = family_sums(leaf_counts(table, leaves) @ values, leaves, shares)
    code_values = histogram[:, None] * values[table.state_of_code]
    box_keys, box_index = np.unique(low.astype(np.int64) * variable.n_codes + high, return_inverse=True)
    box_sums = range_sums(code_values, box_keys // variable.n_codes, box_keys % variable.n_codes + 1)
    return np.asarray(result + box_sums[box_index] * shares.column[:, None])


def range_sums(values: Floats, first: NDArray[np.integer], last: NDArray[np.integer]) -> Floats:
    """Return the sums of values[first:last] for many ranges.

    Adds sums of pairs, of pairs of pairs and so on: differences of cumulative sums would lose small values next to
    large ones.
    """
    result = np.zeros((len(first), values.shape[1]))
    first, last = first.astype(np.int64), last.astype(np.int64)
    while True:
        open_ranges = np.flatnonzero(first < last)
        if not len(open_ranges):
            return result
        odd_ranges = open_ranges[first[open_ranges] % 2 == 1]
        result[odd_ranges] += values[first[odd_ranges]]
        first[odd_ranges] += 1
        odd_ranges = open_ranges[(last[open_ranges] % 2 == 1) & (first[open_ranges] < last[open_ranges])]
        last[odd_ranges] -= 1
        result[odd_ranges] += values[last[odd_ranges]]
        first, last = first // 2, last // 2
        values = values[: len(values) // 2 * 2].reshape(-1, 2, values.shape[1]).sum(axis=1)


def leaf_counts(table: VariableTables, leaves: BatchLeaves, states: Ints | None = None) -> csr_array:
    """Return the training rows of every (leaf of a tree batch, state), for all states or the given ones."""
    entries, n_states = table.entries, table.variable.n_states
    first = entries.first[leaves.start : leaves.stop + 1]
    entry_slice = slice(int(first[0]), int(first[-1]))
    state, rows, first = entries.state[entry_slice], entries.rows[entry_slice], first - first[0]
    if states is not None:
        column_of_state = np.full(n_states, -1, dtype=np.int32)
        column_of_state[states] = np.arange(len(states))
        entry_index = np.flatnonzero(column_of_state[state] >= 0)
        state, rows, first = column_of_state[state[entry_index]], rows[entry_index], np.searchsorted(entry_index, first)
    shape = (len(first) - 1, n_states if states is None else len(states))
    return csr_array((rows.astype(np.float64), state.astype(np.int32), first.astype(np.int32)), shape=shape)


def family_counts(counts: csr_array, leaves: BatchLeaves, share: RowShares) -> csr_array:
    """Return the weighted counts of leaves and their parents, to which those of the column are added."""
    family_weights = _family(leaves, share)
    return (
        csr_array(family_sums(counts.toarray(), leaves, share)) if family_weights is None else family_weights @ counts
    )


def family_sums(sums: Floats, leaves: BatchLeaves, share: RowShares) -> Floats:
    """Return the weighted sums over leaves and their parents. One row per leaf."""
    family_weights = _family(leaves, share)
    if family_weights is not None:
        return np.asarray(family_weights @ sums)
    parent_sums = range_sums(sums, leaves.first, leaves.last)
    return np.asarray(sums * share.own[:, None] + parent_sums * share.parent[:, None])


def _family(leaves: BatchLeaves, share: RowShares) -> csr_array | None:
    """Return the weight of a row of the second leaf in the first, as (leaf, leaf); None if families are too large."""
    if leaves.families is None:
        return None
    ends, member, itself = leaves.families
    weight = np.repeat(share.parent, np.diff(ends))
    weight[itself] += share.own
    return csr_array((weight, member, ends), shape=(len(itself), len(itself)))


def own_share(rows: Floats | Counts, strength: float) -> Floats:
    """Return the weight of a leaf's own rows relative to the prior: rows / (rows + s)."""
    return np.asarray(rows / (rows + strength))


def parent_share(parent_rows: Floats | Counts, strength: float) -> Floats:
    """Return the weight of the parent in the prior: w = parent rows / (parent rows + s). The column has 1 - w."""
    return own_share(parent_rows, strength)


def row_shares(table: VariableTables, leaves: BatchLeaves, box: Counts) -> RowShares:
    """Return the weights of rows of a leaf, of its parent and of the column in a probability.

    Args:
        table: the variable.
        leaves: the leaves of a tree batch.
        box: per leaf, the rows of the whole column inside its box.
    """
    strength, rows = table.strength, leaves.rows.astype(np.float64)
    rows_before = np.concatenate([[0], np.cumsum(leaves.rows)])
    parent_rows = (rows_before[leaves.last] - rows_before[leaves.first]).astype(np.float64)
    parent_weight = parent_share(parent_rows, strength)
    row_weight = 1 / (rows + strength)
    # For the variable the parent splits on, the leaf takes its place.
    is_split = leaves.split == table.index
    own_weight = np.where(is_split, row_weight * (1 + strength * parent_weight / rows), row_weight)
    column_weight = strength * (1 - parent_weight) * row_weight / np.maximum(box, 1)
    return RowShares(
        own_weight, np.where(is_split, 0.0, strength * parent_weight * row_weight / parent_rows), column_weight
    )


def box_rows(histogram: Counts, low: NDArray[np.integer], high: NDArray[np.integer]) -> Counts:
    """Return the number of rows of the whole column with codes low..high."""
    rows_below = np.concatenate([[0], np.cumsum(histogram)])
    return np.asarray(rows_below[high + 1] - rows_below[low])


def column_counts(
    variable: Variable,
    histogram: Counts,
    low: NDArray[np.integer],
    high: NDArray[np.integer],
    states: NDArray[np.integer],
) -> Floats:
    """Return the rows of the whole column in the given states with codes low..high. One row per box."""
    whole_range = np.zeros(1, dtype=np.int64), np.full(1, variable.n_codes - 1)
    counts = np.repeat(_counts_in_boxes(variable, histogram, *whole_range, states), len(low), axis=0)
    # Most boxes do not restrict the variable: these share one result.
    cut_boxes = np.flatnonzero((low > 0) | (high < variable.n_codes - 1))
    if len(cut_boxes):
        counts[cut_boxes] = _counts_in_boxes(variable, histogram, low[cut_boxes], high[cut_boxes], states)
    return counts


def _counts_in_boxes(
    variable: Variable,
    histogram: Counts,
    low: NDArray[np.integer],
    high: NDArray[np.integer],
    states: NDArray[np.integer],
) -> Floats:
    codes = variable.code_low[states]
    is_inside = codes[None, :] >= low[:, None]
    is_inside &= codes[None, :] <= high[:, None]
    counts = np.asarray(is_inside * histogram[codes].astype(np.float64))
    if variable.interval[states].any():
        interval_rows = np.where(variable.interval[states_of_codes(variable)], histogram, 0)
        rows_below = np.concatenate([[0], np.cumsum(interval_rows)])
        for state_index in np.flatnonzero(variable.interval[states]):
            first_code = np.maximum(low, variable.code_low[states[state_index]])
            last_code = np.maximum(np.minimum(high, variable.code_high[states[state_index]]) + 1, first_code)
            counts[:, state_index] = rows_below[last_code] - rows_below[first_code]
    return counts
