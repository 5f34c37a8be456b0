"""The stages joined up: `fit` and `synthesize`, and the paper's three algorithms one by one."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arf_dask.adversary import Round, Training, train
from arf_dask.cluster import runner_for
from arf_dask.encode import Codes, encode_codes, match_frame
from arf_dask.errors import KeyColumnWarning, unknown_option
from arf_dask.forde import summarise_one
from arf_dask.forest import Ints, Tree, prune, route
from arf_dask.infer import infer_parts, infer_schema
from arf_dask.leaf_sums import Sums, sum_leaves, sums_table
from arf_dask.model import Model, check_rows
from arf_dask.options import Options
from arf_dask.parameters import complete, fit_entries, join_entries, outline
from arf_dask.parts import Parts, open_parts
from arf_dask.plan import Bundles
from arf_dask.profile import check_frame
from arf_dask.progress import Progress, Report, progress_for
from arf_dask.pruning import prune_by_parts
from arf_dask.sampling import check_policy
from arf_dask.schema import Schema
from arf_dask.seeds import Stage, entropy, generator
from arf_dask.sink import check_target
from arf_dask.storage import PathLike
from arf_dask.tables import Entries, Tables
from arf_dask.tasks import Runner, Threads

logger = logging.getLogger(__name__)

SMALL_SUMS = 2_000_000  # rows times trees whose sums are held at once
TRAINING_ROWS = 250_000  # rows that trees are grown on at most, unless rows_per_tree asks for more


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
    client: Any = None,
    progress: bool | Report | None = None,
) -> Model:
    """Learn the joint distribution of a table.

    Args:
        data: Polars DataFrame or LazyFrame, pandas DataFrame, pyarrow Table, Dask DataFrame, or a path or glob of
            Parquet or CSV files. They may be larger than memory: beyond 250,000 rows they are read part by part.
        trees: number of trees; more make a better density, 20 are enough for sampling.
        min_leaf: training rows that every leaf holds at least; more protect single rows better and blur more.
        max_rounds: adversarial rounds after the first, at most.
        tolerance: the paper's delta: stop once out-of-bag accuracy is at most 1/2 + tolerance.
        max_features: variables tried at every split; the root of their number if None, and at least 2.
        rows_per_tree: real rows each tree is grown on, drawn without replacement. None: a bootstrap of all rows, or of
            250,000 drawn once where there are more (leaf parameters always come from all rows). Asking for more than
            250,000 raises the number of rows held for training to as many.
        family: "truncnorm" (moment-matched truncated normals) or "uniform" (piecewise constant).
        columns: what a column is, where the data alone do not tell: {"zip": "categorical"}, "numeric" or "key".
        keys: identifiers: never modelled, never copied; fresh values of the same shape come out.
        bundles: columns modelled as one: "auto" finds them, False has none, [["city", "zip"]] names them all.
        support: "observed" never leaves the range seen; "open" lets float columns keep their tails.
        seed: makes everything repeat; None draws afresh.
        client: a `distributed.Client` or the address of a scheduler; None takes the active client, or else threads.
        progress: None shows progress in a terminal or notebook once it takes long, False never, True always; or a
            function of (stage, done, total, facts).
    """
    options = _options(
        trees=trees,
        min_leaf=min_leaf,
        max_rounds=max_rounds,
        tolerance=tolerance,
        max_features=max_features,
        rows_per_tree=rows_per_tree,
        family=family,
        columns=columns,
        keys=keys,
        bundles=bundles,
        support=support,
    )
    chosen = entropy(seed)
    with progress_for(progress) as report, runner_for(client) as runner, open_parts(data, runner) as parts:
        return _finish(parts, _train(parts, options, chosen, runner, report), runner, report)


def adversarial_forest(
    data: Any, *, seed: int | None = None, client: Any = None, progress: bool | Report | None = None, **options: Any
) -> AdversarialForest:
    """The paper's Alg. 1: a forest in whose leaves the columns are independent. Options are those of `fit`."""
    checked = _options(**options)
    with progress_for(progress) as report, runner_for(client) as runner, open_parts(data, runner) as parts:
        return _train(parts, checked, entropy(seed), runner, report).forest


