"""Values to codes and back. Codes are what trees split on; states are what leaves count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.axis import FLOATS, nameless
from arf_dask.errors import DataError
from arf_dask.profile import text_of
from arf_dask.schema import FIRST_LEVEL, NAN, NULL, Column, Floats, Ints, Schema, Variable

Codes = NDArray[np.unsignedinteger]
UNSEEN = -1
MOST_COMBINED = 2**20  # combinations of tokens that are looked up in a table
MOST_GRID = 2**16  # places of a grid that are looked up in a table


def column_tokens(series: pl.Series, column: Column) -> Ints:
    """The token of every row (schema.py); -1 for a level never seen."""
    if column.kind == "categorical":
        return _level_tokens(series, column)
    assert column.axis is not None
    return _place_tokens(column.axis.to_axis(series), _nan_flags(series), column)


def line_places(series: pl.Series, column: Column) -> Floats:
    """Places on the axis; NaN where there is no number."""
    assert column.axis is not None
    return column.axis.to_axis(series) + 0.0


def encode_states(frame: pl.DataFrame, schema: Schema, number: int) -> tuple[Ints, Floats | None]:
    """The state of every row in one variable (-1: never seen) and, for a line, the places."""
    variable = schema.variables[number]
    lead = schema.columns[variable.columns[0]]
    if not variable.is_line:
        return _point_states([column_tokens(frame[c.name], c) for c in _members(schema, variable)], variable), None
    places = line_places(frame[lead.name], lead)
    tokens = _place_tokens(places, _nan_flags(frame[lead.name]), lead)
    states = line_states(tokens, places, variable, lead)
    for member, column in enumerate(_members(schema, variable)[1:], start=1):
        # A bundle's other members are functions of the line: any other value was never seen.
        agree = variable.tokens[states, member] == column_tokens(frame[column.name], column)
        states = np.where(agree, states, UNSEEN).astype(np.int32)
    return states, places


def line_states(tokens: Ints, places: Floats, variable: Variable, lead: Column) -> Ints:
    """States of a number line: points by their token, other numbers by the segment they fall in."""
    by_token = np.full(lead.between + 1, UNSEEN, dtype=np.int32)
    points = np.flatnonzero(~variable.interval)
    by_token[variable.tokens[points, 0]] = points
    states = by_token[tokens]
    between = tokens == lead.between
    if between.any() and variable.interval.any():
        segment = np.searchsorted(variable.segments, places[between], side="right")
        states[between] = variable.first_interval + segment
    return states


def match_frame(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """The schema's columns of a frame, with its dtypes; one error for all that are not there or differ."""
    missing = [name for name in schema.names if name not in frame.columns]
    if missing:
        raise DataError(
            f"columns missing: {', '.join(map(repr, missing))}. Give a frame with all columns of the model."
        )
    odd = [name for name, dtype in schema.dtypes.items() if frame.schema[name] != dtype]
    if odd:
        listed = ", ".join(f"{name!r} is {frame.schema[name]}, not {schema.dtypes[name]}" for name in odd)
        raise DataError(f"other types than the model's: {listed}. Cast them first.")
    return frame[schema.names]


def encode_codes(frame: pl.DataFrame, schema: Schema, *, strict: bool = True) -> Codes:
    """Codes of every (row, variable), in column-major order.

    Values the schema has never seen are an error; where not `strict` they get any code (states tell them).
    """
    dtype = np.uint16 if all(v.n_codes <= 2**16 for v in schema.variables) else np.uint32
    codes = np.empty((frame.height, len(schema.variables)), dtype=dtype, order="F")
    for number, variable in enumerate(schema.variables):
        lead = schema.columns[variable.columns[0]]
        if variable.is_line:
            found = line_codes(frame[lead.name], variable, lead)
        else:
            found = encode_states(frame, schema, number)[0]
        if strict and found.size and found.min() < 0:
            names = ", ".join(repr(c.name) for c in _members(schema, variable))
            rows = int((found < 0).sum())
            raise DataError(
                f"{names}: {rows} rows hold values that were never seen. Fit with these rows, or drop them."
            )
        codes[:, number] = np.maximum(found, 0)
    return codes


