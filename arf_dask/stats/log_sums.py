"""Numerically stable log-sum-exp, for arrays and for runs of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arf_dask.typing import Floats


def log_sum(logs: Floats) -> Floats:
    """Return the log of the sum of exponentials along the last axis; -inf for empty sums."""
    if logs.shape[-1] == 0:
        return np.full(logs.shape[:-1], -np.inf)
    maximum = logs.max(axis=-1)
    finite_max = np.where(np.isfinite(maximum), maximum, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(finite_max + np.log(np.exp(logs - finite_max[..., None]).sum(axis=-1)))


def log_mean(logs: Floats) -> Floats:
    """Return the log of the mean of exponentials along the last axis."""
    return np.asarray(log_sum(logs) - np.log(logs.shape[-1]))


def add_log_sums(total: Floats, logs: Floats, row: NDArray[np.integer]) -> None:
    """Write the log of the sum of exponentials of every run of equal values in the sorted `row` into `total[row]`."""
    if not len(row):
        return
    starts = run_starts(row)
    maximum = np.maximum.reduceat(logs, starts)
    finite_max = np.where(np.isfinite(maximum), maximum, 0.0)
    run_sizes = np.diff(np.append(starts, len(row)))
    with np.errstate(divide="ignore"):
        total[row[starts]] = finite_max + np.log(
            np.add.reduceat(np.exp(logs - np.repeat(finite_max, run_sizes)), starts)
        )


def run_starts(row: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the index at which each run of equal numbers starts.

    >>> run_starts(np.array([4, 4, 7, 9, 9]))
    array([0, 2, 3])
    """
    return np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]])) if len(row) else np.empty(0, dtype=np.int64)
