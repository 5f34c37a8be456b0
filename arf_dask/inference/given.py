"""What a caller knows of rows: a condition or a frame of conditions, read once and translated to modelled columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.axes import nameless
from arf_dask.data.frames import is_frame, to_polars
from arf_dask.data.value_sets import Box, Region, Span, ValueSet, column_values, read_alternatives
from arf_dask.errors import DataError, ImpossibleConditionError, OptionError, unknown_column
from arf_dask.forest.fitted import Fitted
from arf_dask.inference.condition_expressions import read_expression
from arf_dask.inference.conditions import unseen_level
from arf_dask.inference.fitting import fitting_to
from arf_dask.rules.evaluation import satisfied
from arf_dask.rules.expressions import write
from arf_dask.rules.relations import columns_of_rule
from arf_dask.schema.columns import Column
from arf_dask.schema.user_view import user_column
from arf_dask.typing import Flags


@dataclass(frozen=True)
class Given:
    """A condition: alternative boxes of the user's columns, and the region of the modelled columns that they mean."""

    boxes: tuple[Box, ...]
    region: Region
    text: str  # what the caller wrote, for messages

    @property
    def columns(self) -> frozenset[str]:
        """The user's columns that the condition mentions."""
        return frozenset(name for box in self.boxes for name in box)

    def fits(self, rows: pl.DataFrame) -> Flags:
        """Flag the rows that satisfy the condition; columns that the rows do not have are ignored."""
        return fits(rows, self.boxes)


Known = Given | pl.DataFrame | None  # a frame has one condition per row, in the user's columns; null means unknown


def read_given(given: Any, fitted: Fitted, where: str = "given") -> Known:
    """Read what a caller knows: a dict, a list of dicts as alternatives, an expression, a frame of conditions, or None.

    Args:
        given: what the caller gave.
        fitted: the model.
        where: the name of the argument in error messages.
    """
    if given is None or isinstance(given, Given):
        return given
    return read_conditions(given, fitted) if is_frame(given) else read_condition(given, fitted, where)


def read_condition(given: Any, fitted: Fitted, where: str = "given") -> Given:
    """Read a dict, a list of dicts as alternatives, or an expression; raise an OptionError for anything else."""
    if isinstance(given, pl.Expr):
        alternatives: Sequence[Mapping[Any, Any]] = read_expression(given, _Columns(fitted, where), where)
        text = f"{where}={given}"
    else:
        alternatives, text = read_alternatives(given, where), f"{where}={given!r}"
    return make_given(tuple(_read_box(one, fitted, where) for one in alternatives), fitted, text)


@dataclass(frozen=True)
class _Columns:
    """The columns that conditions may refer to."""

    fitted: Fitted
    where: str

    def dtype(self, name: str) -> pl.DataType:
        """Return the dtype of a column; raise an OptionError for columns that have no conditions."""
        _check_column(name, self.fitted, self.where)
        return self.fitted.dtypes[name]

    def levels(self, name: str) -> pl.Series | None:
        """Return the levels of a column, or None if it has a range instead."""
        column = user_column(name, self.fitted.schema, self.fitted.relations)
        is_plain = name not in self.fitted.relations.targets and column.kind == "categorical"
        return column.levels if is_plain else None


def make_given(boxes: tuple[Box, ...], fitted: Fitted, text: str) -> Given:
    """Return the condition that rows lie in one of several boxes of the user's columns."""
    observed = fitted.observed
    regions = [fitted.relations.translate(box, observed=observed) for box in boxes]
    region = Region(tuple(box for one in regions for box in one.boxes), all(one.exact for one in regions))
    return Given(boxes, region, text)


def read_conditions(given: Any, fitted: Fitted) -> pl.DataFrame:
    """Read a frame of conditions, with the user's dtypes; raise an OptionError for columns that cannot be given."""
    frame = to_polars(given).frame
    for name in frame.columns:
        _check_column(name, fitted, "given")
    try:
        return user_frame(frame, fitted)
    except DataError as error:
        raise OptionError(f"given: {error}") from error


def user_frame(frame: pl.DataFrame, fitted: Fitted) -> pl.DataFrame:
    """Select the user's columns from a frame and cast them to the user's dtypes."""
    dtypes = fitted.dtypes
    names = [name for name in dtypes if name in frame.columns]
    if not names:
        raise DataError("none of the model's columns are in the data. Give a frame with some of them.")
    return pl.DataFrame({name: fitting_to(frame.get_column(name), name, dtypes[name]) for name in names})


def fits(rows: pl.DataFrame, boxes: Iterable[Box]) -> Flags:
    """Flag the rows that lie in one of the boxes; columns that the rows do not have are ignored."""
    any_fits = np.zeros(rows.height, dtype=bool)
    for box in boxes:
        row_fits = np.ones(rows.height, dtype=bool)
        for name, wanted in box.items():
            if name in rows.columns:
                row_fits &= wanted.contains(rows.get_column(name))
        any_fits |= row_fits
    return any_fits


