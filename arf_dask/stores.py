"""Where a data set is put: a local directory, or a URL of any file system that fsspec knows.

A file appears under its final name whole or not at all. In a directory it is written to a hidden place beside the
others, synced and renamed; on an object store one upload of the finished file takes the place of the rename.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import fsspec

from arf_dask.errors import OptionError, OutputError
from arf_dask.storage import PathLike, sync_to_disk

TEMPORARY = "_arf_dask.tmp"  # Spark, pyarrow and Dask pass over names that begin with an underscore
ENDING = ".tmp"  # and no pattern of *.parquet finds what ends like this
NEW, OLD = ".arf_dask-new", ".arf_dask-old"
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2"}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Store(Protocol):
    """A flat set of named files."""

    @property
    def place(self) -> str:
        """The directory or URL, for messages and readers."""
        ...

    def prepare(self, run: str) -> None:
        """Make room for the temporary files of a run; those of runs before it go."""

    def clear(self) -> None:
        """Remove all temporary files."""

    def going(self, run: str) -> bool:
        """Whether the run still wants its files. One that was stopped, or taken over by another, does not."""
        ...

    def scratch(self, run: str, name: str) -> Any:
        """A context with the path of a local file that does not exist yet; nothing is left of it afterwards."""

    def commit(self, path: Path, name: str) -> None:
        """Put a finished file under its final name."""

    def names(self) -> list[str]:
        """Everything there, in order; none if the place does not exist."""
        ...

    def open(self, name: str) -> BinaryIO: ...

    def remove(self, names: Iterable[str]) -> None: ...

    def location(self, name: str) -> str:
        """The path or URL of a file."""
        ...


def open_store(path: PathLike, storage_options: Mapping[str, Any] | None) -> Store:
    """The store that a path or URL names."""
    text = os.fspath(path)
    if text.startswith("file://"):
        text = text.removeprefix("file://")
    if "://" in text:
        return Remote(text.rstrip("/"), dict(storage_options or {}))
    if storage_options:
        raise OptionError(
            f"storage_options: {text!r} is a local path and has none. Give a URL such as s3://..., or none."
        )
    with telling(text):
        return Directory(Path(text).resolve())


@contextmanager
def telling(place: object) -> Iterator[None]:
    """Errors of the file system become an OutputError that says where, what, and what to do."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(explain(error, str(place))) from error


def explain(error: OSError, place: str) -> str:
    """What went wrong at a place, in words."""
    reason = error.strerror if error.strerror else str(error)
    if error.errno in FULL or "No space left" in str(error):
        return f"{place}: no space left ({reason}). Make room."
    if isinstance(error, NotADirectoryError | FileExistsError):
        return f"{place}: {reason}. Give the path of a directory, new or empty."
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return f"{place}: cannot be written ({reason}). Give a directory that you may write to."
    return f"{place}: {reason}. Check the path, and that there is access to it."


