"""Airflow for real: `airflow standalone` with its scheduler runs the example DAG.

Airflow pins hundreds of packages and lives in an environment of its own: `make test-airflow` makes it, and
AIRFLOW_PYTHON names its interpreter.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from retail import retail_orders

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("AIRFLOW_PYTHON", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="AIRFLOW_PYTHON names no environment of Airflow (make test-airflow)")
PATIENCE = 900  # seconds


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "dags").mkdir()
    shutil.copy(ROOT / "examples" / "airflow_dag.py", tmp_path / "dags")
    port = free_port()
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}",
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "LAKE": str(tmp_path / "lake"),
    }


@pytest.fixture
def standalone(environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    log = tmp_path / "standalone.log"
    with log.open("wb") as file:
        started = subprocess.Popen(
            [PYTHON, "-m", "airflow", "standalone"], env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            yield log
        finally:
            os.killpg(started.pid, signal.SIGTERM)
            try:
                started.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def airflow(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, "-m", "airflow", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def runs(environment: dict[str, str]) -> list[dict[str, Any]]:
    done = airflow(environment, "dags", "list-runs", "synthetic_orders", "-o", "json")
    lines = [line for line in done.stdout.splitlines() if line.startswith("[{")]  # warnings come before
    return json.loads(lines[-1]) if lines else []


def test_a_scheduler_runs_the_example(environment: dict[str, str], standalone: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    retail_orders(500).write_parquet(lake / "orders.parquet")
    retail_orders(300, seed=1).write_parquet(lake / "held_out.parquet")
    until = time.monotonic() + PATIENCE
    while airflow(environment, "dags", "trigger", "synthetic_orders").returncode and time.monotonic() < until:
        time.sleep(5)
    states: set[str] = set()
    while not states & {"success", "failed"} and time.monotonic() < until:
        time.sleep(5)
        states = {run["state"] for run in runs(environment)}
    assert states == {"success"}, standalone.read_text()[-4_000:]
    assert (lake / "report.html").stat().st_size
    assert pl.read_parquet(lake / "parquet").height == 10_000
    assert (lake / "delta" / "_delta_log" / "00000000000000000000.json").is_file()
