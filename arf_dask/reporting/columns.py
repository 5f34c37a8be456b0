"""Align the columns of several frames, and convert them to arrays for distances, detectors and attacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.fingerprints import cell_words, new_key, row_words
from arf_dask.data.key_learning import looks_like_key
from arf_dask.errors import DataError
from arf_dask.typing import Counts, Floats


class Sides(NamedTuple):
    """The frames of a report, with the same columns, order and dtypes."""

    real: pl.DataFrame
    synthetic: pl.DataFrame
    holdout: pl.DataFrame | None
    skipped: dict[str, str]  # columns that are not compared, with the reason
    real_rows: Counts | None = None  # row numbers of `real` in the caller's frame; None: all of its rows


def align(
    real: pl.DataFrame, synthetic: pl.DataFrame, holdout: pl.DataFrame | None, keys: Sequence[str] | None
) -> Sides:
    """Select the columns that can be compared.

    Args:
        real: The training rows.
        synthetic: The synthetic rows.
        holdout: Real rows not used for training, or None.
        keys: Identifiers, which are not compared; None detects them in `real`.

    Raises:
        DataError: If a frame is empty, lacks a column of `real`, or has another type there.
    """
    others = {"synthetic": synthetic} if holdout is None else {"synthetic": synthetic, "holdout": holdout}
    _check_frames(real, others)
    skipped = {name: reason for name in real.columns if (reason := _skip_reason(real[name], keys)) is not None}
    names = [name for name in real.columns if name not in skipped]
    if not names:
        raise DataError("report: no column can be compared; all are identifiers, nested or binary.")
    matched = {label: _match(frame, real.select(names), label) for label, frame in others.items()}
    return Sides(real.select(names), matched["synthetic"], matched.get("holdout"), skipped)


def without_holdout(sides: Sides, n_trained: int | None) -> Sides:
    """Remove the held-out rows from the real rows, if these are the whole table that both were split from.

    Members and outsiders could not be told apart otherwise. The table is whole if it has as many rows as the training
    and held-out rows together; if the number of training rows is not known, if it contains all held-out rows and most
    of them are unique.

    Args:
        sides: The frames.
        n_trained: The number of rows the model was fitted to, or None.
    """
    real, holdout = sides.real, sides.holdout
    if holdout is None or holdout.height >= real.height:
        return sides
    if n_trained is not None and real.height != n_trained + holdout.height:
        return sides
    key = new_key()
    words, held_out = (row_words(cell_words(frame, key)) for frame in (real, holdout))
    distinct, counts = np.unique(held_out, return_counts=True)
    order = np.argsort(words, kind="stable")
    starts, stops = (np.searchsorted(words[order], distinct, side=side) for side in ("left", "right"))
    if (stops - starts < counts).any():
        return sides
    if n_trained is None and 2 * int(counts[stops - starts == 1].sum()) < holdout.height:
        return sides
    # Rows that are equal in all columns are interchangeable: as many of them are removed as were held out.
    taken = np.repeat(starts, counts) + np.arange(len(held_out)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = np.sort(np.delete(order, taken))
    return sides._replace(real=real[kept], real_rows=kept)


def has_levels(dtype: pl.DataType) -> bool:
    """Return whether columns of this dtype are compared as levels rather than numbers."""
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Boolean | pl.Null)


def as_numbers(column: pl.Series) -> Floats:
    """Return the physical values as float64; nulls become NaN."""
    physical = column.to_physical() if column.dtype.is_temporal() else column
    return physical.cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64)


def as_text(column: pl.Series) -> pl.Series:
    """Return a column of levels as strings."""
    return column.cast(pl.String)


def level_codes(columns: Sequence[pl.Series]) -> tuple[list[Counts], pl.Series]:
    """Encode several columns with one shared, sorted list of levels (-1 is null); return the codes and that list."""
    texts = [as_text(column) for column in columns]
    levels = pl.concat([text.alias("level") for text in texts]).drop_nulls().unique().sort()
    lookup = pl.Enum(levels)
    return [text.cast(lookup).to_physical().cast(pl.Int64).fill_null(-1).to_numpy() for text in texts], levels


def sample_frame(frame: pl.DataFrame, most: int, rng: np.random.Generator) -> pl.DataFrame:
    """Draw at most `most` rows without replacement, in their original order."""
    return frame if frame.height <= most else frame[sample_numbers(frame.height, most, rng)]


def sample_numbers(n_rows: int, most: int, rng: np.random.Generator) -> Counts:
    """Draw at most `most` row indices without replacement, in ascending order."""
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(rng.choice(n_rows, most, replace=False))


def _check_frames(real: pl.DataFrame, others: dict[str, pl.DataFrame]) -> None:
    for label, frame in {"real": real, **others}.items():
        if frame.height == 0:
            raise DataError(f"report: {label} has no rows. Give at least one row.")
        missing = [name for name in real.columns if name not in frame.columns]
        if missing:
            raise DataError(f"report: {label} lacks the columns {', '.join(map(repr, missing))} of the real data.")


def _skip_reason(column: pl.Series, keys: Sequence[str] | None) -> str | None:
    dtype = column.dtype
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        return f"{dtype} columns cannot be compared"
    if column.null_count() == len(column):
        return "no value in the real data"
    if column.name in keys if keys is not None else looks_like_key(column):
        return "identifier"
    return None


def _match(frame: pl.DataFrame, like: pl.DataFrame, label: str) -> pl.DataFrame:
    """Return the columns of `like`, in its order and dtypes; all text types are compatible."""
    matched = []
    for name, dtype in like.schema.items():
        column = frame[name]
        if column.dtype != dtype and not (has_levels(column.dtype) and has_levels(dtype)):
            column = _cast(column, dtype, label)
        matched.append(column)
    return pl.DataFrame({column.name: column for column in matched})


def _cast(column: pl.Series, dtype: pl.DataType, label: str) -> pl.Series:
    try:
        return column.cast(dtype)
    except pl.exceptions.PolarsError:
        raise DataError(
            f"report: column {column.name!r} is {dtype} in the real and {column.dtype} in the {label} data. "
            "Cast it to the same type first."
        ) from None  # the error of Polars lists values
