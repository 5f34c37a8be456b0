"""Keyed 64-bit fingerprints of rows, which detect equal rows without storing the rows.

A fingerprint is the sum, modulo 2**64, of one keyed hash per cell, so that the fingerprint of a row without one of its
columns is obtained by subtraction. Cells are hashed with SipHash-2-4 under a secret key: without the key, guesses
cannot be tested against the fingerprints.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class Key(NamedTuple):
    """The secret 128-bit key of one run."""

    first: int
    second: int


def new_key() -> Key:
    """Generate a random key from the operating system's entropy source."""
    return Key(secrets.randbits(64), secrets.randbits(64))


def cell_words(frame: pl.DataFrame, key: Key) -> Words:
    """Return one keyed hash per (row, column). Equal values of a column, including nulls, have equal hashes."""
    words = np.empty((frame.height, frame.width), dtype=np.uint64)
    for column_index, column in enumerate(frame):
        words[:, column_index] = siphash(_plain_words(column), Key(key.first ^ column_index, key.second))
    return words


def row_words(cells: Words) -> Words:
    """Return one fingerprint per row."""
    row_sums: Words = cells.sum(axis=1, dtype=np.uint64)
    return row_sums


def near_words(cells: Words) -> Words:
    """Return, per (row, column), the fingerprint of the row without that column, mixed with the column index."""
    column_hashes = siphash(np.arange(cells.shape[1], dtype=np.uint64), Key(0x5EED, 0xC01))
    return (row_words(cells)[:, None] - cells) ^ column_hashes


def siphash(words: Words, key: Key) -> Words:
    """Hash 8-byte words with SipHash-2-4 (Aumasson and Bernstein, 2012)."""
    k0, k1 = np.uint64(key.first), np.uint64(key.second)
    state = [
        np.full(words.shape, k0 ^ np.uint64(0x736F6D6570736575)),
        np.full(words.shape, k1 ^ np.uint64(0x646F72616E646F6D)),
        np.full(words.shape, k0 ^ np.uint64(0x6C7967656E657261)),
        np.full(words.shape, k1 ^ np.uint64(0x7465646279746573)),
    ]
    for block in (words, np.full(words.shape, np.uint64(8 << 56))):  # the last block holds the length, 8 bytes
        state[3] = state[3] ^ block
        state = _round(_round(state))
        state[0] = state[0] ^ block
    state[2] = state[2] ^ np.uint64(0xFF)
    for _ in range(4):
        state = _round(state)
    mixed: Words = state[0] ^ state[1] ^ state[2] ^ state[3]
    return mixed


def _round(state: list[Words]) -> list[Words]:
    v0, v1, v2, v3 = state
    v0 = v0 + v1
    v2 = v2 + v3
    v1 = _rotate(v1, 13) ^ v0
    v3 = _rotate(v3, 16) ^ v2
    v0 = _rotate(v0, 32)
    v2 = v2 + v1
    v0 = v0 + v3
    v1 = _rotate(v1, 17) ^ v2
    v3 = _rotate(v3, 21) ^ v0
    v2 = _rotate(v2, 32)
    return [v0, v1, v2, v3]


def _rotate(words: Words, bits: int) -> Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _plain_words(column: pl.Series) -> Words:
    """Return a 64-bit number per cell that depends only on the value, not on the physical code of a category."""
    if isinstance(column.dtype, pl.Categorical | pl.Enum):
        column = column.cast(pl.String)
    elif column.dtype.is_float():
        column = column.cast(pl.Float64) + 0.0  # -0.0 and 0.0 are the same number
    return column.hash(seed=0).to_numpy()
