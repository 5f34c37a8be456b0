"""Refinements under a release policy: what they are learned from, what their trees hold, and that no copy comes out."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask import ReleasePolicy
from arf_dask.refinement.boosted_trees import LEAF, BoostedTrees, right_children, tree_bounds
from arf_dask.refinement.features import Rows, encode

T = TypeVar("T")


def known(value: T | None) -> T:
    assert value is not None
    return value


def tied(n: int, seed: int = 0) -> pl.DataFrame:
    """Three columns that hang together more closely than leaves of twenty rows can tell."""
    rng = np.random.Generator(np.random.SFC64(seed))
    one = rng.integers(0, 24, n)
    other = (one + rng.integers(0, 3, n)) % 24
    third = (one * other + rng.integers(0, 2, n)) % 24
    return pl.DataFrame({"a": one, "b": other, "c": third, "d": rng.integers(0, 24, n)})


def release(frame: pl.DataFrame, policy: ReleasePolicy | None = None, **options: Any) -> arf_dask.Model:
    policy = ReleasePolicy() if policy is None else policy
    return arf_dask.fit(frame, trees=3, seed=0, progress=False, release=policy, refine=True, **options)


def unrefined(model: arf_dask.Model) -> arf_dask.Model:
    """The model from whose rows the ratio was learned: no ratio, and no copies redrawn."""
    return arf_dask.Model(replace(model._fitted, refinement=None, guard=None))


def test_the_ratio_is_learned_against_the_tables_that_are_released() -> None:
    # Shrinkage worth more rows than a leaf has moves the density of the forest far away from what was fitted.
    frame = tied(3_000)
    model = release(frame, ReleasePolicy(shrinkage=2_000.0))
    refinement = known(model._fitted.refinement)
    drawn = unrefined(model).sample(60_000, seed=5)
    ratios = np.exp(refinement.log_ratio(drawn, model._fitted.relations) - refinement.log_z)
    assert abs(ratios.mean() - 1) < 6 * ratios.std() / np.sqrt(len(ratios))


def leaves_of(trees: BoostedTrees, start: int, stop: int, codes: Mapping[int, Any], n_rows: int) -> Any:
    """The leaf of every row."""
    feature = trees.feature[start:stop]
    right, nodes = right_children(feature), np.zeros(n_rows, dtype=np.int64)
    while True:
        rows = np.flatnonzero(feature[nodes] != LEAF)
        if not len(rows):
            return nodes
        asked = np.array([codes[int(feature[nodes[row]])][row] for row in rows])
        is_left = trees.left_codes[start + nodes[rows], asked]
        nodes[rows] = np.where(is_left, nodes[rows] + 1, right[nodes[rows]])


@pytest.mark.parametrize("subject", [None, "who"])
def test_every_leaf_of_the_boosted_trees_holds_enough_subjects(subject: str | None) -> None:
    frame = tied(1_800)
    who = np.arange(1_800) if subject is None else np.random.Generator(np.random.SFC64(1)).integers(0, 300, 1_800)
    given = frame if subject is None else frame.with_columns(who=pl.Series(who))
    model = release(given, ReleasePolicy(subject=subject, min_leaf=25))
    refinement = known(model._fitted.refinement)
    codes = encode(refinement.features, Rows(given, model._fitted.relations))
    for start, stop in zip(*tree_bounds(refinement.trees.tree), strict=True):
        leaves = leaves_of(refinement.trees, int(start), int(stop), codes, len(who))
        ends = np.flatnonzero(refinement.trees.feature[start:stop] == LEAF)
        assert min(len(np.unique(who[leaves == leaf])) for leaf in ends) >= 25
    assert refinement.rounds > 0


def values_in(told: Any) -> Iterator[Any]:
    """Every text and every array of numbers in an object, however deep."""
    if isinstance(told, np.ndarray):
        yield told
    elif is_dataclass(told) and not isinstance(told, type):
        for one in fields(told):
            yield from values_in(getattr(told, one.name))
    elif isinstance(told, Mapping):
        yield from values_in(list(told.items()))
    elif isinstance(told, list | tuple | set):
        for value in told:
            yield from values_in(value)
    elif isinstance(told, str):
        yield told
    elif told is not None:
        yield np.array([told], dtype=np.float64)


def test_no_canary_is_in_the_refinement() -> None:
    rng = np.random.Generator(np.random.SFC64(7))
    n = 4_000
    frame = tied(n)
    days = rng.integers(17_000, 20_000, n)
    income = np.exp(rng.normal(10, 0.6, n)).round(2)
    canary_day, canary_income = (date(2091, 3, 7) - date(1970, 1, 1)).days, 7_654_321.5
    days[11], income[12] = canary_day, canary_income
    job = [f"CANARY{i:04d}WORD" if i % 40 == 0 else f"job{(one + i % 2) % 24}" for i, one in enumerate(frame["a"])]
    table = frame.with_columns(
        pl.Series("job", job),
        pl.Series("grade", job, dtype=pl.Enum(sorted(set(job)))),
        pl.Series("income", income),
        pl.Series("since", days.astype(np.int32)).cast(pl.Date),
        pl.Series("token", [f"T{i:05d}-CANKEY{i:05d}" for i in range(n)]),
    )
    refinement = known(release(table, keys=["token"])._fitted.refinement)
    values = list(values_in(refinement))
    texts = [value for value in values if isinstance(value, str)]
    numbers = np.concatenate([np.asarray(value, np.float64).ravel() for value in values if not isinstance(value, str)])
    assert {"job3", "income", "since", "(other)"} <= set(texts)
    assert not any("CAN" in text or text == "token" for text in texts)
    finite = numbers[np.isfinite(numbers)]
    assert not np.isin([canary_day, canary_income, canary_income * 100], finite).any()
    assert np.abs(finite).max() < canary_income
    # Values between which codes change are drawn by the model: they are hardly ever those of real people.
    edges = [one.edges for one in refinement.features if one.columns == ("income",) and one.kind == "number"]
    assert len(edges[0]) > 100
    assert np.isin(edges[0], income).mean() < 0.05


def test_no_copy_comes_out_of_a_refined_release(tmp_path: Path) -> None:
    frame = tied(1_500)
    model = release(frame)
    guard = known(model._fitted.guard)
    assert known(model._fitted.refinement).rounds > 0
    unguarded = arf_dask.Model(replace(model._fitted, guard=None))
    assert guard.copies(unguarded.sample(3_000, seed=1)).any()
    rows = model.sample(3_000, seed=1)
    assert rows.height == 3_000
    assert not guard.copies(rows).any()
    given = model.sample(500, given={"a": (3, 6)}, seed=1)
    assert given["a"].is_between(3, 6).all()
    assert not guard.copies(given).any()
    manifest = model.sample_parquet(tmp_path / "out", 3_000, seed=1, rows_per_file=1_000)
    assert manifest.scan().collect().equals(rows)
    assert manifest.redrawn > 0


@pytest.mark.filterwarnings("ignore::arf_dask.ReleaseWarning")
def test_a_release_is_as_close_to_the_real_rows_with_its_ratio_as_without_or_closer() -> None:
    frame, fresh = tied(3_000), tied(20_000, 1)
    model = release(frame, ReleasePolicy(forbid_copies=False))
    likely = [float(one.log_density(fresh).to_numpy().mean()) for one in (unrefined(model), model)]
    assert likely[1] > likely[0] + 0.05
