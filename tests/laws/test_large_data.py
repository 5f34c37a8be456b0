"""Models of data larger than memory: the trees from a sample, everything else from all rows, however they are cut."""

import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arf_dask
from arf_dask.data import column_summary, parts, value_counts
from arf_dask.forest import leaf_sums, state_counts
from arf_dask.runtime import tasks
from arf_dask.storage.model_file import model_hash
from arf_dask.training import stages

ROWS, SAMPLE, SEED = 4_200, 700, 5
pytestmark = pytest.mark.filterwarnings("ignore::arf_dask.KeyColumnWarning")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of a few thousand rows are large."""
    monkeypatch.setattr(stages, "TRAINING_ROWS", SAMPLE)
    monkeypatch.setattr(value_counts, "MOST_DISTINCT", 500)
    monkeypatch.setattr(column_summary, "MOST_ATOMS", 100)


def shop(rows: int = ROWS, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.choice(list("abcde"), rows, p=[0.4, 0.3, 0.2, 0.08, 0.02])
    amount = pl.Series(np.where(rng.random(rows) < 0.3, 9.5, rng.lognormal(2, 1, rows)))
    minutes = np.sort(rng.integers(0, 60 * 24 * 20, rows))
    at = pl.Series(minutes).cast(pl.Int64) * 60_000_000
    return pl.DataFrame(
        {
            "id": np.arange(rows) * 3 + 11,
            "kind": kind,
            "group": [{"a": "x", "b": "x", "c": "y", "d": "y", "e": "z"}[k] for k in kind],
            "amount": amount.set(pl.Series(rng.random(rows) < 0.1), None),
            "price": np.round(rng.gamma(2, 10, rows) * (1 + (kind == "a")), 2),
            "n": rng.poisson(3, rows),
            "at": at.cast(pl.Datetime("us")),
            "name": [f"K-{i:05d}" for i in rng.permutation(rows)],
        }
    ).with_columns(day=pl.col("at").dt.date())


DATA = shop()


def fit(data: Any, **options: Any) -> Any:
    # Rules have tests of their own: here every column is modelled as it is.
    return arf_dask.fit(data, trees=3, seed=SEED, **{"find_rules": False, **options})


def sampled(rows: int = ROWS) -> Any:
    return stages.training_rows(rows, None, SEED)


def unseen(rows: int = ROWS) -> np.ndarray:
    """Rows that trees are not grown on."""
    return np.setdiff1d(np.arange(rows), sampled(rows))


def put(column: str, rows: np.ndarray, value: Any, data: pl.DataFrame = DATA) -> pl.DataFrame:
    """The data with another value in some rows."""
    here = pl.Series(np.isin(np.arange(data.height), rows))
    literal = pl.lit(value, dtype=data.schema[column])
    return data.with_columns(pl.when(here).then(literal).otherwise(column).alias(column))


def assert_same(one: Any, other: Any) -> None:
    assert str(one.schema) == str(other.schema)
    for a, b in zip(one._fitted.tables.trees, other._fitted.tables.trees, strict=True):
        assert all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))
    for mine, theirs in zip(one._fitted.tables.variables, other._fitted.tables.variables, strict=True):
        for name in ("first", "state", "rows"):
            assert np.array_equal(getattr(mine.entries, name), getattr(theirs.entries, name))
        for name in ("mu", "sigma"):  # of a normal far outside its box, rounding moves these more than its density
            np.testing.assert_allclose(getattr(mine.entries, name), getattr(theirs.entries, name), rtol=1e-8)
        assert np.array_equal(mine.histogram, theirs.histogram)
    for a, b in zip(one.schema.columns, other.schema.columns, strict=True):
        assert a.key == b.key
        assert a.axis == b.axis
    rows = one.sample(500, seed=SEED)
    first, second = (model.log_density(rows).to_numpy() for model in (one, other))
    assert np.isfinite(first).all()
    np.testing.assert_allclose(first, second, rtol=1e-9)


@pytest.fixture(scope="module")
def whole() -> Any:
    """The model of one part."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(stages, "TRAINING_ROWS", SAMPLE)
        patch.setattr(value_counts, "MOST_DISTINCT", 500)
        patch.setattr(column_summary, "MOST_ATOMS", 100)
        return fit(DATA)


