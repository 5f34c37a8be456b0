"""FORGE (paper, Alg. 3): rows from leaves.

Every training row of every tree has a *position*: rows are numbered leaf by leaf, so that the rows of a leaf, and of
any node, are a run of positions. Drawing a state from a leaf, or from its parent, is drawing a position from its run
and looking up the state that holds it. A block of rows is a pure function of (model, block number, seed).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.encode import decode_column, states_of_codes
from arf_dask.keys import fresh_keys
from arf_dask.marginals import draw
from arf_dask.parameters import entry_bounds
from arf_dask.schema import Floats, Ints
from arf_dask.seeds import Stage, generator
from arf_dask.tables import Tables, interval_bounds, parent_ranges, value_edges

BLOCK_ROWS = 65_536
LOOKUP_CELLS = 64_000_000  # positions times variables up to which states are looked up, not searched
States = NDArray[np.unsignedinteger]


class LineSampler(NamedTuple):
    """The normals of one line, one row per entry that is an interval."""

    key: NDArray[np.int64]  # leaf * states + state, ascending
    lower: Floats
    upper: Floats
    mu: Floats
    sigma: Floats


class VariableSampler(NamedTuple):
    """What drawing one variable needs."""

    ends: NDArray[np.int64]  # per entry: the position after its last row
    states: States  # per entry
    at: States | None  # per position, where the model is small enough to say it outright
    own: NDArray[np.uint32]  # per leaf: 32-bit chance of drawing from the leaf itself
    split: NDArray[np.bool_]  # per leaf: the parent splits on this variable
    low: NDArray[np.integer]  # per leaf: the box, in codes
    high: NDArray[np.integer]
    below: NDArray[np.int64]  # per code: training rows with smaller codes; one more at the end
    state_of: Ints  # per code
    line: LineSampler | None


class Sampler(NamedTuple):
    """A model made ready for drawing."""

    tables: Tables
    weights: Floats  # per leaf
    start: NDArray[np.int64]  # per leaf: position of its first row
    rows: NDArray[np.int64]  # per leaf
    parent_start: NDArray[np.int64]  # per leaf: the run of its parent
    parent_rows: NDArray[np.int64]
    variables: list[VariableSampler]


class Drawn(NamedTuple):
    """One variable of a block: states, and places where the state is an interval."""

    states: Ints
    places: Floats | None


def make_sampler(tables: Tables) -> Sampler:
    """Everything that does not depend on the block."""
    ranges = [parent_ranges(tree) for tree in tables.trees]
    start = np.concatenate([[0], np.cumsum(tables.coverage)])
    offset = np.repeat(tables.starts[:-1], np.diff(tables.starts))
    first, last = (offset + np.concatenate([some[side] for some in ranges]) for side in (0, 1))
    split = np.concatenate([some[2] for some in ranges])
    variables = [_variable_sampler(tables, j, split == j) for j in range(len(tables.schema.variables))]
    weights = tables.coverage / tables.coverage.sum()
    return Sampler(tables, weights, start[:-1], tables.coverage, start[first], start[last] - start[first], variables)


def forge_block(sampler: Sampler, n: int, seed: int, block: int, first_row: int) -> pl.DataFrame:
    """One block of synthetic rows, with the columns and dtypes of the training data."""
    rng = generator(seed, Stage.FORGE, block)
    counts = rng.multinomial(n, sampler.weights)
    leaf = np.repeat(np.arange(len(counts)), counts)
    drawn = [draw_variable(sampler, number, leaf, rng) for number in range(len(sampler.variables))]
    order = rng.permutation(n)
    return assemble(sampler.tables, drawn, order, seed, first_row, rng)


def assemble(
    tables: Tables,
    drawn: list[Drawn],
    order: NDArray[np.int64],
    seed: int,
    first_row: int,
    rng: np.random.Generator,
) -> pl.DataFrame:
    """Columns from states and places, in the given order of rows, with fresh identifiers."""
    columns: dict[int, pl.Series] = {}
    for variable, (states, places) in zip(tables.schema.variables, drawn, strict=True):
        shuffled = states[order]
        for member, place in enumerate(variable.columns):
            tokens = variable.tokens[:, member][shuffled]
            at = places[order] if places is not None and member == 0 else None
            columns[place] = decode_column(tables.schema.columns[place], tokens, at, open_ends=tables.support == "open")
    for place, column in enumerate(tables.schema.columns):
        if column.kind == "empty":
            columns[place] = pl.Series(column.name, [None], dtype=column.dtype).new_from_index(0, len(order))
        elif column.kind == "key":
            assert column.key is not None
            key_seed = int(generator(seed, Stage.KEYS, place).integers(2**62))
            columns[place] = fresh_keys(
                column.key, first_row, len(order), rng, column.name, column.dtype, seed=key_seed
            )
    # By name: a list of series would rename a column called "".
    return pl.DataFrame({column.name: columns[place] for place, column in enumerate(tables.schema.columns)})


def _variable_sampler(tables: Tables, number: int, split: NDArray[np.bool_]) -> VariableSampler:
    variable, entries = tables.schema.variables[number], tables.entries[number]
    strength = float(tables.strengths[number])
    own = np.minimum(tables.coverage / (tables.coverage + strength) * 2.0**32, 2.0**32 - 1).astype(np.uint32)
    lookup = tables.coverage.sum() * len(tables.entries) <= LOOKUP_CELLS
    line = None
    if variable.interval.any():
        found = np.flatnonzero(variable.interval[entries.state])
        leaf, state = entries.leaf[found], entries.state[found]
        key = leaf.astype(np.int64) * variable.n_states + state
        line = LineSampler(key, *entry_bounds(tables, number, leaf, state), entries.mu, entries.sigma)
    return VariableSampler(
        np.cumsum(entries.rows, dtype=np.int64),
        entries.state,
        np.repeat(entries.state, entries.rows) if lookup else None,
        own,
        split,
        tables.boxes.low[:, number],
        tables.boxes.high[:, number],
        np.concatenate([[0], np.cumsum(tables.histograms[number])]),
        states_of_codes(variable),
        line,
    )


def draw_variable(sampler: Sampler, number: int, leaf: NDArray[np.int64], rng: np.random.Generator) -> Drawn:
    """States, and places where they are intervals, of one variable: a row for every leaf given."""
    here, variable = sampler.variables[number], sampler.tables.schema.variables[number]
    one = variable.n_states == 1
    states = np.zeros(len(leaf), dtype=np.int32) if one else _draw_states(sampler, here, leaf, rng)
    if here.line is None:
        return Drawn(states, None)
    return Drawn(states, draw_places(sampler, number, leaf, states, rng))


def _draw_states(sampler: Sampler, here: VariableSampler, leaf: NDArray[np.int64], rng: np.random.Generator) -> Ints:
    """A state per row: mostly from the row's leaf, now and then from its parent or from the column in its box."""
    words = rng.integers(0, 2**64, len(leaf), dtype=np.uint64)
    strayed = np.flatnonzero((words & np.uint64(0xFFFFFFFF)) > here.own[leaf])
    position = sampler.start[leaf] + scaled(words >> np.uint64(32), sampler.rows[leaf])
    if len(strayed):
        home = leaf[strayed]
        parent_rows = sampler.parent_rows[home]
        # own = rows / (rows + s), hence s = rows * (1 / own - 1): the parent's weight follows from it.
        strength = sampler.rows[home] * (2.0**32 / here.own[home] - 1)
        to_column = rng.random(len(strayed)) > parent_rows / (parent_rows + strength)
        to_parent = strayed[~to_column & ~here.split[home]]
        draws = rng.integers(0, 2**32, len(strayed), dtype=np.uint64)
        parent = leaf[to_parent]
        chance = draws[~to_column & ~here.split[home]]
        position[to_parent] = sampler.parent_start[parent] + scaled(chance, sampler.parent_rows[parent])
    if here.at is not None:
        states: Ints = here.at[position].astype(np.int32)
    else:
        states = here.states[np.searchsorted(here.ends, position, side="right")].astype(np.int32)
    if len(strayed):
        home = home[to_column]
        below = here.below[here.low[home]]
        inside = here.below[here.high[home].astype(np.int64) + 1] - below
        code = np.searchsorted(here.below, below + scaled(draws[to_column], inside), side="right") - 1
        states[strayed[to_column]] = here.state_of[code]
    return states


