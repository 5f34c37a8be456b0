"""What a schema will be: kinds, levels, spikes, bundles, lines and their bins; and what only every row can tell.

Which columns hang together is seen in a sample of rows. Which combinations of them occur, and whether a column really
can be read off a line, all rows are asked for, part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.bins import Flags, cut_bins, find_atoms
from arf_dask.bundles import MOST_COMBINATIONS, ROWS_PER_COMBINATION, Discrete, combine, find_bundles
from arf_dask.encode import column_tokens, encode_states, line_places
from arf_dask.errors import OptionError
from arf_dask.keys import learn_key
from arf_dask.profile import Profile
from arf_dask.schema import FIRST_LEVEL, NAN, NULL, Column, Floats, Ints, Schema, Variable
from arf_dask.segments import find_segments
from arf_dask.steps import Step, find_steps, round_cuts

NO_ROW, SEVERAL = -1, -2
Bundles = str | bool | Sequence[Sequence[str]]


class Plan(NamedTuple):
    """All of a schema but what every row must be asked for: combinations, and columns read off a line."""

    columns: tuple[Column, ...]
    groups: list[list[int]]  # columns to be modelled as one
    lines: list[Variable]  # number lines with interval states
    targets: list[list[int]]  # per line: columns that may be read off it


class Observed(NamedTuple):
    """What some rows say of a plan."""

    combinations: list[Ints]  # per group: one row per combination of tokens, in order
    readings: list[list[Ints]]  # per line and target: the token in every state; -1 no row, -2 more than one token


def make_plan(frame: pl.DataFrame, profiles: list[Profile], bundles: Bundles = "auto") -> Plan:
    """Kinds, levels, spikes, bundles and bins from the profiles of all rows, and all of the rows or a sample."""
    modelled = [i for i, p in enumerate(profiles) if p.kind in ("categorical", "numeric")]
    atoms = {i: _atoms(profiles[i]) for i in modelled if profiles[i].kind == "numeric"}
    groups, steps = _find_groups(frame, profiles, atoms, bundles)
    for place in (i for group in groups for i in group if i in atoms):
        atoms[place] = np.ones(len(profiles[place].line.places), dtype=bool)
    for step in steps:
        if step.target in atoms:
            atoms[step.target] = np.ones(len(profiles[step.target].line.places), dtype=bool)
    columns = tuple(_column(frame, p, atoms.get(i)) for i, p in enumerate(profiles))
    lines, targets = _lines(columns, profiles, atoms, {i for group in groups for i in group}, steps)
    return Plan(columns, groups, lines, targets)


def asked_columns(plan: Plan) -> list[str]:
    """The columns that `observe` looks at."""
    asked = {i for group in plan.groups for i in group}
    for line, targets in zip(plan.lines, plan.targets, strict=True):
        asked |= {line.columns[0], *targets} if targets else set()
    return [plan.columns[i].name for i in sorted(asked)]


def observe(plan: Plan, frame: pl.DataFrame) -> Observed:
    """What rows say of a plan."""
    combinations = [_combinations(frame, plan.columns, group) for group in plan.groups]
    readings = [
        _read_off(frame, plan.columns, line, targets) for line, targets in zip(plan.lines, plan.targets, strict=True)
    ]
    return Observed(combinations, readings)


def merge_observed(one: Observed, other: Observed) -> Observed:
    """What the rows of both say."""
    combinations = [
        np.unique(np.concatenate(both), axis=0) for both in zip(one.combinations, other.combinations, strict=True)
    ]
    pairs = zip(one.readings, other.readings, strict=True)
    readings = [[_merge_readings(a, b) for a, b in zip(*both, strict=True)] for both in pairs]
    return Observed(combinations, readings)


def finish_plan(plan: Plan, observed: Observed, n_rows: int) -> Schema:
    """The schema but for the order of levels."""
    points = zip(plan.groups, observed.combinations, strict=True)
    variables = [points_variable(tuple(group), tokens) for group, tokens in points]
    for line, targets, readings in zip(plan.lines, plan.targets, observed.readings, strict=True):
        variables.append(_with_members(line, targets, readings))
    done = {place for variable in variables for place in variable.columns}
    for i, column in enumerate(plan.columns):
        if i not in done and column.kind in ("categorical", "numeric"):
            variables.append(_single(column, i))
    ordered = tuple(sorted(variables, key=lambda v: min(v.columns)))
    return Schema(plan.columns, ordered, n_rows)


def _find_groups(
    frame: pl.DataFrame, profiles: list[Profile], atoms: dict[int, Flags], bundles: Bundles
) -> tuple[list[list[int]], list[Step]]:
    if bundles is False:
        return [], []
    if bundles != "auto" and bundles is not True:
        assert not isinstance(bundles, str | bool)
        return _told_groups(profiles, bundles), []
    most = min(MOST_COMBINATIONS, frame.height // ROWS_PER_COMBINATION)
    discrete = {
        i: _ids(frame[p.name], p)
        for i, p in enumerate(profiles)
        if p.kind in ("categorical", "numeric")
        and p.exact
        and 2 <= len(p.line.counts) + (p.nulls > 0) + (p.nans > 0) <= most
    }
    lines = {i: _places(frame[profiles[i].name], profiles[i]) for i in atoms if not atoms[i].all()}
    steps = _steps_of_roots(lines, _step_targets(frame, profiles, discrete, lines), frame.height)
    taken = {step.target for step in steps} | {step.line for step in steps}
    return find_bundles({i: c for i, c in discrete.items() if i not in taken}, frame.height), steps


def _told_groups(profiles: list[Profile], bundles: Sequence[Sequence[str]]) -> list[list[int]]:
    """The bundles the caller names, without their empty columns."""
    place = {p.name: i for i, p in enumerate(profiles)}
    taken = [name for group in bundles for name in group if profiles[place[name]].kind == "key"]
    if taken:
        raise OptionError(
            f"bundles: {taken[0]!r} looks like an identifier. Take it out of the bundle, or say "
            f"columns={{{taken[0]!r}: 'categorical'}} to have it modelled."
        )
    groups = [sorted(place[name] for name in group if profiles[place[name]].kind != "empty") for group in bundles]
    return [group for group in groups if len(group) > 1]


def _step_targets(
    frame: pl.DataFrame, profiles: list[Profile], discrete: dict[int, Discrete], lines: dict[int, Floats]
) -> dict[int, Discrete]:
    """Columns that may be read off a line: discrete ones, and lines that hold every value about twice."""
    targets = dict(discrete)
    for i in lines:
        if i not in targets and profiles[i].exact and len(profiles[i].line.places) * 2 <= frame.height:
            targets[i] = _ids(frame[profiles[i].name], profiles[i])
    return targets


def _steps_of_roots(lines: dict[int, Floats], targets: dict[int, Discrete], n_rows: int) -> list[Step]:
    """Steps of lines that are no step of another: a month goes with the time stamp, not with the date of it."""
    lead: dict[int, int] = {}
    for step in find_steps(lines, targets, n_rows):
        if step.line not in lead:  # of two twins the first one leads
            lead[step.target] = step.line
    if not lead:
        return []
    roots = {line: places for line, places in lines.items() if line not in lead}
    return find_steps(roots, {key: column for key, column in targets.items() if key not in roots}, n_rows)


def _ids(series: pl.Series, profile: Profile) -> Discrete:
    """A column as whole numbers: every distinct value, null and NaN have one."""
    flat = np.ones(len(profile.line.places), dtype=bool)
    column = _bare_column(profile, flat)
    ids = np.unique(column_tokens(series, column), return_inverse=True)[1]
    return Discrete(ids.astype(np.int32), int(ids.max()) + 1)


def _places(series: pl.Series, profile: Profile) -> Floats:
    return line_places(series, _bare_column(profile, np.zeros(len(profile.line.places), dtype=bool)))


def _bare_column(profile: Profile, points: Flags) -> Column:
    is_number = profile.kind == "numeric"
    exact = is_number and profile.axis is not None and not profile.axis.lossless
    levels = profile.levels.filter(pl.Series(points)) if exact else profile.levels
    places = profile.line.places[points] if is_number else np.empty(0)
    return Column(
        profile.name,
        profile.dtype,
        profile.kind,
        levels,
        places,
        profile.axis,
        None,
        profile.nulls,
        profile.nans,
    )


def _column(frame: pl.DataFrame, profile: Profile, points: Flags | None) -> Column:
    if profile.kind != "key":
        return _bare_column(profile, np.empty(0, dtype=bool) if points is None else points)
    try:
        shape = learn_key(frame[profile.name]) if profile.key is None else profile.key
    except ValueError as error:
        raise OptionError(f"keys: {error}") from error
    empty = profile.levels
    return Column(profile.name, profile.dtype, "key", empty, key=shape, nulls=profile.nulls)


def _atoms(profile: Profile) -> Flags:
    return find_atoms(profile.line) if profile.atoms is None else profile.atoms


def _lines(
    columns: tuple[Column, ...],
    profiles: list[Profile],
    atoms: dict[int, Flags],
    grouped: set[int],
    steps: list[Step],
) -> tuple[list[Variable], list[list[int]]]:
    """Number lines with interval states, and the columns that may be read off each."""
    of_line: dict[int, list[Step]] = {}
    for step in steps:
        of_line.setdefault(step.line, []).append(step)
    segments = find_segments(
        {
            i: (profiles[i].line, atoms[i], _is_grid(columns[i]))
            for i in atoms
            if i not in grouped and not atoms[i].all()
        }
    )
    lines = [_line(columns[i], i, profiles[i], atoms[i], cuts, of_line.get(i, [])) for i, cuts in segments.items()]
    return lines, [[step.target for step in of_line.get(i, [])] for i in segments]


def _single(column: Column, place: int) -> Variable:
    """A column of points only: states and codes are null, NaN, then the levels in order."""
    tokens = _empty_tokens(column) + list(range(FIRST_LEVEL, FIRST_LEVEL + column.n_points))
    return points_variable((place,), np.array(tokens, dtype=np.int32)[:, None])


def _combinations(frame: pl.DataFrame, columns: tuple[Column, ...], group: list[int]) -> Ints:
    """One row per combination of the tokens of several discrete columns, in order."""
    tokens = [column_tokens(frame[columns[i].name], columns[i]) for i in group]
    if not frame.height:
        return np.empty((0, len(group)), dtype=np.int32)
    together = combine([Discrete(t, int(t.max()) + 1) for t in tokens])
    first = np.zeros(together.n_values, dtype=np.int64)
    first[together.ids[::-1]] = np.arange(len(together.ids))[::-1]
    return np.stack([t[first] for t in tokens], axis=1).astype(np.int32)


def points_variable(places: tuple[int, ...], tokens: Ints) -> Variable:
    """Columns of points only: codes are states."""
    codes = np.arange(len(tokens), dtype=np.int32)
    return Variable(places, tokens, np.zeros(len(tokens), dtype=bool), codes, codes)


def _line(column: Column, place: int, profile: Profile, atoms: Flags, cuts: Floats, steps: list[Step]) -> Variable:
    """A number line with interval states, also between the values of columns that are steps of it."""
    assert column.axis is not None
    borders = [round_cuts(step.cuts, column.axis, column.dtype) for step in steps]
    segments = np.unique(np.concatenate([cuts, *borders]))
    edges = np.union1d(cut_bins(profile.line, atoms, grid=column.axis.grid), segments)
    return _line_variable(column, place, edges, segments, profile.line.places[~atoms][[0, -1]])


def _line_variable(column: Column, place: int, edges: Floats, segments: Floats, between: Floats) -> Variable:
    """Null, NaN, spikes, and the intervals of all that lies `between`: from the first to the last other value."""
    special = _empty_tokens(column)
    first_bin = len(special)
    at = first_bin + np.searchsorted(edges, column.points, side="right")
    borders = first_bin + np.searchsorted(edges, segments)
    starts, ends = np.array([first_bin, *(borders + 1)]), np.array([*borders, first_bin + len(edges)])
    outermost = first_bin + np.searchsorted(edges, between, side="right")
    starts[0], ends[-1] = min(outermost[0], ends[0]), max(outermost[1], starts[-1])
    low = np.concatenate([np.arange(first_bin), at, starts])
    high = np.concatenate([np.arange(first_bin), at, ends])
    point_tokens = np.arange(FIRST_LEVEL, FIRST_LEVEL + len(column.points))
    tokens = np.concatenate([special, point_tokens, np.full(len(segments) + 1, column.between)]).astype(np.int32)
    interval = tokens == column.between
    return Variable(
        (place,),
        tokens[:, None],
        interval,
        low.astype(np.int32),
        high.astype(np.int32),
        edges,
        segments,
        first_bin,
    )


def _read_off(frame: pl.DataFrame, columns: tuple[Column, ...], line: Variable, targets: list[int]) -> list[Ints]:
    """Per target its token in every state of the line; -1 in states without a row, -2 in those with two tokens."""
    if not targets:
        return []
    states, _ = encode_states(frame, Schema(columns, (line,), frame.height), 0)
    found = []
    for target in targets:
        tokens = column_tokens(frame[columns[target].name], columns[target])
        of_state = np.full(line.n_states, NO_ROW, dtype=np.int32)
        of_state[states] = tokens
        of_state[states[of_state[states] != tokens]] = SEVERAL
        found.append(of_state)
    return found


def _merge_readings(one: Ints, other: Ints) -> Ints:
    merged = np.where(one == NO_ROW, other, one)
    return np.where((other != NO_ROW) & (other != merged), SEVERAL, merged).astype(np.int32)


def _with_members(line: Variable, targets: list[int], readings: list[Ints]) -> Variable:
    """The line together with the columns that can be read off it: all that have one token in every state."""
    for target, of_state in zip(targets, readings, strict=True):
        if np.any(of_state == SEVERAL):
            continue
        # Intervals without a row of their own take the value of their left neighbour: the line's order is the states'.
        tokens = of_state.copy()
        for state in np.flatnonzero(tokens == NO_ROW):
            known = np.flatnonzero(tokens[:state] >= 0)
            tokens[state] = tokens[known[-1]] if len(known) else tokens[tokens >= 0][0]
        line = _with_member(line, target, tokens)
    return line


def _with_member(variable: Variable, target: int, tokens: Ints) -> Variable:
    together = np.column_stack([variable.tokens, tokens]).astype(np.int32)
    return replace(variable, columns=(*variable.columns, target), tokens=together)


def _empty_tokens(column: Column) -> list[int]:
    return [token for token, rows in ((NULL, column.nulls), (NAN, column.nans)) if rows]


def _is_grid(column: Column) -> bool:
    return column.axis is not None and column.axis.grid
