"""Images, the limit case (the paper's appendix on MNIST), on scikit-learn's digits: 8 x 8 pixels of 17 shades.

Run: `python benchmarks/paper/digits.py [--full | --tiny]`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from classifiers import Task, mean_scores
from experiment import means_with_errors, start, with_error
from figures import panels, without_ticks
from published import published_scores
from settings import fit_model, paper_options
from sklearn.datasets import load_digits

import arf_dask


class Size(NamedTuple):
    """The number of trials and trees, and the maximum number of training rows."""

    trials: int
    trees: int
    rows: int | None


SIZES = {"tiny": Size(1, 2, 150), "default": Size(5, 20, None), "full": Size(5, 20, None)}
SIDE, SHADES, TEST_SHARE = 8, 16, 3  # every third image is held out
MIN_LEAF = 2
TASK = Task("digit", "AD", None)  # AdaBoost and MLP, as in the paper
PER_DIGIT = 2  # images of each digit in the figure
ALT = "Real digits, and synthetic digits at the paper's settings and at our defaults, two of each class"


def main() -> None:
    """Draw synthetic digits, and train classifiers on them."""
    run = start(__doc__, SIZES)
    images = digits()
    held_out = pl.int_range(pl.len()) % TEST_SHARE == 0
    train, test = images.filter(~held_out)[: run.size.rows], images.filter(held_out)
    rows, shown = [], {"real": train}
    for trial in range(run.size.trials):
        run.say(f"trial {trial + 1} of {run.size.trials}")
        for name, options in models(train.width, run.size.trees).items():
            drawn, accuracies = train, None
            if options is not None:
                model = fit_model(train, run.seed + trial, options)
                accuracies = model.rounds["accuracy"]
                drawn = arf_dask.forge(model, train.height, seed=run.seed + trial, progress=False)
                shown.setdefault(name, drawn)
            rows.append({"model": name, **mean_scores(drawn, test, TASK, run.seed + trial), **rounds(accuracies)})
    means = means_with_errors(pl.DataFrame(rows), ["model"], ["accuracy", "F1", "rounds", "discriminator"])
    paper = published_scores("mnist12").with_columns(pl.col("model").str.replace("paper", "paper, MNIST 12 x 12"))
    table = pl.concat([means, paper], how="diagonal_relaxed")
    run.write("digits", table, readable(table), draw(shown), ALT)


def rounds(accuracies: pl.Series | None) -> dict[str, float | None]:
    """Return the number of rounds, and the accuracy of the last discriminator."""
    if accuracies is None:
        return {"rounds": None, "discriminator": None}
    return {"rounds": float(len(accuracies)), "discriminator": float(accuracies[-1])}


def models(columns: int, trees: int) -> dict[str, dict[str, Any] | None]:
    """Return the options of every model; None stands for training on the real images."""
    paper = paper_options(columns, trees=trees, min_leaf=MIN_LEAF)
    return {"oracle (real images)": None, "FORGE, paper's settings": paper, "FORGE, our defaults": {"trees": trees}}


def digits() -> pl.DataFrame:
    """One row per image: 64 pixels and the digit as text."""
    bundled = load_digits()
    pixels = pl.DataFrame(
        bundled.data.astype(np.int16), schema=[f"p{i}{j}" for i in range(SIDE) for j in range(SIDE)], orient="row"
    )
    return pixels.with_columns(pl.Series(TASK.target, [str(digit) for digit in bundled.target]))


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """Format the table of the documentation."""
    return table.select(
        "model",
        with_error("accuracy", "accuracy SE", 3).alias("accuracy"),
        with_error("F1", "F1 SE", 3).alias("F1, macro"),
        with_error("rounds", "rounds SE", 1).alias("rounds"),
        with_error("discriminator", "discriminator SE", 3).alias("last out-of-bag accuracy"),
    )


def draw(shown: dict[str, pl.DataFrame]) -> Any:
    """Draw one block of images per model, with one column per digit."""
    figure, axes = panels(len(shown), 1, width=7.0, height=1.9)
    for panel, (name, frame) in zip(axes[:, 0], shown.items(), strict=True):
        panel.imshow(mosaic(frame), cmap="Greys", vmin=0, vmax=SHADES, interpolation="nearest")
        panel.set_title(name)
        without_ticks(panel, frame=False)
    return figure


def mosaic(frame: pl.DataFrame) -> Any:
    """Arrange the first images of every digit; the place of a digit that was not drawn often enough stays empty."""
    picture = np.zeros((PER_DIGIT * (SIDE + 1), 10 * (SIDE + 1)))
    for digit in range(10):
        some = frame.filter(pl.col(TASK.target) == str(digit)).drop(TASK.target).head(PER_DIGIT).to_numpy()
        for place, pixels in enumerate(some.reshape(-1, SIDE, SIDE)):
            top, left = place * (SIDE + 1), digit * (SIDE + 1)
            picture[top : top + SIDE, left : left + SIDE] = pixels
    return picture


if __name__ == "__main__":
    main()
