"""Answers to queries in the user's columns: exact where modelled columns express them, otherwise by simulation.

A query is exact if its event and its condition translate to exact regions of the modelled columns, and no rule redraws
rows in their columns. All others are estimated from `DRAWS` rows drawn with a fixed seed: repeating a query gives the
same result, with a standard error of at most 0.001 of the column's range (of 1, for probabilities). Under a condition
that few rows fit it is larger: at least `ROW_DRAWS` rows are drawn. Answers of refined models are averages over draws
of the forest with weights; the exact answer of the forest, where there is one, corrects them (`fixed_draws`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, get_args

import numpy as np
import polars as pl

from arf_dask.data.axes import is_numeric
from arf_dask.data.value_sets import Box, Interval, ValueSet, is_choices, meet, read_number
from arf_dask.errors import OptionError, unknown_column
from arf_dask.forest.fitted import Fitted
from arf_dask.inference.completed_rows import Seeds, complete
from arf_dask.inference.conditions import parse
from arf_dask.inference.density import (
    ZeroProbabilityError,
    log_density,
    log_region_probability,
    region_share,
)
from arf_dask.inference.expectations import expect
from arf_dask.inference.fixed_draws import (
    PRIOR_HITS,
    SEED,
    Draws,
    draw_fixed,
    fixed_draws,
    fixed_row_draws,
    log_mean_ratio,
    row_log_ratios,
)
from arf_dask.inference.forge import BLOCK_ROWS, Sampler
from arf_dask.inference.given import (
    Given,
    Known,
    impossible,
    impossible_row,
    make_given,
    read_condition,
    user_frame,
)
from arf_dask.inference.known_rows import read_rows
from arf_dask.inference.posteriors import row_log_density
from arf_dask.inference.quantiles import checked_levels, mixture, quantiles
from arf_dask.inference.sources import Block, make_source
from arf_dask.rules.relations import Relations, columns_of_rule
from arf_dask.typing import Flags, Floats, Missing

INTEGRAL_DRAWS = 16_384  # draws for all rows together whose density requires integration, ...
LEAST_INTEGRAL_DRAWS = 256  # ... and for each row
# Share of redrawn rows up to which other columns than those of the broken rules keep their distribution, nearly.
UNNOTICED = 0.001
Answer = TypeVar("Answer")
Densities = Callable[[Sampler, pl.DataFrame, Missing], Floats]


def probability(sampler: Sampler, event: Any, given: Known) -> float | list[float]:
    """Return the probability of an event; a list with one probability per row if `given` is a frame."""
    fitted = sampler.fitted
    wanted = read_condition(event, fitted, "event")
    if isinstance(given, pl.DataFrame):
        return _row_probabilities(sampler, wanted, given)
    with explained(given, fitted):
        exact = _exact_share(sampler, wanted.boxes, ({},) if given is None else given.boxes)
        if exact is not None and (fitted.refinement is None or exact in (0.0, 1.0)):
            return exact
        draws = fixed_draws(sampler, given)
        return draws.share(wanted.fits(draws.rows), exact)


def expected_values(
    sampler: Sampler, columns: Sequence[str] | None, given: Known, *, level_probabilities: bool
) -> pl.DataFrame:
    """One row per condition: the mean of numeric columns, the most probable level of others (or all levels)."""
    fitted = sampler.fitted
    names = _checked_names(fitted, columns)
    is_exact = _is_exact(sampler, given)
    exact_names = [name for name in names if is_exact and _is_direct(sampler, name)]
    drawn_names = names if fitted.refinement is not None else [name for name in names if name not in exact_names]
    with explained(given, fitted):
        conditions = _modelled_conditions(given, fitted) if exact_names else ({},)
        exact = (
            expect(fitted.tables, exact_names, conditions, level_probabilities=level_probabilities)
            if exact_names
            else pl.DataFrame()
        )
    if not drawn_names:
        return exact if level_probabilities else exact.select(pl.nth(exact.columns.index(name)) for name in names)
    if level_probabilities:
        drawn = _level_shares(sampler, drawn_names, given, exact)
        tables = [drawn] if fitted.refinement is not None or not exact_names else [exact, drawn]
        return _by_row_and_name(tables, names)
    drawn = _means(sampler, drawn_names, given, exact)
    return pl.DataFrame({name: (drawn if name in drawn.columns else exact).get_column(name) for name in names})


def quantile(sampler: Sampler, column: str, q: Any, given: Known) -> Any:
    """Return the smallest value with cumulative probability at least q; a list for a list of q, per row of a frame."""
    levels = checked_levels(q)
    _check_number_column(sampler.fitted, column, "quantile")
    relations = sampler.relations
    is_ordered = column not in relations.targets or relations.targets[column].is_ordered

    def exact_quantiles(condition: Given | None) -> list[Any]:
        return _exact_quantiles(sampler.fitted, column, levels, condition)

    def drawn_quantiles(draws: Draws) -> list[Any]:
        draws = draws.filter(_are_numbers(draws.rows.get_column(column)))
        if not draws.rows.height:
            return [None] * len(levels)
        values = draws.rows.get_column(column)
        order = values.arg_sort()
        cumulative_weights = np.cumsum(draws.weights[order.to_numpy()])
        places = np.searchsorted(cumulative_weights, np.asarray(levels) * cumulative_weights[-1] - 1e-9)
        return [values[int(order[int(place)])] for place in np.minimum(places, len(values) - 1)]

    is_exact = sampler.fitted.refinement is None and is_ordered and _is_exact(sampler, given, [column])
    results = _each(sampler, given, exact_quantiles if is_exact else None, drawn_quantiles)
    return _as_asked(results, several=is_choices(q), frame=isinstance(given, pl.DataFrame))


def cumulative(sampler: Sampler, column: str, x: Any, given: Known) -> Any:
    """Return the probability of numbers up to x; a list for a list of x, per row of a frame."""
    fitted = sampler.fitted
    _check_number_column(fitted, column, "cdf")
    dtype, where = fitted.dtypes[column], f"x: {column!r}"
    limits = list(x) if is_choices(x) else [x]
    for limit in limits:
        read_number(limit, dtype, where)
    events = [{column: ValueSet.read(Interval(None, limit), dtype, where)} for limit in limits]
    numbers = {column: ValueSet.numbers(dtype)}

    def exact_shares(condition: Given | None) -> list[float] | None:
        boxes = ({},) if condition is None else condition.boxes
        given_number = tuple(meet(box, numbers) for box in boxes)
        shares = [_exact_share(sampler, (event,), given_number) for event in events]
        known_shares = [share for share in shares if share is not None]
        return known_shares if len(known_shares) == len(shares) else None

    def drawn_shares(draws: Draws) -> list[float]:
        draws = draws.filter(_are_numbers(draws.rows.get_column(column)))
        return [draws.share(event[column].contains(draws.rows.get_column(column))) for event in events]

    is_exact = fitted.refinement is None and _is_exact(sampler, given, [column])
    results = _each(sampler, given, exact_shares if is_exact else None, drawn_shares)
    return _as_asked(results, several=is_choices(x), frame=isinstance(given, pl.DataFrame))


def row_log_densities(sampler: Sampler, frame: pl.DataFrame, given: Known, missing: Missing) -> Floats:
    """Return the log density of each row, independent of the other rows of the frame.

    Computed columns contribute nothing, but a row that contradicts one gets -inf.
    """
    if missing not in get_args(Missing):
        raise OptionError(f'missing={missing!r}: say "value" (a null counts) or "marginal" (it is integrated out).')
    rows = user_frame(frame, sampler.fitted)
    is_refined = sampler.fitted.refinement is not None
    if isinstance(given, pl.DataFrame):
        return _densities_given_rows(sampler, rows, given, missing, _refined_densities)
    if given is None:
        return _refined_densities(sampler, rows, missing)
    with explained(given, sampler.fitted):
        log_densities = _densities_given(sampler, rows, given, missing)
        if not is_refined:
            return log_densities
        log_ratios = row_log_ratios(sampler, rows, null_is_value=missing == "value", given=given)
        return np.asarray(log_densities + log_ratios - log_mean_ratio(sampler, given))


@contextmanager
def explained(given: Known, fitted: Fitted) -> Iterator[None]:
    """Turn the error of a condition of probability zero into one that names the condition."""
    try:
        yield
    except ZeroProbabilityError as error:
        if isinstance(given, pl.DataFrame):
            raise impossible_row(given, error.row or 0, fitted) from None
        raise impossible(given, fitted) from None


# Exact answers.


def _exact_share(sampler: Sampler, event: Sequence[Box], given: Sequence[Box]) -> float | None:
    """Return the probability of an event under a condition; None if it can only be estimated."""
    fitted = sampler.fitted
    names = {name for box in (*event, *given) for name in box}
    if names & redrawn_columns(sampler):
        return None
    # Rows outside the range of a transformed column are redrawn.
    ranges = fitted.relations.ranges(names, observed=fitted.observed)
    condition = make_given(tuple(meet(ranges, box) for box in given), fitted, "given")
    joint = make_given(tuple(meet(box, other) for box in condition.boxes for other in event), fitted, "event")
    if not condition.region.exact or not joint.region.exact:
        return None
    return region_share(fitted.tables, joint.region.boxes, condition.region.boxes)


def _exact_quantiles(fitted: Fitted, column: str, levels: Sequence[float], given: Given | None) -> list[Any]:
    """Return quantiles of a column that is not null, part by part if several modelled columns take its place."""
    relations = fitted.relations
    numbers = {column: ValueSet.numbers(fitted.dtypes[column])}
    boxes = ({},) if given is None else given.boxes
    region = make_given(tuple(meet(box, numbers) for box in boxes), fitted, "given").region.boxes
    parts = relations.modelled_names([column])
    if column not in relations.targets:
        return quantiles(fitted.tables, column, levels, region)
    values = [_part_values(fitted, parts, level, region) for level in levels]
    outputs = relations.targets[column].outputs
    columns = {part: pl.Series(part, [row[i] for row in values], dtype=outputs[part]) for i, part in enumerate(parts)}
    return relations.targets[column].inverse(pl.DataFrame(), columns).to_list()


def _part_values(fitted: Fitted, parts: Sequence[str], level: float, region: Sequence[Box]) -> list[Any]:
    """Return the parts of a quantile of values in lexicographic order of their parts."""
    values: list[Any] = []
    for position, part in enumerate(parts):
        (value,) = quantiles(fitted.tables, part, [level], region)
        values.append(value)
        if position < len(parts) - 1:
            column_mixture, column = mixture(fitted.tables, part, region)
            assert column.axis is not None
            (place,) = column.axis.to_axis(pl.Series([value], dtype=column.dtype))
            upto, below = (column_mixture.below(end, grid=True) for end in (place, place - 1))
            level = min(max((level - below) / (upto - below), 0.0), 1.0) if upto > below else 0.0
            point = ValueSet.read(value, column.dtype, part)
            region = [meet(box, {part: point}) for box in region]
            region = [box for box in region if all(box.values())]
    return values


def _is_exact(sampler: Sampler, given: Known, columns: Sequence[str] = ()) -> bool:
    """Return whether answers about columns under a condition are exact."""
    relations = sampler.relations
    if not relations:
        return True
    names = {*columns, *(given.columns if isinstance(given, pl.DataFrame | Given) else ())}
    if names & redrawn_columns(sampler):
        return False
    if isinstance(given, pl.DataFrame):
        return all(name not in relations.targets or relations.targets[name].one_to_one for name in names)
    numbers = {name: ValueSet.numbers(sampler.fitted.dtypes[name]) for name in columns if name in relations.targets}
    ranges = meet(numbers, relations.ranges(numbers, observed=sampler.fitted.observed))
    boxes = ({},) if given is None else given.boxes
    return make_given(tuple(meet(box, ranges) for box in boxes), sampler.fitted, "given").region.exact


def _is_direct(sampler: Sampler, name: str) -> bool:
    """Return whether a column is modelled as it is, and no rule redraws rows because of its values."""
    return name not in sampler.relations.targets and name not in redrawn_columns(sampler)


def _modelled_conditions(given: Known, fitted: Fitted) -> Sequence[Box] | pl.DataFrame:
    if given is None:
        return ({},)
    if isinstance(given, Given):
        return given.region.boxes
    return fitted.relations.resolve(given, fitted.schema.dtypes, null_is_value=False).frame


def redrawn_columns(sampler: Sampler) -> frozenset[str]:
    """Return the columns whose distribution changes because rows that break a rule are redrawn; found by a fixed draw.

    These are the columns of the broken rules; all columns, if more than very few rows are redrawn.
    """
    relations = sampler.relations
    if not relations.enforced:
        return frozenset()
    found: frozenset[str] = sampler.kept.get("redrawn columns", lambda: _redrawn_columns(sampler))
    return found


def _redrawn_columns(sampler: Sampler) -> frozenset[str]:
    relations = sampler.relations
    rows = relations.unmarked(_rebuilt_rows(sampler))
    flags = {rule: relations.breaks(rule, rows) for rule in relations.enforced}
    broken = [rule for rule in relations.enforced if flags[rule].any()]
    if broken and np.logical_or.reduce([flags[rule] for rule in broken]).mean() > UNNOTICED:
        return frozenset(sampler.fitted.dtypes)
    return frozenset(name for rule in broken for name in columns_of_rule(rule))


def _rebuilt_rows(sampler: Sampler, boxes: Sequence[Box] = ({},)) -> pl.DataFrame:
    """Return a block of rows as they are rebuilt from modelled rows, before any is redrawn."""
    modelled = make_source(sampler, boxes).draw(SEED, Block(0, 0, BLOCK_ROWS))
    return sampler.relations.inverse(modelled)


def log_valid_share(sampler: Sampler, columns: Iterable[str]) -> float:
    """Return the log share of modelled rows that are not redrawn because of these columns."""
    names = sampler.relations.determined(columns)
    found: float = sampler.kept.get(("valid", names), lambda: _log_valid_shares(sampler, (names,), None)[0])
    return found


def _log_valid_shares(sampler: Sampler, column_sets: Sequence[Iterable[str]], given: Given | None) -> list[float]:
    """Return the log share of modelled rows that are not redrawn, under a condition, for each of several sets."""
    relations, observed = sampler.relations, sampler.fitted.observed
    name_sets = [relations.determined(columns) for columns in column_sets]
    if not any(relations.checks(names) for names in name_sets):
        return [0.0] * len(name_sets)
    rows = _rebuilt_rows(sampler, ({},) if given is None else given.region.boxes)
    shares = [1.0 - float(relations.broken(rows, observed=observed, columns=names).mean()) for names in name_sets]
    return [float(np.log(max(share, 0.5 / BLOCK_ROWS))) for share in shares]


# Draws.


def _each(
    sampler: Sampler,
    given: Known,
    exact: Callable[[Given | None], Answer | None] | None,
    drawn: Callable[[Draws], Answer],
) -> list[Answer]:
    """Return one answer per condition: exact ones, or ones about drawn rows where there is none."""

    def answer(condition: Given | None, row: int) -> Answer:
        found = None if exact is None else exact(condition)
        if found is not None:
            return found
        if isinstance(given, pl.DataFrame):
            return drawn(fixed_row_draws(sampler, given, row))
        return drawn(fixed_draws(sampler, given))

    if not isinstance(given, pl.DataFrame):
        with explained(given, sampler.fitted):
            return [answer(given, 0)]
    answers = []
    for row in range(given.height):
        try:
            answers.append(answer(None if exact is None else _row_condition(given, row, sampler.fitted), row))
        except ZeroProbabilityError:
            raise impossible_row(given, row, sampler.fitted) from None
    return answers


def _row_condition(frame: pl.DataFrame, row: int, fitted: Fitted) -> Given:
    """Return one row of a frame of conditions as a condition."""
    values = {name: value for name, value in frame.row(row, named=True).items() if value is not None}
    box = {name: ValueSet.read(value, fitted.dtypes[name], f"given: {name!r}") for name, value in values.items()}
    return make_given((box,), fitted, f"given, row {row}")


def _row_probabilities(sampler: Sampler, event: Given, given: pl.DataFrame) -> list[float]:
    """Return the probability of an event under the condition in each row of a frame."""
    exact_shares = _exact_row_probabilities(sampler, event, given)
    if exact_shares is not None and sampler.fitted.refinement is None:
        return exact_shares
    shares = []
    for row in range(given.height):
        exact = None if exact_shares is None else exact_shares[row]
        draws = fixed_row_draws(sampler, given, row)
        shares.append(exact if exact in (0.0, 1.0) else draws.share(event.fits(draws.rows), exact))
    return shares


def _exact_row_probabilities(sampler: Sampler, event: Given, given: pl.DataFrame) -> list[float] | None:
    """Return the probabilities of an event in the forest; None if they can only be estimated."""
    fitted = sampler.fitted
    if not event.region.exact or not _is_exact(sampler, given, sorted(event.columns)):
        return None
    # Rows outside the range of a transformed column are redrawn.
    ranges = fitted.relations.ranges(event.columns, observed=fitted.observed)
    valid = make_given((ranges,), fitted, "event").region
    conjunctions, valid_conjunctions = (
        parse(boxes, fitted.schema, "event", mixed=True) for boxes in (event.region.boxes, valid.boxes)
    )
    if any(allowed.exact for one in (*conjunctions, *valid_conjunctions) for allowed in one.values()):
        # A single continuous value has positive probability only in rows that fix it: evaluate row by row.
        return _each(
            sampler,
            given,
            lambda row: _exact_share(sampler, event.boxes, ({},) if row is None else row.boxes),
            lambda draws: draws.share(event.fits(draws.rows)),
        )
    modelled = fitted.relations.resolve(given, fitted.schema.dtypes, null_is_value=False)
    known_rows = read_rows(modelled.frame, fitted.tables, modelled.known)
    valid_logs = row_log_density(fitted.tables, known_rows, valid_conjunctions)
    row_totals = np.where(modelled.contradictory, -np.inf, valid_logs)
    if (impossible_rows := np.flatnonzero(np.isneginf(row_totals))).size:
        raise impossible_row(given, int(impossible_rows[0]), fitted)
    return list(np.exp(row_log_density(fitted.tables, known_rows, conjunctions) - row_totals))


# Densities.


def _refined_densities(sampler: Sampler, rows: pl.DataFrame, missing: Missing) -> Floats:
    """Return the log density of each row of the user's columns, with what a refinement adds."""
    log_densities = _densities(sampler, rows, missing)
    if sampler.fitted.refinement is None:
        return log_densities
    log_ratios = row_log_ratios(sampler, rows, null_is_value=missing == "value")
    return np.asarray(log_densities + log_ratios - log_mean_ratio(sampler, None))


