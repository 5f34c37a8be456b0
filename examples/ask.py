"""Ask a fitted model: anomaly scores, a what-if sample, and imputation."""

from __future__ import annotations

import polars as pl

import arf_dask
from retail import retail_orders


def main() -> None:
    """Fit the retail orders and ask three questions."""
    orders = retail_orders(5_000).select("sku", "list_price", "quantity", "discount", "customer_age", "guest")
    model = arf_dask.fit(orders, seed=0)

    # Which orders are unlike all others?
    scored = orders.with_columns(score=-model.log_density(orders))
    print(scored.top_k(5, by="score"))

    # What if customers over sixty bought at least three at a time?
    what_if = model.sample(1_000, given={"customer_age": (60, None), "quantity": (3, None)}, seed=0)
    print(what_if.head(5))
    share = model.probability({"quantity": (3, None)}, given={"customer_age": (60, None)})
    print(f"They do so in {share:.1%} of their orders.")

    # Discounts that were lost, filled in from the rest of each order.
    holes = orders.head(5).with_columns(pl.lit(None, dtype=pl.Float64).alias("discount"))
    print(model.impute(holes))
    print(model.expect(["discount"], given=holes.drop("discount", "customer_age")))


if __name__ == "__main__":
    main()
