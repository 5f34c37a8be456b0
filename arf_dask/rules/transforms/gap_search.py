"""Decide whether a column is modelled by its gap above another column, or by the minutes since another clock number.

A gap guarantees an order, but it mixes two columns: what depends on the column alone then depends on a sum. It pays
where rows would often break the order otherwise, or where the columns are equal in some rows. Elsewhere the column is
modelled as it is, and the few rows that break the order are drawn again.

An arrival is typically a few hours after its departure. Its time of day would have to be learned separately for every
departure time, whereas the minutes in between depend on little else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from arf_dask.data.axes import summarise_axis
from arf_dask.rules.expressions import Name
from arf_dask.rules.scoring import NEARLY_ALL, Scored
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Transform
from arf_dask.rules.transforms.gap import DAY, LAST_CLOCK, ClockGap, Gap
from arf_dask.rules.transforms.grid import Indexed, clock_columns
from arf_dask.runtime.seeds import Stage, generator

LOST_SPIKES = 0.5  # minimum concentration of a gap, as a share of the concentration of its column
LEAST_ROWS = 500  # smaller samples do not tell how often an order would be broken
WINDOW_SHARE = 0.1  # share of the rows, similar in the lower column, among which the upper column is exchanged
RARELY_BROKEN = 0.02  # share of broken rows up to which rows are drawn again
STEPS_OF_LONG_GAPS = 5  # steps of the column in half of the gaps from which its grid matters more than they do
NARROW = 0.5  # maximum ratio of the width of signed gaps to that of their column
SOMETIMES_EQUAL = 0.01  # share of rows without a gap from which gaps have a spike at zero
BIN = 15  # bin width in minutes
LEAST_GAIN = 0.3  # minimum reduction in entropy, in nats, from the column to the gaps
LEAST_CLOCKS = 100


def is_tie(
    one: Scored, ordered_pairs: Sequence[tuple[str, ...]], targets: Mapping[str, Target], sample: pl.DataFrame
) -> bool:
    """Whether two columns are equal in some rows and ordered in all: the gap of the order then has a spike at zero."""
    if not isinstance(one.formula, Name) or one.share >= NEARLY_ALL:
        return False
    pairs = [(low, high) for low, high in ordered_pairs if {low, high} == {one.target, one.formula.column}]
    return any(keeps_spikes(Gap(targets[high], Name(low), 1, None), sample) for low, high in pairs)


def is_modelled_by_gap(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether the upper column of an order is modelled by its gap. Gaps between times are durations: always."""
    if gap.target.is_wide:
        return False
    is_told = gap.target.dtype.is_temporal() or len(sample) < LEAST_ROWS
    return keeps_spikes(gap, sample) and keeps_step(gap, sample) and (is_told or _is_needed(gap, sample))


