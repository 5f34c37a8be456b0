"""`fit`, `load`, and the three algorithms of the paper: `adversarial_forest`, `forde` and `forge`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import polars as pl

from arf_dask.data.files import Reading
from arf_dask.data.frames import to_polars
from arf_dask.data.holdout import split_holdout
from arf_dask.data.opening import open_parts
from arf_dask.model import Model
from arf_dask.options import FitOptions, Options, shows_options
from arf_dask.privacy.declaration import DifferentialPrivacy
from arf_dask.privacy.opening import fit_privately
from arf_dask.relational.model_files import holds_tables, read_tables
from arf_dask.release.fitting import checked_policy, tell_if_unguarded
from arf_dask.release.policy import ReleasePolicy
from arf_dask.reports import EVALUATION
from arf_dask.runtime.cluster import runner_for
from arf_dask.runtime.progress import ProgressFunction, progress_for
from arf_dask.runtime.seeds import entropy
from arf_dask.storage.remote_model import read_model
from arf_dask.table_models import TablesModel
from arf_dask.training.forests import AdversarialForest
from arf_dask.training.releases import fit_released
from arf_dask.training.stages import fit_parts, refit_leaves, train_forest
from arf_dask.typing import OnImpossible, PathLike


class FitArguments(FitOptions, total=False):
    """The keyword arguments of `fit`, for type checkers and editors."""

    release: ReleasePolicy | None
    privacy: DifferentialPrivacy | None
    privacy_ledger: PathLike | None
    holdout: Any
    seed: int | None
    client: Any
    progress: bool | ProgressFunction | None
    storage_options: Mapping[str, Any] | None
    read_options: Mapping[str, Any] | None


@shows_options
def fit(
    data: Any,
    *,
    release: ReleasePolicy | None = None,
    privacy: DifferentialPrivacy | None = None,
    privacy_ledger: PathLike | None = None,
    holdout: Any = None,
    seed: int | None = None,
    client: Any = None,
    progress: bool | ProgressFunction | None = None,
    storage_options: Mapping[str, Any] | None = None,
    read_options: Mapping[str, Any] | None = None,
    **options: Unpack[FitOptions],
) -> Model:
    """Learn the joint distribution of a table.

    Args:
        data: A Polars DataFrame or LazyFrame, a pandas DataFrame, a pyarrow Table or dataset, anything with the Arrow
            stream interface (a DuckDB relation, an Ibis table, a RecordBatchReader), a Dask DataFrame, a DeltaTable, an
            Iceberg table or a scan of one; or paths, globs or URLs of Parquet or CSV files, one or a list. It may be
            larger than memory: beyond 250,000 rows it is read part by part.
        trees: The number of trees. More trees give a better density; 20 are enough for sampling.
        min_leaf: The minimum number of training rows per leaf. Larger values protect individual rows better, but
            smooth the distribution more. None uses 50 for models that are to be refined, and 20 for others.
        max_rounds: The maximum number of adversarial rounds after the first.
        tolerance: The paper's delta: training stops once the out-of-bag accuracy is at most 1/2 + tolerance.
        max_features: The number of variables tried at every split; None uses the square root of their number, but at
            least 2.
        rows_per_tree: The number of real rows per tree, drawn without replacement. None uses a bootstrap of all rows,
            or of a sample of 250,000 for larger data (leaf parameters are always estimated from all rows). A value
            above 250,000 enlarges that sample accordingly.
        family: "truncnorm" (moment-matched truncated normals) or "uniform" (piecewise constant).
        columns: Overrides of the detected column kinds, such as {"zip": "categorical"}: "categorical", "numeric" or
            "key".
        keys: Identifier columns. They are neither modelled nor copied; new values of the same shape are generated.
        renew: Names and numbers of entities that occur in several rows, such as ["merchant_id", "merchant"]. Each value
            is replaced by a fresh one of the same shape before anything is learned, the same in all rows of the entity,
            which keeps its other columns. The model knows only the new values.
        bundles: Columns that are modelled jointly: "auto" detects them, False disables bundles, and a list such as
            [["city", "zip"]] names all of them.
        support: "observed" never samples outside the observed range; "open" keeps the tails of float columns.
        dependence: "tree" models the dependence of variables inside leaves by a dependency tree
            (`Model.dependence`); "none" assumes independence inside leaves, as the paper does.
        refine: Whether to learn the ratio of the real density to that of the forest by gradient boosting, and to
            accept drawn rows in proportion to it (`Model.refinement`): "auto" where there are at least 500 training
            rows and rows held back from learning show a gain, True wherever there is any, False never.
        rules: Constraints between columns of a row, in addition to detected ones: texts such as
            "total == price * quantity", "start <= end" or "home != away", equivalent Polars expressions, or lists of
            columns whose unseen combinations are never drawn. They hold in every sampled row; docs/relations.md
            describes the grammar.
        find_rules: Whether to detect rules in the data. `model.rules` lists them.
        strict_rules: Whether training rows that violate a declared rule raise an error instead of a warning.
        allow_copies: Whether to accept fewer than 5 training rows, which the model then reproduces.
        release: A policy for publishing synthetic rows: rare values and extremes are neither learned nor drawn, leaves
            hold enough people, and copies are redrawn. The data is read into memory.
        privacy: Fit with (epsilon, delta)-differential privacy: only noisy counts of the data are used, and whatever
            is not declared is not read. `Model.privacy` states the guarantee; docs/privacy.md explains it.
        privacy_ledger: A path or URL of a JSON file that adds up what private fits of the same table have spent. A fit
            that would exceed its cap is refused.
        holdout: A share of the rows, such as 0.1, or a frame of other rows, to exclude from training and keep in
            `Model.holdout`, for use by `arf_dask.report`. The data is read into memory.
        seed: The random seed, for repeatable results; None uses a fresh one.
        client: A `distributed.Client` or the address of a scheduler; None uses the active client, if any, or threads.
        progress: None shows progress in a terminal or notebook if the work takes long, False never, True always; or
            a function of (stage, done, total, facts).
        storage_options: Storage options for URLs, with the names of fsspec or of Polars. They are sent to workers.
        read_options: Options for reading CSV, such as {"separator": ";", "decimal": ",", "null_values": ["NA"],
            "encoding": "cp1252"}, and other arguments of `polars.scan_csv`.

    Returns:
        A model that can be sampled, queried and saved.

    Raises:
        OptionError: If an option is invalid or does not exist.
        DataError: If the data cannot be read or modelled; the message names the column.
        UnsupportedColumnError: If columns have nested or binary types; the message lists all of them.
        PrivacyError: If a private fit would need something that is neither declared nor paid for.
        ClusterError: If the Dask cluster is gone or repeatedly loses a task.

    Examples:
        >>> import arf_dask, polars as pl
        >>> data = pl.DataFrame({"sex": ["f", "m"] * 100, "age": [20 + i % 40 for i in range(200)]})
        >>> model = arf_dask.fit(data, trees=5, seed=1)
        >>> model.sample(1_000, seed=2).shape
        (1000, 2)
        >>> arf_dask.fit(data, n_trees=5)
        Traceback (most recent call last):
        arf_dask.errors.OptionError: no option 'n_trees'. Did you mean trees?
    """
    fit_options, chosen_seed, reading = Options.read(options), entropy(seed), Reading(storage_options, read_options)
    if privacy is not None or privacy_ledger is not None:
        refused = {"seed": seed, "release": release, "holdout": holdout}
        made = fit_privately(data, privacy, fit_options, privacy_ledger, refused, reading, client, progress)
        return Model(made.fitted, None, EVALUATION)
    subject = None if release is None else checked_policy(release).subject
    train_rows, kept_back = split_holdout(data, holdout, chosen_seed, subject, reading)
    with progress_for(progress) as report, runner_for(client) as runner:
        if release is not None:
            frame = to_polars(train_rows, reading).frame
            return Model(fit_released(frame, release, fit_options, chosen_seed, runner, report), kept_back, EVALUATION)
        with open_parts(train_rows, runner, reading) as parts:
            return Model(fit_parts(parts, fit_options, chosen_seed, runner, report), kept_back, EVALUATION)


def load(path: PathLike, *, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Load a model saved by `Model.save` or `TablesModel.save`.

    Args:
        path: The directory or URL.
        storage_options: Storage options for a URL, with the names of fsspec or of Polars.

    Returns:
        The `Model`, or the `TablesModel` if the directory holds several tables. It gives exactly the same answers and
        rows as the saved one. The fingerprints by which a release
        recognises copies of real rows are never saved: a ReleaseWarning says that rows are no longer checked.

    Raises:
        ModelFormatError: If the directory is missing, damaged, not a model, or of an unknown version. All files are
            validated, including their hashes.

    Examples:
        >>> import tempfile, arf_dask, polars as pl
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     arf_dask.fit(pl.DataFrame({"x": [i / 7 for i in range(200)]}), trees=5, seed=1).save(f"{directory}/m")
        ...     model = arf_dask.load(f"{directory}/m")
        >>> model.schema.names
        ['x']
    """
    if holds_tables(path):
        return TablesModel(read_tables(path))
    fitted = read_model(path, storage_options)
    tell_if_unguarded(fitted)
    return Model(fitted, evaluation=EVALUATION)


