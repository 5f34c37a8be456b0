"""Convert frames of any supported library to Polars, and results back to the caller's kind of frame."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, NamedTuple, get_args

import polars as pl
import pyarrow as pa

from arf_dask.data.arrow_frames import from_arrow, is_iceberg, is_stream, open_stream, to_arrow, without_metadata
from arf_dask.data.files import PLAIN, Reading, is_path_list, path_list, public_cause, scan, unreadable
from arf_dask.data.pandas_frames import from_pandas, is_pandas, to_pandas
from arf_dask.errors import DataError, OptionError, missing_extra
from arf_dask.runtime.forks import check_not_forked
from arf_dask.typing import FrameKind


class PolarsInput(NamedTuple):
    """The caller's data as a Polars frame, and the conversion of results to the caller's kind of frame."""

    frame: pl.DataFrame
    to_original: Callable[[pl.DataFrame], Any]
    # The same for a release: without categories that do not occur, and without metadata, which may tell of real rows.
    to_released: Callable[[pl.DataFrame], Any]


def _unchanged(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def to_polars(data: Any, reading: Reading = PLAIN) -> PolarsInput:
    """Read data of any kind into memory: frames of Polars, pandas, Arrow or Dask, Arrow streams, tables, or files.

    Raises:
        DataError: The data have an unsupported type, or cannot be read.
    """
    check_not_forked()
    if isinstance(data, pl.DataFrame):
        return PolarsInput(data, _unchanged, _unchanged)
    if isinstance(data, pl.LazyFrame):
        return PolarsInput(data.collect(), pl.DataFrame.lazy, pl.DataFrame.lazy)
    if isinstance(data, str | PathLike) or is_path_list(data):
        return PolarsInput(_read_files(path_list(data), reading), _unchanged, _unchanged)
    if isinstance(data, pa.Table):
        released_schema = without_metadata(data.schema)
        return PolarsInput(
            from_arrow(data), lambda frame: to_arrow(frame, data.schema), lambda frame: to_arrow(frame, released_schema)
        )
    if is_pandas(data):
        return PolarsInput(
            from_pandas(data),
            lambda frame: to_pandas(frame, data),
            lambda frame: to_pandas(frame, data, unused_categories=False),
        )
    if is_dask(data):
        return PolarsInput(
            from_pandas(data.compute()),
            lambda frame: to_dask(frame, data),
            lambda frame: to_dask(frame, data, unused_categories=False),
        )
    if is_narwhals(data):
        native = to_polars(data.to_native(), reading)
        return PolarsInput(
            native.frame,
            lambda frame: _to_narwhals(native.to_original(frame)),
            lambda frame: _to_narwhals(native.to_released(frame)),
        )
    if is_delta(data):
        return PolarsInput(pl.scan_delta(data).collect(), _unchanged, _unchanged)
    if is_stream(data):
        frame = from_arrow(open_stream(data).read_all())
        convert = _unchanged if is_iceberg(data) else to_arrow
        return PolarsInput(frame, convert, convert)
    raise refused(data)


def refused(data: Any) -> DataError:
    """Return the error for data of an unsupported type, with a suggestion."""
    kind = f"{type(data).__module__}.{type(data).__qualname__}".removeprefix("builtins.")
    names = getattr(getattr(data, "dtype", None), "names", None)
    if isinstance(data, dict):
        remedy = "Give polars.DataFrame(data)."
    elif names:
        remedy = "Give polars.DataFrame({name: data[name] for name in data.dtype.names})."
    elif type(data).__module__ == "numpy":
        remedy = "Give polars.DataFrame(data, schema=[...]) with names for the columns."
    else:
        remedy = (
            "Give a Polars DataFrame or LazyFrame, a pandas DataFrame, a pyarrow Table, anything with the Arrow stream "
            "interface (DuckDB, Ibis), a Dask DataFrame, a Delta or Iceberg table, or paths of Parquet or CSV files."
        )
    return DataError(f"data is a {kind}. {remedy}")


def is_frame(data: Any) -> bool:
    """Whether the data are a frame that `to_polars` accepts rather than a path."""
    if isinstance(data, pl.DataFrame | pl.LazyFrame | pa.Table) or is_pandas(data) or is_dask(data):
        return True
    return is_narwhals(data) or is_delta(data) or is_stream(data)


def is_dask(data: Any) -> bool:
    """Whether the data are a Dask DataFrame, without importing `dask.dataframe`."""
    return type(data).__module__.startswith(("dask.dataframe", "dask_expr")) and hasattr(data, "npartitions")


def is_narwhals(data: Any) -> bool:
    """Whether the data are a narwhals frame, which wraps a frame of another library."""
    return type(data).__module__.startswith("narwhals") and hasattr(data, "to_native") and hasattr(data, "columns")


def is_delta(data: Any) -> bool:
    """Whether the data are a DeltaTable, without importing deltalake."""
    return type(data).__module__.startswith("deltalake") and type(data).__name__ == "DeltaTable"


def check_kind(kind: object) -> None:
    """Raise an OptionError unless `kind` is a supported kind of frame."""
    if kind not in get_args(FrameKind):
        raise OptionError(f"frame={kind!r}: say {', '.join(map(repr, get_args(FrameKind)))}.")


def to_kind(frame: pl.DataFrame, kind: FrameKind) -> Any:
    """Convert a frame to the requested kind: "polars", "pandas" or "arrow"."""
    if kind == "polars":
        return frame
    if kind == "arrow":
        return to_arrow(frame)
    try:
        return to_pandas(frame)
    except ImportError as error:
        raise missing_extra('frame="pandas"', "pandas") from error


def to_dask(frame: pl.DataFrame, like: Any, *, unused_categories: bool = True) -> Any:
    """Convert to a Dask DataFrame with the dtypes and number of partitions of `like`; see `to_pandas`."""
    import dask.dataframe

    converted = to_pandas(frame, like, unused_categories=unused_categories)
    return dask.dataframe.from_pandas(converted, npartitions=like.npartitions)  # type: ignore[no-untyped-call]


def _read_files(paths: list[str], reading: Reading) -> pl.DataFrame:
    try:
        return scan(paths, reading).collect(engine="in-memory")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(paths[0], error, reading) from public_cause(paths[0], error)


def _to_narwhals(native: Any) -> Any:
    import narwhals

    return narwhals.from_native(native)
