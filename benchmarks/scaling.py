"""How time, memory and model size grow with rows, columns, trees and rows drawn.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --quick
    python benchmarks/scaling.py --only rows,draws

Every case runs in a process of its own. "peak" is what fitting or drawing adds to its memory at most; the
exponent after a column is the growth between neighbouring cases: 1 is linear, 2 quadratic.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from datasets import mixed_table
from fidelity import comma_list, print_table

import arf_dask

MB = 2**20


@dataclass(frozen=True)
class Case:
    """What to fit and how much to draw."""

    rows: int = 10_000
    columns: int = 20
    trees: int = 20
    draws: int = 10_000


@dataclass(frozen=True)
class Result:
    """What one case took: seconds, and memory and disk in MB."""

    fit: float
    fit_peak: float
    sample: float
    sample_peak: float
    frame: float
    drawn: float
    model: float


SERIES: dict[str, list[Case]] = {
    "rows": [Case(rows=n) for n in (10_000, 30_000, 100_000, 300_000, 1_000_000)],
    "columns": [Case(rows=5_000, columns=d) for d in (10, 30, 100, 300, 1_000)],
    "trees": [Case(trees=trees) for trees in (5, 10, 20, 40, 80)],
    "draws": [Case(draws=n) for n in (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)],
}
QUICK: dict[str, list[Case]] = {
    "rows": [Case(rows=n, trees=5) for n in (1_000, 3_000, 10_000)],
    "columns": [Case(rows=1_000, columns=d, trees=5) for d in (10, 30, 100)],
    "trees": [Case(rows=1_000, trees=trees) for trees in (5, 10, 20)],
    "draws": [Case(rows=1_000, trees=5, draws=n) for n in (10_000, 30_000, 100_000)],
}


# ---------------------------------------------------------------- one case, in a process of its own


class PeakMemory:
    """Watches the memory of this process while a block runs; `added` is the most it grew, in MB."""

    def __enter__(self) -> PeakMemory:
        gc.collect()
        self.process = psutil.Process()
        self.before = self.process.memory_info().rss
        self.high_water = high_water_mark()
        self.most = self.before
        self.stop = threading.Event()
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        self.watcher.join()
        reached = high_water_mark()
        if reached > self.high_water:  # the system saw every moment; the watcher only every few milliseconds
            self.most = max(self.most, reached)

    def watch(self) -> None:
        """Look every five milliseconds until told to stop."""
        while not self.stop.wait(0.005):
            self.most = max(self.most, self.process.memory_info().rss)

    @property
    def added(self) -> float:
        """The most memory that the block added."""
        return float(self.most - self.before) / MB


def high_water_mark() -> int:
    """The most memory this process ever held, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def timed(action: Callable[[], Any]) -> tuple[Any, float, float]:
    """What an action gives, its seconds, and the memory it added in MB."""
    with PeakMemory() as memory:
        started = time.perf_counter()
        result = action()
        elapsed = time.perf_counter() - started
    return result, elapsed, memory.added


def write_table(path: Path, rows: int, columns: int) -> None:
    """Write the table of a case, so that making it leaves no trace in the memory of the process that fits."""
    mixed_table(rows, columns).write_parquet(path)


def run_case(path: Path, case: Case) -> Result:
    """Fit the table at `path`, draw, and save."""
    frame = pl.read_parquet(path)
    arf_dask.fit(frame.head(200), trees=2, seed=0, progress=False).sample(10, seed=0)  # load what loads lazily
    model, fit, fit_peak = timed(lambda: arf_dask.fit(frame, trees=case.trees, seed=0, progress=False))
    drawn, sample, sample_peak = timed(lambda: model.sample(case.draws, seed=1))
    with tempfile.TemporaryDirectory() as directory:
        saved = Path(directory) / "model"
        model.save(saved)
        stored = sum(file.stat().st_size for file in saved.rglob("*") if file.is_file())
    return Result(
        fit,
        fit_peak,
        sample,
        sample_peak,
        frame.estimated_size() / MB,
        drawn.estimated_size() / MB,
        stored / MB,
    )


def in_process(function: Callable[..., Any], *values: object) -> Any:
    """Run a function in a fresh process: memory is counted from nothing."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *values).result()


# ---------------------------------------------------------------- tables


def exponent(sizes: Sequence[float], values: Sequence[float], position: int) -> str:
    """How a value grew since the case before: the power of the size; empty where it cannot be said."""
    if position == 0 or min(values[position - 1], values[position]) <= 0:
        return ""
    grown = math.log(values[position] / values[position - 1])
    return f"{grown / math.log(sizes[position] / sizes[position - 1]):.2f}"


def series_rows(sizes: Sequence[int], results: Sequence[Result]) -> list[list[str]]:
    """One row per case: sizes and values, with exponents for what should grow linearly."""
    fits, samples = [result.fit for result in results], [result.sample for result in results]
    models = [result.model for result in results]
    return [
        [
            f"{sizes[i]:,}",
            f"{result.fit:.2f}",
            exponent(sizes, fits, i),
            f"{result.fit_peak:.0f}",
            f"{result.frame:.1f}",
            f"{(result.fit_peak - result.model) / result.frame:.1f}",
            f"{result.model:.1f}",
            exponent(sizes, models, i),
            f"{result.sample:.2f}",
            exponent(sizes, samples, i),
            f"{result.sample_peak:.0f}",
            f"{result.drawn:.1f}",
        ]
        for i, result in enumerate(results)
    ]


HEADER = [
    "fit s",
    "exp",
    "fit peak MB",
    "frame MB",
    "(peak-model)/frame",
    "model MB",
    "exp",
    "sample s",
    "exp",
    "sample peak MB",
    "drawn MB",
]


def measure_series(cases: Sequence[Case]) -> list[Result]:
    """The results of all cases, one after the other."""
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for case in cases:
            path = Path(directory) / f"{case.rows}x{case.columns}.parquet"
            if not path.exists():
                in_process(write_table, path, case.rows, case.columns)
            results.append(in_process(run_case, path, case))
    return results


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small cases only")
    parser.add_argument("--only", type=comma_list, default=list(SERIES), help=f"of: {', '.join(SERIES)}")
    return parser.parse_args()


def main() -> None:
    """Measure and print every series asked for."""
    asked = arguments()
    for name in asked.only:
        cases = (QUICK if asked.quick else SERIES)[name]
        fixed = ", ".join(f"{key} {value:,}" for key, value in vars(cases[0]).items() if key != name)
        results = measure_series(cases)
        print(f"\n## growth with {name} ({fixed})\n")
        print_table([name, *HEADER], series_rows([getattr(case, name) for case in cases], results))


if __name__ == "__main__":
    main()
