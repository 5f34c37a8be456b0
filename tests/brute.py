"""Every question put to a small model, answered by plain loops over its leaves and variables.

Nothing here uses the package's own formulas: smoothing is written out again from the docstring of `smoothing.py`,
masses and means of truncated normals are sums over Gauss-Legendre nodes, alternatives are added up by inclusion and
exclusion, ratios of the dependence are scaled by plain alternation, and all bins of all variables are summed over. Only
the tables (trees, counts, normals, ratios) and the schema are the model's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache, lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import arf_dask
from arf_dask.forest.dependence import Dependence, Edge, count_bins
from arf_dask.forest.dependence_bins import code_bins, member_bins

NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)
NULL, NAN, FIRST = 0, 1, 2
DROP = 45.0  # the log of a density so far below its highest is lost in rounding


class Piece(NamedTuple):
    """One state of one variable in one leaf."""

    probability: float
    tokens: tuple[int, ...]  # of the member columns
    interval: bool
    lower: float = 0.0
    upper: float = 0.0
    mu: float = 0.0
    sigma: float = 1.0
    bin: int = 0  # of the dependence


class Link(NamedTuple):
    """An edge of the dependency tree in one leaf."""

    parent: int
    child: int
    ratios: list[list[float]]  # (bin of the parent, bin of the child), scaled so that the leaf keeps its marginals


class Leaf(NamedTuple):
    weight: float
    variables: list[list[Piece]]
    links: list[Link]


class Range(NamedTuple):
    """Places on an axis."""

    low: float
    high: float
    low_closed: bool = True
    high_closed: bool = True
    dense: bool = False  # a single float that is no spike, in a condition: it counts by its density

    def holds(self, place: float) -> bool:
        above = place > self.low or (self.low_closed and place == self.low)
        return above and (place < self.high or (self.high_closed and place == self.high))

    def meet(self, other: Range) -> Range:
        low, high = max(self.low, other.low), min(self.high, other.high)
        low_closed = all(r.low_closed for r in (self, other) if r.low == low)
        high_closed = all(r.high_closed for r in (self, other) if r.high == high)
        return Range(low, high, low_closed, high_closed, self.dense or other.dense)


class Condition(NamedTuple):
    """What is known of one column: tokens that are allowed, and for numbers places."""

    tokens: frozenset[int] = frozenset()  # null, NaN, levels
    ranges: tuple[Range, ...] = ()

    def meet(self, other: Condition) -> Condition:
        return Condition(self.tokens & other.tokens, tuple(a.meet(b) for a in self.ranges for b in other.ranges))


class Moments(NamedTuple):
    mass: float
    sum: float  # mass times mean


Conditions = Mapping[int, Condition]  # by the place of the column


class Brute:
    """The leaves of a model as lists, and what can be asked of them."""

    def __init__(self, model: Any) -> None:
        self.schema = model.schema
        self.leaves = list(_leaves(model))
        self._column = {c.name: i for i, c in enumerate(self.schema.columns)}

    # Questions

    def density(self, row: Mapping[str, Any], given: Any = None) -> float:
        """q(row | given) of the columns that the row has; a null is a value."""
        return self._density(self._points(row), given)

    def marginal(self, row: Mapping[str, Any], given: Any = None) -> float:
        """The same, where nulls are integrated out."""
        return self._density(self._points({k: v for k, v in row.items() if v is not None}), given)

    def _density(self, points: dict[int, tuple[int, float]], given: Any) -> float:
        numerator = denominator = 0.0
        for sign, conditions in self._signed(given):
            for leaf in self.leaves:
                numerator += sign * self._leaf(leaf, conditions, points).mass
                denominator += sign * self._leaf(leaf, conditions, {}).mass
        return numerator / denominator

    def probability(self, event: Any, given: Any = None) -> float:
        """P(event | given); both in the form of `given`."""
        top = bottom = 0.0
        for sign, conditions in self._signed(given):
            bottom += sign * self._mass(conditions)
            for other_sign, more in self._signed(event, dense=False):
                top += sign * other_sign * self._mass(_meet(conditions, more))
        return top / bottom

    def mean(self, column: str, given: Any = None, present: Sequence[str] = ()) -> float:
        """E(column | given, the column and those `present` are numbers or levels), on the axis of the column."""
        place = self._column[column]
        needed = {self._column[name]: self._anything(name) for name in {column, *present}}
        total = weighted = 0.0
        for sign, conditions in self._signed(given):
            for leaf in self.leaves:
                moments = self._leaf(leaf, _meet(conditions, needed), {}, mean_of=place)
                total += sign * moments.mass
                weighted += sign * moments.sum
        return weighted / total

    def levels(self, column: str, given: Any = None, present: Sequence[str] = ()) -> dict[Any, float]:
        """The probability of every level, among rows that are not null."""
        values = self.schema.columns[self._column[column]].levels.to_list()
        event = [{}] if given is None else given if isinstance(given, list) else [given]
        needed = {self._column[name]: self._anything(name) for name in {column, *present}}
        masses = []
        for value in values:
            condition = {**needed, self._column[column]: self.condition(column, value)}
            masses.append(sum(sign * self._mass(_meet(some, condition)) for sign, some in self._signed(event)))
        return {value: mass / sum(masses) for value, mass in zip(values, masses, strict=True)}

    def cdf(self, column: str, x: Any, given: Any = None) -> float:
        """P(column <= x | given, it is a number)."""
        return self.cdf_at(column, self.place(column, x), given)

    def cdf_at(self, column: str, at: float, given: Any = None) -> float:
        """The same at a place on the axis."""
        place, top, bottom = self._column[column], 0.0, 0.0
        up_to = Condition(frozenset(), (Range(-math.inf, at),))
        for sign, conditions in self._signed(given):
            top += sign * self._mass(_meet(conditions, {place: up_to}))
            bottom += sign * self._mass(_meet(conditions, {place: self._anything(column)}))
        return top / bottom

    # Conditions

    def condition(self, name: str, value: Any, dense: bool = False) -> Condition:
        column = self.schema.columns[self._column[name]]
        if isinstance(value, list):
            some = [self.condition(name, one, dense) for one in value]
            return Condition(frozenset().union(*(c.tokens for c in some)), tuple(r for c in some for r in c.ranges))
        if value is None:
            return Condition(frozenset([NULL]))
        if column.kind == "categorical":
            return Condition(frozenset([FIRST + column.levels.to_list().index(value)]))
        if isinstance(value, float) and math.isnan(value):
            return Condition(frozenset([NAN]))
        low, high, closed = value, value, "both"
        if isinstance(value, tuple):
            low, high = value
        elif hasattr(value, "closed"):
            low, high, closed = value.low, value.high, value.closed
        at_low = -math.inf if low is None else self.place(name, low)
        at_high = math.inf if high is None else self.place(name, high)
        dense = dense and not column.axis.grid and at_low == at_high and at_low not in column.points
        left, right = closed in ("both", "left"), closed in ("both", "right")
        return Condition(frozenset(), (Range(at_low, at_high, left, right, dense),))

    def place(self, name: str, value: Any) -> float:
        """The place of a value on the column's axis."""
        column = self.schema.columns[self._column[name]]
        axis = column.axis
        if not axis.grid:
            return math.ldexp(float(value), -axis.exponent)
        if isinstance(value, float):
            return (value - axis.origin) / axis.step
        return (physical(value, column.dtype) - axis.origin) / axis.step

    def value(self, name: str, place: float) -> float:
        """The physical value at a place."""
        axis = self.schema.columns[self._column[name]].axis
        return place * axis.step + axis.origin if axis.grid else math.ldexp(place, axis.exponent)

    def _anything(self, name: str) -> Condition:
        column = self.schema.columns[self._column[name]]
        if column.kind == "categorical":
            return Condition(frozenset(range(FIRST, FIRST + len(column.levels))))
        return Condition(frozenset(), (Range(-math.inf, math.inf),))

    def _signed(self, given: Any, dense: bool = True) -> Iterator[tuple[int, Conditions]]:
        """Inclusion and exclusion: every set of alternatives, with its sign."""
        alternatives = [{}] if given is None else given if isinstance(given, list) else [given]
        each = [{self._column[k]: self.condition(k, v, dense) for k, v in one.items()} for one in alternatives]
        for size in range(1, len(each) + 1):
            for some in combinations(each, size):
                met: Conditions = {}
                for one in some:
                    met = _meet(met, one)
                yield (-1) ** (size + 1), met

    def _mass(self, conditions: Conditions) -> float:
        return sum(self._leaf(leaf, conditions, {}).mass for leaf in self.leaves)

    def _leaf(
        self, leaf: Leaf, conditions: Conditions, points: Mapping[int, tuple[int, float]], mean_of: int = -1
    ) -> Moments:
        """The weight of one leaf under a condition, and that times the mean of `mean_of`."""
        masses, sums = [], []
        for number, pieces in enumerate(leaf.variables):
            found: dict[int, Moments] = {}
            for bin_ in {piece.bin for piece in pieces}:
                mine = [piece for piece in pieces if piece.bin == bin_]
                found[bin_] = self._variable(number, mine, conditions, points, mean_of)
            masses.append({bin_: moments.mass for bin_, moments in found.items()})
            asked = mean_of in self.schema.variables[number].columns
            sums.append({b: moments.sum if asked else moments.mass for b, moments in found.items()})
        return Moments(leaf.weight * _sum_bins(leaf.links, masses), leaf.weight * _sum_bins(leaf.links, sums))

    def _points(self, row: Mapping[str, Any]) -> dict[int, tuple[int, float]]:
        """Per column of a row: its token (-1: never seen) and place."""
        points = {}
        for name, value in row.items():
            column = self.schema.columns[self._column[name]]
            token, place = -1, math.nan
            if value is None:
                token = NULL
            elif column.kind == "categorical":
                levels = column.levels.to_list()
                token = FIRST + levels.index(value) if value in levels else -1
            elif isinstance(value, float) and math.isnan(value):
                token = NAN
            elif column.kind == "numeric":
                place = self.place(name, value)
                spikes = column.points.tolist()
                token = FIRST + (spikes.index(place) if place in spikes else len(spikes))
            points[self._column[name]] = (token, place)
        return points

    def _variable(
        self,
        number: int,
        pieces: list[Piece],
        conditions: Conditions,
        points: Mapping[int, tuple[int, float]],
        mean_of: int = -1,
    ) -> Moments:
        """The mass (density where a float is a point) of one variable in one leaf, and the sum of `mean_of`."""
        variable = self.schema.variables[number]
        if not any(place in conditions or place in points or place == mean_of for place in variable.columns):
            return Moments(sum(piece.probability for piece in pieces), 0.0)
        mass = total = 0.0
        for piece in pieces:
            part, at = piece.probability, 0.0
            for member, place in enumerate(variable.columns):
                column = self.schema.columns[place]
                found = _member(piece, member, column, conditions.get(place), points.get(place))
                part *= found.mass
                if place == mean_of and found.mass:
                    at = found.sum / found.mass
            mass += part
            total += part * at
        return Moments(mass, total)


