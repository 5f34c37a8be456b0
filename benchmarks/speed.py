"""How long fitting and drawing take on adult, against the least that any implementation would need.

    python benchmarks/speed.py
    python benchmarks/speed.py --trees 50 --min-samples-leaf 2

Fitting is compared with scikit-learn alone training as many forests of the same size, drawing with NumPy's
uniform numbers put into a frame of the same schema. Both sides of a ratio take turns; medians are compared.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import polars as pl
from datasets import DEFAULT_DATA, load
from fidelity import print_table, size
from metrics import as_numbers, has_levels
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

import arf_dask

Matrix = NDArray[np.float32]
Labels = NDArray[np.int64]

FIT_BAR, SAMPLE_BAR = 1.8, 8.0


def cores() -> int:
    """The number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def interleaved(actions: Sequence[Callable[[], object]], repetitions: int) -> list[float]:
    """The median seconds of every action; they take turns, so that a busy moment hits all alike."""
    times = [[seconds(action) for action in actions] for _ in range(repetitions)]
    return [median(column) for column in zip(*times, strict=True)]


# ---------------------------------------------------------------- fitting


def code_matrix(frame: pl.DataFrame, groups: Sequence[Sequence[str]], bins: int = 1_000) -> Matrix:
    """One column of whole numbers per group of columns: levels, combinations of levels, or quantile bins."""
    codes = [group_codes(frame.select(group), bins) for group in groups]
    return np.asfortranarray(np.column_stack(codes), dtype=np.float32)


def group_codes(columns: pl.DataFrame, bins: int) -> NDArray[np.int64]:
    """The codes of one group of columns."""
    first = columns.to_series(0)
    if columns.width == 1 and not has_levels(first.dtype):
        values = np.nan_to_num(as_numbers(first), nan=-np.inf)
        edges = np.unique(np.quantile(values[np.isfinite(values)], np.arange(1, bins) / bins))
        return np.searchsorted(edges, values, side="right")
    text = columns.select(pl.concat_str(pl.all().cast(pl.String).fill_null("\0"), separator="\0")).to_series()
    return text.rank("dense").cast(pl.Int64).to_numpy()


def variable_groups(model: Any, columns: Sequence[str]) -> list[list[str]]:
    """The columns each dimension of the forest stands for: bundles of them count as one."""
    variables = getattr(model.schema, "variables", None)
    if not variables:
        return [[name] for name in columns]
    return [[columns[place] for place in variable.columns] for variable in variables]


