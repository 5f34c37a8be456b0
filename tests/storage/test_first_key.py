"""Two jobs that are appended to one table have different identifiers, if each says where its own begin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import arf_dask
from arf_dask.cli.main import cli
from arf_dask.errors import OptionError, OutputError

KEYS = ["order_id", "token", "email"]


def people(n: int = 300) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    tokens = ["".join(rng.choice(list("0123456789abcdef"), 12)) for _ in range(n)]
    first, last = (rng.choice(["ann", "bob", "carla", "dmitri", "eve"], n) for _ in range(2))
    return pl.DataFrame(
        {
            "order_id": np.arange(1_000, 1_000 + n),
            "token": tokens,
            "email": [f"{a}.{b}{i}@example.com" for i, (a, b) in enumerate(zip(first, last, strict=True))],
            "age": rng.integers(18, 80, n),
        }
    )


@pytest.fixture(scope="module")
def data() -> pl.DataFrame:
    return people()


@pytest.fixture(scope="module")
def model(data: pl.DataFrame) -> arf_dask.Model:
    return arf_dask.fit(data, keys=KEYS, trees=2, max_rounds=1, seed=1)


def test_jobs_that_say_where_keys_begin_never_share_one(model: arf_dask.Model, data: pl.DataFrame) -> None:
    jobs = [model.sample(5_000, seed=seed, first_key=seed * 5_000) for seed in range(3)]
    rows = pl.concat(jobs)
    assert rows.height == 15_000
    for name in KEYS:
        assert rows[name].n_unique() == 15_000
        assert not rows[name].is_in(data[name].implode()).any()


def test_without_it_integer_keys_begin_anew(model: arf_dask.Model) -> None:
    one, other = model.sample(10, seed=1), model.sample(10, seed=2)
    assert one["order_id"].equals(other["order_id"])
    assert model.sample(10, seed=1, first_key=10)["order_id"].to_list() == list(range(1_310, 1_320))


def test_keys_go_on_as_if_the_jobs_were_one(model: arf_dask.Model) -> None:
    whole = model.sample(300, seed=1, first_key=0).select(KEYS)
    halves = [model.sample(150, seed=5, first_key=0), model.sample(150, seed=6, first_key=150)]
    assert whole.equals(pl.concat(halves).select(KEYS))


def test_all_other_columns_are_those_of_the_seed(model: arf_dask.Model) -> None:
    assert model.sample(50, seed=3, first_key=70)["age"].equals(model.sample(50, seed=3)["age"])


def test_every_way_of_drawing_has_the_same_keys(model: arf_dask.Model, tmp_path: Path) -> None:
    expected = model.sample(200, seed=3, first_key=1_000)
    assert model.sample(200, seed=3, first_key=1_000, frame="lazy").collect().equals(expected)
    made = model.sample_parquet(tmp_path / "out", 200, seed=3, first_key=1_000, rows_per_file=60)
    assert made.scan().collect().equals(expected)
    given = model.sample(200, seed=3, first_key=1_000, given={"age": (20, 40)})
    assert given["order_id"].equals(expected["order_id"])
    frame = model.sample(2, seed=3, first_key=1_000, given=pl.DataFrame({"age": [30, 40]}))
    assert frame["order_id"].to_list() == [2_300, 2_301, 2_302, 2_303]


def test_jobs_appended_to_a_delta_table_share_no_key(model: arf_dask.Model, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for seed in range(2):
        model.sample_delta(tmp_path / "t", 100, seed=seed, first_key=100 * seed, mode="append")
    rows = pl.DataFrame(deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table())
    assert sorted(rows["order_id"]) == list(range(1_300, 1_500))
    assert [rows[name].n_unique() for name in KEYS] == [200, 200, 200]
    model.sample_delta(tmp_path / "t", 100, seed=1, first_key=100, mode="append")  # committed before
    assert deltalake.DeltaTable(tmp_path / "t").version() == 1


def test_jobs_appended_to_an_iceberg_table_share_no_key(model: arf_dask.Model, tmp_path: Path) -> None:
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = sql.SqlCatalog("test", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.twin", model.portable_schema())
    for seed in range(2):
        model.sample_iceberg(table, 100, seed=seed, first_key=100 * seed)
    rows = pl.DataFrame(table.refresh().scan().to_arrow())
    catalog.engine.dispose()
    assert sorted(rows["order_id"]) == list(range(1_300, 1_500))
    assert [rows[name].n_unique() for name in KEYS] == [200, 200, 200]


def test_a_job_is_resumed_with_its_own_first_key_only(model: arf_dask.Model, tmp_path: Path) -> None:
    made = model.sample_parquet(tmp_path / "out", 200, seed=3, first_key=40, rows_per_file=60)
    (tmp_path / "out" / "_SUCCESS").unlink()
    before = {part.file: part.sha256 for part in made.parts}
    again = model.sample_parquet(tmp_path / "out", 200, seed=3, first_key=40, rows_per_file=60, mode="resume")
    assert {part.file: part.sha256 for part in again.parts} == before
    with pytest.raises(OutputError, match="first_key: 40 there, 41 asked"):
        model.sample_parquet(tmp_path / "out", 200, seed=3, first_key=41, rows_per_file=60, mode="resume")
    assert again.model_hash == made.model_hash == model.sample_parquet(tmp_path / "b", 1, seed=1).model_hash


def test_synthesize_and_the_command_line_number_keys_too(data: pl.DataFrame, tmp_path: Path) -> None:
    rows = arf_dask.synthesize(data, 20, first_key=500, keys=KEYS, trees=2, max_rounds=1, seed=1)
    assert rows["order_id"].to_list() == list(range(1_800, 1_820))
    data.write_csv(tmp_path / "in.csv")
    words = ["synthesize", str(tmp_path / "in.csv"), "--to", str(tmp_path / "out.csv"), "-n", "20", "--seed", "1"]
    words += ["--trees", "2", "--max-rounds", "1", "--first-key", "500", *(w for name in KEYS for w in ("--key", name))]
    found = CliRunner().invoke(cli, words)
    assert found.exit_code == 0, found.output
    assert pl.read_csv(tmp_path / "out.csv")["order_id"].to_list() == list(range(1_800, 1_820))


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "7"])
def test_what_is_no_number_of_rows_is_refused(model: arf_dask.Model, wrong: object) -> None:
    with pytest.raises(OptionError, match="first_key"):
        model.sample(1, first_key=wrong)  # type: ignore[call-overload]
