"""Identifier columns (order numbers, UUIDs, e-mail addresses): never modelled, never copied, but made afresh.

What is learned of such a column is its shape: for integers where to go on and in which steps, for strings the
templates of `arf_dask.templates`. A fresh key depends only on the shape, its row's number in the whole result
and the seed of the run, so that blocks of rows can be made anywhere, in any order, and never share a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from arf_dask.axis import Measured, measure
from arf_dask.errors import DataError
from arf_dask.template_learning import learn_strings
from arf_dask.templates import StringShape, fresh_strings, require, require_fields

_MIN_ROWS = 30
_MIN_ROWS_PLAIN_INTEGERS = 100  # thirty different integers may be counts or amounts; a hundred hardly
_MIN_DISTINCT_STRINGS = 0.95
_MAX_SPREAD = 2  # range per value up to which integers look like a sequence
_WORDS = "id|key|uuid|guid|no|nr|number|code"
# A word of its own at the end (order_id, Order-No), in camel case (orderNo), or rarely by chance (userid).
_KEY_NAME = re.compile(rf"(?i:(?:^|[\W_\d])(?:{_WORDS})$)|[a-z](?:{_WORDS.title()}|ID)$|(?i:id|number|code)$")
_LIMIT_128 = 2**128  # no integer or decimal of Polars is larger


@dataclass(frozen=True)
class IntegerSequence:
    """Integers that go on above the highest value seen and, where the type ends, below the lowest."""

    lowest: int  # decimals are kept without their point
    highest: int
    step: int
    low_limit: int  # of the column's type
    high_limit: int
    scale: int  # digits after the point

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Any) -> IntegerSequence:
        names = ("lowest", "highest", "step", "low_limit", "high_limit", "scale")
        require_fields(data, dict.fromkeys(names, int), "integer keys")
        in_order = data["low_limit"] <= data["lowest"] <= data["highest"] <= data["high_limit"]
        require(in_order, "integer keys: bounds out of order")
        within = data["low_limit"] > -_LIMIT_128 and data["high_limit"] < _LIMIT_128
        require(within, "integer keys: limits beyond 128 bits")
        require(1 <= data["step"] < 2**63, "integer keys: the step must be positive and fit 64 bits")
        require(0 <= data["scale"] <= 38, "integer keys: the scale must be 0 to 38")
        return cls(**data)


Values: TypeAlias = IntegerSequence | StringShape
_KINDS: dict[str, type[IntegerSequence] | type[StringShape]] = {
    "sequence": IntegerSequence,
    "template": StringShape,
}


@dataclass(frozen=True)
class KeyShape:
    """All that is kept of a key column."""

    kind: str  # "sequence" or "template"
    n_rows: int
    null_share: float
    values: Values | None  # None if all are null

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "values": None if self.values is None else self.values.to_dict()}

    @classmethod
    def from_dict(cls, data: Any) -> KeyShape:
        """The shape that `to_dict` wrote; ValueError for anything it cannot have written."""
        require(isinstance(data, dict), f"a mapping is needed, not {type(data).__name__}")
        has_values = data.get("values") is not None
        type_of_values = dict if has_values else type(None)
        types = {"kind": str, "n_rows": int, "null_share": float, "values": type_of_values}
        require_fields(data, types, "key")
        require(data["kind"] in _KINDS, f"unknown kind {data['kind'][:20]!r}")
        require(data["n_rows"] >= 0, "a negative number of rows")
        require(0.0 <= data["null_share"] <= 1.0, f"a null share of {data['null_share']}, outside 0 to 1")
        require(has_values or data["null_share"] == 1.0, "values are missing")
        values = _KINDS[data["kind"]].from_dict(data["values"]) if has_values else None
        return cls(data["kind"], data["n_rows"], data["null_share"], values)


def looks_like_key(series: pl.Series) -> bool:
    """Whether a column's values seem to name its rows rather than describe them."""
    n_values = series.len() - series.null_count()
    if n_values < _MIN_ROWS or not (is_text(series.dtype) or series.dtype.is_integer()):
        return False
    n_distinct = series.n_unique() - (series.null_count() > 0)
    bounds = (0, 0) if is_text(series.dtype) else _bounds(series)
    return names_rows(series.name, series.dtype, n_values, n_distinct, bounds)


def names_rows(name: str, dtype: pl.DataType, n_values: int, n_distinct: int, bounds: tuple[int, int]) -> bool:
    """The same from the number of values, how many are different, and the lowest and highest integer."""
    if n_values < _MIN_ROWS or not (is_text(dtype) or dtype.is_integer()):
        return False
    if is_text(dtype):
        return n_distinct >= _MIN_DISTINCT_STRINGS * n_values
    if n_distinct < n_values:
        return False
    compact = bounds[1] - bounds[0] + 1 <= _MAX_SPREAD * n_values
    return n_values >= _MIN_ROWS_PLAIN_INTEGERS or _has_key_name(name) or compact


def is_text(dtype: pl.DataType) -> bool:
    """Whether keys of this type are strings (else whole numbers)."""
    return isinstance(dtype, pl.String | pl.Categorical)


def can_be_key(dtype: pl.DataType) -> bool:
    """Whether fresh values of this type can be made."""
    return isinstance(dtype, pl.String | pl.Categorical | pl.Decimal) or dtype.is_integer()


