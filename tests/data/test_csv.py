"""CSV as people have it: separators, decimal commas, words for missing values, encodings and compression."""

import gzip
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.data.files import Reading, public_cause, read, unreadable
from arf_dask.errors import DataError, OptionError

EXPECTED = pl.DataFrame({"name": ["Zoë", "Ünal"], "x": [1.5, None]})


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", "name;x\nZoë;1,5\nÜnal;\n".encode(), {"separator": ";", "decimal": ","}),
        ("a.csv", "name|x\nZoë|1.5\nÜnal|?\n".encode(), {"separator": "|", "null_values": ["?"]}),
        ("a.csv", "name,x\nZoë,1.5\nÜnal,\n".encode("cp1252"), {"encoding": "cp1252"}),
        ("a.tsv", "name\tx\nZoë\t1.5\nÜnal\t\n".encode(), {}),
        ("a.csv.gz", gzip.compress("name,x\nZoë,1.5\nÜnal,\n".encode(), mtime=0), {}),
        ("a.tsv.gz", gzip.compress("name\tx\nZoë\t1.5\nÜnal\t\n".encode(), mtime=0), {}),
        ("a.csv", b"\xef\xbb\xbf" + "name,x\nZoë,1.5\nÜnal,\n".encode(), {"encoding": "utf-8-sig"}),
    ],
)
def test_every_way_of_writing_the_same_table(
    tmp_path: Path, name: str, content: bytes, options: dict[str, Any]
) -> None:
    (tmp_path / name).write_bytes(content)
    assert_frame_equal(read(str(tmp_path / name), Reading(csv=options)), EXPECTED)


@pytest.mark.parametrize("encoding", ["utf8", "cp1252"])
def test_a_leading_zero_in_any_row_makes_a_code(tmp_path: Path, encoding: str) -> None:
    rows = "".join(f"1{i:04},{i},{i}.0\n" for i in range(20))
    (tmp_path / "a.csv").write_text(f"zip,n,x\n{rows}02139,0,0.5\n", encoding=encoding)
    found = read(str(tmp_path / "a.csv"), Reading(csv={"encoding": encoding}))
    assert found.dtypes == [pl.String(), pl.Int64(), pl.Float64()]
    assert found["zip"][-1] == "02139"
    as_numbers = {"encoding": encoding, "schema_overrides": {"zip": pl.Int64}}
    assert read(str(tmp_path / "a.csv"), Reading(csv=as_numbers))["zip"][-1] == 2139


def test_zstd_is_read(tmp_path: Path) -> None:
    EXPECTED.write_csv(tmp_path / "a.csv.zst", compression="zstd")
    assert_frame_equal(read(str(tmp_path / "a.csv.zst")), EXPECTED)


@pytest.mark.parametrize(("mark", "shown"), [(";", ";"), ("\t", r"\\t"), ("|", r"\|")])
def test_a_header_in_one_column_is_an_error_with_the_remedy(tmp_path: Path, mark: str, shown: str) -> None:
    (tmp_path / "a.csv").write_text(f"a{mark}b\n1{mark}2\n")
    with pytest.raises(DataError, match=f'the header is one column.*separator "{shown}"'):
        arf_dask.fit(tmp_path / "a.csv")


def test_words_for_missing_values_make_numbers_and_are_mentioned_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text("n,x,s,word\n1,0.5,NA,NULL\nNA,N/A,b,NULL\n3, - ,c,NULL\n")
    with caplog.at_level(logging.WARNING):
        found = read(str(tmp_path / "a.csv"))
    assert found.to_dict(as_series=False) == {
        "n": [1, None, 3],
        "x": [0.5, None, None],
        "s": ["NA", "b", "c"],
        "word": ["NULL"] * 3,
    }
    assert found.schema["n"] == pl.Int64
    (message,) = caplog.messages
    assert "'NA' and 'N/A' and '-' read as missing in 'n', 'x'" in message


