"""Sources of refined rows: rows of the unrefined model are accepted in proportion to the ratio of densities.

A block is a pure function of (model, condition, seed, block): rows that are not accepted are replaced by further draws
with derived seeds. Under a condition the limit of the ratio is the largest one seen among the rows of a fixed draw, so
that rare conditions under which all ratios are small cost no more than others.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.inference.forge import BLOCK_ROWS, Sampler
from arf_dask.inference.sources import Block, Source
from arf_dask.refinement.ratio import choose_cap
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.typing import Counts, Flags, Floats

PILOT_ROWS = 4_096
PILOT_SEED = 0
LEAST_ACCEPTANCE = 0.02
LEAST_DRAWN = 256
MARGIN = 1.05  # draws per row that is expected to be needed
PATIENCE = 4  # times the expected draws, ...
MOST_FRUITLESS = 8 * BLOCK_ROWS  # ... and so many more, after which the limit is relaxed


class Refined(NamedTuple):
    """A source of accepted rows, with or without a condition."""

    source: Source  # of unrefined rows in the user's columns
    sampler: Sampler
    log_cap: float  # logarithm of the ratio from which rows are always accepted
    acceptance: float  # expected share of accepted rows

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        rows = self.source.draw(seed, block)
        accepted = [self._accepted(rows, seed, block, 0, self.log_cap)]
        n_accepted, n_tried = accepted[0].height, rows.height
        for attempt in count(1):
            missing = block.rows - n_accepted
            if missing <= 0:
                break
            n_drawn = self._draws(missing, n_accepted, n_tried)
            attempt_seed = int(generator(seed, Stage.REFINE, attempt).integers(2**62))
            candidates = self.source.draw(attempt_seed, block._replace(rows=n_drawn))
            accepted.append(self._accepted(candidates, seed, block, attempt, self._relaxed_cap(block.rows, n_tried)))
            n_accepted, n_tried = n_accepted + accepted[-1].height, n_tried + n_drawn
        found = pl.concat(accepted)[: block.rows]
        # Identifiers keep their positions.
        return found.with_columns([rows.get_column(name) for name in self.sampler.fitted.schema.keys])

    def _draws(self, missing: int, n_accepted: int, n_tried: int) -> int:
        """Return the number of rows to draw for the missing ones, given the acceptance so far."""
        share = n_accepted / n_tried if n_tried >= BLOCK_ROWS else self.acceptance
        return int(min(max(MARGIN * missing / max(share, 1e-4), LEAST_DRAWN), BLOCK_ROWS))

    def _relaxed_cap(self, n_rows: int, n_tried: int) -> float:
        """Return a smaller limit where far more rows were drawn than should have been enough, so that draws end."""
        enough = PATIENCE * n_rows / self.acceptance + MOST_FRUITLESS
        return self.log_cap - max(n_tried / enough - 1, 0.0)

    def _accepted(self, rows: pl.DataFrame, seed: int, block: Block, attempt: int, log_cap: float) -> pl.DataFrame:
        rng = generator(seed, Stage.REFINE, block.number, attempt)
        refinement = self.sampler.fitted.refinement
        assert refinement is not None
        thresholds = log_cap + np.log1p(-rng.random(rows.height))
        return rows.filter(pl.Series(refinement.above(rows, self.sampler.relations, thresholds)))


class Choice(NamedTuple):
    """The candidate that is chosen for each row."""

    candidate: Counts
    is_accepted: Flags  # whether it was accepted; otherwise it is the best guess


def choose(log_ratios: Floats, log_cap: float, rng: np.random.Generator) -> Choice:
    """Choose one of several candidates for every row, in proportion to the ratio of densities.

    The first candidate that is accepted is a draw from the refined model. Where none is accepted, one is chosen with
    probabilities proportional to the ratios, which is nearly such a draw if there are many candidates.

    Args:
        log_ratios: (row, candidate)
        log_cap: logarithm of the ratio from which candidates are always accepted.
        rng: the random generator.
    """
    is_accepted = log_cap + np.log1p(-rng.random(log_ratios.shape)) < log_ratios
    any_accepted: Flags = np.asarray(is_accepted.any(axis=1))
    # The largest of perturbed logarithms is a draw with these weights.
    likely = (log_ratios + rng.gumbel(size=log_ratios.shape)).argmax(axis=1)
    return Choice(np.where(any_accepted, is_accepted.argmax(axis=1), likely), any_accepted)


def refine_source(source: Source, sampler: Sampler, *, conditional: bool) -> Source:
    """Return a source that accepts rows in proportion to the ratio of densities, if the model is refined.

    Args:
        source: the source of unrefined rows in the user's columns.
        sampler: the model.
        conditional: whether the source has a condition.
    """
    refinement = sampler.fitted.refinement
    if refinement is None:
        return source
    if not conditional:
        return Refined(source, sampler, refinement.log_cap, refinement.acceptance)
    pilot = source.draw(PILOT_SEED, Block(0, 0, PILOT_ROWS))
    limit = choose_cap(
        refinement.log_ratio(pilot, sampler.relations), most_clipped=0.0, least_acceptance=LEAST_ACCEPTANCE
    )
    return Refined(source, sampler, limit.log_cap, limit.acceptance)
