"""Texts that a formula joins are taken apart where they are known and their pieces are not."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.grammar import parse_expression, parse_rule
from arf_dask.rules.joined_texts import take_apart
from arf_dask.rules.solving import adjust

ROWS = 400


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    first = pl.Series(rng.choice([f"{letter}{i}" for letter in "ABC" for i in range(9)], ROWS))
    second = pl.Series(rng.integers(10, 40, ROWS))
    return pl.DataFrame({"first": first, "second": second, "x": rng.normal(size=ROWS)}).with_columns(
        both=first + "-" + second.cast(pl.String)
    )


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    rule = 'both == first + "-" + text(second)'
    return arf_dask.fit(table(), rules=[rule], find_rules=False, trees=3, max_rounds=1, refine=False, seed=1)


def taken(text: str | None, formula: str, *, chance: float | None = None, **known: str | None) -> list[str | None]:
    rows = pl.DataFrame({name: pl.Series([value], dtype=pl.String) for name, value in known.items()})
    texts = pl.Series([text], dtype=pl.String)
    found = take_apart(texts, parse_expression(formula), rows, None if chance is None else np.array([chance]))
    return [found[name][0] for name in known]


def test_one_mark_tells_both_pieces() -> None:
    assert taken("A0-32", 'a + "-" + b', a=None, b=None) == ["A0", "32"]


def test_known_pieces_are_removed_from_the_ends() -> None:
    assert taken("A-0-32", 'a + "-" + b', a=None, b="32") == ["A-0", None]
    assert taken("A-0-32", 'a + "-" + b', a="A", b=None) == [None, "0-32"]
    assert taken("A0-32", 'a + "-" + b', a="B0", b=None) == [None, None]


def test_as_many_marks_as_pieces_tell_all_of_them() -> None:
    assert taken("2020-05-17", 'y + "-" + m + "-" + d', y=None, m=None, d=None) == ["2020", "05", "17"]


def test_several_ways_are_told_by_nothing_but_chance() -> None:
    assert taken("a-b-c", 'x + "-" + y', x=None, y=None) == [None, None]
    assert taken("a-b-c", 'x + "-" + y', chance=0.2, x=None, y=None) == ["a", "b-c"]
    assert taken("a-b-c", 'x + "-" + y', chance=0.7, x=None, y=None) == ["a-b", "c"]
    assert taken("abc", "x + y", chance=0.3, x=None, y=None) == ["a", "bc"]


def test_texts_without_the_mark_and_unknown_texts_tell_nothing() -> None:
    assert taken("A032", 'a + "-" + b', a=None, b=None) == [None, None]
    assert taken(None, 'a + "-" + b', a=None, b=None) == [None, None]


def test_a_part_of_a_text_is_exchanged() -> None:
    rows = pl.DataFrame({"code": ["A0-32"], "start": ["B1"], "end": ["10"]})
    for rule, expected in (('start == before(code, "-")', "B1-32"), ('end == after(code, "-")', "A0-10")):
        adjusted = adjust(parse_rule(rule), "code")
        assert adjusted is not None
        assert evaluate(adjusted, rows)[0] == expected


def test_imputation_takes_known_texts_apart(model: arf_dask.Model) -> None:
    known = table().head(30).with_columns(first=pl.lit(None, pl.String), second=pl.lit(None, pl.Int64))
    (filled,) = model.impute(known, draws=1, seed=1)
    assert filled.equals(table().head(30))


def test_rows_under_a_joined_text_are_found_at_once(model: arf_dask.Model) -> None:
    text = table()["both"][0]
    rows = model.sample(50, given={"both": text}, seed=1)
    assert rows["both"].unique().to_list() == [text]
    with pytest.raises(arf_dask.ImpossibleConditionError):
        model.sample(5, given={"both": "Z9-11"})


def test_a_text_is_completed_from_two_texts_that_it_contains() -> None:
    frame = (
        table()
        .select("x", code="both")
        .with_columns(start=pl.col("code").str.split("-").list.first(), end=pl.col("code").str.split("-").list.last())
    )
    rules = ['start == before(code, "-")', 'end == after(code, "-")']
    options = {"trees": 3, "max_rounds": 1, "refine": False, "columns": {"code": "categorical"}}
    model = arf_dask.fit(frame, rules=rules, find_rules=False, seed=1, **options)  # type: ignore[arg-type]
    known = frame.head(20).with_columns(code=pl.lit(None, pl.String), x=pl.lit(None, pl.Float64))
    (filled,) = model.impute(known, draws=1, seed=1)
    assert filled["code"].equals(frame["code"].head(20))
