from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_series_equal

from arf_dask.data.axes import EXACT, Axis, is_numeric, learn_axis
from tests.hypothesis_profiles import examples

BERLIN = ZoneInfo("Europe/Berlin")
EPOCH = datetime(1970, 1, 1)

# Every dtype with a range of physical values that has at most 2**52 steps: a place for every value.
NARROW = {
    pl.Int8: (-(2**7), 2**7 - 1),
    pl.Int16: (-(2**15), 2**15 - 1),
    pl.Int32: (-(2**31), 2**31 - 1),
    pl.Int64: (2**63 - 2**50, 2**63 - 1),
    pl.UInt8: (0, 2**8 - 1),
    pl.UInt16: (0, 2**16 - 1),
    pl.UInt32: (0, 2**32 - 1),
    pl.UInt64: (2**64 - 2**50, 2**64 - 1),
    pl.Int128: (-(2**127), -(2**127) + 2**50),
    pl.UInt128: (2**128 - 2**50, 2**128 - 1),
}
# Ranges that no float64 can hold.
WIDE = {
    pl.Int64: (-(2**63), 2**63 - 1),
    pl.UInt64: (0, 2**64 - 1),
    pl.Int128: (-(2**127), 2**127 - 1),
    pl.UInt128: (0, 2**128 - 1),
}


def roundtrip(series: pl.Series) -> pl.Series:
    axis = learn_axis(series)
    return axis.from_axis(axis.to_axis(series), series.dtype, series.name)


def whole_numbers(ranges: dict[Any, tuple[int, int]]) -> st.SearchStrategy[pl.Series]:
    def of(dtype: Any) -> st.SearchStrategy[pl.Series]:
        low, high = ranges[dtype]
        ends = st.sampled_from([low, low + 1, high - 1, high])
        values = st.lists(st.integers(low, high) | ends, min_size=1, max_size=8)
        return values.map(lambda some: pl.Series("x", some, dtype=dtype))

    return st.sampled_from(list(ranges)).flatmap(of)


def temporal() -> st.SearchStrategy[pl.Series]:
    moments = st.datetimes(datetime(1900, 1, 1), datetime(2030, 1, 1))
    seconds = moments.map(lambda at: at.replace(microsecond=0))
    spans = st.timedeltas(timedelta(days=-20_000), timedelta(days=20_000))
    choices = [
        (st.dates(), pl.Date),
        (st.times(), pl.Time),
        (spans, pl.Duration("us")),
        (spans.map(lambda span: timedelta(seconds=span.seconds)), pl.Duration("ms")),
        (spans.map(lambda span: timedelta(days=span.days)), pl.Duration("ns")),
        (moments, pl.Datetime("us")),
        (moments.map(lambda at: at.replace(tzinfo=UTC)), pl.Datetime("us", "UTC")),
        (moments.map(lambda at: at.replace(tzinfo=BERLIN)), pl.Datetime("us", "Europe/Berlin")),
        (seconds.map(lambda at: at.replace(tzinfo=UTC)), pl.Datetime("ns", "Asia/Kathmandu")),
        (seconds, pl.Datetime("ms")),
    ]
    return st.one_of([as_series(values, kind) for values, kind in choices])


def as_series(values: st.SearchStrategy[Any], dtype: Any) -> st.SearchStrategy[pl.Series]:
    return st.lists(values, min_size=1, max_size=8).map(lambda some: pl.Series("x", some, dtype=dtype))


@given(whole_numbers(NARROW))
def test_whole_numbers_come_back(series: Any) -> None:
    assert learn_axis(series).lossless
    assert_series_equal(roundtrip(series), series)


@given(temporal())
def test_temporal_values_come_back(series: Any) -> None:
    assert_series_equal(roundtrip(series), series)


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=8), st.sampled_from([0, 2, 10, 38]))
def test_decimals_come_back(unscaled: Any, scale: Any) -> None:
    values = [Decimal(number).scaleb(-scale) for number in unscaled]
    series = pl.Series("x", values, dtype=pl.Decimal(38, scale))
    assert_series_equal(roundtrip(series), series)


