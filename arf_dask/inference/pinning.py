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
from arf_dask.typing import Flags, Floats


class Pin(NamedTuple):
    """A modelled column that is solved for, so that a rule-determined column takes a wanted value."""

    wanted: str  # the rule-determined column
    column: str  # the modelled column that is solved for
    solution: Node | None  # formula of the solved column; None if the gap itself is set
    is_exact: bool = True  # whether the wanted value determines the column; otherwise it changes a part of it


class Wanted(NamedTuple):
    """A wanted value per row, drawn from a span."""

    units: pl.Series
    low: pl.Series  # ends of the span
    high: pl.Series
    log_share: Floats  # log probability of the span


class Pinned(NamedTuple):
    """Modelled rows after solving for a column."""

    rows: pl.DataFrame
    is_pinned: Flags  # rows in which the column was solved for
    log_volume: Floats  # log number of the values that could have been solved for


def pin_rows(
    fitted: Fitted, boxes: Sequence[Box], modelled: pl.DataFrame, rng: np.random.Generator
) -> tuple[pl.DataFrame, Floats]:
    """Solve conditions on rule-determined columns for an input; return the modelled rows and their weights.

    The weight of a row is the density of the solved columns given all others, over that with which they were proposed:
    one over the number of values that they could have got.
    """
    relations = fitted.relations
    chosen_box = rng.integers(len(boxes), size=modelled.height)
    frames, logs = [], []
    for box_index, box in enumerate(boxes):
        rows = modelled.filter(pl.Series(chosen_box == box_index))
        pins = find_pins(relations, box)
        is_pinned, log_volumes = np.zeros((rows.height, len(pins)), dtype=bool), np.zeros(rows.height)
        for number, pin in enumerate(pins):
            rows, is_pinned[:, number], log_volume = _pinned(relations, pin, box[pin.wanted], rows, rng)
            log_volumes += log_volume
        frames.append(rows)
        logs.append(log_changed_weights(fitted, rows, [pin.column for pin in pins], is_pinned) + log_volumes)
    return pl.concat(frames), _relative(np.concatenate(logs))


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
    free_columns.sort(key=relations.fineness, reverse=True)
    for column in free_columns:
        solution = solve(equation, column, is_text=transform.target.is_text)
        changed_part = adjust(equation, column) if solution is None else None
        if solution is not None or changed_part is not None:
            return Pin(name, column, solution or changed_part, is_exact=solution is not None)
    return None


def _is_free(column: str, relations: Relations) -> bool:
    transform = relations.targets.get(column)
    return transform is None or transform.sets_itself


def _pinned(
    relations: Relations, pin: Pin, wanted: ValueSet, modelled: pl.DataFrame, rng: np.random.Generator
) -> Pinned:
    transform = relations.targets[pin.wanted]
    drawn = _wanted(wanted, transform.target, modelled.height, rng)
    if drawn is None:
        return Pinned(modelled, np.zeros(modelled.height, dtype=bool), np.zeros(modelled.height))
    rebuilt_rows = relations.inverse(modelled)
    old_values = modelled.get_column(pin.column)
    setter = transform if pin.solution is None else relations.targets.get(pin.column)
    column_target = relations.target_of(pin.column)

    def solved(units: pl.Series) -> pl.Series:
        """Return the units of the solved column with which the other column has these units."""
        if pin.solution is None:
            return units
        formula_units = transform.expression_units(units, modelled)
        known_rows = rebuilt_rows.with_columns(transform.target.values(formula_units).alias(pin.wanted))
        return column_target.formula_units(evaluate(pin.solution, known_rows))

    units = solved(drawn.units)
    new_values = column_target.values(units) if setter is None else setter.set_to(units, rebuilt_rows)
    new_values = new_values.cast(old_values.dtype, strict=False).alias(old_values.name)
    is_pinned = transform.follows_expression(modelled) & new_values.is_not_null()
    rows = modelled.with_columns(new_values.zip_with(is_pinned, old_values))
    ends = (solved(drawn.low), solved(drawn.high)) if pin.is_exact else (drawn.low, drawn.high)
    n_values = _n_values(*ends, column_target if pin.is_exact else transform.target)
    return Pinned(rows, is_pinned.to_numpy(), np.where(is_pinned, np.log(n_values) - drawn.log_share, 0.0))


def _n_values(low: pl.Series, high: pl.Series, target: Target) -> Floats:
    """Return the number of values between two ends; their distance for floats with any number of decimals."""
    distance = (high.cast(pl.Float64) - low.cast(pl.Float64)).abs().fill_null(0.0).to_numpy()
    unit = float(target.unit)
    return np.asarray(distance / unit + 1.0 if unit else np.where(distance > 0, distance, 1.0))


def _wanted(wanted: ValueSet, target: Target, n: int, rng: np.random.Generator) -> Wanted | None:
    """Draw a wanted value per row, in units of the target; all values are equally probable."""
    if target.is_text or target.low is None:
        return None
    spans = np.array((wanted & target.observed()).spans, dtype=np.float64).reshape(-1, 2)
    if not len(spans):
        return None
    widths = spans[:, 1] - spans[:, 0] + float(target.unit)
    shares = widths / widths.sum() if widths.any() else np.full(len(spans), 1 / len(spans))
    index = rng.choice(len(spans), size=n, p=shares)
    low, high = spans[index].T
    values = target.rounded(pl.Series(low + rng.random(n) * (high - low)))
    return Wanted(values, target.rounded(pl.Series(low)), target.rounded(pl.Series(high)), np.log(shares[index]))


def _relative(logs: Floats) -> Floats:
    """Return weights, of which the largest is 1, from their logarithms."""
    largest_log = logs.max(initial=-np.inf)
    return np.exp(logs - largest_log) if np.isfinite(largest_log) else np.zeros(len(logs))


def log_changed_weights(fitted: Fitted, rows: pl.DataFrame, columns: Sequence[str], is_changed: Flags) -> Floats:
    """Return the log density of the modelled columns that changed in each row, given all others.

    Args:
        fitted: the model.
        rows: the modelled rows after the change.
        columns: the columns that changed in some rows.
        is_changed: per row and column, whether it changed.
    """
    log_densities = np.zeros(rows.height)
    patterns, pattern_of = np.unique(is_changed, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        places = np.flatnonzero(pattern_of.ravel() == number)
        changed = [name for name, is_one in zip(columns, pattern, strict=True) if is_one]
        log_densities[places] = log_weights(fitted, rows[places], changed)
    return log_densities


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
        joint_logs += sum(_log_slopes(fitted, after, name) for name in columns)
        return np.where(np.isfinite(joint_logs), joint_logs - other_logs, -np.inf)


def _log_slopes(fitted: Fitted, modelled: pl.DataFrame, name: str) -> Floats | float:
    """Return what the density of a column has in addition to that of its modelled column, if the rows tell."""
    relations = fitted.relations
    transform = relations.owners.get(name)
    if transform is None or any(i in relations.targets or i not in modelled.columns for i in transform.inputs):
        return 0.0
    return transform.log_slopes(modelled)


def _log_cells(schema: Schema, name: str, values: pl.Series) -> Floats:
    """Return the log width of the numbers that are rounded to each value; 0 for spikes, which have a probability."""
    column = schema.columns[schema.positions[name]]
    if column.axis is None or column.axis.grid or column.axis.decimals is None:
        return np.zeros(len(values))
    is_spike = np.isin(column.axis.to_axis(values), column.points)
    return np.where(is_spike, 0.0, -column.axis.decimals * np.log(10.0))
