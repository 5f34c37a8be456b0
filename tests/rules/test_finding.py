"""Rules that are found, those that are not, and those that hold only in a share of the rows."""

import datetime as dt
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.rules.finding import find_rules
from arf_dask.rules.scoring import describe_formula


def find(frame: Any, seed: Any = 0) -> Any:
    return find_rules(frame.head(1_500), (), np.random.default_rng(seed))


def texts(frame: Any) -> Any:
    return {describe_formula(one): one.share for one in find(frame).formulas}


def table(n: Any = 1_200, seed: Any = 0) -> Any:
    """Columns without any relation."""
    rng = np.random.default_rng(seed)
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=int(day)) for day in rng.integers(0, 900, n)]
    return rng, pl.DataFrame(
        {
            "price": rng.lognormal(2, 1, n).round(2),
            "count": rng.integers(1, 9, n),
            "rate": (rng.integers(0, 40, n) / 100),
            "weight": rng.normal(70, 10, n),
            "day": days,
            "letters": rng.choice(
                ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "koi", "lynx"], n
            ),
            "number": rng.integers(0, 9_999, n),
        }
    )


FORMULAS = {
    "y == price * count": pl.col("price") * pl.col("count"),
    "y == price * count * (1 - rate)": (pl.col("price") * pl.col("count") * (1 - pl.col("rate"))).round(2),
    "y == price + count": pl.col("price") + pl.col("count"),
    "y == number - count": pl.col("number") - pl.col("count"),
    "y == price * 2.5 + 3": pl.col("price") * 2.5 + 3,
    "y == weight": pl.col("weight"),
    "y == year(day)": pl.col("day").dt.year(),
    "y == month_start(day)": pl.col("day").dt.truncate("1mo"),
    "y == day + days(count)": pl.col("day") + pl.duration(days=pl.col("count")),
    "y == upper(letters)": pl.col("letters").str.to_uppercase(),
    'y == letters + "-" + text(number)': pl.col("letters") + "-" + pl.col("number").cast(pl.String),
    "y == number // 100": pl.col("number") // 100,
    "y == price / weight": pl.col("price") / pl.col("weight"),
}


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_found(text: Any) -> None:
    _, frame = table()
    frame = frame.with_columns(y=FORMULAS[text])
    found = texts(frame)
    assert len(found) == 1
    target = next(iter(find(frame).formulas))
    share = next(iter(found.values()))
    assert share == 1.0
    assert "y" in {target.target, *next(iter(found)).replace("(", " ").replace(")", " ").split()}


