"""Consistency checks of a schema: valid tokens, codes without gaps or overlaps, sorted edges."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from arf_dask.data.axes import EXACT, FLOATS, Axis, is_numeric
from arf_dask.data.keys import IntegerSequence, KeyShape
from arf_dask.data.stored_fields import require
from arf_dask.schema.columns import FIRST_LEVEL, NAN, NULL, Column, Schema, Variable
from arf_dask.storage.fields import BAD_INPUT, MODEL_JSON

LEVELS, STATES, TOKENS, BINS = "levels.parquet", "states.parquet", "tokens.parquet", "bins.parquet"


def check_schema(schema: Schema) -> None:
    """Raise a ModelFormatError for the first inconsistency of a schema."""
    n_rows = schema.n_rows
    require(1 <= n_rows < 2**53, MODEL_JSON, f"n_rows is {n_rows}, not at least 1")
    require(len(schema.columns), MODEL_JSON, "no columns")
    require(len(set(schema.names)) == len(schema.names), MODEL_JSON, "a column name occurs twice")
    for column in schema.columns:
        _check_column(column, schema.n_rows)
    modelled_indices = [
        column_index for column_index, column in enumerate(schema.columns) if column.kind in ("categorical", "numeric")
    ]
    used_indices = sorted(index for variable in schema.variables for index in variable.columns)
    require(used_indices == modelled_indices, MODEL_JSON, "variables must hold every modelled column exactly once")
    is_valid = all(type(gate) is int and 0 <= gate < len(schema.variables) for gate in schema.gates)
    require(is_valid, MODEL_JSON, "a gate that is no variable")
    for number, variable in enumerate(schema.variables):
        _check_variable(variable, schema, f"variable {number}")


def _check_column(column: Column, n_rows: int) -> None:
    where = f"column {column.name[:40]!r}"
    is_valid = column.nulls >= 0 and column.nans >= 0 and column.nulls + column.nans <= n_rows
    require(is_valid, MODEL_JSON, f"{where}: more nulls or NaNs than rows")
    is_valid = (column.axis is not None) == (column.kind == "numeric")
    is_valid = is_valid and (column.key is not None) == (column.kind == "key")
    require(is_valid, MODEL_JSON, f"{where}: axis or key shape needless or missing")
    if column.kind == "categorical":
        _check_levels(column, where)
    elif column.axis is not None:
        _check_axis(column.axis, column.dtype, where)
        _check_points(column, column.axis, where)
    else:
        is_valid = not len(column.levels) and not len(column.points)
        require(is_valid, LEVELS, f"{where}: levels, but it is not modelled")
    if column.key is not None:
        _check_key(column.key, column.dtype, where)


def _check_levels(column: Column, where: str) -> None:
    levels = column.levels
    is_valid = levels.dtype == column.dtype and levels.null_count() == 0 and not len(column.points)
    is_valid = is_valid and levels.n_unique() == len(levels) > 0
    require(is_valid, LEVELS, f"{where}: levels missing or repeated")


def _check_axis(axis: Axis, dtype: pl.DataType, where: str) -> None:
    dtype_fits = is_numeric(dtype) and axis.grid != (dtype in FLOATS)
    require(dtype_fits, MODEL_JSON, f"{where}: the axis does not fit the type {dtype}")
    is_ordered = math.isfinite(axis.low) and math.isfinite(axis.high) and axis.low <= axis.high
    require(is_ordered, MODEL_JSON, f"{where}: a range from {axis.low} to {axis.high}")
    is_valid = axis.step >= 1 and axis.shift in (0, 1) and max(abs(axis.origin), axis.step) < 2**128
    is_valid = is_valid and abs(axis.exponent) <= 1100 and (axis.decimals is None or 0 <= axis.decimals <= 15)
    if axis.grid:
        is_valid = is_valid and axis.low >= 0 and axis.high <= EXACT and axis.low % 1 == axis.high % 1 == 0
    require(is_valid, MODEL_JSON, f"{where}: axis out of bounds")
    require(_holds_range(axis, dtype), MODEL_JSON, f"{where}: its range does not fit the type {dtype}")


def _holds_range(axis: Axis, dtype: pl.DataType) -> bool:
    """Return whether both ends of the axis can be converted to values of the dtype."""
    try:
        with np.errstate(all="ignore"):
            end_values = axis.from_axis(np.array([axis.low, axis.high]), dtype)
        return (
            end_values.null_count() == 0
            and end_values.dtype == dtype
            and (axis.grid or bool(end_values.is_finite().all()))
        )
    except BAD_INPUT:
        return False


def _check_points(column: Column, axis: Axis, where: str) -> None:
    points, exact_values = column.points, column.levels
    is_ascending = np.all(np.isfinite(points)) and np.all(np.diff(points) > 0)
    require(is_ascending, LEVELS, f"{where}: points that are not ascending numbers")
    # Rounding may move a bound inwards by one float, in which case a point may lie just outside.
    lowest, highest = np.nextafter(axis.low, -np.inf), np.nextafter(axis.high, np.inf)
    is_inside = np.all((points >= lowest) & (points <= highest))
    on_grid = not axis.grid or not np.any(points % 1)
    require(is_inside and on_grid, LEVELS, f"{where}: points outside the column's range or off its grid")
    is_complete = (
        len(exact_values) == len(points) and exact_values.null_count() == 0 and exact_values.dtype == column.dtype
    )
    require(is_complete or not len(exact_values), LEVELS, f"{where}: needs an exact value for every point or for none")


def _check_key(key: KeyShape, dtype: pl.DataType, where: str) -> None:
    is_text = isinstance(dtype, pl.String | pl.Categorical)
    is_valid = key.kind == ("template" if is_text else "sequence")
    is_valid = is_valid and (is_text or dtype.is_integer() or isinstance(dtype, pl.Decimal))
    require(is_valid, MODEL_JSON, f"{where}: key shape of another type")
    if isinstance(key.values, IntegerSequence):
        low, high = _limits(dtype)
        is_valid = low <= key.values.low_limit and key.values.high_limit <= high
        is_valid = is_valid and key.values.scale == (dtype.scale if isinstance(dtype, pl.Decimal) else 0)
        require(is_valid, MODEL_JSON, f"{where}: keys that do not fit the type {dtype}")


def _limits(dtype: pl.DataType) -> tuple[int, int]:
    if isinstance(dtype, pl.Decimal):
        largest_value = 10 ** (38 if dtype.precision is None else dtype.precision) - 1
        return -largest_value, largest_value
    low, high = pl.select(low=dtype.min(), high=dtype.max()).row(0)  # type: ignore[attr-defined]
    return int(low), int(high)


def _check_variable(variable: Variable, schema: Schema, where: str) -> None:
    n_states, members = variable.n_states, [schema.columns[i] for i in variable.columns]
    code_low, code_high = variable.code_low, variable.code_high
    require(
        n_states >= 1 and len(code_low) == len(code_high) == n_states,
        STATES,
        f"{where}: no states, or of different lengths",
    )
    is_valid = variable.tokens.shape == (n_states, len(members))
    require(is_valid, TOKENS, f"{where}: needs a token per member and state")
    for member, column in enumerate(members):
        _check_tokens(variable, member, column, where)
    point_tokens = variable.tokens[~variable.interval]
    is_valid = len(np.unique(point_tokens, axis=0)) == len(point_tokens)
    require(is_valid, TOKENS, f"{where}: two states of the same tokens")
    is_valid = np.array_equal(code_low[~variable.interval], code_high[~variable.interval])
    require(is_valid, STATES, f"{where}: a point of more than one code")
    if variable.is_line:
        _check_edges(variable, members[0], where)
        _check_line_codes(variable, members[0], where)
    else:
        is_tiled = np.array_equal(code_low, np.arange(n_states)) and variable.first_bin == len(variable.segments) == 0
        require(is_tiled, STATES, f"{where}: codes must be the numbers of the states")


def _check_tokens(variable: Variable, member: int, column: Column, where: str) -> None:
    tokens, is_number = variable.tokens[:, member], column.kind == "numeric"
    is_known = (tokens >= 0) & (tokens < FIRST_LEVEL + column.n_points)
    if not (is_number and column.dtype in FLOATS):
        is_known &= tokens != NAN
    if member == 0:
        is_known = np.where(variable.interval, is_number & (tokens == column.between), is_known)
    require(np.all(is_known), TOKENS, f"{where}: a token that column {column.name[:40]!r} does not have")


def _check_edges(variable: Variable, lead: Column, where: str) -> None:
    require(lead.axis is not None, MODEL_JSON, f"{where}: a line, but its first column is none")
    assert lead.axis is not None
    edges, half_step = variable.edges, 0.5 if lead.axis.grid else 0.0
    all_edges = np.concatenate([[lead.axis.low - half_step], edges, [lead.axis.high + half_step]])
    is_valid = np.all(np.isfinite(edges)) and np.all(np.diff(edges) > 0) and np.all(np.diff(all_edges) >= 0)
    require(is_valid, BINS, f"{where}: edges that do not ascend inside the column's range")
    is_valid = np.all(np.diff(variable.segments) > 0) and np.all(np.isin(variable.segments, edges))
    require(is_valid, BINS, f"{where}: a border of intervals that is no edge")


def _check_line_codes(variable: Variable, lead: Column, where: str) -> None:
    """Check that null and NaN have the first codes, points the bin of their value, and that intervals tile the bins."""
    first_bin, edges, code_low, code_high = variable.first_bin, variable.edges, variable.code_low, variable.code_high
    lead_tokens = variable.tokens[:, 0]
    is_missing = (lead_tokens == NULL) | (lead_tokens == NAN)
    is_valid = np.array_equal(np.sort(code_low[is_missing]), np.arange(first_bin))
    require(is_valid, STATES, f"{where}: null and NaN must have the first codes")
    is_point = ~is_missing & ~variable.interval
    point_bins = first_bin + np.searchsorted(edges, lead.points[lead_tokens[is_point] - FIRST_LEVEL], side="right")
    is_valid = np.array_equal(code_low[is_point], point_bins) and len(np.unique(point_bins)) == len(point_bins)
    require(is_valid, STATES, f"{where}: a point outside its bin, or two in one")
    interval_states = np.flatnonzero(variable.interval)
    interval_ends = [*(first_bin + np.searchsorted(edges, variable.segments)), first_bin + len(edges)]
    # Bins before the first and after the last interval may hold only spikes.
    is_tiled = np.all(np.diff(interval_states) == 1) and np.array_equal(
        code_high[interval_states][:-1], interval_ends[:-1]
    )
    is_tiled = (
        is_tiled
        and np.array_equal(code_low[interval_states][1:], code_high[interval_states][:-1] + 1)
        and bool(np.all(code_low <= code_high))
    )
    is_tiled = is_tiled and (
        not len(interval_states)
        or (code_low[interval_states][0] >= first_bin and code_high[interval_states][-1] <= interval_ends[-1])
    )
    require(is_tiled, STATES, f"{where}: intervals do not tile the codes")
