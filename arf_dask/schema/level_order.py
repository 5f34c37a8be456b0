"""Order levels so that neighbours are similar and a single threshold separates meaningful groups of them.

The first synthetic rows are sampled from the product of the marginals, so every level has the same share of real rows
and the labels say nothing about single levels. What matters is which levels occur with the same values of other
columns: reciprocal averaging gives every row the mean score of its levels and every level the mean score of
its rows, until both converge. This is the first axis of multiple correspondence analysis.
"""

from __future__ import annotations

import numpy as np

from arf_dask.runtime.seeds import Stage, generator
from arf_dask.schema.discrete import Discrete
from arf_dask.typing import Floats

ROUNDS = 12


def level_scores(columns: list[Discrete]) -> list[Floats]:
    """Return the scores of the levels of each column, roughly within [-1, 1]; 0 for levels without rows."""
    if not columns:
        return []
    n_rows = len(columns[0].ids)
    row_scores = _standard(generator(0, Stage.SCHEMA, 3).normal(size=n_rows))
    level_counts = [np.maximum(np.bincount(c.ids, minlength=c.n_values), 1) for c in columns]
    column_scores: list[Floats] = []
    for _ in range(ROUNDS):
        column_scores = [
            np.bincount(c.ids, row_scores, c.n_values) / n_level_rows
            for c, n_level_rows in zip(columns, level_counts, strict=True)
        ]
        score_sums = np.zeros(n_rows)
        for column, score in zip(columns, column_scores, strict=True):
            score_sums += score[column.ids]
        row_scores = _standard(score_sums)
    return column_scores


def _standard(values: Floats) -> Floats:
    centred = values - values.mean()
    spread = float(np.sqrt((centred**2).mean()))
    return np.asarray(centred / spread if spread > 0 else centred)
