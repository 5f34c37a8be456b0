"""Draws given a condition: they meet it exactly, and agree with what is computed."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from time import perf_counter
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask import ImpossibleConditionError, Interval, OptionError
from tests.brute import conditions, holds, small_frame, small_model

BERLIN = ZoneInfo("Europe/Berlin")
SIZES = ["small", "medium", "large", "huge"]
ROWS = 400
DRAWS = 200_000


def every_type() -> pl.DataFrame:
    """A column of each type, all of which depend on a hidden number."""
    rng = np.random.default_rng(21)
    hidden = rng.normal(size=ROWS)
    day = 19_500 + np.round(100 * hidden + rng.normal(0, 20, ROWS)).astype(int)
    second = day * 86_400 + rng.integers(0, 86_400, ROWS)
    size = np.clip(np.round(hidden + 1.5).astype(int), 0, 3)
    cents = np.round(1_000 + 200 * hidden).astype(int).tolist()
    return pl.DataFrame(
        {
            "date": pl.Series(day).cast(pl.Date),
            "zoned": pl.Series(second * 10**6)
            .cast(pl.Datetime("us"))
            .dt.replace_time_zone("UTC")
            .dt.convert_time_zone("Europe/Berlin"),
            "naive": pl.Series(second * 1000 + rng.integers(0, 1000, ROWS)).cast(pl.Datetime("ms")),
            "clock": pl.Series(rng.integers(0, 86_400, ROWS) * 10**9).cast(pl.Time),
            "span": pl.Series((5_000 + 1_000 * hidden).astype(int)).cast(pl.Duration("us")),
            "money": pl.Series([Decimal(c) / 100 for c in cents], dtype=pl.Decimal(12, 2)),
            "flag": pl.Series(hidden + rng.normal(size=ROWS) > 0),
            "size": pl.Series(np.array(SIZES)[size]).cast(pl.Enum(SIZES)),
            "code": pl.Series(np.array(["a|b", "!c", "(d, e)", ""])[rng.integers(0, 4, ROWS)]).cast(pl.Categorical),
            "name": pl.Series(np.array(["Ann", "Bob", "Cleo", None])[size[::-1]]),
            "tiny": pl.Series(np.clip(np.round(10 * hidden), -100, 100).astype(np.int8)),
            "whole": pl.Series(10**15 + np.round(1_000 * hidden).astype(np.int64)),
            "unsigned": pl.Series(rng.poisson(3, ROWS).astype(np.uint16)),
            "real": hidden + rng.normal(size=ROWS),
            "single": pl.Series((hidden + rng.normal(size=ROWS)).astype(np.float32)),
            "price": np.round(10 + 3 * hidden + rng.normal(size=ROWS), 2),
            "spiked": pl.Series(np.where(rng.random(ROWS) < 0.3, 1.0, rng.normal(1, 2, ROWS))).set(
                pl.Series(rng.random(ROWS) < 0.1), None
            ),
        }
    )


@lru_cache
def typed_model() -> arf_dask.Model:
    frame = every_type()
    numbers = {c: "numeric" for c, dtype in frame.schema.items() if dtype.is_numeric() or dtype.is_temporal()}
    return arf_dask.fit(frame, trees=4, min_leaf=8, seed=2, columns=numbers, bundles=False)


def at(year: int, month: int, day: int, *rest: Any, zone: Any = None) -> datetime:
    return datetime(year, month, day, *rest).replace(tzinfo=zone)


CONDITIONS: list[tuple[str, Any]] = [
    ("date", date(2023, 5, 20)),
    ("date", (date(2023, 5, 1), date(2023, 5, 3))),
    ("date", Interval(date(2023, 5, 1), date(2023, 5, 3), closed="none")),
    ("date", [date(2023, 5, 20), date(2023, 6, 1)]),
    ("date", (date(2023, 7, 1), None)),
    ("zoned", (at(2023, 3, 26, 1, zone=BERLIN), at(2023, 3, 26, 4, zone=BERLIN))),  # the clock goes forward
    ("zoned", Interval(at(2023, 5, 20, zone=BERLIN), at(2023, 5, 20, 0, 0, 2, zone=BERLIN), closed="none")),
    ("zoned", (at(2023, 5, 20, zone=ZoneInfo("America/New_York")), at(2023, 5, 21, zone=ZoneInfo("America/New_York")))),
    ("naive", (at(2023, 5, 20), at(2023, 5, 20, 0, 0, 0, 3000))),
    ("naive", Interval(at(2023, 5, 20), at(2023, 5, 20, 0, 0, 0, 2000), closed="left")),
    ("naive", Interval(at(2023, 5, 20), at(2023, 5, 20, 0, 0, 0, 2000), closed="right")),
    ("clock", (time(9), time(9, 0, 5))),
    ("clock", Interval(time(23, 40), None, closed="none")),
    ("span", timedelta(microseconds=5_100)),
    ("span", Interval(timedelta(microseconds=5_100), timedelta(microseconds=5_102), closed="none")),
    ("span", (None, timedelta(microseconds=3_000))),
    ("money", Decimal("10.01")),
    ("money", (Decimal("9.99"), Decimal("10.01"))),
    ("money", Interval(Decimal("9.99"), Decimal("10.01"), closed="none")),
    ("money", [Decimal("9.50"), Decimal("10.25")]),
    ("flag", True),
    ("flag", [False]),
    ("size", "huge"),
    ("size", ["small", "huge"]),
    ("code", "a|b"),
    ("code", ["!c", "(d, e)", ""]),
    ("name", "Bob"),
    ("name", None),
    ("name", ["Ann", None]),
    ("tiny", -7),
    ("tiny", (3, 5)),
    ("tiny", Interval(3, 5, closed="none")),
    ("tiny", Interval(-100, -10, closed="right")),
    ("whole", 10**15 + 77),
    ("whole", (10**15 + 1, 10**15 + 2)),
    ("whole", Interval(10**15 + 1, 10**15 + 3, closed="none")),
    ("unsigned", 2),
    ("unsigned", (0, 1)),
    ("real", 0.25),
    ("real", (0.25, 0.2500001)),
    ("real", Interval(0.25, 0.25 + 1e-12, closed="none")),
    ("real", Interval(1, 2, closed="left")),
    ("real", (None, -2)),
    ("single", (0.1, 0.1001)),
    ("single", Interval(0.5, 0.5 + 2**-22, closed="none")),
    ("single", Interval(0.1, 0.1 + 1e-6, closed="both")),
    ("price", 10.25),
    ("price", (10.0, 10.05)),
    ("price", Interval(10.0, 10.05, closed="none")),
    ("price", Interval(10.0, 10.01, closed="left")),
    ("price", Interval(10.0, 10.01, closed="right")),
    ("price", (10.124, 10.126)),
    ("price", Interval(10.001, 10.004, closed="none")),
    ("spiked", 1.0),
    ("spiked", Interval(1.0, 1.5, closed="right")),
    ("spiked", Interval(0.5, 1.0, closed="left")),
    ("spiked", (1.0, 1.0)),
    ("spiked", None),
    ("spiked", (None, None)),
]


def rows_meet(frame: pl.DataFrame, given: Any) -> bool:
    alternatives = given if isinstance(given, list) else [given]
    return all(any(all(holds(r[c], k) for c, k in one.items()) for one in alternatives) for r in frame.to_dicts())


# Every row meets the condition


@pytest.mark.parametrize(("column", "known"), CONDITIONS, ids=lambda value: str(value)[:60])
def test_every_row_meets_the_condition(column: Any, known: Any) -> None:
    drawn = typed_model().sample(150, given={column: known}, seed=3)
    assert drawn.height == 150
    assert drawn.schema == every_type().schema
    bad = [value for value in drawn[column].to_list() if not holds(value, known)]
    assert bad == []
    assert typed_model().probability({column: known}) >= 0


def test_a_single_precision_value_is_given_back() -> None:
    drawn = typed_model().sample(20, given={"single": 0.1}, seed=0)
    assert drawn["single"].unique().to_list() == [float(np.float32(0.1))]


@pytest.mark.parametrize("number", range(30))
def test_every_row_meets_several_conditions(number: Any) -> None:
    name = ["mixed", "plain", "categorical", "continuous", "steps", "uniform"][number % 6]
    for given in conditions(name, 12 + number // 6)[6:12]:
        drawn = small_model(name).sample(60, given=given, seed=number)
        assert drawn.height == 60
        assert rows_meet(drawn, given), given


def test_every_row_meets_one_of_the_alternatives() -> None:
    for name in ("mixed", "categorical", "steps"):
        some = conditions(name, 9, 2, False)
        for given in (some[:3], some[3:5], some[5:9]):
            drawn = small_model(name).sample(300, given=given, seed=1)
            assert drawn.height == 300
            assert rows_meet(drawn, given)


def test_a_condition_on_a_column_read_off_another() -> None:
    drawn = small_model("steps").sample(500, given={"hour": [3, 17]}, seed=0)
    assert set(drawn["hour"]) == {3, 17}
    assert drawn["at"].dt.hour().to_list() == drawn["hour"].to_list()
    drawn = small_model("steps").sample(500, given={"at": (time(4, 30), time(6, 10))}, seed=0)
    assert drawn["at"].dt.hour().to_list() == drawn["hour"].to_list()
    assert set(drawn["hour"]) <= {4, 5, 6}


def test_bundled_columns_stay_together() -> None:
    pairs = set(small_frame("mixed").select("city", "zip").unique().iter_rows())
    for given in ({"city": "Rome"}, {"zip": (1008, 1021)}, {"zip": [1000, 1022], "member": True}):
        drawn = small_model("mixed").sample(500, given=given, seed=0)
        assert set(drawn.select("city", "zip").unique().iter_rows()) <= pairs


def test_open_support_reaches_beyond_the_values_seen() -> None:
    model, highest = small_model("open"), small_frame("continuous")["x"].max()
    beyond = {"x": Interval(highest, None, closed="none")}
    assert 0 < model.probability(beyond) < 0.1
    drawn = model.sample(200, given=beyond, seed=0)
    assert (drawn["x"] > highest).all()


@pytest.mark.parametrize("dtype", [pl.Int64, pl.Int128], ids=str)
def test_integers_too_wide_for_floats_are_given_back_exactly(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    wide = pl.Series(
        [int(v) * (1 if dtype == pl.Int64 else 10**15) for v in rng.integers(-(2**62), 2**62, 200)], dtype=dtype
    )
    model = arf_dask.fit(pl.DataFrame({"wide": wide}), trees=2, seed=0, columns={"wide": "numeric"})
    one, two, three = wide.sort()[[50, 100, 110]].to_list()
    assert set(model.sample(20, given={"wide": one}, seed=0)["wide"]) == {one}
    assert set(model.sample(100, given={"wide": [one, two]}, seed=0)["wide"]) == {one, two}
    assert rows_meet(model.sample(50, given={"wide": (two, three)}, seed=0), {"wide": (two, three)})
    known = pl.DataFrame({"wide": pl.Series([two, one], dtype=dtype)})
    assert model.sample(2, given=known, seed=0)["wide"].to_list() == [two, two, one, one]


def test_integers_with_few_values_take_no_others() -> None:
    rng = np.random.default_rng(0)
    n = rng.choice([1, 5, 10], 300)
    frame = pl.DataFrame({"n": n, "x": rng.normal(n, 1)})
    model = arf_dask.fit(frame, trees=3, min_leaf=5, seed=0, columns={"x": "numeric", "n": "numeric"})
    drawn = model.sample(1_000, given={"x": (2.0, 8.0)}, seed=0)
    assert set(drawn["n"]) <= {1, 5, 10}
    assert drawn["n"].dtype == pl.Int64
    with pytest.raises(ImpossibleConditionError):
        model.sample(5, given={"n": 7})


# Counts, seeds and frames


def test_draws_repeat_with_their_seed_and_only_with_it() -> None:
    model, given = small_model("mixed"), {"age": (20, 40), "city": "Oslo"}
    one = model.sample(100, given=given, seed=4)
    assert_frame_equal(model.sample(100, given=given, seed=4), one)
    assert not model.sample(100, given=given, seed=5).equals(one)
    assert model.sample(0, given=given, seed=4).schema == one.schema
    assert model.sample(0, given=given, seed=4).height == 0


def test_nothing_given_is_no_condition() -> None:
    model = small_model("mixed")
    drawn = model.sample(20_000, given={}, seed=0)
    share = model.probability({"city": "Oslo"})
    assert (drawn["city"] == "Oslo").mean() == pytest.approx(share, abs=4 * math.sqrt(share / 20_000))


@pytest.mark.parametrize("kind", ["polars", "pandas", "lazy", "arrow"])
def test_a_frame_is_one_condition_per_row_and_null_is_free(kind: Any) -> None:
    known = pl.DataFrame(
        {"city": ["Rome", None, "Oslo", "Rome"], "age": [40, 25, None, 41], "bonus": [None, 0.0, 1.5, None]}
    )
    given = {
        "polars": lambda: known,
        "pandas": lambda: known.to_pandas().astype({"age": "Int64"}),
        "lazy": known.lazy,
        "arrow": known.to_arrow,
    }[kind]()
    drawn = small_model("mixed").sample(7, given=given, seed=0)
    assert drawn.schema == small_frame("mixed").schema
    assert drawn.height == 28
    for column in known.columns:
        wanted = np.repeat(known[column].to_list(), 7)
        for value, want in zip(drawn[column].to_list(), wanted, strict=True):
            assert want is None or (isinstance(want, float) and math.isnan(want)) or value == want
    assert len(set(drawn["age"][14:21])) > 1


def test_a_frame_of_free_rows_draws_from_the_whole() -> None:
    known = pl.DataFrame({"city": pl.Series([None, None], dtype=pl.String)})
    drawn = small_model("mixed").sample(3_000, given=known, seed=0)
    assert drawn.height == 6_000
    share = small_model("mixed").probability({"city": "Lima"})
    assert (drawn["city"] == "Lima").mean() == pytest.approx(share, abs=4 * math.sqrt(share / 6_000))


def test_a_frame_without_rows_draws_none() -> None:
    drawn = small_model("mixed").sample(3, given=small_frame("mixed").select("city").clear(), seed=0)
    assert drawn.height == 0
    assert drawn.schema == small_frame("mixed").schema


def test_whole_rows_as_conditions_come_back() -> None:
    rows = small_frame("mixed").drop_nulls().head(15)
    drawn = small_model("mixed").sample(2, given=rows, seed=0)
    assert_frame_equal(drawn, rows[np.repeat(np.arange(15), 2)])


def test_rows_of_a_frame_draw_as_they_would_alone() -> None:
    model = small_model("mixed")
    known = pl.DataFrame({"city": ["Rome", "Oslo"], "kids": [1, 3]})
    drawn = model.sample(40_000, given=known, seed=0)
    for number, given in enumerate(known.to_dicts()):
        part = drawn.slice(40_000 * number, 40_000)
        check_agreement(model, part, given, ["bonus", "age", "score"])


def test_expectations_for_a_frame_are_those_of_its_rows() -> None:
    model = small_model("mixed")
    known = pl.DataFrame({"city": ["Rome", None, "Oslo"], "bonus": [0.0, 1.25, None]})
    found = model.expect(["age", "score", "member"], given=known)
    assert found.height == 3
    for number, given in enumerate(known.to_dicts()):
        alone = model.expect(["age", "score", "member"], given={c: v for c, v in given.items() if v is not None})
        assert_frame_equal(found.slice(number, 1), alone, rel_tol=1e-9)


def test_every_question_can_be_asked_of_a_frame_of_conditions() -> None:
    model = small_model("mixed")
    known = pl.DataFrame({"city": ["Rome", None, "Oslo"], "bonus": [0.0, 1.25, None]})
    each = [{c: v for c, v in row.items() if v is not None} for row in known.to_dicts()]
    assert model.probability({"age": (20, 40)}, given=known) == pytest.approx(
        [model.probability({"age": (20, 40)}, given=one) for one in each], rel=1e-9
    )
    assert model.quantile("age", [0.1, 0.9], given=known) == [model.quantile("age", [0.1, 0.9], given=g) for g in each]
    assert model.cdf("age", 40, given=known) == pytest.approx([model.cdf("age", 40, given=g) for g in each], rel=1e-9)
    rows = small_frame("mixed").select("age", "kids").head(3)
    found = model.log_density(rows, given=known).to_list()
    alone = [model.log_density(rows.slice(i, 1), given=one)[0] for i, one in enumerate(each)]
    assert found == pytest.approx(alone, rel=1e-9)
    table = model.expect(["member"], given=known, level_probabilities=True)
    for number, one in enumerate(each):
        part = table.filter((pl.col("row") == number) & (pl.col("level") == "true"))["probability"][0]
        assert part == pytest.approx(model.probability({"member": True}, given=one), rel=1e-9)


# Draws agree with what is computed


def check_agreement(model: arf_dask.Model, drawn: pl.DataFrame, given: Any, columns: list[str]) -> None:
    """Means, shares and quantiles of draws against the model's own answers, within four standard errors."""
    n = drawn.height
    for name in columns:
        column = next(c for c in model.schema.columns if c.name == name)
        values = drawn[name].drop_nulls()
        empty = 1 - len(values) / n
        if column.nulls and empty < 1:
            close_share(empty, model.probability({name: None}, given=given), n)
        if not len(values):
            continue
        if column.kind == "categorical":
            for level in column.levels.to_list():
                share = model.probability({name: level}, given=given)
                close_share((values == level).sum() / n, share, n)
            continue
        values = values.drop_nans() if values.dtype.is_float() else values
        numbers = values.to_physical().cast(pl.Float64).to_numpy()
        mean = pl.Series(model.expect([name], given=given)[name].to_list(), dtype=None)
        if not values.dtype.is_temporal():
            error = 4 * numbers.std() / math.sqrt(len(numbers)) + 1e-9 * (1 + abs(numbers).max())
            assert abs(numbers.mean() - float(mean[0])) <= error, (name, given)
        for chance in (0.05, 0.5, 0.9):
            value = model.quantile(name, [chance], given=given)[0]
            below = float((values <= value).mean())
            close_share(below, model.cdf(name, value, given=given), len(values))
            close_share(float((values < value).mean()), min(chance, below), len(values), one_sided=True)


