"""Run time (the paper's Fig. 4 and appendix): fitting and sampling against rows and columns, with fitted exponents.

Uses stratified samples of adult (adult_train.parquet and adult_test.parquet in --data), or of a generated stand-in.

Run: `python benchmarks/paper/runtime.py [--data DIR] [--full | --tiny]`.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from experiment import Experiment, fixed, start
from figures import INK, logarithmic, panels, series
from settings import fit_model, paper_options
from simulations import stand_in

import arf_dask


class Size(NamedTuple):
    """Rows of panels A and B, columns of panels C and D, the rows used in these, and repeats of each timing."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    fixed_rows: int
    repeats: int


SIZES = {
    "tiny": Size((100, 200), (2, 4), 200, 1),
    "default": Size((1_250, 2_500, 5_000, 10_000, 20_000), (2, 4, 8, 15), 5_000, 3),
    "full": Size((1_000, 2_000, 4_000, 8_000, 16_000, 32_561), (2, 4, 6, 8, 10, 12, 15), 32_561, 5),
}
TREES, MIN_LEAF = 10, 5  # the paper's for adult
TARGET = "income"
TIMES = ("fit", "fit, processor", "sample", "sample, processor")
ALT = "Processor seconds for fitting and sampling against rows and columns, with a linear reference"


def main() -> None:
    """Time fitting and sampling at all sizes."""
    run = start(__doc__, SIZES)
    table, name = source(run.data, max(*run.size.rows, run.size.fixed_rows), run.seed)
    fit_model(stratified(table, 100, 0), 0, {"trees": 2})  # imports are not timed
    rows = []
    for n_rows in run.size.rows:
        some = stratified(table, n_rows, run.seed)
        rows += timed(run, name, some, "rows", some.height)
    for n_columns in run.size.columns:
        some = stratified(table.select(chosen_columns(table, n_columns)), run.size.fixed_rows, run.seed)
        rows += timed(run, name, some, "columns", some.width)
    frame = pl.DataFrame(rows)
    run.write("runtime", frame, readable(frame), draw(frame), ALT)


def source(data: Path, n_rows: int, seed: int) -> tuple[pl.DataFrame, str]:
    """Return both parts of adult together, or else the stand-in, and its name."""
    files = [data / f"adult_{part}.parquet" for part in ("train", "test")]
    if all(file.exists() for file in files):
        return pl.concat([pl.read_parquet(file) for file in files]), "adult"
    return stand_in(n_rows, np.random.default_rng(seed)), "stand-in (generated)"


def stratified(table: pl.DataFrame, n_rows: int, seed: int) -> pl.DataFrame:
    """Return a sample that keeps the shares of the target, or all rows if there are not more."""
    if n_rows >= table.height:
        return table
    order = table.with_columns(pl.int_range(pl.len()).shuffle(seed=seed).over(TARGET).alias("place"))
    share = (pl.col("place") + 0.5) / pl.len().over(TARGET)
    return order.sort(share).drop("place").head(n_rows)


def chosen_columns(table: pl.DataFrame, n_columns: int) -> list[str]:
    """Return the target, and numeric and categorical columns in equal numbers as far as possible."""
    numeric = [name for name, dtype in table.schema.items() if dtype.is_numeric() and name != TARGET]
    others = [name for name in table.columns if name not in numeric and name != TARGET]
    mixed = [name for pair in zip(numeric, others, strict=False) for name in pair]
    rest = [name for name in [*numeric, *others] if name not in mixed]
    return [TARGET, *[*mixed, *rest][: n_columns - 1]]


def timed(run: Experiment[Size], name: str, table: pl.DataFrame, along: str, at: int) -> list[dict[str, object]]:
    """Return the minimum times over the repeats at both settings, and the number of rounds of training."""
    settings = {
        "paper's settings": paper_options(table.width, trees=TREES, min_leaf=MIN_LEAF),
        "our defaults": {},
    }
    found = []
    for setting, options in settings.items():
        run.say(f"{name}: {table.height:,} x {table.width}, {setting}")
        times = [one_timing(table, options, run.seed) for _ in range(run.size.repeats)]
        best = {key: min(time[key] for time in times) for key in (*TIMES, "rounds")}
        found.append({"data": name, "along": along, "at": at, "setting": setting, **best})
    return found


def one_timing(table: pl.DataFrame, options: dict[str, Any], seed: int) -> dict[str, float]:
    """Return elapsed and processor seconds for fitting and for drawing as many rows, and the rounds of training."""
    marks = [(time.perf_counter(), time.process_time())]
    model = fit_model(table, seed, options)
    marks.append((time.perf_counter(), time.process_time()))
    arf_dask.forge(model, table.height, seed=seed, progress=False)
    marks.append((time.perf_counter(), time.process_time()))
    spent = [mark[side] - before[side] for before, mark in itertools.pairwise(marks) for side in (0, 1)]
    return {**dict(zip(TIMES, spent, strict=True)), "rounds": model.rounds.height}


def exponent(at: pl.Series, seconds: pl.Series) -> float:
    """Return the slope of log time over log size: 1 is linear."""
    return float(np.polyfit(np.log(at.to_numpy()), np.log(seconds.to_numpy()), 1)[0])


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """Format the table of the documentation: times, and the exponents of processor time below each block."""
    blocks = []
    for (along, setting), block in table.group_by("along", "setting", maintain_order=True):
        texts = block.select(
            "along", "setting", pl.col("at", "rounds").cast(pl.String), *(fixed(pl.col(t), 3) for t in TIMES)
        )
        base = "n" if along == "rows" else "d"
        slopes = {t: f"{base}^{exponent(block['at'], block[t]):.2f}" if "processor" in t else "" for t in TIMES}
        last = pl.DataFrame([{"along": along, "setting": setting, "at": "exponent", "rounds": "", **slopes}])
        blocks.append(pl.concat([texts, last]))
    names = {"at": "rows or columns", "fit": "fit, s", "fit, processor": "fit, processor s"}
    names |= {"sample": "sample, s", "sample, processor": "sample, processor s"}
    return pl.concat(blocks).rename(names)


def draw(table: pl.DataFrame) -> Any:
    """Draw fitting (A, C) and sampling (B, D) against rows and columns, with logarithmic axes."""
    figure, axes = panels(2, 2, width=4.8, height=3.4, sharey="col")
    letters = iter("ABCD")
    for row, along in enumerate(("rows", "columns")):
        for panel, what in zip(axes[row], ("fit", "sample"), strict=True):
            some, key = table.filter(pl.col("along") == along), f"{what}, processor"
            for number, setting in enumerate(some["setting"].unique(maintain_order=True)):
                line = some.filter(pl.col("setting") == setting)
                label = f"{setting}: exponent {exponent(line['at'], line[key]):.2f}"
                series(panel, number, line["at"].to_numpy(), line[key].to_numpy(), None, label)
            ticks = some["at"].unique().sort().to_list()
            last = some.filter(pl.col("at") == ticks[-1])[key].to_numpy().max()
            linear = [last * tick / ticks[-1] for tick in ticks]
            panel.plot(ticks, linear, color=INK, linestyle="--", linewidth=1, label="linear")
            panel.set(xscale="log", yscale="log", xlabel=along, title=f"{next(letters)}  {what}")
            logarithmic(panel.xaxis, ticks)
            logarithmic(panel.yaxis)
            panel.legend(loc="upper left")
        axes[row, 0].set_ylabel("processor seconds")
    return figure


if __name__ == "__main__":
    main()
