"""Learn several tables: ordinary models of the roots, chains of all tables below them, and what links refer by."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from arf_dask.data.checks import check_shape
from arf_dask.data.parts import one_part
from arf_dask.errors import DataError
from arf_dask.forest.fitted import Fitted
from arf_dask.options import Options
from arf_dask.relational.chain_learning import ChildRows, learn_chain
from arf_dask.relational.chains import Chain
from arf_dask.relational.families import TablesFitted, with_parents
from arf_dask.relational.graph import Reference, TableGraph
from arf_dask.relational.links import CLASS, FIXED, SELF, Link, learn_link, rows_referred_to
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner
from arf_dask.training.stages import fit_parts
from arf_dask.typing import Counts

logger = logging.getLogger(__name__)
SUBJECTS = 10  # default of the least number of roots per leaf of a chain
BLOCK_ROWS = 2**18  # rows of all tables in a block, on average
MOST_ROOTS = 2**16  # of a block
SAME_OWNER = 0.99  # least share of references inside one row of a table above both


def learn_tables(
    frames: Mapping[str, pl.DataFrame],
    graph: TableGraph,
    options: Mapping[str, Options],
    seed: int,
    runner: Runner,
    report: Progress,
) -> TablesFitted:
    """Learn the model of several tables.

    Args:
        frames: the tables.
        graph: how they hang together.
        options: the options of every table.
        seed: the seed of the fit.
        runner: runs the tasks of the models of roots.
        report: receives progress updates.
    """
    for name, frame in frames.items():
        if not frame.height and name not in graph.fixed:
            raise DataError(f"table {name!r} has no rows. Leave it out, or name it in fixed=.")
        check_shape(dict(frame.schema), max(frame.height, 1))
    tables = _Tables(frames, graph)
    roots: dict[str, Fitted] = {}
    chains: dict[str, Chain] = {}
    for name in graph.tables:
        if name in graph.fixed:
            continue
        named = _with_own(options[name], tables, name)
        if name in graph.context:
            rows = tables.child_rows(name)
            least = named.min_leaf if named.min_leaf is not None else SUBJECTS
            chains[name] = learn_chain(rows, named, least, seed, report)
        else:
            roots[name] = fit_parts(one_part(tables.own[name]), named, seed, runner, report)
    sizes = {name: frame.height for name, frame in frames.items()}
    return TablesFitted(
        graph,
        {name: dict(frame.schema) for name, frame in frames.items()},
        roots,
        chains,
        {name: frames[name] for name in graph.fixed},
        tables.counts,
        tuple(tables.links),
        sizes,
        {root: _block_roots(graph, sizes, root) for root in graph.roots},
        {"seed": seed},
    )


def _with_own(options: Options, tables: _Tables, name: str) -> Options:
    """Return the options of a table, with the kinds of the columns that were added to it."""
    kinds = {column: kind for column, kind in tables.kinds[name].items() if column not in options.columns}
    keys = [key for key in tables.keys_of(name) if key not in options.keys]
    return replace(options, columns={**options.columns, **kinds}, keys=[*options.keys, *keys])


def _block_roots(graph: TableGraph, sizes: Mapping[str, int], root: str) -> int:
    """Return the number of roots per block: a power of two, by the rows of a family."""
    rows_per_root = sum(sizes[name] for name in graph.family(root)) / sizes[root]
    return int(2 ** np.clip(np.floor(np.log2(max(BLOCK_ROWS / rows_per_root, 1))), 0, np.log2(MOST_ROOTS)))


class _Tables:
    """The tables as they are modelled: without references, with numbers of children and groups of links."""

    def __init__(self, frames: Mapping[str, pl.DataFrame], graph: TableGraph) -> None:
        self.frames, self.graph = frames, graph
        self.links = [make_link(frames, graph, reference) for reference in graph.links]
        self.counts: dict[str, str] = {}
        self.parent: dict[str, Counts] = {}
        references = {name: [one.column for one in graph.references_of(name)] for name in frames}
        self.own = {name: frame.drop(references[name]) for name, frame in frames.items()}
        for name in graph.context:
            if not self.own[name].width:  # rows that only refer to others are modelled by a constant
                self.own[name] = pl.DataFrame({"row": np.ones(frames[name].height, dtype=np.int8)})
        self.kinds: dict[str, dict[str, str]] = {name: {} for name in frames}
        for name, reference in graph.context.items():
            self._add_counts(name, reference)
        for link in self.links:
            self._add_link(link)
        self.known: dict[str, pl.DataFrame] = {}
        self.root: dict[str, Counts] = {}

    def keys_of(self, name: str) -> list[str]:
        """Return the declared key of a table."""
        return [self.graph.keys[name]] if name in self.graph.keys else []

    def _add(self, name: str, series: pl.Series, kind: str) -> None:
        if series.name in self.frames[name].columns and kind != "categorical":
            raise DataError(f"table {name!r}: rename the column {series.name!r}, a name that fit_tables needs itself.")
        self.own[name] = self.own[name].with_columns(series)
        if series.null_count() < len(series):
            self.kinds[name][series.name] = kind

    def _add_counts(self, name: str, reference: Reference) -> None:
        """Add the number of rows of a table to the rows that they belong to."""
        keys = self.frames[reference.parent].get_column(self.graph.keys[reference.parent])
        self.parent[name] = rows_referred_to(self.frames[name].get_column(reference.column), keys)
        self.counts[name] = f"rows of {name}"
        counts = np.bincount(self.parent[name], minlength=len(keys))
        self._add(reference.parent, pl.Series(self.counts[name], counts), "numeric")

    def _add_link(self, link: Link) -> None:
        """Replace a reference by the columns that it is drawn by."""
        table, parent = link.reference.table, link.reference.parent
        values = self.frames[table].get_column(link.reference.column)
        if link.kind == FIXED:
            self._add(table, values, "categorical")
            return
        target = rows_referred_to(values, self.frames[parent].get_column(self.graph.keys[parent]))
        key = self.keys_of(parent)
        learned = learn_link(link, self.own[table], self.own[parent].drop(key), target)
        popularity, group = learned.referred
        self._add(parent, popularity, "numeric")
        self._add(parent, group, "numeric" if link.kind == SELF else "categorical")
        if link.kind == CLASS:
            self._add(table, learned.referring, "categorical")

    def child_rows(self, name: str) -> ChildRows:
        """Return the rows of a table sorted by parent and then by time, with what is known of their parents."""
        reference = self.graph.context[name]
        order = self.graph.order.get(name)
        parent, above = self.parent[name], reference.parent
        frame = self.own[name].with_columns(pl.Series("^", parent), pl.Series("^^", np.arange(len(parent))))
        place = frame.sort(["^", *([] if order is None else [order]), "^^"])["^^"]
        known, rows = self._known(above), parent[place.to_numpy()]
        own = self.own[name][place]
        self.own[name], self.parent[name] = own, rows
        self.root[name] = self._root(above)[rows]
        self.known[name] = with_parents(own, known, rows, above)
        keyless = known.drop(self.keys_of(above))
        base = None if order is None else _base(own.get_column(order), known, rows)
        return ChildRows(own, rows, self.root[name], keyless, order, base)

    def _known(self, name: str) -> pl.DataFrame:
        return self.known.get(name, self.own[name])

    def _root(self, name: str) -> Counts:
        return self.root.get(name, np.arange(self.own[name].height))


def _base(time: pl.Series, known: pl.DataFrame, parent: Counts) -> str | None:
    """Return the parent's date that no row comes before, the latest of several; None if there is none."""
    index, nearest, found = pl.Series(parent), None, None
    for series in known:
        is_day = series.dtype == pl.Date and time.dtype == pl.Datetime and getattr(time.dtype, "time_zone", "") is None
        if not (is_day or (series.dtype == time.dtype and series.dtype.is_temporal())) or series.null_count():
            continue
        distance = (time - series.gather(index).cast(time.dtype)).to_physical()
        least, mean = distance.min(), distance.mean()
        if least is not None and least >= 0 and (nearest is None or mean < nearest):  # type: ignore[operator]
            nearest, found = mean, series.name
    return found


