"""The tasks of a run, each of which writes a few consecutive parts of a data set.

A part is a pure function of (model, condition, seed, part index): rows are drawn in the same blocks as by
`Model.sample`, sliced to the part, and written row group by row group. A task writes consecutive parts, so that a block
that spans two parts is drawn twice only at the boundary of two tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import polars as pl

from arf_dask.errors import ArfError, OutputError
from arf_dask.inference.forge import BLOCK_ROWS
from arf_dask.inference.row_plan import rows_between
from arf_dask.inference.sources import Block
from arf_dask.runtime.once import OncePerProcess
from arf_dask.runtime.tasks import Threads, n_cores
from arf_dask.schema.columns import Schema
from arf_dask.storage.existing import withdraw
from arf_dask.storage.jobs import Job, read_run_state
from arf_dask.storage.manifest import find_problem
from arf_dask.storage.parquet import JOB_KEY, Part, arrow_schema, dictionary_columns, digest, read_metadata, write_part
from arf_dask.storage.portable import portable_dtypes, portable_frame, portable_schema
from arf_dask.storage.stores import Store, explain

TASK_BLOCKS = 4  # minimum blocks per task: a task writes several small parts


class Contents(Protocol):
    """What a data set says of the model of its rows."""

    @property
    def dtypes(self) -> Mapping[str, pl.DataType]: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def options(self) -> Mapping[str, object]: ...
    @property
    def guard(self) -> object: ...


class PlannedRows(Protocol):
    """The rows of a data set, drawn block by block: those of a `RowPlan`, or of one of several tables."""

    @property
    def fitted(self) -> Contents: ...
    @property
    def given(self) -> Any: ...
    def blocks(self, first: int, stop: int) -> Iterator[Block]: ...
    def draw(self, block: Block) -> pl.DataFrame: ...
    def redrawn(self, block: Block) -> int: ...
    def with_conditions(self, conditions: pl.DataFrame, first: int) -> PlannedRows: ...
    def without_conditions(self) -> PlannedRows: ...


@dataclass(frozen=True, eq=False)
class WriteContext:
    """The state shared by all tasks of a run: the job, the model and the store."""

    store: Store
    run: str
    job: Job
    plan: PlannedRows  # without the rows of a frame of conditions: each task gets those that it needs
    existing: Mapping[str, Part]  # parts written by earlier runs of this job, by file name
    _built: OncePerProcess = field(default_factory=OncePerProcess)

    @property
    def fitted(self) -> Contents:
        return self.plan.fitted

    def schema(self) -> Any:
        return self._built.get("schema", self._make_schema)

    def _make_schema(self) -> Any:
        dtypes = self.fitted.dtypes
        if not self.job.portable:
            return arrow_schema(dtypes)
        return portable_schema(arrow_schema(portable_dtypes(dtypes)), dtypes)

    def part_name(self, part: int) -> str:
        """Return the file name of a part. In shared stores it includes the job's hash."""
        return self.job.part_name(part, marked=self.store.is_shared)

    def metadata(self, part: int) -> dict[str, str]:
        """Return the key-value metadata of a part."""
        job = self.job
        return {
            "arf_dask.synthetic": "true",
            "arf_dask.model": job.model_hash,
            "arf_dask.seed": str(job.seed),
            JOB_KEY: job.id,
            "arf_dask.part": f"{part} of {job.n_parts}",
        }


class PartRange(NamedTuple):
    """Consecutive parts that one task writes."""

    first: int
    stop: int
    first_condition: int = 0  # number of the first condition, with a frame of conditions
    conditions: pl.DataFrame | None = None

    @property
    def name(self) -> str:
        return f"parts {self.first} to {self.stop - 1}" if self.stop - self.first > 1 else f"part {self.first}"


