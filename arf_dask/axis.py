"""One number line per numeric column: any numeric or temporal dtype to float64 and back, without loss.

Whole numbers (ints, decimals, dates, times) become their place on a grid, `x = (value - origin) / step`,
where `step` is the greatest common divisor of the distances seen: small numbers that float64 holds exactly,
also where the values themselves exceed 2**53. Floats keep their value, scaled by a power of two where squares
would overflow. A grid is coarser than its values only where their range has more than 2**52 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FLOATS = (pl.Float64, pl.Float32, pl.Float16)
EXACT = 2**52  # float64 holds every place below, and the half-way cut between two of them
WIDE = 2**126  # distances of 128-bit values that can still be computed without overflow
MOST_DECIMALS = 9


@dataclass(frozen=True)
class Axis:
    """How a numeric column becomes float64 and comes back."""

    grid: bool  # True: whole numbers, mass on a grid; False: floats, a density
    origin: int = 0  # grid: the smallest physical value
    step: int = 1  # grid: physical distance of two neighbouring places
    shift: int = 0  # grid: bits dropped first, for 128-bit values whose range overflows
    coarse: bool = False  # grid: the range has more steps than float64 has places, so neighbours share one
    exponent: int = 0  # floats: x = value * 2**-exponent
    decimals: int | None = None  # floats: digits after the point seen, None = any
    low: float = 0.0  # the range seen, on this axis
    high: float = 0.0

    def to_axis(self, series: pl.Series) -> Floats:
        """Places on the axis; null and NaN become NaN."""
        series = nameless(series)
        if not self.grid:
            values = series.cast(pl.Float64).to_numpy()
            return np.ldexp(values, -self.exponent) if self.exponent else values
        return _grid_places(series, self)

    def from_axis(self, places: Floats, dtype: pl.DataType, name: str = "", *, open_ends: bool = False) -> pl.Series:
        """Values of `dtype` at these places, held inside the range seen unless floats may leave it."""
        inside = places if open_ends and not self.grid else np.clip(places, self.low, self.high)
        if self.grid:
            return _grid_values(np.rint(inside).astype(np.int64), self, dtype).alias(name)
        values = np.ldexp(inside, self.exponent) if self.exponent else inside
        if self.decimals is not None:
            values = np.round(values, self.decimals)
        return pl.Series(name, values).cast(dtype)

    @property
    def lossless(self) -> bool:
        """Whether every value has a place of its own."""
        return not self.coarse


def nameless(series: pl.Series) -> pl.Series:
    """The same values under no name: Polars takes a name such as "^x$" for a pattern and finds no column."""
    return series.alias("")


def is_numeric(dtype: pl.DataType) -> bool:
    """Whether values of this dtype live on a number line (temporal ones do)."""
    return dtype.is_numeric() or dtype.is_temporal()


class Measured(NamedTuple):
    """What the axis of a column depends on. That of two parts together follows from the two."""

    low: float | int  # smallest and largest value; physical ones of a grid
    high: float | int
    step: int = 0  # grid: the greatest common divisor of all distances; 0 where there is one value only
    digits: int = 0  # floats: bit d is set if d digits after the point write every value exactly


def learn_axis(series: pl.Series) -> Axis:
    """The axis of a column with at least one value that is neither null nor NaN. Infinities must be gone."""
    measured = measure(series)
    assert measured is not None
    return axis_of(measured, series.dtype)


def measure(series: pl.Series) -> Measured | None:
    """What the values of a column (or a part of it) say of its axis; None if there are none."""
    series = nameless(series)
    if series.dtype in FLOATS:
        values = series.drop_nulls().drop_nans()
        if not len(values):
            return None
        return Measured(float(values.min()), float(values.max()), digits=_exact_digits(values))  # type: ignore[arg-type]
    physical = series.to_physical().drop_nulls()
    if not len(physical):
        return None
    low, high = _bounds(physical)
    return Measured(low, high, _common_step(physical, low) if high - low < 2**63 else 1)


def merge_measured(one: Measured | None, other: Measured | None) -> Measured | None:
    """What the values of both say."""
    if one is None or other is None:
        return other if one is None else one
    low, high = min(one.low, other.low), max(one.high, other.high)
    step = 0
    if isinstance(one.low, int) and isinstance(other.low, int):
        step = math.gcd(one.step, other.step, one.low - other.low) if high - low < 2**63 else 1
    return Measured(low, high, step, one.digits & other.digits)


def axis_of(measured: Measured, dtype: pl.DataType) -> Axis:
    """The axis of a column from what its values say."""
    return _float_axis(measured) if dtype in FLOATS else _grid_axis(measured)


def _float_axis(measured: Measured) -> Axis:
    low, high = float(measured.low), float(measured.high)
    largest = max(abs(low), abs(high))
    exponent = math.frexp(largest)[1] if largest else 0
    # Squares of these numbers must neither overflow nor vanish: only then is scaling needed.
    exponent = exponent if abs(exponent) > 200 else 0
    if not exponent:
        fewest = next((digits for digits in range(MOST_DECIMALS + 1) if measured.digits >> digits & 1), None)
        return Axis(False, decimals=fewest, low=low, high=high)
    return Axis(False, exponent=exponent, low=_scale(low, exponent, math.inf), high=_scale(high, exponent, -math.inf))


def _scale(value: float, exponent: int, inwards: float) -> float:
    """A bound on the axis. Where it vanishes next to huge values, the nearest place that is still inside."""
    place = math.ldexp(value, -exponent)
    return place if math.ldexp(place, exponent) == value else math.nextafter(place, inwards)


def _exact_digits(values: pl.Series) -> int:
    """Bit d is set if d digits after the point write every value exactly."""
    probe, found = values.head(1_000), 0
    for digits in range(MOST_DECIMALS + 1):
        if (probe.round(digits) == probe).all() and (values.round(digits) == values).all():
            found |= 1 << digits
    return found


def _grid_axis(measured: Measured) -> Axis:
    low, high = int(measured.low), int(measured.high)
    shift = 1 if high - low >= WIDE else 0
    low, high = -(-low >> shift), high >> shift  # rounded inwards: nothing may leave the range seen
    step = max(measured.step, 1) if not shift else 1
    coarse = (high - low) // step >= EXACT
    if coarse:
        step = (high - low) // EXACT + 1
    return Axis(True, origin=low, step=step, shift=shift, coarse=coarse, low=0.0, high=float((high - low) // step))


def _bounds(physical: pl.Series) -> tuple[int, int]:
    low: Any = physical.min()
    high: Any = physical.max()
    return int(low), int(high)


def _common_step(physical: pl.Series, low: int) -> int:
    """The greatest common divisor of all distances from the smallest value; all are below 2**63."""
    distances = _distances(physical, low)
    if not isinstance(distances, np.ndarray):
        distances = distances.cast(pl.Int64).to_numpy()
    return int(np.gcd.reduce(distances))


def _distances(present: pl.Series, origin: int) -> NDArray[np.int64] | pl.Series:
    """Exact distances from the origin: int64 where value and distance fit, else Int128. None may be null."""
    low, high = _bounds(present)
    if all(-(2**63) <= number < 2**63 for number in (low, high, origin, low - origin, high - origin)):
        return np.asarray(present.cast(pl.Int64).to_numpy() - np.int64(origin))
    if high < 2**127 and origin < 2**127:
        if low - origin >= -(2**127) and high - origin < 2**127:
            return present.cast(pl.Int128) - pl.Series([origin], dtype=pl.Int128)
    elif low >= origin and high - origin < 2**127:  # UInt128 beyond the reach of Int128
        return (present - pl.Series([origin], dtype=pl.UInt128)).cast(pl.Int128)
    # New data further away than any distance that can be told: as far as it goes.
    far = [max(min(v - origin, 2**127 - 1), -(2**127)) for v in present.to_list()]
    return pl.Series(far, dtype=pl.Int128)


def _grid_places(series: pl.Series, axis: Axis) -> Floats:
    physical = series.to_physical()
    present = physical.drop_nulls()
    places = np.full(len(physical), np.nan)
    if len(present) == 0:
        return places
    if axis.shift:
        present = present // pl.Series([2**axis.shift], dtype=present.dtype)
    places[physical.is_not_null().to_numpy()] = _whole_places(_distances(present, axis.origin), axis)
    return places


def _whole_places(distances: NDArray[np.int64] | pl.Series, axis: Axis) -> Floats:
    if isinstance(distances, np.ndarray) and axis.step >= 2**63:
        distances = pl.Series(distances).cast(pl.Int128)
    if not isinstance(distances, np.ndarray):
        step = pl.Series([axis.step], dtype=pl.Int128)
        # Dropping a bit takes the smallest value one below the origin, which was rounded inwards.
        distances = distances + (distances == -1).cast(pl.Int128) if axis.shift else distances
        whole = (distances // step).cast(pl.Float64).to_numpy()
        rest = (distances % step).cast(pl.Float64).to_numpy()
    else:
        whole, rest = (distances // axis.step).astype(np.float64), (distances % axis.step).astype(np.float64)
    # Values off the learned grid (new data) keep their fraction, so that they match no grid point.
    return whole if axis.coarse else whole + rest / axis.step


def _grid_values(places: NDArray[np.int64], axis: Axis, dtype: pl.DataType) -> pl.Series:
    top = axis.origin + int(axis.high) * axis.step
    small = axis.shift == 0 and axis.origin >= -(2**63) and top < 2**63
    if small and not isinstance(dtype, pl.Decimal):
        values = pl.Series(places * np.int64(axis.step) + np.int64(axis.origin))
    else:
        # UInt128 may start where Int128 ends.
        wide = pl.UInt128 if dtype == pl.UInt128 else pl.Int128
        distances = pl.Series(places).cast(pl.Int128) * pl.Series([axis.step], dtype=pl.Int128)
        values = distances.cast(wide) + pl.Series([axis.origin], dtype=wide)
        values = values * pl.Series([2**axis.shift], dtype=wide)
    if isinstance(dtype, pl.Decimal):
        return _decimal_values(values, dtype)
    return values.cast(dtype)


def _decimal_values(unscaled: pl.Series, dtype: pl.Decimal) -> pl.Series:
    """Whole numbers read as decimals: the same 128 bits under another type."""
    array = unscaled.cast(pl.Decimal(38, 0)).to_arrow()
    kind = pa.decimal128(dtype.precision or 38, dtype.scale)
    result = pl.from_arrow(pa.Array.from_buffers(kind, len(array), array.buffers(), offset=array.offset))
    assert isinstance(result, pl.Series)
    return result.cast(dtype)
