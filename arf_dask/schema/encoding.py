"""Encode values as codes and states, and decode them. Trees split on codes; leaves count states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.axes import FLOATS, nameless
from arf_dask.data.checks import check_same_columns
from arf_dask.data.levels import text_of
from arf_dask.errors import DataError
from arf_dask.schema.columns import (
    FIRST_LEVEL,
    NAN,
    NULL,
    Column,
    Schema,
    Variable,
)
from arf_dask.typing import Codes, Flags, Floats, Ints

UNSEEN = -1
MOST_COMBINED = 2**20  # maximum number of token combinations for a lookup table
MOST_GRID = 2**16  # maximum number of grid points for a lookup table


def column_tokens(series: pl.Series, column: Column) -> Ints:
    """Return the token of each row (see `schema.columns`); -1 for unseen levels."""
    if column.kind == "categorical":
        return _level_tokens(series, column)
    assert column.axis is not None
    return _number_tokens(column.axis.to_axis(series), _nan_flags(series), column)


def possible(series: pl.Series, column: Column, *, observed: bool) -> Flags:
    """Flag the values that a modelled column can have: known levels, and numbers of its range and grid.

    Args:
        series: the values.
        column: the column; not an identifier.
        observed: whether floats keep their observed range; all other columns always do.
    """
    if column.kind not in ("categorical", "numeric"):
        return np.asarray(nameless(series).is_null().to_numpy())
    tokens = column_tokens(series, column)
    is_possible = np.where(tokens == NULL, column.nulls > 0, np.where(tokens == NAN, column.nans > 0, tokens != UNSEEN))
    if column.axis is None:
        return is_possible
    axis_values = to_axis_values(series, column)
    low, high = (column.axis.low, column.axis.high) if observed else column.axis.open_range
    is_inside = (
        (axis_values >= low) & (axis_values <= high) & (not column.axis.grid or axis_values == np.rint(axis_values))
    )
    return is_possible & (is_inside | np.isnan(axis_values))


def to_axis_values(series: pl.Series, column: Column) -> Floats:
    """Return the values of a numeric column on its axis; NaN for null and NaN."""
    assert column.axis is not None
    return column.axis.to_axis(series) + 0.0


def encode_states(frame: pl.DataFrame, schema: Schema, number: int) -> tuple[Ints, Floats | None]:
    """Return the state of each row in one variable (-1 if unseen) and, for a number line, the values on its axis."""
    variable = schema.variables[number]
    lead = schema.lead_column(variable)
    if not variable.is_line:
        return _point_states([column_tokens(frame[c.name], c) for c in schema.member_columns(variable)], variable), None
    axis_values = to_axis_values(frame[lead.name], lead)
    tokens = _number_tokens(axis_values, _nan_flags(frame[lead.name]), lead)
    states = line_states(tokens, axis_values, variable, lead)
    for member, column in enumerate(schema.member_columns(variable)[1:], start=1):
        # The other members of the bundle are functions of the line: any other value is unseen.
        is_consistent = variable.tokens[states, member] == column_tokens(frame[column.name], column)
        states = np.where(is_consistent, states, UNSEEN).astype(np.int32)
    return states, axis_values


def line_states(tokens: Ints, axis_values: Floats, variable: Variable, lead: Column) -> Ints:
    """Return the states of a number line: points by token, all other numbers by the segment that contains them."""
    states = variable.point_states(lead.between + 1)[tokens]
    is_between = tokens == lead.between
    if is_between.any() and variable.interval.any():
        states[is_between] = variable.interval_states(axis_values[is_between])
    return states


def match_frame(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Select the columns of a schema from a frame.

    Raises:
        DataError: Columns are missing or have other types than in the schema. The message lists all of them.
    """
    check_same_columns(frame.schema, schema.dtypes)
    return frame[schema.names]


def encode_codes(frame: pl.DataFrame, schema: Schema, *, strict: bool = True) -> Codes:
    """Return the codes as a (row, variable) matrix in column-major order.

    If not `strict`, unseen values get an arbitrary code, and `encode_states` identifies them.

    Raises:
        DataError: Rows hold values that are not in the schema, and `strict` is set.
    """
    dtype = np.uint16 if all(v.n_codes <= 2**16 for v in schema.variables) else np.uint32
    codes = np.empty((frame.height, len(schema.variables)), dtype=dtype, order="F")
    for variable_id, variable in enumerate(schema.variables):
        row_codes = variable_codes(frame, schema, variable_id)
        if strict and row_codes.size and row_codes.min() < 0:
            quoted_names = ", ".join(repr(c.name) for c in schema.member_columns(variable))
            n_unseen = int((row_codes < 0).sum())
            raise DataError(
                f"{quoted_names}: {n_unseen} rows hold values that were never seen. Fit with these rows, or drop them."
            )
        codes[:, variable_id] = np.maximum(row_codes, 0)
    return codes


def variable_codes(frame: pl.DataFrame, schema: Schema, number: int) -> Ints:
    """Return the code of each row in one variable; -1 if unseen."""
    variable = schema.variables[number]
    lead = schema.lead_column(variable)
    if variable.is_line:
        return line_codes(frame[lead.name], variable, lead)
    return encode_states(frame, schema, number)[0]


