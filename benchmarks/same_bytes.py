"""Do two versions of the package give the same bytes? Samples and log-densities of a dozen frames, side by side.

    git worktree add ../before REVISION
    python benchmarks/same_bytes.py ../before .

prints a line per frame: whether the sampled rows are equal, the largest difference of numeric cells if they are not,
and the largest difference of log-densities. The exit code is 1 if a frame differs by more than `--tolerance`.
"""

from __future__ import annotations

import argparse
import inspect
import os
import subprocess
import sys
import tempfile
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROWS = 1_500
SEED = 11


def frames() -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(3)
    n = ROWS
    x = rng.normal(size=n)
    levels = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, n)]
    day = [date(2020, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 900, n)]
    moment = [datetime(2021, 5, 1) + timedelta(seconds=int(s)) for s in rng.integers(0, 10**7, n)]
    amount = np.round(np.exp(rng.normal(3, 1, n)), 2)
    spiky = np.where(rng.random(n) < 0.4, 0.0, amount)
    ages, known = pl.Series(rng.integers(20, 60, n)), pl.Series(rng.random(n) < 0.8)
    holes = pl.select(pl.when(known).then(ages)).to_series()
    return {
        "normals": pl.DataFrame({"x": x, "y": x + rng.normal(size=n), "z": rng.normal(size=n)}),
        "levels": pl.DataFrame({"g": levels, "h": np.where(levels == "a", "p", levels), "k": rng.random(n) < 0.3}),
        "dates": pl.DataFrame({"day": day, "moment": moment, "x": x}),
        "spikes": pl.DataFrame({"amount": amount, "spiky": spiky, "g": levels}),
        "missing": pl.DataFrame({"age": holes, "g": levels, "x": x}),
        "nan": pl.DataFrame({"x": np.where(rng.random(n) < 0.1, np.nan, x), "g": levels}),
        "bundle": pl.DataFrame({"g": levels, "code": np.searchsorted(["a", "b", "c", "d"], levels) * 7, "x": x}),
        "keys": pl.DataFrame({"id": np.arange(1_000, 1_000 + n), "g": levels, "x": x}),
        "text": pl.DataFrame({"mail": [f"u{i:05d}@example.org" for i in range(n)], "g": levels}),
        "decimals": pl.DataFrame({"price": amount}).with_columns(pl.col("price").cast(pl.Decimal(12, 2)), g=levels),
        "integers": pl.DataFrame({"a": rng.integers(0, 10**12, n), "b": rng.poisson(4, n), "c": rng.integers(0, 2, n)}),
        "wide": pl.DataFrame({f"c{i:02d}": rng.normal(size=n) + (i % 3) * x for i in range(24)}),
        "durations": pl.DataFrame({"gap": pl.Series(rng.integers(0, 10**6, n)).cast(pl.Duration("ms")), "g": levels}),
        "large": pl.concat([pl.DataFrame({"x": rng.normal(size=300_000), "g": levels[rng.integers(0, n, 300_000)]})]),
    }


def write_results(directory: Path) -> None:
    import warnings

    import arf_dask

    warnings.simplefilter("ignore")
    for name, frame in frames().items():
        trees = 4 if name == "large" else 10
        known: dict[str, Any] = {
            key: value for key, value in CONSERVATIVE.items() if key in inspect.signature(arf_dask.fit).parameters
        }
        model = arf_dask.fit(frame, trees=trees, min_leaf=10, seed=SEED, progress=False, **known)
        model.sample(2_000, seed=5).write_parquet(directory / f"{name}.rows.parquet")
        density = model.log_density(frame.head(500).select(model.schema.names))
        pl.DataFrame({"density": density}).write_parquet(directory / f"{name}.density.parquet")


# Options that later versions have, set to what earlier versions did.
CONSERVATIVE = {"dependence": "none", "find_rules": False}


def run(source: str) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="same-bytes-"))
    environment = {**os.environ, "PYTHONPATH": str(Path(source).resolve())}
    command = [sys.executable, str(Path(__file__).resolve()), "--write", str(directory)]
    subprocess.run(command, env=environment, check=True, cwd=directory)
    return directory


def compare(before: Path, after: Path, name: str) -> tuple[bool, float, float]:
    old, new = (pl.read_parquet(place / f"{name}.rows.parquet") for place in (before, after))
    same = old.equals(new)
    numbers = [column for column, dtype in old.schema.items() if dtype.is_numeric()]
    rows = 0.0 if same else max((largest_gap(old[c], new[c]) for c in numbers), default=np.inf)
    old, new = (pl.read_parquet(place / f"{name}.density.parquet") for place in (before, after))
    return same, rows, largest_gap(old["density"], new["density"])


def largest_gap(one: pl.Series, other: pl.Series) -> float:
    a, b = one.cast(pl.Float64).to_numpy(), other.cast(pl.Float64).to_numpy()
    if len(a) != len(b):
        return float("inf")
    gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(np.nan_to_num(gap, nan=np.inf).max(initial=0.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", help="two source trees: before and after")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    parser.add_argument("--tolerance", type=float, default=0.0, help="difference of log-densities that still passes")
    given = parser.parse_args()
    if given.write is not None:
        write_results(Path(given.write))
        return 0
    before, after = map(run, given.sources)
    worst = 0.0
    for name in frames():
        same, rows, density = compare(before, after, name)
        worst = max(worst, density, 0.0 if same else rows)
        print(
            f"{name:10s} rows {'equal' if same else f'differ by {rows:.3g}':20s} log-density differs by {density:.3g}"
        )
    return int(worst > given.tolerance)


if __name__ == "__main__":
    sys.exit(main())
