"""The estimators behave as scikit-learn's own do."""

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from arf_dask.sklearn import ARFDensity, ARFImputer, ARFSynthesizer

SMALL: dict[str, Any] = {"trees": 3, "max_rounds": 1}


def pairs(n: int = 400) -> np.ndarray:
    """Two columns, the second being the first plus 10."""
    first = np.random.default_rng(0).integers(0, 5, n).astype(float)
    return np.column_stack([first, first + 10])


@pytest.mark.parametrize("estimator", [ARFDensity(**SMALL), ARFImputer(**SMALL), ARFSynthesizer(**SMALL)])
def test_scikit_learns_own_checks_pass(estimator: object) -> None:
    for tested, check in estimator_checks_generator(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                check(clone(tested))
            except BaseException as error:
                if type(error).__name__ != "SkipTest":
                    raise


def test_an_imputer_fills_in_what_the_row_implies_and_keeps_the_rest() -> None:
    X = pairs()
    holes = X[:50].copy()
    holes[:, 1] = np.nan
    filled = ARFImputer(random_state=0).fit(X).transform(holes)
    np.testing.assert_array_equal(filled, X[:50])


def test_options_of_fit_are_passed_on() -> None:
    x = np.random.default_rng(0).integers(0, 7, 1_000).astype(float)
    X = np.column_stack([x, x * x % 7])
    for estimator in (ARFDensity, ARFSynthesizer, ARFImputer):
        refined = {}
        for refine in (True, False):
            options = {"refine": refine, "bundles": False, "find_rules": False, "dependence": "none"}
            fitted = estimator(trees=3, min_leaf=400, fit_options=options, random_state=0).fit(X)
            assert fitted.model_.options["refine"] is refine
            refined[refine] = fitted.model_.refinement is not None
        assert refined == {True: True, False: False}


def test_indicators_tell_what_was_missing() -> None:
    X = pairs()
    X[:100, 1] = np.nan
    imputer = ARFImputer(add_indicator=True, random_state=0, **SMALL).fit(X)
    result = imputer.transform(X)
    assert result.shape == (400, 3)
    np.testing.assert_array_equal(result[:, 2], np.r_[np.ones(100), np.zeros(300)])
    assert imputer.get_feature_names_out().tolist() == ["x0", "x1", "missingindicator_x1"]


@pytest.mark.parametrize("kind", [pl.DataFrame, pd.DataFrame])
def test_frames_with_text_come_back_as_frames(kind: Any) -> None:
    data = {"size": [1.0, None, 3.0, None] * 50, "name": ["a", "b", "c", "b"] * 50}
    frame = kind(data)
    imputer = ARFImputer(add_indicator=True, random_state=0, **SMALL).fit(frame)
    result = imputer.transform(frame)
    assert isinstance(result, kind)
    assert list(result.columns) == ["size", "name", "missingindicator_size"]
    assert list(result["missingindicator_size"]) == [False, True, False, True] * 50
    assert not any(math.isnan(value) for value in result["size"])


def test_set_output_chooses_the_frame() -> None:
    X = pairs()
    result = ARFImputer(random_state=0, **SMALL).set_output(transform="polars").fit(X).transform(X)
    assert isinstance(result, pl.DataFrame)
    assert result.columns == ["x0", "x1"]


def test_a_pipeline_cross_validates() -> None:
    X = pairs()
    y = X.sum(axis=1)
    X[::7, 1] = np.nan
    pipeline = make_pipeline(ARFImputer(random_state=0, **SMALL), LinearRegression())
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.95


def test_grid_search_chooses_min_leaf_by_held_out_likelihood() -> None:
    X = np.random.default_rng(1).normal(size=(300, 2))
    search = GridSearchCV(ARFDensity(random_state=0, **SMALL), {"min_leaf": [2, 60]}, cv=3).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_params_["min_leaf"] == (2, 60)[int(np.argmax(scores))]


def test_held_out_rows_far_away_have_a_density() -> None:
    density = ARFDensity(random_state=0, **SMALL).fit(np.random.default_rng(1).normal(size=(300, 2)))
    assert np.isfinite(density.score_samples([[9.0, -9.0]])).all()


def test_samples_have_the_kind_and_type_of_the_training_data_and_repeat() -> None:
    X = pairs().astype(np.float32)
    synthesizer = ARFSynthesizer(random_state=3, **SMALL).fit(X)
    drawn = synthesizer.sample(100)
    assert drawn.dtype == np.float32
    assert drawn.shape == (100, 2)
    np.testing.assert_array_equal(drawn, synthesizer.sample(100))
    np.testing.assert_array_equal(synthesizer.sample(20, given={"x0": 2.0})[:, 0], np.full(20, 2.0))
    frame = ARFSynthesizer(**SMALL).fit(pl.DataFrame({"a": ["x", "y"] * 50})).sample(5)
    assert isinstance(frame, pl.DataFrame)
