from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arf_dask.refinement.features import Feature
from arf_dask.refinement.learning import mean_ratio
from arf_dask.refinement.ratio import Gain, Refinement, choose_cap, find_slacks, stage_sums
from arf_dask.rules.relations import NO_RELATIONS
from tests.boosted import boosted, random_tree
from tests.hypothesis_profiles import examples

LOG = np.log


def refinement(trees: Any, slacks: tuple[float, ...] = (), log_cap: float = 1.0, log_z: float = 0.0) -> Refinement:
    features = tuple(Feature("number", (name,), edges=np.arange(200.0)) for name in ("x", "y"))
    return Refinement(features, trees, slacks, log_cap, log_z, 0.01, Gain(0.02, 0.001))


def test_the_limit_is_the_largest_ratio_if_nothing_may_be_clipped() -> None:
    limit = choose_cap(LOG([1.0, 4.0, 2.0, 1.0]), most_clipped=0.0, least_acceptance=0.1)
    assert limit.log_cap == pytest.approx(LOG(4))
    assert limit.acceptance == pytest.approx((1 + 4 + 2 + 1) / 4 / 4)


def test_the_limit_may_clip_a_share_of_the_weight() -> None:
    # At a limit of 2, a weight of 2 of 8 lies above it: min(r, 2) is 1, 2, 2, 1.
    limit = choose_cap(LOG([1.0, 4.0, 2.0, 1.0]), most_clipped=0.25, least_acceptance=0.1)
    assert limit.log_cap == pytest.approx(LOG(2))
    assert limit.acceptance == pytest.approx(6 / 8)
    assert choose_cap(LOG([1.0, 4.0, 2.0, 1.0]), most_clipped=0.24, least_acceptance=0.1).log_cap == pytest.approx(
        LOG(4)
    )


def test_the_limit_falls_until_enough_rows_are_accepted() -> None:
    # One row of a thousand has a ratio of 1,000: only 0.2 % would be accepted. At a limit of 1 all are.
    ratios = np.append(np.ones(999), 1_000.0)
    limit = choose_cap(LOG(ratios), most_clipped=0.0, least_acceptance=0.02)
    assert list(limit) == pytest.approx([0.0, 1.0])
    assert choose_cap(LOG(ratios), most_clipped=0.0, least_acceptance=0.001).log_cap == pytest.approx(LOG(1_000))


def test_slacks_are_what_later_trees_add_to_most_of_the_accepted_rows() -> None:
    first, final = LOG([1.0, 1.0, 1.0]), LOG([1.0, 2.0, 1.0])
    assert find_slacks([first, final], 0.4) == (0.0,)  # half of the accepted weight gains nothing
    assert find_slacks([first, final], 0.6) == pytest.approx((LOG(2),))
    assert find_slacks([first, LOG([1.0, 1.0, 1e-9])], 0.5) == (0.0,)
    assert find_slacks([final], 0.5) == ()


def test_the_mean_ratio_and_its_error() -> None:
    log_z, error = mean_ratio(LOG([1.0, 3.0, 1.0, 3.0]))
    assert log_z == pytest.approx(LOG(2))
    assert error == pytest.approx(1 / 2 / 2)


def test_the_log_ratio_is_the_sum_of_the_trees_up_to_the_limits() -> None:
    trees = boosted((0, {1}, -2.0, 0.5), (1, {1}, 0.4, 3.0), base=0.1, stages=(1,))
    frame = pl.DataFrame({"x": [0.0, 0.0, 7.0, 7.0], "y": [0.0, 7.0, 0.0, 7.0]})
    # Sums: -1.5, 1.1, 1.0, 3.6. The limit is 2; after the first tree, -1.9 or 0.6, later trees may add 1.0.
    limited = refinement(trees, (1.0,), log_cap=2.0)
    assert limited.log_ratio(frame, NO_RELATIONS) == pytest.approx([-1.5, -0.9, 1.0, 1.6])
    assert refinement(trees, (9.0,), log_cap=2.0).log_ratio(frame, NO_RELATIONS) == pytest.approx([-1.5, 1.1, 1.0, 2.0])


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 10**6), n_trees=st.integers(1, 20))
def test_a_row_is_above_a_threshold_if_its_log_ratio_is(seed: int, n_trees: int) -> None:
    rng = np.random.default_rng(seed)
    stages = tuple(sorted(set(rng.integers(1, n_trees, 3).tolist()))) if n_trees > 1 else ()
    trees = boosted(*(random_tree(rng, 2, int(rng.integers(1, 20))) for _ in range(n_trees)), stages=stages)
    limited = refinement(trees, tuple(rng.normal(size=len(stages)).tolist()), log_cap=float(rng.normal()))
    frame = pl.DataFrame({"x": rng.integers(-5, 220, 300), "y": rng.integers(0, 200, 300)}).cast(pl.Float64)
    log_ratios = limited.log_ratio(frame, NO_RELATIONS)
    for thresholds in (rng.normal(size=300), log_ratios, log_ratios - 1e-9, np.full(300, -np.inf)):
        assert np.array_equal(limited.above(frame, NO_RELATIONS, thresholds), log_ratios > thresholds)


def test_stage_sums_end_with_all_trees() -> None:
    trees = boosted((0, {1}, 1.0, 2.0), (0, {1}, 10.0, 20.0), 100.0, base=0.5, stages=(1, 2))
    sums = list(stage_sums(trees, {0: np.array([1, 2], np.uint8)}, 2))
    assert [one.tolist() for one in sums] == [[1.5, 2.5], [11.5, 22.5], [111.5, 122.5]]


def test_a_refinement_tells_its_figures() -> None:
    trees = boosted((1, {1}, 0.0, (1, {2}, 0.0, 1.0)), (0, {1}, 0.0, 1.0))
    shown = refinement(trees, log_cap=float(LOG(4.0)))
    assert shown.rounds == 2
    assert shown.acceptance == pytest.approx(0.25)
    assert shown.importance.rows() == [("y", 2), ("x", 1)]
    assert repr(shown).splitlines() == [
        "Refinement by 2 boosted trees",
        "  gain      0.0200 nats per row (standard error 0.0010)",
        "  features  y, x",
        "  accepted  25.0% of the rows drawn from the forest",
        "  log Z     0.0000 (standard error 0.0100)",
    ]
    assert shown.summary == "by 2 boosted trees: 0.0200 nats per row gained, 25.0% of drawn rows accepted"
