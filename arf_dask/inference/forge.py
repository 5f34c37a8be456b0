"""FORGE (paper, Alg. 3): draw synthetic rows from the leaves.

Every training row of every tree has a *position*: rows are numbered leaf by leaf, so that the rows of any leaf or node
are consecutive positions. Drawing a state from a leaf, or from its parent, amounts to drawing a position from that
range and looking up its state. A block of rows is a pure function of (model, block number, seed).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.keys import fresh_keys
from arf_dask.forest.fitted import Fitted
from arf_dask.forest.smoothing import own_share, parent_share
from arf_dask.forest.tables import LeafTables, VariableTables, parent_ranges
from arf_dask.inference.bin_draws import (
    LOOKUP_CELLS,
    Bins,
    BinSamplers,
    bin_samplers,
    draw_child_bins,
    draw_states_in_bins,
    drawn_bins,
)
from arf_dask.runtime.once import OncePerProcess
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.columns import Schema
from arf_dask.schema.encoding import decode_column
from arf_dask.stats.truncated_normal import draw
from arf_dask.typing import Floats, Ints

BLOCK_ROWS = 65_536
States = NDArray[np.unsignedinteger]
_BUILDING = threading.Lock()


class LineSampler(NamedTuple):
    """Truncated normals of one numeric variable. One row per entry whose state is an interval."""

    key: NDArray[np.int64]  # leaf * n_states + state, ascending
    lower: Floats
    upper: Floats
    mu: Floats
    sigma: Floats


class VariableSampler(NamedTuple):
    """Tables for drawing one variable."""

    table: VariableTables
    ends: NDArray[np.int64]  # per entry: position after its last row
    states: States  # per entry
    at: States | None  # per position; None if the model is too large for a lookup table
    own: NDArray[np.uint32]  # per leaf: probability of drawing from the leaf itself, times 2**32
    split: NDArray[np.bool_]  # per leaf: whether its parent splits on this variable
    low: NDArray[np.integer]  # per leaf: its box, in codes
    high: NDArray[np.integer]
    below: NDArray[np.int64]  # per code: number of prior rows with smaller codes, followed by the total
    line: LineSampler | None


class DrawTables(NamedTuple):
    """Precomputed tables for drawing, independent of the rows drawn."""

    weights: Floats  # per leaf
    start: NDArray[np.int64]  # per leaf: position of its first row
    rows: NDArray[np.int64]  # per leaf
    parent_start: NDArray[np.int64]  # per leaf: position of the first row of its parent
    parent_rows: NDArray[np.int64]
    variables: list[VariableSampler]
    bins: BinSamplers  # for the variables on the dependency tree


class Sampler:
    """A model to draw from. Its tables are computed lazily, as many queries do not draw any rows."""

    def __init__(self, fitted: Fitted) -> None:
        self.fitted = fitted
        self.tables, self.relations = fitted.tables, fitted.relations
        self.kept = OncePerProcess()  # what queries found out about the model
        self._ready: DrawTables | None = None

    @property
    def ready(self) -> DrawTables:
        """The precomputed tables, built once under a lock."""
        if self._ready is None:
            with _BUILDING:
                if self._ready is None:
                    self._ready = _draw_tables(self.tables)
        return self._ready

    def with_schema(self, schema: Schema) -> Sampler:
        """Return a sampler that shares the precomputed tables but decodes rows with another schema."""
        new_sampler = Sampler(replace(self.fitted, tables=replace(self.tables, schema=schema)))
        new_sampler._ready = self.ready
        return new_sampler

    @property
    def variables(self) -> list[VariableSampler]:
        """The samplers of all variables."""
        return self.ready.variables

    @property
    def bins(self) -> BinSamplers:
        """The samplers for the bins of the dependency tree."""
        return self.ready.bins


class Drawn(NamedTuple):
    """Drawn values of one variable: states, and axis values where the state is an interval."""

    states: Ints
    places: Floats | None


def _draw_tables(tables: LeafTables) -> DrawTables:
    tree_ranges = [parent_ranges(tree) for tree in tables.trees]
    row_starts = np.concatenate([[0], np.cumsum(tables.coverage)])
    leaf_offset = np.repeat(tables.starts[:-1], np.diff(tables.starts))
    parent_first, parent_last = (
        leaf_offset + np.concatenate([tree_range[side] for tree_range in tree_ranges]) for side in (0, 1)
    )
    split_variable = np.concatenate([tree_range[2] for tree_range in tree_ranges])
    variable_samplers = [_variable_sampler(tables, table, split_variable == table.index) for table in tables.variables]
    leaf_weights = tables.coverage / tables.coverage.sum()
    bin_tables = bin_samplers(tables) if tables.dependence.edges else BinSamplers({}, [])
    parent_range = row_starts[parent_first], row_starts[parent_last] - row_starts[parent_first]
    return DrawTables(leaf_weights, row_starts[:-1], tables.coverage, *parent_range, variable_samplers, bin_tables)


def forge_block(sampler: Sampler, n: int, seed: int, block: int, first_row: int) -> pl.DataFrame:
    """Draw one block of synthetic rows with the columns and dtypes of the training data."""
    rng = generator(seed, Stage.FORGE, block)
    leaf_counts = rng.multinomial(n, sampler.ready.weights)
    row_leaves = np.repeat(np.arange(len(leaf_counts)), leaf_counts)
    drawn_variables = _draw_rows(sampler, row_leaves, rng)
    row_order = rng.permutation(n)
    return assemble(sampler.tables, drawn_variables, row_order, seed, first_row, rng)


def _draw_rows(sampler: Sampler, leaf: NDArray[np.int64], rng: np.random.Generator) -> list[Drawn]:
    """Draw all variables: roots of the dependency tree first, then children given the bins of their parents."""
    child_variables = {edge.child for edge in sampler.bins.edges}
    variable_draws = {
        variable_sampler.table.index: draw_variable(sampler, variable_sampler, leaf, rng)
        for variable_sampler in sampler.variables
        if variable_sampler.table.index not in child_variables
    }
    variable_bins = {
        index: drawn_bins(variable_sampler, *variable_draws[index])
        for index, variable_sampler in sampler.bins.variables.items()
        if index not in child_variables
    }
    for edge in sampler.bins.edges:
        variable_bins[edge.child] = draw_child_bins(edge, leaf, variable_bins[edge.parent], rng)
        variable_draws[edge.child] = draw_in_bins(sampler, edge.child, leaf, variable_bins[edge.child], rng)
    return [variable_draws[index] for index in range(len(sampler.variables))]


def assemble(
    tables: LeafTables,
    drawn: list[Drawn],
    order: NDArray[np.int64],
    seed: int,
    first_row: int,
    rng: np.random.Generator,
) -> pl.DataFrame:
    """Decode states and axis values into columns, in the given row order, and add new identifiers."""
    columns: dict[str, pl.Series] = {}
    for table, (states, places) in zip(tables.variables, drawn, strict=True):
        ordered_states = states[order]
        for member, column in enumerate(table.columns):
            tokens = table.variable.tokens[:, member][ordered_states]
            axis_values = places[order] if places is not None and member == 0 else None
            columns[column.name] = decode_column(column, tokens, axis_values, open_ends=tables.support == "open")
    for column in tables.schema.columns:
        if column.kind == "empty":
            columns[column.name] = pl.Series(column.name, [None], dtype=column.dtype).new_from_index(0, len(order))
    columns |= new_identifiers(tables.schema, len(order), seed, first_row, rng)
    # Build the frame by name: a list of series would rename a column called "".
    return pl.DataFrame({name: columns[name] for name in tables.schema.dtypes})


def new_identifiers(
    schema: Schema, n: int, seed: int, first_row: int, rng: np.random.Generator
) -> dict[str, pl.Series]:
    """Return new identifiers, by column, for `n` rows that start at `first_row` of the whole result."""
    columns = {}
    for position, column in enumerate(schema.columns):
        if column.kind == "key":
            assert column.key is not None
            # Numbered keys form one sequence that does not depend on the seed.
            own_seed = seed if column.key.first is None else 0
            key_seed = int(generator(own_seed, Stage.KEYS, position).integers(2**62))
            columns[column.name] = fresh_keys(column.key, first_row, n, rng, column.name, column.dtype, seed=key_seed)
    return columns


def _variable_sampler(tables: LeafTables, table: VariableTables, split: NDArray[np.bool_]) -> VariableSampler:
    variable, entries = table.variable, table.entries
    own_chance = np.minimum(own_share(tables.coverage, table.strength) * 2.0**32, 2.0**32 - 1).astype(np.uint32)
    use_lookup = tables.coverage.sum() * len(tables.variables) <= LOOKUP_CELLS
    line_sampler = None
    if variable.interval.any():
        interval_entries = np.flatnonzero(variable.interval[entries.state])
        leaf, state = entries.leaf[interval_entries], entries.state[interval_entries]
        entry_keys = leaf.astype(np.int64) * variable.n_states + state
        line_sampler = LineSampler(
            entry_keys, *table.entry_bounds(tables.boxes, leaf, state), entries.mu, entries.sigma
        )
    return VariableSampler(
        table,
        np.cumsum(entries.rows, dtype=np.int64),
        entries.state,
        np.repeat(entries.state, entries.rows) if use_lookup else None,
        own_chance,
        split,
        tables.boxes.low[:, table.index],
        tables.boxes.high[:, table.index],
        np.concatenate([[0], np.cumsum(table.prior_rows)]),
        line_sampler,
    )


def draw_variable(sampler: Sampler, one: VariableSampler, leaf: NDArray[np.int64], rng: np.random.Generator) -> Drawn:
    """Draw one variable for each given leaf."""
    has_one_state = one.table.variable.n_states == 1
    states = np.zeros(len(leaf), dtype=np.int32) if has_one_state else _draw_states(sampler, one, leaf, rng)
    if one.line is None:
        return Drawn(states, None)
    return Drawn(states, draw_places(one, leaf, states, rng))


def draw_in_bins(sampler: Sampler, index: int, leaf: NDArray[np.int64], bins: Bins, rng: np.random.Generator) -> Drawn:
    """Draw one variable for each given leaf, inside the given bin."""
    variable_sampler, bin_sampler = sampler.variables[index], sampler.bins.variables[index]
    states = draw_states_in_bins(bin_sampler, leaf, bins, rng)
    if variable_sampler.line is None:
        return Drawn(states, None)
    return Drawn(
        states, draw_places(variable_sampler, leaf, states, rng, (bin_sampler.low[bins], bin_sampler.high[bins]))
    )


def _draw_states(sampler: Sampler, one: VariableSampler, leaf: NDArray[np.int64], rng: np.random.Generator) -> Ints:
    """Draw a state per row from its leaf, or from the prior: the parent, or the whole column inside the leaf's box."""
    random_words = rng.integers(0, 2**64, len(leaf), dtype=np.uint64)
    uses_prior = np.flatnonzero((random_words & np.uint64(0xFFFFFFFF)) > one.own[leaf])
    draw_tables = sampler.ready
    position = draw_tables.start[leaf] + scaled(random_words >> np.uint64(32), draw_tables.rows[leaf])
    if len(uses_prior):
        prior_leaves = leaf[uses_prior]
        parent_weight = parent_share(draw_tables.parent_rows[prior_leaves], one.table.strength)
        from_column = rng.random(len(uses_prior)) > parent_weight
        from_parent = ~from_column & ~one.split[prior_leaves]
        draws = rng.integers(0, 2**32, len(uses_prior), dtype=np.uint64)
        parent_rows = draw_tables.parent_rows[prior_leaves[from_parent]]
        position[uses_prior[from_parent]] = draw_tables.parent_start[prior_leaves[from_parent]] + scaled(
            draws[from_parent], parent_rows
        )
    if one.at is not None:
        states: Ints = one.at[position].astype(np.int32)
    else:
        states = one.states[np.searchsorted(one.ends, position, side="right")].astype(np.int32)
    if len(uses_prior):
        states[uses_prior[from_column]] = _draw_from_column(one, prior_leaves[from_column], draws[from_column])
    return states


