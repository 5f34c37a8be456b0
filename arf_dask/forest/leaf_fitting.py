"""Leaf parameters (paper, Alg. 2) from leaf sums: state counts, and truncated normals with the moments of each leaf."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.forest.dependence_learning import NO_STRUCTURE, Structure, fit_dependence
from arf_dask.forest.leaf_sums import LeafSums, sums_table
from arf_dask.forest.smoothing import prior_strength
from arf_dask.forest.tables import (
    Bounds,
    Entries,
    LeafTables,
    Round,
    VariableTables,
    first_entries,
    smallest_unsigned,
    variable_tables,
)
from arf_dask.forest.trees import Tree, count_leaves
from arf_dask.runtime.tasks import Threads
from arf_dask.schema.columns import Schema
from arf_dask.stats.moment_matching import match_moments, match_moments_grid
from arf_dask.typing import Counts, Family, Floats, Support

WIDE_GRID = 20_000  # on boxes with more grid points, rounding changes moments by less than 1e-9 of the box
FEW_ROWS = 2  # leaves with at most this many rows cannot estimate the spread:
WIDE_BINS = 20  # their rows are assumed to be spread over this many bins on either side,
NARROW_BINS = 1  # those of other leaves over at least this many


def fit_leaves(
    schema: Schema,
    trees: Sequence[Tree],
    batches: Iterable[LeafSums],
    *,
    family: Family,
    support: Support,
    rounds: Sequence[Round],
    structure: Structure = NO_STRUCTURE,
) -> LeafTables:
    """Estimate the parameters of every leaf and return the tables of the model.

    These are q(theta) and psi of the paper's Eq. 1: the coverage of each leaf, and the distribution of each variable in
    each leaf.

    Args:
        schema: the schema of the rows that were summed.
        trees: all trees of the forest.
        batches: the sums of consecutive batches of trees (`leaf_sums.sum_leaves`), at least one.
        family: "truncnorm" or "uniform".
        support: "observed" or "open".
        rounds: the rounds of training, for the record.
        structure: the dependency tree of the variables inside leaves.
    """
    tables, fitted_batches, edge_counts = None, [], None
    for sums in batches:
        if tables is None:
            edge_counts = sums.meetings
            tables = _empty_tables(schema, trees, sums.histograms, family, support, rounds)
            _ = tables.boxes  # computed once here, not by every thread
        fitted_batches.append(list(Threads().map(fit_variable, (tables, sums), tables.variables)))
    assert tables is not None
    assert edge_counts is not None
    tables = tables.with_entries([_join_entries(batch) for batch in zip(*fitted_batches, strict=True)])
    return tables.with_dependence(fit_dependence(tables, structure, edge_counts))


def fit_variable(shared: tuple[LeafTables, LeafSums], fitted: VariableTables) -> Entries:
    """Return the entries of one variable in a batch of trees, in the smallest types that hold them."""
    tables, sums = shared
    variable = fitted.variable
    variable_sums = sums_table(sums, tables.schema, fitted.index, tables.starts)
    row_counts = variable_sums["count"].to_numpy()
    entry_states = variable_sums["state"].to_numpy().astype(smallest_unsigned(variable.n_states))
    row_counts = row_counts.astype(smallest_unsigned(int(row_counts.max(initial=1))))
    first_entry = first_entries(variable_sums["leaf"].to_numpy(), tables.n_leaves)
    entries = Entries(first_entry, entry_states, row_counts, np.empty(0), np.empty(0))
    if not variable.interval.any():
        return entries
    mu, sigma = _fit_intervals(tables, fitted, variable_sums.filter(pl.col("mean").is_not_null()))
    return entries._replace(mu=mu, sigma=sigma)


def _empty_tables(
    schema: Schema,
    trees: Sequence[Tree],
    histograms: Sequence[Counts],
    family: Family,
    support: Support,
    rounds: Sequence[Round],
) -> LeafTables:
    """Return the tables of the model before any leaf is fitted."""
    support = "observed" if family == "uniform" else support  # a uniform has no tails
    strengths = [prior_strength(variable, schema.n_rows) for variable in schema.variables]
    # All rows in every leaf is correct for trees of one leaf, the only trees if no variable is modelled.
    coverage = np.full(sum(map(count_leaves, trees)), schema.n_rows, dtype=np.int64)
    variables = variable_tables(schema, histograms, strengths, support)
    return LeafTables(schema, trees, coverage, variables, family, support, rounds)


def _join_entries(batches: Sequence[Entries]) -> Entries:
    """Concatenate the entries of one variable in consecutive batches of trees."""
    if len(batches) == 1:
        return batches[0]
    first = np.sum([batch.first for batch in batches], axis=0)
    return Entries(first, *(np.concatenate(arrays) for arrays in list(zip(*batches, strict=True))[1:]))


def least_variance(mean: Floats, count: Floats, edges: Floats, lower: Floats, upper: Floats) -> Floats:
    """Return a lower bound of the variance of each leaf: that of a uniform over the bins around its mean, in its box.

    Leaves without spread, or with too few rows to estimate it, get a width based on the density of the column at their
    mean. This avoids spikes at training values, division by zero, and mass spread over a wide empty box.
    """
    mean_bin = np.searchsorted(edges, mean, side="right") - 1
    n_bins = np.where(count <= FEW_ROWS, WIDE_BINS, NARROW_BINS)
    left = edges[np.clip(mean_bin - n_bins + 1, 0, len(edges) - 1)]
    right = edges[np.clip(mean_bin + n_bins, 0, len(edges) - 1)]
    width = np.minimum(right, upper) - np.maximum(left, lower)
    return np.asarray(np.maximum(width, 1e-150) ** 2 / 12)


def _fit_intervals(tables: LeafTables, fitted: VariableTables, table: pl.DataFrame) -> tuple[Floats, Floats]:
    """Fit the normals of a number line, one for each row of the table."""
    bounds = fitted.entry_bounds(tables.boxes, table["leaf"].to_numpy(), table["state"].to_numpy())
    if tables.family == "uniform":
        return (bounds.lower + bounds.upper) / 2, np.full(table.height, np.inf)
    mean, squares = table["mean"].to_numpy(), table["squares"].to_numpy()
    count = table["count"].to_numpy().astype(np.float64)
    variance = np.maximum(squares / count, least_variance(mean, count, fitted.observed_edges, *bounds))
    return _match(mean, variance, bounds, np.full(len(mean), fitted.axis.grid))


def _match(mean: Floats, variance: Floats, bounds: Bounds, coarse: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return normals with these moments after truncation and, if the grid is coarse enough to matter, rounding."""
    mu, sigma = np.empty_like(mean), np.empty_like(mean)
    coarse = coarse & ((bounds.upper - bounds.lower <= WIDE_GRID) | (variance <= 100.0))
    for rows, match in ((~coarse, match_moments), (coarse, match_moments_grid)):
        mu[rows], sigma[rows] = match(mean[rows], variance[rows], bounds.lower[rows], bounds.upper[rows])
    return mu, sigma
