"""Copy protection for releases: copies of real rows are redrawn under the same condition."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.copy_guard import Candidates, CopyGuard, redraw_copies
from arf_dask.inference.completed_rows import CompletedRows
from arf_dask.inference.sources import Block, Source
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.typing import Counts

LEAST_DRAWN = 256  # minimum number of candidates per attempt: a few cost little more than one
CANDIDATES = 4  # candidates per copy


class Guarded(NamedTuple):
    """A source that redraws copies of real rows."""

    source: Source
    guard: CopyGuard
    redrawn: dict[int, int]  # by block number: count of redrawn rows, for blocks drawn in this process

    def draw(self, seed: int, block: Block) -> pl.DataFrame:
        source = self.source

        def redraw(attempt: int, places: Counts) -> Candidates:
            attempt_seed = int(generator(seed, Stage.RELEASE, block.number, attempt).integers(2**62))
            if isinstance(source, CompletedRows):
                return source.candidates(attempt_seed, block, places, CANDIDATES)
            n_candidates = max(len(places), min(LEAST_DRAWN, CANDIDATES * block.rows))
            candidate_rows = source.draw(attempt_seed, block._replace(rows=n_candidates))
            return Candidates(candidate_rows, np.resize(places, candidate_rows.height))

        groups = source.condition_numbers(block) - block.low if isinstance(source, CompletedRows) else None
        redrawn_rows = redraw_copies(source.draw(seed, block), self.guard, redraw, groups, block.low)
        self.redrawn[block.number] = redrawn_rows.rows
        return redrawn_rows.frame
