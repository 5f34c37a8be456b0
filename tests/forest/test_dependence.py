"""The dependency tree of a forest: its bins, its edges, its ratios."""

from functools import reduce
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.data.parts import FramePart, PartGroup
from arf_dask.forest.dependence import Dependence, Edge, is_forest
from arf_dask.forest.dependence_bins import code_bins, member_bins
from arf_dask.forest.dependence_learning import (
    MOST_RATIO,
    Structure,
    _fit_edge,
    _member_candidates,
    count_meetings,
    screen_pairs,
)
from arf_dask.forest.leaf_fitting import fit_leaves
from arf_dask.forest.leaf_sums import SumContext, merge_sums, sum_parts
from arf_dask.forest.routing import routing_table
from arf_dask.inference.tree_batches import tree_batch
from arf_dask.schema.columns import Column, Variable
from arf_dask.schema.encoding import encode_codes
from arf_dask.stats.log_sums import run_starts
from arf_dask.stats.spanning_tree import Link
from arf_dask.typing import Kind


def levels(n: int, null: bool = False) -> Variable:
    """A variable of levels; the first is null if asked."""
    tokens = np.arange(n, dtype=np.int32)[:, None] + (0 if null else 2)
    codes = np.arange(n, dtype=np.int32)
    return Variable((0,), tokens, np.zeros(n, dtype=bool), codes, codes)


