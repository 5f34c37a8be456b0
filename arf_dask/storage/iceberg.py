"""Commit synthetic rows to an Iceberg table as one snapshot.

Workers write Parquet parts with portable types to a job-specific folder inside the table's data directory, as
`sample_parquet` does. The driver then adds the files in one snapshot that records the job in its properties. Retries
within pyiceberg are disabled: with a stale table handle they would add the same files twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from arf_dask.errors import OptionError, OutputError, missing_extra
from arf_dask.runtime.urls import public_url
from arf_dask.storage.manifest import Manifest
from arf_dask.storage.table_jobs import ATTEMPTS, TableJob, check_plain_layout, check_same_columns
from arf_dask.typing import TableMode

JOB_KEY = "arf_dask.job"
RETRIES = "commit.retry.num-retries"
# Option names of pyiceberg and the matching names of fsspec.
STORE_NAMES = {
    "s3.access-key-id": "key",
    "s3.secret-access-key": "secret",
    "s3.session-token": "token",
    "s3.endpoint": "endpoint_url",
}


class IcebergSink:
    """An Iceberg table in a catalogue."""

    def __init__(self, table: Any, storage_options: Mapping[str, Any] | None) -> None:
        try:
            from pyiceberg.exceptions import CommitFailedException
        except ImportError as error:
            raise missing_extra("Iceberg tables", "iceberg") from error
        if not hasattr(table, "add_files"):
            raise OptionError(f'table={table!r}: give a table of pyiceberg, such as catalog.load_table("space.name").')
        self._conflict = CommitFailedException
        self._catalog, self._identifier = table.catalog, table.name()
        self.location = str(table.location()).rstrip("/")
        self.storage_options = _store_options(table.io.properties) if storage_options is None else storage_options

    @property
    def name(self) -> str:
        return f"{'.'.join(self._identifier)} ({public_url(self.location)})"

    def folder(self, job: TableJob) -> str:
        """Return the URL of the folder that holds the parts of a job."""
        return f"{self.location}/data/{job.folder}"

    def admit(self, job: TableJob, mode: TableMode) -> bool:
        """Return whether the job is already committed. Raises an OutputError if the table cannot take it."""
        table = self._load()
        if _is_committed(table, job):
            return True
        if mode == "error" and table.current_snapshot() is not None:
            raise OutputError(
                f'{self.name}: the table holds data. Say mode="append" to add rows to it, or mode="overwrite" to '
                "replace its rows."
            )
        check_same_columns(self.name, table.schema().as_arrow(), _iceberg_types(job.schema))
        check_plain_layout(self.name, [] if table.spec().is_unpartitioned() else [f"is partitioned ({table.spec()})"])
        return False

    def commit(self, job: TableJob, manifest: Manifest, mode: TableMode) -> None:
        """Add the parts of a job to the table exactly once, even with concurrent writers."""
        file_paths = [f"{self.folder(job)}/{part.file}" for part in manifest.parts]
        for attempt in range(ATTEMPTS):
            if self.admit(job, mode):
                return
            try:
                self._commit_once(job, file_paths, mode)
            except self._conflict as error:
                last_error = error  # a concurrent writer committed first: retry
                time.sleep(0.1 * (attempt + 1))
        if not self.admit(job, mode):
            raise OutputError(
                f"{self.name}: the commit failed {ATTEMPTS} times ({last_error}). Run the same job again."
            )

    def _commit_once(self, job: TableJob, files: list[str], mode: TableMode) -> None:
        with self._load().transaction() as transaction:
            if mode == "overwrite":
                transaction.delete("true", snapshot_properties=job.properties)
            transaction.add_files(files, snapshot_properties=job.properties)

    def _load(self) -> Any:
        """Return a fresh handle of the table with client-side commit retries disabled."""
        table = self._catalog.load_table(self._identifier)
        table.metadata.properties[RETRIES] = "0"  # changes this handle only, not the table
        return table


def open_table(catalog: str, identifier: str, schema: Any) -> Any:
    """Return a table of a catalogue defined in pyiceberg's configuration, creating it if it does not exist."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise missing_extra("Iceberg tables", "iceberg") from error
    loaded_catalog = load_catalog(catalog)
    loaded_catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
    return loaded_catalog.create_table_if_not_exists(identifier, schema)


def _is_committed(table: Any, job: TableJob) -> bool:
    for snapshot in table.snapshots():
        if snapshot.summary is not None and snapshot.summary.additional_properties.get(JOB_KEY) == job.job.id:
            return True
    # Snapshots expire; files that belong to the table prove a commit as well.
    table_files = table.inspect.files()["file_path"].to_pylist() if table.current_snapshot() is not None else []
    return any(f"/{job.folder}/" in file_path for file_path in table_files)


def _iceberg_types(schema: Any) -> Any:
    """Return an Arrow schema restricted to Iceberg's types: 8- and 16-bit integers become 32-bit ones."""
    import pyarrow as pa

    narrow_types = (pa.int8(), pa.int16())
    return pa.schema([field.with_type(pa.int32()) if field.type in narrow_types else field for field in schema])


def _store_options(properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """Translate the storage properties of a table into fsspec options."""
    fsspec_options = {fsspec_name: properties[name] for name, fsspec_name in STORE_NAMES.items() if name in properties}
    region = properties.get("s3.region")
    return {**fsspec_options, "client_kwargs": {"region_name": region}} if region else fsspec_options or None
