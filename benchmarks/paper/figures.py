"""The style of all figures: colours of Okabe and Ito, safe for colour-blind readers, and a marker per series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import polars as pl
from cycler import cycler

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
PALETTE = (BLUE, ORANGE, GREEN, PINK, YELLOW, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")  # series differ by marker as well as by colour
INK, FAINT = "#222222", "#d9d9d9"
SURFACE = "YlGnBu"  # lightness falls monotonically: readable in grey and for all kinds of colour vision

STYLE: dict[str, Any] = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.labelsize": 11,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "font.size": 11,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "savefig.dpi": 180,  # of points and surfaces, which are embedded as pixels
    "svg.fonttype": "none",  # text stays text: searchable, and available to screen readers
    "svg.hashsalt": "arf_dask",  # identical figures have identical bytes
}
plt.style.use(STYLE)


def panels(rows: int, columns: int, width: float = 3.2, height: float = 2.9, **options: Any) -> tuple[Any, Any]:
    """Return a figure with `rows` x `columns` panels of equal size, and the array of its axes."""
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **options
    )
    return figure, axes


def scatter(axes: Any, x: Any, y: Any, color: str | Sequence[str], size: float = 4.0, **options: Any) -> None:
    """Draw points as pixels, so that files stay small with thousands of points."""
    axes.scatter(x, y, s=size, color=color, linewidths=0, antialiased=False, rasterized=True, **options)


def without_ticks(axes: Any, *, frame: bool = True) -> None:
    """Remove ticks and grid, and the frame as well if `frame` is false."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    if not frame:
        axes.spines[:].set_visible(False)


def series(axes: Any, number: int, x: Any, y: Any, error: Any, label: str) -> None:
    """Draw one line of a comparison, with markers and a band of one standard error."""
    color = PALETTE[number % len(PALETTE)]
    axes.plot(x, y, color=color, marker=MARKERS[number % len(MARKERS)], label=label)
    if error is not None:
        axes.fill_between(x, y - error, y + error, color=color, alpha=0.2, linewidth=0)


def logarithmic(axis: Any, ticks: Sequence[float] | None = None) -> None:
    """Label a logarithmic axis with plain numbers, at the given ticks or at 1, 2 and 5 of every decade."""
    axis.set_major_locator(FixedLocator(ticks) if ticks is not None else LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def model_dots(axes: Any, labels: Sequence[str], values: pl.Series, errors: pl.Series | None, is_paper: Any) -> None:
    """Draw one row per model, the first on top: ours as blue circles, figures of the paper as orange squares."""
    places = range(len(labels) - 1, -1, -1)
    for number, published in enumerate((False, True)):
        chosen = [i for i, theirs in enumerate(is_paper) if theirs == published and values[i] is not None]
        spread = None if errors is None else [0.0 if errors[i] is None else errors[i] for i in chosen]
        look = {"color": PALETTE[number], "marker": MARKERS[number], "linestyle": "none", "capsize": 3}
        axes.errorbar([values[i] for i in chosen], [places[i] for i in chosen], xerr=spread, **look)
    axes.set_yticks(places, labels)
    axes.set_ylim(-0.6, len(labels) - 0.4)


def model_legend(figure: Any, *extra: Any) -> None:
    """Explain the marks of `model_dots` below the panels."""
    names = ("measured here", "figures of the paper")
    marks = [
        Line2D([], [], color=PALETTE[number], marker=MARKERS[number], linestyle="none", label=name)
        for number, name in enumerate(names)
    ]
    figure.legend(handles=[*marks, *extra], loc="outside lower center", ncols=2 + len(extra))


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as SVG without a date, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
