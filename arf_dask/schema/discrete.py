"""Discrete columns as integer ids, one id per distinct value."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


class Discrete(NamedTuple):
    """A column as one integer id per row, from 0 to n_values - 1."""

    ids: Ids
    n_values: int


def collision(column: Discrete) -> float:
    """Return the probability that two random rows have the same value.

    >>> collision(Discrete(np.array([0, 0, 1, 1], dtype=np.int32), 2))
    0.5
    """
    shares = np.bincount(column.ids, minlength=column.n_values) / max(len(column.ids), 1)
    return float((shares**2).sum())
