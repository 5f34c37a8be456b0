"""Bins of codes, between which the dependence inside leaves is modelled.

A bin is a run of consecutive codes of one variable. About sixteen bins of equal weight are enough; null, NaN and points
with a substantial share of the rows (a spike, a level, a combination) have separate bins. No bin crosses the border of
two interval states, so that all continuous values of a bin belong to one interval. For a bundle of levels, the levels
of one of its columns may serve as bins instead, regardless of the order of codes. If there are many, rare neighbours
share a bin: neighbours are levels whose combinations have codes close to each other, or numbers close to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arf_dask.schema.columns import NULL, Column, Schema, Variable
from arf_dask.stats.log_sums import run_starts
from arf_dask.typing import Counts, Flags, Floats, Ints

BINS = 16
HEAVY = 0.5  # a point with at least this share of an average bin's rows has a separate bin
MOST_MEMBER_BINS = 24  # levels of a bundle's column that have a bin each; more are grouped
MEMBER_GROUPS = 64  # target number of groups of equal weight


def code_bins(variable: Variable, histogram: Counts, bins: int = BINS) -> Ints:
    """Return the bin of every code of a variable; bins are runs of consecutive codes.

    Args:
        variable: the variable.
        histogram: training rows by code.
        bins: the target number of bins of equal weight.
    """
    is_start = _required_starts(variable)
    return equal_runs(is_start, _point_codes(variable), histogram, bins)


def equal_runs(starts: Flags, points: Ints, histogram: Counts, bins: int) -> Ints:
    """Return the bin of every code: runs of about equal weight that start wherever `starts` says, at least.

    >>> equal_runs(np.zeros(5, dtype=bool), np.arange(5), np.array([1, 1, 6, 1, 1]), 2).tolist()
    [0, 0, 1, 2, 2]

    Args:
        starts: per code, whether a bin has to start there.
        points: the codes that get a bin of their own if they are heavy.
        histogram: training rows by code.
        bins: the target number of bins of equal weight.
    """
    is_start = starts.copy()
    is_start[:1] = True
    n_rows = max(int(histogram.sum()), 1)
    heavy_codes = points[histogram[points] * bins >= HEAVY * n_rows]
    is_start[heavy_codes] = True
    is_start[heavy_codes[heavy_codes + 1 < len(is_start)] + 1] = True
    run_index = np.cumsum(is_start) - 1
    run_rows = np.bincount(run_index, histogram)
    run_pieces = np.maximum(np.rint(run_rows * bins / n_rows), 1)
    rows_before = np.cumsum(histogram) - histogram
    rows_in_run = rows_before - rows_before[np.flatnonzero(is_start)][run_index] + histogram / 2
    piece_index = np.floor(rows_in_run * run_pieces[run_index] / np.maximum(run_rows[run_index], 1))
    is_start[1:] |= piece_index[1:] != piece_index[:-1]
    return (np.cumsum(is_start) - 1).astype(np.int32)


def member_bins(variable: Variable, columns: Sequence[Column], histogram: Counts) -> list[Ints]:
    """Return the bin of every code of a bundle of levels by the levels of each of its columns, or groups of them.

    Args:
        variable: the variable.
        columns: all columns of the schema.
        histogram: training rows by code.
    """
    if variable.is_line or len(variable.columns) == 1:
        return []
    code_tokens = variable.tokens[np.argsort(variable.code_low)]
    bins_by_member = []
    for member, column in enumerate(variable.columns):
        values, places = np.unique(code_tokens[:, member], return_inverse=True)
        level = places.astype(np.int32)
        if len(values) > MOST_MEMBER_BINS:
            level = _level_groups(level, histogram, in_order=columns[column].kind == "numeric")[level]
        if len(values) >= 2:
            bins_by_member.append(level)
    return bins_by_member


def _level_groups(level: Ints, histogram: Counts, *, in_order: bool) -> Ints:
    """Return the group of every level of one column of a bundle; neighbours share a group if they are rare.

    Args:
        level: per code, the level of the column.
        histogram: training rows by code.
        in_order: whether levels that follow each other are neighbours; otherwise, those with the nearest mean codes.
    """
    rows = np.bincount(level, histogram)
    mean_code = np.bincount(level, histogram * np.arange(len(level))) / np.maximum(rows, 1)
    order = np.arange(len(rows)) if in_order else np.argsort(mean_code, kind="stable")
    groups = np.empty(len(rows), dtype=np.int32)
    no_starts = np.zeros(len(rows), dtype=bool)
    groups[order] = equal_runs(
        no_starts, np.arange(len(rows), dtype=np.int32), rows[order].astype(np.int64), MEMBER_GROUPS
    )
    return groups


class IntervalPieces(NamedTuple):
    """The interval states of one variable, split by bins. One row per overlapping (interval state, bin).

    A bin overlaps at most one interval state. The outermost pieces of a state are open: the leaf bounds them.
    """

    state: Ints
    bin: Ints
    low: Floats  # values on the axis
    high: Floats


def interval_pieces(variable: Variable, code_bin: Ints, edges: Floats) -> IntervalPieces:
    """Split the interval states of a variable at the borders of its bins.

    Args:
        variable: the variable.
        code_bin: the bin of every code.
        edges: the values at the edges of the codes of its number line, including both ends.
    """
    bin_starts = run_starts(code_bin).astype(np.int32)
    states = np.flatnonzero(variable.interval)
    first_bins = np.searchsorted(bin_starts, variable.code_low[states], side="right") - 1
    last_bins = np.searchsorted(bin_starts, variable.code_high[states], side="right") - 1
    n_pieces = last_bins - first_bins + 1
    state = np.repeat(states, n_pieces)
    bins = np.arange(n_pieces.sum()) - np.repeat(np.cumsum(n_pieces) - n_pieces - first_bins, n_pieces)
    low_code = np.maximum(variable.code_low[state], bin_starts[bins])
    high_code = np.minimum(variable.code_high[state], np.append(bin_starts[1:], variable.n_codes)[bins] - 1)
    has_numbers = high_code >= variable.first_bin  # null and NaN belong to no interval
    state, bins, low_code, high_code = (part[has_numbers] for part in (state, bins, low_code, high_code))
    same_state = state[1:] == state[:-1]
    low_values, high_values = np.full(len(state), -np.inf), np.full(len(state), np.inf)
    low_values[1:][same_state] = edges[low_code[1:][same_state] - variable.first_bin]
    high_values[:-1][same_state] = edges[high_code[:-1][same_state] - variable.first_bin + 1]
    return IntervalPieces(state.astype(np.int32), bins.astype(np.int32), low_values, high_values)


def all_code_bins(schema: Schema, histograms: list[Counts], bins: int = BINS) -> list[Ints]:
    """Return the bin of every code, per variable."""
    return [code_bins(v, h, bins) for v, h in zip(schema.variables, histograms, strict=True)]


def _required_starts(variable: Variable) -> Flags:
    is_start = np.zeros(variable.n_codes + 1, dtype=bool)
    is_start[0] = True
    if variable.is_line:
        is_start[: variable.first_bin + 1] = True
        is_start[variable.code_low[variable.interval]] = True
    elif len(variable.columns) == 1:
        null_codes = variable.code_low[variable.tokens[:, 0] == NULL]
        is_start[null_codes] = is_start[null_codes + 1] = True
    return is_start[:-1]


def _point_codes(variable: Variable) -> Ints:
    """Return the codes that represent a single point."""
    return variable.code_low[~variable.interval]
