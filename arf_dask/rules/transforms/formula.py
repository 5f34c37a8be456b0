"""Columns that a formula determines: in every row (they are not modelled), or in a share of the rows (a state)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from arf_dask.data.value_sets import EVERYTHING, NOTHING, Box, Region, Span, ValueSet, merged
from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Call, Comparison, Name, Node, Operation, columns_of, write
from arf_dask.rules.joined_texts import read_back, take_apart
from arf_dask.rules.solving import adjust, solve
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.base import (
    Repair,
    Resolved,
    Transform,
    is_finite,
    needed_node,
    nulls_where,
    require_details,
)
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.typing import Flags, Floats

if TYPE_CHECKING:
    from arf_dask.rules.relations import Relations

WIDER = 1e-9  # tolerance by which bounds on solved inputs are widened


@dataclass(frozen=True)
class Computed(Transform):
    """A column that a formula determines in every row. It is not modelled."""

    kind = "computed"
    detail_types = {}  # noqa: RUF012

    target: Target
    formula: Node

    @property
    def expression(self) -> Node:
        return self.formula

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        return {}

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        return self.target.values(self.target.formula_units(evaluate(self.formula, frame)))

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        if self._is_copy(relations):
            return EVERYTHING  # `implies` has passed the set on
        if not all(name in known and known[name].is_single for name in self.inputs):
            return Region(({},), exact=False)
        row = pl.DataFrame({name: known[name].single() for name in self.inputs})
        return EVERYTHING if wanted.contains(self.inverse(row, {}))[0] else NOTHING

    def implies(self, wanted: ValueSet, relations: Relations) -> Box:
        """Solve a formula with a single input for it."""
        if self._is_copy(relations):
            return {self.inputs[0]: replace(wanted, dtype=relations.dtypes[self.inputs[0]])}
        if self.target.is_text:
            return self._implied_texts(wanted, relations)
        if wanted.null or wanted.nan or len(self.inputs) != 1:
            return {}
        (column,) = self.inputs
        solution = solve(self._equation, column, is_text=self.target.is_text)
        if solution is None or not relations.dtypes[column].is_numeric() or not self.target.dtype.is_numeric():
            return {}
        solved_spans = _solved_spans(solution, self.target, wanted)
        return {} if solved_spans is None else {column: relations.target_of(column).set_of_numbers(solved_spans)}

    def _implied_texts(self, wanted: ValueSet, relations: Relations) -> Box:
        """Take wanted texts apart."""
        if wanted.null or len(wanted.points) < len(wanted.spans) or not wanted.spans:
            return {}
        texts = pl.Series(wanted.points, dtype=pl.String)
        nothing = {name: [None] for name in self.inputs}
        rows = pl.DataFrame(nothing, schema={name: relations.dtypes[name] for name in self.inputs})
        found = take_apart(texts, self.formula, rows[np.zeros(len(texts), dtype=np.int64)])
        dtypes = {name: relations.dtypes[name] for name, series in found.items() if not series.null_count()}
        return {
            name: ValueSet(dtype, spans=merged(Span(text, text) for text in found[name].unique().to_list()))
            for name, dtype in dtypes.items()
            if isinstance(dtype, pl.String | pl.Categorical | pl.Enum)
        }

    def _is_copy(self, relations: Relations) -> bool:
        """Whether the column has the values of another one."""
        if not isinstance(self.formula, Name):
            return False
        dtype = relations.dtypes[self.formula.column]
        is_text = self.target.is_text and isinstance(dtype, pl.String | pl.Categorical | pl.Enum)
        return is_text or (dtype == self.target.dtype and not dtype.is_float())

    def faults(self, frame: pl.DataFrame) -> pl.Series:
        """Flag rows where the formula gives a value outside the dtype or the observed range, or an unexpected null."""
        formula_units = self.target.formula_units(evaluate(self.formula, frame))
        values = frame.get_column(self.target.name).alias("")
        is_lost = formula_units.is_not_null() & values.is_null()
        return is_lost | ~self.target.in_range(formula_units) | self.target.forbidden_null(values)

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        own_values, is_given = deduced.get_column(self.target.name), known.get_column(self.target.name).is_not_null()
        if not all(name in known.columns for name in self.inputs):
            return Resolved({}, (is_given & False).to_numpy(), is_given.to_numpy())
        formula_values = evaluate(self.formula, deduced)
        disagrees = ~self.target.agrees(own_values, formula_values)
        is_unresolved = is_given & False
        if not null_is_value:
            disagrees &= (own_values.is_not_null() & formula_values.is_not_null()).to_numpy()
            is_unresolved = is_given & formula_values.is_null()
        return Resolved({}, disagrees, is_unresolved.to_numpy())

    def contradicts(self, frame: pl.DataFrame) -> Flags:
        return ~self.target.agrees(frame.get_column(self.target.name), evaluate(self.formula, frame))

    def deduce(self, frame: pl.DataFrame, relations: Relations) -> pl.DataFrame:
        """Fill in the value of the formula, or the only unknown input of a known value."""
        name = self.target.name
        frame = frame.with_columns(filled_nulls(frame.get_column(name), self.inverse(frame, {})))
        if self.target.is_text:
            return texts_taken_apart(self.target, self.formula, frame, relations)
        for column in self.inputs:
            solution = solve(self._equation, column, is_text=self.target.is_text)
            if solution is None or not _is_modelled_alone(column, relations):
                continue
            solved_values = _solved(solution, column, frame, relations)
            trial_frame = frame.with_columns(filled_nulls(frame.get_column(column), solved_values))
            formula_agrees = self.target.agrees(frame.get_column(name), evaluate(self.formula, trial_frame))
            is_solved = pl.Series(formula_agrees) & frame.get_column(name).is_not_null()
            new_values = trial_frame.get_column(column).zip_with(is_solved, frame.get_column(column))
            frame = frame.with_columns(new_values.alias(column))
        return frame

    def repair(self, rows: pl.DataFrame, task: Repair) -> pl.DataFrame:
        """Solve for an unknown input in rows where a known value disagrees with the formula."""
        disagrees = pl.Series(self.contradicts(rows))
        return solved_again(self.target, self.formula, rows, disagrees, task)

    def recompute(self, rows: pl.DataFrame, task: Repair) -> pl.DataFrame:
        return _evaluated_where(task.is_unknown(self.target.name), self.target, self.formula, rows)

    @property
    def _equation(self) -> Comparison:
        return Comparison(Name(self.target.name), "==", self.formula)

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        return cls(target, needed_node(node, where))


@dataclass(frozen=True)
class Stated(Transform):
    """A column that a formula determines in a share of the rows. "Follows the formula" is one of its states."""

    kind = "state"
    detail_types = {"sentinel": int | float | str}  # noqa: RUF012

    target: Target
    formula: Node
    sentinel: int | float | str  # modelled value of the rows that follow the formula

    @property
    def expression(self) -> Node:
        return self.formula

    @property
    def outputs(self) -> dict[str, pl.DataType]:
        return {self.target.name: self.target.unit_dtype}

    def forward(self, frame: pl.DataFrame) -> dict[str, pl.Series]:
        column_values = frame.get_column(self.target.name)
        follows_formula = pl.Series(self.target.agrees(column_values, evaluate(self.formula, frame)))
        return {self.target.name: self.marked(self.target.units(column_values), follows_formula)}

    def marked(self, units: pl.Series, follows: pl.Series) -> pl.Series:
        """Replace the units of the rows that follow the formula by the sentinel."""
        sentinel_series = pl.Series([self.sentinel], dtype=units.dtype).new_from_index(0, len(units))
        return sentinel_series.zip_with(follows, units).alias(self.target.name)

    def follows(self, modelled: pl.Series) -> pl.Series:
        """Flag the modelled rows that follow the formula."""
        return (modelled.alias("") == self.sentinel).fill_null(False)

    def inverse(self, frame: pl.DataFrame, outputs: Mapping[str, pl.Series]) -> pl.Series:
        modelled = outputs[self.target.name]
        formula_units = self.target.formula_units(evaluate(self.formula, frame))
        own_units = modelled.cast(formula_units.dtype).alias("")
        own_units = _clock_units(own_units) if self._is_clock else own_units
        return self.target.values(formula_units.zip_with(self.follows(modelled), own_units))

    def translate(self, wanted: ValueSet, known: Box, relations: Relations) -> Region:
        """Return the rows with such a value, and those that follow the formula, of which only some have one."""
        units = self.target.in_units(wanted)
        spans = [_whole_hours(span) for span in units.spans] if self._is_clock else list(units.spans)
        if self.target.is_float and not self.target.unit:  # a density at a number has no weight beside a state
            spans = [Span(low - WIDER * (1 + abs(low)), high + WIDER * (1 + abs(high))) for low, high in spans]
        modelled = ValueSet(units.dtype, wanted.null, wanted.nan, merged([*spans, Span(self.sentinel, self.sentinel)]))
        return Region(({self.target.name: modelled},), exact=False)

    @property
    def _is_clock(self) -> bool:
        return isinstance(self.formula, Call) and self.formula.function in ("clock", "clock24")

    def user_levels(self, modelled: pl.Series) -> pl.Series:
        """Return the levels without the sentinel of rows that follow the formula."""
        text_levels = modelled.cast(pl.String)
        return text_levels.filter(text_levels != self.sentinel)

    def forward_known(self, frame: pl.DataFrame) -> tuple[dict[str, pl.Series], pl.Series]:
        series = frame.get_column(self.target.name)
        is_decided = evaluate(self.formula, frame).is_not_null() | series.is_null()
        return self.forward(frame), series.is_not_null() & is_decided

    def resolve(self, known: pl.DataFrame, deduced: pl.DataFrame, *, null_is_value: bool) -> Resolved:
        own_values, nothing = deduced.get_column(self.target.name), (pl.Series([False]).new_from_index(0, known.height))
        if not all(name in known.columns for name in self.inputs):
            return Resolved({}, nothing.to_numpy(), known.get_column(self.target.name).is_not_null().to_numpy())
        columns = self.forward(deduced)
        is_unresolved = nothing
        if not null_is_value:
            is_unresolved = own_values.is_not_null() & evaluate(self.formula, deduced).is_null()
            is_lost = own_values.is_null() | is_unresolved
            columns = {name: nulls_where(is_lost, series) for name, series in columns.items()}
        return Resolved(columns, nothing.to_numpy(), is_unresolved.to_numpy())

    def repair(self, rows: pl.DataFrame, task: Repair) -> pl.DataFrame:
        """Solve for an unknown input in rows that were drawn to follow the formula."""
        disagrees = ~pl.Series(self.target.agrees(rows.get_column(self.target.name), evaluate(self.formula, rows)))
        return solved_again(self.target, self.formula, rows, self._followed(task.drawn) & disagrees, task)

    def recompute(self, rows: pl.DataFrame, task: Repair) -> pl.DataFrame:
        is_followed = self._followed(task.drawn) & task.is_unknown(self.target.name)
        return _evaluated_where(is_followed, self.target, self.formula, rows)

    def _followed(self, drawn: pl.DataFrame) -> pl.Series:
        """Flag the rows that were drawn to follow the formula."""
        formula_values = evaluate(self.formula, drawn)
        follows = pl.Series(self.target.agrees(drawn.get_column(self.target.name), formula_values))
        return follows & formula_values.is_not_null()

    def follows_expression(self, modelled: pl.DataFrame) -> pl.Series:
        return self.follows(modelled.get_column(self.target.name))

    @property
    def following(self) -> int | float | str:
        return self.sentinel

    def details(self) -> dict[str, Any]:
        return {"sentinel": self.sentinel}

    @classmethod
    def parse(
        cls, target: Target, node: Node | None, details: dict[str, Any], dtypes: Mapping[str, pl.DataType], where: str
    ) -> Self:
        is_valid = isinstance(details["sentinel"], str) == target.is_text and is_finite(details["sentinel"])
        require_details(is_valid, where, "a state that its type does not have")
        return cls(target, needed_node(node, where), details["sentinel"])


def _evaluated_where(is_wanted: pl.Series, target: Target, formula: Node, rows: pl.DataFrame) -> pl.DataFrame:
    """Set a column to the value of a formula in the flagged rows in which the column has another value."""
    own_values, formula_values = rows.get_column(target.name), evaluate(formula, rows)
    is_wanted = is_wanted & ~pl.Series(target.agrees(own_values, formula_values))
    if not is_wanted.any():
        return rows
    new_values = target.values(target.formula_units(formula_values))
    return rows.with_columns(new_values.zip_with(is_wanted, own_values).alias(target.name))


def solved_again(target: Target, formula: Node, rows: pl.DataFrame, is_wrong: pl.Series, task: Repair) -> pl.DataFrame:
    """Solve for an unknown input of a formula in the flagged rows whose target is known, if one gives its value."""
    is_wrong = is_wrong & ~task.is_unknown(target.name)
    if target.is_text and isinstance(formula, Operation):
        return _taken_apart_again(target, formula, rows, is_wrong, task)
    equation = Comparison(Name(target.name), "==", formula)
    for column in sorted(columns_of(formula), key=task.relations.fineness, reverse=True):
        solution = solve(equation, column, is_text=target.is_text) or adjust(equation, column)
        if solution is None or not is_wrong.any():
            continue
        solved_values = _solved(solution, column, rows, task.relations)
        trial_rows = rows.with_columns(solved_values.alias(column))
        agrees = pl.Series(target.agrees(rows.get_column(target.name), evaluate(formula, trial_rows)))
        is_changed = is_wrong & task.is_unknown(column) & solved_values.is_not_null() & agrees
        rows = rows.with_columns(solved_values.zip_with(is_changed, rows.get_column(column)).alias(column))
        is_wrong = is_wrong & ~is_changed
    return rows


def _taken_apart_again(
    target: Target, formula: Node, rows: pl.DataFrame, is_wrong: pl.Series, task: Repair
) -> pl.DataFrame:
    """Take the known texts of the flagged rows apart, in one of the possible ways, for the unknown inputs."""
    if not is_wrong.any():
        return rows
    is_changed = {name: is_wrong & task.is_unknown(name) for name in columns_of(formula)}
    unknown = rows.with_columns(nulls_where(flags, rows.get_column(name)) for name, flags in is_changed.items())
    chance = generator(0, Stage.RULES, rows.height).random(rows.height)
    trial_rows = texts_taken_apart(target, formula, unknown, task.relations, chance)
    agrees = pl.Series(target.agrees(rows.get_column(target.name), evaluate(formula, trial_rows)))
    return rows.with_columns(
        trial_rows.get_column(name).zip_with(flags & agrees, rows.get_column(name))
        for name, flags in is_changed.items()
    )


def texts_taken_apart(
    target: Target, formula: Node, frame: pl.DataFrame, relations: Relations, chance: Floats | None = None
) -> pl.DataFrame:
    """Fill in the unknown texts that a known one was joined from; see `take_apart`."""
    texts = frame.get_column(target.name).alias("").cast(pl.String)
    if texts.is_null().all():
        return frame
    found = take_apart(texts, formula, frame, chance)
    values = {name: read_back(series, relations.dtypes[name]) for name, series in found.items()}
    trial_frame = frame.with_columns(filled_nulls(frame.get_column(name), series) for name, series in values.items())
    agrees = pl.Series(target.agrees(texts, evaluate(formula, trial_frame))) & texts.is_not_null()
    return frame.with_columns(trial_frame.get_column(name).zip_with(agrees, frame.get_column(name)) for name in found)


def text_sentinel(formula: Node, taken: pl.Series) -> str:
    """Return a level that no row has, to mark the texts that follow the formula."""
    sentinel = f"= {write(formula)}"
    while (taken == sentinel).any():
        sentinel = f"={sentinel}"
    return sentinel


def filled_nulls(series: pl.Series, other: pl.Series) -> pl.Series:
    """Fill the nulls of a column from another series."""
    return series.zip_with(series.is_not_null(), other.cast(series.dtype, strict=False)).alias(series.name)


def _is_modelled_alone(column: str, relations: Relations) -> bool:
    """Return whether the modelled columns of a column hold its exact value, whatever other columns are."""
    transform = relations.targets.get(column)
    return transform is None or (transform.one_to_one and transform.keeps_values)


def _solved(solution: Node, column: str, frame: pl.DataFrame, relations: Relations) -> pl.Series:
    column_target = relations.target_of(column)
    return column_target.values(column_target.formula_units(evaluate(solution, frame)))


def _solved_spans(solution: Node, target: Target, wanted: ValueSet) -> list[tuple[float, float]] | None:
    """Return the spans of an input in which a formula takes the wanted values; None if it is not a straight line."""
    scale = 10.0**-target.dtype.scale if isinstance(target.dtype, pl.Decimal) else 1.0
    half_unit = 0.5 * scale * (float(target.unit) if target.is_float else 1.0)
    ends = np.array(wanted.spans, dtype=np.float64).reshape(-1, 2) * scale + [-half_unit, half_unit]
    finite_ends = np.where(np.isfinite(ends), ends, 0.0).ravel()
    solved = evaluate(solution, pl.DataFrame({target.name: np.concatenate([[0.0, 1.0, 2.0], finite_ends])}))
    values = solved.cast(pl.Float64).fill_null(np.nan).to_numpy()
    slope = values[1] - values[0]
    if not np.isfinite(values).all() or not slope or not np.isclose(values[2] - values[1], slope, rtol=1e-9, atol=0):
        return None
    places = np.where(np.isfinite(ends), values[3:].reshape(-1, 2), np.sign(slope) * ends)
    lows, highs = places.min(axis=1), places.max(axis=1)
    return list(zip(lows - WIDER * (1 + np.abs(lows)), highs + WIDER * (1 + np.abs(highs)), strict=True))


def _whole_hours(span: Span) -> Span:
    """Return the span with all numbers of its hours: some of them are moved within their hour."""
    low = span.low if abs(span.low) == np.inf else span.low // 100 * 100
    return Span(low, span.high if abs(span.high) == np.inf else span.high // 100 * 100 + 99)


def _clock_units(units: pl.Series) -> pl.Series:
    """Spread the numbers between two hours that no clock shows, such as 1763, over the minutes of their hour."""
    minutes = units % 100
    return units - minutes + minutes.zip_with(minutes < 60, ((minutes - 60) * 1.5).floor().cast(units.dtype))
