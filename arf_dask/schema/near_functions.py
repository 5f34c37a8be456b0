"""Find columns that another column determines in nearly all rows, such as a product's name or a country's region.

Such a column is bundled with the column that determines it, exceptions included, so that only combinations in the data
are sampled. Little evidence per level is needed because it accumulates over all levels: 200 products with four rows
each are enough.
"""

from __future__ import annotations

import numpy as np

from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.discrete import Discrete, collision

NEARLY = 0.96  # minimum share of rows that hold the most frequent child value of their parent value
BETTER = 3  # minimum ratio of the exceptions in shuffled rows to those in the data
EVIDENCE = 25.0  # nats of evidence against chance
LEAST_VALUES = 5  # minimum number of values of a parent
MOST_PARENTS = 40  # maximum number of columns that are tried as parents


def find_near_functions(sampled: dict[int, Discrete]) -> list[tuple[int, int]]:
    """Return the pairs (parent, child) where the parent determines the child in nearly all rows of a sample."""
    parents = [
        key for key, child_column in sampled.items() if child_column.n_values >= LEAST_VALUES and _repeats(child_column)
    ]
    parents = sorted(parents, key=lambda key: (-sampled[key].n_values, key))[:MOST_PARENTS]
    rng = generator(0, Stage.SCHEMA, 3)
    near_functions = []
    for parent in parents:
        row_order = rng.permutation(len(sampled[parent].ids))
        shuffled_parent = Discrete(sampled[parent].ids[row_order], sampled[parent].n_values)
        for child, child_column in sampled.items():
            if child == parent or not 2 <= child_column.n_values <= sampled[parent].n_values:
                continue
            if _determines(sampled[parent], child_column, shuffled_parent):
                near_functions.append((parent, child))
    return near_functions


def exceptions(parent: Discrete, child: Discrete) -> int:
    """Count the rows whose child value is not the most frequent one for their parent value."""
    joint_ids = parent.ids.astype(np.int64) * child.n_values + child.ids
    joint_values, counts = np.unique(joint_ids, return_counts=True)
    mode_counts = np.zeros(parent.n_values, dtype=np.int64)
    np.maximum.at(mode_counts, joint_values // child.n_values, counts)
    return int(len(parent.ids) - mode_counts.sum())


def _determines(parent: Discrete, child: Discrete, shuffled: Discrete) -> bool:
    n_rows = len(parent.ids)
    n_exceptions = exceptions(parent, child)
    if n_exceptions > (1 - NEARLY) * n_rows:
        return False
    chance_exceptions = exceptions(shuffled, child)
    n_repeats = n_rows - parent.n_values
    chance_agreement = collision(child)
    evidence = (n_repeats - n_exceptions) * -np.log(max(chance_agreement, 1e-12))
    return chance_exceptions >= BETTER * max(n_exceptions, 1) and evidence >= EVIDENCE


def _repeats(column: Discrete) -> bool:
    """Whether enough rows share their value with another row."""
    return len(column.ids) - column.n_values >= max(20, 0.2 * len(column.ids))
