"""The density of rows: q(x) = mean over trees of coverage(leaf) times the product of the leaf's marginals."""

from __future__ import annotations

import numpy as np
import polars as pl

from arf_dask.encode import encode_codes, encode_states
from arf_dask.forest import leaf_numbers
from arf_dask.marginals import log_mass_grid, log_pdf
from arf_dask.schema import Floats, Ints
from arf_dask.smoothing import leaf_probabilities
from arf_dask.tables import Surroundings, Tables, interval_bounds, value_edges

BATCH_ROWS = 16_384


def log_density(tables: Tables, frame: pl.DataFrame) -> Floats:
    """One number per row, whatever the batch."""
    parts = [_batch(tables, frame.slice(at, BATCH_ROWS)) for at in range(0, frame.height, BATCH_ROWS)]
    return np.concatenate([np.empty(0), *parts])


def _batch(tables: Tables, frame: pl.DataFrame) -> Floats:
    codes = np.ascontiguousarray(encode_codes(frame, tables.schema, strict=False))
    encoded = [encode_states(frame, tables.schema, number) for number in range(len(tables.schema.variables))]
    total = np.full(frame.height, -np.inf)
    for tree, nodes in enumerate(tables.trees):
        around = tables.surroundings(tree)
        leaf = leaf_numbers(nodes, codes)
        log_p = np.log(around.rows[leaf] / tables.schema.n_rows)
        for number, (states, places) in enumerate(encoded):
            log_p += _variable(tables, tree, number, around, leaf, states, places)
        total = np.logaddexp(total, log_p)
    return np.asarray(total - np.log(len(tables.trees)))


def _variable(
    tables: Tables,
    tree: int,
    number: int,
    around: Surroundings,
    leaf: Ints,
    states: Ints,
    places: Floats | None,
) -> Floats:
    variable = tables.schema.variables[number]
    probabilities = leaf_probabilities(tables, tree, number, around)
    with np.errstate(divide="ignore"):
        log_p = np.log(np.where(states >= 0, probabilities[leaf, states], 0.0))
    if places is None:
        return log_p
    rows = np.flatnonzero((states >= 0) & variable.interval[states])
    entries = tables.entries[number]
    key = (leaf[rows] + np.int64(tables.starts[tree])) * variable.n_states + states[rows]
    here, entry_leaf = entries.of_leaves(*tables.starts[tree : tree + 2])
    a, b = here.start, here.stop
    of_interval = variable.interval[entries.state]
    skipped = int(of_interval[:a].sum())
    some = a + np.flatnonzero(of_interval[a:b])
    keys = (entry_leaf[some - a] + np.int64(tables.starts[tree])) * variable.n_states + entries.state[some]
    found = np.minimum(np.searchsorted(keys, key), max(len(keys) - 1, 0))
    known = keys[found] == key if len(keys) else np.zeros(len(key), dtype=bool)
    low, high = around.boxes.low[leaf[rows], number], around.boxes.high[leaf[rows], number]
    edges = value_edges(variable, tables.schema, tables.support)
    lower, upper = interval_bounds(variable, edges, states[rows], low, high)
    inner = value_edges(variable, tables.schema, "observed")
    lower_seen, upper_seen = interval_bounds(variable, inner, states[rows], low, high)
    mu, sigma = (lower_seen + upper_seen) / 2, np.full(len(rows), np.inf)
    mu[known], sigma[known] = entries.mu[skipped + found[known]], entries.sigma[skipped + found[known]]
    lower, upper = np.where(known, lower, lower_seen), np.where(known, upper, upper_seen)
    axis = tables.schema.columns[variable.columns[0]].axis
    assert axis is not None
    log_p[rows] += (log_mass_grid if axis.grid else log_pdf)(places[rows], mu, sigma, lower, upper)
    return log_p
