"""Spark for real: a local session reads what we write and writes what we read.

Spark is large and needs Java: `make test-spark` installs it in an environment of its own.
"""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.storage.portable import portable_frame

pytestmark = pytest.mark.filterwarnings("default")  # those of Spark are its own
N = 200
START = datetime(2024, 3, 1)
# What each type is in Spark, which names them in its own way.
TYPES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "int128": "string",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "float16": "float",
    "float32": "float",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "categorical": "string",
    "enum": "string",
    "decimal": "decimal(12,2)",
    "date": "date",
    "datetime_ms": "timestamp_ntz",
    "datetime_ns": "timestamp_ntz",
    "datetime_utc": "timestamp",
    "datetime_berlin": "timestamp",
    "duration": "bigint",
    "time": "bigint",
    "nulls": "string",
    "name with spaces": "bigint",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="Spark is not installed (make test-spark)")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    session = sql.SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def every_type() -> pl.DataFrame:
    numbers = [(i * 37) % 50 for i in range(N)]
    times = [START + timedelta(hours=i) for i in numbers]
    stamps = pl.Series(times)
    return pl.DataFrame(
        {
            "int8": pl.Series([i - 20 for i in numbers], dtype=pl.Int8),
            "int16": pl.Series(numbers, dtype=pl.Int16),
            "int32": pl.Series(numbers, dtype=pl.Int32),
            "int64": pl.Series([i * 2**33 for i in numbers]),
            "int128": pl.Series([i * 3 for i in numbers], dtype=pl.Int128),
            "uint8": pl.Series([i + 200 for i in numbers], dtype=pl.UInt8),
            "uint16": pl.Series([i + 65_000 for i in numbers], dtype=pl.UInt16),
            "uint32": pl.Series([i + 2**32 - 100 for i in numbers], dtype=pl.UInt32),
            "uint64": pl.Series([i + 2**40 for i in numbers], dtype=pl.UInt64),
            "float16": pl.Series([i / 4 for i in numbers], dtype=pl.Float16),
            "float32": pl.Series([i / 8 for i in numbers], dtype=pl.Float32),
            "float64": pl.Series([i / 7 for i in numbers]),
            "boolean": pl.Series([i % 2 == 0 for i in numbers]),
            "string": pl.Series([f"x{i % 7}" for i in numbers]),
            "categorical": pl.Series([f"c{i % 5}" for i in numbers], dtype=pl.Categorical),
            "enum": pl.Series([("low", "high")[i % 2] for i in numbers], dtype=pl.Enum(["low", "high"])),
            "decimal": pl.Series([Decimal(i) / 4 for i in numbers], dtype=pl.Decimal(12, 2)),
            "date": stamps.dt.date(),
            "datetime_ms": stamps.dt.cast_time_unit("ms"),
            "datetime_ns": stamps.dt.cast_time_unit("ns"),
            "datetime_utc": stamps.dt.replace_time_zone("UTC"),
            "datetime_berlin": stamps.dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin"),
            "duration": pl.Series([timedelta(seconds=i) for i in numbers]),
            "time": pl.Series([time(i % 24, 3) for i in numbers]),
            "nulls": pl.Series([None] * N, dtype=pl.Null),
            "name with spaces": pl.Series([None if i % 3 == 0 else i for i in numbers]),
        }
    )


def arrow_rows(frame: Any) -> pl.DataFrame:
    return pl.DataFrame(frame.toArrow())


@pytest.fixture(scope="module")
def model() -> Any:
    return arf_dask.fit(every_type(), trees=3, find_rules=False, seed=0)


def test_spark_reads_a_portable_data_set_by_the_name_of_its_directory(spark: Any, model: Any, tmp_path: Path) -> None:
    made = model.sample_parquet(tmp_path / "twin", 500, seed=1, rows_per_file=200, portable=True)
    found = spark.read.parquet(str(tmp_path / "twin"))
    assert dict(found.dtypes) == TYPES
    assert found.count() == 500
    expected = portable_frame(model.sample(500, seed=1))
    parts = [arrow_rows(spark.read.parquet(str(tmp_path / "twin" / part.file))) for part in made.parts]
    assert_frame_equal(pl.concat(parts), expected)
    names = list(expected.columns)
    assert_frame_equal(arrow_rows(found).sort(names), expected.sort(names))


@pytest.mark.parametrize("name", ["float16", "time", "datetime_ns"])
def test_spark_refuses_types_that_are_not_portable(spark: Any, name: str, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    every_type().select(name).write_parquet(tmp_path / "native.parquet")
    with pytest.raises(PySparkException, match=r"(?i)type"):
        spark.read.parquet(str(tmp_path / "native.parquet")).collect()


def test_data_written_by_spark_can_be_fitted(spark: Any, tmp_path: Path) -> None:
    rows = [
        (i, f"p{i % 4}", float(i % 9), START + timedelta(hours=i % 30), date(2024, 1, 1 + i % 28)) for i in range(N)
    ]
    frame = spark.createDataFrame(rows, "n int, product string, price double, at timestamp, day date")
    frame = frame.selectExpr("n % 40 AS n", "product", "CAST(price AS DECIMAL(9, 2)) AS price", "at", "day")
    frame.repartition(3).write.parquet(str(tmp_path / "orders"))
    assert (tmp_path / "orders" / "_SUCCESS").exists()
    twin = arf_dask.synthesize(pl.scan_parquet(tmp_path / "orders" / "*.parquet"), n=50, seed=0).collect()
    by_path = arf_dask.fit(tmp_path / "orders", trees=3, seed=0)
    by_arrow = arf_dask.fit(frame.toArrow(), trees=3, seed=0)
    assert by_path.schema.names == by_arrow.schema.names == twin.columns == ["n", "product", "price", "at", "day"]
    assert by_path.sample(50, seed=1).schema["price"] == pl.Decimal(9, 2)
    assert set(by_path.sample(50, seed=1)["product"]) <= {"p0", "p1", "p2", "p3"}


def test_a_table_partitioned_by_spark_keeps_its_partition_columns(spark: Any, tmp_path: Path) -> None:
    rows = [(i % 40, ("north", "south")[i % 2]) for i in range(N)]
    frame = spark.createDataFrame(rows, "n int, region string")
    frame.write.partitionBy("region").parquet(str(tmp_path / "orders"))
    model = arf_dask.fit(tmp_path / "orders", trees=3, seed=0)
    assert set(model.sample(50, seed=1)["region"]) == {"north", "south"}
