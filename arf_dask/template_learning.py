"""From string keys to their shape.

A value's skeleton has one mark for any ASCII letter or digit, one for any character outside ASCII, and
everything else as it is. Values are grouped by skeleton, and within it by the class of each letter or digit
where that leaves groups of some size; among UUIDs, where nearly every value has its own mix, it does not.

A letter or digit is kept only where `MIN_ROWS` different values agree on it, and of a template's training
values at most the highest, as the place from which a sequence goes on.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from math import prod

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.templates import (
    MAX_OTHERS,
    MAX_POSITIONS,
    MAX_TEMPLATES,
    MAX_WORD,
    StringShape,
    Template,
    expand_alphabet,
    find_growth,
    first_word_capacity,
    strings_from_codes,
)

MIN_ROWS = 20
_SPARSE = 10**9  # possible values per training row from which on a random one is as good as never a copy
_DENSE = 10  # numbers per training row up to which a template counts as a sequence
_MOST = 0.9  # share of a skeleton's rows that must be in groups of MIN_ROWS before it is split by class
_DIGITS, _LOWER, _UPPER = b"0123456789", b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HEXADECIMAL = b"0123456789abcdefABCDEF"
_LATIN = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ"  # in place of other characters when few different ones were seen


def learn_strings(values: pl.Series, per_value: float = 1.0) -> StringShape:
    """The shape of distinct strings, none of them null. Each stands for so many, where they are a sample."""
    prefix, suffix, cores = _strip_constant_ends(values)
    frame = _with_skeletons(cores.str.head(MAX_POSITIONS).unique())
    skeletons = _describe_skeletons(frame["skeleton"])
    others = _find_others(frame["core"])
    templates: list[Template] = []
    common = skeletons.sort("n_rows", "skeleton", descending=True).head(MAX_TEMPLATES)
    for family in frame.join(common, on="skeleton").partition_by("before", "after"):
        groups = [_codes(group["core"]) for group in family.partition_by("skeleton")]
        members = [template for codes in groups for template in _learn_group(codes, others, per_value)]
        widened = [_set_growth(template, family["widest"][0]) for template in members]
        templates += _merge_exhausted(widened)
    if not templates:
        templates = [_grow_from_nothing(skeletons)]
    return StringShape(prefix, suffix, others, _keep_most_common(templates))


def skeletons_of(values: pl.Series) -> pl.DataFrame:
    """One row per skeleton of strings: skeleton, n_rows, before, after, widest."""
    return _describe_skeletons(_with_skeletons(values.str.head(MAX_POSITIONS).unique())["skeleton"])


def extremes(values: pl.Series, known: pl.DataFrame) -> pl.DataFrame:
    """One row per skeleton: skeleton, before, after, low, high: the first and the last of its values.

    Of the skeletons known, and the widest of those that differ from them only in the width of their last run.
    """
    if values.is_empty():
        return pl.DataFrame(schema=dict.fromkeys(("skeleton", "before", "after", "low", "high"), pl.String))
    frame = _with_skeletons(values.str.head(MAX_POSITIONS).unique())
    found = _describe_skeletons(frame["skeleton"]).select("skeleton", "before", "after")
    found = found.join(known, on=["before", "after"], how="semi")
    ends = frame.join(found, on="skeleton").group_by("skeleton", "before", "after")
    return _outer(ends.agg(low=pl.col("core").min(), high=pl.col("core").max()), known)


def merge_extremes(one: pl.DataFrame, other: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """The extremes of both."""
    ends = pl.concat([one, other]).group_by("skeleton", "before", "after")
    return _outer(ends.agg(pl.col("low").min(), pl.col("high").max()), known)


def _outer(ends: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("skeleton").str.len_chars()
    widest = length == length.max().over("before", "after")
    return ends.filter(pl.col("skeleton").is_in(known["skeleton"].implode()) | widest)


def occupied(shape: StringShape, values: pl.Series, n_values: int) -> list[bool]:
    """Per template: whether any of these strings lies where fresh ones would come from, out of so many in all.

    Where a sequence goes on above the highest value, and where possible values are so many that none is met by
    chance, there is nothing to look for.
    """
    inside = values.str.starts_with(shape.prefix) & values.str.ends_with(shape.suffix)
    inside &= values.str.len_chars() >= len(shape.prefix) + len(shape.suffix)
    cores = values.filter(inside).str.slice(len(shape.prefix))
    cores = cores.str.head(-len(shape.suffix)) if shape.suffix else cores
    lengths = cores.str.len_chars()
    found = []
    for template in shape.templates:
        sparse = _capacity(list(template.positions), shape.others) >= _SPARSE * max(n_values * template.share, 1)
        mine = cores.filter(lengths == len(template.positions))
        if template.ordered or template.room == 0 or sparse or mine.is_empty():
            found.append(False)
            continue
        numbers = _numbers(_codes(mine), [expand_alphabet(position, shape.others) for position in template.positions])
        taken = (numbers >= template.start) & (numbers < template.start + template.room)
        found.append(bool(taken.any()))
    return found


def vacate(shape: StringShape, taken: list[bool]) -> StringShape:
    """The shape whose templates make only longer strings where their room turned out to be taken."""
    pairs = zip(shape.templates, taken, strict=True)
    return replace(shape, templates=tuple(replace(t, start=0, room=0) if full else t for t, full in pairs))


def _strip_constant_ends(values: pl.Series) -> tuple[str, str, pl.Series]:
    """The beginning and the end that all values share, and what is between.

    Digits next to what varies are left to it: in "A-0001" to "A-0999" the number is 0001, not 1.
    """
    if values.len() < MIN_ROWS:
        return "", "", values
    prefix = _common_beginning(str(values.min()), str(values.max())).rstrip("0123456789")
    cores = values.str.slice(len(prefix))
    one = str(cores[0])[-MAX_POSITIONS:]
    n_own = bisect_left(range(len(one)), True, key=lambda cut: bool(cores.str.ends_with(one[cut:]).all()))
    suffix = one[n_own:].lstrip("0123456789")
    return prefix, suffix, cores.str.head(-len(suffix)) if suffix else cores


def _common_beginning(one: str, other: str) -> str:
    length = min(len(one), len(other), MAX_POSITIONS)
    return one[: next((place for place in range(length) if one[place] != other[place]), length)]


def _with_skeletons(cores: pl.Series) -> pl.DataFrame:
    """One row per value: core, skeleton."""
    frame = pl.DataFrame({"core": cores, "length": cores.str.len_chars()})
    return pl.concat(
        part.select("core", skeleton=_mark(_codes(part["core"]), letter="A", digit="A"))
        for part in frame.partition_by("length")
    )


def _describe_skeletons(skeletons: pl.Series) -> pl.DataFrame:
    """One row per skeleton: skeleton, n_rows, before, after, widest.

    Skeletons that differ only in the width of their last run of letters and digits have the same `before` and
    `after` it; `widest` is the largest of their widths.
    """
    until_run_ends = pl.col("skeleton").str.extract("(?s)^(.*A)").fill_null(pl.col("skeleton"))
    before = pl.col("until").str.strip_chars_end("A")
    return (
        skeletons.rename("skeleton")
        .value_counts(name="n_rows")
        .with_columns(until=until_run_ends)
        .with_columns(before=before, after=pl.col("skeleton").str.slice(pl.col("until").str.len_chars()))
        .with_columns(width=pl.col("until").str.len_chars() - pl.col("before").str.len_chars())
        .with_columns(widest=pl.col("width").max().over("before", "after"))
        .select("skeleton", "n_rows", "before", "after", "widest")
    )


def _find_others(cores: pl.Series) -> str:
    """Characters to stand in for those outside ASCII: those seen, if many; a few would tell too much."""
    text = cores.filter(cores.str.len_bytes() > cores.str.len_chars()).str.join("").item()
    seen = sorted(character for character in set(text) if ord(character) > 127)
    return "".join(seen[:MAX_OTHERS]) if len(seen) >= MIN_ROWS else _LATIN


def _learn_group(codes: NDArray[np.uint32], others: str, per_value: float) -> list[Template]:
    """The templates of the values of one skeleton, with their number of rows as share."""
    templates = (_learn_template(codes[group], others, per_value) for group in _split_by_class(codes))
    return [template for template in templates if template is not None]


def _split_by_class(codes: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """The rows of each mix of upper case, lower case and digits; all rows at once if most mixes are rare."""
    rows = pl.DataFrame({"form": _mark(codes, letter="Aa", digit="0")}).with_row_index("row")
    forms = rows["form"].value_counts(name="n_rows")
    n_in_large_groups = forms.filter(pl.col("n_rows") >= MIN_ROWS)["n_rows"].sum()
    if n_in_large_groups < _MOST * len(codes):
        return [np.arange(len(codes), dtype=np.uint32)]
    common = forms.sort("n_rows", "form", descending=True).head(MAX_TEMPLATES)
    return [group["row"].to_numpy() for group in rows.join(common, on="form").partition_by("form")]


def _learn_template(codes: NDArray[np.uint32], others: str, per_value: float) -> Template | None:
    """None for a rare form without letters or digits: to keep it would be to keep a value."""
    n_rows = len(codes)
    counts = _count_characters(codes)
    positions = _common_positions(codes, counts) if n_rows >= MIN_ROWS else _rare_positions(codes, counts)
    sparse = _SPARSE * n_rows * per_value
    if _capacity(positions, others) >= sparse:
        tight = _tighten(positions, counts) if n_rows >= MIN_ROWS else positions
        chosen = tight if _capacity(tight, others) >= sparse else positions
        room = first_word_capacity([len(expand_alphabet(position, others)) for position in chosen])
        return Template(tuple(chosen), n_rows, 0, room, False, 1)
    if all(len(position) == 1 for position in positions):
        return Template((), n_rows, 0, 0, True, 1) if not positions else None
    positions = _loosen(positions, others)
    numbers = _numbers(codes, [expand_alphabet(position, others) for position in positions])
    start, room, ordered = _find_interval(numbers, _capacity(positions, others), n_rows, per_value)
    return Template(tuple(positions), n_rows, start, room, ordered, 1)


def _common_positions(codes: NDArray[np.uint32], counts: NDArray[np.intp]) -> list[str]:
    positions: list[str] = []
    for place in range(codes.shape[1]):
        seen = set(np.flatnonzero(counts[place]).tolist())
        if codes[:, place].min() == codes[:, place].max():
            positions.append(chr(codes[0, place]))
        elif seen and seen <= set(_DIGITS[1:]) and (place == 0 or not counts[place - 1, list(_DIGITS)].any()):
            positions.append("1-9")
        else:
            positions.append(_alphabet(seen, is_hexadecimal=seen <= set(_HEXADECIMAL)))
    return positions


def _rare_positions(codes: NDArray[np.uint32], counts: NDArray[np.intp]) -> list[str]:
    """As of common forms, but letters and digits by class alone, and hexadecimal only if all of them are."""
    places = [set(np.flatnonzero(count).tolist()) for count in counts]
    characters = codes[np.isin(codes, list(_DIGITS + _LOWER + _UPPER))]
    is_hexadecimal = characters.size >= MIN_ROWS and set(characters.tolist()) <= set(_HEXADECIMAL)
    return [_alphabet(seen, is_hexadecimal) for seen in places]


def _alphabet(seen: set[int], is_hexadecimal: bool) -> str:
    """The position that allows the classes of the ASCII characters seen; one of others if there are none."""
    if len(seen) == 1 and not chr(min(seen)).isalnum():
        return chr(min(seen))
    digits = "0-9" if seen & set(_DIGITS) else ""
    upper = ("A-F" if is_hexadecimal else "A-Z") if seen & set(_UPPER) else ""
    lower = ("a-f" if is_hexadecimal else "a-z") if seen & set(_LOWER) else ""
    return digits + upper + lower


def _tighten(positions: list[str], counts: NDArray[np.intp]) -> list[str]:
    """Keeps to the few characters seen where each was often seen, as one of 8, 9, a, b in a UUID."""
    tight = []
    for position, count in zip(positions, counts, strict=True):
        seen = "".join(map(chr, np.flatnonzero(count)))
        is_choice = position == "0-9a-f" and len(seen) < 16 and bool((count[count > 0] >= MIN_ROWS).all())
        tight.append(seen if is_choice else position)
    return tight


def _loosen(positions: list[str], others: str) -> list[str]:
    """Lets a constant digit vary before varying digits: the zeros of "A-0001" to "A-0999" are no literals."""
    loose = list(positions)
    for place in reversed(range(len(loose) - 1)):
        follower = loose[place + 1]
        if loose[place] in list("0123456789") and follower.startswith(("0-9", "1-9")):
            wider = [*loose[:place], follower.replace("1-9", "0-9"), *loose[place + 1 :]]
            loose = wider if _capacity(wider, others) <= MAX_WORD else loose
    return loose


def _find_interval(numbers: NDArray[np.int64], capacity: int, n_rows: int, per_value: float) -> tuple[int, int, bool]:
    """Start and length of an interval without training values, and whether it continues a sequence."""
    if n_rows >= MIN_ROWS and numbers.size > 0 and np.ptp(numbers) < _DENSE * n_rows * per_value:
        start = int(numbers.max()) + 1
        return start, capacity - start, True
    # A free one of 1, 2, 4, 8 .. equal parts, not the gap between two values: that would tell the two.
    n_parts = 1
    while n_parts <= capacity:
        size = capacity // n_parts
        free = np.setdiff1d(np.arange(n_parts), numbers // size)
        if free.size > 0:
            return int(free[-1]) * size, size, False
        n_parts *= 2
    return 0, 0, False


def _numbers(codes: NDArray[np.uint32], alphabets: list[str]) -> NDArray[np.int64]:
    """The values as numbers in the mixed radix of the alphabets, without those beyond the alphabets."""
    numbers = np.zeros(len(codes), dtype=np.int64)
    is_written = np.ones(len(codes), dtype=np.bool_)
    for place, alphabet in enumerate(alphabets):
        if len(alphabet) > 1:
            characters = np.array([ord(character) for character in alphabet], dtype=np.uint32)
            index = np.searchsorted(characters, codes[:, place]).clip(max=characters.size - 1)
            is_written &= characters[index] == codes[:, place]
            numbers = numbers * characters.size + index
    return numbers[is_written]


def _set_growth(template: Template, widest: int) -> Template:
    """Grown, the last run of letters and digits is wider than any in training in the same place."""
    n_left = find_growth(template.positions)[2]
    return replace(template, grown_width=widest + 1 - n_left)


def _merge_exhausted(family: list[Template]) -> list[Template]:
    """Gives the share of sequences that are at their end to the widest: "9" and "99" go on as "100"."""
    sequences = [template for template in family if template.ordered]
    if not sequences:
        return family
    widest = max(sequences, key=lambda template: (len(template.positions), template.share))
    at_end = [
        template
        for template in family
        if template is not widest and template.room < template.share and _frame(template) == _frame(widest)
    ]
    going_on = [template for template in family if template is not widest and template not in at_end]
    taken = sum(template.share for template in at_end)
    return [*going_on, replace(widest, share=widest.share + taken)]


def _frame(template: Template) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The positions before and after those that grow."""
    begin, end, _ = find_growth(template.positions)
    return template.positions[:begin], template.positions[end:]


