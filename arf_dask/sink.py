"""Synthetic rows as a data set of Parquet files, larger than memory, that survives whatever ends the run.

A part is a pure function of (model, condition, seed, part number): rows are drawn by the same blocks as those of
`Model.sample`, cut to the part, and written row group by row group. Parts of one task follow each other, so that a
block on the border of two is drawn twice only where two tasks meet.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.cluster import runner_for
from arf_dask.density import condition_frame
from arf_dask.errors import ArfError, OptionError, OutputError
from arf_dask.forge import BLOCK_ROWS, Sampler, make_sampler
from arf_dask.frames import is_frame
from arf_dask.manifest import (
    JOB,
    MANIFEST,
    SUCCESS,
    Job,
    Manifest,
    describe_given,
    read_bytes,
    read_manifest,
)
from arf_dask.parquet import Part, arrow_schema, digest, few_valued, read_facts, write_part
from arf_dask.progress import Progress
from arf_dask.sampling import Source, cut_blocks, cut_conditions, draw_stretch, make_source
from arf_dask.seeds import entropy
from arf_dask.storage import PathLike, library_versions, model_hash
from arf_dask.stores import TEMPORARY, Directory, Store, explain, open_store, telling
from arf_dask.tables import Tables
from arf_dask.tasks import Threads, n_cores

MODES = ("error", "overwrite", "resume")
TASK_BLOCKS = 4  # blocks that a task draws at least: small parts are made several at a time
LIBRARIES = ("arf_dask", "polars", "numpy", "pyarrow")  # those that decide bytes
PART = re.compile(r"part-\d{5,}\.parquet")
_BUILDING = threading.RLock()  # one thing is made of another


@dataclass(frozen=True, eq=False)
class Work:
    """What all tasks of a run share."""

    store: Store
    run: str
    job: Job
    tables: Tables
    given: Any  # a condition; frames of them travel with their tasks
    conditions: int | None  # rows of such a frame
    look: bool  # some parts may be there already
    _made: dict[str, Any] = field(default_factory=dict)

    def sampler(self) -> Sampler:
        found: Sampler = self._once("sampler", lambda: make_sampler(self.tables))
        return found

    def source(self) -> Source:
        found: Source = self._once("source", lambda: make_source(self.sampler(), self.given, self.job.on_impossible))
        return found

    def schema(self) -> Any:
        return self._once("schema", lambda: arrow_schema(self.tables.schema.dtypes))

    def keep(self, sampler: Sampler) -> None:
        """A sampler that this process has already."""
        self._made["sampler"] = sampler

    def facts(self, part: int) -> dict[str, str]:
        """What a file says of itself."""
        job = self.job
        return {
            "arf_dask.synthetic": "true",
            "arf_dask.model": job.model_hash,
            "arf_dask.seed": str(job.seed),
            "arf_dask.job": job.id,
            "arf_dask.part": f"{part} of {job.n_parts}",
        }

    def _once(self, name: str, make: Any) -> Any:
        """Made once in every process, however many threads ask."""
        with _BUILDING:
            if name not in self._made:
                self._made[name] = make()
            return self._made[name]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "tables": replace(self.tables), "_made": {}}


class Stint(NamedTuple):
    """The parts that one task makes."""

    first: int
    stop: int
    low: int  # the first of its conditions, if a frame has them
    conditions: pl.DataFrame | None

    @property
    def name(self) -> str:
        return f"parts {self.first} to {self.stop - 1}" if self.stop - self.first > 1 else f"part {self.first}"


def sample_parquet(
    tables: Tables,
    sampler: Sampler,
    path: PathLike,
    n: int,
    *,
    given: Any,
    on_impossible: str,
    seed: int | None,
    rows_per_file: int,
    mode: str,
    client: Any,
    storage_options: Mapping[str, Any] | None,
    report: Progress,
) -> Manifest:
    """Write `n` rows as `Model.sample_parquet` says."""
    _check(rows_per_file, mode)
    store = open_store(path, storage_options)
    if isinstance(store, Directory):
        store.recover()
    there = _job_there(store)
    chosen = there.seed if seed is None and mode == "resume" and there is not None else entropy(seed)
    frame = condition_frame(given, tables.schema) if is_frame(given) else None
    job = _job(tables, n, chosen, rows_per_file, given if frame is None else frame, on_impossible)
    _admit(store, there, job, mode)
    if mode == "resume" and there is not None:
        finished = _finished(store)
        if finished is not None:
            store.clear()
            return replace(finished, storage_options=storage_options)
    work = Work(
        store,
        f"run-{uuid.uuid4().hex}",
        job,
        tables,
        given if frame is None else None,
        None if frame is None else frame.height,
        look=mode == "resume" and there is not None,
    )
    work.keep(sampler)
    replaces = mode == "overwrite" and there is not None
    with runner_for(client) as runner:
        if replaces and isinstance(store, Directory):
            made = _replace(work, store, runner, frame, report)
        else:
            if replaces:
                _remove_all(store)
            made = _write(work, runner, frame, report)
    return replace(made, path=store.place, storage_options=storage_options)


def make_parts(work: Work, stint: Stint) -> list[Part]:
    """Write the parts of a stint that are not there yet."""
    draw = _Drawer(work, stint)
    return [_make_part(work, part, draw) for part in range(stint.first, stint.stop)]


# Whether it may begin.


def _check(rows_per_file: object, mode: object) -> None:
    if isinstance(rows_per_file, bool) or not isinstance(rows_per_file, int | np.integer) or rows_per_file < 1:
        raise OptionError(f"rows_per_file={rows_per_file!r}: give a whole number of at least 1.")
    if mode not in MODES:
        raise OptionError(f'mode={mode!r}: say "error", "overwrite" or "resume".')


def check_target(
    path: PathLike, mode: str, rows_per_file: int, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Raise the error that `sample_parquet` would, before there is a model: it may take long to come by."""
    _check(rows_per_file, mode)
    store = open_store(path, storage_options)
    if isinstance(store, Directory):
        store.recover()
    _admit(store, _job_there(store), None, mode)


