"""First look at the data: refuse what cannot be modelled, and count the distinct values of every column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.axis import FLOATS, Axis, is_numeric, learn_axis, nameless
from arf_dask.bins import Flags, Line
from arf_dask.errors import DataError, OptionError, UnsupportedColumnError
from arf_dask.keys import KeyShape, can_be_key, looks_like_key
from arf_dask.schema import Kind

ROWS_PER_LEVEL = 5  # numbers too wide for float64 are levels if each is seen so often


@dataclass(frozen=True, eq=False)
class Profile:
    """The distinct values of one column and how often each occurs."""

    name: str
    dtype: pl.DataType
    kind: Kind
    rows: int
    nulls: int
    nans: int
    levels: pl.Series  # categorical: distinct values, sorted by their text
    line: Line  # numeric: distinct places on the axis; categorical: counts only
    axis: Axis | None
    atoms: Flags | None = None  # numeric: which places are spikes, where the line is not that of all rows
    key: KeyShape | None = None  # keys: the shape, where it is known already

    @property
    def exact(self) -> bool:
        """Whether the line has every value of the column, not only those of a sample."""
        return self.atoms is None

    def with_key(self, key: KeyShape) -> Profile:
        return Profile(**{**self.__dict__, "key": key})


def check_frame(frame: pl.DataFrame) -> None:
    """Raise one error for each kind of trouble, with every column concerned."""
    check_shape(frame.schema, frame.height)
    floats = [name for name, dtype in frame.schema.items() if dtype in FLOATS]
    check_infinite({name: int(nameless(frame[name]).is_infinite().sum()) for name in floats})


def check_shape(dtypes: Mapping[str, pl.DataType], n_rows: int) -> None:
    """Raise where there is nothing to learn from, or columns of types that have no distribution."""
    if not dtypes:
        raise DataError("the frame has no columns. Give a frame with at least one column.")
    if n_rows == 0:
        raise DataError("the frame has no rows. Give at least one row to learn from.")
    odd = [(name, dtype) for name, dtype in dtypes.items() if not _supported(dtype)]
    if odd:
        raise UnsupportedColumnError.from_dtypes(odd)


def check_infinite(counts: Mapping[str, int]) -> None:
    """Raise where columns have infinite values."""
    infinite = {name: count for name, count in counts.items() if count}
    if infinite:
        listed = ", ".join(f"{name!r}: {count}" for name, count in infinite.items())
        raise DataError(f"infinite values ({listed}). Replace or drop them before fit.")


def check_kinds(dtypes: Mapping[str, pl.DataType], kinds: Mapping[str, str], keys: Sequence[str]) -> None:
    """Raise an OptionError for a column that cannot be what the caller says it is."""
    for name, dtype in dtypes.items():
        kind = "key" if name in keys else kinds.get(name)
        if kind == "numeric" and not is_numeric(dtype):
            raise OptionError(f"columns: {name!r} is {dtype} and has no numbers. Cast it to a number before fit.")
        if kind == "key" and not can_be_key(dtype):
            raise OptionError(
                f"keys: fresh values of {name!r} ({dtype}) cannot be made. Cast it to a string or an integer "
                "before fit, or do not declare it a key."
            )


def profile_frame(frame: pl.DataFrame, kinds: Mapping[str, str], keys: Sequence[str]) -> list[Profile]:
    """One profile per column, in order. `kinds` and `keys` override what would be inferred."""
    return [profile_column(series, kinds.get(series.name), series.name in keys) for series in frame]


def profile_column(series: pl.Series, kind: str | None, key: bool) -> Profile:
    """Distinct values, counts and kind of one column."""
    dtype, nulls = series.dtype, series.null_count()
    line, levels = Line(np.empty(0), np.empty(0, np.int64)), nameless(series).clear()
    nothing = Profile(series.name, dtype, "empty", len(series), nulls, 0, levels, line, None)
    if nulls == len(series) and not key:
        return nothing
    if key or kind == "key" or (kind is None and looks_like_key(series)):
        return _replace_kind(nothing, "key")
    if has_levels(dtype, kind):
        return _categorical_profile(nameless(series), nothing)
    return _numeric_profile(nameless(series), nothing)


def has_levels(dtype: pl.DataType, kind: str | None) -> bool:
    """Whether a column is modelled by its levels, not as numbers."""
    return kind == "categorical" or not is_numeric(dtype)


def text_of(series: pl.Series) -> pl.Series:
    """The levels of a categorical column as strings: the one form in which they are looked up."""
    series = nameless(series)
    # Polars writes no durations: their whole number of ticks is as good a name.
    series = series.to_physical() if isinstance(series.dtype, pl.Duration) else series
    return series if series.dtype == pl.String else series.cast(pl.String)


def _supported(dtype: pl.DataType) -> bool:
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        return False
    # By class: Categorical with categories of its own does not equal plain Categorical.
    return isinstance(dtype, pl.Boolean | pl.String | pl.Categorical | pl.Enum | pl.Null) or is_numeric(dtype)


def _replace_kind(profile: Profile, kind: Kind) -> Profile:
    return Profile(**{**profile.__dict__, "kind": kind})


def _categorical_profile(series: pl.Series, nothing: Profile) -> Profile:
    table = pl.DataFrame({"text": text_of(series), "value": series}).drop_nulls("text")
    counted = table.group_by("text").agg(pl.col("value").first(), pl.len()).sort("text")
    counts = counted["len"].to_numpy().astype(np.int64)
    line = Line(np.arange(len(counts), dtype=np.float64), counts)
    return Profile(**{**nothing.__dict__, "kind": "categorical", "levels": counted["value"], "line": line})


def _numeric_profile(series: pl.Series, nothing: Profile) -> Profile:
    nans = int(series.is_nan().sum()) if series.dtype in FLOATS else 0
    if nans + nothing.nulls == len(series):
        # No number at all: a line of no values, only the states NaN and null.
        return Profile(**{**nothing.__dict__, "kind": "numeric", "nans": nans, "axis": Axis(grid=False)})
    axis = learn_axis(series)
    line, levels = line_of(series, axis)
    n_values = series.drop_nulls().n_unique() if not axis.lossless else 0
    if are_levels(axis, len(line.places), n_values, len(series)):
        return _categorical_profile(series, nothing)
    return Profile(
        **{**nothing.__dict__, "kind": "numeric", "nans": nans, "line": line, "axis": axis, "levels": levels}
    )


def are_levels(axis: Axis, n_places: int, n_values: int, n_rows: int) -> bool:
    """Whether values that float64 cannot tell apart are each seen often (hashes, say): levels keep them exact."""
    return not axis.lossless and n_places < n_values <= n_rows // ROWS_PER_LEVEL


def line_of(series: pl.Series, axis: Axis, counts: NDArray[np.int64] | None = None) -> tuple[Line, pl.Series]:
    """The distinct places of values (each so often, or once), and one value for each place that is not exact."""
    places = axis.to_axis(series)
    number = ~np.isnan(places)
    # -0.0 and 0.0 are one number.
    found, first, rows = np.unique(places[number] + 0.0, return_index=True, return_counts=True)
    if counts is not None:
        rows = np.bincount(np.searchsorted(found, places[number]), counts[number], len(found))
    # Where float64 does not hold the values, spikes keep them as they are: one value per place.
    levels = series.clear() if axis.lossless else series.drop_nulls().gather(first)
    return Line(found, rows.astype(np.int64)), levels
