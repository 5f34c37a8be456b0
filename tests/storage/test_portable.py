"""Portable types: every cast of the table, and what readers find."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.errors import OutputError
from arf_dask.storage.portable import UNIT_KEY, portable_frame

AT = datetime(2024, 7, 1, 12, tzinfo=UTC)
CASTS = [
    (pl.Series([255], dtype=pl.UInt8), pl.Int16, 255),
    (pl.Series([65_535], dtype=pl.UInt16), pl.Int32, 65_535),
    (pl.Series([2**32 - 1], dtype=pl.UInt32), pl.Int64, 2**32 - 1),
    (pl.Series([2**64 - 1], dtype=pl.UInt64), pl.Decimal(20, 0), Decimal(2**64 - 1)),
    (pl.Series([2**100], dtype=pl.Int128), pl.String, str(2**100)),
    (pl.Series(["a"], dtype=pl.Enum(["a", "b"])), pl.String, "a"),
    (pl.Series(["a"], dtype=pl.Categorical), pl.String, "a"),
    (pl.Series([None], dtype=pl.Null), pl.String, None),
    (pl.Series([0.5], dtype=pl.Float16), pl.Float32, 0.5),
    (pl.Series([timedelta(seconds=2)], dtype=pl.Duration("ms")), pl.Int64, 2_000),
    (pl.Series([time(0, 0, 1)]), pl.Int64, 10**9),
    (pl.Series([AT]).dt.convert_time_zone("Europe/Berlin").dt.cast_time_unit("ns"), pl.Datetime("us", "UTC"), AT),
    (pl.Series([datetime(2024, 7, 1)], dtype=pl.Datetime("ms")), pl.Datetime("us"), datetime(2024, 7, 1)),
    (pl.Series([date(2024, 7, 1)]), pl.Date, date(2024, 7, 1)),
    (pl.Series([1], dtype=pl.Int8), pl.Int8, 1),
]


@pytest.mark.parametrize(("series", "dtype", "value"), CASTS, ids=[str(series.dtype) for series, _, _ in CASTS])
def test_every_type_of_the_table(series: Any, dtype: Any, value: Any) -> None:
    found = portable_frame(series.alias("x").to_frame())
    assert found.schema == {"x": dtype}
    assert found.item() == value


def test_a_portable_data_set_has_the_rows_of_the_model(tmp_path: Path) -> None:
    data = pl.DataFrame(
        {
            "small": pl.Series([i % 7 for i in range(200)], dtype=pl.UInt8),
            "kind": pl.Series(["a", "b"] * 100, dtype=pl.Enum(["a", "b"])),
            "wait": [timedelta(seconds=i % 5) for i in range(200)],
        }
    )
    model = arf_dask.fit(data, trees=3, seed=0)
    made = model.sample_parquet(tmp_path / "out", 500, seed=1, rows_per_file=200, portable=True)
    assert_frame_equal(pl.read_parquet(tmp_path / "out"), portable_frame(model.sample(500, seed=1)))
    assert_frame_equal(made.scan().collect(), portable_frame(model.sample(500, seed=1)))
    schema = pq.read_schema(tmp_path / "out" / "part-00000.parquet")
    assert schema.field("wait").metadata == {UNIT_KEY.encode(): b"us"}
    assert "_PL_ENUM" not in str(schema)
    assert made.columns == {"small": "Int16", "kind": "String", "wait": "Int64"}
    again = model.sample_parquet(tmp_path / "out", 500, seed=1, rows_per_file=200, portable=True, mode="resume")
    assert again.parts == made.parts
    with pytest.raises(OutputError, match="portable: True there, False asked"):
        model.sample_parquet(tmp_path / "out", 500, seed=1, rows_per_file=200, mode="resume")
