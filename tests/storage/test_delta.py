"""Delta tables: one commit per job, read back by delta-rs and Polars."""

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.errors import DataError, MissingExtraError, OptionError, OutputError
from arf_dask.storage.delta import DeltaSink
from arf_dask.storage.portable import portable_frame

deltalake = pytest.importorskip("deltalake")

DATA = pl.DataFrame(
    {
        "kind": pl.Series(["a", "b", None] * 100, dtype=pl.Categorical),
        "n": pl.Series([i % 7 for i in range(300)], dtype=pl.UInt16),
        "x": [i / 7 for i in range(300)],
        "at": [datetime(2024, 1, 1 + i % 28, tzinfo=UTC) for i in range(300)],
    }
)


@pytest.fixture(scope="module")
def model() -> Any:
    return arf_dask.fit(DATA, trees=3, seed=0)


def rows_of(path: Any) -> Any:
    return pl.read_delta(str(path)).sort(pl.all())


def expected(model: Any, *seeds: Any, n: Any = 500) -> Any:
    return pl.concat(portable_frame(model.sample(n, seed=seed)) for seed in seeds).sort(pl.all())


def test_a_new_table_has_the_rows_of_the_model(model: Any, tmp_path: Path) -> None:
    made = model.sample_delta(tmp_path / "t", 500, seed=1, rows_per_file=200)
    assert made.rows == 500
    assert_frame_equal(rows_of(tmp_path / "t"), expected(model, 1))
    table = deltalake.DeltaTable(tmp_path / "t")
    builder = deltalake.QueryBuilder().register("t", table)
    counted = pl.DataFrame(builder.execute("select count(*) as rows, min(n) as low from t").read_all())
    assert counted.row(0) == (500, expected(model, 1)["n"].min())


def test_a_job_is_committed_once(model: Any, tmp_path: Path) -> None:
    first = model.sample_delta(tmp_path / "t", 500, seed=1)
    again = model.sample_delta(tmp_path / "t", 500, seed=1)
    assert again.parts == first.parts
    assert deltalake.DeltaTable(tmp_path / "t").version() == 0
    model.sample_delta(tmp_path / "t", 500, seed=2, mode="append")
    model.sample_delta(deltalake.DeltaTable(tmp_path / "t"), 500, seed=2, mode="append")
    assert_frame_equal(rows_of(tmp_path / "t"), expected(model, 1, 2))
    assert deltalake.DeltaTable(tmp_path / "t").version() == 1


def test_a_table_that_exists_is_refused_unless_said_otherwise(model: Any, tmp_path: Path) -> None:
    model.sample_delta(tmp_path / "t", 500, seed=1)
    with pytest.raises(OutputError, match='mode="append"'):
        model.sample_delta(tmp_path / "t", 500, seed=2)
    model.sample_delta(tmp_path / "t", 500, seed=3, mode="overwrite")
    assert_frame_equal(rows_of(tmp_path / "t"), expected(model, 3))
    assert_frame_equal(pl.read_delta(str(tmp_path / "t"), version=0).sort(pl.all()), expected(model, 1))
    with pytest.raises(OptionError, match="append"):
        model.sample_delta(tmp_path / "t", 500, mode="resume")


def test_other_columns_are_refused_before_anything_is_written(model: Any, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pl.DataFrame({"kind": ["a"], "n": [1.5]}))
    with pytest.raises(OutputError, match=r"lacks 'x'.*'n' is double, not int32"):
        model.sample_delta(tmp_path / "t", 500, seed=1, mode="append")
    assert not list((tmp_path / "t").glob("arf_dask-*"))


@pytest.mark.parametrize("layout", ["partitions", "constraints"])
def test_tables_that_demand_more_than_columns_are_refused(model: Any, tmp_path: Path, layout: str) -> None:
    schema = deltalake.Schema.from_arrow(model.portable_schema())
    partitions = {"partition_by": ["kind"]} if layout == "partitions" else {}
    table = deltalake.DeltaTable.create(tmp_path / "table", schema, **partitions)
    if layout == "constraints":
        table.alter.add_constraint({"few": "n < 5"})
    with pytest.raises(OutputError, match=r"partitioned by 'kind'|constraints \(few\)"):
        model.sample_delta(table, 50, seed=1, mode="append")
    assert [path.name for path in (tmp_path / "table").iterdir()] == ["_delta_log"]


def test_nulls_in_a_column_that_allows_none_are_refused(model: Any, tmp_path: Path) -> None:
    fields = [field.with_nullable(field.name != "kind") for field in model.portable_schema()]
    table = deltalake.DeltaTable.create(tmp_path / "table", deltalake.Schema.from_arrow(pa.schema(fields)))
    with pytest.raises(OutputError, match="nulls in 'kind'"):
        model.sample_delta(table, 50, seed=1, mode="append")
    assert deltalake.DeltaTable(tmp_path / "table").version() == 0


