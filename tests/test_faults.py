"""What must not break: workers, clients and schedulers that die in the middle, real processes all of them."""

from pathlib import Path

import dask
import polars as pl
import pytest
from clusters import Processes, digests
from distributed import Client

import arf_dask
from arf_dask import api
from arf_dask.errors import ClusterError, DataError
from arf_dask.storage import model_hash
from retail import retail_orders

OPTIONS = {"trees": 6, "max_rounds": 2, "seed": 3, "keys": ["order_id"]}
PARTS = 10


@pytest.fixture(scope="module")
def orders(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("orders")
    for number, part in enumerate(retail_orders(10_000, seed=1).iter_slices(10_000 // PARTS)):
        part.write_parquet(directory / f"part-{number}.parquet")
    return directory


@pytest.fixture
def small_sample(monkeypatch):
    """More rows than trees are grown on, so that all of them come part by part."""
    monkeypatch.setattr(api, "TRAINING_ROWS", 4_000)


@pytest.fixture(scope="module")
def model(orders) -> arf_dask.Model:
    return arf_dask.fit(pl.read_parquet(orders / "*.parquet").head(3_000), **OPTIONS)


@pytest.fixture
def shaky(tmp_path):
    with Processes(tmp_path, workers=2) as processes:
        yield processes


@pytest.fixture
def client(shaky):
    quick = dask.config.set({"distributed.comm.timeouts.connect": "5s"})
    with quick, Client(shaky.address, set_as_default=False) as connected:
        connected.wait_for_workers(2, timeout=60)
        yield connected


class Killer:
    """A progress function that ends a worker at chosen moments: {stage: steps of it that are done}."""

    def __init__(self, processes: Processes, moments: dict[str, int]) -> None:
        self.processes, self.moments = processes, dict(moments)
        self.killed: list[str] = []

    def __call__(self, stage: str, done: int, total: int, facts: dict) -> None:
        if self.moments.get(stage, total + 1) <= done:
            del self.moments[stage]
            self.processes.add_worker()
            victim = next(worker for worker in self.processes.workers if worker.poll() is None)
            victim.kill()
            self.killed.append(stage)


def stages_of(data, **options) -> list[str]:
    seen: list[str] = []
    arf_dask.fit(data, **options, progress=lambda stage, *_: seen.append(stage))
    return list(dict.fromkeys(seen))


def test_workers_killed_in_every_stage_of_fit_change_no_byte(orders, shaky, client, small_sample):
    calm = arf_dask.fit(orders, **OPTIONS)
    killer = Killer(shaky, dict.fromkeys(stages_of(orders, **OPTIONS), 1))
    shaken = arf_dask.fit(orders, **OPTIONS, client=client, progress=killer)
    assert len(killer.killed) >= 3
    assert model_hash(shaken) == model_hash(calm)


@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (2, 1), (4, 1), (1, 4)])
def test_any_number_of_workers_gives_the_same_bytes(orders, model, workers, threads, tmp_path, small_sample):
    calm = arf_dask.fit(orders, **OPTIONS)
    model.sample_parquet(tmp_path / "calm", 1_500_000, seed=5, rows_per_file=100_000)
    with (
        Processes(tmp_path, workers=workers, threads=threads) as processes,
        Client(processes.address, set_as_default=False) as client,
    ):
        client.wait_for_workers(workers, timeout=60)
        assert model_hash(arf_dask.fit(orders, **OPTIONS, client=client)) == model_hash(calm)
        model.sample_parquet(tmp_path / "there", 1_500_000, seed=5, rows_per_file=100_000, client=client)
    assert digests(tmp_path / "there") == digests(tmp_path / "calm")


def test_a_killed_scheduler_is_an_error_and_then_resume_works(model, shaky, client, tmp_path):
    def kill(stage: str, done: int, total: int, facts: dict) -> None:
        if done >= total // 4:
            shaky.scheduler.kill()

    with pytest.raises(ClusterError, match="no longer answers"):
        model.sample_parquet(tmp_path / "out", 3_000_000, seed=5, rows_per_file=100_000, client=client, progress=kill)
    model.sample_parquet(tmp_path / "calm", 3_000_000, seed=5, rows_per_file=100_000)
    model.sample_parquet(tmp_path / "out", 3_000_000, seed=5, rows_per_file=100_000, mode="resume")
    assert digests(tmp_path / "out") == digests(tmp_path / "calm")


def test_a_part_that_cannot_be_read_is_named(orders, client, tmp_path, small_sample):
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in orders.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    whole = (broken / "part-7.parquet").read_bytes()
    middle = len(whole) // 2
    (broken / "part-7.parquet").write_bytes(whole[: middle - 2_000] + bytes(4_000) + whole[middle + 2_000 :])
    with pytest.raises(DataError, match=r"part-7\.parquet"):
        arf_dask.fit(broken, **OPTIONS, client=client)
