"""The stages joined up: `fit` and `synthesize`, and the paper's three algorithms one by one."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from arf_dask.adversary import Round, Training, train
from arf_dask.cluster import Threads
from arf_dask.encode import Codes, encode_codes
from arf_dask.errors import KeyColumnWarning
from arf_dask.forde import summarise
from arf_dask.forest import Ints, Tree, route
from arf_dask.frames import take
from arf_dask.infer import Bundles, infer_schema
from arf_dask.model import Model, check_rows
from arf_dask.options import Options
from arf_dask.parameters import finish
from arf_dask.progress import Progress, progress_for
from arf_dask.schema import Schema
from arf_dask.seeds import entropy
from arf_dask.tables import Counts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AdversarialForest:
    """The outcome of Alg. 1: trees on codes, the schema that gives codes their meaning, and every round."""

    schema: Schema
    trees: Sequence[Tree]
    rounds: Sequence[Round]
    options: Options
    seed: int


def fit(
    data: Any,
    *,
    trees: int = 20,
    min_leaf: int = 10,
    max_rounds: int = 10,
    tolerance: float = 0.0,
    max_features: int | None = None,
    rows_per_tree: int | None = None,
    family: str = "truncnorm",
    columns: Mapping[str, str] | None = None,
    keys: Sequence[str] | None = None,
    bundles: Bundles = "auto",
    support: str = "observed",
    seed: int | None = None,
    progress: object = None,
) -> Model:
    """Learn the joint distribution of a table."""
    options = Options(
        trees,
        min_leaf,
        max_rounds,
        tolerance,
        max_features,
        rows_per_tree,
        family,
        {} if columns is None else columns,
        () if keys is None else keys,
        bundles,
        support,
    )
    options.check()
    chosen = entropy(seed)
    with progress_for(progress) as report:  # type: ignore[arg-type]
        frame = take(data).frame
        forest, codes, leaves = _train(frame, options, chosen, report)
        return _estimate(frame, forest, codes, leaves, report)


def synthesize(data: Any, n: int | None = None, *, seed: int | None = None, progress: object = None, **options: Any) -> Any:
    """A synthetic twin of `data`, of the same kind, with `n` rows (as many as `data` has, if None)."""
    if n is not None:
        check_rows(n)
    given = take(data)
    chosen = entropy(seed)
    model = fit(given.frame, seed=chosen, progress=progress, **options)
    return given.back(model.sample(given.frame.height if n is None else n, seed=chosen, progress=progress))


def tree_starts(trees: Sequence[Tree]) -> Ints:
    """Per tree: the number of its first leaf among all; one more at the end."""
    return np.concatenate([[0], np.cumsum([int((tree.left < 0).sum()) for tree in trees])]).astype(np.int32)


def _train(
    frame: pl.DataFrame, options: Options, seed: int, report: Progress
) -> tuple[AdversarialForest, Codes, list[Ints]]:
    options.check_against(frame.columns)
    schema = infer_schema(frame, kinds=options.columns, keys=options.keys, bundles=options.bundles)
    _tell_findings(schema, options)
    codes = encode_codes(frame, schema)
    forest = train(codes, _training(options, codes.shape[1], seed), Threads(), report)
    return AdversarialForest(schema, forest.trees, forest.rounds, options, seed), codes, forest.leaves


def _estimate(
    frame: pl.DataFrame, forest: AdversarialForest, codes: Codes, leaves: Sequence[Ints], report: Progress
) -> Model:
    report.stage("leaf parameters", 1)
    sums = summarise(frame, forest.schema, codes, leaves, tree_starts(forest.trees))
    tables = finish(
        sums,
        forest.schema,
        forest.trees,
        _histograms(codes, forest.schema),
        family=forest.options.family,
        support=forest.options.support,
        rounds=forest.rounds,
        options={**forest.options.as_dict(), "seed": forest.seed},
    )
    report.advance()
    return Model.of(tables)


def _training(options: Options, n_variables: int, seed: int) -> Training:
    features = options.max_features
    if features is None:
        features = max(2, math.isqrt(n_variables))
    return Training(
        options.trees,
        options.min_leaf,
        options.max_rounds,
        options.tolerance,
        max(1, min(features, n_variables)),
        options.rows_per_tree,
        seed,
    )


def _histograms(codes: Codes, schema: Schema) -> list[Counts]:
    return [np.bincount(codes[:, j], minlength=v.n_codes) for j, v in enumerate(schema.variables)]


def _tell_findings(schema: Schema, options: Options) -> None:
    declared = {*options.keys, *(name for name, kind in options.columns.items() if kind == "key")}
    found = [name for name in schema.keys if name not in declared]
    if found:
        listed = ", ".join(map(repr, found))
        warnings.warn(
            f"taken for identifiers: {listed}. They are not modelled; fresh values of the same shape come out. "
            f"Say keys={schema.keys!r} to confirm, or columns={{{found[0]!r}: 'categorical'}} (or 'numeric') to model.",
            KeyColumnWarning,
            stacklevel=4,
        )
    for names in schema.bundles:
        logger.info("modelled together: %s", ", ".join(map(repr, names)))
