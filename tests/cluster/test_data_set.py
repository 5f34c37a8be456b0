"""Data sets written by real worker processes: the same bytes, whoever is killed meanwhile."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from distributed import Client

import arf_dask
from arf_dask.storage import stores
from tests.clusters import Processes

ROWS, ROWS_PER_FILE = 600_000, 14_000


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    r = np.random.default_rng(1)
    frame = pl.DataFrame({"id": range(1_000, 1_400), "sex": r.choice(["f", "m"], 400), "x": r.normal(size=400)})
    return arf_dask.fit(frame, trees=3, seed=0, keys=["id"], progress=False)


@pytest.fixture(scope="module")
def saved(model: arf_dask.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m"
    model.save(path)
    return path


@pytest.fixture(scope="module")
def calm(model: arf_dask.Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("calm") / "out"
    model.sample_parquet(out, ROWS, seed=3, rows_per_file=ROWS_PER_FILE)
    return contents(out)


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def wait_for_parts(out: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(out.glob("*.parquet"))) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_write_the_bytes_of_threads_with_progress(model: Any, calm: Any, tmp_path: Path) -> None:
    seen = []
    with Processes(tmp_path, workers=2) as processes, Client(processes.address, set_as_default=False) as client:
        options = {"seed": 3, "rows_per_file": ROWS_PER_FILE, "client": client}
        model.sample_parquet(tmp_path / "out", ROWS, progress=lambda *s: seen.append(s[1:3]), **options)
        given = pl.DataFrame({"sex": ["f", "m"] * 500})
        drawn = model.sample_parquet(tmp_path / "given", 3, given=given, **{**options, "rows_per_file": 100})
        with pytest.raises(arf_dask.ImpossibleConditionError, match=r"part-00000\.parquet: given, row 1"):
            model.sample_parquet(tmp_path / "odd", 3, given=pl.DataFrame({"x": [0.0, 99.0]}), client=client)
    assert contents(tmp_path / "out") == calm
    assert seen[-1] == (ROWS, ROWS)
    assert drawn.scan().collect()["sex"].to_list() == ["f"] * 3 + ["m"] * 3 + (["f"] * 3 + ["m"] * 3) * 499
    local = model.sample_parquet(tmp_path / "local", 3, given=given, seed=3, rows_per_file=100)
    assert local.parts == drawn.parts
    assert sorted(contents(tmp_path / "odd")) == ["_job.json"]


def test_killed_worker_during_output_changes_no_byte(model: Any, calm: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Processes(tmp_path, workers=3) as processes, Client(processes.address, set_as_default=False) as client:
        client.wait_for_workers(3, timeout=60)
        killed: list[Any] = []

        def kill(*_: object) -> None:
            if not killed:
                processes.workers[0].kill()
                killed.append(True)

        model.sample_parquet(out, ROWS, seed=3, rows_per_file=ROWS_PER_FILE, client=client, progress=kill)
    assert killed
    assert contents(out) == calm


RUN = f"""
    import sys, arf_dask
    saved, out, address = sys.argv[1:]
    options = {{"seed": 3, "rows_per_file": {ROWS_PER_FILE}, "client": address, "mode": "resume"}}
    arf_dask.load(saved).sample_parquet(out, {ROWS}, **options)
"""


def test_killed_client_of_a_cluster_then_resume_is_byte_identical(saved: Path, calm: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Processes(tmp_path, workers=2) as processes:
        command = [sys.executable, "-c", textwrap.dedent(RUN), str(saved), str(out), processes.address]
        first = subprocess.Popen(command)
        wait_for_parts(out, 5)
        first.kill()
        first.wait()
        there = {path.name: path.stat().st_ino for path in out.glob("*.parquet")}
        # Workers may finish what they had in hand; nothing that is there already is made again.
        subprocess.run(command, check=True, timeout=120)
        assert there.items() <= {path.name: path.stat().st_ino for path in out.glob("*.parquet")}.items()
    assert contents(out) == calm
    assert not (out / stores.TEMPORARY).exists()
