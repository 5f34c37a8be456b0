"""Distances between two distributions of a column, and the histograms for its chart."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.columns import as_numbers, has_levels, level_codes
from arf_dask.typing import Floats

BARS = 8  # levels shown in a chart; all others share one bar
BINS = 40  # bins of a histogram
LONG = timedelta(days=2)  # axes of longer periods are labelled with dates
DISCREET = 10  # minimum real rows of a level named in a chart, and beyond each end of its axis


class ColumnDistance(NamedTuple):
    """The distances of one column between two frames."""

    kind: str  # "levels" or "numbers"
    distance: float  # tvd for levels, ks for numbers
    tvd: float | None  # total variation distance (levels; null counts as a level)
    ks: float | None  # Kolmogorov-Smirnov statistic (numbers, without missing values)
    wasserstein: float | None  # in standard deviations of the real column (numbers)
    shape: float | None  # TVComplement or KSComplement of SDMetrics
    missing: tuple[float, float]  # share of nulls and NaN per frame


class Histogram(NamedTuple):
    """Shares of rows per bar of one column, for every frame."""

    labels: list[str]  # levels; for numbers: lower end, middle and upper end
    shares: list[Floats]  # one array per frame
    numeric: bool
    temporal: bool


def column_distance(real: pl.Series, other: pl.Series) -> ColumnDistance:
    """Compare one column of two frames."""
    return _level_distance(real, other) if has_levels(real.dtype) else _number_distance(real, other)


def ks_statistic(first: Floats, second: Floats) -> float:
    """Return the largest distance between two empirical distribution functions; NaN if one sample is empty."""
    if not len(first) or not len(second):
        return float("nan")
    a, b = np.sort(first), np.sort(second)
    places = np.concatenate([a, b])
    below = [np.searchsorted(values, places, side="right") / len(values) for values in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def wasserstein(first: Floats, second: Floats) -> float:
    """Return the earth mover's distance of two samples: the area between their distribution functions."""
    if not len(first) or not len(second):
        return float("nan")
    a, b = np.sort(first), np.sort(second)
    places = np.sort(np.concatenate([a, b]))
    below = [np.searchsorted(values, places[:-1], side="right") / len(values) for values in (a, b)]
    return float(np.sum(np.abs(below[0] - below[1]) * np.diff(places)))


def total_variation(first: Floats, second: Floats) -> float:
    """Return half the sum of absolute differences of two arrays of shares."""
    return float(np.abs(first - second).sum() / 2)


def histogram(columns: list[pl.Series]) -> Histogram:
    """Compute the histogram of one column for several frames; the first frame defines the bars."""
    return _level_bars(columns) if has_levels(columns[0].dtype) else _number_bars(columns)


def _level_distance(real: pl.Series, other: pl.Series) -> ColumnDistance:
    codes, levels = level_codes([real, other])
    counts = [np.bincount(code + 1, minlength=len(levels) + 1).astype(np.float64) for code in codes]
    tvd = total_variation(*(count / count.sum() for count in counts))
    known = [count[1:] for count in counts]
    shape = None
    if all(count.sum() for count in known):
        shape = 1 - total_variation(*(count / count.sum() for count in known))
    missing = (float(counts[0][0] / counts[0].sum()), float(counts[1][0] / counts[1].sum()))
    return ColumnDistance("levels", tvd, tvd, None, None, shape, missing)


def _number_distance(real: pl.Series, other: pl.Series) -> ColumnDistance:
    values = [as_numbers(column) for column in (real, other)]
    known = [some[~np.isnan(some)] for some in values]
    missing = (1 - len(known[0]) / len(real), 1 - len(known[1]) / len(other))
    ks = ks_statistic(*known)
    spread = float(known[0].std()) if len(known[0]) else 0.0
    moved = wasserstein(*known) / spread if spread > 0 else float(not np.isnan(ks) and ks > 0)
    worst = max(abs(missing[0] - missing[1]), 0.0 if np.isnan(ks) else ks)
    return ColumnDistance("numbers", worst, None, ks, moved, 1 - ks, missing)


