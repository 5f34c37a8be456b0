"""Every quantity equals the plain loops over leaves and columns of `brute.py`."""

from __future__ import annotations

import math
from datetime import date, datetime, time, timedelta
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from tests.brute import brute, conditions, normal_density, normal_mass, normal_mean, small_frame, small_model

JOINED = [f"{name}, joined" for name in ("continuous", "categorical", "mixed", "steps")]
MODELS = ["continuous", "categorical", "mixed", "steps", "plain", "open", "uniform", *JOINED]
CLOSE = 1e-9


def frame_of(name: str) -> pl.DataFrame:
    name = name.removesuffix(", joined")
    return small_frame({"open": "continuous", "uniform": "mixed", "plain": "mixed"}.get(name, name))


def rows_of(name: str, n: int = 12) -> pl.DataFrame:
    """Training rows, and as many that the columns' shuffled values make."""
    frame = frame_of(name)
    rng = np.random.default_rng(2)
    shuffled = pl.DataFrame({c: frame[c].gather(rng.permutation(frame.height)[:n]) for c in frame.columns})
    return pl.concat([frame.head(n), shuffled])


def log(density: float) -> float:
    return math.log(density) if density > 0 else -math.inf


def same_logs(found: pl.Series, expected: list[float]) -> None:
    assert found.dtype == pl.Float64
    assert found.null_count() == 0
    np.testing.assert_allclose(found.to_numpy(), expected, rtol=CLOSE, atol=CLOSE)


