"""What asking a model costs, and how good its densities are.

    python benchmarks/inference.py [--data ../shared/data] [--only density,conditions,expect,impute,gaussian,twenty]

Prints one line per question: seconds, the memory it added, or nats per held-out row.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from datasets import DEFAULT_DATA, adult, twenty

import arf_dask

TWENTY_BARS = {"nltcs": 6.02, "plants": 12.30, "dna": 92.9}
TRUTH = 6.72  # nats of the Toeplitz Gaussian


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--only", default=",".join(QUESTIONS))
    asked = parser.parse_args()
    warnings.simplefilter("ignore", arf_dask.KeyColumnWarning)
    for name in asked.only.split(","):
        QUESTIONS[name](asked.data)


def density(data: Path) -> None:
    train, test, _ = adult(data, 0)
    model = arf_dask.fit(train, trees=50, refine=False, seed=0)
    seconds, memory, _ = timed(lambda: model.log_density(test))
    again = min(timed(lambda: model.log_density(test))[0] for _ in range(3))
    print(
        f"log_density, {test.height:,} adult rows, 50 trees: first {seconds:.2f} s, then {again:.2f} s "
        f"(+{memory:.0f} MB, peak {peak():.0f} MB)"
    )


def conditions(_: Path) -> None:
    model, frame = eleven_columns()
    given = frame.head(1_000).select("x0", "x1", "x2")
    seconds, memory, drawn = timed(lambda: model.sample(100, given=given, seed=0))
    cost = f"{seconds:.2f} s (+{memory:.0f} MB, peak {peak():.0f} MB)"
    print(f"1,000 conditions x 100 draws, 200 trees: {cost}, {drawn.height:,} rows")


def expect(_: Path) -> None:
    model, frame = eleven_columns()
    seconds, memory, _found = timed(lambda: model.expect(given=frame.head(100).select("x0", "x1", "x2")))
    print(f"expect for 100 conditions, 200 trees: {seconds:.2f} s (+{memory:.0f} MB, peak {peak():.0f})")
    seconds, memory, _found = timed(lambda: model.expect(given={"x0": (0.5, 1.0), "c0": "1"}))
    print(f"expect for one condition, 200 trees: {seconds:.2f} s (+{memory:.0f} MB)")


def impute(data: Path) -> None:
    train, _, _ = adult(data, 0)
    model = arf_dask.fit(train, refine=False, seed=0)
    rng = np.random.default_rng(0)
    rows = model.sample(100_000, seed=1)
    holes = rows.with_columns(
        pl.when(pl.Series(rng.random(rows.height) >= 0.1)).then(pl.col(c)).alias(c) for c in rows.columns
    )
    for draws in (None, 1):
        seconds, memory, _done = timed(partial(model.impute, holes, draws=draws, seed=0))
        cost = f"{seconds:.2f} s (+{memory:.0f} MB, peak {peak():.0f} MB)"
        print(f"impute 100,000 adult rows, 10 % missing, draws={draws}: {cost}")


def gaussian(_: Path) -> None:
    d = 10
    sigma = 0.9 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
    scores: dict[str, list[float]] = {"truncnorm": [], "uniform": []}
    outside = 0
    for replicate in range(5):
        rng = np.random.default_rng(replicate)
        both = pl.DataFrame(
            rng.multivariate_normal(np.zeros(d), sigma, 3_000), [f"x{i}" for i in range(d)], orient="row"
        )
        family: Any
        for family in scores:
            model = arf_dask.fit(
                both.head(2_000), trees=100, support="open", family=family, refine=False, seed=replicate
            )
            found = model.log_density(both.tail(1_000)).to_numpy()
            finite = np.isfinite(found)
            outside += int((~finite).sum()) if family == "truncnorm" else 0
            scores[family].append(float(-found[finite].mean()))
    _conditional_means(sigma)
    for family, nll in scores.items():
        score = f"{np.mean(nll):.3f} +- {np.std(nll):.3f} nats (truth {TRUTH})"
        print(f"Toeplitz Gaussian, 100 trees, open, {family}: {score}")
    print(f"rows at -inf with truncnorm: {outside}")


def _conditional_means(sigma: np.ndarray) -> None:
    """E[x4 | x3, x5] against the closed form; next to it a straight line fitted to the same rows: sampling error."""
    known, asked = [3, 5], 4
    slopes = np.linalg.solve(sigma[np.ix_(known, known)], sigma[known, asked])
    points = np.array([(a, b) for a in (-1.0, 0.0, 1.0) for b in (-1.0, 0.0, 1.0) if abs(a - b) < 2])
    given = pl.DataFrame(points, [f"x{i}" for i in known], orient="row")
    errors, lines = [], []
    for replicate in range(5):
        rng = np.random.default_rng(100 + replicate)
        rows = rng.multivariate_normal(np.zeros(len(sigma)), sigma, 2_000)
        frame = pl.DataFrame(rows, [f"x{i}" for i in range(len(sigma))], orient="row")
        model = arf_dask.fit(frame, trees=100, support="open", refine=False, seed=replicate)
        found = model.expect([f"x{asked}"], given=given)[f"x{asked}"].to_numpy()
        errors.append(found - points @ slopes)
        lines.append(points @ np.linalg.lstsq(rows[:, known], rows[:, asked])[0] - points @ slopes)
    print(
        f"Toeplitz Gaussian, E[x4 | x3, x5] at {len(points)} points: root mean square error "
        f"{np.sqrt(np.mean(np.square(errors))):.3f} (bias {np.abs(np.mean(errors, axis=0)).mean():.3f}, between "
        f"replicates {np.std(errors, axis=0, ddof=1).mean():.3f}); of a line fitted to the same rows "
        f"{np.sqrt(np.mean(np.square(lines))):.3f}"
    )


def twenty_datasets(data: Path) -> None:
    for name, bar in TWENTY_BARS.items():
        train, test, _ = twenty(name)(data, 0)
        found = arf_dask.fit(train, trees=100, refine=False, seed=0).log_density(test)
        nats = -found.to_numpy().mean()
        print(f"{name}, 100 trees: {nats:.3f} nats (bar {bar}), {(~found.is_finite()).sum()} rows at -inf")


def eleven_columns() -> tuple[arf_dask.Model, pl.DataFrame]:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(10_000, 3))
    columns = {f"x{i}": (hidden @ rng.normal(size=3) + rng.normal(size=10_000)).round(2) for i in range(8)}
    columns |= {f"c{i}": np.digitize(hidden[:, i], [-1, 0, 1]).astype(str) for i in range(3)}
    frame = pl.DataFrame(columns)
    return arf_dask.fit(frame, trees=200, refine=False, seed=0), frame


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, MB added to the peak of memory, and the result."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024, result


def peak() -> float:
    """The most memory this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


QUESTIONS: dict[str, Callable[[Path], None]] = {
    "density": density,
    "conditions": conditions,
    "expect": expect,
    "impute": impute,
    "gaussian": gaussian,
    "twenty": twenty_datasets,
}

if __name__ == "__main__":
    main()
