"""Leaves as boxes of values, from the public tables of a model: `nodes`, `leaves` and `schema`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import arf_dask

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class LeafBoxes(NamedTuple):
    """The leaves of one tree. One row per leaf: a row lies in it where lower < value <= upper in every variable."""

    lower: Floats  # (leaf, variable): values of numeric columns, codes of categorical ones
    upper: Floats
    coverage: Floats  # share of the training rows


def leaf_boxes(model: arf_dask.Model, tree: int) -> LeafBoxes:
    """The boxes of the leaves of one tree, in the order of `model.leaves`."""
    nodes = model.nodes.filter(pl.col("tree") == tree).sort("node")
    leaves = model.leaves.filter(pl.col("tree") == tree)
    lower, upper = node_boxes(nodes, len(model.schema.variables))
    found = leaves["node"].to_numpy()
    low, high = lower[found], upper[found]
    for number, variable in enumerate(model.schema.variables):
        if variable.is_line:
            low[:, number], high[:, number] = (cut_values(variable, side[found, number]) for side in (lower, upper))
    return LeafBoxes(low, high, leaves["coverage"].to_numpy())


def node_boxes(nodes: pl.DataFrame, n_variables: int) -> tuple[Floats, Floats]:
    """Per (node, variable) the codes that reach it: lower < code <= upper. A level of the tree at a time."""
    feature, threshold, left, right = (nodes[name].to_numpy() for name in ("feature", "threshold", "left", "right"))
    lower, upper = np.full((nodes.height, n_variables), -np.inf), np.full((nodes.height, n_variables), np.inf)
    level = np.array([0])
    while len(level):
        inner = level[left[level] >= 0]
        for child in (left[inner], right[inner]):
            lower[child], upper[child] = lower[inner], upper[inner]
        upper[left[inner], feature[inner]] = threshold[inner]
        lower[right[inner], feature[inner]] = threshold[inner]
        level = np.concatenate([left[inner], right[inner]])
    return lower, upper


def cut_values(variable: arf_dask.Variable, threshold: Floats) -> Floats:
    """The values at which thresholds between codes cut a number line; infinite where there is no cut."""
    place = np.clip(np.nan_to_num(threshold, posinf=0, neginf=0) - variable.first_bin, 0, len(variable.edges) - 1)
    cuts = variable.edges[place.astype(np.int64)] if len(variable.edges) else np.zeros(len(threshold))
    before = threshold < variable.first_bin  # between missing and known: no cut of the values
    return np.where(np.isfinite(threshold) & ~before, cuts, np.where(threshold > 0, np.inf, -np.inf))


def leaf_of_rows(boxes: LeafBoxes, rows: Floats, rows_at_once: int = 1_000) -> Ints:
    """The leaf that every row of numbers lies in (the columns of `rows` are the variables of the model)."""
    found = []
    for first in range(0, len(rows), rows_at_once):
        some = rows[first : first + rows_at_once, None, :]
        inside = ((some > boxes.lower) & (some <= boxes.upper)).all(axis=2)
        found.append(inside.argmax(axis=1))
    return np.concatenate(found)
