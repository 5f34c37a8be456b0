"""The refinement in a model file: it survives, and damage to it is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import arf_dask
from arf_dask.errors import ModelFormatError, OptionError
from arf_dask.refinement import learning
from arf_dask.refinement.features import Feature
from arf_dask.storage import layout
from arf_dask.storage.model_file import model_hash
from tests.boosted import boosted
from tests.storage.test_dependence_files import put, refuses, rewrite

NODES, LEVELS, EDGES = layout.REFINEMENT_SCHEMAS


def table() -> pl.DataFrame:
    """A sign that is decided by two numbers, an order, moments, identifiers, levels and nulls."""
    rng = np.random.default_rng(0)
    a, b, d = rng.normal(size=2_000), rng.normal(size=2_000), rng.integers(0, 5, 2_000)
    sign = np.where(a * b > 0, "same", "other")
    return pl.DataFrame(
        {
            "id": [f"K{i:05}" for i in range(2_000)],
            "a": a.round(2),
            "b": b.round(2),
            "sign": pl.Series(sign).set(pl.Series(rng.random(2_000) < 0.1), None),
            "d": d,
            "e": 3 * d + rng.integers(0, 3, 2_000),
            "at": pl.Series(rng.integers(0, 10**9, 2_000) * 10**6).cast(pl.Datetime("us", "Europe/Berlin")),
        }
    )


@pytest.fixture(scope="module")
def model() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        # Trees see features of all kinds from the first on, whether they are worth it or not.
        patch.setattr(Feature, "is_own", True)
        for limit in ("LEAST_DISTINCTION", "LEAST_FEATURE_ACCEPTANCE"):
            patch.setattr(learning, limit, -np.inf)
        return fitted()


def fitted() -> arf_dask.Model:
    return arf_dask.fit(table(), trees=3, min_leaf=300, max_rounds=1, dependence="none", keys=["id"], seed=1)


@pytest.fixture
def saved(model: Any, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_loaded_model_is_refined_alike(model: Any, saved: Path) -> None:
    ours, theirs = arf_dask.load(saved).refinement, model.refinement
    assert ours is not None
    assert {feature.modelled for feature in theirs.features} == {False, True}  # the gap from d to e is modelled
    for one, other in zip(ours.features, theirs.features, strict=True):
        assert (one.kind, one.columns, one.modelled, one.levels) == (
            other.kind,
            other.columns,
            other.modelled,
            other.levels,
        )
        assert np.array_equal(one.edges, other.edges)
    for name in ("tree", "feature", "left_codes", "value"):
        own, kept = getattr(ours.trees, name), getattr(theirs.trees, name)
        assert own.dtype == kept.dtype
        assert np.array_equal(own, kept)
    assert (ours.trees.base, ours.trees.stages) == (theirs.trees.base, theirs.trees.stages)
    for name in ("slacks", "log_cap", "log_z", "z_error", "gain"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_a_loaded_model_draws_the_same_bytes(model: Any, saved: Path) -> None:
    loaded = arf_dask.load(saved)
    assert loaded.sample(500, seed=2).equals(model.sample(500, seed=2))
    given = {"sign": "same"}
    assert loaded.sample(500, given=given, seed=2).equals(model.sample(500, given=given, seed=2))
    assert repr(loaded.refinement) == repr(model.refinement)
    assert not loaded.sample(500, seed=2).equals(loaded.without_refinement().sample(500, seed=2))


def test_the_hash_of_a_model_covers_its_refinement(model: Any, saved: Path) -> None:
    assert model_hash(saved) == model_hash(model._fitted)
    refinement = model.refinement
    value = refinement.trees.value.copy()
    value[refinement.trees.feature == -1] += 1e-9
    others = [
        None,
        replace(refinement, log_cap=refinement.log_cap + 0.1),
        replace(refinement, trees=replace(refinement.trees, value=value)),
    ]
    hashes = [model_hash(replace(model._fitted, refinement=other)) for other in others]
    assert len({*hashes, model_hash(model._fitted)}) == 4


def test_the_files_of_a_refinement_are_there_only_with_a_refinement(model: Any, saved: Path) -> None:
    assert {path.name for path in saved.iterdir()} == {*layout.SCHEMAS, NODES, LEVELS, EDGES, "model.json"}
    plain = model.without_refinement()
    plain.save(saved)  # in the place of the refined one
    assert {path.name for path in saved.iterdir()} == {*layout.SCHEMAS, "model.json"}
    assert arf_dask.load(saved).refinement is None
    assert model_hash(saved) == model_hash(plain._fitted)
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(OptionError, match=r"other files too \('notes\.txt'\)"):
        model.save(saved)


def test_a_refined_and_a_plain_model_are_saved_to_one_url_in_turn(model: Any) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    for one in (model, model.without_refinement(), model):
        one.save("memory://bucket/refined")
        assert model_hash(arf_dask.load("memory://bucket/refined")._fitted) == model_hash(one._fitted)
        n_files = len(MemoryFileSystem().ls("/bucket/refined", detail=False))
        assert n_files == 1 + len(layout.SCHEMAS) + (len(layout.REFINEMENT_SCHEMAS) if one is model else 0)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_models_of_older_versions_have_no_refinement(model: Any, tmp_path: Path, version: int) -> None:
    plain = model.without_refinement()
    plain.save(tmp_path / "older")

    def older(fields: Any) -> Any:
        del fields["refinement"]
        return {**fields, "version": version}

    rewrite(tmp_path / "older", older)
    assert model_hash(tmp_path / "older") == model_hash(plain._fitted)
    assert arf_dask.load(tmp_path / "older").refinement is None


def test_a_model_of_this_version_says_whether_it_is_refined(saved: Path) -> None:
    rewrite(saved, lambda fields: {name: value for name, value in fields.items() if name != "refinement"})
    with pytest.raises(ModelFormatError, match="needs exactly the fields"):
        arf_dask.load(saved)


def test_files_and_description_must_agree(model: Any, saved: Path) -> None:
    def without(*names: str) -> Any:
        def change(fields: Any) -> Any:
            return {**fields, "files": {name: one for name, one in fields["files"].items() if name not in names}}

        return change

    for change in (without(EDGES), without(NODES, LEVELS, EDGES), lambda fields: {**fields, "refinement": None}):
        model.save(saved)
        rewrite(saved, change)
        with pytest.raises(ModelFormatError, match=r"those of a refinement .* if the model has one"):
            arf_dask.load(saved)


def first(model: Any, kind: str) -> int:
    """The number of the first feature of a kind."""
    return int([feature.kind for feature in model.refinement.features].index(kind))


def sets(**values: Any) -> Any:
    """A change of some fields of the refinement."""
    return lambda fields, model: fields.update(values)


def feature(of_kind: str, **values: Any) -> Any:
    """A change of the first feature of a kind."""
    return lambda fields, model: fields["features"][first(model, of_kind)].update(values)


def drop_feature(fields: Any, model: Any) -> None:
    fields["features"].pop()


def move(name: str, change: Any) -> Any:
    def apply(fields: Any, model: Any) -> None:
        fields[name] = change(fields[name])

    return apply


JSON: list[tuple[str, Any, str]] = [
    ("a field too much", sets(more=1), "refinement: needs exactly the fields"),
    ("no base", lambda fields, _: fields.pop("base"), "refinement: needs exactly the fields"),
    ("another type", sets(log_cap="1"), "'log_cap' is '1', which is not of its type"),
    ("a gain of other fields", sets(gain={"nats": 0.1}), "refinement: gain: needs exactly the fields"),
    ("an absurd base", sets(base=1e308), "no logarithm of a ratio"),
    ("an absurd slack", move("slacks", lambda old: [*old[:-1], 800.0]), "no logarithm of a ratio"),
    ("a slack that is no number", move("slacks", lambda old: [*old[:-1], "1"]), "slacks that are no numbers"),
    ("a slack too few", move("slacks", lambda old: old[1:]), "slacks, one per stage"),
    ("a stage that is no number", move("stages", lambda old: [True, *old[1:]]), "stages that are no whole numbers"),
    ("stages out of order", move("stages", lambda old: old[::-1]), "stages that do not ascend"),
    ("a stage of no trees", move("stages", lambda old: [0, *old[1:]]), "stages that do not ascend"),
    ("a stage after the last tree", move("stages", lambda old: [*old[:-1], 10**6]), "or end after the last tree"),
    ("a limit that accepts nothing", move("log_cap", lambda old: old + 50.0), "belong to no share of accepted rows"),
    ("a limit below the mean", move("log_cap", lambda old: old - 50.0), "belong to no share of accepted rows"),
    ("a negative error", sets(z_error=-0.1), "a gain or a standard error out of range"),
    ("a negative error of the gain", sets(gain={"nats": 0.1, "error": -1.0}), "a gain or a standard error"),
    ("an unknown kind", feature("number", kind="median"), "unknown kind 'median'"),
    ("columns that are no names", feature("number", columns=[1]), "its columns are no names"),
    ("an unknown column", feature("number", columns=["z"]), "a column that is not there, or an identifier"),
    ("an identifier", feature("level", columns=["id"]), "a column that is not there, or an identifier"),
    ("no modelled column", feature("number", columns=["a"], modelled=True), "a column that is not there"),
    ("a column too few", feature("difference", columns=["d"]), "columns of this number and type"),
    ("a column too many", feature("number", columns=["d", "e"]), "columns of this number and type"),
    ("text as a number", feature("number", columns=["sign"]), "columns of this number and type"),
    ("a number as text", feature("level", columns=["a"]), "columns of this number and type"),
    ("the hour of a number", feature("hour", columns=["a"]), "columns of this number and type"),
    ("a difference of unlike columns", feature("difference", columns=["a", "at"]), "of this number and type"),
    ("levels of a number", feature("number", kind="level", columns=["sign"]), "levels needless or missing"),
    ("edges of a text", feature("level", kind="length"), "levels needless or missing"),
    ("a flag that is a number", feature("number", modelled=0), "'modelled' is '0'"),
    ("a feature too few", drop_feature, "an unknown feature"),
]


@pytest.mark.parametrize(("change", "words"), [one[1:] for one in JSON], ids=[one[0] for one in JSON])
def test_a_damaged_description_is_refused(model: Any, saved: Path, change: Any, words: str) -> None:
    def damaged(fields: Any) -> Any:
        change(fields["refinement"], model)
        return fields

    rewrite(saved, damaged)
    with pytest.raises(ModelFormatError, match=words):
        arf_dask.load(saved)


IS_LEAF = pl.col("feature") == -1
TABLES: list[tuple[str, Any, str]] = [
    (NODES, lambda t: t.head(0), "not between 1 and 2,097,152 nodes"),
    (NODES, lambda t: t.head(-1), "no binary tree in preorder"),
    (NODES, lambda t: t.with_columns(feature=pl.lit(0)), "no binary tree in preorder"),
    (NODES, put("feature", -1), "no binary tree in preorder"),
    (NODES, put("feature", 10**6), "an unknown feature"),
    (NODES, lambda t: t.with_columns(feature=pl.col("feature").replace(-1, -2)), "an unknown feature"),
    (NODES, put("tree", 1), "not sorted by tree"),
    (NODES, lambda t: t.with_columns(tree=pl.col("tree") + 1), "trees that are unsorted, missing or repeated"),
    (NODES, lambda t: t.with_columns(tree=pl.col("tree") + 2**31), "an unknown tree"),
    (NODES, put("node", 1), "nodes that are unsorted, missing or repeated"),
    (NODES, put("value", 1.0), "a value that is not at a leaf"),
    (NODES, lambda t: t.with_columns(value=pl.when(IS_LEAF).then(float("nan")).otherwise(0.0)), "no logarithm"),
    (NODES, lambda t: t.with_columns(value=pl.when(IS_LEAF).then(float("inf")).otherwise(0.0)), "no logarithm"),
    (NODES, lambda t: t.with_columns(value=pl.when(IS_LEAF).then(-1e9).otherwise(0.0)), "no logarithm"),
    (NODES, lambda t: t.with_columns(left_2=pl.lit(1, pl.UInt64)), "codes that go left at a leaf"),
    (LEVELS, lambda t: t.head(0), "levels needless or missing"),
    (LEVELS, put("code", 7), "codes that are unsorted, missing or repeated"),
    (LEVELS, put("code", 0), "codes that are unsorted, missing or repeated"),
    (LEVELS, lambda t: t.with_columns(text=pl.col("text").first()), "a level occurs twice"),
    (LEVELS, lambda t: t.with_columns(feature=pl.lit(10**6)), "an unknown feature"),
    (LEVELS, lambda t: t.with_columns(feature=pl.lit(0)), "levels needless or missing"),
    (EDGES, lambda t: t.head(0), "edges needless or missing"),
    (EDGES, put("edge", float("nan")), "edges that are not ascending numbers"),
    (EDGES, put("edge", float("-inf")), "edges that are not ascending numbers"),
    (EDGES, put("edge", 1e300), "edges that are not ascending numbers"),
    (EDGES, put("code", 2), "codes that are unsorted, missing or repeated"),
    (EDGES, lambda t: t.with_columns(feature=pl.lit(10**6)), "an unknown feature"),
    (
        EDGES,
        lambda t: pl.DataFrame(
            {"feature": [0] * 300, "code": range(1, 301), "edge": np.arange(300.0)}, schema=t.schema
        ).vstack(t.filter(pl.col("feature") > 0)),
        "more than 255 codes",
    ),
]


@pytest.mark.parametrize(("file", "change", "words"), TABLES, ids=[f"{file}: {words}" for file, _, words in TABLES])
def test_a_damaged_table_is_refused(saved: Path, file: str, change: Any, words: str) -> None:
    refuses(saved, file, change, words)


def test_a_tree_of_more_leaves_than_a_word_has_bits_is_not_saved(model: Any, tmp_path: Path) -> None:
    tree: Any = 0.0
    for _ in range(64):
        tree = (0, {1}, 0.0, tree)
    for fits, leaves in [(True, tree[3]), (False, tree)]:
        trees = boosted(leaves)
        broken = replace(model._fitted, refinement=replace(model.refinement, trees=trees, slacks=()))
        if fits:
            arf_dask.Model(broken).save(tmp_path / "m")
            continue
        with pytest.raises(ModelFormatError, match=r"was not saved: .*tree 0: more than 64 leaves"):
            arf_dask.Model(broken).save(tmp_path / "n")
        assert not (tmp_path / "n").exists()


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_is_refused_or_harmless(model: Any, saved: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(15):
        model.save(saved)
        file = (NODES, LEVELS, EDGES)[rng.integers(3)]
        frame = pl.read_parquet(saved / file)
        column = frame.columns[rng.integers(frame.width)]
        row = int(rng.integers(frame.height))
        if frame.schema[column] == pl.String:
            value: Any = pl.lit(["", "same", "x"][rng.integers(3)])
        elif frame.schema[column].is_float():
            value = [float("nan"), 0.0, -1.0, 1e308, 5e-324][rng.integers(5)]
        else:
            value = [0, 1, 2, 7, 2**31 - 1][rng.integers(5)]
        damaged = put(column, value, row)(frame).to_arrow().cast(layout.ALL_SCHEMAS[file])
        pq.write_table(damaged, saved / file, store_schema=False)
        rewrite(saved, lambda fields: fields)
        try:
            loaded = arf_dask.load(saved)
        except ModelFormatError:
            continue
        assert loaded.sample(100, seed=3).height == 100


def test_a_model_file_is_plain_tables_and_json(saved: Path) -> None:
    fields = json.loads((saved / "model.json").read_text())
    assert fields["version"] == 6
    nodes = pl.read_parquet(saved / NODES)
    assert nodes.columns == ["tree", "node", "feature", "left_0", "left_1", "left_2", "left_3", "value"]
    assert {feature["kind"] for feature in fields["refinement"]["features"]} >= {"number", "level", "hour", "roundness"}
