"""Renewed columns: names and numbers of entities (products, merchants) are replaced before anything is learned.

Every value gets one fresh value of the same shape, which equals no value of the data. A renewed column still repeats
and still determines others, so that an entity keeps its attributes and its share of the rows, under a new name that is
the same wherever the entity occurs. The model knows only the new values; who had which is forgotten after `fit`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import polars as pl

from arf_dask.data.axes import summarise_axis
from arf_dask.data.key_learning import learn_sequence
from arf_dask.data.keys import can_be_key, fresh_keys, is_text, key_shape
from arf_dask.data.parts import DataPart, PartGroup, Parts, group_parts, load_each
from arf_dask.data.template_learning import learn_strings
from arf_dask.errors import OptionError
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.runtime.tasks import Runner

DistinctValues = dict[str, pl.Series]


@dataclass(frozen=True, eq=False)
class Renewal:
    """The fresh value of every value of the renewed columns. One row per value: value, fresh."""

    columns: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace the values of the renewed columns of a frame; values that were not learned stay."""
        return frame.with_columns(
            [_replaced(frame[name], table) for name, table in self.columns.items() if name in frame.columns]
        )


NO_RENEWAL = Renewal()


@dataclass(frozen=True, eq=False)
class RenewedPart:
    """A part whose columns are renewed when it is loaded."""

    part: DataPart
    renewal: Renewal

    @property
    def rows(self) -> int:
        return self.part.rows

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        return self.renewal.apply(self.part.load(columns))

    def on_cluster(self, client: Any) -> Any:
        if not hasattr(self.part, "on_cluster"):
            return self
        return client.submit(RenewedPart, self.part.on_cluster(client), self.renewal, pure=False)


def learn_renewal(parts: Parts, names: Sequence[str], seed: int, runner: Runner, kept: Collection[str] = ()) -> Renewal:
    """Choose the fresh values of columns, a function of their values and the seed.

    Args:
        parts: The table.
        names: The columns.
        seed: The seed of the model.
        runner: Runs the tasks.
        kept: Texts that stay as they are, such as the level that rare levels were merged into.

    Raises:
        OptionError: A column is neither text nor whole numbers.
    """
    if not names:
        return NO_RENEWAL
    refused = [name for name in names if not can_be_key(parts.dtypes[name])]
    if refused:
        raise OptionError(
            f"renew: fresh values of {refused[0]!r} ({parts.dtypes[refused[0]]}) cannot be made. Cast it to a string "
            "or an integer before fit."
        )
    groups = group_parts(parts)
    distinct = runner.reduce(_distinct_values, list(names), groups, _merge_values, lambda *_: None)
    seeds = {name: position for position, name in enumerate(parts.dtypes)}
    return Renewal({name: _fresh_values(distinct[name], seed, seeds[name], kept) for name in names})


def renewed_parts(parts: Parts, renewal: Renewal) -> Parts:
    """Return the parts with renewed columns."""
    if not renewal.columns:
        return parts
    return replace(parts, items=[RenewedPart(part, renewal) for part in parts.items])


def _distinct_values(names: list[str], group: PartGroup) -> DistinctValues:
    return reduce(
        _merge_values,
        ({name: frame[name].drop_nulls().unique() for name in names} for frame in load_each(group[1], names)),
    )


def _merge_values(one: DistinctValues, other: DistinctValues) -> DistinctValues:
    return {name: pl.concat([one[name], other[name]]).unique() for name in one}


def _fresh_values(values: pl.Series, seed: int, column: int, kept: Collection[str]) -> pl.DataFrame:
    """One row per value of a column: value, fresh; in an order that says nothing about the values."""
    old = values.alias("value")
    old = (old.cast(pl.String) if is_text(old.dtype) else old).sort()
    if kept and is_text(values.dtype):
        old = old.filter(~old.is_in(list(kept)))
    if not len(old):
        return pl.DataFrame({"value": old, "fresh": old})
    rng = generator(seed, Stage.RENEWAL, column)
    if is_text(values.dtype):
        shape = key_shape(pl.String(), len(old), 0, learn_strings(old))
    else:
        summary = summarise_axis(old)
        assert summary is not None
        shape = key_shape(old.dtype, len(old), 0, learn_sequence(summary, old.dtype, len(old)))
    fresh = fresh_keys(shape, 0, len(old), rng, "fresh", old.dtype, int(rng.integers(2**62)))
    return pl.DataFrame({"value": old, "fresh": fresh.gather(rng.permutation(len(old)))})


def _replaced(column: pl.Series, table: pl.DataFrame) -> pl.Series:
    if not table.height:
        return column
    text = column.cast(pl.String) if is_text(column.dtype) else column
    return text.replace(table["value"], table["fresh"]).cast(column.dtype).alias(column.name)
