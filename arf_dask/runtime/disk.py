"""Durable files and atomic replacement, file hashes, library versions and physical memory."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from arf_dask.errors import OptionError


def resolve_path(path: Path) -> Path:
    """Return the absolute path without symbolic links. Raises an OptionError if no file can have this path."""
    try:
        str(path).encode()  # Parquet writers accept no other names
        resolved = path.resolve()
        if _is_link_loop(resolved):
            raise ValueError(os.strerror(errno.ELOOP))
    except (ValueError, RuntimeError) as error:  # a NUL, a lone surrogate or a loop of links
        raise OptionError(f"path {str(path)!r}: cannot be used ({error}). Give another path.") from error
    return resolved


def _is_link_loop(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


def sync_to_disk(path: Path) -> None:
    """Flush a file or directory to disk (fsync)."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open directories
        return
    descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(source: Path, target: Path) -> None:
    """Rename a finished file to its final name atomically: readers see either the old or the new content."""
    sync_to_disk(source)
    source.replace(target)
    sync_to_disk(target.parent)


def replace_directory(source: Path, target: Path, backup: Path) -> None:
    """Rename a finished directory to its final name, replacing an existing directory.

    Directories cannot be swapped atomically: the old one is renamed to `backup` first and removed last. If the process
    dies in between, `restore_directory` restores it.
    """
    if target.exists():
        target.rename(backup)
    source.rename(target)
    sync_to_disk(target.parent)
    remove_tree(backup)


def restore_directory(target: Path, backup: Path) -> None:
    """Undo an interrupted `replace_directory`: restore the old directory and remove the backup."""
    if backup.is_dir() and not target.exists():
        backup.rename(target)
    remove_tree(backup)


def remove_tree(path: Path) -> None:
    """Remove a directory, even while tasks of a stopped run still write to it."""
    for _ in range(100):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.02)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def library_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the installed version of each package, by name."""
    return {name: library_version(name) for name in names}


def library_version(library: str) -> str:
    """Return the version of an installed package, or "unknown" when run from a source tree."""
    try:
        return version(library)
    except PackageNotFoundError:
        return "unknown"


def machine_memory() -> int:
    """Return the bytes of physical memory, or 64 GiB if the system does not report them."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**36
