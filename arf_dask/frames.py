"""Any frame in, the same kind of frame out."""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa

from arf_dask.errors import DataError


class Given(NamedTuple):
    """The caller's data as Polars, and the way back to what the caller uses."""

    frame: pl.DataFrame
    back: Callable[[pl.DataFrame], Any]


def take(data: Any) -> Given:
    """Polars frame, lazy frame, pandas, Arrow table, Dask frame, or the path of Parquet or CSV files."""
    if isinstance(data, pl.DataFrame):
        return Given(data, lambda frame: frame)
    if isinstance(data, pl.LazyFrame):
        return Given(data.collect(), lambda frame: frame.lazy())
    if isinstance(data, str | PathLike):
        return Given(read(str(data)), lambda frame: frame)
    if isinstance(data, pa.Table):
        return Given(_from_arrow(data), lambda frame: frame.to_arrow().cast(data.schema))
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return Given(from_pandas(data), lambda frame: _to_pandas(frame, data))
    if is_dask(data):
        return Given(from_pandas(data.compute()), lambda frame: to_dask(frame, data))
    raise DataError(
        f"data is a {type(data).__module__}.{type(data).__qualname__}. Give a Polars DataFrame or LazyFrame, "
        "a pandas DataFrame, a pyarrow Table, a Dask DataFrame, or the path of Parquet or CSV files."
    )


def is_frame(data: Any) -> bool:
    """Whether this is a frame that `take` takes, and no path."""
    if isinstance(data, pl.DataFrame | pl.LazyFrame | pa.Table):
        return True
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return True
    return is_dask(data)


def is_dask(data: Any) -> bool:
    """Whether this is a Dask DataFrame, told without importing Dask's frames."""
    return type(data).__module__.startswith(("dask.dataframe", "dask_expr")) and hasattr(data, "npartitions")


def with_index_of(result: Any, data: Any) -> Any:
    """The rows of `data` again: a pandas frame keeps its index."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(data, pandas.DataFrame):
        return result
    return result.set_axis(data.index, axis=0)


def is_csv(path: str) -> bool:
    """Whether a path names CSV files, by its ending."""
    return path.lower().endswith((".csv", ".csv.gz", ".tsv"))


def scan_csv(files: str | list[str]) -> pl.LazyFrame:
    """CSV files, or tab-separated ones, with their dates."""
    first = files if isinstance(files, str) else files[0]
    separator = "\t" if first.lower().endswith(".tsv") else ","
    return pl.scan_csv(files, separator=separator, try_parse_dates=True, infer_schema_length=10_000)


def read(path: str) -> pl.DataFrame:
    """Parquet or CSV files: one file, a directory, or a glob."""
    try:
        return scan(path).collect(engine="in-memory")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read as Parquet or CSV: {error}") from error


def read_dtypes(path: str) -> dict[str, pl.DataType]:
    """The columns that `read` gives, without reading more than it takes to know them."""
    try:
        return dict(scan(path).collect_schema())
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read as Parquet or CSV: {error}") from error


def scan(path: str) -> pl.LazyFrame:
    """The same, read when it is needed."""
    files = find_files(path)
    return scan_csv(files) if is_csv(files[0]) else pl.scan_parquet(files, glob=False)


def find_files(path: str) -> list[str]:
    """The files of a path: one file, a directory of Parquet or else of CSV files, or a glob. At least one."""
    target = Path(path)
    if target.is_dir():
        for pattern in ("*.parquet", "*.csv", "*.csv.gz", "*.tsv"):
            found = sorted(str(file) for file in target.rglob(pattern) if file.is_file())
            if found:
                return found
        raise DataError(f"{path}: no Parquet or CSV file in this directory. Give the path of the data.")
    if target.exists():
        return [path]
    found = sorted(file for file in glob.glob(path, recursive=True) if Path(file).is_file())  # noqa: PTH207, any root
    if not found:
        raise DataError(f"{path}: no such file, and no file matches it. Check the path.")
    kinds = {is_csv(file) for file in found}
    if len(kinds) > 1:
        raise DataError(f"{path}: matches CSV and other files. Give a pattern such as '*.parquet'.")
    return found


def _from_arrow(table: pa.Table) -> pl.DataFrame:
    try:
        frame = pl.from_arrow(table)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise DataError(f"the Arrow table cannot be read by Polars: {error}") from error
    assert isinstance(frame, pl.DataFrame)
    return frame


def from_pandas(data: Any) -> pl.DataFrame:
    """A pandas frame without its index, NaN as null."""
    names = data.columns.map(str)
    twice = names[names.duplicated()].tolist()
    if twice:
        raise DataError(f"column {twice[0]!r} occurs more than once. Rename the columns first.")
    try:
        frame: pl.DataFrame = pl.from_pandas(data.set_axis(names, axis=1), nan_to_null=True)
    except (pa.ArrowException, pl.exceptions.PolarsError) as error:
        raise DataError(f"the pandas frame cannot be read by Polars: {error}") from error
    return frame


def _to_pandas(frame: pl.DataFrame, like: Any) -> Any:
    """A pandas frame with the dtypes of `like` (of pandas or Dask), where the values allow it."""
    result = frame.to_pandas()
    result.columns = like.columns
    for name, dtype in like.dtypes.items():
        if result[name].dtype != dtype:
            try:
                result[name] = result[name].astype(dtype)
            except (TypeError, ValueError):
                continue  # such as missing values in a plain integer column
    return result


def to_dask(frame: pl.DataFrame, like: Any) -> Any:
    """A Dask frame with the dtypes of `like`, and as many partitions."""
    import dask.dataframe

    return dask.dataframe.from_pandas(_to_pandas(frame, like), npartitions=like.npartitions)  # type: ignore[no-untyped-call]
