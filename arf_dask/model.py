"""What can be asked of a fitted model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from arf_dask.answers import chances, checked_columns, cumulative, expect, quantiles
from arf_dask.conditions import is_choices
from arf_dask.density import check_names, conditions_of, log_density, probability
from arf_dask.errors import OptionError
from arf_dask.forge import Sampler, make_sampler
from arf_dask.frames import is_frame, take, with_index_of
from arf_dask.impute import impute
from arf_dask.manifest import Manifest
from arf_dask.progress import Progress, Report, progress_for
from arf_dask.readings import number_place
from arf_dask.sampling import check_policy, make_source, sample_rows, sample_source
from arf_dask.seeds import entropy
from arf_dask.sink import sample_parquet
from arf_dask.storage import PathLike, read_tables, save
from arf_dask.tables import Tables


class Model(Tables):
    """A learned joint distribution: frozen tables, and what can be asked of them."""

    @classmethod
    def of(cls, tables: Tables) -> Model:
        fields = ("schema", "trees", "coverage", "entries", "histograms", "strengths")
        rest = ("family", "support", "rounds_held", "options")
        return cls(*(getattr(tables, name) for name in (*fields, *rest)))

    def sample(
        self,
        n: int,
        *,
        given: Any = None,
        on_impossible: str = "raise",
        seed: int | None = None,
        progress: bool | Report | None = None,
    ) -> pl.DataFrame:
        """`n` synthetic rows with the columns and dtypes of the training data.

        Args:
            n: rows; with a frame as `given`, rows for each row of it.
            given: what is known. `{"sex": "Female", "age": (30, 40), "state": ["CA", "NY"], "bonus": None}`: a value,
                an interval (both ends belong to it, None leaves one open; `arf_dask.Interval` says otherwise), a list
                of choices, None for missing. A list of such dicts: any of these. A frame: one condition per row, null
                is free; its rows come back in order, `n` of each. Every row returned satisfies it, exactly.
            on_impossible: what to do where the model gives a condition probability zero. "raise" an error that names
                it; "null" gives the values known and nulls; "relax" keeps the values known and draws the rest from the
                nearest leaves: as few variables as it takes no longer count, one by one (that which leaves the largest
                density, else the least probable); a number that was never seen stays in the leaves it would lie in.
            seed: makes it repeat; None draws afresh.
            progress: as in `fit`.
        """
        check_rows(n)
        check_memory(n, len(self.schema.columns))
        check_policy(on_impossible)
        chosen = entropy(seed)
        with progress_for(progress) as report:
            report.stage("sampling", n)
            if is_frame(given):
                return sample_rows(self.sampler, given, n, chosen, on_impossible)
            return sample_source(make_source(self.sampler, given, on_impossible), n, chosen, report)

    def sample_parquet(
        self,
        path: PathLike,
        n: int,
        *,
        given: Any = None,
        on_impossible: str = "raise",
        seed: int | None = None,
        rows_per_file: int = 1_000_000,
        mode: str = "error",
        client: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: bool | Report | None = None,
    ) -> Manifest:
        """Write `n` synthetic rows to a data set of Parquet files, however many; memory stays small.

        Files are called part-00000.parquet and so on, and hold the rows of `sample(n, given=given, seed=seed)` in their
        order, whatever `rows_per_file` (with a frame as `given`: other draws of the same kind). A file appears under
        its name whole or not at all; manifest.json and then _SUCCESS come last. The same job always gives the same
        bytes.

        Args:
            path: a directory that is new or empty, or a URL (s3://, gs://, az:// ...) that fsspec can open.
            n: rows; with a frame as `given`, rows for each row of it.
            given: as in `sample`.
            on_impossible: as in `sample`.
            seed: makes it repeat; None draws afresh, or takes the seed of the job that is resumed.
            rows_per_file: rows of every part but the last.
            mode: what to do if something is there already. "error" refuses; "resume" completes a run of the same job
                that was stopped or killed, and refuses any other; "overwrite" replaces a data set of this kind (and
                nothing else): the new one is written beside it and renamed into its place when it is finished. On a
                URL there are no renames: there the old one is removed first.
            client: a Dask client, or the address of a scheduler; None: the active client, if there is one, else
                threads. Workers write to `path` themselves, so it must mean the same for all of them.
            storage_options: what fsspec needs for a URL.
            progress: as in `fit`.
        """
        check_rows(n)
        check_policy(on_impossible)
        with progress_for(progress) as report:
            return sample_parquet(
                self,
                self.sampler,
                path,
                n,
                given=given,
                on_impossible=on_impossible,
                seed=seed,
                rows_per_file=rows_per_file,
                mode=mode,
                client=client,
                storage_options=storage_options,
                report=report,
            )

    def draw(self, n: int, seed: int, report: Progress) -> pl.DataFrame:
        """`n` rows without any condition."""
        report.stage("sampling", n)
        return sample_source(make_source(self.sampler, None, "raise"), n, seed, report)

    def log_density(self, data: Any, *, given: Any = None, missing: str = "value") -> pl.Series:
        """The log-density of every row (the paper's q), in nats; -inf outside the support, never NaN.

        The measure: mass for levels, spikes, whole numbers, dates and nulls; density for other floats. Minus this
        number is an anomaly score.

        Args:
            data: rows with all columns of the model, or some of them: the others are integrated out.
            given: a condition as in `sample` (or a frame with one for each row): log q(x | given).
            missing: "value": a null is a value of its own and has its probability; "marginal": it is integrated out,
                as if the row did not have the column.

        With ages 1, 2 and null, each in a third of the rows, the row {"age": None} has log(1/3), the share of missing
        ages, with "value", and log(1) with "marginal", as it then says nothing.
        """
        frame = take(data).frame
        check_names(frame, self.schema)
        return pl.Series("log_density", log_density(self, frame, given, missing))

    def probability(self, event: Any, *, given: Any = None) -> Any:
        """The probability of an event, a condition as in `sample`: a float (a list of them if `given` is a frame).

        A single value of a column with a density has probability zero; as part of `given`, it is conditioned on.
        """
        return probability(self, event, given)

    def expect(
        self, columns: Sequence[str] | None = None, *, given: Any = None, level_probabilities: bool = False
    ) -> pl.DataFrame:
        """Expectations, one row (one per row of `given`, if that is a frame).

        The mean for numbers (a float; dates, times and durations in their own type) given that there is one, and the
        most probable level for categories. With `level_probabilities` instead: the probability of every level (null:
        missing) of the categories, one row per column and level.
        """
        return expect(self, columns, given, level_probabilities)

    def quantile(self, column: str, q: float | Sequence[float], *, given: Any = None) -> list[Any]:
        """The smallest values of a column with at least probability `q` at or below them; nulls and NaN left out.

        One per `q`; a list of such lists, one per row, if `given` is a frame.
        """
        levels = chances(q)
        if is_frame(given):
            return [quantiles(self, column, levels, one) for one in conditions_of(given, self.schema)]
        return quantiles(self, column, levels, given)

    def cdf(self, column: str, x: Any, *, given: Any = None) -> Any:
        """The probability of values up to `x`, given that the column has a number; a list if `x` is a list."""
        several = is_choices(x)
        checked_columns(self.schema, [column])
        found = self.schema.columns[self.schema.names.index(column)]
        if found.kind != "numeric":
            raise OptionError(f"cdf: {column!r} has levels, not numbers. Use probability.")
        values = list(x) if several else [x]
        places = [float(number_place(value, found, f"x: {column!r}", exact=False)) for value in values]
        if is_frame(given):
            each = [cumulative(self, column, places, one) for one in conditions_of(given, self.schema)]
            return each if several else [one[0] for one in each]
        result = cumulative(self, column, places, given)
        return result if several else result[0]

    def impute(self, data: Any, *, draws: int | None = None, seed: int | None = None) -> Any:
        """`data` with its nulls filled in, given what each row has; the same kind of frame. Known cells never change.

        Args:
            data: a frame with all columns of the model or some of them; others, and identifiers, stay as they are.
            draws: None fills in expectations and most probable values (columns of a bundle together); a number gives
                a list of so many frames, drawn: multiple imputation.
            seed: makes draws repeat.

        A row that knows something impossible is completed as by `sample(on_impossible="relax")`.
        """
        if draws is not None and (isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 1):
            raise OptionError(f"draws={draws!r}: give the number of frames, at least 1, or None for expectations.")
        given = take(data)
        filled = impute(self.sampler, given.frame, draws, entropy(seed))
        frames = [with_index_of(given.back(frame), data) for frame in filled]
        return frames[0] if draws is None else frames

    def without_smoothing(self) -> Model:
        """The same model with the bare shares of training rows in every leaf, nothing shrunk towards the parent."""
        return Model.of(replace(self, strengths=np.zeros_like(self.strengths)))

    def save(self, path: PathLike) -> None:
        """Write the model to a directory that `arf_dask.load` reads. It holds statistics, but no training row."""
        save(self, path)

    @cached_property
    def sampler(self) -> Sampler:
        return make_sampler(self)


def load(path: PathLike) -> Model:
    """The model saved in a directory. Whatever is wrong with it is a ModelFormatError that says what."""
    return Model.of(read_tables(path))


def check_rows(n: object) -> None:
    """Raise an OptionError unless `n` is a number of rows."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise OptionError(f"n={n!r}: give the number of rows to draw, a whole number of at least 0.")


def check_memory(n: int, columns: int) -> None:
    """Raise an OptionError for more rows than this machine could ever hold."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if n * columns > memory:  # a byte for every cell
        raise OptionError(
            f"n={n:,}: so many rows of {columns} columns do not fit into the memory of this machine "
            f"({memory / 1e9:.0f} GB). Use model.sample_parquet(path, n), or synthesize(..., to=path)."
        )
