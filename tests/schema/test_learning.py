from datetime import date, datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from arf_dask.data.checks import check_frame
from arf_dask.errors import DataError, OptionError, UnsupportedColumnError
from arf_dask.schema.discrete import Discrete
from arf_dask.schema.encoding import encode_codes
from arf_dask.schema.learning import infer_schema
from arf_dask.schema.level_order import level_scores

rng = np.random.default_rng(8)


def schema_of(data: Any, **given: Any) -> Any:
    options = {"kinds": {}, "keys": [], "bundles": "auto", **given}
    return infer_schema(pl.DataFrame(data), **options)


def kinds(schema: Any) -> dict[str, str]:
    return {column.name: column.kind for column in schema.columns}


def test_kinds_follow_from_dtypes() -> None:
    schema = schema_of(
        {
            "flag": [True, False] * 10,
            "word": ["a", "b"] * 10,
            "level": pl.Series(["low", "high"] * 10, dtype=pl.Enum(["low", "mid", "high"])),
            "whole": [1, 2] * 10,
            "real": [0.5, 1.5] * 10,
            "day": [date(2024, 1, 1), date(2024, 1, 2)] * 10,
            "nothing": [None] * 20,
            "empty": pl.Series([None] * 20, dtype=pl.Float64),
        }
    )
    words, numbers = dict.fromkeys(["flag", "word", "level"], "categorical"), ["whole", "real", "day"]
    assert kinds(schema) == words | dict.fromkeys(numbers, "numeric") | {"nothing": "empty", "empty": "empty"}
    assert schema.names == list(kinds(schema))
    assert schema.dtypes["level"] == pl.Enum(["low", "mid", "high"])


def test_kinds_can_be_said() -> None:
    zips = ["01234", "99999"] * 20
    schema = schema_of(
        {"zip": [1234, 99999] * 20, "id": zips, "code": zips},
        kinds={"zip": "categorical", "id": "key"},
        keys=["code"],
    )
    assert kinds(schema) == {"zip": "categorical", "id": "key", "code": "key"}
    assert schema.keys == ["id", "code"]
    assert len(schema.variables) == 1


def test_identifiers_are_found() -> None:
    frame = {
        "id": range(1, 101),
        "mail": [f"u{k}@x.org" for k in range(100)],
        "age": rng.integers(18, 60, 100),
    }
    assert schema_of(frame).keys == ["id", "mail"]


def test_a_constant_is_one_state() -> None:
    schema = schema_of({"x": [7] * 12, "y": [7, None] * 6}, bundles=False)
    assert [variable.n_states for variable in schema.variables] == [1, 2]
    assert [variable.n_codes for variable in schema.variables] == [1, 2]


def test_a_column_of_nan_only_has_no_numbers() -> None:
    schema = schema_of({"x": [float("nan"), None, float("nan")]})
    assert (schema.columns[0].kind, schema.columns[0].nans, schema.columns[0].nulls) == ("numeric", 2, 1)
    assert schema.variables[0].n_states == 2


def test_a_spread_column_is_a_line_with_its_spikes() -> None:
    values = [None] * 3 + [0.0] * 30 + rng.normal(100, 10, 80).tolist()
    [variable] = schema_of({"x": values}).variables
    assert variable.interval.tolist() == [False, False, True]
    assert variable.tokens[:, 0].tolist() == [0, 2, 3]  # null, the spike, any other number
    assert (variable.code_low[0], variable.code_high[0]) == (0, 0)
    assert (variable.code_low[1], variable.code_high[1]) == (1, 1)
    assert (variable.first_bin, variable.n_codes) == (1, len(variable.edges) + 2)


def test_interval_states_share_the_bins_between_them() -> None:
    [variable] = schema_of({"x": rng.lognormal(0, 2, 3_000)}).variables
    assert variable.interval.all()
    assert len(variable.segments) == variable.n_states - 1 > 0
    assert variable.code_low[0] == 0
    assert np.array_equal(variable.code_low[1:], variable.code_high[:-1] + 1)
    assert variable.code_high[-1] == len(variable.edges)
    assert set(variable.segments) <= set(variable.edges)


def test_explicit_bundles_are_taken_as_they_are() -> None:
    data = {"a": rng.integers(0, 3, 50), "b": rng.integers(0, 3, 50).astype(str), "c": rng.normal(size=50)}
    schema = schema_of(data, bundles=[["c", "a"]])
    assert schema.bundles == [["a", "c"]]
    assert schema.variables[0].n_states == 50
    assert schema_of(data, bundles=False).bundles == []
    assert schema_of(data, bundles=[]).bundles == []


def test_a_bundle_does_without_a_column_that_holds_nothing() -> None:
    frame = pl.DataFrame({"a": ["x", "y"] * 20, "empty": pl.Series([None] * 40, dtype=pl.String)})
    schema = schema_of(frame, bundles=[["a", "empty"]])
    assert schema.variable_of("a") is not None
    assert schema.variable_of("empty") is None


def test_a_bundle_with_a_column_taken_for_a_key_is_refused() -> None:
    frame = pl.DataFrame({"a": ["x", "y"] * 20, "id": [f"{k:07}" for k in range(40)]})
    with pytest.raises(OptionError, match="'id'"):
        schema_of(frame, bundles=[["a", "id"]])


def test_levels_are_ordered_by_the_company_they_keep() -> None:
    # p, q go with low numbers and r, s with high ones: whatever the alphabet says, these are neighbours.
    level = rng.integers(0, 4, 800)
    word = np.array(["p", "s", "q", "r"])[level]
    number = np.where(level % 2 == 0, 0, 50) + rng.integers(0, 40, 800)
    schema = schema_of({"word": word, "number": number}, bundles=False)
    [variable] = [v for v in schema.variables if v.columns == (0,)]
    order = schema.columns[0].levels.gather((variable.tokens[:, 0] - 2).tolist()).to_list()
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset("pq"), frozenset("rs")}


