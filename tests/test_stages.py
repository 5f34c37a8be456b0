"""The paper's three algorithms one by one."""

from functools import reduce
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.data.parts import FramePart, PartGroup
from arf_dask.forest.leaf_fitting import fit_leaves
from arf_dask.forest.leaf_sums import SumContext, merge_sums, sum_parts
from arf_dask.forest.routing import routing_table


def table(n: int, seed: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.choice(["a", "b", "c"], n)
    return pl.DataFrame({"kind": kind, "x": rng.normal(size=n) + (kind == "a") * 3, "n": rng.poisson(4, n)})


def test_the_stages_one_by_one_give_the_model_that_fit_gives() -> None:
    data = table(600, 0)
    forest = arf_dask.adversarial_forest(data, trees=4, seed=5)
    staged = arf_dask.forge(arf_dask.forde(forest, data), 500, seed=6)
    assert_frame_equal(staged, arf_dask.fit(data, trees=4, seed=5).sample(500, seed=6))


def test_honest_estimates_from_other_rows_hold_the_leaf_size_and_cover_everything() -> None:
    forest = arf_dask.adversarial_forest(table(600, 0), trees=4, seed=5)
    other = table(300, 1).filter(pl.col("x").is_between(-1.5, 4.5) & (pl.col("n") <= 8))
    model = arf_dask.forde(forest, other)
    assert model.leaves["rows"].min() >= 10
    per_tree = model.leaves.group_by("tree").agg(pl.col("coverage").sum())
    assert per_tree["coverage"].to_list() == pytest.approx([1.0] * 4)
    assert model.sample(50, seed=0).schema == other.schema


def test_data_with_other_columns_are_refused_with_all_their_names() -> None:
    forest = arf_dask.adversarial_forest(table(100, 0), trees=2, seed=0)
    with pytest.raises(arf_dask.DataError, match="'x', 'n'"):
        arf_dask.forde(forest, pl.DataFrame({"kind": ["a"]}))
    with pytest.raises(arf_dask.DataError, match="'n' is Float64, not Int64"):
        arf_dask.forde(forest, table(50, 0).with_columns(pl.col("n").cast(pl.Float64)))


def test_missing_ages_stay_with_the_guests() -> None:
    rng = np.random.default_rng(0)
    n = 4_000
    guest = rng.random(n) < 0.3
    missing = np.where(guest, rng.random(n) < 0.9, rng.random(n) < 0.05)
    age = pl.Series(rng.integers(18, 80, n)).set(pl.Series(missing), None)
    others = {f"x{i}": rng.normal(size=n) for i in range(6)}
    data = pl.DataFrame({"guest": guest, "age": age, **others})
    drawn = arf_dask.fit(data, seed=0).sample(20_000, seed=1)
    for kind in (True, False):
        real = data.filter(pl.col("guest") == kind)["age"].is_null().mean()
        synthetic = drawn.filter(pl.col("guest") == kind)["age"].is_null().mean()
        assert synthetic == pytest.approx(real, abs=0.02)


@pytest.mark.parametrize("grid", [False, True])
def test_nothing_is_drawn_between_a_spike_and_the_other_values(grid: Any) -> None:
    rng = np.random.default_rng(0)
    amount = np.where(rng.random(3_000) < 0.6, 0, 500 + rng.exponential(200, 3_000))
    data = pl.DataFrame({"amount": amount.astype(np.int64) if grid else amount, "x": rng.normal(size=3_000)})
    drawn = arf_dask.fit(data, seed=0).sample(50_000, seed=1)["amount"]
    smallest = data["amount"].filter(data["amount"] > 0).min()
    assert drawn.filter((drawn > 0) & (drawn < smallest)).len() == 0
    assert drawn.max() <= data["amount"].max()


def test_two_humps_stay_apart() -> None:
    rng = np.random.default_rng(0)
    data = pl.DataFrame({"x": np.concatenate([rng.normal(0, 1, 1_000), rng.normal(20, 1, 1_000)])})
    drawn = arf_dask.fit(data, seed=0).sample(20_000, seed=1)["x"]
    assert drawn.is_between(5, 15).mean() < 0.001


def test_a_model_from_merged_parts_is_the_model_from_the_whole() -> None:
    data = table(600, 0)
    forest = arf_dask.adversarial_forest(data, trees=3, seed=1)
    context = SumContext(forest.schema, 0, [routing_table(tree) for tree in forest.trees], 1, forest.structure)
    about: dict[str, Any] = {"family": "truncnorm", "support": "observed", "rounds": forest.rounds}

    def model(*parts: Any) -> Any:
        sums = reduce(merge_sums, [sum_parts(context, PartGroup(0, [FramePart(data[rows])])) for rows in parts])
        return fit_leaves(forest.schema, forest.trees, [sums], **about, structure=forest.structure)

    whole, parts = model(np.arange(600)), model(np.arange(400, 600), np.arange(0, 1), np.arange(1, 400))
    for one, other in zip(whole.variables, parts.variables, strict=True):
        for a, b in zip(one.entries, other.entries, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)


def test_a_condition_goes_through_synthesize_and_forge() -> None:
    data = table(400, 0)
    given = {"kind": "a", "n": (3, 5)}
    model = arf_dask.fit(data, trees=3, seed=2)
    for drawn in (
        arf_dask.synthesize(data, 200, given=given, trees=3, seed=2),
        arf_dask.forge(model, 200, given=given, seed=2),
    ):
        assert drawn.height == 200
        assert set(drawn["kind"]) == {"a"}
        assert drawn["n"].is_between(3, 5).all()
