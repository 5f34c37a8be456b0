from datetime import date, datetime, time, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from polars.testing.parametric import dataframes

from arf_dask.refinement.features import (
    LEVEL,
    MOST_CODES,
    MOST_LEVELS,
    NUMBERS,
    Feature,
    Rows,
    encode,
    learn_edges,
    learn_features,
    reads,
)
from arf_dask.rules.relations import NO_RELATIONS
from tests.hypothesis_profiles import examples


def codes(feature: Feature, *columns: Any) -> list[int]:
    frame = pl.DataFrame([pl.Series(f"c{i}", column) for i, column in enumerate(columns)])
    return feature.codes({name: frame.get_column(name) for name in frame.columns}).tolist()


def values(kind: str, *columns: Any) -> list[Any]:
    """The values of a feature, None for nulls."""
    found, is_null = NUMBERS[kind]([pl.Series(f"c{i}", column) for i, column in enumerate(columns)])
    return [None if missing else value for value, missing in zip(found.tolist(), is_null.tolist(), strict=True)]


def learned(frame: pl.DataFrame, keys: tuple[str, ...] = ()) -> dict[str, Feature]:
    return {feature.name: feature for feature in learn_features(frame, NO_RELATIONS, keys)}


# Codes.


def test_levels_are_counted_from_one_and_others_come_after_them() -> None:
    feature = Feature(LEVEL, ("c0",), levels=("x", "y"))
    assert codes(feature, ["y", None, "x", "never seen", ""]) == [2, 0, 1, 3, 3]
    assert feature.n_codes == 4


def test_levels_of_categories_are_those_of_their_texts() -> None:
    feature = Feature(LEVEL, ("c0",), levels=("x", "y"))
    for dtype in (pl.Categorical(), pl.Enum(["z", "y", "x"])):
        assert codes(feature, pl.Series(["y", None, "x", "z"], dtype=dtype)) == [2, 0, 1, 3]


def test_numbers_have_the_code_of_their_interval() -> None:
    feature = Feature("number", ("c0",), edges=np.array([1.0, 5.0]))
    assert codes(feature, [0.5, 1.0, 1.5, 5.0, 5.5, None, float("nan"), float("inf")]) == [1, 1, 2, 2, 3, 0, 4, 3]
    assert feature.n_codes == 5


def test_flags_and_moments_are_numbers() -> None:
    assert values("number", [True, False, None]) == [1.0, 0.0, None]
    assert values("number", [date(1970, 1, 3), None]) == [2.0, None]
    assert values("number", [timedelta(microseconds=7)]) == [7.0]
    assert values("number", pl.Series([12345], dtype=pl.Decimal(10, 2))) == [12345.0]


def test_roundness_counts_decimals_and_zeros() -> None:
    assert values("roundness", [0.5, 0.25, 3.0, 120.0, -7000.0, 1 / 3, None]) == [1.0, 2.0, 0.0, -1.0, -3.0, 7.0, None]
    assert values("roundness", [1, 10, 2500, 0]) == [0.0, -1.0, -2.0, -6.0]
    assert values("roundness", [float("nan"), float("inf")]) == [7.0, 7.0]


def test_parts_of_the_calendar_and_the_clock() -> None:
    at = [datetime(2024, 2, 29, 23, 45, 59), None]
    parts = {"month": 2.0, "day": 29.0, "weekday": 4.0, "hour": 23.0, "minute": 45.0, "second": 59.0}
    assert {part: values(part, at) for part in parts} == {part: [value, None] for part, value in parts.items()}
    assert values("hour", [time(7, 30)]) == [7.0]
    assert values("weekday", [date(2024, 3, 3)]) == [7.0]


def test_parts_of_a_moment_are_those_of_its_zone() -> None:
    at = pl.Series([datetime(2024, 1, 1, 23, 30)]).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    assert (values("hour", at), values("day", at)) == ([0.0], [2.0])


def test_differences_and_ratios() -> None:
    assert values("difference", [5, None, 2], [3, 1, None]) == [2.0, None, None]
    assert values("ratio", [6.0, 1.0, 0.0, None], [3.0, 0.0, 0.0, 2.0]) == [
        2.0,
        float("inf"),
        pytest.approx(float("nan"), nan_ok=True),
        None,
    ]
    days = values("difference", [date(2024, 1, 2)], [datetime(2024, 1, 1, 12)])
    assert days == [12 * 3600 * 10**6]


def test_differences_are_the_same_in_any_unit() -> None:
    at = [datetime(2024, 1, 1, 1), datetime(2024, 1, 1, 0)]
    for unit in ("ms", "us", "ns"):
        one, other = (pl.Series([moment]).cast(pl.Datetime(unit)) for moment in at)
        assert values("difference", one, other) == [3600 * 10**6]


def test_texts_are_the_same_or_not_across_types() -> None:
    one = pl.Series(["a", "b", None, "c"], dtype=pl.Enum(["a", "b", "c"]))
    assert values("same", one, ["a", "x", "a", None]) == [1.0, 0.0, None, None]


def test_length_counts_letters() -> None:
    assert values("length", ["", "é🎉", None]) == [0.0, 2.0, None]


# What is learned.


