"""Random generators: every task derives its own from the seed, a stage and the indices of the task."""

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
    RULES = 19
    REPORT = 21
    RELEASE = 22
    HOLDOUT = 23
    REFINE = 24
    RENEWAL = 25
    PRIVACY = 30
    FAMILY = 40
    CHAIN = 41


def entropy(seed: int | None) -> int:
    """Return the seed as an int, or draw a fresh one from the operating system if it is None.

    >>> entropy(7)
    7
    """
    if seed is None:
        return int(np.random.SeedSequence().generate_state(2, np.uint64)[0])
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(f"seed={seed!r}: give a whole number of at least 0, or None for fresh draws.")
    return int(seed)


def generator(seed: int, stage: Stage, *index: int) -> np.random.Generator:
    """Return the generator of one task: the same seed, stage and index give the same stream on any worker."""
    sequence = np.random.SeedSequence(seed, spawn_key=(int(stage), *index))
    return np.random.Generator(np.random.SFC64(sequence))
