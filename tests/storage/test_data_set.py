"""Data sets of Parquet files: what is in them, and what becomes of a run that is stopped, killed or out of disk."""

from __future__ import annotations

import fnmatch
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask import Manifest, OptionError, OutputError
from arf_dask.data import files
from arf_dask.inference import row_plan
from arf_dask.inference.forge import BLOCK_ROWS
from arf_dask.inference.sources import cut_blocks, cut_conditions
from arf_dask.storage import data_set, parquet, part_writing, stores
from arf_dask.storage.jobs import RunState, describe_given

N = 500


def training_rows() -> pl.DataFrame:
    r = np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "id": [f"A-{i:05}" for i in range(N)],
            "number": np.arange(1_000, 1_000 + N),
            "sex": r.choice(["f", "m"], N),
            "age": r.integers(18, 80, N),
            "score": r.normal(size=N).round(3),
            "size": pl.Series(r.choice(["S", "L"], N), dtype=pl.Enum(["S", "M", "L"])),
            "colour": pl.Series(r.choice(["red", "blue"], N), dtype=pl.Categorical),
        }
    )
    return frame.with_columns(age=pl.when(pl.Series(r.random(N) < 0.9)).then("age"))


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    return arf_dask.fit(training_rows(), trees=3, seed=0, keys=["id", "number"], progress=False)


