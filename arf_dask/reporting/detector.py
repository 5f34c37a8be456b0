"""Classifier two-sample test (C2ST): how well a classifier separates synthetic from real rows, and by which columns."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.columns import sample_numbers
from arf_dask.reporting.curves import auc_of
from arf_dask.reporting.giveaways import GiveawayRule, find_giveaway_rules
from arf_dask.reporting.learners import make_features, positive_scores, split_folds, train_classifier
from arf_dask.typing import Counts, Flags, Floats

FOLDS = 3
SUREST = 10  # synthetic rows reported
MOST_SHUFFLED = 60  # maximum columns whose importance is measured
SHUFFLED_ROWS = 4_000


class Detection(NamedTuple):
    """The result of the classifier two-sample test."""

    auc: float  # mean over folds; 0.5 means indistinguishable
    giveaways: list[tuple[str, float]]  # columns by the AUC lost when shuffled, largest first
    surest: list[tuple[int, float]]  # most confidently detected synthetic rows: row index and probability
    rows: int  # rows used per class
    rules: list[GiveawayRule]  # where the detector is surest


class _Fold(NamedTuple):
    learner: Any
    tested: Counts
    scores: Floats


def detect(
    real: pl.DataFrame, synthetic: pl.DataFrame, most_rows: int, rng: np.random.Generator, *, explain: bool = True
) -> Detection:
    """Cross-validate a classifier in three folds, with the same number of real and synthetic rows."""
    rows = min(real.height, synthetic.height, most_rows)
    if rows < 2 * FOLDS:
        return Detection(float("nan"), [], [], rows, [])
    numbers = [sample_numbers(frame.height, rows, rng) for frame in (real, synthetic)]
    halves = [frame[picked] for frame, picked in zip((real, synthetic), numbers, strict=True)]
    features = make_features(halves, real.columns)
    matrix = np.concatenate(features.matrices)
    labels = np.repeat(np.array([0, 1], dtype=np.int64), rows)
    seed = int(rng.integers(2**31))
    folds = []
    for learned, tested in split_folds(labels, FOLDS, seed):
        learner = train_classifier(matrix[learned], labels[learned], features.categorical, seed)
        folds.append(_Fold(learner, tested, positive_scores(learner, matrix[tested])))
    auc = float(np.mean([_auc(fold.scores, labels[fold.tested] == 1) for fold in folds]))
    if not explain:
        return Detection(auc, [], [], rows, [])
    scores = np.empty(2 * rows)
    for fold in folds:
        scores[fold.tested] = fold.scores
    telling = _giveaways(folds[0], matrix, labels, real.columns, rng)
    rules = find_giveaway_rules(halves[0], halves[1], scores, rng)
    return Detection(auc, telling, _surest(scores[rows:], numbers[1]), rows, rules)


def _auc(scores: Floats, synthetic: Flags) -> float:
    return auc_of(scores[synthetic], scores[~synthetic])


def _giveaways(
    fold: _Fold, matrix: Floats, labels: Counts, names: list[str], rng: np.random.Generator
) -> list[tuple[str, float]]:
    """Measure permutation importance: the AUC lost on test rows when one column is shuffled."""
    tested = fold.tested[sample_numbers(len(fold.tested), SHUFFLED_ROWS, rng)]
    rows, synthetic = matrix[tested], labels[tested] == 1
    whole = _auc(positive_scores(fold.learner, rows), synthetic)
    lost = []
    for place, name in enumerate(names[:MOST_SHUFFLED]):
        shuffled = rows.copy()
        shuffled[:, place] = rng.permutation(shuffled[:, place])
        lost.append((name, whole - _auc(positive_scores(fold.learner, shuffled), synthetic)))
    return sorted(lost, key=lambda pair: -pair[1])


def _surest(scores: Floats, numbers: Counts) -> list[tuple[int, float]]:
    top = np.argsort(-scores, kind="stable")[:SUREST]
    chance = 1 / (1 + np.exp(-scores[top]))
    return [(int(row), float(p)) for row, p in zip(numbers[top], chance, strict=True)]
