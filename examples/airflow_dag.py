"""An Airflow 3 DAG: fit, sample, report, publish to a Delta table. Copy it to the folder of DAGs.

LAKE names the directory that holds orders.parquet and held_out.parquet (orders that the model does not learn from), and
in which everything is made. The table is published only if the report keeps its limits. Keep DAG files free of
data: Airflow forks the process that has read them, and Polars does not survive a fork once it has run.
"""

from __future__ import annotations

import os
from datetime import datetime

from airflow.sdk import DAG

from arf_dask.integrations.airflow import fit_operator, publish_delta_operator, report_operator, sample_operator

LAKE = os.environ.get("LAKE", "lake")

with DAG("synthetic_orders", schedule=None, start_date=datetime(2024, 1, 1), catchup=False) as dag:
    fitted = fit_operator(data=f"{LAKE}/orders.parquet", model=f"{LAKE}/model", trees=5, seed=1, keys=["order_id"])
    sampled = sample_operator(model=fitted.output, to=f"{LAKE}/parquet", n=10_000, seed=1, rows_per_file=4_000)
    reported = report_operator(
        data=f"{LAKE}/orders.parquet",
        synthetic=f"{LAKE}/parquet",
        page=f"{LAKE}/report.html",
        holdout=f"{LAKE}/held_out.parquet",
        shadows=0,
        limits={"membership_auc": 0.7},
        seed=1,
    )
    published = publish_delta_operator(model=fitted.output, table=f"{LAKE}/delta", n=10_000, seed=1)
    sampled >> reported >> published