def physical(value: Any, dtype: pl.DataType) -> int:
    """The whole number that Polars holds for a value."""
    if isinstance(value, Decimal):
        return int(value.scaleb(dtype.scale))  # type: ignore[attr-defined]
    if isinstance(value, datetime | date | time | timedelta):
        series = pl.Series([value])
        if isinstance(value, datetime) and value.tzinfo is not None:
            series = series.dt.convert_time_zone(dtype.time_zone)  # type: ignore[attr-defined]
        return int(series.cast(dtype).to_physical()[0])
    return int(value)


def normal_mass(low: float, high: float, lower: float, upper: float, mu: float, sigma: float) -> float:
    """The share of [low, high] in the normal cut to [lower, upper]."""
    return _cut(low, high, lower, upper, mu, sigma).mass


def normal_mean(low: float, high: float, lower: float, upper: float, mu: float, sigma: float) -> float:
    found = _cut(low, high, lower, upper, mu, sigma)
    return found.sum / found.mass


def normal_density(x: float, lower: float, upper: float, mu: float, sigma: float) -> float:
    if not lower <= x <= upper:
        return 0.0
    if math.isinf(sigma):
        return 1 / (upper - lower)
    mode, log_area, _ = _area(lower, upper, mu, sigma)
    return math.exp(_log_ratio(x, mode, mu, sigma) - log_area)


