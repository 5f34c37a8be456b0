"""The only module that sees rows of a private fit. Its answers are noisy, and are paid for before they are given.

Exact counts stay in private attributes of `TrustedTable`. One unit changes any vector of counts by at most its number
of rows in Euclidean norm, and any sum of absolute differences by as much; hence all sensitivities are `rows_per_unit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS, nameless
from arf_dask.data.levels import text_of
from arf_dask.data.parts import DataPart, Parts
from arf_dask.errors import PrivacyError
from arf_dask.privacy.accountant import Accountant, Spending
from arf_dask.privacy.domain import ColumnDomain
from arf_dask.privacy.noise import (
    add_gaussian,
    choice_cost,
    choose_largest,
    find_stable_levels,
    gaussian_cost,
)
from arf_dask.runtime.tasks import Runner
from arf_dask.typing import Counts, Flags, Ints

Result = TypeVar("Result")
GAUSSIAN, MAXIMUM, THRESHOLD = "discrete Gaussian", "noisy maximum", "thresholded discrete Gaussian"
FIXED_POINT = 16  # expected counts are compared in sixteenths, so that scores are whole numbers
MAGNITUDES = 128  # powers of two of either sign


class CellMap(NamedTuple):
    """The cell of every fine cell of a column."""

    domain: ColumnDomain
    cells: Ints
    n_cells: int


class UsedPart(NamedTuple):
    """A part of the table, and which of its rows are used; None for all."""

    part: DataPart
    used: Flags | None

    def load(self, columns: Sequence[str]) -> pl.DataFrame:
        """Load the used rows."""
        frame = self.part.load(columns)
        return frame if self.used is None else frame.filter(pl.Series(self.used))

    def on_cluster(self, client: object) -> object:
        """Return the part as a list, in which Dask finds the futures of parts on the cluster."""
        part = self.part.on_cluster(client) if hasattr(self.part, "on_cluster") else self.part
        return [part, self.used]


class TrustedTable:
    """The rows of a private fit, which answer only through noise."""

    def __init__(
        self, parts: Parts, used: Sequence[Flags] | None, rows_per_unit: int, accountant: Accountant, runner: Runner
    ) -> None:
        flags = [None] * len(parts.items) if used is None else used
        self._parts = [UsedPart(part, used_rows) for part, used_rows in zip(parts.items, flags, strict=True)]
        self._runner = runner
        self._accountant = accountant
        self.rows_per_unit = rows_per_unit
        self._fine: dict[str, Counts] = {}
        self._pairs: dict[tuple[int, int], Counts] = {}
        self._ones: list[Counts] = []
        self._names: list[str] = []

    # What may be learned about domains.

    def stable_levels(self, name: str, rho: float, delta: float) -> list[str]:
        """Return the texts of a column that so many units share that revealing them is safe."""
        scale = self.scale_for(rho)
        counts: dict[str, int] = self._sum(_count_levels, name, _add_levels, {})
        spending = Spending(f"levels of {name!r}", THRESHOLD, scale, self.rows_per_unit, rho, delta)
        self._accountant.spend(spending)
        found = find_stable_levels(counts, scale, self.rows_per_unit, delta)
        if found.rho > rho * (1 + 1e-6) or found.delta > delta:
            raise PrivacyError(f"levels of {name!r}: cost more than planned.")
        return found.levels

    def magnitudes(self, name: str, rho: float) -> Counts:
        """Return noisy counts of the numbers of a column by their sign and power of two, from -2**127 to 2**127."""
        counts = self._sum(_count_magnitudes, name, np.add, np.zeros(2 * MAGNITUDES + 1, dtype=np.int64))
        return self._noisy(f"bounds of {name!r}", counts, self.scale_for(rho))

    # Counts of the fine cells of single columns.

    def count_fine(self, domains: Sequence[ColumnDomain]) -> None:
        """Count the fine cells of some columns, for `fine_counts`."""
        zeros = [np.zeros(domain.n_fine, dtype=np.int64) for domain in domains]
        counts = self._sum(_count_fine, list(domains), _add_lists, zeros)
        self._fine.update({domain.name: counted for domain, counted in zip(domains, counts, strict=True)})

    def fine_counts(self, domain: ColumnDomain, edges: Counts, rho: float) -> Counts:
        """Return noisy counts of the fine bins between consecutive ascending edges, which do not overlap."""
        assert np.all(np.diff(edges, axis=1) >= 0)
        assert np.all(edges[1:, 0] >= edges[:-1, 1])
        bins = self._fine[domain.name][domain.n_atoms : domain.n_atoms + domain.n_bins]
        sums = np.concatenate([[0], np.cumsum(bins)])
        return self._noisy(f"bins of {domain.name!r}", sums[edges[:, 1]] - sums[edges[:, 0]], self.scale_for(rho))

    # Counts of cells, and of pairs of them.

    def count_cells(self, maps: Sequence[CellMap]) -> None:
        """Count the cells of all columns, and of all pairs of columns."""
        sizes = [cell_map.n_cells for cell_map in maps]
        ones = [np.zeros(size, dtype=np.int64) for size in sizes]
        pairs = [np.zeros((sizes[i], sizes[j]), dtype=np.int64) for i, j in combinations(range(len(maps)), 2)]
        counted = self._sum(_count_cells, list(maps), _add_lists, [*ones, *pairs])
        self._names = [cell_map.domain.name for cell_map in maps]
        self._ones = counted[: len(maps)]
        self._pairs = dict(zip(combinations(range(len(maps)), 2), counted[len(maps) :], strict=True))

    def one_way(self, column: int, scale: float) -> Counts:
        """Return noisy counts of the cells of a column."""
        return self._noisy(f"counts of {self._names[column]!r}", self._ones[column], scale)

    def two_way(self, pair: tuple[int, int], groups: tuple[Ints, Ints], scale: float) -> Counts:
        """Return noisy counts of pairs of groups of cells of two columns."""
        names = " and ".join(repr(self._names[column]) for column in pair)
        return self._noisy(f"counts of {names}", group_pairs(self._pairs[pair], groups), scale)

    def choose_pair(
        self,
        candidates: Sequence[tuple[tuple[int, int], tuple[Ints, Ints]]],
        expected: Sequence[Counts],
        penalties: Sequence[int],
        scale: float,
    ) -> int:
        """Return the candidate whose counts differ most from what a model expects, less a penalty, after noise.

        Args:
            candidates: pairs of columns, with the groups of their cells.
            expected: per candidate, the expected counts in units of 1 / `FIXED_POINT`.
            penalties: per candidate, in the same unit.
            scale: of the noise, in rows.
        """
        scores = [
            int(np.abs(FIXED_POINT * group_pairs(self._pairs[pair], groups) - expected_counts).sum()) - penalty
            for (pair, groups), expected_counts, penalty in zip(candidates, expected, penalties, strict=True)
        ]
        sensitivity = FIXED_POINT * self.rows_per_unit
        rho = choice_cost(FIXED_POINT * scale, sensitivity)
        self._accountant.spend(Spending("choice of pairs", MAXIMUM, scale, self.rows_per_unit, rho))
        return choose_largest(np.array(scores), FIXED_POINT * scale, sensitivity).position

    @property
    def left(self) -> float:
        """The rho that has not been spent."""
        return self._accountant.left

    def scale_for(self, rho: float) -> float:
        """Return the scale of noise in counts whose cost is at most rho."""
        return float(self.rows_per_unit / np.sqrt(2 * rho) * (1 + 1e-9))

    def _noisy(self, purpose: str, counts: Counts, scale: float) -> Counts:
        rho = gaussian_cost(scale, self.rows_per_unit)
        self._accountant.spend(Spending(purpose, GAUSSIAN, scale, self.rows_per_unit, rho))
        return add_gaussian(counts, scale, self.rows_per_unit).counts

    def _sum(
        self,
        function: Callable[[Any, UsedPart], Result],
        shared: Any,
        merge: Callable[[Result, Result], Result],
        start: Result,
    ) -> Result:
        """Return the merged counts of all parts."""
        if not self._parts:
            return start
        return self._runner.reduce(function, shared, self._parts, merge, lambda: None)


def group_pairs(counts: Counts, groups: tuple[Ints, Ints]) -> Counts:
    """Add up the rows and columns of a table of counts by groups.

    >>> group_pairs(np.array([[1, 2], [3, 4], [5, 6]]), (np.array([0, 0, 1]), np.array([0, 1]))).tolist()
    [[4, 6], [5, 6]]
    """
    rows, columns = groups
    by_rows = np.zeros((int(rows.max()) + 1, counts.shape[1]), dtype=counts.dtype)
    np.add.at(by_rows, rows, counts)
    by_both = np.zeros((int(columns.max()) + 1, by_rows.shape[0]), dtype=counts.dtype)
    np.add.at(by_both, columns, by_rows.T)
    return np.asarray(by_both.T)


# Tasks: exact counts of one part.


def _load(part: UsedPart, columns: Sequence[str]) -> pl.DataFrame:
    return UsedPart(*part).load(columns)


def _count_levels(name: str, part: UsedPart) -> dict[str, int]:
    texts = text_of(_load(part, [name]).to_series()).drop_nulls()
    counts = texts.alias("text").value_counts(name="rows")
    return dict(zip(counts["text"].to_list(), counts["rows"].to_list(), strict=True))


def _count_magnitudes(name: str, part: UsedPart) -> Counts:
    return np.bincount(magnitude_cells(_load(part, [name]).to_series()), minlength=2 * MAGNITUDES + 1)


def magnitude_cells(series: pl.Series) -> Ints:
    """Return for every number 128 + s * (1 + e), with its sign s and whole binary logarithm e; 128 for 0 and null.

    >>> magnitude_cells(pl.Series([0, 1, 5, -5, None])).tolist()
    [128, 129, 131, 125, 128]
    """
    physical = nameless(series) if series.dtype in FLOATS else nameless(series).to_physical()
    values = physical.cast(pl.Float64).fill_null(0.0).fill_nan(0.0).to_numpy()
    values = np.clip(values, -(2.0**126), 2.0**126)
    exponents = np.frexp(np.abs(values))[1]  # 1 + floor of the logarithm
    sizes = np.where(values == 0, 0, np.maximum(exponents, 1))
    return np.asarray(MAGNITUDES + np.sign(values) * sizes, dtype=np.int32)


def _count_fine(domains: list[ColumnDomain], part: UsedPart) -> list[Counts]:
    frame = _load(part, [domain.name for domain in domains])
    return [np.bincount(domain.encode(frame[domain.name]), minlength=domain.n_fine) for domain in domains]


def _count_cells(maps: list[CellMap], part: UsedPart) -> list[Counts]:
    frame = _load(part, [cell_map.domain.name for cell_map in maps])
    cells = [m.cells[m.domain.encode(frame[m.domain.name])].astype(np.int64) for m in maps]
    counts = [np.bincount(one, minlength=m.n_cells) for one, m in zip(cells, maps, strict=True)]
    for i, j in combinations(range(len(maps)), 2):
        shape = (maps[i].n_cells, maps[j].n_cells)
        pairs = np.bincount(cells[i] * shape[1] + cells[j], minlength=shape[0] * shape[1])
        counts.append(pairs.reshape(shape))
    return counts


def _add_levels(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {level: one.get(level, 0) + other.get(level, 0) for level in {*one, *other}}


def _add_lists(one: list[Counts], other: list[Counts]) -> list[Counts]:
    return [a + b for a, b in zip(one, other, strict=True)]
