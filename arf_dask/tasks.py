"""Tasks: pure functions of (shared context, item), run on threads of this process, their results merged as a tree."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Runner(Protocol):
    """Runs pure functions of (shared context, item), results in the order of the items.

    The functions are those of a module and everything given to them can be pickled: a task may run in another process,
    more than once. An item with a method `on_cluster(client)` gives what stands for it there: a future, say, where its
    data are too many to travel inside a task.
    """

    def map(self, function: Callable[[Any, Item], Result], shared: Any, items: Iterable[Item]) -> Iterator[Result]: ...

    def reduce(
        self,
        function: Callable[[Any, Item], Result],
        shared: Any,
        items: Iterable[Item],
        merge: Callable[[Result, Result], Result],
        done: Callable[[], object],
    ) -> Result:
        """The results of all items (at least one) merged as a tree whose shape depends on their number only.

        `done` is called after every item.
        """
        ...


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
    """Neighbours are merged two by two, then pairs of pairs: the order of the sums never depends on who is first.

    >>> tree = MergeTree(lambda left, right: f"({left}{right})")
    >>> for letter in "abcdefg":
    ...     tree.add(letter)
    >>> tree.result()
    '(((ab)(cd))((ef)g))'
    """

    def __init__(self, merge: Callable[[Result, Result], Result]) -> None:
        self._merge = merge
        self._parts: list[tuple[int, Result]] = []  # (items merged, result): ever fewer items

    def add(self, result: Result) -> None:
        """One more result, in the order of the items."""
        items = 1
        while self._parts and self._parts[-1][0] == items:
            before, left = self._parts.pop()
            items, result = items + before, self._merge(left, result)
        self._parts.append((items, result))

    def result(self) -> Result:
        """All of them together."""
        _, result = self._parts.pop()
        while self._parts:
            result = self._merge(self._parts.pop()[1], result)
        return result


def _patiently(future: Future[Result]) -> Result:
    """The result, looked for again and again: a wait without an end does not notice Ctrl-C everywhere."""
    while not wait([future], timeout=0.1).done:
        pass
    return future.result()


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
