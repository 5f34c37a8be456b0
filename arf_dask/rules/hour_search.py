"""Search for timestamps whose hour another column contains, so that they can be modelled without it."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from arf_dask.rules.expressions import Call, Constant, Name, Node, columns_of, depends_on_itself
from arf_dask.rules.scoring import Scored
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.hours import Hourless

LEAST_DAYS = 8  # minimum number of distinct days: a few days can be cut into hours directly


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


def split_hours(scored: list[Scored], frame: pl.DataFrame) -> tuple[list[Scored], list[Scored]]:
    """Split formulas into those that are computed, and at most one per timestamp for its hour in all rows."""
    hours: dict[str, Scored] = {}
    for one in scored:
        source = hour_source(one.formula)
        if source is None or one.share < 1.0 or source[0] in hours or frame.schema[source[0]] == pl.Time:
            continue
        if frame.get_column(source[0]).null_count() or frame.get_column(one.target).null_count():
            continue
        if frame.get_column(source[0]).cast(pl.String).str.head(10).n_unique() >= LEAST_DAYS:
            hours[source[0]] = one
    taken_names = {one.target for one in hours.values()}
    others = [one for one in scored if one.target not in taken_names or hour_source(one.formula) is None]
    return others, list(hours.values())


def hours_fit(hours: list[Scored], chosen: list[Scored]) -> bool:
    """Whether no timestamp is computed, directly or through others, and no hour is computed from its timestamp."""
    uses: dict[str, tuple[str, ...]] = {one.target: columns_of(one.formula) for one in chosen}
    sources = {columns_of(one.formula)[0]: one.target for one in hours}
    if any(source in uses for source in sources):
        return False
    uses |= {source: (hour,) for source, hour in sources.items()}
    return not any(depends_on_itself(source, uses) for source in sources)


def hourless(one: Scored, targets: Mapping[str, Target], form: str) -> Hourless:
    """Return the transform of a timestamp whose hour a formula describes."""
    source = hour_source(one.formula)
    assert source is not None
    return Hourless(targets[source[0]], one.target, source[1], form)
