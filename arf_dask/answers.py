"""Expectations, quantiles and cumulative probabilities of columns, from what is believed of their variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.axis import FLOATS, nameless
from arf_dask.conditions import Piece, Span, parse
from arf_dask.density import condition_evidence, condition_frame, impossible
from arf_dask.encode import decode_column
from arf_dask.errors import OptionError, unknown_column
from arf_dask.evidence import Evidence, Rows
from arf_dask.frames import is_frame
from arf_dask.leaves import Cells, all_cells, compile_piece, is_number, view_stand
from arf_dask.marginals import log_weight
from arf_dask.query import Belief, beliefs, log_probability, row_beliefs, view_weights
from arf_dask.schema import FIRST_LEVEL, Column, Floats, Schema
from arf_dask.tables import Tables
from arf_dask.tasks import Threads

HALVINGS = 60
EPSILON = 1e-12
NEGLIGIBLE = 1e-18


class Asked(NamedTuple):
    """Beliefs, one row per condition, and the values that the conditions fix outright."""

    beliefs: dict[int, Belief]
    fixed: pl.DataFrame | None  # the frame of conditions; null: not known
    n_rows: int


def expect(tables: Tables, columns: Sequence[str] | None, given: Any, level_probabilities: bool) -> pl.DataFrame:
    """One row per condition: the mean of numbers, the most probable level of others (or the table of all levels)."""
    names = checked_columns(tables.schema, columns)
    asked = ask(tables, names, given)
    if level_probabilities:
        return _level_table(tables, names, asked, is_frame(given))
    series = {}
    for name in names:
        column, found = tables.schema.columns[tables.schema.names.index(name)], tables.schema.variable_of(name)
        if found is None:
            series[name] = pl.Series(name, [None] * asked.n_rows, dtype=column.dtype)
            continue
        value = _expected(tables, column, found, asked)
        if asked.fixed is not None and name in asked.fixed.columns:
            value = _fill(value, asked.fixed[name])
        series[name] = value
    return pl.DataFrame(series)


def ask(tables: Tables, names: Sequence[str], given: Any) -> Asked:
    """What is believed of the variables of these columns."""
    numbers = sorted({found[0] for name in names if (found := tables.schema.variable_of(name)) is not None})
    if is_frame(given):
        evidence = condition_evidence(tables, given)
        everyone = np.arange(evidence.n_rows)
        logs, believed = row_beliefs(tables, evidence, dict.fromkeys(numbers, everyone))
        if (dead := np.flatnonzero(np.isneginf(logs.total()))).size:
            raise impossible(given, int(dead[0]))
        known_states(tables.schema, evidence, believed, dict.fromkeys(numbers, everyone))
        return Asked(believed, condition_frame(given, tables.schema), evidence.n_rows)
    pieces: list[Piece] = [{}] if given is None else parse(given, tables.schema)
    if np.isneginf(log_probability(tables, pieces)):
        raise impossible(given)
    return Asked(beliefs(tables, pieces, numbers), None, 1)


def known_states(schema: Schema, evidence: Evidence, found: Mapping[int, Belief], wanted: Mapping[int, Rows]) -> None:
    """Set probability one where a row knows its state: columns read off a line need it."""
    for number, belief in found.items():
        if is_number(schema, schema.variables[number]):
            continue
        rows = wanted[number]
        for pattern, part in enumerate(evidence.known[number]):
            if part.groups is not None:
                continue
            at = np.flatnonzero(evidence.pattern[number][rows] == pattern)
            entry = evidence.entry[number][rows[at]]
            state = part.point[entry]
            if part.interval is not None:
                state = np.where(state >= 0, state, part.interval[entry])
            belief.states[at[state >= 0], state[state >= 0]] = 1.0


def checked_columns(schema: Schema, columns: Sequence[str] | None) -> list[str]:
    """Names of columns, all that are modelled if None."""
    if columns is None:
        return [column.name for column in schema.columns if column.kind != "key"]
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in schema.names:
            raise unknown_column(name, schema.names, "columns")
        if schema.columns[schema.names.index(name)].kind == "key":
            raise OptionError(f"columns: {name!r} is an identifier and not modelled. Leave it out.")
    return names


def token_shares(tables: Tables, found: tuple[int, int], belief: Belief) -> Floats:
    """(row, token): the probability of every token of a column."""
    tokens = tables.schema.variables[found[0]].tokens[:, found[1]]
    shares = np.zeros((len(belief.states), int(tokens.max()) + 1))
    np.add.at(shares.T, tokens, belief.states.T)
    return shares


def mean_places(tables: Tables, column: Column, found: tuple[int, int], belief: Belief) -> Floats:
    """Per row: the mean place on the axis, given that there is a number; NaN where there is none."""
    number, member = found
    variable = tables.schema.variables[number]
    if is_number(tables.schema, variable):
        numbers, total = belief.states[:, 0], belief.moments[:, 0]
    else:
        tokens = variable.tokens[:, member]
        points = (tokens >= FIRST_LEVEL) & (tokens < column.between)
        numbers = belief.states[:, tokens >= FIRST_LEVEL].sum(axis=1)
        total = belief.states[:, points] @ column.points[tokens[points] - FIRST_LEVEL]
        if member == 0:
            total = total + belief.moments.sum(axis=1)
    return np.where(numbers > 0, total / np.where(numbers > 0, numbers, 1.0), np.nan)


def _expected(tables: Tables, column: Column, found: tuple[int, int], asked: Asked) -> pl.Series:
    belief = asked.beliefs[found[0]]
    if column.kind == "categorical":
        shares = token_shares(tables, found, belief)[:, FIRST_LEVEL:]
        some = shares.sum(axis=1) > 0 if shares.shape[1] else np.zeros(asked.n_rows, dtype=bool)
        best = np.where(some, shares.argmax(axis=1) + FIRST_LEVEL, 0) if shares.shape[1] else np.zeros(asked.n_rows)
        return decode_column(column, best.astype(np.int32), None)
    return mean_values(mean_places(tables, column, found, belief), column)


def mean_values(places: Floats, column: Column) -> pl.Series:
    """Means on the axis as values: floats for numbers, the column's own dtype for dates, times and durations."""
    axis = column.axis
    assert axis is not None
    empty = np.isnan(places)
    at = np.where(empty, 0.0, places)
    if not axis.grid:
        values = pl.Series(column.name, np.ldexp(at, axis.exponent))
    else:
        whole = np.floor(at)
        physical = [axis.origin + int(k) * axis.step for k in whole]
        if column.dtype.is_temporal():
            exact = [p + round(axis.step * float(rest)) for p, rest in zip(physical, at - whole, strict=True)]
            values = _temporal(exact, column)
        else:
            scale = 10.0 ** (column.dtype.scale if isinstance(column.dtype, pl.Decimal) else 0)
            numbers = [
                (p * 2**axis.shift + axis.step * float(r)) / scale for p, r in zip(physical, at - whole, strict=True)
            ]
            values = pl.Series(column.name, numbers, dtype=pl.Float64)
    return values.set(pl.Series(empty), None) if empty.any() else values


