"""Private fits from the command line: options of the guarantee, and files that declare the domain of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from arf_dask.data.axes import is_numeric
from arf_dask.errors import OptionError, PrivacyError
from arf_dask.privacy.declaration import ROW, DifferentialPrivacy
from arf_dask.privacy.opening import check_refused

DEFAULT_DELTA = 1e-9
NEEDS_EPSILON = ("delta", "unit", "max_rows_per_unit", "domain", "privacy_ledger")
DECLARED = ("bounds", "levels", "spikes")


class PrivateOptions(NamedTuple):
    """The arguments of a private fit."""

    privacy: DifferentialPrivacy
    keys: list[str]  # identifiers that the file of the domain names
    ledger: str | None


def read_private(options: Mapping[str, Any]) -> PrivateOptions | None:
    """Return the arguments of a private fit, or None without --epsilon."""
    if options["epsilon"] is None:
        given = next((name for name in NEEDS_EPSILON if options[name] is not None), None)
        if given is not None:
            raise OptionError(f"--{given.replace('_', '-')} belongs to a private fit: give --epsilon too.")
        return None
    check_refused({"seed": options["seed"], "holdout": options["holdout"]})
    columns = {} if options["domain"] is None else _read_domain(options["domain"])
    declared = {name: {c: fields[name] for c, fields in columns.items() if name in fields} for name in DECLARED}
    keys = {column: fields["key"] for column, fields in columns.items() if fields.get("key", False) is not False}
    privacy = DifferentialPrivacy(
        options["epsilon"],
        DEFAULT_DELTA if options["delta"] is None else options["delta"],
        ROW if options["unit"] is None else options["unit"],
        options["max_rows_per_unit"],
        **declared,
        nullable=[column for column, fields in columns.items() if fields.get("nullable", False)],
        key_patterns={column: pattern for column, pattern in keys.items() if isinstance(pattern, str)},
    )
    return PrivateOptions(privacy, list(keys), options["privacy_ledger"])


def domain_template(dtypes: Mapping[str, pl.DataType]) -> str:
    """Return a file to fill in, from the names and types of columns alone.

    >>> print(domain_template({"age": pl.Int64(), "member": pl.Boolean()}))
    {
     "columns": {
      "age": {
       "type": "Int64",
       "nullable": false,
       "bounds": [
        null,
        null
       ]
      },
      "member": {
       "type": "Boolean",
       "nullable": false
      }
     }
    }
    """
    return json.dumps({"columns": {name: _template(dtype) for name, dtype in dtypes.items()}}, indent=1)


def _template(dtype: pl.DataType) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": str(dtype.base_type()), "nullable": False}
    if isinstance(dtype, pl.Boolean | pl.Enum):
        return fields
    return fields | ({"bounds": [None, None]} if is_numeric(dtype) else {"levels": []})


def _read_domain(path: str) -> dict[str, dict[str, Any]]:
    """Read the declared columns of a file; columns that are not filled in are not declared."""
    try:
        columns = json.loads(Path(path).read_text(encoding="utf-8"))["columns"]
        known = {"type", "nullable", "key", *DECLARED}
        unknown = [f"{name}: {field}" for name, fields in columns.items() for field in fields if field not in known]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrivacyError(
            f"--domain {path}: cannot be read ({error}). `arf-dask domain` writes a template."
        ) from error
    if unknown:
        raise PrivacyError(f"--domain {path}: unknown field {unknown[0]!r}. Known: {', '.join(sorted(known))}.")
    return {name: {f: v for f, v in fields.items() if v not in ([], [None, None])} for name, fields in columns.items()}
