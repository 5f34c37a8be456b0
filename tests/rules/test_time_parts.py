"""Timestamps with a pattern of hours or weekdays are modelled by week, weekday and time of day."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal, assert_series_equal

import arf_dask
from arf_dask.data import parts
from arf_dask.data.value_sets import ValueSet
from arf_dask.errors import ImpossibleConditionError, ModelFormatError, OptionError
from arf_dask.inference.density import region_share
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.chain import Chain
from arf_dask.rules.transforms.texts import Parsed
from arf_dask.rules.transforms.times import Timed, find_parts
from arf_dask.training import stages

BERLIN = ZoneInfo("Europe/Berlin")


def shop(n: int = 3_000, seed: int = 0) -> pl.DataFrame:
    """Orders of half a year, none on Sundays; those in stores from 9 to 17 o'clock, those online from 16 to 23."""
    random = np.random.default_rng(seed)
    weeks, weekdays = random.integers(0, 26, n), random.choice(6, n, p=[0.3, 0.1, 0.1, 0.1, 0.1, 0.3])
    store = random.random(n) < 0.5
    minutes = np.where(store, random.integers(9 * 60, 17 * 60, n), random.integers(16 * 60, 23 * 60, n))
    day = np.datetime64("2024-01-01") + weeks * 7 + weekdays  # a Monday
    return pl.DataFrame(
        {
            "at": day.astype("datetime64[us]") + minutes.astype("timedelta64[m]"),
            "store": store,
            "amount": random.normal(size=n).round(2),
        }
    )


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    return arf_dask.fit(shop(), trees=5, seed=1)


def target(dtype: pl.DataType) -> Target:
    return Target("at", dtype, None)


def test_the_parts_of_an_instant_by_hand() -> None:
    timed = Timed(target(pl.Datetime("us")), weekday=True)
    parts = timed.split(pl.Series([datetime(2024, 5, 16, 14, 30), None]))  # a Thursday
    assert {name: part.to_list() for name, part in parts.items()} == {
        "at (week)": [date(2024, 5, 13), None],
        "at (weekday)": [3, None],
        "at (time of day)": [timedelta(hours=14, minutes=30), None],
    }
    assert {name: part.dtype for name, part in parts.items()} == timed.outputs


def test_the_time_of_day_is_counted_from_local_midnight() -> None:
    dtype = pl.Datetime("us", "Europe/Berlin")
    timed = Timed(target(dtype))
    # On 31 March clocks jump from 2 to 3 o'clock; on 27 October the hour from 2 to 3 is there twice.
    values = [
        datetime(2024, 3, 31, 3, 30, tzinfo=BERLIN),
        datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=0),
        datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    ]
    series = pl.Series("at", values, dtype=dtype)
    parts = timed.split(series)
    assert parts["at (day)"].to_list() == [date(2024, 3, 31), date(2024, 10, 27), date(2024, 10, 27)]
    assert parts["at (time of day)"].dt.total_minutes().to_list() == [150, 150, 210]
    assert_series_equal(timed.join(list(parts.values())), series)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "America/New_York", "America/Sao_Paulo", "Asia/Kathmandu"])
@pytest.mark.parametrize("weekday", [False, True])
def test_parts_give_every_instant_back(unit: Any, zone: str | None, weekday: bool) -> None:
    ticks = np.random.default_rng(3).integers(0, 1_700_000_000_000, 5_000)
    series = pl.Series("at", ticks).cast(pl.Datetime("ms")).cast(pl.Datetime(unit))
    series = series.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else series
    timed = Timed(target(series.dtype), weekday)
    assert not timed.off_grid(series).any()
    assert_series_equal(timed.join(list(timed.split(series).values())), series)