def close_share(found: float, expected: float, n: int, one_sided: bool = False) -> None:
    error = 4 * math.sqrt(max(expected * (1 - expected), 1 / n) / n) + 1e-9
    assert found <= expected + error
    assert one_sided or found >= expected - error


GIVEN = {
    "a level": ("mixed", {"city": "Rome"}),
    "a spike": ("mixed", {"bonus": 0.0}),
    "a float": ("mixed", {"bonus": 2.5}),
    "a float interval": ("mixed", {"score": (3.0, 6.5)}),
    "a grid interval": ("mixed", {"age": Interval(30, 45, closed="left")}),
    "missing": ("mixed", {"joined": None}),
    "bundle": ("mixed", {"zip": [1001, 1007, 1015], "kids": (0, 2)}),
    "alternatives": ("mixed", [{"city": "Oslo", "age": (20, 35)}, {"member": True}, {"bonus": None}]),
    "no smoothing": ("plain", {"age": (35, 50), "member": False}),
    "uniform": ("uniform", {"score": (2.0, 6.0), "city": ["Rome", "Lima"]}),
    "floats": ("continuous", {"x": 0.5, "z": (0.2, 1.5)}),
    "levels": ("categorical", [{"a": ["p", "q"]}, {"b": None}]),
    "steps": ("steps", {"load": (5.0, 15.0)}),
    "nothing": ("mixed", None),
}
JOINED = ("a level", "a float", "a grid interval", "missing", "bundle", "alternatives", "floats", "steps", "nothing")
GIVEN |= {f"{kind}, joined": (f"{GIVEN[kind][0]}, joined", GIVEN[kind][1]) for kind in JOINED}


