"""Sharing of message vectors among (row, leaf) pairs in the same leaf with equal evidence below a variable.

A thousand conditions on three columns contain a few hundred distinct combinations of bins, and only a few dozen below
any single variable of the tree. If there are fewer (leaf, combination) cells than pairs, one vector is computed per
cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.dependence import Hop
from arf_dask.typing import Flags

Places = NDArray[np.int64]


class BinEvidence(NamedTuple):
    """Evidence of rows on bins. All arrays have shape (row, variable)."""

    bins: NDArray[np.int16]  # the bin that contains the known value; -1 if it is undetermined
    present: Flags  # whether there is evidence on the variable
    # Identifies the evidence where the bin is undetermined: equal numbers mean equal evidence. None: all rows differ.
    partial: Places | None = None

    @property
    def complete(self) -> bool:
        """Whether all bins of all rows are known."""
        return bool((self.bins >= 0).all())


class Items(NamedTuple):
    """The items that have a vector for one variable: pairs, or all combinations of leaf and row key."""

    row: Places  # per item: a representative row
    leaf: Places
    pair: Places | None  # per item: its pair; None if items are combinations of leaf and key
    place: Places  # per pair: its item; -1 if it has none
    keys: Places  # per row: its key
    n_keys: int

    def at(self, items: Items) -> Places:
        """Return the items of this variable that correspond to the items of a neighbour."""
        if self.pair is None:
            return items.leaf * self.n_keys + self.keys[items.row]
        assert items.pair is not None
        return self.place[items.pair]


def row_keys(
    evidence: BinEvidence, hops: Sequence[Hop], active: Mapping[int, Flags], has_vector: Mapping[int, Flags]
) -> dict[int, Places]:
    """Return row keys by variable: rows with equal keys have the same vector in every leaf."""
    variable_keys = {variable_index: _own_keys(evidence, variable_index) for variable_index in has_vector}
    for hop in reversed(hops):
        vector_rows = np.flatnonzero(has_vector[hop.near])
        if not len(vector_rows):
            continue
        far_bins = evidence.bins[vector_rows, hop.far].astype(np.int64)
        # The message of a variable whose bin is known does not depend on the variables beyond it.
        far_keys = (
            far_bins.max(initial=0) + 1 + variable_keys[hop.far][vector_rows] if hop.far in variable_keys else far_bins
        )
        message_keys = np.where(active[hop.far][vector_rows], np.where(far_bins >= 0, far_bins, far_keys) + 1, 0)
        combined_keys = variable_keys[hop.near][vector_rows] * (int(message_keys.max()) + 1) + message_keys
        variable_keys[hop.near] = variable_keys[hop.near].copy()
        variable_keys[hop.near][vector_rows] = np.unique(combined_keys, return_inverse=True)[1]
    return variable_keys


def find_items(
    number: int,
    rows: Flags,
    keys: Places,
    found: Mapping[int, Items],
    hops: Sequence[Hop],
    row: Places,
    leaf: Places,
    n_leaves: int,
) -> Items:
    """Return the items of one variable; those of its neighbours further from the root must be in `found`.

    Args:
        number: the index of the variable.
        rows: per row, whether it has a vector.
        keys: the key of each row.
        found: the items of variables processed before, by variable.
        hops: the edges of the tree.
        row: the row of each pair.
        leaf: the leaf of each pair.
        n_leaves: the number of leaves of the tree batch.
    """
    vector_pairs = np.flatnonzero(rows[row])
    item_of_pair = np.full(len(row), -1, dtype=np.int64)
    distinct_keys, first_rows, key_index = np.unique(keys[rows], return_index=True, return_inverse=True)
    n_keys, keys = len(distinct_keys), np.zeros_like(keys)
    keys[rows] = key_index
    neighbours_shared = all(found[hop.far].pair is None for hop in hops if hop.near == number and hop.far in found)
    if neighbours_shared and n_keys * n_leaves < len(vector_pairs):
        item_of_pair[vector_pairs] = leaf[vector_pairs] * n_keys + keys[row[vector_pairs]]
        representative_rows = np.flatnonzero(rows)[first_rows]
        return Items(
            np.tile(representative_rows, n_leaves),
            np.repeat(np.arange(n_leaves), n_keys),
            None,
            item_of_pair,
            keys,
            n_keys,
        )
    item_of_pair[vector_pairs] = np.arange(len(vector_pairs))
    return Items(row[vector_pairs], leaf[vector_pairs], vector_pairs, item_of_pair, keys, n_keys)


def _own_keys(evidence: BinEvidence, number: int) -> Places:
    """Return a key per row for its evidence on one variable alone."""
    has_evidence = evidence.present[:, number]
    if evidence.partial is not None:
        return np.where(has_evidence, evidence.partial[:, number], 0)
    return np.where(has_evidence, np.arange(1, len(has_evidence) + 1), 0)
