"""How fast `sample_parquet` writes, against writing as much random data of the same schema.

    python benchmarks/output.py
    python benchmarks/output.py --rows 100_000_000 --keep /data/out
    python benchmarks/output.py --scheduler tcp://127.0.0.1:8786

Both sides write the same number of rows to files of the same size, with the same writer and threads; the other one
draws uniform numbers and uniform picks of the levels. They take turns, and medians are compared.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import polars as pl
from datasets import DEFAULT_DATA, mixed_table
from fidelity import print_table
from metrics import has_levels
from speed import uniform_frame

import arf_dask
from arf_dask.inference.forge import BLOCK_ROWS
from arf_dask.runtime.tasks import Threads
from arf_dask.storage.parquet import arrow_schema, dictionary_columns, write_part

BAR = 3.5


def write_random(directory: Path, model: arf_dask.Model, seen: pl.DataFrame, rows: int, rows_per_file: int) -> None:
    """As many rows of the same schema, without any model."""
    shared = directory, model, seen, rows, rows_per_file
    for _ in Threads().map(write_random_part, shared, range(-(-rows // rows_per_file))):
        pass


def write_random_part(shared: tuple[Path, arf_dask.Model, pl.DataFrame, int, int], part: int) -> None:
    directory, model, seen, rows, rows_per_file = shared
    height = min(rows_per_file, rows - part * rows_per_file)

    def frames() -> Iterator[pl.DataFrame]:
        for first in range(0, height, BLOCK_ROWS):
            yield uniform_frame(seen, min(BLOCK_ROWS, height - first), first)

    dictionary = dictionary_columns(model.schema)
    write_part(directory / f"{part}.parquet", frames(), arrow_schema(model.schema.dtypes), {}, dictionary)


def levels_and_ranges(frame: pl.DataFrame) -> pl.DataFrame:
    """A few rows that hold every level and the ends of every range."""
    parts = [frame.unique(subset=[name]) for name in frame.columns if has_levels(frame.schema[name])]
    parts += [frame.filter((pl.col(n) == pl.col(n).min()) | (pl.col(n) == pl.col(n).max())) for n in frame.columns]
    return pl.concat(parts).unique()


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a Parquet file; default: adult if it is there, else generated rows")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rows-per-file", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--scheduler", help="address of a Dask scheduler; the other side stays on threads")
    parser.add_argument("--keep", type=Path, help="write here, once, and measure only that")
    return parser.parse_args()


def table(asked: argparse.Namespace) -> pl.DataFrame:
    """The rows to learn from."""
    adult = DEFAULT_DATA / "adult_train.parquet"
    path = asked.data if asked.data is not None else adult
    return pl.read_parquet(path) if path.exists() else mixed_table(20_000, 15)


def main() -> None:
    """Measure and print."""
    asked = arguments()
    frame = table(asked)
    model = arf_dask.fit(frame, seed=0, progress=False)
    seen = levels_and_ranges(frame)
    times: dict[str, list[float]] = {"arf_dask": [], "random": []}
    size = 0
    for number in range(1 if asked.keep is not None else asked.repetitions):
        scratch = Path(tempfile.mkdtemp(prefix="arf_dask-output-"))
        try:
            started = time.perf_counter()
            manifest = model.sample_parquet(
                asked.keep if asked.keep is not None else scratch / "out",
                asked.rows,
                seed=number,
                rows_per_file=asked.rows_per_file,
                client=asked.scheduler,
                progress=True if asked.keep is not None else None,
            )
            times["arf_dask"].append(time.perf_counter() - started)
            size = manifest.bytes
            if number == 0:
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            if asked.keep is None:
                started = time.perf_counter()
                write_random(scratch, model, seen, asked.rows, asked.rows_per_file)
                times["random"].append(time.perf_counter() - started)
        finally:
            shutil.rmtree(scratch)
    ours = median(times["arf_dask"])
    speed = [f"{asked.rows / ours / 1e6:.2f}", f"{size / ours / 1e6:.1f}", f"{memory:,.0f}"]
    ratio = ["", "", ""]
    if times["random"]:
        theirs = median(times["random"])
        reached = "pass" if ours / theirs <= BAR else "FAIL"
        ratio = [f"{theirs:.2f}", f"{ours / theirs:.2f}", f"<= {BAR:g} {reached}"]
    header = ["rows", "s", "M rows/s", "MB/s", "peak MB", "random, s", "ratio", "bar"]
    print_table(header, [[f"{asked.rows:,}", f"{ours:.2f}", *speed, *ratio]])


if __name__ == "__main__":
    main()
