"""Does a model hold together? Asked before one is saved, and before one that was read from files is believed.

Everything that later code relies on without looking is checked: ids in range, keys in order, codes that tile,
trees that are trees, counts that add up, numbers that are numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arf_dask.facts import FACTS, require
from arf_dask.forest import LEAF, Ints, Tree
from arf_dask.options import FAMILIES, SUPPORTS
from arf_dask.schema import Floats, Variable
from arf_dask.schema_checks import BINS, check_schema
from arf_dask.tables import Tables, interval_bounds, value_edges

NODES, LEAVES, DISCRETE, CONTINUOUS = (f"{name}.parquet" for name in ("nodes", "leaves", "discrete", "continuous"))
MOST_STRENGTH = 1_000_000  # rows' worth


def check_tables(tables: Tables) -> None:
    """Raise a ModelFormatError for the first thing that does not hold."""
    _check_facts(tables)
    check_schema(tables.schema)
    for number in range(len(tables.schema.variables)):
        _check_histogram(tables, number)
    for number, tree in enumerate(tables.trees):
        _check_tree(tree, tables.n_codes, f"tree {number}")
    _check_leaves(tables)
    for number in range(len(tables.schema.variables)):
        _check_entries(tables, number)
        _check_boxes(tables, number)


def preorder_children(inner: NDArray[np.bool_]) -> tuple[Ints, Ints] | None:
    """Left and right child of every node of a tree in preorder, -1 at leaves; None if this is no tree.

    Which nodes are leaves says it all: a left child comes next, a right one after all that is below the left.

    >>> preorder_children(np.array([True, True, False, False, False]))
    (array([ 1,  2, -1, -1, -1], dtype=int32), array([ 4,  3, -1, -1, -1], dtype=int32))
    """
    n = len(inner)
    places = np.arange(n)
    # Subtrees still awaited after each node: a split awaits one more, a leaf one fewer, the end none.
    awaited = 1 + np.cumsum(np.where(inner, 1, -1))
    if n == 0 or awaited[-1] != 0 or np.any(awaited[:-1] <= 0):
        return None
    # What is below the left child of a node ends at the first later place that awaits one fewer.
    order = np.lexsort((places, awaited))
    keys = (awaited * n + places)[order]
    ends = order[np.minimum(np.searchsorted(keys, (awaited - 1) * n + places), n - 1)]
    return np.where(inner, places + 1, LEAF).astype(np.int32), np.where(inner, ends + 1, LEAF).astype(np.int32)


def _check_facts(tables: Tables) -> None:
    n_rows, strengths = tables.schema.n_rows, tables.strengths
    require(1 <= n_rows < 2**53, FACTS, f"n_rows is {n_rows}, not at least 1")
    require(tables.family in FAMILIES, FACTS, f"unknown family {tables.family[:40]!r}")
    require(tables.support in SUPPORTS, FACTS, f"unknown support {tables.support[:40]!r}")
    fine = all(r.round >= 0 and r.leaves >= 0 and 0 <= r.accuracy <= 1 for r in tables.rounds_held)
    require(fine and len(tables.rounds_held), FACTS, "rounds missing or out of range")
    fine = len(strengths) == len(tables.schema.variables)
    fine = fine and bool(np.all((strengths >= 0) & (strengths <= MOST_STRENGTH)))
    require(fine, FACTS, f"a strength that is not between 0 and {MOST_STRENGTH:,}")


def _check_histogram(tables: Tables, number: int) -> None:
    histogram, n_rows = tables.histograms[number], tables.schema.n_rows
    fine = len(histogram) == tables.schema.variables[number].n_codes
    require(fine, BINS, f"variable {number}: needs a row for every code")
    fine = bool(np.all((histogram >= 0) & (histogram <= n_rows)) and histogram.sum() == n_rows)
    require(fine, BINS, f"variable {number}: rows do not add up to {n_rows:,}")


def _check_tree(tree: Tree, n_codes: Ints, where: str) -> None:
    inner = tree.feature >= 0
    children = preorder_children(inner)
    require(children is not None, NODES, f"{where}: the nodes are no binary tree in preorder")
    assert children is not None
    same = np.array_equal(tree.left, children[0]) and np.array_equal(tree.right, children[1])
    require(same, NODES, f"{where}: children that are not those of a tree in preorder")
    known = np.all(tree.feature >= LEAF) and np.all(tree.feature < len(n_codes))
    require(known, NODES, f"{where}: an unknown variable")
    threshold, most = tree.threshold[inner], n_codes[tree.feature[inner]] - 1
    fine = np.all((threshold >= 0) & (threshold < most)) and not np.any(tree.threshold[~inner])
    require(fine, NODES, f"{where}: a threshold outside its variable's codes")


def _check_leaves(tables: Tables) -> None:
    rows, n_rows = tables.coverage, tables.schema.n_rows
    require(len(tables.trees), NODES, "no trees")
    require(len(rows) == tables.n_leaves, LEAVES, f"the trees have {tables.n_leaves:,} leaves, not {len(rows):,}")
    fine = np.all((rows >= 0) & (rows <= n_rows))
    fine = fine and np.all(np.add.reduceat(rows, tables.starts[:-1]) == n_rows)
    require(fine, LEAVES, f"the rows of a tree's leaves do not add up to {n_rows:,}")


def _check_entries(tables: Tables, number: int) -> None:
    """Keys in range and in order; counts that add up to the rows of every leaf."""
    where, entries, variable = f"variable {number}", tables.entries[number], tables.schema.variables[number]
    fine = len(entries.first) == tables.n_leaves + 1 and entries.first[-1] == len(entries.state) == len(entries.rows)
    require(fine, DISCRETE, f"{where}: unknown leaves")
    require(np.all(entries.state < variable.n_states), DISCRETE, f"{where}: unknown states")
    leaf = entries.leaf
    keys = leaf.astype(np.int64) * variable.n_states + entries.state
    require(np.all(keys[1:] > keys[:-1]), DISCRETE, f"{where}: rows that are unsorted or repeated")
    counts = np.bincount(leaf, entries.rows, tables.n_leaves)  # exact below 2**53
    fine = bool(np.all(entries.rows > 0)) and np.array_equal(counts, tables.coverage)
    require(fine, DISCRETE, f"{where}: counts do not add up to the rows of every leaf")
    mu, sigma = entries.mu, entries.sigma
    fine = len(mu) == len(sigma) == np.count_nonzero(variable.interval[entries.state])
    require(fine, CONTINUOUS, f"{where}: needs a row for every interval in {DISCRETE}")
    require(np.all(np.isfinite(mu)), CONTINUOUS, f"{where}: a mu that is no finite number")
    require(np.all(sigma > 0), CONTINUOUS, f"{where}: a sigma that is not above zero")
    fine = tables.family != "uniform" or bool(np.all(np.isinf(sigma)))
    require(fine, CONTINUOUS, f"{where}: a sigma that is not infinite in the family 'uniform'")


def _check_boxes(tables: Tables, number: int) -> None:
    """Nothing in a leaf lies outside its box, and every tree has seen the same rows."""
    where, entries, variable = f"variable {number}", tables.entries[number], tables.schema.variables[number]
    histogram, states = tables.histograms[number], entries.state.astype(np.int32)
    low, high = (side[:, number].astype(np.int32) for side in tables.boxes)
    require(np.all(low <= high), NODES, f"{where}: a split that leaves nothing on one side")
    seen = np.concatenate([[0], np.cumsum(histogram)])
    fine = bool(np.all(seen[high + 1] - seen[low] >= tables.coverage))
    require(fine, BINS, f"{where}: fewer rows than a leaf holds")
    leaf = entries.leaf
    low, high = low[leaf], high[leaf]
    inside = (variable.code_low[states] <= high) & (variable.code_high[states] >= low)
    require(np.all(inside), DISCRETE, f"{where}: a state outside the box of its leaf")
    tree = np.searchsorted(tables.starts, leaf, side="right") - 1
    shape = (len(tables.trees), variable.n_states)
    rows = np.bincount(tree * shape[1] + states, entries.rows, shape[0] * shape[1]).reshape(shape)
    fine = bool(np.all(rows == _state_rows(variable, histogram)))
    require(fine, DISCRETE, f"{where}: counts of the states do not agree with the rows in {BINS}")
    if variable.is_line:
        found = variable.interval[states]
        edges = value_edges(variable, tables.schema, tables.support)
        bounds = interval_bounds(variable, edges, states[found], low[found], high[found])
        _check_curves(entries.mu, entries.sigma, *bounds, where)


def _check_curves(mu: Floats, sigma: Floats, lower: Floats, upper: Floats, where: str) -> None:
    """The bounds that `matching` keeps to, with room to spare: far beyond them formulas overflow."""
    require(np.all(lower <= upper), BINS, f"{where}: an interval whose lower end is above its upper")
    width = upper - lower
    closed = np.isfinite(width)
    fine = bool(np.all(closed | np.isfinite(sigma)))
    require(fine, CONTINUOUS, f"{where}: an infinite sigma without bounds")
    bell = np.isfinite(sigma)
    mu, sigma, width = mu[bell], sigma[bell], np.where(closed, width, 0.0)[bell]
    outside = np.maximum(lower[bell] - mu, mu - upper[bell])
    fine = bool(np.all(outside <= 40 * sigma + 1e-12 * np.abs(mu)))
    require(fine, CONTINUOUS, f"{where}: a mu too far outside its bounds")
    # On a grid sigma is at least 0.05, however wide the box; else at least 1e-9 widths.
    fine = bool(np.all((sigma >= np.minimum(1e-12 * width, 0.01)) & (sigma <= 1e100)))
    require(fine, CONTINUOUS, f"{where}: a sigma too small or too large for its bounds")


def _state_rows(variable: Variable, histogram: NDArray[np.int64]) -> Floats:
    """Training rows of every state: a point has those of its code, an interval the rest of its codes."""
    rows, rest = np.zeros(variable.n_states), histogram.astype(np.float64)
    codes = variable.code_low[~variable.interval]
    rows[~variable.interval] = histogram[codes]
    rest[codes] = 0.0
    places = np.flatnonzero(variable.interval)
    if len(places):
        rows[places] = np.add.reduceat(rest, variable.code_low[places])
    return rows
