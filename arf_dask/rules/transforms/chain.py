"""Two transforms in a row: the column that the first one models is the column that the second one transforms.

A date that is written as text is parsed, and then modelled as any date is: by the index of its month, or by its week
and weekday.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from arf_dask.data.stored_fields import parse_fields
from arf_dask.data.value_sets import Box, Region, ValueSet
from arf_dask.rules.expressions import Node
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import MODEL_JSON, Link, Repair, Resolved, Transform, nulls_where, require_details
from arf_dask.rules.transforms.granular import Granular
from arf_dask.rules.transforms.grid import Indexed
from arf_dask.rules.transforms.hours import Hourless
from arf_dask.rules.transforms.number_texts import Numbered
from arf_dask.rules.transforms.texts import Parsed
from arf_dask.rules.transforms.times import Timed
from arf_dask.typing import Flags

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

FIRST: dict[str, type[Link]] = {one.kind: one for one in (Parsed, Numbered)}
SECOND: dict[str, type[Transform]] = {one.kind: one for one in (Indexed, Timed, Hourless, Granular)}
LINK = {"kind": str, "details": dict}


@dataclass(frozen=True)
class Chain(Transform):
    """A column that is modelled by the second transform of what the first one makes of it."""

    kind = "chain"
    detail_types = {"first": dict, "second": dict}  # noqa: RUF012

    first: Link
    second: Transform  # its target is what the first one models, whatever target it was made with
    target: Target = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "second", self.second.with_target(self.first.modelled_target))
        object.__setattr__(self, "target", self.first.target)

    @property
    def one_to_one(self) -> bool:
        return self.second.one_to_one

    @property
    def keeps_values(self) -> bool:
        return self.second.keeps_values

    @property
    def is_distance(self) -> bool:
        return self.second.is_distance

    @property
    def expression(self) -> Node | None:
        return self.second.expression

    @property
    def stored_expression(self) -> Node | None:
        return self.second.stored_expression

    @property
    def sort_node(self) -> Node:
        return self.first.sort_node

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.second.inputs

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return self.second.outputs

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return self.second.forward(self._between(frame))

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        return self.first.inverse(frame, {self.target.name: self.second.inverse(frame, outputs)})

    def rebuild(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        return self.first.inverse(frame, {self.target.name: self.second.rebuild(frame, outputs)})

    def unchanged(self, outputs: Mapping[str, pl.Series]) -> pl.Series:
        values = self.second.unchanged(outputs)
        return self.first.inverse(pl.DataFrame(height=len(values)), {self.target.name: values})

    def unmarked(self, series: pl.Series) -> pl.Series:
        between = self._between(pl.DataFrame({self.target.name: series})).get_column(self.target.name)
        unmarked = self.second.unmarked(between)
        return series if unmarked is between else nulls_where(unmarked.is_null() & between.is_not_null(), series)

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        region = self.first.translate(wanted, known, relations)
        parts = [self.second.translate(box[self.target.name], known, relations) for box in region.boxes]
        boxes = tuple(box for part in parts for box in part.boxes)
        return Region(boxes, region.exact and all(part.exact for part in parts))

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        return self.second.faults(self._between(frame))

    def off_grid(self, series: pl.Series) -> pl.Series:
        values = self.first.forward(pl.DataFrame({self.target.name: series}))[self.target.name]
        return self.first.off_grid(series) | self.second.off_grid(values)

    def text(self) -> str:
        """Describe both transforms."""
        rest = self.second.text().removeprefix(self.target.name)
        return f"{self.first.text()} and{rest}" if rest else self.first.text()

    def measured(self, series: pl.Series) -> pl.Series:
        return self.first.measured(series)

    def is_confirmed(self, target: Target) -> bool:
        return self.first.is_confirmed(target) and self.second.is_confirmed(
            self.first.with_target(target).modelled_target
        )

    def implies(self, wanted: ValueSet, relations: Relations) -> Box:
        region = self.first.translate(wanted, {}, relations)
        sets = [box[self.target.name] for box in region.boxes]
        return self.second.implies(ValueSet.union(sets), relations) if sets else {}

    def with_target(self, target: Target) -> Self:
        return replace(self, first=self.first.with_target(target))

    def in_zone(self, zone: str) -> Self:
        return replace(self, second=self.second.in_zone(zone))

    def forward_known(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        return self.second.forward_known(self._between(frame))

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        resolved = self.second.resolve(self._between(known), self._between(deduced), null_is_value=null_is_value)
        is_wrong = self.first.off_grid(deduced.get_column(self.target.name)).to_numpy()
        return resolved._replace(contradictory=resolved.contradictory | is_wrong)

    def contradicts(self, frame: pl.DataFrame) -> Flags:
        return self.second.contradicts(self._between(frame))

    def deduce(self, frame: pl.DataFrame, relations: Relations) -> pl.DataFrame:
        between = self._between(frame)
        return self._restored(frame, between, self.second.deduce(between, relations))

    def repair(self, rows: pl.DataFrame, task: Repair) -> pl.DataFrame:
        between = self._between(rows)
        known = self._between(task.known) if self.target.name in task.known.columns else task.known
        repaired = self.second.repair(between, task._replace(known=known, drawn=self._between(task.drawn)))
        return self._restored(rows, between, repaired)

    @property
    def sets_itself(self) -> bool:
        return self.second.sets_itself

    def set_to(self, units: pl.Series, frame: pl.DataFrame) -> pl.Series:
        values = pl.DataFrame({self.target.name: self.target.values(units)})
        units_between = self.second.target.units(self._between(values).get_column(self.target.name))
        return self.second.set_to(units_between, self._between(frame))

    def follows_expression(self, modelled: pl.DataFrame) -> pl.Series:
        return self.second.follows_expression(modelled)

    def _between(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a frame with what the first transform makes of the column."""
        return frame.with_columns(self.first.forward(frame)[self.target.name])

    def _restored(self, frame: pl.DataFrame, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
        """Return the changed rows with the user's column: as it was, or rebuilt where the second transform set it."""
        name = self.target.name
        is_same = after.get_column(name).eq_missing(before.get_column(name))
        rebuilt = self.first.inverse(after, {name: after.get_column(name)})
        return after.with_columns(frame.get_column(name).zip_with(is_same, rebuilt))

    def details(self) -> dict[str, Any]:
        return {"first": _described(self.first), "second": _described(self.second)}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        links = [parse_fields(details[which], LINK, MODEL_JSON, where) for which in ("first", "second")]
        is_valid = links[0]["kind"] in FIRST and links[1]["kind"] in SECOND
        require_details(is_valid, where, "transforms that cannot follow each other")
        first_type, second_type = FIRST[links[0]["kind"]], SECOND[links[1]["kind"]]
        first_details = parse_fields(links[0]["details"], first_type.detail_types, MODEL_JSON, where)
        first = first_type.parse(target, None, first_details, dtypes, where)
        second_details = parse_fields(links[1]["details"], second_type.detail_types, MODEL_JSON, where)
        return cls(first, second_type.parse(first.modelled_target, node, second_details, dtypes, where))


def without_hour(grid: Transform | None, target: Target, hour: str, zone: str) -> Transform | None:
    """Return the transform of a timestamp without the hour that another column contains; None if it is on a grid.

    Args:
        grid: the transform of the timestamp so far, if any.
        target: the timestamp.
        hour: the column that contains the hour.
        zone: the time zone of the hour; empty for the clock of the timestamp.
    """
    hourless = Hourless(target, hour, zone)
    match grid:
        case Parsed() | Chain(Parsed(), Timed()):
            parsed = grid if isinstance(grid, Parsed) else grid.first
            return Chain(parsed, hourless) if isinstance(parsed.modelled_target.dtype, pl.Datetime) else None
        case None | Timed():
            return None if target.is_text else hourless
    return None


def _described(transform: Transform) -> dict[str, Any]:
    return {"kind": transform.kind, "details": transform.details()}
