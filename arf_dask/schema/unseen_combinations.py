"""Open support for bundles: add states for combinations of known values that do not occur in the data.

A bundle has a state for every combination in the data. With `support="open"` it also has a state for every other
combination of the same values, unless there are too many: such rows are rare instead of impossible. The codes of these
states follow all other codes, so that no tree splits on them. Their probability is the Good-Turing estimate
(forest/tables.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from arf_dask.schema.columns import Schema, Variable
from arf_dask.typing import Ints

MOST_COMBINATIONS = 4_096  # per bundle; in larger bundles, unseen combinations stay impossible


def with_unseen_combinations(schema: Schema) -> Schema:
    """Return the schema with a state for every possible combination of the values of each discrete bundle."""
    return replace(schema, variables=tuple(_complete(variable) for variable in schema.variables))


def _complete(variable: Variable) -> Variable:
    if len(variable.columns) == 1 or variable.is_line:
        return variable
    member_values = [np.unique(variable.tokens[:, member]) for member in range(len(variable.columns))]
    n_values = [len(distinct_tokens) for distinct_tokens in member_values]
    if np.prod(np.array(n_values, dtype=np.float64)) > MOST_COMBINATIONS:
        return variable
    all_combinations = np.stack([grid.ravel() for grid in np.meshgrid(*member_values, indexing="ij")], axis=1)
    value_ranks = [
        np.searchsorted(distinct_tokens, variable.tokens[:, member])
        for member, distinct_tokens in enumerate(member_values)
    ]
    is_unseen = np.ones(len(all_combinations), dtype=bool)
    is_unseen[np.ravel_multi_index(value_ranks, n_values)] = False
    unseen_tokens: Ints = all_combinations[is_unseen].astype(np.int32)
    unseen_codes = np.arange(variable.n_codes, variable.n_codes + len(unseen_tokens), dtype=np.int32)
    return replace(
        variable,
        tokens=np.concatenate([variable.tokens, unseen_tokens]),
        interval=np.concatenate([variable.interval, np.zeros(len(unseen_tokens), dtype=bool)]),
        code_low=np.concatenate([variable.code_low, unseen_codes]),
        code_high=np.concatenate([variable.code_high, unseen_codes]),
    )
