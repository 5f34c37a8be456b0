"""Message passing on the dependency tree: sum over unknown bins, vectorised over (row, leaf) pairs.

Inside a leaf, the joint probability of the evidence is the product of the marginal probabilities, times

    Z = sum over bins of prod_j w_j(b_j) * prod over edges of u(b_p) * R(b_p, b_c) * v(b_c)

where w_j is the distribution of variable j over its bins given the evidence on j alone (a single bin if its value is
known). Subtrees without evidence sum to one and drop out, because u and v preserve the marginals. An edge therefore
contributes only if there is evidence on both of its sides, and vectors over bins are needed only for the variables in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.dependence import Hop
from arf_dask.inference.leaf_dependence import LeafDependence
from arf_dask.inference.shared_vectors import BinEvidence, Items, Places, find_items, row_keys
from arf_dask.stats.thin_products import thin_product
from arf_dask.typing import Flags, Floats

Bins = NDArray[np.int16]
FACTORS = 8  # number of factors multiplied before taking a logarithm
UNKNOWN = -1


# (variable, rows of pairs, leaves of pairs) -> (pair, bin): distribution over the bins given the row's evidence.
Spread = Callable[[int, Places, Places], Floats]


class Pass(NamedTuple):
    """Result of passing messages towards a root, for a set of (row, leaf) pairs."""

    logs: Floats  # per pair: log of the factors that are not part of any vector
    vectors: dict[int, Floats]  # by variable: (item, bin), including all messages from below
    items: dict[int, Items]  # by variable: the items that have a vector


def log_factors(local: LeafDependence, evidence: BinEvidence, spread: Spread, row: Places, leaf: Places) -> Floats:
    """Return log Z per (row, leaf) pair."""
    if evidence.complete:
        return _log_complete(local, evidence, row, leaf)
    logs = np.zeros(len(row))
    for root in local.dependence.roots:
        hops = local.dependence.outwards(root)
        has_message = evidence_on_both_sides(evidence.present, root, hops)
        passed = collect(local, evidence, spread, row, leaf, hops, has_message)
        logs += passed.logs
        for variable_index, bin_vector in passed.vectors.items():
            # A vector that was not passed on is the root of its connected component: its sum is the remaining factor.
            item_index = passed.items[variable_index].place
            is_component_root = item_index >= 0
            if variable_index in has_message:
                is_component_root &= ~has_message[variable_index][row]
            with np.errstate(divide="ignore"):
                logs[is_component_root] += np.log(bin_vector.sum(axis=1))[item_index[is_component_root]]
    return logs


def inward(
    local: LeafDependence, evidence: BinEvidence, spread: Spread, row: Places, leaf: Places, root: int
) -> Floats:
    """Return the combined message (pair, bin) of all other variables to `root`.

    The posterior of `root` over its bins is proportional to this message times its distribution given the evidence on
    `root` alone.
    """
    hops = local.dependence.outwards(root)
    has_evidence = evidence_below(evidence.present, hops)
    root_free = evidence._replace(bins=evidence.bins.copy())
    root_free.bins[:, root] = UNKNOWN
    unit_vector = np.ones((1, local.dependence.n_bins(root)))

    def spread_or_one(number: int, rows: Places, leaves: Places) -> Floats:
        return np.repeat(unit_vector, len(rows), axis=0) if number == root else spread(number, rows, leaves)

    passed = collect(local, root_free, spread_or_one, row, leaf, hops, has_evidence, needed=(root,))
    return np.asarray(passed.vectors[root][passed.items[root].place])


def draw_bins(
    local: LeafDependence,
    evidence: BinEvidence,
    spread: Spread,
    row: Places,
    leaf: Places,
    rng: np.random.Generator,
) -> dict[int, Bins]:
    """Draw the bins of all variables on an edge, jointly per pair, from their posterior given the evidence."""
    drawn_bins: dict[int, Bins] = {}
    for root in local.dependence.roots:
        hops = local.dependence.outwards(root)
        passed = collect(local, evidence, spread, row, leaf, hops, evidence_below(evidence.present, hops))
        drawn_bins[root] = _draw_bin(passed, evidence, spread, row, leaf, root, None, rng)
        for hop in hops:
            bin_ratios = local.dependence.ratios(hop.edge, hop.near)[drawn_bins[hop.near]]
            bin_ratios *= local.factor(hop.edge, hop.far)[leaf]
            drawn_bins[hop.far] = _draw_bin(passed, evidence, spread, row, leaf, hop.far, bin_ratios, rng)
    return drawn_bins


def collect(
    local: LeafDependence,
    evidence: BinEvidence,
    spread: Spread,
    row: Places,
    leaf: Places,
    hops: Sequence[Hop],
    active: dict[int, Flags],
    needed: Sequence[int] = (),
) -> Pass:
    """Collect the evidence by passing messages from the outermost variables to the root.

    Args:
        local: the dependence inside the leaves of the tree batch.
        evidence: the evidence of the rows on bins.
        spread: distribution of pairs over bins that are not known.
        row: the row of each pair.
        leaf: the leaf of each pair.
        hops: the edges directed away from the root, nearest first.
        active: by the far variable of each hop, per row: whether a message is passed.
        needed: variables that get a vector for every pair.
    """
    passed = Pass(np.zeros(len(row)), {}, {})
    row_present = np.zeros(len(evidence.bins), dtype=bool)
    row_present[row] = True
    has_vector = _in_between(evidence, hops, active)
    for variable_index in needed:
        has_vector[variable_index] = np.ones(len(evidence.bins), dtype=bool)
    has_vector = {variable_index: rows & row_present for variable_index, rows in has_vector.items()}
    _add_vectors(local, evidence, passed, spread, row, leaf, hops, active, has_vector)
    pair_products, n_factors = np.ones(len(row)), 0
    for hop in reversed(hops):
        active_pairs = np.flatnonzero(active[hop.far][row])
        if len(active_pairs):
            _pass_on(local, evidence, passed, hop, row, leaf, active_pairs, active[hop.far], pair_products)
            n_factors += 1
        if n_factors == FACTORS:
            _take_logs(passed.logs, pair_products)
            n_factors = 0
    _take_logs(passed.logs, pair_products)
    return passed


def evidence_below(present: Flags, hops: Sequence[Hop]) -> dict[int, Flags]:
    """By the far variable of each hop, per row: whether it or its subtree has evidence."""
    return {far: evidence_count > 0 for far, evidence_count in _count_below(present, hops).items()}


def evidence_on_both_sides(present: Flags, root: int, hops: Sequence[Hop]) -> dict[int, Flags]:
    """By the far variable of each hop, per row: whether there is evidence on both sides of the hop."""
    counts_below = _count_below(present, hops)
    total_counts = present[:, [root, *counts_below]].sum(axis=1)
    return {far: (evidence_count > 0) & (evidence_count < total_counts) for far, evidence_count in counts_below.items()}


def pick_bins(weights: Floats, rng: np.random.Generator) -> Bins:
    """Draw one bin per row with probabilities proportional to the row's weights."""
    cumulative_weights = np.cumsum(weights, axis=1)
    thresholds = rng.random(len(weights)) * cumulative_weights[:, -1]
    last_positive = weights.shape[1] - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    return np.asarray(
        np.minimum((cumulative_weights <= thresholds[:, None]).sum(axis=1), last_positive), dtype=np.int16
    )


