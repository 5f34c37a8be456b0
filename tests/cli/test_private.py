"""Private fits from the shell."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result

import arf_dask
from arf_dask.cli.main import cli


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("private")
    frame = pl.DataFrame(
        {
            "id": [f"A{i}" for i in range(600)],
            "who": [i % 200 for i in range(600)],
            "city": ["Rome", "Oslo", "Bergen"] * 200,
            "age": [18 + i % 60 for i in range(600)],
        }
    )
    frame.write_parquet(place / "t.parquet")
    return place


def test_a_template_is_filled_in_and_declares_a_private_fit(table: Path) -> None:
    printed = run("domain", table / "t.parquet", "--template")
    domain = json.loads(printed.output)
    assert domain["columns"]["age"] == {"type": "Int64", "nullable": False, "bounds": [None, None]}
    assert domain["columns"]["city"]["levels"] == []
    domain["columns"]["age"]["bounds"] = [18, 90]
    domain["columns"]["city"]["levels"] = ["Rome", "Oslo"]
    domain["columns"]["id"]["key"] = "A-####"
    (table / "domain.json").write_text(json.dumps(domain))
    guarantee = ["--epsilon", 2, "--unit", "who", "--max-rows-per-unit", 2, "--domain", table / "domain.json"]
    where = ["--model", table / "m", "--trees", 3, "--refine", "no", "--quiet"]
    made = run("fit", table / "t.parquet", *where, *guarantee, "--privacy-ledger", table / "ledger.json")
    assert made.exit_code == 0, made.output
    statement = arf_dask.load(table / "m").privacy
    assert statement is not None
    assert (statement.epsilon, statement.unit, statement.max_rows_per_unit) == (2.0, "who", 2)
    assert statement.domains == {"id": "identifier", "who": "identifier", "city": "declared", "age": "declared"}
    assert len(json.loads((table / "ledger.json").read_text())["fits"]) == 1
    assert "private  (2, 1e-09)-differentially private for one who" in run("inspect", table / "m").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--delta", 1e-6], "--delta belongs to a private fit: give --epsilon too"),
        (["--epsilon", 1, "--seed", 1], "is refused in a private fit"),
        (["--epsilon", 1, "--holdout", "0.1"], "is refused in a private fit"),
        (["--epsilon", 1, "--release"], "is refused in a private fit"),
        (["--epsilon", 1], "undeclared columns"),
        (["--epsilon", 1, "--domain", "nowhere.json"], "--domain nowhere.json: cannot be read"),
    ],
)
def test_wrong_uses_are_errors(table: Path, arguments: list[Any], message: str) -> None:
    made = run("fit", table / "t.parquet", "--model", table / "never", "--quiet", *arguments)
    assert made.exit_code != 0
    assert message in made.output
    assert not (table / "never").exists()
