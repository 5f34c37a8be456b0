"""First look at data larger than memory: one pass over all parts for counts, bounds and levels, and a sample of rows.

Everything that is counted can be merged, and what is kept of a column depends on the whole column only, never on how
it was cut: its levels, its bounds, the numbers of nulls, and its distinct numbers with their counts while these are at
most `MOST_DISTINCT`. Of a column with more, the distribution comes from the sample, and its ends from all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.axis import FLOATS, Axis, Measured, axis_of, is_numeric, measure, merge_measured, nameless
from arf_dask.bins import Floats, Line, find_atoms
from arf_dask.errors import OptionError
from arf_dask.key_survey import Strings, learn_string_keys
from arf_dask.keys import Values, check_key, is_text, key_shape, learn_sequence, names_rows
from arf_dask.parts import Group, Parts, group_parts, load_each
from arf_dask.profile import Profile, are_levels, check_infinite, check_kinds, check_shape, has_levels, line_of, text_of
from arf_dask.progress import Progress
from arf_dask.schema import Kind
from arf_dask.tasks import Runner
from arf_dask.templates import StringShape

MOST_DISTINCT = 2**16  # values of a column that are counted one by one
MOST_ATOMS = 1_024  # more than a column can have (bins.ATOM_SHARE)


class Tally(NamedTuple):
    """Distinct values and how often each occurs; of many, those whose hash begins with so many zero bits."""

    table: pl.DataFrame  # one row per distinct value: hash, value, rows
    bits: int = 0  # 0: all values

    @property
    def share_distinct(self) -> float:
        """Distinct values per row: exactly, or of those counted."""
        return self.table.height / max(int(self.table["rows"].sum()), 1)


class Seen(NamedTuple):
    """What some rows say of one column."""

    rows: int
    nulls: int
    nans: int
    infinite: int
    measured: Measured | None  # of numbers
    tally: Tally
    ends: pl.Series  # the few smallest and the few largest distinct numbers

    @property
    def n_values(self) -> int:
        return self.rows - self.nulls

    @property
    def n_distinct(self) -> int:
        """Distinct values; of many, as those counted suggest."""
        return round(self.tally.share_distinct * self.n_values) if self.tally.bits else self.tally.table.height


class Survey(NamedTuple):
    """What is known of all rows, and some of the rows."""

    profiles: list[Profile]
    sample: pl.DataFrame


Look = tuple[pl.DataFrame, dict[str, Seen]]  # the rows of the sample, and what was seen of every column


class _Looking(NamedTuple):
    """What every task needs to know."""

    kinds: Mapping[str, str]
    rows: NDArray[np.int64]  # those of the sample


def survey(
    parts: Parts,
    rows: NDArray[np.int64],
    kinds: Mapping[str, str],
    keys: Sequence[str],
    bundled: Sequence[str],
    runner: Runner,
    report: Progress,
) -> Survey:
    """A profile per column from all rows, and the rows with these numbers.

    `kinds` and `keys` override what would be inferred. Columns that are `bundled` by the caller keep all their values.
    """
    check_shape(parts.dtypes, parts.n_rows)
    check_kinds(parts.dtypes, kinds, keys)
    declared = {**kinds, **dict.fromkeys(keys, "key")}
    groups = group_parts(parts)
    report.stage("columns", len(groups))
    sample, seen = runner.reduce(look, _Looking(declared, rows), groups, merge_looks, report.advance)
    check_infinite({name: one.infinite for name, one in seen.items()})
    kind_of = {name: _kind(name, parts.dtypes[name], one, declared.get(name)) for name, one in seen.items()}
    many = [
        name for name, one in seen.items() if one.tally.bits and (kind_of[name] == "categorical" or name in bundled)
    ]
    if many:
        report.stage("columns with many levels", len(groups))
        levels = {name: kind_of[name] == "categorical" for name in many}
        for name, tally in runner.reduce(look_again, levels, groups, merge_tallies, report.advance).items():
            seen[name] = seen[name]._replace(tally=tally)
    profiles = [_profile(name, sample[name], one, kind_of[name]) for name, one in seen.items()]
    strings = {p.name: _strings(seen[p.name]) for p in profiles if p.kind == "key" and p.key is None}
    shapes = learn_string_keys(strings, groups, runner, report)
    return Survey([_with_shape(p, shapes[p.name]) if p.name in shapes else p for p in profiles], sample)


def look(looking: _Looking, group: Group) -> Look:
    """The sampled rows of some parts, and what they say of every column."""
    first, parts = group
    looks = []
    for frame in load_each(parts):
        here = slice(*np.searchsorted(looking.rows, [first, first + frame.height]))
        seen = {series.name: see(series, looking.kinds.get(series.name)) for series in frame}
        looks.append((frame[looking.rows[here] - first], seen))
        first += frame.height
    return reduce(merge_looks, looks)


def merge_looks(one: Look, other: Look) -> Look:
    """What both say; their rows in order."""
    return pl.concat([one[0], other[0]]), {name: merge_seen(one[1][name], other[1][name]) for name in one[1]}


def look_again(columns: dict[str, bool], group: Group) -> dict[str, Tally]:
    """All distinct values of some columns (those with levels are flagged), however many."""
    tallies = [
        {name: _tally(_count(frame[name], as_levels), as_levels) for name, as_levels in columns.items()}
        for frame in load_each(group[1], list(columns))
    ]
    return reduce(merge_tallies, tallies)


def merge_tallies(one: dict[str, Tally], other: dict[str, Tally]) -> dict[str, Tally]:
    """The values of both, however many."""
    return {name: _merge(one[name], other[name]) for name in one}


def see(series: pl.Series, kind: str | None) -> Seen:
    """What the rows of one column say."""
    series = nameless(series)
    as_levels = has_levels(series.dtype, kind)
    is_float = series.dtype in FLOATS
    nans = int(series.is_nan().sum()) if is_float and not as_levels else 0
    infinite = int(series.is_infinite().sum()) if is_float else 0
    counted = _count(series, as_levels)
    values = counted["value"]
    measured, ends = None, series.clear()
    if is_numeric(series.dtype) and not as_levels:
        measured, ends = measure(values), _ends(values)
        counted = counted.clear() if kind == "key" else counted
    tally = _shortened(_tally(counted, as_levels))
    return Seen(len(series), series.null_count(), nans, infinite, measured, tally, ends)


def merge_seen(one: Seen, other: Seen) -> Seen:
    """What the rows of both say."""
    return Seen(
        one.rows + other.rows,
        one.nulls + other.nulls,
        one.nans + other.nans,
        one.infinite + other.infinite,
        merge_measured(one.measured, other.measured),
        _shortened(_merge(one.tally, other.tally)),
        _ends(pl.concat([one.ends, other.ends]).unique()),
    )


def _count(series: pl.Series, as_levels: bool) -> pl.DataFrame:
    """One row per distinct value that is neither null nor (among numbers) NaN: value, rows."""
    values = pl.DataFrame({"value": nameless(series)}).drop_nulls()
    if series.dtype in FLOATS and not as_levels:
        values = values.filter(pl.col("value").is_not_nan()).select(pl.col("value") + 0.0)  # -0.0 is 0.0
    return values.group_by("value").agg(rows=pl.len().cast(pl.Int64))


def _tally(counted: pl.DataFrame, as_levels: bool) -> Tally:
    # The numbers behind categories differ between processes: levels go by their text.
    named = text_of(counted["value"]) if as_levels else counted["value"].to_physical()
    return Tally(counted.select(nameless(named).hash().alias("hash"), "value", "rows"))


def _merge(one: Tally, other: Tally) -> Tally:
    bits = max(one.bits, other.bits)
    both = pl.concat([_slice(one, bits), _slice(other, bits)])
    return Tally(both.group_by("hash", "value").agg(pl.col("rows").sum()), bits)


def _slice(tally: Tally, bits: int) -> pl.DataFrame:
    return tally.table if bits == tally.bits else tally.table.filter(pl.col("hash") < 2 ** (64 - bits))


def _shortened(tally: Tally) -> Tally:
    """At most `MOST_DISTINCT` values. Which ones is a property of all values, whatever was merged when."""
    while tally.table.height > MOST_DISTINCT and tally.bits < 63:
        tally = Tally(_slice(tally, tally.bits + 1), tally.bits + 1)
    return tally


def _ends(distinct: pl.Series) -> pl.Series:
    if len(distinct) <= 2 * MOST_ATOMS:
        return distinct
    return pl.concat([distinct.bottom_k(MOST_ATOMS), distinct.top_k(MOST_ATOMS)])


def _kind(name: str, dtype: pl.DataType, seen: Seen, declared: str | None) -> Kind:
    if declared == "key":
        return "key"
    if seen.n_values == 0:
        return "empty"
    measured = seen.measured
    bounds = (0, 0) if measured is None or dtype in FLOATS else (int(measured.low), int(measured.high))
    if declared is None and names_rows(name, dtype, seen.n_values, _surely_distinct(seen, dtype), bounds):
        return "key"
    if has_levels(dtype, declared):
        return "categorical"
    if measured is not None and seen.tally.bits and are_levels(axis_of(measured, dtype), 0, seen.n_distinct, seen.rows):
        return "categorical"
    return "numeric"


def _surely_distinct(seen: Seen, dtype: pl.DataType) -> int:
    """Distinct values; integers are all different only if no two of those counted are the same."""
    repeated = seen.tally.bits > 0 and not is_text(dtype) and seen.tally.share_distinct < 1
    return min(seen.n_distinct, seen.n_values - 1) if repeated else seen.n_distinct


def _strings(seen: Seen) -> Strings:
    values = text_of(seen.tally.table["value"]).unique()
    return Strings(values, seen.n_distinct if seen.tally.bits else len(values))


def _with_shape(profile: Profile, shape: StringShape) -> Profile:
    return profile.with_key(key_shape(profile.dtype, profile.rows, profile.nulls, shape))


def _profile(name: str, sample: pl.Series, seen: Seen, kind: Kind) -> Profile:
    dtype, empty = sample.dtype, nameless(sample).clear()
    bare = Profile(
        name, dtype, kind, seen.rows, seen.nulls, seen.nans, empty, Line(np.empty(0), np.empty(0, int)), None
    )
    match kind:
        case "empty":
            return bare
        case "key":
            return _key_profile(bare, seen)
        case "categorical":
            return _level_profile(bare, seen.tally.table)
        case _:
            return _number_profile(bare, sample, seen)


def _key_profile(bare: Profile, seen: Seen) -> Profile:
    try:
        check_key(bare.name, bare.dtype)
    except ValueError as error:
        raise OptionError(f"keys: {error}") from error
    if is_text(bare.dtype) and seen.n_values:
        return bare
    values: Values | None = None
    if seen.n_values:
        values = learn_sequence(seen.measured, bare.dtype, seen.n_values)
    return bare.with_key(key_shape(bare.dtype, seen.rows, seen.nulls, values))


def _level_profile(bare: Profile, table: pl.DataFrame) -> Profile:
    ordered = (
        table.with_columns(text=text_of(table["value"]))
        .group_by("text")
        .agg(pl.col("value").first(), pl.col("rows").sum())
        .sort("text")
    )
    counts = ordered["rows"].to_numpy()
    line = Line(np.arange(len(counts), dtype=np.float64), counts)
    return Profile(**{**bare.__dict__, "kind": "categorical", "levels": nameless(ordered["value"]), "line": line})


def _number_profile(bare: Profile, sample: pl.Series, seen: Seen) -> Profile:
    if seen.measured is None:
        return Profile(**{**bare.__dict__, "axis": Axis(grid=False)})
    axis = axis_of(seen.measured, bare.dtype)
    known: dict[str, Any] = {"axis": axis}
    if not seen.tally.bits:
        table = seen.tally.table.sort("value")
        line, levels = line_of(nameless(table["value"]), axis, table["rows"].to_numpy())
        if are_levels(axis, len(line.places), table.height, bare.rows):
            return _level_profile(bare, table)
        return Profile(**{**bare.__dict__, "axis": axis, "line": line, "levels": levels})
    values = nameless(sample).drop_nulls()
    line, _ = line_of(values, axis)
    spikes = line.places[find_atoms(line)] if len(line.places) else np.empty(0)
    values = pl.concat([values, _outermost(seen.ends.sort(), axis, spikes, line.places)])
    line, levels = line_of(values, axis)
    known |= {"line": line, "levels": levels, "atoms": np.isin(line.places, spikes)}
    return Profile(**{**bare.__dict__, **known})


def _outermost(ends: pl.Series, axis: Axis, spikes: Floats, held: Floats) -> pl.Series:
    """The smallest and the largest number that is no spike, where the sample does not hold them."""
    places = axis.to_axis(ends)
    others = np.flatnonzero(~np.isin(places, spikes))
    wanted = np.unique(others[[0, -1]]) if len(others) else others
    return ends.gather(wanted[~np.isin(places[wanted], held)])
