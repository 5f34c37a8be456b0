"""The methods of a model that write synthetic rows: Parquet data sets, Delta tables and Iceberg tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict, Unpack

from arf_dask.inference.sources import check_policy, check_rows
from arf_dask.model_tables import ModelTables
from arf_dask.options import ROWS_PER_FILE, check_options, shows_fields
from arf_dask.release.policy import Limits
from arf_dask.runtime.progress import ProgressFunction, progress_for
from arf_dask.storage.data_set import check_parts, sample_parquet
from arf_dask.storage.delta import DeltaSink
from arf_dask.storage.iceberg import IcebergSink
from arf_dask.storage.manifest import Manifest
from arf_dask.storage.parquet import arrow_schema
from arf_dask.storage.portable import portable_dtypes
from arf_dask.storage.table_jobs import TableSink, sample_table
from arf_dask.typing import OnImpossible, PathLike, TableMode, WriteMode


class Gate(NamedTuple):
    """The limits for publishing rows, and the data to check them with."""

    limits: Limits | None  # None: no limits
    real: Any = None  # the rows the model was fitted to
    holdout: Any = None  # real rows not used for training


@dataclass(frozen=True)
class TableOptions:
    """The keyword arguments that `sample_delta` and `sample_iceberg` share, and their defaults."""

    given: Any = None
    on_impossible: OnImpossible = "raise"
    seed: int | None = None
    first_key: int | None = None
    rows_per_file: int = ROWS_PER_FILE
    publish_if: Limits | None = None
    real: Any = None
    holdout: Any = None
    client: Any = None
    progress: bool | ProgressFunction | None = None


class TableKeywords(TypedDict, total=False):
    """The fields of `TableOptions`, for type checkers and editors."""

    given: Any
    on_impossible: OnImpossible
    seed: int | None
    first_key: int | None
    rows_per_file: int
    publish_if: Limits | None
    real: Any
    holdout: Any
    client: Any
    progress: bool | ProgressFunction | None


class ModelSinks(ModelTables):
    """The methods of a model that write rows. Memory use does not depend on the number of rows."""

    @abstractmethod
    def _pass_gate(self, gate: Gate, n: int, about: Mapping[str, Any], mode: str, progress: Any) -> int | None:
        """Check the rows to be written against the limits of the gate, and return the seed to use."""

    def sample_parquet(
        self,
        path: PathLike,
        n: int,
        *,
        given: Any = None,
        on_impossible: OnImpossible = "raise",
        seed: int | None = None,
        first_key: int | None = None,
        rows_per_file: int = ROWS_PER_FILE,
        mode: WriteMode = "error",
        portable: bool = False,
        publish_if: Limits | None = None,
        real: Any = None,
        holdout: Any = None,
        client: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: bool | ProgressFunction | None = None,
    ) -> Manifest:
        """Write synthetic rows to a data set of Parquet files. Memory use does not depend on the number of rows.

        The files part-00000.parquet, ... hold the rows of `sample(n, given=given, seed=seed)` in order, for any
        `rows_per_file`. Files appear atomically;
        _manifest.parquet and then _SUCCESS are written last. The same job always gives the same bytes.

        Args:
            path: A new or empty directory, or a URL (s3://, gs://, az:// ...) supported by fsspec.
            n: The number of rows; if `given` is a frame, the number of rows per condition.
            given: A condition, as in `sample`.
            on_impossible: How to handle an impossible condition, as in `sample`.
            seed: The random seed, for repeatable results; None uses a fresh one, or that of the resumed job.
            first_key: The number of identifiers already used, as in `sample`.
            rows_per_file: The number of rows of every part except the last.
            mode: How to handle an existing path. "error" raises an error. "resume" completes an interrupted run of the
                same job, and raises an error for any other. "overwrite" replaces a data set written by arf_dask, and
                nothing else: the new data set is written next to it and renamed when finished. URLs cannot be
                renamed: there the old data set is removed first.
            portable: Whether to cast types that Spark, Delta or Iceberg cannot read (unsigned integers, categories,
                times, durations, nanoseconds, zones and others), as documented in `arf_dask.storage.portable`.
            publish_if: Limits that these rows must satisfy under attack. If one is violated, nothing is written and a
                ReleaseError is raised; its `report` holds all figures.
            real: The rows the model was fitted to, for `publish_if`.
            holdout: Real rows not used for training, for `publish_if`; None uses those of `fit(..., holdout=0.1)`.
            client: A Dask client or the address of a scheduler; None uses the active client, if any, or threads.
                Workers write to `path` themselves, so it must be accessible from all of them.
            storage_options: Storage options for a URL, with the names of fsspec or of Polars. They are sent to workers.
            progress: Whether to show progress, as in `fit`.

        Returns:
            The manifest: the parts with their rows and hashes, and how to read them.

        Raises:
            OptionError: If an argument is invalid.
            ImpossibleConditionError: If the condition has probability zero and `on_impossible` is "raise".
            OutputError: If the path is in use, or cannot be written.
            ReleaseError: If a limit of `publish_if` is violated.
            ClusterError: If the Dask cluster is gone or repeatedly loses a task.

        Examples:
            >>> import tempfile, arf_dask, polars as pl
            >>> model = arf_dask.fit(pl.DataFrame({"x": [i / 7 for i in range(200)]}), trees=5, seed=1)
            >>> with tempfile.TemporaryDirectory() as directory:
            ...     manifest = model.sample_parquet(f"{directory}/out", 1_000, rows_per_file=400, seed=2)
            ...     manifest.scan().collect().height
            1000
        """
        check_rows(n)
        check_policy(on_impossible)
        sampler = self._sampler_from(first_key)
        sample_arguments: dict[str, Any] = {"given": given, "on_impossible": on_impossible, "seed": seed}
        sample_arguments["seed"] = self._pass_gate(Gate(publish_if, real, holdout), n, sample_arguments, mode, progress)
        with progress_for(progress) as report:
            sample_arguments["report"] = report
            write_arguments: dict[str, Any] = {"mode": mode, "client": client, "storage_options": storage_options}
            write_arguments["portable"] = portable
            return sample_parquet(sampler, path, n, rows_per_file=rows_per_file, **sample_arguments, **write_arguments)

    @shows_fields(TableOptions)
    def sample_delta(
        self,
        table: Any,
        n: int,
        *,
        mode: TableMode = "error",
        storage_options: Mapping[str, Any] | None = None,
        **options: Unpack[TableKeywords],
    ) -> Manifest:
        """Add synthetic rows to a Delta table in one commit. Requires the extra `delta`.

        Workers write the parts to a job-specific folder inside the table directory; one commit adds them all. A run
        that is killed before the commit leaves the table unchanged, and running the same job again completes it. A
        job that is already committed adds nothing. Types are portable, as with `sample_parquet(portable=True)`.

        Args:
            table: The path or URL of a new or existing table, or a DeltaTable.
            n: The number of rows; if `given` is a frame, the number of rows per condition.
            given: A condition, as in `sample`.
            on_impossible: How to handle an impossible condition, as in `sample`.
            seed: The random seed. Only a job with a seed can be run again without adding its rows twice.
            first_key: The number of identifiers already used, as in `sample`.
            rows_per_file: The number of rows of every part except the last.
            mode: How to handle an existing table: "error" raises an error, "append" adds rows, "overwrite" replaces
                the rows (earlier versions of the table keep them).
            publish_if: Limits that the rows must satisfy under attack, with `real` and `holdout`, as in
                `sample_parquet`.
            real: As in `sample_parquet`.
            holdout: As in `sample_parquet`.
            client: A Dask client or the address of a scheduler, as in `sample_parquet`.
            storage_options: Storage options for a URL, with the names of fsspec or of delta-rs.
            progress: Whether to show progress, as in `fit`.

        Returns:
            The manifest of the parts.

        Raises:
            MissingExtraError: If the package deltalake is not installed.
            OutputError: If the table exists (with mode="error"), has other columns, or cannot be written.

        Examples:
            >>> import tempfile, arf_dask, polars as pl
            >>> model = arf_dask.fit(pl.DataFrame({"x": [i / 7 for i in range(200)]}), trees=5, seed=1)
            >>> with tempfile.TemporaryDirectory() as directory:
            ...     first = model.sample_delta(f"{directory}/synthetic", 1_000, seed=2)
            ...     again = model.sample_delta(f"{directory}/synthetic", 1_000, seed=2)  # adds nothing
            ...     pl.read_delta(f"{directory}/synthetic").height
            1000
        """
        table_options = _read_options(options)
        return self._sample_table(DeltaSink(table, storage_options), n, mode, table_options)

    @shows_fields(TableOptions)
    def sample_iceberg(
        self,
        table: Any,
        n: int,
        *,
        mode: TableMode = "append",
        storage_options: Mapping[str, Any] | None = None,
        **options: Unpack[TableKeywords],
    ) -> Manifest:
        """Add synthetic rows to an Iceberg table in one snapshot. Requires the extra `iceberg`.

        Parts are written to a job-specific folder inside the table's data directory, and one snapshot adds them all. A
        run that is killed before the commit leaves the table unchanged, and running the same job again completes it.
        A job that is already committed adds nothing. Types are portable, as with `sample_parquet(portable=True)`.

        Args:
            table: A table of pyiceberg: an existing one from `catalog.load_table`, or a new one from
                `catalog.create_table(name, model.portable_schema())`.
            n: The number of rows; if `given` is a frame, the number of rows per condition.
            given: A condition, as in `sample`.
            on_impossible: How to handle an impossible condition, as in `sample`.
            seed: The random seed. Only a job with a seed can be run again without adding its rows twice.
            first_key: The number of identifiers already used, as in `sample`.
            rows_per_file: The number of rows of every part except the last.
            mode: "append" adds rows, "overwrite" replaces the rows (earlier snapshots keep them), "error" raises an
                error if the table holds data.
            publish_if: Limits that the rows must satisfy under attack, with `real` and `holdout`, as in
                `sample_parquet`.
            real: As in `sample_parquet`.
            holdout: As in `sample_parquet`.
            client: A Dask client or the address of a scheduler, as in `sample_parquet`.
            storage_options: Storage options with the names of fsspec; None uses the properties of the catalogue.
            progress: Whether to show progress, as in `fit`.

        Returns:
            The manifest of the parts.

        Raises:
            MissingExtraError: If the package pyiceberg is not installed.
            OutputError: If the table holds data (with mode="error"), has other columns, or cannot be written.

        Examples:
            >>> import tempfile, arf_dask, polars as pl
            >>> from pyiceberg.catalog import load_catalog
            >>> model = arf_dask.fit(pl.DataFrame({"x": [i / 7 for i in range(200)]}), trees=5, seed=1)
            >>> with tempfile.TemporaryDirectory() as directory:
            ...     catalog = load_catalog("demo", type="in-memory", warehouse=f"file://{directory}")
            ...     catalog.create_namespace("lake")
            ...     table = catalog.create_table("lake.synthetic", model.portable_schema())
            ...     manifest = model.sample_iceberg(table, 1_000, seed=2)
            ...     catalog.load_table("lake.synthetic").scan().to_arrow().num_rows
            ...     catalog.close()
            1000
        """
        table_options = _read_options(options)
        return self._sample_table(IcebergSink(table, storage_options), n, mode, table_options)

    def portable_schema(self) -> Any:
        """Return the Arrow schema of rows with portable types, for use with `catalog.create_table`.

        Returns:
            A `pyarrow.Schema`.

        Examples:
            >>> import arf_dask, polars as pl
            >>> data = pl.DataFrame({"n": [i % 9 for i in range(200)]}, schema={"n": pl.UInt8})
            >>> arf_dask.fit(data, trees=5, seed=1).portable_schema().field("n").type
            DataType(int16)
        """
        return arrow_schema(portable_dtypes(self._fitted.dtypes))

    def _sample_table(self, sink: TableSink, n: int, mode: TableMode, options: TableOptions) -> Manifest:
        check_rows(n)
        check_policy(options.on_impossible)
        check_parts(options.rows_per_file)
        condition_arguments: dict[str, Any] = {"given": options.given, "on_impossible": options.on_impossible}
        sampler = self._sampler_from(options.first_key)
        gate = Gate(options.publish_if, options.real, options.holdout)
        gate_seed = self._pass_gate(gate, n, {**condition_arguments, "seed": options.seed}, mode, options.progress)
        with progress_for(options.progress) as report:
            return sample_table(
                sampler,
                sink,
                n,
                **condition_arguments,
                seed=gate_seed,
                rows_per_file=options.rows_per_file,
                mode=mode,
                client=options.client,
                report=report,
            )


def _read_options(given: Mapping[str, Any]) -> TableOptions:
    """Return the options given by a caller; a name that does not exist is an error with suggestions."""
    check_options(given, TableOptions)
    return TableOptions(**given)
