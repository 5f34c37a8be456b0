"""Page sections for the decision of the release gate and the effects of the release policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from arf_dask.reporting.pictures import text

LIMIT_NAMES = {
    "membership_auc": "AUC of the strongest membership attack",
    "c2st": "AUC of the detector",
    "tpr": "training rows recognised at one false alarm in a hundred",
    "copies": "synthetic rows that equal a training row, beyond held-out rows that do",
    "inference": "excess in guessing a column of people in the data",
}
POLICY_NAMES = {
    "min_leaf": "subjects in every leaf, at least",
    "min_level": "subjects of every level and combination, at least",
    "clip_extremes": "extreme subjects clipped at either end of a number",
    "round_bounds": "bounds and split points rounded",
    "forbid_copies": "copies of unique rows redrawn",
    "subject": "column that names a person",
    "max_rows_per_subject": "rows learned of every person, at most",
    "rare": "rare levels",
    "shrinkage": "rows' worth by which leaves are drawn towards their parents",
}
COUNTS = {
    "rows": "rows given",
    "rows_learned": "rows learned from",
    "rows_beyond_limit_per_subject": "rows left out: too many of one person",
    "rows_with_rare_combinations": "rows left out: rare combinations",
    "subjects": "people",
    "smallest_leaf": "rows of the smallest leaf",
}


def render_gate(limits: Mapping[str, float | None] | None, refusals: Sequence[str]) -> str:
    """Render the decision of the gate with its limits or the reasons for refusal; empty without a gate."""
    if limits is None:
        return ""
    colour, word = ("bad", "Not published") if refusals else ("good", "Published: all limits hold")
    kept = [f"{LIMIT_NAMES[name]}: at most {limit:g}" for name, limit in limits.items() if limit is not None]
    lines = "".join(f"<li>{escape(line)}</li>" for line in (refusals if refusals else kept))
    return f'<div class="card gate {colour}-edge"><div class="word {colour}">{word}</div><ul>{lines}</ul></div>'


def render_release(release: Mapping[str, Any] | None) -> str:
    """Render the policy and the counts of its effects; empty without a policy."""
    if release is None:
        return ""
    policy = [(POLICY_NAMES.get(name, name), _told(value)) for name, value in release["policy"].items()]
    counts = [(label, _told(release.get(name))) for name, label in COUNTS.items() if release.get(name) is not None]
    loosened = release.get("loosened", [])
    warning = f'<p class="bad">Looser than the defaults: {text(", ".join(loosened))}.</p>' if loosened else ""
    return (
        '<h2>What did the release policy do?</h2><div class="halves">'
        f'<div class="card"><h3>Policy</h3>{warning}{_table(policy)}</div>'
        f'<div class="card"><h3>Effect</h3>{_table([*counts, *_by_column(release)])}</div></div>'
    )


def _by_column(release: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (column, effects): levels merged, values clipped or moved, columns replaced."""
    merged = release.get("levels_merged", {}).items()
    lines = [
        (f"{name}: levels merged into {found['into']}", f"{found['levels']:,} (rows: {found['rows']:,})")
        for name, found in merged
    ]
    effects = (
        ("values_clipped", "values clipped"),
        ("spikes_moved", "rare values moved"),
        ("missing_filled", "rare missing values filled"),
    )
    for key, label in effects:
        lines += [(f"{name}: {label}", f"{rows:,}") for name, rows in release.get(key, {}).items()]
    for key, label in (("columns_suppressed", "too few people, emptied"), ("identifiers_replaced", "fresh values")):
        lines += [(f"{name}", label) for name in release.get(key, [])]
    return lines


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td>{text(name)}</td><td>{text(value)}</td></tr>" for name, value in rows)
    return f'<div class="scroll"><table class="facts">{cells}</table></div>'


def _told(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,g}" if isinstance(value, float) else f"{value:,}"
        case Mapping():
            return ", ".join(f"{name}: {entry}" for name, entry in value.items())
        case _:
            return str(value)
