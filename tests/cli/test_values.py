"""Options of the command line as people write them."""

import io
import subprocess
import sys
from pathlib import Path

import click
import polars as pl
import pytest

from arf_dask.cli.values import RowCount, readable_sources

LINES = "".join(f"{'ab'[i % 2]};{i % 9},5\n" for i in range(200))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("7", 7),
        ("1_000_000", 10**6),
        ("1e6", 10**6),
        ("1E+3", 1_000),
        ("10M", 10**7),
        ("1.5k", 1_500),
        ("2b", 2 * 10**9),
        ("9007199254740993", 2**53 + 1),
        ("0", 0),
    ],
)
def test_numbers_of_rows(text: str, rows: int) -> None:
    assert RowCount().convert(text, None, None) == rows


@pytest.mark.parametrize("text", ["-1", "1.5", "ten", "1e-3", "", "1e9999", "1e99", "M", "_1"])
def test_what_is_no_number_of_rows_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="rows"):
        RowCount().convert(text, None, None)


def arf_dask(*words: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "arf_dask", *map(str, words)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_a_table_from_stdin_to_stdout() -> None:
    words = ("--separator", ";", "--decimal", ",", "--trees", 3, "--seed", 0)
    done = arf_dask("synthesize", "-", "--to", "-", "-n", "1e2", *words, text=f"s;x\n{LINES}")
    assert done.returncode == 0, done.stderr
    rows = pl.read_csv(done.stdout.encode())
    assert rows.schema == {"s": pl.String, "x": pl.Float64}
    assert rows.height == 100


def test_parquet_from_stdin_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pl.DataFrame({"n": [1, 2]})
    frame.write_parquet(sent := io.BytesIO())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(sent.getvalue())))
    with readable_sources(["-"]) as paths:
        assert pl.read_parquet(paths[0]).equals(frame)


def test_a_wrong_separator_and_a_wrong_ending_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"s;x\n{LINES}")
    done = arf_dask("synthesize", tmp_path / "a.csv", "--to", tmp_path / "b.csv")
    assert (done.returncode, "--separator" in done.stderr) == (1, True)
    done = arf_dask("synthesize", tmp_path / "a.csv", "--to", tmp_path / "b.xlsx")
    assert (done.returncode, ".xlsx" in done.stderr) == (1, True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_urls_are_places_for_everything(tmp_path: Path) -> None:
    # file:// is a URL that needs no server; tests/storage/test_s3.py has the others.
    (tmp_path / "a.csv").write_text("s,x\n" + LINES.replace(",", ".").replace(";", ","))
    root = f"file://{tmp_path}"
    done = arf_dask("fit", f"{root}/a.csv", "--model", f"{root}/m", "--trees", 3, "--seed", 0)
    assert done.returncode == 0, done.stderr
    done = arf_dask("sample", f"{root}/m", "--to", f"{root}/out", "-n", "1k", "--portable")
    assert done.returncode == 0, done.stderr
    assert pl.read_parquet(tmp_path / "out").height == 1_000
