"""The model of the rows that belong to a parent: a chain of trees, one per variable of the row.

The trees and their leaves are those of an ordinary forest over the columns of a row and of its history. Tree number k
has splits on the history and on the variables drawn before the k-th one, which is drawn from its leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from arf_dask.forest.fitted import Fitted
from arf_dask.relational.histories import FIRST_TIME, GAP, NEXT, HistoryShape
from arf_dask.rules.relations import Relations
from arf_dask.runtime.once import OncePerProcess
from arf_dask.schema.columns import Schema


@dataclass(frozen=True, eq=False)
class Chain:
    """The model of the rows of one table, given their parents."""

    fitted: Fitted  # over the columns that are drawn and those of the history
    relations: Relations  # from the columns of the table to those that are drawn, and back
    shape: HistoryShape
    steps: tuple[int, ...]  # per tree, the variable that it draws
    repeats: tuple[tuple[str, str], ...]  # flags of variables that may repeat the previous row, with their lead columns
    parents: tuple[str, ...]  # columns of the parent that the history holds
    base: str | None  # the parent's column from which the first time is counted
    built: OncePerProcess = field(default_factory=OncePerProcess, repr=False)

    @property
    def schema(self) -> Schema:
        """The schema of the columns that are drawn, and of the history."""
        return self.fitted.schema

    @property
    def last_time_name(self) -> str | None:
        """The drawn column after which the time of a row is known; None without an order."""
        drawn = {self.schema.lead_column(self.schema.variables[number]).name for number in self.steps}
        return next((name for name in (GAP, FIRST_TIME) if name in drawn), None)

    def dtype_of(self, name: str) -> pl.DataType:
        """Return the type of a modelled column of the table."""
        return self.relations.dtypes[name] if name == self.shape.order else self.schema.dtypes[name]


def time_names(order: str | None) -> list[str]:
    """Return the columns that are drawn in the place of the time of a row."""
    return [] if order is None else [FIRST_TIME, GAP]


def flag_name(lead: str) -> str:
    """Return the name of the flag of a variable that may repeat the previous row."""
    return f"same:{lead}"


__all__ = ["NEXT", "Chain", "flag_name", "time_names"]
