"""Pairwise dependence of columns: a matrix of associations, and pair trends as defined by SDMetrics."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.columns import as_numbers, has_levels, level_codes
from arf_dask.reporting.distances import total_variation
from arf_dask.typing import Counts, Flags, Floats

CORRELATED, ASSOCIATED = 0.5, 0.3  # thresholds of SDMetrics above which a pair counts in the mean trend
DENSE_CELLS = 4_000_000  # maximum cells of a dense contingency table
TREND_BINS = 10  # equal-width bins of numbers in pairs with levels, as in the quality report of SDMetrics


class Pairs(NamedTuple):
    """The pairwise associations of columns in two frames."""

    names: list[str]
    real: Floats  # (column, column): |correlation|, correlation ratio or Cramer's V
    synthetic: Floats
    trends: Floats  # (column, column): similarity in [0, 1] as in SDMetrics, NaN if undefined
    counted: Flags  # (column, column): whether the real columns are dependent enough to count in the mean trend

    @property
    def difference(self) -> float:
        """The mean absolute difference of associations over all pairs."""
        upper = np.triu_indices(len(self.names), k=1)
        return float(np.abs(self.real - self.synthetic)[upper].mean()) if len(upper[0]) else 0.0

    @property
    def trend(self) -> float:
        """The mean trend score over dependent pairs, as in the quality report of SDMetrics."""
        upper = np.triu_indices(len(self.names), k=1)
        known = self.trends[upper][self.counted[upper]]
        return float(np.nanmean(known)) if np.isfinite(known).any() else float("nan")


class _Coded(NamedTuple):
    """One column of two frames, prepared for pairwise comparison."""

    numbers: tuple[Floats, Floats] | None  # numeric columns
    codes: tuple[Counts, Counts]  # levels (0 is null), or bins of numbers
    size: int  # number of codes


def compare_pairs(real: pl.DataFrame, synthetic: pl.DataFrame) -> Pairs:
    """Compute associations and trends of all pairs of columns."""
    coded = [_code(real[name], synthetic[name]) for name in real.columns]
    width = len(coded)
    tables = [np.eye(width), np.eye(width)]
    trends, counted = np.full((width, width), np.nan), np.zeros((width, width), dtype=bool)
    for i, j in combinations(range(width), 2):
        for side, table in enumerate(tables):
            table[i, j] = table[j, i] = _association(coded[i], coded[j], side)
        trends[i, j] = trends[j, i] = _trend(coded[i], coded[j])
        counted[i, j] = counted[j, i] = _is_counted(coded[i], coded[j])
    return Pairs(real.columns, tables[0], tables[1], trends, counted)


def correlation(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation over rows where both are present; NaN if one is constant."""
    both = ~(np.isnan(first) | np.isnan(second))
    x, y = first[both], second[both]
    if len(x) < 2:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    # Sums instead of dot products: BLAS would start threads, whose overhead exceeds the work.
    scale = np.sqrt((x * x).sum() * (y * y).sum())
    return float(np.clip((x * y).sum() / scale, -1, 1)) if scale > 0 else float("nan")


def cramers_v(first: Counts, second: Counts) -> float:
    """Return Cramér's V of two columns of codes, without bias correction; 0 if one has a single code."""
    counts = _meetings(first, second)
    if min(counts.shape) < 2:
        return 0.0
    rows, columns = counts.shape
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    return float(np.sqrt(chi2 / counts.sum() / (min(rows, columns) - 1)))


def _meetings(first: Counts, second: Counts) -> Floats:
    """Return the contingency table (code, code) without empty rows and columns."""
    width = int(second.max(initial=0)) + 1
    cells = (int(first.max(initial=0)) + 1) * width
    if cells > DENSE_CELLS:
        _, first = np.unique(first, return_inverse=True)
        _, second = np.unique(second, return_inverse=True)
        width = int(second.max(initial=0)) + 1
        cells = (int(first.max(initial=0)) + 1) * width
    counts = np.bincount(first * width + second, minlength=cells).reshape(-1, width).astype(np.float64)
    return counts[np.ix_(counts.any(axis=1), counts.any(axis=0))]


def correlation_ratio(codes: Counts, numbers: Floats) -> float:
    """Return the correlation ratio eta: the square root of the share of variance between levels."""
    known = ~np.isnan(numbers)
    codes, numbers = codes[known], numbers[known]
    if len(numbers) < 2:
        return 0.0
    centred = numbers - numbers.mean()
    total = float(centred @ centred)
    if total <= 0:
        return 0.0
    counts = np.bincount(codes)
    sums = np.bincount(codes, centred)
    between = float((sums[counts > 0] ** 2 / counts[counts > 0]).sum())
    return float(np.sqrt(min(between / total, 1.0)))


def _association(first: _Coded, second: _Coded, side: int) -> float:
    """Return the association of two columns in [0, 1], for any combination of kinds."""
    if first.numbers is not None and second.numbers is not None:
        found = correlation(first.numbers[side], second.numbers[side])
        return 0.0 if np.isnan(found) else abs(found)
    if first.numbers is None and second.numbers is None:
        return cramers_v(first.codes[side], second.codes[side])
    levels, line = (second, first) if second.numbers is None else (first, second)
    assert line.numbers is not None
    return correlation_ratio(levels.codes[side], line.numbers[side])


def _trend(first: _Coded, second: _Coded) -> float:
    """Return CorrelationSimilarity for two numeric columns, ContingencySimilarity otherwise."""
    if first.numbers is not None and second.numbers is not None:
        found = [correlation(a, b) for a, b in zip(first.numbers, second.numbers, strict=True)]
        return 1 - abs(found[0] - found[1]) / 2
    joint = [a * second.size + b for a, b in zip(first.codes, second.codes, strict=True)]
    size = first.size * second.size
    if size <= DENSE_CELLS:
        shares = [np.bincount(codes, minlength=size) / len(codes) for codes in joint]
    else:
        _, inverse = np.unique(np.concatenate(joint), return_inverse=True)
        halves = inverse[: len(joint[0])], inverse[len(joint[0]) :]
        shares = [np.bincount(codes, minlength=int(inverse.max()) + 1) / len(codes) for codes in halves]
    return 1 - total_variation(shares[0], shares[1])


def _is_counted(first: _Coded, second: _Coded) -> bool:
    """Return whether two real columns are dependent by the thresholds of SDMetrics."""
    if first.numbers is not None and second.numbers is not None:
        return abs(correlation(first.numbers[0], second.numbers[0])) > CORRELATED
    return cramers_v(first.codes[0], second.codes[0]) > ASSOCIATED


def _code(real: pl.Series, synthetic: pl.Series) -> _Coded:
    if has_levels(real.dtype):
        codes, levels = level_codes([real, synthetic])
        return _Coded(None, (codes[0] + 1, codes[1] + 1), len(levels) + 1)
    numbers = (as_numbers(real), as_numbers(synthetic))
    # Each frame has its own bins, as in the quality report of SDMetrics.
    return _Coded(numbers, (_bin(numbers[0]), _bin(numbers[1])), TREND_BINS + 2)


def _bin(numbers: Floats) -> Counts:
    known = numbers[~np.isnan(numbers)]
    edges = np.histogram_bin_edges(known, TREND_BINS) if len(known) else np.linspace(0, 1, TREND_BINS + 1)
    return np.digitize(numbers, edges).astype(np.int64)
