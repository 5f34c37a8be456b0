"""The likelihood-ratio attack (LiRA, Carlini et al., 2022) with shadow models.

Every shadow model is fitted like the attacked model, on a random half of the training and held-out rows. For every
attacked row, shadow models trained with and without it give the distribution of its score in either case; the attack
compares the observed score with both. Two scores are calibrated this way: the distance to the nearest synthetic row
(available to attackers who see only synthetic rows), and the model's log-density (for those with the model file).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from arf_dask.reporting.membership import Arena, DensityModel, Refit, Scores, floored_density
from arf_dask.reporting.neighbours import embed, nearest
from arf_dask.typing import Flags, Floats

LEAST_GAIN = 0.1  # minimum effect of membership on a score, in standard deviations
CLOSE_ROWS = 10_000  # synthetic rows searched for the nearest one


class Shadows(NamedTuple):
    """Scores of the attacked rows under every shadow model."""

    held: Flags  # (shadow, row): whether the shadow was trained on this row
    distances: Floats  # (shadow, row): negative log distance to the nearest synthetic row
    densities: Floats  # (shadow, row): log-density; empty if the model file is not attacked


def cast_shadows(
    arena: Arena,
    real: pl.DataFrame,
    refit: Refit,
    count: int,
    most_rows: int,
    rng: np.random.Generator,
    tell: Callable[[], None],
    *,
    white: bool = True,
) -> Shadows:
    """Fit shadow models and score the attacked rows, each of which is in about half of the shadow models.

    Log-densities, for attacks on the model file, are computed only if `white` is true.
    """
    attacked, fill = arena.attacked, _bystanders(arena, real, most_rows, rng)
    n_synthetic = min(arena.synthetic.height, CLOSE_ROWS)
    held: list[Flags] = []
    distances, densities = [], []
    for number in range(count):
        # Shadows come in pairs: the second is trained on the attacked rows that the first did not have.
        inside = ~held[-1] if number % 2 else _half(attacked.height, rng)
        others = fill[np.sort(rng.permutation(fill.height)[: fill.height // 2])]
        seed = int(rng.integers(2**31))
        model = refit(pl.concat([attacked.filter(inside), others]), seed)
        drawn = model.sample(n_synthetic, seed=seed, progress=False)
        held.append(inside)
        distances.append(log_closeness(drawn.select(attacked.columns), attacked))
        if white:
            densities.append(floored_density(model, attacked))
        tell()
    return Shadows(np.array(held), np.array(distances), np.array(densities))


def log_closeness(synthetic: pl.DataFrame, attacked: pl.DataFrame) -> Floats:
    """Return the negative log distance of every row to the nearest synthetic row."""
    points = embed([synthetic, attacked]).points
    return -np.log(nearest(points[1], points[0])[0][:, 0] + 1e-3)


def likelihood_ratio(arena: Arena, seen: Floats, shadow_scores: Floats, held: Flags) -> Scores:
    """Return the log ratio of normal likelihoods of the observed scores `seen`: as a member over as an outsider.

    A few shadow models say little about a single row. The variance is therefore pooled over all rows, and the effect of
    membership on a row's score is shrunk towards its mean over all rows by the share of noise in its estimate
    (empirical Bayes). The effect is at least a tenth of the standard deviation, so that a generator that leaks more
    than its shadows is still detected. As shadows only resemble the attacked model, scores are centred on their mean.
    """
    seen = seen - seen.mean() + shadow_scores.mean()
    side_masks = (held, ~held)
    side_counts = [np.maximum(side.sum(axis=0), 1) for side in side_masks]
    side_means = [
        np.where(side, shadow_scores, 0.0).sum(axis=0) / n for side, n in zip(side_masks, side_counts, strict=True)
    ]
    squared_sum = sum(
        float(((shadow_scores - mean)[side] ** 2).sum()) for side, mean in zip(side_masks, side_means, strict=True)
    )
    free_degrees = (
        shadow_scores.size - 2 * shadow_scores.shape[1]
    )  # zero with two shadows, as each row is in one of them
    variance = (
        squared_sum / free_degrees if free_degrees > 0 else float((side_means[0] - side_means[1]).var()) / 2
    ) + 1e-12
    member_gain = shrunken(side_means[0] - side_means[1], variance / side_counts[0] + variance / side_counts[1])
    member_gain = np.maximum(member_gain, LEAST_GAIN * np.sqrt(variance))
    outsider_mean = (side_counts[0] * (side_means[0] - member_gain) + side_counts[1] * side_means[1]) / (
        side_counts[0] + side_counts[1]
    )
    return arena.split(member_gain * (seen - outsider_mean - member_gain / 2) / variance)


def shrunken(estimates: Floats, noise: Floats) -> Floats:
    """Shrink estimates towards their mean by the share of their variance that is noise.

    >>> shrunken(np.array([1.0, 3.0]), np.array([1.0, 1.0])), shrunken(np.array([1.0, 3.0]), np.array([0.0, 0.0]))
    (array([2., 2.]), array([1., 3.]))
    """
    centre = float(estimates.mean())
    signal = max(0.0, float(estimates.var()) - float(noise.mean()))
    return centre + (estimates - centre) * (signal / np.maximum(signal + noise, 1e-12))


def black_box(arena: Arena, shadows: Shadows) -> Scores:
    """Attack the synthetic rows."""
    seen = log_closeness(arena.synthetic.head(CLOSE_ROWS), arena.attacked)
    return likelihood_ratio(arena, seen, shadows.distances, shadows.held)


def white_box(arena: Arena, shadows: Shadows, model: DensityModel) -> Scores:
    """Attack the model file."""
    seen = floored_density(model, arena.attacked)
    return likelihood_ratio(arena, seen, shadows.densities, shadows.held)


def _bystanders(arena: Arena, real: pl.DataFrame, most_rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """Choose real rows that are not attacked, so that a shadow has about as many rows as the attacked model."""
    free = np.setdiff1d(np.arange(real.height), arena.member_rows)
    wanted = max(0, 2 * min(real.height, most_rows) - arena.members.height - arena.others.height)
    chosen = free if len(free) <= wanted else np.sort(rng.choice(free, wanted, replace=False))
    pools = [real[chosen], arena.reference] if len(chosen) < wanted else [real[chosen]]
    return pl.concat(pools)


def _half(n_rows: int, rng: np.random.Generator) -> Flags:
    inside = np.zeros(n_rows, dtype=bool)
    inside[rng.permutation(n_rows)[: n_rows // 2]] = True
    return inside
