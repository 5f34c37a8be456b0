"""Do two versions of the package give the same bytes? Samples and answers of two dozen frames, side by side.

    git worktree add ../before REVISION
    python benchmarks/same_bytes.py ../before .

prints a line per frame: whether the sampled rows are equal, the largest difference of numeric cells if they are not,
and the largest difference of log-densities. Frames with rules, one per transform, are also sampled under a condition
and a frame of conditions, imputed and saved. The exit code is 1 if a frame differs by more than `--tolerance`.
"""

from __future__ import annotations

import argparse
import inspect
import json
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


def ruled_frames() -> dict[str, tuple[pl.DataFrame, list[Any], dict[str, Any]]]:
    """A frame, declared rules and a condition for every kind of transform, and for some of them together."""
    rng = np.random.default_rng(4)
    n = ROWS
    levels = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    price, count = np.round(np.exp(rng.normal(3, 0.5, n)), 2), rng.integers(1, 9, n)
    start = [date(2020, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 900, n)]
    hours = rng.choice(
        24, n, p=np.exp(-((np.arange(24) - 13) ** 2) / 20) / np.exp(-((np.arange(24) - 13) ** 2) / 20).sum()
    )
    moment = [
        datetime(2021, 1, 1) + timedelta(days=int(d), hours=int(h), minutes=int(m))
        for d, h, m in zip(rng.integers(0, 300, n), hours, rng.integers(0, 60, n), strict=True)
    ]
    month = [date(2018 + int(m) // 12, int(m) % 12 + 1, 1) for m in rng.integers(0, 60, n)]
    minute = rng.integers(0, 1_440, n)
    later = (minute + rng.integers(20, 200, n)) % 1_440
    mixed = np.where(rng.random(n) < 0.6, np.round(price * 99, 1), np.round(price * 99 + rng.random(n), 3))
    follows = rng.random(n) < 0.6
    stated = np.where(follows, price, np.round(price * rng.random(n) * 2, 2))
    texts = [one.strftime("%d.%m.%Y") for one in start]
    low = rng.integers(0, 50, n)
    return {
        "computed": (pl.DataFrame({"q": count, "p": price, "t": np.round(count * price, 2)}), [], {"t": (20.0, 60.0)}),
        "state": (
            pl.DataFrame({"p": price, "v": stated, "g": levels}),
            [],
            {"v": (10.0, 30.0)},
        ),
        "gap": (pl.DataFrame({"a": low, "b": low + rng.poisson(3, n), "g": levels}), ["a <= b"], {"b": (5, 20)}),
        "days": (
            pl.DataFrame(
                {"from": start, "to": [d + timedelta(days=int(k)) for d, k in zip(start, count, strict=True)]}
            ),
            [],
            {"to": (date(2021, 1, 1), None)},
        ),
        "clock": (
            pl.DataFrame({"dep": minute // 60 * 100 + minute % 60, "arr": later // 60 * 100 + later % 60, "g": levels}),
            [],
            {"g": "a"},
        ),
        "grid": (pl.DataFrame({"month": month, "half": count * 0.5 + low, "g": levels}), [], {"half": (5.0, 20.0)}),
        "dates": (pl.DataFrame({"day": texts, "g": levels}), [], {"day": texts[:3]}),
        "parts": (pl.DataFrame({"at": moment, "g": levels}), [], {"at": (datetime(2021, 3, 1), datetime(2021, 4, 1))}),
        "hours": (
            pl.DataFrame({"at": moment, "hour": hours, "g": levels}),
            [],
            {"at": (datetime(2021, 3, 1), datetime(2021, 4, 1))},
        ),
        "mixture": (pl.DataFrame({"x": mixed, "g": levels}), [], {"x": (1_000.0, 2_000.0)}),
    }


def write_ruled_results(directory: Path) -> None:
    """Write the samples and answers of the frames with rules, and the file that describes the model."""
    import arf_dask

    for name, (frame, rules, given) in ruled_frames().items():
        model = arf_dask.fit(frame, trees=5, min_leaf=10, rules=rules, seed=SEED, progress=False)
        model.save(directory / f"{name}.model")
        column = frame.columns[0]
        holes = frame.head(40).with_columns(pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.col(column)).alias(column))
        results = {
            "rows": model.sample(2_000, seed=5),
            "given": model.sample(500, given=given, seed=5),
            "frame": model.sample(3, given=frame.select(frame.columns[-1]).head(40), on_impossible="relax", seed=5),
            "impute": model.impute(holes, draws=1, seed=5)[0],
            "density": pl.DataFrame({"density": model.log_density(frame.head(200))}),
            "partial": pl.DataFrame({"density": model.log_density(frame.head(20).select(frame.columns[:1]))}),
        }
        for part, result in results.items():
            result.write_parquet(directory / f"{name}.{part}.parquet")


def write_results(directory: Path) -> None:
    import warnings

    import arf_dask

    warnings.simplefilter("ignore")
    (directory / "ruled").mkdir()
    for name, frame in frames().items():
        trees = 4 if name == "large" else 10
        known: dict[str, Any] = {
            key: value for key, value in CONSERVATIVE.items() if key in inspect.signature(arf_dask.fit).parameters
        }
        model = arf_dask.fit(frame, trees=trees, min_leaf=10, seed=SEED, progress=False, **known)
        model.sample(2_000, seed=5).write_parquet(directory / f"{name}.rows.parquet")
        density = model.log_density(frame.head(500).select(model.schema.names))
        pl.DataFrame({"density": density}).write_parquet(directory / f"{name}.density.parquet")
    write_ruled_results(directory / "ruled")


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


def compare_ruled(before: Path, after: Path) -> list[str]:
    """Return the names of the results of frames with rules that differ, model files included."""
    different = []
    for old in sorted((before / "ruled").iterdir()):
        new = after / "ruled" / old.name
        same = _described(old) == _described(new) if old.is_dir() else pl.read_parquet(old).equals(pl.read_parquet(new))
        different += [] if same else [old.name]
    return different


def _described(model: Path) -> str:
    """Return what a model file says of its columns and rules."""
    described = json.loads((model / "model.json").read_text())
    return json.dumps(described.get("relations"), sort_keys=True)


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
    different = compare_ruled(before, after)
    print("frames with rules: " + (f"different: {', '.join(different)}" if different else "all equal"))
    return int(worst > given.tolerance or bool(different))


if __name__ == "__main__":
    sys.exit(main())
