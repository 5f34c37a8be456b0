"""How close a synthetic frame is to a real one, and how much it gives away: pure functions of frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from lightgbm import LGBMClassifier
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEVEL_TYPES = (pl.String, pl.Categorical, pl.Enum, pl.Boolean)


# ---------------------------------------------------------------- columns as arrays


def has_levels(dtype: pl.DataType) -> bool:
    """Whether a column of this dtype holds levels (text, categories, booleans) rather than numbers."""
    return isinstance(dtype, LEVEL_TYPES)


def as_numbers(column: pl.Series) -> Floats:
    """The physical value of every cell as float64; null becomes NaN."""
    physical = column.to_physical() if column.dtype.is_temporal() else column
    return physical.cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64)


def level_codes(*columns: pl.Series) -> tuple[list[Ints], int]:
    """The columns' levels as codes of one shared, sorted list; -1 is null. Also the number of levels."""
    texts = [column.cast(pl.String) for column in columns]
    levels = pl.concat(texts).drop_nulls().unique().sort()
    lookup = pl.Enum(levels)
    codes = [text.cast(lookup).to_physical().cast(pl.Int64).fill_null(-1).to_numpy() for text in texts]
    return codes, len(levels)


def feature_matrices(frames: Sequence[pl.DataFrame], columns: Sequence[str]) -> tuple[list[Floats], list[int]]:
    """One float matrix per frame with shared level codes, and the positions of the categorical columns."""
    features: list[list[Floats]] = [[] for _ in frames]
    categorical = []
    for position, name in enumerate(columns):
        if has_levels(frames[0].schema[name]):
            categorical.append(position)
            codes, _ = level_codes(*(frame[name] for frame in frames))
            arrays = [np.where(code < 0, np.nan, code.astype(np.float64)) for code in codes]
        else:
            arrays = [as_numbers(frame[name]) for frame in frames]
        for parts, array in zip(features, arrays, strict=True):
            parts.append(array)
    return [np.column_stack(parts) for parts in features], categorical


# ---------------------------------------------------------------- detectors and classifiers


def train_detector(features: Floats, labels: Ints, categorical: list[int], seed: int) -> LGBMClassifier:
    """150 gradient-boosted trees, the detector and the classifier of every score here.

    One thread: the scores are the same, and on busy processors many threads wait for one another for long.
    """
    detector = LGBMClassifier(n_estimators=150, verbose=-1, random_state=seed, n_jobs=1)
    return detector.fit(features, labels, categorical_feature=categorical or "auto")


def scores_of(detector: LGBMClassifier, features: Floats) -> Floats:
    """The probability of every class, one column each."""
    return np.asarray(detector.predict_proba(features, validate_features=False), dtype=np.float64)


def c2st(real: pl.DataFrame, synthetic: pl.DataFrame, seed: int = 0) -> float:
    """Mean AUC of a detector, real against synthetic, in three folds: 0.5 cannot tell, 1.0 always can."""
    rows = min(real.height, synthetic.height)
    halves = [frame.sample(rows, seed=seed + i) for i, frame in enumerate((real, synthetic))]
    matrices, categorical = feature_matrices(halves, real.columns)
    features = np.concatenate(matrices)
    labels = np.repeat(np.array([1, 0], dtype=np.int64), rows)
    folds = StratifiedKFold(n_splits=3, shuffle=True, random_state=seed).split(features, labels)
    aucs = []
    for fitted, held_out in folds:
        detector = train_detector(features[fitted], labels[fitted], categorical, seed)
        aucs.append(roc_auc_score(labels[held_out], scores_of(detector, features[held_out])[:, 1]))
    return float(np.mean(aucs))


def tstr(train: pl.DataFrame, test: pl.DataFrame, target: str, seed: int = 0) -> float:
    """AUC on real `test` of a classifier trained on `train` (macro one-versus-rest over many classes).

    NaN where it cannot be said: a training frame with one class only, or no class of the test to rank.
    """
    (train, test) = (frame.drop_nulls(target) for frame in (train, test))
    columns = [name for name in train.columns if name != target]
    (fit_features, test_features), categorical = feature_matrices((train, test), columns)
    (fit_labels, test_labels), classes = level_codes(train[target], test[target])
    if len(np.unique(fit_labels)) < 2:
        return float("nan")
    classifier = train_detector(fit_features, fit_labels, categorical, seed)
    scores = np.zeros((test.height, classes))
    scores[:, classifier.classes_] = scores_of(classifier, test_features)
    present = range(1, 2) if classes == 2 else range(classes)
    aucs = [class_auc(test_labels == code, scores[:, code]) for code in present]
    return float(np.nanmean(aucs)) if np.isfinite(aucs).any() else float("nan")


