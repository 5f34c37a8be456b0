"""What each departure from the paper gains: our settings with one of them taken back at a time, on every experiment.

The departures are found by comparing the paper's options with the defaults of `fit` (settings.py). All rows of one
experiment have the same number of trees, the paper's. Spikes, number lines cut into pieces, exact moments and gates
cannot be switched off; gates, splits on missingness, act where values are missing, which none of these tables has.

Run: `python benchmarks/paper/ablation.py [--data DIR] [--full | --tiny]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from classifiers import Task, mean_scores
from digits import TASK as DIGIT_TASK
from digits import digits
from experiment import Experiment, fixed, likelihood, means_with_errors, start
from pipeline import TASKS, at_most, text_target
from settings import Transform, departures, fit_model, our_options, paper_options
from simulations import stand_in, toeplitz, two_moons
from twenty import load

import arf_dask


class Size(NamedTuple):
    """Fits of each kind, rows at most, and trees of the density experiments and of the others."""

    repeats: int
    rows: int
    density_trees: int
    trees: int


SIZES = {"tiny": Size(1, 150, 3, 2), "default": Size(2, 5_000, 20, 10), "full": Size(5, 1_000_000, 100, 20)}
OURS, PAPER = "ours, all of them", "the paper's options"


class Trial(NamedTuple):
    """One experiment: its table, the paper's node size, and its score (NLL: lower is better; accuracy: higher)."""

    name: str
    train: pl.DataFrame
    test: pl.DataFrame
    min_leaf: int
    task: Task | None  # None: the score is the likelihood of the test rows
    ours: Mapping[str, object]  # options of ours that are not defaults


def main() -> None:
    """Fit every experiment with all departures, with each one taken back, and with none."""
    run = start(__doc__, SIZES)
    rows = []
    for trial in trials(run):
        for repeat in range(run.size.repeats):
            for name, fit in variants(trial, run.size, run.seed + repeat):
                run.say(f"{trial.name}, repeat {repeat + 1} of {run.size.repeats}: {name}")
                rows.append({"experiment": trial.name, "without": name, **score(trial, fit, run.seed + repeat)})
    means = means_with_errors(pl.DataFrame(rows), ["experiment", "measure", "without"], ["score", "no density"])
    table = with_gains(means)
    run.write("ablation", table, readable(table))


def trials(run: Experiment[Size]) -> Iterator[Trial]:
    """The experiments of the paper, at the sizes asked for; those without their data are left out."""
    rng, most = np.random.default_rng(run.seed), run.size.rows
    small = min(2_000, most)
    yield Trial("two moons, NLL", two_moons(small, rng), two_moons(small, rng), 2, None, {"support": "open"})
    yield Trial("Toeplitz, NLL", toeplitz(small, rng), toeplitz(small, rng), 2, None, {"support": "open"})
    for name in ("nltcs", "plants", "dna"):
        if (parts := load(run.data, name, most)) is not None:
            yield Trial(f"{name}, NLL", *parts, 4, None, {})
    files = [run.data / f"adult_{part}.parquet" for part in ("train", "test")]
    if all(file.exists() for file in files):
        train, test = (text_target(at_most(pl.read_parquet(f), most, run.seed), "income") for f in files)
        yield Trial("adult, accuracy", train, test, 5, TASKS["adult"], {})
    else:
        yield Trial("stand-in, accuracy", stand_in(small, rng), stand_in(small, rng), 5, TASKS["adult"], {})
    images = digits()
    held_out = pl.int_range(pl.len()) % 3 == 0
    yield Trial("digits, accuracy", images.filter(~held_out).head(most), images.filter(held_out), 2, DIGIT_TASK, {})


Fit = Callable[[pl.DataFrame], arf_dask.Model]


def variants(trial: Trial, size: Size, seed: int) -> Iterator[tuple[str, Fit]]:
    """All departures, each one taken back, and none."""
    trees = size.density_trees if trial.task is None else size.trees
    ours = our_options(trees=trees, **trial.ours)
    yield OURS, fitter(seed, ours)
    for departure in departures(trial.train.width, min_leaf=trial.min_leaf, ours=ours):
        yield departure.name, fitter(seed, {**ours, **departure.options}, departure.transform)
    yield PAPER, fitter(seed, paper_options(trial.train.width, trees=trees, min_leaf=trial.min_leaf))


def fitter(seed: int, options: Mapping[str, Any], transform: Transform | None = None) -> Fit:
    return lambda frame: fit_model(frame, seed, options, transform)


def score(trial: Trial, fit: Fit, seed: int) -> dict[str, object]:
    """The likelihood of the test rows, or the accuracy of classifiers that are trained on synthetic rows."""
    model = fit(trial.train)
    if trial.task is None:
        found = likelihood(model.log_density(trial.test))
        return {"measure": "NLL", "score": found["NLL"], "no density": found["no density"]}
    drawn = arf_dask.forge(model, trial.train.height, seed=seed, progress=False)
    scores = mean_scores(drawn, trial.test, trial.task, seed)
    return {"measure": "accuracy", "score": scores["accuracy"], "no density": None}


def with_gains(means: pl.DataFrame) -> pl.DataFrame:
    """What a departure gains: how much worse the score is without it."""
    ours = pl.col("score").filter(pl.col("without") == OURS).first().over("experiment")
    sign = pl.when(pl.col("measure") == "NLL").then(1.0).otherwise(-1.0)
    return means.with_columns((sign * (pl.col("score") - ours)).alias("gain"))


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """The table of the documentation: a row per departure, a column per experiment."""
    lost = pl.when(pl.col("no density") > 0).then(
        pl.format(", {} % of rows impossible", fixed(100 * pl.col("no density"), 1))
    )
    gain = pl.format("{} ({}{})", fixed(pl.col("score"), 3), signed("gain"), lost.otherwise(pl.lit("")))
    alone = pl.format("{}{}", fixed(pl.col("score"), 3), lost.otherwise(pl.lit("")))
    cells = table.with_columns(pl.when(pl.col("without") == OURS).then(alone).otherwise(gain).alias("text"))
    wide = cells.pivot("experiment", index="without", values="text")
    last = pl.when(pl.col("without") == OURS).then(0).when(pl.col("without") == PAPER).then(2).otherwise(1)
    return wide.sort(last, maintain_order=True).rename({"without": "score (and what the departure gains)"})


def signed(name: str) -> pl.Expr:
    """A number with its sign."""
    return pl.when(pl.col(name) >= 0).then(pl.lit("+")).otherwise(pl.lit("-")) + fixed(pl.col(name).abs(), 3)


if __name__ == "__main__":
    main()
