"""Templates of string keys: the stored shape of a key column, and the generation of fresh values from it.

A template lists the characters allowed at each position. Its varying positions are the digits of a mixed-radix
number, so that its values are numbered from 0. Each template has one interval of numbers that no training value uses,
and every row takes a different number of it. Once the interval is used up, values grow: the last run of digits (or
letters) becomes a number wider than any such run seen in training.

Two rows never get the same value:

- within a template, the rank of a row is mapped one-to-one to a number of the interval;
- two templates differ in the character class of some position, in a literal, or in length;
- the grown run of a value is longer than in any training value of the same form, and its number can be parsed back
  from the value and belongs to a single row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.stored_fields import parse_fields, require

KEY_SHAPE = "key shape"  # in error messages
MAX_TEMPLATES = 200
MAX_POSITIONS = 256  # longer values are truncated: such a column is text rather than a key
MAX_OTHERS = 10_000
MAX_WORD = 2**62  # numbers up to here leave headroom in 64-bit arithmetic

CodePoints: TypeAlias = NDArray[np.uint8] | NDArray[np.uint32]
Words: TypeAlias = NDArray[np.uint64]

_DIGITS = "0123456789"
_LETTERS = {"A-Z": "ABCDEFGHIJ", "a-z": "abcdefghij"}
_ALPHABET = re.compile(r"(?:[0-9A-Za-z]|[0-9]-[0-9]|[A-Z]-[A-Z]|[a-z]-[a-z]){1,62}")
_SLOTS = 4096  # template shares are exact in every block of this many rows
_ROUNDS = 4
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Template:
    """The form shared by some values of a column."""

    positions: tuple[str, ...]  # one character: a literal; "": any of `others`; longer: an alphabet such as "0-9a-f"
    share: float
    start: int  # first number of the interval for fresh values
    room: int  # how many numbers the interval has
    ordered: bool  # True: numbers are used in order (a sequence); False: in pseudo-random order
    grown_width: int  # digits of the number that replaces the last run once the interval is used up


@dataclass(frozen=True)
class StringShape:
    """The shape of a column of string keys."""

    prefix: str  # of every value
    suffix: str  # of every value
    others: str  # characters that replace non-ASCII ones
    templates: tuple[Template, ...]

    def to_dict(self) -> dict[str, Any]:
        templates = [{**vars(template), "positions": list(template.positions)} for template in self.templates]
        return {**vars(self), "templates": templates}

    @classmethod
    def from_dict(cls, data: Any) -> StringShape:
        parse_fields(data, {"prefix": str, "suffix": str, "others": str, "templates": list}, KEY_SHAPE, "string keys")
        require(max(len(data["prefix"]), len(data["suffix"])) <= MAX_POSITIONS, KEY_SHAPE, "prefix or suffix too long")
        require(_is_text(data["prefix"] + data["suffix"]), KEY_SHAPE, "a prefix or suffix that is not Unicode text")
        _check_others(data["others"])
        require(1 <= len(data["templates"]) <= MAX_TEMPLATES, KEY_SHAPE, f"needs 1 to {MAX_TEMPLATES} templates")
        templates = tuple(_template_from_dict(entry, data["others"]) for entry in data["templates"])
        require(sum(template.share for template in templates) > 0, KEY_SHAPE, "all template shares are zero")
        return cls(data["prefix"], data["suffix"], data["others"], templates)


def fresh_strings(shape: StringShape, first_row: int, n: int, seed: int) -> pl.Series:
    """Generate the values of rows `first_row` to `first_row + n - 1`; each depends only on its row and the seed."""
    rows = np.arange(first_row, first_row + n, dtype=np.uint64)
    template_ids, ranks = _assign_templates([template.share for template in shape.templates], rows, seed)
    # No row below this one grows, so grown values can be numbered from here.
    n_before_growth = min(template.room for template in shape.templates)
    # Group rows by template. Ranks ascend within a template, so rows inside the interval precede those that grow.
    row_order = np.argsort(template_ids, kind="stable")
    template_ends = np.cumsum(np.bincount(template_ids, minlength=len(shape.templates)))
    values = []
    for template_id, template_rows in enumerate(np.split(row_order, template_ends[:-1])):
        template, key = shape.templates[template_id], _key(seed, template_id)
        n_inside = np.searchsorted(ranks[template_rows], np.uint64(template.room))
        inside_rows, grown_rows = template_rows[:n_inside], template_rows[n_inside:]
        values.append(_values_inside(template, shape.others, rows[inside_rows], ranks[inside_rows], key))
        values.append(_values_grown(template, shape.others, rows[grown_rows], n_before_growth, key))
    core_values = pl.concat(values, rechunk=True)
    if len(shape.templates) > 1:
        core_values = core_values.gather(np.argsort(row_order, kind="stable"))
    return pl.select(pl.concat_str(pl.lit(shape.prefix), core_values, pl.lit(shape.suffix))).to_series()


def expand_alphabet(position: str, others: str) -> str:
    """Return all characters allowed at a position, in ascending order.

    >>> expand_alphabet("0-9a-f", ""), expand_alphabet("-", ""), expand_alphabet("", "éü")
    ('0123456789abcdef', '-', 'éü')
    """
    if position == "":
        return others
    if len(position) == 1:
        return position
    return re.sub("(.)-(.)", lambda ends: "".join(map(chr, range(ord(ends[1]), ord(ends[2]) + 1))), position)


def split_words(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Split positions, from the left, into spans (begin, end) whose number of values fits a 64-bit word."""
    word_starts, capacity = [0], 1
    for position_index, size in enumerate(sizes):
        if capacity * size > MAX_WORD:
            word_starts.append(position_index)
            capacity = 1
        capacity *= size
    return list(zip(word_starts, [*word_starts[1:], len(sizes)], strict=True))


