"""Local copies of files on fsspec file systems that Polars cannot read directly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from arf_dask.data.files import CSV_ENDINGS
from arf_dask.errors import DataError
from arf_dask.runtime.cloud_options import fsspec_options, missing_package
from arf_dask.runtime.urls import public_url


def copy_files(
    urls: Sequence[str], new_file: Callable[[str], Path], storage_options: Mapping[str, Any] | None
) -> list[str]:
    """Copy the files of URLs (files, directories or globs) to local files made by `new_file` and return their paths.

    Raises:
        DataError: The store cannot be opened, or holds no such file.
        MissingExtraError: The fsspec package of the store is not installed.
    """
    copies: list[str] = []
    for url in urls:
        try:
            system, path = fsspec.core.url_to_fs(url, **fsspec_options(url, storage_options))
            files = system.find(path) if system.isdir(path) else system.glob(path)
            for file in sorted(name for name in files if name.lower().endswith((".parquet", *CSV_ENDINGS))):
                copies.append(str(new_file(f"{len(copies):06}-{PurePosixPath(file).name}")))
                system.get_file(file, copies[-1])
        except (ImportError, OSError, ValueError) as error:
            missing = missing_package(url, error)
            if missing is not None:
                raise missing from None
            raise DataError(f"{public_url(url)}: cannot be read ({type(error).__name__}). Check the URL.") from None
    if not copies:
        raise DataError(f"{', '.join(map(public_url, urls))}: no Parquet or CSV file there. Check the URL.")
    return copies
