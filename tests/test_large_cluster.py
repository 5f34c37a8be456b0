"""Data larger than memory on real worker processes: the same bytes as on threads."""

import numpy as np
import polars as pl
import pytest
from clusters import Processes
from distributed import Client

import arf_dask
from arf_dask import api, parts
from arf_dask.storage import model_hash

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
def processes(tmp_path_factory):
    with Processes(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started


@pytest.mark.parametrize("kind", ["files", "frame", "scan", "dask"])
def test_workers_give_the_bytes_of_threads(processes, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(api, "TRAINING_ROWS", 500)
    monkeypatch.setattr(parts, "CELLS", 2_000)
    monkeypatch.setattr(parts, "TASK_CELLS", 4_000)
    data = table()
    if kind in ("files", "scan"):
        for number in range(5):
            data.slice(number * 600, 600).write_parquet(tmp_path / f"{number}.parquet")
        given = tmp_path if kind == "files" else pl.scan_parquet(tmp_path)
    elif kind == "dask":
        dd = pytest.importorskip("dask.dataframe")
        given = dd.from_pandas(data.with_columns(pl.col("kind").cast(pl.String)).to_pandas(), npartitions=6)
    else:
        given = data
    options = {"trees": 3, "seed": 4, "max_rounds": 1}
    here = arf_dask.fit(given, **options)
    with Client(processes.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        there = arf_dask.fit(given, client=client, **options)
    assert model_hash(there) == model_hash(here)
    assert here.schema.n_rows == ROWS


def test_a_damaged_file_is_named_by_the_worker_that_reads_it(processes, tmp_path, monkeypatch):
    monkeypatch.setattr(api, "TRAINING_ROWS", 500)
    data = table()
    for number in range(3):
        data.slice(number * 1_000, 1_000).write_parquet(tmp_path / f"{number}.parquet", compression="zstd")
    damaged = bytearray((tmp_path / "1.parquet").read_bytes())
    damaged[4:400] = bytes(396)
    (tmp_path / "1.parquet").write_bytes(damaged)
    with Client(processes.address, set_as_default=False) as client, pytest.raises(arf_dask.DataError) as caught:
        arf_dask.fit(tmp_path, client=client, trees=2)
    assert "1.parquet" in str(caught.value)
