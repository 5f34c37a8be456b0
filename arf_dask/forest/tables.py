"""The tables of a model: one row per leaf, per node, or per (leaf, state) of a variable."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.data.axes import Axis
from arf_dask.forest.boxes import Boxes, leaf_boxes
from arf_dask.forest.dependence import NO_DEPENDENCE, Dependence
from arf_dask.forest.trees import Tree, depth_levels, leaf_nodes, side_by_side
from arf_dask.schema.columns import Column, Schema, Variable
from arf_dask.schema.encoding import states_of_codes
from arf_dask.typing import Counts, Family, Floats, Ints, Support

LARGE_FAMILIES = 64  # families are not materialised if they have more leaves on average
PRIOR_UNIT, PRIOR_TOTAL = 2**12, 2**31  # units per row in priors with unseen combinations, and their approximate total
UNSEEN_WEIGHT = 500  # inverse of the weight of the whole column in leaves of about forty rows
UNSEEN_SHARE = 0.1  # maximum share of unseen combinations in priors
BATCH_LEAVES = 2_048  # maximum number of leaves of a tree batch, unless a single tree has more


class Round(NamedTuple):
    """One round of the adversarial loop."""

    round: int
    accuracy: float  # out-of-bag accuracy in distinguishing real from synthetic rows
    leaves: int  # of the trees grown in this round, before pruning


class Entries(NamedTuple):
    """The contents of all leaves for one variable. One row per (leaf, state) with training rows, sorted."""

    first: NDArray[np.int64]  # per leaf of all trees: index of its first entry; followed by the number of entries
    state: NDArray[np.unsignedinteger]
    rows: NDArray[np.unsignedinteger]  # training rows
    mu: Floats  # per interval entry, in order: location of the normal before truncation
    sigma: Floats  # per interval entry: scale of the normal before truncation; inf: uniform

    @property
    def leaf(self) -> NDArray[np.uint32]:
        """The leaf of every entry, computed on each access; use `of_leaves` for a range of leaves."""
        return np.repeat(np.arange(len(self.first) - 1, dtype=np.uint32), np.diff(self.first))

    def of_leaves(self, start: int, stop: int) -> tuple[slice, NDArray[np.int64]]:
        """Return the slice of entries of the leaves start .. stop - 1, and the leaf of each, relative to `start`."""
        first = self.first[start : stop + 1]
        return slice(int(first[0]), int(first[-1])), np.repeat(np.arange(stop - start), np.diff(first))


NO_ENTRIES = Entries(
    np.zeros(1, dtype=np.int64), np.empty(0, np.uint16), np.empty(0, np.uint16), np.empty(0), np.empty(0)
)


class Bounds(NamedTuple):
    """Lower and upper bounds of intervals on the number line."""

    lower: Floats
    upper: Floats


class Families(NamedTuple):
    """The leaves under the parent of every leaf, concatenated."""

    ends: Ints  # per leaf: start of its family in `member`; followed by the total size
    member: Ints  # the leaves of all families
    itself: NDArray[np.int64]  # per leaf: its own position in `member`


class BatchLeaves(NamedTuple):
    """The leaves of one tree batch, with their boxes and parents. One row per leaf in every array."""

    start: int  # index of its first leaf among those of all trees
    stop: int
    boxes: Boxes  # the range of codes of each leaf
    rows: Counts  # training rows
    first: Ints  # the leaves under its parent: first <= leaf < last, numbered within the batch
    last: Ints
    split: Ints  # the variable its parent splits on; -1 if it has no parent
    families: Families | None  # None if they would be too large


@dataclass(frozen=True, eq=False)
class VariableTables:
    """The learned tables of one variable, over all trees."""

    index: int  # the variable's column in matrices of codes and in boxes
    variable: Variable
    columns: tuple[Column, ...]  # the member columns; the first has the axis, if there is one
    histogram: Counts  # training rows by code
    strength: float  # weight of the prior in every leaf, in rows
    support: Support
    entries: Entries = NO_ENTRIES

    def __getstate__(self) -> dict[str, object]:
        # Cached properties are not sent to workers.
        return {stored_field.name: getattr(self, stored_field.name) for stored_field in fields(self)}

    @property
    def lead(self) -> Column:
        """The column whose number line the variable's intervals lie on, if it has any."""
        return self.columns[0]

    @property
    def axis(self) -> Axis:
        """The axis of a variable that has one."""
        assert self.lead.axis is not None
        return self.lead.axis

    @property
    def is_number(self) -> bool:
        """Whether the variable is a single numeric column."""
        return len(self.columns) == 1 and self.lead.kind == "numeric"

    @cached_property
    def prior_rows(self) -> Counts:
        """The row counts by code that form the prior of every leaf, up to a common factor.

        These are the training rows and, with open support, additional rows for unseen combinations of a bundle, whose
        total probability is about that of the combinations seen once (Good-Turing). As the prior has only a small
        weight in a leaf, their number is multiplied accordingly.
        """
        is_unseen = (self.histogram == 0) & (not self.variable.is_line)
        if self.support != "open" or len(self.columns) == 1 or not is_unseen.any():
            return self.histogram
        n_rows = int(self.histogram.sum())
        n_seen_once = max(int((self.histogram == 1).sum()), 1)
        unseen_rows = min(n_seen_once * UNSEEN_WEIGHT, UNSEEN_SHARE * n_rows)
        token_product = np.ones(len(is_unseen))
        for tokens in self.variable.tokens.T:
            token_product *= np.bincount(tokens, self.histogram)[tokens] / n_rows
        weights = np.where(is_unseen, token_product, 0.0)
        row_unit = max(min(PRIOR_UNIT, PRIOR_TOTAL // n_rows), 1)
        extra_rows = np.ceil(unseen_rows * row_unit * weights / max(weights.sum(), 1e-300)).astype(np.int64)
        return np.asarray(self.histogram * row_unit + np.where(is_unseen, np.maximum(extra_rows, 1), 0))

    @cached_property
    def state_of_code(self) -> Ints:
        """Per code: the state of training rows that have it."""
        return states_of_codes(self.variable)

    @cached_property
    def edges(self) -> Floats:
        """The edges of the bins, including both ends of the model's support."""
        return value_edges(self.variable, self.lead, self.support)

    @cached_property
    def observed_edges(self) -> Floats:
        """The edges of the bins, including both ends of the training range."""
        return value_edges(self.variable, self.lead, "observed")

    def interval_bounds(self, states: Ints, low: Ints, high: Ints) -> Bounds:
        """Return the bounds of each interval state inside a box of codes low..high."""
        return interval_bounds(self.variable, self.edges, states, low, high)

    def unseen_bounds(self, states: Ints, low: Ints, high: Ints) -> Bounds:
        """Return the bounds of intervals without training rows in a leaf: its box within the training range."""
        return interval_bounds(self.variable, self.observed_edges, states, low, high)

    def entry_bounds(self, boxes: Boxes, leaf: NDArray[np.integer], state: NDArray[np.integer]) -> Bounds:
        """Return the bounds of the given (leaf, interval state) pairs, given all boxes."""
        low, high = (side[leaf, self.index].astype(np.int32) for side in boxes)
        return self.interval_bounds(state.astype(np.int32), low, high)


class ColumnTables(NamedTuple):
    """The tables of the variable that models a column."""

    table: VariableTables
    member: int  # its position among the columns of the variable

    @property
    def column(self) -> Column:
        """The column."""
        return self.table.columns[self.member]

    @property
    def tokens(self) -> Ints:
        """Per state of the variable: the token of the column."""
        return self.table.variable.tokens[:, self.member]


@dataclass(frozen=True, eq=False)
class LeafTables:
    """The forest: its trees, and the parameters of their leaves."""

    schema: Schema
    trees: Sequence[Tree]
    coverage: Counts  # per leaf: training rows
    variables: tuple[VariableTables, ...]
    family: Family
    support: Support
    rounds: Sequence[Round]
    dependence: Dependence = NO_DEPENDENCE

    def __getstate__(self) -> dict[str, object]:
        # Cached properties are not sent to workers.
        return {stored_field.name: getattr(self, stored_field.name) for stored_field in fields(self)}

    @cached_property
    def starts(self) -> Ints:
        """Per tree: index of its first leaf; followed by the number of leaves."""
        counts = [int((tree.left < 0).sum()) for tree in self.trees]
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)

    @cached_property
    def n_codes(self) -> Ints:
        """Per variable: the number of its codes."""
        return np.array([v.n_codes for v in self.schema.variables], dtype=np.int32)

    @property
    def n_leaves(self) -> int:
        """The number of leaves of all trees."""
        return int(self.starts[-1])

    @cached_property
    def boxes(self) -> Boxes:
        """The range of codes of every leaf of every tree."""
        dtype = smallest_unsigned(int(self.n_codes.max(initial=1)))
        parts = []
        for first_tree, last_tree in itertools.pairwise(self.batch_trees.tolist()):
            joined_trees, roots = side_by_side(self.trees[first_tree:last_tree])
            parts.append(leaf_boxes(joined_trees, self.n_codes, roots))
        return Boxes(*(np.concatenate([side.astype(dtype) for side in sides]) for sides in zip(*parts, strict=True)))

    @cached_property
    def batch_trees(self) -> Ints:
        """Per tree batch: its first tree; followed by the number of trees.

        Small trees are evaluated together, as each of them is little work.
        """
        first_trees, n_leaves = [0], 0
        for tree, tree_leaves in enumerate(np.diff(self.starts).tolist()):
            if n_leaves and n_leaves + tree_leaves > BATCH_LEAVES:
                first_trees.append(tree)
                n_leaves = 0
            n_leaves += tree_leaves
        return np.array([*first_trees, len(self.trees)], dtype=np.int32)

    @property
    def n_batches(self) -> int:
        """The number of tree batches."""
        return len(self.batch_trees) - 1

    @property
    def batch_starts(self) -> Ints:
        """Per tree batch: index of its first leaf; followed by the number of leaves."""
        return self.starts[self.batch_trees]

    @cached_property
    def kept_batches(self) -> dict[int, object]:
        """Per tree batch: results cached between queries (inference/tree_batches.py)."""
        return {}

    @cached_property
    def kept_factors(self) -> dict[int, object]:
        """Per tree batch: tables of dependence cached between queries (inference/tree_batches.py)."""
        return {}

    @cached_property
    def normal_starts(self) -> Sequence[Counts]:
        """Per variable and tree batch: index of its first interval entry; followed by their number."""
        starts_by_variable = []
        for table in self.variables:
            intervals_before = np.concatenate([[0], np.cumsum(table.variable.interval[table.entries.state])])
            starts_by_variable.append(intervals_before[table.entries.first[self.batch_starts]])
        return starts_by_variable

    def column_tables(self, name: str) -> ColumnTables | None:
        """Return the tables that model a column; None for identifiers and all-null columns."""
        position = self.schema.variable_of(name)
        return None if position is None else ColumnTables(self.variables[position[0]], position[1])

    def batch_leaves(self, batch: int) -> BatchLeaves:
        """Return the leaves of one tree batch, with their boxes, rows and parents."""
        start, stop = (int(leaf) for leaf in self.batch_starts[batch : batch + 2])
        boxes = Boxes(*(side[start:stop].astype(np.int32) for side in self.boxes))
        trees = self.trees[self.batch_trees[batch] : self.batch_trees[batch + 1]]
        first, last, split = parent_ranges(*side_by_side(trees))
        rows = self.coverage[start:stop]
        return BatchLeaves(start, stop, boxes, rows, first, last, split, families(first, last))

    def with_entries(self, entries: Sequence[Entries]) -> LeafTables:
        """Return a copy with the given entries of every variable."""
        if not entries:
            return self
        coverage = np.bincount(entries[0].leaf, entries[0].rows, self.n_leaves).astype(np.int64)
        filled = zip(self.variables, entries, strict=True)
        return replace(self, coverage=coverage, variables=tuple(replace(table, entries=e) for table, e in filled))

    def with_dependence(self, dependence: Dependence) -> LeafTables:
        """Return a copy with the given dependence inside leaves."""
        return replace(self, dependence=dependence)

    def without_smoothing(self) -> LeafTables:
        """Return a copy without priors: leaf probabilities are the shares of training rows."""
        return replace(self, variables=tuple(replace(table, strength=0.0) for table in self.variables))


def variable_tables(
    schema: Schema, histograms: Sequence[Counts], strengths: Sequence[float], support: Support
) -> tuple[VariableTables, ...]:
    """Return the tables of every variable, without entries."""
    return tuple(
        VariableTables(index, variable, members_of(schema, variable), histogram, float(strength), support)
        for index, (variable, histogram, strength) in enumerate(
            zip(schema.variables, histograms, strengths, strict=True)
        )
    )


def members_of(schema: Schema, variable: Variable) -> tuple[Column, ...]:
    """Return the columns that a variable models jointly."""
    return tuple(schema.columns[column_index] for column_index in variable.columns)


def first_entries(leaf: NDArray[np.integer], n_leaves: int) -> NDArray[np.int64]:
    """Return the index of the first entry of every leaf, given the sorted leaves of entries; then their number."""
    return np.concatenate([[0], np.cumsum(np.bincount(leaf, minlength=n_leaves))])


def smallest_unsigned(most: int) -> type[np.unsignedinteger]:
    """Return the smallest unsigned integer type of at least 16 bits that holds integers up to `most`."""
    return np.uint16 if most < 2**16 else np.uint32


def parent_ranges(tree: Tree, roots: Ints | None = None) -> tuple[Ints, Ints, Ints]:
    """Return, per leaf, the range of leaves under its parent (last exclusive) and the variable the parent splits on.

    Args:
        tree: one tree, or several side by side.
        roots: the root nodes of trees side by side; None for a single tree.
    """
    roots = np.zeros(1, dtype=np.int32) if roots is None else roots
    n_nodes = len(tree.left)
    is_leaf = tree.left < 0
    before = np.concatenate([[0], np.cumsum(is_leaf)])
    inner_nodes = np.flatnonzero(~is_leaf)
    parent = np.arange(n_nodes)
    parent[tree.left[inner_nodes]] = parent[tree.right[inner_nodes]] = inner_nodes
    # In preorder, the subtree of a node ends where that of its right sibling begins, or with that of its parent.
    end = np.full(n_nodes, n_nodes, dtype=np.int64)
    end[roots] = np.append(roots[1:], n_nodes)
    for level_nodes in depth_levels(tree, roots):
        inner_level = level_nodes[tree.left[level_nodes] >= 0]
        end[tree.left[inner_level]] = tree.right[inner_level]
        end[tree.right[inner_level]] = end[inner_level]
    parents = parent[leaf_nodes(tree)]
    split = np.where(tree.feature[parents] >= 0, tree.feature[parents], -1)
    return before[parents].astype(np.int32), before[end[parents]].astype(np.int32), split.astype(np.int32)


def families(first: Ints, last: Ints) -> Families | None:
    """Return the ranges first .. last - 1 as explicit lists; None if these would be too large."""
    family_sizes = (last - first).astype(np.int64)
    if family_sizes.sum() > LARGE_FAMILIES * len(family_sizes):
        return None
    ends = np.concatenate([[0], np.cumsum(family_sizes)])
    member = np.arange(ends[-1]) - np.repeat(ends[:-1] - first, family_sizes)
    return Families(ends.astype(np.int32), member.astype(np.int32), ends[:-1] + np.arange(len(first)) - first)


def value_edges(variable: Variable, lead: Column, support: Support) -> Floats:
    """Return the edges of the bins of a number line, including both ends of its support."""
    axis = lead.axis
    assert axis is not None
    low, high = axis.open_range if support == "open" else (axis.low, axis.high)
    half_step = 0.5 if axis.grid else 0.0
    outer_edges = (low - half_step, high + half_step)
    if len(variable.edges) and variable.edges[-1] == high:
        # The last two values are neighbouring floats with the edge at the upper one, whose bin must not be empty.
        outer_edges = (outer_edges[0], float(np.nextafter(axis.high, np.inf)))
    return np.concatenate([[outer_edges[0]], variable.edges, [outer_edges[1]]])


def interval_bounds(variable: Variable, edges: Floats, states: Ints, low: Ints, high: Ints) -> Bounds:
    """Return the bounds of each interval state inside a box of codes low..high, given the edges of bins."""
    first = np.maximum(low, variable.code_low[states]) - variable.first_bin
    last = np.minimum(high, variable.code_high[states]) - variable.first_bin
    return Bounds(edges[np.clip(first, 0, len(edges) - 2)], edges[np.clip(last, 0, len(edges) - 2) + 1])
