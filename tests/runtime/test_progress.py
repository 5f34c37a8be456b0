import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace
from typing import Any, TextIO

import pytest

from arf_dask.errors import OptionError
from arf_dask.runtime import progress as module
from arf_dask.runtime.progress import State, progress_for, render


class Screen:
    """A real pseudo-terminal: `stream` is what a program writes to, `read` what a user would get to see."""

    def __init__(self, columns: int = 80, encoding: str = "utf-8") -> None:
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream: TextIO = os.fdopen(self.slave, "w", encoding=encoding)

    def read(self, until: str | None = None, patience: float = 20.0) -> str:
        """What arrived so far; with `until`, waits for that text."""
        seen = b""
        end = time.monotonic() + patience
        while True:
            ready, _, _ = select.select([self.master], [], [], 0.05)
            if ready:
                seen += os.read(self.master, 65536)
            elif until is None or until in seen.decode(errors="replace"):
                return seen.decode().replace("\r\n", "\n")  # the terminal itself turns \n into \r\n
            assert time.monotonic() < end, f"{until!r} never came: {seen!r}"

    def close(self) -> None:
        if not self.stream.closed:
            self.stream.close()
        os.close(self.master)


@pytest.fixture
def screen() -> Iterator[Screen]:
    screen = Screen()
    yield screen
    screen.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stops the clock; calling it lets that many seconds pass."""
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


# The line.


def test_line_shows_stage_share_times_and_facts() -> None:
    state = State("trees", done=30, total=40, details={"round": 2, "tree": 5, "accuracy": 0.612345}, since=0.0)
    line = render(state, now=90.0, width=100, bar="#.")
    assert line == "trees " + "#" * 22 + "." * 8 + "  75% 1:30, 0:30 left  round=2 tree=5 accuracy=0.6123"


def test_nothing_is_left_at_the_start_or_the_end() -> None:
    assert render(State("a", 0, 4, {}, 0.0), 5.0, width=17, bar="#.") == "a .....   0% 0:05"
    assert "left" not in render(State("a", 4, 4, {}, 0.0), 5.0, width=80)


def test_hours_are_shown_as_hours() -> None:
    assert "1:01:01" in render(State("a", 1, 1, {}, 0.0), 3661.0, width=80)


@pytest.mark.parametrize(("done", "total"), [(0, 0), (3, 0), (7, 5)])
def test_odd_counts_give_a_line_all_the_same(done: int, total: int) -> None:
    assert render(State("odd", done, total, {}, 0.0), 1.0, width=60)


@pytest.mark.parametrize("width", range(0, 120, 7))
@pytest.mark.parametrize("stage", ["trees", "数据" * 20, "e\u0301" * 30, ""])
def test_line_never_exceeds_its_width(width: int, stage: str) -> None:
    line = render(State(stage, 1, 3, {"column": "🎁" * 9}, 0.0), 1.0, width)
    assert module._cells(line) <= width


def test_control_characters_cannot_break_the_line() -> None:
    line = render(State("a\nb\x1b[2J", 1, 3, {"column": "x\r\ty"}, 0.0), 1.0, width=80)
    assert not set(line) & set("\n\r\t\x1b")


# The terminal.


def test_terminal_line_is_redrawn_in_place_and_ends_with_a_newline(
    screen: Screen, clock: Callable[[float], None]
) -> None:
    with progress_for(True, screen.stream) as progress:
        progress.stage("trees", total=2)
        for accuracy in (0.75, 0.5):
            clock(1.0)
            progress.advance(accuracy=accuracy)
    first, zero, one, two, last = screen.read().split("\r")
    assert first == ""
    assert "  0%" in zero
    assert " 50%" in one
    assert "accuracy=0.75" in one
    assert "100%" in two
    assert last.split() == two.split()
    assert last.endswith("\n")


def test_a_shorter_line_covers_the_longer_one_before_it(screen: Screen, clock: Callable[[float], None]) -> None:
    with progress_for(True, screen.stream) as progress:
        progress.stage("a long name of a stage", total=1)
        clock(1.0)
        progress.advance(accuracy=0.123)
        clock(1.0)
        progress.stage("b", total=1)
        drawn = screen.read().split("\r")
    assert len(drawn[-1]) == len(drawn[-2])
    assert drawn[-1].startswith("b ")


@pytest.mark.parametrize("columns", [1, 10, 40, 200])
def test_line_fits_the_terminal(columns: int) -> None:
    screen = Screen(columns)
    with progress_for(True, screen.stream) as progress:
        progress.stage("adversarial rounds", total=3)
        progress.advance(round=1, tree=20, accuracy=0.7)
    lines = re.split(r"[\r\n]", screen.read())
    assert max(map(len, lines)) < max(columns, 2)
    screen.close()


def test_terminal_of_unknown_size_counts_as_80_columns(screen: Screen) -> None:
    fcntl.ioctl(screen.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    assert module._Terminal(screen.stream).width() == 79


def test_at_most_ten_drawings_a_second(screen: Screen) -> None:
    start = time.monotonic()
    with progress_for(True, screen.stream) as progress:
        progress.stage("steps", total=100)
        for _ in range(100):
            time.sleep(0.005)
            progress.advance()
        allowed = 10 * (time.monotonic() - start) + 2  # the first and the last are always drawn
    output = screen.read()
    assert 3 <= output.count("\r") <= allowed
    assert "100%" in output


def test_automatic_progress_waits_two_seconds(screen: Screen, clock: Callable[[float], None]) -> None:
    with progress_for(None, screen.stream) as progress:
        progress.stage("trees", total=3)
        clock(1.9)
        progress.advance()
        assert screen.read() == ""
        clock(0.2)
        progress.advance()
        assert " 67%" in screen.read()


def test_short_work_leaves_no_trace(screen: Screen) -> None:
    with progress_for(None, screen.stream) as progress:
        progress.stage("trees", total=1)
        progress.advance()
    assert screen.read() == ""


def test_an_error_ends_the_line_and_passes(screen: Screen) -> None:
    with pytest.raises(ZeroDivisionError), progress_for(True, screen.stream) as progress:  # noqa: PT012
        progress.stage("trees", total=2)
        progress.advance()
        _ = 1 / 0
    output = screen.read()
    assert " 50%" in output
    assert output.endswith("\n")


def test_ctrl_c_ends_the_line() -> None:
    screen = Screen()
    script = """
        import time
        from arf_dask.runtime.progress import progress_for

        with progress_for(True) as progress:
            progress.stage("endless", total=10)
            progress.advance()
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stderr=screen.stream) as process:
        before = screen.read(until="endless")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == -signal.SIGINT
    after = screen.read(until="KeyboardInterrupt")
    bar, trace = (before + after).split("\n", 1)
    assert " 10%" in bar
    assert trace.startswith("Traceback")
    screen.close()


