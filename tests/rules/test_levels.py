"""Numbers that hang on a level of other columns: places of countries, journey times of routes."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

import arf_dask
from arf_dask.data.value_sets import ValueSet
from arf_dask.rules.expressions import Name, write
from arf_dask.rules.finding import find_rules
from arf_dask.rules.relations import Relations
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.level import (
    Level,
    Levels,
    finish_levels,
    held_out_spread,
    left_out_spread,
    merge_levels,
    summarise_levels,
)

N = 3_000
LEVELS = Levels(("a", "b"), (10.0, 50.0), (1.0, 4.0), (-2.0, -2.0), (2.0, 2.0), (30.0, 20.0))
FRAME = pl.DataFrame({"x": [10.5, 9.0, 58.0, 30.0, None], "level": ["a", "a", "b", None, "b"]})


def level() -> Level:
    return Level(Target("x", pl.Float64(), 1, 0.0, 60.0), Name("level"), LEVELS)


def places(n_countries: int = 60, seed: int = 0) -> pl.DataFrame:
    """Places of countries, some of which are seen once; the population has nothing to do with them."""
    rng = np.random.default_rng(seed)
    lat, lon = rng.uniform(-60, 70, n_countries), rng.uniform(-170, 170, n_countries)
    size = rng.gamma(2, 0.5, n_countries)
    country = np.minimum(rng.geometric(0.06, N) - 1, n_countries - 1)
    return pl.DataFrame(
        {
            "country": np.array([f"country {i}" for i in range(n_countries)])[country],
            "lat": (lat[country] + size[country] * rng.uniform(-1, 1, N)).round(4),
            "lon": (lon[country] + size[country] * rng.uniform(-1, 1, N)).round(4),
            "people": rng.lognormal(8, 1, N).round(0),
        }
    )


def outside(rows: pl.DataFrame, real: pl.DataFrame, name: str, pad: float = 0.3) -> float:
    """Share of rows outside the padded range of their country."""
    ranges = real.group_by("country").agg(low=pl.col(name).min(), high=pl.col(name).max())
    rows = rows.join(ranges, on="country")
    room = pad * (rows["high"] - rows["low"]) + 0.5
    is_outside = (rows[name] < rows["low"] - room) | (rows[name] > rows["high"] + room)
    return int(is_outside.sum()) / rows.height


def test_values_are_offsets_from_their_level_and_come_back() -> None:
    offsets = level().forward(FRAME)["x"]
    assert offsets.to_list() == [0.5, -1.0, 2.0, 0.0, None]
    assert_series_equal(level().inverse(FRAME.drop("x"), {"x": offsets}), FRAME["x"])


def test_offsets_outside_the_range_of_the_level_are_drawn_again() -> None:
    rows = FRAME.with_columns(x=pl.Series([12.0, 12.5, 41.0, 59.0, None]))
    assert level().faults(rows).to_list() == [False, True, True, False, False]


def test_a_condition_is_translated_exactly_if_the_level_is_known_and_to_everything_otherwise() -> None:
    relations = Relations(("x", "level"), dict(FRAME.schema), {}, (), (level(),))
    wanted = ValueSet.read((9.0, 11.0), pl.Float64(), "x")
    (box,) = relations.translate({"x": wanted, "level": ValueSet.read("b", pl.String(), "level")}, observed=True).boxes
    assert box["x"].spans[0].low == pytest.approx((8.9 - 50) / 4, abs=0.03)
    assert box["x"].spans[0].high == pytest.approx((11.1 - 50) / 4, abs=0.03)
    (box,) = relations.translate({"x": wanted}, observed=True).boxes
    assert box["x"].spans[0].low == -np.inf


def test_sums_of_parts_give_the_levels_of_the_whole() -> None:
    frame, target = places(), Target("lat", pl.Float64(), 4, -90.0, 90.0)
    node = Name("country")
    whole = summarise_levels(target, node, frame)
    parts = merge_levels(summarise_levels(target, node, frame[:700]), summarise_levels(target, node, frame[700:]))
    one, other = finish_levels(target, whole), finish_levels(target, parts)
    assert one is not None
    assert other is not None
    assert one.names == other.names
    assert one.centres == pytest.approx(other.centres)
    assert left_out_spread(whole, frame.height) < 0.1


def test_levels_with_few_rows_do_not_hold_a_value_of_a_row() -> None:
    frame, target = places(), Target("lat", pl.Float64(), 4, -90.0, 90.0)
    learned = finish_levels(target, summarise_levels(target, Name("country"), frame))
    assert learned is not None
    counts = dict(frame["country"].value_counts().iter_rows())
    values = set(frame["lat"].to_list())
    rare = [index for index, name in enumerate(learned.names) if counts[name] < 10]
    assert rare
    for index in rare:
        assert learned.centres[index] not in values
        assert (learned.lows[index] * 2).is_integer()
        assert (learned.highs[index] * 2).is_integer()


def test_levels_that_do_not_tell_do_not_explain_themselves() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 400, 1_000).astype(float)
    assert held_out_spread(rng.normal(size=1_000), codes) > 0.95
    assert held_out_spread(codes * 10 + rng.normal(size=1_000), codes) < 0.4
    frame = pl.DataFrame({"level": codes, "x": rng.normal(size=1_000)})
    summary = summarise_levels(Target("x", pl.Float64(), None, -5.0, 5.0), Name("level"), frame)
    assert left_out_spread(summary, 1_000) > 0.95


def test_levels_are_found_by_what_they_tell_and_not_by_name() -> None:
    rng = np.random.default_rng(2)
    found = find_rules(places().head(1_500), (), rng).levels
    assert {(name, write(node)) for name, node in found} == {("lat", "country"), ("lon", "country")}
    start, stop = rng.integers(0, 12, (2, 1_500))
    stations = np.array([f"s{i}" for i in range(12)])
    route = pl.DataFrame({"start": stations[start], "stop": stations[stop], "year": rng.integers(2010, 2020, 1_500)})
    times = rng.uniform(30, 400, (12, 12))[start, stop] + rng.normal(0, 3, 1_500)
    levels = find_rules(route.with_columns(pl.Series("minutes", times)), (), rng).levels
    assert [(name, write(node)) for name, node in levels] == [("minutes", 'start + " | " + stop')]
    aged = rng.integers(20, 70, 1_500)
    smooth = pl.DataFrame({"age": aged, "months": aged * 12.0 + rng.normal(0, 20, 1_500)})
    assert find_rules(smooth, (), rng).levels == []  # a number that rises with another one


def test_drawn_places_lie_in_their_country(tmp_path: Path) -> None:
    frame = places()
    model = arf_dask.fit(frame, trees=5, max_rounds=2, seed=0, refine=False)
    model.save(tmp_path / "m")
    rows = model.sample(N, seed=1)
    assert rows.equals(arf_dask.load(tmp_path / "m").sample(N, seed=1))
    for name in ("lat", "lon"):
        assert outside(rows, frame, name) <= 0.02
        assert rows[name].round(4).equals(rows[name])
    given = model.sample(200, given={"country": "country 3"}, seed=2)
    assert outside(given, frame, "lat") == 0
    north = model.sample(200, given={"lat": (0.0, None)}, seed=3)
    assert (north["lat"] >= 0).all()
    assert outside(north, frame, "lat") <= 0.03


def test_the_density_is_that_of_the_values_and_not_of_their_offsets() -> None:
    frame = places().select("country", "lat")
    model = arf_dask.fit(frame, trees=5, max_rounds=2, seed=0, refine=False)
    inside = frame.filter(pl.col("country") == "country 1")["lat"].to_numpy()
    grid = np.linspace(2 * inside.min() - inside.max(), 2 * inside.max() - inside.min(), 801)
    rows = pl.DataFrame({"country": "country 1", "lat": grid.round(4)})
    densities = np.exp(model.log_density(rows, given={"country": "country 1"}).to_numpy())
    assert np.trapezoid(densities, grid) == pytest.approx(1.0, abs=0.1)