def test_texts_are_read_on_the_clock_of_a_zone() -> None:
    texts = Target("at", pl.String(), None)
    timed = Chain(Parsed(texts, "%Y-%m-%dT%H:%M:%SZ"), Timed(texts, zone="America/New_York"))
    frame = pl.DataFrame({"at": ["2013-07-01T03:00:00Z"]})  # 23 o'clock on the day before
    parts = timed.forward(frame)
    assert [part[0] for part in parts.values()] == [date(2013, 6, 30), timedelta(hours=23)]
    assert timed.inverse(frame, parts).to_list() == ["2013-07-01T03:00:00Z"]


def test_a_time_that_a_day_does_not_have_is_null() -> None:
    timed = Timed(target(pl.Datetime("us", "Europe/Berlin")))
    parts = [pl.Series([date(2024, 5, 1)]), pl.Series([timedelta(hours=24, minutes=30)])]
    assert timed.join(parts).to_list() == [None]


def test_even_hours_and_weekdays_are_no_pattern() -> None:
    ticks = np.random.default_rng(0).integers(0, 365 * 86_400, 1_500)
    series = pl.Series("at", ticks * 1_000_000).cast(pl.Datetime("us"))
    assert find_parts(series, target(series.dtype)) is None
    assert find_parts(series.cast(pl.Date), target(pl.Date())) is None


def test_a_few_days_are_left_on_their_number_line() -> None:
    series = pl.Series([datetime(2024, 1, 1 + i % 5, 9 + i % 8, i % 60) for i in range(1_000)])
    assert find_parts(series, target(series.dtype)) is None


def test_dates_of_working_days_and_few_sundays_have_a_pattern() -> None:
    days = np.random.default_rng(0).choice(np.arange(7 * 52), 1_500, p=np.tile([6, 6, 6, 6, 6, 2, 1], 52) / (33 * 52))
    series = pl.Series(np.datetime64("2024-01-01") + days)
    assert find_parts(series, target(pl.Date())) == Timed(target(pl.Date()), weekday=True)


def test_hours_and_weekdays_come_out_as_they_are(model: arf_dask.Model) -> None:
    rows = model.sample(20_000, seed=2)
    assert rows.schema == shop(10).schema
    assert (rows["at"].dt.weekday() < 7).all()
    assert (rows["at"].dt.weekday() == 1).mean() == pytest.approx(0.3, abs=0.03)
    hours = rows["at"].dt.hour()
    assert hours.is_between(9, 22).all()
    by_night = hours.filter(rows["store"]) >= 18
    assert by_night.mean() < 0.02
    assert rows["at"].is_between(shop()["at"].min(), shop()["at"].max()).all()
    assert model.rules == []


@pytest.mark.parametrize(
    "known",
    [
        datetime(2024, 2, 5, 10, 15),
        (datetime(2024, 2, 5, 10), datetime(2024, 2, 5, 12)),
        (datetime(2024, 2, 5, 20), datetime(2024, 2, 8, 11)),
        (datetime(2024, 5, 1), None),
        arf_dask.Interval(datetime(2024, 2, 6), datetime(2024, 2, 7), closed="left"),
        [datetime(2024, 2, 5, 10, 15), datetime(2024, 3, 5, 20, 15)],
    ],
)
def test_conditions_on_timestamps_are_met(model: arf_dask.Model, known: Any) -> None:
    rows = model.sample(200, given={"at": known}, seed=3)
    assert rows.height == 200
    times = rows["at"]
    if isinstance(known, list):
        assert times.is_in(known).all()
    elif isinstance(known, arf_dask.Interval):
        assert times.is_between(known.low, known.high, closed="left").all()
    elif isinstance(known, tuple):
        assert times.is_between(known[0], known[1] or datetime(2100, 1, 1)).all()
    else:
        assert (times == known).all()


def test_impossible_and_wrong_conditions_are_named(model: arf_dask.Model) -> None:
    with pytest.raises(ImpossibleConditionError):
        model.sample(5, given={"at": None})
    with pytest.raises(OptionError, match=r"Give a datetime\.datetime"):
        model.sample(5, given={"at": "yesterday"})


