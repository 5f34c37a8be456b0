from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_series_equal
from polars.testing.parametric import series as any_series

from arf_dask.errors import DataError
from arf_dask.schema.columns import FIRST_LEVEL, NAN, NULL
from arf_dask.schema.encoding import (
    UNSEEN,
    column_tokens,
    decode_column,
    encode_codes,
    encode_states,
    match_frame,
    states_of_codes,
    to_axis_values,
)
from arf_dask.schema.learning import infer_schema
from tests.hypothesis_profiles import examples

DTYPES = [
    *(pl.Boolean, pl.String, pl.Categorical, pl.Enum(["low", "mid", "high", "never"])),
    *(
        pl.Int8,
        pl.Int16,
        pl.Int32,
        pl.Int64,
        pl.Int128,
        pl.UInt8,
        pl.UInt16,
        pl.UInt32,
        pl.UInt64,
        pl.UInt128,
    ),
    *(pl.Float32, pl.Float64, pl.Decimal(12, 2), pl.Decimal(38, 10), pl.Decimal(38, 0)),
    *(pl.Date, pl.Time, pl.Duration("ms"), pl.Duration("us"), pl.Duration("ns")),
    *(pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns")),
    *(pl.Datetime("us", "Europe/Berlin"), pl.Datetime("ns", "Asia/Kathmandu"), pl.Datetime("ms", "UTC")),
]


def schema_of(frame: pl.DataFrame, **given: Any) -> Any:
    options = {"kinds": {}, "keys": [], "bundles": False, **given}
    return infer_schema(frame, **options)


def modelled(values: pl.Series, kind: str | None = None, **given: Any) -> Any:
    if kind is None:
        numeric = values.dtype.is_numeric() or values.dtype.is_temporal()
        kind = "numeric" if numeric else "categorical"
    return schema_of(values.to_frame(), kinds={values.name: kind}, **given)


def there_and_back(values: pl.Series, kind: str | None = None) -> pl.Series:
    column = modelled(values, kind).columns[0]
    if column.kind == "empty":
        return pl.Series(values.name, [None] * len(values), dtype=values.dtype)
    places = to_axis_values(values, column) if column.kind == "numeric" else None
    if places is not None:
        places = np.nan_to_num(places)
    return decode_column(column, column_tokens(values, column), places)


def finite(dtype: Any) -> Any:
    if dtype not in (pl.Float32, pl.Float64):
        return None
    return st.floats(allow_infinity=False, allow_nan=True, width=32)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=examples(25))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(data=st.data())
def test_decoded_codes_are_the_values(dtype: Any, data: Any) -> None:
    some = data.draw(any_series(name="x", dtype=dtype, min_size=1, max_size=6, strategy=finite(dtype), allow_null=True))
    # Each value six times: spikes all of them, so that nothing is lost where float64 would be too coarse.
    values = pl.concat([some] * 6)
    assert_series_equal(there_and_back(values), values, check_exact=True)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=examples(10))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(data=st.data())
def test_any_column_can_be_taken_for_categorical(dtype: Any, data: Any) -> None:
    values = data.draw(
        any_series(name="x", dtype=dtype, min_size=1, max_size=8, strategy=finite(dtype), allow_null=True)
    )
    assert_series_equal(there_and_back(values, "categorical"), values, check_exact=True)


def test_tokens_of_levels_are_in_the_order_of_their_text() -> None:
    values = pl.Series("x", ["b", None, "a", "b", "ü\n🦜,"])
    column = modelled(values).columns[0]
    assert column.levels.to_list() == ["a", "b", "ü\n🦜,"]
    assert column_tokens(values, column).tolist() == [3, NULL, 2, 3, 4]
    assert column_tokens(pl.Series(["never", "a"]), column).tolist() == [UNSEEN, FIRST_LEVEL]


def test_tokens_of_numbers_tell_null_nan_spikes_and_the_rest_apart() -> None:
    spread = [0.5 + number / 7 for number in range(100)]
    values = pl.Series("x", [0.0] * 20 + [None, float("nan")] + spread)
    column = modelled(values).columns[0]
    assert column.points.tolist() == [0.0]
    some = pl.Series("x", [None, float("nan"), 0.0, -0.0, 0.5, 99.0])
    assert column_tokens(some, column).tolist() == [NULL, NAN, 2, 2, column.between, column.between]


