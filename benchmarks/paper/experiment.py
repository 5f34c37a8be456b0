"""Shared parts of the paper's experiments: command-line arguments, progress, and output files.

A script writes `NAME.csv`, `NAME.md` and `NAME.svg` to `docs/paper/`, and replaces the text between the marks
`<!-- begin NAME -->` and `<!-- end NAME -->` of `docs/paper.md` by the table and the figure. Running a script again
therefore brings the page up to date. `--out DIR` writes to another directory than `docs/`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl
from figures import save_figure
from numpy.typing import NDArray
from settings import shown_defaults

import arf_dask

ROOT = Path(__file__).resolve().parents[2]
DEFAULT_DATA = ROOT.parent / "shared" / "data"
TINY_OUT = ROOT / "build" / "paper"  # a test run never replaces the figures of the documentation

Size = TypeVar("Size")


@dataclass(frozen=True)
class Experiment(Generic[Size]):
    """One run of a script: its size, its data, and the directory for its results."""

    scale: str  # "tiny", "default" or "full"
    size: Size
    data: Path
    out: Path
    seed: int
    started: float = field(default_factory=time.perf_counter)

    def say(self, text: str) -> None:
        """Report progress, with the seconds since the start."""
        print(f"[{time.perf_counter() - self.started:6.1f} s] {text}", file=sys.stderr, flush=True)

    def write(self, name: str, rows: pl.DataFrame, shown: pl.DataFrame, figure: Any, alt: str) -> None:
        """Write a table (`rows` as CSV, `shown` as Markdown) and a figure, and update docs/paper.md."""
        folder = self.out / "paper"
        folder.mkdir(parents=True, exist_ok=True)
        rows.write_csv(folder / f"{name}.csv")
        table = markdown(shown)
        (folder / f"{name}.md").write_text(table, encoding="utf-8")
        save_figure(figure, folder / f"{name}.svg")
        replace_section(self.out / "paper.md", name, f"{table}\n![{alt}](paper/{name}.svg)\n\n{self.caption()}")
        print(f"\n{table}")
        self.say(f"written: {folder / name}.csv, .md, .svg")

    def caption(self) -> str:
        """Return the size, seed, version, defaults and run time behind the results."""
        seconds, processor = time.perf_counter() - self.started, processor_seconds()
        return (
            f"*Size: {self.scale}. Seed: {self.seed}. arf_dask {arf_dask.__version__}, defaults `{shown_defaults()}`. "
            f"Run time: {processor:,.0f} processor seconds ({seconds:,.0f} s elapsed).*\n"
        )


def start(description: str | None, sizes: Mapping[str, Size]) -> Experiment[Size]:
    """Parse the command line; `sizes` has the keys "tiny", "default" and "full"."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument("--full", action="store_const", const="full", dest="scale", help="use the sizes of the paper")
    scale.add_argument(
        "--tiny", action="store_const", const="tiny", dest="scale", help="run in seconds, as the tests do"
    )
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="directory of data sets (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="directory for results (default: docs/, or build/paper/ with --tiny)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chosen = asked.scale if asked.scale is not None else "default"
    out = asked.out if asked.out is not None else TINY_OUT if chosen == "tiny" else ROOT / "docs"
    return Experiment(chosen, sizes[chosen], asked.data, out, asked.seed)


def likelihood(log_density: pl.Series | NDArray[np.float64]) -> dict[str, float]:
    """Return the mean negative log-likelihood of rows with a positive density, and the share of rows without."""
    values = np.asarray(log_density, dtype=np.float64)
    possible = np.isfinite(values)
    return {"NLL": -float(values[possible].mean()), "no density": 1 - float(possible.mean())}


def processor_seconds() -> float:
    """Return the processor time of this process and of the children it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def replace_section(page: Path, name: str, text: str) -> None:
    """Put `text` between the marks of `name` on a page; do nothing if the page or the marks do not exist."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    if not page.exists():
        return
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if found and closed:
        page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def markdown(frame: pl.DataFrame) -> str:
    """Render a frame as a Markdown table: numbers aligned right, nulls as empty cells."""
    cells = frame.select(pl.all().cast(pl.String).fill_null(""))
    marks = ["---:" if dtype.is_numeric() else "---" for dtype in frame.dtypes]
    lines = [cells.columns, marks, *cells.rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_error(mean: str, error: str, digits: int) -> pl.Expr:
    """Format two columns as "mean ± error", without the error where it is null."""
    shown, spread = pl.col(mean).round(digits), pl.col(error).round(digits)
    return (
        pl.when(pl.col(error).is_null())
        .then(fixed(shown, digits))
        .otherwise(pl.format("{} ± {}", fixed(shown, digits), fixed(spread, digits)))
    )


def fixed(values: pl.Expr, digits: int) -> pl.Expr:
    """Format numbers as text with a fixed number of decimals."""
    return values.cast(pl.Decimal(18, digits)).cast(pl.String)


def means_with_errors(rows: pl.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pl.DataFrame:
    """One row per combination of `keys`: mean and standard error of each column of `values`, and the number of runs."""
    errors = [(pl.col(v).std() / pl.len().sqrt()).alias(f"{v} SE") for v in values]
    summary = [*(pl.col(v).mean() for v in values), *errors, pl.len().alias("runs")]
    return rows.group_by(keys, maintain_order=True).agg(summary)
