"""Where tasks run: threads of this process."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Runner(Protocol):
    """Runs pure functions of (shared context, item), results in the order of the items."""

    def map(self, function: Callable[[Any, Item], Result], shared: Any, items: Iterable[Item]) -> Iterator[Result]: ...


class Threads:
    """Tasks on threads, at most twice as many ahead as there are threads, so that results never pile up."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads if threads is not None else n_cores()

    def map(self, function: Callable[[Any, Item], Result], shared: Any, items: Iterable[Item]) -> Iterator[Result]:
        if self.threads == 1:
            yield from (function(shared, item) for item in items)
            return
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="arf_dask")
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, shared, item))
                if len(waiting) > 2 * self.threads:
                    yield _patiently(waiting.popleft())
            while waiting:
                yield _patiently(waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _patiently(future: Future[Result]) -> Result:
    """The result, looked for again and again: a wait without an end does not notice Ctrl-C everywhere."""
    while not wait([future], timeout=0.1).done:
        pass
    return future.result()


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