def forde(forest: AdversarialForest, data: Any, *, client: Any = None, progress: bool | Report | None = None) -> Model:
    """The paper's Alg. 2: the leaf parameters of a forest, from `data`.

    As a rule these are the rows it was grown on; other rows make honest estimates, and leaves that hold too few of
    them are pruned.
    """
    with progress_for(progress) as report, runner_for(client) as runner, open_parts(data, runner) as parts:
        if parts.n_rows > TRAINING_ROWS:
            trees = prune_by_parts(parts, forest.schema, forest.trees, forest.options.min_leaf, runner, report)
            schema = replace(forest.schema, n_rows=parts.n_rows)
            return _estimate_parts(parts, replace(forest, schema=schema, trees=trees), runner, report)
        frame = match_frame(parts.frame(runner), forest.schema)
        check_frame(frame)
        codes = encode_codes(frame, forest.schema)
        report.stage("rows to their leaves", len(forest.trees))
        pruned = []
        for found in Threads().map(
            _route_and_prune, (np.ascontiguousarray(codes), forest.options.min_leaf), forest.trees
        ):
            pruned.append(found)
            report.advance()
        schema = replace(forest.schema, n_rows=frame.height)
        estimated = replace(forest, schema=schema, trees=[tree for tree, _ in pruned])
        return _estimate(frame, estimated, codes, [leaves for _, leaves in pruned], report)


def forge(
    model: Model, n: int, *, given: Any = None, seed: int | None = None, progress: bool | Report | None = None
) -> pl.DataFrame:
    """The paper's Alg. 3: `n` synthetic rows. The same as `model.sample`."""
    return model.sample(n, given=given, seed=seed, progress=progress)


def synthesize(
    data: Any,
    n: int | None = None,
    *,
    given: Any = None,
    on_impossible: str = "raise",
    to: PathLike | None = None,
    mode: str = "error",
    rows_per_file: int = 1_000_000,
    storage_options: Mapping[str, Any] | None = None,
    seed: int | None = None,
    client: Any = None,
    progress: bool | Report | None = None,
    **options: Any,
) -> Any:
    """A synthetic twin of `data`, of the same kind, with `n` rows (as many as `data` has, if None).

    `given` is a condition as in `Model.sample`; options are those of `fit`. Made for
    `df.pipe(arf_dask.synthesize, n=1_000_000)`. With `to="out/"` the rows are written there and a `Manifest` comes
    back: that, and the options `mode`, `rows_per_file` and `storage_options`, are those of `Model.sample_parquet`. To
    resume, give the same data and the same seed.
    """
    if n is not None:
        check_rows(n)
    check_policy(on_impossible)
    checked, chosen = _options(**options), entropy(seed)
    if to is not None:
        check_target(to, mode, rows_per_file, storage_options)
    with progress_for(progress) as report, runner_for(client) as runner, open_parts(data, runner) as parts:
        model = _finish(parts, _train(parts, checked, chosen, runner, report), runner, report)
        rows, back = parts.n_rows if n is None else n, parts.back
        if given is None and to is None:
            return back(model.draw(rows, chosen, report))
    if to is None:
        return back(model.sample(rows, given=given, on_impossible=on_impossible, seed=chosen, progress=progress))
    return model.sample_parquet(
        to,
        rows,
        given=given,
        on_impossible=on_impossible,
        seed=chosen,
        rows_per_file=rows_per_file,
        mode=mode,
        client=client,
        storage_options=storage_options,
        progress=progress,
    )


def _options(**given: Any) -> Options:
    """Checked options; None stands for the default."""
    known = {field.name for field in fields(Options)}
    for name in given:
        if name not in known:
            raise unknown_option(name, known)
    options = Options(**{name: value for name, value in given.items() if value is not None})
    options.check()
    return options


class _Trained(NamedTuple):
    """A forest, and the rows it was grown on where these are all there are."""

    forest: AdversarialForest
    frame: pl.DataFrame | None = None
    codes: Codes | None = None
    leaves: Sequence[Ints] | None = None


