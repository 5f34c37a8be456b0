import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from arf_dask.data.files import read
from arf_dask.data.frames import to_polars
from arf_dask.errors import DataError

FRAME = pl.DataFrame(
    {
        "n": [1, 2, None],
        "x": [0.5, None, 2.5],
        "s": ["a", "ü", None],
        "c": pl.Series(["u", "v", "u"], dtype=pl.Categorical),
        "b": [True, False, None],
        "at": pl.Series([datetime(2024, 1, 1, tzinfo=UTC)] * 3).dt.convert_time_zone("Europe/Berlin"),
    }
)


def test_a_polars_frame_is_taken_as_it_is() -> None:
    given = to_polars(FRAME)
    assert given.frame is FRAME
    assert given.to_original(FRAME) is FRAME


def test_a_lazy_frame_comes_back_lazy() -> None:
    given = to_polars(FRAME.lazy())
    assert_frame_equal(given.frame, FRAME)
    assert isinstance(given.to_original(FRAME), pl.LazyFrame)


def test_an_arrow_table_comes_back_with_its_schema() -> None:
    table = pa.table(
        {
            "n": pa.array([1, None, 3], pa.int16()),
            "s": pa.array(["a", None, "c"], pa.string()),
            "d": pa.array(["u", "v", "u"]).dictionary_encode(),
            "t": pa.array([0, 1, 2], pa.timestamp("ms", "UTC")),
            "m": pa.array(["1.50", None, "2.25"]).cast(pa.decimal128(9, 2)),
            "k": pa.array([1, 2, 3], pa.date32()),
        }
    )
    given = to_polars(table)
    assert given.frame.schema["n"] == pl.Int16
    again = given.to_original(given.frame)
    assert again.schema == table.schema
    assert again.to_pydict() == table.to_pydict()


def pandas_frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "n": np.array([1, 2, 3], dtype=np.int16),
            "x": [0.5, np.nan, 2.5],
            "s": ["a", None, "c"],
            "c": pd.Categorical(["u", "v", "u"], categories=["v", "u", "w"]),
            "b": [True, False, True],
            "i": pd.array([1, None, 3], dtype="Int64"),
            "t": pd.to_datetime(pd.Series(["2024-01-01", "2024-07-01", None])).dt.tz_localize("Europe/Berlin"),
            "d": pd.to_timedelta([1, 2, 3], unit="s"),
        }
    )


def test_a_pandas_frame_comes_back_with_its_dtypes() -> None:
    data = pandas_frame()
    given = to_polars(data)
    assert given.frame.null_count().row(0) == (0, 1, 1, 0, 0, 1, 1, 0)
    again = given.to_original(given.frame)
    pd.testing.assert_frame_equal(again, data)


def test_a_pandas_frame_is_not_changed_and_its_index_is_left_out() -> None:
    data = pandas_frame().set_index(pd.Index([7, 8, 9], name="row"))
    before = data.copy(deep=True)
    given = to_polars(data)
    assert given.frame.columns == list(data.columns)
    given.to_original(given.frame.head(2))
    pd.testing.assert_frame_equal(data, before)


def test_column_names_that_are_no_strings_come_back() -> None:
    data = pd.DataFrame({0: [1, 2], "y": [3, 4], 2.5: [5, 6]})
    given = to_polars(data)
    assert given.frame.columns == ["0", "y", "2.5"]
    assert given.to_original(given.frame).columns.tolist() == [0, "y", 2.5]


@pytest.mark.parametrize("names", [["a", "a"], [1, "1"]])
def test_columns_of_one_name_are_refused(names: Any) -> None:
    with pytest.raises(DataError, match="occurs more than once"):
        to_polars(pd.DataFrame([[1, 2]], columns=names))


def test_missing_numbers_in_a_plain_integer_column_stay_missing() -> None:
    given = to_polars(pd.DataFrame({"n": [1, 2, 3]}))
    again = given.to_original(pl.DataFrame({"n": [1, None, 3]}))
    assert again["n"].isna().tolist() == [False, True, False]


def test_a_dask_frame_comes_back_in_as_many_partitions() -> None:
    dd = pytest.importorskip("dask.dataframe")
    data = pd.DataFrame({"n": range(10), "s": list("abcdefghij")})
    given = to_polars(dd.from_pandas(data, npartitions=3))
    assert given.frame["n"].to_list() == list(range(10))
    again = given.to_original(given.frame)
    assert again.npartitions == 3
    assert again.compute()["s"].tolist() == list("abcdefghij")


PLAIN = pl.DataFrame({"n": [1, 2], "d": [datetime(2024, 1, 1).date(), None], "s": ["a", "b,\n"]})


def test_parquet_is_read_from_a_file_a_directory_and_a_glob(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    PLAIN.write_parquet(tmp_path / "a.parquet")
    PLAIN.write_parquet(tmp_path / "deep" / "b.parquet")
    assert_frame_equal(to_polars(tmp_path / "a.parquet").frame, PLAIN)
    assert_frame_equal(to_polars(str(tmp_path)).frame, pl.concat([PLAIN, PLAIN]))
    assert_frame_equal(to_polars(str(tmp_path / "*.parquet")).frame, PLAIN)
    assert isinstance(to_polars(tmp_path).to_original(PLAIN), pl.DataFrame)


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.CSV", ","), ("a.tsv", "\t")])
def test_csv_is_read_with_its_dates(tmp_path: Path, name: Any, separator: Any) -> None:
    PLAIN.write_csv(tmp_path / name, separator=separator)
    assert_frame_equal(read(str(tmp_path / name)), PLAIN)


@pytest.mark.parametrize("name", ["missing.parquet", "missing.csv", "missing*.parquet", "bad.parquet", "empty"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: Any) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=name.partition("*")[0]):
        to_polars(tmp_path / name)


@pytest.mark.parametrize("data", [None, 3, [1, 2], [], pl.Series([1]), pa.chunked_array([[1]])])
def test_other_things_are_refused(data: Any) -> None:
    with pytest.raises(DataError, match="Give a Polars DataFrame"):
        to_polars(data)


@pytest.mark.parametrize(
    ("data", "remedy"),
    [
        ({"a": [1]}, r"data is a dict\. Give polars.DataFrame\(data\)"),
        (np.zeros((2, 2)), r"polars.DataFrame\(data, schema"),
        (np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]), r"for name in data.dtype.names"),
    ],
)
def test_arrays_and_dicts_are_refused_with_the_way_to_give_them(data: Any, remedy: str) -> None:
    with pytest.raises(DataError, match=remedy):
        to_polars(data)


def test_a_list_of_paths_is_read_in_order(tmp_path: Path) -> None:
    PLAIN.head(1).write_parquet(tmp_path / "b.parquet")
    PLAIN.tail(1).write_parquet(tmp_path / "a.parquet")
    assert_frame_equal(to_polars([tmp_path / "b.parquet", str(tmp_path / "a.parquet")]).frame, PLAIN)


def test_dask_frames_are_not_imported_by_the_package() -> None:
    code = "import sys, arf_dask; print('dask.dataframe' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "reader"), [("t.arrow", "scan_ipc"), ("t.XLSX", "read_excel"), ("t.jsonl", "scan_ndjson")]
)
def test_files_of_other_formats_are_refused_with_their_reader(name: str, reader: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"anything")
    for path in (tmp_path / name, f"s3://bucket/{name}"):
        with pytest.raises(DataError, match=reader):
            to_polars(path)