@pytest.mark.parametrize("kind", GIVEN)
def test_draws_agree_with_expectations_quantiles_and_probabilities(kind: Any) -> None:
    name, given = GIVEN[kind]
    model = small_model(name)
    drawn = model.sample(DRAWS, given=given, seed=7)
    assert drawn.height == DRAWS
    check_agreement(model, drawn, given, drawn.columns)
    events = conditions(name, 5, 2, False)
    met = drawn.head(10_000).to_dicts()
    for event in events:
        share = sum(all(holds(row[c], k) for c, k in event.items()) for row in met) / len(met)
        close_share(share, model.probability(event, given=given), len(met))


@pytest.mark.parametrize(
    "row",
    [
        {"city": "Rome", "age": 40},
        {"score": 4.5, "member": True, "kids": 1},
        {"zip": 1014, "bonus": 0.0},
        {"age": 33, "kids": 2, "member": False, "score": 5.0, "bonus": 1.25},
    ],
    ids=str,
)
def test_completions_inside_leaves_that_are_trees_agree_with_what_is_computed(row: Any) -> None:
    model = small_model("mixed, joined")
    frame = pl.DataFrame([row], schema_overrides={"zip": pl.Int32})
    drawn = model.sample(100_000, given=frame, seed=3)
    check_agreement(model, drawn, row, [name for name in drawn.columns if name not in row])
    asked = model.expect(given=frame)
    for name, value in model.expect(given=row).row(0, named=True).items():
        assert asked[name][0] == pytest.approx(value, rel=1e-9) if isinstance(value, float) else asked[name][0] == value


