"""A fitted model of several tables, which draws all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from arf_dask.inference.sources import check_memory, check_policy, check_rows
from arf_dask.model import Model
from arf_dask.options import ROWS_PER_FILE
from arf_dask.relational.data_sets import Writing, write_tables
from arf_dask.relational.families import TablesFitted
from arf_dask.relational.model_files import save_tables
from arf_dask.relational.plans import TablesPlan, collect_tables, plan_tables
from arf_dask.rules.relations import Rule
from arf_dask.runtime.cluster import runner_for
from arf_dask.runtime.display import TextInNotebooks, count, describe_facts
from arf_dask.runtime.progress import ProgressFunction, progress_for
from arf_dask.runtime.seeds import entropy
from arf_dask.runtime.tasks import Threads
from arf_dask.storage.manifest import Manifest
from arf_dask.typing import OnImpossible, PathLike, WriteMode


class TablesModel(TextInNotebooks):
    """A learned model of several tables, as returned by `fit_tables` and `load`.

    Examples:
        >>> import arf_dask, polars as pl
        >>> customers = pl.DataFrame({"id": range(100), "country": ["DE", "FR"] * 50})
        >>> orders = pl.DataFrame({"customer_id": list(range(100)) * 3, "sum": [i % 7 for i in range(300)]})
        >>> arf_dask.fit_tables({"customers": customers, "orders": orders}, trees=5, seed=1)
        Model of 2 tables
          customers  100 rows, root
          orders     300 rows, belong to customers by customer_id
    """

    def __init__(
        self, fitted: TablesFitted, to_original: Mapping[str, Callable[[pl.DataFrame], Any]] | None = None
    ) -> None:
        self._fitted = fitted
        self._to_original = dict(to_original or {})

    @property
    def tables(self) -> list[str]:
        """The names of the tables, parents before their children."""
        return list(self._fitted.graph.tables)

    @property
    def references(self) -> dict[str, str]:
        """The references between tables, declared and found, in the form of `fit_tables(references=)`."""
        graph = self._fitted.graph
        references = [reference for name in graph.tables for reference in graph.references_of(name)]
        return {f"{one.table}.{one.column}": one.parent for one in references}

    @property
    def keys(self) -> dict[str, str]:
        """The key columns, declared and found, by table."""
        return dict(self._fitted.graph.keys)

    @property
    def order(self) -> dict[str, str]:
        """The columns by which the rows of one parent are ordered, by table."""
        return dict(self._fitted.graph.order)

    @property
    def rules(self) -> dict[str, list[Rule]]:
        """The rules between the columns of a row, by table."""
        fitted = self._fitted
        found = {name: list(Model(root).rules) for name, root in fitted.roots.items()}
        found |= {name: list(chain.relations.rules) for name, chain in fitted.chains.items()}
        return {name: found[name] for name in fitted.graph.tables if name in found}

    def sample(
        self,
        n: int | Mapping[str, int] | None = None,
        *,
        given: Mapping[str, Any] | None = None,
        on_impossible: OnImpossible = "raise",
        seed: int | None = None,
        progress: bool | ProgressFunction | None = None,
    ) -> dict[str, Any]:
        """Draw synthetic tables. Keys are new and unique, and all references exist.

        Args:
            n: The number of rows of the first table that others belong to; other independent tables grow in
                proportion, children as they fall. A dict gives numbers for several independent tables, such as
                {"customers": 1_000, "products": 50}. None draws as many rows as the training data has.
            given: Conditions on independent tables, such as {"customers": {"country": "DE"}}, as in `Model.sample`.
            on_impossible: How to handle an impossible condition, as in `Model.sample`.
            seed: The random seed, for repeatable results; None uses a fresh one.
            progress: Whether to show progress, as in `fit`.

        Returns:
            The tables by name, each of the kind of frame that `fit_tables` was given; Polars DataFrames after `load`.

        Raises:
            OptionError: If `n`, `given`, `on_impossible` or `seed` is invalid, or the rows would not fit into memory.
            ImpossibleConditionError: If a condition has probability zero and `on_impossible` is "raise".

        Examples:
            >>> import arf_dask, polars as pl
            >>> customers = pl.DataFrame({"id": range(100), "country": ["DE", "FR"] * 50})
            >>> orders = pl.DataFrame({"customer_id": list(range(100)) * 3, "sum": [i % 7 for i in range(300)]})
            >>> model = arf_dask.fit_tables({"customers": customers, "orders": orders}, trees=5, seed=1)
            >>> twin = model.sample(50, given={"customers": {"country": "DE"}}, seed=2)
            >>> twin["customers"]["country"].to_list() == ["DE"] * 50
            True
            >>> twin["orders"]["customer_id"].is_in(twin["customers"]["id"].implode()).all()
            True
        """
        check_policy(on_impossible)
        for rows in n.values() if isinstance(n, Mapping) else () if n is None else (n,):
            check_rows(rows)
        with progress_for(progress) as report:
            plan = plan_tables(self._fitted, n, given, on_impossible, entropy(seed), Threads())
            _check_size(plan)
            report.stage("sampling", len(list(plan.work())))
            tables = collect_tables(plan, report)
        return {name: self._to_original.get(name, _unchanged)(tables[name]) for name in self._fitted.dtypes}

    def sample_parquet(
        self,
        path: PathLike,
        n: int | Mapping[str, int] | None = None,
        *,
        given: Mapping[str, Any] | None = None,
        on_impossible: OnImpossible = "raise",
        seed: int | None = None,
        rows_per_file: int = ROWS_PER_FILE,
        mode: WriteMode = "error",
        portable: bool = False,
        client: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: bool | ProgressFunction | None = None,
    ) -> dict[str, Manifest]:
        """Write synthetic tables, each to a data set of Parquet files in a directory named like the table.

        The data sets hold the rows of `sample(n, given=given, seed=seed)`. Memory use does not depend on the number of
        rows, except for the keys of tables that rows of other families refer to. The same job always gives the same
        bytes, on threads and on a cluster.

        Args:
            path: A directory or URL that holds nothing else: it gets one directory per table.
            n: The number of rows, as in `sample`.
            given: Conditions on independent tables, as in `sample`.
            on_impossible: How to handle an impossible condition, as in `sample`.
            seed: The random seed, for repeatable results; None uses a fresh one, or that of the resumed job.
            rows_per_file: The number of rows of every part of a table except the last.
            mode: How to handle an existing path, as in `Model.sample_parquet`: "error", "resume" or "overwrite".
            portable: Whether to cast types that Spark, Delta or Iceberg cannot read, as in `Model.sample_parquet`.
            client: A Dask client or the address of a scheduler; None uses the active client, if any, or threads.
            storage_options: Storage options for a URL, with the names of fsspec or of Polars.
            progress: Whether to show progress, as in `fit`.

        Returns:
            The manifest of every table: its parts with their rows and hashes, and how to read them.

        Raises:
            OptionError: If an argument is invalid.
            ImpossibleConditionError: If a condition has probability zero and `on_impossible` is "raise".
            OutputError: If the path is in use, or cannot be written.

        Examples:
            >>> import tempfile, arf_dask, polars as pl
            >>> customers = pl.DataFrame({"id": range(100), "country": ["DE", "FR"] * 50})
            >>> orders = pl.DataFrame({"customer_id": list(range(100)) * 3, "sum": [i % 7 for i in range(300)]})
            >>> model = arf_dask.fit_tables({"customers": customers, "orders": orders}, trees=5, seed=1)
            >>> with tempfile.TemporaryDirectory() as directory:
            ...     manifests = model.sample_parquet(f"{directory}/shop", 1_000, seed=2)
            ...     manifests["orders"].scan().collect().height == manifests["orders"].rows
            True
        """
        check_policy(on_impossible)
        writing = Writing(path, rows_per_file, mode, portable, storage_options)
        with progress_for(progress) as report, runner_for(client) as runner:
            return write_tables(self._fitted, n, given, on_impossible, seed, writing, runner, report)

    def save(self, path: PathLike) -> None:
        """Save the model to a directory for `arf_dask.load`. It holds no training row except those of fixed tables.

        Args:
            path: A new directory, or one that holds a model of tables, which is replaced.

        Raises:
            OptionError: If the path is a URL, or holds anything but a model of tables.

        Examples:
            >>> import tempfile, arf_dask, polars as pl
            >>> customers = pl.DataFrame({"id": range(100), "country": ["DE", "FR"] * 50})
            >>> orders = pl.DataFrame({"customer_id": list(range(100)) * 3, "sum": [i % 7 for i in range(300)]})
            >>> model = arf_dask.fit_tables({"customers": customers, "orders": orders}, trees=5, seed=1)
            >>> with tempfile.TemporaryDirectory() as directory:
            ...     model.save(f"{directory}/shop")
            ...     again = arf_dask.load(f"{directory}/shop")
            >>> again.sample(5, seed=3)["orders"].equals(model.sample(5, seed=3)["orders"])
            True
        """
        save_tables(self._fitted, path)

    def __repr__(self) -> str:
        graph, facts = self._fitted.graph, {}
        for name in self._fitted.dtypes:
            told = [count(self._fitted.rows[name], "row")]
            if name in graph.fixed:
                told.append("fixed")
            elif name not in graph.context:
                told.append("root")
            else:
                reference = graph.context[name]
                order = f", in the order of {graph.order[name]}" if name in graph.order else ""
                told.append(f"belong to {reference.parent} by {reference.column}{order}")
            told += [f"refer to {link.parent} by {link.column}" for link in graph.links_of(name)]
            facts[name] = ", ".join(told)
        return describe_facts(f"Model of {count(len(facts), 'table')}", facts)

    def __getstate__(self) -> dict[str, Any]:
        # The caller's frames are not pickled: another process gets Polars frames.
        return {"_fitted": self._fitted, "_to_original": {}}


def _unchanged(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def _check_size(plan: TablesPlan) -> None:
    """Raise an OptionError if the rows cannot fit into memory."""
    fitted = plan.fitted
    for name, dtypes in fitted.dtypes.items():
        if name not in fitted.fixed:
            root = fitted.graph.root_of(name)
            check_memory(plan.job.sizes[root] * fitted.rows[name] // max(fitted.rows[root], 1), len(dtypes))
