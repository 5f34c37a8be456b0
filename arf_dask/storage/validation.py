"""Consistency checks of a whole model, run before saving and after loading.

All invariants that later code relies on are checked: ids in range, sorted keys, codes without gaps or overlaps, valid
trees, counts that add up, finite numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from arf_dask.data.stored_fields import require
from arf_dask.errors import OptionError
from arf_dask.forest.dependence import count_bins
from arf_dask.forest.tables import LeafTables, VariableTables
from arf_dask.forest.trees import LEAF, Tree
from arf_dask.options import FAMILIES, SUPPORTS, Options
from arf_dask.schema.columns import Variable
from arf_dask.stats.log_sums import run_starts
from arf_dask.storage.fields import MODEL_JSON
from arf_dask.storage.schema_checks import BINS, check_schema
from arf_dask.typing import Floats, Ints

NODES, LEAVES, DISCRETE, CONTINUOUS = (f"{name}.parquet" for name in ("nodes", "leaves", "discrete", "continuous"))
CUTS, LINKS, RATIOS = (f"{name}.parquet" for name in ("cuts", "links", "ratios"))
MOST_STRENGTH = 1_000_000  # shrinkage strength, in rows
MOST_RATIO = 1e15  # observed to expected rows of a pair of bins, or the inverse


def check_tables(tables: LeafTables) -> None:
    """Raise a ModelFormatError for the first inconsistency of a model."""
    _check_settings(tables)
    check_schema(tables.schema)
    for table in tables.variables:
        _check_histogram(table, tables.schema.n_rows)
    for tree_id, tree in enumerate(tables.trees):
        _check_tree(tree, tables.n_codes, f"tree {tree_id}")
    _check_leaves(tables)
    for table in tables.variables:
        _check_entries(tables, table)
        _check_boxes(tables, table)
    if tables.dependence.edges:
        _check_dependence(tables)


def preorder_children(inner: NDArray[np.bool_]) -> tuple[Ints, Ints] | None:
    """Return the left and right child of every node of a tree in preorder, -1 at leaves; None if it is not a tree.

    In preorder, the positions of leaves determine the tree: a left child follows its parent, a right child follows the
    whole left subtree.

    >>> preorder_children(np.array([True, True, False, False, False]))
    (array([ 1,  2, -1, -1, -1], dtype=int32), array([ 4,  3, -1, -1, -1], dtype=int32))
    """
    n_nodes = len(inner)
    node_ids = np.arange(n_nodes)
    # Subtrees pending after each node: a split adds one, a leaf completes one, and none is pending at the end.
    n_pending = 1 + np.cumsum(np.where(inner, 1, -1))
    if n_nodes == 0 or n_pending[-1] != 0 or np.any(n_pending[:-1] <= 0):
        return None
    # The left subtree of a node ends at the first later node with one pending subtree fewer.
    pending_order = np.lexsort((node_ids, n_pending))
    sorted_keys = (n_pending * n_nodes + node_ids)[pending_order]
    subtree_ends = pending_order[
        np.minimum(np.searchsorted(sorted_keys, (n_pending - 1) * n_nodes + node_ids), n_nodes - 1)
    ]
    return np.where(inner, node_ids + 1, LEAF).astype(np.int32), np.where(inner, subtree_ends + 1, LEAF).astype(
        np.int32
    )


def _check_dependence(tables: LeafTables) -> None:
    """Check that bins cover the codes without splitting interval states, counts add up, and ratios are positive."""
    dependence, n_rows = tables.dependence, tables.schema.n_rows
    require(len(dependence.bins) == len(tables.variables), CUTS, "needs bins for every variable")
    for table, bins in zip(tables.variables, dependence.bins, strict=True):
        where, variable = f"variable {table.index}", table.variable
        is_valid = len(bins) == variable.n_codes and np.array_equal(np.unique(bins), np.arange(count_bins(bins)))
        require(is_valid, CUTS, f"{where}: bins that are not counted 0, 1, .., or not of all codes")
        if not variable.is_line:
            continue
        require(bool(np.all(np.diff(bins) >= 0)), CUTS, f"{where}: bins of a number line that are not in order")
        missing_codes = np.arange(min(variable.first_bin + 1, variable.n_codes))
        boundary_codes = np.concatenate([variable.code_low[variable.interval], missing_codes])
        is_valid = bool(np.all(np.isin(boundary_codes, run_starts(bins))))
        require(
            is_valid, CUTS, f"{where}: a bin that reaches over the border of two intervals, or from null to numbers"
        )
    for edge_id, edge in enumerate(dependence.edges):
        where, sides = f"link {edge_id}", (edge.parent, edge.child)
        shape = tuple(dependence.n_bins(side) for side in sides)
        is_valid = edge.observed.shape == shape == edge.ratios.shape
        is_valid = is_valid and bool(np.all(edge.observed >= 0)) and int(edge.observed.sum()) == n_rows
        require(is_valid, RATIOS, f"{where}: counts do not add up to {n_rows:,}")
        for axis, side in enumerate(sides):
            bin_rows = np.bincount(dependence.bins[side], tables.variables[side].histogram)
            counts_agree = np.array_equal(edge.observed.sum(axis=1 - axis), bin_rows)
            require(counts_agree, RATIOS, f"{where}: counts do not agree with the rows in {BINS}")
        is_valid = bool(np.all(np.isfinite(edge.ratios) & (edge.ratios > 1 / MOST_RATIO) & (edge.ratios < MOST_RATIO)))
        require(is_valid, RATIOS, f"{where}: a ratio that is not a positive number of a sensible size")
        require(np.isfinite(edge.information), LINKS, f"{where}: an information that is no finite number")


def check_options(options: Mapping[str, object]) -> None:
    """Raise a ModelFormatError if the options are not those of a fit."""
    try:
        Options.read({name: value for name, value in options.items() if name not in ("seed", "release", "privacy")})
    except (OptionError, TypeError) as error:
        require(False, MODEL_JSON, f"options: {str(error).rstrip('.')}")
    release_report = options.get("release")
    require(release_report is None or isinstance(release_report, dict), MODEL_JSON, "options: 'release' is no mapping")
    statement = options.get("privacy")
    require(statement is None or isinstance(statement, dict), MODEL_JSON, "options: 'privacy' is no mapping")


def _check_settings(tables: LeafTables) -> None:
    require(tables.family in FAMILIES, MODEL_JSON, f"unknown family {tables.family[:40]!r}")
    require(tables.support in SUPPORTS, MODEL_JSON, f"unknown support {tables.support[:40]!r}")
    is_valid = all(round_.round >= 0 and round_.leaves >= 0 and 0 <= round_.accuracy <= 1 for round_ in tables.rounds)
    require(is_valid and len(tables.rounds), MODEL_JSON, "rounds missing or out of range")
    is_valid = all(0 <= table.strength <= MOST_STRENGTH for table in tables.variables)
    require(is_valid, MODEL_JSON, f"a strength that is not between 0 and {MOST_STRENGTH:,}")


def _check_histogram(table: VariableTables, n_rows: int) -> None:
    histogram = table.histogram
    is_valid = len(histogram) == table.variable.n_codes
    require(is_valid, BINS, f"variable {table.index}: needs a row for every code")
    is_valid = bool(np.all((histogram >= 0) & (histogram <= n_rows)) and histogram.sum() == n_rows)
    require(is_valid, BINS, f"variable {table.index}: rows do not add up to {n_rows:,}")


def _check_tree(tree: Tree, n_codes: Ints, where: str) -> None:
    is_split = tree.feature >= 0
    children = preorder_children(is_split)
    require(children is not None, NODES, f"{where}: the nodes are no binary tree in preorder")
    assert children is not None
    children_match = np.array_equal(tree.left, children[0]) and np.array_equal(tree.right, children[1])
    require(children_match, NODES, f"{where}: children that are not those of a tree in preorder")
    is_known = np.all(tree.feature >= LEAF) and np.all(tree.feature < len(n_codes))
    require(is_known, NODES, f"{where}: an unknown variable")
    threshold, max_threshold = tree.threshold[is_split], n_codes[tree.feature[is_split]] - 1
    is_valid = np.all((threshold >= 0) & (threshold < max_threshold)) and not np.any(tree.threshold[~is_split])
    require(is_valid, NODES, f"{where}: a threshold outside its variable's codes")


def _check_leaves(tables: LeafTables) -> None:
    leaf_rows, n_rows = tables.coverage, tables.schema.n_rows
    require(len(tables.trees), NODES, "no trees")
    require(
        len(leaf_rows) == tables.n_leaves, LEAVES, f"the trees have {tables.n_leaves:,} leaves, not {len(leaf_rows):,}"
    )
    is_valid = np.all((leaf_rows >= 0) & (leaf_rows <= n_rows))
    is_valid = is_valid and np.all(np.add.reduceat(leaf_rows, tables.starts[:-1]) == n_rows)
    require(is_valid, LEAVES, f"the rows of a tree's leaves do not add up to {n_rows:,}")


def _check_entries(tables: LeafTables, table: VariableTables) -> None:
    """Check that keys are in range and sorted, and that counts add up to the rows of every leaf."""
    where, entries, variable = f"variable {table.index}", table.entries, table.variable
    is_valid = len(entries.first) == tables.n_leaves + 1 and entries.first[-1] == len(entries.state) == len(
        entries.rows
    )
    require(is_valid, DISCRETE, f"{where}: unknown leaves")
    require(np.all(entries.state < variable.n_states), DISCRETE, f"{where}: unknown states")
    leaf_ids = entries.leaf
    entry_keys = leaf_ids.astype(np.int64) * variable.n_states + entries.state
    require(np.all(entry_keys[1:] > entry_keys[:-1]), DISCRETE, f"{where}: rows that are unsorted or repeated")
    leaf_counts = np.bincount(leaf_ids, entries.rows, tables.n_leaves)  # exact below 2**53
    is_valid = bool(np.all(entries.rows > 0)) and np.array_equal(leaf_counts, tables.coverage)
    require(is_valid, DISCRETE, f"{where}: counts do not add up to the rows of every leaf")
    mu, sigma = entries.mu, entries.sigma
    is_valid = len(mu) == len(sigma) == np.count_nonzero(variable.interval[entries.state])
    require(is_valid, CONTINUOUS, f"{where}: needs a row for every interval in {DISCRETE}")
    require(np.all(np.isfinite(mu)), CONTINUOUS, f"{where}: a mu that is no finite number")
    require(np.all(sigma > 0), CONTINUOUS, f"{where}: a sigma that is not above zero")
    is_valid = tables.family != "uniform" or bool(np.all(np.isinf(sigma)))
    require(is_valid, CONTINUOUS, f"{where}: a sigma that is not infinite in the family 'uniform'")


def _check_boxes(tables: LeafTables, table: VariableTables) -> None:
    """Check that the states of a leaf intersect its box, and that all trees agree on the rows per state."""
    where, entries, variable = f"variable {table.index}", table.entries, table.variable
    histogram, states = table.histogram, entries.state.astype(np.int32)
    box_low, box_high = (side[:, table.index].astype(np.int32) for side in tables.boxes)
    require(np.all(box_low <= box_high), NODES, f"{where}: a split that leaves nothing on one side")
    cumulative_rows = np.concatenate([[0], np.cumsum(histogram)])
    is_valid = bool(np.all(cumulative_rows[box_high + 1] - cumulative_rows[box_low] >= tables.coverage))
    require(is_valid, BINS, f"{where}: fewer rows than a leaf holds")
    leaf_ids = entries.leaf
    box_low, box_high = box_low[leaf_ids], box_high[leaf_ids]
    intersects_box = (variable.code_low[states] <= box_high) & (variable.code_high[states] >= box_low)
    require(np.all(intersects_box), DISCRETE, f"{where}: a state outside the box of its leaf")
    tree_ids = np.searchsorted(tables.starts, leaf_ids, side="right") - 1
    shape = (len(tables.trees), variable.n_states)
    state_rows = np.bincount(tree_ids * shape[1] + states, entries.rows, shape[0] * shape[1]).reshape(shape)
    is_valid = bool(np.all(state_rows == _state_rows(variable, histogram)))
    require(is_valid, DISCRETE, f"{where}: counts of the states do not agree with the rows in {BINS}")
    if variable.is_line:
        is_interval = variable.interval[states]
        bounds = table.interval_bounds(states[is_interval], box_low[is_interval], box_high[is_interval])
        _check_curves(entries.mu, entries.sigma, *bounds, where)


def _check_curves(mu: Floats, sigma: Floats, lower: Floats, upper: Floats, where: str) -> None:
    """Check mu and sigma against generous versions of the bounds used by `matching`, beyond which formulas overflow."""
    require(np.all(lower <= upper), BINS, f"{where}: an interval whose lower end is above its upper")
    width = upper - lower
    is_bounded = np.isfinite(width)
    is_valid = bool(np.all(is_bounded | np.isfinite(sigma)))
    require(is_valid, CONTINUOUS, f"{where}: an infinite sigma without bounds")
    is_normal = np.isfinite(sigma)
    mu, sigma, width = mu[is_normal], sigma[is_normal], np.where(is_bounded, width, 0.0)[is_normal]
    outside_distance = np.maximum(lower[is_normal] - mu, mu - upper[is_normal])
    is_valid = bool(np.all(outside_distance <= 40 * sigma + 1e-12 * np.abs(mu)))
    require(is_valid, CONTINUOUS, f"{where}: a mu too far outside its bounds")
    # When fitted, sigma is at least 0.05 on a grid, and at least 1e-9 of the width otherwise.
    is_valid = bool(np.all((sigma >= np.minimum(1e-12 * width, 0.01)) & (sigma <= 1e100)))
    require(is_valid, CONTINUOUS, f"{where}: a sigma too small or too large for its bounds")


def _state_rows(variable: Variable, histogram: NDArray[np.int64]) -> Floats:
    """Return the training rows per state: those of its code for a point, of its other codes for an interval."""
    rows, interval_rows = np.zeros(variable.n_states), histogram.astype(np.float64)
    point_codes = variable.code_low[~variable.interval]
    rows[~variable.interval] = histogram[point_codes]
    interval_rows[point_codes] = 0.0
    interval_states = np.flatnonzero(variable.interval)
    if len(interval_states):
        rows[interval_states] = np.add.reduceat(interval_rows, variable.code_low[interval_states])
    return rows
