"""Synthetic rows as a lazy Dask DataFrame whose partitions are drawn on the workers on demand."""

from __future__ import annotations

from typing import Any

import polars as pl

from arf_dask.data.pandas_frames import to_pandas
from arf_dask.errors import missing_extra
from arf_dask.inference.forge import BLOCK_ROWS
from arf_dask.inference.row_plan import RowPlan

PARTITION_ROWS = 4 * BLOCK_ROWS


def dask_frame(plan: RowPlan, like: Any = None) -> Any:
    """Return a Dask DataFrame of the rows of a plan.

    Args:
        plan: the rows to draw. It is a single graph node shared by all partitions, so each worker receives it once.
        like: an empty pandas frame with the dtypes of the result; None for Arrow-backed dtypes, which are the same in
            every partition even for integers and text with missing values.
    """
    try:
        import dask
        import dask.dataframe
    except ImportError as error:  # pandas is not installed
        raise missing_extra("Dask DataFrames", "pandas") from error
    first_rows = list(range(0, max(plan.rows, 1), PARTITION_ROWS))
    shared_plan = dask.delayed(plan, pure=False, traverse=False)  # type: ignore[attr-defined]
    draw_partition = dask.delayed(_partition, pure=False)  # type: ignore[attr-defined]
    partitions = [
        draw_partition(shared_plan, first_row, min(first_row + PARTITION_ROWS, plan.rows), like)
        for first_row in first_rows
    ]
    meta = _to_pandas(pl.DataFrame(schema=plan.fitted.dtypes), like, 0)
    divisions = (*first_rows, max(plan.rows - 1, 0))
    return dask.dataframe.from_delayed(partitions, meta=meta, divisions=divisions, verify_meta=False)


def _partition(plan: RowPlan, first: int, stop: int, like: Any) -> Any:
    frames = list(plan.read(first, stop))
    return _to_pandas(pl.concat(frames) if frames else pl.DataFrame(schema=plan.fitted.dtypes), like, first)


def _to_pandas(frame: pl.DataFrame, like: Any, first: int) -> Any:
    result = frame.to_pandas(use_pyarrow_extension_array=True) if like is None else to_pandas(frame, like)
    result.index += first
    return result
