"""Translation of conditions on the user's columns into conditions on modelled columns, in the presence of rules.

A condition on a computed column, a state or a gap does not translate into a condition on one modelled column. It is
*relaxed* to a necessary condition, and rows drawn under that are checked against the original condition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from arf_dask.errors import ImpossibleConditionError, OptionError, unknown_column
from arf_dask.inference.conditions import Interval, is_choices
from arf_dask.inference.given_values import fitting_value
from arf_dask.inference.grid_conditions import dated_condition, hourless_condition, indexed_condition
from arf_dask.inference.time_conditions import part_conditions
from arf_dask.rules.evaluation import evaluate, satisfied
from arf_dask.rules.expressions import Comparison, Name, columns_of, write
from arf_dask.rules.relations import Relations
from arf_dask.rules.solving import solve
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.decimals import Decimals
from arf_dask.rules.transforms.formula import Computed, Stated
from arf_dask.rules.transforms.gap import ClockGap, Gap
from arf_dask.rules.transforms.grid import Indexed
from arf_dask.rules.transforms.hours import Hourless
from arf_dask.rules.transforms.texts import Dated
from arf_dask.rules.transforms.times import Timed
from arf_dask.typing import Flags

WIDER = 1e-9  # tolerance by which bounds on floats are widened


def listed(given: Any) -> list[Mapping[str, Any]]:
    """Return a condition as a list of alternatives; None becomes one unconstrained alternative."""
    if given is None:
        return [{}]
    if isinstance(given, Mapping):
        return [given]
    if (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and given
        and all(isinstance(entry, Mapping) for entry in given)
    ):
        return list(given)
    raise OptionError(f"given={given!r}: give a dict of what is known, a list of such dicts, or a frame.")


def check_columns(given: Sequence[Mapping[str, Any]], relations: Relations, where: str = "given") -> None:
    """Raise an OptionError for unknown columns."""
    for alternative in given:
        for name in alternative:
            if name not in relations.names:
                raise unknown_column(name, relations.names, where)


def check_rules_allow(given: Sequence[Mapping[str, Any]], relations: Relations) -> None:
    """Raise an ImpossibleConditionError if every alternative fixes values that contradict a rule."""
    broken_rules = [_broken_rule(alternative, relations) for alternative in given]
    if all(rule is not None for rule in broken_rules):
        condition = given[0] if len(given) == 1 else list(given)
        raise ImpossibleConditionError(
            f"given={condition!r} contradicts the rule {broken_rules[0]}. Change one of its values, or leave one out."
        )


def _broken_rule(given: Mapping[str, Any], relations: Relations) -> str | None:
    """Return the first rule that is violated by the single values of a condition, if any."""
    fixed_values = {name: is_known for name, is_known in given.items() if _is_single(is_known)}
    for rule in relations.enforced:
        names = dict.fromkeys((*columns_of(rule.left), *columns_of(rule.right)))
        if not all(name in fixed_values for name in names):
            continue
        fixed_columns = [
            pl.Series(name, [fixed_values[name]], dtype=relations.dtypes[name], strict=False) for name in names
        ]
        is_known, holds = satisfied(rule, pl.DataFrame(fixed_columns), relations.decimals)
        if is_known[0] and not holds[0]:
            return f"{write(rule.left)} {rule.sign} {write(rule.right)}"
    return None


def _is_single(known: Any) -> bool:
    return known is not None and not isinstance(known, tuple | Interval) and not is_choices(known)


def touches(given: Sequence[Mapping[str, Any]], relations: Relations) -> bool:
    """Return whether a condition mentions a rule-determined column."""
    return any(name in relations.targets for alternative in given for name in alternative)


def matches(frame: pl.DataFrame, given: Sequence[Mapping[str, Any]], relations: Relations) -> Flags:
    """Return which rows satisfy an alternative; for a single one, only rule-determined columns need to be checked."""
    any_match = np.zeros(frame.height, dtype=bool)
    for alternative in given:
        row_matches = np.ones(frame.height, dtype=bool)
        for name, wanted_value in alternative.items():
            if name in relations.targets or len(given) > 1:
                row_matches &= allowed(frame.get_column(name).alias(""), wanted_value, f"given: {name!r}")
        any_match |= row_matches
    return any_match


def allowed(series: pl.Series, known: Any, where: str) -> Flags:
    """Return which values equal the given value, lie in the given interval, or are among the given choices."""
    if known is None:
        return np.asarray(series.is_null().to_numpy())
    if isinstance(known, tuple) and len(known) == 2:
        known = Interval(*known)
    if isinstance(known, Interval):
        return _inside(series, known, where)
    if is_choices(known):
        choices = list(known)
        if not choices:
            raise OptionError(f"{where}: an empty list. Give at least one choice.")
        return np.asarray(np.logical_or.reduce([allowed(series, choice, where) for choice in choices]))
    return np.asarray((_text(series) == fitting_value(known, series.dtype, where)).fill_null(False).to_numpy())


def relaxed(given: Sequence[Mapping[str, Any]], relations: Relations) -> list[dict[str, Any]]:
    """Return necessary conditions on the modelled columns: alternatives, one of which every row satisfies."""
    return [condition for alternative in given for condition in _relaxed_one(alternative, relations)]


def _relaxed_one(given: Mapping[str, Any], relations: Relations) -> list[dict[str, Any]]:
    modelled_conditions: dict[str, Any] = {}
    part_alternatives: list[list[dict[str, Any]]] = []
    for name, column_condition in given.items():
        match relations.targets.get(name):
            case None:
                modelled_conditions[name] = column_condition
            case Stated() as stated:
                modelled_conditions[name] = _own_or_formula(column_condition, stated)
            case Computed(target, formula):
                _imply_input(
                    Comparison(Name(name), "==", formula),
                    target,
                    column_condition,
                    given,
                    relations,
                    modelled_conditions,
                )
            case Gap() as gap:
                _imply_gap(gap, column_condition, given, relations, modelled_conditions)
            case ClockGap():
                modelled_conditions |= {name: None} if column_condition is None else {}
            case Indexed() as indexed:
                modelled_conditions[name] = indexed_condition(column_condition, indexed)
            case Decimals():
                modelled_conditions[name] = _near(column_condition)
            case Dated() as dated:
                modelled_conditions[name] = dated_condition(column_condition, dated)
            case Hourless() as timestamps:
                modelled_conditions[name] = hourless_condition(column_condition, timestamps)
            case Timed() as timed:
                part_alternatives.append(part_conditions(column_condition, timed))
    return [
        modelled_conditions | {name: ends for parts in combination for name, ends in parts.items()}
        for combination in product(*part_alternatives)
    ]


def with_given_decimals(rows: pl.DataFrame, given: Sequence[Mapping[str, Any]], relations: Relations) -> pl.DataFrame:
    """Restore single float values given by a condition, so that they are not rounded to the column's decimals."""
    known_values = given[0] if len(given) == 1 else {}
    exact_columns = [
        pl.lit(value, dtype=relations.dtypes[name]).alias(name)
        for name, value in known_values.items()
        if isinstance(relations.targets.get(name), Decimals) and isinstance(value, int | float)
    ]
    return rows.with_columns(exact_columns)


