"""Progress display: as a line in a terminal or a notebook, by calling a function, or not at all.

>>> seen = []
>>> with progress_for(lambda stage, done, total, details: seen.append((stage, done, total, details))) as progress:
...     progress.stage("trees", total=2)
...     progress.advance(round=1)
...     progress.advance(round=1, accuracy=0.61)
>>> seen
[('trees', 1, 2, {'round': 1}), ('trees', 2, 2, {'round': 1, 'accuracy': 0.61})]
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable
from threading import RLock
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TextIO
from uuid import uuid4

from arf_dask.errors import OptionError

Detail = int | float | str
ProgressFunction = Callable[[str, int, int, dict[str, Detail]], object]

DISPLAY_DELAY = 2.0  # seconds of work before automatic progress is shown
WIDEST_BAR = 30  # cells
NARROWEST_BAR = 5  # cells; with less room the bar is left out


def progress_for(progress: bool | ProgressFunction | None, stream: TextIO | None = None) -> Progress:
    """Return the progress display for the argument `progress` of a public function.

    Args:
        progress: None shows a line after two seconds, in a terminal or notebook only; True shows it at once and
            anywhere; False never. A function is called as `progress(stage, done, total, details)` on every step, one
            call at a time.
        stream: Where the line is written; stderr by default.
    """
    if progress is False:
        return Progress()
    if progress is not None and progress is not True:
        if not callable(progress):
            raise OptionError(
                f"progress={progress!r} is not understood. Use None (automatic), True, False or a function "
                "of (stage, done, total, details)."
            )
        return _Reported(progress)
    canvas = _canvas(stream)
    if progress is None:
        return Progress() if isinstance(canvas, _Log) else _Drawn(canvas, delay=DISPLAY_DELAY)
    return _Drawn(canvas, delay=0.0)


class State(NamedTuple):
    """The current stage and its progress."""

    stage: str  # what is being done
    done: int  # steps finished
    total: int  # expected number of steps
    details: dict[str, Detail]  # the latest value of each, such as round=2, accuracy=0.61
    since: float  # clock time at the start of the stage


class Progress:
    """Counts steps of named stages, from any thread. This base class displays nothing."""

    def __init__(self) -> None:
        self._lock = RLock()  # re-entrant: a user's function may call `advance`
        self._state = State("", 0, 0, {}, monotonic())

    def stage(self, name: str, total: int) -> None:
        """Start a stage of `total` steps, ending the previous stage."""
        with self._lock:
            self._state = State(name, 0, total, {}, monotonic())
            self._began()

    def advance(self, n: int = 1, **details: Detail) -> None:
        """Count `n` more steps of the current stage. Details are shown until they are replaced."""
        with self._lock:
            state = self._state
            self._state = state._replace(done=state.done + n, details=state.details | details)
            self._advanced()

    def close(self) -> None:
        """End the display. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _began(self) -> None:
        """Handle the start of a stage; the lock is held."""

    def _advanced(self) -> None:
        """Handle a counted step; the lock is held."""


class _Reported(Progress):
    """Calls a function on every step."""

    def __init__(self, report: ProgressFunction) -> None:
        super().__init__()
        self._report = report

    def _advanced(self) -> None:
        state = self._state
        self._report(state.stage, state.done, state.total, dict(state.details))


class _Drawn(Progress):
    """Draws a line on a canvas after `delay` seconds, at most once per interval of the canvas."""

    def __init__(self, canvas: _Canvas, delay: float) -> None:
        super().__init__()
        self._canvas = canvas
        self._next = monotonic() + delay
        self._shown = False
        self._over = False

    def close(self) -> None:
        with self._lock:
            if self._shown and not self._over:
                self._try(self._draw)  # the last steps may not have been drawn yet
                self._try(self._canvas.end)
            self._over = True

    def _began(self) -> None:
        self._draw_if_due()

    def _advanced(self) -> None:
        self._draw_if_due()

    def _draw_if_due(self) -> None:
        if not self._over and monotonic() >= self._next:
            self._shown = True
            self._try(self._draw)
            self._next = monotonic() + self._canvas.interval

    def _draw(self) -> None:
        canvas = self._canvas
        canvas.draw(render(self._state, monotonic(), canvas.width(), canvas.bar))

    def _try(self, draw: Callable[[], None]) -> None:
        try:
            draw()
        except (OSError, ValueError):  # a lost terminal or closed stream must not stop the work
            self._over = True


# Formatting.


