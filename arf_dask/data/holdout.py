"""Hold-out rows: excluded from training, for evaluation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.files import PLAIN, Reading
from arf_dask.data.frames import to_polars
from arf_dask.errors import OptionError, unknown_column
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.typing import Counts


class Split(NamedTuple):
    """Training rows and hold-out rows."""

    train: Any
    holdout: pl.DataFrame | None


def split_holdout(data: Any, holdout: Any, seed: int, subject: str | None = None, reading: Reading = PLAIN) -> Split:
    """Split data into training and hold-out rows: a random share of the data, or a separate frame.

    If `subject` names a column of persons, all rows of a person go to the same side.

    Raises:
        OptionError: The share is not between 0 and 1, or one side would have no rows.
    """
    if holdout is None:
        return Split(data, None)
    if isinstance(holdout, bool) or (isinstance(holdout, int | float) and not 0 < holdout < 1):
        raise OptionError(f"holdout={holdout!r}: give a share between 0 and 1, or a frame of rows to keep back.")
    if not isinstance(holdout, float):
        return Split(data, to_polars(holdout).frame)
    frame = to_polars(data, reading).frame
    unit_ids = _units(frame, subject)
    n_units = int(unit_ids.max()) + 1 if len(unit_ids) else 0
    n_holdout = round(holdout * n_units)
    if not 0 < n_holdout < n_units:
        raise OptionError(f"holdout={holdout!r}: this keeps back {n_holdout} of {n_units}. Give another share.")
    is_chosen = np.zeros(n_units, dtype=bool)
    is_chosen[generator(seed, Stage.HOLDOUT).choice(n_units, n_holdout, replace=False)] = True
    is_holdout = is_chosen[unit_ids]
    return Split(frame.filter(~is_holdout), frame.filter(is_holdout))


def _units(frame: pl.DataFrame, subject: str | None) -> Counts:
    """Return the index of the subject of every row, or the row indices if there are no subjects."""
    if subject is None:
        return np.arange(frame.height)
    if subject not in frame.columns:
        raise unknown_column(subject, frame.columns, "release: subject")
    return frame[subject].rank("dense").cast(pl.Int64).fill_null(1).to_numpy() - 1
