"""`fit_tables`: learn several tables and how they hang together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import polars as pl

from arf_dask.data.files import Reading
from arf_dask.data.frames import PolarsInput, to_polars
from arf_dask.errors import ArfError, OptionError
from arf_dask.options import Options
from arf_dask.relational.graph import read_graph
from arf_dask.relational.learning import learn_tables
from arf_dask.runtime.cluster import runner_for
from arf_dask.runtime.progress import ProgressFunction, progress_for
from arf_dask.runtime.seeds import entropy
from arf_dask.table_models import TablesModel
from arf_dask.typing import DependenceKind, Family, Refine, Support


class TableOptions(TypedDict, total=False):
    """The options of `fit` that hold for all tables, for type checkers and editors."""

    trees: int
    min_leaf: int | None
    max_rounds: int
    tolerance: float
    max_features: int | None
    rows_per_tree: int | None
    family: Family
    support: Support
    dependence: DependenceKind
    refine: Refine
    find_rules: bool
    strict_rules: bool
    allow_copies: bool


def fit_tables(
    tables: Mapping[str, Any],
    *,
    keys: Mapping[str, str] | None = None,
    references: Mapping[str, str] | None = None,
    order: Mapping[str, str] | None = None,
    rules: Mapping[str, Sequence[Any]] | None = None,
    columns: Mapping[str, Mapping[str, str]] | None = None,
    fixed: Sequence[str] = (),
    seed: int | None = None,
    client: Any = None,
    progress: bool | ProgressFunction | None = None,
    storage_options: Mapping[str, Any] | None = None,
    read_options: Mapping[str, Any] | None = None,
    **options: Unpack[TableOptions],
) -> TablesModel:
    """Learn several tables that refer to each other, such as customers, their orders, and the items of these.

    A table without a parent is modelled as by `fit`. The rows of every other table belong to rows of a parent: how many
    there are is modelled with the parent, and each row given its ancestors, its position and the rows before it.

    Args:
        tables: The tables by name: frames of any kind that `fit` accepts, or paths. They are read into memory.
        keys: The column that identifies the rows of a table, by table, such as {"customers": "id"}. Those of other
            tables are found by name and uniqueness.
        references: The table that a column refers to, by "table.column", such as {"orders.customer_id": "customers"}.
            Of several references of a table, the first without nulls leads to the parent of its rows; a row chooses the
            others so that what depends on them is kept. None finds references by names, types and values.
        order: The column of dates, times or numbers by which the rows of one parent are ordered, by table, such as
            {"orders": "created"}. Synthetic rows are in this order, and never before the date of their parent if no
            real row is. None takes the only date of a table, if it has just one without nulls.
        rules: Constraints between the columns of a row, by table, as in `fit`.
        columns: Overrides of the detected column kinds, by table, as in `fit`.
        fixed: Tables that stay as they are, such as a list of countries: rows of other tables refer to their keys.
        seed: The random seed, for repeatable results; None uses a fresh one.
        client: A Dask client or the address of a scheduler, as in `fit`.
        progress: Whether to show progress, as in `fit`.
        storage_options: Storage options for URLs, as in `fit`.
        read_options: Options for reading CSV, as in `fit`.
        **options: Options of `fit`: trees, max_rounds, tolerance, max_features, rows_per_tree, support, dependence,
            refine and allow_copies for tables without a parent; min_leaf, family, find_rules and strict_rules for all
            tables. For the others, min_leaf is the least number of rows without a parent, such as customers, whose
            rows are in one leaf; None uses 10.

    Returns:
        A model that draws all tables at once.

    Raises:
        OptionError: If an option is invalid, names a table or column that does not exist, or references form a cycle.
        DataError: If keys repeat or are null, or rows refer to rows that do not exist; the message names table, column
            and rows.

    Examples:
        >>> import arf_dask, polars as pl
        >>> customers = pl.DataFrame({"id": range(100), "country": ["DE", "FR"] * 50})
        >>> orders = pl.DataFrame({"customer_id": list(range(100)) * 3, "sum": [i % 7 for i in range(300)]})
        >>> model = arf_dask.fit_tables({"customers": customers, "orders": orders}, trees=5, seed=1)
        >>> model.keys, model.references
        ({'customers': 'id'}, {'orders.customer_id': 'customers'})
        >>> {name: frame.height for name, frame in model.sample(10, seed=2).items()}
        {'customers': 10, 'orders': 30}
    """
    if not isinstance(tables, Mapping) or not tables:
        raise OptionError('tables: give a dict of frames or paths by name, such as {"customers": df, "orders": odf}.')
    inputs = {str(name): _read(name, data, Reading(storage_options, read_options)) for name, data in tables.items()}
    frames = {name: one.frame for name, one in inputs.items()}
    table_options = _options(frames, rules, columns, options)
    graph = read_graph(frames, keys, references, order, fixed)
    with progress_for(progress) as report, runner_for(client) as runner:
        fitted = learn_tables(frames, graph, table_options, entropy(seed), runner, report)
    return TablesModel(fitted, {name: one.to_original for name, one in inputs.items()})


def _read(name: Any, data: Any, reading: Reading) -> PolarsInput:
    if not isinstance(name, str):
        raise OptionError(f"tables: {name!r} is not the name of a table. Give text.")
    try:
        return to_polars(data, reading)
    except ArfError as error:
        raise type(error)(f"table {name!r}: {error}") from error


def _options(
    frames: Mapping[str, pl.DataFrame],
    rules: Mapping[str, Sequence[Any]] | None,
    columns: Mapping[str, Mapping[str, str]] | None,
    options: Mapping[str, Any],
) -> dict[str, Options]:
    """Return the options of every table, validated."""
    for where, given in (("rules", rules), ("columns", columns)):
        if given is not None and not isinstance(given, Mapping):
            raise OptionError(f"{where}={given!r}: give a dict by table, such as {{{next(iter(frames))!r}: ...}}.")
        unknown = [name for name in given or () if name not in frames]
        if unknown:
            raise OptionError(f"{where}: no table {unknown[0]!r}. There are {', '.join(map(repr, frames))}.")
    for name in ("keys", "bundles", "renew"):
        if name in options:
            raise OptionError(
                f"no option {name!r} in fit_tables. Available: {', '.join(TableOptions.__annotations__)}."
            )
    return {
        name: Options.read({**options, "rules": (rules or {}).get(name), "columns": (columns or {}).get(name)})
        for name in frames
    }
