import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from arf_dask.refinement import learning
from arf_dask.refinement.boosting import Boosting, Sides
from arf_dask.refinement.features import Feature
from arf_dask.refinement.learning import (
    LearningRows,
    Lesson,
    affordable,
    covered,
    distinction,
    feature_acceptance,
    learn_refinement,
    learn_trees,
)
from arf_dask.refinement.ratio import Refinement
from arf_dask.rules.relations import NO_RELATIONS
from tests.boosted import boosted


def learned(
    real: Any, drawn: Any, fresh: Any, *, seed: int = 0, sure: bool = True, keys: Any = ()
) -> Refinement | None:
    is_validation = np.random.default_rng([seed, 1]).random(real.height + drawn.height) < 0.2
    rows = LearningRows(real, drawn, fresh, is_validation)
    return learn_refinement(
        rows, NO_RELATIONS, keys, lambda lesson: learn_trees(lesson, Boosting(), seed), only_if_certain=sure
    )


def table(seed: int, n_rows: int) -> pl.DataFrame:
    """Two numbers and a text that depend on each other."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows)
    word = np.where(x + rng.normal(size=n_rows) > 0, "up", "down")
    return pl.DataFrame({"x": x, "y": x + rng.normal(size=n_rows), "word": word})


def triangle(seed: int, n_rows: int) -> pl.DataFrame:
    """Numbers between 0 and 1 with the density 2 x."""
    return pl.DataFrame({"x": np.sqrt(np.random.default_rng(seed).random(n_rows))})


def uniform(seed: int, n_rows: int) -> pl.DataFrame:
    return pl.DataFrame({"x": np.random.default_rng(seed).random(n_rows)})


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_learned_from_two_samples_of_one_distribution(seed: int) -> None:
    assert learned(table(seed, 2_000), table(100 + seed, 6_000), table(200 + seed, 1_000), seed=seed) is None


def test_nothing_is_learned_where_nothing_varies() -> None:
    same = pl.DataFrame({"x": [1] * 50, "id": range(50)})
    assert learned(same, same, same, keys=("id",)) is None


def test_a_known_ratio_is_recovered() -> None:
    found = learned(triangle(0, 20_000), uniform(1, 40_000), uniform(2, 40_000))
    assert found is not None
    x = np.linspace(0.1, 0.95, 60)
    log_ratios = found.log_ratio(pl.DataFrame({"x": x}), NO_RELATIONS)
    assert np.abs(log_ratios - np.log(2 * x)).mean() < 0.12
    # The ratio has a mean of one, and no row is more than twice as probable.
    assert abs(found.log_z) < 0.02
    assert found.z_error < 0.01
    assert found.log_cap == pytest.approx(np.log(2), abs=0.15)
    assert found.acceptance == pytest.approx(0.5, abs=0.08)
    # Half of the divergence of Jensen and Shannon is what telling them apart can gain: 0.1016 nats.
    grid = (np.arange(10**5) + 0.5) / 10**5
    exact = 0.5 * np.mean(2 * grid * np.log(2 * 2 * grid / (2 * grid + 1))) + 0.5 * np.mean(np.log(2 / (2 * grid + 1)))
    assert found.gain.nats == pytest.approx(exact, abs=4 * found.gain.error)


def test_what_only_two_columns_together_show_is_learned() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.choice(["p", "q"], 4_000), rng.choice(["p", "q"], 4_000)
    drawn = pl.DataFrame({"a": a, "b": b})
    real = drawn.filter((pl.col("a") == pl.col("b")) | pl.Series(rng.random(4_000) < 0.25))
    found = learned(real[:1_500], drawn[:3_000], drawn[3_000:])
    assert found is not None
    four = pl.DataFrame({"a": ["p", "p", "q", "q"], "b": ["p", "q", "p", "q"]})
    # The densities are 0.4 and 0.1 to 0.25.
    assert found.log_ratio(four, NO_RELATIONS) == pytest.approx(np.log([1.6, 0.4, 0.4, 1.6]), abs=0.2)
    assert found.importance["feature"][0] == "same(a, b)"


def test_a_gain_within_its_error_counts_only_if_it_is_asked_for() -> None:
    results = []
    for seed in range(6):
        real = table(seed, 600).with_columns(pl.col("y") + pl.Series(np.where(np.arange(600) % 12, 0.0, 1.0)))
        drawn = table(50 + seed, 1_800)
        sure, any_gain = (learned(real, drawn, table(90 + seed, 500), seed=seed, sure=sure) for sure in (True, False))
        assert sure is None or any_gain is not None
        results += [any_gain] if sure is None else []
    assert all(one is None or 0 < one.gain.nats <= 2 * one.gain.error for one in results)
    assert any(one is not None for one in results)


def test_learning_repeats_itself() -> None:
    one, other = (learned(triangle(0, 2_000), uniform(1, 4_000), uniform(2, 4_000)) for _ in range(2))
    assert one is not None
    assert other is not None
    assert np.array_equal(one.trees.value, other.trees.value)
    assert (one.slacks, one.log_cap, one.log_z) == (other.slacks, other.log_cap, other.log_z)


def test_relations_are_learned_after_the_columns_and_only_what_these_have_left() -> None:
    rng = np.random.default_rng(7)
    low, gap = rng.integers(0, 60, 30_000), rng.integers(1, 60, 30_000)
    high = low + gap
    drawn = pl.DataFrame({"low": low, "high": high})
    # Gaps of 1 to 9, 20 to 29 and 40 to 49 are half as frequent as they are drawn, which the columns hardly show.
    real = drawn.filter(((pl.col("high") - pl.col("low")) % 20 >= 10) | pl.Series(rng.random(30_000) < 0.5))
    found = learned(real[:8_000], drawn[:20_000], drawn[20_000:])
    assert found is not None
    assert "difference(low, high)" in found.importance["feature"].to_list()
    ratios = np.exp(found.log_ratio(pl.DataFrame({"low": [20, 20], "high": [55, 45]}), NO_RELATIONS))
    assert ratios[0] / ratios[1] == pytest.approx(2.0, rel=0.3)


def lesson(columns: Any, is_real: Any) -> Lesson:
    features = [Feature("number", (name,), edges=np.arange(200.0)) for name in columns]
    is_validation = np.arange(len(is_real)) % 5 == 0
    codes = {number: np.asarray(column, np.uint8) for number, column in enumerate(columns.values())}
    return Lesson(features, Sides(codes, np.asarray(is_real), is_validation))


def test_trees_are_learned_again_from_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    is_real = rng.random(3_000) < 0.4
    given = lesson({"x": np.where(is_real, rng.integers(0, 20, 3_000), rng.integers(5, 25, 3_000))}, is_real)
    found = learn_trees(given, Boosting(), 0)
    monkeypatch.setattr(learning, "MOST_RELEARNED", 0)
    first = learn_trees(given, Boosting(), 0)
    assert found.own.n_trees == math.ceil(1.1 * first.own.n_trees)
    assert found.gain == first.gain  # that of rows which the measured trees have not seen
    assert not found.related.n_trees


def test_trees_that_see_relations_are_given_up_where_too_few_rows_would_be_accepted() -> None:
    codes = {0: np.repeat(np.arange(100, dtype=np.uint8), 10)}
    own = boosted((0, set(range(50)), 0.0, np.log(2.0)))
    mild = boosted((0, set(range(90)), 0.0, 1.0), (0, set(range(95)), 0.0, 1.0))
    assert affordable(own, mild, codes).n_trees == 2
    # Ninety-nine rows of a hundred are rejected by either tree, but for one row in forty thousand.
    steep = boosted(*[(0, set(range(99)), -9.0, 9.0)] * 4)
    assert not affordable(own, steep, codes).n_trees


def test_only_trees_that_drawn_rows_cover_are_kept() -> None:
    codes = {0: np.repeat(np.arange(100, dtype=np.uint8), 10)}
    mild = boosted((0, set(range(50)), -0.5, 0.4), (0, set(range(50)), -0.5, 0.4))
    assert covered(mild, codes) is mild
    # Two trees leave a mean ratio of exp(-2) and more, four of them one of 0.02.
    steep = boosted(*[(0, set(range(99)), -1.0, 1.0)] * 4)
    assert covered(steep, codes).n_trees == 2
    hopeless = boosted((0, set(range(99)), -9.0, 1.0))
    assert not covered(hopeless, codes).n_trees


def test_derived_features_that_show_no_difference_are_not_seen() -> None:
    rng = np.random.default_rng(2)
    is_real = rng.random(4_000) < 0.5
    noise = rng.integers(0, 60, 4_000).astype(np.uint8)
    assert distinction(noise, is_real) < 4
    assert distinction(np.where(is_real, noise // 2, noise).astype(np.uint8), is_real) > 20


def test_a_feature_costs_the_acceptance_that_it_needs() -> None:
    is_real = np.repeat([True, False], 6_000)
    drawn = np.arange(6_000, dtype=np.int64) % 60  # minutes, where real ones are always zero
    assert feature_acceptance(np.concatenate([np.zeros(6_000), drawn]).astype(np.uint8), is_real) < 0.02
    assert feature_acceptance(np.concatenate([drawn, drawn]).astype(np.uint8), is_real) > 0.9
