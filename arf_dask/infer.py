"""From data to their schema: kinds, levels, spikes, bundles, bins and the order of the levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.bundles import Discrete, flag_ties, sample_rows
from arf_dask.encode import encode_codes
from arf_dask.order import level_scores
from arf_dask.parts import Group, Parts, group_parts, load_each
from arf_dask.plan import (
    Bundles,
    Observed,
    Plan,
    asked_columns,
    finish_plan,
    make_plan,
    merge_observed,
    observe,
    points_variable,
)
from arf_dask.profile import check_frame, check_kinds, profile_frame
from arf_dask.progress import Progress
from arf_dask.schema import NULL, Floats, Ints, Schema, Variable
from arf_dask.survey import survey
from arf_dask.tasks import Runner

ORDER_ROWS = 10_000
ORDER_BUCKETS = 16
GATE = 0.1  # how strongly missingness must depend on another variable for trees to split on it first
MOST_GATES = 4


def infer_schema(
    frame: pl.DataFrame, *, kinds: Mapping[str, str], keys: Sequence[str], bundles: Bundles = "auto"
) -> Schema:
    """Everything the later stages need to know of the columns, from all rows."""
    check_frame(frame)
    check_kinds(frame.schema, kinds, keys)
    plan = make_plan(frame, profile_frame(frame, kinds, keys), bundles)
    return order_levels(finish_plan(plan, observe(plan, frame), frame.height), frame)


def infer_parts(
    parts: Parts,
    rows: NDArray[np.int64],
    *,
    kinds: Mapping[str, str],
    keys: Sequence[str],
    bundles: Bundles,
    runner: Runner,
    report: Progress,
) -> tuple[Schema, pl.DataFrame]:
    """The same from data larger than memory, and the rows with these numbers.

    What hangs together, and the order of levels, come from these rows; whatever must hold for all rows, or have room
    for all values, comes from all of them.
    """
    told = [] if isinstance(bundles, str | bool) else [name for group in bundles for name in group]
    profiles, sample = survey(parts, rows, kinds, keys, told, runner, report)
    plan = make_plan(sample, profiles, bundles)
    observed = observe(plan, sample)
    if asked_columns(plan):
        groups = group_parts(parts)
        report.stage("columns that hang together", len(groups))
        observed = runner.reduce(observe_parts, plan, groups, merge_observed, report.advance)
    return order_levels(finish_plan(plan, observed, parts.n_rows), sample), sample


def observe_parts(plan: Plan, group: Group) -> Observed:
    """What the rows of some parts say of a plan."""
    return reduce(merge_observed, (observe(plan, frame) for frame in load_each(group[1], asked_columns(plan))))


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
    return points_variable(variable.columns, variable.tokens[order])
