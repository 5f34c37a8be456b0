"""Axes of numeric columns: convert any numeric or temporal dtype to float64 and back without loss.

Integers, decimals, dates and times become points of a grid, `x = (value - origin) / step`, where `step` is the greatest
common divisor of the differences between values. These are small integers that float64 represents exactly, even if the
values themselves exceed 2**53. Floats keep their value, scaled by a power of two if squares would overflow. A grid is
coarser than its values only if their range has more than 2**52 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from arf_dask.typing import Floats

FLOATS = (pl.Float64, pl.Float32, pl.Float16)
EXACT = 2**52  # float64 represents all integers below this, and the midpoints between them
WIDE = 2**126  # differences of 128-bit values below this do not overflow
MOST_DECIMALS = 9


@dataclass(frozen=True)
class Axis:
    """The conversion of a numeric column to float64 and back."""

    grid: bool  # True: integers, with probability mass on a grid; False: floats, with a density
    origin: int = 0  # grid: the smallest physical value
    step: int = 1  # grid: difference between the physical values of neighbouring points
    shift: int = 0  # grid: low bits dropped first, for 128-bit values whose range overflows
    coarse: bool = False  # grid: several values share a point, as the range has more than 2**52 steps
    exponent: int = 0  # floats: x = value * 2**-exponent
    decimals: int | None = None  # floats: number of decimals of the training values; None: unlimited
    low: float = 0.0  # training range, on this axis
    high: float = 0.0

    def to_axis(self, series: pl.Series) -> Floats:
        """Convert a series to numbers on the axis; null and NaN become NaN."""
        series = nameless(series)
        if not self.grid:
            values = series.cast(pl.Float64).to_numpy()
            return np.ldexp(values, -self.exponent) if self.exponent else values
        return _to_grid(series, self)

    def from_axis(
        self, axis_values: Floats, dtype: pl.DataType, name: str = "", *, open_ends: bool = False
    ) -> pl.Series:
        """Convert numbers on the axis to `dtype`, clipped to the training range or, if `open_ends`, to the open one."""
        clipped_values = np.clip(axis_values, *(self.open_range if open_ends else (self.low, self.high)))
        if self.grid:
            return _from_grid(np.rint(clipped_values).astype(np.int64), self, dtype).alias(name)
        with np.errstate(over="ignore"):  # infinite values of open ends become the largest finite ones
            values = np.ldexp(clipped_values, self.exponent) if self.exponent else clipped_values
        if open_ends:
            values = np.clip(values, *_finite_range(dtype))
        if self.decimals is not None:
            values = np.round(values, self.decimals)
        return pl.Series(name, values).cast(dtype)

    @property
    def open_range(self) -> tuple[float, float]:
        """The range of open support: unbounded for floats. Integers, dates and other grids keep the training range."""
        return (self.low, self.high) if self.grid else (-np.inf, np.inf)

    @property
    def lossless(self) -> bool:
        """Whether distinct values have distinct points on the axis."""
        return not self.coarse


def _finite_range(dtype: pl.DataType) -> tuple[float, float]:
    """Return the smallest and the largest finite number of a float type."""
    limits = np.finfo("float64" if dtype == pl.Float64 else "float32" if dtype == pl.Float32 else "float16")
    return float(limits.min), float(limits.max)


def nameless(series: pl.Series) -> pl.Series:
    """Remove the name of a series: Polars interprets a name such as "^x$" as a regular expression."""
    return series.alias("")


def is_numeric(dtype: pl.DataType) -> bool:
    """Whether values of this dtype are numbers or, as for temporal types, have a numeric physical representation."""
    return dtype.is_numeric() or dtype.is_temporal()


class AxisSummary(NamedTuple):
    """The statistics that determine the axis of a column. Summaries of two parts can be merged."""

    low: float | int  # smallest and largest value; physical values for a grid
    high: float | int
    step: int = 0  # grid: greatest common divisor of all differences; 0 if there is only one value
    digits: int = 0  # floats: bit d is set if d decimals represent every value exactly


def learn_axis(series: pl.Series) -> Axis:
    """Learn the axis of a column that has at least one number and no infinite values."""
    summary = summarise_axis(series)
    assert summary is not None
    return make_axis(summary, series.dtype)


def summarise_axis(series: pl.Series) -> AxisSummary | None:
    """Summarise the numbers of a column or a part of it; None if there are none."""
    series = nameless(series)
    if series.dtype in FLOATS:
        values = series.drop_nulls().drop_nans()
        if not len(values):
            return None
        return AxisSummary(float(values.min()), float(values.max()), digits=_exact_digits(values))  # type: ignore[arg-type]
    physical = series.to_physical().drop_nulls()
    if not len(physical):
        return None
    low, high = _bounds(physical)
    return AxisSummary(low, high, _common_step(physical, low) if high - low < 2**63 else 1)


def merge_axis_summaries(one: AxisSummary | None, other: AxisSummary | None) -> AxisSummary | None:
    """Merge the summaries of two parts of a column."""
    if one is None or other is None:
        return other if one is None else one
    low, high = min(one.low, other.low), max(one.high, other.high)
    step = 0
    if isinstance(one.low, int) and isinstance(other.low, int):
        step = math.gcd(one.step, other.step, one.low - other.low) if high - low < 2**63 else 1
    return AxisSummary(low, high, step, one.digits & other.digits)


def make_axis(summary: AxisSummary, dtype: pl.DataType) -> Axis:
    """Build the axis of a column from the summary of all its numbers."""
    return _float_axis(summary) if dtype in FLOATS else _grid_axis(summary)


def _float_axis(summary: AxisSummary) -> Axis:
    low, high = float(summary.low), float(summary.high)
    largest = max(abs(low), abs(high))
    exponent = math.frexp(largest)[1] if largest else 0
    # Scaling is needed only if squares of these numbers would overflow or underflow.
    exponent = exponent if abs(exponent) > 200 else 0
    if not exponent:
        fewest_digits = next((digits for digits in range(MOST_DECIMALS + 1) if summary.digits >> digits & 1), None)
        return Axis(False, decimals=fewest_digits, low=low, high=high)
    return Axis(False, exponent=exponent, low=_scale(low, exponent, math.inf), high=_scale(high, exponent, -math.inf))


def _scale(value: float, exponent: int, inwards: float) -> float:
    """Convert a bound to the axis. If it underflows next to huge values, return the nearest number inside the range."""
    scaled = math.ldexp(value, -exponent)
    return scaled if math.ldexp(scaled, exponent) == value else math.nextafter(scaled, inwards)


def _exact_digits(values: pl.Series) -> int:
    """Return a bit mask in which bit d is set if d decimals represent every value exactly."""
    first_values, digit_bits = values.head(1_000), 0
    for digits in range(MOST_DECIMALS + 1):
        if (first_values.round(digits) == first_values).all() and (values.round(digits) == values).all():
            digit_bits |= 1 << digits
    return digit_bits


def _grid_axis(summary: AxisSummary) -> Axis:
    low, high = int(summary.low), int(summary.high)
    shift = 1 if high - low >= WIDE else 0
    low, high = -(-low >> shift), high >> shift  # rounded inwards, to stay within the training range
    step = max(summary.step, 1) if not shift else 1
    coarse = (high - low) // step >= EXACT
    if coarse:
        step = (high - low) // EXACT + 1
    return Axis(True, origin=low, step=step, shift=shift, coarse=coarse, low=0.0, high=float((high - low) // step))


def _bounds(physical: pl.Series) -> tuple[int, int]:
    low: Any = physical.min()
    high: Any = physical.max()
    return int(low), int(high)


def _common_step(physical: pl.Series, low: int) -> int:
    """Return the greatest common divisor of all differences from the smallest value, which are below 2**63."""
    distances = _distances(physical, low)
    if not isinstance(distances, np.ndarray):
        distances = distances.cast(pl.Int64).to_numpy()
    return int(np.gcd.reduce(distances))


def _distances(present: pl.Series, origin: int) -> NDArray[np.int64] | pl.Series:
    """Return exact differences from the origin, as int64 if everything fits, else as Int128. Nulls are not allowed."""
    low, high = _bounds(present)
    if all(-(2**63) <= number < 2**63 for number in (low, high, origin, low - origin, high - origin)):
        return np.asarray(present.cast(pl.Int64).to_numpy() - np.int64(origin))
    if high < 2**127 and origin < 2**127:
        if low - origin >= -(2**127) and high - origin < 2**127:
            return present.cast(pl.Int128) - pl.Series([origin], dtype=pl.Int128)
    elif low >= origin and high - origin < 2**127:  # UInt128 values above the maximum of Int128
        return (present - pl.Series([origin], dtype=pl.UInt128)).cast(pl.Int128)
    # New data may be too far away for Int128: clip these differences.
    clipped_distances = [max(min(v - origin, 2**127 - 1), -(2**127)) for v in present.to_list()]
    return pl.Series(clipped_distances, dtype=pl.Int128)


def _to_grid(series: pl.Series, axis: Axis) -> Floats:
    physical = series.to_physical()
    non_null = physical.drop_nulls()
    grid_points = np.full(len(physical), np.nan)
    if len(non_null) == 0:
        return grid_points
    if axis.shift:
        non_null = non_null // pl.Series([2**axis.shift], dtype=non_null.dtype)
    grid_points[physical.is_not_null().to_numpy()] = _grid_points(_distances(non_null, axis.origin), axis)
    return grid_points


def _grid_points(distances: NDArray[np.int64] | pl.Series, axis: Axis) -> Floats:
    if isinstance(distances, np.ndarray) and axis.step >= 2**63:
        distances = pl.Series(distances).cast(pl.Int128)
    if not isinstance(distances, np.ndarray):
        step = pl.Series([axis.step], dtype=pl.Int128)
        # Dropping a bit can put the smallest value one below the origin, which was rounded inwards.
        distances = distances + (distances == -1).cast(pl.Int128) if axis.shift else distances
        whole_steps = (distances // step).cast(pl.Float64).to_numpy()
        remainder = (distances % step).cast(pl.Float64).to_numpy()
    else:
        whole_steps, remainder = (distances // axis.step).astype(np.float64), (distances % axis.step).astype(np.float64)
    # Values of new data off the learned grid keep their fraction, so that they match no grid point.
    return whole_steps if axis.coarse else whole_steps + remainder / axis.step


def _from_grid(points: NDArray[np.int64], axis: Axis, dtype: pl.DataType) -> pl.Series:
    highest_value = axis.origin + int(axis.high) * axis.step
    fits_int64 = axis.shift == 0 and axis.origin >= -(2**63) and highest_value < 2**63
    if fits_int64 and not isinstance(dtype, pl.Decimal):
        values = pl.Series(points * np.int64(axis.step) + np.int64(axis.origin))
    else:
        # UInt128 values may exceed the maximum of Int128.
        wide_dtype = pl.UInt128 if dtype == pl.UInt128 else pl.Int128
        distances = pl.Series(points).cast(pl.Int128) * pl.Series([axis.step], dtype=pl.Int128)
        values = distances.cast(wide_dtype) + pl.Series([axis.origin], dtype=wide_dtype)
        values = values * pl.Series([2**axis.shift], dtype=wide_dtype)
    if isinstance(dtype, pl.Decimal):
        return _decimal_values(values, dtype)
    return values.cast(dtype)


def _decimal_values(unscaled: pl.Series, dtype: pl.Decimal) -> pl.Series:
    """Reinterpret 128-bit integers as decimals."""
    array = unscaled.cast(pl.Decimal(38, 0)).to_arrow()
    arrow_type = pa.decimal128(dtype.precision or 38, dtype.scale)
    result = pl.from_arrow(pa.Array.from_buffers(arrow_type, len(array), array.buffers(), offset=array.offset))
    assert isinstance(result, pl.Series)
    return result.cast(dtype)
