"""Rows drawn with a fixed seed, with the weights that a refinement gives them, to estimate answers from.

With the density q0 of the forest and the ratio r of a refinement, answers of the refined model are averages over draws
of the forest with weights proportional to r. Where the answer of the forest itself is exact, it corrects the average,
and only what the ratio adds is estimated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.inference.checked_rows import Checked, make_checked_source
from arf_dask.inference.completed_rows import Seeds, complete
from arf_dask.inference.forge import BLOCK_ROWS, Sampler
from arf_dask.inference.given import Given
from arf_dask.inference.sources import Block, complete_rows, prepare_rows
from arf_dask.rules.relations import Modelled
from arf_dask.stats.log_sums import log_mean
from arf_dask.typing import Flags, Floats

DRAWS = 4 * BLOCK_ROWS  # standard error of a proportion: at most 0.001
REFINED_DRAWS = 2 * BLOCK_ROWS  # of refined models, whose draws have to be scored
ROW_DRAWS = 4_096  # draws per row of a frame of conditions
DENSITY_DRAWS, LEAST_DENSITY_DRAWS = 65_536, 32  # for the mean ratios of all rows together, and for each of them
PRIOR_HITS = 16.0  # draws of weight one that are added to an event, so that few draws in it decide little
SEED = 0


class Draws(NamedTuple):
    """Rows drawn from the forest with a fixed seed."""

    rows: pl.DataFrame
    weights: Floats  # sum to one

    def share(self, is_inside: Flags, exact: float | None = None) -> float:
        """Return the probability of an event.

        Args:
            is_inside: which rows lie in the event.
            exact: its probability in the forest, if known.
        """
        weighted = float(self.weights[is_inside].sum())
        if exact is None:
            return weighted
        prior = PRIOR_HITS / max(len(self.weights), 1)
        return min(exact * (weighted + prior) / (float(is_inside.mean()) + prior), 1.0)

    def filter(self, is_kept: Flags) -> Draws:
        """Return some of the draws."""
        weights = self.weights[is_kept]
        return Draws(self.rows.filter(pl.Series(is_kept)), weights / max(weights.sum(), 1e-300))


def fixed_draws(sampler: Sampler, given: Given | None, n: int | None = None) -> Draws:
    """Draw rows under a condition with a fixed seed; fewer than `n` if few rows fit the condition."""
    default = DRAWS if sampler.fitted.refinement is None else REFINED_DRAWS
    return weighted(sampler, draw_fixed(sampler, given, default if n is None else n))


def fixed_row_draws(sampler: Sampler, conditions: pl.DataFrame, row: int) -> Draws:
    """Draw rows under the condition in one row of a frame with a fixed seed."""
    one = conditions[row : row + 1]
    return weighted(sampler, complete(sampler, one, ROW_DRAWS, Seeds(SEED, SEED, 0), "raise", row))


def weighted(sampler: Sampler, rows: pl.DataFrame) -> Draws:
    """Return rows of the forest with their weights: equal ones without a refinement."""
    refinement = sampler.fitted.refinement
    if refinement is None:
        return Draws(rows, np.full(rows.height, 1 / max(rows.height, 1)))
    ratios = np.exp(refinement.log_ratio(rows, sampler.relations))
    return Draws(rows, ratios / max(ratios.sum(), 1e-300))


def draw_fixed(sampler: Sampler, given: Given | None, n: int = DRAWS) -> pl.DataFrame:
    """Draw rows of the forest under a condition with a fixed seed; fewer than `n` if few rows fit the condition."""
    source = make_checked_source(sampler, given, "raise")
    if isinstance(source, Checked) and source.is_checked:
        n_blocks = -(-n // BLOCK_ROWS)
        blocks = [Block(number, number * BLOCK_ROWS, BLOCK_ROWS) for number in range(n_blocks)]
        rows = pl.concat([source.draw_fitting(SEED, block) for block in blocks])
        if rows.height >= ROW_DRAWS:
            return rows[:n]
        n = min(n, ROW_DRAWS)
    blocks = [Block(number, number * BLOCK_ROWS, min(BLOCK_ROWS, n)) for number in range(-(-n // BLOCK_ROWS))]
    return pl.concat([source.draw(SEED, block) for block in blocks])


# What a refinement adds to log densities.


def log_mean_ratio(sampler: Sampler, given: Given | None) -> float:
    """Return the logarithm of the mean ratio of rows of the forest under a condition; without one, that is log Z."""
    refinement = sampler.fitted.refinement
    assert refinement is not None
    if given is None:
        return refinement.log_z
    rows = draw_fixed(sampler, given, BLOCK_ROWS)
    return float(log_mean(refinement.log_ratio(rows, sampler.relations)))


def row_log_ratios(sampler: Sampler, rows: pl.DataFrame, *, null_is_value: bool, given: Given | None = None) -> Floats:
    """Return the logarithm of the ratio of every row, averaged over draws of what is not known of it.

    Args:
        sampler: the model.
        rows: rows with some of the user's columns.
        null_is_value: whether null is a value of its own, or unknown.
        given: a condition that the averaged rows satisfy as well.
    """
    fitted, relations = sampler.fitted, sampler.relations
    refinement = fitted.refinement
    assert refinement is not None
    is_known = [name in rows.columns for name in fitted.dtypes if name not in fitted.schema.keys]
    if all(is_known) and (null_is_value or not any(rows.null_count().row(0))):
        return refinement.log_ratio(rows, relations)
    modelled = relations.resolve(rows, fitted.schema.dtypes, null_is_value=null_is_value)
    n_draws = max(LEAST_DENSITY_DRAWS, DENSITY_DRAWS // max(rows.height, 1))
    n_rows = max(1, BLOCK_ROWS // n_draws)
    parts = [
        _completed_ratios(sampler, _rows_between(modelled, first, first + n_rows), n_draws, given)
        for first in range(0, rows.height, n_rows)
    ]
    return np.concatenate([np.empty(0), *parts])


def _completed_ratios(sampler: Sampler, modelled: Modelled, n: int, given: Given | None) -> Floats:
    """Return the logarithm of the mean ratio over `n` completions of every row that satisfy the condition."""
    relations, refinement = sampler.relations, sampler.fitted.refinement
    assert refinement is not None
    prepared = prepare_rows(sampler, modelled.frame, "relax", n, modelled.known)
    rows = relations.inverse(complete_rows(prepared, n, SEED, SEED))
    log_ratios = refinement.log_ratio(rows, relations).reshape(-1, n)
    # Completions that the model would draw again do not count.
    fits = ~relations.broken(rows, observed=sampler.fitted.observed)
    if given is not None:
        fits &= given.fits(rows)
    fits = fits.reshape(-1, n)
    fits[~fits.any(axis=1)] = True
    return np.asarray(log_mean(np.where(fits, log_ratios, -np.inf)) - np.log(fits.mean(axis=1)))


def _rows_between(modelled: Modelled, first: int, stop: int) -> Modelled:
    return Modelled(
        modelled.frame.slice(first, stop - first),  # also of frames without columns, unlike frame[first:stop]
        {name: flags[first:stop] for name, flags in modelled.known.items()},
        modelled.contradictory[first:stop],
        modelled.unresolved[first:stop],
    )