def _job(tables: Tables, n: int, seed: int, rows_per_file: int, given: Any, on_impossible: str) -> Job:
    text, sha256 = describe_given(given)
    rows = int(n) * given.height if isinstance(given, pl.DataFrame) else int(n)
    versions = library_versions(LIBRARIES)
    return Job(
        model_hash(tables), int(n), rows, seed, int(rows_per_file), text, sha256, on_impossible, written_by=versions
    )


def _job_there(store: Store) -> Job | None:
    """The job that was begun at a place, if there is one."""
    if JOB not in store.names():
        return None
    try:
        return Job.from_json(read_bytes(store, JOB))
    except (ValueError, TypeError, KeyError) as error:
        raise OutputError(
            f"{store.location(JOB)}: cannot be read as a job of arf_dask ({error}). Remove {store.place} yourself, or "
            "give another place."
        ) from error


def _admit(store: Store, there: Job | None, job: Job | None, mode: str) -> None:
    """Raise an OutputError if what lies at a place forbids this run."""
    held = [name for name in store.names() if name != TEMPORARY]
    if not held:
        return
    ours = {JOB, MANIFEST, SUCCESS}
    foreign = [name for name in held if there is None or not (name in ours or PART.fullmatch(name))]
    if mode == "error":
        raise OutputError(
            f"{store.place}: is not empty ({held[0]!r} is there). Give a new place, or say "
            'mode="resume" to complete the same job, or mode="overwrite" to replace a data set.'
        )
    if foreign and (mode == "overwrite" or there is None or any(name.endswith(".parquet") for name in foreign)):
        raise OutputError(
            f"{store.place}: holds {foreign[0]!r}, which is not of a data set of arf_dask. Move it away, or give "
            "another place."
        )
    if mode == "resume" and there is not None and job is not None:
        differences = job.differences(there)
        if differences:
            raise OutputError(
                f"{store.place}: another job was begun there: {'; '.join(differences)}. Ask for the same, "
                'say mode="overwrite" to replace it, or give another place.'
            )


