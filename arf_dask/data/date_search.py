"""Find the format of dates and times written as text, by reading what their groups of digits and letters can mean.

Every group of digits or letters gets a meaning (year, month, hour, ...) that fits its width and its numbers; the
meanings that make up a date or a time are compared by the share of texts that they read. If day and month cannot be
told apart, the other columns of the table decide, and then the separator.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.dates import CLOCK, FIRST_YEAR, MONTHS, WEEKDAYS, form_dtype, in_form, read_dates, tokens

logger = logging.getLogger(__name__)

PROBE = 200
LEAST = 20
MOST_FIELDS = 10
MOST_CHARACTERS = 60
MEANING_SHARE = 0.95  # minimum share of texts whose number fits the meaning of its group
LATEST_YEAR = 2040  # years of two digits are not later, if an earlier century is possible
ZONES = (
    *("America/New_York", "America/Chicago", "America/Denver", "America/Los_Angeles", "America/Phoenix"),
    *("America/Anchorage", "America/Halifax", "America/Sao_Paulo", "Europe/London", "Europe/Berlin", "Europe/Athens"),
    *("Europe/Moscow", "Europe/Istanbul", "Africa/Cairo", "Africa/Johannesburg", "Asia/Jerusalem", "Asia/Dubai"),
    *("Asia/Kolkata", "Asia/Shanghai", "Asia/Tokyo", "Australia/Sydney", "Australia/Adelaide", "Pacific/Auckland"),
)
BOUNDS = {
    "m": (1, 12),
    "d": (1, 31),
    "H": (0, 23),
    "M": (0, 59),
    "S": (0, 59),
    "I": (1, 12),
    "q": (1, 4),
    "Y": (1500, 2400),
}
ORDERS = ("Ymd", "dmY", "mdY", "ymd", "dmy", "mdy", "Ym", "mY", "Yq", "qY", "yq", "qy")
NAMED_ORDERS = ("Ymd", "dmY", "mdY", "dmy", "mdy", "ymd", "my", "ym", "Ym", "mY")
_FIELD = re.compile(r"%(?:\([^)]*\))?[-^~]?\d?:?([A-Za-z])")
_FRACTION = re.compile(r"\.%(\d)f")
RUNS = {8: ("%Y%m%d", "%d%m%Y", "%m%d%Y"), 14: ("%Y%m%d%H%M%S",), 12: ("%Y%m%d%H%M",), 6: ("%H%M%S", "%Y%m")}


class Found(NamedTuple):
    """A format of a column of dates."""

    form: str
    rival: str | None  # the format with day and month exchanged, if it fits as well


class Group(NamedTuple):
    """A group of digits or letters that has the same place in all texts."""

    kind: str  # "0" digits, "A" letters, "+" the offset of a time zone
    texts: pl.Series
    before: str  # literal text between the group before and this one


def date_form(texts: pl.Series, least_share: float = 1.0) -> str | None:
    """Return the format in which the texts are dates, datetimes or times, or None.

    Args:
        texts: The texts of a column; nulls are not looked at.
        least_share: The least share of the texts that must have the format.

    >>> date_form(pl.Series([f"{day}-Jan-24" for day in range(1, 31)])), date_form(pl.Series(["a", "b"] * 20))
    ('%-d-%b-%y', None)
    """
    found = find_date_form(texts, least_share)
    return None if found is None else found.form


def date_forms(columns: Iterable[pl.Series], least_share: float = 1.0, *, tell: bool = False) -> dict[str, str]:
    """Return the formats of the text columns that hold dates; columns whose day is certain decide for the others.

    Args:
        columns: The columns of a table; those of other types are not looked at.
        least_share: The least share of the texts of a column that must have its format.
        tell: Whether to log which columns could be read with day and month exchanged.
    """
    found = {
        column.name: one
        for column in columns
        if _is_text(column.dtype) and (one := find_date_form(column, least_share)) is not None
    }
    votes = [_day_first(one.form) for one in found.values() if one.rival is None]
    majority = votes.count(True) - votes.count(False)
    undecided = [name for name, one in found.items() if one.rival is not None and majority == 0]
    if tell and undecided:
        logger.warning(
            "%s: day and month cannot be told apart; read as %s. Convert them to dates before fit if this is wrong.",
            ", ".join(map(repr, undecided)),
            ", ".join(sorted({found[name].form for name in undecided})),
        )
    return {name: _elected(one, majority) for name, one in found.items()}


def _elected(found: Found, majority: int) -> str:
    """Return the format of a column, given how many more columns have the day before the month than after it."""
    if found.rival is None or majority == 0 or _day_first(found.form) == (majority > 0):
        return found.form
    return found.rival


def find_date_form(texts: pl.Series, least_share: float = 1.0) -> Found | None:
    """Return the format of a column of texts, and its rival if day and month cannot be told apart."""
    known = texts.alias("").cast(pl.String).drop_nulls()
    if len(known) < LEAST or not _may_hold_dates(known.head(PROBE)):
        return None
    skeleton, alike = _common_skeleton(known, least_share)
    if skeleton is None:
        return None
    groups = _groups(skeleton, alike)
    candidates = [] if groups is None else list(dict.fromkeys(_forms(groups, ("%e" if "  0" in skeleton else ""))))
    shares = {form: float(in_form(known, form).sum()) / len(known) for form in candidates if tokens(form) is not None}
    best_share = max(shares.values(), default=0.0)
    if best_share < least_share or not best_share:
        return None
    best = [form for form, share in shares.items() if share >= best_share - 1e-9]
    best.sort(key=lambda form: -_day_variety(alike, form))
    form = best[0]
    exchanged = {True: False, False: True, None: "none"}[_day_first(form)]
    rivals = [one for one in best[1:] if _day_first(one) is exchanged]
    preferred = _preferred(form, rivals[0]) if rivals else form
    rival = (rivals[0] if preferred == form else form) if rivals else None
    return Found(_with_century(preferred, alike), None if rival is None else _with_century(rival, alike))


def are_dates(values: pl.Series) -> bool:
    """Whether a text column holds dates or datetimes."""
    return _is_text(values.dtype) and date_form(values, MEANING_SHARE) is not None


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String | pl.Categorical)


def _may_hold_dates(texts: pl.Series) -> bool:
    """Whether most texts are short, have digits, and are not plain numbers."""
    has_digits = texts.str.contains("[0-9]") & (texts.str.len_chars() <= MOST_CHARACTERS)
    return bool(has_digits.sum() >= 0.8 * len(texts))


def _common_skeleton(texts: pl.Series, least_share: float) -> tuple[str | None, pl.Series]:
    """Return the commonest skeleton (A for letters, 0 for digits, + for an offset) and the texts that have it."""
    skeletons = (
        texts.str.replace_all(r"\p{L}+", "A")
        .str.replace(r"(:[0-9]{2}(?:[.,][0-9]+)? ?)[+-][0-9]{2}:?[0-9]{2}\b", "${1}\u0001")
        .str.replace_all("[0-9]+", "0")
        .str.replace("A  0 ", "A 0 ", literal=True)
    )
    counts = skeletons.value_counts(sort=True)
    skeleton, n_rows = counts.row(0)
    if n_rows < least_share * len(texts) or n_rows < LEAST or "%" in skeleton:
        return None, texts
    alike = texts.filter(skeletons == skeleton)
    is_padded = bool(alike.str.contains(r"\p{L}  [0-9] ").any())
    return (skeleton.replace("A 0 ", "A  0 ", 1) if is_padded else skeleton), alike


def _groups(skeleton: str, texts: pl.Series) -> list[Group] | None:
    """Return the groups of a skeleton with their texts; None if they are too many."""
    parts = re.findall("[A0\u0001]|[^A0\u0001]+", skeleton)
    marks = [part for part in parts if part in ("A", "0", "\u0001")]
    if not 1 <= len(marks) <= MOST_FIELDS:
        return None
    pattern = {"A": r"(\p{L}+)", "0": "([0-9]+)", "\u0001": "([+-][0-9]{2}:?[0-9]{2})"}
    expression = "".join(pattern.get(part) or re.escape(part).replace(r"\ \ ", " +") for part in parts)
    found = texts.str.extract_groups(f"^{expression}$").struct.unnest()
    groups: list[Group] = []
    before = ""
    for part in parts:
        if part in pattern:
            kind = "+" if part == "\u0001" else part
            groups.append(Group(kind, found.to_series(len(groups)), before))
            before = ""
        else:
            before = " " if part == "  " else part
    return [*groups, Group("end", texts[:0], before)]


def _forms(groups: Sequence[Group], day_padding: str) -> Iterator[str]:
    """Return every format that the groups can have."""
    options = [_meanings(group) for group in groups[:-1]]
    if not all(options):
        return
    unpadded = any(option.startswith("%-") and option[2:] in ("m", "d") for one in options for option in one)
    options = [_padded_alike(one, group, unpadded, day_padding) for one, group in zip(options, groups, strict=False)]
    for chosen in _assignments(groups, options, ()):
        form = "".join(f"{group.before}{part}" for group, part in zip(groups, chosen, strict=False))
        yield _FRACTION.sub(r"%.\1f", form) + groups[-1].before


def _assignments(
    groups: Sequence[Group], options: Sequence[list[str]], chosen: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    """Return the choices of one meaning per group that make up a date, a time, or both."""
    if len(chosen) == len(options):
        if _is_meaningful(groups, chosen):
            yield chosen
        return
    used = _kinds(chosen)
    for option in options[len(chosen)]:
        kinds = _kinds((option,))
        if not set(kinds) & set(used) and _follows(groups[len(chosen)].before, used, kinds):
            yield from _assignments(groups, options, (*chosen, option))


def _kinds(parts: Sequence[str]) -> str:
    """Return the kinds of fields of parts of a format, in order; the names of months are m."""
    found = [kind for part in parts for kind in _FIELD.findall(part)]
    return "".join({"b": "m", "B": "m", "A": "a", "e": "d", "I": "H"}.get(kind, kind) for kind in found)


def _follows(before: str, used: str, kinds: str) -> bool:
    """Whether a group may have these meanings after others: hours, minutes, seconds and fractions follow each other."""
    for kind in kinds[:1]:
        if kind == "M":
            return used.endswith("H") and before in (":", ".", "")
        if kind == "S":
            return used.endswith("M") and before in (":", ".", "")
        if kind == "f":
            return used.endswith("S") and before in (".", ",")
        if kind == "z":
            return "M" in used
        if kind == "q":
            return True
    return True


def _is_meaningful(groups: Sequence[Group], chosen: tuple[str, ...]) -> bool:
    """Whether the chosen meanings are a date in a usual order, a time with separators, or both."""
    kinds = _kinds(chosen)
    has_name = any(part[-1] in "bB" for part in chosen if part.startswith("%"))
    order = "".join(kind for kind in kinds if kind in "Yymdq")
    clock = "".join(kind for kind in kinds if kind in CLOCK)
    if (any("%I" in part or "%-I" in part for part in chosen)) != ("p" in kinds):
        return False
    if clock not in ("", "HM", "HMS", "HMSf") or ("a" in kinds and "d" not in order):
        return False
    if not order:
        place = next((place for place, part in enumerate(chosen) if part.endswith("M")), -1)
        return clock != "" and place > 0 and groups[place].before == ":"
    if clock and "d" not in order:
        return False
    if ("q" in order) != _has_quarter_mark(chosen):
        return False
    return order in (NAMED_ORDERS if has_name else ORDERS)


def _has_quarter_mark(chosen: tuple[str, ...]) -> bool:
    """Whether a letter Q stands next to a single digit."""
    is_mark = [part in ("Q", "q") for part in chosen]
    digits = [part in ("%q", "%-m", "%-d", "%-H") for part in chosen]
    return any((a and d) or (b and c) for (a, c), (b, d) in pairwise(zip(is_mark, digits, strict=True)))


def _meanings(group: Group) -> list[str]:
    """Return what a group can mean, as parts of a format; its own text if it is always the same."""
    if group.kind == "+":
        return _offsets(group.texts)
    if group.kind == "A":
        return _word_meanings(group.texts)
    widths = group.texts.str.len_chars()
    low_width, high_width = int(widths.min()), int(widths.max())  # type: ignore[arg-type]
    numbers = group.texts.cast(pl.Int64, strict=False).to_numpy()
    meanings: list[str] = []
    if high_width <= 2:
        has_padding = bool(((widths == 2) & group.texts.str.starts_with("0")).any())
        if low_width == 2:
            meanings += [f"%{kind}" for kind in "mdHIMS" if _fits(numbers, kind)] + ["%y"]
        elif not has_padding:
            meanings += [f"%-{kind}" for kind in "mdHI" if _fits(numbers, kind)]
            meanings += ["%q"] if high_width == 1 and _fits(numbers, "q") else []
    if low_width == high_width:
        meanings += ["%Y"] if low_width == 4 and _fits(numbers, "Y") else []
        meanings += RUNS.get(low_width, ())
        meanings += [f"%{low_width}f"] if group.before in (".", ",") and low_width <= 6 else []
    return meanings


def _fits(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], kind: str) -> bool:
    low, high = BOUNDS[kind]
    return bool(np.mean((numbers >= low) & (numbers <= high)) >= MEANING_SHARE)


def _padded_alike(meanings: list[str], group: Group, unpadded: bool, day_padding: str) -> list[str]:
    """Let numbers that all have two digits be unpadded, if another part of the date is not padded."""
    if day_padding:
        meanings = [day_padding if one == "%-d" else one for one in meanings]
    if not unpadded or day_padding or group.texts.str.starts_with("0").any():
        return meanings
    return [f"%-{one[1]}" if one in ("%m", "%d") else one for one in meanings]


def _word_meanings(texts: pl.Series) -> list[str]:
    words = texts.unique().to_list()
    for flag, case in (("", str.title), ("^", str.upper), ("~", str.lower)):
        names = {"b": [name[:3] for name in MONTHS], "B": MONTHS, "a": [name[:3] for name in WEEKDAYS], "A": WEEKDAYS}
        for kind, known in names.items():
            if _mostly(words, {case(name) for name in known}, texts):
                return [f"%{flag}{kind}"]
        if _mostly(words, {"am", "pm"} if flag == "~" else {"AM", "PM"} if not flag else set(), texts):
            return [f"%{flag}p"]
    return [words[0]] if len(words) == 1 and len(words[0]) <= 4 else []


def _mostly(words: Sequence[str], known: set[str], texts: pl.Series) -> bool:
    """Whether words of a set make up nearly all texts."""
    if not known & set(words):
        return False
    return bool(texts.is_in(sorted(known)).mean() >= MEANING_SHARE)  # type: ignore[operator]


def _offsets(texts: pl.Series) -> list[str]:
    """Return the offset that all texts have, or the offsets of time zones."""
    offsets = texts.unique().to_list()
    if len(offsets) == 1:
        return offsets
    colon = ":" if all(":" in offset for offset in offsets) else ""
    return [f"%({zone}){colon}z" for zone in ZONES]


def _day_first(form: str) -> bool | None:
    """Whether the day comes before the month; None if the month has a name, or one of them is missing."""
    kinds = "".join(token.kind for token in tokens(form) or ())
    day, month = max(kinds.find("d"), kinds.find("e")), kinds.find("m")
    is_year_first = 0 <= max(kinds.find("Y"), kinds.find("y")) < min(day, month)
    return None if min(day, month) < 0 or is_year_first else day < month


def _preferred(form: str, rival: str) -> str:
    """Return the format that the separator suggests: month first with slashes, day first otherwise."""
    month_first, day_first = (form, rival) if not _day_first(form) else (rival, form)
    return month_first if "/" in form else day_first


def _day_variety(texts: pl.Series, form: str) -> int:
    """Return how many days of the month occur, in steps that tell days from years: the more, the better the format."""
    dates = read_dates(texts, form)
    if dates.dtype == pl.Time or "y" not in "".join(token.kind for token in tokens(form) or ()):
        return 0
    return int(dates.dt.day().n_unique() > dates.dt.year().n_unique())


def _with_century(form: str, texts: pl.Series) -> str:
    """Say in which hundred years the years of two digits lie, if they are not those of strftime."""
    if "%y" not in form or form_dtype(form) == pl.Time():
        return form
    years = np.unique(read_dates(texts, form).dt.year().drop_nulls().to_numpy() % 100)
    first = _first_year(years.tolist())
    return form if first == FIRST_YEAR else form.replace("%y", f"%({first})y")


def _first_year(years: Sequence[int]) -> int:
    """Return the first of the hundred years of two-digit years: in the middle of the widest gap between them.

    >>> _first_year([98, 99, 0, 1]), _first_year([52, 60, 95]), _first_year([5, 60])
    (1969, 1924, 1933)
    """
    ordered = sorted(years)
    gaps = [(high - low, low) for low, high in pairwise([*ordered, ordered[0] + 100])]
    width, low = max(gaps)
    cut = (low + (width + 1) // 2) % 100
    unwrapped = [year if year >= cut else year + 100 for year in ordered]
    century = next(century for century in (2000, 1900, 1800) if max(unwrapped) + century <= LATEST_YEAR)
    first = century + cut
    is_usual = all(FIRST_YEAR <= century + year < FIRST_YEAR + 100 for year in unwrapped)
    return FIRST_YEAR if is_usual else first