def test_scores_of_levels_that_go_together_are_alike() -> None:
    a = np.array([0, 0, 1, 1, 2, 2], dtype=np.int32)
    one, other = level_scores([Discrete(a, 3), Discrete(a[::1], 4)]).levels
    np.testing.assert_allclose(one, other[:3], atol=1e-9)
    assert other[3] == 0  # a level without a row
    assert level_scores([]).levels == []


def test_a_missing_level_stays_first() -> None:
    schema = schema_of({"x": ["b", None, "a", "c"] * 10, "y": rng.integers(0, 9, 40)}, bundles=False)
    assert schema.variables[0].tokens[0, 0] == 0


def test_where_a_column_is_modelled() -> None:
    data = {"a": [1, 2] * 20, "b": [None] * 40, "c": ["x", "y"] * 20, "d": rng.normal(size=40)}
    schema = schema_of(data, bundles=[["a", "c"]])
    assert schema.variable_of("a") == (0, 0)
    assert schema.variable_of("c") == (0, 1)
    assert schema.variable_of("d") == (1, 0)
    assert schema.variable_of("b") is None


def test_the_description_has_a_row_per_column() -> None:
    data = {"a": [1, 2] * 20, "c": ["x", "y"] * 20, "d": [None, *rng.normal(size=39)]}
    schema = schema_of(data, bundles=[["a", "c"]])
    expected = pl.DataFrame(
        {
            "column": ["a", "c", "d"],
            "dtype": ["Int64", "String", "Float64"],
            "kind": ["numeric", "categorical", "numeric"],
            "points": pl.Series([2, 2, 0], dtype=pl.UInt32),
            "intervals": pl.Series([0, 0, 1], dtype=pl.UInt32),
            "nulls": pl.Series([0, 0, 1], dtype=pl.UInt64),
            "bundle": [["a", "c"], ["a", "c"], []],
        },
        schema_overrides={"bundle": pl.List(pl.String)},
    )
    assert_frame_equal(schema.describe(), expected)
    assert repr(schema).splitlines() == [
        "Schema: 3 columns as 2 variables, 40 rows",
        "  column  dtype    kind         points  intervals  nulls",
        "  a       Int64    numeric      2       0          0",
        "  c       String   categorical  2       0          0",
        "  d       Float64  numeric      0       1          1",
        "modelled together: a + c",
    ]


@pytest.mark.parametrize("name", ["y", "tree", "leaf", "count", "", " ", "a.b", "🦜", "text", "value", "len", "^x.*$"])
def test_names_never_collide_with_ours(name: Any) -> None:
    frame = pl.DataFrame({name: ["b", None, "a"] * 9, "other": [1.5, None, 2.25] * 9})
    schema = schema_of(frame)
    assert schema.names == [name, "other"]
    assert encode_codes(frame, schema).shape == (27, len(schema.variables))


def test_the_schema_does_not_depend_on_the_order_of_rows() -> None:
    frame = pl.DataFrame({"x": rng.normal(size=200), "s": rng.choice(list("abc"), 200), "n": rng.integers(0, 9, 200)})
    one, other = schema_of(frame), schema_of(frame[rng.permutation(200)])
    for a, b in zip(one.variables, other.variables, strict=True):
        assert a.columns == b.columns
        assert np.array_equal(a.edges, b.edges)
        assert np.array_equal(np.sort(a.tokens, axis=0), np.sort(b.tokens, axis=0))
    assert one.describe().equals(other.describe())


def test_the_frame_is_not_changed() -> None:
    frame = pl.DataFrame({"x": [1.5, None, float("nan")] * 5, "s": ["b", None, "a"] * 5})
    before = frame.clone()
    schema_of(frame)
    assert_frame_equal(frame, before)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_few_rows_are_enough(rows: Any) -> None:
    frame = pl.DataFrame({"x": [1.5, 2.5, None], "s": ["a", "b", "c"], "at": [datetime(2024, 1, 1), None, None]})
    schema = schema_of(frame.head(rows), kinds={"s": "categorical"})
    assert schema.n_rows == rows
    assert encode_codes(frame.head(rows), schema).shape[0] == rows


def test_frames_without_rows_or_columns_are_refused() -> None:
    with pytest.raises(DataError, match="no columns"):
        check_frame(pl.DataFrame())
    with pytest.raises(DataError, match="no rows"):
        check_frame(pl.DataFrame({"a": []}))


def test_every_unsupported_column_is_listed_in_one_error() -> None:
    frame = pl.DataFrame(
        {
            "l": [[1]],
            "ok": [1],
            "s": [{"a": 1}],
            "b": [b"x"],
            "r": pl.Series([[1, 2]], dtype=pl.Array(pl.Int8, 2)),
        }
    )
    with pytest.raises(UnsupportedColumnError) as caught:
        schema_of(frame)
    assert all(f"'{name}'" in str(caught.value) for name in "lsbr")
    assert "'ok'" not in str(caught.value)


def test_infinite_values_are_counted_by_column() -> None:
    frame = pl.DataFrame(
        {"x": [1.0, float("inf"), float("-inf")], "y": [1.0, 2.0, 3.0], "z": [float("inf"), None, 1.0]}
    )
    with pytest.raises(DataError, match=r"'x': 2, 'z': 1"):
        schema_of(frame)
