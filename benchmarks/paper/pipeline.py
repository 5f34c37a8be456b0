"""The pipeline of Xu et al. (the paper's Table 2): classifiers trained on synthetic rows, tested on real rows.

Reads adult, census, covertype, credit and intrusion from the directory --data: NAME_train.parquet and
NAME_test.parquet, or NAME.parquet, which is split at random as in the paper. --data may also be one such file. Data
sets that are not there are skipped. A generated stand-in is always measured.

Run: `python benchmarks/paper/pipeline.py [--data DIR_OR_FILE] [--full | --tiny]`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from classifiers import Task, mean_scores
from experiment import Experiment, fixed, means_with_errors, start, with_error
from figures import model_dots, model_legend, panels
from published import published_scores
from settings import fit_model, paper_options
from simulations import stand_in

import arf_dask


class Size(NamedTuple):
    """The number of trials, and the maximum number of training and of test rows (None: all)."""

    trials: int
    train: int | None
    test: int | None


SIZES = {"tiny": Size(2, 300, 200), "default": Size(5, 10_000, 10_000), "full": Size(5, None, None)}
TREES, MIN_LEAF = 10, 5  # the paper's values for this experiment
TASKS = {
    "adult": Task("income", "ABCD", ">50K"),
    "census": Task("income", "ABD", "50000+."),
    "covertype": Task("Cover_Type", "AD", None),
    "credit": Task("Class", "ABD", "1"),
    "intrusion": Task("label", "AD", None),
}
# The paper's training and test rows, in thousands: the shares in which NAME.parquet is split.
SPLITS = {
    "adult": (23, 10),
    "census": (200, 100),
    "covertype": (481, 100),
    "credit": (264, 20),
    "intrusion": (394, 100),
}
STAND_IN = "pipeline_stand_in"
OTHER_F1 = "F1 of the other class"
SCORES = ("accuracy", "F1", OTHER_F1, "seconds", "processor seconds")
ALT = "Accuracy and F1 of classifiers trained on real and on synthetic rows, with standard errors"


class Dataset(NamedTuple):
    """Training rows, test rows, and the prediction task."""

    train: pl.DataFrame
    test: pl.DataFrame
    task: Task


def main() -> None:
    """Measure the stand-in, and the data sets that are there."""
    run = start(__doc__, SIZES)
    table = measure(run, {"stand-in (generated)": generated(run)})
    run.write(STAND_IN, table, readable(table), draw(table), ALT)
    found = dict(from_files(run.data, run.size, run.seed))
    if not found:
        run.say(
            f"{run.data}: no NAME_train.parquet and NAME_test.parquet, nor NAME.parquet, of {', '.join(TASKS)}. "
            "Measured the generated stand-in only."
        )
        return
    table = measure(run, found)
    run.write("pipeline", table, readable(table), draw(table), ALT)


def measure(run: Experiment[Size], datasets: dict[str, Dataset]) -> pl.DataFrame:
    """One row per (data set, model): mean scores and standard errors over the trials, then the paper's scores."""
    tables = []
    for name, data in datasets.items():
        rows = []
        for trial in range(run.size.trials):
            run.say(f"{name}, trial {trial + 1} of {run.size.trials}")
            rows += [one_trial(model, options, data, run.seed + trial) for model, options in models(data).items()]
        means = means_with_errors(pl.DataFrame(rows), ["model"], [s for s in SCORES if s in rows[0]])
        both = pl.concat([means, published_scores(name)], how="diagonal_relaxed")
        tables.append(both.select(pl.lit(name).alias("data set"), pl.all()))
    return pl.concat(tables, how="diagonal_relaxed")


def models(data: Dataset) -> dict[str, dict[str, Any] | None]:
    """Return the options of every model; None stands for training on the real rows."""
    paper = paper_options(data.train.width, trees=TREES, min_leaf=MIN_LEAF)
    return {"oracle (real rows)": None, "FORGE, paper's settings": paper, "FORGE, our defaults": {}}


