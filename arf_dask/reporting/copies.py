"""Rates of rows that equal a training row in all columns or all but one, for synthetic and held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.fingerprints import Key, Words, cell_words, near_words, row_words

RARE = 10  # levels with fewer real rows are rare


class CopyRates(NamedTuple):
    """Shares of rows that equal a training row."""

    identical: float
    near: float  # in all but one column


def copy_rates(real: pl.DataFrame, others: Sequence[pl.DataFrame], key: Key) -> list[CopyRates]:
    """Return, per frame, the share of rows that equal a row of `real` in all columns, and in all but one."""
    cells = cell_words(_plain(real), key)
    known, near = row_words(cells), near_words(cells) if real.width > 1 else None
    return [_rates(known, near, cell_words(_plain(rows), key)) for rows in others]


def repeat_rates(real: pl.DataFrame, key: Key) -> CopyRates:
    """Return the share of rows of `real` that equal another row of `real` in all columns, and in all but one."""
    cells = cell_words(_plain(real), key)
    identical = _is_repeated(row_words(cells))
    if real.width == 1:
        return CopyRates(float(identical.mean()), float(identical.mean()))
    near = near_words(cells)
    repeated = [_is_repeated(near[:, place]) for place in range(near.shape[1])]
    return CopyRates(float(identical.mean()), float(np.logical_or.reduce([identical, *repeated]).mean()))


def _is_repeated(words: Words) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    _, index, counts = np.unique(words, return_inverse=True, return_counts=True)
    return np.asarray(counts[index.ravel()] > 1)


def _rates(known: Words, near: Words | None, asked: Words) -> CopyRates:
    identical = np.isin(row_words(asked), known)
    if near is None:
        return CopyRates(float(identical.mean()), float(identical.mean()))
    return CopyRates(float(identical.mean()), float((identical | _near(near, near_words(asked))).mean()))


def rare_levels(real: pl.DataFrame, synthetic: pl.DataFrame, names: list[str]) -> dict[str, int]:
    """Count, by column, the rare real levels that occur in the synthetic rows; columns without any are omitted."""
    found = {}
    for name in names:
        counts = real[name].drop_nulls().cast(pl.String).alias("level").value_counts(name="rows")
        rare_names = counts.filter(pl.col("rows") < RARE)["level"]
        n_present = rare_names.is_in(synthetic[name].cast(pl.String).unique().implode()).sum()
        if n_present:
            found[name] = int(n_present)
    return found


def _near(known: Words, asked: Words) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found = np.zeros(len(asked), dtype=bool)
    for place in range(asked.shape[1]):
        found |= np.isin(asked[:, place], known[:, place])
    return found


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Cast categories to text, as two frames may encode them differently."""
    return frame.with_columns(pl.col(pl.Categorical, pl.Enum).cast(pl.String))
