"""Decide whether a column keeps its frequent values if it is modelled by its gap above another column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from arf_dask.rules.expressions import Name
from arf_dask.rules.scoring import NEARLY_ALL, Scored
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Gap

LOST_SPIKES = 0.5  # minimum concentration of a gap, as a share of the concentration of its column


def is_tie(
    one: Scored, ordered_pairs: Sequence[tuple[str, ...]], targets: Mapping[str, Target], sample: pl.DataFrame
) -> bool:
    """Whether two columns are equal in some rows and ordered in all: the gap of the order then has a spike at zero."""
    if not isinstance(one.formula, Name) or one.share >= NEARLY_ALL:
        return False
    pairs = [(low, high) for low, high in ordered_pairs if {low, high} == {one.target, one.formula.column}]
    return any(keeps_spikes(Gap(targets[high], Name(low), 1, 0), sample) for low, high in pairs)


def keeps_spikes(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether gaps are about as concentrated as the column, so that a column of few values keeps its spikes."""
    own, gaps = sample.get_column(gap.target.name).drop_nulls(), gap.reduce(sample)
    assert gaps is not None
    return _concentration(gaps.drop_nulls()) >= LOST_SPIKES * _concentration(own) or own.n_unique() > 0.3 * len(own)


def _concentration(series: pl.Series) -> float:
    """Return the probability that two random rows have the same value."""
    value_counts = series.alias("").value_counts()["count"].to_numpy() if len(series) else np.ones(1)
    return float(((value_counts / value_counts.sum()) ** 2).sum())
