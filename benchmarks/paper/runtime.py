"""Run time (the paper's Fig. 4 and its appendix): fitting and drawing against rows and columns, with their exponents.

On stratified samples of adult (adult_train.parquet in --data), or of the generated stand-in where it is not there.

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
from figures import logarithmic, panels, series
from settings import fit_model, our_options, paper_options
from simulations import stand_in

import arf_dask


class Size(NamedTuple):
    """Rows of panels A and B, columns of panels C and D, rows used there, and how often each is timed."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    fixed_rows: int
    repeats: int


SIZES = {
    "tiny": Size((100, 200), (2, 4), 200, 1),
    "default": Size((1_250, 2_500, 5_000, 10_000, 20_000), (2, 4, 8, 15), 5_000, 2),
    "full": Size((1_000, 2_000, 4_000, 8_000, 16_000, 32_561), (2, 4, 6, 8, 10, 12, 15), 32_561, 5),
}
TREES, MIN_LEAF = 10, 5  # the paper's for adult
TARGET = "income"
TIMES = ("fit", "fit, processor", "sample", "sample, processor")


def main() -> None:
    """Time all sizes."""
    run = start(__doc__, SIZES)
    table, name = source(run.data, max(*run.size.rows, run.size.fixed_rows), run.seed)
    fit_model(stratified(table, 100, 0), 0, our_options(trees=2))  # what is loaded once does not count
    rows = []
    for n_rows in run.size.rows:
        rows += timed(run, name, stratified(table, n_rows, run.seed), "rows", n_rows)
    for n_columns in run.size.columns:
        some = stratified(table.select(chosen_columns(table, n_columns)), run.size.fixed_rows, run.seed)
        rows += timed(run, name, some, "columns", some.width)
    frame = pl.DataFrame(rows)
    run.write("runtime", frame, readable(frame), draw(frame))


def source(data: Path, n_rows: int, seed: int) -> tuple[pl.DataFrame, str]:
    """Adult with both of its parts if they are there, else the stand-in, and what it is called."""
    files = [data / f"adult_{part}.parquet" for part in ("train", "test")]
    if all(file.exists() for file in files):
        return pl.concat([pl.read_parquet(file) for file in files]), "adult"
    return stand_in(n_rows, np.random.default_rng(seed)), "stand-in (generated)"


def stratified(table: pl.DataFrame, n_rows: int, seed: int) -> pl.DataFrame:
    """So many rows, with the shares of the target kept; all of them if there are no more."""
    if n_rows >= table.height:
        return table
    order = table.with_columns(pl.int_range(pl.len()).shuffle(seed=seed).over(TARGET).alias("place"))
    share = (pl.col("place") + 0.5) / pl.len().over(TARGET)
    return order.sort(share).drop("place").head(n_rows)


def chosen_columns(table: pl.DataFrame, n_columns: int) -> list[str]:
    """The target and as many numeric as categorical columns, as far as there are any."""
    numeric = [name for name, dtype in table.schema.items() if dtype.is_numeric() and name != TARGET]
    others = [name for name in table.columns if name not in numeric and name != TARGET]
    mixed = [name for pair in zip(numeric, others, strict=False) for name in pair]
    rest = [name for name in [*numeric, *others] if name not in mixed]
    return [TARGET, *[*mixed, *rest][: n_columns - 1]]


def timed(run: Experiment[Size], name: str, table: pl.DataFrame, along: str, at: int) -> list[dict[str, object]]:
    """The best times of a table at both settings (the best of some: others use this machine too)."""
    settings = {
        "paper": paper_options(table.width, trees=TREES, min_leaf=MIN_LEAF),
        "ours": our_options(),
    }
    found = []
    for setting, options in settings.items():
        run.say(f"{name}: {table.height:,} x {table.width}, {setting}")
        times = [one_timing(table, options, run.seed) for _ in range(run.size.repeats)]
        best = {key: min(time[key] for time in times) for key in TIMES}
        found.append({"data": name, "along": along, "at": at, "setting": setting, **best})
    return found


def one_timing(table: pl.DataFrame, options: dict[str, Any], seed: int) -> dict[str, float]:
    """Seconds to fit, and to draw as many rows, on the clock and of processor time."""
    marks = [(time.perf_counter(), time.process_time())]
    model = fit_model(table, seed, options)
    marks.append((time.perf_counter(), time.process_time()))
    arf_dask.forge(model, table.height, seed=seed, progress=False)
    marks.append((time.perf_counter(), time.process_time()))
    spent = [mark[side] - before[side] for before, mark in itertools.pairwise(marks) for side in (0, 1)]
    return dict(zip(TIMES, spent, strict=True))


def exponent(at: pl.Series, seconds: pl.Series) -> float:
    """The slope of log time over log size: 1 is linear."""
    return float(np.polyfit(np.log(at.to_numpy()), np.log(seconds.to_numpy()), 1)[0])


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """The table of the documentation: times, and under each block the exponents of processor time."""
    blocks = []
    for (along, setting), block in table.group_by("along", "setting", maintain_order=True):
        texts = block.select("along", "setting", pl.col("at").cast(pl.String), *(fixed(pl.col(t), 3) for t in TIMES))
        slopes = {time: f"n^{exponent(block['at'], block[time]):.2f}" for time in TIMES}
        if along == "columns":
            slopes = {time: text.replace("n", "d") for time, text in slopes.items()}
        last = pl.DataFrame([{"along": along, "setting": setting, "at": "exponent", **slopes}])
        blocks.append(pl.concat([texts, last]))
    names = {"at": "rows or columns", "fit": "fit, s", "fit, processor": "fit, processor s"}
    names |= {"sample": "draw, s", "sample, processor": "draw, processor s"}
    return pl.concat(blocks).rename(names)


def draw(table: pl.DataFrame) -> Any:
    """Panels A and C: fitting, B and D: drawing, both axes logarithmic."""
    figure, axes = panels(2, 2, width=4.6, height=3.2, sharey="col")
    letters = iter("ABCD")
    for row, along in enumerate(("rows", "columns")):
        for panel, key, what in zip(axes[row], ("fit, processor", "sample, processor"), ("fit", "draw"), strict=True):
            for number, setting in enumerate(("paper", "ours")):
                line = table.filter((pl.col("along") == along) & (pl.col("setting") == setting))
                label = f"{setting}: exponent {exponent(line['at'], line[key]):.2f}"
                series(panel, number, line["at"].to_numpy(), line[key].to_numpy(), None, label)
            ticks = table.filter(pl.col("along") == along)["at"].unique().sort().to_list()
            panel.set(xscale="log", yscale="log", xlabel=along, title=f"{next(letters)}  {what}")
            logarithmic(panel.xaxis, ticks)
            logarithmic(panel.yaxis)
            panel.legend()
        axes[row, 0].set_ylabel("processor seconds")
    return figure


if __name__ == "__main__":
    main()
