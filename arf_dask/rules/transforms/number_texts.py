"""Numbers written as text, such as $1,250.00 or 159 GB: they are modelled as numbers, and written as before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import polars as pl

from arf_dask.data.number_texts import NumberForm, in_number_form, number_form, parse_form, read_numbers, write_numbers
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import require_details
from arf_dask.rules.transforms.texts import Written

LEAST_TEXTS = 20  # minimum number of distinct texts in a column that is modelled as numbers


@dataclass(frozen=True)
class Numbered(Written):
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
    def modelled_target(self) -> Target:
        return replace(self.target, dtype=self.form.dtype, decimals=self.form.decimals)

    def read(self, series: pl.Series) -> pl.Series:
        """Parse texts as numbers; other texts become null."""
        return read_numbers(series, self.form)

    def write(self, series: pl.Series) -> pl.Series:
        """Format numbers."""
        return write_numbers(series, self.form)

    def is_in_form(self, series: pl.Series) -> pl.Series:
        return in_number_form(series, self.form)

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
