from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.forest import tables as arf_tables
from arf_dask.forest.smoothing import (
    box_rows,
    column_counts,
    leaf_counts,
    leaf_probabilities,
    leaf_sums,
    range_sums,
    row_shares,
)
from arf_dask.forest.tables import Entries, LeafTables, Round, first_entries, variable_tables
from arf_dask.forest.trees import Tree
from arf_dask.schema.columns import Column, Schema, Variable

LETTERS, SIDES = ["a", "b", "c"], ["left", "right"]


def points(place: int, levels: list[str]) -> tuple[Column, Variable]:
    codes = np.arange(len(levels), dtype=np.int32)
    tokens = (codes + 2)[:, None]
    column = Column(f"c{place}", pl.String(), "categorical", pl.Series(levels))
    return column, Variable((place,), tokens, np.zeros(len(levels), dtype=bool), codes, codes)


def entries(table: np.ndarray) -> Entries:
    """One row per (leaf, state) that holds rows, from a table of counts."""
    leaf, state = (index.astype(np.uint32) for index in np.nonzero(table))
    nothing = np.full(len(leaf), np.nan)
    return Entries(first_entries(leaf, len(table)), state, table[leaf, state].astype(np.uint32), nothing, nothing)


# Ten rows in three leaves: c0 is "a" (leaf 0), else c1 is left (leaf 1) or right (leaf 2).
TREE = Tree(*np.array([[0, -1, 1, -1, -1], [0, 0, 0, 0, 0], [1, -1, 3, -1, -1], [2, -1, 4, -1, -1]], dtype=np.int32))
COUNTS = (np.array([[4, 0, 0], [0, 2, 1], [0, 0, 3]]), np.array([[3, 1], [3, 0], [0, 3]]))
HISTOGRAMS = (np.array([4, 2, 4]), np.array([6, 4]))


def tables(strength: float = 1.0, histograms: Any = HISTOGRAMS) -> LeafTables:
    columns: Any
    variables: Any
    columns, variables = zip(points(0, LETTERS), points(1, SIDES), strict=True)
    schema = Schema(columns, variables, 10)
    empty = variable_tables(schema, histograms, [strength] * 2, "observed")
    outline = LeafTables(schema, [TREE], np.full(3, 10), empty, "truncnorm", "observed", [Round(0, 0.5, 3)])
    return outline.with_entries([entries(table) for table in COUNTS])


def probabilities(number: int, **given: Any) -> np.ndarray:
    model = tables(**given)
    return leaf_probabilities(model.variables[number], model.batch_leaves(0))


def test_counts_of_a_tree_as_a_table() -> None:
    for number, counts in enumerate(COUNTS):
        assert np.array_equal(leaf_counts(tables().variables[number], tables().batch_leaves(0)).toarray(), counts)


def test_parents_split_and_boxes_of_the_leaves() -> None:
    leaves = tables().batch_leaves(0)
    assert list(zip(leaves.first, leaves.last, leaves.split, strict=True)) == [
        (0, 3, 0),
        (1, 3, 1),
        (1, 3, 1),
    ]
    assert leaves.boxes.low.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert leaves.boxes.high.tolist() == [[0, 1], [2, 0], [2, 1]]


def test_a_parent_counts_for_what_it_does_not_split_on() -> None:
    leaves = tables().batch_leaves(0)
    share = row_shares(tables().variables[0], leaves, np.array([4, 6, 6]))
    # The root splits on c0, so leaf 0 stands in for it; leaves 1 and 2 share a parent of six rows.
    np.testing.assert_allclose(share.own, [1 / 5 * (1 + 10 / 11 / 4), 1 / 4, 1 / 4])
    np.testing.assert_allclose(share.parent, [0, 1 / 4 * 6 / 7 / 6, 1 / 4 * 6 / 7 / 6])
    np.testing.assert_allclose(share.column, [1 / 5 * 1 / 11 / 4, 1 / 4 * 1 / 7 / 6, 1 / 4 * 1 / 7 / 6])


def test_the_column_counts_inside_the_box() -> None:
    variable = tables().schema.variables[0]
    low, high = np.array([0, 1, 0]), np.array([0, 2, 2])
    assert column_counts(variable, HISTOGRAMS[0], low, high, np.arange(3)).tolist() == [[4, 0, 0], [0, 2, 4], [4, 2, 4]]
    assert box_rows(HISTOGRAMS[0], low, high).tolist() == [4, 6, 10]


def test_sums_of_ranges_keep_what_is_small_beside_what_is_large() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(37, 2)) * 10.0 ** rng.integers(-9, 9, (37, 2))
    first = rng.integers(0, 37, 200)
    last = rng.integers(first, 38)
    expected = [values[a:b].sum(axis=0) for a, b in zip(first, last, strict=True)]
    np.testing.assert_allclose(range_sums(values, first, last), expected, rtol=1e-12)
    assert range_sums(np.array([[1e20], [1.0], [1e20]]), np.array([1]), np.array([2])).item() == 1.0


