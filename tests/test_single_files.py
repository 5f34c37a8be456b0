"""The ending of a name decides what is written, in Python and on the command line alike."""

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.errors import OptionError, OutputError
from arf_dask.single_files import is_file

DATA = pl.DataFrame({"s": ["a", "b"] * 100, "x": [(i * i % 97) / 4 for i in range(200)]})
READERS = {
    ".parquet": pl.read_parquet,
    ".csv": pl.read_csv,
    ".csv.gz": pl.read_csv,
    ".csv.zst": pl.read_csv,
    ".arrow": pl.read_ipc,
    ".feather": pl.read_ipc,
    ".ndjson": pl.read_ndjson,
    ".jsonl": pl.read_ndjson,
}


@pytest.mark.parametrize("ending", READERS)
def test_every_ending_has_its_format(tmp_path: Path, ending: str) -> None:
    made = arf_dask.synthesize(DATA, 300, to=tmp_path / f"twin{ending}", trees=3, seed=0)
    assert [path.name for path in tmp_path.iterdir()] == [f"twin{ending}"]
    rows = READERS[ending](tmp_path / f"twin{ending}")
    assert_frame_equal(rows, arf_dask.synthesize(DATA, 300, trees=3, seed=0))
    assert made.files == [str(tmp_path / f"twin{ending}")]
    assert made.bytes == (tmp_path / f"twin{ending}").stat().st_size
    if ending == ".parquet":
        assert_frame_equal(made.scan().collect(), rows)
    else:
        with pytest.raises(OutputError, match="no Parquet"):
            made.scan()


@pytest.mark.parametrize("name", ["twin.xlsx", "twin.json", "twin.db", "twin.sqlite", "s3://bucket/twin.csv"])
def test_other_endings_are_refused_before_the_fit(tmp_path: Path, name: str) -> None:
    target = name if "://" in name else tmp_path / name
    with pytest.raises(OptionError, match="ending"):
        arf_dask.synthesize(DATA, 5, to=target, trees=10**6)


@pytest.mark.parametrize("name", ["out", "run-2024.01.02", "twin.xlsx/", "s3://bucket", "s3://b.cket/x.parquet"])
def test_names_of_data_sets(name: str) -> None:
    assert not is_file(name)


def test_a_file_that_exists_is_kept_unless_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("mine")
    with pytest.raises(OutputError, match="is there already"):
        arf_dask.synthesize(DATA, 5, to=tmp_path / "a.csv", trees=3)
    with pytest.raises(OptionError, match="resume"):
        arf_dask.synthesize(DATA, 5, to=tmp_path / "a.csv", trees=3, mode="resume")
    arf_dask.synthesize(DATA, 5, to=tmp_path / "a.csv", trees=3, mode="overwrite")
    assert pl.read_csv(tmp_path / "a.csv").height == 5


def test_durations_are_text_where_a_format_has_none(tmp_path: Path) -> None:
    data = pl.DataFrame({"wait": [timedelta(seconds=90 * (i % 5)) for i in range(200)]})
    arf_dask.synthesize(data, 50, to=tmp_path / "a.csv", trees=3, seed=0)
    assert set(pl.read_csv(tmp_path / "a.csv")["wait"]) <= {"PT0S", "PT1M30S", "PT3M", "PT4M30S", "PT6M"}
    arf_dask.synthesize(data, 50, to=tmp_path / "a.arrow", trees=3, seed=0)
    assert pl.read_ipc(tmp_path / "a.arrow").schema == data.schema