def test_edges_are_all_values_but_the_last_if_they_are_few() -> None:
    assert learn_edges(np.array([3.0, 1.0, 2.0, 1.0])).tolist() == [1.0, 2.0]
    assert learn_edges(np.array([7.0, 7.0])).tolist() == []
    assert learn_edges(np.empty(0)).tolist() == []


def test_frequent_values_have_a_code_of_their_own() -> None:
    rows = np.concatenate([np.random.default_rng(0).random(5_000), np.full(500, 0.5)])
    feature = Feature("number", ("c0",), edges=learn_edges(rows))
    found = np.array(codes(feature, rows))
    assert set(rows[found == found[-1]]) == {0.5}
    assert feature.n_codes <= MOST_CODES


def test_intervals_hold_about_as_many_values() -> None:
    rows = np.random.default_rng(1).lognormal(size=20_000)
    feature = Feature("number", ("c0",), edges=learn_edges(rows, 50))
    counts = np.bincount(codes(feature, rows))[1:]
    assert counts.max() < 2 * 20_000 / 50


def test_identifiers_and_constants_are_left_out() -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], "same": ["x"] * 3, "number": [4, 4, 5]})
    assert {feature.columns for feature in learned(frame, keys=("id",)).values()} == {("number",)}


def test_levels_come_in_the_order_of_their_frequency() -> None:
    found = learned(pl.DataFrame({"word": ["b", "a", "c", "c", None, None, None]}))
    assert found["word"].levels == ("c", "a", "b")


def test_only_the_most_frequent_of_many_levels_have_codes_and_the_length_of_all_is_seen() -> None:
    words = [f"w{i}" for i in range(300)]
    found = learned(pl.DataFrame({"word": [*words, "w7"]}))
    assert len(found["word"].levels) == MOST_LEVELS
    assert found["word"].n_codes == MOST_CODES
    assert found["word"].levels[0] == "w7"
    assert found["length(word)"].edges.tolist() == [2.0, 3.0]


def test_columns_that_hang_together_are_compared() -> None:
    rng = np.random.default_rng(2)
    a, c = rng.normal(size=500), rng.normal(size=500)
    frame = pl.DataFrame({"a": a, "b": a + rng.normal(size=500) / 5, "c": c})
    found = learned(frame)
    assert {feature.columns for feature in found.values() if len(feature.columns) == 2} == {("a", "b")}
    assert {"difference(a, b)", "ratio(a, b)"} <= set(found)


def test_columns_of_shared_levels_are_compared() -> None:
    rng = np.random.default_rng(3)
    home, away = rng.choice(["x", "y", "z"], 100), rng.choice(["x", "y", "v"], 100)
    found = learned(pl.DataFrame({"home": home, "away": away, "word": rng.choice(["p", "q"], 100)}))
    assert [feature.columns for feature in found.values() if feature.kind == "same"] == [("home", "away")]


def test_codes_are_a_function_of_each_row_alone() -> None:
    rng = np.random.default_rng(4)
    frame = pl.DataFrame({"x": rng.normal(size=300), "w": rng.choice(["a", "b"], 300), "n": rng.integers(0, 9, 300)})
    features = learn_features(frame, NO_RELATIONS, ())
    whole = encode(features, Rows(frame, NO_RELATIONS))
    some = encode(features, Rows(frame[100:110], NO_RELATIONS))
    assert all(np.array_equal(some[number], whole[number][100:110]) for number in whole)
    assert set(encode(features, Rows(frame, NO_RELATIONS), [1])) == {1}


@settings(max_examples=examples(40), deadline=None)
@given(
    frame=dataframes(
        min_cols=1,
        max_cols=4,
        min_size=1,
        max_size=30,
        allowed_dtypes=[
            *(pl.Int8, pl.UInt64, pl.Float32, pl.Float64, pl.Decimal(20, 3), pl.Boolean, pl.String, pl.Categorical),
            *(pl.Date, pl.Time, pl.Duration("ms"), pl.Datetime("ns"), pl.Datetime("us", "Asia/Kathmandu")),
        ],
        allow_null=True,
    )
)
def test_every_table_has_features_that_read_it(frame: pl.DataFrame) -> None:
    features = learn_features(frame, NO_RELATIONS, ())
    for number, column in encode(features, Rows(frame, NO_RELATIONS)).items():
        feature = features[number]
        assert reads(feature.kind, [frame.schema[name] for name in feature.columns]), feature
        assert feature.n_codes <= MOST_CODES
        assert column.max(initial=0) < feature.n_codes
        is_null = np.any([frame.get_column(name).is_null().to_numpy() for name in feature.columns], axis=0)
        assert np.array_equal(column == 0, is_null), feature


@pytest.mark.parametrize(
    ("kind", "dtypes"),
    [
        ("number", [pl.String()]),
        ("number", [pl.Int8(), pl.Int8()]),
        ("roundness", [pl.Boolean()]),
        ("month", [pl.Time()]),
        ("hour", [pl.Date()]),
        ("length", [pl.Int8()]),
        (LEVEL, [pl.Float64()]),
        ("ratio", [pl.Date(), pl.Date()]),
        ("difference", [pl.Date(), pl.Int8()]),
        ("difference", [pl.Time(), pl.Time()]),
        ("same", [pl.String(), pl.Int8()]),
        ("same", [pl.String()]),
    ],
    ids=str,
)
def test_what_a_kind_cannot_read(kind: str, dtypes: Any) -> None:
    assert not reads(kind, dtypes)
