"""The data set that a store already holds: finished, unfinished, damaged, or none."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from arf_dask.errors import OutputError
from arf_dask.storage.jobs import Job, read_run_state
from arf_dask.storage.manifest import FORMER_MANIFEST, MANIFEST, PART_NAME, SUCCESS, Manifest, read_manifest
from arf_dask.storage.parquet import JOB_KEY, Part, read_key_value
from arf_dask.storage.stores import Store


class Existing(NamedTuple):
    """The state of a data set in a store."""

    job: Job | None  # None if the store holds no data set of arf_dask, or a damaged one
    parts: tuple[Part, ...]  # parts listed in the manifest or `_job.json`
    manifest: Manifest | None  # None if the data set is unfinished
    damage: OutputError | None = None  # why the manifest or `_job.json` cannot be read, if nothing else says what it is


def find_existing(store: Store) -> Existing:
    """Return the finished or unfinished data set in a store, or an empty record if there is none."""
    file_names = set(store.names())
    manifest, run_state, damage = None, None, None
    if file_names & {MANIFEST, FORMER_MANIFEST}:
        try:
            manifest = read_manifest(store)
        except OutputError as error:
            damage = error
    if manifest is not None and SUCCESS in file_names:
        return Existing(manifest.job, manifest.parts, manifest)
    try:
        run_state = read_run_state(store)
    except OutputError as error:
        damage = error
    unfinished = manifest if run_state is None else run_state  # a run may end between the manifest and `_SUCCESS`
    if unfinished is not None:
        return Existing(unfinished.job, unfinished.parts, None)
    return Existing(None, (), None, damage)


def holds_parts_of(store: Store, job: Job) -> bool:
    """Return whether all readable parts in a store say that they belong to a job, and there is at least one."""
    job_ids = set()
    for name in store.names():
        if PART_NAME.fullmatch(name):
            with suppress(OSError, ValueError), store.open(name) as file:
                job_ids.add(read_key_value(file).get(JOB_KEY))
    return job_ids == {job.id}


def withdraw(store: Store, job: Job, names: set[str]) -> None:
    """Remove files of a job from a shared store that now holds no data set, or that of another job."""
    if not store.is_shared:
        return
    with suppress(OutputError):
        existing = find_existing(store)
        if existing.damage is None and (existing.job is None or existing.job.id != job.id):
            store.remove([name for name in store.names() if name in names])