def test_steps_from_many_threads_are_all_counted(screen: Screen) -> None:
    with progress_for(True, screen.stream) as progress, ThreadPoolExecutor(8) as pool:
        progress.stage("steps", total=8000)
        list(pool.map(lambda i: progress.advance(step=i), range(8000)))
    assert progress._state.done == 8000
    assert all(line.startswith("steps ") for line in screen.read().split("\r")[1:])


def test_closing_twice_and_advancing_afterwards_draws_nothing_more(screen: Screen) -> None:
    progress = progress_for(True, screen.stream)
    progress.stage("trees", total=2)
    progress.close()
    screen.read()
    progress.close()
    progress.advance()
    progress.stage("more", total=2)
    assert screen.read() == ""


def test_a_terminal_that_knows_only_ascii_gets_ascii() -> None:
    screen = Screen(encoding="ascii")
    with progress_for(True, screen.stream) as progress:
        progress.stage("Bäume 🎁", total=2)
        progress.advance()
    output = screen.read()
    assert output.isascii()
    assert "B?ume ?" in output
    assert "###" in output
    screen.close()


def test_a_stream_that_is_closed_during_the_work_does_not_stop_it(screen: Screen) -> None:
    with progress_for(True, screen.stream) as progress:
        progress.stage("trees", total=2)
        screen.stream.close()
        time.sleep(0.11)
        progress.advance()
        progress.advance()
    assert progress._state.done == 2


# Anywhere else.


