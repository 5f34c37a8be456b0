from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

from arf_dask.schema.bundles import (
    combine,
    find_bundles,
    mutual_information,
    screen_pairs,
    screening_rows,
    shannon_entropy,
)
from arf_dask.schema.discrete import Discrete
from arf_dask.schema.learning import infer_schema

SEED = 5


def discrete(values: Any) -> Discrete:
    found, ids = np.unique(values, return_inverse=True)
    return Discrete(ids.astype(np.int32), len(found))


def bundles(frame: pl.DataFrame) -> list[set[str]]:
    return [set(names) for names in infer_schema(frame, kinds={}, keys=[]).bundles]


def random() -> Any:
    return np.random.default_rng(SEED)


def test_entropy_and_mutual_information_of_small_tables() -> None:
    coin, same = discrete([0, 0, 1, 1]), discrete([1, 1, 0, 0])
    other = discrete([0, 1, 0, 1])
    assert shannon_entropy(np.array([1, 1, 2])) == pytest.approx(1.5 * np.log(2))
    assert shannon_entropy(np.array([4, 0])) == 0
    assert mutual_information(coin, same) == pytest.approx(np.log(2))
    assert mutual_information(coin, other) == pytest.approx(0)
    many = discrete(np.arange(4))
    assert mutual_information(coin, many) == pytest.approx(np.log(2))


def test_combined_columns_number_the_combinations_that_occur() -> None:
    both = combine([discrete(["a", "a", "b", "b", "a"]), discrete([1, 2, 2, 2, 1])])
    assert both.n_values == 3
    assert both.ids.tolist() == [0, 1, 2, 2, 0]


def test_combining_many_long_columns_does_not_overflow() -> None:
    rng = random()
    columns = [Discrete(rng.permutation(3_000).astype(np.int32), 3_000) for _ in range(8)]
    assert combine(columns).n_values == 3_000


def test_sampled_rows_are_distinct_ascending_and_repeat() -> None:
    assert screening_rows(5).tolist() == [0, 1, 2, 3, 4]
    some = screening_rows(100_000, 50)
    assert len(some) == 50
    assert np.all(np.diff(some) > 0)
    assert some[-1] < 100_000
    assert np.array_equal(some, screening_rows(100_000, 50))


def test_pairs_of_few_and_of_many_values_have_the_same_strength() -> None:
    # The same relation seen by the matrix product (up to 32 values) and pair by pair (more).
    rng = random()
    group = rng.integers(0, 4, 3_000)
    [few] = screen_pairs({0: discrete(group), 1: discrete(group * 8 + rng.integers(0, 8, 3_000))})
    [many] = screen_pairs({0: discrete(group), 1: discrete(group * 20 + rng.integers(0, 20, 3_000))})
    assert few.strength == pytest.approx(1, abs=0.02)
    assert many.strength == pytest.approx(1, abs=0.02)
    assert few.hangs_together
    assert many.hangs_together


def test_a_sku_goes_with_its_category_and_its_price() -> None:
    rng = random()
    sku = rng.integers(0, 40, 1_500)
    frame = pl.DataFrame(
        {
            "sku": [f"S{number:02}" for number in sku],
            "category": np.array(["toys", "food", "tools"])[sku % 3],
            "price": np.round(rng.random(40) * 50, 2)[sku],
            "quantity": rng.integers(1, 9, 1_500),
        }
    )
    assert bundles(frame) == [{"sku", "category", "price"}]


def test_a_warehouse_and_a_product_go_with_their_shelf() -> None:
    rng = random()
    warehouse, product = rng.integers(0, 4, 2_000), rng.integers(0, 25, 2_000)
    shelf = rng.integers(0, 30, (4, 25))[warehouse, product]
    frame = pl.DataFrame({"warehouse": warehouse, "product": product, "shelf": shelf}).with_columns(
        pl.col("product").cast(pl.String), noise=rng.normal(size=2_000)
    )
    assert bundles(frame) == [{"warehouse", "product", "shelf"}]


def test_flags_of_which_one_holds_go_together() -> None:
    rng = random()
    which = rng.integers(0, 4, 1_000)
    flags = {name: which == number for number, name in enumerate(["red", "green", "blue"])}
    assert bundles(pl.DataFrame({**flags, "coin": rng.random(1_000) < 0.5})) == [{"red", "green", "blue"}]


