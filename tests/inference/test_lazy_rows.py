"""Rows that are drawn when they are read: the same rows as of `sample`, and no more of them than needed."""

import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.errors import ImpossibleConditionError, OptionError
from arf_dask.inference import dask_rows, row_plan
from arf_dask.inference.forge import BLOCK_ROWS

DATA = pl.DataFrame(
    {
        "kind": ["a", "b", "c"] * 100,
        "x": [i / 7 for i in range(300)],
        "n": [None if i % 9 == 0 else i % 5 for i in range(300)],
    }
)
ROWS = 2 * BLOCK_ROWS + 100


@pytest.fixture(scope="module")
def model() -> Any:
    return arf_dask.fit(DATA, trees=3, seed=0)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The numbers of the blocks that are drawn."""
    numbers: list[int] = []
    draw = row_plan.RowPlan.draw

    def counted(plan: row_plan.RowPlan, block: Any) -> pl.DataFrame:
        numbers.append(block.number)
        return draw(plan, block)

    monkeypatch.setattr(row_plan.RowPlan, "draw", counted)
    return numbers


def test_a_lazy_sample_has_the_rows_of_an_eager_one(model: Any) -> None:
    assert_frame_equal(model.sample(ROWS, seed=1, frame="lazy").collect(), model.sample(ROWS, seed=1))
    given = {"kind": "b"}
    lazy = model.sample(1_000, given=given, seed=1, frame="lazy")
    assert_frame_equal(lazy.collect(), model.sample(1_000, given=given, seed=1))


def test_nothing_is_drawn_before_it_is_needed_and_no_more_than_that(model: Any, drawn: Any) -> None:
    lazy = model.sample(10**12, seed=1, frame="lazy")
    assert lazy.collect_schema() == DATA.schema
    assert drawn == []
    first_rows = lazy.select("n", "kind").head(10).collect()
    assert drawn == [0]
    assert_frame_equal(first_rows, model.sample(BLOCK_ROWS, seed=1).select("n", "kind").head(10))


def test_filters_columns_and_counts_are_those_of_the_rows(model: Any) -> None:
    lazy, rows = model.sample(5_000, seed=2, frame="lazy"), model.sample(5_000, seed=2)
    assert_frame_equal(
        lazy.filter(pl.col("x") > 20).select("kind").collect(), rows.filter(pl.col("x") > 20).select("kind")
    )
    assert lazy.select(pl.len()).collect().item() == 5_000
    assert lazy.filter(pl.col("kind") == "a").head(3).collect().height == 3


def test_a_frame_of_conditions_can_be_lazy(model: Any) -> None:
    given = pl.DataFrame({"kind": ["a", "c"]})
    rows = model.sample(4, given=given, seed=1, frame="lazy").collect()
    assert rows["kind"].to_list() == ["a"] * 4 + ["c"] * 4


def test_an_impossible_condition_is_an_error_at_once(model: Any) -> None:
    with pytest.raises(ImpossibleConditionError):
        model.sample(5, given={"x": (1_000.0, 2_000.0)}, frame="lazy")


def test_no_rows_are_a_frame_too(model: Any) -> None:
    assert model.sample(0, frame="lazy").collect().schema == DATA.schema
    assert model.sample(0, frame="dask").compute().shape == (0, 3)


def test_a_lazy_frame_gives_a_lazy_twin_and_sinks(tmp_path: Path, drawn: Any) -> None:
    twin = DATA.lazy().pipe(arf_dask.synthesize, n=10**9, trees=3, seed=0)
    assert isinstance(twin, pl.LazyFrame)
    assert drawn == []
    twin = DATA.lazy().arf.synthesize(ROWS, trees=3, seed=0)  # type: ignore[attr-defined]
    twin.sink_parquet(tmp_path / "twin.parquet")
    assert_frame_equal(pl.read_parquet(tmp_path / "twin.parquet"), arf_dask.synthesize(DATA, ROWS, trees=3, seed=0))


def test_a_plan_travels(model: Any) -> None:
    plan = row_plan.plan_rows(model._sampler, 100, {"kind": "a"}, "raise", 3)
    again = pickle.loads(pickle.dumps(plan))
    assert_frame_equal(pl.concat(again.read(0, 100)), model.sample(100, given={"kind": "a"}, seed=3))


@pytest.mark.parametrize("frame", ["polars", "pandas", "arrow"])
def test_rows_come_as_the_kind_that_is_asked_for(model: Any, frame: Any) -> None:
    rows = model.sample(50, seed=1, frame=frame)
    kind: Any = {"polars": pl.DataFrame, "pandas": pd.DataFrame, "arrow": pa.Table}[frame]
    assert isinstance(rows, kind)
    assert_frame_equal(
        pl.DataFrame(rows) if frame != "pandas" else pl.from_pandas(rows).cast(DATA.schema), model.sample(50, seed=1)
    )


def test_other_kinds_are_refused(model: Any) -> None:
    with pytest.raises(OptionError, match="'polars', 'pandas', 'arrow', 'lazy', 'dask'"):
        model.sample(5, frame="spark")


def test_a_dask_sample_is_made_partition_by_partition(model: Any, drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_rows, "PARTITION_ROWS", BLOCK_ROWS)
    lazy = model.sample(ROWS, seed=1, frame="dask")
    assert lazy.npartitions == 3
    assert lazy.known_divisions
    assert drawn == []
    last = lazy.partitions[2].compute(scheduler="synchronous")
    assert drawn == [2]
    assert last.index.tolist() == list(range(2 * BLOCK_ROWS, ROWS))
    assert_frame_equal(pl.from_pandas(last).cast(DATA.schema), model.sample(ROWS, seed=1).tail(100))


def test_a_slice_of_a_huge_dask_sample_draws_its_own_block_alone(
    model: Any, drawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_rows, "PARTITION_ROWS", BLOCK_ROWS)
    first = 500 * BLOCK_ROWS + 7
    rows = model.sample(1_000 * BLOCK_ROWS, seed=1, frame="dask").loc[first : first + 4]
    assert rows.compute(scheduler="synchronous").index.tolist() == list(range(first, first + 5))
    assert drawn == [500]


def test_a_dask_twin_has_the_dtypes_of_the_data() -> None:
    dd = pytest.importorskip("dask.dataframe")
    data = pd.DataFrame({"n": [i % 9 for i in range(300)], "s": ["a", "b", "c"] * 100})
    twin = arf_dask.synthesize(dd.from_pandas(data, npartitions=2), 10**9, trees=3, seed=0)
    assert twin.npartitions == -(-(10**9) // dask_rows.PARTITION_ROWS)
    head = twin.head(5)
    assert head.dtypes.to_dict() == twin.dtypes.to_dict()
    assert set(head["s"]) <= {"a", "b", "c"}
