"""Write synthetic rows to a data set of Parquet files that may exceed memory; interrupted runs can be resumed.

One run at a time owns a directory. It writes its parts, records them in `_job.json` as it goes, and at the end
publishes the manifest, then `_SUCCESS`, and removes `_job.json`. A call that raises during validation writes nothing.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, get_args

import numpy as np
import polars as pl

from arf_dask.errors import OptionError, OutputError
from arf_dask.inference.forge import Sampler
from arf_dask.inference.row_plan import RowPlan, plan_rows
from arf_dask.runtime.cluster import runner_for
from arf_dask.runtime.disk import file_sha256, library_versions
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import entropy
from arf_dask.runtime.tasks import Runner
from arf_dask.schema.columns import first_key_of
from arf_dask.storage.existing import Existing, find_existing, holds_parts_of, withdraw
from arf_dask.storage.jobs import JOB, Job, RunState, describe_given
from arf_dask.storage.manifest import (
    FORMER_MANIFEST,
    MANIFEST,
    PART_NAME,
    SUCCESS,
    Manifest,
    find_problem,
    write_manifest,
)
from arf_dask.storage.model_file import model_hash
from arf_dask.storage.parquet import Part
from arf_dask.storage.part_writing import PlannedRows, WriteContext, check_ownership, make_parts, part_ranges
from arf_dask.storage.portable import portable_dtypes
from arf_dask.storage.stores import TEMPORARY, Directory, Remote, Store, open_store, output_errors
from arf_dask.typing import OnImpossible, PathLike, WriteMode

MODES = get_args(WriteMode)
LIBRARIES = ("arf_dask", "polars", "numpy", "pyarrow")  # their versions affect the bytes written
FINISHED = (SUCCESS, MANIFEST, FORMER_MANIFEST)
OWN_NAMES = {*FINISHED, JOB, f"{TEMPORARY}/"}
RECORD_EVERY = 1.0  # seconds between updates of `_job.json`


def sample_parquet(
    sampler: Sampler,
    path: PathLike,
    n: int,
    *,
    given: Any,
    on_impossible: OnImpossible,
    seed: int | None,
    rows_per_file: int,
    mode: str,
    client: Any,
    storage_options: Mapping[str, Any] | None,
    report: Progress,
    portable: bool = False,
) -> Manifest:
    """Write `n` rows to a data set. `Model.sample_parquet` documents the arguments."""
    check_parts(rows_per_file)
    _check_mode(mode)
    store = open_store(path, storage_options)
    existing = find_existing(store)
    resumed_job = existing.job if mode == "resume" else None
    chosen_seed = resumed_job.seed if seed is None and resumed_job is not None else entropy(seed)
    plan = plan_rows(sampler, n, given, on_impossible, chosen_seed)  # raises for an impossible condition
    job = make_job(plan, given, rows_per_file, portable=portable)
    with runner_for(client) as runner:
        return write_rows(plan, job, path, mode, storage_options, runner, report)


def write_rows(
    plan: PlannedRows,
    job: Job,
    path: PathLike,
    mode: str,
    storage_options: Mapping[str, Any] | None,
    runner: Runner,
    report: Progress,
) -> Manifest:
    """Write planned rows to a data set.

    Args:
        plan: the rows.
        job: what determines them.
        path: the directory or URL.
        mode: how to handle an existing path, as in `Model.sample_parquet`.
        storage_options: storage options for a URL.
        runner: runs the tasks.
        report: receives progress updates.
    """
    store = open_store(path, storage_options)
    _admit(store, find_existing(store), job, mode)
    write_context = WriteContext(store, f"run-{uuid.uuid4().hex}", job, plan.without_conditions(), existing={})
    with store.owned():
        existing = _admit(store, find_existing(store), job, mode)  # the previous lock owner may have changed it
        written_manifest = _run(write_context, existing, mode, runner, plan, report)
    url = store.url if isinstance(store, Remote) else None
    return replace(written_manifest, path=store.root, storage_options=storage_options, url=url)


def seed_of(path: PathLike, storage_options: Mapping[str, Any] | None) -> int | None:
    """Return the seed of the data set at a path; None if there is none."""
    job = find_existing(open_store(path, storage_options)).job
    return None if job is None else job.seed


def check_target(
    path: PathLike, mode: str, rows_per_file: int, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Raise the errors that `sample_parquet` would raise for a target, before a long fit begins."""
    check_parts(rows_per_file)
    _check_mode(mode)
    store = open_store(path, storage_options)
    _admit(store, find_existing(store), None, mode)


