"""The grammar of rules: what is read, how it is written again, and what is refused with which words."""

import datetime as dt
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arf_dask.errors import OptionError
from arf_dask.rules.declaring import check_declared, read_expression, read_rules
from arf_dask.rules.evaluation import evaluate, satisfied
from arf_dask.rules.expressions import Constant, Name, Operation, write
from arf_dask.rules.grammar import parse_expression, parse_rule
from arf_dask.rules.solving import solve

FRAME = pl.DataFrame(
    {
        "total": [10.0, 7.13, None],
        "price": [5.0, 2.5, 1.0],
        "count": pl.Series([2, 3, 1], dtype=pl.UInt8),
        "discount": [0.0, 0.05, 0.1],
        "start": [dt.date(2020, 1, 1), dt.date(2020, 2, 1), None],
        "end": [dt.date(2020, 1, 5), dt.date(2020, 2, 1), dt.date(2021, 1, 1)],
        "days": [4, 0, 3],
        "first name": ["x", "y", "z"],
        "code": ["x-1", "y-2", "q-3"],
        "scheduled": [2355, 1000, 905],
        "delay": [10, -5, 0],
        "actual": [5, 955, 905],
    }
)


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("total == price * count * (1 - discount)", [True, True, False]),
        ("start <= end", [True, True, False]),
        ("end == start + days(days)", [True, True, False]),
        ("`first name` == before(code, '-')", [True, True, False]),
        ("actual == clock(clock_minutes(scheduled) + delay)", [True, True, True]),
        ("days == in_days(end - start)", [True, True, False]),
        ("year(end) == 2020", [True, True, False]),
        ("total == price * count + one_of(0, -0.37, 5)", [True, True, False]),
        ("count + 1 > days", [False, True, False]),
        ("max(days, delay) == 10", [True, False, False]),
    ],
)
def test_rules_hold_where_they_should(text: Any, held: Any) -> None:
    known, holds = satisfied(parse_rule(text), FRAME, {"total": 2})
    assert (known & holds).tolist() == held


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = b", "Compare with =="),
        ("total ==", "its end"),
        ("total", "a comparison"),
        ("total == prise(start)", "no function 'prise'"),
        ("total == round(price, 1, 2)", "takes 1 to 2 arguments"),
        ("1 == 2", "names no column"),
        ("(" * 60 + "a" + ")" * 60 + " == b", "brackets"),
        ("a == 'b", "cannot read"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(text: Any, words: Any) -> None:
    with pytest.raises(OptionError, match=r"rule") as told:
        parse_rule(text)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (["total == totl"], "Did you mean 'total'"),
        (["total == start"], "cannot be compared"),
        (["year(total) == 1"], "year takes date or datetime"),
        (["start + end == start"], "does not join"),
        (["total == price", "total == days"], "both decide 'total'"),
        (["total == price + 1", "price == total - 1"], "go in circles"),
        (["code != `first name`", ["code", "key"]], "is a key"),
        ([["code"]], "fewer than two columns"),
        ([7], "is no rule"),
        ([["code", "days"], ["code", "delay"]], "two lists"),
        (["code == upper(`first name`)", ["code", "days"]], "decides too"),
    ],
)
def test_rules_that_cannot_be_are_refused(rules: Any, words: Any) -> None:
    dtypes = {**FRAME.schema, "key": pl.Int64()}
    with pytest.raises(OptionError) as told:
        check_declared(read_rules(rules), dtypes, ["key"])
    assert words in str(told.value)


def test_polars_expressions_are_translated() -> None:
    expression = pl.col("total") == (pl.col("price") * pl.col("count") * (1 - pl.col("discount"))).round(2)
    assert str(read_expression(expression)) == "total == round(price * count * (1 - discount), 2)"
    assert str(read_expression(pl.col("start").dt.year() <= pl.col("days"))) == "year(start) <= days"
    with pytest.raises(OptionError, match="Write it as text"):
        read_expression(pl.col("a").rolling_mean(2) == pl.col("b"))
    with pytest.raises(OptionError, match="compares nothing"):
        read_expression(pl.col("a") + 1)


NODES = st.recursive(
    st.one_of(
        st.text(min_size=1, max_size=8).filter(lambda s: s.encode("utf-8", "ignore").decode() == s).map(Name),
        st.integers(-1000, 1000).map(Constant),
        st.floats(-1e6, 1e6, allow_nan=False).map(Constant),
    ),
    lambda inner: st.builds(Operation, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner, inner),
    max_leaves=8,
)


@given(NODES)
def test_what_is_written_is_read_as_the_same(node: Any) -> None:
    assert write(parse_expression(write(node))) == write(node)


@pytest.mark.parametrize("column", ["price", "count", "discount"])
def test_an_equation_is_solved_for_every_input(column: Any) -> None:
    rule = parse_rule("total == price * count * (1 - discount)")
    frame = FRAME.head(1)
    solved = solve(rule, column)
    assert solved is not None
    assert evaluate(solved, frame)[0] == pytest.approx(float(frame[column][0]))


@pytest.mark.parametrize(
    "rules",
    [["a < b", "b < a"], ["a < b", "b <= c", "c == a"], ["a <= 10", "a >= 20"], ["a == 3", "b == a", "b > 7"]],
)
def test_rules_that_no_row_can_satisfy_are_refused(rules: list[str]) -> None:
    dtypes = {name: pl.Int64() for name in "abc"}
    with pytest.raises(OptionError, match="contradict each other"):
        check_declared(read_rules(rules), dtypes, [])


@pytest.mark.parametrize("rules", [["a <= b", "b <= a"], ["a >= 10", "a <= 20"], ["a < b", "a < c", "b <= c"]])
def test_rules_that_rows_can_satisfy_are_accepted(rules: list[str]) -> None:
    check_declared(read_rules(rules), {name: pl.Int64() for name in "abc"}, [])
