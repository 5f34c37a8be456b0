"""Dates and times that are written as text: they are modelled as such, and written in the same format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import polars as pl

from arf_dask.data.dates import FORMS, has_clock, read_dates, write_dates
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Transform, require_details
from arf_dask.rules.transforms.grid import CALENDAR, WORDS, Indexed


@dataclass(frozen=True)
class Dated(Transform):
    """A text column of dates or times, modelled as such and formatted in the original format."""

    kind = "dates"
    detail_types = {"form": str, "grid": str}  # noqa: RUF012
    one_to_one = True

    target: Target
    form: str
    grid: str = ""  # the calendar grid of the dates; empty for none

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: pl.Int64() if self.grid else self._parsed_dtype}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: self.dates(frame.get_column(self.target.name)).alias(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        modelled = outputs[self.target.name]
        dates = self._indexed().value(modelled.alias("").cast(pl.Int64)) if self.grid else modelled
        return write_dates(dates, self.form).cast(self.target.dtype, strict=False).alias(self.target.name)

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag no rows: every date in the observed range is valid."""
        return pl.Series(np.zeros(frame.height, dtype=bool))

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag texts that are not dates of this format and grid; nulls are not flagged."""
        date_texts = series.alias("").cast(pl.String)
        parsed_dates = read_dates(date_texts, self.form)
        is_wrong = (write_dates(parsed_dates, self.form) != date_texts).fill_null(True) & date_texts.is_not_null()
        return is_wrong | self._indexed().off_grid(parsed_dates) if self.grid else is_wrong

    def dates(self, series: pl.Series) -> pl.Series:
        """Convert values of the column to the dates or grid indices that are modelled."""
        dates = read_dates(series, self.form)
        return self._indexed().index(dates) if self.grid else dates

    def text(self) -> str:
        """Describe the format and the grid of the dates."""
        on_grid = f" and {WORDS[self.grid]}" if self.grid else ""
        return f"{self.target.name} is a {'time' if has_clock(self.form) else 'date'} written as {self.form}{on_grid}"

    @property
    def _parsed_dtype(self) -> pl.DataType:
        return pl.Datetime("us") if has_clock(self.form) else pl.Date()

    def _indexed(self) -> Indexed:
        return Indexed(Target(self.target.name, self._parsed_dtype, None), self.grid)

    def details(self) -> dict[str, Any]:
        return {"form": self.form, "grid": self.grid}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        is_valid = target.is_text and details["form"] in FORMS and details["grid"] in ("", *CALENDAR)
        require_details(is_valid, where, "dates in an unknown form")
        return cls(target, details["form"], details["grid"])