def learn_key(series: pl.Series) -> KeyShape:
    """The shape of a key column of strings, integers or decimals."""
    check_key(series.name, series.dtype)
    values = series.alias("").drop_nulls()  # Polars would take a name such as "^x$" for a pattern
    if values.is_empty():
        learned: Values | None = None
    elif is_text(series.dtype):
        learned = learn_strings(values.cast(pl.String).unique())
    else:
        learned = learn_sequence(measure(values), series.dtype, values.len())
    return key_shape(series.dtype, series.len(), series.null_count(), learned)


def check_key(name: str, dtype: pl.DataType) -> None:
    """Raise where keys of this type cannot be made."""
    if not can_be_key(dtype):
        raise ValueError(
            f"column {name!r}: a key of type {dtype} cannot be made afresh. "
            "Cast it to a string or an integer, or do not declare it a key."
        )


def key_shape(dtype: pl.DataType, n_rows: int, nulls: int, values: Values | None) -> KeyShape:
    """The shape of a column with so many rows and nulls, from that of its values."""
    share = 1.0 if values is None else nulls / n_rows
    return KeyShape("template" if is_text(dtype) else "sequence", n_rows, share, values)


def fresh_keys(
    shape: KeyShape,
    first_row: int,
    n: int,
    rng: np.random.Generator,
    name: str,
    dtype: pl.DataType | type[pl.DataType],
    seed: int,
) -> pl.Series:
    """Keys of the rows `first_row` to `first_row + n - 1` of the whole result.

    The seed must be the same for all blocks of a result. `rng` only places the nulls.
    """
    match shape.values:
        case None:
            return pl.Series(name, [None], dtype=dtype).new_from_index(0, n)
        case IntegerSequence() as sequence:
            keys = _fresh_integers(sequence, first_row, n, name)
        case strings:
            keys = fresh_strings(strings, first_row, n, seed)
    keys = keys.cast(dtype).rename(name)
    if shape.null_share == 0.0:
        return keys
    is_null = pl.Series(rng.random(n) < shape.null_share)
    return pl.select(pl.when(~is_null).then(keys)).to_series().rename(name)


def _has_key_name(name: str) -> bool:
    """Whether the name ends like that of an identifier.

    >>> [_has_key_name(name) for name in ("Order-ID", "orderId", "userid", "Account No.", "piano", "age")]
    [True, True, True, True, False, False]
    """
    return _KEY_NAME.search(re.sub(r"[\W_]+$", "", name)) is not None


def learn_sequence(measured: Measured | None, dtype: pl.DataType, n_values: int) -> IntegerSequence:
    """How integers or decimals go on, from their bounds and the step that all of them share."""
    assert measured is not None
    if isinstance(dtype, pl.Decimal):
        precision = 38 if dtype.precision is None else dtype.precision
        low_limit, high_limit, scale = 1 - 10**precision, 10**precision - 1, dtype.scale
    else:
        low_limit, high_limit = pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]
        scale = 0
    lowest, highest = int(measured.low), int(measured.high)
    step = _find_step(measured.step, highest - lowest, n_values)
    return IntegerSequence(lowest, highest, step, low_limit, high_limit, scale)


def _find_step(common: int, spread: int, n_values: int) -> int:
    """The step of an arithmetic sequence with few holes; 1 for all else."""
    is_sequence = n_values >= 3 and common > 0 and spread // common + 1 <= _MAX_SPREAD * n_values
    return common if is_sequence else 1


def _fresh_integers(sequence: IntegerSequence, first_row: int, n: int, name: str) -> pl.Series:
    """Rows go on above the highest value while the type has room there, then below the lowest."""
    n_above = (sequence.high_limit - sequence.highest) // sequence.step
    n_below = (sequence.lowest - sequence.low_limit) // sequence.step
    if first_row + n > n_above + n_below:
        raise DataError(
            f"column {name!r}: its type has room for {n_above + n_below} fresh keys, but {first_row + n} are "
            "needed. Cast the column to a wider type before fit."
        )
    n_up = min(max(n_above - first_row, 0), n)
    first_up = sequence.highest + sequence.step * (first_row + 1)
    first_down = sequence.lowest - sequence.step * (first_row + n_up - n_above + 1)
    up = _count_from(first_up, sequence.step, n_up, sequence)
    down = _count_from(first_down, -sequence.step, n - n_up, sequence)
    return _place_point(pl.concat([up, down]), sequence.scale)


def _count_from(first: int, step: int, n: int, sequence: IntegerSequence) -> pl.Series:
    dtype = pl.UInt128 if sequence.high_limit >= 2**127 else pl.Int128
    if n == 0:
        return pl.Series(dtype=dtype)
    start = pl.Series([first], dtype=dtype)
    offsets = pl.Series(np.arange(n)).cast(dtype) * pl.Series([abs(step)], dtype=dtype)
    return start + offsets if step > 0 else start - offsets


def _place_point(integers: pl.Series, scale: int) -> pl.Series:
    """Integers, or as text the decimals whose last `scale` digits follow the point."""
    if scale == 0:
        return integers
    digits = integers.abs().cast(pl.String).str.zfill(scale + 1)
    sign = pl.when(integers < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    decimals = pl.concat_str(sign, digits.str.head(-scale), pl.lit("."), digits.str.tail(scale))
    return pl.select(decimals).to_series()


def _bounds(integers: pl.Series) -> tuple[int, int]:
    lowest: Any = integers.min()
    highest: Any = integers.max()
    return int(lowest), int(highest)