def first_word_capacity(sizes: Sequence[int]) -> int:
    """Return how many values the first word distinguishes; further words only add variety."""
    return prod(sizes[: split_words(sizes)[0][1]])


def find_growth(positions: Sequence[str]) -> tuple[int, int, int]:
    """Return the span (begin, end) that a grown value replaces by a number, and how many positions of the run remain.

    The span depends only on which positions of the last alphanumeric run allow a digit, so that the number can be
    parsed back from the value: otherwise two templates might grow into the same value.
    """
    run_end = len(positions)
    while run_end > 0 and not _is_alphanumeric(positions[run_end - 1]):
        run_end -= 1
    if run_end == 0:
        return len(positions), len(positions), 0
    run_begin = run_end
    while run_begin > 0 and _is_alphanumeric(positions[run_begin - 1]):
        run_begin -= 1
    if positions[run_begin] in _LETTERS and len(set(positions[run_begin:run_end])) == 1:
        return run_begin, run_end, 0
    end = run_end
    while end > run_begin and not _may_be_digit(positions[end - 1]):
        end -= 1
    if end == run_begin:
        return run_end, run_end, run_end - run_begin
    begin = end
    while begin > run_begin and _may_be_digit(positions[begin - 1]):
        begin -= 1
    return begin, end, run_end - run_begin - (end - begin)


def strings_from_codes(codes: CodePoints) -> pl.Series:
    """One string per row of a matrix of code points."""
    n_rows, length = codes.shape
    if n_rows == 0 or length == 0:
        return pl.Series([""], dtype=pl.String).new_from_index(0, n_rows)
    if codes.dtype == np.uint8:
        flat_codes = pl.Series(np.ascontiguousarray(codes).ravel(), dtype=pl.UInt8)
        return flat_codes.reshape((n_rows, length)).cast(pl.List(pl.UInt8)).cast(pl.Binary).cast(pl.String)
    # NumPy drops trailing NULs, so each string gets a final mark that is removed afterwards.
    marked_codes = np.full((n_rows, length + 1), ord("."), dtype=np.uint32)
    marked_codes[:, :-1] = codes
    return pl.Series(marked_codes.view(f"U{length + 1}").ravel()).str.head(-1)


