"""Attacks find planted leaks, and nothing where there is nothing to find."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.data.fingerprints import Key, cell_words, near_words, new_key, row_words, siphash
from arf_dask.reporting.columns import align
from arf_dask.reporting.copies import copy_rates, rare_levels
from arf_dask.reporting.curves import auc_of, make_curve, rate_interval, rate_of
from arf_dask.reporting.legal_tests import infer_attributes, link, single_out
from arf_dask.reporting.membership import (
    Arena,
    by_classifier,
    by_density_ratio,
    by_log_density,
    by_neighbour,
    make_arena,
)
from arf_dask.reporting.neighbours import embed
from arf_dask.reporting.shadows import black_box, cast_shadows, likelihood_ratio, white_box
from arf_dask.reports import make_refit


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def people(n: int, seed: int) -> pl.DataFrame:
    """Rows of a known distribution: numbers and levels that depend on one another."""
    rng = generator(seed)
    age = rng.integers(18, 90, n)
    income = np.exp(rng.normal(10 + age / 100, 0.5)).round(2)
    return pl.DataFrame(
        {
            "age": age,
            "income": income,
            "debt": (income * rng.random(n)).round(2),
            "region": np.array(["north", "south", "east", "west"])[rng.integers(0, 4, n)],
            "owner": rng.random(n) < age / 100,
            "score": rng.normal(size=n).round(3),
        }
    )


@pytest.fixture(scope="module")
def real() -> pl.DataFrame:
    return people(1500, 1)


@pytest.fixture(scope="module")
def holdout() -> pl.DataFrame:
    return people(1500, 2)


def test_rows_of_the_true_distribution_give_a_half() -> None:
    real = people(1500, 1102)
    arena = make_arena(real, people(1500, 1302), people(1500, 1202), 700, generator(2))
    refit = make_refit(None, align(real, real, None, None))
    shadows = cast_shadows(arena, real, refit, 4, 1500, generator(1), lambda: None)
    scores = [
        by_neighbour(arena),
        by_density_ratio(arena, refit, 1),
        by_classifier(arena, 1),
        black_box(arena, shadows),
    ]
    for found in scores:
        low, high = make_curve(*found, generator(2)).interval
        assert low <= 0.5 <= high


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_copied_rows_are_found(real: pl.DataFrame, holdout: pl.DataFrame, noise: float) -> None:
    copied = real.sample(fraction=0.05, seed=3)
    blurred = copied.with_columns(
        pl.col("income", "debt") * (1 + noise * pl.Series(generator(4).normal(size=copied.height))),
        pl.col("score") + noise * pl.Series(generator(5).normal(size=copied.height)),
    )
    synthetic = pl.concat([people(1425, 6), blurred])
    arena = make_arena(real, synthetic, holdout, 1500, generator(0))
    found = by_neighbour(arena)
    is_copied = real.with_row_index()[arena.member_rows].join(copied, on=copied.columns, how="semi")["index"]
    chosen = np.isin(arena.member_rows, is_copied.to_numpy())
    assert chosen.sum() > 20
    assert auc_of(found.members[chosen], found.others) > 0.9
    refit = make_refit(None, align(real, real, None, None))
    calibrated = black_box(arena, cast_shadows(arena, real, refit, 2, 1500, generator(1), lambda: None))
    assert auc_of(calibrated.members[chosen], calibrated.others) > 0.9


def test_a_model_that_memorises_is_found(real: pl.DataFrame, holdout: pl.DataFrame) -> None:
    model = arf_dask.fit(real, trees=3, min_leaf=2, seed=0, progress=False)
    arena = make_arena(real, model.sample(1500, seed=1), holdout, 700, generator(0))
    shadows = cast_shadows(
        arena, real, make_refit(model, align(real, real, None, None)), 4, 1500, generator(1), lambda: None
    )
    plain = by_log_density(arena, model)
    calibrated = white_box(arena, shadows, model)
    assert auc_of(*plain) > 0.9
    assert auc_of(*calibrated) > 0.9


def test_shadow_models_are_refined_if_the_attacked_model_is() -> None:
    rng = generator(3)
    one = rng.integers(0, 24, 2_000)
    real = pl.DataFrame({"a": one, "b": (one + rng.integers(0, 3, 2_000)) % 24, "c": rng.integers(0, 24, 2_000)})
    real = real.with_columns(d=(pl.col("a") * pl.col("b") + pl.col("c") % 2) % 24)
    refined = arf_dask.fit(real, trees=3, seed=0, progress=False)
    released = arf_dask.fit(real, trees=3, seed=0, progress=False, release=arf_dask.ReleasePolicy())
    assert refined._fitted.refinement is not None
    without = arf_dask.Model(replace(refined._fitted, refinement=None))
    for model, is_refined in ((refined, True), (released, True), (without, False)):
        shadow = make_refit(model, align(real, real, None, None))(real[:1_000], 1)
        assert isinstance(shadow, arf_dask.Model)
        assert (shadow._fitted.refinement is not None) == is_refined


def test_likelihood_ratio_by_hand() -> None:
    frame = pl.DataFrame({"x": [0.0, 1.0]})
    arena = Arena(frame, frame, frame, frame, np.arange(2), np.arange(2))
    held = np.array([[True, False] * 2, [False, True] * 2, [True, False] * 2, [False, True] * 2])
    told = np.where(held, 3.0, 1.0) + np.array([[0.5], [0.5], [-0.5], [-0.5]])
    found = likelihood_ratio(arena, np.array([3.0, 3.0, 1.0, 1.0]), told, held)
    # Means 3 and 1, variance 4 * 4 * 0.25 / (16 - 8) = 0.5: 2 * (seen - 1 - 1) / 0.5.
    assert found.members == pytest.approx([4.0, 4.0])
    assert found.others == pytest.approx([-4.0, -4.0])


def test_a_rate_of_few_people_is_less_sure_than_one_of_as_many_trials() -> None:
    hits = np.repeat([1.0, 0.0], 50)
    assert rate_of(hits).trials == 100
    assert rate_of(hits, np.repeat(np.arange(10), 10)).trials == pytest.approx(10)
    assert rate_of(np.ones(100), np.repeat(np.arange(10), 10)).trials == 10
    low, high = rate_interval(rate_of(np.zeros(20)), rate_of(np.zeros(20)))[1:]
    assert low == pytest.approx(-0.161, abs=1e-3)  # Wilson's upper end of 0 of 20
    assert high == -low


def test_copies_are_counted_by_hand() -> None:
    real = pl.DataFrame({"a": [1, 2, 3], "b": ["x", "y", None], "c": [0.0, 1.0, 2.0]})
    rows = pl.DataFrame({"a": [1, 2, 9, 7], "b": ["x", "y", None, "q"], "c": [-0.0, 5.0, 2.0, 7.0]})
    found = copy_rates(real, [rows], Key(3, 4))[0]
    assert found.identical == 0.25
    assert found.near == 0.75


def test_rare_levels_that_came_through() -> None:
    real = pl.DataFrame({"a": ["x"] * 20 + ["rare", "gone"]})
    assert rare_levels(real, pl.DataFrame({"a": ["x", "rare"]}), ["a"]) == {"a": 1}


def test_siphash_is_the_published_one() -> None:
    # The reference implementation: key 00 01 .. 0f, message 00 01 .. 07.
    key = Key(0x0706050403020100, 0x0F0E0D0C0B0A0908)
    assert siphash(np.array([0x0706050403020100], dtype=np.uint64), key)[0] == 0x93F5F5799A932462


def test_fingerprints_depend_on_the_key_and_ignore_how_categories_are_numbered() -> None:
    frame = pl.DataFrame({"a": ["x", "y"], "b": [1, 2]})
    key, other = new_key(), new_key()
    words = row_words(cell_words(frame, key))
    assert (words == row_words(cell_words(frame.cast({"a": pl.Enum(["y", "x"])}), key))).all()
    assert not (words == row_words(cell_words(frame, other))).any()
    near = near_words(cell_words(frame, key))
    changed = near_words(cell_words(frame.with_columns(b=pl.lit(9, pl.Int64)), key))
    assert (near[:, 1] == changed[:, 1]).all()
    assert not (near[:, 0] == changed[:, 0]).any()


def test_the_three_legal_tests_find_a_release_of_the_data_itself(real: pl.DataFrame, holdout: pl.DataFrame) -> None:
    members, others = real.head(600), holdout.head(600)
    found = single_out(members, others, members, generator(0))
    assert found is not None
    assert found.interval[0] > 0.1
    embedding = embed([members, members, others])
    ordered = embedding._replace(points=[embedding.points[1], embedding.points[2], embedding.points[0]])
    linked = link(ordered, generator(0))
    assert linked is not None
    assert linked.interval[0] > 0.1
    inference = infer_attributes(ordered, members, others, members)
    assert inference["region"].members == 1.0
    assert inference["region"].others == pytest.approx(0.25, abs=0.08)
    assert inference["score"].interval[0] > 0.5


def test_the_three_legal_tests_find_nothing_in_rows_of_the_true_distribution(
    real: pl.DataFrame, holdout: pl.DataFrame
) -> None:
    members, others, synthetic = real.head(600), holdout.head(600), people(1500, 9)
    embedding = embed([synthetic, members, others])
    ordered = embedding._replace(points=[embedding.points[1], embedding.points[2], embedding.points[0]])
    games = [single_out(members, others, synthetic, generator(0)), link(ordered, generator(0))]
    games += infer_attributes(ordered, members, others, synthetic).values()
    played = [game for game in games if game is not None]
    assert len(played) == 8
    assert all(abs(game.excess) < 0.08 for game in played)
    assert sum(game.interval[0] > 0 for game in played) <= 1
