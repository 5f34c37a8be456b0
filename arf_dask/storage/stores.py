"""Stores of data sets: a local directory, or a URL of any file system supported by fsspec.

Files appear under their final names atomically. In a directory, a file is written under a temporary name, flushed to
disk and renamed; in an object store, the finished file is uploaded in one operation.
"""

from __future__ import annotations

import errno
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import fsspec

from arf_dask.errors import OptionError, OutputError
from arf_dask.runtime.cloud_options import fsspec_options, missing_package
from arf_dask.runtime.disk import remove_tree, replace_file, resolve_path, sync_to_disk
from arf_dask.runtime.locks import LockHeldError
from arf_dask.runtime.replacement import current_path, own_directory, staging_path, swap_directory
from arf_dask.runtime.urls import is_url, local_path, public_url, without_secrets
from arf_dask.typing import PathLike

TEMPORARY = "_arf_dask.tmp"  # Spark, pyarrow and Dask skip names that begin with an underscore
ENDING = ".tmp"  # not matched by the pattern *.parquet
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2"}
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Store(Protocol):
    """A flat set of named files."""

    @property
    def root(self) -> str:
        """The directory or URL, without credentials."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether the store cannot be locked, so that tasks of stopped runs may still publish files."""
        ...

    def owned(self) -> AbstractContextManager[None]:
        """Return a context manager that holds an exclusive lock; other processes get an OutputError meanwhile."""
        ...

    def prepare(self, run: str) -> None:
        """Create a directory for the temporary files of a run, and remove those of earlier runs."""

    def clear(self) -> None:
        """Remove all temporary files."""

    def is_active(self, run: str) -> bool:
        """Return whether a run is still active, that is, neither stopped nor replaced by another run."""
        ...

    def scratch(self, run: str, name: str) -> Any:
        """Return a context manager that yields the path of a new local file and removes the file on exit."""

    def commit(self, path: Path, name: str) -> None:
        """Publish a finished file under its final name."""

    def names(self) -> list[str]:
        """Return the sorted names of all entries; names of directories end in "/"."""
        ...

    def open(self, name: str) -> BinaryIO: ...

    def remove(self, names: Iterable[str]) -> None: ...

    def location(self, name: str) -> str:
        """Return the path or URL of a file."""
        ...


def open_store(path: PathLike, storage_options: Mapping[str, Any] | None) -> Store:
    """Open the store at a path or URL."""
    text = local_path(path)
    if is_url(text):
        return Remote(text.rstrip("/"), fsspec_options(text, storage_options))
    if storage_options:
        raise OptionError(
            f"storage_options: {text!r} is a local path and has none. Give a URL such as s3://..., or none."
        )
    with output_errors(text):
        return Directory(resolve_path(Path(text)))


def write_file(path: PathLike, content: bytes, storage_options: Mapping[str, Any] | None) -> None:
    """Write a file to a path or URL, replacing an existing file."""
    text = local_path(path)
    if not is_url(text):
        with output_errors(text):
            Path(text).write_bytes(content)
        return
    folder, _, name = text.rpartition("/")
    store = open_store(folder, storage_options)
    with store.scratch("file", name) as draft:
        draft.write_bytes(content)
        store.commit(draft, name)


