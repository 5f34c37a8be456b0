"""The stages of `fit` under a release policy."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import polars as pl

from arf_dask.data.opening import open_parts
from arf_dask.errors import RuleWarning
from arf_dask.forest.fitted import Fitted
from arf_dask.options import Options
from arf_dask.release.fitting import Safeguards, fit_release
from arf_dask.release.policy import ReleasePolicy
from arf_dask.release.subjects import prune_by_subjects
from arf_dask.rules.declaring import read_rules
from arf_dask.rules.learning import learn_relations
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.tasks import Runner
from arf_dask.schema.columns import Schema
from arf_dask.schema.encoding import encode_codes
from arf_dask.schema.learning import infer_schema
from arf_dask.training.refining import People
from arf_dask.training.stages import TrainedForest, estimate_leaves, train_forest, training_rows
from arf_dask.typing import Counts


def fit_released(
    frame: pl.DataFrame, policy: ReleasePolicy, options: Options, seed: int, runner: Runner, report: Progress
) -> Fitted:
    """Fit the tables of a model under a release policy."""
    shares = _check_rules(frame, options, runner, report)

    def learn(frame: pl.DataFrame, options: Options, safeguards: Safeguards) -> Fitted:
        with open_parts(frame, runner) as parts:
            # A policy decides per column what may be learned, so rules between columns are not detected. Declared
            # ones hold in every row that is drawn, whatever the protection changed.
            ruled = replace(options, find_rules=False, strict_rules=False)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuleWarning)
                trained = train_forest(parts, ruled, seed, runner, report, safeguards)
            if safeguards.leaf_subjects is not None:
                trained = _prune_by_subjects(trained, safeguards.leaf_subjects, options.leaf_rows(frame.height))
            people = _people(trained, safeguards, options, seed)
            return estimate_leaves(trained, runner, report, safeguards.leaves, people)

    def infer(frame: pl.DataFrame, options: Options) -> Schema:
        together = read_rules(options.rules).together
        return infer_schema(frame, kinds=options.kinds, keys=options.keys, bundles=options.bundles, together=together)

    fitted = fit_release(frame, policy, options, seed, learn, infer)
    rules = tuple(replace(rule, share=shares.get(rule.text, rule.share)) for rule in fitted.relations.rules)
    return replace(fitted, relations=replace(fitted.relations, rules=rules))


def _check_rules(frame: pl.DataFrame, options: Options, runner: Runner, report: Progress) -> dict[str, float]:
    """Return the share of real rows that satisfy each declared rule; raise or warn if some do not, as in `fit`."""
    if not options.rules:
        return {}
    with open_parts(frame, runner) as parts:
        relations = learn_relations(
            parts,
            rules=options.rules,
            find=False,
            strict=options.strict_rules,
            keys=options.all_keys(),
            fixed=(),
            runner=runner,
            report=report,
        )
    return {rule.text: rule.share for rule in relations.rules}


def _people(trained: TrainedForest, safeguards: Safeguards, options: Options, seed: int) -> People:
    """Return the people behind the rows that trees are grown on."""
    subjects = safeguards.subjects
    if trained.is_sample and subjects is not None:
        rows = training_rows(len(subjects), options.rows_per_tree, seed)
        subjects = subjects if rows is None else subjects[rows]
    return People(subjects, safeguards.min_people)


def _prune_by_subjects(trained: TrainedForest, subjects: Counts, min_leaf: int) -> TrainedForest:
    """Prune the forest so that every leaf holds at least `min_leaf` subjects."""
    codes = np.ascontiguousarray(encode_codes(trained.frame, trained.forest.schema))
    trees = [prune_by_subjects(tree, codes, subjects, min_leaf) for tree in trained.forest.trees]
    return trained._replace(forest=replace(trained.forest, trees=trees))
