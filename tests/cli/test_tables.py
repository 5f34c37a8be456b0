"""Several tables from a shell: a directory of files in, a data set per table out."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

import arf_dask
from arf_dask.cli.main import cli
from tests.relational.shop import make_shop

FAST = ["--trees", "5", "--refine", "no", "--seed", "1", "--quiet"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shop")
    tables = make_shop(100)
    tables["customers"].write_parquet(place / "customers.parquet")
    tables["orders"].write_csv(place / "orders.csv")
    (place / "readme.txt").write_text("not a table")
    return place


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, list(map(str, words)))


def test_a_directory_becomes_a_data_set_per_table(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = run("synthesize-tables", shop, "--reference", "orders.customer_id=customers", "--to", out, "-n", 50, *FAST)
    assert made.exit_code == 0, made.output
    customers, orders = pl.read_parquet(out / "customers"), pl.read_parquet(out / "orders")
    assert customers.height == 50
    assert orders["customer_id"].is_in(customers["id"].implode()).all()


def test_a_model_is_fitted_once_and_drawn_from(shop: Path, tmp_path: Path) -> None:
    fitted = run("fit-tables", shop, "--model", tmp_path / "m", "--order", "orders=created", "--json", *FAST)
    assert json.loads(fitted.stdout)["references"] == {"orders.customer_id": "customers"}
    drawn = run("sample-tables", tmp_path / "m", "--to", tmp_path / "out", "--seed", 2, "--json")
    assert json.loads(drawn.stdout)["tables"]["customers"]["rows"] == 100
    again = arf_dask.load(tmp_path / "m").sample(seed=2)
    assert pl.read_parquet(tmp_path / "out" / "orders").equals(again["orders"])


def test_commands_for_one_table_refuse_a_model_of_several(shop: Path, tmp_path: Path) -> None:
    run("fit-tables", shop, "--model", tmp_path / "m", *FAST)
    refused = run("sample", tmp_path / "m", "--to", tmp_path / "rows.csv", "-n", 5)
    assert refused.exit_code == 1
    assert "arf-dask sample-tables" in refused.output


def test_mistakes_are_errors_of_usage(shop: Path, tmp_path: Path) -> None:
    made = run("synthesize-tables", shop, "--reference", "orders.customer_id", "--to", tmp_path / "out")
    assert made.exit_code == 2
    assert "write NAME=VALUE" in made.output
    (tmp_path / "empty").mkdir()
    assert "no CSV or Parquet file" in run("fit-tables", tmp_path / "empty", "--model", tmp_path / "m").output