@contextmanager
def output_errors(location: object) -> Iterator[None]:
    """Convert file system errors into an OutputError with the location and a remedy."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(explain(error, str(location))) from error


def explain(error: OSError, location: str) -> str:
    """Return the message for a file system error: the location, the reason and a remedy."""
    reason = error.strerror if error.strerror else str(error)
    if error.errno in FULL or "No space left" in str(error):
        return f"{location}: no space left ({reason}). Make room."
    if isinstance(error, NotADirectoryError | FileExistsError):
        return f"{location}: {reason}. Give the path of a directory, new or empty."
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return f"{location}: cannot be written ({reason}). Give a directory that you may write to."
    return f"{location}: {reason}. Check the path, and that there is access to it."


@dataclass(frozen=True)
class Directory:
    """A local directory; files are published by renaming."""

    path: Path
    is_staging: bool = False  # whether it will replace another directory

    @property
    def root(self) -> str:
        return str(self.path)

    @property
    def is_shared(self) -> bool:
        return False

    @contextmanager
    def owned(self) -> Iterator[None]:
        with output_errors(self.path):
            self._check_kind()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            owner = own_directory(self.path)
            try:
                owner.__enter__()
            except LockHeldError as error:
                raise OutputError(f"{self.path}: {error}. Wait until it has ended, or give another path.") from error
        try:
            yield
        finally:
            owner.__exit__(None, None, None)

    def prepare(self, run: str) -> None:
        with output_errors(self.path):
            self._check_kind()
            self.path.mkdir(parents=True, exist_ok=True)
            self.clear()
            (self.path / TEMPORARY / run).mkdir(parents=True)

    def clear(self) -> None:
        remove_tree(self.path / TEMPORARY)

    def is_active(self, run: str) -> bool:
        return (self.path / TEMPORARY / run).is_dir()

    @contextmanager
    def scratch(self, run: str, name: str) -> Iterator[Path]:
        # Every attempt has a unique name: the same task may run twice concurrently.
        path = self.path / TEMPORARY / run / f"{name}.{os.getpid()}-{uuid.uuid4().hex}{ENDING}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def commit(self, path: Path, name: str) -> None:
        replace_file(path, self.path / name)

    def names(self) -> list[str]:
        with output_errors(self.path):
            self._check_kind()
            here = current_path(self.path)
            return sorted(entry.name + "/" * entry.is_dir() for entry in here.iterdir()) if here.is_dir() else []

    def open(self, name: str) -> BinaryIO:
        return (current_path(self.path) / name).open("rb")

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        sync_to_disk(self.path)

    def location(self, name: str) -> str:
        return str(self.path / name)

    def staging(self, run: str) -> Directory:
        """Return the directory in which a run prepares the replacement of this directory."""
        return Directory(staging_path(self.path, run), is_staging=True)

    def swap(self, staging: Directory) -> None:
        """Replace this directory with a finished one. The caller must hold the lock."""
        with output_errors(self.path):
            swap_directory(staging.path, self.path)

    def discard(self) -> None:
        """Remove the directory if it exists."""
        remove_tree(self.path)

    def _check_kind(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path}: is a file. Give the path of a directory, new or empty.")


@dataclass(frozen=True)
class Remote:
    """An object store, or any other file system supported by fsspec."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may contain credentials

    @property
    def root(self) -> str:
        return public_url(self.url)

    @property
    def is_shared(self) -> bool:
        return True

    def owned(self) -> AbstractContextManager[None]:
        """Do nothing: object stores have no locks. Runs are distinguished by job hash and run id."""
        return nullcontext()

    def prepare(self, run: str) -> None:
        with self._system() as (system, root):
            kinds = {system.protocol} if isinstance(system.protocol, str) else set(system.protocol)
            if not kinds & OBJECT_STORES:  # object stores have no directories, and some would create a bucket
                system.makedirs(root, exist_ok=True)

    def clear(self) -> None:
        """Do nothing: temporary files are local to the machine of each task."""

    def is_active(self, run: str) -> bool:
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
                listed = system.ls(root, detail=True)
            except FileNotFoundError:
                return []
            found = sorted(_entry_name(entry) for entry in listed)
            # Some stores list a directory itself as an empty object.
            return [name for name in found if name and name.rstrip("/") != root.rsplit("/", 1)[-1]]

    def open(self, name: str) -> BinaryIO:
        with self._system() as (system, root):
            file: BinaryIO = system.open(f"{root}/{name}", "rb")
            return file

    def remove(self, names: Iterable[str]) -> None:
        with self._system() as (system, root):
            system.invalidate_cache()
            for name in names:
                if system.exists(f"{root}/{name}"):
                    system.rm_file(f"{root}/{name}")

    def location(self, name: str) -> str:
        return f"{self.root}/{name}"

    def filesystem(self) -> tuple[Any, str]:
        """Return the fsspec file system and the root path of the store in it."""
        with self._system() as found:
            return found

    @contextmanager
    def _system(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system and root path, converting fsspec errors into an OutputError without secrets."""
        shown = self.root
        try:
            system, root = fsspec.core.url_to_fs(self.url, **self.options)
        except (ImportError, ValueError) as error:
            missing = missing_package(self.url, error)
            if missing is not None:
                raise missing from None
            problem = without_secrets(str(error), self.url, self.options)
            raise OutputError(f"{shown}: {problem}. Give a path, or a URL that fsspec knows.") from None
        except OSError as error:
            raise OutputError(without_secrets(explain(error, shown), self.url, self.options)) from None
        try:
            yield system, root.rstrip("/")
        except (OutputError, FileNotFoundError):
            raise
        except OSError as error:
            raise OutputError(without_secrets(explain(error, shown), self.url, self.options)) from None
        except Exception as error:
            problem = without_secrets(f"{type(error).__name__}: {error}", self.url, self.options)
            raise OutputError(f"{shown}: {problem}. Check the URL, the credentials and storage_options.") from None


def _entry_name(entry: Mapping[str, Any]) -> str:
    name = str(entry["name"]).rstrip("/").rsplit("/", 1)[-1]
    return name + "/" * (entry.get("type") == "directory")
