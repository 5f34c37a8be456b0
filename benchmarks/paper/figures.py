"""One style for all pictures: light, readable, and told apart by anyone (the colours of Okabe and Ito)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
PALETTE = (BLUE, ORANGE, GREEN, PINK, YELLOW, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")  # lines differ by their marks too, not by colour alone
INK, FAINT = "#222222", "#d9d9d9"
SURFACE = "YlGnBu"  # light where there is nothing, one way from light to dark: safe for all readers, and in print

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
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "legend.frameon": False,
    "legend.fontsize": 10,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "savefig.dpi": 180,  # of points and surfaces, which are pixels inside the SVG
    "svg.fonttype": "none",  # text stays text: searchable, and read aloud
    "svg.hashsalt": "arf_dask",  # the same picture, the same bytes
}
plt.style.use(STYLE)


def panels(rows: int, columns: int, width: float = 3.2, height: float = 2.9, **options: Any) -> tuple[Any, Any]:
    """A figure of equal panels, and its axes as an array of `rows` x `columns`."""
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained", **options
    )
    return figure, axes


def scatter(axes: Any, x: Any, y: Any, color: str | Sequence[str], size: float = 4.0, **options: Any) -> None:
    """Points as pixels of few colours: thousands of them stay a small file."""
    axes.scatter(x, y, s=size, color=color, linewidths=0, antialiased=False, rasterized=True, **options)


def without_ticks(axes: Any, *, frame: bool = True) -> None:
    """Leave the picture only, with its axes' lines or without."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    if not frame:
        axes.spines[:].set_visible(False)


def series(axes: Any, number: int, x: Any, y: Any, error: Any, label: str) -> None:
    """One line of a comparison: marks, and a band of one standard error."""
    color = PALETTE[number % len(PALETTE)]
    axes.plot(x, y, color=color, marker=MARKERS[number % len(MARKERS)], label=label)
    if error is not None:
        axes.fill_between(x, y - error, y + error, color=color, alpha=0.2, linewidth=0)


def logarithmic(axis: Any, ticks: Sequence[float] | None = None) -> None:
    """Label a logarithmic axis in plain numbers, at the places given or at 1, 2 and 5 of every decade."""
    axis.set_major_locator(FixedLocator(ticks) if ticks is not None else LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_locator(NullLocator())


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as SVG, without the date, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
