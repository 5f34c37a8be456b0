"""A private temporary directory that is removed when its process ends, for any reason.

It is removed at the end of its context, and on Ctrl-C, SIGTERM and SIGHUP. After a SIGKILL, the next run finds that its
owner is gone and removes it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from arf_dask.runtime.locks import exclusive, is_held

PREFIX, LOCK = "arf_dask-spool-", ".lock"
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Spool:
    """A temporary directory for rows, created with its first file."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._lock = ExitStack()

    def new_file(self, name: str) -> Path:
        """Create an empty file that only its owner can access, in a directory that only its owner can enter."""
        if self._directory is None:
            remove_leftovers()
            self._directory = self._make_directory()
        file = self._directory / name
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return file

    def _make_directory(self) -> Path:
        directory = Path(tempfile.gettempdir()) / f"{PREFIX}{uuid4().hex}"
        # The lock is acquired first, as a directory with a free lock counts as abandoned.
        self._lock.enter_context(exclusive(_lock_of(directory)))
        directory.mkdir(mode=0o700)
        return directory

    def remove(self) -> None:
        """Remove the directory and its content."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        self._lock.close()


@contextmanager
def open_spool() -> Iterator[Spool]:
    """Yield a spool that is removed at the end of the context, or when a signal ends this process."""
    spool = Spool()
    with _on_signals(spool.remove):
        try:
            yield spool
        finally:
            spool.remove()


def remove_leftovers() -> None:
    """Remove the spools of dead processes."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # owned by another user, or being removed by another process
            if directory.is_dir() and not is_held(_lock_of(directory)):
                shutil.rmtree(directory, ignore_errors=True)
                _lock_of(directory).unlink(missing_ok=True)


def _lock_of(directory: Path) -> Path:
    """Return the lock file next to a directory, which must exist before the directory does."""
    return directory.with_name(directory.name + LOCK)


@contextmanager
def _on_signals(clean_up: Callable[[], None]) -> Iterator[None]:
    """Call `clean_up` before a signal ends this process, for signals without another handler."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    unhandled = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]

    def end_process(number: int, _: Any) -> None:
        clean_up()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    for number in unhandled:
        signal.signal(number, end_process)
    try:
        yield
    finally:
        for number in unhandled:
            if signal.getsignal(number) is end_process:
                signal.signal(number, signal.SIG_DFL)
