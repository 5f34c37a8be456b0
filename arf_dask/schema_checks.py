"""Do columns and variables hold together? Tokens that columns have, codes that tile, edges in order."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.axis import EXACT, FLOATS, Axis, is_numeric
from arf_dask.facts import BAD_INPUT, FACTS, require
from arf_dask.forest import Ints
from arf_dask.keys import IntegerSequence, KeyShape
from arf_dask.schema import FIRST_LEVEL, NAN, NULL, Column, Schema, Variable


def _check_column(column: Column, n_rows: int) -> None:
    where = f"column {column.name!r}"
    fine = 0 <= column.nulls <= n_rows and 0 <= column.nans <= n_rows - column.nulls
    require(fine, FACTS, f"{where}: more nulls or NaNs than rows")
    if column.kind == "categorical":
        _check_levels(column, where)
    elif column.kind == "numeric":
        _check_line(column, where)
    else:
        require(
            not len(column.levels) and not len(column.points),
            "levels.parquet",
            f"{where}: a {column.kind} has none",
        )
    require(
        (column.axis is not None) == (column.kind == "numeric"), FACTS, f"{where}: needless or missing axis"
    )
    require(
        (column.key is not None) == (column.kind == "key"), FACTS, f"{where}: needless or missing key shape"
    )
    if column.key is not None:
        _check_key(column.key, column.dtype, where)


def _check_levels(column: Column, where: str) -> None:
    levels = column.levels
    fine = (
        len(levels) > 0
        and levels.null_count() == 0
        and levels.n_unique() == len(levels)
        and not len(column.points)
    )
    require(fine and levels.dtype == column.dtype, "levels.parquet", f"{where}: levels missing or repeated")


def _check_line(column: Column, where: str) -> None:
    require(column.axis is not None and is_numeric(column.dtype), FACTS, f"{where}: not a number line")
    assert column.axis is not None
    _check_axis(column.axis, column.dtype, where)
    points, axis = column.points, column.axis
    fine = np.all(np.isfinite(points)) and np.all(np.diff(points) > 0)
    require(fine, "levels.parquet", f"{where}: points that are not ascending numbers")
    inside = np.all((points >= axis.low) & (points <= axis.high)) and not (axis.grid and np.any(points % 1))
    require(inside, "levels.parquet", f"{where}: points outside the column's range or off its grid")
    exact = column.levels
    fine = not len(exact) or (
        len(exact) == len(points) and exact.null_count() == 0 and exact.dtype == column.dtype
    )
    require(fine, "levels.parquet", f"{where}: needs an exact value for every point or for none")


def _check_axis(axis: Axis, dtype: pl.DataType, where: str) -> None:
    require(axis.grid != (dtype in FLOATS), FACTS, f"{where}: the axis does not fit the type {dtype}")
    ordered = math.isfinite(axis.low) and math.isfinite(axis.high) and axis.low <= axis.high
    require(ordered, FACTS, f"{where}: a range from {axis.low} to {axis.high}")
    fine = axis.step >= 1 and axis.shift in (0, 1) and max(abs(axis.origin), axis.step) < 2**128
    fine = fine and abs(axis.exponent) <= 1100 and (axis.decimals is None or 0 <= axis.decimals <= 15)
    fine = fine and (
        not axis.grid or (axis.low >= 0 and axis.high <= EXACT and not (axis.low % 1 or axis.high % 1))
    )
    require(fine, FACTS, f"{where}: axis out of bounds")
    try:
        with np.errstate(over="raise"):
            ends = axis.from_axis(np.array([axis.low, axis.high]), dtype)
        fits = (
            ends.null_count() == 0
            and ends.dtype == dtype
            and bool(ends.is_finite().all() if not axis.grid else True)
        )
    except BAD_INPUT:
        fits = False
    require(fits, FACTS, f"{where}: its range does not fit the type {dtype}")


def _check_key(key: KeyShape, dtype: pl.DataType, where: str) -> None:
    wanted = "template" if dtype in (pl.String, pl.Categorical) else "sequence"
    whole = dtype.is_integer() or isinstance(dtype, pl.Decimal)
    require(
        key.kind == wanted and (wanted == "template" or whole), FACTS, f"{where}: key shape of another type"
    )
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


def _check_members(schema: Schema) -> None:
    """Every modelled column belongs to exactly one variable."""
    require(len(set(schema.names)) == len(schema.names), FACTS, "a column name occurs twice")
    require(len(schema.columns), FACTS, "no columns")
    modelled = [
        place for place, column in enumerate(schema.columns) if column.kind in ("categorical", "numeric")
    ]
    used = sorted(place for variable in schema.variables for place in variable.columns)
    require(used == modelled, FACTS, "variables must hold every modelled column exactly once")


def _check_variable(variable: Variable, schema: Schema, where: str) -> None:
    file, n, members = "states.parquet", variable.n_states, [schema.columns[i] for i in variable.columns]
    lengths = {len(variable.tokens), len(variable.code_low), len(variable.code_high), n}
    require(n >= 1 and lengths == {n}, file, f"{where}: no states, or tables of different lengths")
    require(
        variable.tokens.shape == (n, len(members)),
        "tokens.parquet",
        f"{where}: needs a token per member and state",
    )
    for member, column in enumerate(members):
        _check_tokens(variable.tokens[:, member], variable.interval, column, member == 0, where)
    points = variable.tokens[~variable.interval]
    require(
        len(np.unique(points, axis=0)) == len(points),
        "tokens.parquet",
        f"{where}: two states of the same tokens",
    )
    low, high = variable.code_low, variable.code_high
    same = np.array_equal(low[~variable.interval], high[~variable.interval])
    require(same, file, f"{where}: a point of more than one code")
    if variable.is_line:
        _check_line_codes(variable, members[0], where)
        return
    tiles = np.array_equal(low, np.arange(n)) and not len(variable.segments) and variable.first_bin == 0
    require(tiles, file, f"{where}: codes must be the numbers of the states")


def _check_tokens(tokens: Ints, interval: NDArray[np.bool_], column: Column, lead: bool, where: str) -> None:
    known = (tokens >= 0) & (tokens < FIRST_LEVEL + column.n_points)
    if column.kind != "numeric" or column.dtype not in FLOATS:
        known &= tokens != NAN
    if lead:
        known = np.where(interval, (tokens == column.between) & (column.kind == "numeric"), known)
    require(np.all(known), "tokens.parquet", f"{where}: a token that column {column.name!r} does not have")


def _check_line_codes(variable: Variable, lead: Column, where: str) -> None:
    """Null and NaN, then bins: points sit in the bin of their place, intervals tile all bins in order."""
    file, first, edges, segments = "states.parquet", variable.first_bin, variable.edges, variable.segments
    require(
        lead.kind == "numeric" and lead.axis is not None,
        FACTS,
        f"{where}: edges, but its first column is no number",
    )
    assert lead.axis is not None
    half = 0.5 if lead.axis.grid else 0.0
    around = np.concatenate([[lead.axis.low - half], edges, [lead.axis.high + half]])
    ascending = np.all(np.isfinite(edges)) and np.all(np.diff(edges) > 0) and np.all(np.diff(around) >= 0)
    require(ascending, "bins.parquet", f"{where}: edges that are not ascending inside the column's range")
    token, codes = variable.tokens[:, 0], variable.code_low
    special = (token == NULL) | (token == NAN)
    require(
        np.array_equal(np.sort(codes[special]), np.arange(first)), file, f"{where}: codes of null and NaN"
    )
    points = ~special & ~variable.interval
    bins = first + np.searchsorted(edges, lead.points[token[points] - FIRST_LEVEL], side="right")
    alone = np.array_equal(codes[points], bins) and len(np.unique(bins)) == len(bins)
    require(alone, file, f"{where}: a point outside its bin")
    at = np.searchsorted(edges, segments)
    found = np.all(at < len(edges)) and np.array_equal(edges[np.minimum(at, len(edges) - 1)], segments)
    require(not len(segments) or found, "bins.parquet", f"{where}: a border of intervals that is no edge")
    places = np.flatnonzero(variable.interval)
    low, high = codes[places], variable.code_high[places]
    tiles = len(places) == len(segments) + 1 and np.array_equal(places, places[0] + np.arange(len(places)))
    tiles = tiles and np.array_equal(high, [*(first + at), first + len(edges)])
    require(
        tiles and np.array_equal(low, [first, *(high[:-1] + 1)]),
        file,
        f"{where}: intervals do not tile the codes",
    )


