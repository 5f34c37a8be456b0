"""Conditions on columns with rules: every row fits, no row is repeated, and NaN is no number."""

import warnings
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.errors import ImpossibleConditionError

N = 3_000
RNG = np.random.default_rng(0)
HOURS = np.clip(RNG.normal(13, 3, N).astype(int), 0, 23)
WHEN = [
    datetime(2022, 1, 3) + timedelta(days=int(day), hours=int(hour), minutes=int(minute))
    for day, hour, minute in zip(RNG.integers(0, 300, N), HOURS, RNG.integers(0, 60, N), strict=True)
]
LOW = RNG.integers(0, 9, N)
FRAME = pl.DataFrame(
    {
        "when": WHEN,
        "kind": np.array(["a", "b"])[RNG.integers(0, 2, N)],
        "x": RNG.normal(size=N),
        "holes": np.where(RNG.random(N) < 0.3, np.nan, RNG.normal(size=N)),
        "low": LOW,
        "high": LOW + RNG.integers(0, 5, N),
    }
)


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    return arf_dask.fit(FRAME, trees=10, seed=1, rules=["low <= high", "holes != low"])


def test_rows_given_two_minutes_are_all_different(model: arf_dask.Model) -> None:
    rows = model.sample(5_000, given={"when": WHEN[:2]}, seed=1)
    assert rows["when"].is_in(WHEN[:2]).all()
    assert rows.n_unique() == 5_000


def test_many_moments_are_still_the_only_ones(model: arf_dask.Model) -> None:
    rows = model.sample(200, given={"when": WHEN[:100]}, seed=1)
    assert rows["when"].is_in(WHEN[:100]).all()


@pytest.mark.filterwarnings("ignore::arf_dask.errors.RuleWarning")
def test_rows_that_cannot_be_found_are_an_error_and_never_repeated() -> None:
    numbers = pl.DataFrame({"a": RNG.normal(size=500), "b": RNG.normal(size=500)})
    model = arf_dask.fit(numbers, trees=5, seed=1, rules=["a * a + b * b >= 15"])
    with pytest.raises(
        ImpossibleConditionError, match=r"only .* of 60,000 rows were found|no row that the model draws"
    ):
        model.sample(60_000, seed=1)


def test_nan_is_neither_above_nor_below_a_number(model: arf_dask.Model) -> None:
    shares = [model.probability({"holes": ends}) for ends in ((0, None), (None, 0), float("nan"))]
    assert shares[0] == pytest.approx((FRAME["holes"].fill_nan(None) >= 0).sum() / N, abs=0.03)
    assert sum(shares) == pytest.approx(1.0, abs=0.005)
    assert model.expect(["holes"])["holes"][0] == pytest.approx(0.0, abs=0.1)


def test_a_frame_of_conditions_gives_the_same_rows_now_and_later(model: arf_dask.Model, tmp_path: Path) -> None:
    conditions = FRAME.select("kind").head(40)
    rows = model.sample(3, given=conditions, seed=5)
    assert rows.equals(model.sample(3, given=conditions, seed=5, frame="lazy").collect())
    model.sample_parquet(tmp_path / "rows", 3, given=conditions, seed=5)
    assert rows.equals(pl.read_parquet(tmp_path / "rows"))


@pytest.mark.filterwarnings("ignore::arf_dask.errors.RuleWarning")
@pytest.mark.parametrize("rule", ["low <= 345", "low == 3", "kind == 'a'", "low >= -1"])
def test_a_rule_against_a_constant_is_saved_and_loaded(rule: str, tmp_path: Path) -> None:
    model = arf_dask.fit(FRAME, trees=5, seed=1, rules=[rule])
    model.save(tmp_path / "m")
    loaded = arf_dask.load(tmp_path / "m")
    assert loaded.sample(50, seed=2).equals(model.sample(50, seed=2))
    assert [found.text for found in loaded.rules] == [found.text for found in model.rules]


def test_the_densities_under_a_bound_of_an_open_gap_belong_to_its_probability() -> None:
    rng = np.random.default_rng(0)
    low = np.round(rng.normal(10, 8, 500), 2)
    frame = pl.DataFrame({"low": low, "high": np.round(low + rng.gamma(1.0, 1.5, 500) + 0.01, 2)})
    model = arf_dask.fit(frame, rules=["low < high"], support="open", trees=4, refine=False, seed=1)
    given = {"high": (2.0, 12.0)}
    rows = model.sample(20, given=given, seed=3)
    differences = model.log_density(rows, given=given) - model.log_density(rows)
    assert differences.to_numpy() == pytest.approx(-np.log(model.probability(given)), abs=0.01)


def test_a_single_number_of_a_column_that_follows_a_formula_in_a_share_of_rows_is_drawn() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"total": np.round(rng.gamma(3, 50, 800), 2), "n": rng.integers(1, 8, 800)})
    other = pl.Series(rng.gamma(3, 50, 800))
    each = (frame["total"] / frame["n"]).zip_with(pl.Series(rng.random(800) < 0.8), other)
    rules = ["each == total / n"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", arf_dask.RuleWarning)
        model = arf_dask.fit(frame.with_columns(each=each), trees=3, max_rounds=1, refine=False, seed=1)
    assert [rule.text for rule in model.rules] == rules
    wanted = model.sample(200, seed=1).filter(pl.col("n") == 2)["each"][0]
    rows = model.sample(20, given={"each": wanted}, seed=2)
    assert rows["each"].unique().to_list() == [wanted]


def test_the_densities_of_bases_given_one_upper_value_sum_to_one() -> None:
    rng = np.random.default_rng(0)
    low = rng.integers(0, 300, 1_500)
    frame = pl.DataFrame({"low": low, "high": low + rng.integers(0, 9, 1_500)})
    model = arf_dask.fit(frame, rules=["low <= high"], trees=5, max_rounds=1, refine=False, seed=1)
    lows = pl.DataFrame({"low": range(301)})
    assert model.log_density(lows, given={"high": 150}).exp().sum() == pytest.approx(1.0, abs=0.1)  # 1.5 before
