"""Draft a schema: kinds, levels, spikes, bundles, number lines and their bins.

Which columns depend on each other is estimated from a sample of rows. Which combinations occur, and whether a column
is a function of a number line, is checked against all rows, part by part.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.bins import (
    cut_bins,
    find_atoms,
)
from arf_dask.data.key_learning import has_key_name
from arf_dask.data.profile import Profile
from arf_dask.errors import OptionError
from arf_dask.schema.bundles import LEAST_ROWS, combine, find_bundles
from arf_dask.schema.columns import (
    FIRST_LEVEL,
    NAN,
    NULL,
    Column,
    Schema,
    Variable,
)
from arf_dask.schema.discrete import Discrete
from arf_dask.schema.encoding import column_tokens, encode_states, to_axis_values
from arf_dask.schema.interval_cuts import find_segments
from arf_dask.schema.near_functions import REPEATS
from arf_dask.schema.step_functions import Step, find_steps, round_cuts
from arf_dask.typing import Bundles, Flags, Floats, Ints

NO_ROW, SEVERAL = -1, -2
MANY_COPIES = 0.1  # share of rows that equal an earlier one from which on such rows say nothing about functions


class SchemaDraft(NamedTuple):
    """A schema drafted from a sample of rows, before it is checked against all rows.

    The check collects the combinations that occur in each bundle, and verifies the columns that a number line
    determines.
    """

    columns: tuple[Column, ...]
    groups: list[list[int]]  # columns to model as one
    lines: list[Variable]  # number lines with interval states
    targets: list[list[int]]  # per line: columns that it may determine


class DraftCheck(NamedTuple):
    """The result of checking a draft against a range of rows. Checks of two parts of a table can be merged."""

    combinations: list[Ints]  # per group: one row per combination of tokens, sorted
    readings: list[list[Ints]]  # per line and target: the token in each state; -1 for no rows, -2 for several tokens


def draft_schema(
    frame: pl.DataFrame,
    profiles: list[Profile],
    bundles: Bundles = "auto",
    together: Sequence[Sequence[str]] = (),
    separate: Collection[str] = (),
) -> SchemaDraft:
    """Draft a schema from the profiles of all rows and a sample of the rows (or all of them)."""
    modelled_ids = [i for i, p in enumerate(profiles) if p.kind in ("categorical", "numeric")]
    atom_flags = {i: _atoms(profiles[i]) for i in modelled_ids if profiles[i].kind == "numeric"}
    groups, step_functions = _find_groups(frame, profiles, atom_flags, bundles, together, separate)
    for column_id in [*(i for group in groups for i in group), *(step.target for step in step_functions)]:
        if column_id in atom_flags:
            atom_flags[column_id] = np.ones(len(profiles[column_id].numbers.values), dtype=bool)
    columns = tuple(_column(p, atom_flags.get(i)) for i, p in enumerate(profiles))
    lines, targets = _lines(columns, profiles, atom_flags, {i for group in groups for i in group}, step_functions)
    return SchemaDraft(columns, groups, lines, targets)


def columns_to_check(draft: SchemaDraft) -> list[str]:
    """Return the names of the columns that `check_draft` needs."""
    column_ids = {i for group in draft.groups for i in group}
    for line, targets in zip(draft.lines, draft.targets, strict=True):
        column_ids |= {line.columns[0], *targets} if targets else set()
    return [draft.columns[i].name for i in sorted(column_ids)]


def check_draft(draft: SchemaDraft, frame: pl.DataFrame) -> DraftCheck:
    """Check a draft against rows: which combinations occur, and which columns are functions of a number line."""
    combinations = [_combinations(frame, draft.columns, group) for group in draft.groups]
    readings = [
        _read_off(frame, draft.columns, line, targets) for line, targets in zip(draft.lines, draft.targets, strict=True)
    ]
    return DraftCheck(combinations, readings)


def merge_checks(one: DraftCheck, other: DraftCheck) -> DraftCheck:
    """Merge the checks of two parts of a table."""
    combinations = [
        np.unique(np.concatenate(part_pair), axis=0)
        for part_pair in zip(one.combinations, other.combinations, strict=True)
    ]
    reading_pairs = zip(one.readings, other.readings, strict=True)
    readings = [[_merge_readings(a, b) for a, b in zip(*part_pair, strict=True)] for part_pair in reading_pairs]
    return DraftCheck(combinations, readings)


def finish_draft(draft: SchemaDraft, checked: DraftCheck, n_rows: int) -> Schema:
    """Build the schema from a draft and the check of all rows; levels are not ordered yet."""
    group_tokens = zip(draft.groups, checked.combinations, strict=True)
    variables = [points_variable(tuple(group), tokens) for group, tokens in group_tokens]
    for line, targets, readings in zip(draft.lines, draft.targets, checked.readings, strict=True):
        variables.append(_with_members(line, targets, readings))
    covered_ids = {column_id for variable in variables for column_id in variable.columns}
    for i, column in enumerate(draft.columns):
        if i not in covered_ids and column.kind in ("categorical", "numeric"):
            variables.append(_points_of_column(column, i))
    ordered_variables = tuple(sorted(variables, key=lambda v: min(v.columns)))
    return Schema(draft.columns, ordered_variables, n_rows)


def _find_groups(
    frame: pl.DataFrame,
    profiles: list[Profile],
    atoms: dict[int, Flags],
    bundles: Bundles,
    together: Sequence[Sequence[str]] = (),
    separate: Collection[str] = (),
) -> tuple[list[list[int]], list[Step]]:
    declared_groups = _declared_groups(profiles, [*together, *(() if isinstance(bundles, str | bool) else bundles)])
    if bundles is False or not isinstance(bundles, str | bool):
        return declared_groups, []
    grouped_ids = {i for group in declared_groups for i in group}
    grouped_ids |= {i for i, profile in enumerate(profiles) if profile.name in separate}
    max_values = int((1 - REPEATS) * frame.height) if frame.height >= LEAST_ROWS else frame.height
    discrete_columns = {
        i: _ids(frame[p.name], p)
        for i, p in enumerate(profiles)
        if i not in grouped_ids
        and p.kind in ("categorical", "numeric")
        and p.is_exact
        and 2 <= p.n_values <= max_values
    }
    line_values = {
        i: _axis_values(frame[profiles[i].name], profiles[i])
        for i in atoms
        if i not in grouped_ids and not atoms[i].all() and not _numbers_entities(profiles[i], frame.height)
    }
    steps = _steps_of_roots(line_values, _step_targets(frame, profiles, discrete_columns, line_values), frame.height)
    step_ids = {step.target for step in steps} | {step.line for step in steps}
    return [
        *declared_groups,
        *find_bundles(
            {
                i: column
                for i, column in discrete_columns.items()
                if i not in step_ids and (frame.height >= LEAST_ROWS or _is_label(profiles[i]))
            },
            frame.height,
            [i for i in discrete_columns if _is_label(profiles[i])],
            others_vary=any(_varies(profile, frame.height) for profile in profiles),
            distinct_rows=_distinct_rows(frame, profiles),
        ),
    ], steps


def _distinct_rows(frame: pl.DataFrame, profiles: list[Profile]) -> NDArray[np.int64] | None:
    """Return one row of each set of rows that are equal but for identifiers; None if there are few of them."""
    names = [p.name for p in profiles if p.kind in ("categorical", "numeric")]
    if not names:
        return None
    rows = frame[names].hash_rows(seed=0).arg_unique().sort().to_numpy()
    return rows.astype(np.int64) if len(rows) < (1 - MANY_COPIES) * frame.height else None


def _numbers_entities(profile: Profile, n_rows: int) -> bool:
    """Whether a column holds whole numbers of entities that repeat: between two of them there is none."""
    is_number = profile.dtype.is_integer() and has_key_name(profile.name)
    return is_number and profile.is_exact and profile.n_values <= (1 - REPEATS) * n_rows


def _varies(profile: Profile, n_rows: int) -> bool:
    """Whether a column holds numbers that differ between nearly all rows."""
    return profile.kind == "numeric" and (not profile.is_exact or profile.n_values > (1 - REPEATS) * n_rows)


def _is_label(profile: Profile) -> bool:
    """Whether a column holds names or codes rather than measurements.

    In small tables, pairing measurements that are all different would reproduce the rows. In large ones, measurements
    with few rows per value determine other columns by chance, or because equal people were counted alike.
    """
    if profile.kind == "categorical":
        return True
    values = profile.numbers.values
    is_dense = len(values) > 0 and values[-1] - values[0] < 2 * len(values)
    return profile.dtype.is_integer() and (has_key_name(profile.name) or is_dense)


def _declared_groups(profiles: list[Profile], bundles: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return the bundles that the caller declared, without empty columns; those that share a column are one."""
    column_ids = {p.name: i for i, p in enumerate(profiles)}
    key_names = [name for group in bundles for name in group if profiles[column_ids[name]].kind == "key"]
    if key_names:
        raise OptionError(
            f"bundles: {key_names[0]!r} looks like an identifier. Take it out of the bundle, or say "
            f"columns={{{key_names[0]!r}: 'categorical'}} to have it modelled."
        )
    id_groups = [[column_ids[name] for name in group] for group in bundles]
    merged_groups: list[set[int]] = []
    for group in id_groups:
        members = {i for i in group if profiles[i].kind != "empty"}
        members = members.union(*(other for other in merged_groups if other & members))
        merged_groups = [*(other for other in merged_groups if not other & members), members]
    return [sorted(group) for group in merged_groups if len(group) > 1]


