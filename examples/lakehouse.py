"""A lakehouse release: a synthetic twin as a Delta table, and a second batch. `python examples/lakehouse.py DIRECTORY`.

Needs the extra delta. For an object store give a URL and storage_options instead of the directory.
"""

from __future__ import annotations

import sys

import polars as pl

import arf_dask
from retail import retail_orders


def main(lake: str) -> None:
    """Publish two batches, run the second again, and read the table back."""
    model = arf_dask.fit(retail_orders(2_000), trees=5, seed=1, keys=["order_id"])
    table = f"{lake}/orders"
    model.sample_delta(table, 5_000, seed=1, mode="append")
    for _ in range(2):  # as after a crash or a retry: the same job is committed once
        model.sample_delta(table, 5_000, seed=2, mode="append")
    rows = pl.scan_delta(table)
    print(rows.select(pl.len()).collect().item(), "rows")
    print(rows.head(5).collect())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "lake")
