"""Protect numbers that could identify a person: clip extremes to round bounds, move rare spikes to common values."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.bins import ATOM_ROWS, ATOM_SHARE, FEW_ROWS_EACH, FEW_VALUES
from arf_dask.release.policy import ReleasePolicy
from arf_dask.typing import Floats

STEPS = 200  # the bounds of a range are rounded to about 1/200 of its width
MOST_ROUNDED = 0.002  # share of the rows that rounding a bound may clip in addition
MOST_DIGITS = 12
TIME_UNITS = (1, 10, 60, 600, 3_600, 86_400, 604_800)  # seconds
TICKS = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Numbers(NamedTuple):
    """A protected numeric column."""

    column: pl.Series
    clipped: int  # rows with a value outside the bounds
    moved: int  # rows whose value was a rare spike
    suppressed: bool  # too few subjects to publish anything


def protect_numbers(column: pl.Series, subjects: pl.Series | None, policy: ReleasePolicy) -> Numbers:
    """Clip extremes, round the bounds, and move rare spikes. The dtype does not change."""
    known = column.is_not_null() & (column.is_not_nan() if column.dtype.is_float() else True)
    counted = _count(column.filter(known), None if subjects is None else subjects.filter(known))
    people = int(known.sum()) if subjects is None else subjects.filter(known).n_unique()
    if people < max(2 * policy.clip_extremes, policy.min_level):
        empty = pl.Series(column.name, [None], dtype=column.dtype).new_from_index(0, len(column))
        return Numbers(empty, 0, 0, suppressed=bool(known.any()))
    clipped, n_clipped = _clip(column, counted, known, subjects, policy)
    moved, n_moved = _move_rare_spikes(clipped, known, subjects, policy)
    return Numbers(moved, n_clipped, n_moved, suppressed=False)


def nice_step(low: float, high: float, dtype: pl.DataType) -> float:
    """Return a round step of about 1/200 of a range: 1, 2 or 5 times a power of ten, or a unit of time.

    >>> nice_step(0, 1000, pl.Int64()), nice_step(0, 1, pl.Float64()), nice_step(0, 30, pl.Int64())
    (5.0, 0.005, 1.0)
    """
    wanted = (high - low) / STEPS
    if isinstance(dtype, pl.Datetime | pl.Duration | pl.Time):
        unit = "ns" if isinstance(dtype, pl.Time) else (dtype.time_unit or "us")
        ticks = TICKS[unit]
        fitting = [seconds * ticks for seconds in TIME_UNITS if seconds * ticks <= wanted]
        return float(fitting[-1]) if fitting else _decimal_step(wanted, whole=True)
    return _decimal_step(wanted, whole=dtype.is_integer() or isinstance(dtype, pl.Date))


def _decimal_step(wanted: float, *, whole: bool) -> float:
    if wanted <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(wanted))
    step = max(times * power for times in (1, 2, 5) if times * power <= wanted * (1 + 1e-9))
    return max(step, 1.0) if whole else step


def _count(known: pl.Series, subjects: pl.Series | None) -> pl.DataFrame:
    """One row per distinct number, in ascending order: value, people, rows."""
    people = pl.len() if subjects is None else pl.col("subject").n_unique()
    table = pl.DataFrame({"value": known} if subjects is None else {"value": known, "subject": subjects})
    return table.group_by("value").agg(people.alias("people"), pl.len().alias("rows")).sort("value")


def _clip(
    column: pl.Series, counted: pl.DataFrame, known: pl.Series, subjects: pl.Series | None, policy: ReleasePolicy
) -> tuple[pl.Series, int]:
    if policy.clip_extremes == 0:
        return column, 0
    low, high = _bounds(column.filter(known), None if subjects is None else subjects.filter(known), policy)
    if policy.round_bounds:
        low, high = _round_inwards(low, high, counted, policy, column.dtype)
    ends = pl.Series([low, high], dtype=column.dtype)
    outside = int(((column < ends[0]) | (column > ends[1])).sum())
    return column.clip(ends[0], ends[1]), outside


def _bounds(known: pl.Series, subjects: pl.Series | None, policy: ReleasePolicy) -> tuple[object, object]:
    """Return the values of the k-th smallest and the k-th largest subject."""
    place = policy.clip_extremes - 1
    if subjects is None:
        ordered = known.sort()
        return ordered[place], ordered[len(ordered) - 1 - place]
    table = pl.DataFrame({"value": known, "subject": subjects})
    ends = table.group_by("subject").agg(pl.col("value").min().alias("low"), pl.col("value").max().alias("high"))
    return ends["low"].sort()[place], ends["high"].sort(descending=True)[place]


def _round_inwards(
    low: object, high: object, counted: pl.DataFrame, policy: ReleasePolicy, dtype: pl.DataType
) -> tuple[object, object]:
    """Round bounds inwards; a bound shared by enough people identifies nobody and is kept."""
    ends = pl.Series([low, high], dtype=dtype)
    common = counted.filter(pl.col("people") >= policy.min_level)["value"]
    first, last = _to_float(ends).to_list()
    numbers = np.repeat(_to_float(counted["value"]).to_numpy(), counted["rows"].to_numpy())
    most = max(policy.clip_extremes, round(MOST_ROUNDED * len(numbers)))
    inner = [
        _round_low(first, last - first, numbers, most, dtype),
        -_round_low(-last, last - first, -numbers, most, dtype),
    ]
    if inner[0] > inner[1]:
        return low, high
    rounded = _from_float(inner, dtype)
    return tuple(  # type: ignore[return-value]
        end if end in common else replacement for end, replacement in zip(ends.to_list(), rounded, strict=True)
    )


def _round_low(low: float, width: float, numbers: Floats, most: int, dtype: pl.DataType) -> float:
    """Round a lower bound up. In a skewed column, the step is refined until few numbers lie below the rounded bound."""
    for finer in range(MOST_DIGITS):
        step = nice_step(0.0, width / 10.0**finer, dtype)
        rounded = math.ceil(low / step - 1e-9) * step
        if int(((numbers >= low) & (numbers < rounded)).sum()) <= most:
            break
    return float(f"{rounded:.12g}")


def _to_float(values: pl.Series) -> pl.Series:
    """Convert values to numbers: those of temporal types to their physical scale, decimals to what they say."""
    return (values.to_physical() if values.dtype.is_temporal() else values).cast(pl.Float64)


def _from_float(values: list[float], dtype: pl.DataType) -> list[object]:
    """Convert numbers to values of a dtype; those of temporal types are on their physical scale."""
    if dtype.is_float() or isinstance(dtype, pl.Decimal):
        return pl.Series(values, dtype=pl.Float64).cast(dtype).to_list()
    physical = pl.Series([], dtype=dtype).to_physical().dtype
    return pl.Series([round(value) for value in values]).cast(physical).cast(dtype).to_list()


def _move_rare_spikes(
    column: pl.Series, known: pl.Series, subjects: pl.Series | None, policy: ReleasePolicy
) -> tuple[pl.Series, int]:
    """Move rare numbers that the model would store as spikes to the nearest common number."""
    counted = _count(column.filter(known), None if subjects is None else subjects.filter(known))
    rows, values = int(counted["rows"].sum()), counted.height
    few_values = values == 1 or (values <= FEW_VALUES and rows >= FEW_ROWS_EACH * values)
    spike = pl.lit(True) if few_values else pl.col("rows") >= max(ATOM_SHARE * rows, ATOM_ROWS)
    rare = counted.filter(spike & (pl.col("people") < policy.min_level))["value"]
    common = counted.filter(pl.col("people") >= policy.min_level)["value"]
    if not few_values:
        common = counted.filter(~pl.col("value").is_in(rare.implode()))["value"]
    if not len(rare) or not len(common):
        return column, 0
    lookup = pl.DataFrame({"value": rare, "nearest": common.gather(_nearest(rare, common))})
    joined = pl.DataFrame({"value": column}).join(lookup, on="value", how="left", maintain_order="left")
    moved = joined.select(pl.coalesce("nearest", "value"))["nearest"]
    return moved.alias(column.name), int(joined["nearest"].is_not_null().sum())


def _nearest(rare: pl.Series, common: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the index of the nearest common number for every rare number."""
    asked, known = (_to_float(series).to_numpy() for series in (rare, common))
    right = np.clip(np.searchsorted(known, asked), 1, max(len(known) - 1, 1))
    left = right - 1
    right = np.minimum(right, len(known) - 1)
    return np.where(asked - known[left] <= known[right] - asked, left, right).astype(np.int64)
