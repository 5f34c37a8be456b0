"""Every experiment of the paper runs by one command, at a tiny size, and writes its table and its picture."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from simulations import stand_in

SCRIPTS = Path(__file__).resolve().parents[2] / "benchmarks" / "paper"
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("runtime", "digits", "ablation")]


def run_script(name: str, out: Path, data: Path) -> str:
    """Run a script with warnings as errors; what it says on its way."""
    command = [sys.executable, "-W", "error", f"{SCRIPTS / name}.py", "--tiny", "--out", str(out), "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("name", ["patterns", "toeplitz", "theory", *SLOW])
def test_an_experiment_runs_by_one_command_without_data_of_ones_own(name: str, tmp_path: Path) -> None:
    run_script(name, tmp_path / "out", tmp_path / "no data")
    written = tmp_path / "out" / "paper"
    assert pl.read_csv(written / f"{name}.csv").height > 0
    assert (written / f"{name}.md").read_text(encoding="utf-8").startswith("| ")
    assert ET.parse(written / f"{name}.svg").getroot().tag.endswith("svg")


def test_the_pictures_of_how_it_works_are_drawn(tmp_path: Path) -> None:
    run_script("how_it_works", tmp_path, tmp_path)
    drawn = sorted(file.name for file in (tmp_path / "how-it-works").iterdir())
    assert drawn == ["boxes.svg", "density.svg", "refinement.svg", "rounds.svg", "slices.svg"]


def test_the_twenty_datasets_are_measured_from_text_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for part in ("train", "valid", "test"):
        rows = pl.DataFrame(rng.integers(0, 2, size=(100, 5)), orient="row")
        rows.write_csv(tmp_path / f"nltcs.{part}.data", include_header=False)
    run_script("twenty", tmp_path / "out", tmp_path)
    table = pl.read_csv(tmp_path / "out" / "paper" / "twenty.csv")
    assert table["data set"].unique().to_list() == ["nltcs"]
    assert table["NLL"].min() > 5 * np.log(2) - 0.2  # five fair coins
    assert (tmp_path / "out" / "paper" / "twenty.svg").exists()
    assert "| 6.01 |" in (tmp_path / "out" / "paper" / "twenty.md").read_text(encoding="utf-8")


def test_without_the_twenty_datasets_the_script_says_so(tmp_path: Path) -> None:
    assert "none of the Twenty Datasets" in run_script("twenty", tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()


def test_the_pipeline_measures_a_stand_in_and_the_tables_that_are_there(tmp_path: Path) -> None:
    for part in ("train", "test"):
        stand_in(150, np.random.default_rng(len(part))).write_parquet(tmp_path / f"adult_{part}.parquet")
    run_script("pipeline", tmp_path / "out", tmp_path)
    written = tmp_path / "out" / "paper"
    ours = ["oracle (real rows)", "FORGE, paper's settings", "FORGE, our defaults"]
    assert pl.read_csv(written / "pipeline_stand_in.csv")["model"].to_list() == ours
    table = pl.read_csv(written / "pipeline.csv")
    assert table["model"].to_list()[:3] == ours
    assert table.filter(pl.col("model") == "paper: FORGE")["accuracy"].item() == 0.819
