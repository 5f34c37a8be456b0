"""Dagster for real: the example's assets are materialized, twice, with what they wrote as metadata."""

import importlib
from pathlib import Path

import pytest

pytest.importorskip("dagster")

import dagster

from retail import retail_orders

pytestmark = pytest.mark.filterwarnings("ignore")  # Dagster's own and its dependencies'


def test_the_example_assets_are_materialized_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.setenv("LAKE", str(tmp_path))
    retail_orders(500).write_parquet(tmp_path / "orders.parquet")
    retail_orders(300, seed=1).write_parquet(tmp_path / "held_out.parquet")
    example = importlib.import_module("dagster_assets")
    assets = [example.orders_model, example.orders_twin, example.orders_report, example.orders_table]
    for _ in range(2):
        done = dagster.materialize(assets)
        assert done.success
    found = {
        event.asset_key.to_user_string(): event.step_materialization_data.materialization.metadata
        for event in done.get_asset_materialization_events()
    }
    assert found["orders_twin"]["rows"].value == 10_000
    assert found["orders_table"]["dagster/row_count"].value == 10_000
    assert found["orders_twin"]["parts"].value == 3
    assert len(found["orders_twin"]["sha256"].value) == 64
    assert 0 < found["orders_report"]["membership_auc"].value < 0.7
    assert (tmp_path / "report.html").stat().st_size
    assert deltalake.DeltaTable(tmp_path / "delta").version() == 0
