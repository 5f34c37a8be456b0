"""Find columns that are step functions of a number line, such as the date of a timestamp or the hour of a time.

In rows sorted by the line, such a column rarely changes its value. The points where it does become edges between
interval states of the line, and the state determines the value of the column.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.axes import Axis
from arf_dask.data.bins import halfway
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.bundles import SAMPLE_ROWS, screening_rows
from arf_dask.schema.discrete import Discrete
from arf_dask.typing import Floats

Objects = NDArray[Any]

LEAST_ROWS = 40
ROWS_PER_RUN = 2  # minimum rows per run if every value has a single run
ROWS_PER_LOOSE_RUN = 5  # minimum rows per run if values recur
MOST_RUNS = 4_000
MANY_PAIRS = 10_000  # with more pairs of lines and columns than this, fewer rows are sampled
FEWER = 4  # minimum ratio of the runs in shuffled rows to the runs in sorted rows
LEAST_EXPECTED = 40  # minimum number of runs in shuffled rows, below which few runs are no evidence


class Step(NamedTuple):
    """A column that is a step function of a number line."""

    line: int  # key of the number line
    target: int  # key of the column
    cuts: Floats  # (k, 2): the neighbours on the line between which the target changes


def find_steps(lines: dict[int, Floats], targets: dict[int, Discrete], n_rows: int) -> list[Step]:
    """Find at most one step function per target column.

    Rows whose axis value is NaN (the line holds no number) are ignored. The caller must check with the states of the
    line that these rows determine the target as well.
    """
    if n_rows < LEAST_ROWS:
        return []
    usable_keys = [key for key, c in targets.items() if 2 <= c.n_values <= n_rows // ROWS_PER_RUN]
    if not usable_keys or not lines:
        return []
    sample_rows = screening_rows(
        n_rows, SAMPLE_ROWS if len(usable_keys) * len(lines) <= MANY_PAIRS else SAMPLE_ROWS // 4
    )
    sampled_ids = np.stack([targets[key].ids[sample_rows] for key in usable_keys], axis=1)
    expected_runs = _n_runs(generator(0, Stage.SCHEMA, 2).permuted(sampled_ids, axis=0))
    found_steps: dict[int, Step] = {}
    for line, axis_values in lines.items():
        line_order = np.argsort(axis_values[sample_rows], kind="stable")
        line_order = line_order[~np.isnan(axis_values[sample_rows][line_order])]
        has_few_runs = (_n_runs(sampled_ids[line_order]) * FEWER <= expected_runs) & (expected_runs >= LEAST_EXPECTED)
        for target in (usable_keys[i] for i in np.flatnonzero(has_few_runs)):
            if target != line and target not in found_steps:
                step = _verify(line, target, axis_values, targets[target])
                if step is not None:
                    found_steps[target] = step
    return list(found_steps.values())


def _n_runs(ids: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count the runs of equal values in each column."""
    return np.asarray(1 + np.count_nonzero(ids[1:] != ids[:-1], axis=0))


def _verify(line: int, target: int, axis_values: Floats, column: Discrete) -> Step | None:
    """Return the step function if it holds in all rows, otherwise None."""
    is_present = ~np.isnan(axis_values)
    row_order = np.lexsort((column.ids[is_present], axis_values[is_present]))
    sorted_values, sorted_ids = axis_values[is_present][row_order], column.ids[is_present][row_order]
    changes = np.flatnonzero(sorted_ids[1:] != sorted_ids[:-1])
    n_runs = len(changes) + 1
    is_single_run = n_runs == len(np.unique(sorted_ids))
    rows_per_run = ROWS_PER_RUN if is_single_run else ROWS_PER_LOOSE_RUN
    if n_runs > MOST_RUNS or n_runs * rows_per_run > len(sorted_ids):
        return None
    cuts = np.stack([sorted_values[changes], sorted_values[changes + 1]], axis=1)
    if np.any(cuts[:, 0] == cuts[:, 1]):
        return None  # one number with two values: not a function
    return Step(line, target, cuts)


def round_cuts(cuts: Floats, axis: Axis, dtype: pl.DataType) -> Floats:
    """Return an edge between each pair of neighbours, at the roundest number in between (a full hour or thousand).

    The true boundary of a step function lies somewhere between the observed neighbours, and most boundaries are round
    numbers. The round number itself belongs to the right side.
    """
    left, right = cuts[:, 0], cuts[:, 1]
    best_edges = halfway(left, right, grid=axis.grid)
    candidates = _round_points(right, axis, dtype) if axis.grid else _round_floats(right)
    is_open = np.ones(len(best_edges), dtype=bool)
    for candidate in candidates:
        is_between = is_open & (candidate > left)
        best_edges[is_between] = candidate[is_between] - (0.5 if axis.grid else 0.0)
        is_open &= ~is_between
    return best_edges


def _round_points(right: Floats, axis: Axis, dtype: pl.DataType) -> Iterator[Floats]:
    """Yield, per unit and coarsest first, the first grid point at or after the last multiple not above `right`."""
    # Use Python integers: 128-bit values must not overflow, and steps need not divide the units.
    axis_distance = right.astype(np.int64).astype(object) * axis.step
    local_time = (axis_distance + axis.origin) * 2**axis.shift + _utc_offset(axis_distance + axis.origin, dtype)
    for unit in _units(dtype):
        yield -((local_time % unit // 2**axis.shift - axis_distance) // axis.step).astype(np.float64)


def _round_floats(right: Floats) -> Iterator[Floats]:
    """Yield, per unit (1e12, 5e11, 1e11, ..., 1e-9) and coarsest first, the last multiple not above `right`."""
    for power, halving in product(range(12, -10, -1), (1, 2)):
        multiplier, divisor = (10.0**power / halving, 1.0) if power > 0 else (1.0, 10.0**-power * halving)
        multiples = np.floor(right * divisor / multiplier)
        # The float 0.3 equals 3 / 10 exactly, but not 3 * 0.1.
        multiples = np.where((multiples + 1) * multiplier / divisor <= right, multiples + 1, multiples)
        multiples = np.where(multiples * multiplier / divisor > right, multiples - 1, multiples)
        yield multiples * multiplier / divisor


def _units(dtype: pl.DataType) -> list[int]:
    """Return round step sizes in physical units of the column, coarsest first."""
    if isinstance(dtype, pl.Datetime | pl.Duration) or dtype == pl.Time:
        second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[getattr(dtype, "time_unit", None) or "ns"]
        return [second * s for s in (86_400, 43_200, 21_600, 3_600, 1_800, 900, 600, 300, 60, 30, 10, 1)]
    return [10**power // halving for power in range(12, -1, -1) for halving in (1, 2) if power > 0 or halving == 1]


def _utc_offset(physical: Objects, dtype: pl.DataType) -> Objects | int:
    """Return the UTC offsets of timestamps in a time zone, whose days begin at local midnight."""
    if not isinstance(dtype, pl.Datetime) or dtype.time_zone is None:
        return 0
    timestamps = pl.Series(physical.astype(np.int64)).cast(dtype)
    utc_offset = timestamps.dt.base_utc_offset() + timestamps.dt.dst_offset()
    return utc_offset.dt.cast_time_unit(dtype.time_unit).to_physical().to_numpy().astype(object)
