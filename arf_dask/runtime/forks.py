"""Detect forked processes: Polars' threads do not survive a fork, and queries in the child would hang."""

from __future__ import annotations

import os
import re
from pathlib import Path

from arf_dask.errors import ForkError

THREAD_NAME = re.compile(r"polars-\d|async-executor")  # names of threads that run queries
_state = {"started": False, "forked": False}


def check_not_forked() -> None:
    """Raise a ForkError in a process that was forked after Polars had started its threads."""
    if _state["forked"]:
        raise ForkError(
            "this process was forked after Polars had started its threads, which do not exist here: work would wait "
            'for them for ever. Start processes with multiprocessing.get_context("spawn"); in an orchestrator that '
            "forks, such as Airflow, import and use Polars and arf_dask inside of the task only, or run the command "
            "line `arf-dask` in a process of its own (docs/orchestrators.md)."
        )


def _before_fork() -> None:
    _state["started"] = _state["forked"] or _has_polars_threads()


def _after_fork_in_child() -> None:
    _state["forked"] = _state["started"]


def _has_polars_threads() -> bool:
    """Return whether this process runs Polars threads; without /proc, assume that it does."""
    threads = Path("/proc/self/task")
    if not threads.is_dir():
        return True
    for thread in threads.iterdir():
        try:
            if THREAD_NAME.match((thread / "comm").read_text()):
                return True
        except OSError:  # the thread has ended in the meantime
            continue
    return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