def test_imputed_draws_inside_leaves_that_are_trees_agree_with_what_is_computed() -> None:
    model = small_model("mixed, joined")
    row = {"city": "Lima", "kids": 1, "score": 6.25}
    schema = {name: dtype for name, dtype in model.schema.dtypes.items() if name in (*row, "zip", "age", "member")}
    frame = pl.DataFrame([row], schema=schema)[np.zeros(60_000, dtype=int)]
    filled = model.impute(frame, draws=1, seed=4)[0]
    assert filled.null_count().sum_horizontal()[0] == 0
    age = filled["age"].to_numpy()
    assert abs(age.mean() - model.expect(["age"], given=row)["age"][0]) <= 4 * age.std() / math.sqrt(len(age))
    close_share(float(filled["member"].mean()), model.probability({"member": True}, given=row), len(age))
    for code in (1014, 1015):
        close_share(float((filled["zip"] == code).mean()), model.probability({"zip": code}, given=row), len(age))


# Rare conditions


def test_conditions_of_probability_one_in_a_billion_are_drawn_as_easily() -> None:
    model = small_model("continuous")
    median = model.quantile("x", [0.5])[0]
    rare = {"x": (median, median + 5e-10), "z": (0.5, 1.0)}
    assert 0 < model.probability(rare) < 1e-9
    started = perf_counter()
    common = model.sample(20_000, given={"x": (median, None)}, seed=0)
    between = perf_counter()
    drawn = model.sample(20_000, given=rare, seed=0)
    assert perf_counter() - between < 5 * (between - started) + 0.5
    assert common.height == drawn.height == 20_000
    assert rows_meet(drawn, rare)
    assert drawn["y"].mean() == pytest.approx(model.expect(["y"], given=rare)["y"][0], abs=0.1)


