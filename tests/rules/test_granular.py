"""Numbers that people round: the shares of their grids are kept, and drawn numbers lie on them."""

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.data.value_sets import ValueSet
from arf_dask.rules.finding import sample_target
from arf_dask.rules.relations import Relations
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.granular import REST, Granular, find_granularity, is_multiple

PRICE = Target("price", pl.Int64(), 0, 0, 1_000_000)
ROUND = Granular(PRICE, (1_000.0, 500.0, 10.0), (0.6, 0.2, 0.1, 0.1), (999.0,))


def test_the_state_of_a_number_is_its_coarsest_grid() -> None:
    states = ROUND.states(pl.Series([3_000, 2_500, 20, 7, 0, None]))
    assert states.to_list() == ["1000", "500", "10", REST, "1000", None]


def test_drawn_numbers_move_to_their_grid_and_not_to_a_coarser_one() -> None:
    drawn = {"price": pl.Series([2_400, 2_400, 2_900, 2_998, 2_400, 999, None])}
    drawn["price (step)"] = pl.Series(["1000", "500", "500", "10", REST, "1000", "1000"])
    rebuilt = ROUND.inverse(pl.DataFrame(height=7), drawn)
    assert rebuilt.to_list() == [2_000, 2_500, 2_500, 2_990, 2_400, 999, None]  # 999 is frequent and stays
    assert (
        ROUND.inverse(pl.DataFrame(height=1), {"price": pl.Series([-3]), "price (step)": pl.Series(["1000"])})[0] == 0
    )


def test_a_condition_on_one_number_fixes_its_grid() -> None:
    relations = Relations(("price",), {"price": pl.Int64()}, {}, (), (ROUND,))
    (box,) = ROUND.translate(ValueSet.read(2_500, pl.Int64(), "price"), {}, relations).boxes
    assert box["price (step)"].contains(pl.Series(["500", "1000"])).tolist() == [True, False]
    (box,) = ROUND.translate(ValueSet.read((2_500, 3_000), pl.Int64(), "price"), {}, relations).boxes
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
            assert found is None or len(found.steps) == 1 == len({*found.shares} - {0.0})


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
        return float((frame["price"] % 1_000 == 0).mean())  # type: ignore[arg-type]

    assert share(rows) == pytest.approx(share(homes), abs=0.04)
    assert (rows["area"] % 1 != 0).mean() < 0.01  # type: ignore[operator]
    assert rows["price"].is_between(homes["price"].min(), homes["price"].max()).all()
    assert model.sample(20, given={"price": (400_000, 500_000)}, seed=1)["price"].is_between(400_000, 500_000).all()
    given = homes["price"][5]
    assert model.sample(5, given={"price": given}, seed=1)["price"].to_list() == [given] * 5
    assert np.isfinite(model.log_density(homes.head(20)).to_numpy()).all()
