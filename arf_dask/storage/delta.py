"""Commit synthetic rows to a Delta table.

Workers write Parquet parts with portable types to a job-specific folder inside the table directory, as `sample_parquet`
does; readers of the table do not see them. The driver then adds all parts in one commit, which records the job as an
application transaction: running a committed job again adds nothing.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from arf_dask.errors import OutputError, missing_extra
from arf_dask.runtime.cloud_options import object_store_options
from arf_dask.runtime.urls import local_path, public_url, without_secrets
from arf_dask.schema.columns import Schema
from arf_dask.storage.manifest import Manifest
from arf_dask.storage.part_statistics import PartStatistics, read_statistics
from arf_dask.storage.stores import open_store
from arf_dask.storage.table_jobs import ATTEMPTS, TableJob, check_plain_layout, check_same_columns
from arf_dask.typing import TableMode

COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # delta-rs colours its messages


class DeltaSink:
    """A Delta table at a path or URL; it need not exist yet."""

    def __init__(self, table: Any, storage_options: Mapping[str, Any] | None) -> None:
        try:
            import deltalake
            import deltalake.exceptions
            import deltalake.transaction
        except ImportError as error:
            raise missing_extra("Delta tables", "delta") from error
        self._delta = deltalake
        self.location = local_path(getattr(table, "table_uri", table)).rstrip("/")
        self.storage_options = storage_options
        self._options = object_store_options(self.location, storage_options) or None

    @property
    def name(self) -> str:
        return public_url(self.location)

    def folder(self, job: TableJob) -> str:
        """Return the path or URL of the folder that holds the parts of a job."""
        return f"{self.location}/{job.folder}"

    def admit(self, job: TableJob, mode: TableMode) -> bool:
        """Return whether the job is already committed. Raises an OutputError if the table cannot take it."""
        with self._access_errors():
            table = self._open()
        if table is None:
            return False
        if self._is_committed(table, job):
            return True
        if mode == "error":
            raise OutputError(
                f'{self.name}: the table exists, at version {table.version()}. Say mode="append" to add rows to it, or '
                'mode="overwrite" to replace its rows.'
            )
        check_same_columns(self.name, _arrow_schema(table), job.schema)
        check_plain_layout(self.name, _special_layout(table))
        return False

    def commit(self, job: TableJob, manifest: Manifest, mode: TableMode) -> None:
        """Add the parts of a job to the table exactly once, even with concurrent writers."""
        add_actions = self._add_actions(job, manifest)
        for _ in range(ATTEMPTS):
            if self.admit(job, mode):
                return
            try:
                with self._access_errors():
                    self._commit_once(job, add_actions, mode)
            except (
                self._delta.exceptions.CommitFailedError,
                self._delta.exceptions.DeltaError,
                FileExistsError,
            ) as error:
                last_error = error  # a concurrent writer committed first or created the table: retry
                time.sleep(0.1)
        if not self.admit(job, mode):
            raise OutputError(
                f"{self.name}: the commit failed {ATTEMPTS} times ({self._public(last_error)}). Run the same job again."
            )

    def _commit_once(self, job: TableJob, actions: list[Any], mode: TableMode) -> None:
        table = self._open()
        # Client retries are disabled: after a conflict, we must check again whether this job is committed.
        commit_properties = self._delta.CommitProperties(
            custom_metadata=job.properties,
            max_commit_retries=0,
            app_transactions=[self._delta.Transaction(job.application, 0)],
        )
        if table is None:
            self._delta.transaction.create_table_with_add_actions(
                self.location,
                _delta_schema(self._delta, job.schema),
                actions,
                mode="error",
                storage_options=self._options,
                commit_properties=commit_properties,
            )
            return
        write_mode = "overwrite" if mode == "overwrite" else "append"
        table.create_write_transaction(actions, write_mode, table.schema(), commit_properties=commit_properties)

    @contextmanager
    def _access_errors(self) -> Iterator[None]:
        """Convert errors of the store into an OutputError; conflicts with other writers pass."""
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise OutputError(
                f"{self.name}: the Delta table cannot be opened or written: {self._public(error)}. Check the path, and "
                "that there is access to it."
            ) from None  # messages of stores hold URLs and credentials

    def _public(self, error: BaseException) -> str:
        words = COLOURS.sub("", str(error)).split()
        return without_secrets(" ".join(words), self.location, self.storage_options)

    def _open(self) -> Any:
        if not self._delta.DeltaTable.is_deltatable(self.location, self._options):
            return None
        return self._delta.DeltaTable(self.location, storage_options=self._options)

    def _is_committed(self, table: Any, job: TableJob) -> bool:
        if table.transaction_version(job.application) is not None:
            return True
        # Log entries expire, and transactions with them; files that belong to the table prove a commit as well.
        return any(f"/{job.folder}/" in file_uri for file_uri in table.file_uris())

    def _add_actions(self, job: TableJob, manifest: Manifest) -> list[Any]:
        store = open_store(self.folder(job), self.storage_options)
        commit_time = int(time.time() * 1000)
        add_actions: list[Any] = []
        null_columns: set[str] = set()
        for part in manifest.parts:
            with store.open(part.file) as file:
                part_statistics = read_statistics(file)
            null_columns.update(name for name, count in part_statistics.nulls.items() if count)
            statistics_json = _statistics_json(part_statistics, job.fitted.schema)
            part_path = f"{job.folder}/{part.file}"
            add_actions.append(
                self._delta.transaction.AddAction(part_path, part.bytes, {}, commit_time, True, statistics_json)
            )
        self._check_required(null_columns)
        return add_actions

    def _check_required(self, null_columns: set[str]) -> None:
        """Raise an OutputError if rows have nulls in columns that the table declares NOT NULL."""
        with self._access_errors():
            table = self._open()
        fields = [] if table is None else _arrow_schema(table)
        required_columns = [repr(field.name) for field in fields if not field.nullable and field.name in null_columns]
        if required_columns:
            raise OutputError(
                f"{self.name}: the rows have nulls in {', '.join(required_columns)}, which the table does not allow. "
                "Write to a table that does, or fit to data without them."
            )


def _statistics_json(found: PartStatistics, schema: Schema) -> str:
    """Return the statistics of a file in the format of Delta's log. Columns with NaN have no bounds."""
    nan_columns = {column.name for column in schema.columns if column.nans}
    column_bounds = [(name, low, high) for name, (low, high) in found.bounds.items() if name not in nan_columns]
    return json.dumps(
        {
            "numRecords": found.rows,
            "minValues": {name: low for name, low, _ in column_bounds},
            "maxValues": {name: high for name, _, high in column_bounds},
            "nullCount": dict(found.nulls),
        }
    )


def _special_layout(table: Any) -> list[str]:
    """Return what a table demands of its files beyond its columns: they would have to be split, renamed or checked."""
    metadata = table.metadata()
    demands = [f"is partitioned by {', '.join(map(repr, metadata.partition_columns))}"] * bool(
        metadata.partition_columns
    )
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        demands.append("maps its columns to other names")
    constraints = [n.removeprefix("delta.constraints.") for n in metadata.configuration if "delta.constraints." in n]
    return demands + [f"has constraints ({', '.join(constraints)})"] * bool(constraints)


def _delta_schema(delta: Any, schema: Any) -> Any:
    return delta.Schema.from_arrow(schema)


def _arrow_schema(table: Any) -> Sequence[Any]:
    import pyarrow as pa

    arrow_fields: Sequence[Any] = pa.schema(table.schema().to_arrow())
    return arrow_fields