def one_trial(model: str, options: dict[str, Any] | None, data: Dataset, seed: int) -> dict[str, object]:
    """Draw as many rows as there are training rows, train classifiers on them, and test these on real rows."""
    started, spent = time.perf_counter(), time.process_time()
    rows = data.train
    if options is not None:
        fitted = fit_model(data.train, seed, options)
        rows = arf_dask.forge(fitted, data.train.height, seed=seed, progress=False)
    timing = {"seconds": time.perf_counter() - started, "processor seconds": time.process_time() - spent}
    scores = mean_scores(rows, data.test, data.task, seed)
    return {"model": model, **scores, **(timing if options is not None else dict.fromkeys(timing))}


def generated(run: Experiment[Size]) -> Dataset:
    """Generate a table for machines without the paper's data sets."""
    rng = np.random.default_rng(run.seed)
    train, test = (stand_in(20_000 if rows is None else rows, rng) for rows in (run.size.train, run.size.test))
    return Dataset(train, test, Task("income", "ABCD", ">50K"))


def from_files(data: Path, size: Size, seed: int) -> Iterator[tuple[str, Dataset]]:
    """Yield the data sets that are there; the target is the last column unless it has its usual name."""
    for name, task in TASKS.items():
        if (parts := read_parts(data, name, seed)) is None:
            continue
        train, test = (at_most(part, n, seed) for part, n in zip(parts, (size.train, size.test), strict=True))
        target = task.target if task.target in train.columns else train.columns[-1]
        yield name, Dataset(text_target(train, target), text_target(test, target), task._replace(target=target))


def read_parts(data: Path, name: str, seed: int) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Read training and test rows from two files or from one; None if there are no such files.

    A path to one file names its data set by its own name: adult.parquet, or adult_train.parquet with its neighbour.
    """
    folder = data
    if data.is_file():
        if data.stem.removesuffix("_train").removesuffix("_test") != name:
            return None
        folder = data.parent
    train, test, whole = (folder / f"{name}{ending}.parquet" for ending in ("_train", "_test", ""))
    if train.exists() and test.exists() and data != whole:
        return pl.read_parquet(train), pl.read_parquet(test)
    return split(pl.read_parquet(whole), name, seed) if whole.exists() else None


def split(frame: pl.DataFrame, name: str, seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split rows at random in the paper's shares."""
    n_train, n_test = SPLITS[name]
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=seed)
    first = round(frame.height * n_train / (n_train + n_test))
    return shuffled[:first], shuffled[first:]


def at_most(frame: pl.DataFrame, rows: int | None, seed: int) -> pl.DataFrame:
    """Return a random sample of the rows, or all rows if there are not more."""
    return frame if rows is None or rows >= frame.height else frame.sample(rows, seed=seed, shuffle=True)


def text_target(frame: pl.DataFrame, target: str) -> pl.DataFrame:
    """Convert the target to text without surrounding blanks, so that it is a class whatever its type."""
    return frame.with_columns(pl.col(target).cast(pl.String).str.strip_chars())


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """Format the table of the documentation."""
    scores = [name for name in SCORES if name in table.columns]
    texts = [
        (fixed(pl.col(name), 1) if name.endswith("seconds") else with_error(name, f"{name} SE", 3)).alias(name)
        for name in scores
    ]
    return table.select("data set", "model", *texts)


def draw(table: pl.DataFrame) -> Any:
    """Draw accuracy and F1 of every model, one row of panels per data set."""
    names = table["data set"].unique(maintain_order=True).to_list()
    most = max(table["data set"].value_counts()["count"].to_list())
    figure, axes = panels(len(names), 2, width=4.6, height=1.0 + 0.3 * most, sharey="row")
    for row, name in zip(axes, names, strict=True):
        some = table.filter(pl.col("data set") == name)
        is_paper = some["model"].str.starts_with("paper: ")
        labels = some["model"].to_list()
        for panel, score in zip(row, ("accuracy", shown_f1(some)), strict=True):
            model_dots(panel, labels, some[score], some[f"{score} SE"], is_paper)
            panel.set(title=name, xlabel=f"{score}, mean of the classifiers")
    if table["model"].str.starts_with("paper: ").any():
        model_legend(figure)
    return figure


def shown_f1(some: pl.DataFrame) -> str:
    """Return the F1 that the paper's figures for a data set agree with; without any, that of the positive class."""
    theirs = some.filter(pl.col("model").str.starts_with("paper: "))
    return OTHER_F1 if OTHER_F1 in theirs.columns and theirs[OTHER_F1].is_not_null().any() else "F1"


if __name__ == "__main__":
    main()
