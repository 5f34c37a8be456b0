"""What holds of every model, whatever the table: the laws that the fuzzer checks, each by assertions.

Conditions are made around a witness, a row that the model drew, so that they are possible; whether rows meet them is
decided here, in plain Polars, and not by the package.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask import Interval
from arf_dask.errors import ArfError, ImpossibleConditionError
from arf_dask.inference.answers import log_valid_share
from tests.soak.fuzz_frames import Case, Rng, choice, holds, whole_limits

DRAWN, SHOWN = 20_000, 1_000  # rows that probabilities are compared with, and rows that other laws look at
SIMULATED = 0.006  # five standard errors of an answer from draws with a fixed seed
REFINED = 0.02  # tolerance of the answers of a refined model, whose draws have weights
Condition = Mapping[str, Any]


class Fitted:
    """A fitted case, with what several laws need."""

    def __init__(self, case: Case, model: arf_dask.Model) -> None:
        self.case, self.model = case, model
        self.rng = np.random.default_rng(case.seed)

    def check(self, law: Law) -> None:
        """Check a law, with random numbers that do not depend on the laws before it."""
        self.rng = np.random.default_rng([self.case.seed, *law.__name__.encode()])
        law(self)

    @cached_property
    def drawn(self) -> pl.DataFrame:
        """Many rows without a condition."""
        return self.model.sample(DRAWN, seed=self.case.seed)

    @cached_property
    def rows(self) -> pl.DataFrame:
        return self.drawn.head(SHOWN)

    @property
    def frame(self) -> pl.DataFrame:
        return self.case.frame

    @cached_property
    def kinds(self) -> dict[str, str]:
        return {column.name: str(column.kind) for column in self.model.schema.columns}

    @cached_property
    def modelled(self) -> list[str]:
        """The columns that can be asked about: all but identifiers."""
        return [name for name in self.frame.columns if self.kinds[name] != "key"]

    @cached_property
    def is_plain(self) -> bool:
        """Whether all answers are exact: no column is transformed, and nothing refined."""
        return not self.model._fitted.relations and self.model.refinement is None

    @cached_property
    def redrawn_share(self) -> float:
        """The share of rows that are drawn again because of a rule, by which exact answers may be off."""
        return 1.0 - float(np.exp(log_valid_share(self.model._sampler, self.frame.columns)))

    @property
    def tolerance(self) -> float:
        """By how much two correct answers may differ."""
        if self.is_plain:
            return 1e-6
        refinement = self.model._fitted.refinement
        return self.redrawn_share + (SIMULATED if refinement is None else REFINED + 5 * refinement.z_error)


# Conditions.


def is_text(dtype: pl.DataType) -> bool:
    return dtype == pl.Boolean or isinstance(dtype, pl.String | pl.Categorical | pl.Enum)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def wanted_around(rng: Rng, value: Any, series: pl.Series) -> Any:
    """Return what is asked of a column so that a value of it is among the answers."""
    others = series.sample(4, with_replacement=True, seed=int(rng.integers(1_000))).to_list()
    kind = choice(rng, ("value", "value", "list", "interval", "open", "between", "mixed"))
    if value is None or is_nan(value) or kind == "value":
        return value if series.dtype.is_float() or rng.random() < 0.7 else [*others, value]
    if is_text(series.dtype) or (kind == "list" and not series.dtype.is_float()):
        return [value, *others]  # numbers with a density cannot be weighed against others
    numbers = sorted([value, *(other for other in others if other is not None and not is_nan(other))])
    interval = (value, None) if kind == "open" and rng.random() < 0.5 else (None, value) if kind == "open" else None
    interval = interval or (numbers[0], numbers[-1])
    if kind == "between" and numbers[0] < value < numbers[-1]:
        return Interval(interval[0], interval[1], closed=choice(rng, ("left", "right", "none")))
    return [interval, None] if kind == "mixed" else interval


def make_condition(rng: Rng, witness: Mapping[str, Any], rows: pl.DataFrame, names: list[str]) -> Condition:
    """Return a condition on a few columns that the witness meets."""
    if not names:
        return {}
    some = rng.permutation(len(names))[: int(rng.integers(1, min(3, len(names)) + 1))]
    return {names[i]: wanted_around(rng, witness[names[i]], rows[names[i]]) for i in some}


def meets(rows: pl.DataFrame, given: Any) -> pl.Series:
    """Flag the rows that meet a condition."""
    if isinstance(given, list):
        return pl.DataFrame([meets(rows, one).alias(str(i)) for i, one in enumerate(given)]).select(
            pl.any_horizontal(pl.all()).alias("meets")
        )["meets"]
    flags = pl.Series("meets", [True]).new_from_index(0, rows.height)
    for name, wanted in given.items():
        flags &= _is_wanted(rows[name].alias(""), wanted)
    return flags


def _is_wanted(series: pl.Series, wanted: Any) -> pl.Series:
    if isinstance(wanted, list):
        flags = pl.Series([False]).new_from_index(0, len(series))
        for one in wanted:
            flags |= _is_wanted(series, one)
        return flags
    if wanted is None:
        return series.is_null()
    if is_nan(wanted):
        return series.is_nan().fill_null(False)
    known = series.fill_nan(None) if series.dtype.is_float() else series
    if isinstance(wanted, tuple):
        wanted = Interval(*wanted)
    if not isinstance(wanted, Interval):
        return (known == _value(wanted, series.dtype)).fill_null(False)
    flags = known.is_not_null()
    if wanted.low is not None:
        low = _value(wanted.low, series.dtype)
        flags &= (known >= low if wanted.closed in ("both", "left") else known > low).fill_null(False)
    if wanted.high is not None:
        high = _value(wanted.high, series.dtype)
        flags &= (known <= high if wanted.closed in ("both", "right") else known < high).fill_null(False)
    return flags


def _value(value: Any, dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.Series([value], dtype=pl.String).cast(dtype)
    return pl.Series([value]).cast(dtype)


# Rows.


def check_rows(fitted: Fitted, rows: pl.DataFrame, n: int, where: str) -> None:
    """Rows have the columns, types and ranges of the training data, and keep all rules."""
    frame = fitted.frame
    assert rows.height == n, f"{where}: {rows.height} rows, not {n}"
    assert rows.schema == frame.schema, f"{where}: {rows.schema} is not {frame.schema}"
    for name in fitted.modelled:
        seen, drawn = frame[name], rows[name]
        assert seen.null_count() or not drawn.null_count(), f"{where}: nulls in {name!r}"
        if seen.dtype.is_float():
            assert seen.is_nan().any() or not drawn.is_nan().any(), f"{where}: NaN in {name!r}"
            assert not drawn.is_infinite().any(), f"{where}: infinite {name!r}"
        _check_range(fitted, name, drawn, where)
    check_rules(fitted, rows, where)


def _check_range(fitted: Fitted, name: str, drawn: pl.Series, where: str) -> None:
    seen = fitted.frame[name]
    if is_text(seen.dtype) or (seen.dtype.is_float() and fitted.model.options["support"] == "open"):
        is_free = any(name in rule.columns and rule.kind in ("formula", "grid") for rule in fitted.model.rules)
        known = set(seen.cast(pl.String).to_list())
        unseen = set() if is_free or not is_text(seen.dtype) else set(drawn.cast(pl.String).to_list()) - known
        assert not unseen, f"{where}: {name!r} has unseen levels {sorted(map(str, unseen))[:3]}"
        return
    seen, drawn = (one.fill_nan(None) if one.dtype.is_float() else one for one in (seen, drawn))
    if not drawn.drop_nulls().is_empty():
        is_inside = (drawn.min() >= seen.min()) and (drawn.max() <= seen.max())
        ends = f"{drawn.min()!r} to {drawn.max()!r}, observed {seen.min()!r} to {seen.max()!r}"
        assert is_inside, f"{where}: {name!r} is outside the range: {ends}"


def check_rules(fitted: Fitted, rows: pl.DataFrame, where: str) -> None:
    """No row breaks a rule, by the package's own check and by the truths of declared ones."""
    counts = fitted.model.check(rows)
    assert counts.height == len(fitted.model.rules), f"{where}: a check of {counts.height} rules"
    is_open = fitted.model.options["support"] == "open"
    for rule, broken in zip(fitted.model.rules, counts["broken"].to_list(), strict=True):
        if rule.exact and not (is_open and rule.kind == "together"):
            assert not broken, f"{where}: {broken} of {rows.height} rows break {rule}"
    for declared in fitted.case.rules:
        if declared.truth is not None:
            n_broken = int((~holds(rows, declared.truth)).sum())
            assert not n_broken, f"{where}: {n_broken} of {rows.height} rows break {declared.given!r}"