def line_codes(series: pl.Series, variable: Variable, lead: Column) -> Ints:
    """Bin numbers of a number line, after the codes of null and NaN."""
    places = line_places(series, lead)
    codes = _search(variable.edges, places, lead, side="right") + np.int32(variable.first_bin)
    empty = np.isnan(places)
    if empty.any():
        by_token = {int(t): int(c) for t, c in zip(variable.tokens[:, 0], variable.code_low, strict=True)}
        nan = _nan_flags(series)
        codes[empty] = by_token.get(NULL, UNSEEN)
        codes[nan] = by_token.get(NAN, UNSEEN)
    return codes


class Encoded(NamedTuple):
    """Rows as leaf sums need them."""

    codes: Codes  # (row, variable), in column-major order
    states: list[NDArray[np.unsignedinteger]]  # per variable, in the smallest type
    places: list[Floats | None]  # per variable with intervals: the place on its line


def encode_rows(frame: pl.DataFrame, schema: Schema) -> Encoded:
    """Codes, states and places of every row. Values the schema has never seen are an error."""
    codes = encode_codes(frame, schema)
    states: list[NDArray[np.unsignedinteger]] = []
    places: list[Floats | None] = []
    for number, variable in enumerate(schema.variables):
        lead = schema.columns[variable.columns[0]]
        places.append(line_places(frame[lead.name], lead) if variable.interval.any() else None)
        states.append(row_states(codes[:, number], places[-1], variable, lead))
    return Encoded(codes, states, places)


def row_states(codes: Codes, places: Floats | None, variable: Variable, lead: Column) -> NDArray[np.unsignedinteger]:
    """The state of every row from its code, in the smallest type.

    Numbers in the bin of a spike that are not that spike belong to the interval around it. There are none among the
    rows that the bins were made from.
    """
    small = np.uint8 if variable.n_states <= 2**8 else np.uint16 if variable.n_states <= 2**16 else np.uint32
    states: NDArray[Any] = states_of_codes(variable).astype(small)[codes]
    token, first = variable.tokens[:, 0], variable.first_interval
    spikes = (token >= FIRST_LEVEL) & ~variable.interval
    if places is None or not spikes.any():
        return states
    point = np.full(variable.n_states, np.nan)
    point[spikes] = lead.points[token[spikes] - FIRST_LEVEL]
    beside = np.flatnonzero((states < first) & (states >= int(np.argmax(spikes))))
    beside = beside[point[states[beside]] != places[beside]]
    if len(beside):
        states[beside] = first + np.searchsorted(variable.segments, places[beside], side="right")
    return states


def states_of_codes(variable: Variable) -> Ints:
    """The state that a code stands for among rows that were seen: an atom owns its bin."""
    states = np.zeros(variable.n_codes, dtype=np.int32)
    for state in np.flatnonzero(variable.interval):
        states[variable.code_low[state] : variable.code_high[state] + 1] = state
    points = np.flatnonzero(~variable.interval)
    states[variable.code_low[points]] = points
    return states


def decode_column(column: Column, tokens: Ints, places: Floats | None, *, open_ends: bool = False) -> pl.Series:
    """Values of a column from tokens and, for a line, the places of the rows that are no points.

    Places beyond the range seen stay there only with `open_ends`.
    """
    if column.kind == "categorical":
        index = pl.Series(tokens.astype(np.int64) - FIRST_LEVEL)
        index = index.set(pl.Series(tokens == NULL), None) if (tokens == NULL).any() else index
        return column.levels.gather(index).alias(column.name)
    assert column.axis is not None
    numbers = tokens >= FIRST_LEVEL
    inside = np.where(numbers & (tokens < column.between), tokens - FIRST_LEVEL, 0)
    at = column.points[inside] if len(column.points) else np.zeros(len(tokens))
    if places is not None:
        at = np.where(tokens == column.between, places, at)
    values = column.axis.from_axis(at, column.dtype, open_ends=open_ends)
    if len(column.levels):  # spikes whose exact value float64 does not hold
        exact = column.levels.gather(pl.Series(inside.astype(np.int64)))
        values = exact.zip_with(pl.Series(tokens < column.between), values)
    if (tokens == NAN).any():
        values = values.set(pl.Series(tokens == NAN), float("nan"))
    if (tokens == NULL).any():
        values = values.set(pl.Series(tokens == NULL), None)
    return values.alias(column.name)


def _members(schema: Schema, variable: Variable) -> list[Column]:
    return [schema.columns[i] for i in variable.columns]


