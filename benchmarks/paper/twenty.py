"""The Twenty Datasets (the paper's Table 1): likelihood of binary tables, beside five circuits and the paper's FORDE.

Reads the parts NAME.train, NAME.valid and NAME.test of each data set from --data or from its subdirectory NAME, as
.data files (0 and 1, separated by commas or blanks, without header) or Parquet. NAME is the paper's name, or the name
under which the data set is usually distributed, such as baudio for audio. Data sets that are not there are skipped. As
in the paper, training and validation rows are combined.

Run: `python benchmarks/paper/twenty.py --data DIR [--full | --tiny]`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from experiment import Experiment, fixed, likelihood, start
from figures import INK, model_dots, model_legend, panels
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from published import CIRCUITS, TWENTY
from settings import fit_model, paper_options

PARTS = (("train", "ts"), ("valid",), ("test",))  # some distributions call the training part "ts"
OTHER_NAMES = {
    "audio": "baudio",
    "netflix": "bnetflix",
    "retail": "tretail",
    "pumsb": "pumsb_star",
    "movie": "tmovie",
    "webkb": "cwebkb",
    "reuters": "cr52",
    "20ng": "c20ng",
}
ALT = "Negative log-likelihood of every model, one panel per data set; the best model is circled"
PAPERS_FORDE = "paper's FORDE"
MOST_COLUMNS = 4  # panels side by side


class Size(NamedTuple):
    """The number of trees at the paper's settings, and the maximum number of training and of test rows."""

    trees: int
    rows: int | None


SIZES = {"tiny": Size(4, 200), "default": Size(50, None), "full": Size(200, None)}


def main() -> None:
    """Measure every data set that is there, the smallest first."""
    run = start(__doc__, SIZES)
    found = {name: data for name in TWENTY if (data := load(run.data, name, run.size.rows)) is not None}
    if not found:
        run.say(f"none of the Twenty Datasets in {run.data}: nothing to measure. Give their directory as --data DIR.")
        return
    if missing := [name for name in TWENTY if name not in found]:
        run.say(f"{len(found)} of 20 data sets in {run.data}; skipped: {', '.join(missing)}")
    rows = []
    for name, (train, test) in sorted(found.items(), key=lambda item: item[1][0].estimated_size()):
        for setting, options in settings(train.width, run.size.trees).items():
            run.say(f"{name} ({train.height:,} x {train.width}), {setting}")
            rows.append({"data set": name, "setting": setting, **measure(train, test, options, run)})
    table = pl.DataFrame(rows)
    run.write("twenty", table, readable(table), draw(table), ALT)


def settings(columns: int, trees: int) -> dict[str, dict[str, Any]]:
    """Return the paper's settings with both of its node sizes, our defaults, and our defaults with as many trees."""
    return {
        f"paper's settings, {trees} trees, min node 4": paper_options(columns, trees=trees, min_leaf=4),
        f"paper's settings, {trees} trees, min node 2": paper_options(columns, trees=trees, min_leaf=2),
        "our defaults": {},
        f"our defaults, {trees} trees": {"trees": trees},
    }


def load(data: Path, name: str, rows: int | None) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Return training and validation rows together, and test rows; None if a part is missing."""
    parts = [read_part(data, name, part_names) for part_names in PARTS]
    if any(part is None for part in parts):
        return None
    train, valid, test = (part.cast(pl.Boolean) for part in parts if part is not None)
    return pl.concat([train, valid])[:rows], test[:rows]


def read_part(data: Path, name: str, part_names: tuple[str, ...]) -> pl.DataFrame | None:
    """Read one part of one data set from Parquet or text; None if there is neither."""
    for file_name in (name, OTHER_NAMES.get(name, name)):
        for folder in (data, data / file_name):
            for part in part_names:
                parquet, text = (folder / f"{file_name}.{part}.{ending}" for ending in ("parquet", "data"))
                if parquet.exists():
                    return pl.read_parquet(parquet)
                if text.exists():
                    return read_text(text)
    return None


def read_text(file: Path) -> pl.DataFrame:
    """Read rows of 0 and 1, separated by commas or blanks."""
    with file.open(encoding="utf-8") as lines:
        separator = "," if "," in lines.readline() else " "
    return pl.read_csv(file, has_header=False, separator=separator).cast(pl.UInt8)


def measure(
    train: pl.DataFrame, test: pl.DataFrame, options: dict[str, Any], run: Experiment[Size]
) -> dict[str, object]:
    """Return the likelihood of one fit, and its cost."""
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
    """One row per data set: the paper's six columns, then ours, to two decimals as in the paper."""
    published = pl.DataFrame([{"data set": name, **dict(zip(CIRCUITS, v, strict=True))} for name, v in TWENTY.items()])
    ours = table.pivot("setting", index="data set", values="NLL")
    joined = ours.join(published, on="data set", how="left")
    return joined.select("data set", *CIRCUITS, pl.exclude("data set", *CIRCUITS).round(2))


def readable(table: pl.DataFrame) -> pl.DataFrame:
    """Format the table of the documentation: winners in bold, mean ranks in the last row."""
    values = wide(table)
    models = [name for name in values.columns if name != "data set"]
    text = values.select("data set", *(bold_where(m, pl.min_horizontal(models)) for m in models))
    last = {"data set": "mean rank"} | {m: f"{mean_rank(values, m):.1f}" for m in models}
    return pl.concat([text, pl.DataFrame([last])]).rename({"FORDE": PAPERS_FORDE})


def bold_where(model: str, best: pl.Expr) -> pl.Expr:
    """Format the likelihoods of a model, in bold where none is better."""
    text = fixed(pl.col(model), 2)
    return pl.when(pl.col(model) <= best).then(pl.format("**{}**", text)).otherwise(text).alias(model)


def mean_rank(values: pl.DataFrame, model: str) -> float:
    """Return the mean rank of a model among the paper's six; one of ours takes the place of the paper's FORDE."""
    rivals = [name for name in CIRCUITS if name not in (model, "FORDE")] + (["FORDE"] if model in CIRCUITS[:-1] else [])
    better = pl.sum_horizontal(pl.col(rivals) < pl.col(model))
    return float(values.select((1 + better).mean()).item())


def draw(table: pl.DataFrame) -> Any:
    """Draw one panel per data set, with one row per model."""
    values = wide(table).rename({"FORDE": PAPERS_FORDE})
    models = values.columns[1:]
    n_columns = min(MOST_COLUMNS, values.height)
    n_rows = -(-values.height // n_columns)
    figure, axes = panels(n_rows, n_columns, width=3.3, height=0.8 + 0.27 * len(models), sharey=True)
    for panel, name in zip(axes.ravel(), values["data set"], strict=False):
        scores = pl.Series(values.row(by_predicate=pl.col("data set") == name)[1:])
        model_dots(panel, models, scores, None, [model in (*CIRCUITS, PAPERS_FORDE) for model in models])
        best = [i for i, score in enumerate(scores) if score == scores.min()]
        ring: dict[str, Any] = {
            "marker": "o",
            "markersize": 11,
            "markerfacecolor": "none",
            "color": INK,
            "linestyle": "none",
        }
        panel.plot(scores[best], [len(models) - 1 - i for i in best], **ring)
        panel.set(title=name, xlabel="NLL, nats per test row")
        panel.xaxis.set_major_locator(MaxNLocator(5))
    for panel in axes.ravel()[values.height :]:
        panel.set_axis_off()
    model_legend(figure, Line2D([], [], **ring, label="best"))
    return figure


if __name__ == "__main__":
    main()