def _count_below(present: Flags, hops: Sequence[Hop]) -> dict[int, Places]:
    """By the far variable of each hop, per row: the number of variables with evidence in its subtree."""
    counts_below = {hop.far: present[:, hop.far].astype(np.int64) for hop in hops}
    for hop in reversed(hops):
        if hop.near in counts_below:
            counts_below[hop.near] = counts_below[hop.near] + counts_below[hop.far]
    return counts_below


def _in_between(evidence: BinEvidence, hops: Sequence[Hop], active: dict[int, Flags]) -> dict[int, Flags]:
    """By variable, per row: whether messages meet at the variable while its bin is unknown."""
    meets_message: dict[int, Flags] = {}
    for hop in hops:
        for variable_index in (hop.near, hop.far):
            meets_message[variable_index] = (
                active[hop.far]
                if variable_index not in meets_message
                else meets_message[variable_index] | active[hop.far]
            )
    return {
        variable_index: rows & (evidence.bins[:, variable_index] < 0) for variable_index, rows in meets_message.items()
    }


def _add_vectors(
    local: LeafDependence,
    evidence: BinEvidence,
    found: Pass,
    spread: Spread,
    row: Places,
    leaf: Places,
    hops: Sequence[Hop],
    active: dict[int, Flags],
    has_vector: dict[int, Flags],
) -> None:
    """Initialise the vectors of variables where messages meet from the evidence on each variable alone."""
    variable_keys = row_keys(evidence, hops, active, has_vector)
    outermost_first = [hop.far for hop in reversed(hops)]
    root_variables = [variable_index for variable_index in has_vector if variable_index not in outermost_first]
    for variable_index in (*outermost_first, *root_variables):
        vector_rows = has_vector[variable_index]
        if vector_rows.any():
            variable_items = find_items(
                variable_index, vector_rows, variable_keys[variable_index], found.items, hops, row, leaf, local.n_leaves
            )
            found.items[variable_index] = variable_items
            found.vectors[variable_index] = spread(variable_index, variable_items.row, variable_items.leaf)


