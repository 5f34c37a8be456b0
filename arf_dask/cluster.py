"""Tasks on the workers of a Dask cluster.

Dask does the distributing: workers that die or join, tasks that run again, data that move. Here are only the window of
tasks under way, what all of them share, and plain words for what can go wrong.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import ExitStack, contextmanager
from itertools import islice
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

from arf_dask.errors import ArfError, ClusterError, OptionError
from arf_dask.tasks import Item, MergeTree, Result, Runner, Threads

AHEAD = 4  # tasks under way for every thread of the cluster,
LEAST_AHEAD = 32  # and at least so many,
MERGED_AHEAD = 2  # but few for every thread where results are large and wait to be merged
LOOK_EVERY = 2.0  # seconds between two looks at the cluster while waiting
WORKERS_TIMEOUT = "5 minutes"  # without workers; dask.config "arf-dask.workers-timeout" says otherwise
PIECE_BYTES = 4 * 2**20  # Dask warns of graphs above 10 MB


class Cluster:
    """Tasks on the workers of a Dask cluster: the same functions, results and errors as on threads."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def map(self, function: Callable[[Any, Item], Result], shared: Any, items: Iterable[Item]) -> Iterator[Result]:
        for ready in self._finished(self._submitter(function, shared, items)):
            yield from self._fetch(ready)

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        shared: Any,
        items: Iterable[Item],
        merge: Callable[[Result, Result], Result],
        done: Callable[[], object],
    ) -> Result:
        more = self._submitter(function, shared, items)
        tree: MergeTree[Any] = MergeTree(lambda left, right: self._merge_there(merge, left, right))

        def planted(n: int) -> list[_Task]:
            tasks = more(n)
            for task in tasks:
                tree.add(task.future)
            return tasks

        for ready in self._finished(planted, merged=True):
            for _ in ready:
                done()
        last = [_Task(f"{merge.__name__} of all", tree.result())]
        (ready,) = self._finished(lambda _: [last.pop()] if last else [])
        result: Result = self._fetch(ready)[0]
        return result

    def _fetch(self, tasks: list[_Task]) -> list[Any]:
        """The results of finished tasks. Those lost meanwhile are made again, so there is a watch over this too."""
        watch = _Watch(self.client, (1, 1))
        box: Future[list[Any]] = Future()

        def fetch() -> None:
            try:
                box.set_result(self.client.gather([task.future for task in tasks]))
            except BaseException as error:
                box.set_exception(error)

        Thread(target=fetch, daemon=True, name="arf_dask-fetch").start()
        while not wait([box], timeout=LOOK_EVERY).done:
            watch.look()
        try:
            return box.result()
        except Exception:
            failed = next((task for task in tasks if task.future.status != "finished"), None)
            if failed is None:
                raise
            raise _failure(failed, self.client) from None

    def _submitter(
        self, function: Callable[[Any, Item], Result], shared: Any, items: Iterable[Item]
    ) -> Callable[[int], list[_Task]]:
        """A function that submits so many more items at a time: a graph for each would cost too much."""
        held, rest = place(self.client, shared), iter(items)
        name = function.__name__.strip("_")

        def more(n: int) -> list[_Task]:
            batch = list(islice(rest, n))
            if not batch:
                return []
            arguments = [item.on_cluster(self.client) if hasattr(item, "on_cluster") else item for item in batch]
            keys = [f"{name}-{uuid4().hex}" for _ in batch]
            futures = self.client.map(function, [held] * len(batch), arguments, key=keys, pure=False)
            return [_Task(f"{name} of {_short(item)}", future) for item, future in zip(batch, futures, strict=True)]

        return more

    def _merge_there(self, function: Callable[..., Any], *arguments: Any) -> Any:
        key = f"{function.__name__.strip('_')}-{uuid4().hex}"
        # Merges go first: every one of them makes two results one.
        return self.client.submit(function, *arguments, key=key, pure=False, priority=1)

    def _finished(self, more: Callable[[int], list[_Task]], *, merged: bool = False) -> Iterator[list[_Task]]:
        """The tasks in their order, as many at once as are finished; a window of them is under way."""
        watch = _Watch(self.client, (MERGED_AHEAD, 1) if merged else (AHEAD, LEAST_AHEAD))
        watch.look()
        window: deque[_Task] = deque()
        try:
            while True:
                if len(window) <= watch.ahead // 2:
                    window.extend(more(watch.ahead - len(window)))
                if not window:
                    return
                yield self._first_finished(window, watch)
        finally:
            if window and self.client.status == "running":
                self.client.cancel([task.future for task in window])

    def _first_finished(self, window: deque[_Task], watch: _Watch) -> list[_Task]:
        """The tasks at the head of the window that are finished; the first failure of any raises."""
        while not window[0].future.done():
            if not watch.wait(window[0].future):
                failed = next((task for task in window if task.future.status in ("error", "cancelled")), None)
                if failed is not None:
                    raise _failure(failed, self.client)
        ready = []
        while window and window[0].future.done():
            if window[0].future.status != "finished":
                raise _failure(window[0], self.client)
            ready.append(window.popleft())
        return ready


class _Task(NamedTuple):
    what: str
    future: Any


