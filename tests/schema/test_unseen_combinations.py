"""Open support: what was never seen together, or lies beyond the range seen, is rare and not impossible."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.data.axes import learn_axis
from arf_dask.schema.columns import Variable
from arf_dask.schema.unseen_combinations import _complete


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 2_000)
    other = np.where(rng.random(2_000) < 0.002, (kind + 1) % 3, kind)
    return pl.DataFrame({"a": np.array(["p", "q", "r"])[kind], "b": np.array(["x", "y", "z"])[other]})


def test_a_bundle_gets_every_combination_of_its_values_after_those_seen() -> None:
    codes = np.array([1, 0, 2], dtype=np.int32)
    tokens = np.array([[2, 2], [3, 3], [2, 3]], dtype=np.int32)
    bundle = Variable((0, 1), tokens, np.zeros(3, dtype=bool), codes, codes)
    found = _complete(bundle)
    assert found.tokens.tolist() == [[2, 2], [3, 3], [2, 3], [3, 2]]
    assert found.code_low.tolist() == [1, 0, 2, 3]


def test_combinations_never_seen_are_rare_where_support_is_open(table: pl.DataFrame) -> None:
    seen = set(table.unique().rows())
    unseen = [(a, b) for a in "pqr" for b in "xyz" if (a, b) not in seen]
    assert unseen
    model = arf_dask.fit(table, trees=3, seed=0, support="open", bundles=[["a", "b"]])
    chances = [model.probability({"a": a, "b": b}) for a, b in unseen]
    assert all(0 < chance < 0.01 for chance in chances)
    rows = pl.DataFrame(unseen, schema=table.schema, orient="row")
    assert model.log_density(rows).is_finite().all()
    drawn = model.sample(200_000, seed=1)
    share = drawn.join(rows, on=["a", "b"], how="semi").height / drawn.height
    assert abs(share - sum(chances)) <= 4 * np.sqrt(max(sum(chances), 1e-5) / drawn.height)


def test_combinations_never_seen_never_come_out_otherwise(table: pl.DataFrame) -> None:
    model = arf_dask.fit(table, trees=3, seed=0, bundles=[["a", "b"]])
    assert set(model.sample(50_000, seed=1).unique().rows()) <= set(table.unique().rows())


def test_only_floats_leave_the_range_seen_where_support_is_open() -> None:
    assert learn_axis(pl.Series([10, 20, 23])).open_range == (0.0, 13.0)
    assert learn_axis(pl.Series([3, 4, 200], dtype=pl.UInt8)).open_range == (0.0, 197.0)
    assert learn_axis(pl.Series([0.5, 1.5])).open_range == (-np.inf, np.inf)


def test_whole_numbers_dates_and_times_keep_their_range_and_floats_stay_finite_where_support_is_open() -> None:
    rng, n = np.random.default_rng(1), 3_000
    days = np.clip(rng.exponential(40, n), 0, 360).astype(int)
    data = pl.DataFrame(
        {
            "n": np.clip(rng.exponential(10, n).astype(int) + 1, 1, 100),
            "small": pl.Series(rng.integers(0, 50, n)).cast(pl.UInt8),
            "day": [date(9999, 1, 1) + timedelta(days=int(day)) for day in days],
            "x": rng.normal(size=n),
            "huge": np.sign(rng.normal(size=n)) * 10 ** rng.uniform(200, 308, n),
            "low": days,
            "high": days + rng.poisson(3, n),
        }
    )
    model = arf_dask.fit(data, trees=5, seed=0, support="open", rules=["low <= high"])
    rows = model.sample(20_000, seed=1)
    for name in ("n", "small", "day", "low", "high"):
        assert rows[name].is_between(data[name].min(), data[name].max()).all(), name
    assert rows["huge"].is_finite().all()
    assert rows["x"].max() > data["x"].max()
    beyond = data.head(1).with_columns(n=pl.lit(data["n"].max() + 1))
    assert np.isneginf(model.log_density(beyond)[0])
