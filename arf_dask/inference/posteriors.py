"""Leaf weights under a condition, probabilities, and posterior distributions of the variables.

A condition is a list of disjoint conjunctions (conditions.py). Inside a leaf, the probability of a conjunction is the
product over its variables of the sum over their ranges (tree_batches.py); the weight of a leaf is its coverage times
that probability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from arf_dask.forest.dependence import count_bins
from arf_dask.forest.tables import LeafTables, VariableTables
from arf_dask.inference.bin_knowledge import BinSpread, is_tilted, log_condition_factors, range_shares, tilted_shares
from arf_dask.inference.conditions import Conjunction
from arf_dask.inference.known_rows import KnownRows, KnownVariable, Rows
from arf_dask.inference.messages import inward
from arf_dask.inference.row_leaves import Pairs, find_pairs
from arf_dask.inference.row_weights import RowIndex, SlotWeights, batch_weights, index_rows, log_weights
from arf_dask.inference.state_ranges import StateRanges, VariableRanges, allowed_states, find_ranges
from arf_dask.inference.tree_batches import TreeBatch, VariableView, tree_batch
from arf_dask.runtime.tasks import Threads
from arf_dask.stats.log_sums import add_log_sums, log_sum, run_starts
from arf_dask.typing import Floats

KEPT_PAIRS = 16_000_000  # maximum number of pairs kept in memory: 256 MB


class Posterior(NamedTuple):
    """The posterior distribution of one variable, one row per condition.

    All entries are zero if the condition is impossible. For a variable that consists of a single numeric column
    (`VariableTables.is_number`), only the sums that its mean requires are computed.
    """

    states: Floats  # (row, state): probabilities; for a number: (row, 1), probability that it is not missing
    moments: Floats  # (row, interval state): probability times mean axis value; for a number: (row, 1), over all states


class WeightedPairs(NamedTuple):
    """(row, leaf) pairs of one tree batch with their log weights."""

    row: NDArray[np.integer]
    leaf: NDArray[np.integer]
    logs: Floats


class RowDensities(NamedTuple):
    """Log densities by row and tree batch."""

    by_batch: list[Floats]
    pairs: Sequence[
        list[WeightedPairs] | None
    ] = ()  # per batch: its weighted pairs, None if there were too many to keep

    def total(self) -> Floats:
        """Log density per row over all batches, summed in batch order so that it does not depend on the other rows."""
        row_totals = self.by_batch[0]
        for batch_logs in self.by_batch[1:]:
            row_totals = np.logaddexp(row_totals, batch_logs)
        return row_totals


def leaf_weights(tables: LeafTables, conjunction: Conjunction) -> Floats:
    """Return, per leaf of all trees, the log of its coverage times the probability of the conjunction inside it."""
    shared = tables, find_ranges(tables, conjunction)
    return np.concatenate(list(Threads().map(_leaf_weights, shared, range(tables.n_batches))))


def log_probability(tables: LeafTables, conjunctions: Sequence[Conjunction]) -> float:
    """Return the log probability of a condition, or its log density if it fixes continuous values."""
    totals = [float(log_sum(leaf_weights(tables, conjunction))) for conjunction in conjunctions]
    return float(log_sum(np.array(totals)))


def row_log_density(
    tables: LeafTables, known: KnownRows, conjunctions: Sequence[Conjunction] = ({},), *, unknown_only: bool = False
) -> Floats:
    """Return the joint log density of each row's known values and the condition; -inf if impossible."""
    logs = [
        row_densities(tables, known, conjunction, unknown_only=unknown_only).total() for conjunction in conjunctions
    ]
    return logs[0] if len(logs) == 1 else log_sum(np.stack(logs, axis=-1))


def row_densities(
    tables: LeafTables, known: KnownRows, conjunction: Conjunction, *, unknown_only: bool = False, keep: bool = False
) -> RowDensities:
    """Return, per tree batch and row, the joint log density of the row's known values and a conjunction.

    Args:
        tables: the model.
        known: the known values of the rows.
        conjunction: an additional condition on all rows.
        unknown_only: apply the conjunction only to variables that are not fully known in a row.
        keep: whether to keep the pair weights for later use, up to `KEPT_PAIRS`.
    """
    row_index = index_rows(tables, known, find_ranges(tables, conjunction), unknown_only=unknown_only)
    batch_logs, kept_pairs, pairs_left = [], [], KEPT_PAIRS if keep else 0
    for row_logs, pairs in Threads().map(_batch_densities, (tables, row_index, keep), range(tables.n_batches)):
        batch_logs.append(row_logs)
        pairs_left -= sum(len(part.logs) for part in pairs)
        kept_pairs.append(pairs if pairs_left > 0 else None)
    return RowDensities(batch_logs, kept_pairs)


