"""The steps of a pipeline as plain functions, used by the tasks of all orchestrators.

They take and return paths and small dictionaries, never data, so that results fit into an orchestrator's database.
Every step can be run again: a model or report is replaced, a data set is completed, and a job is committed to a table
only once. This requires a seed, which is therefore a mandatory argument of the steps that draw rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from arf_dask.api import fit, load
from arf_dask.options import ROWS_PER_FILE, SHADOWS
from arf_dask.release.policy import Limits, measured_figures
from arf_dask.reports import check_limits, report
from arf_dask.runtime.urls import is_url
from arf_dask.storage.iceberg import open_table
from arf_dask.storage.manifest import Manifest
from arf_dask.typing import PathLike, TableMode

StorageOptions = Mapping[str, Any] | None


def fit_model(
    data: Any,
    model: PathLike,
    *,
    client: Any = None,
    storage_options: StorageOptions = None,
    **options: Any,
) -> str:
    """Fit a model and save it.

    Args:
        data: Paths, globs or URLs of Parquet or CSV files, or any other data accepted by `arf_dask.fit`.
        model: The directory or URL to save to; an existing model is replaced.
        client: A Dask client or the address of a scheduler.
        storage_options: Storage options for URLs. Orchestrators display arguments: pass credentials by environment.
        **options: The options of `arf_dask.fit`.

    Returns:
        The path of the model.
    """
    fitted = fit(data, client=client, storage_options=storage_options, **options)
    fitted.save(model, storage_options=_options_for(model, storage_options))
    return str(model)


def sample_data_set(
    model: PathLike,
    to: PathLike,
    n: int,
    *,
    seed: int,
    given: Any = None,
    portable: bool = False,
    rows_per_file: int = ROWS_PER_FILE,
    client: Any = None,
    storage_options: StorageOptions = None,
) -> dict[str, Any]:
    """Write rows of a model to a data set of Parquet files; an interrupted run is completed.

    Args:
        model: The directory or URL of a model.
        to: The directory or URL of the data set.
        n: The number of rows.
        seed: The random seed, which makes runs repeatable.
        given: A condition, as in `Model.sample`.
        portable: Whether to write types that Spark, Delta and Iceberg can read.
        rows_per_file: The number of rows per file.
        client: A Dask client or the address of a scheduler.
        storage_options: Storage options for URLs.

    Returns:
        A summary of the written rows; see `describe_manifest`.
    """
    written = _load(model, storage_options).sample_parquet(
        to,
        n,
        seed=seed,
        given=given,
        portable=portable,
        rows_per_file=rows_per_file,
        mode="resume",
        client=client,
        storage_options=_options_for(to, storage_options),
    )
    return describe_manifest(written)


def report_data_set(
    data: Any,
    synthetic: Any,
    page: PathLike,
    *,
    seed: int,
    holdout: Any = None,
    target: str | None = None,
    shadows: int = SHADOWS,
    limits: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a report on synthetic rows, and raise an error if a figure exceeds its limit, which stops the pipeline.

    Args:
        data: The training data: paths, globs or URLs, as in `arf_dask.report`.
        synthetic: The path or URL of the synthetic rows.
        page: The .html or .json file of the report.
        seed: The random seed, which makes the report repeatable.
        holdout: Real rows not used for training. Attacks need them.
        target: A column to predict, as in `arf_dask.report`.
        shadows: The number of shadow models for the likelihood-ratio attack; 0 skips it.
        limits: The largest figures allowed, by the names of `arf_dask.Limits`, such as `{"membership_auc": 0.6}`.

    Returns:
        The path of the page, the verdicts on fidelity and privacy, and the figures that limits apply to
        (membership_auc, c2st, tpr, copies, inference; None if not measured).

    Raises:
        ReleaseError: If a figure exceeds its limit. The report is written nevertheless.
    """
    checked = None if limits is None else Limits(**{"membership_auc": None, **limits, "page": str(page)})
    made = report(data, synthetic, holdout=holdout, target=target, seed=seed, shadows=shadows, progress=False)
    if checked is None:
        made.save(page)
    else:
        check_limits(made, checked)
    verdicts = {"fidelity": made.verdict.fidelity, "privacy": made.verdict.privacy}
    return {"path": str(page), **verdicts, **measured_figures(made.to_dict())}


def publish_delta(
    model: PathLike,
    table: str,
    n: int,
    *,
    seed: int,
    mode: TableMode = "append",
    given: Any = None,
    client: Any = None,
    storage_options: StorageOptions = None,
) -> dict[str, Any]:
    """Add rows of a model to a Delta table in one commit; running the same job again adds nothing.

    Args:
        model: The directory or URL of a model.
        table: The path or URL of a new or existing Delta table.
        n: The number of rows.
        seed: The random seed, which makes runs repeatable.
        mode: How to handle an existing table, as in `Model.sample_delta`.
        given: A condition, as in `Model.sample`.
        client: A Dask client or the address of a scheduler.
        storage_options: Storage options for URLs.

    Returns:
        A summary of the written rows; see `describe_manifest`.
    """
    options = {"mode": mode, "given": given, "client": client, "storage_options": _options_for(table, storage_options)}
    written = _load(model, storage_options).sample_delta(table, n, seed=seed, **options)
    return {**describe_manifest(written), "table": str(table)}


def publish_iceberg(
    model: PathLike,
    table: str,
    n: int,
    *,
    seed: int,
    catalog: str = "default",
    mode: TableMode = "append",
    given: Any = None,
    client: Any = None,
    storage_options: StorageOptions = None,
) -> dict[str, Any]:
    """Add rows of a model to an Iceberg table in one snapshot; running the same job again adds nothing.

    Args:
        model: The directory or URL of a model.
        table: The identifier of a table, such as "lake.synthetic"; it is created if it does not exist.
        n: The number of rows.
        seed: The random seed, which makes runs repeatable.
        catalog: The name of a catalogue in pyiceberg's configuration (.pyiceberg.yaml or PYICEBERG_CATALOG__...).
        mode: How to handle an existing table, as in `Model.sample_iceberg`.
        given: A condition, as in `Model.sample`.
        client: A Dask client or the address of a scheduler.
        storage_options: Storage options for the model's URL; those of the table come from the catalogue.

    Returns:
        A summary of the written rows; see `describe_manifest`.
    """
    loaded = _load(model, storage_options)
    opened = open_table(catalog, table, loaded.portable_schema())
    written = loaded.sample_iceberg(opened, n, seed=seed, mode=mode, given=given, client=client)
    return {**describe_manifest(written), "table": table}


def describe_manifest(manifest: Manifest) -> dict[str, Any]:
    """Return path, rows, bytes, parts, seed, model_hash and sha256 (of the hashes of all parts) as plain values."""
    hashes = "".join(part.sha256 for part in manifest.parts)
    return {
        "path": manifest.path,
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "parts": len(manifest.parts),
        "seed": manifest.seed,
        "model_hash": manifest.model_hash,
        "sha256": hashlib.sha256(hashes.encode()).hexdigest(),
    }


def _load(model: PathLike, storage_options: StorageOptions) -> Any:
    return load(model, storage_options=_options_for(model, storage_options))


def _options_for(path: PathLike, storage_options: StorageOptions) -> StorageOptions:
    """Return the storage options if the path is a URL, otherwise None."""
    return storage_options if is_url(path) else None
