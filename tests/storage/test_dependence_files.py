"""The dependency tree in a model file: it survives, and damage to it is refused."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import arf_dask
from arf_dask.errors import ModelFormatError
from arf_dask.forest.dependence import NO_DEPENDENCE
from arf_dask.storage import layout
from arf_dask.storage.model_file import model_hash


@pytest.fixture(scope="module")
def model() -> Any:
    rng = np.random.default_rng(0)
    a = rng.normal(size=2_000)
    b = a + rng.normal(size=2_000) / 2
    c = np.where(b + rng.normal(size=2_000) / 2 > 0, "up", "down")
    table = pl.DataFrame({"a": a, "b": b.round(1), "c": c, "d": rng.integers(0, 5, 2_000)})
    return arf_dask.fit(table, trees=3, min_leaf=300, seed=1)


@pytest.fixture
def saved(model: Any, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def rewrite(path: Path, change: Any) -> None:
    """Change model.json, with sizes and hashes that agree with what is there."""
    fields = change(json.loads((path / "model.json").read_text()))
    for name in fields["files"]:
        content = (path / name).read_bytes()
        rows = pq.ParquetFile(path / name).metadata.num_rows
        fields["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content), "rows": rows}
    content = {name: value for name, value in fields.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (path / "model.json").write_text(json.dumps({**content, "sha256": digest}))


def refuses(path: Path, file: str, change: Any, words: str) -> None:
    table = change(pl.read_parquet(path / file)).to_arrow().cast(layout.ALL_SCHEMAS[file])
    pq.write_table(table, path / file, store_schema=False)
    rewrite(path, lambda fields: fields)
    with pytest.raises(ModelFormatError, match=words):
        arf_dask.load(path)


def put(column: str, value: Any, row: int = 0) -> Any:
    at = pl.int_range(pl.len()) == row
    return lambda table: table.with_columns(pl.when(at).then(value).otherwise(column).alias(column))


def test_a_loaded_model_draws_and_answers_the_same(model: Any, saved: Path) -> None:
    loaded = arf_dask.load(saved)
    assert model.dependence.height >= 2
    assert loaded.dependence.equals(model.dependence)
    assert loaded.sample(500, seed=2).equals(model.sample(500, seed=2))
    assert loaded.probability({"c": "up"}, given={"a": (0, 1)}) == model.probability({"c": "up"}, given={"a": (0, 1)})
    assert model_hash(saved) == model_hash(model._fitted)


def test_the_files_of_a_tree_are_there_only_with_a_tree(model: Any, saved: Path, tmp_path: Path) -> None:
    assert {path.name for path in saved.iterdir()} == {*layout.SCHEMAS, *layout.DEPENDENCE_SCHEMAS, "model.json"}
    without = model._fitted.tables.with_dependence(NO_DEPENDENCE)
    arf_dask.Model(replace(model._fitted, tables=without)).save(tmp_path / "none")
    assert {path.name for path in (tmp_path / "none").iterdir()} == {*layout.SCHEMAS, "model.json"}
    assert arf_dask.load(tmp_path / "none").dependence.height == 0


def test_a_part_of_the_files_of_a_tree_is_refused(saved: Path) -> None:
    (saved / "cuts.parquet").unlink()

    def without(fields: Any) -> Any:
        del fields["files"]["cuts.parquet"]
        return fields

    rewrite(saved, without)
    with pytest.raises(ModelFormatError, match="all of those of a dependence or none"):
        arf_dask.load(saved)


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("links.parquet", put("child", 99), "no forest over the variables"),
        (
            "links.parquet",
            lambda table: table.reverse().with_columns(link=table["link"]),
            "links.parquet|ratios.parquet",
        ),
        ("links.parquet", lambda table: table.with_columns(parent=table["child"]), "no forest over the variables"),
        ("links.parquet", put("information", float("nan")), "no finite number"),
        ("links.parquet", lambda table: table.head(0), "links.parquet|ratios.parquet"),
        ("ratios.parquet", put("ratio", 0.0), "a ratio that is not a positive number"),
        ("ratios.parquet", put("ratio", float("inf")), "a ratio that is not a positive number"),
        ("ratios.parquet", put("ratio", -1.0), "a ratio that is not a positive number"),
        ("ratios.parquet", put("count", 10**6), "counts do not add up"),
        ("ratios.parquet", lambda table: table.with_columns(pl.col("count").shift(1, fill_value=0)), "counts do not"),
        ("ratios.parquet", lambda table: table.slice(1), "one row per pair of bins"),
        ("ratios.parquet", put("child_bin", 7), "one row per pair of bins"),
        ("cuts.parquet", put("code", 1), "bins that do not cut the codes in order"),
        ("cuts.parquet", put("bin", 5), "cuts.parquet|ratios.parquet"),
        ("cuts.parquet", put("code", 2**31), "a number of 2"),
        ("cuts.parquet", lambda table: table.slice(1), "cuts.parquet|ratios.parquet"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_damage_is_refused(saved: Path, file: str, change: Any, words: str) -> None:
    refuses(saved, file, change, words)


def test_older_models_without_the_option_are_read(saved: Path, model: Any, tmp_path: Path) -> None:
    for name in layout.DEPENDENCE_SCHEMAS:
        (saved / name).unlink()

    def older(fields: Any) -> Any:
        fields["files"] = {name: entry for name, entry in fields["files"].items() if name in layout.SCHEMAS}
        fields["options"].pop("dependence")
        return fields

    rewrite(saved, older)
    shutil.move(saved, tmp_path / "older")
    assert arf_dask.load(tmp_path / "older").sample(100, seed=1).height == 100


def test_a_model_with_and_without_a_tree_is_saved_to_one_url_in_turn(model: Any) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    independent = arf_dask.fit(model.sample(200, seed=1), trees=2, dependence="none", seed=1, progress=False)
    for one in (model, independent, model):
        one.save("memory://bucket/model")
        assert model_hash(arf_dask.load("memory://bucket/model")._fitted) == model_hash(one._fitted)
        n_files = len(MemoryFileSystem().ls("/bucket/model", detail=False))
        assert n_files == 1 + len(layout.SCHEMAS) + (len(layout.DEPENDENCE_SCHEMAS) if one is model else 0)
