"""Build the relations of a table from verified rules: computed columns, states, gaps, grids and remaining checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from arf_dask.rules.declaring import Declared, as_order, formula_of, formula_target
from arf_dask.rules.expressions import (
    Call,
    Comparison,
    Name,
    Node,
    columns_of,
    depends_on_itself,
    split_remainder,
)
from arf_dask.rules.finding import Findings
from arf_dask.rules.grids import with_zones
from arf_dask.rules.order_search import COPY_SHARE, MOST_WRONG
from arf_dask.rules.relations import Relations, Rule
from arf_dask.rules.scoring import LEAST_SHARE, NEARLY_ALL, Scored, describe_formula
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Transform, in_order
from arf_dask.rules.transforms.chain import without_hour
from arf_dask.rules.transforms.decimals import Decimals
from arf_dask.rules.transforms.formula import Computed, Stated, text_sentinel
from arf_dask.rules.transforms.gap import Gap
from arf_dask.rules.transforms.gap_search import is_modelled_by_gap, is_narrow, is_tie, typical_gap, with_clock_gaps
from arf_dask.rules.transforms.granular import Granular
from arf_dask.rules.transforms.hours import hour_source
from arf_dask.rules.transforms.level import SMALLER, Level, finish_levels, left_out_spread
from arf_dask.rules.verification import Asked, ColumnFacts, Counted

MOST_LOWERS = 8
CLEARLY_ORDERED = 0.99  # share of rows from which an order is worth a gap, however much that varies
Count = Callable[[Asked], Counted]


@dataclass(frozen=True)
class Suggested:
    """Found and declared formulas, orders, differences and grids, before they are verified."""

    formulas: tuple[Scored, ...]
    orders: tuple[tuple[str, str], ...]
    differences: tuple[tuple[str, str], ...]
    grids: tuple[Transform, ...]
    declared: Declared
    hours: tuple[Scored, ...] = ()  # formulas for the hours of timestamps that are modelled without them
    levels: tuple[tuple[str, Node], ...] = ()  # numbers with the levels that they hang on


def suggest(findings: Findings, declared: Declared) -> Suggested:
    """Combine findings and declared rules, without findings that would contradict a declared rule."""
    decided_names = {target for rule in declared.comparisons if (target := formula_target(rule)) is not None}
    ordered_pairs = {frozenset(rule.columns) for rule in declared.comparisons if rule.sign not in ("==", "!=")}
    grouped_names = {name for group in declared.together for name in group}
    told_names = decided_names | grouped_names | {name for pair in ordered_pairs for name in pair}
    hours = [one for one in findings.hours if not {one.target, *columns_of(one.formula)} & told_names]
    formulas = [*findings.formulas, *(one for one in findings.hours if one not in hours)]
    formulas = [scored for scored in formulas if scored.target not in decided_names | grouped_names]
    formulas = [scored for scored in formulas if not _circular(scored, declared, formulas)]
    orders = [
        pair for pair in findings.orders if frozenset(pair) not in ordered_pairs and not decided_names & set(pair)
    ]
    orders = [pair for pair in orders if pair[1] not in grouped_names]
    grids = tuple(grid for grid in findings.grids if grid.target.name not in decided_names | grouped_names)
    differences = tuple(findings.differences)
    levels = tuple(one for one in findings.levels if one[0] not in told_names)
    return Suggested(tuple(formulas), tuple(orders), differences, grids, declared, tuple(hours), levels)


def named_columns(suggested: Suggested) -> list[str]:
    """Return all columns that are needed to verify the suggested rules."""
    column_names: dict[str, None] = {}
    for scored in (*suggested.formulas, *suggested.hours):
        column_names.update(dict.fromkeys((scored.target, *columns_of(scored.formula))))
    for pair in (*suggested.orders, *suggested.differences):
        column_names.update(dict.fromkeys(pair))
    for rule in suggested.declared.comparisons:
        column_names.update(dict.fromkeys(rule.columns))
    column_names.update(dict.fromkeys(grid.target.name for grid in suggested.grids))
    for name, node in suggested.levels:
        column_names.update(dict.fromkeys((name, *columns_of(node))))
    return list(column_names)


def build(suggested: Suggested, sample: pl.DataFrame, facts: Mapping[str, ColumnFacts], count: Count) -> Relations:
    """Build the relations of a table from the statistics of its columns and counts over all rows."""
    measured = {name: one.target(name) for name, one in facts.items()}
    # The range of a text is that of the dates that it holds, which only the transform that parses it understands.
    targets = {name: replace(one, low=None, high=None) if one.is_text else one for name, one in measured.items()}
    decimals = {name: target.decimals for name, target in targets.items() if not target.is_text}
    sort_nodes = {grid.target.name: grid.sort_node for grid in suggested.grids}
    pair_rules = [_order(low, "<=", high, sort_nodes) for low, high in suggested.orders]
    pair_rules += [Comparison(Name(one), "!=", Name(other)) for one, other in suggested.differences]
    declared_rules = suggested.declared.comparisons
    formulas = [variant for one in suggested.formulas for variant in _variants(one)]
    usable_formulas = [one for one in formulas if facts[one.target].nans == 0]
    remainder_gaps = [_remainder_gap(one, targets) for one in usable_formulas if one.levels]
    grids = [one.with_target(measured[one.target.name]) for one in suggested.grids if not facts[one.target.name].nans]
    grids = with_zones(grids, [one.formula for one in usable_formulas], sample.columns)
    levels = [(name, node) for name, node in suggested.levels if not facts[name].nans and not targets[name].is_wide]
    request = Asked(
        tuple((targets[one.target], one.formula) for one in (*usable_formulas, *suggested.hours)),
        (*pair_rules, *declared_rules),
        tuple(remainder_gaps),
        decimals,
        tuple(grids),
        tuple((targets[name], node) for name, node in levels),
    )
    row_counts = count(request)
    rules: list[Rule] = []
    transforms: dict[str, Transform] = {}
    _take_declared(suggested.declared, row_counts, len(pair_rules), targets, rules, transforms)
    kept_pairs = [
        rule
        for rule_index, rule in enumerate(pair_rules)
        if row_counts.checked[rule_index] == row_counts.fine[rule_index] > 0
    ]
    near_orders = _near_orders(pair_rules, row_counts, targets)
    ordered_pairs = [rule.columns for rule in (*kept_pairs, *near_orders) if rule.sign == "<="]
    _take_formulas(usable_formulas, row_counts, targets, sample, rules, transforms, ordered_pairs)
    tie_counts = {str(rule): int(row_counts.ties[rule_index]) for rule_index, rule in enumerate(pair_rules)}
    orders = [rule for rule in kept_pairs if rule.sign == "<="]
    nearly_ordered = {name for rule in near_orders for name in rule.columns}
    _take_orders(orders, sort_nodes, tie_counts, nearly_ordered, targets, sample, rules, transforms)
    _take_near_orders(near_orders, targets, sample, rules, transforms)
    rules += [Rule(str(rule), "difference", rule.columns, 1.0, True) for rule in kept_pairs if rule.sign == "!="]
    n_nulls = {name: one.nulls for name, one in facts.items()}
    _take_levels(levels, row_counts, grids, n_nulls, targets, transforms)
    _take_grids(grids, row_counts, targets, rules, transforms)
    _take_hours(suggested.hours, row_counts, len(usable_formulas), facts, targets, rules, transforms)
    measure = RowCounts(count)
    ordered_transforms = [one.refined(sample, measure) for one in _acyclic(with_clock_gaps(transforms, sample))]
    dtypes = dict(sample.schema)
    return Relations(tuple(sample.columns), dtypes, decimals, tuple(rules), tuple(ordered_transforms))


@dataclass(frozen=True)
class RowCounts:
    """Counts over all rows that transforms ask for."""

    count: Count

    def n_off_grid(self, transform: Transform) -> int:
        """Return the number of rows whose value the transform cannot express."""
        return int(self.count(Asked(grids=(transform,))).off_grid[0])

    def digits(self, transform: Transform) -> int:
        """Return the decimals that represent all values of the modelled column, as a bit mask."""
        (summary,) = self.count(Asked(gaps=(transform,))).gaps
        return 0 if summary is None else summary.digits


def _variants(one: Scored) -> list[Scored]:
    """Return a clock formula with midnight as 0 and as 2400: only the full table shows which one holds."""
    match one.formula:
        case Call("clock" | "clock24" as name, arguments):
            other_name = "clock24" if name == "clock" else "clock"
            return [one, replace(one, formula=Call(other_name, arguments))]
    return [one]


def _remainder_gap(one: Scored, targets: Mapping[str, Target]) -> Gap:
    target = targets[one.target]
    decimal_scale = 10**target.dtype.scale if isinstance(target.dtype, pl.Decimal) else 1
    levels = tuple(round(level * decimal_scale) if decimal_scale > 1 else level for level in one.levels)
    return Gap(target, one.formula, 1, None, levels, target.decimals)


def _take_formulas(
    usable: Sequence[Scored],
    counted: Counted,
    targets: Mapping[str, Target],
    sample: pl.DataFrame,
    rules: list[Rule],
    transforms: dict[str, Transform],
    ordered_pairs: Sequence[tuple[str, ...]],
) -> None:
    """Add the formulas that all rows confirm, as computed columns, states or remainders."""
    level_formulas = [scored for scored in usable if scored.levels]
    shares = np.divide(counted.held, counted.known, out=np.zeros(len(counted.known)), where=counted.known > 0)
    for formula_index in np.argsort(-shares[: len(usable)], kind="stable"):
        scored, target = usable[formula_index], targets[usable[formula_index].target]
        columns = (scored.target, *columns_of(scored.formula))
        if scored.target in transforms or is_tie(scored, ordered_pairs, targets, sample):
            continue
        if scored.levels:
            gap_index = level_formulas.index(scored)
            covered_share = counted.covered[gap_index] / max(int(counted.known[formula_index]), 1)
            if covered_share >= NEARLY_ALL:
                rules.append(Rule(describe_formula(scored), "formula", columns, float(covered_share), True))
                transforms[scored.target] = _remainder_gap(scored, targets)
            continue
        least_share = COPY_SHARE if isinstance(scored.formula, Name) else LEAST_SHARE
        if shares[formula_index] < least_share:
            continue
        rules.append(Rule(describe_formula(scored), "formula", columns, float(shares[formula_index]), True))
        if counted.alike[formula_index] == counted.rows:
            transforms[scored.target] = Computed(target, scored.formula)
        else:
            transforms[scored.target] = Stated(target, scored.formula, _sentinel(target, scored.formula, sample))


def _sentinel(target: Target, formula: Node, sample: pl.DataFrame) -> int | float | str:
    """Return a value that the column never has: a number below its minimum, or an unused text."""
    if target.is_text:
        return text_sentinel(formula, sample.get_column(target.name).cast(pl.String))
    low = 0 if target.low is None else target.low
    if not target.is_float:
        return int(low) - 1
    decimals = 0 if target.decimals is None else target.decimals
    return round(float(np.floor(low)) - 1.0, decimals)


def _take_declared(
    declared: Declared,
    counted: Counted,
    first: int,
    targets: Mapping[str, Target],
    rules: list[Rule],
    transforms: dict[str, Transform],
) -> None:
    """Add the declared rules, which hold in every synthetic row even if training rows break them."""
    grouped_names = {name for group in declared.together for name in group}
    for rule_index, rule in enumerate(declared.comparisons, start=first):
        n_checked = int(counted.checked[rule_index])
        share = float(counted.fine[rule_index] / n_checked) if n_checked else 1.0
        kind = {"==": "formula", "!=": "difference"}.get(rule.sign, "order")
        rules.append(Rule(str(rule), kind, rule.columns, share, False))
        target = formula_target(rule)
        if target is not None:
            transforms[target] = _declared_formula(targets[target], formula_of(rule, target), share)
        elif kind == "order":
            gap = _declared_gap(as_order(rule), targets, {*transforms, *grouped_names})
            if gap is not None:
                transforms[gap.target.name] = gap
    rules += [Rule(" + ".join(group), "together", group, 1.0, False) for group in declared.together]


def _declared_formula(target: Target, formula: Node, share: float) -> Transform:
    base, levels = split_remainder(formula)
    if not levels:
        # Where training rows break the formula, it may lead beyond the range that they have.
        return Computed(target if share >= 1.0 else replace(target, low=None, high=None), formula)
    decimal_scale = 10**target.dtype.scale if isinstance(target.dtype, pl.Decimal) else 1
    return Gap(
        target,
        base,
        1,
        None,
        tuple(round(v * decimal_scale) if decimal_scale > 1 else v for v in levels),
        target.decimals,
    )


def _declared_gap(order: Comparison, targets: Mapping[str, Target], taken: Collection[str]) -> Gap | None:
    """Return the gap of the upper or else the lower side, if that is a single column without a transform."""
    for side, base, sign in ((order.right, order.left, 1), (order.left, order.right, -1)):
        if not isinstance(side, Name) or side.column in taken or side.column in columns_of(base):
            continue
        target = targets[side.column]
        if target.is_text or target.is_wide or target.low is None or (order.sign == "<" and not target.unit):
            continue
        return Gap(target, base, sign, target.unit if order.sign == "<" else 0)
    return None


def _order(low: str, sign: str, high: str, sort_nodes: Mapping[str, Node]) -> Comparison:
    """Return the comparison of two columns, or of the dates that their texts stand for."""
    return Comparison(sort_nodes.get(low, Name(low)), sign, sort_nodes.get(high, Name(high)))


def _near_orders(
    pair_rules: Sequence[Comparison], counted: Counted, targets: Mapping[str, Target]
) -> dict[Comparison, float]:
    """Return the orders between numbers or times that some rows break, with the share of rows that keep them."""
    shares = {
        rule: int(counted.fine[index]) / max(int(counted.checked[index]), 1)
        for index, rule in enumerate(pair_rules)
        if rule.sign == "<=" and not any(targets[name].is_text for name in rule.columns)
    }
    return {rule: share for rule, share in shares.items() if 1 - MOST_WRONG <= share < 1}


def _take_orders(
    orders: list[Comparison],
    sort_nodes: Mapping[str, Node],
    ties: Mapping[str, int],
    nearly_ordered: Collection[str],
    targets: Mapping[str, Target],
    sample: pl.DataFrame,
    rules: list[Rule],
    transforms: dict[str, Transform],
) -> None:
    """Add orders as gaps above the largest lower column, without orders that follow from others."""
    lowers: dict[str, list[str]] = {}
    for order in orders:
        low, high = order.columns
        if not (low in transforms and high in transforms):
            lowers.setdefault(high, []).append(low)
    direct = {high: _direct_lowers(high, lowers)[:MOST_LOWERS] for high in lowers}
    for high, direct_lowers in direct.items():
        strict: dict[str, bool] = {}
        for low in direct_lowers:
            strict[low] = ties[str(_order(low, "<=", high, sort_nodes))] == 0 and bool(targets[high].unit)
            text = str(_order(low, "<" if strict[low] else "<=", high, sort_nodes))
            rules.append(Rule(text, "order", (low, high), 1.0, True))
        leaves = (
            [] if high in transforms or targets[high].is_text else _leaves(direct, high, {*transforms, *nearly_ordered})
        )
        for low in leaves:
            gap = Gap(targets[low], Name(high), -1, targets[low].unit if strict[low] else 0)
            if is_modelled_by_gap(gap, sample):
                transforms[low] = gap
        bases = [low for low in direct_lowers if low not in leaves or low not in transforms]
        if high in transforms or not bases or targets[high].is_text:
            continue
        base: Node = Name(bases[0]) if len(bases) == 1 else Call("max", tuple(map(Name, bases)))
        gap = Gap(targets[high], base, 1, targets[high].unit if all(strict[low] for low in bases) else 0)
        if is_modelled_by_gap(gap, sample):
            transforms[high] = gap


def _direct_lowers(high: str, lowers: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lower columns of a column whose order does not follow from other orders."""
    names = lowers[high]
    return [low for low in names if not any(low in lowers.get(other, ()) for other in names if other != low)]


