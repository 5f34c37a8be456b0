"""Timestamps whose hour another column contains are modelled without it."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.inference.answers import log_valid_share
from arf_dask.rules.expressions import Comparison, Name, write
from arf_dask.rules.grammar import parse_expression
from arf_dask.rules.solving import adjust
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.hours import HOUR, Hourless

N_ROWS = 1_500


def meals() -> pl.DataFrame:
    """Return meals of a year: the hour decides the meal, and the timestamp is written in UTC."""
    rng = np.random.default_rng(0)
    hours = rng.choice([6, 7, 8, 12, 18, 20], N_ROWS)
    days = rng.integers(0, 300, N_ROWS)
    local_times = [
        datetime(2023, 1, 1) + timedelta(days=int(d), hours=int(h)) for d, h in zip(days, hours, strict=True)
    ]
    stamps = pl.Series(local_times).dt.replace_time_zone("America/New_York").dt.convert_time_zone("UTC")
    minutes = rng.integers(0, 60, N_ROWS)
    return pl.DataFrame(
        {
            "stamp": stamps.dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "clock": hours * 100 + minutes,
            "hour": hours,
            "minute": minutes,
            "meal": np.where(hours < 10, "breakfast", np.where(hours < 15, "lunch", "dinner")),
        }
    )


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    return arf_dask.fit(meals(), trees=3, max_rounds=2, seed=1, progress=False)


def test_the_hour_of_a_timestamp_belongs_to_the_other_columns(model: arf_dask.Model) -> None:
    rows = model.sample(1_000, seed=2)
    assert model.check(rows)["broken"].to_list() == [0] * len(model.rules)
    assert any("hour(in_zone(datetime(stamp)" in rule.text for rule in model.rules)
    local_time = rows["stamp"].str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_zone="UTC")
    hours = local_time.dt.convert_time_zone("America/New_York").dt.hour()
    at = pl.col("at")
    latest = rows.select("meal", hours.alias("at")).group_by("meal").agg(at.min(), at.max().alias("to"))
    span = {meal: (low, high) for meal, low, high in latest.iter_rows()}
    assert span["breakfast"][1] <= span["lunch"][0]
    assert span["lunch"][1] <= span["dinner"][0]


def test_timestamps_can_be_given_imputed_and_scored(model: arf_dask.Model) -> None:
    data = meals()
    rows = model.sample(50, given={"stamp": data["stamp"][0]}, seed=3)
    assert rows["stamp"].unique().to_list() == [data["stamp"][0]]
    assert rows["hour"].unique().to_list() == [data["hour"][0]]
    assert model.check(rows)["broken"].sum() == 0
    holes = data.head(100).with_columns(
        pl.lit(None, dtype=pl.Int64).alias(name) for name in ("clock", "hour", "minute")
    )
    filled = model.impute(holes, seed=4)
    assert filled["stamp"].equals(holes["stamp"])
    assert model.check(filled)["broken"].sum() == 0
    assert filled["hour"].equals(data.head(100)["hour"])
    assert np.isfinite(model.log_density(data.head(50)).to_numpy()).all()
    later = data.head(50).with_columns(pl.col("hour") + 1, pl.col("clock") + 100)
    assert np.isneginf(model.log_density(later).to_numpy()).all()


def test_the_model_file_keeps_it(model: arf_dask.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    assert arf_dask.load(tmp_path / "m").sample(100, seed=5).equals(model.sample(100, seed=5))


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_a_timestamp_comes_back_from_its_day_and_its_hour(zone: str | None) -> None:
    dtype = pl.Datetime("ms", zone)
    stamps = pl.Series("at", [datetime(2024, 3, 30, 1, 15), datetime(2024, 7, 1, 23, 59)]).cast(pl.Datetime("ms"))
    stamps = stamps if zone is None else stamps.dt.replace_time_zone(zone)
    transform = Hourless(Target("at", dtype, None), "hour")
    frame = pl.DataFrame({"at": stamps, "hour": stamps.dt.hour()})
    reduced = transform.forward(frame)
    minutes = [19_812 * 60 + 15, 19_905 * 60 + 59]  # days since 1970 with an hour each
    assert reduced["at"].to_list() == [minute * 60_000_000 for minute in minutes]
    assert transform.inverse(frame, reduced).equals(stamps)


def test_hours_that_clocks_skip_are_drawn_again() -> None:
    transform = Hourless(Target("at", pl.Datetime("us"), None), "hour", "Europe/Berlin")
    frame = pl.DataFrame({"hour": [2]})  # 2 o'clock is skipped on the last Sunday of March
    rebuilt = transform.inverse(frame, {"at": pl.Series([19_813 * HOUR])})  # 2024-03-31
    assert transform.faults(pl.DataFrame({"at": rebuilt})).to_list() == [True]


def test_remainders_keep_the_other_digits() -> None:
    equation = Comparison(Name("minute"), "==", parse_expression("clock % 100"))
    adjusted = adjust(equation, "clock")
    assert adjusted is not None
    assert write(adjusted) == "clock // 100 * 100 + minute"


def test_a_timestamp_that_may_be_null_keeps_its_hour() -> None:
    is_lost = pl.int_range(N_ROWS) % 50 == 0
    data = meals().with_columns(stamp=pl.when(~is_lost).then("stamp"), hour=pl.when(~is_lost).then("hour"))
    model = arf_dask.fit(data, trees=3, max_rounds=0, seed=1, refine=False)
    assert not any(set(transform.outputs) == {"stamp"} for transform in model._fitted.relations.transforms)
    rows = model.sample(20_000, seed=2)
    assert rows["stamp"].is_null().mean() == pytest.approx(0.02, abs=0.003)
    assert np.isfinite(model.log_density(rows.head(1_000)).to_numpy()).all()


def test_every_modelled_number_has_a_time_of_the_hour() -> None:
    rng = np.random.default_rng(0)
    hours, days = np.clip(rng.normal(13, 3, 800), 0, 23).astype(int), rng.integers(0, 300, 800)
    stamps = pl.Series(
        [datetime(2024, 1, 1) + timedelta(days=d, hours=h) for d, h in zip(days.tolist(), hours.tolist(), strict=True)]
    ) + pl.Series([timedelta(minutes=15 * int(quarter)) for quarter in rng.integers(0, 4, 800)])
    model = arf_dask.fit(pl.DataFrame({"at": stamps, "hour": stamps.dt.hour()}), trees=3, refine=False, seed=1)
    assert any(isinstance(one, Hourless) for one in model._fitted.relations.transforms)
    rows = model.sample(2_000, seed=1)
    assert rows["at"].dt.minute().unique().sort().to_list() == [0, 15, 30, 45]
    assert np.exp(log_valid_share(model._sampler, rows.columns)) > 0.99
