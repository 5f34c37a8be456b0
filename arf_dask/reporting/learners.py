"""Trees and gradient-boosted trees for detectors and attacks; the only module of this package that uses scikit-learn.

scikit-learn is imported on first use: importing it eagerly would more than double the time of `import arf_dask`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from arf_dask.reporting.columns import as_numbers, has_levels, level_codes
from arf_dask.typing import Counts, Floats

MOST_LEVELS = 250  # maximum levels of a feature; rarer levels are merged
ITERATIONS = 100
# More threads gain little on tables of this size, and are slow on busy machines.
ONE_THREAD = {"limits": 1, "user_api": "openmp"}


class Features(NamedTuple):
    """Frames as feature matrices."""

    matrices: list[Floats]  # one per frame: numbers and level codes, NaN for missing
    categorical: list[bool]  # one per column


def make_features(frames: Sequence[pl.DataFrame], names: Sequence[str]) -> Features:
    """Convert the columns `names` of several frames to feature matrices with shared level codes."""
    columns = [_feature([frame[name] for frame in frames]) for name in names]
    matrices = [np.column_stack([column[place] for column in columns]) for place in range(len(frames))]
    return Features(matrices, [has_levels(frames[0].schema[name]) for name in names])


def train_classifier(features: Floats, labels: Counts, categorical: list[bool], seed: int) -> Any:
    """Fit a gradient-boosted classifier with default settings."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    learner = HistGradientBoostingClassifier(
        max_iter=ITERATIONS, categorical_features=categorical, early_stopping=False, random_state=seed
    )
    with threadpool_limits(**ONE_THREAD):
        return learner.fit(features, labels)


def train_regressor(features: Floats, values: Floats, categorical: list[bool], seed: int) -> Any:
    """Fit a gradient-boosted regressor with default settings."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    learner = HistGradientBoostingRegressor(
        max_iter=ITERATIONS, categorical_features=categorical, early_stopping=False, random_state=seed
    )
    with threadpool_limits(**ONE_THREAD):
        return learner.fit(features, values)


def grow_tree(features: Floats, values: Floats, depth: int, min_leaf: int, seed: int) -> Any:
    """Grow one regression tree, and return its nodes: children_left, children_right, feature, threshold."""
    from sklearn.tree import DecisionTreeRegressor

    grown = DecisionTreeRegressor(max_depth=depth, min_samples_leaf=min_leaf, random_state=seed)
    return grown.fit(features, values).tree_


def positive_scores(learner: Any, features: Floats) -> Floats:
    """Return the log-odds of the second of two classes."""
    with threadpool_limits(**ONE_THREAD):
        return np.asarray(learner.decision_function(features), dtype=np.float64)


def class_chances(learner: Any, features: Floats) -> Floats:
    """Return class probabilities (row, class)."""
    with threadpool_limits(**ONE_THREAD):
        return np.asarray(learner.predict_proba(features), dtype=np.float64)


def predicted(learner: Any, features: Floats) -> Floats:
    """Return the predicted value of every row."""
    with threadpool_limits(**ONE_THREAD):
        return np.asarray(learner.predict(features), dtype=np.float64)


def split_folds(labels: Counts, folds: int, seed: int) -> list[tuple[Counts, Counts]]:
    """Return (training rows, test rows) of stratified folds; every row is tested once."""
    from sklearn.model_selection import StratifiedKFold

    empty_features = np.zeros((len(labels), 1))
    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(empty_features, labels))


def _feature(columns: list[pl.Series]) -> list[Floats]:
    if not has_levels(columns[0].dtype):
        return [as_numbers(column) for column in columns]
    codes, levels = level_codes(columns)
    counts = np.bincount(np.concatenate(codes) + 1, minlength=len(levels) + 1)[1:]
    rank = np.empty(len(levels), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(levels))
    lookup = np.append(
        np.minimum(rank, MOST_LEVELS - 1).astype(np.float64), np.nan
    )  # code -1 (null) indexes the last entry
    return [lookup[code] for code in codes]
