"""Fitting under a release policy: protect the table, fit it, and shrink and guard the fitted model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import polars as pl

from arf_dask.data.copy_guard import make_guard
from arf_dask.errors import KeyColumnWarning, OptionError, ReleaseError, ReleaseWarning, warn_user
from arf_dask.forest.dependence import Dependence, Edge
from arf_dask.forest.tables import LeafTables, VariableTables
from arf_dask.options import Options
from arf_dask.release.levels import rare_combinations
from arf_dask.release.policy import ReleasePolicy
from arf_dask.release.protection import Bundle, Protected, protect
from arf_dask.release.schema_rounding import round_schema
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.columns import Schema
from arf_dask.typing import Counts

logger = logging.getLogger(__name__)

STATE_ROWS = 2.0  # shrinkage in rows per state of a variable
IN_MEMORY = 250_000  # maximum rows for which the subjects of every leaf are counted


class Learn(Protocol):
    """Fits a table. `adapt` changes the schema before rows are encoded; `subjects` holds the subject id per row."""

    def __call__(
        self,
        frame: pl.DataFrame,
        options: Options,
        *,
        adapt: Callable[[Schema], Schema] | None,
        subjects: Counts | None,
    ) -> LeafTables: ...


def fit_release(
    frame: pl.DataFrame,
    policy: ReleasePolicy,
    options: Options,
    seed: int,
    learn: Learn,
    infer: Callable[[pl.DataFrame, Options], Schema],
) -> LeafTables:
    """Fit the tables of a model under a release policy."""
    _tell_loosened(policy)
    protected = protect(
        frame,
        policy,
        options.columns,
        options.keys,
        lambda safe: _find_bundles(infer(safe, options)),
        generator(seed, Stage.RELEASE),
    )
    adapt = round_schema if policy.round_bounds else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeyColumnWarning)  # the release report lists detected identifiers
        tables = learn(
            protected.frame, _safe_options(options, policy, protected), adapt=adapt, subjects=_units(protected)
        )
    _check_combinations(tables.schema, protected, policy)
    return _tighten(tables, policy, protected)


def _check_combinations(schema: Schema, protected: Protected, policy: ReleasePolicy) -> None:
    """Raise a ReleaseError if the model would store a combination that too few subjects share."""
    for bundle in _find_bundles(schema):
        subject = policy.subject
        people = None if subject is None or protected.subjects is None else pl.Series(protected.subjects)
        if rare_combinations(protected.frame, bundle.levels, people, policy.min_level).any():
            listed = ", ".join(map(repr, bundle.names))
            raise ReleaseError(f"release: {listed} were modelled together with rare combinations. Say bundles=False.")


def checked_policy(policy: object) -> ReleasePolicy:
    """Return the policy, or raise an OptionError if it is not a ReleasePolicy."""
    if not isinstance(policy, ReleasePolicy):
        raise OptionError(f"release={policy!r}: give arf_dask.ReleasePolicy(...).")
    return policy


def _find_bundles(schema: Schema) -> list[Bundle]:
    """Return the columns that are modelled together, and the subset whose combinations the model stores."""
    found = []
    for variable in schema.variables:
        members = variable.columns[1:] if variable.is_line else variable.columns
        if len(variable.columns) > 1 and members:
            names = [schema.columns[column_index].name for column_index in variable.columns]
            found.append(Bundle(names, [schema.columns[column_index].name for column_index in members]))
    return found


def _safe_options(options: Options, policy: ReleasePolicy, protected: Protected) -> Options:
    """Return the fit options adjusted to the policy: leaf size, identifiers and bundles."""
    min_leaf = max(options.min_leaf, policy.min_leaf)
    if protected.subjects is not None and protected.frame.height > IN_MEMORY:
        if policy.max_rows_per_subject is None:
            raise ReleaseError(
                f"release: subjects of leaves are counted up to {IN_MEMORY:,} rows. Give max_rows_per_subject: with at "
                "most so many rows of each subject, leaves of min_leaf times as many rows hold enough subjects."
            )
        min_leaf *= policy.max_rows_per_subject
    bundles = options.bundles
    if protected.bundles is not None:
        bundles = protected.bundles if protected.bundles else False
    return replace(options, min_leaf=min_leaf, keys=protected.keys, bundles=bundles)


def _units(protected: Protected) -> Counts | None:
    """Return the subject id of every row if leaves are pruned by subjects, otherwise None."""
    if protected.frame.height > IN_MEMORY:
        return None
    return protected.subjects


def _tighten(tables: LeafTables, policy: ReleasePolicy, protected: Protected) -> LeafTables:
    """Shrink leaves towards their parents, record the effects of the policy, and add the guard against copies."""
    modelled_names = [column.name for column in tables.schema.columns if column.kind in ("categorical", "numeric")]
    copy_guard = make_guard(protected.frame, modelled_names, tables.schema.keys) if policy.forbid_copies else None
    effects = {**protected.effects, "smallest_leaf": int(np.min(tables.coverage)), "leaves_hold": "subjects"}
    shrunken_tables = replace(
        shrink_leaves(tables, policy.shrinkage), dependence=_pool_rare_cells(tables.dependence, policy)
    )
    return replace(shrunken_tables, options={**tables.options, "release": effects}, guard=copy_guard)


def _pool_rare_cells(dependence: Dependence, policy: ReleasePolicy) -> Dependence:
    """Return the dependence with cells of too few people treated like empty cells."""
    min_rows = policy.min_level * (policy.max_rows_per_subject or 1)
    return replace(dependence, edges=tuple(_pool_edge(edge, min_rows) for edge in dependence.edges))


def _pool_edge(edge: Edge, least: int) -> Edge:
    is_rare = edge.observed < least
    if not is_rare.any():
        return edge
    pooled_ratio = min(1.0, float(edge.ratios[is_rare].mean()))
    return edge._replace(
        observed=np.where(is_rare, 0, edge.observed).astype(edge.observed.dtype),
        ratios=np.where(is_rare, pooled_ratio, edge.ratios),
    )


def shrink_leaves(tables: LeafTables, rows: float) -> LeafTables:
    """Shrink every leaf towards its parent with a strength of at least `rows` rows; 0 changes nothing.

    A variable with many states is shrunk by two rows per state: with hundreds of states, a leaf of twenty rows would
    reveal little more than the states of its own training rows.
    """
    if not rows:
        return tables
    return replace(tables, variables=tuple(replace(one, strength=_strength(one, rows)) for one in tables.variables))


def _strength(table: VariableTables, rows: float) -> float:
    return max(table.strength, float(rows), STATE_ROWS * table.variable.n_states)


def _tell_loosened(policy: ReleasePolicy) -> None:
    loosened = policy.loosened()
    if loosened:
        warn_user(f"release: protects less than the defaults: {', '.join(loosened)}.", ReleaseWarning)


def release_report(options: Any) -> dict[str, Any] | None:
    """Return what the release policy changed in the training data; None without a policy."""
    found = options.get("release")
    return dict(found) if found is not None else None
