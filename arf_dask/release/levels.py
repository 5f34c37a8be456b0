"""Protect rare levels and combinations: merge them into one level, suppress them, or drop their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from arf_dask.release.policy import OTHER, ReleasePolicy

PEOPLE = "\0people"  # no column of a table has such a name


class Levels(NamedTuple):
    """A protected categorical column."""

    column: pl.Series
    merged: int  # levels removed
    rows: int  # rows that held them
    into: str  # a description of what replaced them


def protect_levels(column: pl.Series, subjects: pl.Series | None, policy: ReleasePolicy) -> Levels:
    """Merge or suppress levels of fewer than `min_level` subjects.

    If all rare levels together have too few subjects to form a level, they are merged into the most frequent level.
    """
    counted = count_people(pl.DataFrame({"value": column}), ["value"], subjects).drop_nulls("value")
    rare = counted.filter(pl.col(PEOPLE) < policy.min_level)
    if not rare.height:
        return Levels(_drop_unused(column, None), 0, 0, "")
    is_rare = column.is_in(rare["value"].implode()) & column.is_not_null()
    people = int(is_rare.sum()) if subjects is None else subjects.filter(is_rare).n_unique()
    kept = counted.filter(pl.col(PEOPLE) >= policy.min_level).sort(PEOPLE, "value", descending=[True, False])
    is_text = isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum)
    if people < policy.min_level and kept.height:
        into, told = kept["value"][0], "the most frequent level"
    elif people >= policy.min_level and is_text and policy.handling(column.name) == "merge":
        into, told = OTHER, OTHER
    else:
        into, told = None, "missing"
    return Levels(_replaced(column, is_rare, into), rare.height, int(is_rare.sum()), told)


def rare_combinations(
    frame: pl.DataFrame, names: Sequence[str], subjects: pl.Series | None, min_level: int
) -> pl.Series:
    """Return a mask of the rows whose combination of these columns is shared by fewer than `min_level` subjects."""
    counted = count_people(frame.select(names), list(names), subjects)
    joined = frame.select(names).join(counted, on=list(names), how="left", nulls_equal=True, maintain_order="left")
    return joined[PEOPLE].fill_null(0) < min_level


def count_people(table: pl.DataFrame, names: list[str], subjects: pl.Series | None) -> pl.DataFrame:
    """One row per combination of `names`: these columns, and people (the number of distinct subjects)."""
    people = pl.len() if subjects is None else pl.col("\0subject").n_unique()
    whole = table if subjects is None else table.with_columns(subjects.alias("\0subject"))
    return whole.group_by(names).agg(people.alias(PEOPLE))


def _replaced(column: pl.Series, is_rare: pl.Series, into: object) -> pl.Series:
    if isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum):
        text = column.cast(pl.String)
        into = None if into is None else str(into)
        replaced = pl.select(pl.when(is_rare).then(pl.lit(into, pl.String)).otherwise(text)).to_series()
        return _drop_unused(column, replaced)
    value = pl.lit(into, column.dtype)
    return pl.select(pl.when(is_rare).then(value).otherwise(column)).to_series().alias(column.name)


def _drop_unused(column: pl.Series, text: pl.Series | None) -> pl.Series:
    """Cast back to the column's dtype; unused Enum levels are removed, as the dtype would reveal them."""
    dtype = column.dtype
    if not isinstance(dtype, pl.Enum):
        return column if text is None else text.cast(dtype).alias(column.name)
    values = column.cast(pl.String) if text is None else text
    used = set(values.drop_nulls().unique().to_list())
    ordered = [level for level in dtype.categories.to_list() if level in used]
    ordered += [level for level in (OTHER,) if level in used and level not in ordered]
    return values.cast(pl.Enum(ordered)).alias(column.name)
