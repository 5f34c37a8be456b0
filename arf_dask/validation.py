"""Does a model hold together? Asked before one is saved, and before one that was read from files is believed.

Everything that later code relies on without looking is checked here: ids in range, keys in order, codes that tile,
trees that are trees, counts that add up, numbers that are numbers.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.axis import EXACT, FLOATS, Axis, is_numeric
from arf_dask.errors import ModelFormatError
from arf_dask.forest import LEAF, Boxes, Ints, Tree, leaf_boxes
from arf_dask.keys import IntegerSequence, KeyShape
from arf_dask.options import FAMILIES, SUPPORTS
from arf_dask.schema import FIRST_LEVEL, NAN, NULL, Column, Floats, Schema, Variable
from arf_dask.tables import Entries, Tables, interval_bounds, value_edges

FACTS = "model.json"
REMEDY = "The model was damaged or changed: restore it from a copy, or fit and save it again."
BAD_INPUT = (Exception, pl.exceptions.PanicException)  # a Polars panic is no Exception


def require(holds: object, file: str, problem: str) -> None:
    """Raise, with the file concerned and what to do, where something does not hold."""
    if not holds:
        raise ModelFormatError(f"{file}: {problem}. {REMEDY}")


def check_tables(tables: Tables) -> None:
    """Raise a ModelFormatError for the first thing that does not hold."""
    schema = tables.schema
    _check_facts(tables)
    for column in schema.columns:
        _check_column(column, schema.n_rows)
    _check_members(schema)
    for number, variable in enumerate(schema.variables):
        _check_variable(variable, schema, f"variable {number}")
        _check_histogram(tables, number)
    for number, tree in enumerate(tables.trees):
        _check_tree(tree, tables.n_codes, f"tree {number}")
    _check_leaves(tables)
    for number in range(len(schema.variables)):
        _check_entries(tables, number)
    for number in range(len(tables.trees)):
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
    return np.where(inner, places + 1, LEAF).astype(np.int32), np.where(inner, ends + 1, LEAF).astype(
        np.int32
    )


def _check_facts(tables: Tables) -> None:
    require(tables.schema.n_rows >= 1, FACTS, f"n_rows is {tables.schema.n_rows}, not at least 1")
    require(tables.family in FAMILIES, FACTS, f"unknown family {tables.family!r}")
    require(tables.support in SUPPORTS, FACTS, f"unknown support {tables.support!r}")
    require(len(tables.rounds_held), FACTS, "no rounds")
    for held in tables.rounds_held:
        fine = held.round >= 0 and held.leaves >= 0 and 0 <= held.accuracy <= 1
        require(fine, FACTS, f"round {held.round}: numbers out of range")
    strengths = np.asarray(tables.strengths)
    fine = strengths.shape == (len(tables.schema.variables),) and np.all(
        np.isfinite(strengths) & (strengths >= 0)
    )
    require(fine, FACTS, "a strength that is negative or no number")


def _check_histogram(tables: Tables, number: int) -> None:
    histogram, variable = tables.histograms[number], tables.schema.variables[number]
    require(
        len(histogram) == variable.n_codes, "bins.parquet", f"variable {number}: needs a row for every code"
    )
    fine = np.all(histogram >= 0) and int(histogram.sum()) == tables.schema.n_rows
    require(fine, "bins.parquet", f"variable {number}: rows do not add up to {tables.schema.n_rows:,}")


def _check_tree(tree: Tree, n_codes: Ints, where: str) -> None:
    file, inner = "nodes.parquet", tree.feature >= 0
    children = preorder_children(inner)
    require(children is not None, file, f"{where}: the nodes are no binary tree in preorder")
    assert children is not None
    same = np.array_equal(tree.left, children[0]) and np.array_equal(tree.right, children[1])
    require(same, file, f"{where}: children that are not those of a tree in preorder")
    require(
        np.all(tree.feature >= LEAF) and np.all(tree.feature < len(n_codes)),
        file,
        f"{where}: unknown variables",
    )
    thresholds = tree.threshold[inner]
    fine = np.all(thresholds >= 0) and np.all(thresholds < n_codes[tree.feature[inner]] - 1)
    require(
        fine and not np.any(tree.threshold[~inner]),
        file,
        f"{where}: a threshold outside its variable's codes",
    )


def _check_leaves(tables: Tables) -> None:
    file, rows = "leaves.parquet", tables.coverage
    require(len(tables.trees), "nodes.parquet", "no trees")
    require(
        len(rows) == tables.n_leaves, file, f"{len(rows):,} leaves, but the trees have {tables.n_leaves:,}"
    )
    sums = np.add.reduceat(rows, tables.starts[:-1])
    fine = np.all(rows >= 0) and np.all(sums == tables.schema.n_rows)
    require(fine, file, f"the rows of a tree's leaves do not add up to {tables.schema.n_rows:,}")


def _check_entries(tables: Tables, number: int) -> None:
    """Keys in range and in order; counts that add up to the rows of every leaf."""
    file, where, entries = "discrete.parquet", f"variable {number}", tables.entries[number]
    n_states, interval = tables.schema.variables[number].n_states, tables.schema.variables[number].interval
    require(len({len(part) for part in entries}) == 1, file, f"{where}: columns of different lengths")
    require(np.all(entries.leaf < tables.n_leaves), file, f"{where}: unknown leaves")
    require(np.all(entries.state < n_states), file, f"{where}: unknown states")
    keys = entries.leaf.astype(np.int64) * n_states + entries.state
    require(np.all(keys[1:] > keys[:-1]), file, f"{where}: rows that are unsorted or repeated")
    counts = np.bincount(entries.leaf, entries.count, tables.n_leaves)  # exact below 2**53
    fine = np.all(entries.count > 0) and np.array_equal(counts, tables.coverage)
    require(fine, file, f"{where}: counts do not add up to the rows of every leaf")
    found = interval[entries.state]
    mu, sigma = entries.mu[found], entries.sigma[found]
    require(np.all(np.isfinite(mu)), "continuous.parquet", f"{where}: mu that is no finite number")
    require(np.all(sigma > 0), "continuous.parquet", f"{where}: sigma that is not above zero")
    flat = np.all(np.isinf(sigma)) if tables.family == "uniform" else True
    require(flat, "continuous.parquet", f"{where}: sigma must be infinite in the family 'uniform'")


def _check_boxes(tables: Tables, tree: int) -> None:
    """Nothing in a leaf lies outside its box, and every tree has seen the same rows."""
    boxes = leaf_boxes(tables.trees[tree], tables.n_codes)
    require(
        np.all(boxes.low <= boxes.high),
        "nodes.parquet",
        f"tree {tree}: a split that leaves nothing on one side",
    )
    start, stop = tables.starts[tree], tables.starts[tree + 1]
    for number, entries in enumerate(tables.entries):
        here = slice(*np.searchsorted(entries.leaf, [start, stop]))
        part = Entries(*(column[here] for column in entries))
        _check_inside(tables, number, part._replace(leaf=part.leaf - np.uint32(start)), boxes, f"tree {tree}")
        seen = np.concatenate([[0], np.cumsum(tables.histograms[number])])
        room = seen[boxes.high[:, number] + 1] - seen[boxes.low[:, number]]
        fine = np.all(room >= tables.coverage[start:stop])
        require(fine, "bins.parquet", f"variable {number}: fewer rows than the leaves of tree {tree} hold")


def _check_inside(tables: Tables, number: int, entries: Entries, boxes: Boxes, where: str) -> None:
    file, variable = "discrete.parquet", tables.schema.variables[number]
    where = f"variable {number}, {where}"
    low, high = boxes.low[entries.leaf, number], boxes.high[entries.leaf, number]
    inside = (variable.code_low[entries.state] <= high) & (variable.code_high[entries.state] >= low)
    require(np.all(inside), file, f"{where}: a state outside the box of its leaf")
    rows = np.bincount(entries.state, entries.count, variable.n_states)
    fine = np.array_equal(rows, _state_rows(variable, tables.histograms[number]))
    require(fine, file, f"{where}: counts of the states do not agree with the rows in bins.parquet")
    if variable.is_line:
        found = np.flatnonzero(variable.interval[entries.state])
        edges = value_edges(variable, tables.schema, tables.support)
        states = entries.state[found].astype(np.int32)
        lower, upper = interval_bounds(variable, edges, states, low[found], high[found])
        require(
            np.all(lower <= upper), "bins.parquet", f"{where}: an interval whose lower end is above its upper"
        )


def _state_rows(variable: Variable, histogram: NDArray[np.int64]) -> Floats:
    """Training rows of every state: a point has those of its code, an interval those of its codes without points."""
    rest, rows = histogram.astype(np.float64), np.zeros(variable.n_states)
    points = ~variable.interval
    rows[points] = histogram[variable.code_low[points]]
    rest[variable.code_low[points]] = 0.0
    places = np.flatnonzero(variable.interval)
    if len(places):
        rows[places] = np.add.reduceat(rest, variable.code_low[places])
    return rows