def _leaves(direct: Mapping[str, Sequence[str]], high: str, taken: Collection[str]) -> list[str]:
    """Return the lower columns of a column that belong to no other order, if there are others beside them.

    They are modelled below the column, which keeps a single base: the largest of several columns that are drawn
    independently would be a mixture of them.
    """
    leaves = [
        low
        for low in direct[high]
        if low not in direct and low not in taken and sum(low in lowers for lowers in direct.values()) == 1
    ]
    return leaves if len(leaves) < len(direct[high]) else []


def _take_near_orders(
    near_orders: Mapping[Comparison, float],
    targets: Mapping[str, Target],
    sample: pl.DataFrame,
    rules: list[Rule],
    transforms: dict[str, Transform],
) -> None:
    """Add orders that a few rows break as signed gaps of one of both columns, the closest columns first."""
    gaps: list[tuple[float, Gap, Rule]] = []
    for order, share in near_orders.items():
        low, high = order.columns
        rule = Rule(str(order), "order", (low, high), share, True)
        for gap in (Gap(targets[high], Name(low), 1, None), Gap(targets[low], Name(high), -1, None)):
            gaps.append((typical_gap(gap, sample), gap, rule))
    for _, gap, rule in sorted(gaps, key=lambda one: one[0]):
        is_free = gap.target.name not in transforms and rule not in rules
        is_worth_it = rule.share >= CLEARLY_ORDERED or is_narrow(gap, sample)
        is_useful = is_free and is_worth_it and is_modelled_by_gap(gap, sample)
        if is_useful and in_order([*transforms.values(), gap]) is not None:
            transforms[gap.target.name] = gap
            rules.append(rule)


