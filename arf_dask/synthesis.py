"""`synthesize`: fit a model and sample from it in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack, overload

import polars as pl

from arf_dask.api import FitArguments, fit
from arf_dask.data.files import Reading
from arf_dask.data.frames import is_dask, to_polars
from arf_dask.data.holdout import split_holdout
from arf_dask.data.opening import open_parts
from arf_dask.errors import OptionError
from arf_dask.inference.dask_rows import dask_frame
from arf_dask.inference.row_plan import plan_rows
from arf_dask.inference.sources import check_memory, check_policy, check_rows
from arf_dask.model import Model
from arf_dask.options import ROWS_PER_FILE, FitOptions, Options, shows_options
from arf_dask.privacy.declaration import DifferentialPrivacy
from arf_dask.privacy.opening import fit_privately
from arf_dask.release.fitting import checked_policy
from arf_dask.release.policy import Limits, ReleasePolicy
from arf_dask.reports import EVALUATION
from arf_dask.runtime.cluster import runner_for
from arf_dask.runtime.progress import ProgressFunction, progress_for
from arf_dask.runtime.seeds import entropy
from arf_dask.runtime.urls import is_url
from arf_dask.single_files import check_output, is_file, write_file
from arf_dask.storage.manifest import Manifest
from arf_dask.training.stages import fit_parts
from arf_dask.typing import FrameT, OnImpossible, PathLike, WriteMode


class SynthesizeOptions(FitArguments, total=False):
    """The keyword arguments of `synthesize` except `to`, for type checkers and editors."""

    given: Any
    on_impossible: OnImpossible
    mode: WriteMode
    rows_per_file: int
    portable: bool
    publish_if: Limits | None
    first_key: int | None


@overload
def synthesize(data: Any, n: int | None = None, *, to: PathLike, **options: Unpack[SynthesizeOptions]) -> Manifest: ...
@overload
def synthesize(
    data: PathLike | Sequence[PathLike], n: int | None = None, *, to: None = None, **options: Unpack[SynthesizeOptions]
) -> pl.DataFrame: ...
@overload
def synthesize(
    data: FrameT, n: int | None = None, *, to: None = None, **options: Unpack[SynthesizeOptions]
) -> FrameT: ...
@overload
def synthesize(data: object, n: int | None = None, *, to: None = None, **options: Unpack[SynthesizeOptions]) -> Any: ...
@shows_options
def synthesize(
    data: Any,
    n: int | None = None,
    *,
    given: Any = None,
    on_impossible: OnImpossible = "raise",
    to: PathLike | None = None,
    mode: WriteMode = "error",
    rows_per_file: int = ROWS_PER_FILE,
    portable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    read_options: Mapping[str, Any] | None = None,
    release: ReleasePolicy | None = None,
    privacy: DifferentialPrivacy | None = None,
    privacy_ledger: PathLike | None = None,
    holdout: Any = None,
    publish_if: Limits | None = None,
    seed: int | None = None,
    first_key: int | None = None,
    client: Any = None,
    progress: bool | ProgressFunction | None = None,
    **options: Unpack[FitOptions],
) -> Any:
    """Draw a synthetic version of a table: fit a model and sample from it.

    Works with `pipe`: `df.pipe(arf_dask.synthesize, n=1_000_000)`.

    Args:
        data: The training data, as in `fit`.
        n: The number of rows; None for as many as `data` has.
        given: A condition, as in `Model.sample`.
        on_impossible: How to handle an impossible condition, as in `Model.sample`.
        to: A directory or URL to write the rows to, as by `Model.sample_parquet`; or a single file, if it ends in
            .parquet, .csv, .csv.gz, .csv.zst, .arrow, .feather, .ndjson or .jsonl. None returns the rows.
        mode: How to handle an existing target, as in `Model.sample_parquet`. To resume, give the same data and seed.
        rows_per_file: The number of rows per file at `to`.
        portable: Whether to write types that Spark, Delta and Iceberg can read, as in `Model.sample_parquet`.
        storage_options: Storage options for URLs in `data` and `to`, with the names of fsspec or of Polars.
        read_options: Options for reading CSV, as in `fit`.
        release: A policy for publishing, as in `fit`.
        privacy: A differentially private fit, as in `fit`. `n=None` then draws as many rows as a noisy count says.
        privacy_ledger: The ledger of private fits of this table, as in `fit`.
        holdout: Rows to exclude from training, as in `fit`; required by `publish_if`.
        publish_if: Limits that the rows must satisfy under attack. If one is violated, nothing is written and a
            ReleaseError is raised.
        seed: The random seed, for repeatable results; None uses a fresh one.
        first_key: The number of identifiers already used, as in `Model.sample`.
        client: A Dask client or the address of a scheduler, as in `fit`.
        progress: Whether to show progress, as in `fit`.
        **options: The options of `fit`.

    Returns:
        A frame of the same type as `data` (Polars for a path, a Delta or Iceberg table; an Arrow table for a stream).
        For a LazyFrame or a Dask DataFrame, the model is fitted immediately, and rows are drawn when the result is
        collected, computed or written. With `to`, the `Manifest` of the written data set.

    Raises:
        OptionError: If an argument is invalid, or an option does not exist.
        DataError: If the data cannot be read or modelled.
        ImpossibleConditionError: If the condition has probability zero and `on_impossible` is "raise".
        OutputError: If `to` is in use, or cannot be written.
        PrivacyError: If a private fit would need something that is neither declared nor paid for.
        ReleaseError: If the data cannot be released, or a limit of `publish_if` is violated.

    Examples:
        >>> import arf_dask, polars as pl
        >>> data = pl.DataFrame({"sex": ["f", "m"] * 100, "age": [20 + i % 40 for i in range(200)]})
        >>> arf_dask.synthesize(data, 500, trees=5, seed=1).shape
        (500, 2)
    """
    if n is not None:
        check_rows(n)
    check_policy(on_impossible)
    checked, chosen, reading = Options.read(options), entropy(seed), Reading(storage_options, read_options)
    _check_target(to, mode, rows_per_file, storage_options, publish_if)
    sampling: dict[str, Any] = {"given": given, "on_impossible": on_impossible, "seed": chosen, "first_key": first_key}
    running: dict[str, Any] = {"client": client, "progress": progress}
    writing: dict[str, Any] = {"rows_per_file": rows_per_file, "mode": mode, "portable": portable, **running}
    writing["storage_options"] = storage_options if to is not None and is_url(to) else None
    if privacy is not None or privacy_ledger is not None:
        refused = {"seed": seed, "release": release, "holdout": holdout, "publish_if": publish_if}
        made = fit_privately(data, privacy, checked, privacy_ledger, refused, reading, client, progress)
        model = Model(made.fitted)
        estimated = 1 if model.privacy is None else model.privacy.rows
        lazy_data = data if isinstance(data, pl.LazyFrame) else None
        return _deliver(model, lazy_data, to, estimated if n is None else n, made.to_original, sampling, writing)
    if release is not None or holdout is not None or publish_if is not None:
        table = to_polars(data, reading)
        subject = None if release is None else checked_policy(release).subject
        learned, kept_back = split_holdout(table.frame, holdout, chosen, subject)
        model = fit(learned, release=release, holdout=kept_back, seed=chosen, **running, **options)
        rows = table.frame.height if n is None else n
        if publish_if is not None and to is not None:
            return model.sample_parquet(to, rows, publish_if=publish_if, real=learned, **writing, **sampling)
        convert = table.to_original if release is None else table.to_released
        return _deliver(model, None, to, rows, convert, sampling, writing)
    with (
        progress_for(progress) as report,
        runner_for(client) as runner,
        open_parts(data, runner, reading) as parts,
    ):
        if n is not None and to is None and not (isinstance(data, pl.LazyFrame) or is_dask(data)):
            check_memory(n, len(parts.dtypes))
        model = Model(fit_parts(parts, checked, chosen, runner, report), evaluation=EVALUATION)
        rows, to_original = parts.n_rows if n is None else n, parts.to_original
    return _deliver(model, data, to, rows, to_original, sampling, writing)


def _check_target(
    to: PathLike | None,
    mode: WriteMode,
    rows_per_file: int,
    storage_options: Mapping[str, Any] | None,
    publish_if: Limits | None,
) -> None:
    """Check the target before the model is fitted."""
    if publish_if is not None and to is None:
        raise OptionError("publish_if: give to=, the place that rows are published at if the limits hold.")
    if publish_if is not None and to is not None and is_file(to):
        raise OptionError("publish_if: a gate needs a directory in to=, not a single file.")
    if to is not None:
        check_output(to, mode, rows_per_file, storage_options if is_url(to) else None)


def _deliver(
    model: Model,
    data: Any,
    to: PathLike | None,
    rows: int,
    to_original: Callable[[pl.DataFrame], Any],
    sampling: dict[str, Any],
    writing: dict[str, Any],
) -> Any:
    """Write rows to `to`, or return them: lazily if `data` is lazy, otherwise converted by `to_original`."""
    if to is not None and is_file(to):
        kept = {name: writing[name] for name in ("client", "progress", "portable")}
        return write_file(model, to, rows, {**sampling, **kept})
    if to is not None:
        return model.sample_parquet(to, rows, **writing, **sampling)
    if isinstance(data, pl.LazyFrame):
        return model.sample(rows, frame="lazy", **sampling)
    if is_dask(data):
        sampler = model._sampler_from(sampling["first_key"])
        plan = plan_rows(sampler, rows, sampling["given"], sampling["on_impossible"], sampling["seed"])
        return dask_frame(plan, data._meta)
    return to_original(model.sample(rows, progress=writing["progress"], **sampling))
