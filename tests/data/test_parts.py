"""Data larger than memory: how they are cut, and what the parts say of the whole."""

import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.data import opening, parts
from arf_dask.data.opening import open_parts
from arf_dask.data.parts import FilePart, FramePart, ScanPart, group_parts
from arf_dask.errors import DataError

FRAME = pl.DataFrame({"n": range(1_000), "s": ["a", "b"] * 500, "x": np.linspace(0, 1, 1_000)})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "CELLS", 300)  # 100 rows of three columns


def whole(data: Any) -> pl.DataFrame:
    with open_parts(data) as opened:
        assert all(part.rows <= 100 for part in opened.items)
        assert sum(part.rows for part in opened.items) == opened.n_rows
        return pl.concat([part.load() for part in opened.items])


def files(folder: Path, n: int, **options: Any) -> Path:
    rows = FRAME.height // n
    for number in range(n):
        FRAME.slice(number * rows, rows).write_parquet(folder / f"part-{number:03d}.parquet", **options)
    return folder


@pytest.mark.parametrize("group", [7, 30, 100, 101, 1_000])
def test_a_file_is_cut_whatever_its_row_groups(tmp_path: Path, group: Any) -> None:
    FRAME.write_parquet(tmp_path / "a.parquet", row_group_size=group)
    assert_frame_equal(whole(tmp_path / "a.parquet"), FRAME)
    with open_parts(tmp_path / "a.parquet") as opened:
        assert all(isinstance(part, FilePart) for part in opened.items)


def test_every_kind_of_data_has_the_same_rows_in_parts(tmp_path: Path) -> None:
    dd = pytest.importorskip("dask.dataframe")
    folder = files(tmp_path, 20)
    FRAME.write_csv(tmp_path / "all.csv")
    kinds = {
        "frame": FRAME,
        "lazy": FRAME.lazy(),
        "plan": FRAME.lazy().filter(pl.col("n") >= 0),
        "scan": pl.scan_parquet(folder / "*.parquet"),
        "filtered scan": pl.scan_parquet(folder / "*.parquet").filter(pl.col("n") >= 0),
        "directory": folder,
        "glob": f"{folder}/part-*.parquet",
        "csv": tmp_path / "all.csv",
        "arrow": FRAME.to_arrow(),
        "dask": dd.from_pandas(FRAME.to_pandas(), npartitions=11),
    }
    for name, data in kinds.items():
        found = whole(data)
        assert found.columns == FRAME.columns, name
        assert_frame_equal(found.sort("n"), FRAME)


def test_a_bare_scan_is_read_in_place_and_a_plan_is_spooled(tmp_path: Path) -> None:
    folder = files(tmp_path, 3)
    with open_parts(pl.scan_parquet(folder)) as opened:
        assert all(isinstance(part, ScanPart) for part in opened.items)
    for plan in (pl.scan_parquet(folder, n_rows=500), pl.scan_parquet(folder).select("n", "s", y="x")):
        with open_parts(plan) as opened:
            assert all(isinstance(part, FilePart) for part in opened.items)
            assert_frame_equal(opened.frame(), plan.collect())


def test_parts_travel(tmp_path: Path) -> None:
    with open_parts(files(tmp_path, 4)) as opened, open_parts(pl.scan_parquet(tmp_path)) as scanned:
        for part in (*opened.items, *scanned.items):
            again = pickle.loads(pickle.dumps(part))
            assert_frame_equal(again.load(["x"]), part.load().select("x"))


def test_slices_of_a_frame_share_its_memory() -> None:
    with open_parts(FRAME) as opened:
        assert all(isinstance(part, FramePart) for part in opened.items)
        second: Any = opened.items[1]
        assert second.frame["n"].to_numpy().base is not None
        assert len(opened.items) == 10


def test_groups_hold_neighbours_and_know_their_first_row() -> None:
    with open_parts(FRAME) as opened:
        groups = group_parts(opened, 3 * 250)
    assert [group.first for group in groups] == [0, 200, 400, 600, 800]
    assert [len(group.parts) for group in groups] == [2] * 5


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_spool_is_gone_after_success_error_and_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        with open_parts(FRAME.lazy().filter(pl.col("n") > 3)) as opened:
            assert list(tmp_path.rglob("*.parquet"))
            assert opened.n_rows == 996
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    assert not list(tmp_path.iterdir())


def test_large_csv_is_spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "IN_MEMORY", 10)
    for number in range(3):
        FRAME.slice(number * 300, 300).write_csv(tmp_path / f"{number}.csv")
    with open_parts(tmp_path) as opened:
        assert all(isinstance(part, FilePart) for part in opened.items)
        assert_frame_equal(opened.frame(), FRAME.head(900))


