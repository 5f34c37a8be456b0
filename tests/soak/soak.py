"""Hours of bad luck, run by hand: workers, clients and schedulers killed at random moments, and no byte may differ.

    python tests/soak/soak.py --minutes 30
    python tests/soak/soak.py --minutes 5 --seed 7

Every turn takes one scenario: a fit or a data set on a cluster whose workers are killed and replaced all the time, or a
client or a scheduler killed in the middle of a data set that is then resumed. The first difference ends the run.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "examples")]

import dask  # noqa: E402
from distributed import Client  # noqa: E402

import arf_dask  # noqa: E402
from arf_dask.errors import ClusterError  # noqa: E402
from arf_dask.storage.model_file import model_hash  # noqa: E402
from arf_dask.training import stages  # noqa: E402
from retail import retail_orders  # noqa: E402
from tests.clusters import Processes, digests  # noqa: E402

ROWS, TRAINING_ROWS, DRAWN, PER_FILE = 60_000, 20_000, 6_000_000, 60_000
FIT: dict[str, Any] = {"trees": 12, "seed": 3, "keys": ["order_id"], "progress": False}
DRAW: dict[str, Any] = {"seed": 5, "rows_per_file": PER_FILE}
JOB = """
import sys, arf_dask
model, out, address, rows, per_file = sys.argv[1:]
model = arf_dask.load(model)
model.sample_parquet(out, int(rows), seed=5, rows_per_file=int(per_file), mode="resume", client=address)
"""


class Killer(threading.Thread):
    """Kills a worker every now and then; a new one is started first.

    Results that nobody has fetched die with their worker: were all workers killed faster than tasks end, nothing would.
    """

    def __init__(self, processes: Processes, luck: random.Random) -> None:
        super().__init__(daemon=True)
        self.processes, self.luck = processes, luck
        self.over = threading.Event()
        self.killed = 0

    def run(self) -> None:
        while not self.over.wait(self.luck.uniform(3.0, 9.0)):
            self.processes.add_worker()
            victim = next(worker for worker in self.processes.workers if worker.poll() is None)
            victim.kill()
            self.killed += 1

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


class Soak:
    """The data, the calm results, and the scenarios."""

    def __init__(self, directory: Path, luck: random.Random) -> None:
        self.directory, self.luck = directory, luck
        self.count: Counter[str] = Counter()
        self.data = directory / "orders"
        self.data.mkdir()
        for number, part in enumerate(retail_orders(ROWS, seed=1).iter_slices(ROWS // 20)):
            part.write_parquet(self.data / f"part-{number:02}.parquet")
        self.model = arf_dask.fit(self.data, **FIT)
        self.model.save(directory / "model")
        self.model.sample_parquet(directory / "calm", DRAWN, **DRAW)
        self.calm = digests(directory / "calm")
        self.hash = model_hash(self.model._fitted)

    def turn(self, number: int) -> None:
        """One scenario on a cluster of its own."""
        scenario = self.luck.choice([self.fit, self.sample, self.client_killed, self.scheduler_killed])
        place = self.directory / f"turn-{number}"
        place.mkdir()
        began = time.monotonic()
        with Processes(place, workers=self.luck.choice([2, 3, 4]), threads=self.luck.choice([1, 2])) as processes:
            killed = scenario(processes, place / "out")
        self.count[scenario.__name__] += 1
        took = time.monotonic() - began
        print(f"{number}: {scenario.__name__}, {killed} killed, {took:.0f} s, same bytes", flush=True)
        subprocess.run(["rm", "-rf", str(place)], check=True)

    def fit(self, processes: Processes, out: Path) -> int:
        with Client(processes.address, set_as_default=False) as client, Killer(processes, self.luck) as killer:
            found = arf_dask.fit(self.data, **FIT, client=client)
        assert model_hash(found._fitted) == self.hash, "another model"
        return killer.killed

    def sample(self, processes: Processes, out: Path) -> int:
        with Client(processes.address, set_as_default=False) as client, Killer(processes, self.luck) as killer:
            self.model.sample_parquet(out, DRAWN, **DRAW, client=client)
        self.check(out)
        return killer.killed

    def client_killed(self, processes: Processes, out: Path) -> int:
        for attempt in range(20):
            words = [str(self.directory / "model"), str(out), processes.address, str(DRAWN), str(PER_FILE)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            job = subprocess.Popen([sys.executable, "-c", JOB, *words], env=environment)
            try:
                assert job.wait(timeout=self.luck.uniform(2.0, 15.0)) == 0, "the job failed"
            except subprocess.TimeoutExpired:
                job.kill()
                job.wait()
                continue
            self.check(out)
            return attempt
        raise AssertionError("twenty attempts and no end")

    def scheduler_killed(self, processes: Processes, out: Path) -> int:
        client = Client(processes.address, set_as_default=False)
        timer = threading.Timer(self.luck.uniform(2.0, 8.0), processes.scheduler.kill)
        timer.start()
        killed = 0
        try:
            self.model.sample_parquet(out, DRAWN, **DRAW, client=client)
        except ClusterError:
            killed = 1
        timer.cancel()
        client.close(timeout=1)
        self.model.sample_parquet(out, DRAWN, **DRAW, mode="resume")
        self.check(out)
        return killed

    def check(self, out: Path) -> None:
        assert digests(out) == self.calm, "another data set"
        hidden = [path.name for path in out.iterdir() if path.name.startswith(".")]
        assert not hidden, f"left behind: {hidden}"


def main() -> None:
    """Turn after turn until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", flush=True)
    stages.TRAINING_ROWS = TRAINING_ROWS
    settings = {"distributed.comm.timeouts.connect": "5s", "distributed.scheduler.allowed-failures": 100}
    with tempfile.TemporaryDirectory(prefix="arf_dask-soak-") as directory, dask.config.set(settings):
        os.environ["DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"] = "100"
        soak = Soak(Path(directory), random.Random(seed))
        end, number = time.monotonic() + 60 * asked.minutes, 0
        while time.monotonic() < end:
            soak.turn(number)
            number += 1
        print(dict(soak.count))


if __name__ == "__main__":
    main()
