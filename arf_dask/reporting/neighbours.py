"""Embed rows as points (ranks of numbers, one-hot levels) and find Euclidean nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.reporting.columns import as_numbers, has_levels, level_codes
from arf_dask.typing import Counts, Floats

Points = NDArray[np.float32]

CELLS = 16_000_000  # distances held in memory at once
MOST_CORNERS = 64  # maximum one-hot coordinates per column; rarer levels share one


class Embedding(NamedTuple):
    """Frames as points; two levels are one unit apart, as are the smallest and the largest number."""

    points: list[Points]  # one array per frame
    spans: list[slice]  # coordinates per column


def embed(frames: Sequence[pl.DataFrame]) -> Embedding:
    """Embed several frames in the same space. Numbers are represented by their rank in the first frame."""
    blocks = [_coordinates([frame[name] for frame in frames]) for name in frames[0].columns]
    ends = np.cumsum([block[0].shape[1] for block in blocks])
    starts = [0, *ends[:-1].tolist()]
    points = [np.concatenate([block[place] for block in blocks], axis=1) for place in range(len(frames))]
    return Embedding(points, [slice(start, int(end)) for start, end in zip(starts, ends, strict=True)])


def nearest(points: Points, targets: Points, k: int = 1, *, skip_self: bool = False) -> tuple[Floats, Counts]:
    """Return distances and indices (row, neighbour) of the k nearest targets, in ascending order of distance.

    With `skip_self`, the targets are the points themselves, and a point is not its own neighbour.
    """
    k = min(k, len(targets) - skip_self)
    found, where = np.empty((len(points), k)), np.empty((len(points), k), dtype=np.int64)
    # Squared distances up to the norms of the points, in one matrix product: (-2 t, |t|^2) . (p, 1).
    norms = np.einsum("ij,ij->i", targets, targets)
    left = np.column_stack([points, np.ones(len(points), dtype=np.float32)])
    right = np.ascontiguousarray(np.column_stack([-2 * targets, norms]).T)
    step = max(1, CELLS // max(1, len(targets)))
    for first in range(0, len(points), step):
        rows = slice(first, first + step)
        squared = left[rows] @ right
        if skip_self:
            here = np.arange(len(squared))
            squared[here, first + here] = np.inf
        where[rows] = _smallest(squared, k)
        # Recomputed from the coordinates, as cancellation makes short distances inaccurate.
        gaps = points[rows][:, None, :] - targets[where[rows]]
        found[rows] = np.sqrt(np.einsum("ijk,ijk->ij", gaps, gaps))
    return found, where


def _smallest(squared: Points, k: int) -> Counts:
    if k == 1:
        first: Counts = np.argmin(squared, axis=1)[:, None]
        return first
    some = np.argpartition(squared, k - 1, axis=1)[:, :k]
    order = np.take_along_axis(squared, some, axis=1).argsort(axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def _coordinates(columns: list[pl.Series]) -> list[Points]:
    return _corners(columns) if has_levels(columns[0].dtype) else _ranks(columns)


def _corners(columns: list[pl.Series]) -> list[Points]:
    codes, levels = level_codes(columns)
    counts = np.bincount(np.concatenate(codes) + 1, minlength=len(levels) + 1)
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    corner = np.minimum(rank, MOST_CORNERS - 1)
    corners = (np.eye(int(corner.max()) + 1) * np.sqrt(0.5)).astype(np.float32)
    return [corners[corner[code + 1]] for code in codes]


def _ranks(columns: list[pl.Series]) -> list[Points]:
    """Return mid-ranks in [0, 1] and a coordinate for missing values, which are over half a unit from any number."""
    numbers = [as_numbers(column) for column in columns]
    reference = np.sort(numbers[0][~np.isnan(numbers[0])])
    points = []
    for values in numbers:
        below, up_to = (np.searchsorted(reference, values, side=side) for side in ("left", "right"))
        missing = np.isnan(values)
        rank = np.where(missing, 0.5, (below + up_to) / max(1, 2 * len(reference)))
        points.append(np.column_stack([rank, missing * 0.75]).astype(np.float32))
    return points