def test_the_greatest_decimals_come_back() -> None:
    ends = ["9999999999999999999999999999.9999999999", "9999999999999999999999999999.9999999996"]
    series = pl.Series("x", [*map(Decimal, ends), Decimal("9999999999999999999999999998.5")], dtype=pl.Decimal(38, 10))
    assert_series_equal(roundtrip(series), series)


@given(whole_numbers(WIDE))
@example(pl.Series("x", [-(2**127) + 1, 2**127 - 1], dtype=pl.Int128))
@example(pl.Series("x", [1, 3, 2**128 - 1], dtype=pl.UInt128))
@example(pl.Series("x", [2**63, 2**64 - 1, 2**63 + 5], dtype=pl.UInt64))
def test_ranges_too_wide_for_a_float_stay_inside_and_near(series: Any) -> None:
    axis = learn_axis(series)
    places, back = axis.to_axis(series), roundtrip(series)
    values = np.array(series.to_list(), dtype=object)
    found = np.array(back.to_list(), dtype=object)
    low, high = values.min(), values.max()
    assert back.dtype == series.dtype
    assert np.all((found >= low) & (found <= high))
    assert np.all(abs(found - values) <= (high - low) / 2**51 + 2)
    assert np.all((places >= 0) & (places <= axis.high) & (places == np.floor(places)))
    assert not axis.lossless or back.to_list() == series.to_list()


def test_an_axis_is_lossless_only_while_places_and_half_places_are_exact() -> None:
    exact = learn_axis(pl.Series([0, 1, EXACT - 1]))
    beyond = learn_axis(pl.Series([0, 1, EXACT]))
    assert exact.lossless
    assert exact.high + 0.5 - 0.5 == exact.high
    assert exact.high + 0.5 != exact.high
    assert not beyond.lossless
    assert beyond.high < EXACT


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=8),
    st.sampled_from([pl.Float32, pl.Float64]),
)
def test_floats_come_back(values: Any, dtype: Any) -> None:
    series = pl.Series("x", values, dtype=dtype)
    assert_series_equal(roundtrip(series), series, check_exact=True)


@given(st.lists(st.integers(-(10**12), 10**12), min_size=1, max_size=8), st.integers(0, 9))
def test_floats_with_few_decimals_come_back_and_are_recognised(numbers: Any, digits: Any) -> None:
    series = pl.Series("x", [number / 10**digits for number in numbers])
    found = learn_axis(series).decimals
    assert found is None or found <= digits
    assert_series_equal(roundtrip(series), series, check_exact=True)


@settings(max_examples=examples(200))
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6))
@example([1e300, 1e-300])
@example([-1e300, -1e-300])
@example([1.7e308, -1.7e308])
@example([5e-324, 1e-320])
def test_huge_and_tiny_floats_stay_inside_with_squares_that_neither_overflow_nor_vanish(values: Any) -> None:
    series = pl.Series("x", values)
    axis = learn_axis(series)
    places, back = axis.to_axis(series), roundtrip(series)
    assert min(values) <= back.min() <= back.max() <= max(values)
    np.testing.assert_allclose(back.to_numpy(), values, rtol=1e-15, atol=max(map(abs, values)) * 1e-300)
    with np.errstate(all="raise"):
        assert np.isfinite(np.abs(places).max() ** 2)
    if max(map(abs, values)) > 0:
        assert np.abs(places).max() ** 2 > 0


