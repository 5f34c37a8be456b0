"""What dependence inside leaves costs at scale: time and memory of the fit and of the first queries after it.

    python benchmarks/dependence.py --data large
    python benchmarks/dependence.py --data large --rows 12000000 --keep

The table has 12 cumulative sums of normals and 8 columns of classes of them, so that neighbouring columns depend on
each other in every leaf however many leaves there are. It is written as Parquet files (if they are not there yet) and
fitted from there. Every query is the first of its process, as on every worker of a cluster; "fit and sample" is one
process. Peaks are of the resident memory of the process, Python and libraries included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
import psutil
from fidelity import print_table
from large import GB, Watch

import arf_dask

ROWS_PER_FILE = 500_000
LEVELS = (4, 5, 6, 7, 8, 9, 10, 12)
DRAWN, ASKED = 1_000, 2_000


# ---------------------------------------------------------------- the data


def write(folder: Path, rows: int) -> None:
    """Files of `ROWS_PER_FILE` rows, each from a generator of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, rows, ROWS_PER_FILE)):
        target = folder / f"part-{number:04d}.parquet"
        if not target.exists():
            table(min(ROWS_PER_FILE, rows - first), np.random.default_rng([0, number])).write_parquet(target)


def table(n: int, rng: np.random.Generator) -> pl.DataFrame:
    """12 cumulative sums of normals, and 8 columns of about equally frequent classes of some of them."""
    sums = np.cumsum(rng.normal(size=(n, 12)), axis=1)
    columns: dict[str, Any] = {f"x{j}": sums[:, j] for j in range(12)}
    for number, levels in enumerate(LEVELS):
        place = 4 + number
        cuts = NormalDist(0, (place + 1) ** 0.5).quantiles(levels)
        columns[f"c{number}"] = pl.Series([f"class {level}" for level in range(levels)]).gather(
            np.searchsorted(cuts, sums[:, place])
        )
    return pl.DataFrame(columns)


# ---------------------------------------------------------------- what is measured, each in a process of its own


Row = list[str]


def fit_and_sample(folder: Path, target: Path, options: dict[str, Any]) -> list[Row]:
    """Fit and save a model, and draw its first rows."""
    fitted: list[Any] = []
    rows = [timed("fit", lambda: fitted.append(arf_dask.fit(folder, **options)))]
    rows.append(timed(f"first sample({DRAWN:,})", lambda: fitted[0].sample(DRAWN, seed=1)))
    rows.append(timed("second sample", lambda: fitted[0].sample(DRAWN, seed=2)))
    fitted[0].save(target)
    return [*rows, ["the saved model", "", "", f"{folder_size(target):.0f} MB"]]


def load_and_sample(target: Path) -> list[Row]:
    """Draw the first rows of a saved model."""
    loaded: list[Any] = []
    rows = [timed("load", lambda: loaded.append(arf_dask.load(target)))]
    return [*rows, timed(f"first sample({DRAWN:,}) of a loaded model", lambda: loaded[0].sample(DRAWN, seed=1))]


def load_and_ask(target: Path, folder: Path) -> list[Row]:
    """Ask a saved model for densities."""
    model = arf_dask.load(target)
    rows = pl.read_parquet(next(folder.glob("*.parquet")), n_rows=ASKED)
    densities: list[pl.Series] = []
    answers = [
        timed(f"{which} log_density of {ASKED:,} rows", lambda: densities.append(model.log_density(rows)))
        for which in ("first", "second")
    ]
    return [*answers, ["its mean", f"{np.mean(densities[0].to_numpy()):.4f} nats"]]


def timed(what: str, action: Callable[[], object]) -> Row:
    """A row of the table: what was done, seconds by the clock and of all cores, peak of memory, and warnings."""
    started, work = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught, Watch() as watch:
        warnings.simplefilter("always", RuntimeWarning)
        action()
    taken, worked = time.perf_counter() - started, time.process_time() - work
    peak = watch.peaks.get("this process", psutil.Process().memory_info().rss / GB)
    told = {str(one.message) for one in caught if issubclass(one.category, RuntimeWarning)}
    return [what, f"{taken:.1f} s", f"{worked:.1f} s", f"{peak:.2f} GB", *sorted(told)]


def folder_size(folder: Path) -> float:
    """The size of all files of a folder, in MB."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


def apart(action: Callable[..., list[Row]], *arguments: Any) -> list[Row]:
    """The rows of the table that a new process returns."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(action, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--data", type=Path, required=True, help="folder of the Parquet files; made if it is not there")
    parser.add_argument("--trees", type=int, default=10)
    parser.add_argument("--keep", action="store_true", help="leave the data and the model where they are")
    asked = parser.parse_args()
    folder, target = asked.data / f"rows-{asked.rows}", asked.data / f"model-{asked.rows}"
    write(folder, asked.rows)
    shutil.rmtree(target, ignore_errors=True)
    options = {"trees": asked.trees, "refine": False, "seed": 0, "progress": False}
    rows = apart(fit_and_sample, folder, target, options)
    rows += apart(load_and_sample, target)
    rows += apart(load_and_ask, target, folder)
    width = max(map(len, rows))
    print_table(
        ["", "time", "processor time", "peak", "warning"][:width], [row + [""] * (width - len(row)) for row in rows]
    )
    if not asked.keep:
        shutil.rmtree(folder)
        shutil.rmtree(target)


if __name__ == "__main__":
    main()
