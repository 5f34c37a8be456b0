"""Model a timestamp without its hour, if another column contains the hour.

A timestamp is one number: trees can cut it into seasons and weeks, but not into mornings and evenings of all days. If
the table also contains the hour, in any time zone, the hour is better modelled by that column, where it can depend on
all others. The timestamp keeps its day, its minutes and its seconds, and gets its hour back when rows are rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from arf_dask.data.dates import FORMS, clock_in_zone, has_clock, is_zone, read_dates, write_dates
from arf_dask.rules.evaluation import kind_of
from arf_dask.rules.expressions import Name, Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Resolved, Transform, require_details
from arf_dask.rules.transforms.formula import filled_nulls

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations


@dataclass(frozen=True)
class Hourless(Transform):
    """A timestamp that is modelled without its hour, which another column contains."""

    kind = "hours"
    detail_types = {"form": str, "zone": str}  # noqa: RUF012

    target: Target
    hour: str  # the column that contains the hour
    zone: str = ""  # time zone of the hour; empty for the time as written
    form: str = ""  # format of timestamps that are stored as text

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.hour,)

    @property
    def stored_expression(self) -> Node:
        return Name(self.hour)

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: pl.Datetime("us")}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: self.without_hour(frame.get_column(self.target.name)).alias(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        modelled = outputs[self.target.name]
        hours = frame.get_column(self.hour).alias("").cast(pl.Int64, strict=False)
        local_time = modelled.alias("") + _durations(hours)
        return self._values(local_time).alias(self.target.name)

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows outside the observed range, and local times that clocks skip."""
        values = frame.get_column(self.target.name).alias("")
        return values.is_null() | ~self.target.in_range(self.target.units(values))

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag texts that are not timestamps of the format; nulls are not flagged."""
        values = series.alias("")
        if not self.form:
            return values.is_null() & values.is_not_null()
        texts = values.cast(pl.String)
        return (write_dates(read_dates(texts, self.form), self.form) != texts).fill_null(True) & texts.is_not_null()

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
        return {"form": self.form, "zone": self.zone}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        is_valid = node is not None and isinstance(node, Name) and kind_of(node, dtypes, where) in ("integer", "number")
        is_valid = is_valid and (
            details["form"] in FORMS and has_clock(details["form"])
            if target.is_text
            else isinstance(target.dtype, pl.Datetime) and not details["form"]
        )
        is_valid = is_valid and (not details["zone"] or is_zone(details["zone"]))
        require_details(is_valid, where, "no timestamp with an hour")
        assert isinstance(node, Name)
        return cls(target, node.column, details["zone"], details["form"])

    def hours(self, series: pl.Series) -> pl.Series:
        """Return the hours of timestamps, in the time zone of the hour column."""
        return self.local_time(series).dt.hour().cast(pl.Int64)

    def without_hour(self, series: pl.Series) -> pl.Series:
        """Return the local times of timestamps with the hour set to zero."""
        local_time = self.local_time(series)
        return local_time - _durations(local_time.dt.hour().cast(pl.Int64))

    def local_time(self, series: pl.Series) -> pl.Series:
        """Return timestamps in the time zone of the hour column, as datetimes without a time zone."""
        timestamps = read_dates(series, self.form) if self.form else series.alias("")
        own_zone = getattr(timestamps.dtype, "time_zone", None)
        timestamps = timestamps.cast(pl.Datetime("us", own_zone))
        return clock_in_zone(timestamps, self.zone) if self.zone else timestamps.dt.replace_time_zone(None)

    def _values(self, local_time: pl.Series) -> pl.Series:
        """Convert local times to values of the column; null for times that clocks skip."""
        own_zone = getattr(self.target.dtype, "time_zone", None)
        zone = self.zone or own_zone
        if zone:
            local_time = local_time.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
            local_time = local_time.dt.convert_time_zone(own_zone or "UTC")
            local_time = local_time if own_zone else local_time.dt.replace_time_zone(None)
        return (write_dates(local_time, self.form) if self.form else local_time).cast(self.target.dtype, strict=False)


def _durations(hours: pl.Series) -> pl.Series:
    return (hours * 3_600_000_000).cast(pl.Duration("us"))
