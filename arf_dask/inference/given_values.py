"""Checks that single values of a condition have the type of their column."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from arf_dask.errors import OptionError


def fitting_value(value: Any, dtype: pl.DataType, where: str) -> Any:
    """Return the value if its type fits the dtype; raise an OptionError otherwise."""
    if isinstance(dtype, pl.Categorical | pl.Enum | pl.String):
        type_fits = isinstance(value, str)
    elif dtype.is_temporal():
        try:
            type_fits = pl.Series([value]).dtype.base_type() == dtype.base_type()
        except (TypeError, ValueError):
            type_fits = False
    else:
        type_fits = isinstance(value, int | float | np.number) or type(value).__name__ in (
            "Decimal",
            "Fraction",
            "bool",
        )
    if not type_fits:
        raise OptionError(f"{where} is {dtype}, and {value!r} is a {type(value).__name__}. Give a value of its type.")
    return value
