"""Rules of model files of version 3 are read as today's transforms."""

import json
from datetime import date, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from arf_dask.rules.relations import Relations
from arf_dask.storage.rule_fields import describe_relations, parse_relations

FRAME = pl.DataFrame(
    {
        "day": ["04.03.2022", "31.12.2022"],
        "month": ["2018-05-01", "2022-12-01"],
        "seen": ["2022-03-03 14:30", "2022-10-29 00:00"],  # a Thursday, a Saturday
        "noted": [datetime(2022, 3, 3, 14, 30), datetime(2022, 10, 29)],
        "stamp": ["2023-01-02T06:45:00Z", "2023-05-06T20:00:00Z"],
        "hour": [6, 20],
        "departure": [2350, 100],
        "arrival": [130, 215],
        "x": [0.5, 1.5],
    }
)


@pytest.fixture
def relations() -> Relations:
    """Return what the last version that wrote format version 3 stored for a table with these columns."""
    return parse_relations(json.loads((Path(__file__).parent / "relations_version_3.json").read_text()))


def test_the_columns_are_modelled_as_they_were(relations: Relations) -> None:
    modelled = relations.forward(FRAME)
    assert {name: series.to_list() for name, series in modelled.to_dict().items()} == {
        "day": [date(2022, 3, 4), date(2022, 12, 31)],
        "month": [2018 * 12 + 4, 2022 * 12 + 11],
        "seen (week)": [date(2022, 2, 28), date(2022, 10, 24)],
        "seen (weekday)": [3, 5],
        "seen (time of day)": [timedelta(hours=14, minutes=30), timedelta(0)],
        "noted (week)": [date(2022, 2, 28), date(2022, 10, 24)],
        "noted (weekday)": [3, 5],
        "noted (time of day)": [timedelta(hours=14, minutes=30), timedelta(0)],
        "stamp": [datetime(2023, 1, 2, 0, 45), datetime(2023, 5, 6)],
        "hour": [6, 20],
        "departure": [23 * 60 + 50, 60],
        "arrival": [100, 75],
        "x": [0.5, 1.5],
    }
    assert_frame_equal(relations.inverse(modelled), FRAME)


def test_the_range_in_days_is_the_range_of_the_target(relations: Relations) -> None:
    outside = FRAME.with_columns(seen=pl.Series(["2022-01-02 23:59", "2022-10-30 00:00"]))
    assert relations.broken(FRAME).tolist() == [False, False]
    assert relations.broken(outside).tolist() == [True, True]


def test_they_are_written_as_the_transforms_of_today(relations: Relations) -> None:
    assert parse_relations(json.loads(json.dumps(describe_relations(relations)))) == relations
