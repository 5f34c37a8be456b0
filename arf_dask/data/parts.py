"""Data larger than memory: any input as a list of parts, which are loaded separately where they are needed.

The partitioning does not depend on the number of workers: a part has at most `CELLS` cells, Parquet files are split at
row groups if these are small enough, and a part never spans several files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray
from polars.selectors import by_name

from arf_dask.data.pandas_frames import from_pandas
from arf_dask.errors import DataError
from arf_dask.runtime.cluster import replicate_as_task
from arf_dask.runtime.tasks import Runner, Threads

CELLS = 5_000_000  # maximum number of cells of a part
THREADS = Threads()
READ_ERRORS = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException)
TASK_CELLS = 10_000_000  # maximum number of cells of the parts that one task processes sequentially


class DataPart(Protocol):
    """A range of rows of a table, in memory or to be read on demand. It can be sent to a worker."""

    @property
    def rows(self) -> int: ...

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Load the rows, with all or with the given columns."""
        ...


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a table in order, and the conversion of results to the caller's kind of frame."""

    dtypes: dict[str, pl.DataType]
    items: Sequence[DataPart]
    to_original: Callable[[pl.DataFrame], Any]

    @property
    def n_rows(self) -> int:
        return int(sum(part.rows for part in self.items))

    @property
    def starts(self) -> NDArray[np.int64]:
        """The index of the first row of every part, followed by the total number of rows."""
        return np.concatenate([[0], np.cumsum([part.rows for part in self.items], dtype=np.int64)])

    def frame(self, runner: Runner = THREADS) -> pl.DataFrame:
        """Load all rows into one frame."""
        on_cluster = any(isinstance(part, DaskPart) for part in self.items)
        frames = list(runner.map(load_part, None, self.items)) if on_cluster else [part.load() for part in self.items]
        return frames[0] if len(frames) == 1 else pl.concat(frames) if frames else pl.DataFrame(schema=self.dtypes)


class PartGroup(NamedTuple):
    """Consecutive parts that one task loads one at a time."""

    first: int  # index of the first row
    parts: Sequence[DataPart]

    def on_cluster(self, client: Any) -> Any:
        """Return the group as plain lists, in which Dask finds the futures of parts on the cluster."""
        return [self.first, [p.on_cluster(client) if hasattr(p, "on_cluster") else p for p in self.parts]]


def group_parts(parts: Parts, cells: int | None = None) -> list[PartGroup]:
    """Group the parts of a table into tasks of at most `cells` cells; the groups depend only on the data."""
    max_rows = rows_per_part(len(parts.dtypes), TASK_CELLS if cells is None else cells)
    groups: list[PartGroup] = []
    group_rows = 0
    for part, first_row in zip(parts.items, parts.starts.tolist(), strict=False):
        if groups and group_rows + part.rows <= max_rows:
            groups[-1] = PartGroup(groups[-1].first, [*groups[-1].parts, part])
        else:
            groups.append(PartGroup(first_row, [part]))
            group_rows = 0
        group_rows += part.rows
    return groups


def load_part(_: None, part: DataPart) -> pl.DataFrame:
    """Load all rows of a part, as a task."""
    return part.load()


def gather_rows(parts: Parts, rows: NDArray[np.int64], runner: Runner) -> pl.DataFrame:
    """Load the rows with the given ascending indices, group by group."""
    return pl.concat(list(runner.map(_gather_group, rows, group_parts(parts))))


def _gather_group(rows: NDArray[np.int64], group: PartGroup) -> pl.DataFrame:
    first, frames = group[0], []
    for frame in load_each(group[1]):
        low, high = np.searchsorted(rows, [first, first + frame.height])
        frames.append(frame[rows[low:high] - first])
        first += frame.height
    return pl.concat(frames)


def load_each(parts: Sequence[DataPart], columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
    """Load the parts lazily, one at a time."""
    return (part.load(columns) for part in parts)


@dataclass(frozen=True, eq=False)
class FramePart:
    """Rows in memory. On a cluster they are sent once rather than with every task."""

    frame: pl.DataFrame

    @property
    def rows(self) -> int:
        return self.frame.height

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        return self.frame if columns is None else self.frame[list(columns)]

    def on_cluster(self, client: Any) -> Any:
        return replicate_as_task(client, self)  # scattered data would be lost with its worker


@dataclass(frozen=True)
class FilePart:
    """A range of rows of a Parquet file."""

    path: str
    first: int
    rows: int
    dtypes: dict[str, pl.DataType]

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        names = list(self.dtypes if columns is None else columns)
        try:
            rows = _only(pl.scan_parquet(self.path, glob=False), names).slice(self.first, self.rows)
            frame = _cast(rows.collect()[names], self.dtypes)
        except READ_ERRORS as error:
            raise unreadable_file(self.path, error) from error
        if frame.height != self.rows:
            raise DataError(f"{self.path}: changed while it was read. Fit again once nobody writes to it.")
        return frame


@dataclass(frozen=True)
class ScanPart:
    """A range of rows of a lazy frame that supports random access (`pl.scan_parquet`)."""

    plan: pl.LazyFrame
    first: int
    rows: int

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        rows = self.plan.slice(self.first, self.rows)
        try:
            return rows.collect() if columns is None else _only(rows, columns).collect()[list(columns)]
        except READ_ERRORS as error:
            raise DataError(f"the LazyFrame cannot be read: {error}. Does collect() work?") from error


@dataclass(frozen=True, eq=False)
class DaskPart:
    """One partition of a Dask frame. On a cluster it is computed there and stays there."""

    delayed: Any
    rows: int
    dtypes: dict[str, pl.DataType]

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        return _partition(self.delayed.compute(scheduler="synchronous"), self.dtypes).load(columns)

    def on_cluster(self, client: Any) -> Any:
        return client.submit(_partition, client.compute(self.delayed), self.dtypes)


def _only(plan: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
    """Select columns of a lazy frame by selectors: a name such as "^x$" would be read as a regular expression."""
    return plan.select(by_name(*columns))


def _cast(frame: pl.DataFrame, dtypes: dict[str, pl.DataType]) -> pl.DataFrame:
    """Cast the columns of a frame to these dtypes."""
    if all(dtypes[name] == dtype for name, dtype in frame.schema.items()):
        return frame
    return pl.DataFrame([series.cast(dtypes[series.name]) for series in frame])


def one_part(frame: pl.DataFrame) -> Parts:
    """Return a frame in memory as a table of one part."""
    return Parts(dict(frame.schema), [FramePart(frame)], lambda result: result)


def cut_frame(frame: pl.DataFrame) -> list[DataPart]:
    """Split a frame into slices without copying rows."""
    max_rows = rows_per_part(frame.width)
    return [FramePart(frame.slice(first_row, max_rows)) for first_row in range(0, frame.height, max_rows)]


def rows_per_part(width: int, cells: int | None = None) -> int:
    """Return the maximum number of rows of a part with `width` columns."""
    return max((CELLS if cells is None else cells) // max(width, 1), 1)


def _partition(partition: Any, dtypes: dict[str, pl.DataType]) -> FramePart:
    return FramePart(_cast(from_pandas(partition), dtypes))


def unreadable_file(file: str, error: BaseException) -> DataError:
    """Return the error for a Parquet file that cannot be read."""
    return DataError(f"{file}: cannot be read as Parquet: {error}. Restore the file, or leave it out.")
