"""What every transform of the registry promises, on one frame with a column of each kind."""

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_series_equal

import arf_dask
from arf_dask.data.number_texts import NumberForm
from arf_dask.data.value_sets import Region, ValueSet
from arf_dask.rules.grammar import parse_expression
from arf_dask.rules.relations import Relations
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import TRANSFORMS, Transform, in_order
from arf_dask.rules.transforms.chain import Chain
from arf_dask.rules.transforms.decimals import Decimals
from arf_dask.rules.transforms.formula import Computed, Stated
from arf_dask.rules.transforms.gap import ClockGap, Gap
from arf_dask.rules.transforms.granular import Granular
from arf_dask.rules.transforms.grid import Indexed
from arf_dask.rules.transforms.hours import Hourless
from arf_dask.rules.transforms.level import Level, Levels
from arf_dask.rules.transforms.number_texts import Numbered
from arf_dask.rules.transforms.texts import Parsed
from arf_dask.rules.transforms.times import Timed
from arf_dask.storage.rule_fields import describe_relations, parse_relations

N = 400
RNG = np.random.default_rng(2)
DAYS = RNG.integers(0, 200, N)
HOURS = np.clip(RNG.normal(13, 3, N).astype(int), 0, 23)
AT = [
    datetime(2022, 1, 3) + timedelta(days=int(d), hours=int(h), minutes=int(m))
    for d, h, m in zip(DAYS, HOURS, RNG.integers(0, 60, N), strict=True)
]
DEPARTURE = RNG.integers(0, 1_440, N)
ARRIVAL = (DEPARTURE + RNG.integers(20, 200, N)) % 1_440
PRICE = np.round(RNG.gamma(3, 20, N), 2)
FRAME = pl.DataFrame(
    {
        "group": np.array(["a", "b"])[RNG.integers(0, 2, N)],
        "price": PRICE,
        "double": np.round(2 * PRICE, 2),
        "paid": np.where(RNG.random(N) < 0.6, PRICE, np.round(PRICE * RNG.random(N), 2)),
        "low": RNG.integers(0, 50, N),
        "month": [date(2018 + int(m) // 12, int(m) % 12 + 1, 1) for m in RNG.integers(0, 60, N)],
        "departure": DEPARTURE // 60 * 100 + DEPARTURE % 60,
        "arrival": ARRIVAL // 60 * 100 + ARRIVAL % 60,
        "rate": np.where(RNG.random(N) < 0.6, np.round(PRICE * 7.1, 1), np.round(PRICE * 7.1 + RNG.random(N), 3)),
        "day": [(date(2022, 1, 3) + timedelta(days=int(d))).strftime("%d.%m.%Y") for d in DAYS],
        "at": AT,
        "hour": HOURS,
        "seen": AT,
    }
).with_columns(
    high=pl.col("low") + pl.Series(RNG.poisson(4, N)),
    weight=pl.Series(np.round(np.where(RNG.random(N) < 0.5, 60.0, 80.0) + RNG.normal(0, 4, N), 1)),
)
FRAME = FRAME.with_columns(
    pl.col("month").dt.to_string("%Y/%m/%d").alias("month text"),
    pl.Series("cost", [f"${number}" for number in np.random.default_rng(5).integers(1, 900, N)]),
    pl.col("seen").dt.to_string("%Y-%m-%d %H:%M").alias("seen text"),
    pl.col("at").dt.to_string("%Y-%m-%dT%H:%M:%SZ").cast(pl.Categorical).alias("at text"),
)


def target(name: str, decimals: int | None = None) -> Target:
    blank = Target(name, FRAME.schema[name], decimals)
    units = blank.units(FRAME[name])
    low: Any = None if blank.is_text else units.min()
    high: Any = None if blank.is_text else units.max()
    return Target(name, FRAME.schema[name], decimals, low, high, nullable=False)


def parsed(name: str, form: str) -> Parsed:
    blank = Parsed(Target(name, FRAME.schema[name], None), form)
    units = blank.modelled_target.units(blank.read(FRAME[name]))
    low, high = units.to_list()[units.arg_min() or 0], units.to_list()[units.arg_max() or 0]
    return Parsed(Target(name, FRAME.schema[name], None, low, high, nullable=False), form)


def numbered(name: str) -> Numbered:
    dollars = FRAME[name].str.strip_chars("$").cast(pl.Int64).sort().to_list()
    ends = Target(name, pl.String(), None, dollars[0], dollars[-1], nullable=False)
    return Numbered(ends, NumberForm("$", "", "", ".", 0, "none"))


EXAMPLES: dict[str, Transform] = {
    "computed": Computed(target("double", 2), parse_expression("2 * price")),
    "state": Stated(target("paid", 2), parse_expression("price"), -1.0),
    "gap": Gap(target("high", 0), parse_expression("low"), 1, 0),
    "clock": ClockGap(target("arrival", 0), "departure"),
    "grid": Indexed(target("month"), "month_start"),
    "decimals": Decimals(target("rate", 3), ((1, 0.6),)),
    "granular": Granular(target("price", 2), (5.0, 0.5), ((0.1, 0.3, 0.6), (0.3, 0.3, 0.4)), (50.0,), (20.0,)),
    "level": Level(
        target("weight", 1),
        parse_expression("group"),
        Levels(("a", "b"), (60.0, 70.0), (12.0, 14.0), (-4.0, -4.0), (4.0, 4.0), (65.0, 13.0)),
    ),
    "level, rounded": Level(
        target("weight", 1),
        parse_expression("group"),
        Levels(("a", "b"), (60.0, 70.0), (12.0, 14.0), (-4.0, -4.0), (4.0, 4.0), (65.0, 13.0)),
        Decimals(target("weight", 1), ((0, 0.3),)),
    ),
    "dates": parsed("day", "%d.%m.%Y"),
    "numbers": numbered("cost"),
    "numbers, granular": Chain(numbered("cost"), Granular(target("low", 0), (5.0,), ((0.3, 0.7),))),
    "hours": Hourless(target("at"), "hour"),
    "parts": Timed(target("seen"), weekday=True),
    "dates, grid": Chain(parsed("month text", "%Y/%m/%d"), Indexed(target("month"), "month_start")),
    "dates, parts": Chain(parsed("seen text", "%Y-%m-%d %H:%M"), Timed(target("seen"), weekday=True)),
    "dates without time, parts": Chain(parsed("day", "%d.%m.%Y"), Timed(target("month"), weekday=True)),
    "dates, hours": Chain(parsed("at text", "%Y-%m-%dT%H:%M:%SZ"), Hourless(target("at"), "hour")),
}
each_kind = pytest.mark.parametrize("kind", EXAMPLES)


def test_there_is_an_example_of_every_kind() -> None:
    assert {type(one) for one in EXAMPLES.values()} == set(TRANSFORMS.values())
    assert {kind: one.kind for kind, one in TRANSFORMS.items()} == {kind: kind for kind in TRANSFORMS}


@each_kind
def test_rows_come_back_from_what_is_modelled(kind: str) -> None:
    transform = EXAMPLES[kind]
    modelled = transform.forward(FRAME)
    assert {name: series.dtype for name, series in modelled.items()} == transform.outputs
    values = transform.inverse(FRAME.drop(transform.target.name), modelled)
    if transform.keeps_values:
        assert_series_equal(values, FRAME[transform.target.name])
    assert not transform.off_grid(FRAME[transform.target.name]).any()
    assert not transform.faults(FRAME).any()
    assert not transform.contradicts(FRAME).any()


@each_kind
def test_known_values_are_modelled_as_whole_rows_are(kind: str) -> None:
    transform = EXAMPLES[kind]
    for name, series in transform.forward_known(FRAME)[0].items():
        assert_series_equal(series, transform.forward(FRAME)[name])
    resolved = transform.resolve(FRAME, FRAME, null_is_value=True)
    assert not resolved.contradictory.any()
    assert not resolved.unresolved.any()
    assert set(resolved.columns) == set(transform.outputs)


@each_kind
def test_values_outside_the_range_and_new_nulls_are_drawn_again_or_cannot_occur(kind: str) -> None:
    transform = EXAMPLES[kind]
    name = transform.target.name
    blank = FRAME.with_columns(pl.Series(name, [None], dtype=FRAME.schema[name]).new_from_index(0, N))
    assert transform.faults(blank).all() or transform.one_to_one


def sets_of(series: pl.Series) -> list[ValueSet]:
    """Points, spans and their unions, of values that the column has."""
    values, dtype = series.drop_nulls().unique().sort(), series.dtype
    chosen = values[[0, len(values) // 3, len(values) // 2, -1]].to_list()
    known: list[Any] = [chosen[1], chosen[1:3], [chosen[0], chosen[3]]]
    if dtype.is_numeric() or dtype.is_temporal():
        known += [(chosen[1], chosen[2]), (None, chosen[1]), (chosen[2], None), [(chosen[0], chosen[1]), chosen[3]]]
    return [ValueSet.read(one, dtype, "given") for one in known]


def in_region(region: Region, modelled: pl.DataFrame) -> Any:
    inside = np.zeros(modelled.height, dtype=bool)
    for box in region.boxes:
        flags = [wanted.contains(modelled.get_column(name)) for name, wanted in box.items()]
        inside |= np.logical_and.reduce(flags) if flags else True
    return inside


@each_kind
def test_a_value_lies_in_a_set_if_and_only_if_what_is_modelled_lies_in_its_translation(kind: str) -> None:
    transform = EXAMPLES[kind]
    name = transform.target.name
    relations = Relations(tuple(FRAME.columns), dict(FRAME.schema), {}, (), (transform,))
    modelled = relations.forward(FRAME)
    for wanted in sets_of(FRAME[name]):
        region = relations.translate({name: wanted}, observed=True)
        is_wanted, is_inside = wanted.contains(FRAME[name]), in_region(region, modelled)
        assert is_inside[is_wanted].all()  # always a necessary condition
        if region.exact:
            assert (is_inside == is_wanted).all()
        overlaps = sum((in_region(Region((box,)), modelled).astype(int) for box in region.boxes), np.zeros(N, int))
        assert overlaps.max(initial=0) <= 1  # disjoint boxes
    if kind not in (
        "computed",
        "state",
        "gap",
        "clock",
        "decimals",
        "granular",
        "numbers, granular",
        "level",
        "level, rounded",
    ):
        assert all(relations.translate({name: one}, observed=True).exact for one in sets_of(FRAME[name]))


@each_kind
def test_conditional_draws_fit_and_vary_and_its_probabilities_add_up(kind: str, whole_model: arf_dask.Model) -> None:
    name = EXAMPLES[kind].target.name
    given = {name: FRAME[name].unique(maintain_order=True)[:3].to_list()}
    rows = whole_model.sample(60, given=given, seed=4)
    assert rows[name].is_in(pl.Series(given[name], dtype=FRAME.schema[name]).implode()).all()
    assert rows.n_unique() == 60
    assert whole_model.check(rows)["broken"].fill_null(0).sum() == 0
    assert np.isfinite(whole_model.log_density(rows, given=given).to_numpy()).all()
    values = FRAME[name].unique().sort()
    if EXAMPLES[kind].one_to_one and not isinstance(FRAME.schema[name], pl.String | pl.Categorical):
        middle = values[len(values) // 2]
        parts = [(None, middle), arf_dask.Interval(middle, None, closed="none")]
        assert sum(whole_model.probability({name: part}) for part in parts) == pytest.approx(1.0, abs=5e-3)


@each_kind
def test_a_model_file_describes_it_completely(kind: str) -> None:
    relations = Relations(tuple(FRAME.columns), dict(FRAME.schema), {}, (), (EXAMPLES[kind],))
    assert parse_relations(describe_relations(relations)).transforms == relations.transforms


def test_transforms_are_sorted_by_what_they_need() -> None:
    needs_high = Computed(target("paid", 2), parse_expression("high * 2"))
    assert in_order([needs_high, EXAMPLES["gap"]]) == [EXAMPLES["gap"], needs_high]
    circle = Computed(target("low", 0), parse_expression("high - 1"))
    assert in_order([circle, EXAMPLES["gap"]]) is None


@pytest.fixture(scope="module")
def whole_model() -> arf_dask.Model:
    return arf_dask.fit(FRAME, trees=3, max_rounds=1, seed=1)


def test_all_kinds_together_are_fitted_sampled_completed_saved_and_checked(tmp_path: Path) -> None:
    model = arf_dask.fit(FRAME, trees=5, seed=1)
    model.save(tmp_path / "m")
    rows = arf_dask.load(tmp_path / "m").sample(300, seed=2)
    assert rows.equals(model.sample(300, seed=2))
    assert model.check(rows)["broken"].fill_null(0).sum() == 0
    holes = FRAME.head(50).with_columns(pl.lit(None, FRAME.schema["high"]).alias("high"))
    assert model.impute(holes, draws=1, seed=3)[0]["high"].null_count() == 0
    assert np.isfinite(model.log_density(FRAME.head(50)).to_numpy()).all()
