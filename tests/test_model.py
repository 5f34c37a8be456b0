"""What users see of a model: its attributes, its signatures, and what it shows."""

import inspect
import pickle
from pathlib import Path
from typing import Any, get_type_hints

import polars as pl
import pytest

import arf_dask
from arf_dask.options import FitOptions, Options

SEEN = {
    *("sample", "sample_parquet", "sample_delta", "sample_iceberg", "portable_schema", "save"),
    *("log_density", "probability", "expect", "quantile", "cdf", "impute", "check"),
    *("without_smoothing", "without_refinement", "report", "columns", "privacy"),
    *(
        "schema",
        "rounds",
        "leaves",
        "nodes",
        "options",
        "rules",
        "refinement",
        "dependence",
        "holdout",
        "release_report",
    ),
}


@pytest.fixture(name="data", scope="module")
def fixture_data() -> Any:
    rows = range(300)
    return pl.DataFrame(
        {
            "id": [f"K{i:05d}" for i in rows],
            "<b>": [i % 7 + i / 1_000 for i in rows],
            "city": ["Rome" if i % 3 else "Oslo" for i in rows],
            "land": ["Italy" if i % 3 else "Norway" for i in rows],
            "n": [i % 10 for i in rows],
        }
    )


@pytest.fixture(name="model", scope="module")
def fixture_model(data: Any) -> Any:
    return arf_dask.fit(data, trees=4, seed=1, keys=["id"], bundles=[["city", "land"]])


def test_users_see_sinks_questions_and_tables_only(model: Any) -> None:
    assert {name for name in dir(model) if not name.startswith("_")} == SEEN


def test_a_model_says_what_it_is(model: Any) -> None:
    lines = repr(model).splitlines()
    assert lines[0] == "Model of 300 rows and 5 columns"
    assert lines[1] == f"  forest    4 trees, {model.leaves.height} leaves, truncnorm, observed support"
    assert lines[2].startswith(f"  accuracy  {model.rounds['accuracy'][-1]:.3f} out of bag after ")
    assert lines[3:] == ["  bundles   city + land", "  keys      id"]


def test_a_refined_model_says_so_and_its_forest_alone_does_not() -> None:
    x = [i % 7 for i in range(1_000)]
    data = pl.DataFrame({"x": x, "y": [value * value % 7 for value in x]})
    model = arf_dask.fit(data, trees=3, min_leaf=400, bundles=False, dependence="none", seed=1)
    assert model.refinement is not None
    assert repr(model).splitlines()[3] == f"  refined   {model.refinement.summary}"
    assert model.refinement.summary.startswith(f"by {model.refinement.rounds} boosted trees: 0.")
    assert model._repr_html_().count("refined") == 1
    assert model.refinement._repr_html_().startswith("<pre>Refinement by ")
    alone = model.without_refinement()
    assert alone.refinement is None
    assert "refined" not in repr(alone)
    assert model.refinement is not None
    never = arf_dask.fit(data, trees=3, min_leaf=400, bundles=False, dependence="none", refine=False, seed=1)
    assert alone.sample(200, seed=2).equals(never.sample(200, seed=2))
    assert alone.log_density(data[:50]).equals(never.log_density(data[:50]))


def test_the_forest_alone_keeps_rows_that_were_held_out() -> None:
    x = [i % 7 for i in range(1_000)]
    data = pl.DataFrame({"x": x, "y": [value * value % 7 for value in x]})
    model = arf_dask.fit(data, trees=2, min_leaf=300, holdout=0.2, seed=1)
    assert model.holdout is not None
    held_out = model.without_refinement().holdout
    assert held_out is not None
    assert held_out.equals(model.holdout)


def test_a_model_tells_its_rules_and_counts_computed_columns() -> None:
    a, b = [i * 37 % 113 for i in range(200)], [i % 7 for i in range(200)]
    data = pl.DataFrame({"a": a, "b": b, "c": [x + y for x, y in zip(a, b, strict=True)]})
    lines = repr(arf_dask.fit(data, trees=4, seed=1)).splitlines()
    assert lines[0] == "Model of 200 rows and 3 columns"
    assert lines[3] == "  rules     c == a + b"


