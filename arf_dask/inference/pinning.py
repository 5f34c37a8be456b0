"""Meet conditions on rule-determined columns by solving for one input, weighted by the model's density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.data.value_sets import Box, ValueSet
from arf_dask.forest.fitted import Fitted
from arf_dask.inference.known_rows import read_rows
from arf_dask.inference.posteriors import row_log_density
from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Comparison, Name, Node, columns_of
from arf_dask.rules.relations import Relations
from arf_dask.rules.solving import adjust, solve
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms import Transform
from arf_dask.schema.columns import Schema
from arf_dask.typing import Floats


class Pin(NamedTuple):
    """A modelled column that is solved for, so that a rule-determined column takes a wanted value."""

    wanted: str  # the rule-determined column
    column: str  # the modelled column that is solved for
    solution: Node | None  # formula of the solved column; None if the gap itself is set


def pin_rows(
    fitted: Fitted, boxes: Sequence[Box], modelled: pl.DataFrame, rng: np.random.Generator
) -> tuple[pl.DataFrame, Floats]:
    """Solve conditions on rule-determined columns for an input; return the modelled rows and their weights."""
    relations = fitted.relations
    chosen_box = rng.integers(len(boxes), size=modelled.height)
    frames, weights = [], []
    for box_index, box in enumerate(boxes):
        pinned_rows = modelled.filter(pl.Series(chosen_box == box_index))
        pins = find_pins(relations, box)
        for pin in pins:
            pinned_rows = _pinned(relations, pin, box[pin.wanted], pinned_rows, rng)
        frames.append(pinned_rows)
        weights.append(_weights(fitted, pinned_rows, [pin.column for pin in pins]))
    return pl.concat(frames), np.concatenate(weights)


def find_pins(relations: Relations, box: Box) -> list[Pin]:
    """Choose the columns to solve for, in rebuilding order; columns fixed by the condition are not changed."""
    pins: list[Pin] = []
    used_columns = {name for name in box if name not in relations.targets}
    for transform in relations.transforms:
        name = transform.target.name
        if name not in box or not box[name].spans:
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
        solution = solve(equation, column, is_text=transform.target.is_text) or adjust(equation, column)
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
    relations: Relations, pin: Pin, wanted: ValueSet, modelled: pl.DataFrame, rng: np.random.Generator
) -> pl.DataFrame:
    rebuilt_rows = relations.inverse(modelled)
    target = relations.targets[pin.wanted].target
    wanted_units = _wanted(wanted, target, rebuilt_rows.height, rng)
    if wanted_units is None:
        return modelled
    transform = relations.targets[pin.wanted]
    if pin.solution is None:
        return modelled.with_columns(
            _like(transform.set_to(wanted_units, rebuilt_rows), modelled.get_column(pin.column))
        )
    formula_units = transform.expression_units(wanted_units, modelled)
    known_rows = rebuilt_rows.with_columns(target.values(formula_units).alias(pin.wanted))
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


def _wanted(wanted: ValueSet, target: Target, n: int, rng: np.random.Generator) -> pl.Series | None:
    """Draw a wanted value per row, in units of the target: first one of the spans, then a value in it."""
    if target.is_text or target.low is None:
        return None
    spans = (wanted & target.observed()).spans
    if not spans:
        return None
    low, high = np.array(spans, dtype=np.float64)[rng.integers(len(spans), size=n)].T
    return target.rounded(pl.Series(low + rng.random(n) * (high - low)))


def _weights(fitted: Fitted, after: pl.DataFrame, columns: list[str]) -> Floats:
    """Return weights proportional to the density of the solved columns given all other columns of their rows."""
    logs = log_weights(fitted, after, columns)
    largest_log = logs.max(initial=-np.inf)
    return np.exp(logs - largest_log) if np.isfinite(largest_log) else np.zeros(after.height)


def log_weights(fitted: Fitted, after: pl.DataFrame, columns: Sequence[str]) -> Floats:
    """Return the log density of some modelled columns given all other columns of their rows; -inf if impossible."""
    if not columns or not after.height:
        return np.zeros(after.height)
    schema = fitted.schema
    names = [name for name in after.columns if schema.variable_of(name) is not None]
    rows = after.select([pl.nth(after.columns.index(name)) for name in names])
    all_known = np.ones(rows.height, dtype=bool)
    joint_logs = row_log_density(fitted.tables, read_rows(rows, fitted.tables, dict.fromkeys(names, all_known)))
    other_names = [name for name in names if name not in columns]
    other_logs = row_log_density(fitted.tables, read_rows(rows, fitted.tables, dict.fromkeys(other_names, all_known)))
    with np.errstate(invalid="ignore", over="ignore"):
        joint_logs += sum(_log_cells(schema, name, after.get_column(name)) for name in columns)
        return np.where(np.isfinite(joint_logs), joint_logs - other_logs, -np.inf)


def _log_cells(schema: Schema, name: str, values: pl.Series) -> Floats:
    """Return the log width of the numbers that are rounded to each value; 0 for spikes, which have a probability."""
    column = schema.columns[schema.positions[name]]
    if column.axis is None or column.axis.grid or column.axis.decimals is None:
        return np.zeros(len(values))
    is_spike = np.isin(column.axis.to_axis(values), column.points)
    return np.where(is_spike, 0.0, -column.axis.decimals * np.log(10.0))
