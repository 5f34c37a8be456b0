"""Replace identifiers by values of the same shape, so that no real identifier is learned."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.fingerprints import Key, Words, siphash
from arf_dask.data.keys import is_text
from arf_dask.typing import Counts

Signs = NDArray[np.uint32]

FIXED = 0.99  # share of values with the same character at a position from which on that character is kept


def stand_ins(column: pl.Series, key: Key, min_level: int = 1) -> pl.Series:
    """Return replacement values of the same shape: text with other letters and digits, integers below a round bound.

    Texts whose shape fewer than `min_level` values have get a common shape: a length or punctuation that nobody else
    has would identify a person.
    """
    return _text_stand_ins(column, key, min_level) if is_text(column.dtype) else _number_stand_ins(column)


def _text_stand_ins(column: pl.Series, key: Key, min_level: int) -> pl.Series:
    """Redraw letters and digits, except at positions where nearly all values agree; common formats stay."""
    text = column.cast(pl.String)
    known = text.drop_nulls()
    if not len(known):
        return column
    signs = known.to_numpy().astype(np.str_)
    letters = signs.view(np.uint32).reshape(len(signs), -1)
    fixed = np.array([_shared_sign(letters[:, place]) for place in range(letters.shape[1])], dtype=np.uint32)
    words = siphash(known.hash(seed=0).to_numpy(), key)
    letters = letters[_shape_donors(known, min_level)]
    fresh = np.stack([_replaced(letters[:, place], words, place, key) for place in range(letters.shape[1])], axis=1)
    # Shorter values are padded with zeros. A value that differs at a fixed position gets the common character.
    mixed = np.ascontiguousarray(np.where((fixed > 0) & (letters > 0), fixed, fresh).astype(np.uint32))
    values = pl.Series(mixed.view(signs.dtype).ravel().astype(object), dtype=pl.String)
    places = text.is_not_null().cum_sum().cast(pl.Int64) - 1
    chosen = pl.select(pl.when(text.is_not_null()).then(places)).to_series()
    return values.gather(chosen).cast(column.dtype).alias(column.name)


def _shape_donors(known: pl.Series, min_level: int) -> Counts:
    """Return, per value, the index of the value whose shape it gets: itself, or a common one if its own shape is rare.

    If no shape is common, all values get the most frequent one.
    """
    text = pl.DataFrame({"value": known.rechunk()}).with_row_index("row")
    shape = (
        pl.col("value")
        .str.replace_all("[0-9]", "0")
        .str.replace_all("[A-Z]", "A")
        .str.replace_all("[^ -@A-Z\\[-`{-~]", "a")
    )
    shaped = text.with_columns(shape=shape).with_columns(values=pl.col("value").n_unique().over("shape"))
    least = min(min_level, int(shaped["values"].max()))  # type: ignore[arg-type]
    common = shaped.filter(pl.col("values") >= least)
    if min_level > least:
        common = common.filter(pl.col("shape") == common["shape"].min())
    donors = np.arange(len(known))
    is_rare = ~np.isin(donors, common["row"].to_numpy())
    donors[is_rare] = np.resize(common["row"].to_numpy(), int(is_rare.sum()))
    return donors


def _shared_sign(signs: Signs) -> int:
    """Return the character that nearly all values share at a position; 0 if there is none."""
    found, counts = np.unique(signs, return_counts=True)
    most = int(counts.argmax())
    return int(found[most]) if counts[most] >= FIXED * len(signs) else 0


def _replaced(signs: Signs, words: Words, place: int, key: Key) -> Signs:
    """Replace letters and digits by others of their class; other characters stay, non-ASCII letters become ASCII."""
    random_words = siphash(words, Key(key.first ^ (place + 1), key.second))
    is_digit = (signs >= 48) & (signs <= 57)
    is_upper = (signs >= 65) & (signs <= 90)
    is_letter = ((signs >= 97) & (signs <= 122)) | (signs > 127)
    new_signs = np.where(is_digit, 48 + random_words % np.uint64(10), signs)
    new_signs = np.where(is_upper, 65 + random_words % np.uint64(26), new_signs)
    return np.where(is_letter, 97 + random_words % np.uint64(26), new_signs).astype(np.uint32)


def _number_stand_ins(column: pl.Series) -> pl.Series:
    """Return consecutive numbers that end at the maximum rounded up to two significant digits."""
    known = column.drop_nulls()
    if not len(known):
        return column
    highest = int(known.max())  # type: ignore[arg-type]
    unit = 10 ** max(0, len(str(abs(highest))) - 2)
    top = -(-highest // unit) * unit
    fitted = _count_up(column, top - len(known) + 1).cast(column.dtype, strict=False)
    if fitted.null_count() > column.null_count():  # the dtype overflows: start at zero
        fitted = _count_up(column, 0).cast(column.dtype)
    return fitted.alias(column.name)


def _count_up(column: pl.Series, first: int) -> pl.Series:
    """Return consecutive numbers starting at `first` for non-null cells; nulls stay null."""
    places = (column.is_not_null().cum_sum().cast(pl.Int64) - 1).cast(pl.Int128)
    numbers = pl.Series([first], dtype=pl.Int128).new_from_index(0, len(column)) + places
    return pl.select(pl.when(column.is_not_null()).then(numbers)).to_series()