def make_link(frames: Mapping[str, pl.DataFrame], graph: TableGraph, reference: Reference) -> Link:
    """Return how a reference that is no context is drawn."""
    if reference.parent in graph.fixed:
        return Link(reference, FIXED)
    if reference.parent == reference.table:
        return Link(reference, SELF)
    return Link(reference, CLASS, _common_table(frames, graph, reference), _are_distinct(frames, graph, reference))


def _are_distinct(frames: Mapping[str, pl.DataFrame], graph: TableGraph, reference: Reference) -> bool:
    """Return whether the rows of one parent all refer to different rows, as those of a table of pairs do."""
    if reference.table not in graph.context:
        return False
    pairs = frames[reference.table][[graph.context[reference.table].column, reference.column]].drop_nulls()
    return not bool(pairs.is_duplicated().any())


def _common_table(frames: Mapping[str, pl.DataFrame], graph: TableGraph, reference: Reference) -> str | None:
    """Return the lowest table above both ends of a reference within one row of which references stay."""
    table, parent = reference.table, reference.parent
    shared = [name for name in [*graph.ancestors(table), table] if name in [*graph.ancestors(parent), parent]]
    shared = [name for name in shared if name not in (table, parent)]
    target = rows_referred_to(frames[table].get_column(reference.column), frames[parent].get_column(graph.keys[parent]))
    is_known = target >= 0
    for name in reversed(shared):
        one, other = (_owners(frames, graph, end, name) for end in (table, parent))
        is_same = one[is_known] == other[target[is_known]]
        if len(is_same) and is_same.mean() >= SAME_OWNER:
            return name
    return None


def _owners(frames: Mapping[str, pl.DataFrame], graph: TableGraph, table: str, above: str) -> Counts:
    rows = np.arange(frames[table].height)
    while table != above:
        reference = graph.context[table]
        keys = frames[reference.parent].get_column(graph.keys[reference.parent])
        rows = rows_referred_to(frames[table].get_column(reference.column), keys)[rows]
        table = reference.parent
    return rows