def _step_targets(
    frame: pl.DataFrame, profiles: list[Profile], discrete: dict[int, Discrete], lines: dict[int, Floats]
) -> dict[int, Discrete]:
    """Return candidate step functions: columns with at least two rows per value on average."""
    targets = {i: column for i, column in discrete.items() if column.n_values * 2 <= frame.height}
    for i in lines:
        if i not in targets and profiles[i].is_exact and len(profiles[i].numbers.values) * 2 <= frame.height:
            targets[i] = _ids(frame[profiles[i].name], profiles[i])
    return targets


def _steps_of_roots(lines: dict[int, Floats], targets: dict[int, Discrete], n_rows: int) -> list[Step]:
    """Find step functions of root lines only: a month is assigned to the timestamp, not to the date derived from it."""
    lead_lines: dict[int, int] = {}
    for step in find_steps(lines, targets, n_rows):
        if step.line not in lead_lines:  # of two identical columns, the first one leads
            lead_lines[step.target] = step.line
    if not lead_lines:
        return []
    root_lines = {line: axis_values for line, axis_values in lines.items() if line not in lead_lines}
    return find_steps(root_lines, {key: column for key, column in targets.items() if key not in root_lines}, n_rows)


def _ids(series: pl.Series, profile: Profile) -> Discrete:
    """Return a column as integer ids, one per distinct value, null and NaN included."""
    all_points = np.ones(len(profile.numbers.values), dtype=bool)
    column = _bare_column(profile, all_points)
    value_ids = np.unique(column_tokens(series, column), return_inverse=True)[1]
    return Discrete(value_ids.astype(np.int32), int(value_ids.max()) + 1)


