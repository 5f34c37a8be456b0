"""Floats with varying numbers of decimals, in models of format version 5 and older; now `granular` models them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Box, Region, Span, ValueSet, merged
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import MOST_DECIMALS, Transform, require_details
from arf_dask.rules.transforms.grid import MOST_DIGITS

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

FULL = 15  # number of decimals assigned to floats with more than MOST_DIGITS


@dataclass(frozen=True)
class Decimals(Transform):
    """A float column with varying numbers of decimals: synthetic values are rounded in the same proportions."""

    kind = "decimals"
    detail_types = {"shares": list}  # noqa: RUF012
    one_to_one = True
    keeps_values = False  # synthetic values are rounded after drawing

    target: Target
    shares: tuple[tuple[int, float], ...]  # (decimals, share of rows with that many); other rows are not rounded

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: self.target.dtype}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {self.target.name: frame.get_column(self.target.name)}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        modelled = outputs[self.target.name]
        values = modelled.cast(pl.Float64).to_numpy(writable=True)
        is_rounded = np.isfinite(values)
        max_decimals = (
            FULL - 1 if self.target.decimals is None else max((digits for digits, _ in self.shares), default=FULL)
        )
        is_rounded[is_rounded] = decimals_of_values(values[is_rounded]) > max_decimals  # spikes keep their decimals
        # The hash of the number determines its decimals, so that rebuilding is deterministic.
        uniform_hash = pl.Series(values[is_rounded]).hash(seed=17).to_numpy().astype(np.float64) / 2.0**64
        share_cuts = np.cumsum([share for _, share in self.shares])
        share_index = np.searchsorted(share_cuts, uniform_hash, side="right")
        rounded_values = values[is_rounded]
        for index, (digits, _) in enumerate(self.shares):
            candidate_values = np.round(rounded_values, digits)
            rounded_values = np.where(
                (share_index == index) & self._in_range(candidate_values), candidate_values, rounded_values
            )
        values[is_rounded] = rounded_values
        column_values = pl.Series(self.target.name, values).cast(self.target.dtype)
        return modelled.zip_with(modelled.is_null(), column_values).alias(self.target.name)

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        spans = wanted.spans
        if len(wanted.points) < len(spans):
            # A number inside an interval may have been rounded from one outside it. Single values stay: they are given.
            half_unit = 0.5 * 10.0 ** -min((digits for digits, _ in self.shares), default=FULL)
            spans = merged(Span(span.low - half_unit, span.high + half_unit) for span in spans)
        return Region(({self.target.name: ValueSet(wanted.dtype, wanted.null, wanted.nan, spans)},), exact=False)

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag no rows: rounded values are always valid."""
        return pl.Series(np.zeros(frame.height, dtype=bool))

    def _in_range(self, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        low, high = self.target.low, self.target.high
        return np.asarray(
            (values >= (-np.inf if low is None else low)) & (values <= (np.inf if high is None else high))
        )

    def text(self) -> str:
        """Describe the mixture of decimals."""
        share_texts = ", ".join(f"{digits} decimals in {100 * share:.0f} %" for digits, share in self.shares)
        return f"{self.target.name} has {share_texts} of rows"

    def is_confirmed(self, target: Target) -> bool:
        """Whether the column has more decimals over all rows than any component of the mixture in the sample."""
        return target.decimals is None or target.decimals > max(digits for digits, _ in self.shares)

    def details(self) -> dict[str, Any]:
        return {"shares": [[digits, share] for digits, share in self.shares]}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        shares = details["shares"]
        is_valid = target.is_float and all(
            isinstance(share, list) and len(share) == 2 and type(share[0]) is int and type(share[1]) is float
            for share in shares
        )
        is_valid = is_valid and all(0 <= share[0] <= MOST_DECIMALS and 0 <= share[1] <= 1 for share in shares)
        require_details(is_valid, where, "decimals out of bounds")
        return cls(target, tuple((share[0], share[1]) for share in shares))


def decimals_of_values(
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of decimals of each float; 15 for floats with more than nine.

    >>> decimals_of_values(np.array([2.0, 0.25, 1 / 3, 1e300])).tolist()
    [0, 2, 15, 0]
    """
    n_decimals = np.full(len(values), FULL)
    # Larger floats are integers, and rounding could overflow.
    small_values = np.where(np.abs(values) < 2.0**53, values, 0.0)
    for digits in range(MOST_DIGITS, -1, -1):
        n_decimals[np.round(small_values, digits) == small_values] = digits
    return n_decimals
