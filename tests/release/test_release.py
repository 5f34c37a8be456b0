"""Releases: what a policy does to data, and what a released model and its rows no longer tell."""

import io
import logging
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import arf_dask
from arf_dask import Limits, ReleaseError, ReleasePolicy, ReleaseWarning
from arf_dask.data.copy_guard import Candidates, RealRows, make_guard, redraw_copies
from arf_dask.data.fingerprints import Key
from arf_dask.errors import OptionError
from arf_dask.forest.routing import route_to_leaves, routing_table
from arf_dask.release.identifiers import stand_ins
from arf_dask.release.levels import protect_levels, rare_combinations
from arf_dask.release.missing import fill_rare_missing
from arf_dask.release.numbers import nice_step, protect_numbers
from arf_dask.release.schema_rounding import cut_room, round_cuts
from arf_dask.release.subjects import prune_by_subjects
from arf_dask.schema.encoding import encode_codes

T = TypeVar("T")


def known(value: T | None) -> T:
    assert value is not None
    return value


def people(n: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.Generator(np.random.SFC64(seed))
    region = np.array(["north", "south", "east"])[rng.integers(0, 3, n)]
    income = np.exp(rng.normal(10, 0.6, n)).round(2)
    return pl.DataFrame(
        {
            "region": region,
            "plan": np.where(rng.random(n) < 0.8, region, "none"),
            "income": income,
            "visits": rng.poisson(4, n),
            "since": pl.Series(rng.integers(18_000, 20_000, n).astype(np.int32)).cast(pl.Date),
        }
    )


def release(frame: pl.DataFrame, policy: ReleasePolicy | None = None, **options: Any) -> arf_dask.Model:
    policy = ReleasePolicy() if policy is None else policy
    return arf_dask.fit(frame, trees=5, seed=0, progress=False, release=policy, **options)


# Levels.


def test_rare_levels_are_merged_into_one_documented_level() -> None:
    column = pl.Series("x", ["a"] * 30 + [f"rare{i}" for i in range(12)])
    found = protect_levels(column, None, ReleasePolicy())
    assert found.column.to_list() == ["a"] * 30 + ["(other)"] * 12
    assert (found.merged, found.rows, found.into) == (12, 12, "(other)")


def test_rare_levels_are_suppressed_where_asked() -> None:
    column = pl.Series("x", ["a"] * 30 + [f"rare{i}" for i in range(12)])
    assert protect_levels(column, None, ReleasePolicy(rare={"x": "suppress"})).column.null_count() == 12


def test_too_few_rare_rows_for_a_level_become_the_most_frequent_one() -> None:
    column = pl.Series("x", ["a"] * 30 + ["b"] * 20 + ["rare"])
    assert protect_levels(column, None, ReleasePolicy()).column.to_list() == ["a"] * 30 + ["b"] * 20 + ["a"]


def test_levels_are_counted_by_subject() -> None:
    column, subjects = pl.Series("x", ["a"] * 40 + ["mine"] * 40), pl.Series([*range(40), *[99] * 40])
    assert protect_levels(column, subjects, ReleasePolicy()).column.unique().to_list() == ["a"]


def test_an_enum_forgets_the_levels_that_went() -> None:
    column = pl.Series("x", ["a"] * 30 + ["rare"] * 2, dtype=pl.Enum(["rare", "a", "unused"]))
    assert protect_levels(column, None, ReleasePolicy()).column.dtype == pl.Enum(["a"])


def test_rare_combinations_by_hand() -> None:
    frame = pl.DataFrame({"a": ["x"] * 12 + ["x", None], "b": ["y"] * 12 + ["z", "y"]})
    assert rare_combinations(frame, ["a", "b"], None, 10).to_list() == [False] * 12 + [True, True]


# Numbers.


def test_extremes_are_clipped_to_round_bounds() -> None:
    column = pl.Series("x", [*np.linspace(100, 900, 400).round(2).tolist(), 123456.78, -98765.43])
    found = protect_numbers(column, None, ReleasePolicy())
    assert (found.column.min(), found.column.max()) == (118.0, 882.0)
    assert found.clipped == 20
    assert nice_step(117, 883, pl.Float64()) == 2.0


def test_a_bound_that_many_people_share_stays() -> None:
    column = pl.Series("x", [0] * 50 + list(range(1, 400)) + [99_999] * 20)
    found = protect_numbers(column, None, ReleasePolicy())
    assert (found.column.min(), found.column.max(), found.clipped) == (0, 99_999, 0)


def test_extremes_are_those_of_subjects() -> None:
    column = pl.Series("x", [*[5000 + i for i in range(50)], *[i % 100 for i in range(600)]])
    subjects = pl.Series([*[-1] * 50, *range(600)])  # one person has the fifty largest numbers
    assert protect_numbers(column, subjects, ReleasePolicy()).column.max() < 100


def test_a_rare_value_among_few_moves_to_the_nearest_common_one() -> None:
    column = pl.Series("x", [1] * 50 + [2] * 50 + [4] * 3 + [5] * 50)
    found = protect_numbers(column, None, ReleasePolicy())
    assert sorted(found.column.unique().to_list()) == [1, 2, 5]
    assert found.moved == 3


def test_a_column_of_too_few_people_is_suppressed() -> None:
    column = pl.Series("x", [1.5, 2.5, None, *[None] * 97], dtype=pl.Float64)
    found = protect_numbers(column, None, ReleasePolicy())
    assert found.suppressed
    assert found.column.null_count() == 100


@pytest.mark.parametrize("scale", [1e-12, 1.0, -1.0, 1e200])
def test_skewed_numbers_are_hardly_clipped(scale: float) -> None:
    rng = np.random.Generator(np.random.SFC64(1))
    column = pl.Series("x", np.exp(rng.normal(0, 3, 3000)) * scale)
    found = protect_numbers(column, None, ReleasePolicy())
    assert found.clipped <= 40
    assert found.column.n_unique() > 2900


def test_decimals_are_clipped_like_floats() -> None:
    column = pl.Series("x", [*np.linspace(100, 900, 400).round(2).tolist(), 123456.78, -98765.43])
    found = protect_numbers(column.cast(pl.Decimal(12, 2)), None, ReleasePolicy())
    assert found.column.dtype == pl.Decimal(12, 2)
    assert found.clipped == 20
    assert found.column.cast(pl.Float64).equals(protect_numbers(column, None, ReleasePolicy()).column)


def test_dates_keep_their_type() -> None:
    dates = pl.Series("x", range(10_000, 10_900)).cast(pl.Date)
    found = protect_numbers(dates, None, ReleasePolicy())
    assert found.column.dtype == pl.Date
    assert found.column.min() > dates.min()


def test_cuts_are_round_and_stay_in_order() -> None:
    rng = np.random.Generator(np.random.SFC64(0))
    cuts = np.sort(rng.normal(0, 1000, 300))
    points = np.sort(rng.normal(0, 1000, 20))
    rounded = round_cuts(cuts, cut_room(cuts, points))
    assert (np.diff(rounded) > 0).all()
    assert (np.searchsorted(points, rounded) == np.searchsorted(points, cuts)).all()
    assert not np.isin(rounded, cuts).any()


def test_the_cuts_of_integers_are_nobodys_value() -> None:
    rng = np.random.Generator(np.random.SFC64(0))
    gains = np.where(rng.random(3000) < 0.9, 0, rng.integers(5_000, 60_000, 3000))
    gains[3] = 1357  # the smallest number that is not zero is one person's
    frame = pl.DataFrame({"gain": gains, "number": rng.choice(10**9, 3000, replace=False), "x": rng.normal(size=3000)})
    schema = release(frame, columns={"number": "numeric"}).schema
    edges = {schema.columns[v.columns[0]].name: v.edges + 0.5 for v in schema.variables}
    assert edges["gain"][0] == 1_000
    assert (edges["number"] % 10_000 == 0).all()


def test_a_cut_between_two_steps_lies_between_the_two_people_who_show_it() -> None:
    rng = np.random.Generator(np.random.SFC64(1))
    salary = np.sort(rng.choice(np.arange(20_000.0, 90_000.0, 0.01), 2000, replace=False).round(2))
    frame = pl.DataFrame({"salary": salary, "bracket": np.where(salary < 45_000, "low", "high")})
    model = release(frame)
    (line,) = (v for v in model.schema.variables if len(v.columns) > 1)
    low, high = salary[salary < 45_000].max(), salary[salary >= 45_000].min()
    (cut,) = (edge for edge in line.edges if low < edge <= high)
    assert cut not in ((low + high) / 2, low, high)
    rows = model.sample(2000, seed=1)
    assert ((rows["salary"] < cut) == (rows["bracket"] == "low")).all()


def test_rare_missing_values_are_filled() -> None:
    policy = ReleasePolicy()
    flags = fill_rare_missing(pl.Series("x", [True] * 30 + [False] * 20 + [None]), None, policy, key=False)
    assert flags.column.to_list()[-1] is True
    assert flags.rows == 1
    numbers = pl.Series("x", [1.0, 2.0, 3.0] * 10 + [float("nan")] + [None] * 12)
    found = fill_rare_missing(numbers, None, policy, key=False)
    assert (found.column.to_list()[30], found.column.null_count(), found.rows) == (2.0, 12, 1)
    mine = fill_rare_missing(
        pl.Series("x", ["a"] * 30 + [None] * 12), pl.Series([*range(30), *[99] * 12]), policy, key=False
    )
    assert mine.column.unique().to_list() == ["a"]
    keys = fill_rare_missing(pl.Series("x", [None, "K1", "K2"]), None, policy, key=True)
    assert keys.column.to_list() == ["K1", "K1", "K2"]
    enum = pl.Series("x", ["a"] * 30 + [None], dtype=pl.Enum(["b", "a"]))
    assert fill_rare_missing(enum, None, policy, key=False).column.to_list()[-1] == "a"


def test_the_gap_of_a_declared_order_has_no_extremes() -> None:
    rng = np.random.Generator(np.random.SFC64(2))
    start, gap = rng.integers(18_000, 19_000, 2000), rng.integers(0, 60, 2000)
    start[7], gap[7] = 18_200, 777  # neither date is extreme, only what lies between them
    frame = pl.DataFrame({"start": start.astype(np.int32), "end": (start + gap).astype(np.int32)})
    frame = frame.cast({"start": pl.Date, "end": pl.Date}).with_columns(x=pl.Series(rng.normal(size=2000)))
    model = release(frame, rules=["start <= end"])
    rows = model.sample(4000, seed=1)
    assert rows.select((pl.col("end") - pl.col("start")).dt.total_days().is_between(0, 59).all()).item()
    assert not any(np.isin(777, column.points) for column in model._fitted.tables.schema.columns)
    assert known(model.release_report)["values_clipped"]["end"] > 0


def test_dates_written_as_text_are_protected_as_dates() -> None:
    rng = np.random.Generator(np.random.SFC64(4))
    days = rng.integers(0, 12_000, 1500)
    days[5] = 40_000
    born = pl.Series("born", days.astype(np.int32)).cast(pl.Date)
    frame = people(1500).with_columns(born.dt.to_string("%d.%m.%Y"))
    model = release(frame)
    rows = model.sample(1500, seed=1)
    drawn = rows["born"].str.to_date("%d.%m.%Y")
    assert drawn.n_unique() > 300
    assert drawn.max() < born.sort()[-10]
    assert known(model.release_report)["values_clipped"]["born"] >= 20
    assert known(model.release_report)["identifiers_replaced"] == []


def test_clipping_does_not_count_as_breaking_a_rule() -> None:
    rng = np.random.Generator(np.random.SFC64(4))
    frame = pl.DataFrame({"q": rng.integers(1, 9, 1000), "p": np.exp(rng.normal(3, 1, 1000)).round(2)})
    frame = frame.with_columns(total=(pl.col("p") * pl.col("q")).round(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = release(frame, rules=["total == p * q"], strict_rules=True)
    assert model.rules[0].share == 1.0
    assert model.check(model.sample(1000, seed=1))["broken"].to_list() == [0]
    with pytest.raises(arf_dask.DataError, match="break declared rules"):
        release(frame, rules=["total == p"], strict_rules=True)


# Identifiers, subjects, copies.


def test_stand_ins_keep_the_shape_and_nothing_else() -> None:
    column = pl.Series("id", [None, *(f"KD-{i:06d}-{chr(65 + i % 26)}x" for i in range(300))])
    found = stand_ins(column, Key(1, 2))
    assert found.null_count() == 1
    assert (
        found.drop_nulls().str.contains(r"^KD-00\d{4}-[A-Z]x$").all()
        or found.drop_nulls().str.contains(r"^KD-000\d{3}-[A-Z]x$").all()
    )
    assert len(set(found.drop_nulls()) & set(column.drop_nulls())) < 150
    odd = pl.concat([column, pl.Series("id", ["CANARY12345"])])
    assert "CANARY" not in "".join(stand_ins(odd, Key(1, 2)).drop_nulls())
    shapes = stand_ins(odd, Key(1, 2), 10).drop_nulls()
    assert shapes.str.contains(r"^KD-\d{6}-[A-Z]x$").all()
    names = pl.Series("name", ["Ann", "O'Neill-Smythe III", "Zoë", *(f"Bo{'b' * i}" for i in range(20))])
    assert stand_ins(names, Key(1, 2), 10).str.len_chars().n_unique() == 1
    numbers = stand_ins(pl.Series("n", [17, 918273, None, 5000]), Key(1, 2))
    assert numbers.to_list() == [919998, 919999, None, 920000]


@pytest.mark.filterwarnings("ignore::arf_dask.ReleaseWarning")
def test_every_leaf_holds_enough_subjects() -> None:
    rng = np.random.Generator(np.random.SFC64(3))
    frame = people(2000, 1).with_columns(customer=pl.Series(rng.integers(0, 150, 2000)))
    model = release(frame, ReleasePolicy(min_leaf=15, subject="customer"))
    assert known(model.release_report)["subjects"] == 150
    subjects = frame["customer"].to_numpy()
    forest = arf_dask.adversarial_forest(frame.drop("customer"), trees=3, min_leaf=15, seed=0, progress=False)
    codes = np.ascontiguousarray(encode_codes(frame.drop("customer"), forest.schema))
    for tree in forest.trees:
        pruned = prune_by_subjects(tree, codes, subjects, 15)
        leaves = route_to_leaves(routing_table(pruned), codes)
        held = pl.DataFrame({"leaf": leaves, "subject": subjects}).group_by("leaf").agg(pl.col("subject").n_unique())
        assert held["subject"].min() >= 15
        assert held.height == int((pruned.left < 0).sum())


def test_the_leaves_of_a_policy_are_as_small_as_it_says_unless_fit_asks_for_larger_ones() -> None:
    with pytest.warns(ReleaseWarning, match="min_leaf=10"):
        assert release(people(800), ReleasePolicy(min_leaf=10)).leaves["rows"].to_numpy().min() < 20
    assert release(people(800), min_leaf=40).leaves["rows"].to_numpy().min() >= 40
    assert release(people(800), min_leaf=2).leaves["rows"].to_numpy().min() >= 20


def test_rows_per_subject_are_limited() -> None:
    frame = people(500, 1).with_columns(customer=pl.Series([0] * 300 + list(range(1, 201))))
    report = release(frame, ReleasePolicy(subject="customer", max_rows_per_subject=2)).release_report
    assert known(report)["rows_beyond_limit_per_subject"] == 298


def test_copies_are_redrawn_by_hand() -> None:
    real = pl.DataFrame({"a": [1, 2, 2, 3], "b": ["x", "y", "y", "z"], "c": [1, 1, 1, 9]})
    guard = known(make_guard([RealRows(real)], ["a", "b", "c"], ["id"]))
    rows = pl.DataFrame({"id": [7, 8, 9], "a": [1, 2, 5], "b": ["x", "y", "q"], "c": [4, 1, 5]})
    assert guard.copies(rows).tolist() == [True, False, False]  # the second is a row that several share
    fresh = pl.DataFrame({"id": [0, 0], "a": [1, 6], "b": ["x", "w"], "c": [1, 6]})
    found = redraw_copies(rows, guard, lambda attempt, places: Candidates(fresh, np.resize(places, 2)))
    assert found.rows == 1
    assert found.frame.rows() == [(7, 6, "w", 6), (8, 2, "y", 1), (9, 5, "q", 5)]
    stuck = redraw_copies(rows, guard, lambda attempt, places: Candidates(rows[places], places))
    assert stuck.frame.rows() == [(7, 2, "y", 1), (8, 2, "y", 1), (9, 5, "q", 5)]


def test_a_row_is_unique_if_one_subject_has_it() -> None:
    real = pl.DataFrame({"a": [1, 1, 2, 2], "b": ["x", "x", "y", "y"]})
    guard = known(make_guard([RealRows(real, np.array([0, 0, 1, 2]))], ["a", "b"]))
    assert guard.copies(real).tolist() == [True, True, False, False]


def test_rows_that_were_dropped_or_changed_do_not_come_back() -> None:
    rng = np.random.Generator(np.random.SFC64(8))
    frame = pl.DataFrame({name: rng.integers(0, 12, 900) for name in ("a", "b", "c", "d")})
    frame = frame.with_columns(who=pl.Series(np.repeat(np.arange(300), 3)))
    model = release(frame, ReleasePolicy(subject="who", max_rows_per_subject=1))
    rows = model.sample(5000, seed=1)
    names = ["a", "b", "c", "d"]
    for left_out in (None, *names):
        rest = [name for name in names if name != left_out]
        alone = frame.group_by(rest).agg(pl.col("who").n_unique()).filter(pl.col("who") == 1)
        assert rows.join(alone, on=rest, how="semi").height == 0


def test_what_cannot_be_redrawn_is_replaced_by_rows_of_the_same_condition_or_refused() -> None:
    real = pl.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [1, 2, 9]})
    guard = known(make_guard([RealRows(real)], ["a", "b", "c"]))
    rows = pl.DataFrame({"a": [1, 7, 2, 8], "b": ["x", "p", "y", "q"], "c": [1, 7, 2, 8]})
    found = redraw_copies(rows, guard, lambda _, places: Candidates(rows[places], places), np.array([0, 0, 1, 1]))
    assert found.frame["a"].to_list() == [7, 7, 8, 8]
    with pytest.raises(ReleaseError, match=r"given, row 10: every row drawn equals a real row"):
        redraw_copies(rows, guard, lambda _, places: Candidates(rows[places], places), np.arange(4), first=10)


@pytest.mark.filterwarnings("ignore::arf_dask.ReleaseWarning")
def test_no_copy_comes_out_and_the_count_asked_for_does(tmp_path: Path) -> None:
    rng = np.random.Generator(np.random.SFC64(5))
    frame = pl.DataFrame({name: rng.integers(0, 12, 400) for name in ("a", "b", "c")})
    model = release(frame, ReleasePolicy(min_level=2, clip_extremes=1))
    rows = model.sample(3000, seed=1)
    assert rows.height == 3000
    assert not known(model._fitted.guard).copies(rows).any()
    manifest = model.sample_parquet(tmp_path / "out", 3000, seed=1, rows_per_file=1000)
    assert manifest.scan().collect().equals(rows)
    assert manifest.redrawn > 100
    assert known(arf_dask.Manifest.read(tmp_path / "out").release)["rows_redrawn"] == manifest.redrawn
    assert model.sample(500, given={"a": (3, 6)}, seed=1)["a"].is_between(3, 6).all()


@pytest.mark.filterwarnings("ignore::arf_dask.ReleaseWarning")
@pytest.mark.parametrize("rules", [None, ["d == a + b"]])
def test_no_copy_comes_out_under_a_frame_of_conditions(tmp_path: Path, rules: list[str] | None) -> None:
    rng = np.random.Generator(np.random.SFC64(5))
    frame = pl.DataFrame({name: rng.integers(0, 12, 400) for name in ("a", "b", "c")})
    frame = frame.with_columns(d=pl.col("a") + pl.col("b"), id=pl.Series([f"P-{i:05d}" for i in range(400)]))
    model = release(frame, ReleasePolicy(min_level=2, clip_extremes=1), rules=rules)
    guard = known(model._fitted.guard)
    conditions = pl.DataFrame({"a": [3, None, 5] * 20}, schema={"a": pl.Int64})
    rows = model.sample(10, given=conditions, seed=1)
    assert not guard.copies(rows).any()
    assert rows["a"].to_list()[:10] == [3] * 10
    assert rows["id"].n_unique() == 600
    assert (rows["d"] == rows["a"] + rows["b"]).all() or rules is None
    manifest = model.sample_parquet(tmp_path / "out", 10, given=conditions, seed=1, rows_per_file=150)
    written = manifest.scan().collect()
    assert not guard.copies(written).any()
    assert manifest.redrawn > 0
    assert model.sample(10, given=conditions, seed=1, frame="lazy").collect().equals(written)
    with pytest.raises(ReleaseError, match="given, row 1: every row drawn"):
        model.sample(2, given=frame[:2].select("a", "b", "c").with_columns(a=pl.Series([None, frame["a"][1]])), seed=1)


# The whole.


def test_loosening_a_default_is_told() -> None:
    with pytest.warns(ReleaseWarning, match=r"min_leaf=5 \(default 20\), forbid_copies=False"):
        model = release(people(600), ReleasePolicy(min_leaf=5, forbid_copies=False))
    assert known(model.release_report)["loosened"] == ["min_leaf=5 (default 20)", "forbid_copies=False (default True)"]


def test_mostly_unique_text_is_refused_unless_it_is_named() -> None:
    rng = np.random.Generator(np.random.SFC64(2))
    notes = pl.Series("note", [f"note {i}" for i in rng.integers(0, 450, 600)])
    frame = people(600).with_columns(notes)
    with pytest.raises(ReleaseError, match="mostly unique: 'note'"):
        release(frame)
    released = release(frame, columns={"note": "categorical"})
    assert released.sample(50, seed=1)["note"].unique().to_list() == ["(other)"]


def test_the_policy_is_kept_with_the_model(tmp_path: Path) -> None:
    model = release(people(800))
    model.save(tmp_path / "m")
    with pytest.warns(ReleaseWarning, match="cannot recognise copies"):
        loaded = arf_dask.load(tmp_path / "m")
    assert loaded.release_report == model.release_report
    checked = [m.sample_parquet(tmp_path / name, 50, seed=1) for name, m in (("a", model), ("b", loaded))]
    assert [known(manifest.release)["copies_checked"] for manifest in checked] == [True, False]
    assert known(loaded.release_report)["policy"]["min_leaf"] == 20
    assert loaded.leaves["rows"].to_numpy().min() >= 20
    assert arf_dask.fit(people(100), trees=2, seed=0, progress=False).release_report is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_leaf": 0}, "min_leaf=0"),
        ({"rare": "drop"}, "rare='drop'"),
        ({"max_rows_per_subject": 3}, "say subject="),
        ({"shrinkage": 0}, "shrinkage=0"),
    ],
)
def test_wrong_policies_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ReleasePolicy(**arguments)


