"""Tasks for tests of the cluster, in a module that worker processes can import."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from arf_dask.errors import DataError
from arf_dask.runtime.cluster import runner_for


class Array:
    """Something large that counts how often it is unpacked in a directory."""

    def __init__(self, values: np.ndarray, directory: str = "") -> None:
        self.values, self.directory = values, directory

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.directory:
            (Path(self.directory) / f"{os.getpid()}-{time.monotonic_ns()}").touch()


class Heavy:
    """An item that a future stands for on a cluster."""

    def __init__(self, value: int) -> None:
        self.value = value

    def on_cluster(self, client: Any) -> Any:
        return client.submit(Heavy, self.value, pure=False)


def shifted(shared: Any, item: Any) -> Any:
    time.sleep(0.002 * (item % 3))
    return shared + item


def total(shared: Array, item: int) -> float:
    return float(shared.values.sum()) + item


def doubled(shared: Any, item: Heavy) -> int:
    return 2 * item.value


def listed(shared: Any, item: int) -> str:
    return str(item)


def bracketed(left: str, right: str) -> str:
    return f"({left}{right})"


def fails_at(shared: int, item: int) -> int:
    if item == shared:
        raise DataError(f"part {item}: no such thing")
    return item


def slow(shared: float, item: int) -> int:
    time.sleep(shared)
    return item


def process_of(shared: Any, item: int) -> int:
    time.sleep(0.02)
    return os.getpid()


def deadly(shared: Any, item: int) -> None:
    os._exit(1)


def deadly_at(shared: int, item: int) -> int:
    time.sleep(0.1)
    return os._exit(1) if item == shared else item


def slowly_listed(shared: float, item: int) -> str:
    time.sleep(shared)
    return str(item)


def nested(n: int) -> tuple[str, list[int]]:
    """What a user's own task does that calls us."""
    with runner_for() as runner:
        return type(runner).__name__, list(runner.map(shifted, 100, range(n)))
