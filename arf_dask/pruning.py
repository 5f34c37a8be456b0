"""Pruning a forest by rows that do not fit into memory.

Only rows of leaves that are too small ever move to another leaf. So one pass counts the rows of every leaf, and a
second one fetches those of the small leaves, at most `min_leaf` - 1 of each; all others need only be counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.encode import Codes, encode_codes, match_frame
from arf_dask.forest import Router, Tree, leaf_nodes, make_router, prune, route_leaves
from arf_dask.parts import Group, Parts, group_parts, load_each
from arf_dask.profile import check_frame
from arf_dask.progress import Progress
from arf_dask.schema import Schema
from arf_dask.tasks import Runner

Counts = NDArray[np.int64]


class Few(NamedTuple):
    """The rows of the small leaves of one tree."""

    codes: Codes
    leaf: Counts


class _Routing(NamedTuple):
    """What every task needs to know."""

    schema: Schema
    routers: list[Router]
    small: list[NDArray[np.bool_]]  # per tree: which leaves are too small; none while they are counted


def prune_by_parts(
    parts: Parts, schema: Schema, trees: Sequence[Tree], min_leaf: int, runner: Runner, report: Progress
) -> list[Tree]:
    """The trees without leaves of fewer than `min_leaf` of these rows."""
    match_frame(pl.DataFrame(schema=parts.dtypes), schema)
    groups = group_parts(parts)
    report.stage("rows to their leaves", 2 * len(groups))
    n_codes = np.array([variable.n_codes for variable in schema.variables], dtype=np.int32)
    routing = _Routing(schema, [make_router(tree, n_codes) for tree in trees], [])
    counts = runner.reduce(count_rows, routing, groups, add_counts, report.advance)
    routing = routing._replace(small=[rows < min_leaf for rows in counts])
    few = runner.reduce(fetch_rows, routing, groups, join_rows, report.advance)
    return [_prune(*each, min_leaf) for each in zip(trees, counts, few, strict=True)]


def count_rows(routing: _Routing, group: Group) -> list[Counts]:
    """Per tree: the rows of every leaf in some parts."""
    counted = (
        [np.bincount(route_leaves(router, codes), minlength=router.n_leaves) for router in routing.routers]
        for codes in _codes(routing.schema, group)
    )
    return reduce(add_counts, counted)


def add_counts(one: list[Counts], other: list[Counts]) -> list[Counts]:
    """The rows of both."""
    return [a + b for a, b in zip(one, other, strict=True)]


def fetch_rows(routing: _Routing, group: Group) -> list[Few]:
    """Per tree: the rows of small leaves in some parts."""
    fetched = []
    for codes in _codes(routing.schema, group):
        found = []
        for router, small in zip(routing.routers, routing.small, strict=True):
            leaf = route_leaves(router, codes)
            some = np.flatnonzero(small[leaf])
            found.append(Few(codes[some], leaf[some]))
        fetched.append(found)
    return reduce(join_rows, fetched)


def join_rows(one: list[Few], other: list[Few]) -> list[Few]:
    """The rows of both, in order."""
    pairs = zip(one, other, strict=True)
    return [Few(np.concatenate([a.codes, b.codes]), np.concatenate([a.leaf, b.leaf])) for a, b in pairs]


def _codes(schema: Schema, group: Group) -> Iterator[Codes]:
    for frame in load_each(group[1], schema.names):
        check_frame(frame)
        yield np.ascontiguousarray(encode_codes(frame, schema))


def _prune(tree: Tree, counts: Counts, few: Few, min_leaf: int) -> Tree:
    nodes, held = leaf_nodes(tree), np.zeros(len(tree.left), dtype=np.int64)
    held[nodes] = np.where(counts < min_leaf, 0, counts)
    return prune(tree, nodes[few.leaf], few.codes, min_leaf, held)[0]