@lru_cache(maxsize=500_000)
def _cut(low: float, high: float, lower: float, upper: float, mu: float, sigma: float) -> Moments:
    low, high = max(low, lower), min(high, upper)
    if high <= low:
        return Moments(0.0, 0.0)
    if math.isinf(sigma):
        share = (high - low) / (upper - lower)
        return Moments(share, share * (low + high) / 2)
    mode, log_area, mean = _area(low, high, mu, sigma)
    whole_mode, log_whole, _ = _area(lower, upper, mu, sigma)
    share = math.exp(_log_ratio(mode, whole_mode, mu, sigma) + log_area - log_whole)
    return Moments(share, share * mean)


@lru_cache(maxsize=500_000)
def _area(low: float, high: float, mu: float, sigma: float) -> tuple[float, float, float]:
    """The mode inside [low, high], the log of the area relative to the density there, and the mean."""
    mode = min(max(mu, low), high)
    slope = abs(mu - mode) / sigma**2
    reach = 2 * DROP / (slope + math.sqrt(slope**2 + 2 * DROP / sigma**2))
    area = total = 0.0
    for start, stop in ((max(low, mode - reach), mode), (mode, min(high, mode + reach))):
        half = (stop - start) / 2
        if half <= 0:
            continue
        offset = half * NODES + ((start - mode) + (stop - mode)) / 2
        density = WEIGHTS * np.exp(-offset * (offset + 2 * (mode - mu)) / (2 * sigma**2)) * half
        area += float(density.sum())
        total += float(density @ offset)
    return mode, math.log(area), mode + total / area


