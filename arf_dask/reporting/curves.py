"""Evaluate attack scores: AUC, true-positive rates, and bootstrap intervals."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from arf_dask.typing import Counts, Floats

RATES = (0.001, 0.01, 0.1)  # false-positive rates at which true-positive rates are reported
DRAWS = 200  # bootstrap replicates
LEVEL = 0.95


class Curve(NamedTuple):
    """The result of one attack."""

    auc: float
    interval: tuple[float, float]  # 95 % bootstrap interval
    tpr: dict[str, float]  # true-positive rate by false-positive rate
    tpr_interval: dict[str, tuple[float, float]]
    members: int  # attacked rows from the training data
    others: int  # attacked rows not in the training data

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain JSON values."""
        return {
            "auc": self.auc,
            "interval": list(self.interval),
            "tpr": dict(self.tpr),
            "tpr_interval": {rate: list(ends) for rate, ends in self.tpr_interval.items()},
            "members": self.members,
            "others": self.others,
        }


class _Ordered(NamedTuple):
    """Scores in descending order, grouped by equal values."""

    group: Counts  # group per row
    member: Floats  # 1 for members, per row
    ends: Counts  # index after the last row, per group


def make_curve(members: Floats, others: Floats, rng: np.random.Generator) -> Curve:
    """Evaluate an attack whose higher scores mean "was in the training data"."""
    ordered = _order(members, others)
    ones = np.ones((1, len(ordered.member)), dtype=np.float64)
    auc, rates = _figures(ordered, ones)
    drawn = _bootstrap(ordered, rng)
    aucs, many = _figures(ordered, drawn)
    keys = [f"{rate:g}" for rate in RATES]
    return Curve(
        float(auc[0]),
        _interval(aucs),
        {key: float(rates[0, place]) for place, key in enumerate(keys)},
        {key: _interval(many[:, place]) for place, key in enumerate(keys)},
        len(members),
        len(others),
    )


def auc_of(members: Floats, others: Floats) -> float:
    """Return the probability that a member scores above a non-member; ties count half."""
    ordered = _order(members, others)
    return float(_figures(ordered, np.ones((1, len(ordered.member))))[0][0])


class Rate(NamedTuple):
    """A success rate and its effective number of independent trials."""

    value: float
    trials: float


def rate_of(hits: Floats, people: Counts | None = None) -> Rate:
    """Return the mean of outcomes in [0, 1]; outcomes of one person form a cluster.

    The effective number of trials matches the variance of the ratio estimator over people; it is at most the number of
    people if all outcomes are equal.
    """
    value = float(hits.mean())
    if people is None:
        return Rate(value, float(len(hits)))
    _, person = np.unique(people, return_inverse=True)
    residuals = np.bincount(person, hits - value)
    variance = float((residuals @ residuals) / len(hits) ** 2)
    spread = value * (1 - value)
    return Rate(value, min(float(len(hits)), spread / variance) if variance > 0 else float(len(residuals)))


def rate_interval(first: Rate, second: Rate) -> tuple[float, float, float]:
    """Return the difference of two rates and its 95 % interval by Newcombe's method (Wilson scores, 1998).

    Unlike the normal approximation, the interval does not collapse if all or no trials succeed.

    >>> [round(end, 4) for end in rate_interval(Rate(56 / 70, 70), Rate(48 / 80, 80))]
    [0.2, 0.0524, 0.3339]
    """
    difference = first.value - second.value
    (low1, high1), (low2, high2) = wilson(first), wilson(second)
    below = np.hypot(first.value - low1, high2 - second.value)
    above = np.hypot(high1 - first.value, second.value - low2)
    return difference, float(difference - below), float(difference + above)


def wilson(rate: Rate) -> tuple[float, float]:
    """Return the 95 % Wilson score interval of a rate."""
    z, p, n = 1.959964, rate.value, rate.trials
    centre, reach = p + z**2 / (2 * n), z * float(np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)))
    return (centre - reach) / (1 + z**2 / n), (centre + reach) / (1 + z**2 / n)


def _order(members: Floats, others: Floats) -> _Ordered:
    scores = np.concatenate([members, others])
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    new = np.concatenate([[True], ranked[1:] != ranked[:-1]]) if len(ranked) else np.empty(0, dtype=bool)
    ends = np.append(np.flatnonzero(new)[1:], len(ranked))
    return _Ordered(np.cumsum(new) - 1, (order < len(members)).astype(np.float64), ends)


def _bootstrap(ordered: _Ordered, rng: np.random.Generator) -> Floats:
    """Return bootstrap weights (draw, row); members and non-members are resampled separately."""
    weights = np.empty((DRAWS, len(ordered.member)), dtype=np.float64)
    for value in (0.0, 1.0):
        rows = np.flatnonzero(ordered.member == value)
        weights[:, rows] = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), DRAWS)
    return weights


def _figures(ordered: _Ordered, weights: Floats) -> tuple[Floats, Floats]:
    """Return AUC and true-positive rates for every row of weights."""
    last = ordered.ends - 1
    true = np.cumsum(weights * ordered.member, axis=1)[:, last]
    false = np.cumsum(weights * (1 - ordered.member), axis=1)[:, last]
    true, false = true / true[:, -1:], false / false[:, -1:]
    zero = np.zeros((len(weights), 1))
    tpr, fpr = np.concatenate([zero, true], axis=1), np.concatenate([zero, false], axis=1)
    auc = (np.diff(fpr, axis=1) * (tpr[:, 1:] + tpr[:, :-1]) / 2).sum(axis=1)
    # The curve is monotone, so the rate at a false-positive limit is a maximum.
    rates = np.stack([np.where(fpr <= rate + 1e-12, tpr, 0.0).max(axis=1) for rate in RATES], axis=1)
    return auc, rates


def _interval(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
