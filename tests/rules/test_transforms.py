"""What rules make of columns, and back, on rows worked out by hand."""

import datetime as dt
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.rules.building import _acyclic
from arf_dask.rules.expressions import Name
from arf_dask.rules.grammar import parse_expression
from arf_dask.rules.relations import Relations, Rule, check_rules
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Transform
from arf_dask.rules.transforms.decimals import Decimals, decimals_of_values
from arf_dask.rules.transforms.formula import Computed, Stated
from arf_dask.rules.transforms.gap import Gap
from arf_dask.rules.transforms.grid import Indexed
from arf_dask.rules.transforms.texts import Parsed

FRAME = pl.DataFrame(
    {
        "price": [5.0, 2.5, 1.0, 4.0],
        "count": pl.Series([2, 3, 1, 1], dtype=pl.UInt8),
        "total": [10.0, 7.5, 4.9, 4.0],
        "start": [dt.date(2020, 1, 1), dt.date(2020, 2, 1), None, dt.date(2020, 1, 1)],
        "end": [dt.date(2020, 1, 5), dt.date(2020, 2, 1), dt.date(2021, 1, 1), None],
        "bill": [1.5, 2.25, None, 3.0],
        "paid": [1.5, 9.25, None, 3.0],
    }
)


def target(name: Any, decimals: Any = None, low: Any = None, high: Any = None, nullable: Any = True) -> Any:
    return Target(name, FRAME.schema[name], decimals, low, high, nullable)


def relations(*transforms: Any, rules: Any = ()) -> Any:
    return Relations(tuple(FRAME.columns), dict(FRAME.schema), {}, tuple(rules), transforms)


def test_a_remainder_a_gap_and_a_state_are_taken_off_and_put_back() -> None:
    found = relations(
        Gap(target("total", 2, 4.0, 10.0), parse_expression("price * count"), 1, None, (0.0, 3.9), 2),
        Gap(target("end", None, 18266, 18628), parse_expression("start"), 1, 0),
        Stated(target("paid", 2, 1.5, 9.25), parse_expression("bill"), -1.0),
    )
    reduced = found.forward(FRAME)
    assert reduced["total"].to_list() == [0.0, 0.0, 3.9, 0.0]
    assert reduced["end"].to_list() == [4, 0, 362, None]  # without a start, from the lowest end seen
    assert reduced["paid"].to_list() == [-1.0, 9.25, -1.0, -1.0]
    assert_frame_equal(found.inverse(reduced), FRAME)


def test_a_computed_column_is_left_out_and_comes_back() -> None:
    frame = FRAME.with_columns(total=pl.Series([10.0, 7.5, 1.0, 4.0]))
    found = relations(Computed(target("total", 2, 1.0, 10.0), parse_expression("price * count")))
    reduced = found.forward(frame)
    assert "total" not in reduced.columns
    assert_frame_equal(found.inverse(reduced), frame)


def test_a_gap_never_crosses_its_base_and_sums_beyond_the_range_are_drawn_again() -> None:
    gap = Gap(target("end", None, 18266, 18300), parse_expression("start"), 1, 0)
    modelled = FRAME.with_columns(end=pl.Series([-5, 0, 900, 900]))
    rebuilt = relations(gap).inverse(modelled)
    assert rebuilt["end"][0] == rebuilt["start"][0]
    last = dt.date(1970, 1, 1) + dt.timedelta(days=18300)
    assert gap.faults(rebuilt).to_list() == [not dt.date(2020, 1, 5) <= end <= last for end in rebuilt["end"]]
    assert gap.faults(rebuilt).to_list() == [True, False, True, True]


