"""FORDE (paper, Alg. 2): the parameters of every leaf, as group-bys that can be cut into parts and merged.

`finish(merge([summarise(a), summarise(b)])) == finish(summarise(a + b))`: sums over leaves do not care how the rows
were cut. One table per variable, one row per (leaf, state): how many rows, and for intervals their mean and sum of
squared distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.encode import Codes, line_places, states_of_codes
from arf_dask.forest import Ints
from arf_dask.schema import Floats, Schema, Variable

Sums = list[pl.DataFrame]  # per variable: leaf, state, count, mean, squares
ROWS_AT_ONCE = 4_000_000
SUM_COLUMNS = {"leaf": pl.UInt32, "state": pl.UInt32, "count": pl.UInt32, "mean": pl.Float64, "squares": pl.Float64}


def summarise(frame: pl.DataFrame, schema: Schema, codes: Codes, leaves: Sequence[Ints], starts: Ints) -> Sums:
    """One table per variable, one row per (leaf, state), sorted.

    `leaves[t]` is the leaf number of every row in tree t, `starts[t]` the number of that tree's first leaf among all.
    """
    sums = []
    for number, variable in enumerate(schema.variables):
        states = states_of_codes(variable)[codes[:, number]].astype(np.uint32)
        places = None
        if variable.interval.any():
            lead = schema.columns[variable.columns[0]]
            places = np.where(variable.interval[states], line_places(frame[lead.name], lead), np.nan)
        sums.append(_summarise_variable(states, places, leaves, starts, variable))
    return sums


def merge(parts: Iterable[Sums]) -> Sums:
    """The sums of all parts together."""
    return [_merge_tables(pl.concat(tables)) for tables in zip(*parts, strict=True)]


def _summarise_variable(
    states: NDArray[np.uint32], places: Floats | None, leaves: Sequence[Ints], starts: Ints, variable: Variable
) -> pl.DataFrame:
    """One row per (leaf, state) over all trees, a few trees at a time so that memory stays small."""
    at_once = max(1, ROWS_AT_ONCE // max(len(states), 1))
    tables = []
    for first in range(0, len(leaves), at_once):
        trees = range(first, min(first + at_once, len(leaves)))
        width = np.uint64(variable.n_states)
        keys = np.concatenate([(leaves[t] + np.int64(starts[t])).astype(np.uint64) * width + states for t in trees])
        long = pl.DataFrame({"key": keys})
        sums = [pl.len().alias("count")]
        if places is not None:
            long = long.with_columns(place=np.tile(places, len(trees)))
            mean = pl.col("place").mean()
            sums += [mean.alias("mean"), ((pl.col("place") - mean) ** 2).sum().alias("squares")]
        tables.append(long.group_by("key").agg(sums).sort("key"))
    table = pl.concat(tables)
    if places is None:
        table = table.with_columns(mean=pl.lit(None, pl.Float64), squares=pl.lit(None, pl.Float64))
    return table.select(
        (pl.col("key") // variable.n_states).cast(pl.UInt32).alias("leaf"),
        (pl.col("key") % variable.n_states).cast(pl.UInt32).alias("state"),
        pl.col("count").cast(pl.UInt32),
        pl.col("mean").fill_nan(None),
        pl.col("squares").fill_nan(None),
    )


def _merge_tables(table: pl.DataFrame) -> pl.DataFrame:
    """Means and squares of parts combined exactly (Chan's formula), in one group-by."""
    rows = pl.col("count").cast(pl.Float64)
    mean = (pl.col("mean") * rows).sum() / rows.sum()
    squares = pl.col("squares").sum() + (rows * (pl.col("mean") - mean) ** 2).sum()
    known = pl.col("mean").is_not_null().all()
    merged = table.group_by("leaf", "state").agg(
        pl.col("count").sum(),
        pl.when(known).then(mean).alias("mean"),
        pl.when(known).then(squares).alias("squares"),
    )
    return merged.sort("leaf", "state").cast(SUM_COLUMNS)  # type: ignore[arg-type]
