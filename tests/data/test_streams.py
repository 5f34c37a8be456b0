"""Frames of other libraries: whatever has the Arrow stream interface is data."""

from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.data import opening
from arf_dask.data.frames import is_frame, to_polars
from arf_dask.data.opening import open_parts
from arf_dask.errors import DataError

FRAME = pl.DataFrame({"n": [i % 7 for i in range(300)], "s": ["u", "v", None] * 100})
TABLE = FRAME.to_arrow()


def duckdb_relation() -> Any:
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(TABLE)


def ibis_table() -> Any:
    ibis = pytest.importorskip("ibis")
    return ibis.memtable(FRAME)


def narwhals_frame() -> Any:
    return pytest.importorskip("narwhals").from_native(FRAME)


STREAMS = {
    "reader": lambda: TABLE.to_reader(),
    "dataset": lambda: pyarrow.dataset.dataset(TABLE),
    "scanner": lambda: pyarrow.dataset.dataset(TABLE).scanner(),
    "duckdb": duckdb_relation,
    "ibis": ibis_table,
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_read_whole_or_in_parts(name: Any) -> None:
    assert is_frame(STREAMS[name]())
    assert_frame_equal(to_polars(STREAMS[name]()).frame, FRAME)
    with open_parts(STREAMS[name]()) as parts:
        assert_frame_equal(parts.frame(), FRAME)


@pytest.mark.parametrize("name", STREAMS)
def test_a_twin_of_a_stream_is_an_arrow_table(name: Any) -> None:
    twin = arf_dask.synthesize(STREAMS[name](), 20, trees=3, seed=0)
    assert isinstance(twin, pa.Table)
    assert pl.DataFrame(twin).schema == FRAME.schema


def test_a_large_stream_goes_through_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "STREAM_BYTES", 1_000)
    batches = TABLE.to_batches(max_chunksize=50)
    with open_parts(pa.RecordBatchReader.from_batches(TABLE.schema, batches)) as parts:
        assert {type(part).__name__ for part in parts.items} == {"FilePart"}
        assert_frame_equal(parts.frame(), FRAME)


def test_narwhals_frames_come_back_as_narwhals_frames() -> None:
    narwhals = pytest.importorskip("narwhals")
    twin = arf_dask.synthesize(narwhals_frame(), 20, trees=3, seed=0)
    assert isinstance(twin, narwhals.DataFrame)
    assert twin.to_native().schema == FRAME.schema


def test_dictionaries_of_integers_and_wide_decimals_are_read_and_come_back() -> None:
    table = pa.table(
        {
            "code": pa.array([5, 7, 5]).dictionary_encode(),
            "money": pa.array(["1.50", None, "2.25"]).cast(pa.decimal256(50, 2)),
        }
    )
    given = to_polars(table)
    assert given.frame.dtypes == [pl.Int64, pl.Decimal(38, 2)]
    assert given.to_original(given.frame).schema == table.schema
    assert given.to_original(given.frame).to_pydict() == table.to_pydict()


def test_types_without_a_counterpart_are_named() -> None:
    table = pa.table({"gap": pa.array([None], pa.month_day_nano_interval())})
    with pytest.raises(DataError, match=r"'gap' \(month_day_nano_interval\)"):
        to_polars(table)
    with pytest.raises(DataError, match="'gap'"), open_parts(table.to_reader()):
        pass