@pytest.mark.parametrize(
    ("values", "dtype", "origin", "step", "high"),
    [
        ([30, 10, 50], pl.Int64, 10, 20, 2.0),
        ([7], pl.UInt8, 7, 1, 0.0),
        ([-3, 4, 11], pl.Int8, -3, 7, 2.0),
        ([Decimal("1.25"), Decimal("2.00")], pl.Decimal(10, 2), 125, 75, 1.0),
        ([date(1970, 1, 2), date(1970, 1, 9), date(1970, 1, 16)], pl.Date, 1, 7, 2.0),
        ([time(1), time(2), time(2, 30)], pl.Time, 3600 * 10**9, 1800 * 10**9, 3.0),
        ([EPOCH, EPOCH + timedelta(hours=3)], pl.Datetime("ms"), 0, 10_800_000, 1.0),
    ],
)
def test_the_grid_is_what_the_values_have_in_common(values: Any, dtype: Any, origin: Any, step: Any, high: Any) -> None:
    axis = learn_axis(pl.Series(values, dtype=dtype))
    assert (axis.grid, axis.origin, axis.step, axis.low, axis.high) == (True, origin, step, 0.0, high)


def test_null_and_nan_have_no_place() -> None:
    whole, real = pl.Series([5, None, 9]), pl.Series([0.5, None, float("nan"), 2.0])
    np.testing.assert_array_equal(learn_axis(whole).to_axis(whole), [0.0, np.nan, 1.0])
    np.testing.assert_array_equal(learn_axis(real).to_axis(real), [0.5, np.nan, np.nan, 2.0])


def test_a_column_without_values_has_no_places() -> None:
    axis = Axis(True, origin=3, step=2, high=4.0)
    np.testing.assert_array_equal(axis.to_axis(pl.Series([None, None], dtype=pl.Int64)), [np.nan, np.nan])
    assert len(axis.to_axis(pl.Series([], dtype=pl.Int64))) == 0


def test_new_values_off_the_grid_match_no_place() -> None:
    axis = learn_axis(pl.Series([0, 10, 20]))
    np.testing.assert_allclose(axis.to_axis(pl.Series([5, 10, -3, 99])), [0.5, 1.0, -0.3, 9.9])


@pytest.mark.parametrize("learned", [[0, 2**127 - 1], [-(2**127), 2**127 - 1], [-(2**127), -(2**127) + 9]])
def test_new_values_far_from_a_wide_axis_have_places_outside(learned: Any) -> None:
    axis = learn_axis(pl.Series(learned, dtype=pl.Int128))
    places = axis.to_axis(pl.Series([learned[0], 5, -5, learned[1]], dtype=pl.Int128))
    inside = [learned[0] <= value <= learned[1] for value in (learned[0], 5, -5, learned[1])]
    assert [0 <= place <= axis.high for place in places] == inside


def test_places_outside_the_range_seen_come_back_inside() -> None:
    grid = learn_axis(pl.Series([10, 20, 30]))
    assert grid.from_axis(np.array([-5.0, 0.4, 1.6, 99.0]), pl.Int64()).to_list() == [10, 10, 30, 30]
    real = learn_axis(pl.Series([0.25, 1.5]))
    assert real.from_axis(np.array([-1.0, 0.333, 7.0]), pl.Float64()).to_list() == [0.25, 0.33, 1.5]


def test_clock_changes_are_told_apart() -> None:
    # 02:30 happens twice on this night: once in summer time, once in winter time.
    moments = [datetime(2024, 10, 27, 0, 30, tzinfo=UTC), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)]
    series = pl.Series("x", moments).dt.convert_time_zone("Europe/Berlin")
    assert roundtrip(series).to_physical().to_list() == series.to_physical().to_list()
    assert series.dt.hour().to_list() == [2, 2]


def test_numbers_and_times_are_numeric_and_nothing_else_is() -> None:
    numeric = [pl.Int8(), pl.UInt128(), pl.Float32(), pl.Decimal(5, 2), pl.Date(), pl.Time(), pl.Duration()]
    other = [pl.String(), pl.Boolean(), pl.Categorical(), pl.Enum(["a"]), pl.Null(), pl.Binary()]
    assert all(map(is_numeric, numeric))
    assert not any(map(is_numeric, other))
