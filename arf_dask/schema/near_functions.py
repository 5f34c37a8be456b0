"""Find columns that another column determines in nearly all rows, such as a product's name or a country's region.

Such a column is bundled with the column that determines it, exceptions included, so that only combinations in the data
are sampled. Little evidence per level is needed because it accumulates over all levels: 200 products with four rows
each are enough, and so are 20,000 products of which half have two rows. What counts are repeats: the rows beyond the
first of each value of the determining column. A value that occurs in one row says nothing.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.discrete import Discrete, collision

EXCEPTIONS = 0.04  # maximum share of rows that do not hold the most frequent child value of their parent value
SPARSE_EXCEPTIONS = 0.1  # the same as a share of the repeats, for sparse parents
BETTER, SPARSE_BETTER = 3, 10  # minimum ratio of the exceptions in shuffled rows to those in the data
EVIDENCE = 25.0  # nats of evidence against chance
LEAST_VALUES = 5  # minimum number of values of a parent
MOST_PARENTS = 40  # maximum number of columns that are tried as parents
LEAST_REPEATS, REPEATS = 20, 0.15  # minimum number and share of rows that repeat a value of a parent
ROWS_PER_VALUE = 5  # parents with fewer rows per value are sparse
MOST_PER_VALUE = 8  # maximum number of rows of one value in the sample of a sparse parent


def find_near_functions(
    columns: dict[int, Discrete], sample_rows: NDArray[np.int64], keys: Collection[int]
) -> list[tuple[int, int]]:
    """Return the pairs (parent, child) where the parent determines the child in nearly all rows of a sample.

    Args:
        columns: The columns, with the ids of all rows.
        sample_rows: The rows to screen on; sparse keys are screened on all rows of some of their values instead.
        keys: The columns that may determine others with few rows per value: names and codes, no measurements.
    """
    n_values = {key: column.n_values for key, column in columns.items()}
    tried = [key for key in columns if n_values[key] >= LEAST_VALUES and repeats_enough(columns[key])]
    tried = [key for key in tried if key in keys or 2 * n_values[key] <= len(columns[key].ids)]
    tried = sorted(tried, key=lambda key: (-n_values[key], key))[:MOST_PARENTS]
    chance_agreement = {key: collision(column) for key, column in columns.items()}
    rng = generator(0, Stage.SCHEMA, 3)
    near_functions = []
    for parent in tried:
        sparse = parent in keys and is_sparse(columns[parent])
        rows = _rows_of_values(columns[parent], len(sample_rows), rng) if sparse else sample_rows
        parent_column = _renumbered(columns[parent], rows)
        shuffled_parent = Discrete(rng.permutation(parent_column.ids), parent_column.n_values)
        n_repeats = len(rows) - parent_column.n_values
        for child in columns:
            if child == parent or not 2 <= n_values[child] <= n_values[parent]:
                continue
            child_column = Discrete(columns[child].ids[rows], n_values[child])
            n_exceptions = exceptions(parent_column, child_column)
            if n_exceptions > most_exceptions(parent_column, sparse=sparse):
                continue
            chance_exceptions = exceptions(shuffled_parent, child_column)
            evidence = (n_repeats - n_exceptions) * -np.log(max(chance_agreement[child], 1e-12))
            is_better = chance_exceptions >= (SPARSE_BETTER if sparse else BETTER) * max(n_exceptions, 1)
            if is_better and evidence >= EVIDENCE:
                near_functions.append((parent, child))
    return near_functions


def exceptions(parent: Discrete, child: Discrete) -> int:
    """Count the rows whose child value is not the most frequent one for their parent value."""
    joint_ids = parent.ids.astype(np.int64) * child.n_values + child.ids
    joint_values, counts = np.unique(joint_ids, return_counts=True)
    mode_counts = np.zeros(parent.n_values, dtype=np.int64)
    np.maximum.at(mode_counts, joint_values // child.n_values, counts)
    return int(len(parent.ids) - mode_counts.sum())


def is_sparse(parent: Discrete) -> bool:
    """Whether a column has few rows per value."""
    return parent.n_values * ROWS_PER_VALUE > len(parent.ids)


def most_exceptions(parent: Discrete, *, sparse: bool) -> float:
    """Return the maximum number of rows that may be exceptions to a function of a column."""
    n_rows = len(parent.ids)
    return SPARSE_EXCEPTIONS * (n_rows - parent.n_values) if sparse else EXCEPTIONS * n_rows


def repeats_enough(column: Discrete) -> bool:
    """Whether enough rows share their value with another row."""
    return len(column.ids) - column.n_values >= max(LEAST_REPEATS, REPEATS * len(column.ids))


def _rows_of_values(column: Discrete, n_rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return about `n_rows` rows: all rows of random values of a column, at most `MOST_PER_VALUE` of each."""
    row_order = np.argsort(rng.permutation(column.n_values)[column.ids], kind="stable")
    ordered_ids = column.ids[row_order]
    first_rows = np.flatnonzero(np.concatenate([[True], ordered_ids[1:] != ordered_ids[:-1]]))
    rank_in_value = np.arange(len(ordered_ids)) - np.repeat(first_rows, np.diff([*first_rows, len(ordered_ids)]))
    return np.asarray(row_order[rank_in_value < MOST_PER_VALUE][:n_rows])


def _renumbered(column: Discrete, rows: NDArray[np.int64]) -> Discrete:
    values, ids = np.unique(column.ids[rows], return_inverse=True)
    return Discrete(ids.astype(np.int32), len(values))