def test_impossible_combinations_go_together_also_where_the_tie_is_weak() -> None:
    rng = random()
    sex, children = rng.integers(0, 2, 4_000), rng.integers(0, 5, 4_000)
    pregnant = (sex == 1) & (rng.random(4_000) < 0.1)
    frame = pl.DataFrame({"sex": sex, "pregnant": pregnant, "children": children})
    assert bundles(frame) == [{"sex", "pregnant"}]


def test_nulls_go_with_what_explains_them() -> None:
    rng = random()
    student = rng.random(1_000) < 0.4
    level = np.where(student, None, np.array(["low", "high"])[rng.integers(0, 2, 1_000)])
    frame = pl.DataFrame({"student": student, "income": level, "coin": rng.random(1_000) < 0.5})
    assert bundles(frame) == [{"student", "income"}]


def test_a_function_with_nulls_is_still_a_function() -> None:
    rng = random()
    code = rng.integers(0, 12, 1_000)
    names = np.array([None, None, *"cdefghijkl"], dtype=object)[code]
    frame = pl.DataFrame({"code": code, "name": pl.Series(names, dtype=pl.String), "x": rng.integers(0, 3, 1_000)})
    assert bundles(frame) == [{"code", "name"}]


def test_independent_columns_stay_apart() -> None:
    rng = random()
    frame = pl.DataFrame({f"c{k}": rng.integers(0, 2 + 5 * k, 2_000) for k in range(10)})
    assert bundles(frame) == []


@pytest.mark.parametrize(("agreeing", "found"), [(0.75, []), (0.93, [{"a", "b"}])])
def test_a_noisy_tie_is_a_bundle_only_if_it_is_strong(agreeing: Any, found: Any) -> None:
    # Every combination of two flags occurs often: nothing can be missed by taking them together.
    rng = random()
    a = rng.integers(0, 2, 2_000)
    b = np.where(rng.random(2_000) < agreeing, a, 1 - a)
    assert bundles(pl.DataFrame({"a": a, "b": b})) == found


def test_a_strong_tie_with_rare_combinations_is_left_to_the_trees() -> None:
    # Of 16 combinations some are seen once or never, by chance alone.
    rng = random()
    a = rng.integers(0, 4, 400)
    b = np.where(rng.random(400) < 0.9, a, rng.integers(0, 4, 400))
    assert bundles(pl.DataFrame({"a": a, "b": b})) == []


@pytest.mark.parametrize("rows", [60, 1_000])
def test_near_unique_columns_go_with_nothing(rows: Any) -> None:
    rng = random()
    near = rng.integers(0, 4 * rows, rows)
    frame = pl.DataFrame(
        {
            "near": near.astype(str),
            "number": rng.permutation(rows) * 3 % (rows - 7),
            "group": rng.integers(0, 5, rows),
            "parity": near % 2,
        }
    )
    found = infer_schema(frame, kinds={"near": "categorical", "number": "numeric"}, keys=[]).bundles
    assert found == []


@pytest.mark.parametrize("rows", [30, 45, 80, 150, 300])
def test_chance_never_makes_a_bundle_of_few_rows(rows: Any) -> None:
    for seed in range(25):
        rng = np.random.default_rng([rows, seed])
        sizes = rng.integers(2, 60, 12)
        columns = {key: discrete(rng.integers(0, size, rows)) for key, size in enumerate(sizes)}
        assert find_bundles(columns, rows) == [], f"seed {seed}, sizes {sizes}"


@pytest.mark.parametrize("seed", range(15))
def test_chance_never_makes_a_bundle_of_a_small_frame(seed: Any) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(30, 300))
    numbers = {f"n{k}": rng.integers(0, rng.integers(2, 60), rows) for k in range(4)}
    skewed = {f"s{k}": rng.poisson(rng.integers(1, 4), rows) for k in range(3)}
    words = {f"w{k}": rng.integers(0, rng.integers(2, 40), rows).astype(str) for k in range(3)}
    lines = {"x": rng.normal(size=rows), "y": np.round(rng.normal(size=rows), 1)}
    kinds = dict.fromkeys(words, "categorical") | dict.fromkeys([*numbers, *skewed, *lines], "numeric")
    assert infer_schema(pl.DataFrame({**numbers, **skewed, **words, **lines}), kinds=kinds, keys=[]).bundles == []


