"""Numbers that hang on a level of other columns: the latitude of a country, the journey time of a route.

The column is modelled by its offset from the centre of its level, in units of the spread of that level. Levels with
few rows have the centre of their rows on a coarse grid, and a common spread: no single row can be read from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from arf_dask.data.stored_fields import parse_fields
from arf_dask.data.value_sets import Box, Region, Span, ValueSet, merged
from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Name, Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import MODEL_JSON, Resolved, Transform, is_finite, needed_node, require_details
from arf_dask.rules.transforms.decimals import Decimals
from arf_dask.rules.transforms.gap import Distance
from arf_dask.rules.transforms.granular import Granular
from arf_dask.typing import Floats

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

LEAST_ROWS = 10  # minimum number of rows of a level with a centre and a spread of its own
SMALLER = 0.4  # maximum spread inside levels, relative to that of all rows
LEAST_SPREAD = 0.05  # minimum spread of a level, as a share of the typical one
RANGE_STEP = 0.5  # step to which the range of a level is widened, in units of its spread
MODELLED_DECIMALS = 9  # decimals of offsets
ROUNDINGS: dict[str, type[Transform]] = {one.kind: one for one in (Decimals, Granular)}
ROUNDING = {"kind": str, "details": dict}


@dataclass(frozen=True)
class Levels:
    """Levels with the place of their values; other levels and null have those of `everywhere`."""

    names: tuple[str, ...]
    centres: tuple[float, ...]
    spreads: tuple[float, ...]
    lows: tuple[float, ...]  # lowest offset, in units of the spread
    highs: tuple[float, ...]
    everywhere: tuple[float, float]  # centre and spread

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row per level: level, centre, spread, low, high."""
        columns = (self.names, self.centres, self.spreads, self.lows, self.highs)
        dtypes = {"level": pl.String, **dict.fromkeys(("centre", "spread", "low", "high"), pl.Float64)}
        series = zip(dtypes.items(), columns, strict=True)
        return pl.DataFrame([pl.Series(name, values, dtype=dtype) for (name, dtype), values in series])

    def places(self, level: pl.Series) -> pl.DataFrame:
        """Return centre, spread, low and high of the level in each row."""
        rows = pl.DataFrame({"level": level.cast(pl.String)})
        joined = rows.join(self.frame, on="level", how="left", maintain_order="left")
        centre, spread = self.everywhere
        return joined.select(
            pl.col("centre").fill_null(centre),
            pl.col("spread").fill_null(spread),
            pl.col("low").fill_null(-np.inf),
            pl.col("high").fill_null(np.inf),
        )


def summarise_levels(target: Target, node: Node, frame: pl.DataFrame) -> pl.DataFrame:
    """One row per level: level, n, total, squares (of the distance from the lowest value), low, high."""
    units = target.units(frame.get_column(target.name)).cast(pl.Float64)
    rows = pl.DataFrame({"level": evaluate(node, frame).cast(pl.String), "value": units}).drop_nulls()
    distance = pl.col("value") - float(target.low or 0)
    return rows.group_by("level").agg(
        n=pl.len().cast(pl.Int64),
        total=distance.sum(),
        squares=(distance**2).sum(),
        low=pl.col("value").min(),
        high=pl.col("value").max(),
    )


