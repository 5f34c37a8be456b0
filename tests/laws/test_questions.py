"""Laws that hold for any distribution, whatever the tables say."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask import Interval
from arf_dask.stats.truncated_normal import grid_moments
from tests.brute import conditions, holds, small_frame, small_model

MODELS = ["continuous", "categorical", "mixed", "steps", "plain", "open", "uniform"]
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)


def frame_of(name: str) -> pl.DataFrame:
    return small_frame({"open": "continuous", "uniform": "mixed", "plain": "mixed"}.get(name, name))


def fit(frame: pl.DataFrame, **options: Any) -> arf_dask.Model:
    return arf_dask.fit(frame, **{"trees": 3, "min_leaf": 6, "seed": 1, "bundles": False, **options})


# Where the bins of a line are cut, as steep curves sit at their ends: finer and finer towards both.
FINE = np.sort(np.concatenate([[0.0], *([0.5 * 3.0**-k, 1 - 0.5 * 3.0**-k] for k in range(1, 14)), [0.5]]))


def nodes_of(
    model: arf_dask.Model, column: str, width: float = 0.0, parts: np.ndarray = FINE
) -> tuple[np.ndarray, np.ndarray]:
    """Places and weights that integrate a density which is smooth between the bins of a line, each cut in parts."""
    found = model.schema.variable_of(column)
    axis = model.schema.columns[model.schema.names.index(column)].axis
    assert found is not None
    assert axis is not None
    number = found[0]
    edges = np.concatenate([[axis.low - width], model.schema.variables[number].edges, [axis.high + width]])
    inner = edges[:-1, None] + np.diff(edges)[:, None] * parts
    edges = np.append(inner.ravel(), edges[-1])
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + NODES)).ravel(), (half * WEIGHTS).ravel()


# Densities integrate to one


@pytest.mark.parametrize("family", ["truncnorm", "uniform"])
@pytest.mark.parametrize("spread", ["normal", "lognormal"])
def test_a_float_column_integrates_to_one(family: Any, spread: Any) -> None:
    rng = np.random.default_rng(0)
    model = fit(pl.DataFrame({"x": getattr(rng, spread)(size=300)}), family=family, columns={"x": "numeric"})
    places, weights = nodes_of(model, "x")
    density = np.exp(model.log_density(pl.DataFrame({"x": places})).to_numpy())
    assert density @ weights == pytest.approx(1, abs=1e-6)


def test_open_support_integrates_to_one_over_the_whole_line() -> None:
    model = fit(pl.DataFrame({"x": np.random.default_rng(0).normal(size=200)}), support="open")
    places, weights = nodes_of(model, "x", width=20.0)
    density = np.exp(model.log_density(pl.DataFrame({"x": places})).to_numpy())
    assert density @ weights == pytest.approx(1, abs=1e-6)
    assert density[places > 4].sum() > 0


def test_spikes_nulls_nans_and_the_rest_sum_to_one() -> None:
    bonus = small_frame("mixed").select(pl.col("bonus"), pl.col("score"))
    model = fit(bonus, columns={"bonus": "numeric", "score": "numeric"})
    for column, spike in (("bonus", 0.0), ("score", 5.0)):
        places, weights = nodes_of(model, column)
        density = np.exp(model.log_density(pl.DataFrame({column: places})).to_numpy())
        points = pl.DataFrame({column: [spike, *([None] if column == "bonus" else [math.nan])]})
        mass = np.exp(model.log_density(points).to_numpy())
        assert (mass > 0.05).all()
        assert density @ weights + mass.sum() == pytest.approx(1, abs=1e-6)


def test_two_float_columns_integrate_to_one() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=60)
    model = fit(pl.DataFrame({"x": x, "y": x + rng.normal(size=60)}), columns={"x": "numeric", "y": "numeric"})
    (x, x_weights), (y, y_weights) = (nodes_of(model, name, parts=np.zeros(1)) for name in "xy")
    grid = pl.DataFrame({"x": np.repeat(x, len(y)), "y": np.tile(y, len(x))})
    density = np.exp(model.log_density(grid).to_numpy()).reshape(len(x), len(y))
    assert x_weights @ density @ y_weights == pytest.approx(1, abs=1e-6)
    # Integrating one out leaves the marginal of the other.
    marginal = np.exp(model.log_density(pl.DataFrame({"x": x})).to_numpy())
    np.testing.assert_allclose(density @ y_weights, marginal, rtol=1e-6)


def test_a_float_and_a_level_integrate_to_one_also_given_something() -> None:
    rng = np.random.default_rng(4)
    side = rng.integers(0, 3, 200)
    frame = pl.DataFrame({"x": rng.normal(3 * side, 1), "side": np.array(["l", "m", "r"])[side]})
    model = fit(frame, columns={"x": "numeric"})
    places, weights = nodes_of(model, "x")
    total = {}
    for level in "lmr":
        rows = pl.DataFrame({"x": places, "side": [level] * len(places)})
        total[level] = np.exp(model.log_density(rows).to_numpy()) @ weights
        assert total[level] == pytest.approx(model.probability({"side": level}), rel=1e-6)
        given = np.exp(model.log_density(rows.select("x"), given={"side": level}).to_numpy()) @ weights
        assert given == pytest.approx(1, abs=1e-6)
    assert sum(total.values()) == pytest.approx(1, abs=1e-6)


def test_all_rows_of_a_discrete_model_sum_to_one() -> None:
    frame = small_frame("categorical")
    values = [frame[c].unique().to_list() for c in frame.columns]
    every = pl.DataFrame(list(product(*values)), schema=frame.schema, orient="row")
    model = small_model("categorical")
    assert np.exp(model.log_density(every).to_numpy()).sum() == pytest.approx(1, abs=1e-12)
    inside = every.filter((pl.col("a") == "p") & pl.col("c"))
    mass = np.exp(model.log_density(inside).to_numpy()).sum()
    assert mass == pytest.approx(model.probability({"a": "p", "c": True}), rel=1e-12)
    assert np.exp(model.log_density(every, given={"b": None}).to_numpy()).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("column", "points"), [("age", range(140)), ("kids", range(-1, 30)), ("zip", range(900, 1100))]
)
def test_the_points_of_a_grid_sum_to_one(column: Any, points: Any) -> None:
    dtype = small_frame("mixed").schema[column]
    rows = pl.DataFrame({column: pl.Series(list(points), dtype=dtype)})
    for name in ("mixed", "plain", "uniform"):
        mass = np.exp(small_model(name).log_density(rows).to_numpy())
        assert mass.sum() == pytest.approx(1, abs=1e-12)


# Partitions


PARTITIONS: dict[str, tuple[str, list[Any]]] = {
    "levels": ("mixed", [{"city": c} for c in ("Oslo", "Rome", "Lima", "Kyiv")]),
    "boolean": ("mixed", [{"member": True}, {"member": False}]),
    "spike": ("mixed", [{"bonus": None}, {"bonus": 0.0}, {"bonus": Interval(0.0, None, closed="none")}]),
    "NaN": ("mixed", [{"score": math.nan}, {"score": (None, 5.0)}, {"score": Interval(5.0, None, closed="none")}]),
    "closed left": (
        "mixed",
        [
            {"score": Interval(None, 5.0, closed="left")},
            {"score": Interval(5.0, 7.0, closed="left")},
            {"score": Interval(7.0, None, closed="left")},
            {"score": math.nan},
        ],
    ),
    "grid": (
        "mixed",
        [{"age": (None, 39)}, {"age": 40}, {"age": (41, 50)}, {"age": Interval(50, None, closed="right")}],
    ),
    "bundle": (
        "mixed",
        [
            {"city": "Oslo", "zip": (None, 1005)},
            {"city": "Oslo", "zip": (1006, None)},
            {"city": ["Rome", "Lima", "Kyiv"]},
        ],
    ),
    "choices": (
        "categorical",
        [{"a": ["p", "q"]}, {"a": ["r", "s", "t"], "b": None}, {"a": ["r", "s", "t"], "b": ["u", "v", "w"]}],
    ),
    "float": (
        "continuous",
        [{"x": Interval(None, -0.3, closed="right")}, {"x": Interval(-0.3, 0.4, closed="none")}, {"x": (0.4, None)}],
    ),
    "two floats": (
        "open",
        [{"x": (None, 0.1), "y": (None, 0)}, {"x": (None, 0.1), "y": (0, None)}, {"x": (0.1, None)}],
    ),
}


@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.parametrize("given", [None, "some"])
def test_the_parts_of_the_whole_sum_to_one(kind: Any, given: Any) -> None:
    name, parts = PARTITIONS[kind]
    model = small_model(name)
    if given == "some":
        given = {"mixed": {"kids": (1, 3)}, "categorical": {"c": True}}.get(
            name, {"z": (0.5, 2.5)} if name != "open" else {"z": 1.0}
        )
    assert sum(model.probability(part, given=given) for part in parts) == pytest.approx(1, abs=1e-12)
    assert model.probability(parts, given=given) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_known_is_certain(name: Any) -> None:
    model = small_model(name)
    assert model.probability({}) == pytest.approx(1, abs=1e-12)
    rows = frame_of(name).head(5)
    assert model.log_density(rows, given={}).to_list() == pytest.approx(model.log_density(rows).to_list(), abs=1e-12)


# Conditions


@pytest.mark.parametrize("name", MODELS)
def test_a_conditional_density_is_the_joint_over_the_probability(name: Any) -> None:
    model, rows = small_model(name), frame_of(name).head(10)
    for given in conditions(name, 10, floats_as_points=False):
        inside = pl.Series([all(holds(row[c], known) for c, known in given.items()) for row in rows.to_dicts()])
        joint = model.log_density(rows).to_numpy() - math.log(model.probability(given))
        found = model.log_density(rows, given=given).to_numpy()
        np.testing.assert_allclose(found, np.where(inside, joint, -np.inf), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_a_density_given_values_is_the_joint_over_their_density(name: Any) -> None:
    model, frame = small_model(name), frame_of(name)
    for number, column in enumerate(frame.columns):
        row = frame.slice(number, 1)
        known = row.select(column).to_dicts()[0]
        joint = model.log_density(row)[0] - model.log_density(row.select(column))[0]
        rest = row.select(pl.exclude(column))
        assert model.log_density(rest, given=known)[0] == pytest.approx(joint, abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_follow_bayes(name: Any) -> None:
    model = small_model(name)
    some, others = conditions(name, 9, 2, False), conditions(name, 10, 2, False)[:9]
    for a, b in zip(some, others, strict=True):
        if set(a) & set(b):
            continue
        joint = model.probability({**a, **b})
        assert model.probability(a, given=b) * model.probability(b) == pytest.approx(joint, rel=1e-9)
        assert model.probability(b, given=a) * model.probability(a) == pytest.approx(joint, rel=1e-9)


def test_alternatives_that_overlap_count_once() -> None:
    model = small_model("mixed")
    assert model.probability([{"age": (18, 40)}, {"age": (30, 60)}]) == pytest.approx(
        model.probability({"age": (18, 60)})
    )
    a, b = {"city": "Oslo"}, {"member": True, "bonus": (0.0, 3.0)}
    either = model.probability(a) + model.probability(b) - model.probability({**a, **b})
    assert model.probability([a, b]) == pytest.approx(either, rel=1e-9)
    assert model.probability([a, a, a]) == pytest.approx(model.probability(a), rel=1e-12)
    assert model.probability({"city": ["Oslo", "Oslo"]}) == pytest.approx(model.probability(a), rel=1e-12)
    assert model.probability([{}, a]) == pytest.approx(1, abs=1e-12)


def test_alternatives_that_meet_at_a_spike_count_it_once() -> None:
    """What the second adds to the first is the spike at 5 alone."""
    model = small_model("mixed")
    above, below = Interval(5.0, 8.0, closed="right"), Interval(5.0, 6.0, closed="left")
    spike = model.probability({"score": 5.0})
    assert model.probability([{"score": above}, {"score": below}]) == pytest.approx(
        model.probability({"score": above}) + spike, rel=1e-9
    )
    rome = model.probability({"score": 5.0, "city": "Rome"})
    for given in (
        [{"score": above}, {"score": below, "city": "Rome"}],
        [{"score": below, "city": "Rome"}, {"score": above}],
    ):
        assert model.probability(given) == pytest.approx(model.probability({"score": above}) + rome, rel=1e-9)
        share = rome / (model.probability({"score": above}) + rome)
        drawn = model.sample(20_000, given=given, seed=0)
        assert (drawn["score"] == 5.0).mean() == pytest.approx(share, abs=4 * math.sqrt(share / 20_000))


def test_alternatives_that_touch_at_a_value_of_a_density_lose_nothing() -> None:
    model, x = small_model("continuous"), 0.123
    right, left = Interval(x, 0.5, closed="right"), Interval(x, 1.0, closed="left")
    below = Interval(-1.0, x, closed="right")
    for given, low in (([right, left], x), ([left, right], x), ([(x, 0.5), left], x), ([below, left], -1.0)):
        either = model.probability([{"x": one} for one in given])
        assert either == pytest.approx(model.probability({"x": (low, 1.0)}), rel=1e-9)


@pytest.mark.parametrize("missing", ["bonus", "joined"])
def test_alternatives_with_a_missing_value_count_once(missing: Any) -> None:
    model = small_model("mixed")
    a, b = {missing: None}, {"city": "Rome"}
    either = model.probability(a) + model.probability(b) - model.probability({**a, **b})
    assert model.probability([a, b]) == pytest.approx(either, rel=1e-9)
    assert model.probability([b, a]) == pytest.approx(either, rel=1e-9)


def test_open_and_closed_ends_differ_by_the_spike_between_them() -> None:
    model = small_model("mixed")
    spike = model.probability({"score": 5.0})
    assert spike > 0.1
    closed = model.probability({"score": (5.0, 8.0)})
    how: Any
    for how, ends in (("left", 1), ("both", 1), ("right", 0), ("none", 0)):
        found = model.probability({"score": Interval(5.0, 8.0, closed=how)})
        assert found == pytest.approx(closed - spike * (1 - ends), abs=1e-12)
        found = model.probability({"score": Interval(2.0, 5.0, closed=how)})
        whole = model.probability({"score": (2.0, 5.0)})
        assert found == pytest.approx(whole - (spike if how in ("left", "none") else 0), abs=1e-12)


def test_open_and_closed_ends_on_a_grid() -> None:
    model = small_model("mixed")
    each = {k: model.probability({"age": k}) for k in range(38, 44)}
    how: Any
    for how, inside in (
        ("both", range(39, 44)),
        ("left", range(39, 43)),
        ("right", range(40, 44)),
        ("none", range(40, 43)),
    ):
        found = model.probability({"age": Interval(39, 43, closed=how)})
        assert found == pytest.approx(sum(each[k] for k in inside), rel=1e-9)
    assert model.probability({"age": (38.5, 41.5)}) == pytest.approx(each[39] + each[40] + each[41], rel=1e-9)


# Outside the support


def test_rows_outside_the_support_are_minus_infinity_never_nan() -> None:
    model = small_model("mixed")
    row = small_frame("mixed").drop_nulls().head(1)
    odd = [
        pl.lit(1e300).alias("bonus"),
        pl.lit(-5.0).alias("bonus"),
        pl.lit(None, dtype=pl.Float64).alias("score"),  # never missing in training
        pl.lit(math.nan).alias("bonus"),  # never NaN in training
        pl.lit(math.inf).alias("score"),
        pl.lit(-math.inf).alias("score"),
        pl.lit(10_000, dtype=pl.Int64).alias("age"),
        pl.lit("Paris").alias("city"),
        pl.lit(2, dtype=pl.Int32).alias("zip"),
        pl.lit(1000, dtype=pl.Int32).alias("zip"),
        pl.lit(None, dtype=pl.Boolean).alias("member"),
    ]
    city = row["city"][0]
    rows = pl.concat([row.with_columns(one) for one in odd if not (city == "Oslo" and one.meta.output_name() == "zip")])
    found = model.log_density(rows)
    assert found.to_list() == [-math.inf] * rows.height
    assert model.log_density(row)[0] > -math.inf
    given = model.log_density(rows, given={"kids": (0, 9)})
    assert given.to_list() == [-math.inf] * rows.height


@pytest.mark.parametrize("name", MODELS)
def test_no_density_is_nan_or_plus_infinity(name: Any) -> None:
    frame = frame_of(name)
    rng = np.random.default_rng(8)
    rows = pl.DataFrame({c: frame[c].gather(rng.integers(0, frame.height, 2_000)) for c in frame.columns})
    for given in (None, *conditions(name, 4)):
        data = rows if given is None else rows.select(pl.exclude(list(given)))
        if data.width:
            found = small_model(name).log_density(data, given=given).to_numpy()
            assert not np.isnan(found).any()
            assert (found < np.inf).all()


def test_means_far_from_the_curve_are_finite_whatever_is_computed_beside_them() -> None:
    """The first box, 70 sigma out, alone has one point; beside a wider box it must not underflow."""
    alone = grid_moments([160.0], [0.05], [155.5], [156.5]).mean
    beside = grid_moments([160.0, 5.0], [0.05, 3.0], [155.5, 0.5], [156.5, 9.5]).mean
    assert alone[0] == beside[0] == pytest.approx(156)
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"k": rng.integers(0, 400, 170), "b": rng.random(170) < 0.5})
    model = fit(frame, trees=2, min_leaf=1, columns={"k": "numeric"})
    found = [model.expect(["k"], given={"k": (None, high)})["k"][0] for high in range(5, 400, 15)]
    assert found == sorted(found)
    assert all(0 <= value <= 400 for value in found)


def test_marginalising_a_value_that_was_never_missing() -> None:
    model = small_model("mixed")
    row = small_frame("mixed").drop_nulls().head(3)
    without = row.drop("kids")
    emptied = row.with_columns(pl.lit(None, dtype=pl.Int64).alias("kids"))
    assert model.log_density(emptied).to_list() == [-math.inf] * 3
    found = model.log_density(emptied, missing="marginal").to_list()
    assert found == pytest.approx(model.log_density(without).to_list(), rel=1e-12)


def test_a_row_of_nothing_known_has_density_one() -> None:
    model = small_model("mixed")
    empty = small_frame("mixed").clear(2)
    assert model.log_density(empty, missing="marginal").to_list() == pytest.approx([0, 0], abs=1e-12)


# Rows


def test_batches_and_the_order_of_rows_do_not_matter() -> None:
    model, frame = small_model("mixed"), small_frame("mixed")
    rng = np.random.default_rng(1)
    rows = frame.select(pl.all().gather(rng.integers(0, frame.height, 18_000)))
    whole = model.log_density(rows)
    assert len(whole) == rows.height
    order = rng.permutation(rows.height)
    shuffled = model.log_density(rows[order])
    np.testing.assert_allclose(shuffled.to_numpy(), whole.to_numpy()[order], rtol=1e-13)
    for start, size in ((0, 1), (7, 33), (16_380, 10), (17_999, 1)):
        part = model.log_density(rows.slice(start, size))
        np.testing.assert_allclose(part.to_numpy(), whole.to_numpy()[start : start + size], rtol=1e-13)
    partial = model.log_density(rows.select("age", "bonus"), given={"city": "Rome"}, missing="marginal")
    again = model.log_density(rows[order].select("bonus", "age"), given={"city": "Rome"}, missing="marginal")
    np.testing.assert_allclose(again.to_numpy(), partial.to_numpy()[order], rtol=1e-13)


def test_no_rows_have_no_densities() -> None:
    found = small_model("mixed").log_density(small_frame("mixed").clear())
    assert found.dtype == pl.Float64
    assert len(found) == 0


def test_the_order_of_columns_does_not_matter() -> None:
    model, rows = small_model("mixed"), small_frame("mixed").head(20)
    assert model.log_density(rows.select(reversed(rows.columns))).to_list() == model.log_density(rows).to_list()


def test_what_is_given_stays_as_it_was() -> None:
    model, rows = small_model("mixed"), small_frame("mixed").head(20)
    before = rows.clone()
    known = {"city": ["Oslo", "Rome"], "age": (20, 50)}
    model.log_density(rows, given=known)
    model.probability(known, given=known)
    model.expect(given=known)
    assert rows.equals(before, null_equal=True)
    assert known == {"city": ["Oslo", "Rome"], "age": (20, 50)}


# Training means and shares


@pytest.mark.parametrize("name", ["continuous", "open"])
def test_expectations_of_floats_without_spikes_are_the_training_means(name: Any) -> None:
    frame, found = frame_of(name), small_model(name).expect()
    for column in frame.columns:
        span = float(np.ptp(frame[column].to_numpy()))
        assert found[column][0] == pytest.approx(frame[column].to_numpy().mean(), abs=1e-9 * span)


@pytest.mark.parametrize("column", ["bonus", "score", "age", "kids", "zip"])
def test_expectations_without_smoothing_are_the_training_means(column: Any) -> None:
    values = small_frame("mixed")[column].drop_nulls()
    values = values.drop_nans() if values.dtype.is_float() else values
    span = values.max() - values.min()
    found = small_model("plain").expect([column])[column][0]
    assert float(found) == pytest.approx(values.mean(), abs=1e-9 * span)


def test_means_of_every_leaf_of_a_larger_frame_are_the_training_means() -> None:
    rng = np.random.default_rng(12)
    rows = 2_000
    x = rng.gamma(1.5, 2.0, rows)
    frame = pl.DataFrame({"x": x, "y": rng.normal(x, 1), "n": rng.poisson(40 + 10 * x), "u": rng.random(rows) ** 3})
    model = fit(frame, trees=5, columns=dict.fromkeys(frame.columns, "numeric"))
    found = model.without_smoothing().expect()
    for column in frame.columns:
        span = float(np.ptp(frame[column].to_numpy()))
        assert abs(found[column][0] - frame[column].mean()) <= 1e-9 * span, column


def test_probabilities_without_smoothing_are_the_training_shares() -> None:
    frame, model = small_frame("mixed"), small_model("plain")
    for column, value in (("city", "Oslo"), ("member", True), ("kids", 2), ("zip", 1007), ("bonus", 0.0)):
        share = (frame[column] == value).fill_null(False).mean()
        assert model.probability({column: value}) == pytest.approx(share, abs=1e-12)
    for column in ("bonus", "joined", "score"):
        share = frame[column].null_count() / frame.height
        assert (model.probability({column: None}) if share else 0) == pytest.approx(share, abs=1e-12)
    assert model.probability({"score": math.nan}) == pytest.approx(frame["score"].is_nan().mean(), abs=1e-12)


def test_without_smoothing_leaves_the_model_itself_as_it_was() -> None:
    model = small_model("categorical")
    before = model.probability({"a": "p"})
    plain = model.without_smoothing()
    assert isinstance(plain, arf_dask.Model)
    frame = small_frame("categorical")
    assert plain.probability({"a": "p"}) == pytest.approx((frame["a"] == "p").mean(), abs=1e-12)
    assert model.probability({"a": "p"}) == before


# Values of a density in events, and values that are no numbers


def test_a_single_value_of_a_density_adds_nothing_to_an_event() -> None:
    model, frame = small_model("continuous"), small_frame("continuous")
    value = float(frame["x"][0])
    rest = {"x": (value - 1.0, value + 0.5)}
    other = next(c for c in frame.columns if c != "x")
    alone = model.probability(rest)
    assert 0 < alone < 1
    assert model.probability([{"x": value}, rest]) == pytest.approx(alone, rel=1e-9)
    assert model.probability([rest, {"x": value + 2.0, other: (None, None)}]) == pytest.approx(alone, rel=1e-9)
    assert model.probability({"x": [value, (value - 1.0, value + 0.5)]}) == pytest.approx(alone, rel=1e-9)


def test_a_value_that_the_condition_fixes_is_certain_and_alternatives_to_it_count_once() -> None:
    model, frame = small_model("continuous"), small_frame("continuous")
    value = float(frame["x"][0])
    other = next(c for c in frame.columns if c != "x")
    low = {"x": value, other: (None, float(np.median(frame[other].to_numpy())))}
    given = {"x": value}
    assert model.probability({"x": value}, given=given) == pytest.approx(1)
    assert model.probability([low, {"x": (value - 1, value + 1)}], given=given) == pytest.approx(1)
    part = model.probability(low, given=given)
    assert 0 < part < 1
    assert model.probability([low, {"x": (value + 1, value + 2)}], given=given) == pytest.approx(part, rel=1e-9)
    rows = pl.DataFrame({"x": [value, value + 0.25]}, schema={"x": frame.schema["x"]})
    assert model.probability([low, {"x": (value + 1, value + 2)}], given=rows) == pytest.approx([part, 0.0], rel=1e-9)


def test_a_mean_given_nan_is_null_for_a_frame_as_for_a_dict() -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(300) < 0.3, np.nan, rng.normal(size=300))
    model = fit(pl.DataFrame({"x": x, "y": rng.normal(size=300) + np.isnan(x)}), columns={"x": "numeric"})
    by_frame = model.expect(given=pl.DataFrame({"x": [float("nan"), 0.5]}))
    assert by_frame["x"].to_list() == [None, 0.5]
    assert by_frame["y"][0] == pytest.approx(model.expect(given={"x": float("nan")})["y"][0], rel=1e-9)
    assert model.expect(given={"x": float("nan")})["x"].to_list() == [None]
