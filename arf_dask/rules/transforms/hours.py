"""Model a timestamp without its hour, if another column contains the hour.

A timestamp is one number: trees can cut it into seasons and weeks, but not into mornings and evenings of all days. If
the table also contains the hour, in any time zone, the hour is better modelled by that column, where it can depend on
all others. The timestamp keeps its day, its minutes and its seconds, and gets its hour back when rows are rebuilt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from arf_dask.data.dates import is_zone
from arf_dask.data.value_sets import (
    EVERYTHING,
    EVERYWHERE,
    Box,
    Region,
    Span,
    ValueSet,
    convert_ends,
    merged,
    physical_values,
)
from arf_dask.rules.evaluation import kind_of
from arf_dask.rules.expressions import Call, Constant, Name, Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Resolved, Transform, require_details
from arf_dask.rules.transforms.formula import filled_nulls
from arf_dask.rules.transforms.times import Clock, between

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

HOUR = 3_600_000_000  # microseconds
DAY = 24 * HOUR


@dataclass(frozen=True)
class Hourless(Transform):
    """A timestamp that is modelled without its hour, which another column contains.

    The modelled number counts microseconds on a clock whose days have a single hour, so that every number has a day and
    a time within the hour.
    """

    kind = "hours"
    detail_types = {"zone": str, "has_gaps": bool}  # noqa: RUF012

    target: Target
    hour: str  # the column that contains the hour
    zone: str = ""  # time zone of the hour; empty for the clock of the column
    has_gaps: bool = False  # whether days have 24 hours, of which the first one is used: in model files up to version 5

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.hour,)

    @property
    def stored_expression(self) -> Node:
        return Name(self.hour)

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: self._dtype}

    @property
    def _dtype(self) -> pl.DataType:
        return pl.Datetime("us") if self.has_gaps else pl.Int64()

    @property
    def _day(self) -> int:
        """The length of a day in the modelled column."""
        return DAY if self.has_gaps else HOUR

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: self.without_hour(frame.get_column(self.target.name)).alias(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        hours = frame.get_column(self.hour).alias("").cast(pl.Int64, strict=False)
        modelled = outputs[self.target.name].alias("").cast(pl.Int64)
        local_time = (modelled // self._day * DAY + modelled % self._day + hours * HOUR).cast(pl.Datetime("us"))
        return self._clock.values(self._clock.first_instants(local_time)).alias(self.target.name)

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        """Return boxes of the time without its hour, and the hour: of the first day, the last day and those between."""
        reachable = wanted & self.target.observed(n_widths=2)
        (lows, low_exact), (highs, high_exact) = (self._shown_ends(reachable, side) for side in (0, 1))
        spans_by_hours: dict[Span, list[Span]] = {}
        for low, high in zip(lows, highs, strict=True):
            for days, hours, rest in between(low, high):
                last_rest = min(rest.high, HOUR - 1)
                spans_by_hours.setdefault(hours, []).append(
                    Span(days.low * self._day + max(rest.low, 0), days.high * self._day + last_rest)
                )
        region = Region((), exact=low_exact and high_exact)
        for hours, spans in spans_by_hours.items():
            times: Box = {self.target.name: ValueSet(self._dtype, spans=merged(spans))}
            part = Region((times,)) & self._hour_region(hours, relations)
            region = Region((*region.boxes, *part.boxes), region.exact and part.exact)
        return region

    def _shown_ends(self, wanted: ValueSet, side: int) -> tuple[list[list[Any]], bool]:
        """Return day, hour and rest of the hour of the ends of spans, and whether the clock shows no end twice.

        The parts of an end that is shown twice are those of the other side of its day.
        """

        def parts(values: pl.Series) -> Iterator[tuple[list[Any], bool]]:
            shown = self.local_time(values)
            returned = self._clock.values(self._clock.first_instants(shown))
            is_exact = returned.to_physical().eq_missing(values.to_physical())
            for time, once in zip(physical_values(shown).to_list(), is_exact.to_list(), strict=True):
                day, hour, rest = time // DAY, time % DAY // HOUR, time % HOUR
                yield [day, *((hour, rest) if once else (0, 0) if side == 0 else (23, HOUR - 1))], once

        ends = [span[side] for span in wanted.spans]
        converted = convert_ends(ends, self.target.dtype, parts, lambda end: ([end] * 3, True))
        return [numbers for numbers, _ in converted], all(once for _, once in converted)

    def _hour_region(self, hours: Span, relations: Relations) -> Region:
        """Return the region in which the hour lies in a span."""
        if hours == EVERYWHERE:
            return EVERYTHING
        span = (max(hours.low, 0), min(hours.high, 23))
        return relations.translate({self.hour: relations.target_of(self.hour).set_of_numbers([span])}, observed=False)

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows outside the observed range, and local times that clocks skip."""
        values = frame.get_column(self.target.name).alias("")
        return values.is_null() | ~self.target.in_range(self.target.units(values))

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        resolved = super().resolve(known, deduced, null_is_value=null_is_value)
        values = known.get_column(self.target.name)
        if self.hour not in known.columns:
            return resolved._replace(unresolved=values.is_not_null().to_numpy())
        hours = known.get_column(self.hour).alias("")
        is_wrong = resolved.contradictory | (self.hours(values) != hours).fill_null(False).to_numpy()
        return Resolved(resolved.columns, is_wrong, (values.is_not_null() & hours.is_null()).to_numpy())

    def deduce(self, frame: pl.DataFrame, relations: Relations) -> pl.DataFrame:
        hours = self.hours(frame.get_column(self.target.name))
        return frame.with_columns(filled_nulls(frame.get_column(self.hour), hours))

    def details(self) -> dict[str, Any]:
        return {"zone": self.zone, "has_gaps": self.has_gaps}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        is_valid = node is not None and isinstance(node, Name) and kind_of(node, dtypes, where) in ("integer", "number")
        is_valid = is_valid and isinstance(target.dtype, pl.Datetime)
        is_valid = is_valid and (not details["zone"] or is_zone(details["zone"]))
        require_details(is_valid, where, "no timestamp with an hour")
        assert isinstance(node, Name)
        return cls(target, node.column, details["zone"], details["has_gaps"])

    def hours(self, series: pl.Series) -> pl.Series:
        """Return the hours of timestamps, in the time zone of the hour column."""
        return self.local_time(series).dt.hour().cast(pl.Int64)

    def without_hour(self, series: pl.Series) -> pl.Series:
        """Return the days of timestamps and their times within the hour, as the modelled column counts them."""
        local_time = self.local_time(series).cast(pl.Int64)
        return (local_time // DAY * self._day + local_time % HOUR).cast(self._dtype)

    def local_time(self, series: pl.Series) -> pl.Series:
        """Return timestamps in the time zone of the hour column, as datetimes without a time zone."""
        return self._clock.shown(self._clock.instants(series)).cast(pl.Datetime("us"))

    @property
    def _clock(self) -> Clock:
        return Clock(self.target.dtype, self.zone)


def hour_source(formula: Node) -> tuple[str, str] | None:
    """Return the timestamp column and the time zone of a formula for an hour; None for other formulas.

    >>> from arf_dask.rules.grammar import parse_expression
    >>> hour_source(parse_expression('hour(in_zone(datetime(at), "Europe/Berlin"))'))
    ('at', 'Europe/Berlin')
    """
    match formula:
        case Call("hour", (Call("in_zone", (inner, Constant(str() as zone))),)):
            pass
        case Call("hour", (inner,)):
            zone = ""
        case _:
            return None
    match inner:
        case Name(column) | Call("datetime", (Name(column),)):
            return column, zone
    return None