def test_unknown_columns_and_no_policy_are_refused() -> None:
    with pytest.raises(OptionError, match="subject: no column 'custmer'"):
        release(people(100), ReleasePolicy(subject="custmer"))
    with pytest.raises(OptionError, match="ReleasePolicy"):
        release(people(100), "strict")  # type: ignore[arg-type]


# The gate.


def test_nothing_is_published_unless_the_limits_hold(tmp_path: Path) -> None:
    frame = people(1200, 3)
    options: dict[str, Any] = {"trees": 3, "seed": 0, "progress": False, "holdout": 0.3, "to": tmp_path / "out"}
    limits = Limits(membership_auc=0.501, shadows=2, page=str(tmp_path / "why.html"))
    with pytest.raises(ReleaseError, match="not published: membership_auc: 0") as refused:
        arf_dask.synthesize(frame, min_leaf=2, publish_if=limits, **options)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    assert refused.value.report.refusals
    assert "Not published" in (tmp_path / "why.html").read_text(encoding="utf-8")
    manifest = arf_dask.synthesize(
        frame, release=ReleasePolicy(), publish_if=Limits(membership_auc=0.9, c2st=0.99, shadows=2), **options
    )
    assert manifest.rows == 1200
    assert (tmp_path / "out" / "_SUCCESS").exists()
    assert known(manifest.release)["policy"]["min_leaf"] == 20


