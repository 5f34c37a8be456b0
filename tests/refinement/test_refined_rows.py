"""Refined rows have the distribution of the forest times the ratio, and the same bytes however they are drawn."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.inference.forge import BLOCK_ROWS, Sampler
from arf_dask.inference.row_plan import RowPlan
from arf_dask.refinement.features import LEVEL, Feature
from arf_dask.refinement.ratio import Gain, Refinement
from tests.boosted import boosted

FEATURES = (
    Feature(LEVEL, ("a",), levels=("p", "q", "r")),
    Feature(LEVEL, ("b",), levels=("u", "v")),
    Feature("number", ("n",), edges=np.arange(4.0)),
)
# Ratios between exp(-2.6) and exp(2.3): rows of all three columns together, and nulls, which have code 0.
TREES = boosted(
    (0, {1}, (1, {1}, 1.5, -1.0), 0.2),
    (2, {1, 2}, (0, {0, 3}, -1.2, 0.5), (1, {0, 2}, 0.3, -0.4)),
    base=0.3,
    stages=(1,),
)


def frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.choice(["p", "q", "r"], 600, p=[0.5, 0.3, 0.2])
    b = pl.Series(np.where(rng.random(600) < np.where(a == "p", 0.8, 0.3), "u", "v"))
    b = b.set(pl.Series(rng.random(600) < 0.1), None)
    return pl.DataFrame({"id": [f"K{i:04}" for i in range(600)], "a": a, "b": b, "n": rng.integers(0, 4, 600)})


def refined(model: Any, trees: Any = TREES, slacks: tuple[float, ...] = (5.0,), log_cap: float = 2.0) -> Any:
    """The model with a refinement that was not learned."""
    cells = every_cell()
    refinement = Refinement(FEATURES, trees, slacks, log_cap, 0.0, 0.0, Gain(0.1, 0.01))
    ratios = np.exp(refinement.log_ratio(cells, model._fitted.relations))
    log_z = float(np.log(np.sum(np.exp(model.log_density(cells).to_numpy()) * ratios)))
    return arf_dask.Model(replace(model._fitted, refinement=replace(refinement, log_z=log_z)))


def every_cell() -> pl.DataFrame:
    """All rows that the model can draw, without the identifier."""
    columns = [
        pl.DataFrame({"a": ["p", "q", "r"]}),
        pl.DataFrame({"b": ["u", "v", None]}),
        pl.DataFrame({"n": range(4)}),
    ]
    return columns[0].join(columns[1], how="cross").join(columns[2], how="cross")


@pytest.fixture(scope="module")
def plain() -> Any:
    return arf_dask.fit(frame(), trees=3, min_leaf=60, keys=["id"], bundles=False, refine=False, seed=1)


@pytest.fixture(scope="module")
def model(plain: Any) -> Any:
    return refined(plain)


def expected_shares(model: Any, cells: pl.DataFrame) -> Any:
    weights = np.exp(model.without_refinement().log_density(cells).to_numpy())
    weights = weights * np.exp(model.refinement.log_ratio(cells, model._fitted.relations))
    return weights / weights.sum()


def worst_deviation(rows: pl.DataFrame, cells: pl.DataFrame, shares: Any) -> float:
    """The largest distance of the shares of cells from those expected, in standard errors."""
    counts = rows.group_by(cells.columns).len()
    found = cells.join(counts, on=cells.columns, how="left", nulls_equal=True, maintain_order="left")["len"].fill_null(
        0
    )
    assert int(found.sum()) == rows.height  # there are no other rows
    errors = np.sqrt(np.maximum(shares * (1 - shares), 1e-12) / rows.height)
    return float(np.abs((found.to_numpy() / rows.height - shares) / errors).max())


def test_rows_are_drawn_in_proportion_to_density_times_ratio(model: Any, plain: Any) -> None:
    cells = every_cell()
    rows = model.sample(200_000, seed=3)
    assert worst_deviation(rows, cells, expected_shares(model, cells)) < 4
    # The test can fail: rows of the forest alone are far away.
    assert worst_deviation(plain.sample(200_000, seed=3), cells, expected_shares(model, cells)) > 40


def test_stages_that_limit_nothing_change_nothing_of_the_distribution(plain: Any) -> None:
    at_once = refined(plain, replace(TREES, stages=()), ())
    cells = every_cell()
    assert worst_deviation(at_once.sample(100_000, seed=4), cells, expected_shares(at_once, cells)) < 4


def test_limits_are_part_of_the_distribution(plain: Any) -> None:
    limited = refined(plain, slacks=(-0.3,), log_cap=0.6)
    cells = every_cell()
    assert worst_deviation(limited.sample(100_000, seed=5), cells, expected_shares(limited, cells)) < 4


CONDITIONS: list[tuple[Any, pl.Expr]] = [
    ({"a": "r"}, pl.col("a") == "r"),
    ({"b": None}, pl.col("b").is_null()),
    ({"n": (1, 2), "a": ["p", "q"]}, pl.col("n").is_between(1, 2) & (pl.col("a") != "r")),
    (
        [{"a": "r", "n": 3}, {"b": "u", "n": 0}],
        (pl.col("a").eq("r") & pl.col("n").eq(3)) | (pl.col("b").eq("u") & pl.col("n").eq(0)),
    ),
]


@pytest.mark.parametrize(("given", "holds"), CONDITIONS, ids=str)
def test_conditions_hold_in_every_row_and_weights_within_them_stay(model: Any, given: Any, holds: pl.Expr) -> None:
    rows = model.sample(60_000, given=given, seed=6)
    cells = every_cell().filter(holds.fill_null(False))
    assert rows.filter(holds.fill_null(False)).height == rows.height == 60_000
    assert worst_deviation(rows, cells, expected_shares(model, cells)) < 4


def test_blocks_and_workers_do_not_matter(model: Any) -> None:
    from arf_dask.runtime.tasks import Threads

    n = 2 * BLOCK_ROWS + 1_000
    rows = model.sample(n, seed=7)
    assert rows.height == n
    plan = RowPlan(model._fitted, n, None, "raise", 7)
    for threads in (1, 3):
        assert pl.concat(plan.read(0, n, Threads(threads))).equals(rows)
    middle = BLOCK_ROWS - 5, BLOCK_ROWS + 5
    assert pl.concat(plan.read(*middle)).equals(rows[middle[0] : middle[1]])
    assert (
        model.sample(n, seed=7, frame="lazy")
        .slice(BLOCK_ROWS, 100)
        .collect()
        .equals(rows[BLOCK_ROWS : BLOCK_ROWS + 100])
    )


def test_data_sets_hold_the_rows_of_sample(model: Any, tmp_path: Path) -> None:
    for given in (None, {"a": ["p", "r"]}):
        rows = model.sample(3_000, given=given, seed=8)
        path = tmp_path / str(given is None)
        model.sample_parquet(path, 3_000, given=given, seed=8, rows_per_file=700)
        assert pl.read_parquet(path).equals(rows)


def test_identifiers_are_those_of_the_positions(model: Any, plain: Any) -> None:
    rows = model.sample(2_000, seed=9)
    assert rows["id"].equals(plain.sample(2_000, seed=9)["id"])
    assert rows["id"].n_unique() == 2_000


def test_a_pickled_model_draws_the_same_rows(model: Any) -> None:
    import pickle

    again = pickle.loads(pickle.dumps(model))
    assert again.sample(500, seed=10).equals(model.sample(500, seed=10))


def test_a_condition_under_which_hardly_any_row_was_accepted_still_gives_rows(plain: Any) -> None:
    # Nulls are e**20 times less probable than other rows: the limit under the condition is that of its own rows.
    rare = refined(plain, boosted((1, {0}, -20.0, 0.0), (0, {1}, 0.7, 0.0)), (), log_cap=0.7)
    cells = every_cell().filter(pl.col("b").is_null())
    rows = rare.sample(30_000, given={"b": None}, seed=11)
    assert rows["b"].null_count() == 30_000
    assert worst_deviation(rows, cells, expected_shares(rare, cells)) < 4


def test_the_sampler_of_a_model_is_that_of_its_forest(model: Any, plain: Any) -> None:
    ours = model.without_refinement()
    assert ours.sample(1_000, seed=12).equals(plain.sample(1_000, seed=12))
    assert Sampler(model._fitted).fitted.refinement is not None
    assert model.without_smoothing().refinement is None
