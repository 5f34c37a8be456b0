"""Numbers that people round: the shares of their grids are kept, and drawn numbers lie on them."""

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.data.value_sets import ValueSet
from arf_dask.rules.finding import sample_target
from arf_dask.rules.relations import Relations
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.granular import Granular, find_granularity, is_multiple

PRICE = Target("price", pl.Int64(), 0, 0, 1_000_000)
ALWAYS = np.eye(4).tolist()  # one grid, whatever the hash


def rounded(grid: int, drawn: list[int | None]) -> list[int | None]:
    one = Granular(PRICE, (1_000.0, 500.0, 5.0), (tuple(ALWAYS[grid]),), (), (999.0,))
    return one.inverse(pl.DataFrame(height=len(drawn)), {"price": pl.Series(drawn, dtype=pl.Int64)}).to_list()


def test_drawn_numbers_move_to_their_grid_and_not_to_a_coarser_one() -> None:
    assert rounded(0, [2_402, 2_602, 1, None]) == [2_000, 3_000, 0, None]
    assert rounded(1, [2_402, 2_902, 3_498]) == [2_500, 2_500, 3_500]
    assert rounded(2, [2_402, 2_499, 3_002]) == [2_400, 2_495, 3_005]
    assert rounded(3, [2_402, 2_499]) == [2_402, 2_499]


def test_frequent_numbers_and_those_on_a_coarse_grid_stay() -> None:
    assert rounded(0, [999, 2_500, 998]) == [999, 2_500, 1_000]
    assert rounded(0, [999_999, -3]) == [1_000_000, 0]


def test_large_numbers_have_shares_of_their_own() -> None:
    by_size = Granular(PRICE, (1_000.0, 500.0, 5.0), (tuple(ALWAYS[2]), tuple(ALWAYS[0])), (10_000.0,))
    drawn = pl.Series([2_401, 20_401])
    assert by_size.inverse(pl.DataFrame(height=2), {"price": drawn}).to_list() == [2_400, 20_000]


def test_a_condition_on_an_interval_reaches_as_far_as_numbers_move() -> None:
    relations = Relations(("price",), {"price": pl.Int64()}, {}, (), ())
    one = Granular(PRICE, (1_000.0,), ((1.0, 0.0),))
    (box,) = one.translate(ValueSet.read((2_500, 3_000), pl.Int64(), "price"), {}, relations).boxes
    assert box["price"].contains(pl.Series([1_400, 1_500, 4_000, 4_001])).tolist() == [False, True, True, False]


def test_small_numbers_are_no_multiples_of_large_steps() -> None:
    assert is_multiple(np.array([0.0, 1e-12, 3.0, 0.3]), 1.0).tolist() == [True, False, True, False]
    assert is_multiple(np.array([0.1 + 0.2]), 0.1).tolist() == [True]


def test_nothing_is_found_in_numbers_that_nobody_rounded() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        floats = [rng.normal(size=1_500), rng.gamma(2, 1_000, 1_500).round(2), rng.random(1_500).round(4)]
        whole = [rng.integers(0, 10**6, 1_500), rng.lognormal(9, 2, 1_500).astype(np.int64)]
        for numbers in (*floats, *whole):
            series = pl.Series("x", numbers)
            found = find_granularity(series, sample_target(series))
            assert found is None or (len(found.steps) == 1 and {row[0] for row in found.shares} == {1.0})


@pytest.fixture(scope="module")
def homes() -> pl.DataFrame:
    rng = np.random.default_rng(1)
    n = 3_000
    price = np.exp(rng.normal(13, 0.5, n))
    step = rng.choice([1_000, 50, 1], n, p=[0.9, 0.06, 0.04])
    area = np.round(rng.gamma(5, 30, n), 0)
    area[::1_000] += 0.25
    return pl.DataFrame(
        {"price": (np.round(price / step) * step).astype(np.int64), "area": area, "rooms": rng.poisson(3, n)}
    )


def test_multiples_of_a_thousand_and_whole_numbers_keep_their_share(homes: pl.DataFrame) -> None:
    model = arf_dask.fit(homes, trees=5, max_rounds=2, seed=1)
    rows = model.sample(4_000, seed=2)

    def share(frame: pl.DataFrame) -> float:
        return int((frame["price"] % 1_000 == 0).sum()) / frame.height

    assert share(rows) == pytest.approx(share(homes), abs=0.04)
    assert (rows["area"] % 1 != 0).mean() < 0.01
    assert rows["price"].is_between(homes["price"].min(), homes["price"].max()).all()
    assert model.sample(20, given={"price": (400_000, 500_000)}, seed=1)["price"].is_between(400_000, 500_000).all()
    given = homes["price"][5]
    assert model.sample(5, given={"price": given}, seed=1)["price"].to_list() == [given] * 5
    assert np.isfinite(model.log_density(homes.head(20)).to_numpy()).all()
