"""How close synthetic tables are to real ones, and what they give away: one table per data set.

    python benchmarks/fidelity.py --only adult --bars
    python benchmarks/fidelity.py --min-leaf 5 --seeds 0,1,2 --option bundles=False --option family=uniform
    python benchmarks/fidelity.py --baseline bootstrap     # what copies of training rows would score

The column "real" of every table holds the score of the real training rows in the place of synthetic ones.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from datasets import DEFAULT_DATA, LOADERS, Dataset, load
from metrics import (
    c2st,
    mean_marginal_distance,
    membership_auc,
    nearer_to_training,
    pairwise_distance,
    tstr,
    unseen_pairs,
)

import arf_dask

Scores = dict[str, float]
Fit = Callable[[pl.DataFrame, int, int | None], Any]  # frame, seed, number of trees (None: as the options say)

# The score, "at most" or "at least", and the bar: for adult.
BARS: dict[str, tuple[str, float]] = {
    "C2ST": ("<=", 0.61),
    "TSTR": (">=", 0.913),
    "marginals, train": ("<=", 0.012),
    "marginals, test": ("<=", 0.012),
    "NLL, test": ("<=", 28.7),
    "unseen education pairs": ("<=", 0.001),
    "female husbands, male wives": ("<=", 0.003),
}


# ---------------------------------------------------------------- what is measured


class Resampler:
    """What stands in for a model: rows drawn again from the training rows, whole or each column by itself."""

    def __init__(self, frame: pl.DataFrame, *, whole_rows: bool) -> None:
        self.frame = frame
        self.whole_rows = whole_rows

    def sample(self, n: int, *, seed: int) -> pl.DataFrame:
        """Draw `n` rows with replacement."""
        if self.whole_rows:
            return self.frame.sample(n, with_replacement=True, seed=seed)
        columns = self.frame.get_columns()
        return pl.DataFrame(
            [column.sample(n, with_replacement=True, seed=seed + i) for i, column in enumerate(columns)]
        )


def fitter(options: Mapping[str, Any], baseline: str | None) -> Fit:
    """The function that fits: the package with these options, or a baseline."""

    def fit(frame: pl.DataFrame, seed: int, trees: int | None) -> Any:
        if baseline is not None:
            return Resampler(frame, whole_rows=baseline == "bootstrap")
        wanted = {"progress": False} | dict(options) | ({} if trees is None else {"trees": trees})
        return arf_dask.fit(frame, seed=seed, **wanted)

    return fit


def measure(name: str, data: Dataset, fit: Fit, seed: int) -> Scores:
    """All scores of one fit and one draw of as many rows as were fitted, but for the likelihood."""
    started = time.perf_counter()
    model = fit(data.train, seed, None)
    fitted = time.perf_counter()
    synthetic = model.sample(data.train.height, seed=seed)
    drawn = time.perf_counter()
    scores = {"fit, s": fitted - started, "sample, s": drawn - fitted}
    scores |= {part: float(size(getattr(model, part))) for part in ("rounds", "leaves") if hasattr(model, part)}
    scores |= closeness(name, data, synthetic, seed)
    if hasattr(model, "log_density"):
        densities = model.log_density(data.train), model.log_density(data.test)
        scores["membership AUC"] = membership_auc(*densities)
    return scores


def size(part: Any) -> int:
    """How many there are of something that is a number or has a length."""
    return part if isinstance(part, int) else len(part)


def closeness(name: str, data: Dataset, synthetic: pl.DataFrame, seed: int) -> Scores:
    """The scores that need only frames."""
    scores = {"C2ST": c2st(data.test, synthetic, seed)}
    if data.target is not None:
        scores["TSTR"] = tstr(synthetic, data.test, data.target, seed)
    scores |= {
        "marginals, train": mean_marginal_distance(data.train, synthetic),
        "marginals, test": mean_marginal_distance(data.test, synthetic),
        "pairs, train": pairwise_distance(data.train, synthetic),
        "pairs, test": pairwise_distance(data.test, synthetic),
        "nearer to training": nearer_to_training(synthetic, data.train, data.test, seed),
    }
    if name == "adult":
        scores["unseen education pairs"] = unseen_pairs(data.train, synthetic, ["education", "education_num"])
        scores["female husbands, male wives"] = odd_couples(synthetic)
    return scores


def odd_couples(frame: pl.DataFrame) -> float:
    """The share of rows of adult that are a female husband or a male wife."""
    relationship, sex = (pl.col(name).str.strip_chars() for name in ("relationship", "sex"))
    husband = (relationship == "Husband") & (sex == "Female")
    wife = (relationship == "Wife") & (sex == "Male")
    return float(frame.select((husband | wife).mean()).item())


def likelihood(data: Dataset, fit: Fit, seed: int, trees: int) -> Scores:
    """Mean negative log-density of the test rows in nats, and the share of them the model calls impossible.

    Impossible rows are left out of the mean: look at both numbers.
    """
    model = fit(data.train, seed, trees)
    if not hasattr(model, "log_density"):
        return {}
    densities = np.asarray(model.log_density(data.test), dtype=np.float64)
    possible = np.isfinite(densities)
    mean = -float(densities[possible].mean()) if possible.any() else float("inf")
    return {"NLL, test": mean, "impossible test rows": float(np.mean(~possible))}


# ---------------------------------------------------------------- what is shown


def mean_scores(runs: Sequence[Scores]) -> Scores:
    """The mean of every score over the runs that have it."""
    names = list(dict.fromkeys(name for run in runs for name in run))
    return {name: float(np.mean([run[name] for run in runs if name in run])) for name in names}


def verdict(name: str, means: Scores) -> str:
    """The bar of a score and whether it is reached; empty where there is none."""
    if name not in BARS:
        return ""
    sense, bar = BARS[name]
    reached = means[name] <= bar if sense == "<=" else means[name] >= bar
    left_out = means.get("impossible test rows", 0.0) if name.startswith("NLL") else 0.0
    remark = f", but {left_out:.2%} of the rows left out" if left_out > 0 else ""
    return f"{sense} {bar:g} {'pass' if reached else 'FAIL'}{remark}"


def shown(value: float | None) -> str:
    """A score as text, about four significant digits."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 or (value == round(value) and value > 1) else f"{value:.4f}"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")


