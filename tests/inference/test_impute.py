"""Imputation fills what is missing, conditional on what each row has, and changes nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from tests.brute import brute, small_frame, small_model

MODELS = ["continuous", "categorical", "mixed", "steps"]


def holed(frame: pl.DataFrame, share: float = 0.3, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return frame.select(s.set(pl.Series(rng.random(frame.height) < share), None) for s in frame)


def keeps_known_cells(given: pl.DataFrame, filled: pl.DataFrame) -> None:
    assert filled.schema == given.schema
    assert filled.height == given.height
    for column in given.columns:
        known = given[column].is_not_null()
        assert filled[column].filter(known).equals(given[column].filter(known), null_equal=True) or (
            pl.DataFrame(filled[column].filter(known)).equals(pl.DataFrame(given[column].filter(known)))
        )


def nulls(frame: pl.DataFrame) -> int:
    return sum(frame.null_count().row(0))


# What comes back


@pytest.mark.parametrize("name", MODELS)
def test_known_cells_stay_and_the_rest_is_filled(name: Any) -> None:
    rows = holed(small_frame(name))
    assert nulls(rows) > 0
    filled = small_model(name).impute(rows)
    keeps_known_cells(rows, filled)
    assert nulls(filled) == 0


@pytest.mark.parametrize("name", MODELS)
def test_complete_data_come_back_unchanged(name: Any) -> None:
    rows = small_frame(name).drop_nulls()
    assert_frame_equal(small_model(name).impute(rows), rows)
    for drawn in small_model(name).impute(rows, draws=2, seed=0):
        assert_frame_equal(drawn, rows)


@pytest.mark.parametrize("name", MODELS)
def test_rows_missing_everything_get_the_expectation(name: Any) -> None:
    rows = small_frame(name).clear(3)
    filled = small_model(name).impute(rows)
    assert nulls(filled) == 0
    assert filled.schema == rows.schema
    assert filled.n_unique() == 1
    for drawn in small_model(name).impute(rows, draws=2, seed=0):
        assert nulls(drawn) == 0


@pytest.mark.parametrize("column", ["kids", "age", "city", "member", "zip", "score"])
def test_columns_never_missing_in_training_are_filled(column: Any) -> None:
    frame = small_frame("mixed")
    assert frame[column].null_count() == 0
    rows = frame.drop_nulls().head(20)
    empty = rows.with_columns(pl.lit(None, dtype=frame.schema[column]).alias(column))
    filled = small_model("mixed").impute(empty)
    keeps_known_cells(empty, filled)
    assert nulls(filled) == 0
    for drawn in small_model("mixed").impute(empty, draws=2, seed=1):
        keeps_known_cells(empty, drawn)
        assert nulls(drawn) == 0


@pytest.mark.parametrize("columns", [["bonus"], ["age", "city"], ["zip", "joined", "score"], ["member", "kids"]])
def test_frames_with_some_of_the_columns(columns: Any) -> None:
    rows = holed(small_frame("mixed").select(columns), 0.4)
    filled = small_model("mixed").impute(rows)
    keeps_known_cells(rows, filled)
    assert nulls(filled) == 0


def test_columns_in_another_order_stay_in_it() -> None:
    rows = holed(small_frame("mixed")).select("zip", "age", "bonus", "city")
    assert small_model("mixed").impute(rows).columns == ["zip", "age", "bonus", "city"]


def test_no_rows_give_no_rows() -> None:
    rows = small_frame("mixed").clear()
    assert_frame_equal(small_model("mixed").impute(rows), rows)
    assert [drawn.height for drawn in small_model("mixed").impute(rows, draws=2)] == [0, 0]


def test_nan_is_a_value_and_stays() -> None:
    rows = small_frame("mixed").filter(pl.col("score").is_nan()).with_columns(pl.lit(None, dtype=pl.Int64).alias("age"))
    assert rows.height > 5
    filled = small_model("mixed").impute(rows)
    assert filled["score"].is_nan().all()
    assert filled["age"].null_count() == 0


@pytest.mark.parametrize("beside", ["nothing", "a row that holds NaN"])
def test_imputed_numbers_are_never_nan(beside: Any) -> None:
    rows = small_frame("mixed").clear(50)
    if beside != "nothing":
        rows = pl.concat([rows, small_frame("mixed").filter(pl.col("score").is_nan()).head(1)])
    assert not small_model("mixed").impute(rows)["score"].head(50).is_nan().any()
    for drawn in small_model("mixed").impute(rows, draws=5, seed=0):
        assert not drawn["score"].head(50).is_nan().any()


def test_nothing_given_is_changed() -> None:
    rows = holed(small_frame("mixed"))
    before = rows.clone()
    small_model("mixed").impute(rows)
    small_model("mixed").impute(rows, draws=2, seed=0)
    assert rows.equals(before)


def test_bundled_columns_fill_each_other() -> None:
    frame = small_frame("mixed")
    city_of = dict(frame.select("zip", "city").iter_rows())
    rows = frame.head(40).with_columns(pl.lit(None, dtype=pl.String).alias("city"))
    filled = small_model("mixed").impute(rows)
    assert filled["city"].to_list() == [city_of[z] for z in filled["zip"]]
    steps = small_frame("steps").head(40).with_columns(pl.lit(None, dtype=pl.Int8).alias("hour"))
    filled = small_model("steps").impute(steps)
    assert filled["hour"].to_list() == filled["at"].dt.hour().to_list()


def test_draws_of_bundled_columns_stay_together() -> None:
    pairs = set(small_frame("mixed").select("city", "zip").unique().iter_rows())
    rows = small_frame("mixed").clear(200).with_columns(pl.lit("Rome").alias("city"))
    (drawn,) = small_model("mixed").impute(rows, draws=1, seed=0)
    assert set(drawn.select("city", "zip").iter_rows()) <= pairs


def test_the_order_and_company_of_rows_do_not_matter() -> None:
    rows = holed(small_frame("mixed"), 0.4)
    whole = small_model("mixed").impute(rows)
    order = np.random.default_rng(0).permutation(rows.height)
    assert_frame_equal(small_model("mixed").impute(rows[order]), whole[order], rel_tol=1e-12)
    for start, size in ((0, 1), (5, 17), (299, 1)):
        assert_frame_equal(
            small_model("mixed").impute(rows.slice(start, size)), whole.slice(start, size), rel_tol=1e-12
        )


# What is filled in


@pytest.mark.parametrize("name", ["continuous", "mixed", "categorical"])
def test_one_missing_cell_gets_its_expectation(name: Any) -> None:
    frame, loops = small_frame(name).drop_nulls(), brute(name)
    kinds = {c.name: c for c in loops.schema.columns}
    for number, column in enumerate(frame.columns):
        row = frame.slice(number, 1)
        found = small_model(name).impute(row.with_columns(pl.lit(None, dtype=frame.schema[column]).alias(column)))
        value = found[column][0]
        known = {c: v for c, v in row.to_dicts()[0].items() if c != column}
        if kinds[column].kind == "categorical":
            shares = loops.levels(column, known)
            assert shares[value] >= max(shares.values()) - 1e-9
            continue
        expected = loops.mean(column, known)
        axis = kinds[column].axis
        tolerance = 0.5 + 1e-6 if axis.grid else 1e-9 * (axis.high - axis.low)
        assert abs(loops.place(column, value) - expected) <= tolerance


def test_several_missing_cells_get_their_expectations() -> None:
    rows = (
        small_frame("continuous")
        .head(8)
        .with_columns(x=pl.lit(None, dtype=pl.Float64), z=pl.lit(None, dtype=pl.Float64))
    )
    filled = small_model("continuous").impute(rows)
    for row in filled.to_dicts():
        for column in ("x", "z"):
            assert row[column] == pytest.approx(brute("continuous").mean(column, {"y": row["y"]}), abs=1e-8)


def test_missing_cells_are_expected_to_hold_values_and_absent_columns_anything() -> None:
    """Cells that are filled hold no nulls; columns that the frame does not have may."""
    loops, model = brute("mixed"), small_model("mixed")
    given = {"city": "Rome", "kids": 1}
    axis = {c.name: c.axis for c in loops.schema.columns}
    for columns in (["age"], ["score"], ["bonus"], ["bonus", "score"], ["bonus", "score", "joined", "age"]):
        rows = small_frame("mixed").select(*columns, "city", "kids").clear(2)
        filled = model.impute(rows.with_columns(city=pl.lit("Rome"), kids=pl.lit(1)))
        for column in columns:
            expected = loops.mean(column, given, columns)
            tolerance = 0.5 + 1e-6 if axis[column].grid else 1e-9 * (axis[column].high - axis[column].low)
            assert abs(loops.place(column, filled[column][0]) - expected) <= tolerance, (column, columns)


def test_rows_missing_everything_get_the_training_mean() -> None:
    frame = small_frame("continuous")
    filled = small_model("continuous").impute(frame.clear(1))
    for column in frame.columns:
        assert filled[column][0] == pytest.approx(frame[column].mean(), abs=1e-8)


def test_imputation_is_better_than_the_mean() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=1_500)
    frame = pl.DataFrame({"x": x, "y": 2 * x + 0.3 * rng.normal(size=1_500)})
    model = arf_dask.fit(frame.head(1_000), trees=10, seed=0)
    rows = frame.tail(500).with_columns(y=pl.lit(None, dtype=pl.Float64))
    error = model.impute(rows)["y"].to_numpy() - frame["y"].tail(500).to_numpy()
    assert error.std() < 0.35 * frame["y"].std()


# Multiple imputation


@pytest.mark.parametrize("name", MODELS)
def test_draws_are_complete_frames_that_differ(name: Any) -> None:
    rows = holed(small_frame(name))
    drawn = small_model(name).impute(rows, draws=3, seed=0)
    assert isinstance(drawn, list)
    assert len(drawn) == 3
    for frame in drawn:
        keeps_known_cells(rows, frame)
        assert nulls(frame) == 0
    assert not drawn[0].equals(drawn[1])


def test_draws_repeat_with_their_seed() -> None:
    rows, model = holed(small_frame("mixed")), small_model("mixed")
    one, other = model.impute(rows, draws=2, seed=5), model.impute(rows, draws=2, seed=5)
    for a, b in zip(one, other, strict=True):
        assert_frame_equal(a, b)
    assert not model.impute(rows, draws=2, seed=6)[0].equals(one[0])


def test_the_seed_changes_no_expectation() -> None:
    rows = holed(small_frame("mixed"))
    assert_frame_equal(small_model("mixed").impute(rows, seed=1), small_model("mixed").impute(rows, seed=2))


def test_draws_follow_the_conditional_distribution() -> None:
    n, model, loops = 20_000, small_model("mixed"), brute("mixed")
    row = small_frame("mixed").clear(n).with_columns(pl.lit("Rome").alias("city"), pl.lit(0.0).alias("bonus"))
    (drawn,) = model.impute(row, draws=1, seed=3)
    # All cells are filled, so that the leaves count by how likely they hold a value in each of them.
    present = row.columns
    given = {"city": "Rome", "bonus": 0.0}
    for column in ("age", "kids", "score", "zip"):
        numbers = drawn[column].cast(pl.Float64).to_numpy()
        expected = loops.value(column, loops.mean(column, given, present))
        assert abs(numbers.mean() - expected) <= 4 * numbers.std() / math.sqrt(n)
    for level, share in loops.levels("member", given, present).items():
        assert (drawn["member"] == level).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / n))


def test_draws_of_one_cell_follow_its_distribution() -> None:
    n, loops = 20_000, brute("continuous")
    row = small_frame("continuous").clear(n).with_columns(pl.lit(0.5).alias("x"), pl.lit(1.0).alias("y"))
    (drawn,) = small_model("continuous").impute(row, draws=1, seed=3)
    z, given = drawn["z"].to_numpy(), {"x": 0.5, "y": 1.0}
    assert abs(z.mean() - loops.mean("z", given)) <= 4 * z.std() / math.sqrt(n)
    for at in (0.5, 1.5, 3.0):
        share = loops.cdf("z", at, given)
        assert (z <= at).mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / n))


# Rows the model thinks impossible


@pytest.mark.parametrize(
    "odd",
    [{"age": 5_000}, {"bonus": -10.0}, {"city": "Oslo", "zip": 1022}, {"city": "Atlantis"}],
    ids=["beyond the range", "a float beyond the range", "a pair never seen", "a level never seen"],
)
@pytest.mark.parametrize("draws", [None, 2])
def test_rows_the_model_thinks_impossible_are_filled_too(odd: Any, draws: Any) -> None:
    frame = small_frame("mixed")
    rows = frame.drop_nulls().head(3).with_columns(pl.lit(None, dtype=pl.Int64).alias("kids"))
    strange = [pl.lit(value, dtype=frame.schema[column]).alias(column) for column, value in odd.items()]
    rows = pl.concat([rows, rows.head(1).with_columns(strange), rows])
    filled = small_model("mixed").impute(rows, draws=draws, seed=0)
    for one in [filled] if draws is None else filled:
        keeps_known_cells(rows, one)
        assert nulls(one) == 0


# Kinds of frames


def test_pandas_in_pandas_out() -> None:
    rows = holed(small_frame("mixed")).select("bonus", "age", "city")
    given = rows.to_pandas()
    given.index = pd.RangeIndex(100, 100 + len(given))
    filled = small_model("mixed").impute(given)
    assert isinstance(filled, pd.DataFrame)
    assert not filled.isna().any().any()
    assert list(filled.columns) == ["bonus", "age", "city"]
    assert list(filled.index) == list(given.index)
    known = given["bonus"].notna()
    assert (filled["bonus"][known] == given["bonus"][known]).all()
    drawn = small_model("mixed").impute(given, draws=2, seed=0)
    assert all(isinstance(one, pd.DataFrame) for one in drawn)


@pytest.mark.parametrize("kind", ["lazy", "arrow"])
def test_the_same_kind_comes_back(kind: Any) -> None:
    rows = holed(small_frame("mixed"))
    given: Any = rows.lazy() if kind == "lazy" else rows.to_arrow()
    filled = small_model("mixed").impute(given)
    assert isinstance(filled, pl.LazyFrame if kind == "lazy" else pa.Table)
    frame = filled.collect() if kind == "lazy" else pl.DataFrame(pl.from_arrow(filled))
    assert_frame_equal(frame, small_model("mixed").impute(rows))


def test_a_column_of_nothing_but_nulls_stays_empty() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.normal(size=100), "nothing": pl.Series([None] * 100, dtype=pl.Float64)})
    model = arf_dask.fit(frame, trees=2, seed=0, columns={"x": "numeric"})
    rows = frame.head(5).with_columns(pl.Series("x", [None, 0.5, None, 0.25, None]))
    filled = model.impute(rows)
    assert filled["x"].null_count() == 0
    assert filled["nothing"].null_count() == 5
    assert filled.schema == rows.schema


def test_identifiers_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"id": [f"u{i:05d}" for i in range(100)], "x": rng.normal(size=100)})
    model = arf_dask.fit(frame, trees=2, seed=0, keys=["id"], columns={"x": "numeric"})
    rows = frame.head(4).with_columns(pl.Series("x", [None, 0.5, None, 0.25]))
    filled = model.impute(rows)
    assert filled["id"].to_list() == rows["id"].to_list()
    assert filled["x"].null_count() == 0