def _near(known: Any) -> Any:
    """Widen single float values slightly, as the column is rounded afterwards."""
    if known is None or isinstance(known, tuple | Interval):
        return known
    if is_choices(known):
        return [_near(choice) for choice in known]
    return (float(known) - abs(float(known)) * WIDER, float(known) + abs(float(known)) * WIDER)


def _own_or_formula(known: Any, stated: Stated) -> Any:
    """Return the modelled values of a state column: the given values, or the sentinel for "equals the formula"."""
    target = stated.target
    if known is None:
        return [None, stated.sentinel]
    choices: list[Any] = []
    for choice in known if is_choices(known) and not isinstance(known, tuple) else [known]:
        if choice is None:
            choices.append(None)
            continue
        choice_bounds = bounds(choice, target)
        if choice_bounds is None:  # a text column
            choices.append(choice)
        elif target.is_float and choice_bounds[0] is not None and choice_bounds[0] == choice_bounds[1]:
            half_unit = 0.5 * float(target.unit)
            choices.append((choice_bounds[0] - half_unit, choice_bounds[1] + half_unit))
        else:
            lower_end = choice_bounds[0]
            lowest = target.low if lower_end is None else lower_end
            choices.append((lowest, choice_bounds[1]))
    return [*choices, stated.sentinel]


def bounds(known: Any, target: Target) -> tuple[float | int | None, float | int | None] | None:
    """Return the bounds of a value or an interval in units of the column; None for text columns."""
    if target.is_text:
        return None
    if isinstance(known, tuple) and len(known) == 2:
        known = Interval(*known)
    interval_ends = (known.low, known.high) if isinstance(known, Interval) else (known, known)
    where = f"given: {target.name!r}"
    return tuple(None if end is None else _end_units(end, target, where) for end in interval_ends)  # type: ignore[return-value]


def _end_units(end: Any, target: Target, where: str) -> float | int:
    value = fitting_value(end, target.dtype, where)
    if isinstance(target.dtype, pl.Decimal) or not target.dtype.is_temporal():
        unit_value = float(value) * (10**target.dtype.scale if isinstance(target.dtype, pl.Decimal) else 1)
        return (
            unit_value
            if target.is_float
            else int(np.floor(unit_value + 0.5))
            if float(unit_value).is_integer()
            else unit_value
        )
    units = target.units(pl.Series([value], dtype=target.dtype))[0]
    return int(units)