@shows_options
def adversarial_forest(
    data: Any,
    *,
    seed: int | None = None,
    client: Any = None,
    progress: bool | ProgressFunction | None = None,
    storage_options: Mapping[str, Any] | None = None,
    read_options: Mapping[str, Any] | None = None,
    **options: Unpack[FitOptions],
) -> AdversarialForest:
    """Train an adversarial random forest, in whose leaves columns are approximately independent (paper, Algorithm 1).

    Args:
        data: The training data, as in `fit`.
        seed: The random seed, for repeatable results; None uses a fresh one.
        client: A Dask client or the address of a scheduler, as in `fit`.
        progress: Whether to show progress, as in `fit`.
        storage_options: Storage options for URLs, as in `fit`.
        read_options: Options for reading CSV, as in `fit`.
        **options: The options of `fit`.

    Returns:
        The trees, the schema of the data, and the training rounds. Pass it to `forde` to obtain a model.

    Raises:
        OptionError: If an option is invalid or does not exist.
        DataError: If the data cannot be read or modelled.

    Examples:
        >>> import arf_dask, polars as pl
        >>> data = pl.DataFrame({"x": [i / 7 for i in range(200)], "y": [i % 9 for i in range(200)]})
        >>> len(arf_dask.adversarial_forest(data, trees=5, seed=1).trees)
        5
    """
    fit_options, reading = Options.read(options), Reading(storage_options, read_options)
    with (
        progress_for(progress) as report,
        runner_for(client) as runner,
        open_parts(data, runner, reading) as parts,
    ):
        return train_forest(parts, fit_options, entropy(seed), runner, report).forest