def posteriors(tables: LeafTables, conjunctions: Sequence[Conjunction], wanted: Sequence[int]) -> dict[int, Posterior]:
    """Return the posteriors of the `wanted` variables under one condition, by variable index, with one row each."""
    log_total = log_probability(tables, conjunctions)
    posterior_sums: dict[int, Posterior] = {}
    for conjunction in conjunctions:
        shared = tables, find_ranges(tables, conjunction), wanted, log_total
        for batch_posteriors in Threads().map(_batch_posteriors, shared, range(tables.n_batches)):
            posterior_sums = _added(posterior_sums, batch_posteriors)
    return posterior_sums


def row_posteriors(
    tables: LeafTables, known: KnownRows, wanted: Mapping[int, Rows], conjunction: Conjunction | None = None
) -> tuple[RowDensities, dict[int, Posterior]]:
    """Return the log densities of rows, and posteriors of variables that are unknown or partially known in them.

    Args:
        tables: the model.
        known: the known values of the rows.
        wanted: by variable, the requested rows in ascending order; its posterior has one row for each.
        conjunction: a condition on whole states that applies to the unknown variables of each row.
    """
    row_index = index_rows(tables, known, find_ranges(tables, conjunction or {}), unknown_only=True)
    position = {variable: _positions(rows, known.variables[variable]) for variable, rows in wanted.items()}
    running_total, by_batch = np.full(known.n_rows, -np.inf), []
    posterior_sums = {
        variable: np.zeros((len(rows), _width(tables.variables[variable]))) for variable, rows in wanted.items()
    }
    unknown_rows = {variable: rows for variable, rows in wanted.items() if (position[variable] >= 0).any()}
    shared = tables, row_index, unknown_rows, position
    for batch_logs, batch_sums in Threads().map(_batch_row_posteriors, shared, range(tables.n_batches)):
        # Update the running average: a batch's posterior is weighted by the density of the row in that batch.
        new_total = np.logaddexp(running_total, batch_logs)
        with np.errstate(invalid="ignore"):
            old_share, batch_share = (np.nan_to_num(np.exp(part - new_total)) for part in (running_total, batch_logs))
        for variable, rows in unknown_rows.items():
            posterior_sums[variable] *= old_share[rows, None]
            posterior_sums[variable] += batch_sums[variable] * batch_share[rows, None]
        running_total = new_total
        by_batch.append(batch_logs)
    agreeing = {
        variable: _agreeing(tables.variables[variable], known.variables[variable], rows, posterior_sums[variable])
        for variable, rows in wanted.items()
    }
    return RowDensities(by_batch), agreeing


def batch_leaf_weights(batch: TreeBatch, ranges: VariableRanges) -> Floats:
    """Return, per leaf of one tree batch, the log of its coverage times the probability of the ranges."""
    logs = batch.log_coverage.copy()
    for index, variable_ranges in ranges.items():
        logs += log_sum(batch.variables[index].log_masses(variable_ranges))
    if len(ranges) > 1 and batch.dependence.dependence.edges:
        logs += log_condition_factors(batch, ranges)
    return logs


def _leaf_weights(shared: tuple[LeafTables, VariableRanges], batch: int) -> Floats:
    tables, ranges = shared
    return batch_leaf_weights(tree_batch(tables, batch), ranges)


def _batch_densities(shared: tuple[LeafTables, RowIndex, bool], number: int) -> tuple[Floats, list[WeightedPairs]]:
    tables, index, keep = shared
    batch = tree_batch(tables, number)
    weights = batch_weights(batch, index)
    row_totals = np.full(index.known.n_rows, -np.inf)
    kept_pairs = []
    for pairs in find_pairs(batch, index.known, index.code_ranges):
        pair_logs = log_weights(batch, index, weights, pairs)
        add_log_sums(row_totals, pair_logs, pairs.row)
        if keep:
            kept_pairs.append(WeightedPairs(pairs.row.astype(np.int32), pairs.leaf.astype(np.int32), pair_logs))
    return row_totals, kept_pairs


def _batch_posteriors(
    shared: tuple[LeafTables, VariableRanges, Sequence[int], float], number: int
) -> dict[int, Posterior]:
    tables, ranges, wanted, total = shared
    batch = tree_batch(tables, number)
    leaf_logs = batch_leaf_weights(batch, ranges)
    leaf_shares = np.exp(leaf_logs - total) if np.isfinite(total) else np.zeros(len(leaf_logs))
    spread = BinSpread(batch, None, ranges)
    return {index: _weighted_posterior(spread, index, leaf_shares) for index in wanted}