def scaled(chance: NDArray[np.uint64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Whole numbers 0 .. rows - 1 from 32-bit chances."""
    return ((chance * rows.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def draw_places(
    sampler: Sampler, number: int, leaf: NDArray[np.int64], states: Ints, rng: np.random.Generator
) -> Floats:
    """A number for every row whose state is an interval."""
    variable, here = sampler.tables.schema.variables[number], sampler.variables[number]
    line = here.line
    assert line is not None
    places = np.zeros(len(leaf))
    rows = np.flatnonzero(variable.interval[states])
    if not len(rows):
        return places
    leaf, states = leaf[rows], states[rows]
    key = leaf * variable.n_states + states
    entry = np.minimum(np.searchsorted(line.key, key), len(line.key) - 1)
    known = line.key[entry] == key
    chance = rng.random(len(rows))
    index = entry[known]
    places[rows[known]] = draw(chance[known], line.mu[index], line.sigma[index], line.lower[index], line.upper[index])
    if not known.all():
        # An interval that the leaf itself never saw is uniform inside its box and the range seen.
        edges = value_edges(variable, sampler.tables.schema, "observed")
        low, high = here.low[leaf[~known]].astype(np.int32), here.high[leaf[~known]].astype(np.int32)
        lower, upper = interval_bounds(variable, edges, states[~known], low, high)
        places[rows[~known]] = lower + chance[~known] * (upper - lower)
    return places
