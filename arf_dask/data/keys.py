"""Identifier columns (order numbers, UUIDs, e-mail addresses): generated anew, neither modelled nor copied.

Only the shape of such a column is learned: for integers, where a sequence continues and in which steps; for strings,
the templates of `arf_dask.data.templates`. A fresh key depends only on the shape, the index of its row in the whole
result and the seed of the run. Blocks of rows can therefore be generated anywhere and in any order without duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from arf_dask.data.stored_fields import parse_fields, require
from arf_dask.data.templates import KEY_SHAPE, StringShape, fresh_strings
from arf_dask.errors import DataError

_LIMIT_128 = 2**128  # upper bound of all Polars integers and decimals


@dataclass(frozen=True)
class IntegerSequence:
    """Integers that continue above the highest training value and, at the limit of the type, below the lowest."""

    lowest: int  # decimals are stored as unscaled integers
    highest: int
    step: int
    low_limit: int  # of the column's type
    high_limit: int
    scale: int  # number of decimals

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, data: Any) -> IntegerSequence:
        names = ("lowest", "highest", "step", "low_limit", "high_limit", "scale")
        parse_fields(data, dict.fromkeys(names, int), KEY_SHAPE, "integer keys")
        in_order = data["low_limit"] <= data["lowest"] <= data["highest"] <= data["high_limit"]
        require(in_order, KEY_SHAPE, "integer keys: bounds out of order")
        within = data["low_limit"] > -_LIMIT_128 and data["high_limit"] < _LIMIT_128
        require(within, KEY_SHAPE, "integer keys: limits beyond 128 bits")
        require(1 <= data["step"] < 2**63, KEY_SHAPE, "integer keys: the step must be positive and fit 64 bits")
        require(0 <= data["scale"] <= 38, KEY_SHAPE, "integer keys: the scale must be 0 to 38")
        return cls(**data)


Values: TypeAlias = IntegerSequence | StringShape
_KINDS: dict[str, type[IntegerSequence] | type[StringShape]] = {
    "sequence": IntegerSequence,
    "template": StringShape,
}


@dataclass(frozen=True)
class KeyShape:
    """Everything the model stores about a key column."""

    kind: str  # "sequence" or "template"
    n_rows: int
    null_share: float
    values: Values | None  # None if all rows are null
    first: int | None = None  # index of the first row's key if set for a run; not stored with the model

    def to_dict(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name != "first"}
        return {**kept, "values": None if self.values is None else self.values.to_dict()}

    @classmethod
    def from_dict(cls, data: Any) -> KeyShape:
        """Parse the output of `to_dict`; raise a ModelFormatError if it is invalid."""
        require(isinstance(data, dict), KEY_SHAPE, f"a mapping is needed, not {type(data).__name__}")
        has_values = data.get("values") is not None
        type_of_values = dict if has_values else type(None)
        types = {"kind": str, "n_rows": int, "null_share": float, "values": type_of_values}
        parse_fields(data, types, KEY_SHAPE, "key")
        require(data["kind"] in _KINDS, KEY_SHAPE, f"unknown kind {data['kind'][:20]!r}")
        require(data["n_rows"] >= 0, KEY_SHAPE, "a negative number of rows")
        require(0.0 <= data["null_share"] <= 1.0, KEY_SHAPE, f"a null share of {data['null_share']}, outside 0 to 1")
        require(has_values or data["null_share"] == 1.0, KEY_SHAPE, "values are missing")
        values = _KINDS[data["kind"]].from_dict(data["values"]) if has_values else None
        return cls(data["kind"], data["n_rows"], data["null_share"], values)


def is_text(dtype: pl.DataType) -> bool:
    """Whether keys of this type are strings rather than integers."""
    return isinstance(dtype, pl.String | pl.Categorical)


def can_be_key(dtype: pl.DataType) -> bool:
    """Whether fresh values of this type can be generated."""
    return isinstance(dtype, pl.String | pl.Categorical | pl.Decimal) or dtype.is_integer()


def key_shape(dtype: pl.DataType, n_rows: int, nulls: int, values: Values | None) -> KeyShape:
    """Build the shape of a key column from the shape of its values; `values` is None if all rows are null."""
    null_share = 1.0 if values is None else nulls / n_rows
    return KeyShape("template" if is_text(dtype) else "sequence", n_rows, null_share, values)


def fresh_keys(
    shape: KeyShape,
    first_row: int,
    n: int,
    rng: np.random.Generator,
    name: str,
    dtype: pl.DataType | type[pl.DataType],
    seed: int,
) -> pl.Series:
    """Generate the keys of rows `first_row` to `first_row + n - 1` of the whole result.

    The seed must be the same for all blocks of a result. `rng` determines only which keys are null.
    """
    first_row += shape.first or 0
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


def _fresh_integers(sequence: IntegerSequence, first_row: int, n: int, name: str) -> pl.Series:
    """Continue above the highest value up to the limit of the type, then below the lowest."""
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
    keys_above = _count_from(first_up, sequence.step, n_up, sequence)
    keys_below = _count_from(first_down, -sequence.step, n - n_up, sequence)
    return _with_decimal_point(pl.concat([keys_above, keys_below]), sequence.scale)


def _count_from(first: int, step: int, n: int, sequence: IntegerSequence) -> pl.Series:
    dtype = pl.UInt128 if sequence.high_limit >= 2**127 else pl.Int128
    if n == 0:
        return pl.Series(dtype=dtype)
    start = pl.Series([first], dtype=dtype)
    offsets = pl.Series(np.arange(n)).cast(dtype) * pl.Series([abs(step)], dtype=dtype)
    return start + offsets if step > 0 else start - offsets


def _with_decimal_point(integers: pl.Series, scale: int) -> pl.Series:
    """Convert unscaled integers to decimal text with `scale` decimals; return them unchanged if `scale` is 0."""
    if scale == 0:
        return integers
    digits = integers.abs().cast(pl.String).str.zfill(scale + 1)
    sign = pl.when(integers < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    decimal_text = pl.concat_str(sign, digits.str.head(-scale), pl.lit("."), digits.str.tail(scale))
    return pl.select(decimal_text).to_series()
