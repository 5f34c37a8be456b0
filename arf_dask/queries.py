"""Queries of a fitted model: densities, probabilities, expectations, quantiles and imputation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import polars as pl

from arf_dask.data.frames import to_polars
from arf_dask.data.pandas_frames import with_index_of
from arf_dask.errors import OptionError
from arf_dask.inference.answers import cumulative, expected_values, probability, quantile, row_log_densities
from arf_dask.inference.completed_rows import impute_refined
from arf_dask.inference.density import check_names
from arf_dask.inference.given import Known, read_given
from arf_dask.model_tables import ModelTables
from arf_dask.runtime.seeds import entropy
from arf_dask.typing import Condition, Frame, FrameT, Missing, PathLike


class ModelQueries(ModelTables):
    """The query methods of a model."""

    def _known(self, given: Any) -> Known:
        return read_given(given, self._fitted)

    def log_density(self, data: Any, *, given: Any = None, missing: Missing = "value") -> pl.Series:
        """Compute the log-density of every row (log q in the paper), in nats.

        Levels, spikes, integers, dates and nulls have a probability mass; other floats have a density. The negative
        log-density can serve as an anomaly score.

        Args:
            data: A frame with all or some of the model's columns; other columns are integrated out.
            given: A condition as in `sample`, or a frame with one condition per row: log q(x | given).
            missing: "value" treats null as a value with its own probability; "marginal" integrates it out, as if the
                row did not have the column. With ages 1, 2 and null, each in a third of the rows, the row
                {"age": None} has log(1/3) with "value" and log(1) with "marginal".

        Returns:
            One number per row; -inf outside the support, never NaN.

        Raises:
            DataError: If the data has columns that the model lacks, or columns of other types.
            OptionError: If `given` or `missing` is invalid.
            ImpossibleConditionError: If the condition has probability zero.

        Examples:
            >>> import arf_dask, polars as pl
            >>> model = arf_dask.fit(pl.DataFrame({"sex": ["f", "f", "f", "m"] * 50}), trees=5, seed=1)
            >>> model.log_density(pl.DataFrame({"sex": ["f", "m"]})).exp().round(2).to_list()
            [0.75, 0.25]
        """
        frame = to_polars(data).frame
        check_names(frame, self.schema)
        return pl.Series("log_density", row_log_densities(self._sampler, frame, self._known(given), missing))

    @overload
    def probability(self, event: Any, *, given: Condition = None) -> float: ...
    @overload
    def probability(self, event: Any, *, given: Frame) -> list[float]: ...
    def probability(self, event: Any, *, given: Any = None) -> Any:
        """Compute the probability of an event.

        A single value of a column with a density has probability zero, but it can be conditioned on in `given`.

        Args:
            event: A condition, as `given` in `sample`.
            given: A condition, or a frame with one condition per row: P(event | given).

        Returns:
            A float; if `given` is a frame, a list with one float per row.

        Raises:
            OptionError: If `event` or `given` is invalid.
            ImpossibleConditionError: If `given` has probability zero.

        Examples:
            >>> import arf_dask, polars as pl
            >>> model = arf_dask.fit(pl.DataFrame({"sex": ["f", "f", "f", "m"] * 50}), trees=5, seed=1)
            >>> round(model.probability({"sex": "f"}), 2)
            0.75
        """
        return probability(self._sampler, event, self._known(given))

    def expect(
        self, columns: Sequence[str] | None = None, *, given: Any = None, level_probabilities: bool = False
    ) -> pl.DataFrame:
        """Compute the mean of numeric columns and the most probable level of categorical ones.

        Args:
            columns: The names of columns; None for all modelled columns.
            given: A condition, as in `sample`; a frame gives one row per condition.
            level_probabilities: Whether to return the probabilities of all levels of categorical columns instead.

        Returns:
            One row, or one per row of `given`. Means are floats and exclude missing values; dates, times and
            durations keep their type. With `level_probabilities`, one row per column and level (null: missing):
            column, level, probability, and row if `given` is a frame.

        Raises:
            OptionError: If `columns` or `given` is invalid.
            ImpossibleConditionError: If the condition has probability zero.

        Examples:
            >>> import arf_dask, polars as pl
            >>> data = pl.DataFrame({"kind": ["a", "b"] * 100, "x": [1.0, 5.0] * 100})
            >>> model = arf_dask.fit(data, trees=5, seed=1, columns={"x": "numeric"}, bundles=False)
            >>> model.expect(["x"], given={"kind": "b"})["x"].round(0).to_list()
            [5.0]
        """
        return expected_values(self._sampler, columns, self._known(given), level_probabilities=level_probabilities)

    @overload
    def quantile(self, column: str, q: float, *, given: Any = None) -> Any: ...
    @overload
    def quantile(self, column: str, q: Sequence[float], *, given: Any = None) -> list[Any]: ...
    def quantile(self, column: str, q: float | Sequence[float], *, given: Any = None) -> Any:
        """Compute quantiles of a column of numbers, dates, times or durations; nulls and NaN are excluded.

        Args:
            column: The name of the column.
            q: A probability from 0 to 1, or a list of them.
            given: A condition, as in `sample`; a frame gives one result per row.

        Returns:
            The smallest value x with P(column <= x) >= q, in the type of the column; a list if `q` is a list. If
            `given` is a frame, a list with one such result per row.

        Raises:
            OptionError: If `column`, `q` or `given` is invalid.
            ImpossibleConditionError: If the condition has probability zero.

        Examples:
            >>> import arf_dask, polars as pl
            >>> model = arf_dask.fit(pl.DataFrame({"n": [i % 10 for i in range(200)]}), trees=5, seed=1)
            >>> model.quantile("n", 0.5), model.quantile("n", [0.0, 1.0])
            (4, [0, 9])
        """
        return quantile(self._sampler, column, q, self._known(given))

    def cdf(self, column: str, x: Any, *, given: Any = None) -> Any:
        """Compute the probability that a column is at most `x`, given that it is not missing.

        Args:
            column: The name of a column of numbers, dates, times or durations.
            x: A value, or a list of values.
            given: A condition, as in `sample`; a frame gives one result per row.

        Returns:
            A float; a list if `x` is a list. If `given` is a frame, a list with one such result per row.

        Raises:
            OptionError: If `column`, `x` or `given` is invalid.
            ImpossibleConditionError: If the condition has probability zero.

        Examples:
            >>> import arf_dask, polars as pl
            >>> model = arf_dask.fit(pl.DataFrame({"n": [i % 10 for i in range(200)]}), trees=5, seed=1)
            >>> round(model.cdf("n", 4), 2), [round(p, 2) for p in model.cdf("n", [0, 9])]
            (0.5, [0.1, 1.0])
        """
        return cumulative(self._sampler, column, x, self._known(given))

    @overload
    def impute(
        self,
        data: PathLike | Sequence[PathLike],
        *,
        draws: None = None,
        seed: int | None = None,
        fill_all: bool = False,
    ) -> pl.DataFrame: ...
    @overload
    def impute(
        self, data: PathLike | Sequence[PathLike], *, draws: int, seed: int | None = None, fill_all: bool = False
    ) -> list[pl.DataFrame]: ...
    @overload
    def impute(
        self, data: FrameT, *, draws: None = None, seed: int | None = None, fill_all: bool = False
    ) -> FrameT: ...
    @overload
    def impute(self, data: FrameT, *, draws: int, seed: int | None = None, fill_all: bool = False) -> list[FrameT]: ...
    @overload
    def impute(
        self, data: object, *, draws: int | None = None, seed: int | None = None, fill_all: bool = False
    ) -> Any: ...
    def impute(self, data: Any, *, draws: int | None = None, seed: int | None = None, fill_all: bool = False) -> Any:
        """Fill in the nulls of a frame, given the known values of each row. Known cells never change.

        A row whose known values have probability zero is completed as by `sample(on_impossible="relax")`.

        Args:
            data: A frame with all or some of the model's columns. Other columns and identifiers are not changed.
            draws: None fills in expectations and most probable values (jointly for the columns of a bundle); a number
                returns a list of that many frames with random draws (multiple imputation).
            seed: The random seed of the draws, for repeatable results.
            fill_all: Whether to fill in also the cells that can only be null given the known ones, such as the age of
                a guest where all guests have none. By default they stay null.

        Returns:
            A frame of the same kind as `data`, or a list of `draws` of them.

        Raises:
            OptionError: If `draws` or `seed` is invalid.
            DataError: If the data has none of the model's columns, or columns of other types.

        Examples:
            >>> import arf_dask, polars as pl
            >>> data = pl.DataFrame({"kind": ["a", "b"] * 100, "code": ["x", "y"] * 100})
            >>> model = arf_dask.fit(data, trees=5, seed=1)
            >>> model.impute(pl.DataFrame({"kind": ["a", "b"], "code": [None, None]}))["code"].to_list()
            ['x', 'y']
        """
        if draws is not None and (isinstance(draws, bool) or not isinstance(draws, int | np.integer) or draws < 1):
            raise OptionError(f"draws={draws!r}: give the number of frames, at least 1, or None for expectations.")
        given = to_polars(data)
        filled = impute_refined(self._sampler, given.frame, draws, entropy(seed), fill_all=fill_all)
        frames = [with_index_of(given.to_original(frame), data) for frame in filled]
        return frames[0] if draws is None else frames