def test_many_unlikely_columns_at_once() -> None:
    rng = np.random.default_rng(5)
    flags = {f"c{i}": np.where(rng.random(1_000) < 0.02, "rare", "usual") for i in range(8)}
    model = arf_dask.fit(pl.DataFrame({**flags, "x": rng.normal(size=1_000)}), trees=3, seed=0, bundles=False)
    given = dict.fromkeys(flags, "rare")
    assert 0 < model.probability(given) < 1e-9
    drawn = model.sample(1_000, given=given, seed=0)
    assert drawn.height == 1_000
    assert all((drawn[name] == "rare").all() for name in flags)
    assert np.isfinite(model.expect(["x"], given=given)["x"][0])
    row = drawn.head(1)
    assert np.isfinite(model.log_density(row, given=given)[0])


def test_a_condition_whose_probability_underflows_is_still_exact() -> None:
    rng = np.random.default_rng(5)
    frame = pl.DataFrame({f"x{i}": rng.normal(size=200) for i in range(60)})
    model = arf_dask.fit(frame, trees=2, seed=0, bundles=False)
    given = {f"x{i}": (0.1, 0.1 + 1e-8) for i in range(59)}
    drawn = model.sample(50, given=given, seed=0)
    assert drawn.height == 50
    assert rows_meet(drawn, given)
    assert np.isfinite(model.expect(["x59"], given=given)["x59"][0])


