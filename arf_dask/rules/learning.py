"""Learn the rules of a table: find them on a sample, add declared rules, and verify both on all rows, part by part."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.checks import check_same_columns
from arf_dask.data.date_search import are_dates
from arf_dask.data.key_learning import names_rows
from arf_dask.data.number_texts import holds_numbers
from arf_dask.data.parts import DataPart, PartGroup, Parts, group_parts
from arf_dask.errors import DataError, RuleWarning, warn_user
from arf_dask.rules.building import Suggested, build, named_columns, suggest
from arf_dask.rules.declaring import Declared, check_declared, read_rules
from arf_dask.rules.finding import MOST_COLUMNS, SAMPLE_ROWS, Findings, find_rules, find_text_dates
from arf_dask.rules.relations import Relations, Rule
from arf_dask.rules.transforms import Transform
from arf_dask.rules.verification import Asked, ColumnFacts, Counted, column_facts, count, merge_counts, merge_facts
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.runtime.tasks import Runner

logger = logging.getLogger(__name__)

SURELY_DIFFERENT = 0.99  # minimum share of distinct texts in a sample for a column to be an identifier


@dataclass(frozen=True, eq=False)
class ReducedPart:
    """A part of modelled rows, converted from the rows of another part when it is loaded."""

    part: DataPart
    relations: Relations

    @property
    def rows(self) -> int:
        return self.part.rows

    def load(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        needed_names = None if columns is None else self.relations.needed(columns)
        return self.relations.forward(self.part.load(needed_names), columns)

    def on_cluster(self, client: Any) -> Any:
        if not hasattr(self.part, "on_cluster"):
            return self
        return client.submit(ReducedPart, self.part.on_cluster(client), self.relations, pure=False)


def learn_relations(
    parts: Parts,
    *,
    rules: Sequence[Any] | None,
    find: bool,
    find_dates: bool = False,
    strict: bool,
    keys: Collection[str],
    fixed: Collection[str],
    runner: Runner,
    report: Progress,
) -> Relations:
    """Learn the relations of a table.

    Args:
        parts: the table.
        rules: rules that the caller declares.
        find: whether to search for further rules.
        find_dates: whether to search for text columns of dates, if not for all rules.
        strict: whether to raise if training rows break a declared rule; otherwise warn.
        keys: identifiers, which no rule may refer to.
        fixed: columns that no found rule may determine, because the caller specifies how to model them.
        runner: runs the tasks.
        report: receives progress updates.
    """
    declared = read_rules(rules)
    check_declared(declared, parts.dtypes, keys)
    find = find and _few_enough(len(parts.dtypes))
    if not find and not find_dates and not declared.comparisons:
        return Relations(tuple(parts.dtypes), parts.dtypes, {}, _together(declared), ())
    sample = sample_rows(parts, runner)
    findings = Findings([], [], [], [])
    if find:
        key_like_names = {
            series.name for series in sample if _names_rows(series, parts.n_rows) or _is_pattern(series.name)
        }
        with np.errstate(all="ignore"):  # guesses that overflow are rejected
            findings = find_rules(sample, {*keys, *key_like_names}, generator(0, Stage.RULES), parts.n_rows)
    elif find_dates:
        findings = find_text_dates(sample, keys)
    findings = findings.without(fixed)
    relations = _verified(parts, sample, suggest(findings, declared), runner, report)
    _tell(relations, parts.n_rows, strict)
    return relations


def reduced_parts(parts: Parts, relations: Relations) -> Parts:
    """Return the parts converted to modelled rows."""
    if not relations.transforms:
        return parts
    check_same_columns(parts.dtypes, relations.dtypes)
    empty_frame = relations.forward(pl.DataFrame(schema=parts.dtypes))
    return replace(parts, dtypes=dict(empty_frame.schema), items=[ReducedPart(part, relations) for part in parts.items])


def sample_rows(parts: Parts, runner: Runner) -> pl.DataFrame:
    """Sample rows from the whole table, with a fixed seed."""
    row_index = np.arange(parts.n_rows)
    if parts.n_rows > SAMPLE_ROWS:
        row_index = np.sort(generator(0, Stage.RULES, 1).choice(parts.n_rows, SAMPLE_ROWS, replace=False))
    part_groups = group_parts(parts)
    frames = list(runner.map(_sampled, row_index, part_groups))
    return pl.concat(frames) if frames else pl.DataFrame(schema=parts.dtypes)


def _sampled(wanted: np.ndarray[tuple[int], np.dtype[np.int64]], group: PartGroup) -> pl.DataFrame:
    first_row, frames = group[0], []
    for part in group[1]:
        low_index, high_index = np.searchsorted(wanted, [first_row, first_row + part.rows])
        if high_index > low_index:
            frames.append(part.load()[wanted[low_index:high_index] - first_row])
        first_row += part.rows
    return pl.concat(frames) if frames else group[1][0].load()[:0]


def _verified(parts: Parts, sample: pl.DataFrame, suggested: Suggested, runner: Runner, report: Progress) -> Relations:
    names = named_columns(suggested)
    part_groups = group_parts(parts)

    def count_all(asked: Asked) -> Counted:
        return runner.reduce(_count_group, (asked, names), part_groups, merge_counts, _quiet)

    column_summaries: dict[str, ColumnFacts] = {}
    grids = {grid.target.name: grid for grid in suggested.grids}
    if names:
        report.stage("rules", len(part_groups))
        column_summaries = runner.reduce(_facts_of_group, (names, grids), part_groups, merge_facts, report.advance)
    if not names:
        return Relations(tuple(sample.columns), dict(sample.schema), {}, _together(suggested.declared), ())
    return build(suggested, sample, column_summaries, count_all)


def _quiet(*_: Any) -> None:
    """Ignore the progress of a quick pass."""


def _count_group(shared: tuple[Asked, list[str]], group: PartGroup) -> Counted:
    request, column_names = shared
    return reduce(merge_counts, (count(request, part.load(column_names)) for part in group[1]))


def _facts_of_group(shared: tuple[list[str], dict[str, Transform]], group: PartGroup) -> dict[str, ColumnFacts]:
    names, grids = shared
    return reduce(merge_facts, (column_facts(part.load(names), grids) for part in group[1]))


def _together(declared: Declared) -> tuple[Rule, ...]:
    return tuple(Rule(" + ".join(group), "together", group, 1.0, False) for group in declared.together)


def _is_pattern(name: str) -> bool:
    """Whether Polars would interpret a column name as a pattern."""
    return name == "*" or (name.startswith("^") and name.endswith("$"))


def _few_enough(n_columns: int) -> bool:
    """Whether a table is narrow enough for the search; otherwise log a warning."""
    if n_columns > MOST_COLUMNS:
        text = "rules are not looked for in %d columns, more than %d. Declare those that matter with rules=."
        logger.warning(text, n_columns, MOST_COLUMNS)
    return n_columns <= MOST_COLUMNS


def _names_rows(series: pl.Series, n_rows: int) -> bool:
    """Whether a column appears to identify rows, judging by a sample."""
    known_values = series.alias("").drop_nulls()
    if not len(known_values):
        return False
    low, high = (int(known_values.min()), int(known_values.max())) if series.dtype.is_integer() else (0, 0)  # type: ignore[arg-type]
    # In a sample, a sequence is thinned out by the sampling rate.
    sampling_factor = max(n_rows / max(len(series), 1), 1.0)
    bounds = low, low + int((high - low) / sampling_factor)
    n_distinct = known_values.n_unique()
    if not series.dtype.is_integer() and sampling_factor > 1 and n_distinct < SURELY_DIFFERENT * len(known_values):
        return False  # texts that repeat in the sample repeat more often in the whole table
    if are_dates(known_values) or holds_numbers(known_values):
        return False
    return names_rows(series.name, series.dtype, len(known_values), n_distinct, bounds)


def _broken_share(rule: Rule, n_rows: int) -> str:
    n_broken = max(1, round((1 - rule.share) * n_rows))
    return f"in about {n_broken:,} of {n_rows:,} rows ({100 * (1 - rule.share):.{0 if rule.share < 0.9 else 2}f} %)"


def _tell(relations: Relations, n_rows: int, strict: bool) -> None:
    """Log the rules that were found, and warn or raise if training rows break declared rules."""
    for rule in relations.rules:
        if rule.found:
            logger.info("rule found: %s", rule)
    broken_rules = [rule for rule in relations.rules if not rule.found and rule.share < 1.0]
    if broken_rules:
        rule_list = "; ".join(f"{rule.text!r} {_broken_share(rule, n_rows)}" for rule in broken_rules)
        text = f"training rows break declared rules: {rule_list}. All rows that are drawn satisfy them."
        if strict:
            raise DataError(f"{text} Correct the rows or the rules, or say strict_rules=False.")
        warn_user(text, RuleWarning)