def rows_are_like_the_table(fitted: Fitted) -> None:
    check_rows(fitted, fitted.drawn, DRAWN, "sample")


def rows_are_the_same_everywhere(fitted: Fitted) -> None:
    """One seed gives the same rows at once, lazily, and in files."""
    n, seed = int(fitted.rng.integers(50, 600)), int(fitted.rng.integers(1_000))
    given = possible_condition(fitted) if fitted.rng.random() < 0.4 else None
    rows = fitted.model.sample(n, seed=seed, given=given)
    lazy = fitted.model.sample(n, seed=seed, given=given, frame="lazy").collect()
    assert_frame_equal(rows, lazy)
    assert_frame_equal(rows, fitted.model.sample(n, seed=seed, given=given))
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "rows"
        fitted.model.sample_parquet(target, n, seed=seed, given=given, rows_per_file=n // 3 + 1, progress=False)
        assert_frame_equal(rows, pl.read_parquet(target / "*.parquet"), categorical_as_str=True)


# Conditions are met.


def possible_condition(fitted: Fitted) -> Condition:
    """Return a condition that at least one in a hundred rows meets."""
    for _ in range(20):
        witness = fitted.rows.row(int(fitted.rng.integers(fitted.rows.height)), named=True)
        given = make_condition(fitted.rng, witness, fitted.rows, fitted.modelled)
        if meets(fitted.drawn, given).mean() >= 0.01:
            return given
    return {}


def conditions_are_met(fitted: Fitted) -> None:
    """Rows meet conditions of all kinds, in the number asked for, and vary."""
    for _ in range(3):
        witness = fitted.rows.row(int(fitted.rng.integers(fitted.rows.height)), named=True)
        given: Any = make_condition(fitted.rng, witness, fitted.rows, fitted.modelled)
        if fitted.rng.random() < 0.3:  # alternatives with single numbers of a density cannot be compared
            masses = [name for name in fitted.modelled if not fitted.frame.schema[name].is_float()]
            given = [make_condition(fitted.rng, witness, fitted.rows, masses) for _ in range(2)]
        n = int(fitted.rng.integers(1, 200))
        fits = meets(fitted.drawn, given)
        assert fits.any(), f"{given}: the witness does not meet it"
        found: list[pl.DataFrame] = []
        error = refused(lambda given=given, n=n, to=found: to.append(fitted.model.sample(n, given=given, seed=3)))  # type: ignore[misc]
        if error is not None:
            is_rare = isinstance(error, ImpossibleConditionError) and fits.sum() < 20
            assert is_rare, f"{given} holds in {fits.sum()} rows: {error}"
            continue
        (rows,) = found
        check_rows(fitted, rows, n, f"given {given}")
        assert meets(rows, given).all(), f"{given}: {(~meets(rows, given)).sum()} of {n} rows do not meet it"
        _check_variety(fitted, rows, fitted.drawn.filter(fits), f"given {given}")


def _check_variety(fitted: Fitted, rows: pl.DataFrame, fitting: pl.DataFrame, where: str) -> None:
    """Rows hardly repeat if those do not that meet the condition by chance."""
    n = rows.height
    if fitting.height < n or n < 20 or fitting.select(fitted.modelled).head(n).n_unique() < 0.8 * n:
        return
    varied = rows.select(fitted.modelled).n_unique()
    assert varied >= 0.5 * n, f"{where}: {varied} distinct rows of {n}"


def frames_of_conditions_are_met(fitted: Fitted) -> None:
    """Rows for a frame of conditions come in its order, and keep its cells."""
    known = fitted.rows.sample(12, seed=int(fitted.rng.integers(1_000))).select(fitted.modelled)
    some = [name for name in known.columns if fitted.rng.random() < 0.6] or known.columns[:1]
    known = masked(fitted.rng, known.select(some), 0.5)
    rows = fitted.model.sample(3, given=known, seed=4)
    repeated = known[np.repeat(np.arange(known.height), 3)]
    for name in known.columns:
        is_kept = repeated[name].is_null() | rows[name].eq_missing(repeated[name])
        assert is_kept.all(), f"{(~is_kept).sum()} of {rows.height} cells of {name!r} changed"
    check_rows(fitted, rows, 3 * known.height, f"given a frame of {known.columns}")


def masked(rng: Rng, frame: pl.DataFrame, share: float) -> pl.DataFrame:
    """Replace a share of all cells by null."""
    return pl.DataFrame(
        [
            pl.select(pl.when(pl.Series(rng.random(frame.height) >= share)).then(series)).to_series().alias(series.name)
            for series in frame
        ]
    )


def imputation_keeps_cells_and_rules(fitted: Fitted) -> None:
    known = masked(fitted.rng, fitted.rows.head(40), 0.3)
    seed = int(fitted.rng.integers(1_000))
    draws, most_probable = fitted.model.impute(known, draws=2, seed=seed), fitted.model.impute(known)
    filled = [*draws, most_probable, fitted.model.impute(known, fill_all=True)]
    for number, rows in enumerate(filled):
        where = f"imputation {number}"
        assert rows.schema == known.schema, f"{where}: {rows.schema}"
        for name in fitted.modelled:
            is_kept = known[name].is_null() | rows[name].eq_missing(known[name])
            assert is_kept.all(), f"{where}: cells of {name!r} changed"
            seen = fitted.frame[name]  # cells that can only be null or NaN stay null
            has_gaps = seen.null_count() > 0 or (seen.dtype.is_float() and bool(seen.is_nan().any()))
            assert has_gaps or not rows[name].null_count(), f"{where}: nulls left in {name!r}"
        if number < len(filled) - 1:  # with `fill_all`, also cells that can only be null get a value
            check_rules(fitted, rows, where)


def impossible_conditions_are_refused(fitted: Fitted) -> None:
    """Values beyond the range and unseen levels raise an error that says so."""
    for name in fitted.modelled:
        wanted = _beyond(fitted, name)
        if wanted is None:
            continue
        given = {name: wanted}
        error = refused(lambda given=given: fitted.model.sample(5, given=given, seed=1))  # type: ignore[misc]
        assert error is not None, f"{given} was drawn"
        assert reads_well(error), f"{name!r}: {error}"


def _beyond(fitted: Fitted, name: str) -> Any:
    """Return what a column never has, or None."""
    series = fitted.frame[name]
    known = series.fill_nan(None).drop_nulls() if series.dtype.is_float() else series.drop_nulls()
    is_open = fitted.model.options["support"] == "open" and series.dtype.is_float()
    if known.is_empty() or is_open or series.dtype == pl.Boolean:
        return None
    if is_text(series.dtype):
        return "never seen"
    most: Any = known.max()
    if series.dtype.is_integer():
        return most + 1 if most < whole_limits(type(series.dtype))[1] else None
    if series.dtype == pl.Time:
        return None
    if series.dtype.is_temporal():
        return (most + timedelta(days=400), None)
    return (float(most) + abs(float(most)) + 1, None) if series.dtype.is_float() else most + 1


def refused(call: Callable[[], object]) -> ArfError | None:
    """Return the error with which a call is refused, or None."""
    try:
        call()
    except ArfError as error:
        return error
    return None


def reads_well(error: BaseException) -> bool:
    """Whether a message is a sentence about the user's own words."""
    text = str(error)
    return len(text) >= 15 and text.rstrip()[-1] in ".?!)" and " object at 0x" not in text and "Traceback" not in text


# Densities and probabilities.


def densities_are_finite(fitted: Fitted) -> None:
    """Drawn rows have a density, and training rows that break no declared rule."""
    drawn = fitted.model.log_density(fitted.rows)
    assert drawn.is_finite().all(), f"{(~drawn.is_finite()).sum()} drawn rows: {drawn.filter(~drawn.is_finite())[0]}"
    known = fitted.frame.filter(_keeps_rules(fitted))
    trained = fitted.model.log_density(known)
    n_lost = int((~trained.is_finite()).sum())
    assert not n_lost, f"{n_lost} of {known.height} training rows: {known.filter(~trained.is_finite()).row(0)}"


def _keeps_rules(fitted: Fitted) -> pl.Series:
    """Flag training rows that break no declared rule, row by row."""
    relations = fitted.model._fitted.relations
    return pl.Series(~relations.contradicted(fitted.frame)) if relations else holds(fitted.frame, pl.lit(True))


def conditional_densities_are_consistent(fitted: Fitted) -> None:
    """log q(row | given) is log q(row) - log P(given), for rows that meet the condition."""
    given = possible_condition(fitted)
    if not given:
        return
    rows = fitted.rows.filter(meets(fitted.rows, given)).head(20)
    joint, conditional = fitted.model.log_density(rows), fitted.model.log_density(rows, given=given)
    assert conditional.is_finite().all(), f"{given}: {conditional.to_list()[:5]}"
    if any(_is_density(fitted, name, wanted) for name, wanted in given.items()):
        return  # a single number of a density has probability zero
    share = fitted.model.probability(given)
    differences = conditional - (joint - np.log(share))
    slack = 1e-6 if fitted.is_plain else 0.02 + np.log1p(fitted.tolerance / min(share, 1.0) + fitted.redrawn_share)
    worst = float(differences.abs().max())
    assert worst <= slack, f"{given}, P = {share:.4g}: densities differ by {worst:.3g}, at most {slack:.3g}"


def _is_density(fitted: Fitted, name: str, wanted: Any) -> bool:
    """Whether a condition on a float asks for single numbers."""
    if not fitted.frame.schema[name].is_float():
        return False
    entries = wanted if isinstance(wanted, list) else [wanted]
    return any(isinstance(one, float) for one in entries)


def levels_sum_to_one(fitted: Fitted) -> None:
    """The densities of all levels of a column under a condition sum to one."""
    rebuilt = {name for rule in fitted.model.rules if rule.kind in ("grid", "formula") for name in rule.columns}
    names = [name for name in fitted.modelled if is_text(fitted.frame.schema[name]) and name not in rebuilt]
    given = possible_condition(fitted)
    for name in [name for name in names if name not in given][:2]:
        levels = fitted.frame.select(pl.col(name).unique())
        total = float(fitted.model.log_density(levels, given=given or None).exp().sum())
        slack = 1e-6 if fitted.is_plain else 0.05 + fitted.tolerance
        assert abs(total - 1) <= slack, f"levels of {name!r} given {given}: {total:.6f}"


def probabilities_are_shares(fitted: Fitted) -> None:
    """Probabilities are the shares of drawn rows, without and with a condition."""
    for _ in range(2):
        event = possible_condition(fitted)
        if event and not any(_is_density(fitted, name, wanted) for name, wanted in event.items()):
            _compare(fitted, event, None, fitted.drawn)
    given = possible_condition(fitted)
    event = possible_condition(fitted)
    if given and event and not any(_is_density(fitted, name, wanted) for name, wanted in event.items()):
        _compare(fitted, event, given, fitted.model.sample(4_000, given=given, seed=8))


def _compare(fitted: Fitted, event: Condition, given: Condition | None, rows: pl.DataFrame) -> None:
    found, share = fitted.model.probability(event, given=given), float(meets(rows, event).mean())  # type: ignore[arg-type]
    error = np.sqrt(max(share * (1 - share), 1 / rows.height) / rows.height)
    slack = 5 * error + fitted.tolerance
    if given is not None and not fitted.is_plain:
        slack += 0.05  # few rows may stand for many
    assert abs(found - share) <= slack, f"P({event} | {given}) = {found:.4f}, share {share:.4f}, at most {slack:.4f}"


def complements_sum_to_one(fitted: Fitted) -> None:
    """A cut of a column into two parts, null and NaN is complete."""
    for name in [choice(fitted.rng, fitted.modelled)]:
        series = fitted.frame[name]
        known = series.fill_nan(None).drop_nulls() if series.dtype.is_float() else series.drop_nulls()
        if known.is_empty() or (is_text(series.dtype) and known.n_unique() > 12):
            continue
        parts: list[Any] = [None] * bool(series.null_count())
        parts += [float("nan")] if series.dtype.is_float() and series.is_nan().any() else []
        if is_text(series.dtype):
            parts += known.unique().to_list()
        else:
            cut = choice(fitted.rng, known.to_list())
            parts += [(None, cut), Interval(cut, None, closed="none")]
        total = 0.0
        for part in parts:
            total += fitted.model.probability({name: part})
        slack = 1e-9 if fitted.is_plain else fitted.tolerance
        assert abs(total - 1) <= slack, f"parts {parts[:4]} of {name!r}: {total:.6f}"


def saved_models_are_the_same(fitted: Fitted) -> None:
    """A model that was saved and loaded gives the same rows and answers."""
    model = fitted.model
    with tempfile.TemporaryDirectory() as directory:
        model.save(f"{directory}/model")
        again = arf_dask.load(f"{directory}/model")
    assert_frame_equal(model.sample(50, seed=3), again.sample(50, seed=3))
    rows = fitted.rows.head(20)
    assert model.log_density(rows).equals(again.log_density(rows)), "densities differ"
    assert model.check(rows).equals(again.check(rows)), "checks differ"
    event = possible_condition(fitted)
    assert not event or model.probability(event) == again.probability(event), f"probabilities of {event} differ"


Law = Callable[[Fitted], None]
LAWS: tuple[Law, ...] = (
    rows_are_like_the_table,
    densities_are_finite,
    conditions_are_met,
    frames_of_conditions_are_met,
    imputation_keeps_cells_and_rules,
    impossible_conditions_are_refused,
    probabilities_are_shares,
    complements_sum_to_one,
    conditional_densities_are_consistent,
    levels_sum_to_one,
    rows_are_the_same_everywhere,
    saved_models_are_the_same,
)