@pytest.mark.parametrize("n", [2, 7, 200])
def test_the_model_is_the_same_for_any_number_of_files(tmp_path: Path, whole: Any, n: Any) -> None:
    for number in range(n):
        DATA.slice(number * ROWS // n, (number + 1) * ROWS // n - number * ROWS // n).write_parquet(
            tmp_path / f"{number:03d}.parquet"
        )
    assert_same(fit(tmp_path), whole)


@pytest.mark.parametrize("kind", ["frame", "file", "scan", "filter", "dask", "csv"])
def test_the_model_is_the_same_for_any_kind_of_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Any, kind: Any
) -> None:
    monkeypatch.setattr(parts, "CELLS", 6_000)
    DATA.write_parquet(tmp_path / "all.parquet", row_group_size=333)
    data: Any
    match kind:
        case "frame":
            data = DATA
        case "file":
            data = tmp_path / "all.parquet"
        case "scan":
            data = pl.scan_parquet(tmp_path / "all.parquet")
        case "filter":
            data = pl.scan_parquet(tmp_path / "all.parquet").filter(pl.col("n") >= 0)
        case "dask":
            dd = pytest.importorskip("dask.dataframe")
            frame = DATA.with_columns(pl.col("day").cast(pl.Datetime("us"))).to_pandas()
            model = fit(dd.from_pandas(frame, npartitions=5))
            assert_same(model, fit(pl.from_pandas(frame)))
            return
        case _:
            DATA.write_csv(tmp_path / "all.csv")
            data = tmp_path / "all.csv"
    assert_same(fit(data), whole)


@pytest.mark.parametrize("cells", [9 * 200, 9 * 1_000])
def test_the_same_partition_gives_the_same_bytes_for_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, cells: Any
) -> None:
    monkeypatch.setattr(parts, "CELLS", cells)
    hashes = []
    for threads in (1, 4):
        monkeypatch.setattr(tasks, "n_cores", lambda threads=threads: threads)
        hashes.append(model_hash(fit(DATA)._fitted))
    assert hashes[0] == hashes[1]


def test_a_sample_of_everything_gives_the_model_of_data_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_counts, "MOST_DISTINCT", 10_000)
    monkeypatch.setattr(parts, "CELLS", 9 * 500)
    monkeypatch.setattr(stages, "training_rows", lambda rows, *_: np.arange(rows))
    in_parts = fit(DATA)
    monkeypatch.setattr(stages, "training_rows", lambda *_: None)
    assert_same(in_parts, fit(DATA))


@pytest.mark.parametrize(("module", "limit"), [(leaf_sums, "BATCH_BYTES"), (state_counts, "DENSE_CELLS")])
def test_trees_one_by_one_and_counts_by_sorting_give_the_same_model(
    monkeypatch: pytest.MonkeyPatch, whole: Any, module: Any, limit: Any
) -> None:
    monkeypatch.setattr(module, limit, 1)
    monkeypatch.setattr(parts, "CELLS", 9 * 400)
    assert_same(fit(DATA), whole)


def test_synthesize_gives_as_many_rows_of_the_same_kind(tmp_path: Path) -> None:
    DATA.write_parquet(tmp_path / "a.parquet")
    drawn = arf_dask.synthesize(pl.scan_parquet(tmp_path / "a.parquet"), trees=2, max_rounds=0, seed=1)
    assert isinstance(drawn, pl.LazyFrame)
    rows = drawn.collect()
    assert rows.height == ROWS
    assert rows.schema == DATA.schema
    assert rows["at"].dt.date().equals(rows["day"], check_names=False)
    assert not set(rows["name"]) & set(DATA["name"])
    assert not set(rows["id"]) & set(DATA["id"])


# ---------------------------------------------------------------- what only rows outside the sample say


def test_levels_outside_the_sample_are_known() -> None:
    data = put("kind", unseen()[:9], "rare")
    model = fit(data, bundles=False)
    assert model.probability({"kind": "rare"}) == pytest.approx(9 / ROWS, rel=0.5)
    assert set(model.sample(200, given={"kind": "rare"}, seed=1)["kind"]) == {"rare"}


def test_combinations_outside_the_sample_are_known() -> None:
    data = put("group", unseen()[:9], "z")
    kind = data["kind"][int(unseen()[0])]
    model = fit(data)
    assert ["kind", "group"] in model.schema.bundles
    assert set(model.sample(50, given={"kind": kind, "group": "z"}, seed=1)["group"]) == {"z"}
    assert np.isfinite(model.log_density(data).to_numpy()).all()


