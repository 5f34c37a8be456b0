"""Products of a tall matrix and a small one."""

from __future__ import annotations

import numpy as np

from arf_dask.typing import Floats

SINGLE_THREADED = 2**18  # OpenBLAS uses one thread for products of at most this many multiplications


def thin_product(rows: Floats, small: Floats) -> Floats:
    """Return the product of a tall matrix and a small one, computed on the calling thread.

    Queries already run as tasks on all cores. Further threads inside each task would mostly wait for each other and
    double the processor time.

    >>> thin_product(np.ones((3, 2)), np.array([[1.0], [2.0]])).ravel().tolist()
    [3.0, 3.0, 3.0]
    """
    chunk_rows = max(1, SINGLE_THREADED // max(small.size, 1))
    if len(rows) <= chunk_rows:
        return np.asarray(rows @ small)
    result = np.empty((len(rows), small.shape[1]))
    for first_row in range(0, len(rows), chunk_rows):
        np.matmul(rows[first_row : first_row + chunk_rows], small, out=result[first_row : first_row + chunk_rows])
    return result
