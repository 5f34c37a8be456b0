"""Estimators with scikit-learn's interface: an imputer, a density estimator and a synthesizer.

They accept NumPy arrays, pandas and Polars frames, and work in pipelines, `cross_val_score` and `GridSearchCV`. Columns
of frames keep their types: text, categories and dates need no encoding.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.impute import MissingIndicator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from arf_dask.api import fit
from arf_dask.data.frames import to_polars
from arf_dask.data.pandas_frames import with_index_of
from arf_dask.model import Model

__all__ = ["ARFDensity", "ARFImputer", "ARFSynthesizer"]


class _ForestEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators: common parameters, conversion of `X`, and the model."""

    model_: Model

    def __init__(
        self,
        *,
        trees: int = 20,
        min_leaf: int | None = None,
        max_rounds: int = 10,
        fit_options: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.trees = trees
        self.min_leaf = min_leaf
        self.max_rounds = max_rounds
        self.fit_options = fit_options
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn the joint distribution of the columns of `X`.

        Args:
            X: rows to learn from: an array of shape (n_samples, n_features), or a pandas or Polars frame.
            y: ignored; present for pipelines.

        Returns:
            The estimator itself.
        """
        self._fit_rows(self._read(X, reset=True))
        return self

    def _fit_rows(self, rows: pl.DataFrame) -> None:
        options = {**self._fixed_options(), **(self.fit_options or {})}
        if self.min_leaf is not None:
            options["min_leaf"] = self.min_leaf
        self.model_ = fit(
            rows, trees=self.trees, max_rounds=self.max_rounds, seed=_seed(self.random_state), progress=False, **options
        )

    def _fixed_options(self) -> dict[str, Any]:
        return {}

    def _read(self, X: Any, *, reset: bool) -> pl.DataFrame:
        """Convert `X` to a Polars frame with the column names seen in `fit`; missing values become nulls."""
        if reset:
            self._array_dtype = None if _is_frame(X) else np.asarray(X).dtype
        if _is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return to_polars(X).frame.with_columns(pl.col(pl.Float64, pl.Float32).fill_nan(None))
        array = validate_data(
            self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan", ensure_min_samples=2 if reset else 1
        )
        return _frame_of_array(array)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.non_deterministic = False
        return tags


class ARFImputer(OneToOneFeatureMixin, TransformerMixin, _ForestEstimator):  # type: ignore[misc]
    """Impute missing values given the known values of each row, from the joint distribution of all columns.

    Args:
        trees: number of trees.
        min_leaf: minimum number of training rows per leaf; None for the default of `arf_dask.fit`.
        max_rounds: maximum number of adversarial rounds after the first.
        sample: False fills in conditional expectations (most probable levels for text); True draws values.
        add_indicator: append an indicator column for every feature that had missing values in `fit`.
        fit_options: further options of `arf_dask.fit`.
        random_state: seed or `numpy.random.RandomState`, for repeatable fits and draws.

    Examples:
        >>> import numpy as np
        >>> X = np.column_stack([np.repeat([0.0, 1.0], 100), np.repeat([5.0, 9.0], 100)])
        >>> imputer = ARFImputer(trees=5, random_state=0).fit(X)
        >>> imputer.transform([[0.0, np.nan], [1.0, np.nan]])
        array([[0., 5.],
               [1., 9.]])
    """

    def __init__(
        self,
        *,
        trees: int = 20,
        min_leaf: int | None = None,
        max_rounds: int = 10,
        sample: bool = False,
        add_indicator: bool = False,
        fit_options: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            trees=trees, min_leaf=min_leaf, max_rounds=max_rounds, fit_options=fit_options, random_state=random_state
        )
        self.sample = sample
        self.add_indicator = add_indicator

    def fit(self, X: Any, y: Any = None) -> ARFImputer:
        """Learn the joint distribution of the columns of `X`, missing values included.

        Args:
            X: rows to learn from, missing values as NaN or null.
            y: ignored; present for pipelines.

        Returns:
            The imputer itself.
        """
        rows = self._read(X, reset=True)
        self._fit_rows(rows)
        self.indicator_: Any = MissingIndicator(error_on_new=False).fit(_missing(rows)) if self.add_indicator else None
        return self

    def transform(self, X: Any) -> Any:
        """Impute the missing values of `X`.

        Args:
            X: rows with the columns seen in `fit`.

        Returns:
            An array for an array, a frame of the same type for a frame (unless set by `set_output`). Known values never
            change.
        """
        check_is_fitted(self)
        rows = self._read(X, reset=False)
        filled = self._filled(rows)
        if not _is_frame(X):
            result = filled.to_numpy()
            return result if self.indicator_ is None else np.hstack([result, self._flags(rows).astype(result.dtype)])
        result = with_index_of(to_polars(X).to_original(filled), X)
        if self.indicator_ is None:
            return result
        added = dict(zip(self._flag_names(rows.columns), self._flags(rows).T, strict=True))
        return result.with_columns(**added) if isinstance(result, pl.DataFrame) else result.assign(**added)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of the output of `transform`.

        Args:
            input_features: names of the input columns; those seen in `fit` if None.

        Returns:
            The names; indicator columns come last.
        """
        names = super().get_feature_names_out(input_features)
        if self.indicator_ is None:
            return np.asarray(names)
        return np.concatenate([names, np.asarray(self._flag_names(names), dtype=object)])

    def _flags(self, rows: pl.DataFrame) -> NDArray[np.bool_]:
        return np.asarray(self.indicator_.transform(_missing(rows)))

    def _flag_names(self, names: Any) -> list[str]:
        return [f"missingindicator_{names[i]}" for i in self.indicator_.features_]

    def _filled(self, rows: pl.DataFrame) -> pl.DataFrame:
        if not self.sample:
            filled: pl.DataFrame = self.model_.impute(rows, fill_all=True)
            return filled
        drawn: pl.DataFrame = self.model_.impute(rows, draws=1, seed=_seed(self.random_state), fill_all=True)[0]
        return drawn


class ARFDensity(DensityMixin, _ForestEstimator):  # type: ignore[misc]
    """Density estimation with open support, so that held-out rows have a density too.

    Args:
        trees: number of trees; more trees give a better density.
        min_leaf: minimum number of training rows per leaf; None for the default of `arf_dask.fit`.
        max_rounds: maximum number of adversarial rounds after the first.
        fit_options: further options of `arf_dask.fit`.
        random_state: seed or `numpy.random.RandomState`.

    Examples:
        >>> import numpy as np
        >>> X = np.random.RandomState(0).normal(size=(300, 2))
        >>> density = ARFDensity(trees=5, random_state=0).fit(X)
        >>> bool(density.score([[0.0, 0.0]]) > density.score([[4.0, 4.0]]))
        True
    """

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Compute the log-density of every row, in nats.

        Args:
            X: rows with the columns seen in `fit`.

        Returns:
            An array of shape (n_samples,). The negative log-density can serve as an anomaly score.
        """
        check_is_fitted(self)
        rows = self._read(X, reset=False)
        return np.asarray(self.model_.log_density(rows).to_numpy())

    def score(self, X: Any, y: Any = None) -> float:
        """Compute the mean log-density of the rows, so that cross-validation compares models by held-out likelihood.

        Args:
            X: rows with the columns seen in `fit`.
            y: ignored; present for pipelines.

        Returns:
            The mean of `score_samples(X)`.
        """
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows from the learned distribution.

        Args:
            n_samples: number of rows.
            random_state: seed or `numpy.random.RandomState`; None uses that of the estimator.

        Returns:
            An array if `fit` saw an array, else a Polars frame.
        """
        check_is_fitted(self)
        return _drawn(self, n_samples, random_state)

    def _fixed_options(self) -> dict[str, Any]:
        return {"support": "open"}


class ARFSynthesizer(_ForestEstimator):
    """Synthetic rows with the columns, types and dependencies of the training data.

    Args:
        trees: number of trees.
        min_leaf: minimum number of training rows per leaf; None for the default of `arf_dask.fit`.
        max_rounds: maximum number of adversarial rounds after the first.
        fit_options: further options of `arf_dask.fit`.
        random_state: seed or `numpy.random.RandomState`.

    Examples:
        >>> import polars as pl
        >>> frame = pl.DataFrame({"colour": ["red", "blue"] * 100, "size": [1, 2] * 100})
        >>> ARFSynthesizer(trees=3, random_state=0).fit(frame).sample(4).shape
        (4, 2)
    """

    def sample(self, n_samples: int = 1, *, given: Any = None, random_state: Any = None) -> Any:
        """Draw synthetic rows.

        Args:
            n_samples: number of rows.
            given: a condition as in `arf_dask.Model.sample`; columns of arrays are called "x0", "x1", ...
            random_state: seed or `numpy.random.RandomState`; None uses that of the estimator.

        Returns:
            An array if `fit` saw an array, else a Polars frame.
        """
        check_is_fitted(self)
        return _drawn(self, n_samples, random_state, given)


def _drawn(estimator: Any, n_samples: int, random_state: Any, given: Any = None) -> Any:
    seed = _seed(estimator.random_state if random_state is None else random_state)
    rows = estimator.model_.sample(n_samples, given=given, seed=seed)
    dtype = estimator._array_dtype
    return rows if dtype is None else rows.to_numpy().astype(dtype)


def _seed(random_state: Any) -> int | None:
    """Convert a scikit-learn random state to a seed."""
    if random_state is None:
        return None
    return int(check_random_state(random_state).randint(2**31 - 1))


def _frame_of_array(array: NDArray[Any]) -> pl.DataFrame:
    """Convert an array to a frame with columns x0, x1, ...; NaN and None become nulls."""
    columns = {}
    for number in range(array.shape[1]):
        values = array[:, number]
        series = pl.Series(values.tolist() if values.dtype.kind in "OUS" else np.ascontiguousarray(values))
        columns[f"x{number}"] = series.fill_nan(None) if series.dtype.is_float() else series
    return pl.DataFrame(columns)


def _missing(rows: pl.DataFrame) -> NDArray[np.float64]:
    """Return an array with NaN for missing cells, for scikit-learn's MissingIndicator."""
    return np.where(rows.select(pl.all().is_null()).to_numpy(), np.nan, 0.0)


def _is_frame(X: Any) -> bool:
    """Return whether `X` is a Polars or pandas frame; anything else is treated as an array."""
    pandas = sys.modules.get("pandas")
    return isinstance(X, pl.DataFrame) or (pandas is not None and isinstance(X, pandas.DataFrame))