def _weighted_posterior(spread: BinSpread, index: int, weights: Floats) -> Posterior:
    """Return the posterior of a variable over the leaves of a batch, given leaf weights and the condition."""
    batch, condition = spread.batch, spread.narrowed
    view = batch.variables[index]
    variable = view.variable
    if is_tilted(batch, index, condition):
        ranges, range_probabilities = tilted_shares(spread, index)
    elif index in condition:
        ranges = condition[index]
        range_probabilities = range_shares(view, ranges)
    else:
        return _split((weights @ _leaf_table(view, None))[None, :], view.table)
    positive_leaves = np.flatnonzero(weights > 0)
    state_sums = np.bincount(
        ranges.state, weights[positive_leaves] @ range_probabilities[positive_leaves], variable.n_states
    ).astype(np.float64)
    range_moments = np.einsum(
        "l,lc,lc->c",
        weights[positive_leaves],
        range_probabilities[positive_leaves],
        view.range_means(ranges)[positive_leaves],
    )
    state_moments = np.bincount(ranges.state, range_moments, variable.n_states).astype(np.float64)[variable.interval]
    if view.table.is_number:
        number_values = view.number_values()
        return Posterior(
            (state_sums @ number_values[:, :1])[None, :],
            (state_sums @ number_values[:, 1:] + state_moments.sum())[None, :],
        )
    return Posterior(state_sums[None, :], state_moments[None, :])


def _leaf_table(view: VariableView, ranges: StateRanges | None) -> Floats:
    """One row per leaf: the terms of the variable's posterior, restricted to the whole states in `ranges`."""
    if view.table.is_number:
        return view.number_sums(allowed_states(view.variable, ranges))
    state_shares = view.allowed_probabilities(ranges)
    return np.hstack([state_shares, state_shares[:, view.variable.interval] * view.interval_means])


def _batch_row_posteriors(
    shared: tuple[LeafTables, RowIndex, Mapping[int, Rows], Mapping[int, Rows]], number: int
) -> tuple[Floats, dict[int, Floats]]:
    """Return the log density of each row in a batch, and by variable the posterior conditional on the batch."""
    tables, index, wanted, position = shared
    batch = tree_batch(tables, number)
    weights = batch_weights(batch, index)
    bin_tables = {
        variable: _bin_tables(batch.variables[variable], index.narrowed.get(variable))
        for variable in wanted
        if batch.variables[variable].bins is not None
    }
    leaf_tables = {
        variable: _leaf_table(batch.variables[variable], index.narrowed.get(variable))
        for variable in wanted
        if variable not in bin_tables
    }
    row_totals = np.full(index.known.n_rows, -np.inf)
    posterior_sums = {
        variable: np.zeros((len(rows), _width(tables.variables[variable]))) for variable, rows in wanted.items()
    }
    for pairs in find_pairs(batch, index.known, index.code_ranges):
        pair_logs = log_weights(batch, index, weights, pairs)
        add_log_sums(row_totals, pair_logs, pairs.row)
        finite_pairs = np.flatnonzero(np.isfinite(pair_logs))
        pairs, pair_logs = pairs.take(finite_pairs), pair_logs[finite_pairs] - row_totals[pairs.row[finite_pairs]]
        for variable in wanted:
            wanted_pairs = np.flatnonzero(position[variable][pairs.row] >= 0)
            variable_pairs = pairs.take(wanted_pairs)
            pair_weights = _given_known(
                index, weights.variables[variable], variable, variable_pairs, pair_logs[wanted_pairs]
            )
            row_positions = position[variable][variable_pairs.row]
            if variable not in bin_tables:
                _add_product(
                    posterior_sums[variable], leaf_tables[variable], row_positions, variable_pairs.leaf, pair_weights
                )
                continue
            bin_weights = pair_weights[:, None] * _tilt(batch, index, weights.spread, variable, variable_pairs)
            for number, (columns, bin_table) in enumerate(bin_tables[variable]):
                _add_product(
                    posterior_sums[variable],
                    bin_table,
                    row_positions,
                    variable_pairs.leaf,
                    bin_weights[:, number],
                    columns,
                )
    return row_totals, posterior_sums


def _given_known(index: RowIndex, weight: SlotWeights, variable: int, pairs: Pairs, logs: Floats) -> Floats:
    """Return pair weights without the factor of a variable's own evidence, which its posterior includes again."""
    slots = index.slots[variable]
    logs = logs - np.log(weight.chances(slots, pairs))
    if weight.free is not None:
        logs -= np.where(slots.of_row[pairs.row] == slots.unknown, weight.free[pairs.leaf], 0.0)
    return np.asarray(np.exp(logs))