def test_the_gate_judges_the_rows_that_are_written(tmp_path: Path) -> None:
    frame = people(900, 4)
    model = arf_dask.fit(frame[:600], trees=3, seed=0, progress=False, holdout=frame[600:])
    manifest = model.sample_parquet(
        tmp_path / "out", 500, seed=7, publish_if=Limits(membership_auc=1.0, shadows=0), real=frame[:600]
    )
    assert manifest.scan().collect().equals(model.sample(500, seed=7))


def test_a_gate_needs_rows_to_judge_by(tmp_path: Path) -> None:
    model = arf_dask.fit(people(200), trees=2, seed=0, progress=False)
    with pytest.raises(OptionError, match="give real="):
        model.sample_parquet(tmp_path / "a", 10, publish_if=Limits())
    with pytest.raises(OptionError, match="give holdout="):
        model.sample_parquet(tmp_path / "a", 10, publish_if=Limits(), real=people(200))
    with pytest.raises(OptionError, match="give to="):
        arf_dask.synthesize(people(200), publish_if=Limits())
    with pytest.raises(OptionError, match="every limit is None"):
        Limits(membership_auc=None)


def test_a_figure_that_was_not_measured_keeps_no_limit() -> None:
    report = arf_dask.report(people(100), people(100, 1), seed=0, progress=False)
    assert Limits(tpr=0.1).refusals(report.to_dict()) == (
        "membership_auc: could not be measured, at most 0.6 is allowed",
        "tpr: could not be measured, at most 0.1 is allowed",
    )