def _densities(sampler: Sampler, rows: pl.DataFrame, missing: Missing) -> Floats:
    """Return the log density of each row of the user's columns in the forest."""
    fitted, relations = sampler.fitted, sampler.relations
    modelled = relations.resolve(rows, fitted.schema.dtypes, null_is_value=missing == "value")
    log_densities = (
        log_density(fitted.tables, modelled.frame, modelled.known) if modelled.frame.width else np.zeros(rows.height)
    )
    log_densities = log_densities + modelled.log_slopes
    log_densities = np.where(modelled.contradictory, -np.inf, log_densities)
    integral_rows = np.flatnonzero(modelled.unresolved & ~modelled.contradictory)
    if len(integral_rows):
        log_densities[integral_rows] += _log_integrals(sampler, rows[integral_rows])
    return log_densities - log_valid_share(sampler, rows.columns)


def _densities_given_rows(
    sampler: Sampler, rows: pl.DataFrame, given: pl.DataFrame, missing: Missing, densities: Densities
) -> Floats:
    """Return the log density of each row given the condition in the same row of `given`; `densities` are joint ones."""
    if given.height != rows.height:
        raise OptionError(
            f"given has {given.height} rows and data {rows.height}. Give one condition per row, or a dict."
        )
    is_given = given.select(pl.nth(i).is_not_null() for i in range(given.width)).to_numpy()
    log_densities = np.empty(rows.height)
    patterns, pattern_of = np.unique(is_given, axis=0, return_inverse=True)
    for pattern_index, pattern in enumerate(patterns):
        places = np.flatnonzero(pattern_of.ravel() == pattern_index)
        conditions = given[places].select(pl.nth(i) for i in np.flatnonzero(pattern).tolist())
        joint_rows, clashes = _joined(rows[places], conditions, missing)
        condition_logs = densities(sampler, conditions, "value") if conditions.width else np.zeros(len(places))
        if (impossible_rows := np.flatnonzero(np.isneginf(condition_logs))).size:
            raise impossible_row(given, int(places[impossible_rows[0]]), sampler.fitted)
        joint_logs = densities(sampler, joint_rows, missing) - condition_logs
        log_densities[places] = np.where(clashes, -np.inf, joint_logs)
    return log_densities


