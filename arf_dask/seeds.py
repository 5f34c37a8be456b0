"""Randomness is an argument: every task derives its own generator from the seed and its place in the work."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from arf_dask.errors import OptionError


class Stage(IntEnum):
    """The first part of every spawn key. Numbers are part of the repeatability promise: never reuse one."""

    SCHEMA = 1
    MARGINAL_DRAW = 2
    LEAF_DRAW = 3
    TREE = 4
    FORGE = 5
    KEYS = 6
    IMPUTE = 7
    SAMPLE = 8
    GIVEN = 9
    COMPLETE = 10


def entropy(seed: int | None) -> int:
    """The whole number that decides a run: the seed itself, or fresh entropy when there is none.

    >>> entropy(7)
    7
    """
    if seed is None:
        return int(np.random.SeedSequence().generate_state(2, np.uint64)[0])
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(f"seed={seed!r}: give a whole number of at least 0, or None for fresh draws.")
    return int(seed)


def generator(seed: int, stage: Stage, *place: int) -> np.random.Generator:
    """The generator of one task: the same seed and place give the same stream, whoever runs it."""
    sequence = np.random.SeedSequence(seed, spawn_key=(int(stage), *place))
    return np.random.Generator(np.random.SFC64(sequence))
