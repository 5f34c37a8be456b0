"""The stages of `fit` on opened data: rules, schema, adversarial training (Alg. 1) and leaf parameters (Alg. 2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.data.checks import check_shape
from arf_dask.data.parts import Parts, cut_frame, gather_rows
from arf_dask.data.renewal import learn_renewal, renewed_parts
from arf_dask.forest.adversary import Training, train
from arf_dask.forest.dependence_learning import NO_STRUCTURE, find_structure
from arf_dask.forest.fitted import Fitted
from arf_dask.forest.leaf_fitting import fit_leaves
from arf_dask.forest.leaf_sums import sum_leaves
from arf_dask.forest.pruning import prune_by_parts
from arf_dask.options import Options
from arf_dask.release.fitting import Safeguards
from arf_dask.release.policy import OTHER
from arf_dask.rules.learning import learn_relations, reduced_parts
from arf_dask.rules.relations import Relations
from arf_dask.runtime.progress import Progress
from arf_dask.runtime.seeds import Stage, generator
from arf_dask.runtime.tasks import Runner, Threads
from arf_dask.schema.columns import Schema
from arf_dask.schema.encoding import encode_codes
from arf_dask.schema.learning import infer_schema, learn_schema
from arf_dask.schema.unseen_combinations import with_unseen_combinations
from arf_dask.training.findings import check_row_count, report_findings, warn_if_recognisable
from arf_dask.training.forests import AdversarialForest
from arf_dask.training.refining import NOT_PROTECTED, People, refine

Harden = Callable[[Fitted], Fitted]
TRAINING_ROWS = 250_000  # maximum rows for growing trees, unless rows_per_tree is larger


class TrainedForest(NamedTuple):
    """A forest, the modelled rows, and those that its trees were grown on: all rows, or a sample."""

    forest: AdversarialForest
    parts: Parts
    frame: pl.DataFrame
    is_sample: bool


def fit_parts(
    parts: Parts,
    options: Options,
    seed: int,
    runner: Runner,
    report: Progress,
    harden: Harden | None = None,
    people: People = NOT_PROTECTED,
) -> Fitted:
    """Run Alg. 1 and Alg. 2 on opened data, then refine; the last arguments are those of `estimate_leaves`."""
    return estimate_leaves(train_forest(parts, options, seed, runner, report), runner, report, harden, people)


def train_forest(
    parts: Parts,
    options: Options,
    seed: int,
    runner: Runner,
    report: Progress,
    safeguards: Safeguards | None = None,
) -> TrainedForest:
    """Run Alg. 1 on all rows or a sample; the schema always comes from all rows.

    `safeguards` protects the modelled rows and the schema under a release policy.
    """
    options.check_against(list(parts.dtypes))
    check_shape(parts.dtypes, parts.n_rows)
    options = replace(options, min_leaf=options.leaf_rows(parts.n_rows))
    renewal = learn_renewal(parts, options.renew, seed, runner, () if safeguards is None else (OTHER,))
    parts = renewed_parts(parts, renewal)
    relations = learn_relations(
        parts,
        rules=options.rules,
        find=options.find_rules,
        find_dates=safeguards is not None,
        strict=options.strict_rules,
        keys=options.all_keys(),
        fixed={*options.kinds, *options.bundled()},
        runner=runner,
        report=report,
    )
    parts = reduced_parts(parts, relations)
    if safeguards is not None and relations.transforms:
        parts = hold_in_memory(parts, safeguards.rows(parts.frame(runner), relations))
    row_index = training_rows(parts.n_rows, options.rows_per_tree, seed)
    schema, frame = _learn_schema(parts, row_index, options, relations, runner, report)
    if options.support == "open":
        schema = with_unseen_combinations(schema)
    check_row_count(parts.n_rows, options)
    report_findings(schema, options)
    schema = schema if safeguards is None else safeguards.schema(schema, frame)
    row_codes = encode_codes(frame, schema)
    forest = train(
        row_codes,
        _training_settings(options, row_codes.shape[0], row_codes.shape[1], seed),
        runner,
        report,
        schema.gates,
    )
    structure = find_structure(schema, row_codes, forest.leaves) if options.dependence == "tree" else NO_STRUCTURE
    trained_forest = AdversarialForest(
        schema, forest.trees, forest.rounds, options, seed, structure, relations, renewal
    )
    warn_if_recognisable(trained_forest)
    return TrainedForest(trained_forest, parts, frame, row_index is not None)


def _learn_schema(
    parts: Parts,
    rows: NDArray[np.int64] | None,
    options: Options,
    relations: Relations,
    runner: Runner,
    report: Progress,
) -> tuple[Schema, pl.DataFrame]:
    """Return the schema of all rows, and the rows used for growing trees."""
    found_with: dict[str, Any] = {"kinds": options.kinds, "keys": options.keys, "bundles": options.bundles}
    found_with |= {"together": relations.together, "separate": relations.separate}
    if rows is not None:
        return learn_schema(parts, rows, **found_with, runner=runner, report=report)
    frame = parts.frame(runner)
    report.stage("columns", frame.width)
    schema = infer_schema(frame, **found_with)
    report.advance(frame.width, bundles=len(schema.bundles), keys=len(schema.keys))
    return schema, frame


def training_rows(n_rows: int, rows_per_tree: int | None, seed: int) -> NDArray[np.int64] | None:
    """Return the sorted indices of the rows used for growing trees; None for all rows.

    Trees grown on a few hundred thousand rows are as good as trees grown on millions (the paper uses subsamples too);
    leaf parameters are always estimated from all rows.
    """
    max_rows = max(TRAINING_ROWS, rows_per_tree or 0)
    if n_rows <= max_rows:
        return None
    row_index = generator(seed, Stage.SAMPLE).choice(n_rows, max_rows, replace=False)
    return np.sort(row_index)


def _training_settings(options: Options, n_rows: int, n_variables: int, seed: int) -> Training:
    n_features = options.max_features
    if n_features is None:
        n_features = max(2, math.isqrt(n_variables))
    return Training(
        options.trees,
        options.leaf_rows(n_rows),
        options.max_rounds,
        options.tolerance,
        max(1, min(n_features, n_variables)),
        options.rows_per_tree,
        seed,
    )


def estimate_leaves(
    trained: TrainedForest,
    runner: Runner,
    report: Progress,
    harden: Harden | None = None,
    people: People = NOT_PROTECTED,
) -> Fitted:
    """Run Alg. 2 on the rows in memory, with threads, or else on all parts with the given runner; then refine.

    Args:
        trained: the forest and its rows.
        runner: runs the tasks.
        report: receives progress updates.
        harden: changes the leaf parameters before rows are drawn from them to learn the refinement.
        people: whose rows the forest was grown on, under a release policy.
    """
    if trained.is_sample:
        fitted = fit_all_leaves(trained.parts, trained.forest, runner, report)
    else:
        fitted = fit_all_leaves(hold_in_memory(trained.parts, trained.frame), trained.forest, Threads(), report)
    fitted = fitted if harden is None else harden(fitted)
    tasks = runner if trained.is_sample else Threads()
    return refine(fitted, trained.frame, trained.forest.options, trained.forest.seed, tasks, report, people)


def refit_leaves(forest: AdversarialForest, given: Parts, runner: Runner, report: Progress) -> Fitted:
    """Run Alg. 2 on any rows with the columns of the forest, then refine; leaves with too few rows are pruned."""
    parts, options = reduced_parts(renewed_parts(given, forest.renewal), forest.relations), forest.options
    row_index = training_rows(parts.n_rows, None, forest.seed)
    frame = parts.frame(runner) if row_index is None else gather_rows(parts, row_index, runner)
    tasks = runner
    if row_index is None:
        parts, tasks = hold_in_memory(parts, frame), Threads()
    min_leaf = options.leaf_rows(parts.n_rows)
    trees = prune_by_parts(parts, forest.schema, forest.trees, min_leaf, tasks, report)
    schema = replace(forest.schema, n_rows=parts.n_rows)
    fitted = fit_all_leaves(parts, replace(forest, schema=schema, trees=trees), tasks, report)
    return refine(fitted, frame, options, forest.seed, tasks, report)


def hold_in_memory(parts: Parts, frame: pl.DataFrame) -> Parts:
    """Return the parts of a table that has been loaded into memory, so that nothing is read again."""
    return replace(parts, items=cut_frame(frame))


def fit_all_leaves(parts: Parts, forest: AdversarialForest, runner: Runner, report: Progress) -> Fitted:
    """Estimate the leaf parameters (paper, Alg. 2) from all rows."""
    tables = fit_leaves(
        forest.schema,
        forest.trees,
        sum_leaves(parts, forest.schema, forest.trees, runner, report, forest.structure),
        family=forest.options.family,
        support=forest.options.support,
        rounds=forest.rounds,
        structure=forest.structure,
    )
    return Fitted(tables, forest.relations, {**forest.options.as_dict(), "seed": forest.seed})