def _read_box(given: Mapping[Any, Any], fitted: Fitted, where: str) -> Box:
    dtypes, schema, relations = fitted.dtypes, fitted.schema, fitted.relations
    box = {}
    for name, known in given.items():
        _check_column(name, fitted, where)
        box[name] = wanted = ValueSet.read(known, dtypes[name], f"{where}: {name!r}")
        if name in relations.targets:
            continue
        column = schema.columns[schema.positions[name]]
        if column.kind == "categorical" and (unseen := unseen_level(wanted, column, f"{where}: {name!r}")) is not None:
            raise unseen
        if column.kind == "empty" and wanted.spans:
            raise OptionError(f"{where}: {name!r} held nothing but nulls in training. Only None is possible.")
    return box


def _check_column(name: Any, fitted: Fitted, where: str) -> None:
    if name not in fitted.dtypes:
        raise unknown_column(name, fitted.dtypes, where)
    if name in fitted.schema.keys:
        raise OptionError(
            f"{where}: {name!r} is an identifier and not modelled. Leave it out, and set it in the result."
        )


# Errors.


def impossible(given: Given | None, fitted: Fitted) -> ImpossibleConditionError:
    """Return the error for a condition of probability zero, with the reason if one column alone is the cause."""
    text = "given=None" if given is None else given.text
    reasons = [] if given is None else [_reason(box, fitted) for box in given.boxes]
    if reasons and all(reasons):
        return ImpossibleConditionError(f"{text} has probability zero in this model: {reasons[0]}")
    return ImpossibleConditionError(f"{text} has probability zero in this model. Widen it.")


def impossible_row(frame: pl.DataFrame, row: int, fitted: Fitted, first: int = 0) -> Exception:
    """Return the error for an impossible row of a frame of conditions, whose rows are numbered from `first`."""
    values = {name: value for name, value in frame.row(row, named=True).items() if value is not None}
    where = f"given, row {first + row}"
    box = {name: ValueSet.read(value, frame.schema[name], where) for name, value in values.items()}
    for name, wanted in box.items():
        column = user_column(name, fitted.schema, fitted.relations)
        is_plain = name not in fitted.relations.targets and column.kind == "categorical"
        if is_plain and (unseen := unseen_level(wanted, column, f"{where}: {name!r}")) is not None:
            return unseen
    reason = _reason(box, fitted) or f"{values!r} has probability zero in this model."
    return ImpossibleConditionError(
        f'{where}: {reason} Widen it, or say on_impossible="null" or "relax" where you sample.'
    )


def _reason(box: Box, fitted: Fitted) -> str | None:
    """Return why no row lies in a box, if one column or one rule is the cause."""
    relations, observed = fitted.relations, fitted.observed
    for name, wanted in box.items():
        column = user_column(name, fitted.schema, relations)
        if not wanted.null and not wanted.nan and observed and (beyond := _beyond_range(wanted, column)) is not None:
            return beyond
        if name in relations.targets and not relations.translate({name: wanted}, observed=observed).boxes:
            text = relations.targets[name].text()
            return f"{_shown(wanted)} cannot occur: {text}." if text else None
    return _broken_rule(box, fitted)


def _beyond_range(wanted: ValueSet, column: Column) -> str | None:
    axis = column.axis
    if axis is None or not wanted.spans:
        return None
    low, high = axis.from_axis(np.array([axis.low, axis.high]), column.dtype)
    observed = ValueSet.read((low, high), column.dtype, column.name)
    if observed & wanted:
        return None
    return f"{column.name!r}: {_shown(wanted)} is outside the observed range, {low} to {high}."


def _shown(wanted: ValueSet) -> str:
    """Describe a set of values in the units of its column."""

    def text(span: Span) -> str:
        ends = [None if abs(end) == np.inf else end for end in span] if not isinstance(span.low, str) else list(span)
        low, high = column_values(ends, wanted.dtype).to_list()
        return repr(low) if span.is_point else f"({low!r}, {high!r})"

    shown = ["None"] * wanted.null + ["NaN"] * wanted.nan + [text(span) for span in wanted.spans[:3]]
    return ", ".join(shown) + (", .." if len(wanted.spans) > 3 else "")


def _broken_rule(box: Box, fitted: Fitted) -> str | None:
    """Return the first rule that the single values of a box violate, if any."""
    relations = fitted.relations
    for rule in relations.enforced:
        names = columns_of_rule(rule)
        if not all(name in box and box[name].is_single and box[name].points for name in names):
            continue
        row = pl.DataFrame({name: nameless(box[name].single()) for name in names})
        is_known, holds = satisfied(rule, row, relations.decimals)
        if is_known[0] and not holds[0]:
            rule_text = f"{write(rule.left)} {rule.sign} {write(rule.right)}"
            return f"contradicts the rule {rule_text}. Change one of its values, or leave one out."
    return None


def contradicts_rules(given: Given, fitted: Fitted) -> bool:
    """Return whether every alternative of a condition has single values that contradict a rule."""
    return all(_broken_rule(box, fitted) is not None for box in given.boxes)
