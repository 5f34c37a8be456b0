"""The law of leaf sums, on the functions that `fit` runs: however rows are cut, merged sums are those of the whole."""

import hashlib
import os
import subprocess
import sys
from functools import reduce
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from arf_dask.data.parts import FramePart, PartGroup, Parts
from arf_dask.forest import leaf_sums, state_counts
from arf_dask.forest.leaf_sums import SUM_COLUMNS, LeafSums, SumContext, merge_sums, sum_parts, sums_table
from arf_dask.forest.routing import route_to_leaves, routing_table
from arf_dask.forest.trees import LEAF, Tree
from arf_dask.runtime.progress import progress_for
from arf_dask.runtime.tasks import Threads
from arf_dask.schema.encoding import encode_codes, encode_states
from arf_dask.schema.learning import infer_schema

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


def tree_of(*nodes: Any) -> Tree:
    return Tree(*np.array(nodes, dtype=np.int32).T)


# The first tree splits on the amount, then on the place in time; the second on the place in time.
TREES = [
    tree_of((0, 40, 1, 2), (LEAF, 0, -1, -1), (1, 50, 3, 4), (LEAF, 0, -1, -1), (LEAF, 0, -1, -1)),
    tree_of((1, 30, 1, 2), (LEAF, 0, -1, -1), (LEAF, 0, -1, -1)),
]
CONTEXT = SumContext(SCHEMA, 0, [routing_table(tree) for tree in TREES], 1)
LEAVES = [route_to_leaves(table, encode_codes(FRAME, SCHEMA)) for table in CONTEXT.routing]


def sums_of(*parts: Any, context: SumContext = CONTEXT, frame: pl.DataFrame = FRAME) -> LeafSums:
    """The sums of the given rows, part by part."""
    return sum_parts(context, PartGroup(0, [FramePart(frame[np.asarray(part, dtype=int)]) for part in parts]))


def tables_of(sums: LeafSums, schema: Any = SCHEMA, starts: Any = STARTS) -> list[pl.DataFrame]:
    numbers, dtypes = range(len(schema.variables)), pl.Schema(SUM_COLUMNS)
    return [sums_table(sums, schema, number, starts).cast(dtypes) for number in numbers]


def merged(*parts: Any) -> LeafSums:
    """The sums of the given rows, each part by a task of its own."""
    return reduce(merge_sums, [sums_of(part) for part in parts])


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


def assert_same(one: LeafSums, other: LeafSums) -> None:
    for a, b in zip(tables_of(one), tables_of(other), strict=True):
        assert_frame_equal(a, b, rel_tol=1e-9, abs_tol=1e-9)
    for before, after in zip(one.histograms, other.histograms, strict=True):
        assert np.array_equal(before, after)


def digest(sums: LeafSums) -> str:
    columns = [column for table in tables_of(sums) for column in table.fill_null(0)]
    return hashlib.sha256(b"".join(column.to_numpy().tobytes() for column in columns)).hexdigest()


def test_two_leaves_worked_out_by_hand() -> None:
    frame = pl.DataFrame({"x": [1.0, 2.0, 4.0, 8.0, None, 16.0], "y": ["a", "b", "a", "a", "a", "b"]})
    schema = infer_schema(frame, kinds={"x": "numeric"}, keys=[])
    level = {name: state for state, name in enumerate(schema.columns[1].levels.gather(_order(schema)).to_list())}
    tree = tree_of((1, 0, 1, 2), (LEAF, 0, -1, -1), (LEAF, 0, -1, -1))
    context = SumContext(schema, 0, [routing_table(tree)], 1)
    x, y = tables_of(sums_of(range(6), context=context, frame=frame), schema, np.array([0, 2]))
    a, b = level["a"], level["b"]
    # Rows of "a" hold 1, 4, 8 and the null (state 0); rows of "b" hold 2 and 16.
    squares = 1 + 16 + 64 - 169 / 3
    expected = [(a, 0, 1, None, None), (a, 1, 3, 13 / 3, squares), (b, 1, 2, 9.0, 98.0)]
    assert_frame_equal(x, pl.DataFrame(sorted(expected), schema=SUM_COLUMNS, orient="row"))
    assert y.select("leaf", "state", "count").rows() == sorted([(a, a, 4), (b, b, 2)])


def _order(schema: Any) -> list[int]:
    return (schema.variables[1].tokens[:, 0] - 2).tolist()


@pytest.mark.parametrize("number", range(len(SCHEMA.variables)))
def test_group_bys_agree_with_a_plain_loop(number: Any) -> None:
    assert min(np.bincount(leaves).min() for leaves in LEAVES) > 5
    assert_frame_equal(tables_of(sums_of(range(120)))[number], loop_sums(number), rel_tol=1e-9, abs_tol=1e-9)