def _finished(store: Store) -> Manifest | None:
    """The manifest, if all that it lists is there."""
    if not {SUCCESS, MANIFEST} <= set(store.names()):
        return None
    try:
        manifest = read_manifest(store)
    except (ValueError, TypeError, KeyError):
        return None
    for part in manifest.parts:
        try:
            with store.open(part.file) as file:
                if file.seek(0, 2) != part.bytes:
                    return None
        except OSError:
            return None
    return manifest


# The run.


def _replace(work: Work, store: Directory, runner: Any, frame: pl.DataFrame | None, report: Progress) -> Manifest:
    """Write the data set beside the old one, then put it in its place: readers see the one or the other."""
    try:
        made = _write(replace(work, store=store.staging), runner, frame, report)
        store.swap()
    finally:
        store.recover()
    return made


def _remove_all(store: Store) -> None:
    """Remove a data set file by file, first what says that it is finished."""
    with telling(store.place):
        store.remove([SUCCESS, MANIFEST])
        store.remove([name for name in store.names() if PART.fullmatch(name)])
        store.remove([JOB])


def _write(work: Work, runner: Any, frame: pl.DataFrame | None, report: Progress) -> Manifest:
    store, job = work.store, work.job
    if frame is None:
        work.source()  # an impossible condition ends it here
    try:
        store.prepare(work.run)
        with telling(store.place):
            if work.look:
                store.remove([SUCCESS, MANIFEST])
            _put_text(work, JOB, job.to_json())
        report.stage("writing", job.rows)
        parts = []
        with closing(runner.map(make_parts, work, _stints(job, frame))) as results:
            for made in results:
                parts += made
                report.advance(sum(part.rows for part in made), parts=len(parts))
        columns = {name: str(dtype) for name, dtype in work.tables.schema.dtypes.items()}
        size = sum(part.bytes for part in parts)
        manifest = Manifest(store.place, job.rows, size, tuple(parts), columns, job)
        with telling(store.place):
            _put_text(work, MANIFEST, manifest.to_json())
            _put_text(work, SUCCESS, "")
    except OutputError as error:
        raise _with_state(error, work) from error
    finally:
        # Tasks that still run notice that the place of their files is gone.
        store.clear()
    return manifest


def _with_state(error: OutputError, work: Work) -> OutputError:
    """The error, with what is there and how to go on."""
    try:
        held = work.store.names()
    except OutputError:
        return error
    if isinstance(work.store, Directory) and work.store.is_staging:
        return OutputError(f"{error} The data set that was there is untouched.")
    if JOB not in held:
        return error
    total = f"{work.job.n_parts:,} part{'s' if work.job.n_parts != 1 else ''}"
    done = sum(1 for name in held if PART.fullmatch(name))
    return OutputError(f'{error} {done:,} of {total} are complete; run again with mode="resume" to make the others.')


def _put_text(work: Work, name: str, text: str) -> None:
    with work.store.scratch(work.run, name) as path:
        path.write_bytes(text.encode())
        work.store.commit(path, name)


