"""Trees that predict one variable of a row from its history and from the variables before it.

A tree is grown on most of the subjects and pruned by the likelihood of the others: a split stays only if it
predicts rows of subjects that it has not seen. Its leaves hold at least `min_leaf` subjects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.forest.growing import grow_predictor
from arf_dask.forest.routing import route_to_nodes, routing_table
from arf_dask.forest.trees import LEAF, Tree, single_leaf, to_preorder
from arf_dask.release.subjects import prune_by_subjects
from arf_dask.schema.columns import Column, Variable
from arf_dask.typing import Codes, Counts, Flags, Floats, Ints

MOST_CLASSES = 48  # of a target that trees predict; rarer levels are grouped with their neighbours
FREQUENT = 32  # levels with a class of their own, if there are more than that
BUCKETS = 32  # of a number, by which likelihoods are compared
HELD_OUT = 6  # one in so many subjects judges the splits
PRIOR = 4.0  # rows by which the shares of a node are shrunk to those of its parent, when splits are judged


class Target(NamedTuple):
    """The variable that a tree predicts, per row."""

    values: Floats | Ints  # ranks of codes, or classes
    buckets: Ints  # groups of codes by which likelihoods are compared
    discrete: bool


class ChainRows(NamedTuple):
    """The rows that trees are grown on."""

    codes: Codes  # (row, variable)
    subjects: Counts  # the root that every row belongs to
    is_judge: Flags  # rows of the subjects that judge the splits


class Step(NamedTuple):
    """How one variable is drawn."""

    variable: int
    seen: Sequence[int]  # the variables that its tree splits on
    is_next: int  # the variable that is 0 for the first row of a subject, and 1 for all others
    repeat: int | None  # the variable that is 1 where this one has the value of the previous row


def chain_rows(codes: Codes, subjects: Counts, rng: np.random.Generator) -> ChainRows:
    """Choose the subjects that judge the splits."""
    numbers, rank = np.unique(subjects, return_inverse=True)
    judges = np.zeros(len(numbers), dtype=bool)
    judges[rng.permutation(len(numbers))[: len(numbers) // HELD_OUT]] = True
    return ChainRows(codes, rank.astype(np.int64), judges[rank])


def grow_step(
    rows: ChainRows, step: Step, shape: Variable, columns: Sequence[Column], min_leaf: int, seed: int
) -> Tree:
    """Grow the tree of one variable: one branch for the first rows of subjects, one for all others.

    Args:
        rows: the rows of all subjects.
        step: the variable to predict, and the variables that its tree splits on.
        shape: the states and codes of the variable.
        columns: the columns that it models.
        min_leaf: minimum number of subjects per leaf.
        seed: the seed of scikit-learn.
    """
    target = read_target(rows.codes[:, step.variable].astype(np.int64), shape, columns)

    def grow(chosen: Counts) -> Tree:
        return _grow_branch(rows, chosen, target, step.seen, min_leaf, seed)

    is_next = rows.codes[:, step.is_next] > 0
    first_rows, next_rows = np.flatnonzero(~is_next), np.flatnonzero(is_next)
    if not len(first_rows) or not len(next_rows):
        return grow(np.arange(len(rows.codes)))
    next_tree = None
    if step.repeat is not None:
        is_same = rows.codes[next_rows, step.repeat] > 0
        if is_same.any() and not is_same.all():
            # Rows that repeat the previous one need no distribution of their own.
            next_tree = joined(step.repeat, grow(next_rows[~is_same]), single_leaf())
    return joined(step.is_next, grow(first_rows), grow(next_rows) if next_tree is None else next_tree)


def _grow_branch(
    rows: ChainRows, chosen: Counts, target: Target, seen: Sequence[int], min_leaf: int, seed: int
) -> Tree:
    """Grow the tree of one branch on the learning subjects; prune it by the judges, and to enough subjects per leaf."""
    is_judge = rows.is_judge[chosen]
    learning, judging = chosen[~is_judge], chosen[is_judge]
    if len(learning) < 2 * min_leaf or not len(judging) or len(np.unique(target.buckets[learning])) < 2:
        return single_leaf()
    features = np.asfortranarray(rows.codes[:, list(seen)], dtype=np.float32)
    grown, nodes = grow_predictor(
        features[learning], target.values[learning], discrete=target.discrete, min_leaf=min_leaf, seed=seed
    )
    grown, number = to_preorder(grown._replace(feature=_numbered(grown.feature, seen)))
    judged = _leaf_of(grown, rows.codes[judging])
    grown = prune_by_likelihood(grown, number[nodes], target.buckets[learning], judged, target.buckets[judging])
    return prune_by_subjects(grown, rows.codes[chosen], rows.subjects[chosen], min_leaf)


def _numbered(feature: Ints, seen: Sequence[int]) -> Ints:
    return np.where(feature >= 0, np.asarray(seen, dtype=np.int32)[feature], LEAF).astype(np.int32)


def _leaf_of(tree: Tree, codes: Codes) -> Ints:
    return route_to_nodes(routing_table(tree), np.ascontiguousarray(codes)).astype(np.int32)


def joined(feature: int, left: Tree, right: Tree) -> Tree:
    """Return a tree that splits on one variable at its smallest code, with two trees as branches, in preorder."""
    offsets = 1, 1 + len(left.left)
    children = [
        np.concatenate(
            [
                [offset],
                *(np.where(part >= 0, part + shift, LEAF) for part, shift in zip(parts, offsets, strict=True)),
            ]
        ).astype(np.int32)
        for offset, parts in zip(offsets, ((left.left, right.left), (left.right, right.right)), strict=True)
    ]
    features = np.concatenate([[feature], left.feature, right.feature]).astype(np.int32)
    thresholds = np.concatenate([[0], left.threshold, right.threshold]).astype(np.int32)
    return Tree(features, thresholds, *children)


def read_target(codes: NDArray[np.int64], shape: Variable, columns: Sequence[Column]) -> Target:
    """Return what trees predict of a variable: ranks on number lines, classes, or ranks of all columns of a bundle."""
    counts = np.bincount(codes, minlength=shape.n_codes)
    if shape.is_line:
        return Target(_ranks(codes, counts), _grouped(counts, BUCKETS)[codes], False)
    if shape.n_codes <= MOST_CLASSES:
        return Target(codes.astype(np.int32), codes.astype(np.int32), True)
    numbers = [member for member, column in enumerate(columns) if column.kind == "numeric"]
    if numbers:
        # Numbers of a bundle are predicted as numbers: its states have no order of their own.
        tokens = shape.tokens[codes][:, numbers]
        ranks = [_ranks(column, np.bincount(column)) for column in tokens.T]
        return Target(np.column_stack(ranks), _grouped(np.bincount(tokens[:, 0]), BUCKETS)[tokens[:, 0]], False)
    frequent = np.sort(np.argsort(-counts, kind="stable")[:FREQUENT])
    classes = _grouped(np.where(np.isin(np.arange(len(counts)), frequent), 0, counts), MOST_CLASSES - FREQUENT)
    classes[frequent] = MOST_CLASSES + np.arange(FREQUENT)
    classes = np.unique(classes, return_inverse=True)[1].astype(np.int32)
    return Target(classes[codes], classes[codes], True)


def _ranks(values: NDArray[np.integer], counts: Counts) -> Floats:
    """Return the mean rank of every value, between 0 and 1."""
    return np.asarray(((np.cumsum(counts) - counts / 2) / max(len(values), 1))[values])


def _grouped(counts: Counts, groups: int) -> Ints:
    """Return the group of every code: neighbouring codes share a group of about equally many rows."""
    total = max(int(counts.sum()), 1)
    group = ((np.cumsum(counts) - counts / 2) * groups / total).astype(np.int32)
    return np.unique(np.minimum(group, groups - 1), return_inverse=True)[1].astype(np.int32)


def prune_by_likelihood(tree: Tree, nodes: Ints, buckets: Ints, judged: Ints, judged_buckets: Ints) -> Tree:
    """Remove the splits that do not raise the likelihood of rows of other subjects.

    Args:
        tree: a tree in preorder.
        nodes: the leaf node of every row that the tree was grown on.
        buckets: the bucket of each of them.
        judged: the leaf node of every row of the other subjects.
        judged_buckets: the bucket of each of them.
    """
    n_nodes, n_buckets = len(tree.left), int(max(buckets.max(initial=0), judged_buckets.max(initial=0))) + 1
    counts = _counts_below(tree, _count_cells(nodes, buckets, n_nodes, n_buckets))
    judged_counts = _counts_below(tree, _count_cells(judged, judged_buckets, n_nodes, n_buckets))
    inner = np.flatnonzero(tree.left >= 0)
    shares = np.empty_like(counts)
    shares[0] = (counts[0] + 1.0) / (counts[0].sum() + n_buckets)
    for node in inner:  # parents come before their children
        for child in (tree.left[node], tree.right[node]):
            shares[child] = (counts[child] + PRIOR * shares[node]) / (counts[child].sum() + PRIOR)
    own = (judged_counts * np.log(shares)).sum(axis=1)
    best, left, right = own.copy(), tree.left.copy(), tree.right.copy()
    for node in inner[::-1]:
        below = best[left[node]] + best[right[node]]
        if below > own[node]:
            best[node] = below
        else:
            left[node] = right[node] = LEAF
    return to_preorder(Tree(tree.feature, tree.threshold, left, right))[0]


def _count_cells(nodes: Ints, buckets: Ints, n_nodes: int, n_buckets: int) -> Floats:
    cells = nodes.astype(np.int64) * n_buckets + buckets
    return np.bincount(cells, minlength=n_nodes * n_buckets).reshape(n_nodes, n_buckets).astype(np.float64)


def _counts_below(tree: Tree, counts: Floats) -> Floats:
    """Add the counts of the leaves to all nodes above them."""
    for node in np.flatnonzero(tree.left >= 0)[::-1]:
        counts[node] = counts[tree.left[node]] + counts[tree.right[node]]
    return counts
