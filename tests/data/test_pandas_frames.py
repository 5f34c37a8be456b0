"""pandas frames: what comes in comes out, and what cannot be read is named."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import arf_dask
from arf_dask.data.frames import to_polars
from arf_dask.data.opening import open_parts
from arf_dask.data.pandas_frames import warn_of_index
from arf_dask.errors import DataError, IndexDroppedWarning


def test_dates_in_an_object_column_come_back_as_dates() -> None:
    data = pd.DataFrame({"d": [date(2024, 1, 1), None, date(2024, 2, 1)]})
    given = to_polars(data)
    assert given.frame.schema["d"] == pl.Date
    again = given.to_original(given.frame)["d"]
    assert again.dtype == object
    assert again.tolist() == [date(2024, 1, 1), None, date(2024, 2, 1)]


def test_integers_with_gaps_keep_their_grid() -> None:
    data = pd.DataFrame({"n": [1.0, 2.0, np.nan, 4.0] * 75, "x": np.arange(300) / 7})
    twin = arf_dask.synthesize(data, 200, trees=3, seed=0)
    assert twin["n"].dtype == np.float64
    assert set(twin["n"].dropna()) <= {1.0, 2.0, 3.0, 4.0}


def test_round_integers_with_gaps_keep_their_step() -> None:
    values = [float(i * 37 % 211 * 100) for i in range(300)]
    data = pd.DataFrame(
        {"n": [np.nan if i % 7 == 0 else value for i, value in enumerate(values)], "k": ["u", "v"] * 150}
    )
    twin = arf_dask.synthesize(data, 200, trees=3, seed=0)
    assert (twin["n"].dropna() % 100 == 0).all()


ARROW = {
    "decimal256": ([Decimal("1.25"), None, Decimal("2.50")], pa.decimal256(50, 2)),
    "dictionary": ([7, None, 8], pa.dictionary(pa.int32(), pa.int64())),
    "time": ([1, None, 2], pa.time64("us")),
}


@pytest.mark.parametrize("name", ARROW)
def test_arrow_dtypes_come_back(name: Any) -> None:
    values, kind = ARROW[name]
    data = pd.DataFrame({"a": pd.arrays.ArrowExtensionArray(pa.array(values, kind))})
    given = to_polars(data)
    again = given.to_original(given.frame)
    assert again.dtypes.tolist() == data.dtypes.tolist()
    assert again["a"].array.__arrow_array__().to_pylist() == pa.array(values, kind).to_pylist()


def test_decimals_of_too_many_digits_are_named() -> None:
    array = pa.array([Decimal(10**60), Decimal(1)], pa.decimal256(70, 2))
    reader = pa.table({"a": array}).to_reader()
    for data in (pd.DataFrame({"a": pd.arrays.ArrowExtensionArray(array)}), pa.table({"a": array}), reader):
        with pytest.raises(DataError, match=r"'a' .*float64"), open_parts(data):
            pass


def test_categories_of_dates_come_back() -> None:
    data = pd.DataFrame({"d": pd.Categorical([date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 1)])})
    given = to_polars(data)
    pd.testing.assert_frame_equal(given.to_original(given.frame), data)


def test_zones_of_fixed_offsets_come_back() -> None:
    data = pd.DataFrame({"t": pd.to_datetime(["2024-01-01T00:00:00+02:00", "2024-07-01T12:00:00+02:00"])})
    given = to_polars(data)
    pd.testing.assert_frame_equal(given.to_original(given.frame), data)


ODD = {
    "sparse": (pd.arrays.SparseArray([0, 0, 1]), "to_dense"),
    "mixed": (pd.Series([1, "a", 2.5], dtype=object), "values of several types"),
    "dates and times": (pd.Series([date(2024, 1, 1), datetime(2024, 1, 1, 3), None], dtype=object), "several types"),
    "interval category": (pd.cut(pd.Series([1, 2, 3]), 3), "astype"),
    "complex": (np.array([1 + 2j, 0, 1]), "real"),
    "period": (pd.period_range("2024-01", periods=3, freq="M"), "to_timestamp"),
    "interval": (pd.interval_range(0, 3), "left"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_dtypes_are_named_with_a_remedy(name: Any) -> None:
    values, remedy = ODD[name]
    with pytest.raises(DataError, match=f"column 'odd'.*{remedy}"):
        to_polars(pd.DataFrame({"fine": [1, 2, 3], "odd": values}))


def test_all_odd_columns_are_in_one_message() -> None:
    data = pd.DataFrame({"a": ODD["sparse"][0], "b": ODD["complex"][0]})
    with pytest.raises(DataError, match=r"'a' .*'b' "):
        to_polars(data)


@pytest.mark.parametrize(
    "index",
    [
        pd.Index([1, 2], name="row"),
        pd.to_datetime(["2024-01-01", "2024-01-02"]),
        pd.MultiIndex.from_product([[1], [2, 3]]),
    ],
)
def test_an_index_that_says_something_is_said_to_be_dropped(index: Any) -> None:
    with pytest.warns(IndexDroppedWarning, match="reset_index"), open_parts(pd.DataFrame({"n": [1, 2]}, index=index)):
        pass


def test_a_plain_index_is_not_mentioned() -> None:
    warn_of_index(pd.RangeIndex(3))
    warn_of_index(pd.Index([3, 1]))


def test_imputation_keeps_the_index_and_does_not_warn() -> None:
    model = arf_dask.fit(pl.DataFrame({"a": ["x", "y"] * 50, "b": ["u", "v"] * 50}), trees=3, seed=0)
    data = pd.DataFrame({"a": ["x", None], "b": [None, "v"]}, index=pd.Index([7, 9], name="row"))
    assert model.impute(data).index.equals(data.index)
