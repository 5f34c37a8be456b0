"""One number line per numeric column: any numeric or temporal dtype to float64 and back, without loss.

Whole numbers (ints, decimals, dates, times) become their place on a grid, `x = (value - origin) / step`, where
`step` is the greatest common divisor of the distances seen: small numbers that float64 holds exactly, also where
the values themselves exceed 2**53. Floats keep their value, scaled by a power of two where squares would overflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FLOATS = (pl.Float64, pl.Float32, pl.Float16)
EXACT = 2**53
MOST_DECIMALS = 9


@dataclass(frozen=True)
class Axis:
    """How a numeric column becomes float64 and comes back."""

    grid: bool  # True: whole numbers, mass on a grid; False: floats, a density
    origin: int = 0  # grid: the smallest physical value
    step: int = 1  # grid: physical distance of two neighbouring places
    shift: int = 0  # grid: bits dropped first, for 128-bit values whose range overflows
    exponent: int = 0  # floats: x = value * 2**-exponent
    decimals: int | None = None  # floats: digits after the point seen, None = any
    low: float = 0.0  # the range seen, on this axis
    high: float = 0.0

    def to_axis(self, series: pl.Series) -> Floats:
        """Places on the axis; null and NaN become NaN."""
        if not self.grid:
            values = series.cast(pl.Float64).to_numpy()
            return np.ldexp(values, -self.exponent) if self.exponent else values
        return _grid_places(series, self)

    def from_axis(self, places: Floats, dtype: pl.DataType, name: str = "") -> pl.Series:
        """Values of `dtype` at these places, held inside the range seen."""
        inside = np.clip(places, self.low, self.high)
        if self.grid:
            return _grid_values(np.rint(inside).astype(np.int64), self, dtype).alias(name)
        values = np.ldexp(inside, self.exponent) if self.exponent else inside
        if self.decimals is not None:
            values = np.round(values, self.decimals)
        return pl.Series(name, values).cast(dtype)

    @property
    def lossless(self) -> bool:
        return not self.grid or (self.shift == 0 and self.high < EXACT)


def is_numeric(dtype: pl.DataType) -> bool:
    """Whether values of this dtype live on a number line (temporal ones do)."""
    return dtype.is_numeric() or dtype.is_temporal()


def learn_axis(series: pl.Series) -> Axis:
    """The axis of a column with at least one value that is neither null nor NaN. Infinities must be gone."""
    if series.dtype in FLOATS:
        return _float_axis(series)
    return _grid_axis(series)


def _float_axis(series: pl.Series) -> Axis:
    values = series.drop_nulls().drop_nans()
    largest = float(values.abs().max() or 0.0)  # type: ignore[arg-type]
    exponent = math.frexp(largest)[1] if largest else 0
    # Squares of these numbers must neither overflow nor vanish: only then is scaling needed.
    exponent = exponent if abs(exponent) > 200 else 0
    low, high = (math.ldexp(float(v), -exponent) for v in (values.min(), values.max()))  # type: ignore[arg-type]
    return Axis(False, exponent=exponent, decimals=_decimals(values) if not exponent else None, low=low, high=high)


def _decimals(values: pl.Series) -> int | None:
    """The fewest digits after the point that write every value exactly, or None."""
    probe = values.head(1_000)
    for digits in range(MOST_DECIMALS + 1):
        if (probe.round(digits) == probe).all() and (values.round(digits) == values).all():
            return digits
    return None


def _grid_axis(series: pl.Series) -> Axis:
    physical = series.to_physical().drop_nulls()
    low, high = _bounds(physical)
    shift = 1 if high - low >= 2**126 or high >= 2**127 else 0
    low, high = -(-low >> shift), high >> shift  # rounded inwards: nothing may leave the range seen
    step = _common_step(physical, low) if not shift else 1
    if (high - low) // step >= EXACT:
        step = (high - low) // EXACT + 1
    return Axis(True, origin=low, step=step, shift=shift, low=0.0, high=float((high - low) // step))


def _bounds(physical: pl.Series) -> tuple[int, int]:
    low: Any = physical.min()
    high: Any = physical.max()
    return int(low), int(high)


def _common_step(physical: pl.Series, low: int) -> int:
    """The greatest common divisor of all distances from the smallest value (1 where they are too wide)."""
    if _fits_int64(physical, low):
        distances = physical.cast(pl.Int64).to_numpy() - low
        return max(int(np.gcd.reduce(distances)), 1)
    wide = physical.cast(pl.Int128) - pl.Series([low], dtype=pl.Int128)
    if int(wide.max()) >= 2**63:  # type: ignore[arg-type]
        return 1
    return max(int(np.gcd.reduce(wide.cast(pl.Int64).to_numpy())), 1)


def _fits_int64(physical: pl.Series, low: int) -> bool:
    """Whether value and distance both stay inside int64."""
    bounds = _bounds(physical)
    return bounds[0] >= -(2**63) and bounds[1] < 2**63 and bounds[1] - low < 2**63 and bounds[0] - low >= -(2**63)


def _grid_places(series: pl.Series, axis: Axis) -> Floats:
    physical = series.to_physical()
    present = physical.drop_nulls()
    places = np.full(len(physical), np.nan)
    if len(present) == 0:
        return places
    if axis.shift == 0 and _fits_int64(present, axis.origin):
        distance = present.cast(pl.Int64).to_numpy() - np.int64(axis.origin)
        # Values off the learned grid (new data) keep their fraction, so that they match no grid point.
        found = distance / axis.step if np.any(distance % axis.step) else (distance // axis.step).astype(float)
    else:
        found = _wide_places(present, axis)
    places[physical.is_not_null().to_numpy()] = found
    return places


def _wide_places(present: pl.Series, axis: Axis) -> Floats:
    if axis.shift:
        present = present // pl.Series([2**axis.shift], dtype=present.dtype)
    low, high = _bounds(present)
    if low < -(2**126) or high >= 2**126:
        return (present.cast(pl.Float64).to_numpy() - float(axis.origin)) / float(axis.step)
    distance = present.cast(pl.Int128) - pl.Series([axis.origin], dtype=pl.Int128)
    places = distance // pl.Series([axis.step], dtype=pl.Int128)
    return np.asarray(places.cast(pl.Float64).to_numpy())


def _grid_values(places: NDArray[np.int64], axis: Axis, dtype: pl.DataType) -> pl.Series:
    top = axis.origin + int(axis.high) * axis.step
    small = axis.shift == 0 and axis.origin >= -(2**63) and top < 2**63
    if small and not isinstance(dtype, pl.Decimal):
        values = pl.Series(places * np.int64(axis.step) + np.int64(axis.origin))
    else:
        wide = pl.Series(places).cast(pl.Int128) * pl.Series([axis.step], dtype=pl.Int128)
        values = wide + pl.Series([axis.origin], dtype=pl.Int128)
        if axis.shift:
            target = pl.UInt128 if dtype == pl.UInt128 else pl.Int128
            values = values.cast(target) * pl.Series([2**axis.shift], dtype=target)
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
