"""Numbers in text: every format is found, read, and written as it was; codes are left alone."""

import numpy as np
import polars as pl
import pytest

from arf_dask.data.number_texts import in_number_form, number_form, read_numbers, write_numbers

RNG = np.random.default_rng(0)
AMOUNTS = np.round(RNG.gamma(1, 3_000, 300), 2)
WHOLE = RNG.integers(1, 90_000, 300)
FORMATS = {
    "$5,623.00": [f"${a:,.2f}" for a in AMOUNTS],
    "-$5.00": [f"{'-' if i % 3 == 0 else ''}${a:,.2f}" for i, a in enumerate(AMOUNTS)],
    "$-5.00": [f"${'-' if i % 3 == 0 else ''}{a:,.2f}" for i, a in enumerate(AMOUNTS)],
    "(5.00)": [f"({a:,.2f})" if i % 3 == 0 else f"{a:,.2f}" for i, a in enumerate(AMOUNTS)],
    "SR 1,200": [f"SR {a:,}" for a in WHOLE],
    "1.234,56 €": [f"{a:,.2f} €".translate(str.maketrans(",.", ".,")) for a in AMOUNTS],
    "1'234.50": [f"{a:,.2f}".replace(",", "'") for a in AMOUNTS],
    "45%": [f"{a % 101}%" for a in WHOLE],
    "4.5 %": [f"{a / 100:.1f} %" for a in AMOUNTS],
    "159 GB": [f"{a} GB" for a in WHOLE],
    "10,000+": [f"{a:,}+" for a in WHOLE],
    "5 min": [f"{a % 100 + 1} min" for a in WHOLE],
    "12.50": [f"{a:.2f}" for a in AMOUNTS],
}
CODES = {
    "leading zeros": [f"{a:05}" for a in WHOLE],
    "leading zeros with a unit": [f"{a:05} kg" for a in WHOLE],
    "letters": [f"AB{a}" for a in WHOLE],
    "a word": [f"Room {a}" for a in WHOLE],
    "digits": [str(a) for a in WHOLE],
    "numbered": [f"#{a}" for a in WHOLE],
    "two numbers": [f"{a}-{a + 5}" for a in WHOLE],
    "versions": [f"{a}.{b}.{c}" for a, b, c in RNG.integers(0, 20, (300, 3))],
    "addresses": [f"{a}.{b}.{c}.{d}" for a, b, c, d in RNG.integers(0, 256, (300, 4))],
    "dates": [f"{d:02}.{m:02}.2024" for d, m in zip(RNG.integers(1, 29, 300), RNG.integers(1, 13, 300), strict=True)],
    "words": [str(word) for word in RNG.choice(["a", "b"], 300)],
    "one exception": [*(f"${a:,.2f}" for a in AMOUNTS), "free"],
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_found_and_written_as_it_was(name: str) -> None:
    texts = pl.Series(FORMATS[name])
    form = number_form(texts)
    assert form is not None
    assert in_number_form(texts, form).all()
    assert write_numbers(read_numbers(texts, form), form).equals(texts)


def test_numbers_have_their_sign_and_their_marks() -> None:
    numbers = {
        name: read_numbers(pl.Series([name]), form)
        for name in FORMATS
        if (form := number_form(pl.Series(FORMATS[name])))
    }
    assert {name: float(one[0]) for name, one in numbers.items()} == {
        "$5,623.00": 5623.0,
        "-$5.00": -5.0,
        "$-5.00": -5.0,
        "(5.00)": -5.0,
        "SR 1,200": 1200.0,
        "1.234,56 €": 1234.56,
        "1'234.50": 1234.5,
        "45%": 45.0,
        "4.5 %": 4.5,
        "159 GB": 159.0,
        "10,000+": 10000.0,
        "5 min": 5.0,
        "12.50": 12.5,
    }


def test_the_space_before_a_unit_is_no_mark_between_thousands() -> None:
    form = number_form(pl.Series(FORMATS["159 GB"]))
    assert form is not None
    assert write_numbers(pl.Series([70_000]), form).to_list() == ["70000 GB"]


@pytest.mark.parametrize("name", CODES)
def test_codes_are_no_numbers(name: str) -> None:
    assert number_form(pl.Series(CODES[name])) is None
