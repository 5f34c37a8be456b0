from typing import Any

import numpy as np
import polars as pl
import pytest

from arf_dask.refinement.boosting import Boosting
from arf_dask.refinement.learning import LearningRows, learn_refinement, learn_trees
from arf_dask.refinement.ratio import Refinement
from arf_dask.rules.relations import NO_RELATIONS


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
