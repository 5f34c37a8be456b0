"""What is kept of a model between queries."""

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.inference import tree_batches
from arf_dask.inference.bin_draws import _single_weights
from arf_dask.inference.leaf_dependence import LeafFactors
from arf_dask.inference.tree_batches import tree_batch


def sums(n: int, seed: int) -> pl.DataFrame:
    """Four cumulative sums of normals, and a class of the last one."""
    values = np.cumsum(np.random.default_rng(seed).normal(size=(n, 4)), axis=1)
    columns = {f"x{j}": values[:, j] for j in range(4)}
    return pl.DataFrame(columns | {"class": np.array(list("abcdef"))[np.digitize(values[:, 3], [-2, -1, 0, 1, 2])]})


@pytest.mark.parametrize(
    ("cells", "factors", "columns"), [(10**9, 0, 10**9), (0, 0, 10**9), (0, 0, 0), (0, 10**9, 10**9)]
)
def test_answers_do_not_depend_on_what_is_kept(
    monkeypatch: pytest.MonkeyPatch, cells: int, factors: int, columns: int
) -> None:
    rows = sums(50, 1)
    model = arf_dask.fit(sums(3_000, 0), trees=3, min_leaf=100, refine=False, seed=0)
    expected = model.log_density(rows)
    assert model._fitted.tables.kept_batches
    monkeypatch.setattr(tree_batches, "KEPT_CELLS", cells)
    monkeypatch.setattr(tree_batches, "KEPT_FACTORS", factors)
    monkeypatch.setattr(tree_batches, "KEPT_COLUMNS", columns)
    other = arf_dask.fit(sums(3_000, 0), trees=3, min_leaf=100, refine=False, seed=0)
    for _ in range(2):
        np.testing.assert_array_equal(other.log_density(rows), expected)
    kept = other._fitted.tables.kept_factors
    assert bool(kept) == bool(columns)
    assert all(isinstance(one, LeafFactors) and len(one.columns) == model.dependence.height for one in kept.values())
    assert all(isinstance(one, LeafFactors) and bool(one.factors) == bool(factors) for one in kept.values())


def test_a_batch_with_other_factors_shares_everything_else() -> None:
    tables = arf_dask.fit(sums(500, 0), trees=2, min_leaf=100, refine=False, seed=0)._fitted.tables
    batch, factors = tree_batch(tables, 0), LeafFactors()
    other = batch.with_factors(factors)
    assert other.variables is batch.variables
    first = tables.dependence.edges[0]
    np.testing.assert_array_equal(other.dependence.factor(0, first.child), batch.dependence.factor(0, first.child))
    assert list(factors.columns) == [0]


def test_weights_beyond_single_precision_keep_their_proportions() -> None:
    weights = np.array([[1e60, 4e60, 0.0], [3.0, 1.0, 2.0]])
    found = _single_weights(weights)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array([[0.25, 1.0, 0.0], [1, 1 / 3, 2 / 3]], dtype=np.float32).T)
