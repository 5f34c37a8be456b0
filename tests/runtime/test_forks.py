"""A fork after Polars has run is an error with a remedy; a fork before it is fine."""

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
import polars as pl
import arf_dask
data = pl.DataFrame({"a": ["x", "y"] * 50})
if sys.argv[1] == "used":
    data.lazy().group_by("a").len().collect()
child = os.fork()
if child == 0:
    try:
        print(arf_dask.fit(data, trees=3, seed=0).sample(5, seed=1).height, flush=True)
    except arf_dask.ForkError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize(("state", "words"), [("used", "spawn"), ("imported", "5")])
def test_a_forked_child_works_or_says_why_not(state: str, words: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, state]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert words in done.stdout
