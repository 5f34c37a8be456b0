import ast
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import warnings
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing.parametric import dataframes

import arf_dask
from arf_dask.api import load
from arf_dask.errors import ModelFormatError, OptionError
from arf_dask.storage import fields as stored
from arf_dask.storage import layout, model_file, schema_checks, validation
from arf_dask.storage.model_file import model_hash, save
from tests.hypothesis_profiles import examples

N = 400
FILES = list(layout.SCHEMAS)


def every_dtype(nulls: Any) -> Any:
    """One column per dtype: spikes, lines and levels; with or without missing values."""
    rng = np.random.default_rng(0)
    days = rng.integers(0, 4_000, N)
    micros = days * 86_400_000_000 + rng.integers(0, 10**10, N)
    word = pl.Series(rng.choice(["a", "b,c", "é\n🎉", ""], N))
    columns = {
        "flag": pl.Series(rng.random(N) < 0.3),
        "text": word,
        "category": word.cast(pl.Categorical),
        "enum": word.cast(pl.Enum(["never seen", "a", "b,c", "é\n🎉", ""])),
        "f16": pl.Series(rng.normal(size=N).round(2)).cast(pl.Float16),
        "f32": pl.Series(rng.normal(size=N)).cast(pl.Float32),
        "f64": pl.Series(np.where(rng.random(N) < 0.2, 0.0, rng.lognormal(size=N))),
        "nan": pl.Series(np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N))),
        "huge": pl.Series(rng.normal(size=N) * 1e300),
        "decimal": pl.Series(rng.integers(-9_999, 9_999, N)).cast(pl.Decimal(12, 0)) / 100,
        "date": pl.Series(days).cast(pl.Date),
        "time": pl.Series(micros % 86_400_000_000 * 1_000).cast(pl.Time),
        "null": pl.Series([None] * N, dtype=pl.Null),
        "empty": pl.Series([None] * N, dtype=pl.Datetime("ns", "Asia/Tokyo")),
        "constant": pl.Series([7] * N, dtype=pl.Int16),
        "i128": pl.Series([int(v) * 2**70 for v in rng.integers(-(2**50), 2**50, N)], dtype=pl.Int128),
        "u128": pl.Series([int(v) * 2**68 for v in rng.integers(0, 2**60, N)], dtype=pl.UInt128),
        "u64 spikes": pl.Series([2**64 - 1, 2**64 - 3, 1, 2] * (N // 4), dtype=pl.UInt64),
        "": pl.Series(rng.integers(0, 5, N)),
        "^x$": pl.Series(rng.choice(["1", "2"], N)),
    }
    for bits in (8, 16, 32, 64):
        columns[f"i{bits}"] = pl.Series(rng.integers(-100, 100, N)).cast(getattr(pl, f"Int{bits}"))
        columns[f"u{bits}"] = pl.Series(rng.integers(0, 200, N)).cast(getattr(pl, f"UInt{bits}"))
    for unit in ("ms", "us", "ns"):
        columns[f"duration {unit}"] = pl.Series(micros).cast(pl.Duration(unit))
        columns[f"naive {unit}"] = pl.Series(micros).cast(pl.Datetime(unit))
        columns[f"zoned {unit}"] = pl.Series(micros).cast(pl.Datetime(unit, "Europe/Berlin"))
    frame = pl.DataFrame(columns)
    if not nulls:
        return frame
    missing = [pl.Series(rng.random(N) < 0.1) for _ in frame.columns]
    kept = [
        s.to_frame("x").select(pl.when(~m).then(pl.col("x"))).to_series().alias(s.name)
        for s, m in zip(frame, missing, strict=True)
    ]
    return pl.DataFrame({s.name: s for s in kept})


def fit(frame: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", arf_dask.errors.KeyColumnWarning)
        return arf_dask.fit(frame, seed=1, **{"trees": 3, "max_rounds": 1, **options})


def small_frame() -> Any:
    """A line with segments, nulls and spikes, a bundle, levels, a key, an empty column."""
    rng = np.random.default_rng(3)
    amount = np.where(rng.random(N) < 0.25, 0.0, rng.lognormal(3, 2, N))
    sku = rng.integers(0, 5, N)
    return pl.DataFrame(
        {
            "amount": pl.Series([None if r < 0.1 else a for r, a in zip(rng.random(N), amount, strict=True)]),
            "whole": rng.integers(0, 1_000, N),
            "sku": pl.Series([f"sku {i}" for i in sku]),
            "price": pl.Series([1.99, 5.0, 7.5, 10.0, 2.25]).gather(sku),
            "word": rng.choice(["x", "y", "z"], N),
            "id": [f"K-{i:05d}" for i in range(N)],
            "nothing": pl.Series([None] * N, dtype=pl.Int8),
        }
    )


@pytest.fixture(scope="module")
def model() -> Any:
    return fit(small_frame(), keys=["id"], bundles=[["sku", "price"]])


@pytest.fixture(scope="module")
def saved(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("models") / "model"
    model.save(path)
    return path


@pytest.fixture
def copy(saved: Any, tmp_path: Path) -> Any:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def read_model_json(path: Any) -> Any:
    return json.loads((path / "model.json").read_text())


def write_facts(path: Any, data: Any) -> None:
    """Write model.json with the hash of its content: whoever damages a model on purpose can do that too."""
    content = {name: value for name, value in data.items() if name != "sha256"}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (path / "model.json").write_text(json.dumps({**content, "sha256": digest}))


def fix_hashes(path: Any) -> None:
    data = read_model_json(path)
    for name in FILES:
        content = (path / name).read_bytes()
        entry = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        data["files"][name].update(entry)
    write_facts(path, data)


def change_table(path: Any, file: Any, change: Any) -> None:
    """Replace a table by what `change` makes of it, with sizes and hashes that agree."""
    table = change(pl.read_parquet(path / file)).to_arrow().cast(layout.SCHEMAS[file])
    pq.write_table(table, path / file, store_schema=False)
    data = read_model_json(path)
    data["files"][file]["rows"] = len(table)
    write_facts(path, data)
    fix_hashes(path)


def put(column: Any, row: Any, value: Any) -> Any:
    """A change of one cell."""
    return lambda table: table.with_columns(
        pl.when(pl.int_range(pl.len()) == (row % table.height)).then(value).otherwise(column).alias(column)
    )


def first_where(path: Any, file: Any, condition: Any) -> Any:
    table = pl.read_parquet(path / file).with_row_index("at")
    return table.filter(condition)["at"][0]


def refuses(path: Any, *words: Any) -> Any:
    with pytest.raises(ModelFormatError) as caught:
        load(path)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


# Round trips.


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"bundles": False}, {"family": "uniform"}, {"support": "open"}, {"min_leaf": 1, "max_features": 9}],
    ids=str,
)
def test_a_loaded_model_draws_the_same_rows_for_every_dtype(tmp_path: Path, nulls: Any, options: Any) -> None:
    frame = every_dtype(nulls)
    fitted = fit(frame, **options)
    fitted.save(tmp_path / "m")
    again = load(tmp_path / "m")
    drawn = again.sample(1_000, seed=3)
    assert drawn.schema == frame.schema
    assert drawn.equals(fitted.sample(1_000, seed=3), null_equal=True)
    assert again.log_density(frame).equals(fitted.log_density(frame))
    assert model_hash(again._fitted) == model_hash(fitted._fitted)


