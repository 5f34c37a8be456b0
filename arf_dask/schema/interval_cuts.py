"""Cut number lines that one truncated normal does not fit into intervals with one truncated normal each.

A lognormal amount or a bimodal age is not a truncated normal, and trees never split on a column that is independent
of all others: every leaf would sample it from the same badly fitting density. Such lines are cut where the fitted and
the empirical distribution functions differ most, until every piece fits. Each piece becomes an interval state, with
its own probability in each leaf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.data.bins import (
    NumberCounts,
    cut_bins,
)
from arf_dask.stats.moment_matching import match_moments
from arf_dask.stats.truncated_normal import cdf
from arf_dask.typing import Flags, Floats

MISFIT = 0.01  # accepted distance between the two distribution functions, in addition to the sampling error
SAMPLING = 1.4  # sampling error, times the square root of the number of rows
MOST_SEGMENTS = 16
LEAST_ROWS = 100  # minimum rows of a piece that is cut
WIDE_GAP = 0.15  # minimum share of a piece's width for an empty gap to be cut first


class _Binned(NamedTuple):
    """A binned number line without its atoms. One row per bin."""

    edges: Floats  # outer edges included: one more than there are bins
    rows: Floats
    sums: Floats  # sums of the differences from the centre
    squares: Floats
    centre: float


class _BinRange(NamedTuple):
    line: int
    first: int  # bins first .. last - 1
    last: int


def find_segments(lines: dict[int, tuple[NumberCounts, Flags, bool]]) -> dict[int, Floats]:
    """Return the inner edges between the interval states of each line, ascending; empty if one normal fits."""
    binned = {key: _bin(line, atoms, grid) for key, (line, atoms, grid) in lines.items()}
    cuts: dict[int, list[float]] = {key: [] for key in lines}
    pieces = [_BinRange(key, 0, len(binned_line.rows)) for key, binned_line in binned.items()]
    while pieces:
        next_pieces = []
        for piece, cut_edge in zip(pieces, _worst(pieces, binned), strict=True):
            if cut_edge is not None and len(cuts[piece.line]) < MOST_SEGMENTS - 1:
                cuts[piece.line].append(float(binned[piece.line].edges[cut_edge]))
                next_pieces += [piece._replace(last=cut_edge), piece._replace(first=cut_edge)]
        pieces = next_pieces
    return {key: np.sort(np.array(line_cuts)) for key, line_cuts in cuts.items()}


def _bin(line: NumberCounts, atoms: Flags, grid: bool) -> _Binned:
    inner_edges = cut_bins(line, atoms, grid=grid)
    values, counts = line.values[~atoms], line.counts[~atoms].astype(np.float64)
    centre = float(np.average(values, weights=counts))
    bin_index = np.searchsorted(inner_edges, values, side="right")
    half_step = 0.5 if grid else 0.0
    edges = np.concatenate([[line.values[0] - half_step], inner_edges, [line.values[-1] + half_step]])
    n_bins = len(inner_edges) + 1
    centred_values = values - centre
    return _Binned(
        edges,
        _binned(bin_index, counts, n_bins),
        _binned(bin_index, counts * centred_values, n_bins),
        _binned(bin_index, counts * centred_values**2, n_bins),
        centre,
    )


def _binned(at: NDArray[np.int64], weights: Floats, size: int) -> Floats:
    return np.bincount(at, weights, size).astype(np.float64)


def _worst(pieces: list[_BinRange], binned: dict[int, _Binned]) -> list[int | None]:
    """Return the edge at which to cut each piece; None if its truncated normal fits."""
    n_rows, means, variances = np.array([_moments(piece, binned[piece.line]) for piece in pieces]).T
    lower = np.array([binned[p.line].edges[p.first] for p in pieces])
    upper = np.array([binned[p.line].edges[p.last] for p in pieces])
    matched_normals = match_moments(
        means, np.maximum(variances, 1e-300), lower, np.maximum(upper, np.nextafter(lower, np.inf))
    )
    cut_edges: list[int | None] = []
    for piece_index, piece in enumerate(pieces):
        binned_line = binned[piece.line]
        inner_edges = binned_line.edges[piece.first + 1 : piece.last]
        if n_rows[piece_index] < LEAST_ROWS or not len(inner_edges):
            cut_edges.append(None)
            continue
        empirical_cdf = np.cumsum(binned_line.rows[piece.first : piece.last])[:-1] / n_rows[piece_index]
        fitted_cdf = cdf(
            inner_edges,
            matched_normals.mu[piece_index],
            matched_normals.sigma[piece_index],
            lower[piece_index],
            upper[piece_index],
        )
        cdf_distance = np.abs(empirical_cdf - fitted_cdf)
        worst_edge = int(np.argmax(cdf_distance))
        is_misfit = cdf_distance[worst_edge] > MISFIT + SAMPLING / np.sqrt(n_rows[piece_index])
        cut_edges.append(_empty_stretch(piece, binned_line) or piece.first + 1 + worst_edge if is_misfit else None)
    return cut_edges


def _empty_stretch(piece: _BinRange, b: _Binned) -> int | None:
    """Return the edge inside the widest empty gap of a piece; None if it is narrow or has too few rows on a side.

    Two modes are best cut in the gap between them, whereas the fit is worst at the foot of one of them.
    """
    bin_widths = np.diff(b.edges[piece.first : piece.last + 1])
    bin_rows = b.rows[piece.first : piece.last]
    # An edge lies halfway between neighbouring values, so an empty gap widens the bins on both of its sides.
    gap_widths = np.minimum(bin_widths[:-1], bin_widths[1:])
    widest_gap = int(np.argmax(gap_widths))
    rows_before = bin_rows[: widest_gap + 1].sum()
    is_wide = 2 * gap_widths[widest_gap] > WIDE_GAP * bin_widths.sum()
    return (
        piece.first + 1 + widest_gap
        if is_wide and min(rows_before, bin_rows.sum() - rows_before) >= LEAST_ROWS / 2
        else None
    )


def _moments(piece: _BinRange, b: _Binned) -> tuple[float, float, float]:
    bin_slice = slice(piece.first, piece.last)
    n_rows = float(b.rows[bin_slice].sum())
    if n_rows == 0:
        return 0.0, float(b.edges[piece.first]), 0.0
    mean_offset = float(b.sums[bin_slice].sum()) / n_rows
    return n_rows, b.centre + mean_offset, max(float(b.squares[bin_slice].sum()) / n_rows - mean_offset**2, 0.0)