def test_one_row_of_prior() -> None:
    np.testing.assert_allclose(probabilities(0), [[1.0, 0.0, 0.0], [0.0, 7 / 12, 5 / 12], [0.0, 1 / 12, 11 / 12]])
    np.testing.assert_allclose(probabilities(1), [[3.6 / 5, 1.4 / 5], [1.0, 0.0], [0.0, 1.0]])


def test_parent_and_column_are_weighed_by_the_rows_of_the_parent() -> None:
    # In the box of leaf 1 the column says 1/2 each, the parent 1/3 and 2/3: together 5/14 and 9/14.
    found = probabilities(0, histograms=(np.array([4, 4, 4]), HISTOGRAMS[1]))
    np.testing.assert_allclose(found[1], [0, (2 + 5 / 14) / 4, (1 + 9 / 14) / 4])


def test_no_prior_leaves_the_shares_as_they_are() -> None:
    np.testing.assert_allclose(probabilities(0, strength=0.0), [[1.0, 0.0, 0.0], [0.0, 2 / 3, 1 / 3], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize("strength", [0.0, 0.1, 1.0, 7.0, 1e6])
@pytest.mark.parametrize("number", [0, 1])
def test_probabilities_sum_to_one_whatever_the_prior(number: Any, strength: Any) -> None:
    np.testing.assert_allclose(probabilities(number, strength=strength).sum(axis=1), 1)


def test_a_strong_prior_draws_a_leaf_to_its_column() -> None:
    np.testing.assert_allclose(probabilities(0, strength=1e9)[1:], [[0, 1 / 3, 2 / 3]] * 2, atol=1e-6)


@pytest.fixture(name="model", scope="module")
def fixture_model() -> Any:
    """Every kind of variable: spikes, intervals, nulls, NaN, levels, a bundle, a column read off a line."""
    rng = np.random.default_rng(6)
    rows = 600
    amount = pl.Series(np.where(rng.random(rows) < 0.3, 0.0, rng.lognormal(3, 2, rows)))
    group = rng.integers(0, 5, rows)
    clock = pl.Series(rng.integers(0, 86_400, rows) * 10**9).cast(pl.Time)
    frame = pl.DataFrame(
        {
            "amount": amount.set(pl.Series(rng.random(rows) < 0.2), None),
            "ratio": pl.Series(rng.normal(group, 1)).set(pl.Series(rng.random(rows) < 0.1), float("nan")),
            "group": group.astype(str),
            "name": np.array(["red", "green", "blue", "pink", "grey"])[group],
            "at": clock,
            "hour": clock.dt.hour(),
        }
    )
    return arf_dask.fit(
        frame, trees=4, min_leaf=5, seed=0, columns={"ratio": "numeric", "amount": "numeric"}, find_rules=False
    )


def each(model: Any) -> Iterator[Any]:
    tables = model._fitted.tables
    for batch in range(tables.n_batches):
        leaves = tables.batch_leaves(batch)
        for table in tables.variables:
            yield leaf_probabilities(table, leaves), table, leaves


def test_every_leaf_of_a_fitted_model_sums_to_one(model: Any) -> None:
    assert len(model.schema.bundles) == 2
    for found, *_ in each(model):
        assert np.all(found >= 0)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)


def test_nothing_outside_its_box_has_probability(model: Any) -> None:
    for found, table, leaves in each(model):
        low, high = leaves.boxes.low[:, [table.index]], leaves.boxes.high[:, [table.index]]
        outside = (table.variable.code_high[None, :] < low) | (table.variable.code_low[None, :] > high)
        assert np.all(found[outside] == 0)


def test_whatever_a_leaf_has_seen_has_probability(model: Any) -> None:
    for found, table, leaves in each(model):
        assert np.all(found[leaf_counts(table, leaves).toarray() > 0] > 0)


def test_some_states_and_sums_over_all_of_them_are_those_of_the_whole_table(model: Any) -> None:
    rng = np.random.default_rng(0)
    for found, table, leaves in each(model):
        some = np.flatnonzero(rng.random(table.variable.n_states) < 0.5).astype(np.int32)
        np.testing.assert_allclose(leaf_probabilities(table, leaves, some), found[:, some], rtol=1e-12)
        values = rng.normal(size=(table.variable.n_states, 2))
        np.testing.assert_allclose(leaf_sums(table, leaves, values), found @ values, rtol=1e-10, atol=1e-12)


def test_families_of_any_size_give_the_same(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [found for found, *_ in each(model)]
    monkeypatch.setattr(arf_tables, "LARGE_FAMILIES", 0)
    for (found, *_), expected in zip(each(model), before, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)
