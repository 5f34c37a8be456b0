"""Score guessed formulas on a sample: accept those that hold far more often than expected by chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Call, Constant, Name, Node, Operation, columns_of, write
from arf_dask.rules.number_search import Guess
from arf_dask.rules.order_search import COPY_SHARE, is_spike
from arf_dask.rules.targets import Target

EVIDENCE = 40.0  # nats of evidence against chance, enough to allow for the many formulas that are tried
LEAST_HELD = 20  # minimum number of distinct rows in which a formula holds
LEAST_SHARE = 0.5  # minimum share of rows in which a formula holds, unless it is a copy
NEARLY_ALL = 0.98
MOST_LEVELS = 8  # maximum number of distinct remainders of a formula
AWKWARD = 2.0
COMMON = 0.1
FEW_VALUES = 10  # columns with fewer values must follow a formula in nearly all rows


@dataclass(frozen=True)
class Scored:
    """A formula that the sample supports."""

    target: str
    formula: Node
    share: float  # share of the sampled rows in which it holds, among those where both sides are non-null
    cost: float  # complexity: simpler formulas are preferred
    levels: tuple[float, ...] = ()  # remainders added to the formula, if there are few


def score(guess: Guess, frame: pl.DataFrame, target: Target, rng: np.random.Generator) -> Scored | None:
    """Return the guess with the share of rows in which it holds, or None if chance could explain it."""
    column_values, formula_values = frame.get_column(guess.target).alias(""), evaluate(guess.formula, frame)
    is_known = (column_values.is_not_null() & formula_values.is_not_null()).to_numpy()
    if is_known.sum() < LEAST_HELD:
        return None
    column_values, formula_values = (
        column_values.filter(pl.Series(is_known)),
        formula_values.filter(pl.Series(is_known)),
    )
    is_held = target.agrees(column_values, formula_values)
    share = float(is_held.mean())
    if not _convincing(guess, frame.filter(pl.Series(is_known)), is_held, column_values, formula_values, target, rng):
        return None
    if share < NEARLY_ALL:  # agreement on a common value is weak evidence
        is_informative = _telling(column_values)
        column_values, formula_values = column_values.filter(is_informative), formula_values.filter(is_informative)
        if len(column_values) < LEAST_HELD:
            return None
        share = min(share, float(target.agrees(column_values, formula_values).mean()))
    levels: tuple[float, ...] = ()
    if share < NEARLY_ALL and not target.is_text and not column_values.dtype.is_temporal():
        levels = _remainders(column_values, formula_values, target)
    if not levels and not _fits_share(guess, share, column_values, formula_values, target):
        return None
    return Scored(guess.target, guess.formula, share, complexity(guess.formula) + _awkward(guess, target), levels)


def _telling(own: pl.Series) -> pl.Series:
    """Flag rows whose value is held by less than a tenth of all rows."""
    value_counts = own.value_counts(name="rows")
    common_values = value_counts.filter(pl.col("rows") >= COMMON * len(own))[own.name]
    return ~own.is_in(common_values.implode())


def _awkward(guess: Guess, target: Target) -> float:
    """Return the extra cost of formulas with a division for integer columns, which are rarely computed that way."""
    return AWKWARD if not target.is_float and not target.is_text and "/" in write(guess.formula) else 0.0


def complexity(node: Node) -> float:
    """Return the complexity of an expression: columns cost most, constants least.

    >>> a = Name("a")
    >>> complexity(a) < complexity(Operation("+", a, Constant(1))) < complexity(Operation("+", a, Name("b")))
    True
    """
    match node:
        case Name():
            return 1.0
        case Constant(value):
            return 0.2 + 0.05 * len(str(value))
        case Call(_, arguments):
            return 0.3 + sum(map(complexity, arguments))
        case Operation(_, left, right):
            return 0.2 + complexity(left) + complexity(right)


def _convincing(
    guess: Guess,
    frame: pl.DataFrame,
    held: np.ndarray[tuple[int], np.dtype[np.bool_]],
    own: pl.Series,
    value: pl.Series,
    target: Target,
    rng: np.random.Generator,
) -> bool:
    """Whether the formula holds in enough distinct rows, and far more often than in shuffled rows."""
    columns = [*columns_of(guess.formula), guess.target]
    n_distinct = (
        frame.filter(pl.Series(held)).select([pl.nth(frame.columns.index(name)) for name in columns]).n_unique()
    )
    n_values = min(own.n_unique(), value.n_unique())
    min_distinct = n_values if target.is_text else min(LEAST_HELD, 4 + 2 * n_values)
    if n_distinct < min_distinct or n_values < 3:
        return False
    row_order = rng.permutation(len(own))
    chance_share = (target.agrees(own.gather(pl.Series(row_order)), value).sum() + 1) / (len(own) + 1)
    return bool(
        chance_share < 0.5 and held.sum() * -np.log(chance_share) >= EVIDENCE and held.mean() > 2 * chance_share
    )


def _fits_share(guess: Guess, share: float, own: pl.Series, value: pl.Series, target: Target) -> bool:
    """Whether to accept a formula with exceptions: exact matches far outnumber near ones, and values are many."""
    if share >= NEARLY_ALL:
        return True
    is_copy = isinstance(guess.formula, Name)
    if share < (COPY_SHARE if is_copy else LEAST_SHARE) or own.n_unique() < FEW_VALUES:
        return False
    if target.is_text:
        return True
    unit_differences = (target.units(own) - target.formula_units(value)).cast(pl.Float64).to_numpy()
    unit_step = float(target.unit)
    if not unit_step:
        spacing = np.diff(np.unique(own.cast(pl.Float64).to_numpy()))
        unit_step = float(np.median(spacing)) if len(spacing) else 1.0
    return is_spike(unit_differences, unit_step)


def _remainders(own: pl.Series, value: pl.Series, target: Target) -> tuple[float, ...]:
    """Return the few differences between a column and a formula that account for nearly all rows; () if none do."""
    if target.decimals is None or own.dtype.is_integer():
        return ()
    differences = own.cast(pl.Float64) - value.cast(pl.Float64)
    tolerance = 0.5 * 10.0**-target.decimals * (1 + 1e-6) + 1e-9
    rounded_differences = differences.round(target.decimals)
    difference_counts = rounded_differences.value_counts(sort=True, name="rows")
    levels = [float(level) + 0.0 for level in difference_counts[""].head(MOST_LEVELS).to_list()]
    is_near = np.abs(differences.to_numpy()[:, None] - np.array(levels)[None, :]) <= tolerance
    common_levels = [
        level for level, rows in zip(levels, is_near.sum(axis=0), strict=True) if rows >= max(0.005 * len(own), 3)
    ]
    covered_share = (
        (np.abs(differences.to_numpy()[:, None] - np.array([*common_levels, np.inf])[None, :]) <= tolerance)
        .any(axis=1)
        .mean()
    )
    if not len(common_levels) >= 2 or covered_share < NEARLY_ALL or own.n_unique() < 4 * len(common_levels) + 20:
        return ()
    return tuple(sorted(common_levels))


def describe_formula(scored: Scored) -> str:
    """Return the formula as the text of a rule."""
    text = f"{write(Name(scored.target))} == {write(scored.formula)}"
    if scored.levels:
        level_list = ", ".join(f"{level:g}" for level in scored.levels)
        text += f" + one_of({level_list})"
    return text
