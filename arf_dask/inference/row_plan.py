"""Plans of rows: the one way in which rows are drawn, block by block, for frames, lazy frames, data sets and tables.

The rows of a plan are the same whoever reads them and in whatever order: a block is a pure function of model,
condition, seed and block number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
from polars.io.plugins import register_io_source

from arf_dask.forest.fitted import Fitted
from arf_dask.inference.checked_rows import make_checked_source
from arf_dask.inference.completed_rows import CompletedRows
from arf_dask.inference.forge import Sampler
from arf_dask.inference.given import Known, read_given
from arf_dask.inference.guarded_rows import Guarded
from arf_dask.inference.refined_rows import refine_source
from arf_dask.inference.sources import Block, Source, cut_blocks, cut_conditions
from arf_dask.runtime.once import OncePerProcess
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner, Threads
from arf_dask.typing import OnImpossible


@dataclass(frozen=True, eq=False)
class RowPlan:
    """A plan to draw `n` rows of a model under a condition. Plans can be pickled and sent to other processes."""

    fitted: Fitted
    n: int  # number of rows; per condition for a frame of conditions
    given: Known
    on_impossible: OnImpossible
    seed: int
    first_condition: int = 0  # number of the first condition of `given`, if it is a part of a frame of conditions
    n_conditions: int | None = None  # number of all conditions; None without a frame of conditions
    _built: OncePerProcess = field(default_factory=OncePerProcess, repr=False)

    @property
    def rows(self) -> int:
        return self.n if self.n_conditions is None else self.n * self.n_conditions

    def keep(self, sampler: Sampler) -> None:
        """Reuse a sampler that this process has already built."""
        self._built.put("sampler", sampler)

    def sampler(self) -> Sampler:
        built_sampler: Sampler = self._built.get("sampler", lambda: Sampler(self.fitted))
        return built_sampler

    def source(self) -> Source:
        """Return the source of the rows; raises an error if the condition is impossible."""
        built_source: Source = self._built.get("source", self._make_source)
        return built_source

    def _make_source(self) -> Source:
        source: Source
        if isinstance(self.given, pl.DataFrame):
            source = CompletedRows(self.sampler(), self.given, self.first_condition, self.on_impossible)
        else:
            source = make_checked_source(self.sampler(), self.given, self.on_impossible)
            source = refine_source(source, self.sampler(), conditional=self.given is not None)
        guard = self.fitted.guard
        return source if guard is None else Guarded(source, guard, {})

    def with_conditions(self, conditions: pl.DataFrame, first: int) -> RowPlan:
        """Return the same plan with some of its conditions, from number `first` on, for rows that need no others."""
        plan = replace(self, given=conditions, first_condition=first, _built=OncePerProcess())
        plan._built.put("sampler", self.sampler())
        return plan

    def without_conditions(self) -> RowPlan:
        """Return the same plan without the rows of its frame of conditions, which are sent with the tasks."""
        return self.with_conditions(self.given[:0], 0) if isinstance(self.given, pl.DataFrame) else self

    def blocks(self, first: int, stop: int) -> Iterator[Block]:
        """Yield the blocks that contain the rows from `first` up to `stop`."""
        if self.n_conditions is None:
            return cut_blocks(self.rows, first, stop)
        return cut_conditions(self.n, self.n_conditions, first, stop)

    def read(self, first: int, stop: int, runner: Runner | None = None) -> Iterator[pl.DataFrame]:
        """Yield the rows from `first` up to `stop`, block by block."""
        if stop <= first:
            return
        for block, frame in (runner or Threads(1)).map(_draw, self, self.blocks(first, stop)):
            yield rows_between(frame, block, first, stop)

    def collect(self, report: Progress) -> pl.DataFrame:
        """Draw all rows on all cores; the result does not depend on the number of cores."""
        frames = [pl.DataFrame(schema=self.fitted.dtypes)]
        for frame in self.read(0, self.rows, Threads()):
            frames.append(frame)
            report.advance(frame.height)
        return pl.concat(frames[1:] or frames)

    def draw(self, block: Block) -> pl.DataFrame:
        """Draw one block."""
        return self.source().draw(self.seed, block)

    def redrawn(self, block: Block) -> int:
        """Return how many rows of a block were redrawn as copies; 0 if another process drew the block."""
        source = self.source()
        return source.redrawn.get(block.number, 0) if isinstance(source, Guarded) else 0

    def scan(
        self, with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows that a Polars query reads, with projection, slice and predicate pushed down."""
        stop = self.rows if n_rows is None else min(n_rows, self.rows)
        for frame in self.read(0, stop, Threads()):
            kept_rows = frame if predicate is None else frame.filter(predicate)
            yield kept_rows if with_columns is None else kept_rows[with_columns]


def plan_rows(sampler: Sampler, n: int, given: Any, on_impossible: OnImpossible, seed: int) -> RowPlan:
    """Plan the rows of `Model.sample` without drawing any; raises immediately if the condition is impossible."""
    known = read_given(given, sampler.fitted)
    n_conditions = known.height if isinstance(known, pl.DataFrame) else None
    plan = RowPlan(sampler.fitted, int(n), known, on_impossible, seed, n_conditions=n_conditions)
    plan.keep(sampler)
    plan.source()
    return plan


def rows_between(frame: pl.DataFrame, block: Block, first: int, stop: int) -> pl.DataFrame:
    """Return the rows of a block from `first` up to `stop` of the whole result."""
    first_row, stop_row = max(first, block.first), min(stop, block.first + block.rows)
    return frame.slice(first_row - block.first, stop_row - first_row)


def _draw(plan: RowPlan, block: Block) -> tuple[Block, pl.DataFrame]:
    return block, plan.draw(block)


def lazy_frame(plan: RowPlan) -> pl.LazyFrame:
    """Return a LazyFrame that draws its rows on collection, the same rows every time."""
    schema = plan.fitted.dtypes
    detail = f"{plan.rows:,} synthetic rows, seed {plan.seed}"
    return register_io_source(plan.scan, schema=schema, is_pure=True, explain_name="arf_dask", explain_detail=detail)