def test_a_holdout_is_kept_back_and_never_learned() -> None:
    frame = people(400).with_row_index("n")
    model = arf_dask.fit(frame, holdout=0.25, trees=2, seed=0, progress=False, columns={"n": "numeric"})
    assert known(model.holdout).height == 100
    assert model.schema.n_rows == 300
    again = arf_dask.fit(frame, holdout=0.25, trees=2, seed=0, progress=False, columns={"n": "numeric"})
    assert known(again.holdout).equals(known(model.holdout))
    with pytest.raises(OptionError, match=r"holdout=1\.5"):
        arf_dask.fit(frame, holdout=1.5)


# No canary survives.

CANARIES = 1000


def canary_table() -> pl.DataFrame:
    """People, and a thousand of them with rare strings, rare combinations and extreme numbers."""
    frame = people(6000, 7)
    n = frame.height
    words = [f"CANARY{i:04d}WORD" for i in range(CANARIES)]
    places = np.arange(n)
    names = [words[i // 6] if i % 6 == 0 and i // 6 < CANARIES else f"job{i % 9}" for i in places]
    extreme = [7_654_321.5 + 13 * i for i in range(5)]
    income = [*extreme, *frame["income"].to_list()[5:]]
    combos = [f"combo{i % 6}" for i in places]
    partner = [f"mate{i % 6}" for i in places]
    partner[100], partner[101] = "mate4", "mate2"  # combinations that one row has
    return frame.with_columns(
        pl.Series("job", names),
        pl.Series("income", income),
        pl.Series("team", combos),
        pl.Series("mate", partner),
        pl.Series("grade", names, dtype=pl.Enum([*words, *(f"job{i}" for i in range(9))])),
        pl.Series("token", [f"T{i:05d}-CANKEY{i:05d}" for i in places]),
    )


def everything_in(directory: Path) -> bytes:
    """All bytes under a directory, Parquet decompressed with statistics, dictionaries and metadata."""
    told = []
    for path in sorted(directory.rglob("*")):
        if not path.is_file():
            continue
        told.append(path.read_bytes())
        if path.suffix == ".parquet":
            file = pq.ParquetFile(path)
            told.append(repr(file.metadata.metadata).encode())
            told.append(repr(file.schema_arrow).encode() + repr(file.schema_arrow.metadata).encode())
            told += [repr(field.metadata).encode() for field in file.schema_arrow]
            for group in range(file.num_row_groups):
                row_group = file.metadata.row_group(group)
                told += [repr(row_group.column(c).statistics).encode() for c in range(row_group.num_columns)]
            told.append(repr(file.read().to_pydict()).encode())
        elif zipfile.is_zipfile(path):
            told += [zipfile.ZipFile(path).read(name) for name in zipfile.ZipFile(path).namelist()]
    return b"\n".join(told)


def test_no_canary_survives(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frame = canary_table()
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    logging.getLogger("arf_dask").addHandler(handler)
    logging.getLogger("arf_dask").setLevel(logging.DEBUG)
    progress = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = arf_dask.fit(
            frame,
            trees=5,
            seed=0,
            release=ReleasePolicy(),
            holdout=0.2,
            keys=["token"],
            progress=lambda *facts: progress.append(repr(facts)),
        )
        model.save(tmp_path / "model")
        manifest = model.sample_parquet(tmp_path / "out", 5000, seed=1, progress=True)
        report = arf_dask.report(
            frame, manifest.scan().collect(), holdout=model.holdout, model=model, shadows=0, seed=0, progress=False
        )
        report.save(tmp_path / "out.html")
        report.save(tmp_path / "out.json")
    with pytest.raises(Exception) as error:  # noqa: PT011, whatever is raised
        model.sample(1, given={"job": "no such job"})
    logging.getLogger("arf_dask").removeHandler(handler)
    shown = capfd.readouterr()
    spoken = [log.getvalue(), *progress, *(str(w.message) for w in caught), shown.out, shown.err, str(error.value)]
    objects = [repr(one) for one in (model, manifest, report, model.schema, model.release_report, model.options)]
    told = everything_in(tmp_path) + "\n".join([*spoken, *objects, repr(model._fitted.tables)]).encode()
    assert b"job3" in told
    assert b"CANARY" not in told
    tokens = set(re.findall(rb"T\d{5}-CANKEY\d{5}", told))
    assert len(tokens) > 4_000
    assert not tokens & {token.encode() for token in frame["token"]}
    extremes = [7_654_321.5 + 13 * i for i in range(5)]
    assert not any(str(value).encode() in told or np.float64(value).tobytes() in told for value in extremes)
    rows = manifest.scan().collect()
    assert rows.filter(pl.col("income") > 1_000_000).height == 0
    pairs = rows.select(pl.col("team").str.slice(5) == pl.col("mate").str.slice(4)).to_series()
    assert pairs.all()
    assert rows["job"].is_in(["(other)", *(f"job{i}" for i in range(9))]).all()
    assert rows.schema["grade"] == pl.Enum([*(f"job{i}" for i in range(9)), "(other)"])
    assert known(model.release_report)["levels_merged"]["job"]["levels"] >= 700


def test_names_that_the_code_uses_itself_do_no_harm() -> None:
    rng = np.random.Generator(np.random.SFC64(9))
    level = np.array(["a", "b", "c"])[rng.integers(0, 3, 600)]
    frame = pl.DataFrame({"rows": level, "people": np.char.add(level, "x"), "self": rng.integers(0, 30, 600)})
    frame = frame.with_columns(value=pl.Series([None, *["u", "v", "v"] * 200][:600]), level=pl.Series(level))
    model = release(frame, holdout=0.2)
    report = arf_dask.report(frame, model.sample(400, seed=1), model=model, shadows=0, seed=0, progress=False)
    assert report.to_dict()["privacy"]["rare_levels"] == {}


def test_rows_with_rare_combinations_of_a_rule_are_dropped() -> None:
    rng = np.random.Generator(np.random.SFC64(9))
    city = np.array(["A", "B", "C"])[rng.integers(0, 3, 900)]
    zips = np.char.lower(city)
    city[5], zips[5] = "A", "b"
    frame = pl.DataFrame({"city": city, "zip": zips, "x": rng.normal(size=900)})
    model = release(frame, rules=[["city", "zip"]])
    assert known(model.release_report)["rows_with_rare_combinations"] == 1
    rows = model.sample(2000, seed=1)
    assert (rows["city"].str.to_lowercase() == rows["zip"]).all()
