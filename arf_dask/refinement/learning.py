"""Learn the refinement of a model from real rows and rows that it drew.

Trees are learned in two steps. Those of the first split on what every detector sees: the columns and the parts of
dates and times. Those of the second also see how columns are related, and learn what the first have left. Relations
can tell nearly all drawn rows from real ones, and rejecting so many would cost the acceptance that other features need:
of the second step only as many trees are kept as leave enough rows to accept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.refinement.boosted_trees import LEAF, NO_TREES, BoostedTrees, first_trees, join
from arf_dask.refinement.boosting import Boosting, Sides, boost
from arf_dask.refinement.features import N_CODES, Codes, Feature, Rows, encode, learn_features
from arf_dask.refinement.pruning import prune_trees
from arf_dask.refinement.ratio import Gain, Limit, Refinement, choose_cap, find_slacks, stage_sums
from arf_dask.rules.relations import Relations
from arf_dask.typing import Counts, Flags, Floats

MOST_CLIPPED = 0.005  # share of the weight of rows above the limit of the ratio
LEAST_ACCEPTANCE = 0.02  # share of drawn rows that are accepted
FIRST_STAGE = 1 / 16  # share of the trees in the first stage; every further one ends at twice as many
SLACK_QUANTILE = 0.999  # share of the accepted rows whose ratio no stage limits
VALIDATION = 0.2  # share of the rows that decide when learning stops
# Share of rows that would be accepted if a single feature were to be mended. Where it is less, hardly any drawn row
# looks real: rejection cannot mend that, and trees that see such a feature learn nothing else.
LEAST_FEATURE_ACCEPTANCE = 0.1
MOST_FEATURE_CLIPPED = 0.02  # share of the real rows that it then misses
LEAST_DISTINCTION = 4.0  # standard deviations of chance by which a derived feature differs in real and drawn rows
LEAST_RELATED_ACCEPTANCE = 0.05  # share of drawn rows that are accepted by trees that see relations
MOST_RELEARNED = 10_000_000  # codes of real and drawn rows up to which trees are learned again with the validation rows
RELEARNED_ROUNDS = 1.1  # trees that are learned then, of those that the validation rows chose
# Mean ratio of drawn rows. It is one if they cover the real ones; where it is far smaller, nearly all real rows differ
# from nearly all drawn ones, and accepting the least unlikely of these would distort everything.
LEAST_MEAN_RATIO = 0.1
CERTAINTY = 3.0  # standard errors by which the gain must exceed zero; the number of trees was chosen to make it large


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


class Learned(NamedTuple):
    """The trees of a ratio."""

    own: BoostedTrees  # split on the columns themselves
    related: BoostedTrees  # added to these, and split on all features
    gain: Gain  # of as many trees that were learned without the validation rows


def learn_trees(lesson: Lesson, settings: Boosting, seed: int) -> Learned:
    """Learn the trees of a ratio; `seed` seeds the choice of features at every split."""
    own, related = _learn_steps(lesson, settings, seed, None)
    places = np.flatnonzero(lesson.sides.is_validation & ~lesson.sides.is_real)
    related = affordable(own, related, {number: codes[places] for number, codes in lesson.sides.codes.items()})
    gain = _measure_gain(join(own, related), lesson.sides)
    n_codes = len(lesson.features) * len(lesson.sides.is_real)
    if n_codes <= MOST_RELEARNED and own.n_trees + related.n_trees:
        numbers = _Rounds(*(math.ceil(RELEARNED_ROUNDS * trees.n_trees) for trees in (own, related)))
        all_rows = lesson.sides._replace(is_validation=np.zeros(len(lesson.sides.is_real), dtype=bool))
        own, related = _learn_steps(lesson._replace(sides=all_rows), settings, seed, numbers)
    return Learned(own, related, gain)


class _Rounds(NamedTuple):
    """Numbers of trees."""

    own: int
    related: int


def _learn_steps(
    lesson: Lesson, settings: Boosting, seed: int, rounds: _Rounds | None
) -> tuple[BoostedTrees, BoostedTrees]:
    """Learn the trees of both steps, as many as are asked for or as the validation rows ask for."""
    features, sides = lesson
    numbers = [number for number, feature in enumerate(features) if feature.is_own]
    own = _learn_step(lesson, numbers, settings, seed, None if rounds is None else rounds.own)
    if len(numbers) == len(features):
        return own, NO_TREES
    scores = own.score(dict(sides.codes), len(sides.is_real))
    limit = _limit(scores[~sides.is_real])
    if limit.acceptance < LEAST_RELATED_ACCEPTANCE:
        return own, NO_TREES
    left = lesson._replace(sides=sides._replace(emphasis=np.exp(np.minimum(scores, limit.log_cap))))
    numbers = list(range(len(features)))
    return own, _learn_step(left, numbers, settings, seed, None if rounds is None else rounds.related)


def _learn_step(
    lesson: Lesson, numbers: Sequence[int], settings: Boosting, seed: int, n_rounds: int | None
) -> BoostedTrees:
    if not numbers or n_rounds == 0:
        return NO_TREES
    trees = boost(lesson.features, numbers, lesson.sides, settings, seed, n_rounds)
    trees = prune_trees(trees, lesson.sides, settings) if settings.min_people else trees
    return trees if trees.n_trees else NO_TREES


def learn_refinement(
    rows: LearningRows,
    relations: Relations,
    keys: Sequence[str],
    learn: Callable[[Lesson], Learned],
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
    seen = [number for number, feature in enumerate(features) if _is_of_use(feature, codes[number], is_real)]
    features, codes = [features[number] for number in seen], {new: codes[old] for new, old in enumerate(seen)}
    sides = Sides(codes, is_real, rows.is_validation, _all_subjects(rows))
    if not features or not sides.has_both():
        return None
    learned = learn(Lesson(features, sides))
    if learned.gain.nats <= (CERTAINTY * learned.gain.error if only_if_certain else 0.0):
        return None
    fresh = encode(features, Rows(rows.fresh, relations))
    own = covered(learned.own, fresh)
    trees = own if own is not learned.own else join(own, affordable(own, learned.related, fresh))
    if not trees.n_trees:
        return None
    fresh = {new: fresh[old] for new, old in enumerate(trees.used)}
    features, trees = _only_used(features, trees)
    staged = replace(trees, stages=_stage_ends(trees.n_trees))
    sums = list(stage_sums(staged, fresh, rows.fresh.height))
    slacks = find_slacks(sums, SLACK_QUANTILE)
    limited = np.minimum.reduce([*(one + slack for one, slack in zip(sums[:-1], slacks, strict=True)), sums[-1]])
    log_cap = _limit(limited).log_cap
    log_z, z_error = mean_ratio(np.minimum(limited, log_cap))
    return Refinement(tuple(features), staged, slacks, log_cap, log_z, z_error, learned.gain)


def _limit(log_ratios: Floats) -> Limit:
    """Return the limit of the ratio, given its logarithms of drawn rows."""
    return choose_cap(log_ratios, most_clipped=MOST_CLIPPED, least_acceptance=LEAST_ACCEPTANCE)


def covered(own: BoostedTrees, codes: Mapping[int, Codes]) -> BoostedTrees:
    """Return all trees of the first step, or the first of them if drawn rows would be too different from real ones.

    Args:
        own: the trees of the first step.
        codes: of drawn rows, per feature.
    """
    trees = own
    n_rows = len(next(iter(codes.values())))
    while trees.n_trees:
        log_ratios = trees.score(codes, n_rows)
        log_mean, _ = mean_ratio(np.minimum(log_ratios, _limit(log_ratios).log_cap))
        if log_mean >= np.log(LEAST_MEAN_RATIO):
            return trees
        trees = first_trees(own, trees.n_trees // 2)
    return NO_TREES


def affordable(own: BoostedTrees, related: BoostedTrees, codes: Mapping[int, Codes]) -> BoostedTrees:
    """Return as many trees of the second step as leave enough rows to accept.

    Args:
        own: the trees of the first step.
        related: the trees of the second step.
        codes: of drawn rows, per feature.
    """
    n_rows = len(next(iter(codes.values())))
    for n_trees in (related.n_trees, related.n_trees // 2, related.n_trees // 4):
        if n_trees:
            some = first_trees(related, n_trees)
            log_ratios = join(own, some).score(codes, n_rows)
            limit = choose_cap(log_ratios, most_clipped=MOST_CLIPPED, least_acceptance=0.0)
            if limit.acceptance >= LEAST_RELATED_ACCEPTANCE:
                return some
    return NO_TREES


def _is_of_use(feature: Feature, codes: Codes, is_real: Flags) -> bool:
    """Return whether trees should see a feature: they learn noise from derived ones that show no difference."""
    if feature.is_derived and distinction(codes, is_real) < LEAST_DISTINCTION:
        return False
    return feature_acceptance(codes, is_real) >= LEAST_FEATURE_ACCEPTANCE


def distinction(codes: Codes, is_real: Flags) -> float:
    """Return by how many standard deviations of chance the distributions of a feature differ (chi-squared).

    >>> is_real = np.repeat([True, False], 100)
    >>> same = np.tile(np.array([0, 1], np.uint8), 100)
    >>> round(distinction(same, is_real), 2), round(distinction(is_real.astype(np.uint8), is_real), 2)
    (-0.71, 140.71)
    """
    real, drawn = (np.bincount(codes[side], minlength=N_CODES).astype(float) for side in (is_real, ~is_real))
    scale = np.sqrt(max(drawn.sum(), 1.0) / max(real.sum(), 1.0))
    occurs = real + drawn > 0
    terms = (scale * real - drawn / scale)[occurs] ** 2 / (real + drawn)[occurs]
    degrees = max(int(occurs.sum()) - 1, 1)
    return float((terms.sum() - degrees) / np.sqrt(2 * degrees))


def feature_acceptance(codes: Codes, is_real: Flags) -> float:
    """Return the share of drawn rows to be accepted if a feature is to be distributed as in nearly all real rows.

    >>> is_real = np.repeat([True, False], 1000)
    >>> codes = np.concatenate([np.zeros(1000, np.uint8), np.arange(1000, dtype=np.uint8) % 4])
    >>> round(feature_acceptance(codes, is_real), 2)
    0.22
    """
    real, drawn = (np.bincount(codes[side], minlength=N_CODES) for side in (is_real, ~is_real))
    shares = real / max(real.sum(), 1), (drawn + 0.5) / max(drawn.sum() + 0.5 * N_CODES, 1)
    ratios = np.where(real > 0, np.log(np.maximum(shares[0], 1e-300) / shares[1]), -np.inf)
    order = np.argsort(-ratios)
    # With a cap c, the real rows above it are missed by sum(max(real - c * drawn, 0)).
    real_above, drawn_above = (np.cumsum(share[order]) for share in shares)
    caps = np.exp(ratios[order])
    missed = real_above - caps * drawn_above
    last = int(np.flatnonzero(missed <= MOST_FEATURE_CLIPPED)[-1])
    return float(1 / max(caps[last], 1.0))


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