def _temporal(physical: list[int], column: Column) -> pl.Series:
    kind = pl.Int32 if column.dtype == pl.Date else pl.Int64
    return pl.Series(column.name, physical, dtype=kind).cast(column.dtype)


def _fill(value: pl.Series, fixed: pl.Series) -> pl.Series:
    told = nameless(fixed).cast(value.dtype)
    told = told.fill_nan(None) if value.dtype in FLOATS else told  # no number: no mean
    return told.zip_with(told.is_not_null(), nameless(value)).alias(value.name)


def _level_table(tables: Tables, names: list[str], asked: Asked, rows: bool) -> pl.DataFrame:
    """One row per (row,) column and level: its probability; the level null is "missing"."""
    frames = []
    for name in names:
        column, found = tables.schema.columns[tables.schema.names.index(name)], tables.schema.variable_of(name)
        if found is None or column.kind != "categorical":
            continue
        shares = token_shares(tables, found, asked.beliefs[found[0]])
        tokens = [t for t in range(shares.shape[1]) if t >= FIRST_LEVEL or (t == 0 and column.nulls)]
        labels = decode_column(column, np.array(tokens, dtype=np.int32), None).cast(pl.String)
        frames.append(
            pl.DataFrame(
                {
                    "row": np.repeat(np.arange(asked.n_rows, dtype=np.uint32), len(tokens)),
                    "column": [name] * (asked.n_rows * len(tokens)),
                    "level": labels.to_list() * asked.n_rows,
                    "probability": shares[:, tokens].ravel(),
                },
                schema_overrides={"level": pl.String},
            )
        )
    kinds = {"row": pl.UInt32, "column": pl.String, "level": pl.String, "probability": pl.Float64}
    table = pl.concat([pl.DataFrame(schema=kinds), *frames])
    return table if rows else table.drop("row")


