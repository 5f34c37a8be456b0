"""The Twenty Datasets (the paper's Table 1): likelihood of binary tables, beside five circuits and the paper's FORDE.

Reads NAME.train, NAME.valid and NAME.test from --data, as .data files (0 and 1 between commas, no header) or Parquet;
those that are not there are left out. As in the paper, validation rows are learned from too.

Run: `python benchmarks/paper/twenty.py --data DIR [--full | --tiny]`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from experiment import Experiment, fixed, likelihood, start
from figures import INK, PALETTE, panels
from published import CIRCUITS, TWENTY
from settings import fit_model, our_options, paper_options

PARTS = ("train", "valid", "test")


class Size(NamedTuple):
    """Trees of the paper's settings, and rows at most that are learned from and tested."""

    trees: int
    rows: int | None


SIZES = {"tiny": Size(4, 200), "default": Size(50, None), "full": Size(200, None)}


def main() -> None:
    """Measure every data set that is there, smallest first."""
    run = start(__doc__, SIZES)
    found = {name: data for name in TWENTY if (data := load(run.data, name, run.size.rows)) is not None}
    if not found:
        run.say(f"none of the Twenty Datasets in {run.data}: nothing to measure. Give --data DIR.")
        return
    rows = []
    for name, (train, test) in sorted(found.items(), key=lambda item: item[1][0].estimated_size()):
        for setting, options in settings(train.width, run.size.trees).items():
            run.say(f"{name} ({train.height:,} x {train.width}), {setting}")
            rows.append({"data set": name, "setting": setting, **measure(train, test, options, run)})
    table = pl.DataFrame(rows)
    run.write("twenty", table, readable(table), draw(table))


def settings(columns: int, trees: int) -> dict[str, dict[str, Any]]:
    """The paper's options with both of its node sizes, our defaults, and our defaults with as many trees."""
    return {
        f"paper, {trees} trees, min 4": paper_options(columns, trees=trees, min_leaf=4),
        f"paper, {trees} trees, min 2": paper_options(columns, trees=trees, min_leaf=2),
        "ours": our_options(),
        f"ours, {trees} trees": our_options(trees=trees),
    }


def load(data: Path, name: str, rows: int | None) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Training and validation rows together, and test rows; None if files are missing."""
    parts = [read_part(data, name, part) for part in PARTS]
    if any(part is None for part in parts):
        return None
    train, valid, test = (part.cast(pl.Boolean) for part in parts if part is not None)
    return pl.concat([train, valid])[:rows], test[:rows]


def read_part(data: Path, name: str, part: str) -> pl.DataFrame | None:
    """One part of one data set, from Parquet or from text; None if there is neither."""
    for ending in ("parquet", "data"):
        file = data / f"{name}.{part}.{ending}"
        if not file.exists():
            continue
        if ending == "parquet":
            return pl.read_parquet(file)
        return pl.read_csv(file, has_header=False).cast(pl.UInt8)
    return None


def measure(
    train: pl.DataFrame, test: pl.DataFrame, options: dict[str, Any], run: Experiment[Size]
) -> dict[str, object]:
    """The likelihood of one fit, and what it took."""
    started, spent = time.perf_counter(), time.process_time()
    model = fit_model(train, run.seed, options)
    return {
        **likelihood(model.log_density(test)),
        "rounds": model.rounds.height,
        "bundles": len(model.schema.bundles),
        "seconds": time.perf_counter() - started,
        "processor seconds": time.process_time() - spent,
    }


def wide(table: pl.DataFrame) -> pl.DataFrame:
    """One row per data set: the paper's six columns, then ours."""
    published = pl.DataFrame([{"data set": name, **dict(zip(CIRCUITS, v, strict=True))} for name, v in TWENTY.items()])
    ours = table.pivot("setting", index="data set", values="NLL")
    return ours.join(published, on="data set", how="left").select(
        "data set", *CIRCUITS, pl.exclude("data set", *CIRCUITS)
    )


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """The table of the documentation: winners in bold, mean ranks in the last row."""
    values = wide(table)
    models = [name for name in values.columns if name != "data set"]
    rounded = values.with_columns(pl.col(models).round(2))
    text = rounded.select("data set", *(bold_where(m, pl.min_horizontal(models)) for m in models))
    last = {"data set": "mean rank"} | {m: f"{mean_rank(rounded, m):.1f}" for m in models}
    return pl.concat([text, pl.DataFrame([last])]).rename({"FORDE": "paper's FORDE"})


def bold_where(model: str, best: pl.Expr) -> pl.Expr:
    """The likelihoods of a model as text, bold where there is none better."""
    text = fixed(pl.col(model), 2)
    return pl.when(pl.col(model) <= best).then(pl.format("**{}**", text)).otherwise(text).alias(model)


def mean_rank(values: pl.DataFrame, model: str) -> float:
    """The mean rank of a model among the paper's six, in the place of its FORDE if it is none of them."""
    rivals = [name for name in CIRCUITS if name not in (model, "FORDE")] + (["FORDE"] if model in CIRCUITS[:-1] else [])
    better = pl.sum_horizontal(pl.col(rivals) < pl.col(model))
    return float(values.select((1 + better).mean()).item())


def draw(table: pl.DataFrame) -> Any:
    """Per data set, the likelihood of every model less that of the paper's FORDE, in per cent of it."""
    values = wide(table)
    models = [name for name in values.columns if name not in ("data set", "FORDE")]
    figure, axes = panels(1, 1, width=8.5, height=1.6 + 1.1 * values.height)
    panel = axes[0, 0]
    for number, model in enumerate(models):
        gain = (values[model] / values["FORDE"] - 1) * 100
        color = INK if model in CIRCUITS else PALETTE[(number - len(CIRCUITS) + 1) % len(PALETTE)]
        marker = ("x", "+", "1", "2", "|")[number] if model in CIRCUITS else ("o", "s", "^", "D")[number % 4]
        height = [place + 0.08 * (number - len(models) / 2) for place in range(values.height)]
        panel.plot(gain, height, linestyle="none", marker=marker, color=color, markersize=7, label=model)
    panel.axvline(0, color=INK, linewidth=1)
    panel.set_yticks(range(values.height), values["data set"].to_list())
    panel.set(xlabel="NLL against the paper's FORDE, per cent (left is better)")
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


if __name__ == "__main__":
    main()