def _draw_from_column(one: VariableSampler, leaf: NDArray[np.int64], draws: NDArray[np.uint64]) -> Ints:
    """Draw a state per row from the training rows of the whole column inside the box of its leaf."""
    rows_below = one.below[one.low[leaf]]
    rows_inside = one.below[one.high[leaf].astype(np.int64) + 1] - rows_below
    drawn_codes = np.searchsorted(one.below, rows_below + scaled(draws, rows_inside), side="right") - 1
    return np.asarray(one.table.state_of_code[drawn_codes])


def scaled(chance: NDArray[np.uint64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Scale 32-bit random integers to the range 0 .. rows - 1."""
    return ((chance * rows.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def draw_places(
    one: VariableSampler,
    leaf: NDArray[np.int64],
    states: Ints,
    rng: np.random.Generator,
    within: tuple[Floats, Floats] | None = None,
) -> Floats:
    """Draw an axis value for every row whose state is an interval, inside the bounds `within` of the row if given."""
    variable, line = one.table.variable, one.line
    assert line is not None
    axis_values = np.zeros(len(leaf))
    interval_rows = np.flatnonzero(variable.interval[states])
    if not len(interval_rows):
        return axis_values
    leaf, states = leaf[interval_rows], states[interval_rows]
    entry_keys = leaf * variable.n_states + states
    entry_index = np.minimum(np.searchsorted(line.key, entry_keys), len(line.key) - 1)
    is_seen = line.key[entry_index] == entry_keys
    uniform_draws = rng.random(len(interval_rows))
    seen_entries = entry_index[is_seen]
    lower, upper = _cut(line.lower[seen_entries], line.upper[seen_entries], interval_rows[is_seen], within)
    axis_values[interval_rows[is_seen]] = draw(
        uniform_draws[is_seen], line.mu[seen_entries], line.sigma[seen_entries], lower, upper
    )
    if not is_seen.all():
        low, high = (side[leaf[~is_seen]].astype(np.int32) for side in (one.low, one.high))
        lower, upper = _cut(*one.table.unseen_bounds(states[~is_seen], low, high), interval_rows[~is_seen], within)
        axis_values[interval_rows[~is_seen]] = lower + uniform_draws[~is_seen] * (upper - lower)
    return axis_values


def _cut(
    lower: Floats, upper: Floats, rows: NDArray[np.int64], within: tuple[Floats, Floats] | None
) -> tuple[Floats, Floats]:
    """Intersect bounds with the bounds `within` of the rows, if given."""
    return (
        (lower, upper) if within is None else (np.maximum(lower, within[0][rows]), np.minimum(upper, within[1][rows]))
    )
