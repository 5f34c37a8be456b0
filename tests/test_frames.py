import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from arf_dask.errors import DataError
from arf_dask.frames import read, take

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


def test_a_polars_frame_is_taken_as_it_is():
    given = take(FRAME)
    assert given.frame is FRAME
    assert given.back(FRAME) is FRAME


def test_a_lazy_frame_comes_back_lazy():
    given = take(FRAME.lazy())
    assert_frame_equal(given.frame, FRAME)
    assert isinstance(given.back(FRAME), pl.LazyFrame)


def test_an_arrow_table_comes_back_with_its_schema():
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
    given = take(table)
    assert given.frame.schema["n"] == pl.Int16
    again = given.back(given.frame)
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
            "t": pd.to_datetime(["2024-01-01", "2024-07-01", None]).tz_localize("Europe/Berlin"),
            "d": pd.to_timedelta([1, 2, 3], unit="s"),
        }
    )


def test_a_pandas_frame_comes_back_with_its_dtypes():
    data = pandas_frame()
    given = take(data)
    assert given.frame.null_count().row(0) == (0, 1, 1, 0, 0, 1, 1, 0)
    again = given.back(given.frame)
    pd.testing.assert_frame_equal(again, data)


def test_a_pandas_frame_is_not_changed_and_its_index_is_left_out():
    data = pandas_frame().set_index(pd.Index([7, 8, 9], name="row"))
    before = data.copy(deep=True)
    given = take(data)
    assert given.frame.columns == list(data.columns)
    given.back(given.frame.head(2))
    pd.testing.assert_frame_equal(data, before)


def test_column_names_that_are_no_strings_come_back():
    data = pd.DataFrame({0: [1, 2], "y": [3, 4], 2.5: [5, 6]})
    given = take(data)
    assert given.frame.columns == ["0", "y", "2.5"]
    assert given.back(given.frame).columns.tolist() == [0, "y", 2.5]


@pytest.mark.parametrize("names", [["a", "a"], [1, "1"]])
def test_columns_of_one_name_are_refused(names):
    with pytest.raises(DataError, match="occurs more than once"):
        take(pd.DataFrame([[1, 2]], columns=names))


def test_missing_numbers_in_a_plain_integer_column_stay_missing():
    given = take(pd.DataFrame({"n": [1, 2, 3]}))
    again = given.back(pl.DataFrame({"n": [1, None, 3]}))
    assert again["n"].isna().tolist() == [False, True, False]


def test_a_dask_frame_comes_back_in_as_many_partitions():
    dd = pytest.importorskip("dask.dataframe")
    data = pd.DataFrame({"n": range(10), "s": list("abcdefghij")})
    given = take(dd.from_pandas(data, npartitions=3))
    assert given.frame["n"].to_list() == list(range(10))
    again = given.back(given.frame)
    assert again.npartitions == 3
    assert again.compute()["s"].tolist() == list("abcdefghij")


PLAIN = pl.DataFrame({"n": [1, 2], "d": [datetime(2024, 1, 1).date(), None], "s": ["a", "b,\n"]})


def test_parquet_is_read_from_a_file_a_directory_and_a_glob(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    PLAIN.write_parquet(tmp_path / "a.parquet")
    PLAIN.write_parquet(tmp_path / "deep" / "b.parquet")
    assert_frame_equal(take(tmp_path / "a.parquet").frame, PLAIN)
    assert_frame_equal(take(str(tmp_path)).frame, pl.concat([PLAIN, PLAIN]))
    assert_frame_equal(take(str(tmp_path / "*.parquet")).frame, PLAIN)
    assert isinstance(take(tmp_path).back(PLAIN), pl.DataFrame)


@pytest.mark.parametrize(("name", "separator"), [("a.csv", ","), ("a.CSV", ","), ("a.tsv", "\t")])
def test_csv_is_read_with_its_dates(tmp_path: Path, name, separator):
    PLAIN.write_csv(tmp_path / name, separator=separator)
    assert_frame_equal(read(str(tmp_path / name)), PLAIN)


@pytest.mark.parametrize("name", ["missing.parquet", "missing.csv", "missing*.parquet", "bad.parquet", "empty"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name):
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=name.partition("*")[0]):
        take(tmp_path / name)


@pytest.mark.parametrize("data", [None, 3, [1, 2], {"a": [1]}, np.zeros((2, 2)), pl.Series([1])])
def test_other_things_are_refused(data):
    with pytest.raises(DataError, match="Give a Polars DataFrame"):
        take(data)


def test_dask_frames_are_not_imported_by_the_package():
    code = "import sys, arf_dask; print('dask.dataframe' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
