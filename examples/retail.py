"""Orders of an invented shop: a table of many column types, with columns that depend on each other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[Any]

FIRST_DAY = np.datetime64("2024-01-01", "us")
N_DAYS = 540
ZONE = "Europe/Berlin"
CHANNELS = np.array(["web", "app", "store", "phone"])
WAREHOUSES = np.array(["Hamburg", "Leipzig", "Munich", "Cologne"])
NOTES = np.array(["🎁 gift", "🔔 ring twice", "📦 locker", "⚠️ fragile", "leave at door"])
N_SKUS = 120
SKUS_PER_SHELF = 10


class Category(NamedTuple):
    """What sets the goods of a category apart."""

    name: str
    n_skus: int
    price: float  # a typical one, in euros
    extra_pieces: float  # beyond the first, on average
    returned: float  # share sent back
    warehouse: int  # position in WAREHOUSES of the usual one
    age: float  # of its customers, on average


CATEGORIES = (
    Category("Groceries", 26, 4.0, 2.4, 0.01, 0, 47.0),
    Category("Home", 18, 28.0, 0.6, 0.07, 1, 44.0),
    Category("Garden", 12, 35.0, 0.5, 0.05, 1, 55.0),
    Category("Electronics", 16, 180.0, 0.1, 0.12, 2, 36.0),
    Category("Fashion", 22, 45.0, 0.7, 0.38, 3, 33.0),
    Category("Beauty", 12, 16.0, 0.8, 0.03, 3, 35.0),
    Category("Toys", 8, 24.0, 0.5, 0.06, 2, 38.0),
    Category("Books", 6, 14.0, 0.4, 0.02, 0, 50.0),
)
NAMES, _, PRICE, EXTRA_PIECES, RETURNED, WAREHOUSE, AGE = map(np.array, zip(*CATEGORIES, strict=True))
ELECTRONICS, FASHION = 3, 4


def retail_orders(n: int = 20_000, seed: int = 0) -> pl.DataFrame:
    """One row per order, oldest first.

    The shop is always the same one; ``seed`` decides which orders it gets.
    """
    random = np.random.default_rng(seed)
    skus = _catalogue()

    channel = CHANNELS[random.choice(4, n, p=[0.46, 0.30, 0.18, 0.06])]
    in_store = channel == "store"
    local_time = _local_times(random, in_store)
    month = local_time.astype("datetime64[M]").astype(int) % 12 + 1

    sku = random.choice(N_SKUS, n, p=skus.share)
    category = skus.category[sku]
    quantity = 1 + np.minimum(random.poisson(EXTRA_PIECES[category]), 40)
    discount = _discounts(random, category, month)
    express = ~in_store & (random.random(n) < np.where(category == ELECTRONICS, 0.35, 0.14))
    goods = skus.cents[sku] * quantity * (1 - discount) / 100
    shipping = np.where(in_store, 0.0, np.where(express, 9.9, np.where(goods >= 50, 0.0, 3.9)))

    guest = random.random(n) < _by_channel(channel, web=0.30, app=0.04, store=0.55, phone=0.20)
    age_known = random.random(n) < np.where(guest, 0.06, 0.97)
    shipped = ~in_store & (random.random(n) < 0.98)
    picked_up = in_store & (random.random(n) < 0.92)
    returned = (shipped | picked_up) & (random.random(n) < RETURNED[category] * np.where(in_store, 0.4, 1.0))
    warehouse = np.where(random.random(n) < 0.85, WAREHOUSE[category], random.integers(0, 4, n))

    columns = {
        "ordered_at": pl.Series(local_time).dt.replace_time_zone("UTC"),
        "sku": pl.Series(skus.name[sku]),
        "category": pl.Series(NAMES[category], dtype=pl.Enum(NAMES.tolist())),
        "list_price": pl.Series(skus.cents[sku]),
        "quantity": pl.Series(quantity, dtype=pl.UInt8),
        "discount": pl.Series(discount),
        "total": pl.Series(np.round(goods + shipping, 2)),
        "express": pl.Series(express),
        "warehouse": pl.Series(WAREHOUSES[warehouse], dtype=pl.Categorical),
        "shelf": pl.Series(_shelves(warehouse, sku)),
        "customer_age": _only(age_known, pl.Series(_ages(random, channel, category), dtype=pl.Int16)),
        "channel": pl.Series(channel),
        "guest": pl.Series(guest),
        "returned": pl.Series(returned),
        "delivery": _only(shipped, pl.Series(_delivery(random, express, month))),
        "pickup_time": _only(picked_up, pl.Series(_pickup_minutes(random, n))),
        "note_code": _only(random.random(n) < 0.07, pl.Series(_notes(random, in_store))),
    }
    return (
        pl.DataFrame(columns)
        .sort("ordered_at")
        .with_columns(
            ordered_at=_instant(pl.col("ordered_at")),
            list_price=_euros(pl.col("list_price")),
            pickup_time=_time_of_day(pl.col("pickup_time")),
        )
        .select(
            _order_id().alias("order_id"),
            "ordered_at",
            pl.col("ordered_at").dt.date().alias("order_date"),
            pl.exclude("ordered_at"),
        )
    )


# The shop.


class Skus(NamedTuple):
    """The goods on sale; one entry per sku in every array."""

    name: Array  # such as "FAS-076"
    category: Array  # position in CATEGORIES
    cents: Array  # list price
    share: Array  # of all orders: a few skus sell most (Zipf)


def _catalogue() -> Skus:
    random = np.random.default_rng(2024)
    category = np.repeat(np.arange(len(CATEGORIES)), [kind.n_skus for kind in CATEGORIES])
    name = np.array([f"{NAMES[kind][:3].upper()}-{i:03}" for i, kind in enumerate(category, start=1)])
    euros = np.ceil(PRICE[category] * random.lognormal(0.0, 0.5, N_SKUS)).astype(int)
    cents = euros * 100 - random.choice([1, 5, 51, 100], N_SKUS, p=[0.6, 0.2, 0.1, 0.1])
    weight = 1 / (random.permutation(N_SKUS) + 2.0)
    return Skus(name, category, np.maximum(cents, 49), weight / weight.sum())


def _shelves(warehouse: Array, sku: Array) -> Array:
    """A function of the warehouse and of the group the sku belongs to, such as "L-07"."""
    n_groups = N_SKUS // SKUS_PER_SHELF
    # Every warehouse puts the groups in an order of its own: no step shares a divisor with 12.
    step = np.array([1, 5, 7, 11])[warehouse]
    place = (sku // SKUS_PER_SHELF * step + warehouse) % n_groups + 1
    shelves: Array = np.array([[f"{name[0]}-{i:02}" for i in range(n_groups + 1)] for name in WAREHOUSES])
    return np.asarray(shelves[warehouse, place])


# The columns.


def _local_times(random: Generator, in_store: Array) -> Array:
    """Clock times in the shop's zone: more on some weekdays and before Christmas, in stores only by day."""
    n = len(in_store)
    days = FIRST_DAY.astype("datetime64[D]") + np.arange(N_DAYS)
    weekday = (days.astype(int) + 3) % 7  # 0 is Monday
    month = days.astype("datetime64[M]").astype(int) % 12 + 1
    weight = np.array([1.1, 1.0, 0.9, 0.9, 1.0, 1.3, 0.8])[weekday] * np.where(month >= 11, 1.9, 1.0)
    day = random.choice(N_DAYS, n, p=weight / weight.sum())
    online = np.where(random.random(n) < 0.6, random.normal(20.0, 1.8, n), random.normal(12.5, 3.0, n)) % 24
    hour = np.where(in_store, 9.0 + 11.0 * random.beta(2.5, 2.0, n), online)
    return FIRST_DAY + (day * 86_400e6 + hour * 3_600e6).astype("timedelta64[us]")


