"""No kind of frame or file says anything of levels that a release left out, nor carries the metadata of real rows."""

from __future__ import annotations

import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import arf_dask

CANARY = "CANARY"
N = 600


def people() -> pd.DataFrame:
    """A table in which one town has a single row, and six are too rare for a release."""
    rng = np.random.default_rng(0)
    town = np.array(["north", "south", "east"])[rng.integers(0, 3, N)].astype(object)
    town[0], town[1:7], town[7:20] = CANARY, "hamlet", "village"
    return pd.DataFrame(
        {
            "town": pd.Categorical(town, categories=["village", "south", "north", "hamlet", "east", CANARY, "nowhere"]),
            "spent": rng.normal(size=N).round(2),
        }
    )


def synthesized(data: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", arf_dask.ReleaseWarning)
        return arf_dask.synthesize(data, 300, release=arf_dask.ReleasePolicy(), trees=2, refine=False, seed=1)


def test_pandas_categories_are_those_that_occur_in_their_order() -> None:
    rows = synthesized(people())
    assert rows["town"].cat.categories.tolist() == ["village", "south", "north", "east"]
    assert CANARY.encode() not in pickle.dumps(rows)
    assert not rows["town"].isna().any()


def test_an_ordered_category_stays_ordered_and_other_levels_stand_for_rare_ones() -> None:
    data = people()
    data["town"] = data["town"].cat.set_categories(data["town"].cat.categories, ordered=True)
    data.loc[20:40, "town"] = "hamlet"
    rare = data.assign(kind=pd.Categorical([f"k{i % 40}" if i < 120 else "common" for i in range(N)]))
    rows = synthesized(rare)
    assert rows["town"].cat.ordered
    assert rows["kind"].cat.categories.tolist() == ["common", "(other)"]
    assert (rows["kind"] == "(other)").mean() == pytest.approx(0.2, abs=0.07)


def test_dask_partitions_and_their_meta_know_no_rare_level() -> None:
    rows = synthesized(dd.from_pandas(people(), npartitions=2))  # type: ignore[no-untyped-call]
    assert CANARY not in rows.dtypes["town"].categories
    assert CANARY.encode() not in pickle.dumps(rows.compute())


def test_arrow_schemas_carry_no_metadata() -> None:
    table = pa.Table.from_pandas(people()).replace_schema_metadata({b"note": CANARY.encode()})
    field = pa.field("town", table.schema.field("town").type, metadata={b"of": CANARY.encode()})
    rows = synthesized(table.set_column(0, field, table.column("town")))
    assert rows.schema.metadata is None
    assert rows.schema.types == table.schema.types
    assert CANARY.encode() not in rows.schema.serialize().to_pybytes()
    file = io.BytesIO()
    pq.write_table(rows, file)
    assert CANARY.encode() not in file.getvalue()


TOWNS = pl.Enum(["south", "north", "village", "hamlet", "east", CANARY])


@pytest.mark.parametrize("dtype", [pl.String(), pl.Categorical(), TOWNS])
def test_polars_frames_and_files_know_no_rare_level(dtype: pl.DataType, tmp_path: Path) -> None:
    data = pl.from_pandas(people()).with_columns(pl.col("town").cast(pl.String).cast(dtype))
    rows = synthesized(data)
    assert CANARY not in str(rows.schema)
    for write in (rows.write_parquet, rows.write_ipc, rows.write_csv):
        file = io.BytesIO()
        write(file)
        assert CANARY.encode() not in file.getvalue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", arf_dask.ReleaseWarning)
        model = arf_dask.fit(data, release=arf_dask.ReleasePolicy(), trees=2, refine=False, seed=1)
    model.save(tmp_path / "model")
    model.sample_parquet(tmp_path / "rows", 300, seed=1)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 5
    assert not [path.name for path in written if CANARY.encode() in path.read_bytes()]
    for kind in ("pandas", "arrow", "dask"):
        rows = model.sample(300, seed=1, frame=kind)
        assert CANARY.encode() not in pickle.dumps(rows.compute() if kind == "dask" else rows)