class Mixture(NamedTuple):
    """The distribution of the numbers of one column under a condition."""

    base: float  # the probability of all that lies below the rest
    points: Floats  # the spikes, ascending
    masses: Floats  # their probabilities
    weight: Floats  # per (leaf, cell) of the line
    mu: Floats
    sigma: Floats
    lower: Floats
    upper: Floats
    whole: Floats  # log weight of the normal from lower to upper

    def below(self, place: float, grid: bool) -> float:
        """The probability of numbers up to a place."""
        edge = np.floor(place) + 0.5 if grid and np.isfinite(place) else place
        mass = self.base + self.masses[self.points <= place].sum() + self.weight[self.upper <= edge].sum()
        inside = np.flatnonzero((self.lower < edge) & (self.upper > edge))
        if len(inside):
            part = log_weight(self.lower[inside], edge, self.mu[inside], self.sigma[inside]) - self.whole[inside]
            mass += self.weight[inside] @ np.exp(np.minimum(part, 0.0))
        return float(min(mass, 1.0))

    def between(self, low: float, high: float, grid: bool) -> Mixture:
        """The same, with all that lies outside of low .. high done with: quicker to ask about places inside."""
        half = 0.5 if grid else 0.0
        done, ahead = self.upper <= low + half, self.lower >= high + half
        base = self.base + float(self.weight[done].sum())
        kept = ~done & ~ahead
        return Mixture(base, self.points, self.masses, *(part[kept] for part in self[3:]))


def mixture(tables: Tables, name: str, given: Any) -> tuple[Mixture, Column]:
    """The distribution of a numeric column, given that it has a number."""
    checked_columns(tables.schema, [name])
    column, found = tables.schema.columns[tables.schema.names.index(name)], tables.schema.variable_of(name)
    if column.kind != "numeric" or found is None:
        raise OptionError(f"{name!r} has levels ({column.dtype}), not numbers. Use expect(level_probabilities=True).")
    pieces: list[Piece] = [{}] if given is None else parse(given, tables.schema)
    total = log_probability(tables, pieces)
    if np.isneginf(total):
        raise impossible(given)
    variable = tables.schema.variables[found[0]]
    tokens = variable.tokens[:, found[1]]
    states = np.zeros(variable.n_states)
    parts: list[tuple[Floats, ...]] = []
    exact: dict[float, float] = {}
    for piece in pieces:
        narrow = compile_piece(tables, piece)
        shared = tables, narrow, found, total
        for of_state, fixed, line in Threads().map(_stand_mixture, shared, range(len(tables.stands) - 1)):
            states += of_state
            for place, mass in fixed.items():
                exact[place] = exact.get(place, 0.0) + mass
            parts.append(line)
    masses = np.bincount(tokens, states, column.between + 1)[FIRST_LEVEL : column.between]
    points = np.concatenate([column.points, list(exact)])
    masses = np.concatenate([masses, list(exact.values())])
    order = np.argsort(points)
    points, masses = points[order], masses[order]
    weight, *normals = (np.concatenate(side) for side in zip(*parts, strict=True))
    numbers = float(masses.sum() + weight.sum())
    if numbers == 0:
        raise impossible({name: Span(-np.inf, np.inf), "given": given})
    mu, sigma, lower, upper = normals
    whole = log_weight(lower, upper, mu, sigma)
    return Mixture(0.0, points, masses / numbers, weight / numbers, mu, sigma, lower, upper, whole), column


