"""Learn the shape of string keys.

The skeleton of a value replaces every ASCII letter or digit by one mark and every non-ASCII character by another; all
other characters are kept. Values are grouped by skeleton, and within a skeleton by the class (upper case, lower case,
digit) of each character if the resulting groups are large enough. They are not for UUIDs, for example, where nearly
every value has a different combination of classes.

A literal letter or digit is stored only if `MIN_ROWS` different values agree on it. Of the training values of a
template, at most the highest is stored, as the start of a sequence.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from math import prod

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.templates import (
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
_SPARSE = 10**9  # with this many possible values per training row, a random value practically never equals a real one
_DENSE = 10  # a template is a sequence if its range has fewer numbers per training row
_CHOICE = 0.7  # a position is narrowed only to at most this share of its alphabet
_USUAL = 0.9  # share of values that the usual characters of a position cover
_MOST = 0.9  # a skeleton is split by class if this share of its rows is in groups of at least MIN_ROWS
_DIGITS, _LOWER, _UPPER = b"0123456789", b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HEXADECIMAL = b"0123456789abcdefABCDEF"
_LATIN = "àáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ"  # replaces non-ASCII characters if few distinct ones were seen


def learn_strings(values: pl.Series, per_value: float = 1.0) -> StringShape:
    """Learn the shape of distinct non-null strings; in a sample, each represents `per_value` strings of the column."""
    prefix, suffix, cores = _strip_constant_ends(values)
    frame = _with_skeletons(cores.str.head(MAX_POSITIONS).unique())
    skeletons = _describe_skeletons(frame["skeleton"])
    others = _find_others(frame["core"])
    templates: list[Template] = []
    common_skeletons = skeletons.sort("n_rows", "skeleton", descending=True).head(MAX_TEMPLATES)
    for family in frame.join(common_skeletons, on="skeleton").partition_by("before", "after"):
        code_groups = [_codes(group["core"]) for group in family.partition_by("skeleton")]
        group_templates = [template for codes in code_groups for template in _learn_group(codes, others, per_value)]
        grown_templates = [_set_growth(template, family["widest"][0]) for template in group_templates]
        templates += _merge_exhausted(grown_templates)
    if not templates:
        templates = [_grow_from_nothing(skeletons)]
    return StringShape(prefix, suffix, others, _keep_most_common(templates))


def learn_skeletons(values: pl.Series) -> pl.DataFrame:
    """One row per skeleton of strings: skeleton, n_rows, before, after, widest."""
    return _describe_skeletons(_with_skeletons(values.str.head(MAX_POSITIONS).unique())["skeleton"])


def find_extremes(values: pl.Series, known: pl.DataFrame) -> pl.DataFrame:
    """One row per skeleton: skeleton, before, after, low, high (its first and last value).

    Contains the known skeletons, and the widest of those that differ from them only in the width of the last run.
    """
    if values.is_empty():
        return pl.DataFrame(schema=dict.fromkeys(("skeleton", "before", "after", "low", "high"), pl.String))
    frame = _with_skeletons(values.str.head(MAX_POSITIONS).unique())
    skeleton_groups = _describe_skeletons(frame["skeleton"]).select("skeleton", "before", "after")
    skeleton_groups = skeleton_groups.join(known, on=["before", "after"], how="semi")
    extreme_groups = frame.join(skeleton_groups, on="skeleton").group_by("skeleton", "before", "after")
    return _outer(extreme_groups.agg(low=pl.col("core").min(), high=pl.col("core").max()), known)


def merge_extremes(one: pl.DataFrame, other: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """Merge the first and last values of two parts of a column."""
    extreme_groups = pl.concat([one, other]).group_by("skeleton", "before", "after")
    return _outer(extreme_groups.agg(pl.col("low").min(), pl.col("high").max()), known)


def _outer(ends: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("skeleton").str.len_chars()
    is_widest = length == length.max().over("before", "after")
    return ends.filter(pl.col("skeleton").is_in(known["skeleton"].implode()) | is_widest)


def find_occupied(shape: StringShape, values: pl.Series, n_values: int) -> list[bool]:
    """Flag the templates whose interval for fresh values contains any of these strings.

    Templates are not checked if they continue a sequence above its highest value, or if they have so many possible
    values that a collision is negligible. `n_values` is the number of strings in the whole column.
    """
    has_ends = values.str.starts_with(shape.prefix) & values.str.ends_with(shape.suffix)
    has_ends &= values.str.len_chars() >= len(shape.prefix) + len(shape.suffix)
    cores = values.filter(has_ends).str.slice(len(shape.prefix))
    cores = cores.str.head(-len(shape.suffix)) if shape.suffix else cores
    lengths = cores.str.len_chars()
    is_occupied = []
    for template in shape.templates:
        is_sparse = _capacity(list(template.positions), shape.others) >= _SPARSE * max(n_values * template.share, 1)
        same_length = cores.filter(lengths == len(template.positions))
        if template.ordered or template.room == 0 or is_sparse or same_length.is_empty():
            is_occupied.append(False)
            continue
        numbers = _numbers(
            _codes(same_length), [expand_alphabet(position, shape.others) for position in template.positions]
        )
        in_interval = (numbers >= template.start) & (numbers < template.start + template.room)
        is_occupied.append(bool(in_interval.any()))
    return is_occupied


def grow_occupied(shape: StringShape, taken: list[bool]) -> StringShape:
    """Make templates whose interval is occupied generate only strings longer than any seen in training."""
    flagged_templates = zip(shape.templates, taken, strict=True)
    return replace(shape, templates=tuple(replace(t, start=0, room=0) if full else t for t, full in flagged_templates))


def _strip_constant_ends(values: pl.Series) -> tuple[str, str, pl.Series]:
    """Return the common prefix, the common suffix, and the values without them.

    Digits next to the varying part belong to it: in "A-0001" to "A-0999" the number is 0001, not 1.
    """
    if values.len() < MIN_ROWS:
        return "", "", values
    prefix = _common_beginning(str(values.min()), str(values.max())).rstrip("0123456789")
    cores = values.str.slice(len(prefix))
    core = str(cores[0])[-MAX_POSITIONS:]
    suffix_start = bisect_left(range(len(core)), True, key=lambda cut: bool(cores.str.ends_with(core[cut:]).all()))
    suffix = core[suffix_start:].lstrip("0123456789")
    return prefix, suffix, cores.str.head(-len(suffix)) if suffix else cores


def _common_beginning(one: str, other: str) -> str:
    length = min(len(one), len(other), MAX_POSITIONS)
    return one[: next((index for index in range(length) if one[index] != other[index]), length)]


def _with_skeletons(cores: pl.Series) -> pl.DataFrame:
    """One row per value: core, skeleton."""
    frame = pl.DataFrame({"core": cores, "length": cores.str.len_chars()})
    return pl.concat(
        part.select("core", skeleton=_mark(_codes(part["core"]), letter="A", digit="A"))
        for part in frame.partition_by("length")
    )


def _describe_skeletons(skeletons: pl.Series) -> pl.DataFrame:
    """One row per skeleton: skeleton, n_rows, before, after, widest.

    Skeletons that differ only in the width of their last run of letters and digits share the text
    `before` and `after` that run; `widest` is the largest of their widths.
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
    """Return the characters that replace non-ASCII ones: those seen, unless so few that they disclose values."""
    text = cores.filter(cores.str.len_bytes() > cores.str.len_chars()).str.join("").item()
    seen_characters = sorted(character for character in set(text) if ord(character) > 127)
    return "".join(seen_characters[:MAX_OTHERS]) if len(seen_characters) >= MIN_ROWS else _LATIN


