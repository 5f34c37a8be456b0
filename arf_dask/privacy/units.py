"""Bounded contributions: a uniform choice of at most so many rows of every unit."""

from __future__ import annotations

import numpy as np
import polars as pl

from arf_dask.data.parts import DataPart, Parts
from arf_dask.runtime.tasks import Runner
from arf_dask.typing import Flags, Floats


def chosen_rows(parts: Parts, unit: str, most: int, runner: Runner, rng: np.random.Generator) -> list[Flags]:
    """Return for every part which of its rows are used, so that no unit has more than `most` of them in all.

    Rows without a unit count as rows of one unit. Which rows are chosen depends on the rows of the same unit only.
    """
    units = list(runner.map(_load_units, unit, parts.items))
    if not units:
        return []
    ids = pl.concat(units)
    is_used = most_per_unit(ids, rng.random(len(ids)), most)
    return np.split(is_used, np.cumsum([len(part_units) for part_units in units])[:-1])


def most_per_unit(ids: pl.Series, priorities: Floats, most: int) -> Flags:
    """Return which rows are among the `most` of their unit with the smallest priorities.

    >>> most_per_unit(pl.Series([7, 7, 8, 7]), np.array([3, 1, 5, 2]), 2).tolist()
    [False, True, True, True]
    """
    frame = pl.DataFrame({"id": ids, "priority": priorities})
    return np.asarray((frame.select(pl.col("priority").rank("ordinal").over("id")).to_series() <= most).to_numpy())


def _load_units(unit: str, part: DataPart) -> pl.Series:
    return part.load([unit]).to_series()