def _axis_values(series: pl.Series, profile: Profile) -> Floats:
    return to_axis_values(series, _bare_column(profile, np.zeros(len(profile.numbers.values), dtype=bool)))


def _bare_column(profile: Profile, points: Flags) -> Column:
    is_number = profile.kind == "numeric"
    needs_levels = is_number and profile.axis is not None and not profile.axis.lossless
    levels = profile.levels.filter(pl.Series(points)) if needs_levels else profile.levels
    axis_points = profile.numbers.values[points] if is_number else np.empty(0)
    return Column(
        profile.name,
        profile.dtype,
        profile.kind,
        levels,
        axis_points,
        profile.axis,
        None,
        profile.nulls,
        profile.nans,
    )


def _column(profile: Profile, points: Flags | None) -> Column:
    if profile.kind != "key":
        return _bare_column(profile, np.empty(0, dtype=bool) if points is None else points)
    return Column(profile.name, profile.dtype, "key", profile.levels, key=profile.key, nulls=profile.nulls)


def _atoms(profile: Profile) -> Flags:
    return find_atoms(profile.numbers) if profile.atoms is None else profile.atoms


def _lines(
    columns: tuple[Column, ...],
    profiles: list[Profile],
    atoms: dict[int, Flags],
    grouped: set[int],
    steps: list[Step],
) -> tuple[list[Variable], list[list[int]]]:
    """Return the number lines with interval states, and the columns that each may determine."""
    steps_by_line: dict[int, list[Step]] = {}
    for step in steps:
        steps_by_line.setdefault(step.line, []).append(step)
    segments = find_segments(
        {
            i: (profiles[i].numbers, atoms[i], _is_grid(columns[i]))
            for i in atoms
            if i not in grouped and not atoms[i].all()
        }
    )
    line_variables = [
        _line(columns[i], i, profiles[i], atoms[i], cuts, steps_by_line.get(i, [])) for i, cuts in segments.items()
    ]
    return line_variables, [[step.target for step in steps_by_line.get(i, [])] for i in segments]


def _points_of_column(column: Column, column_id: int) -> Variable:
    """Return the variable of a column of points only: its states are null, NaN, then the levels in order."""
    tokens = _empty_tokens(column) + list(range(FIRST_LEVEL, FIRST_LEVEL + column.n_points))
    return points_variable((column_id,), np.array(tokens, dtype=np.int32)[:, None])


def _combinations(frame: pl.DataFrame, columns: tuple[Column, ...], group: list[int]) -> Ints:
    """One row per combination of the tokens of several discrete columns, sorted."""
    tokens = [column_tokens(frame[columns[i].name], columns[i]) for i in group]
    if not frame.height:
        return np.empty((0, len(group)), dtype=np.int32)
    combined = combine([Discrete(member_tokens, int(member_tokens.max()) + 1) for member_tokens in tokens])
    first_rows = np.zeros(combined.n_values, dtype=np.int64)
    first_rows[combined.ids[::-1]] = np.arange(len(combined.ids))[::-1]
    return np.stack([member_tokens[first_rows] for member_tokens in tokens], axis=1).astype(np.int32)


