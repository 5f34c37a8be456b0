"""What broke when somebody tried harder: two runs on one path, flipped bits, cut manifests, late uploads."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import arf_dask
from arf_dask import Manifest, OutputError
from arf_dask.storage import manifest as manifest_module
from arf_dask.storage import part_writing
from arf_dask.storage.jobs import RunState, dump_json
from arf_dask.storage.parquet import write_part
from arf_dask.storage.stores import Remote


@pytest.fixture(scope="module")
def model() -> Any:
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.normal(size=400), "g": rng.choice(["a", "b"], 400)})
    return arf_dask.fit(frame, trees=3, seed=0, progress=False)


@pytest.fixture(scope="module")
def saved(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model"
    model.save(path)
    return path


SLOW = """
    import sys, time, arf_dask
    from arf_dask.storage import part_writing
    saved, out, mode, pause, seed = sys.argv[1:]
    real = part_writing._checked
    def slow(work, part, path):
        time.sleep(float(pause))
        return real(work, part, path)
    part_writing._checked = slow
    part_writing.TASK_BLOCKS = 0
    print("ready", flush=True)
    try:
        arf_dask.load(saved).sample_parquet(out, 4_000, seed=int(seed), rows_per_file=400, mode=mode)
    except arf_dask.OutputError as error:
        print(error)
        sys.exit(1)