def _grow_from_nothing(skeletons: pl.DataFrame) -> Template:
    """For a column of nothing but punctuation: numbers longer than any seen there."""
    widest = skeletons.filter(pl.col("before") == "", pl.col("after") == "")["widest"].to_list()
    return Template((), 1, 0, 0, True, max(widest, default=0) + 1)


def _keep_most_common(templates: list[Template]) -> tuple[Template, ...]:
    kept = sorted(templates, key=lambda template: (-template.share, template.positions))[:MAX_TEMPLATES]
    n_rows = sum(template.share for template in kept)
    return tuple(replace(template, share=template.share / n_rows) for template in kept)


def _capacity(positions: list[str], others: str) -> int:
    return prod(len(expand_alphabet(position, others)) for position in positions)


def _count_characters(codes: NDArray[np.uint32]) -> NDArray[np.intp]:
    """How often each ASCII character (column) stands at each position (row)."""
    counts = [np.bincount(np.minimum(column, 128), minlength=129)[:128] for column in codes.T]
    return np.array(counts, dtype=np.intp).reshape(codes.shape[1], 128)


def _mark(codes: NDArray[np.uint32], letter: str, digit: str) -> pl.Series:
    """Writes letters, digits and characters outside ASCII as marks; `letter` may hold one for each case."""
    marks = np.arange(129, dtype=np.uint8)
    marks[list(_DIGITS)] = ord(digit)
    marks[list(_UPPER)] = ord(letter[0])
    marks[list(_LOWER)] = ord(letter[-1])
    marks[128] = ord("o")
    return strings_from_codes(marks[np.minimum(codes, 128)])


def _codes(values: pl.Series) -> NDArray[np.uint32]:
    """The code points of strings of one length, a row each."""
    length = len(values[0])
    if length == 0:
        return np.empty((values.len(), 0), dtype=np.uint32)
    return values.to_numpy().astype(f"U{length}").view(np.uint32).reshape(values.len(), length)
