"""A bounded window of tasks in flight on a Dask cluster whose workers may die at any time.

Results are fetched as soon as they are ready, so that finished work is not lost with its worker. Dask gives up a task
after several workers died while running it, whatever the cause. Such a task is resubmitted under a new key as long as
other tasks make progress; only a task that kills workers while running alone is considered faulty.
"""

from __future__ import annotations

from asyncio import run_coroutine_threadsafe
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from time import monotonic
from typing import Any

from arf_dask.errors import ArfError, ClusterError

POLL_INTERVAL = 0.5  # maximum delay of Ctrl-C and of checks, in seconds
CHECK_INTERVAL = 2.0  # seconds between two checks of the cluster while waiting
WORKERS_TIMEOUT = "5 minutes"  # maximum time without workers; set by dask.config "arf-dask.workers-timeout"
SHARED_LOSSES = 2  # losses alongside other tasks after which a task has to run alone
LONELY_LOSSES = 2  # losses allowed when running alone


@dataclass(eq=False)
class Unit:
    """One task, or several tasks whose results are merged on the workers."""

    label: str
    submit: Callable[[], Any]  # submits the unit under new keys and returns its future
    size: int = 1  # number of items
    future: Any = None  # None: not submitted, or fetched
    fetch: Any = None  # the concurrent future of fetching the result
    result: Any = None
    is_fetched: bool = False
    losses: int = 0  # times Dask gave it up while other units were in flight
    lonely_losses: int = 0  # times Dask gave it up while it ran alone
    is_alone: bool = False  # submitted while no other unit was in flight


class Window:
    """Units in order, with a bounded number in flight."""

    def __init__(self, client: Any, submit: Callable[[int], list[Unit]], limits: tuple[int, int]) -> None:
        self.client = client
        self.submit = submit  # submits up to the given number of further units
        self.watch = Watch(client, limits)
        self.units: deque[Unit] = deque()

    def results(self) -> Iterator[Unit]:
        """Yield the units in order, each with its result."""
        self.watch.check()
        try:
            while self._fill():
                while not self.units[0].is_fetched:
                    self._advance()
                while self.units and self.units[0].is_fetched:
                    yield self.units.popleft()
        finally:
            under_way = [unit.future for unit in self.units if unit.future is not None]
            if under_way and self.client.status == "running":
                self.client.cancel(under_way)

    def _fill(self) -> bool:
        suspects = any(unit.future is None and not unit.is_fetched for unit in self.units)
        if len(self.units) <= self.watch.ahead // 2 and not suspects:
            for unit in self.submit(self.watch.ahead - len(self.units)):
                self._fetch(unit)
                self.units.append(unit)
        return bool(self.units)

    def _fetch(self, unit: Unit) -> None:
        """Fetch the result of a unit in the background as soon as it is ready, again if it is lost."""

        async def gather() -> Any:
            return await self.client.gather(unit.future, asynchronous=True)

        unit.fetch = run_coroutine_threadsafe(gather(), self.client.loop.asyncio_loop)

    def _advance(self) -> None:
        """Wait for the units in flight, collect fetched results, and resubmit lost units."""
        under_way = [unit for unit in self.units if unit.future is not None]
        if not under_way:
            self._submit_alone()
            return
        done = wait([unit.fetch for unit in under_way], POLL_INTERVAL, FIRST_COMPLETED).done
        self.watch.check()
        for unit in under_way:
            if unit.fetch in done:
                self._take(unit, len(under_way))

    def _submit_alone(self) -> None:
        unit = next(unit for unit in self.units if not unit.is_fetched)
        unit.future, unit.is_alone = unit.submit(), True
        self._fetch(unit)

    def _take(self, unit: Unit, n_under_way: int) -> None:
        if unit.fetch.cancelled() or unit.fetch.exception() is not None:
            self._handle_failure(unit, n_under_way)
        else:
            unit.result, unit.is_fetched, unit.future, unit.fetch = unit.fetch.result(), True, None, None

    def _handle_failure(self, unit: Unit, n_under_way: int) -> None:
        """Resubmit a unit that was given up because its workers died; raise any other error."""
        if not _is_given_up(unit):
            raise failure(unit, self.client)
        if unit.is_alone or n_under_way == 1:
            unit.lonely_losses += 1
            if unit.lonely_losses >= LONELY_LOSSES or not self.watch.count_threads():
                raise failure(unit, self.client)
        else:
            unit.losses += 1
        unit.future, unit.fetch, unit.is_alone = None, None, False
        if unit.losses <= SHARED_LOSSES and n_under_way > 1:
            unit.future = unit.submit()  # otherwise it waits until it can run alone
            self._fetch(unit)


