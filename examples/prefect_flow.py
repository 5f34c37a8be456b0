"""A Prefect flow: fit, sample, report, publish to a Delta table. `python examples/prefect_flow.py DIRECTORY`.

Every task can be retried: the model is replaced as a whole, the data set is completed, and the table takes a job once.
The table is published only if the report keeps its limits.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from prefect import flow

from arf_dask.integrations.prefect import fit_task, publish_delta_task, report_task, sample_task
from retail import retail_orders


@flow(name="synthetic orders")
def synthetic_orders(data: str, holdout: str, lake: str, n: int = 10_000, seed: int = 1) -> dict[str, Any]:
    """Learn the orders, and publish a synthetic twin of them if attacks on it fail."""
    model = fit_task(data, f"{lake}/model", trees=5, seed=seed, keys=["order_id"])
    written = sample_task(model, f"{lake}/parquet", n, seed=seed, rows_per_file=4_000)
    judged = report_task(
        data,
        written["path"],
        f"{lake}/report.html",
        seed=seed,
        holdout=holdout,
        shadows=0,
        limits={"membership_auc": 0.7},
    )
    published = publish_delta_task(model, f"{lake}/delta", n, seed=seed)
    return {"data_set": written, "report": judged, "table": published}


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else "lake")
    directory.mkdir(parents=True, exist_ok=True)
    training, held_out = str(directory / "orders.parquet"), str(directory / "held_out.parquet")
    retail_orders(2_000).write_parquet(training)
    retail_orders(1_000, seed=1).write_parquet(held_out)
    print(synthetic_orders(training, held_out, str(directory)))
