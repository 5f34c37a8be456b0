"""Find Parquet and CSV files by path, list, glob or URL, and scan them lazily."""

from __future__ import annotations

import glob
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from arf_dask.errors import DataError, OptionError, missing_extra, unknown_option
from arf_dask.runtime.cloud_options import polars_options
from arf_dask.runtime.urls import is_url, local_path, public_url, without_secrets

logger = logging.getLogger(__name__)

CSV_ENDINGS = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst")
POLARS_SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https", "hf")
UTF8 = ("utf8", "utf-8", "utf-8-sig", "utf8-lossy")
MISSING_WORDS = ("NA", "N/A", "NULL", "-")  # read as missing if this makes a column numeric
OTHER_SEPARATORS = {";": ";", "\t": "\\t", "|": "|"}
# Files of other formats, and the function of Polars that reads them.
OTHER_FORMATS = {
    (".arrow", ".feather", ".ipc"): "polars.scan_ipc",
    (".ndjson", ".jsonl"): "polars.scan_ndjson",
    (".json",): "polars.read_json",
    (".avro",): "polars.read_avro",
    (".xlsx", ".xls", ".xlsb", ".ods"): "polars.read_excel",
}
NOT_UTF8 = re.compile(r"(invalid|not valid|decode)[^<]*utf-?8|utf-?8[^<]*(invalid|not valid|decode)", re.IGNORECASE)
INFERENCE_ROWS = 10_000
ALL_TEXT = {"infer_schema": False, "try_parse_dates": False}
LEADING_ZERO = r"^\s*0[0-9]"
ERRORS = (OSError, pl.exceptions.PolarsError)


class Reading(NamedTuple):
    """Options for reading files."""

    storage: Mapping[str, Any] | None = None  # storage options, for URLs
    csv: Mapping[str, Any] | None = None  # decimal, encoding and other arguments of `polars.scan_csv`
    tell: bool = True  # whether to log words that were read as missing


PLAIN = Reading()


def is_path_list(data: Any) -> bool:
    """Return whether the data are a list or tuple of paths."""
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(path, str | PathLike) for path in data)


def path_list(data: Any) -> list[str]:
    """Return a path or a list of paths as a list of strings.

    Raises:
        DataError: A path is empty, which would mean the working directory.
    """
    paths = [local_path(path) for path in (data if is_path_list(data) else [data])]
    if not all(map(str.strip, paths)):
        raise DataError("the path of the data is empty. Give a file, a directory or a glob; '.' is this directory.")
    return paths


def is_csv(path: str) -> bool:
    """Return whether a path has the extension of a CSV file."""
    return path.lower().endswith(CSV_ENDINGS)


def is_read_by_polars(path: str) -> bool:
    """Return whether Polars itself can open a path or URL; others are copied by fsspec first."""
    return not is_url(path) or path.partition("://")[0] in POLARS_SCHEMES


def read(path: str, reading: Reading = PLAIN) -> pl.DataFrame:
    """Read the Parquet or CSV files of a path: one file, a directory, or a glob."""
    try:
        return scan([path], reading).collect(engine="in-memory")
    except ERRORS as error:
        raise unreadable(path, error, reading) from public_cause(path, error)


def read_dtypes(path: str, reading: Reading = PLAIN) -> dict[str, pl.DataType]:
    """Return the schema of the frame that `read` would return, from the beginning of the files."""
    try:
        return dict(scan([path], reading._replace(tell=False)).collect_schema())
    except ERRORS as error:
        raise unreadable(path, error, reading) from public_cause(path, error)


def unreadable(path: str, error: BaseException, reading: Reading = PLAIN) -> DataError:
    """Return the error for a path that cannot be read. Raise it from `public_cause`."""
    problem = without_secrets(str(error), path, reading.storage)
    return DataError(f"{public_url(path)}: cannot be read as Parquet or CSV: {problem}{encoding_remedy(error)}")


