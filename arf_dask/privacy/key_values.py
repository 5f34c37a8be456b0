"""Fresh values of identifier columns, from a declared pattern or the type alone."""

from __future__ import annotations

import numpy as np
import polars as pl

from arf_dask.errors import PrivacyError

PATTERN = "##########"


def fresh_key_values(name: str, dtype: pl.DataType, rows: int, pattern: str | None) -> pl.Series:
    """Return distinct values of a key column: 1, 2, 3, .. for numbers, digits in a pattern for texts.

    >>> fresh_key_values("id", pl.String(), 3, "A-##").to_list()
    ['A-01', 'A-02', 'A-03']

    Raises:
        PrivacyError: The pattern has too few digits, or the column is not one of texts.
    """
    numbers = np.arange(1, rows + 1)
    if dtype.is_integer() or isinstance(dtype, pl.Decimal):
        if pattern is not None:
            raise PrivacyError(f"column {name!r} ({dtype}): key patterns are for texts. Take it out of key_patterns=.")
        return pl.Series(name, numbers).cast(dtype, wrap_numerical=True)
    pattern = PATTERN if pattern is None else pattern
    n_digits = pattern.count("#")
    if 10**n_digits <= rows:
        raise PrivacyError(
            f"column {name!r}: key pattern {pattern!r} has too few digits for {rows:,} rows. Add some #."
        )
    digits = pl.Series(numbers).cast(pl.String).str.zfill(n_digits)
    texts = pattern.split("#")
    values = pl.Series([texts[0]] * rows)
    for position, text in enumerate(texts[1:]):
        values = values + digits.str.slice(position, 1) + text
    return values.cast(dtype).alias(name)
