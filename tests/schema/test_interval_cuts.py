from typing import Any

import numpy as np
import pytest

from arf_dask.data.bins import NumberCounts, find_atoms
from arf_dask.schema.interval_cuts import LEAST_ROWS, MOST_SEGMENTS, find_segments

rng = np.random.default_rng(11)


def of_values(values: Any, grid: Any = False) -> Any:
    places, counts = np.unique(values, return_counts=True)
    line = NumberCounts(places.astype(np.float64), counts.astype(np.int64))
    return line, find_atoms(line), grid


def segments(values: Any, grid: Any = False) -> Any:
    return find_segments({0: of_values(values, grid)})[0]


@pytest.mark.parametrize(
    "values",
    [
        rng.normal(50, 7, 5_000),
        rng.random(5_000),
        np.clip(rng.normal(0, 1, 5_000), -0.5, None),
        rng.exponential(2.0, 60),
        rng.lognormal(0, 2, LEAST_ROWS - 1),
    ],
    ids=["normal", "uniform", "cut normal", "few rows", "too few rows"],
)
def test_what_one_normal_can_follow_is_left_whole(values: Any) -> None:
    assert len(segments(values)) == 0


def test_two_humps_are_cut_between_them() -> None:
    values = np.concatenate([rng.normal(0, 1, 3_000), rng.normal(20, 1, 3_000)])
    found = segments(values)
    assert np.any((found > 1) & (found < 19))
    assert len(found) <= 6


def test_a_lognormal_is_cut_where_it_bends() -> None:
    found = segments(rng.lognormal(0, 1.5, 5_000))
    assert 1 <= len(found) < MOST_SEGMENTS
    assert found[0] < 10


def test_cuts_ascend_inside_the_line_and_are_never_too_many() -> None:
    values = 2.0 ** (100 * rng.random(20_000))
    found = segments(values)
    assert len(found) == MOST_SEGMENTS - 1
    assert np.all(np.diff(found) > 0)
    assert values.min() < found[0] < found[-1] < values.max()


def test_cuts_of_a_grid_lie_on_half_places() -> None:
    found = segments(np.round(rng.lognormal(5, 1, 8_000)), grid=True)
    assert len(found) > 0
    assert np.all(found % 1 == 0.5)


def test_atoms_do_not_count() -> None:
    # Half the rows are zero; the rest is one normal far away.
    values = np.concatenate([np.zeros(3_000), rng.normal(50, 1, 3_000)])
    line, atoms, grid = of_values(values)
    assert line.values[atoms].tolist() == [0.0]
    found = find_segments({0: (line, atoms, grid)})[0]
    assert np.all((found > 0) & (found < 50))


def test_every_line_is_cut_on_its_own() -> None:
    skewed, plain = rng.lognormal(0, 1.5, 4_000), rng.random(4_000)
    both = find_segments({3: of_values(skewed), 8: of_values(plain)})
    assert set(both) == {3, 8}
    assert np.array_equal(both[3], segments(skewed))
    assert len(both[8]) == 0


def test_no_lines_have_no_segments() -> None:
    assert find_segments({}) == {}


def test_huge_distances_do_not_overflow() -> None:
    values = np.concatenate([rng.normal(0, 1, 500), rng.normal(1e60, 1e50, 500)])
    found = segments(values)
    assert np.all(np.isfinite(found))
    assert len(found) > 0
