"""Iceberg tables: one snapshot per job, with a catalogue in SQLite, read back by pyiceberg."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.errors import MissingExtraError, OptionError, OutputError
from arf_dask.storage.iceberg import IcebergSink
from arf_dask.storage.portable import portable_frame

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

DATA = pl.DataFrame(
    {
        "kind": pl.Series(["a", "b", None] * 100, dtype=pl.Categorical),
        "n": pl.Series([i % 7 for i in range(300)], dtype=pl.UInt8),
        "x": [i / 7 for i in range(300)],
        "day": [date(2024, 1, 1 + i % 28) for i in range(300)],
        "at": [datetime(2024, 1, 1 + i % 28, tzinfo=UTC) for i in range(300)],
    }
)


@pytest.fixture(scope="module")
def model() -> Any:
    return arf_dask.fit(DATA, trees=3, seed=0)


def open_catalog(directory: Any) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("test", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}/warehouse")


@pytest.fixture
def table(model: Any, tmp_path: Path) -> Iterator[Any]:
    catalog = open_catalog(tmp_path)
    catalog.create_namespace("lake")
    yield catalog.create_table("lake.twin", model.portable_schema())
    catalog.engine.dispose()


def test_a_partitioned_table_is_refused_before_anything_is_written(table: Any, model: Any) -> None:
    with table.update_spec() as update:
        update.add_identity("kind")
    with pytest.raises(OutputError, match="partitioned"):
        model.sample_iceberg(table, 50, seed=1)


def rows_of(table: Any) -> Any:
    return pl.DataFrame(table.refresh().scan().to_arrow()).sort(pl.all())


def expected(model: Any, *seeds: Any, n: Any = 500) -> Any:
    frame = pl.concat(portable_frame(model.sample(n, seed=seed)) for seed in seeds)
    return frame.with_columns(pl.col("n").cast(pl.Int32)).sort(pl.all())  # Iceberg has no shorter numbers


def test_the_table_has_the_rows_of_the_model(model: Any, table: Any) -> None:
    made = model.sample_iceberg(table, 500, seed=1, rows_per_file=200)
    assert len(made.parts) == 3
    assert_frame_equal(rows_of(table), expected(model, 1))
    assert table.current_snapshot().summary.additional_properties["arf_dask.model"] == made.model_hash


def test_a_job_is_committed_once_also_from_a_stale_handle(model: Any, table: Any) -> None:
    stale = table.catalog.load_table("lake.twin")
    model.sample_iceberg(table, 500, seed=1)
    model.sample_iceberg(stale, 500, seed=1)
    model.sample_iceberg(stale, 500, seed=2)
    model.sample_iceberg(table, 500, seed=2)
    assert_frame_equal(rows_of(table), expected(model, 1, 2))
    assert len(table.snapshots()) == 2


def test_overwrite_and_error(model: Any, table: Any) -> None:
    model.sample_iceberg(table, 500, seed=1, mode="error")
    with pytest.raises(OutputError, match="holds data"):
        model.sample_iceberg(table, 500, seed=2, mode="error")
    first = table.refresh().current_snapshot().snapshot_id
    model.sample_iceberg(table, 500, seed=2, mode="overwrite")
    assert_frame_equal(rows_of(table), expected(model, 2))
    assert_frame_equal(pl.DataFrame(table.scan(snapshot_id=first).to_arrow()).sort(pl.all()), expected(model, 1))


def test_another_writer_in_between(model: Any, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = IcebergSink._commit_once

    def late(sink: Any, job: Any, files: Any, mode: Any) -> None:
        with sink._load().transaction() as transaction:  # a handle that is stale once the other has committed
            monkeypatch.setattr(IcebergSink, "_commit_once", commit)
            model.sample_iceberg(table, 500, seed=9)
            transaction.add_files(files, snapshot_properties=job.properties)

    monkeypatch.setattr(IcebergSink, "_commit_once", late)
    model.sample_iceberg(table, 500, seed=1)
    assert_frame_equal(rows_of(table), expected(model, 1, 9))
    assert "commit.retry.num-retries" not in table.refresh().properties


KILLED = """
import os, sys
import arf_dask
from arf_dask.storage.iceberg import IcebergSink
from pyiceberg.catalog.sql import SqlCatalog
where = sys.argv[2]
catalog = SqlCatalog("test", uri=f"sqlite:///{where}/catalog.db", warehouse=f"file://{where}/warehouse")
IcebergSink._commit_once = lambda *_: os._exit(9)
arf_dask.load(sys.argv[1]).sample_iceberg(catalog.load_table("lake.twin"), 500, seed=2)
"""


def test_a_kill_before_the_commit_leaves_the_table_as_it_was(model: Any, table: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    model.sample_iceberg(table, 500, seed=1)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "m"), str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == 9
    assert_frame_equal(rows_of(table), expected(model, 1))
    model.sample_iceberg(table, 500, seed=2)
    assert_frame_equal(rows_of(table), expected(model, 1, 2))


def test_other_columns_are_refused(model: Any, table: Any, tmp_path: Path) -> None:
    other = arf_dask.fit(DATA.select("n", "x"), trees=3, seed=0)
    with pytest.raises(OutputError, match="also has 'kind'"):
        other.sample_iceberg(table, 500, seed=1)
    with pytest.raises(OptionError, match="load_table"):
        model.sample_iceberg("lake.twin", 500)


def test_an_iceberg_table_is_data_also_a_scan_of_it(model: Any, table: Any) -> None:
    model.sample_iceberg(table, 500, seed=1)
    first = table.refresh().current_snapshot().snapshot_id
    model.sample_iceberg(table, 500, seed=2)
    assert arf_dask.fit(table.refresh(), trees=3, seed=0).schema.n_rows == 1_000
    assert arf_dask.fit(table.scan(snapshot_id=first), trees=3, seed=0).schema.n_rows == 500
    some = table.scan(row_filter="n < 3", selected_fields=("n", "x"))
    found = arf_dask.fit(some, trees=3, seed=0)
    assert found.schema.names == ["n", "x"]
    assert found.schema.n_rows == expected(model, 1, 2).filter(pl.col("n") < 3).height


def test_without_the_package_the_extra_is_named(model: Any, table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.exceptions", None)
    with pytest.raises(MissingExtraError, match=r"arf-dask\[iceberg\]"):
        model.sample_iceberg(table, 10)
