"""A lock belongs to one living process and is free once that process is gone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from arf_dask.runtime.locks import LockHeldError, exclusive, is_held

HOLD = """
import sys, time
from pathlib import Path
from arf_dask.runtime.locks import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def start_holder(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_is_gone_after_use(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with exclusive(lock):
        assert lock.exists()
        assert is_held(lock)
    assert list(tmp_path.iterdir()) == []
    assert not is_held(lock)


def test_a_second_holder_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with exclusive(lock), pytest.raises(LockHeldError, match=f"process {os.getpid()} on"), exclusive(lock):
        pass
    with exclusive(lock):  # the refusal took nothing away
        pass


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    process = start_holder(lock)
    with process:
        with pytest.raises(LockHeldError, match=f"process {process.pid} on"), exclusive(lock):
            pass
        process.send_signal(signal.SIGKILL)
    assert lock.exists()
    assert not is_held(lock)
    with exclusive(lock):
        pass
    assert not lock.exists()


def test_many_processes_take_turns(tmp_path: Path) -> None:
    lock, record = tmp_path / "lock", tmp_path / "record"
    turn = f"""
import time
from pathlib import Path
from arf_dask.runtime.locks import LockHeldError, exclusive
done = 0
while done < 20:
    try:
        with exclusive(Path({str(lock)!r})), open({str(record)!r}, "a") as file:
            file.write("(")
            file.flush()
            time.sleep(0.0005)
            file.write(")")
        done += 1
    except LockHeldError:
        time.sleep(0.0002)
"""
    processes = [subprocess.Popen([sys.executable, "-c", turn]) for _ in range(3)]
    limit = time.monotonic() + 60
    assert [process.wait(limit - time.monotonic()) for process in processes] == [0, 0, 0]
    assert record.read_text() == "()" * 60
