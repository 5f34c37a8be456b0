"""The runner on real scheduler and worker processes."""

import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, Security

from arf_dask.errors import ClusterError, DataError, OptionError
from arf_dask.runtime.cluster import Cluster, runner_for
from arf_dask.runtime.tasks import Threads
from tests import cluster_tasks as tasks
from tests.clusters import Processes, certificates, dying_workers


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Processes(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


@pytest.fixture
def client(processes: Any) -> Iterator[Any]:
    with Client(processes.address, set_as_default=False) as connected:
        connected.wait_for_workers(2, timeout=180)
        yield connected


def test_results_come_in_the_order_of_the_items(client: Any) -> None:
    assert list(Cluster(client).map(tasks.shifted, 10, range(50))) == [10 + item for item in range(50)]
    assert list(Cluster(client).map(tasks.shifted, 10, [])) == []


@pytest.mark.parametrize("n", [1, 2, 5, 7, 37, 70])
def test_results_merge_in_the_same_order_everywhere(client: Any, n: Any) -> None:
    calls = []
    there = Cluster(client).reduce(tasks.listed, None, range(n), tasks.bracketed, lambda: calls.append(1))
    here = Threads(3).reduce(tasks.listed, None, range(n), tasks.bracketed, lambda: None)
    assert there == here
    assert len(calls) == n


def test_work_is_spread_over_the_workers(client: Any) -> None:
    assert len(set(Cluster(client).map(tasks.process_of, None, range(40)))) == 2


def test_what_tasks_share_travels_to_a_worker_once_and_without_a_warning(client: Any, tmp_path: Path) -> None:
    large = tasks.Array(np.ones(4_000_000), str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = list(Cluster(client).map(tasks.total, large, range(60)))
    assert found == [4e6 + item for item in range(60)]
    unpacked = [path.name.split("-")[0] for path in tmp_path.iterdir()]
    assert len(unpacked) == len(set(unpacked)) <= 2  # once in each process at most


def test_an_item_may_live_on_the_cluster(client: Any) -> None:
    assert list(Cluster(client).map(tasks.doubled, None, map(tasks.Heavy, range(5)))) == [0, 2, 4, 6, 8]


def test_the_true_error_of_a_task_reaches_the_caller(client: Any) -> None:
    with pytest.raises(DataError, match="part 5: no such thing"):
        list(Cluster(client).map(tasks.fails_at, 5, range(20)))
    with pytest.raises(DataError, match="part 3: no such thing"):
        Cluster(client).reduce(tasks.fails_at, 3, range(8), max, lambda: None)


def test_closing_early_leaves_nothing_running(client: Any) -> None:
    results: Any = Cluster(client).map(tasks.slow, 0.05, range(1_000))
    assert next(results) == 0
    results.close()
    deadline = time.monotonic() + 10
    while any(client.processing().values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_inside_a_task_of_the_same_cluster_nothing_waits_for_ever(client: Any) -> None:
    """As many tasks as there are threads, each waiting for tasks of its own."""
    futures = client.map(tasks.nested, [10, 11, 12, 13])
    expected = [("Cluster", [100 + item for item in range(n)]) for n in (10, 11, 12, 13)]
    assert client.gather(futures) == expected


def test_the_runner_follows_the_client(processes: Any, client: Any) -> None:
    with runner_for() as runner:
        assert isinstance(runner, Threads)
    with runner_for(client) as runner:
        assert isinstance(runner, Cluster)
    with runner_for(processes.address) as runner:
        assert list(runner.map(tasks.shifted, 0, range(3))) == [0, 1, 2]
    with client.as_current(), runner_for() as runner:
        assert isinstance(runner, Cluster)
        assert runner.client is client


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(OptionError, match="client=7"), runner_for(7):
        pass
    quick = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with quick, pytest.raises(ClusterError, match="no Dask scheduler answers"), runner_for("tcp://127.0.0.1:9"):
        pass


def test_a_client_that_was_closed_is_refused(processes: Any) -> None:
    closed = Client(processes.address, set_as_default=False)
    closed.close()
    with pytest.raises(ClusterError, match="Make a new one"), runner_for(closed):
        pass


def test_a_task_that_ends_its_workers_is_named(tmp_path: Path) -> None:
    with Processes(tmp_path, workers=4) as doomed, Client(doomed.address, set_as_default=False) as client:
        client.wait_for_workers(4, timeout=180)
        with pytest.raises(ClusterError, match=r"deadly of 17 ended 4 workers.*killed or out of memory"):
            list(Cluster(client).map(tasks.deadly, None, [17]))


@pytest.mark.slow
def test_workers_killed_from_outside_end_no_task(tmp_path: Path) -> None:
    """Workers die one after the other, each as soon as there is another one: all is done, in the right order."""
    with (
        Processes(tmp_path, workers=2, preload=["tests.cluster_tasks"]) as shaky,
        Client(shaky.address, set_as_default=False) as client,
    ):
        client.wait_for_workers(2, timeout=180)
        with dying_workers(shaky, client, 0.5) as killed:
            assert list(Cluster(client).map(tasks.slow, 0.5, range(40))) == list(range(40))
            joined = Cluster(client).reduce(tasks.slowly_listed, 0.5, range(20), tasks.bracketed, lambda: None)
        assert joined == Threads(1).reduce(tasks.listed, None, range(20), tasks.bracketed, lambda: None)
        assert killed


@pytest.mark.slow
def test_a_deadly_task_among_others_is_named_once_it_runs_alone(tmp_path: Path) -> None:
    with Processes(tmp_path, workers=2) as doomed, Client(doomed.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=180)
        over = threading.Event()

        def replace() -> None:
            while not over.wait(0.2):
                if sum(worker.poll() is None for worker in doomed.workers) < 4:
                    doomed.add_worker()

        helper = threading.Thread(target=replace)
        helper.start()
        try:
            with pytest.raises(ClusterError, match=r"deadly_at of 3 ended \d+ workers"):
                list(Cluster(client).map(tasks.deadly_at, 3, range(6)))
        finally:
            over.set()
            helper.join()


def test_no_workers_is_an_error_after_a_while(tmp_path: Path) -> None:
    impatient = dask.config.set({"arf-dask.workers-timeout": "1s"})
    with Processes(tmp_path) as empty, Client(empty.address, set_as_default=False) as client, impatient:
        began = time.monotonic()
        with pytest.raises(ClusterError, match="has had no workers for"):
            list(Cluster(client).map(tasks.shifted, 0, range(3)))
        assert time.monotonic() - began < 30


def test_results_lost_with_all_workers_are_an_error_after_a_while(tmp_path: Path) -> None:
    """Finished, but nobody has them any more."""
    impatient = dask.config.set({"arf-dask.workers-timeout": "1s"})
    with Processes(tmp_path, workers=1) as shaky, Client(shaky.address, set_as_default=False) as client, impatient:
        client.wait_for_workers(1, timeout=180)
        results = Cluster(client).map(tasks.shifted, 0, range(64))
        assert next(results) == 0
        shaky.workers[0].kill()
        with pytest.raises(ClusterError, match="has had no workers for"):
            list(results)


def test_workers_that_come_late_are_waited_for(tmp_path: Path) -> None:
    with Processes(tmp_path) as late, Client(late.address, set_as_default=False) as client:
        threading.Timer(1.0, late.add_worker).start()
        assert list(Cluster(client).map(tasks.shifted, 0, range(5))) == list(range(5))


def test_killed_workers_and_new_ones_change_nothing(tmp_path: Path) -> None:
    """Shared data lost with their worker are made again, also when every worker that had them is gone."""
    with Processes(tmp_path, workers=2) as shaky, Client(shaky.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=180)
        results = Cluster(client).map(tasks.slow, 0.05, range(60))
        found = [next(results)]
        for worker in list(shaky.workers):
            shaky.add_worker()
            worker.kill()
            found += [next(results) for _ in range(20)]
        assert found + list(results) == list(range(60))


def test_a_scheduler_that_dies_is_an_error_soon(tmp_path: Path) -> None:
    with Processes(tmp_path, workers=1) as shaky, dask.config.set({"distributed.comm.timeouts.connect": "2s"}):
        client = Client(shaky.address, set_as_default=False)
        client.wait_for_workers(1, timeout=180)
        results = Cluster(client).map(tasks.slow, 0.1, range(1_000))
        next(results)
        shaky.scheduler.kill()
        began = time.monotonic()
        with pytest.raises(ClusterError, match="no longer answers"):
            list(results)
        assert time.monotonic() - began < 60
        client.close(timeout=1)


def test_a_cluster_behind_tls(tmp_path: Path) -> None:
    pem = certificates(tmp_path)
    flags = ["--tls-ca-file", pem["ca"], "--tls-cert", pem["cert"], "--tls-key", pem["key"]]
    security = Security(
        tls_ca_file=pem["ca"], tls_client_cert=pem["cert"], tls_client_key=pem["key"], require_encryption=True
    )
    with Processes(tmp_path, workers=1, tls=flags) as safe:
        assert safe.address.startswith("tls://")
        with Client(safe.address, security=security, set_as_default=False) as client, runner_for(client) as runner:
            assert list(runner.map(tasks.shifted, 1, range(4))) == [1, 2, 3, 4]
        with pytest.raises(OptionError, match="no certificates are set up"), runner_for(safe.address):
            pass
        told = {"ca-file": pem["ca"], "client.cert": pem["cert"], "client.key": pem["key"]}
        told = {f"distributed.comm.tls.{name}": value for name, value in told.items()}
        with dask.config.set(told), runner_for(safe.address) as runner:
            assert list(runner.map(tasks.shifted, 1, range(4))) == [1, 2, 3, 4]