def forde(
    forest: AdversarialForest, data: Any, *, client: Any = None, progress: bool | ProgressFunction | None = None
) -> Model:
    """Estimate the leaf parameters of a forest (paper, Algorithm 2).

    Args:
        forest: The result of `adversarial_forest`.
        data: Usually the rows that the forest was trained on. Other rows give honest estimates; leaves with too few
            rows are pruned.
        client: A Dask client or the address of a scheduler, as in `fit`.
        progress: Whether to show progress, as in `fit`.

    Returns:
        A model, as returned by `fit`.

    Raises:
        DataError: If the data lacks columns of the forest, or cannot be read.

    Examples:
        >>> import arf_dask, polars as pl
        >>> data = pl.DataFrame({"x": [i / 7 for i in range(200)], "y": [i % 9 for i in range(200)]})
        >>> forest = arf_dask.adversarial_forest(data, trees=5, seed=1)
        >>> arf_dask.forde(forest, data).sample(3, seed=2).height
        3
    """
    with progress_for(progress) as report, runner_for(client) as runner, open_parts(data, runner) as parts:
        return Model(refit_leaves(forest, parts, runner, report), evaluation=EVALUATION)


def forge(
    model: Model,
    n: int,
    *,
    given: Any = None,
    on_impossible: OnImpossible = "raise",
    seed: int | None = None,
    progress: bool | ProgressFunction | None = None,
) -> pl.DataFrame:
    """Draw synthetic rows from a model (paper, Algorithm 3). Equivalent to `model.sample`.

    Args:
        model: The model.
        n: The number of rows.
        given: A condition, as in `Model.sample`.
        on_impossible: What to do with an impossible condition, as in `Model.sample`.
        seed: The random seed, for repeatable results; None uses a fresh one.
        progress: Whether to show progress, as in `fit`.

    Returns:
        A Polars DataFrame with the columns and dtypes of the training data.

    Raises:
        OptionError: If an argument is invalid.
        ImpossibleConditionError: If the condition has probability zero and `on_impossible` is "raise".

    Examples:
        >>> import arf_dask, polars as pl
        >>> model = arf_dask.fit(pl.DataFrame({"x": [i / 7 for i in range(200)]}), trees=5, seed=1)
        >>> arf_dask.forge(model, 3, seed=2).equals(model.sample(3, seed=2))
        True
    """
    return model.sample(n, given=given, on_impossible=on_impossible, seed=seed, progress=progress)