def test_levels_keep_their_exact_value_also_where_numbers_are_taken_as_levels(tmp_path: Path) -> None:
    frame = every_dtype(True)
    names = [name for name, dtype in frame.schema.items() if name not in ("null", "empty")]
    fitted = fit(frame, columns=dict.fromkeys(names, "categorical"), bundles=False)
    fitted.save(tmp_path / "m")
    again = load(tmp_path / "m")
    for ours, theirs in zip(again.schema.columns, fitted.schema.columns, strict=True):
        assert ours.levels.equals(theirs.levels, check_dtypes=True), ours.name
    assert again.sample(1_000, seed=3).equals(fitted.sample(1_000, seed=3), null_equal=True)


def test_keys_bundles_and_empty_columns_survive(model: Any, saved: Any) -> None:
    again = load(saved)
    assert again.schema.keys == ["id"]
    assert again.schema.bundles == [["sku", "price"]]
    assert again.sample(1_000, seed=3).equals(model.sample(1_000, seed=3), null_equal=True)


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"a": [1]}),
        pl.DataFrame({"a": [1.5, 2.5]}),
        pl.DataFrame({"a": [None, None]}, schema={"a": pl.String}),
        pl.DataFrame({"a": [float("nan")] * 3, "b": [None, float("nan"), 1.0]}),
        pl.DataFrame({"id": [f"A{i}" for i in range(50)]}),
    ],
    ids=["one row", "two rows", "only nulls", "NaN", "only a key"],
)
def test_the_smallest_models_survive(tmp_path: Path, frame: Any) -> None:
    fitted = fit(frame, allow_copies=True)
    fitted.save(tmp_path / "m")
    assert load(tmp_path / "m").sample(50, seed=3).equals(fitted.sample(50, seed=3), null_equal=True)


def same(ours: Any, theirs: Any) -> Any:
    """Whether two parts of a model are equal to the last field, bit and type; fails on fields not stored."""
    assert type(ours) is type(theirs) or isinstance(ours, list | tuple | dict), (type(ours), type(theirs))
    if is_dataclass(ours):
        assert all(same(getattr(ours, f.name), getattr(theirs, f.name)) for f in fields(ours)), ours
    elif isinstance(ours, pl.Series):
        assert ours.equals(theirs, check_dtypes=True)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        assert np.array_equal(ours, theirs)
    elif isinstance(ours, list | tuple):
        assert all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    else:
        assert ours == theirs
    return True


def test_every_field_of_a_model_survives(model: Any, saved: Any) -> None:
    assert same(load(saved)._fitted.tables, model._fitted.tables)
    assert load(saved).nodes.equals(model.nodes)
    assert load(saved).leaves.equals(model.leaves)
    assert load(saved).rounds.equals(model.rounds)


def test_options_of_numpy_and_tuples_are_saved_as_plain_values(tmp_path: Path) -> None:
    fitted = fit(small_frame(), keys=("id",), bundles=False, trees=np.int64(2), tolerance=np.float32(0.0))
    fitted.save(tmp_path / "m")
    options = load(tmp_path / "m").options
    assert (options["keys"], options["trees"], options["tolerance"]) == (["id"], 2, 0.0)


def test_model_hash_is_the_content_and_nothing_else(model: Any, saved: Any, copy: Any) -> None:
    assert model_hash(saved) == model_hash(model._fitted)
    other = fit(small_frame(), keys=["id"], bundles=[["sku", "price"]], min_leaf=30)
    assert model_hash(other._fitted) != model_hash(model._fitted)
    data = read_model_json(copy)
    data["written_by"]["polars"] = "9.9.9"
    write_facts(copy, data)
    assert model_hash(copy) == model_hash(model._fitted)


@pytest.mark.parametrize(
    "dtype",
    [
        *stored.PLAIN_DTYPES.values(),
        pl.Categorical(),
        pl.Categorical(pl.Categories("name", "space", pl.UInt8)),
        pl.Enum(["b", "a"]),
        pl.Enum([]),
        pl.Decimal(38, 38),
        *(pl.Duration(unit) for unit in ("ms", "us", "ns")),
        *(pl.Datetime(unit, zone) for unit in ("ms", "us", "ns") for zone in (None, "UTC", "Etc/GMT-1")),
    ],
    ids=str,
)
def test_a_dtype_is_described_and_parsed(dtype: Any) -> None:
    described = json.loads(json.dumps(stored.describe_dtype(dtype)))
    assert stored.parse_dtype(described, "here") == dtype


@pytest.mark.parametrize(
    "described",
    [
        *([], ["Object"], ["List", "Int8"], ["__import__"], [["Int8"]], ["Duration"]),
        *(["Enum", ["a", "a"]], ["Enum", [1]], ["Categorical", "a", "b", "Int8"]),
        *(["Decimal", 39, 0], ["Decimal", 3, 4], ["Decimal", 0, 0]),
        *(["Datetime", "s", None], ["Datetime", "us", "No/Where"], ["Datetime", "us", "UTC\0"]),
        *(["Datetime", ["us"], None], ["Datetime", "us", 1]),
    ],
    ids=str,
)
def test_an_unknown_dtype_is_refused(described: Any) -> None:
    with pytest.raises(ModelFormatError, match="unknown type"):
        stored.parse_dtype(described, "column 'x'")


