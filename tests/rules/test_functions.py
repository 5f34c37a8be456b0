"""The functions of rules on values at the ends of their types: null where there is no answer, never an error."""

from typing import Any

import polars as pl
import pytest

from arf_dask.rules.evaluation import evaluate, kind_of_dtype
from arf_dask.rules.expressions import Call, Constant, Name
from arf_dask.rules.functions import FUNCTIONS

ENDS = [-(2**63) + 1, -(2**62), 0, 2**62, 2**63 - 1]
TICKS: list[Any] = [
    *(pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns")),
    *(pl.Datetime("us", "Europe/Berlin"), pl.Datetime("ns", "Asia/Kathmandu")),
    *(pl.Duration("ms"), pl.Duration("us"), pl.Duration("ns"), pl.Int64),
]
COLUMNS = [
    *(pl.Series(ENDS).cast(dtype) for dtype in TICKS),
    pl.Series([-(2**31), 2**31 - 1, 0], dtype=pl.Int32).cast(pl.Date),
    pl.Series([1e308, -1e308, 5e-324, float("nan")]),
    pl.Series([2**127 - 1, -(2**127)], dtype=pl.Int128),
    pl.Series([2**64 - 1], dtype=pl.UInt64),
    pl.Series(["10000000-01-01", "é", "", None]),
]
SECOND: dict[str, Any] = {
    "in_zone": "Europe/Berlin",
    "before": "-",
    "after": "-",
    "date_from": "%Y-%m-%d",
    "date_text": "%Y-%m",
    "left": 2,
    "right": 2,
    "pad": 4,
    "min": 5,
    "max": 5,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_ends_of_every_type_have_an_answer_or_null(name: str) -> None:
    second = (Constant(SECOND[name]),) if name in SECOND else ()
    tried = [column for column in COLUMNS if kind_of_dtype(column.dtype) in FUNCTIONS[name].takes[0]]
    for column in tried:
        if name in ("min", "max") and column.dtype.is_temporal():
            continue  # a number and a time do not compare
        assert len(evaluate(Call(name, (Name("x"), *second)), column.alias("x").to_frame())) == len(column)
    assert tried


def test_dates_beyond_the_calendar_are_null_and_others_stay() -> None:
    days = pl.Series([0, 19_000, 2**31 - 1], dtype=pl.Int32).cast(pl.Date)
    assert evaluate(Call("year", (Name("x"),)), days.alias("x").to_frame()).to_list() == [1970, 2022, None]


def test_starts_are_those_of_the_clock_in_the_zone() -> None:
    def starts(name: str, texts: list[str], zone: str) -> list[str | None]:
        stamps = pl.Series("x", texts).str.to_datetime(time_zone="UTC").dt.convert_time_zone(zone)
        found = evaluate(Call(name, (Name("x"),)), stamps.to_frame())
        return found.dt.convert_time_zone("UTC").dt.to_string("%Y-%m-%dT%H:%M").to_list()

    repeated = ["2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z"]  # both are half past two in Berlin
    assert starts("hour_start", repeated, "Europe/Berlin") == ["2024-10-27T00:00", "2024-10-27T01:00"]
    assert starts("month_start", ["2024-07-15T12:00:00Z"], "Europe/Berlin") == ["2024-06-30T22:00"]
    # Kathmandu put its clocks forward by a quarter of an hour when 1986 began.
    assert starts("year_start", ["1986-05-01T00:00:00Z"], "Asia/Kathmandu") == [None]
