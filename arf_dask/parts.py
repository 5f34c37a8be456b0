"""Data larger than memory: any input as a list of parts, each loaded on its own, where it is needed.

How data are cut never depends on the number of workers: a part has at most `CELLS` cells, Parquet files are cut
between their row groups where these are small enough, and files are never joined. What can only be read from its
beginning (a query of Polars, large CSV) is first written to temporary Parquet files, which are gone at the end.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from polars.selectors import by_name

from arf_dask.cluster import place
from arf_dask.errors import DataError
from arf_dask.frames import find_files, from_pandas, is_csv, is_dask, scan_csv, take, to_dask
from arf_dask.tasks import Runner, Threads

CELLS = 5_000_000  # of a part, at most
IN_MEMORY = 2**27  # bytes of CSV files that are read at once: parsed, they are a few times as large
THREADS = Threads()
READ_ERRORS = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException)


TASK_CELLS = 10_000_000  # of the parts that one task takes, one after the other


class Part(Protocol):
    """Some neighbouring rows, light enough to be sent around."""

    @property
    def rows(self) -> int: ...

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows, with all columns or some of them."""
        ...


@dataclass(frozen=True, eq=False)
class Parts:
    """A table as its parts, in order, and the way back to what the caller uses."""

    dtypes: dict[str, pl.DataType]
    items: Sequence[Part]
    back: Callable[[pl.DataFrame], Any]

    @property
    def n_rows(self) -> int:
        return int(sum(part.rows for part in self.items))

    @property
    def starts(self) -> NDArray[np.int64]:
        """The number of every part's first row; one more at the end."""
        return np.concatenate([[0], np.cumsum([part.rows for part in self.items], dtype=np.int64)])

    def frame(self, runner: Runner = THREADS) -> pl.DataFrame:
        """All rows at once."""
        distant = any(isinstance(part, DaskPart) for part in self.items)
        frames = list(runner.map(load_part, None, self.items)) if distant else [part.load() for part in self.items]
        return frames[0] if len(frames) == 1 else pl.concat(frames) if frames else pl.DataFrame(schema=self.dtypes)


class Group(NamedTuple):
    """Neighbouring parts that one task takes, one after the other."""

    first: int  # number of the first row
    parts: Sequence[Part]

    def on_cluster(self, client: Any) -> Any:
        """The same as plain lists, in which Dask finds the futures of parts that live there."""
        return [self.first, [p.on_cluster(client) if hasattr(p, "on_cluster") else p for p in self.parts]]


def group_parts(parts: Parts, cells: int | None = None) -> list[Group]:
    """All parts in groups of at most so many cells: how many depends on the data alone."""
    most = rows_per_part(len(parts.dtypes), TASK_CELLS if cells is None else cells)
    groups: list[Group] = []
    held = 0
    for part, first in zip(parts.items, parts.starts.tolist(), strict=False):
        if groups and held + part.rows <= most:
            groups[-1] = Group(groups[-1].first, [*groups[-1].parts, part])
        else:
            groups.append(Group(first, [part]))
            held = 0
        held += part.rows
    return groups


def load_part(_: None, part: Part) -> pl.DataFrame:
    """All rows of a part, as a task."""
    return part.load()


