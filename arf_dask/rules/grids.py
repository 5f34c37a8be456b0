"""Search for the transform of a single column: a grid, rounded numbers, a format of dates, a pattern of hours.

Every transform brings its own search; this module says which of them concern a column, and which comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import polars as pl

from arf_dask.rules.expressions import Node, zone_of
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Transform
from arf_dask.rules.transforms.chain import Chain
from arf_dask.rules.transforms.granular import find_granularity
from arf_dask.rules.transforms.grid import Indexed, find_calendar_grid, find_multiples
from arf_dask.rules.transforms.texts import find_form
from arf_dask.rules.transforms.times import find_parts

LEAST_ROWS = 30


def find_grid(series: pl.Series, target: Target, *, clock: bool = False, form: str | None = None) -> Transform | None:
    """Find the transform of a column in a sample; None if there is none or the evidence is too weak.

    Args:
        series: the values of a sample.
        target: the column.
        clock: whether the values are clock numbers.
        form: the format of the texts, if they are dates or times.
    """
    if len(series) - series.null_count() < LEAST_ROWS:
        return None
    if isinstance(series.dtype, pl.String | pl.Categorical):
        parsed = find_form(series, target, form)
        inner = None if parsed is None else find_grid(parsed.read(series), parsed.modelled_target)
        return parsed if parsed is None or inner is None else Chain(parsed, inner)
    if clock:
        return Indexed(target, "clock")
    if target.is_float:
        return find_multiples(series, target) or find_granularity(series, target)
    if series.dtype.is_integer():
        return find_granularity(series, target)
    if isinstance(series.dtype, pl.Date | pl.Datetime):
        return find_calendar_grid(series, target) or find_parts(series, target)
    return None


def with_zones(grids: Sequence[Transform], formulas: Sequence[Node], columns: Collection[str]) -> list[Transform]:
    """Give timestamps the time zone of formulas that read them; drop those with a part that is named like a column."""
    kept_grids: list[Transform] = []
    for grid in grids:
        zones = [zone for node in formulas if (zone := zone_of(node, grid.target.name)) is not None]
        grid = grid.in_zone(zones[0]) if zones else grid
        if not (set(grid.outputs) - {grid.target.name}) & set(columns):
            kept_grids.append(grid)
    return kept_grids
