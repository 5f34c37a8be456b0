"""A model file gives the same rows on every processor: tried with NumPy's and OpenBLAS's kernels for older ones."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask

DRAW = """
import hashlib, sys, arf_dask
rows = arf_dask.load(sys.argv[1]).sample(5_000, seed=2)
print(hashlib.sha256(rows.write_ipc(None, compression="uncompressed").getvalue()).hexdigest())
"""


@pytest.fixture(name="saved", scope="module")
def fixture_saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    group = rng.integers(0, 4, 1_500)
    a = rng.normal(size=1_500)
    b = 0.7 * a + 0.5 * rng.normal(size=1_500) + group
    letters = np.array(list("wxyz"))[group]
    frame = pl.DataFrame(
        {"a": a, "b": b, "c": np.exp(a + rng.normal(size=1_500)), "g": letters, "k": rng.poisson(3 + group)}
    )
    path = tmp_path_factory.mktemp("models") / "model"
    arf_dask.fit(frame, trees=5, seed=1, progress=False).save(path)
    return path


def rows_drawn(saved: Path, **environment: str) -> str:
    """The hash of rows drawn in a process with these settings."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DRAW, str(saved)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def kernels() -> list[Any]:
    """Settings under which NumPy and OpenBLAS use their plainest kernels."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    settings = [{"OPENBLAS_CORETYPE": "Prescott"}, {"NPY_DISABLE_CPU_FEATURES": " ".join(found)}]
    return [pytest.param(setting, id=next(iter(setting))) for setting in settings]


@pytest.mark.parametrize("setting", kernels())
def test_one_model_file_gives_the_same_rows_with_other_kernels(saved: Path, setting: Any) -> None:
    assert rows_drawn(saved, **setting) == rows_drawn(saved)
