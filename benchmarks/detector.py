"""What detectors and attackers make of synthetic rows: one table for any Parquet files.

    python benchmarks/detector.py adult_train.parquet:adult_test.parquet --target income
    python benchmarks/detector.py a.train.parquet:a.test.parquet b.train.parquet:b.test.parquet --seeds 0,1,2
    python benchmarks/detector.py orders.parquet --option dependence=none --option min_leaf=10

Every argument is a file of training rows and a file of held-out rows, with a colon between them; of a single file a
fifth is held out. The scores are means over seeds:

- XGBoost: AUC of XGBoost with default options, training rows against as many synthetic ones, three folds.
- LightGBM: AUC of the detector of `metrics.py`, held-out rows against as many synthetic ones, three folds.
- shape and trend: one minus the scores that SDMetrics calls Column Shapes and Column Pair Trends, in per cent.
- membership: AUC of telling training rows from held-out rows by the model's own log-density, and by the distance to the
  nearest synthetic row. 0.5 is perfect, as it is for the detectors.
"""

from __future__ import annotations

import argparse
import ast
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from metrics import (
    as_numbers,
    c2st,
    feature_matrices,
    gower_points,
    has_levels,
    level_codes,
    level_distance,
    membership_auc,
    number_distance,
    tstr,
)
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

import arf_dask

Floats = NDArray[np.float64]
Scores = dict[str, float]

ATTACKED = 10_000  # rows of each side that membership is asked of, at most
NEIGHBOURS = 2_000  # of each side, where every synthetic row is a candidate
TREND_BINS = 20  # of a number beside a column of levels, as in SDMetrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="TRAIN[:TEST]")
    parser.add_argument("--target", help="the column that a classifier is to predict (TSTR)")
    parser.add_argument("--seeds", default="0", help="seeds, with commas between them")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of fit")
    chosen = parser.parse_args()
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    options = dict(read_option(text) for text in chosen.option)
    for files in chosen.files:
        train, test = read_pair(files)
        found = [measure(train, test, chosen.target, seed, options) for seed in seeds]
        means = {name: float(np.mean([scores[name] for scores in found])) for name in found[0]}
        print(table_row(Path(files.split(":")[0]).stem, means), flush=True)