def _pass_on(
    local: LeafDependence,
    evidence: BinEvidence,
    found: Pass,
    hop: Hop,
    row: Places,
    leaf: Places,
    some: Places,
    active: Flags,
    product: Floats,
) -> None:
    """Pass the message of one hop into the vectors of its near variable, or into the products of the pairs `some`."""
    near_items, far_items = found.items.get(hop.near), found.items.get(hop.far)
    messages = None  # (item of the far variable, bin of the near variable), if several near bins are needed
    if far_items is not None and (near_items is not None or far_items.pair is None):
        messages = thin_product(_weighed(local, found, hop, far_items), local.dependence.ratios(hop.edge, hop.near).T)
        messages *= local.factor(hop.edge, hop.near).take(far_items.leaf, axis=0)
    if near_items is not None:
        active_items = np.flatnonzero(active[near_items.row])
        near_messages = _into_vectors(local, evidence, hop, near_items, far_items, active_items, messages)
        if len(active_items) == len(near_items.row):
            found.vectors[hop.near] *= near_messages
        else:
            found.vectors[hop.near][active_items] *= near_messages
        some = some[near_items.place[some] < 0]
    if len(some):
        product[some] *= _into_product(local, evidence, found, hop, row[some], leaf[some], some, messages)


def _into_vectors(
    local: LeafDependence,
    evidence: BinEvidence,
    hop: Hop,
    near: Items,
    far: Items | None,
    mine: Places,
    messages: Floats | None,
) -> Floats:
    """Return the message of a hop (item of the near variable, its bin) for the items `mine`."""
    far_bin = evidence.bins[:, hop.far][near.row[mine]]
    if far is None or messages is None:
        return _from_known(local, hop, near.leaf[mine], far_bin)
    known_items, unknown_items = np.flatnonzero(far_bin >= 0), np.flatnonzero(far_bin < 0)
    if not len(known_items):
        return messages.take(far.at(near)[mine], axis=0)
    item_messages = np.empty((len(mine), messages.shape[1]))
    item_messages[known_items] = _from_known(local, hop, near.leaf[mine[known_items]], far_bin[known_items])
    item_messages[unknown_items] = messages[far.at(near)[mine[unknown_items]]]
    return item_messages


def _from_known(local: LeafDependence, hop: Hop, leaf: Places, far_bin: Bins) -> Floats:
    """Return the message (item, bin of the near variable) from a far variable whose bin is known."""
    ratios = local.dependence.ratios(hop.edge, hop.far)
    near_factor, far_factor = local.factor(hop.edge, hop.near), local.factor(hop.edge, hop.far)
    if far_factor.size < len(leaf):
        # Fewer (leaf, bin) combinations than items: compute each distinct message once.
        message_table = far_factor[:, :, None] * ratios[None, :, :] * near_factor[:, None, :]
        return np.asarray(message_table.reshape(-1, ratios.shape[1]).take(leaf * far_factor.shape[1] + far_bin, axis=0))
    item_messages = ratios.take(far_bin, axis=0)
    item_messages *= look_up(far_factor, leaf, far_bin)[:, None]
    item_messages *= near_factor.take(leaf, axis=0)
    return item_messages


