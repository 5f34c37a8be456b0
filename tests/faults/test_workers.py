"""What must not break: workers, clients and schedulers that die in the middle, real processes all of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import polars as pl
import pytest
from distributed import Client

import arf_dask
from arf_dask.errors import ClusterError, DataError
from arf_dask.storage.model_file import model_hash
from arf_dask.training import stages
from retail import retail_orders
from tests.clusters import Processes, digests, dying_workers

ROWS, ROWS_PER_FILE = 400_000, 20_000  # of data sets
OPTIONS: dict[str, Any] = {"trees": 6, "max_rounds": 2, "seed": 3, "keys": ["order_id"]}
PARTS = 10
TRAINING_ROWS = 4_000


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("orders")
    for number, part in enumerate(retail_orders(10_000, seed=1).iter_slices(10_000 // PARTS)):
        part.write_parquet(directory / f"part-{number}.parquet")
    return directory


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than trees are grown on, so that all of them come part by part."""
    monkeypatch.setattr(stages, "TRAINING_ROWS", TRAINING_ROWS)


@pytest.fixture(scope="module")
def model(orders: Any) -> arf_dask.Model:
    return arf_dask.fit(pl.read_parquet(orders / "*.parquet").head(3_000), **OPTIONS)


@pytest.fixture(scope="module")
def calm(orders: Path) -> tuple[str, list[str]]:
    """The hash of the model of all orders, fitted on threads, and the stages of the fit."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "TRAINING_ROWS", TRAINING_ROWS)
        fitted = arf_dask.fit(orders, **OPTIONS, progress=lambda stage, *_: seen.append(stage))
    return model_hash(fitted._fitted), list(dict.fromkeys(seen))


@pytest.fixture(scope="module")
def written(model: arf_dask.Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of a data set written on threads."""
    out = tmp_path_factory.mktemp("written") / "out"
    model.sample_parquet(out, ROWS, seed=5, rows_per_file=ROWS_PER_FILE)
    return digests(out)


@pytest.fixture
def shaky(tmp_path: Path) -> Iterator[Any]:
    with Processes(tmp_path, workers=2) as processes:
        yield processes


@pytest.fixture
def client(shaky: Any) -> Iterator[Any]:
    quick = dask.config.set({"distributed.comm.timeouts.connect": "5s"})
    with quick, Client(shaky.address, set_as_default=False) as connected:
        connected.wait_for_workers(2, timeout=180)
        yield connected


class Killer:
    """A progress function that ends a worker at chosen moments: {stage: steps of it that are done}."""

    def __init__(self, processes: Processes, moments: dict[str, int]) -> None:
        self.processes, self.moments = processes, dict(moments)
        self.killed: list[str] = []

    def __call__(self, stage: str, done: int, total: int, details: dict[str, Any]) -> None:
        if self.moments.get(stage, total + 1) <= done:
            del self.moments[stage]
            self.processes.add_worker()
            victim = next(worker for worker in self.processes.workers if worker.poll() is None)
            victim.kill()
            self.killed.append(stage)


def test_workers_killed_in_every_stage_of_fit_change_no_byte(
    orders: Any, calm: Any, shaky: Any, client: Any, small_sample: Any
) -> None:
    expected, stages_of_fit = calm
    killer = Killer(shaky, dict.fromkeys(stages_of_fit, 1))
    shaken = arf_dask.fit(orders, **OPTIONS, client=client, progress=killer)
    assert len(killer.killed) >= 3
    assert model_hash(shaken._fitted) == expected


@pytest.mark.slow
def test_a_worker_that_dies_every_few_seconds_changes_no_byte(
    orders: Any, model: Any, calm: Any, tmp_path: Path, small_sample: Any
) -> None:
    model.sample_parquet(tmp_path / "calm", 1_000_000, seed=5, rows_per_file=50_000)
    with (
        Processes(tmp_path, workers=2, preload=["arf_dask.api", "sklearn.tree"]) as shaky,
        Client(shaky.address, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=180)
        with dying_workers(shaky, client, 1.0) as killed:
            while len(killed) < 3:
                shaken = arf_dask.fit(orders, **OPTIONS, client=client)
                assert model_hash(shaken._fitted) == calm[0]
            model.sample_parquet(tmp_path / "there", 1_000_000, seed=5, rows_per_file=50_000, client=client)
    assert digests(tmp_path / "there") == digests(tmp_path / "calm")


@pytest.mark.parametrize(
    ("workers", "threads"),
    [(2, 1), *(pytest.param(*some, marks=pytest.mark.slow) for some in ((1, 1), (4, 1), (1, 4)))],
)
def test_any_number_of_workers_gives_the_same_bytes(
    orders: Any, model: Any, calm: Any, written: Any, workers: Any, threads: Any, tmp_path: Path, small_sample: Any
) -> None:
    with (
        Processes(tmp_path, workers=workers, threads=threads) as processes,
        Client(processes.address, set_as_default=False) as client,
    ):
        client.wait_for_workers(workers, timeout=180)
        assert model_hash(arf_dask.fit(orders, **OPTIONS, client=client)._fitted) == calm[0]
        model.sample_parquet(tmp_path / "there", ROWS, seed=5, rows_per_file=ROWS_PER_FILE, client=client)
    assert digests(tmp_path / "there") == written


def test_a_killed_scheduler_is_an_error_and_then_resume_works(
    model: Any, written: Any, shaky: Any, client: Any, tmp_path: Path
) -> None:
    def kill(stage: str, done: int, total: int, details: dict[str, Any]) -> None:
        if done >= total // 4:
            shaky.scheduler.kill()

    options: dict[str, Any] = {"seed": 5, "rows_per_file": ROWS_PER_FILE}
    with pytest.raises(ClusterError, match="no longer answers"):
        model.sample_parquet(tmp_path / "out", ROWS, **options, client=client, progress=kill)
    model.sample_parquet(tmp_path / "out", ROWS, **options, mode="resume")
    assert digests(tmp_path / "out") == written


def test_a_part_that_cannot_be_read_is_named(orders: Any, client: Any, tmp_path: Path, small_sample: Any) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in orders.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    whole = (broken / "part-7.parquet").read_bytes()
    middle = len(whole) // 2
    (broken / "part-7.parquet").write_bytes(whole[: middle - 2_000] + bytes(4_000) + whole[middle + 2_000 :])
    with pytest.raises(DataError, match=r"part-7\.parquet"):
        arf_dask.fit(broken, **OPTIONS, client=client)
