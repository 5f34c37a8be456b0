"""Several tables: references exist, keys are unique, time goes forward, and rules hold in every row."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from distributed import LocalCluster
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.errors import DataError, ModelFormatError, OptionError, OutputError
from tests.relational.shop import REFERENCES, make_shop

FAST: dict[str, Any] = {"trees": 5, "refine": False}


@pytest.fixture(scope="module")
def shop() -> dict[str, pl.DataFrame]:
    return make_shop()


@pytest.fixture(scope="module")
def model(shop: dict[str, pl.DataFrame]) -> arf_dask.TablesModel:
    return arf_dask.fit_tables(
        shop,
        keys={"customers": "id", "orders": "id"},
        references=REFERENCES,
        fixed=["products"],
        rules={"items": ["amount == price * quantity"]},
        seed=1,
        **FAST,
    )


@pytest.fixture(scope="module")
def twin(model: arf_dask.TablesModel) -> dict[str, pl.DataFrame]:
    return model.sample(seed=2)


def test_tables_have_the_columns_and_types_of_the_data(shop: Any, twin: Any) -> None:
    assert list(twin) == list(shop)
    assert {name: frame.schema for name, frame in twin.items()} == {name: frame.schema for name, frame in shop.items()}


def test_every_reference_exists_and_every_key_is_unique_and_new(shop: Any, twin: Any) -> None:
    assert twin["orders"]["customer_id"].is_in(twin["customers"]["id"].implode()).all()
    assert twin["items"]["order_id"].is_in(twin["orders"]["id"].implode()).all()
    assert twin["items"]["sku"].is_in(shop["products"]["sku"].implode()).all()
    for name in ("customers", "orders"):
        assert twin[name]["id"].is_unique().all()
        assert not twin[name]["id"].is_in(shop[name]["id"].implode()).any()


def test_a_fixed_table_stays_as_it_is(shop: Any, twin: Any) -> None:
    assert twin["products"].equals(shop["products"])


def test_orders_follow_each_other_and_their_customer(twin: Any) -> None:
    orders = twin["orders"].join(twin["customers"], left_on="customer_id", right_on="id", maintain_order="left")
    assert (orders["created"].dt.date() >= orders["joined"]).all()
    steps = orders.select(pl.col("created").diff().over("customer_id").drop_nulls()).to_series()
    assert steps.dt.total_seconds().min() >= 0


def test_a_date_of_the_parent_is_never_undercut() -> None:
    rng = np.random.default_rng(1)
    start = pl.Series(rng.integers(0, 500, 300)).cast(pl.Int32).cast(pl.Date)
    parents = pl.DataFrame({"id": np.arange(300), "start": start})
    owner = np.repeat(np.arange(300), 2)
    days = (start.cast(pl.Int32).gather(owner) + rng.integers(0, 30, 600)).cast(pl.Int32).cast(pl.Date)
    visits = pl.DataFrame({"parent_id": owner, "day": days, "kind": rng.choice(["a", "b"], 600)})
    model = arf_dask.fit_tables({"parents": parents, "visits": visits}, seed=1, **FAST)
    twin = model.sample(500, seed=2)
    joined = twin["visits"].join(twin["parents"], left_on="parent_id", right_on="id")
    assert (joined["day"] >= joined["start"]).all()


def test_rules_of_a_child_hold_in_every_row(twin: Any) -> None:
    wrong = (twin["items"]["price"] * twin["items"]["quantity"] - twin["items"]["amount"]).abs() > 0.006
    assert not wrong.any()


def test_numbers_of_children_depend_on_the_parent(twin: Any) -> None:
    orders = twin["customers"].join(twin["orders"], left_on="id", right_on="customer_id", how="left", suffix="_order")
    counts = orders.group_by("country").agg(mean=pl.col("id_order").count() / pl.col("id").n_unique())
    means = dict(counts.iter_rows())
    assert means["DE"] > 2 * means["FR"]  # 3 orders on average, and 1


def test_the_same_seed_gives_the_same_tables(model: Any, twin: Any) -> None:
    again = model.sample(seed=2)
    assert all(again[name].equals(twin[name]) for name in twin)
    assert not model.sample(seed=3)["customers"].equals(twin["customers"])


def test_a_condition_on_roots_holds(model: Any) -> None:
    twin = model.sample(30, given={"customers": {"country": "IT"}}, seed=1)
    assert twin["customers"]["country"].to_list() == ["IT"] * 30


def test_a_saved_model_draws_the_same_tables(model: Any, twin: Any, tmp_path: Any) -> None:
    model.save(tmp_path / "shop")
    loaded = arf_dask.load(tmp_path / "shop")
    assert isinstance(loaded, arf_dask.TablesModel)
    again = loaded.sample(seed=2)
    assert all(again[name].equals(twin[name]) for name in twin)
    assert repr(loaded) == repr(model)
    model.save(tmp_path / "shop")  # replaces it


def test_a_changed_model_is_refused(model: Any, tmp_path: Any) -> None:
    model.save(tmp_path / "shop")
    file = tmp_path / "shop" / "tables.json"
    file.write_text(file.read_text().replace('"country"', '"county"'))
    with pytest.raises(ModelFormatError, match="SHA-256"):
        arf_dask.load(tmp_path / "shop")


def test_keys_and_references_are_found(shop: Any) -> None:
    tables = {name: shop[name] for name in ("customers", "orders", "items")}
    tables["items"] = tables["items"].drop("sku", "amount")
    model = arf_dask.fit_tables(tables, seed=1, **FAST)
    assert model.references == {"orders.customer_id": "customers", "items.order_id": "orders"}
    assert model.keys == {"customers": "id", "orders": "id"}
    assert model.order == {"orders": "created"}


def test_keys_stay_unique_in_several_blocks(model: Any) -> None:
    fitted = model._fitted
    small = type(fitted)(**{**vars(fitted), "block_roots": {"customers": 16}})
    twin = arf_dask.TablesModel(small).sample(100, seed=1)
    for name in ("customers", "orders"):
        assert twin[name]["id"].is_unique().all()
    assert twin["customers"].height == 100
    assert twin["orders"]["customer_id"].is_in(twin["customers"]["id"].implode()).all()


def test_links_to_a_drawn_table_keep_what_depends_on_them(shop: Any) -> None:
    """Toys are bought once, food five times: the quantity tells which kind a product is of."""
    items = shop["items"].join(shop["products"].select("sku", "kind"), on="sku", maintain_order="left")
    items = items.select("order_id", "sku", quantity=pl.when(pl.col("kind") == "toy").then(1).otherwise(5))
    tables = {**shop, "items": items}
    model = arf_dask.fit_tables(tables, references=REFERENCES, seed=1, **FAST)
    twin = model.sample(seed=1)
    assert twin["items"]["sku"].is_in(twin["products"]["sku"].implode()).all()
    joined = twin["items"].join(twin["products"], on="sku")
    is_right = (joined["quantity"] == 1) == (joined["kind"] == "toy")
    assert is_right.mean() > 0.9


def test_managers_form_a_hierarchy() -> None:
    manager = [None, *[0] * 5, *[1 + i % 5 for i in range(60)], *[6 + i % 60 for i in range(200)]]
    staff = pl.DataFrame({"id": range(266), "manager_id": manager, "pay": [100 - i // 3 for i in range(266)]})
    model = arf_dask.fit_tables(
        {"staff": staff}, keys={"staff": "id"}, references={"staff.manager_id": "staff"}, **FAST
    )
    twin = model.sample(300, seed=1)["staff"]
    above = dict(zip(twin["id"], twin["manager_id"], strict=True))
    assert all(manager is None or manager in above for manager in above.values())
    for person in above:
        seen = set()
        while person is not None:
            assert person not in seen
            seen.add(person)
            person = above[person]


def test_frames_of_other_kinds_come_back(shop: Any) -> None:
    tables = {"customers": shop["customers"].to_pandas(), "orders": shop["orders"].lazy()}
    twin = arf_dask.fit_tables(tables, seed=1, **FAST).sample(20, seed=1)
    assert type(twin["customers"]).__module__.startswith("pandas")
    assert isinstance(twin["orders"], pl.LazyFrame)


def test_parents_without_children_and_sizes_of_roots(shop: Any) -> None:
    model = arf_dask.fit_tables(
        {name: shop[name] for name in ("customers", "orders", "products")}, keys={"products": "sku"}, **FAST
    )
    twin = model.sample({"customers": 10, "products": 7}, seed=1)
    assert (twin["customers"].height, twin["products"].height) == (10, 7)
    nothing = model.sample(0, seed=1)
    assert nothing["orders"].height == 0
    assert nothing["orders"].schema == shop["orders"].schema


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"references": {"orders.customer": "customers"}}, OptionError, "no column 'customer'.*customer_id"),
        ({"references": {"orders.customer_id": "customer"}}, OptionError, "no table 'customer'.*customers"),
        ({"keys": {"customers": "country"}}, DataError, "table 'customers': the key 'country' is not unique"),
        ({"order": {"customers": "joined"}}, OptionError, "belong to no other table"),
        ({"order": {"orders": "channel"}}, DataError, "cannot be ordered by 'channel'"),
        ({"rules": {"order": []}}, OptionError, "no table 'order'"),
        ({"fixed": ["product"]}, OptionError, "no table 'product'"),
    ],
)
def test_mistakes_are_told_with_table_and_column(shop: Any, change: Any, error: Any, message: str) -> None:
    tables = {name: shop[name] for name in ("customers", "orders")}
    asked: dict[str, Any] = {"references": {"orders.customer_id": "customers"}, **change}
    with pytest.raises(error, match=message):
        arf_dask.fit_tables(tables, **asked)


def test_orphans_nulls_and_cycles_are_told_with_their_rows(shop: Any) -> None:
    customers, orders = shop["customers"], shop["orders"]
    references = {"orders.customer_id": "customers"}
    buyers = customers.filter(pl.col("id").is_in(orders["customer_id"].implode()))
    with pytest.raises(DataError, match=r"'customer_id' refers to rows that 'customers' does not have"):
        arf_dask.fit_tables({"customers": buyers[1:], "orders": orders}, references=references)
    holed = customers.with_columns(id=pl.when(pl.int_range(pl.len()) == 4).then(None).otherwise("id"))
    with pytest.raises(DataError, match=r"the key 'id' is null in 1 row \(4\)"):
        arf_dask.fit_tables({"customers": holed, "orders": orders}, references=references)
    one = pl.DataFrame({"id": [1, 2], "b_id": [1, 2]})
    two = pl.DataFrame({"id": [1, 2], "a_id": [1, 2]})
    with pytest.raises(OptionError, match="a -> b -> a is a cycle"):
        arf_dask.fit_tables({"a": one, "b": two}, references={"a.b_id": "b", "b.a_id": "a"})
    loop = pl.DataFrame({"id": [1, 2], "above_id": [2, 1]})
    with pytest.raises(DataError, match="row 0 refers to itself"):
        arf_dask.fit_tables({"staff": loop}, keys={"staff": "id"}, references={"staff.above_id": "staff"})


def bytes_of(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in sorted(directory.rglob("*.parquet"))}


def several_blocks(model: arf_dask.TablesModel) -> arf_dask.TablesModel:
    fitted = model._fitted
    return arf_dask.TablesModel(type(fitted)(**{**vars(fitted), "block_roots": {"customers": 32}}))


def test_data_sets_hold_the_rows_of_sample(model: Any, tmp_path: Path) -> None:
    model = several_blocks(model)
    manifests = model.sample_parquet(tmp_path / "out", 150, seed=3, rows_per_file=100)
    twin = model.sample(150, seed=3)
    assert {name: one.rows for name, one in manifests.items()} == {name: frame.height for name, frame in twin.items()}
    for name, frame in twin.items():
        assert_frame_equal(pl.read_parquet(tmp_path / "out" / name), frame)
        manifests[name].verify()


def test_a_resumed_run_gives_the_same_bytes(model: Any, tmp_path: Path) -> None:
    model = several_blocks(model)
    model.sample_parquet(tmp_path / "whole", 100, seed=3, rows_per_file=50)
    model.sample_parquet(tmp_path / "cut", 100, seed=3, rows_per_file=50)
    (tmp_path / "cut" / "orders" / "part-00001.parquet").unlink()
    shutil.rmtree(tmp_path / "cut" / "items")
    model.sample_parquet(tmp_path / "cut", 100, rows_per_file=50, mode="resume")
    assert bytes_of(tmp_path / "cut") == bytes_of(tmp_path / "whole")
    with pytest.raises(OutputError, match="another job was begun there: the model"):
        model.sample_parquet(tmp_path / "cut", 101, seed=3, rows_per_file=50, mode="resume")
    with pytest.raises(OutputError, match="not empty"):
        model.sample_parquet(tmp_path / "cut", 100, seed=3)


def test_a_cluster_writes_the_same_bytes(model: Any, tmp_path: Path) -> None:
    model = several_blocks(model)
    model.sample_parquet(tmp_path / "threads", 100, seed=3, rows_per_file=50)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as cluster:
        model.sample_parquet(tmp_path / "cluster", 100, seed=3, rows_per_file=50, client=cluster.get_client())
    assert bytes_of(tmp_path / "cluster") == bytes_of(tmp_path / "threads")


def test_a_table_of_pairs_holds_no_pair_twice() -> None:
    rng = np.random.default_rng(0)
    students = pl.DataFrame({"id": range(60), "level": rng.choice(["a", "b"], 60)})
    courses = pl.DataFrame({"id": range(15), "level": rng.choice(["a", "b"], 15)})
    pairs = pl.DataFrame({"student_id": rng.integers(0, 60, 300), "course_id": rng.integers(0, 15, 300)}).unique()
    tables = {"students": students, "courses": courses, "enrolments": pairs}
    twin = arf_dask.fit_tables(tables, keys={"students": "id", "courses": "id"}, seed=1, **FAST).sample(seed=1)
    assert twin["enrolments"].is_unique().all()
    assert twin["enrolments"]["course_id"].is_in(twin["courses"]["id"].implode()).all()


def test_null_references_and_rows_without_columns_of_their_own(shop: Any) -> None:
    is_null = pl.int_range(pl.len()) % 7 == 0
    orders = shop["orders"].with_columns(customer_id=pl.when(is_null).then(None).otherwise("customer_id"))
    references = {"orders.customer_id": "customers"}
    twin = arf_dask.fit_tables(
        {"customers": shop["customers"], "orders": orders}, references=references, seed=1, **FAST
    ).sample(seed=1)
    assert 0.08 < twin["orders"]["customer_id"].null_count() / twin["orders"].height < 0.22
    visits = orders.select("customer_id").drop_nulls()
    twin = arf_dask.fit_tables(
        {"customers": shop["customers"], "visits": visits}, references={"visits.customer_id": "customers"}, **FAST
    ).sample(seed=1)
    assert twin["visits"]["customer_id"].is_in(twin["customers"]["id"].implode()).all()
