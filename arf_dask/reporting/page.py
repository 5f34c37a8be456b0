"""Render the report as one HTML page without network access or scripts; all data values are escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.fidelity import Fidelity, mean_shape
from arf_dask.reporting.page_style import STYLE
from arf_dask.reporting.pictures import Whisker, bars, gauge, heatmap, number, overlay, text, whiskers
from arf_dask.reporting.privacy import Privacy
from arf_dask.reporting.verdict import ATTACK_NAMES, LEAST_ROWS, Verdict, weakest_columns
from arf_dask.reporting.words import plain_name

MOST_CARDS = 80  # maximum columns with a chart, the weakest first
MOST_HEAT = 20  # maximum columns of a heat map
MOST_WIDTH = 12  # maximum columns of a table of rows
EXPLAINED = {
    "nearest_neighbour": "a synthetic row lies unusually near",
    "domias": "denser among synthetic rows than in the population",
    "logan": "a classifier takes it for synthetic",
    "log_density": "the model finds it likely",
    "lira": "shadow models with and without it",
}


class PageFacts(NamedTuple):
    """Facts about the input of the report."""

    rows: dict[str, int]  # by frame: real, synthetic and holdout
    columns: int
    skipped: dict[str, str]
    notes: list[str]  # notes on sampling
    surest: pl.DataFrame  # the most confidently detected synthetic rows
    exposed_rows: pl.DataFrame | None  # content of exposed real rows, only with show_rows=True
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON values, without rows."""
        return {
            "rows": self.rows,
            "columns": self.columns,
            "skipped": self.skipped,
            "notes": self.notes,
            "seed": self.seed,
        }


def render_page(
    fidelity: Fidelity, privacy: Privacy, verdict: Verdict, facts: PageFacts, gate: str = "", release: str = ""
) -> str:
    """Render the whole page; `gate` and `release` are rendered sections."""
    body = "".join(
        [
            _title(facts),
            gate,
            _summary(verdict, fidelity, privacy),
            _fidelity_section(fidelity, facts),
            _privacy_section(privacy, facts),
            release,
            _method(facts, privacy),
        ]
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<link rel="icon" href="data:,"><title>Synthetic data report</title><style>{STYLE}</style></head>'
        f'<body class="arf"><main>{body}</main></body></html>'
    )


def _title(facts: PageFacts) -> str:
    sizes = ", ".join(f"{count:,} {name}" for name, count in facts.rows.items())
    return f'<h1>Synthetic data report</h1><div class="soft">Rows: {sizes}. Columns compared: {facts.columns}.</div>'


def _summary(verdict: Verdict, fidelity: Fidelity, privacy: Privacy) -> str:
    """Render the verdicts on fidelity and privacy with gauges, and the main figures."""
    worst = privacy.worst
    good = gauge(fidelity.detection.auc, (0.6, 0.8), "told from real rows")
    safe = "" if worst is None else gauge(worst[1].auc, (0.57, 0.7), "told from outsiders")
    halves = [
        ("How good?", fidelity_colour(fidelity), verdict.fidelity, good, verdict.fidelity_reasons),
        ("How safe?", privacy_colour(verdict), verdict.privacy, safe, verdict.privacy_reasons),
    ]
    cards = [
        f'<div class="card {colour}-edge"><h3 class="soft">{question}</h3>'
        f'<div class="word {colour}">{escape(word)}</div>{picture}{_listed(reasons)}</div>'
        for question, colour, word, picture, reasons in halves
    ]
    return f'<div class="halves">{"".join(cards)}</div>{_tiles(fidelity, privacy)}'


def fidelity_colour(fidelity: Fidelity) -> str:
    """Return the colour class of the fidelity verdict."""
    auc = fidelity.detection.auc
    if fidelity.detection.rows < LEAST_ROWS:
        return "fair"
    return "good" if auc <= 0.6 else "fair" if auc <= 0.8 or np.isnan(auc) else "bad"


def privacy_colour(verdict: Verdict) -> str:
    """Return the colour class of the privacy verdict."""
    if verdict.privacy.endswith(("leaks", "are copies")):
        return "bad"
    return "good" if "no attack" in verdict.privacy else "fair"