def _take_grids(
    grids: Sequence[Transform],
    counted: Counted,
    targets: Mapping[str, Target],
    rules: list[Rule],
    transforms: dict[str, Transform],
) -> None:
    """Add the grids that contain the values of all rows, and those of rounded numbers."""
    for grid, n_off_grid in zip(grids, counted.off_grid, strict=True):
        name = grid.target.name
        if name in transforms or n_off_grid or not grid.is_confirmed(targets[name]):
            continue
        transforms[name] = grid
        if grid.text():
            rules.append(Rule(grid.text(), "grid", (name,), 1.0, True))


def _take_levels(
    levels: Sequence[tuple[str, Node]],
    counted: Counted,
    grids: Sequence[Transform],
    n_nulls: Mapping[str, int],
    targets: Mapping[str, Target],
    transforms: dict[str, Transform],
) -> None:
    """Add the numbers that hang on a level, unless another rule decides them or they lie on a grid."""
    grid_of = {grid.target.name: grid for grid in grids}
    candidates: dict[str, list[tuple[float, Node, pl.DataFrame]]] = {}
    for (name, node), summary in zip(levels, counted.levels, strict=True):
        if name not in transforms and summary.height:
            spread = left_out_spread(summary, counted.rows - n_nulls[name])
            candidates.setdefault(name, []).append((spread, node, summary))
    for name, spreads in candidates.items():
        spread, node, summary = min(spreads, key=lambda one: one[0])
        grid, places = grid_of.get(name), finish_levels(targets[name], summary)
        if spread > SMALLER or places is None or not (grid is None or isinstance(grid, Decimals | Granular)):
            continue
        rounding = grid if grid is not None and grid.is_confirmed(targets[name]) else None
        level = Level(targets[name], node, places, rounding)
        if in_order([*transforms.values(), level]) is not None:
            transforms[name] = level


