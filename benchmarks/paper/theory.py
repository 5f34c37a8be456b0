"""What the paper proves, measured: a discriminator at 1/2, local independence (Theorem 1), consistency (Theorem 2).

- Accuracy: on independent columns the first discriminator has nothing to learn.
- Local independence: dependence inside leaves, of fresh rows, beside that of rows shuffled inside their leaves.
- Consistency: the integrated squared error of the density on the unit square, under the conditions of the theorem:
  subsamples for trees, and leaves that grow more slowly than the sample (A3).

Run: `python benchmarks/paper/theory.py [--full | --tiny]`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from experiment import fixed, means_with_errors, start, with_error
from figures import INK, logarithmic, panels, series
from leaf_boxes import leaf_boxes, leaf_of_rows
from numpy.typing import NDArray
from settings import fit_model, paper_options

import arf_dask

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Size(NamedTuple):
    """Sample sizes, how often each, trees, fresh rows, and shuffles of the permutation test."""

    rows: tuple[int, ...]
    replicates: int
    trees: int
    fresh: int
    shuffles: int


SIZES = {
    "tiny": Size((200, 800), 1, 5, 1_000, 20),
    "default": Size((500, 2_000, 8_000), 4, 20, 10_000, 40),
    "full": Size((500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000), 10, 50, 50_000, 200),
}
GRID = 100  # points a side, for the integral over the unit square
STRENGTH = 0.8  # of the dependence of the test density
WHOLE_CORRELATION = 12 * STRENGTH * 4 / np.pi**4  # of its two columns: the integral of x cos(pi x) is -2 / pi²


def main() -> None:
    """Measure all three at every sample size."""
    run = start(__doc__, SIZES)
    rows = []
    for n_rows in run.size.rows:
        for replicate in range(run.size.replicates):
            run.say(f"{n_rows:,} rows, replicate {replicate + 1} of {run.size.replicates}")
            rows.append({"rows": n_rows, **one_replicate(n_rows, run.size, run.seed + replicate)})
    values = [name for name in rows[0] if name != "rows"]
    table = means_with_errors(pl.DataFrame(rows), ["rows"], values)
    run.write("theory", table, readable(table), draw(table))


def one_replicate(n_rows: int, size: Size, seed: int) -> dict[str, float]:
    """The three measures for one sample."""
    model = consistent_model(n_rows, size.trees, seed)
    fresh = unit_square(size.fresh, np.random.default_rng([seed, 1]))
    inside = independence(model, fresh, size.shuffles, np.random.default_rng([seed, 2]))
    return {
        "accuracy": independent_accuracy(n_rows, size.trees, seed),
        "dependence": inside.found,
        "shuffled": inside.shuffled,
        "p value": inside.p_value,
        "squared error": integrated_squared_error(model),
    }


# ---------------------------------------------------------------- accuracy on independent columns


def independent_accuracy(n_rows: int, trees: int, seed: int) -> float:
    """The out-of-bag accuracy of round 0 on columns that are independent: 1/2, if there is nothing to learn."""
    rng = np.random.default_rng([seed, 3])
    table = pl.DataFrame(
        {"a": rng.uniform(size=n_rows), "b": rng.normal(size=n_rows), "c": rng.exponential(size=n_rows)}
    )
    options = paper_options(table.width, trees=trees, min_leaf=2)
    forest = arf_dask.adversarial_forest(table, seed=seed, progress=False, **options)
    return float(forest.rounds[0].accuracy)


# ---------------------------------------------------------------- a smooth density on the unit square


def density(x: Floats, y: Floats) -> Floats:
    """A smooth density with uniform marginals, bounded away from 0 and infinity (A1, A4)."""
    return 1 + STRENGTH * np.cos(np.pi * x) * np.cos(np.pi * y)


def unit_square(n_rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """Rows of that density, by rejection: 1 + STRENGTH is its maximum."""
    tries = rng.uniform(size=(5 * n_rows + 100, 3))
    kept = tries[tries[:, 2] * (1 + STRENGTH) <= density(tries[:, 0], tries[:, 1])][:n_rows]
    return pl.DataFrame(kept[:, :2], schema=["x", "y"], orient="row")


def consistent_model(n_rows: int, trees: int, seed: int) -> arf_dask.Model:
    """A fit under the theorem's conditions: rows per tree and per leaf grow, both more slowly than the sample."""
    table = unit_square(n_rows, np.random.default_rng([seed, n_rows]))
    per_tree, per_leaf = round(n_rows**0.9), max(2, round(n_rows**0.45))
    options = paper_options(table.width, trees=trees, min_leaf=per_leaf, rows_per_tree=per_tree)
    return fit_model(table, seed, options)