def _tiles(fidelity: Fidelity, privacy: Privacy) -> str:
    pairs = fidelity.pairs_ceiling
    manifold = fidelity.manifold_ceiling
    tiles = [
        ("detector AUC, 0.5 is best", fidelity.detection.auc, fidelity.detection_ceiling),
        ("column shapes (SDMetrics)", mean_shape(fidelity.columns), mean_shape(fidelity.ceilings)),
        ("pair trends (SDMetrics)", fidelity.pairs.trend, None if pairs is None else pairs.trend),
        ("density", fidelity.manifold.density, None if manifold is None else manifold.density),
        ("coverage", fidelity.manifold.coverage, None if manifold is None else manifold.coverage),
    ]
    worst = privacy.worst
    if worst is not None:
        tiles.append(("strongest attack, AUC", worst[1].auc, None))
    shown = [
        f'<div class="card tile"><b>{number(value)}</b><span>{escape(name)}{_bracket(ceiling)}</span></div>'
        for name, value, ceiling in tiles
    ]
    return f'<div class="tiles">{"".join(shown)}</div>'


def _fidelity_section(fidelity: Fidelity, facts: PageFacts) -> str:
    order = weakest_columns(fidelity)
    cards = "".join(_column_card(name, fidelity) for name in order[:MOST_CARDS])
    more = (
        f'<p class="soft">{len(order) - MOST_CARDS} more columns are in the data.</p>'
        if len(order) > MOST_CARDS
        else ""
    )
    return (
        "<h2>How close are the columns?</h2>"
        '<p class="soft">Weakest first. In brackets: what held-out real rows reach, the best to hope for.</p>'
        '<p class="key soft"><i style="background:var(--real);margin-left:0"></i>real'
        '<i style="background:var(--synthetic)"></i>synthetic</p>'
        f'<div class="grid">{cards}</div>{more}{_pairs(fidelity)}{_detector(fidelity, facts)}{_rules(fidelity)}'
    )


def _column_card(name: str, fidelity: Fidelity) -> str:
    found, ceiling = fidelity.columns[name], fidelity.ceilings.get(name)
    figures = []
    for label, key in (("TVD", "tvd"), ("KS", "ks"), ("Wasserstein", "wasserstein")):
        value = getattr(found, key)
        if value is not None:
            figures.append(f"{label} {number(value)}{_bracket(None if ceiling is None else getattr(ceiling, key))}")
    if max(found.missing) > 0:
        figures.append(f"missing {found.missing[0]:.1%} real, {found.missing[1]:.1%} synthetic")
    return (
        f'<div class="card"><h3>{text(name)}</h3>{overlay(fidelity.histograms[name])}'
        f'<div class="figures">{" · ".join(figures)}</div></div>'
    )


def _pairs(fidelity: Fidelity) -> str:
    pairs = fidelity.pairs
    if len(pairs.names) < 2:
        return ""
    gap = pairs.synthetic - pairs.real
    chosen = np.sort(np.argsort(-np.abs(gap).sum(axis=1), kind="stable")[:MOST_HEAT])
    names = [pairs.names[int(place)] for place in chosen]
    square = np.ix_(chosen, chosen)
    maps = [
        heatmap(names, pairs.real[square], "real"),
        heatmap(names, pairs.synthetic[square], "synthetic"),
        heatmap(names, gap[square], "difference, times four", signed=True),
    ]
    ceiling = None if fidelity.pairs_ceiling is None else fidelity.pairs_ceiling.difference
    left_out = ""
    if len(names) < len(pairs.names):
        left_out = f'<p class="soft">The {len(names)} columns that differ most, of {len(pairs.names)}.</p>'
    return (
        "<h2>Do columns hang together as they should?</h2>"
        '<p class="soft">Association of every two columns: correlation of numbers, Cramér V of levels, correlation '
        f"ratio of a number and a level. Mean difference {number(pairs.difference)}{_bracket(ceiling)}.</p>"
        f'<div class="card heats">{"".join(maps)}</div>{left_out}'
    )