def _template_from_dict(data: Any, others: str) -> Template:
    field_types = {
        "positions": list,
        "share": float,
        "start": int,
        "room": int,
        "ordered": bool,
        "grown_width": int,
    }
    parse_fields(data, field_types, KEY_SHAPE, "template")
    positions, start, room = data["positions"], data["start"], data["room"]
    require(len(positions) <= MAX_POSITIONS, KEY_SHAPE, f"a template of over {MAX_POSITIONS} positions")
    require(all(isinstance(position, str) for position in positions), KEY_SHAPE, "a position that is not text")
    for position in set(positions):
        _check_position(position, others)
    require(0.0 <= data["share"] <= 1.0, KEY_SHAPE, f"a share of {data['share']}, outside 0 to 1")
    sizes = [len(expand_alphabet(position, others)) for position in positions]
    interval_fits = start >= 0 and room >= 0 and start + room <= first_word_capacity(sizes)
    require(interval_fits, KEY_SHAPE, "a template's interval lies outside its numbers")
    require(1 <= data["grown_width"] <= MAX_POSITIONS + 1, KEY_SHAPE, "a grown width out of bounds")
    return Template(**{**data, "positions": tuple(positions)})


def _check_others(others: str) -> None:
    require(len(others) <= MAX_OTHERS, KEY_SHAPE, f"more than {MAX_OTHERS} other characters")
    require(_is_text(others), KEY_SHAPE, "other characters that are not Unicode text")
    require(all(ord(character) > 127 for character in others), KEY_SHAPE, "an ASCII character among the others")
    require(_is_ascending(others), KEY_SHAPE, "the other characters are not in ascending order")


def _check_position(position: str, others: str) -> None:
    require(_is_text(position), KEY_SHAPE, "a position that is not Unicode text")
    if position == "":
        require(others != "", KEY_SHAPE, "a position of other characters, but there are none")
    elif len(position) > 1:
        is_alphabet = _ALPHABET.fullmatch(position) is not None and _is_ascending(expand_alphabet(position, ""))
        require(is_alphabet, KEY_SHAPE, f"{position[:20]!r} is not an alphabet")


