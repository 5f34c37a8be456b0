"""Real clusters for tests: `dask scheduler` and `dask worker` processes that can be killed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parents[1]


class Processes:
    """A scheduler and workers, each a process of its own, all of them gone at the end.

    Workers import the modules `preload` before they connect: else the first task of each waits for the imports.
    """

    def __init__(
        self,
        directory: Path,
        workers: int = 0,
        *,
        threads: int = 1,
        tls: list[str] | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.threads = threads
        self.preload = [word for module in preload for word in ("--preload", module)]
        self.tls = tls or []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.log = (directory / "cluster.log").open("ab")
        file = directory / "scheduler.json"
        protocol = ["--protocol", "tls"] if tls else []
        common = ["--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", *protocol, *common, *self.tls)
        self.address: str = json.loads(_until(lambda: _complete(file), "the scheduler"))["address"]
        for _ in range(workers):
            self.add_worker()

    def add_worker(self) -> subprocess.Popen[bytes]:
        """One more worker without a nanny: when it is killed it stays dead."""
        own = self.directory / f"worker-{len(self.workers)}"
        flags = ["--no-nanny", "--no-dashboard", "--nthreads", str(self.threads), "--local-directory", str(own)]
        worker = self._start("worker", self.address, *flags, *self.preload, *self.tls)
        self.workers.append(worker)
        return worker

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "POLARS_MAX_THREADS": "1"}
        command = [sys.executable, "-m", "dask", *words]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
        for process in (*self.workers, self.scheduler):
            process.wait()
        self.log.close()


@contextmanager
def dying_workers(processes: Processes, client: Any, seconds: float) -> Iterator[list[int]]:
    """Kill the oldest worker every few seconds, as soon as a replacement has connected. Yields the killed ones."""
    over = threading.Event()
    killed: list[int] = []
    alive = sum(worker.poll() is None for worker in processes.workers)

    def kill() -> None:
        while not over.wait(seconds):
            processes.add_worker()
            while len(client.nthreads()) <= alive and not over.wait(0.05):
                pass
            victim = next(worker for worker in processes.workers if worker.poll() is None)
            victim.kill()
            victim.wait()
            killed.append(victim.pid)
            while len(client.nthreads()) > alive and not over.wait(0.05):
                pass

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


def digests(directory: Path) -> dict[str, str]:
    """The SHA-256 of every file that readers see."""
    files = [path for path in directory.iterdir() if not path.name.startswith(".")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def certificates(directory: Path) -> dict[str, str]:
    """A key and a certificate that is its own authority, as files."""
    from distributed import Security

    made = Security.temporary()
    texts = {"ca": made.tls_ca_file, "cert": made.tls_client_cert, "key": made.tls_client_key}
    files = {name: directory / f"{name}.pem" for name in texts}
    for name, file in files.items():
        file.write_text(texts[name], encoding="ascii")
    return {name: str(file) for name, file in files.items()}


def _complete(file: Path) -> str | None:
    try:
        text = file.read_text(encoding="utf-8")
        json.loads(text)
    except (OSError, ValueError):
        return None
    return text


def _until(look: Any, what: str, seconds: float = 60.0) -> str:
    deadline = time.monotonic() + seconds
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"{what} did not come up"
        time.sleep(0.05)
    return found
