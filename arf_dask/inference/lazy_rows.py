"""Plans of rows: drawn block by block, at once or when Polars or another reader requests them.

The rows of a plan are the same whoever reads them and in whatever order: a block is a pure function of model, seed and
block number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from arf_dask.data.frames import is_frame
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.forge import Sampler
from arf_dask.inference.guarded_rows import draw_guarded_block, make_guarded_source
from arf_dask.inference.ruled_completion import user_condition_frame
from arf_dask.inference.sources import Source, cut_blocks, cut_conditions
from arf_dask.runtime.once import OncePerProcess
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner, Threads
from arf_dask.typing import OnImpossible


@dataclass(frozen=True, eq=False)
class RowPlan:
    """A plan to draw `n` rows of a model under a condition. Plans can be pickled and sent to other processes."""

    tables: LeafTables
    n: int  # number of rows; per condition for a frame of conditions
    given: Any  # a condition, or None
    conditions: pl.DataFrame | None  # a frame with one condition per row, or None
    on_impossible: OnImpossible
    seed: int
    _built: OncePerProcess = field(default_factory=OncePerProcess, repr=False)

    @property
    def rows(self) -> int:
        return self.n if self.conditions is None else self.n * self.conditions.height

    def prepare(self, sampler: Sampler) -> None:
        """Reuse an existing sampler, and raise an error immediately if the condition is impossible."""
        self._built.put("sampler", sampler)
        if self.conditions is None:
            self._source()

    def read(self, first: int, stop: int, runner: Runner | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from `first` up to `stop`, block by block."""
        if stop <= first:
            return
        conditions = self.conditions
        blocks: Iterator[Any]
        if conditions is None:
            blocks = cut_blocks(self.rows, first, stop)
        else:
            blocks = cut_conditions(self.n, conditions.height, first, stop)
        for block, frame in (runner or Threads(1)).map(_draw, self, blocks):
            first_row, stop_row = max(first, block.first), min(stop, block.first + block.rows)
            yield frame.slice(first_row - block.first, stop_row - first_row)

    def collect(self, report: Progress) -> pl.DataFrame:
        """Draw all rows on all cores; the result does not depend on the number of cores."""
        frames = [pl.DataFrame(schema=self.tables.dtypes)]
        for frame in self.read(0, self.rows, Threads()):
            frames.append(frame)
            report.advance(frame.height)
        return pl.concat(frames[1:] or frames)

    def draw(self, block: Any) -> pl.DataFrame:
        """Draw one block."""
        if self.conditions is None:
            return self._source().draw(self.seed, block)
        block_conditions = self.conditions[block.low : block.high]
        return draw_guarded_block(self._sampler(), block_conditions, self.seed, block, self.on_impossible).frame

    def scan(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows that a Polars query reads, with projection, slice and predicate pushed down."""
        stop = self.rows if n_rows is None else min(n_rows, self.rows)
        for frame in self.read(0, stop, Threads()):
            kept_rows = frame if predicate is None else frame.filter(predicate)
            yield kept_rows if with_columns is None else kept_rows[with_columns]

    def _sampler(self) -> Sampler:
        built_sampler: Sampler = self._built.get("sampler", lambda: Sampler(self.tables))
        return built_sampler

    def _source(self) -> Source:
        built_source: Source = self._built.get(
            "source", lambda: make_guarded_source(self._sampler(), self.given, self.on_impossible)
        )
        return built_source


def plan_rows(sampler: Sampler, n: int, given: Any, on_impossible: OnImpossible, seed: int) -> RowPlan:
    """Plan the rows of `Model.sample` without drawing any; raises immediately if the condition is impossible."""
    tables = sampler.tables
    conditions = user_condition_frame(given, tables) if is_frame(given) else None
    plan = RowPlan(tables, int(n), given if conditions is None else None, conditions, on_impossible, seed)
    plan.prepare(sampler)
    return plan


def _draw(plan: RowPlan, block: Any) -> tuple[Any, pl.DataFrame]:
    return block, plan.draw(block)


def lazy_frame(plan: RowPlan) -> pl.LazyFrame:
    """Return a LazyFrame that draws its rows on collection, the same rows every time."""
    schema = plan.tables.dtypes
    detail = f"{plan.rows:,} synthetic rows, seed {plan.seed}"
    return register_io_source(plan.scan, schema=schema, is_pure=True, explain_name="arf_dask", explain_detail=detail)