def test_null_values_are_the_callers_own_choice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.csv").write_text("n\n1\nNA\n")
    assert read(str(tmp_path / "a.csv"), Reading(csv={"null_values": ["?"]}))["n"].to_list() == ["1", "NA"]
    assert not caplog.messages


def test_fit_and_synthesize_take_the_options(tmp_path: Path) -> None:
    lines = "\n".join(f"{'ab'[i % 2]};{i % 9},5" for i in range(200))
    (tmp_path / "a.csv").write_text(f"s;x\n{lines}\n")
    options = {"separator": ";", "decimal": ","}
    assert arf_dask.fit(tmp_path / "a.csv", trees=3, seed=0, read_options=options).schema.names == ["s", "x"]
    twin = arf_dask.synthesize(tmp_path / "a.csv", 5, trees=3, seed=0, read_options=options)
    assert twin.schema == {"s": pl.String, "x": pl.Float64}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seperator": ";"}, "separator"),
        ({"decimal": ";"}, "decimal"),
        ({"separator": ";;"}, "one character"),
    ],
)
def test_options_that_cannot_be_used_are_refused(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(OptionError, match=words):
        read(str(tmp_path / "a.csv"), Reading(csv=options))


def test_a_wrong_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a\n\xff\n")
    with pytest.raises(DataError, match="'ascii'"):
        read(str(tmp_path / "a.csv"), Reading(csv={"encoding": "ascii"}))


def test_text_that_is_not_utf8_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("name,x\nZoë,1.5\nÜnal,2\n".encode("cp1252"))
    for read_it in (lambda path: read(path), lambda path: arf_dask.fit(path, allow_copies=True)):
        with pytest.raises(DataError, match="--encoding cp1252"):
            read_it(str(tmp_path / "a.csv"))


def test_words_for_missing_values_are_mentioned_once(tmp_path: Path) -> None:
    rows = "".join(f"{'NA' if i % 9 == 0 else i % 7},{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "a.csv").write_text("x,kind\n" + rows)
    words = ["synthesize", str(tmp_path / "a.csv"), "--to", str(tmp_path / "o.csv"), "-n", "5", "--trees", "2"]
    done = subprocess.run([sys.executable, "-m", "arf_dask", *words], capture_output=True, text=True, check=True)
    assert done.stderr.count("'NA' read as missing") == 1


@pytest.mark.parametrize(
    "url",
    ["https://user:S3CRET@127.0.0.1:1/a.csv", "http://127.0.0.1:1/a.csv?sig=S3CRET", "s3://key:S3CRET@lake/a.csv"],
)
def test_errors_of_stores_do_not_show_the_secrets_of_a_url(url: str) -> None:
    # Polars puts the URL into its messages, as it is and quoted.
    told = pl.exceptions.ComputeError(f"Error performing GET {url}, list?prefix=a.csv%3Fsig%3DS3CRET (path: {url})")
    shown = str(unreadable(url, told, Reading(storage={"secret": "0THER"}))) + str(public_cause(url, told))
    assert "S3CRET" not in shown
    assert "127.0.0.1" in shown or "lake" in shown


@pytest.mark.parametrize("retries", [1, "1"])
def test_numbers_among_storage_options_reach_polars_as_numbers(retries: object) -> None:
    store = {"key": "me", "secret": "S3CRET", "endpoint_url": "http://127.0.0.1:1", "region_name": "eu"}
    with pytest.raises(DataError, match="max_retries: 1") as told:
        arf_dask.fit("s3://lake/a.parquet", storage_options={**store, "max_retries": retries})
    assert "S3CRET" not in str(told.value)


@pytest.mark.parametrize("retries", ["many", -1, 1.5])
def test_what_is_no_number_among_storage_options_is_refused(retries: object) -> None:
    with pytest.raises(OptionError, match=rf"storage_options: max_retries is '{retries}'. Give a whole number") as told:
        arf_dask.fit("s3://me:S3CRET@lake/a.parquet", storage_options={"max_retries": retries})
    assert "S3CRET" not in str(told.value)
