"""Columns that are step functions of a number line: a time stamp and its date, a clock time and its hour.

Sorted by the line, such a column changes value only now and then: the places where it does become edges
between interval states of the line, and the column is read off the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.axis import Axis
from arf_dask.bins import halfway
from arf_dask.bundles import SAMPLE_ROWS, Discrete, sample_rows
from arf_dask.seeds import Stage, generator

Floats = NDArray[np.float64]
Objects = NDArray[Any]

LEAST_ROWS = 40
ROWS_PER_RUN = 2  # a monotone function needs little evidence,
ROWS_PER_LOOSE_RUN = 5  # any other some more
MOST_RUNS = 4_000
MANY_PAIRS = 10_000  # of lines and columns, beyond which fewer rows are sampled
FEWER = 4  # runs against those of shuffled rows
LEAST_EXPECTED = 40  # runs that shuffled rows must have, so that few runs mean anything


class Step(NamedTuple):
    """One column that a line determines."""

    line: int  # key of the number line
    target: int  # key of the column
    cuts: Floats  # (k, 2): the neighbours on the line between which the target changes


def find_steps(lines: dict[int, Floats], targets: dict[int, Discrete], n_rows: int) -> list[Step]:
    """At most one line for every target. Places are NaN where the line has no number (null): not looked at.

    A target must also be determined where the line has none: the caller checks that with its states.
    """
    if n_rows < LEAST_ROWS:
        return []
    usable = [key for key, c in targets.items() if 2 <= c.n_values <= n_rows // ROWS_PER_RUN]
    if not usable or not lines:
        return []
    rows = sample_rows(n_rows, SAMPLE_ROWS if len(usable) * len(lines) <= MANY_PAIRS else SAMPLE_ROWS // 4)
    sampled = np.stack([targets[key].ids[rows] for key in usable], axis=1)
    expected = _n_runs(generator(0, Stage.SCHEMA, 2).permuted(sampled, axis=0))
    found: dict[int, Step] = {}
    for line, places in lines.items():
        order = np.argsort(places[rows], kind="stable")
        order = order[~np.isnan(places[rows][order])]
        few = (_n_runs(sampled[order]) * FEWER <= expected) & (expected >= LEAST_EXPECTED)
        for target in (usable[place] for place in np.flatnonzero(few)):
            if target != line and target not in found:
                step = _verify(line, target, places, targets[target])
                if step is not None:
                    found[target] = step
    return list(found.values())


def _n_runs(ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """Runs of equal values in every column."""
    return np.asarray(1 + np.count_nonzero(ids[1:] != ids[:-1], axis=0))


def _verify(line: int, target: int, places: Floats, column: Discrete) -> Step | None:
    """The step function on all rows, or None if it is not one."""
    present = ~np.isnan(places)
    order = np.lexsort((column.ids[present], places[present]))
    sorted_places, ids = places[present][order], column.ids[present][order]
    changes = np.flatnonzero(ids[1:] != ids[:-1])
    n_runs = len(changes) + 1
    each_once = n_runs == len(np.unique(ids))
    enough = ROWS_PER_RUN if each_once else ROWS_PER_LOOSE_RUN
    if n_runs > MOST_RUNS or n_runs * enough > len(ids):
        return None
    cuts = np.stack([sorted_places[changes], sorted_places[changes + 1]], axis=1)
    if np.any(cuts[:, 0] == cuts[:, 1]):
        return None  # one place, two values: no function
    return Step(line, target, cuts)


def round_cuts(cuts: Floats, axis: Axis, dtype: pl.DataType) -> Floats:
    """One edge between each pair of neighbours: the roundest number there is (a full hour, a full thousand).

    The true border of a step function lies somewhere between the neighbours seen; people put borders at round
    numbers. The number itself belongs to the right side.
    """
    left, right = cuts[:, 0], cuts[:, 1]
    best = halfway(left, right, grid=axis.grid)
    candidates = _round_places(right, axis, dtype) if axis.grid else _round_floats(right)
    still = np.ones(len(best), dtype=bool)
    for candidate in candidates:
        fits = still & (candidate > left)
        best[fits] = candidate[fits] - (0.5 if axis.grid else 0.0)
        still &= ~fits
    return best


def _round_places(right: Floats, axis: Axis, dtype: pl.DataType) -> Iterator[Floats]:
    """Per unit, coarsest first: the first place at or after its last multiple up to `right`."""
    # Python's own whole numbers: 128-bit values must not overflow, and steps need not divide the units.
    distance = right.astype(np.int64).astype(object) * axis.step
    clock = (distance + axis.origin) * 2**axis.shift + _utc_offset(distance + axis.origin, dtype)
    for unit in _units(dtype):
        yield -((clock % unit // 2**axis.shift - distance) // axis.step).astype(np.float64)


def _round_floats(right: Floats) -> Iterator[Floats]:
    """Per unit (1e12, 5e11, 1e11, .. 1e-9), coarsest first: its last multiple that is not above `right`."""
    for power, half in product(range(12, -10, -1), (1, 2)):
        up, down = (10.0**power / half, 1.0) if power > 0 else (1.0, 10.0**-power * half)
        times = np.floor(right * down / up)
        # A decimal such as 0.3 is the quotient 3 / 10, to the last bit; 3 * 0.1 is not.
        times = np.where((times + 1) * up / down <= right, times + 1, times)
        times = np.where(times * up / down > right, times - 1, times)
        yield times * up / down


def _units(dtype: pl.DataType) -> list[int]:
    """Round distances, coarsest first, in physical units of the column."""
    if isinstance(dtype, pl.Datetime | pl.Duration) or dtype == pl.Time:
        second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[getattr(dtype, "time_unit", None) or "ns"]
        return [second * s for s in (86_400, 43_200, 21_600, 3_600, 1_800, 900, 600, 300, 60, 30, 10, 1)]
    return [10**power // half for power in range(12, -1, -1) for half in (1, 2) if power > 0 or half == 1]


def _utc_offset(physical: Objects, dtype: pl.DataType) -> Objects | int:
    """What the wall clock of a zone adds: its days begin at its own midnight."""
    if not isinstance(dtype, pl.Datetime) or dtype.time_zone is None:
        return 0
    stamps = pl.Series(physical.astype(np.int64)).cast(dtype)
    offset = stamps.dt.base_utc_offset() + stamps.dt.dst_offset()
    return offset.dt.cast_time_unit(dtype.time_unit).to_physical().to_numpy().astype(object)