def _learn_group(codes: NDArray[np.uint32], others: str, per_value: float) -> list[Template]:
    """Learn the templates of the values of one skeleton; their share is a number of rows."""
    templates = (_learn_template(codes[group], others, per_value) for group in _split_by_class(codes))
    return [template for template in templates if template is not None]


def _split_by_class(codes: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    """Group rows by their pattern of upper case, lower case and digits; one group if most patterns are rare."""
    rows = pl.DataFrame({"form": _mark(codes, letter="Aa", digit="0")}).with_row_index("row")
    forms = rows["form"].value_counts(name="n_rows")
    n_in_large_groups = forms.filter(pl.col("n_rows") >= MIN_ROWS)["n_rows"].sum()
    if n_in_large_groups < _MOST * len(codes):
        return [np.arange(len(codes), dtype=np.uint32)]
    common = forms.sort("n_rows", "form", descending=True).head(MAX_TEMPLATES)
    return [group["row"].to_numpy() for group in rows.join(common, on="form").partition_by("form")]


def _learn_template(codes: NDArray[np.uint32], others: str, per_value: float) -> Template | None:
    """Learn one template; return None for a rare form without letters or digits, as storing it would store a value."""
    n_rows = len(codes)
    counts = _count_characters(codes)
    positions = _common_positions(codes, counts) if n_rows >= MIN_ROWS else _rare_positions(codes, counts)
    sparse_capacity = _SPARSE * n_rows * per_value
    if _capacity(positions, others) >= sparse_capacity:
        template_positions = _tighten(positions, counts, others, sparse_capacity) if n_rows >= MIN_ROWS else positions
        room = first_word_capacity([len(expand_alphabet(position, others)) for position in template_positions])
        return Template(tuple(template_positions), n_rows, 0, room, False, 1)
    if all(len(position) == 1 for position in positions):
        return Template((), n_rows, 0, 0, True, 1) if not positions else None
    positions = _loosen(positions, others)
    numbers = _numbers(codes, [expand_alphabet(position, others) for position in positions])
    start, room, ordered = _find_interval(numbers, _capacity(positions, others), n_rows, per_value)
    return Template(tuple(positions), n_rows, start, room, ordered, 1)


def _common_positions(codes: NDArray[np.uint32], counts: NDArray[np.intp]) -> list[str]:
    positions: list[str] = []
    for index in range(codes.shape[1]):
        seen_codes = set(np.flatnonzero(counts[index]).tolist())
        if codes[:, index].min() == codes[:, index].max():
            positions.append(chr(codes[0, index]))
        elif (
            seen_codes and seen_codes <= set(_DIGITS[1:]) and (index == 0 or not counts[index - 1, list(_DIGITS)].any())
        ):
            positions.append("1-9")
        else:
            positions.append(_alphabet(seen_codes, is_hexadecimal=seen_codes <= set(_HEXADECIMAL)))
    return positions


def _rare_positions(codes: NDArray[np.uint32], counts: NDArray[np.intp]) -> list[str]:
    """Return the alphabets of a rare form, by class only; hexadecimal if all letters and digits are."""
    seen_codes = [set(np.flatnonzero(count).tolist()) for count in counts]
    characters = codes[np.isin(codes, list(_DIGITS + _LOWER + _UPPER))]
    is_hexadecimal = characters.size >= MIN_ROWS and set(characters.tolist()) <= set(_HEXADECIMAL)
    return [_alphabet(seen, is_hexadecimal) for seen in seen_codes]


def _alphabet(seen: set[int], is_hexadecimal: bool) -> str:
    """Return the position that allows the classes of the ASCII characters seen; "" (non-ASCII) if there are none."""
    if len(seen) == 1 and not chr(min(seen)).isalnum():
        return chr(min(seen))
    digits = "0-9" if seen & set(_DIGITS) else ""
    upper = ("A-F" if is_hexadecimal else "A-Z") if seen & set(_UPPER) else ""
    lower = ("a-f" if is_hexadecimal else "a-z") if seen & set(_LOWER) else ""
    return digits + upper + lower


def _tighten(positions: list[str], counts: NDArray[np.intp], others: str, least: float) -> list[str]:
    """Restrict positions to the characters that most values have there, such as 8, 9, a or b in a UUID.

    Proceeds from the left while at least `least` values remain possible. Only characters seen in `MIN_ROWS` values are
    used. Positions whose characters are about equally frequent are left unchanged.
    """
    tight_positions = list(positions)
    for index, (position, count) in enumerate(zip(positions, counts, strict=True)):
        usual_characters = _usual_characters(count)
        is_choice = len(position) > 1 and 2 <= len(usual_characters) <= _CHOICE * len(expand_alphabet(position, ""))
        narrowed_positions = [*tight_positions[:index], usual_characters, *tight_positions[index + 1 :]]
        if is_choice and _capacity(narrowed_positions, others) >= least:
            tight_positions = narrowed_positions
    return tight_positions


def _usual_characters(count: NDArray[np.intp]) -> str:
    """Return the fewest characters of a position that cover most values."""
    by_frequency = np.argsort(-count, kind="stable")
    n_needed = int(np.searchsorted(np.cumsum(count[by_frequency]), _USUAL * count.sum())) + 1
    usual_codes = [code for code in by_frequency[:n_needed] if count[code] >= MIN_ROWS]
    return "".join(map(chr, sorted(usual_codes)))


def _loosen(positions: list[str], others: str) -> list[str]:
    """Let constant digits vary if varying digits follow: the zeros of "A-0001" to "A-0999" are not literals."""
    loose_positions = list(positions)
    for index in reversed(range(len(loose_positions) - 1)):
        next_position = loose_positions[index + 1]
        if loose_positions[index] in list("0123456789") and next_position.startswith(("0-9", "1-9")):
            widened_positions = [
                *loose_positions[:index],
                next_position.replace("1-9", "0-9"),
                *loose_positions[index + 1 :],
            ]
            loose_positions = widened_positions if _capacity(widened_positions, others) <= MAX_WORD else loose_positions
    return loose_positions


def _find_interval(numbers: NDArray[np.int64], capacity: int, n_rows: int, per_value: float) -> tuple[int, int, bool]:
    """Return start and length of an interval without training values, and whether it continues a sequence."""
    if n_rows >= MIN_ROWS and numbers.size > 0 and np.ptp(numbers) < _DENSE * n_rows * per_value:
        start = int(numbers.max()) + 1
        return start, capacity - start, True
    # Use a free one of 1, 2, 4, 8, ... equal parts: the gap between two values would disclose both.
    n_parts = 1
    while n_parts <= capacity:
        part_size = capacity // n_parts
        free_parts = np.setdiff1d(np.arange(n_parts), numbers // part_size)
        if free_parts.size > 0:
            return int(free_parts[-1]) * part_size, part_size, False
        n_parts *= 2
    return 0, 0, False


def _numbers(codes: NDArray[np.uint32], alphabets: list[str]) -> NDArray[np.int64]:
    """Convert values to numbers in the mixed radix of the alphabets; values with other characters are dropped."""
    numbers = np.zeros(len(codes), dtype=np.int64)
    is_valid = np.ones(len(codes), dtype=np.bool_)
    for position_index, alphabet in enumerate(alphabets):
        if len(alphabet) > 1:
            characters = np.array([ord(character) for character in alphabet], dtype=np.uint32)
            character_index = np.searchsorted(characters, codes[:, position_index]).clip(max=characters.size - 1)
            is_valid &= characters[character_index] == codes[:, position_index]
            numbers = numbers * characters.size + character_index
    return numbers[is_valid]


def _set_growth(template: Template, widest: int) -> Template:
    """Set the width to which the last run of letters and digits grows: wider than any seen in training."""
    n_left = find_growth(template.positions)[2]
    return replace(template, grown_width=widest + 1 - n_left)


def _merge_exhausted(family: list[Template]) -> list[Template]:
    """Give the share of exhausted sequences to the widest one: "9" and "99" continue as "100"."""
    sequences = [template for template in family if template.ordered]
    if not sequences:
        return family
    widest = max(sequences, key=lambda template: (len(template.positions), template.share))
    exhausted_templates = [
        template
        for template in family
        if template is not widest and template.room < template.share and _frame(template) == _frame(widest)
    ]
    remaining_templates = [
        template for template in family if template is not widest and template not in exhausted_templates
    ]
    exhausted_share = sum(template.share for template in exhausted_templates)
    return [*remaining_templates, replace(widest, share=widest.share + exhausted_share)]


def _frame(template: Template) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the positions before and after the run that grows."""
    begin, end, _ = find_growth(template.positions)
    return template.positions[:begin], template.positions[end:]


def _grow_from_nothing(skeletons: pl.DataFrame) -> Template:
    """Return a template for a column of punctuation only: numbers longer than any seen in training."""
    widest = skeletons.filter(pl.col("before") == "", pl.col("after") == "")["widest"].to_list()
    return Template((), 1, 0, 0, True, max(widest, default=0) + 1)


def _keep_most_common(templates: list[Template]) -> tuple[Template, ...]:
    kept_templates = sorted(templates, key=lambda template: (-template.share, template.positions))[:MAX_TEMPLATES]
    n_rows = sum(template.share for template in kept_templates)
    return tuple(replace(template, share=template.share / n_rows) for template in kept_templates)


def _capacity(positions: list[str], others: str) -> int:
    return prod(len(expand_alphabet(position, others)) for position in positions)


def _count_characters(codes: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Count every ASCII character (column) at every position (row)."""
    counts = [np.bincount(np.minimum(column, 128), minlength=129)[:128] for column in codes.T]
    return np.array(counts, dtype=np.intp).reshape(codes.shape[1], 128)


def _mark(codes: NDArray[np.uint32], letter: str, digit: str) -> pl.Series:
    """Replace letters, digits and non-ASCII characters by marks; `letter` may hold one mark per case."""
    character_marks = np.arange(129, dtype=np.uint8)
    character_marks[list(_DIGITS)] = ord(digit)
    character_marks[list(_UPPER)] = ord(letter[0])
    character_marks[list(_LOWER)] = ord(letter[-1])
    character_marks[128] = ord("o")
    return strings_from_codes(character_marks[np.minimum(codes, 128)])


def _codes(values: pl.Series) -> NDArray[np.uint32]:
    """Return the code points of strings of equal length, one row per string."""
    length = len(values[0])
    if length == 0:
        return np.empty((values.len(), 0), dtype=np.uint32)
    return values.to_numpy().astype(f"U{length}").view(np.uint32).reshape(values.len(), length)
