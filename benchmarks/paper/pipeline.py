"""The pipeline of Xu et al. (the paper's Table 2): classifiers trained on synthetic rows, tested on real ones.

Reads NAME_train.parquet and NAME_test.parquet from --data for adult, census, covertype, credit and intrusion, those
that are there. A generated stand-in, which says so, is measured in any case.

Run: `python benchmarks/paper/pipeline.py [--data DIR] [--full | --tiny]`.
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
from figures import MARKERS, PALETTE, panels
from published import published_scores
from settings import fit_model, our_options, paper_options
from simulations import stand_in

import arf_dask


class Size(NamedTuple):
    """Trials, and rows at most of the training and the test set (None: all)."""

    trials: int
    train: int | None
    test: int | None


SIZES = {"tiny": Size(2, 300, 200), "default": Size(5, 10_000, 10_000), "full": Size(5, None, None)}
TREES, MIN_LEAF = 10, 5  # the paper's, for this experiment
TASKS = {
    "adult": Task("income", "ABCD", ">50K"),
    "census": Task("income", "ABD", "50000+."),
    "covertype": Task("Cover_Type", "AD", None),
    "credit": Task("Class", "ABD", "1"),
    "intrusion": Task("label", "AD", None),
}
STAND_IN = "pipeline_stand_in"
SCORES = ("accuracy", "F1", "F1 of the other class", "seconds", "processor seconds")


class Dataset(NamedTuple):
    """A table to learn from, one to test on, and what is predicted."""

    train: pl.DataFrame
    test: pl.DataFrame
    task: Task


def main() -> None:
    """Measure the stand-in, and the data sets that are there."""
    run = start(__doc__, SIZES)
    table = measure(run, {"stand-in (generated)": generated(run)})
    run.write(STAND_IN, table, readable(table))
    found = dict(from_files(run.data, run.size, run.seed))
    if not found:
        run.say(f"no NAME_train.parquet and NAME_test.parquet of {', '.join(TASKS)} in {run.data}: the stand-in only")
        return
    table = measure(run, found)
    run.write("pipeline", table, readable(table), draw(table))


def measure(run: Experiment[Size], datasets: dict[str, Dataset]) -> pl.DataFrame:
    """One row per data set and model: mean scores and their standard errors over the trials, the paper's below."""
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
    """The options of every model; None trains on the real rows."""
    paper = paper_options(data.train.width, trees=TREES, min_leaf=MIN_LEAF)
    return {"oracle (real rows)": None, "FORGE, the paper's settings": paper, "FORGE, our defaults": our_options()}


def one_trial(model: str, options: dict[str, Any] | None, data: Dataset, seed: int) -> dict[str, object]:
    """Draw as many rows as were fitted, train on them, test on real ones."""
    started, spent = time.perf_counter(), time.process_time()
    rows = data.train
    if options is not None:
        fitted = fit_model(data.train, seed, options)
        rows = arf_dask.forge(fitted, data.train.height, seed=seed, progress=False)
    timing = {"seconds": time.perf_counter() - started, "processor seconds": time.process_time() - spent}
    scores = mean_scores(rows, data.test, data.task, seed)
    return {"model": model, **scores, **(timing if options is not None else dict.fromkeys(timing))}


def generated(run: Experiment[Size]) -> Dataset:
    """A table made up for machines without the real ones."""
    rng = np.random.default_rng(run.seed)
    train, test = (stand_in(rows or 20_000, rng) for rows in (run.size.train, run.size.test))
    return Dataset(train, test, Task("income", "ABCD", ">50K"))


def from_files(data: Path, size: Size, seed: int) -> Iterator[tuple[str, Dataset]]:
    """The data sets of the paper that are there; the last column is the target where it has another name."""
    for name, task in TASKS.items():
        files = [data / f"{name}_{part}.parquet" for part in ("train", "test")]
        if not all(file.exists() for file in files):
            continue
        train, test = (at_most(pl.read_parquet(f), n, seed) for f, n in zip(files, size[1:], strict=True))
        target = task.target if task.target in train.columns else train.columns[-1]
        yield name, Dataset(text_target(train, target), text_target(test, target), task._replace(target=target))


def at_most(frame: pl.DataFrame, rows: int | None, seed: int) -> pl.DataFrame:
    """So many rows at random, or all."""
    return frame if rows is None or rows >= frame.height else frame.sample(rows, seed=seed, shuffle=True)


def text_target(frame: pl.DataFrame, target: str) -> pl.DataFrame:
    """The target as text without blanks around it: a class, whatever its type."""
    return frame.with_columns(pl.col(target).cast(pl.String).str.strip_chars())


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """The table of the documentation."""
    shown = ["data set", "model"]
    scores = [name for name in SCORES if name in table.columns]
    texts = [with_error(name, f"{name} SE", 3) for name in scores if not name.endswith("seconds")]
    times = [fixed(pl.col(name), 1) for name in scores if name.endswith("seconds")]
    names = [*(s for s in scores if not s.endswith("seconds")), *(s for s in scores if s.endswith("seconds"))]
    return table.select(*shown, *(text.alias(name) for text, name in zip([*texts, *times], names, strict=True)))


def draw(table: pl.DataFrame) -> Any:
    """A panel per data set: accuracy of every model, ours and the paper's, with standard errors."""
    names = table["data set"].unique(maintain_order=True).to_list()
    figure, axes = panels(len(names), 1, width=7.5, height=3.6)
    for panel, name in zip(axes[:, 0], names, strict=True):
        some = table.filter(pl.col("data set") == name).reverse()
        for number, published in enumerate((False, True)):
            mine = some.with_row_index("place").filter(pl.col("model").str.starts_with("paper: ") == published)
            look = {"color": PALETTE[number], "marker": MARKERS[number], "linestyle": "none", "capsize": 3}
            panel.errorbar(mine["accuracy"], mine["place"], xerr=mine["accuracy SE"], **look)
        panel.set_yticks(range(some.height), some["model"].to_list())
        panel.set(title=name, xlabel="test accuracy, mean of the classifiers ± standard error")
    return figure


if __name__ == "__main__":
    main()
