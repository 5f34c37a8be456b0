"""Save and load models at URLs, through a local copy.

Object stores cannot rename. `model.json`, which holds the hashes of all other files, is removed first and uploaded
last, so that a partially written model is never loaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arf_dask.errors import ModelFormatError, OptionError
from arf_dask.forest.fitted import Fitted
from arf_dask.runtime.forks import check_not_forked
from arf_dask.runtime.urls import is_url, local_path
from arf_dask.storage.fields import MODEL_JSON
from arf_dask.storage.layout import ALL_SCHEMAS
from arf_dask.storage.model_file import check_model_path, read_fitted, save
from arf_dask.storage.stores import Store, open_store
from arf_dask.typing import PathLike

CHUNK = 2**22


def save_model(fitted: Fitted, path: PathLike, storage_options: Mapping[str, Any] | None = None) -> None:
    """Write a model to a directory or URL. An existing model is replaced; any other content raises an error."""
    check_model_target(path, storage_options)
    if not is_url(path):
        save(fitted, local_path(path))
        return
    store = open_store(path, storage_options)
    with tempfile.TemporaryDirectory(prefix="arf_dask-") as directory:
        save(fitted, Path(directory) / "model")
        store.prepare("model")
        file_names = {file.name for file in (Path(directory) / "model").iterdir()}
        store.remove([MODEL_JSON, *(ALL_SCHEMAS.keys() - file_names)])
        for name in [*sorted(file_names - {MODEL_JSON}), MODEL_JSON]:
            store.commit(Path(directory) / "model" / name, name)


def read_model(path: PathLike, storage_options: Mapping[str, Any] | None = None) -> Fitted:
    """Read and validate the model at a directory or URL. Raises a ModelFormatError if it is invalid."""
    check_not_forked()
    if not is_url(path):
        _refuse_options(path, storage_options)
        return read_fitted(local_path(path))
    store = open_store(path, storage_options)
    if MODEL_JSON not in store.names():
        raise ModelFormatError(f"model {store.root!r}: no {MODEL_JSON} there. Give the URL that `model.save` wrote to.")
    with tempfile.TemporaryDirectory(prefix="arf_dask-") as directory:
        for name in set(store.names()) & {MODEL_JSON, *ALL_SCHEMAS}:
            _copy(store, name, Path(directory) / name)
        try:
            return read_fitted(directory)
        except ModelFormatError as error:
            raise ModelFormatError(str(error).replace(directory, store.root)) from None


def check_model_target(path: PathLike, storage_options: Mapping[str, Any] | None = None) -> None:
    """Raise an error unless a model can be saved to `path`: it must be new, empty, or hold only a model."""
    if not is_url(path):
        _refuse_options(path, storage_options)
        check_model_path(Path(local_path(path)))
        return
    store = open_store(path, storage_options)
    held = store.names()
    others = [name for name in held if name != MODEL_JSON and name not in ALL_SCHEMAS]
    if others:
        raise OptionError(f"path {store.root!r} holds something else than a model ({others[0]!r}). Give a new URL.")


def _copy(store: Store, name: str, target: Path) -> None:
    with store.open(name) as source, target.open("wb") as file:
        while chunk := source.read(CHUNK):
            file.write(chunk)


def _refuse_options(path: PathLike, storage_options: Mapping[str, Any] | None) -> None:
    if storage_options:
        raise OptionError(f"storage_options: {local_path(path)!r} is a local path and has none. Give a URL, or none.")