# Writing.


def test_an_existing_model_is_replaced_and_nothing_else_is_left(model: Any, copy: Any) -> None:
    other = fit(small_frame(), keys=["id"], bundles=False)
    other.save(copy)
    assert model_hash(copy) == model_hash(other._fitted)
    assert [p.name for p in copy.parent.iterdir()] == ["model"]
    assert sorted(p.name for p in copy.iterdir()) == sorted([*FILES, *layout.DEPENDENCE_SCHEMAS, "model.json"])
    model.save(copy)  # one without a dependency tree
    assert sorted(p.name for p in copy.iterdir()) == sorted([*FILES, "model.json"])


def test_an_empty_directory_and_a_link_to_a_model_are_fine(model: Any, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    model.save(tmp_path / "real")
    model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert load(tmp_path / "link").leaves.height == model.leaves.height


def test_a_foreign_directory_a_file_and_a_missing_parent_are_refused(model: Any, copy: Any, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "data.csv").write_text("a\n1\n")
    with pytest.raises(OptionError, match=r"something else than a model \('data\.csv'\)"):
        model.save(foreign)
    (foreign / "model.json").write_text("{}")
    with pytest.raises(OptionError, match="something else than a model"):
        model.save(foreign)
    with pytest.raises(OptionError, match="is a file"):
        model.save(foreign / "data.csv")
    with pytest.raises(OptionError, match=r"there is no directory .*Create it first"):
        model.save(tmp_path / "no" / "model")
    (copy / "notes.txt").write_text("mine")
    with pytest.raises(OptionError, match=r"other files too \('notes\.txt'\)"):
        model.save(copy)
    assert (copy / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in foreign.iterdir()) == ["data.csv", "model.json"]


SAVE = """
import os, resource, sys
from arf_dask.api import load
model = load(sys.argv[1])
"""


def run(code: Any, *arguments: Any, **options: Any) -> Any:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, **options)


