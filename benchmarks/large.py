"""Fitting data larger than memory: time per stage, peak memory, and what leaf sums cost against the least they could.

    python benchmarks/large.py --rows 2000000 --data large
    python benchmarks/large.py --rows 50000000 --data large --keep
    python benchmarks/large.py --rows 10000000 --data large --scheduler tcp://127.0.0.1:8786

A table of 20 mixed columns is written as many Parquet files (if it is not there yet) and fitted from there. The floor
of leaf aggregation is: read all parts once, route their rows through the same trees, and for every tree one Polars
group-by of the leaf with as many sums: one per variable, and one more for number lines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import polars as pl
import psutil

import arf_dask
from arf_dask.data.opening import open_parts
from arf_dask.data.parts import PartGroup, group_parts, load_each
from arf_dask.forest.routing import RoutingTable, route_to_leaves, routing_table
from arf_dask.runtime.tasks import Threads
from arf_dask.schema.columns import Schema
from arf_dask.schema.encoding import encode_codes, to_axis_values

ROWS_PER_FILE = 500_000
GB = 2**30


# ---------------------------------------------------------------- the data


def write(folder: Path, rows: int, seed: int = 0) -> None:
    """Files of `ROWS_PER_FILE` rows, each from a generator of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, rows, ROWS_PER_FILE)):
        target = folder / f"part-{number:04d}.parquet"
        if not target.exists():
            table(first, min(ROWS_PER_FILE, rows - first), np.random.default_rng([seed, number])).write_parquet(target)


