"""Learn the schema of a table: kinds, levels, spikes, bundles, bins and the order of the levels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.parts import PartGroup, Parts, group_parts, load_each, one_part
from arf_dask.data.profiling import profile_parts
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner, Threads
from arf_dask.schema.bundles import flag_ties, screening_rows
from arf_dask.schema.columns import (
    NULL,
    Schema,
    Variable,
)
from arf_dask.schema.discrete import Discrete
from arf_dask.schema.draft import (
    DraftCheck,
    SchemaDraft,
    check_draft,
    columns_to_check,
    draft_schema,
    finish_draft,
    merge_checks,
    points_variable,
)
from arf_dask.schema.encoding import encode_codes
from arf_dask.schema.level_order import coarse_members, level_scores, nested_orders
from arf_dask.typing import Bundles, Floats, Ints

ORDER_ROWS = 10_000
ORDER_BUCKETS = 16
GATE = 0.1  # how strongly missingness must depend on another variable for trees to split on it first
MOST_GATES = 4


class LearnedSchema(NamedTuple):
    """A schema learned from all rows of a table, and the sample of rows that was kept."""

    schema: Schema
    sample: pl.DataFrame


def infer_schema(
    frame: pl.DataFrame,
    *,
    kinds: Mapping[str, str],
    keys: Sequence[str],
    bundles: Bundles = "auto",
    together: Sequence[Sequence[str]] = (),
    separate: Collection[str] = (),
) -> Schema:
    """Learn the schema of a frame in memory, as a table of one part with all rows kept.

    Args:
        frame: The rows to learn from.
        kinds: Declared kinds, by column; they override what would be inferred.
        keys: Columns declared as identifiers.
        bundles: Columns modelled as one: "auto" finds them, False has none, a list of lists of names declares them.
        together: Further groups of columns to model as one, declared by rules.
        separate: Columns that join no bundle unless declared, because their values are changed after drawing.
    """
    schema_options = {"kinds": kinds, "keys": keys, "bundles": bundles, "together": together, "separate": separate}
    return learn_schema(one_part(frame), None, **schema_options, runner=Threads(1), report=Progress()).schema  # type: ignore[arg-type]


def learn_schema(
    parts: Parts,
    kept_rows: NDArray[np.int64] | None,
    *,
    kinds: Mapping[str, str],
    keys: Sequence[str],
    bundles: Bundles,
    together: Sequence[Sequence[str]] = (),
    separate: Collection[str] = (),
    runner: Runner,
    report: Progress,
) -> LearnedSchema:
    """Learn the schema of a table from all of its rows, and keep a sample of the rows.

    Bundles and the order of levels are estimated from the kept rows. Whatever must hold in every row or cover every
    value is computed from all rows.

    Args:
        parts: The table.
        kept_rows: Ascending indices of the rows to keep; None keeps all rows.
        kinds: Declared kinds, by column; they override what would be inferred.
        keys: Columns declared as identifiers.
        bundles: Columns modelled as one: "auto" finds them, False has none, a list of lists of names declares them.
        together: Further groups of columns to model as one, declared by rules.
        separate: Columns that join no bundle unless declared, because their values are changed after drawing.
        runner: Runs the tasks.
        report: Receives progress updates.
    """
    declared_groups = [*together, *([] if isinstance(bundles, str | bool) else bundles)]
    declared_members = list(dict.fromkeys(name for group in declared_groups for name in group))
    profiles, sample = profile_parts(parts, kept_rows, kinds, keys, declared_members, runner, report)
    draft = draft_schema(sample, profiles, bundles, together, separate)
    if kept_rows is None or not columns_to_check(draft):
        draft_check = check_draft(draft, sample)
    else:
        part_groups = group_parts(parts)
        report.stage("columns that hang together", len(part_groups))
        draft_check = runner.reduce(check_group, draft, part_groups, merge_checks, report.advance)
    return LearnedSchema(order_levels(finish_draft(draft, draft_check, parts.n_rows), sample), sample)


def check_group(draft: SchemaDraft, group: PartGroup) -> DraftCheck:
    """Check a draft against the rows of a group of parts."""
    columns = columns_to_check(draft)
    return reduce(merge_checks, (check_draft(draft, frame) for frame in load_each(group[1], columns)))


def order_levels(schema: Schema, frame: pl.DataFrame) -> Schema:
    """Order the states of each unordered variable so that neighbours are similar, and find the gates."""
    sample = frame[screening_rows(frame.height, ORDER_ROWS)]
    sample_codes = encode_codes(sample, schema)
    buckets = [
        _bucketed(sample_codes[:, v].astype(np.int32), schema.variables[v]) for v in range(sample_codes.shape[1])
    ]
    scores = level_scores(buckets)
    coarse = {v: _coarse_members(variable) for v, variable in enumerate(schema.variables)}
    nested = nested_orders(buckets, {v: members for v, members in coarse.items() if members})
    ordered_variables = []
    for number, variable in enumerate(schema.variables):
        if number in nested:
            variable = _in_order(variable, nested[number])
        elif not variable.is_line and not _is_ordered(variable, schema):
            variable = _reorder(variable, scores.levels[number])
        ordered_variables.append(variable)
    return Schema(schema.columns, tuple(ordered_variables), schema.n_rows, find_gates(schema, buckets))


def find_gates(schema: Schema, buckets: list[Discrete]) -> tuple[int, ...]:
    """Return the variables whose missingness depends on another variable, the strongest dependence first."""
    nullable_ids = [
        number
        for number, v in enumerate(schema.variables)
        if len(v.columns) == 1 and v.tokens[0, 0] == NULL and v.n_states > 1 and not (v.is_line and v.first_bin == 0)
    ]
    if not nullable_ids:
        return ()
    ties = flag_ties(np.stack([buckets[number].ids == 0 for number in nullable_ids], axis=1), buckets)
    for flag_index, number in enumerate(nullable_ids):
        ties[flag_index, number] = 0.0
    strengths = dict(zip(nullable_ids, ties.max(axis=1), strict=True))
    gate_ids = [number for number, strength in strengths.items() if strength >= GATE]
    return tuple(sorted(gate_ids, key=lambda number: -strengths[number])[:MOST_GATES])


def _coarse_members(variable: Variable) -> list[Ints]:
    """Return the levels of the coarse columns of a bundle; none for number lines and single columns."""
    return [] if variable.is_line or len(variable.columns) == 1 else coarse_members(variable.tokens)


def _is_ordered(variable: Variable, schema: Schema) -> bool:
    """Whether the states have a natural order, as those of a single numeric column do."""
    return len(variable.columns) == 1 and schema.columns[variable.columns[0]].kind == "numeric"


def _bucketed(codes: Ints, variable: Variable) -> Discrete:
    """Return the codes for scoring, with the codes of long number lines grouped into a few buckets."""
    if not variable.is_line or variable.n_codes <= ORDER_BUCKETS:
        return Discrete(codes, variable.n_codes)
    first_bin = variable.first_bin
    bin_codes = codes[codes >= first_bin]
    bucket_cuts = (
        np.unique(np.quantile(bin_codes, np.linspace(0, 1, ORDER_BUCKETS + 1)[1:-1])) if len(bin_codes) else bin_codes
    )
    bucket_codes = first_bin + np.searchsorted(bucket_cuts, codes)
    return Discrete(np.where(codes < first_bin, codes, bucket_codes).astype(np.int32), first_bin + ORDER_BUCKETS)


def _reorder(variable: Variable, score: Floats) -> Variable:
    """Sort the states by score; the null of a single column stays first, so that one split separates missing rows."""
    is_single = len(variable.columns) == 1
    null_rank = np.where(is_single & (variable.tokens[:, 0] == NULL), 0, 1)
    state_order = np.lexsort((np.arange(variable.n_states), score, null_rank))
    return _in_order(variable, state_order)


def _in_order(variable: Variable, state_order: NDArray[np.integer]) -> Variable:
    return points_variable(variable.columns, variable.tokens[state_order])
