"""Detect identifier columns, and learn the shape of integer identifiers."""

from __future__ import annotations

import re

import polars as pl

from arf_dask.data.axes import AxisSummary
from arf_dask.data.keys import IntegerSequence, is_text

_MIN_ROWS = 30
_MIN_DISTINCT_STRINGS = 0.85
_MAX_SPREAD = 2  # integers look like a sequence if their range is at most this many times their number
_YEARS = (1500, 2200)  # integers in this range are more likely years than a sequence
_WORDS = "id|key|uuid|guid|no|nr|number|code"
# A separate final word (order_id, Order-No), camel case (orderNo), or a suffix that few other words have (userid).
_KEY_NAME = re.compile(rf"(?i:(?:^|[\W_\d])(?:{_WORDS})$)|[a-z](?:{_WORDS.title()}|ID)$|(?i:id|number|code)$")


def names_rows(name: str, dtype: pl.DataType, n_values: int, n_distinct: int, bounds: tuple[int, int]) -> bool:
    """Whether the values of a column look like identifiers of rows rather than measurements.

    Unique integers are identifiers only if they are dense, like a sequence, or if the column name says so: amounts,
    populations and timestamps are often unique, too.

    Args:
        name: Name of the column.
        dtype: Type of the column.
        n_values: Number of non-null rows.
        n_distinct: Number of distinct values.
        bounds: Lowest and highest integer; not used for strings.
    """
    if n_values < _MIN_ROWS or not (is_text(dtype) or dtype.is_integer()):
        return False
    if is_text(dtype):
        return n_distinct >= _MIN_DISTINCT_STRINGS * n_values
    if n_distinct < n_values:
        return False
    are_years = bounds[0] >= _YEARS[0] and bounds[1] <= _YEARS[1]
    is_dense = bounds[1] - bounds[0] + 1 <= _MAX_SPREAD * n_values and not are_years
    return has_key_name(name) or is_dense


def looks_like_key(column: pl.Series) -> bool:
    """Whether the values of an in-memory column look like identifiers."""
    non_null = column.drop_nulls()
    bounds = (0, 0)
    if len(non_null) and column.dtype.is_integer():
        bounds = int(non_null.min()), int(non_null.max())  # type: ignore[arg-type]
    return names_rows(column.name, column.dtype, len(non_null), non_null.n_unique(), bounds)


def has_key_name(name: str) -> bool:
    """Whether a column name ends like that of an identifier.

    >>> [has_key_name(name) for name in ("Order-ID", "orderId", "userid", "Account No.", "piano", "age")]
    [True, True, True, True, False, False]
    """
    return _KEY_NAME.search(re.sub(r"[\W_]+$", "", name)) is not None


def learn_sequence(summary: AxisSummary, dtype: pl.DataType, n_values: int) -> IntegerSequence:
    """Learn how integer or decimal keys continue, from their bounds and common step."""
    if isinstance(dtype, pl.Decimal):
        precision = 38 if dtype.precision is None else dtype.precision
        low_limit, high_limit, scale = 1 - 10**precision, 10**precision - 1, dtype.scale
    else:
        low_limit, high_limit = pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]
        scale = 0
    lowest, highest = int(summary.low), int(summary.high)
    step = _find_step(summary.step, highest - lowest, n_values)
    return IntegerSequence(lowest, highest, step, low_limit, high_limit, scale)


def _find_step(common: int, spread: int, n_values: int) -> int:
    """Return the step of an arithmetic sequence with few gaps, or 1 for other values."""
    is_sequence = n_values >= 3 and common > 0 and spread // common + 1 <= _MAX_SPREAD * n_values
    return common if is_sequence else 1