@pytest.fixture(scope="module")
def saved(model: arf_dask.Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m"
    model.save(path)
    return path


def contents(path: Path) -> dict[str, bytes]:
    """Every file, also in directories below."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


# What is written


def planned(model: Any, path: Path, n: int, rows_per_file: int, given: Any = None) -> part_writing.WriteContext:
    """What the tasks of a run share."""
    plan = row_plan.plan_rows(model._sampler, n, given, "raise", 3)
    job = data_set.make_job(plan, given, rows_per_file, portable=False)
    return part_writing.WriteContext(stores.Directory(path), "run", job, plan, {})


@pytest.mark.parametrize("rows_per_file", [1, 300, 999, 1_000, 5_000])
def test_parts_hold_the_rows_of_sample_whatever_their_size(model: Any, tmp_path: Path, rows_per_file: int) -> None:
    n = 1_000 if rows_per_file > 1 else 12
    manifest = model.sample_parquet(tmp_path / "out", n, seed=3, rows_per_file=rows_per_file)
    assert [part.rows for part in manifest.parts[:-1]] == [rows_per_file] * (len(manifest.parts) - 1)
    assert manifest.rows == sum(part.rows for part in manifest.parts) == n
    assert_frame_equal(manifest.scan().collect(), model.sample(n, seed=3))


def test_parts_that_begin_inside_a_block_are_cut_from_it(model: Any, tmp_path: Path) -> None:
    n = 2 * BLOCK_ROWS + 1_000
    manifest = model.sample_parquet(tmp_path / "out", n, seed=3, rows_per_file=50_000)
    assert_frame_equal(manifest.scan().collect(), model.sample(n, seed=3))


def test_small_parts_share_a_task_and_large_ones_have_their_own(model: Any) -> None:
    def stints(n: int, rows_per_file: int) -> list[tuple[int, int]]:
        work = planned(model, Path("nowhere"), n, rows_per_file)
        return [(part_range.first, part_range.stop) for part_range in part_writing.part_ranges(work.job, work.plan)]

    assert stints(3_000_000, 1_000_000) == [(0, 1), (1, 2), (2, 3)]
    assert stints(1_000_000, 100_000) == [(0, 3), (3, 6), (6, 9), (9, 10)]
    assert stints(0, 10) == [(0, 1)]


def test_no_rows_are_one_empty_part_with_the_same_schema(model: Any, tmp_path: Path) -> None:
    manifest = model.sample_parquet(tmp_path / "out", 0, seed=1)
    assert (manifest.rows, len(manifest.parts)) == (0, 1)
    assert manifest.scan().collect().schema == training_rows().schema
    some = model.sample_parquet(tmp_path / "some", 5, seed=1)
    assert pq.read_schema(manifest.files[0]).equals(pq.read_schema(some.files[0]))


def test_the_directory_holds_parts_manifest_and_success(model: Any, tmp_path: Path) -> None:
    manifest = model.sample_parquet(tmp_path / "out", 900, seed=3, rows_per_file=400)
    names = ["_SUCCESS", "_manifest.parquet", *(f"part-0000{i}.parquet" for i in range(3))]
    assert sorted(contents(tmp_path / "out")) == sorted(names)
    held = pq.read_metadata(tmp_path / "out" / "_manifest.parquet")
    assert held.num_rows == 0
    facts = json.loads(held.metadata[b"arf_dask.manifest"])
    assert facts["synthetic"] is True
    assert facts["job"]["seed"] == 3 == manifest.seed
    assert [part["file"] for part in facts["parts"]] == [f"part-0000{i}.parquet" for i in range(3)]
    assert facts["bytes"] == sum(Path(file).stat().st_size for file in manifest.files)
    assert Manifest.read(tmp_path / "out") == manifest
    assert repr(manifest).startswith("Manifest: 900 synthetic rows of 7 columns in 3 parts")


def test_every_part_says_that_it_is_synthetic_and_where_it_comes_from(model: Any, tmp_path: Path) -> None:
    manifest = model.sample_parquet(tmp_path / "out", 900, seed=3, rows_per_file=400)
    for number, file in enumerate(manifest.files):
        facts = pq.read_metadata(file).metadata
        assert facts[b"arf_dask.synthetic"] == b"true"
        assert facts[b"arf_dask.seed"] == b"3"
        assert facts[b"arf_dask.model"].decode() == manifest.model_hash
        assert facts[b"arf_dask.part"].decode() == f"{number} of 3"
        assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"


def test_the_same_job_gives_the_same_bytes(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model.sample_parquet(tmp_path / "a", 2_000, seed=3, rows_per_file=700)
    monkeypatch.setattr("arf_dask.runtime.tasks.n_cores", lambda: 1)
    pl.Series(["never", "in", "the", "model"], dtype=pl.Categorical)  # categories are shared by a whole process
    model.sample_parquet(tmp_path / "b", 2_000, seed=3, rows_per_file=700)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    model.sample_parquet(tmp_path / "c", 2_000, seed=4, rows_per_file=700)
    assert contents(tmp_path / "a")["part-00000.parquet"] != contents(tmp_path / "c")["part-00000.parquet"]


def test_categories_of_other_frames_do_not_travel_with_a_part(model: Any, tmp_path: Path) -> None:
    pl.Series(["a secret of another table"], dtype=pl.Categorical)
    manifest = model.sample_parquet(tmp_path / "out", 500, seed=3)
    assert b"secret" not in Path(manifest.files[0]).read_bytes()
    assert set(pq.read_table(manifest.files[0])["colour"].combine_chunks().dictionary.to_pylist()) == {"red", "blue"}


def test_identifiers_are_unique_across_parts(model: Any, tmp_path: Path) -> None:
    drawn = model.sample_parquet(tmp_path / "out", 5_000, seed=3, rows_per_file=300).scan().collect()
    old = training_rows()
    for name in ("id", "number"):
        assert drawn[name].n_unique() == 5_000
        assert not drawn[name].is_in(old[name].implode()).any()


def test_row_groups_grow_with_the_part_and_stay_small_in_memory() -> None:
    assert [parquet.group_rows(columns) for columns in (1, 15, 64, 100, 1_000)] == [2**18, 2**18, 2**18, 2**17, 2**14]
    frame = pl.DataFrame({"x": range(10)})
    pieces = [frame[:3], frame[3:3], frame[3:9], frame[9:]]
    assert [piece["x"].to_list() for piece in parquet.regroup(pieces, 4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_synthesize_writes_to_a_place_and_gives_its_manifest(tmp_path: Path) -> None:
    frame = training_rows()
    options: dict[str, Any] = {"seed": 3, "trees": 2, "keys": ["id", "number"], "rows_per_file": 300}
    manifest = arf_dask.synthesize(frame, n=700, to=tmp_path / "out", given={"sex": "f"}, **options)
    assert_frame_equal(
        manifest.scan().collect(),
        arf_dask.synthesize(frame, 700, seed=3, trees=2, keys=["id", "number"], given={"sex": "f"}),
    )
    again = arf_dask.synthesize(frame, n=700, to=tmp_path / "out", given={"sex": "f"}, mode="resume", **options)
    assert again == manifest
    assert arf_dask.synthesize(frame, to=tmp_path / "twin", **options).rows == frame.height


def test_synthesize_refuses_a_place_before_it_learns(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for mode in ("error", "overwrite", "resume"):
        with pytest.raises(OutputError, match=r"notes\.txt"):
            arf_dask.synthesize("no such file.parquet", 10, to=tmp_path, mode=mode)


# Conditions


@pytest.mark.parametrize(
    "given",
    [{"sex": "f"}, {"age": (30, 40), "sex": ["f", "m"]}, {"age": None}, [{"age": (18, 20)}, {"sex": "m"}]],
    ids=str,
)
def test_rows_of_a_condition_are_those_of_sample(model: Any, tmp_path: Path, given: Any) -> None:
    manifest = model.sample_parquet(tmp_path / "out", 700, seed=3, rows_per_file=300, given=given)
    assert_frame_equal(manifest.scan().collect(), model.sample(700, seed=3, given=given))
    assert manifest.given is not None


@pytest.mark.parametrize("policy", ["null", "relax"])
@pytest.mark.parametrize("given", [{"age": 300}, {"age": (300, 400), "sex": "f"}], ids=str)
def test_impossible_conditions_go_the_way_of_sample(model: Any, tmp_path: Path, given: Any, policy: str) -> None:
    options = {"given": given, "on_impossible": policy, "seed": 3}
    manifest = model.sample_parquet(tmp_path / "out", 700, rows_per_file=300, **options)
    assert_frame_equal(manifest.scan().collect(), model.sample(700, **options))
    with pytest.raises(arf_dask.ImpossibleConditionError):
        model.sample_parquet(tmp_path / "other", 700, given=given)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("n", "rows_per_file"), [(1, 7), (3, 7), (10, 1_000), (2, 1)])
def test_a_frame_of_conditions_gives_n_rows_for_each_in_order(
    model: Any, tmp_path: Path, n: int, rows_per_file: int
) -> None:
    frame = pl.DataFrame({"sex": ["f", None, "m", "f"] * 5, "age": [30, 40, None, None] * 5})
    manifest = model.sample_parquet(tmp_path / "out", n, given=frame, seed=3, rows_per_file=rows_per_file)
    drawn = manifest.scan().collect()
    assert manifest.rows == drawn.height == 20 * n
    told = frame[np.repeat(np.arange(20), n)]
    for name in ("sex", "age"):
        assert (drawn[name].eq_missing(told[name]) | told[name].is_null()).all()
    assert drawn["id"].n_unique() == 20 * n
    other = model.sample_parquet(tmp_path / "other", n, given=frame, seed=3, rows_per_file=20).scan().collect()
    assert_frame_equal(drawn, other)  # whatever the size of parts


def test_a_condition_with_more_rows_than_a_block_is_cut(model: Any, tmp_path: Path) -> None:
    frame = pl.DataFrame({"sex": ["f", "m"]})
    n = BLOCK_ROWS + 10
    drawn = model.sample_parquet(tmp_path / "out", n, given=frame, seed=3, rows_per_file=60_000).scan().collect()
    assert drawn["sex"].to_list() == ["f"] * n + ["m"] * n
    assert drawn["id"].n_unique() == 2 * n
    assert drawn[:10].drop("id", "number").equals(drawn[BLOCK_ROWS : BLOCK_ROWS + 10].drop("id", "number")) is False


def test_the_impossible_row_of_a_frame_is_named_by_its_own_number(model: Any, tmp_path: Path) -> None:
    frame = pl.DataFrame({"age": [30] * 50 + [300]})
    with pytest.raises(arf_dask.ImpossibleConditionError, match=r"part-0000[45].parquet: given, row 50"):
        model.sample_parquet(tmp_path / "out", 10_000, given=frame, rows_per_file=100_000)
    drawn = model.sample_parquet(tmp_path / "relaxed", 2, given=frame, on_impossible="relax", seed=1).scan().collect()
    assert drawn["age"].to_list()[-3:] == [30, 300, 300]
    empty = model.sample_parquet(tmp_path / "empty", 2, given=frame[:0], seed=1)
    assert empty.rows == 0


@pytest.mark.parametrize(("n", "conditions"), [(1, 200_000), (7, 30_000), (100_000, 5), (BLOCK_ROWS, 3)])
def test_blocks_of_conditions_cover_every_row_once(n: int, conditions: int) -> None:
    total = n * conditions
    whole = list(cut_conditions(n, conditions, 0, total))
    assert [s.first for s in whole] == [0, *np.cumsum([s.rows for s in whole])[:-1]]
    assert sum(s.rows for s in whole) == total
    assert [s.number for s in whole] == list(range(len(whole)))
    some = list(cut_conditions(n, conditions, 70_000, 90_000))
    assert some == [s for s in whole if s.first < 90_000 and s.first + s.rows > 70_000]


def test_blocks_between_two_rows_are_those_that_hold_them() -> None:
    whole = list(cut_blocks(200_000))
    assert [place.rows for place in whole] == [65_536, 65_536, 65_536, 3_392]
    assert list(cut_blocks(200_000, 65_536, 131_072)) == [whole[1]]
    assert list(cut_blocks(200_000, 65_535, 131_073)) == whole[:3]
    assert [place.rows for place in cut_blocks(0)] == [0]


# Types


ALL_DTYPES: list[tuple[Any, list[Any]]] = [
    (pl.Boolean, [True, False]),
    (pl.String, ["x,\n🦜", ""]),
    (pl.Categorical, ["c", "d"]),
    (pl.Enum(["unused", "e", "f"]), ["e", "f"]),
    (pl.Int8, [-128, 127]),
    (pl.UInt64, [0, 2**64 - 1]),
    (pl.Int128, [-(2**127), 5]),
    (pl.UInt128, [0, 2**128 - 1]),
    (pl.Float16, [0.1, 0.2]),
    (pl.Float32, [0.1, float("nan")]),
    (pl.Float64, [-1e300, 2.5]),
    (pl.Decimal(38, 10), [Decimal("-9999999999999999999999999999.9999999999"), Decimal("1.5")]),
    (pl.Decimal(10, 2), [Decimal("1.10"), Decimal("2.00")]),
    (pl.Date, [date(1, 1, 1), date(2020, 2, 29)]),
    (pl.Time, [datetime(2020, 1, 1, 23, 59, 59, 999_999).time(), datetime(2020, 1, 1, 1).time()]),
    (pl.Duration("us"), [timedelta(days=-3, microseconds=1), timedelta(1)]),
    (pl.Duration("ms"), [timedelta(days=-3), timedelta(1)]),
    (pl.Datetime("ms"), [datetime(1969, 12, 31, 23, 59, 59, 999_000), datetime(2020, 1, 1)]),
    (pl.Datetime("us", "Europe/Paris"), [datetime(2020, 6, 1), datetime(2020, 1, 1)]),
    (pl.Datetime("ns", "Asia/Kathmandu"), [datetime(2262, 4, 11), datetime(2020, 1, 1)]),
    (pl.Null, [None, None]),
]


@pytest.mark.parametrize(("dtype", "values"), ALL_DTYPES, ids=lambda x: str(x)[:40])
def test_every_dtype_comes_back_as_it_was(tmp_path: Path, dtype: Any, values: list[Any]) -> None:
    frame = pl.DataFrame(
        {"a": pl.Series([*values, None] * 10, dtype=dtype), "nothing": pl.Series([None] * 30, dtype=dtype)}
    )
    model = arf_dask.fit(frame, trees=2, seed=0, columns=None, progress=False)
    manifest = model.sample_parquet(tmp_path / "out", 100, seed=1, rows_per_file=60)
    drawn = manifest.scan().collect()
    assert drawn.schema == frame.schema
    assert_frame_equal(drawn, model.sample(100, seed=1))
    if dtype not in parquet.AS_TEXT:  # Parquet has no 128-bit integers: other readers see their digits
        assert pl.read_parquet(manifest.files[0]).schema == frame.schema
    assert len(pq.read_table(manifest.files[0])) == 60
    assert len(pd.read_parquet(manifest.files[0])) == 60


def test_readers_of_patterns_and_lists_see_the_parts_and_nothing_else(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    manifest = model.sample_parquet(out, 900, seed=3, rows_per_file=400)
    junk = out / stores.TEMPORARY / "run"
    junk.mkdir(parents=True)
    (junk / f"part-00003.parquet.1-2{stores.ENDING}").write_bytes(b"PAR1 half a file")
    for pattern in ("*.parquet", "**/*.parquet"):
        assert pl.scan_parquet(out / pattern).collect().height == 900
    assert pads.dataset(manifest.files).count_rows() == 900
    assert len(pd.read_parquet(manifest.files)) == 900
    assert pq.read_table(out).num_rows == 900
    assert pads.dataset(out).count_rows() == 900
    # `arf_dask.fit` reads such a directory too.
    assert files.read(str(out)).height == 900


# What may be there already


def test_error_refuses_whatever_is_not_empty(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    model.sample_parquet(out, 10, seed=1)
    before = contents(out)
    with pytest.raises(OutputError, match=r'out: is not empty \(.*mode="resume".*mode="overwrite"'):
        model.sample_parquet(out, 10, seed=1)
    assert contents(out) == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"'notes.txt' is there"):
        model.sample_parquet(other, 10)


def test_resume_of_a_finished_job_changes_nothing(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = model.sample_parquet(out, 900, seed=3, rows_per_file=400)
    inodes = {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.iterdir()}
    assert model.sample_parquet(out, 900, seed=3, rows_per_file=400, mode="resume") == first
    assert model.sample_parquet(out, 900, rows_per_file=400, mode="resume") == first  # the seed is that of the job
    assert {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in out.iterdir()} == inodes


def test_resume_makes_what_is_missing_or_broken_and_nothing_else(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    model.sample_parquet(out, 2_000, seed=3, rows_per_file=400)
    before = contents(out)
    (out / "part-00001.parquet").unlink()
    (out / "part-00002.parquet").write_bytes(before["part-00002.parquet"][:-20])
    (out / "part-00003.parquet").write_bytes(before["part-00004.parquet"])
    (out / "_SUCCESS").unlink()
    kept = {name: (out / name).stat().st_ino for name in ("part-00000.parquet", "part-00004.parquet")}
    with pytest.raises(OutputError, match="no _SUCCESS"):
        Manifest.read(out)
    seen = []
    model.sample_parquet(out, 2_000, rows_per_file=400, mode="resume", progress=lambda *s: seen.append(s[:3]))
    assert contents(out) == before
    assert {name: (out / name).stat().st_ino for name in kept} == kept
    assert seen[-1] == ("writing", 2_000, 2_000)


def test_resume_on_nothing_simply_starts(model: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        assert model.sample_parquet(tmp_path / name, 10, seed=1, mode="resume").rows == 10


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"n": 901}, "n: 900 there, 901 asked"),
        ({"seed": 4}, "seed: 3 there, 4 asked"),
        ({"rows_per_file": 500}, "rows_per_file: 400 there, 500 asked"),
        ({"given": {"sex": "m"}}, "given: {'sex': 'f'} there, {'sex': 'm'} asked"),
        ({"given": None}, "given: {'sex': 'f'} there, None asked"),
        ({"on_impossible": "null"}, "on_impossible: 'raise' there, 'null' asked"),
    ],
)
def test_resume_refuses_another_job_and_says_where_it_differs(
    model: Any, tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    asked = {"n": 900, "seed": 3, "rows_per_file": 400, "given": {"sex": "f"}, "on_impossible": "raise"}
    model.sample_parquet(tmp_path / "out", **asked)
    before = contents(tmp_path / "out")
    with pytest.raises(OutputError) as caught:
        model.sample_parquet(tmp_path / "out", **{**asked, **changed}, mode="resume")
    assert f"another job was begun there: {told}. Ask for the same" in str(caught.value)
    assert contents(tmp_path / "out") == before


def test_resume_refuses_another_model_and_other_libraries(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    model.sample_parquet(out, 10, seed=3)
    other = arf_dask.fit(training_rows(), trees=2, seed=0, keys=["id", "number"], progress=False)
    with pytest.raises(OutputError, match=r"the model: [0-9a-f]{12} there, [0-9a-f]{12} asked"):
        other.sample_parquet(out, 10, seed=3, mode="resume")
    manifest = Manifest.read(out)
    (out / "_SUCCESS").unlink()
    (out / "_manifest.parquet").unlink()
    job = replace(manifest.job, written_by={**manifest.job.written_by, "polars": "1.0"})
    (out / "_job.json").write_text(RunState(job, "run", manifest.parts).to_json())
    with pytest.raises(OutputError, match=r"polars: version 1\.0 there, .* here"):
        model.sample_parquet(out, 10, seed=3, mode="resume")
    (out / "_job.json").write_text("{")
    with pytest.raises(OutputError, match=r"_job\.json: is damaged"):
        model.sample_parquet(out, 10, seed=4, mode="resume")


def test_resume_refuses_foreign_parquet_and_what_was_never_begun(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "part-00000.parquet").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"holds 'part-00000.parquet', which is not part of a data set"):
        model.sample_parquet(out, 10, mode="resume")
    model.sample_parquet(tmp_path / "ours", 10)
    (tmp_path / "ours" / "mine.parquet").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"holds 'mine.parquet'"):
        model.sample_parquet(tmp_path / "ours", 10, mode="resume")


def test_overwrite_replaces_a_data_set_and_leaves_nothing_beside_it(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    model.sample_parquet(out, 2_000, seed=3, rows_per_file=400)
    (out / "_SUCCESS").unlink()  # an unfinished one too
    manifest = model.sample_parquet(out, 500, seed=4, mode="overwrite")
    assert manifest.path == str(out)
    assert sorted(contents(out)) == ["_SUCCESS", "_manifest.parquet", "part-00000.parquet"]
    assert_frame_equal(manifest.scan().collect(), model.sample(500, seed=4))
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert model.sample_parquet(tmp_path / "new", 5, mode="overwrite").rows == 5


def test_overwrite_refuses_to_lose_what_is_not_its_own(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    model.sample_parquet(out, 10, seed=3)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"holds 'notes.txt', which is not part of a data set"):
        model.sample_parquet(out, 10, mode="overwrite")
    assert (out / "notes.txt").read_text() == "mine"


def test_an_overwrite_that_fails_leaves_the_old_data_set(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    model.sample_parquet(out, 900, seed=3, rows_per_file=400)
    before = contents(out)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(stores.Directory, "commit", full)
        with pytest.raises(OutputError, match=r"no space left .* The data set that was there is untouched"):
            model.sample_parquet(out, 900, seed=4, mode="overwrite")
    with monkeypatch.context() as patch:
        real = Path.rename

        def stuck(self: Path, target: Path) -> Path:
            if ".arf_dask-new-" in self.name:
                raise PermissionError(13, "Permission denied")
            return real(self, target)

        patch.setattr(Path, "rename", stuck)
        with pytest.raises(OutputError, match="Permission denied"):
            model.sample_parquet(out, 900, seed=4, mode="overwrite")
    assert contents(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("mode", ["error", "resume", "overwrite"])
def test_a_run_killed_between_two_renames_gives_the_old_data_set_back(model: Any, tmp_path: Path, mode: str) -> None:
    out = tmp_path / "out"
    model.sample_parquet(out, 900, seed=3, rows_per_file=400)
    out.rename(tmp_path / ".out.arf_dask-old")
    (tmp_path / ".out.arf_dask-new-run-1").mkdir()
    if mode == "error":
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(OutputError, match="not empty"):
            model.sample_parquet(out, 900, seed=3, rows_per_file=400)
        assert sorted(tmp_path.rglob("*")) == before  # a refused call touches nothing
    else:
        model.sample_parquet(out, 900, seed=3, rows_per_file=400, mode=mode)
        assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert Manifest.read(out).rows == 900


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rows_per_file": 0}, "rows_per_file=0"),
        ({"rows_per_file": True}, "rows_per_file=True"),
        ({"mode": "append"}, "mode='append'"),
        ({"storage_options": {"key": "x"}}, "storage_options"),
        ({"on_impossible": "never"}, "on_impossible"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_wrong_options_are_told_before_anything_is_written(
    model: Any, tmp_path: Path, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(OptionError, match=told):
        model.sample_parquet(tmp_path / "out", 10, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_a_file_or_under_one_is_named(model: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for mode in ("error", "resume", "overwrite"):
        with pytest.raises(OutputError, match=r"file: is a file\. Give the path of a directory"):
            model.sample_parquet(file, 10, mode=mode)
        with pytest.raises(OutputError, match=r"below: (Not a directory|File exists)"):
            model.sample_parquet(file / "below", 10, mode=mode)
    assert file.read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that nobody can write to")
def test_a_place_that_cannot_be_written_is_named(model: Any) -> None:
    with pytest.raises(OutputError, match=r"/proc/out: "):
        model.sample_parquet("/proc/out", 10)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_named(model: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    with pytest.raises(OutputError, match=r"out: cannot be written \(Permission denied\)"):
        model.sample_parquet(tmp_path / "out", 10)


# Manifest


def test_verify_names_all_parts_that_changed(model: Any, tmp_path: Path) -> None:
    manifest = model.sample_parquet(tmp_path / "out", 900, seed=3, rows_per_file=400)
    manifest.verify()
    whole = Path(manifest.files[0]).read_bytes()
    Path(manifest.files[0]).write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    Path(manifest.files[2]).unlink()
    with pytest.raises(OutputError, match=r"part-00000.parquet has changed; part-00002.parquet is missing"):
        manifest.verify()
    with pytest.raises(OutputError, match="no _SUCCESS"):
        Manifest.read(tmp_path)


def test_a_condition_is_described_in_the_same_words_however_it_is_written() -> None:
    same = [{"a": 1, "b": (0, None)}, {"b": arf_dask.Interval(0, None), "a": np.int64(1)}]
    assert len({describe_given(given) for given in same}) == 1
    different = [
        {"a": 1},
        {"a": 1.5},
        {"a": "1"},
        {"a": [1]},
        {"a": None},
        [{"a": 1}, {"b": 2}],
        {"a": date(2020, 1, 1)},
    ]
    assert len({describe_given(given) for given in different}) == len(different)
    frame = pl.DataFrame({"a": [1, 2]})
    pieces = pl.concat([frame[:1], frame[1:]], rechunk=False)
    assert describe_given(frame) == describe_given(pieces) != describe_given(frame[::-1])
    assert describe_given(None) == (None, None)


# URLs


@pytest.fixture
def memory() -> MemoryFileSystem:
    MemoryFileSystem.store.clear()
    return MemoryFileSystem()


def test_a_url_gets_the_same_bytes(model: Any, tmp_path: Path, memory: MemoryFileSystem) -> None:
    local = model.sample_parquet(tmp_path / "out", 900, seed=3, rows_per_file=400)
    remote = model.sample_parquet("memory://bucket/out/", 900, seed=3, rows_per_file=400)
    mark = f"-{remote.job.id[:12]}"
    assert remote.files[0] == f"memory://bucket/out/part-00000{mark}.parquet"
    assert [part._replace(file=part.file.replace(mark, "")) for part in remote.parts] == list(local.parts)
    assert_frame_equal(remote.scan().collect(), local.scan().collect())
    remote.verify()
    assert Manifest.read("memory://bucket/out") == remote
    uploaded = {name.rsplit("/", 1)[-1]: memory.cat_file(name) for name in memory.ls("/bucket/out", detail=False)}
    kept = {name.replace(mark, ""): data for name, data in uploaded.items() if name != "_manifest.parquet"}
    assert kept == {name: data for name, data in contents(tmp_path / "out").items() if name != "_manifest.parquet"}


def test_the_modes_hold_for_urls(model: Any, memory: MemoryFileSystem) -> None:
    url = "memory://bucket/out"
    first = model.sample_parquet(url, 900, seed=3, rows_per_file=400)
    with pytest.raises(OutputError, match="memory://bucket/out: is not empty"):
        model.sample_parquet(url, 900, seed=3)
    memory.rm_file(f"/bucket/out/{first.parts[1].file}")
    assert model.sample_parquet(url, 900, seed=3, rows_per_file=400, mode="resume").parts == first.parts
    with pytest.raises(OutputError, match="seed: 3 there, 4 asked"):
        model.sample_parquet(url, 900, seed=4, rows_per_file=400, mode="resume")
    assert len(model.sample_parquet(url, 100, seed=4, mode="overwrite").parts) == 1
    assert len(memory.ls("/bucket/out")) == 3


def test_a_file_url_is_a_directory(model: Any, tmp_path: Path) -> None:
    assert model.sample_parquet(f"file://{tmp_path}/out", 10, seed=1).path == str(tmp_path / "out")


def test_a_url_of_an_unknown_kind_says_so(model: Any) -> None:
    with pytest.raises(OutputError, match=r"nosuch://x: .*nosuch.*Give a path"):
        model.sample_parquet("nosuch://x", 10)


def test_a_store_that_fails_is_named(model: Any, memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Access Denied")

    monkeypatch.setattr(MemoryFileSystem, "put_file", refuse)
    with pytest.raises(OutputError, match=r"memory://b/out: cannot be written \(Access Denied\)"):
        model.sample_parquet("memory://b/out", 10)

    def lost(*_: Any, **__: Any) -> None:
        raise RuntimeError("no credentials")

    monkeypatch.setattr(MemoryFileSystem, "ls", lost)
    with pytest.raises(OutputError, match=r"memory://b/out: RuntimeError: no credentials\. Check the URL"):
        model.sample_parquet("memory://b/out", 10)


def test_uploads_leave_nothing_in_temporary_directories(
    model: Any, tmp_path: Path, monkeypatch: Any, memory: Any
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    model.sample_parquet("memory://b/out", 900, rows_per_file=400)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(stores.Remote(f"local://{tmp_path}").filesystem()[0], LocalFileSystem)


# Failures


def test_the_error_of_a_part_names_it(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = part_writing._checked

    def broken(work: Any, part: int, path: Path) -> Any:
        if part == 2:
            raise OSError(5, "Input/output error")
        return real(work, part, path)

    with monkeypatch.context() as patch:
        patch.setattr(part_writing, "_checked", broken)
        with pytest.raises(
            OutputError, match=r"part-00002\.parquet: Input/output error.* 2 of 5 parts are complete; run"
        ):
            model.sample_parquet(tmp_path / "out", 2_000, seed=3, rows_per_file=400)
    held = sorted(contents(tmp_path / "out"))
    assert held == ["_job.json", "part-00000.parquet", "part-00001.parquet"]
    assert not (tmp_path / "out" / stores.TEMPORARY).exists()
    model.sample_parquet(tmp_path / "out", 2_000, rows_per_file=400, mode="resume")
    model.sample_parquet(tmp_path / "calm", 2_000, seed=3, rows_per_file=400)
    assert contents(tmp_path / "out") == contents(tmp_path / "calm")


def test_keys_that_run_out_name_the_part(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": pl.Series(range(100), dtype=pl.UInt8), "x": [1, 2] * 50})
    model = arf_dask.fit(frame, trees=2, seed=0, keys=["id"], progress=False)
    with pytest.raises(arf_dask.DataError, match=r"part-0000\d\.parquet: column 'id': its type has room"):
        model.sample_parquet(tmp_path / "out", 500, rows_per_file=100)
    assert not (tmp_path / "out" / stores.TEMPORARY).exists()


RUN = """
    import sys, time, arf_dask
    from arf_dask.storage import part_writing
    saved, out, n, rows_per_file, mode, pause = sys.argv[1:]
    real = part_writing._checked
    def slow(work, part, path):
        time.sleep(float(pause))
        return real(work, part, path)
    part_writing._checked = slow
    part_writing.TASK_BLOCKS = 0
    print("ready", flush=True)
    try:
        arf_dask.load(saved).sample_parquet(out, int(n), seed=3, rows_per_file=int(rows_per_file), mode=mode)
    except arf_dask.OutputError as error:
        print(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
"""


def begin(saved: Path, out: Path, mode: str = "resume", *, n: int = 8_000, pause: float = 0.05, **options: Any) -> Any:
    arguments = [str(saved), str(out), str(n), "400", mode, str(pause)]
    command = [sys.executable, "-c", textwrap.dedent(RUN), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_for_parts(out: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(out.parent.glob(f"{out.name}/*.parquet"))) < number:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def inodes(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in out.glob("*.parquet")}


@pytest.fixture(scope="module")
def calm(model: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    out = tmp_path_factory.mktemp("calm") / "out"
    model.sample_parquet(out, 8_000, seed=3, rows_per_file=400)
    return contents(out)


@pytest.mark.parametrize("parts_before", [*(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1, 13)), 7])
def test_killed_client_then_resume_is_byte_identical_and_keeps_what_was_done(
    saved: Path, tmp_path: Path, calm: dict[str, bytes], parts_before: int
) -> None:
    out = tmp_path / "out"
    process = begin(saved, out)
    wait_for_parts(out, parts_before)
    process.kill()
    process.wait()
    process.stdout.close()
    there = inodes(out)
    assert len(there) < 20
    process = begin(saved, out, pause=0.0)
    assert process.wait(60) == 0
    process.stdout.close()
    assert contents(out) == calm
    # Every part that had its name is the same file still: only what was in flight is made again.
    assert {name: inode for name, inode in inodes(out).items() if name in there} == there


@pytest.mark.slow
def test_client_killed_again_and_again_ends_with_the_same_bytes(
    saved: Path, tmp_path: Path, calm: dict[str, bytes]
) -> None:
    out = tmp_path / "out"
    for number in (3, 8, 14):
        process = begin(saved, out)
        wait_for_parts(out, number)
        process.kill()
        process.wait()
        process.stdout.close()
    process = begin(saved, out, pause=0.0)
    assert process.wait(60) == 0
    process.stdout.close()
    assert contents(out) == calm


def test_interrupted_client_leaves_whole_parts_and_no_temporary_files(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begin(saved, out)
    wait_for_parts(out, 4)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stdout.close()
    names = set(contents(out))
    assert not any(name.startswith(stores.TEMPORARY) for name in names)
    assert names <= {"_job.json", *(f"part-{i:05}.parquet" for i in range(20))}
    assert all(pq.read_metadata(out / name).num_rows == 400 for name in names if name != "_job.json")


def test_interrupted_overwrite_leaves_the_old_data_set(model: Any, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    model.sample_parquet(out, 900, seed=9, rows_per_file=400)
    before = contents(out)
    process = begin(saved, out, "overwrite")
    wait_for_parts(tmp_path / ".out.arf_dask-new-*", 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.stdout.close()
    assert contents(out) == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_polling_reader_never_opens_a_broken_file(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = begin(saved, out, pause=0.02)
    polls = 0
    while process.poll() is None:
        for folder, _, names in os.walk(out):  # unlike glob, at ease with a folder that goes while it looks
            for name in fnmatch.filter(names, "part-*.parquet"):
                assert pl.read_parquet(Path(folder, name)).height == 400
        polls += 1
    process.stdout.close()
    assert process.returncode == 0
    assert polls > 3


def test_readers_see_the_old_or_the_new_data_set_during_overwrite(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    model.sample_parquet(out, 500, seed=1)
    seen, stop = set(), threading.Event()

    def poll() -> None:
        while not stop.is_set():
            try:
                names = sorted(path.name for path in out.iterdir())
            except FileNotFoundError:
                continue  # between two renames
            seen.add(tuple(name for name in names if name.startswith("part-")))

    reader = threading.Thread(target=poll)
    reader.start()
    for n in (1_500, 500, 1_500):
        model.sample_parquet(out, n, seed=1, rows_per_file=500, mode="overwrite")
    stop.set()
    reader.join()
    one, three = ("part-00000.parquet",), tuple(f"part-0000{i}.parquet" for i in range(3))
    assert one in seen
    assert seen <= {one, three, ()}


def test_two_writers_of_the_same_part_agree(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    work = planned(model, out, 800, 400)
    work.store.prepare("run")
    part_range = part_writing.PartRange(0, 2)
    made: list[Any] = []
    writers = [
        threading.Thread(target=lambda: made.append(part_writing.make_parts(work, part_range))) for _ in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert made == [made[0]] * 4
    assert list((out / stores.TEMPORARY / "run").iterdir()) == []


def test_a_task_whose_run_is_over_stops(model: Any, tmp_path: Path) -> None:
    work = planned(model, tmp_path / "out", 800, 400)
    work.store.prepare("another run")
    with pytest.raises(OutputError):
        part_writing.make_parts(work, part_writing.PartRange(0, 2))
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_what_tasks_share_travels_without_what_was_made_of_it(model: Any) -> None:
    import pickle

    work = planned(model.without_smoothing(), Path("/nowhere"), 800, 400, {"sex": "f"})
    before = len(pickle.dumps(work))
    plan = work.plan
    assert isinstance(plan, row_plan.RowPlan)
    plan.source()
    assert abs(len(pickle.dumps(work)) - before) < 0.2 * before


# A full disk


def limited() -> None:
    """No file may become larger than this: a disk that is full, on machines where nothing can be mounted."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))


def test_files_that_cannot_grow_are_a_clear_error_and_resume_completes(
    saved: Path, tmp_path: Path, calm: dict[str, bytes]
) -> None:
    out = tmp_path / "out"
    process = begin(saved, out, preexec_fn=limited)
    told = process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 1
    assert "part-00000.parquet: no space left" in told
    assert '0 of 20 parts are complete; run again with mode="resume"' in told
    assert sorted(contents(out)) == ["_job.json"]
    process = begin(saved, out, pause=0.0)
    assert process.wait(60) == 0
    process.stdout.close()
    assert contents(out) == calm


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    path = tmp_path / "disk"
    path.mkdir()
    options = ["-t", "tmpfs", "-o", "size=100k", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("nothing can be mounted here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_full_disk_is_a_clear_error_and_resume_completes_once_there_is_room(
    model: Any, small_disk: Path, calm: dict[str, bytes]
) -> None:
    out = small_disk / "out"
    with pytest.raises(OutputError, match=r"part-000\d\d.parquet: no space left .* (\d+) of 20 parts are complete"):
        model.sample_parquet(out, 8_000, seed=3, rows_per_file=400)
    there = contents(out)
    assert there
    assert all(calm[name] == data for name, data in there.items() if name != "_job.json")
    subprocess.run(["mount", "-o", "remount,size=10m", str(small_disk)], check=True)
    inodes_before = inodes(out)
    model.sample_parquet(out, 8_000, seed=3, rows_per_file=400, mode="resume")
    assert contents(out) == calm
    assert inodes_before.items() <= inodes(out).items()


# Memory


def test_a_part_is_never_held_whole(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heights = []
    real = parquet.to_table

    def watched(frame: pl.DataFrame, schema: Any) -> pa.Table:
        heights.append(frame.height)
        return real(frame, schema)

    monkeypatch.setattr(parquet, "to_table", watched)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2**16)
    manifest = model.sample_parquet(tmp_path / "out", 300_000, seed=1, rows_per_file=10**9)
    assert max(heights) == 2**16
    assert pq.read_metadata(manifest.files[0]).num_row_groups == 5
