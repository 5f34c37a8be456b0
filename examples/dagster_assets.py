"""Dagster assets: a model, rows, a report and a Delta table. `dagster dev -f examples/dagster_assets.py`.

LAKE names the directory that holds orders.parquet and held_out.parquet (orders that the model does not learn from), and
in which everything is made. The table is published only if the report keeps its limits.
"""

from __future__ import annotations

import os

import dagster

from arf_dask.integrations.dagster import data_set_asset, delta_asset, model_asset, report_asset

LAKE = os.environ.get("LAKE", "lake")
MODEL = f"{LAKE}/model"

orders_model = model_asset(
    "orders_model", data=f"{LAKE}/orders.parquet", path=MODEL, trees=5, seed=1, keys=["order_id"]
)
orders_twin = data_set_asset(
    "orders_twin", model=orders_model, model_path=MODEL, to=f"{LAKE}/parquet", n=10_000, seed=1, rows_per_file=4_000
)
orders_report = report_asset(
    "orders_report",
    rows=orders_twin,
    data=f"{LAKE}/orders.parquet",
    synthetic=f"{LAKE}/parquet",
    page=f"{LAKE}/report.html",
    holdout=f"{LAKE}/held_out.parquet",
    shadows=0,
    limits={"membership_auc": 0.7},
    seed=1,
)
orders_table = delta_asset(
    "orders_table",
    model=orders_model,
    model_path=MODEL,
    table=f"{LAKE}/delta",
    n=10_000,
    seed=1,
    after=orders_report,
)

definitions = dagster.Definitions(assets=[orders_model, orders_twin, orders_report, orders_table])
