"""Model a clock number by the minutes since another clock number, if these vary less than the time of day.

An arrival is typically a few hours after its departure. Its time of day would have to be learned separately for every
departure time, whereas the minutes in between depend on little else.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from arf_dask.rules.transforms import Transform
from arf_dask.rules.transforms.gap import DAY, LAST_CLOCK, ClockGap
from arf_dask.rules.transforms.grid import Indexed, clock_columns

BIN = 15  # bin width in minutes
LEAST_GAIN = 0.3  # minimum reduction in entropy, in nats, from the column to the gaps
LEAST_ROWS = 100


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
    if len(known_minutes) < LEAST_ROWS:
        return np.inf
    bin_shares = np.bincount(known_minutes % DAY // BIN) / len(known_minutes)
    bin_shares = bin_shares[bin_shares > 0]
    return float(-(bin_shares * np.log(bin_shares)).sum())
