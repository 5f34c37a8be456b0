"""The last round against a stronger adversary: learn the ratio of real density to model density by boosting."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.errors import ImpossibleConditionError
from arf_dask.forest.fitted import Fitted
from arf_dask.inference.forge import Sampler
from arf_dask.inference.row_plan import RowPlan
from arf_dask.options import Options
from arf_dask.refinement.boosting import Boosting
from arf_dask.refinement.learning import Learned, LearningRows, Lesson, choose_validation, learn_refinement, learn_trees
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.runtime.tasks import Runner
from arf_dask.typing import Counts

logger = logging.getLogger(__name__)
MOST_CELLS = 10_000_000  # of the user's columns in real and drawn rows
LEAST_ROWS = 20_000  # real and drawn ones, however many columns there are
DRAWN_PER_REAL = 5
FRESH_ROWS = 65_536  # that choose limits and measure Z


class People(NamedTuple):
    """The people behind the real rows, whom a release policy protects."""

    subjects: Counts | None = None  # per row, the number of its person; None: every row is a person
    min_people: int = 0  # per leaf of the boosted trees


NOT_PROTECTED = People()


def refine(
    fitted: Fitted,
    real: pl.DataFrame,
    options: Options,
    seed: int,
    runner: Runner,
    report: Progress,
    people: People = NOT_PROTECTED,
) -> Fitted:
    """Return the fitted model with its refinement, if `options` ask for one and there is something to learn.

    Args:
        fitted: the model.
        real: rows that its trees were grown on, in its modelled columns.
        options: of the fit.
        seed: the seed of the fit.
        runner: runs the learning as one task.
        report: receives progress updates.
        people: whose rows these are, under a release policy.
    """
    if not options.refines(real.height):
        return fitted
    report.stage("refining", 1)
    try:
        rows = _learning_rows(fitted, real, seed, people.subjects)
    except ImpossibleConditionError as error:
        logger.info("not refined: %s", error)
        return fitted
    settings, learning_seed = _settings(people), int(generator(seed, Stage.REFINE, 2).integers(2**31))

    def learn(lesson: Lesson) -> Learned:
        (learned,) = runner.map(_learn, lesson, [_Learner(settings, learning_seed)])
        return learned

    refinement = learn_refinement(
        rows, fitted.relations, fitted.schema.keys, learn, only_if_certain=options.refine == "auto"
    )
    report.advance(trees=0 if refinement is None else refinement.rounds)
    return replace(fitted, refinement=refinement)


def _settings(people: People) -> Boosting:
    """Return settings under which few leaves have to be pruned: where real rows are common, they hold enough people."""
    settings = Boosting(min_people=people.min_people)
    return settings._replace(min_rows=max(settings.min_rows, (1 + DRAWN_PER_REAL) * people.min_people))


class _Learner(NamedTuple):
    """How trees are learned."""

    settings: Boosting
    seed: int


def _learn(lesson: Lesson, learner: _Learner) -> Learned:
    return learn_trees(lesson, *learner)


class _Sizes(NamedTuple):
    """Numbers of rows."""

    real: int
    drawn: int
    fresh: int


def _sizes(n_real: int, width: int) -> _Sizes:
    """Return how many rows to learn from, so that their features fit into a bounded memory.

    >>> _sizes(20_000, 15)
    _Sizes(real=20000, drawn=100000, fresh=65536)
    >>> _sizes(250_000, 20)
    _Sizes(real=250000, drawn=250000, fresh=65536)
    """
    most = max(MOST_CELLS // max(width, 1), LEAST_ROWS)
    n_learned = min(n_real, most // 2)
    return _Sizes(n_learned, min(DRAWN_PER_REAL * n_learned, most - n_learned), min(FRESH_ROWS, most))


def _learning_rows(fitted: Fitted, real: pl.DataFrame, seed: int, subjects: Counts | None) -> LearningRows:
    """Choose real rows, draw rows from the model, and choose the validation rows."""
    sizes = _sizes(real.height, real.width)
    if sizes.real < real.height:
        rows = np.sort(generator(seed, Stage.REFINE, 3).choice(real.height, sizes.real, replace=False))
        real, subjects = real[rows], None if subjects is None else subjects[rows]
    if subjects is not None:
        subjects = np.unique(subjects, return_inverse=True)[1].astype(np.int64)
    draw_seed = int(generator(seed, Stage.REFINE, 0).integers(2**62))
    plan = RowPlan(fitted, sizes.drawn + sizes.fresh, None, "raise", draw_seed)
    plan.keep(Sampler(fitted))
    drawn = plan.collect(Progress())
    own_rows = fitted.relations.inverse(real)
    # Not by `DataFrame.cast`, which reads names such as "^x$" as regular expressions.
    own_rows = pl.DataFrame({name: own_rows.get_column(name).cast(dtype) for name, dtype in drawn.schema.items()})
    is_validation = choose_validation(sizes.real, sizes.drawn, subjects, generator(seed, Stage.REFINE, 1))
    return LearningRows(own_rows, drawn[: sizes.drawn], drawn[sizes.drawn :], is_validation, subjects)