def class_auc(positive: NDArray[np.bool_], scores: Floats) -> float:
    """The AUC of one class against the rest; NaN if one side is empty."""
    return float(roc_auc_score(positive, scores)) if 0 < positive.sum() < len(positive) else float("nan")


# ---------------------------------------------------------------- distances of distributions


def marginal_distances(real: pl.DataFrame, synthetic: pl.DataFrame) -> dict[str, float]:
    """The distance of every column's distribution: total variation, for numbers Kolmogorov-Smirnov."""
    return {
        name: level_distance(real[name], synthetic[name])
        if has_levels(real.schema[name])
        else number_distance(real[name], synthetic[name])
        for name in real.columns
    }


def mean_marginal_distance(real: pl.DataFrame, synthetic: pl.DataFrame) -> float:
    """The mean over all columns of `marginal_distances`."""
    return float(np.mean(list(marginal_distances(real, synthetic).values())))


def level_distance(real: pl.Series, synthetic: pl.Series) -> float:
    """Total variation distance of two columns of levels; null is one more level."""
    codes, levels = level_codes(real, synthetic)
    shares = [np.bincount(code + 1, minlength=levels + 1) / len(code) for code in codes]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def number_distance(real: pl.Series, synthetic: pl.Series) -> float:
    """Kolmogorov-Smirnov distance; null and NaN are states of their own, whose shares count as well."""
    numbers = [np.sort(as_numbers(column.drop_nulls())) for column in (real, synthetic)]
    support = np.unique(np.concatenate(numbers))
    support = support[~np.isnan(support)]
    below = [np.searchsorted(values, support, side="right") for values in numbers]
    shares = [
        np.concatenate([counts, [np.isnan(values).sum(), column.null_count()]]) / len(column)
        for counts, values, column in zip(below, numbers, (real, synthetic), strict=True)
    ]
    return float(np.abs(shares[0] - shares[1]).max())


def pairwise_distance(real: pl.DataFrame, synthetic: pl.DataFrame, bins: int = 10) -> float:
    """Mean total variation distance over all pairs of columns, each cut into at most `bins` + 2 states.

    Numbers fall into quantile bins of the real column, levels into its `bins` most frequent ones and a rest;
    null is a state of its own.
    """
    if real.width < 2:
        return 0.0
    states = [binned(real[name], synthetic[name], bins) for name in real.columns]
    starts = np.arange(real.width) * (bins + 2)
    joint = [pair_shares(np.column_stack([pair[side] for pair in states]), bins + 2) for side in (0, 1)]
    gaps = np.abs(joint[0] - joint[1])
    distances = np.add.reduceat(np.add.reduceat(gaps, starts, axis=0), starts, axis=1) / 2
    return float(distances[np.triu_indices(real.width, k=1)].mean())


def binned(real: pl.Series, synthetic: pl.Series, bins: int) -> tuple[Ints, Ints]:
    """Both columns as states 0 (null), 1 to `bins`, and `bins` + 1 (rare levels, or NaN)."""
    if has_levels(real.dtype):
        codes, levels = level_codes(real, synthetic)
        counts = np.bincount(codes[0][codes[0] >= 0], minlength=levels)
        state = np.full(levels + 1, bins + 1, dtype=np.int64)
        frequent = np.argsort(-counts, kind="stable")[:bins]
        state[frequent] = np.arange(1, len(frequent) + 1)
        state[-1] = 0
        return state[codes[0]], state[codes[1]]
    present = as_numbers(real.drop_nulls().drop_nans() if real.dtype.is_float() else real.drop_nulls())
    edges = np.unique(np.quantile(present, np.arange(1, bins) / bins)) if len(present) else np.empty(0)
    return number_states(real, edges, bins), number_states(synthetic, edges, bins)


