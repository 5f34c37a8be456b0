"""The content of a fitted model as plain tables: schema, rules, rounds, refinement, dependence, leaves and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.frames import to_polars
from arf_dask.errors import OptionError
from arf_dask.forest.dependence import dependence_frame
from arf_dask.forest.fitted import Fitted
from arf_dask.forest.table_frames import leaf_frame, node_frame, round_frame, summarise_model
from arf_dask.inference.forge import Sampler
from arf_dask.refinement.ratio import Refinement
from arf_dask.rules.relations import Rule, check_rules
from arf_dask.runtime.display import TextInNotebooks
from arf_dask.schema.columns import Schema, number_keys
from arf_dask.schema.together import count_unseen, together_rules
from arf_dask.schema.user_view import user_schema


class ModelTables(TextInNotebooks):
    """The tables of a model, and the properties that expose them."""

    def __init__(self, fitted: Fitted) -> None:
        self._fitted = fitted

    @property
    def schema(self) -> Schema:
        """The columns of the model: their kinds, levels and ranges, and which are modelled jointly."""
        return self._schema

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return self.schema.names

    @property
    def rules(self) -> list[Rule]:
        """The rules of the table: constraints between columns of a row, detected or declared.

        Examples:
            >>> import arf_dask, polars as pl
            >>> data = pl.DataFrame({"a": [i * 37 % 113 for i in range(200)], "b": [i % 7 for i in range(200)]})
            >>> data = data.with_columns(c=pl.col("a") + pl.col("b"))
            >>> [rule.text for rule in arf_dask.fit(data, trees=5, seed=1).rules]
            ['c == a + b']
        """
        return [*self._fitted.relations.rules, *together_rules(self._fitted.schema, self._fitted.relations)]

    def check(self, data: Any) -> pl.DataFrame:
        """Count the rows of a frame that violate each rule of the model.

        Args:
            data: Any frame or path accepted by `fit`, with all or some of the columns of the table.

        Returns:
            One row per rule: rule, kind, columns, share (of training rows that satisfy it), found, rows (the number of
            rows without missing values in its columns; null if a column is absent) and broken (the number of rows
            that violate it). Columns that belong together are violated by combinations unseen in training.

        Raises:
            DataError: If the data cannot be read, or a column of a rule has another type.

        Examples:
            >>> import arf_dask, polars as pl
            >>> data = pl.DataFrame({"a": [i * 37 % 113 for i in range(200)], "b": [i % 7 for i in range(200)]})
            >>> data = data.with_columns(c=pl.col("a") + pl.col("b"))
            >>> model = arf_dask.fit(data, trees=5, seed=1)
            >>> model.check(data[:3].with_columns(c=pl.Series([0, 38, 5])))["broken"].to_list()
            [1]
        """
        frame = to_polars(data).frame
        schema, relations = self._fitted.schema, self._fitted.relations
        return check_rules(self.rules, relations, frame, lambda rule: count_unseen(rule, frame, schema, relations))

    @property
    def options(self) -> Mapping[str, object]:
        """The options and seed that the model was fitted with."""
        return self._fitted.options

    @property
    def rounds(self) -> pl.DataFrame:
        """One row per round of the adversarial loop: round, accuracy (out of bag), leaves."""
        return round_frame(self._fitted.tables)

    @property
    def refinement(self) -> Refinement | None:
        """The boosted ratio by which drawn rows are accepted; None if the model is not refined."""
        return self._fitted.refinement

    @property
    def dependence(self) -> pl.DataFrame:
        """One row per edge of the dependency tree: parent, child, information (nats lost by independence)."""
        return dependence_frame(self._fitted.tables.dependence, self.schema)

    @property
    def leaves(self) -> pl.DataFrame:
        """One row per leaf: leaf, tree, node, rows, coverage (share of the rows of its tree)."""
        return leaf_frame(self._fitted.tables)

    @property
    def nodes(self) -> pl.DataFrame:
        """One row per (tree, node): tree, node, feature, threshold, left, right (-1 at leaves)."""
        return node_frame(self._fitted.tables)

    def __repr__(self) -> str:
        return summarise_model(self._fitted)

    @cached_property
    def _schema(self) -> Schema:
        return user_schema(self._fitted.schema, self._fitted.relations)

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self._fitted)

    def _sampler_from(self, first_key: int | None) -> Sampler:
        """Return the sampler whose identifiers start at index `first_key`."""
        if first_key is None:
            return self._sampler
        if isinstance(first_key, bool) or not isinstance(first_key, int | np.integer) or first_key < 0:
            raise OptionError(f"first_key={first_key!r}: give the number of rows that have identifiers already.")
        return self._sampler.with_schema(number_keys(self._fitted.schema, int(first_key)))
