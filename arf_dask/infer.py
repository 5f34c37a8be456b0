"""From a frame to its schema: kinds, levels, spikes, bundles, bins and the order of the levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from arf_dask.bins import Flags, cut_bins, find_atoms
from arf_dask.bundles import (
    MOST_COMBINATIONS,
    ROWS_PER_COMBINATION,
    Discrete,
    combine,
    find_bundles,
    flag_ties,
    sample_rows,
)
from arf_dask.encode import column_tokens, encode_codes, encode_states, line_places
from arf_dask.errors import OptionError
from arf_dask.keys import learn_key
from arf_dask.order import level_scores
from arf_dask.profile import Profile, check_frame, check_kinds, profile_frame
from arf_dask.schema import FIRST_LEVEL, NAN, NULL, Column, Floats, Ints, Schema, Variable
from arf_dask.segments import find_segments
from arf_dask.steps import Step, find_steps, round_cuts

ORDER_ROWS = 10_000
ORDER_BUCKETS = 16
GATE = 0.1  # how strongly missingness must depend on another variable for trees to split on it first
MOST_GATES = 4
Bundles = str | bool | Sequence[Sequence[str]]


def infer_schema(
    frame: pl.DataFrame, *, kinds: Mapping[str, str], keys: Sequence[str], bundles: Bundles = "auto"
) -> Schema:
    """Everything the later stages need to know of the columns, from all rows."""
    check_frame(frame)
    check_kinds(frame.schema, kinds, keys)
    profiles = profile_frame(frame, kinds, keys)
    modelled = [i for i, p in enumerate(profiles) if p.kind in ("categorical", "numeric")]
    atoms = {i: find_atoms(profiles[i].line) for i in modelled if profiles[i].kind == "numeric"}
    groups, steps = _find_groups(frame, profiles, atoms, bundles)
    for place in (i for group in groups for i in group if i in atoms):
        atoms[place] = np.ones(len(profiles[place].line.places), dtype=bool)
    for step in steps:
        if step.target in atoms:
            atoms[step.target] = np.ones(len(profiles[step.target].line.places), dtype=bool)
    columns = tuple(_column(frame, p, atoms.get(i)) for i, p in enumerate(profiles))
    variables = _variables(frame, columns, profiles, atoms, groups, steps)
    return order_levels(Schema(columns, variables, frame.height), frame)


def order_levels(schema: Schema, frame: pl.DataFrame) -> Schema:
    """The same schema with the states of every unordered variable in an order where neighbours are alike."""
    sample = frame[sample_rows(frame.height, ORDER_ROWS)]
    codes = encode_codes(sample, schema)
    buckets = [_bucketed(codes[:, v].astype(np.int32), schema.variables[v]) for v in range(codes.shape[1])]
    scores = level_scores(buckets)
    ordered = []
    for variable, score in zip(schema.variables, scores, strict=True):
        plain = not variable.is_line and not _is_ordered(variable, schema)
        ordered.append(_reorder(variable, score) if plain else variable)
    return Schema(schema.columns, tuple(ordered), schema.n_rows, find_gates(schema, buckets))


def find_gates(schema: Schema, buckets: list[Discrete]) -> tuple[int, ...]:
    """Variables whose missing rows differ from the others in some other variable, the most different first."""
    nullable = [
        number
        for number, v in enumerate(schema.variables)
        if len(v.columns) == 1 and v.tokens[0, 0] == NULL and v.n_states > 1 and not (v.is_line and v.first_bin == 0)
    ]
    if not nullable:
        return ()
    ties = flag_ties(np.stack([buckets[number].ids == 0 for number in nullable], axis=1), buckets)
    for place, number in enumerate(nullable):
        ties[place, number] = 0.0
    strengths = dict(zip(nullable, ties.max(axis=1), strict=True))
    strong = [number for number, strength in strengths.items() if strength >= GATE]
    return tuple(sorted(strong, key=lambda number: -strengths[number])[:MOST_GATES])


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
        if p.kind in ("categorical", "numeric") and 2 <= len(p.line.counts) + (p.nulls > 0) + (p.nans > 0) <= most
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
        if i not in targets and len(profiles[i].line.places) * 2 <= frame.height:
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
        shape = learn_key(frame[profile.name])
    except ValueError as error:
        raise OptionError(f"keys: {error}") from error
    empty = profile.levels
    return Column(profile.name, profile.dtype, "key", empty, key=shape, nulls=profile.nulls)


def _variables(
    frame: pl.DataFrame,
    columns: tuple[Column, ...],
    profiles: list[Profile],
    atoms: dict[int, Flags],
    groups: list[list[int]],
    steps: list[Step],
) -> tuple[Variable, ...]:
    grouped = {i for group in groups for i in group}
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
    variables: list[Variable] = [_bundle(frame, columns, group) for group in groups]
    read_off: set[int] = set()
    for i, cuts in segments.items():
        variable, used = _line(frame, columns, i, profiles[i], atoms[i], cuts, of_line.get(i, []))
        variables.append(variable)
        read_off |= used
    done = grouped | read_off | set(segments)
    for i, column in enumerate(columns):
        if i not in done and column.kind in ("categorical", "numeric"):
            variables.append(_single(column, i))
    return tuple(sorted(variables, key=lambda v: min(v.columns)))


def _single(column: Column, place: int) -> Variable:
    """A column of points only: states and codes are null, NaN, then the levels in order."""
    tokens = _empty_tokens(column) + list(range(FIRST_LEVEL, FIRST_LEVEL + column.n_points))
    return _points((place,), np.array(tokens, dtype=np.int32)[:, None])


def _bundle(frame: pl.DataFrame, columns: tuple[Column, ...], group: list[int]) -> Variable:
    """Several discrete columns as one: a state per combination seen."""
    tokens = [column_tokens(frame[columns[i].name], columns[i]) for i in group]
    together = combine([Discrete(t, int(t.max()) + 1) for t in tokens])
    first = np.zeros(together.n_values, dtype=np.int64)
    first[together.ids[::-1]] = np.arange(len(together.ids))[::-1]
    return _points(tuple(group), np.stack([t[first] for t in tokens], axis=1).astype(np.int32))


def _points(places: tuple[int, ...], tokens: Ints) -> Variable:
    codes = np.arange(len(tokens), dtype=np.int32)
    return Variable(places, tokens, np.zeros(len(tokens), dtype=bool), codes, codes)


def _line(
    frame: pl.DataFrame,
    columns: tuple[Column, ...],
    place: int,
    profile: Profile,
    atoms: Flags,
    cuts: Floats,
    steps: list[Step],
) -> tuple[Variable, set[int]]:
    """A number line with interval states, and the columns that are read off it."""
    column = columns[place]
    assert column.axis is not None
    borders = [round_cuts(step.cuts, column.axis, column.dtype) for step in steps]
    segments = np.unique(np.concatenate([cuts, *borders]))
    edges = np.union1d(cut_bins(profile.line, atoms, grid=column.axis.grid), segments)
    variable = _line_variable(column, place, edges, segments, profile.line.places[~atoms][[0, -1]])
    used: set[int] = set()
    for step in steps:
        tokens = _read_off(frame, columns, variable, step.target)
        if tokens is not None:
            variable = _with_member(variable, step.target, tokens)
            used.add(step.target)
    return variable, used


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


def _read_off(frame: pl.DataFrame, columns: tuple[Column, ...], variable: Variable, target: int) -> Ints | None:
    """The target's token in every state of the line, or None where a state holds two."""
    states, _ = encode_states(frame, Schema(columns, (variable,), frame.height), 0)
    tokens = column_tokens(frame[columns[target].name], columns[target])
    of_state = np.full(variable.n_states, -1, dtype=np.int32)
    of_state[states] = tokens
    if np.any(of_state[states] != tokens):
        return None
    # Intervals without a row of their own take the value of their left neighbour: the line's order is the states'.
    for state in np.flatnonzero(of_state < 0):
        known = np.flatnonzero(of_state[:state] >= 0)
        of_state[state] = of_state[known[-1]] if len(known) else of_state[of_state >= 0][0]
    return of_state


