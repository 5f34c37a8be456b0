import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from arf_dask.encode import encode_codes, encode_states
from arf_dask.forde import SUM_COLUMNS, merge, summarise
from arf_dask.infer import infer_schema

STARTS = np.array([0, 3, 5], dtype=np.int32)  # two trees, of three leaves and of two


def mixed(rows: int = 120) -> pl.DataFrame:
    """A spread line with spikes, nulls and NaN, a grid far from zero, and levels."""
    rng = np.random.default_rng(9)
    amount = pl.Series(np.where(rng.random(rows) < 0.3, 0.0, rng.lognormal(3, 2, rows)))
    return pl.DataFrame(
        {
            "amount": amount.set(pl.Series(rng.random(rows) < 0.1), None).set(
                pl.Series(rng.random(rows) < 0.1), float("nan")
            ),
            "at": pl.Series(1_700_000_000_000_000 + rng.integers(0, 10**12, rows)).cast(pl.Datetime("us")),
            "city": rng.choice(["Oslo", "Rome", "Lima"], rows),
        }
    )


FRAME = mixed()
SCHEMA = infer_schema(FRAME, kinds={"at": "numeric", "amount": "numeric"}, keys=[])
CODES = encode_codes(FRAME, SCHEMA)
rng = np.random.default_rng(1)
LEAVES = [rng.integers(0, 3, 120).astype(np.int32), rng.integers(0, 2, 120).astype(np.int32)]


def sums_of(rows) -> list[pl.DataFrame]:
    rows = np.asarray(rows, dtype=int)
    return summarise(FRAME[rows], SCHEMA, CODES[rows], [leaves[rows] for leaves in LEAVES], STARTS)


def loop_sums(number: int) -> pl.DataFrame:
    """The same by a plain loop over rows."""
    variable = SCHEMA.variables[number]
    states, places = encode_states(FRAME, SCHEMA, number)
    held: dict[tuple[int, int], list[float]] = {}
    for tree, leaves in enumerate(LEAVES):
        for row, leaf in enumerate(leaves):
            key = (int(leaf + STARTS[tree]), int(states[row]))
            held.setdefault(key, []).append(np.nan if places is None else float(places[row]))
    table = []
    for (leaf, state), values in sorted(held.items()):
        mean = squares = None
        if variable.interval[state]:
            mean = sum(values) / len(values)
            squares = sum((value - mean) ** 2 for value in values)
        table.append((leaf, state, len(values), mean, squares))
    return pl.DataFrame(table, schema=SUM_COLUMNS, orient="row")


def assert_same(one: list[pl.DataFrame], other: list[pl.DataFrame]) -> None:
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert_frame_equal(a, b, rel_tol=1e-9, abs_tol=1e-9)


def test_two_leaves_worked_out_by_hand():
    frame = pl.DataFrame({"x": [1.0, 2.0, 4.0, 8.0, None, 16.0], "y": ["a", "b", "a", "a", "a", "b"]})
    schema = infer_schema(frame, kinds={"x": "numeric"}, keys=[])
    leaves = [np.array([0, 0, 1, 1, 1, 0], dtype=np.int32)]
    codes = encode_codes(frame, schema)
    x, y = summarise(frame, schema, codes, leaves, np.array([0, 2], dtype=np.int32))
    # Leaf 0 holds 1, 2, 16; leaf 1 holds 4, 8 and the null (state 0).
    expected = [(0, 1, 3, 19 / 3, 1 + 4 + 256 - 361 / 3), (1, 0, 1, None, None), (1, 1, 2, 6.0, 8.0)]
    assert_frame_equal(x, pl.DataFrame(expected, schema=SUM_COLUMNS, orient="row"))
    level = {column: state for state, column in enumerate(schema.columns[1].levels.gather(_order(schema)).to_list())}
    counts = {(row["leaf"], row["state"]): row["count"] for row in y.iter_rows(named=True)}
    assert counts == {(0, level["a"]): 1, (0, level["b"]): 2, (1, level["a"]): 3}


def _order(schema) -> list[int]:
    return (schema.variables[1].tokens[:, 0] - 2).tolist()


@pytest.mark.parametrize("number", range(len(SCHEMA.variables)))
def test_group_bys_agree_with_a_plain_loop(number):
    assert_frame_equal(sums_of(range(120))[number], loop_sums(number), rel_tol=1e-9, abs_tol=1e-9)


def test_the_tables_are_sorted_and_typed():
    for table in sums_of(range(120)):
        assert dict(table.schema) == SUM_COLUMNS
        assert table.select("leaf", "state").equals(table.select("leaf", "state").sort("leaf", "state"))
        assert table.select("leaf", "state").is_unique().all()


@settings(max_examples=25)
@given(st.lists(st.integers(0, 4), min_size=120, max_size=120), st.permutations(range(5)))
def test_merged_parts_are_the_whole_however_it_is_cut(part_of_row, order):
    parts = [sums_of(np.flatnonzero(np.array(part_of_row) == part)) for part in order]
    assert_same(merge(parts), sums_of(range(120)))


@given(st.permutations(range(120)))
def test_the_order_of_rows_does_not_matter(order):
    assert_same(sums_of(order), sums_of(range(120)))


def test_merging_can_be_nested():
    a, b, c = sums_of(range(40)), sums_of(range(40, 41)), sums_of(range(41, 120))
    assert_same(merge([merge([a, b]), c]), merge([a, merge([c, b])]))


def test_one_part_merged_is_itself():
    assert_same(merge([sums_of(range(120))]), sums_of(range(120)))


def test_parts_without_rows_add_nothing():
    assert_same(merge([sums_of([]), sums_of(range(120)), sums_of([])]), sums_of(range(120)))


def test_a_large_mean_with_little_spread_keeps_its_digits():
    values = 1e9 + np.array([0.125, 0.25, 0.5, 0.75, 0.875])
    frame = pl.DataFrame({"x": values})
    schema = infer_schema(frame, kinds={"x": "numeric"}, keys=[])
    leaves, starts = np.zeros(5, dtype=np.int32), np.array([0, 1], dtype=np.int32)
    codes = encode_codes(frame, schema)
    whole = summarise(frame, schema, codes, [leaves], starts)
    parts = [summarise(frame[[k]], schema, codes[[k]], [leaves[[k]]], starts) for k in range(5)]
    for sums in (whole, merge(parts)):
        assert sums[0]["squares"][0] == pytest.approx(values.var() * 5, rel=1e-6)


def test_the_same_rows_give_the_same_bits():
    # Sums by many threads must not depend on which of them is first.
    rows = np.random.default_rng(0).integers(0, 120, 200_000)
    first = sums_of(rows)
    for _ in range(3):
        again = sums_of(rows)
        assert all(one.equals(other) for one, other in zip(first, again, strict=True))
