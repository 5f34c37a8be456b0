"""Checks of values read from a model file: every field must be present and have exactly its type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from arf_dask.errors import ModelFormatError

REMEDY = "The model was damaged or changed: restore it from a copy, or fit and save it again."


def require(holds: object, where: str, problem: str) -> None:
    """Raise a ModelFormatError that names the file or object, unless a condition holds."""
    if not holds:
        raise ModelFormatError(f"{where}: {problem}. {REMEDY}")


def parse_fields(data: Any, types: Mapping[str, Any], where: str, name: str) -> dict[str, Any]:
    """Return `data` as a dictionary if it is a mapping of exactly these fields, each of exactly its type.

    Args:
        data: A value decoded from JSON.
        types: The type of every field, or a union of types.
        where: The file or object that holds the data, for error messages.
        name: What the data describe, for error messages.
    """
    has_exact_fields = isinstance(data, dict) and set(data) == set(types)
    require(has_exact_fields, where, f"{name}: needs exactly the fields {', '.join(types)}")
    for field, kind in types.items():
        allowed_types = get_args(kind) if get_args(kind) else (kind,)
        type_problem = f"{name}: {field!r} is {str(data[field])[:40]!r}, which is not of its type"
        require(type(data[field]) in allowed_types, where, type_problem)
    return dict(data)