class Watch:
    """Raises a ClusterError when the scheduler or all workers are gone."""

    def __init__(self, client: Any, window: tuple[int, int]) -> None:
        self.client = client
        self.window = window  # (tasks per thread, minimum number of tasks)
        self.workers_timeout = _seconds("workers-timeout")
        self.no_workers_since: float | None = None
        self.last_check = -CHECK_INTERVAL
        self.ahead = window[1]

    def check(self) -> None:
        """Check that scheduler and workers are alive, at most once per CHECK_INTERVAL."""
        now = monotonic()
        if now - self.last_check < CHECK_INTERVAL:
            return
        self.last_check = now
        threads = self.count_threads()
        if threads:
            self.ahead, self.no_workers_since = max(self.window[1], self.window[0] * threads), None
        elif self.no_workers_since is None:
            self.no_workers_since = now
        elif now - self.no_workers_since > self.workers_timeout:
            raise ClusterError(
                f"the cluster at {_address(self.client)} has had no workers for {now - self.no_workers_since:.0f} s. "
                "Start some and run this again; how long to wait for them is set by "
                'dask.config.set({"arf-dask.workers-timeout": "10 minutes"}).'
            )

    def count_threads(self) -> int:
        """Return the number of threads of all workers; 0 if the scheduler is too busy to answer."""
        try:
            return sum(self.client.sync(self.client.scheduler.ncores, callback_timeout=30).values())
        except Exception as error:
            if isinstance(error, TimeoutError) and self.client.status == "running":
                return 0  # still connected
            raise _lost_scheduler(self.client) from error


def failure(unit: Unit, client: Any) -> BaseException:
    """Return the error of a failed unit: its own, or a ClusterError for errors of Dask."""
    if unit.fetch.cancelled() or unit.future.status == "cancelled":
        if client.status != "running":
            return _lost_scheduler(client)
        return ClusterError(f"{unit.label} was cancelled on the cluster at {_address(client)}. Run this again.")
    error: BaseException = unit.fetch.exception()
    if isinstance(error, OSError) and unit.future.status != "error":  # not the task's own error
        return _lost_scheduler(client)
    if _is_given_up(unit):
        workers = (unit.losses + max(unit.lonely_losses, 1)) * (error.allowed_failures + 1)  # type: ignore[attr-defined]
        return ClusterError(
            f"{unit.label} ended {workers} workers, the last one {error.last_worker.address}: "  # type: ignore[attr-defined]
            "they were killed or out of memory. Give them more memory, or let each run fewer tasks at once (fewer "
            "threads)."
        )
    if isinstance(error, ModuleNotFoundError):
        return ClusterError(f"a worker lacks a package: {error}. Install arf_dask and its packages on all workers.")
    return error.with_traceback(None) if isinstance(error, ArfError) else error


def _is_given_up(unit: Unit) -> bool:
    """Return whether Dask gave up a task because the workers that ran it died."""
    from distributed import KilledWorker

    return not unit.fetch.cancelled() and isinstance(unit.fetch.exception(), KilledWorker)


def _lost_scheduler(client: Any) -> ClusterError:
    return ClusterError(
        f"the scheduler at {_address(client)} no longer answers. Start the cluster and run this again; a data set half "
        'written by sample_parquet is continued with mode="resume".'
    )


def _address(client: Any) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "an address no longer known"


def _seconds(setting: str) -> float:
    import dask.config
    from dask.utils import parse_timedelta

    return float(parse_timedelta(dask.config.get(f"arf-dask.{setting}", WORKERS_TIMEOUT)))
