"""The paper's theory, measured: accuracy 1/2 on independent columns, local independence (Thm. 1), consistency (Thm. 2).

- Accuracy: on independent columns the first discriminator has nothing to learn.
- Local independence: a permutation test of fresh rows inside the leaves of every tree.
- Consistency: the integrated squared error of the density on the unit square.

Models are fitted under the theorems' conditions as far as they can be chosen (A3), with m = n/2: trees are grown on one
half of the rows and leaves are estimated on the other (i), trees see subsamples of m^0.9 rows (ii), one of two columns
is tried at a split, so that each has a chance of about 1/2 (iii), leaves have at least m^0.45 rows (v), and votes are
averaged (vi). The minimum share of rows in each child (iv) is not imposed.

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
from settings import numeric_columns, paper_options

import arf_dask

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Size(NamedTuple):
    """Sample sizes, replicates, trees, fresh rows, and shuffles of the permutation test."""

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
LEVEL = 0.05  # of the permutation test
ALT = "Accuracy on independent columns, dependence inside leaves, rejected trees, and squared error, by training rows"


def main() -> None:
    """Measure all statements at every sample size."""
    run = start(__doc__, SIZES)
    rows = []
    for n_rows in run.size.rows:
        for replicate in range(run.size.replicates):
            run.say(f"{n_rows:,} rows, replicate {replicate + 1} of {run.size.replicates}")
            rows.append({"rows": n_rows, **one_replicate(n_rows, run.size, run.seed + replicate)})
    values = [name for name in rows[0] if name != "rows"]
    table = means_with_errors(pl.DataFrame(rows), ["rows"], values)
    run.write("theory", table, readable(table), draw(table), ALT)


def one_replicate(n_rows: int, size: Size, seed: int) -> dict[str, float]:
    """Return the measures of one sample."""
    model = consistent_model(n_rows, size.trees, seed)
    fresh = unit_square(size.fresh, np.random.default_rng([seed, 1]))
    inside = independence(model, fresh, size.shuffles, np.random.default_rng([seed, 2]))
    return {
        "accuracy": independent_accuracy(n_rows, size.trees, seed),
        "dependence": inside.found,
        "shuffled": inside.shuffled,
        "percent": 100 * inside.rejected,
        "squared error": integrated_squared_error(model),
    }


# ---------------------------------------------------------------- accuracy on independent columns


def independent_accuracy(n_rows: int, trees: int, seed: int) -> float:
    """Return the out-of-bag accuracy of round 0 on independent columns: 1/2 if there is nothing to learn."""
    rng = np.random.default_rng([seed, 3])
    table = pl.DataFrame(
        {"a": rng.uniform(size=n_rows), "b": rng.normal(size=n_rows), "c": rng.exponential(size=n_rows)}
    )
    options = paper_options(table.width, trees=trees, min_leaf=2)
    forest = arf_dask.adversarial_forest(table, seed=seed, progress=False, **options)
    return float(forest.rounds[0].accuracy)


# ---------------------------------------------------------------- a smooth density on the unit square


def density(x: Floats, y: Floats) -> Floats:
    """Return a smooth density with uniform marginals, bounded away from 0 and infinity (A1, A4)."""
    return 1 + STRENGTH * np.cos(np.pi * x) * np.cos(np.pi * y)


def unit_square(n_rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """Draw rows of that density by rejection: 1 + STRENGTH is its maximum."""
    tries = rng.uniform(size=(5 * n_rows + 100, 3))
    kept = tries[tries[:, 2] * (1 + STRENGTH) <= density(tries[:, 0], tries[:, 1])][:n_rows]
    return pl.DataFrame(kept[:, :2], schema=["x", "y"], orient="row")


def consistent_model(n_rows: int, trees: int, seed: int) -> arf_dask.Model:
    """Fit a model under the theorems' conditions: half of the rows for splits, the other half for leaves."""
    table = unit_square(n_rows, np.random.default_rng([seed, n_rows]))
    splits, leaves = table[: n_rows // 2], table[n_rows // 2 :]
    per_tree, per_leaf = round(splits.height**0.9), max(2, round(leaves.height**0.45))
    options = paper_options(table.width, trees=trees, min_leaf=per_leaf, rows_per_tree=per_tree)
    forest = arf_dask.adversarial_forest(splits, seed=seed, progress=False, columns=numeric_columns(table), **options)
    return arf_dask.forde(forest, leaves, progress=False)


def integrated_squared_error(model: arf_dask.Model) -> float:
    """Return the integral of (p - q)² over the unit square, by the midpoint rule."""
    middle = (np.arange(GRID) + 0.5) / GRID
    x, y = (side.ravel() for side in np.meshgrid(middle, middle))
    found = np.exp(model.log_density(pl.DataFrame({"x": x, "y": y})).to_numpy())
    return float(np.mean((found - density(x, y)) ** 2))


# ---------------------------------------------------------------- local independence


class Independence(NamedTuple):
    """Permutation tests of independence inside leaves, one per tree."""

    found: float  # mean squared correlation inside leaves, weighted by rows; mean over trees
    shuffled: float  # the same after shuffling inside leaves: what chance alone gives
    rejected: float  # share of trees whose test rejects at LEVEL, which is the expected share under independence


def independence(model: arf_dask.Model, fresh: pl.DataFrame, shuffles: int, rng: np.random.Generator) -> Independence:
    """Test whether the two columns of fresh rows are independent inside the leaves of each tree.

    Trees are tested one by one: they share their rows, so that a statistic over all trees varies more than independent
    shuffles of each tree would suggest.
    """
    points, n_trees = fresh.to_numpy(), model.nodes["tree"].n_unique()
    found, chance, p_values = [], [], []
    for tree in range(n_trees):
        leaf = leaf_of_rows(leaf_boxes(model, tree), points)
        statistic = squared_correlation(points, leaf)
        null = [squared_correlation(shuffled_inside(points, leaf, rng), leaf) for _ in range(shuffles)]
        found.append(statistic)
        chance.append(np.mean(null))
        p_values.append((1 + np.count_nonzero(np.array(null) >= statistic)) / (1 + shuffles))
    return Independence(float(np.mean(found)), float(np.mean(chance)), float(np.mean(np.array(p_values) <= LEVEL)))


def shuffled_inside(points: Floats, leaf: Ints, rng: np.random.Generator) -> Floats:
    """Shuffle the second column among the rows of the same leaf."""
    by_leaf, at_random = np.argsort(leaf, kind="stable"), np.lexsort([rng.uniform(size=len(leaf)), leaf])
    moved = points.copy()
    moved[by_leaf, 1] = points[at_random, 1]
    return moved


def squared_correlation(points: Floats, leaf: Ints) -> float:
    """Return the squared correlation inside leaves, averaged over rows; leaves of 1 or 2 rows are excluded."""
    count = np.maximum(np.bincount(leaf), 1)
    x, y = (side - (np.bincount(leaf, side) / count)[leaf] for side in points.T)
    xy, xx, yy = (np.bincount(leaf, product) for product in (x * y, x * x, y * y))
    enough = (count >= 3) & (xx > 0) & (yy > 0)
    return float(np.average(xy[enough] ** 2 / (xx[enough] * yy[enough]), weights=count[enough]))


# ---------------------------------------------------------------- what is shown


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """Format the table of the documentation."""
    return table.select(
        "rows",
        with_error("accuracy", "accuracy SE", 3).alias("accuracy, independent columns"),
        with_error("dependence", "dependence SE", 4).alias("squared correlation in leaves"),
        fixed(pl.col("shuffled"), 4).alias("after shuffling"),
        pl.format("{} %", with_error("percent", "percent SE", 0)).alias("trees rejected at 5 %"),
        with_error("squared error", "squared error SE", 4).alias("integrated squared error"),
    )


def draw(table: pl.DataFrame) -> Any:
    """Draw one panel per statement."""
    figure, axes = panels(1, 4, width=3.3, height=3.3)
    x = table["rows"].to_numpy()
    column = {name: table[name].to_numpy() for name in table.columns}
    first, second, third, fourth = axes[0]
    series(first, 0, x, column["accuracy"], column["accuracy SE"], "measured")
    first.axhline(0.5, color=INK, linestyle="--", label="1/2")
    first.set(title="A  independent columns", ylabel="out-of-bag accuracy, round 0", ylim=(0.4, 0.55))
    excess = np.maximum(column["dependence"] - column["shuffled"], 1e-6)
    series(second, 1, x, excess, None, "in leaves, above chance")
    second.axhline(WHOLE_CORRELATION**2, color=INK, linestyle="--", label="whole table")
    second.set(title="B  dependence in leaves", ylabel="squared correlation", yscale="log", ylim=(None, 1.0))
    series(third, 2, x, column["percent"], column["percent SE"], "measured")
    third.axhline(100 * LEVEL, color=INK, linestyle="--", label="under independence")
    third.set(title="C  permutation test", ylabel="rejected trees, %", ylim=(0, 100))
    series(fourth, 3, x, column["squared error"], column["squared error SE"], "measured")
    fourth.set(title="D  error of the density", ylabel="integrated squared error", ylim=(0, None))
    for panel in axes[0]:
        panel.set(xscale="log", xlabel="training rows")
        logarithmic(panel.xaxis, x.tolist())
        panel.legend(loc="upper right")
    logarithmic(second.yaxis)
    return figure


if __name__ == "__main__":
    main()
