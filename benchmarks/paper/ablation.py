"""The gain of each departure from the paper: our defaults with one departure undone at a time, on every experiment.

Departures are found by comparing the paper's options with the defaults of `fit` (settings.py). All variants of an
experiment have the same number of trees. Spikes, pieces of number lines and exact moments cannot be switched off.
Gates, splits on missingness, only act on tables with missing values: a generated one is included for them.

Run: `python benchmarks/paper/ablation.py [--data DIR] [--full | --tiny]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from classifiers import Task, mean_scores
from digits import TASK as DIGIT_TASK
from digits import digits
from experiment import Experiment, fixed, likelihood, means_with_errors, start
from figures import BLUE, INK, panels
from pipeline import TASKS, at_most, text_target
from settings import Departure, departures, fit_model, fit_without_gates, paper_options
from simulations import stand_in, toeplitz, two_moons, with_missing
from twenty import load

import arf_dask


class Size(NamedTuple):
    """Repeats, the maximum number of rows, and trees of the density experiments and of the others."""

    repeats: int
    rows: int
    density_trees: int
    trees: int


SIZES = {"tiny": Size(1, 150, 3, 2), "default": Size(2, 5_000, 20, 10), "full": Size(5, 1_000_000, 100, 20)}
OURS, PAPER = "our defaults", "all of them (the paper's options)"
ALT = "Loss of likelihood or accuracy when a departure is undone, one panel per experiment"


class Trial(NamedTuple):
    """One experiment: its data, the paper's node size, and its score (NLL: lower is better; accuracy: higher)."""

    name: str
    train: pl.DataFrame
    test: pl.DataFrame
    min_leaf: int
    task: Task | None  # None: the score is the likelihood of the test rows
    ours: Mapping[str, object]  # options of ours that are not defaults


def main() -> None:
    """Fit every experiment with our defaults, with each departure undone, and with the paper's options."""
    run = start(__doc__, SIZES)
    rows = []
    for trial in trials(run):
        for repeat in range(run.size.repeats):
            for variant in variants(trial, run.size):
                run.say(f"{trial.name}, repeat {repeat + 1} of {run.size.repeats}: without {variant.name}")
                key = {"experiment": trial.name, "repeat": repeat, "without": variant.name}
                rows.append({**key, **score(trial, variant, run.seed + repeat)})
    values = ["score", "gain", "no density"]
    table = means_with_errors(with_gains(pl.DataFrame(rows)), ["experiment", "measure", "without"], values)
    run.write("ablation", table, readable(table), draw(table), ALT)


def trials(run: Experiment[Size]) -> Iterator[Trial]:
    """Yield the experiments of the paper; those without their data are skipped."""
    rng, most = np.random.default_rng(run.seed), run.size.rows
    small = min(2_000, most)
    yield Trial("two moons, NLL", two_moons(small, rng), two_moons(small, rng), 2, None, {"support": "open"})
    yield Trial("Toeplitz, NLL", toeplitz(small, rng), toeplitz(small, rng), 2, None, {"support": "open"})
    with_nulls = [with_missing(stand_in(small, rng), rng) for _ in range(2)]
    yield Trial("missing values, NLL", with_nulls[0], with_nulls[1], 2, None, {"support": "open"})
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


def variants(trial: Trial, size: Size) -> Iterator[Departure]:
    """Yield the fits of an experiment: our defaults, each departure undone, and the paper's options."""
    trees = size.density_trees if trial.task is None else size.trees
    ours = {"trees": trees, **trial.ours}
    yield Departure(OURS, ours, fit_model)
    for departure in departures(trial.train, min_leaf=trial.min_leaf, ours=ours):
        yield departure._replace(options={**ours, **departure.options})
    yield Departure(PAPER, paper_options(trial.train.width, trees=trees, min_leaf=trial.min_leaf), fit_without_gates)


def score(trial: Trial, variant: Departure, seed: int) -> dict[str, object]:
    """Return the likelihood of the test rows, or the accuracy of classifiers trained on synthetic rows."""
    model = variant.fit(trial.train, seed, variant.options)
    if trial.task is None:
        found = likelihood(model.log_density(trial.test))
        return {"measure": "NLL", "score": found["NLL"], "no density": found["no density"]}
    drawn = arf_dask.forge(model, trial.train.height, seed=seed, progress=False)
    scores = mean_scores(drawn, trial.test, trial.task, seed)
    return {"measure": "accuracy", "score": scores["accuracy"], "no density": None}


def with_gains(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the gain of each departure: how much worse the score is without it, in the same repeat."""
    ours = pl.col("score").filter(pl.col("without") == OURS).first().over("experiment", "repeat")
    sign = pl.when(pl.col("measure") == "NLL").then(1.0).otherwise(-1.0)
    return rows.with_columns((sign * (pl.col("score") - ours)).alias("gain"))


def ordered(table: pl.DataFrame) -> list[str]:
    """Return the variants in the order of their first appearance, the paper's options last."""
    names = table["without"].unique(maintain_order=True).to_list()
    return [*(name for name in names if name not in (OURS, PAPER)), PAPER]


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """Format the table of the documentation: our score, and below it the gain of each departure."""
    lost = pl.when(pl.col("no density") > 0).then(
        pl.format(" ({} % of rows impossible)", fixed(100 * pl.col("no density"), 1))
    )
    text = pl.when(pl.col("without") == OURS).then(fixed(pl.col("score"), 3)).otherwise(signed("gain"))
    cells = table.with_columns((text + lost.otherwise(pl.lit(""))).alias("text"))
    wide = cells.pivot("experiment", index="without", values="text")
    order = {name: place for place, name in enumerate([OURS, *ordered(table)])}
    label = (
        pl.when(pl.col("without") == OURS)
        .then(pl.lit("our defaults: score"))
        .otherwise(pl.format("gain of {}", "without"))
    )
    return (
        wide.sort(pl.col("without").replace_strict(order)).with_columns(label.alias("without")).rename({"without": ""})
    )


def signed(name: str) -> pl.Expr:
    """Format a number with its sign."""
    return pl.when(pl.col(name) >= 0).then(pl.lit("+")).otherwise(pl.lit("-")) + fixed(pl.col(name).abs(), 3)


def draw(table: pl.DataFrame) -> Any:
    """Draw the gain of each departure with its standard error, one panel per experiment."""
    names, rows = table["experiment"].unique(maintain_order=True).to_list(), ordered(table)
    n_columns = min(4, len(names))
    figure, axes = panels(-(-len(names) // n_columns), n_columns, 3.0, 0.8 + 0.3 * len(rows), sharey=True)
    for panel, name in zip(axes.ravel(), names, strict=False):
        some = table.filter((pl.col("experiment") == name) & (pl.col("without") != OURS))
        places = [len(rows) - 1 - rows.index(variant) for variant in some["without"]]
        errors = some["gain SE"].fill_null(0.0)
        panel.errorbar(some["gain"], places, xerr=errors, color=BLUE, marker="o", linestyle="none", capsize=3)
        panel.axvline(0, color=INK, linewidth=1)
        panel.set_yticks(range(len(rows) - 1, -1, -1), rows)
        panel.set(title=name.split(",")[0], xlabel="gain, nats" if name.endswith("NLL") else "gain, accuracy")
        panel.locator_params(axis="x", nbins=4)
    for panel in axes.ravel()[len(names) :]:
        panel.set_axis_off()
    return figure


if __name__ == "__main__":
    main()
