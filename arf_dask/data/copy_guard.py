"""Keyed fingerprints of real rows: synthetic rows that equal a real one are found without storing real rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.fingerprints import Key, Words, cell_words, near_words, new_key, row_words
from arf_dask.errors import ReleaseError
from arf_dask.typing import Counts, Flags

ATTEMPTS = 20  # after this many redraws, a copy is replaced by an accepted row


@dataclass(frozen=True, eq=False)
class CopyGuard:
    """Fingerprints of all unique rows, and of the rows that are unique without one of their columns.

    The fingerprints exist in memory only, under a key generated for the run, and are never written to disk.
    """

    key: Key = field(repr=False)
    names: tuple[str, ...]  # the columns compared
    keys: tuple[str, ...]  # identifier columns: a replaced row keeps its identifiers
    whole: Words = field(repr=False)  # fingerprints of whole rows, ascending
    without: tuple[Words, ...] = field(repr=False)  # per column: fingerprints of rows without that column, ascending

    def copies(self, frame: pl.DataFrame) -> Flags:
        """Flag the rows that equal a unique real row in all columns or in all columns but one."""
        cells = cell_words(frame.select(self.names), self.key)
        is_copy = _holds(self.whole, row_words(cells))
        if self.without:
            near = near_words(cells)
            for column_index, known_words in enumerate(self.without):
                is_copy |= _holds(known_words, near[:, column_index])
        return is_copy


class Redrawn(NamedTuple):
    """The drawn rows after copies were replaced."""

    frame: pl.DataFrame
    rows: int  # number of rows that were redrawn


class Candidates(NamedTuple):
    """Rows that may replace copies."""

    frame: pl.DataFrame
    places: Counts  # per row: index of the row it may replace


Redraw = Callable[[int, Counts], Candidates]  # (attempt, row indices of copies)


class RealRows(NamedTuple):
    """Real rows that must not be copied."""

    frame: pl.DataFrame
    subjects: Counts | None = None  # subject id per row; None: every row is a person


def make_guard(tables: Sequence[RealRows], names: list[str], keys: Sequence[str] = ()) -> CopyGuard | None:
    """Fingerprint the columns `names` of real rows; return None if there are no columns to compare.

    Args:
        tables: Versions of the real rows, such as those before and after protection. A row is unique if it is unique
            in one of them.
        names: The columns to compare.
        keys: Identifier columns, which are left unchanged when rows are redrawn.

    A row is recorded if only one subject has it. A row without one of its columns is recorded if only one subject has
    the remaining values: values that several people share identify nobody.
    """
    if not names:
        return None
    key = new_key()
    found = [_unique_words(rows, names, key) for rows in tables]
    whole, *without = (_union(words) for words in zip(*found, strict=True))
    return CopyGuard(key, tuple(names), tuple(keys), whole, tuple(without))


def _unique_words(rows: RealRows, names: list[str], key: Key) -> list[Words]:
    """Return the fingerprints that one subject has: of whole rows, then of rows without each of the columns."""
    cells = cell_words(rows.frame.select(names), key)
    near = near_words(cells) if len(names) > 1 else np.empty((len(cells), 0), dtype=np.uint64)
    return [_once(words, rows.subjects) for words in (row_words(cells), *near.T)]


def _union(words: Sequence[Words]) -> Words:
    """Return the distinct fingerprints of sorted arrays, sorted."""
    return words[0] if len(words) == 1 else np.unique(np.concatenate(words))


def redraw_copies(
    frame: pl.DataFrame, guard: CopyGuard, redraw: Redraw, groups: Counts | None = None, first: int = 0
) -> Redrawn:
    """Replace rows that are copies of real rows by newly drawn rows; identifiers are left unchanged.

    Args:
        frame: The rows drawn.
        guard: Fingerprints of the real rows.
        redraw: Returns candidates for the rows that are copies, for attempt 1, 2, ...
        groups: Per row, the condition it was drawn under; None if all rows share one condition. Copies that remain
            after 20 attempts are replaced by accepted rows of the same group.
        first: Index of the first group in the caller's frame of conditions, for error messages.

    Raises:
        ReleaseError: All rows drawn under some condition are copies.
    """
    copy_rows = np.flatnonzero(guard.copies(frame))
    n_redrawn = len(copy_rows)
    for attempt in range(1, ATTEMPTS + 1):
        if not len(copy_rows):
            return Redrawn(frame, n_redrawn)
        candidates = redraw(attempt, copy_rows)
        accepted_rows = np.flatnonzero(~guard.copies(candidates.frame))
        filled_rows, first_index = np.unique(candidates.places[accepted_rows], return_index=True)
        frame = _put(frame, candidates.frame[accepted_rows[first_index]], filled_rows, guard.keys)
        copy_rows = np.setdiff1d(copy_rows, filled_rows)
    if len(copy_rows):
        frame = _put(frame, frame[_stand_ins(frame.height, copy_rows, groups, first)], copy_rows, guard.keys)
    return Redrawn(frame, n_redrawn)


def _stand_ins(n_rows: int, places: Counts, groups: Counts | None, first: int) -> Counts:
    """Return, per copy, the index of a row of the same group that is not a copy."""
    row_groups = np.zeros(n_rows, dtype=np.int64) if groups is None else groups
    accepted_rows = np.setdiff1d(np.arange(n_rows), places)
    accepted_rows = accepted_rows[np.argsort(row_groups[accepted_rows], kind="stable")]
    group_starts, group_stops = (
        np.searchsorted(row_groups[accepted_rows], row_groups[places], side=side) for side in ("left", "right")
    )
    if (group_starts == group_stops).any():
        where = (
            "release"
            if groups is None
            else f"given, row {first + int(row_groups[places[group_starts == group_stops][0]])}"
        )
        raise ReleaseError(
            f"{where}: every row drawn equals a real row, or equals one in all columns but one. Condition on fewer "
            "columns or on wider intervals."
        )
    return accepted_rows[group_starts + np.arange(len(places)) % (group_stops - group_starts)]


def _put(frame: pl.DataFrame, fresh: pl.DataFrame, places: Counts, keys: tuple[str, ...]) -> pl.DataFrame:
    """Replace the rows at the indices `places`, in all columns except the identifiers."""
    row_order = np.arange(frame.height)
    row_order[places] = frame.height + np.arange(len(places))
    return pl.concat([frame, fresh])[row_order].with_columns([frame.get_column(name) for name in keys])


def _once(words: Words, subjects: Counts | None) -> Words:
    """Return the fingerprints that exactly one subject has, sorted."""
    if subjects is not None:
        order = np.lexsort((subjects, words))
        is_new = np.ones(len(words), dtype=bool)
        is_new[1:] = (np.diff(words[order]) != 0) | (np.diff(subjects[order]) != 0)
        words = words[order][is_new]
    distinct_words, counts = np.unique(words, return_counts=True)
    unique_words: Words = distinct_words[counts == 1]
    return unique_words


def _holds(known: Words, asked: Words) -> Flags:
    """Flag the numbers that occur in a sorted array."""
    if not len(known):
        return np.zeros(len(asked), dtype=bool)
    nearest_index = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.asarray(known[nearest_index] == asked)
