"""Find the keys of tables and the references between them, by names, types, uniqueness and inclusion."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

import polars as pl

from arf_dask.data.key_learning import has_key_name
from arf_dask.data.keys import can_be_key

logger = logging.getLogger(__name__)


def find_key(table: str, frame: pl.DataFrame) -> str | None:
    """Return the column that identifies the rows of a table; None if there is none.

    A column named like the table comes first, then "id", then the first one that is named like an identifier.

    >>> find_key("orders", pl.DataFrame({"no": [1, 2], "order_id": [7, 8], "sum": [1, 1]}))
    'order_id'
    """
    return named_key(table, [one for one in frame if not one.null_count() and one.n_unique() == len(one)])


def named_key(table: str, columns: Iterable[pl.Series]) -> str | None:
    """Return the column that is named like the key of a table; None if there is none."""
    candidates = [one.name for one in columns if can_be_key(one.dtype) and has_key_name(one.name)]
    own = [name for name in candidates if _names_table(name, table)]
    plain = [name for name in candidates if _plain(name) in ("id", "key", "uuid", "guid")]
    return next(iter([*own, *plain, *candidates]), None)


def find_references(frames: Mapping[str, pl.DataFrame], keys: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (table, column, referenced table): columns named like another table or its key, that hold only its keys.

    >>> customers, orders = pl.DataFrame({"id": [1, 2]}), pl.DataFrame({"id": [5], "customer_id": [2]})
    >>> find_references({"customers": customers, "orders": orders}, {"customers": "id", "orders": "id"})
    [('orders', 'customer_id', 'customers')]
    """
    found = []
    for table, frame in frames.items():
        for series in frame:
            parents = [
                parent
                for parent, key in keys.items()
                if (parent != table or series.name != key) and _refers(series, table, parent, key, frames[parent])
            ]
            if parents:
                parent = max(parents, key=lambda name: len(_stem(name)))
                found.append((table, series.name, parent))
                logger.info("found the reference %s.%s -> %s", table, series.name, parent)
    return found


def _refers(series: pl.Series, table: str, parent: str, key: str, frame: pl.DataFrame) -> bool:
    keys = frame.get_column(key)
    if series.dtype != keys.dtype or series.null_count() == len(series):
        return False
    is_named = (_names_table(series.name, parent) and has_key_name(series.name)) or (
        parent != table and series.name == key and _plain(key) != "id"
    )
    return is_named and bool(series.drop_nulls().is_in(keys.implode()).all())


def _names_table(column: str, table: str) -> bool:
    """Return whether a column is named after a table: "customer_id" after "customers"."""
    stem = _stem(table)
    return len(stem) > 1 and stem in _plain(column)


def _stem(table: str) -> str:
    """Return the name of a table in the singular.

    >>> [_stem(name) for name in ("customers", "Categories", "addresses", "staff")]
    ['customer', 'categor', 'address', 'staff']
    """
    plain = _plain(table)
    for ending in ("ies", "sses", "s"):
        if plain.endswith(ending) and len(plain) > len(ending) + 1 and not plain.endswith("ss"):
            return plain[: -len(ending)] + ("ss" if ending == "sses" else "")
    return plain


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()