"""


def begin(saved: Path, out: Path, mode: str, pause: float = 0.1, seed: int = 5) -> Any:
    command = [sys.executable, "-c", textwrap.dedent(SLOW), str(saved), str(out), mode, str(pause), str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def wait_until(holds: Any, seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.005)


def rows_of(out: Path) -> pl.DataFrame:
    return Manifest.read(out).scan().collect()


def everything(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("mode", ["error", "resume", "overwrite"])
def test_a_refused_call_does_not_disturb_a_run_that_overwrites(
    model: Any, saved: Path, tmp_path: Path, mode: str
) -> None:
    out = tmp_path / "o"
    model.sample_parquet(out, 900, seed=3)
    with begin(saved, out, "overwrite") as process:
        wait_until(lambda: list(tmp_path.glob(".o.arf_dask-new-*/*.parquet")))
        for _ in range(5):
            with pytest.raises(OutputError):
                model.sample_parquet(out, 10, mode=mode, seed=8)
        assert process.wait(60) == 0, process.stdout.read()
    assert rows_of(out).equals(model.sample(4_000, seed=5))
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


def test_calls_refused_at_any_moment_never_leave_an_empty_target(model: Any, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    model.sample_parquet(out, 900, seed=3)
    with begin(saved, out, "overwrite", pause=0.0) as process:
        while process.poll() is None:
            with pytest.raises(OutputError):
                model.sample_parquet(out, 10)
        assert process.returncode == 0, process.stdout.read()
    assert rows_of(out).height == 4_000


def test_of_two_overwrites_at_once_one_wins_and_the_other_says_so(model: Any, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    model.sample_parquet(out, 900, seed=3)
    with begin(saved, out, "overwrite") as first:
        wait_until(lambda: list(tmp_path.glob(".o.arf_dask-new-*")))
        with pytest.raises(OutputError, match=rf"process {first.pid} on .* is at work there"):
            model.sample_parquet(out, 100, seed=1, mode="overwrite")
        assert first.wait(60) == 0
    assert rows_of(out).equals(model.sample(4_000, seed=5))


def test_of_two_resumes_at_once_one_completes_the_job(model: Any, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "o"
    with begin(saved, out, "resume") as process:
        wait_until(lambda: list(out.glob("part-*.parquet")))
        process.kill()
    with begin(saved, out, "resume") as first, begin(saved, out, "resume") as second:
        codes = {first.wait(60), second.wait(60)}
        assert codes <= {0, 1}
        assert 0 in codes
    assert rows_of(out).equals(model.sample(4_000, seed=5))


def test_an_overwrite_killed_anywhere_leaves_the_old_or_the_new_data_set(
    model: Any, saved: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o"
    model.sample_parquet(out, 900, seed=3)
    for wait in (0.0, 0.05, 0.1, 0.2):
        with begin(saved, out, "overwrite", pause=0.0) as process:
            wait_until(lambda: list(tmp_path.glob(".o.arf_dask-*")) or process.poll() is not None)
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
        assert Manifest.read(out).rows in (900, 4_000)
        Manifest.read(out).verify()
    made = model.sample_parquet(out, 500, seed=2, mode="overwrite")
    made.verify()
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


def test_a_flipped_bit_is_found_by_resume_and_written_again(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "o"
    made = model.sample_parquet(out, 4_000, seed=5, rows_per_file=400)
    before = everything(out)
    for position in (40, 300, -40):  # pages of data, and the footer
        (out / "part-00003.parquet").write_bytes(flip(before["part-00003.parquet"], position))
        with pytest.raises(OutputError, match=r"part-00003\.parquet has changed"):
            made.verify()
        assert model.sample_parquet(out, 4_000, rows_per_file=400, mode="resume") == made
        assert everything(out) == before


def test_a_flipped_bit_in_a_run_that_was_stopped_is_found_too(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "o"
    made = model.sample_parquet(out, 4_000, seed=5, rows_per_file=400)
    before = everything(out)
    (out / "_SUCCESS").unlink()
    (out / "_manifest.parquet").unlink()
    (out / "_job.json").write_text(RunState(made.job, "run", made.parts[:6]).to_json())
    for number in (1, 8):  # one on record, and one that is not
        name = f"part-0000{number}.parquet"
        (out / name).write_bytes(flip(before[name], 60))
    assert model.sample_parquet(out, 4_000, rows_per_file=400, mode="resume") == made
    assert everything(out) == before


def flip(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 4
    return bytes(changed)


def test_pages_carry_checksums(model: Any, tmp_path: Path) -> None:
    made = model.sample_parquet(tmp_path / "o", 400, seed=5)
    file = Path(made.files[0])
    column = pq.read_metadata(file).row_group(0).column(0)
    file.write_bytes(flip(file.read_bytes(), column.data_page_offset + column.total_compressed_size - 20))
    with pytest.raises(OSError, match=r"(?i)crc|checksum"):
        pq.read_table(file, page_checksum_verification=True)


def rewrite_manifest(out: Path, **changes: Any) -> None:
    """Change the manifest of a data set and leave all else."""
    schema = pq.read_schema(out / "part-00000.parquet")
    content = json.loads(Manifest.read(out).to_json())
    fields = {name: value for name, value in content.items() if name not in ("format", "version", "sha256")}
    text = dump_json({**fields, **changes})
    write_part(out / "_manifest.parquet", [], schema, {manifest_module.KEY: text}, [])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda parts: parts[:3], "lists 3 parts of 10"),
        (lambda parts: [{**parts[0], "file": "../x.parquet"}, *parts[1:]], "part 0 cannot be '../x.parquet'"),
        (lambda parts: [{**parts[0], "rows": 7}, *parts[1:]], "part 0 cannot be"),
        (lambda parts: [{**parts[0], "rows": "7"}, *parts[1:]], "fields of wrong types"),
        (lambda parts: [{"file": "part-00000.parquet"}, *parts[1:]], "missing 3 required"),
        (lambda parts: [{**parts[0], "redrawn": "7"}, *parts[1:]], "fields of wrong types"),
        (lambda parts: [parts[1], parts[0], *parts[2:]], "part 0 cannot be"),
        (lambda parts: 5, "not iterable"),
    ],
)
def test_a_manifest_that_cannot_be_right_is_an_error_and_resume_of_the_same_job_mends_it(
    model: Any, tmp_path: Path, change: Any, told: str
) -> None:
    out = tmp_path / "o"
    made = model.sample_parquet(out, 4_000, seed=5, rows_per_file=400)
    before = everything(out)
    rewrite_manifest(out, parts=change([part._asdict() for part in made.parts]))
    with pytest.raises(OutputError, match=r"_manifest\.parquet: is damaged") as caught:
        Manifest.read(out)
    assert told in str(caught.value)
    for options in ({"seed": 6, "mode": "resume"}, {"seed": 5, "mode": "overwrite"}):  # may be another data set
        with pytest.raises(OutputError, match="is damaged"):
            model.sample_parquet(out, 4_000, rows_per_file=400, **options)
    model.sample_parquet(out, 4_000, seed=5, rows_per_file=400, mode="resume")
    assert everything(out) == before


def test_any_flipped_bit_of_a_manifest_is_refused_or_harmless_and_resume_mends_it(model: Any, tmp_path: Path) -> None:
    out, rng = tmp_path / "o", np.random.default_rng(3)
    made = model.sample_parquet(out, 400, seed=5, rows_per_file=100)
    before = everything(out)
    whole = (out / "_manifest.parquet").read_bytes()
    for place in rng.integers(0, len(whole), 60):
        (out / "_manifest.parquet").write_bytes(flip(whole, int(place)))
        try:
            read = Manifest.read(out)
        except OutputError:
            read = made
        assert read == made
        model.sample_parquet(out, 400, seed=5, rows_per_file=100, mode="resume")
        assert everything(out) == before


def test_resume_of_the_same_job_mends_a_damaged_record_of_a_stopped_run(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "o"
    made = model.sample_parquet(out, 800, seed=5, rows_per_file=100)
    before = everything(out)
    for name in ("_manifest.parquet", "_SUCCESS", "part-00003.parquet"):
        (out / name).unlink()
    (out / "_job.json").write_text(RunState(made.job, "run", made.parts[:2]).to_json()[:-200])
    with pytest.raises(OutputError, match=r"_job\.json: is damaged"):
        model.sample_parquet(out, 800, seed=6, rows_per_file=100, mode="resume")
    model.sample_parquet(out, 800, seed=5, rows_per_file=100, mode="resume")
    assert everything(out) == before


def test_a_part_that_is_a_directory_is_not_complete(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "o"
    made = model.sample_parquet(out, 800, seed=5, rows_per_file=400)
    (out / "part-00001.parquet").unlink()
    (out / "part-00001.parquet").mkdir()
    with pytest.raises(OutputError, match=r"part-00001\.parquet cannot be read"):
        made.verify()
    with pytest.raises(OutputError, match=r"holds 'part-00001\.parquet/'"):
        model.sample_parquet(out, 800, rows_per_file=400, mode="resume")


def test_a_part_that_the_manifest_does_not_list_is_reported_and_not_read(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "o"
    made = model.sample_parquet(out, 800, seed=5, rows_per_file=400)
    (out / "part-00002.parquet").write_bytes((out / "part-00000.parquet").read_bytes())
    assert made.scan().collect().height == 800
    with pytest.raises(OutputError, match=r"'part-00002\.parquet' is there but not listed"):
        made.verify()


def test_a_data_set_of_the_first_version_is_still_read(model: Any, tmp_path: Path) -> None:
    out = tmp_path / "o"
    made = model.sample_parquet(out, 800, seed=5, rows_per_file=400)
    content = json.loads(made.to_json())
    content["version"] = 1
    del content["sha256"]
    (out / "_manifest.parquet").unlink()
    (out / "manifest.json").write_text(json.dumps(content))
    assert Manifest.read(out) == made
    assert model.sample_parquet(out, 20, seed=1, mode="overwrite").rows == 20
    assert not (out / "manifest.json").exists()


def test_tasks_of_a_dead_run_cannot_write_into_the_data_set_of_another(model: Any, tmp_path: Path) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    url = "memory://bucket/out"
    waiting, go = threading.Event(), threading.Event()
    real = part_writing._checked

    def stuck(work: Any, part: int, path: Path) -> Any:
        if work.job.seed == 1:
            waiting.set()
            go.wait(60)
        return real(work, part, path)

    part_writing._checked = stuck
    told: list[str] = []

    def first_job() -> None:
        try:
            model.sample_parquet(url, 800, seed=1, rows_per_file=400)
        except OutputError as error:
            told.append(str(error))

    try:
        late = threading.Thread(target=first_job)
        late.start()
        assert waiting.wait(60)
        made = model.sample_parquet(url, 300, seed=2, mode="overwrite")
        go.set()
        late.join(60)
    finally:
        part_writing._checked = real
    assert "another run has taken over" in told[0]
    made.verify()
    assert made.scan().collect().height == 300
    names = sorted(str(name).rsplit("/", 1)[-1] for name in MemoryFileSystem().ls("/bucket/out", detail=False))
    assert names == ["_SUCCESS", "_manifest.parquet", made.parts[0].file]


def test_an_upload_that_ends_after_another_job_took_over_is_removed_again(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem.store.clear()
    url, made = "memory://bucket/late", list[Manifest]()
    upload = Remote.commit

    def slow_upload(store: Remote, path: Path, name: str) -> None:
        if name.startswith("part-00001") and not made:  # another job begins and ends during this upload
            made.append(model.sample_parquet(url, 300, seed=2, mode="overwrite"))
        upload(store, path, name)

    monkeypatch.setattr(Remote, "commit", slow_upload)
    with pytest.raises(OutputError, match="another run has taken over"):
        model.sample_parquet(url, 800, seed=1, rows_per_file=400)
    made[0].verify()
    names = sorted(str(name).rsplit("/", 1)[-1] for name in MemoryFileSystem().ls("/bucket/late", detail=False))
    assert names == ["_SUCCESS", "_manifest.parquet", made[0].parts[0].file]


def test_credentials_of_a_url_appear_nowhere(model: Any, tmp_path: Path) -> None:
    secret = "hunter2secret"
    with pytest.raises(OutputError) as caught:
        model.sample_parquet(f"ftp://user:{secret}@127.0.0.1:1/out", 10)
    assert secret not in str(caught.value)
    assert secret not in repr(caught.value.__context__) or caught.value.__suppress_context__
    made = model.sample_parquet(tmp_path / "o", 10, seed=1)
    assert secret not in repr(replace(made, storage_options={"secret": secret}, url=f"s3://u:{secret}@b/o"))


@pytest.mark.skipif(os.name != "posix", reason="a mode of POSIX")
def test_a_lock_is_not_left_behind_by_a_failure(model: Any, tmp_path: Path) -> None:
    with pytest.raises(arf_dask.ImpossibleConditionError):
        model.sample_parquet(tmp_path / "o", 10, given={"g": "a", "x": (900, 901)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="names of POSIX")
@pytest.mark.parametrize("name", ["a b", "ünï 日本 🎉", "*[1]?", "#x?y=1", "%20", "two\nlines", "n" * 250, "ü" * 120])
def test_any_name_of_a_directory_works(model: Any, tmp_path: Path, name: str) -> None:
    for seed in (1, 2):
        model.sample_parquet(tmp_path / name, 30, seed=seed, mode="overwrite").verify()
    assert rows_of(tmp_path / name).equals(model.sample(30, seed=2))
    for _ in range(2):
        model.save(tmp_path / f"m{name}")
    assert arf_dask.load(tmp_path / f"m{name}").sample(9, seed=1).equals(model.sample(9, seed=1))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, f"m{name}"])


@pytest.mark.skipif(os.name != "posix", reason="names of POSIX")
@pytest.mark.parametrize("name", ["loop", "a\0b", "a\udc80b", "n" * 300])
def test_a_path_that_cannot_be_used_is_named(model: Any, tmp_path: Path, name: str) -> None:
    if name == "loop":
        (tmp_path / name).symlink_to(tmp_path / name)
    before = sorted(tmp_path.iterdir())
    for write in (lambda path: model.sample_parquet(path, 10), model.save):
        with pytest.raises((arf_dask.OptionError, OutputError), match=r"Give another path|too long"):
            write(tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(os.name != "posix", reason="symbolic links")
def test_a_link_to_a_directory_stays_a_link(model: Any, tmp_path: Path) -> None:
    for name in ("data", "model"):
        (tmp_path / name).mkdir()
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
    for seed in (1, 2):
        model.sample_parquet(tmp_path / "to data", 30, seed=seed, mode="overwrite")
        model.save(tmp_path / "to model")
    assert rows_of(tmp_path / "data").equals(model.sample(30, seed=2))
    assert arf_dask.load(tmp_path / "model").schema.names == model.schema.names
    assert all((tmp_path / f"to {name}").is_symlink() for name in ("data", "model"))
