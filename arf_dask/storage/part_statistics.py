"""Read column statistics from the footer of a Parquet file: rows, null counts, minima and maxima."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, BinaryIO, NamedTuple

import pyarrow.parquet as pq

TEXT_CHARACTERS = 32  # maximum length of a text bound; longer texts have none


class PartStatistics(NamedTuple):
    """The statistics of one file."""

    rows: int
    nulls: Mapping[str, int]
    bounds: Mapping[str, tuple[Any, Any]]  # minimum and maximum as JSON values


def read_statistics(file: BinaryIO) -> PartStatistics:
    """Read the statistics of all columns from the footer of a file."""
    with pq.ParquetFile(file) as parquet:
        metadata = parquet.metadata
        row_groups = [metadata.row_group(group_index) for group_index in range(metadata.num_row_groups)]
        nulls, bounds = {}, {}
        for column_index, name in enumerate(parquet.schema_arrow.names):
            group_statistics = [group.column(column_index).statistics for group in row_groups]
            if any(statistics is None for statistics in group_statistics):
                continue
            if all(statistics.has_null_count for statistics in group_statistics):
                nulls[name] = sum(statistics.null_count for statistics in group_statistics)
            limits = [(statistics.min, statistics.max) for statistics in group_statistics if statistics.has_min_max]
            is_complete = len(limits) == sum(statistics.num_values > 0 for statistics in group_statistics)
            json_bounds = (
                (_plain(min(low for low, _ in limits)), _plain(max(high for _, high in limits))) if limits else None
            )
            if json_bounds is not None and is_complete and None not in json_bounds:
                bounds[name] = json_bounds
        return PartStatistics(metadata.num_rows, nulls, bounds)


def _plain(value: Any) -> Any:
    """Return a bound as a JSON value; None for types whose text form is inexact or sorts differently."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | date):
        return None
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value if not isinstance(value, str) or len(value) <= TEXT_CHARACTERS else None
