"""Whether refined answers are nearer to held-out rows than those of the forest: probabilities under conditions.

    python benchmarks/answers.py adult_train.parquet:adult_test.parquet
    python benchmarks/answers.py a.train.parquet:a.test.parquet orders.parquet --questions 60 --seeds 0,1

Files are given as to `detector.py`. A question is the probability of a level, or of the lower half of a number, under a
condition of the same kind on another column, where at least a hundred held-out rows fit the condition. The error is the
mean absolute difference to the share in the held-out rows; the noise is what these rows differ from the training rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from detector import read_pair
from fidelity import print_table
from metrics import has_levels

import arf_dask

LEAST_ROWS = 100  # held-out rows that fit a condition
COMMONEST = 6  # levels that are asked about


class Question(NamedTuple):
    """A probability under a condition, and its share in training and in held-out rows."""

    event: dict[str, Any]
    given: dict[str, Any]
    train: float
    test: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="TRAIN[:TEST]")
    parser.add_argument("--questions", type=int, default=60, help="per table and seed")
    parser.add_argument("--seeds", default="0", help="seeds, with commas between them")
    chosen = parser.parse_args()
    rows = []
    for files in chosen.files:
        train, test = read_pair(files)
        found = [measure(train, test, chosen.questions, int(seed)) for seed in chosen.seeds.split(",")]
        means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        rows.append([Path(files.split(":")[0]).stem, *(f"{value:.4f}" for value in means.values())])
        header = ["data", *means]
    print_table(header, rows)


def measure(train: pl.DataFrame, test: pl.DataFrame, n_questions: int, seed: int) -> dict[str, float]:
    """Fit one model and compare its answers with those of its forest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", arf_dask.KeyColumnWarning)
        model = arf_dask.fit(train, seed=seed, progress=False)
    forest = model.without_refinement()
    asked = questions(train.drop(model.schema.keys), test, n_questions, np.random.default_rng(seed))
    shares = np.array([one.test for one in asked])
    start = time.process_time()
    refined = np.array([model.probability(one.event, given=one.given) for one in asked])
    seconds = (time.process_time() - start) / len(asked)
    plain = np.array([forest.probability(one.event, given=one.given) for one in asked])
    return {
        "forest": float(np.abs(plain - shares).mean()),
        "refined": float(np.abs(refined - shares).mean()),
        "noise": float(np.abs(np.array([one.train for one in asked]) - shares).mean()),
        "CPU s per question": seconds,
    }


def questions(train: pl.DataFrame, test: pl.DataFrame, n: int, rng: np.random.Generator) -> list[Question]:
    """Choose questions whose conditions enough held-out rows fit."""
    found: list[Question] = []
    for _ in range(100 * n):
        event_name, given_name = rng.choice(train.columns, 2, replace=False)
        event, given = (choose_event(train[name], rng) for name in (event_name, given_name))
        fitting = [frame.filter(holds(given_name, given)) for frame in (train, test)]
        if min(side.height for side in fitting) >= LEAST_ROWS:
            shares = [float(side.select(holds(event_name, event).mean()).item() or 0.0) for side in fitting]
            found.append(Question({event_name: event}, {given_name: given}, *shares))
        if len(found) == n:
            break
    return found


def choose_event(column: pl.Series, rng: np.random.Generator) -> Any:
    """Return one of the commonest levels, or the interval up to the median."""
    if has_levels(column.dtype):
        counts = column.drop_nulls().alias("level").value_counts(sort=True).head(COMMONEST)
        return counts["level"][int(rng.integers(counts.height))]
    return (None, column.quantile(0.5, "nearest") if column.dtype.is_numeric() else column.sort()[len(column) // 2])


def holds(name: str, wanted: Any) -> pl.Expr:
    """Return whether an event holds; null is outside every event."""
    column = pl.col(name)
    found: pl.Expr = column <= wanted[1] if isinstance(wanted, tuple) else column == wanted
    return found.fill_null(False)


if __name__ == "__main__":
    main()
