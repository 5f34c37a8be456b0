"""What compose starts, started as plain processes: the same commands, health checks and settings."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from arf_dask import Manifest
from retail import retail_orders
from tests.clusters import ROOT, certificates

DOCKER = ROOT / "docker"
ROWS, SEED = 2_000, 7


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def services(*names: str) -> dict[str, Any]:
    """The services of one compose file with others laid over it, their variables filled in."""
    merged: dict[str, Any] = {}
    for name in names:
        parsed = yaml.safe_load((DOCKER / name).read_text(encoding="utf-8"))
        for service, facts in filled(parsed["services"]).items():
            merged.setdefault(service, {}).update(facts)
    return merged


def filled(value: Any) -> Any:
    """The same with every `${NAME:-default}` replaced, as compose does after reading the YAML."""
    if isinstance(value, dict):
        return {name: filled(item) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: os.environ.get(m[1], m[2]), value)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class Compose:
    """Starts services as processes: host names become ports of this machine, mounted directories become real ones."""

    def __init__(self, found: dict[str, Any], directory: Path, log: Any) -> None:
        self.services, self.directory, self.log = found, directory, log
        self.scheduler = f"127.0.0.1:{free_port()}"
        self.dashboards: dict[str, str] = {}

    def words(self, words: list[str], place: str) -> list[str]:
        dashboard = self.dashboards.setdefault(place, f"127.0.0.1:{free_port()}")
        # (what stands in the file, what stands for it here)
        swaps = [
            ("scheduler:8786", self.scheduler),
            ("127.0.0.1:8787", dashboard),
            ("/tmp/dask", str(self.directory / place)),
        ]
        swaps += [(f"/{name}/", f"{self.directory / name}/") for name in ("data", "tls")]
        changed = []
        for word in words:
            for there, here in swaps:
                word = word.replace(there, here)
            changed.append(
                {":8787": dashboard, "8786": self.scheduler.split(":")[1], "0.0.0.0": "127.0.0.1"}.get(word, word)
            )
        return changed

    def start(self, service: str, place: str) -> subprocess.Popen[bytes]:
        programs = {"dask": [sys.executable, "-m", "dask"], "arf-dask": [sys.executable, "-m", "arf_dask"]}
        program, *rest = self.services[service]["command"]
        settings = self.services[service].get("environment", {})
        named = zip(settings, self.words(list(settings.values()), place), strict=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict(named)}
        command = [*programs[program], *self.words(rest, place)]
        return subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)

    def wait_until_healthy(self, service: str, place: str) -> None:
        kind, program, *rest = self.services[service]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "python")
        deadline = time.monotonic() + 60
        while subprocess.run([sys.executable, *self.words(rest, place)], capture_output=True).returncode:
            assert time.monotonic() < deadline, f"{place} is not healthy"
            time.sleep(0.2)


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.tls.yaml"]], ids=["plain", "tls"])
def test_the_commands_of_compose_make_a_data_set(files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWS", str(ROWS))
    monkeypatch.setenv("SEED", str(SEED))
    (tmp_path / "data" / "in").mkdir(parents=True)
    (tmp_path / "tls").mkdir()
    certificates(tmp_path / "tls")
    orders = retail_orders(1_000, seed=1)
    for number, part in enumerate(orders.iter_slices(400)):
        part.write_parquet(tmp_path / "data" / "in" / f"part-{number}.parquet")
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("wb"))
        compose = Compose(services(*files), tmp_path, log)
        for service, place in (("scheduler", "scheduler"), ("worker", "worker-1"), ("worker", "worker-2")):
            stack.callback(end, compose.start(service, place))
            compose.wait_until_healthy(service, place)
        job = compose.start("job", "job")
        stack.callback(end, job)
        assert job.wait(timeout=120) == 0, (tmp_path / "log").read_text(errors="replace")
    made = pl.read_parquet(tmp_path / "data" / "out")
    assert made.schema == orders.schema
    assert made.height == ROWS
    assert Manifest.read(tmp_path / "data" / "out").seed == SEED
    assert (tmp_path / "data" / "out" / "_SUCCESS").exists()


def test_every_service_runs_the_one_image_as_nobody_special() -> None:
    image = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^USER 10001:10001$", image, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK ", image, re.MULTILINE)
    assert "constraints.txt" in image
    assert {facts["image"] for facts in services("compose.yaml").values()} == {"arf-dask:local"}
