"""String keys as templates: what is kept of a key column's shape, and fresh values written from it.

A template lists what may stand at each position. Its varying positions, read as digits of a mixed radix,
number its values from 0 on. A template owns one interval of numbers that no training value has; its first row
takes one number of it, its second row another, and so on. When the interval is used up the value grows: its
last run of digits (or letters) becomes a number wider than any such run seen in training.

Two rows never get the same value:

- within a template the row's rank is mapped one to one to a number of the interval;
- two templates differ in the character class of some position, or in a literal, or in length;
- a grown value is longer, where it grows, than every training value it resembles, and the number written
  there can be read back from the value and belongs to one row only.
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

MAX_TEMPLATES = 200
MAX_POSITIONS = 256  # longer values are cut: beyond this a column is text, not a key
MAX_OTHERS = 10_000
MAX_WORD = 2**62  # numbers up to here leave headroom in 64-bit arithmetic

Codes: TypeAlias = NDArray[np.uint8] | NDArray[np.uint32]
Words: TypeAlias = NDArray[np.uint64]

_DIGITS = "0123456789"
_LETTERS = {"A-Z": "ABCDEFGHIJ", "a-z": "abcdefghij"}
_ALPHABET = re.compile(r"(?:[0-9A-Za-z]|[0-9]-[0-9]|[A-Z]-[A-Z]|[a-z]-[a-z]){1,62}")
_SLOTS = 4096  # shares are met exactly over every run of this many rows
_ROUNDS = 4
_MASK = 2**64 - 1


@dataclass(frozen=True)
class Template:
    """The form of some of a column's values."""

    positions: tuple[str, ...]  # each one character: itself; "": one of `others`; longer: of an alphabet, "0-9a-f"
    share: float
    start: int  # first number that may be used
    room: int  # how many numbers from there on
    ordered: bool  # numbers in order (a sequence continues), or scattered over the interval
    grown_width: int  # digits of the number that stands in for the last run once the room is used up


@dataclass(frozen=True)
class StringShape:
    """The form of a column of string keys."""

    prefix: str  # begins every value
    suffix: str  # ends every value
    others: str  # characters that stand in for those outside ASCII
    templates: tuple[Template, ...]

    def to_dict(self) -> dict[str, Any]:
        templates = [{**vars(template), "positions": list(template.positions)} for template in self.templates]
        return {**vars(self), "templates": templates}

    @classmethod
    def from_dict(cls, data: Any) -> StringShape:
        require_fields(data, {"prefix": str, "suffix": str, "others": str, "templates": list}, "string keys")
        require(max(len(data["prefix"]), len(data["suffix"])) <= MAX_POSITIONS, "prefix or suffix too long")
        require(_is_text(data["prefix"] + data["suffix"]), "a prefix or suffix that is not Unicode text")
        _check_others(data["others"])
        require(1 <= len(data["templates"]) <= MAX_TEMPLATES, f"needs 1 to {MAX_TEMPLATES} templates")
        templates = tuple(_template_from_dict(entry, data["others"]) for entry in data["templates"])
        require(sum(template.share for template in templates) > 0, "all template shares are zero")
        return cls(data["prefix"], data["suffix"], data["others"], templates)


def fresh_strings(shape: StringShape, first_row: int, n: int, seed: int) -> pl.Series:
    """The values of rows `first_row` to `first_row + n - 1`; each depends on its row and the seed alone."""
    rows = np.arange(first_row, first_row + n, dtype=np.uint64)
    template_ids, ranks = _assign_templates([template.share for template in shape.templates], rows, seed)
    # Every grown row comes after this many rows, so numbers of grown values may start from here.
    n_before_growth = min(template.room for template in shape.templates)
    # Grouped by template; within it ranks ascend, so that rows with room come before those that grow.
    order = np.argsort(template_ids, kind="stable")
    ends = np.cumsum(np.bincount(template_ids, minlength=len(shape.templates)))
    values = []
    for template_id, chosen in enumerate(np.split(order, ends[:-1])):
        template, key = shape.templates[template_id], _key(seed, template_id)
        n_inside = np.searchsorted(ranks[chosen], np.uint64(template.room))
        inside, grown = chosen[:n_inside], chosen[n_inside:]
        values.append(_values_inside(template, shape.others, rows[inside], ranks[inside], key))
        values.append(_values_grown(template, shape.others, rows[grown], n_before_growth, key))
    core = pl.concat(values, rechunk=True)
    if len(shape.templates) > 1:
        core = core.gather(np.argsort(order, kind="stable"))
    return pl.select(pl.concat_str(pl.lit(shape.prefix), core, pl.lit(shape.suffix))).to_series()


