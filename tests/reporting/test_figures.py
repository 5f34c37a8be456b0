"""Distances, associations and curves against scipy and scikit-learn, and against answers worked out by hand."""

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.stats.contingency import association
from sklearn.metrics import roc_auc_score, roc_curve

from arf_dask.reporting.associations import compare_pairs, correlation, correlation_ratio, cramers_v
from arf_dask.reporting.columns import align
from arf_dask.reporting.curves import auc_of, make_curve
from arf_dask.reporting.detector import detect
from arf_dask.reporting.distances import column_distance, histogram, ks_statistic, wasserstein
from arf_dask.reporting.neighbours import embed, nearest
from arf_dask.reporting.utility import density_coverage


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(1))


@pytest.mark.parametrize("ties", [False, True])
def test_distances_of_numbers_are_those_of_scipy(rng: np.random.Generator, ties: bool) -> None:
    first, second = rng.normal(size=500), rng.normal(0.3, 1.5, 731)
    if ties:
        first, second = first.round(1), second.round(1)
    assert ks_statistic(first, second) == pytest.approx(stats.ks_2samp(first, second).statistic, abs=1e-12)
    assert wasserstein(first, second) == pytest.approx(stats.wasserstein_distance(first, second), abs=1e-12)


def test_total_variation_counts_null_as_a_level_and_shape_leaves_it_out() -> None:
    real = pl.Series("x", ["a", "a", "b", None])
    other = pl.Series("x", ["a", "c", None, None])
    found = column_distance(real, other)
    assert found.tvd == pytest.approx((0.25 + 0.25 + 0.25 + 0.25) / 2)
    assert found.shape == pytest.approx(1 - (abs(2 / 3 - 1 / 2) + 1 / 3 + 1 / 2) / 2)
    assert found.missing == (0.25, 0.5)


def test_distance_of_numbers_sees_missing_values() -> None:
    found = column_distance(pl.Series("x", [1.0, 2.0, None, None]), pl.Series("x", [1.0, 2.0, 1.0, 2.0]))
    assert (found.ks, found.distance) == (0.0, 0.5)


def test_associations_are_those_of_scipy(rng: np.random.Generator) -> None:
    a, b = rng.integers(0, 4, 300), rng.integers(0, 3, 300)
    counts = np.zeros((4, 3), dtype=int)
    np.add.at(counts, (a, b), 1)
    assert cramers_v(a, b) == pytest.approx(association(counts, method="cramer"), abs=1e-12)
    x, y = rng.normal(size=200), rng.normal(size=200)
    assert correlation(x, x + y) == pytest.approx(stats.pearsonr(x, x + y).statistic, abs=1e-12)
    groups = [y[a[:200] == code] for code in range(4)]
    f = stats.f_oneway(*groups).statistic
    assert correlation_ratio(a[:200], y) ** 2 == pytest.approx(f * 3 / (f * 3 + 196), abs=1e-12)


def test_pairs_of_equal_frames_do_not_differ() -> None:
    frame = pl.DataFrame({"x": [1, 2, 3, 4], "y": [2.0, 4.0, 6.0, 8.0], "z": ["a", "a", "b", None]})
    pairs = compare_pairs(frame, frame)
    assert (pairs.difference, pairs.trend) == (0.0, 1.0)
    assert pairs.counted[0, 1]
    assert pairs.real[0, 1] == pytest.approx(1.0)


def test_auc_and_true_positive_rates_are_those_of_scikit_learn(rng: np.random.Generator) -> None:
    members, others = rng.normal(0.5, 1, 400).round(1), rng.normal(0, 1, 600).round(1)
    labels, scores = np.repeat([1, 0], [400, 600]), np.concatenate([members, others])
    curve = make_curve(members, others, rng)
    assert curve.auc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    for rate, found in curve.tpr.items():
        assert found == pytest.approx(true[false <= float(rate)].max(), abs=1e-12)
    assert curve.interval[0] < curve.auc < curve.interval[1]


def test_auc_by_hand() -> None:
    assert auc_of(np.array([3.0, 1.0]), np.array([2.0, 1.0])) == (1 + 1 + 0 + 0.5) / 4


def test_nearest_neighbours_by_hand() -> None:
    frame = pl.DataFrame({"x": [0.0, 1.0, 2.0, 3.0], "level": ["a", "b", "a", "a"]})
    points = embed([frame, pl.DataFrame({"x": [1.0], "level": ["a"]})]).points
    distance, which = nearest(points[1], points[0], 2)
    assert which.tolist() == [[0, 2]] or which.tolist() == [[2, 0]]  # a quarter of the ranks away; "b" is one away
    assert distance[0] == pytest.approx([0.25, 0.25])


def test_density_and_coverage_of_the_same_distribution(rng: np.random.Generator) -> None:
    points = [rng.normal(size=(800, 3)).astype(np.float32) for _ in range(2)]
    found = density_coverage(points[0], points[1])
    assert found.density == pytest.approx(1, abs=0.1)
    assert found.coverage == pytest.approx(0.97, abs=0.03)
    assert density_coverage(points[0], points[1] + 100) == (0.0, 0.0)


def test_pictures_name_no_level_of_few_rows_and_no_extreme_number() -> None:
    levels = pl.Series("x", ["often"] * 50 + ["canary"] * 9)
    assert histogram([levels, levels]).labels == ["often", "1 other level"]
    numbers = pl.Series("x", [float(i % 40) for i in range(400)] + [987654.0])
    assert max(float(label.replace(",", "")) for label in histogram([numbers, numbers]).labels) < 100


def test_identifiers_and_nested_columns_are_not_compared() -> None:
    frame = pl.DataFrame({"id": [f"K-{i:05d}" for i in range(200)], "x": [i % 5 for i in range(200)], "l": [[1]] * 200})
    sides = align(frame, frame, None, None)
    assert sides.real.columns == ["x"]
    assert sides.skipped == {"id": "identifier", "l": "List(Int64) columns cannot be compared"}


def test_the_rules_that_give_synthetic_rows_away_are_found() -> None:
    rng = np.random.Generator(np.random.SFC64(4))

    def rows(n: int, *, fake: bool) -> pl.DataFrame:
        age, sex = rng.integers(18, 90, n), np.array(["f", "m", "{rare}"])[rng.choice(3, n, p=[0.5, 0.499, 0.001])]
        retired = np.where(fake, rng.random(n) < 0.3, age > 67)
        return pl.DataFrame({"age": age, "sex": sex, "retired": retired, "when": pl.Series(age).cast(pl.Datetime)})

    found = detect(rows(3000, fake=False), rows(3000, fake=True), 3000, rng)
    first = found.rules[0]
    assert set(first.columns) <= {"age", "retired", "when"}
    assert abs(first.real - first.synthetic) > 0.1
    assert any("retired = " in rule.rule for rule in found.rules)
    assert not any("rare" in rule.rule for rule in found.rules)
    assert detect(rows(2000, fake=False), rows(2000, fake=False), 2000, rng).rules == []