def _into_product(
    local: LeafDependence,
    evidence: BinEvidence,
    found: Pass,
    hop: Hop,
    row: Places,
    leaf: Places,
    pairs: Places,
    messages: Floats | None,
) -> Floats:
    """Return the message of a hop per pair, where the bin of the near variable is known."""
    far_items = found.items.get(hop.far)
    near_bin, far_bin = evidence.bins[:, hop.near][row], evidence.bins[:, hop.far][row]
    if far_items is None:
        return _between_known(local, hop, leaf, near_bin, far_bin)
    message = np.empty(len(row))
    known_pairs, unknown_pairs = np.flatnonzero(far_bin >= 0), np.flatnonzero(far_bin < 0)
    message[known_pairs] = _between_known(local, hop, leaf[known_pairs], near_bin[known_pairs], far_bin[known_pairs])
    item_index, unknown_near_bins = far_items.place[pairs[unknown_pairs]], near_bin[unknown_pairs]
    if messages is not None:
        message[unknown_pairs] = look_up(messages, item_index, unknown_near_bins)
    else:
        ratios = local.dependence.ratios(hop.edge, hop.near).take(unknown_near_bins, axis=0)
        message_sums = np.einsum("pb,pb->p", _weighed(local, found, hop, far_items).take(item_index, axis=0), ratios)
        message[unknown_pairs] = message_sums * look_up(
            local.factor(hop.edge, hop.near), leaf[unknown_pairs], unknown_near_bins
        )
    return message


def _weighed(local: LeafDependence, found: Pass, hop: Hop, far: Items) -> Floats:
    """Return the vectors of the far variable of a hop (item, bin), multiplied by the factors of the edge."""
    return np.asarray(found.vectors[hop.far] * local.factor(hop.edge, hop.far).take(far.leaf, axis=0))


def _between_known(local: LeafDependence, hop: Hop, leaf: Places, near_bin: Bins, far_bin: Bins) -> Floats:
    """Return the message of a hop per pair, where the bins of both variables are known."""
    message = look_up(local.factor(hop.edge, hop.near), leaf, near_bin)
    message *= look_up(local.factor(hop.edge, hop.far), leaf, far_bin)
    message *= look_up(local.dependence.ratios(hop.edge, hop.near), near_bin, far_bin)
    return message


def look_up(table: Floats, rows: NDArray[np.integer], columns: NDArray[np.integer]) -> Floats:
    """Return the cells `table[rows, columns]`."""
    if not table.flags.c_contiguous:
        return np.asarray(table[rows, columns])
    return np.asarray(table.ravel().take(rows * np.int64(table.shape[1]) + columns))


def _log_complete(local: LeafDependence, evidence: BinEvidence, row: Places, leaf: Places) -> Floats:
    """Return log Z if all bins are known: ratios depend on the row only, factors on its bins and the leaf."""
    bins, dependence = evidence.bins, local.dependence
    log_ratios = np.zeros(len(bins))
    for edge in dependence.edges:
        log_ratios += np.log(edge.ratios[bins[:, edge.parent], bins[:, edge.child]])
    logs, pair_products, n_factors = log_ratios[row], np.ones(len(row)), 0
    for variable_index, edges in enumerate(dependence.neighbours):
        if not edges:
            continue
        factor_table = local.product(variable_index)
        pair_products *= factor_table.ravel().take(leaf * factor_table.shape[1] + bins[:, variable_index][row])
        n_factors += 1
        if n_factors == FACTORS:
            _take_logs(logs, pair_products)
            n_factors = 0
    _take_logs(logs, pair_products)
    return logs


def _take_logs(logs: Floats, product: Floats) -> None:
    """Add the log of `product` to `logs` in place, and reset `product` to one."""
    with np.errstate(divide="ignore"):
        logs += np.log(product)
    product[:] = 1.0


def _draw_bin(
    found: Pass,
    evidence: BinEvidence,
    spread: Spread,
    row: Places,
    leaf: Places,
    number: int,
    given: Floats | None,
    rng: np.random.Generator,
) -> Bins:
    """Draw the bins of one variable; `given` (pair, bin) is the factor from its neighbour towards the root."""
    bins = evidence.bins[:, number][row]
    unknown_pairs = np.flatnonzero(bins < 0)
    if not len(unknown_pairs):
        return bins
    no_item = np.full(len(unknown_pairs), -1, dtype=np.int64)
    item_index = found.items[number].place[unknown_pairs] if number in found.items else no_item
    bin_weights = np.empty((len(unknown_pairs), 0))
    without_vector = np.flatnonzero(item_index < 0)
    if number in found.vectors:
        bin_weights = found.vectors[number][np.maximum(item_index, 0)]
    if len(without_vector):
        spread_weights = spread(number, row[unknown_pairs[without_vector]], leaf[unknown_pairs[without_vector]])
        bin_weights = spread_weights if len(without_vector) == len(unknown_pairs) else bin_weights
        bin_weights[without_vector] = spread_weights
    if given is not None:
        bin_weights = bin_weights * given[unknown_pairs]
    bins[unknown_pairs] = pick_bins(bin_weights, rng)
    return bins
