"""Learn the retail table, draw a synthetic twin, and show how close it is. Run it with ``make demo``."""

from __future__ import annotations

import io
import os
import sys
import textwrap
import warnings
from collections.abc import Iterator
from time import perf_counter

import numpy as np
import polars as pl
from numpy.typing import NDArray

import arf_dask
from retail import retail_orders

Numbers = NDArray[np.float64]

WIDTH = 100
N_SHOWN = 4  # rows of each table
KEY = "order_id"
CENT = 0.00501  # half of one, as totals are rounded, and what floats add to it


def main() -> None:
    """Make, learn, draw, show."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode gets question marks
    real = retail_orders()
    fresh = retail_orders(seed=1)  # other orders of the same shop: as close as chance allows

    heading(f"Learning {real.height:,} orders of {real.width} columns")
    start = perf_counter()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = arf_dask.fit(real, seed=0)
    fitted = perf_counter()
    synthetic = model.sample(len(real), seed=0)
    drawn = perf_counter()
    for note in told:
        print_wrapped(f"note: {note.message}")
    print(f"fit {fitted - start:.2f} s, {synthetic.height:,} rows drawn in {drawn - fitted:.2f} s")

    heading("Real orders")
    print_rows(real)
    heading("Synthetic orders")
    # Real orders come sorted by time, synthetic ones in no order.
    print_rows(synthetic)

    heading("Schema")
    same = synthetic.schema == real.schema
    print(f"the same {real.width} names and types, in the same order: {'yes' if same else 'NO'}")

    heading("How close is each column?")
    print(f"{'':38}{'distance to the real rows':>25}  {'missing':^20}")
    print(f"{'column':14}{'type':24}{'synthetic':>12}{'chance':>13}  {'real':>9}{'synthetic':>11}")
    print("\n".join(closeness(real, synthetic, fresh)))
    print_wrapped(
        "distance: total variation of the shares of the levels, or Kolmogorov-Smirnov for numbers and times; "
        "0 is perfect, 1 the worst. chance: the distance of as many other orders of the same shop."
    )

    heading("Do the columns still fit together?")
    print(f"{'':64}{'real':>12}{'synthetic':>12}")
    for (name, in_real), (_, in_synthetic) in zip(relations(real, real), relations(synthetic, real), strict=True):
        print(f"{name:64}{in_real:>12}{in_synthetic:>12}")


# How close.


def closeness(real: pl.DataFrame, synthetic: pl.DataFrame, fresh: pl.DataFrame) -> Iterator[str]:
    """One line per column."""
    for name, dtype in real.schema.items():
        start = f"{name:14}{short(dtype):24}"
        if name == KEY:
            copied = synthetic[name].is_in(real[name].implode()).sum()
            unique = "unique" if synthetic[name].is_unique().all() else "REPEATED"
            yield f"{start}{'':3}an identifier: fresh values, {unique}, {copied} of them real ones"
            continue
        ours, chance = (distance(real[name], other[name]) for other in (synthetic, fresh))
        missing = [table[name].null_count() / len(table) for table in (real, synthetic)]
        yield f"{start}{ours:12.3f}{chance:13.3f}  {missing[0]:9.1%}{missing[1]:11.1%}"


def distance(a: pl.Series, b: pl.Series) -> float:
    """Between two columns: over levels (missing is one of them), or over the numbers that are there."""
    if a.dtype.is_numeric() or a.dtype.is_temporal():
        return kolmogorov_smirnov(as_numbers(a), as_numbers(b))
    return total_variation(a.cast(pl.String), b.cast(pl.String))


def kolmogorov_smirnov(a: Numbers, b: Numbers) -> float:
    """The largest gap between the two distribution functions."""
    a, b = np.sort(a), np.sort(b)
    at = np.concatenate([a, b])
    return float(np.abs(np.searchsorted(a, at, "right") / len(a) - np.searchsorted(b, at, "right") / len(b)).max())


def total_variation(a: pl.Series, b: pl.Series) -> float:
    """Half the sum of the differences between the shares of every level."""
    shares = [series.alias("level").value_counts(normalize=True, name=share) for series, share in ((a, "a"), (b, "b"))]
    both = shares[0].join(shares[1], on="level", how="full", nulls_equal=True)
    return float((both["a"].fill_null(0.0) - both["b"].fill_null(0.0)).abs().sum() / 2)


def as_numbers(series: pl.Series) -> Numbers:
    """What is there, as floats; a time as its count of units."""
    present = series.drop_nulls()
    return (present.to_physical() if present.dtype.is_temporal() else present).cast(pl.Float64).to_numpy()


def relations(orders: pl.DataFrame, real: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """(what, how much) for relations between columns."""
    for columns in (["sku", "category"], ["sku", "list_price"], ["warehouse", "sku", "shelf"]):
        seen = orders.join(real.select(columns).unique(), on=columns, how="semi").height / orders.height
        yield f"{' + '.join(columns)}: as seen in the real rows", f"{seen:.1%}"

    yield (
        "order_date is the date of ordered_at",
        share(orders, pl.col("order_date") == pl.col("ordered_at").dt.date()),
    )
    for who, guest in (("guests", True), ("members", False)):
        yield (
            f"customer_age missing, {who}",
            share(orders.filter(guest=guest), pl.col("customer_age").is_null()),
        )
    for category in ("Fashion", "Books"):
        yield f"returned, {category}", share(orders.filter(category=category), pl.col("returned"))
    other = orders.filter(pl.col("channel") != "store")
    yield "pickup_time missing unless the channel is store", share(other, pl.col("pickup_time").is_null())
    for kind, express in (("express", True), ("standard", False)):
        hours = orders.filter(express=express)["delivery"].dt.total_minutes().median()
        yield f"delivery, {kind}, median hours", "-" if hours is None else f"{float(str(hours)) / 60:.1f}"
    paid = pl.col("list_price").cast(pl.Float64) * pl.col("quantity") * (1 - pl.col("discount"))
    cents = [(pl.col("total") - paid - postage).abs() < CENT for postage in (0.0, 3.9, 9.9)]
    yield "total = price x quantity less discount + postage, to the cent", share(orders, pl.any_horizontal(cents))


def share(orders: pl.DataFrame, condition: pl.Expr) -> str:
    """Of the orders, those that meet the condition."""
    return f"{orders.select(condition.mean()).item():.1%}" if len(orders) else "-"


# On paper.


def print_rows(table: pl.DataFrame) -> None:
    """The first rows, a few columns at a time."""
    with pl.Config(
        tbl_formatting="NOTHING",
        tbl_hide_dataframe_shape=True,
        tbl_hide_dtype_separator=True,
        tbl_width_chars=WIDTH,
        tbl_cols=-1,
        fmt_str_lengths=WIDTH,
    ):
        for columns in (table.columns[:5], table.columns[5:12], table.columns[12:]):
            print(table.select(columns).head(N_SHOWN), end="\n\n")


def print_wrapped(text: str) -> None:
    """In lines of at most WIDTH signs."""
    print(textwrap.fill(text, WIDTH))


def heading(text: str) -> None:
    """A bold line where the terminal can do it, else a plain one."""
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    print(f"\n\033[1m{text}\033[0m" if bold else f"\n{text}")
    print("-" * len(text))


def short(dtype: pl.DataType) -> str:
    """The type in a word or two."""
    match dtype:
        case pl.Datetime():
            return f"Datetime, {dtype.time_zone}"
        case pl.Decimal():
            return f"Decimal({dtype.precision}, {dtype.scale})"
        case pl.Enum():
            return f"Enum of {len(dtype.categories)}"
    return str(dtype.base_type())


if __name__ == "__main__":
    main()