def _imply_input(
    equation: Comparison,
    target: Target,
    known: Any,
    given: Mapping[str, Any],
    relations: Relations,
    found: dict[str, Any],
) -> None:
    """Derive a condition on the input of a formula with a single input, if it can be solved for it."""
    input_columns = columns_of(equation.right)
    if len(input_columns) != 1 or input_columns[0] in given or input_columns[0] in relations.targets or known is None:
        return
    if isinstance(equation.right, Name) and target.is_text:
        found[input_columns[0]] = known
        return
    inverse, dtype = solve(equation, input_columns[0]), relations.dtypes[input_columns[0]]
    target_bounds = bounds(known, target) if not is_choices(known) or isinstance(known, tuple | Interval) else None
    if inverse is None or target_bounds is None or not dtype.is_numeric():
        return
    half_unit = 0.5 if not target.is_float else 0.5 * float(target.unit)
    widened_ends = [
        None if end is None else end + side for end, side in zip(target_bounds, (-half_unit, half_unit), strict=True)
    ]
    decimal_scale = 10.0**-target.dtype.scale if isinstance(target.dtype, pl.Decimal) else 1.0
    input_bounds = [None if end is None else _solved(inverse, target.name, end * decimal_scale) for end in widened_ends]
    if input_bounds[0] is not None and input_bounds[1] is not None:
        input_bounds.sort()
    elif _falls(inverse, target.name):
        input_bounds.reverse()
    found[input_columns[0]] = tuple(
        _wider(input_bound, side) for input_bound, side in zip(input_bounds, (-1, 1), strict=True)
    )


def _solved(inverse: Any, name: str, value: float) -> float:
    return float(evaluate(inverse, pl.DataFrame({name: [float(value)]})).cast(pl.Float64)[0])


def _falls(inverse: Any, name: str) -> bool:
    return _solved(inverse, name, 1.0) > _solved(inverse, name, 2.0)


def _wider(place: float | None, side: int) -> float | None:
    return None if place is None else place + side * (abs(place) * WIDER + WIDER)


def _imply_gap(gap: Gap, known: Any, given: Mapping[str, Any], relations: Relations, found: dict[str, Any]) -> None:
    """Derive the gap if base and column are both known; otherwise bound the base by the column."""
    input_columns = columns_of(gap.base)
    if known is None:
        found[gap.target.name] = None
        return
    target_bounds = bounds(known, gap.target) if not is_choices(known) or isinstance(known, tuple | Interval) else None
    if target_bounds is None or not isinstance(gap.base, Name) or input_columns[0] in relations.targets:
        return
    base_target = Target(input_columns[0], relations.dtypes[input_columns[0]], relations.decimals.get(input_columns[0]))
    if input_columns[0] in given:
        base_condition = given[input_columns[0]]
        base_bounds = (
            bounds(base_condition, base_target)
            if base_condition is not None and not is_choices(base_condition)
            else None
        )
        if (
            base_bounds is not None
            and base_bounds[0] is not None
            and base_bounds[0] == base_bounds[1]
            and base_target.dtype == gap.target.dtype
        ):
            gap_bounds = [None if end is None else (end - base_bounds[0]) * gap.sign for end in target_bounds]
            gap_bounds = gap_bounds if gap.sign > 0 else gap_bounds[::-1]
            half_unit = 0.5 * float(gap.target.unit) if gap.target.is_float else 0
            lowest_gap = gap_bounds[0] if gap_bounds[0] is None else gap_bounds[0] - half_unit
            found[gap.target.name] = (lowest_gap, gap_bounds[1] if gap_bounds[1] is None else gap_bounds[1] + half_unit)
        return
    if gap.least is not None and base_target.dtype == gap.target.dtype:
        base_limit = target_bounds[1] if gap.sign > 0 else target_bounds[0]
        if base_limit is not None and base_target.dtype.is_numeric() and not isinstance(base_target.dtype, pl.Decimal):
            found[input_columns[0]] = (None, base_limit) if gap.sign > 0 else (base_limit, None)


def _inside(series: pl.Series, known: Interval, where: str) -> Flags:
    is_inside = series.is_not_null()
    if series.dtype.is_float():
        is_inside &= series.is_not_nan()
    if known.low is not None:
        low = fitting_value(known.low, series.dtype, where)
        is_inside &= (series >= low) if known.closed in ("both", "left") else (series > low)
    if known.high is not None:
        high = fitting_value(known.high, series.dtype, where)
        is_inside &= (series <= high) if known.closed in ("both", "right") else (series < high)
    return np.asarray(is_inside.fill_null(False).to_numpy())


def _text(series: pl.Series) -> pl.Series:
    return series.cast(pl.String) if isinstance(series.dtype, pl.Categorical | pl.Enum) else series
