"""The utility of synthetic rows: density, coverage, and the prediction of a target column."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.columns import as_numbers, has_levels, level_codes, sample_frame
from arf_dask.reporting.curves import auc_of
from arf_dask.reporting.learners import (
    class_chances,
    make_features,
    predicted,
    train_classifier,
    train_regressor,
)
from arf_dask.reporting.neighbours import Points, nearest
from arf_dask.typing import Counts, Floats

NEIGHBOURS = 5
MOST_CLASSES = 50


class Manifold(NamedTuple):
    """Density and coverage (Naeem et al., 2020); about 1 and 0.97 for rows of the same distribution."""

    density: float
    coverage: float


class Usefulness(NamedTuple):
    """The scores on held-out rows of models trained on real and on synthetic rows."""

    target: str
    score: str  # "auc" or "r2"
    synthetic: float
    real: float

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain JSON values."""
        return self._asdict()


def density_coverage(real: Points, synthetic: Points) -> Manifold:
    """Compute density (real neighbourhoods per synthetic row) and coverage (real rows near a synthetic one)."""
    if len(real) <= NEIGHBOURS:
        return Manifold(float("nan"), float("nan"))
    radius = nearest(real, real, NEIGHBOURS, skip_self=True)[0][:, -1]
    to_real = _squared(synthetic, real)
    inside = to_real <= radius.astype(np.float32) ** 2 + 1e-6
    return Manifold(float(inside.sum() / (NEIGHBOURS * len(synthetic))), float(inside.any(axis=0).mean()))


def train_on_synthetic(
    sides: tuple[pl.DataFrame, pl.DataFrame], holdout: pl.DataFrame, target: str, most: int, rng: np.random.Generator
) -> Usefulness | None:
    """Train on equally many real and synthetic rows, and test both models on held-out rows.

    Numeric targets with more than 50 distinct values use regression (R squared), all others classification (mean
    one-vs-rest AUC). Returns None if the held-out rows do not allow a score.
    """
    real, synthetic, test = (frame.filter(pl.col(target).is_not_null()) for frame in (*sides, holdout))
    rows = min(real.height, synthetic.height, most)
    if rows < 2 or test.height < 2:
        return None
    real, synthetic = sample_frame(real, rows, rng), sample_frame(synthetic, rows, rng)
    test = sample_frame(test, most, rng)
    names = [name for name in real.columns if name != target]
    seed = int(rng.integers(2**31))
    number = not has_levels(real.schema[target]) and real[target].n_unique() > MOST_CLASSES
    score = _r_squared if number else _class_auc
    found = [score(frame, test, target, names, seed) for frame in (synthetic, real)]
    return Usefulness(target, "r2" if number else "auc", found[0], found[1])


def _r_squared(train: pl.DataFrame, test: pl.DataFrame, target: str, names: list[str], seed: int) -> float:
    features = make_features([train, test], names)
    learner = train_regressor(features.matrices[0], as_numbers(train[target]), features.categorical, seed)
    truth = as_numbers(test[target])
    error = truth - predicted(learner, features.matrices[1])
    spread = truth - truth.mean()
    return float(1 - (error @ error) / (spread @ spread)) if spread @ spread > 0 else float("nan")


def _class_auc(train: pl.DataFrame, test: pl.DataFrame, target: str, names: list[str], seed: int) -> float:
    features = make_features([train, test], names)
    (labels, truth), levels = level_codes([train[target], test[target]])
    if len(np.unique(labels)) < 2:
        return float("nan")
    learner = train_classifier(features.matrices[0], labels, features.categorical, seed)
    scores = np.zeros((test.height, len(levels)))
    scores[:, learner.classes_] = class_chances(learner, features.matrices[1])
    return _mean_auc(truth, scores)


def _mean_auc(truth: Counts, scores: Floats) -> float:
    classes = range(1, 2) if scores.shape[1] == 2 else range(scores.shape[1])
    known = [code for code in classes if 0 < (truth == code).sum() < len(truth)]
    aucs = [auc_of(scores[truth == code, code], scores[truth != code, code]) for code in known]
    return float(np.mean(aucs)) if aucs else float("nan")


def _squared(points: Points, targets: Points) -> Points:
    norms = np.einsum("ij,ij->i", targets, targets)
    own = np.einsum("ij,ij->i", points, points)
    squared: Points = own[:, None] + norms - 2 * (points @ targets.T)
    return squared
