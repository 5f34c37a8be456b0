"""The container image for real: built by buildah, then scheduler, worker and job inside of it as user 10001.

`make test-slow` runs it where the base image exists. No registry is needed: BASE names a local image, made with
docker/base.sh. The containers share the network of the host.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from arf_dask import Manifest
from retail import retail_orders
from tests.clusters import ROOT

BASE = os.environ.get("ARF_DASK_BASE", "localhost/arf-python")
IMAGE = "arf-dask:local"
LARGEST = 700e6  # bytes, the base included
USER = 10_001
ROWS = 2_000


def buildah(*words: str) -> str:
    done = subprocess.run(["buildah", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout.strip()


def missing() -> str | None:
    if shutil.which("buildah") is None:
        return "buildah is not installed"
    if subprocess.run(["buildah", "inspect", "--type", "image", BASE], capture_output=True).returncode:
        return f"there is no base image {BASE} (docker/base.sh makes one)"
    return None


pytestmark = [pytest.mark.slow, pytest.mark.skipif(missing() is not None, reason=str(missing()))]


@pytest.fixture(scope="module")
def image() -> str:
    subprocess.run(["make", "--silent", "image", f"BASE={BASE}"], cwd=ROOT, check=True)
    return IMAGE


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    retail_orders(1_000, seed=1).write_parquet(tmp_path / "in" / "orders.parquet")
    for path in (tmp_path, tmp_path / "in"):
        os.chown(path, USER, USER)
    for path in tmp_path.parents:
        if path.owner() == tmp_path.parent.owner() and path != Path("/") and not path.stat().st_mode & 0o1:
            path.chmod(path.stat().st_mode | 0o1)  # directories of pytest are closed to others
    return tmp_path


@pytest.fixture
def container(image: str) -> Iterator[str]:
    made = buildah("from", image)
    yield made
    buildah("rm", made)


def run_words(container: str, data: Path, *words: str) -> list[str]:
    return ["buildah", "run", "--isolation", "chroot", "--volume", f"{data}:/data", container, "--", *words]


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def end(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(port: int, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if not probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.3)
    raise AssertionError("the scheduler does not answer")


def test_the_image_is_small_and_has_a_health_check_and_a_user(image: str) -> None:
    found = json.loads(buildah("inspect", "--type", "image", image))
    settings = found["Docker"]["config"]
    assert settings["User"] == f"{USER}:{USER}"
    assert settings["Healthcheck"]["Test"][0] == "CMD"
    sizes = json.loads(buildah("images", "--json", image))
    assert text_to_bytes(sizes[0]["size"]) < LARGEST


def text_to_bytes(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"KB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def test_scheduler_worker_and_job_run_as_the_user_of_the_image(container: str, data: Path) -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    who = subprocess.run(run_words(container, data, "id", "-u"), capture_output=True, text=True, check=True)
    assert int(who.stdout) == USER
    with ExitStack() as stack:
        log = stack.enter_context((data / "log").open("wb"))
        scheduler = ["dask", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        worker = ["dask", "worker", address, "--nthreads", "1", "--no-dashboard", "--local-directory", "/tmp/dask"]
        job = ["arf-dask", "synthesize", "/data/in", "--to", "/data/out", "-n", str(ROWS), "--seed", "7"]
        started = subprocess.Popen(run_words(container, data, *scheduler), stdout=log, stderr=log)
        stack.callback(end, started)
        wait_for(port, started)
        stack.callback(end, subprocess.Popen(run_words(container, data, *worker), stdout=log, stderr=log))
        words = run_words(container, data, *job, "--scheduler", address)
        done = subprocess.run(words, stdout=log, stderr=log, timeout=300)
        assert done.returncode == 0, (data / "log").read_text(errors="replace")[-4_000:]
    made = pl.read_parquet(data / "out")
    assert made.height == ROWS
    assert made.schema == pl.read_parquet_schema(data / "in" / "orders.parquet")
    assert Manifest.read(data / "out").seed == 7
    assert {path.stat().st_uid for path in (data / "out").iterdir()} == {USER}