def _stints(job: Job, frame: pl.DataFrame | None) -> Iterator[Stint]:
    """All parts in order, as many for each task as make it worthwhile."""
    step = max(1, -(-TASK_BLOCKS * BLOCK_ROWS // job.rows_per_file))
    for first in range(0, job.n_parts, step):
        stop = min(first + step, job.n_parts)
        if frame is None:
            yield Stint(first, stop, 0, None)
            continue
        stretches = list(cut_conditions(job.n, frame.height, job.bounds(first)[0], job.bounds(stop - 1)[1]))
        low = stretches[0].low if stretches else 0
        high = stretches[-1].high if stretches else 0
        yield Stint(first, stop, low, frame[low:high])


# One task.


class _Drawer:
    """The rows of a stint. The last block is kept: the next part may begin with the rest of it."""

    def __init__(self, work: Work, stint: Stint) -> None:
        self.work, self.stint = work, stint
        self.last: tuple[int, pl.DataFrame] | None = None

    def rows(self, first: int, stop: int) -> Iterator[pl.DataFrame]:
        """The rows from `first` up to `stop` of the whole result, block by block."""
        job = self.work.job
        conditions = self.work.conditions
        places: Iterator[Any]
        if conditions is None:
            places = cut_blocks(job.rows, first, stop)
        else:
            places = cut_conditions(job.n, conditions, first, stop)
        for place, frame in self._drawn(places):
            self.last = place.block, frame
            low, high = max(first, place.first), min(stop, place.first + place.rows)
            yield frame.slice(low - place.first, high - low)

    def _drawn(self, places: Iterator[Any]) -> Iterator[tuple[Any, pl.DataFrame]]:
        """Blocks in order. Where there are fewer parts than cores, the others draw for this one."""
        runner = Threads(None if self.work.job.n_parts < n_cores() else 1)
        return runner.map(_draw_block, self, places)

    def draw(self, place: Any) -> pl.DataFrame:
        """One block, unless it is the one at hand."""
        work, stint, last = self.work, self.stint, self.last
        if last is not None and last[0] == place.block:
            return last[1]
        if not work.store.going(work.run):
            raise OutputError(f"{work.store.place}: this run was stopped, or another one took its place.")
        if stint.conditions is None:
            return work.source().draw(work.job.seed, place)
        here = stint.conditions[place.low - stint.low : place.high - stint.low]
        return draw_stretch(work.sampler(), here, work.job.seed, place, work.job.on_impossible)


def _draw_block(drawer: _Drawer, place: Any) -> tuple[Any, pl.DataFrame]:
    return place, drawer.draw(place)


def _make_part(work: Work, part: int, draw: _Drawer) -> Part:
    name = work.job.part_name(part)
    try:
        found = _part_there(work, part) if work.look else None
        return found if found is not None else _write_part(work, part, draw)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(explain(error, work.store.location(name))) from error
    except ArfError as error:
        raise type(error)(f"{name}: {error}") from error
    except Exception as error:
        error.add_note(f"while making {work.store.location(name)}")
        raise


def _write_part(work: Work, part: int, draw: _Drawer) -> Part:
    name, (first, stop) = work.job.part_name(part), work.job.bounds(part)
    with work.store.scratch(work.run, name) as path:
        rows = draw.rows(first, stop)
        write_part(path, rows, work.schema(), work.facts(part), few_valued(work.tables.schema))
        made = _checked(work, part, path)
        work.store.commit(path, name)
    return made


def _checked(work: Work, part: int, path: Path) -> Part:
    """The facts of a file just written, read back from it."""
    first, stop = work.job.bounds(part)
    with path.open("rb") as file:
        size, sha256 = digest(file)
    with path.open("rb") as file:
        if not _says(read_facts(file, work.schema(), stop - first), work.facts(part)):
            raise OutputError(f"{path}: what was written cannot be read back. Check the disk.")
    return Part(work.job.part_name(part), stop - first, size, sha256)


def _part_there(work: Work, part: int) -> Part | None:
    """A part that an earlier run finished; None if it is not there or not whole."""
    name, (first, stop) = work.job.part_name(part), work.job.bounds(part)
    try:
        with work.store.open(name) as file:
            if not _says(read_facts(file, work.schema(), stop - first), work.facts(part)):
                return None
        with work.store.open(name) as file:
            return Part(name, stop - first, *digest(file))
    except FileNotFoundError:
        return None


def _says(found: Mapping[str, str] | None, facts: Mapping[str, str]) -> bool:
    return found is not None and {name: found.get(name) for name in facts} == facts
