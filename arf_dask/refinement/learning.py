"""Learn the refinement of a model from real rows and rows that it drew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.refinement.boosted_trees import LEAF, BoostedTrees
from arf_dask.refinement.boosting import Boosting, Sides, boost
from arf_dask.refinement.features import N_CODES, Codes, Feature, Rows, encode, learn_features
from arf_dask.refinement.pruning import prune_trees
from arf_dask.refinement.ratio import Gain, Refinement, choose_cap, find_slacks, stage_sums
from arf_dask.rules.relations import Relations
from arf_dask.typing import Counts, Flags, Floats

MOST_CLIPPED = 0.005  # share of the weight of rows above the limit of the ratio
LEAST_ACCEPTANCE = 0.02  # share of drawn rows that are accepted
FIRST_STAGE = 1 / 16  # share of the trees in the first stage; every further one ends at twice as many
SLACK_QUANTILE = 0.999  # share of the accepted rows whose ratio no stage limits
VALIDATION = 0.2  # share of the rows that decide when learning stops
# Overlap of real and drawn rows in a single feature. Where there is less, hardly any drawn row looks real: rejection
# cannot mend that, and trees that see such a feature learn nothing else.
LEAST_OVERLAP = 0.02
CERTAINTY = 2.0  # standard errors by which the gain must exceed zero


class LearningRows(NamedTuple):
    """The rows that a ratio is learned from, in the user's columns."""

    real: pl.DataFrame
    drawn: pl.DataFrame  # to tell real rows from
    fresh: pl.DataFrame  # drawn rows that choose limits and measure Z
    is_validation: Flags  # of the real rows, then of the drawn ones: decide when learning stops
    subjects: Counts | None = None  # per real row, the number of its person; None: every row is a person


class Lesson(NamedTuple):
    """What trees are learned from."""

    features: Sequence[Feature]
    sides: Sides


def learn_trees(lesson: Lesson, settings: Boosting, seed: int) -> BoostedTrees:
    """Learn the trees of a ratio; `seed` seeds the choice of features at every split."""
    trees = boost(*lesson, settings, seed)
    return prune_trees(trees, lesson.sides, settings) if settings.min_people else trees


def learn_refinement(
    rows: LearningRows,
    relations: Relations,
    keys: Sequence[str],
    learn: Callable[[Lesson], BoostedTrees],
    *,
    only_if_certain: bool,
) -> Refinement | None:
    """Learn the ratio of real rows to drawn rows; None if there is nothing to learn.

    Args:
        rows: the real and the drawn rows.
        relations: from the user's columns to the modelled ones.
        keys: the identifiers, which no feature is computed from.
        learn: learns the trees; `learn_trees` with its settings, here or in another process.
        only_if_certain: whether a gain within its standard error counts as nothing.
    """
    features = learn_features(rows.drawn, relations, keys)
    if not features:
        return None
    codes = encode(features, Rows(pl.concat([rows.real, rows.drawn]), relations))
    is_real = np.arange(rows.real.height + rows.drawn.height) < rows.real.height
    shared = [number for number in codes if _overlap(codes[number], is_real) >= LEAST_OVERLAP]
    features, codes = [features[number] for number in shared], {new: codes[old] for new, old in enumerate(shared)}
    sides = Sides(codes, is_real, rows.is_validation, _all_subjects(rows))
    if not features or not sides.has_both():
        return None
    trees = learn(Lesson(features, sides))
    if not trees.n_trees:
        return None
    gain = _measure_gain(trees, sides)
    if gain.nats <= (CERTAINTY * gain.error if only_if_certain else 0.0):
        return None
    features, trees = _only_used(features, trees)
    fresh = encode(features, Rows(rows.fresh, relations), trees.used)
    staged = replace(trees, stages=_stage_ends(trees.n_trees))
    sums = list(stage_sums(staged, fresh, rows.fresh.height))
    slacks = find_slacks(sums, SLACK_QUANTILE)
    limited = np.minimum.reduce([*(one + slack for one, slack in zip(sums[:-1], slacks, strict=True)), sums[-1]])
    log_cap = choose_cap(limited, most_clipped=MOST_CLIPPED, least_acceptance=LEAST_ACCEPTANCE).log_cap
    log_z, z_error = mean_ratio(np.minimum(limited, log_cap))
    return Refinement(tuple(features), staged, slacks, log_cap, log_z, z_error, gain)


def _overlap(codes: Codes, is_real: Flags) -> float:
    """Return the share of real and drawn rows that the best test by one feature cannot tell apart.

    >>> _overlap(np.array([0, 1, 1, 2], np.uint8), np.array([True, True, False, False]))
    0.5
    """
    real, drawn = (np.bincount(codes[side], minlength=N_CODES) / max(side.sum(), 1) for side in (is_real, ~is_real))
    return float(np.minimum(real, drawn).sum())


def _only_used(features: Sequence[Feature], trees: BoostedTrees) -> tuple[list[Feature], BoostedTrees]:
    """Leave out the features that no tree splits on."""
    numbers = np.full(len(features), LEAF, dtype=np.int32)
    numbers[trees.used] = np.arange(len(trees.used))
    feature = np.where(trees.feature == LEAF, np.int32(LEAF), numbers[trees.feature])
    return [features[number] for number in trees.used], replace(trees, feature=feature)


def choose_validation(n_real: int, n_drawn: int, subjects: Counts | None, rng: np.random.Generator) -> Flags:
    """Choose the validation rows among the real rows and then the drawn ones; a person's rows are on the same side.

    Args:
        n_real: the number of real rows.
        n_drawn: the number of drawn rows.
        subjects: per real row, the number of its person, from 0 on; None: every row is a person.
        rng: chooses.
    """
    chances = rng.random(n_real + n_drawn)
    if subjects is not None:
        chances[:n_real] = chances[subjects]
    return np.asarray(chances < VALIDATION)


def _all_subjects(rows: LearningRows) -> Counts | None:
    """Return the number of the person of every row; drawn rows have the number 0, as they are never counted."""
    if rows.subjects is None:
        return None
    return np.concatenate([rows.subjects, np.zeros(rows.drawn.height, rows.subjects.dtype)])


def mean_ratio(log_ratios: Floats) -> tuple[float, float]:
    """Return the logarithm of the mean ratio of drawn rows, and its standard error."""
    ratios = np.exp(log_ratios)
    mean = float(ratios.mean())
    return float(np.log(mean)), float(ratios.std() / mean / np.sqrt(len(ratios)))


def _stage_ends(n_trees: int) -> tuple[int, ...]:
    """Return the numbers of trees at the ends of all stages but the last.

    >>> _stage_ends(160)
    (10, 20, 40, 80)
    """
    ends = []
    share = FIRST_STAGE
    while share < 1:
        ends.append(round(n_trees * share))
        share *= 2
    return tuple(end for end in dict.fromkeys(ends) if 0 < end < n_trees)


def _measure_gain(trees: BoostedTrees, sides: Sides) -> Gain:
    """Return the gain in log-likelihood on the validation rows over calling every row as likely real as drawn."""
    places = np.flatnonzero(sides.is_validation)
    scores = trees.score({name: column[places] for name, column in sides.codes.items()}, len(places))
    is_real, weights = sides.is_real[places], sides.weights()[places]
    gains = np.log(2) - np.logaddexp(0.0, np.where(is_real, -scores, scores))
    mean = float(np.average(gains, weights=weights))
    error = float(np.sqrt(np.sum(weights**2 * (gains - mean) ** 2)) / weights.sum())
    return Gain(mean, error)
