"""Dates and times in text: every format is found, read, and written as it was."""

import datetime as dt
import logging

import numpy as np
import polars as pl
import pytest

from arf_dask.data.date_search import are_dates, date_form, date_forms, find_date_form
from arf_dask.data.dates import form_dtype, in_form, read_dates, sorts_as_text, tokens, write_dates

INSTANTS = (
    pl.Series(np.random.default_rng(0).integers(0, 10 * 365 * 86_400_000, 400) + 1_100_000_000_000)
    .cast(pl.Datetime("ms"))
    .cast(pl.Datetime("us"))
)
FORMS = """
%Y-%m-%d|%Y/%m/%d|%Y.%m.%d|%d.%m.%Y|%-d.%-m.%Y|%d.%m.%y|%d-%m-%Y|%m-%d-%Y|%m/%d/%Y|%d/%m/%Y|%-m/%-d/%Y|%m/%d/%y
%d/%m/%y|%y-%m-%d|%Y%m%d|%Y-%m|%m/%Y|%b-%y|%b %Y|%B %Y|%YQ%q|Q%q %Y|%Y-Q%q|%b %d %Y|%d %b %Y|%d-%b-%y|%-d-%b-%y
%d-%^b-%Y|%B %-d, %Y|%b %-d, %Y|%A, %B %-d, %Y|%-H:%M|%H:%M|%H:%M:%S|%I:%M %p|%-I:%M:%S %p|%-I:%M%~p
%Y-%m-%dT%H:%M:%SZ|%Y-%m-%dT%H:%M:%S|%Y-%m-%d %H:%M:%S|%Y-%m-%d %H:%M|%Y/%m/%d %H:%M:%S|%Y-%m-%dT%H:%M:%S%.3fZ
%Y-%m-%dT%H:%M:%S%.6f+00:00|%Y-%m-%d %H:%M:%S,%3f|%Y%m%dT%H%M%S|%Y%m%d%H%M%S|%-m/%-d/%Y %H:%M|%-m/%-d/%y %-H:%M
%d.%m.%Y %H:%M|%m-%d-%Y %I:%M:%S %p|%Y-%m-%d %H:%M:%S UTC|%a %b %d %H:%M:%S %Y|%a %b %e %H:%M:%S %Y
%a %b %d %H:%M:%S +0000 %Y|%a, %d %b %Y %H:%M:%S GMT|%d/%b/%Y:%H:%M:%S +0000|[%d/%b/%Y:%H:%M:%S +0100]
%Y-%m-%d %H:%M:%S %(America/Los_Angeles)z|%Y-%m-%dT%H:%M:%S%(Europe/Berlin):z
"""
EVERY_FORM = FORMS.strip().replace("\n", "|").split("|")


@pytest.mark.parametrize("form", EVERY_FORM)
def test_every_format_is_found_and_written_as_it_was(form: str) -> None:
    dtype = form_dtype(form)
    values = INSTANTS.dt.time() if dtype == pl.Time else INSTANTS.cast(dtype)
    texts = write_dates(values, form)
    assert date_form(texts) == form
    assert in_form(texts, form).all()
    coarse = read_dates(texts, form)
    assert coarse.dtype == dtype
    assert write_dates(coarse, form).equals(texts)


def test_days_and_times_that_do_not_exist_are_null() -> None:
    texts = pl.Series(["2024-02-29", "2023-02-29", "2100-02-29", "2000-02-29", "2023-13-01", "2023-04-31", "2023-4-1"])
    assert read_dates(texts, "%Y-%m-%d").is_not_null().to_list() == [True, False, False, True, False, False, False]
    clocks = pl.Series(["12:05 AM", "12:05 PM", "00:05 AM", "11:60 PM"])
    assert read_dates(clocks, "%I:%M %p").to_list() == [dt.time(0, 5), dt.time(12, 5), None, None]


