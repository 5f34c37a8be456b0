"""References that are no context: which row of another table a row refers to.

Rows that are referred to have two more modelled columns: how often, and a class. A referring row has the class of the
row that it refers to as a column of its own, and chooses among the rows of that class in proportion to how often these
are referred to. Classes group rows by their own columns, so that what referring rows have in common is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.errors import DataError
from arf_dask.forest.growing import grow_predictor
from arf_dask.relational.graph import Reference
from arf_dask.schema.encoding import encode_codes
from arf_dask.schema.learning import infer_schema
from arf_dask.typing import Counts, Floats

MOST_CLASSES = 64  # of the rows that are referred to
CLASS_ROWS = 5  # least rows of a class
CLASS_REFERENCES = 50  # least references to a class, on average
FIXED, CLASS, SELF = "fixed", "class", "self"
FEW_LEVELS = 32  # of a text whose shares are compared between classes


@dataclass(frozen=True)
class Link:
    """A reference that is no context, and the columns by which it is drawn."""

    reference: Reference
    kind: str  # "fixed": the key itself is drawn; "class": a class of rows; "self": a depth in a hierarchy
    common: str | None = None  # the table above both, within one row of which references stay
    distinct: bool = False  # whether the rows of one parent all refer to different rows

    @property
    def popularity(self) -> str:
        """The column of the rows referred to that says how often they are."""
        return f"references from {self.reference.table}.{self.reference.column}"

    @property
    def group(self) -> str:
        """The column of the rows referred to that holds their class or depth."""
        return f"group for {self.reference.table}.{self.reference.column}"

    @property
    def drawn(self) -> str:
        """The column of referring rows that is drawn in the place of the reference."""
        return self.reference.column if self.kind == FIXED else f"group of {self.reference.column}"


class Learned(NamedTuple):
    """The columns that take the place of a reference."""

    referred: list[pl.Series]  # of the rows that are referred to: how often, and their group
    referring: pl.Series  # of the referring rows: the group of the row that they refer to


def rows_referred_to(values: pl.Series, keys: pl.Series) -> Counts:
    """Return per row the number of the row that it refers to; -1 for null."""
    numbers = pl.DataFrame({"key": keys, "row": np.arange(len(keys))})
    found = pl.DataFrame({"key": values}).join(numbers, on="key", how="left", maintain_order="left")
    return found["row"].fill_null(-1).to_numpy().astype(np.int64)


def learn_link(link: Link, referring: pl.DataFrame, referred: pl.DataFrame, target: Counts) -> Learned:
    """Return the columns that take the place of a reference.

    Args:
        link: the reference.
        referring: the columns of the referring rows.
        referred: the columns of the rows referred to.
        target: per referring row, the number of the row that it refers to; -1 for none.
    """
    n_references = np.bincount(target[target >= 0], minlength=referred.height)
    group = _depths(link, target) if link.kind == SELF else _classes(referring, referred, target, n_references)
    groups = pl.Series(link.group, group)
    if link.kind == SELF:
        own = groups.alias(link.group)
        return Learned([pl.Series(link.popularity, n_references), own], own)
    labels = groups.cast(pl.String)
    index = pl.Series(target).set(pl.Series(target < 0), None)
    return Learned([pl.Series(link.popularity, n_references), labels], labels.gather(index).alias(link.drawn))


def _depths(link: Link, target: Counts) -> Counts:
    """Return how many rows are above each row of a hierarchy."""
    depth = np.zeros(len(target), dtype=np.int64)
    above = target.copy()
    for _ in range(len(target)):
        is_below = above >= 0
        if not is_below.any():
            return depth
        depth[is_below] += 1
        if int(depth.max()) > len(target) or int(depth.max()) > 10_000:
            break
        above[is_below] = target[above[is_below]]
    row = int(np.flatnonzero(above >= 0)[0])
    raise DataError(
        f"table {link.reference.table!r}: row {row} refers to itself by {link.reference.column!r}, directly or through "
        "others. Set the reference of the topmost rows to null."
    )


def _classes(referring: pl.DataFrame, referred: pl.DataFrame, target: Counts, n_references: Counts) -> Counts:
    """Return the class of every row that is referred to: a leaf of a tree over its columns."""
    means = _mean_columns(referring, target, referred.height)
    if not referred.width or not means.shape[1]:
        return np.zeros(referred.height, dtype=np.int64)
    usable = [
        series
        for series in referred
        if series.null_count() < len(series)
        and (series.dtype.is_numeric() or series.dtype.is_temporal() or series.n_unique() <= max(len(series) // 2, 2))
    ]
    if not usable:
        return np.zeros(referred.height, dtype=np.int64)
    kinds = {
        one.name: "numeric" if one.dtype.is_numeric() or one.dtype.is_temporal() else "categorical" for one in usable
    }
    frame = pl.DataFrame(usable)
    codes = encode_codes(frame, infer_schema(frame, kinds=kinds, keys=[], bundles=False)).astype(np.float32)
    mean_references = max(float(n_references.mean()), 1e-9)
    least_rows = max(CLASS_ROWS, int(np.ceil(CLASS_REFERENCES / mean_references)), referred.height // MOST_CLASSES)
    nodes = grow_predictor(np.asfortranarray(codes), means, discrete=False, min_leaf=least_rows, seed=0)[1]
    return np.unique(nodes, return_inverse=True)[1].astype(np.int64)


def _mean_columns(referring: pl.DataFrame, target: Counts, n_rows: int) -> Floats:
    """Return the means of the referring rows' columns, per row that is referred to, shrunk to those of all rows."""
    is_known = target >= 0
    columns: list[Floats] = []
    for series in referring.filter(pl.Series(is_known)):
        if series.dtype.is_numeric() or series.dtype.is_temporal():
            columns.append(series.rank().fill_null(0.0).to_numpy() / max(len(series), 1))
        elif series.n_unique() <= FEW_LEVELS:
            series = series.cast(pl.String)
            columns += [
                (series == level).fill_null(False).cast(pl.Float64).to_numpy()
                for level in series.drop_nulls().unique().sort()
            ]
    rows = target[is_known]
    counts = np.bincount(rows, minlength=n_rows)
    shrunk = [(np.bincount(rows, values, n_rows) + values.mean()) / (counts + 1.0) for values in columns if len(values)]
    return np.column_stack(shrunk) if shrunk else np.zeros((n_rows, 0))


class Candidates(NamedTuple):
    """The rows that a reference may choose."""

    group: NDArray[np.int64]  # an integer per row
    weight: Floats


def choose(wanted: NDArray[np.int64], candidates: Candidates, rng: np.random.Generator) -> Counts:
    """Choose a candidate of the wanted group for every row, in proportion to weights; -1 where a group has none."""
    order = np.argsort(candidates.group, kind="stable")
    groups = candidates.group[order]
    ends = np.concatenate([[0.0], np.cumsum(candidates.weight[order] + 1e-9)])
    first, last = np.searchsorted(groups, wanted, side="left"), np.searchsorted(groups, wanted, side="right")
    places = ends[first] + rng.random(len(wanted)) * (ends[last] - ends[first])
    chosen = np.clip(np.searchsorted(ends, places, side="right") - 1, first, np.maximum(last - 1, first))
    return np.where(last > first, order[np.minimum(chosen, max(len(order) - 1, 0))] if len(order) else -1, -1)
