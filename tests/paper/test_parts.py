"""The parts of the experiments, on small examples worked out by hand."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import settings
from ablation import OURS, with_gains
from classifiers import Task, encoded, mean_scores
from experiment import fixed, markdown, means_with_errors, replace_section, with_error
from leaf_boxes import cut_values, leaf_boxes, leaf_of_rows, node_boxes
from patterns import stray_share
from pipeline import read_parts
from published import CIRCUITS, TWENTY, published_scores
from runtime import chosen_columns, exponent, stratified
from settings import departures, fit_model, fit_without_gates, paper_options
from simulations import PATTERNS, stand_in, toeplitz, toeplitz_target, with_missing
from sklearn.tree import DecisionTreeClassifier
from supervised import log_densities, log_volumes
from twenty import load, mean_rank

import arf_dask

# ---------------------------------------------------------------- results on the page


def test_a_section_of_the_page_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    page = tmp_path / "paper.md"
    page.write_text("before\n<!-- begin digits -->\nold\n<!-- end digits -->\nafter\n", encoding="utf-8")
    replace_section(page, "digits", "new")
    assert page.read_text(encoding="utf-8") == "before\n<!-- begin digits -->\n\nnew\n<!-- end digits -->\nafter\n"


def test_a_page_without_the_marks_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "paper.md"
    page.write_text("text\n", encoding="utf-8")
    replace_section(page, "digits", "new")
    replace_section(tmp_path / "none.md", "digits", "new")
    assert page.read_text(encoding="utf-8") == "text\n"
    assert not (tmp_path / "none.md").exists()


def test_a_markdown_table_aligns_numbers_to_the_right_and_leaves_null_empty() -> None:
    frame = pl.DataFrame({"name": ["a", None], "n": [1, 2]})
    assert markdown(frame) == "| name | n |\n| --- | ---: |\n| a | 1 |\n|  | 2 |\n"


def test_means_come_with_standard_errors() -> None:
    rows = pl.DataFrame({"k": ["a", "a", "b"], "v": [1.0, 3.0, 5.0]})
    table = means_with_errors(rows, ["k"], ["v"])
    assert table.to_dict(as_series=False) == {"k": ["a", "b"], "v": [2.0, 5.0], "v SE": [1.0, None], "runs": [2, 1]}
    assert table.select(with_error("v", "v SE", 1)).to_series().to_list() == ["2.0 ± 1.0", "5.0"]
    assert pl.select(fixed(pl.lit(-0.126), 2)).item() == "-0.13"


# ---------------------------------------------------------------- settings


def test_the_papers_options_are_options_of_fit() -> None:
    assert set(paper_options(9, trees=5, min_leaf=2)) <= set(settings.DEFAULTS)


def test_the_paper_tries_the_root_of_the_columns_at_every_split() -> None:
    assert [paper_options(d, trees=5, min_leaf=2)["max_features"] for d in (1, 3, 10, 69)] == [1, 1, 3, 8]


def test_departures_are_the_defaults_of_fit_that_differ_from_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        settings, "DEFAULTS", {**settings.PAPER, "min_leaf": 7, "max_features": None, "dependence": "tree"}
    )
    table = pl.DataFrame({"a": [1], "b": [2], "c": [3]})
    found = {d.name: dict(d.options) for d in departures(table, min_leaf=2, ours={}) if d.options}
    assert found == {
        "dependence='tree'": {"dependence": "none"},
        "min_leaf=7": {"min_leaf": 2},
        "max_features=2": {"max_features": 1},
    }
    wide = pl.DataFrame({str(i): [i] for i in range(9)})
    assert [d.options for d in departures(wide, min_leaf=7, ours={"dependence": "none"})] == [{}]  # shrinkage


def test_gates_are_a_departure_on_tables_with_missing_values_and_can_be_undone() -> None:
    table = with_missing(stand_in(600, np.random.default_rng(0)), np.random.default_rng(1))
    assert "gates (splits on missingness first)" in [d.name for d in departures(table, min_leaf=5, ours={})]
    assert fit_model(table, 0, {"trees": 2}).schema.gates
    assert not fit_without_gates(table, 0, {"trees": 2}).schema.gates


def test_a_departure_gains_what_is_lost_without_it() -> None:
    rows = pl.DataFrame(
        {"repeat": [0, 0, 1, 1], "experiment": ["e", "e", "e", "e"], "measure": ["NLL", "NLL", "accuracy", "accuracy"]}
        | {"without": [OURS, "bundles", OURS, "bundles"], "score": [2.0, 2.5, 0.75, 0.5]}
    )
    assert with_gains(rows)["gain"].to_list() == [0.0, 0.5, 0.0, 0.25]


# ---------------------------------------------------------------- simulated tables


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_has_as_many_rows_as_asked_for_and_classes_apart(name: str) -> None:
    frame = PATTERNS[name](601, np.random.default_rng(0))
    assert frame.height == 601
    assert frame.columns == ["x", "y", "class"]
    assert stray_share(frame, PATTERNS[name](400, np.random.default_rng(1))) < 0.01


def test_cassini_has_two_rows_in_each_banana_for_one_in_the_circle() -> None:
    frame = PATTERNS["cassini"](100, np.random.default_rng(0))
    assert frame["class"].value_counts().sort("class")["count"].to_list() == [40, 40, 20]


def test_the_target_depends_on_the_informative_columns_only() -> None:
    points = toeplitz(2_000, np.random.default_rng(0))
    assert toeplitz_target(points, 0.0, np.random.default_rng(1)).mean() == pytest.approx(0.5, abs=0.04)
    target = toeplitz_target(points, 1.0, np.random.default_rng(1))
    total = points.sum_horizontal().to_numpy()
    assert total[target].mean() > 3 > -3 > total[~target].mean()


def test_stray_rows_lie_nearest_to_another_class() -> None:
    real = pl.DataFrame({"x": [0.0, 1.0], "y": [0.0, 0.0], "class": ["1", "2"]})
    drawn = pl.DataFrame({"x": [0.1, 0.9, 0.2, 0.8], "y": [0.0] * 4, "class": ["1", "2", "2", "2"]})
    assert stray_share(real, drawn) == 0.25


# ---------------------------------------------------------------- leaves as boxes


def test_boxes_of_a_tree_worked_out_by_hand() -> None:
    # x <= 2 ? leaf 1 : (y <= 5 ? leaf 3 : leaf 4)
    nodes = pl.DataFrame(
        {"feature": [0, -1, 1, -1, -1], "threshold": [2, 0, 5, 0, 0], "left": [1, -1, 3, -1, -1]}
        | {"right": [2, -1, 4, -1, -1]}
    )
    lower, upper = node_boxes(nodes, 2)
    inf = np.inf
    assert lower[[1, 3, 4]].tolist() == [[-inf, -inf], [2, -inf], [2, 5]]
    assert upper[[1, 3, 4]].tolist() == [[2, inf], [inf, 5], [inf, inf]]


def test_every_training_row_lies_in_the_leaf_that_counts_it() -> None:
    table = toeplitz(300, np.random.default_rng(0))
    model = fit_model(table, 0, {"trees": 2, "min_leaf": 5})
    for tree in range(2):
        boxes = leaf_boxes(model, tree)
        counts = np.bincount(leaf_of_rows(boxes, table.to_numpy()), minlength=len(boxes.coverage))
        np.testing.assert_allclose(counts / table.height, boxes.coverage)


def test_a_split_on_missingness_cuts_no_values() -> None:
    table = pl.DataFrame({"x": [None, *range(200)], "y": [float(i % 7) for i in range(201)]}).with_columns(
        pl.col("x").cast(pl.Float64)
    )
    model = fit_model(table, 0, {"trees": 1, "min_leaf": 5})
    variable = model.schema.variables[0]
    assert variable.first_bin == 1
    below = cut_values(variable, np.array([0.0, 1.0, np.inf, -np.inf]))
    assert below.tolist()[0::2] == [-np.inf, np.inf]
    assert below[1] == variable.edges[0]
    assert below[3] == -np.inf


# ---------------------------------------------------------------- baselines and scores


def test_volumes_of_leaves_add_up_to_the_range_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(200, 2))
    tree = DecisionTreeClassifier(max_leaf_nodes=8, random_state=0).fit(rows, rows.sum(axis=1) > 1)
    volumes = np.exp(log_volumes(tree, np.zeros(2), np.array([2.0, 3.0])))
    assert volumes[tree.tree_.children_left < 0].sum() == pytest.approx(6.0)


def test_a_piecewise_constant_density_integrates_to_one_and_ends_with_the_rows() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.uniform(size=(300, 2)), [[0.0, 0.0], [1.0, 1.0]]])
    middle = (np.arange(60) + 0.5) / 60
    grid = np.stack(np.meshgrid(middle, middle), axis=-1).reshape(-1, 2)
    places = np.concatenate([grid, [[1.5, 0.5]]])
    found = log_densities(rows, rows[:, 0] + rows[:, 1] > 1, places, trees=5, min_leaf=20, seed=0)
    assert np.exp(found[:-1]).mean() == pytest.approx(1.0, abs=0.05)
    assert found[-1] == -np.inf


def test_levels_become_one_hot_and_numbers_standard() -> None:
    train = pl.DataFrame({"n": [0.0, 2.0], "s": ["a", "b"]})
    test = pl.DataFrame({"n": [1.0, None], "s": ["b", None]})
    first, second = encoded([train, test], ["n", "s"])
    assert first.tolist() == [[-1, 1, 0], [1, 0, 1]]
    assert second.tolist() == [[0, 0, 1], [0, 0, 0]]


def test_scores_of_a_task_that_can_be_learned_are_perfect() -> None:
    frame = pl.DataFrame({"x": [0.0, 1.0] * 50, "y": ["no", "yes"] * 50})
    scores = mean_scores(frame, frame, Task("y", "ABC", "yes"), 0)
    assert scores == {"accuracy": 1.0, "F1": 1.0, "F1 of the other class": 1.0}
    assert mean_scores(frame, frame, Task("y", "AB", None), 0) == {"accuracy": 1.0, "F1": 1.0}


def test_the_rarer_class_is_positive_where_the_file_spells_the_class_differently() -> None:
    train = pl.DataFrame({"x": [0.0, 0.0, 0.0, 1.0] * 25, "y": ["- 50000.", "- 50000.", "- 50000.", "+50000"] * 25})
    test = pl.DataFrame({"x": [0.0, 0.0, 0.0, 1.0], "y": ["- 50000.", "- 50000.", "+50000", "+50000"]})
    scores = mean_scores(train, test[:3], Task("y", "B", "50000+."), 0)
    assert scores == {"accuracy": 2 / 3, "F1": 0.0, "F1 of the other class": 0.8}


def test_ranks_take_the_place_of_the_papers_own() -> None:
    values = pl.DataFrame([dict(zip([*CIRCUITS, "ours"], [6.0, 5.0, 4.0, 3.0, 1.0, 2.0, 3.5], strict=True))])
    assert mean_rank(values, "CMCLT") == 1
    assert mean_rank(values, "FORDE") == 2
    assert mean_rank(values, "Strudel") == 3  # behind CMCLT and the paper's FORDE
    assert mean_rank(values, "ours") == 3  # behind CMCLT and Strudel


def test_the_papers_ranks_follow_from_its_table() -> None:
    values = pl.DataFrame([dict(zip(CIRCUITS, row, strict=True)) for row in TWENTY.values()])
    assert values.height == 20
    assert mean_rank(values, "CMCLT") == pytest.approx(1.2, abs=0.05)
    assert mean_rank(values, "FORDE") == pytest.approx(3.3, abs=0.15)


def test_published_f1_of_adult_is_that_of_the_larger_class() -> None:
    assert "F1 of the other class" in published_scores("adult").columns
    assert "F1" in published_scores("credit").columns
    assert published_scores("no such table").height == 0


def test_parts_of_a_binary_table_come_from_parquet_or_text(tmp_path: Path) -> None:
    rows = pl.DataFrame({"a": [0, 1, 1], "b": [1, 0, 1]})
    assert load(tmp_path, "dna", None) is None
    rows.write_parquet(tmp_path / "dna.train.parquet")
    rows.write_parquet(tmp_path / "dna.valid.parquet")
    rows.write_parquet(tmp_path / "dna.test.parquet")
    for part in ("train", "valid", "test"):
        rows.write_csv(tmp_path / f"kdd.{part}.data", include_header=False)
    for name in ("dna", "kdd"):
        found = load(tmp_path, name, None)
        assert found is not None
        train, test = found
        assert train.rows() == [(False, True), (True, False), (True, True)] * 2
        assert test.height == 3
    folder = tmp_path / "cr52"  # reuters, as it is usually distributed
    folder.mkdir()
    for part in ("ts", "valid", "test"):
        rows.write_csv(folder / f"cr52.{part}.data", include_header=False, separator=" ")
    usual = load(tmp_path, "reuters", None)
    assert usual is not None
    assert [part.height for part in usual] == [6, 3]
    shorter = load(tmp_path, "dna", 2)
    assert shorter is not None
    assert [part.height for part in shorter] == [2, 2]


def test_a_table_of_the_pipeline_comes_from_two_files_or_from_one_that_is_split(tmp_path: Path) -> None:
    rows = pl.DataFrame({"x": range(33), "income": ["<=50K", ">50K", "<=50K"] * 11})
    assert read_parts(tmp_path, "adult", 0) is None
    rows.write_parquet(tmp_path / "adult.parquet")
    for place in (tmp_path, tmp_path / "adult.parquet"):
        parts = read_parts(place, "adult", 0)
        assert parts is not None
        assert [part.height for part in parts] == [23, 10]
        assert sorted(pl.concat(parts)["x"]) == list(range(33))
    assert read_parts(tmp_path / "adult.parquet", "census", 0) is None
    rows[:20].write_parquet(tmp_path / "adult_train.parquet")
    rows[20:].write_parquet(tmp_path / "adult_test.parquet")
    for place in (tmp_path, tmp_path / "adult_train.parquet"):
        parts = read_parts(place, "adult", 0)
        assert parts is not None
        assert [part.height for part in parts] == [20, 13]


# ---------------------------------------------------------------- run time


def test_a_time_that_doubles_with_the_rows_has_exponent_one() -> None:
    assert exponent(pl.Series([10, 20, 40]), pl.Series([1.0, 2.0, 4.0])) == pytest.approx(1.0)


def test_a_stratified_sample_keeps_the_shares_of_the_target() -> None:
    table = pl.DataFrame({"income": ["a"] * 75 + ["b"] * 25, "n": range(100)})
    some = stratified(table, 20, 0)
    assert some["income"].value_counts().sort("income")["count"].to_list() == [15, 5]
    assert stratified(table, 1_000, 0).height == 100


def test_columns_are_chosen_from_both_kinds_in_turn() -> None:
    table = stand_in(10, np.random.default_rng(0))
    assert chosen_columns(table, 4) == ["income", "age", "degree", "schooling"]
    assert set(chosen_columns(table, 99)) == set(table.columns)


def test_a_model_is_fitted_by_the_papers_two_algorithms() -> None:
    table = stand_in(120, np.random.default_rng(0))
    model = fit_model(table, 0, {"trees": 2})
    assert isinstance(model, arf_dask.Model)
    assert model.schema.keys == []


# ---------------------------------------------------------------- the documentation


def test_the_page_shows_the_tables_and_figures_that_lie_beside_it() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = (docs / "paper.md").read_text(encoding="utf-8")
    tables = sorted((docs / "paper").glob("*.md"))
    assert len(tables) == 9
    for table in tables:
        assert table.read_text(encoding="utf-8") in page, table.name
        assert table.with_suffix(".csv").exists()
        assert f"](paper/{table.stem}.svg)" in page
        assert table.with_suffix(".svg").exists()
