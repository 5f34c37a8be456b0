"""Dependence between variables inside leaves: a tree over the variables, with a table of ratios on every edge.

Inside a leaf the distribution is

    q(x) = prod_j p_j(x_j) * prod over edges (p, c) of u(b_p) * R(b_p, b_c) * v(b_c)

where b_j is the bin of x_j (dependence_bins.py), R is shared by all leaves, and u and v are specific to the leaf:
they preserve both marginals exactly (stats/ratio_scaling.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import polars as pl

from arf_dask.schema.columns import Schema
from arf_dask.typing import Counts, Floats, Ints


def count_bins(bins: Ints) -> int:
    """Return the number of bins, given the bin of every code."""
    return int(bins.max(initial=-1)) + 1


class Edge(NamedTuple):
    """Two variables that depend on each other inside leaves."""

    parent: int
    child: int
    information: float  # mutual information missed by independence inside leaves, in nats per row
    observed: Counts  # (bin of the parent, bin of the child): training rows
    ratios: Floats  # (bin of the parent, bin of the child): R


@dataclass(frozen=True, eq=False)
class Dependence:
    """A forest over the variables; without edges, variables are independent inside leaves."""

    bins: tuple[Ints, ...] = ()  # per variable: the bin of every code
    edges: tuple[Edge, ...] = ()  # parents before their children

    @cached_property
    def neighbours(self) -> list[list[tuple[int, int]]]:
        """Per variable: its edges, each with the variable at the other end."""
        edges_by_variable: list[list[tuple[int, int]]] = [[] for _ in self.bins]
        for edge_index, edge in enumerate(self.edges):
            edges_by_variable[edge.parent].append((edge_index, edge.child))
            edges_by_variable[edge.child].append((edge_index, edge.parent))
        return edges_by_variable

    def code_bins(self, number: int) -> Ints | None:
        """Return the bin of every code of a variable; None if it has no edge."""
        return self.bins[number] if self.edges and self.neighbours[number] else None

    def n_bins(self, number: int) -> int:
        """Return the number of bins of a variable."""
        return count_bins(self.bins[number])

    def outwards(self, root: int) -> list[Hop]:
        """Return the edges of the tree that contains `root`, directed away from it in breadth-first order."""
        hops, seen, queue = [], {root}, [root]
        for near in queue:
            for edge, far in self.neighbours[near]:
                if far not in seen:
                    seen.add(far)
                    queue.append(far)
                    hops.append(Hop(edge, near, far))
        return hops

    @cached_property
    def roots(self) -> list[int]:
        """The root of every tree that has edges."""
        children = {edge.child for edge in self.edges}
        return sorted({edge.parent for edge in self.edges} - children)

    def ratios(self, edge: int, near: int) -> Floats:
        """Return the ratios of an edge, as (bin of `near`, bin of the variable at the other end)."""
        shared_edge = self.edges[edge]
        return shared_edge.ratios if shared_edge.parent == near else shared_edge.ratios.T


NO_DEPENDENCE = Dependence()


class Hop(NamedTuple):
    """An edge seen from one of its ends."""

    edge: int
    near: int
    far: int


def dependence_frame(dependence: Dependence, schema: Schema) -> pl.DataFrame:
    """One row per edge: parent, child (column names, joined by " + " for bundles), information."""
    variable_names = [
        " + ".join(schema.columns[index].name for index in variable.columns) for variable in schema.variables
    ]
    return pl.DataFrame(
        {
            "parent": [variable_names[edge.parent] for edge in dependence.edges],
            "child": [variable_names[edge.child] for edge in dependence.edges],
            "information": [edge.information for edge in dependence.edges],
        },
        schema={"parent": pl.String, "child": pl.String, "information": pl.Float64},
    )


def is_forest(parents: Sequence[int], children: Sequence[int], n_variables: int) -> bool:
    """Whether these edges form a forest over the variables, with parents before their children."""
    seen: set[int] = set()
    for parent, child in zip(parents, children, strict=True):
        if not (0 <= parent < n_variables and 0 <= child < n_variables) or parent == child or child in seen:
            return False
        seen |= {parent, child}
    return True