def _log_ratio(x: float, mode: float, mu: float, sigma: float) -> float:
    """Log of the density at x over that at the mode."""
    return -(x - mode) * (x + mode - 2 * mu) / (2 * sigma**2)


def _member(
    piece: Piece, member: int, column: Any, condition: Condition | None, point: tuple[int, float] | None
) -> Moments:
    """The share of a piece in which one column has the given point, or meets the condition."""
    token = piece.tokens[member]
    if not (piece.interval and member == 0):
        place = _spike(column, token)
        inside = point is None or point[0] == token
        if condition is not None and inside:
            inside = token in condition.tokens or any(r.holds(place) for r in condition.ranges)
        return Moments(float(inside), place if inside and not math.isnan(place) else 0.0)
    shape = piece[3:7]
    if point is not None:
        number, place = point
        if math.isnan(place) or (condition is not None and not any(r.holds(place) for r in condition.ranges)):
            return Moments(0.0, 0.0)
        if column.axis.grid:
            share = _grid(place, place, *shape).mass
        else:
            share = 0.0 if number < FIRST + len(column.points) else normal_density(place, *shape)
        return Moments(share, share * place)
    if condition is None:
        return Moments(1.0, 0.0)
    mass = total = 0.0
    for low, high, low_closed, high_closed, dense in condition.ranges:
        if column.axis.grid:
            first = _inwards(low, low_closed, 1)
            found = _grid(first, _inwards(high, high_closed, -1), *shape)
        elif dense:
            share = normal_density(low, *shape) if low == high and low_closed and high_closed else 0.0
            found = Moments(share, share * low)
        else:
            found = _cut(low, high, *shape)
        mass, total = mass + found.mass, total + found.sum
    return Moments(mass, total)


def _inwards(place: float, closed: bool, sign: int) -> float:
    """The first grid point inside."""
    if math.isinf(place):
        return place
    nearest = math.ceil(place * sign)
    return sign * (nearest + 1 if nearest == place * sign and not closed else nearest)


@lru_cache(maxsize=500_000)
def _grid(first: float, last: float, lower: float, upper: float, mu: float, sigma: float) -> Moments:
    """The grid points first .. last: each has the mass of half a step to either side."""
    first, last = max(first, lower + 0.5), min(last, upper - 0.5)
    if first != int(first):  # off the grid
        return Moments(0.0, 0.0)
    assert last - first < 10_000
    masses = [_cut(k - 0.5, k + 0.5, lower, upper, mu, sigma).mass for k in range(int(first), int(last) + 1)]
    return Moments(sum(masses), sum(m * k for k, m in enumerate(masses, start=int(first))))