def render(state: State, now: float, width: int, bar: str = "█░") -> str:
    """Return the line that shows `state`, at most `width` cells wide.

    >>> state = State("trees", done=5, total=20, details={"round": 2, "accuracy": 0.61234}, since=100.0)
    >>> render(state, now=110.0, width=72, bar="#.")
    'trees #####...............  25% 0:10, 0:30 left  round=2 accuracy=0.6123'
    >>> render(state, now=110.0, width=40, bar="#.")
    'trees  25% 0:10, 0:30 left  round=2 accu'
    """
    share = min(state.done / state.total, 1.0) if state.total > 0 else 0.0
    elapsed = max(now - state.since, 0.0)
    clock = _minutes(elapsed)
    if 0.0 < share < 1.0:
        clock += f", {_minutes(elapsed / share - elapsed)} left"
    details = " ".join(f"{name}={_number(detail)}" for name, detail in state.details.items())
    name = _plain(state.stage)
    tail = _plain(f"{share:4.0%} {clock}" + (f"  {details}" if details else ""))
    room = min(width - _cells(name) - _cells(tail) - 2, WIDEST_BAR)
    middle = ""
    if room >= NARROWEST_BAR:
        full = int(share * room)
        middle = bar[0] * full + bar[1] * (room - full)
    return _clip(" ".join(part for part in (name, middle, tail) if part), width)


def _minutes(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _number(detail: Detail) -> str:
    return f"{detail:.4g}" if isinstance(detail, float) else str(detail)


def _plain(text: str) -> str:
    """Replace line breaks and escape characters, which would corrupt the line."""
    return "".join(" " if unicodedata.category(sign).startswith("C") else sign for sign in text)


def _cells(text: str) -> int:
    return sum(map(_cell, text))


def _cell(sign: str) -> int:
    if unicodedata.combining(sign):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def _clip(text: str, width: int) -> str:
    while _cells(text) > width:
        text = text[:-1]
    return text


# Canvases.


class _Canvas(Protocol):
    interval: float  # seconds between two drawings
    bar: str  # the characters of a full and an empty cell

    def width(self) -> int: ...

    def draw(self, line: str) -> None: ...

    def end(self) -> None: ...


def _canvas(stream: TextIO | None) -> _Canvas:
    if stream is None and _in_notebook():
        return _Notebook()
    if stream is None:
        stream = sys.stderr
    return _Terminal(stream) if _is_terminal(stream) else _Log(stream)


class _Terminal:
    """A line of a terminal, drawn in place."""

    interval = 0.1

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.bar = _bar(stream)
        self.cells = 0  # width of the current line

    def width(self) -> int:
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        # The last column stays empty, as writing to it makes some terminals wrap.
        return (columns if columns > 0 else 80) - 1

    def draw(self, line: str) -> None:
        cells = _cells(line)
        _write(self.stream, "\r" + line + " " * (self.cells - cells))
        self.cells = cells

    def end(self) -> None:
        _write(self.stream, "\n")


class _Log:
    """A file or a pipe: a new line every few seconds."""

    interval = 10.0

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream  # None if the program has no stderr
        self.bar = _bar(stream)

    def width(self) -> int:
        return 100

    def draw(self, line: str) -> None:
        if self.stream is not None:
            _write(self.stream, line + "\n")

    def end(self) -> None:
        pass


class _Notebook:
    """A display of a Jupyter notebook, updated in place."""

    interval = 0.1
    bar = "█░"

    def __init__(self) -> None:
        self.display_id: str | None = None

    def width(self) -> int:
        return 100

    def draw(self, line: str) -> None:
        from IPython.display import display, update_display

        data = {"text/plain": line}
        if self.display_id is None:
            self.display_id = f"arf_dask-{uuid4().hex}"
            display(data, raw=True, display_id=self.display_id)
        else:
            update_display(data, raw=True, display_id=self.display_id)

    def end(self) -> None:
        pass


def _in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, without importing IPython."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or "ipykernel" not in sys.modules:
        return False
    return getattr(ipython.get_ipython(), "kernel", None) is not None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # a closed stream
        return False


def _bar(stream: TextIO | None) -> str:
    try:
        "█░".encode(_encoding(stream))
    except UnicodeEncodeError:
        return "#."
    return "█░"


def _write(stream: TextIO, text: str) -> None:
    encoding = _encoding(stream)
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def _encoding(stream: TextIO | None) -> str:
    encoding = getattr(stream, "encoding", None)
    return encoding if isinstance(encoding, str) else "utf-8"
