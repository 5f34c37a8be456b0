"""Entities among the variables: the columns of a bundle that name its combinations, such as the number of a product."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from arf_dask.data.key_learning import has_key_name
from arf_dask.data.keys import is_text
from arf_dask.schema.columns import Column, Schema, Variable

FEW = 30  # maximum number of combinations of a bundle that are kinds of things rather than entities
OWN_VALUE = 0.8  # minimum number of values per combination of a column that names entities
HAVE_DIGITS = 0.5  # minimum share of the values of a text that contain a digit, if they are numbers
_PERSON = re.compile(
    r"(?i)customer|client|patient|person|employee|guest|member|user|student|pupil|passenger|driver|owner|e-?mail|phone"
    r"|(?:first|last|full|sur|family).?name"
)


def entity_names(schema: Schema) -> list[str]:
    """Return the numbers of entities (integers called so, or texts with digits), and texts that go with them."""
    found: list[str] = []
    for variable in schema.variables:
        naming = _naming_columns(schema, variable)
        numbers = {c.name for c in naming if _is_number(c)}
        if numbers:
            found += [c.name for c in naming if is_text(c.dtype) or c.name in numbers]
    return found


def people_names(schema: Schema) -> list[str]:
    """Return the columns that seem to name people who occur in several rows, by their own names."""
    found: list[str] = []
    for variable in schema.variables:
        naming = _naming_columns(schema, variable)
        is_label = {c.name: is_text(c.dtype) or (c.dtype.is_integer() and has_key_name(c.name)) for c in naming}
        found += [name for name, label in is_label.items() if label and _PERSON.search(name)]
    return found


def _is_number(column: Column) -> bool:
    if not is_text(column.dtype):
        return column.dtype.is_integer() and has_key_name(column.name)
    return bool(column.levels.cast(pl.String).str.contains("[0-9]").mean() >= HAVE_DIGITS)  # type: ignore[operator]


def _naming_columns(schema: Schema, variable: Variable) -> list[Column]:
    """Return the columns of a bundle with nearly one value per combination."""
    if variable.is_line or len(variable.columns) == 1 or variable.n_states <= FEW:
        return []
    return [
        column
        for member, column in enumerate(schema.member_columns(variable))
        if len(np.unique(variable.tokens[:, member])) >= OWN_VALUE * variable.n_states
    ]
