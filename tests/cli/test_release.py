"""Reports and releases from the command line."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner, Result

from arf_dask.cli.main import cli


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    rng = np.random.Generator(np.random.SFC64(0))
    n = 900
    frame = pl.DataFrame(
        {
            "customer": rng.integers(0, 400, n),
            "town": np.array(["north", "south", "east"])[rng.integers(0, 3, n)],
            "spent": np.exp(rng.normal(3, 1, n)).round(2),
            "visits": rng.poisson(4, n),
        }
    ).with_columns(pl.when(pl.int_range(pl.len()) < 4).then(pl.lit("hamlet")).otherwise("town").alias("town"))
    frame[:600].write_parquet(tmp_path / "real.parquet")
    frame[600:].write_csv(tmp_path / "held.csv")
    return tmp_path


def test_a_report_is_written(tables: Path) -> None:
    out = tables / "r.html"
    result = run(
        "report",
        tables / "real.parquet",
        tables / "held.csv",
        "--holdout",
        tables / "held.csv",
        "--target",
        "town",
        "--shadows",
        2,
        "--seed",
        1,
        "--quiet",
        "-o",
        out,
    )
    assert result.exit_code == 0, result.output
    assert result.output == ""
    assert "Synthetic data report" in out.read_text(encoding="utf-8")


def test_a_report_as_json(tables: Path) -> None:
    out = tables / "r.json"
    words = ("report", tables / "real.parquet", tables / "real.parquet", "--seed", 1, "--json", "-o", out)
    told = json.loads(run(*words).output)
    assert told["privacy"]["copies"]["synthetic"]["identical"] == 1.0
    assert json.loads(out.read_text(encoding="utf-8"))["fidelity"]["shape"] == told["fidelity"]["shape"] == 1.0


def test_a_report_needs_a_page(tables: Path) -> None:
    result = run("report", tables / "real.parquet", tables / "real.parquet", "-o", tables / "r.pdf")
    assert result.exit_code == 1
    assert ".html or .json" in result.output


def test_a_release_with_subjects(tables: Path) -> None:
    words = ("--release", "--subject", "customer", "--max-rows-per-subject", 3, "--suppress", "town")
    result = run(
        "synthesize", tables / "real.parquet", "--to", tables / "out", "--trees", 3, "--seed", 1, *words, "--json"
    )
    assert result.exit_code == 0, result.output
    rows = pl.read_parquet(tables / "out" / "part-*.parquet")
    assert rows.height == 600
    assert "hamlet" not in rows["town"].unique().to_list()


def test_a_gate_refuses_with_a_page(tables: Path) -> None:
    gate = ("--holdout", 0.3, "--max-c2st", 0.1, "--report", tables / "why.html")
    result = run(
        "synthesize",
        tables / "real.parquet",
        "--to",
        tables / "out",
        "--trees",
        3,
        "--seed",
        1,
        *gate,
        "--key",
        "customer",
    )
    assert result.exit_code == 1
    assert "not published: c2st" in result.output
    assert not (tables / "out" / "_SUCCESS").exists()
    assert "Not published" in (tables / "why.html").read_text(encoding="utf-8")


def test_a_gate_needs_a_directory_and_a_page_needs_a_gate(tables: Path) -> None:
    words = ("synthesize", tables / "real.parquet", "--key", "customer", "--trees", 2)
    assert run(*words, "--to", tables / "a.csv", "--max-c2st", 0.7, "--holdout", 0.2).exit_code == 2
    lonely = run(*words, "--to", tables / "b", "--report", tables / "x.html")
    assert lonely.exit_code == 1
    assert "--max-attack-auc" in lonely.output