def _detector(fidelity: Fidelity, facts: PageFacts) -> str:
    detection = fidelity.detection
    if not detection.giveaways:
        return ""
    telling = bars([(name, max(lost, 0.0)) for name, lost in detection.giveaways[:10]])
    rows = [number for number, _ in detection.surest]
    chances = [f"{chance:.1%}" for _, chance in detection.surest]
    return (
        "<h2>What gives synthetic rows away?</h2>"
        f'<p class="soft">A gradient-boosted detector reaches an AUC of {number(detection.auc)}'
        f"{_bracket(fidelity.detection_ceiling)}. Below: how much of it is lost when a column is shuffled.</p>"
        f'<div class="card">{telling}</div>{_giveaway_rules(fidelity)}'
        "<details><summary>The ten synthetic rows that it is surest of</summary>"
        f"{_rows_table(facts.surest, [('row', [str(row) for row in rows]), ('synthetic', chances)])}</details>"
    )


def _giveaway_rules(fidelity: Fidelity) -> str:
    if not fidelity.detection.rules:
        return ""
    rows = "".join(
        f"<tr><td>{escape(found.rule)}</td><td>{_percent(found.real)}</td><td>{_percent(found.synthetic)}</td></tr>"
        for found in fidelity.detection.rules
    )
    return (
        '<div class="card scroll" style="margin-top:14px"><table class="told"><tr><th>where the detector is surest</th>'
        f"<th>real</th><th>synthetic</th></tr>{rows}</table></div>"
    )


def _rules(fidelity: Fidelity) -> str:
    if not fidelity.rules:
        return ""
    rows = "".join(
        f"<tr><td>{text(rule['rule'])}</td><td>{_percent(rule['real'])}</td><td>{_percent(rule['synthetic'])}</td></tr>"
        for rule in fidelity.rules
    )
    return (
        '<h2>Do the rules hold?</h2><div class="card scroll"><table class="told"><tr><th>rule</th><th>real rows</th>'
        f"<th>synthetic rows</th></tr>{rows}</table></div>"
    )


def _privacy_section(privacy: Privacy, facts: PageFacts) -> str:
    if not privacy.attacks:
        return (
            "<h2>What can attackers learn?</h2><p>Not tested: give held-out rows "
            "(<code>holdout=</code>), which the generator never saw.</p>"
        )
    lines = [
        Whisker(ATTACK_NAMES[name], curve.auc, *curve.interval, f"{curve.auc:.3f} ({_span(curve.interval)})")
        for name, curve in privacy.attacks.items()
    ]
    return (
        "<h2>Can attackers tell who was in the data?</h2>"
        '<p class="soft">AUC of each attack with its 95 % interval: training rows against held-out ones. 0.5 is '
        "chance, 1 is certainty.</p>"
        f'<div class="card">{whiskers(lines, 0.4, 1.0, 0.5, "chance")}</div>{_attack_table(privacy)}'
        f"{_games(privacy)}{_exposed(privacy, facts)}{_small_print(privacy)}"
    )


def _attack_table(privacy: Privacy) -> str:
    rates = list(next(iter(privacy.attacks.values())).tpr)
    head = "".join(f"<th>caught at {100 * float(rate):g} % false alarms</th>" for rate in rates)
    rows = []
    for name, curve in {**privacy.attacks, **privacy.model_attacks}.items():
        caught = "".join(f"<td>{_with_span(curve.tpr[rate], curve.tpr_interval[rate], '.1%')}</td>" for rate in rates)
        apart = privacy.isolated.get(name)
        alone = "-" if apart is None else _with_span(apart.auc, apart.interval, ".2f")
        where = " <b>(needs the model file)</b>" if name in privacy.model_attacks or name == "log_density" else ""
        hint = EXPLAINED.get(name, "")
        rows.append(
            f'<tr><td>{escape(ATTACK_NAMES[name])}{where}<br><span class="soft">{escape(hint)}</span></td>'
            f"<td>{_with_span(curve.auc, curve.interval, '.3f')}</td>{caught}<td>{alone}</td></tr>"
        )
    return (
        f'<div class="card scroll" style="margin-top:14px"><table class="attacks"><tr><th>attack</th><th>AUC</th>{head}'
        f"<th>AUC, 1 % most isolated rows</th></tr>{''.join(rows)}</table></div>"
    )


