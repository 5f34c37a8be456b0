"""Plans of several tables: which blocks there are, where the rows of each begin, and the rows of a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.errors import OptionError
from arf_dask.relational.families import (
    Family,
    Job,
    TablesFitted,
    draw_family,
    finish_table,
    n_blocks,
    needed_tables,
)
from arf_dask.relational.links import CLASS
from arf_dask.runtime.once import OncePerProcess
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner, Threads
from arf_dask.typing import OnImpossible


class _Work(NamedTuple):
    """One block of the families of a root."""

    root: str
    block: int


@dataclass(frozen=True, eq=False)
class TablesPlan:
    """A plan to draw several tables. Every block is a pure function of it; it can be sent to other processes."""

    fitted: TablesFitted
    job: Job
    first_rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # per table and block; last: all rows
    built: OncePerProcess = field(default_factory=OncePerProcess, repr=False)

    def work(self, roots: Sequence[str] | None = None) -> Iterator[_Work]:
        """Yield the blocks of all roots, or of some."""
        for root in self.fitted.graph.roots if roots is None else roots:
            for block in range(n_blocks(self.fitted, self.job, root)):
                yield _Work(root, block)

    def family(self, root: str, block: int, tables: set[str]) -> Family:
        """Draw tables of one block, and all that they need."""
        first = {name: starts[block] for name, starts in self.first_rows.items() if block < len(starts)}
        needed = set().union(*(needed_tables(self.fitted, name) for name in tables))
        return draw_family(self.fitted, self.job, root, block, first, needed)

    def draw(self, root: str, block: int, tables: Sequence[str]) -> dict[str, pl.DataFrame]:
        """Return rows of one block with the columns of the training data, by table."""
        family = self.family(root, block, set(tables))
        elsewhere = {parent for table in tables for parent in self._elsewhere(table)}
        directories = {parent: self.directory(parent) for parent in sorted(elsewhere)}
        return {table: finish_table(self.fitted, self.job, family, table, block, directories) for table in tables}

    def _elsewhere(self, table: str) -> list[str]:
        """Return the tables of other families whose rows a table refers to."""
        graph = self.fitted.graph
        parents = [link.reference.parent for link in self.fitted.links_of(table) if link.kind == CLASS]
        return [parent for parent in parents if graph.root_of(parent) != graph.root_of(table)]

    def directory(self, table: str) -> pl.DataFrame:
        """Return the keys of all rows of a table, and the columns by which links choose among them."""
        directory: pl.DataFrame = self.built.get(("directory", table), lambda: self._make_directory(table))
        return directory

    def _make_directory(self, table: str) -> pl.DataFrame:
        fitted = self.fitted
        links = [link for link in fitted.links_to(table) if link.kind == CLASS]
        names = [fitted.graph.keys[table], *(name for link in links for name in (link.popularity, link.group))]
        root = fitted.graph.root_of(table)
        frames = [self.family(root, block, {table}).own[table].select(names) for _, block in self.work([root])]
        return pl.concat(frames)


def plan_tables(
    fitted: TablesFitted,
    n: int | Mapping[str, int] | None,
    given: Mapping[str, Any] | None,
    on_impossible: OnImpossible,
    seed: int,
    runner: Runner,
    *,
    needs_rows: bool = False,
) -> TablesPlan:
    """Plan the rows of all tables.

    Args:
        fitted: the model.
        n: the rows of the main root, of several roots, or as many as in the training data.
        given: conditions on roots.
        on_impossible: what to do with impossible ones.
        seed: the seed of the rows.
        runner: counts the rows of blocks.
        needs_rows: whether the number of rows of every block has to be known even if no key depends on it.
    """
    conditions = _read_given(fitted, given)
    plan = TablesPlan(fitted, Job(root_sizes(fitted, n), conditions, on_impossible, seed))
    first_rows: dict[str, tuple[int, ...]] = {}
    for root in fitted.graph.roots:
        blocks = range(n_blocks(fitted, plan.job, root))
        below = fitted.graph.family(root)[1:]
        if len(blocks) < 2 and not needs_rows:
            continue
        sizes = list(runner.map(_count_block, plan, [_Work(root, block) for block in blocks])) if below else []
        for number, name in enumerate(below):
            first_rows[name] = tuple(np.cumsum([0, *(rows[number] for rows in sizes)]).tolist())
        first_rows[root] = tuple(
            min(block * fitted.block_roots[root], plan.job.sizes[root]) for block in range(len(blocks) + 1)
        )
    return TablesPlan(fitted, plan.job, first_rows)


def _count_block(plan: TablesPlan, work: _Work) -> list[int]:
    """Return the number of rows of every table below the root in one block."""
    graph, fitted = plan.fitted.graph, plan.fitted
    below = graph.family(work.root)[1:]
    parents = {graph.context[name].parent for name in below}
    family = draw_family(fitted, plan.job, work.root, work.block, {}, parents | {work.root})
    return [int(family.own[graph.context[name].parent].get_column(fitted.counts[name]).sum()) for name in below]


def main_root(fitted: TablesFitted) -> str:
    """Return the root whose number of rows the caller gives: the first one with rows below it, or the first one."""
    roots = fitted.graph.roots
    return next((root for root in roots if fitted.graph.children(root)), roots[0])


def root_sizes(fitted: TablesFitted, n: int | Mapping[str, int] | None) -> dict[str, int]:
    """Return the number of rows of every root: other roots grow in proportion to the main one."""
    graph, trained = fitted.graph, fitted.rows
    if n is None:
        return {root: trained[root] for root in graph.roots}
    if isinstance(n, Mapping):
        for name, rows in n.items():
            if name not in graph.roots:
                raise OptionError(f"n: {name!r} is not a root. Give rows for {', '.join(map(repr, graph.roots))}.")
            _check_count(f"n[{name!r}]", rows)
        return {root: int(n.get(root, trained[root])) for root in graph.roots}
    _check_count("n", n)
    main = main_root(fitted)
    scale = n / trained[main]
    return {root: int(n) if root == main else max(1, round(trained[root] * scale)) for root in graph.roots}


def _check_count(where: str, rows: object) -> None:
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise OptionError(f"{where}={rows!r}: give the number of rows to draw, a whole number of at least 0.")


def _read_given(fitted: TablesFitted, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return conditions per root."""
    if given is None:
        return {}
    roots = fitted.graph.roots
    if not isinstance(given, Mapping):
        raise OptionError(f"given={given!r}: give a condition per root, such as {{{roots[0]!r}: {{column: value}}}}.")
    for name, condition in given.items():
        if name not in roots:
            raise OptionError(f"given: {name!r} is not a root. Conditions are for {', '.join(map(repr, roots))}.")
        if not isinstance(condition, Mapping | list | tuple):
            raise OptionError(f"given[{name!r}]={condition!r}: give a dict of columns and values.")
    return dict(given)


def collect_tables(plan: TablesPlan, report: Progress) -> dict[str, pl.DataFrame]:
    """Draw all tables into memory."""
    fitted = plan.fitted
    frames: dict[str, list[pl.DataFrame]] = {name: [pl.DataFrame(schema=fitted.dtypes[name])] for name in fitted.dtypes}
    for drawn in Threads().map(_draw_block, plan, plan.work()):
        for name, frame in drawn.items():
            frames[name].append(frame)
        report.advance()
    tables = {name: pl.concat(parts) for name, parts in frames.items()}
    return tables | dict(fitted.fixed)


def _draw_block(plan: TablesPlan, work: _Work) -> dict[str, pl.DataFrame]:
    return plan.draw(work.root, work.block, plan.fitted.graph.family(work.root))
