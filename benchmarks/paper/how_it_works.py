"""The pictures of docs/how-it-works.md: rounds, leaves as boxes, a density as a surface, a condition as a slice.

python benchmarks/paper/how_it_works.py [--full | --tiny]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from experiment import Experiment, start
from figures import BLUE, FAINT, INK, ORANGE, SURFACE, panels, save_figure, scatter, without_ticks
from leaf_boxes import LeafBoxes, leaf_boxes
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from patterns import widened
from settings import paper_options
from simulations import toeplitz, two_moons

import arf_dask


class Size(NamedTuple):
    """Rows of the example, trees, and points a side of the surface."""

    rows: int
    trees: int
    grid: int


SIZES = {"tiny": Size(200, 4, 20), "default": Size(2_000, 50, 160), "full": Size(2_000, 100, 240)}
MIN_LEAF = 20
MOST_ROUNDS, SHOWN_ROUNDS = 10, 3
SLICES = (0.0, 0.5, 1.5)  # values of x that are conditioned on
LEFT, RIGHT, BOTTOM, TOP = -1.5, 2.5, -1.1, 1.6


def main() -> None:
    """Draw the four pictures."""
    run = start(__doc__, SIZES)
    moons = two_moons(run.size.rows, np.random.default_rng(run.seed)).select("x", "y")
    gaussian = toeplitz(run.size.rows, np.random.default_rng(run.seed))
    run.say("rounds")
    stages = {"two moons, 2 columns": rounds_of(moons, run), "Toeplitz Gaussian, 10 columns": rounds_of(gaussian, run)}
    model = generator(moons, run.size.trees, MOST_ROUNDS, run.seed)
    pictures = {
        "rounds": draw_rounds(stages),
        "boxes": draw_boxes(moons, model),
        "density": draw_density(model, run.size.grid),
        "slices": draw_slices(model, run.size.grid),
    }
    for name, figure in pictures.items():
        file: Path = run.out / "how-it-works" / f"{name}.svg"
        save_figure(figure, file)
        run.say(f"written: {file}")


def generator(table: pl.DataFrame, trees: int, rounds: int, seed: int) -> arf_dask.Model:
    """Alg. 1, stopped after so many rounds, and the leaf densities of the forest that is kept."""
    options = paper_options(table.width, trees=trees, min_leaf=MIN_LEAF)
    forest = arf_dask.adversarial_forest(table, seed=seed, progress=False, **options, max_rounds=rounds)
    return arf_dask.forde(forest, table, progress=False)


# ---------------------------------------------------------------- rounds


class Stage(NamedTuple):
    """Rows of the first two columns, and what is written above them."""

    rows: pl.DataFrame
    title: str


def rounds_of(table: pl.DataFrame, run: Experiment[Size]) -> list[Stage]:
    """Real rows, the rows that the discriminator of each round was shown, and how well it told the two apart."""
    rng = np.random.default_rng(run.seed)
    shuffled = table.select(pl.Series(name, rng.permutation(table[name].to_numpy())) for name in table.columns)
    last = generator(table, run.size.trees, MOST_ROUNDS, run.seed)
    accuracies = last.rounds["accuracy"].to_list()[: 1 + SHOWN_ROUNDS]
    shown = [shuffled]
    for rounds in range(len(accuracies) - 1):
        model = generator(table, run.size.trees, rounds, run.seed)
        shown.append(arf_dask.forge(model, table.height, seed=run.seed, progress=False))
    titles = [f"round {number}: accuracy {accuracy:.2f}" for number, accuracy in enumerate(accuracies)]
    stages = map(Stage, [table, *shown], ["real", *titles])
    return [Stage(rows.select(rows.columns[:2]), title) for rows, title in stages]


def draw_rounds(examples: dict[str, list[Stage]]) -> Any:
    """A row of panels per example; an example whose loop ends earlier has fewer."""
    longest = max(len(stages) for stages in examples.values())
    figure, axes = panels(len(examples), longest, width=2.7, height=2.7)
    for row, (name, stages) in zip(axes, examples.items(), strict=True):
        limits = [widened(stages[0].rows.to_series(side)) for side in (0, 1)]
        for number, (panel, stage) in enumerate(zip(row, stages, strict=False)):
            first, second = stage.rows.get_columns()
            scatter(panel, first, second, BLUE if number == 0 else ORANGE)
            panel.set(xlim=limits[0], ylim=limits[1], title=stage.title)
            without_ticks(panel)
        row[0].set_ylabel(name)
        for panel in row[len(stages) :]:
            panel.set_axis_off()
    return figure


# ---------------------------------------------------------------- leaves


def draw_boxes(moons: pl.DataFrame, model: arf_dask.Model) -> Any:
    """The leaves of one tree, darker the denser, and beside them those of two trees."""
    figure, axes = panels(1, 2, width=4.6, height=3.6)
    boxes = leaf_boxes(model, 0)
    patches = add_boxes(axes[0, 0], boxes, densities(boxes))
    scatter(axes[0, 0], moons["x"], moons["y"], INK, size=1.5)
    axes[0, 0].set_title(f"one tree: {len(boxes.coverage)} leaves")
    figure.colorbar(patches, ax=axes[0, 0], label="share of rows per unit of area")
    for tree, color in enumerate((BLUE, ORANGE)):
        add_outlines(axes[0, 1], leaf_boxes(model, tree), color)
    axes[0, 1].set_title("two trees: each cuts differently")
    for panel in axes[0]:
        panel.set(xlim=(LEFT, RIGHT), ylim=(BOTTOM, TOP))
        without_ticks(panel)
    return figure


def corners(boxes: LeafBoxes) -> tuple[Any, Any]:
    """Lower and upper corners inside the picture."""
    window = np.array([[LEFT, BOTTOM], [RIGHT, TOP]])
    return np.maximum(boxes.lower, window[0]), np.minimum(boxes.upper, window[1])


def densities(boxes: LeafBoxes) -> Any:
    """Share of the rows by area, inside the picture."""
    lower, upper = corners(boxes)
    return boxes.coverage / np.maximum(upper - lower, 1e-9).prod(axis=1)


def rectangles(boxes: LeafBoxes) -> list[Rectangle]:
    """Every leaf as a rectangle."""
    lower, upper = corners(boxes)
    return [Rectangle((x, y), w, h) for x, y, w, h in np.column_stack([lower, upper - lower])]


def add_boxes(panel: Any, boxes: LeafBoxes, values: Any) -> Any:
    """Filled rectangles."""
    filled = PatchCollection(rectangles(boxes), cmap="Blues", edgecolor=FAINT)
    filled.set_array(np.minimum(values, np.quantile(values, 0.95)))
    panel.add_collection(filled)
    return filled


def add_outlines(panel: Any, boxes: LeafBoxes, color: str) -> None:
    """Empty rectangles."""
    panel.add_collection(PatchCollection(rectangles(boxes), facecolor="none", edgecolor=color, linewidth=0.8))


# ---------------------------------------------------------------- densities


def surface(model: arf_dask.Model, grid: int) -> tuple[Any, Any, Any]:
    """The density on a grid: x, y and q(x, y)."""
    x, y = np.linspace(LEFT, RIGHT, grid), np.linspace(BOTTOM, TOP, grid)
    points = pl.DataFrame({"x": np.tile(x, grid), "y": np.repeat(y, grid)})
    return x, y, np.exp(model.log_density(points).to_numpy()).reshape(grid, grid)


def draw_density(model: arf_dask.Model, grid: int) -> Any:
    """The density as a surface, with the places of the slices."""
    figure, axes = panels(1, 1, width=6.0, height=4.0)
    x, y, values = surface(model, grid)
    image = axes[0, 0].pcolormesh(x, y, values, cmap=SURFACE, shading="nearest", rasterized=True)
    for value in SLICES:
        axes[0, 0].axvline(value, color=INK, linewidth=1, linestyle="--")
    figure.colorbar(image, ax=axes[0, 0], label="density q(x, y)")
    axes[0, 0].set(xlabel="x", ylabel="y")
    axes[0, 0].grid(visible=False)
    return figure


def draw_slices(model: arf_dask.Model, grid: int) -> Any:
    """Conditional densities of y: the surface cut at a value of x, scaled to integrate to 1."""
    figure, axes = panels(1, len(SLICES), width=3.1, height=2.8, sharey=True)
    y = np.linspace(BOTTOM, TOP, 2 * grid)
    for panel, value in zip(axes[0], SLICES, strict=True):
        density = np.exp(model.log_density(pl.DataFrame({"y": y}), given={"x": value}).to_numpy())
        panel.plot(y, density, color=BLUE)
        panel.fill_between(y, density, color=BLUE, alpha=0.2, linewidth=0)
        panel.set(title=f"q(y | x = {value:g})", xlabel="y")
    axes[0, 0].set_ylabel("density")
    return figure


if __name__ == "__main__":
    main()
