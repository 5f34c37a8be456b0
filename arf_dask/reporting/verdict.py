"""Summarise the figures in cautious sentences, with the weakest points first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arf_dask.reporting.fidelity import Fidelity
from arf_dask.reporting.privacy import Privacy
from arf_dask.reporting.words import plain_name

ATTACK_NAMES = {
    "nearest_neighbour": "nearest synthetic neighbour",
    "domias": "density ratio (DOMIAS)",
    "logan": "classifier (LOGAN)",
    "log_density": "the model's log-density",
    "lira": "likelihood ratio with shadow models (LiRA)",
    "lira_log_density": "LiRA on the model's log-density",
}
WEAK = 3  # columns named as the weakest
LEAST_ROWS = 100  # rows of each kind below which no verdict is given
MANY_COPIES = 0.05  # share of copies beyond what is usual that decides the verdict
UNSURE = 0.6  # upper interval bound of the strongest attack's AUC below which attacks count as unsuccessful


class Verdict(NamedTuple):
    """A short verdict and its reasons for fidelity and for privacy."""

    fidelity: str
    fidelity_reasons: list[str]
    privacy: str
    privacy_reasons: list[str]

    def to_dict(self) -> dict[str, object]:
        """Return the verdict as plain JSON values."""
        return self._asdict()


def judge(fidelity: Fidelity, privacy: Privacy) -> Verdict:
    """Return the verdict on fidelity and privacy."""
    return Verdict(
        _fidelity_word(fidelity), _fidelity_reasons(fidelity), _privacy_word(privacy), _privacy_reasons(privacy)
    )


def weakest_columns(fidelity: Fidelity) -> list[str]:
    """Return column names, sorted by how far their distance exceeds its ceiling, largest first."""

    def excess(name: str) -> float:
        ceiling = fidelity.ceilings.get(name)
        gap = fidelity.columns[name].distance - (0.0 if ceiling is None else ceiling.distance)
        return -gap if not np.isnan(gap) else 0.0

    return sorted(fidelity.columns, key=excess)


def _fidelity_word(fidelity: Fidelity) -> str:
    auc = fidelity.detection.auc
    if fidelity.detection.rows < LEAST_ROWS:
        return "Too few rows to say"
    for limit, word in ((0.55, "Hard to tell from real rows"), (0.65, "Close"), (0.8, "Recognisable")):
        if auc <= limit:
            return word
    return "Too few rows to say" if np.isnan(auc) else "Easily told from real rows"


def _fidelity_reasons(fidelity: Fidelity) -> list[str]:
    detection, reasons = fidelity.detection, []
    ceiling = "" if fidelity.detection_ceiling is None else f" (real rows: {fidelity.detection_ceiling:.3f})"
    reasons.append(
        f"A detector tells synthetic from real rows with an AUC of {detection.auc:.3f}{ceiling}; 0.5 is chance."
    )
    weakest = weakest_columns(fidelity)[:WEAK]
    listed = ", ".join(f"{plain_name(name)} ({fidelity.columns[name].distance:.3f})" for name in weakest)
    reasons.append(f"The columns furthest from the real ones: {listed}.")
    telling = [plain_name(name) for name, lost in detection.giveaways[:WEAK] if lost > 0.01]
    if telling:
        reasons.append(f"What gives synthetic rows away most: {', '.join(telling)}.")
    broken = [rule for rule in fidelity.rules if rule["synthetic"] is not None and rule["synthetic"] < rule["real"]]
    if broken:
        reasons.append(f"{len(broken)} of {len(fidelity.rules)} rules hold in fewer synthetic than real rows.")
    useful = fidelity.usefulness
    if useful is not None and not np.isnan([useful.synthetic, useful.real]).any():
        name = "AUC" if useful.score == "auc" else "R²"
        reasons.append(
            f"Predicting {plain_name(useful.target)}: {name} {useful.synthetic:.3f} when trained on synthetic rows, "
            f"{useful.real:.3f} on real ones."
        )
    return reasons


def _privacy_word(privacy: Privacy) -> str:
    worst, copies = privacy.worst, _excess_copies(privacy)
    if copies > MANY_COPIES:
        return f"{privacy.copies['synthetic'].identical:.0%} of the synthetic rows are copies"
    if worst is None:
        return "Not attack-tested"
    if worst[1].interval[0] > 0.7 or copies > 0.01:
        return "Attack-tested: leaks"
    if worst[1].interval[0] > 0.55 or copies > 0.001:
        return "Attack-tested: some attacks succeed"
    if worst[1].interval[1] > UNSURE:
        return "Attack-tested: too few held-out rows to rule out a leak"
    return "Attack-tested: no attack does much better than chance"


def _privacy_reasons(privacy: Privacy) -> list[str]:
    worst, synthetic = privacy.worst, privacy.copies["synthetic"]
    if worst is None:
        return [
            "There were no held-out rows, or too few: without them no membership attack can be judged.",
            f"{synthetic.identical:.2%} of synthetic rows equal a training row; "
            f"{privacy.copies['real'].identical:.2%} of the training rows equal another one.",
        ]
    name, curve = worst
    low, high = curve.interval
    reasons = [
        f"The strongest attack, {ATTACK_NAMES[name]}, tells training from held-out rows with an AUC of {curve.auc:.3f} "
        f"(95 % interval {low:.3f} to {high:.3f}); 0.5 is chance."
    ]
    catches = max(privacy.attacks.values(), key=lambda other: other.tpr["0.01"])
    reasons.append(
        f"At one false alarm in a hundred, the best attack recognises {catches.tpr['0.01']:.1%} of the training rows."
    )
    holdout = privacy.copies["holdout"]
    reasons.append(
        f"{synthetic.identical:.2%} of synthetic rows equal a training row, {holdout.identical:.2%} of held-out rows. "
        f"In all but one column: {synthetic.near:.2%} and {holdout.near:.2%}."
    )
    leaking = [plain_name(column) for column, game in privacy.inference.items() if game.interval[0] > 0.02]
    if leaking:
        reasons.append(f"Guessed clearly better for people in the data than for others: {', '.join(leaking)}.")
    for model_name, model_curve in privacy.model_attacks.items():
        reasons.append(
            f"Whoever holds the model file itself can do more: {ATTACK_NAMES[model_name]} reaches an AUC of "
            f"{model_curve.auc:.3f}. Publish rows, not the model."
        )
    reasons.append("Attack-tested does not mean anonymous: other attacks may do better.")
    return reasons


def _excess_copies(privacy: Privacy) -> float:
    """Return the share of copies beyond that of held-out rows, or of real rows that equal others."""
    usual = privacy.copies.get("holdout", privacy.copies["real"])
    return privacy.copies["synthetic"].identical - usual.identical
