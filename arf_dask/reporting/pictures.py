"""Charts of a report as plain SVG and HTML, without scripts. All data values are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from arf_dask.reporting.distances import Histogram
from arf_dask.typing import Floats

LONGEST = 60  # maximum characters of a name; the tooltip shows more
LONGEST_TITLE = 600


class Whisker(NamedTuple):
    """One line of an interval chart."""

    label: str
    value: float
    low: float
    high: float
    note: str


def text(value: object) -> str:
    """Return data text as HTML: escaped, shortened, and isolated from the surrounding text direction."""
    whole = "".join(c if c.isprintable() else " " for c in str(value))
    short = whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"
    title = f' title="{escape(whole[:LONGEST_TITLE])}"' if short != whole else ""
    return f"<bdi{title}>{escape(short)}</bdi>"


def number(value: float | None, digits: int = 3) -> str:
    """Format a number, or a dash if it is missing."""
    return "-" if value is None or np.isnan(value) else f"{value:.{digits}f}"


def overlay(histogram: Histogram) -> str:
    """Draw the real and synthetic shares of one column on top of each other."""
    return _lines(histogram) if histogram.numeric else _bars(histogram)


def gauge(value: float, limits: tuple[float, float], label: str) -> str:
    """Draw an AUC on a line from 0.5 to 1 with three zones; empty if it is NaN."""
    if np.isnan(value):
        return ""
    place = _Scale(0.5, 1.0)
    zone_ends = [place(limit) for limit in limits]
    zones = (("good", 0.0, zone_ends[0]), ("fair", zone_ends[0], zone_ends[1]), ("bad", zone_ends[1], 100.0))
    zone_html = "".join(
        f'<i class="{name}" style="left:{zone_start:.1f}%;width:{zone_stop - zone_start:.1f}%"></i>'
        for name, zone_start, zone_stop in zones
    )
    return (
        f'<div class="gauge" role="img" aria-label="{escape(label)}: AUC {value:.3f}"><div class="zones">{zone_html}'
        f'<b style="left:{place(value):.1f}%"></b></div><div class="ends"><span>0.5 chance</span>'
        f"<span>{escape(label)}: AUC {value:.3f}</span><span>1 always</span></div></div>"
    )


def heatmap(names: Sequence[str], values: Floats, title: str, *, signed: bool = False) -> str:
    """Draw a square matrix of associations; darker is stronger. Signed values use two colours."""
    n, size, margin = len(names), 300, 104
    step = size / max(n, 1)
    cells = []
    for i, j in zip(*np.indices((n, n)).reshape(2, -1).tolist(), strict=True):
        value = float(values[i, j])
        kind = "neg" if signed and value < 0 else "pos"
        strength = min(1.0, abs(value) * (4 if signed else 1))
        tip = escape(f"{_clip(names[i])} x {_clip(names[j])}: {value:.2f}")
        cells.append(
            f'<rect class="{kind}" x="{margin + j * step:.1f}" y="{i * step:.1f}" width="{step:.1f}" '
            f'height="{step:.1f}" fill-opacity="{strength:.2f}"><title>{tip}</title></rect>'
        )
    return (
        f'<figure class="heat"><figcaption>{escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {size + margin} {size + 16}" role="img" aria-label="{escape(title)}">'
        f'<rect class="ground" x="{margin}" width="{size}" height="{size}"/>{"".join(cells)}'
        f"{_heat_labels(names, step, margin, size)}</svg></figure>"
    )


def _heat_labels(names: Sequence[str], step: float, margin: int, size: int) -> str:
    """Label every row with its number and name, and every column with its number."""
    font = min(11.0, max(7.0, 0.8 * step))
    most = int((margin - 14) / (0.56 * font)) - 3
    labels = []
    for place, name in enumerate(names):
        plain = "".join(c if c.isprintable() else " " for c in name)
        short = plain if len(plain) <= most else f"{plain[: most - 1]}…"
        y, x = (place + 0.5) * step + 0.35 * font, margin + (place + 0.5) * step
        labels.append(
            f'<text x="{margin - 22}" y="{y:.1f}" text-anchor="end" style="unicode-bidi:isolate">{escape(short)}</text>'
            f'<text x="{margin - 4}" y="{y:.1f}" text-anchor="end">{place + 1}</text>'
            f'<text x="{x:.1f}" y="{size + font + 1:.1f}" text-anchor="middle">{place + 1}</text>'
        )
    return f'<g font-size="{font:.1f}">{"".join(labels)}</g>'


def whiskers(rows: Sequence[Whisker], low: float, high: float, mark: float, mark_label: str) -> str:
    """Draw values with their intervals on a common scale, and a line at `mark`."""
    place = _Scale(low, high)
    lines = [
        f'<div class="whisker"><span class="name">{text(row.label)}</span>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{row.value:.3f}">'
        f'<line class="mark" x1="{place(mark):.2f}" x2="{place(mark):.2f}" y1="0" y2="10"/>'
        f'<line class="span" x1="{place(row.low):.2f}" x2="{place(row.high):.2f}" y1="5" y2="5"/>'
        f'<line class="dot" x1="{place(row.value):.2f}" x2="{place(row.value):.2f}" y1="1.5" y2="8.5"/>'
        f'<title>{row.low:.3f} to {row.high:.3f}</title></svg><span class="value">{escape(row.note)}</span></div>'
        for row in rows
    ]
    scale = (
        f'<div class="whisker scale"><span class="name"></span><span class="ends"><span>{low:g}</span>'
        f'<span style="left:{place(mark):.1f}%">{escape(mark_label)}</span><span>{high:g}</span></span>'
        '<span class="value"></span></div>'
    )
    return f'<div class="whiskers">{"".join(lines)}{scale}</div>'


def bars(rows: Sequence[tuple[str, float]]) -> str:
    """Draw horizontal bars, scaled so that the longest fills the available width."""
    most = max((value for _, value in rows), default=0.0)
    lines = [
        f'<div class="bar"><span class="name">{text(name)}</span><span class="track">'
        f'<span class="fill" style="width:{100 * max(value, 0) / most if most > 0 else 0:.1f}%"></span></span>'
        f'<span class="value">{value:.3f}</span></div>'
        for name, value in rows
    ]
    return f'<div class="bars">{"".join(lines)}</div>'


class _Scale(NamedTuple):
    """Maps the range [low, high] to positions in [0, 100]."""

    low: float
    high: float

    def __call__(self, value: float) -> float:
        return float(np.clip((value - self.low) / (self.high - self.low), 0, 1) * 100)


def _lines(histogram: Histogram) -> str:
    """Draw the real column as a filled step curve and the synthetic one as a line."""
    real, synthetic = histogram.shares[0], histogram.shares[1]
    top = max(float(real.max(initial=0)), float(synthetic.max(initial=0)), 1e-12)
    area, line = (_steps(shares / top) for shares in (real, synthetic))
    ends = "".join(f"<span>{escape(label)}</span>" for label in dict.fromkeys(histogram.labels))
    return (
        f'<div class="plot"><span class="peak">{top:.1%} of rows</span>'
        '<svg class="curve" viewBox="0 0 300 92" preserveAspectRatio="none" role="img" aria-label="distribution">'
        f'<path class="real" d="M0,90 L{area} L300,90 Z"/><path class="synthetic" d="M0,90 L{line} L300,90"/></svg>'
        f'<div class="ends">{ends}</div></div>'
    )


def _steps(shares: Floats) -> str:
    edges = np.linspace(0, 300, len(shares) + 1)
    x = np.repeat(edges, 2)[1:-1]
    y = np.repeat(90 - 86 * shares, 2)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _bars(histogram: Histogram) -> str:
    """Draw a bar of real and a bar of synthetic rows for every level."""
    real, synthetic = histogram.shares[0], histogram.shares[1]
    top = max(float(real.max(initial=0)), float(synthetic.max(initial=0)), 1e-12)
    lines = [
        f'<div class="level"><span class="name">{text(label)}</span><span class="pair">'
        f'<span class="real" style="width:{100 * a / top:.1f}%"></span>'
        f'<span class="synthetic" style="width:{100 * b / top:.1f}%"></span></span>'
        f'<span class="value">{a:.1%}<br>{b:.1%}</span></div>'
        for label, a, b in zip(histogram.labels, real.tolist(), synthetic.tolist(), strict=True)
    ]
    return f'<div class="levels">{"".join(lines)}</div>'


def _clip(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