def _spike(column: Any, token: int) -> float:
    spike = column.kind == "numeric" and FIRST <= token < FIRST + len(column.points)
    return float(column.points[token - FIRST]) if spike else math.nan


def _meet(one: Conditions, other: Conditions) -> dict[int, Condition]:
    met = dict(one)
    for place, condition in other.items():
        met[place] = met[place].meet(condition) if place in met else condition
    return met


# The leaves, from the tables


def _sum_bins(links: list[Link], masses: list[dict[int, float]]) -> float:
    """The sum over all bins of all variables, each with its mass, of the product of masses and ratios."""
    children = {link.child for link in links}

    @cache
    def below(variable: int, bin_: int) -> float:
        product = masses[variable][bin_]
        for link in links:
            if link.parent == variable and product:
                product *= sum(link.ratios[bin_][other] * below(link.child, other) for other in masses[link.child])
        return product

    product = 1.0
    for variable, held in enumerate(masses):
        if variable not in children:
            product *= sum(below(variable, bin_) for bin_ in held)
    return product


def _scaled(ratios: Any, rows: dict[int, float], columns: dict[int, float]) -> list[list[float]]:
    """Ratios times what gives the joint distribution of two variables their own marginals."""
    a, b = (
        [held.get(bin_, 0.0) for bin_ in range(size)] for held, size in zip((rows, columns), ratios.shape, strict=True)
    )
    u, v = [1.0] * len(a), [1.0] * len(b)
    for _ in range(3_000):
        before = list(u)
        u = [1 / sum(ratios[i][j] * b[j] * v[j] for j in range(len(b))) for i in range(len(a))]
        v = [1 / sum(ratios[i][j] * a[i] * u[i] for i in range(len(a))) for j in range(len(b))]
        if max(abs(x - y) for x, y in zip(before, u, strict=True)) < 1e-15:
            break
    return [[float(u[i] * ratios[i][j] * v[j]) for j in range(len(b))] for i in range(len(a))]


def _bin_masses(pieces: list[Piece]) -> dict[int, float]:
    held: dict[int, float] = {}
    for piece in pieces:
        held[piece.bin] = held.get(piece.bin, 0.0) + piece.probability
    return held


def _links(model: Any, variables: list[list[Piece]]) -> list[Link]:
    links = []
    for edge in model._fitted.tables.dependence.edges:
        sides = (_bin_masses(variables[side]) for side in (edge.parent, edge.child))
        links.append(Link(edge.parent, edge.child, _scaled(edge.ratios, *sides)))
    return links


def _leaves(model: Any) -> Iterator[Leaf]:
    counts, normals = _entries(model)
    first = 0
    for tree in model._fitted.tables.trees:
        nodes = list(_walk(tree, model.schema))
        for index, (box, siblings, split) in enumerate(nodes):
            leaf = first + index
            under = [first + s for s in siblings]
            variables = []
            for number, variable in enumerate(model.schema.variables):
                share = _smoothed(model, number, counts[number], leaf, under, split == number, box[number])
                variables.append(list(_pieces(model, number, variable, share, leaf, box[number], normals[number])))
            weight = int(model._fitted.tables.coverage[leaf]) / model.schema.n_rows / len(model._fitted.tables.trees)
            yield Leaf(weight, variables, _links(model, variables))
        first += len(nodes)


def _entries(model: Any) -> tuple[list[dict[Any, Any]], list[dict[Any, Any]]]:
    """Per variable: {(leaf, state): rows} and {(leaf, state): (mu, sigma)}."""
    counts, normals = [], []
    for variable, entries in ((v.variable, v.entries) for v in model._fitted.tables.variables):
        held, shapes, at = {}, {}, 0
        for leaf, state, rows in zip(entries.leaf, entries.state, entries.rows, strict=True):
            held[int(leaf), int(state)] = int(rows)
            if variable.interval[state]:
                shapes[int(leaf), int(state)] = float(entries.mu[at]), float(entries.sigma[at])
                at += 1
        counts.append(held)
        normals.append(shapes)
    return counts, normals


