"""What the leaves of a stand of trees say about a variable: probabilities of states, and normals of intervals."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arf_dask.axis import Axis
from arf_dask.conditions import Piece
from arf_dask.marginals import grid_moments, log_bell, log_mass, log_weight, moments
from arf_dask.schema import FIRST_LEVEL, Flags, Floats, Ints, Schema, Variable
from arf_dask.smoothing import leaf_probabilities, leaf_sums
from arf_dask.tables import Surroundings, Tables, interval_bounds, value_edges

KEPT_CELLS = 16_000_000  # (leaf, state) of all trees and variables: 128 MB


class Cells(NamedTuple):
    """What a condition leaves of one variable. One row per cell: a point, or an interval or a part of one."""

    state: Ints
    low: Floats  # of the line; the whole state: -inf
    high: Floats  # inf
    code: Ints  # where low = high: the code of that one number; else -1

    @property
    def whole(self) -> Flags:
        return np.isneginf(self.low) & np.isposinf(self.high)


class Normals(NamedTuple):
    """The normal of every (leaf, interval state) of one stand; where a leaf never saw the interval, a uniform."""

    mu: Floats
    sigma: Floats
    lower: Floats
    upper: Floats


class View:
    """One stand of trees, made ready for questions. Tables of a variable are made when first asked for."""

    def __init__(self, tables: Tables, stand: int, *, keep: bool = False) -> None:
        self.tables, self.stand, self.keep = tables, stand, keep
        self.around: Surroundings = tables.surroundings(stand)
        self._probabilities: dict[int, Floats] = {}
        self._normals: dict[int, Normals] = {}
        self._weights: dict[int, Floats] = {}
        self._curves: dict[int, Floats] = {}
        self._means: dict[int, Floats] = {}

    @cached_property
    def log_coverage(self) -> Floats:
        """Per leaf: the log of its share among all trees."""
        return np.asarray(np.log(self.around.rows / (self.tables.schema.n_rows * len(self.tables.trees))))

    @property
    def n_leaves(self) -> int:
        return len(self.around.rows)

    @property
    def n_trees(self) -> int:
        return int(self.tables.stands[self.stand + 1] - self.tables.stands[self.stand])

    def probabilities(self, number: int) -> Floats:
        """(leaf, state)."""
        if number not in self._probabilities:
            self._probabilities[number] = leaf_probabilities(self.tables, self.stand, number, self.around)
        return self._probabilities[number]

    def normals(self, number: int) -> Normals:
        """(leaf, interval state)."""
        if number not in self._normals:
            self._normals[number] = _normals(self.tables, self.stand, number, self.around)
        return self._normals[number]

    def log_weights(self, number: int) -> Floats:
        """(leaf, interval state): the log of what the normals are divided by; inf where nothing is left of a state."""
        if number not in self._weights:
            normals = self.normals(number)
            with np.errstate(all="ignore"):
                weights = log_weight(normals.lower, normals.upper, normals.mu, normals.sigma)
            self._weights[number] = np.where(normals.upper > normals.lower, weights, np.inf)
        return self._weights[number]

    def shares_of(self, number: int, states: Ints, *, in_box: bool = False) -> Floats:
        """(leaf, state), for some states: no more is worked out than is kept or asked for.

        With `in_box`, nobody will look at points outside a leaf's box.
        """
        if self.keep or number in self._probabilities:
            return self.probabilities(number).take(states, axis=1)
        return leaf_probabilities(self.tables, self.stand, number, self.around, states, in_box=in_box)

    def curves(self, number: int) -> Floats:
        """(leaf and interval state, what `log_density_at` needs): mu, sigma, lower, upper, log density at mu."""
        if number not in self._curves:
            mu, sigma, lower, upper = self.normals(number)
            peak = log_bell(mu, mu, sigma) - self.log_weights(number)
            self._curves[number] = np.stack([mu, sigma, lower, upper, peak], axis=-1).reshape(-1, 5)
        return self._curves[number]

    def log_density_at(self, number: int, leaf: NDArray[np.integer], state: Ints, places: Floats) -> Floats:
        """The log density (mass on a grid) of numbers inside an interval state, one per (leaf, state, place)."""
        variable = self.tables.schema.variables[number]
        at = leaf * np.int64(variable.n_states - variable.first_interval) + (state - variable.first_interval)
        # One gather of rows: the numbers of a curve lie side by side.
        mu, sigma, lower, upper, peak = self.curves(number).take(at, axis=0).T
        if axis_of(self.tables, variable).grid:
            return _log_grid_mass(places, mu, sigma, lower, upper, self.log_weights(number).ravel()[at])
        with np.errstate(invalid="ignore", over="ignore"):
            logs = peak - 0.5 * np.square((places - mu) / sigma)
        logs[(places < lower) | (places > upper) | np.isinf(places)] = -np.inf
        return np.asarray(logs)

    def log_masses(self, number: int, cells: Cells) -> Floats:
        """(leaf, cell): the log probability of every cell; log density where it is a single number of a density."""
        variable = self.tables.schema.variables[number]
        with np.errstate(divide="ignore"):
            logs = np.log(self.shares_of(number, cells.state))
        narrowed = np.flatnonzero(variable.interval[cells.state] & ~cells.whole)
        for cell in narrowed:
            logs[:, cell] += self._log_share(number, cells, int(cell))
        return np.asarray(logs)

    def means(self, number: int, cells: Cells) -> Floats:
        """(leaf, cell): the mean place inside each cell that is an interval; 0 for points."""
        variable = self.tables.schema.variables[number]
        result = np.zeros((self.n_leaves, len(cells.state)))
        for cell in np.flatnonzero(variable.interval[cells.state]):
            mu, sigma, lower, upper = self._narrowed(number, cells, int(cell))
            if cells.low[cell] == cells.high[cell]:
                result[:, cell] = cells.low[cell]
            else:
                result[:, cell] = self._means_of(number, Normals(mu, sigma, lower, upper))
        return result

    def interval_means(self, number: int) -> Floats:
        """(leaf, interval state): the mean place; 0 where nothing is left of the state."""
        if number not in self._means:
            if not self.tables.schema.variables[number].interval.any():
                self._means[number] = np.zeros((self.n_leaves, 0))
            else:
                self._means[number] = self._means_of(number, self.normals(number))
        return self._means[number]

    def _means_of(self, number: int, normals: Normals) -> Floats:
        mu, sigma, lower, upper = normals
        some = upper > lower
        uniform = some & np.isinf(sigma)
        result = np.zeros(mu.shape)
        result[uniform] = lower[uniform] + (upper[uniform] - lower[uniform]) / 2
        bell = some & ~uniform
        grid = axis_of(self.tables, self.tables.schema.variables[number]).grid
        found = (grid_moments if grid else moments)(mu[bell], sigma[bell], lower[bell], upper[bell])
        result[bell] = found.mean
        return result

    def number_values(self, number: int) -> Floats:
        """(state, 2) of a variable that is one column of numbers: whether it is one, and its place if a point."""
        variable = self.tables.schema.variables[number]
        column = self.tables.schema.columns[variable.columns[0]]
        tokens = variable.tokens[:, 0]
        values = np.zeros((variable.n_states, 2))
        values[:, 0] = tokens >= FIRST_LEVEL
        points = (tokens >= FIRST_LEVEL) & (tokens < column.between)
        values[points, 1] = column.points[tokens[points] - FIRST_LEVEL]
        return values

    def number_sums(self, number: int, allowed: Floats) -> Floats:
        """(leaf, 2): the probability that there is a number, and that times the mean place; of allowed states only."""
        variable = self.tables.schema.variables[number]
        # Probabilities of the intervals come along, as sums of one state each.
        each = np.eye(variable.n_states)[:, variable.interval]
        values = np.hstack([self.number_values(number), each]) * allowed[:, None]
        sums = leaf_sums(self.tables, self.stand, number, self.around, values)
        sums[:, 1] += np.einsum("ls,ls->l", sums[:, 2:], self.interval_means(number))
        return sums[:, :2]

    def _narrowed(self, number: int, cells: Cells, cell: int) -> Normals:
        state = int(cells.state[cell]) - self.tables.schema.variables[number].first_interval
        mu, sigma, lower, upper = (part[:, state] for part in self.normals(number))
        return Normals(mu, sigma, np.maximum(lower, cells.low[cell]), np.minimum(upper, cells.high[cell]))

    def _log_share(self, number: int, cells: Cells, cell: int) -> Floats:
        """Per leaf: the log of the part of an interval state that the cell leaves."""
        state = int(cells.state[cell])
        leaf = np.arange(self.n_leaves, dtype=np.int32)
        low, high = cells.low[cell], cells.high[cell]
        if low == high:
            logs = self.log_density_at(number, leaf, np.full_like(leaf, state), np.full(self.n_leaves, low))
            boxes, code = self.around.boxes, cells.code[cell]
            return np.where((boxes.low[:, number] <= code) & (code <= boxes.high[:, number]), logs, -np.inf)
        normals = self.normals(number)
        mu, sigma, lower, upper = (
            part[:, state - self.tables.schema.variables[number].first_interval] for part in normals
        )
        logs = np.full(self.n_leaves, -np.inf)
        some = upper > lower
        logs[some] = log_mass(low, high, mu[some], sigma[some], lower[some], upper[some])
        return logs


def _log_grid_mass(places: Floats, mu: Floats, sigma: Floats, lower: Floats, upper: Floats, weights: Floats) -> Floats:
    """The log mass of whole numbers; `weights`: the logs of what the normals are divided by."""
    low, high = np.maximum(places - 0.5, lower), np.minimum(places + 0.5, upper)
    logs = np.full(len(places), -np.inf)
    inside = high > low
    flat = np.flatnonzero(inside & np.isinf(sigma))
    logs[flat] = np.log(high[flat] - low[flat]) - weights[flat]
    bell = np.flatnonzero(inside & np.isfinite(sigma))
    logs[bell] = log_weight(low[bell], high[bell], mu[bell], sigma[bell]) - weights[bell]
    return logs


def view_stand(tables: Tables, stand: int) -> View:
    """The view of a stand: kept from one question to the next where all of them together are small."""
    cells = tables.n_leaves * sum(variable.n_states for variable in tables.schema.variables)
    if cells > KEPT_CELLS:
        return View(tables, stand)
    kept = tables.kept
    if stand not in kept:
        kept[stand] = View(tables, stand, keep=True)
    view = kept[stand]
    assert isinstance(view, View)
    return view


def is_number(schema: Schema, variable: Variable) -> bool:
    """Whether a variable is one column of numbers, of which the mean is all that is asked."""
    return len(variable.columns) == 1 and schema.columns[variable.columns[0]].kind == "numeric"


def axis_of(tables: Tables, variable: Variable) -> Axis:
    """The number line of a variable that has one."""
    axis = tables.schema.columns[variable.columns[0]].axis
    assert axis is not None
    return axis


def all_cells(variable: Variable) -> Cells:
    """No condition: every state as it is."""
    n = variable.n_states
    return Cells(np.arange(n, dtype=np.int32), np.full(n, -np.inf), np.full(n, np.inf), np.full(n, -1, dtype=np.int32))


def compile_piece(tables: Tables, piece: Piece) -> dict[int, Cells]:
    """The cells of every variable that a piece speaks of."""
    cells = {}
    for number, variable in enumerate(tables.schema.variables):
        if not piece.keys().isdisjoint(variable.columns):
            cells[number] = _cells(tables, variable, piece)
    return cells


def _cells(tables: Tables, variable: Variable, piece: Piece) -> Cells:
    allowed = np.ones(variable.n_states, dtype=bool)
    for member, place in enumerate(variable.columns):
        if place in piece:
            allowed &= piece[place].tokens[variable.tokens[:, member]]
    lead = piece.get(variable.columns[0])
    points = np.flatnonzero(allowed & ~variable.interval)
    rows = [(int(state), -np.inf, np.inf, -1) for state in points]
    for state in np.flatnonzero(allowed & variable.interval):
        if lead is None:
            rows.append((int(state), -np.inf, np.inf, -1))
        else:
            rows += _parts(tables, variable, int(state), lead.spans)
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    kinds = (np.int32, np.float64, np.float64, np.int32)
    return Cells(*(np.array(part, dtype=kind) for part, kind in zip(columns, kinds, strict=True)))


def _parts(
    tables: Tables, variable: Variable, state: int, spans: tuple[tuple[float, float], ...]
) -> list[tuple[int, float, float, int]]:
    """What spans of the line leave of one interval state."""
    edges = value_edges(variable, tables.schema, tables.support)
    low, high = (float(edge[0]) for edge in interval_bounds(variable, edges, *_extent(variable, state)))
    parts = []
    for start, stop in spans:
        if start == stop:
            if int(np.searchsorted(variable.segments, start, side="right")) + variable.first_interval == state:
                code = int(np.searchsorted(variable.edges, start, side="right")) + variable.first_bin
                parts.append((state, start, stop, code))
        elif start < high and stop > low:
            parts.append((state, start, stop, -1))
    return parts


def _extent(variable: Variable, state: int) -> tuple[Ints, Ints, Ints]:
    return (
        np.array([state], dtype=np.int32),
        variable.code_low[state : state + 1],
        variable.code_high[state : state + 1],
    )


def _normals(tables: Tables, stand: int, number: int, around: Surroundings) -> Normals:
    variable, entries = tables.schema.variables[number], tables.entries[number]
    states = np.flatnonzero(variable.interval).astype(np.int32)[None, :]
    low, high = (side[:, number, None].astype(np.int32) for side in around.boxes)
    seen = value_edges(variable, tables.schema, "observed")
    edges = value_edges(variable, tables.schema, tables.support)
    wide = interval_bounds(variable, edges, states, low, high)
    narrow = interval_bounds(variable, seen, states, low, high)
    mu, sigma = (narrow[0] + narrow[1]) / 2, np.full(narrow[0].shape, np.inf)
    here, leaf = entries.of_leaves(int(tables.stand_starts[stand]), int(tables.stand_starts[stand + 1]))
    skipped = int(tables.normal_starts[number][stand])
    some = np.flatnonzero(variable.interval[entries.state[here]])
    at = leaf[some], entries.state[here][some].astype(np.int64) - variable.first_interval
    known = np.zeros(mu.shape, dtype=bool)
    known[at] = True
    mu[at], sigma[at] = (part[skipped : skipped + len(some)] for part in (entries.mu, entries.sigma))
    return Normals(mu, sigma, *(np.where(known, w, n) for w, n in zip(wide, narrow, strict=True)))
