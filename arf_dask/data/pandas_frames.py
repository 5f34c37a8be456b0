"""Conversion of pandas frames to Polars and back, preserving their dtypes."""

from __future__ import annotations

import sys
from typing import Any

import polars as pl
import pyarrow as pa

from arf_dask.errors import DataError, IndexDroppedWarning, warn_user

CONVERSION_ERRORS = (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError, NotImplementedError)
REMEDIES = {
    "Sparse": "make it dense: data[name].sparse.to_dense()",
    "complex": "split it into two columns, data[name].apply(lambda z: z.real) and imag",
    "object": "make all its values one type: astype(str), or pandas.to_numeric",
    "period": "make dates of it: data[name].dt.to_timestamp()",
    "interval": "make two columns of it, data[name].array.left and right",
}
OTHERWISE = "convert it with astype to numbers, text or dates, or drop it"


def is_pandas(data: Any) -> bool:
    """Return whether the data are a pandas DataFrame, without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def with_index_of(result: Any, data: Any) -> Any:
    """Set the index of a pandas result to that of `data`; return other results unchanged."""
    return result.set_axis(data.index, axis=0) if is_pandas(data) else result


def warn_of_index(index: Any) -> None:
    """Warn that a named, hierarchical or time index is not learned."""
    names = [str(name) for name in index.names if name is not None]
    if names or type(index).__name__ in ("DatetimeIndex", "MultiIndex", "PeriodIndex", "TimedeltaIndex"):
        shown = ", ".join(map(repr, names)) if names else f"a {type(index).__name__} without a name"
        warn_user(
            f"the index of the pandas frame ({shown}) is not learned and does not come back. "
            "data.reset_index() makes it a column.",
            IndexDroppedWarning,
        )


def from_pandas(data: Any) -> pl.DataFrame:
    """Convert a pandas frame to Polars: the index is dropped and NaN becomes null.

    Raises:
        DataError: A name occurs twice, or columns have no counterpart in Polars; the message lists them all.
    """
    names = data.columns.map(str)
    duplicate_names = names[names.duplicated()].tolist()
    if duplicate_names:
        raise DataError(f"column {duplicate_names[0]!r} occurs more than once. Rename the columns first.")
    named_data = data.set_axis(names, axis=1)
    try:
        frame: pl.DataFrame = pl.from_pandas(named_data, nan_to_null=True)
    except CONVERSION_ERRORS as error:
        raise DataError(f"the pandas frame cannot be read: {_listed(_failing_columns(named_data)) or error}") from error
    unsupported_dtypes = {
        name: named_data[name].dtype for name, dtype in frame.schema.items() if isinstance(dtype, pl.BaseExtension)
    }
    if unsupported_dtypes:
        raise DataError(f"the pandas frame cannot be read: {_listed(unsupported_dtypes)}")
    return frame


def _failing_columns(data: Any) -> dict[str, Any]:
    """Return the dtypes of the columns that Polars cannot read, by name."""
    failing_dtypes = {}
    for name in data.columns:
        try:
            pl.from_pandas(data[[name]], nan_to_null=True)
        except CONVERSION_ERRORS:
            failing_dtypes[name] = data[name].dtype
    return failing_dtypes


def _listed(dtypes: dict[str, Any]) -> str:
    descriptions = []
    for name, dtype in dtypes.items():
        remedy = next((text for kind, text in REMEDIES.items() if str(dtype).startswith(kind)), OTHERWISE)
        type_text = "values of several types" if str(dtype) == "object" else str(dtype)
        descriptions.append(f"column {name!r} ({type_text}): {remedy}")
    return "; ".join(descriptions) + "." if descriptions else ""


def to_pandas(frame: pl.DataFrame, like: Any = None) -> Any:
    """Convert to pandas, with the dtypes of `like` (a frame of pandas or Dask) where the values allow it."""
    result = frame.to_pandas()
    if like is None:
        return result
    result.columns = like.columns
    for column_index, (name, dtype) in enumerate(like.dtypes.items()):
        if str(dtype) == "object" and frame.dtypes[column_index] == pl.Date:
            # pandas has no dtype for dates: Polars would convert them to timestamps.
            result[name] = sys.modules["pandas"].Series(frame.to_series(column_index).to_list(), dtype=object)
        elif result[name].dtype != dtype:
            try:
                result[name] = result[name].astype(dtype)
            except (TypeError, ValueError):
                continue  # for example, missing values in a NumPy integer column
    return result