def physical(value: Any) -> float:
    """A number for any value that `expect` and `quantile` may give, in the unit that Polars holds."""
    if isinstance(value, timedelta):
        return value / timedelta(microseconds=1)
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1, tzinfo=value.tzinfo)) / timedelta(microseconds=1)
    if isinstance(value, date):
        return float((value - date(1970, 1, 1)).days)
    if isinstance(value, time):
        return (((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond) * 1000.0
    return float(value)


# The loops themselves


@pytest.mark.parametrize("name", MODELS)
def test_every_leaf_of_the_loops_sums_to_one(name: Any) -> None:
    leaves = brute(name).leaves
    assert sum(leaf.weight for leaf in leaves) == pytest.approx(1, abs=1e-12)
    for leaf in leaves:
        for pieces in leaf.variables:
            assert sum(piece.probability for piece in pieces) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("mu", "sigma", "lower", "upper"), [(0, 1, -1, 2), (3, 0.5, 0, 2), (-4, 2, 0, 9), (0, 1, -math.inf, math.inf)]
)
def test_the_normals_of_the_loops_are_those_of_scipy(mu: Any, sigma: Any, lower: Any, upper: Any) -> None:
    normal = stats.truncnorm((lower - mu) / sigma, (upper - mu) / sigma, mu, sigma)
    for x in (0.1, 0.7, 1.9):
        assert normal_density(x, lower, upper, mu, sigma) == pytest.approx(normal.pdf(x), rel=1e-10)
        assert normal_mass(lower, x, lower, upper, mu, sigma) == pytest.approx(normal.cdf(x), rel=1e-10)
    assert normal_mean(lower, upper, lower, upper, mu, sigma) == pytest.approx(normal.mean(), rel=1e-10)


# Densities


@pytest.mark.parametrize("name", MODELS)
def test_density_of_full_rows(name: Any) -> None:
    rows = rows_of(name)
    expected = [log(brute(name).density(row)) for row in rows.to_dicts()]
    assert any(math.isfinite(value) for value in expected)
    same_logs(small_model(name).log_density(rows), expected)


@pytest.mark.parametrize("name", MODELS)
def test_density_of_some_columns_is_the_marginal(name: Any) -> None:
    frame = rows_of(name, 3)
    for size in (1, 2, len(frame.columns) - 1):
        for columns in list(combinations(frame.columns, size))[:5]:
            some = frame.select(columns)
            same_logs(small_model(name).log_density(some), [log(brute(name).density(r)) for r in some.to_dicts()])


@pytest.mark.parametrize("name", ["categorical", "mixed", "plain", "categorical, joined", "mixed, joined"])
def test_nulls_are_values_or_integrated_out(name: Any) -> None:
    rows = rows_of(name, 20)
    assert sum(rows.null_count().row(0)) > 0
    expected = [log(brute(name).marginal(row)) for row in rows.to_dicts()]
    found = small_model(name).log_density(rows, missing="marginal")
    same_logs(found, expected)
    as_values = small_model(name).log_density(rows, missing="value")
    assert as_values.to_list() == small_model(name).log_density(rows).to_list()
    complete = rows.select(pl.all_horizontal(pl.all().is_not_null()))[:, 0]
    same_logs(as_values.filter(complete), found.filter(complete).to_list())
    assert (as_values.filter(~complete) <= found.filter(~complete)).all()


@pytest.mark.parametrize("name", MODELS)
def test_density_given_conditions_of_every_form(name: Any) -> None:
    rows = rows_of(name, 3)
    for given in conditions(name, 6):
        others = rows.select(pl.exclude(list(given)))
        if others.width == 0:
            continue
        expected = [log(brute(name).density(row, given)) for row in others.to_dicts()]
        same_logs(small_model(name).log_density(others, given=given), expected)


@pytest.mark.parametrize("name", MODELS)
def test_density_given_a_condition_on_the_same_columns(name: Any) -> None:
    rows = rows_of(name, 4)
    for given in conditions(name, 6, floats_as_points=False):
        expected = [log(brute(name).density(row, given)) for row in rows.to_dicts()]
        same_logs(small_model(name).log_density(rows, given=given), expected)


@pytest.mark.parametrize("name", MODELS)
def test_density_given_any_of_several_conditions(name: Any) -> None:
    rows = rows_of(name, 2)
    some = conditions(name, 9, most=2, floats_as_points=False)
    for given in (some[:2], some[2:5], some[5:8]):
        expected = [log(brute(name).density(row, given)) for row in rows.to_dicts()]
        same_logs(small_model(name).log_density(rows, given=given), expected)


# Probabilities


@pytest.mark.parametrize("name", MODELS)
def test_probability_of_events_of_every_form(name: Any) -> None:
    for event in conditions(name, 24, floats_as_points=False):
        found = small_model(name).probability(event)
        assert isinstance(found, float)
        assert found == pytest.approx(brute(name).probability(event), rel=CLOSE, abs=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_probability_given_conditions_of_every_form(name: Any) -> None:
    events, given = conditions(name, 12, floats_as_points=False), conditions(name, 13, most=2)[:12]
    for event, known in zip(events, given, strict=True):
        expected = brute(name).probability(event, known)
        assert small_model(name).probability(event, given=known) == pytest.approx(expected, rel=CLOSE, abs=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_probability_of_any_of_several_events(name: Any) -> None:
    some = conditions(name, 15, floats_as_points=False)
    for event in (some[:2], some[2:5], some[5:9], some[10:12] + some[10:12]):
        expected = brute(name).probability(event)
        assert small_model(name).probability(event) == pytest.approx(expected, rel=CLOSE, abs=1e-12)
        given = some[13:]
        expected = brute(name).probability(event, given)
        assert small_model(name).probability(event, given=given) == pytest.approx(expected, rel=CLOSE, abs=1e-12)


@pytest.mark.parametrize("name", ["continuous", "mixed", "open"])
def test_a_single_float_that_is_no_spike_has_probability_zero(name: Any) -> None:
    column = {"mixed": "bonus"}.get(name, "x")
    value = next(v for v in frame_of(name)[column] if v)
    assert small_model(name).probability({column: value}) == 0


def test_a_spike_on_a_grid_has_its_own_mass_and_that_of_the_interval_around_it() -> None:
    loops = brute("mixed")
    assert any(p.interval and p.lower < 22 < p.upper for leaf in loops.leaves for p in leaf.variables[2])
    for age in (18, 40, 41, 55):
        expected = loops.probability({"age": age})
        assert expected > 0
        assert small_model("mixed").probability({"age": age}) == pytest.approx(expected, rel=CLOSE)
        found = small_model("mixed").log_density(pl.DataFrame({"age": [age]}))[0]
        assert found == pytest.approx(math.log(expected), rel=CLOSE)


# Expectations


def mean_of(name: str, column: str, given: Any = None, **more: Any) -> float:
    return brute(name).value(column, brute(name).mean(column, given, **more))


def same_means(name: str, found: pl.DataFrame, given: Any) -> None:
    """One row of `expect` against the loops: means to 1e-9 of the range, and the most probable levels."""
    model = small_model(name)
    assert found.height == 1
    for column in model.schema.columns:
        value = found[column.name][0]
        if column.kind == "categorical":
            shares = brute(name).levels(column.name, given)
            assert shares[value] >= max(shares.values()) - CLOSE
        else:
            expected = mean_of(name, column.name, given)
            unit = 86_400e6 if isinstance(value, datetime) and column.dtype == pl.Date else 1.0
            values = frame_of(name)[column.name].drop_nulls()
            values = values.drop_nans() if column.dtype.is_float() else values
            span = float(values.to_physical().max()) - float(values.to_physical().min())
            resolution = 1.0 if column.dtype == pl.Date and unit == 1 else 1e3 if column.dtype.is_temporal() else 0.0
            assert abs(physical(value) / unit - expected) <= CLOSE * span + resolution


@pytest.mark.parametrize("name", MODELS)
def test_expectations_of_all_columns(name: Any) -> None:
    found = small_model(name).expect()
    assert found.columns == frame_of(name).columns
    same_means(name, found, None)


@pytest.mark.parametrize("name", MODELS)
def test_expectations_given_conditions_of_every_form(name: Any) -> None:
    for given in conditions(name, 8):
        if any(value is None or value != value for value in given.values()):
            continue  # a column known to be missing has no expectation
        same_means(name, small_model(name).expect(given=given), given)


@pytest.mark.parametrize("name", MODELS)
def test_expectations_given_any_of_several_conditions(name: Any) -> None:
    some = [c for c in conditions(name, 14, 2, False) if not any(v is None or v != v for v in c.values())]
    for given in (some[:2], some[2:5]):
        same_means(name, small_model(name).expect(given=given), given)


@pytest.mark.parametrize("name", ["categorical", "mixed", "plain", "categorical, joined", "mixed, joined"])
def test_tables_of_level_probabilities(name: Any) -> None:
    model = small_model(name)
    for given in (None, *conditions(name, 6)):
        table = model.expect(given=given, level_probabilities=True)
        categories = [c for c in model.schema.columns if c.kind == "categorical"]
        assert table["column"].unique(maintain_order=True).to_list() == [c.name for c in categories]
        for column in categories:
            rows = table.filter(pl.col("column") == column.name)
            levels = [str(v).lower() if isinstance(v, bool) else v for v in column.levels.to_list()]
            assert rows["level"].drop_nulls().to_list() == levels
            assert rows["probability"].sum() == pytest.approx(1, abs=1e-12)
            for value, label in zip([*column.levels.to_list(), None], [*levels, None], strict=True):
                found = rows.filter(pl.col("level").eq_missing(label))["probability"].sum()
                expected = brute(name).probability({column.name: value}, {} if given is None else given)
                assert found == pytest.approx(expected, abs=CLOSE)


# Quantiles


LINES = [
    *(("continuous", c) for c in "xyz"),
    *(("mixed", c) for c in ("bonus", "score", "age", "kids", "joined", "zip")),
    *(("plain", c) for c in ("bonus", "age")),
    *(("uniform", c) for c in ("score", "joined")),
    *(("steps", c) for c in ("at", "hour", "load")),
    ("open", "y"),
]


@pytest.mark.parametrize(("name", "column"), LINES)
def test_distribution_functions(name: Any, column: Any) -> None:
    values = (
        frame_of(name)[column].drop_nulls().drop_nans() if column == "score" else frame_of(name)[column].drop_nulls()
    )
    for given in (None, *conditions(name, 4, 1)):
        if given is not None and column in given:
            continue
        for x in values.head(6).to_list():
            found = small_model(name).cdf(column, x, given=given)
            assert found == pytest.approx(brute(name).cdf(column, x, given), rel=CLOSE, abs=1e-11)


@pytest.mark.parametrize(("name", "column"), LINES)
def test_quantiles_turn_the_distribution_function_round(name: Any, column: Any) -> None:
    model, loops = small_model(name), brute(name)
    axis = next(c for c in model.schema.columns if c.name == column).axis
    chances = [0.01, 0.25, 0.5, 0.9]
    for given in (None, *(c for c in conditions(name, 5, 1) if column not in c)):
        found = model.quantile(column, chances, given=given)
        assert found == sorted(found)
        for chance, value in zip(chances, found, strict=True):
            place = loops.place(column, value)
            step = 1.0 if axis.grid else 1e-6 * (axis.high - axis.low)
            below, above = place - step, place + (0 if axis.grid else step)
            assert loops.cdf_at(column, below, given) <= chance + 1e-9
            assert loops.cdf_at(column, above, given) >= chance - 1e-9
