"""The model: frozen tables, one row per leaf, per node, or per (leaf, state) of a variable."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.adversary import Round
from arf_dask.forest import Boxes, Ints, Tree, depth_levels, leaf_boxes, leaf_nodes, side_by_side
from arf_dask.schema import Floats, Schema, Variable

Counts = NDArray[np.int64]

LARGE_FAMILIES = 64  # leaves under the parents of leaves, on average, that are not written out
STAND_LEAVES = 2_048  # of trees that are asked together


class Entries(NamedTuple):
    """The leaves' knowledge of one variable. One row per (leaf, state) that holds training rows, sorted."""

    first: NDArray[np.int64]  # per leaf of all trees: its first entry; one more at the end
    state: NDArray[np.unsignedinteger]
    rows: NDArray[np.unsignedinteger]  # training rows
    mu: Floats  # per entry that is an interval, in order: the normal before truncation
    sigma: Floats  # likewise; inf: uniform

    @property
    def leaf(self) -> NDArray[np.uint32]:
        """The leaf of every entry. Made anew each time: whoever needs a few leaves asks `of_leaves`."""
        return np.repeat(np.arange(len(self.first) - 1, dtype=np.uint32), np.diff(self.first))

    def of_leaves(self, start: int, stop: int) -> tuple[slice, NDArray[np.int64]]:
        """The entries of the leaves start .. stop - 1, and the leaf of each, counted from `start`."""
        first = self.first[start : stop + 1]
        return slice(int(first[0]), int(first[-1])), np.repeat(np.arange(stop - start), np.diff(first))


class Families(NamedTuple):
    """The leaves under the parent of every leaf, leaf by leaf."""

    ends: Ints  # per leaf: where its family starts; one more at the end
    member: Ints  # the leaves
    itself: NDArray[np.int64]  # per leaf: its own place among them


class Surroundings(NamedTuple):
    """Where the leaves of one stand of trees are. One row per leaf."""

    boxes: Boxes  # codes each leaf can hold
    rows: Counts  # training rows
    first: Ints  # the leaves under its parent: first <= leaf < last, counted within the stand
    last: Ints
    split: Ints  # the variable its parent splits on; -1 if it has no parent
    families: Families | None  # None: too many to write out