# Read-only checks before a run.


def check_parts(rows_per_file: object) -> None:
    """Raise an OptionError unless `rows_per_file` is a positive integer."""
    if isinstance(rows_per_file, bool) or not isinstance(rows_per_file, int | np.integer) or rows_per_file < 1:
        raise OptionError(f"rows_per_file={rows_per_file!r}: give a whole number of at least 1.")


def _check_mode(mode: object) -> None:
    if mode not in MODES:
        raise OptionError(f'mode={mode!r}: say "error", "overwrite" or "resume".')


def make_job(plan: RowPlan, given: Any, rows_per_file: int, *, portable: bool) -> Job:
    """Return the job that identifies a data set: everything that determines its bytes."""
    condition = describe_given(plan.given if isinstance(plan.given, pl.DataFrame) else given)
    versions, fitted = library_versions(LIBRARIES), plan.fitted
    job_fields = (plan.n, plan.rows, plan.seed, int(rows_per_file), *condition, plan.on_impossible, versions)
    return Job(model_hash(fitted), *job_fields, portable=portable, first_key=first_key_of(fitted.schema))


def _admit(store: Store, existing: Existing, job: Job | None, mode: str) -> Existing:
    """Return the data set that the run starts from. Raises an OutputError if it conflicts with this job or mode."""
    existing_names = [name for name in store.names() if name != f"{TEMPORARY}/"]
    if not existing_names:
        return existing
    if existing.damage is not None and mode != "error":
        if mode == "resume" and job is None:
            return existing  # checked again when the job is known
        if mode != "resume" or job is None or not holds_parts_of(store, job):
            raise existing.damage
        existing = existing._replace(job=job, damage=None)  # its parts say that they belong to this job
    foreign = [
        name for name in existing_names if existing.job is None or not (name in OWN_NAMES or PART_NAME.fullmatch(name))
    ]
    if mode == "error":
        raise OutputError(
            f"{store.root}: is not empty ({existing_names[0]!r} is there). Give a new path, or say "
            'mode="resume" to complete the same job, or mode="overwrite" to replace a data set.'
        )
    if foreign and (mode == "overwrite" or existing.job is None or any(".parquet" in name for name in foreign)):
        raise OutputError(
            f"{store.root}: holds {foreign[0]!r}, which is not part of a data set of arf_dask. Move it away, or give "
            "another path."
        )
    if mode == "resume" and existing.job is not None and job is not None:
        differences = job.differences(existing.job)
        if differences:
            raise OutputError(
                f"{store.root}: another job was begun there: {'; '.join(differences)}. Ask for the same, "
                'say mode="overwrite" to replace it, or give another path.'
            )
    return existing


# The run itself; the store is locked by this process.


def _run(
    work: WriteContext, existing: Existing, mode: str, runner: Runner, plan: PlannedRows, report: Progress
) -> Manifest:
    store = work.store
    if mode == "resume" and existing.job is not None:
        if existing.manifest is not None and _is_intact(work, existing.manifest):
            store.clear()
            store.remove([JOB])
            return existing.manifest
        work = replace(work, existing={part.file: part for part in existing.parts})
    elif existing.job is not None and isinstance(store, Directory):
        staging_store = store.staging(work.run)
        try:
            written_manifest = _write(replace(work, store=staging_store), runner, plan, report)
            store.swap(staging_store)
        finally:
            staging_store.discard()
        return written_manifest
    return _write(work, runner, plan, report)


