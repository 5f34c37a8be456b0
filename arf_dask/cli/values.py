"""Parse option values: row counts, storage options, and CSV format options."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from arf_dask.errors import OptionError
from arf_dask.runtime.urls import is_url

FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}
MOST_ROWS = 10**18
STDIN = "-"


class RowCount(click.ParamType):  # type: ignore[type-arg] # older versions of click have no generic types
    """A number of rows: 1000000, 1_000_000, 1e6, 1.5M, 10k."""

    name = "rows"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parse a number of rows."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9][0-9_]*(?:\.[0-9]+)?(?:e\+?[0-9]{1,3})?)([kmgbt]?)", str(value).strip().lower())
        if found is None:
            self.fail(f"{value!r} is no number of rows. Write 1000000, 1_000_000, 1e6 or 1M.", param, ctx)
        whole = _exact(found[1].replace("_", ""), FACTORS[found[2]])
        if whole is None or whole > MOST_ROWS:
            self.fail(f"{value!r} is no whole number of rows, or too many.", param, ctx)
        return whole


def _exact(number: str, factor: int) -> int | None:
    """Return the product of a decimal number and a factor if it is an integer, otherwise None."""
    product = Fraction(number) * factor
    return int(product) if product.denominator == 1 else None


def read_options(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return the options for reading CSV from the options of a command."""
    separator = options["separator"]
    found = {
        "separator": {"\\t": "\t", "tab": "\t"}.get(separator, separator),
        "decimal": options["decimal"],
        "encoding": options["encoding"],
        "null_values": list(options["null_values"]) or None,
    }
    return {name: value for name, value in found.items() if value is not None} or None


def storage_options(options: dict[str, Any]) -> dict[str, str] | None:
    """Return the storage options for URLs from the options of a command."""
    found = {}
    for text in options["storage_options"]:
        name, sign, value = text.partition("=")
        if not sign:
            raise OptionError("--storage-option: write NAME=VALUE, such as endpoint_url=https://...")
        found[name] = value
    return found or None


def storage_options_of(path: str, options: dict[str, Any]) -> dict[str, str] | None:
    """Return what a path needs, from the options of a command: nothing if it is local."""
    return storage_options(options) if is_url(path) else None


def check_any_url(options: dict[str, Any], *paths: str) -> None:
    """Raise an OptionError if storage options were given, and none of the paths of a command is a URL."""
    if storage_options(options) and not any(map(is_url, paths)):
        raise OptionError("--storage-option: all paths are local and have none. Give a URL such as s3://..., or none.")


@contextmanager
def readable_sources(sources: Sequence[str]) -> Iterator[list[str]]:
    """Yield the sources of a command; CSV or Parquet on standard input ("-") is copied to a temporary file."""
    if STDIN not in sources:
        yield list(sources)
        return
    with tempfile.TemporaryDirectory(prefix="arf_dask-") as directory:
        path = Path(directory) / "stdin.csv"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with path.open("rb") as file:
            is_parquet = file.read(4) == b"PAR1"
        path = path.rename(path.with_suffix(".parquet")) if is_parquet else path
        yield [str(path) if source == STDIN else source for source in sources]