def table(first: int, n: int, rng: np.random.Generator) -> pl.DataFrame:
    """Orders of a shop: 20 columns that depend on each other."""
    city = np.minimum(rng.geometric(0.02, n) - 1, 199)
    country = city % 12
    segment = rng.choice(5, n, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    guest = rng.random(n) < np.array([0.1, 0.2, 0.3, 0.4, 0.6])[segment]
    channel = np.where(guest, rng.choice(4, n, p=[0.7, 0.1, 0.1, 0.1]), rng.choice(4, n))
    device = np.where(channel == 0, rng.choice(6, n), rng.choice(3, n))
    age = np.clip(rng.normal(45 - 4 * segment, 12), 18, 95).astype(np.int64)
    income = np.round(rng.lognormal(10 + age / 100 + 0.1 * segment, 0.4))
    items = 1 + rng.poisson(1 + segment / 2)
    usual = rng.choice([4.99, 9.99, 19.99, 49.99], n)
    price = np.where(rng.random(n) < 0.3, usual, np.round(rng.lognormal(2.5 + 0.2 * country / 12, 0.8), 2))
    discount = np.where(rng.random(n) < 0.7, 0.0, np.round(rng.beta(2, 8, n), 2))
    day = rng.integers(0, 1461, n)
    seconds = rng.integers(0, 86_400, n)
    distance = rng.gamma(2.0, 20 + country)
    score = 0.3 * segment + rng.normal(size=n) + (channel == 1)
    rating = np.clip(np.round(3.5 + 0.5 * score / 2 + rng.normal(0, 1, n)), 1, 5).astype(np.int64)
    total = np.round(price * items * (1 - discount), 2)
    frame = pl.DataFrame(
        {
            "order_id": np.arange(first, first + n) + 1_000_000,
            "city": pl.Series(city).cast(pl.String).str.zfill(3),
            "country": pl.Series(country).replace_strict(list(range(12)), [f"country {i}" for i in range(12)]),
            "segment": pl.Series(segment).replace_strict(list(range(5)), list("ABCDE")),
            "guest": guest,
            "channel": pl.Series(channel).replace_strict(list(range(4)), ["web", "shop", "phone", "partner"]),
            "device": pl.Series(device).replace_strict(list(range(6)), [f"device {i}" for i in range(6)]),
            "age": age,
            "income": income,
            "items": items,
            "price": price,
            "discount": discount,
            "total": total,
            "ordered": pl.Series((19_000 + day) * 86_400 + seconds).cast(pl.Int64) * 1_000_000,
            "delivered": pl.Series(19_000 + day + rng.poisson(2 + distance / 40)).cast(pl.Int32).cast(pl.Date),
            "distance": distance,
            "weight": np.round(items * rng.gamma(3.0, 0.4, n), 3),
            "score": score,
            "rating": rating,
            "returned": rng.random(n) < 0.02 + 0.1 * (rating < 3),
        }
    ).with_columns(pl.col("ordered").cast(pl.Datetime("us")))
    unknown = pl.Series(rng.random(n) < np.where(guest, 0.9, 0.05))
    unrated = pl.Series(rng.random(n) < 0.4)
    return frame.with_columns(
        age=pl.when(~unknown).then("age"),
        income=pl.when(~unknown).then("income"),
        rating=pl.when(~unrated).then("rating"),
    )


# ---------------------------------------------------------------- what is measured


class Watch:
    """Peak resident memory of this process, and of the workers of a cluster, while a block runs."""

    def __init__(self, client: Any = None) -> None:
        self.client, self.peaks = client, dict[str, float]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        here = psutil.Process()
        while not self._stop.wait(0.2):
            found = {"this process": here.memory_info().rss}
            if self.client is not None:
                found |= {str(worker): rss for worker, rss in self.client.run(_resident).items()}
            for name, rss in found.items():
                self.peaks[name] = max(self.peaks.get(name, 0.0), rss / GB)


def _resident() -> int:
    return int(psutil.Process().memory_info().rss)


class Stages:
    """Seconds of every stage, by the clock and of all cores, from the calls of `progress=`."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.work: dict[str, float] = {}
        self._last = time.perf_counter(), time.process_time()

    def __call__(self, stage: str, done: int, total: int, facts: dict[str, Any]) -> None:
        now = time.perf_counter(), time.process_time()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now[0] - self._last[0]
        self.work[stage] = self.work.get(stage, 0.0) + now[1] - self._last[1]
        self._last = now


def floor(path: Path, model: arf_dask.Model, rows: int) -> tuple[float, float]:
    """Seconds a row, by the clock and of all cores, of the least that leaf aggregation takes, from so many rows."""
    routing = [routing_table(tree) for tree in model._fitted.tables.trees]
    started, work, done = time.perf_counter(), time.process_time(), 0
    with open_parts(path) as parts:
        groups = [group for group in group_parts(parts) if group.first < rows]
        for height in Threads().map(_floor_of, (model.schema, routing), groups):
            done += height
    return (time.perf_counter() - started) / done, (time.process_time() - work) / done


def _floor_of(shared: tuple[Schema, list[RoutingTable]], group: PartGroup) -> int:
    schema, routing = shared
    rows = 0
    for frame in load_each(group.parts):
        codes = np.ascontiguousarray(encode_codes(frame, schema))
        columns = {}
        for number, variable in enumerate(schema.variables):
            columns[f"v{number}"] = codes[:, number].astype(np.float64)
            if variable.interval.any():
                lead = schema.columns[variable.columns[0]]
                columns[f"v{number}"] = to_axis_values(frame[lead.name], lead)
                columns[f"s{number}"] = columns[f"v{number}"] ** 2
        table = pl.DataFrame(columns)
        for table_of_tree in routing:
            leaves = pl.Series("leaf", route_to_leaves(table_of_tree, codes).astype(np.uint32))
            table.with_columns(leaves).group_by("leaf").agg(pl.exclude("leaf").sum())
        rows += frame.height
    return rows


@contextmanager
def connected(scheduler: str | None) -> Iterator[Any]:
    """A client of the scheduler, or None."""
    if scheduler is None:
        yield None
        return
    from distributed import Client

    with Client(scheduler, set_as_default=False) as client:
        yield client


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--data", type=Path, required=True, help="folder of the Parquet files; made if it is not there")
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10, help="adversarial rounds after the first, at most")
    parser.add_argument("--scheduler", help="address of a Dask scheduler; threads of this process if not given")
    parser.add_argument("--floor-rows", type=int, default=5_000_000, help="rows the floor is measured on, at least")
    parser.add_argument("--keep", action="store_true", help="leave the data where they are")
    asked = parser.parse_args()
    folder = asked.data / f"rows-{asked.rows}"
    write(folder, asked.rows)
    warnings.simplefilter("ignore", arf_dask.KeyColumnWarning)
    stages = Stages()
    started = time.perf_counter()
    with connected(asked.scheduler) as client, Watch(client) as watch:
        options = {"trees": asked.trees, "max_rounds": asked.rounds, "seed": 1}
        model = arf_dask.fit(folder, **options, progress=stages, client=client)
    whole = time.perf_counter() - started
    print(model)
    print(f"{asked.rows:,} rows x {len(model.schema.columns)} columns, {len(os.sched_getaffinity(0))} cores")
    print(f"fit {whole:.1f} s, {whole / asked.rows * 1e6:.2f} us a row; by stage:")
    for stage, seconds in stages.seconds.items():
        print(f"  {stage:30} {seconds:8.1f} s")
    for name, peak in sorted(watch.peaks.items()):
        print(f"peak of {name}: {peak:.2f} GB")
    sums = stages.seconds["leaf parameters"] / asked.rows, stages.work["leaf parameters"] / asked.rows
    least = floor(folder, model, asked.floor_rows)
    for what, ours, theirs in zip(("by the clock", "of all cores"), sums, least, strict=True):
        print(f"leaf sums, us a row {what}: {ours * 1e6:.2f}, floor {theirs * 1e6:.2f}: {ours / theirs:.2f} times")
    if not asked.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
