"""From leaf sums to a model: moments to truncated normals, counts as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from arf_dask.adversary import Round
from arf_dask.forde import Sums
from arf_dask.forest import Ints, Tree
from arf_dask.matching import match_moments, match_moments_grid
from arf_dask.tables import Counts, Entries, Tables, interval_bounds, value_edges
from arf_dask.schema import Floats, Schema
from arf_dask.smoothing import STRENGTH

FEW_ROWS = 2  # with so few rows in a leaf their spread says little:
WIDE = 20  # they are taken to be spread over so many bins on either side,
NARROW = 1  # others at least over this many


def finish(
    sums: Sums,
    schema: Schema,
    trees: Sequence[Tree],
    histograms: Sequence[Counts],
    *,
    family: str,
    support: str,
    rounds: Sequence[Round],
    options: Mapping[str, object],
) -> Tables:
    """The model's tables (Alg. 2, after the sums)."""
    entries = [_bare(table) for table in sums]
    coverage = np.bincount(entries[0].leaf, entries[0].count).astype(np.int64) if entries else _all_rows(trees, schema)
    zeros = np.zeros(len(entries))
    bare = Tables(schema, trees, coverage, entries, histograms, zeros, family, support, rounds, options)
    strengths = [STRENGTH if v.n_states > 1 else 0.0 for v in schema.variables]
    fitted = [_fit_intervals(bare, number, sums[number], family) for number in range(len(entries))]
    return Tables(
        schema, trees, coverage, fitted, histograms, np.array(strengths), family, support, rounds, options
    )


def entry_bounds(tables: Tables, number: int) -> tuple[Floats, Floats]:
    """Lower and upper value of every entry of a line; NaN for points."""
    variable, entries = tables.schema.variables[number], tables.entries[number]
    lower, upper = np.full(len(entries.leaf), np.nan), np.full(len(entries.leaf), np.nan)
    edges = value_edges(variable, tables.schema, tables.support)
    for tree in range(len(tables.trees)):
        a, b = np.searchsorted(entries.leaf, tables.starts[tree : tree + 2])
        of_interval = a + np.flatnonzero(variable.interval[entries.state[a:b]])
        boxes = tables.surroundings(tree).boxes
        leaf, state = entries.leaf[of_interval] - tables.starts[tree], entries.state[of_interval]
        low, high = boxes.low[leaf, number], boxes.high[leaf, number]
        lower[of_interval], upper[of_interval] = interval_bounds(variable, edges, state.astype(np.int32), low, high)
    return lower, upper


def least_variance(mean: Floats, count: Floats, edges: Floats, lower: Floats, upper: Floats) -> Floats:
    """The variance of a uniform over the bins around the mean, inside the box.

    Leaves without spread, or with too few rows to know it, get a width that suits the density of the column there:
    no spike at a training value, no division by zero, and nothing smeared over a wide empty box.
    """
    bin_ = np.searchsorted(edges, mean, side="right") - 1
    reach = np.where(count <= FEW_ROWS, WIDE, NARROW)
    left = edges[np.clip(bin_ - reach + 1, 0, len(edges) - 1)]
    right = edges[np.clip(bin_ + reach, 0, len(edges) - 1)]
    width = np.minimum(right, upper) - np.maximum(left, lower)
    return np.maximum(width, 1e-150) ** 2 / 12


def _bare(table: object) -> Entries:
    import polars as pl

    assert isinstance(table, pl.DataFrame)
    leaf, state, count = (table[c].to_numpy() for c in ("leaf", "state", "count"))
    empty = np.full(len(leaf), np.nan)
    return Entries(leaf, state, count, empty, empty)


def _all_rows(trees: Sequence[Tree], schema: Schema) -> Counts:
    return np.full(sum(int((t.left < 0).sum()) for t in trees), schema.n_rows, dtype=np.int64)


def _fit_intervals(tables: Tables, number: int, table: object, family: str) -> Entries:
    import polars as pl

    assert isinstance(table, pl.DataFrame)
    variable, entries = tables.schema.variables[number], tables.entries[number]
    if not variable.interval.any():
        return entries
    lower, upper = entry_bounds(tables, number)
    found = np.flatnonzero(variable.interval[entries.state])
    mu, sigma = entries.mu.copy(), entries.sigma.copy()
    lower, upper = lower[found], upper[found]
    mean, squares = table["mean"].to_numpy()[found], table["squares"].to_numpy()[found]
    count = entries.count[found].astype(np.float64)
    axis = tables.schema.columns[variable.columns[0]].axis
    assert axis is not None
    if family == "uniform":
        mu[found], sigma[found] = (np.clip(lower, axis.low, axis.high) + np.clip(upper, axis.low, axis.high)) / 2, np.inf
        return entries._replace(mu=mu, sigma=sigma)
    seen = value_edges(variable, tables.schema, "observed")
    variance = np.maximum(squares / count, least_variance(mean, count, seen, lower, upper))
    match = match_moments_grid if axis.grid else match_moments
    mu[found], sigma[found] = match(mean, variance, lower, upper)
    return entries._replace(mu=mu, sigma=sigma)