def _stand_mixture(
    shared: tuple[Tables, dict[int, Cells], tuple[int, int], float], stand: int
) -> tuple[Floats, dict[float, float], tuple[Floats, ...]]:
    """Masses of the states that are points, of single numbers, and the weighed normals of one stand of trees."""
    tables, narrow, (number, member), total = shared
    view, variable = view_stand(tables, stand), tables.schema.variables[number]
    cells = narrow.get(number, all_cells(variable))
    logs = view.log_masses(number, cells)
    others = view_weights(view, {key: some for key, some in narrow.items() if key != number})
    weights = np.exp(others[:, None] + logs - total)
    line = variable.interval[cells.state] & (member == 0)
    single = line & (cells.low == cells.high)
    exact = dict(zip(cells.low[single].tolist(), weights[:, single].sum(axis=0).tolist(), strict=True))
    states = np.bincount(cells.state[~line], weights[:, ~line].sum(axis=0), variable.n_states).astype(np.float64)
    lines = np.flatnonzero(line & ~single)
    if not len(lines):
        return states, exact, tuple(np.empty(0) for _ in range(5))
    at = cells.state[lines] - variable.first_interval
    mu, sigma, lower, upper = (part[:, at] for part in view.normals(number))
    lower, upper = np.maximum(lower, cells.low[lines]), np.minimum(upper, cells.high[lines])
    some = (weights[:, lines] > NEGLIGIBLE * weights.max(initial=0.0)) & (upper > lower)
    return states, exact, tuple(part[some] for part in (weights[:, lines], mu, sigma, lower, upper))


def chances(q: Any) -> list[float]:
    """One probability or several, checked."""
    several = [q] if isinstance(q, int | float | np.number | str) else list(q)
    good = [isinstance(level, int | float | np.number) and 0 <= level <= 1 for level in several]
    if not all(good):
        raise OptionError(f"q={q!r}: give a probability from 0 to 1, or a list of them.")
    return [float(level) for level in several]


def quantiles(tables: Tables, name: str, q: Sequence[float], given: Any) -> list[Any]:
    """The smallest value with at least probability q at or below it."""
    found, column = mixture(tables, name, given)
    places = np.array([_quantile(found, level, column) for level in q])
    assert column.axis is not None
    if column.axis.grid:
        return column.axis.from_axis(places, column.dtype).to_list()
    return pl.Series(np.ldexp(places, column.axis.exponent)).cast(column.dtype).to_list()


def cumulative(tables: Tables, name: str, places: Sequence[float], given: Any) -> list[float]:
    """Probabilities of numbers up to the given places."""
    found, column = mixture(tables, name, given)
    assert column.axis is not None
    return [found.below(place, column.axis.grid) for place in places]


def _quantile(found: Mixture, q: float, column: Column) -> float:
    """By halving the range in which it must lie."""
    assert column.axis is not None
    grid = column.axis.grid
    low, high = _range(found, grid)
    if q <= 0 or high <= low:
        return low
    if found.below(low, grid) >= q:
        return low
    for _ in range(HALVINGS):
        middle = np.floor((low + high) / 2) if grid else low + (high - low) / 2
        if middle in (low, high):
            break
        if found.below(middle, grid) >= q - EPSILON:
            high = middle
        else:
            low = middle
        found = found.between(low, high, grid)
    spikes = found.points[(found.points > low) & (found.points <= high) & (found.masses > 0)]
    return float(spikes[0]) if len(spikes) else high


def _range(found: Mixture, grid: bool) -> tuple[float, float]:
    """The smallest and largest number that may be; as far as matters where the tails are open."""
    half = 0.5 if grid else 0.0
    spread = 40 * np.where(np.isfinite(found.sigma), found.sigma, 0.0)
    lows = np.where(np.isfinite(found.lower), found.lower + half, np.minimum(found.mu, found.upper) - spread)
    highs = np.where(np.isfinite(found.upper), found.upper - half, np.maximum(found.mu, found.lower) + spread)
    at = found.points[found.masses > 0]
    return float(np.concatenate([lows, at]).min()), float(np.concatenate([highs, at]).max())