def _joined(rows: pl.DataFrame, conditions: pl.DataFrame, missing: Missing) -> tuple[pl.DataFrame, Flags]:
    """Return rows with the columns of their conditions, and the rows that contradict their condition."""
    clashes = np.zeros(rows.height, dtype=bool)
    for name in conditions.columns:
        condition = conditions.get_column(name)
        if name in rows.columns:
            own_values = rows.get_column(name)
            differs = own_values.alias("").ne_missing(condition.alias(""))
            clashes |= (differs if missing == "value" else differs & own_values.is_not_null()).to_numpy()
        rows = rows.with_columns(condition)
    return rows, clashes


def _densities_given(sampler: Sampler, rows: pl.DataFrame, given: Given, missing: Missing) -> Floats:
    """Return the log density of each row given one condition."""
    fitted, relations = sampler.fitted, sampler.relations
    if not given.region.boxes:
        raise ZeroProbabilityError
    if not given.region.exact:
        return _densities_given_inexact(sampler, rows, given, missing)
    boxes = given.region.boxes
    log_total = log_region_probability(fitted.tables, boxes)
    if np.isneginf(log_total):
        raise ZeroProbabilityError
    modelled = relations.resolve(rows, fitted.schema.dtypes, null_is_value=missing == "value")
    if modelled.unresolved.any():
        return _densities_given_inexact(sampler, rows, given, missing)
    log_densities = (
        log_density(fitted.tables, modelled.frame, modelled.known, boxes) - log_total + modelled.log_slopes
        if modelled.frame.width
        else np.zeros(rows.height)
    )
    # Rows whose known columns break no rule are not rarer for rules among columns of the condition alone.
    condition_only = set(given.columns) - set(rows.columns)
    log_valid, log_before = _log_valid_shares(sampler, ({*rows.columns, *given.columns}, condition_only), given)
    log_valid -= log_before
    return np.where(modelled.contradictory | ~given.fits(rows), -np.inf, log_densities - log_valid)


