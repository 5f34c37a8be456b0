"""A lazy Dask DataFrame of synthetic rows: its partitions are drawn on the workers and written by them."""

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from distributed import Client

import arf_dask
from arf_dask.inference import dask_rows
from arf_dask.inference.forge import BLOCK_ROWS
from tests.clusters import Processes


def process_of(partition: Any) -> Any:
    return partition.assign(process=os.getpid())[["process"]].head(1)


def test_partitions_are_made_on_workers_and_written_by_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask.dataframe")
    monkeypatch.setattr(dask_rows, "PARTITION_ROWS", BLOCK_ROWS)
    data = pl.DataFrame({"n": [i % 7 for i in range(300)], "s": ["u", "v", None] * 100})
    model = arf_dask.fit(data, trees=3, seed=0)
    rows = 3 * BLOCK_ROWS
    with Processes(tmp_path, workers=2) as started, Client(started.address):
        lazy = model.sample(rows, seed=1, frame="dask")
        where = lazy.map_partitions(process_of, meta={"process": "int64"}).compute()
        assert os.getpid() not in set(where["process"])
        lazy.to_parquet(tmp_path / "out", write_index=False)
    written = pl.read_parquet(tmp_path / "out" / "*.parquet")
    assert written.cast(data.schema).equals(model.sample(rows, seed=1))
