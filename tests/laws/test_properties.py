"""Any frame of supported dtypes: the twin has the same schema and stays inside what was seen."""

from __future__ import annotations

import warnings
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from polars.testing.parametric import column, dataframes

import arf_dask
from arf_dask.errors import ArfError, KeyColumnWarning
from tests.hypothesis_profiles import examples

NUMBERS = [
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128),
    *(pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.UInt128),
    *(pl.Float32, pl.Float64),
    *(pl.Decimal(9, 2), pl.Decimal(38, 0), pl.Decimal(38, 20), pl.Decimal(5, 5)),
]
TIMES = [
    *(pl.Date, pl.Time),
    *(pl.Duration("ms"), pl.Duration("us"), pl.Duration("ns")),
    *(pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns")),
    *(pl.Datetime("ms", "UTC"), pl.Datetime("us", "Europe/Berlin"), pl.Datetime("ns", "Asia/Kathmandu")),
]
LEVELS = [pl.Boolean, pl.String, pl.Categorical, pl.Enum(["low", "mid", "high", "never"]), pl.Null]
DTYPES: list[Any] = [*NUMBERS, *TIMES, *LEVELS]
NAMES = [
    "y",
    "tree",
    "leaf",
    "count",
    "",
    " ",
    "a.b",
    "🦜",
    "text",
    "value",
    "len",
    "state",
    "literal",
    "^x.*$",
]

few_examples = settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@st.composite
def frames(draw: st.DrawFn, most_rows: int = 50) -> pl.DataFrame:
    """Frames of 1 to 6 columns and 1 to 50 rows; many repeat their rows, as real tables do."""
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=6))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=len(dtypes), max_size=len(dtypes), unique=True))
    columns = [column(dtype=dtype, allow_null=draw(st.booleans()), strategy=_finite(dtype)) for dtype in dtypes]
    height = draw(st.integers(1, most_rows))
    frame = draw(dataframes(columns, min_size=height, max_size=height))
    frame.columns = names  # not before: the strategy itself stumbles over "^x.*$"
    repeated = draw(st.sampled_from([1, 1, 2, 10]))
    return pl.concat([frame] * repeated).head(most_rows)


def _finite(dtype: Any) -> st.SearchStrategy[Any] | None:
    if dtype not in (pl.Float32, pl.Float64):
        return None
    return st.floats(allow_infinity=False, allow_nan=True, width=32 if dtype == pl.Float32 else 64)


def twin(frame: pl.DataFrame, n: int, **options: Any) -> tuple[arf_dask.Model, pl.DataFrame]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeyColumnWarning)
        model = arf_dask.fit(frame, trees=3, min_leaf=2, seed=1, allow_copies=True, **options)
        return model, model.sample(n, seed=2)


def check_support(real: pl.DataFrame, drawn: pl.DataFrame, keys: list[str]) -> None:
    assert drawn.schema == real.schema
    for name in real.columns:
        # Polars' own methods take a name such as "^x.*$" for a pattern: compare without names.
        old, new = real[name].alias("-"), drawn[name].alias("-")
        assert old.null_count() or not new.null_count(), f"{name!r}: null was never seen"
        if name in keys:
            fresh = new.drop_nulls()
            assert fresh.n_unique() == len(fresh)
            assert not set(fresh.to_list()) & set(old.to_list())
        elif old.dtype.is_float():
            _check_floats(old.drop_nulls(), new.drop_nulls(), name)
        elif old.dtype.is_numeric() or old.dtype.is_temporal():
            _check_range(old.drop_nulls().to_physical(), new.drop_nulls().to_physical(), name)
        else:
            assert set(new.cast(pl.String).to_list()) <= set(old.cast(pl.String).to_list())


def _check_floats(old: pl.Series, new: pl.Series, name: str) -> None:
    assert not new.is_infinite().any()
    assert old.is_nan().any() or not new.is_nan().any(), f"{name!r}: NaN was never seen"
    _check_range(old.drop_nans(), new.drop_nans(), name)


def _check_range(old: pl.Series, new: pl.Series, name: str) -> None:
    if len(new):
        assert old.min() <= new.min() <= new.max() <= old.max(), f"{name!r}: outside the range seen"


@few_examples
@given(frames(), st.sampled_from([0, 1, 7, 100]))
@example(pl.DataFrame({"u": pl.Series([0, 2**64 - 1, 2**64 - 1] * 9, dtype=pl.UInt64)}), 7)
@example(pl.DataFrame({"u": pl.Series([2**127, 2**128 - 1, 5], dtype=pl.UInt128)}), 7)
@example(pl.DataFrame({"i": pl.Series([-(2**127), 2**127 - 1, 0], dtype=pl.Int128)}), 7)
@example(pl.DataFrame({"f": [5e-324, 1.7e308, -1.7e308, float("nan"), None]}), 7)
@example(pl.DataFrame({"f": pl.Series([-0.0, 0.0, 6e-8, 65504], dtype=pl.Float16)}), 7)
@example(pl.DataFrame({"id": pl.Series(range(40), dtype=pl.UInt8)}), 100)
@example(pl.DataFrame({"f": [0.25, 1.5, 2e292, -3e-121, 0.125] * 8}), 100)
@example(pl.DataFrame({"t": pl.Series([-(2**63) + 1, 10**18, 0] * 13).cast(pl.Datetime("ns"))}), 7)
@example(
    pl.DataFrame(
        {"t": pl.Series([510_000_000_000_000, 520_000_000_000_000] * 13).cast(pl.Datetime("us", "Asia/Kathmandu"))}
    ),
    7,
)
def test_twin_has_the_schema_and_stays_inside_what_was_seen(frame: pl.DataFrame, n: int) -> None:
    try:
        model, drawn = twin(frame, n)
    except ArfError:
        assume(False)
    assert drawn.height == n
    check_support(frame, drawn, model.schema.keys)


@settings(few_examples, max_examples=examples(25))
@given(frames())
def test_the_uniform_family_stays_inside_too(frame: pl.DataFrame) -> None:
    model, drawn = twin(frame, 40, family="uniform", bundles=False)
    check_support(frame, drawn, model.schema.keys)


@settings(few_examples, max_examples=examples(25))
@given(frames())
def test_one_seed_gives_one_twin(frame: pl.DataFrame) -> None:
    assert_frame_equal(twin(frame, 30)[1], twin(frame, 30)[1])


@settings(few_examples, max_examples=examples(25))
@given(frames())
def test_every_training_row_has_a_density(frame: pl.DataFrame) -> None:
    model, drawn = twin(frame, 30)
    for rows in (frame, drawn):
        density = model.log_density(rows)
        assert density.is_finite().all()


@settings(few_examples, max_examples=examples(25))
@given(frames())
def test_no_dtype_is_refused(frame: pl.DataFrame) -> None:
    twin(frame, 3)


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Int32, pl.Date, pl.Datetime("us", "UTC")], ids=str)
def test_another_seed_gives_another_twin(dtype: pl.DataType) -> None:
    frame = pl.select(x=pl.int_range(500).shuffle(seed=0) * 7 % 301).cast(dtype)
    model = arf_dask.fit(frame, trees=3, seed=0, allow_copies=True)
    assert not model.sample(50, seed=1).equals(model.sample(50, seed=2))
    assert not model.sample(50).equals(model.sample(50))
