"""Conditions as Polars expressions: drawn rows are rows that `filter` keeps, with the probability of the condition."""

import datetime as dt
import math

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask import Model

AGE, STATE, X, MEMBER, DAY = map(pl.col, ("age", "state", "x", "member", "day"))
N = 1_500


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "age": [None if i % 10 == 0 else int(age) for i, age in enumerate(rng.integers(18, 90, N))],
            "x": np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N)),
            "state": [[None, "CA", "NY", "TX"][i] for i in rng.integers(0, 4, N)],
            "member": rng.random(N) < 0.3,
            "day": [dt.date(2020, 1, 1) + dt.timedelta(days=int(i)) for i in rng.integers(0, 700, N)],
        }
    )


@pytest.fixture(scope="module")
def model(table: pl.DataFrame) -> Model:
    return arf_dask.fit(table, trees=5, refine=False, seed=1)


@pytest.mark.parametrize(
    "condition",
    [
        (AGE > 30) & STATE.is_in(["CA", "NY"]),
        ~(AGE > 30),
        AGE.is_null(),
        AGE.is_not_null() & (AGE != 40),
        ~AGE.is_between(20, 60),
        AGE.is_between(20, 60, closed="none"),
        (AGE < 30) | (AGE > 80) | STATE.is_null(),
        AGE > 30,
        AGE.eq_missing(None),
        AGE.ne_missing(40),
        ~AGE.is_in([20, 30, 40]),
        X > 1.0,  # NaN is greater than every number
        ~(X > 1),
        X.is_nan(),
        X.is_not_nan(),
        X.is_finite(),
        X.is_not_null(),
        X != 3.0,
        STATE != "CA",
        STATE.ne_missing("CA"),
        STATE.str.starts_with("C"),
        ~STATE.str.contains("A"),
        STATE.is_null() | (STATE > "CA"),
        MEMBER,
        ~MEMBER & (dt.date(2021, 1, 1) <= DAY),
        DAY.is_between(dt.date(2020, 3, 1), dt.date(2020, 5, 1)),
        pl.any_horizontal(AGE > 80, X < -1),
        pl.all_horizontal(AGE > 80, X < -1),
        ~((AGE > 30) & (X > 0)),
        ((AGE > 30) & (X > 0)).alias("named"),
    ],
    ids=str,
)
def test_drawn_rows_satisfy_the_expression(model: Model, table: pl.DataFrame, condition: pl.Expr) -> None:
    assert model.sample(300, given=condition, seed=1).filter(condition).height == 300
    share = table.filter(condition).height / table.height
    assert model.probability(condition) == pytest.approx(share, abs=0.03)


def test_an_expression_means_the_same_as_a_dict(model: Model) -> None:
    expression, known = (AGE >= 30) & (AGE <= 40) & (STATE == "CA"), {"age": (30, 40), "state": "CA"}
    assert model.sample(50, given=expression, seed=3).equals(model.sample(50, given=known, seed=3))
    assert model.probability(expression, given=MEMBER) == model.probability(known, given={"member": True})


def test_an_impossible_expression_has_probability_zero(model: Model) -> None:
    assert model.probability((AGE > 50) & (AGE < 20)) == 0.0
    with pytest.raises(arf_dask.ImpossibleConditionError, match="probability zero"):
        model.sample(1, given=(AGE > 50) & (AGE < 20))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (AGE > X, "compares 'age' and 'x'. Give comparisons of one column"),
        (AGE + 1 > 3, "says of 'age' what conditions cannot"),
        (pl.col("agee") > 3, "no column 'agee' in the data. Did you mean 'age'"),
        (AGE, "says nothing about 'age'. Compare it with a value"),
        (AGE > "x", "'age' is Int64, and 'x' is a str"),
        (STATE > 3, "cannot be evaluated on 'state'"),
        (AGE > AGE, "compares 'age' with itself"),
        (pl.lit(None, dtype=pl.Int64) < AGE, "with null, which no row satisfies"),
        (pl.lit(True), "compares no column"),
        (STATE.str.len_chars(), "neither true nor false"),
        (
            pl.all_horizontal(*[(i == AGE) | (i == X) | MEMBER for i in range(9)]),
            "stands for more than 256 alternatives",
        ),
    ],
    ids=str,
)
def test_what_is_no_condition_is_an_error(model: Model, condition: pl.Expr, message: str) -> None:
    with pytest.raises(arf_dask.OptionError, match=message):
        model.sample(1, given=condition)


def test_identifiers_have_no_conditions() -> None:
    data = pl.DataFrame({"id": range(200), "x": [i % 7 for i in range(200)]})
    model = arf_dask.fit(data, keys=["id"], trees=3, seed=1)
    with pytest.raises(arf_dask.OptionError, match="'id' is an identifier"):
        model.sample(1, given=pl.col("id") > 3)


def test_dates_written_as_text_are_compared_with_texts() -> None:
    days = [dt.date(2024, 1, 1) + dt.timedelta(days=i % 90) for i in range(400)]
    data = pl.DataFrame({"day": [f"{day:%d.%m.%Y}" for day in days], "x": [math.sin(i) for i in range(400)]})
    model = arf_dask.fit(data, trees=3, refine=False, seed=1)
    condition = pl.col("day").is_in(["01.02.2024", "02.02.2024"])
    assert set(model.sample(50, given=condition, seed=1)["day"]) == {"01.02.2024", "02.02.2024"}


def test_a_data_set_is_resumed_with_the_same_expression_only(model: Model, tmp_path: object) -> None:
    made = model.sample_parquet(f"{tmp_path}/out", 100, given=AGE > 30, seed=1)
    assert made.given == str(AGE > 30)
    assert model.sample_parquet(f"{tmp_path}/out", 100, given=AGE > 30, seed=1, mode="resume").rows == 100
    with pytest.raises(arf_dask.OutputError):
        model.sample_parquet(f"{tmp_path}/out", 100, given=AGE > 31, seed=1, mode="resume")
