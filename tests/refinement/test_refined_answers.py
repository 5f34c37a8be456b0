"""Answers of a refined model against sums over all cells of a small table: q = q0 r / Z, worked out cell by cell."""

import itertools
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import arf_dask


class Cells(NamedTuple):
    """Every cell of the table with its probability in the refined model."""

    model: Any
    rows: pl.DataFrame
    chance: Any

    def share(self, *conditions: pl.Expr) -> float:
        is_inside = self.rows.select(pl.all_horizontal(*conditions).fill_null(False)).to_series().to_numpy()
        return float(self.chance[is_inside].sum())

    def given(self, condition: pl.Expr) -> "Cells":
        is_inside = self.rows.select(condition.fill_null(False)).to_series().to_numpy()
        chance = self.chance[is_inside]
        return Cells(self.model, self.rows.filter(pl.Series(is_inside)), chance / chance.sum())


def table() -> pl.DataFrame:
    """Three columns of which each pair is independent, and the third follows from two in most rows."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 4, 6_000), rng.integers(0, 3, 6_000)
    n = np.where(rng.random(6_000) < 0.8, (a + b) % 5, rng.integers(0, 6, 6_000))
    return pl.DataFrame({"a": [f"a{v}" for v in a], "b": [f"b{v}" for v in b], "n": n}).with_columns(
        pl.when(pl.Series(rng.random(6_000) < 0.1)).then(None).otherwise(pl.col("b")).alias("b")
    )


@pytest.fixture(scope="module")
def cells() -> Cells:
    options: dict[str, Any] = {"dependence": "none", "bundles": False, "find_rules": False, "max_rounds": 0}
    model = arf_dask.fit(table(), trees=3, min_leaf=1_500, seed=1, refine=True, **options)
    assert model.refinement is not None
    values = itertools.product([f"a{v}" for v in range(4)], [None, "b0", "b1", "b2"], range(6))
    rows = pl.DataFrame(list(values), schema={"a": pl.String, "b": pl.String, "n": pl.Int64}, orient="row")
    forest = np.exp(model.without_refinement().log_density(rows).to_numpy())
    weights = forest * np.exp(model.refinement.log_ratio(rows, model._fitted.relations))
    return Cells(model, rows, weights / weights.sum())


def test_the_forest_is_a_distribution_over_the_cells(cells: Any) -> None:
    forest = np.exp(cells.model.without_refinement().log_density(cells.rows).to_numpy())
    assert forest.sum() == pytest.approx(1.0, abs=1e-9)
    assert np.abs(forest - cells.chance).max() > 0.003  # there was something to refine


def test_densities_of_whole_rows_are_those_of_the_cells(cells: Any) -> None:
    logs = cells.model.log_density(cells.rows).to_numpy()
    assert logs == pytest.approx(np.log(cells.chance), abs=5 * cells.model.refinement.z_error)


def test_densities_of_partial_rows_sum_over_the_rest(cells: Any) -> None:
    rows = pl.DataFrame({"a": ["a0", "a1", "a3"], "n": [0, 4, 5]})
    expected = [cells.share(pl.col("a") == a, pl.col("n") == n) for a, n in rows.rows()]
    assert np.exp(cells.model.log_density(rows).to_numpy()) == pytest.approx(expected, rel=0.03)
    with_null = pl.DataFrame({"b": [None, "b1"]}, schema={"b": pl.String})
    expected = [cells.share(pl.col("b").is_null()), cells.share(pl.col("b") == "b1")]
    assert np.exp(cells.model.log_density(with_null).to_numpy()) == pytest.approx(expected, rel=0.03)
    unknown = cells.model.log_density(pl.DataFrame({"a": ["a2"], "b": [None], "n": [3]}), missing="marginal")
    assert float(np.exp(unknown[0])) == pytest.approx(cells.share(pl.col("a") == "a2", pl.col("n") == 3), rel=0.03)


def test_conditional_densities_sum_to_one(cells: Any) -> None:
    known = cells.given(pl.col("a") == "a1")
    logs = cells.model.log_density(known.rows, given={"a": "a1"}).to_numpy()
    assert np.exp(logs) == pytest.approx(known.chance, rel=0.03, abs=1e-4)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=0.02)
    others = cells.model.log_density(cells.given(pl.col("a") == "a2").rows, given={"a": "a1"})
    assert np.isneginf(others.to_numpy()).all()
    rows, conditions = known.rows.select("b", "n"), known.rows.select("a")
    logs = cells.model.log_density(rows, given=conditions).to_numpy()
    assert np.exp(logs) == pytest.approx(known.chance, rel=0.08, abs=2e-4)


def test_probabilities_are_sums_over_cells(cells: Any) -> None:
    model = cells.model
    assert model.probability({"n": (2, 4)}) == pytest.approx(cells.share(pl.col("n").is_between(2, 4)), abs=0.003)
    known = cells.given((pl.col("a") == "a2") & (pl.col("b") == "b1"))
    for value in range(6):
        found = model.probability({"n": value}, given={"a": "a2", "b": "b1"})
        assert found == pytest.approx(known.share(pl.col("n") == value), abs=0.008)
    frame = pl.DataFrame({"a": ["a0", "a3"]})
    expected = [cells.given(pl.col("a") == a).share(pl.col("n") == 3) for a in ("a0", "a3")]
    assert model.probability({"n": 3}, given=frame) == pytest.approx(expected, abs=0.02)
    assert model.probability({"a": "a0"}, given={"a": "a0"}) == 1.0
    assert model.probability({"a": "a0"}, given={"a": "a1"}) == 0.0


def test_expectations_are_means_over_cells(cells: Any) -> None:
    known = cells.given(pl.col("b") == "b2")
    found = cells.model.expect(["n", "a"], given={"b": "b2"})
    assert found["n"][0] == pytest.approx(float(known.rows["n"].to_numpy() @ known.chance), abs=0.02)
    shares = cells.model.expect(["a"], given={"n": 2}, level_probabilities=True)
    known = cells.given(pl.col("n") == 2)
    expected = [known.share(pl.col("a") == level) for level in shares["level"]]
    assert shares["probability"].to_list() == pytest.approx(expected, abs=0.01)
    assert shares["probability"].sum() == pytest.approx(1.0)
    best = shares["level"][int(np.argmax(shares["probability"].to_numpy()))]
    assert cells.model.expect(["a"], given={"n": 2})["a"].to_list() == [best]


def test_quantiles_and_shares_below_agree_with_the_cells(cells: Any) -> None:
    known = cells.given(pl.col("a") == "a0")
    below = [known.share(pl.col("n") <= value) for value in range(6)]
    assert cells.model.cdf("n", list(range(6)), given={"a": "a0"}) == pytest.approx(below, abs=0.006)
    middles = [(low + high) / 2 for low, high in itertools.pairwise([0.0, *below]) if high - low > 0.03]
    values = [value for value, (low, high) in enumerate(itertools.pairwise([0.0, *below])) if high - low > 0.03]
    assert cells.model.quantile("n", middles, given={"a": "a0"}) == values


def test_rows_drawn_for_conditions_follow_the_cells(cells: Any) -> None:
    known = cells.given((pl.col("a") == "a1") & (pl.col("b") == "b2"))
    expected = [known.share(pl.col("n") == value) for value in range(6)]
    frame = pl.DataFrame({"a": ["a1"] * 4_000, "b": ["b2"] * 4_000})
    for rows in (
        cells.model.sample(1, given=frame, seed=3),
        cells.model.sample(4_000, given=frame[:1], seed=3),
        cells.model.sample(4_000, given={"a": "a1", "b": "b2"}, seed=3),
        cells.model.impute(frame.with_columns(n=pl.lit(None, pl.Int64)), draws=1, seed=3)[0],
    ):
        shares = [(rows["n"] == value).mean() for value in range(6)]
        assert shares == pytest.approx(expected, abs=0.035)
        assert rows.select("a", "b").unique().rows() == [("a1", "b2")]


def test_answers_about_held_out_rows_are_nearer_than_those_of_the_forest(cells: Any) -> None:
    real = table()
    errors = []
    for a, b, n in itertools.product(("a0", "a1", "a2", "a3"), ("b0", "b1", "b2"), range(6)):
        share = (real.filter(pl.col("a") == a, pl.col("b") == b)["n"] == n).mean()
        chances = [m.probability({"n": n}, given={"a": a, "b": b}) for m in (cells.model.without_refinement(),)]
        refined = cells.given((pl.col("a") == a) & (pl.col("b") == b)).share(pl.col("n") == n)
        errors.append([abs(chances[0] - share), abs(refined - share)])
    forest, refined = np.mean(errors, axis=0)
    assert refined < 0.5 * forest