def test_notebooks_show_the_text_escaped(data: Any, model: Any, tmp_path: Path) -> None:
    forest = arf_dask.adversarial_forest(data, trees=3, seed=1, keys=["id"])
    assert len(repr(forest).splitlines()) == 3
    manifest = model.sample_parquet(tmp_path / "<out>", 10, seed=1)
    for shown in (model, model.schema, forest, manifest):
        assert shown._repr_html_().startswith("<pre>")
    assert "&lt;b&gt;" in model.schema._repr_html_()
    assert "<b>" not in model.schema._repr_html_()
    assert "&lt;out&gt;" in manifest._repr_html_()


def test_one_quantile_is_a_value_and_a_list_is_a_list(model: Any) -> None:
    median = model.quantile("n", 0.5)
    assert isinstance(median, int)
    assert model.quantile("n", [0.5]) == [median]
    given = pl.DataFrame({"city": ["Rome", "Oslo"]})
    each = model.quantile("n", [0.5], given=given)
    assert model.quantile("n", 0.5, given=given) == [one[0] for one in each]


def test_forge_relaxes_as_sample_does(model: Any) -> None:
    given = {"city": "Rome", "land": "Norway"}
    with pytest.raises(arf_dask.ImpossibleConditionError):
        arf_dask.forge(model, 3, given=given, seed=1)
    relaxed = arf_dask.forge(model, 3, given=given, on_impossible="relax", seed=1)
    assert relaxed.equals(model.sample(3, given=given, on_impossible="relax", seed=1))


@pytest.mark.parametrize("function", [arf_dask.fit, arf_dask.adversarial_forest, arf_dask.synthesize])
def test_a_misspelt_option_is_named(function: Any, data: Any) -> None:
    with pytest.raises(arf_dask.OptionError, match=r"no option 'n_trees'. Did you mean trees\?"):
        function(data, n_trees=5)


def test_every_option_is_typed_shown_and_explained() -> None:
    assert list(get_type_hints(FitOptions)) == list(Options.__dataclass_fields__)
    for function in (arf_dask.fit, arf_dask.adversarial_forest, arf_dask.synthesize):
        shown = inspect.signature(function).parameters
        assert {name: shown[name].default for name in Options.__dataclass_fields__} == vars(Options())
    explained = inspect.getdoc(arf_dask.fit) or ""
    assert all(f"\n    {name}: " in explained for name in Options.__dataclass_fields__)


def test_a_pickled_model_answers_as_before_and_leaves_held_out_rows_behind(data: Any) -> None:
    fitted = arf_dask.fit(data, trees=2, seed=1, keys=["id"], holdout=0.1)
    unused = len(pickle.dumps(fitted))
    fitted.log_density(data)
    assert len(pickle.dumps(fitted)) == unused  # what queries have cached stays behind
    copy = pickle.loads(pickle.dumps(fitted))
    assert copy.sample(5, seed=2).equals(fitted.sample(5, seed=2))
    assert fitted.holdout is not None
    assert copy.holdout is None
    with pytest.raises(arf_dask.OptionError, match="publish_if"):
        copy.sample_parquet("out", 5, publish_if=arf_dask.Limits(), real=data)


def test_columns_variables_and_forests_are_shown_in_a_line_or_three() -> None:
    a, b = [i * 37 % 113 for i in range(200)], [i % 7 for i in range(200)]
    data = pl.DataFrame({"a": a, "b": b, "\x1b[31m": ["x", None] * 100}).with_columns(c=pl.col("a") + pl.col("b"))
    forest = arf_dask.adversarial_forest(data, trees=3, seed=1)
    assert repr(forest).splitlines()[0] == "Adversarial forest of 200 rows and 4 columns"
    schema = arf_dask.forde(forest, data).schema
    assert [repr(column) for column in schema.columns][1:] == [
        "Column('b', Int64, numeric, 7 spikes)",
        "Column('\\x1b[31m', String, categorical, 1 level, 100 nulls)",
        "Column('c', Int64, computed)",
    ]
    assert repr(schema.variables[1]) == "Variable(columns=(1,), 7 points, 0 intervals, 7 codes)"
    assert "\x1b" not in repr(schema)


def test_misspelt_arguments_of_table_sinks_are_named_with_suggestions(model: Any) -> None:
    with pytest.raises(arf_dask.OptionError, match=r"no option 'sed'. Did you mean seed\?"):
        model.sample_delta("out", 3, sed=1)
