"""Find rules in a sample: guess formulas, score them against chance, and select a consistent set."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from arf_dask.data.axes import FLOATS, summarise_axis
from arf_dask.data.date_search import date_forms
from arf_dask.rules.evaluation import kind_of_dtype
from arf_dask.rules.expressions import Comparison, Name, Node, Operation, columns_of
from arf_dask.rules.grids import find_grid
from arf_dask.rules.level_search import search_levels
from arf_dask.rules.linear_search import search_linear
from arf_dask.rules.number_search import Guess, Numbers, search_sums
from arf_dask.rules.order_search import LEAST_ROWS as LEAST_ORDERED_ROWS
from arf_dask.rules.order_search import (
    search_copies,
    search_differences,
    search_named_orders,
    search_orders,
    search_text_copies,
    search_text_orders,
)
from arf_dask.rules.part_search import search_parts
from arf_dask.rules.product_search import search_products
from arf_dask.rules.scoring import NEARLY_ALL, Scored, score
from arf_dask.rules.selection import choose, hours_fit, split_hours
from arf_dask.rules.solving import solve
from arf_dask.rules.targets import Target, decimals_of
from arf_dask.rules.transforms import Transform
from arf_dask.rules.transforms.grid import clock_columns
from arf_dask.typing import Floats

SAMPLE_ROWS = 1_500
LEAST_ROWS = 20  # minimum number of distinct sampled rows for a search
MOST_COLUMNS = 400  # wider tables are not searched, which would take longer than learning; rules can still be declared
MOST_TURNED = 40  # maximum number of formulas that are also solved for their inputs
TIMES = ("date", "datetime", "duration", "time")
ORDERED_KINDS = (("integer", "number"), ("date", "datetime"), ("duration",), ("time",))


@dataclass(frozen=True)
class Findings:
    """Rules that a sample suggests, before they are verified on all rows."""

    formulas: list[Scored]
    orders: list[tuple[str, str]]  # (lower, upper)
    differences: list[tuple[str, str]]
    grids: list[Transform]
    hours: list[Scored] = field(
        default_factory=list
    )  # formulas for the hour of a timestamp that is modelled without it
    levels: list[tuple[str, Node]] = field(default_factory=list)  # numbers with the levels that they hang on

    def without(self, columns: Collection[str]) -> Findings:
        """Return the findings without the rules that determine one of these columns."""
        hours = [one for one in self.hours if not {one.target, *columns_of(one.formula)} & set(columns)]
        formulas = [*self.formulas, *(one for one in self.hours if one not in hours)]
        formulas = [finding for finding in formulas if finding.target not in columns]
        orders = [pair for pair in self.orders if pair[1] not in columns]
        grids = [finding for finding in self.grids if finding.target.name not in columns]
        levels = [one for one in self.levels if one[0] not in columns]
        return Findings(formulas, orders, self.differences, grids, hours, levels)


def find_rules(
    sample: pl.DataFrame, skip: Collection[str], rng: np.random.Generator, n_rows: int | None = None
) -> Findings:
    """Find the formulas, orders, differences and grids that a sample of rows supports.

    Args:
        sample: rows of the table; duplicate rows are dropped.
        skip: columns that no rule may determine or use, such as identifiers.
        rng: draws the rows of each search, and shuffles rows to estimate chance agreement.
        n_rows: rows of the table; None for those of the sample.
    """
    names = [name for name in sample.columns if name not in skip]
    frame = sample.select([pl.nth(sample.columns.index(name)) for name in names]).unique(maintain_order=True)
    targets = {name: sample_target(frame.get_column(name)) for name in names}
    if frame.height < LEAST_ROWS or frame.width < 2:
        return Findings([], _named_orders(frame, targets), [], [])
    numbers = _numbers(frame, targets, ("integer", "number"))
    forms = date_forms(frame, tell=True)
    guesses = [*search_copies(numbers), *search_sums(numbers, rng), *search_products(numbers, rng)]
    guesses += search_linear(numbers, frame, rng)
    guesses += [*search_parts(frame), *search_text_copies(frame), *_time_copies(frame, targets)]
    scored = [
        scored_guess
        for guess in guesses
        if (scored_guess := score(guess, frame, targets[guess.target], rng)) is not None
    ]
    scored += _turned(scored, frame, targets, rng)
    others, hours = split_hours(scored, frame)
    formulas = choose(others, frame, targets)
    if hours and not hours_fit(hours, formulas):
        formulas, hours = choose(scored, frame, targets), []
    decided_names = {formula.target for formula in formulas}
    hour_names = {name for one in hours for name in (one.target, *columns_of(one.formula))}
    orders = [
        pair
        for pair in (*_orders(frame, targets, numbers, rng), *search_text_orders(frame, forms, rng))
        if not (decided_names | hour_names) & set(pair) or _is_partial_copy(pair, formulas)
    ]
    clock_names = set(clock_columns(frame))
    grids = [
        find_grid(frame.get_column(name), targets[name], clock=name in clock_names, form=forms.get(name))
        for name in names
        if name not in decided_names
    ]
    differences = search_differences(frame, sample.height if n_rows is None else n_rows)
    levels = search_levels(frame, targets, decided_names | hour_names)
    return Findings(formulas, orders, differences, [grid for grid in grids if grid is not None], hours, levels)


def find_text_dates(sample: pl.DataFrame, skip: Collection[str]) -> Findings:
    """Find only the text columns that hold dates or times in one format."""
    texts = [
        series for series in sample if series.name not in skip and isinstance(series.dtype, pl.String | pl.Categorical)
    ]
    forms = date_forms(texts, tell=True)
    grids = [find_grid(series, sample_target(series), form=forms.get(series.name)) for series in texts]
    return Findings([], [], [], [grid for grid in grids if grid is not None])


def sample_target(series: pl.Series) -> Target:
    """Return a column as the target of a rule, with the decimals of a sample."""
    axis_summary = summarise_axis(series) if series.dtype in FLOATS else None
    return Target(
        series.name, series.dtype, decimals_of(series.dtype, None if axis_summary is None else axis_summary.digits)
    )


def _numbers(
    frame: pl.DataFrame, targets: dict[str, Target], kinds: tuple[str, ...], least_rows: int = LEAST_ROWS
) -> Numbers:
    """Return the columns of these kinds that have at least three distinct values, as floats."""
    names, columns, half_units, is_whole = [], [], [], []
    for series in frame:
        if kind_of_dtype(series.dtype) not in kinds or series.dtype == pl.Boolean:
            continue
        values = _floats(series)
        known_values = values[~np.isnan(values)]
        if len(known_values) < least_rows or len(np.unique(known_values)) < 3:
            continue
        target = targets[series.name]
        names.append(series.name)
        columns.append(values)
        half_units.append(0.0 if target.decimals is None else 0.5 * 10.0**-target.decimals)
        is_whole.append(bool((known_values == np.round(known_values)).all()))
    table = np.stack(columns, axis=1) if columns else np.empty((frame.height, 0))
    return Numbers(names, table, np.array(half_units), np.array(is_whole, dtype=bool))


def _floats(series: pl.Series) -> Floats:
    series = series.alias("")
    if isinstance(series.dtype, pl.Date | pl.Datetime):
        zone = getattr(series.dtype, "time_zone", None)
        series = series.cast(pl.Datetime("us", zone)).to_physical()
    elif series.dtype.is_temporal():
        series = series.to_physical()
    return np.array(series.cast(pl.Float64).to_numpy())


def _time_copies(frame: pl.DataFrame, targets: dict[str, Target]) -> list[Guess]:
    return [guess for kind in TIMES for guess in search_copies(_numbers(frame, targets, (kind,)))]


def _orders(
    frame: pl.DataFrame, targets: dict[str, Target], numbers: Numbers, rng: np.random.Generator
) -> list[tuple[str, str]]:
    """Find orders between numbers, between dates and datetimes, between durations, and between times."""
    if frame.height < LEAST_ORDERED_ROWS:
        return _named_orders(frame, targets)
    order_pairs = search_orders(numbers, rng, plain=True)
    for kinds in ORDERED_KINDS[1:]:
        order_pairs += search_orders(_numbers(frame, targets, kinds), rng, plain=False)
    return order_pairs


def _named_orders(frame: pl.DataFrame, targets: dict[str, Target]) -> list[tuple[str, str]]:
    """Find the orders of a small table that the names of its columns imply."""
    tables = [_numbers(frame, targets, kinds, 1) for kinds in ORDERED_KINDS]
    return [pair for table in tables for pair in search_named_orders(table)]


def _is_partial_copy(pair: tuple[str, str], formulas: list[Scored]) -> bool:
    """Whether the only formulas for a pair of ordered columns say that they are equal in some rows."""
    deciding = [one for one in formulas if one.target in pair]
    return (
        all(one.share < NEARLY_ALL and one.formula in [Name(name) for name in pair] for one in deciding)
        and len(deciding) == 1
    )


def _turned(
    scored: list[Scored], frame: pl.DataFrame, targets: dict[str, Target], rng: np.random.Generator
) -> list[Scored]:
    """Solve formulas for their inputs, as alternatives for columns that several formulas determine."""
    turned_formulas = []
    exact_formulas = [one for one in scored if one.share >= NEARLY_ALL and isinstance(one.formula, Operation)]
    for one in sorted(exact_formulas, key=lambda one: one.cost)[:MOST_TURNED]:
        equation = Comparison(Name(one.target), "==", one.formula)
        for input_name in columns_of(one.formula):
            solution = solve(equation, input_name, is_text=targets[one.target].is_text)
            scored_solution = (
                None if solution is None else score(Guess(input_name, solution), frame, targets[input_name], rng)
            )
            if scored_solution is not None:
                extra_cost = _price_of_turning(frame, one, input_name)
                turned_formulas.append(
                    Scored(
                        input_name,
                        scored_solution.formula,
                        scored_solution.share,
                        scored_solution.cost + extra_cost,
                        scored_solution.levels,
                    )
                )
    return turned_formulas


def _price_of_turning(frame: pl.DataFrame, one: Scored, part: str) -> float:
    """Return the extra cost of solving for an input; negative if it comes last and negative values occur."""
    other_names = [one.target, *(name for name in columns_of(one.formula) if name != part)]
    all_nonnegative = all(_is_nonnegative(frame, name) for name in (*other_names, part))
    is_last = frame.columns.index(part) > max(map(frame.columns.index, other_names))
    return 0.5 if all_nonnegative or not is_last else -0.5


def _is_nonnegative(frame: pl.DataFrame, name: str) -> bool:
    values = frame.get_column(name).cast(pl.Float64)
    return not bool((values < 0).any())
