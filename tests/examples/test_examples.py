"""The examples run as they are."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from retail import retail_orders

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run(script: str, *words: object) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(EXAMPLES)]), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(EXAMPLES / script), *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_shop_of_four_tables_holds_together() -> None:
    told = run("tables.py")
    assert "0 orders are older than their customer" in told
    assert "0 of " in told.split("customer\n")[-1]


def test_the_batch_job_runs_on_a_cluster_and_again(tmp_path: Path) -> None:
    retail_orders(600).write_parquet(tmp_path / "orders.parquet")
    words = (tmp_path / "*.parquet", tmp_path / "out", 5_000, "--rows-per-file", 2_000)
    assert "5,000 synthetic rows" in run("dask_batch.py", *words)
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    run("dask_batch.py", *words)
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")} == written
    assert pl.read_parquet(tmp_path / "out").height == 5_000


def test_the_lakehouse_release_has_two_batches(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    assert "10000 rows" in run("lakehouse.py", tmp_path)


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own packages
def test_the_notebook_runs_and_shows_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(EXAMPLES)]))
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/svg+xml" in output.get("data", {}) for output in outputs) == 2
    assert not [output for output in outputs if output["output_type"] == "error"]
