"""Odd files, names and numbers: a right answer, or our error."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import arf_dask
from arf_dask.cli.description import inspection_lines
from arf_dask.data.files import read
from arf_dask.data.opening import open_parts
from arf_dask.errors import DataError, OptionError
from arf_dask.training import stages

OPTIONS: dict[str, Any] = {"trees": 2, "max_rounds": 1, "min_leaf": 5, "seed": 1}
FRAME = pl.DataFrame({"x": [i / 7 for i in range(200)]})


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    FRAME.write_parquet(path)


def test_the_column_of_a_partitioned_directory_is_learned(tmp_path: Path) -> None:
    for year, kind in ((2023, "a"), (2024, "b")):
        write(tmp_path / f"year={year}" / f"kind={kind}" / "part.parquet")
    model = arf_dask.fit(tmp_path, **OPTIONS)
    assert model.schema.names == ["x", "year", "kind"]
    drawn = model.sample(100, seed=1)
    assert set(drawn["year"]) == {2023, 2024}
    assert set(drawn["kind"]) == {"a", "b"}
    assert read(str(tmp_path)).columns == ["x", "year", "kind"]
    assert arf_dask.fit(tmp_path / "year=2023" / "kind=a", **OPTIONS).schema.names == ["x"]


def test_partitioned_csv_is_refused(tmp_path: Path) -> None:
    (tmp_path / "year=2023").mkdir()
    FRAME.write_csv(tmp_path / "year=2023" / "part.csv")
    with pytest.raises(DataError, match="'year=2023' hold values of a column"):
        arf_dask.fit(tmp_path, **OPTIONS)


def test_hidden_and_temporary_files_are_not_read(tmp_path: Path) -> None:
    for name in ("part.parquet", ".part.parquet", "_temporary/0/part.parquet", ".hidden/part.parquet"):
        write(tmp_path / name)
    with open_parts(tmp_path) as parts:
        assert parts.n_rows == 200


@pytest.mark.parametrize("path", ["", " ", ["", "a.parquet"]])
def test_an_empty_path_is_refused(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "part.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="path of the data is empty"):
        arf_dask.fit(path, **OPTIONS)


def test_types_come_from_the_first_csv_file_with_rows(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("x\n", encoding="ascii")
    FRAME.write_csv(tmp_path / "1.csv")
    (tmp_path / "2.csv").write_text("x\n", encoding="ascii")
    with open_parts(tmp_path) as parts:
        assert parts.dtypes == {"x": pl.Float64()}
        assert parts.n_rows == 200
    (tmp_path / "1.csv").unlink()
    with open_parts(tmp_path) as parts:
        assert parts.n_rows == 0


@pytest.mark.parametrize("values", [list(range(1_001)), [None] * 1_001])
def test_more_rows_than_trees_take_and_nothing_to_model(values: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "TRAINING_ROWS", 1_000)
    frame = pl.DataFrame({"id": pl.Series(values, dtype=pl.Int64)})
    drawn = arf_dask.synthesize(frame, 5, keys=["id"] if values[0] is not None else [], **OPTIONS)
    assert drawn["id"].to_list() == ([1_001, 1_002, 1_003, 1_004, 1_005] if values[0] is not None else [None] * 5)


def test_more_rows_than_fit_into_memory_are_refused_before_anything_is_learned() -> None:
    seen: list[str] = []
    with pytest.raises(OptionError, match="do not fit into the memory"):
        arf_dask.synthesize(FRAME, 10**11, progress=lambda stage, *_: seen.append(stage), **OPTIONS)
    assert not seen


def test_floats_over_all_decades_stay_inside_their_range() -> None:
    values = [10.0 ** (i % 600 - 300) for i in range(1_200)]
    drawn = arf_dask.synthesize(pl.DataFrame({"x": values}), 500, **OPTIONS)["x"]
    assert drawn.is_between(1e-300, 1e299).all()
    both = pl.DataFrame({"x": [1.7e308, -1.7e308, 5e-324, 0.0] * 50})
    assert arf_dask.synthesize(both, 500, **OPTIONS)["x"].is_finite().all()


def test_decimals_at_the_ends_of_their_type() -> None:
    ends = [Decimal("9" * 22 + "." + "9" * 16), Decimal("-" + "9" * 22 + "." + "9" * 16)]
    few = pl.DataFrame({"x": pl.Series([*ends, Decimal("1.5"), Decimal(0)] * 50, dtype=pl.Decimal(38, 16))})
    drawn = arf_dask.synthesize(few, 200, **OPTIONS)["x"]
    assert drawn.dtype == pl.Decimal(38, 16)
    assert drawn.null_count() == 0
    assert set(drawn) <= set(few["x"])
    many = [ends[0], ends[1], *(Decimal(i) * Decimal("1e19") for i in range(-200, 200))]
    frame = pl.DataFrame({"x": pl.Series(many, dtype=pl.Decimal(38, 16))})
    drawn = arf_dask.synthesize(frame, 200, **OPTIONS)["x"]
    assert drawn.null_count() == 0
    assert all(ends[1] <= value <= ends[0] for value in drawn)


def test_dates_that_python_cannot_hold(tmp_path: Path) -> None:
    days = pl.Series("day", [i * 50_000 for i in range(-200, 200)], dtype=pl.Int32)
    model = arf_dask.fit(pl.DataFrame([days.cast(pl.Date)]), **OPTIONS)
    drawn = model.sample(200, seed=1)["day"].cast(pl.Int32)
    assert drawn.is_between(-200 * 50_000, 199 * 50_000).all()
    model.save(tmp_path / "model")
    for flags in ([], ["--json"]):
        command = [sys.executable, "-m", "arf_dask", "inspect", str(tmp_path / "model"), *flags]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "day" in shown


def test_names_with_nul_are_refused() -> None:
    with pytest.raises(DataError, match=r"'a\\x00b' hold a NUL"):
        arf_dask.fit(FRAME.rename({"x": "a\0b"}), **OPTIONS)


def test_short_floats_of_pandas_come_back() -> None:
    drawn = arf_dask.synthesize(pd.DataFrame({"x": np.arange(200, dtype="float16")}), 50, **OPTIONS)
    assert drawn["x"].dtype == np.float16
    assert drawn["x"].between(0, 199).all()


def test_escapes_in_names_and_levels_are_shown_and_not_obeyed() -> None:
    frame = pl.DataFrame({"a\x1b[31m": ["b\x1b[2J", "c\u202e\n"] * 100, "x": FRAME["x"]})
    model = arf_dask.fit(frame, **OPTIONS)
    text = "".join(inspection_lines(model, "model", 1))
    assert text.isprintable()
    assert "a\\x1b[31m" in text
    assert "b\\x1b[2J, c\\u202e\\n" in text
    assert "\x1b" not in repr(model)