@pytest.mark.parametrize(("column", "value"), [("amount", 1e6), ("amount", -50.0), ("price", 9_999.99), ("n", 77)])
def test_bounds_come_from_all_rows(column: Any, value: Any) -> None:
    data = put(column, unseen()[:1], value)
    axis = next(c.axis for c in fit(data).schema.columns if c.name == column)
    ends = axis.from_axis(np.array([axis.low, axis.high]), data.schema[column])
    assert value in ends.to_list()


@pytest.mark.parametrize("column", ["price", "n", "kind"])
def test_nulls_outside_the_sample_are_known(column: Any) -> None:
    model = fit(put(column, unseen()[:30], None))
    assert model.probability({column: None}) == pytest.approx(30 / ROWS, rel=0.5)


def test_not_a_number_outside_the_sample_is_known() -> None:
    model = fit(put("price", unseen()[:3], float("nan")))
    assert next(c.nans for c in model.schema.columns if c.name == "price") == 3


def test_infinite_values_of_any_part_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "CELLS", 900)
    with pytest.raises(arf_dask.DataError, match=r"'amount': 1, 'price': 2"):
        fit(put("amount", unseen()[:1], float("inf"), put("price", unseen()[5:7], float("-inf"))))


def test_more_digits_outside_the_sample_are_kept() -> None:
    axis = next(c.axis for c in fit(put("price", unseen()[:1], 1.2345)).schema.columns if c.name == "price")
    assert axis.decimals == 4


def test_numbers_beside_a_spike_are_no_spikes() -> None:
    rng = np.random.default_rng(3)
    amount = np.where(rng.random(ROWS) < 0.5, 0.0, rng.uniform(500, 900, ROWS))
    amount[unseen()[:4]] = [3.0, 1e-9, 0.5, -1.0]
    data = pl.DataFrame({"amount": amount, "x": rng.normal(size=ROWS)})
    model = fit(data)
    zeros = model.probability({"amount": 0.0})
    assert zeros == pytest.approx((amount == 0).mean(), abs=0.002)
    assert np.isfinite(model.log_density(data).to_numpy()).all()
    drawn = model.sample(20_000, seed=1)["amount"]
    assert drawn.min() >= -1.0
    assert (drawn == 0).mean() == pytest.approx(zeros, abs=0.02)


def test_a_column_that_is_no_step_in_all_rows_stays_on_its_own() -> None:
    assert ["at", "day"] in fit(DATA).schema.bundles
    shifted = put("day", unseen()[:2], DATA["day"].max() + timedelta(days=1))
    model = fit(shifted)
    assert ["at", "day"] not in model.schema.bundles
    assert np.isfinite(model.log_density(shifted).to_numpy()).all()


def test_columns_with_more_levels_than_are_counted_keep_them_all() -> None:
    rng = np.random.default_rng(0)
    names = rng.integers(0, 1_500, ROWS)
    data = pl.DataFrame({"name": pl.Series(names).cast(pl.String), "x": rng.normal(size=ROWS)})
    model = fit(data)
    assert model.schema.columns[0].kind == "categorical"
    assert set(model.schema.columns[0].levels) == set(data["name"])


