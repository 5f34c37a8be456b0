"""Toeplitz Gaussian (the paper's Fig. 2): likelihood against sample size (A) and against sparsity (B).

Compares FORDE at the paper's settings and at our defaults with piecewise-constant densities on the leaves of an
adversarial forest (unsupervised) and of a forest that predicts a target (supervised), and with the true density. Test
rows outside the range of the training rows have no density under the piecewise-constant estimators and are excluded
from their means, which favours them.

Run: `python benchmarks/paper/toeplitz.py [--full | --tiny]`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from experiment import Experiment, fixed, likelihood, means_with_errors, start, with_error
from figures import INK, logarithmic, panels, series
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from settings import fit_model, paper_options
from simulations import DIMENSIONS, toeplitz, toeplitz_covariance, toeplitz_target
from supervised import log_densities

Floats = NDArray[np.float64]


class Size(NamedTuple):
    """Training rows of panel A, shares of informative columns of panel B, replicates, trees, and test rows."""

    rows: tuple[int, ...]
    informative: tuple[float, ...]
    replicates: int
    trees: int
    test: int = 1_000


SIZES = {
    "tiny": Size((100, 200), (0.2, 0.5, 0.8), 2, 5, 100),
    "default": Size((500, 1_000, 2_000), (0.1, 0.3, 0.5, 0.7, 0.9), 20, 100),
    "full": Size((500, 1_000, 2_000, 4_000, 8_000), (0.1, 0.3, 0.5, 0.7, 0.9), 20, 100),
}
BALANCED, ROWS_OF_B = 0.5, 2_000  # the paper's fixed values
MIN_LEAF = 2
ALT = "Negative log-likelihood of five methods against the number of training rows and the share of informative columns"
TRUTH, PAPER, OURS = "truth", "FORDE, the paper's settings", "FORDE, our defaults"
UNSUPERVISED, SUPERVISED = "piecewise constant, unsupervised", "piecewise constant, supervised"
METHODS = (PAPER, OURS, UNSUPERVISED, SUPERVISED)


def main() -> None:
    """Run all replicates of both panels."""
    run = start(__doc__, SIZES)
    rows = []
    for replicate in range(run.size.replicates):
        for n_rows in run.size.rows:
            run.say(f"replicate {replicate + 1} of {run.size.replicates}: {n_rows} rows")
            shares = run.size.informative if n_rows == rows_of_b(run.size) else (BALANCED,)
            rows += one_sample(run, replicate, n_rows, shares)
    means = means_with_errors(pl.DataFrame(rows), ["rows", "informative", "method"], ["NLL", "no density"])
    first = means.filter(pl.col("informative") == BALANCED).select(pl.lit("A").alias("panel"), pl.all())
    second = means.filter(pl.col("rows") == rows_of_b(run.size)).select(pl.lit("B").alias("panel"), pl.all())
    table = pl.concat([first, second])
    run.write("toeplitz", table, readable(table), draw(table), ALT)


def rows_of_b(size: Size) -> int:
    """Return the sample size of panel B: 2,000 as in the paper, or the largest if there is no such size."""
    return ROWS_OF_B if ROWS_OF_B in size.rows else max(size.rows)


def one_sample(
    run: Experiment[Size], replicate: int, n_rows: int, shares: tuple[float, ...]
) -> list[dict[str, object]]:
    """Return the likelihood of every method on one sample, with one target per share of informative columns.

    Only the supervised method depends on the target: the other methods are fitted once.
    """
    rng = np.random.default_rng([run.seed, replicate, n_rows])
    train, test = toeplitz(n_rows, rng), toeplitz(run.size.test, rng)
    free = {TRUTH: true_log_density(test.to_numpy())}
    for method, options in unsupervised(run.size.trees).items():
        free[method] = fit_model(train, run.seed + replicate, options).log_density(test).to_numpy()
    found = []
    for share in shares:
        target = toeplitz_target(train, share, rng)
        grown = {"trees": run.size.trees, "min_leaf": MIN_LEAF, "seed": run.seed + replicate}
        bound = log_densities(train.to_numpy(), target, test.to_numpy(), **grown)
        key = {"rows": n_rows, "informative": share, "replicate": replicate}
        found += [{**key, "method": m, **likelihood(d)} for m, d in {**free, SUPERVISED: bound}.items()]
    return found


def unsupervised(trees: int) -> dict[str, dict[str, Any]]:
    """Return the options of the methods that do not use the target."""
    paper = paper_options(DIMENSIONS, trees=trees, min_leaf=MIN_LEAF)
    ours = {"trees": trees, "support": "open"}
    return {PAPER: paper, OURS: ours, UNSUPERVISED: {**paper, "family": "uniform"}}


def true_log_density(points: Floats) -> Floats:
    """Return the log-density of the distribution that the rows were drawn from."""
    return np.atleast_1d(multivariate_normal(np.zeros(DIMENSIONS), toeplitz_covariance()).logpdf(points))


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """Format the table of the documentation: one row per sample size or sparsity, one column per method."""
    cells = table.with_columns(with_error("NLL", "NLL SE", 2).alias("text"))
    wide = cells.pivot("method", index=["panel", "rows", "informative"], values="text")
    left_out = table.filter(pl.col("method") == UNSUPERVISED).select(100 * pl.col("no density")).to_series()
    return (
        wide.with_columns(fixed(pl.col("informative"), 1), left_out.alias("left out"))
        .with_columns(pl.format("{} %", fixed(pl.col("left out"), 2)).alias("excluded from the last two"))
        .drop("left out")
    )


def draw(table: pl.DataFrame) -> Any:
    """Draw the likelihood against sample size (A) and against the share of informative columns (B)."""
    figure, axes = panels(1, 2, width=5.0, height=3.9, sharey=True)
    for panel, name, along in zip(axes[0], "AB", ("rows", "informative"), strict=True):
        some = table.filter(pl.col("panel") == name).sort(along)
        for number, method in enumerate(METHODS):
            line = some.filter(pl.col("method") == method)
            x, y, error = (line[name].to_numpy() for name in (along, "NLL", "NLL SE"))
            series(panel, number, x, y, error, method)
        truth = some.filter(pl.col("method") == TRUTH)
        panel.plot(truth[along], truth["NLL"], color=INK, linestyle="--", label=TRUTH)
    axes[0, 0].set(title="A  sample size", xlabel="training rows", ylabel="NLL, nats per test row", xscale="log")
    ticks = table.filter(pl.col("panel") == "A")["rows"].unique().sort().to_list()
    logarithmic(axes[0, 0].xaxis, ticks)
    axes[0, 1].set(title="B  sparsity", xlabel="share of informative columns")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    main()