def points_variable(column_ids: tuple[int, ...], tokens: Ints) -> Variable:
    """Return a variable of points only, whose codes equal its states."""
    codes = np.arange(len(tokens), dtype=np.int32)
    return Variable(column_ids, tokens, np.zeros(len(tokens), dtype=bool), codes, codes)


def _line(column: Column, column_id: int, profile: Profile, atoms: Flags, cuts: Floats, steps: list[Step]) -> Variable:
    """Return a number line with interval states, which are also cut where its step functions change value."""
    assert column.axis is not None
    step_edges = [round_cuts(step.cuts, column.axis, column.dtype) for step in steps]
    segments = np.unique(np.concatenate([cuts, *step_edges]))
    edges = np.union1d(cut_bins(profile.numbers, atoms, grid=column.axis.grid), segments)
    return _line_variable(column, column_id, edges, segments, profile.numbers.values[~atoms][[0, -1]])


def _line_variable(column: Column, column_id: int, edges: Floats, segments: Floats, between: Floats) -> Variable:
    """Return a variable with states for null, NaN, spikes and intervals.

    `between` holds the smallest and the largest value that is not a spike.
    """
    empty_tokens = _empty_tokens(column)
    first_bin = len(empty_tokens)
    point_codes = first_bin + np.searchsorted(edges, column.points, side="right")
    segment_codes = first_bin + np.searchsorted(edges, segments)
    first_codes, last_codes = (
        np.array([first_bin, *(segment_codes + 1)]),
        np.array([*segment_codes, first_bin + len(edges)]),
    )
    outer_codes = first_bin + np.searchsorted(edges, between, side="right")
    first_codes[0], last_codes[-1] = min(outer_codes[0], last_codes[0]), max(outer_codes[1], first_codes[-1])
    code_low = np.concatenate([np.arange(first_bin), point_codes, first_codes])
    code_high = np.concatenate([np.arange(first_bin), point_codes, last_codes])
    point_tokens = np.arange(FIRST_LEVEL, FIRST_LEVEL + len(column.points))
    tokens = np.concatenate([empty_tokens, point_tokens, np.full(len(segments) + 1, column.between)]).astype(np.int32)
    is_interval = tokens == column.between
    return Variable(
        (column_id,),
        tokens[:, None],
        is_interval,
        code_low.astype(np.int32),
        code_high.astype(np.int32),
        edges,
        segments,
        first_bin,
    )


def _read_off(frame: pl.DataFrame, columns: tuple[Column, ...], line: Variable, targets: list[int]) -> list[Ints]:
    """Return the token of each target per state of the line; -1 for states without rows, -2 for several tokens."""
    if not targets:
        return []
    row_states, _ = encode_states(frame, Schema(columns, (line,), frame.height), 0)
    readings = []
    for target in targets:
        row_tokens = column_tokens(frame[columns[target].name], columns[target])
        state_tokens = np.full(line.n_states, NO_ROW, dtype=np.int32)
        state_tokens[row_states] = row_tokens
        state_tokens[row_states[state_tokens[row_states] != row_tokens]] = SEVERAL
        readings.append(state_tokens)
    return readings


def _merge_readings(one: Ints, other: Ints) -> Ints:
    merged = np.where(one == NO_ROW, other, one)
    return np.where((other != NO_ROW) & (other != merged), SEVERAL, merged).astype(np.int32)


def _with_members(line: Variable, targets: list[int], readings: list[Ints]) -> Variable:
    """Add the columns that the line determines: those with at most one token in each state."""
    for target, reading in zip(targets, readings, strict=True):
        if np.any(reading == SEVERAL):
            continue
        # States without rows take the token of their left neighbour: interval states are in the order of the line.
        state_tokens = reading.copy()
        for state in np.flatnonzero(state_tokens == NO_ROW):
            known_states = np.flatnonzero(state_tokens[:state] >= 0)
            state_tokens[state] = (
                state_tokens[known_states[-1]] if len(known_states) else state_tokens[state_tokens >= 0][0]
            )
        line = _with_member(line, target, state_tokens)
    return line


def _with_member(variable: Variable, target: int, tokens: Ints) -> Variable:
    all_tokens = np.column_stack([variable.tokens, tokens]).astype(np.int32)
    return replace(variable, columns=(*variable.columns, target), tokens=all_tokens)


def _empty_tokens(column: Column) -> list[int]:
    return [token for token, rows in ((NULL, column.nulls), (NAN, column.nans)) if rows]


def _is_grid(column: Column) -> bool:
    return column.axis is not None and column.axis.grid
