"""A small generated shop: customers with orders with items, products, and employees with managers."""

from datetime import date, datetime, timedelta

import numpy as np
import polars as pl


def make_shop(n_customers: int = 250, seed: int = 0) -> dict[str, pl.DataFrame]:
    """Customers, orders after the customer's date in order of time, items with price * quantity, and products."""
    rng = np.random.default_rng(seed)
    joined = [date(2020, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 365, n_customers)]
    customers = pl.DataFrame(
        {
            "id": np.arange(n_customers) * 3 + 1000,
            "country": rng.choice(["DE", "FR", "IT"], n_customers, p=[0.5, 0.3, 0.2]),
            "joined": joined,
        }
    )
    n_orders = rng.poisson(np.where(customers["country"].to_numpy() == "DE", 3.0, 1.0))
    owner = np.repeat(np.arange(n_customers), n_orders)
    created = [
        datetime(joined[c].year, joined[c].month, joined[c].day) + timedelta(days=int(d), minutes=int(m))
        for c, d, m in zip(owner, rng.integers(0, 300, len(owner)), rng.integers(0, 1440, len(owner)), strict=True)
    ]
    orders = pl.DataFrame(
        {
            "id": [f"O-{i:06d}" for i in range(len(owner))],
            "customer_id": customers["id"].gather(owner),
            "created": created,
            "channel": rng.choice(["web", "shop"], len(owner)),
        }
    ).sample(fraction=1.0, shuffle=True, seed=seed)
    products = pl.DataFrame(
        {
            "sku": [f"P{i:03d}" for i in range(40)],
            "kind": ["food", "toy"] * 20,
            "price": np.round(rng.uniform(1, 50, 40), 2),
        }
    )
    n_items = rng.integers(1, 4, orders.height)
    chosen = rng.integers(0, 40, int(n_items.sum()))
    quantity = rng.integers(1, 5, len(chosen))
    items = pl.DataFrame(
        {
            "order_id": orders["id"].gather(np.repeat(np.arange(orders.height), n_items)),
            "sku": products["sku"].gather(chosen),
            "quantity": quantity,
            "price": products["price"].gather(chosen),
            "amount": np.round(products["price"].gather(chosen).to_numpy() * quantity, 2),
        }
    )
    return {"customers": customers, "orders": orders, "items": items, "products": products}


REFERENCES = {"orders.customer_id": "customers", "items.order_id": "orders", "items.sku": "products"}
