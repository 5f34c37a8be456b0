"""Meet conditions on rule-determined columns by solving for one input, weighted by the model's density."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.forest.tables import LeafTables
from arf_dask.inference.conditions import Interval, is_choices
from arf_dask.inference.known_rows import read_rows
from arf_dask.inference.posteriors import row_log_density
from arf_dask.inference.rule_conditions import bounds
from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Comparison, Name, Node, columns_of
from arf_dask.rules.relations import Relations
from arf_dask.rules.solving import adjust, solve
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Transform
from arf_dask.typing import Floats


class Pin(NamedTuple):
    """A modelled column that is solved for, so that a rule-determined column takes a wanted value."""

    wanted: str  # the rule-determined column
    column: str  # the modelled column that is solved for
    solution: Node | None  # formula of the solved column; None if the gap itself is set


def pin_rows(
    tables: LeafTables,
    relations: Relations,
    given: Sequence[Mapping[str, Any]],
    modelled: pl.DataFrame,
    rng: np.random.Generator,
) -> tuple[pl.DataFrame, Floats]:
    """Solve conditions on rule-determined columns for an input; return the modelled rows and their weights."""
    chosen_condition = rng.integers(len(given), size=modelled.height)
    frames, weights = [], []
    for condition_index, condition in enumerate(given):
        pinned_rows = modelled.filter(pl.Series(chosen_condition == condition_index))
        pins = find_pins(relations, condition)
        for pin in pins:
            pinned_rows = _pinned(relations, pin, condition[pin.wanted], pinned_rows, rng)
        frames.append(pinned_rows)
        weights.append(_weights(tables, pinned_rows, [pin.column for pin in pins]))
    return pl.concat(frames), np.concatenate(weights)


def find_pins(relations: Relations, condition: Mapping[str, Any]) -> list[Pin]:
    """Choose the columns to solve for, in rebuilding order; columns fixed by the condition are not changed."""
    pins: list[Pin] = []
    used_columns = {name for name in condition if name not in relations.targets}
    for transform in relations.transforms:
        name = transform.target.name
        known_value = condition.get(name)
        if name not in condition or known_value is None:
            continue
        pin = _pin_of(transform, relations, used_columns)
        if pin is not None:
            pins.append(pin)
            used_columns |= {pin.column, *transform.inputs}
    return pins


def _pin_of(transform: Transform, relations: Relations, used: set[str]) -> Pin | None:
    name = transform.target.name
    if transform.sets_itself:
        return Pin(name, name, None)
    formula = transform.expression
    if formula is None:
        return None
    equation = Comparison(Name(name), "==", formula)
    free_columns = [column for column in columns_of(formula) if column not in used and _is_free(column, relations)]
    # Prefer the column with the finest grid: it is most likely to contain a solution.
    free_columns.sort(key=lambda column: -_fineness(column, relations))
    for column in free_columns:
        solution = solve(equation, column) or adjust(equation, column)
        if solution is not None:
            return Pin(name, column, solution)
    return None


def _is_free(column: str, relations: Relations) -> bool:
    transform = relations.targets.get(column)
    return transform is None or transform.sets_itself


def _fineness(column: str, relations: Relations) -> float:
    dtype, decimals = relations.dtypes[column], relations.decimals.get(column)
    if dtype.is_float():
        return 20.0 if decimals is None else 1.0 + decimals
    return float(decimals or 0)


def _pinned(
    relations: Relations, pin: Pin, known: Any, modelled: pl.DataFrame, rng: np.random.Generator
) -> pl.DataFrame:
    rebuilt_rows = relations.inverse(modelled)
    target = relations.targets[pin.wanted].target
    wanted_units = _wanted(known, target, rebuilt_rows, rng)
    if wanted_units is None:
        return modelled
    transform = relations.targets[pin.wanted]
    if pin.solution is None:
        return modelled.with_columns(
            _like(transform.set_to(wanted_units, rebuilt_rows), modelled.get_column(pin.column))
        )
    known_rows = rebuilt_rows.with_columns(target.values(wanted_units).alias(pin.wanted))
    dtype = relations.dtypes[pin.column]
    column_target = Target(pin.column, dtype, relations.decimals.get(pin.column))
    solved_units = column_target.formula_units(evaluate(pin.solution, known_rows))
    inner_transform = relations.targets.get(pin.column)
    if inner_transform is not None:
        return modelled.with_columns(
            _like(inner_transform.set_to(solved_units, rebuilt_rows), modelled.get_column(pin.column))
        )
    solved_rows = modelled.with_columns(_like(column_target.values(solved_units), modelled.get_column(pin.column)))
    return transform.follow_formula(rebuilt_rows, solved_rows)


def _like(series: pl.Series, old: pl.Series) -> pl.Series:
    """Cast to the dtype of `old`, and keep the old values where there is no solution."""
    cast_values = series.cast(old.dtype, strict=False).alias(old.name)
    return cast_values.zip_with(cast_values.is_not_null(), old)


def _wanted(known: Any, target: Target, rows: pl.DataFrame, rng: np.random.Generator) -> pl.Series | None:
    """Draw a wanted value per row, in units of the target: the known value, a choice, or a value of the interval."""
    if is_choices(known) and not isinstance(known, tuple | Interval):
        options = [option for option in known if option is not None]
        option_values = [_wanted(option, target, rows, rng) for option in options]
        option_index = rng.integers(max(len(option_values), 1), size=rows.height)
        chosen_values = option_values[0] if option_values else None
        for option_number, option_series in enumerate(option_values):
            chosen_values = (
                option_series.zip_with(pl.Series(option_index == option_number), chosen_values)
                if option_series is not None and chosen_values is not None
                else chosen_values
            )
        return chosen_values
    value_bounds = bounds(known, target)
    if value_bounds is None or target.low is None or target.high is None:
        return None
    low = target.low if value_bounds[0] is None else max(value_bounds[0], target.low)
    high = target.high if value_bounds[1] is None else min(value_bounds[1], target.high)
    unit_values = low + rng.random(rows.height) * (high - low)
    return (
        target.rounded(pl.Series(unit_values))
        if low < high
        else target.rounded(pl.Series(np.full(rows.height, float(low))))
    )


def _weights(tables: LeafTables, after: pl.DataFrame, columns: list[str]) -> Floats:
    """Return weights proportional to the density of the solved columns given all other columns of their rows."""
    if not columns or not after.height:
        return np.ones(after.height)
    schema = tables.schema
    names = [name for name in after.columns if schema.variable_of(name) is not None]
    rows = after.select([pl.nth(after.columns.index(name)) for name in names])
    all_known = np.ones(rows.height, dtype=bool)
    joint_logs = row_log_density(tables, read_rows(rows, tables, dict.fromkeys(names, all_known)))
    other_names = [name for name in names if name not in columns]
    other_logs = row_log_density(tables, read_rows(rows, tables, dict.fromkeys(other_names, all_known)))
    with np.errstate(invalid="ignore", over="ignore"):
        log_weights = np.where(np.isfinite(joint_logs), joint_logs - other_logs, -np.inf)
        largest_log = log_weights.max(initial=-np.inf)
    return np.exp(log_weights - largest_log) if np.isfinite(largest_log) else np.zeros(rows.height)
