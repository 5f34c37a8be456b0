"""Gates of Delta and Iceberg tables: nothing is committed or left behind unless the limits hold. No canary survives."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask import Limits, ReleaseError, ReleasePolicy

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

REFUSED = Limits(membership_auc=0.0, shadows=0)
PASSED = Limits(membership_auc=1.0, shadows=0)
EXTREME = 7_654_321.25


def people(n: int, seed: int) -> pl.DataFrame:
    """People, of whom every tenth has a job that nobody else has, and one an income that nobody else has."""
    rng = np.random.Generator(np.random.SFC64(seed))
    frame = pl.DataFrame(
        {
            "job": [f"CANARY{i:04d}" if i % 10 == 0 else f"job{i % 5}" for i in range(n)],
            "income": np.exp(rng.normal(10, 0.6, n)).round(2),
            "visits": rng.poisson(4, n),
        }
    )
    income = pl.when(pl.int_range(pl.len()) == 3).then(EXTREME).otherwise("income")
    return frame.with_columns(income=income)


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    return arf_dask.fit(
        people(600, 1), trees=3, seed=0, progress=False, release=ReleasePolicy(), holdout=people(300, 2)
    )


@pytest.fixture
def table(model: arf_dask.Model, tmp_path: Path) -> Iterator[Any]:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("lake")
    yield catalog.create_table("lake.twin", model.portable_schema())
    catalog.engine.dispose()


def files_below(path: Path) -> list[Path]:
    return sorted(found for found in path.rglob("*") if found.is_file())


def test_a_delta_table_is_left_as_it_was_unless_the_limits_hold(model: arf_dask.Model, tmp_path: Path) -> None:
    where, real = tmp_path / "twin", people(600, 1)
    with pytest.raises(ReleaseError, match="not published: membership_auc"):
        model.sample_delta(str(where), 300, seed=1, publish_if=REFUSED, real=real)
    assert not where.exists()
    model.sample_delta(str(where), 300, seed=1, publish_if=PASSED, real=real)
    before = files_below(where)
    with pytest.raises(ReleaseError):
        model.sample_delta(str(where), 300, seed=2, mode="overwrite", publish_if=REFUSED, real=real)
    assert deltalake.DeltaTable(str(where)).version() == 0
    assert files_below(where) == before


def test_an_iceberg_table_is_left_as_it_was_unless_the_limits_hold(
    model: arf_dask.Model, table: Any, tmp_path: Path
) -> None:
    real, before = people(600, 1), files_below(tmp_path / "warehouse")
    with pytest.raises(ReleaseError, match="not published: membership_auc"):
        model.sample_iceberg(table, 300, seed=1, publish_if=REFUSED, real=real)
    assert table.refresh().current_snapshot() is None
    assert files_below(tmp_path / "warehouse") == before
    model.sample_iceberg(table, 300, seed=1, publish_if=PASSED, real=real)
    assert table.refresh().scan().to_arrow().num_rows == 300


def test_a_refused_parquet_data_set_leaves_nothing_behind(model: arf_dask.Model, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError):
        model.sample_parquet(tmp_path / "out", 300, seed=1, publish_if=REFUSED, real=people(600, 1))
    assert files_below(tmp_path) == []


def test_no_canary_survives_in_tables_rules_dependence_and_errors(
    model: arf_dask.Model, table: Any, tmp_path: Path
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.sample_delta(str(tmp_path / "delta"), 400, seed=1)
        model.sample_iceberg(table, 400, seed=1)
    refusals = []
    given = [{"job": "CANARY"}, pl.DataFrame({"job": ["CANARY"]}), {"income": (1e9, 2e9)}, {"jop": "x"}]
    for condition in given:
        with pytest.raises(arf_dask.ArfError) as refused:
            model.sample(1, given=condition)
        refusals.append(str(refused.value))
    with pytest.raises(ReleaseError) as gate:
        model.sample_parquet(tmp_path / "out", 400, seed=1, publish_if=REFUSED, real=people(600, 1))
    gate.value.report.save(tmp_path / "page.html")
    entries = table.refresh().inspect.entries().to_pydict()
    model.save(tmp_path / "model")
    shown = [
        model.rules,
        model.dependence,
        model.schema,
        model._fitted.relations,
        model._fitted.tables.dependence,
        entries,
    ]
    told = "\n".join([*map(repr, shown), *refusals, str(gate.value), *(str(one.message) for one in caught)]).encode()
    told += b"\n".join(path.read_bytes() for path in files_below(tmp_path))
    rows = [pl.read_delta(str(tmp_path / "delta")), pl.DataFrame(table.scan().to_arrow())]
    assert b"job3" in told
    assert not any(f"CANARY{i:04d}".encode() in told for i in range(0, 600, 10))
    assert str(EXTREME).encode() not in told
    assert np.float64(EXTREME).tobytes() not in told
    for frame in rows:
        assert frame["job"].is_in(["(other)", *(f"job{i}" for i in range(5))]).all()
        assert frame.select(pl.col("income").max()).item() < EXTREME
