"""Search for the transform of a single column: a grid, rounded numbers, dates or numbers in text, a pattern of hours.

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
from arf_dask.rules.transforms.number_texts import find_number_form
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
        return _text_grid(series, target, form)
    if clock:
        return Indexed(target, "clock")
    if target.is_float:
        return find_multiples(series, target) or find_granularity(series, target)
    if series.dtype.is_integer():
        return find_granularity(series, target)
    if isinstance(series.dtype, pl.Date | pl.Datetime):
        return find_calendar_grid(series, target) or find_parts(series, target)
    return None


def _text_grid(series: pl.Series, target: Target, form: str | None) -> Transform | None:
    """Return the transform of texts that are dates or numbers, with that of the dates or numbers if there is one."""
    parsed = find_form(series, target, form)
    if parsed is not None:
        inner = find_grid(parsed.read(series), parsed.modelled_target)
        return parsed if inner is None else Chain(parsed, inner)
    numbered = None if form is not None else find_number_form(series, target)
    if numbered is None:
        return None
    rounded = find_granularity(numbered.read(series), numbered.modelled_target)
    is_rounded = rounded is not None and rounded.is_confirmed(numbered.modelled_target)
    return Chain(numbered, rounded) if rounded is not None and is_rounded else numbered


def with_zones(grids: Sequence[Transform], formulas: Sequence[Node], columns: Collection[str]) -> list[Transform]:
    """Give timestamps the time zone of formulas that read them; drop those with a part that is named like a column."""
    kept_grids: list[Transform] = []
    for grid in grids:
        zones = [zone for node in formulas if (zone := zone_of(node, grid.target.name)) is not None]
        grid = grid.in_zone(zones[0]) if zones else grid
        if not (set(grid.outputs) - {grid.target.name}) & set(columns):
            kept_grids.append(grid)
    return kept_grids