def test_codes_of_a_column_with_spikes() -> None:
    values = pl.Series("x", [None] * 2 + [0.0] * 20 + [0.5 + number / 8 for number in range(100)])
    schema = modelled(values)
    codes = encode_codes(values.to_frame(), schema)[:, 0]
    assert codes[:2].tolist() == [0, 0]  # null, then the bins in order
    assert set(codes[2:22]) == {1}
    assert codes[22:].tolist() == list(range(2, 102))


def test_states_are_the_tokens_of_a_column_of_points() -> None:
    frame = pl.DataFrame({"x": ["b", None, "a", "b"]})
    schema = schema_of(frame)
    [variable] = schema.variables
    states, places = encode_states(frame, schema, 0)
    assert places is None
    assert variable.tokens[states, 0].tolist() == [3, NULL, 2, 3]
    assert encode_states(pl.DataFrame({"x": ["z"]}), schema, 0)[0].tolist() == [UNSEEN]


def test_states_of_a_bundle_are_its_combinations() -> None:
    frame = pl.DataFrame({"a": ["x", "x", "y", None], "b": [1, 2, 1, 1], "c": [True, None, True, False]})
    schema = schema_of(frame, bundles=[["a", "b", "c"]])
    [variable] = schema.variables
    states = encode_states(frame, schema, 0)[0]
    assert sorted(states.tolist()) == [0, 1, 2, 3]
    expected = [column_tokens(frame[name], schema.columns[place]) for place, name in enumerate("abc")]
    assert np.array_equal(variable.tokens[states].T, np.stack(expected))
    new = pl.DataFrame({"a": ["x", "y", "q", None], "b": [1, 2, 1, 1], "c": [True, None, True, True]})
    assert encode_states(new, schema, 0)[0].tolist() == [states[0], UNSEEN, UNSEEN, UNSEEN]


def test_a_bundle_of_many_columns_finds_every_combination() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 500, (200, 9))
    frame = pl.DataFrame({f"c{k}": base[:, k] for k in range(9)})
    schema = schema_of(frame, bundles=[frame.columns], kinds=dict.fromkeys(frame.columns, "numeric"))
    states = encode_states(frame, schema, 0)[0]
    assert schema.variables[0].n_states == frame.n_unique() == len(np.unique(states))
    shifted = frame.with_columns(pl.col("c8").shift(1, fill_value=0))
    agrees = (shifted["c8"] == frame["c8"]).to_numpy()
    assert np.array_equal(encode_states(shifted, schema, 0)[0][agrees], states[agrees])
    assert np.all(encode_states(shifted, schema, 0)[0][~agrees] == UNSEEN)


def hours() -> pl.DataFrame:
    seconds = np.random.default_rng(1).integers(0, 86_400, 500)
    at = pl.Series("at", seconds * 10**9).cast(pl.Time)
    return pl.DataFrame({"at": at}).with_columns(hour=pl.col("at").dt.hour())


def test_states_of_a_line_with_a_column_read_off_it() -> None:
    frame = hours()
    schema = schema_of(frame, bundles="auto")
    states, places = encode_states(frame, schema, 0)
    assert schema.bundles == [["at", "hour"]]
    assert states.min() >= 0
    assert places is not None
    wrong = frame.with_columns(hour=(pl.col("hour") + 1) % 24)
    assert np.all(encode_states(wrong, schema, 0)[0] == UNSEEN)


def mixed(rows: int = 300) -> pl.DataFrame:
    rng = np.random.default_rng(4)
    amount = np.where(rng.random(rows) < 0.3, 0.0, np.round(rng.lognormal(3, 1, rows), 2))
    return pl.DataFrame(
        {
            "amount": pl.Series(amount).set(pl.Series(rng.random(rows) < 0.1), None),
            "ratio": pl.Series(rng.normal(size=rows)).set(pl.Series(rng.random(rows) < 0.1), float("nan")),
            "age": rng.integers(18, 90, rows),
            "city": rng.choice(["Oslo", "Rome", "Lima"], rows),
            "flag": rng.random(rows) < 0.5,
        }
    )


