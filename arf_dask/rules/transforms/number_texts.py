"""Numbers written as text, such as $1,250.00 or 159 GB: they are modelled as numbers, and written as before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from arf_dask.data.number_texts import NumberForm, in_number_form, number_form, parse_form, read_numbers, write_numbers
from arf_dask.data.value_sets import EVERYWHERE, Box, Region, Span, ValueSet, column_values, merged, physical_values
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import Link, require_details

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

LEAST_TEXTS = 20  # minimum number of distinct texts in a column that is modelled as numbers


@dataclass(frozen=True)
class Numbered(Link):
    """A text column of numbers in one format. The range of its target is that of the numbers."""

    kind = "numbers"
    detail_types = {  # noqa: RUF012
        **dict.fromkeys(("prefix", "suffix", "group", "decimal"), str),
        "decimals": int,
        "sign": str,
    }

    target: Target
    form: NumberForm

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: self.form.dtype}

    @property
    def modelled_target(self) -> Target:
        return replace(self.target, dtype=self.form.dtype, decimals=self.form.decimals)

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: self.read(frame.get_column(self.target.name)).alias(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        texts = write_numbers(outputs[self.target.name], self.form)
        return texts.cast(self.target.dtype, strict=False).alias(self.target.name)

    def read(self, series: pl.Series) -> pl.Series:
        """Parse texts as numbers; other texts become null."""
        return read_numbers(series, self.form)

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        numbers, modelled = self.read(frame.get_column(self.target.name)), self.modelled_target
        return ~modelled.in_range(modelled.units(numbers)) | modelled.forbidden_null(numbers)

    def off_grid(self, series: pl.Series) -> pl.Series:
        """Flag texts that are not numbers of this format; nulls are not flagged."""
        return ~in_number_form(series, self.form) & series.alias("").is_not_null()

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        numbers = self.numbers(wanted)
        return Region(({self.target.name: numbers},) if numbers else ())

    def numbers(self, wanted: ValueSet) -> ValueSet:
        """Return the numbers of the observed range whose texts belong to a set."""
        observed = self.modelled_target.observed()
        if EVERYWHERE in wanted.spans:
            return replace(observed, null=wanted.null, nan=False)
        texts = column_values(wanted.points, pl.String())
        points = physical_values(self.read(texts.filter(~self.off_grid(texts)))).to_list()
        return observed & ValueSet(observed.dtype, null=wanted.null, spans=merged(Span(one, one) for one in points))

    def measured(self, series: pl.Series) -> pl.Series:
        return self.read(series)

    def text(self) -> str:
        """Describe the format."""
        return f"{self.target.name} is a number written as {self.form.example}"

    def details(self) -> dict[str, Any]:
        return asdict(self.form)

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        form = parse_form(details)
        require_details(target.is_text and form is not None, where, "numbers in an unknown form")
        assert form is not None
        return cls(target, form)


def find_number_form(series: pl.Series, target: Target) -> Numbered | None:
    """Return the transform of a text column, if all known texts of a sample are numbers of one format."""
    known_texts = series.alias("").drop_nulls()
    form = number_form(known_texts) if known_texts.n_unique() >= LEAST_TEXTS else None
    return None if form is None else Numbered(target, form)