def _walk(tree: Any, schema: Any) -> Iterator[tuple[list[tuple[int, int]], list[int], int]]:
    """Per leaf from left to right: its box, the leaves under its parent, the variable the parent splits on."""
    found: list[tuple[int, list[tuple[int, int]], int]] = []
    under: dict[int, list[int]] = {}

    def visit(node: int, box: list[tuple[int, int]], parents: list[int]) -> None:
        if tree.left[node] < 0:
            for parent in parents:
                under.setdefault(parent, []).append(len(found))
            found.append((node, box, parents[-1] if parents else -1))
            return
        feature, threshold = int(tree.feature[node]), int(tree.threshold[node])
        low, high = box[feature]
        for child, part in (
            (tree.left[node], (low, min(high, threshold))),
            (tree.right[node], (max(low, threshold + 1), high)),
        ):
            visit(int(child), [*box[:feature], part, *box[feature + 1 :]], [*parents, node])

    visit(0, [(0, int(v.code_high.max())) for v in schema.variables], [])
    for index, (_, box, parent) in enumerate(found):
        yield box, under.get(parent, [index]), int(tree.feature[parent]) if parent >= 0 else -1


def _smoothed(
    model: Any, number: int, counts: dict[Any, Any], leaf: int, under: list[int], own_split: bool, box: tuple[int, int]
) -> list[float]:
    """p(state | leaf), as the docstring of smoothing.py has it."""
    variable, strength = model.schema.variables[number], model._fitted.tables.variables[number].strength
    states = range(variable.n_states)
    rows = int(model._fitted.tables.coverage[leaf])
    share = [counts.get((leaf, s), 0) / rows for s in states]
    if strength == 0:
        return share
    parent_rows = sum(int(model._fitted.tables.coverage[one]) for one in under)
    parent = [sum(counts.get((one, s), 0) for one in under) / parent_rows for s in states]
    if own_split:
        parent = share
    weight = parent_rows / (parent_rows + strength)
    column = _column_share(variable, model._fitted.tables.variables[number].histogram, box)
    prior = [weight * parent[s] + (1 - weight) * column[s] for s in states]
    return [(counts.get((leaf, s), 0) + strength * prior[s]) / (rows + strength) for s in states]


def _column_share(variable: Any, histogram: Any, box: tuple[int, int]) -> list[float]:
    owner = {}
    for state in range(variable.n_states):
        if variable.interval[state]:
            for code in range(int(variable.code_low[state]), int(variable.code_high[state]) + 1):
                owner[code] = state
    for state in range(variable.n_states):
        if not variable.interval[state]:
            owner[int(variable.code_low[state])] = state
    shares = [0.0] * variable.n_states
    for code in range(box[0], box[1] + 1):
        if histogram[code]:
            shares[owner[code]] += float(histogram[code])
    return [share / sum(shares) for share in shares]


def _pieces(
    model: Any, number: int, variable: Any, share: list[float], leaf: int, box: tuple[int, int], normals: dict[Any, Any]
) -> Iterator[Piece]:
    column = model.schema.columns[variable.columns[0]]
    of_code = model._fitted.tables.dependence.code_bins(number)
    of_code = [0] * (int(variable.code_high.max()) + 1) if of_code is None else of_code.tolist()
    starts = [code for code, bin_ in enumerate(of_code) if code == 0 or bin_ != of_code[code - 1]]
    for state, probability in enumerate(share):
        if probability <= 0:
            continue
        tokens = tuple(int(t) for t in variable.tokens[state])
        if not variable.interval[state]:
            yield Piece(probability, tokens, False, bin=of_code[variable.code_low[state]])
            continue
        seen = (leaf, state) in normals
        edges = _edges(variable, column.axis, seen and model._fitted.tables.support == "open")
        first = max(box[0], int(variable.code_low[state])) - variable.first_bin
        last = min(box[1], int(variable.code_high[state])) - variable.first_bin
        lower, upper = edges[first], edges[last + 1]
        mu, sigma = normals.get((leaf, state), ((lower + upper) / 2, math.inf))
        for bin_ in range(len(starts)):
            first_code = max(box[0], int(variable.code_low[state]), starts[bin_])
            after = starts[bin_ + 1] if bin_ + 1 < len(starts) else int(variable.code_high.max()) + 1
            last_code = min(box[1], int(variable.code_high[state]), after - 1)
            if first_code > last_code:
                continue
            low, high = edges[first_code - variable.first_bin], edges[last_code - variable.first_bin + 1]
            part = normal_mass(low, high, lower, upper, mu, sigma) if len(starts) > 1 else 1.0
            if part > 0:
                yield Piece(probability * part, tokens, True, low, high, mu, sigma, bin_)


