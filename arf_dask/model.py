"""What can be asked of a fitted model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from arf_dask.cluster import Threads
from arf_dask.density import log_density
from arf_dask.encode import match_frame
from arf_dask.errors import OptionError
from arf_dask.forge import BLOCK_ROWS, Sampler, forge_block, make_sampler
from arf_dask.frames import take
from arf_dask.progress import Progress, Report, progress_for
from arf_dask.seeds import entropy
from arf_dask.storage import PathLike, read_tables, save
from arf_dask.tables import Tables


class Model(Tables):
    """A learned joint distribution: frozen tables, and what can be asked of them."""

    @classmethod
    def of(cls, tables: Tables) -> Model:
        fields = ("schema", "trees", "coverage", "entries", "histograms", "strengths")
        rest = ("family", "support", "rounds_held", "options")
        return cls(*(getattr(tables, name) for name in (*fields, *rest)))

    def sample(self, n: int, *, seed: int | None = None, progress: bool | Report | None = None) -> pl.DataFrame:
        """`n` synthetic rows with the columns and dtypes of the training data."""
        check_rows(n)
        with progress_for(progress) as report:
            return self.draw(n, entropy(seed), report)

    def draw(self, n: int, seed: int, report: Progress) -> pl.DataFrame:
        """`n` rows, block by block on all cores: the same for the same seed, whoever draws which block."""
        report.stage("sampling", n)
        frames = []
        for frame in Threads().map(_block, (self.sampler, seed), list(cut_blocks(n))):
            frames.append(frame)
            report.advance(frame.height)
        return pl.concat(frames)

    def log_density(self, data: Any) -> pl.Series:
        """The log-density of every row (the paper's q), in nats; -inf outside the support.

        Mass for levels, spikes, grids and nulls, density for other floats.
        """
        return pl.Series("log_density", log_density(self, match_frame(take(data).frame, self.schema)))

    def save(self, path: PathLike) -> None:
        """Write the model to a directory that `arf_dask.load` reads. It holds statistics, but no training row."""
        save(self, path)

    @cached_property
    def sampler(self) -> Sampler:
        return make_sampler(self)


def load(path: PathLike) -> Model:
    """The model saved in a directory. Whatever is wrong with it is a ModelFormatError that says what."""
    return Model.of(read_tables(path))


def check_rows(n: object) -> None:
    """Raise an OptionError unless `n` is a number of rows."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise OptionError(f"n={n!r}: give the number of rows to draw, a whole number of at least 0.")


def cut_blocks(n: int) -> Iterator[tuple[int, int, int]]:
    """(block, first row, rows) of every block. The size never depends on who does the work."""
    for block, first in enumerate(range(0, max(n, 1), BLOCK_ROWS)):
        yield block, first, min(BLOCK_ROWS, n - first)


def _block(shared: tuple[Sampler, int], place: tuple[int, int, int]) -> pl.DataFrame:
    (sampler, seed), (block, first, rows) = shared, place
    return forge_block(sampler, rows, seed, block, first)