def shuffled(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The same columns, each in an order of its own: the synthetic rows of the first round."""
    return pl.DataFrame([column.shuffle(seed=seed + i) for i, column in enumerate(frame.get_columns())])


def real_and_synthetic(
    real: pl.DataFrame, synthetic: pl.DataFrame, groups: Sequence[Sequence[str]]
) -> tuple[Matrix, Labels]:
    """What a discriminator is trained on: the codes of both frames, and which is which."""
    matrix = code_matrix(pl.concat([real, synthetic]), groups)
    return matrix, np.repeat(np.array([1, 0], dtype=np.int64), [real.height, synthetic.height])


def train_forests(rounds: Sequence[tuple[Matrix, Labels]], parameters: dict[str, Any]) -> None:
    """Train one forest per round with scikit-learn and nothing else."""
    for number, (matrix, labels) in enumerate(rounds):
        RandomForestClassifier(random_state=number, **parameters).fit(matrix, labels)


def compare_fit(train: pl.DataFrame, asked: argparse.Namespace) -> list[str]:
    """The row of the table for fitting."""
    options = {"trees": asked.trees, "min_leaf": asked.min_leaf, "seed": 0, "progress": False}
    model = arf_dask.fit(train, **options)
    groups = variable_groups(model, train.columns)
    first = real_and_synthetic(train, shuffled(train, 1), groups)
    later = first
    if asked.later_rounds == "sample":
        later = real_and_synthetic(train, model.sample(train.height, seed=1), groups)
    forests = size(model.rounds)
    parameters = {
        "n_estimators": asked.trees,
        "max_features": asked.max_features or max(2, int(len(groups) ** 0.5)),
        "min_samples_split": asked.min_samples_split,
        "min_samples_leaf": asked.min_samples_leaf or 1,
        "bootstrap": True,
        "n_jobs": cores(),
    }
    print(f"{forests} forests on {first[0].shape[0]} x {first[0].shape[1]} codes: {parameters}")
    rounds = [first] + [later] * (forests - 1)
    actions = [lambda: arf_dask.fit(train, **options), lambda: train_forests(rounds, parameters)]
    ours, theirs = interleaved(actions, asked.repetitions)
    return ratio_row(f"fit {train.height} rows, {asked.trees} trees", ours, "scikit-learn", theirs, FIT_BAR)


# ---------------------------------------------------------------- drawing


def uniform_frame(frame: pl.DataFrame, n: int, seed: int) -> pl.DataFrame:
    """`n` rows of the same schema: uniform numbers of the range seen, uniform picks of the levels."""
    rng = np.random.default_rng(seed)
    return pl.DataFrame([uniform_column(column, n, rng) for column in frame.get_columns()])


def uniform_column(column: pl.Series, n: int, rng: np.random.Generator) -> pl.Series:
    """One column of `uniform_frame`."""
    if has_levels(column.dtype):
        levels = column.drop_nulls().unique()
        return levels.gather(rng.integers(0, len(levels), n)).alias(column.name)
    values = as_numbers(column.drop_nulls())
    drawn = pl.Series(column.name, rng.uniform(values.min(), values.max(), n))
    return drawn.cast(pl.Int64).cast(column.dtype) if column.dtype.is_temporal() else drawn.cast(column.dtype)


def compare_sample(train: pl.DataFrame, asked: argparse.Namespace) -> list[str]:
    """The row of the table for drawing; the levels and ranges of the baseline are found beforehand."""
    model = arf_dask.fit(train, trees=asked.trees, min_leaf=asked.min_leaf, seed=0, progress=False)
    seen = pl.concat([train.unique(subset=[name]) for name in train.columns if has_levels(train.schema[name])])
    actions = [lambda: model.sample(asked.rows, seed=1), lambda: uniform_frame(seen, asked.rows, 1)]
    ours, theirs = interleaved(actions, asked.repetitions)
    return ratio_row(f"draw {asked.rows} rows", ours, "NumPy", theirs, SAMPLE_BAR)


# ---------------------------------------------------------------- command line


def ratio_row(what: str, ours: float, against: str, theirs: float, bar: float) -> list[str]:
    """One row of the table."""
    ratio = ours / theirs
    reached = "pass" if ratio <= bar else "FAIL"
    return [what, f"{ours:.3f}", against, f"{theirs:.3f}", f"{ratio:.2f}", f"<= {bar:g} {reached}"]


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="directory of the Parquet files")
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--min-leaf", type=int, default=10)
    parser.add_argument("--max-features", type=int, help="of scikit-learn's forests; default: as the package")
    parser.add_argument("--min-samples-split", type=int, default=2, help="of scikit-learn's forests")
    parser.add_argument("--min-samples-leaf", type=int, help="of scikit-learn's forests; default: as the package")
    parser.add_argument(
        "--later-rounds",
        choices=["shuffle", "sample"],
        default="sample",
        help="synthetic rows of scikit-learn's later forests: shuffled columns, or drawn by the model",
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to draw")
    parser.add_argument("--repetitions", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """Measure both ratios and print them."""
    asked = arguments()
    train = load(asked.data, ["adult"])["adult"].train
    rows = [compare_fit(train, asked), compare_sample(train, asked)]
    print_table(["", "arf_dask, s", "against", "s", "ratio", "bar"], rows)


if __name__ == "__main__":
    main()