@dataclass(frozen=True)
class Directory:
    """A directory of a file system with renames."""

    path: Path

    @property
    def place(self) -> str:
        return str(self.path)

    def prepare(self, run: str) -> None:
        with telling(self.path):
            if self.path.exists() and not self.path.is_dir():
                raise OutputError(f"{self.path}: is a file. Give the path of a directory, new or empty.")
            self.path.mkdir(parents=True, exist_ok=True)
            self.clear()
            (self.path / TEMPORARY / run).mkdir(parents=True)

    def clear(self) -> None:
        remove_tree(self.path / TEMPORARY)

    def going(self, run: str) -> bool:
        return (self.path / TEMPORARY / run).is_dir()

    @contextmanager
    def scratch(self, run: str, name: str) -> Iterator[Path]:
        # A name of its own for every attempt: the same task may run twice at the same time.
        path = self.path / TEMPORARY / run / f"{name}.{os.getpid()}-{uuid.uuid4().hex}{ENDING}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def commit(self, path: Path, name: str) -> None:
        sync_to_disk(path)
        path.replace(self.path / name)
        sync_to_disk(self.path)

    def names(self) -> list[str]:
        with telling(self.path):
            if self.path.exists() and not self.path.is_dir():
                raise OutputError(f"{self.path}: is a file. Give the path of a directory, new or empty.")
            return sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []

    def open(self, name: str) -> BinaryIO:
        return (self.path / name).open("rb")

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        sync_to_disk(self.path)

    def location(self, name: str) -> str:
        return str(self.path / name)

    # Replacing a whole directory: the new one is written beside the old, and both are renamed.

    @property
    def staging(self) -> Directory:
        return Directory(self.path.with_name(f".{self.path.name}{NEW}"))

    @property
    def is_staging(self) -> bool:
        return self.path.name.endswith(NEW)

    @property
    def aside(self) -> Directory:
        return Directory(self.path.with_name(f".{self.path.name}{OLD}"))

    def recover(self) -> None:
        """After a run that was killed while it replaced the directory: the old one back, and nothing beside it."""
        with telling(self.path):
            if self.aside.path.is_dir() and not self.path.exists():
                self.aside.path.rename(self.path)
            remove_tree(self.aside.path)
            remove_tree(self.staging.path)

    def swap(self) -> None:
        """Put the staging directory in the place of this one."""
        with telling(self.path):
            self.path.rename(self.aside.path)
            self.staging.path.rename(self.path)
            sync_to_disk(self.path.parent)
            remove_tree(self.aside.path)


@dataclass(frozen=True)
class Remote:
    """An object store, or any other file system of fsspec."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold passwords

    @property
    def place(self) -> str:
        return self.url

    def prepare(self, run: str) -> None:
        with self._system() as (system, root):
            kinds = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
            if not kinds & OBJECT_STORES:  # these have no directories, and some would create a bucket
                system.makedirs(root, exist_ok=True)

    def clear(self) -> None:
        """Nothing to do: temporary files are those of single tasks, on their own machines."""

    def going(self, run: str) -> bool:
        return True

    @contextmanager
    def scratch(self, run: str, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="arf_dask-", ignore_cleanup_errors=True) as directory:
            yield Path(directory) / f"{name}{ENDING}"

    def commit(self, path: Path, name: str) -> None:
        with self._system() as (system, root):
            system.put_file(str(path), f"{root}/{name}")

    def names(self) -> list[str]:
        with self._system() as (system, root):
            system.invalidate_cache()
            try:
                listed = system.ls(root, detail=False)
            except FileNotFoundError:
                return []
            found = sorted(str(name).rstrip("/").rsplit("/", 1)[-1] for name in listed)
            # Some stores list a directory as an empty object of its own name.
            return [name for name in found if name and name != root.rsplit("/", 1)[-1]]

    def open(self, name: str) -> BinaryIO:
        with self._system() as (system, root):
            file: BinaryIO = system.open(f"{root}/{name}", "rb")
            return file

    def remove(self, names: Iterable[str]) -> None:
        with self._system() as (system, root):
            for name in names:
                if system.exists(f"{root}/{name}"):
                    system.rm_file(f"{root}/{name}")

    def location(self, name: str) -> str:
        return f"{self.url}/{name}"

    def filesystem(self) -> tuple[Any, str]:
        """The fsspec file system, and where the files lie in it."""
        with self._system() as found:
            return found

    @contextmanager
    def _system(self) -> Iterator[tuple[Any, str]]:
        """The same, with errors in our words: every such package has its own kinds of them."""
        try:
            system, root = fsspec.core.url_to_fs(self.url, **self.options)
        except ImportError as error:
            raise OutputError(f"{self.url}: {error}. Install the package it names, here and on all workers.") from error
        except ValueError as error:
            raise OutputError(f"{self.url}: {error}. Give a path, or a URL that fsspec knows.") from error
        try:
            yield system, root.rstrip("/")
        except (OutputError, FileNotFoundError):
            raise
        except OSError as error:
            raise OutputError(explain(error, self.url)) from error
        except Exception as error:
            raise OutputError(
                f"{self.url}: {type(error).__name__}: {error}. Check the URL, the credentials and storage_options."
            ) from error


def remove_tree(path: Path) -> None:
    """Remove a directory, also while tasks that do not know yet that they are over write to it."""
    for _ in range(100):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.02)
