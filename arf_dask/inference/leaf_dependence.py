"""Dependence inside the leaves of a tree batch: bin masses, and scaling factors that preserve leaf marginals.

Column factors are the only tables that are dear to compute. Row factors and masses follow from them and the leaves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from arf_dask.forest.dependence import Dependence
from arf_dask.forest.leaf_normals import BinMasses
from arf_dask.stats.ratio_scaling import Factors, row_factors, scale_ratios
from arf_dask.typing import Floats


class LeafFactors:
    """Dependence tables of a tree batch, which may be reused between queries.

    Args:
        columns: by edge, the factors (leaf, bin of the child) found so far, to which new ones are added.
    """

    def __init__(self, columns: dict[int, Floats] | None = None) -> None:
        self.columns = {} if columns is None else columns
        self.masses: dict[int, BinMasses] = {}  # by variable
        self.factors: dict[int, Factors] = {}  # by edge
        self.products: dict[int, Floats] = {}  # by variable


class LeafDependence:
    """Leaf tables for message passing on the dependency tree, computed on first use."""

    def __init__(
        self,
        dependence: Dependence,
        n_leaves: int,
        masses_of: Callable[[int], BinMasses],
        kept: LeafFactors | None = None,
    ) -> None:
        self.dependence, self.n_leaves = dependence, n_leaves
        self._masses_of = masses_of
        self._kept = LeafFactors() if kept is None else kept

    def bin_masses(self, number: int) -> BinMasses:
        """Return the probabilities (leaf, bin) of the bins of a variable, in total and from intervals only."""
        if number not in self._kept.masses:
            self._kept.masses[number] = self._masses_of(number)
        return self._kept.masses[number]

    def masses(self, number: int) -> Floats:
        """Return the probabilities (leaf, bin) of the bins of a variable."""
        return self.bin_masses(number).all

    def factor(self, edge: int, number: int) -> Floats:
        """Return the factors (leaf, bin) that scale the ratios of an edge on the side of one of its variables."""
        tree_edge = self.dependence.edges[edge]
        if edge not in self._kept.factors:
            child_masses = self.masses(tree_edge.child)
            if edge not in self._kept.columns:
                scaled = scale_ratios(tree_edge.ratios, self.masses(tree_edge.parent), child_masses)
                self._kept.columns[edge] = scaled.columns
            columns = self._kept.columns[edge]
            self._kept.factors[edge] = Factors(row_factors(tree_edge.ratios, child_masses, columns), columns)
        edge_factors = self._kept.factors[edge]
        return edge_factors.rows if number == tree_edge.parent else edge_factors.columns

    def product(self, number: int) -> Floats:
        """Return the product (leaf, bin) of the factors of all edges of a variable."""
        if number not in self._kept.products:
            edge_factors = [self.factor(edge, number) for edge, _ in self.dependence.neighbours[number]]
            self._kept.products[number] = np.prod(np.stack(edge_factors), axis=0)
        return self._kept.products[number]