def read_option(text: str) -> tuple[str, Any]:
    """One option of `fit`: a Python literal, or a word as it stands."""
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def read_pair(files: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Training and held-out rows."""
    train, _, test = files.partition(":")
    if test:
        return pl.read_parquet(train), pl.read_parquet(test)
    frame = pl.read_parquet(train).sample(fraction=1.0, shuffle=True, seed=0)
    held_out = frame.height // 5
    return frame[held_out:], frame[:held_out]


def measure(train: pl.DataFrame, test: pl.DataFrame, target: str | None, seed: int, options: dict[str, Any]) -> Scores:
    """All scores of one model."""
    start, wall = time.process_time(), time.perf_counter()
    model = arf_dask.fit(train, seed=seed, **({"progress": False} | options))
    fitted, fitted_wall = time.process_time(), time.perf_counter()
    synthetic = model.sample(train.height, seed=seed + 1)
    drawn = time.process_time()
    scores = {
        "XGBoost": xgboost_auc(train, synthetic, seed),
        "LightGBM": c2st(test, synthetic, seed),
        "shape %": 100 * shape_error(train, synthetic),
        "trend %": 100 * trend_error(train, synthetic),
        "membership (density)": density_membership(model, train, test),
        "membership (neighbour)": neighbour_membership(synthetic, train, test, seed),
        "NLL": negative_log_density(model, test),
        "fit s": fitted_wall - wall,
        "fit CPU s": fitted - start,
        "sample CPU s": drawn - fitted,
    }
    if target is not None and target in train.columns and has_levels(train.schema[target]):
        scores["TSTR"] = tstr(synthetic, test, target, seed)
    return scores


def table_row(name: str, scores: Scores) -> str:
    """One line of Markdown, with a heading."""
    heading = "| data | " + " | ".join(scores) + " |\n" + "|---" * (len(scores) + 1) + "|\n"
    return heading + f"| {name} | " + " | ".join(f"{score:.3f}" for score in scores.values()) + " |"


def xgboost_auc(train: pl.DataFrame, synthetic: pl.DataFrame, seed: int = 0) -> float:
    """Mean AUC of XGBoost, training rows against synthetic ones, in three folds; levels are codes."""
    from xgboost import XGBClassifier

    rows = min(train.height, synthetic.height)
    halves = [frame.sample(rows, seed=seed + i) for i, frame in enumerate((train, synthetic))]
    matrices, _ = feature_matrices(halves, train.columns)
    features, labels = np.concatenate(matrices), np.repeat([1, 0], rows)
    aucs = []
    for fitted, held_out in StratifiedKFold(3, shuffle=True, random_state=seed).split(features, labels):
        detector = XGBClassifier(random_state=seed, n_jobs=2).fit(features[fitted], labels[fitted])
        aucs.append(roc_auc_score(labels[held_out], detector.predict_proba(features[held_out])[:, 1]))
    return float(np.mean(aucs))


def shape_error(real: pl.DataFrame, synthetic: pl.DataFrame) -> float:
    """Mean distance of columns: total variation of levels, Kolmogorov-Smirnov of numbers; missing values left out."""
    distances = []
    for name in real.columns:
        sides = real[name].drop_nulls(), synthetic[name].drop_nulls()
        if min(len(side) for side in sides):
            distances.append((level_distance if has_levels(real.schema[name]) else number_distance)(*sides))
    return float(np.mean(distances))


def trend_error(real: pl.DataFrame, synthetic: pl.DataFrame) -> float:
    """Mean distance of pairs of columns.

    Of two numbers half the difference of their correlations; else the total variation distance of their joint table, in
    which a number is cut into bins of equal width.
    """
    levels = {name: has_levels(real.schema[name]) for name in real.columns}
    codes = {name: trend_codes(real[name], synthetic[name]) for name in real.columns}
    numbers = {name: tuple(map(as_numbers, (real[name], synthetic[name]))) for name, held in levels.items() if not held}
    errors = []
    for place, one in enumerate(real.columns):
        for other in real.columns[:place]:
            if levels[one] or levels[other]:
                errors.append(joint_distance(codes[one], codes[other]))
            else:
                both = [correlation(numbers[one][side], numbers[other][side]) for side in (0, 1)]
                errors.append(abs(both[0] - both[1]) / 2)
    return float(np.nanmean(errors))


def trend_codes(real: pl.Series, synthetic: pl.Series) -> list[NDArray[np.int64]]:
    """Both columns as codes of levels, or of bins of equal width over the real range."""
    if has_levels(real.dtype):
        return [code + 1 for code in level_codes(real, synthetic)[0]]
    numbers = [as_numbers(column) for column in (real, synthetic)]
    edges = np.linspace(np.nanmin(numbers[0]), np.nanmax(numbers[0]), TREND_BINS + 1)[1:-1]
    return [np.where(np.isnan(side), 0, np.searchsorted(edges, side) + 1) for side in numbers]


def joint_distance(one: list[NDArray[np.int64]], other: list[NDArray[np.int64]]) -> float:
    """Total variation distance of the joint tables of two columns, real against synthetic."""
    width = max(int(side.max()) for side in other) + 1
    keys = [a * width + b for a, b in zip(one, other, strict=True)]
    size = max(int(key.max()) for key in keys) + 1
    shares = [np.bincount(key, minlength=size) / len(key) for key in keys]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def correlation(one: Floats, other: Floats) -> float:
    """Pearson's correlation of the rows that have both; NaN where one does not vary."""
    both = ~(np.isnan(one) | np.isnan(other))
    one, other = one[both], other[both]
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return float("nan")
    return float(np.corrcoef(one, other)[0, 1])


def density_membership(model: arf_dask.Model, train: pl.DataFrame, test: pl.DataFrame) -> float:
    """How well a row's own log-density tells training rows from held-out ones."""
    rows = min(ATTACKED, train.height, test.height)
    return membership_auc(*(model.log_density(frame.head(rows)).to_numpy() for frame in (train, test)))


def neighbour_membership(synthetic: pl.DataFrame, train: pl.DataFrame, test: pl.DataFrame, seed: int = 0) -> float:
    """How well the distance to the nearest synthetic row (Gower's) tells training rows from held-out ones."""
    rows = min(NEIGHBOURS, train.height, test.height)
    asked = [frame.sample(rows, seed=seed) for frame in (train, test)]
    points, *candidates = gower_points((synthetic, *asked))
    near = [-cdist(some, points, "cityblock").min(axis=1) for some in candidates]
    return membership_auc(*near)


def negative_log_density(model: arf_dask.Model, test: pl.DataFrame) -> float:
    """Nats per held-out row, of those that are possible at all."""
    found = model.log_density(test).to_numpy()
    return float(-found[np.isfinite(found)].mean())


if __name__ == "__main__":
    main()
