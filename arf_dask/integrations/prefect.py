"""Prefect tasks: `fit_task`, `sample_task`, `report_task`, `publish_delta_task` and `publish_iceberg_task`.

Each task is retried twice, which is safe, as runs resume. Tasks that write rows create an artifact with rows, bytes and
hashes; reports create one with verdicts and figures. All task runners are supported; with `DaskTaskRunner`,
`client=None` uses the workers of the runner's cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from arf_dask.errors import missing_extra
from arf_dask.integrations import steps

try:
    from prefect import task
    from prefect.artifacts import create_table_artifact
except ImportError as missing:
    raise missing_extra("arf_dask.integrations.prefect", "prefect") from missing

RETRIES = {"retries": 2, "retry_delay_seconds": 5}


def _with_artifact(
    step: Callable[..., dict[str, Any]], description: str, key: Callable[[dict[str, Any]], str]
) -> Callable[..., dict[str, Any]]:
    """Return a step that also stores its result as an artifact of the run."""

    @wraps(step)
    def run(*arguments: Any, **options: Any) -> dict[str, Any]:
        found = step(*arguments, **options)
        rows = [{"field": name, "value": str(value)} for name, value in found.items()]
        create_table_artifact(rows, key=f"arf-dask-{key(found)[:12]}", description=description)
        return found

    return run


def _of_rows(step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    return _with_artifact(step, "Synthetic rows", lambda written: str(written["sha256"]))


def _of_report(step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    return _with_artifact(step, "Report on synthetic rows", lambda _: "report")


fit_task = task(name="arf_dask fit", **RETRIES)(steps.fit_model)
sample_task = task(name="arf_dask sample", **RETRIES)(_of_rows(steps.sample_data_set))
report_task = task(name="arf_dask report", **RETRIES)(_of_report(steps.report_data_set))
publish_delta_task = task(name="arf_dask publish to Delta", **RETRIES)(_of_rows(steps.publish_delta))
publish_iceberg_task = task(name="arf_dask publish to Iceberg", **RETRIES)(_of_rows(steps.publish_iceberg))