def print_scores(runs: Sequence[Scores], seeds: Sequence[int], real: Scores, *, bars: bool) -> None:
    """Print one row per score: its mean, its value for every seed, and that of real rows."""
    header = ["", "mean", *(f"seed {seed}" for seed in seeds), "real"] + (["bar"] if bars else [])
    rows = []
    means = mean_scores(runs)
    for name, mean in means.items():
        row = [name, shown(mean), *(shown(run.get(name)) for run in runs), shown(real.get(name))]
        rows.append(row + ([verdict(name, means)] if bars else []))
    print_table(header, rows)


# ---------------------------------------------------------------- command line


def option(text: str) -> tuple[str, Any]:
    """One `key=value` of the command line; the value is read as Python where it is Python, else as text."""
    key, sign, value = text.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def comma_list(text: str) -> list[str]:
    """The words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> list[int]:
    """The whole numbers between commas."""
    return [int(word) for word in comma_list(text)]


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="directory of the Parquet files")
    parser.add_argument("--only", type=comma_list, help=f"names between commas, of: {', '.join(LOADERS)}")
    parser.add_argument("--trees", type=int)
    parser.add_argument("--min-leaf", type=int)
    parser.add_argument("--seeds", type=numbers, default=[0], help="one fit for each: 0,1,2")
    parser.add_argument("--option", type=option, action="append", default=[], metavar="KEY=VALUE", help="for fit")
    parser.add_argument("--nll-trees", type=int, default=100, help="trees of the model for the likelihood")
    parser.add_argument(
        "--nll-option",
        type=option,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="for that fit only",
    )
    parser.add_argument("--no-nll", action="store_true", help="do not fit a model for the likelihood")
    parser.add_argument("--baseline", choices=["bootstrap", "shuffle"], help="measure this, not the package")
    parser.add_argument("--bars", action="store_true", help="show the bars for adult, and whether they are reached")
    parser.add_argument("--json", type=Path, help="also write the mean scores of all data sets to this file")
    return parser.parse_args()


def main() -> None:
    """Measure and print every data set asked for."""
    asked = arguments()
    options = dict(asked.option)
    options |= {"trees": asked.trees} if asked.trees is not None else {}
    options |= {"min_leaf": asked.min_leaf} if asked.min_leaf is not None else {}
    fit = fitter(options, asked.baseline)
    fit_likelihood = fitter(options | dict(asked.nll_option), asked.baseline)
    means = {}
    for name, data in load(asked.data, asked.only).items():
        runs = [measure(name, data, fit, seed) for seed in asked.seeds]
        if not asked.no_nll:
            runs[0] |= likelihood(data, fit_likelihood, asked.seeds[0], asked.nll_trees)
        rows, columns = data.train.shape
        print(f"\n## {name}: {rows} rows of {columns} columns fitted, {data.test.height} rows held out\n")
        real = closeness(name, data, data.train, asked.seeds[0])
        print_scores(runs, asked.seeds, real, bars=asked.bars and name == "adult")
        means[name] = mean_scores(runs)
    if asked.json is not None:
        asked.json.write_text(json.dumps({"options": repr(options), "scores": means}, indent=1))


if __name__ == "__main__":
    main()