def public_cause(path: str, error: BaseException) -> BaseException | None:
    """Return the cause to show of an error: none for URLs, as messages of stores hold their passwords."""
    return None if is_url(path) else error


def encoding_remedy(error: BaseException) -> str:
    """Return advice about text that is not UTF-8, or an empty string for other errors."""
    if NOT_UTF8.search(str(error)) is None:
        return ""
    return '. Say its encoding: read_options={"encoding": "cp1252"}, or --encoding cp1252, for example.'


def scan(paths: Sequence[str], reading: Reading = PLAIN) -> pl.LazyFrame:
    """Lazily scan the Parquet or CSV files of paths, globs and URLs."""
    if any(map(is_url, paths)):
        return _scan_urls(paths, reading)
    if any(map(is_delta_directory, paths)):
        return _scan_delta(paths)
    files = find_files(paths)
    if is_csv(files[0]):
        return scan_csv(files, reading)
    return pl.scan_parquet(files, glob=False, hive_partitioning=is_partitioned(paths, files))


def is_delta_directory(path: str) -> bool:
    """Return whether a local path is a Delta table, whose directory also holds files of deleted rows."""
    return Path(path, "_delta_log").is_dir()


def _scan_delta(paths: Sequence[str]) -> pl.LazyFrame:
    if len(paths) > 1:
        raise DataError(f"{', '.join(paths)}: several paths, one of them a Delta table. Give the table alone.")
    if find_spec("deltalake") is None:
        raise missing_extra(f"{paths[0]}: Delta tables", "delta")
    return pl.scan_delta(paths[0])


def _scan_urls(paths: Sequence[str], reading: Reading) -> pl.LazyFrame:
    check_format(paths)
    kinds = {is_csv(path) for path in paths}
    if len(kinds) > 1 or not all(map(is_url, paths)):
        raise DataError("a list of URLs holds paths too, or files of several kinds. Give URLs of one kind.")
    if kinds == {True}:
        return scan_csv(list(paths), reading)
    options = polars_options(paths[0], reading.storage)
    return pl.scan_parquet(list(paths), storage_options=options)


def scan_csv(files: Sequence[str], reading: Reading = PLAIN) -> pl.LazyFrame:
    """Lazily scan CSV files; columns that hold dates become dates, and words such as "NA" in numbers become null."""
    options = csv_options(files[0], reading.csv)
    files = _with_rows(files, options)
    encoding = str(options.pop("encoding", "utf8"))
    if encoding.lower() not in UTF8:
        # Polars supports other encodings only in `read_csv`.
        texts = pl.concat([_read_encoded(file, encoding, {**options, **ALL_TEXT}) for file in files]).lazy()
        options = _with_codes(texts, options, lambda: _read_encoded(files[0], encoding, options).schema)
        frames = [_read_encoded(file, encoding, options) for file in files]
        return _with_missing_words(pl.concat(frames).lazy(), files[0], options, reading.tell)
    if is_url(files[0]):
        options["storage_options"] = polars_options(files[0], reading.storage)
    if encoding.lower() == "utf8-lossy":
        options["encoding"] = "utf8-lossy"
    plan = pl.scan_csv(list(files), **options)
    check_header(files[0], list(plan.collect_schema()), str(options["separator"]))
    with_codes = _with_codes(pl.scan_csv(list(files), **{**options, **ALL_TEXT}), options, plan.collect_schema)
    plan = plan if with_codes == options else pl.scan_csv(list(files), **with_codes)
    return _with_missing_words(plan, files[0], options, reading.tell)


