"""Search for numbers that hang on a level: their spread inside the levels of other columns is much smaller.

A level is a value of a discrete column, or of two of them (a route from one station to another). Whether it tells where
the numbers are is judged on the other half of the rows, so that levels with few rows do not explain themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations

import numpy as np
import polars as pl

from arf_dask.rules.evaluation import evaluate, kind_of_dtype
from arf_dask.rules.expressions import Call, Constant, Name, Node, Operation
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.level import held_out_spread
from arf_dask.typing import Floats

LEAST_ROWS = 200
LEAST_LEVELS = 15  # fewer levels are modelled by the splits of trees
ROWS_PER_LEVEL = 3
MOST_COLUMNS = 8  # discrete columns that are combined in pairs
SMALLER = 0.6  # maximum spread inside levels in the other half of a sample, relative to that of all its rows
MOST_CANDIDATES = 3  # of levels of one column, and of pairs of columns
NEIGHBOURS = 4  # levels of integers that are joined to see whether they are a measure rather than a code
RISING = 0.9  # minimum rank correlation of a number that rises with the levels
AS_GOOD = 1.1  # maximum ratio of the spread inside joined levels to that inside single ones
LEAST_DISTINCT = 0.1  # minimum share of distinct values in the column
MOST_EQUAL = 0.3  # maximum share of neighbouring rows of a level with equal values: others are modelled together


def search_levels(frame: pl.DataFrame, targets: dict[str, Target], skip: Collection[str]) -> list[tuple[str, Node]]:
    """Return columns with expressions of levels that they may hang on, of which `finish_levels` chooses on all rows.

    Args:
        frame: a sample.
        targets: its columns.
        skip: columns that other rules decide.
    """
    if frame.height < LEAST_ROWS:
        return []
    numbers = [name for name in frame.columns if name not in skip and _is_continuous(frame.get_column(name))]
    if not numbers:
        return []
    codes = dict(_levels(frame, numbers))
    found = []
    for name in numbers:
        values = targets[name].units(frame.get_column(name)).cast(pl.Float64).to_numpy()
        is_known = ~np.isnan(values)
        spreads: dict[Node, float] = {}
        for node, level in codes.items():
            rows = is_known & (level >= 0)
            if rows.sum() < LEAST_ROWS or _are_points(values[rows], level[rows]):
                continue
            spread = held_out_spread(values[rows], level[rows])
            if spread <= SMALLER and not (_is_whole(node, frame) and _is_smooth(values[rows], level[rows], spread)):
                spreads[node] = spread
        # Levels with few rows tell more in the whole table than in a sample: all rows decide.
        ranked = sorted(spreads, key=lambda node: spreads[node])
        for are_single in (True, False):
            chosen = [node for node in ranked if isinstance(node, Name) == are_single]
            found += [(name, node) for node in chosen[:MOST_CANDIDATES]]
    return found


def _is_continuous(series: pl.Series) -> bool:
    """Whether a column is a number with many distinct values, and few that occur often."""
    known = series.drop_nulls()
    if not series.dtype.is_numeric() or len(known) < LEAST_ROWS:
        return False
    most_frequent = int(known.alias("").value_counts(sort=True, name="rows")["rows"][0])
    return known.n_unique() >= LEAST_DISTINCT * len(known) and most_frequent <= LEAST_DISTINCT * len(known)


def _levels(frame: pl.DataFrame, numbers: Collection[str]) -> Iterator[tuple[Node, Floats]]:
    """Yield expressions of levels with their codes (-1: null): discrete columns by themselves first, then pairs."""
    singles: list[str] = []
    for series in frame:
        kind = kind_of_dtype(series.dtype)
        if series.name in numbers or (kind != "text" and kind != "integer") or series.dtype == pl.Boolean:
            continue
        n_levels = series.n_unique()
        if 3 <= n_levels <= len(series) / ROWS_PER_LEVEL:
            singles.append(series.name)
            if n_levels >= LEAST_LEVELS:
                yield Name(series.name), _codes(series)
    texts = [name for name in singles if kind_of_dtype(frame.schema[name]) == "text"]
    for first, second in combinations(texts[:MOST_COLUMNS], 2):
        node = Operation("+", Operation("+", _as_text(first, frame), Constant(" | ")), _as_text(second, frame))
        level = evaluate(node, frame)
        if LEAST_LEVELS <= level.n_unique() <= len(level) / ROWS_PER_LEVEL:
            yield node, _codes(level)


def _as_text(name: str, frame: pl.DataFrame) -> Node:
    return Name(name) if kind_of_dtype(frame.schema[name]) == "text" else Call("text", (Name(name),))


def _codes(series: pl.Series) -> Floats:
    return np.asarray(series.alias("").cast(pl.String).rank("dense").cast(pl.Float64).fill_null(-1).to_numpy())


def _is_whole(node: Node, frame: pl.DataFrame) -> bool:
    """Whether the levels are the values of a column of integers."""
    return isinstance(node, Name) and kind_of_dtype(frame.schema[node.column]) == "integer"


def _is_smooth(values: Floats, codes: Floats, spread: float) -> bool:
    """Whether numbers rise or fall with the levels, or several neighbouring levels tell as much as one.

    The splits of trees model that. The levels of an identifier, such as a zip code, are in no such order.
    """
    _, order = np.unique(codes, return_inverse=True)
    rank = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    if abs(np.corrcoef(order, rank)[0, 1]) >= RISING:
        return True
    return held_out_spread(values, (order // NEIGHBOURS).astype(np.float64)) <= AS_GOOD * spread


def _are_points(values: Floats, codes: Floats) -> bool:
    """Whether many rows of a level have the same value: the column is then modelled together with the level."""
    order = np.lexsort((values, codes))
    is_pair = np.diff(codes[order]) == 0
    return bool(is_pair.any() and (np.diff(values[order]) == 0)[is_pair].mean() > MOST_EQUAL)