def test_frames_of_conditions_and_nulls_to_fill(model: arf_dask.Model) -> None:
    known = shop(20, seed=5).select("at").with_columns(at=pl.when(pl.int_range(20) < 10).then("at"))
    rows = model.sample(3, given=known, seed=1)
    assert rows.height == 60
    assert_series_equal(rows["at"][:30], known["at"][:10].gather(np.repeat(np.arange(10), 3)))
    holes = shop(50, seed=6).with_columns(at=pl.when(pl.int_range(50) % 2 == 0).then("at"))
    filled = model.impute(holes, draws=1, seed=0)[0]
    assert filled["at"].null_count() == 0
    assert (filled["at"].dt.weekday() < 7).all()
    assert_frame_equal(filled.gather_every(2), holes.gather_every(2))


def test_densities_and_probabilities_speak_of_the_same_distribution(model: arf_dask.Model) -> None:
    assert np.isfinite(model.log_density(shop(500)).to_numpy()).all()
    edges = [None, datetime(2024, 3, 1), datetime(2024, 5, 1), None]
    events = [arf_dask.Interval(low, high, closed="left") for low, high in pairwise(edges)]
    shares = [model.probability({"at": event}) for event in events]
    assert sum(shares) == pytest.approx(1.0)
    real = shop()["at"]
    assert shares[0] == pytest.approx((real < edges[1]).mean(), abs=0.03)
    # p(at) p(amount | at) = p(at, amount)
    rows = shop(50, seed=9)
    joint = model.log_density(rows.select("at", "amount")).to_numpy()
    alone = model.log_density(rows.select("at")).to_numpy()
    conditional = model.log_density(rows.select("amount"), given=rows.select("at")).to_numpy()
    np.testing.assert_allclose(joint, alone + conditional, rtol=1e-9)