class _Watch:
    """Waits for futures, and gives up when there is nobody left to wait for."""

    def __init__(self, client: Any, window: tuple[int, int]) -> None:
        self.client = client
        self.window = window  # tasks ahead for every thread, and at least
        self.patience = _seconds("workers-timeout")
        self.deserted: float | None = None  # since when there has been no worker
        self.asked = -LOOK_EVERY
        self.ahead = window[1]

    def wait(self, future: Any) -> bool:
        """Whether it is done after a moment."""
        from distributed import TimeoutError as Late
        from distributed import wait as wait_for

        try:
            with self.client.as_current():
                wait_for(future, timeout=0.5)  # type: ignore[no-untyped-call]
        except (Late, TimeoutError):
            self.look()
            return False
        except CancelledError:
            return True  # cancelled is done too: `_failure` finds out why
        return True

    def look(self) -> None:
        """Now and then: is there a scheduler, are there workers?"""
        now = monotonic()
        if now - self.asked < LOOK_EVERY:
            return
        self.asked = now
        try:
            threads = sum(self.client.sync(self.client.scheduler.ncores, callback_timeout=30).values())
        except Exception as error:
            raise _gone(self.client) from error
        if threads:
            self.ahead, self.deserted = max(self.window[1], self.window[0] * threads), None
        elif self.deserted is None:
            self.deserted = now
        elif now - self.deserted > self.patience:
            raise ClusterError(
                f"the cluster at {_address(self.client)} has had no workers for {now - self.deserted:.0f} s. Start "
                "some and run this again; how long to wait for them is set by "
                'dask.config.set({"arf-dask.workers-timeout": "10 minutes"}).'
            )


def _failure(task: _Task, client: Any) -> BaseException:
    """What to tell of a task that did not finish: the true error, without the way it came."""
    from distributed import KilledWorker

    if task.future.status == "cancelled":
        if client.status != "running":
            return _gone(client)
        return ClusterError(f"{task.what} was cancelled on the cluster at {_address(client)}. Run this again.")
    error: BaseException = task.future.exception()
    if isinstance(error, KilledWorker):
        return ClusterError(
            f"{task.what} ended {error.allowed_failures + 1} workers, the last one {error.last_worker.address}. Most "
            "likely they ran out of memory: give them more, or let each run fewer tasks at once (fewer threads)."
        )
    if isinstance(error, ModuleNotFoundError):
        return ClusterError(f"a worker lacks a package: {error}. Install arf_dask and its packages on all workers.")
    return error.with_traceback(None) if isinstance(error, ArfError) else error


def _gone(client: Any) -> ClusterError:
    return ClusterError(
        f"the scheduler at {_address(client)} no longer answers. Start the cluster and run this again; a data set half "
        'written by sample_parquet goes on with mode="resume".'
    )


def _address(client: Any) -> str:
    return str(client.scheduler.address) if client.scheduler is not None else "an address no longer known"


def _short(item: object) -> str:
    text = str(getattr(item, "name", None) or item)
    return text if len(text) <= 120 else text[:117] + "..."


def _seconds(setting: str) -> float:
    import dask.config
    from dask.utils import parse_timedelta

    return float(parse_timedelta(dask.config.get(f"arf-dask.{setting}", WORKERS_TIMEOUT)))


def place(client: Any, value: Any) -> Any:
    """A future of a value that is sent to the cluster once.

    Scattered data die with their worker. This is a task that any worker can do again: the scheduler keeps the bytes, in
    pieces that are small enough for it, and workers pass the value on among themselves.
    """
    from distributed.protocol.serialize import serialize_bytes

    packed = serialize_bytes(value)
    name = uuid4().hex
    pieces = [
        client.submit(_piece, packed[first : first + PIECE_BYTES], key=f"piece-{name}-{first}", pure=False)
        for first in range(0, len(packed), PIECE_BYTES)
    ]
    return client.submit(_joined, *pieces, key=f"shared-{name}", pure=False)


def _piece(data: bytes) -> bytes:
    return data


def _joined(*pieces: bytes) -> Any:
    from distributed.protocol.serialize import deserialize_bytes

    return deserialize_bytes(b"".join(pieces))


@contextmanager
def runner_for(client: Any = None) -> Iterator[Runner]:
    """The runner for a client, the address of a scheduler, or None: the active client, if any, else threads.

    Inside a task the thread leaves its worker's pool meanwhile, so that the tasks it waits for find room.
    """
    distributed = sys.modules.get("distributed")
    if client is None and (distributed is None or (not _in_task() and not _active())):
        yield Threads()
        return
    with ExitStack() as stack:
        if _in_task():
            from distributed import worker_client

            own = stack.enter_context(worker_client())
            client = own if client is None else client
        if client is None:
            client = _active()
        elif isinstance(client, str):
            client = stack.enter_context(_connected(client))
        _check_client(client)
        yield Cluster(client)


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """The scheduler at an address serves all that is called inside; None changes nothing."""
    if address is None:
        yield
        return
    with _connected(address) as client, client.as_current():
        yield


def _in_task() -> bool:
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def _active() -> Any:
    """The client this thread or process works with at the moment, or None."""
    from distributed import Client

    try:
        client = Client.current()  # type: ignore[no-untyped-call]
    except ValueError:
        return None
    return client if client.status == "running" else None


def _connected(address: str) -> Any:
    from distributed import Client, Security

    security: Any = Security()  # type: ignore[no-untyped-call]
    if address.startswith("tls://") and security.get_connection_args("client")["ssl_context"] is None:
        raise OptionError(
            f"client={address!r}: no certificates are set up for TLS. Give a Client made with a Security, or set "
            "distributed.comm.tls in Dask's configuration."
        )
    try:
        return Client(address, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(f"client={address!r}: no Dask scheduler answers there ({error}).") from error


def _check_client(client: Any) -> None:
    from distributed import Client

    if not isinstance(client, Client):
        raise OptionError(
            f"client={client!r}: give a distributed.Client (of a cluster: cluster.get_client()), the address of a "
            "scheduler such as 'tcp://host:8786', or None for the active client or threads."
        )
    if client.asynchronous:
        raise OptionError(
            "client: an asynchronous client cannot be used here. Give one made without asynchronous=True."
        )
    if client.status != "running":
        raise ClusterError(f"client: it is {client.status}, not connected to a scheduler. Make a new one.")
