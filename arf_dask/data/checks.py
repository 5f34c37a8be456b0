"""Checks of a table before learning: its shape, its types and the declared kinds."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from arf_dask.data.axes import FLOATS, is_numeric, nameless
from arf_dask.data.keys import can_be_key
from arf_dask.errors import DataError, OptionError, UnsupportedColumnError


def check_frame(frame: pl.DataFrame) -> None:
    """Check that a frame can be modelled.

    Raises:
        DataError: The frame has no columns or no rows, or some columns hold infinite values.
        UnsupportedColumnError: Some columns have types that cannot be modelled; the message lists all of them.
    """
    check_shape(frame.schema, frame.height)
    floats = [name for name, dtype in frame.schema.items() if dtype in FLOATS]
    check_infinite({name: int(nameless(frame[name]).is_infinite().sum()) for name in floats})


def check_shape(dtypes: Mapping[str, pl.DataType], n_rows: int) -> None:
    """Raise if a table has no columns or no rows, or columns of types that cannot be modelled."""
    if not dtypes:
        raise DataError("the frame has no columns. Give a frame with at least one column.")
    if n_rows == 0:
        raise DataError("the frame has no rows. Give at least one row to learn from.")
    if invalid := [name for name in dtypes if "\0" in name]:
        raise DataError(
            f"the names {', '.join(map(repr, invalid))} hold a NUL character. Rename these columns before fit."
        )
    unsupported = [(name, dtype) for name, dtype in dtypes.items() if not _is_supported(dtype)]
    if unsupported:
        raise UnsupportedColumnError.from_dtypes(unsupported)


def check_same_columns(dtypes: Mapping[str, pl.DataType], expected: Mapping[str, pl.DataType]) -> None:
    """Raise a DataError that lists all columns that are missing or have unexpected types."""
    missing = [name for name in expected if name not in dtypes]
    if missing:
        raise DataError(
            f"columns missing: {', '.join(map(repr, missing))}. Give a frame with all columns of the model."
        )
    mismatched = [name for name, dtype in expected.items() if dtypes[name] != dtype]
    if mismatched:
        listed = ", ".join(f"{name!r} is {dtypes[name]}, not {expected[name]}" for name in mismatched)
        raise DataError(f"other types than the model's: {listed}. Cast them first.")


def check_infinite(counts: Mapping[str, int]) -> None:
    """Raise if any column has infinite values; `counts` holds their number per column."""
    infinite = {name: count for name, count in counts.items() if count}
    if infinite:
        listed = ", ".join(f"{name!r}: {count}" for name, count in infinite.items())
        raise DataError(f"infinite values ({listed}). Replace or drop them before fit.")


def check_kinds(dtypes: Mapping[str, pl.DataType], declared: Mapping[str, str]) -> None:
    """Raise an OptionError if the type of a column does not allow its declared kind."""
    for name, dtype in dtypes.items():
        kind = declared.get(name)
        if kind == "numeric" and not is_numeric(dtype):
            raise OptionError(f"columns: {name!r} is {dtype} and has no numbers. Cast it to a number before fit.")
        if kind == "key" and not can_be_key(dtype):
            raise OptionError(
                f"keys: fresh values of {name!r} ({dtype}) cannot be made. Cast it to a string or an integer "
                "before fit, or do not declare it a key."
            )


def _is_supported(dtype: pl.DataType) -> bool:
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        return False
    # Compare classes: a Categorical with named categories does not equal plain Categorical.
    return isinstance(dtype, pl.Boolean | pl.String | pl.Categorical | pl.Enum | pl.Null) or is_numeric(dtype)
