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


def test_a_gate_needs_a_directory(tables: Path) -> None:
    words = ("synthesize", tables / "real.parquet", "--key", "customer", "--trees", 2)
    assert run(*words, "--to", tables / "a.csv", "--max-c2st", 0.7, "--holdout", 0.2).exit_code == 2


def test_one_command_makes_rows_and_an_attack_tested_report(tables: Path) -> None:
    words = ("synthesize", tables / "real.parquet", "--key", "customer", "--trees", 2, "--seed", 1)
    told = run(*words, "--to", tables / "b.csv", "--report", tables / "x.json", "--target", "town")
    assert told.exit_code == 0, told.output
    assert "120 rows were held out for it" in told.output  # 20 % of 600
    assert pl.read_csv(tables / "b.csv").height == 600
    made = json.loads((tables / "x.json").read_text(encoding="utf-8"))
    assert made["privacy"]["attacks"]
    assert made["fidelity"]["target"]["target"] == "town"
    assert run(*words, "--to", tables / "c.csv", "--target", "town").exit_code == 2


def test_held_out_rows_are_kept_where_it_is_said(tables: Path) -> None:
    words = ("fit", tables / "real.parquet", "--model", tables / "m", "--key", "customer", "--trees", 2, "--seed", 1)
    told = run(*words, "--holdout", 0.1)
    assert "60 rows were held out and are not kept" in told.output
    assert "--holdout-to FILE" in told.output
    kept = run(*words, "--holdout", 0.1, "--holdout-to", tables / "kept.parquet", "--json")
    assert json.loads(kept.output)["held_out"] == {"rows": 60, "path": str(tables / "kept.parquet")}
    assert pl.read_parquet(tables / "kept.parquet").height == 60
    assert run(*words, "--holdout-to", tables / "kept.parquet").exit_code == 2


def test_a_target_needs_held_out_rows(tables: Path) -> None:
    words = ("report", tables / "real.parquet", tables / "real.parquet", "-o", tables / "r.json")
    told = run(*words, "--target", "town")
    assert told.exit_code == 2
    assert "--holdout" in told.output
