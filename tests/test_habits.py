"""What people try who know other libraries."""

import polars as pl
import pytest

import arf_dask
from arf_dask import Model


@pytest.fixture(scope="module")
def model() -> Model:
    rows = pl.DataFrame({"x": [i % 7 + 0.5 for i in range(200)], "s": ["a", "b"] * 100})
    return arf_dask.fit(rows, trees=3, seed=1)


def test_dir_shows_the_public_names() -> None:
    assert set(dir(arf_dask)) == {*arf_dask.__all__, "__version__"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("random_state", "seed"), ("n_estimators", "trees"), ("mtry", "max_features"), ("n_jobs", "client ")],
)
def test_options_as_other_libraries_call_them_are_pointed_to_ours(name: str, meant: str) -> None:
    with pytest.raises(arf_dask.OptionError, match=rf"no option '{name}'\. Did you mean {meant}"):
        arf_dask.fit(pl.DataFrame({"x": [1, 2] * 50}), **{name: 3})  # type: ignore[arg-type]


def test_columns_of_the_schema_are_found_by_name(model: Model) -> None:
    assert model.columns == ["x", "s"] == [column.name for column in model.schema]
    assert model.schema["s"].kind == "categorical"
    assert "s" in model.schema
    assert "t" not in model.schema
    with pytest.raises(arf_dask.OptionError, match=r"schema: no column 'S' in the data\. Did you mean 's'"):
        model.schema["S"]


def test_wrong_types_are_errors_about_the_argument(model: Model) -> None:
    with pytest.raises(arf_dask.OptionError, match=r"event is a str\. Give a dict .* such as pl\.col\('age'\) > 30\.$"):
        model.probability("x")
    with pytest.raises(arf_dask.OptionError, match=r"given is a str.* or a frame with one condition per row"):
        model.sample(1, given="x")
    with pytest.raises(arf_dask.OptionError, match=r"quantile: column=\['x'\]: give the name of one column"):
        model.quantile(["x"], 0.5)  # type: ignore[call-overload]
    with pytest.raises(arf_dask.OptionError, match="columns=3: give a list of column names"):
        model.expect(3)  # type: ignore[arg-type]


def test_a_model_reports_on_rows_that_it_draws_itself() -> None:
    rows = pl.DataFrame({"x": [i % 7 for i in range(300)], "y": [i % 3 == 0 for i in range(300)]})
    model = arf_dask.fit(rows, holdout=0.3, trees=3, seed=1)
    made = model.report(rows, shadows=0, seed=5, progress=False)
    assert made.to_dict()["privacy"]["attacks"]  # the rows held out by fit are used
    drawn = model.sample(300, seed=5)
    again = arf_dask.report(rows, drawn, model=model, shadows=0, seed=5, progress=False)
    assert made.to_dict() == again.to_dict()