def test_rows_that_break_a_rule_or_leave_the_range_are_found() -> None:
    rule = Rule("start <= end", "order", ("start", "end"), 1.0, True)
    broken = FRAME.with_columns(end=pl.Series([dt.date(2019, 1, 1), dt.date(2020, 2, 1), None, None]))
    found = relations(rules=[rule])
    assert found.broken(broken).tolist() == [True, False, False, False]
    counted = check_rules(found.rules, found, broken, lambda rule: None)
    assert counted.select("rows", "broken").rows() == [(2, 1)]
    unknown = check_rules(found.rules, found, broken.drop("end"), lambda rule: None)
    assert unknown.select("rows", "broken").rows() == [(None, None)]


@pytest.mark.parametrize(
    ("grid", "on", "off"),
    [
        ("month_start", dt.date(2021, 5, 1), dt.date(2021, 5, 2)),
        ("quarter_start", dt.date(2021, 7, 1), dt.date(2021, 8, 1)),
        ("year_start", dt.date(1921, 1, 1), dt.date(1921, 2, 1)),
        ("business_day", dt.date(2024, 3, 1), dt.date(2024, 3, 2)),
        ("business_day", dt.date(1969, 12, 31), dt.date(1970, 1, 3)),
    ],
)
def test_dates_on_a_grid_of_the_calendar_come_back_and_others_are_told(grid: Any, on: Any, off: Any) -> None:
    indexed = Indexed(Target("d", pl.Date(), None), grid)
    series = pl.Series("d", [on, None, off])
    assert indexed.value(indexed.index(series)).to_list()[:2] == [on, None]
    assert indexed.off_grid(series).to_list() == [False, False, True]


def test_neighbouring_business_days_have_neighbouring_numbers() -> None:
    indexed = Indexed(Target("d", pl.Date(), None), "business_day")
    friday, monday = dt.date(2024, 3, 1), dt.date(2024, 3, 4)
    first, second = indexed.index(pl.Series([friday, monday]))
    assert second - first == 1


def test_clock_numbers_and_multiples() -> None:
    clock = Indexed(Target("c", pl.Int64(), 0), "clock")
    assert clock.value(clock.index(pl.Series([5, 1759, 2400]))).to_list() == [5, 1759, 2400]
    assert clock.off_grid(pl.Series([867, 859])).to_list() == [True, False]
    step = Indexed(Target("m", pl.Float64(), 2), "multiple", 0.25)
    assert step.value(step.index(pl.Series([0.25, 7.5, None]))).to_list() == [0.25, 7.5, None]


def test_texts_that_are_dates_are_written_in_their_form_again() -> None:
    dated = Parsed(Target("d", pl.String(), None), "%d.%m.%Y")
    frame = pl.DataFrame({"d": ["31.12.1999", None]})
    reduced = dated.forward(frame)
    assert reduced["d"].to_list() == [dt.date(1999, 12, 31), None]
    assert dated.inverse(frame, reduced).to_list() == ["31.12.1999", None]
    assert dated.off_grid(pl.Series(["31.12.1999", "1.1.2000", None])).to_list() == [False, True, False]


def test_numbers_choose_their_decimals_in_the_shares_seen() -> None:
    mixture = Decimals(Target("x", pl.Float64(), None), ((2, 0.5),))
    values = pl.DataFrame({"x": np.linspace(0.0, 1.0, 10_001) / 7 + 1 / 3})
    rounded = mixture.inverse(values, {"x": values["x"]})
    assert np.mean(decimals_of_values(rounded.to_numpy()) <= 2) == pytest.approx(0.5, abs=0.03)
    assert mixture.inverse(values, {"x": values["x"]}).equals(rounded)


def test_a_few_values_of_many_decimals_do_not_lend_them_to_all() -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(20, 80, 2_000).round(3)
    values[::300] = (values[::300] + 0.00011).round(5)
    table = pl.DataFrame({"x": values, "y": rng.normal(size=2_000), "z": rng.uniform(0, 9, 2_000).round(2)})
    model = arf_dask.fit(table, trees=2, max_rounds=1, seed=1)
    assert [rule.columns for rule in model.rules] == [("x",)]
    rows = model.sample(2_000, seed=1)
    assert (decimals_of_values(rows["x"].to_numpy()) > 3).mean() < 0.02
    assert rows["x"].is_between(values.min(), values.max()).all()
    odd = float(values[0])
    assert model.sample(3, given={"x": odd}, seed=1)["x"].to_list() == [odd] * 3