# Impossible conditions


IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "a pair never seen": {"city": "Oslo", "zip": 1007},
    "beyond the range": {"age": 5_000},
    "a float beyond the range": {"bonus": -3.0},
    "a date beyond the range": {"joined": date(1900, 1, 1)},
}


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_impossible_conditions_are_refused_by_name(kind: Any) -> None:
    given = IMPOSSIBLE[kind]
    ask: Any
    for ask in (
        lambda model: model.sample(3, given=given),
        lambda model: model.sample(3, given=given, on_impossible="raise"),
        lambda model: model.expect(["kids"], given=given),
        lambda model: model.quantile("kids", [0.5], given=given),
        lambda model: model.cdf("kids", 1, given=given),
        lambda model: model.probability({"kids": 1}, given=given),
        lambda model: model.log_density(pl.DataFrame({"kids": [1]}), given=given),
    ):
        with pytest.raises(ImpossibleConditionError) as caught:
            ask(small_model("mixed"))
        assert any(repr(column) in str(caught.value) for column in given)
    assert small_model("mixed").probability(given) == 0


@pytest.mark.parametrize("given", [{"kids": None}, {"bonus": math.nan}, {"age": (200, 300)}, {"age": (40.2, 40.8)}])
def test_other_conditions_that_nothing_meets(given: Any) -> None:
    with pytest.raises((ImpossibleConditionError, OptionError), match=next(iter(given))):
        small_model("mixed").sample(3, given=given)


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_impossible_conditions_may_give_nulls(kind: Any) -> None:
    given = IMPOSSIBLE[kind]
    drawn = small_model("mixed").sample(4, given=given, on_impossible="null", seed=0)
    assert drawn.schema == small_frame("mixed").schema
    assert drawn.height == 4
    for column in drawn.columns:
        assert drawn[column].to_list() == [given.get(column)] * 4


