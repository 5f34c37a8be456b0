"""An object store for real: a moto server in a process of its own, through s3fs, Polars, delta-rs and pyiceberg."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.cli.main import cli
from arf_dask.errors import ArfError, DataError, ModelFormatError, OptionError, OutputError
from arf_dask.storage.portable import portable_frame
from tests.clusters import Processes

pytest.importorskip("moto")
s3fs = pytest.importorskip("s3fs")

SECRET = "a-secret-that-appears-nowhere"
DATA = pl.DataFrame({"kind": ["a", "b", None] * 100, "x": [i / 7 for i in range(300)]})
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def options(endpoint: Any) -> Any:
    found = {"key": "me", "secret": SECRET, "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"}}
    s3fs.S3FileSystem(key="me", secret=SECRET, endpoint_url=endpoint).mkdir("lake")
    return found


@pytest.fixture(scope="module")
def rust_options(endpoint: Any) -> Any:
    return {
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.fixture(scope="module")
def model() -> Any:
    return arf_dask.fit(DATA, trees=3, seed=0)


@pytest.mark.parametrize("names", ["options", "rust_options"])
def test_files_are_read_in_both_vocabularies(
    options: Any, request: pytest.FixtureRequest, names: Any, model: Any
) -> None:
    system = s3fs.S3FileSystem(**options)
    for number, frame in enumerate([DATA.head(100), DATA.tail(200)]):
        with system.open(f"lake/in/{number}.parquet", "wb") as file:
            frame.write_parquet(file)
    with system.open("lake/in.csv", "wb") as file:
        DATA.write_csv(file)
    given = request.getfixturevalue(names)
    for data in ("s3://lake/in/*.parquet", ["s3://lake/in/0.parquet", "s3://lake/in/1.parquet"], "s3://lake/in.csv"):
        found = arf_dask.fit(data, trees=3, seed=0, storage_options=given)
        assert_frame_equal(found.sample(50, seed=1), model.sample(50, seed=1))
    twin = arf_dask.synthesize("s3://lake/in.csv", 5, trees=3, seed=0, storage_options=given)
    assert isinstance(twin, pl.DataFrame)


def test_a_model_is_saved_and_loaded(options: Any, model: Any) -> None:
    model.save("s3://lake/models/one", storage_options=options)
    again = arf_dask.load("s3://lake/models/one", storage_options=options)
    assert_frame_equal(again.sample(50, seed=1), model.sample(50, seed=1))
    model.save("s3://lake/models/one", storage_options=options)
    with pytest.raises(ModelFormatError, match="s3://lake/models/none"):
        arf_dask.load("s3://lake/models/none", storage_options=options)
    with pytest.raises(OptionError, match="holds something else"):
        model.save("s3://lake/models", storage_options=options)
    with pytest.raises(OptionError, match="local path"):
        arf_dask.load("models/one", storage_options=options)


def test_options_of_the_command_line_are_for_its_urls(options: Any, rust_options: Any, tmp_path: Path) -> None:
    with s3fs.S3FileSystem(**options).open("lake/commands.csv", "wb") as file:
        DATA.write_csv(file)
    given = [word for item in rust_options.items() for word in ("--storage-option", "=".join(item))]
    given += ["--storage-option", "max_retries=2"]
    learning, model = ["--trees", "2", "--max-rounds", "1"], str(tmp_path / "model")
    for words in (
        ["fit", "s3://lake/commands.csv", "--model", model, *learning],
        ["sample", model, "-n", "20", "--seed", "1", "--to", "s3://lake/commands"],
        ["synthesize", "s3://lake/commands.csv", "-n", "20", "--to", str(tmp_path / "twin"), *learning],
    ):
        done = CliRunner().invoke(cli, [*words, *given])
        assert done.exit_code == 0, done.output
    assert arf_dask.Manifest.read("s3://lake/commands", storage_options=options).rows == 20
    refused = CliRunner().invoke(cli, ["sample", model, "-n", "20", "--to", str(tmp_path / "other"), *given])
    assert refused.exit_code == 1
    assert "--storage-option: all paths are local" in refused.output


def test_a_damaged_model_is_refused(options: Any, model: Any) -> None:
    model.save("s3://lake/models/bad", storage_options=options)
    system = s3fs.S3FileSystem(**options)
    name = next(name for name in system.ls("lake/models/bad") if name.endswith(".parquet"))
    system.pipe(name, b"something else")
    with pytest.raises(ModelFormatError, match="s3://lake/models/bad"):
        arf_dask.load("s3://lake/models/bad", storage_options=options)


def test_a_data_set_is_written_by_workers(options: Any, model: Any, tmp_path: Path) -> None:
    with Processes(tmp_path, workers=1) as started:
        made = model.sample_parquet(
            "s3://lake/out", 500, seed=1, rows_per_file=200, storage_options=options, client=started.address
        )
    assert_frame_equal(made.scan().collect(), model.sample(500, seed=1))
    assert SECRET not in made.to_json() + repr(made)


LATE_RUN = """
import json, sys
import arf_dask
from arf_dask.errors import OutputError

model = arf_dask.load(sys.argv[1])
try:
    options = {"rows_per_file": 20_000, "storage_options": json.loads(sys.argv[2])}
    model.sample_parquet("s3://lake/stale", 400_000, seed=1, **options)
