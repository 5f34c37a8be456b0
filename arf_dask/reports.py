"""`arf_dask.report`, which measures fidelity and privacy, and the release gate, which checks limits on them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from arf_dask.data.frames import to_polars
from arf_dask.data.opening import open_parts
from arf_dask.errors import KeyColumnWarning, OptionError, PrivacyWarning, ReleaseError, unknown_column, warn_user
from arf_dask.forest.fitted import Fitted
from arf_dask.inference.forge import BLOCK_ROWS
from arf_dask.model import Draw, Model
from arf_dask.options import SHADOWS, Options
from arf_dask.release.fitting import shrink_leaves
from arf_dask.release.policy import Limits
from arf_dask.reporting.columns import Sides, align, without_holdout
from arf_dask.reporting.fidelity import DETECTOR_ROWS, MANIFOLD_ROWS, PAIR_ROWS, measure_fidelity
from arf_dask.reporting.membership import Refit
from arf_dask.reporting.page import PageFacts
from arf_dask.reporting.privacy import ATTACKED_ROWS, SHADOW_ROWS, measure_privacy
from arf_dask.reporting.result import Report
from arf_dask.reporting.verdict import judge
from arf_dask.runtime.cluster import runner_for
from arf_dask.runtime.progress import Progress, ProgressFunction, progress_for
from arf_dask.runtime.seeds import Stage, entropy, generator
from arf_dask.training.refining import NOT_PROTECTED, People
from arf_dask.training.stages import Harden, fit_parts

JUDGED_ROWS = 3 * BLOCK_ROWS  # maximum number of rows that the gate evaluates: whole blocks
# Options that shadow models do not inherit, as they may name columns that a shadow lacks.
NOT_FOR_SHADOWS = (
    *("columns", "keys", "renew", "bundles", "rules", "find_rules", "strict_rules", "seed", "release", "privacy"),
)
SHADOW_ROUNDS = 2  # maximum adversarial rounds of a shadow model
SHADOW_TREES = 10  # maximum trees of a shadow model; attacks depend on leaf sizes, which more trees do not change


def report(
    real: Any,
    synthetic: Any,
    *,
    holdout: Any = None,
    target: str | None = None,
    model: Model | None = None,
    seed: int | None = None,
    shadows: int = SHADOWS,
    show_rows: bool = False,
    progress: bool | ProgressFunction | None = None,
) -> Report:
    """Measure the fidelity of a synthetic table to the real one, and what privacy attacks reveal.

    Args:
        real: The rows the generator was trained on; any frame or path accepted by `fit`. It may also be the whole table
            that training and held-out rows were split from: held-out rows are then left out of it.
        synthetic: The rows to evaluate, from this package or any other.
        holdout: Real rows not used for training. All privacy attacks need them, as information that is revealed about
            outsiders as well is not a leak. None uses the rows held out by `fit(..., holdout=0.1)`, if `model` has any.
        target: A column to predict, to compare models trained on synthetic rows and on real rows.
        model: The model that generated the rows. Adds its rules, its smallest leaf, and attacks with its log-density;
            shadow models are fitted with its options.
        seed: The random seed, for repeatable results; None uses a fresh one.
        shadows: The number of shadow models for the likelihood-ratio attack; 0 skips it.
        show_rows: Whether to show the content of the most exposed real rows on the page, not only their row numbers.
        progress: Whether to show progress, as in `fit`.

    Returns:
        A `Report`: `to_dict()`, `to_frame()`, `save("report.html")`.

    Raises:
        DataError: If the frames have different columns, or no rows.
        OptionError: If `target` is not a column, or an argument is invalid.

    Examples:
        >>> import arf_dask, polars as pl
        >>> rows = pl.DataFrame({"x": [i % 7 for i in range(300)], "y": [i % 3 == 0 for i in range(300)]})
        >>> made = arf_dask.report(rows[:200], rows[200:], seed=0, progress=False)
        >>> made.verdict.privacy
        'Not attack-tested'
    """
    _check_shadows(shadows)
    if model is not None and model.privacy is not None:
        warn_user(
            "report: its figures compare real rows with those of a private model. The guarantee of the model does not "
            "cover them: keep the report where the real rows are.",
            PrivacyWarning,
        )
    frames = [to_polars(data).frame for data in (real, synthetic)]
    model_holdout = model.holdout if holdout is None and model is not None else None
    held_out = model_holdout if holdout is None else to_polars(holdout).frame
    # Renewed columns have no value in common with the real rows, as identifiers do.
    keys = None if model is None else [*model.schema.keys, *model._fitted.renewed]
    sides = align(frames[0], frames[1], held_out, keys)
    sides = without_holdout(sides, None if model is None else _trained_rows(model))
    if target is not None and target not in sides.real.columns:
        raise unknown_column(target, sides.real.columns, "target")
    chosen_seed = entropy(seed)
    with progress_for(progress) as shown_progress:
        return _measure(sides, target, model, chosen_seed, shadows, show_rows, shown_progress)


def _measure(
    sides: Sides,
    target: str | None,
    model: Model | None,
    seed: int,
    shadows: int,
    show_rows: bool,
    progress: Progress,
) -> Report:
    rules = [] if model is None else _rule_rates(model, sides)
    fidelity = measure_fidelity(sides, target, rules, generator(seed, Stage.REPORT, 0), progress)
    smallest_leaf = None if model is None else int(model.leaves["rows"].to_numpy().min())
    rng = generator(seed, Stage.REPORT, 1)
    privacy = measure_privacy(sides, model, make_refit(model, sides), shadows, smallest_leaf, rng, progress)
    exposed_rows = sides.real[privacy.exposed["row"]] if show_rows and privacy.exposed.height else None
    if sides.real_rows is not None:
        numbers = pl.Series(sides.real_rows[privacy.exposed["row"].to_numpy()], dtype=pl.Int64)
        privacy = privacy._replace(exposed=privacy.exposed.with_columns(row=numbers))
    page_facts = PageFacts(
        _row_counts(sides),
        sides.real.width,
        sides.skipped,
        _notes(sides, target, bool(privacy.attacks), model),
        sides.synthetic[np.array([row for row, _ in fidelity.detection.surest], dtype=np.int64)],
        exposed_rows,
        seed,
    )
    return Report(
        fidelity, privacy, judge(fidelity, privacy), page_facts, None if model is None else model.release_report
    )


def make_refit(model: Model | None, sides: Sides) -> Refit:
    """Return a function that fits shadow models like the attacked model, but with few trees and without rules.

    They are shrunk and refined as the attacked model is: an attack is calibrated by models that leak in the same way.
    """
    options: dict[str, Any] = {} if model is None else dict(model.options)
    options = {name: value for name, value in options.items() if name not in NOT_FOR_SHADOWS}
    options["trees"] = min(options.get("trees", SHADOW_TREES), SHADOW_TREES)
    options["max_rounds"] = min(options.get("max_rounds", SHADOW_ROUNDS), SHADOW_ROUNDS)
    if model is not None:
        options["refine"] = model.refinement is not None  # whatever was asked for: shadows are like the attacked model
    release_effects = None if model is None else model.release_report
    shrinkage = 0.0 if release_effects is None else float(release_effects["policy"]["shrinkage"])
    people = NOT_PROTECTED if release_effects is None else People(None, int(release_effects["policy"]["min_leaf"]))
    column_kinds = _kinds(model, sides.real.columns)

    def refit(rows: pl.DataFrame, seed: int) -> Model:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KeyColumnWarning)
            read = Options.read({**options, "columns": column_kinds, "find_rules": False})
            return Model(_fit_shadow(rows, read, seed, shrink, people), evaluation=EVALUATION)

    def shrink(fitted: Fitted) -> Fitted:
        return replace(fitted, tables=shrink_leaves(fitted.tables, shrinkage))

    return refit


def _fit_shadow(rows: pl.DataFrame, options: Options, seed: int, harden: Harden, people: People) -> Fitted:
    with progress_for(False) as progress, runner_for(None) as runner, open_parts(rows, runner) as parts:
        return fit_parts(parts, options, entropy(seed), runner, progress, harden, people)


def _kinds(model: Model | None, names: Sequence[str]) -> dict[str, str]:
    """Return the column kinds of the attacked model, for use by shadow models."""
    if model is None:
        return {}
    return {
        column.name: column.kind
        for column in model.schema.columns
        if column.name in names and column.kind in ("categorical", "numeric")
    }


def judge_release(
    model: Model,
    limits: Limits,
    real: Any,
    holdout: Any,
    draw: Draw,
    n: int,
    seed: int,
    progress: bool | ProgressFunction | None,
) -> Report:
    """Attack the rows to be published, and raise an error if a limit is violated.

    Rows are drawn exactly as they will be written: all of them, or the first `JUDGED_ROWS`.

    Raises:
        ReleaseError: If a limit is violated; its `report` holds all figures.
        OptionError: If real or held-out rows are missing.
    """
    if real is None:
        raise OptionError("publish_if: give real=, the rows the model was fitted to, to judge the release by.")
    if holdout is None and model.holdout is None:
        raise OptionError("publish_if: give holdout=, or fit(..., holdout=0.1): attacks need rows the model never saw.")
    n_judged = min(n, JUDGED_ROWS)
    report_options = {"holdout": holdout, "model": model, "seed": seed, "shadows": limits.shadows, "progress": progress}
    return check_limits(report(real, draw(n_judged), **report_options), limits)


class Reports:
    """The reports that models make of their own rows."""

    report = staticmethod(report)
    judge = staticmethod(judge_release)


EVALUATION = Reports()


def check_limits(made: Report, limits: Limits) -> Report:
    """Add limits and violations to a report, and save it to the page given by the limits.

    Raises:
        ReleaseError: If a limit is violated; its `report` holds all figures.
    """
    refusals = limits.refusals(made.to_dict())
    made = made.with_gate(limits.bounds(), refusals)
    if limits.page is not None:
        made.save(limits.page)
    if refusals:
        error = ReleaseError(f"not published: {'; '.join(refusals)}.")
        error.report = made
        raise error
    return made


def _trained_rows(model: Model) -> int:
    """Return the number of rows given to `fit`, without held-out rows."""
    effects = model.release_report
    return model.schema.n_rows if effects is None else int(effects["rows"])


def _row_counts(sides: Sides) -> dict[str, int]:
    counts = {"real": sides.real.height, "synthetic": sides.synthetic.height}
    return counts if sides.holdout is None else {**counts, "held out": sides.holdout.height}


def _notes(sides: Sides, target: str | None, attacked: bool, model: Model | None) -> list[str]:
    """Return notes on sampling for the page."""
    notes = ["Distances of columns are of all rows."]
    if target is not None and sides.holdout is None:
        notes.append(f"There are no held-out rows to test on, so {target!r} was not predicted.")
    if sides.real_rows is not None:
        notes.append("The real data contained the held-out rows: they were left out of it.")
    if max(sides.real.height, sides.synthetic.height) > PAIR_ROWS:
        notes.append(f"Pairs and pictures: {PAIR_ROWS:,} rows drawn at random of each frame.")
    notes.append(f"Detector and target: at most {DETECTOR_ROWS:,} rows of either kind, three folds.")
    notes.append(f"Density and coverage: at most {MANIFOLD_ROWS:,} rows of each, five neighbours.")
    if attacked:
        notes.append(
            f"Attacks: at most {ATTACKED_ROWS:,} training rows and as many held-out ones; the other half of these "
            f"is what attackers know of the population. Shadow models have at most {SHADOW_ROWS:,} rows, "
            f"{SHADOW_TREES} trees and {SHADOW_ROUNDS} rounds."
        )
        if model is None:
            notes.append("Shadow models are fitted with the defaults of arf_dask, as the generator was not given.")
    return notes


def _rule_rates(model: Model, sides: Sides) -> list[dict[str, Any]]:
    """One entry per rule of the model: the shares of real and synthetic rows that satisfy it."""
    checked_frames = [model.check(frame) for frame in (sides.real, sides.synthetic)]
    names, (real_shares, synthetic_shares) = checked_frames[0]["rule"].to_list(), map(_held_shares, checked_frames)
    return [
        {"rule": name, "real": real_share, "synthetic": synthetic_share}
        for name, real_share, synthetic_share in zip(names, real_shares, synthetic_shares, strict=True)
        if real_share is not None
    ]


def _held_shares(checked: pl.DataFrame) -> list[float | None]:
    """Return the share of rows that satisfy each rule; None if it cannot be checked."""
    kept_share = 1 - pl.col("broken") / pl.col("rows")
    return checked.select(pl.when(pl.col("rows") > 0).then(kept_share).alias("kept"))["kept"].to_list()


def _check_shadows(shadows: object) -> None:
    if isinstance(shadows, bool) or not isinstance(shadows, int) or not (shadows == 0 or 2 <= shadows <= 256):
        raise OptionError(f"shadows={shadows!r}: give a whole number from 2 to 256, or 0 for none.")
