"""Count on all rows how often guessed and declared rules hold; the counts of parts can be merged in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS, AxisSummary, is_numeric, merge_axis_summaries, summarise_axis
from arf_dask.rules.evaluation import evaluate, satisfied
from arf_dask.rules.expressions import Comparison, Node
from arf_dask.rules.targets import Target, decimals_of
from arf_dask.rules.transforms import Transform
from arf_dask.rules.transforms.level import merge_levels, summarise_levels

COUNTS = ("rows", "known", "held", "alike", "checked", "fine", "ties", "covered", "off_grid")


@dataclass(frozen=True)
class ColumnFacts:
    """Summary statistics of a column over a range of rows."""

    dtype: pl.DataType
    rows: int
    nulls: int
    nans: int
    measured: AxisSummary | None  # of the numbers, or of the dates that texts hold

    def target(self, name: str) -> Target:
        """Return the column as the target of a rule."""
        digits = None if self.measured is None else self.measured.digits
        low, high = (None, None) if self.measured is None else (self.measured.low, self.measured.high)
        return Target(name, self.dtype, decimals_of(self.dtype, digits), low, high, self.nulls > 0)


def column_facts(frame: pl.DataFrame, grids: Mapping[str, Transform]) -> dict[str, ColumnFacts]:
    """Return the summary statistics of each column; transforms of columns say which range matters to them."""
    facts_by_name = {}
    for series in frame:
        column = series.alias("")
        n_nans = int(column.is_nan().sum()) if column.dtype in FLOATS else 0
        measured = grids[series.name].measured(column) if series.name in grids else column
        measured = measured.cast(pl.Int8) if measured.dtype == pl.Boolean else measured
        axis_summary = summarise_axis(measured) if is_numeric(measured.dtype) else None
        facts_by_name[series.name] = ColumnFacts(column.dtype, len(column), column.null_count(), n_nans, axis_summary)
    return facts_by_name


def merge_facts(one: dict[str, ColumnFacts], other: dict[str, ColumnFacts]) -> dict[str, ColumnFacts]:
    """Merge the summary statistics of two ranges of rows."""
    return {name: _merge_one(column_summary, other[name]) for name, column_summary in one.items()}


def _merge_one(one: ColumnFacts, other: ColumnFacts) -> ColumnFacts:
    axis_summary = merge_axis_summaries(one.measured, other.measured)
    return ColumnFacts(one.dtype, one.rows + other.rows, one.nulls + other.nulls, one.nans + other.nans, axis_summary)


@dataclass(frozen=True)
class Asked:
    """A request for counts: formulas of targets, comparisons, gaps, grids and levels."""

    formulas: tuple[tuple[Target, Node], ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    gaps: tuple[Transform, ...] = ()
    decimals: dict[str, int | None] = field(default_factory=dict)
    grids: tuple[Transform, ...] = ()
    levels: tuple[tuple[Target, Node], ...] = ()


@dataclass(frozen=True)
class Counted:
    """Numbers of rows that satisfy each requested formula, comparison, gap and grid."""

    rows: int
    known: np.ndarray[tuple[int], np.dtype[np.int64]]  # per formula: rows where both sides are non-null
    held: np.ndarray[tuple[int], np.dtype[np.int64]]  # per formula: rows where both sides are non-null and agree
    alike: np.ndarray[tuple[int], np.dtype[np.int64]]  # per formula: rows that agree, where two nulls agree
    checked: np.ndarray[tuple[int], np.dtype[np.int64]]  # per comparison: rows where both sides are non-null
    fine: np.ndarray[tuple[int], np.dtype[np.int64]]  # per comparison: rows where it holds
    ties: np.ndarray[tuple[int], np.dtype[np.int64]]  # per comparison: rows where both sides are equal
    gaps: tuple[AxisSummary | None, ...]
    covered: np.ndarray[tuple[int], np.dtype[np.int64]]  # per gap: rows with one of its levels
    off_grid: np.ndarray[tuple[int], np.dtype[np.int64]]  # per grid: rows that are not on it
    levels: tuple[pl.DataFrame, ...] = ()  # per number and levels: see `summarise_levels`


def count(asked: Asked, frame: pl.DataFrame) -> Counted:
    """Count the rows of a frame that satisfy each requested item."""
    formula_counts = np.array([_formula_counts(target, node, frame) for target, node in asked.formulas]).reshape(-1, 3)
    comparison_counts = np.array([_comparison_counts(rule, frame, asked) for rule in asked.comparisons]).reshape(-1, 3)
    gap_series = [gap.forward(frame)[gap.target.name] for gap in asked.gaps]
    level_rows = [gap.n_covered(series) for gap, series in zip(asked.gaps, gap_series, strict=True)]
    known, held, alike = formula_counts.astype(np.int64).T
    checked, fine, ties = comparison_counts.astype(np.int64).T
    gap_summaries = tuple(summarise_axis(series) for series in gap_series)
    off_grid = np.array([_n_off_grid(grid, frame) for grid in asked.grids], dtype=np.int64)
    covered_rows = np.array(level_rows, dtype=np.int64)
    levels = tuple(summarise_levels(target, node, frame) for target, node in asked.levels)
    return Counted(frame.height, known, held, alike, checked, fine, ties, gap_summaries, covered_rows, off_grid, levels)


def merge_counts(one: Counted, other: Counted) -> Counted:
    """Merge the counts of two ranges of rows."""

    def both(name: str) -> Any:
        return getattr(one, name) + getattr(other, name)

    gaps = tuple(merge_axis_summaries(a, b) for a, b in zip(one.gaps, other.gaps, strict=True))
    merged_counts = {name: both(name) for name in COUNTS}
    levels = tuple(merge_levels(a, b) for a, b in zip(one.levels, other.levels, strict=True))
    return replace(one, gaps=gaps, levels=levels, **merged_counts)


def _n_off_grid(grid: Transform, frame: pl.DataFrame) -> int:
    return int(grid.off_grid(frame.get_column(grid.target.name)).sum())


def _formula_counts(target: Target, node: Node, frame: pl.DataFrame) -> tuple[int, int, int]:
    column_values, formula_values = frame.get_column(target.name).alias(""), evaluate(node, frame)
    is_alike = target.agrees(column_values, formula_values)
    is_known = (target.units(column_values).is_not_null() & formula_values.is_not_null()).to_numpy()
    return int(is_known.sum()), int((is_alike & is_known).sum()), int(is_alike.sum())


def _comparison_counts(rule: Comparison, frame: pl.DataFrame, asked: Asked) -> tuple[int, int, int]:
    is_known, holds = satisfied(rule, frame, asked.decimals)
    is_tie = satisfied(Comparison(rule.left, "==", rule.right), frame, {})[1]
    return int(is_known.sum()), int((is_known & holds).sum()), int((is_known & is_tie).sum())
