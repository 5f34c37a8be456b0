"""Select the formulas that determine columns: at most one per column, no cycles, and few other formulas broken.

A formula that is not selected may still follow from the selected ones. To find out, the columns that no selected
formula determines are shuffled, the others are recomputed, and all formulas are checked on the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from arf_dask.rules.evaluation import evaluate
from arf_dask.rules.expressions import Name, columns_of, depends_on_itself
from arf_dask.rules.scoring import NEARLY_ALL, Scored
from arf_dask.rules.targets import Target
from arf_dask.rules.transforms.hours import hour_source
from arf_dask.runtime.seeds import Stage, generator

ALL = 0.999
MOST_TRIED = 8  # maximum number of formulas that are tried with precedence
SHUFFLED_ROWS = 200
LEAST_PAIRS = 100  # minimum number of pairs of rows with the same value, from which a function is inferred
LEAST_DAYS = 8  # minimum number of distinct days of timestamps without hours: few days can be cut into hours directly


def choose(scored: Sequence[Scored], frame: pl.DataFrame, targets: dict[str, Target]) -> list[Scored]:
    """Select the best formula of each column, unless another selection breaks fewer of the other formulas."""
    column_names = frame.columns
    scored = without_weaker_than_functions(scored, frame)
    exact_formulas = [formula for formula in scored if formula.share >= ALL and not formula.levels]
    sample_rows = frame.head(SHUFFLED_ROWS)
    best_choice = _greedy(scored, column_names, [])
    best_broken = _unsatisfied(best_choice, exact_formulas, sample_rows, targets)
    for first in list(best_broken)[:MOST_TRIED]:
        trial_choice = _greedy(scored, column_names, [first])
        trial_broken = _unsatisfied(trial_choice, exact_formulas, sample_rows, targets)
        for second in [None, *trial_broken[:MOST_TRIED]]:
            if second is not None:
                trial_choice = _greedy(scored, column_names, [first, second])
                trial_broken = _unsatisfied(trial_choice, exact_formulas, sample_rows, targets)
            if len(trial_broken) < len(best_broken):
                best_choice, best_broken = trial_choice, trial_broken
    return best_choice


def without_weaker_than_functions(scored: Sequence[Scored], frame: pl.DataFrame) -> list[Scored]:
    """Leave out text formulas with exceptions for columns that another column determines in more rows.

    If the state of a hospital is the end of its address in 96 % of rows, it still is the state of the hospital.
    """
    inputs = {one.target: set(columns_of(one.formula)) for one in scored}

    def is_weaker(one: Scored) -> bool:
        if one.share >= ALL or isinstance(one.formula, Name) or not _is_text(frame.schema[one.target]):
            return False
        own_inputs = inputs[one.target]
        others = [
            name
            for name in frame.columns
            if name != one.target and name not in own_inputs and not inputs.get(name, set()) & own_inputs
        ]
        return any(_determines(name, one.target, frame) > one.share for name in others)

    return [one for one in scored if not is_weaker(one)]


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def _determines(source: str, target: str, frame: pl.DataFrame) -> float:
    """Return how often two rows with the same value of a column agree in another; 0 if few rows have such a pair."""
    pairs = pl.DataFrame({"source": frame.get_column(source), "target": frame.get_column(target)}).drop_nulls()
    pairs = pairs.sort("source", maintain_order=True)
    is_pair = (pairs["source"] == pairs["source"].shift(1)).fill_null(False)
    n_levels = pairs["source"].n_unique()
    if is_pair.sum() < LEAST_PAIRS or n_levels < pairs["target"].n_unique():
        return 0.0
    return float((pairs["target"] == pairs["target"].shift(1)).filter(is_pair).mean() or 0.0)  # type: ignore[arg-type]


def _greedy(scored: Sequence[Scored], names: list[str], forced: list[Scored]) -> list[Scored]:
    """Select at most one formula per column, best formulas first, without cycles."""

    def rank(one: Scored) -> tuple[bool, float, float, float, int, str]:
        share = NEARLY_ALL if one.levels else one.share
        later = max((names.index(name) for name in columns_of(one.formula)), default=0) > names.index(one.target)
        cost = one.cost + 0.1 * later + len(one.levels)
        return one not in forced, -round(share, 3), cost, -one.share, names.index(one.target), str(one.formula)

    chosen: dict[str, Scored] = {}
    for one in sorted(scored, key=rank):
        if one.target not in chosen and not _circular(one, chosen) and not _said_already(one, chosen):
            chosen[one.target] = one
    return list(chosen.values())


def _circular(one: Scored, chosen: dict[str, Scored]) -> bool:
    """Whether adding a formula would make its column depend on itself."""
    return depends_on_itself(
        one.target, {name: columns_of(f.formula) for name, f in {**chosen, one.target: one}.items()}
    )


def _said_already(one: Scored, chosen: dict[str, Scored]) -> bool:
    """Whether a formula with exceptions involves only columns of a chosen formula, which holds more often."""
    own_columns = {one.target, *columns_of(one.formula)}
    is_repeated = any(
        own_columns <= {chosen_formula.target, *columns_of(chosen_formula.formula)}
        for chosen_formula in chosen.values()
    )
    return is_repeated and one.share < NEARLY_ALL


def _unsatisfied(
    chosen: list[Scored], exact: list[Scored], rows: pl.DataFrame, targets: dict[str, Target]
) -> list[Scored]:
    """Return the exact formulas that do not follow from the chosen ones, simplest first."""
    other_formulas = [one for one in exact if one not in chosen]
    if not other_formulas:
        return []
    decided = {one.target: one for one in chosen if one.share >= ALL}
    rng = generator(0, Stage.RULES, 2)
    shuffled_columns = {
        name: rows.get_column(name).gather(pl.Series(rng.permutation(rows.height)))
        for name in rows.columns
        if name not in decided
    }
    frame = pl.DataFrame(shuffled_columns)
    while decided:
        ready_names = [name for name, one in decided.items() if not set(columns_of(one.formula)) & set(decided)]
        for name in ready_names:
            target = targets[name]
            values = target.values(target.formula_units(evaluate(decided.pop(name).formula, frame)))
            frame = frame.with_columns(values.alias(name))
    broken_formulas = [one for one in other_formulas if _share(one, frame, targets[one.target]) < ALL]
    return sorted(broken_formulas, key=lambda one: one.cost)


def _share(one: Scored, frame: pl.DataFrame, target: Target) -> float:
    column_values, formula_values = frame.get_column(one.target).alias(""), evaluate(one.formula, frame)
    is_known = (column_values.is_not_null() & formula_values.is_not_null()).to_numpy()
    return float(target.agrees(column_values, formula_values)[is_known].mean()) if is_known.any() else 1.0


def split_hours(scored: list[Scored], frame: pl.DataFrame) -> tuple[list[Scored], list[Scored]]:
    """Split formulas into those that are computed, and at most one per timestamp for its hour in all rows."""
    hours: dict[str, Scored] = {}
    for one in scored:
        source = hour_source(one.formula)
        if source is None or one.share < 1.0 or source[0] in hours or frame.schema[source[0]] == pl.Time:
            continue
        if frame.get_column(source[0]).null_count() or frame.get_column(one.target).null_count():
            continue
        if frame.get_column(source[0]).cast(pl.String).str.head(10).n_unique() >= LEAST_DAYS:
            hours[source[0]] = one
    taken_names = {one.target for one in hours.values()}
    others = [one for one in scored if one.target not in taken_names or hour_source(one.formula) is None]
    return others, list(hours.values())


def hours_fit(hours: list[Scored], chosen: list[Scored]) -> bool:
    """Whether no timestamp is computed, directly or through others, and no hour is computed from its timestamp."""
    uses: dict[str, tuple[str, ...]] = {one.target: columns_of(one.formula) for one in chosen}
    sources = {columns_of(one.formula)[0]: one.target for one in hours}
    if any(source in uses for source in sources):
        return False
    uses |= {source: (hour,) for source, hour in sources.items()}
    return not any(depends_on_itself(source, uses) for source in sources)
