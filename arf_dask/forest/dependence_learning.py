"""Learn the dependence inside leaves: the dependency tree, and the ratios on its edges.

O(a, b) is the number of training rows in bins a and b of two variables; E(a, b) is the number expected if the variables
were independent inside leaves: the sum over leaves of n(a) n(b) / n, averaged over trees. O log(O / E) / n is the
mutual information that independent leaves miss, and its maximum spanning tree is the dependency tree. The ratios
are fitted so that the model, with the marginals of every leaf unchanged, reproduces the pair frequencies of the data on
every edge, smoothed as far as the data allow (stats/table_smoothing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arf_dask.forest.dependence import NO_DEPENDENCE, Dependence, Edge, count_bins
from arf_dask.forest.dependence_bins import BINS, MOST_MEMBER_BINS, all_code_bins, member_bins
from arf_dask.forest.leaf_normals import batch_bin_masses
from arf_dask.forest.tables import LeafTables
from arf_dask.runtime.tasks import Threads
from arf_dask.schema.columns import Schema
from arf_dask.stats.ratio_scaling import scale_ratios
from arf_dask.stats.spanning_tree import Link, spanning_forest
from arf_dask.stats.table_smoothing import smooth_counts
from arf_dask.typing import Codes, Counts, Floats, Ints

SMOOTHING = 1.0  # rows added to the observed and expected count of every pair of bins
SIGNIFICANT = 3.0  # minimum information of an edge, in standard deviations above chance
FITTING_ROUNDS = 5  # rounds of fitting the pair frequencies of the model to those of the data
FITTING_STEP = 1.8  # over-relaxation: five rounds achieve what ten would with a step of 1
FITTING_TOLERANCE = 1e-3  # of the marginals during fitting
# Pairs of bins that never meet in very many rows would reach ratios of any size. Within these limits, the scaling of
# ratios to the marginals of leaves always converges, and a pair that never meets is as rare as one row in 100 million.
MOST_RATIO = 1e8
FITTING_LEAVES = 2_048  # number of leaves used for fitting; at least those of one tree batch
SCREENING_WORK = 2e10  # maximum number of multiplications for finding the dependency tree
MEMBER_WORK = 8e10  # the same with the columns of bundles, above which many levels are not grouped into bins
LEAST_SCREENING_TREES, MOST_SCREENING_TREES = 4, 6
COARSE_BINS = (8, 4, 2)  # numbers of bins to try if there are too many variables


class Structure(NamedTuple):
    """The dependency tree, and the bins of its variables."""

    bins: tuple[Ints, ...]  # per variable: the bin of every code
    links: list[Link]  # parents before their children


NO_STRUCTURE = Structure((), [])


def find_structure(schema: Schema, codes: Codes, leaves: Sequence[Ints]) -> Structure:
    """Find the dependency tree of a forest from the rows it was grown on.

    Args:
        schema: the columns.
        codes: the codes of the rows, (row, variable).
        leaves: per tree, the leaf index of every row.
    """
    if len(schema.variables) < 2:
        return NO_STRUCTURE
    histograms = [np.bincount(codes[:, j], minlength=v.n_codes) for j, v in enumerate(schema.variables)]
    bins = all_code_bins(schema, histograms)
    n_leaves = int(np.mean([int(leaf.max()) + 1 for leaf in leaves]))
    coarse_bins, n_trees = _affordable(schema, histograms, bins, n_leaves, len(leaves), len(codes))
    if coarse_bins is not bins:
        links = spanning_forest(screen_pairs(codes, leaves[:n_trees], coarse_bins))
        return Structure(tuple(bins), links) if links else NO_STRUCTURE
    # A bundle has several candidate bins: choose those most informative about the other variables.
    member_candidates = _member_candidates(schema, histograms, bins, len(codes) + n_trees * n_leaves)
    owners = np.array([*range(len(bins)), *(index for index, _ in member_candidates)])
    candidates = [*bins, *(level_bins for _, level_bins in member_candidates)]
    information = screen_pairs(codes[:, owners], leaves[:n_trees], candidates)
    gains = np.where(owners[:, None] != owners[None, : len(bins)], np.maximum(information[:, : len(bins)], 0.0), 0.0)
    chosen = [max(np.flatnonzero(owners == index), key=lambda one: gains[one].sum()) for index in range(len(bins))]
    links = spanning_forest(information[np.ix_(chosen, chosen)])
    return Structure(tuple(candidates[one] for one in chosen), links) if links else NO_STRUCTURE


def screen_pairs(codes: Codes, leaves: Sequence[Ints], code_bins: Sequence[Ints]) -> Floats:
    """Return the information that independent leaves miss, minus that expected by chance, as (variable, variable)."""
    n_rows, width = codes.shape
    first_bins = np.concatenate([[0], np.cumsum([count_bins(variable_bins) for variable_bins in code_bins])])
    bins = _row_bins(codes, code_bins) + first_bins[:-1]
    observed = _meetings(bins, int(first_bins[-1]))
    expected = np.zeros_like(observed)
    for leaf in leaves:
        leaf_counts, leaf_rows = _leaf_bins(leaf, bins, int(first_bins[-1]))
        expected += (leaf_counts / np.sqrt(leaf_rows, dtype=np.float32)[:, None]).T @ (
            leaf_counts / np.sqrt(leaf_rows)[:, None]
        )
    expected /= len(leaves)
    gain = observed * np.log((observed + SMOOTHING) / (expected + SMOOTHING))
    information = np.add.reduceat(np.add.reduceat(gain, first_bins[:-1], axis=0), first_bins[:-1], axis=1) / n_rows
    n_freedom = np.multiply.outer(np.diff(first_bins) - 1, np.diff(first_bins) - 1)
    chance_level = (n_freedom + SIGNIFICANT * np.sqrt(2 * n_freedom)) / (2 * n_rows)
    information -= chance_level
    information[np.arange(width), np.arange(width)] = 0.0
    return np.asarray((information + information.T) / 2)


def count_meetings(codes: Codes, structure: Structure) -> list[Counts]:
    """Count rows by (bin of the parent, bin of the child) for every edge. The counts of several parts can be added."""
    row_bins = {index: structure.bins[index][codes[:, index]] for index in _joined(structure)}
    edge_counts = []
    for link in structure.links:
        shape = count_bins(structure.bins[link.parent]), count_bins(structure.bins[link.child])
        pair_index = row_bins[link.parent].astype(np.int64) * shape[1] + row_bins[link.child]
        edge_counts.append(np.bincount(pair_index, minlength=shape[0] * shape[1]).reshape(shape))
    return edge_counts


def empty_meetings(structure: Structure) -> list[Counts]:
    """Return tables of zero counts, one per edge."""
    sizes = [count_bins(bins) for bins in structure.bins]
    return [np.zeros((sizes[link.parent], sizes[link.child]), dtype=np.int64) for link in structure.links]


def fit_dependence(tables: LeafTables, structure: Structure, observed: Sequence[Counts]) -> Dependence:
    """Fit the ratios of every edge, given the fitted leaves of a model."""
    if not structure.links:
        return NO_DEPENDENCE
    batches = _fitting_batches(tables)
    leaves = {batch: tables.batch_leaves(batch) for batch in batches}
    masses = {
        index: np.concatenate([batch_bin_masses(tables, leaves[b], b, index, structure.bins[index]) for b in batches])
        for index in _joined(structure)
    }
    leaf_rows = tables.coverage[: tables.batch_starts[len(batches)]].astype(np.float64)
    # Every tree holds all rows, so the quotient is the number of trees used.
    weights = leaf_rows / (leaf_rows.sum() / tables.schema.n_rows)
    shared_arguments = masses, weights, tables.schema.n_rows
    edges = Threads().map(_fit_edge, shared_arguments, list(zip(structure.links, observed, strict=True)))
    return Dependence(structure.bins, tuple(edges))


def _fit_edge(shared: tuple[dict[int, Floats], Floats, int], item: tuple[Link, Counts]) -> Edge:
    """Fit the ratios of one edge by iterative proportional fitting over all leaves at once."""
    (masses, weights, n_rows), (link, observed) = shared, item
    parent_masses, child_masses = masses[link.parent], masses[link.child]
    expected_counts = (parent_masses * weights[:, None]).T @ child_masses
    observed_gain = np.log((observed + SMOOTHING) / (expected_counts + SMOOTHING))
    information = float((observed * observed_gain).sum() / n_rows)
    target_counts = smooth_counts(observed.astype(np.float64), expected_counts) + SMOOTHING
    ratios, factors = _limited(target_counts / (expected_counts + SMOOTHING)), None
    for _ in range(FITTING_ROUNDS):
        factors = scale_ratios(ratios, parent_masses, child_masses, tolerance=FITTING_TOLERANCE, start=factors)
        modelled_counts = ratios * (
            (parent_masses * factors.rows * weights[:, None]).T @ (child_masses * factors.columns)
        )
        ratios = _limited(ratios * (target_counts / (modelled_counts + SMOOTHING)) ** FITTING_STEP)
    return Edge(link.parent, link.child, max(information, 0.0), observed, ratios)


def _limited(ratios: Floats) -> Floats:
    return np.clip(ratios, 1 / MOST_RATIO, MOST_RATIO)


def _fitting_batches(tables: LeafTables) -> range:
    """Return the first tree batches, with about `FITTING_LEAVES` leaves in total but at least one batch."""
    n_enough = int(np.searchsorted(tables.batch_starts, FITTING_LEAVES, side="right")) - 1
    return range(max(1, min(n_enough, tables.n_batches)))


def _joined(structure: Structure) -> list[int]:
    """Return the variables that have an edge."""
    return sorted({index for link in structure.links for index in (link.parent, link.child)})


def _row_bins(codes: Codes, code_bins: Sequence[Ints]) -> Counts:
    """Return the bin of every (row, variable)."""
    return np.stack([bins[codes[:, index]] for index, bins in enumerate(code_bins)], axis=1).astype(np.int64)


def _meetings(bins: Counts, n_bins: int) -> Floats:
    """Count the rows of every (bin, bin), with the bins of all variables numbered consecutively."""
    pair_counts = np.zeros((n_bins, n_bins))
    chunk_rows = max(1, 2**24 // max(n_bins, 1))
    for first_row in range(0, len(bins), chunk_rows):
        chunk_bins = bins[first_row : first_row + chunk_rows]
        bin_flags = np.zeros((len(chunk_bins), n_bins), dtype=np.float32)
        bin_flags[np.arange(len(chunk_bins))[:, None], chunk_bins] = 1.0
        pair_counts += bin_flags.T @ bin_flags
    return pair_counts


def _leaf_bins(leaf: Ints, bins: Counts, n_bins: int) -> tuple[Floats, Floats]:
    """Count the rows of every (leaf, bin), with bins numbered consecutively; also return the rows of every leaf."""
    leaf_rows = np.bincount(leaf)
    cell_index = leaf.astype(np.int64)[:, None] * n_bins + bins
    counts = np.bincount(cell_index.ravel(), minlength=len(leaf_rows) * n_bins).reshape(len(leaf_rows), n_bins)
    return counts.astype(np.float32), np.maximum(leaf_rows, 1).astype(np.float32)


def _member_candidates(
    schema: Schema, histograms: list[Counts], code_bins: list[Ints], n_counted: int
) -> list[tuple[int, Ints]]:
    """Return bins by the levels of columns of bundles, each with its variable; without groups if they cost too much."""
    candidates = [
        (index, level_bins)
        for index, variable in enumerate(schema.variables)
        for level_bins in member_bins(variable, schema.columns, histograms[index])
    ]
    n_bins = sum(map(count_bins, code_bins)) + sum(count_bins(level_bins) for _, level_bins in candidates)
    if float(n_bins) ** 2 * n_counted <= MEMBER_WORK:
        return candidates
    return [(index, level_bins) for index, level_bins in candidates if count_bins(level_bins) <= MOST_MEMBER_BINS]


def _affordable(
    schema: Schema, histograms: list[Counts], code_bins: list[Ints], n_leaves: int, n_trees: int, n_rows: int
) -> tuple[list[Ints], int]:
    """Return bins and number of trees for screening pairs: with many variables, fewer trees, then fewer bins."""
    for bins in (BINS, *COARSE_BINS):
        chosen_bins = code_bins if bins == BINS else all_code_bins(schema, histograms, bins)
        bin_pairs = float(sum(count_bins(variable_bins) for variable_bins in chosen_bins)) ** 2
        affordable_trees = int((SCREENING_WORK / bin_pairs - n_rows) / max(n_leaves, 1))
        if affordable_trees >= min(LEAST_SCREENING_TREES, n_trees):
            break
    return chosen_bins, max(1, min(affordable_trees, n_trees, MOST_SCREENING_TREES))
