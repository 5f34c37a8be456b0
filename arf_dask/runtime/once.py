"""Values that each process builds once, on first use, and that are never pickled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

_BUILDING = threading.RLock()  # re-entrant: building one value may need another


class OncePerProcess:
    """Named values, each built once even if requested by several threads; a pickled copy starts empty.

    >>> values = OncePerProcess()
    >>> values.get("answer", lambda: 6 * 7), values.get("answer", lambda: 0)
    (42, 42)
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, name: Hashable, build: Callable[[], Any]) -> Any:
        """Return a value by name, building it if it does not exist yet."""
        with _BUILDING:
            if name not in self._values:
                self._values[name] = build()
            return self._values[name]

    def put(self, name: Hashable, value: Any) -> None:
        """Store an existing value under a name."""
        self._values[name] = value

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return OncePerProcess, ()
