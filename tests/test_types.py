"""What type checkers know of results: `make types` checks these statements, and here they run."""

from pathlib import Path
from typing import Any, assert_type

import pandas as pd
import polars as pl
import pytest

import arf_dask
from arf_dask import Manifest, Model


@pytest.fixture(name="model", scope="module")
def fixture_model() -> Model:
    return arf_dask.fit(people(), trees=2, max_rounds=0, seed=1)


def people() -> pl.DataFrame:
    return pl.DataFrame({"sex": ["f", "m"] * 40, "age": [20 + i % 9 for i in range(80)]})


def test_frames_come_back_as_what_they_were(tmp_path: Path) -> None:
    file = tmp_path / "people.parquet"
    people().write_parquet(file)
    assert isinstance(assert_type(arf_dask.synthesize(people(), 5, trees=2), pl.DataFrame), pl.DataFrame)
    assert isinstance(assert_type(people().pipe(arf_dask.synthesize, n=5, trees=2), pl.DataFrame), pl.DataFrame)
    assert isinstance(assert_type(arf_dask.synthesize(people().lazy(), 5, trees=2), pl.LazyFrame), pl.LazyFrame)
    assert isinstance(assert_type(arf_dask.synthesize(people().to_pandas(), 5, trees=2), pd.DataFrame), pd.DataFrame)
    assert isinstance(assert_type(arf_dask.synthesize(file, 5, trees=2), pl.DataFrame), pl.DataFrame)
    assert isinstance(assert_type(arf_dask.synthesize([file], 5, trees=2), pl.DataFrame), pl.DataFrame)
    assert isinstance(assert_type(arf_dask.synthesize(people(), 5, to=tmp_path / "b", trees=2), Manifest), Manifest)


def test_samples_have_the_type_asked_for(model: Model) -> None:
    assert isinstance(assert_type(model.sample(3), pl.DataFrame), pl.DataFrame)
    assert isinstance(assert_type(model.sample(3, frame="lazy"), pl.LazyFrame), pl.LazyFrame)
    assert isinstance(assert_type(arf_dask.forge(model, 3, on_impossible="null"), pl.DataFrame), pl.DataFrame)


def test_one_answer_is_a_value_and_several_are_a_list(model: Model) -> None:
    assert isinstance(assert_type(model.probability({"sex": "f"}), float), float)
    assert isinstance(assert_type(model.probability({"sex": "f"}, given={"age": 20}), float), float)
    assert len(assert_type(model.probability({"sex": "f"}, given=people()[["age"]]), list[float])) == 80
    assert len(assert_type(model.quantile("age", [0.1, 0.9]), list[Any])) == 2
    assert isinstance(assert_type(model.impute(people()), pl.DataFrame), pl.DataFrame)
    assert len(assert_type(model.impute(people().to_pandas(), draws=2), list[pd.DataFrame])) == 2