def _with_member(variable: Variable, target: int, tokens: Ints) -> Variable:
    return Variable(
        (*variable.columns, target),
        np.column_stack([variable.tokens, tokens]).astype(np.int32),
        variable.interval,
        variable.code_low,
        variable.code_high,
        variable.edges,
        variable.segments,
        variable.first_bin,
    )


def _empty_tokens(column: Column) -> list[int]:
    return [token for token, rows in ((NULL, column.nulls), (NAN, column.nans)) if rows]


def _is_grid(column: Column) -> bool:
    return column.axis is not None and column.axis.grid


def _is_ordered(variable: Variable, schema: Schema) -> bool:
    """A single numeric column keeps the order of its numbers."""
    return len(variable.columns) == 1 and schema.columns[variable.columns[0]].kind == "numeric"


def _bucketed(codes: Ints, variable: Variable) -> Discrete:
    """Codes for scoring: those of a long line in a few buckets."""
    if not variable.is_line or variable.n_codes <= ORDER_BUCKETS:
        return Discrete(codes, variable.n_codes)
    first = variable.first_bin
    numbers = codes[codes >= first]
    cuts = np.unique(np.quantile(numbers, np.linspace(0, 1, ORDER_BUCKETS + 1)[1:-1])) if len(numbers) else numbers
    bucket = first + np.searchsorted(cuts, codes)
    return Discrete(np.where(codes < first, codes, bucket).astype(np.int32), first + ORDER_BUCKETS)


def _reorder(variable: Variable, score: Floats) -> Variable:
    """States by score; a column's null stays first, so that one split tells missing from known."""
    single = len(variable.columns) == 1
    keep_first = np.where(single & (variable.tokens[:, 0] == NULL), 0, 1)
    order = np.lexsort((np.arange(variable.n_states), score, keep_first))
    return _points(variable.columns, variable.tokens[order])