def expand_alphabet(position: str, others: str) -> str:
    """All characters that may stand at a position, in ascending order.

    >>> expand_alphabet("0-9a-f", ""), expand_alphabet("-", ""), expand_alphabet("", "éü")
    ('0123456789abcdef', '-', 'éü')
    """
    if position == "":
        return others
    if len(position) == 1:
        return position
    return re.sub("(.)-(.)", lambda ends: "".join(map(chr, range(ord(ends[1]), ord(ends[2]) + 1))), position)


def split_words(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Cuts positions, from the left, into runs (begin, end) whose number of values fits a 64-bit word."""
    cuts, capacity = [0], 1
    for place, size in enumerate(sizes):
        if capacity * size > MAX_WORD:
            cuts.append(place)
            capacity = 1
        capacity *= size
    return list(zip(cuts, [*cuts[1:], len(sizes)], strict=True))


def first_word_capacity(sizes: Sequence[int]) -> int:
    """How many numbers the first word can tell apart; the others only add variety."""
    return prod(sizes[: split_words(sizes)[0][1]])


def find_growth(positions: Sequence[str]) -> tuple[int, int, int]:
    """(begin, end) of the positions a grown value replaces by a number, and how many of their run it leaves.

    The rule looks only at which positions of the last run of letters and digits may hold a digit, so that the
    number can be found again in the value: otherwise two templates might grow into the same value.
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


def strings_from_codes(codes: Codes) -> pl.Series:
    """One string per row of a matrix of code points."""
    n_rows, length = codes.shape
    if n_rows == 0 or length == 0:
        return pl.Series([""], dtype=pl.String).new_from_index(0, n_rows)
    if codes.dtype == np.uint8:
        flat = pl.Series(np.ascontiguousarray(codes).ravel(), dtype=pl.UInt8)
        return flat.reshape((n_rows, length)).cast(pl.List(pl.UInt8)).cast(pl.Binary).cast(pl.String)
    # NumPy drops trailing NULs, so each string ends with a mark that is cut off again.
    marked = np.full((n_rows, length + 1), ord("."), dtype=np.uint32)
    marked[:, :-1] = codes
    return pl.Series(marked.view(f"U{length + 1}").ravel()).str.head(-1)


def require(holds: bool, problem: str) -> None:
    """Raises, for a stored shape in which something does not hold."""
    if not holds:
        raise ValueError(f"key shape: {problem}. The model file was damaged or changed: fit and save it again.")


def require_fields(data: Any, fields: dict[str, type], where: str) -> None:
    """Raises unless `data` is a dict of exactly these fields, each of exactly its type."""
    require(isinstance(data, dict), f"{where}: a mapping is needed, not {type(data).__name__}")
    require(set(data) == set(fields), f"{where}: needs exactly the fields {sorted(fields)}")
    wrong = [name for name, kind in fields.items() if type(data[name]) is not kind]
    require(not wrong, f"{where}: wrong type of {wrong}")


def _template_from_dict(data: Any, others: str) -> Template:
    types = {
        "positions": list,
        "share": float,
        "start": int,
        "room": int,
        "ordered": bool,
        "grown_width": int,
    }
    require_fields(data, types, "template")
    positions, start, room = data["positions"], data["start"], data["room"]
    require(len(positions) <= MAX_POSITIONS, f"a template of over {MAX_POSITIONS} positions")
    require(all(isinstance(position, str) for position in positions), "a position that is not text")
    for position in set(positions):
        _check_position(position, others)
    require(0.0 <= data["share"] <= 1.0, f"a share of {data['share']}, outside 0 to 1")
    sizes = [len(expand_alphabet(position, others)) for position in positions]
    fits = start >= 0 and room >= 0 and start + room <= first_word_capacity(sizes)
    require(fits, "a template's interval lies outside its numbers")
    require(1 <= data["grown_width"] <= MAX_POSITIONS + 1, "a grown width out of bounds")
    return Template(**{**data, "positions": tuple(positions)})


def _check_others(others: str) -> None:
    require(len(others) <= MAX_OTHERS, f"more than {MAX_OTHERS} other characters")
    require(_is_text(others), "other characters that are not Unicode text")
    require(all(ord(character) > 127 for character in others), "an ASCII character among the others")
    require(_is_ascending(others), "the other characters are not in ascending order")


def _check_position(position: str, others: str) -> None:
    require(_is_text(position), "a position that is not Unicode text")
    if position == "":
        require(others != "", "a position of other characters, but there are none")
    elif len(position) > 1:
        valid = _ALPHABET.fullmatch(position) is not None and _is_ascending(expand_alphabet(position, ""))
        require(valid, f"{position[:20]!r} is not an alphabet")


def _is_text(text: str) -> bool:
    """Half a surrogate pair passes as a character in Python and JSON, but is none."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_ascending(text: str) -> bool:
    return list(text) == sorted(set(text))


def _is_alphanumeric(position: str) -> bool:
    return len(position) > 1 or (position.isascii() and position.isalnum())


def _may_be_digit(position: str) -> bool:
    return any(character in _DIGITS for character in expand_alphabet(position, ""))


def _assign_templates(shares: Sequence[float], rows: Words, seed: int) -> tuple[NDArray[np.intp], Words]:
    """Each row's template, and how many rows before it have the same one.

    Rows are dealt by a shuffled table that repeats, because then the second answer needs no other block.
    """
    exact = np.array(shares) / sum(shares) * _SLOTS
    counts = np.floor(exact).astype(np.intp)
    largest_remainders = np.argsort(counts - exact, kind="stable")[: _SLOTS - counts.sum()]
    counts[largest_remainders] += 1
    shuffled = np.argsort(_mix(np.arange(_SLOTS, dtype=np.uint64), _key(seed, -1)), kind="stable")
    by_slot = np.repeat(np.arange(len(shares)), counts)[np.argsort(shuffled)]
    grouped = np.argsort(by_slot, kind="stable")
    rank_in_table = np.empty(_SLOTS, dtype=np.intp)
    rank_in_table[grouped] = np.arange(_SLOTS) - np.repeat(np.cumsum(counts) - counts, counts)
    slots = (rows % np.uint64(_SLOTS)).astype(np.intp)
    template_ids = by_slot[slots]
    ranks = rows // np.uint64(_SLOTS) * counts[template_ids].astype(np.uint64)
    return template_ids, ranks + rank_in_table[slots].astype(np.uint64)


def _values_inside(template: Template, others: str, rows: Words, ranks: Words, key: int) -> pl.Series:
    alphabets = [expand_alphabet(position, others) for position in template.positions]
    numbers = ranks if template.ordered else _scatter(ranks, template.room, key)
    first = numbers + np.uint64(template.start)
    return strings_from_codes(_write(alphabets, [first, *_random_words(alphabets, rows, key)[1:]]))


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
    """Count 0 is written as 1 and zeros, `width` digits in all; the others follow on it."""
    if width <= 18:
        return pl.Series(counts + np.uint64(10 ** (width - 1))).cast(pl.String)
    return "1" + pl.Series(counts).cast(pl.String).str.zfill(width - 1)


def _random_words(alphabets: Sequence[str], rows: Words, key: int) -> list[Words]:
    sizes = [len(alphabet) for alphabet in alphabets]
    capacities = [prod(sizes[begin:end]) for begin, end in split_words(sizes)]
    return [_mix(rows, _key(key, word_id)) % np.uint64(capacity) for word_id, capacity in enumerate(capacities)]


def _write(alphabets: Sequence[str], words: Sequence[Words]) -> Codes:
    """The characters, one row per value, whose numbers in the mixed radix of the alphabets are the words."""
    is_wide = any(not alphabet.isascii() for alphabet in alphabets)
    shape = len(alphabets), words[0].size
    codes: Codes = np.empty(shape, dtype=np.uint32) if is_wide else np.empty(shape, dtype=np.uint8)
    spans = split_words([len(alphabet) for alphabet in alphabets])
    for (begin, end), word in zip(spans, words, strict=True):
        left = word
        for place in reversed(range(begin, end)):
            if len(alphabets[place]) == 1:
                codes[place] = ord(alphabets[place])
                continue
            characters = np.array([ord(character) for character in alphabets[place]], dtype=codes.dtype)
            size = np.uint64(characters.size)
            quotient = left // size
            codes[place] = characters[(left - quotient * size).astype(np.uint16)]
            left = quotient
    return codes.T


def _scatter(ranks: Words, size: int, key: int) -> Words:
    """A one-to-one map of 0 .. size - 1 onto itself that looks random.

    Permutes the next power of two, and walks on from numbers outside until one is inside: the walk follows a
    cycle of the permutation that began inside, so it comes back.
    """
    numbers = _permute(ranks, size, key)
    outside = np.flatnonzero(numbers >= size)
    while outside.size > 0:
        numbers[outside] = _permute(numbers[outside], size, key)
        outside = outside[numbers[outside] >= size]
    return numbers


def _permute(numbers: Words, size: int, key: int) -> Words:
    n_bits = max(1, (size - 1).bit_length())
    mask, shift = np.uint64(2**n_bits - 1), np.uint64((n_bits + 1) // 2)
    for round_id in range(_ROUNDS):
        # Odd multiples, sums and right shifts can each be undone within the bits kept.
        factor, term = _key(key, 2 * round_id) | 1, _key(key, 2 * round_id + 1)
        numbers = (numbers * np.uint64(factor) + np.uint64(term)) & mask
        numbers ^= numbers >> shift
    return numbers


def _mix(numbers: Words, key: int) -> Words:
    """Hashes 64-bit words: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), keyed by its offset."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _key(seed: int, purpose: int) -> int:
    """A 64-bit key of its own for each purpose."""
    words = np.array([seed & _MASK, purpose & _MASK], dtype=np.uint64)
    return int(_mix(_mix(words[:1], 0) ^ words[1:], 1)[0])
