"""From leaf sums to a model: moments to truncated normals, counts as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.adversary import Round
from arf_dask.forde import Sums
from arf_dask.forest import Tree
from arf_dask.matching import match_moments, match_moments_grid
from arf_dask.schema import Floats, Schema
from arf_dask.smoothing import STRENGTH
from arf_dask.tables import Counts, Entries, Tables, interval_bounds, value_edges

WIDE_GRID = 20_000  # points of a grid beyond which rounding changes no moment by 1e-9 of the box
FEW_ROWS = 2  # with so few rows in a leaf their spread says little:
WIDE = 20  # they are taken to be spread over so many bins on either side,
NARROW = 1  # others at least over this many


class Bounds(NamedTuple):
    """The part of the line that each entry covers."""

    lower: Floats
    upper: Floats


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
    support = "observed" if family == "uniform" else support  # a uniform has no tails
    entries = [_bare(table) for table in sums]
    coverage = np.bincount(entries[0].leaf, entries[0].count).astype(np.int64) if entries else _all_rows(trees, schema)
    zeros = np.zeros(len(entries))
    bare = Tables(schema, trees, coverage, entries, histograms, zeros, family, support, rounds, options)
    strengths = [STRENGTH if v.n_states > 1 else 0.0 for v in schema.variables]
    fitted = list(entries)
    for number, bounds in entry_bounds(bare).items():
        fitted[number] = _fit_intervals(bare, number, sums[number], bounds)
    return Tables(schema, trees, coverage, fitted, histograms, np.array(strengths), family, support, rounds, options)


def entry_bounds(tables: Tables) -> dict[int, Bounds]:
    """Per line: lower and upper value of every entry that is an interval, in order."""
    lines = [number for number, v in enumerate(tables.schema.variables) if v.interval.any()]
    edges = {number: value_edges(tables.schema.variables[number], tables.schema, tables.support) for number in lines}
    parts: dict[int, list[Bounds]] = {number: [] for number in lines}
    for tree in range(len(tables.trees) if lines else 0):
        boxes = tables.surroundings(tree).boxes
        for number in lines:
            variable, entries = tables.schema.variables[number], tables.entries[number]
            a, b = np.searchsorted(entries.leaf, tables.starts[tree : tree + 2])
            found = a + np.flatnonzero(variable.interval[entries.state[a:b]])
            leaf, state = entries.leaf[found] - tables.starts[tree], entries.state[found].astype(np.int32)
            low, high = boxes.low[leaf, number], boxes.high[leaf, number]
            parts[number].append(Bounds(*interval_bounds(variable, edges[number], state, low, high)))
    return {n: Bounds(*(np.concatenate(side) for side in zip(*some, strict=True))) for n, some in parts.items()}


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
    return np.asarray(np.maximum(width, 1e-150) ** 2 / 12)


def _bare(table: pl.DataFrame) -> Entries:
    leaf, state, count = (table[c].to_numpy() for c in ("leaf", "state", "count"))
    empty = np.full(len(leaf), np.nan)
    return Entries(leaf, state, count, empty, empty)


def _all_rows(trees: Sequence[Tree], schema: Schema) -> Counts:
    return np.full(sum(int((t.left < 0).sum()) for t in trees), schema.n_rows, dtype=np.int64)


def _fit_intervals(tables: Tables, number: int, table: pl.DataFrame, bounds: Bounds) -> Entries:
    """The entries of a line with the normals of their intervals."""
    variable, entries = tables.schema.variables[number], tables.entries[number]
    axis = tables.schema.columns[variable.columns[0]].axis
    assert axis is not None
    found = np.flatnonzero(variable.interval[entries.state])
    mu, sigma = entries.mu.copy(), entries.sigma.copy()
    if tables.family == "uniform":
        mu[found], sigma[found] = (bounds.lower + bounds.upper) / 2, np.inf
        return entries._replace(mu=mu, sigma=sigma)
    mean, squares = table["mean"].to_numpy()[found], table["squares"].to_numpy()[found]
    count = entries.count[found].astype(np.float64)
    seen = value_edges(variable, tables.schema, "observed")
    variance = np.maximum(squares / count, least_variance(mean, count, seen, *bounds))
    mu[found], sigma[found] = _match(mean, variance, bounds, axis.grid & (count > FEW_ROWS))
    return entries._replace(mu=mu, sigma=sigma)


def _match(mean: Floats, variance: Floats, bounds: Bounds, coarse: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Normals with these moments after truncation; after rounding too, where the grid is coarse enough to matter."""
    mu, sigma = np.empty_like(mean), np.empty_like(mean)
    coarse = coarse & ((bounds.upper - bounds.lower <= WIDE_GRID) | (variance <= 100.0))
    for rows, match in ((~coarse, match_moments), (coarse, match_moments_grid)):
        mu[rows], sigma[rows] = match(mean[rows], variance[rows], bounds.lower[rows], bounds.upper[rows])
    return mu, sigma
