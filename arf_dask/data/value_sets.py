"""Sets of values of one column, and regions of several columns: what a condition says, read once from `given`.

A set holds null, NaN and disjoint spans of values. Their ends are *physical*: whole numbers for integers, decimals,
dates and times (in the resolution of the column), floats for floats, and the values themselves for texts and booleans.
A *box* maps columns to sets; a *region* is a union of boxes.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS, nameless
from arf_dask.errors import OptionError
from arf_dask.typing import Flags

NANOSECONDS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
Converted = TypeVar("Converted")
MOST_BITS = 127  # of the physical values of the widest dtypes


@dataclass(frozen=True)
class Interval:
    """An interval of numbers, dates or durations from `low` to `high`; None means unbounded on that side.

    Args:
        low: The lower end; None for no lower bound.
        high: The upper end; None for no upper bound.
        closed: Which ends are included: "both" (as in the short form `(low, high)`), "left", "right" or "none".

    Raises:
        OptionError: If `closed` has another value.

    Examples:
        >>> import arf_dask, polars as pl
        >>> model = arf_dask.fit(pl.DataFrame({"n": [i % 10 for i in range(200)]}), trees=5, seed=1)
        >>> round(model.probability({"n": arf_dask.Interval(0, 5, closed="left")}), 2)
        0.5
    """

    low: Any = None
    high: Any = None
    closed: Literal["both", "left", "right", "none"] = "both"

    def __post_init__(self) -> None:
        if self.closed not in ("both", "left", "right", "none"):
            raise OptionError(f'Interval: closed={self.closed!r}. Say "both", "left", "right" or "none".')


class Span(NamedTuple):
    """All values from `low` to `high`, both included; infinite for an open end."""

    low: Any
    high: Any

    @property
    def is_point(self) -> bool:
        return bool(self.low == self.high)


EVERYWHERE = Span(-math.inf, math.inf)


@dataclass(frozen=True)
class ValueSet:
    """A set of values of one column: null, NaN, and disjoint spans in ascending order."""

    dtype: pl.DataType
    null: bool = False
    nan: bool = False
    spans: tuple[Span, ...] = ()

    @classmethod
    def read(cls, known: Any, dtype: pl.DataType, where: str) -> ValueSet:
        """Read a condition on one column: a value, None, (low, high), an Interval, or a list of these.

        Args:
            known: the condition.
            dtype: the dtype of the column.
            where: what the condition is about, for error messages.
        """
        if isinstance(known, ValueSet):
            return known
        if isinstance(known, tuple):
            if len(known) != 2:
                raise OptionError(
                    f"{where}: a tuple is an interval (low, high), and this one has {len(known)} entries. "
                    "Give two, with None for an open end, or a list of choices."
                )
            known = Interval(*known)
        if isinstance(known, Interval):
            return cls(dtype, spans=_interval(known, dtype, where))
        if isinstance(known, Mapping):
            raise OptionError(f"{where}: a dict says nothing about a column. Give a value, an interval or a list.")
        if is_choices(known):
            choices = [cls.read(choice, dtype, where) for choice in known]
            if not choices:
                raise OptionError(f"{where}: an empty list. Give at least one choice.")
            return cls.union(choices)
        if known is None:
            return cls(dtype, null=True)
        if dtype in FLOATS and isinstance(known, float | np.floating) and math.isnan(known):
            return cls(dtype, nan=True)
        return cls(dtype, spans=_single(known, dtype, where))

    @classmethod
    def union(cls, sets: Sequence[ValueSet]) -> ValueSet:
        """Return the union of sets of the same column, of which there is at least one."""
        spans = merged([span for one in sets for span in one.spans])
        return cls(sets[0].dtype, any(one.null for one in sets), any(one.nan for one in sets), spans)

    @classmethod
    def numbers(cls, dtype: pl.DataType) -> ValueSet:
        """Return the set of all values except null and NaN."""
        return cls(dtype, spans=(EVERYWHERE,))

    def __bool__(self) -> bool:
        return self.null or self.nan or bool(self.spans)

    def __and__(self, other: ValueSet) -> ValueSet:
        return ValueSet(self.dtype, self.null and other.null, self.nan and other.nan, tuple(self._common(other)))

    def complement(self, *, null: bool) -> ValueSet:
        """Return the set of all other values of a column of numbers, dates or times.

        Args:
            null: whether null is among the values; otherwise it is in neither set.
        """
        is_float = self.dtype in FLOATS
        spans, low = [], -math.inf
        for span in self.spans:
            if span.low > low:
                spans.append(Span(low, math.nextafter(span.low, -math.inf) if is_float else span.low - 1))
            low = math.nextafter(span.high, math.inf) if is_float else span.high + 1
        if low < math.inf:
            spans.append(Span(low, math.inf))
        return ValueSet(self.dtype, null and not self.null, is_float and not self.nan, tuple(spans))

    def _common(self, other: ValueSet) -> Iterator[Span]:
        if EVERYWHERE in self.spans or EVERYWHERE in other.spans:
            yield from other.spans if EVERYWHERE in self.spans else self.spans
            return
        ours, theirs = 0, 0
        while ours < len(self.spans) and theirs < len(other.spans):
            one, two = self.spans[ours], other.spans[theirs]
            low, high = max(one.low, two.low), min(one.high, two.high)
            if low <= high:
                yield Span(low, high)
            if one.high <= two.high:
                ours += 1
            else:
                theirs += 1

    @property
    def points(self) -> list[Any]:
        """The single values of the set, without null and NaN."""
        return [span.low for span in self.spans if span.is_point]

    @property
    def is_single(self) -> bool:
        """Whether the set has exactly one element: a value, null or NaN."""
        return self.null + self.nan + len(self.spans) == 1 and len(self.points) == len(self.spans)

    def single(self, n: int = 1) -> pl.Series:
        """Return the only element of the set, `n` times, in the dtype of the column."""
        value = pl.Series([math.nan], dtype=self.dtype) if self.nan else column_values(self.points, self.dtype)
        return (pl.Series([None], dtype=self.dtype) if self.null else value).new_from_index(0, n)

    def contains(self, series: pl.Series) -> Flags:
        """Flag the values of a series that belong to the set."""
        physical = physical_values(series)
        is_number = physical.is_not_null()
        if physical.dtype.is_float():
            is_number &= physical.is_not_nan()
        flags = np.zeros(len(series), dtype=bool)
        flags |= self.null & physical.is_null().to_numpy()
        if physical.dtype.is_float():
            flags |= self.nan & physical.is_nan().fill_null(False).to_numpy()
        if self.spans and is_number.any():
            inside = is_number.to_numpy(writable=True)
            inside[inside] = self._spanned(physical.filter(is_number))
            flags |= inside
        return flags

    def _spanned(self, physical: pl.Series) -> Flags:
        """Flag physical values, without null and NaN, that lie in a span."""
        if self.spans[0] == EVERYWHERE:
            return np.ones(len(physical), dtype=bool)
        if all(span.is_point for span in self.spans):
            return physical.is_in(pl.Series(self.points, dtype=physical.dtype).implode()).to_numpy()
        limits = physical.min(), physical.max()
        lows, highs = (
            pl.Series([limit if end in (-math.inf, math.inf) else end for end in side], dtype=physical.dtype)
            for side, limit in zip(zip(*self.spans, strict=True), limits, strict=True)
        )
        # The last span that starts at or below a value is the only one that can hold it.
        position = lows.search_sorted(physical, side="right").cast(pl.Int64) - 1
        return ((position >= 0) & (highs.gather(position.clip(lower_bound=0)) >= physical)).to_numpy()


Box = Mapping[str, ValueSet]  # the rows whose columns all lie in their sets


@dataclass(frozen=True)
class Region:
    """A union of boxes. If it is not `exact`, it contains all rows that were asked for, and some others."""

    boxes: tuple[Box, ...]
    exact: bool = True

    def __and__(self, other: Region) -> Region:
        boxes = [meet(one, two) for one in self.boxes for two in other.boxes]
        return Region(tuple(box for box in boxes if all(box.values())), self.exact and other.exact)

    def hull(self) -> Region:
        """Return one box that contains the region."""
        names = [name for name in self.boxes[0] if all(name in box for box in self.boxes)] if self.boxes else []
        hull = {name: ValueSet.union([box[name] for box in self.boxes]) for name in names}
        return Region((hull,) if self.boxes else (), self.exact and len(self.boxes) <= 1)


EVERYTHING = Region(({},))
NOTHING = Region(())


def meet(one: Box, two: Box) -> Box:
    """Return the intersection of two boxes."""
    return {**one, **{name: one[name] & wanted if name in one else wanted for name, wanted in two.items()}}


def is_choices(known: Any) -> bool:
    """Return whether the value is a list of choices: any iterable except strings and bytes."""
    return not isinstance(known, str | bytes) and isinstance(known, Iterable)


def read_alternatives(given: Any, where: str = "given") -> list[Mapping[str, Any]]:
    """Return a condition as a list of alternatives, of which there is at least one."""
    if isinstance(given, Mapping):
        return [given]
    if (
        not isinstance(given, Sequence)
        or isinstance(given, str)
        or not all(isinstance(entry, Mapping) for entry in given)
    ):
        or_frame = "" if where == "event" else ", or a frame with one condition per row"
        raise OptionError(
            f"{where} is a {type(given).__name__}. Give a dict of column to value, interval or list of choices, such "
            f"as {{'age': (30, 40)}}, a list of such dicts, a Polars expression such as pl.col('age') > 30{or_frame}."
        )
    if not given:
        raise OptionError(f"{where}: an empty list. Give at least one alternative.")
    return list(given)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return disjoint spans with the same union, in ascending order.

    >>> merged([Span(5, 7), Span(1, 2), Span(2, 3)])
    (Span(low=1, high=3), Span(low=5, high=7))
    """
    disjoint_spans: list[Span] = []
    spans = list(spans)
    if EVERYWHERE in spans:  # of texts, too, which have no order with its ends
        return (EVERYWHERE,)
    for span in sorted(spans):
        if disjoint_spans and span.low <= disjoint_spans[-1].high:
            disjoint_spans[-1] = Span(disjoint_spans[-1].low, max(disjoint_spans[-1].high, span.high))
        else:
            disjoint_spans.append(span)
    return tuple(disjoint_spans)