def test_bundles_named_by_the_caller_keep_all_values() -> None:
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 2_000, ROWS)
    data = pl.DataFrame({"wide": wide, "half": wide // 2, "x": rng.normal(size=ROWS)})
    model = fit(data, bundles=[["wide", "half"]])
    drawn = model.sample(3_000, seed=2)
    assert (drawn["wide"] // 2).equals(drawn["half"], check_names=False)


# ---------------------------------------------------------------- identifiers


def test_integers_that_are_unique_in_the_sample_only_are_no_key() -> None:
    rng = np.random.default_rng(0)
    values = np.arange(ROWS)
    values[unseen()] = rng.integers(10_000, 12_000, len(unseen()))
    data = pl.DataFrame({"v": values, "x": rng.normal(size=ROWS)})
    assert fit(data).schema.keys == []


def test_strings_that_repeat_outside_the_sample_are_no_key() -> None:
    values = np.arange(ROWS)
    values[unseen()] = values[unseen()] % 900
    data = pl.DataFrame({"v": pl.Series(values).cast(pl.String), "x": np.random.default_rng(0).normal(size=ROWS)})
    assert fit(data).schema.keys == []


def test_counters_go_on_above_the_highest_value_of_all_rows() -> None:
    last = int(unseen()[-1])
    data = put("name", np.array([last]), "K-07777", put("id", np.array([last]), 20_000))
    drawn = fit(data).sample(50, seed=1)
    assert drawn["id"].min() > 20_000
    assert drawn["name"].min() > "K-07777"


def test_fresh_codes_are_no_copies_of_codes_outside_the_sample() -> None:
    rng = np.random.default_rng(1)
    codes = rng.choice(100_000, ROWS, replace=False)
    data = pl.DataFrame({"code": pl.Series(codes).cast(pl.String).str.zfill(5), "x": rng.normal(size=ROWS)})
    model = fit(data)
    assert model.schema.keys == ["code"]
    drawn = model.sample(5_000, seed=1)["code"]
    assert drawn.n_unique() == 5_000
    assert not set(drawn) & set(data["code"])


def test_keys_told_by_the_caller_need_not_be_unique() -> None:
    data = put("name", unseen()[:100], None)
    model = fit(data, keys=["name", "n"])
    assert model.schema.keys == ["id", "n", "name"]
    assert model.sample(2_000, seed=1)["name"].null_count() == pytest.approx(2_000 * 100 / ROWS, abs=30)


# ---------------------------------------------------------------- stages one by one


def test_forde_on_parts_is_forde_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    data, other = shop(1_500, 1).drop("id", "name", "day"), shop(1_200, 2).drop("id", "name", "day")
    known = other.filter(pl.col("n").is_in(data["n"].implode()) & pl.col("kind").is_in(data["kind"].implode()))
    forest = arf_dask.adversarial_forest(data, trees=3, seed=SEED, bundles=False, max_rounds=0)
    monkeypatch.setattr(parts, "CELLS", 900)
    in_parts = arf_dask.forde(forest, known)
    monkeypatch.setattr(stages, "TRAINING_ROWS", 10**6)
    in_memory = arf_dask.forde(forest, known)
    assert in_parts.leaves["rows"].min() >= 10
    assert_same(in_parts, in_memory)


def test_forde_names_what_does_not_fit_the_forest() -> None:
    forest = arf_dask.adversarial_forest(DATA, trees=2, seed=0, max_rounds=0)
    with pytest.raises(arf_dask.DataError, match="'price'"):
        arf_dask.forde(forest, DATA.drop("price"))


def test_columns_of_every_type_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "CELLS", 3_000)
    rng = np.random.default_rng(0)
    whole_numbers = rng.integers(0, 10**6, 1_500)
    values = pl.Series(whole_numbers).cast(pl.Int64)
    data = pl.DataFrame(
        {
            "decimal": (values / 100).cast(pl.Decimal(20, 2)),
            "i128": values.cast(pl.Int128) * pl.Series([10**25], dtype=pl.Int128),
            "hash": pl.Series(rng.integers(0, 2**63, 200)[rng.integers(0, 200, 1_500)]),
            "f16": pl.Series(rng.normal(size=1_500)).cast(pl.Float32).cast(pl.Float16),
            "time": (values * 1_000).cast(pl.Time),
            "duration": values.cast(pl.Duration("ms")),
            "stamp": (values * 10**9).cast(pl.Datetime("ns", "Europe/Berlin")),
            "enum": pl.Series(rng.choice(["a", "b"], 1_500), dtype=pl.Enum(["a", "b", "c"])),
            "category": (values % 300).cast(pl.String).cast(pl.Categorical),
            "null": pl.Series([None] * 1_500, dtype=pl.Null),
            "constant": pl.Series([7] * 1_500),
            "^x$": pl.Series(rng.normal(size=1_500)),
            "nan": pl.Series([float("nan")] * 1_500),
            "huge": pl.Series(rng.normal(size=1_500) * 1e200),
        }
    )
    model = fit(data, max_rounds=0)
    assert model.sample(100, seed=1).schema == data.schema
    assert np.isfinite(model.log_density(data).to_numpy()).all()
    assert_same(fit(data.lazy().filter(pl.col("constant") > 0), max_rounds=0), model)
