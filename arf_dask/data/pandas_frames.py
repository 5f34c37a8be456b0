"""Conversion of pandas frames to Polars and back, preserving their dtypes."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa

from arf_dask.data.arrow_frames import cast_array, digits_remedy, readable_schema, readable_type
from arf_dask.errors import DataError, IndexDroppedWarning, warn_user

CONVERSION_ERRORS = (pa.ArrowException, pl.exceptions.PolarsError, TypeError, ValueError, NotImplementedError)
REMEDIES = {
    "Sparse": "make it dense: data[name].sparse.to_dense()",
    "complex": "split it into two columns, data[name].apply(lambda z: z.real) and imag",
    "object": "make all its values one type: astype(str), or pandas.to_numeric",
    "period": "make dates of it: data[name].dt.to_timestamp()",
    "interval": "make two columns of it, data[name].array.left and right",
    "category": "make its categories text: data[name].astype(str)",
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
    named_data = _readable_arrow_columns(data.set_axis(names, axis=1))
    try:
        frame: pl.DataFrame = pl.from_pandas(named_data, nan_to_null=True)
    except CONVERSION_ERRORS as error:
        raise DataError(f"the pandas frame cannot be read: {_listed(_failing_columns(named_data)) or error}") from error
    unsupported_dtypes = {
        name: named_data[name].dtype
        for name, dtype in frame.schema.items()
        if isinstance(dtype, pl.BaseExtension) or (dtype == pl.Date and _holds_times(named_data[name]))
    }
    if unsupported_dtypes:
        raise DataError(f"the pandas frame cannot be read: {_listed(unsupported_dtypes)}")
    return frame


def _readable_arrow_columns(data: Any) -> Any:
    """Cast columns with Arrow dtypes that Polars cannot read, such as 256-bit decimals."""
    fields = [(n, dtype.pyarrow_dtype) for n, dtype in data.dtypes.items() if hasattr(dtype, "pyarrow_dtype")]
    schema = pa.schema(fields)
    readable_schema(schema)
    new_dtypes = {n: type(data.dtypes[n])(readable_type(kind)) for n, kind in fields if readable_type(kind) != kind}
    try:
        return data.astype(new_dtypes) if new_dtypes else data
    except pa.ArrowException as error:
        raise DataError(f"the pandas frame cannot be read: {error}{digits_remedy(error, schema)}") from error


def _holds_times(column: Any) -> bool:
    """Whether an object column of dates holds datetimes too, which would lose their times."""
    return str(column.dtype) == "object" and any(isinstance(value, datetime) for value in column.dropna())


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
        type_text = {"object": "values of several types", "category": _category_text(dtype)}.get(str(dtype), str(dtype))
        descriptions.append(f"column {name!r} ({type_text}): {remedy}")
    return "; ".join(descriptions) + "." if descriptions else ""


def _category_text(dtype: Any) -> str:
    return f"category of {dtype.categories.dtype}" if hasattr(dtype, "categories") else str(dtype)


def to_pandas(frame: pl.DataFrame, like: Any = None, *, unused_categories: bool = True) -> Any:
    """Convert to pandas, with the dtypes of `like` (a frame of pandas or Dask) where the values allow it.

    Args:
        frame: the rows.
        like: the frame whose dtypes the result gets; None for those that Polars chooses.
        unused_categories: whether categories of `like` stay that no row has.
    """
    result = frame.to_pandas()
    if like is None:
        return result
    result.columns = like.columns
    for column_index, (name, dtype) in enumerate(like.dtypes.items()):
        if hasattr(dtype, "categories") and not unused_categories:
            dtype = _used_categories(frame.to_series(column_index), dtype)
        # Dtypes of unordered categories are equal whatever the order of the categories.
        if result[name].dtype != dtype or hasattr(dtype, "pyarrow_dtype") or hasattr(dtype, "categories"):
            result[name] = _cast_column(frame.to_series(column_index), result[name], dtype)
    return result


def _used_categories(column: pl.Series, dtype: Any) -> Any:
    """Return a dtype of categories with those that occur: the old ones in their order, and then new ones."""
    values = set(column.drop_nulls().unique().to_list())
    old_categories = [category for category in dtype.categories if category in values]
    new_categories = sorted(values.difference(old_categories))
    return type(dtype)([*old_categories, *new_categories], ordered=dtype.ordered)


def _cast_column(column: pl.Series, converted: Any, dtype: Any) -> Any:
    """Return a converted column with the given dtype, or unchanged if its values do not fit."""
    pandas = sys.modules["pandas"]
    try:
        if hasattr(dtype, "pyarrow_dtype"):
            array = pa.chunked_array([cast_array(column.to_arrow(), dtype.pyarrow_dtype)])
            return pandas.Series(pandas.arrays.ArrowExtensionArray(array), index=converted.index)
        if column.dtype == pl.Date and "object" in (str(dtype), str(getattr(dtype, "categories", converted).dtype)):
            # pandas has no dtype for dates: Polars would convert them to timestamps.
            converted = pandas.Series(column.to_list(), index=converted.index, dtype=object)
        if hasattr(dtype, "categories") and hasattr(converted.dtype, "categories"):
            return converted.cat.set_categories(dtype.categories, ordered=dtype.ordered)
        return converted.astype(dtype)
    except (TypeError, ValueError, pa.ArrowException):
        return converted  # for example, missing values in a NumPy integer column