def _train(parts: Parts, options: Options, seed: int, runner: Runner, report: Progress) -> _Trained:
    """Alg. 1 on all rows, or on a sample of them and a schema from all."""
    options.check_against(list(parts.dtypes))
    rows = training_rows(parts.n_rows, options.rows_per_tree, seed)
    if rows is None:
        frame = parts.frame(runner)
        report.stage("columns", frame.width)
        schema = infer_schema(frame, kinds=options.columns, keys=options.keys, bundles=options.bundles)
        report.advance(frame.width, bundles=len(schema.bundles), keys=len(schema.keys))
    else:
        schema, frame = infer_parts(
            parts,
            rows,
            kinds=options.columns,
            keys=options.keys,
            bundles=options.bundles,
            runner=runner,
            report=report,
        )
    _tell_findings(schema, options)
    codes = encode_codes(frame, schema)
    forest = train(codes, _training(options, codes.shape[1], seed), runner, report, schema.gates)
    grown = AdversarialForest(schema, forest.trees, forest.rounds, options, seed)
    return _Trained(grown, frame, codes, forest.leaves) if rows is None else _Trained(grown)


def _finish(parts: Parts, trained: _Trained, runner: Runner, report: Progress) -> Model:
    """Alg. 2 on the rows in memory, or on all parts."""
    forest, frame, codes, leaves = trained
    if frame is None or codes is None or leaves is None:
        return _estimate_parts(parts, forest, runner, report)
    return _estimate(frame, forest, codes, leaves, report)


def training_rows(n_rows: int, rows_per_tree: int | None, seed: int) -> NDArray[np.int64] | None:
    """The rows that trees are grown on, in order; None for all of them.

    Trees of a few hundred thousand rows are as good as trees of millions (the paper grows them on subsamples too);
    the leaf parameters always come from all rows.
    """
    most = max(TRAINING_ROWS, rows_per_tree or 0)
    if n_rows <= most:
        return None
    chosen = generator(seed, Stage.SAMPLE).choice(n_rows, most, replace=False)
    return np.sort(chosen)


def _route_and_prune(shared: tuple[Codes, int], tree: Tree) -> tuple[Tree, Ints]:
    codes, min_leaf = shared
    return prune(tree, route(tree, codes), codes, min_leaf)


def _estimate_parts(parts: Parts, forest: AdversarialForest, runner: Runner, report: Progress) -> Model:
    """The leaf parameters from all rows, part by part and group of trees by group of trees."""
    tables, entries = None, []
    for sums in sum_leaves(parts, forest.schema, forest.trees, runner, report):
        if tables is None:
            tables = _outline(forest, sums.histograms)
            _ = tables.boxes  # found once here, not by every thread
        entries.append(list(Threads().map(_fit_sums, (tables, sums), range(len(forest.schema.variables)))))
    assert tables is not None
    return Model.of(complete(tables, [join_entries(some) for some in zip(*entries, strict=True)]))


def _fit_sums(shared: tuple[Tables, Sums], number: int) -> Entries:
    tables, sums = shared
    return fit_entries(tables, number, sums_table(sums, tables.schema, number, tables.starts))


def _outline(forest: AdversarialForest, histograms: Sequence[NDArray[np.int64]]) -> Tables:
    return outline(
        forest.schema,
        forest.trees,
        histograms,
        family=forest.options.family,
        support=forest.options.support,
        rounds=forest.rounds,
        options={**forest.options.as_dict(), "seed": forest.seed},
    )


def _estimate(
    frame: pl.DataFrame, forest: AdversarialForest, codes: Codes, leaves: Sequence[Ints], report: Progress
) -> Model:
    schema = forest.schema
    report.stage("leaf parameters", len(schema.variables))
    histograms = [np.bincount(codes[:, j], minlength=v.n_codes) for j, v in enumerate(schema.variables)]
    tables = _outline(forest, histograms)
    entries = []
    _ = tables.boxes  # found once here, not by every thread
    runner = Threads() if frame.height * len(leaves) <= SMALL_SUMS else Threads(1)
    for found in runner.map(_fit_one, (tables, frame, codes, leaves), range(len(schema.variables))):
        entries.append(found)
        report.advance()
    return Model.of(complete(tables, entries))


def _fit_one(shared: tuple[Tables, pl.DataFrame, Codes, Sequence[Ints]], number: int) -> Entries:
    """The entries of one variable, from the sums of a few trees at a time."""
    tables, frame, codes, leaves = shared
    at_once = max(1, SMALL_SUMS // max(frame.height, 1))
    parts = []
    for first in range(0, len(leaves), at_once):
        trees = slice(first, first + at_once)
        starts = tables.starts[first : first + at_once + 1]
        table = summarise_one(frame, tables.schema, codes, leaves[trees], starts, number)
        parts.append(fit_entries(tables, number, table))
    return join_entries(parts)


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