def _nan_flags(series: pl.Series) -> NDArray[np.bool_]:
    if series.dtype not in FLOATS:
        return np.zeros(len(series), dtype=bool)
    return np.asarray(nameless(series).is_nan().fill_null(False).to_numpy())


def _level_tokens(series: pl.Series, column: Column) -> Ints:
    levels = pl.Enum(text_of(column.levels))
    found = text_of(series).cast(levels, strict=False).to_physical().cast(pl.Int32)
    tokens = (found + FIRST_LEVEL).fill_null(UNSEEN).to_numpy(writable=True)
    tokens[nameless(series).is_null().to_numpy()] = NULL
    return np.asarray(tokens, dtype=np.int32)


def _place_tokens(places: Floats, nan: NDArray[np.bool_], column: Column) -> Ints:
    tokens = np.full(len(places), column.between, dtype=np.int32)
    if len(column.points):
        nearest = np.minimum(_search(column.points, places, column, side="left"), len(column.points) - 1)
        hit = column.points[nearest] == places
        tokens[hit] = nearest[hit] + FIRST_LEVEL
    tokens[np.isnan(places)] = NULL
    tokens[nan] = NAN
    return tokens


def _search(sorted_places: Floats, places: Floats, column: Column, side: Literal["left", "right"]) -> Ints:
    """`np.searchsorted`; by a table where all places are those of a small grid, which takes a tenth of the time."""
    axis = column.axis
    if axis is not None and axis.grid and axis.high < MOST_GRID <= len(places):
        # No number (null) is looked up as 0: who asks knows where there is none.
        whole = np.nan_to_num(places, nan=0.0)
        if whole.min() >= 0 and whole.max() <= axis.high:
            index = whole.astype(np.int32)
            if np.array_equal(index, whole):
                everywhere = np.arange(axis.high + 1)
                return np.searchsorted(sorted_places, everywhere, side=side).astype(np.int32)[index]
    return np.searchsorted(sorted_places, places, side=side).astype(np.int32)


def _point_states(tokens: Sequence[Ints], variable: Variable) -> Ints:
    """The state whose tokens are these, by a mixed-radix number per combination."""
    sizes = variable.tokens.max(axis=0).astype(np.int64) + 2
    if np.prod(sizes.astype(np.float64)) <= MOST_COMBINED:
        return _looked_up(tokens, variable, sizes)
    keys, size = np.zeros(variable.n_states, dtype=np.int64), np.int64(1)
    wanted = np.zeros(len(tokens[0]), dtype=np.int64)
    unseen = np.zeros(len(tokens[0]), dtype=bool)
    for member, column in enumerate(tokens):
        values = np.unique(variable.tokens[:, member])
        place = np.minimum(np.searchsorted(values, column), len(values) - 1)
        unseen |= values[place] != column
        keys = keys * len(values) + np.searchsorted(values, variable.tokens[:, member])
        wanted = wanted * len(values) + place
        keys, wanted, size = _squeeze(keys, wanted, unseen)
    order = np.argsort(keys)
    return np.where(unseen, UNSEEN, order[np.minimum(wanted, size - 1)]).astype(np.int32)


def _looked_up(tokens: Sequence[Ints], variable: Variable, sizes: NDArray[np.int64]) -> Ints:
    """The same from a table of all combinations, seen or not; the last token of each member stands for any other."""
    table = np.full(np.prod(sizes), UNSEEN, dtype=np.int32)
    key, wanted = np.zeros(variable.n_states, dtype=np.int64), np.int64(0)
    for member, (column, size) in enumerate(zip(tokens, sizes, strict=True)):
        key = key * size + variable.tokens[:, member]
        # An unsigned -1 is larger than any token.
        wanted = wanted * size + np.minimum(column.view(np.uint32), np.uint32(size - 1))
    table[key] = np.arange(variable.n_states)
    return np.asarray(table[wanted])


def _squeeze(
    keys: NDArray[np.int64], wanted: NDArray[np.int64], unseen: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], np.int64]:
    """Renumber the combinations that exist 0, 1, .. so that products never overflow; marks all others."""
    values, small = np.unique(keys, return_inverse=True)
    place = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    unseen |= values[place] != wanted
    return small.astype(np.int64), place, np.int64(len(values))