def _densities_given_inexact(sampler: Sampler, rows: pl.DataFrame, given: Given, missing: Missing) -> Floats:
    """Return the log density of rows under a condition that modelled columns do not express."""
    relations = sampler.relations
    conditioned = relations.with_inputs(given.columns)
    n_draws = _density_draws(rows.height)
    if not set(rows.columns) & set(conditioned):
        # The mean over draws of the conditioned columns, which the density of the others is exact for.
        draws = draw_fixed(sampler, given, n_draws).select(pl.nth(relations.names.index(n)) for n in conditioned)
        return _mean_density_given(sampler, rows, draws, missing)
    log_densities = _densities(sampler, rows, missing)
    log_share = _log_share(sampler, given)
    if given.columns <= set(rows.columns):
        return np.where(given.fits(rows), log_densities - log_share, -np.inf)
    condition_only = {
        name: given.boxes[0][name] for name in sorted(given.columns - set(rows.columns)) if len(given.boxes) == 1
    }
    if condition_only and all(wanted.is_single and wanted.points for wanted in condition_only.values()):
        singles = [one.single().alias(name).new_from_index(0, rows.height) for name, one in condition_only.items()]
        joint_logs = _densities(sampler, rows.with_columns(singles), missing)
        return np.where(given.fits(rows), joint_logs - log_share, -np.inf)
    completions = complete(sampler, rows, n_draws, Seeds(SEED, SEED, 0), "relax")
    shares = given.fits(completions).reshape(rows.height, n_draws).mean(axis=1)
    log_shares = np.log(np.maximum(shares, 0.5 / n_draws))
    return np.where(given.fits(rows), log_densities + log_shares - log_share, -np.inf)