def integrated_squared_error(model: arf_dask.Model) -> float:
    """The integral of (p - q)² over the unit square, by the midpoint rule."""
    middle = (np.arange(GRID) + 0.5) / GRID
    x, y = (side.ravel() for side in np.meshgrid(middle, middle))
    found = np.exp(model.log_density(pl.DataFrame({"x": x, "y": y})).to_numpy())
    return float(np.mean((found - density(x, y)) ** 2))


# ---------------------------------------------------------------- local independence


class Independence(NamedTuple):
    """A permutation test of independence inside leaves, mean over the trees."""

    found: float  # mean squared rank correlation inside leaves, weighted by rows
    shuffled: float  # the same after shuffling inside leaves: what chance alone gives
    p_value: float


def independence(model: arf_dask.Model, fresh: pl.DataFrame, shuffles: int, rng: np.random.Generator) -> Independence:
    """Whether the two columns of fresh rows are independent inside the leaves of a model."""
    points = fresh.to_numpy()
    leaves = [leaf_of_rows(leaf_boxes(model, tree), points) for tree in range(model.nodes["tree"].n_unique())]
    found = mean_dependence(points, leaves)
    chance = np.array([mean_dependence(points, leaves, rng) for _ in range(shuffles)])
    return Independence(found, float(chance.mean()), (1 + int((chance >= found).sum())) / (1 + shuffles))


def mean_dependence(points: Floats, leaves: list[Ints], rng: np.random.Generator | None = None) -> float:
    """The mean over trees of the dependence inside leaves; with a generator, after shuffling inside leaves."""
    tables = [points if rng is None else shuffled_inside(points, leaf, rng) for leaf in leaves]
    return float(np.mean([squared_correlation(table, leaf) for table, leaf in zip(tables, leaves, strict=True)]))


def shuffled_inside(points: Floats, leaf: Ints, rng: np.random.Generator) -> Floats:
    """The second column shuffled among the rows of the same leaf."""
    by_leaf, at_random = np.argsort(leaf, kind="stable"), np.lexsort([rng.uniform(size=len(leaf)), leaf])
    moved = points.copy()
    moved[by_leaf, 1] = points[at_random, 1]
    return moved


def squared_correlation(points: Floats, leaf: Ints) -> float:
    """The squared correlation of two columns inside leaves, averaged over rows; leaves of 1 or 2 rows left out."""
    count = np.maximum(np.bincount(leaf), 1)
    x, y = (side - (np.bincount(leaf, side) / count)[leaf] for side in points.T)
    xy, xx, yy = (np.bincount(leaf, product) for product in (x * y, x * x, y * y))
    enough = (count >= 3) & (xx > 0) & (yy > 0)
    return float(np.average(xy[enough] ** 2 / (xx[enough] * yy[enough]), weights=count[enough]))


# ---------------------------------------------------------------- what is shown


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """The table of the documentation."""
    return table.select(
        "rows",
        with_error("accuracy", "accuracy SE", 3).alias("accuracy, independent columns"),
        with_error("dependence", "dependence SE", 4).alias("squared correlation in leaves"),
        fixed(pl.col("shuffled"), 4).alias("after shuffling"),
        fixed(pl.col("p value"), 3).alias("mean p-value"),
        with_error("squared error", "squared error SE", 4).alias("integrated squared error"),
    )


def draw(table: pl.DataFrame) -> Any:
    """A panel for each of the three statements."""
    figure, axes = panels(1, 3, width=3.8, height=3.3)
    x = table["rows"].to_numpy()
    column = {name: table[name].to_numpy() for name in table.columns}
    first, second, third = axes[0]
    series(first, 0, x, column["accuracy"], column["accuracy SE"], "found")
    first.axhline(0.5, color=INK, linestyle="--", label="1/2")
    first.set(title="A  independent columns", ylabel="out-of-bag accuracy, round 0", ylim=(0.4, 0.6))
    excess = np.maximum(column["dependence"] - column["shuffled"], 1e-6)
    series(second, 1, x, excess, None, "inside leaves, above chance")
    second.axhline(WHOLE_CORRELATION**2, color=INK, linestyle="--", label="whole table")
    second.set(title="B  dependence inside leaves", ylabel="squared correlation", yscale="log")
    series(third, 2, x, column["squared error"], column["squared error SE"], "found")
    third.set(title="C  error of the density", ylabel="integrated squared error", yscale="log")
    for panel in axes[0]:
        panel.set(xscale="log", xlabel="training rows")
        logarithmic(panel.xaxis, x.tolist())
        panel.legend()
    for panel in (second, third):
        logarithmic(panel.yaxis)
    return figure


if __name__ == "__main__":
    main()
