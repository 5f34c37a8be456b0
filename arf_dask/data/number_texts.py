"""Numbers written as text in one format: amounts of money, percentages, sizes with a unit.

A format is what stands before and after the number, the marks between thousands and before decimals, the number of
decimals, and how negative numbers are written. Codes are not numbers: texts with leading zeros, or letters before plain
digits, are left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import polars as pl

LEAST = 20  # minimum number of texts
PROBE = 200
MOST_AFFIX = 12  # characters before or after the number
MOST_DECIMALS = 6
MOST_DIGITS = 15  # that a float holds
MARKS = ((",", "."), (".", ","), ("'", "."), (" ", ","), ("\u00a0", ","), ("\u202f", ","), ("", "."), ("", ","))
SIGNS = ("none", "first", "inner", "brackets")  # no negative numbers; -$5; $-5; ($5)
_PARTS = re.compile(r"(?s)(\(?)(-?)([^0-9(-]*)(-?)([0-9](?:[0-9.,' \u00a0\u202f]*[0-9])?)([^0-9)]*)(\)?)")
_LETTERS = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class NumberForm:
    """The format of a column of numbers in text."""

    prefix: str
    suffix: str
    group: str  # between thousands; empty for none
    decimal: str  # before decimals
    decimals: int
    sign: str  # one of `SIGNS`

    @property
    def dtype(self) -> pl.DataType:
        """The type of the numbers."""
        return pl.Float64() if self.decimals else pl.Int64()

    @property
    def example(self) -> str:
        """A number in this format."""
        return str(write_numbers(pl.Series([1234.5 if self.decimals else 1234]).cast(self.dtype), self)[0])

    @property
    def is_valid(self) -> bool:
        """Whether a format of a model file can be read."""
        marks_differ = self.group != self.decimal and (self.group, self.decimal) in MARKS
        return marks_differ and 0 <= self.decimals <= MOST_DECIMALS and self.sign in SIGNS


def read_numbers(texts: pl.Series, form: NumberForm) -> pl.Series:
    """Read texts of one format as numbers; anything else becomes null.

    >>> read_numbers(pl.Series(["$1,250.00", "-$3.50", "n/a"]), NumberForm("$", "", ",", ".", 2, "first")).to_list()
    [1250.0, -3.5, None]
    """
    before, after = re.escape(form.prefix), re.escape(form.suffix)
    whole = rf"[0-9]{{1,3}}(?:{re.escape(form.group)}[0-9]{{3}})*" if form.group else "[0-9]+"
    decimals = rf"{re.escape(form.decimal)}[0-9]{{{form.decimals}}}" if form.decimals else ""
    number = f"{before}(?P<n>{whole}{decimals}){after}"
    number = {
        "none": number,
        "first": f"(?P<s>-?){number}",
        "inner": f"{before}(?P<s>-?)(?P<n>{whole}{decimals}){after}",
        "brackets": rf"(?P<s>\(?){number}\)?",
    }[form.sign]
    groups = (
        texts.alias("t")
        .cast(pl.String)
        .to_frame()
        .select(pl.col("t").str.extract_groups(f"^{number}$").struct.unnest())
    )
    digits = groups["n"].str.replace_all(form.group, "", literal=True) if form.group else groups["n"]
    digits = digits.str.replace(form.decimal, ".", literal=True) if form.decimals else digits
    numbers = digits.cast(form.dtype, strict=False).alias("")
    if form.sign == "none":
        return numbers
    return (-numbers).zip_with((groups["s"] != "").fill_null(False), numbers)


def write_numbers(numbers: pl.Series, form: NumberForm) -> pl.Series:
    """Write numbers as texts of one format."""
    scale = 10**form.decimals
    value = pl.col("t")
    scaled = (value.abs() * scale).round(0).cast(pl.Int64) if form.decimals else value.abs().cast(pl.Int64)
    whole = (scaled // scale).cast(pl.String)
    if form.group:
        backwards = whole.str.reverse().str.replace_all("([0-9]{3})", f"${{1}}{form.group}")
        whole = backwards.str.strip_chars_end(form.group).str.reverse()
    fraction = (
        [pl.lit(form.decimal), (scaled % scale).cast(pl.String).str.zfill(form.decimals)] if form.decimals else []
    )
    is_negative = (value < 0) & (scaled != 0)
    first, inner, last = (pl.lit(""), pl.lit(""), pl.lit(""))
    if form.sign == "first":
        first = pl.when(is_negative).then(pl.lit("-")).otherwise(pl.lit(""))
    elif form.sign == "inner":
        inner = pl.when(is_negative).then(pl.lit("-")).otherwise(pl.lit(""))
    elif form.sign == "brackets":
        first = pl.when(is_negative).then(pl.lit("(")).otherwise(pl.lit(""))
        last = pl.when(is_negative).then(pl.lit(")")).otherwise(pl.lit(""))
    parts = [first, pl.lit(form.prefix), inner, whole, *fraction, pl.lit(form.suffix), last]
    return numbers.alias("t").to_frame().select(pl.concat_str(parts)).to_series().alias(numbers.name)


def in_number_form(texts: pl.Series, form: NumberForm) -> pl.Series:
    """Flag the texts that reading and writing in a format gives back; nulls are not flagged."""
    texts = texts.alias("").cast(pl.String)
    return (write_numbers(read_numbers(texts, form), form) == texts).fill_null(False)


def number_form(texts: pl.Series) -> NumberForm | None:
    """Return the format in which all texts are numbers, or None.

    >>> form = number_form(pl.Series([f"{gigabytes} GB" for gigabytes in range(40)]))
    >>> None if form is None else form.example
    '1234 GB'
    """
    known = texts.alias("").cast(pl.String).drop_nulls()
    if len(known) < LEAST or not known.head(PROBE).str.contains(r"^[^0-9]{0,12}[0-9]").all():
        return None
    match = _PARTS.fullmatch(str(known[0]))
    if match is None:
        return None
    prefix, suffix = match.group(3), match.group(6)
    if max(len(prefix), len(suffix)) > MOST_AFFIX:
        return None
    sign = _sign(known)
    cores = known.str.extract(r"([0-9].*[0-9]|[0-9])", 1)  # from the first digit to the last
    for group, decimal in MARKS:
        decimals = _n_decimals(str(known[0]), prefix, suffix, decimal)
        form = NumberForm(prefix, suffix, group, decimal, decimals, sign)
        has_mark = bool(group) and bool(cores.str.contains(group, literal=True).any())
        if decimals > MOST_DECIMALS or not _is_amount(form, has_mark=has_mark) or (group and not has_mark):
            continue
        is_written_so = in_number_form(known.head(PROBE), form).all() and in_number_form(known, form).all()
        if is_written_so and known.str.count_matches("[0-9]").max() <= MOST_DIGITS:  # type: ignore[operator]
            return form
    return None


def holds_numbers(values: pl.Series) -> bool:
    """Whether a text column holds numbers in one format."""
    return isinstance(values.dtype, pl.String | pl.Categorical) and number_form(values) is not None


def _sign(texts: pl.Series) -> str:
    """Return how negative numbers are written, if there are any."""
    if texts.str.starts_with("(").any() and texts.str.ends_with(")").any():
        return "brackets"
    if texts.str.starts_with("-").any():
        return "first"
    return "inner" if texts.str.contains("^[^0-9]+-[0-9]").any() else "none"


def _n_decimals(text: str, prefix: str, suffix: str, decimal: str) -> int:
    """Return how many digits follow the last decimal mark of a text; none if the mark does not occur."""
    core = text.strip("()-").removeprefix(prefix).removesuffix(suffix)
    return len(core) - core.rfind(decimal) - 1 if decimal in core else 0


def _is_amount(form: NumberForm, *, has_mark: bool) -> bool:
    """Whether texts of a format are amounts rather than codes: they have marks, decimals, a unit or a currency."""
    has_letters_before = _LETTERS.search(form.prefix) is not None
    if has_letters_before:
        return len(form.prefix.strip()) <= 4 and (has_mark or form.decimals > 0)
    has_symbol = bool(form.prefix.strip()) and form.prefix.strip() not in ("#", "-", "_", "/", "+", ".", ":")
    return has_symbol or has_mark or form.decimals > 1 or bool(form.suffix.strip(" .-_/:#"))


def parse_form(data: dict[str, Any]) -> NumberForm | None:
    """Return the format with these fields, or None if it is not one."""
    form = NumberForm(**data)
    return form if form.is_valid else None
