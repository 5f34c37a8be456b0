"""Messages along a dependency tree against sums over all combinations of bins."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from arf_dask.forest.dependence import Dependence, Edge
from arf_dask.forest.leaf_normals import BinMasses
from arf_dask.inference.leaf_dependence import LeafDependence
from arf_dask.inference.messages import draw_bins, inward, log_factors
from arf_dask.inference.shared_vectors import BinEvidence

SIZES = [2, 3, 4, 2, 3, 2]
LINKS = [(1, 0), (1, 2), (2, 3), (2, 4)]  # variable 5 is on no edge
LEAVES = 3


@pytest.fixture
def local() -> LeafDependence:
    rng = np.random.default_rng(0)
    masses = [rng.dirichlet(np.ones(size), LEAVES) for size in SIZES]
    masses[2][1] = [0.0, 0.5, 0.5, 0.0]  # a leaf whose box leaves out two bins
    edges = [
        Edge(p, c, 0.1, np.ones((SIZES[p], SIZES[c]), dtype=int), np.exp(rng.normal(size=(SIZES[p], SIZES[c]))))
        for p, c in LINKS
    ]
    starts = tuple(np.arange(size, dtype=np.int32) for size in SIZES)
    of = [BinMasses(some, np.zeros_like(some)) for some in masses]
    return LeafDependence(Dependence(starts, tuple(edges)), LEAVES, of.__getitem__)


def joint(local: LeafDependence, leaf: int) -> Any:
    """The probability of every combination of bins in one leaf."""
    table = np.ones(SIZES)
    for combination in product(*map(range, SIZES)):
        value = np.prod([local.masses(j)[leaf, b] for j, b in enumerate(combination)])
        for number, (p, c) in enumerate(LINKS):
            a, b = combination[p], combination[c]
            factors = local.factor(number, p)[leaf, a] * local.factor(number, c)[leaf, b]
            value *= local.dependence.edges[number].ratios[a, b] * factors
        table[combination] = value
    return table


def summed(table: Any, weights: Any) -> float:
    """The sum of the joint table with every variable weighed by bin."""
    for weight in reversed(weights):
        table = table @ weight
    return float(table)


def spread_of(local: LeafDependence, partial: Any) -> Any:
    def spread(number: int, rows: Any, leaves: Any) -> Any:
        base = local.masses(number)[leaves]
        masks = np.array([partial.get((int(row), number), np.ones(SIZES[number])) for row in rows])
        weighed = base * masks.reshape(base.shape)
        return weighed / weighed.sum(axis=1, keepdims=True)

    return spread


def patterns() -> Any:
    rng = np.random.default_rng(1)
    bins = np.array([[rng.integers(size) if rng.random() < 0.5 else -1 for size in SIZES] for _ in range(60)])
    partial = {(row, 2): np.array([0, 1, 1, 0.0]) for row in range(0, 60, 3) if bins[row, 2] < 0}
    told = bins >= 0
    for row, number in partial:
        told[row, number] = True
    return bins.astype(np.int16), told, partial


def test_joint_distribution_of_bins_keeps_marginals(local: LeafDependence) -> None:
    for leaf in range(LEAVES):
        table = joint(local, leaf)
        assert table.sum() == pytest.approx(1, abs=1e-12)
        for number in range(len(SIZES)):
            others = tuple(j for j in range(len(SIZES)) if j != number)
            np.testing.assert_allclose(table.sum(axis=others), local.masses(number)[leaf], atol=1e-11)


def weights_of(local: LeafDependence, leaf: int, row: int, bins: Any, partial: Any, ratio: bool) -> Any:
    """Per variable: the share of the marginal (`ratio`: of what is known of it alone) that every bin keeps."""
    weights = []
    for number, size in enumerate(SIZES):
        mask = np.ones(size)
        if bins[row, number] >= 0:
            mask = np.eye(size)[bins[row, number]]
        elif (row, number) in partial:
            mask = partial[row, number]
        known = local.masses(number)[leaf] @ mask
        weights.append(mask / known if ratio else mask)
    return weights


def test_log_factors_are_sums_over_all_combinations(local: LeafDependence) -> None:
    bins, told, partial = patterns()
    evidence = BinEvidence(bins, told)
    row, leaf = np.repeat(np.arange(60), LEAVES), np.tile(np.arange(LEAVES), 60)
    possible = ~((leaf == 1) & np.isin(bins[row, 2], [0, 3]))  # elsewhere what is known has no probability at all
    row, leaf = row[possible], leaf[possible]
    found = log_factors(local, evidence, spread_of(local, partial), row, leaf)
    tables = [joint(local, number) for number in range(LEAVES)]
    wanted = [
        summed(tables[one], weights_of(local, one, r, bins, partial, True)) for r, one in zip(row, leaf, strict=True)
    ]
    np.testing.assert_allclose(np.exp(found), wanted, rtol=1e-9)


@pytest.mark.parametrize("root", [None, 1, 2, 4])
def test_rows_that_know_the_same_share_their_vectors(local: LeafDependence, root: int | None) -> None:
    # Forty times the same sixty rows: vectors are shared, and nothing else changes.
    bins, told, partial = patterns()
    row, leaf = np.repeat(np.arange(60), LEAVES), np.tile(np.arange(LEAVES), 60)
    kind = np.zeros(bins.shape, dtype=np.int64)
    for place in partial:
        kind[place] = 1
    many = BinEvidence(np.tile(bins, (40, 1)), np.tile(told, (40, 1)), np.tile(kind, (40, 1)))
    rows, leaves = (row[None, :] + 60 * np.arange(40)[:, None]).ravel(), np.tile(leaf, 40)
    shared = spread_of(local, {(r + 60 * k, number): mask for (r, number), mask in partial.items() for k in range(40)})
    if root is None:
        alone = log_factors(local, BinEvidence(bins, told), spread_of(local, partial), row, leaf)
        found = log_factors(local, many, shared, rows, leaves)
    else:
        alone = inward(local, BinEvidence(bins, told), spread_of(local, partial), row, leaf, root)
        found = inward(local, many, shared, rows, leaves, root)
    np.testing.assert_allclose(found, np.concatenate([alone] * 40), rtol=1e-12, atol=1e-12)


def test_rows_that_know_all_take_the_same_factors(local: LeafDependence) -> None:
    rng = np.random.default_rng(2)
    bins = np.stack([rng.integers(size, size=40) for size in SIZES], axis=1).astype(np.int16)
    complete = BinEvidence(bins, bins >= 0)
    row, leaf = np.repeat(np.arange(40), 2), np.tile([0, 2], 40)
    partial = BinEvidence(np.concatenate([bins, np.full((1, 6), -1, np.int16)]), np.ones((41, 6), dtype=bool))
    nothing = spread_of(local, {})
    np.testing.assert_allclose(
        log_factors(local, complete, nothing, row, leaf), log_factors(local, partial, nothing, row, leaf), atol=1e-12
    )


@pytest.mark.parametrize("root", range(6))
def test_inward_messages_give_conditional_bins(local: LeafDependence, root: int) -> None:
    bins, told, partial = patterns()
    evidence = BinEvidence(bins, told)
    spread = spread_of(local, partial)
    row, leaf = np.arange(60), np.zeros(60, dtype=int)
    vector = inward(local, evidence, spread, row, leaf, root)
    table = joint(local, 0)
    for r in range(60):
        weights = weights_of(local, 0, r, bins, partial, True)
        unit = np.eye(SIZES[root])
        wanted = np.array([summed(table, [*weights[:root], bin_, *weights[root + 1 :]]) for bin_ in unit])
        found = vector[r] * local.masses(root)[0]
        np.testing.assert_allclose(found / found.sum(), wanted / wanted.sum(), rtol=1e-9)


def test_drawn_bins_have_the_conditional_distribution(local: LeafDependence) -> None:
    bins = np.full((1, 6), -1, dtype=np.int16)
    bins[0, 0], bins[0, 3] = 1, 0
    evidence = BinEvidence(bins, bins >= 0)
    n = 100_000
    row, leaf = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
    drawn = draw_bins(local, evidence, spread_of(local, {}), row, leaf, np.random.default_rng(3))
    table = joint(local, 0)[1, :, :, 0, :, :].sum(axis=-1)
    table /= table.sum()
    shares = np.zeros(table.shape)
    np.add.at(shares, (drawn[1], drawn[2], drawn[4]), 1 / n)
    assert set(drawn) == {0, 1, 2, 3, 4}
    assert np.all(drawn[0] == 1)
    np.testing.assert_allclose(shares, table, atol=4 * np.sqrt(0.25 / n))
