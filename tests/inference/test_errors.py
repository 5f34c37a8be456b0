"""What is wrong is said with the column and what would be right."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask import ArfError, DataError, Interval, OptionError
from tests.brute import small_frame, small_model

ASKS = {
    "sample": lambda model, given: model.sample(3, given=given, seed=0),
    "log_density": lambda model, given: model.log_density(pl.DataFrame({"kids": [1]}), given=given),
    "probability of": lambda model, given: model.probability(given),
    "probability given": lambda model, given: model.probability({"kids": 1}, given=given),
    "expect": lambda model, given: model.expect(["kids"], given=given),
    "quantile": lambda model, given: model.quantile("kids", [0.5], given=given),
    "cdf": lambda model, given: model.cdf("kids", 1, given=given),
}

WRONG = {
    "unknown column": ({"ctiy": "Oslo"}, ["'ctiy'", "'city'"]),
    "column of another case": ({"City": "Oslo"}, ["'City'", "'city'"]),
    "unseen level": ({"city": "Osloo"}, ["'city'", "'Osloo'", "'Oslo'"]),
    "unseen level far from all": ({"city": "Zzzzzz"}, ["'city'", "'Zzzzzz'", "Rome"]),
    "unseen level in a list": ({"city": ["Oslo", "Roma"]}, ["'city'", "'Roma'", "'Rome'"]),
    "number for a string": ({"city": 3}, ["'city'", "3"]),
    "string for a number": ({"age": "forty"}, ["'age'", "'forty'"]),
    "string for a float": ({"bonus": "0.0"}, ["'bonus'", "'0.0'"]),
    "string for a boolean": ({"member": "yes"}, ["'member'", "'yes'"]),
    "number for a date": ({"joined": 19_500}, ["'joined'", "19500"]),
    "string for a date": ({"joined": "2022-05-01"}, ["'joined'", "2022-05-01"]),
    "empty interval": ({"age": (50, 20)}, ["'age'", "50", "20"]),
    "interval of nothing": ({"age": Interval(30, 30, closed="left")}, ["'age'", "30"]),
    "interval of nothing on floats": ({"bonus": Interval(1.5, 1.5, closed="none")}, ["'bonus'", "1.5"]),
    "empty interval of dates": ({"joined": (date(2023, 1, 1), date(2022, 1, 1))}, ["'joined'", "2023", "2022"]),
    "interval with three ends": ({"age": (1, 2, 3)}, ["'age'"]),
    "interval of the wrong type": ({"age": ("a", "b")}, ["'age'", "'a'"]),
    "interval of levels": ({"city": ("Lima", "Oslo")}, ["'city'"]),
    "NaN as an end": ({"score": (math.nan, 3.0)}, ["'score'"]),
    "empty list": ({"city": []}, ["'city'", "empty"]),
    "empty list of numbers": ({"age": []}, ["'age'", "empty"]),
    "a dict for a column": ({"age": {"low": 3}}, ["'age'"]),
    "an error in the second alternative": ([{"city": "Oslo"}, {"agee": 3}], ["'agee'", "'age'"]),
    "no alternatives": ([], ["empty"]),
    "a string": ("city == 'Oslo'", ["str"]),
    "a number": (7, ["int"]),
}


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("kind", WRONG)
def test_wrong_conditions_say_what_is_wrong(kind: Any, ask: Any) -> None:
    given, words = WRONG[kind]
    with pytest.raises(OptionError) as caught:
        ASKS[ask](small_model("mixed"), given)
    for word in words:
        assert word in str(caught.value)


def test_an_infinite_value_is_no_condition() -> None:
    with pytest.raises(ArfError, match="bonus"):
        small_model("mixed").sample(3, given={"bonus": math.inf})


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pl.DataFrame({"ctiy": ["Oslo"]}), ["'ctiy'", "'city'"]),
        (pl.DataFrame({"city": ["Oslo", "Osloo"]}), ["'city'", "Osloo", "'Oslo'"]),
        (pl.DataFrame({"age": ["forty"]}), ["'age'"]),
        (pl.DataFrame({"joined": [3.5]}), ["'joined'"]),
        (pl.DataFrame({"city": [1]}), ["'city'"]),
    ],
    ids=["unknown column", "unseen level", "string for a number", "number for a date", "number for a string"],
)
def test_wrong_frames_of_conditions_say_what_is_wrong(frame: Any, words: Any) -> None:
    with pytest.raises((OptionError, DataError)) as caught:
        small_model("mixed").sample(2, given=frame)
    for word in words:
        assert word in str(caught.value)


def test_datetimes_for_dates_and_zones_that_do_not_match() -> None:
    rng = np.random.default_rng(0)
    stamps = pl.Series("t", rng.integers(0, 10**15, 100)).cast(pl.Datetime("us", "UTC"))
    model = arf_dask.fit(pl.DataFrame({"t": stamps}), trees=2, seed=0, columns={"t": "numeric"})
    with pytest.raises(OptionError, match="'t'"):
        model.sample(2, given={"t": (datetime(1975, 1, 1), None)})
    with pytest.raises(OptionError, match="'t'"):
        model.sample(2, given={"t": (date(1975, 1, 1), None)})


@pytest.mark.parametrize("closed", ["neither", "", None, True])
def test_intervals_are_closed_in_one_of_four_ways(closed: Any) -> None:
    with pytest.raises(OptionError, match="both"):
        Interval(1, 2, closed=closed)


@pytest.mark.parametrize("policy", ["ignore", "", None, 3])
def test_unknown_policies_are_refused(policy: Any) -> None:
    with pytest.raises(OptionError, match=r"(?s)on_impossible.*relax"):
        small_model("mixed").sample(2, given={"city": "Oslo"}, on_impossible=policy)


@pytest.mark.parametrize("missing", ["drop", "", None])
def test_unknown_ways_with_missing_values_are_refused(missing: Any) -> None:
    with pytest.raises(OptionError, match=r"(?s)missing.*marginal"):
        small_model("mixed").log_density(small_frame("mixed").head(2), missing=missing)


@pytest.mark.parametrize("n", [-1, 2.5, "3", True, None])
def test_rows_to_draw_are_a_whole_number(n: Any) -> None:
    with pytest.raises(OptionError, match="n="):
        small_model("mixed").sample(n, given={"city": "Oslo"})


def test_columns_to_expect_must_exist() -> None:
    with pytest.raises(OptionError, match=r"(?s)'aeg'.*'age'"):
        small_model("mixed").expect(["aeg"])


@pytest.mark.parametrize("ask", ["quantile", "cdf"])
def test_quantiles_need_a_column_of_numbers(ask: Any) -> None:
    model = small_model("mixed")
    with pytest.raises(OptionError, match=r"(?s)'aeg'.*'age'"):
        getattr(model, ask)("aeg", [0.5] if ask == "quantile" else 1)
    with pytest.raises(OptionError, match="'city'"):
        getattr(model, ask)("city", [0.5] if ask == "quantile" else "Oslo")


@pytest.mark.parametrize("q", [-0.1, 1.5, math.nan, "half"])
def test_quantiles_are_of_chances_between_zero_and_one(q: Any) -> None:
    with pytest.raises(OptionError, match="q"):
        small_model("mixed").quantile("age", [q])


@pytest.mark.parametrize("x", ["forty", date(2020, 1, 1)])
def test_distribution_functions_are_of_values_of_the_column(x: Any) -> None:
    with pytest.raises(OptionError, match="'age'"):
        small_model("mixed").cdf("age", x)


def test_rows_with_unknown_columns_or_other_types_are_refused() -> None:
    model, rows = small_model("mixed"), small_frame("mixed").head(2)
    with pytest.raises(ArfError, match=r"(?s)'ctiy'.*'city'"):
        model.log_density(rows.rename({"city": "ctiy"}))
    other = rows.with_columns(pl.col("age").cast(pl.String))
    for ask in (model.log_density, model.impute):
        with pytest.raises(ArfError, match="'age'"):
            ask(other)


@pytest.mark.parametrize("draws", [0, -1, 2.5, "3", True])
def test_draws_are_a_whole_number(draws: Any) -> None:
    with pytest.raises(OptionError, match="draws"):
        small_model("mixed").impute(small_frame("mixed").head(2), draws=draws)


def test_identifiers_can_not_be_conditions() -> None:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"id": [f"u{i:05d}" for i in range(100)], "x": rng.normal(size=100)})
    model = arf_dask.fit(frame, trees=2, seed=0, keys=["id"], columns={"x": "numeric"})
    with pytest.raises(OptionError, match="'id'"):
        model.sample(2, given={"id": "u00001"})
    drawn = model.sample(5, given={"x": (0.0, 1.0)}, seed=0)
    assert drawn["id"].n_unique() == 5
    assert np.isfinite(model.log_density(frame.head(3)).to_numpy()).all()
    assert np.isfinite(model.log_density(frame.head(3).drop("id")).to_numpy()).all()
