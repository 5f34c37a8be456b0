"""The graph of tables: their keys, who refers to whom, and the order in which they are drawn.

Every table has at most one *context* parent: its rows are drawn as a sequence of rows of that parent. All other
references choose a row of another table. Tables without a context parent are roots.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import polars as pl

from arf_dask.data.keys import can_be_key
from arf_dask.errors import DataError, OptionError, unknown_column
from arf_dask.relational.graph_finding import find_key, find_references, named_key

logger = logging.getLogger(__name__)
SHOWN_ROWS = 5  # row numbers in an error message


@dataclass(frozen=True)
class Reference:
    """A column whose values are keys of another table."""

    table: str
    column: str
    parent: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} -> {self.parent}"


@dataclass(frozen=True)
class TableGraph:
    """Tables in the order in which they are drawn, and how they hang together."""

    tables: tuple[str, ...]  # parents come before their children, and referenced tables before referring ones
    keys: Mapping[str, str]  # per table that has one, its key column
    context: Mapping[str, Reference]  # per table with a context parent, the reference to it
    links: tuple[Reference, ...]  # all other references
    order: Mapping[str, str]  # per table with an order, its column
    fixed: tuple[str, ...]  # tables that stay as they are

    @property
    def roots(self) -> list[str]:
        """The tables whose rows are drawn independently of others."""
        return [name for name in self.tables if name not in self.context and name not in self.fixed]

    def children(self, table: str) -> list[str]:
        """Return the tables whose rows belong to rows of a table."""
        return [name for name in self.tables if name in self.context and self.context[name].parent == table]

    def root_of(self, table: str) -> str:
        """Return the root that the rows of a table belong to."""
        while table in self.context:
            table = self.context[table].parent
        return table

    def family(self, root: str) -> list[str]:
        """Return a root and all tables below it, parents first."""
        return [name for name in self.tables if name not in self.fixed and self.root_of(name) == root]

    def ancestors(self, table: str) -> list[str]:
        """Return the tables above a table, its root first."""
        above: list[str] = []
        while table in self.context:
            table = self.context[table].parent
            above.insert(0, table)
        return above

    def links_of(self, table: str) -> list[Reference]:
        """Return the references of a table other than that to its context parent."""
        return [link for link in self.links if link.table == table]

    def references_of(self, table: str) -> list[Reference]:
        """Return all references of a table."""
        return [*([self.context[table]] if table in self.context else []), *self.links_of(table)]


def read_graph(
    frames: Mapping[str, pl.DataFrame],
    keys: Mapping[str, str] | None,
    references: Mapping[str, str] | None,
    order: Mapping[str, str] | None,
    fixed: Sequence[str],
) -> TableGraph:
    """Return the graph of tables, as declared or as found, after checking it against all rows.

    Args:
        frames: The tables.
        keys: Per table, its key column; those of other tables are found.
        references: Per "table.column", the table that it refers to; None finds references.
        order: Per table, the column by which rows of one parent are ordered.
        fixed: Tables that stay as they are.
    """
    known_keys = {table: _column(frames, table, column, "keys") for table, column in (keys or {}).items()}
    for table in fixed:
        _table(frames, table, "fixed")
    for name, frame in frames.items():
        found = None if name in known_keys else find_key(name, frame)
        if found is not None:
            known_keys[name] = found
    declared = None if references is None else [_read_reference(frames, *item) for item in references.items()]
    if declared is None:
        declared = [Reference(*one) for one in find_references(frames, known_keys)]
    for reference in declared:
        if reference.parent not in known_keys and (key := _key_for(reference, frames)) is not None:
            known_keys[reference.parent] = key
        if reference.parent not in known_keys:
            raise OptionError(
                f"references: {reference}: no key is known for {reference.parent!r}. "
                f"Give keys={{{reference.parent!r}: column}}."
            )
    for name, key in known_keys.items():
        check_key(name, frames[name], key)
    for reference in declared:
        check_reference(reference, frames, known_keys[reference.parent])
    context, links = _choose_context(frames, declared, fixed)
    orders = find_orders(frames, context) if order is None else dict(order)
    orders = {table: _column(frames, table, column, "order") for table, column in orders.items()}
    for table, column in orders.items():
        if table not in context:
            raise OptionError(f"order: the rows of {table!r} belong to no other table. Give a reference to its parent.")
        _check_order(table, frames[table], column)
    tables = _drawing_order(list(frames), context, links)
    return TableGraph(tables, known_keys, context, tuple(links), orders, tuple(fixed))


def _key_for(reference: Reference, frames: Mapping[str, pl.DataFrame]) -> str | None:
    """Return the column that a reference refers to: one of its name, or else the only one that holds its values."""
    values, parent = frames[reference.table].get_column(reference.column), frames[reference.parent]
    if reference.column in parent.columns:
        return reference.column
    fitting = [
        one.name
        for one in parent
        if one.dtype == values.dtype and can_be_key(one.dtype) and one.is_unique().all()
        if values.drop_nulls().is_in(one.implode()).all()
    ]
    return fitting[0] if len(fitting) == 1 else named_key(reference.parent, parent)


def _table(frames: Mapping[str, Any], name: str, where: str) -> str:
    if name not in frames:
        near = get_close_matches(str(name), list(frames), n=3)
        hint = (
            f" Did you mean {' or '.join(map(repr, near))}?" if near else f" There are {', '.join(map(repr, frames))}."
        )
        raise OptionError(f"{where}: no table {name!r}.{hint}")
    return name


def _column(frames: Mapping[str, pl.DataFrame], table: str, column: Any, where: str) -> str:
    _table(frames, table, where)
    if not isinstance(column, str):
        raise OptionError(f"{where}[{table!r}]={column!r}: give the name of one column.")
    if column not in frames[table].columns:
        raise unknown_column(column, frames[table].columns, f"{where}[{table!r}]")
    return column


def _read_reference(frames: Mapping[str, pl.DataFrame], source: Any, parent: Any) -> Reference:
    where = f"references[{source!r}]"
    tables = [name for name in frames if isinstance(source, str) and source.startswith(f"{name}.")]
    if not tables:
        raise OptionError(f'{where}: say "table.column", such as "orders.customer_id".')
    table = max(tables, key=len)
    column = source.removeprefix(f"{table}.")
    if column not in frames[table].columns:
        raise unknown_column(column, frames[table].columns, where)
    return Reference(table, column, _table(frames, parent, where))


def check_key(table: str, frame: pl.DataFrame, key: str) -> None:
    """Raise a DataError unless a column identifies the rows of a table."""
    values = frame.get_column(key)
    if not can_be_key(values.dtype):
        raise DataError(f"table {table!r}: the key {key!r} is {values.dtype}. Cast it to text or integers first.")
    if values.null_count():
        raise DataError(f"table {table!r}: the key {key!r} is null in {_rows(values.is_null())}. Drop these rows.")
    if values.n_unique() < len(values):
        raise DataError(
            f"table {table!r}: the key {key!r} is not unique: {_rows(values.is_duplicated())}, such as "
            f"{values.filter(values.is_duplicated())[0]!r}. Name another key, or drop the duplicates."
        )


def check_reference(reference: Reference, frames: Mapping[str, pl.DataFrame], key: str) -> None:
    """Raise a DataError unless all values of a reference are keys of the other table, or null."""
    values, keys = frames[reference.table].get_column(reference.column), frames[reference.parent].get_column(key)
    if values.dtype != keys.dtype:
        raise DataError(
            f"table {reference.table!r}: {reference.column!r} is {values.dtype}, but the key {key!r} of "
            f"{reference.parent!r} is {keys.dtype}. Cast one of them."
        )
    is_orphan = ~values.is_in(keys.implode()) & values.is_not_null()
    if is_orphan.any():
        raise DataError(
            f"table {reference.table!r}: {reference.column!r} refers to rows that {reference.parent!r} does not have "
            f"in {_rows(is_orphan)}, such as {values.filter(is_orphan)[0]!r}. Drop these rows, or add the missing ones."
        )


def _rows(flags: pl.Series) -> str:
    """Return how many rows are flagged, and the numbers of the first ones."""
    numbers = flags.arg_true()
    shown = ", ".join(str(number) for number in numbers.head(SHOWN_ROWS))
    more = ", ..." if len(numbers) > SHOWN_ROWS else ""
    return f"{len(numbers):,} row{'s' if len(numbers) != 1 else ''} ({shown}{more})"


def _check_order(table: str, frame: pl.DataFrame, column: str) -> None:
    values = frame.get_column(column)
    dtype = values.dtype
    if not (dtype.is_integer() or dtype.is_float() or dtype in (pl.Date, pl.Datetime, pl.Duration)):
        raise DataError(
            f"table {table!r}: rows cannot be ordered by {column!r}, which is {dtype}. Convert it to dates, times or "
            "numbers first."
        )
    missing = values.is_null() | (
        values.is_nan() if dtype.is_float() else pl.Series([False]).new_from_index(0, len(values))
    )
    if missing.any():
        raise DataError(
            f"table {table!r}: {column!r} is missing in {_rows(missing)}. Fill or drop them before fit_tables."
        )


def find_orders(frames: Mapping[str, pl.DataFrame], context: Mapping[str, Any]) -> dict[str, str]:
    """Return the only date or time without nulls of every table with a parent, if it has just one."""
    orders = {}
    for name in context:
        dates = [one.name for one in frames[name] if one.dtype in (pl.Date, pl.Datetime) and not one.null_count()]
        if len(dates) == 1:
            orders[name] = dates[0]
            logger.info("rows of %s are ordered by %s", name, dates[0])
    return orders


def _choose_context(
    frames: Mapping[str, pl.DataFrame], references: Sequence[Reference], fixed: Sequence[str]
) -> tuple[dict[str, Reference], list[Reference]]:
    """Return the context parent of every table, and all other references."""
    context: dict[str, Reference] = {}
    links: list[Reference] = []
    for reference in references:
        if reference.table in fixed:
            if reference.parent not in fixed:
                raise OptionError(f"fixed: {reference} refers to a table that is drawn anew. Fix that one too.")
            continue
        is_context = (
            reference.parent not in fixed
            and reference.parent != reference.table
            and reference.table not in context
            and frames[reference.table].get_column(reference.column).null_count() == 0
        )
        if is_context:
            context[reference.table] = reference
        else:
            links.append(reference)
    return context, links


def _drawing_order(
    names: Sequence[str], context: Mapping[str, Reference], links: Sequence[Reference]
) -> tuple[str, ...]:
    """Return the tables so that all tables that one refers to come before it."""
    needed = {name: {link.parent for link in links if link.table == name and link.parent != name} for name in names}
    for name, reference in context.items():
        needed[name].add(reference.parent)
    ordered: list[str] = []
    while len(ordered) < len(names):
        ready = [name for name in names if name not in ordered and needed[name].issubset(ordered)]
        if not ready:
            stuck = [name for name in names if name not in ordered]
            path = _cycle(stuck, needed)
            raise OptionError(
                f"references: {' -> '.join(path)} is a cycle. Leave out one of these references, or fix one of the "
                "tables."
            )
        ordered.append(ready[0])
    return tuple(ordered)


def _cycle(stuck: Sequence[str], needed: Mapping[str, set[str]]) -> list[str]:
    path = [stuck[0]]
    while True:
        following = next(name for name in stuck if name in needed[path[-1]])
        if following in path:
            return [*path[path.index(following) :], following]
        path.append(following)