def _is_intact(work: WriteContext, manifest: Manifest) -> bool:
    """Return whether a finished data set is as it was written: all of its parts, and every byte of its manifest."""
    with tempfile.TemporaryDirectory(prefix="arf_dask-") as directory:
        path = Path(directory) / MANIFEST
        write_manifest(manifest, path, work.schema())
        expected = Part(MANIFEST, 0, path.stat().st_size, file_sha256(path))
    return not any(find_problem(work.store, part) for part in (expected, *manifest.parts))


def _write(work: WriteContext, runner: Any, plan: PlannedRows, report: Progress) -> Manifest:
    store, parts = work.store, list[Part]()
    try:
        store.prepare(work.run)
        with output_errors(store.root):
            _record(work, parts)
            store.remove([name for name in FINISHED if name in store.names()])
        report.stage("writing", work.job.rows)
        last_record = monotonic()
        with closing(runner.map(make_parts, work, part_ranges(work.job, plan))) as results:
            for new_parts in results:
                parts += new_parts
                report.advance(sum(part.rows for part in new_parts), parts=len(parts))
                if monotonic() - last_record > RECORD_EVERY:
                    _record(work, parts)
                    last_record = monotonic()
        manifest = _manifest(work, parts)
        with output_errors(store.root):
            _publish(work, manifest)
    except OutputError as error:
        withdraw(store, work.job, {work.part_name(part) for part in range(work.job.n_parts)})
        raise _with_hint(error, work) from error
    finally:
        if JOB in _names(store):  # interrupted: record progress for the next run
            with suppress(Exception):
                _record(work, parts)
        # Tasks that are still running stop once their temporary directory is gone.
        store.clear()
    return manifest


def _manifest(work: WriteContext, parts: list[Part]) -> Manifest:
    dtypes = work.fitted.dtypes
    written_dtypes = portable_dtypes(dtypes) if work.job.portable else dtypes
    column_types = {name: str(dtype) for name, dtype in written_dtypes.items()}
    total_bytes = sum(part.bytes for part in parts)
    release_report: Any = work.fitted.options.get("release")
    if release_report is not None:
        release_report = {**release_report, "copies_checked": work.fitted.guard is not None}
    statement: Any = work.fitted.options.get("privacy")
    return Manifest(
        work.store.root, work.job.rows, total_bytes, tuple(parts), column_types, work.job, release_report, statement
    )


def _record(work: WriteContext, parts: list[Part]) -> None:
    """Write `_job.json` with the finished parts, including parts of earlier runs that have not been verified yet."""
    store = work.store
    if parts:
        check_ownership(store, work.run)
    recorded_parts = {**work.existing, **{part.file: part for part in parts}}
    run_state = RunState(work.job, work.run, tuple(recorded_parts[name] for name in sorted(recorded_parts)))
    with store.scratch(work.run, JOB) as path:
        path.write_bytes(run_state.to_json().encode())
        store.commit(path, JOB)


def _publish(work: WriteContext, manifest: Manifest) -> None:
    """Remove leftovers of other runs, then write the manifest and `_SUCCESS`."""
    store = work.store
    check_ownership(store, work.run)
    listed_files = {part.file for part in manifest.parts}
    store.remove([name for name in store.names() if PART_NAME.fullmatch(name) and name not in listed_files])
    with store.scratch(work.run, MANIFEST) as path:
        write_manifest(manifest, path, work.schema())
        store.commit(path, MANIFEST)
    with store.scratch(work.run, SUCCESS) as path:
        path.touch()
        store.commit(path, SUCCESS)
    store.remove([JOB])


def _with_hint(error: OutputError, work: WriteContext) -> OutputError:
    """Return the error extended by the number of finished parts and how to resume."""
    if isinstance(work.store, Directory) and work.store.is_staging:
        return OutputError(f"{error} The data set that was there is untouched.")
    file_names = _names(work.store)
    if JOB not in file_names:
        return error
    total_text = f"{work.job.n_parts:,} part{'s' if work.job.n_parts != 1 else ''}"
    n_done = sum(1 for name in file_names if PART_NAME.fullmatch(name))
    return OutputError(
        f'{error} {n_done:,} of {total_text} are complete; run again with mode="resume" to make the others.'
    )


def _names(store: Store) -> list[str]:
    try:
        return store.names()
    except OutputError:
        return []