@pytest.mark.parametrize("kind", IMPOSSIBLE)
def test_impossible_conditions_may_be_relaxed(kind: Any) -> None:
    given = IMPOSSIBLE[kind]
    drawn = small_model("mixed").sample(50, given=given, on_impossible="relax", seed=0)
    assert drawn.schema == small_frame("mixed").schema
    assert drawn.height == 50
    for column, value in given.items():
        assert drawn[column].to_list() == [value] * 50
    for column in {"kids", "age", "member", "city", "zip"} - set(given):
        assert drawn[column].null_count() == 0
        assert set(drawn[column]) <= set(range(18, 100)) | set(small_frame("mixed")[column])
    assert drawn["age"].n_unique() > 1 or "age" in given


def test_relaxing_takes_the_nearest_leaves() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 500)
    model = arf_dask.fit(pl.DataFrame({"x": x, "y": 3 * x + rng.normal(size=500)}), trees=5, seed=0)
    high = model.sample(500, given={"x": 25.0}, on_impossible="relax", seed=0)
    low = model.sample(500, given={"x": -5.0}, on_impossible="relax", seed=0)
    assert high["x"].to_list() == [25.0] * 500
    assert high["y"].mean() > 20
    assert low["y"].mean() < 10


@pytest.mark.parametrize("policy", ["null", "relax"])
def test_possible_conditions_are_the_same_under_every_policy(policy: Any) -> None:
    model, given = small_model("mixed"), {"city": "Rome", "age": (20, 40)}
    usual = model.sample(50, given=given, seed=9)
    assert_frame_equal(model.sample(50, given=given, seed=9, on_impossible=policy), usual)


