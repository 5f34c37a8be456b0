"""The model of several tables, and drawing of families: a fixed number of roots with all of their descendants.

A family block is a pure function of the model, the numbers of rows asked for, the seed and the number of the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.forest.fitted import Fitted
from arf_dask.inference.forge import Sampler
from arf_dask.inference.row_plan import plan_rows
from arf_dask.relational.chain_drawing import KeyDraw, draw_children
from arf_dask.relational.chains import Chain
from arf_dask.relational.graph import TableGraph
from arf_dask.relational.links import CLASS, FIXED, SELF, Candidates, Link, choose
from arf_dask.runtime.once import OncePerProcess
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.columns import number_keys
from arf_dask.typing import Counts, Floats, OnImpossible

REPEATS = 50  # times that a reference is chosen again within its class if a sibling has it


@dataclass(frozen=True, eq=False)
class TablesFitted:
    """A fitted model of several tables."""

    graph: TableGraph
    dtypes: Mapping[str, Mapping[str, pl.DataType]]  # the columns of every table
    roots: Mapping[str, Fitted]
    chains: Mapping[str, Chain]
    fixed: Mapping[str, pl.DataFrame]
    counts: Mapping[str, str]  # per child table, the column of its parent that holds the number of its rows
    links: tuple[Link, ...]
    rows: Mapping[str, int]  # of the training data
    block_roots: Mapping[str, int]  # per root, the number of its rows in a block
    options: Mapping[str, Any]
    built: OncePerProcess = field(default_factory=OncePerProcess, repr=False)

    def links_of(self, table: str) -> list[Link]:
        """Return the links of a table."""
        return [link for link in self.links if link.reference.table == table]

    def links_to(self, table: str) -> list[Link]:
        """Return the links to a table, by rows of any table."""
        return [link for link in self.links if link.reference.parent == table and link.kind != FIXED]


class Job(NamedTuple):
    """What determines the rows that are drawn, apart from the model."""

    sizes: Mapping[str, int]  # rows of every root
    given: Mapping[str, Any]  # conditions on roots
    on_impossible: OnImpossible
    seed: int


class Family(NamedTuple):
    """The rows of one block: a table per name, with modelled columns in addition to its own."""

    own: dict[str, pl.DataFrame]  # the columns that are modelled, and keys
    known: dict[str, pl.DataFrame]  # these and the columns of all tables above
    parent: dict[str, Counts]  # per row of a child, the number of its parent in the block


def n_blocks(fitted: TablesFitted, job: Job, root: str) -> int:
    """Return the number of blocks of a root."""
    return -(-job.sizes[root] // fitted.block_roots[root])


def draw_family(
    fitted: TablesFitted, job: Job, root: str, block: int, first_rows: Mapping[str, int], wanted: set[str]
) -> Family:
    """Draw the families of one block.

    Args:
        fitted: the model.
        job: what is drawn.
        root: the root.
        block: the number of the block.
        first_rows: per table, the number of rows in earlier blocks, by which keys are numbered.
        wanted: the tables that are drawn, and all that they need.
    """
    graph = fitted.graph
    family = Family({}, {}, {})
    own = _draw_roots(fitted, job, root, block)
    family.own[root] = family.known[root] = own
    for table in graph.family(root)[1:]:
        if table not in wanted:
            continue
        reference = graph.context[table]
        above = family.known[reference.parent]
        counts = above.get_column(fitted.counts[table]).cast(pl.Int64).to_numpy()
        place = graph.tables.index(table)
        rng = generator(job.seed, Stage.CHAIN, place, block)
        keys = KeyDraw(job.seed, first_rows.get(table, 0), generator(job.seed, Stage.CHAIN, place, block, 1))
        drawn = draw_children(fitted.chains[table], above, counts, rng, keys)
        family.own[table], family.parent[table] = drawn
        family.known[table] = with_parents(drawn.frame, above, drawn.parent, reference.parent)
    return family


def with_parents(own: pl.DataFrame, known: pl.DataFrame, parent: Counts, table: str) -> pl.DataFrame:
    """Return rows with what is known of their parents: their columns, and those of the tables above."""
    above = known[pl.Series(parent)] if len(parent) else known.clear()
    return own.with_columns([series.alias(above_name(table, series.name)) for series in above])


def above_name(table: str, column: str) -> str:
    """Return the name that a column of a parent has among the columns that are known of a row."""
    return column if column.startswith("^") else f"^{table}.{column}"


def _draw_roots(fitted: TablesFitted, job: Job, root: str, block: int) -> pl.DataFrame:
    first = block * fitted.block_roots[root]
    n = min(fitted.block_roots[root], job.sizes[root] - first)
    sampler: Sampler = fitted.built.get(("sampler", root), lambda: Sampler(fitted.roots[root]))
    numbered = sampler.with_schema(number_keys(sampler.fitted.schema, first))
    place = fitted.graph.tables.index(root)
    seed = int(generator(job.seed, Stage.FAMILY, place, block).integers(2**62))
    plan = plan_rows(numbered, n, job.given.get(root), job.on_impossible, seed)
    frames = list(plan.read(0, plan.rows))
    return pl.concat(frames) if frames else pl.DataFrame(schema=sampler.fitted.dtypes)


def needed_tables(fitted: TablesFitted, table: str) -> set[str]:
    """Return the tables of a family that must be drawn to draw one of them."""
    needed = {table, *fitted.graph.ancestors(table)}
    for link in fitted.links_of(table):
        parent = link.reference.parent
        if link.kind == CLASS and fitted.graph.root_of(parent) == fitted.graph.root_of(table):
            needed |= {parent, *fitted.graph.ancestors(parent)}
    return needed


def finish_table(
    fitted: TablesFitted, job: Job, family: Family, table: str, block: int, directories: Mapping[str, pl.DataFrame]
) -> pl.DataFrame:
    """Return the rows of one table of a block with the columns of the training data.

    Args:
        fitted: the model.
        job: what is drawn.
        family: the drawn rows.
        table: the table.
        block: the number of the block.
        directories: per table of other families that rows refer to, its keys and groups.
    """
    graph, columns = fitted.graph, {series.name: series for series in family.own[table]}
    if table in graph.context:
        reference = graph.context[table]
        keys = family.own[reference.parent].get_column(graph.keys[reference.parent])
        columns[reference.column] = keys.gather(pl.Series(family.parent[table]))
    for number, link in enumerate(fitted.links):
        if link.reference.table == table and link.kind != FIXED:
            rng = generator(job.seed, Stage.CHAIN, graph.tables.index(table), block, 2, number)
            columns[link.reference.column] = _drawn_reference(fitted, family, link, directories, rng)
    return pl.DataFrame([columns[name].cast(dtype).alias(name) for name, dtype in fitted.dtypes[table].items()])


def _drawn_reference(
    fitted: TablesFitted, family: Family, link: Link, directories: Mapping[str, pl.DataFrame], rng: np.random.Generator
) -> pl.Series:
    """Return the keys of the rows that the rows of a table refer to."""
    table, parent = link.reference.table, link.reference.parent
    rows = family.own[table]
    referred = family.own.get(parent)
    if referred is None:
        referred = directories[parent]
    weight: Floats = referred.get_column(link.popularity).cast(pl.Float64).fill_null(0.0).to_numpy()
    wanted_groups, groups = (
        rows.get_column(link.group if link.kind == SELF else link.drawn),
        referred.get_column(link.group),
    )
    keys = referred.get_column(fitted.graph.keys[parent])
    if link.kind == SELF:
        chosen = _choose_above(wanted_groups.to_numpy(), weight, rng)
    else:
        levels = pl.concat([groups, wanted_groups.alias(groups.name)]).drop_nulls().unique(maintain_order=True)
        dense = pl.Enum(levels.cast(pl.String))
        own = groups.cast(pl.String).cast(dense).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
        wanted = wanted_groups.cast(pl.String).cast(dense).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
        candidates = Candidates(own, weight)
        chosen = _choose_class(fitted, family, link, candidates, wanted, np.arange(len(wanted)), rng)
        if link.distinct:
            chosen = _without_repeats(fitted, family, link, candidates, wanted, chosen, rng)
    index = pl.Series(chosen).set(pl.Series(chosen < 0), None)
    return keys.gather(index) if len(keys) else keys.clear(len(index))


def _without_repeats(
    fitted: TablesFitted,
    family: Family,
    link: Link,
    candidates: Candidates,
    wanted: Counts,
    chosen: Counts,
    rng: np.random.Generator,
) -> Counts:
    """Choose again where a row of the same parent refers to the same row already: of its class, then of any class."""
    parent, chosen = family.parent[link.reference.table], chosen.copy()
    everywhere = candidates._replace(group=np.zeros_like(candidates.group))
    for attempt in range(2 * REPEATS):
        pairs = parent * (len(candidates.group) + 1) + chosen
        repeated = np.ones(len(pairs), dtype=bool)
        repeated[np.unique(pairs, return_index=True)[1]] = False
        rows = np.flatnonzero(repeated & (chosen >= 0))
        if not len(rows):
            break
        if attempt < REPEATS:
            chosen[rows] = _choose_class(fitted, family, link, candidates, wanted, rows, rng)
        else:
            any_class = np.where(wanted >= 0, 0, wanted)
            chosen[rows] = _choose_class(fitted, family, link, everywhere, any_class, rows, rng)
    return chosen


def _choose_class(
    fitted: TablesFitted,
    family: Family,
    link: Link,
    candidates: Candidates,
    wanted: Counts,
    rows: Counts,
    rng: np.random.Generator,
) -> Counts:
    """Choose a row of the wanted class, else any row; within the same row of the common table, where there is one."""
    everywhere = Candidates(np.zeros_like(candidates.group), candidates.weight)
    attempts = [(wanted, candidates), (np.zeros_like(wanted), everywhere)]
    if link.common is not None:
        place = owner_rows(fitted.graph, family, link.reference.table, link.common)
        owner = owner_rows(fitted.graph, family, link.reference.parent, link.common)
        n_groups = int(max(candidates.group.max(initial=0), wanted.max(initial=0))) + 1
        inside = place * n_groups + wanted, Candidates(owner * n_groups + candidates.group, candidates.weight)
        attempts = [inside, (place, Candidates(owner, candidates.weight)), *attempts]
    chosen = np.full(len(rows), -1, dtype=np.int64)
    for groups, among in attempts:
        left = np.flatnonzero((chosen < 0) & (wanted[rows] >= 0))
        if len(left):
            chosen[left] = choose(groups[rows[left]], among, rng)
    return chosen


def _choose_above(depth: Counts, weight: Floats, rng: np.random.Generator) -> Counts:
    """Choose a row of the next smaller depth for every row of a hierarchy; rows of depth 0 have none."""
    levels = np.unique(depth)
    below = np.searchsorted(levels, depth)
    wanted = np.where(below > 0, below - 1, -1)
    return choose(wanted, Candidates(below.astype(np.int64), weight), rng)


def owner_rows(graph: TableGraph, family: Family, table: str, above: str) -> Counts:
    """Return, per row of a table, the number of the row of a table above that it belongs to."""
    rows = np.arange(family.own[table].height)
    while table != above:
        rows = family.parent[table][rows] if len(rows) else rows
        table = graph.context[table].parent
    return rows
