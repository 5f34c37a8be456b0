"""Fitting under a release policy: protect the table, fit it, and shrink and guard the fitted model."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.checks import check_shape
from arf_dask.data.copy_guard import CopyGuard, RealRows, make_guard
from arf_dask.errors import KeyColumnWarning, OptionError, ReleaseError, ReleaseWarning, warn_user
from arf_dask.forest.dependence import Dependence, Edge
from arf_dask.forest.fitted import Fitted
from arf_dask.forest.tables import LeafTables, VariableTables
from arf_dask.options import Options
from arf_dask.release.levels import rare_combinations
from arf_dask.release.numbers import protect_numbers
from arf_dask.release.policy import ReleasePolicy
from arf_dask.release.protection import Bundle, Protected, protect
from arf_dask.release.schema_rounding import round_schema
from arf_dask.rules.relations import Relations
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.columns import Schema
from arf_dask.schema.entities import entity_names
from arf_dask.typing import Counts

logger = logging.getLogger(__name__)

STATE_ROWS = 2.0  # shrinkage in rows per state of a variable
IN_MEMORY = 250_000  # maximum rows for which the subjects of every leaf are counted


class Safeguards(NamedTuple):
    """The protection of what is only known while a table is learned."""

    rows: Callable[[pl.DataFrame, Relations], pl.DataFrame]  # of modelled rows, which rules derive from the table
    schema: Callable[[Schema, pl.DataFrame], Schema]  # of the schema, given the modelled rows
    # Of the leaf parameters, before anything is learned from rows drawn from them.
    leaves: Callable[[Fitted], Fitted] | None = None
    subjects: Counts | None = None  # subject id per row; None: every row is a subject
    leaf_subjects: Counts | None = None  # the same if the leaves of the forest are pruned by subjects
    min_people: int = 0  # per leaf of the boosted trees


Learn = Callable[[pl.DataFrame, Options, Safeguards], Fitted]  # fits a table under safeguards


def fit_release(
    frame: pl.DataFrame,
    policy: ReleasePolicy,
    options: Options,
    seed: int,
    learn: Learn,
    infer: Callable[[pl.DataFrame, Options], Schema],
) -> Fitted:
    """Fit a model under a release policy."""
    _tell_loosened(policy)
    check_shape(frame.schema, frame.height)
    protected = protect(
        frame,
        policy,
        options.kinds,
        options.keys,
        lambda safe: _find_bundles(infer(safe, options)),
        generator(seed, Stage.RELEASE),
    )
    safeguards = Safeguards(
        lambda rows, relations: _protect_gaps(rows, relations, protected, policy),
        round_schema if policy.round_bounds else lambda schema, _: schema,
        lambda fitted: _harden(fitted, policy, protected),
        protected.subjects,
        _units(protected),
        policy.min_leaf,
    )
    options = _safe_options(options, policy, protected)
    # Entities have too few rows for their names to hide anybody: all of them get new ones.
    found = [name for name in entity_names(infer(protected.frame, options)) if name not in options.columns]
    options = replace(options, renew=list(dict.fromkeys([*options.renew, *found])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeyColumnWarning)  # the release report lists detected identifiers
        fitted = learn(protected.frame, options, safeguards)
    # The guard comes last: the ratio is learned against the rows that it judges, before copies are redrawn.
    return replace(fitted, guard=_make_guard(fitted, policy, protected, frame))


def _protect_gaps(
    rows: pl.DataFrame, relations: Relations, protected: Protected, policy: ReleasePolicy
) -> pl.DataFrame:
    """Protect columns that declared rules model by a distance from another column: its extremes can be one person's."""
    people = None if protected.subjects is None else pl.Series(protected.subjects)
    names = [gap.target.name for gap in relations.transforms if gap.is_distance]
    found = {name: protect_numbers(rows[name], people, policy) for name in names}
    clipped: dict[str, int] = protected.effects["values_clipped"]
    clipped.update({name: clipped.get(name, 0) + gap.clipped for name, gap in found.items() if gap.clipped})
    return rows.with_columns([gap.column.alias(name) for name, gap in found.items()])


def _check_combinations(schema: Schema, protected: Protected, policy: ReleasePolicy) -> None:
    """Raise a ReleaseError if the model would store a combination that too few subjects share."""
    for bundle in _find_bundles(schema):
        subject = policy.subject
        people = None if subject is None or protected.subjects is None else pl.Series(protected.subjects)
        if rare_combinations(protected.frame, bundle.levels, people, policy.min_level).any():
            listed = ", ".join(map(repr, bundle.names))
            raise ReleaseError(
                f"release: {listed} are modelled together with rare combinations. Say "
                "bundles=False, or take them out of rules=."
            )


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
    min_leaf = max(options.min_leaf or 0, policy.min_leaf)
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


def _harden(fitted: Fitted, policy: ReleasePolicy, protected: Protected) -> Fitted:
    """Check combinations, shrink leaves towards their parents, and record the effects of the policy."""
    tables = fitted.tables
    _check_combinations(tables.schema, protected, policy)
    effects = {**protected.effects, "smallest_leaf": int(np.min(tables.coverage)), "leaves_hold": "subjects"}
    effects["entities_renewed"] = list(fitted.renewed)
    shrunken_tables = replace(
        shrink_leaves(tables, policy.shrinkage), dependence=_pool_rare_cells(tables.dependence, policy, protected)
    )
    return replace(fitted, tables=shrunken_tables, options={**fitted.options, "release": effects})


def _make_guard(fitted: Fitted, policy: ReleasePolicy, protected: Protected, real: pl.DataFrame) -> CopyGuard | None:
    """Return the guard against copies of real rows, those included that were dropped or changed by the protection."""
    if not policy.forbid_copies:
        return None
    modelled_names = [
        column.name
        for column in fitted.schema.columns
        if column.kind in ("categorical", "numeric") and column.name not in fitted.renewed
    ]
    people = None if policy.subject is None else real[policy.subject].rank("dense").cast(pl.Int64).to_numpy()
    versions = [RealRows(protected.frame, protected.subjects), RealRows(real, people)]
    return make_guard(versions, modelled_names, fitted.schema.keys)


def _pool_rare_cells(dependence: Dependence, policy: ReleasePolicy, protected: Protected) -> Dependence:
    """Return the dependence with cells of too few people treated like empty cells.

    Cells count rows: those of at least `min_level` people have more rows than fewer people can have.
    """
    rows_each = 1 if protected.subjects is None else int(np.bincount(protected.subjects).max(initial=1))
    min_rows = (policy.min_level - 1) * rows_each + 1
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


def tell_if_unguarded(fitted: Fitted) -> None:
    """Warn if the policy of a model forbids copies, but the fingerprints to recognise them are gone."""
    effects = release_report(fitted.options)
    policy = {} if effects is None else effects.get("policy")
    if fitted.guard is None and isinstance(policy, Mapping) and policy.get("forbid_copies"):
        warn_user(
            "release: a loaded model cannot recognise copies of real rows, as their fingerprints are never saved. "
            "Write the rows before saving the model, or limit copies with publish_if=Limits(copies=0.001).",
            ReleaseWarning,
        )


def release_report(options: Any) -> dict[str, Any] | None:
    """Return what the release policy changed in the training data; None without a policy."""
    found = options.get("release")
    return dict(found) if found is not None else None