def physical_values(series: pl.Series) -> pl.Series:
    """Return the physical values of a series: whole numbers, 64-bit floats, strings or booleans."""
    series = nameless(series)
    if isinstance(series.dtype, pl.Categorical | pl.Enum):
        return series.cast(pl.String)
    return series.cast(pl.Float64) if series.dtype in FLOATS else series.to_physical()


def column_values(physical: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """Return values of a column by their physical values; None becomes null."""
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.Series(physical, dtype=pl.String).cast(dtype, strict=False)
    if isinstance(dtype, pl.Decimal):
        values = [None if value is None else Decimal(value).scaleb(-dtype.scale) for value in physical]
        return pl.Series(values, dtype=dtype)
    if dtype.is_temporal():
        return pl.Series(physical, dtype=pl.Int32 if dtype == pl.Date else pl.Int64).cast(dtype)
    return pl.Series(physical, dtype=dtype)


def convert_ends(
    ends: Sequence[Any],
    dtype: pl.DataType,
    convert: Callable[[pl.Series], Iterable[Converted]],
    at_infinity: Callable[[float], Converted],
) -> list[Converted]:
    """Convert the ends of spans: finite ones, all at once, as values of a column, and infinite ones on their own.

    >>> convert_ends([-math.inf, 3], pl.Int64(), lambda values: values * 2, lambda end: end)
    [-inf, 6]
    """
    is_infinite = [abs(end) == math.inf for end in ends]
    finite_ends = [end for end, lost in zip(ends, is_infinite, strict=True) if not lost]
    converted = iter(convert(column_values(finite_ends, dtype)))
    return [at_infinity(end) if lost else next(converted) for end, lost in zip(ends, is_infinite, strict=True)]


def read_number(value: Any, dtype: pl.DataType, where: str) -> Fraction | float:
    """Return the physical value of a number, date, time or duration; a fraction if it is finer than the dtype."""
    value = value.item() if isinstance(value, np.generic) else value
    if dtype.is_temporal():
        return _temporal(value, dtype, where)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise _wrong_type(value, dtype, where, "a number")
    if dtype in FLOATS or (isinstance(value, float | Decimal) and not math.isfinite(value)):
        number = _float(value)
        if math.isnan(number):
            raise OptionError(f"{where}: NaN is no number. Give a number, or None for a missing value or an open end.")
        return number
    if isinstance(dtype, pl.Decimal):
        # 9.99 means the decimal number, not the nearest float.
        return Fraction(str(value)) * Fraction(10**dtype.scale)
    return Fraction(value)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_infinite(number: Fraction | float) -> bool:
    return isinstance(number, float) and math.isinf(number)  # a large fraction has no float


def _temporal(value: Any, dtype: pl.DataType, where: str) -> Fraction:
    if isinstance(dtype, pl.Date):
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return Fraction((value - dt.date(1970, 1, 1)).days)
        raise _wrong_type(value, dtype, where, "a datetime.date")
    if isinstance(dtype, pl.Time):
        if isinstance(value, dt.time):
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return Fraction(seconds * 1_000_000_000 + value.microsecond * 1_000)
        raise _wrong_type(value, dtype, where, "a datetime.time")
    if isinstance(dtype, pl.Duration):
        if isinstance(value, dt.timedelta):
            return _in_unit(value, dtype.time_unit)
        raise _wrong_type(value, dtype, where, "a datetime.timedelta")
    assert isinstance(dtype, pl.Datetime)
    if not isinstance(value, dt.datetime):
        raise _wrong_type(value, dtype, where, "a datetime.datetime")
    if (value.tzinfo is None) != (dtype.time_zone is None):
        expected_kind = "one with a time zone" if dtype.time_zone else "one without a time zone"
        raise _wrong_type(value, dtype, where, expected_kind)
    time_zone = None if value.tzinfo is None else dt.UTC
    return _in_unit(value - dt.datetime(1970, 1, 1, tzinfo=time_zone), dtype.time_unit)


def _in_unit(value: dt.timedelta, unit: str | None) -> Fraction:
    total_microseconds = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    return Fraction(total_microseconds * 1_000, NANOSECONDS[unit or "us"])


def _wrong_type(value: Any, dtype: pl.DataType, where: str, right: str) -> OptionError:
    return OptionError(f"{where} is {dtype}, and {value!r} is a {type(value).__name__}. Give {right}.")


def _has_levels_only(dtype: pl.DataType) -> bool:
    return dtype == pl.Boolean or isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def _single(value: Any, dtype: pl.DataType, where: str) -> tuple[Span, ...]:
    """Return the span of a single value: none if no value of the dtype equals it."""
    if _has_levels_only(dtype):
        is_fitting = isinstance(value, bool | np.bool_) if dtype == pl.Boolean else isinstance(value, str)
        if not is_fitting:
            raise _wrong_type(value, dtype, where, "True or False" if dtype == pl.Boolean else "a string")
        return (Span(bool(value), bool(value)),) if dtype == pl.Boolean else (Span(value, value),)
    number = read_number(value, dtype, where)
    if _is_infinite(number):
        return ()
    if dtype in FLOATS:
        rounded_number = float(pl.Series([number]).cast(dtype).cast(pl.Float64)[0])
        return (Span(rounded_number, rounded_number),) if math.isfinite(rounded_number) else ()
    return _whole(number, number, dtype)


def _interval(known: Interval, dtype: pl.DataType, where: str) -> tuple[Span, ...]:
    if _has_levels_only(dtype):
        raise OptionError(f"{where} has levels ({dtype}), not numbers. Give a level, or a list of levels.")
    low = -math.inf if known.low is None else read_number(known.low, dtype, where)
    high = math.inf if known.high is None else read_number(known.high, dtype, where)
    low_closed = known.low is None or known.closed in ("both", "left")
    high_closed = known.high is None or known.closed in ("both", "right")
    if low > high or (low == high and not (low_closed and high_closed)):
        raise OptionError(f"{where}: the interval from {known.low!r} to {known.high!r} is empty. Give low <= high.")
    if dtype in FLOATS:
        first_value = float(low) if low_closed else math.nextafter(low, math.inf)
        last_value = float(high) if high_closed else math.nextafter(high, -math.inf)
        return (Span(first_value, last_value),) if first_value <= last_value else ()
    if not _is_infinite(low) and not low_closed:
        low = math.floor(low) + 1
    if not _is_infinite(high) and not high_closed:
        high = math.ceil(high) - 1
    return _whole(low, high, dtype)


def _whole(low: Fraction | float, high: Fraction | float, dtype: pl.DataType) -> tuple[Span, ...]:
    """Return the span of the whole numbers from `low` to `high` that the dtype has."""
    least, most = _whole_limits(dtype)
    first = low if _is_infinite(low) else max(math.ceil(low), least)
    last = high if _is_infinite(high) else min(math.floor(high), most)
    return (Span(first, last),) if first <= last and first != math.inf and last != -math.inf else ()


def _whole_limits(dtype: pl.DataType) -> tuple[int, int]:
    """Return the smallest and the largest physical value of a dtype of whole numbers."""
    if dtype.is_integer():
        bits = int(str(dtype).removeprefix("U").removeprefix("Int"))
        return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed_integer() else (0, 2**bits - 1)
    bits = MOST_BITS if isinstance(dtype, pl.Decimal) else 31 if dtype == pl.Date else 63
    return -(2**bits), 2**bits - 1
