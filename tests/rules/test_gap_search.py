"""Which orders are modelled by gaps: those whose gaps lose nothing that matters more."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.rules.expressions import Name
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.gap import Gap
from arf_dask.rules.transforms.gap_search import keeps_step

START = datetime(2024, 1, 1)


def whole_numbers(low: list[int], high: list[int]) -> tuple[Gap, pl.DataFrame]:
    frame = pl.DataFrame({"low": low, "high": high})
    return Gap(Target("high", pl.Int64(), 0, 0, 1_000), Name("low"), 1, 0), frame


@pytest.mark.parametrize(
    ("low", "high", "keeps"),
    [
        ([1, 2, 4], [100, 110, 130], False),  # tens, and gaps of 99, 108 and 126: the grid would be lost
        ([10, 20, 40], [100, 110, 130], True),  # gaps of 90 are tens, too
        ([91, 102, 124], [100, 110, 130], True),  # gaps of 9, 8 and 6 tell more than the grid
        ([1, 2, 4], [100, 111, 130], True),  # there is no grid
        ([1, 2, 4], [100, 100, 100], True),  # nor is there one of a single value
    ],
)
def test_long_gaps_keep_the_grid_of_their_column(low: list[int], high: list[int], keeps: bool) -> None:
    gap, frame = whole_numbers(low, high)
    assert keeps_step(gap, frame) == keeps


def test_days_after_a_moment_remain_midnights() -> None:
    rng, n = np.random.default_rng(0), 800
    ordered = [START + timedelta(seconds=int(second)) for second in rng.integers(0, 300 * 86_400, n)]
    promised = [
        (at + timedelta(days=int(days))).replace(hour=0, minute=0, second=0)
        for at, days in zip(ordered, rng.integers(8, 40, n), strict=True)
    ]
    model = arf_dask.fit(pl.DataFrame({"ordered": ordered, "promised": promised}), trees=5, seed=1)
    rows = model.sample(2_000, seed=2)
    assert (rows["promised"].dt.time() == START.time()).all()
    assert (rows["ordered"] <= rows["promised"]).all()
