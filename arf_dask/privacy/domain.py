"""Declared domains: total functions from the values of a column to fine cells, and back from cells to values.

Fine cells are numbered: first the atoms (levels, spikes, all points of a small grid), then bins of equal width between
the bounds, then null. Every value has a fine cell, whatever it is: encoding never fails, and says nothing about rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS, Axis, AxisSummary, is_numeric, make_axis, nameless
from arf_dask.data.keys import can_be_key
from arf_dask.data.levels import text_of
from arf_dask.errors import PrivacyError, UnsupportedColumnError
from arf_dask.privacy.declaration import PRIVATE, DifferentialPrivacy, DomainKind
from arf_dask.release.policy import OTHER
from arf_dask.typing import Counts, Floats, Ints

SMALL_GRID = 128  # maximum number of grid points that are all cells of their own
FINE_BINS = 2**18  # bins of equal width between the bounds of a long line
MOST_DECIMALS = 12


@dataclass(frozen=True, eq=False)
class ColumnDomain:
    """The declared domain of one column."""

    name: str
    dtype: pl.DataType
    kind: DomainKind
    source: str  # where the domain comes from, in words
    nullable: bool = False
    levels: pl.Series | None = None  # kind "levels": the values
    other: int = 0  # the level of undeclared texts and of missing values in columns that are not nullable
    axis: Axis | None = None  # kind "line"
    step: float | None = None  # of floats on a grid
    atoms: Floats = field(default_factory=lambda: np.empty(0))  # kind "line": on the axis, sorted

    @property
    def n_atoms(self) -> int:
        """Number of levels, or of numbers with cells of their own."""
        return len(self.levels) if self.levels is not None else len(self.atoms)

    @property
    def n_points(self) -> int | None:
        """Number of points of the grid of a line; None if values are continuous."""
        assert self.axis is not None
        if self.axis.grid:
            return int(self.axis.high) + 1
        return None if self.step is None else int(np.floor((self.axis.high - self.axis.low) / self.step + 1e-6)) + 1

    @property
    def n_bins(self) -> int:
        """Number of fine bins between the bounds; 0 if all values are atoms."""
        if self.kind != "line" or self.is_small:
            return 0
        return FINE_BINS if self.n_points is None else min(self.n_points, FINE_BINS)

    @property
    def is_small(self) -> bool:
        """Whether all points of the grid are atoms."""
        return self.kind == "line" and self.n_points is not None and self.n_points <= SMALL_GRID

    @property
    def n_fine(self) -> int:
        """Number of fine cells."""
        return self.n_atoms + self.n_bins + int(self.nullable)

    def encode(self, series: pl.Series) -> Ints:
        """Return the fine cell of every value."""
        if self.kind == "empty":
            return np.zeros(len(series), dtype=np.int32)
        series = nameless(series)
        return self._encode_levels(series) if self.kind == "levels" else self._encode_line(series)

    def _encode_levels(self, series: pl.Series) -> Ints:
        assert self.levels is not None
        if is_numeric(self.dtype):
            return self._nearest_levels(series)
        ids = text_of(series).cast(pl.Enum(text_of(self.levels)), strict=False).to_physical().cast(pl.Int32)
        cells = ids.fill_null(self.other).to_numpy(writable=True)
        if self.nullable:
            cells[series.is_null().to_numpy()] = self.n_atoms
        return np.asarray(cells, dtype=np.int32)

    def _nearest_levels(self, series: pl.Series) -> Ints:
        assert self.levels is not None
        assert self.axis is not None
        points = self.axis.to_axis(self.levels)
        values = np.clip(self.axis.to_axis(series), points[0], points[-1])
        cells = np.searchsorted((points[1:] + points[:-1]) / 2, values, side="right")
        return np.where(np.isnan(values), self.n_atoms if self.nullable else 0, cells).astype(np.int32)

    def _encode_line(self, series: pl.Series) -> Ints:
        assert self.axis is not None
        values = np.clip(self.axis.to_axis(series), self.axis.low, self.axis.high)
        is_empty = np.isnan(values)
        values[is_empty] = self.axis.low
        values = self._on_grid(values)
        bins = self._bins(values)
        nearest = np.minimum(np.searchsorted(self.atoms, values), len(self.atoms) - 1)
        cells = np.where(self.atoms[nearest] == values, nearest, self.n_atoms + bins)
        if self.nullable:
            cells[is_empty] = self.n_atoms + self.n_bins
        return cells.astype(np.int32)

    def _on_grid(self, values: Floats) -> Floats:
        """Return the nearest points of the grid."""
        assert self.axis is not None
        if self.axis.grid:
            return np.rint(values)
        if self.step is None:
            return values
        return self._points(np.rint((values - self.axis.low) / self.step))

    def _points(self, index: Floats) -> Floats:
        """Return the values of points of a grid of floats, as rounded as its step."""
        axis, step, n_points = self.axis, self.step, self.n_points
        assert axis is not None
        assert step is not None
        assert n_points is not None
        return np.round(axis.low + np.clip(index, 0, n_points - 1) * step, _decimals(step, axis.low))

    def _bins(self, values: Floats) -> Counts:
        """Return the fine bin of numbers on the axis."""
        assert self.axis is not None
        if not self.n_bins:
            return np.zeros(len(values), dtype=np.int64)
        width = self.axis.high - self.axis.low
        if self.n_points is not None and self.n_bins == self.n_points:
            scaled = np.rint(values if self.axis.grid else (values - self.axis.low) / self._grid_step)
        else:
            scaled = np.floor((values - self.axis.low) / width * self.n_bins)
        return np.clip(scaled, 0, self.n_bins - 1).astype(np.int64)

    @property
    def _grid_step(self) -> float:
        return 1.0 if self.step is None else self.step

    def bin_edges(self, bins: Counts) -> Floats:
        """Return the lower ends of fine bins on the axis; that of bin `n_bins` is the end of the line."""
        assert self.axis is not None
        low, n_points = self.axis.low, self.n_points
        if n_points is not None and self.n_bins == n_points:
            return np.asarray(low + bins * self._grid_step)
        return np.asarray(low + bins / self.n_bins * (self.axis.high - low))

    def decode_points(self, values: Floats) -> pl.Series:
        """Return numbers on the axis as values of the column."""
        assert self.axis is not None
        return self.axis.from_axis(self._on_grid(values), self.dtype, self.name)


def column_domains(dtypes: dict[str, pl.DataType], privacy: DifferentialPrivacy, keys: set[str]) -> list[ColumnDomain]:
    """Return the domain of every column, from declarations and types alone; those that are bought are incomplete.

    Raises:
        PrivacyError: The domain of a column is unknown. The message lists all such columns and what to declare.
    """
    unsupported = [(n, t) for n, t in dtypes.items() if t.is_nested() or t in (pl.Binary, pl.Object)]
    if unsupported:
        raise UnsupportedColumnError.from_dtypes(unsupported)
    unit = privacy.unit_column
    found = [_domain(name, dtype, privacy, name in keys or name == unit) for name, dtype in dtypes.items()]
    missing = [
        f"{domain.name!r} ({domain.dtype}): {domain.source}"
        for domain in found
        if domain.kind == "empty" and domain.dtype != pl.Null
    ]
    if missing:
        raise PrivacyError(f"undeclared columns: {'; '.join(missing)}. Nothing is read from the data for free.")
    return found


def _domain(name: str, dtype: pl.DataType, privacy: DifferentialPrivacy, is_key: bool) -> ColumnDomain:
    nullable = privacy.is_nullable(name)
    levels, bounds = privacy.levels.get(name), privacy.bounds.get(name)
    if is_key:
        if not can_be_key(dtype):
            raise PrivacyError(f"column {name!r} ({dtype}): identifiers must be texts or integers. Cast it before fit.")
        return ColumnDomain(name, dtype, "key", "identifier")
    if dtype == pl.Null:
        return ColumnDomain(name, dtype, "empty", "type")
    if levels is not None:
        return _declared_levels(name, dtype, levels, nullable)
    if isinstance(dtype, pl.Boolean | pl.Enum):
        values = pl.Series([False, True]) if dtype == pl.Boolean else pl.Series(_categories(dtype), dtype=dtype)
        if not len(values):
            raise PrivacyError(f"column {name!r}: its type has no categories. Drop it.")
        return ColumnDomain(name, dtype, "levels", "type", nullable, values)
    if is_numeric(dtype):
        if bounds is None:
            remedy = (
                f"say bounds={{{name!r}: (low, high)}}, bounds={{{name!r}: 'private'}} or levels={{{name!r}: [...]}}"
            )
            return ColumnDomain(name, dtype, "empty", remedy)
        spikes = privacy.spikes.get(name, ())
        if isinstance(bounds, str):
            return ColumnDomain(name, dtype, "line", PRIVATE, nullable)
        return line_domain(name, dtype, bounds, nullable, spikes, "declared")
    remedy = (
        f"say levels={{{name!r}: [...]}} or levels={{{name!r}: 'private'}}, or keys=[{name!r}] if it identifies rows"
    )
    return ColumnDomain(name, dtype, "empty", remedy)


def _categories(dtype: pl.DataType) -> list[str]:
    assert isinstance(dtype, pl.Enum)
    return dtype.categories.to_list()


def _declared_levels(name: str, dtype: pl.DataType, levels: Any, nullable: bool) -> ColumnDomain:
    if isinstance(dtype, pl.Boolean | pl.Enum):
        raise PrivacyError(
            f"column {name!r}: the levels of {dtype.base_type()} come from its type. Do not declare them."
        )
    if isinstance(levels, str):
        if is_numeric(dtype):
            raise PrivacyError(
                f"column {name!r} ({dtype}): say bounds={{{name!r}: 'private'}}; levels of numbers are declared."
            )
        return ColumnDomain(name, dtype, "levels", PRIVATE, nullable)
    return level_domain(name, dtype, levels, nullable, "declared")


def level_domain(name: str, dtype: pl.DataType, levels: Any, nullable: bool, source: str) -> ColumnDomain:
    """Return the domain of a column with these levels, and "(other)" for undeclared texts."""
    values = _values(name, dtype, levels, "levels").drop_nulls()
    values = values.unique(maintain_order=True)
    if is_numeric(dtype):
        values = values.sort()
        axis = make_axis(AxisSummary(*_physical_range(values), step=1, digits=0), dtype)
        return ColumnDomain(name, dtype, "levels", source, nullable, values, axis=axis)
    if OTHER not in text_of(values).to_list():
        values = pl.concat([values, pl.Series([OTHER], dtype=dtype)])
    other = text_of(values).to_list().index(OTHER)
    return ColumnDomain(name, dtype, "levels", source, nullable, values, other=other)


def line_domain(
    name: str, dtype: pl.DataType, bounds: Sequence[Any], nullable: bool, spikes: Sequence[Any], source: str
) -> ColumnDomain:
    """Return the domain of a number line with these bounds: (low, high) or (low, high, step)."""
    low, high = _physical_range(_values(name, dtype, list(bounds[:2]), "bounds"))
    if not low < high or not (np.isfinite(float(low)) and np.isfinite(float(high))):
        raise PrivacyError(f"column {name!r}: bounds={tuple(bounds)!r}. Give a low value and a higher one.")
    step = None if len(bounds) == 2 or bounds[2] is None else _physical_step(name, dtype, bounds[2])
    return physical_line(name, dtype, (low, high), nullable, spikes, source, step)


def physical_line(
    name: str,
    dtype: pl.DataType,
    ends: tuple[Any, Any],
    nullable: bool,
    spikes: Sequence[Any],
    source: str,
    step: float | None = None,
) -> ColumnDomain:
    """Return the domain of a number line between two physical values."""
    low, high = ends
    if dtype in FLOATS:
        axis = Axis(False, low=float(low), high=float(high))
        domain = ColumnDomain(name, dtype, "line", source, nullable, axis=axis, step=step)
    else:
        axis = make_axis(AxisSummary(int(low), int(high), step=1 if step is None else int(step)), dtype)
        domain = ColumnDomain(name, dtype, "line", source, nullable, axis=axis)
    return replace(domain, atoms=_atoms(domain, spikes))


def _atoms(domain: ColumnDomain, spikes: Sequence[Any]) -> Floats:
    """Return the numbers with cells of their own: all points of a small grid, or the bounds, 0 and the spikes."""
    assert domain.axis is not None
    axis, n_points = domain.axis, domain.n_points
    if domain.is_small and n_points is not None:
        index = np.arange(n_points, dtype=np.float64)
        return index if axis.grid else np.unique(domain._points(index))
    declared = axis.to_axis(_values(domain.name, domain.dtype, list(spikes), "spikes").drop_nulls())
    has_zero = is_numeric(domain.dtype) and not domain.dtype.is_temporal()
    zero = axis.to_axis(pl.Series([0]).cast(domain.dtype)) if has_zero else np.empty(0)
    points = np.concatenate([[axis.low, axis.high], declared, zero])
    return np.unique(domain._on_grid(points[(points >= axis.low) & (points <= axis.high)]))


def _values(name: str, dtype: pl.DataType, values: Any, what: str) -> pl.Series:
    """Return declared values as a series of the type of their column; texts are cast."""
    try:
        series = values if isinstance(values, pl.Series) else pl.Series(list(values), strict=False)
        if series.dtype == dtype:
            return series.alias(name)
        is_cast = series.dtype == pl.String or not dtype.is_temporal() or series.dtype.is_temporal()
        if series.dtype == pl.Object or not is_cast:
            raise TypeError(f"they are not {dtype}")
        cast = series.cast(dtype, strict=True)
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:
        raise PrivacyError(f"column {name!r} ({dtype}): its {what} {values!r} cannot be read: {error}.") from None
    return cast.alias(name)


def _physical_range(values: pl.Series) -> tuple[Any, Any]:
    """Return the least and the largest of some values, as physical numbers."""
    physical = values.drop_nulls() if values.dtype in FLOATS else values.to_physical().drop_nulls()
    if len(physical) < 1:
        raise PrivacyError(f"column {values.name!r}: no values are declared.")
    return physical.min(), physical.max()


def _physical_step(name: str, dtype: pl.DataType, step: Any) -> float:
    """Return a declared step in physical units."""
    if dtype.is_temporal():
        unit = pl.Duration("us" if not isinstance(dtype, pl.Datetime | pl.Duration) else dtype.time_unit)
        found = _values(name, unit, [step], "step").to_physical().item()
        factor = 1 / 86_400_000_000 if dtype == pl.Date else 1_000.0 if dtype == pl.Time else 1.0
        physical = float(found) * factor
    elif isinstance(dtype, pl.Decimal):
        physical = float(Decimal(str(step)).scaleb(dtype.scale))
    else:
        physical = float(step)
    if not physical > 0 or (dtype not in FLOATS and physical != int(physical)):
        raise PrivacyError(
            f"column {name!r} ({dtype}): the step {step!r} of its bounds is not a positive step of the type."
        )
    return physical


def _decimals(*numbers: float) -> int:
    """Return the number of decimals that represent all numbers."""
    for digits in range(MOST_DECIMALS):
        if all(round(number, digits) == number for number in numbers):
            return digits
    return MOST_DECIMALS
