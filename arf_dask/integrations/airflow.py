"""Airflow 3 operators that fit, sample, report, and publish to Delta or Iceberg.

Airflow may run a task in a fork of the process that parsed the DAG file. That process must not have run Polars queries,
so do not process data in DAG files. Importing this module is safe; work starts in the task. Results (paths, rows,
bytes, hashes) are XComs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arf_dask.errors import missing_extra
from arf_dask.integrations import steps

RETRIES = {"retries": 2}


def fit_operator(task_id: str = "fit", **options: Any) -> Any:
    """Return a task that fits a model and returns its path.

    Args:
        task_id: The name of the task.
        **options: The arguments of `steps.fit_model`: data, model, and the options of `arf_dask.fit`.
    """
    return _operator(task_id, steps.fit_model, options)


def sample_operator(task_id: str = "sample", **options: Any) -> Any:
    """Return a task that writes a data set of synthetic rows.

    Args:
        task_id: The name of the task.
        **options: The arguments of `steps.sample_data_set`: model, to, n, seed and others.
    """
    return _operator(task_id, steps.sample_data_set, options)


def report_operator(task_id: str = "report", **options: Any) -> Any:
    """Return a task that writes a report on synthetic rows, and fails if a figure exceeds its limit.

    Args:
        task_id: The name of the task.
        **options: The arguments of `steps.report_data_set`: data, synthetic, page, seed, limits and others.
    """
    return _operator(task_id, steps.report_data_set, options)


def publish_delta_operator(task_id: str = "publish_delta", **options: Any) -> Any:
    """Return a task that adds synthetic rows to a Delta table.

    Args:
        task_id: The name of the task.
        **options: The arguments of `steps.publish_delta`: model, table, n, seed and others.
    """
    return _operator(task_id, steps.publish_delta, options)


def publish_iceberg_operator(task_id: str = "publish_iceberg", **options: Any) -> Any:
    """Return a task that adds synthetic rows to an Iceberg table.

    Args:
        task_id: The name of the task.
        **options: The arguments of `steps.publish_iceberg`: model, table, n, seed and others.
    """
    return _operator(task_id, steps.publish_iceberg, options)


def run_step(step: str, arguments: dict[str, Any]) -> Any:
    """Run a function of `steps` by name. It takes no other keywords, as Airflow would pass its whole context."""
    return getattr(steps, step)(**arguments)


def _operator(task_id: str, step: Callable[..., Any], options: dict[str, Any]) -> Any:
    try:
        from airflow.providers.standard.operators.python import PythonOperator
    except ImportError as error:
        raise missing_extra("arf_dask.integrations.airflow", "airflow") from error
    given = {"step": step.__name__, "arguments": options}
    return PythonOperator(task_id=task_id, python_callable=run_step, op_kwargs=given, **RETRIES)
