"""Sums of any length, shares that add up, and rules that are not taken for more than they are."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.rules.finding import find_rules
from arf_dask.rules.scoring import describe_formula

N = 1_500


def found(frame: pl.DataFrame, n_rows: int | None = None) -> Any:
    return find_rules(frame, (), np.random.default_rng(0), n_rows)


def texts(frame: pl.DataFrame) -> dict[str, float]:
    return {describe_formula(one): one.share for one in found(frame).formulas}


def stars(rng: np.random.Generator) -> dict[str, Any]:
    return {f"stars{i}": rng.negative_binomial(2, 0.05 / i, N) for i in range(1, 7)}


def test_a_total_of_six_columns_is_computed_wherever_it_stands() -> None:
    parts = stars(np.random.default_rng(1))
    total = np.sum(list(parts.values()), axis=0)
    text = "total == stars1 + stars2 + stars3 + stars4 + stars5 + stars6"
    assert texts(pl.DataFrame({**parts, "total": total})) == {text: 1.0}
    assert texts(pl.DataFrame({"total": total, **parts})) == {text: 1.0}


def test_a_total_of_six_columns_may_have_exceptions_and_nulls() -> None:
    rng = np.random.default_rng(2)
    parts = stars(rng)
    total = np.sum(list(parts.values()), axis=0).astype(float)
    total = np.where(rng.random(N) < 0.01, total + 7, total)
    frame = pl.DataFrame({**parts, "total": total}).with_columns(
        pl.when(pl.Series(rng.random(N) < 0.1)).then(None).otherwise("stars3").alias("stars3")
    )
    ((text, share),) = texts(frame).items()
    assert text == "total == stars1 + stars2 + stars3 + stars4 + stars5 + stars6"
    assert share == pytest.approx(0.99, abs=0.01)


def test_the_share_with_the_fewest_zeros_is_what_the_others_leave_of_one() -> None:
    rng = np.random.default_rng(3)
    counts = rng.poisson([3.0, 0.8, 7.0, 1.0, 0.5], (N, 5))
    counts[:, 2] += 1
    shares = np.round(counts / counts.sum(axis=1, keepdims=True), 12)
    frame = pl.DataFrame({name: shares[:, i] for i, name in enumerate("abcde")})
    assert texts(frame) == {"c == 1 - a - b - d - e": 1.0}


def test_a_total_that_holds_a_fee_in_a_group_of_rows_has_a_remainder() -> None:
    rng = np.random.default_rng(4)
    parts = {name: rng.gamma(2, 5 * i, N).round(2) for i, name in enumerate("abcde", start=1)}
    vendor = rng.integers(1, 3, N)
    total = np.round(np.sum(list(parts.values()), axis=0) + np.where(vendor == 2, 2.5, 0), 2)
    assert list(texts(pl.DataFrame({"vendor": vendor, **parts, "total": total}))) == [
        "total == a + b + c + d + e + one_of(0, 2.5)"
    ]


def test_coefficients_are_simple_numbers() -> None:
    rng = np.random.default_rng(5)
    parts = {name: rng.integers(0, 90, N) for name in "abc"}
    points = 3 * parts["a"] + 2 * parts["b"] + 0.5 * parts["c"] + 4
    assert texts(pl.DataFrame({**parts, "points": points})) == {"points == 3 * a + 2 * b + 0.5 * c + 4": 1.0}
    noisy = points * 1.23456789 + rng.normal(0, 0.01, N)
    assert not texts(pl.DataFrame({**parts, "points": noisy}))


def test_drawn_rows_add_up() -> None:
    parts = stars(np.random.default_rng(6))
    frame = pl.DataFrame({"total": np.sum(list(parts.values()), axis=0), **parts})
    drawn = arf_dask.fit(frame, trees=3, max_rounds=1, seed=0, refine=False).sample(500, seed=1)
    assert (drawn["total"] == drawn.select(pl.sum_horizontal(list(parts)))["stars1"]).all()


def test_shares_with_common_denominators_are_no_copies_of_each_other() -> None:
    rng = np.random.default_rng(7)
    whole = rng.integers(12, 40, N)
    counts = np.array([rng.multinomial(n, [0.2] * 5) for n in whole])
    frame = pl.DataFrame({name: np.round(counts[:, i] / whole, 12) for i, name in enumerate("abcde")})
    assert [one.formula for one in found(frame).formulas if one.share < 0.9] == []


def test_coarse_columns_that_depend_on_each_other_are_no_copies() -> None:
    rng = np.random.default_rng(8)
    steps = np.sort(rng.choice(5_000, 100, replace=False))
    at = rng.integers(1, 99, N)
    similar = steps[np.clip(at + rng.integers(-1, 2, N), 0, 99)]  # equal in a third of the rows, else the next step
    assert not texts(pl.DataFrame({"first": steps[at], "second": similar}))
    paid = np.where(rng.random(N) < 0.33, steps[at], steps[rng.integers(0, 100, N)])
    assert list(texts(pl.DataFrame({"first": steps[at], "second": paid}))) == ["second == first"]


def test_columns_that_always_differ_are_told_by_all_rows() -> None:
    rng = np.random.default_rng(9)
    teams = np.array([f"team {i}" for i in range(200)])
    home = rng.integers(0, 200, N)
    away = (home + rng.integers(1, 200, N)) % 200
    frame = pl.DataFrame({"home": teams[home], "away": teams[away]})
    assert found(frame).differences == []  # 8 equal rows are expected
    assert found(frame, n_rows=16 * N).differences == [("home", "away")]


def test_a_formula_with_exceptions_leaves_a_column_to_what_determines_it() -> None:
    rng = np.random.default_rng(10)
    place = rng.integers(0, 60, N)
    states = np.array([f"S{i % 12}" for i in range(60)])
    ending = np.where(rng.random(N) < 0.04, np.roll(states[place], 7), states[place])
    address = [f"{number} Road {end}" for number, end in zip(rng.integers(1, 999, N), ending, strict=True)]
    frame = pl.DataFrame({"address": address, "state": states[place]})
    assert any(text.startswith("state == ") for text in texts(frame))
    hospital = pl.Series("hospital", np.array([f"hospital {i}" for i in range(60)])[place])
    assert not any(text.startswith("state == ") for text in texts(frame.with_columns(hospital)))