def _add_product(
    sums: Floats, table: Floats, position: Rows, leaf: Rows, weights: Floats, columns: Rows | None = None
) -> None:
    """Add weighted leaf tables to the rows at `position` (ascending), in all columns or in `columns`.

    Computed as one product with a sparse (row, leaf) matrix.
    """
    run_firsts = run_starts(position)
    sparse_weights = csr_array(
        (weights, leaf, np.append(run_firsts, len(position))), shape=(len(run_firsts), len(table))
    )
    if columns is None:
        sums[position[run_firsts]] += sparse_weights @ table
    else:
        sums[np.ix_(position[run_firsts], columns)] += sparse_weights @ table


def _tilt(batch: TreeBatch, index: RowIndex, spread: BinSpread, of: int, pairs: Pairs) -> Floats:
    """Return the factor (pair, bin) by which evidence on other variables changes the probability of each bin."""
    assert index.bins is not None
    bin_messages = inward(batch.dependence, index.bins, spread, pairs.row, pairs.leaf, of)
    message_totals = np.einsum("pb,pb->p", spread(of, pairs.row, pairs.leaf), bin_messages)
    return np.asarray(bin_messages / np.where(message_totals > 0, message_totals, 1.0)[:, None])


def _bin_tables(view: VariableView, ranges: StateRanges | None) -> list[tuple[Rows, Floats]]:
    """Return, per bin, column indices of `_leaf_table` and the contribution of the bin's ranges, one row per leaf."""
    assert view.bins is not None
    binned_ranges = view.cut_at_bins(ranges)
    masses, means = np.exp(view.log_masses(binned_ranges.ranges)), view.range_means(binned_ranges.ranges)
    number_values = view.number_values() if view.table.is_number else np.empty((0, 2))
    bin_tables = []
    for bin_index in range(count_bins(view.bins)):
        bin_ranges = np.flatnonzero(binned_ranges.bin == bin_index)
        state, bin_masses = binned_ranges.ranges.state[bin_ranges], masses[:, bin_ranges]
        if view.table.is_number:
            moment = bin_masses @ number_values[state, 1] + (bin_masses * means[:, bin_ranges]).sum(axis=1)
            bin_tables.append((np.arange(2), np.stack([bin_masses @ number_values[state, 0], moment], axis=1)))
            continue
        interval_ranges = np.flatnonzero(view.variable.interval[state])
        table_columns = np.concatenate(
            [state, view.variable.n_states + state[interval_ranges] - view.variable.first_interval]
        )
        bin_tables.append(
            (
                table_columns.astype(np.int64),
                np.hstack([bin_masses, bin_masses[:, interval_ranges] * means[:, bin_ranges[interval_ranges]]]),
            )
        )
    return bin_tables


def _positions(rows: Rows, known: KnownVariable) -> Rows:
    """Return the position of each row in `rows`; -1 if it is absent or the variable is fully known."""
    row_positions = np.full(len(known.pattern), -1, dtype=np.int64)
    row_positions[rows] = np.arange(len(rows))
    for pattern_index, known_pattern in enumerate(known.patterns):
        if known_pattern.groups is None:
            row_positions[known.rows_of(pattern_index)] = -1
    return row_positions


def _agreeing(table: VariableTables, known: KnownVariable, rows: Rows, sums: Floats) -> Posterior:
    """Return the posterior with zero probability for states that contradict the row's known values."""
    posterior = _split(sums, table)
    for pattern_index, known_pattern in enumerate(known.patterns):
        pattern_rows = np.flatnonzero(known.pattern[rows] == pattern_index)
        if known_pattern.groups is not None:
            row_groups = known_pattern.point[known.entry[rows[pattern_rows]]]
            state_agrees = known_pattern.groups[None, :] == row_groups[:, None]
            posterior.states[pattern_rows] *= state_agrees
            posterior.moments[pattern_rows] *= state_agrees[:, table.variable.interval]
    return posterior


def _width(table: VariableTables) -> int:
    """Return the number of columns of `_leaf_table`."""
    return 2 if table.is_number else table.variable.n_states + int(table.variable.interval.sum())


def _split(sums: Floats, table: VariableTables) -> Posterior:
    """Split sums over the columns of `_leaf_table` into a posterior."""
    n_states = 1 if table.is_number else table.variable.n_states
    return Posterior(sums[:, :n_states], sums[:, n_states:])


def _added(sums: dict[int, Posterior], part: dict[int, Posterior]) -> dict[int, Posterior]:
    if not sums:
        return part
    return {index: Posterior(*(a + b for a, b in zip(sums[index], part[index], strict=True))) for index in part}