def line_codes(series: pl.Series, variable: Variable, lead: Column) -> Ints:
    """Return the codes of a number line: null and NaN first, then the bins."""
    axis_values = to_axis_values(series, lead)
    codes = _search(variable.edges, axis_values, lead, side="right") + np.int32(variable.first_bin)
    is_empty = np.isnan(axis_values)
    if is_empty.any():
        code_by_token = {int(t): int(c) for t, c in zip(variable.tokens[:, 0], variable.code_low, strict=True)}
        is_nan = _nan_flags(series)
        codes[is_empty] = code_by_token.get(NULL, UNSEEN)
        codes[is_nan] = code_by_token.get(NAN, UNSEEN)
    return codes


class EncodedRows(NamedTuple):
    """Encoded rows, from which leaf sums are computed."""

    codes: Codes  # (row, variable), in column-major order
    states: list[NDArray[np.unsignedinteger]]  # per variable, in the smallest dtype
    axis_values: list[Floats | None]  # per variable: values on its axis; None without intervals


def encode_rows(frame: pl.DataFrame, schema: Schema) -> EncodedRows:
    """Return the codes, states and axis values of all rows.

    Raises:
        DataError: Rows hold values that are not in the schema.
    """
    codes = encode_codes(frame, schema)
    states: list[NDArray[np.unsignedinteger]] = []
    axis_values: list[Floats | None] = []
    for variable_id, variable in enumerate(schema.variables):
        lead = schema.lead_column(variable)
        axis_values.append(to_axis_values(frame[lead.name], lead) if variable.interval.any() else None)
        states.append(row_states(codes[:, variable_id], axis_values[-1], variable, lead))
    return EncodedRows(codes, states, axis_values)


def row_states(
    codes: Codes, axis_values: Floats | None, variable: Variable, lead: Column
) -> NDArray[np.unsignedinteger]:
    """Return the state of each row from its code, in the smallest dtype.

    Numbers that share the bin of a spike without being equal to it belong to the interval around it. The rows that
    the bins were computed from contain none.
    """
    state_dtype = np.uint8 if variable.n_states <= 2**8 else np.uint16 if variable.n_states <= 2**16 else np.uint32
    states: NDArray[Any] = states_of_codes(variable).astype(state_dtype)[codes]
    lead_tokens, first_interval = variable.tokens[:, 0], variable.first_interval
    is_spike = (lead_tokens >= FIRST_LEVEL) & ~variable.interval
    if axis_values is None or not is_spike.any():
        return states
    spike_values = np.full(variable.n_states, np.nan)
    spike_values[is_spike] = lead.points[lead_tokens[is_spike] - FIRST_LEVEL]
    beside_spike = np.flatnonzero((states < first_interval) & (states >= int(np.argmax(is_spike))))
    beside_spike = beside_spike[spike_values[states[beside_spike]] != axis_values[beside_spike]]
    if len(beside_spike):
        states[beside_spike] = variable.interval_states(axis_values[beside_spike])
    return states


def states_of_codes(variable: Variable) -> Ints:
    """Return the state of each code in the training data, where the bin of an atom contains nothing else."""
    states = np.zeros(variable.n_codes, dtype=np.int32)
    for state in np.flatnonzero(variable.interval):
        states[variable.code_low[state] : variable.code_high[state] + 1] = state
    point_states = np.flatnonzero(~variable.interval)
    states[variable.code_low[point_states]] = point_states
    return states


def decode_column(column: Column, tokens: Ints, axis_values: Floats | None, *, open_ends: bool = False) -> pl.Series:
    """Decode the tokens of a column.

    Args:
        column: The column.
        tokens: The token of every row.
        axis_values: For a number line, the values on its axis, used for tokens of numbers that are not spikes.
        open_ends: Keep numbers outside the observed range instead of clipping them to it.
    """
    if column.kind == "categorical":
        level_index = pl.Series(tokens.astype(np.int64) - FIRST_LEVEL)
        level_index = level_index.set(pl.Series(tokens == NULL), None) if (tokens == NULL).any() else level_index
        return column.levels.gather(level_index).alias(column.name)
    assert column.axis is not None
    is_number = tokens >= FIRST_LEVEL
    point_index = np.where(is_number & (tokens < column.between), tokens - FIRST_LEVEL, 0)
    column_values = column.points[point_index] if len(column.points) else np.zeros(len(tokens))
    if axis_values is not None:
        column_values = np.where(tokens == column.between, axis_values, column_values)
    values = column.axis.from_axis(column_values, column.dtype, open_ends=open_ends)
    if len(column.levels):  # spikes that float64 cannot represent exactly
        exact_values = column.levels.gather(pl.Series(point_index.astype(np.int64)))
        values = exact_values.zip_with(pl.Series(tokens < column.between), values)
    if (tokens == NAN).any():
        values = values.set(pl.Series(tokens == NAN), float("nan"))
    if (tokens == NULL).any():
        values = values.set(pl.Series(tokens == NULL), None)
    return values.alias(column.name)