def _discounts(random: Generator, category: Array, month: Array) -> Array:
    """A share of the price, two decimals; most orders have none."""
    n = len(category)
    sale = np.isin(month, [1, 7, 11])
    given = random.random(n) < 0.12 + 0.25 * sale + 0.15 * (category == FASHION)
    usual = random.choice([0.05, 0.10, 0.15, 0.20, 0.30, 0.50], n, p=[0.2, 0.35, 0.15, 0.15, 0.1, 0.05])
    odd = np.round(random.uniform(0.03, 0.45, n), 2)
    return np.where(given, np.where(random.random(n) < 0.75, usual, odd), 0.0)


def _ages(random: Generator, channel: Array, category: Array) -> Array:
    mean = AGE[category] + _by_channel(channel, web=0.0, app=-7.0, store=4.0, phone=17.0)
    return np.clip(np.round(random.normal(mean, 11.0)), 18, 95).astype(int)


def _delivery(random: Generator, express: Array, month: Array) -> Array:
    """From the order to the door, in whole minutes; slower in December."""
    n = len(express)
    hours = np.where(express, random.normal(22.0, 4.0, n), 30.0 + random.gamma(4.0, 11.0, n))
    minutes = np.round(np.maximum(hours, 6.0) * np.where(month == 12, 1.4, 1.0) * 60)
    return minutes.astype("timedelta64[m]").astype("timedelta64[us]")


def _pickup_minutes(random: Generator, n: int) -> Array:
    """Minutes after midnight: quarters of an hour from 9:00 to 20:00."""
    return 9 * 60 + 15 * random.binomial(44, np.where(random.random(n) < 0.6, 0.75, 0.25))


def _notes(random: Generator, in_store: Array) -> Array:
    by_post = random.choice(5, len(in_store), p=[0.35, 0.25, 0.2, 0.1, 0.1])
    return NOTES[np.where(in_store, 0, by_post)]


def _by_channel(channel: Array, **values: float) -> Array:
    return np.select([channel == name for name in values], list(values.values()))


def _only(mask: Array, values: pl.Series) -> pl.Series:
    """The values where the mask is true, null elsewhere."""
    return values.zip_with(pl.Series(mask), pl.Series([None], dtype=values.dtype))


# The types that a shop's database would have.


def _order_id() -> pl.Expr:
    number = pl.int_range(1, pl.len() + 1).cast(pl.String).str.zfill(6)
    return pl.concat_str(pl.lit("ORD-"), number)


def _instant(local_time: pl.Expr) -> pl.Expr:
    """The instant with this clock time in the zone (or the hour after it, where spring skips an hour)."""
    zoned = local_time.dt.convert_time_zone(ZONE)
    offset = zoned.dt.base_utc_offset() + zoned.dt.dst_offset()
    return zoned - offset.cast(pl.Duration("us"))


def _euros(cents: pl.Expr) -> pl.Expr:
    return (cents.cast(pl.Decimal(12, 2)) / 100).cast(pl.Decimal(10, 2))


def _time_of_day(minutes: pl.Expr) -> pl.Expr:
    return (minutes.cast(pl.Int64) * 60_000_000_000).cast(pl.Time)
