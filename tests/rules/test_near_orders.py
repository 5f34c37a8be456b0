"""Orders that a few rows break are modelled by signed gaps; a gap has one base."""

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.rules.finding import find_rules

N = 1_500


def fitted(frame: pl.DataFrame) -> Any:
    return arf_dask.fit(frame, trees=3, max_rounds=1, seed=0, refine=False)


def orders(broken: float, seed: int = 0) -> pl.DataFrame:
    """Orders that are shipped some hours after they are approved; in some rows, before."""
    rng = np.random.default_rng(seed)
    approved = rng.integers(0, 500 * 86_400, N)
    hours = np.where(rng.random(N) < broken, -rng.exponential(5, N), 0.5 + rng.exponential(50, N))
    start = pl.lit(datetime(2020, 1, 1))
    return pl.DataFrame({"approved": approved, "hours": hours, "group": rng.choice(["a", "b"], N)}).select(
        approved=start + pl.duration(seconds="approved"),
        shipped=start + pl.duration(seconds=pl.col("approved") + (pl.col("hours") * 3_600).cast(pl.Int64)),
        group="group",
    )


@pytest.mark.parametrize("broken", [0.005, 0.03])
def test_exceptions_of_an_order_keep_their_share(broken: float) -> None:
    frame = orders(broken)
    model = fitted(frame)
    (rule,) = [rule for rule in model.rules if rule.kind == "order"]
    assert rule.text == "approved <= shipped"
    assert rule.share == pytest.approx(1 - broken, abs=0.01)
    drawn = model.sample(4_000, seed=1)
    assert (drawn["approved"] > drawn["shipped"]).mean() == pytest.approx(1 - rule.share, abs=0.01)


def test_columns_that_are_no_order_in_most_rows_have_none() -> None:
    frame = orders(0.2)
    assert find_rules(frame, (), np.random.default_rng(0)).orders == []


def test_counts_that_are_equal_in_some_rows_and_ordered_in_nearly_all_have_a_signed_gap() -> None:
    rng = np.random.default_rng(3)
    late = rng.negative_binomial(2, 0.05, N)
    very_late = np.where(rng.random(N) < 0.3, late, rng.binomial(late, 0.6))
    very_late = np.where(rng.random(N) < 0.005, late + 2, very_late)
    model = fitted(pl.DataFrame({"very_late": very_late, "late": late}))
    drawn = model.sample(4_000, seed=1)
    assert (drawn["very_late"] > drawn["late"]).mean() == pytest.approx(0.005, abs=0.01)
    assert (drawn["very_late"] == drawn["late"]).mean() == pytest.approx(np.mean(very_late == late), abs=0.05)


def test_a_gap_has_one_base_and_a_column_beside_it_is_modelled_below() -> None:
    rng = np.random.default_rng(4)
    low = np.exp(rng.normal(4, 1, N)).round(2)
    close = (low * (1 + rng.exponential(0.01, N))).round(2)
    opened = (low * (1 + rng.exponential(0.01, N))).round(2)
    adjusted = np.where(rng.random(N) < 0.4, close, (close * (1 - rng.exponential(0.2, N).clip(0, 0.9)))).round(2)
    frame = pl.DataFrame({"low": low, "open": opened, "close": close, "adjusted": adjusted})
    model = fitted(frame)
    drawn = model.sample(4_000, seed=1)
    for lower, upper in (("low", "open"), ("low", "close"), ("adjusted", "close")):
        assert (drawn[lower] <= drawn[upper]).all()
    assert (drawn["close"] == drawn["low"]).mean() == pytest.approx(np.mean(close == low), abs=0.03)
    assert (drawn["adjusted"] == drawn["close"]).mean() == pytest.approx(np.mean(adjusted == close), abs=0.06)


def test_a_gap_that_varies_as_much_as_its_column_is_no_gap() -> None:
    rng = np.random.default_rng(5)
    games = 1 + rng.exponential(40, N).astype(int)
    strikeouts = (games * rng.uniform(0, 1, N)).round().astype(int)
    strikeouts = np.where(rng.random(N) < 0.015, games + 3, strikeouts)
    model = fitted(pl.DataFrame({"games": games, "strikeouts": strikeouts}))
    assert [rule.text for rule in model.rules if rule.kind == "order"] == []


def test_a_clear_order_is_a_gap_however_much_that_varies() -> None:
    rng = np.random.default_rng(6)
    built = rng.integers(1900, 2010, N)
    rebuilt = np.where(rng.random(N) < 0.5, built, np.maximum(built, rng.integers(1950, 2010, N)))
    rebuilt[7] = built[7] - 1
    model = fitted(pl.DataFrame({"built": built, "rebuilt": rebuilt}))
    drawn = model.sample(4_000, seed=1)
    assert (drawn["rebuilt"] < drawn["built"]).mean() < 0.01
    assert (drawn["rebuilt"] == drawn["built"]).mean() == pytest.approx(np.mean(rebuilt == built), abs=0.05)