def test_every_day_of_eight_centuries_is_read() -> None:
    days = pl.date_range(dt.date(1590, 1, 1), dt.date(2405, 1, 1), eager=True)
    assert read_dates(days.dt.to_string("%Y-%m-%d"), "%Y-%m-%d").equals(days)


def test_offsets_follow_the_clocks_of_a_time_zone() -> None:
    local = pl.Series([dt.datetime(2024, 1, 5, 12), dt.datetime(2024, 7, 5, 12)])
    texts = write_dates(local, "%Y-%m-%d %H:%M %(America/Los_Angeles)z")
    assert texts.to_list() == ["2024-01-05 12:00 -0800", "2024-07-05 12:00 -0700"]
    assert not in_form(pl.Series(["2024-07-05 12:00 -0800"]), "%Y-%m-%d %H:%M %(America/Los_Angeles)z").any()


def test_years_of_two_digits_lie_on_the_side_of_a_gap_where_the_others_do() -> None:
    births = pl.Series(np.random.default_rng(1).integers(-14_000, -2_000, 300)).cast(pl.Int32).cast(pl.Date)
    form = date_form(write_dates(births, "%m/%d/%y"))
    assert form is not None
    assert read_dates(write_dates(births, "%m/%d/%y"), form).equals(births)  # 1931 to 1964
    assert tokens("%m/%d/%(31)y") is None


def test_other_columns_decide_which_is_the_day_and_otherwise_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    unclear = pl.Series("a", [f"{i % 12 + 1:02}/{i % 7 + 1:02}/2020" for i in range(100)])
    clear = pl.Series("b", [f"{i % 28 + 1:02}.{i % 7 + 1:02}.2020" for i in range(100)])
    found = find_date_form(unclear)
    assert found is not None
    assert (found.form, found.rival) == ("%m/%d/%Y", "%d/%m/%Y")
    assert date_forms([unclear, clear]) == {"a": "%d/%m/%Y", "b": "%d.%m.%Y"}
    with caplog.at_level(logging.WARNING):
        assert date_forms([unclear], tell=True) == {"a": "%m/%d/%Y"}
    assert len(caplog.records) == 1


def test_texts_sort_as_dates_only_with_the_year_first_and_fixed_widths() -> None:
    assert [sorts_as_text(form) for form in ("%Y%m%dT%H%M%S", "%Y-%-m-%d", "%d.%m.%Y", "%Y %b")] == [True] + [False] * 3


def random_texts(kind: int, rng: np.random.Generator) -> list[str]:
    n, r = 200, rng.integers
    match kind:
        case 0:
            return [f"{a}.{b}.{c}" for a, b, c in r(0, 256, (n, 3))]
        case 1:
            return [f"{a:08d}" for a in r(0, 10**8, n)]
        case 2:
            return [f"{a:06d}" for a in r(0, 10**6, n)]
        case 3:
            return [f"ORD-{a:04d}-{b:02d}" for a, b in zip(r(0, 9_999, n), r(1, 13, n), strict=True)]
        case 4:
            return [
                f"{a} {b}" for a, b in zip(r(1, 9_999, n), rng.choice(["May St", "March Rd", "Oak"], n), strict=True)
            ]
        case 5:
            return [f"{a}:{b}" for a, b in zip(r(0, 90, n), r(10, 60, n), strict=True)]
        case 6:
            return [
                f"({a}) {b}-{c:04d}" for a, b, c in zip(r(200, 999, n), r(200, 999, n), r(0, 9_999, n), strict=True)
            ]
        case 7:
            return [f"${a:,.2f}" for a in rng.random(n) * 5_000]
        case 8:
            return [f"{a:04d}" for a in r(1_900, 2_030, n)]
    return [f"{a:.2f}" for a in rng.random(n) * 23]


def test_random_texts_are_not_dates() -> None:
    rng = np.random.default_rng(3)
    assert not any(are_dates(pl.Series(random_texts(i % 10, rng))) for i in range(200))