def test_false_is_silent_in_a_terminal(screen: Screen, clock: Callable[[float], None]) -> None:
    with progress_for(False, screen.stream) as progress:
        progress.stage("trees", total=2)
        clock(60.0)
        progress.advance()
    assert screen.read() == ""


def test_automatic_progress_is_silent_in_a_file(clock: Callable[[float], None]) -> None:
    file = io.StringIO()
    with progress_for(None, file) as progress:
        progress.stage("trees", total=2)
        clock(60.0)
        progress.advance()
    assert file.getvalue() == ""


def test_true_writes_whole_lines_into_a_file_every_ten_seconds(clock: Callable[[float], None]) -> None:
    file = io.StringIO()
    with progress_for(True, file) as progress:
        progress.stage("trees", total=100)
        for _ in range(25):
            clock(1.0)
            progress.advance()
    lines = file.getvalue().splitlines()
    assert [re.findall(r"\d+%", line) for line in lines] == [["0%"], ["10%"], ["20%"], ["25%"]]


def test_stderr_is_the_stream_unless_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with progress_for(True) as progress:
        progress.stage("trees", total=1)
    output = capsys.readouterr()
    assert output.out == ""
    assert "trees" in output.err


@pytest.mark.parametrize("wanted", [None, True])
def test_a_program_without_stderr_works(wanted: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with progress_for(wanted) as progress:
        progress.stage("trees", total=1)
        progress.advance()


def test_a_closed_stream_counts_as_no_terminal() -> None:
    file = io.StringIO()
    file.close()
    with progress_for(True, file) as progress:
        progress.stage("trees", total=1)
        progress.advance()


def test_a_function_is_told_every_step_with_the_latest_facts() -> None:
    calls: list[tuple[str, int, int, dict[str, Any]]] = []
    with progress_for(lambda *call: calls.append(call)) as progress:
        progress.stage("trees", total=3)
        progress.advance(round=1)
        progress.advance(2, accuracy=0.5)
        progress.stage("rows", total=10)
        progress.advance(10)
    assert calls == [
        ("trees", 1, 3, {"round": 1}),
        ("trees", 3, 3, {"round": 1, "accuracy": 0.5}),
        ("rows", 10, 10, {}),
    ]


def test_a_function_is_called_by_one_thread_at_a_time_and_in_order() -> None:
    seen: list[int] = []
    with progress_for(lambda _stage, done, _total, _facts: seen.append(done)) as progress:
        progress.stage("steps", total=4000)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: progress.advance(), range(4000)))
    assert seen == list(range(1, 4001))


def test_an_error_of_the_function_stops_the_work() -> None:
    def stop(stage: str, done: int, total: int, details: dict[str, Any]) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"), progress_for(stop) as progress:
        progress.advance()


@pytest.mark.parametrize("wrong", ["yes", 1, 0, 2.5])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(OptionError, match=re.escape(f"progress={wrong!r} is not understood. Use None")):
        progress_for(wrong)


# The notebook, with stand-ins for the two modules that a kernel has loaded.


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """(function, display id, text) of everything displayed."""
    shown: list[tuple[str, str, str]] = []

    def record(function: str) -> Callable[..., None]:
        def show(data: dict[str, str], *, raw: bool, display_id: str) -> None:
            assert raw
            shown.append((function, display_id, data["text/plain"]))

        return show

    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = ModuleType("IPython.display")
    ipython.display.display = record("display")
    ipython.display.update_display = record("update_display")
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_notebook_updates_one_display(shown: list[tuple[str, str, str]], clock: Callable[[float], None]) -> None:
    with progress_for(None) as progress:
        progress.stage("trees", total=4)
        assert shown == []
        for _ in range(4):
            clock(1.0)
            progress.advance()
    functions, ids, texts = zip(*shown, strict=True)
    assert functions == ("display", "update_display", "update_display", "update_display")
    assert len(set(ids)) == 1
    assert " 50%" in texts[0]
    assert "100%" in texts[-1]


def test_ipython_in_a_terminal_is_no_notebook(
    shown: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    assert not module._in_notebook()


def test_ipython_is_not_loaded_to_find_out() -> None:
    script = "import sys; from arf_dask.runtime.progress import progress_for as p; p(None); p(True)"
    check = script + "; sys.exit('IPython' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