def number_states(column: pl.Series, edges: Floats, bins: int) -> Ints:
    """The bin of every number, counted from 1; null is 0 and NaN is `bins` + 1."""
    numbers = as_numbers(column)
    states = np.searchsorted(edges, numbers, side="right") + 1
    return np.where(column.is_null().to_numpy(), 0, np.where(np.isnan(numbers), bins + 1, states))


def pair_shares(states: Ints, width: int) -> Floats:
    """The share of rows for every two states of every two columns, as one square matrix."""
    rows, columns = states.shape
    ones = np.zeros((rows, columns * width), dtype=np.float32)
    ones[np.arange(rows)[:, None], states + np.arange(columns) * width] = 1.0
    shares: Floats = (ones.T @ ones).astype(np.float64) / rows
    return shares


def unseen_pairs(real: pl.DataFrame, synthetic: pl.DataFrame, columns: Sequence[str]) -> float:
    """The share of synthetic rows whose combination of `columns` never occurs in the real frame."""
    seen = real.select(columns).unique()
    unseen = synthetic.select(columns).join(seen, on=list(columns), how="anti", nulls_equal=True)
    return unseen.height / synthetic.height


# ---------------------------------------------------------------- privacy


def nearer_to_training(
    synthetic: pl.DataFrame,
    train: pl.DataFrame,
    holdout: pl.DataFrame,
    seed: int = 0,
    rows: int = 2_000,
    references: int = 10_000,
) -> float:
    """The share of synthetic rows that lie nearer to a training row than to any held-out one: 0.5 is perfect.

    At most `rows` synthetic rows against as many training as held-out rows, at most `references` of each: the
    fewer there are, the rarer the row that was copied is among them. A tie counts half.
    """
    compared = min(references, train.height, holdout.height)
    synthetic = synthetic.sample(min(rows, synthetic.height), seed=seed)
    train, holdout = (frame.sample(compared, seed=seed + 1 + i) for i, frame in enumerate((train, holdout)))
    points, train_points, holdout_points = gower_points((synthetic, train, holdout))
    to_train = cdist(points, train_points, "cityblock").min(axis=1)
    to_holdout = cdist(points, holdout_points, "cityblock").min(axis=1)
    tie = np.isclose(to_train, to_holdout, rtol=0, atol=1e-9)
    return float(np.mean(np.where(tie, 0.5, to_train < to_holdout)))


def gower_points(frames: Sequence[pl.DataFrame]) -> list[Floats]:
    """Points whose L1 distance is Gower's: 0 to 1 per column, 1 between two levels, numbers by their rank.

    Ranks are shares of the values in all frames but the first; a null is half a unit or more from any number.
    """
    features: list[list[Floats]] = [[] for _ in frames]
    for name, dtype in frames[0].schema.items():
        columns = [frame[name] for frame in frames]
        blocks = one_hot(columns) if has_levels(dtype) else ranked(columns)
        for parts, block in zip(features, blocks, strict=True):
            parts.append(block)
    return [np.concatenate(parts, axis=1) for parts in features]


def one_hot(columns: Sequence[pl.Series]) -> list[Floats]:
    """Half a unit in the position of the level, so that two levels are one unit apart; null is a level."""
    codes, levels = level_codes(*columns)
    corners = np.eye(levels + 1) / 2
    return [corners[code] for code in codes]


def ranked(columns: Sequence[pl.Series]) -> list[Floats]:
    """Mid-ranks in [0, 1] among the reference columns (all but the first), and half a unit if missing."""
    numbers = [as_numbers(column) for column in columns]
    reference = np.sort(np.concatenate(numbers[1:]))
    reference = reference[~np.isnan(reference)]
    blocks = []
    for values in numbers:
        below = np.searchsorted(reference, values, side="left")
        up_to = np.searchsorted(reference, values, side="right")
        missing = np.isnan(values)
        rank = np.where(missing, 0.5, (below + up_to) / max(1, 2 * len(reference)))
        blocks.append(np.column_stack([rank, missing / 2]))
    return blocks


def membership_auc(log_density_train: ArrayLike, log_density_test: ArrayLike) -> float:
    """How well a row's own log-density tells training rows from held-out ones: 0.5 is perfect privacy."""
    train, test = (np.asarray(values, dtype=np.float64) for values in (log_density_train, log_density_test))
    ranks = rankdata(np.concatenate([train, test]))
    wins = ranks[: len(train)].sum() - len(train) * (len(train) + 1) / 2
    return float(wins / (len(train) * len(test)))
