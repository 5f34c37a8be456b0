"""The figures of docs/how-it-works.md: rounds, leaves as boxes, a density and its slices, and what a ratio makes of it.

Run: `python benchmarks/paper/how_it_works.py [--full | --tiny]`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from experiment import Experiment, start
from figures import BLUE, FAINT, INK, ORANGE, SURFACE, panels, save_figure, scatter, series, without_ticks
from leaf_boxes import LeafBoxes, leaf_boxes
from matplotlib import pyplot as plt
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle
from patterns import widened
from settings import paper_options
from simulations import toeplitz, two_moons

import arf_dask


class Size(NamedTuple):
    """Rows of the examples, trees, and grid points per side of the surface."""

    rows: int
    trees: int
    grid: int


SIZES = {"tiny": Size(200, 4, 20), "default": Size(2_000, 50, 160), "full": Size(2_000, 100, 240)}
MIN_LEAF = 20
MOST_ROUNDS, SHOWN_ROUNDS = 10, 3
SLICES = (0.0, 0.5, 1.5)  # values of x that are conditioned on
FEW_TREES, LARGE_LEAF = 5, 40  # of the refined example: trees, and rows per leaf as a part of all rows
LEFT, RIGHT, BOTTOM, TOP = -1.5, 2.5, -1.1, 1.6


def main() -> None:
    """Draw the five figures."""
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
        "refinement": draw_refinement(moons, run),
    }
    for name, figure in pictures.items():
        file: Path = run.out / "how-it-works" / f"{name}.svg"
        save_figure(figure, file)
        run.say(f"written: {file}")


def generator(table: pl.DataFrame, trees: int, rounds: int, seed: int) -> arf_dask.Model:
    """Run Alg. 1 for a number of rounds, and Alg. 2 on the forest that is kept."""
    options = paper_options(table.width, trees=trees, min_leaf=MIN_LEAF)
    forest = arf_dask.adversarial_forest(table, seed=seed, progress=False, **options, max_rounds=rounds)
    return arf_dask.forde(forest, table, progress=False)


# ---------------------------------------------------------------- rounds


class Rounds(NamedTuple):
    """Adversarial training on one table: the first two columns of its rows, and the accuracies of all rounds."""

    real: pl.DataFrame
    synthetic: list[pl.DataFrame]  # what the discriminator of each of the first rounds was shown
    accuracies: list[float]


def rounds_of(table: pl.DataFrame, run: Experiment[Size]) -> Rounds:
    """Repeat adversarial training, stopped after each round, to obtain the synthetic rows of the next round."""
    rng = np.random.default_rng(run.seed)
    shuffled = table.select(pl.Series(name, rng.permutation(table[name].to_numpy())) for name in table.columns)
    accuracies = generator(table, run.size.trees, MOST_ROUNDS, run.seed).rounds["accuracy"].to_list()
    shown = [shuffled]
    for rounds in range(min(len(accuracies) - 1, SHOWN_ROUNDS)):
        model = generator(table, run.size.trees, rounds, run.seed)
        shown.append(arf_dask.forge(model, table.height, seed=run.seed, progress=False))
    return Rounds(table.select(table.columns[:2]), [rows.select(rows.columns[:2]) for rows in shown], accuracies)


def draw_rounds(examples: dict[str, Rounds]) -> Any:
    """Draw one row of panels per example: real rows, synthetic rows of every round, and accuracy by round."""
    longest = max(len(example.synthetic) for example in examples.values())
    figure, axes = panels(len(examples), longest + 2, width=2.5, height=2.6)
    for row, (name, example) in zip(axes, examples.items(), strict=True):
        limits = [widened(example.real.to_series(side)) for side in (0, 1)]
        titles = ["real", *(f"synthetic, round {number}" for number in range(longest))]
        for panel, rows, title in zip(row, [example.real, *example.synthetic], titles, strict=False):
            color = BLUE if title == "real" else ORANGE
            scatter(panel, rows.to_series(0), rows.to_series(1), color, size=3.0)
            panel.set(xlim=limits[0], ylim=limits[1], title=title)
            without_ticks(panel)
        row[0].set_ylabel(name)
        for panel in row[1 + len(example.synthetic) : -1]:
            panel.set_axis_off()
        draw_accuracy(row[-1], example.accuracies)
    return figure


def draw_accuracy(panel: Any, accuracies: list[float]) -> None:
    """Draw the out-of-bag accuracy of the discriminators."""
    series(panel, 1, range(len(accuracies)), np.array(accuracies), None, "")
    panel.axhline(0.5, color=INK, linestyle="--", linewidth=1)
    panel.set(ylim=(0.3, 1.0), title="accuracy by round", xlabel="round", xticks=range(len(accuracies)))


# ---------------------------------------------------------------- leaves


def draw_boxes(moons: pl.DataFrame, model: arf_dask.Model) -> Any:
    """Draw the leaves of one tree, shaded by density, and the outlines of the leaves of two trees."""
    figure, axes = panels(1, 2, width=4.9, height=3.8)
    boxes = leaf_boxes(model, 0)
    patches = add_boxes(axes[0, 0], boxes, densities(boxes))
    scatter(axes[0, 0], moons["x"], moons["y"], INK, size=1.5)
    axes[0, 0].set_title(f"one tree: {len(boxes.coverage)} leaves")
    figure.colorbar(patches, ax=axes[0, 0], label="share of rows per unit of area", extend="max")
    for tree, color in enumerate((BLUE, ORANGE)):
        add_outlines(axes[0, 1], leaf_boxes(model, tree), color)
    axes[0, 1].set_title("two trees: each splits elsewhere")
    for panel in axes[0]:
        panel.set(xlim=(LEFT, RIGHT), ylim=(BOTTOM, TOP), xlabel="x", ylabel="y")
        panel.grid(visible=False)
    return figure


def corners(boxes: LeafBoxes) -> tuple[Any, Any]:
    """Return the lower and upper corners, clipped to the figure."""
    window = np.array([[LEFT, BOTTOM], [RIGHT, TOP]])
    return np.maximum(boxes.lower, window[0]), np.minimum(boxes.upper, window[1])


def densities(boxes: LeafBoxes) -> Any:
    """Return the share of rows per unit of area inside the figure."""
    lower, upper = corners(boxes)
    return boxes.coverage / np.maximum(upper - lower, 1e-9).prod(axis=1)


def rectangles(boxes: LeafBoxes) -> list[Rectangle]:
    """Return one rectangle per leaf."""
    lower, upper = corners(boxes)
    return [Rectangle((x, y), w, h) for x, y, w, h in np.column_stack([lower, upper - lower])]


def add_boxes(panel: Any, boxes: LeafBoxes, values: Any) -> Any:
    """Draw filled rectangles; the densest 5 % share the darkest colour."""
    filled = PatchCollection(rectangles(boxes), cmap="Blues", edgecolor=FAINT)
    filled.set_array(np.minimum(values, np.quantile(values, 0.95)))
    panel.add_collection(filled)
    return filled


def add_outlines(panel: Any, boxes: LeafBoxes, color: str) -> None:
    """Draw empty rectangles."""
    panel.add_collection(PatchCollection(rectangles(boxes), facecolor="none", edgecolor=color, linewidth=0.8))


# ---------------------------------------------------------------- densities


def surface(model: arf_dask.Model, grid: int) -> tuple[Any, Any, Any]:
    """Evaluate the density on a grid: x, y and q(x, y)."""
    x, y = np.linspace(LEFT, RIGHT, grid), np.linspace(BOTTOM, TOP, grid)
    points = pl.DataFrame({"x": np.tile(x, grid), "y": np.repeat(y, grid)})
    return x, y, np.exp(model.log_density(points).to_numpy()).reshape(grid, grid)


def draw_density(model: arf_dask.Model, grid: int) -> Any:
    """Draw the density as a surface and seen from above, with the positions of the slices."""
    figure = plt.figure(figsize=(10.0, 4.2), layout="constrained")
    solid, flat = figure.add_subplot(1, 2, 1, projection="3d"), figure.add_subplot(1, 2, 2)
    x, y, values = surface(model, grid)
    solid.plot_surface(*np.meshgrid(x, y), values, cmap=SURFACE, rcount=grid, ccount=grid, rasterized=True)
    solid.view_init(elev=50, azim=-70)
    solid.set(xlabel="x", ylabel="y", title="the density as a surface", zticks=[])
    image = flat.pcolormesh(x, y, values, cmap=SURFACE, shading="nearest", rasterized=True)
    for value in SLICES:
        flat.axvline(value, color=INK, linewidth=1, linestyle="--")
        flat.text(value + 0.04, TOP - 0.08, f"x = {value:g}", color=INK, fontsize=10, va="top")
    figure.colorbar(image, ax=flat, label="density q(x, y)")
    flat.set(xlabel="x", ylabel="y", title="seen from above")
    flat.grid(visible=False)
    return figure


def draw_slices(model: arf_dask.Model, grid: int) -> Any:
    """Draw conditional densities of y: the surface cut at a value of x, scaled to integrate to 1."""
    figure, axes = panels(1, len(SLICES), width=3.1, height=2.8, sharey=True)
    y = np.linspace(BOTTOM, TOP, 2 * grid)
    for panel, value in zip(axes[0], SLICES, strict=True):
        density = np.exp(model.log_density(pl.DataFrame({"y": y}), given={"x": value}).to_numpy())
        panel.plot(y, density, color=BLUE)
        panel.fill_between(y, density, color=BLUE, alpha=0.2, linewidth=0)
        panel.set(title=f"q(y | x = {value:g})", xlabel="y")
    axes[0, 0].set_ylabel("density")
    return figure


# ---------------------------------------------------------------- ratio


def draw_refinement(moons: pl.DataFrame, run: Experiment[Size]) -> Any:
    """Draw the density of a forest of few trees and large leaves, what the ratio makes of it, and rows."""
    options = paper_options(moons.width, trees=FEW_TREES, min_leaf=moons.height // LARGE_LEAF)
    model = arf_dask.fit(moons, **{**options, "refine": True}, seed=run.seed, progress=False)
    figure, axes = panels(1, 4, width=2.9, height=2.9, sharey=True)
    forest, (x, y, refined) = surface(model.without_refinement(), run.size.grid)[2], surface(model, run.size.grid)
    factors = np.log2(np.maximum(refined, 1e-12) / np.maximum(forest, 1e-12))
    drawn = model.sample(moons.height, seed=run.seed)
    highest = float(np.quantile(refined, 0.995))
    for panel, values, title in ((axes[0, 0], forest, "forest"), (axes[0, 2], refined, "forest x ratio")):
        panel.pcolormesh(x, y, values, cmap=SURFACE, vmin=0, vmax=highest, shading="nearest", rasterized=True)
        panel.set_title(title)
    shown = axes[0, 1].pcolormesh(x, y, factors, cmap="RdBu", vmin=-2, vmax=2, shading="nearest", rasterized=True)
    figure.colorbar(shown, ax=axes[0, 1], ticks=[-2, 0, 2], format=lambda power, _: f"{2.0**power:g}", extend="both")
    axes[0, 1].set_title("ratio")
    scatter(axes[0, 3], drawn["x"], drawn["y"], ORANGE, size=2.0)
    axes[0, 3].set_title("accepted rows")
    for panel in axes[0]:
        panel.set(xlim=(LEFT, RIGHT), ylim=(BOTTOM, TOP))
        without_ticks(panel)
    return figure


if __name__ == "__main__":
    main()
