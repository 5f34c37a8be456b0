"""Several tables: customers with orders with items, drawn together, with references that exist and amounts that fit."""

from __future__ import annotations

import numpy as np
import polars as pl

import arf_dask


def shop(n: int, seed: int = 0) -> dict[str, pl.DataFrame]:
    """Generate customers, their orders in order of time, the items of these, and the products that items refer to."""
    random = np.random.default_rng(seed)
    joined = pl.Series(random.integers(19_000, 19_365, n), dtype=pl.Int32).cast(pl.Date)
    customers = pl.DataFrame(
        {"id": np.arange(n) + 1, "country": random.choice(["DE", "FR", "IT"], n), "joined": joined}
    )
    owner = np.repeat(np.arange(n), random.poisson(np.where(customers["country"] == "DE", 4, 2)))
    orders = pl.DataFrame(
        {
            "id": [f"O-{number:07}" for number in range(len(owner))],
            "customer_id": customers["id"].gather(owner),
            "created": joined.gather(owner)
            + pl.Series(random.integers(0, 300, len(owner)) * 86_400_000, dtype=pl.Duration("ms")),
            "channel": random.choice(["web", "shop"], len(owner)),
        }
    )
    price = np.round(random.uniform(2, 80, 30), 2)
    products = pl.DataFrame({"sku": [f"P{number:03}" for number in range(30)], "price": price})
    order = np.repeat(np.arange(orders.height), random.integers(1, 5, orders.height))
    sku, quantity = random.integers(0, 30, len(order)), random.integers(1, 4, len(order))
    columns = {"order_id": orders["id"].gather(order), "sku": products["sku"].gather(sku), "price": price[sku]}
    items = pl.DataFrame({**columns, "quantity": quantity}).with_columns(
        amount=(pl.col("price") * pl.col("quantity")).round(2)
    )
    return {"customers": customers, "orders": orders, "items": items, "products": products}


def main() -> None:
    """Fit a generated shop, draw twice as many customers, and check what must hold."""
    tables = shop(500)
    references = {"orders.customer_id": "customers", "items.order_id": "orders", "items.sku": "products"}
    model = arf_dask.fit_tables(tables, references=references, fixed=["products"], seed=0)
    print(model)
    print(*model.rules["items"], sep="\n")

    twin = model.sample(1_000, seed=0)
    orders = twin["orders"].join(twin["customers"], left_on="customer_id", right_on="id")
    print(f"{orders.height:,} of {twin['orders'].height:,} orders have a customer")
    print(f"{int((orders['created'] < orders['joined']).sum())} orders are older than their customer")
    wrong = (twin["items"]["price"] * twin["items"]["quantity"] - twin["items"]["amount"]).abs() > 0.005
    print(f"{int(wrong.sum())} of {len(wrong):,} items have a wrong amount")
    print(orders.group_by("country").len().sort("country"))


if __name__ == "__main__":
    main()