def _is_needed(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether an order holds with equality in some rows, or more rows break it if similar rows are mixed."""
    rows = pl.DataFrame({"base": gap.base_units(sample), "own": gap.target.units(sample.get_column(gap.target.name))})
    rows = rows.drop_nulls().sort("base", maintain_order=True)
    base, own = rows["base"].to_numpy(), rows["own"].to_numpy()
    if np.mean(own == base) >= SOMETIMES_EQUAL:
        return True
    window = np.arange(len(base)) // max(int(WINDOW_SHARE * len(base)), 1)
    exchanged = own[np.lexsort((generator(0, Stage.RULES, 2).random(len(own)), window))]
    n_more = np.mean((exchanged - base) * gap.sign < 0) - np.mean((own - base) * gap.sign < 0)
    return bool(n_more > RARELY_BROKEN)


def is_narrow(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether gaps vary much less than the column, so that a few exceptions of an order are worth a gap.

    Hits of a player nearly always exceed the runs, but their difference says no more of a player than the hits do.
    """
    own, gaps = gap.own_units(sample).drop_nulls(), gap.forward(sample)[gap.target.name].drop_nulls()
    return _width(gaps) <= NARROW * _width(own)


def _width(series: pl.Series) -> float:
    """Return the distance from the 10 % to the 90 % quantile; 0 without values."""
    low, high = (np.quantile(series.to_numpy().astype(float), q) if len(series) else 0.0 for q in (0.1, 0.9))
    return float(high - low)


def typical_gap(gap: Gap, sample: pl.DataFrame) -> float:
    """Return the median size of the gaps, in units."""
    return float(np.median(np.abs(gap.forward(sample.drop_nulls(gap.inputs))[gap.target.name].drop_nulls().to_numpy())))


def keeps_step(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether gaps lie on the grid of the column, or are too short for its grid to matter more than they do.

    Gaps from a moment at any time of day to a midnight some weeks later would lose that all of these are midnights.
    """
    if gap.target.is_float:
        return True  # gaps between floats have a step of their own
    gaps = gap.forward(sample)[gap.target.name].drop_nulls()
    step = _common_step(gap.own_units(sample))
    if step == 0 or _common_step(gaps) % step == 0:
        return True
    return float(np.median(gaps.to_numpy())) < STEPS_OF_LONG_GAPS * step


def _common_step(units: pl.Series) -> int:
    """Return the largest number that divides all differences; 0 if there are none."""
    summary = summarise_axis(units)
    return 0 if summary is None else summary.step


def keeps_spikes(gap: Gap, sample: pl.DataFrame) -> bool:
    """Whether gaps are about as concentrated as the column, so that a column of few values keeps its spikes."""
    own, gaps = sample.get_column(gap.target.name).drop_nulls(), gap.forward(sample)[gap.target.name]
    return _concentration(gaps.drop_nulls()) >= LOST_SPIKES * _concentration(own) or own.n_unique() > 0.3 * len(own)


def _concentration(series: pl.Series) -> float:
    """Return the probability that two random rows have the same value."""
    value_counts = series.alias("").value_counts()["count"].to_numpy() if len(series) else np.ones(1)
    return float(((value_counts / value_counts.sum()) ** 2).sum())


def with_clock_gaps(transforms: Mapping[str, Transform], sample: pl.DataFrame) -> dict[str, Transform]:
    """Replace clock grids by gaps since the clock column with the lowest entropy, if that is low enough."""
    all_transforms = dict(transforms)
    clock_names = [name for name in clock_columns(sample) if not isinstance(sample.schema[name], pl.Decimal)]
    for name, transform in transforms.items():
        if not (isinstance(transform, Indexed) and transform.grid == "clock" and name in clock_names):
            continue
        if transform.target.low == 0 and transform.target.high == LAST_CLOCK:
            continue  # midnight is both 0 and 2400
        base_names = [base for base in clock_names if base != name and name not in _sources(base, all_transforms)]
        gap_minutes = {base: ClockGap(transform.target, base).forward(sample)[name] for base in base_names}
        spreads = {base: _spread(gap) for base, gap in gap_minutes.items() if _is_later(gap)}
        best_base = min(spreads, key=lambda base: spreads[base], default=None)
        if best_base is not None and spreads[best_base] <= _spread(transform.forward(sample)[name]) - LEAST_GAIN:
            all_transforms[name] = ClockGap(transform.target, best_base)
    return all_transforms


def _sources(name: str, transforms: Mapping[str, Transform]) -> set[str]:
    """Return all columns that a column is rebuilt from, directly or indirectly."""
    source_names: set[str] = set()
    pending_names = [name]
    while pending_names:
        column = pending_names.pop()
        inputs = transforms[column].inputs if column in transforms else ()
        pending_names += [input_name for input_name in inputs if input_name not in source_names]
        source_names |= set(inputs)
    return source_names


def _is_later(minutes: pl.Series) -> bool:
    """Whether the median gap is less than half a day; otherwise the other column is the later one."""
    median_gap = minutes.median()
    return isinstance(median_gap, int | float) and median_gap < DAY / 2


def _spread(minutes: pl.Series) -> float:
    """Return the entropy of minutes in bins of a quarter of an hour; infinite if there are too few rows."""
    known_minutes = minutes.drop_nulls().to_numpy()
    if len(known_minutes) < LEAST_CLOCKS:
        return np.inf
    bin_shares = np.bincount(known_minutes % DAY // BIN) / len(known_minutes)
    bin_shares = bin_shares[bin_shares > 0]
    return float(-(bin_shares * np.log(bin_shares)).sum())
