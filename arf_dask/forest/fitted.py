"""What `fit` learned: the forest with its leaf parameters, and what stands between its columns and the user's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import polars as pl

from arf_dask.data.copy_guard import CopyGuard
from arf_dask.forest.tables import LeafTables
from arf_dask.refinement.ratio import Refinement
from arf_dask.rules.relations import NO_RELATIONS, Relations
from arf_dask.schema.columns import Schema


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted model: what is pickled, hashed and saved."""

    tables: LeafTables  # of the modelled columns
    relations: Relations = NO_RELATIONS  # from the user's columns to the modelled ones, and back
    options: Mapping[str, object] = field(default_factory=dict)  # of `fit`, for the record
    refinement: Refinement | None = None  # the ratio of real density to that of the tables
    # Fingerprints of rows that must not be generated; in memory only, never saved or shown.
    guard: CopyGuard | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {stored_field.name: getattr(self, stored_field.name) for stored_field in fields(self)}

    @property
    def schema(self) -> Schema:
        """The schema of the modelled columns."""
        return self.tables.schema

    @property
    def dtypes(self) -> Mapping[str, pl.DataType]:
        """The user's columns and their types, in order."""
        return self.relations.dtypes if self.relations.names else self.schema.dtypes

    @property
    def renewed(self) -> Sequence[str]:
        """The columns whose values were replaced by fresh ones before anything was learned."""
        names = self.options.get("renew", ())
        return [name for name in names if isinstance(name, str)] if isinstance(names, Sequence) else []

    @property
    def observed(self) -> bool:
        """Whether floats keep their observed range."""
        return self.tables.support == "observed"