def _edges(variable: Any, axis: Any, is_open: bool) -> list[float]:
    half = 0.5 if axis.grid else 0.0
    low, high = axis.low - half, axis.high + half
    if len(variable.edges) and variable.edges[-1] == axis.high:
        high = float(np.nextafter(axis.high, np.inf))
    if is_open and not axis.grid:
        low, high = -math.inf, math.inf
    return [low, *(float(edge) for edge in variable.edges), high]


# Small models, and questions to put to them


def small_frame(name: str) -> pl.DataFrame:
    """Between 60 and 300 rows; every kind of column is in one of these frames."""
    rng = np.random.default_rng(11)
    if name == "continuous":
        x = rng.normal(size=150)
        return pl.DataFrame({"x": x, "y": 2 * x + rng.normal(size=150), "z": rng.gamma(2.0, size=150)})
    if name == "categorical":
        a = rng.integers(0, 5, 250)
        frame = pl.DataFrame(
            {
                "a": np.array(["p", "q", "r", "s", "t"])[a],
                "b": np.array(["u", "v", "w"])[(a + rng.integers(0, 2, 250)) % 3],
                "c": rng.random(250) < 0.2 + 0.1 * a,
                "d": rng.choice(["k", "l", "m", "n"], 250),
            }
        )
        return frame.with_columns(_with_nulls(frame["b"], rng, 0.1), _with_nulls(frame["d"], rng, 0.3))
    if name == "steps":
        at = pl.Series(rng.integers(0, 1_440, 200) * 60 * 10**9).cast(pl.Time)
        return pl.DataFrame({"at": at, "hour": at.dt.hour(), "load": rng.normal(at.dt.hour().to_numpy(), 3)})
    assert name == "mixed"
    rows, group = 300, rng.integers(0, 4, 300)
    bonus = pl.Series("bonus", np.where(rng.random(rows) < 0.4, 0.0, rng.lognormal(group / 2, 1)))
    score = pl.Series("score", np.where(rng.random(rows) < 0.25, 5.0, rng.normal(5 + group, 2)))
    return pl.DataFrame(
        {
            "bonus": _with_nulls(bonus, rng, 0.15),
            "score": score.set(pl.Series(rng.random(rows) < 0.1), float("nan")),
            "age": np.where(rng.random(rows) < 0.2, 40, rng.integers(18, 60, rows) + 7 * group),
            "kids": rng.poisson(0.5 + group / 2, rows),
            "joined": _with_nulls(pl.Series("joined", 19_000 + rng.integers(0, 900, rows)).cast(pl.Date), rng, 0.05),
            "city": np.array(["Oslo", "Rome", "Lima", "Kyiv"])[group],
            "zip": (1000 + 7 * group + (rng.random(rows) < 0.3)).astype(np.int32),
            "member": pl.Series(rng.random(rows) < 0.3 + group / 6),
        }
    )


@lru_cache
def small_model(name: str) -> Any:
    """The model of a frame; "plain" has no smoothing, "open" open support, "uniform" no normals."""
    if name == "plain":
        return small_model("mixed").without_smoothing()
    if name.endswith(", joined"):
        return joined(small_model(name.removesuffix(", joined")))
    frame = small_frame({"open": "continuous", "uniform": "mixed"}.get(name, name))
    options: dict[str, Any] = {"support": "open"} if name == "open" else {}
    if name in ("mixed", "uniform"):
        options = {"bundles": [["city", "zip"]], "family": "uniform" if name == "uniform" else "truncnorm"}
    elif name == "categorical":
        options = {"bundles": False}
    numbers = {c: "numeric" for c, dtype in frame.schema.items() if dtype.is_numeric() or dtype.is_temporal()}
    return arf_dask.fit(frame, trees=3, min_leaf=6, seed=5, columns=numbers, **options)