def part_ranges(job: Job, plan: PlannedRows) -> Iterator[PartRange]:
    """Yield the part range of every task in order; each task draws at least TASK_BLOCKS blocks."""
    parts_per_task = max(1, -(-TASK_BLOCKS * BLOCK_ROWS // job.rows_per_file))
    for first in range(0, job.n_parts, parts_per_task):
        stop = min(first + parts_per_task, job.n_parts)
        if not isinstance(plan.given, pl.DataFrame):
            yield PartRange(first, stop)
            continue
        blocks = list(plan.blocks(job.bounds(first)[0], job.bounds(stop - 1)[1]))
        low, high = (blocks[0].low, blocks[-1].high) if blocks else (0, 0)
        yield PartRange(first, stop, low, plan.given[low:high])


def make_parts(work: WriteContext, part_range: PartRange) -> list[Part]:
    """Write the parts of a range, except those that an earlier run has finished."""
    row_drawer = _Drawer(work, part_range)
    return [_make_part(work, part, row_drawer) for part in range(part_range.first, part_range.stop)]


def check_ownership(store: Store, run: str) -> None:
    """Raise an OutputError if another run has taken over a shared store, which cannot be locked."""
    if not store.is_shared:
        return
    run_state = read_run_state(store)
    if run_state is None or run_state.run != run:
        raise OutputError(f"{store.root}: another run has taken over this data set; this one was stopped.")


class _Drawer:
    """Draws the rows of a part range. The last block is cached, as the next part may begin with its remaining rows."""

    def __init__(self, work: WriteContext, part_range: PartRange) -> None:
        self.work = work
        self.plan = work.plan
        if part_range.conditions is not None:
            self.plan = work.plan.with_conditions(part_range.conditions, part_range.first_condition)
        self.last: tuple[int, pl.DataFrame] | None = None
        self.redrawn = 0  # redrawn rows in the blocks that begin in the current part

    def rows(self, first: int, stop: int) -> Iterator[pl.DataFrame]:
        """Yield rows [first, stop) of the whole result, block by block."""
        for block, frame in self._drawn(self.plan.blocks(first, stop)):
            self.last = block.number, frame
            self.redrawn += self.plan.redrawn(block) if first <= block.first < stop else 0
            yield rows_between(frame, block, first, stop)

    def _drawn(self, blocks: Iterator[Block]) -> Iterator[tuple[Block, pl.DataFrame]]:
        """Yield (block, frame) in order. If there are fewer parts than cores, blocks are drawn on several threads."""
        runner = Threads(None if self.work.job.n_parts < n_cores() else 1)
        return runner.map(_draw_block, self, blocks)

    def draw(self, block: Block) -> pl.DataFrame:
        """Return the rows of one block, from the cache if it is the last block drawn."""
        work, last_block = self.work, self.last
        if last_block is not None and last_block[0] == block.number:
            return last_block[1]
        if not work.store.is_active(work.run):
            raise OutputError(f"{work.store.root}: this run was stopped, or another one replaced it.")
        return self.plan.draw(block)


def _draw_block(drawer: _Drawer, block: Block) -> tuple[Block, pl.DataFrame]:
    return block, drawer.draw(block)


def _make_part(work: WriteContext, part: int, draw: _Drawer) -> Part:
    name = work.part_name(part)
    try:
        existing_part = work.existing.get(name)
        if existing_part is not None and find_problem(work.store, existing_part) is None:
            return existing_part
        return _write_part(work, part, draw)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(explain(error, work.store.location(name))) from error
    except ArfError as error:
        raise type(error)(f"{name}: {error}") from error
    except Exception as error:
        error.add_note(f"while making {work.store.location(name)}")
        raise


def _write_part(work: WriteContext, part: int, draw: _Drawer) -> Part:
    name, (first, stop) = work.part_name(part), work.job.bounds(part)
    with work.store.scratch(work.run, name) as path:
        draw.redrawn = 0
        row_frames = draw.rows(first, stop)
        if work.job.portable:
            row_frames = map(portable_frame, row_frames)
        write_part(path, row_frames, work.schema(), work.metadata(part), dictionary_columns(work.fitted.schema))
        new_part = _checked(work, part, path)._replace(redrawn=draw.redrawn)
        # A killed run may have finished this part without recording it: identical files are kept.
        if find_problem(work.store, new_part) is not None:
            _commit_part(work, path, name)
    return new_part


def _commit_part(work: WriteContext, path: Path, name: str) -> None:
    """Publish a part; if another run took over a shared store during the upload, remove it again."""
    check_ownership(work.store, work.run)
    work.store.commit(path, name)
    try:
        check_ownership(work.store, work.run)
    except OutputError:
        withdraw(work.store, work.job, {name})
        raise


def _checked(work: WriteContext, part: int, path: Path) -> Part:
    """Read back a file that was just written, and return its record with size and hash."""
    first, stop = work.job.bounds(part)
    with path.open("rb") as file:
        n_bytes, sha256 = digest(file)
    with path.open("rb") as file:
        file_metadata, expected_metadata = read_metadata(file, work.schema(), stop - first), work.metadata(part)
    if file_metadata is None or {name: file_metadata.get(name) for name in expected_metadata} != expected_metadata:
        raise OutputError(f"{path}: what was written cannot be read back. Check the disk.")
    return Part(work.part_name(part), stop - first, n_bytes, sha256)
