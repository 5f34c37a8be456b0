"""Data larger than memory on real worker processes: the same bytes as on threads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from distributed import Client

import arf_dask
from arf_dask.data import parts
from arf_dask.storage.model_file import model_hash
from arf_dask.training import stages
from tests.clusters import Processes

ROWS = 3_000
pytestmark = pytest.mark.filterwarnings("ignore::arf_dask.KeyColumnWarning")


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.choice(list("abc"), ROWS)
    return pl.DataFrame(
        {
            "id": [f"K-{i:06d}" for i in range(ROWS)],
            "kind": pl.Series(kind, dtype=pl.Categorical),
            "group": np.where(kind == "a", "x", "y"),
            "x": rng.normal(size=ROWS) + (kind == "b"),
            "n": rng.poisson(4, ROWS),
        }
    )


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with Processes(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


@pytest.mark.parametrize("kind", ["files", "frame", "scan", "dask"])
def test_workers_give_the_bytes_of_threads(
    processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setattr(stages, "TRAINING_ROWS", 500)
    monkeypatch.setattr(parts, "CELLS", 2_000)
    monkeypatch.setattr(parts, "TASK_CELLS", 4_000)
    data = table()
    given: Any
    if kind in ("files", "scan"):
        for number in range(5):
            data.slice(number * 600, 600).write_parquet(tmp_path / f"{number}.parquet")
        given = tmp_path if kind == "files" else pl.scan_parquet(tmp_path)
    elif kind == "dask":
        dd = pytest.importorskip("dask.dataframe")
        given = dd.from_pandas(data.with_columns(pl.col("kind").cast(pl.String)).to_pandas(), npartitions=6)
    else:
        given = data
    options: dict[str, Any] = {"trees": 3, "seed": 4, "max_rounds": 1}
    here = arf_dask.fit(given, **options)
    with Client(processes.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        there = arf_dask.fit(given, client=client, **options)
    assert model_hash(there._fitted) == model_hash(here._fitted)
    assert here.schema.n_rows == ROWS


def test_a_damaged_file_is_named_by_the_worker_that_reads_it(
    processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "TRAINING_ROWS", 500)
    data = table()
    for number in range(3):
        data.slice(number * 1_000, 1_000).write_parquet(tmp_path / f"{number}.parquet", compression="zstd")
    damaged = bytearray((tmp_path / "1.parquet").read_bytes())
    damaged[4:400] = bytes(396)
    (tmp_path / "1.parquet").write_bytes(damaged)
    with Client(processes.address, set_as_default=False) as client, pytest.raises(arf_dask.DataError) as caught:
        arf_dask.fit(tmp_path, client=client, trees=2)
    assert "1.parquet" in str(caught.value)


def ruled_table() -> pl.DataFrame:
    """A formula, an order, a clock number that follows another, and teams that differ."""
    rng = np.random.default_rng(1)
    start, lasts = rng.integers(0, 1_440, ROWS), rng.integers(30, 200, ROWS)
    end = (start + lasts) % 1_440
    low = rng.normal(10, 3, ROWS).round(1)
    home = rng.integers(0, 6, ROWS)
    return pl.DataFrame(
        {
            "price": rng.lognormal(2, 1, ROWS).round(2),
            "count": rng.integers(1, 9, ROWS),
            "low": low,
            "high": (low + rng.gamma(2, 2, ROWS) + 0.1).round(1),
            "leaves": start // 60 * 100 + start % 60,
            "arrives": end // 60 * 100 + end % 60,
            "home": np.array(list("ABCDEF"))[home],
            "away": np.array(list("ABCDEF"))[(home + rng.integers(1, 6, ROWS)) % 6],
        }
    ).with_columns(total=(pl.col("price") * pl.col("count")).round(2))


def test_workers_find_the_rules_of_memory_and_write_the_same_bytes(
    processes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ruled_table()
    options: dict[str, Any] = {"trees": 2, "seed": 4, "max_rounds": 1}
    rules = arf_dask.fit(data, **options).rules
    assert {rule.kind for rule in rules} >= {"formula", "order", "difference", "grid"}
    monkeypatch.setattr(stages, "TRAINING_ROWS", 800)
    monkeypatch.setattr(parts, "CELLS", 3_000)
    monkeypatch.setattr(parts, "TASK_CELLS", 6_000)
    (tmp_path / "in").mkdir()
    for number in range(4):
        data.slice(number * 750, 750).write_parquet(tmp_path / "in" / f"{number}.parquet")
    here = arf_dask.fit(tmp_path / "in", **options)
    with Client(processes.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        there = arf_dask.fit(tmp_path / "in", client=client, **options)
        made = there.sample_parquet(tmp_path / "out", 4_000, seed=5, rows_per_file=1_500, client=client)
    # Columns that go together are found on the rows that trees are grown on, all others on the whole table.
    assert [rule for rule in here.rules if rule.kind != "together"] == [r for r in rules if r.kind != "together"]
    assert model_hash(there._fitted) == model_hash(here._fitted)
    rows = made.scan().collect()
    assert rows.equals(here.sample(4_000, seed=5))
    assert here.check(rows)["broken"].fill_null(0).sum() == 0
