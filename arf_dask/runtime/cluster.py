"""Run tasks on the workers of a Dask cluster.

Dask handles joining and lost workers, retries and data transfer. This module adds a value shared by all tasks, and
merging of results on the workers; `task_window` bounds the number of tasks in flight.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from typing import Any
from uuid import uuid4

from arf_dask.errors import ClusterError, OptionError
from arf_dask.runtime.task_window import Unit, Window
from arf_dask.runtime.tasks import Item, MergeTree, Result, Runner, Threads

TASKS_PER_THREAD = 4  # tasks submitted ahead per thread of the cluster
MIN_TASKS = 32  # minimum tasks submitted ahead, on small clusters
MERGED_ITEMS = 8  # minimum items merged on a worker before transfer; a power of two
MOST_RESULTS = 8  # maximum results sent to the client per reduction, which may hold all of them at once
CHUNK_BYTES = 4 * 2**20  # Dask warns of graphs above 10 MB


class Cluster:
    """Runs tasks on the workers of a Dask cluster, with the same results and errors as on threads."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def map(self, function: Callable[[Any, Item], Result], shared: Any, items: Iterable[Item]) -> Iterator[Result]:
        submit = _Submitter(self.client, function, shared)
        rest = iter(items)
        window = Window(self.client, lambda n: submit.units(list(islice(rest, n))), (TASKS_PER_THREAD, MIN_TASKS))
        for unit in window.results():
            yield unit.result

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        shared: Any,
        items: Iterable[Item],
        merge: Callable[[Result, Result], Result],
        done: Callable[[], object],
    ) -> Result:
        """Merge groups of neighbouring results on the workers, and the merged groups on the client.

        This limits the work lost with a worker, and the transfer to at most `MOST_RESULTS` results.
        """
        submit = _Submitter(self.client, function, shared)
        listed = list(items)
        rest, size = iter(listed), merged_items(len(listed))

        def more(n: int) -> list[Unit]:
            groups = (list(islice(rest, size)) for _ in range(n))
            return [submit.merged_unit(group, merge) for group in groups if group]

        tree: MergeTree[Any] = MergeTree(merge)
        for unit in Window(self.client, more, (1, 1)).results():
            tree.add(unit.result, unit.size)
            for _ in range(unit.size):
                done()
        result: Result = tree.result()
        return result


def merged_items(n: int) -> int:
    """Return how many neighbouring items are merged per group: a power of two, as `MergeTree` requires.

    >>> [merged_items(n) for n in (5, 64, 65, 1_000)]
    [8, 8, 16, 128]
    """
    return max(MERGED_ITEMS, 1 << (-(-n // MOST_RESULTS) - 1).bit_length())


class _Submitter:
    """Submits items of one function that share a value, and resubmits them after losing workers."""

    def __init__(self, client: Any, function: Callable[..., Any], shared: Any) -> None:
        self.client, self.function, self.shared = client, function, shared
        self.name = function.__name__.strip("_")
        self.shared_future = replicate_as_task(client, shared)

    def units(self, batch: Sequence[Any]) -> list[Unit]:
        """Submit items in one batch, as one graph per item would be too costly."""
        units = [Unit(f"{self.name} of {_item_label(item)}", partial(self._submit_one, item)) for item in batch]
        for unit, future in zip(units, self._submit(batch), strict=True):
            unit.future = future
        return units

    def merged_unit(self, group: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Unit:
        """Submit neighbouring items and merge their results on the workers."""
        label = f"{self.name} of {_item_label(group[0])}"
        label += f" and {len(group) - 1} more" if len(group) > 1 else ""
        unit = Unit(label, partial(self._submit_merged, group, merge), len(group))
        unit.future = unit.submit()
        return unit

    def _submit_one(self, item: Any) -> Any:
        return self._submit([item])[0]

    def _submit_merged(self, group: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Any:
        tree: MergeTree[Any] = MergeTree(lambda left, right: self._submit_merge(merge, left, right))
        for future in self._submit(group):
            tree.add(future)
        return tree.result()

    def _submit(self, batch: Sequence[Any]) -> list[Any]:
        if not batch:
            return []
        if self.shared_future.status in ("error", "cancelled"):  # Dask may blame it for lost workers
            self.shared_future = replicate_as_task(self.client, self.shared)
        arguments = [item.on_cluster(self.client) if hasattr(item, "on_cluster") else item for item in batch]
        keys = [f"{self.name}-{uuid4().hex}" for _ in batch]
        shared = [self.shared_future] * len(batch)
        futures: list[Any] = self.client.map(self.function, shared, arguments, key=keys, pure=False)
        return futures

    def _submit_merge(self, function: Callable[..., Any], *arguments: Any) -> Any:
        key = f"{function.__name__.strip('_')}-{uuid4().hex}"
        # Merges have priority, as each of them frees a result.
        return self.client.submit(function, *arguments, key=key, pure=False, priority=1)


def _item_label(item: object) -> str:
    text = str(getattr(item, "name", None) or item)
    return text if len(text) <= 120 else text[:117] + "..."


def replicate_as_task(client: Any, value: Any) -> Any:
    """Send a value to the cluster once, and return its future.

    Scattered data is lost with its worker. This future is the result of a task that any worker can repeat: the
    scheduler keeps the bytes in chunks below Dask's graph size limit, and workers copy the value from each other.
    """
    from distributed.protocol.serialize import serialize_bytes

    packed = serialize_bytes(value)
    name = uuid4().hex
    chunks = [
        client.submit(_chunk, packed[first : first + CHUNK_BYTES], key=f"chunk-{name}-{first}", pure=False)
        for first in range(0, len(packed), CHUNK_BYTES)
    ]
    return client.submit(_join_chunks, *chunks, key=f"shared-{name}", pure=False)


def _chunk(data: bytes) -> bytes:
    return data


def _join_chunks(*chunks: bytes) -> Any:
    from distributed.protocol.serialize import deserialize_bytes

    return deserialize_bytes(b"".join(chunks))


@contextmanager
def runner_for(client: Any = None) -> Iterator[Runner]:
    """Yield the runner for a client or scheduler address; None uses the active client, if any, or threads.

    Inside a task, the thread secedes from its worker's pool, so that the tasks it waits for can run.
    """
    distributed = sys.modules.get("distributed")
    if client is None and (distributed is None or (not _in_task() and not _active_client())):
        yield Threads()
        return
    with ExitStack() as stack:
        if _in_task():
            from distributed import worker_client

            own = stack.enter_context(worker_client())
            client = own if client is None else client
        if client is None:
            client = _active_client()
        elif isinstance(client, str):
            client = stack.enter_context(_connect(client))
        _check_client(client)
        yield Cluster(client)


@contextmanager
def use_scheduler(address: str | None) -> Iterator[None]:
    """Use the scheduler at an address for all calls inside the context; None changes nothing."""
    if address is None:
        yield
        return
    with _connect(address) as client, client.as_current():
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


def _active_client() -> Any:
    """Return the active client of this thread or process, or None."""
    from distributed import Client

    try:
        client = Client.current()
    except ValueError:
        return None
    return client if client.status == "running" else None


def _connect(address: str) -> Any:
    from distributed import Client, Security

    security: Any = Security()
    if address.startswith("tls://") and security.get_connection_args("client")["ssl_context"] is None:
        raise OptionError(
            f"client={address!r}: no certificates are set up for TLS. Give a Client made with a Security, or set "
            "distributed.comm.tls in Dask's configuration."
        )
    try:
        return Client(address, set_as_default=False)
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
