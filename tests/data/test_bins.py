from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arf_dask.data.axes import EXACT
from arf_dask.data.bins import ATOM_ROWS, FEW_VALUES, MOST_BINS, NumberCounts, cut_bins, find_atoms, halfway


def line(places: Any, counts: Any) -> Any:
    return NumberCounts(np.array(places, dtype=np.float64), np.array(counts, dtype=np.int64))


@st.composite
def lines(draw: Any) -> Any:
    places = draw(st.lists(st.integers(0, 10_000), min_size=2, max_size=40, unique=True))
    counts = draw(st.lists(st.integers(1, 30), min_size=len(places), max_size=len(places)))
    return line(sorted(places), counts)


def test_a_constant_is_an_atom() -> None:
    assert find_atoms(line([3.5], [1])).tolist() == [True]


def test_few_values_for_many_rows_are_all_atoms() -> None:
    assert find_atoms(line([0, 1, 7], [10, 3, 2])).tolist() == [True, True, True]


def test_few_values_for_few_rows_are_none() -> None:
    assert find_atoms(line([0, 1, 7], [5, 5, 4])).tolist() == [False, False, False]


def test_a_spike_among_many_values_is_the_only_atom() -> None:
    places = np.arange(FEW_VALUES + 36)
    counts = np.ones(len(places), dtype=np.int64)
    counts[[0, 17]] = ATOM_ROWS, ATOM_ROWS - 1
    assert np.flatnonzero(find_atoms(line(places, counts))).tolist() == [0]


def test_an_atom_of_a_long_column_holds_a_thousandth_of_the_rows() -> None:
    counts = np.full(1_000, 99)
    counts[[3, 4]] = 101, 100
    rows = counts.sum()
    assert (
        np.flatnonzero(find_atoms(line(np.arange(1_000), counts))).tolist()
        == np.flatnonzero(counts >= rows / 1_000).tolist()
        == [3, 4]
    )


def test_a_line_of_no_values_has_neither_atoms_nor_cuts() -> None:
    empty = line([], [])
    assert len(find_atoms(empty)) == 0
    assert len(cut_bins(empty, find_atoms(empty), grid=False)) == 0


def test_bins_of_two_rows_each() -> None:
    atoms = np.zeros(6, dtype=bool)
    cuts = cut_bins(line([0, 1, 2, 3, 4, 5], [1] * 6), atoms, grid=False, most=3)
    assert cuts.tolist() == [1.5, 3.5]


def test_a_heavy_value_takes_the_room_of_several_bins() -> None:
    atoms = np.zeros(4, dtype=bool)
    cuts = cut_bins(line([0, 1, 2, 3], [1, 7, 1, 1]), atoms, grid=False, most=5)
    assert cuts.tolist() == [1.5]


def test_an_atom_stands_alone_whatever_its_neighbours() -> None:
    atoms = np.array([False, False, True, False, False])
    cuts = cut_bins(line([0, 1, 2, 3, 4], [1, 1, 90, 1, 1]), atoms, grid=True, most=1)
    assert cuts.tolist() == [1.5, 2.5]


@given(lines(), st.booleans(), st.integers(1, 20))
def test_cuts_ascend_between_values_and_leave_every_atom_alone(some: Any, grid: Any, most: Any) -> None:
    atoms = find_atoms(some)
    cuts = cut_bins(some, atoms, grid=grid, most=most)
    assert np.all(np.diff(cuts) > 0)
    assert np.all((cuts > some.values[0]) & (cuts <= some.values[-1]))
    bins = np.searchsorted(cuts, some.values, side="right")
    assert sorted(set(bins)) == list(range(len(cuts) + 1))  # no bin is empty
    assert all((bins == bins[at]).sum() == 1 for at in np.flatnonzero(atoms))
    assert len(cuts) + 1 <= most + 2 * atoms.sum() + 1


def test_a_long_line_gets_about_a_thousand_bins_of_equal_weight() -> None:
    places = np.arange(50_000)
    cuts = cut_bins(line(places, np.ones(50_000)), np.zeros(50_000, dtype=bool), grid=False)
    sizes = np.bincount(np.searchsorted(cuts, places, side="right"))
    assert len(sizes) == MOST_BINS
    assert set(sizes) == {50}


@pytest.mark.parametrize(("left", "right", "cut"), [(0, 1, 0.5), (1, 4, 2.5), (1, 5, 2.5), (-3, -2, -2.5)])
def test_cuts_of_a_grid_lie_on_half_places(left: Any, right: Any, cut: Any) -> None:
    assert halfway(np.array([float(left)]), np.array([float(right)]), grid=True).tolist() == [cut]


@given(st.integers(0, EXACT - 2), st.integers(1, EXACT))
def test_a_grid_cut_separates_also_at_the_far_end(left: Any, gap: Any) -> None:
    left, right = float(left), float(min(left + gap, EXACT - 1))
    [cut] = halfway(np.array([left]), np.array([right]), grid=True)
    assert left < cut < right
    assert cut % 1 == 0.5


@given(st.floats(-1e60, 1e60), st.floats(-1e60, 1e60))
def test_a_cut_of_floats_keeps_the_right_value_on_the_right(a: Any, b: Any) -> None:
    if a == b:
        b = np.nextafter(a, np.inf)
    left, right = min(a, b), max(a, b)
    [cut] = halfway(np.array([left]), np.array([right]), grid=False)
    assert left < cut <= right