@pytest.mark.parametrize("broken", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("text", ["y == price * count", "y == price + count", "y == day + days(count)"])
def test_a_formula_with_exceptions_is_found_with_its_share(text: Any, broken: Any) -> None:
    rng, frame = table()
    frame = frame.with_columns(y=FORMULAS[text])
    wrong = pl.Series(rng.random(frame.height) < broken)
    frame = frame.with_columns(y=pl.when(wrong).then(pl.col("y").shuffle(seed=1)).otherwise("y"))
    share = max(share for one, share in texts(frame).items() if "y" in one)
    assert share == pytest.approx(1 - broken, abs=0.03)


def test_nulls_in_inputs_do_not_hide_a_formula() -> None:
    rng, frame = table()
    frame = frame.with_columns(price=pl.when(pl.Series(rng.random(frame.height) < 0.2)).then(None).otherwise("price"))
    assert texts(frame.with_columns(y=pl.col("price") * pl.col("count"))) == {"y == price * count": 1.0}


def test_a_bill_paid_in_full_is_a_copy_in_a_share_of_the_rows() -> None:
    rng, frame = table()
    frame = frame.with_columns(paid=pl.Series(rng.lognormal(2, 1, frame.height).round(2)))
    full = pl.Series(rng.random(frame.height) < 0.18)
    found = texts(frame.with_columns(paid=pl.when(full).then("price").otherwise("paid")))
    assert list(found) == ["paid == price"]
    assert found["paid == price"] == pytest.approx(0.18, abs=0.04)


def test_postage_is_a_remainder() -> None:
    rng, frame = table()
    postage = pl.Series(rng.choice([0.0, 3.9, 9.9], frame.height, p=[0.5, 0.35, 0.15]))
    found = texts(frame.with_columns(total=(pl.col("price") * pl.col("count") + postage).round(2)))
    assert list(found) == ["total == price * count + one_of(0, 3.9, 9.9)"]


def test_clock_numbers_with_delays_across_midnight() -> None:
    rng, _ = table()
    minutes, delay = rng.integers(0, 1440, 1_200), rng.integers(-20, 300, 1_200)
    later = (minutes + delay) % 1440
    frame = pl.DataFrame(
        {
            "planned": minutes // 60 * 100 + minutes % 60,
            "delay": delay,
            "actual": later // 60 * 100 + later % 60,
        }
    )
    assert list(texts(frame)) == ["actual == clock(clock_minutes(planned) + delay)"]


def test_orders_and_differences() -> None:
    rng, frame = table()
    frame = frame.with_columns(
        low=pl.Series(rng.normal(10, 3, frame.height).round(1)),
        home=pl.Series(rng.choice(list("ABCDEFGH"), frame.height)),
        away=pl.Series(rng.choice(list("ABCDEFGH"), frame.height)),
    )
    frame = frame.with_columns(high=(pl.col("low") + pl.Series(np.abs(rng.normal(0, 4, frame.height)))).round(1))
    found = find(frame.filter(pl.col("home") != pl.col("away")))
    assert found.orders == [("low", "high")]
    assert found.differences == [("home", "away")]
    assert find(frame).differences == []


def unrelated(seed: Any) -> Any:
    """A table of columns that have nothing to do with each other, some of them correlated."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([45, 100, 300, 1_000]))
    common = rng.normal(size=n)
    kinds: list[Any] = [
        lambda: rng.integers(0, 3, n),
        lambda: rng.integers(0, 10, n),
        lambda: rng.integers(0, 1_000, n),
        lambda: rng.normal(size=n),
        lambda: rng.lognormal(size=n).round(2),
        lambda: np.where(rng.random(n) < 0.7, 0, rng.integers(1, 500, n)),
        lambda: (common * 2 + rng.normal(size=n)).round(1),
        lambda: np.full(n, 7),
        lambda: rng.choice(["a", "b", "c", "dd"], n),
        lambda: np.round(20 + 5 * common + 2 * rng.normal(size=n)).astype(int),
        lambda: rng.integers(0, 24, n),
        lambda: rng.random(n).round(int(rng.integers(1, 5))),
    ]
    columns = {f"c{i}": kinds[rng.integers(len(kinds))]() for i in range(int(rng.integers(3, 12)))}
    frame = pl.DataFrame(columns)
    return pl.concat([frame, frame.sample(n, with_replacement=True, seed=1)]) if rng.random() < 0.3 else frame


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.slow)], ids=str)
def test_two_hundred_tables_without_relations_have_no_rules(seeds: range) -> None:
    for seed in seeds:
        found = find(unrelated(seed))
        assert not found.formulas, (seed, [describe_formula(one) for one in found.formulas])
        assert not found.orders, (seed, found.orders)
        assert not found.differences, (seed, found.differences)


def test_an_order_that_the_names_tell_is_found_where_one_column_is_mostly_zero() -> None:
    rng = np.random.default_rng(3)
    start = np.where(rng.random(170) < 0.6, 0.0, rng.integers(1, 90, 170)).astype(float)
    stop = start + 1 + rng.lognormal(4, 1.3, 170).round(0)
    frame = pl.DataFrame({"start": start, "stop": stop, "age": rng.normal(0, 9, 170)})
    assert find_rules(frame, (), rng).orders == [("start", "stop")]
    assert find_rules(frame.rename({"start": "a", "stop": "b"}), (), rng).orders == []


def test_small_tables_have_formulas_and_orders_that_names_imply() -> None:
    rng = np.random.default_rng(8)
    for n_rows in (8, 22, 35):
        start = rng.integers(1900, 2000, n_rows)
        won, lost = rng.integers(100, 5_000, (2, n_rows))
        data = pl.DataFrame({"start": start, "end": start + rng.integers(1, 9, n_rows), "won": won, "lost": lost})
        data = data.with_columns(lead=pl.col("won") - pl.col("lost"))
        model = arf_dask.fit(data, trees=2, seed=1, progress=False)
        texts = [rule.text for rule in model.rules]
        assert "start < end" in texts
        assert ("lead == won - lost" in texts) == (n_rows >= 20)
        assert model.check(model.sample(300, seed=2))["broken"].sum() == 0
