"""Exclusive ownership of a path by one living process.

A lock is an advisory operating-system lock on a small file. It is released when its process ends for any reason, so a
process that acquires the lock knows that every earlier owner is gone.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from arf_dask.errors import ArfError

# Imported before any lock is taken: an interrupt must not arrive between a lock and its release.
if os.name == "nt":
    import msvcrt
else:
    import fcntl

UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without locks
OWNER_BYTES = 4_096


class LockHeldError(ArfError):
    """Another process or thread holds the lock; the message names it."""


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold the lock file `lock` for the duration of the context; it is removed at the end.

    Args:
        lock: the lock file, in a directory that exists.

    Raises:
        LockHeldError: if another process or thread holds it.
        OSError: if the file cannot be created.
    """
    descriptor = _acquire(lock)
    try:
        _write_owner(descriptor)
        yield
    finally:
        # Removed while the lock is still held, so that no other process can hold the same file.
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def is_held(lock: Path) -> bool:
    """Return whether a living process currently holds the lock file."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _acquire(lock: Path) -> int:
    """Open and lock the lock file, and return its descriptor."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        is_ours = False
        try:
            is_ours = _try_lock(descriptor)
            if not is_ours:
                raise LockHeldError(f"{_read_owner(descriptor)} is at work there")
            if _is_current(descriptor, lock):
                return descriptor
        except BaseException:
            if is_ours and _is_current(descriptor, lock):  # interrupted
                lock.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        # The previous owner removed the file after we opened it: retry with the new file.
        os.close(descriptor)


def _is_current(descriptor: int, lock: Path) -> bool:
    """Return whether the open file is still the one at the path of the lock."""
    try:
        return os.path.samestat(os.fstat(descriptor), lock.stat())
    except FileNotFoundError:
        return False


def _try_lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            os.lseek(descriptor, OWNER_BYTES, os.SEEK_SET)  # lock beyond the owner's text, which others may read
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Continue without a lock on file systems that do not support locking.
        return error.errno in UNSUPPORTED
    return True


def _write_owner(descriptor: int) -> None:
    text = json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode()
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, 0)
    os.write(descriptor, text)


def _read_owner(descriptor: int) -> str:
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        owner = json.loads(os.read(descriptor, OWNER_BYTES))
        return f"process {int(owner['process'])} on {str(owner['host'])[:200]!r}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