def test_names_that_look_like_patterns_are_names(tmp_path: Path) -> None:
    odd = FRAME.rename({"x": "^x$", "s": "*"})
    odd.write_parquet(tmp_path / "a.parquet")
    for data in (odd, tmp_path, pl.scan_parquet(tmp_path), odd.lazy().slice(0, 900)):
        with open_parts(data) as opened:
            assert_frame_equal(opened.items[3].load(), odd[300:400])
            assert_frame_equal(opened.items[3].load(["^x$", "n"]), odd[300:400, ["^x$", "n"]])


def test_types_that_arrow_does_not_know_are_read(tmp_path: Path) -> None:
    wide = FRAME.with_columns(pl.col("n").cast(pl.Int128) * 10**30)
    wide.write_parquet(tmp_path / "a.parquet")
    assert_frame_equal(whole(tmp_path), wide)
    assert_frame_equal(whole(wide.lazy().filter(pl.col("x") >= 0)), wide)


def test_a_column_of_nulls_alone_goes_with_any_type(tmp_path: Path) -> None:
    FRAME.head(5).with_columns(s=None).write_parquet(tmp_path / "a.parquet")
    FRAME.head(5).write_parquet(tmp_path / "b.parquet")
    with open_parts(tmp_path) as opened:
        assert opened.dtypes["s"] == pl.String
        assert opened.frame()["s"].null_count() == 5


def test_partitions_of_whole_numbers_and_of_floats_are_floats() -> None:
    dd = pytest.importorskip("dask.dataframe")
    frames = [pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [1.5, None]})]
    data = dd.concat([dd.from_pandas(frame, npartitions=1) for frame in frames])
    assert whole(data)["n"].to_list() == [1.0, 2.0, 1.5, None]


# ---------------------------------------------------------------- what cannot be read


def refused(data: Any, *words: str) -> None:
    with pytest.raises(DataError) as caught:
        arf_dask.fit(data)
    for word in words:
        assert word in str(caught.value)


def test_a_glob_without_files_is_named(tmp_path: Path) -> None:
    refused(tmp_path / "*.parquet", "*.parquet", "Check the path")


def test_an_empty_directory_is_named(tmp_path: Path) -> None:
    refused(tmp_path, str(tmp_path), "no Parquet or CSV file")


def test_a_mixed_glob_is_refused(tmp_path: Path) -> None:
    FRAME.write_csv(tmp_path / "a.csv")
    FRAME.write_parquet(tmp_path / "b.parquet")
    refused(f"{tmp_path}/*", "CSV and other files")


def test_a_directory_of_csv_files_works(tmp_path: Path) -> None:
    for number in range(2):
        FRAME.slice(number * 500, 500).write_csv(tmp_path / f"{number}.csv")
    assert_frame_equal(whole(tmp_path), FRAME)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (FRAME.drop("s"), ["lacks 's'"]),
        (FRAME.with_columns(y=1), ["also has 'y'"]),
        (FRAME.with_columns(pl.col("n").cast(pl.Float64)), ["'n' is Float64, not Int64"]),
    ],
)
def test_files_of_different_schemas_are_told_apart(tmp_path: Path, other: Any, words: Any) -> None:
    FRAME.write_parquet(tmp_path / "a.parquet")
    other.write_parquet(tmp_path / "b.parquet")
    refused(tmp_path, "b.parquet", "a.parquet", *words, "same columns and types")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    files(tmp_path, 2)
    (tmp_path / "part-001.parquet").write_bytes(b"no parquet at all")
    refused(tmp_path, "part-001.parquet", "Restore the file")


def test_a_file_damaged_inside_is_named(tmp_path: Path) -> None:
    files(tmp_path, 2, compression="zstd")
    target = tmp_path / "part-001.parquet"
    data = bytearray(target.read_bytes())
    data[4:400] = bytes(396)
    target.write_bytes(data)
    refused(tmp_path, "part-001.parquet", "Restore the file")


def test_a_file_that_changes_meanwhile_is_named(tmp_path: Path) -> None:
    target = files(tmp_path, 1) / "part-000.parquet"
    with open_parts(tmp_path) as opened:
        FRAME.head(120).write_parquet(target)
        with pytest.raises(DataError, match=r"part-000.parquet: changed while it was read"):
            opened.items[1].load()


def test_a_plan_that_fails_is_told() -> None:
    refused(FRAME.lazy().select(pl.col("s").cast(pl.Int64)), "LazyFrame cannot be read", "collect()")


def test_csv_files_of_other_columns_are_refused(tmp_path: Path) -> None:
    FRAME.write_csv(tmp_path / "a.csv")
    FRAME.drop("s").write_csv(tmp_path / "b.csv")
    refused(tmp_path, str(tmp_path), "same columns")
