"""Commit synthetic rows to a lakehouse table: write all parts, then add them in one commit, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from arf_dask.errors import OptionError, OutputError
from arf_dask.forest.fitted import Fitted
from arf_dask.inference.forge import Sampler
from arf_dask.inference.row_plan import plan_rows
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import entropy
from arf_dask.storage.data_set import make_job, sample_parquet
from arf_dask.storage.jobs import MARK, Job
from arf_dask.storage.manifest import Manifest
from arf_dask.storage.parquet import arrow_schema
from arf_dask.storage.portable import portable_dtypes
from arf_dask.typing import OnImpossible, TableMode

ATTEMPTS = 20  # maximum commit attempts with concurrent writers


@dataclass(frozen=True)
class TableJob:
    """A job whose rows are added to a table."""

    job: Job
    fitted: Fitted

    @property
    def folder(self) -> str:
        """The name of the folder that holds the parts."""
        return f"arf_dask-{self.job.id[:MARK]}"

    @property
    def application(self) -> str:
        """The application id of the job in the log of a table."""
        return f"arf_dask-{self.job.id}"

    @property
    def schema(self) -> Any:
        """The Arrow schema of the rows."""
        return arrow_schema(portable_dtypes(self.fitted.dtypes))

    @property
    def properties(self) -> dict[str, str]:
        """The properties that a commit records about its origin."""
        job = self.job
        about = {"job": job.id, "model": job.model_hash, "seed": str(job.seed), "synthetic": "true"}
        return {f"arf_dask.{name}": value for name, value in about.items()}


class TableSink(Protocol):
    """A table that jobs can be committed to."""

    storage_options: Mapping[str, Any] | None

    @property
    def name(self) -> str: ...

    def folder(self, job: TableJob) -> str: ...

    def admit(self, job: TableJob, mode: TableMode) -> bool: ...

    def commit(self, job: TableJob, manifest: Manifest, mode: TableMode) -> None: ...


def sample_table(
    sampler: Sampler,
    sink: TableSink,
    n: int,
    *,
    given: Any,
    on_impossible: OnImpossible,
    seed: int | None,
    rows_per_file: int,
    mode: TableMode,
    client: Any,
    report: Progress,
) -> Manifest:
    """Write `n` rows and commit them to a table. `Model.sample_delta` documents the arguments."""
    if mode not in get_args(TableMode):
        raise OptionError(f'mode={mode!r}: say "error", "append" or "overwrite".')
    chosen = entropy(seed)
    plan = plan_rows(sampler, n, given, on_impossible, chosen)
    job = TableJob(make_job(plan, given, rows_per_file, portable=True), sampler.fitted)
    if sink.admit(job, mode):
        return _committed_before(sink, job)
    manifest = sample_parquet(
        sampler,
        sink.folder(job),
        n,
        given=given,
        on_impossible=on_impossible,
        seed=chosen,
        rows_per_file=rows_per_file,
        mode="resume",  # complete the parts of a run that was killed before its commit
        client=client,
        storage_options=sink.storage_options,
        report=report,
        portable=True,
    )
    sink.commit(job, manifest, mode)
    return manifest


def _committed_before(sink: TableSink, job: TableJob) -> Manifest:
    try:
        return Manifest.read(sink.folder(job), sink.storage_options)
    except OutputError as error:
        raise OutputError(
            f"{sink.name}: this job was committed before, and its files are gone since ({error}). Nothing was added. "
            "Give another seed for other rows."
        ) from error


def check_same_columns(where: str, there: Any, asked: Any) -> None:
    """Raise an OutputError unless two Arrow schemas have the same columns; string and large_string are equal."""
    known = {field.name: _comparable(field.type) for field in there}
    given = {field.name: _comparable(field.type) for field in asked}
    found = [f"lacks {name!r}" for name in given if name not in known]
    found += [f"also has {name!r}" for name in known if name not in given]
    found += [f"{n!r} is {known[n]}, not {kind}" for n, kind in given.items() if known.get(n, kind) != kind]
    if found:
        raise OutputError(f"{where}: the table {'; '.join(found)}. Give a table of the model's columns, or a new one.")


def check_plain_layout(where: str, demands: Sequence[str]) -> None:
    """Raise an OutputError for a table that demands more of its files than its columns, such as partitions."""
    if demands:
        raise OutputError(
            f"{where}: the table {'; '.join(demands)}, which files added as a whole do not follow. Write to a table "
            "without it, and copy the rows with the engine of the lakehouse (INSERT INTO ... SELECT)."
        )


def _comparable(kind: Any) -> str:
    return str(kind).replace("large_string", "string").replace("string_view", "string")
