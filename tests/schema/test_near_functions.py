"""Keys that repeat and determine other columns: products, orders, places."""

import numpy as np
import polars as pl
import pytest

from arf_dask.forest.smoothing import prior_strength
from arf_dask.schema.discrete import Discrete
from arf_dask.schema.learning import infer_schema
from arf_dask.schema.near_functions import exceptions, find_near_functions, is_sparse, most_exceptions, repeats_enough


def discrete(values: object) -> Discrete:
    found, ids = np.unique(np.asarray(values), return_inverse=True)
    return Discrete(ids.astype(np.int32), len(found))


def bundles(frame: pl.DataFrame, **options: object) -> list[set[str]]:
    return [set(names) for names in infer_schema(frame, kinds={}, keys=[], **options).bundles]  # type: ignore[arg-type]


def sales(n_rows: int = 3_000, n_products: int = 2_000, evenness: float = 0.6) -> pl.DataFrame:
    """Sales of products with a seller, a price and a category; most products have one or two sales."""
    rng = np.random.default_rng(3)
    product = rng.choice(n_products, n_rows, p=rng.dirichlet(np.full(n_products, evenness)))
    seller = rng.integers(0, 300, n_products)
    price = np.round(np.exp(rng.normal(3, 1, n_products)), 2)
    return pl.DataFrame(
        {
            "product": [f"P{number:05}" for number in product],
            "seller": [f"S{number:03}" for number in seller[product]],
            "price": price[product],
            "category": np.array(["toys", "food", "tools", "books"])[product % 4],
            "quantity": rng.integers(1, 9, n_rows),
            "paid": rng.gamma(2, 20, n_rows),
        }
    )


def test_exceptions_are_rows_beside_the_most_frequent_value() -> None:
    parent, child = discrete([0, 0, 0, 1, 1]), discrete(["a", "a", "b", "c", "c"])
    assert exceptions(parent, child) == 1
    assert exceptions(child, child) == 0


def test_few_rows_per_value_are_judged_by_repeats() -> None:
    column = discrete([0, 0, 1, 2, 3, 4, 5, 6])  # one repeat in eight rows
    assert is_sparse(column)
    assert not repeats_enough(column)
    assert most_exceptions(column, sparse=True) == pytest.approx(0.1)
    assert most_exceptions(column, sparse=False) == pytest.approx(0.32)


def test_values_that_hardly_repeat_determine_nothing() -> None:
    rng = np.random.default_rng(1)
    note = np.arange(1_000)
    note[:100] = rng.integers(900, 1_000, 100)  # a tenth of the rows repeat a note
    columns = {0: discrete(note), 1: discrete(note % 7)}
    assert find_near_functions(columns, np.arange(1_000), [0, 1]) == []


def test_a_product_goes_with_its_seller_price_and_category() -> None:
    frame = sales()
    n_products = frame["product"].n_unique()
    assert n_products > frame.height / 5  # fewer than five rows each
    schema = infer_schema(frame, kinds={}, keys=[])
    assert schema.bundles == [["product", "seller", "price", "category"]]
    assert schema.variables[0].n_states == n_products


def test_a_product_with_some_prices_goes_with_them() -> None:
    frame = sales().with_columns(price=pl.when(pl.int_range(pl.len()) % 50 == 0).then(0.99).otherwise("price"))
    assert bundles(frame) == [{"product", "seller", "price", "category"}]


def test_two_entities_stay_apart() -> None:
    rng = np.random.default_rng(5)
    customer = rng.integers(0, 1_200, 3_000)
    frame = sales().with_columns(
        customer=pl.Series(customer).cast(pl.String) + "c", city=pl.Series(rng.integers(0, 40, 1_200)[customer])
    )
    assert bundles(frame) == [{"product", "seller", "price", "category"}, {"customer", "city"}]


def test_copies_of_rows_are_no_entities() -> None:
    # In two copies of every row, each column of many values determines all others.
    rng = np.random.default_rng(2)
    rows = pl.DataFrame(
        {
            "code": rng.integers(0, 700, 1_000).astype(str),
            "group": rng.integers(0, 5, 1_000),
            "amount": rng.integers(0, 900, 1_000),
        }
    )
    assert bundles(pl.concat([rows, rows])) == []


def clinical(n_single: int, n_repeated: int) -> pl.DataFrame:
    """Patients with a diagnosis in free text, which some of them share, findings that follow it, and a sex."""
    rng = np.random.default_rng(4)
    text = np.concatenate([np.arange(n_single), n_single + np.arange(n_repeated) % (n_repeated // 3)])
    findings = {f"finding{k}": rng.integers(0, 4, text.max() + 1)[text] for k in range(4)}
    notes = [f"note {number}" for number in text]
    return pl.DataFrame({"diagnosis": notes, **findings, "sex": rng.integers(0, 2, len(text))})


def test_a_text_goes_with_its_findings_where_it_repeats() -> None:
    frame = clinical(n_single=200, n_repeated=600)
    assert bundles(frame) == [{"diagnosis", "finding0", "finding1", "finding2", "finding3"}]


def test_a_text_that_makes_records_unique_leaves_its_bundle() -> None:
    frame = clinical(n_single=500, n_repeated=300)
    assert bundles(frame) == []


def test_an_entity_of_single_rows_stays_where_other_columns_vary() -> None:
    rng = np.random.default_rng(6)
    frame = sales(1_000, 1_650, evenness=50)
    assert frame["product"].is_unique().sum() > 500
    assert bundles(frame) == [{"product", "seller", "price", "category"}]
    known = frame.drop("paid", "quantity").with_columns(flag=pl.Series(rng.integers(0, 2, 1_000)))
    assert not any("product" in group for group in bundles(known))


def test_measurements_with_few_rows_per_value_determine_nothing() -> None:
    # The weights of a survey: people counted alike have the same weight, and the same sex.
    rng = np.random.default_rng(7)
    person = rng.integers(0, 2_000, 3_000)
    weights, sex = rng.permutation(10**6)[:2_000], rng.integers(0, 2, 2_000)
    frame = pl.DataFrame({"weight": weights[person], "sex": sex[person], "pay": rng.gamma(2, 9, 3_000)})
    assert bundles(frame) == []
    assert bundles(frame.rename({"weight": "person_id"})) == [{"person_id", "sex"}]


def test_bundles_with_few_rows_per_combination_have_a_strong_prior() -> None:
    frame = sales()
    schema = infer_schema(frame, kinds={}, keys=[])
    strengths = [prior_strength(variable, frame.height) for variable in schema.variables]
    assert strengths == [1_000.0, *[2.0] * (len(strengths) - 1)]
    assert prior_strength(schema.variables[0], 10**6) == 2.0
