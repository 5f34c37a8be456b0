"""Data in memory and data in parts are learned in one way: the same rows give the same columns, whatever their size."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import arf_dask
from arf_dask.data import parts
from arf_dask.training import stages
from arf_dask.typing import Bundles
from tests.hypothesis_profiles import examples

pytestmark = pytest.mark.filterwarnings("ignore::arf_dask.KeyColumnWarning")

ROWS = 120
NAN, INF = float("nan"), float("inf")
NUMBERS = [0.0, -0.0, 1.5, -2.25, 1e-3, 40.0, 99.99]
STAMPS = [datetime(1970, 1, 1), datetime(2024, 2, 29, 12), datetime(1999, 12, 31, 23, 59, 59), datetime(2024, 3, 31, 1)]
TEXTS = ["", " ", "a", "A", "é", "NaN", "null", "0.0", "-0.0", "^x$", "a,b", "\t"]
# Per dtype: values that a column may hold, odd ones among them. Every column may hold nulls as well.
POOLS: Mapping[pl.DataType, Sequence[object]] = {
    pl.Float64(): [*NUMBERS, NAN, 5e-324, 1e300, -1e300],
    pl.Float32(): [*NUMBERS, NAN, 3e38],
    pl.Float16(): [0.0, -0.0, 6e-8, 65504.0, 1.5, NAN],
    **{dtype(): [0, 1, 2, 100, 127] for dtype in (pl.Int8, pl.UInt8, pl.Int16, pl.UInt16, pl.UInt32)},
    pl.Int32(): [-(2**31), 2**31 - 1, 0, 7, 14],
    pl.Int64(): [-(2**63), 2**63 - 1, 0, 1, 2**62, 2**62 + 1],
    pl.UInt64(): [2**64 - 1, 2**64 - 2, 2**64 - 3],
    pl.Int128(): [-(2**127), 2**127 - 1, 0, 5],
    pl.UInt128(): [0, 2**128 - 1, 2**127],
    pl.Decimal(38, 2): ["0.00", "-1.25", "99999999999999.99", "0.01"],
    pl.Decimal(5, 0): ["1", "2", "10"],
    pl.Date(): [date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29), date(2024, 3, 1)],
    **{pl.Datetime(unit): STAMPS for unit in ("ms", "us", "ns")},
    pl.Datetime("us", "Europe/Berlin"): STAMPS,
    pl.Duration("ms"): [timedelta(0), timedelta(days=-1), timedelta(milliseconds=1), timedelta(days=400)],
    pl.Time(): [time(0), time(23, 59, 59, 999_999), time(12)],
    pl.String(): TEXTS,
    pl.Categorical(): TEXTS,
    pl.Enum(TEXTS): TEXTS,
    pl.Boolean(): [True, False],
    pl.Null(): [],
}
KINDS = st.sampled_from([None, "categorical", "numeric", "key"])


@st.composite
def series(draw: st.DrawFn) -> pl.Series:
    dtype = draw(st.sampled_from(list(POOLS)))
    pool = draw(st.lists(st.sampled_from([None, *POOLS[dtype]]), min_size=1, max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    return column([pool[i] for i in rng.integers(0, len(pool), ROWS)], dtype)


@st.composite
def many_values(draw: st.DrawFn) -> pl.Series:
    """Columns in which most rows hold a value of their own: some of them are identifiers."""
    dtype = draw(st.sampled_from([pl.Int64(), pl.Int128(), pl.Float64(), pl.String(), pl.Categorical(), pl.Date()]))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    numbers = rng.permutation(ROWS) * draw(st.sampled_from([1, 3, 10**4])) + draw(st.integers(0, 50))
    numbers[: draw(st.sampled_from([0, 1, 5, 60]))] = numbers[0]
    values = pl.Series(numbers)
    made = values.cast(pl.String) + "-k" if dtype in (pl.String(), pl.Categorical()) else values
    nulls = draw(st.sampled_from([0, 1, 30]))
    return made.cast(pl.Int32 if dtype == pl.Date else made.dtype).cast(dtype).set(pl.Series(range(ROWS)) < nulls, None)


def column(values: Sequence[object], dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Decimal):
        return pl.Series(values, dtype=pl.String).cast(dtype)
    if isinstance(dtype, pl.Datetime):
        return pl.Series(values, dtype=pl.Datetime(dtype.time_unit)).dt.replace_time_zone(dtype.time_zone)
    return pl.Series(values, dtype=dtype)


def learn(
    frame: pl.DataFrame, kinds: dict[str, str], *, in_parts: bool, bundles: Bundles = False
) -> list[dict[str, object]]:
    """What is learned of the columns, or the error: of all rows at once, or of parts of 16 rows."""
    with pytest.MonkeyPatch.context() as patch:
        if in_parts:
            patch.setattr(stages, "TRAINING_ROWS", 50)
            patch.setattr(parts, "CELLS", 16 * frame.width)
            patch.setattr(parts, "TASK_CELLS", 40 * frame.width)
        try:
            model = arf_dask.fit(frame, columns=kinds, trees=2, max_rounds=0, seed=1, bundles=bundles)
        except arf_dask.ArfError as error:
            return [{"error": type(error), "message": str(error)}]
    return [describe(one) for one in model.schema.columns]


def describe(one: arf_dask.Column) -> dict[str, object]:
    return {
        "name": one.name,
        "kind": one.kind,
        "levels": (one.levels.dtype, one.levels.cast(pl.String, strict=False).to_list() if not is_duration(one) else 0),
        "points": one.points.tolist(),
        "counts": (one.nulls, one.nans),
        "axis": one.axis,
        "key": one.key,
    }


def is_duration(one: arf_dask.Column) -> bool:
    return isinstance(one.dtype, pl.Duration)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(series(), many_values()), KINDS)
@example(pl.Series([0.0, -0.0, 1.0] * 40), "categorical")
@example(pl.Series([None] * ROWS, dtype=pl.String), "key")
@example(pl.Series([None] * ROWS, dtype=pl.Int64), "key")
@example(pl.Series([None] * ROWS, dtype=pl.Null), "key")
@example(pl.Series([NAN] * ROWS), "categorical")
@example(pl.Series([NAN, None] * 60), "numeric")
@example(pl.Series([1.0, INF, -INF] * 40), None)
@example(pl.Series([2**62, 2**62 + 1, -(2**62)] * 40), "numeric")
def test_columns_are_learned_alike_from_a_frame_and_from_its_parts(values: pl.Series, kind: str | None) -> None:
    x = np.random.default_rng(0).normal(size=ROWS)
    frame = pl.DataFrame([values.alias("v"), pl.Series("x", x)])
    kinds = {} if kind is None else {"v": kind}
    in_memory = learn(frame, kinds, in_parts=False)
    assert learn(frame, kinds, in_parts=True) == in_memory


def test_zero_and_negative_zero_are_two_levels_for_any_number_of_rows() -> None:
    frame = pl.DataFrame({"v": [0.0, -0.0, 1.0] * 40})
    for in_parts in (False, True):
        [v] = learn(frame, {"v": "categorical"}, in_parts=in_parts)
        assert v["levels"] == (pl.Float64(), ["-0.0", "0.0", "1.0"])


def test_a_declared_key_without_values_stays_a_key_for_any_number_of_rows() -> None:
    frame = pl.DataFrame({"v": pl.Series([None] * ROWS, dtype=pl.String), "x": [1, 2, 3] * 40})
    for in_parts in (False, True):
        found = learn(frame, {"v": "key"}, in_parts=in_parts)
        assert [one["kind"] for one in found] == ["key", "numeric"]


def test_bundles_named_by_the_caller_are_learned_alike() -> None:
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 70, ROWS)
    frame = pl.DataFrame({"wide": wide, "half": wide // 2, "x": rng.normal(size=ROWS)})
    both = [learn(frame, {}, in_parts=in_parts, bundles=[["wide", "half"]]) for in_parts in (False, True)]
    assert both[0] == both[1]
