"""Dates and times that are written as text: they are modelled as such, and written in the same format."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from arf_dask.data.dates import form_dtype, in_form, read_dates, sorts_as_text, tokens, write_dates
from arf_dask.data.value_sets import EVERYWHERE, Box, Region, Span, ValueSet, column_values, merged, physical_values
from arf_dask.rules.expressions import Call, Constant, Name, Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Link, require_details

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

LEAST_TEXTS = 20  # minimum number of distinct texts in a column that is modelled as dates


class Written(Link):
    """A text column of values in one format. The range of its target is that of the values."""

    @abstractmethod
    def read(self, series: pl.Series) -> pl.Series:
        """Parse texts as values; other texts become null."""

    @abstractmethod
    def write(self, series: pl.Series) -> pl.Series:
        """Format values as texts."""

    @abstractmethod
    def is_in_form(self, series: pl.Series) -> pl.Series:
        """Flag texts of the format."""

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: self.modelled_target.dtype}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: self.read(frame.get_column(self.target.name)).alias(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        texts = self.write(outputs[self.target.name])
        return texts.cast(self.target.dtype, strict=False).alias(self.target.name)

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        values, modelled = self.read(frame.get_column(self.target.name)), self.modelled_target
        return ~modelled.in_range(modelled.units(values)) | modelled.forbidden_null(values)

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag texts that are not of this format; nulls are not flagged."""
        return ~self.is_in_form(series) & series.alias("").is_not_null()

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        values = self._values_of(wanted)
        return Region(({self.target.name: values},) if values else ())

    def _values_of(self, wanted: ValueSet) -> ValueSet:
        """Return the values of the observed range whose texts belong to a set."""
        observed = self.modelled_target.observed()
        if EVERYWHERE in wanted.spans:
            return replace(observed, null=wanted.null, nan=False)
        texts = column_values(wanted.points, pl.String())
        points = physical_values(self.read(texts.filter(~self.off_grid(texts)))).to_list()
        return observed & ValueSet(observed.dtype, null=wanted.null, spans=merged(Span(one, one) for one in points))

    def measured(self, series: pl.Series) -> pl.Series:
        return self.read(series)


@dataclass(frozen=True)
class Parsed(Written):
    """A text column of dates or times in one format. The range of its target is that of the parsed column."""

    kind = "dates"
    detail_types = {"form": str}  # noqa: RUF012

    target: Target
    form: str

    @property
    def modelled_target(self) -> Target:
        return replace(self.target, dtype=form_dtype(self.form))

    @property
    def sort_node(self) -> Node:
        name = Name(self.target.name)
        return name if sorts_as_text(self.form) else Call("date_from", (name, Constant(self.form)))

    def read(self, series: pl.Series) -> pl.Series:
        """Parse texts as dates or datetimes; other texts become null."""
        return read_dates(series, self.form)

    def write(self, series: pl.Series) -> pl.Series:
        """Format dates or datetimes."""
        return write_dates(series, self.form)

    def is_in_form(self, series: pl.Series) -> pl.Series:
        return in_form(series, self.form)

    def text(self) -> str:
        """Describe the format."""
        what = "date" if self.modelled_target.dtype == pl.Date else "time"
        return f"{self.target.name} is a {what} written as {self.form}"

    def details(self) -> dict[str, Any]:
        return {"form": self.form}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        require_details(target.is_text and tokens(details["form"]) is not None, where, "dates in an unknown form")
        return cls(target, details["form"])


def find_form(series: pl.Series, target: Target, form: str | None) -> Parsed | None:
    """Return the transform of a text column of dates in a format, if a sample has enough different ones."""
    is_varied = form is not None and series.alias("").drop_nulls().n_unique() >= LEAST_TEXTS
    return Parsed(target, form) if form is not None and is_varied else None
