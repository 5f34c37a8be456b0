import threading
import time
from typing import Any

import pytest

from arf_dask.runtime.tasks import Threads, n_cores


def scaled(factor: int, item: int) -> int:
    time.sleep(0.002 * (item % 3))  # finish out of order
    return factor * item


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads: Any) -> None:
    assert list(Threads(threads).map(scaled, 10, range(30))) == [10 * item for item in range(30)]


@pytest.mark.parametrize("threads", [1, 3])
def test_no_items_give_no_results(threads: Any) -> None:
    assert list(Threads(threads).map(scaled, 10, [])) == []


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_reaches_the_caller(threads: Any) -> None:
    def fails(_: None, item: int) -> int:
        if item == 4:
            raise ValueError("item 4")
        return item

    results = Threads(threads).map(fails, None, range(9))
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="item 4"):
        next(results)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_never_pile_up(threads: Any) -> None:
    begun: list[int] = []
    results: Any = Threads(threads).map(lambda _, item: begun.append(item), None, range(1_000))
    next(results)
    time.sleep(0.05)
    assert len(begun) <= 2 * threads + 1
    results.close()
    time.sleep(0.05)
    assert len(begun) <= 2 * threads + 1


def test_no_thread_is_left_behind() -> None:
    list(Threads(4).map(scaled, 1, range(12)))
    deadline = time.monotonic() + 5
    while any(thread.name.startswith("arf_dask") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_there_is_a_core() -> None:
    assert n_cores() >= 1
    assert Threads().threads == n_cores()
