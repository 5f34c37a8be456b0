"""Every row that leaves the program satisfies every exact rule, on every path, with the number of rows asked for."""

import datetime as dt
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import arf_dask
from arf_dask.cli.main import cli
from arf_dask.rules.transforms.gap import Gap

DAY = dt.date(2020, 1, 1)


def orders(n: int = 2_000, seed: int = 0) -> pl.DataFrame:
    """A table with a rule of every kind."""
    rng = np.random.default_rng(seed)
    start = [DAY + dt.timedelta(days=int(day)) for day in rng.integers(0, 700, n)]
    frame = pl.DataFrame(
        {
            "price": rng.lognormal(2, 1, n).round(2),
            "count": rng.integers(1, 9, n),
            "start": start,
            "days": rng.integers(0, 60, n),
            "low": rng.normal(10, 3, n).round(1),
            "bill": rng.lognormal(5, 1, n).round(2),
            "home": rng.choice(list("ABCDEFGH"), n),
            "away": rng.choice(list("ABCDEFGH"), n),
            "month": [dt.date(2000 + int(k) // 12, int(k) % 12 + 1, 1) for k in rng.integers(0, 120, n)],
        }
    )
    paid = pl.Series(rng.lognormal(4, 1, n).round(2))
    frame = frame.with_columns(
        total=(pl.col("price") * pl.col("count")).round(2),
        end=pl.col("start") + pl.duration(days=pl.col("days")),
        high=(pl.col("low") + pl.Series(np.abs(rng.normal(0, 4, n)))).round(1),
        paid=pl.when(pl.Series(rng.random(n) < 0.3)).then("bill").otherwise(paid),
    )
    return frame.filter(pl.col("home") != pl.col("away"))


ORDERS = orders()


@pytest.fixture(scope="module")
def model() -> Any:
    return arf_dask.fit(ORDERS, trees=5, max_rounds=2, seed=1)


def broken(model: Any, rows: pl.DataFrame) -> int:
    counted = model.check(rows).filter((pl.col("share") >= 1.0) | ~pl.col("found"))
    return int(counted["broken"].sum())


def test_a_rule_of_every_kind_is_found(model: Any) -> None:
    assert {rule.text for rule in model.rules} >= {
        "total == price * count",
        "end == start + days(days)",
        "paid == bill",
        "low <= high",
        "home != away",
        "month is the first day of a month",
    }
    assert model.schema.names == ORDERS.columns
    assert "rule: low <= high" in repr(model.schema)


def test_rows_satisfy_the_rules_and_have_the_schema(model: Any) -> None:
    rows = model.sample(5_000, seed=2)
    assert rows.height == 5_000
    assert rows.schema == ORDERS.schema
    assert broken(model, rows) == 0
    assert rows.filter(pl.col("paid") == pl.col("bill")).height / 5_000 == pytest.approx(0.3, abs=0.05)
    for name in ("total", "end", "high"):
        assert ORDERS[name].min() <= rows[name].min()
        assert rows[name].max() <= ORDERS[name].max()


@pytest.mark.parametrize(
    "given",
    [
        {"total": (100, 200)},
        {"total": 50.0},
        {"end": dt.date(2021, 5, 5)},
        {"high": (12, 13), "low": (9, 10)},
        {"high": 12.5},
        {"paid": (100, 150)},
        {"paid": 77.77},
        {"home": "A", "away": "B"},
        {"month": (dt.date(2003, 1, 15), dt.date(2003, 6, 15))},
        [{"total": (10, 20)}, {"count": 3, "home": "C"}],
    ],
    ids=str,
)
def test_conditions_on_any_column_are_met(model: Any, given: Any) -> None:
    rows = model.sample(150, given=given, seed=3)
    assert rows.height == 150
    assert broken(model, rows) == 0
    fits = np.zeros(rows.height, dtype=bool)
    for one in [given] if isinstance(given, dict) else given:
        here = np.ones(rows.height, dtype=bool)
        for name, known in one.items():
            low, high = known if isinstance(known, tuple) else (known, known)
            here &= ((rows[name] >= low) & (rows[name] <= high)).to_numpy()
        fits |= here
    assert fits.all()


def test_a_condition_that_contradicts_a_rule_is_impossible(model: Any) -> None:
    with pytest.raises(arf_dask.ImpossibleConditionError, match="contradicts the rule home != away"):
        model.sample(5, given={"home": "A", "away": "A"}, seed=1)
    with pytest.raises(arf_dask.OptionError, match="no column 'totl'"):
        model.sample(5, given={"totl": 3})


def test_frames_of_conditions_and_imputation(model: Any) -> None:
    known = pl.DataFrame(
        {"total": [30.0, None, 10.0], "count": [3, None, None], "end": [None, dt.date(2021, 1, 1), None]},
        schema={"total": pl.Float64, "count": pl.Int64, "end": pl.Date},
    )
    rows = model.sample(4, given=known, seed=1)
    assert rows["total"][:4].to_list() == [30.0] * 4
    assert rows["price"][0] == 10.0
    assert broken(model, rows) == 0
    rng = np.random.default_rng(0)
    gaps = [
        pl.when(pl.Series(rng.random(100) < 0.4)).then(None).otherwise(pl.col(name)).alias(name)
        for name in ORDERS.columns
    ]
    missing = ORDERS.head(100).with_columns(gaps)
    for filled in (model.impute(missing), *model.impute(missing, draws=2, seed=1)):
        assert filled.null_count().sum_horizontal()[0] == 0
        assert broken(model, filled) == 0


def test_a_computed_column_counts_once_in_the_density(model: Any) -> None:
    rows = ORDERS.head(20)
    whole = model.log_density(rows)
    assert whole.is_finite().all()
    assert whole.to_list() == pytest.approx(model.log_density(rows.drop("total")).to_list())
    assert model.log_density(rows.with_columns(total=pl.col("total") + 1)).is_infinite().all()


def test_answers_about_computed_columns_are_close(model: Any) -> None:
    drawn = model.sample(100_000, seed=9)
    span = float(drawn["total"].max() - drawn["total"].min())
    assert model.expect(["total"])["total"][0] == pytest.approx(drawn["total"].mean(), abs=2e-3 * span)
    assert model.probability({"total": (None, 50)}) == pytest.approx((drawn["total"] <= 50).mean(), abs=5e-3)
    assert model.cdf("end", dt.date(2021, 1, 1)) == pytest.approx(
        (drawn["end"] <= dt.date(2021, 1, 1)).mean(), abs=5e-3
    )
    assert model.probability({"total": (None, 50)}) == model.probability({"total": (None, 50)})


def test_saved_models_data_sets_and_the_command_line(model: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        model.save(place / "m")
        again = arf_dask.load(place / "m")
        assert again.rules == model.rules
        assert again.sample(500, seed=5).equals(model.sample(500, seed=5))
        model.sample_parquet(place / "out", 700, rows_per_file=300, seed=5)
        assert pl.concat(map(pl.read_parquet, sorted((place / "out").glob("part-*")))).equals(model.sample(700, seed=5))
        ORDERS.write_parquet(place / "in.parquet")
        assert CliRunner().invoke(cli, ["check", str(place / "m"), str(place / "in.parquet")]).exit_code == 0
        ORDERS.with_columns(end=pl.col("start").dt.offset_by("-1d")).write_parquet(place / "bad.parquet")
        found = CliRunner().invoke(cli, ["check", str(place / "m"), str(place / "bad.parquet")])
        assert found.exit_code == 1
        assert "rows break it: end == start + days(days)" in found.output


def test_declared_rules_hold_whatever_the_training_rows_do() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "a": rng.normal(10, 3, 500).round(1),
            "b": rng.normal(11, 3, 500).round(1),
            "c": rng.choice(list("xyz"), 500),
            "e": rng.choice(list("xyz"), 500),
            "t": rng.normal(size=500).round(2),
        }
    )
    rules = ["a <= b", pl.col("c") != pl.col("e"), "t == a * 2 - b"]
    with pytest.warns(arf_dask.RuleWarning, match=r"'a <= b' in about \d+ of 500 rows"):
        model = arf_dask.fit(frame, rules=rules, trees=3, max_rounds=1, seed=1)
    assert broken(model, model.sample(1_000, seed=2)) == 0
    assert [rule.found for rule in model.rules] == [False] * 3
    with pytest.raises(arf_dask.DataError, match="strict_rules"):
        arf_dask.fit(frame, rules=rules, strict_rules=True)


def test_rules_are_the_same_in_parts_as_in_one(tmp_path: Path) -> None:
    from arf_dask.data.opening import open_parts
    from arf_dask.rules.learning import learn_relations
    from arf_dask.runtime.progress import Progress
    from arf_dask.runtime.tasks import Threads

    for number in range(4):
        ORDERS[number * 450 : (number + 1) * 450 if number < 3 else ORDERS.height].write_parquet(
            tmp_path / f"{number}.parquet"
        )
    found = []
    for data in (ORDERS, tmp_path):
        with open_parts(data, Threads(1)) as parts:
            options: dict[str, Any] = {"rules": None, "find": True, "strict": False, "keys": (), "fixed": ()}
            found.append(learn_relations(parts, **options, runner=Threads(1), report=Progress()))
    assert found[0] == found[1]


def test_times_with_and_without_a_zone_are_compared_by_the_wall_clock_of_the_zone() -> None:
    hours = pl.Series([dt.datetime(2024, 6, 1) + dt.timedelta(hours=(i * 37) % 900) for i in range(300)])
    waits = pl.Series([dt.timedelta(hours=i % 41) for i in range(300)])
    utc = (hours + waits).dt.replace_time_zone("UTC")
    data = pl.DataFrame({"start": hours.dt.cast_time_unit("ms"), "end": utc, "berlin": utc})
    data = data.with_columns(pl.col("berlin").dt.convert_time_zone("Europe/Berlin"))
    model = arf_dask.fit(data, trees=3, rules=["start <= end", "min(start, end) <= berlin"], seed=0)
    found = model.sample(500, seed=1)
    assert model.check(found)["broken"].sum() == 0
    assert (found["end"].dt.replace_time_zone(None) >= found["start"]).all()
    assert (found["berlin"] == found["end"].dt.convert_time_zone("Europe/Berlin")).all()
    assert found.schema == data.schema


def test_one_row_for_every_rule_listed_also_of_columns_that_go_together() -> None:
    rng = np.random.default_rng(0)
    city, item = rng.integers(0, 12, 1_000), rng.integers(0, 9, 1_000)
    table = pl.DataFrame({"city": city, "land": np.array(list("ABCD"))[city % 4], "item": item, "price": item % 3})
    table = table.with_columns(pl.col("city", "item").cast(pl.String), pl.col("price").cast(pl.String))
    model = arf_dask.fit(table, trees=2, max_rounds=1, seed=1, rules=[["city", "land"]])
    counted = model.check(model.sample(500, seed=2))
    assert counted["rule"].to_list() == [rule.text for rule in model.rules] == ["city + land", "item + price"]
    assert counted.select("found", "rows", "broken").rows() == [(False, 500, 0), (True, 500, 0)]
    wrong = table.head(10).with_columns(land=pl.Series(["Z", *table["land"][1:10]]), price=pl.lit("0"))
    off = int((table["price"][:10] != "0").sum())
    assert model.check(wrong).select("rows", "broken").rows() == [(10, 1), (10, off)]
    assert model.check(wrong.drop("price")).select("rows", "broken").rows() == [(10, 1), (None, None)]


def test_clock_numbers_follow_the_one_they_depend_on_across_midnight(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    start, lasts = rng.integers(0, 1_440, 2_000), rng.choice([65, 90, 240], 2_000) + rng.integers(0, 12, 2_000)
    end = (start + lasts) % 1_440
    table = pl.DataFrame({"start": start // 60 * 100 + start % 60, "end": end // 60 * 100 + end % 60, "x": lasts // 30})
    model = arf_dask.fit(table, trees=5, max_rounds=2, seed=1)
    model.save(tmp_path / "m")
    for fitted in (model, arf_dask.load(tmp_path / "m")):
        rows = fitted.sample(3_000, seed=2)
        minutes = [rows[name] // 100 * 60 + rows[name] % 100 for name in ("start", "end")]
        assert (rows["end"] % 100 < 60).all()
        assert ((minutes[1] - minutes[0]) % 1_440).is_between(65, 251).all()
    assert fitted.sample(50, given={"end": 15}, seed=3)["end"].to_list() == [15] * 50
    assert fitted.log_density(table).is_finite().all()
    known = pl.DataFrame({"start": [2_355, None], "end": [None, 30]}, schema={"start": pl.Int64, "end": pl.Int64})
    filled = fitted.impute(known, draws=1, seed=1)[0]
    assert filled["start"][0] == 2_355
    assert filled["end"][0] < 420


def test_the_upper_column_of_an_order_keeps_its_multiples() -> None:
    rng = np.random.default_rng(0)
    start = rng.integers(0, 200, 600) * 0.25
    table = pl.DataFrame({"start": start, "stop": start + rng.integers(1, 90, 600) * 0.25, "x": rng.normal(size=600)})
    model = arf_dask.fit(table, trees=3, max_rounds=1, seed=1)
    assert "start < stop" in {rule.text for rule in model.rules}
    rows = model.sample(1_000, seed=2)
    assert (rows["stop"] % 0.25 == 0).all()
    assert (rows["start"] < rows["stop"]).all()


@pytest.mark.parametrize(("largest_share", "is_gap"), [(0.75, False), (1.0, True)])
def test_only_orders_that_rows_would_break_are_modelled_by_their_gap(largest_share: float, is_gap: bool) -> None:
    rng = np.random.default_rng(0)
    high = rng.lognormal(3, 1, 1_500)
    table = pl.DataFrame(
        {"low": (high * rng.uniform(0.1, largest_share, 1_500)).round(3), "high": high.round(3) + 0.001}
    )
    model = arf_dask.fit(table, trees=5, max_rounds=1, seed=1)
    assert [rule.columns for rule in model.rules if rule.kind == "order"] == [("low", "high")]
    assert isinstance(model._fitted.relations.targets.get("high"), Gap) == is_gap
    rows = model.sample(5_000, seed=2)
    assert (rows["low"] <= rows["high"]).all()
    assert model.sample(50, given={"high": (None, 10)}, seed=3)["high"].max() <= 10


def test_a_table_of_very_many_columns_says_that_rules_are_not_looked_for(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    table = pl.DataFrame({f"c{i}": rng.integers(0, 2, 60) for i in range(401)})
    model = arf_dask.fit(table, trees=1, max_rounds=1, seed=1, bundles=False)
    assert [record.message for record in caplog.records if "looked for" in record.message] == [
        "rules are not looked for in 401 columns, more than 400. Declare those that matter with rules=."
    ]
    assert model.rules == []


def test_a_declared_remainder_that_rows_break_still_fits() -> None:
    rng = np.random.default_rng(3)
    price = np.round(rng.gamma(2, 10, 60), 1)
    total = np.round(rng.normal(50, 20, 60), 2)
    data = pl.DataFrame({"price": price, "total": total})
    with pytest.warns(arf_dask.RuleWarning, match="training rows break"):
        model = arf_dask.fit(data, rules=["total == price + one_of(0, 3.9)"], find_rules=False, trees=2, progress=False)
    rows = model.sample(200, seed=1)
    assert rows.height == 200
    assert model.check(rows)["broken"].sum() == 0


def test_columns_that_are_ordered_and_often_equal_keep_both() -> None:
    rng = np.random.default_rng(4)
    net = np.round(rng.gamma(3, 10, 600), 2)
    gross = np.round(net + np.where(rng.random(600) < 0.3, 0, rng.gamma(2, 4, 600)), 2)
    model = arf_dask.fit(pl.DataFrame({"net": net, "gross": gross}), trees=3, seed=1, progress=False)
    assert [rule.text for rule in model.rules] == ["net <= gross"]
    rows = model.sample(2_000, seed=2)
    assert (rows["net"] <= rows["gross"]).all()
    assert 0.2 < (rows["net"] == rows["gross"]).mean() < 0.4


def test_dates_stored_as_text_keep_their_order() -> None:
    rng = np.random.default_rng(5)
    start = rng.integers(0, 700, 400)
    days = pl.DataFrame({"opened": start, "settled": start + rng.integers(0, 30, 400)}).cast(pl.Int32)
    data = days.with_columns((pl.all() + 19_000).cast(pl.Date).dt.to_string("%Y-%m-%d"), amount=rng.normal(0, 1, 400))
    model = arf_dask.fit(data, trees=3, seed=1, progress=False)
    assert "opened <= settled" in [rule.text for rule in model.rules]
    rows = model.sample(500, seed=2)
    assert rows.height == 500
    assert (rows["opened"] <= rows["settled"]).all()


def test_clock_numbers_outside_their_formula_are_clock_numbers() -> None:
    rng = np.random.default_rng(6)
    planned, delay = rng.integers(0, 1_440, 3_000), rng.integers(-5, 90, 3_000).astype(np.float64)
    actual = (planned + delay.astype(int)) % 1_440
    data = pl.DataFrame({"planned": _clock(planned), "actual": _clock(actual), "delay": delay})
    data = data.with_columns(delay=pl.when(pl.Series(rng.random(3_000) < 0.2)).then(None).otherwise(pl.col("delay")))
    model = arf_dask.fit(data, trees=3, seed=1, progress=False)
    rows = model.sample(3_000, seed=2)
    assert rows["delay"].null_count() > 300
    assert (rows["actual"] % 100).max() < 60


def _clock(minutes: Any) -> Any:
    return minutes // 60 * 100 + minutes % 60


def test_a_declared_order_leaves_declared_groups_together() -> None:
    rng = np.random.default_rng(7)
    data = pl.DataFrame({"size": rng.integers(0, 20, 150), "grade": rng.choice(list("uvw"), 150)})
    data = data.with_columns(low=pl.col("size") - pl.Series(rng.integers(0, 5, 150)))
    rules = ["low <= size", ["size", "grade"]]
    model = arf_dask.fit(data, rules=rules, find_rules=False, trees=3, seed=1, progress=False)
    rows = model.sample(500, seed=2)
    assert model.check(rows)["broken"].sum() == 0
    assert rows.join(data.unique(), on=["size", "grade"], how="anti").height == 0


def test_columns_of_mixed_decimals_join_no_bundle_whose_combinations_rounding_would_break() -> None:
    rng = np.random.default_rng(0)
    known = rng.random(420) < 0.75
    decimals = rng.choice([0, 1, 2], 240, p=[0.36, 0.26, 0.38])
    values = [round(value, int(digits)) for value, digits in zip(rng.gamma(4, 30, 240), decimals, strict=True)]
    measure, flag = rng.choice(values, 420), (rng.random(420) < 0.08).astype(int)
    table = pl.DataFrame({"flag": flag, "measure": measure})
    table = table.with_columns(pl.when(pl.Series(known)).then(pl.col("flag", "measure")))
    model = arf_dask.fit(table, trees=3, max_rounds=1, seed=1)
    assert any(rule.columns == ("measure",) for rule in model.rules)
    assert model.check(model.sample(1_000, seed=2))["broken"].fill_null(0).sum() == 0