def _games(privacy: Privacy) -> str:
    named = {"singling_out": "singling out", "linkability": "linkability"}
    games = {named[name]: game for name, game in privacy.games.items()}
    games |= {f"inference of {name}": game for name, game in privacy.inference.items()}
    if not games:
        return ""
    lines = [
        Whisker(name[:60], game.excess, *game.interval, f"{game.members:.1%} / {game.others:.1%}")
        for name, game in games.items()
    ]
    most = max(0.05, *(abs(end) for line in lines for end in (line.low, line.high)))
    reach = float(np.ceil(most * 20) / 20)
    return (
        "<h2>Singling out, linkability, inference</h2>"
        '<p class="soft">How much better an attacker with the synthetic rows does on people in the data than on '
        "people who are not (95 % interval). What is guessed right about outsiders too is statistics, not a leak. "
        "At the right: success on members / on others. Of twenty such intervals, about one misses zero by chance.</p>"
        f'<div class="card">{whiskers(lines, -reach, reach, 0.0, "no leak")}</div>'
    )


def _exposed(privacy: Privacy, facts: PageFacts) -> str:
    exposed = privacy.exposed
    if not exposed.height:
        return ""
    marks = [
        ("row", [str(row) for row in exposed["row"]]),
        ("attack", [ATTACK_NAMES[name] for name in exposed["attack"]]),
        ("outsiders as suspicious", [f"{share:.2%}" for share in exposed["outsiders"]]),
    ]
    content = pl.DataFrame() if facts.exposed_rows is None else facts.exposed_rows
    return (
        "<details><summary>The most exposed one per cent of the training rows attacked, by row number</summary>"
        f"{_rows_table(content, marks)}</details>"
    )


def _small_print(privacy: Privacy) -> str:
    copies = privacy.copies
    lines = [
        f"Equal to a training row: {copies['synthetic'].identical:.3%} of synthetic rows"
        f" [{copies['holdout'].identical:.3%} of held-out rows].",
        f"Equal in all but one column: {copies['synthetic'].near:.3%} [{copies['holdout'].near:.3%}].",
        f"Nearer to training than to held-out rows: {number(privacy.nearer)} (0.5 is best). Distances alone miss "
        "vulnerable rows; judge by the attacks.",
    ]
    rare = ", ".join(f"{plain_name(name)}: {count}" for name, count in privacy.rare.items())
    lines.append(f"Levels of fewer than ten real rows that came through: {rare if rare else 'none'}.")
    if privacy.smallest_leaf is not None:
        lines.append(f"Smallest leaf of the model: {privacy.smallest_leaf:,} rows.")
    return f'<div class="card" style="margin-top:14px"><h3>Copies, distances and rare values</h3>{_listed(lines)}</div>'


def _method(facts: PageFacts, privacy: Privacy) -> str:
    skipped = [f"{plain_name(name)}: {reason}" for name, reason in facts.skipped.items()]
    notes = [*facts.notes, *(f"Not compared: {line}." for line in skipped), f"Seed {facts.seed}."]
    if privacy.attacks:
        notes.append(f"Shadow models: {privacy.shadows}.")
    return f"<details><summary>How this was measured</summary>{_listed(notes)}</details>"


def _rows_table(frame: pl.DataFrame, marks: Sequence[tuple[str, list[str]]]) -> str:
    """Render rows as a table with the columns of `marks` first; wide frames show only the first columns."""
    shown = frame[:, :MOST_WIDTH] if frame.width else frame
    head = "".join(f"<th>{text(name)}</th>" for name in [*(name for name, _ in marks), *shown.columns])
    cells = [values for _, values in marks] + [[str(value) for value in column.to_list()] for column in shown]
    rows = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in zip(*cells, strict=True))
    return f'<div class="card scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _listed(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _bracket(ceiling: float | None) -> str:
    return "" if ceiling is None or np.isnan(ceiling) else f" [{ceiling:.3f}]"


def _span(interval: tuple[float, float], form: str = ".3f") -> str:
    return f"{interval[0]:{form}} to {interval[1]:{form}}"


def _with_span(value: float, interval: tuple[float, float], form: str) -> str:
    return f'{value:{form}}<br><span class="soft">{_span(interval, form)}</span>'


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