def _density_draws(n_rows: int) -> int:
    """Return the number of draws per row over which densities are integrated: more for few rows."""
    return max(LEAST_INTEGRAL_DRAWS, INTEGRAL_DRAWS // max(n_rows, 1))


def _mean_density_given(sampler: Sampler, rows: pl.DataFrame, draws: pl.DataFrame, missing: Missing) -> Floats:
    """Return the logarithm of the mean density of each row given each of several draws of other columns."""
    n_at_once = max(1, BLOCK_ROWS // max(rows.height, 1))
    log_densities = []
    for first in range(0, draws.height, n_at_once):
        some_draws = draws[first : first + n_at_once]
        every_row = rows[np.tile(np.arange(rows.height), some_draws.height)]
        every_draw = some_draws[np.repeat(np.arange(some_draws.height), rows.height)]
        logs = _densities_given_rows(sampler, every_row, every_draw, missing, _densities)
        log_densities.append(logs.reshape(some_draws.height, rows.height))
    return np.asarray(np.logaddexp.reduce(np.concatenate(log_densities), axis=0) - np.log(draws.height))


def _log_share(sampler: Sampler, given: Given) -> float:
    """Return the log probability of a condition that modelled columns do not express, from draws in its region."""
    fitted = sampler.fitted
    log_region = log_region_probability(fitted.tables, given.region.boxes)
    if np.isneginf(log_region):
        raise ZeroProbabilityError
    rows = _rebuilt_rows(sampler, given.region.boxes)
    relations, observed = fitted.relations, fitted.observed
    share = float((given.fits(rows) & ~relations.broken(rows, observed=observed, columns=given.columns)).mean())
    if share == 0:
        raise ZeroProbabilityError
    return log_region + float(np.log(share)) - log_valid_share(sampler, given.columns)


def _log_integrals(sampler: Sampler, rows: pl.DataFrame) -> Floats:
    """Estimate the log density of the rule-determined columns of each row, averaged over draws of unknown columns.

    The draws are conditional on the known modelled columns of the row.
    """
    relations = sampler.relations
    plain_rows = rows.select(
        [pl.nth(position) for position, name in enumerate(rows.columns) if not _is_integrated(name, relations)]
    )
    log_means, n_draws = np.empty(rows.height), _density_draws(rows.height)
    for row in range(rows.height):
        drawn_rows = (
            complete(sampler, plain_rows[row : row + 1], n_draws, Seeds(SEED, SEED, 0), "relax")
            if plain_rows.width
            else draw_fixed(sampler, None, n_draws)
        )
        log_means[row] = _log_mean_match(relations, drawn_rows, rows[row : row + 1])
    return log_means


def _is_integrated(name: str, relations: Relations) -> bool:
    """Whether the density of a column is estimated from draws: grids are part of the modelled density."""
    return name in relations.targets and not relations.targets[name].one_to_one


def _log_mean_match(relations: Relations, rows: pl.DataFrame, known: pl.DataFrame) -> float:
    """Return the log density of the known rule-determined values among draws; half a draw is counted if none match."""
    row_matches = np.ones(rows.height, dtype=bool)
    window_volume = 1.0
    for name, transform in relations.targets.items():
        if not _is_integrated(name, relations) or name not in known.columns or known.get_column(name)[0] is None:
            continue
        drawn_units = transform.target.units(rows.get_column(name))
        known_units = transform.target.units(known.get_column(name))[0]
        if transform.target.is_text or not transform.target.is_float:
            row_matches &= (drawn_units == known_units).fill_null(False).to_numpy()
            continue
        drawn_deviation = float(drawn_units.cast(pl.Float64).std() or 1.0)  # type: ignore[arg-type]
        half_window = max(0.1 * drawn_deviation, float(transform.target.unit))
        row_matches &= ((drawn_units - known_units).abs() <= half_window).fill_null(False).to_numpy()
        window_volume *= 2 * half_window
    return float(np.log(max(row_matches.mean(), 0.5 / rows.height) / window_volume))


# Columns, and answers about drawn rows.


def _checked_names(fitted: Fitted, columns: Sequence[str] | None) -> list[str]:
    """Validate column names; return all modelled columns if None."""
    if columns is None:
        return [name for name in fitted.dtypes if name not in fitted.schema.keys]
    names = [columns] if isinstance(columns, str) else columns
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"columns={columns!r}: give a list of column names.")
    for name in names:
        if name not in fitted.dtypes:
            raise unknown_column(name, fitted.dtypes, "columns")
        if name in fitted.schema.keys:
            raise OptionError(f"columns: {name!r} is an identifier and not modelled. Leave it out.")
    return list(names)


def _check_number_column(fitted: Fitted, name: str, what: str) -> None:
    if not isinstance(name, str):
        raise OptionError(f"{what}: column={name!r}: give the name of one column.")
    _checked_names(fitted, [name])
    if _has_levels(fitted, name):
        raise OptionError(f"{what}: {name!r} has levels ({fitted.dtypes[name]}), not numbers. Use probability.")


def _are_numbers(values: pl.Series) -> Flags:
    """Flag the values that are neither null nor NaN."""
    values = values.alias("")
    are_numbers = values.is_not_null()
    return (are_numbers & values.is_not_nan().fill_null(False) if values.dtype.is_float() else are_numbers).to_numpy()


def _has_levels(fitted: Fitted, name: str) -> bool:
    """Return whether a column has levels, not numbers."""
    schema = fitted.schema
    if name in schema.positions and name not in fitted.relations.targets:
        return schema.columns[schema.positions[name]].kind != "numeric"
    return not is_numeric(fitted.dtypes[name])


def _as_asked(each: list[list[Any]], *, several: bool, frame: bool) -> Any:
    """Unwrap results to match the arguments: scalars for a scalar argument, a single entry unless given a frame."""
    results = each if several else [values[0] for values in each]
    return results if frame else results[0]


def _means(sampler: Sampler, names: list[str], given: Known, exact: pl.DataFrame) -> pl.DataFrame:
    """One row per condition: the mean of numeric columns over draws, and the most frequent level of others.

    Means are corrected by those of the forest, where these are exact.
    """

    def means(draws: Draws, row: int) -> pl.DataFrame:
        columns = {}
        for name in names:
            known = exact.get_column(name)[row : row + 1] if name in exact.columns else None
            columns[name] = _mode(draws, name) if _has_levels(sampler.fitted, name) else _mean(draws, name, known)
        return pl.DataFrame(columns)

    if not isinstance(given, pl.DataFrame):
        return means(fixed_draws(sampler, given), 0)
    rows = [means(fixed_row_draws(sampler, given, row), row) for row in range(given.height)]
    return pl.concat(rows) if rows else exact


def _mean(draws: Draws, name: str, exact: pl.Series | None) -> pl.Series:
    """Return the mean of a numeric or temporal column, corrected by its exact mean in the forest."""
    values = draws.rows.get_column(name)
    are_numbers = _are_numbers(values)
    if not are_numbers.any():
        return values.clear().extend_constant(None, 1) if exact is None else exact
    numbers = _physical(values.filter(pl.Series(are_numbers)))
    mean = float(np.average(numbers, weights=np.maximum(draws.weights[are_numbers], 1e-300)))
    if exact is not None and exact[0] is not None:
        mean += float(_physical(exact)[0]) - float(numbers.mean())
    if not values.dtype.is_temporal():
        return pl.Series(name, [mean], dtype=pl.Float64)
    physical = pl.Series(name, [round(mean)], dtype=pl.Int64)
    return physical.cast(pl.Int32).cast(pl.Date) if values.dtype == pl.Date else physical.cast(values.dtype)


def _physical(values: pl.Series) -> Floats:
    """Return numbers or times as floats."""
    return (values.to_physical() if values.dtype.is_temporal() else values).cast(pl.Float64).to_numpy()


def _mode(draws: Draws, name: str) -> pl.Series:
    """Return the most probable level of a column."""
    weights = pl.DataFrame({"value": draws.rows.get_column(name), "weight": draws.weights})
    totals = weights.group_by("value").agg(pl.col("weight").sum())
    ordered = totals.sort(["weight", pl.col("value").cast(pl.String)], descending=[True, False])
    return ordered["value"].head(1).alias(name)


def _level_shares(sampler: Sampler, names: list[str], given: Known, exact: pl.DataFrame) -> pl.DataFrame:
    """One row per (row of conditions, column, level) with its share of the draws, corrected by exact shares."""
    schema = {"column": pl.String, "level": pl.String, "probability": pl.Float64}

    def table(draws: Draws, known: pl.DataFrame) -> pl.DataFrame:
        level_frames = [pl.DataFrame(schema=schema)]
        for name in names:
            if _has_levels(sampler.fitted, name):
                levels = draws.rows.get_column(name).cast(pl.String).alias("level")
                by_level = pl.DataFrame({"level": levels, "share": draws.weights}).group_by("level")
                totals = pl.col("share").sum(), (pl.len() / draws.rows.height).alias("plain")
                shares = by_level.agg(totals).sort("level")
                of_column = known.filter(pl.col("column") == name) if known.height else known
                level_frames.append(_corrected(shares, of_column, name, draws.rows.height))
        return pl.concat(level_frames)

    if not isinstance(given, pl.DataFrame):
        return table(fixed_draws(sampler, given), exact)
    known_rows = [exact.filter(pl.col("row") == row) if exact.width else exact for row in range(given.height)]
    numbered = [
        table(fixed_row_draws(sampler, given, row), known).select(pl.lit(row, pl.UInt32).alias("row"), pl.all())
        for row, known in enumerate(known_rows)
    ]
    return pl.concat(numbered)


def _corrected(shares: pl.DataFrame, exact: pl.DataFrame, name: str, n_draws: int) -> pl.DataFrame:
    """One row per level of a column: column, level, probability."""
    if not exact.height:
        return shares.select(pl.lit(name).alias("column"), "level", probability="share")
    prior = PRIOR_HITS / n_draws
    known = exact.join(shares, on="level", how="left", nulls_equal=True, maintain_order="left")
    factors = (known["share"].fill_null(0.0) + prior) / (known["plain"].fill_null(0.0) + prior)
    probabilities = known["probability"] * factors
    return known.select("column", "level", (probabilities / probabilities.sum()).alias("probability"))


def _by_row_and_name(frames: list[pl.DataFrame], names: list[str]) -> pl.DataFrame:
    """Join fitted of levels, in the order of the rows of conditions and of the columns that were asked for."""
    joined = pl.concat([frame.select(frames[0].columns) for frame in frames])
    if len(frames) == 1:
        return joined
    order = joined.get_column("column").replace_strict(names, range(len(names)))
    rows = [joined.get_column("row")] if "row" in joined.columns else []
    return joined[
        pl.DataFrame([*rows, order.alias("order")])
        .with_row_index("index")
        .sort([*(["row"] if rows else []), "order", "index"])["index"]
    ]