def merge_levels(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Merge the summaries of two ranges of rows."""
    sums = [pl.col(name).sum() for name in ("n", "total", "squares")]
    both = pl.concat([one, other]).group_by("level", maintain_order=True)
    return both.agg(*sums, pl.col("low").min(), pl.col("high").max())


def finish_levels(target: Target, summary: pl.DataFrame) -> Levels | None:
    """Return the levels of a summary of all rows; None if no level has enough rows, or all are points."""
    summary = summary.sort("level")
    n, total, squares, low, high = (
        summary.get_column(name).to_numpy().astype(np.float64) for name in ("n", "total", "squares", "low", "high")
    )
    means, is_common = total / n, n >= LEAST_ROWS
    deviations = np.sqrt(np.maximum(squares / n - means**2, 0.0))
    if not is_common.any():
        return None
    typical = float(np.median(deviations[is_common]))
    unit = float(target.unit)
    if typical <= 2 * unit:
        return None
    start = float(target.low or 0)
    spreads = np.where(is_common, np.maximum(deviations, LEAST_SPREAD * typical), typical)
    centres = start + np.where(is_common, means, np.round(means / typical) * typical)
    lows = np.floor((low - centres) / spreads / RANGE_STEP) * RANGE_STEP
    highs = np.ceil((high - centres) / spreads / RANGE_STEP) * RANGE_STEP
    mean = total.sum() / n.sum()
    everywhere = start + mean, float(np.sqrt(max(squares.sum() / n.sum() - mean**2, 0.0)))
    names = tuple(summary.get_column("level").to_list())
    columns = [tuple(values.tolist()) for values in (centres, spreads, lows, highs)]
    return Levels(names, columns[0], columns[1], columns[2], columns[3], (float(everywhere[0]), everywhere[1]))


@dataclass(frozen=True)
class Level(Distance):
    """A column that is modelled by its offset from the centre of a level, in units of the spread of the level."""

    kind = "level"
    detail_types = {  # noqa: RUF012
        **dict.fromkeys(("names", "centres", "spreads", "lows", "highs", "everywhere"), list),
        "rounding": dict | None,
    }
    keeps_values = False  # offsets are rounded after drawing

    target: Target
    level: Node
    levels: Levels
    rounding: Transform | None = None  # how drawn values are rounded, if their decimals vary

    @property
    def expression(self) -> Node:
        return self.level

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: pl.Float64()}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        units = self.target.units(frame.get_column(self.target.name))
        return {self.target.name: self.gap(units, frame).alias(self.target.name)}

    def gap(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        """Return the offsets of these units from the centres of their levels."""
        places = self._places(frame)
        offsets = (units.cast(pl.Float64) - places["centre"]) / places["spread"]
        return offsets.round(MODELLED_DECIMALS).alias("")

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        places = self._places(frame)
        units = outputs[self.target.name].alias("") * places["spread"] + places["centre"]
        values = self.target.values(self.target.rounded(units.alias("")))
        return values if self.rounding is None else self.rounding.inverse(frame, {self.target.name: values})

    def _places(self, frame: pl.DataFrame) -> pl.DataFrame:
        return self.levels.places(evaluate(self.level, frame))

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows outside the range of the column or of their level, and unexpected nulls."""
        places = self._places(frame)
        units = self.target.units(frame.get_column(self.target.name))
        offsets = (units.cast(pl.Float64) - places["centre"]) / places["spread"]
        slack = 1e-6 + 0.5 * float(self.target.unit) / places["spread"]
        is_inside = (offsets >= places["low"] - slack) & (offsets <= places["high"] + slack)
        return super().faults(frame) | ~is_inside.fill_null(True).alias("")

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        """Return the offsets of the wanted values from the centre of a known level; of any level otherwise."""
        name = self.target.name
        if self.rounding is not None:
            (box,) = self.rounding.translate(wanted, known, relations).boxes
            wanted = box[name]
        units = self.target.in_units(wanted)
        level = known.get(self.level.column) if isinstance(self.level, Name) else None
        if not units.spans or level is None or not level.is_single or not level.points:
            anywhere = (Span(-np.inf, np.inf),) if units.spans else ()
            return Region(({name: ValueSet(pl.Float64(), wanted.null, spans=anywhere)},), exact=not units.spans)
        assert isinstance(self.level, Name)
        (centre, spread, _, _), *_ = self._places(pl.DataFrame({self.level.column: level.single()})).rows()
        unit = 0.5 * float(self.target.unit)
        ends = [(span.low - unit, span.high + unit) for span in units.spans]
        spans = merged(Span((low - centre) / spread - 1e-9, (high - centre) / spread + 1e-9) for low, high in ends)
        return Region(({name: ValueSet(pl.Float64(), wanted.null, spans=spans)},), exact=False)

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        resolved = super().resolve(known, deduced, null_is_value=null_is_value)
        if not resolved.columns:
            return resolved
        (offsets,) = resolved.columns.values()
        return resolved._replace(log_slopes=np.where(offsets.is_null().to_numpy(), 0.0, self.log_slopes(deduced)))

    def log_slopes(self, frame: pl.DataFrame) -> Floats:
        return np.asarray(-np.log(self._places(frame)["spread"].to_numpy()))

    @property
    def sets_itself(self) -> bool:
        return True

    @property
    def is_optional(self) -> bool:
        return True

    def details(self) -> dict[str, Any]:
        levels = self.levels
        columns = {name: list(getattr(levels, name)) for name in ("names", "centres", "spreads", "lows", "highs")}
        rounding = None if self.rounding is None else {"kind": self.rounding.kind, "details": self.rounding.details()}
        return {**columns, "everywhere": list(levels.everywhere), "rounding": rounding}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        names = details["names"]
        numbers = [details[name] for name in ("centres", "spreads", "lows", "highs")]
        is_valid = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
        is_valid = is_valid and all(len(values) == len(names) for values in numbers)
        is_valid = is_valid and len(details["everywhere"]) == 2
        values = [value for column in (*numbers, details["everywhere"]) for value in column]
        is_valid = is_valid and all(type(value) is float and is_finite(value) for value in values)
        is_valid = is_valid and all(spread > 0 for spread in (*details["spreads"], details["everywhere"][1]))
        is_valid = is_valid and target.dtype.is_numeric() and target.low is not None
        require_details(is_valid, where, "levels out of bounds")
        columns = [tuple(column) for column in numbers]
        centre, spread = details["everywhere"]
        levels = Levels(tuple(names), columns[0], columns[1], columns[2], columns[3], (centre, spread))
        rounding = _parse_rounding(target, details["rounding"], dtypes, where)
        return cls(target, needed_node(node, where), levels, rounding)


def _parse_rounding(
    target: Target, details: dict[str, Any] | None, dtypes: Mapping[str, pl.DataType], where: str
) -> Transform | None:
    if details is None:
        return None
    fields = parse_fields(details, ROUNDING, MODEL_JSON, where)
    require_details(fields["kind"] in ROUNDINGS, where, "a rounding of an unknown kind")
    kind = ROUNDINGS[fields["kind"]]
    return kind.parse(
        target, None, parse_fields(fields["details"], kind.detail_types, MODEL_JSON, where), dtypes, where
    )


def left_out_spread(summary: pl.DataFrame, n_known: int) -> float:
    """Return the standard distance of a value from the mean of the other values of its level, relative to all values.

    Values that are alone in their level, or have none, are at their distance from the mean of all values.

    Args:
        summary: one row per level, see `summarise_levels`.
        n_known: rows with a value.
    """
    n, total, squares = (summary.get_column(name).to_numpy().astype(np.float64) for name in ("n", "total", "squares"))
    variance = squares.sum() / n.sum() - (total.sum() / n.sum()) ** 2
    if not variance > 0:
        return 1.0
    is_shared = n >= 2
    inside = np.maximum(squares - total**2 / n, 0.0)[is_shared] * (n / np.maximum(n - 1, 1))[is_shared] ** 2
    outside = max(n_known - n[is_shared].sum(), 0.0) * variance
    return float(np.sqrt((inside.sum() + outside) / max(n_known, 1) / variance))


def held_out_spread(values: Floats, codes: Floats) -> float:
    """Return how far values are from the mean of their level in the other half of the rows, relative to their spread.

    Both are mean absolute distances; rows of levels that the other half lacks are at their distance from the median.
    """
    half = np.arange(len(values)) % 2
    centre = float(np.median(values))
    centred = values - centre
    _, level = np.unique(codes, return_inverse=True)
    rest = np.zeros(len(values))
    for side in (0, 1):
        n = np.bincount(level[half != side], minlength=level.max() + 1)
        sums = np.bincount(level[half != side], weights=centred[half != side], minlength=level.max() + 1)
        means = np.divide(sums, n, out=np.zeros(len(n)), where=n > 0)
        rest[half == side] = centred[half == side] - means[level[half == side]]
    spread = float(np.abs(centred).mean())
    return float(np.abs(rest).mean()) / spread if spread else 1.0
