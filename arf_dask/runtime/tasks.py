"""Run tasks (pure functions of a shared value and an item) on threads, and merge their results as a tree."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Runner(Protocol):
    """Runs pure functions of (shared value, item).

    A task may run in another process, and more than once: functions must be defined at module level, and arguments must
    be picklable. On a cluster, an item with a method `on_cluster(client)` is replaced by the result of that method,
    such as a future of data too large to be sent with the task.
    """

    def map(self, function: Callable[[Any, Item], Result], shared: Any, items: Iterable[Item]) -> Iterator[Result]:
        """Yield the results in the order of the items."""
        ...

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        shared: Any,
        items: Iterable[Item],
        merge: Callable[[Result, Result], Result],
        done: Callable[[], object],
    ) -> Result:
        """Merge the results of all items (at least one) as a tree whose shape depends only on their number.

        `done` is called after every item.
        """
        ...


class Threads:
    """Runs tasks on threads. At most two tasks per thread are submitted ahead, to bound the pending results."""

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
                    yield _wait_for(waiting.popleft())
            while waiting:
                yield _wait_for(waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        shared: Any,
        items: Iterable[Item],
        merge: Callable[[Result, Result], Result],
        done: Callable[[], object],
    ) -> Result:
        tree = MergeTree(merge)
        for result in self.map(function, shared, items):
            tree.add(result)
            done()
        return tree.result()


class MergeTree(Generic[Result]):
    """Merges neighbours pairwise, then pairs of pairs: the order does not depend on which task finishes first.

    >>> tree = MergeTree(lambda left, right: f"({left}{right})")
    >>> for letter in "abcdefg":
    ...     tree.add(letter)
    >>> tree.result()
    '(((ab)(cd))((ef)g))'
    """

    def __init__(self, merge: Callable[[Result, Result], Result]) -> None:
        self._merge = merge
        self._parts: list[tuple[int, Result]] = []  # (items merged, result), in decreasing order of items

    def add(self, result: Result, items: int = 1) -> None:
        """Add the result of the next item or group; all groups except the last must have the same power-of-two size."""
        while self._parts and self._parts[-1][0] == items:
            before, left = self._parts.pop()
            items, result = items + before, self._merge(left, result)
        self._parts.append((items, result))

    def result(self) -> Result:
        """Return all results merged."""
        _, result = self._parts.pop()
        while self._parts:
            result = self._merge(self._parts.pop()[1], result)
        return result


def _wait_for(future: Future[Result]) -> Result:
    """Wait for a future in short steps, as an endless wait ignores Ctrl-C on some systems."""
    while not wait([future], timeout=0.1).done:
        pass
    return future.result()


def n_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
