"""Visual patterns (the paper's Fig. 1): four simulated tables, real rows above, synthetic rows below.

Run: `python benchmarks/paper/patterns.py [--full | --tiny]`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from experiment import Experiment, fixed, likelihood, start
from figures import PALETTE, panels, scatter, without_ticks
from settings import fit_model, paper_options
from simulations import PATTERNS

import arf_dask


class Size(NamedTuple):
    """The number of training rows, synthetic rows, test rows and trees."""

    rows: int
    drawn: int
    test: int
    trees: int


SIZES = {
    "tiny": Size(200, 100, 100, 5),
    "default": Size(2_000, 1_000, 2_000, 20),
    "full": Size(2_000, 1_000, 10_000, 20),
}
COLUMNS = 3
ALT = "Four patterns in columns; rows show real data, synthetic data at the paper's settings, and at our defaults"
CLASS_COLUMN = "class"


def main() -> None:
    """Fit, sample, measure and plot every pattern."""
    run = start(__doc__, SIZES)
    rows, shown = [], {}
    for number, (name, simulate) in enumerate(PATTERNS.items()):
        rng = np.random.default_rng([run.seed, number])
        train, test = simulate(run.size.rows, rng), simulate(run.size.test, rng)
        shown[name] = [train]
        for setting, options in settings(run.size.trees).items():
            run.say(f"{name}, {setting}")
            row, synthetic = measure(train, test, options, run)
            rows.append({"pattern": name, "setting": setting, **row})
            shown[name].append(synthetic)
    table = pl.DataFrame(rows)
    run.write("patterns", table, readable(table), draw(shown), ALT)


def settings(trees: int) -> dict[str, dict[str, Any]]:
    """Return the paper's settings and our defaults, with the support that gives every test row a density."""
    paper = paper_options(COLUMNS, trees=trees, min_leaf=2)
    return {"paper's settings": paper, "our defaults": {"trees": trees, "support": "open"}}


def measure(
    train: pl.DataFrame, test: pl.DataFrame, options: dict[str, Any], run: Experiment[Size]
) -> tuple[dict[str, object], pl.DataFrame]:
    """Return the scores of one fit, and the rows drawn from it."""
    model = fit_model(train, run.seed, options)
    synthetic = arf_dask.forge(model, run.size.drawn, seed=run.seed, progress=False)
    row = {
        "rounds": model.rounds.height,
        "accuracy": model.rounds["accuracy"][-1],
        "NLL": likelihood(model.log_density(test))["NLL"],
        "stray": stray_share(train, synthetic),
    }
    return row, synthetic


def stray_share(real: pl.DataFrame, synthetic: pl.DataFrame) -> float:
    """Return the share of synthetic rows whose nearest real row has another class.

    The paper calls them stray samples: points inside the shape of a class that is not theirs.
    """
    from scipy.spatial import KDTree

    nearest = KDTree(real.select("x", "y").to_numpy()).query(synthetic.select("x", "y").to_numpy())[1]
    return float(np.mean((real[CLASS_COLUMN].gather(nearest) != synthetic[CLASS_COLUMN]).to_numpy()))


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """Format the table of the documentation."""
    return table.select(
        "pattern",
        "setting",
        "rounds",
        fixed(pl.col("accuracy"), 3).alias("last out-of-bag accuracy"),
        fixed(pl.col("NLL"), 3).alias("NLL, nats"),
        pl.format("{} %", fixed(100 * pl.col("stray"), 1)).alias("stray rows"),
    )


def draw(shown: dict[str, list[pl.DataFrame]]) -> Any:
    """Draw one column per pattern: real rows, and synthetic rows at the paper's settings and at our defaults."""
    titles = ("real", "synthetic, the paper's settings", "synthetic, our defaults")
    figure, axes = panels(len(titles), len(shown), width=2.7, height=2.7)
    for column, (name, frames) in enumerate(shown.items()):
        limits = {side: widened(frames[0][side]) for side in ("x", "y")}
        for place, (frame, title) in enumerate(zip(frames, titles, strict=True)):
            panel = axes[place, column]
            scatter(panel, frame["x"], frame["y"], [PALETTE[int(level) - 1] for level in frame[CLASS_COLUMN]])
            panel.set(xlim=limits["x"], ylim=limits["y"])
            without_ticks(panel)
            if place == 0:
                panel.set_title(name)
            if column == 0:
                panel.set_ylabel(title)
    return figure


def widened(values: pl.Series) -> tuple[float, float]:
    """Return the range of the values with a margin of 10 % on either side."""
    low, high = values.to_numpy().min(), values.to_numpy().max()
    return low - 0.1 * (high - low), high + 0.1 * (high - low)


if __name__ == "__main__":
    main()