@dataclass(frozen=True, eq=False)
class Tables:
    """All that is learned. `Model` adds what can be asked of it."""

    schema: Schema
    trees: Sequence[Tree]
    coverage: Counts  # per leaf: training rows
    entries: Sequence[Entries]  # per variable
    histograms: Sequence[Counts]  # per variable: training rows by code
    strengths: Floats  # per variable: rows' worth of prior that a leaf is shrunk by
    family: str  # "truncnorm" or "uniform"
    support: str  # "observed" or "open"
    rounds_held: Sequence[Round]
    options: Mapping[str, object]

    @cached_property
    def starts(self) -> Ints:
        """Per tree: the number of its first leaf among all; one more at the end."""
        counts = [int((tree.left < 0).sum()) for tree in self.trees]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @cached_property
    def n_codes(self) -> Ints:
        return np.array([v.n_codes for v in self.schema.variables], dtype=np.int32)

    @property
    def n_leaves(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def boxes(self) -> Boxes:
        """The codes every leaf of every tree can hold."""
        small = smallest_unsigned(int(self.n_codes.max(initial=1)))
        parts = []
        for trees in self._stands():
            joined, roots = side_by_side(trees)
            parts.append(leaf_boxes(joined, self.n_codes, roots))
        return Boxes(*(np.concatenate([side.astype(small) for side in sides]) for sides in zip(*parts, strict=True)))

    @cached_property
    def stands(self) -> Ints:
        """The first tree of every stand: of trees that are asked together, as each alone is little work; one more."""
        first, leaves = [0], 0
        for tree, more in enumerate(np.diff(self.starts).tolist()):
            if leaves and leaves + more > STAND_LEAVES:
                first.append(tree)
                leaves = 0
            leaves += more
        return np.array([*first, len(self.trees)], dtype=np.int32)

    @property
    def stand_starts(self) -> Ints:
        """Per stand: the number of its first leaf among all; one more at the end."""
        return self.starts[self.stands]

    def _stands(self) -> list[Sequence[Tree]]:
        return [self.trees[first:last] for first, last in itertools.pairwise(self.stands.tolist())]

    @cached_property
    def kept(self) -> dict[int, object]:
        """Per stand: what was worked out for one question and serves the next (leaves.py)."""
        return {}

    @cached_property
    def normal_starts(self) -> Sequence[Counts]:
        """Per variable and stand: its first entry among those that are intervals; one more at the end."""
        found = []
        for variable, entries in zip(self.schema.variables, self.entries, strict=True):
            before = np.concatenate([[0], np.cumsum(variable.interval[entries.state])])
            found.append(before[entries.first[self.stand_starts]])
        return found

    def surroundings(self, stand: int) -> Surroundings:
        """Boxes, rows and parents of the leaves of one stand."""
        here = slice(self.stand_starts[stand], self.stand_starts[stand + 1])
        boxes = Boxes(self.boxes.low[here].astype(np.int32), self.boxes.high[here].astype(np.int32))
        trees = self.trees[self.stands[stand] : self.stands[stand + 1]]
        first, last, split = parent_ranges(*side_by_side(trees))
        return Surroundings(boxes, self.coverage[here], first, last, split, families(first, last))

    @property
    def rounds(self) -> pl.DataFrame:
        """One row per round: round, accuracy (out of bag), leaves."""
        kinds = {"round": pl.UInt32, "accuracy": pl.Float64, "leaves": pl.UInt32}
        return pl.DataFrame([r._asdict() for r in self.rounds_held], schema=kinds)

    @property
    def nodes(self) -> pl.DataFrame:
        """One row per (tree, node): tree, node, feature, threshold, left, right (-1 at leaves)."""
        return pl.concat([_node_table(number, tree) for number, tree in enumerate(self.trees)])

    @property
    def leaves(self) -> pl.DataFrame:
        """One row per leaf: leaf, tree, node, rows, coverage (share of the rows of its tree)."""
        tree = np.repeat(np.arange(len(self.trees)), np.diff(self.starts))
        return pl.DataFrame(
            {
                "leaf": np.arange(self.n_leaves, dtype=np.uint32),
                "tree": tree.astype(np.uint32),
                "node": np.concatenate([leaf_nodes(t) for t in self.trees]).astype(np.uint32),
                "rows": self.coverage.astype(np.uint64),
                "coverage": self.coverage / self.schema.n_rows,
            }
        )

    def __repr__(self) -> str:
        columns, bundles = len(self.schema.columns), len(self.schema.bundles)
        return (
            f"<{type(self).__name__} of {self.schema.n_rows:,} rows: {columns} columns in "
            f"{len(self.schema.variables)} variables ({bundles} bundles), {len(self.trees)} trees, "
            f"{self.n_leaves:,} leaves, out-of-bag accuracy {self.rounds_held[-1].accuracy:.3f} after "
            f"{len(self.rounds_held)} rounds>"
        )


def first_entries(leaf: NDArray[np.integer], n_leaves: int) -> NDArray[np.int64]:
    """Per leaf the place of its first entry, from the ascending leaves of the entries; one more at the end."""
    return np.concatenate([[0], np.cumsum(np.bincount(leaf, minlength=n_leaves))])


def smallest_unsigned(most: int) -> type[np.unsignedinteger]:
    """The smallest type for whole numbers up to `most`."""
    return np.uint16 if most < 2**16 else np.uint32


def parent_ranges(tree: Tree, roots: Ints | None = None) -> tuple[Ints, Ints, Ints]:
    """Per leaf: the run of leaves under its parent (first, last excluded) and the variable the parent splits on.

    `roots` are those of trees side by side.
    """
    roots = np.zeros(1, dtype=np.int32) if roots is None else roots
    n_nodes = len(tree.left)
    is_leaf = tree.left < 0
    before = np.concatenate([[0], np.cumsum(is_leaf)])
    inner = np.flatnonzero(~is_leaf)
    parent = np.arange(n_nodes)
    parent[tree.left[inner]] = parent[tree.right[inner]] = inner
    # Preorder: the subtree of a node ends where its right sibling begins, or with its parent's.
    end = np.full(n_nodes, n_nodes, dtype=np.int64)
    end[roots] = np.append(roots[1:], n_nodes)
    for node in depth_levels(tree, roots):
        below = node[tree.left[node] >= 0]
        end[tree.left[below]] = tree.right[below]
        end[tree.right[below]] = end[below]
    of_leaf = parent[leaf_nodes(tree)]
    split = np.where(tree.feature[of_leaf] >= 0, tree.feature[of_leaf], -1)
    return before[of_leaf].astype(np.int32), before[end[of_leaf]].astype(np.int32), split.astype(np.int32)


def families(first: Ints, last: Ints) -> Families | None:
    """The runs first .. last - 1 written out, if that is not too much."""
    sizes = (last - first).astype(np.int64)
    if sizes.sum() > LARGE_FAMILIES * len(sizes):
        return None
    ends = np.concatenate([[0], np.cumsum(sizes)])
    member = np.arange(ends[-1]) - np.repeat(ends[:-1] - first, sizes)
    return Families(ends.astype(np.int32), member.astype(np.int32), ends[:-1] + np.arange(len(first)) - first)


def value_edges(variable: Variable, schema: Schema, support: str) -> Floats:
    """The edges of a line's bins, from end to end of what may come out: one more than there are bins."""
    axis = schema.columns[variable.columns[0]].axis
    assert axis is not None
    half = 0.5 if axis.grid else 0.0
    ends = (axis.low - half, axis.high + half)
    if len(variable.edges) and variable.edges[-1] == axis.high:
        # The last two floats are neighbours, with the edge on the upper one: its bin must have some width.
        ends = (ends[0], float(np.nextafter(axis.high, np.inf)))
    if support == "open" and not axis.grid:
        ends = (-np.inf, np.inf)
    return np.concatenate([[ends[0]], variable.edges, [ends[1]]])


def interval_bounds(variable: Variable, edges: Floats, states: Ints, low: Ints, high: Ints) -> tuple[Floats, Floats]:
    """The part of an interval state that a box of codes leaves: lower and upper value."""
    first = np.maximum(low, variable.code_low[states]) - variable.first_bin
    last = np.minimum(high, variable.code_high[states]) - variable.first_bin
    return edges[np.clip(first, 0, len(edges) - 2)], edges[np.clip(last, 0, len(edges) - 2) + 1]


def _node_table(number: int, tree: Tree) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "tree": np.full(len(tree.left), number, dtype=np.uint32),
            "node": np.arange(len(tree.left), dtype=np.uint32),
            "feature": tree.feature,
            "threshold": tree.threshold,
            "left": tree.left,
            "right": tree.right,
        }
    )
