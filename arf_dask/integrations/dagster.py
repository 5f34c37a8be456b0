"""Dagster assets: a model, a data set of synthetic rows, a report on it, and Delta and Iceberg tables.

Every function returns an asset definition. Assets hold paths, not data; rows, bytes and hashes of the output are
metadata of the materialization. Retries are safe, as runs resume.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from arf_dask.errors import missing_extra
from arf_dask.integrations import steps

try:
    import dagster
except ImportError as missing:
    raise missing_extra("arf_dask.integrations.dagster", "dagster") from missing

RETRY = dagster.RetryPolicy(max_retries=2, delay=5)


def model_asset(name: str, *, data: Any, path: str, deps: Any = None, **options: Any) -> Any:
    """Return an asset that fits a model.

    Args:
        name: The name of the asset.
        data: The training data: paths or URLs, as in `arf_dask.fit`.
        path: The directory or URL of the model.
        deps: The upstream assets.
        **options: The options of `steps.fit_model` and `arf_dask.fit`.
    """

    def fitted() -> Any:
        made = steps.fit_model(data, path, **options)
        return dagster.MaterializeResult(metadata={"path": made})

    return dagster.asset(name=name, deps=deps, kinds={"python"}, retry_policy=RETRY)(fitted)


def data_set_asset(name: str, *, model: Any, model_path: str, to: str, n: int, seed: int, **options: Any) -> Any:
    """Return an asset that writes a data set of synthetic rows.

    Args:
        name: The name of the asset.
        model: The asset of the model.
        model_path: The directory or URL of the model.
        to: The directory or URL of the data set.
        n: The number of rows.
        seed: The random seed, which makes runs repeatable.
        **options: The other options of `steps.sample_data_set`.
    """
    write = partial(steps.sample_data_set, model_path, to, n, seed=seed, **options)
    return _rows_asset(name, [model], "parquet", write)


def report_asset(name: str, *, rows: Any, data: Any, synthetic: str, page: str, seed: int, **options: Any) -> Any:
    """Return an asset that reports on synthetic rows, and fails if a figure exceeds its limit.

    Args:
        name: The name of the asset.
        rows: The asset of the synthetic rows.
        data: The training data: paths or URLs.
        synthetic: The path or URL of the synthetic rows.
        page: The .html or .json file of the report.
        seed: The random seed, which makes the report repeatable.
        **options: The other options of `steps.report_data_set`.
    """

    def reported() -> Any:
        found = steps.report_data_set(data, synthetic, page, seed=seed, **options)
        known = {name: value for name, value in found.items() if value is not None}
        return dagster.MaterializeResult(metadata=known)

    return dagster.asset(name=name, deps=[rows], kinds={"html"}, retry_policy=RETRY)(reported)


def delta_asset(
    name: str, *, model: Any, model_path: str, table: str, n: int, seed: int, after: Any = None, **options: Any
) -> Any:
    """Return an asset that adds synthetic rows to a Delta table.

    Args:
        name: The name of the asset.
        model: The asset of the model.
        model_path: The directory or URL of the model.
        table: The path or URL of the table.
        n: The number of rows.
        seed: The random seed, which makes runs repeatable.
        after: An asset that must succeed first, such as the report.
        **options: The other options of `steps.publish_delta`.
    """
    write = partial(steps.publish_delta, model_path, table, n, seed=seed, **options)
    return _rows_asset(name, [model, after], "delta", write)


def iceberg_asset(
    name: str, *, model: Any, model_path: str, table: str, n: int, seed: int, after: Any = None, **options: Any
) -> Any:
    """Return an asset that adds synthetic rows to an Iceberg table.

    Args:
        name: The name of the asset.
        model: The asset of the model.
        model_path: The directory or URL of the model.
        table: The identifier of the table.
        n: The number of rows.
        seed: The random seed, which makes runs repeatable.
        after: An asset that must succeed first, such as the report.
        **options: The other options of `steps.publish_iceberg`.
    """
    write = partial(steps.publish_iceberg, model_path, table, n, seed=seed, **options)
    return _rows_asset(name, [model, after], "iceberg", write)


def _rows_asset(name: str, before: list[Any], kind: str, write: Callable[[], dict[str, Any]]) -> Any:
    """Return an asset that writes rows of a model and attaches rows, bytes and hashes as metadata."""

    def materialize() -> Any:
        written = write()
        metadata = {**written, "dagster/row_count": written["rows"]}
        return dagster.MaterializeResult(metadata=metadata, data_version=dagster.DataVersion(written["sha256"]))

    deps = [asset for asset in before if asset is not None]
    return dagster.asset(name=name, deps=deps, kinds={kind}, retry_policy=RETRY)(materialize)
