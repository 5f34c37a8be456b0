"""An order of the levels in which neighbours are alike, so that one threshold separates good groups of them.

Against the first synthetic rows (a product of marginals) every level has the same share of real rows, so the
labels say nothing about levels one by one. What matters is which levels keep the same company: reciprocal
averaging gives every row the mean score of its levels and every level the mean score of its rows, until both
agree. That is the first axis of multiple correspondence analysis.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arf_dask.bundles import Discrete
from arf_dask.seeds import Stage, generator

Floats = NDArray[np.float64]

ROUNDS = 12


def level_scores(columns: list[Discrete]) -> list[Floats]:
    """The score of every level of every column, in [-1, 1] or so; 0 for levels that hold no row."""
    if not columns:
        return []
    rows = len(columns[0].ids)
    row_score = _standard(generator(0, Stage.SCHEMA, 3).normal(size=rows))
    counts = [np.maximum(np.bincount(c.ids, minlength=c.n_values), 1) for c in columns]
    scores: list[Floats] = []
    for _ in range(ROUNDS):
        scores = [np.bincount(c.ids, row_score, c.n_values) / n for c, n in zip(columns, counts, strict=True)]
        total = np.zeros(rows)
        for column, score in zip(columns, scores, strict=True):
            total += score[column.ids]
        row_score = _standard(total)
    return scores


def _standard(values: Floats) -> Floats:
    centred = values - values.mean()
    spread = float(np.sqrt((centred**2).mean()))
    return np.asarray(centred / spread if spread > 0 else centred)