def readable(path: Any) -> None:
    for place in (path, *path.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
    for place in path.parents:
        if place.stat().st_uid == os.geteuid() and place != Path("/"):
            place.chmod(place.stat().st_mode | 0o055)


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_read_only_parent_is_an_error_that_leaves_nothing(copy: Any, tmp_path: Path) -> None:
    readable(tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    # Root may write everywhere: become nobody first.
    code = SAVE + "if os.geteuid() == 0:\n    os.seteuid(65534)\nmodel.save(sys.argv[2])"
    process = run(code, copy, closed / "m")
    error = process.communicate()[1].decode()
    assert process.returncode == 1
    assert "PermissionError" in error, error
    assert list(closed.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="needs RLIMIT_FSIZE")
def test_a_file_that_cannot_be_written_to_its_end_leaves_nothing_and_keeps_the_old_model(
    copy: Any, tmp_path: Path
) -> None:
    # The limit stands in for a full disk: the first large file fails while it is written.
    limit = "\nresource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))\nmodel.save(sys.argv[2])"
    before = model_hash(copy)
    process = run(SAVE + limit, copy, copy)
    error = process.communicate()[1].decode()
    assert process.returncode == 1
    assert "File too large" in error, error
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    assert model_hash(copy) == before


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("event", [signal.SIGINT, signal.SIGKILL])
def test_stopped_while_saving_again_and_again_leaves_a_whole_model(copy: Any, tmp_path: Path, event: Any) -> None:
    loop = "\nprint('go', flush=True)\nwhile True:\n    model.save(sys.argv[2])"
    target = Path(shutil.copytree(copy, tmp_path / "again"))
    for delay in (0.02, 0.09, 0.17):
        process = run(SAVE + loop, copy, target)
        assert process.stdout.readline() == b"go\n"
        time.sleep(delay)
        process.send_signal(event)
        process.communicate()
        left = [p for p in tmp_path.iterdir() if p.name not in ("model", "again")]
        if event == signal.SIGINT:
            assert left == []
        # Killed between the two renames, the old model lies whole beside its place.
        whole = target if target.exists() else next(p for p in left if p.suffix == ".old")
        load(whole)
        whole.rename(target)


# What is in the files.


def test_no_training_value_is_in_any_file_unless_it_is_a_level_a_spike_or_a_bound(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(0, 1, 2_000)
    values[17] = sentinel = 1.2345678901234567
    frame = pl.DataFrame({"x": values, "y": rng.normal(0, 1, 2_000), "g": rng.choice(["a", "b"], 2_000)})
    fit(frame, min_leaf=5, trees=10).save(tmp_path / "m")
    bounds = {values.min(), values.max(), frame["y"].min(), frame["y"].max()}
    inner = [v for v in values if v not in bounds]
    for path in (tmp_path / "m").iterdir():
        content = path.read_bytes()
        assert struct.pack("<d", sentinel) not in content
        assert b"1.23456789" not in content
        if path.suffix == ".parquet":
            floats = [s for s in pl.read_parquet(path) if s.dtype == pl.Float64]
            for series in floats:
                assert not series.is_in(inner).any(), (path.name, series.name)


def test_the_files_carry_no_statistics_and_no_foreign_metadata(saved: Any) -> None:
    for name in FILES:
        metadata = pq.read_metadata(saved / name)
        assert not metadata.metadata
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(column)
                assert not chunk.is_stats_set
                assert chunk.compression == "ZSTD"


def test_a_large_table_of_counts_takes_about_a_byte_a_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    frame = pl.DataFrame({name: rng.choice(list("abcdefgh"), 20_000) for name in "uvwx"})
    fitted = fit(frame, trees=4, max_rounds=0)
    fitted.save(tmp_path / "m")
    entries = sum(len(table.entries.state) for table in fitted._fitted.tables.variables)
    assert sum(p.stat().st_size for p in (tmp_path / "m").iterdir()) < 1.5 * entries + 20_000


def test_nothing_on_the_way_in_can_run_code() -> None:
    for module in (model_file, layout, stored, validation, schema_checks):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        called = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not {"pickle", "cloudpickle", "joblib", "marshal", "shelve", "dill"} & imported
        assert not {"eval", "exec", "compile", "__import__"} & called


# Files that are missing, damaged or foreign.


def test_a_path_that_is_no_model_directory_is_refused(tmp_path: Path) -> None:
    assert "does not exist" in refuses(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    assert "is not a directory" in refuses(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "model.json is missing" in refuses(tmp_path / "empty")


@pytest.mark.parametrize("file", FILES)
def test_a_missing_truncated_or_flipped_file_is_named(copy: Any, file: Any) -> None:
    content = (copy / file).read_bytes()
    (copy / file).write_bytes(content[:-1])
    refuses(copy, file, "bytes instead of", "restore it from a copy")
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    (copy / file).write_bytes(flipped)
    refuses(copy, file, "SHA-256 is not the one in model.json")
    (copy / file).unlink()
    refuses(copy, file, "missing")
    (copy / file).mkdir()
    refuses(copy, file, "missing")


@pytest.mark.parametrize("file", FILES)
def test_a_truncated_foreign_or_widened_file_is_refused_although_its_hash_agrees(copy: Any, file: Any) -> None:
    content = (copy / file).read_bytes()
    for cut in (content[: len(content) // 2], content[:-8], b"", b"PAR1", content[4:]):
        (copy / file).write_bytes(cut)
        fix_hashes(copy)
        refuses(copy, file, "not a Parquet file that can be read")
    (copy / file).write_bytes(content)
    table = pq.read_table(copy / file)
    pq.write_table(table.append_column("extra", pa.nulls(len(table), pa.int32())), copy / file)
    fix_hashes(copy)
    refuses(copy, file, "its columns are not")
    pq.write_table(pa.table({"a": [1]}), copy / file)
    fix_hashes(copy)
    refuses(copy, file, "its columns are not")
    pl.DataFrame(pl.from_arrow(table)).cast({pl.UInt32: pl.Int64}).write_parquet(copy / file)
    fix_hashes(copy)
    refuses(copy, file, "its columns are not")


def test_missing_values_where_there_are_none_are_refused(copy: Any) -> None:
    schema = pa.schema([pa.field(f.name, f.type, nullable=True) for f in layout.SCHEMAS["leaves.parquet"]])
    table = pq.read_table(copy / "leaves.parquet").cast(schema)
    pq.write_table(table, copy / "leaves.parquet")
    fix_hashes(copy)
    refuses(copy, "leaves.parquet", "its columns are not")


@pytest.mark.parametrize("file", FILES)
def test_another_number_of_rows_than_declared_is_refused(copy: Any, file: Any) -> None:
    data = read_model_json(copy)
    for rows, words in ((10**18, "would have 1,000,000,000,000,000,000 rows"), (-1, "would have -1 rows")):
        data["files"][file]["rows"] = rows
        write_facts(copy, data)
        refuses(copy, file, words)
    data["files"][file]["rows"] = 12_345
    write_facts(copy, data)
    refuses(copy, file, "rows instead of 12,345")


def test_a_file_that_memory_cannot_hold_is_refused_before_it_is_read(
    copy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_file, "machine_memory", lambda: 2**24)
    n = 2**20
    ids = pa.array(np.zeros(n, dtype=np.uint32))
    schema = layout.SCHEMAS["leaves.parquet"]
    table = pa.table([ids, ids, ids.cast(pa.int64())], schema=schema)
    pq.write_table(table, copy / "leaves.parquet", store_schema=False)
    data = read_model_json(copy)
    data["files"]["leaves.parquet"]["rows"] = n
    write_facts(copy, data)
    fix_hashes(copy)
    assert (copy / "leaves.parquet").stat().st_size < 10_000
    refuses(copy, "leaves.parquet", "would need 0.1 GB of memory, and this machine has 0.0")


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_before_it_is_read(
    copy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_file, "UNPACKED_BYTES", 2**20)
    n = 2**20
    ids = pa.array(np.zeros(n, dtype=np.uint32))
    table = pa.table([ids, ids, ids.cast(pa.int64())], schema=layout.SCHEMAS["leaves.parquet"])
    pq.write_table(table, copy / "leaves.parquet", store_schema=False, compression="zstd")
    data = read_model_json(copy)
    data["files"]["leaves.parquet"]["rows"] = n
    write_facts(copy, data)
    fix_hashes(copy)
    refuses(copy, "leaves.parquet", "bytes would unpack to", "are accepted")


def test_any_flipped_bit_of_model_json_is_refused(copy: Any) -> None:
    path = copy / "model.json"
    content = path.read_bytes()
    rng = np.random.default_rng(5)
    for position, bit in zip(rng.integers(0, len(content), 150), rng.integers(0, 8, 150), strict=True):
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(bit)
        path.write_bytes(bytes(damaged))
        if json_or_none(bytes(damaged)) == json.loads(content):
            continue  # white space
        with pytest.raises(ModelFormatError):
            load(copy)


def json_or_none(text: Any) -> Any:
    try:
        return json.loads(text.decode())
    except ValueError:
        return None


def test_a_model_of_the_first_version_is_still_read(copy: Any, model: Any) -> None:
    data = read_model_json(copy)
    content = {name: value for name, value in data.items() if name != "sha256"}
    (copy / "model.json").write_text(json.dumps({**content, "version": 1}))
    assert model_hash(copy) == model_hash(model._fitted)


def test_options_that_fit_would_refuse_are_refused(copy: Any) -> None:
    data = read_model_json(copy)
    data["options"]["min_leaf"] = -3
    write_facts(copy, data)
    refuses(copy, "options: min_leaf=-3")


def test_a_save_killed_between_its_renames_loses_no_model(saved: Any, copy: Any, model: Any) -> None:
    copy.rename(copy.with_name(f".{copy.name}.arf_dask-old"))
    assert model_hash(load(copy)._fitted) == model_hash(model._fitted)
    model.save(copy)
    assert [path.name for path in copy.parent.iterdir() if path.name.startswith(".")] == []
    assert model_hash(copy) == model_hash(model._fitted)


# model.json.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"x"',
        "\ufeff{}",
        '{"a": NaN}',
        "[" * 100_000,
        '{"format": "\\ud800"}',
        "1" * 5_000,
    ],
    ids=lambda text: text[:12],
)
def test_what_is_not_json_is_refused(copy: Any, text: Any) -> None:
    (copy / "model.json").write_text(text)
    refuses(copy, "model.json", "not")
    (copy / "model.json").write_bytes(b'{"format": "\xff"}')
    refuses(copy, "model.json", "not JSON")


def test_a_foreign_model_and_an_unknown_version_are_told_apart(copy: Any) -> None:
    data = read_model_json(copy)
    write_facts(copy, {**data, "format": "lightgbm"})
    refuses(copy, "not of the format 'arf_dask model'")
    write_facts(copy, {**data, "version": 9, "written_by": {"arf_dask": "7.1.0"}, "new": 1})
    refuses(copy, "format version 9, written by arf_dask 7.1.0", "reads versions 1 to")
    for odd in (None, "1", True, 1.0, [1]):
        write_facts(copy, {**data, "version": odd})
        refuses(copy, "format version")


def edited(*keys: Any, value: Any) -> Any:
    def change(data: Any) -> None:
        place = data
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


AXIS = ("columns", 0, "axis")
EDITS = [
    (edited("n_rows", value=0), "n_rows is 0"),
    (edited("n_rows", value="400"), "'n_rows' is '400', which is not of its type"),
    (edited("n_rows", value=True), "'n_rows' is 'True', which is not of its type"),
    (edited("n_rows", value=401), "do not add up to 401"),
    (edited("extra", value=1), "needs exactly the fields"),
    (edited("family", value="cauchy"), "unknown family 'cauchy'"),
    (edited("family", value="uniform"), "not infinite in the family 'uniform'"),
    (edited("support", value=""), "unknown support ''"),
    (edited("rounds", value=[]), "rounds missing"),
    (edited("rounds", 0, "accuracy", value=1.5), "rounds missing or out of range"),
    (edited("rounds", 0, value=3), "rounds: needs exactly the fields round, accuracy, leaves"),
    (edited("options", value=[]), "'options' is '[]'"),
    (edited("files", value={}), "must list the files"),
    (edited("files", "nodes.parquet", value=[]), "file 'nodes.parquet'"),
    (edited("files", "nodes.parquet", "sha256", value=7), "'sha256' is '7'"),
    (edited("files", "../../etc/passwd", value={}), "must list the files"),
    (edited("columns", value=[]), "an unknown column"),
    (edited("columns", 0, value=None), "column 0: needs exactly the fields"),
    (edited("columns", 0, "name", value=None), "'name' is 'None'"),
    (edited("columns", 0, "name", value="whole"), "a column name occurs twice"),
    (edited("columns", 0, "kind", value="colour"), "unknown kind 'colour'"),
    (edited("columns", 0, "kind", value="empty"), "axis or key shape needless or missing"),
    (edited("columns", 0, "nulls", value=-1), "more nulls or NaNs than rows"),
    (edited("columns", 0, "nans", value=10**9), "more nulls or NaNs than rows"),
    (edited("columns", 0, "dtype", value=["Float99"]), "unknown type ['Float99']"),
    (edited("columns", 0, "dtype", value=["Int64"]), "the axis does not fit the type Int64"),
    (edited("columns", 1, "dtype", value=["Int8"]), "its range does not fit the type Int8"),
    (edited("columns", 0, "axis", value=None), "axis or key shape needless or missing"),
    (edited(*AXIS, "low", value=1), "'low' is '1'"),
    (edited(*AXIS, "low", value=1e9), "a range from"),
    (edited(*AXIS, "low", value=1.0), "points outside the column's range"),
    (edited(*AXIS, "high", value=1.0), "edges that do not ascend inside the column's range"),
    (edited(*AXIS, "exponent", value=10**6), "axis out of bounds"),
    (edited(*AXIS, "exponent", value=1024), "its range does not fit the type Float64"),
    (edited(*AXIS, "decimals", value=-1), "axis out of bounds"),
    (edited("columns", 1, "axis", "step", value=0), "axis out of bounds"),
    (edited("columns", 1, "axis", "step", value=2**90), "its range does not fit the type Int64"),
    (edited("columns", 1, "axis", "origin", value=2**63), "its range does not fit the type Int64"),
    (edited("columns", 1, "axis", "high", value=2.0**60), "axis out of bounds"),
    (edited("columns", 1, "axis", "high", value=999.5), "axis out of bounds"),
    (edited("columns", 5, "key", value=None), "axis or key shape needless or missing"),
    (edited("columns", 5, "key", value={"kind": "sequence"}), "key shape"),
    (edited("columns", 5, "dtype", value=["Int64"]), "key shape of another type"),
    (edited("columns", 5, "dtype", value=["Date"]), "key shape of another type"),
    (edited("gates", value=[99]), "a gate that is no variable"),
    (edited("gates", value=["0"]), "a gate that is no variable"),
    (edited("variables", value=[]), "an unknown variable"),
    (edited("variables", 0, "columns", value=[]), "its columns are no numbers"),
    (edited("variables", 0, "columns", value=[9]), "every modelled column exactly once"),
    (edited("variables", 0, "columns", value=[-7]), "every modelled column exactly once"),
    (edited("variables", 0, "columns", value=[1]), "every modelled column exactly once"),
    (edited("variables", 0, "columns", value=["0"]), "its columns are no numbers"),
    (edited("variables", 0, "columns", value=[0, 0]), "needs one token per member and state"),
    (edited("variables", 0, "first_bin", value=0), "edges or borders missing or out of order"),
    (edited("variables", 0, "first_bin", value=10**30), "edges or borders missing or out of order"),
    (edited("variables", 2, "first_bin", value=1), "codes must be the numbers of the states"),
    (edited("variables", 0, "strength", value=-1.0), "a strength that is not between 0 and 1,000,000"),
    (edited("variables", 0, "strength", value=1), "'strength' is '1'"),
    (edited("variables", 0, value="x"), "variable 0: needs exactly the fields"),
]


@pytest.mark.parametrize(("change", "words"), EDITS, ids=[words for _, words in EDITS])
def test_facts_that_do_not_hold_are_refused(copy: Any, change: Any, words: Any) -> None:
    data = read_model_json(copy)
    change(data)
    write_facts(copy, data)
    refuses(copy, words)


def test_keys_that_do_not_fit_their_type_are_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": pl.Series(range(100), dtype=pl.Int16), "x": [0, 1] * 50})
    fit(frame, keys=["id"]).save(tmp_path / "m")
    data = read_model_json(tmp_path / "m")
    data["columns"][0]["key"]["values"]["high_limit"] = 2**40
    write_facts(tmp_path / "m", data)
    refuses(tmp_path / "m", "column 'id': keys that do not fit the type Int16")


# Tables whose numbers do not hold together.
# Variables: 0 the line "amount", 1 the line "whole", 2 the bundle, 3 "word".

OF_LINE = pl.col("variable") == 0
INTERVAL = OF_LINE & pl.col("interval")
TABLES = [
    ("levels.parquet", put("column", 0, 99), "not sorted by column"),
    ("levels.parquet", put("column", -1, 99), "an unknown column"),
    ("levels.parquet", put("number", 0, 2.5e9), "points outside the column's range"),
    ("levels.parquet", put("number", 0, None), "points that are not ascending numbers"),
    ("levels.parquet", put("number", 0, float("inf")), "points that are not ascending numbers"),
    ("levels.parquet", put("text", -1, pl.lit("x")), "levels missing or repeated"),
    ("levels.parquet", put("text", -1, None), "levels missing or repeated"),
    (
        "levels.parquet",
        lambda t: t.head(-1),
        "tokens.parquet: variable 3: a token that column 'word' does not have",
    ),
    ("states.parquet", put("variable", 0, 99), "not sorted by variable"),
    ("states.parquet", put("variable", -1, 99), "an unknown variable"),
    ("states.parquet", put("state", 1, 0), "states that are unsorted, missing or repeated"),
    ("states.parquet", lambda t: t.reverse(), "not sorted by variable"),
    ("states.parquet", lambda t: t.filter(pl.col("variable") != 3), "no states"),
    ("states.parquet", put("code_low", 0, 2**31), "a number of 2**31 or more"),
    ("states.parquet", put("code_low", 0, 5), "one that ends before it begins"),
    ("states.parquet", put("code_high", 0, 5), "a point of more than one code"),
    (
        "states.parquet",
        lambda t: t.with_columns(interval=~OF_LINE & False),
        "bins.parquet: variable 0: edges or borders",
    ),
    (
        "states.parquet",
        lambda t: t.with_columns(interval=pl.col("interval") | OF_LINE),
        "continuous.parquet: variable 0: rows are not those of its intervals",
    ),
    ("states.parquet", put("code_high", -1, 7), "a point of more than one code"),
    (
        "states.parquet",
        lambda t: t.with_columns(code_low=pl.when(INTERVAL).then("code_high").otherwise("code_low")),
        "intervals do not tile the codes",
    ),
    (
        "states.parquet",
        lambda t: t.with_columns(pl.when(OF_LINE & ~pl.col("interval")).then(0).otherwise(c).alias(c) for c in CODES),
        "a point outside its bin",
    ),
    (
        "states.parquet",
        lambda t: t.with_columns(pl.when(pl.col("variable") == 3).then(0).otherwise(c).alias(c) for c in CODES),
        "codes must be the numbers of the states",
    ),
    ("tokens.parquet", put("token", -1, 99), "a token that column 'word' does not have"),
    ("tokens.parquet", put("token", -1, 1), "a token that column 'word' does not have"),
    ("tokens.parquet", put("token", -1, 2**32 - 1), "a number of 2**31 or more"),
    ("tokens.parquet", put("token", -1, 2), "two states of the same tokens"),
    ("tokens.parquet", put("token", 0, 3), "a token that column 'amount' does not have"),
    ("tokens.parquet", put("state", 1, 0), "needs one token per member and state, in order"),
    ("tokens.parquet", lambda t: t.head(-1), "needs one token per member and state, in order"),
    ("bins.parquet", put("code", 3, 7), "codes that are unsorted, missing or repeated"),
    ("bins.parquet", put("rows", 0, -1), "rows do not add up to 400"),
    (
        "bins.parquet",
        lambda t: put("rows", 2, -(2**62))(put("rows", 3, 2**62)(t)),
        "rows do not add up to 400",
    ),
    ("bins.parquet", lambda t: t.with_columns(pl.col("rows") + 1), "rows do not add up to 400"),
    (
        "bins.parquet",
        lambda t: t.with_columns(rows=pl.col("rows").reverse().over("variable")),
        "bins.parquet: variable 0: fewer rows than a leaf holds",
    ),
    ("bins.parquet", lambda t: t.head(-1), "needs a row for every code"),
    ("bins.parquet", put("edge", 3, None), "edges or borders missing or out of order"),
    ("bins.parquet", put("edge", 3, float("inf")), "edges that do not ascend"),
    ("bins.parquet", put("edge", 3, -5.0), "edges that do not ascend"),
    ("bins.parquet", lambda t: t.with_columns(edge=-pl.col("edge")), "edges that do not ascend"),
    ("bins.parquet", put("border", 0, True), "edges or borders missing or out of order"),
    (
        "bins.parquet",
        lambda t: t.with_columns(border=pl.lit(False)),
        "states.parquet: variable 0: intervals do not tile the codes",
    ),
    ("bins.parquet", put("edge", -1, 0.5), "edges or borders missing or out of order"),
    ("nodes.parquet", put("tree", 0, 9), "not sorted by tree"),
    ("nodes.parquet", put("tree", -1, 2**32 - 1), "an unknown tree"),
    ("nodes.parquet", put("node", 1, 0), "nodes that are unsorted, missing or repeated"),
    ("nodes.parquet", lambda t: t.head(0), "leaves.parquet: leaves that are not those of the trees"),
    ("nodes.parquet", lambda t: t.head(-1), "no binary tree in preorder"),
    ("nodes.parquet", lambda t: t.with_columns(feature=pl.lit(0)), "no binary tree in preorder"),
    ("nodes.parquet", put("feature", 0, -1), "no binary tree in preorder"),
    ("nodes.parquet", put("feature", 0, 4), "an unknown variable"),
    ("nodes.parquet", put("feature", -1, -2), "an unknown variable"),
    ("nodes.parquet", put("threshold", 0, 2**31), "a number of 2**31 or more"),
    ("nodes.parquet", put("threshold", 0, 5_000), "a threshold outside its variable's codes"),
    ("nodes.parquet", put("threshold", -1, 1), "a threshold outside its variable's codes"),
    ("leaves.parquet", put("tree", 0, 2), "leaves that are not those of the trees"),
    ("leaves.parquet", put("leaf", 1, 0), "leaves that are not those of the trees"),
    ("leaves.parquet", lambda t: t.head(-1), "leaves that are not those of the trees"),
    ("leaves.parquet", put("rows", 0, -3), "do not add up to 400"),
    ("leaves.parquet", put("rows", 0, 2**62), "do not add up to 400"),
    (
        "leaves.parquet",
        lambda t: t.with_columns(rows=pl.col("rows").reverse().over("tree")),
        "discrete.parquet: variable 0: counts do not add up",
    ),
    ("discrete.parquet", put("variable", 0, 3), "not sorted by variable"),
    ("discrete.parquet", put("leaf", -1, 2**32 - 1), "unknown leaves"),
    ("discrete.parquet", put("leaf", -1, 0), "unsorted or repeated"),
    ("discrete.parquet", put("state", -1, 77), "unknown states"),
    ("discrete.parquet", lambda t: pl.concat([t, t.tail(1)]), "unsorted or repeated"),
    ("discrete.parquet", put("count", -1, 0), "counts do not add up to the rows of every leaf"),
    ("discrete.parquet", put("count", -1, 2**32 - 1), "counts do not add up to the rows of every leaf"),
    ("discrete.parquet", lambda t: t.head(-1), "counts do not add up to the rows of every leaf"),
    ("continuous.parquet", put("variable", 0, 1), "not sorted by variable"),
    ("continuous.parquet", put("leaf", 0, 5_000), "rows are not those of its intervals"),
    ("continuous.parquet", lambda t: t.head(-1), "rows are not those of its intervals"),
    ("continuous.parquet", lambda t: t.reverse().sort("variable"), "rows are not those of its intervals"),
    ("continuous.parquet", put("mu", 3, float("nan")), "a mu that is no finite number"),
    ("continuous.parquet", put("mu", 3, float("-inf")), "a mu that is no finite number"),
    ("continuous.parquet", put("sigma", 3, float("nan")), "a sigma that is not above zero"),
    ("continuous.parquet", put("sigma", 3, 0.0), "a sigma that is not above zero"),
    ("continuous.parquet", put("sigma", 3, -1.0), "a sigma that is not above zero"),
    ("continuous.parquet", put("sigma", 3, 5e-324), "a sigma too small or too large for its bounds"),
    ("continuous.parquet", put("sigma", 3, 1e300), "a sigma too small or too large for its bounds"),
    ("continuous.parquet", put("mu", 3, 1e300), "a mu too far outside its bounds"),
]
CODES: tuple[str, ...] = ("code_low", "code_high")


@pytest.mark.parametrize(("file", "change", "words"), TABLES, ids=[f"{f}: {w}" for f, _, w in TABLES])
def test_tables_that_do_not_hold_together_are_refused(copy: Any, file: Any, change: Any, words: Any) -> None:
    change_table(copy, file, change)
    # Where two tables disagree, the message may name the other one.
    named = words if ".parquet" in words else f"{file}: "
    refuses(copy, named, words, "restore it from a copy, or fit and save it again")


def test_a_split_that_no_row_can_pass_is_refused(model: Any, copy: Any) -> None:
    tree = model._fitted.tables.trees[0]
    again = first_where(copy, "nodes.parquet", (pl.col("feature") == int(tree.feature[0])) & (pl.col("node") > 0))
    inside = again < tree.right[0]  # below the root's left child, codes are at most its threshold
    threshold = int(tree.threshold[0]) + 1 if inside else 0
    change_table(copy, "nodes.parquet", put("threshold", again, threshold))
    refuses(copy, "nodes.parquet")


def test_a_state_outside_the_box_of_its_leaf_is_refused(copy: Any) -> None:
    is_word = pl.col("variable") == 3
    turned = pl.when(is_word).then(2 - pl.col("state").cast(pl.Int32)).otherwise("state").alias("state")
    change_table(
        copy, "discrete.parquet", lambda t: t.with_columns(turned).sort("variable", "leaf", "state").cast(t.schema)
    )
    refuses(copy, "discrete.parquet: variable 3: a state outside the box of its leaf")


def test_states_that_other_trees_count_otherwise_are_refused(copy: Any) -> None:
    table = pl.read_parquet(copy / "discrete.parquet")
    twice = (pl.col("variable") == 3) & (pl.col("leaf") == pl.col("leaf").shift(-1)) & (pl.col("count") > 1)
    at = table.with_row_index("at").filter(twice)["at"][0]
    moved = pl.when(pl.int_range(pl.len()) == at).then(-1).when(pl.int_range(pl.len()) == at + 1).then(1).otherwise(0)
    change_table(copy, "discrete.parquet", lambda t: t.with_columns(count=pl.col("count") + moved))
    refuses(copy, "discrete.parquet: variable 3: counts of the states do not agree with the rows in bins.parquet")


def test_a_flat_curve_without_bounds_is_refused(tmp_path: Path) -> None:
    fit(pl.DataFrame({"x": np.random.default_rng(0).normal(size=300)}), support="open").save(tmp_path / "m")
    change_table(tmp_path / "m", "continuous.parquet", lambda t: t.with_columns(sigma=pl.lit(float("inf"))))
    refuses(tmp_path / "m", "continuous.parquet: variable 0: an infinite sigma without bounds")


def test_a_tree_in_memory_with_a_cycle_is_not_saved(model: Any, tmp_path: Path) -> None:
    tree = model._fitted.tables.trees[0]
    for name in ("left", "right"):
        children = getattr(tree, name).copy()
        children[0] = 0
        trees = [tree._replace(**{name: children}), *model._fitted.tables.trees[1:]]
        broken = replace(model._fitted, tables=replace(model._fitted.tables, trees=trees))
        with pytest.raises(ModelFormatError, match=r"was not saved: nodes\.parquet: tree 0: children that are not"):
            save(broken, tmp_path / "m")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("shape", ["0", "100", "11000", "10100", "1110000", "1010100", "1100100"])
def test_children_follow_from_which_nodes_are_leaves(shape: Any) -> None:
    """Against the plain recursion: 1 is a split, 0 a leaf."""
    inner = np.array([c == "1" for c in shape])
    left, right = np.full(len(inner), -1), np.full(len(inner), -1)

    def walk(node: Any) -> Any:
        if not inner[node]:
            return node + 1
        left[node], right[node] = node + 1, walk(node + 1)
        return walk(right[node])

    assert walk(0) == len(inner)
    ours = validation.preorder_children(inner)
    assert ours is not None
    assert np.array_equal(ours[0], left)
    assert np.array_equal(ours[1], right)


@pytest.mark.parametrize("shape", ["", "1", "10", "00", "1000", "0100", "110", "01"])
def test_what_is_no_tree_has_no_children(shape: Any) -> None:
    assert validation.preorder_children(np.array([c == "1" for c in shape], dtype=bool)) is None


# Anything at all may be in the files.


def odd_values(rng: Any, value: Any) -> Any:
    """Something else in place of a JSON value, at times of the same type."""
    odd = [None, True, -1, 0, 1, 2, 10**30, -0.5, 1e308, "", "x", "Int64", [], {}, [0], ["Int8"], {"a": 1}]
    if isinstance(value, int | float) and not isinstance(value, bool):
        odd += [value + 1, value - 1, -value, value * 2]
    return odd[rng.integers(len(odd))]


def change_json(rng: Any, data: Any) -> None:
    """Replace, remove or add one thing somewhere."""
    place = data
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        if not len(keys):
            return
        key = keys[rng.integers(len(keys))]
        if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.85:
            place = place[key]
            continue
        if rng.random() < 0.1:
            del place[key]
        else:
            place[key] = odd_values(rng, place[key])
        return


def change_bytes(rng: Any, content: Any) -> Any:
    damaged = bytearray(content)
    match rng.integers(4):
        case 0:
            return bytes(damaged[: rng.integers(len(damaged))])
        case 1:
            at = rng.integers(len(damaged))
            return bytes(damaged[:at] + rng.bytes(rng.integers(1, 9)) + damaged[at:])
        case _:
            for at in rng.integers(0, len(damaged), rng.integers(1, 4)):
                damaged[at] = rng.integers(256)
            return bytes(damaged)


def change_cells(rng: Any, table: Any) -> Any:
    column = table.columns[rng.integers(table.width)]
    near = table[column].gather(rng.integers(0, table.height, 1))[0] if table.height else 0
    value: Any
    match table.schema[column]:
        case pl.Boolean:
            value = bool(rng.integers(2))
        case pl.String:
            value = pl.lit(["", "7", "x", None][rng.integers(4)], dtype=pl.String)
        case pl.Float64:
            values = [float("nan"), float("inf"), 0.0, -1.0, 1e308, 5e-324, None, near]
            value = values[rng.integers(len(values))]
            value = 0.5 if value is None and column in ("mu", "sigma") else value
        case _:
            value = int([0, 1, 2, 5, 2**31 - 1, near or 0, (near or 0) + 1][rng.integers(7)])
    return put(column, int(rng.integers(max(table.height, 1))), value)(table)


def accepted_or_refused(path: Any) -> Any:
    """Whatever was changed, it is a ModelFormatError or a model that can be used."""
    try:
        loaded = load(path)
    except ModelFormatError:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a curve of absurd numbers may overflow, not fail
        assert loaded.sample(100, seed=3).height == 100
    return True


@pytest.mark.parametrize("kind", ["json", "bytes", "cells"])
@pytest.mark.parametrize("seed", range(int(os.environ.get("ARF_FUZZ", "2"))))
def test_random_damage_is_refused_or_harmless(saved: Any, copy: Any, kind: Any, seed: Any) -> None:
    rng = np.random.default_rng([seed, len(kind)])
    for _ in range(40):
        file = FILES[rng.integers(len(FILES))]
        shutil.copytree(saved, copy, dirs_exist_ok=True)
        if kind == "json":
            data = read_model_json(copy)
            for _ in range(rng.integers(1, 3)):
                change_json(rng, data)
            write_facts(copy, data)
        elif kind == "bytes":
            (copy / file).write_bytes(change_bytes(rng, (copy / file).read_bytes()))
            fix_hashes(copy)
        else:
            change_table(copy, file, lambda table: change_cells(rng, table))
        accepted_or_refused(copy)


NUMBERS: list[Any] = [pl.Int8, pl.Int64, pl.UInt64, pl.Int128, pl.Float32, pl.Float64, pl.Decimal(38, 3)]
TIMES: list[Any] = [pl.Date, pl.Time, pl.Duration("ms"), pl.Datetime("ns"), pl.Datetime("us", "Asia/Kathmandu")]
LEVELS: list[Any] = [pl.Boolean, pl.String, pl.Categorical, pl.Enum(["a", "b", "c"]), pl.Null]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    frame=dataframes(
        min_cols=1, max_cols=4, min_size=1, max_size=40, allowed_dtypes=[*NUMBERS, *TIMES, *LEVELS], allow_null=True
    ),
    support=st.sampled_from(["observed", "open"]),
)
def test_any_model_that_can_be_fitted_is_saved_and_loaded(
    tmp_path_factory: pytest.TempPathFactory, frame: Any, support: Any
) -> None:
    try:
        fitted = fit(frame, trees=2, min_leaf=2, support=support)
    except arf_dask.errors.ArfError:
        return
    path = tmp_path_factory.mktemp("any") / "m"
    fitted.save(path)
    assert same(load(path)._fitted.tables, fitted._fitted.tables)
