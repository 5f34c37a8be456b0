"""Atomic replacement of a directory by one process at a time: readers see either the old or the new directory.

The new directory is written next to the target, the old one is renamed to a backup, the new one is renamed to the
target, and the backup is removed. The owner of a target knows that all leftovers next to it belong to dead processes.
"""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arf_dask.runtime.disk import remove_tree, replace_directory, restore_directory
from arf_dask.runtime.locks import exclusive

LOCK, STAGING, BACKUP = ".arf_dask-lock", ".arf_dask-new", ".arf_dask-old"
LONGEST_NAME = 180  # bytes; file systems allow 255
INNER_LOCK = "_arf_dask.lock"  # inside the target, if its parent directory is not writable


def staging_path(target: Path, run: str) -> Path:
    """Return the directory in which a run prepares the replacement of `target`."""
    return target.with_name(f".{_short_name(target)}{STAGING}-{run}")


def backup_path(target: Path) -> Path:
    """Return the path of the old directory while the new one is renamed to `target`."""
    return target.with_name(f".{_short_name(target)}{BACKUP}")


def current_path(target: Path) -> Path:
    """Return the directory with the content of `target`: its backup, if a process died while replacing it."""
    return backup_path(target) if not target.exists() and backup_path(target).is_dir() else target


@contextmanager
def own_directory(target: Path) -> Iterator[None]:
    """Own a directory for the duration of the context; leftovers of dead owners are cleaned up first.

    Args:
        target: The directory. It need not exist, but its parent must.

    Raises:
        LockHeldError: If another process owns it.
    """
    with exclusive(_lock_path(target)):
        restore_directory(target, backup_path(target))
        for leftover in target.parent.glob(f".{glob.escape(_short_name(target))}{STAGING}-*"):
            remove_tree(leftover)
        yield


def swap_directory(staging: Path, target: Path) -> None:
    """Replace `target`, which the caller owns, by a finished directory; after an error, the old one is restored."""
    try:
        replace_directory(staging, target, backup_path(target))
    except BaseException:
        restore_directory(target, backup_path(target))
        raise


def _lock_path(target: Path) -> Path:
    """Return the lock file: beside the target, or inside it if its parent directory is read-only."""
    if target.is_dir() and not os.access(target.parent, os.W_OK):
        return target / INNER_LOCK
    return target.with_name(f".{_short_name(target)}{LOCK}")


def _short_name(target: Path) -> str:
    """Return the name of the target; a long one, to which nothing could be added, is replaced by its hash."""
    name = os.fsencode(target.name)
    return target.name if len(name) <= LONGEST_NAME else hashlib.sha256(name).hexdigest()