def _take_hours(
    hours: Sequence[Scored],
    counted: Counted,
    first: int,
    facts: Mapping[str, ColumnFacts],
    targets: Mapping[str, Target],
    rules: list[Rule],
    transforms: dict[str, Transform],
) -> None:
    """Model timestamps without the hours that another column contains in all rows; otherwise compute the hours."""
    for formula_index, one in enumerate(hours, start=first):
        names = (one.target, *columns_of(one.formula))
        if counted.alike[formula_index] < counted.rows or any(facts[name].nans for name in names):
            continue
        rules.append(Rule(describe_formula(one), "formula", names, 1.0, True))
        grid = transforms.get(names[1])
        has_nulls = any(facts[name].nulls for name in names)
        source = hour_source(one.formula)
        assert source is not None
        hourless = None if has_nulls else without_hour(grid, targets[names[1]], one.target, source[1])
        if hourless is not None:
            transforms[names[1]] = hourless
            if in_order(list(transforms.values())) is not None:
                continue
            transforms.pop(names[1])
            transforms |= {} if grid is None else {names[1]: grid}
        if one.target not in transforms:
            transforms[one.target] = Computed(targets[one.target], one.formula)
            if in_order(list(transforms.values())) is None:
                transforms.pop(one.target)


def _acyclic(transforms: dict[str, Transform]) -> list[Transform]:
    """Sort transforms in the order of rebuilding, dropping gaps that close a cycle, found ones before declared ones.

    Formulas alone never form a cycle: `selection` and `suggest` reject such formulas, and `check_declared` raises for
    declared ones. Every cycle therefore contains the gap of an order. Without its gap, the column is modelled directly;
    the order remains in the list of rules, and synthetic rows that break it are redrawn.
    """
    kept_transforms = dict(transforms)
    while (ordered := in_order(list(kept_transforms.values()))) is None:
        inputs_by_name = {name: transform.inputs for name, transform in kept_transforms.items()}
        cyclic_transforms = [
            transform for name, transform in kept_transforms.items() if depends_on_itself(name, inputs_by_name)
        ]
        optional_names = [one.target.name for one in cyclic_transforms if one.is_optional]
        kept_transforms.pop(optional_names[-1])
    return ordered


def _circular(one: Scored, declared: Declared, formulas: Sequence[Scored]) -> bool:
    """Whether a found formula would make its column depend on itself through declared formulas."""
    uses = {f.target: columns_of(f.formula) for f in formulas}
    for rule in declared.comparisons:
        target = formula_target(rule)
        if target is not None:
            uses[target] = columns_of(formula_of(rule, target))
    return depends_on_itself(one.target, {**uses, one.target: columns_of(one.formula)})