def test_three_hundred_columns_with_one_tie_among_them() -> None:
    rng = random()
    columns = {f"c{k}": rng.integers(0, 2 + k % 50, 1_000) for k in range(299)}
    columns["twin"] = (columns["c5"] + 1) * 10
    assert bundles(pl.DataFrame(columns)) == [{"c5", "twin"}]


def test_a_clock_time_goes_with_its_hour() -> None:
    seconds = random().integers(0, 86_400, 2_000)
    frame = pl.DataFrame({"at": pl.Series(seconds * 10**9).cast(pl.Time)}).with_columns(hour=pl.col("at").dt.hour())
    schema = infer_schema(frame, kinds={}, keys=[])
    assert schema.bundles == [["at", "hour"]]
    [variable] = schema.variables
    assert variable.interval.sum() == 24
    axis = schema.columns[0].axis
    assert axis is not None
    second = axis.to_axis(pl.Series([h * 3600 * 10**9 for h in range(1, 24)]).cast(pl.Time))
    np.testing.assert_allclose(variable.segments, second - 0.5)


def stamps(rows: int = 2_000, days: int = 60, zone: str = "Europe/Berlin") -> pl.DataFrame:
    start = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp())
    seconds = start + random().integers(0, days * 86_400, rows)
    at = pl.Series(seconds * 10**6).cast(pl.Datetime("us", zone))
    return pl.DataFrame({"at": at}).with_columns(date=pl.col("at").dt.date(), month=pl.col("at").dt.month())


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
def test_a_time_stamp_goes_with_the_date_of_its_zone(zone: Any) -> None:
    frame = stamps(zone=zone).select("at", "date")
    schema = infer_schema(frame, kinds={}, keys=[])
    assert schema.bundles == [["at", "date"]]
    axis = schema.columns[0].axis
    assert axis is not None
    edges = axis.from_axis(schema.variables[0].segments + 0.5, frame.schema["at"])
    midnights = edges.filter((edges.dt.hour() == 0) & (edges.dt.minute() == 0) & (edges.dt.second() == 0))
    assert midnights.n_unique() >= frame["date"].n_unique() - 1


@pytest.mark.parametrize("order", [["at", "date", "month"], ["date", "month", "at"], ["month", "at", "date"]])
def test_a_time_stamp_goes_with_its_date_and_month_in_any_order_of_columns(order: Any) -> None:
    # The last day has few rows, so that not all dates are spikes: the date is a line of its own.
    frame = stamps(days=90).select(order)
    assert frame["date"].value_counts()["count"].min() < 10
    assert bundles(frame) == [{"at", "date", "month"}]


def test_two_units_of_one_measure_go_together() -> None:
    centimetres = np.round(random().normal(170, 10, 2_000), 1)
    frame = pl.DataFrame({"cm": centimetres, "mm": np.round(10 * centimetres).astype(int)})
    assert bundles(frame) == [{"cm", "mm"}]


def test_a_missing_time_stamp_has_a_missing_date() -> None:
    frame = stamps().with_columns(pl.when(pl.int_range(pl.len()) % 5 > 0).then(pl.all())).select("at", "date")
    assert bundles(frame) == [{"at", "date"}]


def test_a_date_that_is_known_where_the_time_is_not_stays_apart() -> None:
    frame = stamps().with_columns(at=pl.when(pl.int_range(pl.len()) % 5 > 0).then("at")).select("at", "date")
    assert bundles(frame) == []


def test_bundles_do_not_depend_on_the_order_of_rows() -> None:
    rng = random()
    sku = rng.integers(0, 30, 900)
    frame = pl.DataFrame({"sku": sku, "price": np.round(rng.random(30) * 9, 2)[sku], "n": rng.integers(0, 4, 900)})
    assert bundles(frame) == bundles(frame[rng.permutation(900)]) == [{"sku", "price"}]
