"""Moments per (leaf, interval): number of rows, mean and sum of squared deviations of the values in each interval.

Moments are computed by a Polars group-by and merged by Chan's formula. The group-by uses the in-memory engine, which
sums the rows of a group in order: the streaming engine is not faster here, and its last digits depend on the number of
threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.schema.columns import Schema, Variable
from arf_dask.schema.encoding import EncodedRows
from arf_dask.typing import Counts, Floats

MOMENT_BYTES = 24  # per (leaf, interval)


class Moments(NamedTuple):
    """Moments of one number line in one tree, as (leaf, interval) arrays."""

    rows: Floats
    means: Floats  # 0 if there are no rows
    squares: Floats  # sum of squared deviations from the mean


class LinePlaces(NamedTuple):
    """The axis values of rows on the number lines that share a group-by, one column per line."""

    numbers: list[int]  # indices of the variables
    table: pl.DataFrame  # null if a value is in no interval
    rows: Counts | None  # the rows contained in the table; None: all
    interval: Counts | None  # interval index of each row; None if the line has a single interval
    n_intervals: int


def arrange_places(rows: EncodedRows, schema: Schema) -> list[LinePlaces]:
    """Arrange the axis values of a part for `leaf_moments`; the result is shared by all trees.

    Lines with one interval share a group-by on the leaf. Each line with several intervals has a separate group-by on
    leaf and interval.
    """
    arranged, single_lines = [], {}
    for number, variable in enumerate(schema.variables):
        line_values, states = rows.axis_values[number], rows.states[number]
        if line_values is None:
            continue
        first_interval = variable.first_interval
        if variable.n_states - first_interval == 1:
            column = pl.Series(str(number), line_values)
            single_lines[number] = (
                column if first_interval == 0 else column.set(pl.Series(states < first_interval), None)
            )
            continue
        inside_rows = np.flatnonzero(states >= first_interval)
        table = pl.DataFrame({str(number): line_values[inside_rows]})
        interval = states[inside_rows].astype(np.int64) - first_interval
        arranged.append(LinePlaces([number], table, inside_rows, interval, variable.n_states - first_interval))
    if single_lines:
        arranged.append(LinePlaces(list(single_lines), pl.DataFrame(list(single_lines.values())), None, None, 1))
    return arranged


def leaf_moments(arranged: Sequence[LinePlaces], leaf: Counts, n_leaves: int) -> dict[int, Moments]:
    """Return the moments of one tree by variable, given the leaf of every row (paper, Alg. 2)."""
    moments_by_variable = {}
    for line_places in arranged:
        cell = leaf if line_places.rows is None else leaf[line_places.rows]
        cell = cell if line_places.interval is None else cell * line_places.n_intervals + line_places.interval
        columns = pl.exclude("cell")
        cell_groups = line_places.table.lazy().with_columns(cell=pl.Series(cell)).group_by("cell")
        table = cell_groups.agg(
            columns.count().name.suffix(" rows"),
            columns.mean().name.suffix(" mean"),
            columns.var(ddof=0).name.suffix(" variance"),
        ).collect(engine="in-memory")
        for number in line_places.numbers:
            moments_by_variable[number] = _moments(table, number, (n_leaves, line_places.n_intervals))
    return moments_by_variable


def empty_moments(variable: Variable, n_leaves: int) -> Moments:
    """Return moments of zero rows."""
    return Moments(*np.zeros((3, n_leaves, variable.n_states - variable.first_interval)))


def merge_moments(one: Moments, other: Moments) -> Moments:
    """Merge the moments of two sets of rows, by the formula of Chan, Golub and LeVeque (1979).

    With n = n_a + n_b and d = mean_b - mean_a, the mean is mean_a + d n_b / n and the sum of squared deviations is
    M_a + M_b + d^2 n_a n_b / n. This is numerically stable however far the mean is from zero.
    """
    total_rows = one.rows + other.rows
    other_share = other.rows / np.maximum(total_rows, 1.0)
    mean_difference = other.means - one.means
    merged_means = one.means + mean_difference * other_share
    return Moments(total_rows, merged_means, one.squares + other.squares + mean_difference**2 * one.rows * other_share)


def _moments(table: pl.DataFrame, number: int, shape: tuple[int, int]) -> Moments:
    """Convert the result of a group-by to dense arrays of moments."""
    rows, means, squares = np.zeros((3, shape[0] * shape[1]))
    cell = table["cell"].to_numpy()
    rows[cell] = table[f"{number} rows"].to_numpy()
    means[cell] = _known(table[f"{number} mean"])
    squares[cell] = _known(table[f"{number} variance"]) * rows[cell]
    return Moments(rows.reshape(shape), means.reshape(shape), squares.reshape(shape))


def _known(column: pl.Series) -> NDArray[np.float64]:
    return np.asarray(column.fill_null(0.0).to_numpy())