def test_impossible_rows_of_a_frame_are_named() -> None:
    known = pl.DataFrame({"city": ["Rome", "Oslo", None], "zip": pl.Series([1007, 1000, 1], dtype=pl.Int32)})
    with pytest.raises(ImpossibleConditionError, match=r"row\D{0,20}2\b"):
        small_model("mixed").sample(2, given=known)


@pytest.mark.parametrize("policy", ["null", "relax"])
def test_impossible_rows_among_others_keep_order_and_counts(policy: Any) -> None:
    known = pl.DataFrame(
        {
            "city": ["Rome", "Oslo", "Lima", None, "Oslo"],
            "zip": pl.Series([None, 1007, 1014, 1, 1000], dtype=pl.Int32),
            "age": [40, 33, 5_000, None, None],
        }
    )
    drawn = small_model("mixed").sample(3, given=known, on_impossible=policy, seed=0)
    assert drawn.height == 15
    for column in known.columns:
        for value, wanted in zip(drawn[column].to_list(), np.repeat(known[column].to_numpy(), 3), strict=True):
            if wanted is not None and wanted == wanted:
                assert value == wanted
    kids = drawn["kids"].is_null().to_list()
    assert kids == ([False] * 3 + [policy == "null"] * 9 + [False] * 3)


def test_every_row_of_a_frame_may_be_impossible() -> None:
    known = pl.DataFrame({"age": [5_000, -1]})
    drawn = small_model("mixed").sample(2, given=known, on_impossible="null", seed=0)
    assert drawn["age"].to_list() == [5_000, 5_000, -1, -1]
    assert drawn["kids"].null_count() == 4
    relaxed = small_model("mixed").sample(2, given=known, on_impossible="relax", seed=0)
    assert relaxed["age"].to_list() == [5_000, 5_000, -1, -1]
    assert relaxed["kids"].null_count() == 0


# Names, types and levels


@pytest.mark.parametrize(
    "names", [("y", "leaf", "state"), ("weight", "tree", "row"), ("", "given", "count"), ("^a.*$", "*", "log_density")]
)
def test_columns_may_have_any_name(names: Any) -> None:
    rng = np.random.default_rng(2)
    group = rng.integers(0, 3, 200)
    first, second, third = names
    frame = pl.DataFrame(
        {first: rng.normal(group, 1), second: np.array(["p", "q", "r"])[group], third: rng.poisson(group)}
    )
    model = arf_dask.fit(
        frame, trees=3, min_leaf=5, seed=0, columns={first: "numeric", third: "numeric"}, bundles=False
    )
    drawn = model.sample(20, given={second: "q", third: (0, 2)}, seed=0)
    assert drawn.columns == frame.columns
    assert (drawn[second] == "q").all()
    assert np.isfinite(model.log_density(frame.head(3)).to_numpy()).all()
    alone = pl.DataFrame({third: frame[third].head(3)})
    assert np.isfinite(model.log_density(alone, given={first: 0.5}).to_numpy()).all()
    assert model.expect().columns == frame.columns
    assert 0 < model.probability({first: (0, 1)}, given={second: ["p", "r"]}) < 1
    emptied = frame.head(4).with_columns(pl.Series(first, [None, 0.1, None, 0.2]))
    assert model.impute(emptied).null_count().sum_horizontal()[0] == 0


def test_level_order_is_kept() -> None:
    model, frame = typed_model(), every_type()
    drawn = model.sample(10, given={"flag": True}, seed=0)
    assert drawn.schema["size"] == pl.Enum(SIZES)
    dtype: Any = drawn["size"].dtype
    assert dtype.categories.to_list() == SIZES
    assert model.expect(["size"]).schema["size"] == frame.schema["size"]


def test_conditions_from_pandas_and_numpy_values() -> None:
    model = small_model("mixed")
    drawn = model.sample(
        10, given={"age": np.int64(40), "bonus": np.float64(0.0), "city": np.array(["Oslo", "Rome"])}, seed=0
    )
    assert set(drawn["age"]) == {40}
    assert set(drawn["bonus"]) == {0.0}
    stamps = typed_model().sample(10, given={"naive": (pd.Timestamp("2023-05-20"), None)}, seed=0)
    assert (stamps["naive"] >= at(2023, 5, 20)).all()