def _with_codes(
    texts: pl.LazyFrame, options: Mapping[str, Any], infer: Callable[[], Mapping[str, pl.DataType]]
) -> dict[str, Any]:
    """Return options that read numbers with a leading zero in any row as text: codes such as 02139.

    Args:
        texts: all rows of the files, as text.
        options: the arguments of `polars.scan_csv`.
        infer: returns the types of the columns as Polars infers them.
    """
    declared = [*(options.get("schema") or {}), *(options.get("schema_overrides") or {})]
    if declared and not isinstance(options.get("schema_overrides") or {}, Mapping):
        return dict(options)
    numbers = [name for name, dtype in infer().items() if dtype.is_integer() and name not in declared]
    if not numbers:
        return dict(options)
    by_name = pl.selectors.by_name(*numbers)
    has_zero = texts.select(by_name.str.contains(LEADING_ZERO).any()).collect().row(0, named=True)
    codes = {name: pl.String() for name in numbers if has_zero[name]}
    return (
        {**options, "schema_overrides": {**(options.get("schema_overrides") or {}), **codes}}
        if codes
        else dict(options)
    )


def _with_rows(files: Sequence[str], options: Mapping[str, Any]) -> Sequence[str]:
    """Drop local files that contain only a header: Polars would infer strings for all their columns."""
    if len(files) == 1 or is_url(files[0]) or str(options.get("encoding", "utf8")).lower() not in UTF8:
        return files
    first_row = {name: value for name, value in options.items() if name != "encoding"}
    first_row.update(infer_schema_length=0, n_rows=1)
    return [file for file in files if pl.scan_csv(file, **first_row).collect().height] or files