def test_the_tables_are_sorted_and_typed() -> None:
    for table in tables_of(sums_of(range(120))):
        assert dict(table.schema) == SUM_COLUMNS
        assert table.select("leaf", "state").equals(table.select("leaf", "state").sort("leaf", "state"))
        assert table.select("leaf", "state").is_unique().all()


@settings(max_examples=25)
@given(st.lists(st.integers(0, 4), min_size=120, max_size=120), st.permutations(range(5)))
def test_merged_parts_are_the_whole_however_it_is_cut(part_of_row: Any, order: Any) -> None:
    parts = [np.flatnonzero(np.array(part_of_row) == part) for part in order]
    whole = sums_of(range(120))
    assert_same(merged(*parts), whole)
    assert_same(sums_of(*parts), whole)


@pytest.mark.parametrize("n", [1, 2, 7, 60, 200])
def test_any_number_of_parts_gives_the_same_sums(n: Any) -> None:
    rows = np.random.default_rng(2).integers(0, 120, 4_000)
    whole, parts = sums_of(rows), np.array_split(rows, n)
    assert_same(merged(*parts), whole)
    assert_same(sums_of(*parts), whole)


@pytest.mark.parametrize("limit", [0, 20, 2**22])
def test_counts_are_the_same_whether_their_tables_have_gaps_or_not(monkeypatch: pytest.MonkeyPatch, limit: Any) -> None:
    whole = sums_of(range(120))
    monkeypatch.setattr(state_counts, "DENSE_CELLS", limit)
    assert_same(merged(range(50), range(50, 120)), whole)
    assert_same(sums_of(range(50), range(50, 120)), whole)


@given(st.permutations(range(120)))
@settings(max_examples=25)
def test_the_order_of_rows_does_not_matter(order: Any) -> None:
    assert_same(sums_of(order), sums_of(range(120)))


def test_merging_can_be_nested_and_changes_nothing_it_was_given() -> None:
    a, b, c = sums_of(range(40)), sums_of(range(40, 41)), sums_of(range(41, 120))
    before = [digest(sums) for sums in (a, b, c)]
    assert_same(merge_sums(merge_sums(a, b), c), merge_sums(a, merge_sums(c, b)))
    assert [digest(sums) for sums in (a, b, c)] == before


def test_parts_without_rows_add_nothing() -> None:
    assert_same(merged([], range(120), []), sums_of(range(120)))


def test_trees_in_batches_have_the_sums_of_all_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(dict(FRAME.schema), [FramePart(FRAME[:70]), FramePart(FRAME[70:])], lambda frame: frame)
    whole = tables_of(sums_of(range(120)))
    monkeypatch.setattr(leaf_sums, "BATCH_BYTES", 1)
    with progress_for(False) as report:
        batches = list(leaf_sums.sum_leaves(parts, SCHEMA, TREES, Threads(), report))
    assert [sums.first_tree for sums in batches] == [0, 1]
    for number, table in enumerate(whole):
        found = pl.concat([tables_of(sums)[number] for sums in batches])
        assert_frame_equal(found, table, rel_tol=1e-9, abs_tol=1e-9)


def test_a_large_mean_with_little_spread_keeps_its_digits() -> None:
    values = 1e9 + np.array([0.125, 0.25, 0.5, 0.75, 0.875])
    frame = pl.DataFrame({"x": values})
    schema = infer_schema(frame, kinds={"x": "numeric"}, keys=[])
    context = SumContext(schema, 0, [routing_table(tree_of((LEAF, 0, -1, -1)))], 1)
    rows = [[k] for k in range(5)]
    one_by_one = reduce(merge_sums, [sums_of(row, context=context, frame=frame) for row in rows])
    for sums in (sums_of(range(5), context=context, frame=frame), one_by_one):
        assert tables_of(sums, schema, np.array([0, 1]))[0]["squares"][0] == pytest.approx(values.var() * 5, rel=1e-6)


def many_rows_digest() -> str:
    return digest(sums_of(np.random.default_rng(0).integers(0, 120, 200_000)))


def test_the_same_rows_give_the_same_bits_for_any_number_of_polars_threads() -> None:
    code = f"import runpy; print(runpy.run_path({__file__!r})['many_rows_digest']())"
    found = {many_rows_digest() for _ in range(3)}
    for threads in ("1", "3"):
        environment = {**os.environ, "POLARS_MAX_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        found.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip())
    assert len(found) == 1
