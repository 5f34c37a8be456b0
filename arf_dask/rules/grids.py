"""Search for columns whose values lie on a calendar, clock or decimal grid, or are dates and times.

First days of months, quarters and years, business days, clock numbers such as 1745, and floats that are multiples of
a step have unevenly spaced values, or gaps that never contain a value. Modelling the index of the grid point
guarantees that synthetic values lie on the grid. Floats with varying numbers of decimals are rounded so that each
number of decimals keeps its share of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from arf_dask.data.dates import date_form, has_clock, read_dates
from arf_dask.rules.expressions import Node, zone_of
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Transform
from arf_dask.rules.transforms.decimals import FULL, Decimals, decimals_of_values
from arf_dask.rules.transforms.grid import Indexed
from arf_dask.rules.transforms.texts import Dated
from arf_dask.rules.transforms.times import Timed, find_parts

LEAST_DATES = 20  # minimum number of distinct texts in a column that is modelled as dates
SPIKE_ROWS = 3  # minimum number of sampled rows with the same value for it to be a possible spike
LEAST_ROWS, LEAST_POINTS = (
    30,
    {"month_start": 4, "quarter_start": 4, "year_start": 4, "business_day": 60, "multiple": 8},
)
COARSE = 5  # minimum step of multiples, in units of the last decimal
FEW_SHARE = 0.1  # minimum share of rows with few decimals in a mixture, if the other rows have any number
MOST_SHARE = 0.5  # minimum share of rows with fewer decimals than the maximum of the column


def find_grid(series: pl.Series, target: Target, clock: bool) -> Transform | None:
    """Find the grid of a column in a sample; None if there is none or the evidence is too weak."""
    known_values = series.alias("").drop_nulls()
    if len(known_values) < LEAST_ROWS:
        return None
    if isinstance(series.dtype, pl.String | pl.Categorical):
        date_format = date_form(known_values) if known_values.n_unique() >= LEAST_DATES else None
        if date_format is None:
            return None
        dates = read_dates(known_values, date_format).alias(series.name)
        date_grid = find_grid(dates, Target(series.name, dates.dtype, None), clock=False)
        if has_clock(date_format) and not isinstance(date_grid, Indexed):
            timed = find_parts(dates, target, date_format)
            if timed is not None:
                return timed
        return Dated(target, date_format, date_grid.grid if isinstance(date_grid, Indexed) else "")
    if clock:
        return Indexed(target, "clock")
    if target.is_float:
        return _float_grid(known_values.cast(pl.Float64), target)
    if not isinstance(series.dtype, pl.Date | pl.Datetime):
        return None
    if getattr(series.dtype, "time_zone", None) is not None:
        return find_parts(known_values, target)
    for grid in ("year_start", "quarter_start", "month_start", "business_day"):
        candidate = Indexed(target, grid)
        if known_values.n_unique() >= LEAST_POINTS[grid] and not candidate.off_grid(known_values).any():
            return candidate
    return find_parts(known_values, target)


def with_zones(grids: Sequence[Transform], formulas: Sequence[Node], columns: Collection[str]) -> list[Transform]:
    """Give timestamps the time zone of formulas that read them; drop those with a part that is named like a column."""
    kept_grids: list[Transform] = []
    for grid in grids:
        if isinstance(grid, Timed):
            zones = [zone for node in formulas if (zone := zone_of(node, grid.target.name)) is not None]
            grid = replace(grid, zone=zones[0] if zones else "")
            if set(grid.names) & set(columns):
                continue
        kept_grids.append(grid)
    return kept_grids


def _float_grid(known: pl.Series, target: Target) -> Transform | None:
    values = known.drop_nans().to_numpy()
    if target.decimals is not None and target.decimals <= 6 and len(values) and np.abs(values).max() < 2**40:
        scaled_values = np.unique(np.rint(values * 10**target.decimals).astype(np.int64))
        step = int(np.gcd.reduce(scaled_values))
        # Steps of 0.1 or 0.01 are the number of decimals; those of 10 or 100, in whole numbers, are not.
        is_coarse = step >= 2 if target.decimals == 0 else step >= COARSE and not math.log10(step).is_integer()
        if is_coarse and len(scaled_values) >= LEAST_POINTS["multiple"]:
            return Indexed(target, "multiple", step / 10**target.decimals)
    if target.decimals == 0 or len(values) < LEAST_ROWS:
        return None
    distinct_values, value_counts = np.unique(values, return_counts=True)
    values = distinct_values[value_counts < SPIKE_ROWS]  # spikes keep their decimals
    if len(values) < LEAST_ROWS:
        return None
    digits, counts = np.unique(decimals_of_values(values), return_counts=True)
    max_decimals, least_share = (FULL, FEW_SHARE) if target.decimals is None else (target.decimals, MOST_SHARE)
    decimal_shares = [
        (int(d), float(c / len(values))) for d, c in zip(digits, counts, strict=True) if d == max_decimals or c >= 3
    ]
    # Numbers with any number of decimals hardly ever end in zeros, so they do not explain shorter ones.
    merged_shares = _merged(
        decimal_shares if target.decimals is not None else [pair for pair in decimal_shares if pair[0] != FULL]
    )
    shares = tuple((d, share) for d, share in merged_shares if d != max_decimals)
    return Decimals(target, shares) if sum(share for _, share in shares) >= least_share else None


def _merged(shares: list[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Merge shares that trailing zeros explain: one in ten numbers of six decimals appears to have five."""
    merged_shares: list[tuple[int, float]] = []
    for digits, share in sorted(shares, reverse=True):
        if merged_shares and merged_shares[-1][0] - digits <= 3 and share <= 0.2 * merged_shares[-1][1]:
            merged_shares[-1] = merged_shares[-1][0], merged_shares[-1][1] + share
        else:
            merged_shares.append((digits, share))
    return tuple(sorted(merged_shares))
