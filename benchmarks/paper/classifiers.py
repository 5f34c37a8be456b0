"""The classifiers of the paper's appendix, trained on one table and tested on another."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.ensemble import AdaBoostClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

Floats = NDArray[np.float32]


class Task(NamedTuple):
    """The target, and the learners that predict it: A (AdaBoost), B (tree), C (logistic regression), D (MLP)."""

    target: str
    learners: str
    positive: str | None  # the positive class of a binary target; None for several classes


def learner(letter: str, several: bool, seed: int) -> Any:
    """Return a classifier as in the paper: depth 15 and 50 hidden units, or 30 and 100 for several classes."""
    match letter:
        case "A":
            return AdaBoostClassifier(n_estimators=50, random_state=seed)
        case "B":
            return DecisionTreeClassifier(max_depth=30 if several else 15, random_state=seed)
        case "C":
            return LogisticRegression(max_iter=300, random_state=seed)
        case "D":
            return MLPClassifier((100 if several else 50,), max_iter=50, random_state=seed)
    raise ValueError(f"learner {letter!r}: choose from A, B, C and D")


def mean_scores(train: pl.DataFrame, test: pl.DataFrame, task: Task, seed: int) -> dict[str, float]:
    """Return accuracy and F1 on `test`, averaged over the learners.

    F1 is the macro average for several classes. For two classes, it is given for the positive class and for the other
    one, which is the one that the paper's figures for adult and census agree with.
    """
    features = encoded([train, test], [name for name in train.columns if name != task.target])
    truth, known = (frame[task.target].cast(pl.String).to_numpy() for frame in (test, train))
    scores = [one_learner(letter, features, known, truth, task, seed) for letter in task.learners]
    return {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}


def one_learner(letter: str, features: list[Floats], known: Any, truth: Any, task: Task, seed: int) -> dict[str, float]:
    """Return the scores of one learner."""
    with (
        warnings.catch_warnings(),
        threadpool_limits(1),
    ):  # more threads only wait for each other on matrices this small
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of steps is limited on purpose
        guess = learner(letter, task.positive is None, seed).fit(features[0], known).predict(features[1])
    scores = {"accuracy": float(accuracy_score(truth, guess))}
    if task.positive is None:
        return scores | {"F1": float(f1_score(truth, guess, average="macro"))}
    levels, counts = np.unique(truth, return_counts=True)
    positive = task.positive if task.positive in levels else levels[counts.argmin()]  # files spell classes differently
    other = next(level for level in levels if level != positive)
    both = {"F1": positive, "F1 of the other class": other}
    return scores | {name: float(f1_score(truth, guess, pos_label=c, zero_division=0.0)) for name, c in both.items()}


def encoded(frames: list[pl.DataFrame], columns: list[str]) -> list[Floats]:
    """Return one matrix per frame: numbers standardised by the first frame, categories one-hot, missing values 0."""
    parts: list[list[Floats]] = [[] for _ in frames]
    for name in columns:
        several = [frame[name] for frame in frames]
        numeric = several[0].dtype.is_numeric()
        for part, matrix in zip(parts, _standardised(several) if numeric else _one_hot(several), strict=True):
            part.append(matrix)
    return [np.concatenate(part, axis=1) for part in parts]


def _standardised(columns: list[pl.Series]) -> list[Floats]:
    numbers = [column.cast(pl.Float64).to_numpy() for column in columns]
    mean, spread = np.nanmean(numbers[0]), np.nanstd(numbers[0])
    return [np.nan_to_num((n - mean) / (spread if spread > 0 else 1.0)).astype(np.float32)[:, None] for n in numbers]


def _one_hot(columns: list[pl.Series]) -> list[Floats]:
    texts = [column.cast(pl.String) for column in columns]
    levels = pl.concat(texts).drop_nulls().unique().sort()
    return [(text.to_numpy()[:, None] == levels.to_numpy()[None, :]).astype(np.float32) for text in texts]