def test_a_saved_model_draws_the_same_rows(model: arf_dask.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    assert_frame_equal(arf_dask.load(tmp_path / "m").sample(500, seed=4), model.sample(500, seed=4))


@pytest.mark.parametrize("change", [{"zone": "Nowhere"}, {"weekday": 1}, {"form": "%H", "days": [1, 2]}])
def test_damaged_parts_are_refused(model: arf_dask.Model, change: dict[str, Any]) -> None:
    from arf_dask.storage.rule_fields import describe_relations, parse_relations

    data = json.loads(json.dumps(describe_relations(model._fitted.relations)))
    assert parse_relations(data) == model._fitted.relations
    data["transforms"][0]["details"].update(change)
    with pytest.raises(ModelFormatError):
        parse_relations(data)


def test_a_column_with_the_name_of_a_part_prevents_the_split() -> None:
    data = shop().rename({"amount": "at (weekday)"})
    rows = arf_dask.fit(data, trees=3, max_rounds=0, seed=1).sample(100, seed=1)
    assert rows.schema == data.schema


def test_nulls_keep_their_share() -> None:
    data = shop().with_columns(at=pl.when(pl.int_range(pl.len()) % 5 > 0).then("at"))
    rows = arf_dask.fit(data, trees=5, seed=1).sample(5_000, seed=1)
    assert rows["at"].is_null().mean() == pytest.approx(0.2, abs=0.03)


def test_the_model_is_the_same_from_a_lazy_frame() -> None:
    data = shop(1_000)
    rows = [arf_dask.fit(given, trees=3, max_rounds=0, seed=1).sample(100, seed=1) for given in (data, data.lazy())]
    assert_frame_equal(*rows)


def test_rows_in_parts_give_the_model_of_rows_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = shop(2_000)
    monkeypatch.setattr(stages, "TRAINING_ROWS", 1_500)
    whole = arf_dask.fit(data, trees=3, max_rounds=0, seed=1)
    monkeypatch.setattr(parts, "CELLS", 900)
    data.write_parquet(tmp_path / "shop.parquet", row_group_size=300)
    in_parts = arf_dask.fit(tmp_path / "shop.parquet", trees=3, max_rounds=0, seed=1)
    assert in_parts._fitted.relations == whole._fitted.relations
    assert_frame_equal(in_parts.sample(300, seed=2), whole.sample(300, seed=2))
    assert (in_parts.sample(2_000, seed=3)["at"].dt.weekday() < 7).all()


def test_flags_of_weekdays_and_hours_stay_right() -> None:
    data = shop().with_columns(saturday=pl.col("at").dt.weekday() == 6, late=pl.col("at").dt.hour() >= 16)
    model = arf_dask.fit(data, trees=3, max_rounds=1, seed=1)
    assert {rule.columns for rule in model.rules} == {("at", "saturday"), ("at", "late")}
    rows = model.sample(2_000, seed=2)
    assert (rows["saturday"] == (rows["at"].dt.weekday() == 6)).all()
    assert (rows["late"] == (rows["at"].dt.hour() >= 16)).all()
    assert model.check(rows)["broken"].to_list() == [0, 0]
    assert model.check(rows.with_columns(pl.col("saturday").not_()))["broken"].sum() == 2_000


# Columns with nulls: the first part decides.

DAYS = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def with_nulls(n: int = 300, share: float = 0.3) -> pl.DataFrame:
    """Orders of a year at about 13 o'clock; too few are without a time for trees to split on missingness first."""
    random = np.random.default_rng(0)
    hours = np.clip(random.normal(13, 3, n), 0, 23).astype(int)
    seconds = 1_640_995_200 + random.integers(0, 400, n) * 86_400 + hours * 3_600 + random.integers(0, 3_600, n)
    at = pl.Series(seconds * 1_000_000).cast(pl.Datetime("us")).set(pl.Series(random.random(n) < share), None)
    return pl.DataFrame({"at": at, "x": random.normal(size=n), "store": random.random(n) < 0.5})


@pytest.fixture(scope="module")
def null_model() -> arf_dask.Model:
    return arf_dask.fit(with_nulls(), trees=5, seed=1, refine=False)


def parts_by_hand(dtype: pl.DataType) -> dict[str, pl.Series]:
    """Known; without a week; without a weekday; without a time of day, if there is one; without anything."""
    week = date(2024, 5, 13)
    unit = dtype.time_unit if isinstance(dtype, pl.Datetime) else "us"
    time = timedelta(hours=14)
    parts = {
        "at (week)": pl.Series([week, None, week, week, None]),
        "at (weekday)": pl.Series([3, 3, None, 3, None], dtype=pl.Int8),
        "at (time of day)": pl.Series([time, time, time, None, None], dtype=pl.Duration(unit)),
    }
    return parts if isinstance(dtype, pl.Datetime) else {name: parts[name] for name in list(parts)[:2]}


@pytest.mark.parametrize(
    "dtype", [pl.Date(), pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns"), pl.Datetime("us", "Europe/Berlin")]
)
def test_the_first_part_decides_and_rows_without_another_one_are_faults(dtype: pl.DataType) -> None:
    first, last = ((day - date(1970, 1, 1)).days for day in (date(2024, 1, 1), date(2024, 12, 31)))
    ticks = DAYS[dtype.time_unit] if isinstance(dtype, pl.Datetime) else 1
    timed = Timed(Target("at", dtype, None, first * ticks, last * ticks, nullable=True), weekday=True)
    values = timed.rebuild(pl.DataFrame(), parts_by_hand(dtype))
    assert values.dtype == dtype
    has_time = isinstance(dtype, pl.Datetime)
    assert timed.faults(pl.DataFrame({"at": values})).to_list() == [False, False, True, has_time, False]
    assert values.is_null().to_list() == [False, True, False, False, True]
    assert timed.unmarked(values).is_null().to_list() == [False, True, True, has_time, True]
    assert values.dt.date()[0] == date(2024, 5, 16)


@pytest.mark.parametrize(("low", "high"), [(date(1, 1, 3), date(2025, 1, 1)), (date(2020, 1, 1), date(9999, 12, 31))])
def test_early_and_late_dates_leave_room_for_faults(low: date, high: date) -> None:
    ends = [(day - date(1970, 1, 1)).days for day in (low, high)]
    timed = Timed(Target("at", pl.Date(), None, ends[0], ends[1]), weekday=True)
    values = timed.rebuild(pl.DataFrame(), parts_by_hand(pl.Date()))
    assert timed.faults(pl.DataFrame({"at": values})).to_list() == [False, False, True, False, False]
    assert timed.unmarked(values).is_null().to_list() == [False, True, True, False, True]


def test_faults_of_times_written_as_text() -> None:
    units = Target("at", pl.Datetime("us"), None).units(pl.Series([datetime(2024, 1, 1, 9), datetime(2024, 12, 1)]))
    texts = Target("at", pl.String(), None, units[0], units[1])
    timed = Chain(Parsed(texts, "%d.%m.%Y"), Timed(texts, weekday=True))
    assert list(timed.outputs) == ["at (week)", "at (weekday)"]
    timed = Chain(Parsed(texts, "%Y-%m-%d %H:%M"), Timed(texts, weekday=True))
    values = timed.rebuild(pl.DataFrame(), parts_by_hand(pl.Datetime("us")))
    assert timed.faults(pl.DataFrame({"at": values})).to_list() == [False, False, True, True, False]
    assert timed.unmarked(values).to_list() == ["2024-05-16 14:00", None, None, None, None]


def test_a_null_is_a_null_of_the_first_part_and_a_value_has_all_parts(null_model: arf_dask.Model) -> None:
    relations = null_model._fitted.relations
    (timed,) = relations.transforms
    (null_box,) = relations.translate({"at": ValueSet.read(None, pl.Datetime("us"), "given")}, observed=True).boxes
    assert null_box == {"at (week)": ValueSet(pl.Date(), null=True)}
    known = ValueSet.read((datetime(2022, 3, 1), datetime(2022, 9, 1)), pl.Datetime("us"), "given")
    for box in relations.translate({"at": known}, observed=True).boxes:
        assert list(box) == list(timed.outputs)
        assert not any(wanted.null for wanted in box.values())
    free = timed.resolve(with_nulls(), with_nulls(), null_is_value=True).free
    assert list(free) == ["at (weekday)", "at (time of day)"]
    assert all((flags == with_nulls()["at"].is_null().to_numpy()).all() for flags in free.values())


def test_nulls_are_drawn_as_often_as_they_are_probable(null_model: arf_dask.Model) -> None:
    data, tables = with_nulls(), null_model._fitted.tables
    rows = null_model.sample(65_536, seed=1)
    share = rows["at"].is_null().mean()
    assert share == pytest.approx(data["at"].is_null().mean(), rel=0.1)
    # P(no week) / (P(no week) + P(all parts in the range of the column))
    weeks, weekdays, times = (ValueSet.numbers(one) for one in (pl.Date(), pl.Int8(), pl.Duration("us")))
    no_week = [{"at (week)": ValueSet(pl.Date(), null=True)}]
    whole = [{"at (week)": weeks, "at (weekday)": weekdays, "at (time of day)": times}]
    null, known = (region_share(tables, boxes, [{}]) for boxes in (no_week, whole))
    probability = null_model.probability({"at": None})
    assert 0.01 < 1 - null - known < 0.1  # rows in which another part is null
    assert probability == pytest.approx(null / (null + known), rel=0.01)  # nearly all days are in the range
    assert share == pytest.approx(probability, abs=0.007)
    middle = datetime(2022, 8, 1)
    parts = [(None, middle), arf_dask.Interval(middle, None, closed="none")]
    assert probability + sum(null_model.probability({"at": part}) for part in parts) == pytest.approx(1, abs=1e-9)
    assert rows["at"].min() >= data["at"].min()


@pytest.mark.parametrize(("n", "share"), [(300, 0.02), (2_000, 0.01), (1_000, 0.5)])
def test_few_nulls_and_many_keep_their_share(n: int, share: float) -> None:
    data = with_nulls(n, share)
    data = data.with_columns(year=pl.col("at").dt.year().fill_null(2022))
    model = arf_dask.fit(data, trees=5, seed=1, refine=False)
    real, drawn = data["at"].is_null().mean(), model.sample(65_536, seed=1)
    assert model.probability({"at": None}) == pytest.approx(real, rel=0.1)
    assert drawn["at"].is_null().mean() == pytest.approx(real, rel=0.15)  # a tenth, and two standard errors
    assert np.isfinite(model.log_density(drawn.head(5_000)).to_numpy()).all()
    assert np.isfinite(model.log_density(data).to_numpy()).all()


def test_densities_of_nulls(null_model: arf_dask.Model) -> None:
    data, rows = with_nulls(), null_model.sample(5_000, seed=1)
    assert np.isfinite(null_model.log_density(data).to_numpy()).all()
    assert np.isfinite(null_model.log_density(rows).to_numpy()).all()
    nulls = data.filter(pl.col("at").is_null()).head(5)
    alone = null_model.log_density(nulls.select("at")).to_numpy()
    np.testing.assert_allclose(np.exp(alone), null_model.probability({"at": None}), rtol=0.01)
    joint = null_model.log_density(nulls.select("at", "x")).to_numpy()
    conditional = null_model.log_density(nulls.select("x"), given={"at": None}).to_numpy()
    np.testing.assert_allclose(joint, alone + conditional, rtol=1e-9)


def test_conditions_and_imputations_where_some_are_null(null_model: arf_dask.Model) -> None:
    data = with_nulls()
    assert null_model.sample(500, given={"at": None}, seed=1)["at"].null_count() == 500
    spring = (datetime(2022, 3, 1), datetime(2022, 6, 1))
    assert null_model.sample(500, given={"at": spring}, seed=1)["at"].is_between(*spring).sum() == 500
    for event in ({"at": None}, {"at": spring}):
        one_by_one = [null_model.probability(event, given={"store": store}) for store in (True, False)]
        frame = pl.DataFrame({"store": [True, False]})
        assert null_model.probability(event, given=frame) == pytest.approx(one_by_one, rel=1e-9)
    completed = null_model.sample(20, given=data.select("x"), seed=3)["at"]
    assert completed.is_null().mean() == pytest.approx(data["at"].is_null().mean(), rel=0.1)
    for values in (completed, *(one["at"] for one in null_model.impute(data, draws=2, seed=1))):
        assert values.drop_nulls().is_between(data["at"].min(), data["at"].max()).all()
    assert null_model.impute(data, seed=1)["at"].null_count() == 0
    known = data.head(20).with_columns(pl.lit(None, pl.Float64).alias("x"))
    filled = null_model.impute(known, draws=1, seed=1)[0]
    assert_series_equal(filled["at"].filter(known["at"].is_not_null()), known["at"].drop_nulls())


def test_a_known_value_that_equals_the_mark_of_faults_stays(null_model: arf_dask.Model) -> None:
    relations = null_model._fitted.relations
    (timed,) = relations.transforms
    week = pl.Series("at (week)", [date(2022, 5, 2)])
    parts = {**timed.forward(with_nulls().head(1)), "at (week)": week, "at (weekday)": pl.Series([None], dtype=pl.Int8)}
    rows = with_nulls().head(1).with_columns(timed.rebuild(pl.DataFrame(), parts))
    assert rows["at"].null_count() == 0
    assert relations.cannot_occur(rows, rows.clear(1), observed=True).all()
    assert relations.unmarked(rows)["at"].to_list() == [None]
    assert relations.unmarked(rows, rows).equals(rows)
