"""Read what commands are given: tables, rows for a model, and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import polars as pl

from arf_dask.api import load
from arf_dask.cli.condition_text import Dtypes, read_conditions, read_given, read_given_json
from arf_dask.cli.values import read_options, readable_sources, storage_options
from arf_dask.data.files import Reading, read
from arf_dask.errors import DataError, OptionError, near_names
from arf_dask.model import Model

CONDITION_FORMS = ("given", "given_json", "given_file")


def reading_of(options: dict[str, Any]) -> Reading:
    """Return how files are read, from the options of a command."""
    return Reading(storage_options(options) if "storage_options" in options else None, read_options(options))


def read_tables(sources: Sequence[str], options: dict[str, Any]) -> pl.DataFrame:
    """Read the files of one or several sources as one table."""
    with readable_sources(sources) as found:
        return pl.concat([read(source, reading_of(options)) for source in found])


def read_rows(model: Model, sources: Sequence[str], options: dict[str, Any]) -> pl.DataFrame:
    """Read rows for a model: its columns get its dtypes, others stay as they are.

    Raises:
        DataError: If the rows have none of the model's columns.
    """
    rows, dtypes = read_tables(sources, options), model.schema.dtypes
    known = [name for name in rows.columns if name in dtypes]
    if not known:
        near = [near for name in rows.columns for near in near_names(name, dtypes)]
        hint = f" Did you mean {near[0]!r}?" if near else " Check --separator, or give the table that it models."
        raise DataError(f"{', '.join(sources)}: no column of the model is in it: {', '.join(rows.columns[:8])}.{hint}")
    typed = read_conditions(pl.DataFrame({name: rows.get_column(name) for name in known}), dtypes, "rows")
    return rows.with_columns(typed.get_columns())


def check_forms(options: dict[str, Any]) -> None:
    """Raise a usage error if a condition is given in several forms."""
    if sum(bool(options[form]) for form in CONDITION_FORMS) > 1:
        raise click.UsageError("--given, --given-json and --given-file: choose one.")


def given_of(options: dict[str, Any], dtypes: Dtypes) -> Any:
    """Return the condition of a command, from its options."""
    if options["given_file"]:
        return read_conditions(read(options["given_file"]), dtypes)
    if options["given_json"]:
        return read_given_json(options["given_json"], dtypes)
    return read_given(options["given"], dtypes) if options["given"] else None


def load_model(path: str, storage_options: Any = None) -> Model:
    """Load the model of one table.

    Raises:
        OptionError: If the directory holds a model of several tables.
    """
    model = load(path, storage_options=storage_options)
    if not isinstance(model, Model):
        raise OptionError(f"{path} holds a model of several tables. Draw from it with arf-dask sample-tables.")
    return model
