"""Rules and conditions that once failed: each is answered, or refused with what to do."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask import ImpossibleConditionError, ModelFormatError, OptionError
from arf_dask.rules.expressions import Name
from arf_dask.rules.transforms.formula import Computed

ROWS = 200


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "a": rng.integers(0, 300, ROWS),
            "b": rng.integers(0, 400, ROWS),
            "c": rng.choice(["x", "y", "z"], ROWS),
            "f": rng.normal(size=ROWS),
        }
    )


def fitted(frame: pl.DataFrame, **options: Any) -> arf_dask.Model:
    return arf_dask.fit(frame, trees=3, max_rounds=1, seed=1, **options)


@pytest.mark.filterwarnings("ignore::arf_dask.RuleWarning")
@pytest.mark.parametrize("rule", ["a <= 345", "a == 3", "c == 'x'", "f >= -9.5"])
def test_a_rule_against_a_constant_survives_save_and_load(rule: str, tmp_path: Path) -> None:
    model = fitted(table(), rules=[rule])
    model.save(tmp_path / "model")
    loaded = arf_dask.load(tmp_path / "model")
    rows = loaded.sample(50, seed=2)
    assert rows.equals(model.sample(50, seed=2))
    assert loaded.check(rows)["broken"].sum() == 0


def test_an_infinite_number_in_a_rule_is_refused() -> None:
    with pytest.raises(OptionError, match="infinite"):
        fitted(table(), rules=["a <= 1e999"])


def test_a_model_that_cannot_be_read_again_is_not_saved_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted(table().with_columns(b=pl.col("a") * 2))
    model.save(tmp_path / "model")
    before = model.sample(5, seed=1)
    step = next(step for step in model._fitted.relations.transforms if isinstance(step, Computed))
    monkeypatch.setitem(step.__dict__, "formula", Name(step.target.name))
    with pytest.raises(ModelFormatError, match="not saved"):
        model.save(tmp_path / "model")
    assert arf_dask.load(tmp_path / "model").sample(5, seed=1).equals(before)


# Conditions and densities

N = 2_000
RNG = np.random.default_rng(7)
DAYS = RNG.integers(0, 300, N)
HOURS = np.clip(RNG.normal(13, 3, N).astype(int), 0, 23)
WHEN = [
    datetime(2022, 1, 3) + timedelta(days=int(day), hours=int(hour), minutes=int(minute))
    for day, hour, minute in zip(DAYS, HOURS, RNG.integers(0, 60, N), strict=True)
]
LOW = RNG.integers(0, 10, N)
KINDS = ["x", "y", "z"]
SHOP = pl.DataFrame(
    {
        "when": WHEN,
        "half": RNG.integers(0, 20, N) * 3.5,
        "clock": HOURS * 100 + RNG.integers(0, 60, N),
        "day": [str(date(2022, 1, 1) + timedelta(days=int(i))) for i in DAYS],
        "kind": RNG.choice(KINDS, N, p=[0.5, 0.3, 0.2]),
        "low": LOW,
        "high": LOW + RNG.integers(0, 8, N),
    }
)


@pytest.fixture(scope="module")
def shop() -> arf_dask.Model:
    return arf_dask.fit(SHOP, trees=10, seed=1, rules=["low <= high"])


def test_a_point_on_two_grids_and_a_level_has_a_probability(shop: arf_dask.Model) -> None:
    point = {"half": 3.5, "kind": "y", "clock": int(SHOP["clock"][0])}
    exact = shop.probability(point)
    parts = [
        shop.probability({"half": 3.5}),
        shop.probability({"kind": "y"}),
        shop.probability({"clock": point["clock"]}),
    ]
    assert 0 < exact < min(parts)
    # The columns are independent of each other.
    assert exact == pytest.approx(np.prod(parts), rel=0.5)


@pytest.mark.parametrize("name", ["half", "clock", "when", "day", "high"])
def test_probabilities_of_what_a_column_can_be_sum_to_one(shop: arf_dask.Model, name: str) -> None:
    values = sorted(SHOP[name].unique().to_list())
    if name == "day":
        parts = [shop.probability({name: values[:100]}), shop.probability({name: values[100:]})]
        missing_days = 1 - len(values) / 300
        assert 0.97 - missing_days < sum(parts) <= 1 + 1e-9
        return
    middle = values[len(values) // 3]
    above = shop.probability({name: arf_dask.Interval(middle, None, closed="none")})
    assert shop.probability({name: (None, middle)}) + above == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    "given",
    [
        {"when": WHEN[:2]},
        {"half": (3.5, 21), "clock": int(SHOP["clock"][0])},
        {"day": SHOP["day"][:3].to_list()},
        {"high": 5},
        [{"low": 2}, {"high": (3, 4), "kind": "x"}],
    ],
    ids=str,
)
def test_rows_drawn_under_a_condition_have_a_density_under_it(shop: arf_dask.Model, given: Any) -> None:
    rows = shop.sample(40, given=given, seed=1)
    assert shop.log_density(rows, given=given).is_finite().all()
    # A density given the condition, not of the rows and the condition.
    levels = pl.DataFrame({"kind": KINDS})
    assert np.exp(shop.log_density(levels, given=given).to_numpy()).sum() == pytest.approx(1.0, abs=0.05)


def test_impossible_conditions_are_refused_with_what_is_possible(shop: arf_dask.Model) -> None:
    with pytest.raises(ImpossibleConditionError, match="1275 cannot occur: clock is a clock number"):
        shop.sample(5, given={"clock": 1275})
    with pytest.raises(ImpossibleConditionError, match=r"280\.0 is outside the observed range, 0\.0 to 66\.5"):
        shop.sample(5, given={"half": (280, 280)})
    with pytest.raises(ImpossibleConditionError, match="12 is outside the observed range, 0 to 9"):
        shop.probability({"kind": "x"}, given={"low": 12})
    with pytest.raises(ImpossibleConditionError):
        shop.sample(5, given={"low": 10**400})
    assert shop.probability({"low": 10**400}) == 0.0


def test_a_rare_condition_on_a_gap_is_answered(shop: arf_dask.Model) -> None:
    drawn = shop.sample(200_000, seed=3).filter((pl.col("high") == 16) & (pl.col("low") == 9))
    share = (drawn["kind"] == "x").mean()
    assert shop.probability({"kind": "x"}, given={"high": 16, "low": 9}) == pytest.approx(share, abs=0.1)
    assert (shop.sample(3_000, given={"high": 16}, seed=1)["high"] == 16).all()


def test_twenty_thousand_choices_are_a_condition(shop: arf_dask.Model) -> None:
    assert shop.probability({"high": list(range(20_000))}) == pytest.approx(1.0)
    instants = [datetime(2022, 1, 1) + timedelta(minutes=i) for i in range(20_000)]
    share = SHOP["when"].is_in(instants).mean()
    assert shop.probability({"when": instants}) == pytest.approx(share, abs=0.02)


# Imputation

PRICES = pl.DataFrame(
    {"qty": RNG.integers(1, 9, N), "price": np.round(RNG.gamma(3, 9, N), 2), "kind": RNG.choice(["u", "v"], N)}
).with_columns(total=(pl.col("qty") * pl.col("price")).round(2))


@pytest.mark.parametrize("column", ["qty", "price", "total"])
def test_a_formula_holds_in_imputed_rows_although_its_columns_had_nulls(column: str) -> None:
    lost = pl.Series(RNG.random(N) < 0.1)
    holes = [column] if column == "total" else [column, "total"]
    training = PRICES.with_columns(pl.when(~lost).then(name).alias(name) for name in holes)
    model = fitted(training, rules=["total == qty * price"])
    for names in (["total"], ["qty"], ["qty", "total"], ["qty", "price", "total"]):
        rows = PRICES.head(100).with_columns(pl.lit(None, PRICES.schema[name]).alias(name) for name in names)
        for imputed in (model.impute(rows), *model.impute(rows, draws=1, seed=2)):
            assert imputed.null_count().sum_horizontal()[0] == 0
            assert model.check(imputed)["broken"].to_list() == [0]
    assert model.sample(1, given=training.drop("kind").head(100), seed=1).height == 100


def test_an_imputed_timestamp_keeps_its_known_hour_and_month() -> None:
    training = pl.DataFrame({"at": WHEN, "x": RNG.normal(size=N)}).with_columns(
        hour=pl.col("at").dt.hour(), month=pl.col("at").dt.month()
    )
    model = fitted(training)
    rows = training.head(100).with_columns(at=pl.lit(None, pl.Datetime("us")))
    for imputed in (model.impute(rows), *model.impute(rows, draws=1, seed=2)):
        assert imputed["at"].dt.hour().to_list() == rows["hour"].to_list()
        assert imputed["at"].dt.month().to_list() == rows["month"].to_list()


def test_a_cell_that_can_only_be_null_stays_null() -> None:
    guest = RNG.random(N) < 0.2
    ages = pl.Series(np.clip(RNG.normal(42, 14, N), 18, 90).astype(int))
    training = pl.DataFrame({"guest": guest, "age": ages, "n": RNG.integers(0, 5, N)}).with_columns(
        age=pl.when(~pl.col("guest")).then("age")
    )
    model = fitted(training)
    rows = training.head(300).with_columns(n=pl.lit(None, pl.Int64))
    unknown = rows.with_columns(age=pl.lit(None, pl.Int64))
    for imputed in (model.impute(unknown), *model.impute(unknown, draws=1, seed=2)):
        assert imputed["n"].null_count() == 0
        assert imputed["age"].is_null().to_list() == rows["guest"].to_list()
        assert model.check(imputed)["broken"].fill_null(0).sum() == 0


def test_rows_without_a_known_cell_are_imputed(shop: arf_dask.Model) -> None:
    rows = SHOP.head(3).with_columns(pl.lit(None, dtype).alias(name) for name, dtype in SHOP.schema.items())
    assert shop.impute(rows).null_count().sum_horizontal()[0] == 0
    assert shop.impute(rows.head(0)).height == 0


# Densities of drawn rows


@pytest.mark.parametrize("support", ["observed", "open"])
@pytest.mark.parametrize("dtype", [pl.Float16, pl.Float32, pl.Float64, pl.Int64, pl.Decimal(10, 2)], ids=str)
def test_drawn_and_training_rows_of_an_order_have_a_density(dtype: Any, support: Any) -> None:
    low = RNG.gamma(2, 10, N)
    gap = np.where(RNG.random(N) < 0.1, 0, RNG.gamma(1, 5, N))
    frame = pl.DataFrame({"low": low, "high": low + gap, "when": WHEN}).with_columns(
        pl.col("low", "high").round(2).cast(dtype)
    )
    model = fitted(frame, rules=["low <= high"], support=support)
    rows = model.sample(5_000, seed=1)
    assert rows.null_count().sum_horizontal()[0] == 0
    assert model.check(rows)["broken"].to_list() == [0]
    assert np.isneginf(model.log_density(rows).to_numpy()).mean() <= 0.001
    assert model.log_density(frame).is_finite().all()


# Declared bundles, texts, names and numbers of any size


@pytest.mark.parametrize("rule", [["kind", "low"], ["low", "half"]])
def test_a_bundle_that_is_declared_twice_is_saved(rule: list[str], tmp_path: Path) -> None:
    model = fitted(SHOP.select("kind", "low", "half"), bundles=[["kind", "low"]], rules=[rule])
    assert model.schema.bundles == [["kind", "low", "half"] if "half" in rule else ["kind", "low"]]
    model.save(tmp_path / "model")
    assert arf_dask.load(tmp_path / "model").sample(20, seed=1).equals(model.sample(20, seed=1))


def test_texts_that_join_two_others_are_found() -> None:
    people = pl.DataFrame({"first": RNG.choice(["Ann", "Bob", "Cy"], 400), "last": RNG.choice(["Ng", "Ox"], 400)})
    people = people.with_columns(full=pl.col("first") + " " + pl.col("last"))
    for rules in (None, ["full == first + ' ' + last"]):
        model = fitted(people, rules=rules)
        rows = model.sample(200, seed=1)
        assert (rows["full"] == rows["first"] + " " + rows["last"]).all()
        known = people.head(20).with_columns(last=pl.lit(None, pl.String))
        assert model.impute(known)["last"].to_list() == people["last"].head(20).to_list()


@pytest.mark.filterwarnings("ignore::arf_dask.RuleWarning")
@pytest.mark.parametrize(
    ("columns", "rules"),
    [
        (["a", "b"], ["a <= 300", "b <= 400"]),
        (["a"], ["a <= 300"]),
        (["a", "b"], ["a <= min(b, 60)"]),
        (["a", "b"], ["a <= " + "9" * 300]),
    ],
    ids=str,
)
def test_rules_against_constants_and_extremes_hold(columns: list[str], rules: list[str]) -> None:
    frame = table().with_columns(b=pl.col("b").clip(300))
    frame = frame.with_columns(a=pl.min_horizontal("a", 60) if "min" in rules[0] else "a")
    model = fitted(frame.select(columns), rules=rules)
    assert model.check(model.sample(200, seed=1))["broken"].sum() == 0


def test_names_that_look_like_patterns_are_names() -> None:
    frame = table().rename({"a": "^x.*$", "b": "*"}).with_columns((pl.col("^x.*$") + 5).alias("y"))
    frame = pl.DataFrame({"^x.*$": RNG.integers(0, 50, ROWS), "*": RNG.integers(50, 99, ROWS), "c": frame["c"]})
    model = fitted(frame, rules=["`^x.*$` <= `*`"])
    rows = model.sample(100, seed=1)
    assert rows.columns == frame.columns
    assert model.check(rows)["broken"].to_list() == [0]
    assert model.log_density(rows).is_finite().all()


@pytest.mark.parametrize("dtype", [pl.Int128, pl.UInt64, pl.UInt128], ids=str)
def test_orders_of_wide_integers_hold(dtype: Any) -> None:
    low = [2**63 + int(value) if dtype == pl.UInt64 else int(value) * 10**25 for value in RNG.integers(0, 50, ROWS)]
    gaps = [int(value) if dtype == pl.UInt64 else int(value) * 10**24 for value in RNG.integers(0, 99, ROWS)]
    high = [one + gap for one, gap in zip(low, gaps, strict=True)]
    frame = pl.DataFrame({"low": pl.Series(low, dtype=dtype), "high": pl.Series(high, dtype=dtype)})
    model = fitted(frame, rules=["low <= high"])
    rows = model.sample(200, seed=1)
    assert (rows["low"] <= rows["high"]).all()
    assert rows.schema == frame.schema


def test_orders_beside_a_key_of_a_small_type_hold() -> None:
    frame = pl.DataFrame({"id": pl.Series(range(120), dtype=pl.Int8), "low": LOW[:120], "high": LOW[:120] + 3})
    model = fitted(frame, keys=["id"], rules=["low <= high"])
    rows = model.sample(130, seed=1)
    assert rows.height == 130
    assert model.check(rows)["broken"].fill_null(0).sum() == 0


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("c == pad(c, 1000000000000)", "up to 10,000"),
        ("f == round(f, 1000000)", "up to 10,000"),
        ("a <= " + " + ".join(["b"] * 3_000), "Use at most"),
        ("a <= " + " + ".join(["b"] * 2_000), "Use at most"),
        ("a <= " + "(" * 90 + "b" + ")" * 90, "more than 50 brackets"),
        ("c == '\ud800'", "lone surrogates"),
    ],
    ids=["pad", "round", "characters", "terms", "brackets", "surrogate"],
)
def test_rules_that_cannot_be_computed_are_refused(rule: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        fitted(table(), rules=[rule])