def _level_bars(columns: list[pl.Series]) -> Histogram:
    codes, levels = level_codes(columns)
    counts = [np.bincount(code + 1, minlength=len(levels) + 1) / max(len(code), 1) for code in codes]
    order = np.argsort(-counts[0][1:], kind="stable")
    named = min(BARS, int((counts[0][1:] * len(codes[0]) >= DISCREET - 0.5).sum()))
    shown, rest = order[:named] + 1, order[named:] + 1
    labels = levels.gather(shown - 1).to_list()
    shares = [count[shown] for count in counts]
    if len(rest):
        labels.append(f"{len(rest):,} other level{'s' if len(rest) > 1 else ''}")
        shares = [np.append(some, count[rest].sum()) for some, count in zip(shares, counts, strict=True)]
    if any(count[0] > 0 for count in counts):
        labels.append("missing")
        shares = [np.append(some, count[0]) for some, count in zip(shares, counts, strict=True)]
    return Histogram(labels, shares, numeric=False, temporal=False)


def _number_bars(columns: list[pl.Series]) -> Histogram:
    values = [as_numbers(column) for column in columns]
    edges = _edges(values[0][~np.isnan(values[0])], columns[0].dtype)
    clipped = [np.clip(some[~np.isnan(some)], edges[0], edges[-1]) for some in values]
    shares = [np.histogram(some, edges)[0] / len(all_) for some, all_ in zip(clipped, values, strict=True)]
    return Histogram(
        _edge_labels(edges, columns[0].dtype), shares, numeric=True, temporal=columns[0].dtype.is_temporal()
    )


def _edges(values: Floats, dtype: pl.DataType) -> Floats:
    """Return equal-width bin edges over the central 99 %; values beyond fall into the first or last bin."""
    if not len(values):
        return np.array([0.0, 1.0])
    beyond = min(max(0.005, DISCREET / len(values)), 0.5)
    low, high = np.quantile(values, [beyond, 1 - beyond], method="nearest")
    if dtype.is_integer() and high - low < BINS:
        return np.arange(low, high + 2) - 0.5
    return np.linspace(low, high, BINS + 1) if high > low else np.array([low - 0.5, low + 0.5])


def _edge_labels(edges: Floats, dtype: pl.DataType) -> list[str]:
    """Format the lower end, middle and upper end; bins of integers are labelled by their centre."""
    inset = 0.5 if dtype.is_integer() and edges[1] - edges[0] == 1 else 0.0
    ends = [float(edges[0]) + inset, float(edges[0] + edges[-1]) / 2, float(edges[-1]) - inset]
    if not dtype.is_temporal():
        return [_short(end) for end in ends]
    return moment_labels(ends, dtype, ends[2] - ends[0])


def moment_labels(physical: list[float], dtype: pl.DataType, span: float) -> list[str]:
    """Format physical values of a temporal dtype as precisely as the physical length `span` of an axis needs."""
    whole = pl.Series([round(value) for value in physical])
    values = whole.cast(pl.Series([], dtype=dtype).to_physical().dtype).cast(dtype)
    is_long = False
    if isinstance(dtype, pl.Datetime):
        is_long = pl.Series([round(span)]).cast(pl.Duration(dtype.time_unit))[0] > LONG
    return [_moment(value, is_long=is_long) for value in values]


def _moment(value: object, *, is_long: bool) -> str:
    """Format a moment without the digits that would show whose it is: a date, or a time to the minute."""
    match value:
        case datetime():
            return f"{value:%Y-%m-%d}" if is_long else f"{value:%Y-%m-%d %H:%M}"
        case time():
            return f"{value:%H:%M}"
        case timedelta():
            days, minutes = value.days, value.seconds // 60
            clock = f"{minutes // 60:02}:{minutes % 60:02}"
            return f"{days:,} d {clock}" if days else clock
        case _:
            return str(value)


def _short(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 1_000 <= abs(rounded) < 1e9 else f"{rounded:g}"
