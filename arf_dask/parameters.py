"""From leaf sums to a model: moments to truncated normals, counts as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.adversary import Round
from arf_dask.forest import Tree
from arf_dask.matching import match_moments, match_moments_grid
from arf_dask.schema import Floats, Schema
from arf_dask.smoothing import STRENGTH
from arf_dask.tables import Counts, Entries, Tables, first_entries, interval_bounds, smallest_unsigned, value_edges

WIDE_GRID = 20_000  # points of a grid beyond which rounding changes no moment by 1e-9 of the box
FEW_ROWS = 2  # with so few rows in a leaf their spread says little:
WIDE = 20  # they are taken to be spread over so many bins on either side,
NARROW = 1  # others at least over this many


class Bounds(NamedTuple):
    """The part of the line that each entry covers."""

    lower: Floats
    upper: Floats


def finish(tables: Tables, sums: Iterable[pl.DataFrame]) -> Tables:
    """The model (Alg. 2, after the sums) from its outline, one variable after the other."""
    return complete(tables, [fit_entries(tables, number, table) for number, table in enumerate(sums)])


def outline(
    schema: Schema,
    trees: Sequence[Tree],
    histograms: Sequence[Counts],
    *,
    family: str,
    support: str,
    rounds: Sequence[Round],
    options: Mapping[str, object],
) -> Tables:
    """The model's tables before any leaf is known: what `fit_entries` needs of them."""
    support = "observed" if family == "uniform" else support  # a uniform has no tails
    strengths = np.array([STRENGTH if v.n_states > 1 else 0.0 for v in schema.variables])
    # All rows in every leaf: right for trees of one leaf, the only ones where nothing is modelled.
    coverage = np.full(sum(int((t.left < 0).sum()) for t in trees), schema.n_rows, dtype=np.int64)
    return Tables(schema, trees, coverage, (), list(histograms), strengths, family, support, rounds, options)


def fit_entries(tables: Tables, number: int, table: pl.DataFrame) -> Entries:
    """The entries of one variable from its sums, in as little memory as they need."""
    variable = tables.schema.variables[number]
    rows = table["count"].to_numpy()
    state = table["state"].to_numpy().astype(smallest_unsigned(variable.n_states))
    rows = rows.astype(smallest_unsigned(int(rows.max(initial=1))))
    first = first_entries(table["leaf"].to_numpy(), tables.n_leaves)
    bare = Entries(first, state, rows, np.empty(0), np.empty(0))
    if not variable.interval.any():
        return bare
    mu, sigma = _fit_intervals(tables, number, table.filter(pl.col("mean").is_not_null()))
    return bare._replace(mu=mu, sigma=sigma)


def join_entries(parts: Sequence[Entries]) -> Entries:
    """The entries of several groups of trees, in their order."""
    if len(parts) == 1:
        return parts[0]
    first = np.sum([part.first for part in parts], axis=0)
    return Entries(first, *(np.concatenate(some) for some in list(zip(*parts, strict=True))[1:]))


def complete(tables: Tables, entries: Sequence[Entries]) -> Tables:
    """The outline with the leaves' entries of every variable."""
    if not entries:
        return tables
    coverage = np.bincount(entries[0].leaf, entries[0].rows, tables.n_leaves).astype(np.int64)
    return replace(tables, coverage=coverage, entries=tuple(entries))


def entry_bounds(tables: Tables, number: int, leaf: NDArray[np.uint32], state: NDArray[np.integer]) -> Bounds:
    """The part of the line that each of these (leaf, interval state) covers."""
    variable = tables.schema.variables[number]
    edges = value_edges(variable, tables.schema, tables.support)
    low = tables.boxes.low[leaf, number].astype(np.int32)
    high = tables.boxes.high[leaf, number].astype(np.int32)
    return Bounds(*interval_bounds(variable, edges, state.astype(np.int32), low, high))


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


def _fit_intervals(tables: Tables, number: int, table: pl.DataFrame) -> tuple[Floats, Floats]:
    """The normals of a line, one for each row of the table."""
    variable = tables.schema.variables[number]
    axis = tables.schema.columns[variable.columns[0]].axis
    assert axis is not None
    bounds = entry_bounds(tables, number, table["leaf"].to_numpy(), table["state"].to_numpy())
    if tables.family == "uniform":
        return (bounds.lower + bounds.upper) / 2, np.full(table.height, np.inf)
    mean, squares = table["mean"].to_numpy(), table["squares"].to_numpy()
    count = table["count"].to_numpy().astype(np.float64)
    seen = value_edges(variable, tables.schema, "observed")
    variance = np.maximum(squares / count, least_variance(mean, count, seen, *bounds))
    return _match(mean, variance, bounds, np.full(len(mean), axis.grid))


def _match(mean: Floats, variance: Floats, bounds: Bounds, coarse: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Normals with these moments after truncation; after rounding too, where the grid is coarse enough to matter."""
    mu, sigma = np.empty_like(mean), np.empty_like(mean)
    coarse = coarse & ((bounds.upper - bounds.lower <= WIDE_GRID) | (variance <= 100.0))
    for rows, match in ((~coarse, match_moments), (coarse, match_moments_grid)):
        mu[rows], sigma[rows] = match(mean[rows], variance[rows], bounds.lower[rows], bounds.upper[rows])
    return mu, sigma