def _nan_flags(series: pl.Series) -> NDArray[np.bool_]:
    if series.dtype not in FLOATS:
        return np.zeros(len(series), dtype=bool)
    return np.asarray(nameless(series).is_nan().fill_null(False).to_numpy())


def _level_tokens(series: pl.Series, column: Column) -> Ints:
    level_dtype = pl.Enum(text_of(column.levels))
    level_ids = text_of(series).cast(level_dtype, strict=False).to_physical().cast(pl.Int32)
    tokens = (level_ids + FIRST_LEVEL).fill_null(UNSEEN).to_numpy(writable=True)
    tokens[nameless(series).is_null().to_numpy()] = NULL
    return np.asarray(tokens, dtype=np.int32)


def _number_tokens(axis_values: Floats, nan: NDArray[np.bool_], column: Column) -> Ints:
    tokens = np.full(len(axis_values), column.between, dtype=np.int32)
    if len(column.points):
        nearest_point = np.minimum(_search(column.points, axis_values, column, side="left"), len(column.points) - 1)
        is_point = column.points[nearest_point] == axis_values
        tokens[is_point] = nearest_point[is_point] + FIRST_LEVEL
    tokens[np.isnan(axis_values)] = NULL
    tokens[nan] = NAN
    return tokens


def _search(sorted_values: Floats, axis_values: Floats, column: Column, side: Literal["left", "right"]) -> Ints:
    """Apply `np.searchsorted` to values on the axis of a column.

    If all values are points of a small grid, a lookup table takes a tenth of the time.
    """
    axis = column.axis
    if axis is not None and axis.grid and axis.high < MOST_GRID <= len(axis_values):
        # Nulls are looked up as 0, and the caller overwrites the result.
        grid_values = np.nan_to_num(axis_values, nan=0.0)
        if grid_values.min() >= 0 and grid_values.max() <= axis.high:
            grid_index = grid_values.astype(np.int32)
            if np.array_equal(grid_index, grid_values):
                grid_points = np.arange(axis.high + 1)
                return np.searchsorted(sorted_values, grid_points, side=side).astype(np.int32)[grid_index]
    return np.searchsorted(sorted_values, axis_values, side=side).astype(np.int32)


def _point_states(tokens: Sequence[Ints], variable: Variable) -> Ints:
    """Return the state of each row from the tokens of all members, by a mixed-radix key per combination."""
    token_sizes = variable.tokens.max(axis=0).astype(np.int64) + 2
    if np.prod(token_sizes.astype(np.float64)) <= MOST_COMBINED:
        return _looked_up(tokens, variable, token_sizes)
    state_keys, n_keys = np.zeros(variable.n_states, dtype=np.int64), np.int64(1)
    row_keys = np.zeros(len(tokens[0]), dtype=np.int64)
    is_unseen = np.zeros(len(tokens[0]), dtype=bool)
    for member, row_tokens in enumerate(tokens):
        member_tokens = np.unique(variable.tokens[:, member])
        token_rank = np.minimum(np.searchsorted(member_tokens, row_tokens), len(member_tokens) - 1)
        is_unseen |= member_tokens[token_rank] != row_tokens
        state_keys = state_keys * len(member_tokens) + np.searchsorted(member_tokens, variable.tokens[:, member])
        row_keys = row_keys * len(member_tokens) + token_rank
        state_keys, row_keys, n_keys = _squeeze(state_keys, row_keys, is_unseen)
    key_order = np.argsort(state_keys)
    return np.where(is_unseen, UNSEEN, key_order[np.minimum(row_keys, n_keys - 1)]).astype(np.int32)


def _looked_up(tokens: Sequence[Ints], variable: Variable, sizes: NDArray[np.int64]) -> Ints:
    """Return the state of each row from a table of all combinations; the last index per member means unseen."""
    state_table = np.full(np.prod(sizes), UNSEEN, dtype=np.int32)
    state_keys, row_keys = np.zeros(variable.n_states, dtype=np.int64), np.int64(0)
    for member, (row_tokens, n_tokens) in enumerate(zip(tokens, sizes, strict=True)):
        state_keys = state_keys * n_tokens + variable.tokens[:, member]
        # As an unsigned integer, -1 is larger than any token.
        row_keys = row_keys * n_tokens + np.minimum(row_tokens.view(np.uint32), np.uint32(n_tokens - 1))
    state_table[state_keys] = np.arange(variable.n_states)
    return np.asarray(state_table[row_keys])


def _squeeze(
    keys: NDArray[np.int64], wanted: NDArray[np.int64], unseen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], np.int64]:
    """Renumber the existing keys from 0 so that products never overflow, and mark all other rows as unseen."""
    key_values, new_keys = np.unique(keys, return_inverse=True)
    key_rank = np.minimum(np.searchsorted(key_values, wanted), len(key_values) - 1)
    unseen |= key_values[key_rank] != wanted
    return new_keys.astype(np.int64), key_rank, np.int64(len(key_values))
