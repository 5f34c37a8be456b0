"""Do columns and variables hold together? Tokens that columns have, codes that tile, edges in order."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from arf_dask.axis import EXACT, FLOATS, Axis, is_numeric
from arf_dask.facts import BAD_INPUT, FACTS, require
from arf_dask.keys import IntegerSequence, KeyShape
from arf_dask.schema import FIRST_LEVEL, NAN, NULL, Column, Schema, Variable

LEVELS, STATES, TOKENS, BINS = "levels.parquet", "states.parquet", "tokens.parquet", "bins.parquet"


def check_schema(schema: Schema) -> None:
    """Raise a ModelFormatError for the first thing that does not hold."""
    require(len(schema.columns), FACTS, "no columns")
    require(len(set(schema.names)) == len(schema.names), FACTS, "a column name occurs twice")
    for column in schema.columns:
        _check_column(column, schema.n_rows)
    modelled = [i for i, column in enumerate(schema.columns) if column.kind in ("categorical", "numeric")]
    used = sorted(place for variable in schema.variables for place in variable.columns)
    require(used == modelled, FACTS, "variables must hold every modelled column exactly once")
    fine = all(type(gate) is int and 0 <= gate < len(schema.variables) for gate in schema.gates)
    require(fine, FACTS, "a gate that is no variable")
    for number, variable in enumerate(schema.variables):
        _check_variable(variable, schema, f"variable {number}")


def _check_column(column: Column, n_rows: int) -> None:
    where = f"column {column.name[:40]!r}"
    fine = column.nulls >= 0 and column.nans >= 0 and column.nulls + column.nans <= n_rows
    require(fine, FACTS, f"{where}: more nulls or NaNs than rows")
    fine = (column.axis is not None) == (column.kind == "numeric")
    fine = fine and (column.key is not None) == (column.kind == "key")
    require(fine, FACTS, f"{where}: axis or key shape needless or missing")
    if column.kind == "categorical":
        _check_levels(column, where)
    elif column.axis is not None:
        _check_axis(column.axis, column.dtype, where)
        _check_points(column, column.axis, where)
    else:
        fine = not len(column.levels) and not len(column.points)
        require(fine, LEVELS, f"{where}: levels, but it is not modelled")
    if column.key is not None:
        _check_key(column.key, column.dtype, where)


def _check_levels(column: Column, where: str) -> None:
    levels = column.levels
    fine = levels.dtype == column.dtype and levels.null_count() == 0 and not len(column.points)
    fine = fine and levels.n_unique() == len(levels) > 0
    require(fine, LEVELS, f"{where}: levels missing or repeated")


def _check_axis(axis: Axis, dtype: pl.DataType, where: str) -> None:
    fits = is_numeric(dtype) and axis.grid != (dtype in FLOATS)
    require(fits, FACTS, f"{where}: the axis does not fit the type {dtype}")
    ordered = math.isfinite(axis.low) and math.isfinite(axis.high) and axis.low <= axis.high
    require(ordered, FACTS, f"{where}: a range from {axis.low} to {axis.high}")
    fine = axis.step >= 1 and axis.shift in (0, 1) and max(abs(axis.origin), axis.step) < 2**128
    fine = fine and abs(axis.exponent) <= 1100 and (axis.decimals is None or 0 <= axis.decimals <= 15)
    if axis.grid:
        fine = fine and axis.low >= 0 and axis.high <= EXACT and axis.low % 1 == axis.high % 1 == 0
    require(fine, FACTS, f"{where}: axis out of bounds")
    require(_holds_range(axis, dtype), FACTS, f"{where}: its range does not fit the type {dtype}")


def _holds_range(axis: Axis, dtype: pl.DataType) -> bool:
    """Whether both ends of the axis are values of the type: asked of the code that will make them."""
    try:
        with np.errstate(all="ignore"):
            ends = axis.from_axis(np.array([axis.low, axis.high]), dtype)
        return ends.null_count() == 0 and ends.dtype == dtype and (axis.grid or bool(ends.is_finite().all()))
    except BAD_INPUT:
        return False


def _check_points(column: Column, axis: Axis, where: str) -> None:
    points, exact = column.points, column.levels
    ascending = np.all(np.isfinite(points)) and np.all(np.diff(points) > 0)
    require(ascending, LEVELS, f"{where}: points that are not ascending numbers")
    # A bound that vanishes beside huge values is moved inwards by one float, and a point may lie there.
    lowest, highest = np.nextafter(axis.low, -np.inf), np.nextafter(axis.high, np.inf)
    inside = np.all((points >= lowest) & (points <= highest))
    on_grid = not axis.grid or not np.any(points % 1)
    require(inside and on_grid, LEVELS, f"{where}: points outside the column's range or off its grid")
    whole = len(exact) == len(points) and exact.null_count() == 0 and exact.dtype == column.dtype
    require(whole or not len(exact), LEVELS, f"{where}: needs an exact value for every point or for none")


def _check_key(key: KeyShape, dtype: pl.DataType, where: str) -> None:
    is_text = isinstance(dtype, pl.String | pl.Categorical)
    fine = key.kind == ("template" if is_text else "sequence")
    fine = fine and (is_text or dtype.is_integer() or isinstance(dtype, pl.Decimal))
    require(fine, FACTS, f"{where}: key shape of another type")
    if isinstance(key.values, IntegerSequence):
        low, high = _limits(dtype)
        fine = low <= key.values.low_limit and key.values.high_limit <= high
        fine = fine and key.values.scale == (dtype.scale if isinstance(dtype, pl.Decimal) else 0)
        require(fine, FACTS, f"{where}: keys that do not fit the type {dtype}")


def _limits(dtype: pl.DataType) -> tuple[int, int]:
    if isinstance(dtype, pl.Decimal):
        top = 10 ** (38 if dtype.precision is None else dtype.precision) - 1
        return -top, top
    low, high = pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]
    return int(low), int(high)


def _check_variable(variable: Variable, schema: Schema, where: str) -> None:
    n, members = variable.n_states, [schema.columns[i] for i in variable.columns]
    low, high = variable.code_low, variable.code_high
    require(n >= 1 and len(low) == len(high) == n, STATES, f"{where}: no states, or of different lengths")
    fine = variable.tokens.shape == (n, len(members))
    require(fine, TOKENS, f"{where}: needs a token per member and state")
    for member, column in enumerate(members):
        _check_tokens(variable, member, column, where)
    points = variable.tokens[~variable.interval]
    fine = len(np.unique(points, axis=0)) == len(points)
    require(fine, TOKENS, f"{where}: two states of the same tokens")
    fine = np.array_equal(low[~variable.interval], high[~variable.interval])
    require(fine, STATES, f"{where}: a point of more than one code")
    if variable.is_line:
        _check_edges(variable, members[0], where)
        _check_line_codes(variable, members[0], where)
    else:
        tiles = np.array_equal(low, np.arange(n)) and variable.first_bin == len(variable.segments) == 0
        require(tiles, STATES, f"{where}: codes must be the numbers of the states")


def _check_tokens(variable: Variable, member: int, column: Column, where: str) -> None:
    tokens, is_number = variable.tokens[:, member], column.kind == "numeric"
    known = (tokens >= 0) & (tokens < FIRST_LEVEL + column.n_points)
    if not (is_number and column.dtype in FLOATS):
        known &= tokens != NAN
    if member == 0:
        known = np.where(variable.interval, is_number & (tokens == column.between), known)
    require(np.all(known), TOKENS, f"{where}: a token that column {column.name[:40]!r} does not have")


def _check_edges(variable: Variable, lead: Column, where: str) -> None:
    require(lead.axis is not None, FACTS, f"{where}: a line, but its first column is none")
    assert lead.axis is not None
    edges, half = variable.edges, 0.5 if lead.axis.grid else 0.0
    around = np.concatenate([[lead.axis.low - half], edges, [lead.axis.high + half]])
    fine = np.all(np.isfinite(edges)) and np.all(np.diff(edges) > 0) and np.all(np.diff(around) >= 0)
    require(fine, BINS, f"{where}: edges that do not ascend inside the column's range")
    fine = np.all(np.diff(variable.segments) > 0) and np.all(np.isin(variable.segments, edges))
    require(fine, BINS, f"{where}: a border of intervals that is no edge")


def _check_line_codes(variable: Variable, lead: Column, where: str) -> None:
    """Null and NaN, then bins: points sit in the bin of their place, intervals tile all bins in order."""
    first, edges, low, high = variable.first_bin, variable.edges, variable.code_low, variable.code_high
    token = variable.tokens[:, 0]
    special = (token == NULL) | (token == NAN)
    fine = np.array_equal(np.sort(low[special]), np.arange(first))
    require(fine, STATES, f"{where}: null and NaN must have the first codes")
    points = ~special & ~variable.interval
    bins = first + np.searchsorted(edges, lead.points[token[points] - FIRST_LEVEL], side="right")
    fine = np.array_equal(low[points], bins) and len(np.unique(bins)) == len(bins)
    require(fine, STATES, f"{where}: a point outside its bin, or two in one")
    places = np.flatnonzero(variable.interval)
    ends = [*(first + np.searchsorted(edges, variable.segments)), first + len(edges)]
    # Beyond the first and the last there may be bins of spikes alone.
    tiles = np.all(np.diff(places) == 1) and np.array_equal(high[places][:-1], ends[:-1])
    tiles = tiles and np.array_equal(low[places][1:], high[places][:-1] + 1) and bool(np.all(low <= high))
    tiles = tiles and (not len(places) or (low[places][0] >= first and high[places][-1] <= ends[-1]))
    require(tiles, STATES, f"{where}: intervals do not tile the codes")
