"""What is known of a row before it is drawn: its parent, its position among its siblings, and the siblings before it.

Learning computes the history of all rows at once, drawing keeps it up to date from sibling to sibling; both turn it
into columns by `history_columns`. The columns are named "previous:amount", "mean:amount", "parent:country" and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.typing import Counts, Floats

NEXT, POSITION, LEFT, ROWS = "rows:next", "rows:position", "rows:left", "rows:number"
FIRST_TIME, GAP, PACE = "time:first", "time:gap", "time:pace"
BEFORE, AT = "before", "at"
DATE_PARTS, TIME_PARTS = ("month", "day", "weekday"), ("hour", "minute")
DAY_IN_YEAR = "ordinal_day"


@dataclass(frozen=True)
class HistoryShape:
    """Which columns describe the history of a row."""

    previous: tuple[str, ...]  # modelled columns of the previous sibling
    running: tuple[str, ...]  # modelled columns whose mean over all earlier siblings is known
    order: str | None  # the column by which siblings are ordered
    last_time: float | None = None  # the latest time in the data, as a physical value

    def names(self) -> list[str]:
        """Return the names of the history's columns without those of the order."""
        return [
            NEXT,
            POSITION,
            LEFT,
            ROWS,
            *(f"previous:{name}" for name in self.previous),
            *(f"mean:{name}" for name in self.running),
        ]


class History(NamedTuple):
    """The history of rows, one element per row."""

    position: Counts  # 0 for the first sibling
    siblings: Counts  # number of rows of the same parent
    previous: pl.DataFrame  # modelled columns of the previous sibling; null for the first
    sums: Floats  # (row, running column): sums over the earlier siblings
    counts: Floats  # (row, running column): number of known values among them
    time: pl.Series | None  # time of the previous sibling; null for the first

    def rows(self, chosen: Counts) -> History:
        """Return the history of some of the rows."""
        index = pl.Series(chosen)
        return History(
            self.position[chosen],
            self.siblings[chosen],
            self.previous[index],
            self.sums[chosen],
            self.counts[chosen],
            None if self.time is None else self.time.gather(index),
        )


def history_columns(shape: HistoryShape, history: History) -> dict[str, pl.Series]:
    """Return the history of rows as columns."""
    left = history.siblings - history.position
    columns = {
        NEXT: pl.Series((history.position > 0).astype(np.int8)),
        POSITION: pl.Series(history.position),
        LEFT: pl.Series(left),
        ROWS: pl.Series(history.siblings),
    }
    for name in shape.previous:
        columns[f"previous:{name}"] = history.previous.get_column(name)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = history.sums / history.counts
    for number, name in enumerate(shape.running):
        columns[f"mean:{name}"] = pl.Series(means[:, number], nan_to_null=True)
    if history.time is not None and shape.last_time is not None:
        columns |= time_columns(BEFORE, history.time)
        columns[PACE] = (shape.last_time - physical(history.time)) / pl.Series(left)
    return {name: series.alias(name) for name, series in columns.items()}


def time_columns(prefix: str, time: pl.Series) -> dict[str, pl.Series]:
    """Return a time as a number, and the parts of its date and clock that trees split on."""
    columns = {f"{prefix}:time": physical(time)}
    if time.dtype in (pl.Date, pl.Datetime):
        parts = (*DATE_PARTS, DAY_IN_YEAR, *(TIME_PARTS if time.dtype == pl.Datetime else ()))
        columns |= {f"{prefix}:{part}": getattr(time.dt, part)() for part in parts}
    return {name: series.alias(name) for name, series in columns.items()}


def physical(series: pl.Series) -> pl.Series:
    """Return the physical values of a column as floats."""
    return series.to_physical().cast(pl.Float64)


def whole(time: pl.Series) -> pl.Series:
    """Return the physical values of a time, as integers wherever they are."""
    values = time.to_physical() if time.dtype.is_temporal() else time
    return values.cast(pl.Int64) if values.dtype.is_integer() else values.cast(pl.Float64)


def numbers_of(frame: pl.DataFrame, names: Iterable[str]) -> Floats:
    """Return columns as a matrix of numbers; NaN for null."""
    columns = [physical(frame.get_column(name)).fill_null(np.nan).to_numpy() for name in names]
    return np.column_stack(columns) if columns else np.zeros((frame.height, 0))


def histories_of(
    shape: HistoryShape, modelled: pl.DataFrame, parent: Counts, siblings: Counts, time: pl.Series | None
) -> History:
    """Return the history of all rows of a table.

    Args:
        shape: the columns that describe a history.
        modelled: the modelled columns, sorted by parent and then by time.
        parent: per row, the number of its parent, ascending.
        siblings: per row, the number of rows of its parent.
        time: the column by which siblings are ordered.
    """
    n_rows = len(parent)
    starts = np.flatnonzero(np.diff(parent, prepend=-1))
    first_row = np.repeat(starts, np.diff(np.append(starts, n_rows)))
    position = np.arange(n_rows) - first_row
    is_first = pl.Series(position == 0)
    values = numbers_of(modelled, shape.running)
    return History(
        position,
        siblings,
        shifted(_selected(modelled, shape.previous), is_first),
        _sums_before(np.nan_to_num(values), first_row),
        _sums_before((~np.isnan(values)).astype(np.float64), first_row),
        None if time is None else shifted(time.to_frame(), is_first).to_series(),
    )


def shifted(frame: pl.DataFrame, is_first: pl.Series) -> pl.DataFrame:
    """Return the previous row of every row; null where it is the first of its parent."""
    kept = pl.Series(~is_first.to_numpy())
    columns = []
    for series in frame.get_columns():
        before = series.shift(1)
        columns.append(before.zip_with(kept, before.clear(len(before))))
    return pl.DataFrame(columns) if columns else pl.DataFrame(height=frame.height)


def _sums_before(values: Floats, first_row: Counts) -> Floats:
    """Return the sums over the earlier rows of the same parent."""
    sums = np.vstack([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    return sums[:-1] - sums[first_row]


def next_history(
    shape: HistoryShape, history: History, drawn: pl.DataFrame, time: pl.Series | None, kept: Counts
) -> History:
    """Return the history of the next siblings of some rows, given the rows that were drawn.

    Args:
        shape: the columns that describe a history.
        history: the history of the drawn rows.
        drawn: the drawn modelled columns.
        time: the drawn times.
        kept: the rows that have a next sibling.
    """
    values = numbers_of(drawn, shape.running)
    followed = History(
        history.position + 1,
        history.siblings,
        _selected(drawn, shape.previous),
        history.sums + np.nan_to_num(values),
        history.counts + ~np.isnan(values),
        time,
    )
    return followed.rows(kept)


def _selected(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Return columns by name, also those whose names look like patterns."""
    return frame[list(names)] if names else pl.DataFrame(height=frame.height)


def parent_columns(parents: pl.DataFrame, names: Sequence[str]) -> dict[str, pl.Series]:
    """Return columns of the parents under the names that they have in the history of their children."""
    return {f"parent:{name}": parents.get_column(name).alias(f"parent:{name}") for name in names}


def repeats_previous(
    rows: Mapping[str, pl.Series], previous: Mapping[str, pl.Series], names: Sequence[str]
) -> pl.Series:
    """Flag the rows that have the values of the previous sibling in all of these columns."""
    flags = [rows[name].eq_missing(previous[name]) for name in names]
    result = flags[0]
    for one in flags[1:]:
        result = result & one
    return result
