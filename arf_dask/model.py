"""The fitted model: `Model.sample` draws rows; `queries` and `sinks` add queries and methods that write rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, Protocol, Unpack, overload

import polars as pl

from arf_dask.data.frames import check_kind, to_kind, to_polars
from arf_dask.errors import OptionError, PrivacyError
from arf_dask.forest.fitted import Fitted
from arf_dask.inference.dask_rows import dask_frame
from arf_dask.inference.row_plan import lazy_frame, plan_rows
from arf_dask.inference.sources import check_memory, check_policy, check_rows
from arf_dask.options import SHADOWS, SampleOptions
from arf_dask.privacy.statement import PrivacyStatement, read_statement
from arf_dask.queries import ModelQueries
from arf_dask.release.fitting import release_report
from arf_dask.release.policy import Limits
from arf_dask.reporting.result import Report
from arf_dask.runtime.progress import ProgressFunction, progress_for
from arf_dask.runtime.seeds import entropy
from arf_dask.sinks import Gate, ModelSinks
from arf_dask.storage.remote_model import save_model
from arf_dask.typing import FrameKind, OnImpossible, PathLike

Draw = Callable[[int], pl.DataFrame]  # draws the first n rows of a result


class Evaluation(Protocol):
    """The reports on rows of a model. They are made by modules that import this one."""

    @property
    def report(self) -> Callable[..., Report]:
        """Measure fidelity and privacy of synthetic rows, see `arf_dask.report`."""

    def judge(
        self, model: Model, limits: Limits, real: Any, holdout: Any, draw: Draw, n: int, seed: int, progress: Any
    ) -> object:
        """Raise a ReleaseError unless rows may be published."""


class Model(ModelQueries, ModelSinks):
    """A learned joint distribution of the columns of a table, as returned by `fit`, `forde` and `load`.

    Examples:
        >>> import arf_dask, polars as pl
        >>> data = pl.DataFrame({"sex": ["f", "m"] * 100, "age": [20 + i % 40 for i in range(200)]})
        >>> print(arf_dask.fit(data, trees=5, seed=1))  # doctest: +ELLIPSIS
        Model of 200 rows and 2 columns
          forest    5 trees, ... leaves, truncnorm, observed support
          accuracy  ... out of bag after ...
    """

    def __init__(
        self, fitted: Fitted, holdout: pl.DataFrame | None = None, evaluation: Evaluation | None = None
    ) -> None:
        super().__init__(fitted)
        self._holdout = holdout
        self._evaluation = evaluation

    @property
    def holdout(self) -> pl.DataFrame | None:
        """The rows held out by `fit(..., holdout=0.1)`. They are kept in memory and never saved with the model."""
        return self._holdout

    @property
    def release_report(self) -> dict[str, Any] | None:
        """The effects of the release policy: levels merged, values clipped, rows dropped. None without a policy."""
        return release_report(self.options)

    @property
    def privacy(self) -> PrivacyStatement | None:
        """The guarantee of a private fit: budget, mechanisms, and what is not covered. None for other models.

        Examples:
            >>> import arf_dask, polars as pl
            >>> private = arf_dask.DifferentialPrivacy(epsilon=1.0, bounds={"age": (18, 90)})
            >>> data = pl.DataFrame({"age": [20 + i % 40 for i in range(1_000)], "member": [True, False] * 500})
            >>> model = arf_dask.fit(data, privacy=private, trees=5, refine=False)
            >>> model.privacy.summary
            '(1, 1e-09)-differentially private for one row'
        """
        return read_statement(self.options)

    @overload
    def sample(
        self, n: int, *, frame: Literal["polars"] = "polars", **options: Unpack[SampleOptions]
    ) -> pl.DataFrame: ...
    @overload
    def sample(self, n: int, *, frame: Literal["lazy"], **options: Unpack[SampleOptions]) -> pl.LazyFrame: ...
    @overload
    def sample(self, n: int, *, frame: Literal["pandas", "arrow", "dask"], **options: Unpack[SampleOptions]) -> Any: ...
    def sample(
        self,
        n: int,
        *,
        given: Any = None,
        on_impossible: OnImpossible = "raise",
        seed: int | None = None,
        first_key: int | None = None,
        frame: FrameKind = "polars",
        progress: bool | ProgressFunction | None = None,
    ) -> Any:
        """Draw synthetic rows with the columns and dtypes of the training data.

        Args:
            n: The number of rows; if `given` is a frame, the number of rows per condition.
            given: A condition that every returned row satisfies exactly. A dict such as `{"sex": "Female", "age":
                (30, 40), "state": ["CA", "NY"], "bonus": None}` gives a value, a closed interval (None leaves an end
                open; see `arf_dask.Interval` for other intervals), a list of choices, or None for missing. A list of
                such dicts is a disjunction. A Polars expression such as `(pl.col("age") > 30) & (pl.col("sex") ==
                "Female")` compares columns with values; every row satisfies `filter` of it. A frame holds one
                condition per row, in which null means unknown; results are in the order of its rows, `n` for each.
            on_impossible: How to handle a condition of probability zero. "raise" raises an error that names it. "null"
                returns the given values, and nulls elsewhere. "relax" keeps the given values and draws the other
                columns from the nearest leaves: it ignores as few variables as possible, one at a time, choosing the
                one whose removal gives the largest density; an unseen number stays in the leaves that contain it.
            seed: The random seed, for repeatable results; None uses a fresh one.
            first_key: The number of identifiers already used, if the rows are to be appended to other rows of the
                same model: 0 for the first job, 1,000 for the next if the first had 1,000 rows, and so on. Jobs with
                disjoint ranges never share identifiers, whatever their seeds; by default every job starts anew.
            frame: The type of the result: a "polars" DataFrame, a "pandas" DataFrame, or an "arrow" Table; "lazy" and
                "dask" give a LazyFrame or Dask DataFrame of the same rows, drawn on demand, block by block. `head` of a
                LazyFrame draws only the first rows, but a later slice draws all rows before it, as Polars passes no
                offset to its sources. `loc` of the Dask DataFrame draws only the partitions of the selected rows:
                `model.sample(10**9, seed=1, frame="dask").loc[999_999_990:999_999_994].compute()`.
            progress: Whether to show progress, as in `fit`.

        Returns:
            A frame of the requested type, with exactly the requested number of rows.

        Raises:
            OptionError: If `n`, `given`, `on_impossible` or `seed` is invalid, or the rows would not fit into memory.
            ImpossibleConditionError: If the condition has probability zero and `on_impossible` is "raise".

        Examples:
            >>> import arf_dask, polars as pl
            >>> data = pl.DataFrame({"sex": ["f", "m"] * 100, "age": [20 + i % 40 for i in range(200)]})
            >>> model = arf_dask.fit(data, trees=5, seed=1)
            >>> model.sample(4, given={"sex": "f", "age": (30, 40)}, seed=2)["sex"].to_list()
            ['f', 'f', 'f', 'f']
        """
        check_rows(n)
        check_policy(on_impossible)
        check_kind(frame)
        if frame not in ("lazy", "dask"):
            check_memory(n, len(self.schema.columns))
        plan = plan_rows(self._sampler_from(first_key), n, given, on_impossible, entropy(seed))
        if frame in ("lazy", "dask"):
            return lazy_frame(plan) if frame == "lazy" else dask_frame(plan)
        with progress_for(progress) as report:
            report.stage("sampling", plan.rows)
            return to_kind(plan.collect(report), frame)

    def _pass_gate(self, gate: Gate, n: int, about: Mapping[str, Any], mode: str, progress: Any) -> int | None:
        """Evaluate the rows that would be written, and return the seed used."""
        seed: int | None = about["seed"]
        if gate.limits is None:
            return seed
        if not isinstance(gate.limits, Limits):
            raise OptionError(f"publish_if={gate.limits!r}: give arf_dask.Limits(...).")
        if mode == "resume" and seed is None:
            raise OptionError('publish_if: mode="resume" needs the seed of the run that is resumed.')
        if self.privacy is not None:
            raise PrivacyError(
                "publish_if: whether rows pass depends on real rows, so the result would not be private. Write the "
                "rows without it, and keep a report on them to yourself."
            )
        chosen = entropy(seed)

        def draw(rows: int) -> pl.DataFrame:
            planned = self.sample(n, frame="lazy", **{**about, "seed": chosen})
            return planned.head(rows).collect()

        self._evaluated("publish_if").judge(self, gate.limits, gate.real, gate.holdout, draw, n, chosen, progress)
        return chosen

    def without_refinement(self) -> Model:
        """Return the exact model of the forest alone, which draws rows and answers questions without the boosted ratio.

        Returns:
            A new model; this one is not modified.

        Examples:
            >>> import arf_dask, polars as pl
            >>> data = pl.DataFrame({"x": [i % 7 for i in range(1_000)], "y": [i * i % 7 for i in range(1_000)]})
            >>> model = arf_dask.fit(data, trees=5, min_leaf=400, bundles=False, dependence="none", seed=1)
            >>> model.refinement is None, model.without_refinement().refinement is None
            (False, True)
        """
        return Model(replace(self._fitted, refinement=None), self._holdout, self._evaluation)

    def without_smoothing(self) -> Model:
        """Return a model with the raw proportions of training rows in every leaf, without shrinkage.

        The model has no refinement either, because the ratio was learned against the smoothed model.

        Returns:
            A new model; this one is not modified.

        Examples:
            >>> import arf_dask, polars as pl
            >>> model = arf_dask.fit(pl.DataFrame({"sex": ["f", "f", "f", "m"] * 50}), trees=5, seed=1)
            >>> round(model.without_smoothing().probability({"sex": "f"}), 6)
            0.75
        """
        tables = self._fitted.tables.without_smoothing()
        return Model(replace(self._fitted, tables=tables, refinement=None), self._holdout, self._evaluation)

    def report(
        self,
        real: Any,
        holdout: Any = None,
        *,
        synthetic: Any = None,
        target: str | None = None,
        seed: int | None = None,
        shadows: int = SHADOWS,
        show_rows: bool = False,
        progress: bool | ProgressFunction | None = None,
    ) -> Report:
        """Measure the fidelity of rows of this model to the real ones, and what privacy attacks reveal.

        Equivalent to `arf_dask.report(real, synthetic, holdout=holdout, model=model, ...)`.

        Args:
            real: The rows that the model was fitted to, or the whole table that they and the held-out rows are of.
            holdout: Real rows that the model never saw; None uses those of `fit(..., holdout=0.1)`, if there are any.
            synthetic: The rows to evaluate; None draws as many as there are real ones.
            target: A column to predict, as in `arf_dask.report`.
            seed: The random seed, for repeatable results; None uses a fresh one.
            shadows: The number of shadow models, as in `arf_dask.report`.
            show_rows: Whether to show exposed real rows, as in `arf_dask.report`.
            progress: Whether to show progress, as in `fit`.

        Returns:
            A `Report`: `to_dict()`, `to_frame()`, `save("report.html")`.

        Raises:
            DataError: If the frames have different columns, or no rows.
            OptionError: If `target` is not a column, or an argument is invalid.

        Examples:
            >>> import arf_dask, polars as pl
            >>> rows = pl.DataFrame({"x": [i % 7 for i in range(300)], "y": [i % 3 == 0 for i in range(300)]})
            >>> model = arf_dask.fit(rows[:200], trees=5, seed=1)
            >>> model.report(rows[:200], rows[200:], shadows=0, seed=0, progress=False).verdict.privacy
            'Attack-tested: too few held-out rows to rule out a leak'
        """
        evaluation, chosen, real_rows = self._evaluated("report"), entropy(seed), to_polars(real).frame
        rows = self.sample(real_rows.height, seed=chosen, progress=progress) if synthetic is None else synthetic
        measuring = {"target": target, "seed": chosen, "shadows": shadows, "show_rows": show_rows, "progress": progress}
        return evaluation.report(real_rows, rows, model=self, holdout=holdout, **measuring)

    def _evaluated(self, what: str) -> Evaluation:
        if self._evaluation is None:
            raise OptionError(
                f"{what}: a pickled model cannot be evaluated. Save the model that arf_dask.fit returned, and load it."
            )
        return self._evaluation

    def save(self, path: PathLike, storage_options: Mapping[str, Any] | None = None) -> None:
        """Save the model to a directory for `arf_dask.load`. It contains statistics, but no training rows.

        Args:
            path: A new directory or URL, or one that holds a model, which is replaced.
            storage_options: Storage options for a URL, with the names of fsspec or of Polars.

        Raises:
            OptionError: If the path holds anything but a model, or its parent directory does not exist.

        Examples:
            >>> import tempfile, arf_dask, polars as pl
            >>> model = arf_dask.fit(pl.DataFrame({"x": [i / 7 for i in range(200)]}), trees=5, seed=1)
            >>> with tempfile.TemporaryDirectory() as directory:
            ...     model.save(f"{directory}/m")
            ...     again = arf_dask.load(f"{directory}/m")
            >>> again.sample(5, seed=3).equals(model.sample(5, seed=3))
            True
        """
        save_model(self._fitted, path, storage_options)

    def __getstate__(self) -> dict[str, Any]:
        # Held-out rows are not pickled, nor are the reports, which need them.
        return {"_fitted": self._fitted, "_holdout": None, "_evaluation": None}
