"""Known values that rules tie to unknown ones: rows that are completed keep all rules, grids and ranges."""

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.rules.grammar import parse_expression
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.gap import Gap

N = 600
RNG = np.random.default_rng(5)
OPTIONS: dict[str, Any] = {"trees": 3, "max_rounds": 1, "seed": 1, "refine": False, "progress": False}


def test_a_solved_input_lies_on_its_grid() -> None:
    number = RNG.integers(0, 700, N)
    starts = pl.Series([date(2018, 1, 1) + timedelta(days=int(k // 5 * 7 + k % 5)) for k in number])
    days = pl.Series(RNG.poisson(4, N))
    frame = pl.DataFrame({"start": starts, "days": days}).with_columns(end=pl.col("start") + pl.duration(days="days"))
    model = arf_dask.fit(frame, **OPTIONS)
    assert [rule.kind for rule in model.rules] == ["formula", "grid"]
    for rows in (
        model.sample(20, given=frame.select("end").head(30), seed=1),
        *model.impute(
            frame.head(300).with_columns(start=pl.lit(None, pl.Date), days=pl.lit(None, pl.Int64)), draws=1, seed=1
        ),
    ):
        assert (rows["start"].dt.weekday() <= 5).all()
        assert model.check(rows)["broken"].sum() == 0


def test_a_computed_value_stays_in_its_range_and_is_not_null() -> None:
    kind = pl.Series(RNG.integers(5, 1_500, N))
    lost = pl.DataFrame({"kind": kind.set(pl.Series(RNG.random(N) < 0.3), None), "total": kind * 7})
    model = arf_dask.fit(lost, rules=["total == kind * 7"], **OPTIONS)
    rows = model.sample(20, given=pl.DataFrame({"total": [None] * 20}, schema={"total": pl.Int64}), seed=2)
    assert rows["total"].null_count() == 0
    sums = pl.DataFrame({"a": RNG.integers(0, 30, N), "b": RNG.integers(0, 30, N)}).with_columns(
        c=pl.col("a") + pl.col("b")
    )
    sums = sums.filter(pl.col("c").is_between(20, 40))
    model = arf_dask.fit(sums, rules=["c == a + b"], **OPTIONS)
    assert model.sample(20, given=sums.select("a").head(30), seed=3)["c"].is_between(20, 40).all()
    with pytest.raises(arf_dask.errors.ImpossibleConditionError):
        model.sample(1, given=pl.DataFrame({"a": [0], "b": [0]}), seed=3)


@pytest.fixture(scope="module")
def bills() -> arf_dask.Model:
    price = np.round(RNG.gamma(3, 10, N), 2)
    fee = RNG.choice([0.0, 3.9, 9.9], N, p=[0.1, 0.3, 0.6])
    frame = pl.DataFrame({"price": price, "bill": np.round(price + fee, 2)})
    return arf_dask.fit(frame, rules=["bill == price + one_of(0, 3.9, 9.9)"], **OPTIONS)


@pytest.mark.parametrize("given", [{"bill": 31.17}, pl.DataFrame({"bill": [31.17]})])
def test_a_bill_is_a_price_and_one_of_the_fees(bills: arf_dask.Model, given: Any) -> None:
    rows = bills.sample(200, given=given, seed=1)
    fees = (rows["bill"] - rows["price"]).round(2)
    assert set(fees) == {0.0, 3.9, 9.9}
    assert (fees == 9.9).mean() == pytest.approx(0.6, abs=0.2)
    assert (rows["bill"] == 31.17).all()


def test_a_gap_of_few_values_finds_its_base() -> None:
    price = np.round(RNG.gamma(3, 10, N), 2)
    frame = pl.DataFrame({"low": price, "high": np.round(price + RNG.choice([0, 3.9], N), 2)})
    model = arf_dask.fit(frame, rules=["low <= high"], find_rules=False, **OPTIONS)
    rows = model.sample(100, given=pl.DataFrame({"high": [31.17]}), seed=1)
    assert set((rows["high"] - rows["low"]).round(2)) == {0.0, 3.9}


def test_equal_short_floats_have_no_gap() -> None:
    low = pl.Series("low", RNG.normal(10, 5, N), dtype=pl.Float32)
    high = low + pl.Series(np.where(RNG.random(N) < 0.5, 0.0, 1.5), dtype=pl.Float32)
    gap = Gap(Target("high", pl.Float32(), None, -30.0, 50.0), parse_expression("low"), 1, 0)
    frame = pl.DataFrame([low, high.alias("high")])
    assert (gap.forward(frame)["high"] == 0).sum() == (low == high).sum()
    assert gap.inverse(frame.select("low"), gap.forward(frame)).equals(frame["high"])
    assert not gap.resolve(frame, frame, null_is_value=True).contradictory.any()
    model = arf_dask.fit(frame, rules=["low <= high"], **OPTIONS)
    assert model.log_density(frame).is_finite().all()


def test_a_known_date_sets_the_day_of_its_timestamp() -> None:
    at = pl.Series([date(2022, 1, 1) + timedelta(days=int(d)) for d in RNG.integers(0, 900, N)]).cast(pl.Datetime("us"))
    frame = pl.DataFrame({"at": at + pl.Series(RNG.integers(0, 86_400, N) * 1_000_000).cast(pl.Duration("us"))})
    frame = frame.with_columns(day=pl.col("at").dt.date())
    model = arf_dask.fit(frame, rules=["day == date(at)"], **OPTIONS)
    known = frame.select("day").head(50)
    rows = model.sample(4, given=known, seed=1)
    assert (rows["at"].dt.date() == rows["day"]).all()
    assert rows["at"].dt.hour().n_unique() > 12


def test_a_known_start_of_an_hour_sets_the_hour_of_its_timestamp() -> None:
    seconds = RNG.integers(0, 400 * 86_400, N)
    at = pl.Series([datetime(2022, 1, 1) + timedelta(seconds=int(s)) for s in seconds])
    frame = pl.DataFrame({"at": at, "hour": at.dt.truncate("1h")})
    model = arf_dask.fit(frame, rules=["hour == hour_start(at)"], **OPTIONS)
    rows = model.sample(4, given=frame.select("hour").head(50), seed=1)
    assert (rows["at"].dt.truncate("1h") == rows["hour"]).all()
    assert rows["at"].dt.minute().n_unique() > 30


def test_cells_that_no_rule_leaves_a_value_stay_null() -> None:
    low = RNG.integers(0, 100, N)
    frame = pl.DataFrame({"low": low, "high": pl.Series(low + RNG.integers(0, 20, N)).set(pl.Series(low > 50), None)})
    model = arf_dask.fit(frame, rules=["low <= high", "high <= 70"], find_rules=False, **OPTIONS)
    rows = pl.DataFrame({"low": [90, 95], "high": [None, None]}, schema=frame.schema)
    for filled in (*model.impute(rows, draws=2, seed=1), model.impute(rows)):
        assert filled["high"].to_list() == [None, None]


def test_solved_inputs_are_as_frequent_as_those_of_rows_drawn_by_chance() -> None:
    price, count = np.round(RNG.gamma(3, 20, 3_000), 2), RNG.integers(1, 9, 3_000)
    frame = pl.DataFrame({"price": price, "count": count, "total": np.round(price * count, 2)})
    kinds: dict[str, Any] = {"columns": {"count": "numeric"}, "bundles": False}
    model = arf_dask.fit(frame, rules=["total == price * count"], **OPTIONS, **kinds)
    drawn = model.sample(300_000, seed=1)
    # Few rows have such totals, so that prices are solved for; ten times as many values lie in the second interval.
    given = {"total": [(700.0, 710.0), (900.0, 1_000.0)]}
    by_chance = drawn.filter(pl.col("total").is_between(700, 710) | pl.col("total").is_between(900, 1_000))
    assert by_chance.height < 0.02 * drawn.height
    rows = model.sample(3_000, given=given, seed=2)
    assert (rows["total"] > 800).mean() == pytest.approx((by_chance["total"] > 800).mean(), abs=0.05)
    assert rows["count"].mean() == pytest.approx(by_chance["count"].mean(), abs=0.15)


def test_rows_beside_a_formula_are_as_frequent_under_its_result() -> None:
    bill = np.round(RNG.gamma(3, 40, 3_000), 2)
    paid = np.where(RNG.random(3_000) < 0.5, bill, np.round(RNG.gamma(3, 60, 3_000), 2))
    model = arf_dask.fit(pl.DataFrame({"bill": bill, "paid": paid}), **OPTIONS)
    assert [rule.kind for rule in model.rules] == ["formula"]
    drawn = model.sample(500_000, seed=1).filter(pl.col("paid").is_between(300, 302))
    rows = model.sample(1_500, given={"paid": (300.0, 302.0)}, seed=2)
    follows = [(one["paid"] == one["bill"]).mean() for one in (drawn, rows)]
    assert follows[1] == pytest.approx(follows[0], abs=0.08)


def test_the_finest_unknown_factor_is_solved_for() -> None:
    count, price = RNG.integers(1, 9, N), np.round(RNG.gamma(3, 20, N), 2)
    frame = pl.DataFrame({"count": count, "price": price, "total": np.round(price * count, 2)})
    model = arf_dask.fit(frame, rules=["total == count * price"], **OPTIONS)
    rows = model.sample(100, given=frame.select("total").head(5), seed=1)
    assert (rows["total"] - rows["count"] * rows["price"]).abs().max() < 0.0051
    assert rows["count"].n_unique() > 4


def test_a_formula_leaves_the_range_by_no_rounding() -> None:
    target = Target("x", pl.Float64(), None, 0.0, 99.99)
    assert target.formula_units(pl.Series([99.99000000000001, -1e-15, 120.0, None])).to_list() == [
        99.99,
        0.0,
        120.0,
        None,
    ]


def test_a_bound_on_the_upper_column_leaves_an_unknown_lower_one() -> None:
    low = RNG.normal(10, 3, N)
    frame = pl.DataFrame({"low": np.where(RNG.random(N) < 0.2, np.nan, low), "high": low + RNG.gamma(2, 1, N)})
    model = arf_dask.fit(frame, rules=["low <= high"], **OPTIONS)
    given = {"low": float("nan"), "high": (None, 10.0)}
    rows = model.sample(50, given=given, seed=1)
    assert rows["low"].is_nan().all()
    assert rows["high"].max() <= 10.0
    assert model.log_density(rows, given=given).is_finite().all()


def test_a_column_without_values_gets_none_from_an_order() -> None:
    low = np.round(np.random.default_rng(1).gamma(2, 3, 300), 2)
    frame = pl.DataFrame({"x": low, "empty": pl.Series([None] * 300, dtype=pl.Int32), "k": np.arange(300) % 3})
    model = arf_dask.fit(frame, rules=["empty > x"], find_rules=False, trees=3, max_rounds=1, refine=False, seed=1)
    assert model.sample(30, given=frame.select("x").head(10), seed=4)["empty"].is_null().all()


def test_a_date_on_a_grid_is_computed_from_the_end_and_the_length_of_a_period() -> None:
    rng = np.random.default_rng(2)
    start = pl.Series([date(2020, 1, 1) + timedelta(days=7 * int(week)) for week in rng.integers(0, 100, 400)])
    days = pl.Series(rng.integers(0, 9, 400))
    frame = pl.DataFrame({"start": start, "end": start + pl.Series([timedelta(days=d) for d in days]), "days": days})
    rule = "days == in_days(end - start)"
    model = arf_dask.fit(frame, rules=[rule], find_rules=False, trees=3, max_rounds=1, refine=False, seed=1)
    (filled,) = model.impute(frame.head(50).with_columns(start=pl.lit(None, pl.Date)), draws=1, seed=1)
    assert filled.equals(frame.head(50))


def test_imputation_keeps_a_declared_rule_in_rows_that_break_another_rule() -> None:
    rng = np.random.default_rng(1)
    frame = pl.DataFrame({name: rng.integers(0, 50, 400) for name in ("a", "b", "x")})
    frame = frame.with_columns(c=pl.col("a") + pl.col("b"), y=pl.col("x") * 2)
    model = arf_dask.fit(frame, rules=["c == a + b"], trees=3, max_rounds=1, refine=False, seed=1)
    assert sorted(len(rule.columns) for rule in model.rules) == [2, 3]
    nothing = pl.lit(None, pl.Int64)
    known = frame.head(30).with_columns(y=pl.col("y") + 2, a=nothing, b=nothing)
    (filled,) = model.impute(known, draws=1, seed=1)
    assert (filled["a"] + filled["b"]).equals(frame["c"].head(30))


def test_rows_beside_a_formula_keep_their_share_in_frames_of_conditions() -> None:
    rng = np.random.default_rng(1)
    price = np.round(rng.gamma(3, 2, 3_000), 1) + 1
    paid = np.where(rng.random(3_000) < 0.6, price, np.round(rng.gamma(3, 2, 3_000), 1) + 0.5)
    model = arf_dask.fit(pl.DataFrame({"price": price, "paid": paid}), trees=5, max_rounds=1, refine=False, seed=1)
    assert [rule.text for rule in model.rules] == ["paid == price"]
    free = model.sample(100_000, seed=1).filter(pl.col("paid") == 5.0)
    given = model.sample(2_000, given=pl.DataFrame({"paid": [5.0]}), seed=2)
    share, expected = ((rows["paid"] == rows["price"]).mean() for rows in (given, free))
    assert share == pytest.approx(expected, abs=0.06)  # 0.16 above it before


def test_computed_columns_follow_inputs_that_were_solved_for() -> None:
    frame = pl.DataFrame({"a": np.arange(300) % 17, "b": np.arange(300) % 23})
    frame = frame.with_columns(total=pl.col("a") + pl.col("b"), double=pl.col("a") * 2)
    rules = ["total == a + b", "double == a * 2"]
    model = arf_dask.fit(frame, rules=rules, find_rules=False, trees=3, max_rounds=1, refine=False, seed=1)
    rows = model.sample(20, given=pl.DataFrame({"total": [0, 38, 20]}), seed=2)
    assert model.check(rows)["broken"].sum() == 0
    assert rows["total"].to_list() == [total for total in (0, 38, 20) for _ in range(20)]