def _is_text(text: str) -> bool:
    """Whether a string has no lone surrogates, which Python and JSON accept but Unicode does not."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_ascending(text: str) -> bool:
    return list(text) == sorted(set(text))


def _is_alphanumeric(position: str) -> bool:
    return len(position) > 1 or (position.isascii() and position.isalnum())


def _may_be_digit(position: str) -> bool:
    return any(character in _DIGITS for character in expand_alphabet(position, ""))


def _assign_templates(shares: Sequence[float], rows: Words, seed: int) -> tuple[NDArray[np.intp], Words]:
    """Return the template of each row, and the number of earlier rows with the same template.

    Rows are assigned by a shuffled table that repeats, so that ranks can be computed without other blocks of rows.
    """
    exact_counts = np.array(shares) / sum(shares) * _SLOTS
    slot_counts = np.floor(exact_counts).astype(np.intp)
    largest_remainders = np.argsort(slot_counts - exact_counts, kind="stable")[: _SLOTS - slot_counts.sum()]
    slot_counts[largest_remainders] += 1
    slot_order = np.argsort(_mix(np.arange(_SLOTS, dtype=np.uint64), _key(seed, -1)), kind="stable")
    template_by_slot = np.repeat(np.arange(len(shares)), slot_counts)[np.argsort(slot_order)]
    grouped_slots = np.argsort(template_by_slot, kind="stable")
    rank_in_table = np.empty(_SLOTS, dtype=np.intp)
    rank_in_table[grouped_slots] = np.arange(_SLOTS) - np.repeat(np.cumsum(slot_counts) - slot_counts, slot_counts)
    slots = (rows % np.uint64(_SLOTS)).astype(np.intp)
    template_ids = template_by_slot[slots]
    ranks = rows // np.uint64(_SLOTS) * slot_counts[template_ids].astype(np.uint64)
    return template_ids, ranks + rank_in_table[slots].astype(np.uint64)


def _values_inside(template: Template, others: str, rows: Words, ranks: Words, key: int) -> pl.Series:
    alphabets = [expand_alphabet(position, others) for position in template.positions]
    numbers = ranks if template.ordered else _scatter(ranks, template.room, key)
    first_word = numbers + np.uint64(template.start)
    return strings_from_codes(_write(alphabets, [first_word, *_random_words(alphabets, rows, key)[1:]]))


def _values_grown(template: Template, others: str, rows: Words, n_before: int, key: int) -> pl.Series:
    alphabets = [expand_alphabet(position, others) for position in template.positions]
    codes = _write(alphabets, _random_words(alphabets, rows, key))
    begin, end, _ = find_growth(template.positions)
    numbers = _grown_numbers(rows - np.uint64(n_before), template.grown_width)
    if begin < end and template.positions[begin] in _LETTERS:
        numbers = numbers.str.replace_many(list(_DIGITS), list(_LETTERS[template.positions[begin]]))
    head, tail = strings_from_codes(codes[:, :begin]), strings_from_codes(codes[:, end:])
    return pl.select(pl.concat_str(head, numbers, tail)).to_series()


def _grown_numbers(counts: Words, width: int) -> pl.Series:
    """Write counts as numbers of at least `width` digits, starting with 10...0 for count 0."""
    if width <= 18:
        return pl.Series(counts + np.uint64(10 ** (width - 1))).cast(pl.String)
    return "1" + pl.Series(counts).cast(pl.String).str.zfill(width - 1)


def _random_words(alphabets: Sequence[str], rows: Words, key: int) -> list[Words]:
    sizes = [len(alphabet) for alphabet in alphabets]
    capacities = [prod(sizes[begin:end]) for begin, end in split_words(sizes)]
    return [_mix(rows, _key(key, word_id)) % np.uint64(capacity) for word_id, capacity in enumerate(capacities)]


def _write(alphabets: Sequence[str], words: Sequence[Words]) -> CodePoints:
    """Convert mixed-radix words to the code points of characters, one row per value."""
    is_wide = any(not alphabet.isascii() for alphabet in alphabets)
    shape = len(alphabets), words[0].size
    codes: CodePoints = np.empty(shape, dtype=np.uint32) if is_wide else np.empty(shape, dtype=np.uint8)
    word_spans = split_words([len(alphabet) for alphabet in alphabets])
    for (begin, end), word in zip(word_spans, words, strict=True):
        remaining = word
        for position_index in reversed(range(begin, end)):
            if len(alphabets[position_index]) == 1:
                codes[position_index] = ord(alphabets[position_index])
                continue
            characters = np.array([ord(character) for character in alphabets[position_index]], dtype=codes.dtype)
            size = np.uint64(characters.size)
            quotient = remaining // size
            codes[position_index] = characters[(remaining - quotient * size).astype(np.uint16)]
            remaining = quotient
    return codes.T


def _scatter(ranks: Words, size: int, key: int) -> Words:
    """Map 0 .. size - 1 one-to-one onto itself, in pseudo-random order.

    Cycle walking: apply a permutation of the next power of two, and repeat it for numbers outside the range. The walk
    follows a cycle that began inside the range, so it always returns.
    """
    numbers = _permute(ranks, size, key)
    outside_index = np.flatnonzero(numbers >= size)
    while outside_index.size > 0:
        numbers[outside_index] = _permute(numbers[outside_index], size, key)
        outside_index = outside_index[numbers[outside_index] >= size]
    return numbers


def _permute(numbers: Words, size: int, key: int) -> Words:
    n_bits = max(1, (size - 1).bit_length())
    mask, shift = np.uint64(2**n_bits - 1), np.uint64((n_bits + 1) // 2)
    for round_id in range(_ROUNDS):
        # Odd multiples, sums and xor with a right shift are each invertible within the masked bits.
        factor, term = _key(key, 2 * round_id) | 1, _key(key, 2 * round_id + 1)
        numbers = (numbers * np.uint64(factor) + np.uint64(term)) & mask
        numbers ^= numbers >> shift
    return numbers


def _mix(numbers: Words, key: int) -> Words:
    """Hash 64-bit words by the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), keyed by its offset."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _key(seed: int, purpose: int) -> int:
    """Derive a separate 64-bit key for each purpose."""
    key_words = np.array([seed & _MASK, purpose & _MASK], dtype=np.uint64)
    return int(_mix(_mix(key_words[:1], 0) ^ key_words[1:], 1)[0])
