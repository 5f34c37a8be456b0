"""Relaxation of impossible conditions: drop variables one at a time until the condition is possible.

Among the variables whose removal makes a condition possible, the one that leaves the largest density is dropped; if
there is none, the variable with the smallest marginal probability is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from arf_dask.data.value_sets import Box
from arf_dask.forest.tables import LeafTables
from arf_dask.inference.conditions import Conjunction, read_box
from arf_dask.inference.known_rows import KnownRows, KnownVariable, Rows, forget, into_range
from arf_dask.inference.posteriors import RowDensities, log_probability, row_densities, row_log_density
from arf_dask.typing import Flags, Floats

Scalar = TypeVar("Scalar", bound=np.generic)


def relax_rows(
    tables: LeafTables, known: KnownRows, densities: RowDensities, conjunction: Conjunction | None = None
) -> tuple[KnownRows, RowDensities]:
    """Relax impossible rows; return the known values of all rows and their densities.

    Numbers beyond the training range are first clipped to it, which may suffice. A dropped variable no longer
    contributes to the density, but the row is first restricted to the leaves that contain its value; this restriction
    is lifted only if the row is still impossible.
    """
    impossible_rows = np.flatnonzero(np.isneginf(densities.total()))
    if not len(impossible_rows):
        return known, densities
    none_freed = np.zeros((len(impossible_rows), len(tables.variables)), dtype=bool)
    relaxed_rows = _give_up(tables, into_range(forget(known, impossible_rows, none_freed, tables), tables), conjunction)
    new_densities = row_densities(tables, relaxed_rows, conjunction or {}, unknown_only=True)
    by_batch = [
        _replaced(old_logs, impossible_rows, new_logs)
        for old_logs, new_logs in zip(densities.by_batch, new_densities.by_batch, strict=True)
    ]
    return _with_rows(known, impossible_rows, relaxed_rows), RowDensities(by_batch)


def possible_part(tables: LeafTables, alternatives: Sequence[Box]) -> tuple[Conjunction, Box]:
    """Return the relaxed conjunction with the largest probability, and the alternative it comes from."""
    conjunctions = [read_box(box, tables.schema) for box in alternatives]
    while True:
        is_constrained = np.array(
            [
                [bool(conjunction.keys() & set(schema_variable.columns)) for schema_variable in tables.schema.variables]
                for conjunction in conjunctions
            ]
        )
        logs_without, logs_alone = (
            _log_parts(tables, conjunctions, is_constrained, only=only) for only in (False, True)
        )
        dropped_variable, is_possible = choose_variable(logs_without, logs_alone, is_constrained)
        if is_possible.any():
            best_index = int(np.where(is_constrained, logs_without, -np.inf).max(axis=1).argmax())
            return _part(tables, conjunctions[best_index], int(dropped_variable[best_index])), alternatives[best_index]
        conjunctions = [
            _part(tables, conjunction, int(variable))
            for conjunction, variable in zip(conjunctions, dropped_variable, strict=True)
        ]


def choose_variable(without: Floats, alone: Floats, known: Flags) -> tuple[NDArray[np.int64], Flags]:
    """Choose the variable to drop for each condition; also return whether the condition is then possible.

    Args:
        without: (condition, variable): the log density of the condition without that variable.
        alone: (condition, variable): the log density of that variable alone.
        known: (condition, variable): whether the condition constrains that variable.
    """
    without = np.where(known, without, -np.inf)
    is_possible = without.max(axis=1) > -np.inf
    least_probable = np.where(known, alone, np.inf).argmin(axis=1)
    return np.where(is_possible, without.argmax(axis=1), least_probable), is_possible


def _give_up(tables: LeafTables, known: KnownRows, conjunction: Conjunction | None) -> KnownRows:
    """Drop one variable at a time until every row is possible."""
    all_rows = np.arange(known.n_rows)
    row_logs = row_log_density(tables, known, [conjunction or {}], unknown_only=True)
    for _ in tables.variables:
        impossible_rows = np.flatnonzero(np.isneginf(row_logs))
        if not len(impossible_rows):
            break
        is_known = np.stack(
            [known_variable.pattern[impossible_rows] >= 0 for known_variable in known.variables], axis=1
        )
        logs_staying, logs_freed, logs_alone = (
            _log_trials(tables, known, impossible_rows, conjunction, others=others, stay=stay)
            for others, stay in ((True, True), (True, False), (False, False))
        )
        (dropped_variable, is_saved), (freed_variable, _) = (
            choose_variable(logs_staying, logs_alone, is_known),
            choose_variable(logs_freed, logs_alone, is_known),
        )
        dropped_variable = np.where(is_saved, dropped_variable, freed_variable)
        for chosen_rows, stay in ((is_saved, True), (~is_saved, False)):
            freed_cells = np.zeros((known.n_rows, len(tables.variables)), dtype=bool)
            freed_cells[impossible_rows[chosen_rows], dropped_variable[chosen_rows]] = True
            known = forget(known, all_rows, freed_cells, tables, stay=stay)
        row_logs = row_logs.copy()
        logs_staying, logs_freed = np.where(is_known, logs_staying, -np.inf), np.where(is_known, logs_freed, -np.inf)
        row_logs[impossible_rows] = np.where(is_saved, logs_staying.max(axis=1), logs_freed.max(axis=1))
    return known


def _log_trials(
    tables: LeafTables, known: KnownRows, dead: Rows, conjunction: Conjunction | None, *, others: bool, stay: bool
) -> Floats:
    """Return log densities (row, variable) of rows without that variable, or with it alone if not `others`."""
    n_variables = len(tables.variables)
    one_variable = np.tile(np.eye(n_variables, dtype=bool), (len(dead), 1))
    trial_rows = forget(
        known, np.repeat(dead, n_variables), one_variable if others else ~one_variable, tables, stay=stay
    )
    return row_log_density(tables, trial_rows, [conjunction or {}], unknown_only=True).reshape(len(dead), n_variables)


def _with_rows(known: KnownRows, rows: Rows, new: KnownRows) -> KnownRows:
    """Replace the known values of `rows` by `new`, which has the same entries."""
    variables = [
        KnownVariable(
            new_variable.patterns, _replaced(old_variable.pattern, rows, new_variable.pattern), old_variable.entry
        )
        for old_variable, new_variable in zip(known.variables, new.variables, strict=True)
    ]
    low, high = _replaced(known.low, rows, new.low), _replaced(known.high, rows, new.high)
    return KnownRows(known.n_rows, low, high, variables, False, _replaced(known.possible, rows, new.possible))


def _replaced(array: NDArray[Scalar], rows: Rows, values: NDArray[Scalar]) -> NDArray[Scalar]:
    array = array.copy()
    array[rows] = values
    return array


def _log_parts(tables: LeafTables, found: Sequence[Conjunction], known: Flags, *, only: bool) -> Floats:
    """Return log probabilities (conjunction, variable) without that variable, or of it alone if `only`."""
    log_probabilities = np.full(known.shape, -np.inf)
    for row, variable in zip(*np.nonzero(known), strict=True):
        part = _part(tables, found[row], int(variable), only=only)
        log_probabilities[row, variable] = log_probability(tables, [part])
    return log_probabilities


def _part(tables: LeafTables, conjunction: Conjunction, variable: int, *, only: bool = False) -> Conjunction:
    """Return a conjunction without the columns of one variable, or with these columns only."""
    columns = tables.schema.variables[variable].columns
    return {position: allowed for position, allowed in conjunction.items() if (position in columns) == only}