except OutputError as error:
    sys.exit(str(error))
"""


def test_a_run_that_wakes_up_late_cannot_publish_into_the_data_set_of_another(
    options: Any, model: Any, tmp_path: Path
) -> None:
    model.save(tmp_path / "model")
    system = s3fs.S3FileSystem(**options, use_listings_cache=False)
    command = [sys.executable, "-c", LATE_RUN, str(tmp_path / "model"), json.dumps(options)]
    late = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        while not (system.exists("lake/stale") and any("part-" in name for name in system.ls("lake/stale"))):
            assert late.poll() is None
            time.sleep(0.02)
        late.send_signal(signal.SIGSTOP)  # a worker that nobody hears of any more
        made = model.sample_parquet("s3://lake/stale", 300, seed=2, mode="overwrite", storage_options=options)
        late.send_signal(signal.SIGCONT)
        told = late.communicate(timeout=120)[1]
    finally:
        late.kill()
    assert "another run has taken over" in told
    assert SECRET not in told
    assert_frame_equal(made.scan().collect(), model.sample(300, seed=2))
    found = {name.rsplit("/", 1)[-1] for name in system.ls("lake/stale")}
    late_uploads = found - {"_SUCCESS", "_manifest.parquet", made.parts[0].file}
    # Uploads that were under way when the run was stopped have names of their own: nobody reads them.
    assert len(found) == 3 + len(late_uploads)
    assert not any(made.job.id[:12] in name for name in late_uploads)


@pytest.mark.parametrize("names", ["options", "rust_options"])
def test_a_delta_table(options: Any, rust_options: Any, request: pytest.FixtureRequest, names: Any, model: Any) -> None:
    deltalake = pytest.importorskip("deltalake")
    table = f"s3://lake/delta-{names}"
    given = {**request.getfixturevalue(names), "aws_conditional_put": "etag"}
    model.sample_delta(table, 500, seed=1, storage_options=given)
    model.sample_delta(table, 500, seed=2, mode="append", storage_options=given)
    model.sample_delta(table, 500, seed=2, mode="append", storage_options=given)
    stored = deltalake.DeltaTable(table, storage_options={**rust_options, "aws_conditional_put": "etag"})
    assert stored.version() == 1
    expected = pl.concat(portable_frame(model.sample(500, seed=seed)) for seed in (1, 2))
    assert_frame_equal(pl.DataFrame(stored.to_pyarrow_table()).sort(pl.all()), expected.sort(pl.all()))
    assert arf_dask.fit(stored, trees=3, seed=0).schema.n_rows == 1_000


def test_a_bucket_that_is_missing_is_told_without_secrets(endpoint: Any, model: Any) -> None:
    pytest.importorskip("deltalake")
    given = {"key": "me", "secret": SECRET, "endpoint_url": endpoint}  # without a region, which is no warning either
    with pytest.raises(OutputError, match=r"s3://none/delta: .*NoSuchBucket.*access to it\.$") as written:
        model.sample_delta("s3://none/delta", 5, storage_options=given)
    with pytest.raises(DataError, match="NoSuchBucket") as read:
        arf_dask.fit("s3://none/*.parquet", storage_options=given)
    assert "cp1252" not in str(read.value)
    for caught in (written, read):
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_iceberg_table(endpoint: Any, options: Any, model: Any, tmp_path: Path) -> None:
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    properties = {
        "s3.endpoint": endpoint,
        "s3.access-key-id": "me",
        "s3.secret-access-key": SECRET,
        "s3.region": "us-east-1",
    }
    catalog = sql.SqlCatalog("s3", uri=f"sqlite:///{tmp_path}/c.db", warehouse="s3://lake/warehouse", **properties)
    catalog.create_namespace("lake")
    table = catalog.create_table("lake.twin", model.portable_schema())
    model.sample_iceberg(table, 500, seed=1)
    model.sample_iceberg(table, 500, seed=1)
    found = pl.DataFrame(table.refresh().scan().to_arrow()).sort(pl.all())
    catalog.engine.dispose()
    assert_frame_equal(found, portable_frame(model.sample(500, seed=1)).sort(pl.all()))


@pytest.mark.parametrize(
    "call",
    [
        lambda o: arf_dask.fit("s3://lake/none/*.parquet", storage_options=o),
        lambda o: arf_dask.load("s3://none/m", storage_options=o),
        lambda o: arf_dask.fit("s3://none/a.csv", storage_options=o),
    ],
)
def test_errors_name_the_url_and_no_secret(options: Any, call: Any) -> None:
    with pytest.raises(ArfError, match="s3://") as caught:
        call(options)
    assert SECRET not in str(caught.value) + repr(caught.value.__cause__)


def test_stores_that_polars_cannot_read_are_copied(model: Any) -> None:
    import fsspec

    system = fsspec.filesystem("memory")
    system.pipe("/lake/a.csv", DATA.write_csv().encode())
    found = arf_dask.fit("memory://lake/a.csv", trees=3, seed=0)
    assert_frame_equal(found.sample(50, seed=1), model.sample(50, seed=1))
    with pytest.raises(DataError, match="memory://lake/none"):
        arf_dask.fit("memory://lake/none.csv")


def test_the_environment_holds_nothing_of_this() -> None:
    assert SECRET not in " ".join(os.environ.values())