def load_each(parts: Sequence[Part], columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
    """One part after the other; none is kept."""
    return (part.load(columns) for part in parts)


@contextmanager
def open_parts(data: Any, runner: Runner = THREADS) -> Iterator[Parts]:
    """The parts of a frame, a lazy frame, a Dask frame, or of the files of a path; see `frames.take`."""
    spool = Path(tempfile.gettempdir()) / f"arf_dask-{uuid4().hex}"  # made only if it is needed
    try:
        yield _parts(data, spool, runner)
    finally:  # also after Ctrl-C
        shutil.rmtree(spool, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class FramePart:
    """Rows in memory. On a cluster they travel once, not with every task."""

    frame: pl.DataFrame

    @property
    def rows(self) -> int:
        return self.frame.height

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        return self.frame if columns is None else self.frame[list(columns)]

    def on_cluster(self, client: Any) -> Any:
        return place(client, self)  # scattered, it would be lost with its worker


@dataclass(frozen=True)
class FilePart:
    """Some rows of a Parquet file."""

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
            raise _unreadable(self.path, error) from error
        if frame.height != self.rows:
            raise DataError(f"{self.path}: changed while it was read. Fit again once nobody writes to it.")
        return frame


@dataclass(frozen=True)
class ScanPart:
    """Some rows of a plan that can be read from anywhere (`pl.scan_parquet`)."""

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
    """One partition of a Dask frame. On a cluster it is made there, and stays."""

    delayed: Any
    rows: int
    dtypes: dict[str, pl.DataType]

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        return _partition(self.delayed.compute(scheduler="synchronous"), self.dtypes).load(columns)

    def on_cluster(self, client: Any) -> Any:
        return client.submit(_partition, client.compute(self.delayed), self.dtypes)


def _only(plan: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
    """Some columns of a plan; by selectors, as a name such as "^x$" would be taken for a pattern."""
    return plan.select(by_name(*columns))


def _cast(frame: pl.DataFrame, dtypes: dict[str, pl.DataType]) -> pl.DataFrame:
    """The same columns with these dtypes."""
    if all(dtypes[name] == dtype for name, dtype in frame.schema.items()):
        return frame
    return pl.DataFrame([series.cast(dtypes[series.name]) for series in frame])


def _parts(data: Any, spool: Path, runner: Runner) -> Parts:
    if isinstance(data, pl.LazyFrame):
        return _of_plan(data, spool)
    if isinstance(data, str | PathLike):
        return _of_path(str(data), spool)
    if is_dask(data):
        return _of_dask(data, runner)
    taken = take(data)
    return Parts(dict(taken.frame.schema), cut_frame(taken.frame), taken.back)


def cut_frame(frame: pl.DataFrame) -> list[Part]:
    """Slices of a frame: the same rows in the same memory."""
    most = rows_per_part(frame.width)
    return [FramePart(frame.slice(first, most)) for first in range(0, frame.height, most)]


def rows_per_part(width: int, cells: int | None = None) -> int:
    """Rows of a part with so many columns, at most."""
    return max((CELLS if cells is None else cells) // max(width, 1), 1)


def _of_plan(plan: pl.LazyFrame, spool: Path) -> Parts:
    def back(frame: pl.DataFrame) -> pl.LazyFrame:
        return frame.lazy()

    try:
        dtypes = dict(plan.collect_schema())
        first_line, *others = plan.explain(optimized=False).splitlines()
        alone = all(line.startswith(("PROJECT */", "ESTIMATED ROWS")) for line in others)
        if first_line.startswith("Parquet SCAN") and alone:
            most, n_rows = rows_per_part(len(dtypes)), int(plan.select(pl.len()).collect().item())
            starts = range(0, n_rows, most)
            return Parts(dtypes, [ScanPart(plan, first, min(most, n_rows - first)) for first in starts], back)
        if first_line.startswith("DF [") and not others:
            return Parts(dtypes, cut_frame(plan.collect()), back)
        return Parts(dtypes, _spooled(plan, dtypes, spool), back)
    except READ_ERRORS as error:
        raise DataError(f"the LazyFrame cannot be read: {error}. Does collect() work?") from error


def _spooled(plan: pl.LazyFrame, dtypes: dict[str, pl.DataType], spool: Path) -> list[Part]:
    """The rows of any plan, in temporary Parquet files; in memory where Parquet has no such type."""
    spool.mkdir(mode=0o700)
    target = spool / "rows.parquet"
    try:
        plan.sink_parquet(target, compression="lz4", row_group_size=min(rows_per_part(len(dtypes)), 2**18))
    except (pl.exceptions.ComputeError, pl.exceptions.InvalidOperationError):
        with suppress(FileNotFoundError):
            target.unlink()
        return cut_frame(plan.collect())
    return _cut_file(str(target), dtypes)


def _of_path(path: str, spool: Path) -> Parts:
    files = find_files(path)
    if is_csv(files[0]):
        return _of_csv(path, files, spool)
    schemas = [_schema(file) for file in files]
    dtypes = _common_schema(files, schemas)
    cut = [part for file in files for part in _cut_file(file, dtypes)]
    return Parts(dtypes, cut, lambda frame: frame)


def _of_csv(path: str, files: list[str], spool: Path) -> Parts:
    def back(frame: pl.DataFrame) -> pl.DataFrame:
        return frame

    try:
        plan = scan_csv(files)
        dtypes = dict(plan.collect_schema())
        if sum(Path(file).stat().st_size for file in files) <= IN_MEMORY:
            return Parts(dtypes, cut_frame(plan.collect()), back)
        return Parts(dtypes, _spooled(plan, dtypes, spool), back)
    except READ_ERRORS as error:
        raise DataError(f"{path}: cannot be read as CSV: {error}. All files need the same columns.") from error


def _schema(file: str) -> dict[str, pl.DataType]:
    try:
        return dict(pl.scan_parquet(file, glob=False).collect_schema())
    except READ_ERRORS as error:
        raise _unreadable(file, error) from error


def _unreadable(file: str, error: BaseException) -> DataError:
    return DataError(f"{file}: cannot be read as Parquet: {error}. Restore the file, or leave it out.")


def _common_schema(files: list[str], schemas: list[dict[str, pl.DataType]]) -> dict[str, pl.DataType]:
    """The columns that all files have; a column of nulls alone (type Null) goes with any type."""
    dtypes = {name: schemas[0][name] for name in schemas[0]}
    for schema in schemas:
        dtypes.update({name: t for name, t in schema.items() if dtypes.get(name) == pl.Null})
    for file, schema in zip(files, schemas, strict=True):
        missing = [repr(name) for name in dtypes if name not in schema]
        extra = [repr(name) for name in schema if name not in dtypes]
        other = [f"{n!r} is {t}, not {dtypes[n]}" for n, t in schema.items() if dtypes.get(n, t) != t and t != pl.Null]
        found = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"also has {', '.join(extra)}"] * bool(extra)
        found += [", ".join(other)] * bool(other)
        if found:
            raise DataError(
                f"{file}: differs from {files[0]}: {'; '.join(found)}. Give files of the same columns and types, "
                "or a LazyFrame that makes them so."
            )
    return dtypes


def _cut_file(file: str, dtypes: dict[str, pl.DataType]) -> list[Part]:
    """Ranges of rows: of several whole row groups, or of one where it is large."""
    most = rows_per_part(len(dtypes))
    groups = _row_groups(file)
    sizes: list[int] = []
    for group in groups:
        if sizes and sizes[-1] + group <= most:
            sizes[-1] += group
        else:
            pieces = -(-group // most)
            sizes += [group * (i + 1) // pieces - group * i // pieces for i in range(pieces)]
    firsts = np.cumsum([0, *sizes]).tolist()
    return [FilePart(file, first, size, dtypes) for first, size in zip(firsts, sizes, strict=False)]


def _row_groups(file: str) -> list[int]:
    """The rows of every row group; of all at once where Arrow does not know a type (128-bit integers)."""
    try:
        with pq.ParquetFile(file) as opened:
            return [opened.metadata.row_group(i).num_rows for i in range(opened.metadata.num_row_groups)]
    except NotImplementedError:
        return [int(pl.scan_parquet(file, glob=False).select(pl.len()).collect().item())]
    except READ_ERRORS as error:
        raise _unreadable(file, error) from error


def _of_dask(data: Any, runner: Runner) -> Parts:
    """The partitions, each looked at once for its rows and types: pandas may use others in each."""
    delayed = data.to_delayed()
    found = list(runner.map(_look, None, map(_Partition, delayed)))
    dtypes: dict[str, pl.DataType] = {}
    for _, schema in found:
        dtypes.update({name: t for name, t in schema.items() if dtypes.get(name, pl.Null()) == pl.Null})
    for number, (_, schema) in enumerate(found):
        odd = [n for n, t in schema.items() if t not in (dtypes[n], pl.Null) and not _number(t, dtypes[n])]
        if odd:
            raise DataError(
                f"partition {number}: {odd[0]!r} is {schema[odd[0]]}, not {dtypes[odd[0]]} as before. "
                "Give all partitions one type (astype) before fit."
            )
    for _, schema in found:  # whole numbers with gaps are floats in pandas
        dtypes.update({n: t for n, t in schema.items() if t.is_float() and dtypes[n].is_integer()})
    parts = [DaskPart(one, rows, dtypes) for one, (rows, _) in zip(delayed, found, strict=True) if rows]
    return Parts(dtypes, parts, lambda frame: to_dask(frame, data))


def _number(one: pl.DataType, other: pl.DataType) -> bool:
    return (one.is_float() and other.is_integer()) or (one.is_integer() and other.is_float())


class _Partition(NamedTuple):
    """A partition of a Dask frame, not looked at yet."""

    delayed: Any

    def on_cluster(self, client: Any) -> Any:
        return client.compute(self.delayed)


def _look(_: None, partition: Any) -> tuple[int, dict[str, pl.DataType]]:
    if isinstance(partition, _Partition):
        partition = partition.delayed.compute(scheduler="synchronous")
    frame = from_pandas(partition)
    return frame.height, dict(frame.schema)


def _partition(partition: Any, dtypes: dict[str, pl.DataType]) -> FramePart:
    return FramePart(_cast(from_pandas(partition), dtypes))
