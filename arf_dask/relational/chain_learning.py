"""Learn a chain: the columns that are drawn, the history of every row, the trees, and their leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.parts import one_part
from arf_dask.forest.fitted import Fitted
from arf_dask.forest.leaf_fitting import fit_leaves
from arf_dask.forest.leaf_sums import sum_leaves
from arf_dask.forest.tables import LeafTables, Round
from arf_dask.options import Options
from arf_dask.relational.chain_trees import Step, chain_rows, grow_step
from arf_dask.relational.chains import Chain, flag_name, time_names
from arf_dask.relational.histories import (
    AT,
    FIRST_TIME,
    GAP,
    NEXT,
    History,
    HistoryShape,
    histories_of,
    history_columns,
    parent_columns,
    physical,
    repeats_previous,
    shifted,
    time_columns,
    whole,
)
from arf_dask.rules.learning import learn_relations
from arf_dask.rules.relations import Relations
from arf_dask.runtime.once import OncePerProcess
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.runtime.tasks import Threads
from arf_dask.schema.columns import Schema, Variable
from arf_dask.schema.encoding import encode_codes
from arf_dask.schema.learning import infer_schema
from arf_dask.typing import Counts

MANY_LEVELS = 8  # variables with more states may repeat the previous row
GROWN_ROWS = 60_000  # rows of whole subjects that trees are grown on
MOSTLY_DISTINCT = 0.5  # texts of parents with more distinct values than this share of the rows say nothing


class ChildRows(NamedTuple):
    """The rows of a table with a parent, sorted by parent and then by time."""

    frame: pl.DataFrame  # without references
    parent: Counts  # per row, the number of its parent, ascending
    subjects: Counts  # per row, the number of its root
    parents: pl.DataFrame  # what is known of parents; one row each
    order: str | None
    base: str | None


def learn_chain(rows: ChildRows, options: Options, min_subjects: int, seed: int, report: Progress) -> Chain:
    """Learn the model of the rows of a table, given their parents.

    Args:
        rows: the rows.
        options: the options of `fit`.
        min_subjects: minimum number of roots per leaf.
        seed: the seed of the fit.
        report: receives progress updates.
    """
    relations = _learn_relations(rows, options, report)
    modelled = relations.forward(rows.frame)
    time = None if rows.order is None else modelled.get_column(rows.order)
    drawn = _timed(modelled, rows, time)
    own_schema = infer_schema(
        drawn,
        kinds={**options.columns, **_forced_kinds(drawn)},
        keys=[key for key in options.keys if key in drawn.columns],
        bundles=options.bundles,
        together=relations.together,
        separate=[*relations.separate, *time_names(rows.order)],
    )
    shape = _history_shape(own_schema, time, rows.order)
    siblings = np.bincount(rows.parent, minlength=rows.parents.height)[rows.parent]
    history = histories_of(shape, drawn, rows.parent, siblings, time)
    flags = _repeat_flags(drawn, own_schema, history)
    context = _context_columns(rows, shape, history, time)
    schema = joined_schema(
        [own_schema, *(_context_schema(frame) for frame in (flags, context) if frame.width)], rows.frame.height
    )
    frame = pl.concat([one for one in (drawn, flags, context) if one.width], how="horizontal")
    steps = chain_steps(schema, len(own_schema.variables), flags.columns)
    fitted = _fit_forest(frame, schema, steps, rows.subjects, min_subjects, options, seed, report)
    repeats = tuple((flag, flag.removeprefix("same:")) for flag in flags.columns)
    parents = tuple(name.removeprefix("parent:") for name in context.columns if name.startswith("parent:"))
    order_of_steps = tuple(step.variable for step in steps)
    return Chain(fitted, relations, shape, order_of_steps, repeats, parents, rows.base, OncePerProcess())


def _learn_relations(rows: ChildRows, options: Options, report: Progress) -> Relations:
    fixed = {*options.columns, *options.bundled(), *([] if rows.order is None else [rows.order])}
    relations = _relations_without(fixed, rows, options, report)
    loose = _loosely_ordered(relations)
    return _relations_without(fixed | loose, rows, options, report) if loose else relations


def _loosely_ordered(relations: Relations) -> set[str]:
    """Return the columns that are modelled by a gap because of an order that some rows break.

    Trees of a chain see both columns anyway; a gap below zero in some rows only blurs them.
    """
    orders = [rule for rule in relations.rules if rule.kind == "order"]
    exact = {name for rule in orders if rule.exact for name in rule.columns[1:]}
    loose = {name for rule in orders if not rule.exact for name in rule.columns}
    return (loose - exact) & set(relations.targets)


def _relations_without(fixed: set[str], rows: ChildRows, options: Options, report: Progress) -> Relations:
    return learn_relations(
        one_part(rows.frame),
        rules=options.rules,
        find=options.find_rules,
        strict=options.strict_rules,
        keys=options.all_keys(),
        fixed=fixed,
        runner=Threads(1),
        report=report,
    )


def _timed(modelled: pl.DataFrame, rows: ChildRows, time: pl.Series | None) -> pl.DataFrame:
    """Replace the time of rows by the first time of a parent and the gaps after it, which are drawn first."""
    if time is None:
        return modelled
    is_first = pl.Series(np.diff(rows.parent, prepend=-1) > 0)
    before = shifted(time.to_frame(), is_first).to_series()
    gap = (whole(time) - whole(before)).alias(GAP)
    first = time
    if rows.base is not None:
        base = rows.parents.get_column(rows.base).gather(pl.Series(rows.parent))
        first = whole(time) - whole(base.cast(time.dtype))
    first = first.zip_with(is_first, first.clear(len(first))).alias(FIRST_TIME)
    return pl.DataFrame([first, gap, *(one for one in modelled.get_columns() if one.name != rows.order)])


def _forced_kinds(drawn: pl.DataFrame) -> dict[str, str]:
    return {name: "numeric" for name in (FIRST_TIME, GAP) if name in drawn.columns and drawn[name].drop_nulls().len()}


def _history_shape(schema: Schema, time: pl.Series | None, order: str | None) -> HistoryShape:
    modelled = [column for column in schema.columns if column.kind in ("categorical", "numeric")]
    previous = tuple(column.name for column in modelled if column.name not in (FIRST_TIME,))
    running = tuple(
        column.name
        for column in modelled
        if column.kind == "numeric" and column.name not in (FIRST_TIME,) and not column.dtype.is_temporal()
    )
    last_time = None if time is None else float(physical(time).max())  # type: ignore[arg-type]
    return HistoryShape(previous, running, order, last_time)


def _repeat_flags(drawn: pl.DataFrame, schema: Schema, history: History) -> pl.DataFrame:
    """Return flags of the variables with many levels: 1 where a row has the value of the previous sibling."""
    flags = {}
    is_next = pl.Series(history.position > 0)
    for variable in schema.variables:
        names = [column.name for column in schema.member_columns(variable)]
        is_number = len(names) == 1 and schema.lead_column(variable).kind == "numeric"
        if variable.is_line or is_number or variable.n_states <= MANY_LEVELS:
            continue
        is_same = repeats_previous(drawn.to_dict(), history.previous.to_dict(), names) & is_next
        if is_same.any():
            flags[flag_name(names[0])] = is_same.cast(pl.Int8)
    return pl.DataFrame(flags)


def _context_columns(rows: ChildRows, shape: HistoryShape, history: History, time: pl.Series | None) -> pl.DataFrame:
    """Return the columns that trees split on: of the parent, of the history, and of the time of the row itself."""
    parents = parent_columns(
        rows.parents, [name for name in rows.parents.columns if _says_something(rows.parents, name)]
    )
    index = pl.Series(rows.parent)
    columns = {name: series.gather(index) for name, series in parents.items()}
    columns |= history_columns(shape, history)
    if time is not None:
        columns |= time_columns(AT, time)
    return pl.DataFrame([series.alias(name) for name, series in columns.items()])


def _says_something(frame: pl.DataFrame, name: str) -> bool:
    series = frame.get_column(name)
    if series.dtype.is_numeric() or series.dtype.is_temporal() or series.dtype == pl.Boolean:
        return series.null_count() < len(series)
    return 1 <= series.drop_nulls().n_unique() <= MOSTLY_DISTINCT * len(series)


def _context_schema(frame: pl.DataFrame) -> Schema:
    kinds = {
        name: "numeric" if dtype.is_numeric() or dtype.is_temporal() else "categorical"
        for name, dtype in frame.schema.items()
        if frame[name].null_count() < frame.height
    }
    return infer_schema(frame, kinds=kinds, keys=[], bundles=False)


def joined_schema(schemas: Sequence[Schema], n_rows: int) -> Schema:
    """Return one schema of the columns of several."""
    columns: list[Any] = []
    variables: list[Variable] = []
    for schema in schemas:
        first = len(columns)
        columns += schema.columns
        variables += [replace(v, columns=tuple(first + i for i in v.columns)) for v in schema.variables]
    return Schema(tuple(columns), tuple(variables), n_rows)


def chain_steps(schema: Schema, n_own: int, flags: Sequence[str]) -> list[Step]:
    """Return the order in which variables are drawn, and what the tree of each of them splits on."""
    number_of = {schema.lead_column(variable).name: number for number, variable in enumerate(schema.variables)}
    context = [number for name, number in number_of.items() if number >= n_own and name not in flags]
    early = [number for number in context if not _of_time(schema.lead_column(schema.variables[number]).name)]
    steps: list[Step] = []
    drawn: list[int] = []
    for number in range(n_own):
        lead = schema.lead_column(schema.variables[number]).name
        seen = early if lead in (FIRST_TIME, GAP) else context
        flag = number_of.get(flag_name(lead))
        if flag is not None:
            steps.append(Step(flag, [*seen, *drawn], number_of[NEXT], None))
            drawn.append(flag)
        steps.append(Step(number, [*seen, *drawn], number_of[NEXT], flag))
        drawn.append(number)
    return steps


def _of_time(name: str) -> bool:
    return name.startswith(f"{AT}:")


def _fit_forest(
    frame: pl.DataFrame,
    schema: Schema,
    steps: Sequence[Step],
    subjects: Counts,
    min_subjects: int,
    options: Options,
    seed: int,
    report: Progress,
) -> Fitted:
    """Grow the trees on the rows of some subjects, and estimate their leaves from all rows."""
    grown_on = _some_subjects(subjects, seed)
    codes = np.ascontiguousarray(encode_codes(frame[grown_on], schema))
    rows = chain_rows(codes, subjects[grown_on], generator(seed, Stage.TREE, 0))
    report.stage("chain", len(steps))
    trees = []
    for number, step in enumerate(steps):
        variable = schema.variables[step.variable]
        trees.append(grow_step(rows, step, variable, schema.member_columns(variable), min_subjects, number))
        report.advance()
    sums = sum_leaves(one_part(frame), schema, trees, Threads(), report)
    tables = fit_leaves(schema, trees, sums, family=options.family, support="observed", rounds=[Round(0, 0.5, 0)])
    return Fitted(_sharp_times(tables), options={**options.as_dict(), "seed": seed})


def _some_subjects(subjects: Counts, seed: int) -> Counts:
    """Return the rows of as many subjects as trees are grown on."""
    if len(subjects) <= GROWN_ROWS:
        return np.arange(len(subjects))
    numbers, rank, counts = np.unique(subjects, return_inverse=True, return_counts=True)
    order = generator(seed, Stage.SAMPLE).permutation(len(numbers))
    is_kept = np.zeros(len(numbers), dtype=bool)
    is_kept[order[: max(1, int(np.searchsorted(np.cumsum(counts[order]), GROWN_ROWS)))]] = True
    return np.flatnonzero(is_kept[rank])


def _sharp_times(tables: LeafTables) -> LeafTables:
    """Leave the leaves of times as they are: first times and gaps are null in the rows of the other."""
    names = {FIRST_TIME, GAP}
    return replace(
        tables,
        variables=tuple(
            replace(table, strength=0.0) if table.lead.name in names else table for table in tables.variables
        ),
    )
