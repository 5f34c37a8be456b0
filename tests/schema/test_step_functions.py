from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arf_dask.data.axes import learn_axis
from arf_dask.schema.discrete import Discrete
from arf_dask.schema.step_functions import find_steps, round_cuts

HOURS = np.arange(240) / 10 % 24  # every tenth of an hour, ten days' worth of them
rng = np.random.default_rng(3)


def discrete(values: Any) -> Discrete:
    found, ids = np.unique(values, return_inverse=True)
    return Discrete(ids.astype(np.int32), len(found))


def one_cut(left: Any, right: Any, series: pl.Series) -> object:
    """The cut between two values of a column, as a value of that column."""
    axis = learn_axis(series)
    places = axis.to_axis(pl.Series([left, right], dtype=series.dtype))
    [cut] = round_cuts(places[None, :], axis, series.dtype)
    assert places[0] < cut <= places[1]
    return axis.from_axis(np.array([cut + 0.5 if axis.grid else cut]), series.dtype)[0]


def test_a_step_function_of_a_line_is_found_with_its_borders() -> None:
    clock = rng.permutation(HOURS)
    [step] = find_steps({4: clock}, {9: discrete(clock // 6)}, len(clock))
    assert (step.line, step.target) == (4, 9)
    np.testing.assert_allclose(step.cuts, [[5.9, 6.0], [11.9, 12.0], [17.9, 18.0]])


def test_a_value_may_come_back_further_along() -> None:
    clock = rng.permutation(HOURS)
    night = (clock < 6) | (clock >= 22)
    [step] = find_steps({0: clock}, {1: discrete(night)}, len(clock))
    np.testing.assert_allclose(step.cuts, [[5.9, 6.0], [21.9, 22.0]])


def test_one_row_on_the_wrong_side_makes_it_no_function() -> None:
    clock = np.repeat(HOURS, 2)
    half = clock // 12
    half[100] = 1 - half[100]
    assert find_steps({0: clock}, {1: discrete(half)}, len(clock)) == []


def test_an_unrelated_column_is_no_step_function() -> None:
    clock = rng.permutation(HOURS)
    assert find_steps({0: clock}, {1: discrete(rng.integers(0, 3, len(clock)))}, len(clock)) == []


def test_a_line_is_no_function_of_itself() -> None:
    clock = rng.permutation(HOURS)
    assert find_steps({0: clock}, {0: discrete(clock // 1)}, len(clock)) == []


def test_a_rare_flag_says_too_little() -> None:
    # Three rows in 240: shuffled rows have about seven runs too, so few runs mean nothing.
    clock = rng.permutation(HOURS)
    assert find_steps({0: clock}, {1: discrete(clock < 0.3)}, len(clock)) == []


def test_fewer_than_forty_rows_are_not_looked_at() -> None:
    clock = np.arange(39.0)
    assert find_steps({0: clock}, {1: discrete(clock // 6)}, 39) == []
    clock = np.arange(60.0)
    assert len(find_steps({0: clock}, {1: discrete(clock // 6)}, 60)) == 1


def test_rows_without_a_place_are_left_to_the_caller() -> None:
    clock = rng.permutation(HOURS)
    part = discrete(clock // 6)
    clock[:20] = np.nan
    [step] = find_steps({0: clock}, {1: part}, len(clock))
    assert len(step.cuts) == 3
    assert not np.isnan(step.cuts).any()


def test_every_target_has_one_line() -> None:
    clock = rng.permutation(HOURS)
    steps = find_steps({0: clock, 1: clock * 2}, {2: discrete(clock // 6), 3: discrete(clock // 8)}, len(clock))
    assert [(step.line, step.target) for step in steps] == [(0, 2), (0, 3)]


def test_steps_on_more_rows_than_are_sampled_hold_on_all_of_them() -> None:
    clock = rng.random(20_000) * 24
    hour = np.floor(clock)
    assert len(find_steps({0: clock}, {1: discrete(hour)}, len(clock))[0].cuts) == 23
    hour[np.argmax(clock)] = 0  # one row of 20,000, maybe not in the sample: 0 comes back at the end
    [step] = find_steps({0: clock}, {1: discrete(hour)}, len(clock))
    assert len(step.cuts) == 24


@pytest.mark.parametrize(
    ("left", "right", "cut"),
    [
        (9.7, 10.3, 10.0),
        (0.28, 0.31, 0.3),
        (0.299, 0.3, 0.3),
        (-3.2, -2.9, -3.0),
        (-0.5, 0.5, 0.0),
        (740.0, 1200.0, 1000.0),
        (530.0, 740.0, 700.0),
        (520.0, 560.0, 550.0),
        (1e-15, 2e-15, 1.5e-15),
    ],
)
def test_floats_are_cut_at_the_roundest_number_between(left: Any, right: Any, cut: Any) -> None:
    assert one_cut(left, right, pl.Series([left, right, 0.123456789012])) == pytest.approx(cut, rel=1e-15)


@pytest.mark.parametrize(
    ("left", "right", "cut"),
    [(17, 18, 18), (17, 23, 20), (-7, 3, 0), (612, 1777, 1000), (2**62, 2**62 + 3, 2**62 + 1)],
)
def test_whole_numbers_are_cut_at_the_roundest_number_between(left: Any, right: Any, cut: Any) -> None:
    assert one_cut(left, right, pl.Series([left, left + 1, right])) == cut


def test_a_step_that_does_not_divide_the_round_number() -> None:
    # Sevens: 98, 105. The hundred lies between the two, so 105 is the first on the right side.
    sevens = pl.Series([0, 7, 98, 105, 140])
    assert one_cut(98, 140, sevens) == 105


DAY = datetime(2024, 5, 1)
MOMENTS = [
    (timedelta(hours=20), timedelta(hours=47, minutes=59, seconds=59.9), timedelta(hours=24)),
    (timedelta(hours=7, minutes=40), timedelta(hours=8, minutes=20), timedelta(hours=8)),
    (timedelta(minutes=13), timedelta(minutes=17), timedelta(minutes=15)),
    (timedelta(seconds=31), timedelta(seconds=32, microseconds=5), timedelta(seconds=32)),
]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "Asia/Kathmandu", "America/New_York"])
@pytest.mark.parametrize(("left", "right", "cut"), MOMENTS)
def test_moments_are_cut_at_the_roundest_time_of_their_own_zone(left: Any, right: Any, cut: Any, zone: Any) -> None:
    start = DAY if zone is None else DAY.replace(tzinfo=ZoneInfo(zone))
    stamps = [start + left, start + right, start, start + timedelta(microseconds=1)]
    series = pl.Series(stamps, dtype=pl.Datetime("us", zone))
    assert one_cut(stamps[0], stamps[1], series) == start + cut


def test_clock_times_are_cut_at_the_hour() -> None:
    some = pl.Series([time(0, 0, 0, 1), time(8, 59, 13), time(9, 0, 2), time(23, 1)])
    assert one_cut(some[1], some[2], some) == time(9)


@given(
    st.lists(st.integers(0, 2**50), min_size=3, max_size=6, unique=True),
    st.sampled_from([None, "Europe/Berlin"]),
)
def test_a_cut_always_separates_whole_numbers(numbers: Any, zone: Any) -> None:
    numbers = sorted(numbers)
    for series in (pl.Series(numbers), pl.Series(numbers).cast(pl.Datetime("us", zone))):
        axis = learn_axis(series)
        places = axis.to_axis(series)
        cuts = round_cuts(np.stack([places[:-1], places[1:]], axis=1), axis, series.dtype)
        assert np.all((places[:-1] < cuts) & (cuts < places[1:]))
        assert np.all(cuts % 1 == 0.5)


@given(st.lists(st.floats(-1e15, 1e15), min_size=3, max_size=6, unique=True))
def test_a_cut_always_separates_floats(numbers: Any) -> None:
    places = np.sort(np.array(numbers))
    cuts = round_cuts(np.stack([places[:-1], places[1:]], axis=1), learn_axis(pl.Series(places)), pl.Float64())
    assert np.all((places[:-1] < cuts) & (cuts <= places[1:]))


def test_nothing_given_is_changed() -> None:
    cuts = np.array([[0.0, 10.0], [10.0, 25.0]])
    stamps = pl.Series([datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)])
    round_cuts(cuts, learn_axis(stamps), stamps.dtype)
    assert cuts.tolist() == [[0.0, 10.0], [10.0, 25.0]]