def _read_encoded(file: str, encoding: str, options: Mapping[str, Any]) -> pl.DataFrame:
    try:
        frame = pl.read_csv(file, encoding=encoding, **options)
    except (LookupError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be decoded as {encoding!r} ({error}). Give its encoding.") from error
    check_header(file, frame.columns, str(options["separator"]))
    return frame


def csv_options(file: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the arguments of `polars.scan_csv`: those of the caller, and defaults by file extension."""
    option_names = [*signature(pl.scan_csv).parameters, "decimal"]
    for name in given or {}:
        if name not in option_names[1:]:
            raise unknown_option(f"read_options: {name}", option_names[1:])
    separator = "\t" if ".tsv" in file.lower() else ","
    options = {
        "separator": separator,
        "try_parse_dates": True,
        "infer_schema_length": INFERENCE_ROWS,
        **(given or {}),
    }
    decimal = options.pop("decimal", ".")
    if decimal not in (",", "."):
        raise OptionError(f'decimal={decimal!r}: say "." or ",".')
    if len(str(options["separator"])) != 1:
        raise OptionError(f"separator={options['separator']!r}: give one character, such as ';' or a tab.")
    return {**options, "decimal_comma": True} if decimal == "," else options


def check_header(file: str, names: Sequence[str], separator: str) -> None:
    """Raise a DataError if the header was read as a single name that contains another separator."""
    if len(names) != 1:
        return
    other_separators = [mark for mark in OTHER_SEPARATORS if mark in names[0] and mark != separator]
    if other_separators:
        shown_mark = OTHER_SEPARATORS[other_separators[0]]
        raise DataError(
            f'{public_url(file)}: the header is one column, {names[0][:60]!r}. Its separator is "{shown_mark}", not '
            f'"{separator}": say read_options={{"separator": "{shown_mark}"}}, or --separator "{shown_mark}".'
        )


def _with_missing_words(plan: pl.LazyFrame, file: str, options: Mapping[str, Any], tell: bool) -> pl.LazyFrame:
    """Read string columns of numbers and words such as "NA" as numbers; types are inferred from the first rows."""
    string_columns = [name for name, dtype in plan.collect_schema().items() if dtype == pl.String]
    if not string_columns or options.get("null_values") is not None or options.get("infer_schema_length") == 0:
        return plan
    first_rows = plan.select(pl.selectors.by_name(*string_columns)).head(INFERENCE_ROWS).collect()
    number_types = {name: dtype for name in string_columns if (dtype := _number_type(first_rows[name])) is not None}
    if not number_types:
        return plan
    if tell:
        _tell_missing_words(file, first_rows.select(pl.selectors.by_name(*number_types)))
    by_name = pl.selectors.by_name
    stripped_columns = [by_name(name).str.strip_chars() for name in number_types]
    number_columns = [
        pl.when(word.is_in(MISSING_WORDS)).then(None).otherwise(word).cast(dtype)
        for word, dtype in zip(stripped_columns, number_types.values(), strict=True)
    ]
    return plan.with_columns(column.alias(name) for column, name in zip(number_columns, number_types, strict=True))


def _tell_missing_words(file: str, head: pl.DataFrame) -> None:
    words_present = {word for column in head for word in column.str.strip_chars().unique().to_list()}
    words = " and ".join(repr(word) for word in MISSING_WORDS if word in words_present)
    names = ", ".join(map(repr, head.columns))
    logger.warning(
        "%s: %s read as missing in %s, whose other values are numbers. Say null_values to choose yourself.",
        public_url(file),
        words,
        names,
    )


def _number_type(column: pl.Series) -> pl.DataType | None:
    """Return the numeric type of a string column of numbers and words for missing values, or None for other columns."""
    words = column.str.strip_chars().unique().drop_nulls()
    other_words = words.filter(~words.is_in(MISSING_WORDS))
    is_code = (
        bool(other_words.str.contains(LEADING_ZERO).any()) and not other_words.str.contains(".", literal=True).any()
    )
    if not other_words.len() or other_words.len() == words.len() or is_code:
        return None
    for dtype in (pl.Int64(), pl.Float64()):
        if not other_words.cast(dtype, strict=False).has_nulls():
            return dtype
    return None


def find_files(paths: Sequence[str]) -> list[str]:
    """List the files of local paths: files, directories of Parquet or else of CSV files, or globs.

    Raises:
        DataError: No file is found, a file has another format, or CSV files are mixed with others.
    """
    all_files = [file for path in paths for file in _files_of(path)]
    check_format(all_files)
    if len({is_csv(file) for file in all_files}) > 1:
        raise DataError(f"{', '.join(paths)}: CSV and other files. Give a pattern such as '*.parquet'.")
    return all_files


def check_format(files: Sequence[str]) -> None:
    """Raise a DataError for a file with the extension of another format, such as Excel."""
    for file in files:
        function = next((name for ends, name in OTHER_FORMATS.items() if file.lower().endswith(ends)), None)
        if function is not None:
            raise DataError(
                f"{public_url(file)}: files that end in {Path(file).suffix!r} are not read. Give Parquet or CSV "
                f'files; in Python, {function}("{Path(file).name}").'
            )


def _files_of(path: str) -> list[str]:
    target = Path(path)
    if target.is_dir():
        for pattern in ("*.parquet", *(f"*{ending}" for ending in CSV_ENDINGS)):
            visible_files = (file for file in target.rglob(pattern) if not _is_hidden(file.relative_to(target)))
            files = sorted(str(file) for file in visible_files if file.is_file())
            if files:
                return files
        raise DataError(f"{path}: no Parquet or CSV file in this directory. Give the path of the data.")
    if target.exists():
        return [path]
    files = sorted(file for file in glob.glob(path, recursive=True) if Path(file).is_file())  # noqa: PTH207, any root
    if not files:
        raise DataError(f"{path}: no such file, and no file matches it. Check the path.")
    return files


def _is_hidden(path: Path) -> bool:
    """Whether a file or one of its parent directories is hidden or temporary.

    >>> [_is_hidden(Path(path)) for path in ("a.parquet", "_temporary/a.parquet", ".a.parquet", "_day=1/a.parquet")]
    [False, True, True, False]
    """
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in path.parts)


def is_partitioned(paths: Sequence[str], files: Sequence[str]) -> bool:
    """Return whether the files are Hive-partitioned, with directories such as "year=2024"."""
    roots = [Path(path) for path in paths if Path(path).is_dir()]
    relative_paths = (
        Path(file).relative_to(root) for root in roots for file in files if Path(file).is_relative_to(root)
    )
    return any("=" in part for file in relative_paths for part in file.parts[:-1])