def test_the_state_of_a_code_is_the_state_of_every_row_with_that_code() -> None:
    frame = pl.concat([mixed(), hours().head(300)], how="horizontal")
    schema = schema_of(frame, bundles="auto", kinds={"ratio": "numeric"})
    codes = encode_codes(frame, schema)
    for number, variable in enumerate(schema.variables):
        states = encode_states(frame, schema, number)[0]
        assert np.array_equal(states_of_codes(variable)[codes[:, number]], states)
        inside = (variable.code_low[states] <= codes[:, number]) & (codes[:, number] <= variable.code_high[states])
        assert inside.all()
        assert codes[:, number].max() < variable.n_codes


def test_codes_do_not_depend_on_how_the_rows_are_cut() -> None:
    frame = mixed()
    schema = schema_of(frame, kinds={"ratio": "numeric"})
    parts = [encode_codes(part, schema) for part in (frame[:100], frame[100:101], frame[101:])]
    assert np.array_equal(np.concatenate(parts), encode_codes(frame, schema))
    assert encode_codes(frame[:0], schema).shape == (0, len(schema.variables))


def test_many_levels_need_wider_codes() -> None:
    frame = pl.DataFrame({"x": [f"level {k}" for k in range(70_000)]})
    codes = encode_codes(frame, schema_of(frame, kinds={"x": "categorical"}))
    assert codes.dtype == np.uint32
    assert len(np.unique(codes)) == 70_000


def test_levels_never_seen_are_an_error_that_names_their_column() -> None:
    schema = schema_of(pl.DataFrame({"x": ["a", "b"], "y": [1, 2]}))
    with pytest.raises(DataError, match="'x': 2 rows"):
        encode_codes(pl.DataFrame({"x": ["c", "a", "d"], "y": [1, 1, 1]}), schema)
    loose = encode_codes(pl.DataFrame({"x": ["c", "a"], "y": [1, 9]}), schema, strict=False)
    assert loose.max() <= 2


def test_a_frame_is_matched_by_name_and_dtype() -> None:
    schema = schema_of(pl.DataFrame({"x": ["a", "b"], "y": [1, 2]}))
    assert match_frame(pl.DataFrame({"z": [0], "y": [5], "x": ["q"]}), schema).columns == ["x", "y"]
    with pytest.raises(DataError, match="'x', 'y'"):
        match_frame(pl.DataFrame({"z": [0]}), schema)
    with pytest.raises(DataError, match="'y' is Float64, not Int64"):
        match_frame(pl.DataFrame({"x": ["a"], "y": [1.0]}), schema)


@pytest.mark.parametrize(
    "values",
    [
        pl.Series("x", [True, None, False] * 5),
        pl.Series("x", [Decimal("1.10"), None, Decimal("99999999999999999999.99")] * 5, dtype=pl.Decimal(30, 2)),
        pl.Series("x", [date(1, 1, 1), None, date(9999, 12, 31)] * 5),
        pl.Series("x", [time(0), None, time(23, 59, 59, 999999)] * 5),
        pl.Series("x", [timedelta(days=-9), None, timedelta(microseconds=1)] * 5),
        pl.Series(
            "x", [datetime(2024, 10, 27, 0, 30, tzinfo=UTC), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)] * 5
        ).dt.convert_time_zone("Europe/Berlin"),
        pl.Series("x", [2**64 - 1, None, 0, 2**64 - 2] * 5, dtype=pl.UInt64),
        pl.Series("x", [2**127 - 1, None, -(2**127)] * 5, dtype=pl.Int128),
        pl.Series("x", [0.1, None, float("nan"), -1e60, 1e-300] * 5),
        pl.Series("x", ["", None, " ", "a,b\n"] * 5),
    ],
    ids=lambda values: str(values.dtype),
)
@pytest.mark.parametrize("kind", [None, "categorical"])
def test_odd_values_come_back(values: Any, kind: Any) -> None:
    assert_series_equal(there_and_back(values, kind), values, check_exact=True)
