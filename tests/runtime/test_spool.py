"""Rows in temporary files: private while they are there, and gone however their process ends."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arf_dask.runtime.spool import open_spool, remove_leftovers

HOLDING = """
import time
from arf_dask.runtime.spool import open_spool
with open_spool() as spool:
    spool.new_file("rows.parquet")
    print("ready", flush=True)
    time.sleep(600)
"""
SINKING = """
import polars as pl
from arf_dask.data.opening import open_parts
many = pl.LazyFrame({"x": range(2_000_000)}).join(pl.LazyFrame({"y": range(1_000)}), how="cross")
print("ready", flush=True)
with open_parts(many.filter(pl.col("x") + pl.col("y") > 0)):
    pass
"""


INTERRUPTED = """
import gc, signal, time
import polars as pl
from arf_dask.data.opening import open_parts
signal.signal(signal.SIGINT, signal.default_int_handler)  # also if started with SIGINT ignored
many = pl.LazyFrame({"x": range(200_000)}).join(pl.LazyFrame({"y": range(200)}), how="cross")
print("ready", flush=True)
try:
    with open_parts(many.filter(pl.col("x") + pl.col("y") > 0)):
        time.sleep(600)
except KeyboardInterrupt:
    pass
gc.collect()
time.sleep(5)  # the query ends meanwhile
"""


def start(code: str, directory: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(directory), "POLARS_MAX_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "ready\n"
    return process


def wait_for_rows(directory: Path) -> None:
    deadline = time.monotonic() + 60
    while not any(file.stat().st_size for file in directory.glob("*/rows.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def use(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(directory))


def test_nothing_is_made_before_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path, monkeypatch)
    with open_spool() as spool:
        assert not list(tmp_path.iterdir())
        spool.new_file("rows")
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_nobody_else_can_read_it_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path, monkeypatch)
    before = os.umask(0)
    try:
        with open_spool() as spool:
            file = spool.new_file("rows")
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_it_and_ends_the_process(tmp_path: Path, number: signal.Signals) -> None:
    process = start(HOLDING, tmp_path)
    process.send_signal(number)
    assert process.wait(timeout=60) == -number
    assert not list(tmp_path.iterdir())


def test_a_signal_is_heard_while_rows_are_written(tmp_path: Path) -> None:
    process = start(SINKING, tmp_path)
    wait_for_rows(tmp_path)
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_ctrl_c_while_rows_are_written_does_not_end_the_process(tmp_path: Path) -> None:
    process = start(INTERRUPTED, tmp_path)
    wait_for_rows(tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path, monkeypatch)
    killed, alive = start(HOLDING, tmp_path), start(HOLDING, tmp_path)
    killed.kill()
    killed.wait()
    assert len(list(tmp_path.glob("*/rows.parquet"))) == 2
    with open_spool() as spool:
        spool.new_file("rows")
        assert len(list(tmp_path.glob("*/rows.parquet"))) == 1  # of the living process
    alive.terminate()
    alive.wait()
    assert not list(tmp_path.iterdir())


def test_handlers_of_the_caller_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path, monkeypatch)
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        with open_spool() as spool:
            file = spool.new_file("rows")
            os.kill(os.getpid(), signal.SIGTERM)
            assert heard == [signal.SIGTERM]
            assert file.exists()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_directory_of_another_name_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(tmp_path, monkeypatch)
    (tmp_path / "arf_dask-other").mkdir()
    remove_leftovers()
    assert (tmp_path / "arf_dask-other").exists()
