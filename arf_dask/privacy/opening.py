"""Open data for a private fit, and refuse arguments and kinds of data that would reveal something for free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike as OsPathLike
from typing import Any, NamedTuple

import polars as pl

from arf_dask.data.files import Reading, find_files, is_csv, is_path_list, path_list
from arf_dask.data.frames import is_dask
from arf_dask.data.opening import open_parts
from arf_dask.data.pandas_frames import is_pandas
from arf_dask.errors import OptionError, PrivacyError
from arf_dask.forest.fitted import Fitted
from arf_dask.options import Options
from arf_dask.privacy.declaration import checked_privacy
from arf_dask.privacy.fitting import Ledger, fit_private
from arf_dask.runtime.cluster import runner_for
from arf_dask.runtime.progress import ProgressFunction, progress_for
from arf_dask.runtime.urls import is_url
from arf_dask.typing import PathLike


class PrivateFit(NamedTuple):
    """A private model, and the conversion of its rows to the caller's kind of frame."""

    fitted: Fitted
    to_original: Callable[[pl.DataFrame], Any]


def fit_privately(
    data: Any,
    privacy: object,
    options: Options,
    ledger_path: PathLike | None,
    refused: Mapping[str, Any],
    reading: Reading,
    client: Any,
    progress: bool | ProgressFunction | None,
) -> PrivateFit:
    """Fit a model with differential privacy.

    Args:
        data: of any kind whose types do not depend on its rows.
        privacy: the declaration.
        options: the options of the ordinary fit to drawn rows.
        ledger_path: of the ledger; None keeps none.
        refused: arguments of `fit` that a private fit refuses unless they are None.
        reading: storage and read options of the data; the former are those of the ledger too.
        client: runs the tasks that count rows.
        progress: as in `fit`.

    Raises:
        PrivacyError: an argument or the kind of data would reveal something for free.
    """
    if privacy is None:
        raise OptionError("privacy_ledger: say privacy=arf_dask.DifferentialPrivacy(...) too.")
    declared = checked_privacy(privacy)
    check_refused(refused)
    _check_kind(data)
    ledger = None if ledger_path is None else Ledger(ledger_path, reading.storage)
    with (
        progress_for(progress) as report,
        runner_for(client) as runner,
        open_parts(data, runner, reading) as parts,
    ):
        return PrivateFit(fit_private(parts, declared, options, ledger, runner, report), parts.to_original)


REASONS = {
    "seed": "noise must not be repeatable. Give a seed to `sample` instead",
    "release": "its figures and its guard are exact. A private model needs no release policy",
    "holdout": "which rows are held out depends on their exact number. Split the rows before",
    "publish_if": "whether rows pass depends on real rows",
}


def check_refused(arguments: Mapping[str, Any]) -> None:
    """Raise a PrivacyError for the first argument that would reveal something for free."""
    given = next((name for name, value in arguments.items() if value is not None), None)
    if given is not None:
        raise PrivacyError(f"{given}=: is refused in a private fit: {REASONS[given]}.")


def _check_kind(data: Any) -> None:
    """Raise a PrivacyError for kinds of data whose types are inferred from their values."""
    kind = None
    if isinstance(data, str | OsPathLike) or is_path_list(data):
        paths = path_list(data)
        local = [path for path in paths if not is_url(path)]
        files = [*(path for path in paths if is_url(path)), *(find_files(local) if local else [])]
        kind = "CSV" if any(map(is_csv, files)) else None
    elif is_dask(data):
        kind = "Dask DataFrames"
    elif is_pandas(data) and any(dtype.kind == "O" for dtype in data.dtypes):
        kind = "pandas columns of objects"
    if kind is not None:
        raise PrivacyError(
            f"the types of {kind} are inferred from values, which a private fit must not read. Write the table as "
            "Parquet, or give a Polars frame with declared types."
        )
