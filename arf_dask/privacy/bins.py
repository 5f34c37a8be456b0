"""Cells of columns and coarser groups of cells, from noisy counts only.

Columns with few declared values have a cell per value. Long lines are cut into cells by a tree of bins: four children
per bin, as long as the noisy count of a bin is large compared to the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from arf_dask.privacy.domain import ColumnDomain
from arf_dask.privacy.trusted import CellMap, TrustedTable
from arf_dask.typing import Counts, Flags, Floats, Ints

CHILDREN = 4  # of a bin in the tree of bins
SPLIT_AT = 3.0  # a bin is split if its noisy count exceeds this number of standard deviations
MOST_CELLS = 96  # maximum number of cells of a long line
HEAVY = 0.7  # a cell with this share of the mass of a group is a group of its own


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column, in the order of their values; null comes last."""

    domain: ColumnDomain
    cell_map: CellMap
    atom: Flags  # per cell: whether it is a single value
    low: Floats  # per cell: index of the atom, or lower end on the axis
    high: Floats  # upper end on the axis of cells that are no atoms

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.cell_map.n_cells

    def decode(self, cells: Ints, rng: np.random.Generator) -> pl.Series:
        """Return a value per cell: its atom, or a uniform draw between its ends."""
        domain = self.domain
        if domain.kind == "empty":
            return pl.Series(domain.name, [None] * len(cells), dtype=domain.dtype)
        if domain.levels is not None:
            index = np.minimum(cells, domain.n_atoms - 1)
            values = domain.levels.gather(pl.Series(index.astype(np.int64))).alias(domain.name)
        else:
            inside = self.low[cells] + rng.random(len(cells)) * (self.high[cells] - self.low[cells])
            atoms = domain.atoms[np.where(self.atom[cells], self.low[cells], 0).astype(np.int64)]
            numbers = np.where(self.atom[cells], atoms, self._inside(inside, cells))
            values = domain.decode_points(numbers)
        if domain.nullable:
            values = values.set(pl.Series(cells == self.n_cells - 1), None)
        return values

    def _inside(self, values: Floats, cells: Ints) -> Floats:
        """Return drawn numbers of cells as whole grid points between the ends of their cells."""
        axis, step = self.domain.axis, self.domain.step
        if axis is None or not (axis.grid or step):
            return values
        if step:
            return axis.low + np.floor((values - axis.low) / step + 1e-9) * step
        return np.clip(np.floor(values), np.ceil(self.low[cells]), np.ceil(self.high[cells]) - 1)


def value_cells(domain: ColumnDomain) -> Cells:
    """Return the cells of a column whose values all have cells of their own."""
    n_cells = max(domain.n_fine, 1)
    index = np.arange(n_cells)
    return Cells(
        domain,
        CellMap(domain, index.astype(np.int32), n_cells),
        index < domain.n_atoms,
        index.astype(np.float64),
        index.astype(np.float64),
    )


def tree_cells(domain: ColumnDomain, table: TrustedTable, rho: float) -> Cells:
    """Return the cells of a long line: its atoms, and the leaves of a tree of bins with noisy counts."""
    return _line_cells(domain, _grow(domain, table, rho))


def _grow(domain: ColumnDomain, table: TrustedTable, rho: float) -> Counts:
    """Return the lower edges of the leaves of the tree, in fine bins."""
    n_levels = max(int(np.ceil(np.log(domain.n_bins) / np.log(CHILDREN))), 1)
    rho_per_level = rho / n_levels
    noise = table.scale_for(rho_per_level)
    edges = np.array([[0, domain.n_bins]], dtype=np.int64)
    starts = {0}
    for _ in range(n_levels):
        counts = table.fine_counts(domain, edges, rho_per_level)
        is_split = (counts > SPLIT_AT * noise) & (edges[:, 1] - edges[:, 0] > 1)
        # The largest bins first, up to the maximum number of cells.
        order = np.argsort(-counts, kind="stable")
        is_split[order[max((MOST_CELLS - len(starts)) // (CHILDREN - 1), 0) :]] = False
        if not is_split.any():
            break
        edges = np.concatenate([_children(low, high) for low, high in edges[is_split].tolist()])
        starts |= set(edges[:, 0].tolist())
    return np.array(sorted(starts), dtype=np.int64)


def _children(low: int, high: int) -> Counts:
    cuts = np.unique(np.round(np.linspace(low, high, CHILDREN + 1)).astype(np.int64))
    return np.stack([cuts[:-1], cuts[1:]], axis=1)


def _line_cells(domain: ColumnDomain, starts: Counts) -> Cells:
    """Return the cells of a line with the given lower edges of intervals, sorted by value."""
    stops = np.append(starts[1:], domain.n_bins)
    low = np.concatenate([domain.atoms, domain.bin_edges(starts)])
    is_atom = np.arange(len(low)) < domain.n_atoms
    order = np.lexsort([~is_atom, low])
    position = np.empty(len(order), dtype=np.int32)
    position[order] = np.arange(len(order))
    of_bins = np.repeat(position[domain.n_atoms :], stops - starts)
    null = [len(order)] if domain.nullable else []
    fine = np.concatenate([position[: domain.n_atoms], of_bins, np.array(null, dtype=np.int32)]).astype(np.int32)
    starts_low = np.concatenate([np.arange(domain.n_atoms, dtype=np.float64), domain.bin_edges(starts)])[order]
    ends = np.concatenate([np.arange(domain.n_atoms, dtype=np.float64), domain.bin_edges(stops)])[order]
    tail = np.zeros(len(null))
    return Cells(
        domain,
        CellMap(domain, fine, len(order) + len(null)),
        np.concatenate([is_atom[order], tail == 0]) if null else is_atom[order],
        np.concatenate([starts_low, tail]),
        np.concatenate([ends, tail]),
    )


def group_cells(cells: Cells, shares: Floats, most: int) -> Ints:
    """Return the group of every cell, about `most` groups in all, from noisy shares of the cells."""
    n_known = cells.n_cells - int(cells.domain.nullable)
    if cells.n_cells <= most:
        return np.arange(cells.n_cells, dtype=np.int32)
    if cells.domain.kind == "line" or cells.domain.axis is not None:
        groups = _group_line(shares[:n_known], most - int(cells.domain.nullable))
        null = [groups[-1] + 1] if cells.domain.nullable else []
        return np.concatenate([groups, np.array(null, dtype=np.int32)]).astype(np.int32)
    return _group_levels(shares, most)


def _group_line(shares: Floats, most: int) -> Ints:
    """Return contiguous groups of about equal shares; a heavy cell is a group of its own."""
    heavy = shares > HEAVY / most
    groups, group, mass = np.zeros(len(shares), dtype=np.int32), -1, np.inf
    for cell, share in enumerate(shares.tolist()):
        if heavy[cell] or (cell and heavy[cell - 1]) or mass + share / 2 > 1 / most:
            group, mass = group + 1, 0.0
        groups[cell] = group
        mass += share
    return groups


def _group_levels(shares: Floats, most: int) -> Ints:
    """Return groups of levels: the most frequent are groups of their own, all others one group."""
    groups = np.full(len(shares), most - 1, dtype=np.int32)
    groups[np.argsort(-shares, kind="stable")[: most - 1]] = np.arange(most - 1)
    return groups
