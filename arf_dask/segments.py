"""Where one truncated normal cannot follow a number line, several on neighbouring intervals can.

A lognormal amount or a two-humped age is no truncated normal, and a column that depends on nothing is never split
by the trees: its leaves would draw it from one wrong curve. Such lines are cut, at the point where the curve is
furthest off, until every piece fits. Each piece becomes an interval state with a probability of its own per leaf.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.bins import Flags, Line, cut_bins
from arf_dask.marginals import cdf
from arf_dask.matching import match_moments

Floats = NDArray[np.float64]

MISFIT = 0.03  # largest distance of the two cumulative curves that is left alone,
SAMPLING = 1.4  # over what sampling alone gives: this, divided by the root of the rows
MOST_SEGMENTS = 16
LEAST_ROWS = 100  # of a piece that is cut
WIDE_GAP = 0.15  # of a piece: an empty stretch in which it is cut first


class _Binned(NamedTuple):
    """A line in bins, without its atoms. One row per bin."""

    edges: Floats  # one more than bins
    rows: Floats
    sums: Floats  # of distances from the centre
    squares: Floats
    centre: float


class _Piece(NamedTuple):
    line: int
    first: int  # bins first .. last - 1
    last: int


def find_segments(lines: dict[int, tuple[Line, Flags, bool]]) -> dict[int, Floats]:
    """The inner edges between interval states of every line, ascending; none where one normal will do."""
    binned = {key: _bin(line, atoms, grid) for key, (line, atoms, grid) in lines.items()}
    cuts: dict[int, list[float]] = {key: [] for key in lines}
    pieces = [_Piece(key, 0, len(b.rows)) for key, b in binned.items()]
    while pieces:
        parts = []
        for piece, at in zip(pieces, _worst(pieces, binned), strict=True):
            if at is not None and len(cuts[piece.line]) < MOST_SEGMENTS - 1:
                cuts[piece.line].append(float(binned[piece.line].edges[at]))
                parts += [piece._replace(last=at), piece._replace(first=at)]
        pieces = parts
    return {key: np.sort(np.array(found)) for key, found in cuts.items()}


def _bin(line: Line, atoms: Flags, grid: bool) -> _Binned:
    inner = cut_bins(line, atoms, grid=grid)
    places, counts = line.places[~atoms], line.counts[~atoms].astype(np.float64)
    centre = float(np.average(places, weights=counts))
    at = np.searchsorted(inner, places, side="right")
    half = 0.5 if grid else 0.0
    edges = np.concatenate([[line.places[0] - half], inner, [line.places[-1] + half]])
    size = len(inner) + 1
    moved = places - centre
    return _Binned(
        edges,
        _binned(at, counts, size),
        _binned(at, counts * moved, size),
        _binned(at, counts * moved**2, size),
        centre,
    )


def _binned(at: NDArray[np.int64], weights: Floats, size: int) -> Floats:
    return np.bincount(at, weights, size).astype(np.float64)


def _worst(pieces: list[_Piece], binned: dict[int, _Binned]) -> list[int | None]:
    """For every piece the edge where its normal is furthest off, or None where it fits."""
    rows, means, variances = np.array([_moments(piece, binned[piece.line]) for piece in pieces]).T
    lower = np.array([binned[p.line].edges[p.first] for p in pieces])
    upper = np.array([binned[p.line].edges[p.last] for p in pieces])
    matched = match_moments(means, np.maximum(variances, 1e-300), lower, np.maximum(upper, np.nextafter(lower, np.inf)))
    result: list[int | None] = []
    for number, piece in enumerate(pieces):
        b = binned[piece.line]
        inner = b.edges[piece.first + 1 : piece.last]
        if rows[number] < LEAST_ROWS or not len(inner):
            result.append(None)
            continue
        seen = np.cumsum(b.rows[piece.first : piece.last])[:-1] / rows[number]
        curve = cdf(inner, matched.mu[number], matched.sigma[number], lower[number], upper[number])
        gap = np.abs(seen - curve)
        at = int(np.argmax(gap))
        off = gap[at] > MISFIT + SAMPLING / np.sqrt(rows[number])
        result.append(_empty_stretch(piece, b) or piece.first + 1 + at if off else None)
    return result


def _empty_stretch(piece: _Piece, b: _Binned) -> int | None:
    """The edge inside the widest empty stretch of a piece, if it is wide and has rows on both sides.

    Two humps are cut between them: where the curve is furthest off is at the foot of one.
    """
    widths = np.diff(b.edges[piece.first : piece.last + 1])
    rows = b.rows[piece.first : piece.last]
    # An edge lies halfway between neighbours, so an empty stretch widens the bins on both of its sides.
    pairs = np.minimum(widths[:-1], widths[1:])
    at = int(np.argmax(pairs))
    before = rows[: at + 1].sum()
    wide = 2 * pairs[at] > WIDE_GAP * widths.sum()
    return piece.first + 1 + at if wide and min(before, rows.sum() - before) >= LEAST_ROWS / 2 else None


def _moments(piece: _Piece, b: _Binned) -> tuple[float, float, float]:
    here = slice(piece.first, piece.last)
    rows = float(b.rows[here].sum())
    if rows == 0:
        return 0.0, float(b.edges[piece.first]), 0.0
    mean = float(b.sums[here].sum()) / rows
    return rows, b.centre + mean, max(float(b.squares[here].sum()) / rows - mean**2, 0.0)
