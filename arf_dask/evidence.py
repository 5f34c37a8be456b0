"""What the rows of a frame say about the variables: states, groups of states, places on a line, and ranges of codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.encode import column_tokens, encode_states, line_codes, line_places
from arf_dask.schema import Flags, Floats, Ints, Schema, Variable

Rows = NDArray[np.int64]
IMPOSSIBLE = -1


class Known(NamedTuple):
    """What rows that know the same members of a variable say about it. One entry per row.

    Where the number line itself is known: a point, an interval and a place in it (a grid may have both). Else a group
    of states, all those that agree with what is known.
    """

    point: Ints  # state, or group where there are groups; -1: none
    interval: Ints | None  # state of the interval the number lies in, -1: none
    places: Floats | None
    groups: Ints | None  # per state: its group


class Evidence(NamedTuple):
    """All that the rows of a frame know."""

    n_rows: int
    low: Ints  # (row, variable): the codes a row may have
    high: Ints
    known: list[list[Known]]  # per variable: one for each set of members that some rows know
    pattern: list[NDArray[np.int8]]  # per variable, per row: which of these; -1: nothing is known
    entry: list[Ints]  # per variable, per row: its entry there
    exact: bool  # every row knows the code of every variable
    possible: Flags  # per row: nothing in it is beyond all leaves


def read_evidence(frame: pl.DataFrame, schema: Schema, known: Mapping[str, Flags]) -> Evidence:
    """What every row says, in the columns and rows where `known` is true."""
    n, width = frame.height, len(schema.variables)
    low = np.zeros((n, width), dtype=np.int32)
    high = np.tile(np.array([v.n_codes - 1 for v in schema.variables], dtype=np.int32), (n, 1))
    parts: list[list[Known]] = []
    patterns, entries = [], []
    for number, variable in enumerate(schema.variables):
        members = [m for m, place in enumerate(variable.columns) if schema.columns[place].name in known]
        flags = [known[schema.columns[variable.columns[m]].name] for m in members]
        pattern, sets = _patterns(flags, n)
        entry = np.zeros(n, dtype=np.int32)
        found = []
        for number_of, some in enumerate(sets):
            rows = np.flatnonzero(pattern == number_of)
            entry[rows] = np.arange(len(rows), dtype=np.int32)
            part, codes = _known(frame[rows], schema, number, [members[i] for i in some])
            low[rows, number], high[rows, number] = codes
            found.append(part)
        parts.append(found)
        patterns.append(pattern)
        entries.append(entry)
    possible = np.asarray((low >= 0).all(axis=1))
    exact = bool(np.array_equal(low, high))
    return Evidence(n, low, high, parts, patterns, entries, exact, possible)


def forget(evidence: Evidence, rows: Rows, freed: Flags, schema: Schema, *, stay: bool = False) -> Evidence:
    """The evidence of some rows without the variables that are `freed` (row, variable).

    With `stay`, a row stays in the leaves that its number would lie in: beyond all numbers seen, in the outermost.
    """
    low, high = evidence.low[rows].copy(), evidence.high[rows].copy()
    patterns, entries = [part[rows] for part in evidence.pattern], [part[rows] for part in evidence.entry]
    for number, variable in enumerate(schema.variables):
        here = freed[:, number] & ~(stay & (low[:, number] >= 0))
        low[here, number], high[here, number] = 0, variable.n_codes - 1
        patterns[number] = np.where(freed[:, number], np.int8(-1), patterns[number])
    possible = np.asarray((low >= 0).all(axis=1))
    return Evidence(len(rows), low, high, evidence.known, patterns, entries, False, possible)


def into_range(evidence: Evidence, rows: Rows, schema: Schema) -> Evidence:
    """The evidence with numbers beyond the range seen moved to its ends, in some rows."""
    known = []
    for number, variable in enumerate(schema.variables):
        axis = schema.columns[variable.columns[0]].axis
        parts = list(evidence.known[number])
        for which, part in enumerate(parts):
            if part.places is not None and axis is not None:
                places = part.places.copy()
                entry = evidence.entry[number][rows[evidence.pattern[number][rows] == which]]
                places[entry] = np.clip(places[entry], axis.low, axis.high)
                parts[which] = part._replace(places=places)
        known.append(parts)
    return evidence._replace(known=known)


def _patterns(flags: list[Flags], n: int) -> tuple[NDArray[np.int8], list[list[int]]]:
    """Which members each row knows: a number per set of members, -1 for none."""
    pattern = np.full(n, -1, dtype=np.int8)
    if not flags:
        return pattern, []
    if all(flag.all() for flag in flags) and n:
        return np.zeros(n, dtype=np.int8), [list(range(len(flags)))]
    of_row = np.zeros(n, dtype=np.int64)
    chosen: list[list[int]] = [[]]
    for member, flag in enumerate(flags):
        # Sets of one more member, renumbered as they are found: few of all that could be.
        key = 2 * of_row + flag
        found = np.flatnonzero(np.bincount(key))
        of_row = np.searchsorted(found, key)
        chosen = [[*chosen[one // 2], member] if one % 2 else chosen[one // 2] for one in found.tolist()]
    some = [number for number, members in enumerate(chosen) if members]
    new = np.full(len(chosen), -1, dtype=np.int8)
    new[some] = np.arange(len(some))
    return new[of_row], [chosen[number] for number in some]


def _known(frame: pl.DataFrame, schema: Schema, number: int, members: list[int]) -> tuple[Known, tuple[Ints, Ints]]:
    """What these rows say about a variable by the given members; lowest and highest code (-1: none)."""
    variable = schema.variables[number]
    if variable.is_line and members[0] == 0:
        return _known_places(frame, schema, variable, members)
    if len(members) == len(variable.columns):
        states = encode_states(frame, schema, number)[0]
        return Known(states, None, None, None), (states, states)
    groups, group = _group_states(frame, schema, variable, members)
    n_groups = int(groups.max()) + 1
    low, high = np.full(n_groups + 1, variable.n_codes), np.full(n_groups + 1, -1)
    np.minimum.at(low, groups, variable.code_low)
    np.maximum.at(high, groups, variable.code_high)
    low[-1] = IMPOSSIBLE
    return Known(group, None, None, groups), (low[group].astype(np.int32), high[group].astype(np.int32))


def _known_places(
    frame: pl.DataFrame, schema: Schema, variable: Variable, members: list[int]
) -> tuple[Known, tuple[Ints, Ints]]:
    lead = schema.columns[variable.columns[0]]
    assert lead.axis is not None
    places = line_places(frame[lead.name], lead)
    tokens = column_tokens(frame[lead.name], lead)
    by_token = np.full(lead.between + 1, IMPOSSIBLE, dtype=np.int32)
    points = np.flatnonzero(~variable.interval)
    by_token[variable.tokens[points, 0]] = points
    point = by_token[tokens]
    # On a grid a spike's number may come from the interval around it too.
    numbers = ~np.isnan(places) & (places == np.rint(places)) if lead.axis.grid else tokens == lead.between
    interval = np.full(len(point), IMPOSSIBLE, dtype=np.int32)
    if variable.interval.any():
        segment = np.searchsorted(variable.segments, places[numbers], side="right")
        interval[numbers] = variable.first_interval + segment
    for member in members[1:]:
        column = schema.columns[variable.columns[member]]
        wanted = column_tokens(frame[column.name], column)
        point = np.where(variable.tokens[point, member] == wanted, point, IMPOSSIBLE).astype(np.int32)
        interval = np.where(variable.tokens[interval, member] == wanted, interval, IMPOSSIBLE).astype(np.int32)
    codes = line_codes(frame[lead.name], variable, lead)
    codes = np.where((point >= 0) | (interval >= 0), codes, IMPOSSIBLE).astype(np.int32)
    return Known(point, interval, places, None), (codes, codes)


def _group_states(frame: pl.DataFrame, schema: Schema, variable: Variable, members: list[int]) -> tuple[Ints, Ints]:
    """The states that agree in these members as groups, and the group of every row (-1: none)."""
    n = variable.n_states
    key = np.zeros(n + frame.height, dtype=np.int64)
    for member in members:
        column = schema.columns[variable.columns[member]]
        tokens = np.concatenate([variable.tokens[:, member], column_tokens(frame[column.name], column)])
        key = np.unique(key * (int(tokens.max(initial=0)) + 2) + tokens + 1, return_inverse=True)[1]
    values, groups = np.unique(key[:n], return_inverse=True)
    place = np.minimum(np.searchsorted(values, key[n:]), len(values) - 1)
    return groups.astype(np.int32), np.where(values[place] == key[n:], place, IMPOSSIBLE).astype(np.int32)