def test_statistics_are_in_the_log(model: Any, tmp_path: Path) -> None:
    model.sample_delta(tmp_path / "t", 500, seed=1)
    log = (tmp_path / "t" / "_delta_log" / "00000000000000000000.json").read_text().splitlines()
    (added,) = [json.loads(line)["add"] for line in log if "add" in json.loads(line)]
    found, rows = json.loads(added["stats"]), expected(model, 1)
    assert found["numRecords"] == 500
    assert found["nullCount"] == {name: rows[name].null_count() for name in rows.columns}
    assert (found["minValues"]["n"], found["maxValues"]["n"]) == (rows["n"].min(), rows["n"].max())
    assert found["maxValues"]["x"] == rows["x"].max()
    assert found["minValues"]["at"] == "2024-01-01T00:00:00.000000Z"


KILLED = """
import os, sys
import arf_dask
from arf_dask.storage.delta import DeltaSink
DeltaSink.{step} = lambda *_: os._exit(9)
arf_dask.load(sys.argv[1]).sample_delta(sys.argv[2], 500, seed=2, mode="append")
"""


@pytest.mark.parametrize("step", ["_add_actions", "_commit_once"])
def test_a_kill_before_the_commit_leaves_the_table_as_it_was(model: Any, tmp_path: Path, step: Any) -> None:
    model.save(tmp_path / "m")
    model.sample_delta(tmp_path / "t", 500, seed=1)
    command = [sys.executable, "-c", KILLED.format(step=step), str(tmp_path / "m"), str(tmp_path / "t")]
    assert subprocess.run(command, check=False).returncode == 9
    assert_frame_equal(rows_of(tmp_path / "t"), expected(model, 1))
    model.sample_delta(tmp_path / "t", 500, seed=2, mode="append")
    assert_frame_equal(rows_of(tmp_path / "t"), expected(model, 1, 2))


def test_another_writer_in_between_and_a_table_created_meanwhile(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DeltaSink._commit_once

    def late(sink: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(DeltaSink, "_commit_once", commit)
        model.sample_delta(tmp_path / "t", 500, seed=9, mode="append")  # creates the table
        return commit(sink, *arguments)

    monkeypatch.setattr(DeltaSink, "_commit_once", late)
    model.sample_delta(tmp_path / "t", 500, seed=1, mode="append")
    assert_frame_equal(rows_of(tmp_path / "t"), expected(model, 1, 9))


def test_writers_at_the_same_time_all_get_in_once(model: Any, tmp_path: Path) -> None:
    model.sample_delta(tmp_path / "t", 500, seed=0)
    seeds = [1, 2, 3]
    threads = [
        threading.Thread(target=model.sample_delta, args=(tmp_path / "t", 500), kwargs={"seed": s, "mode": "append"})
        for s in seeds
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_frame_equal(rows_of(tmp_path / "t"), expected(model, 0, *seeds))


def test_a_transaction_that_was_forgotten_is_found_by_its_files(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.sample_delta(tmp_path / "t", 500, seed=1)
    monkeypatch.setattr(deltalake.DeltaTable, "transaction_version", lambda *_: None)
    model.sample_delta(tmp_path / "t", 500, seed=1, mode="append")
    assert_frame_equal(rows_of(tmp_path / "t"), expected(model, 1))


def test_a_path_of_a_delta_table_is_its_current_version(tmp_path: Path) -> None:
    for shift, mode in ((0, "error"), (100, "overwrite")):
        frame = DATA.select(pl.col("n").cast(pl.Int64) + shift, "x")
        frame.write_delta(tmp_path / "table", mode=mode)  # type: ignore[call-overload]
    model = arf_dask.fit(tmp_path / "table", trees=3, seed=0)
    assert model.sample(200, seed=0)["n"].min() >= 100  # replaced rows are still in the directory
    assert model.log_density(tmp_path / "table").len() == DATA.height
    with pytest.raises(DataError, match="the table alone"):
        arf_dask.fit([tmp_path / "table", tmp_path / "other.parquet"])


def test_a_delta_table_is_data_at_its_version(model: Any, tmp_path: Path) -> None:
    model.sample_delta(tmp_path / "t", 500, seed=1)
    model.sample_delta(tmp_path / "t", 500, seed=2, mode="append")
    assert arf_dask.fit(deltalake.DeltaTable(tmp_path / "t"), trees=3, seed=0).schema.n_rows == 1_000
    assert arf_dask.fit(deltalake.DeltaTable(tmp_path / "t", version=0), trees=3, seed=0).schema.n_rows == 500
    filtered = pl.scan_delta(str(tmp_path / "t")).filter(pl.col("n") < 3).select("n", "x")
    assert arf_dask.fit(filtered, trees=3, seed=0).schema.names == ["n", "x"]
    twin = arf_dask.synthesize(deltalake.DeltaTable(tmp_path / "t"), 10, trees=3, seed=0)
    assert isinstance(twin, pl.DataFrame)


def test_without_the_package_the_extra_is_named(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingExtraError, match=r"arf-dask\[delta\]"):
        model.sample_delta(tmp_path / "t", 10)
