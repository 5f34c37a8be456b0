"""Copy protection for releases: copies of real rows are redrawn under the same condition."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.copy_guard import Candidates, CopyGuard, Redrawn, redraw_copies
from arf_dask.inference.forge import Sampler
from arf_dask.inference.ruled_completion import draw_ruled_block, sample_ruled_conditions
from arf_dask.inference.ruled_sources import make_row_source
from arf_dask.inference.sources import Block, ConditionBlock, Source
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.typing import Counts, OnImpossible

LEAST_DRAWN = 256  # minimum number of candidates per attempt: a few cost little more than one
CANDIDATES = 4  # candidates per copy, for a frame of conditions


class GuardedSource(NamedTuple):
    """A source that redraws copies of real rows."""

    source: Source
    guard: CopyGuard
    redrawn: dict[int, int]  # by block number: count of redrawn rows, for blocks drawn in this process

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        def redraw(attempt: int, places: Counts) -> Candidates:
            candidate_block = Block(
                block.number, block.first, max(len(places), min(LEAST_DRAWN, CANDIDATES * block.rows))
            )
            candidate_rows = self.source.draw(_attempt_seed(seed, block.number, attempt), candidate_block)
            return Candidates(candidate_rows, np.resize(places, candidate_rows.height))

        redrawn_rows = redraw_copies(self.source.draw(seed, block), self.guard, redraw)
        self.redrawn[block.number] = redrawn_rows.rows
        return redrawn_rows.frame


def make_guarded_source(sampler: Sampler, given: Any, on_impossible: OnImpossible) -> Source:
    """Return a source of rows in the user's columns, with copy protection if the model requires it."""
    source = make_row_source(sampler, given, on_impossible)
    guard = sampler.tables.guard
    return source if guard is None else GuardedSource(source, guard, {})


def rows_redrawn(source: Source, block: Block) -> int:
    """Return how many rows of a block were redrawn because they were copies; 0 if another process drew the block."""
    return source.redrawn.get(block.number, 0) if isinstance(source, GuardedSource) else 0


def draw_guarded_block(
    sampler: Sampler, conditions: pl.DataFrame, seed: int, block: ConditionBlock, on_impossible: OnImpossible
) -> Redrawn:
    """Draw one block for a frame of conditions; `conditions` are its rows from `block.low` up to `block.high`."""
    rows = draw_ruled_block(sampler, conditions, seed, block, on_impossible)
    if sampler.tables.guard is None:
        return Redrawn(rows, 0)
    return _redraw_conditions(sampler, rows, conditions, (seed, block.number), block.low, on_impossible)


def _redraw_conditions(
    sampler: Sampler,
    rows: pl.DataFrame,
    conditions: pl.DataFrame,
    seeds: tuple[int, int],  # the seed of the run and the block number
    first: int,
    on_impossible: OnImpossible,
) -> Redrawn:
    """Redraw copies under their own condition; `rows` has the same number of rows for each condition."""
    guard = sampler.tables.guard
    assert guard is not None
    condition_index = np.arange(rows.height) // max(1, rows.height // max(1, conditions.height))

    def redraw(attempt: int, places: Counts) -> Candidates:
        seed = _attempt_seed(*seeds, attempt)
        candidate_rows = sample_ruled_conditions(
            sampler, conditions[condition_index[places]], CANDIDATES, seed, on_impossible
        )
        return Candidates(candidate_rows, np.repeat(places, CANDIDATES))

    return redraw_copies(rows, guard, redraw, condition_index, first)


def _attempt_seed(seed: int, block: int, attempt: int) -> int:
    return int(generator(seed, Stage.RELEASE, block, attempt).integers(2**62))
