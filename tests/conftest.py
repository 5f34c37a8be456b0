"""Load the profile of Hypothesis, run long files first, and make signals work however the tests were started."""

import signal

import pytest

from tests.hypothesis_profiles import load_profile

load_profile()

# Started in the background of a shell or by nohup, a process and all its children ignore signals that some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

LONG_FIRST = ("cluster", "faults", "storage", "examples", "cli", "paper", "inference", "rules")  # folders


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the folders with the longest files first, so that no process is left alone with one of them at the end."""
    items.sort(key=lambda item: LONG_FIRST.index(item.path.parent.name) if _is_long(item) else len(LONG_FIRST))


def _is_long(item: pytest.Item) -> bool:
    return item.path.parent.name in LONG_FIRST and item.path.parents[1].name == "tests"