def test_only_a_gap_inside_a_circle_is_given_up() -> None:
    circle: dict[str, Transform] = {
        "total": Computed(target("total", 2, 1.0, 10.0), parse_expression("price - count")),
        "price": Gap(target("price", 2, 1.0, 5.0), parse_expression("total"), 1, 0),  # total <= price
    }
    unrelated = Gap(target("end", None, 18266, 18300), parse_expression("start"), 1, 0)
    assert _acyclic({**circle, "end": unrelated}) == [circle["total"], unrelated]


def test_declared_gaps_outlast_found_ones() -> None:
    declared = Gap(target("paid", 2, 1.0, 10.0), parse_expression("bill"), 1, 0)
    found = Gap(target("bill", 2, 1.0, 10.0), parse_expression("paid"), 1, 0)
    assert _acyclic({"paid": declared, "bill": found}) == [declared]


def test_an_order_holds_in_every_row_although_its_gap_was_given_up() -> None:
    rng = np.random.default_rng(0)
    gross, tax = rng.integers(50, 500, 300), rng.integers(0, 40, 300)
    data = pl.DataFrame({"net": gross - tax, "gross": gross, "tax": tax})
    # Both rules want the other's column first: net is computed from gross, and gross would be a gap above net.
    model = arf_dask.fit(data, trees=3, seed=0, rules=["net == gross - tax", "net <= gross"], find_rules=False)
    assert [type(transform) for transform in model._fitted.relations.transforms] == [Computed]
    assert [rule.text for rule in model.rules] == ["net == gross - tax", "net <= gross"]
    assert model.check(model.sample(2_000, seed=1))["broken"].to_list() == [0, 0]


def test_the_range_of_texts_that_hold_dates_comes_from_all_rows() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    days, hours = rng.integers(0, 300, (2, n)), rng.choice([9, 10, 17], n)
    times = [dt.datetime(2024, 1, 1, int(h)) + dt.timedelta(days=int(d)) for d, h in zip(days[0], hours, strict=True)]
    dates = [dt.date(2024, 1, 1) + dt.timedelta(days=int(d)) for d in days[1]]
    # A sample of 1,500 rows misses the first and the last row.
    times[0], times[-1] = dt.datetime(2021, 6, 1, 9), dt.datetime(2026, 2, 3, 17)
    dates[0], dates[-1] = dt.date(2021, 6, 1), dt.date(2026, 2, 3)
    table = pl.DataFrame({"at": [one.strftime("%Y-%m-%d %H:%M") for one in times], "day": pl.Series(dates).cast(str)})
    model = arf_dask.fit(table, trees=2, max_rounds=0, seed=1)
    timed, parsed = model._fitted.relations.targets["at"], model._fitted.relations.targets["day"]
    assert list(timed.outputs) == ["at (week)", "at (weekday)", "at (time of day)"]
    midnight = 86_400 * 10**6
    first, last = 18_779, 20_487  # days since 1970
    assert (timed.target.low, timed.target.high) == (
        first * midnight + 9 * midnight // 24,
        last * midnight + 17 * midnight // 24,
    )
    assert (parsed.target.low, parsed.target.high) == (first, last)


def test_gaps_survive_the_rounding_of_their_sum() -> None:
    target = Target("high", pl.Float64(), 2, 0.0, 10.0, False)
    gap = Gap(target, Name("low"), 1, 0, decimals=4)
    frame = pl.DataFrame({"low": [1.2345, 1.2345, 1.2345]})
    high = gap.inverse(frame, {"high": pl.Series([0.0, 1.5, 1.25])})
    assert high.to_list() == [1.24, 2.73, 2.48]
    assert gap.forward(frame.with_columns(high))["high"].to_list() == [0.0, 1.5, 1.25]
