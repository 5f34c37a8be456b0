"""Prefect for real: the example flow on a server, a retry that resumes, and the workers of a DaskTaskRunner."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import arf_dask

pytest.importorskip("prefect")

from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter
from prefect.testing.utilities import prefect_test_harness

from arf_dask.integrations.prefect import fit_task, sample_task
from arf_dask.integrations.steps import describe_manifest, fit_model, sample_data_set

pytestmark = pytest.mark.filterwarnings("ignore")  # Prefect's own and its dependencies'


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=240):
        yield


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    frame = pl.DataFrame({"kind": ["a", "b", "c"] * 100, "x": [i / 7 for i in range(300)]})
    frame.write_parquet(tmp_path / "orders.parquet")
    return tmp_path


def test_the_example_flow_runs_twice_and_adds_nothing(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    from prefect_flow import synthetic_orders
    from retail import retail_orders

    retail_orders(500).write_parquet(tmp_path / "orders.parquet")
    retail_orders(300, seed=1).write_parquet(tmp_path / "held_out.parquet")
    paths = [str(tmp_path / "orders.parquet"), str(tmp_path / "held_out.parquet"), str(tmp_path)]
    first, again = synthetic_orders(*paths), synthetic_orders(*paths)
    assert first == again
    assert first["data_set"]["rows"] == first["table"]["rows"] == 10_000
    assert deltalake.DeltaTable(tmp_path / "delta").version() == 0
    with get_client(sync_client=True) as client:
        artifacts = client.read_artifacts(artifact_filter=ArtifactFilter())
    assert {artifact.key for artifact in artifacts} >= {
        f"arf-dask-{first['table']['sha256'][:12]}",
        "arf-dask-report",
    }
    assert (tmp_path / "report.html").stat().st_size


class InterruptedRunError(RuntimeError):
    pass


def test_a_retry_resumes_what_the_first_attempt_wrote(orders: Path) -> None:
    attempts: list[list[str]] = []

    @task(retries=1)
    def sample_with_a_failure(model: str, to: str) -> dict[str, Any]:
        attempts.append(sorted(path.name for path in Path(to).glob("part-*")))
        if len(attempts) == 1:

            def stop(_stage: str, done: int, _total: int, _details: Any) -> None:
                if done:
                    raise InterruptedRunError

            arf_dask.load(model).sample_parquet(to, 400_000, seed=1, rows_per_file=100_000, progress=stop)
        return sample_data_set(model, to, 400_000, seed=1, rows_per_file=100_000)

    @flow
    def retried() -> dict[str, Any]:
        model = fit_task(str(orders / "orders.parquet"), str(orders / "model"), trees=3, seed=0)
        return sample_with_a_failure(model, str(orders / "out"))

    written = retried()
    assert len(attempts) == 2
    assert attempts[1]
    whole = arf_dask.load(orders / "model").sample_parquet(orders / "whole", 400_000, seed=1, rows_per_file=100_000)
    assert written["sha256"] == describe_manifest(whole)["sha256"]


def test_the_workers_of_a_dask_task_runner(orders: Path) -> None:
    prefect_dask = pytest.importorskip("prefect_dask")
    fit_model(str(orders / "orders.parquet"), orders / "model", trees=3, seed=0)
    runner = prefect_dask.DaskTaskRunner(
        cluster_kwargs={"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    )

    @flow(task_runner=runner)
    def spread() -> list[dict[str, Any]]:
        futures = [
            sample_task.submit(str(orders / "model"), str(orders / f"out-{seed}"), 500, seed=seed) for seed in (1, 2)
        ]
        return [future.result() for future in futures]

    written = spread()
    assert [one["rows"] for one in written] == [500, 500]
    for seed in (1, 2):
        rows = pl.read_parquet(orders / f"out-{seed}")
        assert rows.equals(arf_dask.load(orders / "model").sample(500, seed=seed))
