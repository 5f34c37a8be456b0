"""Fresh names and numbers of entities, learned in place of the real ones."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arf_dask
from arf_dask.data.parts import cut_frame, one_part
from arf_dask.data.renewal import NO_RENEWAL, learn_renewal, renewed_parts
from arf_dask.runtime.tasks import Threads

RUNNER = Threads(1)


def shops(n_rows: int = 2_000, n_shops: int = 200) -> pl.DataFrame:
    rng = np.random.default_rng(8)
    shop = rng.integers(0, n_shops, n_rows)
    return pl.DataFrame(
        {
            "shop_id": 7_000 + 3 * rng.permutation(n_shops)[shop],
            "shop": [f"Shop {number:04}" for number in shop],
            "city": np.array(["Rome", "Oslo", "Lyon"])[shop % 3],
            "paid": np.round(rng.gamma(2, 20, n_rows), 2),
        }
    )


def test_every_value_gets_a_fresh_one_of_its_shape() -> None:
    frame = shops().with_columns(shop=pl.when(pl.int_range(pl.len()) > 20).then("shop"))
    renewal = learn_renewal(one_part(frame), ["shop_id", "shop"], 1, RUNNER)
    renewed = renewal.apply(frame)
    for name in ("shop_id", "shop"):
        assert not set(renewed[name].drop_nulls()) & set(frame[name])
        pairs = pl.DataFrame({"old": frame[name], "new": renewed[name]}).unique()
        assert pairs["old"].is_unique().all()
        assert pairs["new"].is_unique().all()
    assert renewed["shop"].null_count() == 21
    assert renewed["shop"].drop_nulls().str.contains(r"^Shop \d{4}$").all()
    assert renewed["shop_id"].dtype == frame["shop_id"].dtype
    assert_frame_equal(renewed.select("city", "paid"), frame.select("city", "paid"))


def test_fresh_values_depend_on_the_values_and_the_seed_alone() -> None:
    frame = shops()
    parts = one_part(frame)
    cut = parts.__class__(parts.dtypes, cut_frame(frame.reverse()), parts.to_original)
    first = learn_renewal(parts, ["shop"], 1, RUNNER).apply(frame)
    assert_frame_equal(first, learn_renewal(cut, ["shop"], 1, RUNNER).apply(frame))
    assert not first["shop"].equals(learn_renewal(parts, ["shop"], 2, RUNNER).apply(frame)["shop"])


def test_the_order_of_fresh_values_says_nothing_about_the_real_ones() -> None:
    frame = shops().select("shop_id").unique().sort("shop_id")
    fresh = learn_renewal(one_part(frame), ["shop_id"], 1, RUNNER).apply(frame)["shop_id"].to_numpy()
    assert abs(np.corrcoef(np.arange(len(fresh)), fresh)[0, 1]) < 0.3


def test_parts_are_renewed_as_they_are_loaded() -> None:
    parts = one_part(shops())
    assert renewed_parts(parts, NO_RENEWAL) is parts
    renewal = learn_renewal(parts, ["shop"], 1, RUNNER)
    renewed = renewed_parts(parts, renewal)
    assert renewed.n_rows == parts.n_rows
    assert_frame_equal(renewed.items[0].load(["shop"]), renewal.apply(parts.frame()).select("shop"))


@pytest.fixture(scope="module")
def model() -> arf_dask.Model:
    return arf_dask.fit(shops(), renew=["shop_id", "shop"], trees=5, max_rounds=2, refine=False, seed=1)


def test_a_renewed_entity_keeps_its_attributes_in_all_rows(model: arf_dask.Model) -> None:
    assert model.schema.bundles == [["shop_id", "shop", "city"]]
    rows = pl.concat([model.sample(1_000, seed=2), model.sample(1_000, seed=3)])
    assert not set(rows["shop_id"]) & set(shops()["shop_id"])
    assert not set(rows["shop"]) & set(shops()["shop"])
    entities = rows.select("shop_id", "shop", "city").unique()
    assert entities.height == entities["shop_id"].n_unique() == entities["shop"].n_unique() <= 200


def test_a_renewed_model_holds_no_real_value(model: arf_dask.Model, tmp_path: object) -> None:
    model.save(f"{tmp_path}/m")
    loaded = arf_dask.load(f"{tmp_path}/m")
    assert_frame_equal(loaded.sample(100, seed=4), model.sample(100, seed=4))
    levels = pl.read_parquet(f"{tmp_path}/m/levels.parquet")
    assert not levels["text"].is_in(shops()["shop"].implode()).any()


def test_conditions_refer_to_the_fresh_values(model: arf_dask.Model) -> None:
    shop = model.sample(1, seed=5)["shop"][0]
    assert model.sample(20, given={"shop": shop}, seed=6)["shop"].unique().to_list() == [shop]
    with pytest.raises(arf_dask.OptionError, match="was never seen"):
        model.sample(5, given={"shop": shops()["shop"][0]}, seed=6)


def test_leaves_are_estimated_again_from_the_real_rows() -> None:
    forest = arf_dask.adversarial_forest(shops(), renew=["shop"], trees=3, max_rounds=1, refine=False, seed=1)
    rows = arf_dask.forde(forest, shops()).sample(200, seed=2)
    assert not set(rows["shop"]) & set(shops()["shop"])


def test_a_release_renews_the_numbers_and_names_of_entities() -> None:
    frame = shops(4_000, 120)
    model = arf_dask.fit(frame, release=arf_dask.ReleasePolicy(), trees=3, max_rounds=1, refine=False, seed=1)
    assert model.release_report is not None
    assert model.release_report["entities_renewed"] == ["shop_id", "shop"]
    rows = model.sample(500, seed=2)
    assert not set(rows["shop_id"]) & set(frame["shop_id"])
    assert not set(rows["shop"]) & set(frame["shop"])
    assert rows.select("shop", "city").n_unique() == rows["shop"].n_unique()


def test_people_in_several_rows_are_warned_of() -> None:
    frame = shops().rename({"shop_id": "customer_id", "shop": "customer"})
    with pytest.warns(arf_dask.KeyColumnWarning, match=r"renew=\['customer_id', 'customer'\]"):
        arf_dask.fit(frame, trees=2, max_rounds=0, refine=False, seed=1)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"renew": ["shop"], "keys": ["shop"]}, "named in keys= too"),
        ({"renew": ["shop"], "columns": {"shop": "categorical"}}, "named in columns= too"),
        ({"renew": ["shops"]}, "no column 'shops'"),
        ({"renew": ["paid"]}, "fresh values of 'paid'"),
    ],
)
def test_columns_that_cannot_be_renewed_are_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(arf_dask.OptionError, match=match):
        arf_dask.fit(shops(), trees=2, seed=1, **options)  # type: ignore[arg-type]


def test_several_tables_refuse_renewed_columns_rather_than_ignore_them() -> None:
    with pytest.raises(arf_dask.OptionError, match="no option 'renew' in fit_tables"):
        arf_dask.fit_tables({"shops": shops()}, seed=1, renew=["shop"])  # type: ignore[call-arg]
