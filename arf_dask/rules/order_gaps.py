"""Decide whether an ordered column is modelled by its gap above another column.

A gap guarantees the order, but it mixes two columns: what depends on the column alone then depends on a sum. It pays
where rows would often break the order otherwise, or where the columns are equal in some rows. Elsewhere the column is
modelled as it is, and the few rows that break the order are drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from arf_dask.rules.expressions import Name
from arf_dask.rules.scoring import NEARLY_ALL, Scored
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.gap import Gap
from arf_dask.runtime.seeds import Stage, generator

LOST_SPIKES = 0.5  # minimum concentration of a gap, as a share of the concentration of its column
LEAST_ROWS = 500  # smaller samples do not tell how often an order would be broken
WINDOW_SHARE = 0.1  # share of the rows, similar in the lower column, among which the upper column is exchanged
RARELY_BROKEN = 0.02  # share of broken rows up to which rows are drawn again
SOMETIMES_EQUAL = 0.01  # share of rows without a gap from which gaps have a spike at zero


def is_tie(
    one: Scored, ordered_pairs: Sequence[tuple[str, ...]], targets: Mapping[str, Target], sample: pl.DataFrame
) -> bool:
    """Whether two columns are equal in some rows and ordered in all: the gap of the order then has a spike at zero."""
    if not isinstance(one.formula, Name) or one.share >= NEARLY_ALL:
        return False
    pairs = [(low, high) for low, high in ordered_pairs if {low, high} == {one.target, one.formula.column}]
    return any(keeps_spikes(Gap(targets[high], Name(low), 1, 0), sample) for low, high in pairs)


def is_modelled_by_gap(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether the upper column of an order is modelled by its gap. Gaps between times are durations: always."""
    if gap.target.is_wide:
        return False
    is_told = gap.target.dtype.is_temporal() or len(sample) < LEAST_ROWS
    return keeps_spikes(gap, sample) and (is_told or _is_needed(gap, sample))


def _is_needed(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether an order holds with equality in some rows, or would be broken if rows with similar bases were mixed."""
    rows = pl.DataFrame({"base": gap.base_units(sample), "own": gap.target.units(sample.get_column(gap.target.name))})
    rows = rows.drop_nulls().sort("base", maintain_order=True)
    base, own = rows["base"].to_numpy(), rows["own"].to_numpy()
    if np.mean(own == base) >= SOMETIMES_EQUAL:
        return True
    window = np.arange(len(base)) // max(int(WINDOW_SHARE * len(base)), 1)
    exchanged = own[np.lexsort((generator(0, Stage.RULES, 2).random(len(own)), window))]
    return bool(np.mean((exchanged - base) * gap.sign < 0) > RARELY_BROKEN)


def keeps_spikes(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether gaps are about as concentrated as the column, so that a column of few values keeps its spikes."""
    own, gaps = sample.get_column(gap.target.name).drop_nulls(), gap.forward(sample)[gap.target.name]
    return _concentration(gaps.drop_nulls()) >= LOST_SPIKES * _concentration(own) or own.n_unique() > 0.3 * len(own)


def _concentration(series: pl.Series) -> float:
    """Return the probability that two random rows have the same value."""
    value_counts = series.alias("").value_counts()["count"].to_numpy() if len(series) else np.ones(1)
    return float(((value_counts / value_counts.sum()) ** 2).sum())