def chain(n: int, seed: int = 0) -> pl.DataFrame:
    """a -> b -> c, and d on its own."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n)
    b = a + rng.normal(size=n) / 2
    c = np.where(b + rng.normal(size=n) / 2 > 0, "up", "down")
    return pl.DataFrame({"a": a, "b": b, "c": c, "d": rng.normal(size=n)})


# Bins.


def test_levels_that_hold_a_real_share_have_bins_of_their_own() -> None:
    # Of 100 rows and four bins, 13 rows are half a bin's worth and more.
    assert code_bins(levels(6), np.array([1, 1, 50, 20, 14, 14]), bins=4).tolist() == [0, 0, 1, 2, 3, 4]


def test_null_has_a_bin_of_its_own_however_rare() -> None:
    assert code_bins(levels(4, null=True), np.array([1, 33, 33, 33]), bins=2)[:2].tolist() == [0, 1]


def test_rare_levels_share_bins_of_equal_weight() -> None:
    bins = code_bins(levels(100), np.full(100, 5), bins=4)
    assert run_starts(bins).tolist() == [0, 25, 50, 75]
    assert bins[[0, 24, 25, 99]].tolist() == [0, 0, 1, 3]


def test_levels_of_a_column_may_be_the_bins_of_its_bundle() -> None:
    codes = np.array([3, 1, 0, 2], dtype=np.int32)
    tokens = np.array([[2, 2], [3, 5], [2, 3], [4, 4]], dtype=np.int32)
    bundle = Variable((0, 1), tokens, np.zeros(4, dtype=bool), codes, codes)
    columns = [
        Column("city", pl.String(), "categorical", pl.Series([], dtype=pl.String)),
        Column("zip", pl.String(), "categorical", pl.Series([], dtype=pl.String)),
    ]
    histogram = np.full(4, 5)
    found = member_bins(bundle, columns, histogram)
    assert [bins.tolist() for bins in found] == [[0, 1, 2, 0], [1, 3, 2, 0]]
    assert member_bins(levels(4), columns[:1], histogram) == []


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
def test_rare_levels_of_a_column_of_a_bundle_share_bins_with_their_neighbours(kind: Kind) -> None:
    # 200 combinations of 100 levels: codes 2i and 2i + 1 have level 99 - i. Level 99 has a third of the rows.
    codes = np.arange(200, dtype=np.int32)
    tokens = np.stack([np.repeat(np.arange(100)[::-1], 2) + 2, codes % 2 + 2], axis=1).astype(np.int32)
    bundle = Variable((0, 1), tokens, np.zeros(200, dtype=bool), codes, codes)
    columns = [
        Column("part", pl.String(), kind, pl.Series([], dtype=pl.String)),
        Column("side", pl.String(), "categorical", pl.Series([], dtype=pl.String)),
    ]
    histogram = np.where(codes < 2, 990, 20)
    by_part, by_side = member_bins(bundle, columns, histogram)
    assert by_side.tolist() == [0, 1] * 100
    assert (by_part[::2] == by_part[1::2]).all()  # a bin holds whole levels
    bins_of_levels = by_part[::-2]  # from level 0 to level 99
    assert (bins_of_levels == bins_of_levels[99]).sum() == 1
    # The other 99 levels share the 43 other groups, in runs of two or three.
    _, n_levels = np.unique(bins_of_levels[:99], return_counts=True)
    assert len(n_levels) == 43
    assert set(n_levels.tolist()) == {2, 3}
    assert len(run_starts(bins_of_levels)) == 44


def test_many_levels_of_a_bundle_are_not_grouped_where_counting_them_costs_too_much() -> None:
    rng = np.random.default_rng(0)
    part, side = rng.integers(100, size=2_000), rng.integers(2, size=2_000)
    data = pl.DataFrame({"part": part, "side": side, "x": rng.normal(size=2_000)}).cast({"part": str, "side": str})
    tables = arf_dask.fit(data, trees=1, max_rounds=0, bundles=[["part", "side"]], refine=False, seed=0)._fitted.tables
    histograms = [table.histogram for table in tables.variables]
    bins = [code_bins(table.variable, table.histogram) for table in tables.variables]
    cheap, dear = (_member_candidates(tables.schema, histograms, bins, n_counted) for n_counted in (10, 10**9))
    assert [int(level_bins.max()) + 1 > 24 for _, level_bins in cheap] == [True, False]
    assert [int(level_bins.max()) + 1 for _, level_bins in dear] == [2]


def test_no_bin_reaches_over_the_border_of_two_intervals() -> None:
    rng = np.random.default_rng(0)
    data = pl.DataFrame(
        {"x": np.concatenate([rng.normal(0, 1, 500), rng.normal(20, 1, 500)]), "y": rng.normal(size=1_000)}
    )
    model = arf_dask.fit(data, trees=2, seed=0)
    table = model._fitted.tables.variables[0]
    assert table.variable.interval.sum() > 1
    starts = run_starts(code_bins(table.variable, table.histogram))
    assert set(table.variable.code_low[table.variable.interval]) <= set(starts)


# Edges.


def test_information_of_one_leaf_is_mutual_information() -> None:
    # 400 rows in which two bins always meet: log 2 nats, less what chance and smoothing take away.
    codes = np.repeat(np.array([[0, 0, 0], [1, 1, 0]], dtype=np.uint16), 200, axis=0)
    codes[:, 2] = np.tile([0, 1], 200)
    bins = [np.array([0, 1], dtype=np.int32)] * 3
    found = screen_pairs(codes, [np.zeros(400, dtype=np.int32)], bins)
    chance = (1 + 3 * np.sqrt(2)) / 800
    assert found[0, 1] == pytest.approx(np.log(201 / 101) - chance)
    assert found[0, 2] < 0
    assert found[0, 0] == 0


def test_leaves_that_tell_the_bins_apart_leave_nothing_to_tell() -> None:
    codes = np.repeat(np.array([[0, 0], [1, 1]], dtype=np.uint16), 200, axis=0)
    bins = [np.array([0, 1], dtype=np.int32)] * 2
    leaf = np.repeat(np.array([0, 1], dtype=np.int32), 200)
    assert screen_pairs(codes, [leaf], bins)[0, 1] < 0


def test_a_chain_is_found_and_what_is_alone_stays_alone() -> None:
    found = arf_dask.fit(chain(4_000), trees=5, min_leaf=400, seed=1).dependence
    assert {frozenset(pair) for pair in found.select("parent", "child").rows()} == {
        frozenset(("a", "b")),
        frozenset(("b", "c")),
    }
    assert (found["information"] > 0.03).all()


def test_without_dependence_there_is_no_tree() -> None:
    model = arf_dask.fit(chain(1_000), trees=3, min_leaf=100, seed=1, dependence="none")
    assert model.dependence.height == 0
    assert model.dependence.columns == ["parent", "child", "information"]
    assert arf_dask.fit(chain(500).select("a"), trees=2, seed=1).dependence.height == 0


def test_forests_are_told_from_other_graphs() -> None:
    assert is_forest([0, 1, 3], [1, 2, 4], 5)
    assert not is_forest([0, 1, 2], [1, 2, 0], 3)  # a cycle
    assert not is_forest([0, 0], [1, 1], 2)  # two parents
    assert not is_forest([0], [0], 1)
    assert not is_forest([0], [2], 2)
    assert not is_forest([1, 0], [2, 1], 3)  # a child before its parent


def test_hops_lead_away_from_any_root() -> None:
    edges = tuple(
        Edge(p, c, 0.0, np.ones((1, 1), dtype=np.int64), np.ones((1, 1))) for p, c in ((0, 1), (1, 2), (1, 3))
    )
    tree = Dependence(tuple(np.zeros(1, dtype=np.int32) for _ in range(5)), edges)
    assert [(hop.near, hop.far) for hop in tree.outwards(3)] == [(3, 1), (1, 0), (1, 2)]
    assert tree.outwards(4) == []
    assert tree.roots == [0]
    assert tree.code_bins(4) is None


# Ratios.


def test_pairs_on_an_edge_come_as_often_as_in_fresh_rows_with_less_noise_than_in_the_data() -> None:
    tables = arf_dask.fit(chain(4_000), trees=3, min_leaf=200, support="open", seed=1)._fitted.tables
    structure = Structure(tables.dependence.bins, [Link(e.parent, e.child, 1.0) for e in tables.dependence.edges])
    fresh = count_meetings(encode_codes(chain(100_000, seed=1), tables.schema), structure)
    for number, edge in enumerate(tables.dependence.edges):
        modelled = np.zeros(edge.observed.shape)
        for index in range(tables.n_batches):
            batch = tree_batch(tables, index)
            local = batch.dependence
            rows = local.masses(edge.parent) * local.factor(number, edge.parent) * batch.leaves.rows[:, None]
            modelled += rows.T @ (local.masses(edge.child) * local.factor(number, edge.child)) * edge.ratios
        shares = [table / table.sum() for table in (fresh[number], modelled, edge.observed)]
        product = np.outer(shares[0].sum(axis=1), shares[0].sum(axis=0))
        model_error, data_error, product_error = (
            np.abs(table - shares[0]).sum() / 2 for table in (*shares[1:], product)
        )
        assert model_error < 0.06
        assert model_error < 0.8 * data_error
        assert product_error > 0.2


def test_two_parts_give_the_tree_of_the_whole() -> None:
    data = chain(1_500)
    forest = arf_dask.adversarial_forest(data, trees=3, min_leaf=100, seed=1)
    context = SumContext(forest.schema, 0, [routing_table(tree) for tree in forest.trees], 1, forest.structure)
    about: dict[str, Any] = {"family": "truncnorm", "support": "observed", "rounds": forest.rounds}

    def edges(*parts: Any) -> tuple[Edge, ...]:
        sums = reduce(merge_sums, [sum_parts(context, PartGroup(0, [FramePart(data[rows])])) for rows in parts])
        return fit_leaves(forest.schema, forest.trees, [sums], **about, structure=forest.structure).dependence.edges

    whole, cut = edges(np.arange(1_500)), edges(np.arange(700, 1_500), np.arange(1), np.arange(1, 700))
    assert len(whole) == 2
    for one, other in zip(whole, cut, strict=True):
        assert one[:2] == other[:2]
        np.testing.assert_array_equal(one.observed, other.observed)
        np.testing.assert_allclose(one.ratios, other.ratios, rtol=1e-9)


def test_many_columns_are_screened_with_few_bins() -> None:
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(600, 1))
    wide = pl.DataFrame(hidden + 2 * rng.normal(size=(600, 120)), [f"x{i}" for i in range(120)], orient="row")
    model = arf_dask.fit(wide, trees=2, min_leaf=100, max_rounds=1, seed=0)
    assert model.dependence.height <= 119
    assert model.sample(50, seed=1).shape == (50, 120)


def test_bins_that_never_meet_in_very_many_rows_keep_a_ratio_that_can_be_saved() -> None:
    n_rows, halves = 10**12, np.full((3, 2), 0.5)
    observed = np.array([[n_rows // 2, 0], [0, n_rows // 2]])
    edge = _fit_edge(({0: halves, 1: halves}, np.full(3, n_rows / 3), n_rows), (Link(0, 1, 0.0), observed))
    np.testing.assert_allclose(edge.ratios, [[2, 1 / MOST_RATIO], [1 / MOST_RATIO, 2]])
