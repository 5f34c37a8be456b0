"""What a second worker process brings, what a task costs, and how many bytes move between processes.

    python benchmarks/cluster.py
    python benchmarks/cluster.py --rows 500_000 --only trees,sampling
    python benchmarks/cluster.py --only fit --fitted 50_000_000 --data large

Workers are processes of one thread each, on this machine. Trees are those of the first adversarial round; samples are
drawn and written to Parquet; the whole fit reads Parquet files. Run it on an idle machine: bytes are those that crossed
the loopback device meanwhile. The peak memory of every worker is that of its whole life.
"""

from __future__ import annotations

import argparse
import logging
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from datasets import mixed_table
from distributed import Client, LocalCluster
from fidelity import print_table
from large import write

import arf_dask
from arf_dask.forest.adversary import Training, train
from arf_dask.runtime.cluster import Cluster
from arf_dask.runtime.progress import Progress
from arf_dask.schema.encoding import encode_codes
from arf_dask.schema.learning import infer_schema

SPEED_BAR, OVERHEAD_BAR = 1.8, 1.2
TASKS, TASK_SECONDS = 1_000, 0.02


@contextmanager
def workers(n: int) -> Iterator[Client]:
    """A cluster of worker processes on this machine, each with one thread of its own and one of Polars."""
    environment = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    quiet = {"dashboard_address": None, "silence_logs": logging.ERROR}
    with (
        LocalCluster(n_workers=n, threads_per_worker=1, env=environment, **quiet) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(n)
        list(Cluster(client).map(warm_up, None, range(4 * n)))
        yield client


def warm_up(_: None, item: int) -> int:
    """Import what tasks need, in every worker."""
    time.sleep(0.2)
    return item


def busy(seconds: float, _: int) -> float:
    """A small task: so much time of a processor; how long it took on the clock."""
    began, clock = time.process_time(), time.perf_counter()
    while time.process_time() - began < seconds:
        sum(range(1_000))
    return time.perf_counter() - clock


def many_tasks(client: Client) -> list[float]:
    """The seconds of every one of many small tasks."""
    return list(Cluster(client).map(busy, TASK_SECONDS, range(TASKS)))


class Measured(NamedTuple):
    """What an action took and gave."""

    seconds: float
    moved: float  # bytes over the loopback device
    result: Any
    peaks: list[float]  # peak memory of every worker, in GB


def measured(action: Callable[[], Any], client: Client) -> Measured:
    """Run an action on the workers of a client."""
    before, began = loopback_bytes(), time.perf_counter()
    result = action()
    seconds, moved = time.perf_counter() - began, loopback_bytes() - before
    return Measured(seconds, moved, result, sorted(client.run(peak_memory).values()))


def peak_memory() -> float:
    """The most memory that this process has held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def loopback_bytes() -> int:
    """Bytes sent between processes of this machine so far."""
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_sent)


def trees(rows: int, trees: int) -> list[list[str]]:
    """Tree training on one and on two workers."""
    frame = mixed_table(rows, 20)
    schema = infer_schema(frame, kinds={}, keys=[])
    codes = encode_codes(frame, schema)
    training = Training(trees, 10, 0, 0.0, 4, None, 0)
    found = []
    for n in (1, 2):
        with workers(n) as client:
            found.append(measured(partial(train, codes, training, Cluster(client), Progress()), client))
    return compared(f"{trees} trees, {rows:,} rows x 20 (codes: {2 * codes.nbytes / 1e6:.0f} MB)", found)


def sampling(rows: int) -> list[list[str]]:
    """Sampling to Parquet on one and on two workers."""
    model = arf_dask.fit(mixed_table(20_000, 15), seed=0, progress=False)
    found = []
    for n in (1, 2):
        scratch = Path(tempfile.mkdtemp(prefix="arf_dask-cluster-"))
        try:
            with workers(n) as client:
                model.sample_parquet(scratch / "first", 100_000, seed=1, client=client)  # the samplers are made
                how: dict[str, Any] = {"seed": 1, "client": client, "rows_per_file": 250_000}
                found.append(measured(partial(model.sample_parquet, scratch / "out", rows, **how), client))
        finally:
            shutil.rmtree(scratch)
    return compared(f"{rows:,} rows to Parquet (model: {model_bytes(model) / 1e6:.0f} MB on disk)", found)


def fitting(rows: int, data: Path) -> list[list[str]]:
    """A whole fit of Parquet files on one and on two workers."""
    folder = data / f"rows-{rows}"
    write(folder, rows)
    found = []
    for n in (1, 2):
        with workers(n) as client:
            found.append(measured(partial(arf_dask.fit, folder, seed=1, progress=False, client=client), client))
    return compared(f"fit of {rows:,} rows x 20 from Parquet", found)


def model_bytes(model: arf_dask.Model) -> int:
    """The size of a model's files."""
    with tempfile.TemporaryDirectory(prefix="arf_dask-cluster-") as scratch:
        model.save(Path(scratch) / "model")
        return sum(file.stat().st_size for file in (Path(scratch) / "model").iterdir())


def compared(what: str, found: list[Measured]) -> list[list[str]]:
    """A row of the table: seconds of one and two workers, their ratio, and what two workers moved and held."""
    one, two = found
    ratio = one.seconds / two.seconds
    reached = "pass" if ratio >= SPEED_BAR else "FAIL"
    peaks = " + ".join(f"{peak:.2f}" for peak in two.peaks)
    times = [f"{one.seconds:.1f}", f"{two.seconds:.1f}", f"{ratio:.2f}", f">= {SPEED_BAR:g} {reached}"]
    return [[what, *times, f"{two.moved / 1e6:.0f}", peaks]]


def overhead() -> list[list[str]]:
    """The time of many small tasks against the work in them."""
    rows = []
    for n in (1, 2):
        with workers(n) as client:
            seconds, moved, found, _ = measured(partial(many_tasks, client), client)
        ratio = seconds / (sum(found) / n)
        reached = "pass" if ratio <= OVERHEAD_BAR else "FAIL"
        what = f"{TASKS:,} tasks of {TASK_SECONDS * 1e3:.0f} ms on {n}"
        rows.append([what, f"{seconds:.2f}", f"{sum(found) / n:.2f}", f"{ratio:.3f}", reached, f"{moved / 1e6:.1f}"])
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000, help="rows for the trees")
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--drawn", type=int, default=10_000_000, help="rows drawn")
    parser.add_argument("--fitted", type=int, default=2_000_000, help="rows of the whole fit")
    parser.add_argument("--data", type=Path, help="folder of the Parquet files of the whole fit; made if not there")
    parser.add_argument("--only", default="trees,sampling,overhead")
    asked = parser.parse_args()
    parts = asked.only.split(",")
    if "fit" in parts and asked.data is None:
        parser.error("--only fit needs --data")
    rows = trees(asked.rows, asked.trees) if "trees" in parts else []
    rows += sampling(asked.drawn) if "sampling" in parts else []
    if "fit" in parts:
        rows += fitting(asked.fitted, asked.data)
    if rows:
        print_table(["work", "1 worker, s", "2 workers, s", "ratio", "bar", "MB moved (2)", "peak GB (2)"], rows)
    if "overhead" in parts:
        print_table(["tasks", "s", "work, s", "ratio", f"bar {OVERHEAD_BAR:g}", "MB moved"], overhead())


if __name__ == "__main__":
    main()