def joined(model: Any, seed: int = 3) -> Any:
    """The model with a dependency tree over all of its variables but one, and ratios that no data would have."""
    rng = np.random.default_rng(seed)
    tables = model._fitted.tables
    bins = []
    for v in tables.variables:
        others = member_bins(v.variable, tables.schema.columns, v.histogram)
        bins.append(others[0] if others else code_bins(v.variable, v.histogram, 4))
    order = rng.permutation(len(bins))[: max(2, len(bins) - 1)].tolist()
    edges = []
    for place, child in enumerate(order[1:], start=1):
        parent = order[int(rng.integers(place))]
        shape = count_bins(bins[parent]), count_bins(bins[child])
        edges.append(Edge(parent, child, 0.1, np.ones(shape, dtype=np.int64), np.exp(rng.normal(size=shape))))
    with_trees = tables.with_dependence(Dependence(tuple(bins), tuple(edges)))
    return arf_dask.Model(replace(model._fitted, tables=with_trees))


@lru_cache
def brute(name: str) -> Brute:
    return Brute(small_model(name))


def conditions(name: str, n: int, most: int = 3, floats_as_points: bool = True) -> list[dict[str, Any]]:
    """`n` conditions of every form on up to `most` columns, none of them without a row that meets it."""
    rng = np.random.default_rng(n)
    name = name.removesuffix(", joined")
    frame = small_frame({"open": "continuous", "uniform": "mixed", "plain": "mixed"}.get(name, name))
    rows = frame.to_dicts()
    made = []
    for number in range(n):
        row = rows[int(rng.integers(len(rows)))]
        chosen = rng.permutation(frame.columns)[: 1 + number % most]
        made.append({str(c): _form(rng, row[c], rows, str(c), frame[c].dtype, floats_as_points) for c in chosen})
    return made


def _form(
    rng: Any, value: Any, rows: list[dict[str, Any]], name: str, dtype: pl.DataType, floats_as_points: bool
) -> Any:
    """A condition on one column that holds for `value`: itself, an interval around it, or a list with it."""
    if value is None or value != value:
        return value
    others = [r[name] for r in rows if r[name] is not None and r[name] == r[name]]
    more = [others[int(i)] for i in rng.integers(len(others), size=2)]
    line = dtype.is_numeric() or dtype.is_temporal()
    continuous = dtype.is_float() and others.count(value) < 10
    kind = rng.choice(["interval", "above", "below", "value", "list"])
    if not line or (kind in ("value", "list") and not (continuous and not floats_as_points)):
        if kind == "list" and not dtype.is_float():
            return [v for i, v in enumerate([value, *more]) if v not in [value, *more][:i]]
        return value
    if kind == "above" and value < max(others):
        return (value, None)
    if kind in ("above", "below"):
        return (None, max(others) if value == min(others) else value)
    low, high = min(value, more[0]), max(value, more[0])
    if low == high:
        return (low, high) if not continuous else (min(others), high) if low > min(others) else (low, max(others))
    return arf_dask.Interval(low, high, closed="left" if value == low else "right")


def _with_nulls(series: pl.Series, rng: Any, share: float) -> pl.Series:
    return series.set(pl.Series(rng.random(len(series)) < share), None)


def holds(value: Any, known: Any) -> bool:
    """Whether a value meets a condition on its column."""
    if known is None or value is None:
        return (known is None and value is None) or (isinstance(known, list) and value in known)
    if isinstance(known, list):
        return any(holds(value, one) for one in known)
    if isinstance(known, float) and math.isnan(known):
        return value != value
    if value != value:
        return False
    if isinstance(known, tuple):
        known = arf_dask.Interval(*known)
    if isinstance(known, arf_dask.Interval):
        above = known.low is None or value > known.low or (known.closed in ("both", "left") and value == known.low)
        return above and (
            known.high is None or value < known.high or (known.closed in ("both", "right") and value == known.high)
        )
    return value == known
